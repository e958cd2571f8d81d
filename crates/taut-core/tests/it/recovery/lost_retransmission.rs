//! A retransmission is lost too. RFC 8985 §3.4: detected by packets that were sent after it, without a
//! timeout.

use crate::recovery::scene::{in_flight, repairs, sent};

#[test]
fn what_was_sent_after_the_retransmission_proves_its_loss() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 10_001)]));
    let first = sent(&mut t);
    assert_eq!(first.first(), Some(&1));
    assert!(first.len() > 1, "new data follows the retransmission: {first:?}");
    t.wait_ms(101);
    // New data that left after it has arrived, a round trip later.
    inject!(t, ".", ack(1), sack(&[(1_001, first[first.len() - 1] + 1_000)]));
    let mut second = sent(&mut t);
    if second.first() != Some(&1) {
        // Sent in the same instant: the reordering window decides (RFC 8985 §6.2 step 5).
        t.wait_ms(30);
        second = sent(&mut t);
    }
    assert_eq!(second.first(), Some(&1), "again");
    t.wait_ms(100);
    inject!(t, ".", ack(first[first.len() - 1] + 1_000));
    assert_eq!((t.info().lost, repairs(&t)), (0, (2, 0, 0)));
    // One reduction for one window of data: 0.7 of 10.
    assert_eq!(t.info().snd_ssthresh, 7);
}

#[test]
fn with_nothing_sent_after_it_the_timeout_finds_it_and_restarts_from_it() {
    let mut t = in_flight();
    t.wait_ms(20);
    inject!(t, ".", ack(1), sack(&[(1_001, 4_001)]));
    assert_eq!(sent(&mut t).first(), Some(&1));
    // RFC 6298 §5.1, Linux: the timer restarts when the head is retransmitted. SRTT is still a little over
    // 100 ms.
    t.wait_ms(250);
    assert_eq!(t.stack.counters().tcp_timeouts, 0);
    t.wait_ms(100);
    assert_eq!(t.stack.counters().tcp_timeouts, 1);
    assert_eq!(t.info().ca_state, "loss");
}

#[test]
fn the_timeout_waits_while_what_was_sent_before_still_arrives() {
    let mut t = in_flight();
    t.wait_ms(20);
    inject!(t, ".", ack(1), sack(&[(1_001, 4_001)]));
    assert_eq!(sent(&mut t).first(), Some(&1));
    t.wait_ms(150);
    // Sent before the head last left, so no answer to that can be here yet. Linux restarts the timer.
    inject!(t, ".", ack(1), sack(&[(1_001, 5_001)]));
    t.wait_ms(220);
    assert_eq!(t.stack.counters().tcp_timeouts, 0, "370 ms after the head");
}
