//! An Ethernet interface of the kernel, shared with it by packet sockets. `packet(7)`.
//!
//! ```text
//!   stack ─ IP packet ─▶ tx.rs ─▶ Line (line.rs): which station? ─▶ sendmsg: virtio-net header, Ethernet header, pieces
//!         ◀─ tickets ───   └── below.rs: which packets are still below ◀── SIOCOUTQ, timestamps
//!         ◀─ IP packet ─ rx.rs ◀── read ◀── the interface; ARP and neighbour discovery end in the Line
//! ```
//!
//! A TUN hands packets to the kernel, which is another host then. Here the kernel's TCP/IP is not involved:
//! packets go through the queue discipline of the interface to its driver. So the device knows when they have
//! left: a packet that finds nothing below and leaves nothing below has left when the call returns, as on a
//! virtual link. When packets begin to stay below, each message asks to be reported when the driver gets its
//! packet, and the tickets wait for that.
//!
//! **Addresses.** The kernel must not have the stack's addresses on any interface: else its own TCP would
//! answer each packet with RST, and its ARP for the stack. Without them, it drops packets for them unless it
//! forwards (`net.ipv4.ip_forward`). With a station of the stack's own ([`PacketOptions::mac`]), the kernel
//! does not take these packets for its own in any case; not every network lets a host have a second one
//! (Wi-Fi and clouds seldom do).
//!
//! **Several queues.** Each has both sockets and neighbours of its own. A flow's packets come to one of them;
//! what neighbours say comes to one, too, which passes it on to the others and answers it alone. The first of
//! them asks servers for an address, and tells the others.
//!
//! **Sockets.** One sends and never receives, so that its error queue has only reports; the other receives,
//! and sends what neighbours ask each other, so that only the stack's packets count as being below.

pub(crate) mod below;
pub(crate) mod line;
mod rx;
mod tx;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use taut_core::LinkCaps;
use taut_driver::Device;
use taut_ethernet::{Ethernet, EthernetConfig, Network, Role};
pub use taut_wire::Mac;
use taut_wire::ndp;

use crate::cidr::Cidr;
use crate::interface::Interface;
use crate::sys::packet_socket::{self, Gets, Group};
use line::Shared;
pub(crate) use tx::no_route;

/// Room for packets below, by the kernel's count: several times what ten gigabits a second bring in a
/// millisecond.
const SEND_BYTES: u32 = 4 << 20;
/// The same where packets wait for their departure below: two for each of thousands of connections.
const SEND_BYTES_PACED: u32 = 32 << 20;
/// Room for reports of packets that have left: thousands of them, for a thread that wakes up late. Without
/// room they are lost.
const REPORT_BYTES: u32 = 4 << 20;
/// Room for packets that wait to be received: 60 super-packets.
const RECEIVE_BYTES: u32 = 4 << 20;

/// linux/if_arp.h
pub(crate) const ARPHRD_ETHER: u16 = 1;
/// The longest packet that a length of 16 bits can say.
const MTU_MAX: u32 = 65_535;
/// How long opening waits for the carrier.
pub(crate) const CARRIER_WAIT: Duration = Duration::from_millis(500);

/// How to open a [`Packet`] device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
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
    /// Whether to exchange super-packets with the kernel; true by default.
    pub offload: bool,
    /// Whether departure times are left to the interface's queue discipline if that is `fq`; true by default.
    /// The stack then needs no timer to pace.
    pub delegate_pacing: bool,
    /// The best way to tell which packets have left that may be used; the best of all by default.
    pub naming: Naming,
}

/// How a packet device learns which of the packets below have left. From the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// Each message names its packet, and the kernel reports the name (`SCM_TS_OPT_ID`): Linux 6.13.
    ByMessage,
    /// The kernel numbers the packets of a socket, and reports the number (`SOF_TIMESTAMPING_OPT_ID`). Not
    /// above a queue that cuts super-packets: their reports may come too early, or not at all.
    ByCounter,
    /// By bytes alone, in the order in which packets were sent: right above a queue that keeps this order.
    ByBytes,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            mac: None,
            gateways: Vec::new(),
            slaac: false,
            dhcp: false,
            offload: true,
            delegate_pacing: true,
            naming: Naming::ByMessage,
        }
    }
}

/// An Ethernet interface, used by packet sockets.
#[derive(Debug)]
pub struct Packet {
    shared: Arc<Shared>,
    caps: LinkCaps,
    mac: Mac,
    naming: Naming,
}

impl Packet {
    /// Opens the Ethernet interface `name`, in the network namespace of this thread, for a stack with these
    /// addresses, each with the prefix of the link. The interface must be up; its addresses in the kernel are
    /// left alone.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] without `CAP_NET_RAW`; [`io::ErrorKind::InvalidInput`] for an
    /// interface that is no Ethernet, for a station that is a group, and for a gateway that is not on the
    /// link; [`io::ErrorKind::NetworkDown`] if the interface is down; [`io::ErrorKind::NotFound`] if there is
    /// none.
    pub fn open(name: &str, addresses: &[Cidr], options: &PacketOptions) -> io::Result<Self> {
        Self::open_member(name, addresses, options, None, Role::Only)
    }

    /// Opens the interface so many times, for a stack of as many shards: the kernel gives all packets of a
    /// flow, in both directions and of a router's in between, to the same one of them (`PACKET_FANOUT`).
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_queues(
        name: &str,
        addresses: &[Cidr],
        options: &PacketOptions,
        count: usize,
    ) -> io::Result<Vec<Self>> {
        if count < 2 {
            return Ok(vec![Self::open(name, addresses, options)?]);
        }
        let mut group = None;
        let open = |at| {
            let role = if at == 0 { Role::First } else { Role::Other };
            Self::open_member(name, addresses, options, Some(&mut group), role)
        };
        let queues: Vec<Self> = (0..count).map(open).collect::<io::Result<_>>()?;
        for (own, queue) in queues.iter().enumerate() {
            let others = queues.iter().enumerate().filter(|(other, _)| *other != own);
            queue.shared.set_others(others.map(|(_, other)| Arc::downgrade(&other.shared)).collect());
        }
        Ok(queues)
    }

    /// Opens the interface, as a member of a group of sockets if one is given.
    fn open_member(
        name: &str,
        addresses: &[Cidr],
        options: &PacketOptions,
        group: Option<&mut Option<Group>>,
        role: Role,
    ) -> io::Result<Self> {
        let interface = Interface::open(name)?;
        let link = interface.link()?;
        let own = (link.kind == ARPHRD_ETHER).then(|| link.address.first_chunk()).flatten();
        let Some(own) = own.map(|octets| Mac(*octets)) else {
            return Err(invalid(format!("{name} is not an Ethernet interface: a packet device needs one")));
        };
        let mac = options.mac.unwrap_or(own);
        if !mac.is_station() {
            return Err(invalid(format!("{mac} is not the address of one station")));
        }
        let mtu = u16::try_from(link.mtu.min(MTU_MAX)).unwrap_or(u16::MAX);
        let config = ethernet_config(mac, addresses, &options.gateways)?;
        let (slaac, dhcp) = (options.slaac, options.dhcp);
        let config = EthernetConfig { slaac, dhcp, role, groups: true, mtu, ..config };
        if !interface.wait_until_running(CARRIER_WAIT)? {
            let message = format!(
                "the interface {name} is down or has no carrier; bring it up with: ip link set dev {name} up"
            );
            return Err(io::Error::new(io::ErrorKind::NetworkDown, message));
        }
        let paces = options.delegate_pacing && interface.paces()?;
        let open = |gets| packet_socket::open(interface.index(), gets).map_err(|error| explain(name, &error));
        let (send, receive) = (open(Gets::Nothing)?, open(Gets::All)?);
        packet_socket::set_buffers(&send, if paces { SEND_BYTES_PACED } else { SEND_BYTES }, REPORT_BYTES);
        packet_socket::set_buffers(&receive, 0, RECEIVE_BYTES);
        if let Some(group) = group {
            let joined = packet_socket::join(&receive, *group).map_err(|error| explain(name, &error))?;
            *group = Some(joined);
        }
        let naming = best_naming(&send, &interface, options)?;
        if paces {
            packet_socket::enable_departures(&send)?;
        }
        for group in groups(addresses).chain((mac != own).then_some(mac)) {
            packet_socket::accept(&receive, interface.index(), group)?;
        }
        if options.slaac {
            // Which addresses it will have is not known yet.
            packet_socket::accept_groups(&receive, interface.index())?;
        }
        let caps = if options.offload { LinkCaps::offloading(mtu) } else { LinkCaps::plain(mtu) };
        let shared =
            Shared::new(name, interface.index(), send, receive, Ethernet::new(config, random_seed()?))?;
        let caps = LinkCaps { paces, completes_on_departure: true, ..caps };
        Ok(Self { shared: Arc::new(shared), caps, mac, naming })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// The link's capabilities. [`paces`](LinkCaps::paces) says whether departure times are left to the
    /// kernel's `fq`.
    #[must_use]
    pub const fn caps(&self) -> LinkCaps {
        self.caps
    }

    /// The stack's station.
    #[must_use]
    pub const fn mac(&self) -> Mac {
        self.mac
    }

    /// How it learns which packets have left.
    #[must_use]
    pub const fn naming(&self) -> Naming {
        self.naming
    }
}

/// The kernel takes packets from one thread while it gives packets to another, and both halves need to know
/// the neighbours.
impl From<Packet> for Device {
    fn from(packet: Packet) -> Self {
        let Packet { shared, caps, naming, .. } = packet;
        Self::new(caps, tx::PacketTx::new(Arc::clone(&shared), naming, caps.paces), rx::PacketRx::new(shared))
    }
}

pub(crate) fn ethernet_config(
    mac: Mac,
    addresses: &[Cidr],
    gateways: &[IpAddr],
) -> io::Result<EthernetConfig> {
    let networks =
        addresses.iter().map(|own| Network { address: own.address(), prefix: own.prefix() }).collect();
    for (index, gateway) in gateways.iter().enumerate() {
        let is_link_local = matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_on_link = |own: &Cidr| {
            Cidr::new(*gateway, own.prefix()).is_some_and(|other| {
                other.address().is_ipv4() == own.address().is_ipv4() && other.network() == own.network()
            })
        };
        if !is_link_local && !addresses.iter().any(is_on_link) {
            return Err(invalid(format!(
                "the gateway {gateway} is not in the network of any address of the stack"
            )));
        }
        if addresses.iter().any(|own| own.address() == *gateway) {
            return Err(invalid(format!("the gateway {gateway} is the stack's own address")));
        }
        if gateways[..index].iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            return Err(invalid(format!("{gateway} is a second gateway of its family; give one for each")));
        }
    }
    Ok(EthernetConfig { mac, networks, gateways: gateways.to_vec(), ..EthernetConfig::default() })
}

/// The groups of stations that a host with these addresses belongs to: those that ask for its IPv6 addresses.
pub(crate) fn groups(addresses: &[Cidr]) -> impl Iterator<Item = Mac> {
    addresses.iter().filter_map(|own| match own.address() {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(Mac::of_multicast(ndp::solicited_node(v6))),
    })
}

/// The best naming that this kernel has for packets of this socket, of those that the options allow.
fn best_naming(send: &OwnedFd, interface: &Interface, options: &PacketOptions) -> io::Result<Naming> {
    if packet_socket::enable_timestamps(send).is_err() {
        return Ok(Naming::ByBytes);
    }
    if options.naming == Naming::ByMessage && packet_socket::can_name(send) {
        return Ok(Naming::ByMessage);
    }
    let counts =
        options.naming <= Naming::ByCounter && (!options.offload || interface.keeps_super_packets()?);
    Ok(if counts { Naming::ByCounter } else { Naming::ByBytes })
}

pub(crate) fn random_seed() -> io::Result<[u8; 16]> {
    let mut seed = [0; 16];
    // So short a one is never given in parts.
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
    Ok(seed)
}

pub(crate) fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn explain(name: &str, error: &io::Error) -> io::Error {
    let advice = if error.kind() == io::ErrorKind::PermissionDenied {
        "; it needs root or the capability CAP_NET_RAW"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("cannot open a packet socket on {name}: {error}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(gateways: &[&str]) -> Result<EthernetConfig, String> {
        let addresses = ["10.9.0.2/24".parse().unwrap(), "fd09::2/64".parse().unwrap()];
        let gateways: Vec<IpAddr> = gateways.iter().map(|text| text.parse().unwrap()).collect();
        ethernet_config(Mac([2, 0, 0, 0, 0, 2]), &addresses, &gateways).map_err(|error| error.to_string())
    }

    #[test]
    fn gateways_that_cannot_work_are_refused() {
        assert_eq!(config(&["10.9.0.1", "fe80::1"]).unwrap().gateways.len(), 2);
        config(&["fd09::1"]).unwrap();
        for (gateways, said) in [
            (&["10.8.0.1"][..], "is not in the network"),
            (&["fd08::1"], "is not in the network"),
            (&["10.9.0.2"], "own address"),
            (&["10.9.0.1", "10.9.0.3"], "second gateway"),
        ] {
            assert!(config(gateways).unwrap_err().contains(said), "{gateways:?}");
        }
    }

    #[test]
    fn the_groups_are_those_of_the_addresses() {
        let addresses = ["10.9.0.2/24".parse().unwrap(), "fd09::12:3456/64".parse().unwrap()];
        assert_eq!(groups(&addresses).collect::<Vec<_>>(), [Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])]);
    }
}
