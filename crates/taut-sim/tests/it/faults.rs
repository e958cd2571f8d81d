//! Whatever the wire does, the bytes arrive as they were written, and no packet is lost track of.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use taut_core::Duration;
use taut_sim::app::{Bulk, Sink, SinkStats};
use taut_sim::{BEGIN, Checks, Faults, HostSpec, Pair, World};

/// A transfer over 20 Mbit/s and 20 ms, with faults in both directions.
fn transfer(seed: u64, bytes: u64, faults: &Faults) -> (World, Pair, Rc<RefCell<SinkStats>>) {
    let mut world = World::new(seed);
    // The times of retransmissions below are those of a queue with a constant limit.
    let host = HostSpec { tells_departures: false, ..HostSpec::new("20mbit".parse().unwrap()) };
    let pair = Pair::new(&mut world, host.clone(), host, Duration::from_millis(10));
    world.set_faults(pair.ab, faults.clone());
    world.set_faults(pair.ba, faults.clone());
    world.check(Checks { every: 10 });
    let sink = Sink::new(9);
    let read = sink.stats();
    world.app(pair.b, sink);
    let to = (world.host_ref(pair.b).address().unwrap(), 9).into();
    world.app(pair.a, Bulk::new(to).total(bytes));
    (world, pair, read)
}

fn survives(seed: u64, faults: &Faults) -> (World, Pair) {
    let bytes = 4_000_000;
    let (mut world, pair, read) = transfer(seed, bytes, faults);
    world.run_for(Duration::from_secs(120)).unwrap();
    assert_eq!((read.borrow().bytes, read.borrow().ended), (bytes, 1));
    assert_eq!(world.packets_live(), 0);
    (world, pair)
}

#[test]
fn one_per_cent_of_loss() {
    let (world, pair) = survives(1, &Faults { loss: 0.01, ..Faults::default() });
    let counts = world.wire_counts(pair.ab);
    // Of about 2800 packets.
    assert!((10..60).contains(&counts.lost), "{counts:?}");
    let sender = world.host_ref(pair.a).stack().counters();
    assert!(sender.retrans_segs >= counts.lost, "lost segments were retransmitted");
}

#[test]
fn reordering() {
    let faults = Faults { reorder: 0.05, reorder_delay: Duration::from_millis(3), ..Faults::default() };
    let (world, pair) = survives(2, &faults);
    assert!(world.wire_counts(pair.ab).reordered > 50);
}

#[test]
fn jitter_that_keeps_the_order() {
    let jitter = Faults { jitter: Duration::from_millis(5), ..Faults::default() };
    let (world, pair) = survives(8, &jitter);
    assert!(
        world.wire_counts(pair.ab).reordered > 500,
        "of about 2800 packets, a millisecond apart and less"
    );
    let (world, pair) = survives(8, &Faults { in_order: true, duplicate: 0.01, ..jitter });
    assert_eq!(world.wire_counts(pair.ab).reordered, 0);
    assert_eq!(world.host_ref(pair.a).stack().counters().retrans_segs, 0);
}

#[test]
fn corruption_is_found_by_the_checksums() {
    let (world, pair) = survives(3, &Faults { corrupt: 0.02, ..Faults::default() });
    let counts = world.wire_counts(pair.ab);
    let receiver = world.host_ref(pair.b).stack().counters();
    let refused = receiver.in_errs + receiver.in_hdr_errors + receiver.in_discards;
    assert!(counts.corrupted > 20, "{counts:?}");
    assert!(refused > 0 && refused <= counts.corrupted + world.wire_counts(pair.ba).corrupted);
}

#[test]
fn duplicates() {
    let (world, pair) = survives(4, &Faults { duplicate: 0.1, ..Faults::default() });
    assert!(world.wire_counts(pair.ab).duplicated > 100);
}

#[test]
fn everything_at_once() {
    let faults = Faults {
        loss: 0.005,
        duplicate: 0.01,
        corrupt: 0.005,
        reorder: 0.01,
        reorder_delay: Duration::from_millis(5),
        jitter: Duration::from_micros(400),
        ..Faults::default()
    };
    survives(5, &faults);
}

#[test]
fn a_blackout_of_three_seconds_is_recovered_from() {
    let dark = (BEGIN + Duration::from_millis(1_000), BEGIN + Duration::from_millis(4_000));
    let (mut world, pair, read) =
        transfer(6, u64::MAX, &Faults { blackouts: vec![dark], ..Faults::default() });
    world.run_until(dark.0 + Duration::from_millis(100)).unwrap();
    let before = read.borrow().bytes;
    world.run_until(dark.1).unwrap();
    assert_eq!(read.borrow().bytes, before, "nothing arrives during the blackout");
    // With an RTO of 220 ms at first, doubled each time, the attempts come 0.22, 0.66, 1.54 and 3.3 s into
    // the blackout, give or take a few hundredths of a second.
    world.run_for(Duration::from_secs(1)).unwrap();
    let resumed = read.borrow().bytes;
    assert!(resumed > before, "it resumes within a second");
    world.run_for(Duration::from_secs(2)).unwrap();
    // 20 Mbit/s carry 4.7 MB of payload in two seconds.
    let more = read.borrow().bytes - resumed;
    assert!(more > 4_000_000, "and it is soon at full speed: {more}");
    assert!(world.host_ref(pair.a).stack().counters().tcp_timeouts >= 3);
}

#[test]
fn the_one_packet_that_a_test_wants_lost_is_lost() {
    let (mut world, pair, read) = transfer(7, 200_000, &Faults::default());
    world.set_faults(pair.ab, Faults { lose: vec![5], ..Faults::default() });
    world.run_for(Duration::from_secs(5)).unwrap();
    assert_eq!(read.borrow().bytes, 200_000);
    assert_eq!(world.wire_counts(pair.ab).lost, 1);
    assert_eq!(world.host_ref(pair.a).stack().counters().retrans_segs, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn any_mixture(
        seed in any::<u64>(),
        loss in 0.0..0.03,
        duplicate in 0.0..0.05,
        corrupt in 0.0..0.02,
        reorder in 0.0..0.1,
        late_us in 0..20_000_u64,
        jitter_us in 0..2_000_u64,
    ) {
        let faults = Faults {
            loss,
            duplicate,
            corrupt,
            reorder,
            reorder_delay: Duration::from_micros(late_us),
            jitter: Duration::from_micros(jitter_us),
            ..Faults::default()
        };
        let (mut world, _, read) = transfer(seed, 300_000, &faults);
        world.run_for(Duration::from_secs(300)).unwrap();
        prop_assert_eq!((read.borrow().bytes, read.borrow().ended), (300_000, 1));
        prop_assert_eq!(world.packets_live(), 0);
    }
}
