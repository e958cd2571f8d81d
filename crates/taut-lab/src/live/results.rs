//! The results of a live run: metrics, flows, series and counts, computed from the counts of the applications
//! and of the emulated path. Called by `live.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use super::apps::{self, FlowResult};
use super::carried::Carried;
use crate::data::{Flow, GATES, Histogram, HostCounts, RunData, Series, Share};
use crate::job::{Job, RunError};
use crate::metrics::{self, Measured};
use crate::sim;
use crate::view;

/// Computes the results. `ways` are the counts to the receiver, and back.
pub(super) fn of(job: &Job, result: apps::Result, ways: Option<[Carried; 2]>) -> Result<RunData, RunError> {
    if let Some(error) = result.errors.first() {
        return Err(RunError::Impossible(error.clone()));
    }
    let mut counts = vec![
        ("wakeups", result.wakeups),
        ("context_switches", result.context_switches),
        ("writes", result.writes),
    ];
    if let Some([there, back]) = &ways {
        counts.extend([
            ("packets_out", there.packets),
            ("segments_out", there.segments),
            ("bytes_out", there.bytes),
            ("packets_in", back.packets),
            ("segments_in", back.segments),
        ]);
    }
    let sender: BTreeMap<String, u64> =
        counts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut measured = Measured {
        seconds: result.measured_ns as f64 / 1e9,
        flows: result.flows.iter().filter(|flow| !flow.is_beside).count() as u64,
        sender,
        counters: result.counters,
        ..Measured::default()
    };
    if let Some([there, back]) = ways {
        measured.network_drops = Some(there.dropped + back.dropped);
        (measured.super_packet, measured.flow_gap_ns) = (there.super_packet, there.flow_gap_ns);
        // taut does not count this. Packets of flows beside are not its own.
        if !result.flows.iter().any(|flow| flow.is_beside) {
            measured.counters.entry("IpExtOutOctets".into()).or_insert(there.octets);
        }
    }
    let rate = job.variation.scenario.link.rate.value.bytes_per_second() as f64;
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
        let mut data = flow_data(number, &flow, measured.seconds);
        if !flow.points.is_empty() {
            data.distributions = own_distributions(&flow, view::seconds(job.variation.scenario.warm_up()));
        }
        flows.push(data);
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
        shares: result.shares,
        histograms: sim::histograms(&measured),
        hosts: vec![HostCounts { name: "sender".into(), counts: measured.sender.clone() }],
        counters: measured.counters.into_iter().filter(|(_, value)| *value > 0).collect(),
        ..RunData::default()
    })
}

fn measure_flow(flow: &FlowResult, measured: &mut Measured) {
    if flow.is_beside {
        let acked = flow.last.as_ref().map_or(0, |last| last.acked_bytes.saturating_sub(flow.acked_at_mark));
        *measured.beside_bytes.get_or_insert(0) += acked;
        return;
    }
    flow.latencies_ns.iter().for_each(|ns| measured.latency_ns.add(*ns));
    if let (Some(from), Some(to)) = (flow.connected_ns, flow.ended_ns) {
        let span_s = (to - from) as f64 / 1e9;
        measured.elapsed_s = Some(measured.elapsed_s.unwrap_or(0.0).max(span_s));
        *measured.elapsed_bps.get_or_insert(0.0) += flow.written as f64 * 8.0 / span_s;
    }
    let Some(last) = &flow.last else { return };
    let acked = last.acked_bytes.saturating_sub(flow.acked_at_mark);
    measured.add_flow(flow.group, acked);
    measured.sndbuf = measured.sndbuf.max(last.sndbuf);
    if let Some(shares) = &last.shares_s {
        measured.blocked_s.resize(GATES.len(), 0.0);
        for ((sum, now), then) in measured.blocked_s.iter_mut().zip(shares).zip(&flow.shares_at_mark) {
            *sum += (now - then).max(0.0);
        }
    }
}

fn flow_data(number: usize, flow: &FlowResult, seconds: f64) -> Flow {
    let last = flow.last.clone().unwrap_or_default();
    let shares = last.shares_s.unwrap_or_default();
    let blocked = GATES.iter().zip(shares).filter(|(_, share)| *share > 0.0);
    let address = |address: Option<SocketAddr>| address.map(|a| a.to_string()).unwrap_or_default();
    let s = |ns: u64| ns as f64 / 1e9;
    Flow {
        id: number as u32,
        name: flow.name.clone(),
        group: flow.group as u32,
        beside: flow.is_beside,
        from: if flow.is_beside { "beside" } else { "sender" }.into(),
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
        distributions: Vec::new(),
    }
}

/// A flow's own distributions: requests, and the smoothed round-trip time at the end of each interval.
fn own_distributions(flow: &FlowResult, warm_up_s: f64) -> Vec<Histogram> {
    let mut own = Measured::default();
    flow.latencies_ns.iter().for_each(|ns| own.latency_ns.add(*ns));
    let measured = flow.points.iter().filter(|point| point.t_s > warm_up_s);
    measured.filter_map(|point| point.srtt_s).for_each(|srtt| own.rtt_ns.add((srtt * 1e9) as u64));
    sim::histograms(&own)
}
