//! A flood of SYNs at a busy host, with a processor that takes its time.

use std::net::Ipv4Addr;

use taut_core::Duration;
use taut_sim::app::{Bulk, Sink};
use taut_sim::{CpuModel, HostSpec, Pair, Rng, World};
use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol, raw};

/// A SYN from somewhere.
fn syn(rng: &mut Rng) -> Vec<u8> {
    let tcp = TcpHeader {
        src_port: 1 + rng.below(60_000) as u16,
        dst_port: 9,
        seq: rng.next() as u32,
        flags: Flags::SYN,
        window: 65_535,
        ..TcpHeader::default()
    };
    let src = Ipv4Addr::from_bits(0x1400_0000 + rng.below(1 << 24) as u32);
    let ip = IpHeader {
        src: src.into(),
        dst: Ipv4Addr::new(10, 0, 0, 2).into(),
        protocol: protocol::TCP,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len: tcp.header_len(),
    };
    let mut bytes = vec![0; 20 + tcp.header_len()];
    let at = ip.emit(&mut bytes, 0);
    tcp.emit(&mut bytes[at..]);
    raw::complete(&mut bytes);
    bytes
}

/// Bytes that arrive in a second over 1 Gbit/s and 2 ms with this many SYNs beside them, and those of a
/// client that connects in the middle of the flood. A packet takes the processor 1 µs each way, and a thread
/// switch 2 µs.
fn goodput(syns_per_ms: u64) -> (u64, u64) {
    let mut world = World::new(5);
    let mut host = HostSpec::new("1gbit".parse().unwrap());
    let us = Duration::from_micros;
    host.cpu = CpuModel {
        interrupt: us(1),
        rx_packet: us(1),
        tx_packet: us(1),
        context_switch: us(2),
        ..CpuModel::default()
    };
    let pair = Pair::new(&mut world, host.clone(), host, Duration::from_millis(1));
    let sink = Sink::new(9);
    let read = sink.stats();
    world.app(pair.b, sink);
    let to = (world.host_ref(pair.b).address().unwrap(), 9).into();
    world.app(pair.a, Bulk::new(to));
    world.run_for(Duration::from_millis(500)).unwrap();
    let before = read.borrow().bytes;
    let mut rng = Rng::new(1);
    for ms in 0..1_000 {
        if ms == 500 {
            world.app(pair.a, Bulk::new(to).total(10_000));
        }
        for _ in 0..syns_per_ms {
            world.inject(pair.b, &syn(&mut rng));
        }
        world.run_for(Duration::from_millis(1)).unwrap();
    }
    let flows = &read.borrow().flows;
    let second = flows.get(1).map_or(0, |(_, bytes)| *bytes);
    (read.borrow().bytes - second - before, second)
}

/// 100,000 SYNs a second: traffic that was there keeps at least 80 % of its goodput, and a client gets in.
#[test]
fn atk_21_a_syn_flood_leaves_room_for_others() {
    let (quiet, client) = goodput(0);
    assert_eq!(client, 10_000);
    // 1 Gbit/s carries 117.7 MB of payload in a second.
    assert!(quiet > 110_000_000, "{quiet}");
    let (flooded, client) = goodput(100);
    assert!(flooded >= quiet / 5 * 4, "{flooded} of {quiet}");
    assert_eq!(client, 10_000, "the client in the middle of the flood");
}
