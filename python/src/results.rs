//! The results of a scenario's runs as tables. The columns are those of the files that `taut lab run` writes
//! (docs/reference/lab.md), after three that name the run. Called by `lib.rs`.

use std::collections::BTreeMap;

use arrow_schema::ArrowError;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use taut_lab::data::{GATES, GROUPS, Histogram, PointKind, RunData, RunSet};
use taut_lab::job::Outcome;
use taut_lab::{metrics, table};

use crate::table::{Kind, Rows, Table, Value, raised};

/// The columns that name a run.
const RUN: [(&str, Kind); 3] = [("case", Kind::Text), ("variant", Kind::Text), ("seed", Kind::Whole)];

fn of_run(run: &RunData) -> [Value; 3] {
    [run.meta.case.as_str().into(), run.meta.variant.as_str().into(), run.meta.seed.into()]
}

/// All of a scenario's runs.
#[pyclass(module = "taut_lab._native", frozen)]
pub(crate) struct Results {
    set: RunSet,
    /// By run: events, a JSON object a line, and packets, as pcapng.
    kept: Vec<(String, Vec<u8>)>,
}

impl Results {
    pub(crate) fn new(
        document: &taut_lab::scenario::Document,
        cases: &[String],
        outcomes: Vec<Outcome>,
    ) -> Result<Self, taut_lab::scenario::LoadError> {
        let (mut runs, mut kept) = (Vec::new(), Vec::new());
        for Outcome { data, events, capture } in outcomes {
            runs.push(data);
            kept.push((events, capture));
        }
        let mut set = table::set(document, runs)?;
        set.table.rows.retain(|row| cases.is_empty() || cases.contains(&row.case));
        Ok(Self { set, kept })
    }

    /// A table with rows of every run, after the three values that name it.
    fn rows<const N: usize, R: IntoIterator<Item = [Value; N]>>(
        &self,
        columns: [(&str, Kind); N],
        of: impl Fn(&RunData) -> R,
    ) -> PyResult<Table> {
        let mut rows = Rows::new(RUN.into_iter().chain(columns));
        for run in &self.set.runs {
            for values in of(run) {
                rows.push(of_run(run).into_iter().chain(values));
            }
        }
        finish(rows)
    }
}

fn finish(rows: Rows) -> PyResult<Table> {
    rows.finish().map_err(|error: ArrowError| raised(&error))
}

const fn kind(kind: PointKind) -> &'static str {
    match kind {
        PointKind::Data => "data",
        PointKind::Retransmit => "retransmit",
        PointKind::Ack => "ack",
        PointKind::Sack => "sack",
        PointKind::Window => "window",
        PointKind::Drop => "drop",
    }
}

#[pymethods]
impl Results {
    #[getter]
    fn scenario(&self) -> &str {
        &self.set.scenario
    }

    #[getter]
    fn title(&self) -> &str {
        &self.set.title
    }

    #[getter]
    fn about(&self) -> &str {
        &self.set.about
    }

    #[getter]
    fn source(&self) -> Option<&str> {
        self.set.source.as_deref()
    }

    /// The table as the command prints it.
    fn text(&self) -> String {
        table::text(&self.set)
    }

    /// Metadata, figures and counters of each run.
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for run in &self.set.runs {
            let (one, meta) = (PyDict::new(py), &run.meta);
            one.set_item("case", &meta.case)?;
            one.set_item("variant", &meta.variant)?;
            one.set_item("seed", meta.seed)?;
            one.set_item("duration_s", meta.duration_s)?;
            one.set_item("warm_up_s", meta.warm_up_s)?;
            one.set_item("interval_s", meta.interval_s)?;
            one.set_item("digest", &meta.digest)?;
            one.set_item("simulated_events", meta.events)?;
            one.set_item("parameters", &meta.parameters)?;
            one.set_item("metrics", &run.metrics)?;
            one.set_item("counters", &run.counters)?;
            one.set_item("left_out", &run.left_out)?;
            all.append(one)?;
        }
        Ok(all)
    }

    /// Metrics of variants, means over seeds beside published figures.
    fn table(&self) -> PyResult<Table> {
        let mut rows = Rows::new([
            ("case", Kind::Text),
            ("metric", Kind::Text),
            ("label", Kind::Text),
            ("unit", Kind::Text),
            ("variant", Kind::Text),
            ("runs", Kind::Whole),
            ("mean", Kind::Number),
            ("ci95", Kind::Number),
            ("published", Kind::Text),
        ]);
        for row in &self.set.table.rows {
            for (column, cell) in self.set.table.columns.iter().zip(&row.cells) {
                rows.push([
                    row.case.as_str().into(),
                    row.metric.as_str().into(),
                    row.label.as_str().into(),
                    row.unit.as_str().into(),
                    column.variant.as_str().into(),
                    cell.as_ref().map_or(0, |cell| cell.values.len() as u32).into(),
                    cell.as_ref().map(|cell| cell.mean).into(),
                    cell.as_ref().and_then(|cell| cell.ci95).into(),
                    row.published.get(&column.variant).map(String::as_str).into(),
                ]);
            }
        }
        finish(rows)
    }

    /// Every metric of every run.
    fn metrics(&self) -> PyResult<Table> {
        let columns = [("metric", Kind::Text), ("unit", Kind::Text), ("value", Kind::Number)];
        self.rows(columns, |run| {
            let of = |(name, value): (&String, &f64)| {
                let unit = metrics::find(name).map_or("", |metric| metric.unit);
                [name.as_str().into(), unit.into(), (*value).into()]
            };
            run.metrics.iter().map(of).collect::<Vec<_>>()
        })
    }

    /// Flows over time.
    fn intervals(&self) -> PyResult<Table> {
        let plain = [
            ("t_s", Kind::Number),
            ("flow", Kind::Whole),
            ("unsent_bytes", Kind::Whole),
            ("below_tcp_bytes", Kind::Whole),
            ("qdisc_bytes", Kind::Whole),
            ("ring_bytes", Kind::Whole),
            ("device_bytes", Kind::Whole),
            ("bottleneck_bytes", Kind::Whole),
            ("in_flight_bytes", Kind::Whole),
            ("cwnd_bytes", Kind::Whole),
            ("ssthresh_bytes", Kind::Whole),
            ("peer_window_bytes", Kind::Whole),
            ("pacing_bps", Kind::Number),
            ("delivery_bps", Kind::Number),
            ("goodput_bps", Kind::Number),
            ("srtt_s", Kind::Number),
        ];
        let gates = GATES.iter().map(|gate| (format!("blocked_{}_s", gate.replace('-', "_")), Kind::Number));
        let names = RUN.into_iter().chain(plain).map(|(name, kind)| (name.to_owned(), kind));
        let mut rows = Rows::new(names.chain(gates));
        for run in &self.set.runs {
            for series in &run.series {
                for point in &series.points {
                    let values: [Value; 16] = [
                        point.t_s.into(),
                        series.flow.into(),
                        point.unsent_bytes.into(),
                        point.below_tcp_bytes.into(),
                        point.qdisc_bytes.into(),
                        point.ring_bytes.into(),
                        point.device_bytes.into(),
                        point.bottleneck_bytes.into(),
                        point.in_flight_bytes.into(),
                        point.cwnd_bytes.into(),
                        point.ssthresh_bytes.into(),
                        point.peer_window_bytes.into(),
                        point.pacing_bps.into(),
                        point.delivery_bps.into(),
                        point.goodput_bps.into(),
                        point.srtt_s.into(),
                    ];
                    let blocked = point.blocked_s.iter().map(|time| Value::from(*time));
                    rows.push(of_run(run).into_iter().chain(values).chain(blocked));
                }
            }
        }
        finish(rows)
    }

    /// Connections.
    fn flows(&self) -> PyResult<Table> {
        let columns = [
            ("flow", Kind::Whole),
            ("name", Kind::Text),
            ("group", Kind::Whole),
            ("beside", Kind::Yes),
            ("from", Kind::Text),
            ("to", Kind::Text),
            ("local", Kind::Text),
            ("peer", Kind::Text),
            ("connected_s", Kind::Number),
            ("ended_s", Kind::Number),
            ("acked_bytes", Kind::Whole),
            ("retransmitted_bytes", Kind::Whole),
            ("goodput_bps", Kind::Number),
            ("srtt_s", Kind::Number),
            ("min_rtt_s", Kind::Number),
        ];
        self.rows(columns, |run| {
            let of = |flow: &taut_lab::data::Flow| {
                [
                    flow.id.into(),
                    flow.name.as_str().into(),
                    flow.group.into(),
                    flow.beside.into(),
                    flow.from.as_str().into(),
                    flow.to.as_str().into(),
                    flow.local.as_str().into(),
                    flow.peer.as_str().into(),
                    flow.connected_s.into(),
                    flow.ended_s.into(),
                    flow.acked_bytes.into(),
                    flow.retransmitted_bytes.into(),
                    flow.goodput_bps.into(),
                    flow.srtt_s.into(),
                    flow.min_rtt_s.into(),
                ]
            };
            run.flows.iter().map(of).collect::<Vec<_>>()
        })
    }

    /// Goodput of every flow over time.
    fn goodput(&self) -> PyResult<Table> {
        let columns = [("t_s", Kind::Number), ("flow", Kind::Whole), ("goodput_bps", Kind::Number)];
        self.rows(columns, |run| {
            let mut rows = Vec::new();
            for (at, point) in run.shares.points.iter().enumerate() {
                for line in &run.shares.lines {
                    if let Some(bps) = line.goodput_bps.get(at).copied().flatten() {
                        rows.push([point.t_s.into(), line.flow.into(), bps.into()]);
                    }
                }
            }
            rows
        })
    }

    /// How evenly it was shared.
    fn fairness(&self) -> PyResult<Table> {
        let plain = [
            ("t_s", Kind::Number),
            ("flows", Kind::Whole),
            ("goodput_bps", Kind::Number),
            ("fairness", Kind::Number),
        ];
        let groups = (0..GROUPS).map(|group| (format!("fairness_of_{group}"), Kind::Number));
        let names = RUN.into_iter().chain(plain).map(|(name, kind)| (name.to_owned(), kind));
        let mut rows = Rows::new(names.chain(groups));
        for run in &self.set.runs {
            for point in &run.shares.points {
                let values: [Value; 4] =
                    [point.t_s.into(), point.flows.into(), point.goodput_bps.into(), point.fairness.into()];
                let groups = point.fairness_of.iter().map(|index| Value::from(*index));
                rows.push(of_run(run).into_iter().chain(values).chain(groups));
            }
        }
        finish(rows)
    }

    /// The time around losses in which packets were kept.
    fn losses(&self) -> PyResult<Table> {
        let columns = [
            ("flow", Kind::Whole),
            ("t_s", Kind::Number),
            ("from_s", Kind::Number),
            ("to_s", Kind::Number),
            ("losses", Kind::Whole),
        ];
        self.rows(columns, |run| {
            let of = |window: &taut_lab::data::LossWindow| {
                [
                    window.flow.into(),
                    window.t_s.into(),
                    window.from_s.into(),
                    window.to_s.into(),
                    window.losses.into(),
                ]
            };
            run.traced.windows.iter().map(of).collect::<Vec<_>>()
        })
    }

    /// Times for which each gate of a flow's send path was the closed one.
    fn blocked(&self) -> PyResult<Table> {
        let columns = [("flow", Kind::Whole), ("gate", Kind::Text), ("seconds", Kind::Number)];
        self.rows(columns, |run| {
            let of = |flow: &taut_lab::data::Flow| {
                let id = flow.id;
                let shares = flow.blocked.iter();
                shares
                    .map(move |share| [id.into(), share.name.as_str().into(), share.seconds.into()])
                    .collect::<Vec<_>>()
            };
            run.flows.iter().flat_map(of).collect::<Vec<_>>()
        })
    }

    /// The sender after each ACK.
    fn acks(&self) -> PyResult<Table> {
        let columns = [
            ("t_s", Kind::Number),
            ("flow", Kind::Whole),
            ("acked_bytes", Kind::Whole),
            ("in_flight_bytes", Kind::Whole),
            ("unsent_bytes", Kind::Whole),
            ("below_tcp_bytes", Kind::Whole),
            ("cwnd_bytes", Kind::Whole),
            ("ssthresh_bytes", Kind::Whole),
            ("peer_window_bytes", Kind::Whole),
            ("srtt_s", Kind::Number),
            ("min_rtt_s", Kind::Number),
            ("pacing_bps", Kind::Number),
            ("delivery_bps", Kind::Number),
            ("ca_state", Kind::Text),
            ("blocked", Kind::Text),
        ];
        self.rows(columns, |run| {
            let of = |row: &taut_lab::data::AckRow| {
                [
                    row.t_s.into(),
                    row.flow.into(),
                    row.acked_bytes.into(),
                    row.in_flight_bytes.into(),
                    row.unsent_bytes.into(),
                    row.below_tcp_bytes.into(),
                    row.cwnd_bytes.into(),
                    row.ssthresh_bytes.into(),
                    row.peer_window_bytes.into(),
                    row.srtt_s.into(),
                    row.min_rtt_s.into(),
                    row.pacing_bps.into(),
                    row.delivery_bps.into(),
                    row.ca_state.as_str().into(),
                    row.blocked.as_str().into(),
                ]
            };
            run.acks.iter().map(of).collect::<Vec<_>>()
        })
    }

    /// Packets of the first flows, for a time-sequence graph.
    fn packets(&self) -> PyResult<Table> {
        let columns = [
            ("t_s", Kind::Number),
            ("flow", Kind::Whole),
            ("seq", Kind::Whole),
            ("len", Kind::Whole),
            ("kind", Kind::Text),
        ];
        self.rows(columns, |run| {
            let of = |point: &taut_lab::data::PacketPoint| {
                [
                    point.t_s.into(),
                    point.flow.into(),
                    point.seq.into(),
                    point.len.into(),
                    kind(point.kind).into(),
                ]
            };
            run.packets.iter().map(of).collect::<Vec<_>>()
        })
    }

    /// Buckets of distributions: over all flows; of each of the first flows; for each flow how long its bytes
    /// stayed where.
    fn histograms(&self) -> PyResult<Table> {
        let columns = [
            ("flow", Kind::Whole),
            ("name", Kind::Text),
            ("unit", Kind::Text),
            ("from", Kind::Number),
            ("to", Kind::Number),
            ("count", Kind::Whole),
            ("min", Kind::Number),
            ("max", Kind::Number),
        ];
        self.rows(columns, |run| {
            let of = |flow: Option<u32>, histogram: &Histogram| {
                let bucket = |bucket: &taut_lab::data::Bucket| {
                    [
                        flow.into(),
                        histogram.name.as_str().into(),
                        histogram.unit.as_str().into(),
                        bucket.from.into(),
                        bucket.to.into(),
                        bucket.count.into(),
                        histogram.min.into(),
                        histogram.max.into(),
                    ]
                };
                histogram.buckets.iter().map(bucket).collect::<Vec<_>>()
            };
            let mut rows: Vec<_> = run.histograms.iter().flat_map(|histogram| of(None, histogram)).collect();
            for flow in &run.flows {
                let own = flow.distributions.iter().chain(&flow.sojourn);
                rows.extend(own.flat_map(|histogram| of(Some(flow.id), histogram)));
            }
            rows
        })
    }

    /// Events, with a column for every member that one of them has.
    fn events(&self) -> PyResult<Table> {
        type Line = serde_json::Map<String, serde_json::Value>;
        let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        let mut lines: Vec<(usize, Line)> = Vec::new();
        for (run, (events, _)) in self.kept.iter().enumerate() {
            // The first line describes the others.
            for line in events.lines().skip(1) {
                lines.push((run, serde_json::from_str(line).map_err(wrong)?));
            }
        }
        let mut kinds: BTreeMap<&str, Kind> = BTreeMap::from([("t", Kind::Whole), ("ev", Kind::Text)]);
        for (_, line) in &lines {
            for (name, value) in line {
                let kind = match value {
                    serde_json::Value::String(_) => Kind::Text,
                    serde_json::Value::Bool(_) => Kind::Yes,
                    serde_json::Value::Number(number) if number.is_f64() => Kind::Number,
                    _ => Kind::Whole,
                };
                kinds.entry(name).or_insert(kind);
            }
        }
        // Time and kind first; the others by name.
        let mut columns: Vec<(&str, Kind)> = kinds.into_iter().collect();
        columns.sort_by_key(|(name, _)| (*name != "t", *name != "ev"));
        let renamed = columns.iter().map(|(name, kind)| (if *name == "t" { "t_ns" } else { *name }, *kind));
        let mut rows = Rows::new(RUN.into_iter().chain(renamed));
        for (run, line) in &lines {
            let values = columns.iter().map(|(name, _)| match line.get(*name) {
                Some(serde_json::Value::String(text)) => text.as_str().into(),
                Some(serde_json::Value::Bool(yes)) => (*yes).into(),
                Some(serde_json::Value::Number(number)) => {
                    number.as_i64().map_or_else(|| number.as_f64().into(), Value::Whole)
                }
                _ => Value::Null,
            });
            rows.push(of_run(&self.set.runs[*run]).into_iter().chain(values));
        }
        finish(rows)
    }

    /// The packets of a run as a pcapng file's bytes; empty if they were not kept.
    fn capture<'py>(&self, py: Python<'py>, run: usize) -> PyResult<Bound<'py, PyBytes>> {
        let kept = self.kept.get(run).ok_or_else(|| PyIndexError::new_err("there is no such run"))?;
        Ok(PyBytes::new(py, &kept.1))
    }
}
