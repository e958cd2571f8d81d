//! One flow as its sender sees it over time: congestion window and bytes in flight, pacing and delivery rate.
//!
//! Shows the first flow, after each ACK where every ACK is known, and otherwise at the end of each interval.
//! Called by `list.rs`.

use crate::data::RunData;
use crate::report::figures::{Figure, Shown, THINNED, arranged, time_axis};
use crate::report::picture::{Key, Swatch};
use crate::report::scale::{Axis, Quantity};
use crate::report::svg::{Layer, Panel, Shape, Tip};
use crate::report::theme::Ink;
use crate::report::thin::{SLICES, keep};

/// The drawn values; NaN where a value is unknown.
#[derive(Default)]
struct View {
    times: Vec<f64>,
    cwnd: Vec<f64>,
    in_flight: Vec<f64>,
    ssthresh: Vec<f64>,
    peer_window: Vec<f64>,
    pacing: Vec<f64>,
    delivery: Vec<f64>,
}

/// A line of a panel: name, colour, whether it is dashed, and its values.
type Line<'a> = (&'static str, Ink, bool, &'a [f64]);

impl View {
    fn of(run: &RunData) -> Self {
        let mut view = Self::default();
        let flow = run.series.first().map(|series| series.flow).or(run.acks.first().map(|ack| ack.flow));
        let bytes = |bytes: Option<u64>| bytes.map_or(f64::NAN, |bytes| bytes as f64);
        let acks: Vec<_> = run.acks.iter().filter(|ack| Some(ack.flow) == flow).collect();
        // Both kinds of rows have these values under the same names.
        macro_rules! take {
            ($rows:expr) => {
                for row in $rows {
                    view.times.push(row.t_s);
                    view.cwnd.push(row.cwnd_bytes as f64);
                    view.in_flight.push(row.in_flight_bytes as f64);
                    view.ssthresh.push(bytes(row.ssthresh_bytes));
                    view.peer_window.push(row.peer_window_bytes as f64);
                    view.pacing.push(row.pacing_bps.unwrap_or(f64::NAN));
                    view.delivery.push(row.delivery_bps);
                }
            };
        }
        if !acks.is_empty() && run.left_out.get("acks").is_none_or(|count| *count == 0) {
            take!(acks);
        } else {
            take!(run.series.first().into_iter().flat_map(|series| &series.points));
        }
        view
    }

    fn windows(&self) -> [Line<'_>; 4] {
        [
            ("receiver's window", Ink::GREY, true, &self.peer_window),
            ("slow-start threshold", Ink::PINK, true, &self.ssthresh),
            ("congestion window", Ink::VERMILLION, false, &self.cwnd),
            ("in flight", Ink::BLUE, false, &self.in_flight),
        ]
    }

    fn rates(&self) -> [Line<'_>; 2] {
        [
            ("pacing rate", Ink::ORANGE, false, &self.pacing),
            ("delivery rate", Ink::GREEN, false, &self.delivery),
        ]
    }
}

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let views: Vec<_> = shown.iter().map(|shown| (shown, View::of(shown.run))).collect();
    if views.iter().all(|(_, view)| view.times.is_empty()) {
        return None;
    }
    let x = time_axis(views.iter().map(|(_, view)| view.times.as_slice()));
    let all =
        |values: fn(&View) -> &[f64]| views.iter().flat_map(move |(_, view)| values(view).iter().copied());
    let bytes = Axis::from_zero(
        Quantity::Bytes,
        "window and bytes in flight",
        all(|view| &view.cwnd).chain(all(|view| &view.in_flight)),
    );
    // Before the first round-trip samples, the pacing rate can be any multiple of the path's capacity.
    let delivered = all(|view| &view.delivery).filter(|rate| rate.is_finite()).fold(0.0, f64::max);
    let paced = all(|view| &view.pacing).filter(|rate| delivered <= 0.0 || *rate <= 2.5 * delivered);
    let rates = Axis::from_zero(Quantity::BitRate, "rate", all(|view| &view.delivery).chain(paced));
    let mut thinned = false;
    let mut panels = |lines: &dyn Fn(&View) -> Vec<Line<'_>>, y: &Axis| -> Vec<Panel> {
        let panel = |(shown, view): &(&Shown<'_>, View)| {
            let (panel, is_thinned) = panel(shown, view, &lines(view), &x, y);
            thinned |= is_thinned;
            panel
        };
        views.iter().map(panel).collect()
    };
    let kinds =
        vec![panels(&|view| view.windows().to_vec(), &bytes), panels(&|view| view.rates().to_vec(), &rates)];
    let (panels, columns) = arranged(kinds);
    let first = View::default();
    let lines = first.windows().into_iter().rev().chain(first.rates());
    let keys = lines.map(|(name, ink, dashed, _)| Key {
        name: name.to_owned(),
        ink,
        swatch: if dashed { Swatch::Dash } else { Swatch::Line },
    });
    let mut caption = "One flow as its sender sees it. Bytes in flight follow the congestion window where that is the \
        limit; they stay below it where something else is: the application, the receiver, a queue of the device, or \
        pacing. The sender measures the delivery rate from ACKs; when the window grows and the delivery rate does not, \
        the additional bytes wait in a queue. Values far above the others are cut off."
        .to_owned();
    if thinned {
        caption += THINNED;
    }
    Some(Figure {
        case: String::new(),
        name: "window",
        title: "Window and rate",
        caption,
        keys: keys.collect(),
        panels,
        columns,
    })
}

fn panel(shown: &Shown<'_>, view: &View, lines: &[Line<'_>], x: &Axis, y: &Axis) -> (Panel, bool) {
    let columns: Vec<&[f64]> = lines.iter().map(|(.., values)| *values).collect();
    let kept = keep(&view.times, &columns, SLICES);
    let layer = |(name, ink, dashed, values): &Line<'_>| {
        let points: Vec<_> = kept.iter().map(|at| (view.times[*at], values[*at])).collect();
        let known = points.iter().any(|point| point.1.is_finite());
        known.then(|| Layer {
            name: (*name).to_owned(),
            shape: Shape::Line { points, step: false, dashed: *dashed },
            ink: *ink,
            variant: None,
        })
    };
    let flow = shown.run.series.first().map(|series| series.flow);
    let flow = shown.run.flows.iter().find(|candidate| Some(candidate.id) == flow);
    let panel = Panel {
        title: shown.label.clone(),
        note: flow.filter(|_| shown.run.flows.len() > 1).map_or_else(String::new, |flow| flow.name.clone()),
        variant: Some(shown.index),
        x: x.clone(),
        y: y.clone(),
        rows: Vec::new(),
        layers: lines.iter().filter_map(layer).collect(),
        tips: tips(view, lines, x, y.quantity),
        shape: 0.62,
        zooms: Some("time"),
    };
    (panel, kept.len() < view.times.len())
}

/// Tooltips of the parts of the time: the last values in each.
fn tips(view: &View, lines: &[Line<'_>], x: &Axis, quantity: Quantity) -> Vec<Tip> {
    const PARTS: usize = 40;
    let width = (x.high - x.low) / PARTS as f64;
    let part = |index: usize| {
        let (from, to) = (x.low + index as f64 * width, x.low + (index + 1) as f64 * width);
        let at = view.times.iter().rposition(|time| (from..to).contains(time))?;
        let mut text = format!("at {}", Quantity::Time.say(view.times[at]));
        for (name, _, _, values) in lines.iter().rev().filter(|(.., values)| values[at].is_finite()) {
            text += &format!("\n{name} {}", quantity.say(values[at]));
        }
        Some(Tip { from, to, text })
    };
    (0..PARTS).filter_map(part).collect()
}
