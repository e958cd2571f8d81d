//! Peers that do not speak SACK: RFC 3042 (limited transmit), RFC 5681, RFC 6582 (NewReno).

use taut_core::StackConfig;

use crate::recovery::scene::{in_flight_with, repairs, sent};
use crate::support::trace::{Offer, Trace};

fn plain() -> Trace {
    in_flight_with(StackConfig::default(), Offer { sackok: false, ..Offer::EASY }, false)
}

#[test]
fn the_first_two_duplicates_let_new_data_out_and_the_third_sends_again() {
    let mut t = plain();
    inject!(t, ".", ack(1));
    assert_eq!(sent(&mut t), [10_001], "RFC 3042");
    inject!(t, ".", ack(1));
    assert_eq!(sent(&mut t), [11_001], "RFC 3042");
    assert_eq!(t.info().snd_cwnd, 10, "and cwnd stays");
    inject!(t, ".", ack(1));
    assert_eq!(sent(&mut t), [1], "RFC 5681 §3.2 step 2");
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("recovery", 7));
}

#[test]
fn a_duplicate_is_none_with_data_or_another_window() {
    // RFC 5681 §2.
    let mut t = plain();
    for n in 0..4 {
        inject!(t, ".", seq(1 + n * 100), len(100), ack(1));
    }
    for n in 0..4 {
        inject!(t, ".", seq(401), ack(1), win(60_000 + n));
    }
    assert_eq!((t.info().ca_state, repairs(&t)), ("open", (0, 0, 0)));
}

#[test]
fn each_partial_ack_shows_the_next_hole() {
    let mut t = plain();
    // 1 and 4 are lost: eight duplicates.
    let mut all = Vec::new();
    for _ in 0..8 {
        inject!(t, ".", ack(1));
        all.extend(sent(&mut t));
    }
    assert_eq!(all.iter().filter(|&&seq| seq < 10_001).copied().collect::<Vec<_>>(), [1]);
    t.wait_ms(100);
    // RFC 6582 §3.2 step 3: not all that was out is acknowledged, so the next one is missing.
    inject!(t, ".", ack(3_001));
    assert_eq!(sent(&mut t).first(), Some(&3_001));
    assert_eq!(t.info().ca_state, "recovery");
    t.wait_ms(100);
    inject!(t, ".", ack(all[all.len() - 1] + 1_000));
    let _ = sent(&mut t);
    assert_eq!(repairs(&t), (2, 0, 0));
}

#[test]
fn duplicates_of_what_was_sent_again_begin_no_second_recovery() {
    // RFC 6582 §3.2 step 1: only beyond `recover`.
    let mut t = plain();
    for _ in 0..3 {
        inject!(t, ".", ack(1));
    }
    let _ = sent(&mut t);
    t.wait_ms(100);
    // Exactly up to the point where recovery began (twelve segments), and then three that say no more.
    inject!(t, ".", ack(12_001));
    for _ in 0..3 {
        inject!(t, ".", ack(12_001));
    }
    assert_eq!(repairs(&t).0, 1);
    assert_eq!(t.info().snd_ssthresh, 7);
}
