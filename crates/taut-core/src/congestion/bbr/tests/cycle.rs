//! The cycle of probing for bandwidth: Down, Cruise, Refill and Up. Draft §5.3.3, appendix A.5, A.7 to A.9.

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn bbr_26_down_ends_when_there_is_no_queue_and_room_for_others() {
    // §5.3.3.1: in flight ≤ the bandwidth-delay product, 100, and ≤ 85 % of inflight_longterm: 110 − 16.
    for (bound, most) in [(u32::MAX, 100), (110, 94), (200, 100)] {
        let mut flow = Flow::down();
        flow.bbr.bounds.inflight_longterm = bound;
        flow.ack(Ack { in_flight: most + 1, ..WITHIN });
        assert_eq!(flow.state(), State::Down, "{bound}");
        flow.ack(Ack { in_flight: most, ..WITHIN });
        assert_eq!(flow.state(), State::Cruise, "{bound}");
    }
}

/// From Down, ACKs every 10 ms that end no round: the time until the next probe.
fn wait(seed: u64, in_flight: u32) -> Duration {
    let mut flow = Flow::down_seeded(seed);
    let began = flow.now;
    while flow.state() != State::Refill {
        flow.ack(Ack { in_flight, after: MS * 10, ..WITHIN });
        assert!(flow.now.since(began) < Duration::from_secs(10));
    }
    flow.now.since(began)
}

#[test]
fn bbr_27_a_probe_begins_two_to_three_seconds_after_the_last() {
    // §5.3.3.8: from Cruise; and from Down, if its queue does not go away.
    for in_flight in [DRAINED, FULL] {
        let waits: Vec<u64> = (1..=40).map(|seed| wait(seed, in_flight).as_millis()).collect();
        // The clock starts with the next ACK, 10 ms later, and the time must be over.
        assert!(waits.iter().all(|ms| (2_010..=3_020).contains(ms)), "{waits:?}");
        // Uniform: of 40, the least is below 2.2 s and the greatest above 2.8 s but once in 5000 times each.
        assert!(waits.iter().any(|&ms| ms < 2_200) && waits.iter().any(|&ms| ms > 2_800), "{waits:?}");
    }
}

type Prepare = fn(&mut Flow);

#[test]
fn bbr_28_a_probe_begins_as_soon_as_reno_would_have_filled_the_path() {
    // §5.3.3.8: after min(bandwidth-delay product, cwnd, 63) rounds, of which chance takes one or none; here
    // in 63 ms.
    let rounds = |seed, in_flight, prepare: Prepare| {
        let mut flow = Flow::down_seeded(seed);
        prepare(&mut flow);
        flow.ack(Ack { in_flight, ..WITHIN });
        let began = flow.bbr.path.round_count;
        while flow.state() != State::Refill {
            flow.ack(Ack { in_flight, after: MS, ..ACK });
        }
        flow.bbr.path.round_count - began
    };
    let cases: [(Prepare, u32); 3] = [
        (|_| {}, 63),
        (|flow| flow.bbr.bounds.inflight_shortterm = 20, 20),
        (|flow| flow.bbr.bounds.bw_shortterm = Rate::of(&RateSample { delivered: 10, ..SAMPLE }), 10),
    ];
    for (prepare, most) in cases {
        for in_flight in [4, FULL] {
            let seen: Vec<u32> = (1..=20).map(|seed| rounds(seed, in_flight, prepare)).collect();
            assert!(seen.iter().all(|&n| n == most || n == most - 1), "{most}: {seen:?}");
            assert!(seen.contains(&most) && seen.contains(&(most - 1)), "{most}: {seen:?}");
        }
    }
}

const SAMPLE: RateSample = RateSample {
    delivered: 100,
    interval: LEAST,
    is_app_limited: false,
    prior_in_flight: 0,
    tx_in_flight: 0,
    prior_delivered: 0,
    lost: 0,
    losses: 0,
    acked_sacked: 1,
};

#[test]
fn bbr_29_refill_lasts_one_round() {
    // §5.3.3.3.
    let mut flow = Flow::refill();
    flow.acks(20, WITHIN);
    assert_eq!(flow.state(), State::Refill);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Up);
}

#[test]
fn bbr_30_refill_forgets_the_short_term() {
    // §5.3.3.3: both bounds.
    let mut flow = Flow::cruise();
    flow.bbr.bounds.bw_shortterm = Rate::of(&RateSample { delivered: 50, ..SAMPLE });
    flow.bbr.bounds.inflight_shortterm = 80;
    flow.ack(Ack { in_flight: DRAINED, ..WITHIN });
    assert_eq!((flow.bw(), flow.cwnd()), (1_250, 80));
    flow.probe_now();
    assert_eq!((flow.bw(), flow.bbr.bounds.inflight_shortterm), (2_500, u32::MAX));
}

#[test]
fn bbr_31_up_ends_with_a_plateau() {
    // §5.3.3.7: three rounds without a quarter more than at the start of Up.
    let mut flow = Flow::up();
    flow.ack(Ack { segs: Some(124), ..ACK });
    flow.acks(9, WITHIN);
    flow.ack(ACK);
    // Appendix A.7.
    flow.acks(5, Ack { app_limited: true, ..ACK });
    assert_eq!(flow.state(), State::Up);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Down);
    // A quarter more begins again, and is the next base: 125 · 1.25 = 156.25. Through a queue, so that it is
    // Up's own gain all along (CC-9).
    let queue = Duration::from_millis(51);
    let mut flow = Flow::up();
    flow.acks(2, ACK);
    flow.ack(Ack { segs: Some(125), rtt: queue, ..ACK });
    flow.acks(2, Ack { segs: Some(156), rtt: queue, ..ACK });
    assert_eq!(flow.state(), State::Up);
    flow.ack(Ack { segs: Some(156), rtt: queue, ..ACK });
    assert_eq!(flow.state(), State::Down);
}

/// In Cruise, the path becomes slower: 60 segments in 40 ms through a queue, for four times 40 ms.
fn slower() -> Flow {
    let mut flow = Flow::cruise();
    let slow = Ack { segs: Some(60), rtt: MS * 61, after: MS * 10, ..WITHIN };
    flow.acks(16, slow);
    assert_eq!((flow.state(), flow.bw()), (State::Cruise, 2_500));
    flow.ack(slow);
    flow
}

#[test]
fn cc_06_a_slower_path_has_the_bandwidth_of_its_samples() {
    let flow = slower();
    assert_eq!((flow.state(), flow.bw()), (State::Down, 1_500));
}

#[test]
fn cc_08_the_next_probe_comes_after_eight_rounds_then() {
    // Of which chance takes one or none; through a queue as always, after 60, the product.
    for (rtt, rounds) in [(LEAST, 7..=8), (MS * 61, 59..=60)] {
        let mut flow = slower();
        let began = flow.bbr.path.round_count;
        while flow.state() != State::Refill {
            flow.ack(Ack { segs: Some(60), rtt, after: MS, ..ACK });
        }
        let count = flow.bbr.path.round_count - began;
        assert!(rounds.contains(&count), "{rtt:?}: {count}");
    }
}

#[test]
fn cc_09_a_faster_path_ends_with_drain() {
    let mut flow = Flow::up();
    flow.ack(Ack { segs: Some(125), ..ACK });
    // 125 segments in 40 ms: 0.99 · 2.77 · 3,125,000.
    assert_eq!(flow.bbr.pacing_rate(), Some(8_569_687));
    flow.acks(3, Ack { segs: Some(125), ..ACK });
    assert_eq!(flow.state(), State::Drain);
}

/// Up with this long-term bound and that window.
fn bounded(bound: u32) -> Flow {
    let mut flow = Flow::refill();
    flow.bbr.bounds.inflight_longterm = bound;
    flow.set_cwnd(bound);
    flow.ack(ACK);
    assert_eq!((flow.state(), flow.cwnd()), (State::Up, bound));
    flow
}

#[test]
fn bbr_32_a_plateau_at_the_bound_is_none() {
    // §5.3.3.7: while cwnd is the limit and inflight_longterm is cwnd.
    for (cwnd_limited, state) in [(true, State::Up), (false, State::Down)] {
        let mut flow = bounded(160);
        flow.acks(6, Ack { cwnd_limited, ..ACK });
        assert_eq!(flow.state(), state, "limited: {cwnd_limited}");
    }
}

#[test]
fn bbr_33_the_bound_rises_by_one_two_four_in_successive_rounds() {
    // §5.3.3.5: 1 segment for the 160 of the first round, then one for each 161/2, then 163/4.
    let mut flow = bounded(160);
    let within = Ack { cwnd_limited: true, ..WITHIN };
    let bound = |flow: &Flow| flow.bbr.bounds.inflight_longterm;
    flow.ack(Ack { acked: 159, ..within });
    assert_eq!(bound(&flow), 160);
    flow.ack(within);
    assert_eq!(bound(&flow), 161);
    flow.ack(Ack { cwnd_limited: true, ..ACK });
    flow.ack(Ack { acked: 160, ..within });
    assert_eq!(bound(&flow), 163);
    flow.ack(Ack { cwnd_limited: true, ..ACK });
    flow.ack(Ack { acked: 160, ..within });
    assert_eq!(bound(&flow), 167);
    // Not while something else is the limit.
    let mut flow = bounded(160);
    flow.ack(Ack { acked: 500, ..WITHIN });
    assert_eq!(bound(&flow), 160);
}

#[test]
fn bbr_34_a_volume_that_lost_little_is_safe() {
    // §5.3.3.9: of 130 in flight, 2 % are 2.6.
    for state in [State::Down, State::Cruise, State::Refill, State::Up] {
        for (lost, bound) in [(2, 130), (3, 120)] {
            let mut flow = Flow::cruise();
            flow.bbr.cycle.state = state;
            flow.bbr.bounds.inflight_longterm = 120;
            flow.ack(Ack { tx_in_flight: 130, lost, ..WITHIN });
            assert_eq!(flow.bbr.bounds.inflight_longterm, bound, "{state:?}, {lost} lost");
        }
    }
    // No bound is made of a safe volume.
    let mut flow = Flow::cruise();
    flow.ack(Ack { tx_in_flight: 130, ..WITHIN });
    assert_eq!(flow.bbr.bounds.inflight_longterm, u32::MAX);
}

#[test]
fn bbr_35_after_a_loss_a_probe_is_cautious() {
    // §5.3.3.6: too much lost at 149 in flight. The next probe ends with 149 in flight; when a round of its
    // ACKs shows no loss, Refill and Up follow at once, and that Up does not end at 149.
    let mut flow = Flow::up();
    flow.lose(4, 150);
    assert_eq!((flow.state(), flow.bbr.bounds.inflight_longterm), (State::Down, 149));
    flow.next_up(ACK);
    flow.ack(Ack { in_flight: 148, ..WITHIN });
    assert_eq!(flow.state(), State::Up);
    flow.ack(Ack { in_flight: 149, ..WITHIN });
    assert_eq!(flow.state(), State::Down);
    flow.acks(3, WITHIN);
    assert_eq!(flow.state(), State::Down);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Refill);
    flow.ack(ACK);
    flow.acks(5, Ack { in_flight: 170, ..WITHIN });
    assert_eq!(flow.state(), State::Up);
    // That probe was not cautious, so none follows at once when its last ACKs have come.
    flow.acks(3, ACK);
    assert_eq!(flow.state(), State::Down, "three rounds without growth");
    flow.acks(2, ACK);
    assert_eq!(flow.state(), State::Down);
}

#[test]
fn bbr_36_a_cautious_probe_that_loses_waits_for_the_next() {
    let mut flow = Flow::up();
    flow.lose(4, 150);
    flow.next_up(Ack { rtt: QUEUE, ..ACK });
    flow.ack(Ack { in_flight: 149, ..WITHIN });
    flow.lose(4, 150);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Down);
}

#[test]
fn bbr_29_refill_lasts_a_round_from_its_own_beginning() {
    // §5.3.3.3 `StartRound`: a packet that was sent before Refill ends no round of it, though it ends the
    // round before.
    let mut flow = Flow::cruise();
    while flow.state() != State::Refill {
        flow.ack(Ack { in_flight: DRAINED, after: MS * 10, ..WITHIN });
    }
    flow.round_from = flow.delivered;
    flow.ack(WITHIN);
    assert_eq!(flow.state(), State::Refill);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Up);
}

#[test]
fn cc_09_what_one_probe_found_says_nothing_of_the_next() {
    let mut flow = Flow::up();
    flow.acks(4, Ack { segs: Some(125), ..ACK });
    assert_eq!(flow.state(), State::Drain);
    // The queue is gone, and Down, Cruise and Refill follow.
    flow.ack(Ack { in_flight: 50, ..ACK });
    flow.probe_now();
    flow.ack(Ack { segs: Some(125), ..ACK });
    assert_eq!(flow.state(), State::Up);
    // Up's own gain: 0.99 · 1.25 · 3,125,000. It finds nothing more, and Down follows.
    assert_eq!(flow.bbr.pacing_rate(), Some(3_867_187));
    flow.acks(3, Ack { segs: Some(125), ..ACK });
    assert_eq!(flow.state(), State::Down);
}
