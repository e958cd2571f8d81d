//! Windows, PSH and ACKs: RFC 9293 §3.7.4, §3.8.6 and §3.9.1.2.

use taut_core::{State, WriteFlags};

use crate::support::trace::{Offer, Seg, Trace};

#[test]
fn a_window_is_an_unsigned_number() {
    // MUST-1: 40,000 is no negative number, and 40 segments fit into it.
    let mut t = Trace::accepted(Offer { win: 40_000, ..Offer::EASY });
    assert_eq!(t.info().snd_wnd, 40_000);
    inject!(t, ".", seq(1), ack(1), win(65_535));
    assert_eq!(t.info().snd_wnd, 65_535);
}

#[test]
fn small_writes_leave_as_full_segments_with_one_push() {
    // SHLD-27, SHLD-28: what was written by many calls while cwnd was full leaves in segments of the full
    // size, and only the last of them has PSH.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(10_000);
    t.poll();
    assert_eq!(t.out.drain(..).filter(|got| got.has("P")).count(), 1);
    for _ in 0..50 {
        t.write(100);
    }
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(10_001));
    let sent: Vec<_> = t.out.drain(..).map(|got| (got.payload.len(), got.has("P"))).collect();
    assert_eq!(sent, [(1_000, false), (1_000, false), (1_000, false), (1_000, false), (1_000, true)]);
}

#[test]
fn a_write_that_is_not_pushed_is_not_kept_for_ever() {
    // MUST-60: MSG_MORE holds a part of a segment back for the ceiling of 200 ms.
    let mut t = Trace::accepted(Offer::EASY);
    let now = t.now;
    t.conn().write_with(now, &[0; 100], WriteFlags { more: true, eor: false }).unwrap();
    expect_nothing!(t, for_ms 199);
    t.wait_ms(2);
    expect!(t, "P.", seq(1), len(100));
}

#[test]
fn one_ack_answers_all_that_was_queued() {
    // MUST-58, MUST-59, SHLD-31: of segments in any order that are there together, the ACK comes last, and is
    // for all.
    let mut t = Trace::accepted(Offer::EASY);
    for at in [2_001, 1_001, 3_001, 1] {
        t.inject_unpolled(&Seg::new(".").seq(at).ack(1).len(1_000));
    }
    expect!(t, ".", seq(1), ack(4_001));
    expect_nothing!(t, for_ms 1_000);
    t.read(4_000);
}

#[test]
fn a_reset_is_believed_when_the_window_is_closed() {
    // MUST-66: and so is an ACK; an urgent pointer is not in the way.
    let mut t = Trace::accepted(Offer::EASY);
    let at = close_our_window(&mut t);
    t.write(10);
    expect!(t, "P.", len(10));
    inject!(t, "U.", seq(at), ack(11), urgent(5));
    assert_eq!(t.info().unacked, 0, "the ACK counts");
    assert_eq!(t.state(), State::Established);
    inject!(t, "R", seq(at));
    assert!(t.conn().as_ref().error().is_some());
}

/// Fills the receive buffer. Returns the sequence number at which the window is closed.
fn close_our_window(t: &mut Trace) -> u32 {
    let mut at = 1;
    while t.info().rcv_wnd > 0 {
        let len = t.info().rcv_wnd.min(1_000);
        inject!(t, ".", seq(at), ack(1), len(len as usize));
        at += len;
        t.wait_ms(1);
    }
    t.wait_ms(500);
    t.out.clear();
    at
}
