//! The statements about `fq`, and the behaviour that its manual page documents.

use alloc::vec::Vec;

use super::*;
use crate::qdisc::Ecn;
use crate::tests::packet;

const START: Instant = Instant::from_nanos(1_000_000_000_000);

fn at_ms(ms: u64) -> Instant {
    START + Duration::from_millis(ms)
}

fn at_us(us: u64) -> Instant {
    START + Duration::from_micros(us)
}

/// A packet of Ethernet's length.
fn of(flow: u64, item: u32) -> Packet<u32> {
    Packet { flow, departure: START, ..packet(item, 1_514) }
}

fn stamped(flow: u64, item: u32, departure: Instant) -> Packet<u32> {
    Packet { departure, ..of(flow, item) }
}

fn fq(change: impl FnOnce(&mut FqSpec)) -> Fq<u32> {
    let mut spec = FqSpec::default();
    change(&mut spec);
    Fq::new(spec)
}

/// A queue whose fast path is closed: a packet of another flow is already due, which no test looks at and
/// which leaves last.
fn busy(change: impl FnOnce(&mut FqSpec)) -> Fq<u32> {
    let mut queue = fq(change);
    // Fillers occupy the fast path's queue, and are then removed.
    for i in 0..8 {
        assert_eq!(queue.enqueue(START, of(u64::MAX, 1_000_000 + i)), Verdict::Taken);
    }
    queue
}

fn take(queue: &mut Fq<u32>, now: Instant, count: usize) -> Vec<(u64, u32)> {
    let packets = core::iter::from_fn(|| queue.dequeue(now));
    packets
        .filter(|packet| packet.flow != u64::MAX)
        .take(count)
        .map(|packet| (packet.flow, packet.item))
        .collect()
}

fn flows(queue: &mut Fq<u32>, now: Instant, count: usize) -> Vec<u64> {
    take(queue, now, count).into_iter().map(|(flow, _)| flow).collect()
}

/// When each packet leaves, driven by `next`, in microseconds.
fn departures(queue: &mut Fq<u32>) -> Vec<(u64, u32)> {
    let mut left = Vec::new();
    let mut now = START;
    while let Some(at) = queue.next() {
        now = now.max(at);
        let packet = queue.dequeue(now).expect("next() said so");
        left.push((now.since(START).as_micros(), packet.item));
    }
    left
}

#[test]
fn fq_01_horizon_drops_or_caps_a_stamp_beyond_ten_seconds() {
    let ahead = stamped(1, 0, at_ms(11_000));
    let mut queue = fq(|_| ());
    assert_eq!(queue.enqueue(START, ahead), Verdict::Dropped(ahead));
    assert_eq!(
        queue.enqueue(START, stamped(1, 1, at_ms(10_000))),
        Verdict::Taken,
        "at the horizon is not beyond it"
    );
    assert_eq!((queue.fq_stats().horizon_drops, queue.stats().dropped), (1, 1));

    let mut queue = fq(|spec| spec.horizon_cap = true);
    assert_eq!(queue.enqueue(START, ahead), Verdict::Taken);
    assert_eq!(queue.next(), Some(at_ms(10_000)));
    assert_eq!(queue.dequeue(at_us(9_999_999)), None);
    assert_eq!(queue.dequeue(at_ms(10_000)).map(|packet| packet.item), Some(0));
    assert_eq!(queue.fq_stats().horizon_caps, 1);
}

#[test]
fn fq_02_flow_limit_drops_the_101st_packet_of_a_flow() {
    let mut queue = fq(|_| ());
    for i in 0..100 {
        assert_eq!(queue.enqueue(START, stamped(1, i, at_ms(5))), Verdict::Taken);
    }
    let next = stamped(1, 100, at_ms(5));
    assert_eq!(queue.enqueue(START, next), Verdict::Dropped(next));
    assert_eq!(queue.fq_stats().flows_plimit, 1);
    assert_eq!(queue.enqueue(START, stamped(2, 101, at_ms(5))), Verdict::Taken, "other flows have room");
    assert_eq!(take(&mut queue, at_ms(5), 1), [(1, 0)]);
    assert_eq!(queue.enqueue(at_ms(5), stamped(1, 102, at_ms(5))), Verdict::Taken);
}

#[test]
fn fq_03_new_flow_goes_before_backlogged_ones_for_15140_bytes() {
    let mut queue = busy(|_| ());
    for flow in [1, 2] {
        (0..50).for_each(|i| assert_eq!(queue.enqueue(START, of(flow, i)), Verdict::Taken));
    }
    // Both use up the credit of new flows, ten packets each, and become old.
    assert_eq!(take(&mut queue, START, 20).len(), 20);
    assert_eq!(flows(&mut queue, START, 4), [1, 1, 2, 2], "a quantum is two packets");
    (0..30).for_each(|i| assert_eq!(queue.enqueue(START, of(3, i)), Verdict::Taken));
    // Ten packets are 15,140 bytes.
    assert_eq!(flows(&mut queue, START, 10), [3; 10]);
    // It is now last of the old ones except for flow 2, which was at the head with no packets left.
    assert_eq!(flows(&mut queue, START, 7), [1, 1, 3, 3, 2, 2, 1]);
}

#[test]
fn nothing_leaves_before_its_time_and_flows_do_not_wait_for_each_other() {
    let mut queue = fq(|_| ());
    for (item, flow, ms) in [(0, 1, 5), (1, 1, 20), (2, 2, 10), (3, 3, 7), (4, 2, 10)] {
        assert_eq!(queue.enqueue(START, stamped(flow, item, at_ms(ms))), Verdict::Taken);
    }
    assert_eq!((queue.dequeue(at_us(4_999)), queue.fq_stats().throttled_flows), (None, 3));
    assert_eq!(departures(&mut queue), [(5_000, 0), (7_000, 3), (10_000, 2), (10_000, 4), (20_000, 1)]);
}

#[test]
fn a_flow_is_ordered_by_departure_time() {
    let mut queue = fq(|_| ());
    for (item, ms) in [(0, 10), (1, 30), (2, 20), (3, 20)] {
        assert_eq!(queue.enqueue(START, stamped(1, item, at_ms(ms))), Verdict::Taken);
    }
    assert_eq!(departures(&mut queue), [(10_000, 0), (20_000, 2), (20_000, 3), (30_000, 1)]);
}

#[test]
fn the_fast_path_takes_what_is_due_while_nothing_else_is() {
    let mut queue = fq(|_| ());
    assert_eq!(queue.enqueue(START, stamped(1, 0, at_ms(10))), Verdict::Taken);
    // Flow 1 has not been examined yet: it might have its turn.
    assert_eq!(queue.enqueue(START, of(2, 1)), Verdict::Taken);
    assert_eq!(queue.fq_stats().fastpath, 0);
    assert_eq!((take(&mut queue, START, 9), queue.fq_stats().throttled), (Vec::from([(2, 1)]), 1));
    for item in 0..10 {
        assert_eq!(queue.enqueue(START, of(3, item)), Verdict::Taken);
    }
    assert_eq!(queue.fq_stats().fastpath, 8, "no more than eight wait there");
    // When flow 1 is due, no packet overtakes it.
    assert_eq!(take(&mut queue, START, 20).len(), 10);
    assert_eq!(queue.enqueue(at_ms(10), stamped(3, 10, at_ms(10))), Verdict::Taken);
    assert_eq!(queue.fq_stats().fastpath, 8);
}

#[test]
fn maxrate_spaces_by_lengths_with_headers() {
    // 10 Mbit/s: 1514 bytes take 1211.2 µs.
    let mut queue = fq(|spec| spec.maxrate = Some("10mbit".parse().unwrap()));
    (0..4).for_each(|i| assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken));
    assert_eq!(departures(&mut queue), [(0, 0), (1_211, 1), (2_422, 2), (3_633, 3)]);
}

#[test]
fn lateness_is_made_up_by_half_a_gap() {
    let mut queue = fq(|spec| spec.maxrate = Some("8mbit".parse().unwrap()));
    let packet = |i| Packet { len: 1_000, ..of(1, i) };
    (0..3).for_each(|i| assert_eq!(queue.enqueue(START, packet(i)), Verdict::Taken));
    assert!(queue.dequeue(START).is_some());
    // Due at 1000 µs, it leaves 300 µs late: the next follows 700 µs after.
    assert!(queue.dequeue(at_us(1_300)).is_some());
    assert_eq!(queue.next(), Some(at_us(2_000)));
    // The one after is 5 ms late; its successor follows half a gap later.
    assert!(queue.dequeue(at_us(7_000)).is_some());
    assert_eq!(queue.enqueue(at_us(7_000), packet(3)), Verdict::Taken);
    assert_eq!(queue.next(), Some(at_us(7_500)));
}

#[test]
fn a_gap_is_a_second_at_most() {
    let mut queue = fq(|spec| spec.maxrate = Some("8bit".parse().unwrap()));
    (0..2).for_each(|i| assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken));
    assert_eq!(departures(&mut queue), [(0, 0), (1_000_000, 1)]);
    assert_eq!(queue.fq_stats().pkts_too_long, 2);
}

#[test]
fn without_stamps_a_quantum_at_a_time_is_spaced() {
    // 3028 bytes at 8 Mbit/s: 3028 µs. A new flow sends ten packets first.
    let mut queue = fq(|spec| spec.maxrate = Some("8mbit".parse().unwrap()));
    for i in 0..14 {
        assert_eq!(queue.enqueue(START, Packet { departure: Instant::ZERO, ..of(1, i) }), Verdict::Taken);
    }
    let times: Vec<_> = departures(&mut queue).into_iter().map(|(us, _)| us).collect();
    let expected = [[0; 10].as_slice(), &[3_028, 3_028, 6_056, 6_056]].concat();
    assert_eq!(times, expected);
}

#[test]
fn what_waits_longer_than_the_threshold_is_marked_if_it_may_be() {
    let mut queue = busy(|spec| spec.ce_threshold = Some(Duration::from_millis(4)));
    for (item, ecn) in (0..).zip([Ecn::Capable, Ecn::NotCapable, Ecn::Capable]) {
        assert_eq!(queue.enqueue(START, Packet { ecn, ..of(1, item) }), Verdict::Taken);
    }
    let mut marked = |ms| {
        let packets = core::iter::from_fn(|| queue.dequeue(at_ms(ms)));
        packets.filter(|packet| packet.flow == 1).take(1).map(|packet| packet.ecn).next()
    };
    assert_eq!(marked(4), Some(Ecn::Capable), "exactly 4 ms are not longer");
    assert_eq!(marked(5), Some(Ecn::NotCapable));
    assert_eq!(marked(5), Some(Ecn::Marked));
    assert_eq!(queue.fq_stats().ce_mark, 1);
}

#[test]
fn bands_share_nine_to_three_to_one() {
    let mut queue = busy(|spec| (spec.flow_limit, spec.limit) = (100_000, 100_000));
    // Control, best effort, bulk.
    for (flow, priority) in [(1, 7), (2, 0), (3, 2)] {
        (0..20_000).for_each(|i| {
            assert_eq!(queue.enqueue(START, Packet { priority, ..of(flow, i) }), Verdict::Taken);
        });
    }
    let mut bytes = [0u64; 4];
    flows(&mut queue, START, 13_000).into_iter().for_each(|flow| bytes[flow as usize] += 1);
    let share = |flow: usize, of_13: u64| {
        // Each band is served within a turn of 851,968 bytes, 563 packets.
        assert!(bytes[flow].abs_diff(13_000 * of_13 / 13) <= 563, "{bytes:?}");
    };
    share(1, 9);
    share(2, 3);
    share(3, 1);
}

#[test]
fn each_band_has_its_limit() {
    let mut queue = fq(|spec| spec.limit = 5);
    for i in 0..5 {
        assert_eq!(queue.enqueue(START, stamped(u64::from(i), i, at_ms(1))), Verdict::Taken);
    }
    assert!(matches!(queue.enqueue(START, stamped(9, 9, at_ms(1))), Verdict::Dropped(_)));
    assert_eq!(queue.enqueue(START, Packet { priority: 7, ..stamped(9, 9, at_ms(1)) }), Verdict::Taken);
    assert_eq!((queue.fq_stats().band_drops, queue.fq_stats().band_packets), ([0, 1, 0], [1, 5, 0]));
}

#[test]
fn a_flow_of_one_packet_at_a_time_is_new_only_once() {
    let mut queue = busy(|_| ());
    (0..100).for_each(|i| assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken));
    assert_eq!(flows(&mut queue, START, 10), [1; 10], "flow 1 is old now");
    assert_eq!(queue.enqueue(START, of(2, 0)), Verdict::Taken);
    // Found empty, flow 2 moves to the old ones, and its next packet waits for flow 1's turn of two.
    assert_eq!(flows(&mut queue, START, 2), [2, 1]);
    assert_eq!(queue.enqueue(START, of(2, 1)), Verdict::Taken);
    assert_eq!(flows(&mut queue, START, 3), [1, 2, 1]);
}

#[test]
fn a_throttled_flow_is_not_looked_at_before_its_time() {
    let mut queue = fq(|_| ());
    assert_eq!(queue.enqueue(START, stamped(1, 0, at_ms(10))), Verdict::Taken);
    assert_eq!((queue.dequeue(START), queue.fq_stats().throttled), (None, 1));
    // A packet that may leave earlier goes first, but at the time that was set.
    assert_eq!(queue.enqueue(START, stamped(1, 1, at_ms(5))), Verdict::Taken);
    assert_eq!(departures(&mut queue), [(10_000, 1), (10_000, 0)]);
}

#[test]
fn with_stamps_maxrate_makes_up_for_lateness_too() {
    let mut queue = fq(|spec| spec.maxrate = Some("8mbit".parse().unwrap()));
    for i in 0..2 {
        assert_eq!(queue.enqueue(START, Packet { len: 1_000, ..stamped(1, i, at_ms(10)) }), Verdict::Taken);
    }
    assert_eq!(queue.dequeue(START), None);
    // It leaves 300 µs after its time: the next follows 700 µs later.
    assert!(queue.dequeue(at_us(10_300)).is_some());
    assert_eq!(queue.next(), Some(at_us(11_000)));
}

#[test]
fn a_flow_that_was_idle_for_long_has_a_quantum_again() {
    for (idle_ms, expected) in [(40, [1, 2, 1, 1]), (41, [1, 1, 2, 1])] {
        let mut queue = busy(|_| ());
        (0..9).for_each(|i| assert_eq!(queue.enqueue(START, of(1, i)), Verdict::Taken));
        (0..60).for_each(|i| assert_eq!(queue.enqueue(START, of(2, i)), Verdict::Taken));
        // Flow 1 keeps one packet's worth of credit and leaves the lists; flow 2 is in the middle of a turn.
        assert_eq!(flows(&mut queue, START, 9), [1; 9]);
        assert_eq!(flows(&mut queue, START, 13), [2; 13]);
        let now = at_ms(idle_ms);
        (0..3).for_each(|i| assert_eq!(queue.enqueue(now, of(1, i)), Verdict::Taken));
        assert_eq!(flows(&mut queue, now, 4), expected, "after {idle_ms} ms");
    }
}

#[test]
fn idle_flows_are_forgotten_when_there_are_many() {
    let mut queue = fq(|spec| spec.buckets = 8);
    let mut once = |ms, flow| {
        let now = at_ms(ms);
        // A stamp keeps it off the fast path.
        assert_eq!(queue.enqueue(now, stamped(flow, 0, now + Duration::from_nanos(1))), Verdict::Taken);
        let at = queue.next().unwrap();
        assert!(queue.dequeue(at).is_some());
        // It takes its turns until it is in no list.
        assert_eq!(queue.enqueue(at, stamped(99, 0, at + Duration::from_nanos(1))), Verdict::Taken);
        assert!(queue.dequeue(at + Duration::from_nanos(1)).is_some());
        (queue.fq_stats().flows, queue.fq_stats().gc)
    };
    // Flow 99 and sixteen others; the last of them finds sixteen known, and none idle for long enough.
    for flow in 0..16 {
        once(flow, flow);
    }
    assert_eq!(once(100, 16), (18, 0));
    assert_eq!(once(2_900, 17), (19, 0), "3 s have not passed");
    // Now they have, and eight are forgotten.
    assert_eq!(once(3_300, 18), (12, 8));
}

#[test]
fn everything_can_be_taken_out_and_flows_keep_their_order() {
    let mut queue = fq(|_| ());
    for (item, flow, ms) in [(0, 1, 0), (1, 1, 20), (2, 2, 10), (3, 3, 0), (4, 2, 15), (5, 1, 0)] {
        assert_eq!(queue.enqueue(START, stamped(flow, item, at_ms(ms))), Verdict::Taken);
    }
    assert!(queue.dequeue(START).is_some());
    let out: Vec<_> = core::iter::from_fn(|| queue.evict()).map(|packet| packet.item).collect();
    // By departure time; for equal times, the flow known for longer first.
    assert_eq!(out, [5, 3, 2, 4, 1]);
    assert_eq!((queue.backlog_packets(), queue.backlog_bytes(), queue.next()), (0, 0, None));
    assert_eq!((queue.stats().sent_packets, queue.stats().dropped), (1, 0));
    // The queue can still be used.
    assert_eq!(queue.enqueue(at_ms(30), stamped(1, 6, at_ms(31))), Verdict::Taken);
    assert_eq!(queue.dequeue(at_ms(31)).map(|packet| packet.item), Some(6));
}
