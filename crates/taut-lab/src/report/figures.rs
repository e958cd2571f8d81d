//! Which pictures there are, and of which runs.
//!
//! Ours. Each picture has a file; all take the same variants of a run set, and return `None` when none of them has what
//! it would show. Called by `html.rs` and by `taut plot`.

use super::svg::{Key, Panel, Picture};
use super::theme::Theme;
use super::{blocked, distributions, queues, sequence, window};
use crate::data::{Engine, RunData, RunSet};

/// Variants that pictures have room for; a sweep may have more.
pub(crate) const MOST_VARIANTS: usize = 8;

/// A run in the pictures.
#[derive(Clone, Debug)]
pub(crate) struct Shown<'a> {
    /// Its number among those shown.
    pub(crate) index: usize,
    /// Its variant, with who ran it if several did.
    pub(crate) label: String,
    /// What it left.
    pub(crate) run: &'a RunData,
}

/// The runs to draw: of each variant and engine the first, which has its series.
pub(crate) fn shown(set: &RunSet) -> Vec<Shown<'_>> {
    let mut runs: Vec<&RunData> = Vec::new();
    for run in &set.runs {
        let same =
            |other: &&RunData| other.meta.variant == run.meta.variant && other.meta.engine == run.meta.engine;
        if !runs.iter().any(same) {
            runs.push(run);
        }
    }
    runs.truncate(MOST_VARIANTS);
    let is_plain = runs.iter().all(|run| run.meta.engine == Engine::Sim);
    let label = |run: &RunData| match run.meta.engine {
        _ if is_plain => run.meta.variant.clone(),
        engine => format!("{}, {}", run.meta.variant, engine.label()),
    };
    runs.into_iter().enumerate().map(|(index, run)| Shown { index, label: label(run), run }).collect()
}

/// A picture: panels, what their colours are, and what to look at.
#[derive(Clone, Debug)]
pub struct Figure {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) caption: String,
    pub(crate) keys: Vec<Key>,
    pub(crate) panels: Vec<Panel>,
}

/// Names of all pictures, in the order in which a report shows them.
pub const NAMES: [&str; 7] = ["queues", "sequence", "window", "rtt", "latency", "bursts", "blocked"];

impl Figure {
    /// One of [`NAMES`].
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its heading.
    #[must_use]
    pub const fn title(&self) -> &'static str {
        self.title
    }

    /// What it shows, and what to look at.
    #[must_use]
    pub fn caption(&self) -> &str {
        &self.caption
    }

    /// Panels in a row.
    pub(crate) fn columns(&self) -> usize {
        self.panels.len().min(2)
    }

    /// The picture as an SVG file, 800 pixels wide.
    #[must_use]
    pub fn svg(&self, set: &RunSet, theme: Theme) -> String {
        Picture {
            title: self.title,
            source: &source(set),
            keys: &self.keys,
            panels: self.panels.iter().collect(),
            columns: self.columns(),
        }
        .svg(800.0, theme)
    }
}

/// What a picture by itself says of where it is from.
fn source(set: &RunSet) -> String {
    let mut text = set.scenario.clone();
    if let Some(run) = set.runs.first() {
        text += &format!(", seed {}", run.meta.seed);
        for (name, version) in &run.meta.versions {
            text += &format!(", {name} {version}");
        }
    }
    text
}

/// The pictures that a run set has the values for, in the order of [`NAMES`].
#[must_use]
pub fn figures(set: &RunSet) -> Vec<Figure> {
    let shown = shown(set);
    let all = [
        queues::figure(&shown),
        sequence::figure(&shown),
        window::figure(&shown),
        distributions::rtt(&shown),
        distributions::latency(&shown),
        distributions::bursts(&shown),
        blocked::figure(&shown),
    ];
    all.into_iter().flatten().collect()
}

/// Panels, given by kind and then by variant, in the order in which two in a row are read: two variants side by side, each
/// kind below the other, or else the kinds of a variant side by side.
pub(crate) fn arranged(kinds: Vec<Vec<Panel>>) -> Vec<Panel> {
    let variants = kinds.iter().map(Vec::len).max().unwrap_or(0);
    if variants == 2 || kinds.len() != 2 {
        return kinds.into_iter().flatten().collect();
    }
    let mut kinds: Vec<_> = kinds.into_iter().map(Vec::into_iter).collect();
    let mut panels = Vec::new();
    for _ in 0..variants {
        panels.extend(kinds.iter_mut().filter_map(Iterator::next));
    }
    panels
}

/// The end of a caption when not every sample is drawn.
pub(crate) const THINNED: &str = " Long series are thinned: of each slice of time the least and the largest samples of each \
     series are drawn as they were measured.";

/// The time axis of all runs together.
pub(crate) fn time_axis<'a>(times: impl IntoIterator<Item = &'a [f64]>) -> super::scale::Axis {
    let all = times.into_iter().flat_map(|times| [times.first(), times.last()]).flatten().copied();
    super::scale::Axis::spanning(super::scale::Quantity::Time, "time", all.chain([0.0]))
}
