//! The `taut` command: parses arguments, runs the stack, and prints.
//!
//! | command | file |
//! |---|---|
//! | `taut demo` | `demo.rs`: the table; `arena.rs`: namespaces and links; `workload.rs`: what is measured |
//! | `taut send`, `taut recv` | `transfer.rs` |
//! | `taut serve` | `serve_command.rs`: arguments; `serve.rs`: the file server |
//! | `taut get` | `get.rs` |
//! | `taut ss` | `ss.rs`; `ss_format.rs`: the tokens; `ss_filter.rs`: which connections |
//! | `taut nstat`, `taut sysctl` | `nstat.rs`, `sysctl.rs` |
//! | `taut qdisc` | `qdisc.rs`; `qdisc_format.rs`: as `tc` prints |
//! | `taut explain` | `explain.rs`; `reasons.rs`: the words |
//! | `taut lab`, `taut plot` | `taut-lab`'s `command.rs` |
//!
//! How a stack is built stands in `net.rs`, how `send` and `get` connect in `dial.rs`, the options of its link in `link_args.rs`, those of its control socket, by
//! which the last five commands reach it, in `control_args.rs`.

pub mod arena;
pub mod clock;
pub mod control_args;
pub mod demo;
pub mod dial;
pub mod digest;
pub mod explain;
pub mod get;
pub mod interrupt;
pub mod link_args;
pub mod net;
pub mod nstat;
pub mod progress;
pub mod qdisc;
pub mod qdisc_format;
pub mod serve;
pub mod serve_command;
pub mod ss;
pub mod ss_filter;
pub mod ss_format;
pub mod summary;
pub mod sysctl;
pub mod text;
pub mod transfer;
pub mod transport;
pub mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use taut_core::congestion::Registry;
use taut_lab::command::{self, output};

/// A TCP stack in userspace, on a TUN of your machine.
#[derive(Parser, Debug)]
#[command(
    name = "taut",
    version,
    after_help = "Example:\n  sudo taut demo\n\nEach command shows an example with --help, and prints JSON with --json."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArgs),
    Send(transfer::SendArgs),
    Recv(transfer::RecvArgs),
    Serve(serve_command::ServeArgs),
    Get(get::GetArgs),
    Ss(ss::SsArgs),
    Nstat(nstat::NstatArgs),
    Sysctl(sysctl::SysctlArgs),
    Qdisc(qdisc::QdiscArgs),
    Explain(explain::ExplainArgs),
    Lab(command::LabArgs),
    Plot(command::plot::PlotArgs),
}

/// Runs the command that the arguments say. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Send(args) => transfer::send(&args),
        Command::Recv(args) => transfer::recv(&args),
        Command::Serve(args) => serve_command::run(&args),
        Command::Get(args) => get::get(&args),
        Command::Ss(args) => ss::run(&args),
        Command::Nstat(args) => nstat::run(&args),
        Command::Sysctl(args) => sysctl::run(&args),
        Command::Qdisc(args) => qdisc::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lab(args) => command::run(&args, &Registry::default()),
        Command::Plot(args) => command::plot::run(&args),
    };
    command::exit_code("taut", result)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_json() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{path}");
            assert!(help.contains("--json"), "{path}");
            let json = command.get_arguments().find(|argument| argument.get_id() == "json");
            assert_eq!(
                json.and_then(clap::Arg::get_help_heading),
                None,
                "{path} has --json among its options"
            );
            command.get_subcommands().for_each(|command| check(command, &path));
        }
        Cli::command().get_subcommands().for_each(|command| check(command, "taut"));
    }
}
