//! Time and sequence numbers: payload sent, retransmitted and acknowledged, and the receiver's window, as a
//! packet trace would show them.
//!
//! After the graphs of Shepard's xplot and of tcptrace: data as vertical strokes, ACKs and the window as
//! steps below and above them. Shows one flow: the whole run, with the ACKs of the other
//! flows behind it, and an excerpt of an interesting part. Called by `list.rs`, and by `losses.rs` for
//! excerpts of every flow.

use std::collections::BTreeSet;

use crate::data::{Flow, PacketPoint, PointKind, RunData, Traced};
use crate::report::figures::{Figure, Shown, arranged, time_axis};
use crate::report::picture::{Key, Swatch};
use crate::report::scale::{Axis, Quantity, range};
use crate::report::svg::{Layer, Panel, Shape};
use crate::report::theme::Ink;
use crate::report::thin::{SLICES, keep};

/// Strokes closer together than this part of a panel are drawn as one: less than a pixel.
const GRAIN: f64 = 1.0 / 1_200.0;

/// Excerpts show about so many round trips.
const ROUND_TRIPS: f64 = 4.0;

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let traces: Vec<_> = shown.iter().map(|shown| (shown, trace(shown.run))).collect();
    let times: Vec<Vec<f64>> =
        traces.iter().map(|(_, points)| points.iter().map(|point| point.t_s).collect()).collect();
    if times.iter().all(Vec::is_empty) {
        return None;
    }
    let x = time_axis(times.iter().map(Vec::as_slice));
    let acks: Vec<PacketPoint> = shown
        .iter()
        .flat_map(|one| one.run.packets.iter().filter(|point| point.kind == PointKind::Ack))
        .copied()
        .collect();
    let y = y_axis(traces.iter().flat_map(|(_, points)| points).chain(&acks), &x);
    let whole = |(shown, points): &(&Shown<'_>, Vec<PacketPoint>)| {
        let mut panel = panel(shown, points, x.clone(), y.clone(), String::new(), Some("time"));
        if let Some(first) = points.first() {
            panel.layers.splice(0..0, others(shown.run, first.flow));
        }
        panel
    };
    let mut kinds = vec![traces.iter().map(whole).collect::<Vec<_>>()];
    if let Some(width) = excerpt_width(shown, &x) {
        kinds.push(traces.iter().map(|(shown, points)| excerpt(shown, points, &x, width)).collect());
    }
    let (panels, columns) = arranged(kinds);
    let mut caption = "Each stroke is payload at the sender's NIC: when it was sent, and its position in the stream. The \
        slope is the rate; the horizontal distance to the line of ACKs is the round-trip time; the vertical distance is \
        the data in flight. Vertical columns are bursts. Data that runs along the receiver's window is limited by it. \
        Strokes less than a pixel apart are drawn as one, so that none is lost."
        .to_owned();
    let left_out: u64 = shown.iter().filter_map(|shown| shown.run.left_out.get("packets")).sum();
    if left_out > 0 {
        caption += &format!(
            " The runs kept their first packets, and later those around losses; {} others are not shown.",
            Quantity::Count.say(left_out as f64)
        );
    }
    let mut keys = keys(traces.iter().flat_map(|(_, points)| points).map(|point| point.kind));
    let has_others = traces
        .iter()
        .any(|(one, points)| points.first().is_some_and(|first| !others(one.run, first.flow).is_empty()));
    if has_others {
        let name = "acknowledged, the other flows".to_owned();
        keys.push(Key { name, ink: Ink::PALE, swatch: Swatch::Line });
    }
    Some(Figure {
        case: String::new(),
        name: "sequence",
        title: "Time and sequence",
        caption,
        keys,
        panels,
        columns,
    })
}

/// The legend of these kinds of points.
pub(super) fn keys(present: impl Iterator<Item = PointKind>) -> Vec<Key> {
    let present: BTreeSet<PointKind> = present.collect();
    let keys = [
        (PointKind::Window, "end of the receiver's window", Ink::GREY, Swatch::Line),
        (PointKind::Data, "sent", Ink::BLUE, Swatch::Box),
        (PointKind::Retransmit, "retransmitted", Ink::VERMILLION, Swatch::Box),
        (PointKind::Drop, "dropped on the way", Ink::WINE, Swatch::Dot),
        (PointKind::Sack, "SACK: received out of order", Ink::PINK, Swatch::Box),
        (PointKind::Ack, "acknowledged", Ink::GREEN, Swatch::Line),
    ];
    let keys = keys.into_iter().filter(|(kind, ..)| present.contains(kind));
    keys.map(|(_, name, ink, swatch)| Key { name: name.to_owned(), ink, swatch }).collect()
}

/// The points of the first flow that has any, in order of time.
fn trace(run: &RunData) -> Vec<PacketPoint> {
    let flow = run.packets.iter().map(|point| point.flow).min();
    flow.map_or_else(Vec::new, |flow| trace_of(run, flow))
}

/// The points of a flow, in order of time.
pub(super) fn trace_of(run: &RunData, flow: u32) -> Vec<PacketPoint> {
    let points = run.packets.iter().filter(|point| point.flow == flow && point.t_s.is_finite());
    let mut points: Vec<_> = points.copied().collect();
    points.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
    points
}

/// An axis over the payload that was sent and acknowledged between the ends of `x`. A window that ends far
/// above it is cut off.
pub(super) fn y_axis<'a>(points: impl Iterator<Item = &'a PacketPoint>, x: &Axis) -> Axis {
    let points = points.filter(|point| (x.low..=x.high).contains(&point.t_s));
    let (mut values, mut windows) = (Vec::new(), Vec::new());
    for point in points {
        match point.kind {
            PointKind::Window => windows.push(point.seq as f64),
            _ => values.extend([point.seq as f64, point.seq as f64 + f64::from(point.len)]),
        }
    }
    let (low, high) = range(values).unwrap_or((0.0, 0.0));
    let window = range(windows).map(|(_, highest)| highest);
    let high =
        window.filter(|window| *window <= low + (high - low) * 1.4).map_or(high, |window| window.max(high));
    let air = (high - low) * 0.03;
    Axis::spanning(Quantity::Bytes, "position in the stream", [(low - air).max(0.0), high + air])
}

/// The length of excerpts, the same for all variants so that slopes can be compared: a few round trips, by
/// the geometric mean of the runs'. `None` if that is not much shorter than the whole run.
fn excerpt_width(shown: &[Shown<'_>], whole: &Axis) -> Option<f64> {
    let round_trip =
        |shown: &Shown<'_>| shown.run.flows.iter().find_map(|flow| flow.srtt_s.or(flow.min_rtt_s));
    let logs: Vec<f64> =
        shown.iter().filter_map(round_trip).filter(|time| *time > 0.0).map(libm::log).collect();
    if logs.is_empty() {
        return None;
    }
    let mean = libm::exp(logs.iter().sum::<f64>() / logs.len() as f64);
    let long = whole.high - whole.low;
    let width = (ROUND_TRIPS * mean).max(long / 100.0);
    (width < long / 1.8).then_some(width)
}

/// The excerpt of a run: it starts shortly before the first lost payload, or at the beginning if none was
/// lost.
fn excerpt(shown: &Shown<'_>, points: &[PacketPoint], whole: &Axis, width: f64) -> Panel {
    let is_loss = |point: &&PacketPoint| {
        matches!(point.kind, PointKind::Retransmit | PointKind::Sack | PointKind::Drop)
    };
    let loss = points.iter().find(is_loss).map(|point| point.t_s);
    let (from, note) = match loss {
        Some(loss) => (loss - width / 4.0, "around the first loss"),
        None => (points.first().map_or(0.0, |point| point.t_s), "the beginning"),
    };
    let low = from.max(whole.low);
    let x = Axis { low, high: low + width, ..whole.clone() };
    let y = y_axis(points.iter(), &x);
    panel(shown, points, x, y, note.to_owned(), None)
}

pub(super) fn panel(
    shown: &Shown<'_>,
    points: &[PacketPoint],
    x: Axis,
    y: Axis,
    note: String,
    zooms: Option<&'static str>,
) -> Panel {
    let width = x.high - x.low;
    let flow = points.first().map(|point| point.flow);
    // Lines continue beyond both sides.
    let near = |point: &&PacketPoint| (x.low - width / 4.0..=x.high + width / 4.0).contains(&point.t_s);
    let near: Vec<_> = points.iter().filter(near).collect();
    let of = |kind: PointKind| near.iter().filter(move |point| point.kind == kind).map(|point| **point);
    let strokes = |kind: PointKind, bold: bool| Shape::Strokes {
        strokes: joined(of(kind), width * GRAIN, (y.high - y.low) * GRAIN),
        bold,
    };
    let steps = |kind: PointKind| steps(shown.run, flow, of(kind));
    let drops = of(PointKind::Drop).map(|point| (point.t_s, point.seq as f64 + f64::from(point.len) / 2.0));
    let layers = [
        ("end of the receiver's window", steps(PointKind::Window), Ink::GREY),
        ("acknowledged", steps(PointKind::Ack), Ink::GREEN),
        ("sent", strokes(PointKind::Data, false), Ink::BLUE),
        ("SACK: received out of order", strokes(PointKind::Sack, false), Ink::PINK),
        ("dropped on the way", Shape::Dots(drops.collect()), Ink::WINE),
        ("retransmitted", strokes(PointKind::Retransmit, true), Ink::VERMILLION),
    ];
    let layers = layers.map(|(name, shape, ink)| Layer { name: name.to_owned(), shape, ink, variant: None });
    Panel {
        title: shown.label.clone(),
        note,
        variant: Some(shown.index),
        x,
        y,
        rows: Vec::new(),
        layers: layers.into(),
        tips: Vec::new(),
        shape: 0.78,
        zooms,
    }
}

/// A line through points of a flow, interrupted where packets were not kept.
fn steps(run: &RunData, flow: Option<u32>, points: impl Iterator<Item = PacketPoint>) -> Shape {
    let (times, values): (Vec<_>, Vec<_>) = points.map(|point| (point.t_s, point.seq as f64)).unzip();
    let kept = keep(&times, &[&values], SLICES);
    let mut points: Vec<(f64, f64)> = Vec::new();
    for at in kept {
        let time = times[at];
        // What was not kept is not known: no line leads over it.
        if let Some(last) = points.last().filter(|last| has_gap(&run.traced, flow, last.0, time)) {
            points.push((last.0, f64::NAN));
        }
        points.push((time, values[at]));
    }
    Shape::Line { points, step: true, dashed: false }
}

/// What was acknowledged of the flows beside the one that is shown.
fn others(run: &RunData, shown: u32) -> Vec<Layer> {
    let others = run.flows.iter().filter(|flow| flow.id != shown);
    let line = |flow: &Flow| {
        let acks: Vec<PacketPoint> = acks_of(run, flow.id).collect();
        let name = format!("acknowledged, {}", flow.name);
        let shape = steps(run, Some(flow.id), acks.iter().copied());
        (!acks.is_empty()).then_some(Layer { name, shape, ink: Ink::PALE, variant: None })
    };
    others.filter_map(line).collect()
}

fn acks_of(run: &RunData, flow: u32) -> impl Iterator<Item = PacketPoint> {
    let points = trace_of(run, flow).into_iter();
    points.filter(|point| point.kind == PointKind::Ack)
}

/// Whether packets between two times may not have been kept.
fn has_gap(traced: &Traced, flow: Option<u32>, from_s: f64, to_s: f64) -> bool {
    let Some(whole_until_s) = traced.whole_until_s else { return false };
    // The end of what is known without a gap from `from_s` on.
    let mut known_s = from_s.max(whole_until_s);
    for window in traced.windows.iter().filter(|window| Some(window.flow) == flow) {
        if window.from_s <= known_s {
            known_s = known_s.max(window.to_s);
        }
    }
    known_s < to_s
}

/// Strokes for points, where indistinguishable ones are joined: those in the same grain of time that touch or
/// are less than a grain of the stream apart.
fn joined(
    points: impl Iterator<Item = PacketPoint>,
    time_grain: f64,
    seq_grain: f64,
) -> Vec<(f64, f64, f64)> {
    let grain_of = |time: f64| if time_grain > 0.0 { (time / time_grain).floor() as i64 } else { 0 };
    let mut strokes: Vec<(f64, f64, f64)> =
        points.map(|point| (point.t_s, point.seq as f64, point.seq as f64 + f64::from(point.len))).collect();
    strokes.sort_by(|a, b| grain_of(a.0).cmp(&grain_of(b.0)).then(a.1.total_cmp(&b.1)));
    let mut joined: Vec<(f64, f64, f64)> = Vec::new();
    for stroke in strokes {
        match joined.last_mut() {
            Some(last) if grain_of(last.0) == grain_of(stroke.0) && stroke.1 <= last.2 + seq_grain => {
                last.2 = last.2.max(stroke.2);
            }
            _ => joined.push(stroke),
        }
    }
    joined
}
