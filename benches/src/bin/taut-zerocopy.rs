//! What copying costs: bulk sending and receiving over a TUN by blocking sockets, with `write` and `read` and with
//! `write_bytes` and `read_chunks`, in turns, with the kernel as peer.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use taut::{Bytes, Stack, blocking::TcpStream};
use taut_bench::net::{LOCAL, Link, Near, PEER, PORT};
use taut_bench::peer::{self, CHUNK, Role};
use taut_bench::probe::{Probe, Window};
use taut_bench::stacks::taut_loop;

/// Not measured: slow start and buffers that grow.
const WARM_UP: Duration = Duration::from_millis(400);

/// How often a thread checks whether to stop.
const TICK: Duration = Duration::from_millis(200);

/// What copying costs in bulk transfers over a TUN.
#[derive(Parser)]
#[command(after_help = "Example:\n  taut-zerocopy --rounds 5 --touch")]
struct Args {
    /// Rounds; in each, every case runs once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long each case is measured
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Bytes of a write, and of the buffer for a read
    #[arg(long, default_value_t = CHUNK)]
    write: usize,
    /// The receiving application looks at every byte
    #[arg(long)]
    touch: bool,
}

/// A direction, and whether the application's calls copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Send { lent: bool },
    Receive { lent: bool },
}

impl Case {
    /// Each pair in turns, so that neither always comes first.
    fn of_round(round: usize) -> [Self; 4] {
        let lent = round % 2 == 1;
        [
            Self::Send { lent },
            Self::Send { lent: !lent },
            Self::Receive { lent },
            Self::Receive { lent: !lent },
        ]
    }
}

/// Looks at every byte, as a checksum would.
fn look_at(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u64 = words.remainder().iter().map(|&byte| u64::from(byte)).sum();
    words.fold(rest, |sum, word| sum.wrapping_add(word.try_into().map_or(0, u64::from_ne_bytes)))
}

fn is_tick(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// One application, until told to stop.
fn work(case: Case, mut stream: TcpStream, args: &Args, probe: &Probe) -> Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    let data = Bytes::from(vec![0x5a; args.write]);
    let mut into = vec![0; args.write];
    let (mut sum, mut chunks) = (0_u64, Vec::new());
    while !probe.stopped() {
        let done = match case {
            Case::Send { lent: true } => stream.write_bytes(&mut data.clone()).map(|_| 0),
            Case::Send { lent: false } => stream.write(&data).map(|_| 0),
            Case::Receive { lent: true } => {
                chunks.clear();
                stream.read_chunks(&mut chunks, args.write).inspect(|_| {
                    for chunk in chunks.iter().filter(|_| args.touch) {
                        sum ^= look_at(chunk);
                    }
                })
            }
            Case::Receive { lent: false } => stream.read(&mut into).inspect(|&count| {
                sum ^= if args.touch { look_at(&into[..count]) } else { 0 };
            }),
        };
        match done {
            Ok(count) => probe.add(count as u64),
            Err(error) if is_tick(&error) => {}
            Err(_) if probe.stopped() => break,
            Err(error) => return Err(error).context("the application"),
        }
    }
    std::hint::black_box(sum);
    Ok(())
}

fn measure(case: Case, args: &Args) -> Result<Window> {
    let probe = Arc::new(Probe::new());
    let Link { near, peer } = Link::tun()?;
    let Near::Tun(tun) = near else { bail!("the link is a TUN") };
    let role = if matches!(case, Case::Send { .. }) { Role::Drain } else { Role::Pour };
    let kernel = peer::spawn(&peer, role, LOCAL, None, &probe)?;
    let stack = Stack::builder().device(tun).address(&format!("{LOCAL}/24")).build()?;
    let stream = TcpStream::connect(&stack, (PEER, PORT))?;
    if role == Role::Drain {
        stream.set_notsent_lowat(taut_loop::bulk().notsent_lowat)?;
    }
    let watched = std::thread::scope(|scope| {
        let application = scope.spawn(|| {
            if let Err(error) = work(case, stream, args, &probe) {
                probe.fail(error);
            }
        });
        let watched = probe.watch(WARM_UP, Duration::from_secs_f64(args.seconds));
        probe.stop();
        let _ = application.join();
        watched
    });
    drop(stack);
    let _ = kernel.join();
    match probe.take_error() {
        Some(error) => Err(error),
        None => watched,
    }
}

/// Median, least and greatest.
fn summary(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let (least, greatest) = (values[0], values[values.len() - 1]);
    let middle = values.len() / 2;
    let median =
        if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
    [median, least, greatest]
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.rounds == 0 || args.write == 0 {
        bail!("--rounds and --write must be at least 1");
    }
    let mut rows: Vec<(Case, Window)> = Vec::new();
    for round in 0..args.rounds {
        for case in Case::of_round(round) {
            rows.push((case, measure(case, &args)?));
        }
    }
    let of = |case: Case, value: fn(&Window) -> f64| -> Vec<f64> {
        rows.iter().filter(|(other, _)| *other == case).map(|(_, window)| value(window)).collect()
    };
    let cpu = |window: &Window| window.cpu_stack / (window.count as f64 / 1e9);
    let both = |window: &Window| window.cpu_all / (window.count as f64 / 1e9);
    let rate = |window: &Window| window.count as f64 * 8e-9 / window.seconds;
    println!(
        "{} rounds of {} s, {} bytes a call{}; median (least to greatest)",
        args.rounds,
        args.seconds,
        args.write,
        if args.touch { ", every received byte is looked at" } else { "" }
    );
    println!(
        "{:<20}  {:>22}  {:>24}  {:>24}",
        "", "Gbit/s", "CPU s/GB, stack's side", "CPU s/GB, both sides"
    );
    let show = |values: Vec<f64>, digits: usize| {
        let [median, least, greatest] = summary(values);
        format!("{median:.digits$} ({least:.digits$} to {greatest:.digits$})")
    };
    for (name, case) in [
        ("send, copied", Case::Send { lent: false }),
        ("send, lent", Case::Send { lent: true }),
        ("receive, copied", Case::Receive { lent: false }),
        ("receive, in chunks", Case::Receive { lent: true }),
    ] {
        let row = [show(of(case, rate), 1), show(of(case, cpu), 3), show(of(case, both), 3)];
        println!("{name:<20}  {:>22}  {:>24}  {:>24}", row[0], row[1], row[2]);
    }
    for (name, copied, lent) in [
        ("send", Case::Send { lent: false }, Case::Send { lent: true }),
        ("receive", Case::Receive { lent: false }, Case::Receive { lent: true }),
    ] {
        let pairs = of(lent, cpu).into_iter().zip(of(copied, cpu)).map(|(lent, copied)| lent / copied);
        let [median, least, greatest] = summary(pairs.collect());
        println!(
            "{name}: the stack's CPU × {median:.2} ({least:.2} to {greatest:.2}, by rounds) without the copy"
        );
    }
    let disturbed = rows.iter().map(|(_, window)| window.disturbance).fold(0.0, f64::max);
    println!("at most {disturbed:.2} cores busy with other things");
    Ok(())
}
