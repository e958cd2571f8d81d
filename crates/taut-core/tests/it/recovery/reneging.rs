//! A peer that drops data that it had selectively acknowledged. RFC 2018 §8.

use crate::recovery::scene::{in_flight, sent};

#[test]
fn an_ack_that_stops_at_sacked_data_gives_it_up_after_half_a_round_trip() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 10_001)]));
    assert_eq!(sent(&mut t).first(), Some(&1));
    t.wait_ms(100);
    // The hole is filled, and yet the peer acknowledges only that.
    inject!(t, ".", ack(1_001));
    let _ = sent(&mut t);
    assert!(t.info().sacked > 0, "not believed at once: the ACK may be an old one");
    // Linux: SRTT/2, at least 10 ms.
    t.wait_ms(40);
    assert_eq!((t.stack.counters().tcp_timeouts, sent(&mut t)), (0, vec![]));
    t.wait_ms(15);
    // RFC 2018 §8: after that timeout all SACKs are forgotten, and sending resumes at una.
    assert_eq!(t.stack.counters().tcp_timeouts, 1);
    assert_eq!((t.info().sacked, t.info().ca_state), (0, "loss"));
    assert_eq!(sent(&mut t), [1_001]);
    let mut ack = 2_001;
    while ack <= 17_001 {
        t.wait_ms(100);
        inject!(t, ".", ack(ack));
        ack += 1_000;
        let _ = sent(&mut t);
    }
    assert_eq!((t.info().lost, t.info().ca_state), (0, "open"));
}

#[test]
fn a_later_ack_shows_that_nothing_was_thrown_away() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 10_001)]));
    let _ = sent(&mut t);
    t.wait_ms(100);
    inject!(t, ".", ack(1_001));
    t.wait_ms(10);
    inject!(t, ".", ack(10_001));
    t.wait_ms(100);
    assert_eq!((t.stack.counters().tcp_timeouts, t.stack.counters().retrans_segs), (0, 1));
}

#[test]
fn a_peer_that_sacks_the_very_next_byte_and_never_acknowledges_it_stalls_nobody() {
    let mut t = in_flight();
    // Against RFC 2018 §3: a block begins above what is acknowledged.
    inject!(t, ".", ack(1), sack(&[(1, 10_001)]));
    let _ = sent(&mut t);
    t.wait_ms(400);
    assert!(t.out.iter().any(|got| got.seq == 1), "RFC 2018 §8: the timeout retransmits the first segment");
}
