//! What a run leaves: plain values that whoever prints, writes or draws can read without knowing how they came about.
//! Ours; filled by the simulator's runner and by the live one, read by tables, files and reports.
//!
//! Times are seconds since the run began, sizes bytes and rates bits per second, unless a name says otherwise. What a run
//! cannot know (a kernel's send queue has no gates) is `None` or left out. Everything has a bound, so that a long run
//! makes a coarse series rather than a huge one; what was left out is counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taut_core::Gate;

/// Version of all that follows. It grows when a reader would misunderstand.
pub const SCHEMA: u32 = 1;

/// A scenario that was run: all variants, all seeds, all senders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSet {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short name of the scenario, as `tsq`.
    pub scenario: String,
    /// One line.
    pub title: String,
    /// What it shows and how, a paragraph or two.
    pub about: String,
    /// Where the published figures come from, if there are any.
    pub source: Option<String>,
    /// What was measured, beside what was published.
    pub table: Table,
    /// The runs, by variant, engine and seed. The first of each variant and engine has its series; those of further
    /// seeds may have metrics only.
    pub runs: Vec<RunData>,
}

/// Metrics (rows) of variants (columns).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What stands side by side.
    pub columns: Vec<Column>,
    /// One line each.
    pub rows: Vec<Row>,
}

/// A column of measured values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Variant of the scenario, as `before`.
    pub variant: String,
    /// Who ran it.
    pub engine: Engine,
    /// Runs behind each value.
    pub runs: u32,
}

/// A metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Part of the scenario that it is about, as `100 Mbit/s`; empty when there is only one. Rows of a case follow each
    /// other.
    #[serde(default)]
    pub case: String,
    /// Its name in [`RunData::metrics`].
    pub metric: String,
    /// What it is, in words.
    pub label: String,
    /// Unit of the values, as `ms`, `Mbit/s`, or nothing for a count.
    pub unit: String,
    /// What was published, by variant: text, since some are ranges and bounds.
    pub published: BTreeMap<String, String>,
    /// A value for each column; `None` where there is none.
    pub cells: Vec<Option<Cell>>,
}

/// A mean over seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval (Student's t); `None` of a single value.
    pub ci95: Option<f64>,
    /// The values, by seed.
    pub values: Vec<f64>,
}

/// Who sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// taut at both ends, in the simulator.
    #[default]
    Sim,
    /// taut on a TUN, to the kernel's TCP.
    Live,
    /// The kernel's TCP, over the same link.
    Linux,
}

impl Engine {
    /// In words.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Sim => "taut sim",
            Self::Live => "taut live",
            Self::Linux => "Linux live",
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunData {
    /// What was run.
    pub meta: Meta,
    /// Values that the table takes, by name; units as in its rows.
    pub metrics: BTreeMap<String, f64>,
    /// Connections, by number.
    pub flows: Vec<Flow>,
    /// A series for each of the first flows.
    pub series: Vec<Series>,
    /// After each ACK that a sender processed.
    pub acks: Vec<AckRow>,
    /// Packets of the first flows at the sender's NIC: what a time-sequence graph shows.
    pub packets: Vec<PacketPoint>,
    /// Distributions.
    pub histograms: Vec<Histogram>,
    /// SNMP counters of all senders' stacks together, by Linux's names, without those that are zero.
    pub counters: BTreeMap<String, u64>,
    /// What hosts did.
    pub hosts: Vec<HostCounts>,
    /// What had no place, by name of the list: rows or points; of events at least so many.
    pub left_out: BTreeMap<String, u64>,
}

/// What was run, and how to run it again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Part of it, as in [`Row::case`].
    #[serde(default)]
    pub case: String,
    /// Variant of it.
    pub variant: String,
    /// Who ran it.
    pub engine: Engine,
    /// Seed of all chance.
    pub seed: u64,
    /// taut, and the kernel when it took part.
    pub versions: BTreeMap<String, String>,
    /// The command line.
    pub command: String,
    /// Every value of the scenario with this variant's and the command line's changes, by its path, as `link.rate`.
    pub parameters: BTreeMap<String, String>,
    /// Length of the run.
    pub duration_s: f64,
    /// Its beginning, which counters and metrics leave out.
    pub warm_up_s: f64,
    /// Length of an interval of [`Series`].
    pub interval_s: f64,
    /// Digest of everything that happened: equal for equal runs. Simulated runs only.
    pub digest: Option<String>,
    /// Simulated events.
    pub events: Option<u64>,
    /// Wall-clock time that it began, RFC 3339; the only value that differs between equal runs, with the next.
    pub began: Option<String>,
    /// Wall-clock time that it took.
    pub took_s: Option<f64>,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its number, from 0.
    pub id: u32,
    /// What it is, as `bulk 1`.
    pub name: String,
    /// Host of the sender.
    pub from: String,
    /// Host of the receiver.
    pub to: String,
    /// Address and port of the sender.
    pub local: String,
    /// Address and port of the receiver.
    pub peer: String,
    /// When it was connected.
    pub connected_s: Option<f64>,
    /// When it was over.
    pub ended_s: Option<f64>,
    /// Payload bytes that the receiver acknowledged.
    pub acked_bytes: u64,
    /// Payload bytes sent again.
    pub retransmitted_bytes: u64,
    /// Acknowledged payload over the measured part of the run.
    pub goodput_bps: f64,
    /// Smoothed round-trip time at the end.
    pub srtt_s: Option<f64>,
    /// Lowest round-trip time.
    pub min_rtt_s: Option<f64>,
    /// Time for which each gate of the send path was the one that was shut, in the gates' order, zeros left out.
    pub blocked: Vec<Share>,
    /// How long bytes stayed unsent, in the device's queues, and in flight.
    pub sojourn: Vec<Histogram>,
}

/// A share of a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Of what, as `small-queue`.
    pub name: String,
    /// How long.
    pub seconds: f64,
}

/// A flow over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Number of the flow.
    pub flow: u32,
    /// Its intervals, one after the other.
    pub points: Vec<Interval>,
}

/// A flow at the end of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// End of the interval.
    pub t_s: f64,
    /// Payload written and not sent.
    pub unsent_bytes: u64,
    /// What the connection has below TCP, memory overhead included: tickets that are out.
    pub below_tcp_bytes: Option<u64>,
    /// IP packets in the root queue discipline of the sender's host, all flows together.
    pub qdisc_bytes: u64,
    /// IP packets in its NIC's ring, sent but not completed ones included, all flows.
    pub ring_bytes: u64,
    /// Most that was handed down and not on the wire during the interval, all flows: the device queue.
    pub device_bytes: u64,
    /// IP packets at the bottleneck, all flows. `None` where the NIC is the bottleneck.
    pub bottleneck_bytes: Option<u64>,
    /// Payload sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; `None` while there is none.
    pub ssthresh_bytes: Option<u64>,
    /// The peer's window.
    pub peer_window_bytes: u64,
    /// `None` without a limit.
    pub pacing_bps: Option<f64>,
    /// The sender's estimate.
    pub delivery_bps: f64,
    /// Payload acknowledged during the interval.
    pub goodput_bps: f64,
    /// Smoothed.
    pub srtt_s: Option<f64>,
    /// Time in this interval for which each gate was the one that was shut, in the order of [`GATES`]; empty where the
    /// sender does not tell.
    pub blocked_s: Vec<f64>,
}

/// Names of the gates, in the order of [`Interval::blocked_s`].
pub const GATES: [&str; Gate::COUNT] = {
    let mut names = [""; Gate::COUNT];
    let mut index = 0;
    while index < Gate::COUNT {
        names[index] = Gate::ALL[index].name();
        index += 1;
    }
    names
};

/// A sender after it processed an ACK.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AckRow {
    /// When.
    pub t_s: f64,
    /// Number of the flow.
    pub flow: u32,
    /// Payload acknowledged so far.
    pub acked_bytes: u64,
    /// Payload in flight.
    pub in_flight_bytes: u64,
    /// Payload written and not sent.
    pub unsent_bytes: u64,
    /// Below TCP, memory overhead included.
    pub below_tcp_bytes: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; `None` while there is none.
    pub ssthresh_bytes: Option<u64>,
    /// The peer's window.
    pub peer_window_bytes: u64,
    /// Smoothed.
    pub srtt_s: Option<f64>,
    /// Lowest lately.
    pub min_rtt_s: Option<f64>,
    /// `None` without a limit.
    pub pacing_bps: Option<f64>,
    /// The sender's estimate.
    pub delivery_bps: f64,
    /// `open`, `disorder`, `cwr`, `recovery` or `loss`.
    pub ca_state: String,
    /// The gate that was shut.
    pub blocked: String,
}

/// A point or a bar of a time-sequence graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    /// Payload that is sent for the first time: `seq`, `len` bytes.
    Data,
    /// Payload that is sent again.
    Retransmit,
    /// Everything before `seq` is acknowledged; `len` is 0.
    Ack,
    /// A block of `len` bytes from `seq` that the receiver has.
    Sack,
    /// The receiver will take everything before `seq`; `len` is 0.
    Window,
    /// Payload that was dropped on the way.
    Drop,
}

/// One of them. Sequence numbers count from the first byte of payload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketPoint {
    /// When, at the sender's NIC: sent, or arrived there; when it was dropped.
    pub t_s: f64,
    /// Number of the flow.
    pub flow: u32,
    /// Where in the stream.
    pub seq: u64,
    /// How far.
    pub len: u32,
    /// What it is.
    pub kind: PointKind,
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Of what: `burst` (segments back to back on the wire), `gap` (between packets as they leave the NIC), `rtt`
    /// (samples of the sender), `latency` (requests), `super_packet` (bytes handed down at once).
    pub name: String,
    /// Unit of the bounds: `us`, `bytes`, `segments`.
    pub unit: String,
    /// Buckets in ascending order; empty ones may be left out.
    pub buckets: Vec<Bucket>,
    /// Values counted.
    pub count: u64,
    /// Mean; 0 of nothing.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// A part of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Values are from here on.
    pub from: f64,
    /// They are below this.
    pub to: f64,
    /// How many.
    pub count: u64,
}

/// What a host did during the measured part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCounts {
    /// The host.
    pub name: String,
    /// What was counted, as `wakeups`, `tx_interrupts`, `packets_out`.
    pub counts: BTreeMap<String, u64>,
}
