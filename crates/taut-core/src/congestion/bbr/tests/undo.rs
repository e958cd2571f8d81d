//! Loss that was none: draft §5.5.11.

use super::*;

fn undo(flow: &mut Flow) {
    flow.bbr.undo(&mut flow.window, flow.now);
}

#[test]
fn bbr_55_spurious_loss_gives_back_window_and_bounds() {
    let mut flow = Flow::cruise();
    flow.set_cwnd(180);
    flow.recover();
    flow.lose(1, 100);
    flow.set_cwnd(60);
    flow.ack(Ack { segs: Some(80), rtt: QUEUE, in_flight: DRAINED, acked: 0, ..ACK });
    assert!(flow.bbr.bounds.inflight_shortterm < u32::MAX);
    undo(&mut flow);
    assert_eq!(flow.cwnd(), 180);
    assert_eq!(flow.bbr.bounds.inflight_shortterm, u32::MAX);
    assert_eq!(flow.bbr.bounds.bw_shortterm, Rate::INFINITE);
    // The round has no loss any more.
    flow.recover();
    flow.lose(1, 100);
    undo(&mut flow);
    flow.ack(Ack { segs: Some(80), rtt: QUEUE, in_flight: DRAINED, ..ACK });
    assert_eq!(flow.bbr.bounds.inflight_shortterm, u32::MAX);
    // Never lower than they are.
    flow.recover();
    flow.bbr.bounds.inflight_longterm = 150;
    flow.recover();
    flow.bbr.bounds.inflight_longterm = 170;
    undo(&mut flow);
    assert_eq!(flow.bbr.bounds.inflight_longterm, 170);
}

#[test]
fn bbr_56_a_probe_that_ended_for_nothing_begins_again() {
    // One segment, or several of a burst: those that are found lost after Up has ended are of the same
    // episode.
    for (lost, tx_in_flight) in [(1, 49), (4, 150), (9, 150)] {
        let mut flow = Flow::up();
        flow.recover();
        flow.lose(lost, tx_in_flight);
        assert_eq!(flow.state(), State::Down, "{lost}");
        undo(&mut flow);
        assert_eq!(flow.state(), State::Refill, "{lost}");
        assert_eq!(flow.bbr.bounds.inflight_longterm, u32::MAX, "{lost}");
    }
    // Losses of a later round too.
    let mut flow = Flow::up();
    flow.recover();
    flow.lose(4, 150);
    flow.ack(Ack { rtt: QUEUE, ..ACK });
    flow.lose(1, 150);
    undo(&mut flow);
    assert_eq!((flow.state(), flow.bbr.bounds.inflight_longterm), (State::Refill, u32::MAX));
    // But only of that episode.
    let mut flow = Flow::up();
    flow.recover();
    flow.lose(4, 150);
    flow.bbr.on_recovery_end(&mut flow.window);
    flow.recover();
    undo(&mut flow);
    assert_eq!((flow.state(), flow.bbr.bounds.inflight_longterm), (State::Down, 149));
}

#[test]
fn bbr_57_startup_that_ended_for_nothing_goes_on() {
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.recover();
    flow.lose(6, 100);
    flow.ack(Ack { recovering: true, lost: 3, rtt: QUEUE, ..ACK });
    assert_eq!(flow.state(), State::Drain);
    undo(&mut flow);
    assert_eq!((flow.state(), flow.bbr.bounds.inflight_longterm), (State::Startup, u32::MAX));
    assert!(!flow.bbr.cycle.full_bw_reached);
    // The full-pipe detector starts again: three rounds after one that sets its base.
    flow.acks(3, ACK);
    assert_eq!(flow.state(), State::Startup);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Drain);
}

#[test]
fn bbr_57_but_not_out_of_probe_rtt() {
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.recover();
    flow.lose(6, 100);
    flow.ack(Ack { recovering: true, lost: 3, rtt: QUEUE, ..ACK });
    flow.ack(Ack { after: Duration::from_millis(5_001), rtt: QUEUE, ..WITHIN });
    assert_eq!(flow.state(), State::ProbeRtt);
    undo(&mut flow);
    assert_eq!(flow.state(), State::ProbeRtt);
    flow.ack(Ack { in_flight: 4, ..WITHIN });
    flow.ack(Ack { in_flight: 4, after: Duration::from_millis(201), ..ACK });
    assert_eq!(flow.state(), State::Startup, "after it");
}
