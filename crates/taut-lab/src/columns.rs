//! The columns of a run's tables: names, units, and what they mean. The files' first lines are made of these,
//! and `taut lab metrics` prints them. Called by `output/files.rs` and the command.

use taut_core::Gate;

use crate::data::GROUPS;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its unit, [`COUNT`] for numbers of things, or [`WORD`].
    pub unit: &'static str,
    /// The meaning of its values.
    pub label: String,
}

/// The unit of numbers of things.
pub const COUNT: &str = "count";
/// The unit of text.
pub const WORD: &str = "word";
/// The unit of shares between 0 and 1.
pub const SHARE: &str = "0 to 1";

type Fixed = (&'static str, &'static str, &'static str);

const END: Fixed = ("t_s", "s", "end of the interval, since the run began");
const FLOW: Fixed = ("flow", COUNT, "number of the flow, from 0, in the order of the scenario");

const INTERVALS: [Fixed; 16] = [
    END,
    FLOW,
    ("unsent_bytes", "bytes", "payload written and not sent"),
    ("below_tcp_bytes", "bytes", "below TCP, memory overhead included: the outstanding tickets"),
    ("qdisc_bytes", "bytes", "IP packets in the root queue of the sender's host, all flows"),
    ("ring_bytes", "bytes", "IP packets in the ring of its NIC, all flows"),
    ("device_bytes", "bytes", "the most handed down and not on the wire in the interval, all flows"),
    ("bottleneck_bytes", "bytes", "IP packets at the bottleneck, all flows"),
    ("in_flight_bytes", "bytes", "payload sent and not acknowledged"),
    ("cwnd_bytes", "bytes", "congestion window"),
    ("ssthresh_bytes", "bytes", "slow-start threshold"),
    ("peer_window_bytes", "bytes", "the peer's window"),
    ("pacing_bps", "bit/s", "pacing rate; empty without a limit"),
    ("delivery_bps", "bit/s", "the sender's estimate of the delivery rate"),
    ("goodput_bps", "bit/s", "payload acknowledged in the interval"),
    ("srtt_s", "s", "smoothed round-trip time"),
];

const ACKS: [Fixed; 15] = [
    ("t_s", "s", "time of the ACK, since the run began"),
    FLOW,
    ("acked_bytes", "bytes", "payload acknowledged so far"),
    ("in_flight_bytes", "bytes", "payload in flight"),
    ("unsent_bytes", "bytes", "payload written and not sent"),
    ("below_tcp_bytes", "bytes", "below TCP, memory overhead included"),
    ("cwnd_bytes", "bytes", "congestion window"),
    ("ssthresh_bytes", "bytes", "slow-start threshold"),
    ("peer_window_bytes", "bytes", "the peer's window"),
    ("srtt_s", "s", "smoothed round-trip time"),
    ("min_rtt_s", "s", "least recent round-trip time"),
    ("pacing_bps", "bit/s", "pacing rate; empty without a limit"),
    ("delivery_bps", "bit/s", "the sender's estimate of the delivery rate"),
    ("ca_state", WORD, "open, disorder, cwr, recovery or loss"),
    ("blocked", WORD, "the gate of the send path that is closed"),
];

const PACKETS: [Fixed; 5] = [
    ("t_s", "s", "when it left or reached the sender's NIC, or was dropped"),
    FLOW,
    ("seq", "bytes", "position in the stream"),
    ("len", "bytes", "length; 0 for ack and window"),
    ("kind", WORD, "data, retransmit, ack, sack, window or drop"),
];

const GOODPUT: [Fixed; 3] =
    [END, FLOW, ("goodput_bps", "bit/s", "payload of this flow acknowledged in the interval")];

const FAIRNESS: [Fixed; 4] = [
    END,
    ("flows", COUNT, "flows open from its beginning to its end"),
    ("goodput_bps", "bit/s", "payload of all flows acknowledged in the interval"),
    ("fairness", SHARE, "Jain's index of these flows' goodput"),
];

/// Distributions of a run, by their names in `meta.json`.
const DISTRIBUTIONS: [Fixed; 8] = [
    ("device_time", "us", "time of a packet between the stack and the wire"),
    ("rtt", "us", "round-trip time: from the stack to the ACK that acknowledges it"),
    ("burst", "segments", "segments back to back on the sender's wire"),
    ("gap", "us", "time between two packets with payload as they leave the host"),
    ("flow_gap", "us", "the same between two packets of one flow"),
    ("super_packet", "segments", "segments in each packet that the stack handed down"),
    ("latency", "us", "duration of requests"),
    ("page", "us", "duration of page loads"),
];

/// The distributions, of the whole run without its warm-up.
#[must_use]
pub fn distributions() -> Vec<Column> {
    all(&DISTRIBUTIONS)
}

/// The columns of `goodput.csv`.
#[must_use]
pub fn goodput() -> Vec<Column> {
    all(&GOODPUT)
}

/// The columns of `fairness.csv`.
#[must_use]
pub fn fairness() -> Vec<Column> {
    let group = |index: usize| Column {
        name: format!("fairness_of_{index}"),
        unit: SHARE,
        label: format!("the same among flows.{index}"),
    };
    let mut columns = all(&FAIRNESS);
    columns.extend((0..GROUPS).map(group));
    columns
}

/// The columns of `intervals.csv`.
#[must_use]
pub fn intervals() -> Vec<Column> {
    let gate = |gate: Gate| Column {
        name: format!("blocked_{}_s", gate.name().replace('-', "_")),
        unit: "s",
        label: format!("time in the interval held by: {}", gate.words()),
    };
    let mut columns = all(&INTERVALS);
    columns.extend(Gate::ALL.map(gate));
    columns
}

/// The columns of `acks.csv`.
#[must_use]
pub fn acks() -> Vec<Column> {
    all(&ACKS)
}

/// The columns of `packets.csv`.
#[must_use]
pub fn packets() -> Vec<Column> {
    all(&PACKETS)
}

/// The tables of a run, by their files' names.
#[must_use]
pub fn tables() -> [(&'static str, Vec<Column>); 5] {
    [
        ("goodput.csv", goodput()),
        ("fairness.csv", fairness()),
        ("intervals.csv", intervals()),
        ("acks.csv", acks()),
        ("packets.csv", packets()),
    ]
}

fn all(columns: &[Fixed]) -> Vec<Column> {
    let column =
        |&(name, unit, label): &Fixed| Column { name: name.to_owned(), unit, label: label.to_owned() };
    columns.iter().map(column).collect()
}

/// The first line of a file with these columns.
#[must_use]
pub fn header(columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    names.join(",") + "\n"
}
