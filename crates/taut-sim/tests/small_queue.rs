//! The small queue that measures (`taut.tsq=measured`), on devices whose completions come at once, in batches, in bursts,
//! and late in any order: how much is below TCP, and what it costs.
//!
//! Each run stands beside one with `taut.tsq=off`, the same in everything else. `make_table`, ignored, prints all.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{Duration, Instant};
use taut_sim::app::{Bulk, Sink};
use taut_sim::{BEGIN, HostId, HostSpec, Interest, Pair, Place, Probe, ProbeEvent, Returns, World};

const WARM_UP: Duration = Duration::from_secs(2);

/// Bytes of a device's queue as time on its line: of packets, from the stack to their last bit on the wire.
#[derive(Debug, Default)]
struct Times {
    from: Option<HostId>,
    packets: u64,
    sum: Duration,
    most: Duration,
}

impl Probe for Times {
    fn interest(&self) -> Interest {
        Interest { packets: true, ..Interest::default() }
    }

    fn on(&mut self, now: Instant, event: &ProbeEvent<'_>) {
        if let ProbeEvent::Sent { place: Place::Nic(host), packet, at } = event
            && Some(*host) == self.from
            && packet.payload_len() > 0
            && now > BEGIN + WARM_UP
        {
            let time = at.since(packet.handed());
            self.packets += 1;
            self.sum += time;
            self.most = self.most.max(time);
        }
    }
}

/// What completions are like.
#[derive(Clone, Copy, Debug)]
struct Completions {
    /// Collected by the card for so long.
    collected_us: u64,
    /// And then late by up to this, each for itself.
    late_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    rate: &'a str,
    tso: bool,
    flows: usize,
    control: &'a str,
    completions: Completions,
    seconds: u64,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    bytes: u64,
    mean_us: f64,
    most_us: f64,
    limit: u64,
    time_us: f64,
    segs: f64,
}

impl Run<'_> {
    fn go(self, tsq: &str) -> Found {
        let mut world = World::new(1);
        let mut spec = HostSpec::new(self.rate.parse().unwrap());
        spec.nic.bql = None;
        spec.nic.tso = self.tso;
        let receiver = spec.clone();
        spec.nic.tx_usecs = Duration::from_micros(self.completions.collected_us);
        spec.returns =
            Returns { late: Duration::from_micros(self.completions.late_us), ..Returns::default() };
        let pair = Pair::new(&mut world, spec, receiver, Duration::from_micros(50));
        for (name, value) in [("taut.tsq", tsq), ("tcp_congestion_control", self.control)] {
            world.stack_mut(pair.a).set_sysctl(name, value).unwrap();
        }
        let sink = Sink::new(1).trusting();
        let read = sink.stats();
        world.app(pair.b, sink);
        let times = Rc::new(RefCell::new(Times { from: Some(pair.a), ..Times::default() }));
        world.probe(Rc::clone(&times));
        let to = SocketAddr::new(world.host_ref(pair.b).address().unwrap(), 1);
        let mut first = None;
        for _ in 0..self.flows {
            let app = Bulk::new(to);
            first.get_or_insert(app.stats());
            world.app(pair.a, app);
        }
        world.run_for(WARM_UP).unwrap();
        let before = (read.borrow().bytes, world.counts(pair.a));
        world.run_for(Duration::from_secs(self.seconds)).unwrap();
        let after = (read.borrow().bytes, world.counts(pair.a));
        let conn = first.unwrap().borrow().conn.unwrap();
        let info = world.host_ref(pair.a).stack().conn(conn).unwrap().info(world.now());
        let times = times.borrow();
        Found {
            bytes: after.0 - before.0,
            mean_us: times.sum.as_nanos() as f64 / times.packets.max(1) as f64 / 1e3,
            most_us: times.most.as_nanos() as f64 / 1e3,
            limit: info.tsq_limit.unwrap_or(0),
            time_us: info.tsq_time.map_or(-1.0, |time| time.as_nanos() as f64 / 1e3),
            segs: (after.1.segments_out - before.1.segments_out) as f64
                / (after.1.packets_out - before.1.packets_out).max(1) as f64,
        }
    }
}

/// Every device at every rate: `cargo test -p taut-sim --test small_queue --release -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table"]
fn make_table() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for control in ["cubic", "bbr"] {
        for rate in ["10mbit", "100mbit", "1gbit", "10gbit"] {
            for tso in [true, false] {
                for flows in [1, 8, 100] {
                    for (collected_us, late_us) in [(0, 0), (16, 0), (500, 0), (4_000, 0), (0, 1_000)] {
                        let completions = Completions { collected_us, late_us };
                        let run = Run {
                            rate,
                            tso,
                            flows,
                            control,
                            completions,
                            seconds: if rate == "10gbit" { 1 } else { 3 },
                        };
                        let name =
                            format!("{control} {rate} tso={tso} flows={flows} {collected_us}+{late_us}");
                        if !only.split(';').all(|word| name.contains(word)) {
                            continue;
                        }
                        let off = run.go("off");
                        let found = run.go("measured");
                        let share = found.bytes as f64 / off.bytes as f64 * 100.0;
                        println!(
                            "{name:44} {share:6.2} % mean {:7.0} most {:7.0} us, limit {:7} time {:6.0} us, {:.1} segs | off {:7.0}",
                            found.mean_us, found.most_us, found.limit, found.time_us, found.segs, off.mean_us
                        );
                    }
                }
            }
        }
    }
}

/// With offload, 1 Gbit/s and 100 Mbit/s: completions at once, collected for 0.5 ms, in bursts of 4 ms, and late by up to a
/// millisecond in any order. A millisecond, and the time of the completions, bounds what is below; the goodput is that without a
/// small queue.
#[test]
fn below_tcp_is_what_completions_need() {
    for rate in ["100mbit", "1gbit"] {
        for (collected_us, late_us) in [(0, 0), (500, 0), (4_000, 0), (0, 1_000)] {
            let completions = Completions { collected_us, late_us };
            let run = Run { rate, tso: true, flows: 1, control: "cubic", completions, seconds: 1 };
            let (off, found) = (run.go("off"), run.go("measured"));
            let share = found.bytes as f64 / off.bytes as f64;
            assert!(share >= 0.995, "{run:?}: {share} {found:?}");
            let bound = 1_000 + collected_us + late_us;
            assert!(found.most_us <= bound as f64, "{run:?}: {found:?}");
            assert!(found.mean_us <= 1_000.0_f64.max(bound as f64 * 0.8), "{run:?}: {found:?}");
        }
    }
}
