//! A congestion control of one's own, in one file: delay-based, after Vegas (Brakmo and Peterson, 1995), beside CUBIC and
//! BBR on the same path.
//!
//! `cargo run --release -p taut-sim --example controller`
//!
//! All that is needed is a value with [`Controller`] and a [`Definition`] of it. Everything else (loss detection,
//! retransmission, PRR, pacing, sizes of super-packets) stays as it is for those built in.

use std::error::Error;
use std::fmt;

use taut_core::congestion::{AckEvent, Controller, Definition, Signal, Window};
use taut_core::{Algorithm, ConnOptions, Duration, Instant};
use taut_sim::{Dumbbell, DumbbellSpec, PortSpec, World};

/// Segments that may wait in the path's queue: more cwnd below, less above.
const QUEUE_MIN: u64 = 2;
const QUEUE_MAX: u64 = 4;

/// Keeps between two and four segments in the queue, whatever its size: the round-trip time tells how many there are.
#[derive(Debug, Default)]
struct Vegas {
    /// A round trip ends when `una` gets here.
    round_end: u64,
    /// Least RTT of this round trip.
    round_rtt: Option<Duration>,
    /// Segments in the queue, as of the last round trip.
    queued: u64,
}

impl Controller for Vegas {
    /// Once a round trip: what would be out without a queue, and what is.
    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        self.round_rtt = self.round_rtt.into_iter().chain(ack.rtt).min();
        if ack.una < self.round_end {
            return;
        }
        self.round_end = ack.nxt;
        let (Some(rtt), Some(base)) = (self.round_rtt.take(), ack.min_rtt) else { return };
        let cwnd = u64::from(window.cwnd());
        self.queued = cwnd - cwnd * base.as_nanos() / rtt.as_nanos().max(1);
        if window.in_slow_start() && self.queued <= QUEUE_MIN {
            // Every other round trip would do as well; doubling each is enough for an example.
            window.set_cwnd(window.cwnd() * 2);
        } else if self.queued < QUEUE_MIN {
            window.set_cwnd(window.cwnd() + 1);
        } else if self.queued > QUEUE_MAX {
            let excess = u32::try_from(self.queued - QUEUE_MAX).unwrap_or(u32::MAX);
            let step = if window.in_slow_start() { excess } else { 1 };
            window.set_cwnd(window.cwnd().saturating_sub(step).max(2));
            window.leave_slow_start();
        }
    }

    /// Loss is no signal here, but it must not be answered with nothing.
    fn reduce(&mut self, window: &Window, _why: Signal, _now: Instant) -> u32 {
        (window.cwnd() * 3 / 4).max(2)
    }

    /// For `ss`.
    fn describe(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        write!(to, "queued:{}", self.queued)
    }
}

/// Goodput in percent of the link and mean backlog at the bottleneck in ms, of one flow for 20 s.
fn run(congestion: Algorithm) -> Result<(f64, f64), Box<dyn Error>> {
    let rate: taut_link::Rate = "50mbit".parse()?;
    let mut world = World::new(1);
    let line = PortSpec::fifo(rate, 400);
    let spec = DumbbellSpec::new(1, "1gbit".parse()?, line, Duration::from_millis(20));
    let net = Dumbbell::new(&mut world, &spec);
    let options = ConnOptions { congestion: Some(congestion), ..ConnOptions::default() };
    let begin = world.now();
    let read = net.transfer(&mut world, 0, begin, options);
    let (mut backlog, samples) = (0, 2_000);
    for _ in 0..samples {
        world.run_for(Duration::from_millis(10))?;
        backlog += net.backlog_bytes(&world);
    }
    let link = rate.bytes_per_second() as f64;
    let goodput = read.borrow().bytes as f64 / 20.0 / link * 100.0;
    Ok((goodput, backlog as f64 / f64::from(samples) / link * 1e3))
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("50 Mbit/s, 40 ms, a queue of 97 ms");
    for congestion in [
        Algorithm::new(Definition::new("my-vegas", |_| Vegas::default()))?,
        Algorithm::cubic(),
        Algorithm::bbr(),
    ] {
        let (goodput, backlog) = run(congestion.clone())?;
        println!("{congestion:10} {goodput:5.1} % of the link, {backlog:5.1} ms queued on average");
    }
    Ok(())
}
