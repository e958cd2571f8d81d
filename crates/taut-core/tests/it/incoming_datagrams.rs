//! Flows of datagrams that an application decides about: the statements IN-21 to IN-36 of docs/spec/ip.md,
//! and GW-141. A stack at 10.9.0.1 and fd09::1 stands in for everybody; packets are written by hand.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use taut_core::{
    DatagramError, DatagramFlowOptions, DatagramId, DatagramKind, DatagramOptions, Duration, Event, Fate,
    FlowError, FlowFilter, FlowId, FlowInfo, FlowKind, FlowState, Frame, IncomingOptions, Instant, IpPrefix,
    LinkCaps, ListenerId, Refusal, RxChecksum, RxPacket, SendMeta, Stack, StackConfig, Transmit,
};
use taut_wire::{Icmp, IpHeader, UdpHeader, Unreachable, icmp, protocol, raw, udp};

const PAIRS: [(&str, &str); 2] =
    [("10.9.0.2:4000", "203.0.113.7:53"), ("[fd09::2]:4000", "[2001:db8:7::1]:53")];
const PEER: &str = PAIRS[0].0;
const ELSEWHERE: &str = PAIRS[0].1;

/// A stack, its time, and a filter.
struct World {
    stack: Stack,
    now: Instant,
    filter: ListenerId,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn packet(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header_len = if src.is_ipv4() { 20 } else { 40 };
    let payload_len = payload.len();
    let ecn = taut_wire::Ecn::NotEct;
    let header = IpHeader { src, dst, protocol, hop_limit: 64, ecn, header_len, payload_len };
    let mut bytes = vec![0; header_len];
    header.emit(&mut bytes, 0);
    bytes.extend_from_slice(payload);
    bytes
}

fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let header = UdpHeader { src_port: from.port(), dst_port: to.port(), len: 8 + payload.len() as u16 };
    let mut bytes = [&[0; 8][..], payload].concat();
    header.emit(&mut bytes);
    let sum = udp::full_checksum(from.ip(), to.ip(), &bytes, &[]);
    udp::set_checksum(&mut bytes, sum);
    packet(from.ip(), to.ip(), protocol::UDP, &bytes)
}

fn ping(from: IpAddr, to: IpAddr, ident: u16, seq: u16, data: &[u8]) -> Vec<u8> {
    let mut message = [&icmp::echo_request(from.is_ipv4(), seq)[..], data].concat();
    assert!(icmp::finish_echo_request(&mut message, from, to, ident));
    packet(from, to, if from.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }, &message)
}

fn parse_icmp(bytes: &[u8]) -> Icmp<'_> {
    let ip = IpHeader::parse(bytes).unwrap();
    let message = &bytes[ip.header_len..ip.header_len + ip.payload_len];
    match (ip.src, ip.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => Icmp::parse_v6(src, dst, message).unwrap(),
        _ => Icmp::parse_v4(message).unwrap(),
    }
}

/// Takes a UDP packet apart: ends and payload.
fn parse_udp(bytes: &[u8]) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let ip = IpHeader::parse(bytes).unwrap();
    let datagram = &bytes[ip.header_len..];
    let header = UdpHeader::parse(datagram, ip.payload_len).unwrap();
    assert!(udp::verify(ip.src, ip.dst, datagram, &[]));
    let ends = [(ip.src, header.src_port), (ip.dst, header.dst_port)].map(SocketAddr::from);
    (ends[0], ends[1], datagram[8..].to_vec())
}

const ALL: [FlowKind; 3] = [FlowKind::Tcp, FlowKind::Udp, FlowKind::Echo];

impl World {
    fn new() -> Self {
        Self::with(FlowFilter::any().kinds(ALL), DatagramFlowOptions::default())
    }

    fn with(filter: FlowFilter, datagrams: DatagramFlowOptions) -> Self {
        let config = StackConfig::default().with(|config| {
            config.addresses.push(ip("10.9.0.1"));
            config.addresses.push(ip("fd09::1"));
        });
        let mut stack = Stack::new(Arc::new(config), LinkCaps::plain(1_500), [7; 32]);
        let options = IncomingOptions { datagrams, ..IncomingOptions::default() };
        let filter = stack.incoming(filter, options).unwrap();
        Self { stack, now: Instant::from_nanos(500_000_000_000), filter }
    }

    fn give(&mut self, packet: &[u8]) {
        let frame = Frame::Slice(packet);
        self.stack.handle_packet(self.now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
    }

    fn udp(&mut self, from: &str, to: &str, payload: &[u8]) {
        self.give(&datagram(addr(from), addr(to), payload));
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(self.now) {
            packets.push(packet.to_vec());
            self.stack.handle_tx(self.now, ticket, Fate::Left);
        }
        packets
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.stack.poll_event()).collect()
    }

    /// The only flow that is new.
    #[track_caller]
    fn flow(&mut self) -> FlowInfo {
        let flow = self.stack.next_flow(self.filter).expect("a flow waits");
        assert_eq!(self.stack.next_flow(self.filter), None);
        flow
    }

    #[track_caller]
    fn accept(&mut self, id: FlowId) -> DatagramId {
        self.stack.accept_datagram_flow(self.now, id, None).unwrap()
    }

    /// A flow that one datagram began, accepted, and the datagram read.
    fn accepted(&mut self) -> DatagramId {
        self.udp(PEER, ELSEWHERE, b"first");
        let flow = self.flow();
        let id = self.accept(flow.id);
        assert_eq!(self.recv(id), Ok(b"first".to_vec()));
        id
    }

    fn recv(&mut self, id: DatagramId) -> Result<Vec<u8>, DatagramError> {
        let mut bytes = vec![0; 70_000];
        let received = self.stack.recv_datagram(id, &mut bytes, false)?;
        bytes.truncate(received.len);
        Ok(bytes)
    }

    fn send(&mut self, id: DatagramId, bytes: &[u8]) -> Result<(), DatagramError> {
        self.stack.send_datagram(self.now, id, None, bytes, &SendMeta::default())
    }

    /// Time passes, with every deadline handled when it is due.
    fn wait(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some((at, _)) = self.stack.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now = at.max(self.now);
            self.stack.handle_timeout(self.now);
        }
        self.now = end;
    }
}

#[test]
fn in_21_a_flow_is_seen_once_and_nothing_is_sent() {
    for (from, to) in PAIRS {
        let mut w = World::new();
        w.udp(from, to, b"one");
        w.udp(from, to, b"two");
        assert_eq!(w.events(), [Event::Incoming(w.filter)]);
        let flow = w.flow();
        assert_eq!((flow.local, flow.peer, flow.filter), (addr(to), addr(from), w.filter));
        assert_eq!((flow.kind, flow.syn, flow.state), (FlowKind::Udp, None, FlowState::Pending));
        w.wait(100);
        assert_eq!((w.sent().len(), w.events(), w.stack.datagrams().count()), (0, vec![], 0));
        assert_eq!(w.stack.flow(flow.id), Some(flow));
        // Another port of the same host is another flow.
        let other = SocketAddr::new(addr(from).ip(), 4_001);
        w.give(&datagram(other, addr(to), b"three"));
        assert_eq!((w.flow().peer, w.stack.pending_flows()), (other, 2));
        assert_eq!(w.stack.counters().datagram_flows_in, 2);
        // Nobody decides.
        w.wait(31);
        assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_expired), (1, 1));
        w.wait(100);
        assert_eq!((w.stack.pending_flows(), w.sent().len()), (0, 0));
        assert_eq!(w.stack.accept_datagram_flow(w.now, flow.id, None), Err(FlowError::Gone));
        assert!(w.stack.poll_timeout().is_none());
    }
    // A filter without UDP.
    let mut w = World::with(FlowFilter::any(), DatagramFlowOptions::default());
    w.udp(PEER, ELSEWHERE, b"one");
    assert_eq!(w.stack.next_flow(w.filter), None);
    let sent = w.sent();
    assert!(matches!(parse_icmp(&sent[0]), Icmp::DestinationUnreachable { code: Unreachable::Port, .. }));
}

#[test]
fn in_22_an_accepted_flow_is_a_connected_socket() {
    for (from, to) in PAIRS {
        for wait in [0, 30] {
            let mut w = World::new();
            for payload in [&b"one"[..], b"", b"three"] {
                w.udp(from, to, payload);
            }
            let flow = w.flow();
            w.events();
            w.wait(wait);
            let id = w.accept(flow.id);
            assert_eq!(w.events(), [Event::DatagramReadable(id)]);
            let mut bytes = [0; 10];
            let first = w.stack.recv_datagram(id, &mut bytes, false).unwrap();
            assert_eq!((first.from, first.to, first.len), (addr(from), addr(to).ip(), 3));
            assert_eq!([w.recv(id), w.recv(id)], [Ok(vec![]), Ok(b"three".to_vec())]);
            assert_eq!(w.recv(id), Err(DatagramError::WouldBlock));
            // What comes later arrives in it, and is no flow.
            w.udp(from, to, b"later");
            assert_eq!((w.events(), w.recv(id)), (vec![Event::DatagramReadable(id)], Ok(b"later".to_vec())));
            assert_eq!(w.stack.next_flow(w.filter), None);
            w.send(id, b"answer").unwrap();
            let sent = w.sent();
            assert_eq!(sent.len(), 1);
            assert_eq!(parse_udp(&sent[0]), (addr(to), addr(from), b"answer".to_vec()));
            let info = w.stack.datagram(id).unwrap();
            assert_eq!((info.local, info.peer, info.kind), (addr(to), Some(addr(from)), DatagramKind::Udp));
            assert_eq!((info.rcvbuf, w.stack.datagrams().count()), (212_992, 1));
            assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_accepted), (0, 1));
        }
    }
}

#[test]
fn in_23_a_refused_flow_gets_an_icmp_error_about_its_first_datagram() {
    // RFC 792, RFC 1812 §5.2.7.1 (13), RFC 1191 §4, RFC 4443 §3.1 to §3.3: type and code.
    let cases = [
        (Refusal::Reset, (3, 3), (1, 4)),
        (Refusal::PortUnreachable, (3, 3), (1, 4)),
        (Refusal::HostUnreachable, (3, 1), (1, 3)),
        (Refusal::NetworkUnreachable, (3, 0), (1, 0)),
        (Refusal::Prohibited, (3, 13), (1, 1)),
        (Refusal::TooBig { mtu: 1_400 }, (3, 4), (2, 0)),
        (Refusal::TimeExceeded, (11, 0), (3, 0)),
    ];
    for (how, v4, v6) in cases {
        for (from, to) in PAIRS {
            let mut w = World::new();
            let first = datagram(addr(from), addr(to), b"the first datagram");
            w.give(&first);
            w.udp(from, to, b"the second");
            let flow = w.flow();
            assert!(w.stack.refuse_flow(w.now, flow.id, how));
            assert!(!w.stack.refuse_flow(w.now, flow.id, how));
            let sent = w.sent();
            assert_eq!(sent.len(), 1);
            let header = IpHeader::parse(&sent[0]).unwrap();
            let is_v4 = header.src.is_ipv4();
            let body = &sent[0][header.header_len..];
            assert_eq!((body[0], body[1]), if is_v4 { v4 } else { v6 }, "{how:?}");
            // A host tells about its ports by itself, and a router about hosts.
            let of_port = matches!(how, Refusal::Reset | Refusal::PortUnreachable);
            let own = if is_v4 { "10.9.0.1" } else { "fd09::1" };
            assert_eq!(header.src, if of_port { addr(to).ip() } else { ip(own) });
            assert_eq!(header.dst, addr(from).ip());
            // The checksum is right.
            assert!(!matches!(parse_icmp(&sent[0]), Icmp::Other { .. }));
            let mtu = if how == (Refusal::TooBig { mtu: 1_400 }) { 1_400 } else { 0_u32 };
            assert_eq!(body[4..8], mtu.to_be_bytes(), "{how:?}");
            let counters = w.stack.counters();
            let timed_out = u64::from(how == Refusal::TimeExceeded);
            assert_eq!(
                (counters.icmp_out_time_excds, counters.icmp_out_dest_unreachs),
                (timed_out, 1 - timed_out)
            );
            assert_eq!(&body[8..], first, "the whole datagram as it arrived");
            assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_refused), (0, 1));
            // The same again is a new flow.
            w.udp(from, to, b"again");
            assert_ne!(w.flow().id, flow.id);
        }
    }
}

#[test]
fn in_24_a_dropped_flow_is_silent_for_130_s() {
    let mut w = World::new();
    w.udp(PEER, ELSEWHERE, b"one");
    let flow = w.flow();
    assert!(w.stack.drop_flow(w.now, flow.id));
    assert!(!w.stack.drop_flow(w.now, flow.id));
    for _ in 0..13 {
        w.udp(PEER, ELSEWHERE, b"more");
        assert_eq!((w.stack.next_flow(w.filter), w.sent().len()), (None, 0));
        w.wait(10);
    }
    assert_eq!((w.stack.pending_flows(), w.stack.counters().udp_in_datagrams), (0, 1), "nothing is kept");
    w.udp(PEER, ELSEWHERE, b"more");
    let again = w.flow();
    let id = w.accept(again.id);
    assert_eq!(w.recv(id), Ok(b"more".to_vec()), "nothing from before");

    // As many are remembered as may be pending, the latest ones.
    let limits = DatagramFlowOptions { max_pending: 100, ..DatagramFlowOptions::default() };
    let mut w = World::with(FlowFilter::any().kinds(ALL), limits);
    for port in 1..=300 {
        w.give(&datagram(SocketAddr::new(ip("10.9.0.2"), port), addr(ELSEWHERE), b""));
        let flow = w.flow();
        assert!(w.stack.drop_flow(w.now, flow.id));
    }
    assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_dropped), (100, 300));
    assert!(w.stack.flows().all(|flow| flow.peer.port() > 200));
}

#[test]
fn in_25_the_queue_of_an_undecided_flow_is_small() {
    let mut w = World::new();
    for n in 0..100 {
        w.udp(PEER, ELSEWHERE, &[n; 1_000]);
    }
    // Each counts 1,768 bytes, and one is taken while no more than 16,384 wait: ten.
    let counters = w.stack.counters();
    assert_eq!(
        (counters.udp_in_datagrams, counters.udp_rcvbuf_errors, counters.datagram_flows_in),
        (10, 90, 1)
    );
    let flow = w.flow();
    let id = w.accept(flow.id);
    for n in 0..10 {
        assert_eq!(w.recv(id), Ok(vec![n; 1_000]));
    }
    assert_eq!(w.recv(id), Err(DatagramError::WouldBlock));
    // And then, as in any socket, while no more than 212,992 wait: 120 and one more.
    for n in 0..200 {
        w.udp(PEER, ELSEWHERE, &[n; 1_000]);
    }
    assert_eq!(w.stack.counters().udp_in_datagrams, 10 + 212_992 / 1_768 + 1);
}

#[test]
fn in_26_a_flow_that_is_idle_for_two_minutes_is_over() {
    let mut w = World::new();
    let id = w.accepted();
    w.events();
    // Whatever is sent or received postpones it.
    w.wait(119);
    w.udp(PEER, ELSEWHERE, b"in");
    w.wait(119);
    w.send(id, b"out").unwrap();
    w.sent();
    w.events();
    w.wait(119);
    assert_eq!((w.events(), w.recv(id)), (vec![], Ok(b"in".to_vec())));
    w.wait(1);
    assert_eq!(w.events(), [Event::DatagramReadable(id), Event::DatagramWritable(id)]);
    for _ in 0..2 {
        assert_eq!(w.recv(id), Err(DatagramError::TimedOut));
        assert_eq!(w.send(id, b"late"), Err(DatagramError::TimedOut));
    }
    assert!(w.stack.is_datagram_readable(id) && w.stack.is_datagram_writable(id));
    assert_eq!(w.stack.counters().datagram_flows_idle, 1);
    // A further datagram begins another flow, and closing the old one does not touch it.
    w.udp(PEER, ELSEWHERE, b"again");
    let again = w.flow();
    w.stack.close_datagram(id);
    let next = w.accept(again.id);
    assert_eq!(w.recv(next), Ok(b"again".to_vec()));
    w.udp(PEER, ELSEWHERE, b"more");
    assert_eq!(w.recv(next), Ok(b"more".to_vec()));
    // What waits can still be read.
    w.udp(PEER, ELSEWHERE, b"unread");
    w.wait(120);
    assert_eq!([w.recv(next), w.recv(next)], [Ok(b"unread".to_vec()), Err(DatagramError::TimedOut)]);
    w.stack.close_datagram(next);
    assert!(w.stack.poll_timeout().is_none());
}

/// A source of a flood.
fn flooder(n: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x6440_0000 + (n >> 12))), 1_000 + (n & 0xfff) as u16)
}

#[test]
fn in_28_a_flood_from_one_source_keeps_nobody_out() {
    let mut w = World::new();
    let source = ip("100.64.0.1");
    for port in 1..=50_000 {
        w.give(&datagram(SocketAddr::new(source, port), addr(ELSEWHERE), b"flood"));
    }
    assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_overflows), (2_048, 47_952));
    w.udp(PEER, ELSEWHERE, b"honest");
    let mut all = std::iter::from_fn(|| w.stack.next_flow(w.filter));
    let honest = all.find(|flow| flow.peer == addr(PEER)).expect("it is seen");
    let id = w.accept(honest.id);
    assert_eq!(w.recv(id), Ok(b"honest".to_vec()));
    // TCP is counted apart.
    assert_eq!(w.stack.counters().flows_overflows, 0);
    w.wait(130);
    assert_eq!(w.stack.pending_flows(), 0);
}

#[test]
fn in_29_a_flood_from_many_sources_is_bounded() {
    let mut w = World::new();
    let mut held = 0;
    for n in 0..100_000 {
        w.give(&datagram(flooder(n), addr(ELSEWHERE), &[7; 1_400]));
        if n % 10 == 0 {
            held += usize::from(w.stack.next_flow(w.filter).is_some());
        }
    }
    assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_in), (4_096, 4_096));
    assert!(held <= 4_096);
    // With large datagrams, bytes are the limit: 32 MiB in all, and half of it for a source. Each counts
    // 60,000 + 768.
    let mut w = World::new();
    let large = |w: &mut World, n: u32| {
        let mut bytes = datagram(flooder(n << 12), addr(ELSEWHERE), &vec![7; 60_000]);
        bytes[22..24].copy_from_slice(&(5_000 + (n >> 3) as u16).to_be_bytes());
        bytes[26..28].fill(0);
        w.give(&bytes);
    };
    (0..4_000).for_each(|n| large(&mut w, n));
    let most = (32 << 20) / 60_768;
    assert_eq!((w.stack.pending_flows(), w.stack.counters().datagram_flows_in), (most, most as u64));
    // All of it comes back when the flows are forgotten.
    w.wait(130);
    assert_eq!(w.stack.pending_flows(), 0);
    (0..4_000).for_each(|n| large(&mut w, n));
    assert_eq!(w.stack.pending_flows(), most);
}

#[test]
fn in_30_accepted_flows_and_what_waits_in_them_are_bounded() {
    let limits = DatagramFlowOptions {
        max_flows: 10,
        max_flows_per_peer: 6,
        queued_bytes: 100_000,
        queued_bytes_per_peer: 50_000,
        ..DatagramFlowOptions::default()
    };
    let mut w = World::with(FlowFilter::any().kinds(ALL), limits);
    let begin = |w: &mut World, host: u8, port: u16| {
        w.give(&datagram(SocketAddr::from(([10, 9, 0, host], port)), addr(ELSEWHERE), b""));
        let flow = w.stack.next_flow(w.filter)?;
        let id = w.accept(flow.id);
        w.recv(id).unwrap();
        Some(id)
    };
    let of_one: Vec<_> = (1..20).filter_map(|port| begin(&mut w, 2, port)).collect();
    let of_other: Vec<_> = (1..20).filter_map(|port| begin(&mut w, 3, port)).collect();
    assert_eq!((of_one.len(), of_other.len()), (6, 4));
    // Datagrams of 1,000 bytes count 1,768: 28 of a source, if nobody reads them.
    for (n, host) in [2, 3].into_iter().enumerate() {
        for k in 0..100 {
            let from = SocketAddr::from(([10, 9, 0, host], 1 + k % 4));
            w.give(&datagram(from, addr(ELSEWHERE), &[0; 1_000]));
        }
        assert_eq!(w.stack.counters().udp_in_datagrams, 10 + 28 * (n as u64 + 1));
    }
    let drops: u64 = w.stack.datagrams().map(|socket| socket.drops).sum();
    assert_eq!(drops, 2 * (100 - 28));
    // Reading makes room, and so does closing.
    w.recv(of_one[0]).unwrap();
    w.udp("10.9.0.2:1", ELSEWHERE, &[0; 1_000]);
    w.udp("10.9.0.2:1", ELSEWHERE, &[0; 1_000]);
    assert_eq!(w.stack.counters().udp_in_datagrams, 10 + 56 + 1);
    w.stack.close_datagram(of_one[0]);
    let next = begin(&mut w, 2, 19).expect("there is room for a flow");
    w.udp("10.9.0.2:19", ELSEWHERE, &[1; 1_000]);
    assert_eq!(w.recv(next), Ok(vec![1; 1_000]));
    of_one[1..].iter().chain(&of_other).chain([&next]).for_each(|id| w.stack.close_datagram(*id));
    assert_eq!((w.stack.datagrams().count(), w.stack.poll_timeout()), (0, None));
}

#[test]
fn in_31_what_the_owner_gave_up_begins_another_flow() {
    let mut w = World::new();
    let id = w.accepted();
    w.stack.close_datagram(id);
    assert_eq!(w.stack.poll_timeout(), None);
    w.udp(PEER, ELSEWHERE, b"again");
    let flow = w.flow();
    let next = w.accept(flow.id);
    assert_ne!(next, id);
    assert_eq!(w.recv(id), Err(DatagramError::Closed));
    assert_eq!(w.recv(next), Ok(b"again".to_vec()));
}

#[test]
fn in_32_an_owner_may_tell_of_an_error_later() {
    for (from, to) in PAIRS {
        let mut w = World::new();
        w.udp(from, to, b"first");
        let flow = w.flow();
        let id = w.accept(flow.id);
        let latest = datagram(addr(from), addr(to), b"the latest one");
        w.give(&latest);
        assert_eq!(w.stack.refuse_datagrams(w.now, id, Refusal::PortUnreachable), Ok(true));
        let sent = w.sent();
        let header = IpHeader::parse(&sent[0]).unwrap();
        assert_eq!((header.src, header.dst), (addr(to).ip(), addr(from).ip()));
        let (Icmp::DestinationUnreachable { code, .. }, 1) = (parse_icmp(&sent[0]), sent.len()) else {
            panic!("{sent:?}")
        };
        assert_eq!(code, Unreachable::Port);
        // RFC 792: the header and 64 bits.
        let quoted = &sent[0][header.header_len + 8..];
        assert_eq!(quoted, &latest[..header.header_len + 8]);
        // The flow goes on.
        w.udp(from, to, b"more");
        assert_eq!(std::iter::from_fn(|| w.recv(id).ok()).count(), 3);
        // RFC 4443 §2.4(f): no more than 50 at once, and 1,000 a second, even if the owner wants to.
        let refuse =
            |w: &mut World| w.stack.refuse_datagrams(w.now, id, Refusal::HostUnreachable) == Ok(true);
        assert_eq!((0..1_000).filter(|_| refuse(&mut w)).count(), 49);
        w.now += Duration::from_millis(10);
        assert_eq!((0..1_000).filter(|_| refuse(&mut w)).count(), 10);
    }
    let mut w = World::new();
    let own = w.stack.open_datagram(DatagramKind::Udp, addr("10.9.0.1:9"), &DatagramOptions::default());
    let refused = w.stack.refuse_datagrams(w.now, own.unwrap(), Refusal::PortUnreachable);
    assert_eq!(refused, Err(DatagramError::Invalid));
}

#[test]
fn in_33_who_takes_a_datagram() {
    let lab = FlowFilter::any().prefix(IpPrefix::new(ip("203.0.113.0"), 24).unwrap()).ports(53..=53);
    let mut w = World::with(lab.kinds([FlowKind::Udp]), DatagramFlowOptions::default());
    let of_tcp = FlowFilter::any().prefix(IpPrefix::new(ip("203.0.113.0"), 24).unwrap());
    let tcp = w.stack.incoming(of_tcp, IncomingOptions::default()).unwrap();
    let all = FlowFilter::any().prefix(IpPrefix::new(ip("10.0.0.0"), 8).unwrap()).kinds([FlowKind::Udp]);
    let own = w.stack.incoming(all, IncomingOptions::default()).unwrap();
    let open = |w: &mut World, at: &str| {
        w.stack.open_datagram(DatagramKind::Udp, addr(at), &DatagramOptions::default()).unwrap()
    };
    let (any, exact) = (open(&mut w, "0.0.0.0:53"), open(&mut w, "10.9.0.1:54"));
    for (to, socket, filter) in [
        // A socket at every address is one at every address of ours.
        ("10.9.0.1:53", Some(any), None),
        ("203.0.113.7:53", None, Some(w.filter)),
        ("10.9.0.1:54", Some(exact), None),
        // An own address is in a filter, too.
        ("10.9.0.1:55", None, Some(own)),
        ("10.9.0.77:53", None, Some(own)),
    ] {
        w.udp(PEER, to, to.as_bytes());
        let flows = [w.filter, tcp, own].map(|filter| w.stack.next_flow(filter).map(|flow| flow.filter));
        assert_eq!(flows.into_iter().flatten().next(), filter, "{to}");
        if let Some(socket) = socket {
            assert_eq!(w.recv(socket), Ok(to.as_bytes().to_vec()));
        }
        assert_eq!(w.sent().len(), 0);
    }
    assert_eq!(w.recv(any), Err(DatagramError::WouldBlock));
    // A filter has the address, and none the port: there is no such port. No filter has the address: it is
    // not for us.
    w.udp(PEER, "203.0.113.7:54", b"");
    let sent = w.sent();
    assert!(matches!(parse_icmp(&sent[0]), Icmp::DestinationUnreachable { code: Unreachable::Port, .. }));
    let discards = w.stack.counters().in_discards;
    w.udp(PEER, "198.51.100.1:53", b"");
    assert_eq!((w.sent().len(), w.stack.counters().in_discards), (0, discards + 1));
}

#[test]
fn in_34_martians_begin_no_flow() {
    let mut w = World::new();
    for (from, to) in [
        ("0.1.2.3:5", ELSEWHERE),
        ("127.0.0.1:5", ELSEWHERE),
        ("224.0.0.1:5", ELSEWHERE),
        ("255.255.255.255:5", ELSEWHERE),
        ("10.9.0.1:5", ELSEWHERE),
        ("203.0.113.7:5", ELSEWHERE),
        ("10.9.0.2:0", ELSEWHERE),
        (PEER, "203.0.113.7:0"),
        (PEER, "0.1.2.3:53"),
        (PEER, "127.0.0.1:53"),
        (PEER, "224.0.0.251:53"),
        (PEER, "255.255.255.255:53"),
        ("[::1]:5", PAIRS[1].1),
        ("[::]:5", PAIRS[1].1),
        ("[ff02::1]:5", PAIRS[1].1),
        ("[fd09::1]:5", PAIRS[1].1),
        (PAIRS[1].0, "[ff02::fb]:53"),
        (PAIRS[1].0, "[::1]:53"),
    ] {
        w.udp(from, to, b"martian");
        let (from, to) = (addr(from).ip(), addr(to).ip());
        if !from.is_ipv4() || from != ip("10.9.0.2") {
            w.give(&ping(from, to, 7, 1, b""));
        }
        assert_eq!((w.stack.next_flow(w.filter), w.sent().len()), (None, 0), "{from} {to}");
    }
    let mut broken = datagram(addr(PEER), addr(ELSEWHERE), b"broken");
    *broken.last_mut().unwrap() ^= 1;
    w.give(&broken);
    assert_eq!((w.stack.next_flow(w.filter), w.stack.counters().udp_in_csum_errors), (None, 1));
}

#[test]
fn in_35_pings_are_flows_if_the_filter_says_so() {
    for (from, to) in PAIRS {
        let (from, to) = (addr(from).ip(), addr(to).ip());
        let mut w = World::new();
        w.give(&ping(from, to, 77, 1, b"data one"));
        w.give(&ping(from, to, 77, 2, b"data two"));
        let flow = w.flow();
        assert_eq!(
            (flow.kind, flow.local, flow.peer),
            (FlowKind::Echo, SocketAddr::new(to, 77), SocketAddr::new(from, 0))
        );
        assert_eq!(w.sent().len(), 0);
        let id = w.accept(flow.id);
        let request = w.recv(id).unwrap();
        assert_eq!((&request[4..8], &request[8..]), (&[0, 77, 0, 1][..], &b"data one"[..]));
        // It is sent back as a reply; nothing else is.
        w.send(id, &request).unwrap();
        let sent = w.sent();
        let header = IpHeader::parse(&sent[0]).unwrap();
        assert_eq!((header.src, header.dst, sent.len()), (to, from, 1));
        let Icmp::EchoReply { ident, seq, .. } = parse_icmp(&sent[0]) else { panic!("{sent:?}") };
        assert_eq!((ident, seq, &sent[0][header.header_len + 8..]), (77, 1, &b"data one"[..]));
        assert_eq!(w.send(id, &[3, 3, 0, 0, 0, 0, 0, 0]), Err(DatagramError::Invalid));
        assert_eq!(w.send(id, &[0; 7]), Err(DatagramError::Invalid));
        // Another program's pings are another flow, which may be refused.
        w.give(&ping(from, to, 78, 1, b""));
        let other = w.flow();
        assert!(w.stack.refuse_flow(w.now, other.id, Refusal::HostUnreachable));
        let sent = w.sent();
        assert!(matches!(parse_icmp(&sent[0]), Icmp::DestinationUnreachable { code: Unreachable::Host, .. }));
        // Our own addresses answer for themselves.
        let own = ip(if from.is_ipv4() { "10.9.0.1" } else { "fd09::1" });
        w.give(&ping(from, own, 79, 1, b""));
        assert_eq!(w.stack.next_flow(w.filter), None);
        assert!(matches!(parse_icmp(&w.sent()[0]), Icmp::EchoReply { ident: 79, .. }));
        let kinds = [FlowKind::Tcp, FlowKind::Udp];
        let mut w = World::with(FlowFilter::any().kinds(kinds), DatagramFlowOptions::default());
        w.give(&ping(from, to, 77, 1, b""));
        assert_eq!((w.stack.next_flow(w.filter), w.sent().len()), (None, 0));
    }
}

#[test]
fn in_36_a_filter_is_closed() {
    let mut w = World::new();
    let id = w.accepted();
    for port in [5_000, 5_001, 5_002] {
        w.give(&datagram(SocketAddr::new(ip("10.9.0.2"), port), addr(ELSEWHERE), b""));
    }
    let pending = w.stack.next_flow(w.filter).unwrap();
    let dropped = w.stack.next_flow(w.filter).unwrap();
    assert!(w.stack.drop_flow(w.now, dropped.id));
    w.stack.close_listener(w.now, w.filter);
    assert_eq!(w.stack.pending_flows(), 0);
    assert_eq!(w.stack.accept_datagram_flow(w.now, pending.id, None), Err(FlowError::Gone));
    // Their datagrams find nobody; the accepted flow goes on.
    let discards = w.stack.counters().in_discards;
    w.give(&datagram(pending.peer, pending.local, b""));
    assert_eq!((w.sent().len(), w.stack.counters().in_discards), (0, discards + 1));
    w.udp(PEER, ELSEWHERE, b"more");
    assert_eq!(w.recv(id), Ok(b"more".to_vec()));
    w.send(id, b"answer").unwrap();
    assert_eq!(w.sent().len(), 1);
    w.wait(120);
    assert_eq!(w.recv(id), Err(DatagramError::TimedOut));
    w.stack.close_datagram(id);
    assert_eq!((w.stack.datagrams().count(), w.stack.poll_timeout()), (0, None));
}

#[test]
fn in_37_the_peer_of_a_flow_says_that_its_port_is_closed() {
    for (from, to) in PAIRS {
        let mut w = World::new();
        w.udp(from, to, b"first");
        let flow = w.flow();
        // Nothing was sent yet, so such an error is forged.
        let answer = datagram(addr(to), addr(from), b"answer");
        let about = |code| {
            let mut message = vec![0; 1_300];
            let (src, dst) = (addr(from).ip(), addr(to).ip());
            let len = icmp::emit_unreachable(&mut message, src, dst, code, &answer);
            packet(src, dst, if src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }, &message[..len])
        };
        w.events();
        w.give(&about(Unreachable::Port));
        assert_eq!(w.events(), []);
        let id = w.accept(flow.id);
        assert_eq!(w.recv(id), Ok(b"first".to_vec()));
        w.send(id, b"answer").unwrap();
        w.sent();
        w.events();
        w.give(&about(Unreachable::Port));
        assert_eq!(w.events(), [Event::DatagramReadable(id), Event::DatagramWritable(id)]);
        assert_eq!(w.recv(id), Err(DatagramError::Refused));
        assert_eq!(w.recv(id), Err(DatagramError::WouldBlock));
    }
}

#[test]
fn in_38_a_flows_socket_has_one_peer_and_one_source() {
    let mut w = World::new();
    let id = w.accepted();
    let to = |w: &mut World, to: &str, src: Option<&str>| {
        let meta = SendMeta { src: src.map(ip), ..SendMeta::default() };
        w.stack.send_datagram(w.now, id, Some(addr(to)), b"x", &meta)
    };
    assert_eq!(to(&mut w, PEER, None), Ok(()));
    assert_eq!(to(&mut w, PEER, Some("203.0.113.7")), Ok(()));
    assert_eq!(to(&mut w, PEER, Some("10.9.0.1")), Err(DatagramError::AddrNotAvailable));
    assert_eq!(to(&mut w, "10.9.0.2:4001", None), Err(DatagramError::InvalidPeer));
    assert_eq!(w.stack.connect_datagram(id, None), Err(DatagramError::Invalid));
    assert_eq!(w.sent().len(), 2);
    // Our own sockets are free to take the port that a stranger's address has.
    for at in ["0.0.0.0:53", "10.9.0.1:4000"] {
        w.stack.open_datagram(DatagramKind::Udp, addr(at), &DatagramOptions::default()).unwrap();
    }
    let echo = w.stack.open_datagram(DatagramKind::Echo, addr("10.9.0.1:9"), &DatagramOptions::default());
    assert!(echo.is_err(), "only a filter makes them");
    // A flow of one kind is not accepted as another, and stays.
    w.udp("10.9.0.2:4002", ELSEWHERE, b"");
    let flow = w.flow();
    assert_eq!(w.stack.accept_flow(w.now, flow.id, None), Err(FlowError::OtherKind));
    let options =
        DatagramOptions { tos: 0xb8, ttl: Some(9), rcvbuf: Some(5_000), ..DatagramOptions::default() };
    let id = w.stack.accept_datagram_flow(w.now, flow.id, Some(&options)).unwrap();
    assert_eq!(w.stack.datagram(id).unwrap().rcvbuf, 10_000);
    w.send(id, b"x").unwrap();
    assert_eq!(raw::class_and_hops(&w.sent()[0]), (0xb8, 9));
}

/// A gateway begins a flow towards its guest, for a host beyond.
#[test]
fn gw_141_a_flow_begins_from_another_address_as_if_its_peer_had_sent_there() {
    for ((from, to), third) in PAIRS.into_iter().zip(["198.51.100.9:99", "[2001:db8:9::9]:99"]) {
        let limits = DatagramFlowOptions { max_flows: 2, ..DatagramFlowOptions::default() };
        let mut w = World::with(FlowFilter::any().kinds(ALL), limits);
        w.udp(from, to, b"first");
        let flow = w.flow();
        let id = w.accept(flow.id);
        let begin = |w: &mut World, local: &str| w.stack.begin_flow_from(w.now, id, addr(local));
        // One that is there; one of the other family; no port; no host's address.
        let other = if addr(from).is_ipv4() { "[2001:db8::1]:9" } else { "198.51.100.9:9" };
        let nowhere = if addr(from).is_ipv4() { "224.0.0.1:9" } else { "[ff02::1]:9" };
        let no_port = SocketAddr::new(addr(third).ip(), 0).to_string();
        for local in [to, other, nowhere, &no_port] {
            assert_eq!(begin(&mut w, local), Err(FlowError::NoRoom), "{local}");
        }
        let begun = begin(&mut w, third).unwrap();
        w.send(begun, b"hello").unwrap();
        let sent: Vec<_> = w.sent().iter().map(|packet| parse_udp(packet)).collect();
        assert_eq!(sent, [(addr(third), addr(from), b"hello".to_vec())]);
        // Its answer is of this flow, and is none to be decided.
        w.events();
        w.udp(from, third, b"back");
        assert_eq!((w.events(), w.recv(begun)), (vec![Event::DatagramReadable(begun)], Ok(b"back".to_vec())));
        assert_eq!((w.stack.next_flow(w.filter), w.stack.datagrams().count()), (None, 2));
        // There is room for two; a closed one makes room.
        let fourth = SocketAddr::new(addr(third).ip(), 100).to_string();
        assert_eq!(begin(&mut w, &fourth), Err(FlowError::NoRoom));
        w.stack.close_datagram(begun);
        let last = begin(&mut w, &fourth).unwrap();
        // It is idle for too long as any other.
        w.wait(120);
        assert_eq!(w.recv(last), Err(DatagramError::TimedOut));
        [id, last].into_iter().for_each(|id| w.stack.close_datagram(id));
        assert_eq!(begin(&mut w, third), Err(FlowError::Gone));
        assert_eq!((w.stack.datagrams().count(), w.stack.poll_timeout()), (0, None));
    }
    let mut w = World::new();
    let bound = w.stack.open_datagram(DatagramKind::Udp, addr("10.9.0.1:9"), &DatagramOptions::default());
    let begun = w.stack.begin_flow_from(w.now, bound.unwrap(), addr(ELSEWHERE));
    assert_eq!(begun, Err(FlowError::OtherKind));
}
