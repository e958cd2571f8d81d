//! The pages in docs/reference that are made from the code: the keys of a scenario, the settings, and what is
//! counted and measured. A test fails if a page differs. `TAUT_WRITE_REFERENCE=1 cargo test -p taut-cli
//! --test it reference` writes them.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use taut_control::openmetrics::Exposition;
use taut_control::protocol::{Counter, Identity, Summary};
use taut_control::snapshot::{QueueSnapshot, ReportSnapshot, Share};
use taut_core::{Counters, StackConfig, SysctlError};
use taut_lab::scenario::keys::{self, Given, Key};

const SCENARIOS: &str = "\
# Keys of a scenario

Made from the parser's table by `crates/taut-cli/tests/it/reference.rs`. `taut lab new FILE` writes a scenario
with every key, and `taut lab schema` a JSON schema for editors. Times, rates and sizes are written as for
`tc`: `20ms`, `100mbit`, `64kb`. `--set PATH=VALUE` changes any key: `--set link.rate=1gbit`,
`--set flows.0.count=10`.
";

const SETTINGS: &str = "\
# Settings

Made from the stack's table by `crates/taut-cli/tests/it/reference.rs`. `taut sysctl -a` prints them for a
running stack, `taut sysctl -w NAME=VALUE` changes one; in a program, `StackBuilder::set_sysctl` and
`Stack::set_sysctl`. `net.ipv4.` may be left out. Names without `taut.` are Linux's, with its units and
meaning (ip-sysctl.rst).

| setting | default | values |
|---|---|---|
";

const METRICS: &str = "\
# Counters and metrics

Made from the code by `crates/taut-cli/tests/it/reference.rs`.

## OpenMetrics

`taut metrics` and the dashboard's `/metrics`. Each sample has the labels `pid`, `program` and `device`; names
of counters' samples end in `_total`. Every counter below is there, too, in small letters: `TcpRetransSegs` is
`taut_tcp_retrans_segs`, `TautTsoDeferred` `taut_tso_deferred`.

| name | kind | |
|---|---|---|
";

/// Compares a page with what it should be, or writes it.
fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("TAUT_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(text.lines()).find(|(page, text)| page != text);
    assert!(
        page == text,
        "docs/reference/{name} is out of date, at {differs:?}: TAUT_WRITE_REFERENCE=1 writes it"
    );
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\t', " ")
}

/// The rule for a value, without the part that the head of the page has.
fn short(kind: &str) -> String {
    let kind = kind.split(", such as ").next().unwrap().split(" such as ").next().unwrap();
    kind.replace("a whole number from ", "").replace("a whole number, ", "").replace("a number from ", "")
}

/// The table of the keys at `path`, and of those below it.
fn tables(out: &mut String, path: &str, keys: &[Key]) {
    if !path.is_empty() {
        _ = writeln!(out, "\n## `{path}`");
    }
    _ = writeln!(out, "\n| key | value | default | |\n|---|---|---|---|");
    let mut below = Vec::new();
    for key in keys {
        let name = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        let kind = key.kind.to_string();
        let kind = match key.kind.keys() {
            Some(inner) => {
                let link = format!("[{kind}](#{})", name.replace('.', ""));
                below.push((name, inner));
                link
            }
            None => short(&kind),
        };
        let given = match key.given {
            Given::Required => "required",
            Given::Or(other) => other,
        };
        _ = writeln!(out, "| `{}` | {} | {} | {} |", key.name, cell(&kind), cell(given), cell(key.about));
    }
    for (path, keys) in below {
        tables(out, &path, keys);
    }
}

#[test]
fn the_page_of_scenarios_has_every_key() {
    let mut page = SCENARIOS.to_owned();
    tables(&mut page, "", keys::ALL);
    assert!(page.lines().count() > 100, "{page}");
    check("scenario.md", &page);
}

#[test]
fn the_page_of_settings_has_every_setting() {
    let mut config = StackConfig::default();
    let all: Vec<_> = config.sysctls().collect();
    assert!(all.len() > 60);
    let mut page = SETTINGS.to_owned();
    for (name, value) in all {
        let values = match config.set_sysctl(name, "no such value").unwrap_err() {
            SysctlError::Invalid { expected, .. } => {
                short(expected.rsplit("choose ").next().unwrap().trim_start_matches("must be "))
            }
            SysctlError::ReadOnly(_) => "can only be read".to_owned(),
            other => panic!("{name}: {other}"),
        };
        let value = if value.is_empty() { String::new() } else { format!("`{}`", cell(&value)) };
        _ = writeln!(page, "| `{name}` | {value} | {} |", cell(&values));
    }
    check("sysctls.md", &page);
}

/// The families of OpenMetrics that are no counters of `nstat`.
fn families(page: &mut String) {
    let mut all = Exposition::default();
    let counters = [Counter { name: "TcpInSegs".to_owned(), value: 1 }];
    let report = ReportSnapshot {
        shares: vec![Share { reason: "pacing".to_owned(), time_ns: 1 }],
        queues: vec![QueueSnapshot { name: "unsent".to_owned(), ..QueueSnapshot::default() }],
        ..ReportSnapshot::default()
    };
    let summary = Summary { connections: 1, time_waits: 1 };
    all.add_stack(&Identity::default(), &counters, &summary, &report);
    let text = all.text();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2) {
        let Some((name, kind)) = pair[0].strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let help = pair[1].split_once(name).unwrap().1.trim();
        if !help.starts_with("nstat's") {
            _ = writeln!(page, "| `{name}` | {kind} | {help} |");
        }
    }
}

#[test]
fn the_page_of_metrics_has_every_counter_and_metric() {
    let mut page = METRICS.to_owned();
    families(&mut page);
    page += "\n## Counters\n\n`taut nstat`. Names without `Taut` are Linux's.\n\n| counter | counts |\n|---|---|\n";
    for (name, doc) in Counters::described() {
        _ = writeln!(page, "| `{name}` | {} |", cell(doc));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_taut")).args(["lab", "metrics"]).output().unwrap();
    let lab = String::from_utf8(output.stdout).unwrap();
    // The columns of a run's tables are printed after a free line.
    let lab = lab.split_once("\n\n").unwrap().0;
    assert!(lab.lines().count() > 50, "{lab}");
    _ = write!(
        page,
        "\n## The lab\n\nMetrics of a scenario's `measure`; `taut lab metrics` has the columns of a run's tables, too.\n\n\
         ```text\n{lab}\n```\n"
    );
    check("metrics.md", &page);
}
