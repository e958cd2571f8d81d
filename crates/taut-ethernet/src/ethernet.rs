//! Ethernet for one host: which station a packet goes to, and what arriving frames mean. RFC 826, RFC 894, RFC 2464,
//! RFC 4861 §7.2. Called by a device that carries Ethernet, which owns an [`Ethernet`] and gives it the time.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use taut_wire::{
    Arp, DhcpMessage, EthernetHeader, IpHeader, Mac, Ndp, RouterAdvertisement, RouterSolicitation,
    ether_type, ethernet, ndp, protocol, router,
};

use crate::cache::{Cache, Found, NeighbourState, Word};
use crate::dhcp::bootp::{self, Ports};
use crate::dhcp::client::Client;
use crate::frame_v6::emit_icmpv6;
use crate::groups::Groups;
use crate::own::OwnAddresses;
use crate::routers::{LINK_LOCAL, Routers};
use crate::serving::{Services, Serving};
use crate::switch::Switch;
use taut_core::Routes;
use taut_core::{Instant, Network, NetworkChange, Route};

/// The longest frame of [`Ethernet::poll_frame`]: a server's message of DHCP; a client's, and reports on
/// groups, are shorter.
pub const FRAME_MAX: usize = bootp::FRAME_LEN;
/// Questions and answers that wait to be sent; a device takes them with each batch.
const FRAMES_MAX: usize = 64;
/// Every host on the link (RFC 4291 §2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What a host knows of its link.
#[derive(Clone, Debug, Default)]
pub struct EthernetConfig {
    /// The host's station.
    pub mac: Mac,
    /// Its addresses. They are used at once.
    pub networks: Vec<Network>,
    /// Where packets for other networks go: one for each family at most. It must be on the link.
    pub gateways: Vec<IpAddr>,
    /// Whether addresses of IPv6, routers and the MTU are learnt from the link's routers (RFC 4861 §6.3, RFC 4862).
    pub slaac: bool,
    /// Whether an address of IPv4, routers, the MTU and name servers are asked of the link's servers (RFC
    /// 2131). Needs the feature `dhcp`.
    pub dhcp: bool,
    /// Which queue of the host asks for it.
    pub role: Role,
    /// Whether switches and routers are told of the groups that this host is a member of (IGMPv3, MLDv2):
    /// those of its IPv6 addresses, and those that its owner joins.
    pub groups: bool,
    /// How this host serves the others on the link, with DHCP and as their router. Needs the feature `dhcp`.
    pub services: Services,
    /// The MTU of the device: the largest that a router or server is believed.
    pub mtu: u16,
}

/// A host that receives by several queues has an [`Ethernet`] for each. One of them asks for an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// There is no other queue.
    #[default]
    Only,
    /// This one asks, and the others [`follow`](Ethernet::follow) it.
    First,
    /// Another one asks. What servers say is [`Arrival::Taken`], for that queue to [`overhear`](Ethernet::overhear).
    Other,
}

/// Counts of what has happened on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EthernetStats {
    /// Questions for a neighbour's station.
    pub asked: u64,
    /// Answers to such questions of others.
    pub answered: u64,
    /// Questions and answers that were not sent, because too many waited.
    pub unsent: u64,
    /// Packets that were lost because their neighbour did not answer, or because too many waited for it.
    pub lost: u64,
    /// Frames for other stations, of other protocols, or that make no sense.
    pub ignored: u64,
    /// Frames in which another station claimed an address of this host.
    pub conflicts: u64,
    /// Addresses that were not used, because another station has them.
    pub duplicates: u64,
}

/// A neighbour that packets wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour(IpAddr);

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// To the wire, with this header in front of it.
    Ready([u8; ethernet::HEADER_LEN]),
    /// Its neighbour's station is not known yet: give the packet to [`Ethernet::wait`].
    Wait(Neighbour),
    /// Its destination is not on the link, and there is no gateway to it.
    NoRoute,
}

/// What a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// An IP packet for this host begins behind the header.
    Packet,
    /// A message between neighbours, which has been handled.
    Taken,
    /// Not for this host, or of no use.
    Ignored,
}

/// The end of a packet's wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolved<P> {
    /// To the wire, with this header in front of it.
    Ready([u8; ethernet::HEADER_LEN], P),
    /// The neighbour did not answer, or had to give way to others.
    Lost(P),
}

/// The link layer of one host. `P` is a packet that waits.
#[derive(Debug)]
pub struct Ethernet<P> {
    pub(crate) config: EthernetConfig,
    pub(crate) cache: Cache<P>,
    pub(crate) own: OwnAddresses,
    pub(crate) routes: Routes,
    /// `None` if they are not asked for.
    pub(crate) routers: Option<Routers>,
    /// `None` if no server is asked for an address.
    pub(crate) dhcp: Option<Client>,
    /// `None` if nobody is told.
    pub(crate) groups: Option<Groups>,
    /// `None` if it does nothing for others.
    pub(crate) serving: Option<Box<Serving>>,
    /// Without ports if the link is one.
    pub(crate) switch: Switch,
    /// Changes that the stack has not been told yet.
    pub(crate) changes: VecDeque<NetworkChange>,
    /// Those of the lease, which the other queues of this host have not been told yet.
    pub(crate) shared: VecDeque<NetworkChange>,
    /// Routers and servers were asked, if they are to be.
    pub(crate) has_begun: bool,
    frames: VecDeque<Outgoing>,
    pub(crate) stats: EthernetStats,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outgoing {
    Arp {
        to: Mac,
        arp: Arp,
    },
    Ndp {
        to: Mac,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: Ndp,
    },
    /// To all routers.
    RouterSolicitation {
        src: Ipv6Addr,
    },
    Dhcp {
        to: Mac,
        dst: Ipv4Addr,
        message: DhcpMessage,
    },
}

impl Outgoing {
    /// Whether it is a client's message to servers, or tells everybody that this host has the leased address.
    fn is_of_client(&self, leased: Option<Ipv4Addr>) -> bool {
        match self {
            Self::Dhcp { .. } => true,
            Self::Arp { arp, .. } => arp.sender == arp.target && leased == Some(arp.sender),
            Self::Ndp { .. } | Self::RouterSolicitation { .. } => false,
        }
    }
}

impl<P> Ethernet<P> {
    /// A link of which nothing is known yet. The seed must be random.
    #[must_use]
    pub fn new(mut config: EthernetConfig, seed: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(seed);
        // Another key than the cache's.
        let own = OwnAddresses::new(&config.networks, (bits as u64, !(bits >> 64) as u64));
        let mut routes = Routes::default();
        let on_link = |to| Route { to, via: None, source: None };
        let default =
            |via: IpAddr| Route { to: Network { address: via, prefix: 0 }, via: Some(via), source: None };
        let connected = config.networks.iter().copied().chain([LINK_LOCAL]).map(on_link);
        for route in connected.chain(config.gateways.iter().copied().map(default)) {
            // One that makes no sense leads nowhere.
            _ = routes.add(route);
        }
        // A key of its own, too.
        let client = || Client::new(config.mac, config.mtu, (!(bits as u64), (bits >> 64) as u64));
        let dhcp = (cfg!(feature = "dhcp") && config.dhcp && config.role != Role::Other).then(client);
        let services = core::mem::take(&mut config.services);
        let is_serving = cfg!(feature = "dhcp") && (services.leases.is_some() || services.router.is_some());
        let serving =
            is_serving.then(|| Serving::new(services, (!(bits as u64) ^ 1, !((bits >> 64) as u64) ^ 1)));
        Self {
            routers: config.slaac.then(Routers::default),
            has_begun: !config.slaac && dhcp.is_none() && !config.groups,
            dhcp,
            serving,
            switch: Switch::default(),
            groups: config.groups.then(|| Groups::new(((bits >> 32) as u64, !(bits as u64)))),
            config,
            cache: Cache::new(seed),
            own,
            routes,
            changes: VecDeque::new(),
            shared: VecDeque::new(),
            frames: VecDeque::with_capacity(FRAMES_MAX),
            stats: EthernetStats::default(),
        }
    }

    /// What has happened.
    #[must_use]
    pub const fn stats(&self) -> EthernetStats {
        self.stats
    }

    /// How much is known of a neighbour; `None` if nothing.
    #[must_use]
    pub fn neighbour(&self, ip: IpAddr) -> Option<NeighbourState> {
        self.cache.state_of(ip)
    }

    /// How many neighbours are remembered: 512 at most.
    #[must_use]
    pub fn neighbours(&self) -> usize {
        self.cache.len()
    }

    /// How many packets wait: 16 for a neighbour and 256 in all at most.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.cache.waiting()
    }

    /// Where a packet goes that begins with this IP header.
    pub fn next_hop(&mut self, now: Instant, packet: &[u8]) -> Hop {
        let Some(dst) = destination(packet) else { return Hop::NoRoute };
        if dst.is_multicast() {
            // RFC 1112 §6.4, RFC 2464 §7: the group's station needs no question.
            return Hop::Ready(self.header(dst, station_of(dst)));
        }
        let Some(next) = self.neighbour_towards(dst) else { return Hop::NoRoute };
        match self.cache.look_up(now, next) {
            Found::Known(mac) => Hop::Ready(self.header(next, mac)),
            Found::Unknown => Hop::Wait(Neighbour(next)),
            Found::New => {
                self.ask(next, None);
                Hop::Wait(Neighbour(next))
            }
        }
    }

    /// Keeps a packet until its neighbour has answered. Returns one that cannot wait: the oldest of those for this neighbour
    /// when too many wait for it, or this one.
    pub fn wait(&mut self, neighbour: Neighbour, packet: P) -> Option<P> {
        let lost = self.cache.wait(neighbour.0, packet);
        self.stats.lost += u64::from(lost.is_some());
        lost
    }

    /// The next packet whose wait is over.
    pub fn poll_resolved(&mut self) -> Option<Resolved<P>> {
        Some(match self.cache.poll_resolved()? {
            (Some((ip, mac)), packet) => Resolved::Ready(self.header(ip, mac), packet),
            (None, packet) => {
                self.stats.lost += 1;
                Resolved::Lost(packet)
            }
        })
    }

    /// Whether the wait of any packet is over.
    #[must_use]
    pub fn has_resolved(&self) -> bool {
        self.cache.has_resolved()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called; [`Instant::NEVER`] if nobody is asked for anything.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        if !self.has_begun {
            return Instant::ZERO;
        }
        let routers = self.routers.as_ref().map_or(Instant::NEVER, Routers::next);
        let dhcp = self.dhcp.as_ref().map_or(Instant::NEVER, Client::next);
        let groups = self.groups.as_ref().map_or(Instant::NEVER, Groups::next);
        let serving = self.serving.as_ref().map_or(Instant::NEVER, |serving| serving.next());
        self.cache.next().min(self.own.next()).min(routers).min(dhcp).min(groups).min(serving)
    }

    /// Asks again, and gives up those that do not answer. Checks addresses, and asks for routers and for an
    /// address.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Self { config, cache, own, frames, stats, .. } = self;
        cache.handle_timeout(now, |ip, mac| ask((config.mac, own), frames, stats, ip, mac));
        self.configure(now);
        self.report_groups(now);
        if let Some(serving) = self.serving() {
            serving.handle_timeout(now);
        }
    }

    /// A frame has arrived.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8]) -> Arrival {
        let Ok(header) = EthernetHeader::parse(frame) else { return self.ignored() };
        if header.dst != self.config.mac && !header.dst.is_group() {
            return self.ignored();
        }
        let payload = frame.get(ethernet::HEADER_LEN..).unwrap_or_default();
        match header.ether_type {
            ether_type::IPV4 if self.take_dhcp(now, header.src, payload) => Arrival::Taken,
            ether_type::IPV4 if self.take_question(now, payload) => Arrival::Taken,
            ether_type::IPV4 | ether_type::IPV6 if self.take_query(now, payload) => Arrival::Taken,
            ether_type::IPV4 => Arrival::Packet,
            ether_type::IPV6 if self.take_question_v6(header.src, payload) => Arrival::Taken,
            ether_type::IPV6 => self.handle_ipv6(now, header.src, payload),
            ether_type::ARP => match Arp::parse(payload) {
                Ok(arp) => self.handle_arp(now, header.dst, arp),
                Err(_) => self.ignored(),
            },
            _ => self.ignored(),
        }
    }

    /// A message between neighbours that another queue of this host has received, and answers: what it says of its sender is
    /// remembered. One of a server is for the queue that asks for an address.
    pub fn overhear(&mut self, now: Instant, frame: &[u8]) {
        let (frames, stats) = (self.frames.len(), self.stats);
        self.handle_frame(now, frame);
        // A frame that arrives makes no questions, only answers. Those that the lease calls for are this queue's.
        let leased = self.leased();
        let mut index = 0;
        self.frames.retain(|frame| {
            index += 1;
            index <= frames || frame.is_of_client(leased)
        });
        self.stats = stats;
    }

    /// Writes the next message for neighbours into `buf`, and returns its length.
    pub fn poll_frame(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<usize> {
        let src = self.config.mac;
        let Some(frame) = self.frames.pop_front() else {
            return self.poll_report(buf).or_else(|| self.poll_service(buf));
        };
        Some(match frame {
            Outgoing::Arp { to, arp } => {
                let header = EthernetHeader { dst: to, src, ether_type: ether_type::ARP }.emit();
                let message = arp.emit();
                let len = header.len() + message.len();
                buf[..header.len()].copy_from_slice(&header);
                buf[header.len()..len].copy_from_slice(&message);
                len
            }
            Outgoing::Ndp { to, src: from, dst, message } => {
                emit_icmpv6(buf, (src, to), (from, dst), |buf| message.emit(buf, from, dst))
            }
            Outgoing::RouterSolicitation { src: from } => {
                let (dst, station) = (router::ALL_ROUTERS, Some(src));
                let write = |buf: &mut [u8]| router::emit_solicitation(buf, from, station);
                emit_icmpv6(buf, (src, Mac::of_multicast(dst)), (from, dst), write)
            }
            Outgoing::Dhcp { to, dst, message } => {
                let ends = (message.address, dst);
                bootp::emit(buf, (src, to), ends, Ports::OF_CLIENT, |buf| message.emit(buf))
            }
        })
    }

    fn ignored(&mut self) -> Arrival {
        self.stats.ignored += 1;
        Arrival::Ignored
    }

    fn header(&self, next: IpAddr, dst: Mac) -> [u8; ethernet::HEADER_LEN] {
        let ether_type = if next.is_ipv4() { ether_type::IPV4 } else { ether_type::IPV6 };
        EthernetHeader { dst, src: self.config.mac, ether_type }.emit()
    }

    /// The neighbour that a packet for this address goes to.
    pub(crate) fn neighbour_towards(&self, dst: IpAddr) -> Option<IpAddr> {
        if !is_unicast(dst) {
            return None;
        }
        self.routes.find(dst).map(|route| route.via.unwrap_or(dst))
    }

    /// The station of a neighbour, if it is known.
    pub(crate) fn mac_of(&self, ip: IpAddr) -> Option<Mac> {
        self.cache.mac_of(ip)
    }

    fn is_on_link(&self, ip: IpAddr) -> bool {
        is_unicast(ip) && self.routes.find(ip).is_some_and(|route| route.via.is_none())
    }

    fn ask(&mut self, ip: IpAddr, mac: Option<Mac>) {
        ask((self.config.mac, &self.own), &mut self.frames, &mut self.stats, ip, mac);
    }

    /// Sends a message, if not too many wait.
    pub(crate) fn say(&mut self, frame: Outgoing) {
        push(&mut self.frames, &mut self.stats, frame);
    }

    fn answer(&mut self, frame: Outgoing) {
        if push(&mut self.frames, &mut self.stats, frame) {
            self.stats.answered += 1;
        }
    }

    /// Remembers what a message says about its sender. One that is not known is remembered only if it asks for this host,
    /// because then it will be sent to.
    pub(crate) fn learn(&mut self, now: Instant, sender: IpAddr, word: Word, asks_for_us: bool) {
        if word.mac.is_some_and(|mac| !mac.is_station()) || !self.is_on_link(sender) {
            return;
        }
        let is_known = self.cache.tell(now, sender, word);
        if let (false, true, Some(mac)) = (is_known, asks_for_us, word.mac) {
            self.cache.hear(now, sender, mac);
        }
    }

    /// RFC 826, "Packet Reception".
    fn handle_arp(&mut self, now: Instant, dst: Mac, arp: Arp) -> Arrival {
        let (sender, target) = (IpAddr::V4(arp.sender), IpAddr::V4(arp.target));
        let is_echo = arp.sender_mac == self.config.mac;
        if self.own.knows(sender) {
            if !is_echo {
                self.on_claim(now, sender);
            }
            return Arrival::Taken;
        }
        let is_for_us = self.own.has(target);
        // RFC 5227 §2.1.1: two that look for the same address.
        if arp.is_request && arp.sender.is_unspecified() && !is_for_us && !is_echo && self.own.knows(target) {
            self.on_claim(now, target);
            return Arrival::Taken;
        }
        let solicited = !arp.is_request && is_for_us && dst == self.config.mac;
        let word = Word { mac: Some(arp.sender_mac), solicited, overrides: true };
        self.learn(now, sender, word, arp.is_request && is_for_us);
        if arp.is_request && is_for_us && arp.sender_mac.is_station() {
            let own = self.config.mac;
            let reply = Arp {
                is_request: false,
                sender_mac: own,
                sender: arp.target,
                target_mac: arp.sender_mac,
                target: arp.sender,
            };
            self.answer(Outgoing::Arp { to: arp.sender_mac, arp: reply });
        }
        Arrival::Taken
    }

    /// A packet of IPv6: one between neighbours is handled here.
    fn handle_ipv6(&mut self, now: Instant, station: Mac, packet: &[u8]) -> Arrival {
        const NEXT_HEADER: usize = 6;
        if packet.get(NEXT_HEADER) != Some(&protocol::ICMPV6) {
            return Arrival::Packet;
        }
        let Ok(ip) = IpHeader::parse(packet) else { return Arrival::Packet };
        let message = packet.get(ip.header_len..ip.header_len + ip.payload_len).unwrap_or_default();
        if self.routers.is_some() && router::is_advertisement(message) {
            return match (ip.src, RouterAdvertisement::parse(&ip, message)) {
                (IpAddr::V6(src), Ok(message)) if self.has_begun => {
                    self.on_advertisement(now, src, &message);
                    Arrival::Taken
                }
                _ => self.ignored(),
            };
        }
        if router::is_solicitation(message) && self.serving().is_some_and(|serving| serving.is_router()) {
            return match (ip.src, RouterSolicitation::parse(&ip, message)) {
                (IpAddr::V6(src), Ok(message)) => self.on_solicitation(now, src, message),
                _ => self.ignored(),
            };
        }
        if !ndp::is_neighbour_message(message) {
            return Arrival::Packet;
        }
        match (ip.src, Ndp::parse(&ip, message)) {
            (IpAddr::V6(src), Ok(message)) => self.handle_ndp(now, station, src, message),
            _ => self.ignored(),
        }
    }

    /// RFC 4861 §6.2.6.
    fn on_solicitation(&mut self, now: Instant, src: Ipv6Addr, message: RouterSolicitation) -> Arrival {
        if message.source_mac.is_some() {
            let word = Word { mac: message.source_mac, solicited: false, overrides: true };
            self.learn(now, src.into(), word, true);
        }
        if let Some(serving) = self.serving() {
            serving.on_solicitation(now);
        }
        Arrival::Taken
    }

    fn handle_ndp(&mut self, now: Instant, station: Mac, src: Ipv6Addr, message: Ndp) -> Arrival {
        let is_echo = station == self.config.mac;
        if !src.is_unspecified() && self.own.has(src.into()) {
            self.stats.conflicts += 1;
            return Arrival::Taken;
        }
        match message {
            Ndp::Solicit { target, source_mac } if self.own.has(target.into()) => {
                // RFC 4861 §7.2.3.
                let word = Word { mac: source_mac, solicited: false, overrides: true };
                if source_mac.is_some() {
                    self.learn(now, src.into(), word, true);
                }
                self.advertise(target, src, source_mac);
            }
            // RFC 4862 §5.4.3: two that look for the same address.
            Ndp::Solicit { target, .. }
                if src.is_unspecified() && !is_echo && self.own.knows(target.into()) =>
            {
                self.on_claim(now, target.into());
            }
            Ndp::Solicit { .. } => {}
            Ndp::Advertise { target, .. } if self.own.knows(target.into()) => {
                self.on_claim(now, target.into());
            }
            Ndp::Advertise { target, solicited, overrides, target_mac, .. } => {
                self.learn(now, target.into(), Word { mac: target_mac, solicited, overrides }, false);
            }
        }
        Arrival::Taken
    }

    /// RFC 4861 §7.2.4. One that does not say its station is answered where it was last heard of; one that looks for an
    /// address of its own is answered before everybody.
    fn advertise(&mut self, target: Ipv6Addr, to: Ipv6Addr, station: Option<Mac>) {
        let (dst, solicited, station) = if to.is_unspecified() {
            (ALL_NODES, false, Some(Mac::of_multicast(ALL_NODES)))
        } else {
            (to, true, station.filter(|mac| mac.is_station()).or_else(|| self.cache.mac_of(to.into())))
        };
        let Some(to) = station else { return };
        let target_mac = Some(self.config.mac);
        // A host that hears "no router" of its router gives it up (§7.2.5).
        let router = self.serving().is_some_and(|serving| serving.is_router());
        let message = Ndp::Advertise { target, router, solicited, overrides: true, target_mac };
        self.answer(Outgoing::Ndp { to, src: target, dst, message });
    }
}

/// Asks for a neighbour: its station, if it is known, or everybody that may have the address.
fn ask(
    (own_mac, own): (Mac, &OwnAddresses),
    frames: &mut VecDeque<Outgoing>,
    stats: &mut EthernetStats,
    ip: IpAddr,
    mac: Option<Mac>,
) {
    let mut own = own.used().filter(|network| network.address.is_ipv4() == ip.is_ipv4());
    // The address of the same network, if there is one: others on the link may not know the others.
    let first = own.next();
    let of_network = first.into_iter().chain(own).find(|network| network.contains(ip)).or(first);
    let frame = match (ip, of_network.map(|network| network.address)) {
        (IpAddr::V4(target), Some(IpAddr::V4(sender))) => {
            let (sender_mac, target_mac) = (own_mac, mac.unwrap_or_default());
            let arp = Arp { is_request: true, sender_mac, sender, target_mac, target };
            Outgoing::Arp { to: mac.unwrap_or(Mac::BROADCAST), arp }
        }
        (IpAddr::V6(target), Some(IpAddr::V6(src))) => {
            let dst = if mac.is_some() { target } else { ndp::solicited_node(target) };
            let message = Ndp::Solicit { target, source_mac: Some(own_mac) };
            Outgoing::Ndp { to: mac.unwrap_or(Mac::of_multicast(dst)), src, dst, message }
        }
        _ => return,
    };
    if push(frames, stats, frame) {
        stats.asked += 1;
    }
}

fn push(frames: &mut VecDeque<Outgoing>, stats: &mut EthernetStats, frame: Outgoing) -> bool {
    let has_room = frames.len() < FRAMES_MAX;
    if has_room {
        frames.push_back(frame);
    } else {
        stats.unsent += 1;
    }
    has_room
}

/// The station that stands for a group.
pub(crate) const fn station_of(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(v4) => Mac::of_multicast_v4(v4),
        IpAddr::V6(v6) => Mac::of_multicast(v6),
    }
}

/// The destination of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(16..20)?.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        6 => packet.get(24..40)?.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

fn is_unicast(ip: IpAddr) -> bool {
    !ip.is_multicast() && !ip.is_unspecified() && !matches!(ip, IpAddr::V4(v4) if v4.is_broadcast())
}
