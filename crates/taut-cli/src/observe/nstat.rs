//! `taut nstat`: the counters of a running stack, as iproute2's `nstat` shows the kernel's.
//!
//! As with `nstat`, a plain call shows the changes since the last call. The last values are kept in a file
//! for each stack, in the directory of the control sockets.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::{Serialize, Serializer};
use taut_control::place;
use taut_control::protocol::{Counter, Identity};

use crate::args::control::{SocketArgs, asked};
use crate::shared::output;

/// Shows the counters of a running stack, in the format of nstat
#[derive(Args, Debug)]
#[command(after_help = "Example, with a stack that runs, as `taut serve .`:\n  \
    taut nstat\n  taut nstat -az 'TcpExt*' 'Taut*'\n\n\
    Without -a, values count from the last call by the same user. Names are the kernel's where it has such a counter; \
    those that begin with Taut are taut's own.")]
pub(crate) struct NstatArgs {
    /// Show values since the stack began, instead of since the last call
    #[arg(short = 'a', long = "ignore")]
    absolute: bool,
    /// Also show counters that did not change
    #[arg(short, long)]
    zeros: bool,
    /// Do not remember this call
    #[arg(short = 's', long = "noupdate")]
    no_update: bool,
    /// Only remember this call
    #[arg(short = 'n', long = "nooutput")]
    no_output: bool,
    /// Forget earlier calls first
    #[arg(short, long)]
    reset: bool,
    /// Names to show, with * and ?
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// Print as JSON, in nstat's shape
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// The name in place of nstat's `kernel`.
const SOURCE: &str = "taut";

/// Runs `taut nstat`.
///
/// # Errors
/// When no stack is running or answers, or the history cannot be written.
pub(crate) fn run(args: &NstatArgs) -> anyhow::Result<()> {
    let mut client = args.socket.open()?;
    let (who, counters) = (asked(client.identity())?, asked(client.counters())?);
    let needs_history = !args.no_update || (!args.absolute && !args.reset);
    let mut history = if needs_history { Some(History::open(&who)?) } else { None };
    let seen = match &mut history {
        Some(history) if !args.absolute && !args.reset => history.read()?,
        _ => BTreeMap::new(),
    };
    if !args.no_output {
        let shown = shown(&counters, &seen, args.zeros, &args.patterns);
        if args.json {
            output::print_json(&BTreeMap::from([(SOURCE, InOrder(&shown))]))?;
        } else {
            output::print(&text(&shown))?;
        }
    }
    match history {
        Some(history) if !args.no_update => history.write(&counters),
        _ => Ok(()),
    }
}

/// The counters as `taut nstat -a` shows them.
pub(crate) fn since_the_beginning(counters: &[Counter]) -> String {
    text(&shown(counters, &BTreeMap::new(), false, &[]))
}

/// The names and values to show.
fn shown<'a>(
    counters: &'a [Counter],
    seen: &BTreeMap<String, u64>,
    zeros: bool,
    patterns: &[String],
) -> Vec<(&'a str, u64)> {
    let value = |counter: &'a Counter| {
        let since = seen.get(&counter.name).copied().unwrap_or(0);
        (counter.name.as_str(), counter.value.saturating_sub(since))
    };
    let is_meant = |name: &str| {
        patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    };
    let all = counters.iter().map(value);
    all.filter(|&(name, value)| (zeros || value > 0) && is_meant(name)).collect()
}

/// Names and values as a JSON object, in this order.
struct InOrder<'a>(&'a [(&'a str, u64)]);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// nstat's three columns: name, value, and the rate, which only its daemon knows.
fn text(shown: &[(&str, u64)]) -> String {
    let lines = shown.iter().map(|(name, value)| format!("{name:<32}{value:<16}   0.0\n"));
    format!("#{SOURCE}\n{}", lines.collect::<String>())
}

/// Whether a name matches a pattern with `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, name) || name.split_first().is_some_and(|(_, name)| matches(pattern, name))
        }
        (Some((b'?', pattern)), Some((_, name))) => matches(pattern, name),
        (Some((a, pattern)), Some((b, name))) => a == b && matches(pattern, name),
        _ => false,
    }
}

/// The values that the last call saw for one stack.
struct History {
    file: fs::File,
    path: PathBuf,
    /// The identity of the stack, so that another one with the same process ID is not mistaken for it.
    whose: String,
}

impl History {
    fn open(who: &Identity) -> anyhow::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let whose = format!("#{SOURCE} {} {}", who.pid, who.started_ns);
        let path = match std::env::var_os("TAUT_NSTAT_HISTORY") {
            Some(path) => PathBuf::from(path),
            None => {
                let dir =
                    place::default_directory().context("there is no directory for the history of nstat")?;
                forget_the_dead(&dir);
                dir.join(format!("{}-{}.nstat", who.pid, who.started_ns))
            }
        };
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { file, path, whose })
    }

    /// Values by name; empty when the file is another stack's or not a history.
    fn read(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut text = String::new();
        let read = self.file.read_to_string(&mut text);
        read.with_context(|| format!("cannot read {}", self.path.display()))?;
        let mut lines = text.lines();
        if lines.next() != Some(&self.whose) {
            return Ok(BTreeMap::new());
        }
        let entry = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        Ok(lines.filter_map(entry).collect())
    }

    fn write(mut self, counters: &[Counter]) -> anyhow::Result<()> {
        let lines = counters.iter().map(|counter| format!("{} {}\n", counter.name, counter.value));
        let text = format!("{}\n{}", self.whose, lines.collect::<String>());
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Removes the histories of processes that have ended.
fn forget_the_dead(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.strip_suffix(".nstat").and_then(|name| name.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters() -> Vec<Counter> {
        [("IpInReceives", 3402), ("TcpInSegs", 3367), ("TcpExtTCPTimeouts", 0)]
            .map(|(name, value)| Counter { name: name.to_owned(), value })
            .into()
    }

    /// Spaces as in the output of iproute2's nstat 6.1.
    #[test]
    fn lines_have_nstats_three_columns() {
        let counters = counters();
        let shown = shown(&counters, &BTreeMap::new(), false, &[]);
        assert_eq!(
            text(&shown),
            "#taut\n\
             IpInReceives                    3402               0.0\n\
             TcpInSegs                       3367               0.0\n"
        );
    }

    /// As iproute2's nstat prints it: one object in the source's name, in the order of the counters.
    #[test]
    fn json_has_nstats_shape() {
        let shown = [("IpInReceives", 2), ("IcmpInMsgs", 1)];
        let object = BTreeMap::from([(SOURCE, InOrder(&shown))]);
        assert_eq!(serde_json::to_string(&object).unwrap(), r#"{"taut":{"IpInReceives":2,"IcmpInMsgs":1}}"#);
    }

    #[test]
    fn increments_zeros_and_patterns() {
        let counters = counters();
        let seen = BTreeMap::from([("IpInReceives".to_owned(), 3400), ("TcpInSegs".to_owned(), 3367)]);
        let names = |zeros, patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            shown(&counters, &seen, zeros, &patterns)
        };
        assert_eq!(names(false, &[]), [("IpInReceives", 2)]);
        assert_eq!(names(true, &["Tcp*"]), [("TcpInSegs", 0), ("TcpExtTCPTimeouts", 0)]);
        assert_eq!(names(true, &["*Segs", "Ip??Receives"]), [("IpInReceives", 2), ("TcpInSegs", 0)]);
        assert_eq!(names(true, &["tcp*"]), []);
    }
}
