//! RACK: a segment is lost when one sent sufficiently later was delivered. RFC 8985 §6.

use taut_core::Duration;

use crate::recovery_spec::rig::{Rig, Setup};

fn ten(setup: Setup) -> Rig {
    let mut r = Rig::open(setup);
    r.send(10);
    r.at(100);
    r
}

/// Two segments leave, and the second arrives after 100 ms. Returns how long after they left the first is
/// retransmitted: RACK.rtt = 100 ms, the window, and 2 ms of the timer.
#[track_caller]
fn patience(r: &mut Rig) -> u64 {
    let (start, first) = (r.now_ms(), r.next_segment());
    r.send(2);
    r.at(start + 100);
    r.ack(first, &[(first + 1, first + 2)]);
    let (again, at) = r.next_sent();
    assert_eq!(again, first);
    at - start
}

/// The same; then the first one arrives after all, and its retransmission is reported as received twice.
#[track_caller]
fn needless(r: &mut Rig) -> u64 {
    let first = r.next_segment();
    let waited = patience(r);
    r.wait_ms(20);
    r.ack(first + 2, &[]);
    r.ack(first + 2, &[(first, first + 1)]);
    r.wait_ms(20);
    waited
}

/// The same; but the retransmission was needed.
#[track_caller]
fn needed(r: &mut Rig) -> u64 {
    let first = r.next_segment();
    let waited = patience(r);
    r.wait_ms(100);
    r.ack(first + 2, &[]);
    waited
}

#[test]
fn rack_01_late_by_a_quarter_of_the_least_round_trip() {
    // §6.2 steps 4 and 5: two segments sent after segment 0 were delivered after 100 ms; min_RTT/4 = 25 ms
    // more; and 2 ms of the timer (Linux).
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 3)]);
    assert_eq!((r.info().lost, r.sent()), (0, vec![]));
    assert_eq!(r.next_sent(), (0, 127));
    assert_eq!(r.info().ca_state, "recovery");
    // An ACK at exactly 0 + 100 + 25 ms finds it without the timer.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 3)]);
    r.at(124);
    r.inject(&Rig::ack_of(0, &[(1, 3)]));
    assert_eq!(r.sent(), []);
    r.at(125);
    r.inject(&Rig::ack_of(0, &[(1, 3)]));
    assert_eq!(r.sent(), [0]);
}

#[test]
fn rack_02_without_reordering_three_sacked_segments_or_a_recovery_need_no_window() {
    // §6.2 step 4.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    // By time, with two; and in that recovery, a single segment shows the next hole.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 3)]);
    assert_eq!(r.next_sent(), (0, 127));
    r.at(130);
    r.ack(3, &[(4, 5)]);
    assert_eq!(r.info().lost, 1);
}

#[test]
fn rack_03_once_reordering_was_seen_three_segments_need_it_too() {
    // §6.2 step 3: segment 1 overtook segment 0, which was sent once.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 2)]);
    r.ack(2, &[]);
    r.ack(2, &[(3, 6)]);
    assert_eq!(r.next_sent(), (2, 127));
    // A segment that was retransmitted and arrives late overtook nothing.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    r.at(200);
    r.ack(10, &[]);
    r.send(5);
    r.at(300);
    r.ack(10, &[(11, 14)]);
    assert_eq!(r.sent(), [10]);
}

#[test]
fn rack_04_the_newest_delivered_segment_gives_the_round_trip() {
    // Segments 1 to 3 left at 10, and 2 arrived at 110: 100 ms. Segment 0 arrives at 120, after 120 ms, but
    // left before them. So 1 is late at 10 + 100 + 25, and 2 ms of the timer.
    let mut r = Rig::open(Setup::default());
    r.send(1);
    r.at(10);
    r.send(3);
    r.at(110);
    r.ack(0, &[(2, 3)]);
    r.at(120);
    r.ack(1, &[(2, 3)]);
    assert_eq!(r.next_sent(), (1, 137));
}

#[test]
fn rack_05_a_d_sack_widens_the_window_by_a_quarter_each_round() {
    // §6.2 step 4: 25, 50, 75, 100 ms.
    let mut r = Rig::open(Setup::default());
    for waited in [127, 152, 177, 202] {
        assert_eq!(needless(&mut r), waited);
    }
}

#[test]
fn rack_05_two_d_sacks_in_a_round_widen_it_once() {
    let mut r = ten(Setup::default());
    r.ack(0, &[(2, 4)]);
    assert_eq!(r.next_sent(), (0, 127));
    r.ack(0, &[(2, 8)]);
    assert_eq!(r.sent(), [1]);
    r.at(140);
    r.ack(8, &[]);
    // Nothing that was sent after the first D-SACK is acknowledged before the second.
    r.ack(8, &[(0, 1)]);
    r.ack(8, &[(1, 2)]);
    assert_eq!(r.stack.counters().tcp_dsack_recv, 2);
    r.ack(10, &[]);
    r.at(200);
    assert_eq!(needless(&mut r), 152);
    // In another round, another one counts.
    assert_eq!(patience(&mut r), 177);
}

#[test]
fn rack_06_the_window_is_at_most_the_round_trip() {
    // §6.2 step 4: min(RACK.min_RTT/4 · mult, SRTT); all samples are 100 ms.
    let mut r = Rig::open(Setup::default());
    for waited in [127, 152, 177, 202, 202, 202] {
        assert_eq!(needless(&mut r), waited);
    }
}

#[test]
fn rack_07_sixteen_recoveries_without_a_d_sack_narrow_it() {
    // §6.2 step 4 (RACK.reo_wnd_persist).
    let mut r = Rig::open(Setup::default());
    assert_eq!(needless(&mut r), 127);
    for n in 0..16 {
        assert_eq!(needed(&mut r), 152, "recovery {n}");
    }
    assert_eq!(needed(&mut r), 127);
}

#[test]
fn rack_08_a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    // §3.4. Retransmitted at 100; segment 10 leaves at 110 and arrives at 210: 100 + 100 has passed.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 9)]);
    assert_eq!(r.sent(), [0]);
    r.at(110);
    r.send(1);
    r.at(210);
    r.ack(0, &[(1, 11)]);
    assert_eq!((r.sent(), r.repairs()), (vec![0], (2, 0, 0)));
    // What was sent before it proves nothing.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    r.at(250);
    r.ack(0, &[(1, 10)]);
    // RACK.rtt is 250 ms, which has passed since the retransmission at 350.
    r.at(400);
    assert_eq!(r.sent(), []);
}

#[test]
fn rack_09_of_segments_sent_at_the_same_time_the_lower_is_the_older() {
    // §6.2 (RACK_sent_after). 0 and 2 are retransmitted at 100. The arrival of 0 says nothing about 2.
    let lost = || {
        let mut r = ten(Setup::default());
        r.ack(0, &[(3, 10), (1, 2)]);
        assert_eq!(r.sent(), [0, 2]);
        r.at(200);
        r
    };
    let mut r = lost();
    r.ack(2, &[(3, 10)]);
    assert_eq!(r.sent(), []);
    // The arrival of 2 says that 0 is lost again.
    let mut r = lost();
    r.ack(0, &[(1, 10)]);
    assert_eq!(r.sent(), [0]);
}

#[test]
fn rack_10_an_answer_that_comes_too_soon_is_for_the_original() {
    // §6.2 step 2: segment 0 is retransmitted at 100 and acknowledged at 110. Were that the retransmission,
    // then 4 to 9, which left at 0, would be lost: a later segment was delivered.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    r.at(110);
    r.ack(4, &[]);
    assert_eq!((r.info().lost, r.sent()), (0, vec![]));
    // After exactly the least round trip it is the answer.
    let mut r = ten(Setup::default());
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    r.at(200);
    r.ack(4, &[]);
    assert_eq!(r.info().lost, 6);
}

#[test]
fn rack_10_so_is_one_with_an_older_timestamp() {
    // §6.2 step 2. 150 ms after the retransmission is late enough, but the echo is that of the original.
    let mut r = Rig::open(Setup::with_timestamps());
    r.send(10);
    let original = r.last_tsval;
    r.at(100);
    r.ack_echo(0, &[(1, 4)], original);
    assert_eq!(r.sent(), [0]);
    let again = r.last_tsval;
    r.at(250);
    r.ack_echo(4, &[], original);
    assert_eq!((r.info().lost, r.sent()), (0, vec![]));
    // With the retransmission's own echo it is the answer.
    let mut r = Rig::open(Setup::with_timestamps());
    r.send(10);
    r.at(100);
    r.ack_echo(0, &[(1, 4)], original);
    assert_eq!(r.sent(), [0]);
    r.at(250);
    r.ack_echo(4, &[], again);
    assert_eq!(r.info().lost, 6);
}

#[test]
fn rack_11_duplicates_made_by_the_network_widen_nothing() {
    // RFC 3708 §3: more segments arrived twice than were ever retransmitted.
    let mut r = ten(Setup::default());
    r.ack(2, &[]);
    r.ack(2, &[(0, 1)]);
    assert_eq!(r.stack.counters().tcp_dsack_recv, 1);
    r.ack(10, &[]);
    assert_eq!(patience(&mut r), 127);
}

#[test]
fn rack_12_tcp_recovery() {
    // Linux's bit 1: the window does not follow D-SACKs.
    let mut r = Rig::open(Setup::default().with(|config| config.recovery.fixed_reorder_window = true));
    for _ in 0..3 {
        assert_eq!(needless(&mut r), 127);
    }
    // Bit 2: three segments are no reason to do without it.
    let mut r = ten(Setup::default().with(|config| config.recovery.ignore_dup_thresh = true));
    r.ack(0, &[(1, 5)]);
    assert_eq!(r.sent(), []);
    assert_eq!(r.next_sent(), (0, 127));
    assert_eq!(r.info().min_rtt, Some(Duration::from_millis(100)));
}
