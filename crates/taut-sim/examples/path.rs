//! One flow over one path: what a congestion control does there, second by second.
//!
//! `cargo run --release -p taut-sim --example path -- [cubic] [100mbit] [RTT: 100ms] [loss: 0.01] [queue in BDP: 1] [seconds: 12] [seed: 1] [trace every, ms]`

use std::env;
use std::error::Error;

use taut_core::congestion::Registry;
use taut_core::{ConnOptions, Duration};
use taut_link::{Rate, parse_time};
use taut_sim::{Dumbbell, DumbbellSpec, Faults, PortSpec, World};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let arg = |index: usize, default: &str| args.get(index).map_or(default, String::as_str).to_owned();
    let congestion = Registry::default().algorithm(&arg(0, "cubic"))?;
    let rate: Rate = arg(1, "100mbit").parse()?;
    let rtt = parse_time(&arg(2, "100ms"))?;
    let loss: f64 = arg(3, "0.01").parse()?;
    let queue: f64 = arg(4, "1").parse()?;
    let seconds: u64 = arg(5, "12").parse()?;
    let seed: u64 = arg(6, "1").parse()?;
    let every: u64 = arg(7, "0").parse()?;

    let bytes_per_sec = rate.bytes_per_second() as f64;
    let bdp = bytes_per_sec * rtt.as_nanos() as f64 / 1e9;
    let packets = ((bdp * queue / 1_514.0) as u32).max(4);
    let mut world = World::new(seed);
    let spec = DumbbellSpec::new(1, "10gbit".parse()?, PortSpec::fifo(rate, packets), rtt / 2);
    let net = Dumbbell::new(&mut world, &spec);
    world.set_faults(net.wires.0, Faults { loss, ..Faults::default() });
    let a = net.left[0];
    let options = ConnOptions { congestion: Some(congestion.clone()), ..ConnOptions::default() };
    let begin = world.now();
    let read = net.transfer(&mut world, 0, begin, options);

    let step = if every == 0 { 1_000 } else { every };
    let warm_up = seconds * 1_000 / 3;
    let (mut before, mut warm, mut at) = (0, 0, 0);
    while at < seconds * 1_000 {
        world.run_for(Duration::from_millis(step))?;
        at += step;
        let bytes = read.borrow().bytes;
        if at <= warm_up {
            warm = bytes;
        }
        if every > 0 {
            let (now, stack) = (world.now(), world.host_ref(a).stack());
            let share = (bytes - before) as f64 * 1e3 / step as f64 / bytes_per_sec;
            for id in stack.conn_ids() {
                let info = stack.conn(id).map(|conn| conn.info(now)).ok_or("gone")?;
                println!(
                    "{at:6} ms {:5.1} % cwnd {:6} in flight {:6} lost {:5} rtt {:4} ms pacing {:7.2} Mbit/s {} {} {} {}",
                    share * 100.0,
                    info.snd_cwnd,
                    info.unacked + info.retrans - info.sacked - info.lost,
                    info.lost,
                    info.rtt.map_or(0, Duration::as_millis),
                    info.pacing_rate as f64 * 8e-6,
                    info.ca_state,
                    info.blocked,
                    world.port_state(net.routers.0, net.bottleneck).map_or(0, |port| port.backlog_packets),
                    stack.conn(id).map(|conn| conn.congestion()).unwrap_or_default(),
                );
            }
        }
        before = bytes;
    }
    let measured = (seconds * 1_000 - warm_up) as f64 / 1e3;
    let share = (before - warm) as f64 / measured / bytes_per_sec;
    let segments = world.counts(a).segments_out;
    println!("{congestion} {:.1} % of the link; {segments} segments sent", share * 100.0);
    Ok(())
}
