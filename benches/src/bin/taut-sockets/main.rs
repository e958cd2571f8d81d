//! `taut-sockets`: what taut's sockets cost and achieve beside the kernel's, with the aims that the project
//! has for them.
//!
//! `benches/README.md` explains each row.

mod by_hand;
mod job;
mod peers;
mod rows;
mod table;
mod tasks;
mod threads;
mod turns;

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use taut_bench::stacks::{Stack, Tuning};
use taut_bench::{alloc, measure};

use job::{Form, Hang, Settings};
use rows::{Contest, Row};
use table::Table;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Measures taut's loop, blocking sockets and tokio sockets beside the kernel's, and compares them with the
/// aims.
///
/// taut is on a TUN, the kernel on a veth pair, with an MTU of 1500 and with cubic on both sides; the peer is
/// always the kernel. No thread has a priority, and none is pinned, except in rows on one core, where the
/// whole process is. Needs root, or a kernel that lets users make namespaces, and /dev/net/tun. Leaves
/// nothing behind.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  taut-sockets --only exchange,connections --stacks kernel,blocking\n  \
                  taut-sockets --rounds 1 --seconds 0.3 --attempts 1    (to see that it runs)"
)]
struct Options {
    /// Rows to measure; all by default
    #[arg(long, value_delimiter = ',')]
    only: Vec<Row>,
    /// Stacks to measure, by a part of their names: kernel, kernel tokio, taut loop, taut blocking, taut
    /// tokio, least over TUN
    #[arg(long, value_delimiter = ',')]
    stacks: Vec<String>,
    /// Only measurements whose title contains this text, such as "opened by 4"
    #[arg(long, value_name = "TEXT")]
    titled: Option<String>,
    /// How many times each stack is measured, taking turns with the others
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often a measurement is made at most, if other processes use more than a fifth of a core during it
    #[arg(long, default_value_t = measure::ATTEMPTS)]
    attempts: u32,
    /// Threads of a tokio runtime; with two shards there are at least two
    #[arg(long, default_value_t = 1)]
    tokio_workers: usize,
    /// A setting of taut's stacks, such as taut.pacing=off, instead of the default
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    sysctl: Vec<(String, String)>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// The state of a run.
struct Run {
    settings: Settings,
    rounds: u32,
    table: Table,
    progress: ProgressBar,
}

impl Run {
    fn fail(&mut self, what: &str, error: anyhow::Error) -> Result<()> {
        let text = format!("{what}: {error:#}");
        if !self.table.errors.contains(&text) {
            self.table.errors.push(text);
        }
        if error.is::<Hang>() { Err(error) } else { Ok(()) }
    }

    /// Measures the variants one after the other, round after round, so that noise affects all of them alike.
    /// Fails only if the run has to stop.
    fn contest(&mut self, contest: &Contest) -> Result<()> {
        for round in 1..=self.rounds {
            for variant in &contest.variants {
                let (title, label) = (&contest.title, &variant.label);
                self.progress.set_message(format!("{title}: {label} ({round}/{})", self.rounds));
                match job::measure(variant.form, &variant.job, &self.settings) {
                    Ok(outcome) => rows::record(&mut self.table, contest, variant, &outcome),
                    Err(error) => self.fail(title, error)?,
                }
                self.progress.inc(1);
            }
        }
        Ok(())
    }

    /// Counted, not timed: one round is enough.
    fn memory(&mut self, forms: &[Form]) -> Result<()> {
        let tuning =
            Tuning { smoltcp_buffer_bytes: 4 << 10, smoltcp_ingress_batch: 1, taut_ingress_batch: 16 };
        for &form in forms {
            self.progress.set_message(format!("idle connections: {}", form.name()));
            match measure::idle_bytes(stack(form), &tuning) {
                Ok(bytes) => rows::record_memory(&mut self.table, form, bytes),
                Err(error) => self.fail("idle connections", error.context(form.name()))?,
            }
            self.progress.inc(1);
        }
        Ok(())
    }
}

/// The same among the stacks of `taut-bench`, which hold idle connections.
fn stack(form: Form) -> Stack {
    match form {
        Form::Kernel | Form::KernelTokio | Form::Least => Stack::Kernel,
        Form::Loop => Stack::TautLoop,
        Form::Blocking => Stack::TautBlocking,
        Form::Tokio => Stack::TautTokio,
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    taut_testbed::allow_namespaces()?;
    if !(options.seconds > 0.0 && options.seconds < 3_600.0 && options.rounds > 0 && options.attempts > 0) {
        bail!("--seconds, --rounds and --attempts must be positive");
    }
    let wanted = |form: Form| {
        options.stacks.is_empty() || options.stacks.iter().any(|part| form.name().contains(part.as_str()))
    };
    if !Form::ALL.into_iter().any(wanted) {
        bail!("unknown stack; choose from: {}", Form::ALL.map(Form::name).join(", "));
    }
    // A socket for each of 9,000 connections, at both ends.
    measure::raise_descriptor_limit();

    let only = if options.only.is_empty() { Row::ALL.to_vec() } else { options.only.clone() };
    let mut contests: Vec<Contest> = only.iter().flat_map(|&row| rows::contests(row)).collect();
    if let Some(text) = &options.titled {
        contests.retain(|contest| contest.title.contains(text.as_str()));
        if contests.is_empty() {
            bail!("no measurement's title contains {text:?}");
        }
    }
    for contest in &mut contests {
        contest.variants.retain(|variant| wanted(variant.form));
    }
    // An idle connection of the kernel's is the same whoever holds it.
    let held =
        [Form::Kernel, Form::Loop, Form::Blocking, Form::Tokio].into_iter().filter(|&form| wanted(form));
    let held: Vec<Form> = if only.contains(&Row::Memory) { held.collect() } else { Vec::new() };
    let timed: usize = contests.iter().map(|contest| contest.variants.len()).sum();

    let progress = ProgressBar::new(timed as u64 * u64::from(options.rounds) + held.len() as u64);
    progress.set_style(ProgressStyle::with_template("[{elapsed_precise}] {wide_bar} {pos}/{len} {msg}")?);
    let mut run = Run {
        settings: Settings {
            span: Duration::from_secs_f64(options.seconds),
            attempts: options.attempts,
            workers: options.tokio_workers,
            sysctls: options.sysctl.clone(),
        },
        rounds: options.rounds,
        table: Table::default(),
        progress,
    };
    let notes = notes(&options)?;
    let measured = (|| {
        let mut memory_is_due = !held.is_empty();
        for &row in &only {
            if row == Row::Memory && std::mem::take(&mut memory_is_due) {
                run.memory(&held)?;
            }
            contests
                .iter()
                .filter(|contest| contest.row == row)
                .try_for_each(|contest| run.contest(contest))?;
        }
        anyhow::Ok(())
    })();
    run.progress.finish_and_clear();
    // Why a run stopped early is among the table's errors.
    let complete = measured.is_ok() && run.table.errors.is_empty();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&run.table.json(&notes))?);
    } else {
        println!("{}", run.table.text(&notes));
    }
    if !complete {
        std::process::exit(1);
    }
    Ok(())
}

/// Notes for the reader of the figures.
fn notes(options: &Options) -> Result<Vec<String>> {
    let Options { rounds, seconds, tokio_workers, sysctl, .. } = options;
    let cores = std::thread::available_parallelism()?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let taut = if sysctl.is_empty() {
        "taut has its default options".to_owned()
    } else {
        let all: Vec<String> = sysctl.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("taut has its default options, except {}", all.join(", "))
    };
    Ok(vec![
        format!(
            "Linux {}, {cores} cores, no priorities; {rounds} rounds of {seconds} s, stacks in turn",
            release.trim()
        ),
        format!("kernel: veth; taut: TUN; MTU 1500, cubic on both sides; {taut}"),
        format!("tokio: {tokio_workers} thread(s), with two shards at least two"),
        "others: the most cores that other processes used during a measurement; ratios are of medians"
            .to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Options::command().debug_assert();
        let parsed = Options::try_parse_from(["taut-sockets", "--only", "bulk,held", "--sysctl", "a=b=c"]);
        let Ok(parsed) = parsed else { panic!("refused") };
        assert_eq!(parsed.only, [Row::Bulk, Row::Held]);
        assert_eq!(parsed.sysctl, [("a".to_owned(), "b=c".to_owned())]);
    }

    #[test]
    fn a_setting_is_a_name_and_a_value() {
        assert_eq!(setting("taut.pacing=off").unwrap(), ("taut.pacing".to_owned(), "off".to_owned()));
        assert!(setting("taut.pacing").is_err());
        assert!(setting("=1").is_err());
    }
}
