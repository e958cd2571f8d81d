//! Distributions: round-trip times and latencies as shares below a value, bursts and gaps between packets as
//! bars. With several flows, further panels have a line for each: its round-trip times, its requests, the
//! gaps between its own packets. A burst on the wire may be of several flows, and has none.
//!
//! Called by `list.rs`.

use std::collections::BTreeMap;

use crate::data::{Bucket, Histogram, RunData};
use crate::report::figures::{Figure, Shown, arranged};
use crate::report::lines::{Choice, Chosen};
use crate::report::picture::{Key, Swatch};
use crate::report::scale::{Axis, Kind, Quantity, range};
use crate::report::svg::{Layer, Panel, Shape};
use crate::report::theme::Ink;

/// A histogram of a run, if it counted something.
fn named<'a>(run: &'a RunData, name: &str) -> Option<&'a Histogram> {
    run.histograms.iter().find(|histogram| histogram.name == name && total(histogram) > 0.0)
}

/// The same of one of its flows.
fn own<'a>(run: &'a RunData, flow: u32, name: &str) -> Option<&'a Histogram> {
    let flow = run.flows.iter().find(|other| other.id == flow)?;
    flow.distributions.iter().find(|histogram| histogram.name == name && total(histogram) > 0.0)
}

fn total(histogram: &Histogram) -> f64 {
    histogram.buckets.iter().map(|bucket| bucket.count as f64).sum()
}

/// The quantity of a histogram's bounds, and their factor.
fn unit(histogram: &Histogram) -> (Quantity, f64) {
    match histogram.unit.as_str() {
        "us" => (Quantity::Time, 1e-6),
        "bytes" => (Quantity::Bytes, 1.0),
        _ => (Quantity::Count, 1.0),
    }
}

pub(super) fn rtt(shown: &[Shown<'_>]) -> Option<Figure> {
    cdf(
        shown,
        "rtt",
        "round-trip time",
        "Round-trip time under load",
        "The share of the sender's round-trip samples below a given time, while it sends as much as it can. Further left \
         is better: the distance between a curve and the delay of the empty path is time spent in queues. Between bucket \
         bounds the curve is drawn straight.",
    )
}

pub(super) fn latency(shown: &[Shown<'_>]) -> Option<Figure> {
    cdf(
        shown,
        "latency",
        "latency",
        "Latency of requests",
        "The share of requests answered within a given time. Look at the upper end: a few requests that wait for a \
         delayed ACK show as a step far to the right, and make the mean many times the median. Between bucket bounds the \
         curve is drawn straight.",
    )
}

/// Points of the curve: the share of values below each value.
fn curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let (_, factor) = unit(histogram);
    let total = total(histogram);
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut below = 0.0;
    for bucket in histogram.buckets.iter().filter(|bucket| bucket.count > 0) {
        // The least and largest values are known exactly, better than by their buckets.
        let from = if points.is_empty() { bucket.from.max(histogram.min) } else { bucket.from };
        let from = if from > 0.0 { from } else { bucket.to / 2.0 };
        // The curve is flat across empty buckets.
        if points.last().is_none_or(|last| last.0 < from * factor) {
            points.push((from * factor, below / total));
        }
        below += bucket.count as f64;
        let to =
            if below >= total && histogram.max > from { bucket.to.min(histogram.max) } else { bucket.to };
        points.push((to.max(from) * factor, below / total));
    }
    points
}

fn cdf(
    shown: &[Shown<'_>],
    name: &'static str,
    label: &str,
    title: &'static str,
    caption: &str,
) -> Option<Figure> {
    let found = shown.iter().filter_map(|shown| Some((shown, named(shown.run, name)?)));
    let found: Vec<_> = found.map(|(shown, histogram)| (shown, histogram, curve(histogram))).collect();
    let (quantity, _) = unit(found.first()?.1);
    let values = found.iter().flat_map(|(.., curve)| curve.iter().map(|point| point.0));
    let ink = |index: usize| Ink::SERIES[index % Ink::SERIES.len()];
    let taken: Vec<Ink> = shown.iter().map(|one| ink(one.index)).collect();
    let (choice, of_flows) = flow_panels(shown, name, label, &taken);
    let layer = |(shown, histogram, curve): &(&Shown<'_>, &Histogram, Vec<(f64, f64)>)| Layer {
        name: format!("{}: {}", shown.label, summary(histogram)),
        shape: Shape::Line { points: curve.clone(), step: false, dashed: false },
        ink: ink(shown.index),
        variant: Some(shown.index),
    };
    let keys = found.iter().map(|(shown, histogram, _)| Key {
        name: format!("{}: {}", shown.label, summary(histogram)),
        ink: ink(shown.index),
        swatch: Swatch::Line,
    });
    let panel = Panel {
        title: if of_flows.is_empty() { String::new() } else { "all flows".to_owned() },
        note: String::new(),
        variant: None,
        x: Axis::log(quantity, label, values),
        y: shares_axis(),
        rows: Vec::new(),
        layers: found.iter().map(layer).collect(),
        tips: Vec::new(),
        shape: 0.62,
        zooms: None,
    };
    let mut keys: Vec<Key> = keys.collect();
    let mut caption = caption.to_owned();
    if !of_flows.is_empty() {
        keys.extend(choice.keys());
        caption += &of_some_flows(shown, &choice);
    }
    let columns = if of_flows.is_empty() { 1 } else { 2 };
    let panels = std::iter::once(panel).chain(of_flows).collect();
    Some(Figure { case: String::new(), name, title, caption, keys, panels, columns })
}

fn shares_axis() -> Axis {
    Axis {
        quantity: Quantity::Share,
        label: "share below".to_owned(),
        kind: Kind::Linear,
        low: 0.0,
        high: 1.02,
    }
}

/// A panel of each variant with a line for each flow that has this distribution, if several have.
fn flow_panels(shown: &[Shown<'_>], name: &str, label: &str, taken: &[Ink]) -> (Choice, Vec<Panel>) {
    let choice = Choice::of(shown, |one, flow| own(one.run, flow, name).is_some()).beside(taken);
    if choice.lines.len() < 2 {
        return (choice, Vec::new());
    }
    let lines = |one: &Shown<'_>| -> Vec<(Layer, Quantity)> {
        let line = |(chosen, histogram): (&Chosen, &Histogram)| {
            let layer = Layer {
                name: format!("{}: {}", chosen.name, summary(histogram)),
                shape: Shape::Line { points: curve(histogram), step: false, dashed: false },
                ink: chosen.ink,
                variant: None,
            };
            (layer, unit(histogram).0)
        };
        let found = choice.lines.iter().filter_map(|chosen| Some((chosen, own(one.run, chosen.flow, name)?)));
        found.map(line).collect()
    };
    let all: Vec<_> =
        shown.iter().map(|one| (one, lines(one))).filter(|(_, lines)| !lines.is_empty()).collect();
    let points = |layer: &Layer| match &layer.shape {
        Shape::Line { points, .. } => points.iter().map(|point| point.0).collect(),
        _ => Vec::new(),
    };
    let values = all.iter().flat_map(|(_, lines)| lines).flat_map(|(layer, _)| points(layer));
    let quantity = all.first().and_then(|(_, lines)| lines.first()).map_or(Quantity::Time, |line| line.1);
    let x = Axis::log(quantity, label, values);
    let panel = |(one, lines): (&Shown<'_>, Vec<(Layer, Quantity)>)| Panel {
        title: one.label.clone(),
        note: "each flow".to_owned(),
        variant: Some(one.index),
        x: x.clone(),
        y: shares_axis(),
        rows: Vec::new(),
        layers: lines.into_iter().map(|(layer, _)| layer).collect(),
        tips: Vec::new(),
        shape: 0.62,
        zooms: None,
    };
    let panels = all.into_iter().map(panel).collect();
    (choice, panels)
}

/// The end of a caption whose lines are not of all flows.
fn of_some_flows(shown: &[Shown<'_>], choice: &Choice) -> String {
    let flows = shown.iter().map(|one| one.run.flows.len()).max().unwrap_or(0);
    let lines = choice.lines.len();
    if lines < flows {
        format!(" {lines} of {} flows have a line of their own.", Quantity::Count.say(flows as f64))
    } else {
        String::new()
    }
}

/// The summary of a distribution in words.
fn summary(histogram: &Histogram) -> String {
    let (quantity, factor) = unit(histogram);
    let say = |value: f64| quantity.say(value * factor);
    format!(
        "median {}, 99 % below {}, longest {}",
        say(histogram.p50),
        say(histogram.p99),
        say(histogram.max)
    )
}

pub(super) fn bursts(shown: &[Shown<'_>]) -> Option<Figure> {
    let kinds = [
        ("burst", "segments back to back", "share of bursts", Ink::BLUE),
        ("gap", "gap between packets", "share of gaps", Ink::GREEN),
    ];
    let kinds: Vec<Vec<Panel>> =
        kinds.iter().map(|(name, label, what, ink)| bars(shown, name, label, what, *ink)).collect();
    let mut kinds: Vec<_> = kinds.into_iter().filter(|panels| !panels.is_empty()).collect();
    if kinds.is_empty() {
        return None;
    }
    let (choice, of_flows) =
        flow_panels(shown, "flow_gap", "gap between packets of a flow", &[Ink::BLUE, Ink::GREEN]);
    let mut keys = Vec::new();
    let mut caption = "How many segments leave the sender back to back, and how much time passes between the departures of one \
            packet and the next. A paced sender has short bursts, and gaps of similar length; one that sends a window at \
            a time has long bursts, and few but long gaps. The axis is logarithmic: each bar covers an octave, or half of \
            one; its height is its share of all."
        .to_owned();
    if !of_flows.is_empty() {
        keys = choice.keys();
        caption += " Lines: the share of gaps between two packets of the same flow that are shorter, a line for each flow.";
        caption += &of_some_flows(shown, &choice);
        kinds.push(of_flows);
    }
    let (panels, columns) = arranged(kinds);
    Some(Figure {
        case: String::new(),
        name: "bursts",
        title: "Bursts, and gaps between packets",
        caption,
        keys,
        panels,
        columns,
    })
}

fn bars(shown: &[Shown<'_>], name: &str, label: &str, what: &str, ink: Ink) -> Vec<Panel> {
    let found: Vec<_> = shown.iter().filter_map(|shown| Some((shown, named(shown.run, name)?))).collect();
    let Some((quantity, _)) = found.first().map(|(_, histogram)| unit(histogram)) else { return Vec::new() };
    let finest = found.iter().map(|(_, histogram)| steps_in_octave(histogram)).min().unwrap_or(1);
    let all: Vec<Vec<Bar>> = found.iter().map(|(_, histogram)| heights(histogram, finest)).collect();
    let x = Axis::log(quantity, label, all.iter().flatten().flat_map(|bar| [bar.0, bar.1]));
    let (_, most) = range(all.iter().flatten().map(|bar| bar.2)).unwrap_or((0.0, 1.0));
    let y = Axis::from_zero(Quantity::Share, what, [most]);
    let panel = |((shown, histogram), bars): (&(&Shown<'_>, &Histogram), Vec<Bar>)| Panel {
        title: shown.label.clone(),
        note: format!("median {}", quantity.say(histogram.p50 * unit(histogram).1)),
        variant: Some(shown.index),
        x: x.clone(),
        y: y.clone(),
        rows: Vec::new(),
        layers: vec![Layer { name: what.to_owned(), shape: Shape::Bars(bars), ink, variant: None }],
        tips: Vec::new(),
        shape: 0.62,
        zooms: None,
    };
    found.iter().zip(all).map(panel).collect()
}

/// From, to, share, and label.
type Bar = (f64, f64, f64, String);

/// Number of bars in an octave: one for whole numbers, of which the lower octaves have few, and for buckets
/// as wide as an octave; two for finer ones.
fn steps_in_octave(histogram: &Histogram) -> u32 {
    let is_coarse = |bucket: &&Bucket| bucket.from > 0.0 && bucket.to / bucket.from > 1.415;
    let coarse = histogram.buckets.iter().filter(|bucket| bucket.count > 0).find(is_coarse);
    if unit(histogram).0 == Quantity::Count || coarse.is_some() { 1 } else { 2 }
}

/// Bars of equal width on a logarithmic axis; each takes the buckets that begin in it. Buckets differ in
/// width, and the finest ones would be invisible.
fn heights(histogram: &Histogram, in_octave: u32) -> Vec<Bar> {
    let ((quantity, factor), total) = (unit(histogram), total(histogram));
    let in_octave = f64::from(in_octave);
    let mut counts: BTreeMap<i32, f64> = BTreeMap::new();
    for bucket in histogram.buckets.iter().filter(|bucket| bucket.count > 0) {
        // Zero has no place on a logarithmic axis.
        let from = if bucket.from > 0.0 { bucket.from } else { bucket.to / 2.0 };
        if from > 0.0 {
            *counts.entry((libm::log2(from) * in_octave + 1e-9).floor() as i32).or_default() +=
                bucket.count as f64;
        }
    }
    let bound = |step: i32| libm::exp2(f64::from(step) / in_octave);
    let bar = |(step, count): (i32, f64)| {
        let (from, to, share) = (bound(step) * factor, bound(step + 1) * factor, count / total);
        let said = format!(
            "{} to {}: {} ({})",
            quantity.say(from),
            quantity.say(to),
            Quantity::Share.say(share),
            Quantity::Count.say(count)
        );
        (from, to, share, said)
    };
    counts.into_iter().map(bar).collect()
}
