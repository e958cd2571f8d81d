//! Where bytes wait, from the application's write to the acknowledgement, stacked over time.
//!
//! The picture distinguishes a full device queue from a full network. With several flows, lines show how much
//! each of them has. Called by `list.rs`.

use std::collections::BTreeMap;

use super::flows;
use crate::data::{Interval, RunData};
use crate::report::figures::{Figure, Shown, THINNED, arranged, time_axis};
use crate::report::lines::{self, Choice, Values};
use crate::report::picture::{Key, Swatch};
use crate::report::scale::{Axis, Quantity};
use crate::report::svg::{Layer, Panel, Shape, Tip};
use crate::report::theme::Ink;
use crate::report::thin::keep;

/// The queues from bottom to top, with their colours.
const PARTS: [(&str, Ink); 4] = [
    ("on the way: wires, receiver, ACKs", Ink::BLUE),
    ("at the bottleneck", Ink::ORANGE),
    ("in the sender's device queue", Ink::VERMILLION),
    ("unsent in the socket", Ink::SKY),
];

/// Slices of time that are drawn; each keeps several samples, since there are four queues and a sum.
const SLICES: usize = 110;

/// Number of tooltips in a panel.
const TIPS: usize = 40;

/// The queues of a run over time, summed over its flows.
#[derive(Debug, Default)]
pub(in crate::report) struct Stack {
    pub(in crate::report) times: Vec<f64>,
    /// In the order of [`PARTS`].
    pub(in crate::report) parts: [Vec<f64>; 4],
    pub(in crate::report) total: Vec<f64>,
}

/// The queues at one time, summed over the flows.
#[derive(Default)]
struct Sample<'a> {
    time: f64,
    unsent: u64,
    in_flight: u64,
    /// Each host's device queue, which its flows share.
    device: BTreeMap<&'a str, u64>,
    bottleneck: u64,
}

impl Stack {
    pub(in crate::report) fn of(run: &RunData) -> Self {
        let mut samples: BTreeMap<i64, Sample<'_>> = BTreeMap::new();
        for series in &run.series {
            let host = run.flows.iter().find(|flow| flow.id == series.flow);
            let host = host.map_or("", |flow| flow.from.as_str());
            for point in series.points.iter().filter(|point| point.t_s.is_finite()) {
                let sample = samples.entry((point.t_s * 1e6).round() as i64).or_default();
                sample.time = point.t_s;
                sample.unsent += point.unsent_bytes;
                sample.in_flight += point.in_flight_bytes;
                let device = sample.device.entry(host).or_default();
                *device = point.device_bytes.max(*device);
                sample.bottleneck = point.bottleneck_bytes.unwrap_or(0).max(sample.bottleneck);
            }
        }
        let mut stack = Self::default();
        for sample in samples.values() {
            let device: u64 = sample.device.values().sum();
            // Bytes in flight include those in the device and at the bottleneck, until they are acknowledged.
            let elsewhere = sample.in_flight.saturating_sub(device.saturating_add(sample.bottleneck));
            let parts = [elsewhere, sample.bottleneck, device, sample.unsent].map(|bytes| bytes as f64);
            stack.times.push(sample.time);
            stack.total.push(parts.iter().sum());
            for (part, bytes) in stack.parts.iter_mut().zip(parts) {
                part.push(bytes);
            }
        }
        stack
    }
}

pub(in crate::report) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let stacks: Vec<_> = shown.iter().map(|shown| (shown, Stack::of(shown.run))).collect();
    if stacks.iter().all(|(_, stack)| stack.times.is_empty()) {
        return None;
    }
    let x = time_axis(stacks.iter().map(|(_, stack)| stack.times.as_slice()));
    let y = Axis::from_zero(
        Quantity::Bytes,
        "bytes waiting",
        stacks.iter().flat_map(|(_, stack)| stack.total.iter().copied()),
    );
    let mut thinned = false;
    let panels = stacks.iter().map(|(shown, stack)| {
        let columns: Vec<&[f64]> = stack.parts.iter().chain([&stack.total]).map(Vec::as_slice).collect();
        let kept = keep(&stack.times, &columns, SLICES);
        thinned |= kept.len() < stack.times.len();
        panel(shown, stack, &kept, (&x, &y))
    });
    let stacked: Vec<Panel> = panels.collect();
    let choice = Choice::of(shown, |one, flow| one.run.series.iter().any(|series| series.flow == flow))
        .beside(&PARTS.map(|(_, ink)| ink));
    let of_flows =
        if choice.lines.len() > 1 { flow_panels(shown, &choice, &x, &mut thinned) } else { Vec::new() };
    let has_flows = !of_flows.is_empty();
    let kinds = [stacked, of_flows].into_iter().filter(|panels| !panels.is_empty());
    let (panels, columns) = arranged(kinds.collect());
    let used =
        |part: usize| stacks.iter().any(|(_, stack)| stack.parts[part].iter().any(|bytes| *bytes > 0.0));
    let keys = PARTS.iter().enumerate().rev().filter(|(part, _)| used(*part));
    let keys = keys.map(|(_, (name, ink))| Key { name: (*name).to_owned(), ink: *ink, swatch: Swatch::Box });
    let mut keys: Vec<Key> = keys.collect();
    if has_flows {
        keys.extend(choice.keys());
    }
    let mut caption = "Where bytes wait between the application's write and the acknowledgement. Look at the queue of the \
        sender's own device: bytes there delay everything that this host sends, and loss-based congestion control keeps \
        that queue full. A good sender leaves data that it cannot send yet in the socket, where it delays nothing else. \
        The scale is the same for all variants."
        .to_owned();
    if has_flows {
        caption += " Lines: what each flow has written and the receiver has not acknowledged.";
    }
    if let Some((series, flows)) = some_flows_only(shown) {
        caption += &format!(" Bytes unsent and on the way are known for only {series} of {flows} flows.");
    }
    if thinned {
        caption += THINNED;
    }
    Some(Figure {
        case: String::new(),
        name: "queues",
        title: "Where the bytes wait",
        caption,
        keys,
        panels,
        columns,
    })
}

/// A panel of each variant, with a line for each flow.
fn flow_panels(shown: &[Shown<'_>], choice: &Choice, x: &Axis, thinned: &mut bool) -> Vec<Panel> {
    let held = |point: &Interval| (point.unsent_bytes + point.in_flight_bytes) as f64;
    let all: Vec<_> = shown.iter().map(|one| (one, flows::values(one.run, choice, held))).collect();
    let y = Axis::from_zero(
        Quantity::Bytes,
        "bytes of a flow, unsent or in flight",
        all.iter().flat_map(|(_, values)| values.all()),
    );
    let panel = |(one, values): &(&Shown<'_>, Values)| {
        let (panel, is_thinned) = lines::panel(one, choice, values, (x, &y), "each flow".to_owned());
        *thinned |= is_thinned;
        panel
    };
    all.iter().map(panel).collect()
}

/// The number of flows with series and of all flows, when not all have series.
fn some_flows_only(shown: &[Shown<'_>]) -> Option<(usize, usize)> {
    let counts = shown.iter().map(|shown| (shown.run.series.len(), shown.run.flows.len()));
    counts.into_iter().find(|(series, flows)| series < flows)
}

fn panel(shown: &Shown<'_>, stack: &Stack, kept: &[usize], (x, y): (&Axis, &Axis)) -> Panel {
    let mut sums = vec![0.0; stack.times.len()];
    let mut layers: Vec<Layer> = Vec::new();
    for ((name, ink), part) in PARTS.iter().zip(&stack.parts) {
        for (sum, bytes) in sums.iter_mut().zip(part) {
            *sum += bytes;
        }
        if part.iter().all(|bytes| *bytes == 0.0) {
            continue;
        }
        let points = kept.iter().map(|at| (stack.times[*at], sums[*at])).collect();
        layers.push(Layer { name: (*name).to_owned(), shape: Shape::Area(points), ink: *ink, variant: None });
    }
    // The topmost layer is drawn first.
    layers.reverse();
    // As in the table, the warm-up is left out.
    let measured = stack.times.iter().map(|time| *time > shown.run.meta.warm_up_s);
    let device = stack.parts[2].iter().zip(measured).filter(|(_, is)| *is).map(|(bytes, _)| *bytes);
    let device = device.fold(0.0, f64::max);
    Panel {
        title: shown.label.clone(),
        note: format!("device max {}", Quantity::Bytes.say(device)),
        variant: Some(shown.index),
        x: x.clone(),
        y: y.clone(),
        rows: Vec::new(),
        layers,
        tips: tips(stack, x),
        shape: 0.62,
        zooms: Some("time"),
    }
}

/// The tooltip of each part of the time: the queues when they held the most.
fn tips(stack: &Stack, x: &Axis) -> Vec<Tip> {
    let width = (x.high - x.low) / TIPS as f64;
    let part = |index: usize| {
        let (from, to) = (x.low + index as f64 * width, x.low + (index + 1) as f64 * width);
        let inside = (0..stack.times.len()).filter(|at| (from..to).contains(&stack.times[*at]));
        let at = inside.max_by(|a, b| stack.total[*a].total_cmp(&stack.total[*b]))?;
        let mut text =
            format!("at {}: {}", Quantity::Time.say(stack.times[at]), Quantity::Bytes.say(stack.total[at]));
        for ((name, _), part) in PARTS.iter().zip(&stack.parts).rev() {
            text += &format!("\n{} {name}", Quantity::Bytes.say(part[at]));
        }
        Some(Tip { from, to, text })
    };
    (0..TIPS).filter_map(part).collect()
}
