//! Windows, bytes in flight and round-trip times with a line for each flow that has a series.
//!
//! `window.rs` shows one flow in detail; this shows how it and the others differ. Called by `list.rs`.

use crate::data::{Interval, RunData};
use crate::report::figures::{Figure, Shown, THINNED, arranged, time_axis};
use crate::report::lines::{self, Choice, Values};
use crate::report::scale::{Axis, Quantity};
use crate::report::svg::Panel;

/// What is drawn: the axis's words, its quantity, and the value of an interval.
type Drawn = (&'static str, Quantity, fn(&Interval) -> f64);

const DRAWN: [Drawn; 3] = [
    ("congestion window", Quantity::Bytes, |point| point.cwnd_bytes as f64),
    ("bytes in flight", Quantity::Bytes, |point| point.in_flight_bytes as f64),
    ("smoothed round-trip time", Quantity::Time, |point| point.srtt_s.unwrap_or(f64::NAN)),
];

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let choice = Choice::of(shown, |one, flow| one.run.series.iter().any(|series| series.flow == flow));
    if choice.lines.len() < 2 {
        return None;
    }
    let mut thinned = false;
    let mut kind = |&(label, quantity, of): &Drawn| -> Vec<Panel> {
        let all: Vec<_> = shown.iter().map(|one| (one, values(one.run, &choice, of))).collect();
        let x = time_axis(all.iter().map(|(_, values)| values.times.as_slice()));
        let y = Axis::from_zero(quantity, label, all.iter().flat_map(|(_, values)| values.all()));
        let panel = |(one, values): &(&Shown<'_>, Values)| {
            let (panel, is_thinned) = lines::panel(one, &choice, values, (&x, &y), String::new());
            thinned |= is_thinned;
            panel
        };
        all.iter().map(panel).collect()
    };
    let (panels, columns) = arranged(DRAWN.iter().map(&mut kind).collect());
    let mut caption = "Flows side by side, as their senders see them at the end of each interval. Flows through one queue \
        have the same time in it: where round-trip times differ, their paths do. Windows that differ at the same \
        round-trip time mean that flows get different shares."
        .to_owned();
    let counts = shown.iter().map(|one| (one.run.series.len(), one.run.flows.len()));
    if let Some((series, flows)) = counts.into_iter().find(|(series, flows)| series < flows) {
        let flows = Quantity::Count.say(flows as f64);
        caption += &format!(" The values of only the first {series} of {flows} flows are known.");
    }
    if thinned {
        caption += THINNED;
    }
    Some(Figure {
        case: String::new(),
        name: "flows",
        title: "Window and round-trip time of each flow",
        caption,
        keys: choice.keys(),
        panels,
        columns,
    })
}

/// Flows begin and end at different times: a flow has no value where it has no sample.
pub(super) fn values(run: &RunData, choice: &Choice, of: fn(&Interval) -> f64) -> Values {
    let points = || run.series.iter().flat_map(|series| &series.points);
    let mut times: Vec<f64> = points().map(|point| point.t_s).filter(|time| time.is_finite()).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let line = |points: &[Interval]| {
        let mut values = vec![f64::NAN; times.len()];
        for point in points {
            if let Ok(at) = times.binary_search_by(|time| time.total_cmp(&point.t_s)) {
                values[at] = of(point);
            }
        }
        values
    };
    let all: Vec<_> = run.series.iter().map(|series| (series.flow, line(&series.points))).collect();
    Values::sorted(choice, times, all)
}
