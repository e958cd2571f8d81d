//! How fast a sender recovers: after slow start has overshot, after a blackout, and while packets are
//! reordered. `--nocapture` prints the figures of docs/data/2026-11-28-congestion.md.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use taut_core::congestion::Registry;
use taut_core::{Algorithm, ConnOptions, Counters, Duration, Instant};
use taut_sim::{
    BEGIN, Checks, Dumbbell, DumbbellSpec, Faults, HostId, Interest, PortSpec, Probe, ProbeEvent, World,
};

/// For every 100 ms: payload that arrived for the first time, and packets dropped.
struct Watch {
    receiver: HostId,
    seen: BTreeSet<u32>,
    bins: Vec<Bin>,
}

#[derive(Clone, Debug, Default)]
struct Bin {
    fresh: u64,
    drops: u64,
}

const BIN: Duration = Duration::from_millis(100);

impl Watch {
    fn bin(&mut self, now: Instant) -> &mut Bin {
        let index = (now.since(BEGIN).as_nanos() / BIN.as_nanos()) as usize;
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }
}

impl Probe for Watch {
    fn interest(&self) -> Interest {
        Interest { packets: true, ..Interest::default() }
    }

    fn on(&mut self, now: Instant, what: &ProbeEvent<'_>) {
        match what {
            ProbeEvent::Delivered { host, packet } if *host == self.receiver => {
                if let Some(tcp) = packet.tcp()
                    && packet.payload_len() > 0
                    && self.seen.insert(tcp.seq)
                {
                    self.bin(now).fresh += u64::from(packet.payload_len());
                }
            }
            ProbeEvent::Dropped { .. } => self.bin(now).drops += 1,
            _ => {}
        }
    }
}

struct Run {
    world: World,
    net: Dumbbell,
    watch: Rc<RefCell<Watch>>,
}

/// One flow over 100 Mbit/s and 100 ms with a queue of `queue` packets; 833 are a bandwidth-delay product.
fn run(seed: u64, algorithm: &str, queue: u32) -> Run {
    let mut world = World::new(seed);
    let line = PortSpec::fifo("100mbit".parse().unwrap(), queue);
    let spec = DumbbellSpec::new(1, "1gbit".parse().unwrap(), line, Duration::from_millis(50));
    let net = Dumbbell::new(&mut world, &spec);
    world.check(Checks { every: 1_000 });
    let watch =
        Rc::new(RefCell::new(Watch { receiver: net.right[0], seen: BTreeSet::new(), bins: Vec::new() }));
    world.probe(Rc::clone(&watch));
    let congestion = Registry::default().algorithm(algorithm).ok();
    let options = ConnOptions { congestion, ..ConnOptions::default() };
    net.transfer(&mut world, 0, BEGIN, options);
    Run { world, net, watch }
}

impl Run {
    fn counters(&self) -> Counters {
        *self.world.host_ref(self.net.left[0]).stack().counters()
    }

    /// Share of the link used by new payload between two times, in per cent of what 1448 of 1500 bytes allow.
    fn share(&self, from_ms: u64, until_ms: u64) -> f64 {
        let watch = self.watch.borrow();
        let bins = watch.bins.iter().skip((from_ms / 100) as usize);
        let fresh: u64 = bins.take(((until_ms - from_ms) / 100) as usize).map(|bin| bin.fresh).sum();
        let link = (until_ms - from_ms) as f64 * 12_500.0 * 1_448.0 / 1_500.0;
        fresh as f64 / link * 100.0
    }

    fn drops(&self) -> u64 {
        self.watch.borrow().bins.iter().map(|bin| bin.drops).sum()
    }

    fn until_ms(&mut self, ms: u64) {
        self.world.run_until(BEGIN + Duration::from_millis(ms)).unwrap();
    }
}

#[test]
fn slow_start_that_overshoots_is_forgotten_within_three_round_trips() {
    // A queue of one bandwidth-delay product: 200 ms of round trip when it is full. Reno's slow start ends
    // only with a loss, and loses more than a bandwidth-delay product. CUBIC's ends before; its growth by a
    // twentieth per round trip fills the queue then, and loses a twentieth of two bandwidth-delay products.
    for (algorithm, least_drops) in [("reno", 1_000), ("cubic", 60)] {
        for seed in 0..3 {
            let mut run = run(seed, algorithm, 833);
            run.until_ms(5_000);
            let first = run.watch.borrow().bins.iter().position(|bin| bin.drops > 0).unwrap() as u64 * 100;
            assert!(run.drops() >= least_drops, "{algorithm} seed {seed}: {}", run.drops());
            let counters = run.counters();
            assert_eq!(counters.tcp_timeouts, 0, "{algorithm} seed {seed}");
            // Each loss is repaired by one retransmission; a few of the last may not have left yet.
            let missing = run.drops().abs_diff(counters.retrans_segs);
            assert!(missing * 50 <= run.drops(), "{algorithm} seed {seed}: {} of {}", missing, run.drops());
            let least = (first + 600..first + 1_600).step_by(100).map(|ms| run.share(ms, ms + 100));
            let least = least.fold(f64::INFINITY, f64::min);
            println!(
                "{algorithm} overshoots, seed {seed}: {} drops, then {least:.1} % at least",
                run.drops()
            );
            // The link is full again after three round trips, and stays full.
            for ms in (first + 600..first + 1_600).step_by(100) {
                let share = run.share(ms, ms + 100);
                assert!(
                    share > 95.0,
                    "{algorithm} seed {seed}: {share} % at {ms} ms, first drop at {first} ms"
                );
            }
        }
    }
}

#[test]
fn what_arrived_is_not_sent_again_however_much_was_lost_beside_it() {
    // 1 Gbit/s, 40 ms, 5 % lost, one interrupt per millisecond: each brings more holes than an ACK can
    // report, and retransmissions between them. A delayed ACK, or one for a whole batch, would omit some.
    for seed in 1..=2 {
        let mut world = World::new(seed);
        let line = PortSpec::fifo("1gbit".parse().unwrap(), 3_303);
        let mut spec = DumbbellSpec::new(1, "10gbit".parse().unwrap(), line, Duration::from_millis(20));
        (spec.host.nic.rx_usecs, spec.host.nic.rx_frames) = (Duration::from_millis(1), 256);
        let net = Dumbbell::new(&mut world, &spec);
        world.set_faults(net.wires.0, Faults { loss: 0.05, ..Faults::default() });
        let options = ConnOptions { congestion: Some(Algorithm::bbr()), ..ConnOptions::default() };
        net.transfer(&mut world, 0, BEGIN, options);
        world.run_for(Duration::from_secs(3)).unwrap();
        let counters = world.host_ref(net.left[0]).stack().counters();
        assert!(counters.retrans_segs > 1_000, "seed {seed}: {}", counters.retrans_segs);
        assert_eq!(counters.tcp_dsack_recv, 0, "seed {seed}");
    }
}

#[test]
fn ten_per_cent_that_are_late_cost_next_to_nothing() {
    for late_ms in [5, 30, 60] {
        for seed in 0..3 {
            let mut run = run(seed, "cubic", 833);
            let reorder_delay = Duration::from_millis(late_ms);
            let faults = Faults { reorder: 0.1, reorder_delay, ..Faults::default() };
            run.world.set_faults(run.net.wires.0, faults);
            run.until_ms(10_000);
            let counters = run.counters();
            let what = format!("{late_ms} ms, seed {seed}");
            let share = run.share(5_000, 10_000);
            assert!(share > 95.0, "{what}: {share} %");
            assert_eq!(counters.tcp_timeouts, 0, "{what}");
            // RFC 8985 §6.2 step 4: after one needless recovery the window for reordering is wide enough, up
            // to a round trip; that recovery is undone. Other retransmissions are of segments lost at the
            // queue.
            let needless = counters.retrans_segs.saturating_sub(run.drops());
            assert!(needless * 100 <= counters.out_segs, "{what}: {needless} of {}", counters.out_segs);
            let undone = counters.tcp_partial_undo + counters.tcp_full_undo + counters.tcp_dsack_undo;
            println!("late by {what}: {share:.1} %, {undone} undone, {needless} needless");
            assert!(late_ms < 25 || undone >= 1, "{what}: a late packet is later than min_rtt/4");
            // Timestamps reject at most the second copy of a segment.
            let rejected = run.world.host_ref(run.net.right[0]).stack().counters().paws_estab;
            assert!(rejected <= needless, "{what}: {rejected} late packets were rejected");
        }
    }
}

#[test]
fn three_seconds_of_darkness_are_over_with_the_next_timeout() {
    for seed in 0..3 {
        let mut run = run(seed, "cubic", 833);
        let dark = (BEGIN + Duration::from_secs(3), BEGIN + Duration::from_secs(6));
        run.world.set_faults(run.net.wires.0, Faults { blackouts: vec![dark], ..Faults::default() });
        run.until_ms(12_000);
        assert!(run.share(3_200, 6_000) < 0.1, "nothing arrives during the blackout");
        // RFC 6298 §5.5: attempts at RTO, 3 RTO, 7 RTO and so on from the last ACK; the first after 3 s is at
        // 6 s and one RTO at the latest. RTO is 350 to 450 ms here.
        let back = run.watch.borrow().bins.iter().skip(61).position(|bin| bin.fresh > 0).unwrap() as u64;
        let back_ms = 6_100 + back * 100;
        let full = (back_ms..11_900).step_by(100).find(|ms| run.share(*ms, ms + 100) > 95.0);
        let full_ms = full.map_or(-1, |ms| (ms - back_ms) as i64);
        println!("dark, seed {seed}: data after {} ms, full {full_ms} ms later", back_ms - 6_000);
        assert!(back_ms <= 9_600, "seed {seed}: resumed at {back_ms} ms");
        // Slow start to ssthresh, about one bandwidth-delay product, takes eleven doublings of 100 ms, since
        // segments may be half as long after so many timeouts (a black hole is suspected), and a round trip
        // for the last losses; then the link is full.
        let share = run.share(back_ms + 1_600, back_ms + 2_600);
        println!("dark, seed {seed}: then {share:.1} % from 1.6 s on");
        assert!(share > 95.0, "seed {seed}: {share} %");
        let counters = run.counters();
        assert!((3..=5).contains(&counters.tcp_timeouts), "seed {seed}: {}", counters.tcp_timeouts);
    }
}
