//! Packets that overtake each other: RFC 8985's tolerance for reordering, and segments that a receiver must
//! not reject.

use taut_core::{Duration, StackConfig};

use crate::recovery::scene::{established, in_flight};
use crate::support::trace::Offer;

#[test]
fn what_was_seen_to_reorder_gets_a_quarter_of_the_round_trip() {
    let mut t = in_flight();
    // Segment 2 overtakes segment 1, which was sent once and arrives after: RFC 8985 §6.2 step 3.
    inject!(t, ".", ack(1), sack(&[(1_001, 2_001)]));
    inject!(t, ".", ack(2_001));
    t.out.clear();
    // From now on even three segments above a hole prove nothing for min_rtt/4 = 25 ms, and 2 ms for the
    // timer.
    inject!(t, ".", ack(2_001), sack(&[(3_001, 6_001)]));
    assert!(t.out.iter().all(|got| got.seq >= 10_001), "{:?}", t.out);
    t.out.clear();
    expect!(t, ".", seq(2_001), len(1_000), after_ms(27));
}

#[test]
fn a_needless_retransmission_widens_the_window() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 2_001)]));
    inject!(t, ".", ack(2_001));
    t.out.clear();
    inject!(t, ".", ack(2_001), sack(&[(3_001, 6_001)]));
    t.out.clear();
    expect!(t, ".", seq(2_001), len(1_000), after_ms(27));
    // It was late, not lost: RFC 8985 §6.2 step 4, twice min_rtt/4 from now on.
    t.wait_ms(10);
    inject!(t, ".", ack(6_001));
    inject!(t, ".", ack(6_001), sack(&[(2_001, 3_001)]));
    t.out.clear();
    assert_eq!(t.stack.counters().tcp_dsack_undo, 1, "RFC 3708: every retransmission was unnecessary");
    inject!(t, ".", ack(6_001), sack(&[(7_001, 10_001)]));
    t.out.clear();
    // The delivered segment took 137 ms; twice 25 ms more are allowed now, and 2 for the timer.
    expect!(t, ".", seq(6_001), len(1_000), after_ms(52));
}

#[test]
fn a_recovery_that_was_needless_shows_reordering() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 5_001)]));
    assert_eq!(t.info().ca_state, "recovery");
    t.wait_ms(10);
    // The first segment was late: the D-SACK is the evidence.
    inject!(t, ".", ack(5_001));
    inject!(t, ".", ack(5_001), sack(&[(1, 1_001)]));
    assert_eq!(t.stack.counters().tcp_dsack_undo, 1);
    // RFC 8985 §6.2 step 4: once reordering was seen, three above a hole no longer prove it at once.
    inject!(t, ".", ack(5_001), sack(&[(6_001, 9_001)]));
    assert_eq!(t.info().ca_state, "disorder");
}

#[test]
fn duplicates_made_by_the_network_widen_nothing() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 2_001)]));
    inject!(t, ".", ack(2_001));
    // Nothing was ever retransmitted, so the network duplicated it.
    inject!(t, ".", ack(2_001), sack(&[(1_001, 2_001)]));
    t.out.clear();
    inject!(t, ".", ack(2_001), sack(&[(3_001, 6_001)]));
    t.out.clear();
    expect!(t, ".", seq(2_001), len(1_000), after_ms(27));
}

#[test]
fn the_window_grows_by_what_arrives_in_any_order() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 2_001)]));
    inject!(t, ".", ack(2_001));
    let cwnd = t.info().snd_cwnd;
    t.wait_ms(1);
    // Slow start: one more for each that arrived (RFC 5681 §3.1), although a hole is left.
    inject!(t, ".", ack(2_001), sack(&[(3_001, 5_001)]));
    assert_eq!(t.info().snd_cwnd, cwnd + 2);
}

#[test]
fn arr_02_a_segment_that_a_retransmission_overtook_is_not_taken_for_an_old_one() {
    let mut t = established(StackConfig::default(), Offer::ALL);
    let sent = t.peer_clock();
    // 1 is lost, 2 arrives, 3 is late; 1 comes again, 50 ms later, and TS.Recent is that (RFC 7323 §4.3).
    inject!(t, ".", seq(1_001), len(1_000), ts(sent, t.last_tsval));
    t.wait_ms(50);
    inject!(t, ".", seq(1), len(1_000), ts(sent + 50, t.last_tsval));
    t.out.clear();
    // 3 was sent 50 ms before what overtook it: less than a round trip.
    inject!(t, ".", seq(2_001), len(1_000), ts(sent, t.last_tsval));
    t.wait_ms(50);
    assert_eq!(t.out.back().map(|got| got.ack), Some(3_001));
    assert_eq!(t.stack.counters().paws_estab, 0);
    // One from longer ago than the round trip is an old one (RFC 7323 §5.3), and TS.Recent never goes back.
    inject!(t, ".", seq(3_001), len(1_000), ts(sent.wrapping_sub(60), t.last_tsval));
    assert_eq!((t.stack.counters().paws_estab, t.out.pop_back().map(|got| got.ack)), (1, Some(3_001)));
    // Data that was already received is judged by the rule, however late.
    inject!(t, ".", seq(2_001), len(1_000), ts(sent + 40, t.last_tsval));
    assert_eq!(t.stack.counters().paws_estab, 2);
    assert!(t.info().rtt.is_some_and(|rtt| rtt >= Duration::from_millis(90)));
}
