//! How much a bulk sender holds, sampled every 10 ms as `make bench-buffers` of commit 529471b5 does, on
//! paths whose queue is one bandwidth-delay product. `--nocapture` prints what
//! docs/data/2026-11-28-results.md says of them.

use taut_core::{Algorithm, ConnOptions, Duration};
use taut_sim::{Dumbbell, DumbbellSpec, Faults, PortSpec, World};

const MSS: u64 = 1_448;
/// What a sender may hold beyond two bandwidth-delay products.
const FREE: f64 = 512e3;

#[derive(Clone, Copy)]
struct Sample {
    /// Unacknowledged and unsent.
    held: u64,
    /// Of that, selectively acknowledged.
    sacked: u64,
    unsent: u64,
    is_repairing: bool,
}

struct Record {
    samples: Vec<Sample>,
    /// Goodput times the round-trip time of the empty path, bytes.
    bdp: f64,
    /// The share of the line's payload.
    share: f64,
}

/// A CUBIC flow for six seconds, of which the first does not count.
fn record(mbit: u64, rtt_ms: u64) -> Record {
    let mut world = World::new(1);
    let bdp_packets = rtt_ms * mbit * 125 / 1_538;
    let line = PortSpec::fifo(format!("{mbit}mbit").parse().unwrap(), bdp_packets as u32);
    let spec =
        DumbbellSpec::new(1, "10gbit".parse().unwrap(), line, Duration::from_micros(rtt_ms * 1_000 / 2));
    let net = Dumbbell::new(&mut world, &spec);
    let begin = world.now();
    let options = ConnOptions { congestion: Some(Algorithm::cubic()), ..ConnOptions::default() };
    net.transfer(&mut world, 0, begin, options);
    let (mut samples, mut acked) = (Vec::new(), Vec::new());
    for number in 1..=600 {
        world.run_for(Duration::from_millis(10)).unwrap();
        if number < 100 {
            continue;
        }
        let stack = world.host_ref(net.left[0]).stack();
        let conn = stack.conn_ids().next().and_then(|id| stack.conn(id)).expect("the flow is endless");
        let info = conn.info(world.now());
        let unacked = info.bytes_sent - info.bytes_retrans - info.bytes_acked;
        acked.push(info.bytes_acked);
        samples.push(Sample {
            held: unacked + info.notsent_bytes,
            sacked: u64::from(info.sacked) * MSS,
            unsent: info.notsent_bytes,
            is_repairing: ["recovery", "loss"].contains(&info.ca_state),
        });
    }
    let goodput = (acked.last().unwrap() - acked[0]) as f64 / 5.0;
    let payload = (mbit * 125_000 * MSS) as f64 / 1_538.0;
    let record = Record { samples, bdp: goodput * rtt_ms as f64 / 1e3, share: goodput / payload };
    record.print(&format!("{mbit} Mbit/s, {rtt_ms} ms"));
    record
}

impl Record {
    fn print(&self, path: &str) {
        let bound = 2.0 * self.bdp + FREE;
        let most = |what: &dyn Fn(&Sample) -> u64| self.samples.iter().map(what).max().unwrap_or(0) / 1_000;
        let top = self.samples.iter().max_by_key(|sample| sample.held).expect("a record has samples");
        let over = self.samples.iter().filter(|sample| sample.held as f64 > bound).count();
        println!(
            "{path}: at most {} kB ({} sacked, {} unsent), bound {:.0}; {over} of {} above it; less sacked {}; unsent {}; share {:.4}",
            top.held / 1_000,
            top.sacked / 1_000,
            top.unsent / 1_000,
            bound / 1e3,
            self.samples.len(),
            most(&|sample| sample.held - sample.sacked),
            most(&|sample| sample.unsent),
            self.share,
        );
    }
}

#[test]
fn a_sender_holds_two_bandwidth_delay_products_and_half_a_megabyte() {
    for (mbit, rtt_ms) in [(100, 20), (1_000, 1)] {
        let record = record(mbit, rtt_ms);
        let bound = 2.0 * record.bdp + FREE;
        let most = record.samples.iter().map(|sample| sample.held).max().unwrap();
        assert!(record.samples.iter().any(|sample| sample.is_repairing), "a test of repairs has one");
        assert!(most as f64 <= bound, "{mbit} Mbit/s, {rtt_ms} ms: {most} of {bound}");
        assert!(record.share > 0.985, "{mbit} Mbit/s, {rtt_ms} ms: {}", record.share);
    }
}

/// At 100 Mbit/s and 100 ms a bandwidth-delay product is 1.2 MB. Two are in flight when a loss is found, and
/// β = 0.7 times as much is sent in the round trip until it is repaired (RFC 9937, RFC 9438 §4.6): 3.4 that
/// nobody has acknowledged.
#[test]
fn only_what_the_peer_has_behind_a_hole_exceeds_it_on_a_long_path() {
    let record = record(100, 100);
    let bound = 2.0 * record.bdp + FREE;
    let mut over = record.samples.iter().filter(|sample| sample.held as f64 > bound).peekable();
    assert!(over.peek().is_some() && over.all(|sample| sample.is_repairing));
    for sample in &record.samples {
        assert!(
            ((sample.held - sample.sacked) as f64) <= bound,
            "{} without SACKs",
            sample.held - sample.sacked
        );
        assert!((sample.held - sample.unsent) as f64 <= 3.5 * record.bdp, "{}", sample.held - sample.unsent);
    }
    assert!(record.share > 0.985, "{}", record.share);
}

/// BBR over 100 Mbit/s and 300 ms with 5 % of random loss, five seeds: the goodput of all, as a share of the
/// line.
fn share_with_loss(tuning: &str) -> f64 {
    let share = |seed| {
        let mut world = World::new(seed);
        // Four bandwidth-delay products.
        let line = PortSpec::fifo("100mbit".parse().unwrap(), 4 * 300 * 100 * 125 / 1_538);
        let spec = DumbbellSpec::new(1, "1gbit".parse().unwrap(), line, Duration::from_millis(150));
        let net = Dumbbell::new(&mut world, &spec);
        world.set_faults(net.wires.0, Faults { loss: 0.05, ..Faults::default() });
        world.stack_mut(net.left[0]).set_sysctl("taut.buffers", tuning).unwrap();
        let begin = world.now();
        let options = ConnOptions { congestion: Some(Algorithm::bbr()), ..ConnOptions::default() };
        let read = net.transfer(&mut world, 0, begin, options);
        world.run_for(Duration::from_secs(4)).unwrap();
        let before = read.borrow().bytes;
        world.run_for(Duration::from_secs(8)).unwrap();
        (read.borrow().bytes - before) as f64 / (8.0 * 12.5e6 * MSS as f64 / 1_538.0)
    };
    (1..=5).map(share).sum::<f64>() / 5.0
}

/// With that loss, some segment is always missing for two or three round trips, and what follows it stays in
/// the buffer. One that follows the path may cost a twentieth of what one without that limit gets.
#[test]
fn a_buffer_that_follows_the_path_fills_it_in_spite_of_holes() {
    let (path, window) = (share_with_loss("follow-path"), share_with_loss("follow-window"));
    assert!(path > 0.95 * window, "{path:.3} of {window:.3}");
}
