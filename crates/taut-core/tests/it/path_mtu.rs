//! The size of segments on paths that carry less than their ends believe: RFC 1191, RFC 4821, RFC 8899.

use crate::support;

use support::trace::{Offer, Seg, Trace};
use support::{Faults, World, config, drain, pump};
use taut_core::{Algorithm, ConnId, ConnInfo, ConnOptions, Duration, LinkCaps, ListenOptions, StackConfig};
use taut_wire::Unreachable;

/// A path of 20 ms and `rate` bytes per second that silently drops packets longer than `mtu`.
fn silent(mtu: usize, probing: u8, rate: u64) -> World {
    let sender = config(support::A).with(|c| {
        c.set_sysctl("tcp_mtu_probing", &probing.to_string()).unwrap();
        c.congestion.control = Algorithm::reno();
    });
    let mut world = World::with(7, sender, config(support::B), LinkCaps::plain(1_500));
    world.faults(Faults { delay: Duration::from_millis(10), rate, ..Faults::default() });
    world.filter = Some(Box::new(move |from, bytes| from == 0 && bytes.len() > mtu));
    world
}

/// Sends `len` bytes and says how long that took.
fn send(world: &mut World, (client, server): (ConnId, ConnId), len: u64, limit_s: u64) -> Option<Duration> {
    let (start, mut written, mut read) = (world.now, 0, 0);
    let done = world.run_until(Duration::from_secs(limit_s), |world| {
        pump(world, 0, client, &mut written, len);
        drain(world, 1, server, &mut read);
        read == len
    });
    done.then(|| world.now.since(start))
}

fn info(world: &mut World, id: ConnId) -> ConnInfo {
    let now = world.now;
    world.stacks[0].conn(id).unwrap().info(now)
}

#[test]
fn a_black_hole_is_left() {
    for mtu in [1_499, 1_400, 1_280, 1_080, 600] {
        let mut world = silent(mtu, 1, 1_250_000);
        let pair = world.pair();
        let took = send(&mut world, pair, 3_000_000, 60).expect("it gets through");
        // RTO of 220 ms, doubled: the fourth timeout comes after 3.3 s. Then 1.25 MB/s; a hole deeper than
        // the base costs another timeout of 3.5 s.
        let limit = if mtu < 1_024 + 52 { 14 } else { 8 };
        assert!(took < Duration::from_secs(limit), "{mtu}: {took:?}");
        let found = info(&mut world, pair.0).pmtu as usize;
        assert!(found <= mtu && mtu - found < 8, "{found} of {mtu}");
        let counters = world.stacks[0].counters();
        assert!(counters.mtu_black_holes > 0 && counters.tcp_mtup_fail > 0, "{mtu}: {counters:?}");
        // Less than the threshold above the base there is nothing to find.
        assert!(counters.tcp_mtup_success > 0 || mtu == 1_080, "{mtu}: {counters:?}");
    }
}

/// TSQ-6: with one packet unacknowledged, no later event would resume the connection. A small queue of a byte
/// is full with the packet whose completion never comes.
#[test]
fn tsq_06_a_retransmission_of_the_only_packet_is_let_through() {
    let config = StackConfig::default().with(|c| {
        c.send.tsq = taut_core::TsqMode::RateScaled;
        c.send.limit_output_bytes = 1;
        c.send.autocorking = false;
    });
    let mut t = Trace::with(config);
    t.accept(Offer::EASY);
    t.hold_tickets = true;
    t.write(1_000);
    let stranded = expect!(t, "P.", seq(1), len(1_000));
    inject!(t, ".", seq(1), ack(1_001));
    assert_eq!(t.stack.counters().tsq_exempt, 0);
    t.write(1_000);
    let second = expect!(t, "P.", seq(1_001), len(1_000));
    assert_eq!(t.stack.counters().tsq_exempt, 1);
    let now = t.now;
    let ticket = t.tickets.pop_back().unwrap();
    t.stack.handle_tx(now, ticket, taut_core::Fate::Left);
    // The path carries 576 bytes: both packets of the second write wait for nothing but that.
    t.inject_icmp(Unreachable::FragmentationNeeded { mtu: 576 }, &second.bytes);
    expect!(t, ".", seq(1_001), len(536));
    assert_eq!((t.stack.counters().retrans_segs, t.stack.counters().tsq_exempt), (1, 2));
    assert_eq!(stranded.payload.len(), 1_000);
}

#[test]
fn without_probing_a_black_hole_is_for_ever() {
    let mut world = silent(1_400, 0, 1_250_000);
    let pair = world.pair();
    assert_eq!(send(&mut world, pair, 100_000, 100), None);
    assert_eq!(info(&mut world, pair.0).pmtu, 1_500);
}

#[test]
fn who_searches_from_the_beginning_meets_no_timeout_and_probes_reduce_nothing() {
    for mtu in [1_500, 1_400, 1_280, 1_100] {
        // No queue: one that grows by a half in each round trip has timeouts of its own.
        let mut world = silent(mtu, 2, 0);
        let pair = world.pair();
        let took = send(&mut world, pair, 3_000_000, 60).expect("it gets through");
        // Slow start and probes take some 20 round trips of 20 ms: no pause.
        assert!(took < Duration::from_secs(1), "{mtu}: {took:?}");
        let info = info(&mut world, pair.0);
        let found = info.pmtu as usize;
        assert!(found <= mtu && mtu - found < 8, "{found} of {mtu}");
        // Losing a probe is not congestion: slow start goes on.
        assert_eq!(info.snd_ssthresh, u32::MAX, "{mtu}");
        let counters = world.stacks[0].counters();
        assert_eq!(counters.tcp_timeouts, 0, "{mtu}: {counters:?}");
        // Each lost probe is retransmitted in two pieces, and nothing else is retransmitted.
        assert!(counters.retrans_segs <= 2 * counters.tcp_mtup_fail, "{counters:?}");
    }
}

#[test]
fn an_outage_costs_the_size_of_segments_only_for_a_while() {
    const LEN: u64 = 3_000_000;
    let mut world = silent(1_500, 1, 1_250_000);
    let (client, server) = world.pair();
    let lost = std::rc::Rc::new(std::cell::Cell::new(false));
    let filter = lost.clone();
    world.filter = Some(Box::new(move |_, _| filter.get()));
    let (mut written, mut read, mut began) = (0, 0, None);
    let done = world.run_until(Duration::from_secs(60), |world| {
        if read >= 100_000 {
            // Nothing at all arrives for six seconds: that looks like a black hole.
            let began = *began.get_or_insert(world.now);
            lost.set(world.now.since(began) < Duration::from_secs(6));
        }
        pump(world, 0, client, &mut written, LEN);
        drain(world, 1, server, &mut read);
        read == LEN
    });
    assert!(done, "it gets through");
    assert!(world.stacks[0].counters().mtu_black_holes > 0);
    // The first probe has the full size, and arrives.
    assert_eq!(info(&mut world, client).pmtu, 1_500);
    assert_eq!(world.stacks[0].counters().tcp_mtup_fail, 0);
}

#[test]
fn what_a_router_said_is_forgotten_after_ten_minutes() {
    let mut t = Trace::accepted(Offer::ALL);
    t.write(2_896);
    let first = expect!(t, ".", seq(1), len(1_448));
    t.inject_icmp(Unreachable::FragmentationNeeded { mtu: 1_000 }, &first.bytes);
    assert_eq!(t.info().snd_mss, 948);
    t.out.clear();
    inject!(t, ".", seq(1), ack(2_897));
    t.out.clear();
    t.wait_s(599);
    t.write(1_000);
    expect!(t, ".", seq(2_897), len(948));
    t.out.clear();
    inject!(t, ".", seq(1), ack(3_897));
    t.out.clear();
    t.wait_s(2);
    // Linux: `mtu_expires`. If the link is still as it was, its router says so again.
    t.write(2_896);
    expect!(t, ".", seq(3_897), len(1_448));
}

/// A connection that searches from the beginning, with a peer whose window field says `window`: cwnd is 12,
/// eight segments of `tcp_base_mss` are in flight, and next comes a probe. Below eleven none leaves, so ten
/// segments went before.
fn about_to_probe(window: u16) -> Trace {
    let config = StackConfig::default().with(|c| c.set_sysctl("tcp_mtu_probing", "2").unwrap());
    let mut t = Trace::with(config);
    let conn = ConnOptions { sndbuf: Some(200_000), ..ConnOptions::default() };
    t.accept_with(Offer::ALL, ListenOptions { conn, ..ListenOptions::default() });
    t.write(40_000);
    for at in 0..10 {
        expect!(t, ".", seq(1 + at * 1_024), len(1_024));
    }
    t.inject_unpolled(&Seg::new(".").seq(1).ack(1 + 2_048).win(window));
    t
}

#[test]
fn a_probe_waits_for_the_window_to_have_room() {
    // The peer's window is 80 · 128 = 10,240 bytes, of which 8,192 are in flight: not room for a probe and
    // four segments behind it, which make 5,544. Nothing smaller takes that room away (Linux: `tcp_mtu_probe`
    // says wait).
    let mut t = about_to_probe(80);
    expect_nothing!(t);
    t.inject(&Seg::new(".").seq(1).ack(1 + 10_240).win(80));
    expect!(t, ".", seq(10_241), len(1_448));
}

#[test]
fn a_black_hole_is_suspected_after_more_than_retries1_timeouts() {
    // Linux: `tcp_retries1` is 3.
    let mut t = Trace::with(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false));
    t.accept(Offer::ALL);
    t.write(1_448);
    for (timeouts, mss) in [(1, 1_448), (2, 1_448), (3, 1_448), (4, 1_024)] {
        while t.stack.counters().tcp_timeouts < timeouts {
            t.wait_ms(50);
        }
        assert_eq!(t.info().snd_mss, mss, "after {timeouts}");
    }
}

/// An outage is as long on every path: what counts is 3 s, the time of three retransmissions with an RTO of
/// 200 ms (Linux: `tcp_model_timeout`), reckoned from 200 ms before the first timeout.
#[test]
fn rto_24_a_black_hole_is_suspected_after_as_much_time_on_every_path() {
    for (rto_us, timeouts) in [("5000", 7..=11), ("1000000", 3..=3), ("2000000", 2..=2), ("40000000", 2..=2)]
    {
        let config = StackConfig::default().with(|c| {
            c.recovery.tail_loss_probes = false;
            c.set_sysctl("net.ipv4.tcp_rto_min_us", rto_us).unwrap();
        });
        let mut t = Trace::with(config);
        t.accept(Offer::ALL);
        t.write(1_448);
        let (mut first, mut n) = (None, 0);
        while t.info().snd_mss == 1_448 {
            t.wait_ms(1);
            if t.stack.counters().tcp_timeouts > n {
                n += 1;
                let since = t.now.since(*first.get_or_insert(t.now)).as_millis();
                assert_eq!(t.info().snd_mss == 1_024, since >= 2_800, "{rto_us}: {n}, {since} ms");
            }
        }
        assert!(timeouts.contains(&n), "{rto_us}: {n}");
    }
}

/// The probe is under way, and one segment behind it: one, not two in one, of the size that the handshake
/// agreed on.
fn probing() -> Trace {
    let mut t = about_to_probe(65_535);
    expect!(t, ".", seq(10_241), len(1_448));
    expect!(t, ".", seq(11_689), len(1_024));
    t.poll();
    t.out.clear();
    t
}

#[test]
fn a_probe_that_is_lost_alone_costs_nothing() {
    let mut t = probing();
    inject!(t, ".", seq(1), ack(10_241));
    t.out.clear();
    let (cwnd, ssthresh) = (t.info().snd_cwnd, t.info().snd_ssthresh);
    inject!(t, ".", seq(1), ack(10_241), sack(&[(11_689, 11_689 + 3 * 1_024)]));
    // At once, in segments that fit, and with the window that was.
    expect!(t, ".", seq(10_241), len(1_024));
    expect!(t, ".", seq(11_265), len(424));
    assert_eq!((t.info().snd_ssthresh, t.info().retrans), (ssthresh, 2));
    assert!(t.info().snd_cwnd >= cwnd);
    assert_eq!(t.stack.counters().tcp_mtup_fail, 1);
}

#[test]
fn a_probe_that_is_found_lost_late_costs_nothing_either() {
    let mut t = probing();
    inject!(t, ".", seq(1), ack(10_241));
    t.out.clear();
    // Two segments above it prove nothing yet: the timer for reordering does (RFC 8985 §6.2 step 5).
    inject!(t, ".", seq(1), ack(10_241), sack(&[(11_689, 11_689 + 2 * 1_024)]));
    t.out.clear();
    t.wait_ms(20);
    assert_eq!(t.out.front().map(|got| (got.seq, got.payload.len())), Some((10_241, 1_024)));
    assert_eq!((t.stack.counters().tcp_mtup_fail, t.info().snd_ssthresh), (1, u32::MAX));
}

#[test]
fn a_probe_that_is_lost_with_others_tells_nothing() {
    // RFC 4821 §7.6.1: that is congestion, and the window is reduced.
    // With the segment before it, and with the one behind it.
    for (ack, arrived) in [(9_217, 11_689), (10_241, 12_713)] {
        let mut t = probing();
        inject!(t, ".", seq(1), ack(ack));
        t.out.clear();
        inject!(t, ".", seq(1), ack(ack), sack(&[(arrived, arrived + 3 * 1_024)]));
        assert_eq!((t.info().ca_state, t.stack.counters().tcp_mtup_fail), ("recovery", 0), "{ack}");
        assert_ne!(t.info().snd_ssthresh, u32::MAX);
    }
}

#[test]
fn a_probe_that_arrives_makes_segments_larger_and_the_window_no_larger() {
    let mut t = probing();
    // Nine segments in slow start: cwnd is 12 + 9 segments of 1024 bytes. RFC 4821 §7.3: as many bytes
    // afterwards.
    inject!(t, ".", seq(1), ack(11_689));
    let info = t.info();
    assert_eq!((info.snd_mss, t.stack.counters().tcp_mtup_success), (1_448, 1));
    assert_eq!(info.snd_cwnd, 21 * 1_024 / 1_448);
}

#[test]
fn a_probe_that_is_selectively_acknowledged_has_arrived() {
    let mut t = probing();
    inject!(t, ".", seq(1), ack(1 + 2_048), sack(&[(10_241, 11_689)]));
    assert_eq!((t.info().snd_mss, t.stack.counters().tcp_mtup_success), (1_448, 1));
}

#[test]
fn a_probe_that_the_device_refused_is_offered_again() {
    // Linux (`tcp_mtu_probe`): a packet that was not sent is not remembered as a probe.
    let mut t = about_to_probe(65_535);
    assert_eq!(t.refuse(), 1_448);
    expect!(t, ".", seq(10_241), len(1_448));
    expect!(t, ".", seq(11_689), len(1_024));
    inject!(t, ".", seq(1), ack(11_689));
    assert_eq!((t.info().snd_mss, t.stack.counters().tcp_mtup_success), (1_448, 1));
}

/// A probe says once what became of it: ACKs and timeouts that come later count nothing, and change no size.
#[test]
fn the_fate_of_a_probe_is_learned_once() {
    // (it arrives, what is acknowledged then, successes and failures)
    for (sacked, fates) in [(None, (1, 0)), (Some((11_689, 14_761)), (0, 1))] {
        let mut t = probing();
        inject!(t, ".", seq(1), ack(10_241));
        match sacked {
            None => inject!(t, ".", seq(1), ack(11_689)),
            Some(block) => inject!(t, ".", seq(1), ack(10_241), sack(&[block])),
        }
        let counts = |t: &Trace| (t.stack.counters().tcp_mtup_success, t.stack.counters().tcp_mtup_fail);
        let (size, pmtu) = (t.info().snd_mss, t.info().pmtu);
        assert_eq!(counts(&t), fates);
        for ack in [11_689, 12_713, 13_737] {
            t.poll();
            inject!(t, ".", seq(1), ack(ack));
        }
        while t.stack.counters().tcp_timeouts == 0 {
            t.step(t.now + Duration::from_secs(100));
        }
        assert_eq!((counts(&t), t.info().snd_mss, t.info().pmtu), (fates, size, pmtu));
    }
}
