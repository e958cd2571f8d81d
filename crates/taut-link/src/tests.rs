//! What every discipline must hold to, whatever comes.

use alloc::vec::Vec;

use proptest::prelude::*;
use taut_core::{Duration, Instant};

use crate::*;

pub(crate) fn packet(item: u32, len: u32) -> Packet<u32> {
    Packet::new(len, item)
}

/// One step of a driver that is sometimes late.
#[derive(Clone, Debug)]
enum Step {
    Enqueue(u32),
    /// Dequeue after this many nanoseconds, however often it works.
    After(u64),
    /// Dequeue at `next`, and this many nanoseconds later.
    AtNext(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..70_000u32).prop_map(Step::Enqueue),
        1 => (0..3_000_000u64).prop_map(Step::After),
        2 => (0..100_000u64).prop_map(Step::AtNext),
    ]
}

/// What went in, what came back at once, and what left when.
#[derive(Default)]
struct Run {
    taken: Vec<Packet<u32>>,
    left: Vec<(Instant, Packet<u32>)>,
    dropped: u64,
}

fn run(queue: &mut impl Qdisc<u32>, steps: &[Step]) -> Run {
    let mut run = Run::default();
    let mut now = Instant::from_nanos(1_000_000_000);
    for (number, step) in (0..).zip(steps) {
        match *step {
            Step::Enqueue(len) => match queue.enqueue(now, packet(number, len)) {
                Verdict::Taken | Verdict::Congested => run.taken.push(packet(number, len)),
                Verdict::Dropped(back) => {
                    assert_eq!(back, packet(number, len), "the very packet comes back");
                    run.dropped += 1;
                }
            },
            Step::After(ns) => now += Duration::from_nanos(ns),
            Step::AtNext(ns) => now = queue.next().map_or(now, |at| at.max(now) + Duration::from_nanos(ns)),
        }
        if !matches!(step, Step::Enqueue(_)) {
            let due = queue.next().is_some_and(|at| at <= now);
            let mut any = false;
            while let Some(packet) = queue.dequeue(now) {
                any = true;
                run.left.push((now, packet));
            }
            assert_eq!(due, any, "next() tells when dequeue() has something");
        }
        check(queue, &run);
    }
    // All that was taken comes out in the end.
    while let Some(at) = queue.next() {
        now = now.max(at);
        run.left.push((now, queue.dequeue(now).expect("next() said so")));
        check(queue, &run);
    }
    run
}

fn check(queue: &impl Qdisc<u32>, run: &Run) {
    let waiting = &run.taken[run.left.len()..];
    assert!(
        run.left.iter().map(|(_, packet)| packet).eq(&run.taken[..run.left.len()]),
        "in order, once each"
    );
    assert_eq!(queue.backlog_packets(), waiting.len());
    assert_eq!(queue.backlog_bytes(), waiting.iter().map(|packet| u64::from(packet.len)).sum::<u64>());
    let stats = queue.stats();
    assert_eq!(stats.dropped, run.dropped);
    assert_eq!(stats.sent_packets, run.left.len() as u64);
    assert_eq!(stats.sent_bytes, run.left.iter().map(|(_, packet)| u64::from(packet.len)).sum::<u64>());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_fifo_conserves(steps in proptest::collection::vec(step(), 1..200), limit in 1..300_000u64, count in 1..20usize) {
        run(&mut Fifo::bytes(limit), &steps);
        run(&mut Fifo::packets(count), &steps);
    }

    #[test]
    fn a_wire_conserves_and_delays_exactly(steps in proptest::collection::vec(step(), 1..200), delay in 0..2_000_000u64) {
        run(&mut Delay::new(Duration::from_nanos(delay)), &steps);
    }

    #[test]
    fn a_shaper_conserves_and_never_exceeds_its_rate(
        steps in proptest::collection::vec(step(), 1..200),
        bytes_per_second in 1_000_000..2_000_000_000u64,
        burst in 0..200_000u32,
        limit in 1..1_000_000u64,
    ) {
        let rate = Rate::from_bytes_per_second(bytes_per_second).unwrap();
        let run = run(&mut Tbf::new(rate, burst, limit), &steps);
        // After any packet, no more than the burst and the rate's share follow, over any interval.
        for (first, &(from, _)) in run.left.iter().enumerate() {
            let mut bytes = 0;
            for &(to, packet) in &run.left[first + 1..] {
                bytes += u64::from(packet.len);
                let allowed = u64::from(burst) + rate.bytes_in(to.since(from)) + 1;
                prop_assert!(bytes <= allowed, "{bytes} bytes in {:?}, allowed {allowed}", to.since(from));
            }
        }
    }
}
