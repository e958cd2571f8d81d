//! Statements TSQ-M1 to M14, M19 to M25 and M28 of docs/spec/send-path.md, on a device in virtual time: a
//! line that sends one packet after the other, and completions that come at once, in batches, or late in
//! any order. Connections always have data.

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
            if self.meter.looks > 0 {
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
fn tsq_m1_at_once_is_a_millisecond() {
    for rate in [FAST, FAST / 10, 10 * FAST] {
        let mut world = World::new(rate, 0, 0, 1);
        world.run(1_000);
        let (busy, most) = world.busy(3_000);
        assert!(busy > 0.999, "{rate}: {busy}");
        let expected = bytes(rate, 1_000);
        assert!((world.limit() / expected - 1.0).abs() < 0.01, "{rate}: {}", world.limit());
        assert!(most as f64 <= expected * 4.0 / 3.0 * 1.01, "{rate}: {most}");
    }
}

#[test]
fn tsq_m2_collected_completions_add_their_time() {
    for us in [100, 500, 4_000] {
        let mut world = World::new(FAST, us * 1_000, 0, 1);
        world.run(2_000);
        let (busy, most) = world.busy(20_000);
        assert!(busy > 0.995, "{us}: {busy}");
        assert!(most as f64 <= bytes(FAST, us + 1_340), "{us}: {most}");
        let time = world.meter.time().unwrap().as_nanos() / 1_000;
        assert!((us..=us + 20).contains(&time), "{us}: {time}");
    }
}

#[test]
fn tsq_m3_a_slow_line_has_two_packets_of_one_segment() {
    let mut world = World::new(SLOW, 0, 0, 1);
    world.run(2_000);
    assert_eq!(world.busy(900), (1.0, 2 * u64::from(MSS)));
    assert_eq!(segs(world.meter.device()), 1);
}

#[test]
fn tsq_m4_late_in_any_order() {
    for (rate, us) in [(FAST, 1_000), (FAST, 4_000), (FAST / 10, 1_000)] {
        let mut world = World::new(rate, 0, us * 1_000, 1);
        world.run(3_000);
        let (busy, most) = world.busy(20_000);
        assert!(busy > 0.99, "{rate} {us}: {busy}");
        assert!(most as f64 <= bytes(rate, us * 2 + 1_700), "{rate} {us}: {most}");
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
    assert!(ask(device, 5_000, 20_001) && !ask(device, 5_000, 20_002), "no connection waits");
    let line = Device { waiting: 3, ..device };
    assert!(ask(line, 5_000 | TURN, 20_001) && !ask(line, 5_000 | TURN, 20_002), "its turn");
    assert!(!ask(line, 5_000, MSS), "not its turn");
    assert!(!ask(line, WAITS, MSS), "it waits");
    // One that has nothing there and does not wait passes the line with a segment, and a segment beyond the
    // limit.
    let full = Device { below: 60_000 + u64::from(MSS / 2), ..line };
    assert!(ask(full, 0, MSS) && !ask(full, 0, MSS + 1));
    assert!(!ask(Device { below: full.below + 1, ..full }, 0, MSS));
    assert!(!ask(Device { passed: 60_000, ..full }, 0, MSS), "those that wait come first now");
    // Eight share a line of 125 MB/s to a packet each.
    let mut world = World::new(FAST, 0, 0, 8);
    world.run(3_000);
    let (least, most) = (world.sent.iter().min().unwrap(), world.sent.iter().max().unwrap());
    assert!(most - least <= 2 * 45 * u64::from(MSS), "{:?}", world.sent);
}

/// A connection that sends little passes the line with as many bytes as the limit, then a turn comes first,
/// and then it may pass again: what it sent while no connection waited, and the packet of a turn itself, do
/// not count.
#[test]
fn tsq_m5_what_passes_the_line_counts_until_the_next_turn() {
    let mut meter = Meter::default();
    let [mut first, mut second, mut sparse] = [Metered::default(); 3];
    meter.on_handed(&mut sparse, 300, MSS);
    assert_eq!(meter.device().passed, 0, "no connection waits");
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
fn tsq_m6_super_packets_are_two_thirds_of_what_is_above_the_completion_time() {
    // Two thirds of a millisecond of 125 MB/s are 83,333 bytes, 57 segments.
    let mut world = World::new(FAST, 500_000, 0, 1);
    world.run(3_000);
    assert_eq!(segs(world.meter.device()), 57);
    let device = Device { limit: 8 * MSS, packet: 10 * MSS, ..Device::NOTHING };
    assert_eq!(segs(device), 5, "two thirds of the limit");
    assert_eq!(segs(Device { limit: 3 * MSS, packet: MSS, ..device }), 1, "less than tcp_min_tso_segs");
}

#[test]
fn tsq_m7_a_new_device_is_known_soon() {
    let mut world = World::new(FAST, 4_000_000, 0, 1);
    assert_eq!(world.meter.device().limit(MSS, CAP), 32_768);
    // 32 KiB are a sixteenth of what 4 ms take.
    world.run(400);
    let limit = world.limit();
    assert!(limit > bytes(FAST, 4_000) && limit < bytes(FAST, 5_100), "{limit}");
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
        // And earlier ones.
        world.collected = 0;
        world.run(5_000);
        let (_, most) = world.busy(1_000);
        assert!(most as f64 <= bytes(rate, 1_340).max(2.0 * f64::from(MSS)), "{rate}: {most}");
    }
}

#[test]
fn tsq_m9_a_slower_line_has_less() {
    let mut world = World::new(FAST, 0, 0, 1);
    world.run(2_000);
    world.rate = FAST / 10;
    world.run(1_000);
    let (busy, most) = world.busy(900);
    assert!(busy > 0.999 && most as f64 <= bytes(FAST / 10, 1_340), "{busy} {most}");
    world.rate = FAST;
    world.run(1_000);
    assert!(world.busy(900).0 > 0.999);
}

/// After a look, in which the line was idle, a token bucket sends faster than its rate for a moment. That is
/// not its rate, and the end of it is no slower device.
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
        assert!(most as f64 <= bytes(rate, us * 2 + 1_000), "{rate} {us} {burst_ms}: {most}");
        assert!(world.looked < 20_000 * MS / 200, "{rate} {us} {burst_ms}: {} ms", world.looked / MS);
    }
}

/// Windows of eight segments, and never a queue: what they bring says nothing of a slower device.
#[test]
fn tsq_m10_without_a_queue_nothing_is_lowered() {
    let mut world = World::new(FAST, 200_000, 0, 1);
    world.window = 8 * u64::from(MSS);
    world.run(5_000);
    assert_eq!(world.meter.time(), None);
    assert!(world.meter.device().limit >= 32_768);
    world.window = u64::MAX;
    world.run(2_000);
    let before = world.meter.device().limit;
    world.window = 8 * u64::from(MSS);
    world.run(5_000);
    assert_eq!(world.meter.device().limit, before);
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
fn tsq_m12_half_a_packet_counts_before_it_is_sent() {
    let ask = |below, bits, payload, is_retransmission| {
        let device = Device { limit: 15_000, below, packet: 8_000, ..Device::NOTHING };
        gate(device, Ask { own: Metered { bits }, payload, mss: MSS, limit: 15_000, is_retransmission })
    };
    assert_eq!(ask(10_000, 10_000, 10_001, false), Ok(Pass::Room));
    assert_eq!(ask(10_000, 10_000, 10_002, false), Err(Blocked::SmallQueue));
    assert_eq!(ask(0, 0, 20_000, false), Ok(Pass::Room), "the only one");
    assert_eq!(
        ask(10_000, WAITS, 40_001, true),
        Ok(Pass::Room),
        "a retransmission: twice the limit, no line"
    );
    assert_eq!(ask(10_000, WAITS, 40_002, true), Err(Blocked::SmallQueue));
}

#[test]
fn tsq_m13_looks_are_rare() {
    for us in [0, 500, 4_000] {
        let mut world = World::new(FAST, us * 1_000, 0, 1);
        world.run(5_000);
        world.looked = 0;
        world.run(200_000);
        assert!(world.looked > 0);
        // What is below drains, and a packet goes alone: at most 1 ms and three times what a completion
        // takes.
        assert!(world.looked <= 400 * (MS + 3 * us * 1_000), "{us}: {}", world.looked);
    }
}

#[test]
fn tsq_m14_many_connections_have_no_more_than_one() {
    for conns in [8, 100] {
        for rate in [FAST, FAST / 10, SLOW] {
            let mut world = World::new(rate, 0, 0, conns);
            world.run(5_000);
            let (busy, most) = world.busy(3_000);
            let expected = bytes(rate, 1_000).max(2.0 * f64::from(MSS));
            assert!(busy > 0.999 && most as f64 <= expected * 4.0 / 3.0, "{conns} {rate}: {busy} {most}");
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
    assert!(busy > 0.995 && most as f64 <= bytes(10 * FAST, 5_340), "{busy} {most}");
    assert!(most > CAP.into(), "{most}");
}

/// Whatever was learned, a little more than a second later it is right: rates of a hundredth and ten times
/// the line's, completion times of nothing and of 20 ms, just after a look.
#[test]
fn tsq_m20_no_wrong_start_is_kept() {
    for (line, us) in [(FAST, 0), (FAST, 500), (FAST, 4_000), (FAST / 10, 0), (FAST / 10, 500)] {
        for rate in [line / 100, line / 10, line, line * 10] {
            for time in [0, 5_300, 13_700, 20_000] {
                let mut world = World::new(line, us * 1_000, 0, 1);
                world.meter.rates = Latest([rate; 3]);
                world.meter.times = Latest([time * 1_000; 3]);
                world.meter.is_known = true;
                world.meter.mss = MSS;
                world.meter.look_at = Instant::from_nanos(world.now) + LOOK_EVERY;
                world.meter.set_limit();
                world.run(1_250);
                let expected = bytes(line, us + 1_000);
                let is_right = (world.limit() / expected - 1.0).abs() < 0.02;
                assert!(is_right, "{line} {us}, from {rate} {time}: {} of {expected}", world.limit());
            }
        }
    }
}

/// Windows let less be below than the limit, and yet more than the device needs.
#[test]
fn tsq_m21_windows_below_the_first_limit() {
    // Ten segments are 11.6 ms of this line.
    let mut world = World::new(SLOW, 0, 0, 1);
    world.window = 10 * u64::from(MSS);
    world.run(2_000);
    assert_eq!(world.busy(900), (1.0, 2 * u64::from(MSS)));
    // Completions are collected for 4 ms: no queue, and nothing may be taken away.
    let mut world = World::new(FAST / 10, 4 * MS, 0, 1);
    world.window = 20 * u64::from(MSS);
    world.run(3_000);
    let before = world.sent[0];
    world.run(3_000);
    let (rate, most) = ((world.sent[0] - before) / 3, world.window * 1_000 / 4);
    assert!(rate >= most / 100 * 80, "{rate} of {most}");
}

/// On a fast device a flow may be held back by its windows or its pacing for ever. Its rate raises the limit,
/// and with it the length of packets: packets of 16 KiB within 249 µs each are 66 MB/s, and a millisecond of
/// that is 66 kB.
#[test]
fn tsq_m24_a_fast_device_that_holds_nothing_back_gets_longer_packets() {
    let (mut meter, mut own, mut now) = (Meter::default(), Metered::default(), MS);
    for _ in 0..200 {
        let handed = Instant::from_nanos(now);
        now += 249_000;
        meter.on_handed(&mut own, 16 << 10, MSS);
        meter.on_completed(&mut own, Instant::from_nanos(now), handed, 16 << 10);
    }
    assert_eq!(meter.time(), None, "no queue");
    let limit = meter.device().limit(MSS, CAP);
    assert!((65_000..=66_000).contains(&limit), "{limit}");
    assert_eq!(segs(meter.device()), 22);
}

/// More than 256 MiB of one connection are counted as that, and touch no flag beside the count.
#[test]
fn tsq_m11_what_is_beyond_the_count_touches_no_flag() {
    let (mut meter, mut own) = (Meter::default(), Metered { bits: MOST - 100 });
    meter.on_handed(&mut own, 1_000, MSS);
    assert_eq!((own.bits, meter.device.below), (MOST, 100));
}

/// The host does not run for up to 10 ms at a time, every 100 ms on average.
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

/// The median of three: one that is wrong changes nothing.
#[test]
fn tsq_m25_one_span_and_one_look_may_be_wrong() {
    let mut latest = Latest::default();
    for (value, median) in [(5, 0), (7, 5), (6, 6), (900, 7), (6, 6), (0, 6), (900, 6), (900, 900)] {
        latest.add(value);
        assert_eq!(latest.median(), median, "{value}");
    }
}

/// The host serves a token bucket of eleven segments and 12.5 MB/s, for 3 ms after it was away for 20, on the
/// average: what a full bucket lets through at once is one span. A step of the host's takes 2 µs.
#[test]
fn tsq_m28_a_queue_of_the_hosts_own_when_it_is_away() {
    let (rate, burst, step) = (FAST / 10, 11 * u64::from(MSS), 2_000);
    let (mut world, mut tokens, mut waits) = (World::new(rate, 0, 0, 1), burst, VecDeque::new());
    (world.away, world.leaves) = ((3 * MS, 40 * MS), 100 * MS);
    while world.now < 60_000 * MS {
        let (own, device, head) = (world.conns[0], world.meter.device(), waits.front().copied());
        let limit = device.limit(MSS, CAP).into();
        let (payload, mut next) = (device.segs(MSS, limit).min(11) * MSS, world.now + step);
        let needed = head.map_or(0, |(_, bytes): (u64, u32)| u64::from(bytes));
        if let Some((handed, bytes)) = head.filter(|_| tokens >= needed) {
            waits.pop_front();
            tokens -= needed;
            let [now, handed] = [world.now, handed].map(Instant::from_nanos);
            world.meter.on_completed(&mut world.conns[0], now, handed, bytes);
        } else if gate(device, Ask { own, payload, mss: MSS, limit, is_retransmission: false }).is_ok() {
            world.meter.on_handed(&mut world.conns[0], payload, MSS);
            waits.push_back((world.now, payload));
        } else {
            let missing = needed.saturating_sub(tokens) * 1_000_000_000 / rate;
            next = world.when_here(next.max(world.now + missing));
        }
        tokens = burst.min(tokens + (next - world.now) * rate / 1_000_000_000);
        world.now = next;
        // The bucket and a millisecond of the rate are less than the first limit.
        assert!(world.limit() <= f64::from(FIRST), "{}", world.limit());
    }
}
