//! TLP: one more packet when the last ones of a flight bring no answer. RFC 8985 §7.

use taut_core::congestion::Signal;

use crate::recovery_spec::rig::{Rig, Setup};

/// Ten segments left at 0; at 100 the peer has the first `acked`.
fn tail(acked: u32) -> Rig {
    let mut r = Rig::open(Setup::with_probes());
    r.send(10);
    r.at(100);
    r.ack(acked, &[]);
    r
}

#[test]
fn tlp_01_the_last_segment_after_two_round_trips() {
    // §7.2: 2·SRTT after the ACK, and 2 ms (Linux); §7.3: the last segment. It counts as a retransmission.
    let mut r = tail(7);
    assert_eq!((r.next_sent(), r.repairs()), ((9, 302), (1, 0, 1)));
    assert_eq!(r.info().ca_state, "open");
}

#[test]
fn tlp_02_a_lone_segment_may_wait_for_a_delayed_ack() {
    // §7.2: with 400 ms measured, 2·400 + 200 ms (Linux: the least RTO), before the RTO of 400 + 4·200.
    let mut r = Rig::open(Setup { rtt_ms: 400, ..Setup::with_probes() });
    r.send(1);
    assert_eq!((r.next_sent(), r.repairs()), ((0, 1_000), (1, 0, 1)));
    let mut r = Rig::open(Setup { rtt_ms: 400, ..Setup::with_probes() });
    r.send(2);
    assert_eq!((r.next_sent(), r.repairs()), ((1, 802), (1, 0, 1)));
}

#[test]
fn tlp_03_not_later_than_the_timeout_which_then_begins_anew() {
    // §7.2: 2·100 + 200 is more than the RTO of 300. §7.3: the timeout comes an RTO after the probe, and
    // there is no second probe.
    let mut r = Rig::open(Setup::with_probes());
    r.send(1);
    assert_eq!((r.next_sent(), r.repairs()), ((0, 300), (1, 0, 1)));
    assert_eq!((r.next_sent(), r.repairs()), ((0, 600), (2, 1, 1)));
}

#[test]
fn tlp_04_new_data_if_there_is_any_even_beyond_the_window() {
    // §7.3: cwnd is full, and more is written.
    let mut r = Rig::open(Setup::with_probes());
    r.send(10);
    r.queue(3);
    assert_eq!((r.next_sent(), r.repairs()), ((10, 202), (0, 0, 1)));
    // It repairs nothing, so an ACK beyond it is no evidence (§7.4.2).
    r.at(302);
    r.ack(11, &[]);
    assert_eq!(r.sent(), [11, 12]);
    r.at(402);
    r.ack(13, &[]);
    assert_eq!((r.notes().reductions, r.stack.counters().tcp_loss_probe_recovery), (vec![], 0));
}

#[test]
fn tlp_05_not_when_another_mechanism_is_at_work() {
    // §7.2: nothing was sacked, no recovery is under way, the peer has SACK; and tcp_early_retrans (Linux).
    let mut r = tail(0);
    r.ack(0, &[(8, 9)]);
    assert_eq!((r.next_sent(), r.repairs().2), ((0, 127), 0), "RACK's timer");
    // The rest was found lost with it, except the last one: it left after what was sacked.
    let _ = r.next_sent();
    assert_eq!((r.repairs().1, r.repairs().2), (1, 0), "a timeout in Recovery");
    let _ = r.next_sent();
    assert_eq!((r.repairs().1, r.repairs().2), (2, 0), "a timeout in Loss");
    // In Loss, where nothing is sacked: after a probe at 202 and a timeout at 502, the next one 600 ms later.
    let mut r = Rig::open(Setup::with_probes());
    r.send(2);
    assert_eq!([r.next_sent(), r.next_sent(), r.next_sent()], [(1, 202), (0, 502), (0, 1_102)]);
    assert_eq!(r.repairs(), (3, 2, 1));
    let mut r = Rig::open(Setup { sack: false, ..Setup::with_probes() });
    r.send(2);
    assert_eq!((r.next_sent(), r.repairs()), ((0, 300), (1, 1, 0)));
    let mut r = Rig::open(Setup::default());
    r.send(2);
    assert_eq!((r.next_sent(), r.repairs()), ((0, 300), (1, 1, 0)));
}

#[test]
fn tlp_06_a_probe_that_repaired_a_loss_costs_one_reduction() {
    // §7.4.2: certain only with an ACK beyond the probe and without a D-SACK for it.
    let mut r = tail(9);
    assert_eq!(r.next_sent(), (9, 400));
    r.at(500);
    r.ack(10, &[]);
    assert_eq!((r.notes().reductions, r.info().snd_cwnd), (vec![], 10));
    r.send(1);
    r.at(600);
    r.ack(11, &[]);
    assert_eq!((r.notes().reductions, r.info().snd_cwnd), (vec![Signal::Loss], 5));
    assert_eq!((r.info().ca_state, r.stack.counters().tcp_loss_probe_recovery), ("open", 1));
    // It is judged once.
    r.send(1);
    r.at(700);
    r.ack(12, &[]);
    assert_eq!(r.notes().reductions.len(), 1);
}

#[test]
fn tlp_07_a_probe_that_arrived_twice_was_needless() {
    // §7.4.2, by D-SACK; which is no sign of reordering either (Linux).
    let mut r = tail(9);
    assert_eq!(r.next_sent(), (9, 400));
    r.at(410);
    r.ack(10, &[(9, 10)]);
    r.send(4);
    r.at(510);
    r.ack(10, &[(11, 13)]);
    // RACK's window is as wide as before: 410 + 100 + 25 + 2.
    assert_eq!(r.next_sent(), (10, 537));
    r.ack(14, &[]);
    assert_eq!(r.stack.counters().tcp_loss_probe_recovery, 0);
    // Or by a duplicate ACK that says nothing more.
    let mut r = tail(8);
    assert_eq!(r.next_sent(), (9, 302));
    r.queue(2);
    assert_eq!(r.sent(), [10, 11]);
    r.at(310);
    r.ack(10, &[]);
    r.ack(10, &[]);
    r.at(410);
    r.ack(12, &[]);
    assert_eq!((r.notes().reductions, r.stack.counters().tcp_loss_probe_recovery), (vec![], 0));
}

#[test]
fn tlp_08_no_second_probe_before_the_first_is_judged() {
    // §7.2. The probe is new data at 202; the ACK of segment 0 does not reach its end. R' = 302: SRTT =
    // 125.25, RTTVAR = 50 + (202 − 50)/4 = 88: the RTO of 477.25 ms comes next.
    let mut r = Rig::open(Setup::with_probes());
    r.send(10);
    r.queue(1);
    assert_eq!(r.next_sent(), (10, 202));
    r.at(302);
    r.ack(1, &[]);
    assert_eq!((r.next_sent(), r.repairs()), ((1, 779), (1, 1, 1)));
}

#[test]
fn tlp_09_the_answer_to_a_probe_shows_what_is_missing() {
    // §7.1: 7 and 8 left before what is sacked, and 25 ms ago; a round trip later they are retransmitted
    // without a timeout.
    let mut r = tail(7);
    assert_eq!(r.next_sent(), (9, 302));
    r.at(402);
    r.ack(7, &[(9, 10)]);
    assert_eq!((r.sent(), r.info().lost, r.repairs().1), (vec![7], 2, 0));
}

#[test]
fn tlp_11_after_the_departure() {
    // §7.2. R = 400 ms. At 900 segment 10 is acknowledged; 11 departs at 1000: the probe is 2·400 + 200 ms
    // later.
    let mut r = Rig::paced(Setup { rtt_ms: 400, ..Setup::with_probes() }, 500);
    r.send(2);
    r.at(900);
    r.ack(11, &[]);
    assert_eq!((r.next_sent(), r.repairs()), ((11, 2_000), (1, 0, 1)));
    // §7.3. R = 100 ms: as in TLP-3, 300 ms after 500. The probe departs at 1000, and the timeout is 300 ms
    // later.
    let mut r = Rig::paced(Setup::with_probes(), 500);
    r.send(1);
    assert_eq!((r.next_sent(), r.repairs()), ((10, 800), (1, 0, 1)));
    assert_eq!((r.next_sent(), r.repairs()), ((10, 1_300), (2, 1, 1)));
}

#[test]
fn tlp_12_an_ack_of_nothing_new_does_not_put_it_off() {
    // §7.2: the timer is set by new data, and by ACKs that acknowledge some.
    let mut r = Rig::open(Setup::with_probes());
    r.send(3);
    r.at(150);
    r.ack(0, &[]);
    assert_eq!(r.notes().acks.len(), 0, "congestion control hears of ACKs that say something");
    assert_eq!(r.next_sent(), (2, 202));
}

#[test]
fn tlp_13_what_it_repaired_while_the_window_is_being_reduced_costs_nothing_more() {
    // §7.4.2: one reduction a round trip. That of CWR goes on until something beyond its high_seq is
    // acknowledged.
    let mut r = tail(7);
    assert_eq!(r.next_sent(), (9, 302));
    r.send(1);
    let (now, id) = (r.now, r.id.unwrap());
    r.stack.handle_tx_congestion(now, id);
    assert_eq!(r.info().ca_state, "cwr");
    r.at(402);
    r.ack(11, &[]);
    assert_eq!(r.stack.counters().tcp_loss_probe_recovery, 1);
    assert_eq!((r.info().ca_state, r.notes().reductions), ("cwr", vec![Signal::LocalQueue]));
}

#[test]
fn tlp_06_the_reduction_of_a_probe_is_not_undone() {
    // §7.4.2 is certain of the loss. Segment 0 was retransmitted in a recovery that is over, and 11 by the
    // probe; D-SACKs for both come after all.
    let mut r = Rig::open(Setup::with_probes());
    r.send(10);
    r.at(100);
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent().first(), Some(&0));
    r.at(200);
    r.ack(r.next_segment(), &[]);
    assert_eq!(r.info().ca_state, "open");
    r.send(2);
    let last = r.next_segment() - 1;
    assert_eq!(r.next_sent().0, last);
    r.at(700);
    r.ack(last + 1, &[]);
    r.send(1);
    r.at(800);
    r.ack(last + 2, &[]);
    assert_eq!(r.stack.counters().tcp_loss_probe_recovery, 1);
    r.send(1);
    let cwnd = r.info().snd_cwnd;
    r.ack(last + 2, &[(0, 1)]);
    r.ack(last + 2, &[(last, last + 1)]);
    assert_eq!((r.info().snd_cwnd, r.stack.counters().tcp_dsack_undo), (cwnd, 0));
}

/// The probe is refused, and something else happens before it can leave.
fn refused(segs: u32) -> Rig {
    let mut r = Rig::open(Setup::with_probes());
    r.send(segs);
    let at = r.stack.poll_timeout().expect("the probe").0;
    r.trace_to(at);
    assert_eq!(r.refuse(), 1_000);
    r
}

#[test]
fn tlp_15_a_probe_that_never_left_repaired_nothing() {
    // RFC 8985 §7.4.2 is about a probe that was sent. Everything is acknowledged before it can be.
    let mut r = refused(2);
    r.ack(2, &[]);
    r.send(1);
    r.at(r.now_ms() + 100);
    r.ack(3, &[]);
    assert_eq!((r.notes().reductions, r.stack.counters().tcp_loss_probe_recovery), (vec![], 0));
    // Nor does it stand in the way of the next one (§7.2).
    r.send(2);
    let before = r.repairs().2;
    assert_eq!(r.next_sent().0, 4);
    assert_eq!(r.repairs().2, before + 1);
    // New data has come, which takes its place: that repairs nothing (§7.3).
    let mut r = refused(2);
    r.queue(1);
    assert_eq!((r.sent(), r.repairs()), (vec![2], (0, 0, 1)));
    r.ack(3, &[]);
    r.send(1);
    r.at(r.now_ms() + 100);
    r.ack(4, &[]);
    assert_eq!((r.notes().reductions, r.stack.counters().tcp_loss_probe_recovery), (vec![], 0));
}

#[test]
fn tlp_16_a_reduction_without_loss_does_not_cancel_it() {
    // RFC 8985 §7.2: a probe is due in Open, and Linux's in CWR, too (`tcp_schedule_loss_probe`). A queue of
    // this host was full; then an ACK of nothing new reports a mark.
    let mut r = Rig::open(Setup::with_probes());
    r.send(5);
    let (now, id) = (r.now, r.id.unwrap());
    r.stack.handle_tx_congestion(now, id);
    assert_eq!(r.info().ca_state, "cwr");
    assert_eq!((r.next_sent(), r.repairs()), ((4, 202), (1, 0, 1)));
}

#[test]
fn tlp_17_a_timeout_ends_the_question() {
    // RFC 8985 §7.4.2 asks about a loss that nothing else has repaired. Linux: `tcp_retransmit_timer` forgets
    // `tlp_high_seq`. The probe leaves at 202, the timeout comes 300 ms later, with its own reduction.
    let mut r = Rig::open(Setup::with_probes());
    r.send(2);
    assert_eq!([r.next_sent(), r.next_sent()], [(1, 202), (0, 502)]);
    r.at(602);
    r.ack(2, &[]);
    assert_eq!(r.info().ca_state, "open");
    let cwnd = r.info().snd_cwnd;
    r.send(1);
    r.at(702);
    r.ack(3, &[]);
    assert_eq!(
        (r.notes().reductions, r.stack.counters().tcp_loss_probe_recovery),
        (vec![Signal::Timeout], 0)
    );
    assert!(r.info().snd_cwnd >= cwnd);
}
