//! A host's behaviour and counts: interrupts, wake-ups, a busy core, IPv4 and IPv6.

use std::net::SocketAddr;

use taut_core::{ConnOptions, Duration};
use taut_link::{FqCodelSpec, Rate};
use taut_sim::app::{Bulk, Request, Responder, Sink, Stream};
use taut_sim::{BEGIN, Checks, CpuModel, HostSpec, Pair, QdiscSpec, World};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// A transfer of `bytes` at a gigabit over 100 µs, between hosts changed by `change`. It is complete when
/// this returns.
fn transfer(bytes: u64, change: impl Fn(&mut HostSpec)) -> (World, Pair) {
    let mut world = World::new(1);
    world.check(Checks { every: 50 });
    let mut spec = HostSpec::new(rate("1gbit"));
    change(&mut spec);
    let pair = Pair::new(&mut world, spec.clone(), spec, Duration::from_micros(50));
    let sink = Sink::new(1);
    let read = sink.stats();
    world.app(pair.b, sink);
    let to = SocketAddr::new(world.host_ref(pair.b).address().unwrap(), 1);
    world.app(pair.a, Bulk::new(to).total(bytes));
    world.run_for(Duration::from_secs(20)).unwrap();
    assert_eq!((read.borrow().bytes, read.borrow().ended), (bytes, 1));
    (world, pair)
}

#[test]
fn six_is_as_good_as_four() {
    let mut world = World::new(1);
    world.check(Checks { every: 10 });
    let with = |address: &str| {
        let mut spec = HostSpec::new(rate("100mbit"));
        spec.config.addresses = vec![address.parse().unwrap()];
        spec
    };
    let pair = Pair::new(&mut world, with("fd00::1"), with("fd00::2"), Duration::from_millis(2));
    world.app(pair.b, Responder::new(1));
    let client = Request::new("[fd00::2]:1".parse().unwrap()).count(100);
    let stats = client.stats();
    world.app(pair.a, client);
    let sink = Sink::new(2);
    let read = sink.stats();
    world.app(pair.b, sink);
    world.app(pair.a, Bulk::new("[fd00::2]:2".parse().unwrap()).total(1_000_000));
    world.run_for(Duration::from_secs(10)).unwrap();
    assert_eq!((stats.borrow().latencies.len(), read.borrow().bytes), (100, 1_000_000));
    assert!(world.counts(pair.a).segments_out > world.counts(pair.a).packets_out);
}

#[test]
fn interrupts_are_collected_by_time_and_by_number() {
    let bytes = 20_000_000;
    let plain = transfer(bytes, |_| {});
    let slow = transfer(bytes, |spec| {
        (spec.nic.rx_usecs, spec.nic.tx_usecs) = (Duration::from_micros(100), Duration::from_micros(100));
    });
    let both = transfer(bytes, |spec| {
        (spec.nic.rx_usecs, spec.nic.rx_frames) = (Duration::from_micros(100), 4);
        (spec.nic.tx_usecs, spec.nic.tx_frames) = (Duration::from_micros(100), 1);
    });
    let receiver = |(world, pair): &(World, Pair)| world.counts(pair.b);
    let sender = |(world, pair): &(World, Pair)| world.counts(pair.a);
    // An interrupt for each segment; at most one in 100 µs, of which 20 MB at a gigabit take 1,700; one for
    // four segments.
    assert_eq!(receiver(&plain).rx_interrupts, receiver(&plain).segments_in);
    assert!(receiver(&slow).rx_interrupts < 1_900, "{:?}", receiver(&slow));
    let quarter = receiver(&both).segments_in / 4;
    assert!(receiver(&both).rx_interrupts.abs_diff(quarter) < quarter / 10, "{:?}", receiver(&both));
    // Segments collected for one interrupt are merged, and merged packets are acknowledged less often.
    assert_eq!(receiver(&plain).packets_in, receiver(&plain).segments_in);
    assert!(receiver(&slow).packets_in * 4 < receiver(&slow).segments_in, "{:?}", receiver(&slow));
    assert!(receiver(&slow).acks_out * 2 < receiver(&plain).acks_out);
    assert!(sender(&slow).tx_interrupts < 1_900, "{:?}", sender(&slow));
    assert_eq!(sender(&both).tx_interrupts, sender(&both).completions);
}

#[test]
fn a_host_that_answers_each_packet_sends_more_acks() {
    let acks = |batched| {
        let (world, pair) = transfer(20_000_000, |spec| {
            spec.nic.rx_usecs = Duration::from_micros(200);
            spec.batched = batched;
        });
        world.counts(pair.b).acks_out
    };
    assert!(acks(false) > acks(true) * 5 / 4);
}

#[test]
fn a_core_takes_its_time() {
    // One request at a time takes two interrupts, two ways up and two context switches, and waits for nothing
    // else.
    let mut world = World::new(1);
    world.check(Checks::ALWAYS);
    let mut spec = HostSpec::new(rate("1gbit"));
    spec.cpu = CpuModel {
        interrupt: Duration::from_micros(3),
        rx_packet: Duration::from_micros(5),
        context_switch: Duration::from_micros(7),
        ..CpuModel::default()
    };
    let pair = Pair::new(&mut world, spec.clone(), spec, Duration::from_micros(100));
    world.app(pair.b, Responder::new(1));
    let to = SocketAddr::new(world.host_ref(pair.b).address().unwrap(), 1);
    let client = Request::new(to).count(50).think(Duration::from_millis(1));
    let stats = client.stats();
    world.app(pair.a, client);
    world.run_for(Duration::from_secs(1)).unwrap();
    // 53 bytes plus 38 of overhead at 8 ns, 100 µs, and 15 µs of work, twice.
    let exact = Duration::from_nanos(2 * (91 * 8 + 100_000 + 15_000));
    // The first request finds the responder awake: it was just notified of the connection.
    let latencies = stats.borrow().latencies[1..].to_vec();
    assert_eq!(latencies.len(), 49);
    // Requests that shared the core with no other work, such as an ACK or its completion.
    let undisturbed = latencies.iter().filter(|&&latency| latency == exact).count();
    assert!(
        undisturbed > 25,
        "{undisturbed} of {exact:?}: {:?}",
        latencies.iter().map(|l| l.as_nanos()).collect::<Vec<_>>()
    );
    assert!(
        latencies.iter().all(|&latency| latency >= exact),
        "none was faster than {exact:?}: {latencies:?}"
    );
}

#[test]
fn a_slow_core_bounds_the_throughput_and_polls() {
    let (fast, _) = transfer(5_000_000, |_| {});
    let (slow, pair) = transfer(5_000_000, |spec| {
        spec.cpu = CpuModel {
            interrupt: Duration::from_micros(10),
            rx_segment: Duration::from_micros(50),
            ..CpuModel::default()
        };
    });
    drop(fast);
    let counts = slow.counts(pair.b);
    // 3454 segments at 50 µs.
    assert!(counts.busy >= Duration::from_micros(3_453 * 50), "{counts:?}");
    assert!(
        counts.rx_interrupts < counts.segments_in,
        "segments that came while it was busy were handled together: {counts:?}"
    );
}

#[test]
fn wake_ups_are_counted_where_they_happen() {
    let mut world = World::new(1);
    let spec = HostSpec::new(rate("100mbit"));
    let pair = Pair::new(&mut world, spec.clone(), spec, Duration::from_millis(5));
    world.app(pair.b, Sink::new(1));
    let to = SocketAddr::new(world.host_ref(pair.b).address().unwrap(), 1);
    let app = Stream::new(to).options(ConnOptions { notsent_lowat: 131_072, ..ConnOptions::default() });
    let stats = app.stats();
    world.app_at(pair.a, BEGIN + Duration::from_millis(100), app);
    world.run_for(Duration::from_secs(3)).unwrap();
    let stats = stats.borrow();
    let counts = world.counts(pair.a);
    // It was woken at its start, when connected, and each time that it could write.
    assert_eq!(counts.wakeups, stats.wakeups + 2);
    assert_eq!(counts.context_switches, 2 * counts.wakeups, "from idle and back");
    // 11.77 MB/s for 2.9 s, at least 64 KB per wake-up.
    assert!((200..521).contains(&stats.wakeups), "{stats:?}");
    assert_eq!(counts.bytes_written, stats.written);
}

#[test]
fn a_root_queue_that_drops_tells_the_stack() {
    let mut codel = FqCodelSpec::default();
    codel.limit = 4;
    for qdisc in
        [QdiscSpec::Pfifo { limit: 3 }, QdiscSpec::Bfifo { limit: 20_000 }, QdiscSpec::FqCodel(codel)]
    {
        let (world, pair) = transfer(5_000_000, |spec| {
            spec.qdisc = qdisc.clone();
            spec.config.send.tsq = taut_core::TsqMode::Off;
        });
        assert!(world.counts(pair.a).dropped > 0, "{qdisc:?}");
    }
}
