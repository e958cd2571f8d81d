//! What BBR knows of the path: rounds, bandwidth, round-trip time, aggregation. Draft §5.5.1 to §5.5.9.

use super::*;

fn sample(delivered: u32, app_limited: bool) -> RateSample {
    RateSample {
        delivered,
        interval: LEAST,
        is_app_limited: app_limited,
        prior_in_flight: 0,
        tx_in_flight: 0,
        prior_delivered: 0,
        lost: 0,
        losses: 0,
        acked_sacked: 1,
    }
}

/// Segments in 40 ms.
fn max_bw(path: &Path) -> u32 {
    path.max_bw().over(LEAST, 100)
}

#[test]
fn bbr_11_a_round_ends_with_the_ack_of_what_was_sent_in_it() {
    // §5.5.1: of a packet sent after this many segments had been delivered.
    let mut path = Path::new();
    let mut round = |prior, total| {
        path.update_round(&RateSample { prior_delivered: prior, ..sample(1, false) }, total);
        (path.round_start, path.round_count)
    };
    assert_eq!(round(0, 10), (true, 1));
    assert_eq!(round(9, 15), (false, 1));
    assert_eq!(round(10, 20), (true, 2));
    assert_eq!(round(19, 25), (false, 2));
    assert_eq!(round(25, 30), (true, 3));
}

#[test]
fn bbr_12_the_bandwidth_is_the_most_of_two_cycles() {
    // §5.5.3, §5.5.6.
    let mut path = Path::new();
    for segs in [80, 120, 100] {
        path.update_max_bw(&sample(segs, false));
    }
    assert_eq!(max_bw(&path), 120);
    path.advance_max_bw();
    path.update_max_bw(&sample(90, false));
    assert_eq!(max_bw(&path), 120, "the cycle before counts");
    path.advance_max_bw();
    path.update_max_bw(&sample(70, false));
    assert_eq!(max_bw(&path), 90, "the one before that does not");
}

#[test]
fn bbr_13_a_sample_limited_by_the_application_counts_if_it_is_higher() {
    // §5.5.4.
    let mut path = Path::new();
    path.update_max_bw(&sample(100, false));
    path.advance_max_bw();
    path.update_max_bw(&sample(99, true));
    path.advance_max_bw();
    assert_eq!(max_bw(&path), 100, "a cycle without a measurement is none");
    path.update_max_bw(&sample(101, true));
    assert_eq!(max_bw(&path), 101);
}

#[test]
fn bbr_14_the_filter_advances_with_the_end_of_a_probe_unless_the_application_is_the_limit() {
    for app_limited in [false, true] {
        // A probe found 120; the two after it find 100.
        let mut flow = Flow::up();
        flow.ack(Ack { segs: Some(120), ..WITHIN });
        flow.acks(4, Ack { segs: Some(100), ..ACK });
        assert_eq!((flow.state(), flow.bw()), (State::Down, 3_000));
        let end = Ack { app_limited, rtt: LEAST, ..ACK };
        flow.next_up(end);
        flow.acks(3, ACK);
        assert_eq!(flow.bw(), 3_000, "the cycle before counts");
        flow.next_up(end);
        assert_eq!(flow.bw(), if app_limited { 3_000 } else { 2_500 }, "limited: {app_limited}");
    }
}

#[test]
fn bbr_14_the_filter_advances_once_in_a_cycle() {
    // Rounds after the first of Down are the same cycle's.
    let mut flow = Flow::up();
    flow.ack(Ack { segs: Some(120), ..WITHIN });
    flow.acks(4, ACK);
    flow.acks(10, ACK);
    assert_eq!((flow.state(), flow.bw()), (State::Down, 3_000));
}

#[test]
fn bbr_15_the_least_rtt_of_ten_seconds() {
    // §5.5.7.2, §5.3.4.3: a lower one at once; after 10 s, the least that ProbeRTT's filter of 5 s has.
    let mut path = Path::new();
    let ms = Duration::from_millis;
    let start = Instant::from_nanos(1_000_000_000);
    path.start(start);
    let mut at = |at_ms, rtt| {
        let mut ack = AckEvent::new(start + ms(at_ms), MSS, 1);
        ack.rtt = Some(ms(rtt));
        path.update_min_rtt(&ack);
        (path.min_rtt().unwrap(), path.probe_rtt_expired)
    };
    assert_eq!(at(0, 50), (ms(50), false));
    assert_eq!(at(100, 40), (ms(40), false));
    assert_eq!(at(200, 60), (ms(40), false));
    assert_eq!(at(5_100, 60), (ms(40), false));
    // 5 s after the lowest: ProbeRTT is due, and its filter starts again.
    assert_eq!(at(5_101, 70), (ms(40), true));
    assert_eq!(at(5_102, 60), (ms(40), false));
    assert_eq!(at(10_100, 60), (ms(40), false));
    assert_eq!(at(10_101, 65), (ms(60), false));
    // A sample of zero is none.
    assert_eq!(at(10_103, 0), (ms(60), true));
}

#[test]
fn bbr_16_aggregation_is_what_the_rate_does_not_explain() {
    // §5.5.9, at 2500 segments a second: 2.5 in a millisecond.
    let bw = Rate::of(&sample(100, false));
    let mut path = Path::new();
    let start = Instant::from_nanos(1_000_000_000);
    path.start(start);
    let mut at = |at_ms, acked, cwnd| {
        let ack = AckEvent::new(start + Duration::from_millis(at_ms), MSS, acked);
        path.update_aggregation(&ack, bw, cwnd, true);
        path.extra_acked()
    };
    // Nothing was owed: an interval begins with 30 segments.
    assert_eq!(at(0, 30, 1_000), 30);
    // 4 ms later 10 are expected: 30 + 20 − 10.
    assert_eq!(at(4, 20, 1_000), 40);
    // 20 ms after the start 50 are expected, and no more than 50 have come: the episode is over.
    assert_eq!(at(20, 35, 1_000), 40);
    // 4 ms on, 35 + 20 − 10; but no more than cwnd.
    assert_eq!(at(24, 20, 42), 42);
    assert_eq!(at(24, 0, 1_000), 42, "an ACK that acknowledges nothing");
}

#[test]
fn bbr_17_aggregation_is_remembered_for_a_round_in_startup_and_ten_after_it() {
    // §2.12. Two slots of five rounds: forgotten after five to ten.
    for (full, least, most) in [(false, 1, 1), (true, 5, 10)] {
        let mut path = Path::new();
        let start = Instant::from_nanos(1_000_000_000);
        path.start(start);
        let bw = Rate::of(&sample(100, false));
        let mut round = |number: u64, acked| {
            path.round_start = true;
            let ack = AckEvent::new(start + Duration::from_millis(100 * number), MSS, acked);
            path.update_aggregation(&ack, bw, 1_000, full);
            path.extra_acked()
        };
        round(0, 50);
        let forgotten = (1..20).find(|&number| round(number, 1) == 1).unwrap();
        assert!((least..=most).contains(&forgotten), "full: {full}, round {forgotten}");
    }
}

#[test]
fn bbr_18_idle_time_is_no_time_without_acks() {
    // §5.4.1: the interval begins again, and what was beyond the rate before is not forgotten. 30 segments at
    // once, idle, and 20 more 1 ms after sending resumed, when 3 are expected (2.5): 30 + 20 − 3.
    let mut flow = Flow::cruise();
    flow.acks(12, ACK);
    flow.ack(Ack { acked: 30, in_flight: DRAINED, ..ACK });
    flow.now += Duration::from_secs(2);
    let now = flow.now;
    flow.bbr.on_idle_end(&mut flow.window, now, Duration::from_secs(2));
    flow.ack(Ack { acked: 20, in_flight: DRAINED, ..WITHIN });
    assert_eq!(flow.bbr.path.extra_acked(), 47);
}

/// The clock runs out in Down before its first round has ended. §5.3.3.3: Refill forgets that a probe's last
/// ACKs were awaited, so the cycle that this probe begins ends with the probe, and not with Refill.
#[test]
fn bbr_14_a_cycle_whose_probe_comes_early_is_whole() {
    let mut flow = Flow::up();
    flow.acks(3, ACK);
    assert_eq!(flow.state(), State::Down);
    flow.ack(Ack { segs: Some(120), ..WITHIN });
    flow.ack(Ack { after: Duration::from_secs(4), ..WITHIN });
    assert_eq!(flow.state(), State::Refill);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Up);
    for _ in 0..10 {
        if flow.state() == State::Up {
            flow.ack(ACK);
        }
    }
    assert_eq!(flow.state(), State::Down, "the pipe was full");
    flow.ack(ACK);
    assert_eq!(flow.bw(), 3_000, "of the last cycle");
}
