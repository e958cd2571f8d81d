//! When an ACK leaves, and how long it waits; in virtual time.

use super::*;

pub(in crate::ingress) const T0: Instant = Instant::from_nanos(1_000_000_000);

fn ms(ms: u64) -> Instant {
    T0 + Duration::from_millis(ms)
}

pub(in crate::ingress) fn arrival(len: usize) -> Arrival {
    Arrival {
        len,
        gso_size: 0,
        in_order: true,
        fin: false,
        advmss: 1460,
        rcv_wnd: 65_535,
        can_grow: true,
        srtt: None,
        rto: Duration::from_millis(1_000),
        reordered: false,
        rcv_rtt: None,
        compression: (Duration::from_millis(1), 33, 44),
    }
}

/// A connection whose quick ACKs are used up.
pub(in crate::ingress) fn settled() -> DelayedAck {
    let mut ack = DelayedAck::new();
    for _ in 0..16 {
        ack.on_data(T0, &arrival(100));
        assert!(ack.must_ack_now());
        ack.on_ack_sent();
    }
    ack
}

fn settle_quick(ack: &mut DelayedAck) {
    while ack.quick > 0 {
        ack.ack_now();
        ack.on_ack_sent();
    }
}

#[test]
fn is_small() {
    assert!(size_of::<DelayedAck>() <= 24);
}

#[test]
fn the_first_sixteen_are_quick() {
    let mut ack = settled();
    ack.on_data(T0, &arrival(100));
    assert!(!ack.must_ack_now() && ack.is_pending());
    assert_eq!(ack.deadline(), Some(ms(40)));
    ack.on_ack_sent();
    assert!(!ack.is_pending());
    assert_eq!(ack.deadline(), None);
}

#[test]
fn few_are_quick_when_the_window_is_small() {
    // rcv_wnd / 2 MSS = 2.
    let mut ack = DelayedAck::new();
    let small = Arrival { rcv_wnd: 4 * 536, ..arrival(100) };
    for quick in [true, true, false] {
        ack.on_data(T0, &small);
        assert_eq!(ack.must_ack_now(), quick);
        ack.on_ack_sent();
    }
}

/// Linux: `tcp_enter_quickack_mode` ends interactive mode.
#[test]
fn a_connection_that_was_interactive_may_be_quick() {
    let mut ack = settled();
    ack.on_data(T0, &arrival(100));
    ack.on_data_sent(T0);
    ack.on_ack_sent();
    ack.quicken();
    ack.on_data(ms(1), &arrival(100));
    assert!(ack.must_ack_now());
}

/// Linux: `tcp_event_data_recv`. RFC 5681 §4.1: after more than an RTO the sender begins again with a
/// small window.
#[test]
fn a_pause_longer_than_the_rto_makes_quick() {
    for (gap, quick) in [(1_000, false), (1_001, true)] {
        let mut ack = settled();
        ack.on_data(ms(gap), &arrival(100));
        assert_eq!(ack.must_ack_now(), quick, "{gap} ms");
    }
}

#[test]
fn every_second_segment_is_acknowledged() {
    let mut ack = settled();
    ack.on_data(ms(1), &arrival(1460));
    assert!(!ack.must_ack_now());
    ack.on_data(ms(2), &arrival(1460));
    assert!(ack.must_ack_now());
    ack.on_ack_sent();
    // A super-packet of two segments counts as two.
    ack.on_data(ms(3), &Arrival { gso_size: 1460, ..arrival(2920) });
    assert_eq!((ack.rcv_mss(), ack.must_ack_now()), (1460, true));
}

/// RFC 9293 §3.8.6.3: the second full segment is acknowledged. Less than two wait for the delay, also
/// when the application reads them.
#[test]
fn a_full_window_waits_for_the_application() {
    for (len, on_read) in [(1460, false), (1461, true), (2920, true)] {
        let mut ack = settled();
        let full = Arrival { can_grow: false, gso_size: 1460, ..arrival(len) };
        ack.on_data(ms(1), &full);
        assert!(!ack.must_ack_now() && ack.deadline().is_some());
        ack.on_read();
        assert_eq!(ack.must_ack_now(), on_read, "{len} bytes");
    }
}

#[test]
fn out_of_order_is_acknowledged_at_once() {
    let mut ack = settled();
    ack.on_data(ms(1), &Arrival { in_order: false, ..arrival(100) });
    assert!(ack.must_ack_now());
}

#[test]
fn dack_03_after_three_duplicates_acks_of_out_of_order_data_are_joined() {
    let mut ack = settled();
    let rtt = Some(Duration::from_millis(2));
    let beyond = Arrival { in_order: false, reordered: true, srtt: rtt, ..arrival(1_000) };
    for _ in 0..3 {
        ack.on_data(ms(1), &beyond);
        assert!(ack.must_ack_now(), "a sender without RACK counts these");
        ack.on_ack_sent();
    }
    ack.on_data(ms(1), &beyond);
    ack.on_data(ms(1), &beyond);
    assert!(!ack.must_ack_now());
    assert_eq!(ack.compressed(), 2);
    // 33 % of 2 ms.
    assert_eq!(ack.deadline(), Some(ms(1) + Duration::from_micros(660)));
    ack.on_timeout(ms(2));
    assert!(ack.must_ack_now());
    assert_eq!(ack.ato(), Duration::from_millis(40), "no delay was missed");
    ack.on_ack_sent();
    assert_eq!(ack.compressed(), 0);
    // The hole is filled: for the next hole, three ACKs leave at once again.
    ack.on_data(ms(2), &Arrival { in_order: false, ..arrival(1_000) });
    assert!(ack.must_ack_now());
    ack.on_ack_sent();
    settle_quick(&mut ack);
    ack.on_data(ms(3), &beyond);
    assert!(ack.must_ack_now());
}

#[test]
fn dack_03_joining_ends_at_the_configured_number_and_delay() {
    let mut ack = settled();
    let rtt = Some(Duration::from_millis(100));
    let beyond = Arrival { in_order: false, reordered: true, srtt: rtt, ..arrival(1_000) };
    let few = Arrival { compression: (Duration::from_millis(1), 33, 2), ..beyond };
    for _ in 0..3 {
        ack.on_data(ms(1), &few);
        ack.on_ack_sent();
    }
    ack.on_data(ms(1), &few);
    ack.on_data(ms(1), &few);
    assert_eq!(ack.deadline(), Some(ms(2)), "1 ms is less than 33 % of 100 ms");
    ack.on_data(ms(1), &few);
    assert!(ack.must_ack_now(), "two are combined, the third is sent");
    let none = Arrival { compression: (Duration::from_millis(1), 33, 0), ..beyond };
    ack.on_ack_sent();
    ack.on_data(ms(2), &none);
    assert!(ack.must_ack_now());
}

#[test]
fn an_answer_makes_it_interactive_and_a_missing_one_ends_that() {
    let mut ack = DelayedAck::new();
    ack.on_data(T0, &arrival(100));
    ack.on_ack_sent();
    ack.on_data_sent(ms(5));
    // Quick ACKs are left, but the response will carry the ACK.
    ack.on_data(ms(100), &arrival(100));
    assert!(!ack.must_ack_now());
    let at = ack.deadline().unwrap();
    assert!(at >= ms(140) && at <= ms(300));
    ack.on_timeout(at);
    assert!(ack.must_ack_now());
    ack.on_ack_sent();
    ack.on_data(ms(400), &arrival(100));
    assert!(ack.must_ack_now());
}

#[test]
fn the_delay_doubles_when_missed_and_stays_within_its_bounds() {
    let mut ack = settled();
    let mut now = T0;
    for delay in [40, 80, 160, 200, 200] {
        // Gaps above `ato` and below the RTO leave the delay alone.
        now += Duration::from_millis(500);
        ack.on_data(now, &arrival(100));
        let at = ack.deadline().unwrap();
        assert_eq!(at.since(now), Duration::from_millis(delay));
        ack.on_timeout(at);
        ack.on_ack_sent();
    }
    // A round trip of 60 ms caps the delay; one of 1 ms still allows 40.
    now += Duration::from_millis(500);
    ack.on_data(now, &Arrival { srtt: Some(Duration::from_millis(60)), ..arrival(100) });
    assert_eq!(ack.deadline().unwrap().since(now), Duration::from_millis(60));
    ack.on_ack_sent();
    now += Duration::from_millis(500);
    ack.on_data(now, &Arrival { srtt: Some(Duration::from_millis(1)), ..arrival(100) });
    assert_eq!(ack.deadline().unwrap().since(now), Duration::from_millis(40));
}

/// Linux's `tcp_event_data_recv`: half of the old delay, and 20 ms for gaps of up to 20 ms, else the gap.
#[test]
fn the_delay_follows_the_gaps_between_segments() {
    let mut ack = settled();
    let mut now = T0;
    for _ in 0..2 {
        now += Duration::from_millis(500);
        ack.on_data(now, &arrival(100));
        ack.on_timeout(ack.deadline().unwrap());
        ack.on_ack_sent();
    }
    assert_eq!(ack.ato(), Duration::from_millis(160), "doubled twice");
    for (gap_ms, ato_ms) in [(20, 100), (21, 71), (70, 105), (1, 72), (72, 72), (71, 107)] {
        now += Duration::from_millis(gap_ms);
        ack.on_data(now, &arrival(100));
        ack.on_ack_sent();
        assert_eq!(ack.ato(), Duration::from_millis(ato_ms), "after {gap_ms} ms");
    }
}

/// A connection whose delay has doubled, at 1 s.
fn patient() -> DelayedAck {
    let mut ack = settled();
    ack.on_data(ms(500), &arrival(100));
    ack.on_timeout(ms(540));
    ack.on_ack_sent();
    assert_eq!((ack.ato(), ack.deadline()), (Duration::from_millis(80), None));
    ack.on_data(ms(1_000), &arrival(100));
    ack
}

/// Linux: the delay is the shortest again after quick ACKs, when the peer waits, and when an
/// answer was missing (`tcp_dec_quickack_mode`, `tcp_enter_quickack_mode`, `tcp_delack_timer_handler`).
#[test]
fn what_makes_the_delay_the_shortest_again() {
    let shortest = Duration::from_millis(40);
    let mut ack = patient();
    ack.on_ack_sent();
    for n in 0..16 {
        // More than the RTO first: quick ACKs, as many as there may be.
        assert_eq!(ack.ato(), shortest * 2, "{n}");
        ack.on_data(ms(2_500 + n * 500), &arrival(100));
        assert!(ack.must_ack_now(), "{n}");
        ack.on_ack_sent();
    }
    assert_eq!(ack.ato(), shortest);

    let mut ack = patient();
    ack.quicken();
    assert_eq!(ack.ato(), shortest);

    let mut ack = patient();
    ack.on_data_sent(ms(1_001));
    assert_eq!(ack.ato(), shortest * 2);
    ack.on_timeout(ms(1_080));
    assert_eq!((ack.ato(), ack.deadline()), (shortest, None));
}

/// Linux: `tcp_incr_quickack` never takes any away.
#[test]
fn a_smaller_window_takes_no_quick_acks_away() {
    let mut ack = DelayedAck::new();
    ack.on_data(T0, &arrival(100));
    ack.on_ack_sent();
    assert_eq!(ack.quick, 15);
    // More than the RTO later.
    ack.on_data(ms(1_001), &Arrival { rcv_wnd: 4 * 536, ..arrival(100) });
    assert_eq!(ack.quick, 15);
}

/// Measured with Linux 6.18 as the receiver: of 968 segments that came first after a hole was filled, 3 were
/// acknowledged within 100 µs, of 965 third ones 2.
#[test]
fn dack_01_after_a_hole_acks_are_delayed_as_without_one() {
    let mut ack = settled();
    ack.on_data(ms(1), &Arrival { in_order: false, ..arrival(1460) });
    assert!(ack.must_ack_now(), "RFC 5681 §4.2: what fills a hole");
    ack.on_ack_sent();
    for at in 1..=16 {
        ack.on_data(ms(at), &arrival(1460));
        assert!(!ack.must_ack_now(), "a first one waits, {at}");
        ack.on_data(ms(at), &arrival(1460));
        assert!(ack.must_ack_now(), "RFC 9293 §3.8.6.3: a second one does not, {at}");
        ack.on_ack_sent();
    }
}

/// Linux: a hole does not end interactive mode, nor does it change the delay.
#[test]
fn dack_02_a_hole_leaves_the_mode_and_the_delay_alone() {
    let mut ack = patient();
    ack.on_data(ms(1_500), &Arrival { in_order: false, ..arrival(100) });
    assert_eq!(ack.ato(), Duration::from_millis(80));

    let mut ack = DelayedAck::new();
    ack.on_data(T0, &arrival(100));
    ack.on_ack_sent();
    ack.on_data_sent(ms(1));
    ack.on_data(ms(2), &Arrival { in_order: false, ..arrival(100) });
    ack.on_ack_sent();
    // Fifteen quick ACKs are left, but the response will carry the ACK.
    ack.on_data(ms(3), &arrival(100));
    assert!(!ack.must_ack_now());
}

/// Linux: the smaller of both round trips, if both are known.
#[test]
fn dack_03_joining_waits_for_a_part_of_the_least_round_trip() {
    let rtt = |ms: u64| Some(Duration::from_millis(ms));
    for (srtt, rcv_rtt, wait_us) in [
        (rtt(2), None, Some(660)),
        (None, rtt(2), Some(660)),
        (rtt(100), rtt(2), Some(660)),
        (rtt(2), rtt(100), Some(660)),
        (None, None, None),
    ] {
        let mut ack = settled();
        let beyond = Arrival { in_order: false, reordered: true, srtt, rcv_rtt, ..arrival(1_000) };
        for _ in 0..3 {
            ack.on_data(ms(1), &beyond);
            ack.on_ack_sent();
        }
        ack.on_data(ms(1), &beyond);
        let wait = wait_us.map(|us| ms(1) + Duration::from_micros(us));
        assert_eq!((ack.deadline(), ack.must_ack_now()), (wait, wait.is_none()), "{srtt:?} {rcv_rtt:?}");
    }
    // TCP_QUICKACK: none waits.
    let mut ack = settled();
    ack.set_quickack(true);
    let beyond = Arrival { in_order: false, reordered: true, srtt: rtt(10), ..arrival(1_000) };
    for _ in 0..6 {
        ack.on_data(ms(1), &beyond);
        assert!(ack.must_ack_now());
        ack.on_ack_sent();
    }
}

#[test]
fn a_timeout_before_the_deadline_changes_nothing() {
    let mut ack = settled();
    ack.on_data(T0, &arrival(100));
    ack.on_timeout(ms(39));
    assert!(!ack.must_ack_now());
    assert_eq!((ack.deadline(), ack.ato()), (Some(ms(40)), Duration::from_millis(40)));
    ack.on_timeout(ms(40));
    assert!(ack.must_ack_now());
}

/// A request, sent before anything has arrived, is no response.
#[test]
fn data_before_the_first_arrival_is_no_answer() {
    let mut ack = DelayedAck::new();
    ack.on_established(T0);
    ack.on_data_sent(ms(1));
    ack.on_data(ms(2), &arrival(100));
    assert!(ack.must_ack_now(), "the first ACKs are quick");
}

#[test]
fn data_sent_late_is_no_answer() {
    for (after_ms, is_quick) in [(39, false), (40, true)] {
        let mut ack = DelayedAck::new();
        ack.on_data(T0, &arrival(100));
        ack.on_ack_sent();
        ack.on_data_sent(ms(after_ms));
        ack.on_data(ms(100), &arrival(100));
        assert_eq!(ack.must_ack_now(), is_quick, "an answer after {after_ms} ms; the delay is 40 ms");
    }
}

#[test]
fn a_pause_brings_quick_acks_back() {
    let mut ack = settled();
    ack.on_data(ms(2_000), &arrival(100));
    assert!(ack.must_ack_now());
}

/// The timer of combined ACKs leaves the delay of an interactive connection as it is.
#[test]
fn acks_of_out_of_order_data_leave_an_interactive_connection_interactive() {
    let mut ack = settled();
    ack.on_data_sent(T0);
    let rtt = Some(Duration::from_millis(10));
    let beyond = Arrival { in_order: false, reordered: true, srtt: rtt, ..arrival(1_000) };
    for _ in 0..3 {
        ack.on_data(ms(1), &beyond);
        ack.on_ack_sent();
    }
    ack.on_data(ms(1), &beyond);
    ack.on_timeout(ms(2));
    assert!(ack.must_ack_now());
    ack.on_ack_sent();
    // Quick ACKs are for connections that are not interactive.
    ack.quick = 16;
    ack.on_data(ms(3), &arrival(100));
    assert!(!ack.must_ack_now());
}

/// Linux: `tcp_measure_rcv_mss`. RFC 9293 §3.7.1: a segment of 536 bytes is the least that counts.
#[test]
fn a_shrunken_mss_is_noticed_and_small_writes_are_not_one() {
    let mut ack = settled();
    for (len, gso_size, mss) in [
        (536, 0, 536),
        (1460, 0, 1460),
        (1200, 0, 1460),
        (100, 0, 1460),
        (100, 0, 1460),
        (1200, 0, 1460),
        (1200, 0, 1200),
        (9000, 0, 1460),
        // The size of a super-packet's segments counts, be it a single byte.
        (2400, 1200, 1460),
        (3600, 1200, 1200),
        (2000, 1, 1200),
        (2000, 1, 1200),
        (535, 0, 1200),
        (535, 0, 1200),
        (536, 0, 1200),
        (536, 0, 536),
    ] {
        ack.on_data(T0, &Arrival { gso_size, ..arrival(len) });
        assert_eq!(ack.rcv_mss(), mss, "{len} in segments of {gso_size}");
    }
}

#[test]
fn the_quickack_option() {
    for len in [0, 1, 100] {
        let mut ack = settled();
        ack.on_data(T0, &arrival(len));
        ack.set_quickack(true);
        assert_eq!(ack.must_ack_now(), len > 0, "{len} bytes are not acknowledged");
    }
    let mut ack = settled();
    ack.set_quickack(true);
    ack.on_data(T0, &arrival(100));
    assert!(ack.must_ack_now());
    ack.on_ack_sent();
    ack.set_quickack(false);
    ack.on_data(T0, &arrival(100));
    assert!(!ack.must_ack_now());
}

#[test]
fn a_peer_that_waits_has_two_acks_without_delay() {
    let mut ack = settled();
    ack.quicken();
    for quick in [true, true, false] {
        ack.on_data(T0, &arrival(100));
        assert_eq!(ack.must_ack_now(), quick);
        ack.on_ack_sent();
    }
}
