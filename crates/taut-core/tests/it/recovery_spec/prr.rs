//! PRR: how the window comes down to ssthresh. RFC 9937 §6, in segments; ssthresh is half of cwnd.

use crate::recovery_spec::rig::{Rig, Setup};

/// Ten segments are in flight since 100 ms, and more are written. ssthresh will be five.
fn ten() -> Rig {
    let mut r = Rig::open(Setup::default());
    r.send(10);
    r.queue(20);
    r.at(100);
    r
}

#[test]
fn prr_01_while_more_is_in_flight_what_leaves_is_in_proportion() {
    // §6.2: RecoverFS = 10. Of 6 in flight and 3 delivered: ⌈3·5/10⌉ = 2 leave. Then, with 4, 5 and 6
    // delivered, 7, 7 and 6 in flight before: ⌈20/10⌉ − 2 = 0, ⌈25/10⌉ − 2 = 1, ⌈30/10⌉ − 3 = 0. With 5 in
    // flight, ssthresh is reached.
    let mut r = ten();
    r.ack(0, &[(1, 4)]);
    assert_eq!((r.sent(), r.info().snd_cwnd), (vec![0, 10], 8));
    for (n, expected, cwnd) in [(5, vec![], 7), (6, vec![11], 7), (7, vec![], 6), (8, vec![], 5)] {
        r.ack(0, &[(1, n)]);
        assert_eq!((r.sent(), r.info().snd_cwnd), (expected, cwnd), "up to {n}");
    }
}

#[test]
fn prr_02_recover_fs_has_only_what_can_still_be_delivered() {
    // §6.1. After slow start to 20, segments 12 to 29 are in flight and the path reorders: one more for
    // segment 10, two for 13 and 14 (REC-12). 13 and 14 are sacked before 12 is found lost, 25 ms later, at a
    // window of 23: RecoverFS = 18 − 2, ssthresh = 11; 15 in flight. The first retransmission leaves, then
    // ⌈d·11/16⌉ in all: for d = 1 to 6 that is 1, 2, 3, 3, 4, 5.
    let mut r = Rig::open(Setup { grows: true, ..Setup::default() });
    r.send(10);
    r.at(100);
    r.ack(10, &[]);
    r.send(20);
    r.at(200);
    r.ack(10, &[(11, 12)]);
    r.ack(12, &[]);
    r.ack(12, &[(13, 15)]);
    assert_eq!(r.info().snd_cwnd, 23);
    assert_eq!(r.next_sent(), (12, 227));
    assert_eq!(r.info().snd_ssthresh, 11);
    r.queue(20);
    let mut all = 1;
    for (d, in_all) in [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5)] {
        r.ack(12, &[(13, 15 + d)]);
        all += r.sent().len();
        assert_eq!(all, in_all, "{d} delivered");
    }
}

#[test]
fn prr_03_below_ssthresh_one_leaves_for_each_that_arrives() {
    // §6.2. Seven of ten are lost, three arrive: 0 in flight. max(3 − 0, 3) leave. A round trip later one of
    // these arrives, and una does not advance: max(4 − 3, 1).
    let mut r = ten();
    r.ack(0, &[(7, 10)]);
    assert_eq!(r.sent(), [0, 1, 2]);
    r.at(200);
    r.ack(0, &[(2, 3), (7, 10)]);
    // 0 and 1 left before 2 in the same instant, so they are lost again, and are the lowest.
    assert_eq!((r.sent(), r.info().snd_cwnd), (vec![0], 1));
}

#[test]
fn prr_04_one_more_if_una_advances_and_nothing_more_is_lost() {
    // §6.2 (SafeACK): max(4 − 3, 1) + 1.
    let mut r = ten();
    r.ack(0, &[(7, 10)]);
    assert_eq!(r.sent(), [0, 1, 2]);
    r.at(200);
    r.ack(1, &[(7, 10)]);
    assert_eq!(r.sent(), [3, 4]);
    // It advances, but 1 is found lost again: max(5 − 3, 2), and no more.
    let mut r = ten();
    r.ack(0, &[(7, 10)]);
    assert_eq!(r.sent(), [0, 1, 2]);
    r.at(200);
    r.ack(1, &[(2, 3), (7, 10)]);
    assert_eq!(r.sent(), [1, 3]);
}

#[test]
fn prr_05_never_more_than_ssthresh() {
    // §6.2: nine arrive at once, and none is in flight: min(9, 5).
    let mut r = ten();
    r.ack(0, &[(1, 10)]);
    assert_eq!((r.sent(), r.info().snd_cwnd), (vec![0, 10, 11, 12, 13], 5));
}

#[test]
fn prr_06_the_first_retransmission_always_leaves() {
    // §6.2: RACK's timer delivers nothing, and eight are in flight above an ssthresh of five.
    let mut r = Rig::open(Setup::default());
    r.send(10);
    r.at(100);
    r.ack(0, &[(1, 2)]);
    assert_eq!(r.next_sent(), (0, 127));
    assert_eq!(r.info().snd_cwnd, 9);
}

#[test]
fn prr_07_at_the_end_the_window_is_ssthresh() {
    // §6.4: fewer were in flight.
    let mut r = Rig::open(Setup::default());
    r.send(4);
    r.at(100);
    r.ack(0, &[(1, 4)]);
    assert_eq!((r.sent(), r.info().snd_cwnd), (vec![0], 3));
    r.at(200);
    r.ack(4, &[]);
    assert_eq!((r.info().ca_state, r.info().snd_cwnd), ("open", 5));
}

#[test]
fn prr_08_what_the_device_refused_has_not_left() {
    // As in PRR-1, but the device refuses the retransmission at first: it leaves a moment later, and counts
    // once.
    let mut r = ten();
    r.inject_unpolled(&Rig::ack_of(0, &[(1, 4)]));
    assert_eq!(r.refuse(), 1_000);
    assert_eq!((r.sent(), r.info().snd_cwnd), (vec![0, 10], 8));
    r.ack(0, &[(1, 5)]);
    assert_eq!(r.sent(), []);
    r.ack(0, &[(1, 6)]);
    assert_eq!(r.sent(), [11]);
}
