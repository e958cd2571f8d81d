//! `taut explain`: what held each connection back, how long bytes wait in which queue, and what to do about
//! it.
//!
//! The numbers come from the stack's own ledger, the explanations from the descriptions of its gates.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use taut_control::Client;
use taut_control::network::LeaseSnapshot;
use taut_control::rooms::FlowRooms;
use taut_control::snapshot::{ConnReportSnapshot, Interval, QueueSnapshot, ReportSnapshot, TsqSnapshot};
use taut_core::Gate;

use crate::args::control::{SocketArgs, asked};
use crate::args::network;
use crate::observe::rooms::{self, Relayed};
use crate::observe::ss_filter::endpoint;
use crate::shared::{output, text};

/// Explains what holds connections back, and where their bytes wait
#[derive(Args, Debug)]
#[command(after_help = "Example, with a running stack such as `taut serve .`:\n  \
    taut explain\n  taut explain 10.9.0.1:5201 --watch 1\n\n\
    Shares are of the time since the connection's first write, or with --watch since the last output. The times that \
    bytes stayed come from samples and are upper bounds.")]
pub(crate) struct ExplainArgs {
    /// Only connections with an end at this address [default: all that have written anything, and the whole
    /// stack]
    #[arg(value_name = "ADDRESS[:PORT]", value_parser = end)]
    ends: Vec<End>,
    /// Repeat, and show the changes since the last output
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<f64>,
    /// Print as JSON, one line per output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: SocketArgs,
}

/// An end of a connection, or a part of it: an address, with or without a port.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    address: Option<IpAddr>,
    port: Option<u16>,
}

fn end(text: &str) -> Result<End, String> {
    let (address, port) = endpoint(text).ok_or("not ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT or :PORT")?;
    Ok(End { address, port })
}

impl End {
    fn is(&self, end: SocketAddr) -> bool {
        self.address.is_none_or(|address| address == end.ip().to_canonical())
            && self.port.is_none_or(|port| port == end.port())
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.1 to 86400".to_owned()),
    }
}

/// One report on a stack.
#[derive(Debug, Serialize)]
struct Look {
    connections: Vec<ConnReportSnapshot>,
    /// All connections, past and present.
    stack: ReportSnapshot,
    /// Those that a gateway or a proxy relays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rooms: Vec<FlowRooms>,
    #[serde(skip)]
    relayed: Relayed,
    /// The address that a server of DHCP has leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseSnapshot>,
    /// The same in words.
    #[serde(skip)]
    lease_line: String,
}

/// Runs `taut explain`.
///
/// # Errors
/// When no stack is running or answers, or no connection matches.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let mut client = args.socket.open()?;
    let mut look = take(&mut client, &args.ends)?;
    let Some(pause) = args.watch else {
        if look.connections.is_empty() && !args.ends.is_empty() {
            anyhow::bail!("no connection has an end at this address; `taut ss` lists all connections");
        }
        return show(&look, args);
    };
    loop {
        std::thread::sleep(Duration::from_secs_f64(pause));
        let next = take(&mut client, &args.ends)?;
        show(&added(&look, &next), args)?;
        look = next;
    }
}

fn take(client: &mut Client, ends: &[End]) -> anyhow::Result<Look> {
    let mut connections = asked(client.reports())?;
    connections
        .retain(|conn| ends.is_empty() || ends.iter().any(|end| end.is(conn.local) || end.is(conn.peer)));
    let stack = asked(client.report())?;
    let relayed = Relayed::of(client, true);
    let rooms = connections.iter().filter_map(|conn| relayed.get(conn.local, conn.peer).copied()).collect();
    // A stack of an earlier version does not tell.
    let network = client.network().unwrap_or_default();
    let lease_line = network::lease_line(&network).unwrap_or_default();
    Ok(Look { connections, stack, rooms, relayed, lease: network.lease, lease_line })
}

/// The difference between two reports. Queues are those of the later one.
fn added(before: &Look, after: &Look) -> Look {
    let connections = after.connections.iter().map(|conn| {
        let is_same = |other: &&ConnReportSnapshot| (other.local, other.peer) == (conn.local, conn.peer);
        let report = before.connections.iter().find(is_same).map(|other| &other.report);
        ConnReportSnapshot {
            report: report.map_or_else(|| conn.report.clone(), |before| difference(before, &conn.report)),
            ..conn.clone()
        }
    });
    Look {
        connections: connections.collect(),
        stack: difference(&before.stack, &after.stack),
        rooms: after.rooms.clone(),
        relayed: after.relayed.clone(),
        lease: after.lease,
        lease_line: after.lease_line.clone(),
    }
}

fn difference(before: &ReportSnapshot, after: &ReportSnapshot) -> ReportSnapshot {
    let mut report = after.clone();
    for share in &mut report.shares {
        let earlier = before.shares.iter().find(|earlier| earlier.reason == share.reason);
        share.time_ns = share.time_ns.saturating_sub(earlier.map_or(0, |earlier| earlier.time_ns));
    }
    for queue in &mut report.queues {
        let Some(earlier) = before.queues.iter().find(|earlier| earlier.name == queue.name) else { continue };
        subtract(&mut queue.sojourn, &earlier.sojourn);
    }
    subtract(&mut report.lateness, &before.lateness);
    report
}

/// Takes the samples of an earlier report out of a later one.
fn subtract(later: &mut [Interval], earlier: &[Interval]) {
    for interval in later {
        let same = earlier.iter().find(|other| other.below_ns == interval.below_ns);
        interval.count = interval.count.saturating_sub(same.map_or(0, |same| same.count));
    }
}

fn show(look: &Look, args: &ExplainArgs) -> anyhow::Result<()> {
    if args.json {
        return output::print_json(look);
    }
    if args.ends.is_empty() {
        return output::print(&(of_stack(&look.connections, &look.stack, &look.relayed) + &look.lease_line));
    }
    output::print(&look.connections.iter().map(|conn| of_one(conn, &look.relayed)).collect::<String>())
}

/// The text about a stack: each connection that has written or is relayed, and all of them.
pub(crate) fn of_stack(
    connections: &[ConnReportSnapshot],
    stack: &ReportSnapshot,
    relayed: &Relayed,
) -> String {
    let is_shown =
        |conn: &&ConnReportSnapshot| total(&conn.report) > 0 || relayed.get(conn.local, conn.peer).is_some();
    let shown = connections.iter().filter(is_shown);
    shown.map(|conn| of_one(conn, relayed)).collect::<String>()
        + &paragraph("all connections since the stack began", stack)
}

/// What spaces the packets of a connection that has no timer for it.
const DELEGATED: &str =
    "  the queue below (fq) spaces its packets, by the departure times that the stack gives them";

/// A paragraph with one more line at its end.
fn with_note(paragraph: &str, note: &str) -> String {
    format!("{}\n{note}\n\n", paragraph.trim_end())
}

fn total(report: &ReportSnapshot) -> u64 {
    report.shares.iter().map(|share| share.time_ns).sum()
}

/// The text about one connection.
fn of_one(conn: &ConnReportSnapshot, relayed: &Relayed) -> String {
    let mut text = paragraph(&format!("{} -> {}", conn.local, conn.peer), &conn.report);
    if conn.pacing_delegated {
        text = with_note(&text, DELEGATED);
    }
    if let Some(note) = small_queue(&conn.tsq) {
        text = with_note(&text, &note);
    }
    if let Some(rooms) = relayed.get(conn.local, conn.peer) {
        text = with_note(&text, &rooms::lines(rooms));
    }
    text
}

/// A line on the small queue where completions are measured, as its limit is not of the connection alone; and
/// where the link paces, as the limit then depends on how late the stack looks.
fn small_queue(tsq: &TsqSnapshot) -> Option<String> {
    if let ("delivered", Some(late)) = (tsq.rule.as_str(), tsq.time_ns) {
        return Some(format!(
            "  the stack looks up to {} late at the device, and has so much more there",
            span(late)
        ));
    }
    let limit = tsq.limit.filter(|_| tsq.rule == "measured")?;
    let time = tsq.time_ns.map_or("is not known yet".to_owned(), |time| format!("is {}", span(time)));
    Some(format!(
        "  the small queue measures: all connections may have {limit} bytes in the device; the completion time {time}"
    ))
}

/// The text about one connection, or about all.
fn paragraph(whose: &str, report: &ReportSnapshot) -> String {
    let total = total(report);
    if total == 0 {
        return format!("{whose}  has written nothing\n\n");
    }
    let mut shares: Vec<_> = report.shares.iter().collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.time_ns));
    let per_cent = |time_ns: u64| (time_ns as f64 * 100.0 / total as f64).round();
    let named = shares.iter().filter(|share| per_cent(share.time_ns) >= 1.0);
    let named: Vec<_> =
        named.map(|share| format!("{:.0} % {}", per_cent(share.time_ns), words(&share.reason))).collect();
    let advice = shares.first().and_then(|share| advice(&share.reason)).unwrap_or_default();
    let (named, late) = (named.join(", "), lateness(report).unwrap_or_default());
    format!("{whose}  {named}\n{}{late}  {advice}\n\n", queues(&report.queues))
}

/// A line on how late the thread woke up for packets that waited for their departure; `None` if it never did.
fn lateness(report: &ReportSnapshot) -> Option<String> {
    if report.late_most_ns == 0 {
        return None;
    }
    let waits: u64 = report.lateness.iter().map(|interval| interval.count).sum();
    let late = |quantile| stayed(&report.lateness, quantile);
    let usual = if waits > 0 { format!("p50 {}, p99 {}, ", late(0.5), late(0.99)) } else { String::new() };
    Some(format!("  woken up late for departures: {usual}at most {} ever\n", span(report.late_most_ns)))
}

/// The queues as a table.
fn queues(queues: &[QueueSnapshot]) -> String {
    let head = ["", "queue", "bytes now", "oldest", "stayed p50", "p99"].map(str::to_owned).to_vec();
    let row = |queue: &QueueSnapshot| {
        vec![
            String::new(),
            queue.name.clone(),
            text::grouped(queue.bytes),
            queue.oldest_ns.map_or_else(|| "-".to_owned(), span),
            stayed(&queue.sojourn, 0.5),
            stayed(&queue.sojourn, 0.99),
        ]
    };
    text::table(2, &std::iter::once(head).chain(queues.iter().map(row)).collect::<Vec<_>>())
}

/// The upper bound of a quantile of the samples.
fn stayed(sojourn: &[Interval], quantile: f64) -> String {
    let total: u64 = sojourn.iter().map(|interval| interval.count).sum();
    let rank = ((total as f64 * quantile).ceil() as u64).max(1);
    let mut seen = 0;
    let mut previous = None;
    for interval in sojourn {
        seen += interval.count;
        if seen >= rank {
            return match (interval.below_ns, previous) {
                (Some(below), _) => format!("< {}", span(below)),
                (None, Some(above)) => format!("> {}", span(above)),
                (None, None) => "long".to_owned(),
            };
        }
        previous = interval.below_ns;
    }
    "-".to_owned()
}

/// `8.19 ms`.
fn span(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} µs", text::significant(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", text::significant(ns as f64 / 1e6)),
        _ => format!("{} s", text::significant(ns as f64 / 1e9)),
    }
}

/// A gate's name for people; an unknown gate, of a newer stack, keeps the name that the stack gave.
fn words(gate: &str) -> &str {
    Gate::by_name(gate).map_or(gate, |gate| gate.words())
}

/// The meaning of a gate, and advice.
fn advice(gate: &str) -> Option<&'static str> {
    Gate::by_name(gate).map(Gate::advice)
}

#[cfg(test)]
mod tests {
    use taut_control::snapshot::Share;

    use super::*;

    fn report(shares: &[(&str, u64)], sojourn: &[(u64, u64)]) -> ReportSnapshot {
        let interval = |&(us, count): &(u64, u64)| Interval { below_ns: Some(us * 1000), count };
        let queue = |name: &str, bytes| QueueSnapshot {
            name: name.to_owned(),
            bytes,
            oldest_ns: (bytes > 0).then_some(1_500_000),
            sojourn: sojourn.iter().map(interval).collect(),
        };
        ReportSnapshot {
            shares: shares
                .iter()
                .map(|&(reason, ms)| Share { reason: reason.to_owned(), time_ns: ms * 1_000_000 })
                .collect(),
            queues: vec![queue("unsent", 131_072), queue("device", 0)],
            ..ReportSnapshot::default()
        }
    }

    #[test]
    fn delegated_pacing_is_the_last_line() {
        let text = with_note(&paragraph("x", &report(&[("pacing", 100)], &[])), DELEGATED);
        assert!(text.ends_with("by the departure times that the stack gives them\n\n"));
        assert_eq!(text.lines().filter(|line| line.is_empty()).count(), 1);
    }

    #[test]
    fn a_late_look_at_a_link_that_paces_has_a_line() {
        let tsq = |rule: &str, time_ns| TsqSnapshot { rule: rule.to_owned(), limit: Some(7_840), time_ns };
        let line = small_queue(&tsq("delivered", Some(20_000_000))).unwrap();
        assert_eq!(line, "  the stack looks up to 20.0 ms late at the device, and has so much more there");
        assert_eq!(small_queue(&tsq("delivered", None)), None);
    }

    #[test]
    fn a_gate_of_a_newer_stack_has_its_own_name() {
        assert_eq!(words("peer-window"), "receiver's window");
        assert_eq!(words("moon-phase"), "moon-phase");
        assert_eq!(advice("moon-phase"), None);
    }

    #[test]
    fn a_connection_has_a_line_a_table_and_advice() {
        let shares = [("no-data", 80), ("pacing", 619), ("peer-window", 300), ("nagle", 1)];
        let said = paragraph("10.0.0.2:40000 -> 10.0.0.1:5201", &report(&shares, &[(128, 98), (8192, 2)]));
        let mut lines = said.lines();
        assert_eq!(
            lines.next(),
            Some("10.0.0.2:40000 -> 10.0.0.1:5201  62 % pacing, 30 % receiver's window, 8 % application")
        );
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines.next().unwrap()), "queue bytes now oldest stayed p50 p99");
        assert_eq!(words(lines.next().unwrap()), "unsent 131,072 1.50 ms < 128 µs < 8.19 ms");
        assert_eq!(words(lines.next().unwrap()), "device 0 - < 128 µs < 8.19 ms");
        assert!(lines.next().unwrap().contains("pacing rate"));
        assert!(paragraph("x", &report(&[("pacing", 0)], &[])).contains("nothing"));
    }

    #[test]
    fn lateness_is_a_line_where_packets_waited_for_their_departure() {
        let mut report = report(&[("pacing", 100)], &[]);
        assert!(!paragraph("x", &report).contains("late"));
        report.late_most_ns = 7_920_000;
        assert!(paragraph("x", &report).contains("  woken up late for departures: at most 7.92 ms ever\n"));
        let interval = |us: u64, count| Interval { below_ns: Some(us * 1_000), count };
        report.lateness = vec![interval(32, 90), interval(4_096, 10)];
        report.late_most_ns = 3_100_000;
        let said = paragraph("x", &report);
        let line = "  woken up late for departures: p50 < 32.0 µs, p99 < 4.10 ms, at most 3.10 ms ever\n";
        assert!(said.contains(line), "{said}");
        // Only what was added since the last output.
        let mut later = report.clone();
        later.lateness[1].count = 12;
        assert_eq!(stayed(&difference(&report, &later).lateness, 0.5), "< 4.10 ms");
    }

    #[test]
    fn a_second_look_tells_what_was_added() {
        let before = report(&[("pacing", 100), ("cwnd", 50)], &[(128, 10)]);
        let after = report(&[("pacing", 130), ("cwnd", 50)], &[(128, 10), (256, 4)]);
        let added = difference(&before, &after);
        assert_eq!(total(&added), 30_000_000);
        assert_eq!(stayed(&added.queues[0].sojourn, 0.5), "< 256 µs");
        assert_eq!(added.queues[0].bytes, 131_072);
    }

    #[test]
    fn ends_are_addresses_ports_or_both() {
        let is = |text: &str, at: &str| end(text).unwrap().is(at.parse().unwrap());
        assert!(is("10.0.0.1:80", "10.0.0.1:80") && !is("10.0.0.1:80", "10.0.0.1:81"));
        assert!(
            is("10.0.0.1", "10.0.0.1:81") && is(":81", "10.0.0.1:81") && is("[fd00::1]:8", "[fd00::1]:8")
        );
        assert!(end("here").is_err());
    }

    #[test]
    fn the_last_interval_has_no_end() {
        let open = [Interval { below_ns: Some(1_000_000), count: 1 }, Interval { below_ns: None, count: 9 }];
        assert_eq!(stayed(&open, 0.5), "> 1.00 ms");
        assert_eq!(stayed(&[], 0.5), "-");
    }
}
