//! UDP flows and ping over a cable: results that can be computed exactly.

use std::net::SocketAddr;

use taut_core::Duration;
use taut_sim::app::{Bulk, Ping, Sink, UdpFlow, UdpSink};
use taut_sim::{Checks, HostSpec, Pair, World};

fn world(rate: &str) -> (World, Pair) {
    let mut world = World::new(1);
    let host = || HostSpec::new(rate.parse().unwrap());
    let pair = Pair::new(&mut world, host(), host(), Duration::from_millis(10));
    world.check(Checks { every: 100 });
    (world, pair)
}

fn address(world: &World, pair: &Pair, port: u16) -> SocketAddr {
    SocketAddr::new(world.host_ref(pair.b).address().unwrap(), port)
}

#[test]
fn a_constant_flow_arrives_with_a_constant_delay() {
    let (mut world, pair) = world("100mbit");
    let sink = UdpSink::new(5_000);
    let received = sink.stats();
    world.app(pair.b, sink);
    // 1000 bytes each millisecond: 8 Mbit/s.
    let flow = UdpFlow::new(address(&world, &pair, 5_000), 1_000, Duration::from_millis(1));
    let sent = flow.stats();
    world.app(pair.a, flow);
    world.run_for(Duration::from_secs(2)).unwrap();
    let (sent, received) = (sent.borrow(), received.borrow());
    assert_eq!((sent.refused, received.reordered), (0, 0));
    // Ten of them are on their way: 10 ms of propagation.
    assert!((10..=12).contains(&(sent.sent - received.received)), "{} {}", sent.sent, received.received);
    assert!((1_999..=2_001).contains(&sent.sent));
    // 1000 + 28 bytes, and 38 on the line, at 80 ns each.
    let exact = Duration::from_nanos(10_000_000 + 1_066 * 80);
    assert!(received.delays.iter().all(|&delay| delay == exact), "{:?}", &received.delays[..3]);
}

#[test]
fn a_flow_with_pauses_sends_in_its_share_of_the_time() {
    let (mut world, pair) = world("100mbit");
    world.app(pair.b, UdpSink::new(5_000));
    let flow = UdpFlow::new(address(&world, &pair, 5_000), 1_000, Duration::from_millis(1))
        .on_off(Duration::from_millis(100), Duration::from_millis(300));
    let sent = flow.stats();
    world.app(pair.a, flow);
    world.run_for(Duration::from_secs(4)).unwrap();
    assert!((998..=1_002).contains(&sent.borrow().sent), "{}", sent.borrow().sent);
}

#[test]
fn a_ping_takes_the_time_of_the_cable() {
    let (mut world, pair) = world("100mbit");
    let ping = Ping::new(address(&world, &pair, 0), Duration::from_millis(100));
    let stats = ping.stats();
    world.app(pair.a, ping);
    world.run_for(Duration::from_secs(1)).unwrap();
    let stats = stats.borrow();
    assert!((9..=11).contains(&stats.round_trips.len()), "{}", stats.round_trips.len());
    // 64 + 20 bytes, and 38 on the line, at 80 ns each, and twice 10 ms.
    let exact = Duration::from_nanos(20_000_000 + 2 * 122 * 80);
    assert!(stats.round_trips.iter().all(|&round_trip| round_trip == exact), "{:?}", stats.round_trips);
}

#[test]
fn a_flow_beside_a_connection_loses_nothing_in_its_host() {
    let (mut world, pair) = world("10mbit");
    world.app(pair.b, Sink::new(5_001));
    world.app(pair.a, Bulk::new(address(&world, &pair, 5_001)));
    let sink = UdpSink::new(5_000);
    let received = sink.stats();
    world.app(pair.b, sink);
    // A tenth of the line.
    let flow = UdpFlow::new(address(&world, &pair, 5_000), 1_000, Duration::from_millis(8));
    let sent = flow.stats();
    world.app(pair.a, flow);
    world.run_for(Duration::from_secs(4)).unwrap();
    let (sent, received) = (sent.borrow(), received.borrow());
    assert_eq!(sent.refused, 0);
    assert!(sent.sent - received.received < 50, "{} of {}", received.received, sent.sent);
}
