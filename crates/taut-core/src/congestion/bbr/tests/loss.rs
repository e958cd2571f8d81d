//! The bounds that loss sets: draft §5.5.10, appendix A.6; and loss recovery, §5.6.4.4.

use super::*;
use crate::congestion::{Algorithm, Congestion};

/// Segments lost so far, per cent of what was in flight.
fn bound(flow: &Flow) -> u32 {
    flow.bbr.bounds.inflight_longterm
}

#[test]
fn bbr_37_a_probe_that_lost_too_much_ends() {
    // §5.5.10.2: 4 of 150 are more than 2 %; before the fourth segment 149 were in flight. At least 0.7 ·
    // min(100, cwnd).
    for (lost, tx_in_flight, longterm) in [(4, 150, 149), (3, 150, u32::MAX), (2, 50, 70), (2, 90, 89)] {
        let mut flow = Flow::up();
        flow.lose(lost, tx_in_flight);
        assert_eq!(bound(&flow), longterm, "{lost} of {tx_in_flight}");
        assert_eq!(flow.state() == State::Down, longterm != u32::MAX);
    }
    let mut flow = Flow::up();
    flow.bbr.cwnd = 60;
    flow.lose(2, 20);
    assert_eq!(bound(&flow), 42, "0.7 · cwnd");
}

#[test]
fn bbr_38_once_for_each_probe() {
    let mut flow = Flow::up();
    flow.lose(4, 150);
    flow.lose(20, 110);
    flow.ack(ACK);
    flow.lose(20, 110);
    assert_eq!(bound(&flow), 149);
}

#[test]
fn bbr_39_the_losses_of_a_probe_come_a_round_after_it() {
    // Up ended with a plateau: its last ACKs are still to come.
    let mut flow = Flow::up();
    flow.acks(3, ACK);
    assert_eq!(flow.state(), State::Down);
    flow.lose(4, 150);
    assert_eq!((flow.state(), bound(&flow)), (State::Down, 149));
    // After these, and in Refill, whose ACKs come in Up, a loss does not count.
    let mut flow = Flow::up();
    flow.acks(4, ACK);
    flow.lose(4, 150);
    assert_eq!(bound(&flow), u32::MAX);
    let mut flow = Flow::refill();
    flow.lose(4, 150);
    assert_eq!((flow.state(), bound(&flow)), (State::Refill, u32::MAX));
}

#[test]
fn bbr_40_a_volume_that_the_application_limited_is_no_bound() {
    // Appendix A.6: Up ends all the same.
    let mut flow = Flow::up();
    for lost in 1..=4 {
        let total_delivered = flow.delivered;
        flow.lose_packet(LostPacket {
            segs: 1,
            tx_in_flight: 150,
            lost,
            total_delivered,
            is_app_limited: true,
        });
    }
    assert_eq!((flow.state(), bound(&flow)), (State::Down, u32::MAX));
}

#[test]
fn bbr_41_loss_lowers_the_short_term_bounds_once_a_round() {
    // §5.5.10.3: max(latest, 0.7 · itself), from the bandwidth and cwnd on.
    let mut flow = Flow::cruise();
    flow.acks(12, ACK);
    flow.set_cwnd(200);
    let lossy = |segs| Ack { segs: Some(segs), rtt: QUEUE, in_flight: DRAINED, acked: 0, ..ACK };
    flow.ack(lossy(80));
    assert_eq!((flow.bw(), flow.cwnd()), (2_500, 200), "no loss");
    // 80 segments were delivered in the round: max(80, 0.7 · 100); max(80, 0.7 · 200).
    flow.lose(3, 100);
    flow.ack(Ack { ends_round: false, ..lossy(80) });
    assert_eq!((flow.bw(), flow.cwnd()), (2_500, 200), "the round is not over");
    flow.lose(3, 100);
    flow.ack(lossy(80));
    assert_eq!((flow.bw(), flow.cwnd()), (2_000, 140));
    // The sample that ended the last round is part of this one: max(80, 0.7 · 80); max(80, 0.7 · 140).
    flow.lose(3, 100);
    flow.ack(lossy(50));
    assert_eq!((flow.bw(), flow.cwnd()), (2_000, 98));
    // max(50, 0.7 · 80) = 56; max(50, 0.7 · 98) = 68.6.
    flow.lose(3, 100);
    flow.ack(lossy(50));
    assert_eq!((flow.bw(), flow.cwnd()), (1_400, 68));
    flow.acks(3, lossy(50));
    assert_eq!((flow.bw(), flow.cwnd()), (1_400, 68), "no loss");
    // max(50, 0.7 · 56); max(50, 0.7 · 68).
    flow.lose(3, 100);
    flow.ack(lossy(50));
    assert_eq!((flow.bw(), flow.cwnd()), (1_250, 50));
}

#[test]
fn bbr_41_a_round_of_loss_begins_with_its_first_loss() {
    // NoteLoss: it ends with the ACK of what was sent after that, also when the round before had losses.
    let mut flow = Flow::cruise();
    flow.lose(1, 100);
    flow.ack(Ack { rtt: QUEUE, in_flight: DRAINED, ..ACK });
    flow.ack(Ack { acked: 5, rtt: QUEUE, in_flight: DRAINED, ..WITHIN });
    flow.lose(1, 100);
    let total = flow.delivered;
    let mut ends = |prior_delivered| {
        let sample = RateSample {
            delivered: 1,
            interval: LEAST,
            is_app_limited: false,
            prior_in_flight: 0,
            tx_in_flight: 0,
            prior_delivered,
            lost: 0,
            losses: 0,
            acked_sacked: 1,
        };
        flow.bbr.bounds.update_latest(&sample, total + 1);
        flow.bbr.bounds.loss_round_start
    };
    assert!(!ends(total - 1));
    assert!(ends(total));
}

#[test]
fn bbr_42_a_sender_that_probes_expects_loss() {
    // §5.5.10.3: Startup, Refill and Up have no short-term bounds; the other states have.
    let mut startup = Flow::new();
    startup.ack(ACK);
    for (mut flow, state, lowered) in [
        (startup, State::Startup, false),
        (Flow::drain(), State::Drain, true),
        (Flow::down(), State::Down, true),
        (Flow::cruise(), State::Cruise, true),
        (Flow::refill(), State::Refill, false),
        (Flow::up(), State::Up, false),
    ] {
        flow.bbr.cycle.is_probe_sample = false;
        flow.ack(Ack { rtt: QUEUE, ..WITHIN });
        flow.lose(1, 100);
        assert_eq!(flow.state(), state);
        flow.ack(Ack { rtt: QUEUE, segs: Some(99), ..ACK });
        assert_eq!(flow.bbr.bounds.inflight_shortterm != u32::MAX, lowered, "{state:?}");
        assert_eq!(flow.bbr.bounds.bw_shortterm != Rate::INFINITE, lowered, "{state:?}");
    }
}

#[test]
fn bbr_43_the_rate_follows_the_short_term_bandwidth() {
    // BoundBWForModel: 0.99 · 2000 segments of 1000 bytes, in Cruise.
    let mut flow = Flow::cruise();
    flow.ack(Ack { segs: Some(80), rtt: QUEUE, ..ACK });
    flow.lose(1, 100);
    flow.ack(Ack { segs: Some(80), rtt: QUEUE, ..ACK });
    assert_eq!((flow.state(), flow.bbr.pacing_rate()), (State::Cruise, Some(1_980_000)));
}

#[test]
fn bbr_44_recovery_gives_back_the_window_from_before() {
    // §5.6.4.4. A later loss, when cwnd is lower, does not count; a timeout does not either.
    let mut flow = Flow::cruise();
    flow.set_cwnd(180);
    flow.recover();
    flow.set_cwnd(60);
    flow.bbr.reduce(&flow.window, Signal::Timeout, flow.now);
    flow.set_cwnd(1);
    flow.bbr.on_timeout(&mut flow.window);
    flow.bbr.on_recovery_end(&mut flow.window);
    assert_eq!(flow.cwnd(), 180);
    // It is over: what lowers cwnd next is not undone by the end of a reduction because of a mark.
    flow.set_cwnd(100);
    flow.bbr.reduce(&flow.window, Signal::Mark, flow.now);
    flow.set_cwnd(50);
    flow.bbr.on_recovery_end(&mut flow.window);
    assert_eq!(flow.cwnd(), 50);
}

#[test]
fn bbr_45_every_ack_moves_the_window_in_recovery_too() {
    // §5.6.4.4: BBR's response to loss is its bounds; neither the reduction nor its end sets cwnd, and a
    // timeout's window grows by what is acknowledged.
    let mut cc = Congestion::new(Algorithm::bbr());
    let now = Instant::from_nanos(1_000_000_000);
    let ack = |cc: &mut Congestion, recovering| {
        let mut ack = AckEvent::new(now, MSS, 3);
        (ack.recovering, ack.cwnd_limited, ack.total_delivered) = (recovering, false, 3);
        cc.on_ack(ack, false);
        cc.cwnd()
    };
    assert!(!cc.owns_cwnd(), "before the first packet");
    assert_eq!(ack(&mut cc, false), 13);
    assert!(cc.owns_cwnd());
    cc.begin_reduction(now, Signal::Loss, true);
    assert_eq!(cc.ssthresh(), u32::MAX);
    assert_eq!(ack(&mut cc, true), 16);
    cc.end_reduction();
    assert_eq!(cc.cwnd(), 16);
    cc.begin_reduction(now, Signal::Timeout, true);
    cc.on_timeout(now, 4);
    assert_eq!(cc.cwnd(), 5);
    assert_eq!(ack(&mut cc, true), 8);
    cc.end_loss();
    assert_eq!(cc.cwnd(), 16);
}
