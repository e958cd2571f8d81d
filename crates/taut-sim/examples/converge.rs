//! How long a new flow takes to reach its share: one flow for ten seconds, then a second one beside it.
//!
//! `cargo run --release -p taut-sim --example converge -- [seeds: 20]`
//!
//! 100 Mbit/s, 40 ms, a queue of one round-trip time. The flows have converged when both got the same to
//! within a quarter (Jain's index above 0.98) over a second.

use std::env;
use std::error::Error;

use taut_core::{Algorithm, ConnOptions, Duration};
use taut_sim::{Dumbbell, DumbbellSpec, PortSpec, World};

/// Seconds after the newcomer's start, or `None` if a minute was not enough.
fn run(seed: u64, kinds: &[Algorithm; 2]) -> Result<Option<f64>, Box<dyn Error>> {
    let mut world = World::new(seed);
    let line = PortSpec::fifo("100mbit".parse()?, 325);
    let spec = DumbbellSpec::new(2, "1gbit".parse()?, line, Duration::from_millis(20));
    let net = Dumbbell::new(&mut world, &spec);
    let alone = Duration::from_millis(10_000 + seed * 37);
    let starts = [world.now(), world.now() + alone];
    let reads = [0, 1].map(|pair| {
        let options = ConnOptions { congestion: Some(kinds[pair].clone()), ..ConnOptions::default() };
        net.transfer(&mut world, pair, starts[pair], options)
    });
    world.run_for(alone)?;
    let mut history: Vec<[f64; 2]> = Vec::new();
    for step in 1..=600_usize {
        world.run_for(Duration::from_millis(100))?;
        history.push(reads.each_ref().map(|read| read.borrow().bytes as f64));
        let Some(before) = step.checked_sub(11).and_then(|at| history.get(at)) else { continue };
        let now = history[step - 1];
        let (a, b) = (now[0] - before[0], now[1] - before[1]);
        if (a + b) * (a + b) / (2.0 * (a * a + b * b)) > 0.98 {
            return Ok(Some(step as f64 / 10.0));
        }
    }
    Ok(None)
}

fn main() -> Result<(), Box<dyn Error>> {
    let seeds: u64 = env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    println!("first, newcomer: seconds to converge, median (worst), of {seeds} seeds");
    let (reno, cubic, bbr) = (Algorithm::reno, Algorithm::cubic, Algorithm::bbr);
    for kinds in [[reno(), reno()], [cubic(), cubic()], [bbr(), bbr()], [cubic(), bbr()], [bbr(), cubic()]] {
        let mut times = Vec::new();
        for seed in 1..=seeds {
            times.push(run(seed, &kinds)?.unwrap_or(f64::INFINITY));
        }
        times.sort_by(f64::total_cmp);
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
        println!("{:6} {:6} {median:6.1} ({worst:.1})", kinds[0].name(), kinds[1].name());
    }
    Ok(())
}
