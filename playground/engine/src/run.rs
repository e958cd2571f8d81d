//! A run of the lab in steps. Called by `lib.rs`; it knows nothing of browsers.

use serde::{Deserialize, Serialize};
use taut_core::congestion::Registry;
use taut_core::{Duration, Gate};
use taut_lab::data::Engine;
use taut_lab::job::{Job, LiveDevice};
use taut_lab::metrics;
use taut_lab::scenario::{Change, Document, Kind, builtin};
use taut_lab::sim::{self, Frame};

/// What to run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Name of a built-in scenario, or of the one in `text`.
    pub scenario: String,
    /// A scenario's file, instead of a built-in one.
    #[serde(default)]
    pub text: Option<String>,
    /// One of its cases; the first if not given.
    #[serde(default)]
    pub case: Option<String>,
    /// One of its variants; the first if not given.
    #[serde(default)]
    pub variant: Option<String>,
    /// Changes as for `--set`, such as `link.rate=1gbit`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// The values of a frame, in their order.
pub const FIELDS: [&str; 19] = [
    "t_s",
    "unsent_bytes",
    "qdisc_bytes",
    "ring_bytes",
    "bottleneck_bytes",
    "in_flight_bytes",
    "receiver_bytes",
    "acked_bytes",
    "cwnd_bytes",
    "srtt_s",
    "pacing_bps",
    "drops",
    "retransmitted_bytes",
    "requests",
    "request_s",
    "wakeups",
    "packets",
    "segments",
    "gate",
];

fn values(frame: &Frame) -> [f64; FIELDS.len()] {
    let some = |value: Option<f64>| value.unwrap_or(f64::NAN);
    [
        frame.t_s,
        frame.unsent_bytes as f64,
        frame.qdisc_bytes as f64,
        frame.ring_bytes as f64,
        some(frame.bottleneck_bytes.map(|bytes| bytes as f64)),
        frame.in_flight_bytes as f64,
        frame.receiver_bytes as f64,
        frame.acked_bytes as f64,
        frame.cwnd_bytes as f64,
        some(frame.srtt_s),
        some(frame.pacing_bps),
        frame.drops as f64,
        frame.retransmitted_bytes as f64,
        frame.requests as f64,
        some(frame.request_s),
        frame.wakeups as f64,
        frame.packets as f64,
        frame.segments as f64,
        some(frame.gate.map(|gate| f64::from(gate as u8))),
    ]
}

/// A run.
pub struct Run {
    job: Job,
    simulation: sim::Simulation,
}

#[derive(Serialize)]
struct About<'a> {
    parameters: &'a std::collections::BTreeMap<String, String>,
    duration_s: f64,
    warm_up_s: f64,
    /// Whether there is a queue between the hosts, and not only in the sender's.
    has_router: bool,
    flows: usize,
    congestion: String,
}

impl Run {
    /// Reads the scenario, and makes its world.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn new(request: &Request) -> Result<Self, String> {
        let name = request.scenario.as_str();
        let text = match &request.text {
            Some(text) => text,
            None => builtin::find(name).ok_or_else(|| format!("no scenario is called {name}"))?,
        };
        let changes: Vec<Change> = request
            .set
            .iter()
            .map(|set| Change::parse(set))
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        let document = Document::parse(name, name, text, &changes, &Registry::default());
        let variations =
            document.and_then(|document| document.variations()).map_err(|error| error.to_string())?;
        let is_asked =
            |asked: &Option<String>, name: &String| asked.as_ref().is_none_or(|asked| asked == name);
        let variation = variations
            .into_iter()
            .find(|v| is_asked(&request.case, &v.case) && is_asked(&request.variant, &v.variant))
            .ok_or_else(|| {
                format!("{name} has no such case and variant: {:?}, {:?}", request.case, request.variant)
            })?;
        let job = Job {
            scenario: name.to_owned(),
            variation,
            seed: request.seed,
            engine: Engine::Sim,
            keep: false,
            device: LiveDevice::default(),
            real_time: false,
            command: String::new(),
        };
        let simulation = sim::Simulation::new(&job).map_err(|error| error.to_string())?;
        Ok(Self { job, simulation })
    }

    /// What runs, as JSON.
    #[must_use]
    pub fn about(&self) -> String {
        let scenario = &self.job.variation.scenario;
        let seconds = |span: Duration| span.as_nanos() as f64 / 1e9;
        let about = About {
            parameters: &self.job.variation.parameters,
            duration_s: seconds(scenario.duration.value),
            warm_up_s: seconds(scenario.warm_up()),
            has_router: !matches!(scenario.topology.kind, Kind::Pair | Kind::Direct),
            flows: scenario.flows.iter().map(|flow| flow.count as usize).sum(),
            congestion: scenario.congestion.clone().unwrap_or_else(|| scenario.default_congestion()),
        };
        serde_json::to_string(&about).unwrap_or_default()
    }

    /// Simulates until so many seconds after the beginning.
    ///
    /// # Errors
    /// When an invariant of the simulator fails.
    pub fn step(&mut self, until_s: f64) -> Result<[f64; FIELDS.len()], String> {
        // A negative number and NaN become 0, which is no step at all.
        let until = Duration::from_nanos((until_s * 1e9) as u64);
        self.simulation.advance(until, &|_| true).map_err(|error| error.to_string())?;
        Ok(values(&self.simulation.frame()))
    }

    /// Simulates what is left.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn finish(self) -> Result<String, String> {
        let outcome = self.simulation.finish().map_err(|error| error.to_string())?;
        serde_json::to_string(&outcome.data).map_err(|error| error.to_string())
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: String,
    about: String,
    source: Option<String>,
    cases: Vec<String>,
    variants: Vec<String>,
    /// Of the scenario's table, in its order.
    metrics: Vec<Measured>,
    /// Published figures: case (empty for all), metric, variant, text.
    published: Vec<(String, String, String, String)>,
}

#[derive(Serialize)]
struct Measured {
    name: String,
    label: String,
    unit: &'static str,
}

/// The built-in scenarios, as JSON.
pub(crate) fn scenarios() -> Result<String, String> {
    let listed = |&(name, text): &(&'static str, &str)| -> Result<Listed, String> {
        let document = Document::parse(name, name, text, &[], &Registry::default());
        let base = document.and_then(|document| document.base()).map_err(|error| error.to_string())?;
        let measured = |metric: &taut_lab::metrics::Metric| Measured {
            name: metric.name.clone(),
            label: metric.label.clone(),
            unit: metric.unit,
        };
        let of_cases = base.cases.iter().map(|case| (case.name.clone(), &case.published));
        let published = of_cases.chain([(String::new(), &base.published)]).flat_map(|(case, published)| {
            published.iter().flat_map(move |(metric, of)| {
                let case = case.clone();
                of.iter()
                    .map(move |(variant, text)| (case.clone(), metric.clone(), variant.clone(), text.clone()))
            })
        });
        Ok(Listed {
            name,
            published: published.collect(),
            title: base.title.clone(),
            about: base.about.trim().to_owned(),
            source: base.source.clone(),
            cases: base.cases.iter().map(|case| case.name.clone()).collect(),
            variants: base.variants.iter().map(|variant| variant.name.clone()).collect(),
            metrics: base.measure.iter().filter_map(|name| metrics::find(name)).map(measured).collect(),
        })
    };
    let all: Vec<Listed> = builtin::ALL.iter().map(listed).collect::<Result<_, _>>()?;
    serde_json::to_string(&all).map_err(|error| error.to_string())
}

/// Names and words of the gates, as JSON.
pub(crate) fn gates() -> String {
    let all: Vec<(&str, &str)> = Gate::ALL.iter().map(|gate| (gate.name(), gate.words())).collect();
    serde_json::to_string(&all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(set: &str) -> Request {
        let json = format!(
            r#"{{"scenario": "single-flow", "variant": "reno", "set": ["duration=300ms"{set}], "seed": 3}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_run_in_steps_is_that_of_the_lab() {
        let mut run = Run::new(&request("")).unwrap();
        let whole = Run::new(&request("")).unwrap().finish().unwrap();
        for step in 1..=29 {
            let frame = run.step(f64::from(step) * 0.010_7).unwrap();
            assert!(frame[0] > 0.010 * f64::from(step), "{frame:?}");
        }
        assert_eq!(run.finish().unwrap(), whole);
    }

    #[test]
    fn a_mistake_names_its_key() {
        let why = |set: &str| Run::new(&request(set)).err().unwrap();
        assert!(why(r#", "link.rate=fast""#).contains("link.rate"));
        assert!(why(r#", "hosts.sender.sysctls.taut.tsq=maybe""#).contains("taut.tsq"));
        let unknown = Request { scenario: "none".into(), ..request("") };
        assert_eq!(Run::new(&unknown).err().unwrap(), "no scenario is called none");
        let unknown = Request { variant: Some("vegas".into()), ..request("") };
        assert!(Run::new(&unknown).err().unwrap().contains("vegas"));
    }

    #[test]
    fn steps_that_are_no_times_do_nothing() {
        let mut run = Run::new(&request("")).unwrap();
        for odd in [f64::NAN, -1.0, 0.0] {
            assert_eq!(run.step(odd).unwrap()[0], 0.0);
        }
        assert_eq!(run.step(f64::INFINITY).unwrap()[0], 0.3);
    }

    #[test]
    fn every_built_in_scenario_is_listed() {
        let list = scenarios().unwrap();
        assert!(builtin::ALL.iter().all(|(name, _)| list.contains(&format!(r#""name":"{name}""#))));
        assert!(list.contains(r#"["1 Gbit/s, TSO","device_time_max","before","50"]"#));
    }
}
