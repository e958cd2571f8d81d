//! Networks with queues in them: fairness, small queues, pacing, determinism, memory.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{ConnOptions, Duration, Instant};
use taut_link::{FqCodelSpec, FqSpec, PolicerSpec};
use taut_sim::app::{Bulk, Pause, Request, Responder, Sink, SinkStats, Stream, Web, WebServer};
use taut_sim::{
    BEGIN, Chain, Checks, Dumbbell, DumbbellSpec, Faults, HostId, HostSpec, Interest, Pair, Place, PortSpec,
    Probe, ProbeEvent, QdiscSpec, World,
};

fn to(world: &World, host: HostId, port: u16) -> SocketAddr {
    SocketAddr::new(world.host_ref(host).address().unwrap(), port)
}

fn dumbbell(world: &mut World, flows: u64, bottleneck: QdiscSpec) -> (Dumbbell, Vec<Rc<RefCell<SinkStats>>>) {
    let spec = DumbbellSpec {
        delays: (0..flows).map(|i| Duration::from_millis(2 + i)).collect(),
        bottleneck: PortSpec {
            rate: Some("100mbit".parse().unwrap()),
            qdisc: bottleneck,
            steps: Vec::new(),
            trace: None,
            policer: None,
        },
        delay: Duration::from_millis(5),
        access: "1gbit".parse().unwrap(),
        host: HostSpec::new("1gbit".parse().unwrap()),
    };
    let net = Dumbbell::new(world, &spec);
    let mut reads = Vec::new();
    for (&a, &b) in net.left.iter().zip(&net.right) {
        let sink = Sink::new(1);
        reads.push(sink.stats());
        world.app(b, sink);
        world.app(a, Bulk::new(to(world, b, 1)));
    }
    (net, reads)
}

/// Jain's index: 1 when all have the same, 1/n when one has everything.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// Bytes that each sink read between 5 and 15 seconds.
fn shares(world: &mut World, reads: &[Rc<RefCell<SinkStats>>]) -> Vec<f64> {
    world.run_until(BEGIN + Duration::from_secs(5)).unwrap();
    let before: Vec<u64> = reads.iter().map(|read| read.borrow().bytes).collect();
    world.run_until(BEGIN + Duration::from_secs(15)).unwrap();
    reads.iter().zip(before).map(|(read, before)| (read.borrow().bytes - before) as f64).collect()
}

#[test]
fn ten_flows_through_fq_are_fair_and_fill_the_line() {
    let mut world = World::new(1);
    world.check(Checks { every: 5_000 });
    let (_, reads) = dumbbell(&mut world, 10, QdiscSpec::FqCodel(FqCodelSpec::default()));
    let shares = shares(&mut world, &reads);
    // 94.15 Mbit/s of payload for ten seconds.
    let total: f64 = shares.iter().sum();
    assert!(total > 0.97 * 117_685_000.0, "{total}");
    assert!(fairness(&shares) > 0.99, "{} of {shares:?}", fairness(&shares));
}

#[test]
fn ten_flows_through_a_plain_queue_fill_the_line() {
    let mut world = World::new(1);
    world.check(Checks { every: 5_000 });
    let (net, reads) = dumbbell(&mut world, 10, QdiscSpec::Pfifo { limit: 100 });
    let shares = shares(&mut world, &reads);
    assert!(shares.iter().sum::<f64>() > 0.95 * 117_685_000.0, "{shares:?}");
    assert!(fairness(&shares) > 0.7, "{} of {shares:?}", fairness(&shares));
    let port = world.port_state(net.routers.0, net.bottleneck).unwrap();
    assert!(port.drops > 0 && port.peak_bytes <= 150_000, "{port:?}");
}

#[test]
fn small_queues_bound_what_a_host_holds_and_without_them_the_window_does() {
    let mut below = Vec::new();
    for tsq in ["rate-scaled", "fixed", "off"] {
        let mut world = World::new(1);
        world.check(Checks { every: 1_000 });
        let mut spec = HostSpec::new("100mbit".parse().unwrap());
        spec.nic.bql = None;
        let pair = Pair::new(&mut world, spec.clone(), spec, Duration::from_millis(1));
        world.stack_mut(pair.a).set_sysctl("taut.tsq", tsq).unwrap();
        world.app(pair.b, Sink::new(1));
        world.app(pair.a, Bulk::new(to(&world, pair.b, 1)));
        world.run_for(Duration::from_secs(4)).unwrap();
        below.push(world.host_ref(pair.a).peak_below());
    }
    // At most two packets and one that may exceed the limit, of 45 segments of 1500 bytes; 2012's cap is 128
    // KiB and one packet of half of that, in payload of which 1448 bytes make 1500; without a limit, a window
    // of megabytes waits in the host's queues.
    assert!(below[0] <= 3 * 45 * 1_500, "{below:?}");
    assert!(below[1] <= (131_072 + 65_536) * 1_500 / 1_448, "{below:?}");
    assert!(below[2] > 1_000_000, "{below:?}");
}

/// Departure times of data packets of more than 1000 bytes from a host's NIC.
struct Departures(HostId, Vec<Instant>);

impl Probe for Departures {
    fn interest(&self) -> Interest {
        Interest { packets: true, ..Interest::default() }
    }

    fn on(&mut self, _now: Instant, what: &ProbeEvent<'_>) {
        if let ProbeEvent::Sent { place: Place::Nic(host), packet, at } = what
            && *host == self.0
            && packet.payload_len() > 1_000
        {
            self.1.push(*at);
        }
    }
}

#[test]
fn pacing_gaps_are_the_payload_over_the_rate() {
    // 1 MB/s in packets of one segment (no TSO): 1448 bytes every 1.448 ms, by the stack's timer and by fq's.
    for fq in [false, true] {
        let mut world = World::new(1);
        world.check(Checks { every: 100 });
        let mut spec = HostSpec::new("1gbit".parse().unwrap());
        spec.nic.tso = false;
        if fq {
            let mut exact = FqSpec::default();
            exact.timer_slack = Duration::ZERO;
            spec.qdisc = QdiscSpec::Fq(exact);
        }
        let pair = Pair::new(&mut world, spec.clone(), spec, Duration::from_millis(5));
        let departures = Rc::new(RefCell::new(Departures(pair.a, Vec::new())));
        world.probe(Rc::clone(&departures));
        world.app(pair.b, Sink::new(1));
        let options = ConnOptions { max_pacing_rate: Some(1_000_000), ..ConnOptions::default() };
        world.app(pair.a, Bulk::new(to(&world, pair.b, 1)).options(options));
        world.run_for(Duration::from_secs(3)).unwrap();
        let times = &departures.borrow().1;
        assert!(times.len() > 1_900, "{}", times.len());
        // The first ten are not paced, nor are some more until the window no longer limits.
        let gaps: Vec<u64> = times[100..].windows(2).map(|pair| pair[1].since(pair[0]).as_nanos()).collect();
        let wrong = gaps.iter().filter(|&&gap| gap.abs_diff(1_448_000) > 1).count();
        assert_eq!(
            wrong,
            0,
            "fq {fq}: {:?}",
            gaps.iter().filter(|&&gap| gap.abs_diff(1_448_000) > 1).take(9).collect::<Vec<_>>()
        );
        let counts = world.counts(pair.a);
        if fq {
            assert!(counts.qdisc_timers > 1_900 && counts.timer_events < 500, "{counts:?}");
        } else {
            assert!(counts.timer_events > 1_900 && counts.qdisc_timers == 0, "{counts:?}");
        }
    }
}

/// A world with every kind of part.
fn zoo(seed: u64) -> World {
    filled(World::new(seed))
}

fn filled(mut world: World) -> World {
    let line = PortSpec {
        rate: Some("50mbit".parse().unwrap()),
        qdisc: QdiscSpec::FqCodel(FqCodelSpec::default()),
        steps: Vec::new(),
        trace: None,
        policer: None,
    };
    let host = HostSpec::new("1gbit".parse().unwrap());
    let net = Chain::new(&mut world, 3, &line, Duration::from_millis(4), "1gbit".parse().unwrap(), &host);
    let faults = Faults {
        loss: 0.002,
        jitter: Duration::from_micros(50),
        duplicate: 0.001,
        corrupt: 0.001,
        ..Faults::default()
    };
    world.set_faults(net.wires[1].0, faults);
    world.app(net.hosts[3], Sink::new(1));
    world.app(net.hosts[2], Sink::new(1));
    world.app(net.hosts[3], Responder::new(2));
    world.app(net.hosts[3], WebServer::new(3));
    let (end, near) = (to(&world, net.hosts[3], 1), to(&world, net.hosts[2], 1));
    world.app(net.hosts[0], Bulk::new(end));
    world.app(
        net.hosts[1],
        Stream::new(near).options(ConnOptions { notsent_lowat: 65_536, ..ConnOptions::default() }),
    );
    let pause = Pause { on: Duration::from_millis(200), off: Duration::from_millis(300) };
    world.app(net.hosts[0], Bulk::new(end).pause(pause));
    world.app(net.hosts[0], Bulk::new(end).write_size(100).every(Duration::from_millis(1)));
    world.app(net.hosts[0], Request::new(SocketAddr::new(end.ip(), 2)).think(Duration::from_millis(3)));
    world.app(net.hosts[1], Web::new(SocketAddr::new(end.ip(), 3)).think(Duration::from_millis(100)));
    world
}

#[test]
fn equal_seeds_are_equal_runs_and_others_are_not() {
    let run = |seed| {
        let mut world = zoo(seed);
        world.check(Checks { every: 1_000 });
        world.run_for(Duration::from_secs(5)).unwrap();
        (world.digest(), world.events(), world.lost())
    };
    let (one, again, other) = (run(1), run(1), run(2));
    assert_eq!(one, again);
    assert_ne!(one.0, other.0);
    assert!(one.2 > 0, "something was lost");
}

#[test]
fn a_run_in_pieces_is_the_same_run() {
    let mut whole = zoo(3);
    whole.run_for(Duration::from_secs(2)).unwrap();
    let mut pieces = zoo(3);
    let mut calls = 0;
    while pieces.elapsed() < Duration::from_secs(2) {
        let left = Duration::from_secs(2).saturating_sub(pieces.elapsed());
        let until = pieces.now() + left.min(Duration::from_micros(7_919));
        pieces
            .run_with(until, |progress| {
                calls += 1;
                assert!(progress.now <= progress.until);
                true
            })
            .unwrap();
    }
    assert_eq!(whole.digest(), pieces.digest());
    assert!(calls > 0);
}

#[test]
fn probes_and_checks_change_nothing() {
    struct Everything(u64);
    impl Probe for Everything {
        fn on(&mut self, _: Instant, what: &ProbeEvent<'_>) {
            self.0 += format!("{what:?}").len() as u64;
        }
    }
    let mut plain = zoo(4);
    plain.run_for(Duration::from_secs(1)).unwrap();
    let mut watched = zoo(4);
    let probe = Rc::new(RefCell::new(Everything(0)));
    watched.probe(Rc::clone(&probe));
    watched.check(Checks { every: 17 });
    watched.run_for(Duration::from_secs(1)).unwrap();
    assert_eq!(plain.digest(), watched.digest());
    assert!(probe.borrow().0 > 0);
}

/// LAB-30.
#[test]
fn lab_30_without_payload_the_run_is_the_same_and_takes_less_memory() {
    let mut bytes = zoo(5);
    let mut empty = World::new(5);
    empty.lengths_only();
    let mut lengths = filled(empty);
    for world in [&mut bytes, &mut lengths] {
        world.check(Checks { every: 1_000 });
        world.run_for(Duration::from_secs(5)).unwrap();
    }
    assert_eq!(bytes.digest(), lengths.digest());
    assert_eq!((bytes.events(), bytes.lost()), (lengths.events(), lengths.lost()));
    let (with, without) = (bytes.memory().1, lengths.memory().1);
    assert!(without * 4 < with, "{without} bytes for payload, and {with} with it");
}

#[test]
fn memory_is_bounded_by_what_is_in_flight() {
    let mut world = World::new(1);
    let (net, _) = dumbbell(&mut world, 10, QdiscSpec::Pfifo { limit: 100 });
    world.run_for(Duration::from_secs(5)).unwrap();
    let (packets, bytes) = world.memory();
    world.run_for(Duration::from_secs(20)).unwrap();
    let (later_packets, later_bytes) = world.memory();
    // 100 packets at the bottleneck, and 100 Mbit/s for the 12 to 32 ms of the path: 230 to 300 packets;
    // hosts hold a few more.
    assert!(later_packets < 2_000, "{later_packets} of {:?}", net.left.len());
    assert!(
        later_packets <= packets * 5 / 4 && later_bytes <= bytes * 2 + (1 << 20),
        "{packets} {bytes} {later_packets} {later_bytes}"
    );
}

#[test]
fn netem_at_a_port_delays_damages_and_doubles() {
    for qdisc in [
        "netem delay 20ms 1ms limit 10000 duplicate 2% corrupt 1%",
        "netem delay 5ms limit 10000 duplicate 5% corrupt 1% | netem delay 5ms 1ms limit 10000 duplicate 5%",
        "tbf rate 90mbit burst 10kb limit 150kb | netem delay 5ms duplicate 5% corrupt 1%",
    ] {
        let mut world = World::new(5);
        // Copies are made when packets come out: the checks also count those not made yet.
        world.check(Checks { every: 10 });
        let router = world.router();
        let host = HostSpec::new("100mbit".parse().unwrap());
        let (a, b) = (world.host(host.clone()), world.host(host));
        let port = PortSpec {
            rate: None,
            qdisc: qdisc.parse().unwrap(),
            steps: Vec::new(),
            trace: None,
            policer: None,
        };
        world.attach(a, router, &PortSpec::fifo("100mbit".parse().unwrap(), 100), Duration::ZERO);
        world.attach(b, router, &port, Duration::ZERO);
        let sink = Sink::new(1);
        let read = sink.stats();
        world.app(b, sink);
        world.app(a, Bulk::new(to(&world, b, 1)).total(3_000_000));
        world.run_for(Duration::from_secs(60)).unwrap();
        assert_eq!((read.borrow().bytes, read.borrow().ended), (3_000_000, 1), "{qdisc}");
        assert_eq!(world.packets_live(), 0, "{qdisc}");
        let (sent, got) = (world.counts(a).segments_out, world.counts(b).segments_in);
        assert!(got > sent, "{qdisc}: {sent} were sent and {got} came");
        let counters = world.host_ref(b).stack().counters();
        let damaged = counters.in_errs + counters.in_hdr_errors + counters.in_discards;
        assert!(damaged > 0, "{qdisc}: something was damaged");
    }
}

#[test]
fn behind_a_policer_there_is_its_rate_and_no_queue() {
    let mut world = World::new(5);
    world.check(Checks { every: 10 });
    let mut bottleneck = PortSpec::fifo("100mbit".parse().unwrap(), 1_000);
    bottleneck.policer = Some(PolicerSpec { rate: "20mbit".parse().unwrap(), burst_bytes: 50_000 });
    let spec = DumbbellSpec::new(1, "1gbit".parse().unwrap(), bottleneck, Duration::from_millis(10));
    let net = Dumbbell::new(&mut world, &spec);
    let read = net.transfer(&mut world, 0, BEGIN, ConnOptions::default());
    world.run_for(Duration::from_secs(10)).unwrap();
    // The burst, and 10 s of 2.5 MB/s; 1448 of 1538 bytes are payload.
    let most = (50_000.0 + 10.0 * 2.5e6) * 1_448.0 / 1_538.0;
    let got = read.borrow().bytes as f64;
    assert!(got <= most && got > most * 0.5, "{got} of {most}");
    let port = world.port_state(net.routers.0, net.bottleneck).unwrap();
    // A burst at 1 Gbit/s in, 100 Mbit/s out is all that ever waits.
    assert!(port.drops > 0 && port.peak_bytes <= 50_000, "{port:?}");
}

#[test]
fn netem_at_the_root_holds_nothing_against_the_sender() {
    let mut world = World::new(5);
    world.check(Checks { every: 10 });
    let mut host = HostSpec::new("100mbit".parse().unwrap());
    host.qdisc = "netem delay 20ms limit 10000".parse().unwrap();
    let pair = Pair::new(&mut world, host.clone(), host, Duration::ZERO);
    let sink = Sink::new(1);
    let read = sink.stats();
    world.app(pair.b, sink);
    world.app(pair.a, Bulk::new(to(&world, pair.b, 1)));
    world.run_for(Duration::from_secs(4)).unwrap();
    // 94 Mbit/s for the four seconds except the start. If the delay counted as a queue of the host, it would
    // be two packets every 20 ms.
    assert!(read.borrow().bytes > 35_000_000, "{}", read.borrow().bytes);
}

/// 0.5 Mbit/s over a path so short that super-packets become as large as the device takes them: `fq` sends
/// one in about a second, while the timeout is 0.2 s. What it still holds is not lost.
#[test]
fn rto_20_a_slow_flow_above_fq_sends_nothing_twice() {
    for seed in 1..=3 {
        let mut world = World::new(seed);
        world.check(Checks { every: 100 });
        let mut spec = HostSpec::new("1gbit".parse().unwrap());
        spec.qdisc = QdiscSpec::Fq(FqSpec::default());
        let pair = Pair::new(&mut world, spec.clone(), spec, Duration::from_micros(50 * seed));
        let departures = Rc::new(RefCell::new(Departures(pair.a, Vec::new())));
        world.probe(Rc::clone(&departures));
        let sink = Sink::new(1);
        let read = sink.stats();
        world.app(pair.b, sink);
        let options = ConnOptions { max_pacing_rate: Some(62_500), ..ConnOptions::default() };
        world.app(pair.a, Bulk::new(to(&world, pair.b, 1)).options(options));
        world.run_for(Duration::from_secs(30)).unwrap();
        let counters = *world.host_ref(pair.a).stack().counters();
        let sent_again = (counters.retrans_segs, counters.tcp_timeouts, counters.tcp_loss_probes);
        assert_eq!(sent_again, (0, 0, 0), "segments, timeouts, probes; seed {seed}");
        // 30 s of the rate, one super-packet more or less, and the ten segments that are not spaced.
        let bytes = read.borrow().bytes;
        assert!(bytes.abs_diff(30 * 62_500) < 65_536 + 14_480, "{bytes}");
        // Else this would show nothing: packets come more than a timeout apart.
        let times = &departures.borrow().1;
        let gaps = times.windows(2).map(|pair| pair[1].since(pair[0])).max();
        assert!(gaps > Some(Duration::from_millis(400)), "{gaps:?}");
    }
}
