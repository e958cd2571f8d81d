//! The numbers of stacks as OpenMetrics, the text that Prometheus and its like collect. OpenMetrics 1.0.
//!
//! ```text
//!   # TYPE taut_tcp_retrans_segs counter
//!   # HELP taut_tcp_retrans_segs nstat's TcpRetransSegs
//!   taut_tcp_retrans_segs_total{pid="7",program="taut",device="taut0"} 12
//!   # TYPE taut_blocked_seconds counter
//!   taut_blocked_seconds_total{pid="7",program="taut",device="taut0",reason="pacing"} 1.5
//!   # TYPE taut_queue_bytes gauge
//!   taut_queue_bytes{pid="7",program="taut",device="taut0",queue="unsent"} 65536
//!   # EOF
//! ```
//!
//! All samples of one name stand together, whatever the order in which stacks are added, as the format
//! demands. Called by `taut metrics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::protocol::{Counter, Identity, Summary};
use crate::snapshot::ReportSnapshot;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; its samples' names end in `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Samples of any number of stacks.
#[derive(Clone, Debug, Default)]
pub struct Exposition(BTreeMap<String, Family>);

#[derive(Clone, Debug)]
struct Family {
    kind: Kind,
    help: String,
    /// Labels in their brackets, and the value.
    samples: Vec<(String, String)>,
}

impl Exposition {
    /// Adds a sample. The first one of a name says what it is.
    pub fn add(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[(&str, &str)],
        value: &impl ToString,
    ) {
        let family = self.0.entry(name.to_owned());
        let family = family.or_insert_with(|| Family { kind, help: help.to_owned(), samples: Vec::new() });
        family.samples.push((bracketed(labels), value.to_string()));
    }

    /// Adds all that a stack tells of itself.
    pub fn add_stack(
        &mut self,
        who: &Identity,
        counters: &[Counter],
        summary: &Summary,
        report: &ReportSnapshot,
    ) {
        let pid = who.pid.to_string();
        let own = [("pid", &*pid), ("program", &*who.program), ("device", &*who.device)];
        for Counter { name, value } in counters {
            self.add(&metric_name(name), Kind::Counter, &format!("nstat's {name}"), &own, value);
        }
        let mut gauge = |name, help, labels: &[(&str, &str)], value: String| {
            self.add(name, Kind::Gauge, help, &[&own[..], labels].concat(), &value);
        };
        gauge(
            "taut_connections",
            "Connections in any state except TIME-WAIT",
            &[],
            summary.connections.to_string(),
        );
        gauge("taut_time_waits", "Connections in TIME-WAIT", &[], summary.time_waits.to_string());
        gauge("taut_uptime_seconds", "How long the stack has run", &[], seconds(who.uptime_ns));
        for queue in &report.queues {
            let labels = [("queue", &*queue.name)];
            gauge("taut_queue_bytes", "Bytes in a queue of the send path", &labels, queue.bytes.to_string());
        }
        for share in &report.shares {
            let labels = [&own[..], &[("reason", &*share.reason)]].concat();
            let help = "How long connections sent nothing, by reason (taut explain)";
            self.add("taut_blocked_seconds", Kind::Counter, help, &labels, &seconds(share.time_ns));
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, samples }) in &self.0 {
            let (word, suffix) = match kind {
                Kind::Counter => ("counter", "_total"),
                Kind::Gauge => ("gauge", ""),
            };
            // Writing to a string does not fail.
            _ = writeln!(text, "# TYPE {name} {word}\n# HELP {name} {}", escaped(help));
            for (labels, value) in samples {
                _ = writeln!(text, "{name}{suffix}{labels} {value}");
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

/// nstat's `TcpExtTCPLostRetransmit` as `taut_tcp_ext_tcp_lost_retransmit`; its own `TautFlowsIn` as
/// `taut_flows_in`.
fn metric_name(nstat: &str) -> String {
    let mut name = "taut".to_owned();
    let own = nstat.strip_prefix("Taut").unwrap_or(nstat);
    let letters: Vec<char> = own.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let is_after_small =
            at == 0 || letters[at - 1].is_ascii_lowercase() || letters[at - 1].is_ascii_digit();
        let is_before_small = letters.get(at + 1).is_some_and(char::is_ascii_lowercase);
        // A word begins with a capital after a small letter, or with the last capital before small ones.
        if letter.is_ascii_uppercase() && (is_after_small || is_before_small) || at == 0 {
            name.push('_');
        }
        name.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    name
}

fn bracketed(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let one = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
    format!("{{{}}}", labels.iter().map(one).collect::<Vec<_>>().join(","))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Without a rounding of floating point: nanoseconds as a decimal fraction.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{QueueSnapshot, Share};

    #[test]
    fn the_text_is_openmetrics() {
        let mut all = Exposition::default();
        let counters = [
            Counter { name: "TcpRetransSegs".to_owned(), value: 12 },
            Counter { name: "TautFlowsIn".to_owned(), value: 3 },
        ];
        let report = ReportSnapshot {
            shares: vec![Share { reason: "pacing".to_owned(), time_ns: 1_500_000_000 }],
            queues: vec![QueueSnapshot {
                name: "in flight".to_owned(),
                bytes: 9,
                ..QueueSnapshot::default()
            }],
            ..ReportSnapshot::default()
        };
        for (pid, device) in [(7, "taut0"), (8, "a\"b\\c\nd")] {
            let who = Identity {
                pid,
                program: "taut".to_owned(),
                device: device.to_owned(),
                uptime_ns: 2_000_000_001,
                ..Identity::default()
            };
            all.add_stack(&who, &counters, &Summary { connections: 1, time_waits: 2 }, &report);
        }
        let first = r#"{pid="7",program="taut",device="taut0""#;
        let second = r#"{pid="8",program="taut",device="a\"b\\c\nd""#;
        let family = |name: &str, kind: &str, help: &str, label: &str, value: &str| {
            let suffix = if kind == "counter" { "_total" } else { "" };
            format!(
                "# TYPE {name} {kind}\n# HELP {name} {help}\n{name}{suffix}{first}{label}}} {value}\n{name}{suffix}{second}{label}}} {value}\n"
            )
        };
        let blocked = "How long connections sent nothing, by reason (taut explain)";
        let expected = [
            family("taut_blocked_seconds", "counter", blocked, ",reason=\"pacing\"", "1.500000000"),
            family("taut_connections", "gauge", "Connections in any state except TIME-WAIT", "", "1"),
            family("taut_flows_in", "counter", "nstat's TautFlowsIn", "", "3"),
            family(
                "taut_queue_bytes",
                "gauge",
                "Bytes in a queue of the send path",
                ",queue=\"in flight\"",
                "9",
            ),
            family("taut_tcp_retrans_segs", "counter", "nstat's TcpRetransSegs", "", "12"),
            family("taut_time_waits", "gauge", "Connections in TIME-WAIT", "", "2"),
            family("taut_uptime_seconds", "gauge", "How long the stack has run", "", "2.000000001"),
        ];
        assert_eq!(all.text(), expected.concat() + "# EOF\n");
        assert_eq!(Exposition::default().text(), "# EOF\n");
    }

    #[test]
    fn names_are_words() {
        for (nstat, expected) in [
            ("TcpRetransSegs", "taut_tcp_retrans_segs"),
            ("TcpExtTCPLostRetransmit", "taut_tcp_ext_tcp_lost_retransmit"),
            ("IpExtInNoECTPkts", "taut_ip_ext_in_no_ect_pkts"),
            ("IpReasmOKs", "taut_ip_reasm_o_ks"),
            ("TautFlowsIn", "taut_flows_in"),
            ("Icmp6InMsgs", "taut_icmp6_in_msgs"),
        ] {
            assert_eq!(metric_name(nstat), expected);
        }
    }
}
