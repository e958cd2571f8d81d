//! Pacing vectors of Linux, growth of RFC 5681 and RFC 9438, HyStart++ of RFC 9406, cwnd validation.

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

#[test]
fn hystart_leaves_slow_start_five_rounds_after_the_rtt_rose() {
    let mut cc = Congestion::new(Algorithm::cubic());
    let mut left_after = None;
    for round in 0..12_u64 {
        // From the third round on a queue adds 30 ms to 40 ms: more than clamp(40/8, 4, 16).
        let rtt = if round < 2 { 40 } else { 70 };
        for _ in 0..10 {
            cc.on_ack(
                AckEvent {
                    cwnd_limited: true,
                    ..event(at(round * 100), 1, rtt, round * 10 + 1, round * 10 + 11)
                },
                true,
            );
        }
        if cc.cwnd() >= cc.ssthresh() && left_after.is_none() {
            left_after = Some(round);
        }
    }
    // RFC 9406 §4.2: conservative from round 2, for five rounds: 2, 3, 4, 5, 6.
    assert_eq!(left_after, Some(7));
}
