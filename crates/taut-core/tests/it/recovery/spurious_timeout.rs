//! A spurious timeout: RFC 5682 (F-RTO) without timestamps, RFC 3522 and RFC 4015 (Eifel) with them.

use taut_core::StackConfig;

use crate::support::trace::{Offer, Trace};

/// Ten segments of twenty are out, and the timeout has fired: the head was retransmitted, 200 ms after the
/// last. cwnd is 1 (RFC 5681 §3.1).
fn timed_out(config: StackConfig, offer: Offer) -> Trace {
    let mut t = Trace::with(config.with(|c| c.recovery.tail_loss_probes = false));
    t.accept(offer);
    t.write(20_000);
    for n in 0..10 {
        expect!(t, ".", seq(1 + n * 1_000), len(1_000));
    }
    expect_nothing!(t);
    expect!(t, ".", seq(1), len(1_000), after_ms(200));
    expect_nothing!(t);
    assert_eq!((t.info().snd_cwnd, t.info().snd_ssthresh, t.info().ca_state), (1, 7, "loss"));
    t
}

#[test]
fn frto_01_new_data_leaves_and_then_it_believes_the_originals() {
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    // The ACK of the first original. RFC 5682 §3.1 step 2.b: two new segments, no retransmission.
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    expect_nothing!(t);
    // The second original. Step 3.b: it was never retransmitted, so the timeout was spurious.
    inject!(t, ".", ack(2_001));
    let info = t.info();
    assert_eq!((info.lost, info.snd_ssthresh, info.ca_state), (0, u32::MAX, "open"));
    assert!(info.snd_cwnd >= 10, "{}", info.snd_cwnd);
    let counters = t.stack.counters();
    assert_eq!((counters.retrans_segs, counters.tcp_spurious_rtos, counters.tcp_loss_undo), (1, 1, 1));
    inject!(t, ".", ack(12_001));
    t.poll();
    assert!(t.out.iter().all(|got| got.seq >= 12_001), "nothing is retransmitted");
}

#[test]
fn frto_01_it_believes_a_sack_for_an_original_too() {
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    // Step 3.b with SACK: an original below the point where the timeout was, although a hole lies before it.
    inject!(t, ".", ack(1_001), sack(&[(2_001, 3_001)]));
    assert_eq!(t.stack.counters().tcp_spurious_rtos, 1);
    assert_eq!((t.info().lost, t.info().snd_ssthresh), (0, u32::MAX));
}

#[test]
fn frto_02_it_takes_sacks_of_only_the_new_data_for_a_real_loss() {
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    // Step 3.a: the new data arrived, the old data did not. Ordinary recovery goes on.
    inject!(t, ".", ack(1_001), sack(&[(10_001, 11_001)]));
    expect!(t, ".", seq(1_001), len(1_000));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().ca_state), (0, "loss"));
    assert_eq!(t.info().snd_ssthresh, 7);
    // The question is answered: an original that comes after all changes nothing.
    inject!(t, ".", ack(1_001), sack(&[(3_001, 4_001), (10_001, 11_001)]));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().snd_ssthresh), (0, 7));
}

/// Either is enough: a duplicate without blocks, or a block in a segment with data, which is no duplicate
/// (RFC 5681 §2).
#[test]
fn frto_02_a_duplicate_or_a_sack_of_the_new_data_is_enough() {
    for with_sack in [false, true] {
        let mut t = timed_out(StackConfig::default(), Offer::EASY);
        inject!(t, ".", ack(1_001));
        expect!(t, ".", seq(10_001), len(1_000));
        expect!(t, ".", seq(11_001), len(1_000));
        if with_sack {
            inject!(t, ".", seq(1), len(100), ack(1_001), sack(&[(10_001, 11_001)]));
        } else {
            inject!(t, ".", ack(1_001));
        }
        inject!(t, ".", seq(101), ack(1_001), sack(&[(3_001, 4_001)]));
        assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().snd_ssthresh), (0, 7), "{with_sack}");
    }
}

/// The last segment that was out at the timeout is an original, too.
#[test]
fn frto_01_it_believes_a_sack_for_the_last_original() {
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    inject!(t, ".", ack(1), sack(&[(9_001, 10_001)]));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().snd_ssthresh), (1, u32::MAX));
}

#[test]
fn frto_03_it_waits_on_while_nothing_is_said() {
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    // Data from the peer is not a duplicate ACK (RFC 5681 §2).
    inject!(t, ".", seq(1), len(100), ack(1_001));
    inject!(t, ".", seq(101), ack(2_001));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().snd_ssthresh), (1, u32::MAX));
}

#[test]
fn frto_04_without_new_data_it_recovers_as_usual() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false));
    t.accept(Offer::EASY);
    t.write(10_000);
    t.poll();
    t.out.clear();
    expect!(t, ".", seq(1), len(1_000), after_ms(200));
    inject!(t, ".", ack(1_001));
    // cwnd is 2: slow start (RFC 5681 §3.1).
    expect!(t, ".", seq(1_001), len(1_000));
    expect!(t, ".", seq(2_001), len(1_000));
    expect_nothing!(t);
    // Step 2.b: that is conventional recovery, and ACKs prove nothing any more.
    inject!(t, ".", ack(5_001));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().ca_state), (0, "loss"));
}

#[test]
fn frto_04_it_sends_what_new_data_there_is_and_nothing_beside() {
    // RFC 5682 §3.1 step 2.b requires up to two segments. One that is not full does not wait for an ACK,
    // because its purpose is to get one.
    let mut t = Trace::with(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false));
    t.accept(Offer::EASY);
    // The last of ten is not full, so Nagle holds the next one back as long as that is unacknowledged.
    t.write(9_900);
    t.poll();
    t.write(300);
    t.poll();
    assert_eq!(t.out.drain(..).map(|got| got.payload.len()).sum::<usize>(), 9_900);
    expect!(t, ".", seq(1), len(1_000), after_ms(200));
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(9_901), len(300));
    expect_nothing!(t);
}

#[test]
fn frto_05_it_asks_again_at_the_next_timeout() {
    // RFC 5682 §3.1 step 1: a recovery is under way, but by a timeout; Linux the same.
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    expect!(t, ".", seq(1), len(1_000), after_ms(400));
    // One reduction for one loss (RFC 5681 §3.1).
    assert_eq!(t.info().snd_ssthresh, 7);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    inject!(t, ".", ack(2_001));
    assert_eq!(t.stack.counters().tcp_spurious_rtos, 1);
}

#[test]
fn frto_05_not_at_the_first_timeout_of_a_recovery() {
    // RFC 5682 §3.1 step 1: the retransmission of segment 1 is lost, too. That ACK would be for an original,
    // but a loss is certain.
    let mut t = Trace::with(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false));
    t.accept(Offer::EASY);
    t.write(20_000);
    t.wait_ms(10);
    t.out.clear();
    inject!(t, ".", ack(1), sack(&[(1_001, 4_001)]));
    assert_eq!(t.info().ca_state, "recovery");
    t.out.clear();
    while t.stack.counters().tcp_timeouts == 0 {
        t.wait_ms(1);
    }
    t.out.clear();
    inject!(t, ".", ack(1), sack(&[(1_001, 5_001)]));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().ca_state), (0, "loss"));
}

#[test]
fn frto_06_it_can_be_switched_off() {
    let mut t = timed_out(StackConfig::default().with(|c| c.recovery.frto = false), Offer::EASY);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(1_001), len(1_000));
    expect!(t, ".", seq(2_001), len(1_000));
    expect_nothing!(t);
}

#[test]
fn frto_07_it_works_without_sack() {
    // RFC 5682 §2.1.
    let plain = Offer { sackok: false, ..Offer::EASY };
    let mut t = timed_out(StackConfig::default(), plain);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    inject!(t, ".", ack(2_001));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().lost), (1, 0));

    // §2.1 step 3.a: a duplicate after the new data says that something old is missing.
    let mut t = timed_out(StackConfig::default(), plain);
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(10_001), len(1_000));
    expect!(t, ".", seq(11_001), len(1_000));
    inject!(t, ".", ack(1_001));
    expect!(t, ".", seq(1_001), len(1_000));
    assert_eq!(t.stack.counters().tcp_spurious_rtos, 0);

    // The segment above the head may have arrived before the timeout, and the peer could not report it: the
    // ACK for both is due to the retransmitted head.
    let mut t = timed_out(StackConfig::default(), plain);
    inject!(t, ".", ack(3_001));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().ca_state), (0, "loss"));
}

#[test]
fn undo_01_eifel_believes_the_timestamp_of_the_original() {
    let offer = Offer { ts: true, mss: Some(1_012), ..Offer::EASY };
    let mut t = Trace::with(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false));
    t.accept(offer);
    t.wait_ms(50);
    t.write(20_000);
    t.poll();
    let original = t.last_tsval;
    t.out.clear();
    expect!(t, ".", seq(1), len(1_000), after_ms(200));
    // RFC 3522 §3.2 step 4: TSecr is from before the retransmission. One ACK is enough.
    inject!(t, ".", ack(1_001), ts(t.peer_clock(), original));
    let info = t.info();
    assert_eq!((info.lost, info.snd_ssthresh, info.ca_state), (0, u32::MAX, "open"));
    assert!(info.snd_cwnd >= 10 - 1, "{}", info.snd_cwnd);
    let counters = t.stack.counters();
    assert_eq!((counters.tcp_loss_undo, counters.tcp_spurious_rtos), (1, 0));
    // RFC 4015 §3.3: that ACK measured how long the path really takes, and the timeout follows.
    assert_eq!(info.backoff, 0);
    assert!(info.rtt.unwrap().as_millis() >= 20, "{:?}", info.rtt);
}

#[test]
fn undo_01_an_echo_of_the_retransmission_undoes_nothing() {
    let offer = Offer { ts: true, mss: Some(1_012), ..Offer::EASY };
    let mut t = Trace::with(StackConfig::default().with(|c| {
        c.recovery.tail_loss_probes = false;
        c.recovery.frto = false;
    }));
    t.accept(offer);
    t.write(20_000);
    t.poll();
    t.out.clear();
    expect!(t, ".", seq(1), len(1_000), after_ms(200));
    t.wait_ms(5);
    inject!(t, ".", ack(1_001));
    assert_eq!((t.info().ca_state, t.stack.counters().tcp_loss_undo), ("loss", 0));
    expect!(t, ".", seq(1_001), len(1_000));
}

/// RFC 5682 §3.1 step 2.b: new data that does not leave asks nothing. Linux: `tcp_xmit_recovery`.
#[test]
fn frto_04_a_window_without_room_for_a_segment_ends_it() {
    let mut t = timed_out(StackConfig::default(), Offer::EASY);
    // The window ends 500 bytes beyond what has left.
    inject!(t, ".", ack(1_001), win(9_500));
    expect!(t, ".", seq(1_001), len(1_000));
    expect!(t, ".", seq(2_001), len(1_000));
    // An original arrives after all.
    inject!(t, ".", ack(1_001), win(9_500), sack(&[(5_001, 6_001)]));
    assert_eq!((t.stack.counters().tcp_spurious_rtos, t.info().snd_ssthresh), (0, 7));
}
