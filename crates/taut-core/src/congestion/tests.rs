//! Pacing vectors of Linux, growth of RFC 5681 and RFC 9438, HyStart++ of RFC 9406, cwnd validation.

use alloc::vec::Vec;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

fn event(now: Instant, acked: u32, rtt_ms: u64, una: u64, nxt: u64) -> AckEvent<'static> {
    let rtt = Some(Duration::from_millis(rtt_ms));
    let mut event = AckEvent::new(now, 1448, acked);
    event.cwnd_limited = false;
    (event.rtt, event.srtt, event.min_rtt) = (rtt, rtt, rtt);
    (event.una, event.nxt) = (una, nxt);
    event
}

#[test]
fn pace_10_rates_of_slow_start_and_of_congestion_avoidance() {
    let cfg = CongestionConfig::default();
    let mut cc = Congestion::new(Algorithm::reno());
    let srtt = Some(Duration::from_millis(40));
    assert_eq!(cc.pacing_rate(), u64::MAX);
    cc.update_pacing_rate(1448, srtt, 0, u64::MAX, &cfg);
    assert_eq!(cc.pacing_rate(), 724_000);
    cc.live(at(0)).window.ssthresh = 20;
    cc.update_pacing_rate(1448, srtt, 0, u64::MAX, &cfg);
    assert_eq!(cc.pacing_rate(), 434_400, "cwnd = ssthresh/2 is 120 %");
    cc.update_pacing_rate(1448, srtt, 0, 100_000, &cfg);
    assert_eq!(cc.pacing_rate(), 100_000);
    cc.clamp_pacing_rate(50_000);
    assert_eq!(cc.pacing_rate(), 50_000);
}

#[test]
fn reno_doubles_then_adds_one_a_round_trip() {
    let mut cc = Congestion::new(Algorithm::reno());
    cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(0), 10, 100, 0, 0) }, true);
    assert_eq!(cc.cwnd(), 20);
    cc.begin_reduction(at(0), Signal::Loss, true);
    cc.end_reduction();
    assert_eq!((cc.cwnd(), cc.ssthresh()), (10, 10));
    for _ in 0..10 {
        cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(0), 1, 100, 0, 0) }, true);
    }
    assert_eq!(cc.cwnd(), 11);
    cc.undo(at(0));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (20, u32::MAX));
}

#[test]
fn comp_1_slow_start_stops_at_twice_what_was_out() {
    let mut cc = Congestion::new(Algorithm::reno());
    cc.note_limited(at(0), 10, 100, 0, false);
    for _ in 0..50 {
        cc.on_ack(AckEvent { cwnd_limited: false, ..event(at(0), 1, 100, 0, 0) }, true);
    }
    assert_eq!(cc.cwnd(), 20);
}

#[test]
fn idleness_halves_the_window_for_each_rto_down_to_the_initial_one() {
    let cfg = CongestionConfig::default();
    let rto = Duration::from_millis(300);
    let mut cc = Congestion::new(Algorithm::reno());
    cc.live(at(0)).window.set_cwnd(100);
    cc.on_idle_restart(at(300), at(0), rto, u64::MAX, &cfg);
    assert_eq!(cc.cwnd(), 100, "not longer than an RTO");
    cc.on_idle_restart(at(700), at(0), rto, u64::MAX, &cfg);
    assert_eq!(cc.cwnd(), 25);
    cc.on_idle_restart(at(9_700), at(700), rto, u64::MAX, &cfg);
    assert_eq!(cc.cwnd(), INITIAL_CWND);
}

#[test]
fn cubic_follows_the_curve_of_rfc_9438() {
    let mut cc = Congestion::new(Algorithm::cubic());
    cc.live(at(0)).window.set_cwnd(1000);
    cc.begin_reduction(at(0), Signal::Loss, true);
    cc.end_reduction();
    assert_eq!(cc.cwnd(), 700, "β = 0.7");
    // C = 0.4, W_max = 1000, cwnd_epoch = 700: K = ∛750 = 9.09 s. One ACK a segment, RTT 100 ms.
    let k = 750_f64.cbrt();
    for ms in (0..18_000_u64).step_by(100) {
        let reference = 0.4 * (ms as f64 / 1000.0 - k).powi(3) + 1000.0;
        let error = (f64::from(cc.cwnd()) - reference).abs() / reference;
        assert!(error < 0.02, "at {ms} ms: {} instead of {reference}", cc.cwnd());
        let acks = cc.cwnd();
        for _ in 0..acks {
            cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(ms), 1, 100, 0, 0) }, true);
        }
    }
}

/// On a path of 1 ms, in the 20 ms after a loss: at least Reno's growth, 0.53 of a segment a round trip (RFC 9438 §4.3).
#[test]
fn cubic_grows_from_the_first_round_trip_on() {
    let mut cc = Congestion::new(Algorithm::cubic());
    cc.live(at(0)).window.set_cwnd(100);
    cc.begin_reduction(at(0), Signal::Loss, true);
    cc.end_reduction();
    assert_eq!(cc.cwnd(), 70);
    for ms in 0..20 {
        for _ in 0..cc.cwnd() {
            cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(ms), 1, 1, 0, 0) }, true);
        }
    }
    // α = 3 (1 − β) / (1 + β) with β = 0.7: 70 + 20 · 0.529 = 80.6.
    assert!((79..=82).contains(&cc.cwnd()), "{}", cc.cwnd());
}

/// Slow start of CUBIC on a path whose round `n` takes `rtts[n]` ms, one ACK for each segment; the round of an ACK is
/// that of the window sent before. Returns cwnd and ssthresh after each round.
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
    // 40 ms, and a queue of 30 ms from the third round on: more than max(40/8, 4). After two rounds the window is 40.
    // Blocks of eight samples end after 8, 16, 24 … ACKs, the fourth of them with the second ACK of the third round; the
    // fifth, 10 ACKs into it, is the first with 70 ms only. The tenth ACK no longer counts: 49 segments, held for the
    // rest of that round and the next. 49 segments in 70 ms are 49 · 40/70 = 28 on the path.
    let after = slow_start(&[40, 40, 70, 70, 70]);
    assert_eq!(after[1], (40, u32::MAX));
    assert_eq!(after[2], (49, u32::MAX));
    assert_eq!(after[3], (49, u32::MAX));
    assert_eq!(after[4].1, 28, "{after:?}");
    assert!(after[4].0 <= 30, "CUBIC grows by at most a twentieth a round: {after:?}");
}

/// RFC 9438 §4.3 and §4.8: the window before a timeout is remembered. Of twelve segments ssthresh keeps eight. Seven
/// round trips at α = 0.529 bring 8 + 7 · 0.529 = 11.7; at α = 1 they would bring 15.
#[test]
fn cc_10_after_a_timeout_w_est_grows_by_alpha_until_the_window_before_it() {
    let mut cc = Congestion::new(Algorithm::cubic());
    cc.live(at(0)).window.set_cwnd(12);
    cc.begin_reduction(at(0), Signal::Loss, true);
    cc.on_timeout(at(0), 0);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (1, 8));
    cc.end_loss();
    cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(1), 7, 1, 0, 0) }, true);
    assert_eq!(cc.cwnd(), 8, "slow start is over");
    for round in 1..8 {
        for ack in 0..u64::from(cc.cwnd()) {
            let when = at(round * 20 + ack);
            cc.on_ack(AckEvent { cwnd_limited: true, ..event(when, 1, 1, 0, 0) }, true);
        }
    }
    assert!((11..=12).contains(&cc.cwnd()), "{}", cc.cwnd());
}

#[test]
fn cc_01_the_initial_window_is_always_allowed() {
    // A path that holds 2 segments: 20 ms, and then all of the window in a queue of 10 ms a segment.
    let after = slow_start(&[20, 200, 270, 270, 270]);
    assert_eq!(after[4].1, INITIAL_CWND, "{after:?}");
}

#[test]
fn cc_02_slow_start_goes_on_when_the_rtt_falls_again() {
    // The burst of another flow: one round of 70 ms. In the next, the first ACK shows that the rise is over; all 49 of
    // that window count, and then 98.
    let after = slow_start(&[40, 40, 70, 40, 40]);
    assert_eq!(after[2], (49, u32::MAX));
    assert_eq!(after[3], (98, u32::MAX));
    assert_eq!(after[4], (196, u32::MAX));
}

#[test]
fn cc_03_jitter_does_not_end_slow_start() {
    // 30 ms, and up to 20 ms more for each packet: in half of such flows, the first eight samples of some round are 4
    // ms above the least RTT so far. Uniform numbers by a linear congruential generator (Knuth, MMIX).
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
