//! From a configuration to a running stack. Called by `taut_net_new`.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use libc::{EADDRNOTAVAIL, EINVAL};
use taut::device::{Cidr, FramesOptions, from_descriptor};
use taut::{Stack, StackBuilder};

use crate::border::{Answer, Errno, without_signals};

/// A station checks an IPv4 address for eight seconds at most (RFC 5227 §2.1.1).
const CHECKED_WITHIN: Duration = Duration::from_secs(15);

/// A configuration whose parts are taken apart.
pub(super) struct Config<'a> {
    pub(super) addresses: &'a str,
    pub(super) host_addresses: &'a str,
    pub(super) link: Link<'a>,
    pub(super) mtu: u16,
    pub(super) control: Option<&'a str>,
}

/// The link that packets go over.
pub(super) enum Link<'a> {
    Tun(&'a str),
    Fd { fd: OwnedFd, ethernet: bool },
}

/// A stack with a thread of its own.
pub(super) fn build(config: Config<'_>) -> Answer<Stack> {
    let mtu = if config.mtu == 0 { 1500 } else { config.mtu };
    let addresses = config.addresses.split_whitespace().map(str::parse).collect::<Result<Vec<Cidr>, _>>();
    let addresses = addresses.map_err(|_| Errno(EINVAL))?;
    let mut builder = Stack::builder();
    for address in config.addresses.split_whitespace() {
        builder = builder.address(address);
    }
    builder = match config.link {
        Link::Tun(name) => {
            let host = config.host_addresses.split_whitespace();
            host.fold(builder.tun(name).mtu(mtu), StackBuilder::host_address)
        }
        Link::Fd { fd, ethernet } => {
            let options = FramesOptions { mtu, ethernet, ..FramesOptions::default() };
            builder.device(from_descriptor(fd, &addresses, &options)?)
        }
    };
    if let Some(path) = config.control {
        builder = builder.control(path);
    }
    let stack = without_signals(|| builder.build())?;
    // On Ethernet, an address is the stack's when no other station has it.
    let has = |ip: IpAddr| stack.wait_for_address(Some(ip), CHECKED_WITHIN).is_some();
    if addresses.iter().all(|own| has(own.address())) { Ok(stack) } else { Err(Errno(EADDRNOTAVAIL)) }
}
