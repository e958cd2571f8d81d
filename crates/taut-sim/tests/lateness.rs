//! A sender whose thread wakes up late, by the distribution that was measured on a busy machine: it keeps its rate,
//! sends no larger bursts than lateness forces, and BBR's model of the path holds.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{Algorithm, ConnOptions, Duration, Instant};
use taut_sim::app::{Bulk, Sink};
use taut_sim::{
    Dumbbell, DumbbellSpec, HostId, HostSpec, Interest, Pair, PortSpec, Probe, ProbeEvent, Wakeups, World,
};

const MSS: u64 = 1_448;

/// What a host handed down.
struct Handed {
    host: HostId,
    /// Time and payload of each packet with data.
    packets: Rc<RefCell<Vec<(Instant, u64)>>>,
}

impl Probe for Handed {
    fn interest(&self) -> Interest {
        Interest { packets: true, ..Interest::default() }
    }

    fn on(&mut self, now: Instant, what: &ProbeEvent<'_>) {
        if let ProbeEvent::Handed { host, packet, .. } = what
            && *host == self.host
            && packet.payload_len() > 0
        {
            self.packets.borrow_mut().push((now, packet.payload_len().into()));
        }
    }
}

/// Makes the host's thread wake up late. Not so what takes packets back from the NIC: below a TUN, that is the kernel.
fn sleepy(host: &mut HostSpec, wakeups: Wakeups) {
    host.cpu.wakeups = wakeups;
    host.cpu.completions_apart = true;
}

/// Paced flows of `rate` bytes per second for 2 and then 20 seconds. Returns the share of the rate that each gets in
/// the 20 seconds, and what was handed down in them.
fn paced(flows: u16, rate: u64, wakeups: Wakeups, seed: u64) -> (Vec<f64>, Vec<(Instant, u64)>) {
    let mut world = World::new(seed);
    let host = HostSpec::new("1gbit".parse().unwrap());
    let mut sender = host.clone();
    sleepy(&mut sender, wakeups);
    let pair = Pair::new(&mut world, sender, host, Duration::from_millis(5));
    let options = ConnOptions { max_pacing_rate: Some(rate), ..ConnOptions::default() };
    let mut reads = Vec::new();
    for port in 1..=flows {
        let sink = Sink::new(port);
        reads.push(sink.stats());
        world.app(pair.b, sink);
        let to = SocketAddr::new(world.host_ref(pair.b).address().unwrap(), port);
        world.app(pair.a, Bulk::new(to).options(options.clone()));
    }
    world.run_for(Duration::from_secs(2)).unwrap();
    let packets = Rc::default();
    world.probe(Handed { host: pair.a, packets: Rc::clone(&packets) });
    let before: Vec<u64> = reads.iter().map(|read| read.borrow().bytes).collect();
    world.run_for(Duration::from_secs(20)).unwrap();
    let target = rate as f64 * 20.0;
    let shares =
        reads.iter().zip(before).map(|(read, before)| (read.borrow().bytes - before) as f64 / target);
    (shares.collect(), packets.take())
}

#[test]
fn a_paced_flow_keeps_its_rate() {
    for rate in [125_000, 1_250_000, 12_500_000] {
        for seed in 1..=3 {
            let share = paced(1, rate, Wakeups::Busy, seed).0[0];
            assert!((0.99..=1.01).contains(&share), "{share} of {rate} bytes/s, seed {seed}");
        }
    }
}

#[test]
fn twenty_paced_flows_keep_theirs() {
    for seed in 1..=3 {
        let (shares, _) = paced(20, 5_000_000, Wakeups::Busy, seed);
        let mean = shares.iter().sum::<f64>() / 20.0;
        assert!((0.99..=1.01).contains(&mean), "seed {seed}: {mean}");
        assert!(shares.iter().all(|share| (0.98..=1.02).contains(share)), "seed {seed}: {shares:?}");
    }
}

/// In no span more than the rate allows in it, 10 ms of the rate, and a super-packet at either end: a burst only catches
/// up.
#[test]
fn no_burst_is_larger_than_lateness_forces() {
    const RATE: u64 = 12_500_000;
    // A millisecond of the rate, in whole segments.
    const QUANTUM: u64 = RATE / 1_024 / MSS * MSS;
    let (_, packets) = paced(1, RATE, Wakeups::Busy, 1);
    let (start, mut sent) = (packets[0].0, 0);
    // By how much what was sent is ahead of the rate; the least so far, and the most since then.
    let (mut least, mut largest) = (0_i64, 0_i64);
    for (now, bytes) in packets {
        let ahead = |sent: u64| sent as i64 - (RATE * now.since(start).as_nanos() / 1_000_000_000) as i64;
        least = least.min(ahead(sent));
        sent += bytes;
        largest = largest.max(ahead(sent) - least);
    }
    let most = (RATE / 100 + 2 * QUANTUM) as i64;
    assert!(largest <= most, "a burst of {largest} bytes, {most} allowed");
    // The distribution does reach 8 ms, else this would show nothing.
    assert!(largest > (RATE * 8 / 1_000) as i64, "{largest}");
}

/// The share of a link of 100 Mbit/s and 100 ms that one BBR flow gets in 20 s after the first 10.
fn bbr(wakeups: Wakeups, seed: u64) -> f64 {
    let mut world = World::new(seed);
    let line = PortSpec::fifo("100mbit".parse().unwrap(), 826);
    let mut spec = DumbbellSpec::new(1, "1gbit".parse().unwrap(), line, Duration::from_millis(50));
    sleepy(&mut spec.host, wakeups);
    let net = Dumbbell::new(&mut world, &spec);
    let options = ConnOptions { congestion: Some(Algorithm::bbr()), ..ConnOptions::default() };
    let begin = world.now();
    let read = net.transfer(&mut world, 0, begin, options);
    world.run_for(Duration::from_secs(10)).unwrap();
    let before = read.borrow().bytes;
    world.run_for(Duration::from_secs(20)).unwrap();
    let capacity = 12_500_000.0 * 20.0 * MSS as f64 / 1_514.0;
    (read.borrow().bytes - before) as f64 / capacity
}

#[test]
fn bbr_keeps_its_rate() {
    for seed in 1..=5 {
        let (exact, busy) = (bbr(Wakeups::Exact, seed), bbr(Wakeups::Busy, seed));
        println!("seed {seed}: {exact:.4} exact, {busy:.4} busy");
        assert!(busy >= 0.95 * exact, "seed {seed}: {exact} exact, {busy} busy");
    }
}
