//! The command of the lab: `taut lab` is a call of it, and so is a program with congestion controls of its author's own,
//! by [`main_with`].
//!
//! | file | has |
//! |---|---|
//! | `scenarios.rs`, `controllers.rs` | `list`, `controllers`: what can be named |
//! | `run.rs`, `sweep.rs`; `watch.rs` | the runs; options that both have, progress, Ctrl-C |
//! | `plot.rs` | the pictures of a run |
//! | `output.rs`, `interrupt.rs`, `date.rs` | what a command needs of the system |

mod controllers;
mod date;
pub mod interrupt;
pub mod output;
pub mod plot;
mod run;
mod scenarios;
mod sweep;
mod watch;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use taut_core::congestion::{Definition, Registry};

use interrupt::Interrupted;
use plot::PlotArgs;
use run::RunArgs;
use sweep::SweepArgs;

/// Runs experiments, and prints them beside the figures that were published.
#[derive(Args, Debug)]
#[command(
    long_about = "Runs experiments, and prints them beside the figures that were published.\n\n\
        A scenario is a file: a link, hosts, flows, and variants that are compared. Those that come with the program \
        reproduce, in a simulator that runs this very stack, what the commits measured that brought the mechanisms of \
        the send path to Linux. Runs are repeatable: the same scenario with the same seed is the same run.",
    after_help = "Example:\n  taut lab list\n  taut lab run\n  taut lab run tsq --set link.rate=10gbit --seeds 5 --json\n  \
        taut lab run ./my.toml --out results\n  taut lab sweep grid.toml"
)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// Names the scenarios that come with the program
    #[command(after_help = "Example:\n  taut lab list")]
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Names the congestion controls that a scenario may use, with their parameters
    #[command(
        after_help = "Example:\n  taut lab controllers\n  taut lab run single-flow --set congestion=prague\n\n\
        A parameter is a part of the text, as in congestion=NAME:PARAM=VALUE,PARAM=VALUE, and a value of its own for --set \
        and sweeps: congestion.PARAM=VALUE."
    )]
    Controllers {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Runs scenarios: the five published results without any name
    #[command(after_help = "Example:\n  taut lab run\n  taut lab run tsq pacing --seeds 5\n  \
        taut lab run single-flow --set link.rate=1gbit --set flows.0.count=4\n\n\
        A directory is left for each scenario, with its tables, a report to open in a browser, and of each variant's \
        first seed every event, ACK, interval and packet; docs/lab.md describes them.")]
    Run(RunArgs),
    /// Runs a scenario at every combination of changes
    #[command(
        after_help = "Example, with a file grid.toml:\n  scenario = \"single-flow\"\n  variants = [\"cubic\"]\n  \
        axes = [\n    [\"link.rate=10mbit\", \"link.rate=100mbit\"],\n    [\"link.delay=1ms\", \"link.delay=50ms\"],\n  ]\n\n  \
        taut lab sweep grid.toml --out results"
    )]
    Sweep(SweepArgs),
    Plot(PlotArgs),
}

/// Runs `taut lab`, with scenarios that may name these congestion controls.
///
/// # Errors
/// When a scenario is none, a run fails, or files cannot be written.
pub fn run(args: &LabArgs, controllers: &Registry) -> anyhow::Result<()> {
    match &args.command {
        LabCommand::List { json } => scenarios::list(*json),
        LabCommand::Controllers { json } => controllers::list(controllers, *json),
        LabCommand::Run(args) => run::run(args, controllers),
        LabCommand::Sweep(args) => sweep::sweep(args, controllers),
        LabCommand::Plot(args) => plot::run(args),
    }
}

/// The lab as a program of its own.
#[derive(Parser, Debug)]
struct Program {
    #[command(flatten)]
    args: LabArgs,
}

/// A whole `main`: the lab's command with congestion controls of your own beside those built in. All of it takes them by
/// name, with parameters: scenarios and sweeps, simulated and live, reports and pictures.
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
///     taut_lab::main_with(&[mine])
/// }
/// ```
///
/// Then `my-lab run single-flow --set congestion=mine:gain=2.5`. Exit codes are those of `taut`: 0 success, 1 failure, 2
/// wrong usage, 130 interrupted.
#[must_use]
pub fn main_with(definitions: &[Definition]) -> ExitCode {
    main_of(definitions, renamed, |program: &Program, controllers| run(&program.args, controllers))
}

/// A whole `main` of a command `P`, with these congestion controls beside those built in. `renamed` puts this program's
/// name in an example, in the place of the one that it is written for.
pub fn main_of<P: Parser>(
    definitions: &[Definition],
    renamed: impl Fn(&str, &str) -> String,
    run: impl FnOnce(&P, &Registry) -> anyhow::Result<()>,
) -> ExitCode {
    let name = program();
    let mut controllers = Registry::default();
    for definition in definitions {
        if let Err(error) = controllers.add(definition.clone()) {
            return exit_code(&name, Err(error.into()));
        }
    }
    let matches = with_examples(P::command(), &|help| renamed(help, &name)).get_matches();
    let result = match P::from_arg_matches(&matches) {
        Ok(program) => run(&program, &controllers),
        Err(error) => error.exit(),
    };
    exit_code(&name, result)
}

fn renamed(help: &str, name: &str) -> String {
    help.replace("taut lab", name).replace("taut plot", &format!("{name} plot"))
}

/// What a command's result is for who started it; errors go to standard error.
#[must_use]
pub fn exit_code(program: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("{program}: interrupted");
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What this program is called.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().map_or_else(|| "lab".into(), |name| name.to_string_lossy().into_owned())
}

/// The command with its examples changed.
fn with_examples(mut command: clap::Command, renamed: &dyn Fn(&str) -> String) -> clap::Command {
    if let Some(help) = command.get_after_help() {
        let help = renamed(&help.to_string());
        command = command.after_help(help);
    }
    command.mut_subcommands(|part| with_examples(part, renamed))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn a_program_has_examples_of_its_own_and_json_everywhere() {
        let command = with_examples(Program::command(), &|help| renamed(help, "mylab"));
        command.clone().debug_assert();
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, ["list", "controllers", "run", "sweep", "plot"]);
        for part in command.get_subcommands() {
            let help = part.clone().render_long_help().to_string();
            assert!(help.contains("Example") && help.contains("--json"), "{help}");
            assert!(help.contains(&format!("mylab {}", part.get_name())), "{help}");
            assert!(!help.contains("taut lab") && !help.contains("taut plot"), "{help}");
        }
    }
}
