//! Statements TSQ-M1 to M14 and M19 to M25 of docs/send-path.md, on a device in virtual time: a line that
//! sends one packet after the other, and completions that come at once, in batches, or late in any order.
//! Connections always have data.

use super::*;
use crate::egress::blocked::Blocked;
use crate::egress::small_queue::{Ask, Pass, measured_gate as gate};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

const MSS: u32 = 1_448;
/// A gigabit, in bytes of payload per second, and a hundredth of it.
const FAST: u64 = 125_000_000;
const SLOW: u64 = 1_250_000;
const MS: u64 = 1_000_000;
/// `tcp_limit_output_bytes`.
const CAP: u32 = 4 << 20;

/// A packet: handed over and reported at these times, in nanoseconds, by a connection.
#[derive(Clone, Copy)]
struct Packet {
    handed: u64,
    told: u64,
    bytes: u32,
    conn: usize,
}

struct World {
    meter: Meter,
    conns: Vec<Metered>,
    /// As in the stack: connections that may send, and those that wait for their turn.
    ready: VecDeque<usize>,
    line: VecDeque<usize>,
    rate: u64,
    /// Completions are collected for so long, and each is late by up to this.
    collected: u64,
    late: u64,
    /// The host is away for `away.1` at most, `away.0` after it was the last time, on the average.
    away: (u64, u64),
    back: u64,
    leaves: u64,
    /// The line is a token bucket: it makes good up to so much idle time, by sending at once.
    burst: u64,
    /// Whether the connections have data for more than two packets in flight.
    has_much: bool,
    /// Bytes that the windows let be below.
    window: u64,
    now: u64,
    out: Vec<Packet>,
    /// Bytes of each connection.
    sent: Vec<u64>,
    /// When the line has sent everything, how long it was idle, and the time of the next interrupt.
    idle_at: u64,
    idle: u64,
    interrupt: u64,
    /// The most below, and the most time that a look took.
    most: u64,
    looked: u64,
    random: u64,
}

impl World {
    fn new(rate: u64, collected: u64, late: u64, conns: usize) -> Self {
        Self {
            meter: Meter::default(),
            conns: alloc::vec![Metered::default(); conns],
            ready: (0..conns).collect(),
            line: VecDeque::new(),
            rate,
            collected,
            late,
            away: (0, 0),
            back: 0,
            leaves: 0,
            burst: 0,
            has_much: true,
            window: u64::MAX,
            now: MS,
            out: Vec::new(),
            sent: alloc::vec![0; conns],
            idle_at: MS,
            idle: 0,
            interrupt: 0,
            most: 0,
            looked: 0,
            random: 1,
        }
    }

    /// The next connection to ask, and whether it is its turn.
    fn next(&mut self) -> Option<(usize, bool)> {
        if let Some(conn) = self.ready.pop_front() {
            return Some((conn, false));
        }
        while self.meter.is_open() {
            let conn = self.line.pop_front()?;
            if self.meter.give_turn(&mut self.conns[conn]) {
                return Some((conn, true));
            }
        }
        None
    }

    /// Every connection hands over what the gate lets through, round robin.
    fn fill(&mut self) {
        while let Some((conn, is_turn)) = self.next() {
            let (device, own) = (self.meter.device(), self.conns[conn]);
            let limit = device.limit(MSS, CAP).into();
            let window = u32::try_from(self.window / 4 / u64::from(MSS)).unwrap_or(u32::MAX);
            let bytes = device.segs(MSS, limit).min(45).min(window) * MSS;
            let is_full = self.meter.device.below + u64::from(bytes) > self.window;
            if is_full || !self.has_much && self.out.len() >= 2 {
                self.ready.push_front(conn);
                return;
            }
            let ask = Ask { own, payload: bytes, mss: MSS, limit, is_retransmission: false };
            if gate(device, ask).is_err() {
                self.meter.on_wait(&mut self.conns[conn]);
                if self.conns[conn].joins() {
                    if is_turn { self.line.push_front(conn) } else { self.line.push_back(conn) }
                }
                continue;
            }
            self.meter.on_handed(&mut self.conns[conn], bytes, MSS);
            self.sent[conn] += u64::from(bytes);
            let since = self.now - self.burst.min(self.now);
            self.idle += since.saturating_sub(self.idle_at);
            self.idle_at = self.idle_at.max(since) + u64::from(bytes) * 1_000_000_000 / self.rate;
            let left = self.idle_at.max(self.now);
            if left >= self.interrupt {
                self.interrupt = left + self.collected;
            }
            let late = if self.late == 0 { 0 } else { self.random() % self.late };
            self.out.push(Packet { handed: self.now, told: self.interrupt + late, bytes, conn });
            self.ready.push_back(conn);
        }
        self.most = self.most.max(self.meter.device.below);
    }

    /// When the host sees what happens at `at`.
    fn when_here(&mut self, at: u64) -> u64 {
        let (between, most) = self.away;
        while most > 0 && at >= self.leaves {
            self.back = self.leaves + self.random() % most;
            self.leaves = self.back + self.random() % (2 * between);
        }
        at.max(self.back)
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        if self.now >= self.back {
            self.fill();
        }
        while let Some(told) = self.out.iter().map(|packet| packet.told).min() {
            let next = self.when_here(told).max(self.now);
            if next >= end {
                break;
            }
            if matches!(self.meter.phase, Phase::Look { .. }) {
                self.looked += next - self.now;
            }
            self.now = next;
            let mut i = 0;
            while i < self.out.len() {
                if self.out[i].told <= next {
                    let Packet { handed, bytes, conn, .. } = self.out.remove(i);
                    let [now, handed] = [next, handed].map(Instant::from_nanos);
                    self.meter.on_completed(&mut self.conns[conn], now, handed, bytes);
                } else {
                    i += 1;
                }
            }
            self.fill();
        }
        self.now = end;
    }

    /// Runs for so long and returns the share of it in which the line was busy, and the most that was below.
    fn busy(&mut self, ms: u64) -> (f64, u64) {
        (self.idle, self.most) = (0, 0);
        self.run(ms);
        (1.0 - self.idle as f64 / (ms * MS) as f64, self.most)
    }

    fn limit(&self) -> f64 {
        f64::from(self.meter.device.limit)
    }
}

fn segs(device: Device) -> u32 {
    device.segs(MSS, device.limit(MSS, CAP).into())
}

/// Bytes that this rate brings in so many microseconds.
fn bytes(rate: u64, us: u64) -> f64 {
    (rate * us / 1_000_000) as f64
}

#[test]
fn tsq_m1_at_once_is_half_a_millisecond() {
    for rate in [FAST, FAST / 10, 10 * FAST] {
        let mut world = World::new(rate, 0, 0, 1);
        world.run(1_000);
        let (busy, most) = world.busy(3_000);
        assert!(busy > 0.999, "{rate}: {busy}");
        let expected = bytes(rate, 500) + f64::from(MSS);
        assert!((world.limit() / expected - 1.0).abs() < 0.01, "{rate}: {}", world.limit());
        assert!(most as f64 <= expected * 1.01, "{rate}: {most}");
    }
}

#[test]
fn tsq_m2_collected_completions_add_their_time() {
    for us in [100, 500, 4_000] {
        let mut world = World::new(FAST, us * 1_000, 0, 1);
        world.run(2_000);
        let (busy, most) = world.busy(20_000);
        assert!(busy > 0.995, "{us}: {busy}");
        // A batch ends with a packet of at most a quarter of a millisecond, and at the time of that.
        assert!(most as f64 <= bytes(FAST, us + 1_000), "{us}: {most}");
        let time = world.meter.time().unwrap().as_nanos() / 1_000;
        assert!(us < 500 || (us * 9 / 10..=us + 500).contains(&time), "{us}: {time}");
    }
}

#[test]
fn tsq_m3_a_slow_line_has_two_packets_of_one_segment() {
    let mut world = World::new(SLOW, 0, 0, 1);
    world.run(2_000);
    assert_eq!(world.busy(2_000), (1.0, 2 * u64::from(MSS)));
    assert_eq!(segs(world.meter.device()), 1);
}

#[test]
fn tsq_m4_late_in_any_order() {
    for (rate, us) in [(FAST, 1_000), (FAST, 4_000), (FAST / 10, 1_000)] {
        let mut world = World::new(rate, 0, us * 1_000, 1);
        world.run(3_000);
        let (busy, most) = world.busy(20_000);
        assert!(busy > 0.995, "{rate} {us}: {busy}");
        assert!(most as f64 <= bytes(rate, us + 1_000), "{rate} {us}: {most}");
    }
}

/// An eighth of the tickets must have overtaken others, rounded down: 9 of 72, and of 79.
#[test]
fn tsq_m4_a_few_that_overtake_others_are_no_disorder() {
    for (packets, overtaken, expected) in [(72, 8, false), (72, 9, true), (79, 8, false), (79, 9, true)] {
        let start = Instant::from_nanos(MS);
        let span = Span {
            bytes: 72 * u64::from(MSS),
            packets,
            overtaken,
            rounds: ROUNDS - 1,
            round_over: true,
            ..Span::new(start, false)
        };
        let mut meter = Meter { at: Instant::from_nanos(3 * MS), span, ..Meter::default() };
        let (sample, _) = meter.sample().unwrap();
        assert_eq!(sample.overtakes, expected, "{overtaken} of {packets}");
    }
}

#[test]
fn tsq_m5_one_line_for_all() {
    let device = Device { limit: 60_000, below: 50_000, packet: 30_000, ..Device::NOTHING };
    let ask = |device: Device, bits, payload| {
        let limit = device.limit(MSS, CAP).into();
        let own = Metered { bits };
        gate(device, Ask { own, payload, mss: MSS, limit, is_retransmission: false }).is_ok()
    };
    assert!(ask(device, 5_000, 10_000) && !ask(device, 5_000, 10_001), "nobody waits");
    let line = Device { waiting: 3, ..device };
    assert!(ask(line, 5_000 | TURN, 10_000) && !ask(line, 5_000 | TURN, 10_001), "its turn");
    assert!(!ask(line, 5_000, MSS), "not its turn");
    assert!(!ask(line, WAITS, MSS), "it waits");
    // One that has nothing there and does not wait passes the line with a segment, and a segment beyond the limit.
    let full = Device { below: 60_000, ..line };
    assert!(ask(full, 0, MSS) && !ask(full, 0, MSS + 1));
    assert!(!ask(Device { below: 60_001, ..full }, 0, MSS));
    assert!(!ask(Device { passed: 60_000, ..full }, 0, MSS), "those that wait come first now");
    // Eight share a line of 125 MB/s to a packet each.
    let mut world = World::new(FAST, 0, 0, 8);
    world.run(3_000);
    let (least, most) = (world.sent.iter().min().unwrap(), world.sent.iter().max().unwrap());
    assert!(most - least <= 2 * 45 * u64::from(MSS), "{:?}", world.sent);
}

/// A connection that sends little passes the line with as many bytes as the limit, then a turn comes first,
/// and then it may pass again: what it sent while nobody waited, and the packet of a turn itself, do not
/// count.
#[test]
fn tsq_m5_what_passes_the_line_counts_until_the_next_turn() {
    let mut meter = Meter::default();
    let [mut first, mut second, mut sparse] = [Metered::default(); 3];
    meter.on_handed(&mut sparse, 300, MSS);
    assert_eq!(meter.device().passed, 0, "nobody waits");
    for waiting in [&mut first, &mut second] {
        meter.on_wait(waiting);
        assert!(waiting.joins());
    }
    for passed in [300, 600] {
        meter.on_handed(&mut sparse, 300, MSS);
        assert_eq!(meter.device().passed, passed);
    }
    assert!(meter.give_turn(&mut first));
    meter.on_handed(&mut first, 1_000, MSS);
    assert_eq!((meter.device().passed, meter.device().waiting), (0, 1));
}

#[test]
fn tsq_m6_super_packets_are_half_of_what_is_above_the_completion_time() {
    // A quarter of a millisecond of 125 MB/s is 31,250 bytes, 21 segments.
    let mut world = World::new(FAST, 500_000, 0, 1);
    world.run(3_000);
    assert_eq!(segs(world.meter.device()), 21);
    let device = Device { limit: 8 * MSS, packet: 10 * MSS, ..Device::NOTHING };
    assert_eq!(segs(device), 4, "half of the limit");
    assert_eq!(segs(Device { limit: 3 * MSS, ..device }), 1, "less than tcp_min_tso_segs");
}

#[test]
fn tsq_m7_the_limit_doubles_while_that_helps() {
    let mut world = World::new(FAST, 4_000_000, 0, 1);
    assert_eq!(world.meter.device().limit(MSS, CAP), 32_768);
    // Four doublings bring 32 KiB to what 4 ms take; each is seen after a few of these, of 5 ms at most.
    world.run(400);
    let limit = world.limit();
    assert!(limit > bytes(FAST, 4_000) && limit < bytes(FAST, 5_000), "{limit}");
}

#[test]
fn tsq_m8_later_completions_are_noticed() {
    for rate in [FAST, SLOW] {
        let mut world = World::new(rate, 0, 0, 1);
        world.run(2_000);
        world.collected = 4 * MS;
        world.run(2_000);
        let (busy, _) = world.busy(2_000);
        assert!(busy > 0.99, "{rate}: {busy}");
        // And earlier ones, with the next look: a minute and a half later on the slow line.
        world.collected = 0;
        world.run(120_000);
        let (_, most) = world.busy(1_000);
        assert!(most as f64 <= bytes(rate, 1_000).max(2.0 * f64::from(MSS)), "{rate}: {most}");
    }
}

#[test]
fn tsq_m9_a_slower_line_has_less() {
    let mut world = World::new(FAST, 0, 0, 1);
    world.run(2_000);
    world.rate = FAST / 10;
    world.run(1_000);
    let (busy, most) = world.busy(1_000);
    assert!(busy > 0.999 && most as f64 <= bytes(FAST / 10, 510) + f64::from(MSS), "{busy} {most}");
    world.rate = FAST;
    world.run(1_000);
    assert!(world.busy(1_000).0 > 0.999);
}

/// After a look, in which the line was idle now and then, a token bucket sends faster than its rate for a
/// moment. That is not its rate, and the end of it is no slower device.
#[test]
fn tsq_m23_a_token_bucket_after_a_look() {
    for (rate, us, burst_ms) in [(FAST / 10, 500, 5), (FAST / 10, 500, 20), (FAST, 4_000, 5), (FAST, 500, 50)]
    {
        let mut world = World::new(rate, us * 1_000, 0, 1);
        world.burst = burst_ms * MS;
        world.run(3_000);
        world.looked = 0;
        let (busy, most) = world.busy(20_000);
        assert!(busy > 0.995, "{rate} {us} {burst_ms}: {busy}");
        assert!(most as f64 <= bytes(rate, us + 1_000), "{rate} {us} {burst_ms}: {most}");
        assert!(world.looked < 20_000 * MS / 400, "{rate} {us} {burst_ms}: {} ms", world.looked / MS);
    }
}

#[test]
fn tsq_m10_only_the_limit_itself_is_measured() {
    let mut world = World::new(FAST, 0, 0, 1);
    world.has_much = false;
    world.run(5_000);
    assert_eq!((world.meter.time(), world.meter.device().limit), (None, 32_768));
    // Nor does a measured one change.
    world.has_much = true;
    world.run(2_000);
    let before = world.meter.device().limit;
    world.has_much = false;
    world.rate = FAST / 100;
    world.run(5_000);
    assert_eq!(world.meter.device().limit, before);
}

/// The application pauses during a look: the limit is what it was before, and the next look comes a second later.
#[test]
fn tsq_m10_a_look_that_is_interrupted_says_nothing() {
    let mut world = World::new(FAST, 4 * MS, 0, 1);
    world.run(5_000);
    let is_looking = |world: &World| matches!(world.meter.phase, Phase::Look { .. });
    let (mut before, mut waited) = (0, 0);
    while !is_looking(&world) {
        before = world.meter.device().limit;
        world.run(1);
        waited += 1;
        assert!(waited < 60_000, "no look within a minute");
    }
    let low = world.meter.device().limit;
    assert!(low <= before / 3, "{low} {before}");
    world.has_much = false;
    world.run(50);
    let after = world.meter.device().limit;
    assert!(!is_looking(&world) && after.abs_diff(before) <= before / 8, "{after} {before}");
    world.has_much = true;
    for ms in 0..900 {
        assert!(!is_looking(&world), "{ms} ms later");
        world.run(1);
    }
}

#[test]
fn tsq_m11_what_is_gone_counts_no_more() {
    let mut meter = Meter::default();
    let (mut one, mut two) = (Metered::default(), Metered::default());
    meter.on_handed(&mut one, 5_000, MSS);
    meter.on_handed(&mut one, 6_000, MSS);
    meter.on_handed(&mut two, 7_000, MSS);
    meter.on_wait(&mut one);
    assert_eq!((meter.device.below, meter.device.waiting), (18_000, 1));
    meter.take_back(&mut one, 6_000);
    assert_eq!(meter.device.below, 12_000, "refused");
    meter.on_gone(&mut one);
    assert_eq!((meter.device.below, meter.device.waiting), (7_000, 0), "closed");
    meter.on_completed(&mut two, Instant::from_nanos(5), Instant::from_nanos(4), 7_000);
    assert_eq!(meter.device.below, 0);
    // Tickets that never come back, while a connection waits.
    meter.on_handed(&mut two, 8_000, MSS);
    meter.on_handed(&mut two, 8_000, MSS);
    let at = |ms: u64| Instant::from_nanos(5 + ms * MS);
    meter.on_overdue(at(199));
    assert_eq!(meter.device().below, 16_000);
    meter.on_overdue(at(200));
    assert_eq!(meter.device().below, 0);
    meter.on_handed(&mut two, 5_000, MSS);
    assert_eq!(meter.device().below, 5_000);
    // They do after all.
    for bytes in [8_000, 5_000, 8_000] {
        meter.on_completed(&mut two, at(300), at(1), bytes);
    }
    assert_eq!((meter.device().below, meter.lost), (0, 0));
}

#[test]
fn tsq_m12_a_packet_counts_before_it_is_sent() {
    let ask = |below, bits, payload, is_retransmission| {
        let device = Device { limit: 15_000, below, packet: 8_000, ..Device::NOTHING };
        gate(device, Ask { own: Metered { bits }, payload, mss: MSS, limit: 15_000, is_retransmission })
    };
    assert_eq!(ask(10_000, 10_000, 5_000, false), Ok(Pass::Room));
    assert_eq!(ask(10_000, 10_000, 5_001, false), Err(Blocked::SmallQueue));
    assert_eq!(ask(0, 0, 20_000, false), Ok(Pass::Room), "the only one");
    assert_eq!(
        ask(10_000, WAITS, 20_000, true),
        Ok(Pass::Room),
        "a retransmission: twice the limit, no line"
    );
    assert_eq!(ask(10_000, WAITS, 20_001, true), Err(Blocked::SmallQueue));
}

#[test]
fn tsq_m13_looks_are_rare() {
    for us in [500, 4_000] {
        let mut world = World::new(FAST, us * 1_000, 0, 1);
        world.run(5_000);
        world.looked = 0;
        world.run(200_000);
        assert!(world.looked > 0);
        // One in 513; the last pause may still last.
        assert!(world.looked <= 200_000 * MS / 400, "{us}: {}", world.looked);
    }
}

#[test]
fn tsq_m14_many_connections_have_no_more_than_one() {
    for conns in [8, 100] {
        for rate in [FAST, FAST / 10, SLOW] {
            let mut world = World::new(rate, 0, 0, conns);
            world.run(5_000);
            let (busy, most) = world.busy(3_000);
            let expected = (bytes(rate, 500) + f64::from(MSS)).max(2.0 * f64::from(MSS));
            assert!(busy > 0.999 && most as f64 <= expected * 1.01, "{conns} {rate}: {busy} {most}");
        }
    }
}

#[test]
fn tsq_m19_the_cap_is_on_top_of_the_completion_time() {
    let device = Device { limit: 60_000, needed: 40_000, packet: 10_000, ..Device::NOTHING };
    assert_eq!(device.limit(MSS, CAP), 60_000);
    assert_eq!(device.limit(MSS, 5_000), 45_000);
    assert_eq!(Device { needed: 0, ..device }.limit(MSS, 1_000), 2 * MSS, "two segments in any case");
    // 4.5 ms of 1.25 GB/s are more than 4 MiB.
    let mut world = World::new(10 * FAST, 4 * MS, 0, 1);
    world.run(2_000);
    let (busy, most) = world.busy(3_000);
    assert!(busy > 0.995 && most as f64 <= bytes(10 * FAST, 5_000), "{busy} {most}");
    assert!(most > CAP.into(), "{most}");
}

#[test]
fn tsq_m20_a_search_that_nobody_needs_ends() {
    // Data for two packets in flight, when the limit has just been doubled.
    let mut world = World::new(SLOW, 0, 0, 1);
    while world.meter.rate == 0 && !matches!(world.meter.phase, Phase::Search { half: Some(_), .. }) {
        world.run(1);
    }
    assert_eq!(world.meter.time(), None);
    world.has_much = false;
    world.run(1_000);
    assert!(matches!(world.meter.phase, Phase::Steady), "{:?}", world.meter);
    let half = bytes(SLOW, 500) + f64::from(MSS);
    assert!(world.limit() <= 32_768.0 + half, "{}", world.limit());
}

#[test]
fn tsq_m21_windows_below_the_first_limit() {
    // Ten segments are 11.6 ms of this line. Two of them keep it busy, which a limit of two shows.
    let mut world = World::new(SLOW, 0, 0, 1);
    world.window = 10 * u64::from(MSS);
    world.run(2_000);
    assert_eq!(world.busy(2_000), (1.0, 2 * u64::from(MSS)));
    // Completions are collected for 4 ms: no queue, and nothing may be taken away.
    let mut world = World::new(FAST / 10, 4 * MS, 0, 1);
    world.window = 20 * u64::from(MSS);
    world.run(3_000);
    let before = world.sent[0];
    world.run(3_000);
    let (rate, most) = ((world.sent[0] - before) / 3, world.window * 1_000 / 4);
    assert!(rate >= most / 100 * 80, "{rate} of {most}");
}

/// The device has nothing to do now and then: bursts have the first limit.
#[test]
fn tsq_m21_bursts_have_the_first_limit() {
    let mut meter = Meter::default();
    let mut conn = Metered::default();
    let mut now = 0;
    // Packets, ten at a time, and a pause.
    let mut burst = |meter: &mut Meter, packets: u32, gap_ms: u64| {
        let mut out = VecDeque::new();
        for i in 0..packets + 10 {
            if i >= 10
                && let Some(handed) = out.pop_front()
            {
                now += 2 * MS;
                meter.on_completed(&mut conn, Instant::from_nanos(now), handed, MSS);
            }
            if i < packets {
                meter.on_handed(&mut conn, MSS, MSS);
                out.push_back(Instant::from_nanos(now));
            }
        }
        now += gap_ms * MS;
    };
    for _ in 0..100 {
        burst(&mut meter, 20, 50);
        assert_eq!(meter.device().limit, 32_768);
    }
    // A long one lowers it, until the device has nothing to do; and then the next.
    for _ in 0..2 {
        let mut sent = 0;
        while meter.device().limit == 32_768 {
            burst(&mut meter, 120, 50);
            sent += 1;
            assert!(sent < 3);
        }
        burst(&mut meter, 1, 0);
        assert_eq!(meter.device().limit, 32_768);
    }
}

/// Packets of one segment, so many of them below at any time, for 2 ms each: the least limit that there was.
fn least_limit(below: u32) -> u32 {
    let (mut meter, mut conn) = (Meter::default(), Metered::default());
    let mut out: VecDeque<_> = (0..below).map(|_| Instant::from_nanos(MS)).collect();
    for _ in 0..below {
        meter.on_handed(&mut conn, MSS, MSS);
    }
    let mut least = meter.device().limit;
    for n in 1..=300 {
        let now = Instant::from_nanos(MS + n * 2 * MS);
        meter.on_completed(&mut conn, now, out.pop_front().unwrap(), MSS);
        meter.on_handed(&mut conn, MSS, MSS);
        out.push_back(now);
        least = least.min(meter.device().limit);
    }
    least
}

/// One segment for the device to work on while the host answers to the completion of the other: two are no queue, and a look
/// leaves two.
#[test]
fn tsq_m21_three_segments_are_looked_at_and_two_are_not() {
    assert_eq!(least_limit(2), 32_768);
    assert_eq!(least_limit(3), 2 * MSS);
}

/// A segment each 0.5 ms is 2.896 MB/s, of which half a millisecond is a segment; one each 2 ms is less than what was known.
/// 64 packets in half a millisecond each are 64 times half a millisecond.
#[test]
fn tsq_m24_a_fast_device_that_holds_nothing_back_gets_longer_packets() {
    let (mut meter, mut own, mut now) = (Meter::default(), Metered::default(), 0);
    let mut pass = |meter: &mut Meter, count: u32, payload: u32, below_us: u64| {
        for _ in 0..count {
            let handed = Instant::from_nanos(now);
            now += below_us * 1_000;
            meter.on_handed(&mut own, payload, MSS);
            meter.on_completed(&mut own, Instant::from_nanos(now), handed, payload);
            now += MS;
        }
        meter.device().limit(MSS, CAP)
    };
    // A quarter of the limit within 249 µs; 8 KiB in a quarter of a millisecond are 33 MB/s, and half of 64
    // KiB are a millisecond.
    assert_eq!(pass(&mut meter, 63, 8 << 10, 249), 32 << 10);
    assert_eq!(pass(&mut meter, 1, 8 << 10, 249), 64 << 10);
    // Shorter ones say nothing, and slower ones neither.
    assert_eq!(pass(&mut meter, 500, (16 << 10) - 1, 1), 64 << 10);
    assert_eq!(pass(&mut meter, 500, 16 << 10, 250), 64 << 10);
    assert_eq!(pass(&mut meter, 64, 16 << 10, 100), 128 << 10);
    // Two super-packets of 64 KiB, and no more.
    assert_eq!(pass(&mut meter, 500, 64 << 10, 1), 128 << 10);
    assert_eq!(segs(meter.device()), (64 << 10) / MSS);
    // A packet that took half a millisecond ends it.
    assert_eq!(pass(&mut meter, 1, 100, 500), 32 << 10);
    assert_eq!(pass(&mut meter, 63, 8 << 10, 249), 32 << 10);
}

#[test]
fn tsq_m22_what_was_completed_raises_the_rate_and_the_limit_and_lowers_neither() {
    for (gap_us, rate, limit) in [(500, 2_896_000, 2 * MSS), (2_000, 1_000_000, 500 + MSS)] {
        let (mut conn, mut other) = (Metered::default(), Metered::default());
        let mut meter = Meter {
            rate: 1_000_000,
            phase: Phase::Steady,
            look_at: Instant::NEVER,
            mss: MSS,
            ..Meter::default()
        };
        meter.set_limit();
        let mut handed = Instant::from_nanos(MS);
        meter.on_handed(&mut conn, MSS, MSS);
        meter.on_handed(&mut conn, MSS, MSS);
        for n in 1..=200 {
            // At every other completion somebody waits.
            if n % 2 == 0 {
                meter.on_wait(&mut other);
            }
            let now = Instant::from_nanos(MS + n * gap_us * 1_000);
            meter.on_completed(&mut conn, now, handed, MSS);
            meter.end_wait(&mut other);
            meter.on_handed(&mut conn, MSS, MSS);
            handed = now;
        }
        assert_eq!((meter.rate, meter.device().limit), (rate, limit), "{gap_us}");
    }
}

/// More than 256 MiB of one connection are counted as that, and touch no flag beside the count.
#[test]
fn tsq_m11_what_is_beyond_the_count_touches_no_flag() {
    let (mut meter, mut own) = (Meter::default(), Metered { bits: MOST - 100 });
    meter.on_handed(&mut own, 1_000, MSS);
    assert_eq!((own.bits, meter.device.below), (MOST, 100));
}

/// Of the half of a millisecond that TSQ-M1 gives, a doubling makes one, and the aim is a millisecond and a
/// half in all.
#[test]
fn tsq_m25_a_host_that_is_away_is_not_a_late_completion() {
    for rate in [FAST, FAST / 10] {
        let mut world = World::new(rate, 0, 0, 1);
        world.run(1_000);
        (world.away, world.leaves) = ((100 * MS, 10 * MS), world.now);
        let (mut limits, mut idle) = (Vec::new(), 0.0);
        for _ in 0..600 {
            idle += 1.0 - world.busy(100).0;
            limits.push(world.limit());
        }
        limits.sort_by(f64::total_cmp);
        assert!(limits[593] <= bytes(rate, 1_500), "{rate}: {}", limits[593]);
        assert!(limits[599] <= bytes(rate, 3_000), "{rate}: {}", limits[599]);
        // It is away for 5 ms of each 105.
        assert!(idle / 600.0 <= 5.0 / 105.0, "{rate}: {idle}");
    }
}

/// The completion time that a look finds. 3000 bytes in the mean were below: 2 ms at 15/16 of the rate that
/// was known. If the rate fell by more than that sixteenth, these are the completion time, or 8/5 of it in
/// any order. If not, they were enough: they are the whole limit and a quarter of a millisecond, of which
/// half a millisecond and a segment (965.333 µs) are not for the completion.
#[test]
fn tsq_m8_a_look_finds_the_completion_time_if_the_rate_falls_by_a_sixteenth() {
    for (rate, overtakes, ns) in [
        (1_499_999, false, 2_000_001),
        (1_499_999, true, 3_200_001),
        (1_500_000, false, 784_667),
        (1_500_000, true, 784_667),
        (1_600_000, false, 1_875_000 + 250_000 - 500_000 - 905_000),
    ] {
        let at = Instant::from_nanos(MS);
        let phase = Phase::Look { since: at, is_first: false };
        let known = (1_600_000, Duration::from_millis(4));
        let mut meter =
            Meter { rate: known.0, time: known.1, phase, at, mss: MSS, overtakes, ..Meter::default() };
        meter.judge(Sample { rate, level: 3_000, overtakes });
        assert_eq!((meter.phase, meter.time.as_nanos()), (Phase::Steady, ns), "{rate} {overtakes}");
    }
}

/// A search goes on while twice the limit has a quarter more rate, and begins when the rate falls by more
/// than a quarter.
#[test]
fn tsq_m7_a_quarter_more_rate_is_worth_a_higher_limit() {
    let sample = |rate| Sample { rate, level: 60_000, overtakes: false };
    let half = Phase::Search { half: Some(sample(1_600_000)), helped: true };
    for (phase, rate, is_search) in [
        (half, 1_999_999, false),
        (half, 2_000_000, true),
        (Phase::Steady, 1_200_000, false),
        (Phase::Steady, 1_199_999, true),
    ] {
        // The sample before called for it, too (TSQ-M25).
        let mut meter = Meter {
            rate: 1_600_000,
            phase,
            unsure: true,
            look_at: Instant::NEVER,
            mss: MSS,
            ..Meter::default()
        };
        meter.judge(sample(rate));
        assert_eq!(matches!(meter.phase, Phase::Search { .. }), is_search, "{phase:?} {rate}");
    }
}

/// A look has a quarter of the limit and two segments at least. Where these are more than three quarters of
/// it, it would show nothing. The limit is half a millisecond of the rate and a segment of 3000 bytes: 8000,
/// and a byte less.
#[test]
fn tsq_m13_a_look_that_lowers_the_limit_too_little_is_none() {
    for (rate, is_look) in [(10_000_000, true), (9_998_000, false)] {
        let at = Instant::from_nanos(MS);
        let mut meter = Meter { rate, phase: Phase::Steady, at, look_at: at, mss: 3_000, ..Meter::default() };
        meter.judge(Sample { rate, level: 8_000, overtakes: false });
        assert_eq!(matches!(meter.phase, Phase::Look { .. }), is_look, "{rate}");
        assert_eq!(meter.device.limit, if is_look { 6_000 } else { 7_999 }, "{rate}");
    }
}

#[test]
fn tsq_m25_two_samples_in_a_row_call_for_a_higher_limit() {
    let sample = |rate| Sample { rate, level: 60_000, overtakes: false };
    let mut meter = Meter { rate: FAST, phase: Phase::Steady, mss: MSS, ..Meter::default() };
    for (rate, is_steady) in [(FAST / 2, true), (FAST, true), (FAST / 2, true), (FAST / 2, false)] {
        meter.look_at = Instant::from_nanos(u64::MAX);
        meter.judge(sample(rate));
        assert_eq!(meter.phase == Phase::Steady, is_steady, "{rate}");
    }
    // The doubled limit has the full rate: it is doubled again when it has that twice.
    let doubled = meter.device.limit;
    assert_eq!(doubled, 120_000);
    for (rate, limit) in [(FAST, doubled), (FAST, 240_000)] {
        meter.judge(Sample { level: 120_000, ..sample(rate) });
        assert_eq!(meter.device.limit, limit);
    }
}
