//! Ethernet frames over a descriptor: a TAP interface, and the sockets by which virtual machines and other
//! programs exchange frames. Also IP packets over such a socket.
//!
//! ```text
//!   stack ─ IP packet ─▶ tx.rs ─▶ Line (line.rs): which station? ─▶ carrier.rs: framed, into the descriptor
//!         ◀─ tickets ───   └── packet/below.rs: what the peer has not read yet ◀── SIOCOUTQ
//!         ◀─ IP packet ─ rx.rs ◀── carrier.rs ◀── the descriptor; ARP and neighbour discovery end in the Line
//! ```
//!
//! | carrier | framing | spoken by |
//! |---|---|---|
//! | [`Frames::tap`] | a frame for each read and write, behind a virtio-net header | the kernel |
//! | [`Frames::stream`] | a length of four bytes, the highest first, in front of each frame | QEMU's `-netdev stream`, passt |
//! | [`Frames::datagrams`] | a frame is a datagram | QEMU's `-netdev dgram`, vfkit, krunkit, gvproxy (`unixgram`) |
//! | [`Switch`] | a stream for each of several peers, which reach each other, too | the same as the stream |
//! | [`Frames::seqpacket`] | a frame is a packet, and the peer's end is seen | programs with a `SOCK_SEQPACKET` pair |
//!
//! Virtual machines use plain frames of the MTU. Two programs that agree on it may have a virtio-net header
//! in front of each frame ([`FramesOptions::vnet_header`]), and then exchange super-packets of up to 64 KB.

mod carrier;
mod line;
mod peer;
mod rx;
mod stage;
mod switch;
mod tap;
mod tx;

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::{Arc, Weak};

use rustix::net::{SocketType, sockopt};
use taut_core::LinkCaps;
use taut_driver::Device;
use taut_ethernet::{Ethernet, EthernetConfig, Leased, Services};
use taut_wire::{Mac, pcapng};

use crate::capture::CaptureFile;
use crate::cidr::Cidr;
use crate::interface::Interface;
use crate::packet::{ethernet_config, random_seed};
use crate::tun::{Tun, TunOptions};
use carrier::{Carrier, Connected};
use line::{Parcel, Shared};

pub use peer::Peer;
pub use switch::{PortLog, PortNews, Ports, Switch};

/// How to use a descriptor that carries frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramesOptions {
    /// Largest IP packet in bytes, 68 and more, and at least 1280 where IPv6 is used; 1500 by default. From
    /// 32,768 on, the stack's own packets without a virtio-net header are a little shorter
    /// ([`Frames::caps`]), so that TCP segments over IPv4 are whole pages; the peer's may be as long as this.
    pub mtu: u16,
    /// Whether frames of Ethernet go over the link, and not IP packets; true by default.
    pub ethernet: bool,
    /// The stack's station; a random one by default.
    pub mac: Option<Mac>,
    /// Where packets for other networks go: an address on the link for each family. None by default.
    pub gateways: Vec<IpAddr>,
    /// Whether addresses of IPv6, routers and the MTU are learnt from the link's routers, too (SLAAC); false
    /// by default.
    pub slaac: bool,
    /// Whether an address of IPv4, routers, the MTU and name servers are asked of the link's servers (DHCP);
    /// false by default.
    pub dhcp: bool,
    /// How this host serves the others on the link, with DHCP and as their router; not at all by default.
    pub services: Services,
    /// Whether a virtio-net header of ten bytes is in front of each frame, so that super-packets may be
    /// exchanged. A [TAP](Frames::tap) has one by default, a socket none: both sides must agree on it.
    pub vnet_header: Option<bool>,
    /// Gets its frames, without virtio-net headers; none by default. Of a switch, a frame from one machine to
    /// another is recorded once.
    pub capture: Option<CaptureFile>,
}

impl Default for FramesOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            ethernet: true,
            mac: None,
            gateways: Vec::new(),
            slaac: false,
            dhcp: false,
            services: Services::default(),
            vnet_header: None,
            capture: None,
        }
    }
}

/// A link that carries frames over a descriptor.
#[derive(Debug)]
pub struct Frames {
    shared: Arc<Shared>,
    caps: LinkCaps,
    mac: Option<Mac>,
}

/// A descriptor that is in no state to carry frames.
fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl Frames {
    /// Creates the TAP interface `name` in the network namespace of this thread, or opens it if it exists and
    /// is free; `%d` in a name is replaced by the first free number. Sets its MTU and brings it up if it is
    /// new. The stack is a neighbour of the kernel then, on an Ethernet link.
    ///
    /// # Errors
    /// As for [`Tun::open`], and those of [`stream`](Self::stream).
    pub fn tap(name: &str, addresses: &[Cidr], options: &FramesOptions) -> io::Result<Self> {
        let tap = tap::open(name, options.mtu, options.vnet_header.unwrap_or(true))?;
        Self::over_tap(tap, addresses, options)
    }

    fn over_tap(tap: tap::Tap, addresses: &[Cidr], options: &FramesOptions) -> io::Result<Self> {
        let name = format!("the TAP interface {}", tap.name);
        let options = FramesOptions { vnet_header: Some(tap.vnet_header), ethernet: true, ..options.clone() };
        let frames = Self::over(Carrier::Tap(tap.file), name, addresses, &options)?;
        Ok(Self { caps: tap.caps, ..frames })
    }

    /// A link over a connected stream socket: QEMU's `-netdev stream,addr.type=unix`, passt's socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a station that is a group, a gateway that is not on the link, or
    /// an MTU that is too small; or when no descriptor is left.
    pub fn stream(socket: UnixStream, addresses: &[Cidr], options: &FramesOptions) -> io::Result<Self> {
        Self::over(Carrier::stream(socket.into()), "the stream socket".to_owned(), addresses, options)
    }

    /// A link over a connected datagram socket: QEMU's `-netdev dgram`, vfkit, krunkit, gvproxy. As an
    /// unplugged cable, it stays if the peer goes, and another program may take the peer's place if it can
    /// send to this socket.
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream).
    pub fn datagrams(socket: UnixDatagram, addresses: &[Cidr], options: &FramesOptions) -> io::Result<Self> {
        let carrier = Carrier::Datagrams(socket.into(), Connected::Loosely);
        Self::over(carrier, "the datagram socket".to_owned(), addresses, options)
    }

    /// A link over a datagram socket with an address of its own that is connected to nobody: a program that
    /// sends a frame is the peer from then on, and others are kept away. When it is gone, [`Peer::is_there`]
    /// finds out, and the next one may take its place. There need be no peer yet.
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream).
    pub fn to_sender(
        socket: UnixDatagram,
        addresses: &[Cidr],
        options: &FramesOptions,
    ) -> io::Result<(Self, Arc<Peer>)> {
        let peer = Arc::new(Peer::nobody(socket.try_clone()?.into()));
        let carrier = Carrier::Datagrams(socket.into(), Connected::ToSender(Arc::clone(&peer)));
        Ok((Self::over(carrier, "the datagram socket".to_owned(), addresses, options)?, peer))
    }

    /// A link over a connected socket of type `SOCK_SEQPACKET`.
    ///
    /// # Errors
    /// Those of [`stream`](Self::stream), and for a socket of another type.
    pub fn seqpacket(socket: OwnedFd, addresses: &[Cidr], options: &FramesOptions) -> io::Result<Self> {
        if sockopt::socket_type(&socket)? != SocketType::SEQPACKET {
            return Err(invalid("this socket is not of type SOCK_SEQPACKET".to_owned()));
        }
        let carrier = Carrier::Datagrams(socket, Connected::ForLife);
        Self::over(carrier, "the packet socket".to_owned(), addresses, options)
    }

    fn over(carrier: Carrier, name: String, addresses: &[Cidr], options: &FramesOptions) -> io::Result<Self> {
        check_mtu(addresses, options)?;
        rustix::io::ioctl_fionbio(carrier.as_fd(), true)?;
        let (ethernet, mac) = if options.ethernet {
            let (ethernet, mac) = link_layer(addresses, options)?;
            (Some(ethernet), Some(mac))
        } else {
            let is_plain = options.mac.is_none() && options.gateways.is_empty();
            if !is_plain || options.slaac || options.dhcp || options.services != Services::default() {
                return Err(invalid(
                    "a link of IP packets has no stations, no gateways, no SLAAC and no DHCP".to_owned(),
                ));
            }
            (None, None)
        };
        let vnet_header = options.vnet_header.unwrap_or(false);
        let caps = if vnet_header {
            LinkCaps::offloading(options.mtu)
        } else {
            LinkCaps::plain(of_whole_pages(options.mtu))
        };
        let link_type = if options.ethernet { pcapng::LINKTYPE_ETHERNET } else { pcapng::LINKTYPE_RAW };
        let capture = options.capture.clone().map(|capture| (capture, link_type));
        let shared = Arc::new(Shared::new(carrier, vnet_header, name, ethernet, capture)?);
        Ok(Self { shared, caps, mac })
    }

    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The link's capabilities.
    #[must_use]
    pub const fn caps(&self) -> LinkCaps {
        self.caps
    }

    /// The addresses that the others on the link have leased ([`FramesOptions::services`]).
    #[must_use]
    pub fn leases(&self) -> LeaseTable {
        let shared: Arc<dyn Leasing> = Arc::<Shared>::clone(&self.shared);
        LeaseTable(Arc::downgrade(&shared))
    }

    /// The stack's station; `None` on a link of IP packets.
    #[must_use]
    pub const fn mac(&self) -> Option<Mac> {
        self.mac
    }
}

/// The leases of a link ([`Frames::leases`]), also while a stack has it. It does not keep the link open.
#[derive(Clone, Debug)]
pub struct LeaseTable(Weak<dyn Leasing>);

/// A link that leases addresses.
trait Leasing: Debug + Send + Sync {
    fn leased(&self) -> Vec<Leased>;
}

impl Leasing for Shared {
    fn leased(&self) -> Vec<Leased> {
        self.line().ethernet.as_ref().map_or_else(Vec::new, |ethernet| ethernet.leases(line::now()))
    }
}

impl LeaseTable {
    /// The leases now; none when the link is gone.
    #[must_use]
    pub fn get(&self) -> Vec<Leased> {
        self.0.upgrade().map_or_else(Vec::new, |link| link.leased())
    }
}

/// The smallest packets that must pass: RFC 791 §3.2, RFC 8200 §5.
fn check_mtu(addresses: &[Cidr], options: &FramesOptions) -> io::Result<()> {
    let has_v6 = options.slaac || addresses.iter().any(|own| own.address().is_ipv6());
    let least = if has_v6 { 1280 } else { 68 };
    if options.mtu < least {
        return Err(invalid(format!("an MTU of {}: it must be at least {least} here", options.mtu)));
    }
    Ok(())
}

/// The link layer, and its station.
fn link_layer(addresses: &[Cidr], options: &FramesOptions) -> io::Result<(Ethernet<Parcel>, Mac)> {
    let mac = match options.mac {
        Some(mac) if !mac.is_station() => {
            return Err(invalid(format!("{mac} is not the address of one station")));
        }
        Some(mac) => mac,
        None => random_station()?,
    };
    let config = ethernet_config(mac, addresses, &options.gateways)?;
    let (slaac, dhcp) = (options.slaac, options.dhcp);
    let services = options.services.clone();
    let config = EthernetConfig { slaac, dhcp, groups: true, services, mtu: options.mtu, ..config };
    Ok((Ethernet::new(config, random_seed()?), mac))
}

/// To hand it to another program, which opens it by [`from_descriptor`].
impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.carrier.as_fd()
    }
}

impl From<Frames> for Device {
    fn from(frames: Frames) -> Self {
        let Frames { shared, caps, .. } = frames;
        Self::new(caps, tx::FramesTx::new(Arc::clone(&shared)), rx::FramesRx::new(shared))
    }
}

/// Opens the TAP interface `name`, which exists and is free, for [`from_descriptor`], maybe in another
/// process. The interface is left as it is.
///
/// # Errors
/// Those of [`Frames::tap`]; [`io::ErrorKind::NotFound`] if there is none.
pub fn open_tap(name: &str) -> io::Result<OwnedFd> {
    Interface::open(name)?;
    Ok(tap::open(name, u16::MAX, true)?.file.into())
}

/// The device behind a descriptor that another program has opened and handed in: a TUN or TAP (Android's
/// `VpnService`, a privileged parent), or a connected Unix socket of any type, which carries frames. The
/// interface is left as it is: its MTU must be given.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a descriptor that is none of these, and the errors of [`Frames`].
pub fn from_descriptor(
    descriptor: OwnedFd,
    addresses: &[Cidr],
    options: &FramesOptions,
) -> io::Result<Device> {
    match sockopt::socket_type(&descriptor) {
        Ok(_) if sockopt::socket_domain(&descriptor)? != rustix::net::AddressFamily::UNIX => {
            Err(invalid("the descriptor is a socket, but not a Unix socket".to_owned()))
        }
        Ok(SocketType::STREAM) => Ok(Frames::stream(descriptor.into(), addresses, options)?.into()),
        Ok(SocketType::DGRAM) => Ok(Frames::datagrams(descriptor.into(), addresses, options)?.into()),
        Ok(_) => Ok(Frames::seqpacket(descriptor, addresses, options)?.into()),
        Err(_) => {
            let capture = options.capture.clone();
            let tun = TunOptions { mtu: options.mtu, capture, ..TunOptions::default() };
            match tap::of_descriptor(descriptor.into(), options.mtu)? {
                tap::Handed::Tun { file, name, vnet_header } => {
                    Ok(Tun::handed(file, name, vnet_header, &tun).into())
                }
                tap::Handed::Tap(tap) => Ok(Frames::over_tap(tap, addresses, options)?.into()),
            }
        }
    }
}

/// The largest MTU up to this one whose TCP segments are whole pages, where that makes them shorter by an
/// eighth at most.
///
/// A sender with an MTU of 64 KB copies what its programs write into pages. When segments end within a page,
/// all that follow begin within one, too, and cost the sender more: an emulated machine sent 6 to 26 % more
/// with whole pages. The segments are those of IPv4 with timestamps; those of IPv6 are 20 bytes shorter.
fn of_whole_pages(mtu: u16) -> u16 {
    const PAGE: u16 = 4096;
    /// Headers of IPv4 and TCP, and timestamps.
    const HEADERS: u16 = 20 + 20 + 12;
    let beyond = mtu.saturating_sub(HEADERS) % PAGE;
    if mtu < 8 * PAGE { mtu } else { mtu - beyond }
}

/// A station that no manufacturer has given out (IEEE 802: the bit "locally administered").
fn random_station() -> io::Result<Mac> {
    let mut octets = [0; 6];
    octets.copy_from_slice(&random_seed()?[..6]);
    octets[0] = (octets[0] & 0xfc) | 0x02;
    Ok(Mac(octets))
}

#[cfg(test)]
mod tests;
