//! Packets of strangers beside TCP, and the memory that they cost: docs/spec/ip.md, "Bad input". Memory is
//! that which the test's own thread has allocated and not freed. The stack has 10.9.0.1 and fd09::1.
#![allow(unsafe_code, reason = "counts what is allocated")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use taut_core::{
    ConnId, ConnOptions, DatagramId, DatagramKind, DatagramOptions, Fate, Frame, Instant, LinkCaps,
    ListenOptions, RxChecksum, RxPacket, SendMeta, Stack, StackConfig, Transmit,
};
use taut_wire::{Ecn, IpHeader, UdpHeader, fragment, icmp, protocol, udp};

/// Counts what each thread holds: the other tests and the test harness allocate meanwhile.
struct Counted;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

/// Bytes that this thread has allocated and not freed.
fn live() -> isize {
    LIVE.get()
}

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

const NOW: Instant = Instant::from_nanos(5_000_000_000);

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A stack at host 1 or 2 of both families, or of IPv4 alone.
fn stack(host: u8, mtu: u16) -> Stack {
    let config = StackConfig::default().with(|config| {
        config.addresses.push(IpAddr::from([10, 9, 0, host]));
        if mtu >= 1_280 {
            config.addresses.push(format!("fd09::{host}").parse().unwrap());
        }
    });
    Stack::new(Arc::new(config), LinkCaps::plain(mtu), [host; 32])
}

fn give(stack: &mut Stack, packet: &[u8]) {
    let frame = Frame::Slice(packet);
    stack.handle_packet(NOW, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
}

fn packets(stack: &mut Stack) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while let Some(Transmit { packet, ticket }) = stack.poll_transmit(NOW) {
        packets.push(packet.to_vec());
        stack.handle_tx(NOW, ticket, Fate::Left);
    }
    packets
}

/// Carries packets both ways until both stacks are silent; returns the longest, and how many.
fn run(a: &mut Stack, b: &mut Stack) -> (usize, usize) {
    let (mut longest, mut count) = (0, 0);
    loop {
        let (from_a, from_b) = (packets(a), packets(b));
        if from_a.is_empty() && from_b.is_empty() {
            return (longest, count);
        }
        count += from_a.len() + from_b.len();
        longest = from_a.iter().chain(&from_b).map(Vec::len).fold(longest, usize::max);
        from_a.iter().for_each(|packet| give(b, packet));
        from_b.iter().for_each(|packet| give(a, packet));
    }
}

fn packet(src: &str, dst: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = (src.parse::<IpAddr>().unwrap(), dst.parse::<IpAddr>().unwrap());
    let header_len = if src.is_ipv4() { 20 } else { 40 };
    let header = IpHeader {
        src,
        dst,
        protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len,
        payload_len: payload.len(),
    };
    let mut bytes = vec![0; header_len];
    header.emit(&mut bytes, 0);
    bytes.extend_from_slice(payload);
    bytes
}

/// A datagram from port 2000 of a stranger, with a right checksum.
fn datagram(src: &str, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let header = UdpHeader { src_port: 2_000, dst_port: to.port(), len: 8 + payload.len() as u16 };
    let mut bytes = [&[0; 8][..], payload].concat();
    header.emit(&mut bytes);
    let sum = udp::full_checksum(src.parse().unwrap(), to.ip(), &bytes, &[]);
    udp::set_checksum(&mut bytes, sum);
    packet(src, &to.ip().to_string(), protocol::UDP, &bytes)
}

/// A connection between the two, as an application of each holds it.
fn connect(a: &mut Stack, b: &mut Stack) -> (ConnId, ConnId) {
    let listener = b.listen(addr("10.9.0.2:7"), ListenOptions::default()).unwrap();
    let near = a.connect(NOW, addr("10.9.0.2:7"), &ConnOptions::default()).unwrap();
    run(a, b);
    (near, b.accept(listener).unwrap().0)
}

/// Sends bytes over a connection, while `meanwhile` happens between any two rounds; returns the longest
/// packet.
fn transfer(
    (a, from): (&mut Stack, ConnId),
    (b, to): (&mut Stack, ConnId),
    bytes: usize,
    mut meanwhile: impl FnMut(&mut Stack),
) -> usize {
    let data: Vec<u8> = (0..bytes).map(|n| (n * 7 % 251) as u8).collect();
    let (mut sent, mut came, mut buffer, mut longest) = (0, Vec::new(), vec![0; 65_536], 0);
    while came.len() < bytes {
        if let Ok(count) = a.conn_mut(from).unwrap().write(NOW, &data[sent..]) {
            sent += count;
        }
        meanwhile(a);
        longest = run(a, b).0.max(longest);
        while let Ok(count @ 1..) = b.conn_mut(to).unwrap().read(NOW, &mut buffer) {
            came.extend_from_slice(&buffer[..count]);
        }
    }
    assert!(came == data);
    longest
}

fn open(stack: &mut Stack, at: &str) -> DatagramId {
    stack.open_datagram(DatagramKind::Udp, addr(at), &DatagramOptions::default()).unwrap()
}

// ---- extension headers ----

/// A datagram to port 9 behind these extension headers of IPv6, of which each knows the type of the next.
fn chained(headers: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let plain = datagram("fd09::2", addr("[fd09::1]:9"), b"hello");
    let mut chain = Vec::new();
    for (at, (_, body)) in headers.iter().enumerate() {
        let next = headers.get(at + 1).map_or(protocol::UDP, |(kind, _)| *kind);
        chain.push(next);
        chain.extend_from_slice(body);
    }
    packet(
        "fd09::2",
        "fd09::1",
        headers.first().map_or(protocol::UDP, |(kind, _)| *kind),
        &[&chain, &plain[40..]].concat(),
    )
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

#[test]
fn bad_01_chains_of_extension_headers() {
    let mut stack = stack(1, 1_500);
    let socket = open(&mut stack, "[fd09::1]:9");
    // 8 bytes: a length of 0, and a padding option of 4 bytes.
    let pad = vec![0, 1, 4, 0, 0, 0, 0];
    let of = |count: usize| vec![(DESTINATION, pad.clone()); count];
    let taken = [
        of(0),
        of(1),
        of(100),
        // All of a packet: 65,535 - 13 bytes, 8 each.
        of(8_190),
        [vec![(HOP_BY_HOP, pad.clone())], of(2)].concat(),
        // Routing that is over.
        vec![(ROUTING, vec![0, 0, 0, 0, 0, 0, 0])],
    ];
    let mut bytes = [0; 100];
    for (number, headers) in taken.iter().enumerate() {
        give(&mut stack, &chained(headers));
        let received = stack.recv_datagram(socket, &mut bytes, false);
        assert_eq!(received.map(|received| received.len), Ok(5), "chain {number}");
    }
    let dropped = [
        // Not first; to be forwarded; longer than the packet; an option that must be understood; half an
        // option.
        vec![(DESTINATION, pad.clone()), (HOP_BY_HOP, pad.clone())],
        vec![(ROUTING, vec![0, 0, 1, 0, 0, 0, 0])],
        vec![(DESTINATION, vec![255, 1, 4, 0, 0, 0, 0])],
        vec![(DESTINATION, vec![0, 0xc2, 4, 0, 0, 0, 0])],
        vec![(DESTINATION, vec![0, 1, 200, 0, 0, 0, 0])],
    ];
    let before = (live(), stack.counters().in_hdr_errors);
    for round in 0..10_000 {
        let headers = &dropped[round % dropped.len()];
        give(&mut stack, &chained(headers));
    }
    assert!(stack.recv_datagram(socket, &mut bytes, false).is_err());
    assert!(packets(&mut stack).is_empty());
    assert_eq!(stack.counters().in_hdr_errors - before.1, 10_000);
    let kept = live() - before.0;
    assert!(kept < 1_024, "{kept} bytes are kept of 10,000 packets");
}

// ---- small MTUs ----

#[test]
fn bad_02_the_least_mtus_carry_everything() {
    // RFC 791 §3.2, Linux's least segment of 48 bytes and its headers, RFC 8200 §5.
    for (mtu, families) in [(68_u16, 1), (88, 1), (1_280, 2)] {
        let (mut a, mut b) = (stack(1, mtu), stack(2, mtu));
        if mtu >= 88 {
            let (near, far) = connect(&mut a, &mut b);
            let longest = transfer((&mut a, near), (&mut b, far), 20_000, |_| ());
            assert_eq!(longest, usize::from(mtu));
        }
        for family in 0..families {
            let [from, to] = [["10.9.0.1:9", "10.9.0.2:9"], ["[fd09::1]:9", "[fd09::2]:9"]][family];
            let (sender, receiver) = (open(&mut a, from), open(&mut b, to));
            // RFC 1122 §3.3.2: 576 bytes at least; here the largest of all.
            let message: Vec<u8> = (0..65_507_usize).map(|n| (n * 11 % 253) as u8).collect();
            for len in [0, 1, 48, 49, 576, 9_000, 65_507] {
                let sent =
                    a.send_datagram(NOW, sender, Some(addr(to)), &message[..len], &SendMeta::default());
                assert_eq!(sent, Ok(()), "{len} bytes at {mtu}");
                let (longest, count) = run(&mut a, &mut b);
                let mut came = vec![0; 65_536];
                let received = b.recv_datagram(receiver, &mut came, false).unwrap();
                assert!(received.len == len && came[..len] == message[..len], "{len} bytes at {mtu}");
                assert!(longest <= usize::from(mtu));
                // What fits behind IP's header, in units of 8 bytes, and 8 of UDP's header.
                let room = if mtu == 1_280 { 1_232 } else { (usize::from(mtu) - 20) & !7 };
                let most = (len + 8).div_ceil(room);
                assert!(count <= most, "{count} packets for {len} bytes at {mtu}, not {most}");
            }
            assert_eq!(b.counters().reasm_fails, 0);
            // What waits for the device is a buffer and one datagram more, however many fragments it is: 816
            // bytes each at 68.
            for _ in 0..100 {
                _ = a.send_datagram(NOW, sender, Some(addr(to)), &message, &SendMeta::default());
            }
            let queued = a.datagram(sender).unwrap().send_queue;
            let one = 65_515_u32.div_ceil(48) * (48 + 768);
            assert!(queued <= 212_992 + one, "{queued} bytes are queued at {mtu}");
            packets(&mut a);
        }
    }
}

// ---- floods ----

#[test]
fn bad_03_a_flood_of_datagrams_beside_a_connection() {
    let (mut a, mut b) = (stack(1, 1_500), stack(2, 1_500));
    let (near, far) = connect(&mut a, &mut b);
    let (socket, mut number) = (open(&mut a, "10.9.0.1:9"), 0_u32);
    let before = live();
    let mut most = 0;
    // 100 datagrams in each round, from ever new addresses, to a socket that nobody reads, and to a port that
    // nobody has.
    let longest = transfer((&mut a, near), (&mut b, far), 3_000_000, |stack| {
        for _ in 0..50 {
            number += 1;
            let [.., x, y, z] = number.to_be_bytes();
            let from = format!("11.{x}.{y}.{z}");
            for port in [9, 10] {
                give(stack, &datagram(&from, (IpAddr::from([10, 9, 0, 1]), port).into(), &[7; 1_000]));
            }
        }
        most = most.max(stack.datagram(socket).unwrap().recv_queue);
    });
    assert_eq!(longest, 1_500);
    assert!(number > 1_000, "{number}");
    // SO_RCVBUF and one datagram, 1,768 bytes.
    assert!(most <= 212_992 + 1_768, "{most}");
    let counters = *a.counters();
    assert_eq!(counters.udp_rcvbuf_errors, u64::from(number) - 212_992_u64.div_ceil(1_768));
    // At most 50 errors at once, and no time passes.
    assert_eq!((counters.udp_no_ports, counters.icmp_out_dest_unreachs), (number.into(), 50));
    // What the connection holds is its own; the flood has a receive buffer, and 1,024 peers of whose errors
    // one is counted.
    let grown = live() - before;
    assert!(grown < 8 << 20, "{grown} bytes");
}

#[test]
fn bad_04_a_flood_of_pings_that_the_link_does_not_take() {
    let (mut a, mut b) = (stack(1, 1_500), stack(2, 1_500));
    let (near, far) = connect(&mut a, &mut b);
    let before = live();
    for number in 0..100_000_u32 {
        let [.., x, y, z] = number.to_be_bytes();
        let mut request = [&icmp::echo_request(true, number as u16)[..], &[0; 1_400]].concat();
        let (from, own) = (IpAddr::from([11, x, y, z]), IpAddr::from([10, 9, 0, 1]));
        assert!(icmp::finish_echo_request(&mut request, from, own, 7));
        give(&mut a, &packet(&from.to_string(), "10.9.0.1", protocol::ICMP, &request));
    }
    // 256 answers of 1,428 bytes.
    let grown = live() - before;
    assert!(grown < 256 * 2_048, "{grown} bytes");
    let answers = packets(&mut a);
    assert_eq!(answers.len(), 256);
    transfer((&mut a, near), (&mut b, far), 100_000, |_| ());
}

#[test]
fn bad_05_fragments_without_end_beside_a_connection() {
    let (mut a, mut b) = (stack(1, 1_500), stack(2, 1_500));
    let (near, far) = connect(&mut a, &mut b);
    let before = live();
    let (mut number, mut most) = (0_u32, 0);
    // First fragments of ever new packets, from ever new addresses; middle ones; and tiny ones.
    transfer((&mut a, near), (&mut b, far), 1_000_000, |stack| {
        for _ in 0..500 {
            number += 1;
            let [.., x, y, z] = number.to_be_bytes();
            let src = IpAddr::from([11, x, y, z]);
            let (offset, len) = [(0, 1_400), (1_400, 1_400), (64, 8)][number as usize % 3];
            let ip = IpHeader {
                src,
                dst: [10, 9, 0, 1].into(),
                protocol: protocol::UDP,
                hop_limit: 64,
                ecn: Ecn::NotEct,
                header_len: 20,
                payload_len: len,
            };
            let mut bytes = vec![0; 20];
            fragment::emit(&ip, &mut bytes, number, offset, true);
            bytes.resize(20 + len, 7);
            give(stack, &bytes);
        }
        most = most.max(live() - before);
    });
    assert!(number > 5_000, "{number}");
    // 4 MiB of fragments as they are counted, the connection's buffers, and what the allocator's callers hold
    // beside.
    assert!(most < 12 << 20, "{most} bytes");
    assert_eq!(a.counters().reasm_oks, 0);
    // Their time is over.
    let later = NOW + taut_core::Duration::from_secs(31);
    while a.poll_timeout().is_some_and(|(at, _)| at <= later) {
        a.handle_timeout(later);
    }
    let left = live() - before;
    assert!(left < 2 << 20, "{left} bytes are left of {most}");
}
