//! A whole `main`: arguments read, congestion controls registered, the result turned into an exit code.
//!
//! Called by `taut` itself, and by the lab as a program of its own.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use taut_core::congestion::{Definition, Registry};

use crate::shared::config_file;
use crate::shared::interrupt::{EXIT_CODE, Interrupted};
use crate::shared::log::{self, Level};
use crate::shared::output::ReaderGone;

/// A whole `main` of a command `P`, described by `command`, with these congestion controls beside those built
/// in. `renamed` puts this program's name in an example, in the place of the one that it is written for.
pub(crate) fn main_of<P: Parser>(
    definitions: &[Definition],
    command: clap::Command,
    renamed: impl Fn(&str, &str) -> String,
    run: impl FnOnce(&P, &Registry) -> anyhow::Result<()>,
) -> ExitCode {
    main_by(std::env::args_os().collect(), definitions, command, renamed, run)
}

/// The same with these arguments.
pub(crate) fn main_by<P: Parser>(
    given: Vec<OsString>,
    definitions: &[Definition],
    command: clap::Command,
    renamed: impl Fn(&str, &str) -> String,
    run: impl FnOnce(&P, &Registry) -> anyhow::Result<()>,
) -> ExitCode {
    let name = program();
    let mut controllers = Registry::default();
    for definition in definitions {
        if let Err(error) = controllers.add(definition.clone()) {
            return exit_code(Err(error.into()));
        }
    }
    let command = with_examples(command, &|help| renamed(help, &name));
    let (arguments, file) = match config_file::arguments(&command, given) {
        Ok(arguments) => arguments,
        Err(error) => return exit_code(Err(error)),
    };
    let parsed = command.try_get_matches_from(arguments).and_then(|found| P::from_arg_matches(&found));
    match parsed {
        Ok(program) => exit_code(run(&program, &controllers)),
        Err(error) => {
            if let Some(file) = file.filter(|_| error.use_stderr()) {
                eprintln!("{name}: with the options of {}:", file.display());
            }
            error.exit()
        }
    }
}

/// Turns a command's result into an exit code; errors go to standard error.
#[must_use]
pub(crate) fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    let code = code_of(result);
    log::finish();
    code
}

fn code_of(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            log::notice(Level::Info, "interrupted", "interrupted");
            ExitCode::from(EXIT_CODE)
        }
        Err(error) => {
            log::last(&error);
            ExitCode::FAILURE
        }
    }
}

/// The name of this program.
pub(crate) fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().map_or_else(|| "lab".into(), |name| name.to_string_lossy().into_owned())
}

/// The command with its examples renamed.
pub(crate) fn with_examples(mut command: clap::Command, renamed: &dyn Fn(&str) -> String) -> clap::Command {
    if let Some(help) = command.get_after_help() {
        let help = renamed(&help.to_string());
        command = command.after_help(help);
    }
    command.mut_subcommands(|part| with_examples(part, renamed))
}
