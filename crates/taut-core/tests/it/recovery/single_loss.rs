//! One segment of ten is lost. RFC 5681 §3.2, RFC 6675, RFC 8985 §6, RFC 9937.

use crate::recovery::scene::{in_flight, repairs, sent};

#[test]
fn the_third_segment_above_the_hole_proves_it() {
    let mut t = in_flight();
    // RFC 5681 §3.2, RFC 8985 §6.2 step 4: up to three may have overtaken it. The room that they leave is
    // used for new data (RFC 3042).
    inject!(t, ".", ack(1), sack(&[(1_001, 2_001)]));
    assert_eq!(sent(&mut t), [10_001]);
    inject!(t, ".", ack(1), sack(&[(1_001, 3_001)]));
    assert_eq!(sent(&mut t), [11_001]);
    assert_eq!(t.info().ca_state, "disorder");
    inject!(t, ".", ack(1), sack(&[(1_001, 4_001)]));
    assert_eq!(sent(&mut t), [1]);
    // CUBIC: 0.7 of 10 (RFC 9438 §4.6).
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("recovery", 7));
    // RFC 9937 §6.1: twelve were out, two of them sacked before this: RecoverFS 10, one delivered, one sent,
    // nine in flight. §6.2: as long as more than seven are, ⌈delivered·7/10⌉ have left in all: 2, 3, 3; then
    // seven are in flight and one leaves for each that arrives.
    let mut all = 1;
    for (n, in_all) in (4..10).zip([2, 3, 3, 3, 4, 5]) {
        t.wait_ms(1);
        inject!(t, ".", ack(1), sack(&[(1_001, 1_001 + n * 1_000)]));
        all += sent(&mut t).len() as u32;
        assert_eq!(all, in_all, "{} delivered", n - 2);
    }
    // The hole is filled: cwnd is ssthresh (RFC 9937 §6.4).
    t.wait_ms(100);
    inject!(t, ".", ack(12_001));
    assert_eq!((t.info().ca_state, t.info().snd_cwnd), ("open", 7));
    assert_eq!(repairs(&t), (1, 0, 0));
}

#[test]
fn two_above_the_hole_prove_it_after_a_quarter_of_the_round_trip() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 3_001)]));
    let _ = sent(&mut t);
    // RFC 8985 §6.2 step 5: sent 100 ms ago, like the delivered one; min_rtt/4 = 25 ms more, and Linux's 2 ms
    // for the timer.
    expect!(t, ".", seq(1), len(1_000), after_ms(27));
    assert_eq!(t.info().ca_state, "recovery");
}
