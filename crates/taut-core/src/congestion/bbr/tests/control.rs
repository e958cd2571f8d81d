//! Pacing rate, window and their bounds: draft §5.6.

use super::*;
use crate::congestion::{Algorithm, Congestion, CongestionConfig};

/// 2500 segments of 1000 bytes a second, a hundredth less: §2.5.
const PACE: u64 = 2_475_000;

#[test]
fn bbr_01_the_first_pacing_rate() {
    // §5.6.2: 2.77 · IW / SRTT = 2.77 · 10,000 / 0.04, before the first ACK and with the first.
    let mut cc = Congestion::new(Algorithm::bbr());
    cc.update_pacing_rate(MSS, Some(LEAST), 0, u64::MAX, &CongestionConfig::default());
    assert_eq!(cc.pacing_rate(), 692_500);
    let mut flow = Flow::new();
    flow.ack(Ack { segs: None, ..ACK });
    assert_eq!(flow.bbr.pacing_rate(), Some(692_500));
    // Without an SRTT, 1 ms.
    let mut bbr = Bbr::new();
    assert_eq!(bbr.pacing_rate(), None);
    bbr.on_ack(&mut Window::new(10), &AckEvent::new(Instant::from_nanos(1), MSS, 1));
    assert_eq!(bbr.pacing_rate(), Some(27_700_000));
}

#[test]
fn bbr_02_gains_of_each_state() {
    // The table of §5.6.1, in hundredths; §2.5: one percent below.
    let mut startup = Flow::new();
    startup.ack(ACK);
    let mut probe_rtt = Flow::cruise();
    probe_rtt.ack(Ack { after: Duration::from_millis(5_001), rtt: QUEUE, in_flight: FULL, ..WITHIN });
    for (flow, state, pacing, cwnd) in [
        (startup, State::Startup, 277, 200),
        (Flow::drain(), State::Drain, 50, 200),
        (Flow::down(), State::Down, 90, 200),
        (Flow::cruise(), State::Cruise, 100, 200),
        (Flow::refill(), State::Refill, 100, 200),
        (Flow::up(), State::Up, 125, 225),
        (probe_rtt, State::ProbeRtt, 100, 50),
    ] {
        assert_eq!(flow.state(), state);
        assert_eq!(flow.bbr.pacing_rate(), Some(PACE * pacing / 100), "{state:?}");
        assert_eq!(flow.bbr.cycle.cwnd_gain(), cwnd, "{state:?}");
    }
}

#[test]
fn bbr_03_until_the_pipe_is_full_the_rate_only_rises() {
    let mut flow = Flow::new();
    // 10 segments in 40 ms would be 2.77 · 247,500; the first rate stays.
    flow.ack(Ack { segs: Some(1), ..ACK });
    assert_eq!(flow.bbr.pacing_rate(), Some(692_500));
    flow.ack(ACK);
    assert_eq!(flow.bbr.pacing_rate(), Some(6_855_750));
    // Once it was full, it falls: Drain.
    flow.acks(3, ACK);
    assert_eq!(flow.bbr.pacing_rate(), Some(PACE / 2));
}

#[test]
fn bbr_04_the_window_grows_by_what_is_acknowledged_until_the_pipe_is_full() {
    // §5.6.4.6. A bandwidth-delay product of 1 allows two segments, those acknowledged at once, and no less
    // than three super-packets of two: less than 10. But it says nothing before IW segments were delivered.
    let mut flow = Flow::new();
    flow.ack(Ack { acked: 2, segs: Some(1), ..ACK });
    assert_eq!(flow.cwnd(), 12);
    flow.ack(Ack { acked: 8, segs: Some(1), ..WITHIN });
    assert_eq!(flow.cwnd(), 12);
    // Below the volume that the model allows it grows, and not only up to that.
    flow.ack(Ack { acked: 500, ..ACK });
    assert_eq!(flow.cwnd(), 512);
    flow.ack(Ack { acked: 500, ..ACK });
    assert_eq!(flow.cwnd(), 1_012);
    flow.ack(Ack { after: Duration::from_secs(1), ..ACK });
    assert_eq!(flow.cwnd(), 1_012);
}

#[test]
fn bbr_05_then_up_to_the_volume_of_the_model() {
    // Twice the product of 100, and the one segment that an ACK covers beyond what the rate explains
    // (§5.5.9).
    let mut flow = Flow::cruise();
    flow.acks(12, ACK);
    flow.set_cwnd(190);
    flow.ack(Ack { in_flight: DRAINED, ..WITHIN });
    assert_eq!(flow.cwnd(), 191);
    flow.acks(20, WITHIN);
    assert!((201..=204).contains(&flow.cwnd()), "{}", flow.cwnd());
    flow.set_cwnd(500);
    flow.ack(WITHIN);
    assert!((201..=204).contains(&flow.cwnd()), "{}", flow.cwnd());
    // Up: 2.25 times, and two segments (§5.6.4.2).
    let up = Flow::up();
    let extra = up.bbr.path.extra_acked();
    let mut up = up;
    up.window.set_cwnd(1_000);
    up.ack(WITHIN);
    assert_eq!(up.cwnd(), 225 + extra.max(up.bbr.path.extra_acked()) + 2);
}

#[test]
fn bbr_06_room_for_three_super_packets_and_four_segments() {
    // §5.6.3: a millisecond of the pacing rate, 2 segments to 64 KiB; §5.5.8: three of them. §5.6.4.3: 4.
    let mut flow = Flow::cruise();
    for (pacing_rate, segs) in
        [(0, 2), (1_999_999, 2), (3_000_000, 3), (12_345_678, 12), (65_000_000, 65), (1_000_000_000, 65)]
    {
        flow.bbr.pacing_rate = pacing_rate;
        assert_eq!(flow.bbr.quantum_segs(), segs, "{pacing_rate}");
        assert_eq!(flow.bbr.with_budget(0), 3 * segs);
        assert_eq!(flow.bbr.with_budget(1_000), 1_000, "the larger of both");
    }
    flow.bbr.cycle.state = State::Up;
    assert_eq!(flow.bbr.with_budget(1_000), 1_002);
}

#[test]
fn bbr_07_without_a_round_trip_time_the_initial_window() {
    // §5.6.4.2.
    let bbr = Bbr::new();
    assert_eq!(bbr.bdp(Rate::of(&sample(100)), 200), 10);
}

fn sample(delivered: u32) -> RateSample {
    RateSample {
        delivered,
        interval: LEAST,
        is_app_limited: false,
        prior_in_flight: 0,
        tx_in_flight: 0,
        prior_delivered: 0,
        lost: 0,
        losses: 0,
        acked_sacked: 1,
    }
}

#[test]
fn bbr_08_bounds_on_the_volume_of_each_state() {
    // §5.6.4.7 and §5.6.1. inflight_longterm 180, of which 15 % are left to others: 27.
    for (state, long, cap) in [
        (State::Startup, 180, u32::MAX),
        (State::Drain, 180, 180),
        (State::Down, 180, 180),
        (State::Cruise, 180, 153),
        (State::Refill, 180, 180),
        (State::Up, 180, 180),
        (State::ProbeRtt, 180, 153),
        // One segment at least; four are left in any case.
        (State::Cruise, 6, 6),
        (State::Down, 3, 4),
        // taut: no less than the bandwidth-delay product, unless the bound is lower.
        (State::Cruise, 110, 100),
        (State::Cruise, 90, 90),
    ] {
        let mut flow = Flow::cruise();
        flow.bbr.cycle.state = state;
        flow.bbr.bounds.inflight_longterm = long;
        assert_eq!(flow.bbr.volume_cap(), cap, "{state:?} {long}");
        // The short-term bound holds in all of them; the probing ones have none (BBR-24).
        flow.bbr.bounds.inflight_shortterm = 80;
        assert_eq!(flow.bbr.volume_cap(), cap.min(80), "{state:?} {long}");
        flow.bbr.bounds.inflight_shortterm = 1;
        assert_eq!(flow.bbr.volume_cap(), 4, "{state:?} {long}");
    }
    // The window is bounded with the same ACK.
    let mut flow = Flow::cruise();
    flow.bbr.bounds.inflight_longterm = 180;
    flow.ack(Ack { in_flight: DRAINED, tx_in_flight: 0, ..WITHIN });
    assert_eq!(flow.cwnd(), 153);
}

#[test]
fn bbr_09_headroom() {
    // §5.3.3.9: max(1 segment, 15 %), and 4 are left.
    for (bound, left) in
        [(u32::MAX, u32::MAX), (1_000, 850), (20, 17), (7, 6), (6, 5), (5, 4), (4, 4), (1, 4)]
    {
        let mut flow = Flow::cruise();
        flow.bbr.bounds.inflight_longterm = bound;
        assert_eq!(flow.bbr.bounds.inflight_with_headroom(), left, "{bound}");
    }
}

#[test]
fn bbr_10_sending_resumes_at_the_bandwidth() {
    // §5.4.1: gain 1 in the four states of ProbeBW, and the window stays.
    for mut flow in [Flow::down(), Flow::cruise(), Flow::up()] {
        let (state, cwnd) = (flow.state(), flow.cwnd());
        let now = flow.now + Duration::from_secs(1);
        flow.bbr.on_idle_end(&mut flow.window, now, Duration::from_secs(1));
        assert_eq!(flow.bbr.pacing_rate(), Some(PACE), "{state:?}");
        assert_eq!((flow.state(), flow.cwnd()), (state, cwnd));
    }
    let mut flow = Flow::drain();
    let now = flow.now;
    flow.bbr.on_idle_end(&mut flow.window, now, Duration::ZERO);
    assert_eq!(flow.bbr.pacing_rate(), Some(PACE / 2), "not in Drain");
}

#[test]
fn bbr_02_startup_fills_its_volume_and_no_more() {
    // §5.6.4.6: cwnd grows while it is below max_inflight, the gain of 2 times 100 segments.
    let mut flow = Flow::new();
    flow.ack(Ack { acked: 10, ..ACK });
    flow.ack(WITHIN);
    let most = 200 + flow.bbr.path.extra_acked();
    flow.set_cwnd(most - 1);
    for _ in 0..3 {
        flow.ack(WITHIN);
        assert_eq!((flow.state(), flow.cwnd()), (State::Startup, most));
    }
}
