//! Help of the command: the groups of `taut --help`, `taut man` and `taut completions`.
//!
//! Called by `lib.rs`, with the description of the whole command.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::shared::exit::program;
use crate::shared::output;

/// The commands by what they are for. A test compares them with those that there are.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["demo", "compare", "send", "recv", "serve", "get", "rpm"]),
    ("Observe running stacks", &["ss", "nstat", "explain", "top", "dash", "metrics", "replay"]),
    ("Change running stacks", &["sysctl", "qdisc", "addr", "route", "mtu"]),
    ("Network for other programs", &["gateway", "proxy", "wg"]),
    ("Study", &["lab", "plot", "packetdrill"]),
    ("Shell", &["man", "completions"]),
];

/// The command with its subcommands in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut list = String::new();
    for (title, names) in GROUPS {
        list += &format!("{header}{title}:{header:#}\n");
        for part in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = part.get_about().map(ToString::to_string).unwrap_or_default();
            list += &format!("  {literal}{:<11}{literal:#}  {about}\n", part.get_name());
        }
        list.push('\n');
    }
    let template =
        "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";
    command.before_help(list.trim_end().to_owned()).help_template(template)
}

/// Prints a manual page, or writes all of them
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  taut man | man -l -\n  taut man gateway | man -l -\n  \
    taut man --output /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The command, such as gateway or lab run [default: taut itself]
    #[arg(conflicts_with = "output")]
    command: Vec<String>,
    /// Write the pages of all commands to this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Runs `taut man`.
///
/// # Errors
/// When there is no such command, or the directory cannot be written.
pub(crate) fn man(args: &ManArgs, mut whole: Command) -> anyhow::Result<()> {
    if let Some(dir) = &args.output {
        let failed = || format!("cannot write the pages to {}", dir.display());
        std::fs::create_dir_all(dir).with_context(failed)?;
        return clap_mangen::generate_to(whole, dir).with_context(failed);
    }
    whole = whole.disable_help_subcommand(true);
    whole.build();
    let mut of = &whole;
    for name in &args.command {
        let unknown = || format!("{} has no command {name}; {} --help lists them", of.get_name(), program());
        of = of.find_subcommand(name).with_context(unknown)?;
    }
    let mut page = Vec::new();
    Man::new(of.clone()).render(&mut page)?;
    output::print(&String::from_utf8_lossy(&page))
}

/// Prints a script that completes commands and options in a shell
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    taut completions bash > ~/.local/share/bash-completion/completions/taut\n  \
    taut completions zsh > ~/.zfunc/_taut      # a directory of fpath\n  \
    taut completions fish > ~/.config/fish/completions/taut.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs `taut completions`.
///
/// # Errors
/// Those of standard output.
pub(crate) fn completions(args: &CompletionsArgs, mut whole: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut whole, program(), &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let command = crate::Cli::command();
        let there: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let once: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(once.len(), listed.len(), "a command is in two groups: {listed:?}");
        // `top` is a feature.
        let [there, once] = [there, once].map(|names| &names - &BTreeSet::from(["top"]));
        assert_eq!(there, once);
    }
}
