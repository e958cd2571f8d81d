//! Startup and Drain, and how they end: draft §5.3.1 and §5.3.2, appendix A.1 to A.4 and A.7.

use super::*;

#[test]
fn bbr_19_startup_ends_after_three_rounds_without_growth_by_a_quarter() {
    // §5.3.1.2.
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.acks(2, ACK);
    assert_eq!(flow.state(), State::Startup);
    assert!(!flow.bbr.cycle.full_bw_reached);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Drain);
    assert!(flow.bbr.cycle.full_bw_reached);
}

#[test]
fn bbr_20_growth_by_a_quarter_starts_the_count_again() {
    for (segs, full) in [(124, true), (125, false)] {
        let mut flow = Flow::new();
        flow.acks(3, ACK);
        flow.ack(Ack { segs: Some(segs), ..ACK });
        assert_eq!(flow.state() == State::Drain, full, "{segs}");
        if full {
            continue;
        }
        // Three rounds below a quarter more than that: 156.25.
        flow.acks(2, Ack { segs: Some(156), in_flight: 200, ..ACK });
        assert_eq!(flow.state(), State::Startup);
        flow.ack(Ack { segs: Some(156), in_flight: 200, ..ACK });
        assert_eq!(flow.state(), State::Drain);
    }
}

#[test]
fn bbr_21_only_rounds_at_the_networks_own_rate_count() {
    // Neither ACKs within a round nor rounds limited by the application: appendix A.7.
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.acks(50, WITHIN);
    flow.acks(50, Ack { app_limited: true, ..ACK });
    flow.acks(2, ACK);
    assert_eq!(flow.state(), State::Startup);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Drain);
}

#[test]
fn bbr_67_a_limited_flight_of_a_quarter_more_shows_a_full_pipe() {
    // The first round sets the base: 100 segments in 40 ms, so bdp is 100. A quarter more is 125; 100 / 1.25
    // is 80.
    for (tx_in_flight, segs, full) in [(125, 100, true), (124, 100, false), (125, 80, true), (125, 79, false)]
    {
        let mut flow = Flow::new();
        flow.ack(ACK);
        flow.acks(3, Ack { app_limited: true, tx_in_flight, segs: Some(segs), ..ACK });
        assert_eq!(flow.state() == State::Drain, full, "{tx_in_flight} in flight, {segs} delivered");
    }
    // A limited round is no base: whatever the application sends, Startup does not end.
    let mut flow = Flow::new();
    flow.acks(10, Ack { app_limited: true, tx_in_flight: 125, segs: Some(1), ..ACK });
    assert_eq!(flow.state(), State::Startup);
}

/// Startup in which `ranges` are lost in a round, of which the last ACK says this.
fn lossy(ranges: u32, last: Ack) -> Flow {
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.lose(ranges, 100);
    flow.ack(last);
    flow
}

#[test]
fn bbr_22_startup_ends_with_much_loss_in_many_places() {
    // §5.3.1.3: in recovery for a round, more than 2 % of the segments, in six ranges. taut: and no growth by
    // a quarter.
    let much = Ack { recovering: true, lost: 3, rtt: QUEUE, ..ACK };
    assert_eq!(lossy(6, much).state(), State::Drain);
    for (ranges, last) in [
        (5, much),
        (6, Ack { recovering: false, ..much }),
        (6, Ack { lost: 2, ..much }),
        (6, Ack { ends_round: false, ..much }),
        (6, Ack { segs: Some(125), ..much }),
    ] {
        assert_eq!(lossy(ranges, last).state(), State::Startup);
    }
    // The round must be over, whatever the one before showed.
    let mut flow = Flow::new();
    flow.acks(2, ACK);
    flow.lose(6, 100);
    flow.ack(Ack { ends_round: false, ..much });
    assert_eq!(flow.state(), State::Startup);
    flow.ack(much);
    assert_eq!(flow.state(), State::Drain);
    // Ranges of an earlier round do not count.
    let mut flow = Flow::new();
    flow.ack(ACK);
    flow.lose(3, 100);
    flow.ack(Ack { lost: 1, rtt: QUEUE, ..ACK });
    flow.lose(3, 100);
    flow.ack(much);
    assert_eq!(flow.state(), State::Startup);
}

#[test]
fn bbr_23_what_was_delivered_is_the_bound_then() {
    // §5.3.1.3: max(bandwidth-delay product, most segments delivered in a round trip).
    let much = Ack { recovering: true, lost: 3, rtt: QUEUE, ..ACK };
    let flow = lossy(6, Ack { segs: Some(130), interval: Duration::from_millis(52), ..much });
    assert_eq!((flow.state(), flow.bbr.bounds.inflight_longterm), (State::Drain, 130));
    let flow = lossy(6, much);
    assert_eq!((flow.state(), flow.bbr.bounds.inflight_longterm), (State::Drain, 100));
}

#[test]
fn bbr_24_drain_ends_when_the_queue_is_gone() {
    // §5.3.2: in flight ≤ the bandwidth-delay product.
    let mut flow = Flow::drain();
    flow.ack(Ack { in_flight: 101, ..WITHIN });
    assert_eq!(flow.state(), State::Drain);
    // With that, there is no reason for Down either (BBR-26).
    flow.ack(Ack { in_flight: 100, ..WITHIN });
    assert_eq!(flow.state(), State::Cruise);
}

#[test]
fn bbr_25_drain_ends_after_three_rounds() {
    // round_count > drain_start_round + 3.
    let mut flow = Flow::drain();
    flow.acks(3, ACK);
    assert_eq!(flow.state(), State::Drain);
    flow.acks(5, WITHIN);
    assert_eq!(flow.state(), State::Drain);
    flow.ack(ACK);
    assert_eq!(flow.state(), State::Down);
}
