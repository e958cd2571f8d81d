//! A run in the format of flent (version 3 of its results), so that its plots and those of taut show the
//! same: `flent -p upload run.flent`. Called by `files.rs`.
//!
//! The file is one of flent's test `tcp_nup`: goodput of each flow by interval, their sum and average, and
//! where flent puts what it reads from `ss`, the sender's smoothed round-trip time, its pacing rate and its
//! delivery rate. There are no pings in a run, and so no series of them. Virtual time begins at 0, which is
//! 1970 for a reader.

use serde_json::{Map, Value, json};

use crate::data::{Interval, RunData};

/// The version of the format.
const VERSION: u32 = 3;

/// What `ss` tells flent of a connection: its name there, its unit, and where a run has it.
type Told = (&'static str, &'static str, fn(&Interval) -> Option<f64>);
const TOLD: [Told; 3] = [
    ("tcp_rtt", "ms", |point| point.srtt_s.map(|s| s * 1e3)),
    ("tcp_pacing_rate", "Mbits/s", |point| point.pacing_bps.map(|bps| bps / 1e6)),
    ("tcp_delivery_rate", "Mbits/s", |point| Some(point.delivery_bps / 1e6)),
];

/// The file's text.
pub(crate) fn text(data: &RunData) -> String {
    let mut times: Vec<f64> =
        data.series.iter().flat_map(|series| series.points.iter().map(|point| point.t_s)).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let (mut results, mut raw, mut units) = (Map::new(), Map::new(), Map::new());
    let mut goodputs: Vec<Vec<Option<f64>>> = Vec::new();
    for series in &data.series {
        let name = format!("TCP upload::{}", series.flow + 1);
        // A flow that began later has no value before.
        let at = |t_s: &f64| series.points.iter().find(|point| point.t_s == *t_s);
        let goodput: Vec<_> = times.iter().map(|t_s| at(t_s).map(|point| point.goodput_bps / 1e6)).collect();
        let values = series.points.iter().map(|point| {
            let mut values = json!({ "t": point.t_s, "val": point.goodput_bps / 1e6 });
            for (told, _, value) in TOLD {
                values[told] = json!(value(point));
            }
            values
        });
        raw.insert(name.clone(), values.collect());
        for (told, unit, value) in TOLD {
            let told = format!("{name}::{told}");
            let values: Vec<_> = times.iter().map(|t_s| at(t_s).and_then(value)).collect();
            units.insert(told.clone(), json!({ "UNITS": unit }));
            results.insert(told, json!(values));
        }
        results.insert(name, json!(goodput));
        goodputs.push(goodput);
    }
    // There are series of the first flows only: of more, no sum is known.
    if data.series.len() == data.flows.len() {
        let sums: Vec<f64> =
            (0..times.len()).map(|row| goodputs.iter().filter_map(|flow| flow[row]).sum()).collect();
        let flows = goodputs.len().max(1) as f64;
        results.insert("TCP upload avg".into(), sums.iter().map(|sum| sum / flows).collect());
        results.insert("TCP upload sum".into(), json!(sums));
    }
    let meta = &data.meta;
    let title =
        [&*meta.case, &*meta.variant, meta.engine.label()].into_iter().filter(|word| !word.is_empty());
    let metadata = json!({
        "NAME": "tcp_nup",
        "TITLE": format!("{}: {}, seed {}", meta.scenario, title.collect::<Vec<_>>().join(", "), meta.seed),
        "TIME": "1970-01-01T00:00:00.000000Z",
        "T0": "1970-01-01T00:00:00.000000Z",
        "DATA_FILENAME": "run.flent",
        "LOCAL_HOST": "sender",
        "HOST": "receiver",
        "LENGTH": meta.duration_s,
        "TOTAL_LENGTH": meta.duration_s,
        "STEP_SIZE": meta.interval_s,
        "IP_VERSION": 4,
        "TEST_PARAMETERS": { "upload_streams": data.series.len() },
        "SERIES_META": units,
    });
    let file: Value = json!({
        "version": VERSION, "metadata": metadata, "x_values": times, "results": results, "raw_values": raw,
    });
    file.to_string() + "\n"
}
