//! Several machines at one link, each at a port: for whom a frame is, and which stations and addresses a port
//! has. Pure; `ports.rs` joins it to the frames.
//!
//! **Problem.** A switch that learns whatever it sees lets one machine take another's place: by the other's
//! station, by its address in ARP or neighbour discovery, or as a server of DHCP or a router.
//!
//! **Rule.** A station and an address are of one port, that at which they were seen first, until the port is
//! gone or has had others since. An address that is leased is its client's. A frame with what another port
//! has is refused. From port to port pass ARP, IPv4 and IPv6 whose source is on the link, and nothing by
//! which a host configures itself: those messages are for the gateway alone.
//!
//! | bound | value | from |
//! |---|---|---|
//! | ports | 16 | ours |
//! | stations of a port | 15 | ours: 240 leases in all, which a network of 256 addresses has from .15 on |
//! | addresses of a port | 32 | ours: an address of IPv4, one of the link and three of IPv6 (RFC 8981) for six stations |

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use taut_core::Network;
use taut_wire::{Arp, EthernetHeader, IpHeader, Mac, ether_type, ethernet, protocol};

/// Machines at one link.
pub(crate) const PORTS_MAX: usize = 16;
const STATIONS_MAX: usize = 15;
const ADDRESSES_MAX: usize = 32;

/// A port of the link, by a number that none had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortId(pub u32);

/// For whom a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// For this host.
    Host,
    /// For this host and all other ports.
    Everybody,
    /// For the machine at this port.
    Port(PortId),
    /// For none.
    Refused(Refused),
}

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its station is that of another port, or of this host.
    Station(Mac),
    /// An address in it is that of another port, or of this host.
    Address(IpAddr),
    /// It is not for another machine, or makes no sense.
    Other,
}

/// The ports of a link.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    ports: Vec<Port>,
}

#[derive(Debug)]
struct Port {
    id: PortId,
    /// The latest one first.
    stations: VecDeque<Mac>,
    addresses: VecDeque<IpAddr>,
}

/// This host's station, and its addresses with their networks.
pub(crate) struct Own<'a> {
    pub(crate) station: Mac,
    pub(crate) networks: &'a [Network],
}

impl Own<'_> {
    fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|own| own.address == address)
    }

    fn is_on_link(&self, address: IpAddr) -> bool {
        is_link_local(address) || self.networks.iter().any(|own| own.contains(address))
    }
}

impl Switch {
    /// One more port; returns whether there is room for it.
    pub(crate) fn plug(&mut self, id: PortId) -> bool {
        let has_room = self.ports.len() < PORTS_MAX;
        if has_room {
            self.ports.push(Port { id, stations: VecDeque::new(), addresses: VecDeque::new() });
        }
        has_room
    }

    /// A port is gone. Returns its stations.
    pub(crate) fn unplug(&mut self, id: PortId) -> VecDeque<Mac> {
        let at = self.ports.iter().position(|port| port.id == id);
        at.map_or_else(VecDeque::new, |at| self.ports.swap_remove(at).stations)
    }

    pub(crate) fn port_of(&self, station: Mac) -> Option<PortId> {
        self.ports.iter().find(|port| port.stations.contains(&station)).map(|port| port.id)
    }

    pub(crate) fn owner(&self, address: IpAddr) -> Option<PortId> {
        self.ports.iter().find(|port| port.addresses.contains(&address)).map(|port| port.id)
    }

    /// A frame of this port. `holder` is the station that has leased an address, `forget` is called with a
    /// station that the port has no place for any more.
    pub(crate) fn judge(
        &mut self,
        own: &Own<'_>,
        id: PortId,
        frame: &[u8],
        holder: impl Fn(IpAddr) -> Option<Mac>,
        mut forget: impl FnMut(Mac),
    ) -> Way {
        let other = Way::Refused(Refused::Other);
        let Some(at) = self.ports.iter().position(|port| port.id == id) else { return other };
        let Ok(header) = EthernetHeader::parse(frame) else { return other };
        if !self.has_station(own, at, header.src, &mut forget) {
            return Way::Refused(Refused::Station(header.src));
        }
        let Some(content) = Content::of(&header, &frame[ethernet::HEADER_LEN..]) else { return other };
        for address in content.claims.into_iter().flatten() {
            if !self.has_address(own, at, address, &holder) {
                return Way::Refused(Refused::Address(address));
            }
        }
        let passes = content.passes && content.source.is_none_or(|source| own.is_on_link(source));
        if header.dst == own.station || header.dst.is_group() && !passes {
            return Way::Host;
        }
        match self.port_of(header.dst) {
            _ if header.dst.is_group() => Way::Everybody,
            Some(to) if passes && to != id => Way::Port(to),
            _ => other,
        }
    }

    /// Whether the port has this station, or has it from now on.
    fn has_station(&mut self, own: &Own<'_>, at: usize, mac: Mac, forget: &mut impl FnMut(Mac)) -> bool {
        if recall(&mut self.ports[at].stations, &mac) {
            return true;
        }
        if !mac.is_station() || mac == own.station || self.port_of(mac).is_some() {
            return false;
        }
        let stations = &mut self.ports[at].stations;
        stations.push_front(mac);
        if stations.len() > STATIONS_MAX
            && let Some(last) = stations.pop_back()
        {
            forget(last);
        }
        true
    }

    /// The same of an address. One that is not on the link is left to the rules of the stack above.
    fn has_address(
        &mut self,
        own: &Own<'_>,
        at: usize,
        address: IpAddr,
        holder: &impl Fn(IpAddr) -> Option<Mac>,
    ) -> bool {
        if recall(&mut self.ports[at].addresses, &address) {
            return true;
        }
        if own.has(address) {
            return false;
        }
        if !own.is_on_link(address) {
            return true;
        }
        let id = self.ports[at].id;
        let lessee = holder(address).and_then(|station| self.port_of(station));
        let known = self.owner(address);
        if lessee.or(known).is_some_and(|other| other != id) {
            return false;
        }
        // It was leased to a station of this port while another one had it.
        for other in &mut self.ports {
            other.addresses.retain(|known| *known != address);
        }
        let addresses = &mut self.ports[at].addresses;
        addresses.push_front(address);
        addresses.truncate(ADDRESSES_MAX);
        true
    }
}

/// Whether it is in the list; if so, it is the first one now.
fn recall<T: PartialEq>(list: &mut VecDeque<T>, wanted: &T) -> bool {
    let Some(at) = list.iter().position(|known| known == wanted) else { return false };
    if at > 0
        && let Some(found) = list.remove(at)
    {
        list.push_front(found);
    }
    true
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// A frame's sender, and whether it may pass to another machine.
struct Content {
    /// Addresses that its sender has.
    claims: [Option<IpAddr>; 2],
    source: Option<IpAddr>,
    passes: bool,
}

/// ICMP's redirect; messages of neighbour discovery by which hosts find routers and neighbours (RFC 4861 §4).
const REDIRECT_V4: u8 = 5;
const ROUTERS: [u8; 2] = [133, 134];
const SOLICIT: u8 = 135;
const ADVERTISE: u8 = 136;
const REDIRECT: u8 = 137;
/// Headers before a message that would hide it: of IPv6, hop by hop, routing, for the destination (IANA
/// "Protocol Numbers").
const HIDING: [u8; 3] = [0, 43, 60];
/// DHCP's ports, for IPv4 and IPv6.
const SERVER_V4: u16 = 67;
const CONFIGURING: [u16; 4] = [SERVER_V4, 68, 546, 547];
/// RFC 8200 §3; the bits of a fragment's place.
const IPV6_LEN: usize = 40;
const OFFSET: u16 = 0x1fff;
/// The client's station in its message (RFC 2131 §2).
const CHADDR: usize = 28;

impl Content {
    /// `None` for what makes no sense.
    fn of(header: &EthernetHeader, payload: &[u8]) -> Option<Self> {
        match header.ether_type {
            ether_type::ARP => {
                let arp = Arp::parse(payload).ok().filter(|arp| arp.sender_mac == header.src)?;
                let sender = Some(IpAddr::V4(arp.sender)).filter(|sender| !sender.is_unspecified());
                Some(Self { claims: [sender, None], source: sender, passes: true })
            }
            ether_type::IPV4 | ether_type::IPV6 => Self::of_ip(header, payload),
            // For this host, which ignores it.
            _ => Some(Self { claims: [None; 2], source: None, passes: false }),
        }
    }

    fn of_ip(header: &EthernetHeader, packet: &[u8]) -> Option<Self> {
        let ip = IpHeader::parse(packet).ok()?;
        let is_v4 = ip.src.is_ipv4();
        if ip.src.is_multicast() || is_v4 != (header.ether_type == ether_type::IPV4) {
            return None;
        }
        // Of IPv6, before any further header.
        let (next, at) = if is_v4 { (ip.protocol, ip.header_len) } else { (packet[6], IPV6_LEN) };
        // Of a fragment that is not the first one, nothing is known (RFC 791 §3.1).
        let is_first = !is_v4 || u16::from_be_bytes([packet[6], packet[7]]) & OFFSET == 0;
        let message = packet.get(at..).filter(|_| is_first).unwrap_or_default();
        let kind = message.first().copied().unwrap_or_default();
        let is_new = ip.src.is_unspecified();
        let mut content =
            Self { claims: [(!is_new).then_some(ip.src), None], source: Some(ip.src), passes: !is_new };
        match next {
            protocol::UDP => {
                let port =
                    |at: usize| message.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
                let is_configuring =
                    [port(0), port(2)].into_iter().flatten().any(|port| CONFIGURING.contains(&port));
                content.passes &= !is_configuring;
                // A station requests leases for itself alone.
                let station = message.get(8 + CHADDR..8 + CHADDR + 6);
                if is_v4 && port(2) == Some(SERVER_V4) && station.is_some_and(|own| own != header.src.0) {
                    return None;
                }
            }
            protocol::ICMP if is_v4 => content.passes &= kind != REDIRECT_V4,
            protocol::ICMPV6 if !is_v4 => {
                if kind == ADVERTISE {
                    let target = message.get(8..24)?.first_chunk::<16>()?;
                    content.claims[1] = Some(Ipv6Addr::from(*target).into());
                }
                if is_new && kind == SOLICIT {
                    // RFC 4862 §5.4.2: whether anybody has an address.
                    (content.source, content.passes) = (None, true);
                }
                content.passes &= kind != REDIRECT && !ROUTERS.contains(&kind);
            }
            _ => content.passes &= is_v4 || !HIDING.contains(&next),
        }
        Some(content)
    }
}
