//! What held the sender back: the share of time for which each gate of the send path was the one that was shut.
//!
//! Ours. Called by `figures.rs`.

use std::collections::BTreeMap;

use super::figures::{Figure, Shown};
use super::scale::{Axis, Kind, Quantity};
use super::svg::{Key, Layer, Panel, Shape, Swatch};
use super::theme::Ink;
use crate::data::{GATES, RunData};

/// Shares below this have no entry of their own.
const LEAST_SHARE: f64 = 0.005;

/// What a gate is in words, and its colour.
fn words(gate: &str) -> (&str, Ink) {
    match gate {
        "no-data" => ("nothing to send", Ink::PALE),
        "send-buffer" => ("send buffer full", Ink::GREY),
        "pacing" => ("pacing", Ink::GREEN),
        "cwnd" => ("congestion window", Ink::BLUE),
        "peer-window" => ("receiver's window", Ink::PINK),
        "nagle" => ("Nagle", Ink::YELLOW),
        "cork" => ("corked", Ink::OLIVE),
        "autocork" => ("autocorking", Ink::WINE),
        "tso-defer" => ("TSO deferred", Ink::SKY),
        "small-queue" => ("small queue limit", Ink::ORANGE),
        "device" => ("device full", Ink::VERMILLION),
        other => (other, Ink::INDIGO),
    }
}

/// Shares of the time of all flows of a run, in the order of the gates; empty when nothing is known.
fn shares(run: &RunData) -> Vec<(&str, f64)> {
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for share in run.flows.iter().flat_map(|flow| &flow.blocked) {
        if share.seconds.is_finite() && share.seconds > 0.0 {
            *seconds.entry(&share.name).or_default() += share.seconds;
        }
    }
    let total: f64 = seconds.values().sum();
    let mut shares: Vec<_> = seconds.into_iter().map(|(name, seconds)| (name, seconds / total)).collect();
    shares.sort_by_key(|(name, _)| GATES.iter().position(|gate| gate == name).unwrap_or(GATES.len()));
    shares
}

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let runs: Vec<_> = shown.iter().map(|shown| (shown, shares(shown.run))).collect();
    let runs: Vec<_> = runs.into_iter().filter(|(_, shares)| !shares.is_empty()).collect();
    if runs.is_empty() {
        return None;
    }
    let mut gates: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|(_, shares)| shares).filter(|(_, share)| *share >= LEAST_SHARE) {
        if !gates.contains(name) {
            gates.push(name);
        }
    }
    gates.sort_by_key(|name| GATES.iter().position(|gate| gate == name).unwrap_or(GATES.len()));
    let mut layers: Vec<Layer> = Vec::new();
    for (row, (shown, shares)) in runs.iter().enumerate() {
        let mut from = 0.0;
        for (name, share) in shares {
            let (said, ink) = words(name);
            let tip = format!("{}: {said} {}", shown.label, Quantity::Share.say(*share));
            layers.push(Layer {
                name: said.to_owned(),
                shape: Shape::Spans(vec![(row, from, from + share, tip)]),
                ink,
                variant: Some(shown.index),
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
        rows: runs.iter().map(|(shown, _)| shown.label.clone()).collect(),
        layers,
        tips: Vec::new(),
        shape: 0.62,
        zooms: None,
    };
    Some(Figure {
        name: "blocked",
        title: "What held the sender back",
        caption: "For which share of the time each gate of the send path was the one that was shut, all flows together. A \
            sender that waits for the congestion window or for pacing does as congestion control says; one that is held by \
            the small queue limit keeps its bytes out of the device's queue; one that waits for the device has filled it. \
            Shares too small to see have no entry in the legend."
            .to_owned(),
        keys,
        panels: vec![panel],
    })
}
