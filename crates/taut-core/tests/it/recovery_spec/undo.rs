//! UNDO: nothing was lost after all. RFC 3522 and 4015 (Eifel), RFC 3708 (D-SACK).

use taut_core::congestion::Signal;
use taut_core::{Duration, ListenOptions, SetOption, StackConfig};

use crate::recovery_spec::rig::{Rig, Setup};
use crate::support::trace::{Seg, Trace};

/// Ten segments left at 0, with a timestamp that is returned; the timeout has fired at 300, and segment 0 was
/// retransmitted.
fn timed_out(setup: Setup) -> (Rig, u32) {
    let mut r = Rig::open(setup);
    r.send(10);
    let original = r.last_tsval;
    assert_eq!(r.next_sent(), (0, 300));
    assert_eq!((r.info().snd_cwnd, r.info().snd_ssthresh), (1, 5));
    (r, original)
}

/// Segment 0 was retransmitted at 100, after 1 to 3 were sacked. Without timestamps.
fn recovering(setup: Setup) -> Rig {
    let mut r = Rig::open(setup);
    r.send(10);
    r.at(100);
    r.ack(0, &[(1, 4)]);
    assert_eq!((r.sent(), r.info().snd_ssthresh), (vec![0], 5));
    r
}

/// Window, threshold, segments thought lost and state.
fn window(r: &mut Rig) -> (u32, u32, u32, &'static str) {
    let info = r.info();
    (info.snd_cwnd, info.snd_ssthresh, info.lost, info.ca_state)
}

#[test]
fn undo_01_a_timestamp_from_before_the_retransmission_undoes_a_timeout() {
    // RFC 3522 §3.2 step 4, RFC 4015 §3.2.
    let (mut r, original) = timed_out(Setup::with_timestamps());
    r.at(320);
    r.ack_echo(1, &[], original);
    assert_eq!((window(&mut r), r.sent()), ((10, u32::MAX, 0, "open"), vec![]));
    assert_eq!((r.stack.counters().tcp_loss_undo, r.notes().undone), (1, 1));
    // The retransmission left in the 300th millisecond. Its own echo says nothing; one of a millisecond
    // before does.
    for (back, undone) in [(0, 0), (1, 1)] {
        let (mut r, _) = timed_out(Setup::with_timestamps());
        let again = r.last_tsval;
        r.at(320);
        r.ack_echo(1, &[], again.wrapping_sub(back));
        assert_eq!(r.notes().undone, undone, "{back} ms before");
    }
}

#[test]
fn undo_02_and_a_fast_recovery_at_its_end_or_before() {
    for (upto, full, partial) in [(10, 1, 0), (4, 0, 1)] {
        let mut r = Rig::open(Setup::with_timestamps());
        r.send(10);
        let original = r.last_tsval;
        r.at(100);
        r.ack_echo(0, &[(1, 4)], original);
        assert_eq!(r.sent(), [0]);
        r.at(110);
        r.ack_echo(upto, &[], original);
        assert_eq!(window(&mut r), (10, u32::MAX, 0, "open"));
        let counters = r.stack.counters();
        assert_eq!((counters.tcp_full_undo, counters.tcp_partial_undo), (full, partial));
    }
}

#[test]
fn undo_03_d_sacks_for_all_that_was_retransmitted() {
    // RFC 3708 §2.
    let mut r = recovering(Setup::default());
    r.at(110);
    r.ack(10, &[]);
    assert_eq!(window(&mut r), (5, 5, 0, "open"));
    r.ack(10, &[(0, 1)]);
    assert_eq!((window(&mut r), r.stack.counters().tcp_dsack_undo), ((10, u32::MAX, 0, "open"), 1));
    // For one of two is not enough.
    let mut r = Rig::open(Setup::default());
    r.send(10);
    r.at(100);
    r.ack(0, &[(2, 6)]);
    r.ack(0, &[(2, 8)]);
    assert_eq!(r.sent(), [0, 1]);
    r.ack(10, &[]);
    r.ack(10, &[(0, 1)]);
    assert_eq!((r.info().snd_ssthresh, r.stack.counters().tcp_dsack_undo), (5, 0));
    r.ack(10, &[(1, 2)]);
    assert_eq!((r.info().snd_ssthresh, r.stack.counters().tcp_dsack_undo), (u32::MAX, 1));
}

#[test]
fn undo_05_it_happens_once_and_the_next_loss_counts() {
    let mut r = recovering(Setup::default());
    r.at(110);
    r.ack(10, &[]);
    r.ack(10, &[(0, 1)]);
    // The network duplicates it once more: there is nothing to undo any more.
    r.ack(10, &[(0, 1)]);
    assert_eq!(r.stack.counters().tcp_dsack_undo, 1);
    assert_eq!(r.notes().reductions, [Signal::Loss]);
    r.send(10);
    r.at(210);
    r.ack(10, &[(11, 20)]);
    // Reordering is known now, and the D-SACK widened the window: 110 + 100 + 2·25 + 2.
    assert_eq!(r.next_sent(), (10, 262));
    assert_eq!((r.notes().reductions, r.info().snd_ssthresh), (vec![Signal::Loss, Signal::Loss], 5));
    // Its retransmission is needed: no old report undoes it.
    r.at(362);
    r.ack(20, &[]);
    assert_eq!((window(&mut r), r.stack.counters().tcp_dsack_undo), ((5, 5, 0, "open"), 1));
}

#[test]
fn undo_06_what_f_rto_began_ends_with_it() {
    // Segment 0 is acknowledged by the echo of its retransmission, so F-RTO sends new data and nothing else;
    // then the echo of an original undoes the timeout. Losses are repaired again from then on.
    let setup = Setup { timestamps: true, grows: true, ..Setup::with_frto() };
    let (mut r, original) = timed_out(setup);
    r.queue(12);
    r.at(320);
    r.ack(1, &[]);
    assert_eq!(r.sent(), [10, 11], "RFC 5682 §3.1 step 2.b");
    r.at(330);
    r.ack_echo(2, &[], original);
    assert_eq!(r.notes().undone, 1);
    let _ = r.sent();
    r.at(430);
    r.ack_echo(2, &[(3, 12)], original);
    assert_eq!(r.sent().first(), Some(&2));
}

#[test]
fn undo_07_the_timeouts_before_it_do_not_count_towards_giving_up() {
    // RTO-14: with tcp_retries2 = 1, the second timeout in a row ends the connection; with a user timeout, 2
    // s after the first. A sacked original shows that the one at 300 ms was spurious, although nothing was
    // acknowledged.
    for user_timeout in [None, Some(Duration::from_secs(2))] {
        let (mut r, _) = timed_out(Setup::with_frto().with(|config| config.tcp.retries2 = 1));
        let now = r.now;
        r.conn().set_option(now, SetOption::UserTimeout(user_timeout)).unwrap();
        r.at(320);
        r.ack(0, &[(1, 2)]);
        assert_eq!((r.stack.counters().tcp_spurious_rtos, r.notes().undone), (1, 1));
        let until_timeouts = |r: &mut Rig, count: u64| {
            while r.repairs().1 < count && !r.has_failed() {
                let limit = r.now + Duration::from_secs(10);
                assert!(r.step(limit));
            }
            r.now_ms()
        };
        let first = until_timeouts(&mut r, 2);
        assert!(!r.has_failed());
        let end = until_timeouts(&mut r, 100);
        assert!(r.has_failed());
        match user_timeout {
            None => assert_eq!(r.repairs().1, 3),
            Some(_) => assert_eq!(end - first, 2_000),
        }
    }
}

#[test]
fn undo_08_what_was_retransmitted_is_watched_on() {
    // 0 and 1 are retransmitted at 100 and found lost again at 200. Before they leave once more, an old echo
    // shows that 0 arrived long ago, and undoes the reduction. Segment 1 is late again 25 ms later:
    // reordering was seen.
    let mut r = Rig::open(Setup::with_timestamps());
    r.send(10);
    let original = r.last_tsval;
    r.queue(3);
    r.at(100);
    r.ack_echo(0, &[(2, 10)], original);
    assert_eq!(r.sent(), [0, 1, 10, 11, 12]);
    r.at(200);
    let clock = r.peer_clock();
    r.inject_unpolled(&Rig::ack_of(0, &[(2, 11)]).ts(clock, original));
    r.inject_unpolled(&Rig::ack_of(1, &[(2, 11)]).ts(clock, original));
    assert_eq!((r.notes().undone, r.sent()), (1, vec![]));
    assert_eq!(r.next_sent(), (1, 227));
}

/// A connection with ECN. Ten segments of 1000 bytes are out, and the first was found lost and retransmitted.
fn with_ecn() -> Trace {
    let mut t = Trace::with(StackConfig::default().with(|config| config.recovery.tail_loss_probes = false));
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.E", seq(0), ack(1));
    t.wait_ms(100);
    inject!(t, ".", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(10_000);
    t.wait_ms(100);
    t.out.clear();
    inject!(t, ".", ack(1), sack(&[(1_001, 4_001)]));
    expect!(t, ".", seq(1), len(1_000));
    assert_eq!(t.info().snd_ssthresh, 7);
    t
}

#[test]
fn undo_10_a_mark_says_that_the_network_is_congested_all_the_same() {
    let mut t = with_ecn();
    inject!(t, ".", ack(10_001));
    inject!(t, ".", ack(10_001), sack(&[(1, 1_001)]));
    assert_eq!(t.info().snd_ssthresh, u32::MAX);
    let mut t = with_ecn();
    inject!(t, ".E", ack(1), sack(&[(1_001, 5_001)]));
    inject!(t, ".", ack(10_001));
    inject!(t, ".", ack(10_001), sack(&[(1, 1_001)]));
    assert_eq!((t.info().snd_ssthresh, t.stack.counters().tcp_dsack_undo), (7, 0));
}

#[test]
fn undo_11_the_peer_is_not_told_of_a_reduction_that_was_undone() {
    // RFC 3168 §6.1.2: CWR on the first new data after a reduction.
    for (undone, flags) in [(false, ".W"), (true, ".")] {
        let mut t = with_ecn();
        inject!(t, ".", ack(10_001));
        if undone {
            inject!(t, ".", ack(10_001), sack(&[(1, 1_001)]));
        }
        t.write(1_000);
        t.poll();
        t.expect(&Seg::new(flags).seq(10_001).len(1_000));
    }
}
