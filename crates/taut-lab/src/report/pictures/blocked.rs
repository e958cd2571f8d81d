//! What held the sender back: the share of time for which each gate of the send path was the closed one.
//!
//! Called by `list.rs`.

use std::collections::BTreeMap;

use taut_core::Gate;

use crate::data::GATES;
use crate::report::figures::{Figure, Shown};
use crate::report::picture::{Key, Swatch};
use crate::report::scale::{Axis, Kind, Quantity};
use crate::report::svg::{Layer, Panel, Shape};
use crate::report::theme::Ink;

/// Shares below this have no entry of their own.
const LEAST_SHARE: f64 = 0.005;

/// A gate's words and colour. A gate of a newer stack has only its name.
fn words(name: &str) -> (&str, Ink) {
    let Some(gate) = Gate::by_name(name) else { return (name, Ink::INDIGO) };
    let ink = match gate {
        Gate::NoData => Ink::PALE,
        Gate::SendBuffer => Ink::GREY,
        Gate::Pacing => Ink::GREEN,
        Gate::Cwnd => Ink::BLUE,
        Gate::PeerWindow => Ink::PINK,
        Gate::Nagle => Ink::YELLOW,
        Gate::Cork => Ink::OLIVE,
        Gate::Autocork => Ink::WINE,
        Gate::TsoDefer => Ink::SKY,
        Gate::SmallQueue => Ink::ORANGE,
        Gate::Device => Ink::VERMILLION,
    };
    (gate.words(), ink)
}

/// Most rows with a flow each; with more flows, those of one `[[flows]]` share a row.
const FLOW_ROWS_MAX: usize = 12;

/// A row: flows of a run, with shares of their time in the order of the gates.
struct Line<'a> {
    shown: &'a Shown<'a>,
    kind: &'a str,
    shares: Vec<(&'a str, f64)>,
}

/// The `[[flows]]` of a flow, by its name: `bulk 0` of `bulk 0.17`.
fn kind(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(kind, _)| kind)
}

fn whole(name: &str) -> &str {
    name
}

/// A row for each flow, or for each `[[flows]]`, that has shares.
fn lines<'a>(shown: &'a Shown<'a>, of: fn(&str) -> &str) -> Vec<Line<'a>> {
    let mut lines: Vec<(&str, BTreeMap<&str, f64>)> = Vec::new();
    for flow in &shown.run.flows {
        let kind = of(&flow.name);
        for share in flow.blocked.iter().filter(|share| share.seconds.is_finite() && share.seconds > 0.0) {
            let at = lines.iter().position(|line| line.0 == kind).unwrap_or_else(|| {
                lines.push((kind, BTreeMap::new()));
                lines.len() - 1
            });
            *lines[at].1.entry(&share.name).or_default() += share.seconds;
        }
    }
    let line = |(kind, seconds): (&'a str, BTreeMap<&'a str, f64>)| {
        let total: f64 = seconds.values().sum();
        let mut shares: Vec<_> = seconds.into_iter().map(|(name, seconds)| (name, seconds / total)).collect();
        shares.sort_by_key(|(name, _)| GATES.iter().position(|gate| gate == name).unwrap_or(GATES.len()));
        Line { shown, kind, shares }
    };
    lines.into_iter().map(line).collect()
}

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let flows: usize = shown.iter().map(|one| one.run.flows.len()).sum();
    let of = if flows <= FLOW_ROWS_MAX { whole } else { kind };
    let lines: Vec<Line<'_>> = shown.iter().flat_map(|one| lines(one, of)).collect();
    let first = lines.first()?.kind;
    let has_kinds = lines.iter().any(|line| line.kind != first);
    let label = |line: &Line<'_>| {
        if has_kinds { format!("{}: {}", line.shown.label, line.kind) } else { line.shown.label.clone() }
    };
    let mut gates: Vec<&str> = Vec::new();
    for (name, _) in lines.iter().flat_map(|line| &line.shares).filter(|(_, share)| *share >= LEAST_SHARE) {
        if !gates.contains(name) {
            gates.push(name);
        }
    }
    gates.sort_by_key(|name| GATES.iter().position(|gate| gate == name).unwrap_or(GATES.len()));
    let mut layers: Vec<Layer> = Vec::new();
    for (row, line) in lines.iter().enumerate() {
        let mut from = 0.0;
        for (name, share) in &line.shares {
            let (said, ink) = words(name);
            let tip = format!("{}: {said} {}", label(line), Quantity::Share.say(*share));
            layers.push(Layer {
                name: said.to_owned(),
                shape: Shape::Spans(vec![(row, from, from + share, tip)]),
                ink,
                variant: Some(line.shown.index),
            });
            from += share;
        }
    }
    let keys = gates.iter().map(|gate| words(gate));
    let keys = keys.map(|(name, ink)| Key { name: name.to_owned(), ink, swatch: Swatch::Box }).collect();
    let panel = Panel {
        title: String::new(),
        note: String::new(),
        variant: None,
        x: Axis {
            quantity: Quantity::Share,
            label: "share of the time since the first write".to_owned(),
            kind: Kind::Linear,
            low: 0.0,
            high: 1.0,
        },
        y: Axis::from_zero(Quantity::Count, "", [1.0]),
        rows: lines.iter().map(label).collect(),
        layers,
        tips: Vec::new(),
        shape: 0.62,
        zooms: None,
    };
    Some(Figure {
        case: String::new(),
        name: "blocked",
        title: "What held the sender back",
        caption: "The share of time for which each gate of the send path was the closed one; with more than twelve \
            flows, those of the same [[flows]] are shown together. A sender that waits for the congestion window or for pacing follows its congestion control; \
            one held by the small queue limit keeps its bytes out of the device's queue; one that waits for the device \
            has filled it. Shares too small to see have no entry in the legend."
            .to_owned(),
        keys,
        panels: vec![panel],
        columns: 1,
    })
}
