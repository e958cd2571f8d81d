//! ProbeRTT, and idleness that stands in for it: draft §5.3.4 and §5.4.1, appendix A.10 and A.11.

use super::*;
use crate::congestion::bbr::cycle::AckPhase;

const MS: fn(u64) -> Duration = Duration::from_millis;
/// RTTs above the least: not the path's own.
const SLOW: Ack = Ack { rtt: QUEUE, in_flight: FULL, ..WITHIN };

/// In Cruise, and just in ProbeRTT: the window was 180.
fn probing() -> Flow {
    let mut flow = Flow::cruise();
    flow.set_cwnd(180);
    flow.ack(Ack { after: MS(5_001), acked: 0, ..SLOW });
    assert_eq!(flow.state(), State::ProbeRtt);
    flow
}

#[test]
fn bbr_46_five_seconds_without_a_lower_rtt() {
    // §5.3.4.1: since the last RTT that was lower. From every state.
    for (mut flow, state) in [
        (Flow::drain(), State::Drain),
        (Flow::down(), State::Down),
        (Flow::cruise(), State::Cruise),
        (Flow::refill(), State::Refill),
        (Flow::up(), State::Up),
    ] {
        flow.ack(Ack { after: MS(1), rtt: LEAST - MS(1), ..WITHIN });
        assert_eq!(flow.state(), state);
        // One that is no lower does not count, before the first ProbeRTT.
        flow.ack(Ack { after: MS(1), rtt: LEAST - MS(1), ..WITHIN });
        flow.ack(Ack { after: MS(4_999), ..SLOW });
        assert_ne!(flow.state(), State::ProbeRtt, "{state:?}");
        flow.ack(SLOW);
        assert_eq!(flow.state(), State::ProbeRtt, "{state:?}");
    }
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.ack(Ack { after: MS(5_001), app_limited: true, ..SLOW });
    assert_eq!(flow.state(), State::ProbeRtt);
}

/// §5.3.4.4, `BBRCheckProbeRTT`: the probe for bandwidth is over, its last ACKs are still to come, and a
/// round begins.
#[test]
fn bbr_46_it_ends_a_probe_for_bandwidth() {
    let mut flow = Flow::up();
    flow.ack(Ack { after: MS(5_001), acked: 3, ..SLOW });
    assert_eq!(flow.state(), State::ProbeRtt);
    assert_eq!(flow.bbr.cycle.ack_phase, AckPhase::Stopping);
    assert_eq!(flow.bbr.path.next_round_delivered, flow.delivered);
}

#[test]
fn bbr_47_half_of_the_volume_is_left_in_flight() {
    // §5.6.4.5: max(0.5 · 100, 4).
    let mut flow = probing();
    assert_eq!(flow.cwnd(), 50);
    assert!(flow.window.app_limited, "its samples say nothing of the path");
    flow.bbr.bw = Rate::of(&RateSample {
        delivered: 5,
        interval: LEAST,
        is_app_limited: false,
        prior_in_flight: 0,
        tx_in_flight: 0,
        prior_delivered: 0,
        lost: 0,
        losses: 0,
        acked_sacked: 1,
    });
    assert_eq!(flow.bbr.probe_rtt_cwnd(), 4);
}

#[test]
fn bbr_48_it_lasts_200_ms_and_a_round_from_the_time_the_queue_is_gone() {
    let gone = Ack { in_flight: 50, rtt: LEAST, ..WITHIN };
    // The queue is not gone: as long as it takes.
    let mut flow = probing();
    flow.acks(5, Ack { after: MS(300), in_flight: 51, ..ACK });
    assert_eq!(flow.state(), State::ProbeRtt);
    // A round is over long before 200 ms, which must be exceeded.
    flow.ack(gone);
    flow.ack(Ack { after: MS(40), in_flight: 50, ..ACK });
    flow.ack(Ack { after: MS(160), ..gone });
    assert_eq!(flow.state(), State::ProbeRtt);
    flow.ack(gone);
    assert_eq!(flow.state(), State::Cruise);
    // 200 ms are over long before a round.
    let mut flow = probing();
    flow.ack(gone);
    flow.ack(Ack { after: MS(500), ..gone });
    assert_eq!(flow.state(), State::ProbeRtt);
    flow.ack(Ack { in_flight: 50, after: MS(1), ..ACK });
    assert_eq!(flow.state(), State::Cruise);
}

#[test]
fn bbr_49_then_the_window_and_the_cycle_are_as_before() {
    // §5.3.4.4: the short-term bounds are forgotten, and the clock of the next probe starts again.
    let mut flow = probing();
    flow.bbr.bounds.inflight_shortterm = 30;
    flow.bbr.bounds.bw_shortterm = flow.bbr.path.max_bw().percent(30);
    flow.ack(Ack { in_flight: 10, ..WITHIN });
    flow.ack(Ack { in_flight: 10, after: MS(201), acked: 0, ..ACK });
    assert_eq!((flow.state(), flow.cwnd(), flow.bw()), (State::Cruise, 180, 2_500));
    let ended = flow.now;
    while flow.state() == State::Cruise {
        flow.ack(Ack { in_flight: 50, after: MS(10), ..WITHIN });
    }
    assert_eq!(flow.state(), State::Refill);
    assert!(flow.now.since(ended) > MS(2_000));
}

#[test]
fn bbr_50_startup_goes_on_after_it() {
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.ack(Ack { after: MS(5_001), app_limited: true, ..SLOW });
    assert_eq!(flow.state(), State::ProbeRtt);
    flow.ack(Ack { in_flight: 4, app_limited: true, ..WITHIN });
    flow.ack(Ack { in_flight: 4, after: MS(201), app_limited: true, ..ACK });
    assert_eq!(flow.state(), State::Startup);
}

#[test]
fn bbr_51_the_next_one_is_five_seconds_later() {
    let mut flow = probing();
    flow.ack(Ack { in_flight: 50, ..WITHIN });
    flow.ack(Ack { in_flight: 50, after: MS(300), ..ACK });
    assert_eq!(flow.state(), State::Cruise);
    flow.ack(Ack { after: MS(5_000), ..SLOW });
    assert_ne!(flow.state(), State::ProbeRtt);
    flow.ack(SLOW);
    assert_eq!(flow.state(), State::ProbeRtt);
}

#[test]
fn bbr_52_an_rtt_as_low_as_its_result_puts_the_next_one_off() {
    // taut: within a 64th, 40.625 ms; but only what ProbeRTT has found to be the path's.
    for (us, probes) in [(40_625, false), (40_626, true)] {
        let mut flow = probing();
        flow.ack(Ack { in_flight: 50, ..WITHIN });
        flow.ack(Ack { in_flight: 50, after: MS(300), ..ACK });
        flow.ack(Ack { rtt: Duration::from_micros(us), after: MS(4_000), ..SLOW });
        flow.ack(Ack { after: MS(1_001), ..SLOW });
        assert_eq!(flow.state() == State::ProbeRtt, probes, "{us}");
    }
}

#[test]
fn bbr_53_idleness_stands_in_for_it() {
    // Appendix A.11: 6 s without data; the queue is empty.
    let mut flow = Flow::cruise();
    let idle = MS(6_000);
    flow.now += idle;
    let now = flow.now;
    flow.bbr.on_idle_end(&mut flow.window, now, idle);
    flow.acks(2, SLOW);
    assert_ne!(flow.state(), State::ProbeRtt);
    // For one ACK only.
    flow.ack(Ack { after: MS(5_001), ..SLOW });
    assert_eq!(flow.state(), State::ProbeRtt);
}

#[test]
fn bbr_54_it_may_end_while_the_flow_is_idle() {
    // §5.4.1: when sending resumes, before anything leaves.
    let mut flow = probing();
    flow.ack(Ack { in_flight: 50, ..WITHIN });
    let at = |ms| flow.now + MS(ms);
    let (early, late) = (at(200), at(201));
    flow.bbr.on_idle_end(&mut flow.window, early, MS(200));
    assert_eq!((flow.state(), flow.cwnd()), (State::ProbeRtt, 50));
    flow.bbr.on_idle_end(&mut flow.window, late, MS(201));
    assert_eq!((flow.state(), flow.cwnd()), (State::Cruise, 180));
    // Not if the queue was never gone.
    let mut flow = probing();
    let now = flow.now + MS(1_000);
    flow.bbr.on_idle_end(&mut flow.window, now, MS(1_000));
    assert_eq!(flow.state(), State::ProbeRtt);
}

#[test]
fn bbr_49_a_round_begins_with_the_end_of_the_probe() {
    // §5.3.4.4 goes through `StartProbeBW_DOWN`, which starts a round: what was sent before ends none.
    let mut flow = probing();
    flow.ack(Ack { in_flight: 50, ..WITHIN });
    while flow.state() == State::ProbeRtt {
        flow.ack(Ack { after: MS(40), in_flight: 50, ..ACK });
    }
    let rounds = flow.bbr.path.round_count;
    flow.round_from = flow.delivered;
    flow.ack(WITHIN);
    assert_eq!(flow.bbr.path.round_count, rounds);
    flow.ack(ACK);
    assert_eq!(flow.bbr.path.round_count, rounds + 1);
}
