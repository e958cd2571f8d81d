//! The parts of the demo that are scenarios of the lab: an uplink, live, and the five published results,
//! simulated.
//!
//! Called by `mod.rs`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use indicatif::ProgressBar;
use taut_core::congestion::Registry;
use taut_device::sys::monotonic_ns;
use taut_lab::data::{Engine, RunSet};
use taut_lab::job::{Job, LiveDevice};
use taut_lab::runner::Plan;
use taut_lab::scenario::{Change as Set, Document, builtin};

use super::part::{Bar, Bars, Change, Part};
use crate::shared::date;
use crate::shared::interrupt::Interrupted;

/// The senders of the uplink: variant of the scenario, engine, name.
const UPLINK: [(&str, Engine, &str); 4] = [
    ("before", Engine::Linux, "kernel, cubic"),
    ("after", Engine::Linux, "kernel, bbr"),
    ("before", Engine::Live, "taut, mechanisms off"),
    ("after", Engine::Live, "taut, bbr"),
];

/// A run of the uplink: its metrics by name, and what its scenario says.
struct Run<'a> {
    metrics: &'a BTreeMap<String, f64>,
    flows: f64,
    /// The round trip without a queue.
    rtt_ms: f64,
}

impl Run<'_> {
    fn of(&self, name: &str) -> f64 {
        self.metrics.get(name).copied().unwrap_or(f64::NAN)
    }

    /// Queued bytes make the round trip longer; the metric of unsent ones is a mean of all flows.
    fn waiting_kb(&self) -> f64 {
        let queue_ms = (self.of("rtt_mean") - self.rtt_ms).max(0.0);
        self.flows * self.of("flow_unsent") + self.of("goodput") / 8.0 * queue_ms
    }
}

/// The value of a bar.
type Value = fn(&Run<'_>) -> f64;

/// The bars of the uplink: words, unit, whether less is better, the value.
const UPLINK_BARS: [(&str, &str, bool, Value); 4] = [
    ("ping, median", "ms", true, |run| run.of("latency_p50") / 1e3),
    ("ping, 99th percentile", "ms", true, |run| run.of("latency_p99") / 1e3),
    ("upload", "Mbit/s", false, |run| run.of("goodput")),
    ("bytes that wait, unsent and queued", "kB", true, |run| run.waiting_kb()),
];

/// A published result: its scenario and case, the metric, the variants before and after, and words.
struct Published {
    scenario: &'static str,
    case: &'static str,
    metric: &'static str,
    variants: [&'static str; 2],
    mechanism: &'static str,
    what: &'static str,
}

const PUBLISHED: [Published; 5] = [
    Published {
        scenario: "tsq",
        case: "1 Gbit/s, TSO",
        metric: "device_time_max",
        variants: ["before", "after"],
        mechanism: "TCP Small Queues",
        what: "device queue, ms",
    },
    Published {
        scenario: "tso-autosizing",
        case: "",
        metric: "ip_out_requests",
        variants: ["before", "after"],
        mechanism: "TSO autosizing",
        what: "packets handed down",
    },
    Published {
        scenario: "autocork",
        case: "",
        metric: "latency_mean",
        variants: ["before", "after"],
        mechanism: "autocorking, mended",
        what: "request, µs",
    },
    Published {
        scenario: "notsent-lowat",
        case: "",
        metric: "flow_memory",
        variants: ["unset", "after"],
        mechanism: "TCP_NOTSENT_LOWAT",
        what: "memory a flow, MB",
    },
    Published {
        scenario: "pacing",
        case: "",
        metric: "interrupts",
        variants: ["internal", "fq"],
        mechanism: "pacing, internal to fq",
        what: "interrupts/s",
    },
];

/// How the demo runs scenarios.
pub(super) struct Runs<'a> {
    pub(super) bar: &'a ProgressBar,
    pub(super) ended: &'a AtomicBool,
}

impl Runs<'_> {
    fn run(&self, document: &Document, variants: &[&str], engines: &[Engine]) -> anyhow::Result<RunSet> {
        let progress = |_: usize, job: &Job, _: f64| {
            self.bar.set_message(job.label());
            !self.ended.load(Ordering::Relaxed)
        };
        let began_ns = monotonic_ns();
        let clock = || (date::rfc3339_now(), (monotonic_ns() - began_ns) as f64 / 1e9);
        let plan = Plan {
            document,
            seeds: Some(1),
            live_seeds: None,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            out: None,
            device: LiveDevice::Tun,
            real_time: false,
            command: "taut demo".to_owned(),
            variants: variants.iter().map(|&name| name.to_owned()).collect(),
            engines: engines.to_vec(),
            clock: &clock,
            progress: &progress,
        };
        let run = plan.run();
        run.map(|(set, _)| set).map_err(|error| match error.is_interrupted() {
            true => Interrupted.into(),
            false => anyhow!(error),
        })
    }

    /// The upload and the ping over an uplink, by the kernel and by taut.
    pub(super) fn uplink(&self, seconds: f64) -> anyhow::Result<Part> {
        let mut part = Part::new(
            "uplink",
            "Your uplink",
            "An upload, and a ping beside it, over 20 Mbit/s and 20 ms. The modem holds 300 packets.",
        );
        let ms = (seconds * 1e3) as u64;
        let changes = [format!("duration={ms}ms"), format!("warm-up={}ms", ms * 2 / 5)];
        let changes: Vec<Set> = changes.iter().map(|text| Set::parse(text)).collect::<Result<_, _>>()?;
        let document = open("uplink", &changes)?;
        let scenario = document.base()?;
        let (flows, delay) = (scenario.flows.len() as f64, scenario.link.delay());
        let rtt_ms = 2.0 * delay.as_nanos() as f64 / 1e6;
        let set = self.run(&document, &[], &[Engine::Live, Engine::Linux])?;
        let found: Vec<_> = UPLINK
            .iter()
            .filter_map(|&(variant, engine, who)| {
                let found =
                    set.runs.iter().find(|run| run.meta.variant == variant && run.meta.engine == engine);
                if found.is_none() {
                    part.missing.push(format!("{who}: this kernel does not have that congestion control."));
                }
                found.map(|run| (who, Run { metrics: &run.metrics, flows, rtt_ms }))
            })
            .collect();
        for (what, unit, less_is_better, value) in UPLINK_BARS {
            let values = found.iter().map(|(who, run)| Bar { who: (*who).into(), value: value(run) });
            part.bars.push(Bars { what, unit, less_is_better, values: values.collect() });
        }
        Ok(part)
    }

    /// The five published results.
    pub(super) fn published(&self) -> anyhow::Result<Part> {
        let mut part = Part::new(
            "published",
            "Five results that Linux published",
            "The same experiments on taut in virtual time, before → after the change.",
        );
        for result in &PUBLISHED {
            let document = open(result.scenario, &[])?;
            let document = if result.case.is_empty() { document } else { document.only_case(result.case)? };
            let set = self.run(&document, &result.variants, &[Engine::Sim])?;
            let row = set.table.rows.iter().find(|row| row.metric == result.metric);
            let row = row.ok_or_else(|| anyhow!("{} does not measure {}", result.scenario, result.metric))?;
            let published = result.variants.map(|name| row.published.get(name).cloned().unwrap_or_default());
            let of = |name: &str| {
                let run = set.runs.iter().find(|run| run.meta.variant == name);
                run.and_then(|run| run.metrics.get(result.metric)).copied().unwrap_or(f64::NAN)
            };
            let taut = result.variants.map(of);
            let Published { mechanism, what, .. } = *result;
            part.changes.push(Change { mechanism, what, published, taut });
            self.bar.inc(1);
        }
        Ok(part)
    }
}

fn open(name: &str, changes: &[Set]) -> anyhow::Result<Document> {
    let text = builtin::find(name).ok_or_else(|| anyhow!("no scenario {name}"))?;
    Ok(Document::parse(name, &format!("{name}.toml"), text, changes, &Registry::default())?)
}
