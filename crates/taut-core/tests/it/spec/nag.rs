//! Nagle, cork, MSG_MORE: NAG-1 … NAG-5. The device completes at once, so that autocorking has no part in it.

use crate::spec::rig::{Device, MSS, Rig, Setup};
use taut_core::{Blocked, Duration, SetOption};

/// RTT 40 ms. RFC 6298's first sample makes the variation 20 ms, so the RTO is 40 + max(4 · 20, 200) =
/// 240 ms.
#[track_caller]
fn open() -> Rig {
    let mut rig = Setup::default().open();
    rig.device = Device::Completes;
    rig
}

#[track_caller]
fn assert_held(rig: &mut Rig, by: Blocked) {
    assert_eq!((rig.news(), rig.blocked()), (vec![], by));
}

/// Minshall's refinement: a full segment in flight holds nothing back.
#[test]
fn nag_01_a_full_segment_in_flight_does_not_hold() {
    let mut rig = open();
    rig.write(MSS);
    rig.write(10);
    assert_eq!(rig.news(), [0..MSS, MSS..MSS + 10]);
}

/// A small packet in flight holds the next small one, until it is acknowledged.
#[test]
fn nag_02_a_small_packet_in_flight_holds_the_next() {
    let mut rig = open();
    rig.write(10);
    assert_eq!(rig.news(), [0..10]);
    rig.write(10);
    assert_held(&mut rig, Blocked::Nagle);
    rig.write(10);
    assert_held(&mut rig, Blocked::Nagle);
    rig.advance(Duration::from_millis(40));
    rig.ack(10);
    assert_eq!(rig.news(), [10..30]);
}

/// TCP_CORK is stronger than TCP_NODELAY; setting TCP_NODELAY is a flush all the same.
#[test]
fn nag_03_cork_beats_nodelay_and_nodelay_flushes() {
    let mut rig = open();
    rig.set(SetOption::Nodelay(true));
    rig.set(SetOption::Cork(true));
    rig.write(10);
    assert_held(&mut rig, Blocked::Cork);
    rig.set(SetOption::Nodelay(true));
    assert_eq!(rig.news(), [0..10]);
    // It flushed the queued data: later data is corked again, except for full segments.
    rig.write(2 * MSS + 10);
    assert_eq!(rig.news(), [10..10 + 2 * MSS]);
    assert_held(&mut rig, Blocked::Cork);
    rig.set(SetOption::Cork(false));
    assert_eq!(rig.news(), [10 + 2 * MSS..20 + 2 * MSS]);
}

/// Nothing in flight, so no ACK will come: the probe timer is the ceiling of cork.
#[test]
fn nag_04_a_lone_msg_more_leaves_after_the_rto() {
    let limit = Duration::from_secs(10);
    let mut rig = open();
    rig.write_more(10);
    assert_held(&mut rig, Blocked::Cork);
    assert_eq!(rig.advance_to_send(limit), Duration::from_millis(240));
    assert_eq!(rig.news(), [0..10]);
    assert!(rig.sent[0].has("P"));

    // With a lower floor the RTO is 40 + 4 · 20 = 120 ms; the ceiling stays at 200.
    let setup = Setup::default().config(|config| config.recovery.rto_min = Duration::from_millis(5));
    let mut rig = setup.open();
    assert_eq!(rig.info().rto, Duration::from_millis(120));
    rig.write_more(10);
    assert_eq!(rig.advance_to_send(limit), Duration::from_millis(200));

    let mut rig = open();
    rig.set(SetOption::Cork(true));
    rig.write(10);
    assert_held(&mut rig, Blocked::Cork);
    assert_eq!(rig.advance_to_send(limit), Duration::from_millis(240), "TCP_CORK has the same ceiling");
}

/// MSG_MORE corks one push. An ACK is another push, and asks only Nagle.
#[test]
fn nag_05_an_ack_may_flush_msg_more() {
    let mut rig = open();
    rig.write(MSS);
    assert_eq!(rig.news(), [0..MSS]);
    rig.write_more(10);
    assert_held(&mut rig, Blocked::Cork);
    rig.advance(Duration::from_millis(40));
    rig.ack(MSS);
    assert_eq!(rig.news(), [MSS..MSS + 10]);

    // TCP_CORK itself is not limited to one push.
    let mut rig = open();
    rig.write(MSS);
    rig.set(SetOption::Cork(true));
    rig.write(10);
    rig.news();
    rig.advance(Duration::from_millis(40));
    rig.ack(MSS);
    assert_held(&mut rig, Blocked::Cork);
}
