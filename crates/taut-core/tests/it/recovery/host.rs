//! Retransmissions respect the host's queues: no copy while the original is in the device, pacing, and small
//! queues with twice the usual limit (TSQ-5, TSQ-6 and PACE-7 test the same for the send path alone).

use taut_core::{Duration, Fate, SetOption, StackConfig, TsqMode};

use crate::recovery::scene::{established, in_flight, in_flight_with, sent};
use crate::support::trace::{Offer, Trace};

fn complete_first(t: &mut Trace) {
    let ticket = t.tickets.pop_front().unwrap();
    let now = t.now;
    t.stack.handle_tx(now, ticket, Fate::Left);
}

fn held() -> Trace {
    // Without small queues: two segments in the device would be enough.
    let config = StackConfig::default().with(|c| {
        c.recovery.tail_loss_probes = false;
        c.send.tsq = TsqMode::Off;
    });
    in_flight_with(config, Offer::EASY, true)
}

#[test]
fn a_single_loss_waits_for_its_own_copy() {
    let mut t = held();
    // Nothing has left the device, and yet the peer has copies. Segment 1 is not retransmitted.
    inject!(t, ".", ack(1), sack(&[(1_001, 5_001)]));
    assert!(sent(&mut t).iter().all(|&seq| seq >= 10_001));
    complete_first(&mut t);
    // New data has taken the room; the next arrivals make more, and lost data goes first (RFC 6675 §5).
    inject!(t, ".", ack(1), sack(&[(1_001, 8_001)]));
    assert_eq!(sent(&mut t).first(), Some(&1));
}

#[test]
fn undo_09_what_arrives_before_it_could_be_sent_again_was_not_lost() {
    // RFC 4015 §3.2: an ACK for data that was sent only once. The window is as before.
    let mut t = held();
    inject!(t, ".", ack(1), sack(&[(1_001, 5_001)]));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh), ("recovery", 7));
    assert!(sent(&mut t).iter().all(|&seq| seq >= 10_001));
    inject!(t, ".", ack(5_001));
    assert_eq!((t.info().snd_ssthresh, t.stack.counters().retrans_segs), (u32::MAX, 0));
    // So packets overtake each other here, and three above a hole prove nothing at once any more (RFC 8985
    // §6.2 step 4).
    inject!(t, ".", ack(5_001), sack(&[(6_001, 9_001)]));
    assert_eq!(t.info().ca_state, "disorder");
}

#[test]
fn a_burst_goes_again_as_its_copies_leave() {
    let config = StackConfig::default().with(|c| {
        c.recovery.tail_loss_probes = false;
        c.send.tsq = TsqMode::Off;
    });
    let mut t = established(config, Offer::EASY);
    t.hold_tickets = true;
    t.write(10_000);
    assert_eq!(sent(&mut t).len(), 10);
    t.wait_ms(100);
    inject!(t, ".", ack(1), sack(&[(3_001, 10_001)]));
    assert_eq!(sent(&mut t), []);
    assert!(t.stack.counters().tcp_spurious_rtx_host_queues > 0);
    for seq in [1, 1_001, 2_001] {
        complete_first(&mut t);
        assert_eq!(sent(&mut t), [seq]);
    }
}

#[test]
fn a_probe_is_no_copy_of_what_is_in_the_device() {
    let config = StackConfig::default();
    let mut t = established(config, Offer::EASY);
    t.hold_tickets = true;
    t.write(2_000);
    assert_eq!(sent(&mut t), [1, 1_001]);
    t.wait_ms(250);
    assert_eq!((sent(&mut t), t.stack.counters().tcp_loss_probes), (vec![], 0));
}

#[test]
fn a_timeout_sends_no_copy_of_what_is_in_the_device() {
    let mut t = held();
    t.wait_ms(400);
    assert!(t.stack.counters().tcp_timeouts >= 1);
    assert!(sent(&mut t).iter().all(|&seq| seq >= 10_001));
    complete_first(&mut t);
    t.wait_ms(1_000);
    assert_eq!(sent(&mut t).first(), Some(&1));
}

#[test]
fn a_lost_retransmission_waits_for_its_own_copy_too() {
    let mut t = in_flight();
    inject!(t, ".", ack(1), sack(&[(1_001, 9_001)]));
    assert_eq!(sent(&mut t).first(), Some(&1));
    // From here on nothing leaves the device; segment 1 is lost again in the end.
    t.wait_ms(101);
    t.hold_tickets = true;
    inject!(t, ".", ack(1), sack(&[(1_001, 12_001)]));
    let again = sent(&mut t);
    assert!(again.contains(&1), "{again:?}");
    t.wait_ms(101);
    let before = t.stack.counters().retrans_segs;
    inject!(t, ".", ack(1), sack(&[(1_001, 13_001)]));
    t.wait_ms(500);
    assert_eq!(t.stack.counters().retrans_segs, before);
}

#[test]
fn retransmissions_are_paced() {
    let mut t = in_flight();
    let now = t.now;
    // 100 kB/s: a segment of 1000 bytes takes 10 ms.
    t.conn().set_option(now, SetOption::MaxPacingRate(100_000)).unwrap();
    inject!(t, ".", ack(1), sack(&[(3_001, 10_001)]));
    let mut times = Vec::new();
    for _ in 0..60 {
        t.wait_ms(1);
        let now = t.now;
        times.extend(t.out.drain(..).filter(|got| got.seq < 10_001).map(|got| got.at));
        if times.len() == 3 {
            break;
        }
        assert!(now.since(times.first().copied().unwrap_or(now)) < Duration::from_millis(60));
    }
    assert_eq!(times.len(), 3);
    // A late departure is made up for by up to half a gap (PACE-4), then they are exact.
    assert_eq!(times[1].since(times[0]), Duration::from_millis(5));
    assert_eq!(times[2].since(times[1]), Duration::from_millis(10));
}
