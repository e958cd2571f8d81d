//! `taut lab` and `taut plot`: the commands of the library `taut-lab`; also as a program of their own with
//! its author's congestion controls, through [`main_with`]. And packet scripts.
//!
//! | file | has |
//! |---|---|
//! | `scenarios.rs`, `controllers.rs` | `list`, `controllers`, `metrics`: the names that can be used |
//! | `new.rs` | `new`, `schema`: a file to begin with, and a schema for editors |
//! | `run.rs`, `sweep.rs`; `watch.rs` | the runs; the options that both share, progress, Ctrl-C |
//! | `worlds.rs` | random worlds |
//! | `plot.rs` | the pictures of a run |
//! | `packetdrill.rs` | `taut packetdrill` |

mod controllers;
mod new;
pub(crate) mod packetdrill;
pub(crate) mod plot;
mod run;
mod scenarios;
mod sweep;
mod watch;
mod worlds;

use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use taut_core::congestion::{Definition, Registry};

use crate::shared::exit::main_of;

use new::{NewArgs, SchemaArgs};
use plot::PlotArgs;
use run::RunArgs;
use sweep::SweepArgs;
use worlds::WorldsArgs;

/// Runs experiments and prints the results beside published figures.
#[derive(Args, Debug)]
#[command(
    long_about = "Runs experiments and prints the results beside published figures.\n\n\
        A scenario is a file: a link, hosts, flows, and variants to compare. Five built-in scenarios reproduce \
        measurements from the Linux commits that introduced the mechanisms of the send path; the simulator runs this \
        same stack. Runs are repeatable: the same scenario with the same seed gives the same run.",
    after_help = "Example:\n  taut lab list\n  taut lab run\n  taut lab run tsq --set link.rate=10gbit --seeds 5 --json\n  \
        taut lab run ./my.toml --out results\n  taut lab sweep grid.toml"
)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Lists the built-in scenarios
    #[command(after_help = "Example:\n  taut lab list")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Lists the congestion controls and their parameters
    #[command(
        after_help = "Example:\n  taut lab controllers\n  taut lab run single-flow --set congestion=prague\n\n\
        Parameters follow the name, as in congestion=NAME:PARAM=VALUE,PARAM=VALUE. --set and sweeps can also change \
        one parameter: congestion.PARAM=VALUE."
    )]
    Controllers {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Lists what a scenario may measure, with units
    #[command(after_help = "Example:\n  taut lab metrics\n  taut lab metrics --json")]
    Metrics {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Writes a scenario file with every key, its range and default
    #[command(after_help = "Example:\n  taut lab new my.toml\n  taut lab run my.toml")]
    New(NewArgs),
    /// Prints a JSON schema of scenarios, for editors
    #[command(after_help = "Example:\n  taut lab schema > scenario.schema.json\n\n\
        Editors with TOML support use it for a file whose first line is: #:schema ./scenario.schema.json")]
    Schema(SchemaArgs),
    /// Runs scenarios: by default the five with published results
    #[command(after_help = "Example:\n  taut lab run\n  taut lab run tsq pacing --seeds 5\n  \
        taut lab run single-flow --set link.rate=1gbit --set flows.0.count=4\n  \
        taut lab run tsq pacing --live --device packet\n\n\
        Each scenario gets a directory with its tables, a report to open in a browser, and, for the first seed of each \
        variant, its events, ACKs, intervals and packets; docs/reference/lab.md describes the files.")]
    Run(RunArgs),
    /// Runs a scenario with every combination of changes
    #[command(
        after_help = "Example, with a file grid.toml:\n  scenario = \"single-flow\"\n  variants = [\"cubic\"]\n  \
        axes = [\n    [\"link.rate=10mbit\", \"link.rate=100mbit\"],\n    [\"link.delay=1ms\", \"link.delay=50ms\"],\n  ]\n\n  \
        taut lab sweep grid.toml --out results\n  \
        taut lab sweep grid.toml --out results --ray 10.0.0.1:6379"
    )]
    Sweep(SweepArgs),
    /// Runs random worlds, each from a seed, and checks that no byte is lost
    #[command(after_help = "Example:\n  taut lab worlds --seeds 10000 -j 2\n  taut lab worlds --seed 42\n  \
        taut lab worlds --seed 42 --without loss,mtu\n\n\
        A seed makes a network, its faults, its settings and its applications. A world that fails is printed with the \
        command that repeats it, and with a smaller one that fails in the same way.")]
    Worlds(WorldsArgs),
    Plot(PlotArgs),
}

/// Runs `taut lab`, with scenarios that may name these congestion controls.
///
/// # Errors
/// When a scenario is invalid, a run fails, or files cannot be written.
pub fn run(args: &LabArgs, controllers: &Registry) -> anyhow::Result<()> {
    match &args.command {
        LabCommand::List { json } => scenarios::list(*json),
        LabCommand::Controllers { json } => controllers::list(controllers, *json),
        LabCommand::Metrics { json } => scenarios::metrics(*json),
        LabCommand::New(args) => new::new(args),
        LabCommand::Schema(args) => new::print_schema(args),
        LabCommand::Run(args) => run::run(args, controllers),
        LabCommand::Sweep(args) => sweep::sweep(args, controllers),
        LabCommand::Worlds(args) => worlds::worlds(args),
        LabCommand::Plot(args) => plot::run(args),
    }
}

/// The lab as a separate program.
#[derive(Parser, Debug)]
struct Program {
    #[command(flatten)]
    args: LabArgs,
}

/// A whole `main`: the lab's command with your congestion controls beside the built-in ones. Every part
/// accepts them by name, with parameters: scenarios and sweeps, simulated and live, reports and pictures.
///
/// ```no_run
/// # use taut_core::congestion::{AckEvent, Controller, Signal, Window};
/// use taut_core::congestion::Definition;
/// # #[derive(Debug)]
/// # struct Mine { gain: f64 }
/// # impl Controller for Mine {
/// #     fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {}
/// #     fn reduce(&mut self, window: &Window, _: Signal, _: taut_core::Instant) -> u32 { window.cwnd() / 2 }
/// # }
///
/// fn main() -> std::process::ExitCode {
///     let mine = Definition::new("mine", |params| Mine { gain: params.get("gain") })
///         .param("gain", 2.0, 1.0..=4.0, "how much faster than delivered to send");
///     taut_cli::lab::main_with(&[mine])
/// }
/// ```
///
/// Then `my-lab run single-flow --set congestion=mine:gain=2.5`. Exit codes are those of `taut`: 0 success, 1
/// failure, 2 wrong usage, 130 interrupted.
#[must_use]
pub fn main_with(definitions: &[Definition]) -> ExitCode {
    let run = |program: &Program, controllers: &Registry| run(&program.args, controllers);
    main_of(definitions, Program::command(), renamed, run)
}

fn renamed(help: &str, name: &str) -> String {
    help.replace("taut lab", name).replace("taut plot", &format!("{name} plot"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::exit::with_examples;

    #[test]
    fn a_program_has_examples_of_its_own_and_json_everywhere() {
        let command = with_examples(Program::command(), &|help| renamed(help, "mylab"));
        command.clone().debug_assert();
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(
            names,
            ["list", "controllers", "metrics", "new", "schema", "run", "sweep", "worlds", "plot"]
        );
        for part in command.get_subcommands() {
            let help = part.clone().render_long_help().to_string();
            assert!(help.contains("Example") && help.contains("--json"), "{help}");
            assert!(help.contains(&format!("mylab {}", part.get_name())), "{help}");
            assert!(!help.contains("taut lab") && !help.contains("taut plot"), "{help}");
        }
    }
}
