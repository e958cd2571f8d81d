//! Where the demo runs: two links side by side, one with taut at one end, one with the kernel at both.
//!
//! ```text
//!   this process    │ namespace "peer"        namespace "left"  │  namespace "right"
//!   taut ──────── TUN ── kernel               kernel ────────── veth ─────── kernel
//!   10.9.0.2, fd09::2    10.9.0.1, fd09::1    10.8.0.2, fd08::2      10.8.0.1, fd08::1
//! ```
//!
//! Where no TUN can be had, taut stands at both ends of an in-process link; where no namespaces can be had, the
//! kernel talks to itself over its loopback. Called by `demo.rs`.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use taut_core::LinkCaps;
use taut_device::{Cidr, Namespace, Tun, TunOptions};
pub(crate) use taut_lab::command::allow_namespaces;

use crate::control_args::ControlArgs;
use crate::link_args::queues;
use crate::net::{self, Kernel, Taut};
use crate::transport::Host;

/// The TUN's name in its namespace.
const TUN: &str = "taut0";
/// The port of every peer in a namespace of its own.
const PORT: u16 = 7000;
/// Both links have Ethernet's MTU.
const MTU: u16 = 1500;
/// What the in-process link holds before it says that it is full.
const PIPE_LIMIT_BYTES: usize = 1 << 20;

/// Two ends of a link, each with one address of each family.
#[derive(Debug)]
pub struct Pair<A, B> {
    /// The end that is measured.
    pub near: A,
    /// Its peer.
    pub far: B,
    /// Addresses of [`Pair::near`], IPv4 and, where there is IPv6, IPv6.
    pub near_addresses: Vec<IpAddr>,
    /// Addresses of [`Pair::far`], in the same order.
    pub far_addresses: Vec<IpAddr>,
    /// The port of both ends' peers; 0 for one that is free.
    pub port: u16,
    /// What the link is, in words.
    pub name: &'static str,
}

/// The link with taut.
pub enum Measured {
    /// To the kernel's TCP, over a TUN.
    Tun(Pair<Taut, Kernel>),
    /// To itself.
    InProcess(Pair<Taut, Taut>),
}

/// The link to compare with.
pub enum Baseline {
    /// Kernel to kernel, over veth.
    Veth(Pair<Kernel, Kernel>),
    /// Kernel to itself.
    Loopback(Pair<Host, Host>),
}

/// Both links, and what had to be done without.
pub struct Arena {
    /// The link with taut.
    pub measured: Measured,
    /// The link to compare with.
    pub baseline: Baseline,
    /// What is missing, for the user.
    pub missing: Vec<String>,
}

impl Arena {
    /// Sets up the best that this machine allows. To be called before the process has a second thread.
    ///
    /// # Errors
    /// When not even the in-process link can be made.
    pub fn new(in_process: bool, shards: u16, control: &ControlArgs) -> anyhow::Result<Self> {
        let mut missing = Vec::new();
        let namespaces = allow_namespaces();
        let has_ipv6 = std::path::Path::new("/proc/net/if_inet6").exists();
        if !has_ipv6 {
            missing.push("the kernel has no IPv6, so only IPv4 is shown".to_owned());
        }
        let families = if has_ipv6 { 2 } else { 1 };

        let tun = match &namespaces {
            _ if in_process => Err(None),
            Err(error) => Err(Some(format!("no private network namespace: {error:#}"))),
            Ok(()) => over_tun(families, shards, control).map_err(|error| Some(format!("no TUN: {error:#}"))),
        };
        let measured = match tun {
            Ok(pair) => Measured::Tun(pair),
            Err(why) => {
                missing.extend(why.map(|why| {
                    format!(
                        "{why}; so taut runs against itself over an in-process link, not against the kernel"
                    )
                }));
                Measured::InProcess(over_pipe(families, control).context("cannot make an in-process link")?)
            }
        };
        let veth = namespaces.map_err(anyhow::Error::from).and_then(|()| over_veth(families));
        let baseline = match veth {
            Ok(pair) => Baseline::Veth(pair),
            Err(error) => {
                missing.push(format!("no veth: {error:#}; so the kernel is measured over its loopback"));
                Baseline::Loopback(loopback(families))
            }
        };
        Ok(Self { measured, baseline, missing })
    }
}

impl Measured {
    /// The files of its stacks' control sockets.
    pub(crate) fn control_sockets(&self) -> Vec<PathBuf> {
        let stacks = match self {
            Self::Tun(pair) => vec![&pair.near.0],
            Self::InProcess(pair) => vec![&pair.near.0, &pair.far.0],
        };
        stacks.into_iter().filter_map(|stack| stack.control_path()).map(Path::to_owned).collect()
    }
}

fn cidrs(net: u8, host: u8, families: usize) -> Vec<Cidr> {
    let v4 = IpAddr::from([10, net, 0, host]);
    let v6 = IpAddr::from([0xfd00 + u16::from(net), 0, 0, 0, 0, 0, 0, u16::from(host)]);
    [Cidr::new(v4, 24), Cidr::new(v6, 64)].into_iter().flatten().take(families).collect()
}

fn bare(cidrs: &[Cidr]) -> Vec<IpAddr> {
    cidrs.iter().map(|cidr| cidr.address()).collect()
}

fn over_tun(families: usize, shards: u16, control: &ControlArgs) -> anyhow::Result<Pair<Taut, Kernel>> {
    let peer = Namespace::new()?;
    let (near, far) = (cidrs(9, 2, families), cidrs(9, 1, families));
    let queues = peer.enter(|| -> io::Result<Vec<Tun>> {
        let options = TunOptions { mtu: MTU, multi_queue: shards > 1, ..TunOptions::default() };
        let tun = Tun::open(TUN, &options)?;
        let interface = tun.interface()?;
        far.iter().try_for_each(|&address| interface.add_address(address))?;
        queues(tun, shards)
    })??;
    let stack = net::on_tun(queues, &near, control)?;
    Ok(Pair {
        near: Taut(stack),
        far: Kernel(peer),
        near_addresses: bare(&near),
        far_addresses: bare(&far),
        port: PORT,
        name: "taut to kernel over TUN",
    })
}

fn over_pipe(families: usize, control: &ControlArgs) -> io::Result<Pair<Taut, Taut>> {
    let (near, far) = (cidrs(9, 2, families), cidrs(9, 1, families));
    let (here, there) = taut_device::pipe(LinkCaps::offloading(MTU), PIPE_LIMIT_BYTES)?;
    Ok(Pair {
        near: Taut(net::on_pipe(here, &near, control)?),
        far: Taut(net::on_pipe(there, &far, &control.for_another())?),
        near_addresses: bare(&near),
        far_addresses: bare(&far),
        port: PORT,
        name: "taut to taut, in-process",
    })
}

fn over_veth(families: usize) -> anyhow::Result<Pair<Kernel, Kernel>> {
    let (left, right) = (Namespace::new()?, Namespace::new()?);
    let (near, far) = (cidrs(8, 2, families), cidrs(8, 1, families));
    let (a, b) = left.connect("veth0", &right, "veth0")?;
    for (interface, addresses) in [(&a, &near), (&b, &far)] {
        interface.set_mtu(u32::from(MTU))?;
        interface.set_up()?;
        addresses.iter().try_for_each(|&address| interface.add_address(address))?;
    }
    Ok(Pair {
        near: Kernel(left),
        far: Kernel(right),
        near_addresses: bare(&near),
        far_addresses: bare(&far),
        port: PORT,
        name: "kernel to kernel over veth",
    })
}

fn loopback(families: usize) -> Pair<Host, Host> {
    let both: Vec<IpAddr> = [IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)]
        .into_iter()
        .take(families)
        .collect();
    Pair {
        near: Host,
        far: Host,
        near_addresses: both.clone(),
        far_addresses: both,
        port: 0,
        name: "kernel to itself over loopback",
    }
}
