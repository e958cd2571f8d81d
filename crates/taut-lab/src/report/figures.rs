//! What every picture is made of: the runs that it shows, panels, a legend, a caption.
//!
//! Called by the files of the pictures, and by `list.rs`.

use super::picture::{Key, Picture};
use super::svg::Panel;
use super::theme::Theme;
use crate::data::{Engine, RunData, RunSet};

/// Most variants in one picture; a sweep may have more.
pub(crate) const MOST_VARIANTS: usize = 8;

/// A run in the pictures.
#[derive(Clone, Debug)]
pub(crate) struct Shown<'a> {
    /// The number of its label among all labels; runs of different cases share labels.
    pub(crate) index: usize,
    /// Its variant, and its engine if several ran it.
    pub(crate) label: String,
    /// Its results.
    pub(crate) run: &'a RunData,
}

/// Runs that pictures show side by side.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    /// The case of the scenario; empty when there is only one.
    pub(crate) name: &'a str,
    /// A run of each variant.
    pub(crate) shown: Vec<Shown<'a>>,
}

/// The runs to draw, by case: the first run of each variant and engine, which has series.
pub(crate) fn cases(set: &RunSet) -> Vec<Case<'_>> {
    let is_plain = set.runs.iter().all(|run| run.meta.engine == Engine::Sim);
    let mut labels: Vec<String> = Vec::new();
    let mut cases: Vec<Case<'_>> = Vec::new();
    for run in &set.runs {
        let meta = &run.meta;
        let label = if is_plain {
            meta.variant.clone()
        } else {
            format!("{}, {}", meta.variant, meta.engine.label())
        };
        let index = labels.iter().position(|other| *other == label).unwrap_or_else(|| {
            labels.push(label.clone());
            labels.len() - 1
        });
        let at = cases.iter().position(|case| case.name == meta.case).unwrap_or_else(|| {
            cases.push(Case { name: &meta.case, shown: Vec::new() });
            cases.len() - 1
        });
        let shown = &mut cases[at].shown;
        if shown.len() < MOST_VARIANTS && !shown.iter().any(|other| other.index == index) {
            shown.push(Shown { index, label, run });
        }
    }
    cases
}

/// A picture: panels, a legend, and a caption that says what to look at.
#[derive(Clone, Debug)]
pub struct Figure {
    pub(crate) case: String,
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) caption: String,
    pub(crate) keys: Vec<Key>,
    /// Row by row.
    pub(crate) panels: Vec<Panel>,
    /// Panels in a row.
    pub(crate) columns: usize,
}

impl Figure {
    /// The case of the scenario; empty when there is only one.
    #[must_use]
    pub fn case(&self) -> &str {
        &self.case
    }

    /// One of [`NAMES`](super::NAMES).
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

    /// The picture as an SVG file, 800 pixels wide.
    #[must_use]
    pub fn svg(&self, set: &RunSet, theme: Theme) -> String {
        Picture {
            title: self.title,
            source: &source(set, &self.case),
            keys: &self.keys,
            panels: self.panels.iter().collect(),
            columns: self.columns,
        }
        .svg(800.0, theme)
    }
}

/// The source line of a picture: which run it shows.
fn source(set: &RunSet, case: &str) -> String {
    let mut text = set.scenario.clone();
    if !case.is_empty() {
        text += &format!(", {case}");
    }
    if let Some(run) = set.runs.iter().find(|run| run.meta.case == case) {
        text += &format!(", seed {}", run.meta.seed);
        for (name, version) in &run.meta.versions {
            text += &format!(", {name} {version}");
        }
    }
    text
}

/// Arranges panels, given by kind and then by variant, in reading order, and returns how many are in a row:
/// few variants side by side with each kind in a row below the other; many variants two in a row, or the
/// kinds of a variant side by side.
pub(crate) fn arranged(kinds: Vec<Vec<Panel>>) -> (Vec<Panel>, usize) {
    let variants = kinds.iter().map(Vec::len).max().unwrap_or(0);
    if (2..=3).contains(&variants) || kinds.len() != 2 {
        let columns = if variants <= 3 { variants } else { 2 };
        return (kinds.into_iter().flatten().collect(), columns);
    }
    let mut kinds: Vec<_> = kinds.into_iter().map(Vec::into_iter).collect();
    let mut panels = Vec::new();
    for _ in 0..variants {
        panels.extend(kinds.iter_mut().filter_map(Iterator::next));
    }
    (panels, 2)
}

/// The end of a caption when not every sample is drawn.
pub(crate) const THINNED: &str = " Long series are thinned: of each slice of time, the least and the largest measured samples \
     of each series are drawn.";

/// The time axis that covers all runs.
pub(crate) fn time_axis<'a>(times: impl IntoIterator<Item = &'a [f64]>) -> super::scale::Axis {
    let all = times.into_iter().flat_map(|times| [times.first(), times.last()]).flatten().copied();
    super::scale::Axis::spanning(super::scale::Quantity::Time, "time", all.chain([0.0]))
}
