//! Reno and what every algorithm shares with it: slow start, one segment per round trip, reductions,
//! timeouts, undo. RFC 5681 and RFC 4015.

use super::*;

fn reno(cwnd: u32, ssthresh: u32) -> Congestion {
    with_window(Algorithm::reno(), cwnd, ssthresh)
}

#[test]
fn reno_01_slow_start_grows_by_what_is_acknowledged() {
    // RFC 5681 §3.1 adds min(N, SMSS) per ACK; RFC 3465 §2.2 allows L segments, here all of them.
    let mut cc = Congestion::new(Algorithm::reno());
    assert_eq!((cc.cwnd(), cc.ssthresh()), (10, u32::MAX), "RFC 6928 §2");
    ack(&mut cc, 0, 1, 100);
    assert_eq!(cc.cwnd(), 11);
    ack(&mut cc, 0, 10, 100);
    assert_eq!(cc.cwnd(), 21);
}

#[test]
fn reno_02_congestion_avoidance_adds_one_for_a_window() {
    let mut cc = reno(10, 10);
    for (acked, cwnd) in [(9, 10), (1, 11), (10, 11), (1, 12), (25, 14), (13, 15)] {
        ack(&mut cc, 0, acked, 100);
        assert_eq!(cc.cwnd(), cwnd, "{acked} more");
    }
}

#[test]
fn reno_03_what_slow_start_leaves_counts_in_congestion_avoidance() {
    let mut cc = reno(8, 10);
    // Two of seven reach the threshold; five of the next ten are there.
    ack(&mut cc, 0, 7, 100);
    assert_eq!(cc.cwnd(), 10);
    ack(&mut cc, 0, 4, 100);
    assert_eq!(cc.cwnd(), 10);
    ack(&mut cc, 0, 1, 100);
    assert_eq!(cc.cwnd(), 11);
}

#[test]
fn reno_04_half_is_left_of_a_window_and_two_segments_at_least() {
    // Equation 4: max(flight / 2, 2).
    for (cwnd, left) in [(21, 10), (20, 10), (5, 2), (4, 2), (3, 2), (1, 2)] {
        for why in [Signal::Loss, Signal::Mark, Signal::LocalQueue, Signal::Timeout] {
            let mut cc = reno(cwnd, 100);
            cc.begin_reduction(at(0), why, true);
            assert_eq!(cc.ssthresh(), left, "{cwnd}, {why:?}");
            cc.end_reduction();
            assert_eq!(cc.cwnd(), left, "RFC 9937 §6.4");
        }
    }
}

#[test]
fn reno_05_a_reduction_ends_the_count_towards_the_next_segment() {
    let mut cc = reno(20, 20);
    ack(&mut cc, 0, 19, 100);
    lose(&mut cc, 0);
    ack(&mut cc, 0, 9, 100);
    assert_eq!(cc.cwnd(), 10);
    ack(&mut cc, 0, 1, 100);
    assert_eq!(cc.cwnd(), 11);
}

#[test]
fn reno_06_a_timeout_leaves_one_segment_beyond_those_in_the_network() {
    // RFC 5681 §3.1: LW is one segment; with nothing in the network that is all.
    for (in_flight, cwnd) in [(0, 1), (3, 4)] {
        let mut cc = reno(20, u32::MAX);
        ack(&mut cc, 0, 0, 100);
        cc.begin_reduction(at(0), Signal::Timeout, true);
        cc.on_timeout(at(0), in_flight);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (cwnd, 10));
        // Slow start up to the threshold, and no return to it when the losses are repaired.
        ack(&mut cc, 0, 2, 100);
        cc.end_loss();
        assert_eq!(cc.cwnd(), cwnd + 2);
    }
}

#[test]
fn reno_07_undo_restores_window_and_threshold_once() {
    // RFC 4015 §3.2.
    let mut cc = reno(40, 60);
    lose(&mut cc, 0);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (20, 20));
    cc.undo(at(0));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (40, 60));
    // The reduction after that is another one.
    cc.set_cwnd(10);
    cc.undo(at(0));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (10, 60));
}

#[test]
fn reno_07_undo_never_lowers_a_window() {
    let mut cc = reno(40, 30);
    lose(&mut cc, 0);
    cc.set_cwnd(50);
    cc.live(at(0)).window.ssthresh = 35;
    cc.undo(at(0));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (50, 35));
}

#[test]
fn reno_08_a_mark_and_a_forgotten_window_are_not_undone() {
    // A mark is no loss that could turn out to be spurious (RFC 3168 §6.1.2), and a loss before it is
    // settled.
    let mut cc = reno(80, u32::MAX);
    lose(&mut cc, 0);
    cc.begin_reduction(at(0), Signal::Mark, false);
    cc.end_reduction();
    cc.undo(at(0));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (20, 20));
    let mut cc = reno(40, u32::MAX);
    lose(&mut cc, 0);
    cc.forget_prior();
    cc.undo(at(0));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (20, 20));
}

#[test]
fn reno_09_credit_saved_under_a_larger_window_is_worth_one_segment() {
    // 35 of 40, then a window of 10: one more segment at once, and then one for every eleven (Linux).
    let mut cc = reno(40, 10);
    ack(&mut cc, 0, 35, 100);
    cc.set_cwnd(10);
    ack(&mut cc, 0, 1, 100);
    assert_eq!(cc.cwnd(), 11);
    ack(&mut cc, 0, 9, 100);
    assert_eq!(cc.cwnd(), 11);
    ack(&mut cc, 0, 1, 100);
    assert_eq!(cc.cwnd(), 12);
}
