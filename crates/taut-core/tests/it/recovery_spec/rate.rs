//! RATE: one sample of the delivery rate for each ACK. draft-ietf-ccwg-bbr §4.1.

use taut_core::Duration;
use taut_core::congestion::RateSample;

use crate::recovery_spec::rig::{Rig, Setup};

fn rate(r: &Rig) -> RateSample {
    r.last().rate.expect("a sample")
}

/// Segments delivered, and the interval in ms.
fn measured(r: &Rig) -> (u32, u64) {
    let sample = rate(r);
    (sample.delivered, sample.interval.as_millis())
}

#[test]
fn rate_01_what_was_delivered_while_a_segment_was_under_way() {
    // §4.1.2.3: since the newest segment delivered left. Ten leave at 0.
    let mut r = Rig::open(Setup::default());
    r.send(10);
    r.at(100);
    r.ack(4, &[]);
    assert_eq!(measured(&r), (4, 100));
    r.at(110);
    r.ack(4, &[(5, 10)]);
    // Nine since 0, in 110 ms.
    assert_eq!(measured(&r), (9, 110));
    assert_eq!(rate(&r).bytes_per_sec(1_000), 9_000 * 1_000 / 110);
}

#[test]
fn rate_02_the_interval_is_the_longer_of_sending_and_acknowledging() {
    // §4.1.2.3: segments leave at 0, 50 and 200; the first is acknowledged at 160, the others at 300. Of the
    // third, 200 ms from the departure of the first, which was delivered last when it left; and 300 − 160 =
    // 140 ms of ACKs.
    let mut r = Rig::open(Setup::default());
    r.send(1);
    r.at(50);
    r.send(1);
    r.at(160);
    r.ack(1, &[]);
    r.at(200);
    r.send(1);
    r.at(300);
    r.ack(3, &[]);
    assert_eq!(measured(&r), (2, 200));
    // The converse: the ACK is 130 ms late. 200 ms of sending, 430 − 160 of ACKs.
    let mut r = Rig::open(Setup::default());
    r.send(1);
    r.at(50);
    r.send(1);
    r.at(160);
    r.ack(1, &[]);
    r.at(200);
    r.send(1);
    r.at(430);
    r.ack(3, &[]);
    assert_eq!(measured(&r), (2, 270));
}

#[test]
fn rate_03_not_over_less_than_the_least_round_trip() {
    // §4.1.2.3: such an ACK was for another transmission. 0 to 2 are retransmitted at 100, and one of them is
    // acknowledged at 110. The interval since segment 9 left is 100 ms; that is enough.
    let mut r = Rig::open(Setup::default());
    r.send(10);
    r.at(100);
    r.ack(0, &[(7, 10)]);
    assert_eq!(r.sent(), [0, 1, 2]);
    r.at(110);
    r.ack(1, &[(7, 10)]);
    assert_eq!(measured(&r), (1, 100));
    assert_eq!(r.sent(), [3, 4]);
    // 3 left at 110, 10 ms after the last segment delivered left; it is acknowledged 10 ms later.
    r.at(120);
    r.ack(1, &[(3, 4), (7, 10)]);
    assert_eq!((r.last().acked, r.last().rate), (1, None));
    assert_eq!(r.last().min_rtt, Some(Duration::from_millis(100)));
}

#[test]
fn rate_04_the_segment_that_left_last_gives_the_sample() {
    // §4.1.2.3. An ACK covers segments of 0, 50 and 60 ms; the last one counts, with nothing delivered when
    // it left.
    let mut r = Rig::open(Setup::default());
    r.send(1);
    r.at(50);
    r.send(1);
    r.at(100);
    r.ack(1, &[]);
    // One delivered at 100, which left at 0.
    r.at(110);
    r.send(1);
    r.at(210);
    r.ack(3, &[]);
    // Since then: two, in max(110 − 0, 210 − 100). Of the other one it would be three, in 210.
    assert_eq!(measured(&r), (2, 110));
    assert_eq!((rate(&r).prior_delivered, rate(&r).tx_in_flight), (1, 2));
}

#[test]
fn rate_05_idle_time_is_in_no_interval() {
    // §4.1.2.2: when nothing is in flight, the clocks start anew.
    let mut r = Rig::open(Setup::default());
    r.send(5);
    r.at(100);
    r.ack(5, &[]);
    r.at(150);
    r.send(5);
    r.at(250);
    r.ack(10, &[]);
    assert_eq!(measured(&r), (5, 100));
}

#[test]
fn rate_06_limited_by_the_application_until_all_that_was_out_is_delivered() {
    // §4.1.2.4. As long as nothing is known about the path, the application counts as the limit.
    let mut r = Rig::open(Setup::default());
    r.queue(20);
    assert_eq!(r.sent().len(), 10);
    r.at(100);
    r.ack(10, &[]);
    assert!(rate(&r).is_app_limited);
    assert_eq!(r.sent().len(), 10);
    // The window was the limit.
    r.at(200);
    r.ack(20, &[]);
    assert!(!rate(&r).is_app_limited);
    // A write finds nothing unsent and room in the window (Linux asks when a write begins).
    r.send(2);
    r.queue(18);
    let _ = r.sent();
    r.at(300);
    r.ack(22, &[]);
    assert!(rate(&r).is_app_limited);
    r.ack(30, &[]);
    assert!(rate(&r).is_app_limited, "the ten were out, or followed while it was so");
    let _ = r.sent();
    r.at(400);
    r.ack(40, &[]);
    assert!(!rate(&r).is_app_limited);
}

#[test]
fn rate_07_in_flight_and_lost_are_those_of_the_sample() {
    // §4.1.2.2 and BBR's §5.5.10.2: of segment 3, the fourth of ten: four were in flight with it, and one was
    // lost since.
    let mut r = Rig::open(Setup::default());
    r.send(10);
    r.at(100);
    r.ack(0, &[(1, 4)]);
    let sample = rate(&r);
    assert_eq!((sample.tx_in_flight, sample.prior_in_flight, sample.prior_delivered), (4, 10, 0));
    assert_eq!((sample.lost, sample.losses, sample.acked_sacked, r.last().newly_lost), (1, 1, 3, 1));
    let lost = r.notes().lost;
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].segs, lost[0].tx_in_flight, lost[0].lost, lost[0].total_delivered), (1, 1, 1, 3));
    // The retransmission leaves with six in flight and itself, after one loss and three deliveries.
    assert_eq!(r.sent(), [0]);
    r.at(200);
    r.ack(4, &[]);
    let sample = rate(&r);
    assert_eq!((sample.tx_in_flight, sample.prior_in_flight, sample.prior_delivered), (7, 7, 3));
    // Its own arrival shows that 4 to 9 are lost: they left before it.
    assert_eq!((sample.lost, sample.losses, sample.acked_sacked), (6, 6, 1));
    let in_flight: Vec<_> = r.notes().lost[1..].iter().map(|packet| packet.tx_in_flight).collect();
    assert_eq!(in_flight, [5, 6, 7, 8, 9, 10]);
}
