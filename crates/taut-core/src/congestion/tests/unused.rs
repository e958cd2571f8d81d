//! Windows that are not used: growth only where the window was the limit, what remains of an unused one, and
//! idleness. RFC 2861 and RFC 5681 §4.1, as in Linux.

use super::*;

const RTO: Duration = Duration::from_millis(300);

fn reno(cwnd: u32) -> Congestion {
    with_window(Algorithm::reno(), cwnd, u32::MAX)
}

/// An ACK of one segment; whether the window was the limit is what [`Congestion::note_limited`] was told.
fn unaided(cc: &mut Congestion) {
    cc.on_ack(event(at(0), 1, 100, 0, 0), true);
}

#[test]
fn comp_1_slow_start_stops_at_twice_what_was_out() {
    let mut cc = Congestion::new(Algorithm::reno());
    cc.note_limited(at(0), 10, 100, 0, false);
    for _ in 0..50 {
        unaided(&mut cc);
    }
    assert_eq!(cc.cwnd(), 20);
}

#[test]
fn cwv_01_congestion_avoidance_needs_a_window_that_was_the_limit() {
    for (limited, cwnd) in [(false, 10), (true, 11)] {
        let mut cc = with_window(Algorithm::reno(), 10, 10);
        cc.note_limited(at(0), 10, 100, 0, limited);
        for _ in 0..10 {
            unaided(&mut cc);
        }
        assert_eq!(cc.cwnd(), cwnd, "limited: {limited}");
    }
    // Nor does it grow without progress, or while it is being reduced.
    let mut cc = reno(10);
    cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(0), 5, 100, 0, 0) }, false);
    assert_eq!(cc.cwnd(), 10);
}

#[test]
fn cwv_02_a_limit_is_remembered_for_a_window_of_data() {
    let grows = |una| {
        let mut cc = with_window(Algorithm::reno(), 10, 10);
        // The window was the limit while data up to 1000 was sent; later less was sent.
        cc.note_limited(at(0), 10, 1_000, 0, true);
        cc.note_limited(at(1), 4, 1_400, una, false);
        (0..10).for_each(|_| unaided(&mut cc));
        cc.cwnd() == 11
    };
    assert!(grows(999));
    assert!(!grows(1_000));
}

#[test]
fn cwv_03_the_most_that_was_out_counts() {
    // Slow start: twice 8, though 3 were out later in the same window of data.
    let mut cc = reno(10);
    cc.note_limited(at(0), 8, 1_000, 0, false);
    cc.note_limited(at(1), 3, 1_200, 500, false);
    (0..50).for_each(|_| unaided(&mut cc));
    assert_eq!(cc.cwnd(), 16);
}

#[test]
fn cwv_04_an_unused_window_falls_half_way_to_the_used_part() {
    let cfg = CongestionConfig::default();
    // RFC 2861 §3.1: (cwnd + used) / 2; Linux: of a part below the initial window, that.
    for (used, cwnd) in [(20, 60), (3, 55), (99, 99)] {
        let mut cc = with_window(Algorithm::reno(), 100, 40);
        cc.note_limited(at(0), used, 1_000, 0, false);
        cc.restrain_unused(at(299), RTO, &cfg);
        assert_eq!(cc.cwnd(), 100, "not before an RTO is over");
        cc.restrain_unused(at(300), RTO, &cfg);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (cwnd, 75), "used {used}: three quarters are remembered");
    }
    // Once in each RTO, and of each RTO's own use.
    let mut cc = with_window(Algorithm::reno(), 100, 90);
    cc.note_limited(at(0), 30, 1_000, 0, false);
    cc.restrain_unused(at(300), RTO, &cfg);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (65, 90), "a higher threshold stays");
    cc.note_limited(at(301), 20, 2_000, 1_000, false);
    cc.restrain_unused(at(599), RTO, &cfg);
    assert_eq!(cc.cwnd(), 65);
    cc.restrain_unused(at(600), RTO, &cfg);
    assert_eq!(cc.cwnd(), 42, "(65 + 20) / 2");
}

#[test]
fn cwv_05_a_window_that_was_the_limit_is_used() {
    let cfg = CongestionConfig::default();
    let mut cc = with_window(Algorithm::reno(), 100, 40);
    cc.note_limited(at(0), 40, 1_000, 0, false);
    // The RTO counts from here, and so does the use.
    cc.note_limited(at(200), 100, 2_000, 1_000, true);
    cc.restrain_unused(at(450), RTO, &cfg);
    cc.note_limited(at(460), 20, 3_000, 2_000, false);
    cc.restrain_unused(at(499), RTO, &cfg);
    assert_eq!(cc.cwnd(), 100);
    cc.restrain_unused(at(500), RTO, &cfg);
    assert_eq!(cc.cwnd(), 60);
}

#[test]
fn cwv_06_idleness_halves_the_window_for_each_rto_down_to_the_initial_one() {
    // RFC 2861 §3.2: for each RTO in which nothing was sent.
    let cfg = CongestionConfig::default();
    for (idle_ns, cwnd) in [
        (300_000_000, 100),
        (300_000_001, 50),
        (600_000_000, 50),
        (600_000_001, 25),
        (900_000_001, 12),
        (1_200_000_001, 10),
        (1 << 50, 10),
    ] {
        let mut cc = reno(100);
        cc.on_idle_restart(at(0) + Duration::from_nanos(idle_ns), at(0), RTO, u64::MAX, &cfg);
        assert_eq!(cc.cwnd(), cwnd, "{idle_ns} ns");
    }
    // Three quarters of it is where slow start ends; a window below the initial one stays.
    let cases = [(100, 40, (25, 75)), (100, 90, (25, 90)), (6, 6, (6, 6)), (43, 4, (10, 32))];
    for (cwnd, ssthresh, after) in cases {
        let mut cc = with_window(Algorithm::reno(), cwnd, ssthresh);
        cc.on_idle_restart(at(700), at(0), RTO, u64::MAX, &cfg);
        assert_eq!((cc.cwnd(), cc.ssthresh()), after);
    }
}

/// The window has just been lowered: the RTO after which an unused one is, begins.
#[test]
fn cwv_06_a_window_lowered_after_silence_is_not_lowered_again_at_once() {
    let cfg = CongestionConfig::default();
    let mut cc = reno(400);
    cc.note_limited(at(0), 400, 1_000, 0, true);
    cc.on_idle_restart(at(700), at(0), RTO, u64::MAX, &cfg);
    assert_eq!(cc.cwnd(), 100);
    cc.note_limited(at(700), 10, 2_000, 1_000, false);
    cc.restrain_unused(at(999), RTO, &cfg);
    assert_eq!(cc.cwnd(), 100);
    cc.restrain_unused(at(1_000), RTO, &cfg);
    assert_eq!(cc.cwnd(), 55);
}

#[test]
fn cwv_07_a_setting_and_a_model_of_the_path_keep_the_window() {
    let mut cfg = CongestionConfig::default();
    let lowered = |cc: &mut Congestion, cfg: &CongestionConfig| {
        cc.note_limited(at(0), 20, 1_000, 0, false);
        cc.restrain_unused(at(400), RTO, cfg);
        cc.on_idle_restart(at(1_100), at(400), RTO, u64::MAX, cfg);
        cc.cwnd() < 100
    };
    assert!(lowered(&mut with_window(Algorithm::reno(), 100, 40), &cfg));
    assert!(!lowered(&mut with_window(Algorithm::bbr(), 100, u32::MAX), &cfg));
    cfg.slow_start_after_idle = false;
    assert!(!lowered(&mut with_window(Algorithm::reno(), 100, 40), &cfg));
}

/// The window's state is made when data leaves: a connection that only receives, or waits, does without.
#[test]
fn a_connection_that_sent_nothing_has_no_state() {
    let mut cc = Congestion::new(Algorithm::cubic());
    cc.note_limited(at(0), 0, 1, 1, false);
    assert!(cc.live.is_none());
    cc.note_limited(at(0), 1, 1_001, 1, false);
    assert!(cc.live.is_some());
    cc.note_limited(at(1), 0, 1_001, 1_001, false);
    assert_eq!(cc.live.as_ref().map(|live| live.usage_end), Some(1_001));
}
