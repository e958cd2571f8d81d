//! Who got what, and when: goodput of each flow over time, and how even it was.
//!
//! Called by `list.rs`.

use crate::data::{GROUPS, RunData, SharePoint};
use crate::report::figures::{Figure, Shown, THINNED, arranged, time_axis};
use crate::report::lines::{self, Choice, Values};
use crate::report::picture::{Key, Swatch};
use crate::report::scale::{Axis, Kind, Quantity};
use crate::report::svg::{Layer, Panel, Shape, Tip};
use crate::report::theme::Ink;
use crate::report::thin::{SLICES, keep};

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let choice = Choice::of(shown, |one, flow| one.run.shares.lines.iter().any(|line| line.flow == flow));
    if choice.lines.is_empty() {
        return None;
    }
    let all: Vec<_> = shown.iter().map(|one| (one, values(one.run, &choice))).collect();
    let x = time_axis(all.iter().map(|(_, values)| values.times.as_slice()));
    let y = Axis::from_zero(
        Quantity::BitRate,
        "goodput of a flow",
        all.iter().flat_map(|(_, values)| values.all()),
    );
    let mut thinned = false;
    let panels = all.iter().map(|(one, values)| {
        let (panel, is_thinned) = lines::panel(one, &choice, values, (&x, &y), note(one.run));
        thinned |= is_thinned;
        panel
    });
    let (panels, columns) = arranged(vec![panels.collect()]);
    let mut caption = "Payload of each flow that was acknowledged in each interval. Names are those of the application, the \
        number of its [[flows]] in the scenario, and the number among those. Flows with the same path and the same \
        congestion control that stay apart for long do not share fairly; lines that change places within a few round \
        trips do. After a loss, a receiver may acknowledge much at once."
        .to_owned();
    caption += &choice.rule();
    if thinned {
        caption += THINNED;
    }
    Some(Figure {
        case: String::new(),
        name: "goodput",
        title: "Goodput of each flow",
        caption,
        keys: choice.keys(),
        panels,
        columns,
    })
}

fn values(run: &RunData, choice: &Choice) -> Values {
    let shares = &run.shares;
    let times = shares.points.iter().map(|point| point.t_s).collect();
    let known = |values: &[Option<f64>]| values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
    let mut values =
        Values::sorted(choice, times, shares.lines.iter().map(|line| (line.flow, known(&line.goodput_bps))));
    let group = |flow: u32| {
        let flow = run.flows.iter().find(|other| other.id == flow && !other.beside)?;
        Some(flow.group)
    };
    let groups: Vec<Option<u32>> = shares.lines.iter().map(|line| group(line.flow)).collect();
    let mut numbers: Vec<u32> = groups.iter().flatten().copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    if numbers.len() > 1 {
        for number in numbers {
            let inside = || shares.lines.iter().zip(&groups).filter(|(_, group)| **group == Some(number));
            let sum = |at: usize| {
                inside().filter_map(|(line, _)| line.goodput_bps.get(at).copied().flatten()).sum()
            };
            let sums = (0..values.times.len()).map(sum).collect();
            values.sums.push((format!("flows.{number} together"), sums));
        }
    }
    if shares.lines.len() > 1 {
        let sums = shares.points.iter().map(|point| point.goodput_bps).collect();
        values.sums.push(("together".to_owned(), sums));
    }
    values
}

/// Jain's index over the measured part.
fn note(run: &RunData) -> String {
    match run.metrics.get("fairness") {
        Some(index) if run.flows.len() > 1 => format!("fairness {}", Quantity::Index.say(*index)),
        _ => String::new(),
    }
}

/// A value of each interval.
type Of = fn(&SharePoint, usize) -> Option<f64>;

pub(super) fn fairness(shown: &[Shown<'_>]) -> Option<Figure> {
    if !shown.iter().flat_map(|one| &one.run.shares.points).any(|point| point.flows > 1) {
        return None;
    }
    let times: Vec<Vec<f64>> =
        shown.iter().map(|one| one.run.shares.points.iter().map(|point| point.t_s).collect()).collect();
    let x = time_axis(times.iter().map(Vec::as_slice));
    let all: Of = |point, _| point.fairness;
    let of_group: Of = |point, group| point.fairness_of[group];
    let mut kinds = vec![("all flows".to_owned(), all, 0)];
    let groups: Vec<usize> = (0..GROUPS).filter(|group| size(shown, *group) > 0).collect();
    if groups.len() > 1 {
        let several = groups.into_iter().filter(|group| size(shown, *group) > 1);
        kinds.extend(several.map(|group| (format!("flows.{group}"), of_group, group)));
    }
    let panels: Vec<Panel> =
        kinds.into_iter().map(|(title, of, group)| panel(shown, &x, title, of, group)).collect();
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let keys = shown.iter().map(|one| Key {
        name: one.label.clone(),
        ink: Ink::SERIES[one.index % Ink::SERIES.len()],
        swatch: Swatch::Line,
    });
    Some(Figure {
        case: String::new(),
        name: "fairness",
        title: "Fairness over time",
        caption: "Jain's index of the goodput of the flows that were open in the whole interval: 1 when all have the same, \
            1/n when one of n has everything. Shorter intervals show lower values: within one round trip, flows take \
            turns. Flows of different kinds, such as bulk and requests, are not meant to get the same; the index of each \
            [[flows]] has a panel of its own."
            .to_owned(),
        keys: keys.collect(),
        panels,
        columns,
    })
}

/// The largest number of flows that a run has of this group, without those beside.
fn size(shown: &[Shown<'_>], group: usize) -> usize {
    let of = |one: &Shown<'_>| {
        one.run.flows.iter().filter(|flow| flow.group as usize == group && !flow.beside).count()
    };
    shown.iter().map(of).max().unwrap_or(0)
}

fn panel(shown: &[Shown<'_>], x: &Axis, title: String, of: Of, group: usize) -> Panel {
    const TIPS: usize = 40;
    let line = |one: &Shown<'_>| -> Vec<(f64, f64)> {
        let points = one.run.shares.points.iter();
        points.map(|point| (point.t_s, of(point, group).unwrap_or(f64::NAN))).collect()
    };
    let lines: Vec<Vec<(f64, f64)>> = shown.iter().map(line).collect();
    let layer = |(one, line): (&Shown<'_>, &Vec<(f64, f64)>)| {
        let (times, values): (Vec<f64>, Vec<f64>) = line.iter().copied().unzip();
        let kept = keep(&times, &[&values], SLICES);
        let points = kept.into_iter().map(|at| line[at]).collect();
        Layer {
            name: one.label.clone(),
            shape: Shape::Line { points, step: false, dashed: false },
            ink: Ink::SERIES[one.index % Ink::SERIES.len()],
            variant: Some(one.index),
        }
    };
    let width = (x.high - x.low) / TIPS as f64;
    let tip = |index: usize| {
        let (from, to) = (x.low + index as f64 * width, x.low + (index + 1) as f64 * width);
        let is_last = index + 1 == TIPS;
        let inside = |time: f64| (from..to).contains(&time) || (is_last && time >= to);
        let mut text = String::new();
        for (one, line) in shown.iter().zip(&lines) {
            let Some((time, index)) =
                line.iter().rev().find(|(time, index)| inside(*time) && index.is_finite())
            else {
                continue;
            };
            if text.is_empty() {
                text = format!("at {}", Quantity::Time.say(*time));
            }
            text += &format!("\n{} {}", one.label, Quantity::Index.say(*index));
        }
        (!text.is_empty()).then_some(Tip { from, to, text })
    };
    Panel {
        title,
        note: String::new(),
        variant: None,
        x: x.clone(),
        y: Axis {
            quantity: Quantity::Index,
            label: "Jain's index".to_owned(),
            kind: Kind::Linear,
            low: 0.0,
            high: 1.02,
        },
        rows: Vec::new(),
        layers: shown.iter().zip(&lines).map(layer).collect(),
        tips: (0..TIPS).filter_map(tip).collect(),
        shape: 0.62,
        zooms: Some("time"),
    }
}
