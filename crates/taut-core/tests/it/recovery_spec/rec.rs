//! REC: the scoreboard, the states, and peers without SACK. RFC 2018, 3042, 5681, 6582, 6675.

use taut_core::congestion::Signal;
use taut_core::{Fate, TsqMode};

use crate::recovery_spec::rig::{Rig, Setup};

/// Ten segments are in flight, and it is 100 ms later.
fn ten(setup: Setup) -> Rig {
    let mut r = Rig::open(setup);
    r.send(10);
    r.at(100);
    r
}

#[test]
fn rec_01_the_third_segment_above_a_hole_begins_recovery() {
    // RFC 5681 §3.2, RFC 6675 §5. Until then new data leaves in the place of what arrived, and cwnd stays
    // (RFC 3042).
    let mut r = ten(Setup::default());
    r.queue(5);
    r.ack(0, &[(1, 2)]);
    assert_eq!((r.sent(), r.info().ca_state, r.info().snd_cwnd), (vec![10], "disorder", 10));
    r.ack(0, &[(1, 3)]);
    assert_eq!((r.sent(), r.info().lost, r.info().snd_ssthresh), (vec![11], 0, u32::MAX));
    r.ack(0, &[(1, 4)]);
    assert_eq!((r.sent(), r.info().lost, r.info().snd_ssthresh), (vec![0], 1, 5));
    assert_eq!((r.info().ca_state, r.notes().reductions), ("recovery", vec![Signal::Loss]));
}

#[test]
fn rec_02_lost_segments_leave_before_new_ones_lowest_first() {
    // RFC 6675 §5. Seven were delivered and nothing is in flight: RFC 9937 §6.2 lets ssthresh out, five.
    let mut r = ten(Setup::default());
    r.queue(10);
    r.ack(0, &[(7, 10), (4, 6), (1, 3)]);
    assert_eq!(r.sent(), [0, 3, 6, 10, 11]);
}

#[test]
fn rec_03_in_flight_is_what_is_neither_lost_nor_delivered() {
    // RFC 6675 §4 (pipe). Twelve out, seven sacked, three lost, three of these retransmitted: 12 − 7 − 3 + 3.
    let mut r = ten(Setup::default());
    r.queue(2);
    r.ack(0, &[(7, 10), (4, 6), (1, 3)]);
    assert_eq!(r.sent(), [0, 3, 6, 10, 11]);
    let info = r.info();
    assert_eq!((info.unacked, info.sacked, info.lost, info.retrans), (12, 7, 3, 3));
    r.at(200);
    r.ack(1, &[(7, 10), (4, 6), (1, 3)]);
    // Segments 1 and 2 were sacked before: only 0 is new.
    assert_eq!((r.last().prior_in_flight, r.last().acked, r.last().in_flight), (5, 1, 4));
    r.ack(12, &[]);
    let info = r.info();
    assert_eq!((info.unacked, info.sacked, info.lost, info.retrans, info.delivered), (0, 0, 0, 0, 12));
}

#[test]
fn rec_04_blocks_outside_the_data_sent_are_ignored() {
    let mut r = Rig::open(Setup::default());
    r.send(5);
    r.at(100);
    for block in [(4, 6), (5, 7), (3, 3), (4, 2)] {
        r.ack(0, &[block]);
        assert_eq!((r.info().sacked, r.info().ca_state), (0, "open"), "{block:?}");
    }
    // The part below the ACK is old news.
    r.ack(2, &[(1, 4)]);
    assert_eq!(r.info().sacked, 2);
}

#[test]
fn rec_05_only_whole_segments_count() {
    // Of segments 1 to 4, the block covers the second half of 1, all of 2 and 3, and the first half of 4.
    let mut r = Rig::open(Setup::default());
    r.send(6);
    r.at(100);
    r.inject(&Rig::ack_of(0, &[]).sack(&[(Rig::pos(1) + 500, Rig::pos(4) + 500)]));
    assert_eq!((r.info().sacked, r.last().acked), (2, 2));
}

#[test]
fn rec_06_a_duplicate_ack_carries_nothing_new() {
    // RFC 5681 §2: no data, the same window, and something is outstanding.
    let mut r = ten(Setup::without_sack());
    for n in 0..4 {
        r.inject(&Rig::ack_of(0, &[]).seq(1 + n * 100).len(100));
        r.inject(&Rig::ack_of(0, &[]).seq(101 + n * 100).win(60_000 - 100 * n as u16));
    }
    assert_eq!((r.info().ca_state, r.sent()), ("open", vec![]));
    for _ in 0..3 {
        r.inject(&Rig::ack_of(0, &[]).seq(401).win(60_000 - 300));
    }
    assert_eq!((r.info().ca_state, r.sent()), ("recovery", vec![0]));
}

#[test]
fn rec_07_without_sack_the_third_duplicate_and_each_partial_ack_show_a_hole() {
    // RFC 3042, RFC 5681 §3.2, RFC 6582 §3.2.
    let mut r = ten(Setup::without_sack());
    r.queue(2);
    for expected in [vec![10], vec![11], vec![0]] {
        r.ack(0, &[]);
        assert_eq!(r.sent(), expected);
    }
    assert_eq!((r.info().ca_state, r.info().snd_ssthresh, r.info().lost), ("recovery", 5, 1));
    for _ in 0..5 {
        r.ack(0, &[]);
    }
    r.at(200);
    // Not all that was out is acknowledged: the next one is missing too.
    r.ack(3, &[]);
    assert_eq!((r.sent(), r.info().ca_state), (vec![3], "recovery"));
    // Nine are out. Of eight announced arrivals, two are among the three acknowledged, and one segment is
    // lost: 9 − 6 − 1.
    assert_eq!(r.last().in_flight, 2);
    assert_eq!(r.notes().reductions, [Signal::Loss]);
}

#[test]
fn rec_08_without_sack_duplicates_at_the_recovery_point_begin_no_second_recovery() {
    // RFC 6582 §3.2 step 1: only beyond `recover`, which is the end of segment 9.
    let mut r = ten(Setup::without_sack());
    for _ in 0..3 {
        r.ack(0, &[]);
    }
    assert_eq!(r.sent(), [0]);
    r.at(200);
    r.ack(10, &[]);
    assert_eq!(r.info().ca_state, "open");
    r.send(5);
    for _ in 0..4 {
        r.ack(10, &[]);
    }
    assert_eq!((r.sent(), r.notes().reductions), (vec![], vec![Signal::Loss]));
    // Beyond it, they count again.
    r.ack(11, &[]);
    for _ in 0..3 {
        r.ack(11, &[]);
    }
    assert_eq!((r.sent(), r.notes().reductions.len()), (vec![11], 2));
}

#[test]
fn rec_09_recovery_ends_when_all_that_was_out_is_acknowledged() {
    // RFC 6675 §5 (RecoveryPoint), RFC 9937 §6.4: cwnd is ssthresh.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    r.at(200);
    r.ack(9, &[]);
    assert_eq!((r.info().ca_state, r.notes().ended), ("recovery", 0));
    r.ack(10, &[]);
    assert_eq!((r.info().ca_state, r.notes().ended, r.info().snd_cwnd), ("open", 1, 5));
}

#[test]
fn rec_10_a_loss_while_the_window_comes_down_reduces_no_more() {
    // A queue of this host drops segment 9 (Linux: CWR), and then the network loses segment 0: one reduction.
    let mut r = Rig::open(Setup::default().with(|config| config.send.tsq = TsqMode::Off));
    r.hold_tickets = true;
    r.send(10);
    let now = r.now;
    for (n, ticket) in std::mem::take(&mut r.tickets).into_iter().enumerate() {
        r.stack.handle_tx(now, ticket, if n == 9 { Fate::Dropped } else { Fate::Left });
    }
    r.hold_tickets = false;
    assert_eq!((r.info().ca_state, r.info().snd_ssthresh), ("cwr", 5));
    r.at(100);
    r.ack(0, &[(1, 4)]);
    assert_eq!((r.info().ca_state, r.sent().first()), ("recovery", Some(&0)));
    assert_eq!((r.notes().reductions, r.info().snd_ssthresh), (vec![Signal::LocalQueue], 5));
}

#[test]
fn rec_11_what_was_sacked_and_is_not_acknowledged_is_given_up() {
    // RFC 2018 §8. The ACK ends at data that was sacked; it may be an old one, so SRTT/2 = 50 ms pass first
    // (Linux).
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 10)]);
    assert_eq!(r.sent(), [0]);
    r.at(200);
    r.ack(1, &[]);
    assert_eq!((r.info().sacked, r.sent()), (9, vec![]));
    assert_eq!(r.next_sent(), (1, 250));
    assert_eq!((r.info().sacked, r.info().lost, r.info().ca_state), (0, 9, "loss"));
    // At least 10 ms (Linux): here SRTT/2 would be 5.
    let mut r = Rig::open(Setup { rtt_ms: 10, ..Setup::default() });
    r.send(10);
    r.at(10);
    r.ack(0, &[(1, 10)]);
    assert_eq!(r.sent(), [0]);
    r.at(20);
    r.ack(1, &[]);
    assert_eq!(r.next_sent(), (1, 30));
}

#[test]
fn rec_12_the_window_grows_by_what_arrives_in_order() {
    // RFC 5681 §3.1; on a path that reorders, by what arrives in any order (Linux).
    let mut r = ten(Setup { grows: true, ..Setup::default() });
    r.ack(0, &[(1, 2)]);
    assert_eq!(r.info().snd_cwnd, 10);
    r.ack(2, &[]);
    assert_eq!(r.info().snd_cwnd, 11);
    r.ack(2, &[(3, 5)]);
    assert_eq!(r.info().snd_cwnd, 13);
    // Not while it comes down, nor with the ACK that ends that (RFC 9937 §6.4).
    let mut r = ten(Setup { grows: true, ..Setup::default() });
    r.ack(0, &[(1, 4)]);
    assert_eq!((r.sent(), r.info().snd_ssthresh), (vec![0], 5));
    r.at(200);
    r.ack(10, &[]);
    assert_eq!((r.info().ca_state, r.info().snd_cwnd), ("open", 5));
}

#[test]
fn rec_13_after_a_timeout_slow_start_and_ssthresh() {
    // RFC 5681 §3.1: the window of one segment grows by each segment delivered.
    let mut r = Rig::open(Setup { grows: true, ..Setup::default() });
    r.send(10);
    assert_eq!(r.next_sent(), (0, 300));
    r.at(400);
    r.ack(1, &[]);
    assert_eq!((r.sent(), r.info().snd_cwnd), (vec![1, 2], 2));
    r.at(500);
    r.ack(3, &[]);
    assert_eq!((r.sent(), r.info().snd_cwnd, r.info().ca_state), (vec![3, 4, 5, 6], 4, "loss"));
    r.at(600);
    r.ack(10, &[]);
    // One more up to ssthresh = 5; the other six are less than a window, for one segment more.
    assert_eq!((r.info().snd_cwnd, r.info().ca_state), (6, "open"));
    // The end of Loss adds nothing: three segments, all acknowledged together.
    let mut r = Rig::open(Setup { grows: true, ..Setup::default() });
    r.send(3);
    assert_eq!(r.next_sent(), (0, 300));
    r.at(400);
    r.ack(3, &[]);
    assert_eq!((r.info().snd_cwnd, r.info().snd_ssthresh, r.info().ca_state), (4, 5, "open"));
}

#[test]
fn rec_14_without_sack_an_ack_of_the_recovery_point_shows_no_hole() {
    // RFC 6582 §3.2 step 3, full acknowledgments. Linux stays in Recovery for one ACK more, so that
    // duplicates of what was retransmitted begin no second one.
    let mut r = ten(Setup::without_sack());
    r.queue(10);
    for expected in [vec![10], vec![11], vec![0]] {
        r.ack(0, &[]);
        assert_eq!(r.sent(), expected);
    }
    // Segments 1 to 11 arrive: new data leaves in the place of some of them.
    for _ in 3..11 {
        r.ack(0, &[]);
    }
    let new = r.sent();
    assert!(new.first() == Some(&12), "{new:?}");
    r.at(200);
    r.ack(11, &[]);
    assert_eq!((r.sent().first(), r.info().lost, r.repairs().0), (Some(&11), 1, 2), "a partial ACK");
    r.ack(12, &[]);
    assert_eq!((r.info().ca_state, r.info().lost, r.repairs().0), ("recovery", 0, 2));
    assert!(r.sent().iter().all(|&segment| segment > new[new.len() - 1]));
    r.ack(13, &[]);
    assert_eq!((r.info().ca_state, r.info().lost, r.repairs().0), ("open", 0, 2));
    assert_eq!(r.notes().reductions, [Signal::Loss]);
}
