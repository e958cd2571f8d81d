//! An Ethernet interface of the kernel, by `AF_XDP`: packets in memory that the kernel shares, and rings of
//! places in it. Linux: Documentation/networking/af_xdp.rst. Behind the feature `xdp`.
//!
//! ```text
//!   stack ─ IP packet ─▶ tx.rs ─▶ neighbours (packet/line.rs) ─▶ copied into chunks ─▶ TX ring ─▶ the interface
//!         ◀─ tickets ───────────── slots.rs ◀───────────────────────────────── completion ring ◀─┘
//!         ◀─ IP packet ─ rx.rs ◀──────────────────── copied out of chunks ◀─ RX ring ◀── program.rs ◀─ the interface
//!                          └──────────────────────────────────────────────▶ fill ring
//! ```
//!
//! **Who owns which slot.** Each ring has a producer and a consumer. A slot is the producer's until it
//! publishes its index, then the consumer's until that publishes its own. A chunk belongs to whoever has last
//! taken its place out of a ring:
//!
//! ```text
//!             the sending half owns                    the kernel owns                     the sending half owns
//!   chunk ── free ─▶ filled ───────▶ TX ring ─▶ on its way to the driver ─▶ completion ring ─▶ free, and the ticket is back
//!
//!             the receiving half owns                  the kernel owns                     the receiving half owns
//!   chunk ── empty ────────────────▶ fill ring ─▶ a packet is copied into it ─▶ RX ring ─▶ copied out ─▶ empty
//!
//!                    sending half           kernel              receiving half
//!   TX ring          producer               consumer
//!   completion ring  consumer               producer
//!   fill ring                               consumer            producer
//!   RX ring                                 producer            consumer
//! ```
//!
//! No ring can be full: each has as many slots as there are chunks that may be in it. What is full is the
//! memory: a packet for which too few chunks are free stays with the stack until some come back.
//!
//! **Why packets are copied.** The driver reads from the shared memory alone, and the stack's payload is in
//! memory of its own, or of the application. A packet has an MTU at most, because `AF_XDP` cuts no
//! super-packets: a copy of 1500 bytes costs a tenth of what the kernel spends on the packet. Only packets
//! that wait for their neighbour are [kept](taut_core::TxPacket::keep).
//!
//! **A ticket comes back once.** With the last chunk of its packet from the completion ring, in any order;
//! or, when the interface is gone, with all others at once, because then nothing comes any more. A place that
//! the kernel names twice brings back nothing.
//!
//! **Sharing.** The interface's program takes only packets for the stack's addresses, so the kernel keeps its
//! own. When the stack's addresses change, another program takes its place. A packet socket on the interface
//! sends what neighbours ask each other, joins the groups that they ask by, and hears what neighbours,
//! routers and servers say to everybody. It also reports when the interface goes down or away: `AF_XDP`
//! sockets do not announce that.

mod program;
mod rx;
mod slots;
mod tx;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use taut_core::{LinkCaps, NetworkChange};
use taut_driver::Device;
use taut_ethernet::{Ethernet, EthernetConfig};
use taut_wire::{Mac, ethernet};

use crate::cidr::Cidr;
use crate::interface::Interface;
use crate::packet::line::Shared;
use crate::packet::{ARPHRD_ETHER, CARRIER_WAIT, ethernet_config, groups, invalid, random_seed};
use crate::sys::bpf::{self, Place};
use crate::sys::packet_socket::{self, Gets};
use crate::sys::xdp_socket::{self, CHUNK, Copying, Parts};

/// The most pieces of a packet that the kernel takes. Linux: `MAX_SKB_FRAGS` and the first.
const PIECES_MAX: usize = 18;
/// The most chunks for a direction: 1 GB.
const CHUNKS_MAX: u32 = 1 << 18;
/// Room for packets that the kernel has copied and not freed: several times what ten gigabits a second bring
/// in a millisecond.
const SEND_BYTES: u32 = 4 << 20;
/// What the kernel leaves free in front of a packet that arrives.
const HEADROOM: usize = 256;

/// How to open an [`Xdp`] device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The stack's station; that of the interface by default.
    pub mac: Option<Mac>,
    /// Where packets for other networks go: an address on the link for each family. None by default.
    pub gateways: Vec<IpAddr>,
    /// Whether addresses of IPv6, routers and the MTU are learnt from the link's routers, too (SLAAC); false
    /// by default.
    pub slaac: bool,
    /// Whether an address of IPv4, routers, the MTU and name servers are asked of the link's servers (DHCP);
    /// false by default.
    pub dhcp: bool,
    /// The queue of the interface; 0 by default. Packets that arrive at other queues do not reach the stack.
    pub queue: u32,
    /// Chunks of 4 KB for each direction, a power of two; 2048 by default. Fewer hold less below TCP.
    pub chunks: u32,
    /// Whether the driver is to use the shared memory itself, without a copy by the kernel; false by default.
    /// Not every driver can. This project has had no such driver to test it with.
    pub zero_copy: bool,
}

impl Default for XdpOptions {
    fn default() -> Self {
        let (slaac, dhcp, zero_copy) = (false, false, false);
        Self { mac: None, gateways: Vec::new(), slaac, dhcp, queue: 0, chunks: 2_048, zero_copy }
    }
}

/// An Ethernet interface, used by an `AF_XDP` socket.
#[derive(Debug)]
pub struct Xdp {
    shared: Arc<Shared>,
    parts: Parts,
    program: Program,
    caps: LinkCaps,
    mac: Mac,
    /// Packets lie in several chunks if they must.
    pieces: bool,
    /// Packets may come from this machine, with half of a checksum.
    is_virtual: bool,
}

/// What keeps packets coming to the socket: dropped with the device, which takes the program off the
/// interface.
#[derive(Debug)]
struct Program {
    map: OwnedFd,
    link: OwnedFd,
    /// Those that it takes packets for.
    addresses: Mutex<Vec<IpAddr>>,
}

impl Program {
    /// The stack has this address from now on, or has it no more.
    fn follow(&self, change: &NetworkChange) -> io::Result<()> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            NetworkChange::AddAddress(own) if !addresses.contains(&own.address) => {
                addresses.push(own.address);
            }
            NetworkChange::RemoveAddress(gone) if addresses.contains(gone) => {
                addresses.retain(|own| own != gone);
            }
            _ => return Ok(()),
        }
        bpf::replace(&self.link, &bpf::load(&program::program(&addresses, self.map.as_raw_fd()))?)
    }
}

impl Xdp {
    /// Opens the Ethernet interface `name`, in the network namespace of this thread, for a stack with these
    /// addresses, each with the prefix of the link. The interface must be up, and no other program may be
    /// attached to it.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] without `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`;
    /// [`io::ErrorKind::InvalidInput`] for an interface that is no Ethernet, a station that is a group, a
    /// gateway that is not on the link, or a number of chunks that is no power of two;
    /// [`io::ErrorKind::NetworkDown`] if the interface is down; [`io::ErrorKind::NotFound`] if there is none;
    /// [`io::ErrorKind::ResourceBusy`] if another program is attached to it, or another socket has the queue.
    pub fn open(name: &str, addresses: &[Cidr], options: &XdpOptions) -> io::Result<Self> {
        if !options.chunks.is_power_of_two()
            || options.chunks < PIECES_MAX as u32
            || options.chunks > CHUNKS_MAX
        {
            let message =
                format!("{} chunks: a power of two from 32 to {CHUNKS_MAX} is needed", options.chunks);
            return Err(invalid(message));
        }
        let interface = Interface::open(name)?;
        let link = interface.link()?;
        let own = (link.kind == ARPHRD_ETHER).then(|| link.address.first_chunk()).flatten();
        let Some(own) = own.map(|octets| Mac(*octets)) else {
            return Err(invalid(format!("{name} is not an Ethernet interface: an XDP device needs one")));
        };
        let mac = options.mac.unwrap_or(own);
        if !mac.is_station() {
            return Err(invalid(format!("{mac} is not the address of one station")));
        }
        let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        let config = ethernet_config(mac, addresses, &options.gateways)?;
        let config = EthernetConfig { slaac: options.slaac, dhcp: options.dhcp, mtu, ..config };
        if !interface.wait_until_running(CARRIER_WAIT)? {
            let message = format!(
                "the interface {name} is down or has no carrier; bring it up with: ip link set dev {name} up"
            );
            return Err(io::Error::new(io::ErrorKind::NetworkDown, message));
        }
        let talk = packet_socket::open(interface.index(), Gets::Neighbours)
            .map_err(|error| explain(name, "open a packet socket on", &error))?;
        for group in groups(addresses).chain((mac != own).then_some(mac)) {
            packet_socket::accept(&talk, interface.index(), group)?;
        }
        if options.slaac {
            // Which addresses it will have is not known yet.
            packet_socket::accept_groups(&talk, interface.index())?;
        }
        let parts = xdp_socket::open(options.chunks)
            .map_err(|error| explain(name, "make an XDP socket for", &error))?;
        packet_socket::set_buffers(&parts.socket, SEND_BYTES, 0);
        let pieces = bind(name, interface.index(), &parts.socket, usize::from(mtu), options)?;
        let program = attach(name, interface.index(), &parts.socket, addresses, options.queue)?;
        let ethernet = Ethernet::new(config, random_seed()?);
        let shared = Shared::new(name, interface.index(), talk.try_clone()?, talk, ethernet)?;
        shared.watch(&parts.socket)?;
        let is_virtual = link.driver.is_some();
        let caps = LinkCaps { completes_on_departure: true, ..LinkCaps::plain(mtu) };
        Ok(Self { shared: Arc::new(shared), parts, program, caps, mac, pieces, is_virtual })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// The link's capabilities: packets of its MTU, and nothing is left to the kernel.
    #[must_use]
    pub const fn caps(&self) -> LinkCaps {
        self.caps
    }

    /// The stack's station.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// Whether packets that are larger than a chunk lie in several. Before Linux 6.6 they cannot.
    #[must_use]
    pub const fn has_pieces(&self) -> bool {
        self.pieces
    }
}

impl From<Xdp> for Device {
    fn from(xdp: Xdp) -> Self {
        let Xdp { shared, parts, program, caps, is_virtual, .. } = xdp;
        let Parts { socket, tx, completion, outgoing, rx, fill, incoming } = parts;
        let (socket, program) = (Arc::new(socket), Arc::new(program));
        let owned = (Arc::clone(&socket), Arc::clone(&program));
        let tx = tx::XdpTx::new(Arc::clone(&shared), owned, tx, completion, outgoing);
        let rx = rx::XdpRx::new(shared, (socket, program), rx, fill, incoming, is_virtual);
        Self::new(caps, tx, rx)
    }
}

/// Binds the socket, with several chunks a packet if this kernel can. Returns whether it can.
fn bind(name: &str, interface: u32, socket: &OwnedFd, mtu: usize, options: &XdpOptions) -> io::Result<bool> {
    let copying = if options.zero_copy { Copying::Zero } else { Copying::Copy };
    let bind = |pieces| xdp_socket::bind(socket, interface, options.queue, copying, pieces);
    let explain = |error: &io::Error| {
        let what = if options.zero_copy {
            format!("bind an XDP socket, without copies, to queue {} of", options.queue)
        } else {
            format!("bind an XDP socket to queue {} of", options.queue)
        };
        explain(name, &what, error)
    };
    match bind(true) {
        Ok(()) => Ok(true),
        // An older kernel does not know the flag. A driver may not be able to.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            bind(false).map_err(|error| explain(&error))?;
            if mtu + ethernet::HEADER_LEN + HEADROOM > CHUNK {
                let message = format!(
                    "the MTU of {name} is {mtu}, and this kernel or driver takes no packets in pieces: lower it with: \
                     ip link set dev {name} mtu 1500"
                );
                return Err(invalid(message));
            }
            Ok(false)
        }
        Err(error) => Err(explain(&error)),
    }
}

/// Makes the interface hand the stack's packets to the socket: in the driver if it can, else in front of the
/// kernel's stack.
fn attach(
    name: &str,
    interface: u32,
    socket: &OwnedFd,
    addresses: &[Cidr],
    queue: u32,
) -> io::Result<Program> {
    let map = bpf::socket_map(queue + 1).map_err(|error| explain(name, "make a map for", &error))?;
    bpf::set_socket(&map, queue, socket)?;
    let addresses: Vec<IpAddr> = addresses.iter().map(|own| own.address()).collect();
    let program = bpf::load(&program::program(&addresses, map.as_raw_fd()))
        .map_err(|error| explain(name, "load the program for", &error))?;
    let link = match bpf::attach(&program, interface, Place::Driver) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let message = format!(
                "another XDP program is attached to {name}: take it off with: ip link set dev {name} xdp off"
            );
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        Err(_) => bpf::attach(&program, interface, Place::Generic),
        attached => attached,
    };
    let link = link.map_err(|error| explain(name, "attach a program to", &error))?;
    Ok(Program { map, link, addresses: Mutex::new(addresses) })
}

fn explain(name: &str, what: &str, error: &io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; it needs root, or the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"
        }
        Some(libc::ENOBUFS) => "; the limit of locked memory is too low (ulimit -l)",
        Some(libc::EBUSY) => "; another socket has it",
        Some(libc::EINVAL) => "; there may be no such queue",
        Some(libc::EOPNOTSUPP) => "; its driver cannot do that",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot {what} {name}: {error}{advice}"))
}
