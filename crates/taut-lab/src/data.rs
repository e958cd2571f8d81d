//! The results of a run: plain values that code which prints, writes or draws them can read without knowing
//! how they were measured. Filled by the simulator's runner and by the live one; read by tables, files and
//! reports.
//!
//! Times are seconds since the run began, sizes bytes and rates bits per second, unless a name says
//! otherwise. Values that a run cannot know (a kernel's send queue has no gates) are `None` or left out.
//! Every list is bounded, so a long run gives a coarser series rather than a huge one; left-out values are
//! counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taut_core::Gate;

/// Version of this format. It grows when an older reader would misunderstand the data.
pub const SCHEMA: u32 = 1;

/// A scenario that was run: all variants, all seeds, all senders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSet {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short name of the scenario, such as `tsq`.
    pub scenario: String,
    /// The scenario's title, one line.
    pub title: String,
    /// What it shows and how, in a paragraph or two.
    pub about: String,
    /// Where the published figures come from, if there are any.
    pub source: Option<String>,
    /// Measured values beside published ones.
    pub table: Table,
    /// The runs, by variant, engine and seed. The first run of each variant and engine has series; runs of
    /// further seeds may have metrics only.
    pub runs: Vec<RunData>,
}

/// Metrics (rows) of variants (columns).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The variants that are compared.
    pub columns: Vec<Column>,
    /// One for each metric.
    pub rows: Vec<Row>,
}

/// A column of measured values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Variant of the scenario, such as `before`.
    pub variant: String,
    /// The engine that ran it.
    pub engine: Engine,
    /// Runs behind each value.
    pub runs: u32,
}

/// A metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Case of the scenario, such as `100 Mbit/s`; empty when there is only one. The rows of a case are
    /// adjacent.
    #[serde(default)]
    pub case: String,
    /// Its name in [`RunData::metrics`].
    pub metric: String,
    /// Description in words.
    pub label: String,
    /// Unit of the values, such as `ms` or `Mbit/s`; empty for a count.
    pub unit: String,
    /// Published figures, by variant. They are text, because some are ranges or bounds.
    pub published: BTreeMap<String, String>,
    /// A value for each column; `None` where the run has none.
    pub cells: Vec<Option<Cell>>,
}

/// A mean over seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval (Student's t); `None` for a single value.
    pub ci95: Option<f64>,
    /// The values, by seed.
    pub values: Vec<f64>,
}

/// The sender of a run, and how it ran.
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
    /// The name that tables and figures show.
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
    /// Metadata: what was run, and how.
    pub meta: Meta,
    /// Values that the table uses, by name; units as in its rows.
    pub metrics: BTreeMap<String, f64>,
    /// Connections, by number.
    pub flows: Vec<Flow>,
    /// A series for each of the first flows.
    pub series: Vec<Series>,
    /// The sender's state after each ACK that it processed.
    pub acks: Vec<AckRow>,
    /// Packets of the first flows at the sender's NIC, for time-sequence graphs: the first of the run, and
    /// those around losses.
    pub packets: Vec<PacketPoint>,
    /// Which part of the run [`packets`](Self::packets) are of.
    #[serde(default)]
    pub traced: Traced,
    /// Goodput of every flow over time, and how evenly it was shared.
    #[serde(default)]
    pub shares: Shares,
    /// Distributions.
    pub histograms: Vec<Histogram>,
    /// SNMP counters of all senders' stacks together, by Linux's names, without those that are zero.
    pub counters: BTreeMap<String, u64>,
    /// Counts of each host's activity.
    pub hosts: Vec<HostCounts>,
    /// Number of values that did not fit, by name of the list: rows or points; for events, a lower bound.
    pub left_out: BTreeMap<String, u64>,
}

/// What was run, and how to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// Its case, as in [`Row::case`].
    #[serde(default)]
    pub case: String,
    /// Its variant.
    pub variant: String,
    /// The engine that ran it.
    pub engine: Engine,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Version of taut, and of the kernel if it took part.
    pub versions: BTreeMap<String, String>,
    /// The command line.
    pub command: String,
    /// Every value of the scenario with the changes of the variant and the command line, by path, such as
    /// `link.rate`.
    pub parameters: BTreeMap<String, String>,
    /// Length of the run.
    pub duration_s: f64,
    /// The part at the beginning that counters and metrics leave out.
    pub warm_up_s: f64,
    /// Length of an interval of [`Series`].
    pub interval_s: f64,
    /// Digest of everything that happened: equal for equal runs. Simulated runs only.
    pub digest: Option<String>,
    /// Simulated events.
    pub events: Option<u64>,
    /// Wall-clock time at which it began, RFC 3339. Only this and `took_s` differ between equal runs.
    pub began: Option<String>,
    /// Wall-clock seconds that it took.
    pub took_s: Option<f64>,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Its number, from 0.
    pub id: u32,
    /// Its name, such as `bulk 1`.
    pub name: String,
    /// Which of the scenario's `[[flows]]` it is of, from 0.
    #[serde(default)]
    pub group: u32,
    /// It is part of the conditions, and metrics and fairness leave it out.
    #[serde(default)]
    pub beside: bool,
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
    /// When it ended.
    pub ended_s: Option<f64>,
    /// Payload bytes that the receiver acknowledged.
    pub acked_bytes: u64,
    /// Payload bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Acknowledged payload over the measured part of the run.
    pub goodput_bps: f64,
    /// Smoothed round-trip time at the end.
    pub srtt_s: Option<f64>,
    /// Lowest round-trip time.
    pub min_rtt_s: Option<f64>,
    /// Time for which each gate of the send path was the closed one, in the order of the gates; zeros are
    /// left out.
    pub blocked: Vec<Share>,
    /// How long bytes stayed unsent, in the device's queues, and in flight.
    pub sojourn: Vec<Histogram>,
    /// Distributions of its own, of those in [`RunData::histograms`]: `rtt`, `flow_gap`, `latency`, `page`.
    /// The first eight flows have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Histogram>,
}

/// A share of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// What the time was spent on, such as `small-queue`.
    pub name: String,
    /// How long.
    pub seconds: f64,
}

/// A flow over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Number of the flow.
    pub flow: u32,
    /// Its intervals in order of time.
    pub points: Vec<Interval>,
}

/// A flow at the end of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// End of the interval.
    pub t_s: f64,
    /// Payload written but not sent.
    pub unsent_bytes: u64,
    /// Bytes of the connection below TCP, memory overhead included: the sum of its outstanding tickets.
    pub below_tcp_bytes: Option<u64>,
    /// IP packets in the root queue discipline of the sender's host, all flows together.
    pub qdisc_bytes: u64,
    /// IP packets in its NIC's ring, including sent but not completed ones, all flows together.
    pub ring_bytes: u64,
    /// The most bytes handed down and not yet on the wire at any time in the interval, all flows together:
    /// the device queue.
    pub device_bytes: u64,
    /// IP packets at the bottleneck, all flows together. `None` where the NIC is the bottleneck.
    pub bottleneck_bytes: Option<u64>,
    /// Payload sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; `None` while there is none.
    pub ssthresh_bytes: Option<u64>,
    /// The peer's window.
    pub peer_window_bytes: u64,
    /// Pacing rate; `None` without a limit.
    pub pacing_bps: Option<f64>,
    /// The sender's estimate of the delivery rate.
    pub delivery_bps: f64,
    /// Payload acknowledged during the interval.
    pub goodput_bps: f64,
    /// Smoothed round-trip time.
    pub srtt_s: Option<f64>,
    /// Time in this interval for which each gate was the closed one, in the order of [`GATES`]; empty where
    /// the sender does not report it.
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

/// The state of a sender after it processed an ACK.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AckRow {
    /// Time of the ACK.
    pub t_s: f64,
    /// Number of the flow.
    pub flow: u32,
    /// Payload acknowledged so far.
    pub acked_bytes: u64,
    /// Payload in flight.
    pub in_flight_bytes: u64,
    /// Payload written but not sent.
    pub unsent_bytes: u64,
    /// Bytes below TCP, memory overhead included.
    pub below_tcp_bytes: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow-start threshold; `None` while there is none.
    pub ssthresh_bytes: Option<u64>,
    /// The peer's window.
    pub peer_window_bytes: u64,
    /// Smoothed round-trip time.
    pub srtt_s: Option<f64>,
    /// Lowest recent round-trip time.
    pub min_rtt_s: Option<f64>,
    /// Pacing rate; `None` without a limit.
    pub pacing_bps: Option<f64>,
    /// The sender's estimate of the delivery rate.
    pub delivery_bps: f64,
    /// `open`, `disorder`, `cwr`, `recovery` or `loss`.
    pub ca_state: String,
    /// The gate that was closed.
    pub blocked: String,
}

/// The kind of a point or bar in a time-sequence graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    /// Payload sent for the first time: `len` bytes from `seq`.
    Data,
    /// Retransmitted payload.
    Retransmit,
    /// Everything before `seq` is acknowledged; `len` is 0.
    Ack,
    /// A block of `len` bytes from `seq` that the receiver has.
    Sack,
    /// The receiver accepts everything before `seq`; `len` is 0.
    Window,
    /// Payload that was dropped on the way.
    Drop,
}

/// A point or bar. Sequence numbers count from the first byte of payload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PacketPoint {
    /// When it was sent or arrived at the sender's NIC; for a drop, when it was dropped.
    pub t_s: f64,
    /// Number of the flow.
    pub flow: u32,
    /// Position in the stream.
    pub seq: u64,
    /// Length in bytes.
    pub len: u32,
    /// Its kind.
    pub kind: PointKind,
}

/// Which packets a run kept for time-sequence graphs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// Until then every packet of the first flows was kept; `None` if this is the whole run.
    pub whole_until_s: Option<f64>,
    /// Packets that were dropped or retransmitted, of the first flows.
    pub losses: u64,
    /// The time around losses, in which packets were kept also later.
    pub windows: Vec<LossWindow>,
}

/// A flow's packets around a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossWindow {
    /// Number of the flow.
    pub flow: u32,
    /// When the packet was dropped, or retransmitted if nothing was dropped before.
    pub t_s: f64,
    /// From then on packets were kept: a round-trip time before.
    pub from_s: f64,
    /// Until then: three round-trip times after, or less if there were many packets.
    pub to_s: f64,
    /// Packets that were dropped or retransmitted in it.
    pub losses: u64,
}

/// As many `[[flows]]` of a scenario have figures of their own.
pub const GROUPS: usize = 8;

/// Goodput of every flow over time, and how evenly it was shared. Long runs have longer intervals here than
/// in [`RunData::series`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// The intervals in order of time.
    pub points: Vec<SharePoint>,
    /// A line for each flow, also for those without a series; at most 1,000.
    pub lines: Vec<ShareLine>,
}

/// How flows shared an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharePoint {
    /// Its end; it begins with the end of the one before, or with the run.
    pub t_s: f64,
    /// Flows that were open from its beginning to its end, without those beside.
    pub flows: u64,
    /// Goodput of all flows together, without those beside.
    pub goodput_bps: f64,
    /// Jain's index of the goodput of these flows: 1 when all have the same, 1/n when one has everything.
    /// `None` when there are none, or nothing arrived.
    pub fairness: Option<f64>,
    /// The same among the flows of each `[[flows]]`.
    pub fairness_of: [Option<f64>; GROUPS],
}

/// A flow's goodput over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShareLine {
    /// Number of the flow.
    pub flow: u32,
    /// Payload acknowledged in each interval of [`Shares::points`]; `None` while the flow was not open.
    pub goodput_bps: Vec<Option<f64>>,
}

/// A distribution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// What was measured: `burst` (segments back to back on the wire), `gap` (between packets as they leave
    /// the NIC), `flow_gap` (the same between two of one flow), `rtt` (the sender's samples), `latency`
    /// (requests), `super_packet` (bytes handed down at once).
    pub name: String,
    /// Unit of the bounds: `us`, `bytes`, `segments`.
    pub unit: String,
    /// Buckets in ascending order; empty ones may be left out.
    pub buckets: Vec<Bucket>,
    /// Values counted.
    pub count: u64,
    /// Mean; 0 for no values.
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

/// A bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Lower bound, inclusive.
    pub from: f64,
    /// Upper bound, exclusive.
    pub to: f64,
    /// Number of values.
    pub count: u64,
}

/// Counts of a host's activity during the measured part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostCounts {
    /// Name of the host.
    pub name: String,
    /// The counts by name, such as `wakeups`, `tx_interrupts`, `packets_out`.
    pub counts: BTreeMap<String, u64>,
}
