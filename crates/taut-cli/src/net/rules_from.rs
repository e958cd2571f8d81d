//! `taut gateway rules-from LOG`: rules that allow the flows of a log, and nothing else. The log is that of
//! `taut gateway --log json`, best with `--dry-run`. Called by `lib.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use serde::Deserialize;
use taut_gateway::{Rule, is_special};

use crate::shared::log::FLOW;
use crate::shared::output;

/// Prints rules that allow the flows of a log, for the file of `taut gateway`
#[derive(Parser, Debug)]
#[command(
    name = "taut gateway rules-from",
    after_help = "Example:\n  \
    taut gateway --run --log json --dry-run --rule 'deny any' -- ./job 2> log\n  \
    taut gateway rules-from log > gateway.toml\n  \
    taut gateway --run --config gateway.toml -- ./job"
)]
pub(crate) struct RulesFromArgs {
    /// The log: lines of JSON, and any others; - for standard input
    log: PathBuf,
    /// Print JSON instead of TOML
    #[arg(long)]
    json: bool,
}

/// A flow that has ended, as far as a rule has it.
#[derive(Deserialize)]
struct Line {
    event: String,
    kind: Option<String>,
    to: Option<SocketAddr>,
    name: Option<String>,
}

/// Ports by what is in front of them in a rule, and behind the name.
type Ports = BTreeMap<(String, String), BTreeSet<u16>>;

/// Runs `taut gateway rules-from`.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn run(args: &RulesFromArgs) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", args.log.display());
    let rules = if args.log.as_os_str() == "-" {
        rules(std::io::stdin().lock())
    } else {
        rules(BufReader::new(std::fs::File::open(&args.log).with_context(failed)?))
    };
    let rules = rules.with_context(failed)?;
    if args.json {
        return output::print(&format!("{}\n", serde_json::to_string(&rules)?));
    }
    // JSON's strings are TOML's.
    let lines: Vec<String> = rules.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    output::print(&format!("rules = [\n  {},\n]\n", lines.join(",\n  ")))
}

/// The rules for a log, the last of which denies the rest.
fn rules(log: impl BufRead) -> std::io::Result<Vec<String>> {
    let mut found = Ports::new();
    for line in log.split(b'\n') {
        let Ok(line) = serde_json::from_slice::<Line>(&line?) else { continue };
        if let (FLOW, Some(kind), Some(to)) = (&*line.event, line.kind, line.to) {
            let (front, behind) = match line.name.filter(|name| is_name(name)) {
                Some(name) if is_special(to.ip()) => (format!("allow {kind} {name}"), within(to.ip())),
                Some(name) => (format!("allow {kind} {name}"), String::new()),
                None => (format!("allow {kind} {}", to.ip()), String::new()),
            };
            let ports = found.entry((front, behind)).or_default();
            // An identifier of pings is no port.
            ports.extend((kind != "ping").then_some(to.port()));
        }
    }
    let one = |((front, behind), ports): ((String, String), BTreeSet<u16>)| {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let ports = if ports.is_empty() { String::new() } else { format!(" port {}", ports.join(",")) };
        format!("{front}{behind}{ports}")
    };
    // A log is anybody's text: only rules become rules.
    let rules = found.into_iter().map(one).filter_map(|text| text.parse::<Rule>().ok());
    Ok(rules.map(|rule| rule.to_string()).chain(["deny any".to_owned()]).collect())
}

/// Not `any`, no network, and no further words: a guest chooses the names that it resolves.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text != "any" && text.parse::<IpAddr>().is_err() && text.bytes().all(is_letter)
}

fn within(ip: IpAddr) -> String {
    format!(" within {ip}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_202_a_log_becomes_rules_that_allow_its_flows() {
        let flow = |kind: &str, to: &str, name: &str| {
            format!(r#"{{"event":"flow","kind":"{kind}","to":"{to}","name":{name},"rule":"deny any"}}"#)
        };
        let log = [
            flow("tcp", "192.0.2.1:443", r#""www.example.com""#),
            flow("tcp", "192.0.2.2:443", r#""www.example.com""#),
            flow("tcp", "192.0.2.1:80", r#""www.example.com""#),
            flow("tcp", "10.2.0.5:5432", r#""db.corp""#),
            flow("udp", "[2001:db8::1]:123", "null"),
            flow("tcp", "127.0.0.1:8080", "null"),
            flow("ping", "192.0.2.9:77", "null"),
            "taut: no JSON".to_owned(),
            r#"{"event":"denied","kind":"tcp","to":"192.0.2.66:66"}"#.to_owned(),
            flow("tcp any", "192.0.2.1:443", "null"),
            // Names that a guest would like to be rules: the address counts.
            flow("tcp", "192.0.2.3:443", r#""a.test port 1-65535""#),
            flow("tcp", "192.0.2.4:443", r#""any""#),
            flow("tcp", "192.0.2.5:443", r#""0.0.0.0/0""#),
        ];
        let expected = [
            "allow ping 192.0.2.9",
            "allow tcp 127.0.0.1 port 8080",
            "allow tcp 192.0.2.3 port 443",
            "allow tcp 192.0.2.4 port 443",
            "allow tcp 192.0.2.5 port 443",
            "allow tcp db.corp within 10.2.0.5 port 5432",
            "allow tcp www.example.com port 80,443",
            "allow udp 2001:db8::1 port 123",
            "deny any",
        ];
        assert_eq!(rules(log.join("\n").as_bytes()).unwrap(), expected);
        assert_eq!(rules(&b""[..]).unwrap(), ["deny any"]);
    }
}
