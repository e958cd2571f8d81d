//! A file of options for `taut gateway` and `taut proxy`: at a documented place, or `--config FILE`.
//!
//! Its keys are the names of long options. They become arguments in front of those of the command line, so
//! that one parser judges both. An option of the command line replaces that of the file. Called by `exit.rs`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use toml::de::{DeTable, DeValue};

/// The configuration file of a command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Operation")]
pub(crate) struct ConfigArgs {
    /// Options in TOML, by their long names [default: see below]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read no configuration file
    #[arg(id = "no-config", long, conflicts_with = "config")]
    _no_config: bool,
}

/// Keys of a gateway's file that are not options: `gateway_config.rs` reads them.
const TABLES: [&str; 4] = ["rule", "rules", "limits", "timeouts"];
/// Options that a file cannot have.
const NOT_IN_FILES: [&str; 4] = ["config", "no-config", "help", "version"];

/// The arguments of the command line, behind those of the command's configuration file if there is one; and
/// that file.
///
/// # Errors
/// The file cannot be read, or has a key that is no option.
pub(crate) fn arguments(
    command: &Command,
    given: Vec<OsString>,
) -> anyhow::Result<(Vec<OsString>, Option<PathBuf>)> {
    let name = given.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let Some(part) = command.find_subcommand(name).filter(|part| has(part, "no-config")) else {
        return Ok((given, None));
    };
    let lenient = lenient(part).try_get_matches_from(&given[1..]);
    // Help, which needs no file.
    let Ok(own) = &lenient else { return Ok((given, None)) };
    let asked = own.get_one::<OsString>("config").map(PathBuf::from);
    let Some(path) = asked.clone().or_else(|| (!own.get_flag("no-config")).then(|| usual(name)).flatten())
    else {
        return Ok((given, None));
    };
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let of_file = options(part, own, &text).with_context(|| path.display().to_string())?;
    let mut all = given[..2].to_vec();
    if asked.is_none() {
        all.extend([OsString::from("--config"), path.clone().into()]);
    }
    all.extend(of_file);
    all.extend_from_slice(&given[2..]);
    Ok((all, Some(path)))
}

/// The command for a first look: which options there are. To read a value may have an effect, such as to take
/// it from standard input: that is left to the second look.
fn lenient(part: &Command) -> Command {
    part.clone().ignore_errors(true).mut_args(|option| match option.get_action().takes_values() {
        true => option.value_parser(clap::builder::ValueParser::os_string()),
        false => option,
    })
}

fn has(part: &Command, long: &str) -> bool {
    part.get_arguments().any(|option| option.get_long() == Some(long))
}

/// The first that exists: `$XDG_CONFIG_HOME/taut/NAME.toml`, with `~/.config` as the default, or
/// `/etc/taut/NAME.toml`.
fn usual(name: &str) -> Option<PathBuf> {
    let home = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let own = home("XDG_CONFIG_HOME").or_else(|| home("HOME").map(|home| home.join(".config")));
    let places = own.into_iter().chain([PathBuf::from("/etc")]);
    places.map(|place| place.join("taut").join(format!("{name}.toml"))).find(|path| path.exists())
}

/// The options in a file, as arguments; without those that the command line has.
fn options(part: &Command, own: &ArgMatches, text: &str) -> anyhow::Result<Vec<OsString>> {
    let whole = DeTable::parse(text)?;
    // Groups are complete when a command is built.
    let mut built = part.clone();
    built.build();
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let mut all = Vec::new();
    for (key, value) in whole.get_ref() {
        let (name, at) = (key.get_ref().as_ref(), line(key.span().start));
        if TABLES.contains(&name) && has(part, "show-rules") {
            continue;
        }
        let option = part.get_arguments().find(|option| option.get_long() == Some(name));
        let Some(option) = option.filter(|_| !NOT_IN_FILES.contains(&name)) else {
            bail!("line {at}: {name} is not an option; `taut {} --help` lists them", part.get_name());
        };
        let texts = texts(value.get_ref()).with_context(|| format!("line {at}: {name}"))?;
        if is_given(&built, own, option) {
            continue;
        }
        let is_flag = !option.get_action().takes_values();
        for text in texts {
            match (is_flag, &*text) {
                (true, "true") => all.push(format!("--{name}").into()),
                (true, "false") => {}
                (true, _) => bail!("line {at}: {name} is true or false, not {text}"),
                (false, _) => all.push(format!("--{name}={text}").into()),
            }
        }
    }
    Ok(all)
}

/// Whether the command line has the option, or another one that excludes it.
fn is_given(part: &Command, own: &ArgMatches, option: &Arg) -> bool {
    let excludes = part.get_groups().filter(|group| {
        !(*group).clone().is_multiple() && group.get_args().any(|member| member == option.get_id())
    });
    let mut rivals: Vec<&str> = excludes.flat_map(clap::ArgGroup::get_args).map(clap::Id::as_str).collect();
    rivals.push(option.get_id().as_str());
    rivals
        .into_iter()
        .any(|id| own.try_contains_id(id).is_ok() && own.value_source(id) == Some(ValueSource::CommandLine))
}

/// A value, or those of an array.
fn texts(value: &DeValue<'_>) -> anyhow::Result<Vec<String>> {
    Ok(match value {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Integer(number) => vec![number.as_str().replace('_', "")],
        DeValue::Float(number) => vec![number.as_str().replace('_', "")],
        DeValue::Boolean(is) => vec![is.to_string()],
        DeValue::Array(values) => {
            let all =
                values.iter().map(|value| texts(value.get_ref())).collect::<anyhow::Result<Vec<_>>>()?;
            all.concat()
        }
        _ => bail!("must be a text, a number, true or false, or an array of them"),
    })
}

/// Refuses a file that has a key which is neither an option of this command nor read elsewhere.
///
/// # Errors
/// The line of the first such key.
pub(crate) fn check(part: &Command, text: &str) -> anyhow::Result<()> {
    let none = lenient(part).try_get_matches_from([part.get_name()])?;
    options(part, &none, text).map(|_| ())
}
