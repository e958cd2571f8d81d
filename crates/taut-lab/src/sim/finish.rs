//! The results of a run, once it has ended: its flows, rows, packets and counters as a [`RunData`].

use std::collections::BTreeMap;

use taut_core::{Duration, Instant};
use taut_sim::{BEGIN, Counts, HostId, World};

use super::collect::{Collector, FLOWS_MAX, Key, Own, seconds};
use super::plan::{Net, Source, Traffic};
use super::{Mark, Sums, Watched};
use crate::data::{
    AckRow, Engine, Flow, GATES, Histogram, HostCounts, Meta, PacketPoint, RunData, SCHEMA, Series, Share,
    Traced,
};
use crate::job::{Job, Outcome};
use crate::metrics::{self, Measured};
use crate::output::capture::Capture;
use crate::output::events::EventLog;
use crate::stats::Tally;
use crate::view;

/// Largest number of flows that a run reports individually.
const FLOWS_SHOWN: usize = 1_000;

/// Values read from the world at the end of a run.
pub(super) struct AtEnd {
    counts: BTreeMap<HostId, Counts>,
    counters: BTreeMap<HostId, Vec<(&'static str, u64)>>,
    rcvbuf: Option<u64>,
    digest: u64,
    events: u64,
    now: Instant,
}

impl AtEnd {
    pub(super) fn new(world: &World, net: &Net) -> Self {
        let all = || net.all_hosts();
        let rcvbufs = net.receivers.iter().flat_map(|&id| {
            let stack = world.host_ref(id).stack();
            stack
                .conn_ids()
                .filter_map(move |conn| stack.conn(conn).map(|conn| conn.info(world.now())))
                .map(|info| info.rcvbuf)
        });
        Self {
            counts: all().map(|id| (id, world.counts(id))).collect(),
            counters: all().map(|id| (id, world.host_ref(id).stack().counters().iter().collect())).collect(),
            rcvbuf: rcvbufs.max().map(u64::from),
            digest: world.digest(),
            events: world.events(),
            now: world.now(),
        }
    }
}

/// Names and values of a host's counts.
fn counts(now: &Counts, then: &Counts) -> BTreeMap<String, u64> {
    macro_rules! differences {
        ($($name:ident),*) => { [$((stringify!($name), now.$name - then.$name)),*] };
    }
    let all = differences![
        packets_out,
        segments_out,
        bytes_out,
        segments_in,
        bytes_in,
        packets_in,
        acks_out,
        acks_in,
        bytes_handed,
        dropped,
        lost_wakeups,
        rx_dropped,
        wakeups,
        context_switches,
        syscalls,
        timer_events,
        qdisc_timers,
        tx_interrupts,
        completions,
        rx_interrupts,
        writes,
        bytes_written,
        bytes_read
    ];
    let busy = now.busy.saturating_sub(then.busy).as_nanos();
    all.into_iter().chain([("busy_ns", busy)]).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn add(sum: &mut BTreeMap<String, u64>, more: impl IntoIterator<Item = (String, u64)>) {
    for (name, value) in more {
        *sum.entry(name).or_default() += value;
    }
}

pub(super) fn finish(
    job: &Job,
    net: &Net,
    watched: Vec<Watched>,
    sums: Sums,
    at_end: &AtEnd,
    mut collector: Collector,
) -> Outcome {
    let scenario = &job.variation.scenario;
    let measured_s = view::seconds(at_end.now.since(BEGIN + scenario.warm_up()));
    let none = Counts::default();
    let did = |id: &HostId| counts(&at_end.counts[id], sums.start.counts.get(id).unwrap_or(&none));
    let (mut sender, mut receiver) = (BTreeMap::new(), BTreeMap::new());
    net.measured_senders().for_each(|id| add(&mut sender, did(&id)));
    net.receivers.iter().for_each(|id| add(&mut receiver, did(id)));
    let counters = counters_since(&sums.start, net, at_end, sender.get("bytes_handed").copied());

    let mut measured = Measured {
        seconds: measured_s,
        flows: net.traffic.iter().filter(|flow| !flow.is_beside).count() as u64,
        device_ns: std::mem::take(&mut collector.device_ns),
        device_bytes: std::mem::take(&mut collector.device_bytes),
        rtt_ns: std::mem::take(&mut collector.rtt_ns),
        burst: std::mem::take(&mut collector.burst),
        gap_ns: std::mem::take(&mut collector.gap_ns),
        flow_gap_ns: std::mem::take(&mut collector.flow_gap_ns),
        super_packet: std::mem::take(&mut collector.super_packet),
        socket_memory: sums.socket_memory,
        unsent_bytes: sums.unsent_bytes,
        rcvbuf: at_end.rcvbuf,
        sender,
        receiver,
        counters,
        network_drops: Some(collector.network_drops),
        blocked_s: vec![0.0; GATES.len()],
        ..Measured::default()
    };
    let Flows { keys, flows, series } = flows(net, watched, &sums.start, &mut measured, &mut collector);
    let metrics = metrics::of(&measured);
    let Kept { acks, packets, traced, events, capture, left_out } = kept(collector, &keys, at_end.now);
    let data = RunData {
        meta: Meta {
            digest: Some(format!("{:016x}", at_end.digest)),
            events: Some(at_end.events),
            ..job.meta(Engine::Sim)
        },
        metrics,
        flows,
        series,
        acks,
        packets,
        traced,
        shares: sums.shares.finish(),
        histograms: histograms(&measured),
        counters: measured.counters.into_iter().filter(|(_, value)| *value > 0).collect(),
        hosts: net
            .named_hosts()
            .map(|(id, name)| HostCounts {
                name,
                counts: did(&id).into_iter().filter(|(_, n)| *n > 0).collect(),
            })
            .collect(),
        left_out,
    };
    debug_assert_eq!(data.meta.schema, SCHEMA);
    Outcome { data, events, capture }
}

/// The flows of a run, and their numbers.
struct Flows {
    keys: BTreeMap<Key, u32>,
    flows: Vec<Flow>,
    series: Vec<Series>,
}

/// Adds what each flow has done to `measured`.
fn flows(
    net: &Net,
    watched: Vec<Watched>,
    start: &Mark,
    measured: &mut Measured,
    collector: &mut Collector,
) -> Flows {
    let mut keys: BTreeMap<Key, u32> = BTreeMap::new();
    let (mut flows, mut series) = (Vec::new(), Vec::new());
    for (number, (flow, traffic)) in watched.into_iter().zip(&net.traffic).enumerate() {
        if !traffic.is_beside {
            let skip = start.latencies.get(number).copied().unwrap_or(0);
            measure_source(&traffic.source, skip, measured);
        }
        let Some(info) = &flow.info else { continue };
        let acked = flow.acked() - flow.acked_at_mark;
        let shares: Vec<f64> = flow
            .shares()
            .iter()
            .zip(&flow.shares_at_mark)
            .map(|(after, before)| view::seconds(after.saturating_sub(*before)))
            .collect();
        if traffic.is_beside {
            *measured.beside_bytes.get_or_insert(0) += acked;
        } else {
            measured.add_flow(traffic.group, acked);
            measured.sndbuf = measured.sndbuf.max(Some(info.sndbuf.into()));
            measured.blocked_s.iter_mut().zip(&shares).for_each(|(sum, share)| *sum += share);
        }
        let key = (traffic.from.index() as u32, info.local.port(), info.peer.port());
        keys.insert(key, number as u32);
        if number < FLOWS_SHOWN {
            let mut data =
                flow_data(number, traffic, &flow, net, acked as f64 * 8.0 / measured.seconds, &shares);
            if number < FLOWS_MAX {
                let skip = start.latencies.get(number).copied().unwrap_or(0);
                data.distributions = own_distributions(&traffic.source, skip, collector.take_own(&key));
            }
            flows.push(data);
        }
        if !flow.points.is_empty() {
            series.push(Series { flow: number as u32, points: flow.points });
        }
    }
    Flows { keys, flows, series }
}

/// The lists of a run, as far as they were kept, and how much of each was not.
struct Kept {
    acks: Vec<AckRow>,
    packets: Vec<PacketPoint>,
    traced: Traced,
    events: String,
    capture: Vec<u8>,
    left_out: BTreeMap<String, u64>,
}

fn kept(collector: Collector, keys: &BTreeMap<Key, u32>, end: Instant) -> Kept {
    let mut left_out = BTreeMap::new();
    let mut acks = Vec::new();
    if let Some(rows) = collector.acks {
        let (rows, left) = rows.finish();
        left_out.insert("acks".to_owned(), left);
        let known = rows.into_iter().filter_map(|(key, row)| Some((*keys.get(&key)?, row)));
        acks.extend(known.map(|(flow, mut row)| {
            row.flow = flow;
            row
        }));
    }
    let kept = collector.points.finish(seconds(end));
    left_out.insert("packets".to_owned(), kept.points_left_out);
    let (packets, traced) = kept.of(keys);
    let shown: u64 = traced.windows.iter().map(|window| window.losses).sum();
    left_out.insert("losses".to_owned(), traced.losses.saturating_sub(shown));
    let (events, left) = collector.events.map_or_else(|| (String::new(), 0), EventLog::finish);
    left_out.insert("events".to_owned(), left);
    let (capture, left) = collector.capture.map_or_else(|| (Vec::new(), 0), Capture::finish);
    left_out.insert("capture".to_owned(), left);
    left_out.retain(|_, count| *count > 0);
    Kept { acks, packets, traced, events, capture, left_out }
}

/// Counters of the senders' stacks since measuring began.
fn counters_since(
    start: &Mark,
    net: &Net,
    at_end: &AtEnd,
    bytes_handed: Option<u64>,
) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for id in net.measured_senders() {
        let before: BTreeMap<_, _> = start.counters.get(&id).into_iter().flatten().copied().collect();
        let since = at_end.counters[&id].iter().map(|(name, value)| {
            ((*name).to_owned(), value.saturating_sub(before.get(name).copied().unwrap_or(0)))
        });
        add(&mut counters, since);
    }
    if let Some(bytes) = bytes_handed {
        counters.entry("IpExtOutOctets".into()).or_insert(bytes);
    }
    counters
}

/// The waits of an application's user since measuring began.
fn measure_waits(source: &Source, skip: usize, measured: &mut Measured) {
    let (latencies, is_pages) = source.latencies();
    let tally = if is_pages { &mut measured.page_ns } else { &mut measured.latency_ns };
    latencies.iter().skip(skip).for_each(|latency| tally.add(latency.as_nanos()));
}

/// The same, and how long it took if it has ended.
fn measure_source(source: &Source, skip: usize, measured: &mut Measured) {
    measure_waits(source, skip, measured);
    if let Some((span, bytes)) = source.elapsed() {
        let span_s = view::seconds(span);
        measured.elapsed_s = Some(measured.elapsed_s.unwrap_or(0.0).max(span_s));
        *measured.elapsed_bps.get_or_insert(0.0) += bytes as f64 * 8.0 / span_s;
    }
}

fn flow_data(
    number: usize,
    traffic: &Traffic,
    flow: &Watched,
    net: &Net,
    goodput_bps: f64,
    shares: &[f64],
) -> Flow {
    let info = flow.info.as_ref();
    let blocked = GATES.iter().zip(shares).filter(|(_, share)| **share > 0.0);
    let sojourn = flow.report.as_ref().map_or_else(Vec::new, |report| {
        report.queues.iter().map(|queue| octaves(queue.name, &queue.sojourn)).collect()
    });
    Flow {
        id: number as u32,
        name: traffic.name.clone(),
        group: traffic.group as u32,
        beside: traffic.is_beside,
        from: net.name(traffic.from),
        to: net.name(traffic.to),
        local: info.map(|info| info.local.to_string()).unwrap_or_default(),
        peer: info.map(|info| info.peer.to_string()).unwrap_or_default(),
        connected_s: traffic.source.connected().map(seconds),
        ended_s: traffic.source.ended().map(seconds),
        acked_bytes: flow.acked(),
        retransmitted_bytes: info.map_or(0, |info| info.bytes_retrans),
        goodput_bps,
        srtt_s: info.and_then(|info| info.rtt).map(view::seconds),
        min_rtt_s: info.and_then(|info| info.min_rtt).map(view::seconds),
        blocked: blocked.map(|(name, share)| Share { name: (*name).into(), seconds: *share }).collect(),
        sojourn,
        distributions: Vec::new(),
    }
}

/// A flow's own distributions.
fn own_distributions(source: &Source, skip: usize, own: Option<Box<Own>>) -> Vec<Histogram> {
    let mut measured = Measured::default();
    if let Some(own) = own {
        (measured.rtt_ns, measured.flow_gap_ns) = (own.rtt_ns, own.gap_ns);
    }
    measure_waits(source, skip, &mut measured);
    histograms(&measured)
}

/// Converts the stack's histogram, whose values are exact to a power of two.
fn octaves(name: &str, from: &taut_core::Histogram) -> Histogram {
    use taut_core::Histogram as Octaves;
    let us = |span: Duration| span.as_micros() as f64;
    let bound = |index: usize| us(Octaves::bound(index));
    let mut tally = Tally::default();
    let mut buckets = Vec::new();
    for (index, &count) in from.counts().iter().enumerate().filter(|(_, count)| **count > 0) {
        let low = if index == 0 { 0.0 } else { bound(index - 1) };
        buckets.push(crate::data::Bucket { from: low, to: bound(index), count });
        tally.add_times(((low + bound(index)) / 2.0) as u64, count);
    }
    Histogram { buckets, ..tally.histogram(name, "us", 1.0) }
}

pub(crate) fn histograms(measured: &Measured) -> Vec<Histogram> {
    let all = [
        (&measured.device_ns, "device_time", "us", 1e3),
        (&measured.rtt_ns, "rtt", "us", 1e3),
        (&measured.burst, "burst", "segments", 1.0),
        (&measured.gap_ns, "gap", "us", 1e3),
        (&measured.flow_gap_ns, "flow_gap", "us", 1e3),
        (&measured.super_packet, "super_packet", "segments", 1.0),
        (&measured.latency_ns, "latency", "us", 1e3),
        (&measured.page_ns, "page", "us", 1e3),
    ];
    let some = all.into_iter().filter(|(tally, ..)| tally.count() > 0);
    some.map(|(tally, name, unit, divisor)| tally.histogram(name, unit, divisor)).collect()
}

impl Source {
    /// The times that its user waited, and whether they are page loads.
    pub(super) fn latencies(&self) -> (Vec<Duration>, bool) {
        match self {
            Self::Rr(stats) => (stats.borrow().latencies.clone(), false),
            Self::Web(stats) => (stats.borrow().pages.iter().map(|(_, time)| *time).collect(), true),
            Self::Bulk(_) | Self::Stream(_) => (Vec::new(), false),
        }
    }
}
