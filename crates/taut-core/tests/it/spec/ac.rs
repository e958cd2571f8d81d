//! Autocorking: AC-1 … AC-14. A small write waits while an earlier packet is still below TCP.

use crate::spec::rig::{Ack, Device, MSS, Rig, Setup, truesize};
use taut_core::{AutocorkMode, Blocked, ConnOptions, Duration, LinkCaps, SetOption, WriteFlags};

fn nodelay() -> Setup {
    Setup { options: ConnOptions { nodelay: true, ..ConnOptions::default() }, ..Setup::default() }
}

/// TCP_NODELAY, and a packet of 100 bytes that is below TCP and unacknowledged.
#[track_caller]
fn hundred_below() -> Rig {
    let mut rig = nodelay().open();
    rig.write(100);
    assert_eq!((rig.news(), rig.out()), (vec![0..100], truesize(100)));
    rig
}

#[track_caller]
fn assert_held(rig: &mut Rig) {
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::Autocork));
}

/// With nothing unacknowledged a write never waits, however late the completions are.
#[test]
fn ac_01_the_head_is_never_held() {
    let mut rig = hundred_below();
    rig.advance(Duration::from_millis(40));
    rig.ack(100);
    assert_eq!(rig.out(), truesize(100), "the ACK overtook the completion");
    rig.write(50);
    assert_eq!(rig.news(), [100..150]);
    assert_eq!(rig.counters().tcp_auto_corking, 0);
}

/// A completion that comes around the moment of the decision, just before it or just after, is not missed.
#[test]
fn ac_02_a_completion_around_the_decision_is_seen() {
    let mut rig = hundred_below();
    rig.complete_quietly(0);
    rig.write(50);
    assert_eq!(rig.news(), [100..150]);
    assert_eq!(rig.counters().tcp_auto_corking, 0);

    let mut rig = hundred_below();
    rig.device = Device::Sleeps;
    rig.write(50);
    rig.complete_quietly(0);
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.news(), [100..150]);
}

/// TCP_NODELAY does not help: 50 bytes behind 100 wait for the completion.
#[test]
fn ac_03_held_until_the_completion() {
    let mut rig = hundred_below();
    rig.write(50);
    assert_held(&mut rig);
    rig.complete(0);
    assert_eq!(rig.news(), [100..150]);
}

/// MSG_MORE was meant for that one push: the completion asks by the socket's own rules.
#[test]
fn ac_03_a_held_msg_more_leaves_with_the_completion() {
    let mut rig = hundred_below();
    rig.write_more(50);
    assert_held(&mut rig);
    rig.complete(0);
    assert_eq!(rig.news(), [100..150]);
}

/// The tail leaves once it is larger than the data below TCP; at equal size it waits.
#[test]
fn ac_04_a_tail_that_outgrows_what_is_below_goes() {
    let mut rig = hundred_below();
    for _ in 0..4 {
        rig.write(25);
        assert_held(&mut rig);
    }
    rig.write(1);
    assert_eq!(rig.news(), [100..201]);
    assert_eq!(rig.held().len(), 2, "no completion came");
}

/// Full buffers that wait before the tail are not the tail.
#[test]
fn ac_04_the_tail_is_what_is_in_the_last_buffer() {
    let mut rig = Setup { caps: LinkCaps::plain(1_500), ..nodelay() }.open();
    rig.stack.set_sysctl("taut.tsq", "off").unwrap();
    // The window is full, and a record of three segments waits for it.
    rig.write(10 * MSS);
    rig.write_eor(3 * MSS);
    assert_eq!(rig.counters().tcp_auto_corking, 0);
    rig.write(10);
    assert_eq!(rig.counters().tcp_auto_corking, 1);
}

/// Only a data packet's completion releases a write; a pure ACK's does not, so a pure ACK holds nothing.
#[test]
fn ac_05_a_pure_ack_below_holds_nothing() {
    let mut rig = hundred_below();
    rig.complete(0);
    rig.ack_with(&Ack::of(0).payload(2_000));
    assert_eq!(rig.out(), 2, "an ACK is below, nothing else");
    assert_eq!(rig.info().unacked, 1);
    rig.write(50);
    assert_eq!(rig.news(), [100..150]);
}

/// Counted when the waiting begins, not for each write.
#[test]
fn ac_06_ten_held_writes_count_once() {
    let mut rig = hundred_below();
    for _ in 0..10 {
        rig.write(5);
        assert_held(&mut rig);
    }
    assert_eq!(rig.counters().tcp_auto_corking, 1);
    rig.complete(0);
    assert_eq!(rig.news(), [100..150]);
    // A new wait counts again.
    rig.write(5);
    assert_held(&mut rig);
    assert_eq!(rig.counters().tcp_auto_corking, 2);
    // taut's own counter has each write.
    assert_eq!(rig.counters().autocork_held, 11);
}

/// The end of a record is complete: nothing will join it.
#[test]
fn ac_07_the_end_of_a_record_is_not_held() {
    let mut rig = hundred_below();
    rig.write_eor(50);
    assert_eq!(rig.news(), [100..150]);
    assert_eq!(rig.counters().tcp_auto_corking, 0);
}

/// An ACK pushes, and it pushes as an ACK does: under Nagle's rule.
#[test]
fn ac_08_an_ack_pushes_under_nagle() {
    let mut rig = hundred_below();
    rig.write(50);
    assert_held(&mut rig);
    rig.advance(Duration::from_millis(40));
    rig.ack(100);
    assert_eq!(rig.news(), [100..150]);
    assert_eq!(rig.held(), [0, 1], "no completion came");

    // Two small packets, the first acknowledged: now it is Nagle that holds the third.
    let mut rig = hundred_below();
    rig.complete(0);
    rig.write(100);
    assert_eq!(rig.news(), [100..200]);
    rig.set(SetOption::Nodelay(false));
    rig.write(50);
    assert_held(&mut rig);
    rig.advance(Duration::from_millis(40));
    rig.ack(100);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::Nagle));
    rig.ack(200);
    assert_eq!(rig.news(), [200..250]);
}

/// `tcp_autocorking` 0: never held.
#[test]
fn ac_09_switched_off_nothing_is_held() {
    let mut rig = nodelay().config(|config| config.send.autocorking = false).open();
    rig.write(100);
    rig.write(50);
    assert_eq!(rig.news(), [0..100, 100..150]);
    assert_eq!(rig.counters().tcp_auto_corking, 0);
}

/// `hundred_below`, and 32 bytes written one by one behind it: a stream.
#[track_caller]
fn streaming_in(mode: AutocorkMode) -> Rig {
    let mut rig = nodelay().config(|config| config.send.autocork = mode).open();
    rig.write(100);
    assert_eq!((rig.news(), rig.out()), (vec![0..100], truesize(100)));
    for _ in 0..32 {
        rig.advance(Duration::from_micros(50));
        rig.write(1);
        assert_held(&mut rig);
    }
    rig
}

#[track_caller]
fn streaming() -> Rig {
    streaming_in(AutocorkMode::Stream)
}

/// In a stream, a tail that outgrows what is below waits on for the completion.
#[test]
fn ac_10_in_a_stream_growth_does_not_release() {
    let mut rig = streaming();
    rig.write(1_000);
    assert_held(&mut rig);
    assert_eq!(rig.counters().tcp_auto_corking, 1);
    rig.complete(0);
    assert_eq!(rig.news(), [100..1_132]);

    let mut rig = streaming_in(AutocorkMode::Fixed);
    rig.write(69);
    assert_eq!(rig.news(), [100..201], "Linux's rule");

    // 31 writes behind the first are none yet.
    let mut rig = hundred_below();
    for _ in 0..30 {
        rig.write(1);
        assert_held(&mut rig);
    }
    rig.write(71);
    assert_eq!(rig.news(), [100..201]);

    // The end of a record leaves.
    let mut rig = streaming();
    rig.write_eor(1);
    assert_eq!(rig.news(), [100..133]);
}

/// A full buffer leaves without a completion.
#[test]
fn ac_10_a_full_buffer_leaves() {
    let mut rig = streaming();
    let mut tail = 32;
    while rig.news().is_empty() {
        let taken = rig.try_write(1_000, WriteFlags::default()).unwrap();
        assert!(taken > 0, "the buffer is full, and nothing leaves");
        tail += taken;
    }
    assert_eq!(tail, 66_032, "the first write that reaches 45 segments of 1448 bytes");
    assert_eq!(rig.held()[0], 0, "no completion came");
}

/// An ACK releases nothing, and with everything acknowledged the next write is not taken for a head.
#[test]
fn ac_11_in_a_stream_an_ack_does_not_release() {
    let mut rig = streaming();
    rig.ack(100);
    assert_held(&mut rig);
    rig.write(1);
    assert_held(&mut rig);
    rig.complete(0);
    assert_eq!(rig.news(), [100..133]);

    // Nothing is written when the ACK comes, and a write before the stack is asked for packets.
    rig.device = Device::Sleeps;
    rig.ack(133);
    rig.write(1);
    rig.device = Device::Keeps;
    rig.poll();
    assert_held(&mut rig);
    rig.complete(1);
    assert_eq!(rig.news(), [133..134]);

    let mut rig = streaming_in(AutocorkMode::Fixed);
    rig.ack(100);
    assert_eq!(rig.news(), [100..132], "Linux's rule");
}

/// A pause, data from the peer, and a write of a segment end it.
#[test]
fn ac_12_what_ends_a_stream() {
    let mut rig = streaming();
    rig.advance(Duration::from_micros(50));
    rig.ack(100);
    assert_held(&mut rig);
    rig.advance(Duration::from_micros(1));
    rig.ack(100);
    rig.complete(0);
    assert_eq!(rig.news(), [100..132]);

    let mut rig = streaming();
    rig.advance(Duration::from_micros(51));
    rig.ack(100);
    assert_eq!(rig.news(), [100..132], "a pause: an ACK releases");

    let mut rig = streaming();
    rig.ack_with(&Ack::of(100).payload(10));
    assert_eq!(rig.news(), [100..132], "an answer");

    let mut rig = streaming();
    rig.write(1_448);
    assert_eq!(rig.news(), [100..1_580], "a segment");
}

/// What follows a pause is the head again; one of up to 10 ms costs 16 writes, a longer one all.
#[test]
fn ac_13_a_stream_that_was_interrupted() {
    for (pause_us, is_stream) in [(51, true), (10_000, true), (10_001, false)] {
        let mut rig = streaming();
        for _ in 0..16 {
            rig.write(1);
        }
        rig.complete(0);
        assert_eq!(rig.news(), [100..148]);
        rig.ack(148);
        rig.advance(Duration::from_micros(pause_us));
        rig.write(1);
        assert_eq!(rig.news(), [148..149], "the head, although a completion is pending");
        rig.ack(149);
        rig.write(1);
        if is_stream {
            assert_held(&mut rig);
        } else {
            assert_eq!(rig.news(), [149..150]);
        }
    }
}

/// Their completions resume nobody, so with two of them below, a stream that begins is not held for ever.
#[test]
fn ac_14_acks_below_hold_no_stream() {
    let mut rig = hundred_below();
    rig.complete(0);
    for _ in 0..2 {
        rig.ack_with(&Ack::of(100).payload(2 * MSS as usize));
    }
    assert_eq!((rig.out(), rig.info().unacked), (4, 0), "two ACKs are below, and nothing is in flight");
    rig.device = Device::Sleeps;
    for _ in 0..60 {
        rig.write(1);
    }
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.news(), [100..160]);
}
