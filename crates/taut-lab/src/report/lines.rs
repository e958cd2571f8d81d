//! Panels with a line for each flow.
//!
//! A panel with hundreds of lines is a grey area. So at most [`MOST`] flows have one: those whose goodput,
//! over the measured part of the run, is farthest from the mean of all. The others are a band from the least
//! to the greatest value among them. All panels of a case show the same flows, in the same colours. Called by
//! `goodput.rs`, `flows.rs`, `queues.rs` and `distributions.rs`.

use std::collections::BTreeMap;

use super::figures::Shown;
use super::picture::{Key, Swatch};
use super::scale::{Axis, Quantity};
use super::svg::{Layer, Panel, Shape, Tip};
use super::theme::Ink;
use super::thin::{SLICES, keep};

/// Most lines in a panel.
pub(super) const MOST: usize = 10;

/// Number of tooltips in a panel.
const TIPS: usize = 40;

/// A flow that has a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) flow: u32,
    pub(super) name: String,
    pub(super) ink: Ink,
}

/// The flows of a case that have lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) lines: Vec<Chosen>,
    /// Number of the others.
    pub(super) others: usize,
}

impl Choice {
    /// Chooses among the flows for which `has_values`.
    pub(super) fn of(shown: &[Shown<'_>], has_values: impl Fn(&Shown<'_>, u32) -> bool) -> Self {
        // By number: the name, and the greatest distance from the mean among the runs.
        let mut flows: BTreeMap<u32, (String, f64)> = BTreeMap::new();
        for one in shown {
            let own = &one.run.flows;
            let rates = || own.iter().map(|flow| flow.goodput_bps).filter(|bps| bps.is_finite());
            let mean = rates().sum::<f64>() / rates().count().max(1) as f64;
            for flow in own.iter().filter(|flow| has_values(one, flow.id)) {
                let far = (flow.goodput_bps - mean).abs() / mean;
                let far = if far.is_finite() { far } else { 0.0 };
                let name = || if flow.beside { format!("{} (beside)", flow.name) } else { flow.name.clone() };
                let known = flows.entry(flow.id).or_insert_with(|| (name(), far));
                known.1 = known.1.max(far);
            }
        }
        let mut chosen: Vec<(u32, String, f64)> =
            flows.into_iter().map(|(flow, (name, far))| (flow, name, far)).collect();
        let others = chosen.len().saturating_sub(MOST);
        // A stable sort: of flows that are equally far, the first.
        chosen.sort_by(|a, b| b.2.total_cmp(&a.2));
        chosen.truncate(MOST);
        chosen.sort_by_key(|(flow, ..)| *flow);
        let lines = chosen.into_iter().zip(Ink::LINES);
        let lines = lines.map(|((flow, name, _), ink)| Chosen { flow, name, ink }).collect();
        Self { lines, others }
    }

    /// The same flows in other colours than these, as far as there are others: for a picture whose legend has
    /// these colours for something else.
    pub(super) fn beside(mut self, taken: &[Ink]) -> Self {
        let (other, rest): (Vec<Ink>, Vec<Ink>) =
            Ink::LINES.into_iter().partition(|ink| !taken.contains(ink));
        let inks = other.into_iter().chain(rest);
        self.lines.iter_mut().zip(inks).for_each(|(chosen, ink)| chosen.ink = ink);
        self
    }

    /// The legend.
    pub(super) fn keys(&self) -> Vec<Key> {
        let key = |chosen: &Chosen| Key { name: chosen.name.clone(), ink: chosen.ink, swatch: Swatch::Line };
        let mut keys: Vec<Key> = self.lines.iter().map(key).collect();
        if self.others > 0 {
            keys.push(Key { name: self.band_name(), ink: Ink::PALE, swatch: Swatch::Box });
        }
        keys
    }

    fn band_name(&self) -> String {
        let count = Quantity::Count.say(self.others as f64);
        if self.others == 1 {
            "the other flow".to_owned()
        } else {
            format!("the other {count} flows, least to greatest")
        }
    }

    /// The end of a caption.
    pub(super) fn rule(&self) -> String {
        if self.others == 0 {
            return String::new();
        }
        let band = self.band_name();
        format!(
            " Lines: the {MOST} flows whose goodput over the measured part is farthest from the mean of all. The band: \
             {band}."
        )
    }
}

/// The values of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) times: Vec<f64>,
    /// A line for each flow of the choice; NaN where a value is unknown.
    pub(super) lines: Vec<Vec<f64>>,
    /// Least and greatest value of the other flows; empty without others.
    pub(super) band: [Vec<f64>; 2],
    /// Further lines of the tooltips, by their words.
    pub(super) sums: Vec<(String, Vec<f64>)>,
}

impl Values {
    /// Sorts the lines of all flows by the choice.
    pub(super) fn sorted(
        choice: &Choice,
        times: Vec<f64>,
        all: impl IntoIterator<Item = (u32, Vec<f64>)>,
    ) -> Self {
        let nothing = || vec![f64::NAN; times.len()];
        let mut lines = vec![nothing(); choice.lines.len()];
        let mut band = if choice.others > 0 { [nothing(), nothing()] } else { [Vec::new(), Vec::new()] };
        for (flow, values) in all {
            if let Some(at) = choice.lines.iter().position(|chosen| chosen.flow == flow) {
                lines[at] = values;
                continue;
            }
            let [least, greatest] = &mut band;
            for ((least, greatest), value) in least.iter_mut().zip(greatest).zip(values) {
                // `min` and `max` leave out what is no number.
                (*least, *greatest) = (least.min(value), greatest.max(value));
            }
        }
        Self { times, lines, band, sums: Vec::new() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = f64> + '_ {
        self.lines.iter().chain(&self.band).flatten().copied()
    }
}

/// A panel with the lines of a run, and whether some of its samples are not drawn.
pub(super) fn panel(
    shown: &Shown<'_>,
    choice: &Choice,
    values: &Values,
    (x, y): (&Axis, &Axis),
    note: String,
) -> (Panel, bool) {
    let columns: Vec<&[f64]> = values.lines.iter().chain(&values.band).map(Vec::as_slice).collect();
    let columns: Vec<&[f64]> = columns.into_iter().filter(|column| !column.is_empty()).collect();
    let kept = keep(&values.times, &columns, SLICES / columns.len().max(1));
    let mut layers = Vec::new();
    let [least, greatest] = &values.band;
    if !least.is_empty() {
        let band = kept.iter().map(|at| (values.times[*at], least[*at], greatest[*at])).collect();
        layers.push(Layer {
            name: choice.band_name(),
            shape: Shape::Band(band),
            ink: Ink::PALE,
            variant: None,
        });
    }
    for (chosen, line) in choice.lines.iter().zip(&values.lines) {
        let points: Vec<_> = kept.iter().map(|at| (values.times[*at], line[*at])).collect();
        if points.iter().any(|point| point.1.is_finite()) {
            let shape = Shape::Line { points, step: false, dashed: false };
            layers.push(Layer { name: chosen.name.clone(), shape, ink: chosen.ink, variant: None });
        }
    }
    let panel = Panel {
        title: shown.label.clone(),
        note,
        variant: Some(shown.index),
        x: x.clone(),
        y: y.clone(),
        rows: Vec::new(),
        layers,
        tips: tips(choice, values, x, y.quantity),
        shape: 0.62,
        zooms: Some("time"),
    };
    (panel, kept.len() < values.times.len())
}

/// The tooltip of each part of the time: the last values in it, a line for each flow.
fn tips(choice: &Choice, values: &Values, x: &Axis, quantity: Quantity) -> Vec<Tip> {
    let width = (x.high - x.low) / TIPS as f64;
    let part = |index: usize| {
        let (from, to) = (x.low + index as f64 * width, x.low + (index + 1) as f64 * width);
        // The last sample is at the end of the axis.
        let is_last = index + 1 == TIPS;
        let at =
            values.times.iter().rposition(|time| (from..to).contains(time) || (is_last && *time >= to))?;
        let mut text = format!("at {}", Quantity::Time.say(values.times[at]));
        let lines = choice.lines.iter().zip(&values.lines).map(|(chosen, line)| (&chosen.name, line));
        let sums = values.sums.iter().map(|(name, line)| (name, line));
        for (name, line) in lines.chain(sums).filter(|(_, line)| line[at].is_finite()) {
            text += &format!("\n{name} {}", quantity.say(line[at]));
        }
        let [least, greatest] = &values.band;
        if let (Some(least), Some(greatest)) = (least.get(at), greatest.get(at))
            && least.is_finite()
        {
            let (least, greatest) = (quantity.say(*least), quantity.say(*greatest));
            text += &format!("\nthe others {least} to {greatest}");
        }
        Some(Tip { from, to, text })
    };
    (0..TIPS).filter_map(part).collect()
}
