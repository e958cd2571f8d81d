//! Runs a scenario on this machine: taut or the kernel as the sender, the kernel as the receiver, and between them the
//! scenario's link, emulated by the queues of `taut-link`.
//!
//! ```text
//!   taut ── its own queue ── in-process link ┐
//!                                            ├─ emulator.rs: router's queue, delay, losses ── TUN ── kernel: peer.rs
//!   kernel ── tbf ── TUN ────────────────────┘
//!    apps.rs: the same applications over taut_end.rs or kernel_end.rs
//! ```
//!
//! The queue of a pair's link is the sender's own, as a NIC's is, so that small queues see it: taut's in front of its
//! device, the kernel's a `tbf` that `tc` puts on the TUN. In a dumbbell the queue is in the network, and the emulator's.
//! Everything is in namespaces without names, which end with the run. Called by the runner.

mod apps;
mod emulator;
mod kernel_end;
mod peer;
mod segments;
mod taut_end;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use taut_core::LinkCaps;
use taut_device::{Cidr, Namespace, Tun, TunOptions};
use taut_link::{NicSpec, QdiscSpec, TbfSpec};

use crate::data::{Engine, Flow, GATES, HostCounts, RunData, Series, Share};
use crate::job::{Job, Outcome, RunError};
use crate::metrics::{self, Measured};
use crate::scenario::{AppKind, Kind, Scenario};
use crate::sim;
use apps::{FlowPlan, FlowResult};
use emulator::{Counts, Emulator, Port};
use kernel_end::{Kernel, UNKNOWN};
use peer::Peer;
use taut_end::Taut;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const PREFIX: u8 = 24;
/// Ports of the sink, and of the first responder.
const SINK: u16 = 5001;
const RESPONDER: u16 = 6001;
/// Flows that have a series.
const SERIES_MAX: usize = 8;
/// What the in-process link holds before it says that it is full: it is emptied at once.
const PIPE_LIMIT_BYTES: usize = 4 << 20;
/// What may wait for a NIC: a thousand packets, or, where those may be super-packets, four times as many bytes.
const QUEUE_BYTES: u32 = 1_514_000;

/// Runs it; `progress` is told the share that is done, and says whether to go on.
///
/// # Errors
/// When the scenario is not for live runs, when there is no namespace or TUN to be had, or when the caller ends it.
pub fn run(job: &Job, progress: &(dyn Fn(f64) -> bool + Sync)) -> Result<Outcome, RunError> {
    let scenario = &job.variation.scenario;
    let impossible = |why: &str| Err(RunError::Impossible(why.to_owned()));
    if !scenario.live {
        return impossible("this scenario says nothing on a TUN: it has no live = true");
    }
    if scenario.flows.iter().any(|flow| flow.app == AppKind::Web || flow.on.is_some()) {
        return impossible("web pages and pauses are simulated only");
    }
    if scenario.topology.kind == Kind::ParkingLot {
        return impossible("a parking lot is simulated only");
    }
    let faults = &scenario.link.faults;
    if faults.reorder > 0.0 || scenario.link.back_faults != Default::default() {
        return impossible("reordering and faults on the way back are simulated only");
    }
    let run = match job.engine {
        Engine::Live => taut_sends,
        Engine::Linux => kernel_sends,
        Engine::Sim => return impossible("a simulated run is not a live one"),
    };
    // On a thread of its own, whose urgency its threads inherit and which ends with the run.
    let data = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let is_urgent = be_urgent();
            run(job, progress).map(|mut data| {
                data.meta
                    .versions
                    .insert("scheduling".into(), if is_urgent { "fifo" } else { "other" }.into());
                data
            })
        });
        run.join().unwrap_or_else(|_| Err(RunError::Impossible("a live run's thread ended".into())))
    });
    data.map(|data| Outcome { data, ..Outcome::default() })
}

/// Real-time priority, the lowest there is, for the calling thread and those it starts: a link whose thread waits for
/// others of the machine is a different link. Says whether the kernel allows it.
fn be_urgent() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    #[expect(unsafe_code, reason = "no library has the call")]
    // SAFETY: the parameter outlives the call, which reads it.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    result == 0
}

fn context(what: &str) -> impl Fn(io::Error) -> RunError + '_ {
    move |error| RunError::Impossible(format!("{what}: {error}"))
}

/// Hosts hand down super-packets where their NIC would take them.
fn has_super_packets(scenario: &Scenario) -> bool {
    scenario.hosts.sender.nic.tso.unwrap_or(true)
}

/// In a network packets are apart.
fn is_network(scenario: &Scenario) -> bool {
    scenario.topology.kind == Kind::Dumbbell && has_super_packets(scenario)
}

fn mtu(scenario: &Scenario) -> u16 {
    scenario.hosts.sender.mtu.unwrap_or(1_500)
}

fn queue_bytes(scenario: &Scenario) -> u32 {
    if has_super_packets(scenario) { 4 * QUEUE_BYTES } else { QUEUE_BYTES }
}

/// Of a sender's own queue: at least a super-packet must pass, and at least what a tick of the clock lets pass.
fn burst_bytes(scenario: &Scenario) -> u64 {
    let millisecond = scenario.link.rate.value.bytes_per_second() / 1_000;
    millisecond.max(if has_super_packets(scenario) { 70_000 } else { 3_000 })
}

/// Rate of a sender's own queue, bits per second of IP packets: the queues of hosts do not count what Ethernet adds.
fn own_rate(scenario: &Scenario) -> u64 {
    let mtu = u64::from(mtu(scenario));
    let rate = u128::from(scenario.link.rate.value.bits_per_second());
    u64::try_from(rate * u128::from(mtu) / u128::from(mtu + u64::from(NicSpec::ETHERNET_BYTES)))
        .unwrap_or(u64::MAX)
}

/// The ways there and back.
fn ways(scenario: &Scenario) -> Result<(Vec<QdiscSpec>, Vec<QdiscSpec>), RunError> {
    let parse = |text: String| {
        text.parse::<QdiscSpec>().map_err(|error| RunError::Impossible(format!("{text}: {error}")))
    };
    let own = scenario.topology.delays.first().map_or(0, |delay| delay.value.as_nanos());
    let delay_ns = scenario.link.delay().as_nanos() + own;
    let wire = |loss: String| parse(format!("netem limit 1000000 delay {delay_ns}ns{loss}"));
    let (mut there, mut back) = (Vec::new(), Vec::new());
    if scenario.topology.kind == Kind::Dumbbell {
        let queue = scenario.bottleneck_queue();
        let rate = scenario.link.rate.value;
        // A whole packet is on the line at a time, and none ahead of it.
        let line = || {
            let line = TbfSpec { rate, burst_bytes: 0, limit: None };
            QdiscSpec::Tbf(line, Some(Box::new(queue.clone())))
        };
        there.push(line());
        back.push(line());
    }
    let faults = &scenario.link.faults;
    let mut words = String::new();
    for (word, share) in [("loss", faults.loss), ("duplicate", faults.duplicate), ("corrupt", faults.corrupt)]
    {
        if share > 0.0 {
            words.push_str(&format!(" {word} {}%", share * 100.0));
        }
    }
    if let Some(jitter) = &faults.jitter {
        words.insert_str(0, &format!(" {}ns", jitter.value.as_nanos()));
    }
    there.push(wire(words)?);
    back.push(wire(String::new())?);
    Ok((there, back))
}

fn plans(scenario: &Scenario) -> (Vec<FlowPlan>, Vec<peer::Responder>) {
    let (mut plans, mut responders) = (Vec::new(), Vec::new());
    for (index, spec) in scenario.flows.iter().enumerate() {
        let port = if spec.app == AppKind::Rr { RESPONDER + index as u16 } else { SINK };
        if spec.app == AppKind::Rr {
            let size = |text: &Option<crate::scenario::value::Text<crate::scenario::value::Bytes>>| {
                text.as_ref().map_or(1, |text| text.value.0.max(1) as usize)
            };
            responders.push((port, size(&spec.request), size(&spec.response)));
        }
        let time = |text: &Option<crate::scenario::value::Text<taut_core::Duration>>| {
            text.as_ref().map_or(Duration::ZERO, |text| text.value.into())
        };
        for copy in 0..spec.count {
            let name = if spec.count > 1 {
                format!("{} {index}.{copy}", spec.app.name())
            } else {
                format!("{} {index}", spec.app.name())
            };
            let start = time(&spec.start) + time(&spec.stagger) * copy;
            plans.push(FlowPlan { name, spec: spec.clone(), to: (FAR, port).into(), start });
        }
    }
    (plans, responders)
}

/// The receiver's namespace with its TUN, and the thread in it.
fn receiver(scenario: &Scenario, responders: Vec<peer::Responder>) -> Result<(Tun, Peer), RunError> {
    let namespace = Namespace::new().map_err(context("no network namespace"))?;
    let tun = open_tun(&namespace, FAR, scenario, &scenario.hosts.receiver.sysctls.0)?;
    let peer =
        Peer::start(namespace, FAR, SINK, responders).map_err(context("the receiver cannot listen"))?;
    Ok((tun, peer))
}

/// A TUN in a namespace with this address, and settings of the kernel there.
fn open_tun(
    namespace: &Namespace,
    address: Ipv4Addr,
    scenario: &Scenario,
    sysctls: &BTreeMap<String, String>,
) -> Result<Tun, RunError> {
    let options =
        TunOptions { mtu: mtu(scenario), offload: has_super_packets(scenario), ..TunOptions::default() };
    let opened = namespace.enter(|| -> io::Result<Tun> {
        // As far as the kernel's buffers grow by themselves nothing here depends on.
        fs::write("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 67108864")?;
        for (name, value) in sysctls {
            let full = if name.contains('.') { name.clone() } else { format!("net.ipv4.{name}") };
            if full.starts_with("net.ipv4.") {
                // What only taut has, the kernel need not know.
                let _ = fs::write(format!("/proc/sys/{}", full.replace('.', "/")), value);
            }
        }
        let tun = Tun::open("taut0", &options)?;
        let cidr = Cidr::new(IpAddr::V4(address), PREFIX).ok_or(io::ErrorKind::InvalidInput)?;
        tun.interface()?.add_address(cidr)?;
        Ok(tun)
    });
    opened.and_then(|inner| inner).map_err(context("no TUN"))
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn taut_sends(job: &Job, progress: &(dyn Fn(f64) -> bool + Sync)) -> Result<RunData, RunError> {
    let scenario = &job.variation.scenario;
    let (plans, responders) = plans(scenario);
    let (tun, peer) = receiver(scenario, responders)?;
    let caps = if has_super_packets(scenario) {
        LinkCaps::offloading(mtu(scenario))
    } else {
        LinkCaps::plain(mtu(scenario))
    };
    let (near, far) = taut_device::pipe(caps, PIPE_LIMIT_BYTES).map_err(context("no in-process link"))?;
    let (there, back) = ways(scenario)?;
    let emulator =
        Emulator::start(Port::Pipe(far), Port::Tun(tun), there, back, job.seed, is_network(scenario))
            .map_err(context("no emulator"))?;
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&job.seed.to_le_bytes());
    let mut builder = taut::Stack::builder()
        .device(near)
        .address(&format!("{NEAR}/{PREFIX}"))
        .config(scenario.stack_config())
        .seed(seed);
    if scenario.topology.kind == Kind::Pair {
        let rate = own_rate(scenario);
        let usecs =
            scenario.hosts.sender.nic.tx_usecs.map_or_else(String::new, |us| format!(" tx-usecs {us}us"));
        let (burst, limit) = (burst_bytes(scenario), queue_bytes(scenario));
        builder = builder.link_from(&format!("rate {rate}bit burst {burst}b limit {limit}b{usecs}"));
    }
    let stack = builder.build().map_err(context("no stack"))?;
    for (name, value) in &scenario.hosts.sender.sysctls.0 {
        stack.set_sysctl(name, value).map_err(|error| RunError::Impossible(error.to_string()))?;
    }
    let sender = Taut(stack);
    let marked = Marked::default();
    let mark = || marked.set(&emulator.counts);
    let work = apps::run(&sender, &plans, scenario, SERIES_MAX, mark, progress);
    let result = runtime().and_then(|runtime| runtime.block_on(work)).map_err(context("the run failed"))?;
    let counts = marked.since(&emulator.counts);
    drop((sender, emulator, peer));
    finish(job, result, counts)
}

fn kernel_sends(job: &Job, progress: &(dyn Fn(f64) -> bool + Sync)) -> Result<RunData, RunError> {
    let scenario = &job.variation.scenario;
    let (plans, responders) = plans(scenario);
    let (far, peer) = receiver(scenario, responders)?;
    let namespace = Namespace::new().map_err(context("no network namespace"))?;
    let near = open_tun(&namespace, NEAR, scenario, &scenario.hosts.sender.sysctls.0)?;
    let (there, back) = ways(scenario)?;
    let emulator =
        Emulator::start(Port::Tun(near), Port::Tun(far), there, back, job.seed, is_network(scenario))
            .map_err(context("no emulator"))?;
    let marked = Marked::default();
    let has_queue = scenario.topology.kind == Kind::Pair;
    let result = namespace
        .enter(|| -> Result<Option<apps::Result>, RunError> {
            if has_queue {
                let rate = format!("{}bit", own_rate(scenario));
                let (burst, limit) = (burst_bytes(scenario).to_string(), queue_bytes(scenario).to_string());
                tc(&[
                    "qdisc", "replace", "dev", "taut0", "root", "tbf", "rate", &rate, "burst", &burst,
                    "limit", &limit,
                ])
                .map_err(context("the sender's queue: tc"))?;
            }
            let backlog = Arc::new(AtomicU64::new(UNKNOWN));
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                if has_queue {
                    // A thread inherits the namespace of who starts it.
                    let interval = Duration::from(scenario.interval()).max(Duration::from_millis(20));
                    let (backlog, over) = (Arc::clone(&backlog), &over);
                    scope.spawn(move || {
                        while !over.load(Ordering::Relaxed) {
                            if let Some(bytes) = tc(&["-s", "qdisc", "show", "dev", "taut0"])
                                .ok()
                                .and_then(|text| backlog_of(&text))
                            {
                                backlog.store(bytes, Ordering::Relaxed);
                            }
                            std::thread::sleep(interval);
                        }
                    });
                }
                // What the machine prefers is not what taut has unless told otherwise; and a namespace cannot be told.
                let congestion = scenario.default_congestion();
                let sender = Kernel { backlog: Arc::clone(&backlog), congestion };
                let mark = || marked.set(&emulator.counts);
                let work = apps::run(&sender, &plans, scenario, SERIES_MAX, mark, progress);
                let result = runtime().and_then(|runtime| runtime.block_on(work));
                over.store(true, Ordering::Relaxed);
                result.map_err(context("the run failed"))
            })
        })
        .map_err(context("the sender's namespace"))??;
    let counts = marked.since(&emulator.counts);
    drop((emulator, peer));
    finish(job, result, counts)
}

/// Runs `tc`.
fn tc(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("tc").args(arguments).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The bytes in ` backlog 1514b 1p requeues 0` of the first queue; `tc` shortens large numbers.
fn backlog_of(text: &str) -> Option<u64> {
    let word = text.split_once("backlog ")?.1.split_whitespace().next()?;
    let digits = word.strip_suffix('b').unwrap_or(word);
    let (digits, factor) = match digits.strip_suffix('K') {
        Some(digits) => (digits, 1_024),
        None => digits.strip_suffix('M').map_or((digits, 1), |digits| (digits, 1_048_576)),
    };
    digits.parse::<u64>().ok().map(|count| count * factor)
}

/// What the ways had carried when measuring began.
#[derive(Default)]
struct Marked([AtomicU64; 7]);

impl Marked {
    fn read(counts: &Counts) -> [u64; 7] {
        let [there, back] = &counts.0;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            of(&there.packets),
            of(&there.segments),
            of(&there.bytes),
            of(&back.packets),
            of(&back.segments),
            of(&there.dropped) + of(&back.dropped),
            of(&there.octets),
        ]
    }

    fn set(&self, counts: &Counts) {
        for (place, value) in self.0.iter().zip(Self::read(counts)) {
            place.store(value, Ordering::Relaxed);
        }
    }

    fn since(&self, counts: &Counts) -> [u64; 7] {
        let mut values = Self::read(counts);
        for (value, then) in values.iter_mut().zip(&self.0) {
            *value -= then.load(Ordering::Relaxed).min(*value);
        }
        values
    }
}

fn finish(job: &Job, result: Option<apps::Result>, ways: [u64; 7]) -> Result<RunData, RunError> {
    let result = result.ok_or(RunError::Interrupted)?;
    let scenario = &job.variation.scenario;
    if let Some(error) = result.errors.first() {
        return Err(RunError::Impossible(error.clone()));
    }
    let [packets_out, segments_out, bytes_out, packets_in, segments_in, dropped, octets_out] = ways;
    let sender: BTreeMap<String, u64> = [
        ("packets_out", packets_out),
        ("segments_out", segments_out),
        ("bytes_out", bytes_out),
        ("packets_in", packets_in),
        ("segments_in", segments_in),
        ("wakeups", result.wakeups),
        ("context_switches", result.context_switches),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let rate = scenario.link.rate.value.bytes_per_second() as f64;
    let mut measured = Measured {
        seconds: result.measured_ns as f64 / 1e9,
        flows: result.flows.len() as u64,
        sender,
        counters: result.counters,
        network_drops: Some(dropped),
        ..Measured::default()
    };
    // taut does not count it.
    measured.counters.entry("IpExtOutOctets".into()).or_insert(octets_out);
    for bytes in &result.device_bytes {
        measured.device_bytes.add(*bytes);
        measured.device_ns.add((*bytes as f64 / rate * 1e9) as u64);
    }
    result.socket_memory.iter().for_each(|bytes| measured.socket_memory.add(*bytes));
    result.unsent_bytes.iter().for_each(|bytes| measured.unsent_bytes.add(*bytes));
    result.srtt_ns.iter().for_each(|ns| measured.rtt_ns.add(*ns));
    let (mut flows, mut series) = (Vec::new(), Vec::new());
    for (number, flow) in result.flows.into_iter().enumerate() {
        measure_flow(&flow, &mut measured);
        flows.push(told(number, &flow, measured.seconds));
        if !flow.points.is_empty() {
            series.push(Series { flow: number as u32, points: flow.points });
        }
    }
    let mut meta = job.meta(job.engine);
    if let Ok(kernel) = fs::read_to_string("/proc/sys/kernel/osrelease") {
        meta.versions.insert("kernel".into(), kernel.trim().to_owned());
    }
    Ok(RunData {
        meta,
        metrics: metrics::of(&measured),
        flows,
        series,
        histograms: sim::histograms(&measured),
        hosts: vec![HostCounts { name: "sender".into(), counts: measured.sender.clone() }],
        counters: measured.counters.into_iter().filter(|(_, value)| *value > 0).collect(),
        ..RunData::default()
    })
}

fn measure_flow(flow: &FlowResult, measured: &mut Measured) {
    flow.latencies_ns.iter().for_each(|ns| measured.latency_ns.add(*ns));
    if let (Some(from), Some(to)) = (flow.connected_ns, flow.ended_ns) {
        let span_s = (to - from) as f64 / 1e9;
        measured.elapsed_s = Some(measured.elapsed_s.unwrap_or(0.0).max(span_s));
        *measured.elapsed_bps.get_or_insert(0.0) += flow.written as f64 * 8.0 / span_s;
    }
    let Some(last) = &flow.last else { return };
    let acked = last.acked_bytes.saturating_sub(flow.acked_at_mark);
    measured.acked_bytes += acked;
    measured.acked_by_flow.push(acked);
    measured.sndbuf = measured.sndbuf.max(last.sndbuf);
    if let Some(shares) = &last.shares_s {
        measured.blocked_s.resize(GATES.len(), 0.0);
        for ((sum, now), then) in measured.blocked_s.iter_mut().zip(shares).zip(&flow.shares_at_mark) {
            *sum += (now - then).max(0.0);
        }
    }
}

fn told(number: usize, flow: &FlowResult, seconds: f64) -> Flow {
    let last = flow.last.clone().unwrap_or_default();
    let shares = last.shares_s.unwrap_or_default();
    let blocked = GATES.iter().zip(shares).filter(|(_, share)| *share > 0.0);
    let address = |address: Option<std::net::SocketAddr>| address.map(|a| a.to_string()).unwrap_or_default();
    let s = |ns: u64| ns as f64 / 1e9;
    Flow {
        id: number as u32,
        name: flow.name.clone(),
        from: "sender".into(),
        to: "receiver".into(),
        local: address(last.local),
        peer: address(last.peer),
        connected_s: flow.connected_ns.map(s),
        ended_s: flow.ended_ns.map(s),
        acked_bytes: last.acked_bytes,
        retransmitted_bytes: last.retransmitted_bytes,
        goodput_bps: last.acked_bytes.saturating_sub(flow.acked_at_mark) as f64 * 8.0 / seconds,
        srtt_s: last.point.srtt_s,
        min_rtt_s: last.min_rtt_s,
        blocked: blocked.map(|(name, seconds)| Share { name: (*name).into(), seconds }).collect(),
        sojourn: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlogs_are_read_as_tc_prints_them() {
        let text = |word: &str| {
            format!("qdisc tbf 8001: root rate 1Gbit\n Sent 1 bytes\n backlog {word} 3p requeues 0\n")
        };
        assert_eq!(backlog_of(&text("1514b")), Some(1_514));
        assert_eq!(backlog_of(&text("64Kb")), Some(65_536));
        assert_eq!(backlog_of(&text("5Mb")), Some(5_242_880));
        assert_eq!(backlog_of("nothing"), None);
    }
}
