//! The end of slow start when the round-trip time rises: taut's own test, with the numbers of RFC 9406 §4.3.

use alloc::vec::Vec;

use super::*;

/// The slow start of a CUBIC connection: one ACK for each segment.
struct Start {
    cc: Congestion,
    una: u64,
    nxt: u64,
    least: u64,
}

impl Start {
    /// The first round is over: ten ACKs after `least` µs each; six more complete the second block of eight.
    fn new(least: u64) -> Self {
        let mut start = Self { cc: Congestion::new(Algorithm::cubic()), una: 0, nxt: 10, least };
        start.acks(16, least);
        assert_eq!(start.cc.cwnd(), 26);
        start
    }

    /// An ACK; `us` is its round-trip time, if it has one.
    fn ack(&mut self, us: impl Into<Option<u64>>) {
        self.una += 1;
        let mut event = event(at(0), 1, 0, self.una, self.nxt);
        event.rtt = us.into().map(Duration::from_micros);
        (event.min_rtt, event.cwnd_limited) = (Some(Duration::from_micros(self.least)), true);
        self.cc.on_ack(event, true);
        self.nxt = self.nxt.max(self.una + u64::from(self.cc.cwnd()));
    }

    fn acks(&mut self, count: u32, us: impl Into<Option<u64>> + Copy) {
        (0..count).for_each(|_| self.ack(us));
    }
}

#[test]
fn hystart_01_eight_samples_in_a_row() {
    // RFC 9406 §4.3: N_RTT_SAMPLE. The ACK of the eighth does not count.
    let mut start = Start::new(40_000);
    start.acks(8, 70_000);
    assert_eq!(start.cc.cwnd(), 26 + 7);
    start.acks(5, 70_000);
    assert_eq!(start.cc.cwnd(), 33, "held");
    // One of eight as low as before, wherever it is.
    for low in 0..8 {
        let mut start = Start::new(40_000);
        for n in 0..8 {
            start.ack(if n == low { 44_999 } else { 70_000 });
        }
        assert_eq!(start.cc.cwnd(), 26 + 8, "{low}");
    }
}

#[test]
fn hystart_02_an_eighth_above_the_last_round_and_four_milliseconds_at_least() {
    // §4.3: MIN_RTT_DIVISOR and MIN_RTT_THRESH; not its 16 ms at most.
    for (least, risen) in [(40_000, 45_000), (32_000, 36_000), (10_000, 14_000), (400_000, 450_000)] {
        for (us, cwnd) in [(risen, 33), (risen - 1, 34)] {
            let mut start = Start::new(least);
            start.acks(8, us);
            assert_eq!(start.cc.cwnd(), cwnd, "{least} and {us}");
        }
    }
}

#[test]
fn hystart_03_the_first_round_has_nothing_to_compare_with() {
    let mut start = Start { cc: Congestion::new(Algorithm::cubic()), una: 0, nxt: 10, least: 40_000 };
    start.ack(40_000);
    start.acks(9, 400_000);
    assert_eq!(start.cc.cwnd(), 20);
}

#[test]
fn hystart_04_the_window_is_held_to_the_end_of_the_next_round() {
    let mut start = Start::new(40_000);
    start.acks(8, 70_000);
    // 30 segments had been sent when this round began, with ACK 11: it ends with ACK 31. Then 30 + 33 were
    // sent: the next ends with ACK 64.
    while start.cc.ssthresh() == u32::MAX {
        assert_eq!(start.cc.cwnd(), 33, "after {} ACKs", start.una);
        start.ack(75_000);
    }
    assert_eq!(start.una, 64);
    // Of 33 segments in 75 ms, the path of 40 ms holds 33 · 40 / 75 = 17.6.
    assert_eq!(start.cc.ssthresh(), 18);
}

#[test]
fn hystart_05_an_rtt_below_that_of_the_rise_ends_the_hold() {
    for (us, cwnd) in [(70_000, 33), (69_999, 34)] {
        let mut start = Start::new(40_000);
        start.acks(8, 70_000);
        start.ack(us);
        assert_eq!(start.cc.cwnd(), cwnd, "{us}");
    }
}

#[test]
fn hystart_06_the_next_slow_start_begins_anew() {
    let mut start = Start::new(40_000);
    start.acks(8, 70_000);
    start.cc.begin_reduction(at(0), Signal::Timeout, true);
    start.cc.on_timeout(at(0), 0);
    assert_eq!((start.cc.cwnd(), start.cc.ssthresh()), (1, 23), "0.7 · 33");
    start.acks(7, 70_000);
    assert_eq!(start.cc.cwnd(), 8, "nothing is held any more");
    // After a loss and 700 ms of silence, too.
    let mut start = Start::new(40_000);
    start.acks(8, 70_000);
    lose(&mut start.cc, 0);
    let (rto, cfg) = (Duration::from_millis(300), CongestionConfig::default());
    start.cc.on_idle_restart(at(700), at(0), rto, u64::MAX, &cfg);
    assert_eq!((start.cc.cwnd(), start.cc.ssthresh()), (10, 23));
    start.acks(7, 70_000);
    assert_eq!(start.cc.cwnd(), 17);
}

#[test]
fn hystart_07_an_ack_without_a_sample_is_none() {
    let mut start = Start::new(40_000);
    start.acks(7, 70_000);
    start.acks(5, None);
    assert_eq!(start.cc.cwnd(), 26 + 12);
    start.ack(70_000);
    assert_eq!(start.cc.cwnd(), 38, "the eighth");
    // Two rounds without a sample: the RTT is still that of the rise. 38 · 40 / 70 = 21.7.
    while start.cc.ssthresh() == u32::MAX {
        start.ack(None);
    }
    assert_eq!(start.cc.ssthresh(), 22);
}

#[test]
fn hystart_08_only_cubic_listens_to_the_rtt() {
    let mut start = Start { cc: Congestion::new(Algorithm::reno()), una: 0, nxt: 10, least: 40_000 };
    start.acks(16, 40_000);
    start.acks(100, 400_000);
    assert_eq!(start.cc.cwnd(), 126);
}

/// Slow start of CUBIC on a path whose round `n` takes `rtts[n]` ms, one ACK for each segment; the round of
/// an ACK is that of the window sent before. Returns cwnd and ssthresh after each round.
fn slow_start(rtts: &[u64]) -> Vec<(u32, u32)> {
    let mut cc = Congestion::new(Algorithm::cubic());
    let least = rtts.iter().copied().min();
    let (mut una, mut nxt, mut now) = (0, u64::from(cc.cwnd()), 0);
    let mut after = Vec::new();
    for &rtt in rtts {
        let round_end = nxt;
        now += rtt;
        while una < round_end {
            una += 1;
            let min_rtt = least.map(Duration::from_millis);
            cc.on_ack(AckEvent { cwnd_limited: true, min_rtt, ..event(at(now), 1, rtt, una, nxt) }, true);
            nxt = nxt.max(una + u64::from(cc.cwnd()));
        }
        after.push((cc.cwnd(), cc.ssthresh()));
    }
    after
}

#[test]
fn cc_01_a_rise_of_the_rtt_holds_the_window_and_ends_slow_start_with_what_the_path_holds() {
    // 40 ms, and a queue of 30 ms from the third round on: more than max(40/8, 4). After two rounds the
    // window is 40. Blocks of eight samples end after 8, 16, 24 … ACKs, the fourth of them with the second
    // ACK of the third round; the fifth, 10 ACKs into it, is the first with 70 ms only. The tenth ACK no
    // longer counts: 49 segments, held for the rest of that round and the next. 49 segments in 70 ms are 49 ·
    // 40/70 = 28 on the path.
    let after = slow_start(&[40, 40, 70, 70, 70]);
    assert_eq!(after[1], (40, u32::MAX));
    assert_eq!(after[2], (49, u32::MAX));
    assert_eq!(after[3], (49, u32::MAX));
    assert_eq!(after[4].1, 28, "{after:?}");
    assert!(after[4].0 <= 30, "CUBIC grows by at most a twentieth a round: {after:?}");
}

#[test]
fn cc_01_the_initial_window_is_always_allowed() {
    // A path that holds 2 segments: 20 ms, and then all of the window in a queue of 10 ms a segment.
    let after = slow_start(&[20, 200, 270, 270, 270]);
    assert_eq!(after[4].1, INITIAL_CWND, "{after:?}");
}

#[test]
fn cc_02_slow_start_goes_on_when_the_rtt_falls_again() {
    // The burst of another flow: one round of 70 ms. In the next, the first ACK shows that the rise is over;
    // all 49 of that window count, and then 98.
    let after = slow_start(&[40, 40, 70, 40, 40]);
    assert_eq!(after[2], (49, u32::MAX));
    assert_eq!(after[3], (98, u32::MAX));
    assert_eq!(after[4], (196, u32::MAX));
}

#[test]
fn cc_03_jitter_does_not_end_slow_start() {
    // 30 ms, and up to 20 ms more for each packet: in half of such flows, the first eight samples of some
    // round are 4 ms above the least RTT so far. Uniform numbers by a linear congruential generator (Knuth,
    // MMIX).
    let mut random = 1_u64;
    for flow in 0..2_000 {
        let mut cc = Congestion::new(Algorithm::cubic());
        let (mut una, mut nxt, mut least) = (0, u64::from(cc.cwnd()), u64::MAX);
        // The path is full with 200 segments; until then, nothing waits in a queue.
        while cc.cwnd() < 200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let rtt_us = 30_000 + (random >> 33) * 20_000 / (1 << 31);
            least = least.min(rtt_us);
            una += 1;
            let mut event = event(at(0), 1, 0, una, nxt);
            (event.rtt, event.cwnd_limited) = (Some(Duration::from_micros(rtt_us)), true);
            event.min_rtt = Some(Duration::from_micros(least));
            cc.on_ack(event, true);
            nxt = nxt.max(una + u64::from(cc.cwnd()));
            assert_eq!(cc.ssthresh(), u32::MAX, "flow {flow} left at {}", cc.cwnd());
        }
    }
}
