//! Flow control: RFC 9293 §3.8.6, RFC 7323 §2.

use crate::support;

use support::trace::{Offer, Trace};
use support::{Faults, World, config, drain, pump};
use taut_core::{
    BufferSizes, ConnError, ConnOptions, Duration, Event, LinkCaps, ListenOptions, SetOption, StackConfig,
    State,
};

/// 3000 bytes were sent and acknowledged, 2000 more are queued, and the window is closed.
#[track_caller]
fn closed_window(mut t: Trace) -> Trace {
    t.accept(Offer::EASY);
    t.write(3_000);
    for at in [1, 1_001, 2_001] {
        expect!(t, ".", seq(at), len(1_000));
    }
    inject!(t, ".", seq(1), ack(3_001), win(0));
    t.write(2_000);
    expect_nothing!(t);
    t
}

#[test]
fn probes_back_off_and_last_as_long_as_they_are_answered() {
    // RFC 9293 §3.8.6.1: MUST-35/36, SHLD-30: first after the RTO (here its least, 200 ms), then
    // exponentially.
    let mut t = closed_window(Trace::new());
    let mut wait = 200;
    for _ in 0..40 {
        // Nothing that could be refused: a sequence number that the peer has acknowledged.
        expect!(t, ".", seq(3_000), ack(1), after_ms(wait));
        inject!(t, ".", seq(1), ack(3_001), win(0));
        expect_nothing!(t);
        wait = (wait * 2).min(120_000);
    }
    // Two windows ago would be more than an hour; the window opens, and all goes at once.
    inject!(t, ".", seq(1), ack(3_001), win(65_535));
    expect!(t, ".", seq(3_001), len(1_000));
    expect!(t, "P.", seq(4_001), len(1_000));
    inject!(t, ".", seq(1), ack(5_001), win(0));
    // When it closes again, the intervals start over.
    t.write(1_000);
    expect!(t, ".", seq(5_000), after_ms(200));
    assert_eq!(t.stack.counters().tcp_win_probe, 41);
}

#[test]
fn unanswered_probes_end_the_connection() {
    let config = StackConfig::default().with(|c| c.tcp.retries2 = 3);
    let mut t = closed_window(Trace::with(config));
    let id = t.id.unwrap();
    for wait in [200, 400, 800] {
        expect!(t, ".", seq(3_000), after_ms(wait));
    }
    expect_nothing!(t, for_ms 1_599);
    assert_eq!(t.state(), State::Established);
    expect_nothing!(t, for_ms 2);
    t.events.retain(|event| matches!(event, Event::Failed(..)));
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
}

#[test]
fn the_user_timeout_counts_from_the_first_unanswered_probe() {
    let conn = ConnOptions { user_timeout: Some(Duration::from_secs(3)), ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    inject!(t, ".", seq(1), ack(1), win(0));
    // Long silence is allowed.
    t.wait_s(1_000);
    t.write(100);
    for wait in [200, 400, 800, 1_600] {
        expect!(t, ".", seq(0), after_ms(wait));
    }
    // 2.8 s after the first probe; the next one would be 3.2 s later, but the timeout does not wait for it.
    t.wait_ms(199);
    assert_eq!(t.state(), State::Established);
    t.wait_ms(1);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
}

/// The timer of the handshake ends with it: the first probe comes an RTO after the data was written, its
/// least, 200 ms.
#[test]
fn a_window_that_was_closed_from_the_beginning_is_probed_in_time() {
    for (mut t, passive) in [(Trace::new(), true), (Trace::new(), false)] {
        let offer = Offer { win: 0, ..Offer::EASY };
        if passive {
            t.accept(offer);
        } else {
            t.establish(offer, &ConnOptions::default());
        }
        t.write(100);
        expect!(t, ".", seq(0), after_ms(200));
    }
}

/// Linux: `tcp_clamp_probe0_to_user_timeout`. It counts from the first probe, whichever is unanswered when it
/// is over.
#[test]
fn the_user_timeout_does_not_wait_for_the_next_probe() {
    for (timeout_ms, probes) in [(100, 1), (399, 1), (401, 2), (1_000, 2), (1_300, 3)] {
        let user_timeout = Some(Duration::from_millis(timeout_ms));
        let conn = ConnOptions { user_timeout, ..ConnOptions::default() };
        let mut t = Trace::new();
        t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
        inject!(t, ".", seq(1), ack(1), win(0));
        t.write(100);
        expect!(t, ".", seq(0), after_ms(200));
        let first = t.now;
        while t.conn().as_ref().error().is_none() {
            t.step(first + Duration::from_secs(100));
        }
        assert_eq!(t.now.since(first), Duration::from_millis(timeout_ms));
        assert_eq!(t.stack.counters().tcp_win_probe, probes, "{timeout_ms}");
    }
}

#[test]
fn a_small_window_is_used_after_a_while() {
    // RFC 9293 §3.8.6.2.1: less than a segment and less than half of the largest window waits, but not
    // forever: the override timeout is 0.1 to 1.0 s, or a receiver that can only offer that little would
    // never get anything.
    let mut t = closed_window(Trace::new());
    inject!(t, ".", seq(1), ack(3_001), win(400));
    expect_nothing!(t, for_ms 100);
    let mut waited = 100;
    while t.out.is_empty() && waited < 1_000 {
        t.wait_ms(10);
        waited += 10;
    }
    expect!(t, ".", seq(3_001), len(400));
    inject!(t, ".", seq(1), ack(3_401), win(400));
    while t.out.is_empty() {
        t.wait_ms(10);
    }
    expect!(t, ".", seq(3_401), len(400));
    // A full segment does not wait.
    inject!(t, ".", seq(1), ack(3_801), win(1_000));
    expect!(t, ".", seq(3_801), len(1_000));
    inject!(t, ".", seq(1), ack(4_801), win(1_000));
    expect!(t, "P.", seq(4_801), len(200));
}

#[test]
fn acks_of_a_busy_peer_do_not_put_the_override_off() {
    let mut t = closed_window(Trace::new());
    inject!(t, ".", seq(1), ack(3_001), win(400));
    let mut sent = 0;
    for round in 0..20 {
        t.wait_ms(90);
        inject!(t, ".", seq(1 + round * 10), ack(3_001), win(400), len(10));
        sent += t.out.drain(..).map(|got| got.payload.len()).sum::<usize>();
    }
    assert!(sent >= 400, "{sent} bytes in 1.8 s");
}

#[test]
fn a_window_never_larger_than_a_segment_is_used_in_halves() {
    // RFC 9293 §3.8.6.2.1 (3): half of the largest window ever offered is worth a segment.
    let mut t = Trace::accepted(Offer { win: 800, ..Offer::EASY });
    assert_eq!(t.info().snd_mss, 400);
    t.write(2_000);
    expect!(t, ".", seq(1), len(400));
    expect!(t, ".", seq(401), len(400));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(401), win(800));
    expect!(t, ".", seq(801), len(400));
}

#[test]
fn the_receiver_moves_its_window_in_segments() {
    // RFC 9293 §3.8.6.2.2: not by less than a segment, or half of the buffer.
    let conn = ConnOptions { rcvbuf: Some(5_000), ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    for at in 0..10 {
        inject!(t, ".", seq(1 + at * 1_000), ack(1), len(1_000));
    }
    t.wait_ms(500);
    assert_eq!(t.out.back().map(|got| (got.ack, got.win)), Some((10_001, 0)));
    t.out.clear();
    t.read(999);
    expect_nothing!(t);
    // Probes are answered at once, every time.
    for _ in 0..3 {
        inject!(t, ".", seq(10_001), ack(1), len(1));
        expect!(t, ".", ack(10_001), win(0));
    }
    t.read(1);
    inject!(t, ".", seq(10_001), ack(1), len(1));
    expect!(t, ".", ack(10_001), win(1_000));
    // The edge that was offered holds.
    inject!(t, ".", seq(10_001), ack(1), len(1_000));
    t.out.clear();
    // Two segments are worth telling.
    t.read(2_000);
    expect!(t, ".", ack(11_001), win(2_000));
    t.read(8_000);
    t.wait_ms(500);
    assert_eq!(t.out.back().map(|got| got.win), Some(10_000));
}

#[test]
fn a_shrinking_window_is_tolerated() {
    // RFC 9293 §3.8.6: SHLD-15, MUST-34.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(5_000);
    t.poll();
    assert_eq!(t.out.len(), 5);
    t.out.clear();
    inject!(t, ".", seq(1), ack(1_001), win(500));
    t.write(1_000);
    expect_nothing!(t, for_ms 1);
    // Nothing new leaves; data in flight keeps its timer, and the head may always be retransmitted.
    t.wait_ms(1_000);
    assert!(!t.out.is_empty());
    assert!(t.out.iter().all(|got| got.seq + got.payload.len() as u32 <= 5_001), "{:?}", t.out);
    t.out.clear();
    inject!(t, ".", seq(1), ack(5_001), win(10_000));
    expect!(t, "P.", seq(5_001), len(1_000));
}

#[test]
fn data_in_flight_into_a_closed_window_is_a_probe_too() {
    // RFC 9293 §3.8.6.1: as long as the peer answers, the connection stays open. Here it shrank its window to
    // nothing with data in flight, and drops that data.
    let config = StackConfig::default().with(|c| c.tcp.retries2 = 4);
    let mut t = Trace::with(config);
    t.accept(Offer::EASY);
    t.write(2_000);
    t.poll();
    for _ in 0..200 {
        t.out.clear();
        inject!(t, ".", seq(1), ack(1), win(0));
        t.wait_s(5);
    }
    assert_eq!(t.state(), State::Established);
    inject!(t, ".", seq(1), ack(1), win(65_535));
    t.wait_s(121);
    assert!(!t.out.is_empty());
    inject!(t, ".", seq(1), ack(2_001));
    assert_eq!(t.info().unacked, 0);
    // Silence ends it, as always.
    t.write(1_000);
    inject!(t, ".", seq(1), ack(2_001), win(0));
    t.wait_s(1_000);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
}

#[test]
fn an_old_segment_does_not_change_the_window() {
    // RFC 9293 §3.10.7.4: SND.WL1 and SND.WL2.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(2_000);
    t.poll();
    inject!(t, ".", seq(1), ack(2_001), win(5_000), len(100));
    assert_eq!(t.info().snd_wnd, 5_000);
    inject!(t, ".", seq(101), ack(1_001), win(50_000));
    assert_eq!(t.info().snd_wnd, 5_000, "an older ACK");
    inject!(t, ".", seq(101), ack(2_001), win(6_000));
    assert_eq!(t.info().snd_wnd, 6_000);
    inject!(t, ".", seq(101), ack(2_001), win(0));
    assert_eq!(t.info().snd_wnd, 0);
}

#[test]
fn the_largest_scale() {
    // RFC 7323 §2.3: 14, which is a window of a gibibyte.
    let rmem = BufferSizes { min: 4_096, initial: 131_072, max: 1 << 30 };
    let mut t = Trace::with(StackConfig::default().with(|c| c.receive.rmem = rmem));
    t.connect();
    expect!(t, "S", wscale(14), win(65_535));
    t.syn_ack(Offer { wscale: Some(14), ..Offer::EASY });
    expect!(t, ".", win(8));
    inject!(t, ".", seq(1), ack(1), win(65_535));
    assert_eq!(t.info().snd_wnd, 65_535 << 14);
    // Whole units of 16 KiB: the edge never moves left by as much (RFC 7323 §2.4).
    let mut edge = 131_072;
    for at in 0..50 {
        inject!(t, ".", seq(1 + at * 1_000), ack(1), len(1_000));
        while let Some(got) = t.out.pop_front() {
            let right_edge = got.ack + (u32::from(got.win) << 14);
            assert!(right_edge + (1 << 14) > edge, "{right_edge} after {edge}");
            edge = edge.max(right_edge);
        }
    }
}

/// Two stacks with default settings, over a link of `rate` bytes per second each way that never drops.
fn long_fat(rate: u64, rtt_ms: u64) -> World {
    let caps = LinkCaps::offloading(1_500);
    let mut world = World::with(5, config(support::A), config(support::B), caps);
    world.faults(Faults { delay: Duration::from_millis(rtt_ms / 2), rate, ..Faults::default() });
    world
}

/// Measurements of one flow over a [`long_fat`] path of 1 Gbit/s.
#[derive(Debug)]
struct Bulk {
    /// Bytes read in each round trip.
    rounds: Vec<u64>,
    /// How long the peer's window had held the sender back, when the link was first full.
    rwnd_limited_at_full: Duration,
    retrans_segs: u64,
}

/// The payload that 1 Gbit/s carries in `ms`: of a packet of 1500 bytes, 1448.
const fn gbit_payload(ms: u64) -> u64 {
    125_000 * ms * 1_448 / 1_500
}

fn bulk_over_gbit(rtt_ms: u64, rounds: usize) -> Bulk {
    let mut world = long_fat(125_000_000, rtt_ms);
    let (client, server) = world.pair();
    let (mut written, mut read) = (0, 0);
    let mut bulk = Bulk { rounds: Vec::new(), rwnd_limited_at_full: Duration::ZERO, retrans_segs: 0 };
    let mut full = false;
    for _ in 0..rounds {
        let before = read;
        let span = Duration::from_millis(rtt_ms);
        let end = world.now + span;
        world.run_until(span, |world| {
            pump_fast(world, client, &mut written);
            read += drain_fast(world, server);
            world.now >= end
        });
        bulk.rounds.push(read - before);
        full |= read - before >= gbit_payload(rtt_ms) * 9 / 10;
        if !full {
            let now = world.now;
            let info = world.stacks[0].conn(client).unwrap().info(now);
            bulk.rwnd_limited_at_full = info.rwnd_limited;
        }
    }
    bulk.retrans_segs = world.stacks[0].counters().retrans_segs;
    bulk
}

#[test]
fn autotuning_fills_a_long_fat_path_without_a_setting() {
    // 12.5 MB are on their way in 100 ms, 37.5 MB in 300 ms; both buffers begin far below.
    for rtt_ms in [1, 40, 100, 300] {
        let bulk = bulk_over_gbit(rtt_ms, 40);
        let mean = bulk.rounds[20..].iter().sum::<u64>() / 20;
        assert!(mean > gbit_payload(rtt_ms) * 95 / 100, "{rtt_ms} ms: {bulk:?}");
        // Slow start does not wait for the receiver.
        assert!(bulk.rwnd_limited_at_full.is_zero(), "{rtt_ms} ms: {bulk:?}");
        assert_eq!(bulk.retrans_segs, 0);
    }
}

/// Unread bytes at a receiver, and its buffer.
fn pinned(world: &mut World, server: taut_core::ConnId) -> (u64, u64) {
    let now = world.now;
    let info = world.stacks[1].conn(server).unwrap().info(now);
    (info.rcv_queue_bytes, u64::from(info.rcvbuf))
}

#[test]
fn a_reader_that_never_read_fast_pins_what_it_began_with() {
    let mut world = long_fat(125_000_000, 100);
    let (client, server) = world.pair();
    let mut written = 0;
    for _ in 0..50 {
        let end = world.now + Duration::from_millis(100);
        world.run_until(Duration::from_millis(100), |world| {
            pump_fast(world, client, &mut written);
            world.now >= end
        });
        // 10 kB in each round trip: less than the first window, so there is nothing to grow for.
        let now = world.now;
        let _ = world.stacks[1].conn_mut(server).unwrap().read(now, &mut [0; 10_000]);
    }
    let (unread, rcvbuf) = pinned(&mut world, server);
    assert_eq!(rcvbuf, 131_072);
    assert!(unread <= rcvbuf, "{unread}");
    assert!(unread > 60_000, "{unread}: the test should have filled it");
}

#[test]
fn a_fast_reader_that_stops_pins_no_more_than_its_maximum_and_gives_all_back() {
    const MAX: u32 = 20_000_000;
    let mut server_config = config(support::B);
    server_config.receive.rmem.max = MAX;
    let caps = LinkCaps::offloading(1_500);
    let mut world = World::with(5, config(support::A), server_config, caps);
    let delay = Duration::from_millis(50);
    world.faults(Faults { delay, rate: 125_000_000, ..Faults::default() });
    let (client, server) = world.pair();
    let (mut written, mut read) = (0, 0);
    for reading in [true, false] {
        let end = world.now + Duration::from_secs(3);
        world.run_until(Duration::from_secs(3), |world| {
            pump_fast(world, client, &mut written);
            if reading {
                read += drain_fast(world, server);
            }
            world.now >= end
        });
    }
    let (unread, rcvbuf) = pinned(&mut world, server);
    assert_eq!(rcvbuf, u64::from(MAX), "twice of 12.5 MB is more than it may have");
    // The field counts in units of 512 bytes: the edge may lie one such beyond the buffer (RFC 7323 §2.4).
    assert!(unread > u64::from(MAX) * 9 / 10 && unread < u64::from(MAX) + 512, "{unread}");
    assert_eq!(drain_fast(&mut world, server), unread);
    assert_eq!(pinned(&mut world, server).0, 0);
}

#[test]
fn win_04_a_window_that_was_not_used_for_long_is_not_used_at_once() {
    // RFC 5681 §4.1: no more than the initial window after idleness of more than an RTO, here 200 ms; RFC
    // 2861: cwnd halves for each. Linux: `tcp_slow_start_after_idle`.
    for (slow_start_after_idle, idle_ms, expected) in
        [(true, 150, 30), (true, 30_000, 10), (false, 30_000, 30)]
    {
        let config =
            StackConfig::default().with(|c| c.congestion.slow_start_after_idle = slow_start_after_idle);
        let mut t = Trace::with(config);
        let conn = ConnOptions { sndbuf: Some(200_000), ..ConnOptions::default() };
        t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
        // Slow start: ten segments, each acknowledged, make twenty.
        t.write(20_000);
        t.poll();
        assert_eq!(t.out.len(), 10);
        for at in 1..=20 {
            inject!(t, ".", seq(1), ack(1 + at * 1_000));
        }
        assert_eq!((t.info().unacked, t.info().snd_cwnd), (0, 30));
        t.out.clear();
        t.wait_ms(idle_ms);
        t.write(30_000);
        t.poll();
        assert_eq!(t.out.len(), expected, "{slow_start_after_idle} {idle_ms}");
    }
}

/// Also when the data waited for the peer's window: the RTO of 200 ms counts from the last data that was
/// sent.
#[test]
fn win_04_a_window_that_opens_after_a_long_time_is_not_used_at_once() {
    for (closed_ms, expected) in [(150, 30), (30_000, 10)] {
        let mut t = Trace::new();
        let conn = ConnOptions { sndbuf: Some(200_000), ..ConnOptions::default() };
        t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
        t.write(20_000);
        t.poll();
        for at in 1..=19 {
            inject!(t, ".", seq(1), ack(1 + at * 1_000));
        }
        inject!(t, ".", seq(1), ack(20_001), win(0));
        assert_eq!((t.info().unacked, t.info().snd_cwnd), (0, 30));
        t.out.clear();
        t.write(30_000);
        let end = t.now + Duration::from_millis(closed_ms);
        while t.step(end) {
            if t.out.pop_front().is_some() {
                // The peer answers each probe.
                inject!(t, ".", seq(1), ack(20_001), win(0));
            }
        }
        t.out.clear();
        inject!(t, ".", seq(1), ack(20_001), win(65_000));
        assert_eq!(t.out.len(), expected, "{closed_ms}");
    }
}

/// Writes zeroes as long as there is room.
fn pump_fast(world: &mut World, id: taut_core::ConnId, written: &mut u64) {
    static ZEROES: [u8; 65_536] = [0; 65_536];
    let now = world.now;
    let mut conn = world.stacks[0].conn_mut(id).unwrap();
    while let Ok(count) = conn.write(now, &ZEROES) {
        *written += count as u64;
    }
}

/// Reads everything and returns how much that was.
fn drain_fast(world: &mut World, id: taut_core::ConnId) -> u64 {
    let now = world.now;
    let mut conn = world.stacks[1].conn_mut(id).unwrap();
    let mut read = 0;
    while let Ok(chunk) = conn.chunk() {
        let len = chunk.len();
        conn.consume(now, len);
        read += len as u64;
    }
    read
}

#[test]
fn a_slow_reader_closes_the_window_and_nothing_stalls() {
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        for loss in [0, 20] {
            let mut world = World::with(7, config(support::A), config(support::B), caps);
            world.faults(Faults { loss, ..Faults::default() });
            let (client, server) = world.pair();
            let (mut written, mut read, mut closed) = (0, 0_u64, 0);
            let start = world.now;
            while read < 1_500_000 {
                pump(&mut world, 0, client, &mut written, 1_500_000);
                world.run_for(Duration::from_millis(20));
                let now = world.now;
                let info = world.stacks[0].conn(client).unwrap().info(now);
                closed += u32::from(info.snd_wnd < 1_448);
                let mut buffer = [0; 15_000];
                // 750 kB/s. Sometimes it stops altogether.
                if now.since(start).as_millis() % 1_000 < 700
                    && let Ok(count) = world.stacks[1].conn_mut(server).unwrap().read(now, &mut buffer)
                {
                    for &byte in &buffer[..count] {
                        assert_eq!(byte, support::pattern(read));
                        read += 1;
                    }
                }
                assert!(now.since(start) < Duration::from_secs(60), "{read} bytes; {info:?}");
            }
            assert!(closed > 0, "the window was closed at times");
            assert!(!drain(&mut world, 1, server, &mut read));
        }
    }
}

/// What a queue of this host drops was sent as far as the user is concerned: the timeout runs from the first
/// attempt, which are 200 ms, 400 ms, 800 ms … apart (Linux: `tcp_probe_timer` counts them, too).
#[test]
fn what_this_host_drops_is_given_up_in_time() {
    let conn = ConnOptions { user_timeout: Some(Duration::from_secs(3)), ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    t.drop_all = true;
    let begin = t.now;
    t.write(100);
    t.wait_ms(2_900);
    let waits: Vec<u64> = t.dropped_at.iter().map(|at| at.since(begin).as_millis()).collect();
    assert_eq!(waits, [0, 200, 600, 1_400]);
    assert_eq!(t.state(), State::Established);
    t.wait_ms(200);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut), "3.0 s after the first attempt");
    // Without a user timeout, tcp_retries2 attempts.
    let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.retries2 = 3));
    t.accept(Offer::EASY);
    t.drop_all = true;
    t.write(100);
    t.wait_ms(1_399);
    assert_eq!((t.dropped_at.len(), t.state()), (3, State::Established));
    t.wait_ms(2);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
}

/// An application that goes on writing makes no attempts that count: the fourth one is due after 200 + 400 +
/// 800 ms, as without the writes.
#[test]
fn writes_that_this_host_drops_do_not_use_up_the_attempts() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.retries2 = 3));
    t.accept(Offer::EASY);
    t.drop_all = true;
    for _ in 0..39 {
        t.write(100);
        t.poll();
        t.wait_ms(35);
    }
    assert_eq!(t.state(), State::Established, "{:?} after 1365 ms", t.dropped_at.len());
    t.wait_ms(37);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
}

/// An attempt that gets through, and is answered, ends the count.
#[test]
fn attempts_that_this_host_drops_are_forgotten_with_the_first_answer() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.retries2 = 3));
    t.accept(Offer::EASY);
    for round in 0..5 {
        t.drop_all = true;
        t.write(100);
        t.wait_ms(1_000);
        assert_eq!(t.dropped_at.len(), 3 * (round + 1));
        t.drop_all = false;
        let at = 1 + 100 * round as u32;
        expect!(t, "P.", seq(at), len(100), after_ms(400));
        inject!(t, ".", seq(1), ack(at + 100));
    }
    assert_eq!(t.state(), State::Established);
}

/// A write between two attempts gets through, while more data waits for the window: the timer of the
/// attempts, due 200 ms after the first, asks for nothing then. What is in flight has a timer of its own, 200
/// ms after it left (RFC 6298 §5.1), and an ACK of it opens the window.
#[test]
fn an_attempt_that_gets_through_needs_no_probe_of_the_window() {
    let mut t = Trace::new();
    t.accept(Offer { win: 100, ..Offer::EASY });
    t.drop_all = true;
    t.write(50);
    t.wait_ms(50);
    t.drop_all = false;
    t.write(100);
    expect!(t, ".", seq(1), len(100));
    expect_nothing!(t, for_ms 199);
    assert_eq!(t.stack.counters().tcp_win_probe, 0);
    inject!(t, ".", seq(1), ack(101), win(100));
    expect!(t, "P.", seq(101), len(50));
}

/// Retransmissions that this host drops count as retransmissions.
#[test]
fn retransmissions_that_this_host_drops_are_given_up_in_time() {
    let conn = ConnOptions { user_timeout: Some(Duration::from_secs(3)), ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    t.write(100);
    expect!(t, "P.", seq(1), len(100));
    t.drop_all = true;
    // A tail loss probe is due after 200 ms, and the first timeout 200 ms later.
    t.wait_ms(3_399);
    assert_eq!(t.state(), State::Established);
    t.wait_ms(2);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
}

#[test]
fn the_least_receive_buffer_can_be_used() {
    // Linux: SOCK_MIN_RCVBUF, 2304; and two units of the window field, here of 2^12.
    let mut t = Trace::new();
    t.accept(Offer::EASY);
    let now = t.now;
    for bytes in [0, 1, 1_000] {
        t.conn().set_option(now, SetOption::Rcvbuf(bytes)).unwrap();
        assert_eq!(t.info().rcvbuf, 2_304);
    }
    // `rmem_max` of 64 MiB, doubled as in Linux, is the most.
    t.conn().set_option(now, SetOption::Rcvbuf(u32::MAX)).unwrap();
    assert_eq!(t.info().rcvbuf, 128 << 20);
    let conn = ConnOptions { rcvbuf: Some(0), ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    assert_eq!(t.info().rcvbuf, 2_304);

    let mut world = World::new(3);
    let (client, server) = world.pair();
    let now = world.now;
    world.stacks[1].conn_mut(server).unwrap().set_option(now, SetOption::Rcvbuf(0)).unwrap();
    let (mut written, mut read) = (0, 0);
    for _ in 0..20_000 {
        pump(&mut world, 0, client, &mut written, 300_000);
        drain(&mut world, 1, server, &mut read);
        if read == 300_000 || !world.step(now + Duration::from_secs(3_600)) {
            break;
        }
    }
    assert_eq!(read, 300_000);
}

#[test]
fn arr_08_a_bare_fin_is_taken_at_a_closed_window() {
    // It needs no room. Linux 6.18, measured.
    let full = || {
        let mut t = Trace::new();
        let conn = ConnOptions { rcvbuf: Some(10_000), ..ConnOptions::default() };
        t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
        let room = t.info().rcv_wnd;
        for at in (0..room).step_by(1_000) {
            inject!(t, ".", seq(1 + at), ack(1), len(1_000.min(room - at) as usize));
        }
        t.wait_ms(1_000);
        t.out.clear();
        assert_eq!(t.info().rcv_wnd, 0);
        (t, room)
    };
    let (mut t, room) = full();
    inject!(t, "F.", seq(1 + room), ack(1));
    assert_eq!(t.state(), State::CloseWait);
    expect!(t, ".", ack(2 + room), win(0), after_ms(40));
    t.read(room as usize);
    assert_eq!(t.try_read(), Ok(0));
    // Not behind data for which there is no room, nor beyond the window.
    for (at, len) in [(0, 100), (1, 0)] {
        let (mut t, room) = full();
        inject!(t, "F.", seq(1 + room + at), ack(1), len(len));
        expect!(t, ".", ack(1 + room), win(0));
        assert_eq!(t.state(), State::Established);
    }
}

#[test]
fn mem_17_a_hole_that_is_never_filled_gains_nothing() {
    let mut t = Trace::new();
    t.accept(Offer { wscale: Some(7), mss: Some(1_460), ..Offer::EASY });
    let mut next = 1_461;
    for _ in 0..1_000 {
        if next + 1_460 <= 1 + t.info().rcv_wnd {
            inject!(t, ".", seq(next), ack(1), len(1_460));
            next += 1_460;
        }
        t.wait_ms(1);
    }
    assert!(t.info().rcv_ooo_bytes > 120_000);
    assert_eq!(t.info().rcvbuf, 131_072);
}
