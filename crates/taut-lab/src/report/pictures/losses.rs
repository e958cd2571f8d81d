//! Time and sequence numbers around every loss, of every flow whose packets were kept.
//!
//! A run keeps the packets around up to 64 losses, however long it is (`sim/points.rs`). At most
//! [`PANELS_MAX`] of them are drawn, spread evenly over the run; the caption counts the others. Called by
//! `figures.rs`.

use super::sequence::{keys, panel, trace_of, y_axis};
use crate::data::LossWindow;
use crate::report::figures::{Figure, Shown};
use crate::report::scale::{Axis, Quantity};
use crate::report::svg::Panel;

/// Most panels, of all variants together: half a megabyte.
pub(super) const PANELS_MAX: usize = 48;

pub(super) fn figure(shown: &[Shown<'_>]) -> Option<Figure> {
    let lossy: Vec<&Shown<'_>> = shown.iter().filter(|one| !one.run.traced.windows.is_empty()).collect();
    let each = PANELS_MAX.checked_div(lossy.len())?;
    let mut panels: Vec<Panel> = Vec::new();
    for one in &lossy {
        let windows = &one.run.traced.windows;
        panels.extend(spread(windows.len(), each).into_iter().map(|at| around(one, &windows[at])));
    }
    let counts = lossy.iter().map(|one| {
        let traced = &one.run.traced;
        let drawn: u64 = spread(traced.windows.len(), each).iter().map(|at| traced.windows[*at].losses).sum();
        (traced.losses, drawn)
    });
    let (losses, drawn) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    let say = |count: u64| Quantity::Count.say(count as f64);
    let mut caption = format!(
        "A picture for each time at which a packet was dropped on the way or retransmitted, from a round trip before to \
         three after. SACK blocks show when the sender learns of it, and retransmissions when it acts. The pictures \
         contain {} of {} such packets of the first eight flows.",
        say(drawn),
        say(losses)
    );
    if drawn < losses {
        caption += " The pictures are spread evenly over the run.";
    }
    let columns = if panels.len() == 1 { 1 } else { 3 };
    Some(Figure {
        case: String::new(),
        name: "losses",
        title: "Around each loss",
        caption,
        keys: keys(lossy.iter().flat_map(|one| &one.run.packets).map(|point| point.kind)),
        panels,
        columns,
    })
}

/// At most `most` of the numbers below `count`, spread evenly, with the first and the last.
pub(super) fn spread(count: usize, most: usize) -> Vec<usize> {
    if count <= most || most < 2 {
        return (0..count.min(most)).collect();
    }
    (0..most).map(|at| at * (count - 1) / (most - 1)).collect()
}

fn around(shown: &Shown<'_>, window: &LossWindow) -> Panel {
    let points = trace_of(shown.run, window.flow);
    let x = Axis::spanning(Quantity::Time, "time", [window.from_s, window.to_s]);
    let y = y_axis(points.iter(), &x);
    let mut panel = panel(shown, &points, x, y, format!("at {}", Quantity::Time.say(window.t_s)), None);
    // The flow first: a long title is cut at its end.
    let name = shown.run.flows.iter().find(|flow| flow.id == window.flow).map(|flow| flow.name.as_str());
    if let Some(name) = name.filter(|_| shown.run.flows.len() > 1) {
        panel.title = format!("{name}, {}", shown.label);
    }
    panel
}
