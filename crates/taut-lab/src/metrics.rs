//! The metrics: names, labels, units, and how each is computed from a run's counts. Called by runners, for
//! every metric that applies, and by scenarios, for the names.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use taut_core::Gate;

use crate::columns;
use crate::data::GROUPS;
use crate::stats::Tally;

/// A metric.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Name in scenarios and files.
    pub name: String,
    /// Label in tables.
    pub label: String,
    /// Unit; empty for counts.
    pub unit: &'static str,
    value: Value,
}

/// How a metric is computed from the counts.
#[derive(Clone, Copy, Debug)]
enum Value {
    Of(fn(&Measured) -> Option<f64>),
    /// The share of time for which this gate of the send path was closed.
    Gate(Gate),
    /// Of the flows of one `[[flows]]`.
    Group(usize, fn(&Measured, &[u64]) -> Option<f64>),
}

impl Metric {
    fn value(&self, measured: &Measured) -> Option<f64> {
        match self.value {
            Value::Of(of) => of(measured),
            Value::Gate(gate) => measured.gate(gate),
            Value::Group(index, of) => {
                measured.acked_by_group.get(&index).and_then(|acked| of(measured, acked))
            }
        }
    }

    /// The unit, also of values whose unit tables leave out: numbers of things, rates of them, and ratios.
    #[must_use]
    pub fn unit_in_words(&self) -> &'static str {
        let has = |words: &str| self.label.contains(words);
        match self.unit {
            "" if self.name.starts_with("fairness") => columns::SHARE,
            "" if has("per second") => "1/s",
            "" if has("per MB") => "1/MB",
            "" if has("per packet") => "ratio",
            "" => columns::COUNT,
            unit => unit,
        }
    }

    fn of_gate(gate: Gate) -> Self {
        let name = format!("blocked_{}", gate.name().replace('-', "_"));
        Self { name, label: format!("time held by: {}", gate.words()), unit: "%", value: Value::Gate(gate) }
    }
}

/// The counts of a run's measured part. A runner leaves values that it cannot know at their defaults.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Length of the measured part.
    pub seconds: f64,
    /// Flows.
    pub flows: u64,
    /// Payload acknowledged.
    pub acked_bytes: u64,
    /// Payload acknowledged, by flow.
    pub acked_by_flow: Vec<u64>,
    /// The same by `[[flows]]`, of those with flows that are measured.
    pub acked_by_group: BTreeMap<usize, Vec<u64>>,
    /// Payload acknowledged of the flows beside; `None` without any.
    pub beside_bytes: Option<u64>,
    /// The longest time from a connection's beginning to its end, of flows that end.
    pub elapsed_s: Option<f64>,
    /// Payload of those flows per second of their time.
    pub elapsed_bps: Option<f64>,
    /// Nanoseconds from the stack to the wire.
    pub device_ns: Tally,
    /// Bytes handed down and not yet on the wire, weighted by time.
    pub device_bytes: Tally,
    /// Nanoseconds from the stack's sending of data to its ACK.
    pub rtt_ns: Tally,
    /// Segments back to back on the wire.
    pub burst: Tally,
    /// Nanoseconds between segments on the wire.
    pub gap_ns: Tally,
    /// Nanoseconds from one packet with payload to the next of its flow, as they leave the host.
    pub flow_gap_ns: Tally,
    /// Segments in each packet that the stack handed down.
    pub super_packet: Tally,
    /// Duration of requests in nanoseconds.
    pub latency_ns: Tally,
    /// Duration of page loads in nanoseconds.
    pub page_ns: Tally,
    /// Memory of senders' sockets, all flows, weighted by time.
    pub socket_memory: Tally,
    /// Unsent bytes of senders, all flows, weighted by time.
    pub unsent_bytes: Tally,
    /// Largest send buffer.
    pub sndbuf: Option<u64>,
    /// Largest receive buffer.
    pub rcvbuf: Option<u64>,
    /// Counts of all senders' hosts, by the names of `HostCounts`.
    pub sender: BTreeMap<String, u64>,
    /// Counts of all receivers' hosts.
    pub receiver: BTreeMap<String, u64>,
    /// Counters of all senders' stacks.
    pub counters: BTreeMap<String, u64>,
    /// Packets dropped in the network.
    pub network_drops: Option<u64>,
    /// Seconds for which each gate was closed, all flows, in the order of [`Gate::ALL`]; empty where the
    /// sender does not report it.
    pub blocked_s: Vec<f64>,
}

impl Measured {
    fn counter(&self, name: &str) -> Option<f64> {
        self.counters.get(name).map(|count| *count as f64)
    }

    fn sender(&self, name: &str) -> Option<f64> {
        self.sender.get(name).map(|count| *count as f64)
    }

    fn rate(&self, name: &str) -> Option<f64> {
        self.sender(name).map(|count| count / self.seconds)
    }

    /// kB per second as `sar` counts them: everything on the line except preamble, checksum and gap.
    fn frame_kbytes(&self, bytes: &str, segments: &str) -> Option<f64> {
        const ETHERNET_HEADER_BYTES: f64 = 14.0;
        Some((self.rate(bytes)? + ETHERNET_HEADER_BYTES * self.rate(segments)?) / 1e3)
    }

    fn per_mbyte(&self, count: Option<f64>) -> Option<f64> {
        count.map(|count| count / (self.acked_bytes as f64 / 1e6))
    }

    /// Share of time for which a gate was closed, in per cent.
    fn gate(&self, gate: Gate) -> Option<f64> {
        let all: f64 = self.blocked_s.iter().sum();
        let share = self.blocked_s.get(gate as usize)? / all;
        (all > 0.0).then_some(100.0 * share)
    }

    /// A flow has so much of its payload acknowledged in the measured part.
    pub fn add_flow(&mut self, group: usize, acked: u64) {
        self.acked_bytes += acked;
        self.acked_by_flow.push(acked);
        self.acked_by_group.entry(group).or_default().push(acked);
    }
}

/// Jain's index: 1 when all flows have the same goodput, 1/n when one has everything.
pub(crate) fn fairness(acked: &[u64]) -> Option<f64> {
    let sum: f64 = acked.iter().map(|bytes| *bytes as f64).sum();
    let squares: f64 = acked.iter().map(|bytes| *bytes as f64 * *bytes as f64).sum();
    (squares > 0.0).then(|| sum * sum / (squares * acked.len() as f64))
}

fn ms(tally: &Tally, of: impl Fn(&Tally) -> Option<f64>) -> Option<f64> {
    of(tally).map(|ns| ns / 1e6)
}

fn us(tally: &Tally, of: impl Fn(&Tally) -> Option<f64>) -> Option<f64> {
    of(tally).map(|ns| ns / 1e3)
}

fn max(tally: &Tally) -> Option<f64> {
    (tally.count() > 0).then(|| tally.max() as f64)
}

fn min(tally: &Tally) -> Option<f64> {
    (tally.count() > 0).then(|| tally.min() as f64)
}

/// Name, label, unit, and how it is computed from the counts.
type Row = (&'static str, &'static str, &'static str, fn(&Measured) -> Option<f64>);

const fn metric(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    value: fn(&Measured) -> Option<f64>,
) -> Row {
    (name, label, unit, value)
}

/// The same, from what each flow of one `[[flows]]` has acknowledged, too.
type GroupRow = (&'static str, &'static str, &'static str, fn(&Measured, &[u64]) -> Option<f64>);

/// What the flows of one `[[flows]]` got.
const GROUP_ROWS: [GroupRow; 3] = [
    ("goodput_of", "goodput", "Mbit/s", |m, acked| Some(acked.iter().sum::<u64>() as f64 * 8e-6 / m.seconds)),
    ("share_of", "share of the goodput", "%", |m, acked| {
        Some(100.0 * acked.iter().sum::<u64>() as f64 / m.acked_bytes as f64)
    }),
    ("fairness_of", "fairness (Jain)", "", |_, acked| fairness(acked)),
];

fn of_groups() -> impl Iterator<Item = Metric> {
    GROUP_ROWS.iter().flat_map(|&(name, label, unit, value)| {
        (0..GROUPS).map(move |index| Metric {
            name: format!("{name}_{index}"),
            label: format!("{label}, flows.{index}"),
            unit,
            value: Value::Group(index, value),
        })
    })
}

/// All metrics: the rows below, one for each gate of the send path, and some for each `[[flows]]`.
static ALL: LazyLock<Vec<Metric>> = LazyLock::new(|| {
    let metric = |&(name, label, unit, value): &Row| Metric {
        name: name.to_owned(),
        label: label.to_owned(),
        unit,
        value: Value::Of(value),
    };
    ROWS.iter().map(metric).chain(Gate::ALL.map(Metric::of_gate)).chain(of_groups()).collect()
});

const ROWS: &[Row] = &[
    metric("goodput", "goodput", "Mbit/s", |m| Some(m.acked_bytes as f64 * 8e-6 / m.seconds)),
    metric("flow_goodput", "goodput per flow", "Mbit/s", |m| {
        Some(m.acked_bytes as f64 * 8e-6 / m.seconds / m.flows as f64)
    }),
    metric("beside_goodput", "goodput of the flows beside", "Mbit/s", |m| {
        m.beside_bytes.map(|bytes| bytes as f64 * 8e-6 / m.seconds)
    }),
    metric("fairness", "fairness (Jain)", "", |m| fairness(&m.acked_by_flow)),
    metric("elapsed", "elapsed", "s", |m| m.elapsed_s),
    metric("elapsed_rate", "throughput over elapsed time", "Mbit/s", |m| m.elapsed_bps.map(|bps| bps / 1e6)),
    metric("device_time_mean", "time in the device queue, mean", "ms", |m| ms(&m.device_ns, Tally::mean)),
    metric("device_time_p99", "time in the device queue, p99", "ms", |m| {
        ms(&m.device_ns, |t| t.quantile(0.99))
    }),
    metric("device_time_max", "time in the device queue, max", "ms", |m| ms(&m.device_ns, max)),
    metric("device_bytes_mean", "device queue, mean", "kB", |m| {
        m.device_bytes.mean().map(|bytes| bytes / 1e3)
    }),
    metric("device_bytes_max", "device queue, max", "kB", |m| max(&m.device_bytes).map(|bytes| bytes / 1e3)),
    metric("rtt_mean", "round-trip time, mean", "ms", |m| ms(&m.rtt_ns, Tally::mean)),
    metric("rtt_p99", "round-trip time, p99", "ms", |m| ms(&m.rtt_ns, |t| t.quantile(0.99))),
    metric("burst_mean", "burst on the wire, mean", "segments", |m| m.burst.mean()),
    metric("burst_max", "burst on the wire, max", "segments", |m| max(&m.burst)),
    metric("gap_stddev", "gap between segments, stddev", "us", |m| {
        (m.gap_ns.count() > 0).then(|| m.gap_ns.stddev() / 1e3)
    }),
    metric("flow_gap_p50", "gap between a flow's packets, median", "us", |m| {
        us(&m.flow_gap_ns, |t| t.quantile(0.5))
    }),
    metric("flow_gap_p99", "gap between a flow's packets, p99", "us", |m| {
        us(&m.flow_gap_ns, |t| t.quantile(0.99))
    }),
    metric("packets_per_mb", "packets handed to IP per MB", "", |m| m.per_mbyte(m.counter("IpOutRequests"))),
    metric("writes_per_packet", "writes per packet", "", |m| {
        Some(m.sender("writes")? / m.counter("IpOutRequests")?)
    }),
    metric("super_packet_mean", "super-packet, mean", "segments", |m| m.super_packet.mean()),
    metric("latency_min", "latency, min", "us", |m| us(&m.latency_ns, min)),
    metric("latency_mean", "latency, mean", "us", |m| us(&m.latency_ns, Tally::mean)),
    metric("latency_p50", "latency, median", "us", |m| us(&m.latency_ns, |t| t.quantile(0.5))),
    metric("latency_p99", "latency, p99", "us", |m| us(&m.latency_ns, |t| t.quantile(0.99))),
    metric("latency_max", "latency, max", "us", |m| us(&m.latency_ns, max)),
    metric("latency_stddev", "latency, stddev", "us", |m| {
        us(&m.latency_ns, |t| (t.count() > 0).then(|| t.stddev()))
    }),
    metric("transactions", "transactions per second", "", |m| {
        (m.latency_ns.count() > 0).then(|| m.latency_ns.count() as f64 / m.seconds)
    }),
    metric("page_time_mean", "page load time, mean", "ms", |m| ms(&m.page_ns, Tally::mean)),
    metric("page_time_p99", "page load time, p99", "ms", |m| ms(&m.page_ns, |t| t.quantile(0.99))),
    metric("socket_memory", "socket memory, mean", "MB", |m| m.socket_memory.mean().map(|bytes| bytes / 1e6)),
    metric("flow_memory", "socket memory per flow, mean", "MB", |m| {
        m.socket_memory.mean().map(|bytes| bytes / 1e6 / m.flows as f64)
    }),
    metric("flow_unsent", "unsent bytes per flow, mean", "kB", |m| {
        m.unsent_bytes.mean().map(|bytes| bytes / 1e3 / m.flows as f64)
    }),
    metric("sndbuf", "send buffer", "kB", |m| m.sndbuf.map(|bytes| bytes as f64 / 1e3)),
    metric("rcvbuf", "receive buffer", "kB", |m| m.rcvbuf.map(|bytes| bytes as f64 / 1e3)),
    metric("ip_in_receives", "IpInReceives", "", |m| m.counter("IpInReceives")),
    metric("ip_out_requests", "IpOutRequests", "", |m| m.counter("IpOutRequests")),
    metric("tcp_out_segs", "TcpOutSegs", "", |m| m.counter("TcpOutSegs")),
    metric("ip_out_octets", "IpExtOutOctets", "", |m| m.counter("IpExtOutOctets")),
    metric("retransmits", "segments retransmitted", "", |m| m.counter("TcpRetransSegs")),
    metric("timeouts", "retransmission timeouts", "", |m| m.counter("TcpExtTCPTimeouts")),
    metric("tcp_auto_corking", "TcpExtTCPAutoCorking", "", |m| m.counter("TcpExtTCPAutoCorking")),
    metric("autocork_held", "writes held by autocorking", "", |m| m.counter("TautAutocorkHeld")),
    metric("tsq_throttled", "times held by the small queue", "", |m| m.counter("TautTsqThrottled")),
    metric("pacing_late_1ms", "pacing timers over 1 ms late", "", |m| m.counter("TautPacingLate1ms")),
    metric("pacing_blocked", "times held by pacing", "", |m| m.counter("TautPacingBlocked")),
    metric("network_drops", "packets dropped in the network", "", |m| {
        m.network_drops.map(|count| count as f64)
    }),
    metric("host_drops", "packets dropped by the sender's host", "", |m| m.sender("dropped")),
    metric("lost_wakeups", "completions that woke no sender", "", |m| m.sender("lost_wakeups")),
    metric("flow_wakeups", "application wake-ups per second and flow", "", |m| {
        m.rate("wakeups").map(|count| count / m.flows as f64)
    }),
    metric("wakeups_per_mb", "application wake-ups per MB", "", |m| m.per_mbyte(m.sender("wakeups"))),
    metric("flow_context_switches", "context switches per second and flow", "", |m| {
        m.rate("context_switches").map(|count| count / m.flows as f64)
    }),
    metric("slowest_flow", "goodput of the slowest flow", "Mbit/s", |m| {
        m.acked_by_flow.iter().min().map(|bytes| *bytes as f64 * 8e-6 / m.seconds)
    }),
    metric("wakeups", "application wake-ups per second", "", |m| m.rate("wakeups")),
    metric("context_switches", "context switches per second", "", |m| m.rate("context_switches")),
    metric("syscalls", "system calls per second", "", |m| m.rate("syscalls")),
    metric("interrupts", "interrupts per second", "", |m| {
        Some(m.rate("tx_interrupts")? + m.rate("rx_interrupts")?)
    }),
    metric("tx_interrupts", "TX interrupts per second", "", |m| m.rate("tx_interrupts")),
    metric("completions", "completions of sent packets per second", "", |m| m.rate("completions")),
    metric("rx_interrupts", "RX interrupts per second", "", |m| m.rate("rx_interrupts")),
    metric("timer_events", "timer events per second, stack and queue discipline", "", |m| {
        Some(m.rate("timer_events")? + m.rate("qdisc_timers").unwrap_or(0.0))
    }),
    metric("stack_timers", "timer events of the stack per second", "", |m| m.rate("timer_events")),
    metric("qdisc_timers", "timer events of the queue discipline per second", "", |m| m.rate("qdisc_timers")),
    metric("tx_packets", "segments sent per second", "", |m| m.rate("segments_out")),
    metric("rx_packets", "segments received per second", "", |m| m.rate("segments_in")),
    metric("tx_kbytes", "sent, with Ethernet's headers", "kB/s", |m| {
        m.frame_kbytes("bytes_out", "segments_out")
    }),
    metric("rx_kbytes", "received, with Ethernet's headers", "kB/s", |m| {
        m.frame_kbytes("bytes_in", "segments_in")
    }),
    metric("acks_in", "ACKs received", "", |m| m.sender("acks_in")),
    metric("acks_up", "packets received by the sender's stack", "", |m| m.sender("packets_in")),
    metric("cpu", "processor busy", "%", |m| m.sender("busy_ns").map(|ns| ns / 1e7 / m.seconds)),
];

/// The metric of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name)
}

/// Every name.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|metric| metric.name.as_str()).collect()
}

/// The values of all metrics that apply to this run.
#[must_use]
pub fn of(measured: &Measured) -> BTreeMap<String, f64> {
    let values = ALL.iter().filter_map(|metric| {
        let value = metric.value(measured).filter(|value| value.is_finite())?;
        Some((metric.name.clone(), value))
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names = names();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn values_have_their_units() {
        let mut measured =
            Measured { seconds: 2.0, flows: 2, acked_bytes: 250_000_000, ..Measured::default() };
        measured.acked_by_flow = vec![250_000_000, 0];
        measured.device_ns.add(3_000_000);
        measured.sender.insert("wakeups".into(), 500);
        // Two thousand full frames in two seconds.
        measured.sender.insert("bytes_out".into(), 3_000_000);
        measured.sender.insert("segments_out".into(), 2_000);
        measured.blocked_s = vec![0.0; Gate::COUNT];
        measured.blocked_s[3] = 3.0;
        measured.blocked_s[9] = 1.0;
        let values = of(&measured);
        assert_eq!(values["goodput"], 1_000.0);
        assert_eq!(values["flow_goodput"], 500.0);
        assert_eq!(values["fairness"], 0.5);
        assert_eq!(values["device_time_max"], 3.0);
        assert_eq!(values["wakeups"], 250.0);
        assert_eq!(values["wakeups_per_mb"], 2.0);
        assert_eq!((values["tx_packets"], values["tx_kbytes"]), (1_000.0, 1_514.0));
        assert_eq!((values["blocked_cwnd"], values["blocked_small_queue"]), (75.0, 25.0));
        assert!(!values.contains_key("latency_mean") && !values.contains_key("retransmits"));
        measured.sender.insert("writes".into(), 9_000);
        measured.counters.insert("IpOutRequests".into(), 4_500);
        let values = of(&measured);
        assert_eq!((values["packets_per_mb"], values["writes_per_packet"]), (18.0, 2.0));
    }
}
