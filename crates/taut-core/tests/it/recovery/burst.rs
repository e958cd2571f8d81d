//! Several segments in a row are lost. RFC 6675, RFC 9937.

use crate::recovery::scene::{in_flight, repairs, sent};

#[test]
fn a_burst_is_sent_again_once_each_and_no_faster_than_segments_arrive() {
    let mut t = in_flight();
    // 1 to 4 are lost; 5 to 10 arrive one by one.
    let mut all = Vec::new();
    for n in 5..=10_u32 {
        t.wait_ms(1);
        inject!(t, ".", ack(1), sack(&[(4_001, n * 1_000 + 1)]));
        all.extend(sent(&mut t));
        // RFC 9937 §6.2: below ssthresh a segment leaves for each that arrives (packet conservation), and the
        // very first at any rate; the first two arrivals, which prove nothing yet, let new data out (RFC
        // 3042).
        assert_eq!(all.len() as u32, n - 4, "{all:?}");
    }
    assert_eq!(all, [10_001, 11_001, 1, 1_001, 2_001, 3_001]);
    assert_eq!(t.info().ca_state, "recovery");
    // A round trip later the new data has arrived: two for two.
    t.wait_ms(100);
    inject!(t, ".", ack(1), sack(&[(4_001, 12_001)]));
    assert_eq!(sent(&mut t), [12_001, 13_001]);
    // And the first retransmission: una advances and nothing more is lost, so one leaves besides (§6.2,
    // SafeACK).
    inject!(t, ".", ack(1_001), sack(&[(4_001, 12_001)]));
    assert_eq!(sent(&mut t), [14_001, 15_001]);
    inject!(t, ".", ack(12_001));
    let _ = sent(&mut t);
    assert_eq!((t.info().ca_state, t.info().lost, t.info().snd_cwnd), ("open", 0, 7));
    assert_eq!(repairs(&t), (4, 0, 0));
}

#[test]
fn holes_apart_are_sent_again_lowest_first() {
    let mut t = in_flight();
    // 1, 4 and 7 are lost.
    inject!(t, ".", ack(1), sack(&[(7_001, 10_001), (4_001, 6_001), (1_001, 3_001)]));
    let mut all = sent(&mut t);
    for _ in 0..3 {
        t.wait_ms(30);
        all.extend(sent(&mut t));
    }
    // Seven were delivered at once; RFC 9937 §6.2 lets all three and more out.
    assert_eq!(all.iter().take(3).copied().collect::<Vec<_>>(), [1, 3_001, 6_001]);
    assert!(all.iter().skip(3).all(|&seq| seq >= 10_001), "{all:?}");
    inject!(t, ".", ack(10_001));
    assert_eq!((t.info().ca_state, t.info().lost, repairs(&t).0), ("open", 0, 3));
}
