//! The properties that every discipline must have for any input.

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
    /// Dequeue after this many nanoseconds, as often as it succeeds.
    After(u64),
    /// Dequeue this many nanoseconds after `next`.
    AtNext(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..70_000u32).prop_map(Step::Enqueue),
        1 => (0..3_000_000u64).prop_map(Step::After),
        2 => (0..100_000u64).prop_map(Step::AtNext),
    ]
}

/// The packets that went in, those that came back at once, and the times at which packets left.
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
            assert_eq!(due, any, "next() says when dequeue() has a packet");
        }
        check(queue, &run);
    }
    // Every accepted packet comes out in the end.
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
        // After any packet, over any interval, at most the burst and the rate's share follow.
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

/// A step with flows, bands and departure times.
#[derive(Clone, Debug)]
enum FlowStep {
    /// A packet of this flow and length, to leave this many nanoseconds after the last one of its flow or
    /// now.
    Enqueue(u64, u32, u64),
    After(u64),
    AtNext(u64),
    /// Dequeue once, so that packets remain.
    Once,
}

fn flow_step() -> impl Strategy<Value = FlowStep> {
    prop_oneof![
        4 => (0..5u64, 1..3_000u32, prop_oneof![Just(0), 0..2_000_000u64])
            .prop_map(|(flow, len, gap)| FlowStep::Enqueue(flow, len, gap)),
        1 => (0..3_000_000u64).prop_map(FlowStep::After),
        1 => (0..100_000u64).prop_map(FlowStep::AtNext),
        2 => Just(FlowStep::Once),
    ]
}

/// A discipline may change the order, but it must not lose or invent packets, reorder those of a flow, or
/// report that a packet is due when none is; and if it `honours_stamps`, it must not release packets before
/// they are due.
struct Ledger<Q> {
    queue: Q,
    honours_stamps: bool,
    now: Instant,
    /// For each flow, the numbers of waiting packets in order, with departure times and lengths.
    waiting: [Vec<(u32, Instant, u32)>; 5],
    left: u64,
    dropped: u64,
}

impl<Q: Qdisc<u32>> Ledger<Q> {
    fn new(queue: Q, honours_stamps: bool) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { queue, honours_stamps, now, waiting: Default::default(), left: 0, dropped: 0 }
    }

    fn run(mut self, steps: &[FlowStep]) {
        let mut last = [self.now; 5];
        for (number, step) in (0..).zip(steps) {
            match *step {
                FlowStep::Enqueue(flow, len, gap) => {
                    let index = flow as usize;
                    let departure = last[index].max(self.now) + Duration::from_nanos(gap);
                    last[index] = departure;
                    // A flow keeps its priority, and so its band.
                    let packet = Packet { flow, departure, priority: flow as u8, ..packet(number, len) };
                    match self.queue.enqueue(self.now, packet) {
                        Verdict::Taken | Verdict::Congested => {
                            self.waiting[index].push((number, departure, len));
                        }
                        Verdict::Dropped(back) => {
                            assert_eq!((back.item, back.len), (number, len), "the very packet comes back");
                            self.dropped += 1;
                        }
                    }
                }
                FlowStep::Once => _ = self.dequeue(),
                FlowStep::After(ns) => self.drain(self.now + Duration::from_nanos(ns)),
                FlowStep::AtNext(ns) => {
                    let at = self.queue.next().map_or(self.now, |at| at.max(self.now));
                    self.drain(at + Duration::from_nanos(ns));
                }
            }
            self.check();
        }
        // Half of the packets leave by themselves, and the rest are evicted.
        for _ in 0..self.queue.backlog_packets() / 2 {
            if let Some(at) = self.queue.next() {
                self.now = self.now.max(at);
                assert!(self.dequeue());
                self.check();
            }
        }
        while let Some(packet) = self.queue.evict() {
            self.leaves(packet);
            self.left -= 1;
            self.check();
        }
        assert_eq!((self.queue.backlog_packets(), self.queue.next()), (0, None));
        assert!(self.waiting.iter().all(Vec::is_empty));
    }

    fn drain(&mut self, now: Instant) {
        self.now = now;
        let due = self.queue.next().is_some_and(|at| at <= now);
        let mut any = false;
        while self.dequeue() {
            any = true;
        }
        assert_eq!(due, any, "next() says when dequeue() has a packet");
    }

    fn dequeue(&mut self) -> bool {
        let Some(packet) = self.queue.dequeue(self.now) else { return false };
        self.poll_dropped();
        assert!(!self.honours_stamps || packet.departure <= self.now, "early");
        self.leaves(packet);
        true
    }

    fn poll_dropped(&mut self) {
        while let Some(packet) = self.queue.poll_dropped() {
            let waiting = &mut self.waiting[packet.flow as usize];
            let place = waiting.iter().position(|(number, ..)| *number == packet.item).expect("it was taken");
            waiting.remove(place);
            self.dropped += 1;
        }
    }

    fn leaves(&mut self, packet: Packet<u32>) {
        let waiting = &mut self.waiting[packet.flow as usize];
        assert_eq!(
            waiting.first().map(|(number, ..)| *number),
            Some(packet.item),
            "in the order of its flow, once"
        );
        waiting.remove(0);
        self.left += 1;
    }

    fn check(&mut self) {
        self.poll_dropped();
        let count: usize = self.waiting.iter().map(Vec::len).sum();
        let bytes: u64 = self.waiting.iter().flatten().map(|(.., len)| u64::from(*len)).sum();
        assert_eq!((self.queue.backlog_packets(), self.queue.backlog_bytes()), (count, bytes));
        assert_eq!(self.queue.next().is_some(), count > 0);
        let stats = self.queue.stats();
        assert_eq!((stats.sent_packets, stats.dropped), (self.left, self.dropped));
    }
}

/// The bytes of each of `flows` among `packets` after the first `direct`, when all of them always had
/// packets.
fn shares(queue: &mut impl Qdisc<u32>, lens: &[u32], flows: u64, direct: usize, packets: usize) -> Vec<u64> {
    let now = Instant::from_nanos(1);
    let mut lens = lens.iter().cycle();
    let mut refill = |queue: &mut dyn Qdisc<u32>, flow| {
        let packet = Packet { flow, departure: now, ..packet(0, *lens.next().unwrap()) };
        assert_eq!(queue.enqueue(now, packet), Verdict::Taken);
    };
    for _ in 0..40 {
        (0..flows).for_each(|flow| refill(queue, flow));
    }
    let mut sent = alloc::vec![0; flows as usize];
    for number in 0..direct + packets {
        let packet = queue.dequeue(now).expect("every flow has packets");
        sent[packet.flow as usize] += if number < direct { 0 } else { u64::from(packet.len) };
        refill(queue, packet.flow);
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn every_discipline_keeps_its_books(steps in proptest::collection::vec(flow_step(), 1..300), limit in 1..60u32) {
        let rate: Rate = "50mbit".parse().unwrap();
        Ledger::new(Fifo::packets(limit as usize), false).run(&steps);
        Ledger::new(PfifoFast::with_limit(limit as usize), false).run(&steps);
        Ledger::new(FqCodel::new(FqCodelSpec { limit, flows: 4, ..FqCodelSpec::default() }), false).run(&steps);
        let hasty = FqCodelSpec { target: Duration::from_micros(50), interval: Duration::from_micros(500), ..FqCodelSpec::default() };
        Ledger::new(FqCodel::new(hasty), false).run(&steps);
        Ledger::new(Fq::new(FqSpec::default()), true).run(&steps);
        Ledger::new(Fq::new(FqSpec { limit, flow_limit: limit / 3, buckets: 1, ..FqSpec::default() }), true).run(&steps);
        Ledger::new(Fq::new(FqSpec { maxrate: Some(rate), ..FqSpec::default() }), true).run(&steps);
        Ledger::new(Tbf::over(rate, 3_000, u64::MAX, PfifoFast::new()), false).run(&steps);
        let netem = NetemSpec { limit, delay: Duration::from_micros(700), loss: Loss::Random(Share { chance: Chance::from_share(0.1), ..Share::default() }), ..NetemSpec::default() };
        Ledger::new(Netem::new(netem, u64::from(limit)), false).run(&steps);
        let slow = NetemRate { rate, packet_overhead: 20, cell_bytes: 0, cell_overhead: 0 };
        let netem = NetemSpec { rate: Some(slow), jitter: Duration::from_micros(300), ..NetemSpec::default() };
        Ledger::new(Netem::new(netem, 1), false).run(&steps);
    }

    #[test]
    fn flows_share_within_a_quantum_and_a_packet(lens in proptest::collection::vec(40..=1_514u32, 1..50), turns in 50..800usize) {
        let apart = |sent: Vec<u64>| sent.iter().max().unwrap() - sent.iter().min().unwrap();
        let sent = shares(&mut FqCodel::new(FqCodelSpec::default()), &lens, 4, 0, turns);
        prop_assert!(apart(sent.clone()) <= 1_514 + 1_514, "fq_codel: {sent:?}");
        // After all have used the credit of new flows: at 40 bytes per packet, 379 packets each. Eight take
        // the fast path.
        let sent = shares(&mut Fq::new(FqSpec::default()), &lens, 4, 8, 4 * 379 + turns);
        prop_assert!(apart(sent.clone()) <= 3_028 + 1_514, "fq: {sent:?}");
    }

    #[test]
    fn a_path_never_exceeds_its_rate(steps in proptest::collection::vec(flow_step(), 1..300), bytes_per_second in 1_000_000..100_000_000u64) {
        let rate = Rate::from_bytes_per_second(bytes_per_second).unwrap();
        let path = NetemRate { rate, packet_overhead: 0, cell_bytes: 0, cell_overhead: 0 };
        let mut queue = Netem::new(NetemSpec { rate: Some(path), delay: Duration::from_micros(500), ..NetemSpec::default() }, 1);
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut left: Vec<(Instant, u32)> = Vec::new();
        for step in steps {
            match step {
                FlowStep::Enqueue(_, len, _) => _ = queue.enqueue(now, packet(0, len)),
                FlowStep::After(ns) | FlowStep::AtNext(ns) => {
                    // A driver that is never late.
                    let until = now + Duration::from_nanos(ns);
                    while let Some(at) = queue.next().filter(|at| *at <= until) {
                        left.extend(queue.dequeue(at).map(|packet| (at, packet.len)));
                    }
                    now = until;
                }
                FlowStep::Once => {}
            }
        }
        for (first, &(from, _)) in left.iter().enumerate() {
            let mut bytes = 0;
            for &(to, len) in &left[first + 1..] {
                bytes += u64::from(len);
                let allowed = rate.bytes_in(to.since(from)) + 1;
                prop_assert!(bytes <= allowed, "{bytes} bytes in {:?}, allowed {allowed}", to.since(from));
            }
        }
    }
}
