//! `taut gateway --config FILE`: rules, limits and times in TOML; SIGHUP reads the file again, and flows
//! stay. Its other keys are options (`shared/config_file.rs`).
//!
//! ```toml
//! rules = ["allow *.debian.org port 443", "deny any"]      # behind those of the command line
//!
//! [limits]                     # for all guests; one has three quarters
//! connections = 10000
//! half-open = 2000
//! datagram-flows = 4000
//! bytes = 16777216
//! questions = 100
//!
//! [timeouts]                   # in seconds
//! half-open = 130
//! idle = 7440
//! half-closed = 240
//! datagrams = 120
//! exchange = 5
//! ping = 60
//! question = 10
//! ```
//!
//! Called by `gateway.rs`.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::Command;
use serde::Deserialize;
use taut_gateway::{Amounts, Limits, Timeouts};

use crate::shared::config_file;

/// The settings in a file. Those that it leaves out keep their defaults.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct Config {
    /// Rules, behind those of the command line.
    #[serde(alias = "rule")]
    pub rules: Vec<String>,
    limits: LimitsTable,
    timeouts: TimeoutsTable,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct LimitsTable {
    connections: Option<u32>,
    half_open: Option<u32>,
    datagram_flows: Option<u32>,
    bytes: Option<u64>,
    questions: Option<u32>,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct TimeoutsTable {
    half_open: Option<u32>,
    idle: Option<u32>,
    half_closed: Option<u32>,
    datagrams: Option<u32>,
    exchange: Option<u32>,
    ping: Option<u32>,
    question: Option<u32>,
}

impl Config {
    /// Reads a file, whose other keys are `options`.
    ///
    /// # Errors
    /// The place in the file, and what is wrong there.
    pub(crate) fn read(path: &Path, options: &Command) -> anyhow::Result<Self> {
        Self::of(path, File::open(path), options)
    }

    /// The same of a file that another process has opened.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub(crate) fn of(path: &Path, file: io::Result<File>, options: &Command) -> anyhow::Result<Self> {
        let text = file.and_then(io::read_to_string);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text, options).with_context(|| format!("{}", path.display()))
    }

    fn parse(text: &str, options: &Command) -> anyhow::Result<Self> {
        config_file::check(options, text)?;
        Ok(toml::from_str(text)?)
    }

    /// The limits.
    #[must_use]
    pub(crate) fn limits(&self) -> Limits {
        let (own, all) = (&self.limits, Limits::default().all);
        Limits::of(Amounts {
            connections: own.connections.unwrap_or(all.connections),
            half_open: own.half_open.unwrap_or(all.half_open),
            datagram_flows: own.datagram_flows.unwrap_or(all.datagram_flows),
            bytes: own.bytes.unwrap_or(all.bytes),
            questions: own.questions.unwrap_or(all.questions),
        })
    }

    /// The times.
    #[must_use]
    pub(crate) fn timeouts(&self) -> Timeouts {
        let (own, all) = (&self.timeouts, Timeouts::default());
        let or = |own: Option<u32>, other| own.map_or(other, |secs| Duration::from_secs(secs.into()));
        Timeouts {
            half_open: or(own.half_open, all.half_open),
            idle: or(own.idle, all.idle),
            half_closed: or(own.half_closed, all.half_closed),
            datagrams: or(own.datagrams, all.datagrams),
            exchange: or(own.exchange, all.exchange),
            ping: or(own.ping, all.ping),
            question: or(own.question, all.question),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::net::gateway::GatewayArgs;

    fn parse(text: &str) -> anyhow::Result<Config> {
        Config::parse(text, &GatewayArgs::augment_args(Command::new("gateway")))
    }

    #[test]
    fn what_is_left_out_is_as_without_a_file() {
        let none = parse("").unwrap();
        assert_eq!(
            (none.limits(), none.timeouts(), none.rules.len()),
            (Limits::default(), Timeouts::default(), 0)
        );
        let some = "rule = ['deny any']\nmtu = 1_500\n[limits]\nhalf-open = 8\n[timeouts]\nhalf-closed = 300\nping = 5";
        let some = parse(some).unwrap();
        assert_eq!(some.rules, ["deny any"]);
        assert_eq!((some.limits().all.half_open, some.limits().guest.half_open), (8, 6));
        assert_eq!(some.limits().all.connections, Limits::default().all.connections);
        let times = some.timeouts();
        assert_eq!((times.half_closed, times.ping), (Duration::from_secs(300), Duration::from_secs(5)));
        assert_eq!(times.idle, Timeouts::default().idle);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, said) in [
            ("mtu = 1500\nruls = []", "line 2: ruls is not an option; `taut gateway --help` lists them"),
            ("mtu = {}", "line 1: mtu: must be a text"),
            ("config = 'other'", "line 1: config is not an option"),
            ("[limits]\nflows = 1", "unknown field `flows`"),
            ("[limits]\nbytes = -1", "line 2"),
            ("[timeouts]\nidle = '2 h'", "line 2"),
            ("rules = 'deny any'", "line 1"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
        let error =
            format!("{:#}", Config::read(Path::new("/no/such/file"), &Command::new("gateway")).unwrap_err());
        assert!(error.contains("cannot read /no/such/file"), "{error}");
    }
}
