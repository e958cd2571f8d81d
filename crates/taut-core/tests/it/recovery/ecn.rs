//! Congestion marks: RFC 3168 §6.1, both ends.

use taut_core::{Algorithm, ConnOptions, ListenOptions, StackConfig, State};
use taut_wire::Ecn;

use crate::recovery::scene::use_up_quick_acks;
use crate::support::trace::{Offer, Seg, Trace};

fn config(tcp_ecn: u8) -> StackConfig {
    StackConfig::default().with(|c| c.set_sysctl("tcp_ecn", &tcp_ecn.to_string()).unwrap())
}

/// A connection that the peer began, asking for ECN; `tcp_ecn` is Linux's default.
fn accepted() -> Trace {
    let mut t = Trace::new();
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SEW", seq(0), mss(1_000), sackok(), win(65_535));
    // §6.1.1: an ECN-setup SYN-ACK has ECE and not CWR; neither SYN is marked.
    expect!(t, "S.E", seq(0), ack(1), ecn(Ecn::NotEct));
    t.wait_ms(20);
    inject!(t, ".", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    assert!(t.info().ecn);
    t
}

#[test]
fn ecn_01_a_request_and_its_answer() {
    let mut t = Trace::with(config(1));
    t.connect_with(&ConnOptions::default());
    // §6.1.1: an ECN-setup SYN has both.
    expect!(t, "SEW", seq(0), ecn(Ecn::NotEct));
    inject!(t, "S.E", seq(0), ack(1), mss(1_000), sackok());
    expect!(t, ".", seq(1), ack(1), ecn(Ecn::NotEct));
    assert!(t.info().ecn);
    t.write(500);
    // §6.1.2: ECT(0) on new data.
    expect!(t, ".", seq(1), len(500), ecn(Ecn::Ect0));
}

#[test]
fn ecn_02_any_other_answer_is_no_ecn() {
    for answer in ["S.", "S.EW", "S.W"] {
        let mut t = Trace::with(config(1));
        t.connect_with(&ConnOptions::default());
        expect!(t, "SEW", seq(0));
        t.inject(&Seg::new(answer).seq(0).ack(1).mss(1_000).sackok());
        expect!(t, ".", seq(1), ack(1));
        assert!(!t.info().ecn, "{answer}");
        t.write(500);
        expect!(t, ".", seq(1), len(500), ecn(Ecn::NotEct));
        // §6.1.2: without agreement an ECE means nothing.
        let cwnd = t.info().snd_cwnd;
        inject!(t, ".E", seq(1), ack(501));
        assert_eq!((t.info().ca_state, t.info().snd_cwnd), ("open", cwnd));
    }
}

#[test]
fn ecn_03_by_default_it_is_accepted_and_not_requested() {
    let mut t = Trace::new();
    t.connect_with(&ConnOptions::default());
    expect!(t, "S", seq(0));

    let mut t = Trace::with(config(0));
    t.listen_with(ListenOptions::default());
    inject!(t, "SEW", seq(0), mss(1_000));
    expect!(t, "S.", seq(0), ack(1));
}

#[test]
fn ecn_04_a_request_for_accurate_ecn_is_answered_with_this() {
    // RFC 9768 §3.1.1, table 2: ECE alone says that this end knows RFC 3168 only.
    let mut t = Trace::new();
    t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000));
    expect!(t, "S.E", seq(0), ack(1));
}

#[test]
fn ecn_05_a_retransmitted_syn_has_no_request() {
    // §6.1.1.1, at the first retransmission as Linux does.
    let mut t = Trace::with(config(1));
    t.connect_with(&ConnOptions::default());
    expect!(t, "SEW", seq(0));
    expect!(t, "S", seq(0), after_ms(1_000));
    // The first was not lost after all: its answer is good.
    inject!(t, "S.E", seq(0), ack(1), mss(1_000), sackok());
    expect!(t, ".", seq(1), ack(1));
    assert!(t.info().ecn);

    let mut t = Trace::with(config(1).with(|c| c.ecn.fallback = false));
    t.connect_with(&ConnOptions::default());
    expect!(t, "SEW", seq(0));
    expect!(t, "SEW", seq(0), after_ms(1_000));
}

#[test]
fn ecn_06_an_echo_costs_one_reduction_a_window_and_is_answered_once() {
    let mut t = accepted();
    t.write(23_000);
    for n in 0..10 {
        expect!(t, ".", seq(1 + n * 1_000), len(1_000), ecn(Ecn::Ect0));
    }
    expect_nothing!(t);
    // CUBIC, RFC 9438 §4.6: 0.7 of 10. RFC 9937 §6.2: ⌈1·7/10⌉ = 1 segment for the first delivered, with CWR
    // (RFC 3168 §6.1.2).
    inject!(t, ".E", seq(1), ack(1_001));
    let info = t.info();
    assert_eq!((info.ca_state, info.snd_ssthresh, info.delivered_ce), ("cwr", 7, 1));
    expect!(t, ".W", seq(10_001), len(1_000), ecn(Ecn::Ect0));
    expect_nothing!(t);
    // Until that arrives the peer goes on saying ECE: no second reduction, no second CWR. ⌈2·7/10⌉ − 1.
    inject!(t, ".E", seq(1), ack(2_001));
    expect!(t, ".", seq(11_001), len(1_000));
    for n in 3..=10 {
        inject!(t, ".E", seq(1), ack(n * 1_000 + 1));
    }
    t.poll();
    assert!(t.out.iter().all(|got| !got.has("W")));
    assert_eq!((t.info().snd_ssthresh, t.info().snd_cwnd, t.info().delivered_ce), (7, 7, 10));
    t.out.clear();
    // CWR arrived, and the echo ends.
    inject!(t, ".", seq(1), ack(11_001));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("open", 7));
    t.poll();
    t.out.clear();
    // A mark in the next window is news: 0.7 of 7 is 4.9.
    inject!(t, ".E", seq(1), ack(12_001));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("cwr", 4));
    assert_eq!(t.stack.counters().tcp_delivered_ce, 11);
    assert_eq!(t.stack.counters().retrans_segs, 0);
}

/// Nothing is left to send, and the last ACK of the window that was marked has ECE, too.
#[test]
fn ecn_15_the_last_ack_of_a_marked_window_is_of_that_window() {
    let mut t = accepted();
    t.write(3_000);
    for n in 0..3 {
        expect!(t, ".", seq(1 + n * 1_000), len(1_000));
    }
    for n in 1..=3 {
        inject!(t, ".E", seq(1), ack(n * 1_000 + 1));
        // CUBIC, RFC 9438 §4.6: 0.7 of 10, once.
        assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("cwr", 7), "after {n}");
    }
    t.write(1_000);
    expect!(t, ".W", seq(3_001), len(1_000));
    inject!(t, ".", seq(1), ack(4_001));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("open", 7));
}

#[test]
fn ecn_07_a_loss_is_answered_with_cwr_too_and_retransmissions_are_not_capable() {
    let mut t = accepted();
    t.write(23_000);
    t.poll();
    t.out.clear();
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 5_001)]));
    // §6.1.5: not ECN-capable.
    expect!(t, ".", seq(1), len(1_000), ecn(Ecn::NotEct));
    // §6.1.2: CWR on the first new data after the window was reduced, for whatever reason.
    expect!(t, ".W", seq(10_001), len(1_000), ecn(Ecn::Ect0));
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 10_001)]));
    assert!(!t.out.is_empty() && t.out.iter().all(|got| !got.has("W")));
}

#[test]
fn ecn_08_a_reduction_that_was_undone_is_not_answered() {
    // Nothing new to send: no segment has carried CWR when the loss turns out to be spurious (RFC 3708).
    // Linux withdraws it.
    let mut t = accepted();
    t.write(10_000);
    t.poll();
    t.out.clear();
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 5_001)]));
    expect!(t, ".", seq(1), len(1_000));
    inject!(t, ".", seq(1), ack(5_001));
    inject!(t, ".", seq(1), ack(5_001), sack(&[(1, 1_001)]));
    assert_eq!((t.stack.counters().tcp_dsack_undo, t.info().snd_ssthresh), (1, u32::MAX));
    t.write(1_000);
    assert!(!expect!(t, ".", seq(10_001), len(1_000)).has("W"));
}

#[test]
fn ecn_09_marks_are_echoed_until_cwr_comes() {
    let mut t = accepted();
    inject!(t, ".", seq(1), len(1_000), ecn(Ecn::Ect0));
    let got = expect!(t, ".", ack(1_001), ecn(Ecn::NotEct));
    assert!(!got.has("E"));
    // §6.1.3: every ACK from now on, the first at once.
    inject!(t, ".", seq(1_001), len(1_000), ecn(Ecn::Ce));
    expect!(t, ".E", ack(2_001), ecn(Ecn::NotEct));
    inject!(t, ".", seq(2_001), len(1_000), ecn(Ecn::Ect0));
    expect!(t, ".E", ack(3_001));
    // Data that we send echoes too.
    t.write(100);
    expect!(t, ".E", seq(1), len(100), ecn(Ecn::Ect0));
    // The peer has reduced its window, perhaps to this one segment: at once.
    inject!(t, ".W", seq(3_001), len(1_000), ack(101), ecn(Ecn::Ect0));
    expect!(t, ".", ack(4_001));
    inject!(t, ".", seq(4_001), len(1_000), ack(101), ecn(Ecn::Ect0));
    inject!(t, ".", seq(5_001), len(1_000), ack(101), ecn(Ecn::Ect0));
    t.wait_ms(200);
    assert!(!t.out.is_empty() && t.out.iter().all(|got| !got.has("E")));
    let counters = t.stack.counters();
    assert_eq!((counters.in_ce_pkts, counters.in_ect0_pkts), (1, 5));
    assert!(t.info().ecn_seen);
}

#[test]
fn ecn_10_a_super_packet_of_marked_segments_counts_as_many() {
    let mut t = accepted();
    inject!(t, ".", seq(1), len(4_000), gso(1_000), ecn(Ecn::Ce));
    expect!(t, ".E", ack(4_001));
    assert_eq!(t.stack.counters().in_ce_pkts, 4);
}

#[test]
fn ecn_11_a_mark_ends_the_delay_of_acks() {
    let mut t = accepted();
    use_up_quick_acks(&mut t, ".", 1);
    inject!(t, ".", seq(4_001), len(100), ecn(Ecn::Ect0));
    expect_nothing!(t);
    inject!(t, ".", seq(4_101), len(100), ecn(Ecn::Ce));
    expect!(t, ".E", ack(4_201));
}

#[test]
fn ecn_12_a_segment_that_is_not_capable_among_others_ends_the_delay_too() {
    // §6.1.5: a retransmission looks like this. Linux: its sender waits, quick-ack mode.
    let mut t = accepted();
    use_up_quick_acks(&mut t, ".", 1);
    inject!(t, ".", seq(4_001), len(100), ecn(Ecn::Ect0));
    expect_nothing!(t);
    inject!(t, ".", seq(4_101), len(100), ecn(Ecn::NotEct));
    expect!(t, ".", ack(4_201));
}

#[test]
fn ecn_13_after_a_mark_no_d_sack_gives_the_window_back() {
    let mut t = accepted();
    t.write(23_000);
    t.poll();
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 5_001)]));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("recovery", 7));
    // The loss was spurious: the original arrives, and the retransmission is reported as unnecessary (RFC
    // 3708). But a mark came with it, and for that the window is reduced in any case (RFC 3168 §6.1.2).
    inject!(t, ".E", seq(1), ack(5_001));
    inject!(t, ".", seq(1), ack(5_001), sack(&[(1, 1_001)]));
    inject!(t, ".", seq(1), ack(10_001));
    assert_eq!((t.info().snd_ssthresh, t.stack.counters().tcp_dsack_undo), (7, 0));
}

#[test]
fn ecn_13_after_a_mark_no_spurious_timeout_gives_the_window_back() {
    let mut t = Trace::with(config(1).with(|c| c.recovery.tail_loss_probes = false));
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.E", seq(0));
    inject!(t, ".", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(20_000);
    t.poll();
    t.out.clear();
    expect!(t, ".", seq(1), len(1_000), after_ms(200));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("loss", 7));
    // F-RTO finds the timeout spurious (RFC 5682 §3.1). But a mark came with the first ACK, and the window
    // must be reduced for that in any case (RFC 3168 §6.1.2).
    inject!(t, ".E", seq(1), ack(1_001));
    t.poll();
    inject!(t, ".", seq(1), ack(2_001));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().snd_ssthresh), (1, 7));
}

/// A connection that the peer began, to a stack that uses DCTCP.
fn dctcp() -> Trace {
    let mut t = Trace::with(StackConfig::default().with(|c| c.congestion.control = Algorithm::dctcp()));
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SEW", seq(0), mss(1_000), sackok(), win(65_535), ecn(Ecn::Ect0));
    // Linux: DCTCP marks all it sends, SYN-ACKs too.
    expect!(t, "S.E", seq(0), ack(1), ecn(Ecn::Ect0));
    t.wait_ms(20);
    inject!(t, ".", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t
}

#[test]
fn dctcp_08_each_change_of_marking_is_acknowledged_where_it_was() {
    // RFC 8257 §3.2, figure 1.
    let mut t = dctcp();
    use_up_quick_acks(&mut t, ".", 1);
    // Unmarked, and its ACK is delayed; then marked: one ACK up to the change without ECE, one with, both at
    // once.
    inject!(t, ".", seq(4_001), len(100), ecn(Ecn::Ect0));
    expect_nothing!(t);
    inject!(t, ".", seq(4_101), len(100), ecn(Ecn::Ce));
    let before = expect!(t, ".", ack(4_101));
    let after = expect!(t, ".E", ack(4_201));
    // The window's right edge is where it is.
    assert_eq!(before.ack + u32::from(before.win), after.ack + u32::from(after.win));
    // More that is marked, until the quick ACKs that follow a change are used up and one is owed.
    let marked_until_owed = |t: &mut Trace, mut seq: u32| loop {
        inject!(t, ".", seq(seq), len(100), ecn(Ecn::Ce));
        t.poll();
        seq += 100;
        if t.out.pop_back().is_none() {
            return seq;
        }
    };
    let seq = marked_until_owed(&mut t, 4_201);
    // Linux: a segment that is not capable says nothing of the queue. It hurries the ACK, which still has
    // ECE.
    inject!(t, ".", seq(seq), len(100), ecn(Ecn::NotEct));
    expect!(t, ".E", ack(seq + 100));
    let seq = marked_until_owed(&mut t, seq + 100);
    // No CWR is waited for: the next change ends it.
    inject!(t, ".", seq(seq), len(100), ecn(Ecn::Ect0));
    expect!(t, ".E", ack(seq));
    expect!(t, ".", ack(seq + 100));
}

#[test]
fn dctcp_09_no_ack_after_a_reset() {
    let mut t = dctcp();
    // The marking changes while an ACK is owed, and the application gives up before anything has left.
    t.inject_unpolled(&Seg::new(".").seq(1).len(100).ecn(Ecn::Ect0));
    t.inject_unpolled(&Seg::new(".").seq(101).len(100).ecn(Ecn::Ce));
    let now = t.now;
    t.conn().abort(now);
    expect!(t, "R.E", seq(1), ack(201));
    expect_nothing!(t);
}

#[test]
fn dctcp_10_an_echo_means_all_that_its_ack_covers_and_retransmissions_are_capable() {
    let mut t = dctcp();
    t.write(23_000);
    for n in 0..10 {
        expect!(t, ".", seq(1 + n * 1_000), len(1_000), ecn(Ecn::Ect0));
    }
    t.wait_ms(20);
    inject!(t, ".E", seq(1), ack(2_001));
    inject!(t, ".", seq(1), ack(4_001));
    // Two of the four segments, all of those that the ACK with ECE acknowledged.
    assert_eq!(t.info().delivered_ce, 2);
    t.poll();
    t.out.clear();
    inject!(t, ".", seq(1), ack(4_001), sack(&[(5_001, 10_001)]));
    expect!(t, ".", seq(4_001), len(1_000), ecn(Ecn::Ect0));
}

#[test]
fn offers_of_the_harness_ask_for_nothing() {
    let mut t = Trace::accepted(Offer::EASY);
    assert!(!t.info().ecn);
    t.write(100);
    expect!(t, ".", len(100), ecn(Ecn::NotEct));
}

#[test]
fn ecn_16_only_data_is_echoed() {
    // RFC 3168 §6.1.3: a "CE data packet"; Linux: `tcp_data_ecn_check` is asked about data. Pure ACKs are not
    // ECN-capable (§6.1.4).
    let mut t = accepted();
    t.write(1_000);
    t.poll();
    t.out.clear();
    inject!(t, ".", seq(1), ack(1_001), ecn(Ecn::Ce));
    inject!(t, ".", seq(1), ack(1_001), win(60_000), ecn(Ecn::Ect0));
    expect_nothing!(t);
    assert!(!t.info().ecn_seen);
    inject!(t, ".", seq(1), len(1_000), ack(1_001), ecn(Ecn::Ect0));
    assert!(!expect!(t, ".", ack(1_001)).has("E"));
    // Nor does CWR on a pure ACK end the echo: the sender has it on new data (§6.1.2).
    inject!(t, ".", seq(1_001), len(1_000), ack(1_001), ecn(Ecn::Ce));
    expect!(t, ".E", ack(2_001));
    inject!(t, ".W", seq(2_001), ack(1_001));
    inject!(t, ".", seq(2_001), len(1_000), ack(1_001), ecn(Ecn::Ect0));
    expect!(t, ".E", ack(3_001));
}

#[test]
fn dctcp_14_what_crossing_syns_say_is_no_mark() {
    // RFC 9293 §3.5 figure 8: each end sends a SYN-ACK. Its ECE agrees to ECN (RFC 3168 §6.1.1); that of an
    // ACK that ends a handshake would be a mark (DCTCP-12).
    let mut t = Trace::with(StackConfig::default().with(|c| c.congestion.control = Algorithm::dctcp()));
    t.connect_with(&ConnOptions::default());
    expect!(t, "SEW", seq(0));
    inject!(t, "SEW", seq(0), mss(1_000), sackok(), win(65_535), ecn(Ecn::Ect0));
    expect!(t, "S.E", seq(0), ack(1));
    inject!(t, "S.E", seq(0), ack(1), mss(1_000), sackok(), win(65_535), ecn(Ecn::Ect0));
    let info = t.info();
    assert_eq!((info.state, info.ecn), (State::Established, true));
    assert_eq!((info.delivered_ce, info.snd_cwnd, info.snd_ssthresh), (0, 10, u32::MAX));
    assert_eq!(t.stack.counters().tcp_delivered_ce, 0);
}

#[test]
fn ecn_07_a_timeout_is_answered_with_cwr_too() {
    // RFC 3168 §6.1.2: the window was reduced for any reason.
    let mut t = accepted();
    t.write(1_000);
    expect!(t, ".", seq(1), len(1_000));
    while t.stack.counters().tcp_timeouts == 0 {
        t.step(t.now + taut_core::Duration::from_secs(10));
    }
    assert!(t.out.drain(..).all(|got| !got.has("W")), "on new data");
    inject!(t, ".", seq(1), ack(1_001));
    t.write(1_000);
    assert!(expect!(t, ".W", seq(1_001), len(1_000)).has("W"));
}
