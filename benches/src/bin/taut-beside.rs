//! 128 pings and a UDP stream of 5 Mbit/s beside a bulk TCP connection, all from one stack over one device of
//! 100 Mbit/s, with small queues and without: how long they take. In the simulator, and live over a TUN with
//! the kernel at its far end.
//!
//! The device takes packets at its rate, and lets 1000 wait, first come first served. What the connection has
//! in it, the pings wait for. Live, the line is a queue of taut's in front of the TUN, and beyond it nothing
//! waits.

use std::net::{SocketAddr, UdpSocket as KernelUdp};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use taut::{DatagramOptions, PingSocket, Stack, UdpSocket};
use taut_bench::net::{LOCAL, Link, Near, PEER, PORT};
use taut_bench::peer::{self, CHUNK, Role};
use taut_bench::probe::Probe;
use taut_core::StackConfig;
use taut_sim::app::{Bulk, Ping, Sink, UdpFlow, UdpSink};
use taut_sim::{HostSpec, Pair, World};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

const PINGS: u32 = 128;
/// Each of them pings so often.
const PING_EVERY: Duration = Duration::from_millis(100);
/// 5 Mbit/s of payload.
const STREAM_BYTES: usize = 1_250;
const STREAM_EVERY: Duration = Duration::from_millis(2);
const STREAM_PORT: u16 = 5_000;
const WARM_UP: Duration = Duration::from_secs(2);
/// After which a ping is lost.
const PATIENCE: Duration = Duration::from_secs(3);
const RATE: &str = "100mbit";
/// The delay of the simulated wire; a TUN has none.
const WIRE: taut_core::Duration = taut_core::Duration::from_micros(50);

/// Pings and a UDP stream beside a bulk TCP connection.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-beside --rounds 5 --only sim")]
struct Args {
    /// Rounds; in each, every row is measured once
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// How long each row is measured
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Only in the simulator, or only live
    #[arg(long, value_enum)]
    only: Option<Where>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    Sim,
    Live,
}

/// `taut.tsq`.
const QUEUES: [&str; 3] = ["auto", "measured", "off"];

/// One run. Times in ms.
struct Outcome {
    pings: [f64; 2],
    pings_lost: f64,
    stream: [f64; 2],
    stream_lost: f64,
    bulk_mbit_per_s: f64,
    disturbance: f64,
}

fn histogram() -> Histogram<u64> {
    // From a microsecond to an hour.
    Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).expect("the bounds are in order")
}

/// The median and the 99th of a hundred, in ms.
fn quantiles(taken: &Histogram<u64>) -> [f64; 2] {
    [0.5, 0.99].map(|quantile| taken.value_at_quantile(quantile) as f64 / 1e6)
}

// ---- simulated ----

fn simulate(tsq: &str, seed: u64, seconds: u64) -> Result<Outcome> {
    let mut config = StackConfig::default();
    config.set_sysctl("taut.tsq", tsq)?;
    let rate = RATE.parse().map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let mut world = World::new(seed);
    let near = HostSpec { config, ..HostSpec::new(rate) };
    let pair = Pair::new(&mut world, near, HostSpec::new(rate), WIRE);
    let address = world.host_ref(pair.b).address().context("the host has no address")?;
    let (bulk, stream) = (Sink::new(PORT), UdpSink::new(STREAM_PORT));
    let (taken, received) = (bulk.stats(), stream.stats());
    world.app(pair.b, bulk);
    world.app(pair.b, stream);
    world.app(pair.a, Bulk::new((address, PORT).into()));
    let flow = UdpFlow::new((address, STREAM_PORT).into(), STREAM_BYTES, STREAM_EVERY.into());
    let sent = flow.stats();
    world.app(pair.a, flow);
    let mut pings = Vec::new();
    for number in 0..PINGS {
        // All at different times, as 128 programs would.
        let ping = Ping::new((address, 0).into(), PING_EVERY.into());
        pings.push(ping.stats());
        world.app(pair.a, ping);
        world.run_for((PING_EVERY / PINGS).into()).with_context(|| format!("ping {number}"))?;
    }
    world.run_for(WARM_UP.into())?;
    let begin = (taken.borrow().bytes, sent.borrow().sent, received.borrow().received);
    let pinged: u64 = pings.iter().map(|stats| stats.borrow().sent).sum();
    let mut answered = 0;
    let skip: Vec<usize> = pings.iter().map(|stats| stats.borrow().round_trips.len()).collect();
    answered += skip.iter().sum::<usize>() as u64;
    let skip_stream = received.borrow().delays.len();
    world.run_for(Duration::from_secs(seconds).into())?;
    let (mut round_trips, mut delays) = (histogram(), histogram());
    for (stats, skip) in pings.iter().zip(skip) {
        stats.borrow().round_trips[skip..]
            .iter()
            .for_each(|taken| round_trips.saturating_record(taken.as_nanos()));
    }
    received.borrow().delays[skip_stream..]
        .iter()
        .for_each(|taken| delays.saturating_record(taken.as_nanos()));
    let pinged_then: u64 = pings.iter().map(|stats| stats.borrow().sent).sum::<u64>() - pinged;
    let answered_then: u64 =
        pings.iter().map(|stats| stats.borrow().round_trips.len() as u64).sum::<u64>() - answered;
    let bytes = taken.borrow().bytes - begin.0;
    // Those that are on their way at both ends cancel out, but for what the queue has grown by.
    let lost = |sent: u64, came: u64| sent.saturating_sub(came) as f64;
    let stream_lost = lost(sent.borrow().sent - begin.1, received.borrow().received - begin.2)
        + sent.borrow().refused as f64;
    Ok(Outcome {
        pings: quantiles(&round_trips),
        pings_lost: lost(pinged_then, answered_then),
        stream: quantiles(&delays),
        stream_lost,
        bulk_mbit_per_s: bytes as f64 * 8e-6 / seconds as f64,
        disturbance: 0.0,
    })
}

// ---- live ----

/// The state that the live tasks share.
struct Live {
    clock: std::time::Instant,
    probe: Arc<Probe>,
    round_trips: Mutex<Histogram<u64>>,
    delays: Mutex<Histogram<u64>>,
    /// Pings lost; datagrams sent, received.
    counts: Mutex<[u64; 3]>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Live {
    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn since(&self, message: &[u8]) -> u64 {
        let sent = message.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.now().saturating_sub(sent)
    }

    fn count(&self, which: usize) {
        if self.probe.measuring() {
            lock(&self.counts)[which] += 1;
        }
    }
}

async fn ping(live: Arc<Live>, stack: Stack, number: u32) -> Result<()> {
    let any = SocketAddr::from((LOCAL, 0));
    let socket = PingSocket::bind(&stack, any, &DatagramOptions::default())?;
    let mut ticks = interval_at(Instant::now() + PING_EVERY / PINGS * number, PING_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seq = 0_u16;
    while !live.probe.stopped() {
        ticks.tick().await;
        seq = seq.wrapping_add(1);
        let mut data = [0; 56];
        data[..8].copy_from_slice(&live.now().to_be_bytes());
        socket.send_to(seq, &data, PEER.into()).await?;
        let answer = async {
            loop {
                let mut data = [0; 56];
                let reply = socket.recv(&mut data).await?;
                if reply.seq == seq {
                    return std::io::Result::Ok(live.since(&data));
                }
            }
        };
        match timeout(PATIENCE, answer).await {
            Ok(taken) if live.probe.measuring() => lock(&live.round_trips).saturating_record(taken?),
            Ok(taken) => drop(taken?),
            Err(_) => live.count(0),
        }
    }
    Ok(())
}

async fn stream(live: Arc<Live>, stack: Stack) -> Result<()> {
    let socket = UdpSocket::bind(&stack, (LOCAL, 0)).await?;
    let to = SocketAddr::from((PEER, STREAM_PORT));
    let mut ticks = interval_at(Instant::now(), STREAM_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !live.probe.stopped() {
        ticks.tick().await;
        let mut message = vec![0; STREAM_BYTES];
        message[..8].copy_from_slice(&live.now().to_be_bytes());
        socket.send_with(&message, Some(to), &taut::SendMeta::default()).await?;
        live.count(1);
    }
    Ok(())
}

fn receive(live: &Live, socket: &KernelUdp) -> Result<()> {
    live.probe.not_the_stack();
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut message = [0; 2_000];
    while !live.probe.stopped() {
        match socket.recv(&mut message) {
            Ok(len) => {
                let taken = live.since(&message[..len]);
                if live.probe.measuring() {
                    lock(&live.delays).saturating_record(taken);
                }
                live.count(2);
            }
            Err(error) if peer::interrupted(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn bulk(live: &Live, stack: &Stack) -> Result<()> {
    use std::io::Write as _;
    let mut connection = taut::blocking::TcpStream::connect(stack, (PEER, PORT))?;
    connection.set_write_timeout(Some(Duration::from_millis(200)))?;
    let data = vec![0x5a; CHUNK];
    while !live.probe.stopped() {
        match connection.write(&data) {
            Ok(_) => {}
            Err(error) if peer::interrupted(&error) => {}
            Err(_) if live.probe.stopped() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn measure(tsq: &str, seconds: u64) -> Result<Outcome> {
    let Link { near, peer: kernel } = Link::tun()?;
    let Near::Tun(tun) = near else { bail!("the link is a TUN") };
    let live = Arc::new(Live {
        clock: std::time::Instant::now(),
        probe: Arc::new(Probe::new()),
        round_trips: Mutex::new(histogram()),
        delays: Mutex::new(histogram()),
        counts: Mutex::default(),
    });
    let drain = peer::spawn(&kernel, Role::Drain, LOCAL, None, &live.probe)?;
    let sink = kernel.enter(|| KernelUdp::bind((PEER, STREAM_PORT)))??;
    let builder = Stack::builder().device(tun).address(&format!("{LOCAL}/24"));
    let stack = builder.link_from(&format!("rate {RATE}")).set_sysctl("taut.tsq", tsq).build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fail = |result: Result<()>| {
        if let Err(error) = result {
            live.probe.fail(error);
        }
    };
    let window = std::thread::scope(|scope| {
        scope.spawn(|| fail(receive(&live, &sink)));
        scope.spawn(|| fail(bulk(&live, &stack)));
        scope.spawn(|| {
            fail(runtime.block_on(async {
                let mut tasks = tokio::task::JoinSet::new();
                for number in 0..PINGS {
                    tasks.spawn(ping(Arc::clone(&live), stack.clone(), number));
                }
                tasks.spawn(stream(Arc::clone(&live), stack.clone()));
                while let Some(done) = tasks.join_next().await {
                    done??;
                }
                Ok(())
            }));
        });
        let window = live.probe.watch(WARM_UP, Duration::from_secs(seconds));
        live.probe.stop();
        window
    });
    drop(stack);
    let _ = drain.join();
    if let Some(error) = live.probe.take_error() {
        return Err(error);
    }
    let window = window?;
    let counts = *lock(&live.counts);
    let (round_trips, delays) = (lock(&live.round_trips), lock(&live.delays));
    Ok(Outcome {
        pings: quantiles(&round_trips),
        pings_lost: counts[0] as f64,
        stream: quantiles(&delays),
        stream_lost: counts[1].saturating_sub(counts[2]) as f64,
        bulk_mbit_per_s: window.count as f64 * 8e-6 / window.seconds,
        disturbance: window.disturbance,
    })
}

/// Median, least and greatest.
fn summary(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (least, greatest, middle) = (values[0], values[values.len() - 1], values.len() / 2);
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.rounds == 0 || args.seconds == 0 {
        bail!("--rounds and --seconds must be at least 1");
    }
    let mut rows = Vec::new();
    for round in 0..args.rounds {
        for tsq in QUEUES {
            if args.only != Some(Where::Live) {
                rows.push((Where::Sim, tsq, simulate(tsq, 1 + round, args.seconds)?));
            }
            if args.only != Some(Where::Sim) {
                rows.push((Where::Live, tsq, measure(tsq, args.seconds)?));
            }
        }
    }
    println!(
        "{PINGS} pings, each every {} ms, and {} Mbit/s of UDP beside a bulk connection (cubic) at {RATE}; {} rounds of {} s, median \
         (least to greatest)\n",
        PING_EVERY.as_millis(),
        STREAM_BYTES as f64 * 8e-6 / STREAM_EVERY.as_secs_f64(),
        args.rounds,
        args.seconds
    );
    println!(
        "| | `taut.tsq` | ping p50, ms | ping p99, ms | UDP p50, ms | UDP p99, ms | lost | bulk, Mbit/s |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for place in [Where::Sim, Where::Live] {
        for tsq in QUEUES {
            let of = |value: fn(&Outcome) -> f64, digits| {
                let own = rows.iter().filter(|row| (row.0, row.1) == (place, tsq));
                let values: Vec<f64> = own.map(|row| value(&row.2)).collect();
                if values.is_empty() { String::new() } else { summary(values, digits) }
            };
            if of(|outcome| outcome.bulk_mbit_per_s, 1).is_empty() {
                continue;
            }
            println!(
                "| {} | `{tsq}` | {} | {} | {} | {} | {} | {} |",
                if place == Where::Sim { "simulated" } else { "live" },
                of(|outcome| outcome.pings[0], 2),
                of(|outcome| outcome.pings[1], 2),
                of(|outcome| outcome.stream[0], 2),
                of(|outcome| outcome.stream[1], 2),
                of(|outcome| outcome.pings_lost + outcome.stream_lost, 0),
                of(|outcome| outcome.bulk_mbit_per_s, 1),
            );
        }
    }
    let disturbed = rows.iter().map(|row| row.2.disturbance).fold(0.0, f64::max);
    println!("\nlive, at most {disturbed:.2} cores busy with other things");
    Ok(())
}
