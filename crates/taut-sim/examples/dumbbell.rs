//! Ten flows over one bottleneck for a number of virtual seconds. The comparison with ns-3 runs this.
//!
//! `cargo run --release -p taut-sim --example dumbbell -- [flows] [bottleneck, as 1gbit] [seconds] [gro|nogro] [lengths|bytes] [checked]`

use std::env;
use std::error::Error;

use taut_core::{ConnOptions, Duration};
use taut_sim::{Checks, Dumbbell, DumbbellSpec, HostSpec, PortSpec, World};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let flows: u64 = args.next().map_or(Ok(10), |text| text.parse())?;
    let rate = args.next().unwrap_or_else(|| "1gbit".to_owned()).parse()?;
    let seconds: u64 = args.next().map_or(Ok(10), |text| text.parse())?;
    let gro = args.next().is_none_or(|text| text == "gro");
    let lengths = args.next().is_none_or(|text| text == "lengths");
    let checked = args.next().is_some();

    let mut world = World::new(1);
    if lengths {
        world.lengths_only();
    }
    let mut host = HostSpec::new("10gbit".parse()?);
    host.nic.gro = gro;
    let spec = DumbbellSpec {
        delays: (0..flows).map(|i| Duration::from_millis(5 + i)).collect(),
        bottleneck: PortSpec::fifo(rate, 1_000),
        delay: Duration::from_millis(5),
        access: "10gbit".parse()?,
        host,
    };
    let net = Dumbbell::new(&mut world, &spec);
    if checked {
        world.check(Checks { every: 1_000 });
    }
    let begin = world.now();
    let reads: Vec<_> = (0..net.left.len())
        .map(|pair| net.transfer(&mut world, pair, begin, ConnOptions::default()))
        .collect();
    world.run_for(Duration::from_secs(seconds))?;

    let segments: u64 = net.left.iter().chain(&net.right).map(|&id| world.counts(id).segments_in).sum();
    let bytes: u64 = reads.iter().map(|read| read.borrow().bytes).sum();
    println!("packets {segments}");
    println!("goodput_bytes {bytes}");
    println!("events {}", world.events());
    println!("lost {}", world.lost());
    println!("digest {:016x}", world.digest());
    println!("peak_packets {} memory_bytes {}", world.memory().0, world.memory().1);
    Ok(())
}
