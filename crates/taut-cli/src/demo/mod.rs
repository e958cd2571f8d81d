//! `taut demo`: in a minute, what taut is for. An uplink and a bad line beside the kernel, the published
//! results simulated, and what it costs; as bars, as a page, as JSON.
//!
//! | file | |
//! |---|---|
//! | `scenarios.rs` | the uplink, and the five results: scenarios of the lab |
//! | `line.rs` | curl over a bad line, directly and by `taut proxy` |
//! | `cost.rs`, `least.rs` | sockets, and packets made by hand over a TUN, which are the limit |
//! | `smoltcp.rs` | the same work by smoltcp, where its benchmark is built |
//! | `part.rs`, `page.rs` | what was found, for a terminal and for a browser |
//!
//! The detailed comparison with the kernel's sockets is `taut compare`.

mod cost;
mod least;
mod line;
mod page;
mod part;
mod scenarios;
mod smoltcp;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use taut_testbed::allow_namespaces;

use crate::shared::clock::Stopwatch;
use crate::shared::interrupt::{self, Interrupted};
use crate::shared::{output, progress};
use part::Part;
use scenarios::Runs;

/// Shows in a minute what taut is for, beside the kernel
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  taut demo\n  taut demo --only line --seconds 20\n  taut demo --json > demo.json\n\n\
        It runs in network namespaces of its own, as root or as an ordinary user, and leaves only its page\n\
        behind. The SHA-256 of what curl and the sockets move is compared at the other end."
)]
pub(crate) struct DemoArgs {
    /// Run only these parts
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<Name>,
    /// Length of a run of the uplink; the line takes twice as long, the cost a sixteenth
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0, value_parser = seconds)]
    seconds: f64,
    /// The page with the pictures
    #[arg(long, value_name = "FILE", default_value = "taut-demo.html")]
    page: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "page")]
    no_page: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// The parts, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// An upload and a ping over an uplink with a deep queue
    Uplink,
    /// curl over a line that loses packets
    Line,
    /// The five published results, simulated
    Published,
    /// Processor time, latency, connections
    Cost,
}

impl Name {
    const ALL: [Self; 4] = [Self::Uplink, Self::Line, Self::Published, Self::Cost];

    const fn title(self) -> &'static str {
        match self {
            Self::Uplink => "your uplink: four senders",
            Self::Line => "your bad line: three uploads",
            Self::Published => "five published results",
            Self::Cost => "what it costs: three senders in turns",
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (1.0..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 1 to 600".to_owned()),
    }
}

/// Becomes true when a signal ends the process.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Runs `taut demo`.
///
/// # Errors
/// When a part fails; the others have been shown.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let watch = Stopwatch::start();
    // Before anything starts a thread: an ordinary user can enter a user namespace only then.
    let namespaces = allow_namespaces();
    interrupt::when_asked(|| ENDED.store(true, Ordering::Relaxed))?;
    let names: Vec<Name> =
        Name::ALL.into_iter().filter(|name| args.only.is_empty() || args.only.contains(name)).collect();
    let bar = progress::parts();
    let (mut parts, mut failures): (Vec<Part>, Vec<String>) = (Vec::new(), Vec::new());
    for (number, &name) in names.iter().enumerate() {
        bar.set_prefix(format!("{}/{} {}", number + 1, names.len(), name.title()));
        if let (Err(error), true) = (&namespaces, name != Name::Published) {
            failures.push(format!("{}: {error}. Run it as root.", name.title()));
            continue;
        }
        let part = match name {
            Name::Uplink => Runs { bar: &bar, ended: &ENDED }.uplink(args.seconds),
            Name::Line => line::line(Duration::from_secs_f64(args.seconds * 2.0), &bar, &ENDED),
            Name::Published => Runs { bar: &bar, ended: &ENDED }.published(),
            Name::Cost => cost::cost(Duration::from_secs_f64(args.seconds / 16.0), &bar),
        };
        match part {
            Ok(part) => {
                if !args.json {
                    bar.suspend(|| output::print(&format!("{}\n", part.text())))?;
                }
                parts.push(part);
            }
            Err(error) if error.is::<Interrupted>() || ENDED.load(Ordering::Relaxed) => {
                bar.finish_and_clear();
                return Err(Interrupted.into());
            }
            Err(error) => failures.push(format!("{}: {error:#}", name.title())),
        }
    }
    bar.finish_and_clear();
    let page = (!args.no_page && !parts.is_empty()).then_some(&args.page);
    if let Some(page) = page {
        std::fs::write(page, page::page(&parts))
            .with_context(|| format!("{}: choose another place with --page FILE", page.display()))?;
    }
    let took = watch.elapsed().as_secs_f64();
    if args.json {
        let value =
            serde_json::json!({ "parts": parts, "failures": failures, "page": page, "seconds": took });
        output::print_json(&value)?;
    } else if let Some(page) = page {
        output::print(&format!("In {took:.0} s. With pictures: {}\n", page.display()))?;
    }
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n  "));
    Ok(())
}
