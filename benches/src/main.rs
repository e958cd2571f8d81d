//! `taut-bench`: taut, smoltcp and the kernel doing the same work in the same run, against a kernel peer.
//!
//! `benches/README.md` explains what each number means and what is equal for all stacks.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use taut_bench::measure::Cores;
use taut_bench::report::Report;
use taut_bench::stacks::{Stack, Task, Tuning};
use taut_bench::{alloc, instructions, measure, pair};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Measures taut, the kernel's TCP and smoltcp in one run.
///
/// Needs root (network namespaces, /dev/net/tun) and iproute2. Leaves nothing behind.
#[derive(Parser)]
#[command(version, after_help = "Example:\n  taut-bench --only send,receive --rounds 5 --seconds 2")]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Measurements to make; all by default
    #[arg(long, value_delimiter = ',')]
    only: Vec<Measurement>,
    /// Stacks to measure, named in full or by the first letters; all by default
    #[arg(long, value_delimiter = ',')]
    stacks: Vec<String>,
    /// How many times each stack is measured, taking turns with the others
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// smoltcp's socket buffers in KiB; by default the best of several
    #[arg(long)]
    smoltcp_buffer: Option<usize>,
    /// Packets that smoltcp receives per turn; by default the best of several
    #[arg(long)]
    smoltcp_batch: Option<usize>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Count instructions per packet with callgrind, and fail if a bound is exceeded
    Instructions {
        /// File with the bounds
        #[arg(long, default_value = "benches/instructions.toml")]
        bounds: std::path::PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Throughput and CPU cost of sending
    Send,
    /// Throughput and CPU cost of receiving
    Receive,
    /// Request/response with one byte, on two cores and on one
    Latency,
    /// Connections per second on one core, as client and as server
    Connections,
    /// Memory per idle connection
    Idle,
    /// Two stacks in one thread, no device
    Pair,
}

impl Measurement {
    const ALL: [Self; 6] =
        [Self::Send, Self::Receive, Self::Latency, Self::Connections, Self::Idle, Self::Pair];
}

/// The state of a run.
struct Run {
    stacks: Vec<Stack>,
    rounds: u32,
    span: Duration,
    /// smoltcp's best settings differ by direction.
    send: Tuning,
    receive: Tuning,
    report: Report,
    progress: ProgressBar,
}

impl Run {
    /// Measures the stacks one after the other, round after round, so that noise affects all of them alike.
    fn interleave(&mut self, what: &str, mut once: impl FnMut(&mut Self, Stack) -> Result<()>) {
        for round in 1..=self.rounds {
            for stack in self.stacks.clone() {
                self.progress.set_message(format!("{what}: {} ({round}/{})", stack.name(), self.rounds));
                if let Err(error) = once(self, stack) {
                    self.report.errors.push(format!("{what}: {}: {error:#}", stack.name()));
                }
                self.progress.inc(1);
            }
        }
    }

    fn bulk_send(&mut self) {
        self.interleave("bulk send", |run, stack| {
            let bulk = measure::bulk(stack, Task::Send, &run.send, run.span)?;
            run.report.add("bulk send", "Gbit/s", stack.name(), bulk.gbit_per_s);
            run.report.add("bulk send, CPU of the stack's side", "s/GB", stack.name(), bulk.cpu_s_per_gb);
            run.report.add("bulk send, CPU of both sides", "s/GB", stack.name(), bulk.cpu_both_s_per_gb);
            Ok(())
        });
    }

    fn bulk_receive(&mut self) {
        self.interleave("bulk receive", |run, stack| {
            let bulk = measure::bulk(stack, Task::Receive, &run.receive, run.span)?;
            run.report.add("bulk receive", "Gbit/s", stack.name(), bulk.gbit_per_s);
            run.report.add("bulk receive, CPU of the stack's side", "s/GB", stack.name(), bulk.cpu_s_per_gb);
            run.report.add("bulk receive, CPU of both sides", "s/GB", stack.name(), bulk.cpu_both_s_per_gb);
            Ok(())
        });
    }

    fn latency(&mut self) {
        for (cores, p50, p99) in [
            (Cores::Two, "round trip, two cores, p50", "round trip, two cores, p99"),
            (Cores::One, "round trip, one core, p50", "round trip, one core, p99"),
        ] {
            self.interleave("round trip", |run, stack| {
                let latency = measure::latency(stack, cores, &run.send, run.span)?;
                run.report.add(p50, "µs", stack.name(), latency.p50_us);
                run.report.add(p99, "µs", stack.name(), latency.p99_us);
                Ok(())
            });
        }
    }

    fn connections(&mut self) {
        for (task, name) in [
            (Task::Dial, "connections on one core, stack as client"),
            (Task::Serve, "connections on one core, stack as server"),
        ] {
            self.interleave("connections", |run, stack| {
                if !stack.does(task) {
                    return Ok(());
                }
                let rate = measure::connections(stack, task, &run.send, run.span)?;
                run.report.add(name, "1/s", stack.name(), rate);
                Ok(())
            });
        }
    }

    fn idle(&mut self) {
        // Counted, not timed: one round is enough, except for the kernel, where other processes use memory
        // too.
        let rounds = std::mem::replace(&mut self.rounds, 1);
        self.interleave("idle connections", |run, stack| {
            let bytes = measure::idle_bytes(stack, &run.send)?;
            run.report.add("idle connection", "bytes", stack.name(), bytes);
            Ok(())
        });
        self.rounds = rounds;
    }

    fn pair(&mut self) {
        self.interleave("back to back", |run, stack| {
            if let Some(rate) = pair::run(stack, &run.send, run.span)? {
                run.report.add("two stacks in one thread", "Gbit/s", stack.name(), rate);
            }
            Ok(())
        });
    }

    /// Finds the buffer size and the batch with which smoltcp is fastest at `task`, by trying several.
    fn tune_smoltcp(&mut self, options: &Options, task: Task) -> Result<()> {
        if !self.stacks.contains(&Stack::Smoltcp) {
            return Ok(());
        }
        let buffers = options.smoltcp_buffer.map_or(vec![256, 512, 1024, 4096], |kib| vec![kib]);
        let batches = options.smoltcp_batch.map_or(vec![4, 64], |batch| vec![batch]);
        let mut tried = Vec::new();
        for kib in &buffers {
            for batch in &batches {
                let choice =
                    Tuning { smoltcp_buffer_bytes: kib << 10, smoltcp_ingress_batch: *batch, ..self.send };
                self.progress.set_message(format!("trying smoltcp with {kib} KiB, {batch} packets a turn"));
                // CPU per byte, because a moment of noise changes it less than it does throughput.
                let cost = if buffers.len() * batches.len() == 1 {
                    0.0
                } else {
                    measure::bulk(Stack::Smoltcp, task, &choice, Duration::from_millis(700))?.cpu_s_per_gb
                };
                tried.push((cost, choice));
            }
        }
        let best = tried.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
        let Some((_, chosen)) = best else { bail!("nothing to try") };
        let (tuning, name) = match task {
            Task::Send => (&mut self.send, "sending"),
            _ => (&mut self.receive, "receiving"),
        };
        *tuning = chosen;
        self.report.notes.push(format!(
            "smoltcp {name}: buffers of {} KiB, {} packets a turn",
            chosen.smoltcp_buffer_bytes >> 10,
            chosen.smoltcp_ingress_batch
        ));
        Ok(())
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(Command::Instructions { bounds }) = &options.command {
        let progress = ProgressBar::new_spinner();
        let counts = instructions::count(bounds, |what| {
            progress.set_message(what.to_owned());
            progress.tick();
        })?;
        progress.finish_and_clear();
        let hold = if options.json {
            println!("{}", serde_json::to_string_pretty(&counts)?);
            counts.iter().all(instructions::Count::holds)
        } else {
            instructions::print(&counts)
        };
        std::process::exit(i32::from(!hold));
    }
    let only = if options.only.is_empty() { Measurement::ALL.to_vec() } else { options.only.clone() };
    let wanted = |stack: &Stack| {
        options.stacks.is_empty()
            || options.stacks.iter().any(|prefix| stack.name().starts_with(prefix.as_str()))
    };
    let stacks: Vec<Stack> = Stack::ALL.into_iter().filter(wanted).collect();
    if stacks.is_empty() {
        bail!("unknown stack; choose from: {}", Stack::ALL.map(Stack::name).join("; "));
    }
    if !(options.seconds > 0.0 && options.seconds < 3_600.0 && options.rounds > 0) {
        bail!("--seconds and --rounds must be positive");
    }
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("two cores are needed: one for the stack, one for its peer");
    }

    let passes: u32 = only
        .iter()
        .map(|measurement| match measurement {
            Measurement::Latency | Measurement::Connections => 2 * options.rounds,
            Measurement::Send | Measurement::Receive | Measurement::Pair => options.rounds,
            Measurement::Idle => 1,
        })
        .sum();
    let progress = ProgressBar::new(u64::from(passes) * stacks.len() as u64);
    progress.set_style(ProgressStyle::with_template("[{elapsed_precise}] {wide_bar} {pos}/{len} {msg}")?);
    let tuning =
        Tuning { smoltcp_buffer_bytes: 512 << 10, smoltcp_ingress_batch: 64, taut_ingress_batch: 16 };
    let mut run = Run {
        stacks,
        rounds: options.rounds,
        span: Duration::from_secs_f64(options.seconds),
        send: tuning,
        receive: tuning,
        report: Report::default(),
        progress,
    };
    for measurement in only {
        match measurement {
            Measurement::Send => {
                run.tune_smoltcp(&options, Task::Send)?;
                run.bulk_send();
            }
            Measurement::Receive => {
                run.tune_smoltcp(&options, Task::Receive)?;
                run.bulk_receive();
            }
            Measurement::Latency => run.latency(),
            Measurement::Connections => run.connections(),
            Measurement::Idle => run.idle(),
            Measurement::Pair => run.pair(),
        }
    }
    run.progress.finish_and_clear();
    run.report.notes.push(format!(
        "largest disturbance in a measurement that counts: {:.2} cores used by others",
        measure::worst_disturbance()
    ));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&run.report)?);
    } else {
        run.report.print();
    }
    // The errors are in the report already.
    if !run.report.errors.is_empty() {
        std::process::exit(1);
    }
    Ok(())
}
