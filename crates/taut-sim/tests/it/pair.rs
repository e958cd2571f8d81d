//! Two hosts and a cable: results that can be computed exactly.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::Duration;
use taut_sim::app::{Bulk, BulkStats, Request, Responder, Sink, SinkStats};
use taut_sim::{Checks, HostSpec, Pair, World};

fn host(rate: &str) -> HostSpec {
    HostSpec::new(rate.parse().unwrap())
}

fn address(world: &World, pair: &Pair, port: u16) -> SocketAddr {
    SocketAddr::new(world.host_ref(pair.b).address().unwrap(), port)
}

fn bulk(world: &mut World, pair: &Pair, total: u64) -> (Rc<RefCell<SinkStats>>, Rc<RefCell<BulkStats>>) {
    let sink = Sink::new(5001);
    let read = sink.stats();
    world.app(pair.b, sink);
    let to = address(world, pair, 5001);
    let app = Bulk::new(to).total(total);
    let wrote = app.stats();
    world.app(pair.a, app);
    (read, wrote)
}

#[test]
fn one_flow_fills_the_link() {
    let mut world = World::new(1);
    let pair = Pair::new(&mut world, host("100mbit"), host("100mbit"), Duration::from_millis(10));
    world.check(Checks { every: 1_000 });
    let (read, _) = bulk(&mut world, &pair, u64::MAX);
    world.run_for(Duration::from_secs(2)).unwrap();
    let before = read.borrow().bytes;
    world.run_for(Duration::from_secs(4)).unwrap();
    let bytes = read.borrow().bytes - before;
    // 1448 payload bytes in 1538 on the line: 94.15 Mbit/s, 47,074,122 bytes in 4 s.
    let most = 100_000_000 / 8 * 4 * 1_448 / 1_538;
    assert!(bytes <= most + 65_536 && bytes as f64 > 0.98 * most as f64, "{bytes} of {most}");
}

#[test]
fn a_round_trip_is_propagation_and_serialisation() {
    let mut world = World::new(1);
    let pair = Pair::new(&mut world, host("100mbit"), host("100mbit"), Duration::from_millis(10));
    world.check(Checks::ALWAYS);
    world.app(pair.b, Responder::new(7).sizes(1_000, 100));
    let app =
        Request::new(address(&world, &pair, 7)).sizes(1_000, 100).count(50).think(Duration::from_millis(5));
    let stats = app.stats();
    world.app(pair.a, app);
    world.run_for(Duration::from_secs(5)).unwrap();
    let stats = stats.borrow();
    assert_eq!(stats.latencies.len(), 50);
    // 1052 + 38 bytes in one direction and 152 + 38 in the other at 80 ns each, and twice 10 ms. There is one
    // NIC between two hosts.
    let exact = Duration::from_nanos((1_090 + 190) * 80 + 20_000_000);
    // The first request has the handshake's ACK in front of it on the line, and its own ACK in front of its
    // response: 52 + 38 bytes each.
    let first = exact + Duration::from_nanos(2 * 90 * 80);
    assert_eq!(stats.latencies[0], first);
    assert!(stats.latencies[1..].iter().all(|&latency| latency == exact), "{:?}", stats.latencies);
}

#[test]
fn a_transfer_ends_in_good_order() {
    let mut world = World::new(3);
    let pair = Pair::new(&mut world, host("1gbit"), host("1gbit"), Duration::from_millis(1));
    world.check(Checks { every: 100 });
    let (read, wrote) = bulk(&mut world, &pair, 10_000_000);
    world.run_for(Duration::from_secs(5)).unwrap();
    assert_eq!((read.borrow().bytes, read.borrow().ended), (10_000_000, 1));
    assert!(wrote.borrow().closed.is_some(), "{wrote:?}");
    assert_eq!(world.packets_live(), 0, "everything has arrived");
    let counts = world.counts(pair.a);
    assert_eq!(counts.bytes_written, 10_000_000);
    assert!(counts.packets_out < counts.segments_out, "super-packets were cut");
    assert_eq!(world.host_ref(pair.a).stack().counters().retrans_segs, 0);
}
