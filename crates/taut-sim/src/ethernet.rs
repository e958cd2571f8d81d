//! Hosts on an Ethernet behind a switch: the real stack and its real link layer, with ARP, neighbour
//! discovery, DHCP and groups, in virtual time. taut's own; used by tests and experiments about the link,
//! beside [`World`](crate::World), whose wires carry IP packets between hosts that know the way.
//!
//! ```text
//!   Stack ◀── changes, packets ── taut_ethernet::Ethernet ◀── frames ──▶ switch: learns who is where, floods the rest
//!                                                                               ▲
//!                                                          DhcpServer ──────────┘
//! ```
//!
//! A frame takes the same time to each port. The switch forgets nobody, and looks at no reports on groups.
//! The same seed and the same calls give the same run.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use taut_core::{
    Duration, Fate, Frame, Instant, KeptPacket, LinkCaps, RxChecksum, RxPacket, Stack, StackConfig, Transmit,
    TxTicket,
};
use taut_ethernet::{Arrival, Ethernet, EthernetConfig, FRAME_MAX, Hop, Resolved};
use taut_wire::{Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, dhcp, ether_type, ethernet, protocol, udp};

use crate::event::BEGIN;

/// The largest IP packet.
const MTU: u16 = 1_500;

/// A station's number, from 0 in the order of creation.
pub type Port = usize;

/// A packet that waits for its neighbour.
type Waiting = (KeptPacket, TxTicket);

/// An Ethernet with a switch.
pub struct Segment {
    now: Instant,
    delay: Duration,
    seed: u8,
    stations: Vec<Station>,
    /// Where the switch has heard whom.
    learnt: BTreeMap<Mac, Port>,
    /// Frames on their way, by their arrival.
    frames: BTreeMap<(Instant, u64), (Port, Vec<u8>)>,
    serial: u64,
    counts: SwitchCounts,
}

/// What the switch has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounts {
    /// Frames to one port, where their station is.
    pub forwarded: u64,
    /// Frames to all ports: for groups, or for a station that was not heard yet.
    pub flooded: u64,
}

enum Station {
    Host(Box<EthernetHost>),
    Server(DhcpServer),
}

/// A host: a stack and its link.
pub struct EthernetHost {
    /// The stack.
    pub stack: Stack,
    /// Its link layer.
    pub link: Ethernet<Waiting>,
}

/// A server that leases addresses of 10.9.0.0/24, from 10.9.0.100 on, for an hour.
pub struct DhcpServer {
    mac: Mac,
    /// Who has which: the last byte of its address.
    leases: BTreeMap<Mac, u8>,
    next: u8,
}

/// The server's address, which is also the router's that it tells.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

impl Segment {
    /// A switch that takes so long to deliver a frame.
    #[must_use]
    pub fn new(seed: u8, delay: Duration) -> Self {
        Self {
            now: BEGIN,
            delay,
            seed,
            stations: Vec::new(),
            learnt: BTreeMap::new(),
            frames: BTreeMap::new(),
            serial: 0,
            counts: SwitchCounts::default(),
        }
    }

    fn mac(&self) -> Mac {
        Mac([2, 0, 0, 0, 0, self.stations.len() as u8 + 1])
    }

    /// Adds a host, whose link is configured so, apart from its station and MTU.
    pub fn host(&mut self, config: EthernetConfig) -> Port {
        let (mac, number) = (self.mac(), self.stations.len() as u8);
        let addresses = config.networks.iter().map(|own| own.address).collect();
        let stack_config = StackConfig::default().with(|stack| stack.addresses = addresses);
        let mut seed = [self.seed; 32];
        seed[0] = number;
        let stack = Stack::new(Arc::new(stack_config), LinkCaps::plain(MTU), seed);
        let link =
            Ethernet::new(EthernetConfig { mac, mtu: MTU, ..config }, [self.seed.wrapping_add(number); 16]);
        self.stations.push(Station::Host(Box::new(EthernetHost { stack, link })));
        self.stations.len() - 1
    }

    /// Adds a DHCP server.
    pub fn server(&mut self) -> Port {
        let mac = self.mac();
        self.stations.push(Station::Server(DhcpServer { mac, leases: BTreeMap::new(), next: 100 }));
        self.stations.len() - 1
    }

    /// The host at a port.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn at(&mut self, port: Port) -> &mut EthernetHost {
        match &mut self.stations[port] {
            Station::Host(host) => host,
            Station::Server(_) => panic!("port {port} has a server"),
        }
    }

    /// Virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// What the switch has done.
    #[must_use]
    pub const fn counts(&self) -> SwitchCounts {
        self.counts
    }

    /// Lets so much time pass. `app` is called for each host after each event, with its port.
    pub fn run_for(&mut self, span: Duration, mut app: impl FnMut(Instant, Port, &mut Stack)) {
        let end = self.now + span;
        loop {
            self.settle(&mut app);
            let frame = self.frames.keys().next().map_or(Instant::NEVER, |(at, _)| *at);
            let timer = self.stations.iter().map(Station::due).min().unwrap_or(Instant::NEVER);
            let next = frame.min(timer);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if frame <= timer
                && let Some((_, (port, frame))) = self.frames.pop_first()
            {
                self.deliver(port, &frame);
            }
        }
    }

    /// Timers, applications and what they send, until nothing more is to be done now.
    fn settle(&mut self, app: &mut impl FnMut(Instant, Port, &mut Stack)) {
        let now = self.now;
        let mut sent = Vec::new();
        for (port, station) in self.stations.iter_mut().enumerate() {
            if let Station::Host(host) = station {
                host.turn(now, &mut |frame| sent.push((port, frame)), |stack| app(now, port, stack));
            }
        }
        sent.into_iter().for_each(|(port, frame)| self.switch(port, &frame));
    }

    /// A frame leaves a station.
    fn switch(&mut self, from: Port, frame: &[u8]) {
        let Ok(header) = EthernetHeader::parse(frame) else { return };
        self.learnt.insert(header.src, from);
        let only = if header.dst.is_group() { None } else { self.learnt.get(&header.dst).copied() };
        if only.is_some() {
            self.counts.forwarded += 1;
        } else {
            self.counts.flooded += 1;
        }
        for port in (0..self.stations.len()).filter(|port| *port != from) {
            if only.is_none_or(|only| only == port) {
                self.serial += 1;
                self.frames.insert((self.now + self.delay, self.serial), (port, frame.to_vec()));
            }
        }
    }

    fn deliver(&mut self, port: Port, frame: &[u8]) {
        match &mut self.stations[port] {
            Station::Host(host) => host.hear(self.now, frame),
            Station::Server(server) => {
                if let Some(answer) = server.hear(frame) {
                    self.switch(port, &answer);
                }
            }
        }
    }
}

impl Station {
    fn due(&self) -> Instant {
        match self {
            Self::Host(host) => {
                let stack = host.stack.poll_timeout().map_or(Instant::NEVER, |(at, _)| at);
                stack.min(host.link.poll_timeout())
            }
            Self::Server(_) => Instant::NEVER,
        }
    }
}

impl EthernetHost {
    fn hear(&mut self, now: Instant, frame: &[u8]) {
        if self.link.handle_frame(now, frame) == Arrival::Packet {
            let frame = Frame::Slice(&frame[ethernet::HEADER_LEN..]);
            self.stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
        }
    }

    /// What is due, what the application does, and all that leaves then.
    fn turn(&mut self, now: Instant, send: &mut impl FnMut(Vec<u8>), app: impl FnOnce(&mut Stack)) {
        let Self { stack, link } = self;
        if link.poll_timeout() <= now {
            link.handle_timeout(now);
        }
        while let Some(change) = link.poll_change() {
            // One that the stack has no place for changes nothing.
            _ = stack.change_network(now, change);
        }
        if stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
            stack.handle_timeout(now);
        }
        app(stack);
        while let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) {
            match link.next_hop(now, packet.header) {
                Hop::Ready(header) => {
                    send([&header[..], &packet.to_vec()].concat());
                    stack.handle_tx(now, ticket, Fate::Left);
                }
                Hop::Wait(neighbour) => {
                    let kept = packet.keep();
                    if let Some((_, ticket)) = link.wait(neighbour, (kept, ticket)) {
                        stack.handle_tx(now, ticket, Fate::Left);
                    }
                }
                Hop::NoRoute => stack.handle_tx(now, ticket, Fate::Dropped),
            }
        }
        while let Some(resolved) = link.poll_resolved() {
            let ticket = match resolved {
                Resolved::Ready(header, (packet, ticket)) => {
                    send([&header[..], &packet.packet().to_vec()].concat());
                    ticket
                }
                Resolved::Lost((_, ticket)) => ticket,
            };
            stack.handle_tx(now, ticket, Fate::Left);
        }
        let mut buf = [0; FRAME_MAX];
        while let Some(len) = link.poll_frame(&mut buf) {
            send(buf[..len].to_vec());
        }
    }
}

impl DhcpServer {
    /// Answers a client's Discover and Request.
    fn hear(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let header = EthernetHeader::parse(frame).ok()?;
        let packet = frame.get(ethernet::HEADER_LEN..)?;
        if header.ether_type == ether_type::ARP {
            return self.answer_arp(packet);
        }
        let ip = IpHeader::parse(packet).ok().filter(|ip| ip.protocol == protocol::UDP)?;
        let datagram = packet.get(ip.header_len..)?;
        let ports = UdpHeader::parse(datagram, ip.payload_len).ok()?;
        let message = datagram.get(udp::HEADER_LEN..)?;
        if ports.dst_port != dhcp::SERVER_PORT || message.len() < dhcp::MESSAGE_LEN {
            return None;
        }
        // The first option is the type: Discover, Request.
        let answer = match message[242] {
            1 => 2,
            3 => 5,
            _ => return None,
        };
        let host = *self.leases.entry(header.src).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        let mut reply = message[..240].to_vec();
        reply[0] = 2;
        reply[16..20].copy_from_slice(&[10, 9, 0, host]);
        let [a, b, c, d] = SERVER.octets();
        reply.extend([53, 1, answer, 54, 4, a, b, c, d, 51, 4, 0, 0, 14, 16, 1, 4, 255, 255, 255, 0]);
        reply.extend([3, 4, a, b, c, d, 255]);
        let (src, dst) = (IpAddr::V4(SERVER), IpAddr::V4([10, 9, 0, host].into()));
        let payload_len = udp::HEADER_LEN + reply.len();
        let (ecn, header_len, hop_limit) = (Ecn::NotEct, 20, 64);
        let ip = IpHeader { src, dst, protocol: protocol::UDP, hop_limit, ecn, header_len, payload_len };
        let mut head = vec![0; header_len + udp::HEADER_LEN];
        ip.emit(&mut head, 0);
        let (src_port, dst_port) = (dhcp::SERVER_PORT, dhcp::CLIENT_PORT);
        UdpHeader { src_port, dst_port, len: payload_len as u16 }.emit(&mut head[header_len..]);
        let link = EthernetHeader { dst: header.src, src: self.mac, ether_type: ether_type::IPV4 };
        Some([&link.emit()[..], &head, &reply].concat())
    }

    fn answer_arp(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let asked =
            taut_wire::Arp::parse(packet).ok().filter(|arp| arp.is_request && arp.target == SERVER)?;
        let reply = taut_wire::Arp {
            is_request: false,
            sender_mac: self.mac,
            sender: SERVER,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        let header = EthernetHeader { dst: asked.sender_mac, src: self.mac, ether_type: ether_type::ARP };
        Some([&header.emit()[..], &reply.emit()].concat())
    }
}
