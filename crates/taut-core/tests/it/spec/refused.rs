//! Packets that the device refuses: as if they had never been handed out.

use taut_core::{Duration, Fate, LinkCaps, Stack, Transmit};

use crate::spec::rig::{Ack, Device, MSS, Setup};
use crate::support::{A, B, World, config, pump};

#[test]
fn refused_are_as_if_never_handed_out() {
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        let mut world = World::with(1, config(A), config(B), caps);
        let (client, _) = world.pair();
        let (mut written, now) = (0, world.now);
        pump(&mut world, 0, client, &mut written, 20_000);
        let stack = &mut world.stacks[0];
        let facts = |stack: &mut Stack| {
            let info = stack.conn(client).unwrap().info(now);
            let counts = [info.bytes_sent, info.bytes_retrans, info.data_segs_out, info.notsent_bytes];
            (counts, info.unacked, info.wmem_alloc, info.retrans, info.lost, *stack.counters())
        };
        let before = facts(stack);
        let mut first = None;
        for _ in 0..5 {
            let Transmit { packet, ticket } = stack.poll_transmit(now).unwrap();
            let packet = (packet.header.to_vec(), packet.payload.slices().concat());
            assert_eq!(*first.get_or_insert(packet.clone()), packet, "the same packet again");
            assert_ne!(facts(stack), before);
            stack.handle_tx(now, ticket, Fate::Refused);
            let mut after = facts(stack);
            // The gates are asked each time, and may count that.
            (after.5.tso_deferred, after.5.tsq_throttled) = (before.5.tso_deferred, before.5.tsq_throttled);
            assert_eq!(after, before);
        }
    }
}

/// The counts of a refused packet are undone, even if the next one has segments of another size: this one
/// reported a duplicate, so a segment had 12 bytes less.
#[test]
fn refused_count_their_own_segments() {
    let mut rig = Setup::default().open();
    rig.device = Device::Completes;
    rig.ack_with(&Ack::of(0).payload(100));
    rig.device = Device::Sleeps;
    rig.ack_with(&Ack::of(0).payload(100).again());
    rig.write(MSS);
    let (before, counters) = (rig.info(), *rig.counters());
    rig.device = Device::Refuses;
    rig.poll();
    let (after, refused) = (rig.info(), *rig.counters());
    assert_eq!((after.data_segs_out, after.segs_out), (before.data_segs_out, before.segs_out));
    assert_eq!(refused.out_segs, counters.out_segs);
    assert_eq!(refused.tcp_orig_data_sent, counters.tcp_orig_data_sent);
}

/// Also when the stack reported that it had nothing more before the refusal came.
#[test]
fn refused_late_is_offered_again() {
    let mut rig = Setup::default().open();
    rig.write(MSS);
    assert_eq!(rig.news(), [0..MSS]);
    assert!(!rig.poll_one());
    rig.refuse(0);
    assert_eq!(rig.news(), [0..MSS]);
    assert_eq!((rig.info().unacked, rig.info().bytes_sent), (1, MSS));
}

/// A fate that is reported after other data has followed is too late: the packet counts as sent, and recovery
/// repairs it.
#[test]
fn refused_too_late_is_lost_as_in_the_network() {
    for fate in [Fate::Refused, Fate::Dropped] {
        let caps = LinkCaps::plain(1_500);
        let mut rig = Setup { caps, rtt: Duration::from_millis(20), ..Setup::default() }.open();
        rig.stack.set_sysctl("taut.tsq", "off").unwrap();
        rig.write(4 * MSS);
        assert_eq!(rig.news(), [0..MSS, MSS..2 * MSS, 2 * MSS..3 * MSS, 3 * MSS..4 * MSS]);
        let (before, counters) = (rig.info(), *rig.counters());
        let truesize = rig.sent[0].truesize;
        rig.give_back(0, fate);
        let (after, counters_after) = (rig.info(), *rig.counters());
        assert_eq!((after.unacked, after.bytes_sent, after.ca_state), (4, before.bytes_sent, "open"));
        assert_eq!((after.data_segs_out, counters_after.out_segs), (before.data_segs_out, counters.out_segs));
        assert_eq!(after.wmem_alloc, before.wmem_alloc - truesize, "its ticket is back");
        rig.device = Device::Completes;
        rig.complete_all();
        rig.advance(Duration::from_millis(20));
        for upto in [2, 3, 4] {
            rig.ack_with(&Ack::of(0).sack(&[MSS..upto * MSS]));
        }
        assert_eq!(rig.news(), [0..MSS], "the segment missing from the others' ACKs");
    }
}

/// So is a retransmission that was followed by other packets when a queue of this host dropped it, as when a
/// queue discipline is replaced. What counted it is not undone, and no counter falls below zero.
#[test]
fn retransmissions_dropped_too_late_are_lost_as_in_the_network() {
    // Followed by another packet; by a timeout; by neither.
    for (followed, timed_out) in [(true, false), (false, true), (false, false)] {
        let caps = LinkCaps::plain(1_500);
        let setup = Setup { caps, rtt: Duration::from_millis(20), ..Setup::default() };
        let mut rig = setup.config(|config| config.recovery.frto = false).open();
        rig.stack.set_sysctl("taut.tsq", "off").unwrap();
        rig.device = Device::Completes;
        rig.write(10 * MSS);
        rig.advance(Duration::from_millis(20));
        rig.device = Device::Keeps;
        let first = rig.sent.len();
        for upto in [2, 3, 4] {
            rig.ack_with(&Ack::of(0).sack(&[MSS..upto * MSS]));
        }
        assert_eq!(rig.sent[first].bytes, 0..MSS);
        if followed {
            rig.write(20 * MSS);
            rig.ack_with(&Ack::of(0).sack(&[MSS..9 * MSS]));
            assert!(rig.sent.len() > first + 1);
        }
        if timed_out {
            rig.device = Device::Sleeps;
            rig.advance(Duration::from_millis(400));
            assert_eq!(rig.info().ca_state, "loss");
        }
        let before = *rig.counters();
        rig.give_back(first, Fate::Dropped);
        let after = *rig.counters();
        let taken_back = u64::from(!followed);
        assert_eq!(before.retrans_segs - after.retrans_segs, taken_back);
        assert_eq!(before.tcp_fast_retrans - after.tcp_fast_retrans, taken_back);
        assert_eq!(rig.info().total_retrans, after.retrans_segs, "TCP_INFO counts as the counters do");
        assert_eq!(after.tcp_slow_start_retrans, before.tcp_slow_start_retrans);
        assert_eq!(after.tcp_retrans_fail, taken_back);
        rig.device = Device::Completes;
        rig.complete_all();
        rig.finish(Duration::from_millis(20));
        assert_eq!(rig.info().bytes_acked, rig.written);
    }
}

/// A probe of a closed window has no data, and is due again at once; it counts once.
#[test]
fn refused_probes_are_offered_again() {
    let mut rig = Setup { window: 0, ..Setup::default() }.open();
    rig.write(100);
    rig.device = Device::Refuses;
    // RTO: 40 + 200 ms.
    rig.advance(Duration::from_millis(239));
    assert_eq!(rig.counters().tcp_win_probe, 0);
    let out = rig.counters().out_segs;
    rig.advance(Duration::from_millis(1));
    assert_eq!((rig.counters().tcp_win_probe, rig.counters().out_segs), (1, out));
    rig.device = Device::Completes;
    rig.poll();
    assert_eq!((rig.counters().tcp_win_probe, rig.counters().out_segs), (1, out + 1));
    assert!(matches!(rig.sent.as_slice(), [probe] if probe.len() == 0));
    assert_eq!(rig.info().probes, 1);
}

/// A tail loss probe that the device refuses is due again, and counts once.
#[test]
fn tlp_14_a_refused_probe_is_due_again_and_counts_once() {
    let mut rig = Setup::default().open();
    rig.device = Device::Completes;
    rig.write(2 * MSS);
    rig.device = Device::Refuses;
    // RFC 8985 §7.2: two round trips of 40 ms; Linux: and 2 ms.
    rig.advance(Duration::from_millis(100));
    assert_eq!(rig.counters().tcp_loss_probes, 0);
    rig.device = Device::Completes;
    rig.poll();
    assert_eq!((rig.counters().tcp_loss_probes, rig.counters().retrans_segs), (1, 1));
}
