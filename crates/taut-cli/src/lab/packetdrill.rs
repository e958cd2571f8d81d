//! `taut packetdrill`: runs packet scripts on this stack, in virtual time.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;
use taut_script::{Config, Failure, IpVersion, Passed, Script, run as run_script};

use crate::shared::clock::Stopwatch;
use crate::shared::output;

/// Runs packet scripts in packetdrill's language, in virtual time.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  taut packetdrill crates/taut-script/scripts\n  \
    taut packetdrill --verbose --ip-version ipv6 retransmission.pkt\n\n\
    A folder stands for all .pkt files in it. Each script runs over both versions of IP, unless it or --ip-version \
    names one. The exit code is 0 if all pass. docs/reference/packets.md describes the language.")]
pub(crate) struct PacketdrillArgs {
    /// Scripts, and folders with scripts
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The version of IP
    #[arg(long, value_enum, default_value_t = Versions::Both)]
    ip_version: Versions,
    /// How far times may differ, in microseconds
    #[arg(long, value_name = "US", default_value_t = 4_000)]
    tolerance_usecs: u64,
    /// Packets must be cut as the script writes them
    #[arg(long)]
    strict_segments: bool,
    /// A name for a value in system calls
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE")]
    defines: Vec<String>,
    /// Any option that a script may have at its top, such as mtu=1400
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Print each event with its time
    #[arg(short, long)]
    verbose: bool,
    /// Print as JSON, one line per script and version
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Versions {
    Ipv4,
    Ipv6,
    Both,
}

/// The result of one script over one version of IP.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    ip_version: &'static str,
    passed: bool,
    /// Virtual seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    output: String,
}

/// Runs `taut packetdrill`.
///
/// # Errors
/// When a file cannot be read, an option is wrong, or a script does not pass.
pub(crate) fn run(args: &PacketdrillArgs) -> anyhow::Result<()> {
    let config = config(args)?;
    let mut files = Vec::new();
    for path in &args.files {
        gather(path, &mut files)?;
    }
    let started = Stopwatch::start();
    let (mut passed, mut failed) = (0, 0);
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file = path.display().to_string();
        let script = Script::parse(&file, &text);
        for version in versions(args.ip_version, script.as_ref().ok()) {
            let result = script.as_ref().map_err(Clone::clone);
            let result = result.and_then(|script| run_script(script, &config.clone().over(version)));
            if result.is_ok() {
                passed += 1;
            } else {
                failed += 1;
            }
            show(args, &file, version, result)?;
        }
    }
    if !args.json {
        output::print(&format!("{passed} passed, {failed} failed, {:.1?}\n", started.elapsed()))?;
    }
    anyhow::ensure!(failed == 0, "{failed} of {} did not pass", passed + failed);
    Ok(())
}

fn config(args: &PacketdrillArgs) -> anyhow::Result<Config> {
    let mut config = Config::default();
    let mut set = |name: &str, value: &str| config.set(name, value).map_err(anyhow::Error::msg);
    set("tolerance_usecs", &args.tolerance_usecs.to_string())?;
    for option in &args.options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        set(name, value)?;
    }
    for define in &args.defines {
        set("define", define)?;
    }
    config.strict_segments |= args.strict_segments;
    config.verbose = args.verbose;
    Ok(config)
}

/// The scripts at a path: itself, or those in the folder, by name.
fn gather(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut inside = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    inside.retain(|path| path.extension().is_some_and(|ending| ending == "pkt"));
    anyhow::ensure!(!inside.is_empty(), "{} has no .pkt files", path.display());
    inside.sort();
    files.extend(inside);
    Ok(())
}

/// The versions that a script runs over: its own, if it names one.
fn versions(asked: Versions, script: Option<&Script>) -> Vec<IpVersion> {
    let Some(script) = script else {
        // It is not understood; once is enough to say so.
        return vec![if asked == Versions::Ipv6 { IpVersion::V6 } else { IpVersion::V4 }];
    };
    let own = script.options.iter().find(|(_, name, _)| name == "ip_version");
    match (own.map(|(_, _, value)| value.as_str()), asked) {
        (Some("ipv6"), _) => vec![IpVersion::V6],
        (Some(_), _) | (None, Versions::Ipv4) => vec![IpVersion::V4],
        (None, Versions::Ipv6) => vec![IpVersion::V6],
        (None, Versions::Both) => vec![IpVersion::V4, IpVersion::V6],
    }
}

fn show(
    args: &PacketdrillArgs,
    file: &str,
    version: IpVersion,
    result: Result<Passed, Failure>,
) -> anyhow::Result<()> {
    let ip_version = version.name();
    if args.json {
        let (line, failure) = match &result {
            Ok(_) => (None, None),
            Err(failure) => (Some(failure.line), Some(failure.what.clone())),
        };
        let virtual_s = result.as_ref().ok().map(|passed| passed.elapsed.as_nanos() as f64 / 1e9);
        let output = match &result {
            Ok(passed) => passed.output.clone(),
            Err(failure) => failure.output.clone(),
        };
        let passed = result.is_ok();
        let file = file.to_owned();
        return output::print_json(&Report { file, ip_version, passed, virtual_s, line, failure, output });
    }
    let mut text = String::new();
    match result {
        Ok(passed) => {
            text.push_str(&passed.output);
            writeln!(text, "ok    {file} {ip_version}")?;
        }
        Err(failure) => writeln!(text, "{}FAIL  {file} {ip_version}\n{failure}", failure.output)?,
    }
    output::print(&text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use taut_testbed::Scratch;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: PacketdrillArgs,
    }

    fn run_with(args: &[&str]) -> Result<(), String> {
        let args = [&["packetdrill"], args].concat();
        run(&Program::try_parse_from(args).map_err(|error| error.to_string())?.args)
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_folder_runs_over_both_versions_and_the_result_counts_failures() {
        let folder = Scratch::new("packet-scripts");
        let path = |name: &str| folder.0.join(name).display().to_string();
        fs::write(path("good.pkt"), "0 socket(..., SOCK_STREAM, 0) = 3\n").unwrap();
        fs::write(path("note.txt"), "no script").unwrap();
        let all = folder.0.display().to_string();
        assert_eq!(run_with(&[&all]), Ok(()));
        assert_eq!(run_with(&[&all, "--json", "--verbose", "-o", "mtu=1400"]), Ok(()));
        fs::write(path("worse.pkt"), "0 socket(..., SOCK_STREAM, 0) = 3\n+0 close(4) = 0\n").unwrap();
        assert_eq!(run_with(&[&all]), Err("2 of 4 did not pass".to_owned()));
        assert_eq!(run_with(&[&all, "--ip-version", "ipv6"]), Err("1 of 2 did not pass".to_owned()));
        fs::write(path("worse.pkt"), "--ip_version=ipv4\n0 this is none\n").unwrap();
        assert_eq!(run_with(&[&all, "--json"]), Err("1 of 3 did not pass".to_owned()));
    }

    #[test]
    fn wrong_arguments_say_what_is_wrong() {
        let missing = run_with(&["/nonexistent.pkt"]).unwrap_err();
        assert_eq!(missing, "cannot read /nonexistent.pkt: No such file or directory (os error 2)");
        let option = run_with(&["x", "-o", "mtu=1"]).unwrap_err();
        assert_eq!(option, "--mtu=1: expected 68 to 65535");
        assert_eq!(run_with(&["x", "-D", "A"]).unwrap_err(), "A: expected NAME=VALUE");
        assert!(run_with(&[]).unwrap_err().contains("<FILE>"));
    }
}
