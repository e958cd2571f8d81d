//! The last segment of a flight is lost, and no segment behind it reveals that. RFC 8985 §7.

use taut_core::{SetOption, StackConfig};

use crate::recovery::scene::{established, repairs, sent};
use crate::support::trace::{Offer, Trace};

/// Five segments and nothing more to send; the first `acked` are acknowledged after 100 ms.
fn five(acked: u32) -> Trace {
    let mut t = established(StackConfig::default(), Offer::EASY);
    t.write(5_000);
    assert_eq!(sent(&mut t).len(), 5);
    t.wait_ms(100);
    if acked > 0 {
        inject!(t, ".", ack(acked * 1_000 + 1));
    }
    t
}

#[test]
fn the_last_segment_is_the_probe_and_repairs_itself() {
    let mut t = five(4);
    // §7.2: 2·SRTT, and since one segment is out, time for its delayed ACK (Linux: 200 ms, within the RTO of
    // 300 ms).
    expect!(t, ".", seq(4_001), len(1_000), after_ms(300));
    assert_eq!(repairs(&t), (1, 0, 1));
    t.wait_ms(100);
    inject!(t, ".", ack(5_001));
    // §7.4.2: cwnd is not touched before it is certain that something was lost, and that is when an ACK goes
    // beyond.
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("open", u32::MAX));
    t.write(1_000);
    assert_eq!(sent(&mut t), [5_001]);
    t.wait_ms(100);
    inject!(t, ".", ack(6_001));
    assert_ne!(t.info().snd_ssthresh, u32::MAX, "one loss, one reduction");
    assert_eq!(t.stack.counters().tcp_loss_probe_recovery, 1);
}

#[test]
fn a_probe_that_was_needless_costs_nothing() {
    let mut t = five(4);
    expect!(t, ".", seq(4_001), len(1_000), after_ms(300));
    // Original and probe arrive: §7.4.2, by D-SACK.
    inject!(t, ".", ack(5_001));
    inject!(t, ".", ack(5_001), sack(&[(4_001, 5_001)]));
    t.write(1_000);
    let _ = sent(&mut t);
    t.wait_ms(100);
    inject!(t, ".", ack(6_001));
    assert_eq!((t.info().snd_ssthresh, t.stack.counters().tcp_loss_probe_recovery), (u32::MAX, 0));
    // Nor does that D-SACK say anything of reordering: min_rtt/4 is as long as it was (RFC 8985 §6.2 steps 4
    // and 5), and 2 ms for the timer.
    t.write(4_000);
    let _ = sent(&mut t);
    t.wait_ms(100);
    inject!(t, ".", ack(6_001), sack(&[(7_001, 9_001)]));
    expect_nothing!(t);
    expect!(t, ".", seq(6_001), len(1_000), after_ms(27));
}

#[test]
fn the_probe_shows_that_more_is_lost() {
    let mut t = five(2);
    // §7.2: 2·SRTT, and 2 ms for the timer.
    expect!(t, ".", seq(4_001), len(1_000), after_ms(202));
    t.wait_ms(100);
    // 3 and 4 were sent before the delivered segment, and min_rtt/4 ago: lost without a timeout.
    inject!(t, ".", ack(2_001), sack(&[(4_001, 5_001)]));
    assert_eq!(sent(&mut t), [2_001]);
    assert_eq!(t.info().ca_state, "recovery");
    t.wait_ms(100);
    inject!(t, ".", ack(3_001), sack(&[(4_001, 5_001)]));
    assert_eq!(sent(&mut t), [3_001]);
    assert_eq!(repairs(&t), (3, 0, 1));
}

#[test]
fn new_data_is_the_better_probe() {
    let mut t = five(4);
    // The window has room and something is written before the probe is due, but cork holds it back.
    let now = t.now;
    t.conn().set_option(now, SetOption::Cork(true)).unwrap();
    t.write(100);
    expect_nothing!(t);
    // §7.3: unsent data first.
    expect!(t, ".", seq(5_001), len(100), after_ms(300));
    assert_eq!(t.stack.counters().retrans_segs, 0);
}

#[test]
fn one_probe_then_the_timeout() {
    let mut t = five(4);
    expect!(t, ".", seq(4_001), len(1_000), after_ms(300));
    // §7.3: no second probe; RTO = SRTT + 200 ms (RFC 6298, Linux's floor on the variance) from the probe on,
    // doubled each time.
    expect!(t, ".", seq(4_001), len(1_000), after_ms(300));
    expect!(t, ".", seq(4_001), len(1_000), after_ms(600));
    assert_eq!(repairs(&t), (3, 2, 1));
}

#[test]
fn without_probes_the_timeout_is_all_there_is() {
    let mut t =
        established(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false), Offer::EASY);
    t.write(5_000);
    let _ = sent(&mut t);
    t.wait_ms(100);
    inject!(t, ".", ack(4_001));
    // RFC 6298 §5.3: restarted by the ACK.
    expect!(t, ".", seq(4_001), len(1_000), after_ms(300));
    assert_eq!(repairs(&t), (1, 1, 0));
}

#[test]
fn no_second_probe_leaves_before_the_first_is_judged() {
    // §7.2: the probe is new data, since the window is full and more is written. It acknowledges nothing by
    // itself.
    let mut t = established(StackConfig::default(), Offer::EASY);
    t.write(20_000);
    assert_eq!(sent(&mut t).len(), 10);
    expect!(t, ".", seq(10_001), len(1_000), after_ms(202));
    // An ACK below TLP.end_seq judges nothing (RFC 8985 §7.4), so the timeout comes next. RFC 6298, with the
    // samples 100 and 202 ms: SRTT is 113 ms, RTTVAR 63 ms, RTO 365 ms from the ACK on (§5.3). A probe would
    // come after 2·SRTT.
    inject!(t, ".", ack(1_001));
    t.poll();
    t.out.clear();
    expect_nothing!(t, for_ms 360);
    t.wait_ms(10);
    assert_eq!(repairs(&t).1, 1);
}

#[test]
fn tlp_03_the_timeout_of_a_probe_that_cannot_leave_begins_anew_with_it() {
    // RFC 8985 §7.3: after the attempt to send a probe, whether or not one was sent, the RTO timer starts.
    let mut t = established(StackConfig::default(), Offer::EASY);
    // The device keeps both packets, so that their copies may not leave yet.
    t.hold_tickets = true;
    t.write(2_000);
    t.poll();
    t.out.clear();
    // The probe is due after 2·SRTT and 2 ms; RTO is SRTT + 200 ms.
    expect_nothing!(t, for_ms 501);
    assert_eq!(repairs(&t), (0, 0, 0));
    t.wait_ms(2);
    assert_eq!(repairs(&t).1, 1, "202 ms and 300 ms");
}
