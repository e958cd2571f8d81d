//! Addresses, routes and the MTU, changed while a stack runs, and senders that cannot be: docs/spec/ip.md. A
//! stack at 10.9.0.1/24 and fd09::1/64 and its peer at .2 and ::2, over links without delay; or one stack
//! alone, and packets written by hand.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use taut_core::{
    ConnError, ConnId, ConnOptions, ConnectError, DatagramError, DatagramKind, DatagramOptions, Duration,
    Event, Fate, Frame, Instant, LinkCaps, ListenOptions, ListenerId, Network, NetworkChange, NetworkError,
    Route, RxChecksum, RxPacket, SendMeta, Stack, StackConfig, Transmit,
};
use taut_wire::{Icmp, IpHeader, TcpHeader, UdpHeader, icmp, protocol, tcp, udp};

const NOW: Instant = Instant::from_nanos(5_000_000_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn network(text: &str) -> Network {
    let (address, prefix) = text.split_once('/').unwrap();
    Network { address: ip(address), prefix: prefix.parse().unwrap() }
}

fn route(to: &str, via: Option<&str>) -> Route {
    Route { to: network(to), via: via.map(ip), source: None }
}

fn stack_with(addresses: &[&str]) -> Stack {
    let mut stack =
        Stack::new(Arc::new(StackConfig::default()), LinkCaps::plain(1_500), [addresses.len() as u8; 32]);
    for own in addresses {
        stack.change_network(NOW, NetworkChange::AddAddress(network(own))).unwrap();
    }
    stack
}

fn stack(host: u8) -> Stack {
    stack_with(&[&format!("10.9.0.{host}/24"), &format!("fd09::{host}/64")])
}

fn change(stack: &mut Stack, change: NetworkChange) {
    stack.change_network(NOW, change).unwrap();
}

fn packets(stack: &mut Stack, now: Instant) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) {
        packets.push(packet.to_vec());
        stack.handle_tx(now, ticket, Fate::Left);
    }
    packets
}

fn give(stack: &mut Stack, now: Instant, packet: &[u8]) {
    let frame = Frame::Slice(packet);
    stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
}

/// Carries packets both ways until both stacks are silent. Returns the longest that `a` sent.
fn run(now: Instant, a: &mut Stack, b: &mut Stack) -> usize {
    let mut longest = 0;
    loop {
        let (from_a, from_b) = (packets(a, now), packets(b, now));
        if from_a.is_empty() && from_b.is_empty() {
            return longest;
        }
        longest = from_a.iter().map(Vec::len).chain([longest]).max().unwrap_or(0);
        from_a.iter().for_each(|packet| give(b, now, packet));
        from_b.iter().for_each(|packet| give(a, now, packet));
    }
}

/// An open connection from `a` to `b`'s listener.
fn open(a: &mut Stack, b: &mut Stack, to: &str) -> (ConnId, ConnId, ListenerId) {
    let listener = b.listen(addr(to), ListenOptions::default()).unwrap();
    let near = a.connect(NOW, addr(to), &ConnOptions::default()).unwrap();
    run(NOW, a, b);
    let (far, _) = b.accept(listener).unwrap();
    (near, far, listener)
}

fn events(stack: &mut Stack) -> Vec<Event> {
    std::iter::from_fn(|| stack.poll_event()).collect()
}

fn packet(src: &str, dst: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (ip(src), ip(dst));
    let header_len = if src.is_ipv4() { 20 } else { 40 };
    let header = IpHeader {
        src,
        dst,
        protocol,
        hop_limit: 64,
        ecn: taut_wire::Ecn::NotEct,
        header_len,
        payload_len: payload.len(),
    };
    let mut bytes = vec![0; header_len];
    header.emit(&mut bytes, 0);
    bytes.extend_from_slice(payload);
    bytes
}

fn ping(src: &str, dst: &str) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0, 7, 0, 1];
    assert!(icmp::finish_echo_request(&mut message, ip(src), ip(dst), 7) || ip(src).is_ipv6());
    if ip(src).is_ipv6() {
        message[0] = 128;
        assert!(icmp::finish_echo_request(&mut message, ip(src), ip(dst), 7));
    }
    packet(src, dst, if ip(src).is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 }, &message)
}

fn datagram(src: &str, dst: &str) -> Vec<u8> {
    let header = UdpHeader { src_port: 1_000, dst_port: 9, len: 12 };
    let mut bytes = [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    header.emit(&mut bytes);
    let sum = udp::full_checksum(ip(src), ip(dst), &bytes, &[]);
    udp::set_checksum(&mut bytes, sum);
    packet(src, dst, protocol::UDP, &bytes)
}

fn syn(src: &str, dst: &str) -> Vec<u8> {
    let header = TcpHeader {
        src_port: 1_000,
        dst_port: 7,
        seq: 1,
        ack: 0,
        flags: tcp::Flags::SYN,
        window: 1_000,
        urgent: 0,
        options: taut_wire::TcpOptions::default(),
    };
    let mut bytes = vec![0; 60];
    let len = header.emit(&mut bytes);
    bytes.truncate(len);
    let sum = tcp::full_checksum(ip(src), ip(dst), &bytes, &[]);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    packet(src, dst, protocol::TCP, &bytes)
}

/// Whether a ping from the peer is answered.
fn answers(stack: &mut Stack, src: &str, dst: &str) -> bool {
    give(stack, NOW, &ping(src, dst));
    let sent = packets(stack, NOW);
    let is_reply = |packet: &Vec<u8>| {
        let header = IpHeader::parse(packet).unwrap();
        let message = &packet[header.header_len..];
        let parsed = match (header.src, header.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Icmp::parse_v6(src, dst, message),
            _ => Icmp::parse_v4(message),
        };
        matches!(parsed, Ok(Icmp::EchoReply { .. })) && (header.src, header.dst) == (ip(dst), ip(src))
    };
    sent.iter().any(is_reply)
}

#[test]
fn addr_03_an_address_that_was_added_is_the_stacks_own() {
    for (own, other, peer) in [("10.9.0.1/24", "10.9.0.9", "10.9.0.2"), ("fd09::1/64", "fd09::9", "fd09::2")]
    {
        let mut stack = stack_with(&[own]);
        let at = SocketAddr::new(ip(other), 7);
        assert!(!answers(&mut stack, peer, other));
        assert!(stack.listen(at, ListenOptions::default()).is_err());
        let prefix = own.split_once('/').unwrap().1;
        let added = network(&format!("{other}/{prefix}"));
        change(&mut stack, NetworkChange::AddAddress(added));
        assert!(answers(&mut stack, peer, other));
        stack.listen(at, ListenOptions::default()).unwrap();
        give(&mut stack, NOW, &syn(peer, other));
        assert_eq!(packets(&mut stack, NOW).len(), 1, "a SYN-ACK");
        assert_eq!(stack.networks().collect::<Vec<_>>(), [network(own), added]);
        // Once more: the prefix is another, and it is there once.
        change(&mut stack, NetworkChange::AddAddress(Network::host(ip(other))));
        assert_eq!(stack.networks().nth(1), Some(Network::host(ip(other))));
        assert_eq!(stack.config().addresses, [network(own).address, ip(other)]);
    }
}

#[test]
fn addr_04_connections_of_a_removed_address_end_without_a_word() {
    let (mut a, mut b) = (stack(1), stack(2));
    let (mine, far, listener) = open(&mut a, &mut b, "10.9.0.2:7");
    let (other, _, _) = open(&mut a, &mut b, "[fd09::2]:7");
    b.conn_mut(far).unwrap().write(NOW, &[7; 100]).unwrap();
    run(NOW, &mut a, &mut b);
    // One is half-open at each, and one is not answered yet.
    let early = a.connect(NOW, addr("10.9.0.2:8"), &ConnOptions::default()).unwrap();
    a.listen(addr("10.9.0.1:7"), ListenOptions::default()).unwrap();
    give(&mut a, NOW, &syn("10.9.0.2", "10.9.0.1"));
    _ = packets(&mut a, NOW);
    events(&mut a);
    let before = a.connections();
    change(&mut a, NetworkChange::RemoveAddress(ip("10.9.0.1")));
    let removed = ConnError::AddressRemoved;
    assert_eq!(events(&mut a), [Event::Failed(mine, removed), Event::Failed(early, removed)]);
    assert_eq!(a.connections(), before - 1, "the half-open one is forgotten, the others are still held");
    assert_eq!(
        packets(&mut a, NOW + Duration::from_secs(300)),
        Vec::<Vec<u8>>::new(),
        "no RST, no retransmission"
    );
    // What was received stays readable, then comes the error.
    let mut bytes = [0; 200];
    assert_eq!(a.conn_mut(mine).unwrap().read(NOW, &mut bytes), Ok(100));
    assert_eq!(a.conn_mut(mine).unwrap().read(NOW, &mut bytes), Err(removed.into()));
    assert!(!answers(&mut a, "10.9.0.2", "10.9.0.1"));
    // A connection of another address goes on.
    assert_eq!(a.conn_mut(other).unwrap().write(NOW, b"on").map(|_| ()), Ok(()));
    run(NOW, &mut a, &mut b);
    assert_eq!(
        a.connect(NOW, addr("10.9.0.2:7"), &ConnOptions::default()),
        Err(ConnectError::AddrNotAvailable)
    );
    assert_eq!(
        a.change_network(NOW, NetworkChange::RemoveAddress(ip("10.9.0.1"))),
        Err(NetworkError::NotFound)
    );
    // The listener has stayed, and has its address back.
    change(&mut b, NetworkChange::RemoveAddress(ip("10.9.0.2")));
    change(&mut b, NetworkChange::AddAddress(network("10.9.0.2/24")));
    change(&mut a, NetworkChange::AddAddress(network("10.9.0.1/24")));
    a.connect(NOW, addr("10.9.0.2:7"), &ConnOptions::default()).unwrap();
    run(NOW, &mut a, &mut b);
    assert!(b.accept(listener).is_some());
}

/// RFC 1122 §3.2.1.3, RFC 1812 §5.3.7, RFC 4291 §2.5.3 and §2.7.
#[test]
fn addr_07_martians_get_no_answer() {
    let mut stack = stack_with(&["10.9.0.1/24", "10.9.0.9/24", "fd09::1/64", "fd09::9/64"]);
    stack.listen(addr("10.9.0.1:7"), ListenOptions::default()).unwrap();
    stack.listen(addr("[fd09::1]:7"), ListenOptions::default()).unwrap();
    let mut count = 0;
    for (dst, sources) in [
        ("10.9.0.1", &["10.9.0.9", "127.0.0.1", "0.0.0.1", "224.0.0.1", "255.255.255.255", "10.9.0.255"][..]),
        ("fd09::1", &["fd09::9", "::1", "ff02::1", "::", "::ffff:10.9.0.2"]),
    ] {
        for src in sources {
            for packet in [ping(src, dst), datagram(src, dst), syn(src, dst)] {
                let before = *stack.counters();
                give(&mut stack, NOW, &packet);
                assert_eq!(packets(&mut stack, NOW), Vec::<Vec<u8>>::new(), "from {src}");
                let after = stack.counters();
                let dropped = after.in_martians + after.in_loopback + after.in_discards
                    - before.in_martians
                    - before.in_loopback
                    - before.in_discards;
                assert_eq!(dropped, 1, "from {src}");
                count += 1;
            }
        }
        // From a neighbour, each of them is answered.
        let src = if ip(dst).is_ipv4() { "10.9.0.2" } else { "fd09::2" };
        for packet in [ping(src, dst), datagram(src, dst), syn(src, dst)] {
            give(&mut stack, NOW, &packet);
            assert_eq!(packets(&mut stack, NOW).len(), 1, "from {src}");
        }
    }
    assert_eq!((count, stack.connections()), (33, 2));
}

#[test]
fn addr_02_nobody_connects_to_a_broadcast_address() {
    let mut stack = stack(1);
    for to in ["10.9.0.255:7", "255.255.255.255:7"] {
        assert_eq!(stack.connect(NOW, addr(to), &ConnOptions::default()), Err(ConnectError::InvalidPeer));
    }
    stack.connect(NOW, addr("10.9.1.255:7"), &ConnOptions::default()).unwrap();
}

/// 40 and 60 bytes of headers, and 12 of timestamps, which are in the segments' payload here.
#[test]
fn addr_08_segments_and_datagrams_follow_the_mtu() {
    let (mut a, mut b) = (stack(1), stack(2));
    let (conn, far, _) = open(&mut a, &mut b, "10.9.0.2:7");
    let udp = a.open_datagram(DatagramKind::Udp, addr("10.9.0.1:1000"), &DatagramOptions::default()).unwrap();
    let mut buffer = vec![0; 40_000];
    let mut longest = |a: &mut Stack, b: &mut Stack| {
        a.conn_mut(conn).unwrap().write(NOW, &[7; 5_000]).unwrap();
        let longest = run(NOW, a, b);
        assert_eq!(b.conn_mut(far).unwrap().read(NOW, &mut buffer), Ok(5_000));
        run(NOW, a, b);
        longest
    };
    let send = |a: &mut Stack, len: usize| {
        a.send_datagram(NOW, udp, Some(addr("10.9.0.2:9")), &vec![1; len], &SendMeta::default()).unwrap();
        packets(a, NOW).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(longest(&mut a, &mut b), 1_500);
    change(&mut a, NetworkChange::SetMtu(1_300));
    assert_eq!((a.caps().mtu, longest(&mut a, &mut b)), (1_300, 1_300));
    assert_eq!(send(&mut a, 1_272), [1_300]);
    assert_eq!(send(&mut a, 1_273), [1_300, 21], "fragments");
    let cwnd = |a: &mut Stack| a.conn_mut(conn).unwrap().as_ref().info(NOW).snd_cwnd;
    let (before, mss) = (cwnd(&mut a), |mtu: u32| mtu - 40);
    change(&mut a, NetworkChange::SetMtu(1_500));
    assert_eq!(cwnd(&mut a), before * mss(1_300) / mss(1_500), "as many bytes, of larger segments");
    assert_eq!(longest(&mut a, &mut b), 1_500, "as agreed");
    let before = cwnd(&mut a);
    change(&mut a, NetworkChange::SetMtu(9_000));
    assert_eq!(cwnd(&mut a), before);
    assert_eq!(longest(&mut a, &mut b), 1_500, "never more than was agreed");
    let error = a.change_network(NOW, NetworkChange::SetMtu(1_279));
    assert_eq!((error, a.caps().mtu), (Err(NetworkError::InvalidMtu), 9_000));
    change(&mut a, NetworkChange::RemoveAddress(ip("fd09::1")));
    change(&mut a, NetworkChange::SetMtu(576));
    assert_eq!(longest(&mut a, &mut b), 576);
    assert_eq!(a.change_network(NOW, NetworkChange::SetMtu(67)), Err(NetworkError::InvalidMtu));
    assert_eq!(
        a.change_network(NOW, NetworkChange::AddAddress(network("fd09::1/64"))),
        Err(NetworkError::InvalidMtu),
        "no IPv6 below 1280"
    );
}

#[test]
fn addr_08_a_handshake_that_has_begun_follows_the_mtu() {
    let (mut a, mut b) = (stack(1), stack(2));
    let listener = b.listen(addr("10.9.0.2:7"), ListenOptions::default()).unwrap();
    let conn = a.connect(NOW, addr("10.9.0.2:7"), &ConnOptions::default()).unwrap();
    let syn = packets(&mut a, NOW);
    change(&mut a, NetworkChange::SetMtu(1_400));
    syn.iter().for_each(|packet| give(&mut b, NOW, packet));
    run(NOW, &mut a, &mut b);
    assert!(b.accept(listener).is_some());
    a.conn_mut(conn).unwrap().write(NOW, &[7; 5_000]).unwrap();
    assert_eq!(run(NOW, &mut a, &mut b), 1_400);
}

#[test]
fn route_05_without_a_route_there_is_no_connection() {
    let mut stack = stack(1);
    let connect =
        |stack: &mut Stack, to: &str| stack.connect(NOW, addr(to), &ConnOptions::default()).map(|_| ());
    assert_eq!(connect(&mut stack, "192.0.2.1:7"), Ok(()), "no routes: the link leads everywhere");
    let near = route("10.9.0.0/24", None);
    change(&mut stack, NetworkChange::AddRoute(near));
    assert_eq!(connect(&mut stack, "10.9.0.7:7"), Ok(()));
    assert_eq!(connect(&mut stack, "192.0.2.1:7"), Err(ConnectError::NetworkUnreachable));
    assert_eq!(connect(&mut stack, "[2001:db8::1]:7"), Ok(()), "another family");
    let udp = stack.open_datagram(DatagramKind::Udp, addr("0.0.0.0:0"), &DatagramOptions::default()).unwrap();
    let sent = stack.send_datagram(NOW, udp, Some(addr("192.0.2.1:7")), b"x", &SendMeta::default());
    assert_eq!(sent, Err(DatagramError::NetworkUnreachable));
    change(&mut stack, NetworkChange::AddRoute(route("0.0.0.0/0", Some("10.9.0.254"))));
    assert_eq!(connect(&mut stack, "192.0.2.1:7"), Ok(()));
    assert_eq!(stack.routes().next(), Some(&near), "longer prefixes first");
    change(&mut stack, NetworkChange::RemoveRoute(near));
    change(&mut stack, NetworkChange::RemoveRoute(route("0.0.0.0/0", Some("10.9.0.254"))));
    assert_eq!(connect(&mut stack, "192.0.2.1:7"), Ok(()));
}

#[test]
fn route_06_a_route_names_the_source() {
    let mut stack = stack_with(&["10.9.0.1/24", "10.8.0.1/24"]);
    let source = |stack: &mut Stack, to: &str| {
        stack.connect(NOW, addr(to), &ConnOptions::default()).unwrap();
        IpHeader::parse(&packets(stack, NOW)[0]).unwrap().src
    };
    assert_eq!(source(&mut stack, "192.0.2.1:7"), ip("10.9.0.1"), "the first");
    let default = route("0.0.0.0/0", Some("10.8.0.254"));
    change(&mut stack, NetworkChange::AddRoute(default));
    assert_eq!(source(&mut stack, "192.0.2.1:8"), ip("10.8.0.1"), "of the router's network");
    change(&mut stack, NetworkChange::AddRoute(Route { source: Some(ip("10.9.0.1")), ..default }));
    assert_eq!(source(&mut stack, "192.0.2.1:9"), ip("10.9.0.1"), "named");
    assert_eq!(stack.routes().count(), 1, "replaced");
    change(&mut stack, NetworkChange::RemoveAddress(ip("10.9.0.1")));
    assert_eq!(source(&mut stack, "192.0.2.1:10"), ip("10.8.0.1"), "if it is there");
}
