//! When the receiver answers, with what, and when the sender waits for more: RFC 9293 §3.7.4 and §3.8.6.3,
//! RFC 5681 §4.2, RFC 2018, RFC 2883.

use crate::support;

use support::trace::{Offer, Seg, Trace};
use taut_core::{Blocked, Fate, Frame, RxChecksum, RxPacket, SetOption, State, WriteFlags};

/// Established, with the quick ACKs of the start used up: the peer is at 1601.
#[track_caller]
fn settled() -> Trace {
    let mut t = Trace::accepted(Offer::EASY);
    for at in 0..16 {
        inject!(t, "P.", seq(1 + at * 100), ack(1), len(100));
        // Linux: the first 16 at once, for the peer is in slow start.
        expect!(t, ".", ack(101 + at * 100));
    }
    t.read(1_600);
    t.wait_ms(30);
    t
}

// ---- receiving ----

#[test]
fn a_single_segment_is_acknowledged_within_40_ms() {
    let mut t = settled();
    inject!(t, "P.", seq(1_601), ack(1), len(100));
    expect!(t, ".", ack(1_701), after_ms(40));
    expect_nothing!(t, for_ms 1_000);
}

#[test]
fn the_second_full_segment_is_acknowledged_at_once() {
    // RFC 9293 §3.8.6.3, SHLD-19.
    let mut t = settled();
    for at in [1_601, 3_601, 5_601] {
        inject!(t, ".", seq(at), ack(1), len(1_000));
        expect_nothing!(t);
        inject!(t, ".", seq(at + 1_000), ack(1), len(1_000));
        expect!(t, ".", ack(at + 2_000));
    }
    // A super-packet of many is one ACK.
    inject!(t, ".", seq(7_601), ack(1), len(10_000), gso(1_000));
    expect!(t, ".", ack(17_601));
    expect_nothing!(t, for_ms 1_000);
}

#[test]
fn the_answer_carries_the_ack() {
    let mut t = settled();
    inject!(t, "P.", seq(1_601), ack(1), len(100));
    t.wait_ms(10);
    t.write(50);
    expect!(t, "P.", seq(1), ack(1_701), len(50));
    inject!(t, ".", seq(1_701), ack(51));
    expect_nothing!(t, for_ms 1_000);
}

#[test]
fn a_conversation_needs_no_pure_acks() {
    let mut t = Trace::accepted(Offer::EASY);
    let (mut theirs, mut ours) = (1, 1);
    for round in 0..30 {
        inject!(t, "P.", seq(theirs), ack(ours), len(100));
        theirs += 100;
        if round == 0 {
            expect!(t, ".", ack(theirs));
        }
        expect_nothing!(t, for_ms 5);
        t.write(200);
        expect!(t, "P.", seq(ours), ack(theirs), len(200));
        ours += 200;
        t.wait_ms(50);
        expect_nothing!(t);
    }
}

#[test]
fn quickack_on_and_off() {
    let mut t = settled();
    let now = t.now;
    inject!(t, "P.", seq(1_601), ack(1), len(100));
    expect_nothing!(t);
    t.conn().set_option(now, SetOption::Quickack(true)).unwrap();
    expect!(t, ".", ack(1_701));
    inject!(t, "P.", seq(1_701), ack(1), len(100));
    expect!(t, ".", ack(1_801));
    t.conn().set_option(now, SetOption::Quickack(false)).unwrap();
    inject!(t, "P.", seq(1_801), ack(1), len(100));
    expect!(t, ".", ack(1_901), after_ms(40));
}

#[test]
fn out_of_order_data_is_acknowledged_at_once() {
    // RFC 5681 §4.2; the blocks as in RFC 2018 §4: the one that triggered the ACK first, the others by age.
    let mut t = settled();
    t.stack.set_sysctl("net.ipv4.tcp_comp_sack_nr", "0").unwrap();
    let block = |at: u32| (at, at + 500);
    inject!(t, ".", seq(2_101), ack(1), len(500));
    expect!(t, ".", ack(1_601), sack(&[block(2_101)]));
    inject!(t, ".", seq(3_101), ack(1), len(500));
    expect!(t, ".", ack(1_601), sack(&[block(3_101), block(2_101)]));
    inject!(t, ".", seq(4_101), ack(1), len(500));
    expect!(t, ".", ack(1_601), sack(&[block(4_101), block(3_101), block(2_101)]));
    inject!(t, ".", seq(5_101), ack(1), len(500));
    expect!(t, ".", ack(1_601), sack(&[block(5_101), block(4_101), block(3_101), block(2_101)]));
    inject!(t, ".", seq(6_101), ack(1), len(500));
    expect!(t, ".", ack(1_601), sack(&[block(6_101), block(5_101), block(4_101), block(3_101)]));
    // It touches an old one: that is the most recent now.
    inject!(t, ".", seq(3_601), ack(1), len(100));
    expect!(t, ".", ack(1_601), sack(&[(3_101, 3_701), block(6_101), block(5_101), block(4_101)]));
    // RFC 5681 §4.2: a segment that fills all or part of a hole is acknowledged at once.
    inject!(t, ".", seq(1_601), ack(1), len(500));
    expect!(t, ".", ack(2_601), sack(&[(3_101, 3_701), block(6_101), block(5_101), block(4_101)]));
    inject!(t, ".", seq(2_601), ack(1), len(500));
    expect!(t, ".", ack(3_701), sack(&[block(6_101), block(5_101), block(4_101)]));
    inject!(t, ".", seq(3_701), ack(1), len(2_400));
    // It brought three blocks a second time (RFC 2883 §4: the first is reported).
    expect!(t, ".", ack(6_601), sack(&[(4_101, 4_601)]));
    t.read(5_000);
}

/// Six segments beyond a hole: three ACKs, and three that wait. Linux 4.18: from the fourth on they wait for
/// 5 % of the round trip, 1 ms at most, or 44 of them.
#[track_caller]
fn six_beyond_a_hole() -> Trace {
    let mut t = settled();
    for at in [2_101, 3_101, 4_101] {
        inject!(t, ".", seq(at), ack(1), len(500));
        expect!(t, ".", ack(1_601));
    }
    for at in [5_101, 6_101, 7_101] {
        inject!(t, ".", seq(at), ack(1), len(500));
        expect_nothing!(t);
    }
    t
}

#[test]
fn a_burst_beyond_a_hole_is_answered_with_three_acks_and_one() {
    let mut t = six_beyond_a_hole();
    t.wait_ms(1);
    expect!(t, ".", ack(1_601));
    expect_nothing!(t);
    assert_eq!(t.stack.counters().tcp_ack_compressed, 3);
    // The segment that fills the hole is acknowledged at once.
    inject!(t, ".", seq(1_601), ack(1), len(500));
    expect!(t, ".", ack(2_601));
}

#[test]
fn what_no_further_ack_could_tell_is_told_at_once() {
    // Linux, `tcp_sack_new_ofo_skb`: what is held back leaves before there are more blocks than fit, four
    // without timestamps.
    let mut t = six_beyond_a_hole();
    inject!(t, ".", seq(8_101), ack(1), len(500));
    let blocks = [8_101, 7_101, 6_101, 5_101].map(|at| (at, at + 500));
    expect!(t, ".", ack(1_601), sack(&blocks));
    expect_nothing!(t, for_ms 2);
}

#[test]
fn whoever_asks_is_told_when_an_ack_is_full() {
    let mut t = settled();
    let bytes = [2_101, 3_101, 4_101, 5_101].map(|at| t.build(&Seg::new(".").seq(at).ack(1).len(500)));
    let now = t.now;
    let full = bytes.map(|bytes| {
        let frame = Frame::Slice(&bytes);
        let packet = RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 };
        t.stack.handle_packet(now, packet);
        t.stack.must_answer()
    });
    assert_eq!(full, [false, false, false, true]);
    t.poll();
    assert!(!t.stack.must_answer());
    assert_eq!(t.out.pop_front().unwrap().sack, [5_101, 4_101, 3_101, 2_101].map(|at| (at, at + 500)));
}

#[test]
fn three_blocks_beside_timestamps_and_none_without_permission() {
    let mut t = Trace::accepted(Offer::ALL);
    for at in [1_001, 3_001, 5_001, 7_001] {
        inject!(t, ".", seq(at), ack(1), len(1_000));
    }
    let last = t.out.pop_back().unwrap();
    assert_eq!(last.sack, [(7_001, 8_001), (5_001, 6_001), (3_001, 4_001)]);
    // Our data has less room while segments carry SACK blocks: two NOPs, two bytes, eight per block (RFC 2018
    // §3).
    t.out.clear();
    t.write(3_000);
    let data = t.out.pop_front().unwrap_or_else(|| expect!(t, ".", len(1_448 - 28)));
    assert_eq!(data.payload.len(), 1_448 - 28);
    assert_eq!(data.bytes.len(), 1_500);

    let mut t = Trace::accepted(Offer { sackok: false, ..Offer::EASY });
    inject!(t, ".", seq(1_001), ack(1), len(1_000));
    expect!(t, ".", ack(1), sack(&[]));
}

/// RFC 9293 §3.7.1: options count in the segment size. What was sent whole is cut when it leaves again beside
/// SACK blocks, on a link that cuts nothing.
#[test]
fn a_retransmission_beside_sack_blocks_is_no_larger_than_a_segment() {
    let mut t = settled();
    t.write(5_000);
    for at in [1, 1_001, 2_001, 3_001, 4_001] {
        expect!(t, ".", seq(at), len(1_000));
    }
    // Something of the peer is missing, too.
    inject!(t, ".", seq(2_101), ack(1), len(500));
    expect!(t, ".", ack(1_601), sack(&[(2_101, 2_601)]));
    inject!(t, ".", seq(2_601), ack(1), sack(&[(1_001, 5_001)]));
    // Two bytes, a block of eight, and two of padding.
    for (at, len) in [(1, 988), (989, 12)] {
        let again = expect!(t, ".", seq(at), len(len), sack(&[(2_101, 2_601)]));
        assert!(again.bytes.len() <= 40 + 1_000, "{} bytes", again.bytes.len());
    }
    inject!(t, ".", seq(2_601), ack(5_001));
    expect_nothing!(t, for_ms 1_000);
}

#[test]
fn rfc_2883_a_duplicate_segment() {
    // §4.1.1.
    let mut t = settled();
    inject!(t, ".", seq(1_601), ack(1), len(500));
    inject!(t, ".", seq(2_101), ack(1), len(500));
    t.wait_ms(100);
    t.out.clear();
    inject!(t, ".", seq(1_601), ack(1), len(500));
    expect!(t, ".", ack(2_601), sack(&[(1_601, 2_101)]));
    // Reported once.
    inject!(t, ".", seq(3_101), ack(1), len(500));
    expect!(t, ".", ack(2_601), sack(&[(3_101, 3_601)]));
}

#[test]
fn rfc_2883_a_duplicate_beside_a_hole() {
    // §4.1.2: below the ACK.
    let mut t = settled();
    inject!(t, ".", seq(1_601), ack(1), len(500));
    inject!(t, ".", seq(2_601), ack(1), len(500));
    inject!(t, ".", seq(3_101), ack(1), len(500));
    t.out.clear();
    inject!(t, ".", seq(1_601), ack(1), len(500));
    expect!(t, ".", ack(2_101), sack(&[(1_601, 2_101), (2_601, 3_601)]));
    // §4.1.3: above it.
    inject!(t, ".", seq(3_101), ack(1), len(500));
    expect!(t, ".", ack(2_101), sack(&[(3_101, 3_601), (2_601, 3_601)]));
    // §4.2: a part of a segment.
    inject!(t, ".", seq(3_101), ack(1), len(1_000));
    expect!(t, ".", ack(2_101), sack(&[(3_101, 3_601), (2_601, 4_101)]));
    inject!(t, ".", seq(1_601), ack(1), len(1_000));
    expect!(t, ".", ack(4_101), sack(&[(1_601, 2_101)]));
}

#[test]
fn rfc_2883_what_came_before_is_a_duplicate_also_without_a_hole() {
    // §4.2.1: a part of a segment, and all of it when only its FIN is new.
    for (flags, len, ack) in [(".", 1_000, 2_601), ("F.", 1_000, 2_602), ("F.", 500, 2_102)] {
        let mut t = settled();
        inject!(t, ".", seq(1_601), ack(1), len(500));
        t.wait_ms(100);
        t.out.clear();
        t.inject(&Seg::new(flags).seq(1_601).ack(1).len(len));
        expect!(t, ".", ack(ack), sack(&[(1_601, 2_101)]));
        // Reported once.
        inject!(t, ".", seq(ack), ack(1), len(0));
        expect_nothing!(t, for_ms 1_000);
    }
}

// ---- sending ----

fn open() -> Trace {
    Trace::accepted(Offer::EASY)
}

#[track_caller]
fn set(t: &mut Trace, option: SetOption) {
    let now = t.now;
    t.conn().set_option(now, option).unwrap();
}

#[track_caller]
fn write_with(t: &mut Trace, len: usize, flags: WriteFlags) {
    let now = t.now;
    assert_eq!(t.conn().write_with(now, &vec![1; len], flags), Ok(len));
}

#[test]
fn nagle_holds_the_second_small_segment() {
    // RFC 9293 §3.7.4.
    let mut t = open();
    t.write(100);
    expect!(t, "P.", seq(1), len(100));
    t.write(100);
    t.write(100);
    expect_nothing!(t);
    assert_eq!(t.conn().as_ref().blocked(), Blocked::Nagle);
    inject!(t, ".", seq(1), ack(101));
    expect!(t, "P.", seq(101), len(200));
    // Data that completes a full segment need not wait.
    t.write(900);
    expect_nothing!(t);
    t.write(150);
    expect!(t, ".", seq(301), len(1_000));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(301));
    // draft-minshall-nagle-01: full segments in flight hold nothing back.
    expect!(t, "P.", seq(1_301), len(50));
}

#[test]
fn minshall_lets_the_tail_of_a_large_write_go() {
    let mut t = open();
    t.write(2_500);
    expect!(t, ".", seq(1), len(1_000));
    expect!(t, ".", seq(1_001), len(1_000));
    expect!(t, "P.", seq(2_001), len(500));
    t.write(10);
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(2_001));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(2_501));
    expect!(t, "P.", seq(2_501), len(10));
}

#[test]
fn nodelay_sends_every_write() {
    let mut t = open();
    t.write(100);
    expect!(t, "P.", len(100));
    t.write(100);
    expect_nothing!(t);
    // Setting it sends the data that is held back.
    set(&mut t, SetOption::Nodelay(true));
    expect!(t, "P.", seq(101), len(100));
    for at in [201, 301, 401] {
        t.write(100);
        expect!(t, "P.", seq(at), len(100));
    }
    set(&mut t, SetOption::Nodelay(false));
    t.write(100);
    expect_nothing!(t);
}

#[test]
fn cork_holds_partial_segments_for_200_ms_at_most() {
    let mut t = open();
    set(&mut t, SetOption::Cork(true));
    t.write(100);
    expect_nothing!(t);
    assert_eq!(t.conn().as_ref().blocked(), Blocked::Cork);
    t.write(950);
    expect!(t, ".", seq(1), len(1_000));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(1_001));
    // tcp(7): 200 ms, here the RTO's least.
    expect!(t, "P.", seq(1_001), len(50), after_ms(200));
    // Cleared, all goes.
    t.write(70);
    expect_nothing!(t, for_ms 100);
    inject!(t, ".", seq(1), ack(1_051));
    set(&mut t, SetOption::Cork(false));
    expect!(t, "P.", seq(1_051), len(70));
    // FIN is no partial segment.
    inject!(t, ".", seq(1), ack(1_121));
    set(&mut t, SetOption::Cork(true));
    t.write(30);
    expect_nothing!(t);
    t.shutdown();
    expect!(t, "FP.", seq(1_121), len(30));
}

#[test]
fn setting_nodelay_flushes_a_cork() {
    let mut t = open();
    set(&mut t, SetOption::Cork(true));
    t.write(100);
    expect_nothing!(t);
    set(&mut t, SetOption::Nodelay(true));
    expect!(t, "P.", seq(1), len(100));
}

#[test]
fn more_is_a_cork_for_one_write() {
    let mut t = open();
    let more = WriteFlags { more: true, eor: false };
    write_with(&mut t, 100, more);
    expect_nothing!(t);
    write_with(&mut t, 100, WriteFlags::default());
    expect!(t, "P.", seq(1), len(200));
    inject!(t, ".", seq(1), ack(201));
    write_with(&mut t, 100, more);
    expect_nothing!(t, for_ms 199);
    expect!(t, "P.", seq(201), len(100), after_ms(1));
}

#[test]
fn records_do_not_share_a_packet() {
    let mut t = open();
    set(&mut t, SetOption::Nodelay(true));
    let eor = WriteFlags { more: false, eor: true };
    let id = t.id;
    write_with(&mut t, 100, eor);
    write_with(&mut t, 100, eor);
    write_with(&mut t, 1_100, WriteFlags::default());
    for (at, len) in [(1, 100), (101, 100), (201, 1_000), (1_201, 100)] {
        expect!(t, ".", seq(at), len(len));
    }
    assert_eq!(t.id, id);
}

#[test]
fn psh_stands_at_the_end_of_a_write() {
    // RFC 9293 §3.9.1.2: at least on the last segment of what is queued.
    let mut t = open();
    t.write(2_500);
    t.poll();
    let psh: Vec<bool> = t.out.drain(..).map(|got| got.has("P")).collect();
    assert_eq!(psh, [false, false, true]);
    inject!(t, ".", seq(1), ack(2_501));
    write_with(&mut t, 2_000, WriteFlags { more: true, eor: false });
    t.poll();
    assert!(t.out.drain(..).all(|got| !got.has("P")), "the write is not over");
}

#[test]
fn autocork_waits_for_a_completion_but_never_at_the_head() {
    let mut t = open();
    set(&mut t, SetOption::Nodelay(true));
    t.hold_tickets = true;
    t.write(100);
    expect!(t, "P.", seq(1), len(100));
    t.write(50);
    expect_nothing!(t);
    assert_eq!(t.conn().as_ref().blocked(), Blocked::Autocork);
    t.write(40);
    let ticket = t.tickets.pop_front().unwrap();
    let now = t.now;
    t.stack.handle_tx(now, ticket, Fate::Left);
    expect!(t, "P.", seq(101), len(90));
    inject!(t, ".", seq(1), ack(191));
    t.write(10);
    expect!(t, "P.", seq(191), len(10));
}

#[test]
fn dack_04_the_ack_of_a_fin_waits_for_our_fin() {
    // RFC 1122 §4.2.3.2. Linux 6.18, measured: in CLOSE-WAIT the connection is interactive.
    for len in [0, 100] {
        let mut t = Trace::accepted(Offer::EASY);
        let end = 1 + len as u32;
        inject!(t, "F.", seq(1), ack(1), len(len));
        expect_nothing!(t);
        assert_eq!(t.state(), State::CloseWait);
        if len > 0 {
            t.read(len);
        }
        assert_eq!(t.try_read(), Ok(0));
        t.close();
        expect!(t, "F.", seq(1), ack(end + 1));
        inject!(t, ".", seq(end + 1), ack(2));
        t.expect_gone();
        // Without a close, it leaves alone, as any delayed ACK.
        let mut t = Trace::accepted(Offer::EASY);
        inject!(t, "F.", seq(1), ack(1), len(len));
        expect!(t, ".", ack(end + 1), after_ms(40));
        // A FIN that comes again is acknowledged at once.
        inject!(t, "F.", seq(1), ack(1), len(len));
        expect!(t, ".", ack(end + 1));
    }
    // A hole that is filled is acknowledged at once, and so is the end of both directions.
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "F.", seq(101), ack(1));
    expect!(t, ".", ack(1));
    inject!(t, ".", seq(1), ack(1), len(100));
    expect!(t, ".", ack(102));
    for acked in [1, 2] {
        let mut t = Trace::accepted(Offer::EASY);
        t.shutdown();
        expect!(t, "F.", seq(1));
        inject!(t, "F.", seq(1), ack(acked));
        expect!(t, ".", ack(2));
    }
}
