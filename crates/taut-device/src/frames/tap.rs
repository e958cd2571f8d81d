//! TAP: an Ethernet interface of the kernel whose other end is this process. `tuntap.rst`. Also descriptors
//! of TUN and TAP interfaces that another program has opened.

use std::fs::File;
use std::io;

use rustix::io::Errno;
use taut_core::LinkCaps;
use taut_wire::VnetHeader;

use super::invalid;
use crate::interface::Interface;
use crate::sys::tun_ioctl;
use crate::tun::{self, IFF_NO_PI, IFF_TUN, IFF_VNET_HDR};

// linux/if_tun.h
const IFF_TAP: u16 = 0x0002;

/// An open queue of a TAP interface.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) file: File,
    pub(super) name: String,
    pub(super) vnet_header: bool,
    /// What the link can do.
    pub(super) caps: LinkCaps,
}

/// What a descriptor was.
#[derive(Debug)]
pub(super) enum Handed {
    Tun { file: File, name: String, vnet_header: bool },
    Tap(Tap),
}

/// Creates or opens an interface; one that is new gets its MTU, and is brought up.
pub(super) fn open(name: &str, mtu: u16, vnet_header: bool) -> io::Result<Tap> {
    let existed = Interface::open(name).is_ok();
    let flags = IFF_TAP | IFF_NO_PI | if vnet_header { IFF_VNET_HDR } else { 0 };
    let file = tun::open_node()?;
    let name =
        tun_ioctl::attach(&file, tun::checked_name(name)?, flags).map_err(|error| explain(name, &error))?;
    let caps = caps_of(&file, mtu, vnet_header);
    if !existed {
        let interface = Interface::open(&name)?;
        interface.set_mtu(u32::from(mtu))?;
        interface.set_up()?;
        interface.wait_until_running(tun::CARRIER_WAIT)?;
    }
    Ok(Tap { file, name, vnet_header, caps })
}

fn caps_of(file: &File, mtu: u16, vnet_header: bool) -> LinkCaps {
    let offloads = if vnet_header { tun::take_super_packets(file, mtu) } else { None };
    offloads.unwrap_or_else(|| LinkCaps::plain(mtu))
}

/// Finds out what another program has opened.
pub(super) fn of_descriptor(file: File, mtu: u16) -> io::Result<Handed> {
    let (name, flags) = tun_ioctl::attached(&file).map_err(|error| {
        invalid(format!("the descriptor is no socket and no queue of a TUN or TAP interface ({error})"))
    })?;
    if flags & IFF_NO_PI == 0 {
        return Err(invalid(format!(
            "{name} puts its own header in front of packets: open it with IFF_NO_PI"
        )));
    }
    let vnet_header = flags & IFF_VNET_HDR != 0;
    if vnet_header {
        tun_ioctl::set_header_len(&file, VnetHeader::LEN as i32)?;
    }
    Ok(if flags & IFF_TUN != 0 {
        Handed::Tun { file, name, vnet_header }
    } else {
        let caps = caps_of(&file, mtu, vnet_header);
        Handed::Tap(Tap { file, name, vnet_header, caps })
    })
}

fn explain(name: &str, error: &io::Error) -> io::Error {
    let why = match Errno::from_io_error(error) {
        Some(Errno::BUSY) => "it is already in use",
        Some(Errno::INVAL) => "it is not a TAP interface: choose one, or a new name to create one",
        Some(Errno::PERM) => {
            "run as root, or have it made for this user: ip tuntap add dev NAME mode tap user USER"
        }
        _ => return io::Error::new(error.kind(), format!("cannot open the TAP interface {name}: {error}")),
    };
    io::Error::new(error.kind(), format!("cannot open the TAP interface {name}: {error}; {why}"))
}
