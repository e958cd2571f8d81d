//! The behaviour that `tc-netem(8)` documents, and the averages of random decisions.

use alloc::vec;

use super::*;
use crate::qdisc::Ecn;
use crate::tests::packet;

const START: Instant = Instant::from_nanos(5_000_000_000);

fn at_us(us: u64) -> Instant {
    START + Duration::from_micros(us)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn percent(percent: f64) -> Chance {
    Chance::from_share(percent / 100.0)
}

fn share(chance: f64, correlation: f64) -> Share {
    Share { chance: percent(chance), correlation: percent(correlation) }
}

fn netem(change: impl FnOnce(&mut NetemSpec)) -> Netem<u32> {
    let mut spec = NetemSpec { limit: 1_000_000, ..NetemSpec::default() };
    change(&mut spec);
    Netem::new(spec, 42)
}

/// Times at which packets come out, in microseconds, driven by `next`.
fn drain(queue: &mut impl Qdisc<u32>) -> Vec<(u64, u32)> {
    let mut out = Vec::new();
    let mut now = START;
    while let Some(at) = queue.next() {
        now = now.max(at);
        let packet = queue.dequeue(now).expect("next() said so");
        out.push((now.since(START).as_micros(), packet.item));
    }
    out
}

/// The numbers of the packets that are lost among `count`.
fn lost(queue: &mut Netem<u32>, count: u32) -> Vec<u32> {
    let mut lost = Vec::new();
    for item in 0..count {
        assert_eq!(queue.enqueue(START, packet(item, 100)), Verdict::Taken, "a loss is not reported");
        lost.extend(core::iter::from_fn(|| queue.poll_dropped()).map(|packet| packet.item));
        _ = queue.dequeue(START);
    }
    assert_eq!(queue.stats().dropped, lost.len() as u64);
    lost
}

/// Whether a count of `n` draws is within four standard deviations of its expectation.
fn is_near(count: usize, n: usize, chance: f64) -> bool {
    let n = n as f64;
    (count as f64 - n * chance).abs() <= 4.0 * libm::sqrt(n * chance * (1.0 - chance))
}

#[test]
fn a_delay_is_exact() {
    let mut queue = netem(|spec| spec.delay = ms(50));
    assert_eq!(queue.enqueue(START, packet(0, 1_500)), Verdict::Taken);
    assert_eq!(queue.enqueue(at_us(10), packet(1, 1_500)), Verdict::Taken);
    assert_eq!(queue.dequeue(at_us(49_999)), None);
    assert_eq!(drain(&mut queue), [(50_000, 0), (50_010, 1)]);
    assert!(queue.orphans());
    assert!(!netem(|spec| spec.loss = Loss::Random(share(1.0, 0.0))).orphans());
}

/// Delays of 20,000 packets minus the configured delay, in units of the jitter.
fn spread(distribution: Distribution, correlation: f64) -> Vec<f64> {
    let mut queue = netem(|spec| {
        (spec.delay, spec.jitter, spec.distribution) = (ms(100), ms(10), distribution);
        spec.delay_correlation = percent(correlation);
    });
    (0..20_000).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    let mut delays = vec![0.0; 20_000];
    drain(&mut queue)
        .into_iter()
        .for_each(|(us, item)| delays[item as usize] = (us as f64 - 100_000.0) / 10_000.0);
    delays
}

fn moments(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, libm::sqrt(x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64))
}

#[test]
fn jitter_spreads_by_its_distribution() {
    let x = spread(Distribution::Uniform, 0.0);
    let (mean, deviation) = moments(&x);
    assert!(mean.abs() < 0.02 && (deviation - 0.577).abs() < 0.02, "{mean} {deviation}");
    assert!(x.iter().all(|x| x.abs() <= 1.0));

    let x = spread(Distribution::Normal, 0.0);
    let (mean, deviation) = moments(&x);
    assert!(mean.abs() < 0.03 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
    // 68.27 % within one deviation, 95.45 % within two.
    assert!(is_near(x.iter().filter(|x| x.abs() < 1.0).count(), x.len(), 0.6827));
    assert!(is_near(x.iter().filter(|x| x.abs() < 2.0).count(), x.len(), 0.9545));

    let x = spread(Distribution::Pareto, 0.0);
    // Never less than 1 − 3/2 deviations of √3/2 below the mean; half are below the median, 2^(1/3).
    assert!(x.iter().all(|x| *x >= -0.578 && *x <= 4.0));
    assert!(is_near(x.iter().filter(|x| **x < (1.259_921 - 1.5) / 0.866_025).count(), x.len(), 0.5));
}

#[test]
fn correlated_delays_resemble_each_other() {
    let rho = |x: &[f64]| {
        let (mean, deviation) = moments(x);
        let products: f64 = x.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
        products / (x.len() as f64 * deviation * deviation)
    };
    assert!(rho(&spread(Distribution::Uniform, 0.0)).abs() < 0.03);
    assert!((rho(&spread(Distribution::Uniform, 75.0)) - 0.75).abs() < 0.03);
}

#[test]
fn the_normal_quantile_is_that_of_the_tables() {
    for (p, x) in [
        (0.5, 0.0),
        (0.841_344_746, 1.0),
        (0.975, 1.959_963_985),
        (0.999, 3.090_232_306),
        (0.01, -2.326_347_874),
    ] {
        assert!((normal_quantile(p) - x).abs() < 1e-6, "{p}");
    }
}

#[test]
fn a_rate_spaces_and_its_queue_counts_as_delay() {
    let rate =
        NetemRate { rate: "100mbit".parse().unwrap(), packet_overhead: 0, cell_bytes: 0, cell_overhead: 0 };
    let mut queue = netem(|spec| (spec.rate, spec.delay) = (Some(rate), ms(1)));
    (0..4).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 1_500)), Verdict::Taken));
    // 120 µs each. The delay passes while the first packet is being sent.
    assert_eq!(drain(&mut queue), [(1_120, 0), (1_240, 1), (1_360, 2), (1_480, 3)]);
    // After a pause, the whole delay applies again.
    assert_eq!(queue.enqueue(at_us(5_000), packet(4, 1_500)), Verdict::Taken);
    assert_eq!(queue.next(), Some(at_us(6_120)));
}

#[test]
fn a_rate_keeps_packets_in_order_in_spite_of_jitter() {
    let rate =
        NetemRate { rate: "100mbit".parse().unwrap(), packet_overhead: 0, cell_bytes: 0, cell_overhead: 0 };
    let mut queue = netem(|spec| (spec.rate, spec.delay, spec.jitter) = (Some(rate), ms(5), ms(5)));
    (0..1_000)
        .for_each(|i| assert_eq!(queue.enqueue(at_us(u64::from(i) * 50), packet(i, 1_500)), Verdict::Taken));
    assert!(drain(&mut queue).into_iter().map(|(_, item)| item).eq(0..1_000));
}

#[test]
fn cells_are_those_of_the_manual() {
    let atm = |packet_overhead| NetemRate {
        rate: "1mbit".parse().unwrap(),
        packet_overhead,
        cell_bytes: 48,
        cell_overhead: 5,
    };
    // "If a packet is 50 byte then ATM must use two cells: 106 byte on the wire."
    assert_eq!(atm(0).length(50), 106);
    assert_eq!(atm(-2).length(50), 53);
    assert_eq!(atm(-100).length(50), 0);
    let plain = NetemRate { cell_bytes: 0, ..atm(20) };
    assert_eq!(plain.length(50), 70);
}

#[test]
fn random_losses_are_as_many_as_said() {
    let mut queue = netem(|spec| spec.loss = Loss::Random(share(1.0, 0.0)));
    assert!(is_near(lost(&mut queue, 100_000).len(), 100_000, 0.01));
}

#[test]
fn losses_of_two_states_come_in_bursts() {
    // The bad state lasts 1/r = 4 packets and has a share p/(p+r) = 1/26 of all; half of the packets in it
    // are lost.
    let mut queue = netem(|spec| {
        spec.loss =
            Loss::Gemodel { p: percent(1.0), r: percent(25.0), bad: percent(50.0), good: Chance::NEVER };
    });
    let lost = lost(&mut queue, 400_000);
    let expected = 400_000.0 / 26.0 / 2.0;
    assert!((lost.len() as f64 - expected).abs() < expected * 0.08, "{} of {expected}", lost.len());
    // After a loss the next packet is lost if the state stays bad, 3/4, and the packet is hit, 1/2.
    let pairs = lost.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    assert!(is_near(pairs, lost.len(), 0.375), "{pairs} of {}", lost.len());
}

#[test]
fn losses_of_four_states_are_those_of_their_chain() {
    let chain = |p13, p31, p32, p23, p14| {
        let loss = Loss::State {
            p13: percent(p13),
            p31: percent(p31),
            p32: percent(p32),
            p23: percent(p23),
            p14: percent(p14),
        };
        let mut queue = netem(|spec| spec.loss = loss);
        lost(&mut queue, 200_000)
    };
    // Single losses: 1 → 4 → 1. A share of p/(1+p).
    let alone = chain(0.0, 100.0, 0.0, 100.0, 5.0);
    assert!(is_near(alone.len(), 200_000, 0.05 / 1.05), "{}", alone.len());
    assert!(alone.windows(2).all(|pair| pair[0] + 1 < pair[1]), "never two in a row");
    // Bursts: 1 → 3 → 1. A share of p13/(p13+p31).
    let bursts = chain(1.0, 20.0, 0.0, 100.0, 0.0).len() as f64;
    assert!((bursts / 200_000.0 - 1.0 / 21.0).abs() < 0.004, "{bursts}");
}

#[test]
fn a_pattern_loses_just_those() {
    let mut queue = netem(|spec| spec.loss = Loss::Pattern(vec![1, 4, 5]));
    assert_eq!(lost(&mut queue, 10), [0, 3, 4]);
}

#[test]
fn a_mark_takes_the_place_of_a_loss() {
    let mut queue = netem(|spec| (spec.loss, spec.ecn) = (Loss::Pattern(vec![1, 2]), true));
    assert_eq!(queue.enqueue(START, Packet { ecn: Ecn::Capable, ..packet(0, 100) }), Verdict::Taken);
    assert_eq!(queue.enqueue(START, packet(1, 100)), Verdict::Taken);
    assert_eq!(queue.dequeue(START).map(|packet| packet.ecn), Some(Ecn::Marked));
    assert_eq!((queue.dequeue(START), queue.poll_dropped().map(|packet| packet.item)), (None, Some(1)));
}

#[test]
fn duplicates_come_beside_and_each_has_its_fate() {
    let mut queue = netem(|spec| (spec.duplicate, spec.loss) = (share(100.0, 0.0), Loss::Pattern(vec![1])));
    (0..2).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    assert_eq!(queue.poll_dropped().map(|packet| packet.item), Some(0), "one of the two");
    assert_eq!(drain(&mut queue), [(0, 0), (0, 1), (0, 1)]);
}

#[test]
fn reordering_with_a_gap_lets_every_fifth_go_at_once() {
    // "The first 4 (gap - 1) packets are delayed by 10 ms and subsequent packets are sent immediately."
    let mut queue = netem(|spec| (spec.delay, spec.reorder, spec.gap) = (ms(10), share(100.0, 0.0), 5));
    (0..10).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    let order: Vec<_> = drain(&mut queue).into_iter().map(|(us, item)| (us / 1_000, item)).collect();
    assert_eq!(order[..2], [(0, 4), (0, 9)]);
    assert_eq!(order[2..], [0, 1, 2, 3, 5, 6, 7, 8].map(|item| (10, item)));
    // Without a gap, a share of all packets.
    let mut queue = netem(|spec| (spec.delay, spec.reorder, spec.gap) = (ms(10), share(25.0, 0.0), 1));
    (0..10_000).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    let at_once = drain(&mut queue).into_iter().filter(|(us, _)| *us == 0).count();
    assert!(is_near(at_once, 10_000, 0.25));
}

#[test]
fn damage_is_told_with_the_bit() {
    let mut queue = netem(|spec| spec.corrupt = share(10.0, 0.0));
    (0..10_000).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    let bits: Vec<_> =
        core::iter::from_fn(|| queue.dequeue(START)).filter_map(|packet| packet.corrupt).collect();
    assert!(is_near(bits.len(), 10_000, 0.1));
    assert!(bits.iter().any(|bit| bit % 800 < 400) && bits.iter().any(|bit| bit % 800 >= 400));
}

#[test]
fn slots_let_a_number_of_packets_go_at_a_time() {
    let slot = NetemSlot { min_delay: ms(2), max_delay: ms(2), packets: 3, bytes: 0 };
    let mut queue = netem(|spec| spec.slot = Some(slot));
    (0..7).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    let times: Vec<_> = drain(&mut queue).into_iter().map(|(us, _)| us).collect();
    assert_eq!(times, [2_000, 2_000, 2_000, 4_000, 4_000, 4_000, 6_000]);
}

#[test]
fn a_full_box_refuses() {
    let mut queue = netem(|spec| (spec.limit, spec.delay) = (2, ms(1)));
    (0..2).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    assert_eq!(queue.enqueue(START, packet(2, 100)), Verdict::Dropped(packet(2, 100)));
    assert_eq!(queue.poll_dropped(), None, "that one was reported");
}

#[test]
fn a_child_gets_what_has_come_through() {
    let spec = NetemSpec { delay: ms(5), ..NetemSpec::default() };
    let mut queue = Netem::over(spec, 1, Some(crate::PfifoFast::new()));
    assert_eq!(queue.enqueue(START, packet(0, 100)), Verdict::Taken);
    assert_eq!(queue.enqueue(START, Packet { priority: 7, ..packet(1, 100) }), Verdict::Taken);
    assert_eq!((queue.backlog_packets(), queue.dequeue(at_us(4_999))), (2, None));
    assert_eq!(drain(&mut queue), [(5_000, 1), (5_000, 0)], "urgent first");
    assert_eq!(queue.stats().sent_packets, 2);
}

#[test]
fn the_same_seed_is_the_same_path() {
    let run = |seed, own| {
        let spec = NetemSpec {
            jitter: ms(5),
            delay: ms(9),
            loss: Loss::Random(share(10.0, 20.0)),
            seed: own,
            ..NetemSpec::default()
        };
        let mut queue = Netem::new(spec, seed);
        (0..200).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
        drain(&mut queue)
    };
    assert_eq!(run(1, None), run(1, None));
    assert_ne!(run(1, None), run(2, None));
    assert_eq!(run(1, Some(9)), run(2, Some(9)));
}

#[test]
fn everything_can_be_taken_out() {
    let mut queue = netem(|spec| spec.delay = ms(5));
    (0..3).for_each(|i| assert_eq!(queue.enqueue(START, packet(i, 100)), Verdict::Taken));
    let out: Vec<_> = core::iter::from_fn(|| queue.evict()).map(|packet| packet.item).collect();
    assert_eq!((out, queue.backlog_bytes(), queue.next()), (vec![0, 1, 2], 0, None));
}
