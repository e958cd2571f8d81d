//! UDP, ping and fragments, statement by statement: docs/spec/ip.md. A stack at 10.9.0.1 and fd09::1 and its
//! peer at .2 and ::2, over links without delay; or one stack alone, and packets written by hand.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use taut_core::{
    ConnOptions, DatagramError, DatagramId, DatagramKind, DatagramOption, DatagramOptions, Duration, Event,
    Fate, Frame, Instant, LinkCaps, ListenError, MtuDiscovery, Offload, Received, RxChecksum, RxPacket,
    SendMeta, Stack, StackConfig, Transmit,
};
use taut_wire::icmp::Trouble;
use taut_wire::{Fragment, Icmp, IpHeader, UdpHeader, Unreachable, icmp, protocol, raw, udp};

const NOW: Instant = Instant::from_nanos(5_000_000_000);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn stack(host: u8, caps: LinkCaps) -> Stack {
    let config = StackConfig::default().with(|config| {
        config.addresses.push(IpAddr::from([10, 9, 0, host]));
        config.addresses.push(ip(&format!("fd09::{host}")));
    });
    Stack::new(Arc::new(config), caps, [host; 32])
}

fn plain(host: u8) -> Stack {
    stack(host, LinkCaps::plain(1_500))
}

/// Everything that a stack sends now, with the offload of each packet.
fn drain(stack: &mut Stack, now: Instant) -> Vec<(Vec<u8>, Offload)> {
    let mut packets = Vec::new();
    while let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) {
        packets.push((packet.to_vec(), packet.offload));
        stack.handle_tx(now, ticket, Fate::Left);
    }
    packets
}

fn packets(stack: &mut Stack, now: Instant) -> Vec<Vec<u8>> {
    drain(stack, now).into_iter().map(|(packet, _)| packet).collect()
}

fn give(stack: &mut Stack, now: Instant, packet: &[u8]) {
    let frame = Frame::Slice(packet);
    stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
}

/// Carries packets both ways until both stacks are silent.
fn run(now: Instant, a: &mut Stack, b: &mut Stack) {
    loop {
        let (from_a, from_b) = (packets(a, now), packets(b, now));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        from_a.iter().for_each(|packet| give(b, now, packet));
        from_b.iter().for_each(|packet| give(a, now, packet));
    }
}

fn open(stack: &mut Stack, at: &str) -> DatagramId {
    stack.open_datagram(DatagramKind::Udp, addr(at), &DatagramOptions::default()).unwrap()
}

fn send(stack: &mut Stack, id: DatagramId, to: &str, bytes: &[u8]) -> Result<(), DatagramError> {
    stack.send_datagram(NOW, id, Some(addr(to)), bytes, &SendMeta::default())
}

fn recv(stack: &mut Stack, id: DatagramId) -> Result<(Vec<u8>, Received), DatagramError> {
    let mut bytes = vec![0; 70_000];
    let received = stack.recv_datagram(id, &mut bytes, false)?;
    bytes.truncate(received.len);
    Ok((bytes, received))
}

fn bytes_of(stack: &mut Stack, id: DatagramId) -> Vec<u8> {
    recv(stack, id).unwrap().0
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8).collect()
}

/// A datagram of the peer as a packet, with this checksum instead of the right one, if any.
fn datagram(from: &str, to: &str, payload: &[u8], checksum: Option<u16>) -> Vec<u8> {
    let (from, to) = (addr(from), addr(to));
    let header = UdpHeader { src_port: from.port(), dst_port: to.port(), len: 8 + payload.len() as u16 };
    let mut bytes = [&[0; 8][..], payload].concat();
    header.emit(&mut bytes);
    let sum = checksum.unwrap_or_else(|| udp::full_checksum(from.ip(), to.ip(), &bytes, &[]));
    udp::set_checksum(&mut bytes, sum);
    packet(from.ip(), to.ip(), protocol::UDP, &bytes)
}

fn packet(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
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

/// An ICMP error of `router` about one of our packets.
fn unreachable(router: &str, code: Unreachable, about: &[u8]) -> Vec<u8> {
    let quoted = IpHeader::parse(about).unwrap();
    let (src, dst) = (ip(router), quoted.src);
    let mut message = vec![0; 1_300];
    let len = icmp::emit_unreachable(&mut message, src, dst, code, about);
    let upper = if src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
    packet(src, dst, upper, &message[..len])
}

fn parse_icmp(bytes: &[u8]) -> Icmp<'_> {
    let ip = IpHeader::parse(bytes).unwrap();
    let message = &bytes[ip.header_len..ip.header_len + ip.payload_len];
    match (ip.src, ip.dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => Icmp::parse_v6(src, dst, message).unwrap(),
        _ => Icmp::parse_v4(message).unwrap(),
    }
}

const PAIRS: [(&str, &str); 2] = [("10.9.0.1:1000", "10.9.0.2:2000"), ("[fd09::1]:1000", "[fd09::2]:2000")];

#[test]
fn udp_01_a_datagram_and_its_answer() {
    for (here, there) in PAIRS {
        let (mut a, mut b) = (plain(1), plain(2));
        let (one, two) = (open(&mut a, here), open(&mut b, there));
        for payload in [&b"question"[..], b"", &noise(1_400)] {
            send(&mut a, one, there, payload).unwrap();
            run(NOW, &mut a, &mut b);
            assert_eq!(b.poll_event(), Some(Event::DatagramReadable(two)));
            let (bytes, received) = recv(&mut b, two).unwrap();
            assert_eq!((bytes.as_slice(), received.from), (payload, addr(here)));
            assert_eq!((received.to, received.ttl, received.tos), (addr(there).ip(), 64, 0));
            assert_eq!(recv(&mut b, two), Err(DatagramError::WouldBlock));
        }
        assert_eq!((a.counters().udp_out_datagrams, b.counters().udp_in_datagrams), (3, 3));
    }
}

#[test]
fn udp_02_the_packet_byte_by_byte() {
    let mut a = plain(1);
    let id = open(&mut a, "10.9.0.1:1000");
    send(&mut a, id, "10.9.0.2:2000", b"ab").unwrap();
    let bytes = packets(&mut a, NOW).remove(0);
    // 17 + 10 + 2 * 0x0a09 + 1 + 2 + 1000 + 2000 + 10 + 0x6162: the pseudo-header, the header, and "ab".
    let sum: u32 = 17 + 10 + 2 * 0x0a09 + 1 + 2 + 1_000 + 2_000 + 10 + 0x6162;
    let checksum = !(sum as u16);
    assert_eq!(&bytes[20..28], &[[3, 232], [7, 208], [0, 10], checksum.to_be_bytes()].concat()[..]);
    assert_eq!((&bytes[28..], bytes[6], bytes[9]), (&b"ab"[..], 0x40, 17));
    assert_eq!(a.poll_event(), None);
}

#[test]
fn udp_03_checksums() {
    let mut b = plain(2);
    let both = b.open_datagram(DatagramKind::Udp, addr("[::]:2000"), &DatagramOptions::default()).unwrap();
    // None at all: for IPv4 only.
    give(&mut b, NOW, &datagram("10.9.0.1:1", "10.9.0.2:2000", b"v4", Some(0)));
    give(&mut b, NOW, &datagram("[fd09::1]:1", "[fd09::2]:2000", b"v6", Some(0)));
    assert_eq!(bytes_of(&mut b, both), b"v4");
    assert_eq!(recv(&mut b, both), Err(DatagramError::WouldBlock));
    // A wrong one; and one that a device has verified.
    let wrong = datagram("10.9.0.1:1", "10.9.0.2:2000", b"wrong", Some(7));
    give(&mut b, NOW, &wrong);
    assert_eq!(recv(&mut b, both), Err(DatagramError::WouldBlock));
    assert_eq!((b.counters().udp_in_csum_errors, b.counters().udp_in_errors), (2, 2));
    let verified = RxPacket { frame: Frame::Slice(&wrong), checksum: RxChecksum::Verified, gso_size: 0 };
    b.handle_packet(NOW, verified);
    assert_eq!(bytes_of(&mut b, both), b"wrong");
    // Padding behind the datagram's own length is not of it.
    let mut padded = datagram("10.9.0.1:1", "10.9.0.2:2000", b"short", None);
    padded.extend([9; 6]);
    raw::set_len(&mut padded, 20 + 8 + 5 + 6);
    give(&mut b, NOW, &padded);
    assert_eq!(bytes_of(&mut b, both), b"short");
    // A length that is not one.
    let mut long = datagram("10.9.0.1:1", "10.9.0.2:2000", b"long", Some(0));
    long[25] += 1;
    give(&mut b, NOW, &long);
    assert_eq!((recv(&mut b, both), b.counters().udp_in_errors), (Err(DatagramError::WouldBlock), 3));
}

#[test]
fn udp_04_who_receives() {
    let mut b = plain(2);
    let any = open(&mut b, "0.0.0.0:2000");
    let both = open(&mut b, "[::]:2001");
    let only = DatagramOptions { only_v6: true, ..DatagramOptions::default() };
    let v6 = b.open_datagram(DatagramKind::Udp, addr("[::]:2000"), &only).unwrap();
    let to = |port: u16| format!("10.9.0.2:{port}");
    let give_to =
        |b: &mut Stack, from: &str, port| give(b, NOW, &datagram(from, &to(port), from.as_bytes(), None));
    give_to(&mut b, "10.9.0.1:1", 2_000);
    give_to(&mut b, "10.9.0.1:2", 2_001);
    assert_eq!(
        (bytes_of(&mut b, any), bytes_of(&mut b, both)),
        (b"10.9.0.1:1".to_vec(), b"10.9.0.1:2".to_vec())
    );
    give(&mut b, NOW, &datagram("[fd09::1]:3", "[fd09::2]:2000", b"v6", None));
    assert_eq!(bytes_of(&mut b, v6), b"v6");
    // A connected socket receives from its peer only, and from anybody when it is not connected any more.
    b.connect_datagram(any, Some(addr("10.9.0.1:1"))).unwrap();
    give_to(&mut b, "10.9.0.1:9", 2_000);
    assert_eq!(recv(&mut b, any), Err(DatagramError::WouldBlock));
    give_to(&mut b, "10.9.0.1:1", 2_000);
    assert_eq!(bytes_of(&mut b, any), b"10.9.0.1:1");
    assert_eq!(b.datagram(any).unwrap().local, addr("10.9.0.2:2000"));
    b.connect_datagram(any, None).unwrap();
    give_to(&mut b, "10.9.0.1:9", 2_000);
    assert_eq!(bytes_of(&mut b, any), b"10.9.0.1:9");
    assert_eq!(b.datagram(any).unwrap().local, addr("0.0.0.0:2000"));
    // A closed one receives nothing.
    b.close_datagram(any);
    assert_eq!(recv(&mut b, any), Err(DatagramError::Closed));
    give_to(&mut b, "10.9.0.1:9", 2_000);
    assert_eq!(b.counters().udp_no_ports, 2, "the one that was connected to another, and this one");
}

#[test]
fn udp_05_an_address_is_taken_once() {
    let mut b = plain(2);
    let try_open = |b: &mut Stack, at: &str, only_v6| {
        let options = DatagramOptions { only_v6, ..DatagramOptions::default() };
        b.open_datagram(DatagramKind::Udp, addr(at), &options)
    };
    let taken = Err(ListenError::AddrInUse);
    let first = try_open(&mut b, "10.9.0.2:2000", false).unwrap();
    assert_eq!(try_open(&mut b, "10.9.0.2:2000", false), taken);
    assert_eq!(try_open(&mut b, "0.0.0.0:2000", false), taken);
    assert_eq!(try_open(&mut b, "[::]:2000", false), taken, "it would receive over IPv4, too");
    assert!(try_open(&mut b, "[::]:2000", true).is_ok());
    assert_eq!(try_open(&mut b, "[fd09::2]:2000", false), taken);
    assert!(try_open(&mut b, "10.9.0.2:2001", false).is_ok());
    assert_eq!(try_open(&mut b, "10.9.0.9:2002", false), Err(ListenError::AddrNotAvailable));
    b.close_datagram(first);
    assert!(try_open(&mut b, "10.9.0.2:2000", false).is_ok());
    // The ports of ping are others.
    let ping = b.open_datagram(DatagramKind::Ping, addr("10.9.0.2:2000"), &DatagramOptions::default());
    assert!(ping.is_ok());
}

#[test]
fn udp_06_ports_of_ones_own_choice() {
    let mut b = plain(2);
    let mut ports = std::collections::BTreeSet::new();
    let mut steps = Vec::new();
    let mut last = 0;
    for _ in 0..1_000 {
        let id = open(&mut b, "0.0.0.0:0");
        let port = b.datagram(id).unwrap().local.port();
        assert!((32_768..=60_999).contains(&port) && ports.insert(port));
        steps.push(i32::from(port) - last);
        last = port.into();
    }
    // RFC 6056 §3.3.1: at random; a sequence would have equal steps.
    let next = steps.iter().filter(|step| **step == 1).count();
    assert!(next < 20, "{next} of 1000 follow the one before");
    // All of them, and not one more.
    while ports.len() < 28_232 {
        let id = open(&mut b, "0.0.0.0:0");
        assert!(ports.insert(b.datagram(id).unwrap().local.port()));
    }
    let more = b.open_datagram(DatagramKind::Udp, addr("0.0.0.0:0"), &DatagramOptions::default());
    assert_eq!(more, Err(ListenError::AddrInUse));
}

#[test]
fn udp_07_what_waits_to_be_received_is_bounded() {
    let mut b = plain(2);
    let id = open(&mut b, "10.9.0.2:2000");
    let small = datagram("10.9.0.1:1", "10.9.0.2:2000", &[7; 100], None);
    for _ in 0..1_000 {
        give(&mut b, NOW, &small);
    }
    // 868 bytes each: one is taken while no more than 212,992 wait.
    let taken = 212_992 / 868 + 1;
    assert_eq!((b.counters().udp_in_datagrams, b.counters().udp_rcvbuf_errors), (taken, 1_000 - taken));
    let info = b.datagram(id).unwrap();
    assert_eq!((u64::from(info.recv_queue), info.drops, info.rcvbuf), (taken * 868, 1_000 - taken, 212_992));
    // One that is received makes room for one.
    bytes_of(&mut b, id);
    give(&mut b, NOW, &small);
    give(&mut b, NOW, &small);
    assert_eq!(b.datagram(id).unwrap().drops, 1_000 - taken + 1);
    // SO_RCVBUF is doubled, and has a least value, with which one datagram is taken.
    for (set, limit) in [(10_000, 20_000), (0, 2_304)] {
        b.set_datagram_option(id, DatagramOption::Rcvbuf(set)).unwrap();
        assert_eq!(b.datagram(id).unwrap().rcvbuf, limit);
    }
    while recv(&mut b, id).is_ok() {}
    give(&mut b, NOW, &datagram("10.9.0.1:1", "10.9.0.2:2000", &noise(9_000), None));
    assert_eq!(bytes_of(&mut b, id), noise(9_000));
    assert_eq!(b.datagram(id).unwrap().recv_queue, 0);
}

#[test]
fn udp_08_what_is_sent_counts_until_its_ticket_comes_back() {
    let mut a = plain(1);
    let id = open(&mut a, "10.9.0.1:1000");
    let mut sent = 0_u32;
    while send(&mut a, id, "10.9.0.2:2000", &[7; 1_000]).is_ok() {
        sent += 1;
    }
    // 1768 bytes each, while less than 212,992 count.
    assert_eq!(sent, 212_992_u32.div_ceil(1_768));
    assert_eq!(send(&mut a, id, "10.9.0.2:2000", b""), Err(DatagramError::WouldBlock));
    assert!(a.awaits_tickets());
    // They are below the stack, and still count.
    let mut tickets = Vec::new();
    while let Some(Transmit { ticket, .. }) = a.poll_transmit(NOW) {
        tickets.push(ticket);
    }
    assert_eq!((tickets.len() as u32, a.datagram(id).unwrap().send_queue), (sent, sent * 1_768));
    assert_eq!(
        (a.poll_event(), send(&mut a, id, "10.9.0.2:2000", b"")),
        (None, Err(DatagramError::WouldBlock))
    );
    // The writer is told when half of it is free, once.
    let half = tickets.len() - 60;
    for ticket in tickets.drain(..half) {
        assert_eq!(a.poll_event(), None);
        a.handle_tx(NOW, ticket, Fate::Left);
    }
    assert!(a.datagram(id).unwrap().send_queue <= 212_992 / 2);
    assert_eq!(a.poll_event(), Some(Event::DatagramWritable(id)));
    assert_eq!((a.poll_event(), a.awaits_tickets()), (None, false));
    tickets.into_iter().for_each(|ticket| a.handle_tx(NOW, ticket, Fate::Left));
    assert_eq!(a.datagram(id).unwrap().send_queue, 0);
}

#[test]
fn udp_09_what_a_device_refuses_or_drops() {
    let mut a = plain(1);
    let id = open(&mut a, "10.9.0.1:1000");
    for n in 0..3 {
        send(&mut a, id, "10.9.0.2:2000", &[n]).unwrap();
    }
    for fate in [Fate::Refused, Fate::Refused, Fate::Left] {
        let Transmit { packet, ticket } = a.poll_transmit(NOW).unwrap();
        assert_eq!(packet.to_vec().last(), Some(&0), "the same again until it leaves");
        a.handle_tx(NOW, ticket, fate);
    }
    let Transmit { packet, ticket } = a.poll_transmit(NOW).unwrap();
    assert_eq!(packet.to_vec().last(), Some(&1));
    a.handle_tx(NOW, ticket, Fate::Dropped);
    let last = packets(&mut a, NOW);
    assert_eq!((last.len(), last[0].last()), (1, Some(&2)), "what was dropped is not sent again");
    assert_eq!((a.counters().out_discards, a.counters().udp_sndbuf_errors), (1, 1));
    assert_eq!((a.datagram(id).unwrap().send_queue, a.counters().out_requests), (0, 3));
}

#[test]
fn udp_13_a_device_cuts_or_the_stack_does() {
    let message = noise(5_000);
    let meta = SendMeta { segment: Some(1_200), ..SendMeta::default() };
    for (here, there) in PAIRS {
        // Cut here: five datagrams.
        let (mut a, mut b) = (plain(1), plain(2));
        let (one, two) = (open(&mut a, here), open(&mut b, there));
        a.send_datagram(NOW, one, Some(addr(there)), &message, &meta).unwrap();
        run(NOW, &mut a, &mut b);
        for part in message.chunks(1_200) {
            assert_eq!(bytes_of(&mut b, two), part);
        }
        assert_eq!(recv(&mut b, two), Err(DatagramError::WouldBlock));
        assert_eq!((a.counters().udp_out_datagrams, b.counters().udp_in_datagrams), (5, 5));
        // Cut by the device: one super-packet, and what the device makes of it is the same.
        let caps = LinkCaps { udp_segments: true, ..LinkCaps::offloading(1_500) };
        let mut a = stack(1, caps);
        let one = open(&mut a, here);
        a.send_datagram(NOW, one, Some(addr(there)), &message, &meta).unwrap();
        let all = drain(&mut a, NOW);
        let [(whole, Offload::Segment { mss: 1_200, start, offset: 6, ipv6 })] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(
            (usize::from(*start), *ipv6),
            (if here.starts_with('[') { 40 } else { 20 }, here.starts_with('['))
        );
        let header = &whole[..usize::from(*start) + 8];
        for index in 0..5 {
            let mut cut = header.to_vec();
            let range = raw::cut(&mut cut, message.len(), 1_200, index);
            cut.extend_from_slice(&message[range]);
            raw::complete(&mut cut);
            give(&mut b, NOW, &cut);
        }
        for part in message.chunks(1_200) {
            assert_eq!(bytes_of(&mut b, two), part);
        }
    }
}

#[test]
fn udp_15_a_closed_port_is_told_to_a_connected_socket() {
    for (here, there) in PAIRS {
        let (mut a, mut b) = (plain(1), plain(2));
        let id = open(&mut a, here);
        // Not connected: it would not know which peer is meant.
        send(&mut a, id, there, b"one").unwrap();
        run(NOW, &mut a, &mut b);
        assert_eq!(recv(&mut a, id), Err(DatagramError::WouldBlock));
        a.connect_datagram(id, Some(addr(there))).unwrap();
        for _ in 0..2 {
            a.send_datagram(NOW, id, None, b"two", &SendMeta::default()).unwrap();
            run(NOW, &mut a, &mut b);
            assert_eq!(a.poll_event(), Some(Event::DatagramReadable(id)));
            assert_eq!(recv(&mut a, id), Err(DatagramError::Refused));
            assert_eq!(recv(&mut a, id), Err(DatagramError::WouldBlock), "once");
        }
        assert_eq!((b.counters().udp_no_ports, b.counters().icmp_out_dest_unreachs), (3, 3));
        assert_eq!(a.counters().icmp_in_dest_unreachs, 3);
        // A soft error is not reported, a forged one neither.
        a.send_datagram(NOW, id, None, b"three", &SendMeta::default()).unwrap();
        let sent = packets(&mut a, NOW).remove(0);
        give(&mut a, NOW, &unreachable(&addr(there).ip().to_string(), Unreachable::Network, &sent));
        let other = datagram(here, &there.replace(":2000", ":2001"), b"", None);
        give(&mut a, NOW, &unreachable(&addr(there).ip().to_string(), Unreachable::Port, &other));
        assert_eq!(recv(&mut a, id), Err(DatagramError::WouldBlock));
    }
}

#[test]
fn udp_16_a_path_that_is_narrower() {
    for (here, there) in PAIRS {
        let mut a = plain(1);
        let id = open(&mut a, here);
        a.connect_datagram(id, Some(addr(there))).unwrap();
        let message = noise(1_400);
        let send = |a: &mut Stack| a.send_datagram(NOW, id, None, &message, &SendMeta::default());
        a.set_datagram_option(id, DatagramOption::MtuDiscovery(MtuDiscovery::Do)).unwrap();
        send(&mut a).unwrap();
        let sent = packets(&mut a, NOW).remove(0);
        let narrow = Unreachable::FragmentationNeeded { mtu: 1_300 };
        give(&mut a, NOW, &unreachable(&addr(there).ip().to_string(), narrow, &sent));
        assert_eq!(send(&mut a), Err(DatagramError::TooLong), "what ICMP said");
        assert_eq!(send(&mut a), Err(DatagramError::TooLong), "what is known of the path");
        assert!(packets(&mut a, NOW).is_empty());
        // Without DF it leaves in fragments that fit.
        a.set_datagram_option(id, DatagramOption::MtuDiscovery(MtuDiscovery::Want)).unwrap();
        send(&mut a).unwrap();
        let sent = packets(&mut a, NOW);
        assert!(sent.len() == 2 && sent.iter().all(|packet| packet.len() <= 1_300), "{}", sent.len());
    }
}

#[test]
fn udp_17_ancillary_data_both_ways() {
    for (here, there) in PAIRS {
        let (mut a, mut b) = (plain(1), plain(2));
        let any = if here.starts_with('[') { "[::]:1000" } else { "0.0.0.0:1000" };
        let (one, two) = (open(&mut a, any), open(&mut b, there));
        let meta =
            SendMeta { ttl: Some(3), tos: Some(0xb9), src: Some(addr(here).ip()), ..SendMeta::default() };
        a.send_datagram(NOW, one, Some(addr(there)), b"x", &meta).unwrap();
        run(NOW, &mut a, &mut b);
        let (_, received) = recv(&mut b, two).unwrap();
        // DSCP 46 and ECT(1).
        assert_eq!((received.ttl, received.tos, received.to), (3, 0xb9, addr(there).ip()));
        assert_eq!(b.counters().in_ect1_pkts, 1);
        // The socket's own, for all others.
        a.set_datagram_option(one, DatagramOption::Tos(0x22)).unwrap();
        a.set_datagram_option(one, DatagramOption::Ttl(9)).unwrap();
        a.send_datagram(NOW, one, Some(addr(there)), b"x", &SendMeta::default()).unwrap();
        run(NOW, &mut a, &mut b);
        let (_, received) = recv(&mut b, two).unwrap();
        assert_eq!((received.ttl, received.tos), (9, 0x22));
        assert_eq!(a.set_datagram_option(one, DatagramOption::Ttl(0)), Err(DatagramError::Invalid));
        let stranger = SendMeta { src: Some(ip("192.0.2.1")), ..SendMeta::default() };
        let refused = a.send_datagram(NOW, one, Some(addr(there)), b"x", &stranger);
        assert_eq!(refused, Err(DatagramError::AddrNotAvailable));
    }
}

#[test]
fn udp_18_departure_times_and_the_pacing_rate() {
    for paces in [false, true] {
        let mut a = stack(1, LinkCaps { paces, ..LinkCaps::plain(1_500) });
        let id = open(&mut a, "10.9.0.1:1000");
        let later = NOW + Duration::from_millis(7);
        let meta = SendMeta { departure: Some(later), ..SendMeta::default() };
        a.send_datagram(NOW, id, Some(addr("10.9.0.2:2000")), b"x", &meta).unwrap();
        if paces {
            let Transmit { packet, ticket } = a.poll_transmit(NOW).unwrap();
            assert_eq!(packet.departure, later);
            a.handle_tx(NOW, ticket, Fate::Left);
            continue;
        }
        assert!(a.poll_transmit(NOW).is_none());
        assert_eq!(a.poll_timeout().map(|(at, _)| at), Some(later));
        a.handle_timeout(later);
        assert_eq!(packets(&mut a, later).len(), 1);
        assert_eq!(a.poll_timeout(), None);
        // 1000 + 28 bytes at 1,028,000 a second: one each millisecond.
        a.set_datagram_option(id, DatagramOption::MaxPacingRate(Some(1_028_000))).unwrap();
        for _ in 0..5 {
            send(&mut a, id, "10.9.0.2:2000", &[0; 1_000]).unwrap();
        }
        let mut now = later;
        let mut times = Vec::new();
        while times.len() < 5 {
            packets(&mut a, now).iter().for_each(|_| times.push(now.since(later).as_micros()));
            if let Some((at, _)) = a.poll_timeout() {
                now = at;
                a.handle_timeout(now);
            }
        }
        assert_eq!(times, [0, 1_000, 2_000, 3_000, 4_000]);
    }
}

#[test]
fn udp_19_small_datagrams_share_the_link_with_tcp() {
    let caps = LinkCaps { tx_checksum: false, ..LinkCaps::offloading(1_500) };
    let (mut a, mut b) = (stack(1, caps), plain(2));
    let listener = b.listen(addr("10.9.0.2:80"), Default::default()).unwrap();
    let conn = a.connect(NOW, addr("10.9.0.2:80"), &ConnOptions::default()).unwrap();
    run(NOW, &mut a, &mut b);
    assert!(b.accept(listener).is_some());
    let udp = open(&mut a, "10.9.0.1:1000");
    a.set_datagram_option(udp, DatagramOption::Sndbuf(1 << 20)).unwrap();
    for _ in 0..200 {
        send(&mut a, udp, "10.9.0.2:2000", &[0; 1_000]).unwrap();
    }
    a.conn_mut(conn).unwrap().write(NOW, &noise(10_000)).unwrap();
    let order: Vec<u8> = packets(&mut a, NOW).iter().map(|packet| packet[9]).collect();
    // The first turn is 65,536 bytes, which 38 datagrams of 1768 use up; then it is TCP's, and then the
    // others'.
    assert_eq!(order.iter().position(|&upper| upper == protocol::TCP), Some(38));
    assert_eq!(order.iter().filter(|&&upper| upper == protocol::UDP).count(), 200);
}

#[test]
fn icmp_01_a_ping_is_answered_in_one_packet_or_in_fragments() {
    for (here, there) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
        for len in [0, 56, 1_452, 8_000, 60_000] {
            let (mut a, mut b) = (plain(1), plain(2));
            let at = SocketAddr::new(ip(here), 77);
            let ping = a.open_datagram(DatagramKind::Ping, at, &DatagramOptions::default()).unwrap();
            let message = [&icmp::echo_request(here.contains('.'), 5)[..], &noise(len)].concat();
            b.set_sysctl("ip_default_ttl", "7").unwrap();
            let to = Some(SocketAddr::new(ip(there), 0));
            a.send_datagram(NOW, ping, to, &message, &SendMeta::default()).unwrap();
            run(NOW, &mut a, &mut b);
            let (bytes, received) = recv(&mut a, ping).unwrap();
            assert_eq!((received.from.ip(), received.ttl), (ip(there), 7));
            let upper = if here.contains('.') { protocol::ICMP } else { protocol::ICMPV6 };
            let bytes = packet(ip(there), ip(here), upper, &bytes);
            assert_eq!(parse_icmp(&bytes), Icmp::EchoReply { ident: 77, seq: 5, payload: &noise(len) });
            assert_eq!((a.counters().icmp_out_echos, a.counters().icmp_in_echo_reps), (1, 1));
            assert_eq!((b.counters().icmp_in_echos, b.counters().icmp_out_echo_reps), (1, 1));
            let whole = u64::from(len > 1_452);
            assert_eq!((b.counters().reasm_oks, a.counters().reasm_oks), (whole, whole));
        }
    }
}

#[test]
fn icmp_02_what_a_ping_socket_sends_and_receives() {
    let mut a = plain(1);
    let options = DatagramOptions::default();
    let ping = a.open_datagram(DatagramKind::Ping, addr("10.9.0.1:77"), &options).unwrap();
    let to = Some(addr("10.9.0.2:0"));
    // Nothing but echo requests.
    for message in [&[0; 8][..], &[8, 1, 0, 0, 0, 0, 0, 0], &[8; 7], &[128, 0, 0, 0, 0, 0, 0, 0]] {
        let refused = a.send_datagram(NOW, ping, to, message, &SendMeta::default());
        assert_eq!(refused, Err(DatagramError::Invalid), "{message:?}");
    }
    // Nothing but replies with its identifier.
    for (ident, count) in [(78, 0), (77, 1)] {
        let mut message = [0; 8];
        icmp::emit_echo_reply(&mut message, ip("10.9.0.2"), ip("10.9.0.1"), ident, 1, &[]);
        give(&mut a, NOW, &packet(ip("10.9.0.2"), ip("10.9.0.1"), protocol::ICMP, &message));
        assert_eq!(a.datagram(ping).unwrap().recv_queue > 0, count == 1);
    }
}

#[test]
fn icmp_03_a_closed_port_and_an_unknown_protocol() {
    for (here, there) in PAIRS {
        let mut b = plain(2);
        let lost = datagram(here, there, b"hello", None);
        give(&mut b, NOW, &lost);
        let told = packets(&mut b, NOW);
        let Icmp::DestinationUnreachable { code: Unreachable::Port, quoted } = parse_icmp(&told[0]) else {
            panic!("{told:?}")
        };
        assert_eq!(quoted, lost);
        let (src, dst) = (addr(here).ip(), addr(there).ip());
        give(&mut b, NOW, &packet(src, dst, 132, &[0; 20]));
        let told = packets(&mut b, NOW);
        match parse_icmp(&told[0]) {
            Icmp::DestinationUnreachable { code: Unreachable::Protocol, .. } => assert!(src.is_ipv4()),
            Icmp::ParameterProblem { pointer: 6, .. } => assert!(src.is_ipv6()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn icmp_04_no_error_answers_these() {
    let mut b = plain(2);
    let to = |dst: &str| datagram("10.9.0.1:1", &format!("{dst}:9"), b"", None);
    // Groups and everybody; senders that are none.
    for dst in ["224.0.0.1", "255.255.255.255"] {
        give(&mut b, NOW, &to(dst));
    }
    for src in ["0.0.0.0:1", "127.0.0.1:1", "224.0.0.1:1", "255.255.255.255:1"] {
        give(&mut b, NOW, &datagram(src, "10.9.0.2:9", b"", None));
    }
    // An error, about a packet that we never sent; a reply that nobody waits for.
    let lost = datagram("10.9.0.2:9", "10.9.0.1:1", b"", None);
    give(&mut b, NOW, &unreachable("10.9.0.1", Unreachable::Port, &lost));
    let mut message = [0; 8];
    icmp::emit_echo_reply(&mut message, ip("10.9.0.1"), ip("10.9.0.2"), 1, 1, &[]);
    give(&mut b, NOW, &packet(ip("10.9.0.1"), ip("10.9.0.2"), protocol::ICMP, &message));
    // A wrong checksum.
    give(&mut b, NOW, &datagram("10.9.0.1:1", "10.9.0.2:9", b"", Some(1)));
    assert!(packets(&mut b, NOW).is_empty());
}

#[test]
fn icmp_07_a_flood_is_answered_six_times_and_pings_always() {
    let mut b = plain(2);
    for _ in 0..1_000 {
        give(&mut b, NOW, &datagram("10.9.0.1:1", "10.9.0.2:9", b"", None));
    }
    assert_eq!((packets(&mut b, NOW).len(), b.counters().icmp_out_rate_limited), (6, 994));
    let mut message = icmp::echo_request(true, 1);
    icmp::finish_echo_request(&mut message, ip("10.9.0.1"), ip("10.9.0.2"), 1);
    for _ in 0..100 {
        give(&mut b, NOW, &packet(ip("10.9.0.1"), ip("10.9.0.2"), protocol::ICMP, &message));
    }
    assert_eq!(packets(&mut b, NOW).len(), 100);
}

#[test]
fn icmp_08_errors_are_kept_for_who_asked_for_them() {
    let mut a = plain(1);
    let options = DatagramOptions { recv_errors: true, ..DatagramOptions::default() };
    let id = a.open_datagram(DatagramKind::Udp, addr("10.9.0.1:1000"), &options).unwrap();
    let meta = SendMeta { ttl: Some(1), ..SendMeta::default() };
    a.send_datagram(NOW, id, Some(addr("10.9.0.2:33434")), b"trace", &meta).unwrap();
    let sent = packets(&mut a, NOW).remove(0);
    // As traceroute sees it: the router of the first hop.
    let mut message = vec![0; 600];
    let (router, own) = (ip("10.9.0.254"), ip("10.9.0.1"));
    let len = icmp::emit_trouble(&mut message, router, own, Trouble::HopLimit, &sent);
    let told = packet(router, own, protocol::ICMP, &message[..len]);
    for _ in 0..1_000 {
        give(&mut a, NOW, &told);
    }
    assert_eq!(recv(&mut a, id), Err(DatagramError::HostUnreachable));
    let report = a.recv_datagram_error(id).unwrap();
    assert_eq!((report.router, report.kind, report.code, report.to), (router, 11, 0, addr("10.9.0.2:33434")));
    // No more than 64 wait.
    let more = std::iter::from_fn(|| a.recv_datagram_error(id)).count();
    assert_eq!(more, 63);
}

#[test]
fn icmp_09_an_answer_that_the_device_refuses_is_offered_again() {
    let mut b = plain(2);
    let mut message = [&icmp::echo_request(true, 1)[..], &noise(3_000)].concat();
    icmp::finish_echo_request(&mut message, ip("10.9.0.1"), ip("10.9.0.2"), 1);
    let whole = packet(ip("10.9.0.1"), ip("10.9.0.2"), protocol::ICMP, &message);
    let verified = RxPacket { frame: Frame::Slice(&whole), checksum: RxChecksum::Unverified, gso_size: 0 };
    b.handle_packet(NOW, verified);
    let mut offsets = Vec::new();
    // Each of the three fragments is refused once.
    for n in 0..6 {
        let Transmit { packet, ticket } = b.poll_transmit(NOW).unwrap();
        offsets.push(Fragment::parse(&packet.to_vec()).unwrap().offset);
        b.handle_tx(NOW, ticket, if n % 2 == 0 { Fate::Refused } else { Fate::Left });
    }
    assert_eq!(offsets, [0, 0, 1_480, 1_480, 2_960, 2_960]);
    assert!(b.poll_transmit(NOW).is_none());
    assert_eq!((b.counters().out_requests, b.counters().icmp_out_msgs), (3, 3));
}

#[test]
fn frag_14_datagrams_that_are_larger_than_the_link() {
    for (here, there) in PAIRS {
        for len in [1_473, 8_000, 65_507] {
            let (mut a, mut b) = (plain(1), plain(2));
            let (one, two) = (open(&mut a, here), open(&mut b, there));
            let message = noise(len);
            send(&mut a, one, there, &message).unwrap();
            let sent = packets(&mut a, NOW);
            let fits = if here.starts_with('[') { 1_448 } else { 1_480 };
            assert_eq!(sent.len(), (len + 8).div_ceil(fits));
            assert!(sent.iter().all(|packet| packet.len() <= 1_500));
            let idents: Vec<u32> = sent.iter().map(|packet| Fragment::parse(packet).unwrap().ident).collect();
            assert!(idents.windows(2).all(|pair| pair[0] == pair[1]));
            sent.iter().rev().for_each(|packet| give(&mut b, NOW, packet));
            assert_eq!(bytes_of(&mut b, two), message);
            assert_eq!((b.counters().reasm_reqds, b.counters().reasm_oks), (sent.len() as u64, 1));
            assert_eq!((a.counters().frag_creates, a.counters().frag_oks), (sent.len() as u64, 1));
        }
    }
}

#[test]
fn frag_15_the_sender_of_half_a_packet_is_told() {
    for (here, there, seconds) in [("10.9.0.1:1", "10.9.0.2:2", 30), ("[fd09::1]:1", "[fd09::2]:2", 60)] {
        for skipped in [0, 1] {
            let (mut a, mut b) = (plain(1), plain(2));
            let one = open(&mut a, here);
            send(&mut a, one, there, &noise(2_000)).unwrap();
            let sent = packets(&mut a, NOW);
            let given = &sent[1 - skipped];
            give(&mut b, NOW, given);
            let end = NOW + Duration::from_secs(seconds);
            assert_eq!(b.poll_timeout().map(|(at, _)| at), Some(end));
            b.handle_timeout(end);
            let told = packets(&mut b, end);
            assert_eq!((b.counters().reasm_timeout, b.counters().reasm_fails), (1, 1));
            assert_eq!(b.poll_timeout(), None);
            if skipped == 0 {
                assert!(told.is_empty(), "the first fragment did not come");
                continue;
            }
            let Icmp::TimeExceeded { quoted } = parse_icmp(&told[0]) else { panic!("{told:?}") };
            assert!(given.starts_with(quoted) && quoted.len() >= 28);
            // The code says that it was reassembly.
            assert_eq!(told[0][if here.starts_with('[') { 41 } else { 21 }], 1);
        }
    }
}

#[test]
fn frag_16_a_first_fragment_without_the_header() {
    let mut b = plain(2);
    let two = open(&mut b, "[fd09::2]:2000");
    let whole = datagram("[fd09::1]:1", "[fd09::2]:2000", &noise(100), None);
    let fragment = |range: std::ops::Range<usize>, more| {
        let header = IpHeader { payload_len: range.len(), ..IpHeader::parse(&whole).unwrap() };
        let mut bytes = vec![0; 48];
        taut_wire::fragment::emit(&header, &mut bytes, 5, range.start, more);
        bytes.extend_from_slice(&whole[40..][range]);
        bytes
    };
    // UDP's header is eight bytes; TCP's would need twenty.
    give(&mut b, NOW, &fragment(0..8, true));
    give(&mut b, NOW, &fragment(8..108, false));
    assert_eq!(bytes_of(&mut b, two), noise(100));
    let mut tcp = fragment(0..16, true);
    tcp[40] = protocol::TCP;
    give(&mut b, NOW, &tcp);
    assert_eq!((b.counters().reasm_fails, b.poll_timeout()), (1, None));
}

#[test]
fn frag_17_tcp_arrives_in_fragments_too() {
    let (mut a, mut b) = (plain(1), plain(2));
    let listener = b.listen(addr("10.9.0.2:80"), Default::default()).unwrap();
    let conn = a.connect(NOW, addr("10.9.0.2:80"), &ConnOptions::default()).unwrap();
    run(NOW, &mut a, &mut b);
    let (accepted, _) = b.accept(listener).unwrap();
    a.conn_mut(conn).unwrap().write(NOW, &noise(1_000)).unwrap();
    let whole = packets(&mut a, NOW).remove(0);
    let header = IpHeader::parse(&whole).unwrap();
    let data = &whole[20..];
    for (index, part) in data.chunks(400).enumerate().collect::<Vec<_>>().into_iter().rev() {
        let mut bytes = vec![0; 20];
        let more = (index + 1) * 400 < data.len();
        let ip = IpHeader { payload_len: part.len(), ..header };
        taut_wire::fragment::emit(&ip, &mut bytes, 9, index * 400, more);
        bytes.extend_from_slice(part);
        give(&mut b, NOW, &bytes);
    }
    let mut read = vec![0; 2_000];
    let count = b.conn_mut(accepted).unwrap().read(NOW, &mut read).unwrap();
    assert_eq!(&read[..count], noise(1_000));
}

#[test]
fn frag_18_a_packet_from_fragments_is_received_once_for_each() {
    // RFC 4293, ipSystemStatsInReceives: what arrives, before reassembly. Linux counts the same.
    for (here, there) in PAIRS {
        let (mut a, mut b) = (plain(1), plain(2));
        let (one, two) = (open(&mut a, here), open(&mut b, there));
        send(&mut a, one, there, &noise(4_000)).unwrap();
        let sent = packets(&mut a, NOW);
        assert_eq!(sent.len(), 3);
        for (count, packet) in (1..).zip(&sent) {
            give(&mut b, NOW, packet);
            assert_eq!(b.counters().in_receives, count);
        }
        assert_eq!(bytes_of(&mut b, two), noise(4_000));
    }
}
