//! Sweeps: a scenario with every combination of changes. Called by the command and by the Python package,
//! which run the points in their own ways.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::data::{Cell, Engine, RunSet};
use crate::output::table;
use crate::scenario::{Change, Document, LoadError, keys};
use crate::stats;

/// A grid, as in its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Grid {
    /// The scenario: a name, or a file relative to the grid's.
    pub scenario: String,
    /// Only these variants of it; all if empty.
    #[serde(default)]
    pub variants: Vec<String>,
    /// Metrics of the table; the scenario's own if empty.
    #[serde(default)]
    pub measure: Vec<String>,
    /// Runs of each point.
    pub seeds: Option<u32>,
    /// Live runs of each point; `seeds` if not given.
    pub live_seeds: Option<u32>,
    /// Points that are run at the same time; 1 if not given.
    pub points_at_once: Option<u16>,
    /// Live runs of a point whose first ones are [not clear](worth_repeating).
    pub live_repeats: Option<u32>,
    /// Each case of the scenario is a point of its own, so that several can run at once and a sweep can
    /// resume after any of them.
    #[serde(default)]
    pub each_case: bool,
    /// The table shows the median of the runs, with the least and the greatest, rather than one number.
    #[serde(default)]
    pub spread: bool,
    /// The axes: a list of steps for each, each step a change as on the command line or several made
    /// together.
    pub axes: Vec<Vec<Step>>,
    /// Where each change of a step is, by its text: file and line.
    #[serde(skip)]
    places: BTreeMap<String, String>,
}

/// A step along an axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Step {
    /// `link.rate=1gbit`.
    One(String),
    /// Several changes made together.
    Several(Vec<String>),
}

impl Step {
    fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

/// A point of a grid.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its label in tables.
    pub label: String,
    /// The case, where each is a point; otherwise empty, for all of them.
    pub case: String,
    /// The changes that it makes.
    pub changes: Vec<Change>,
}

impl Point {
    /// A name that no other point has.
    #[must_use]
    pub fn key(&self) -> String {
        if self.case.is_empty() { self.label.clone() } else { format!("{}: {}", self.case, self.label) }
    }
}

/// Most points that a grid may have.
const POINTS_MAX: usize = 10_000;

impl Grid {
    /// Reads a grid's file.
    ///
    /// # Errors
    /// As [`Document::parse`](crate::scenario::Document::parse).
    pub fn parse(file: &str, text: &str) -> Result<Self, LoadError> {
        let wrong = |line: Option<usize>, why: String| {
            let place = line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"));
            LoadError { place, key: String::new(), why }
        };
        let line = |at: usize| text.get(..at).map(|before| before.matches('\n').count() + 1);
        let mut grid: Self = toml::from_str(text).map_err(|error| {
            let why = error.message().trim_end();
            let hint = keys::near_listed(why).map_or_else(String::new, |hint| format!("; {hint}"));
            wrong(error.span().and_then(|span| line(span.start)), format!("{why}{hint}"))
        })?;
        let mut found = Vec::new();
        if let Ok(root) = DeTable::parse(text)
            && let Some(axes) = root.get_ref().get("axes")
        {
            texts_of(axes, &mut found);
        }
        for (text, at) in found {
            let place = line(at).map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"));
            grid.places.entry(text).or_insert(place);
        }
        let points = grid.axes.iter().try_fold(1_usize, |points, axis| points.checked_mul(axis.len()));
        match points {
            Some(1..=POINTS_MAX) => Ok(grid),
            Some(0) => Err(wrong(None, "axes: an axis has no steps".into())),
            _ => Err(wrong(None, format!("axes: more than {POINTS_MAX} points"))),
        }
    }

    /// Every combination of steps; the last axis changes first.
    ///
    /// # Errors
    /// When a step is not a valid change.
    pub fn points(&self) -> Result<Vec<Point>, LoadError> {
        let mut points = vec![Point { label: String::new(), case: String::new(), changes: Vec::new() }];
        for axis in &self.axes {
            let mut next = Vec::new();
            for point in &points {
                for step in axis {
                    let mut more = point.clone();
                    for text in step.texts() {
                        more.changes.push(self.change(text)?);
                        let gap = if more.label.is_empty() { "" } else { " " };
                        // Writing to a string does not fail.
                        let _ = write!(more.label, "{gap}{text}");
                    }
                    next.push(more);
                }
            }
            points = next;
        }
        Ok(points)
    }

    /// The change of a step.
    fn change(&self, text: &str) -> Result<Change, LoadError> {
        let by = self
            .places
            .get(text)
            .map_or_else(|| format!("axes: {text}"), |place| format!("{place}: axes: {text}"));
        match Change::parse(text) {
            Ok(change) => Ok(Change { by, ..change }),
            Err(error) => Err(LoadError { place: by, ..error }),
        }
    }

    /// Every point with its scenario, which `open` reads with the changes that it is given: first
    /// `changes`, such as those of a command line, then the point's. `file` is the grid's name in messages;
    /// with `case`, only that one.
    ///
    /// # Errors
    /// Those of `open`; when a step is no valid change, or a variant or a case is not there.
    pub fn documents<E: From<LoadError>>(
        &self,
        file: &str,
        changes: &[Change],
        case: Option<&str>,
        open: impl Fn(&[Change]) -> Result<Document, E>,
    ) -> Result<Vec<(Point, Document)>, E> {
        let mut points = Vec::new();
        for point in self.points()? {
            let mut all = changes.to_vec();
            all.extend(point.changes.iter().cloned());
            if !self.measure.is_empty() {
                all.push(Change::list("measure", &self.measure, &format!("{file}: measure")));
            }
            let mut document = open(&all)?;
            if let Some(case) = case {
                document = document.only_case(case)?;
            }
            self.check_variants(file, &document)?;
            let cases = document.cases()?;
            if !self.each_case || cases.is_empty() {
                points.push((point, document));
                continue;
            }
            for case in cases {
                points.push((Point { case: case.clone(), ..point.clone() }, document.only_case(&case)?));
            }
        }
        Ok(points)
    }

    fn check_variants(&self, file: &str, document: &Document) -> Result<(), LoadError> {
        let variations = document.variations()?;
        let mut names: Vec<&str> = variations.iter().map(|variation| variation.variant.as_str()).collect();
        names.dedup();
        let Some(wrong) = self.variants.iter().find(|name| !names.contains(&name.as_str())) else {
            return Ok(());
        };
        let why = format!("{} has no variant {wrong}; there are {}", document.name, names.join(", "));
        Err(LoadError { place: file.to_owned(), key: "variants".to_owned(), why })
    }
}

/// Whether one live run of taut and one of the kernel leave open how the two compare: the goodputs differ by
/// more than 5 %, or chance has a part in them, since they lie between 5 and 85 % of the link's rate. Below 2
/// % of the link a comparison says nothing.
#[must_use]
pub fn worth_repeating(set: &RunSet, link_mbps: f64) -> bool {
    let goodput = |engine, variant: &str| {
        let runs = set.runs.iter().filter(|run| run.meta.engine == engine && run.meta.variant == variant);
        let of_all: Vec<f64> = runs.filter_map(|run| run.metrics.get("goodput").copied()).collect();
        (!of_all.is_empty()).then(|| of_all.iter().sum::<f64>() / of_all.len() as f64)
    };
    set.table.columns.iter().filter(|column| column.engine == Engine::Live).any(|column| {
        let of = |engine| goodput(engine, &column.variant);
        let (Some(taut), Some(kernel)) = (of(Engine::Live), of(Engine::Linux)) else { return false };
        let share = |goodput: f64| goodput / link_mbps;
        let is_chance = |goodput| (0.05..=0.85).contains(&share(goodput));
        share(taut).max(share(kernel)) >= 0.02
            && (!(0.95..=1.05).contains(&(taut / kernel)) || is_chance(taut) || is_chance(kernel))
    })
}

/// The results, with a line for each point, case and variant.
#[derive(Clone, Debug, Default)]
pub struct Results {
    with_spread: bool,
    heading: Vec<String>,
    lines: Vec<Vec<String>>,
    csv: String,
}

impl Results {
    /// No results yet; with the spread of several runs, or without.
    #[must_use]
    pub fn new(with_spread: bool) -> Self {
        Self { with_spread, ..Self::default() }
    }

    /// Adds the results of a point.
    pub fn add(&mut self, point: &Point, set: &RunSet) {
        let table = &set.table;
        let mut metrics: Vec<&str> = Vec::new();
        for row in &table.rows {
            if !metrics.contains(&row.metric.as_str()) {
                metrics.push(&row.metric);
            }
        }
        if self.heading.is_empty() {
            self.heading = ["point", "case", "variant", "sender"].map(str::to_owned).to_vec();
            self.csv = "point,case,variant,engine,runs".to_owned();
            for metric in &metrics {
                let unit = table.rows.iter().find(|row| row.metric == *metric).map_or("", |row| &row.unit);
                let unit =
                    if unit.is_empty() { String::new() } else { format!(" {}", unit.replace("us", "µs")) };
                self.heading.push(format!("{metric}{unit}"));
                let _ = write!(self.csv, ",{metric},{metric}_ci95,{metric}_median");
            }
            self.csv.push('\n');
        }
        let mut cases: Vec<&str> = table.rows.iter().map(|row| row.case.as_str()).collect();
        cases.dedup();
        for case in cases {
            for (index, column) in table.columns.iter().enumerate() {
                let engine = column.engine.label();
                let mut line =
                    vec![point.label.clone(), case.to_owned(), column.variant.clone(), engine.to_owned()];
                let texts = [&point.label, case, &column.variant, engine].map(table::field);
                let _ = write!(self.csv, "{},{}", texts.join(","), column.runs);
                for metric in &metrics {
                    let row = table.rows.iter().find(|row| row.case == case && row.metric == *metric);
                    let cell = row.and_then(|row| row.cells.get(index)).and_then(Option::as_ref);
                    let median = cell.and_then(|cell| stats::median(&cell.values));
                    let spread =
                        cell.filter(|cell| self.with_spread && cell.values.len() > 1).and_then(spread);
                    // One live run in five may be another world's: a median is not moved by it.
                    let shown = cell.map(|cell| match column.engine {
                        Engine::Sim => cell.mean,
                        Engine::Live | Engine::Linux => median.unwrap_or(cell.mean),
                    });
                    let shown = spread.or_else(|| shown.map(table::number));
                    line.push(shown.unwrap_or_else(|| "–".to_owned()));
                    let mean = cell.map_or_else(String::new, |cell| cell.mean.to_string());
                    let ci95 =
                        cell.and_then(|cell| cell.ci95).map_or_else(String::new, |width| width.to_string());
                    let median = median.map_or_else(String::new, |median| median.to_string());
                    let _ = write!(self.csv, ",{mean},{ci95},{median}");
                }
                self.csv.push('\n');
                self.lines.push(line);
            }
        }
    }

    /// The table as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut rows = vec![self.heading.clone()];
        rows.extend(self.lines.iter().cloned());
        // Leave out the column of cases when it is empty.
        if rows.iter().skip(1).all(|row| row.get(1).is_none_or(String::is_empty)) {
            rows.iter_mut().filter(|row| row.len() > 1).for_each(|row| drop(row.remove(1)));
        }
        table::plain(&rows)
    }

    /// The table as CSV.
    #[must_use]
    pub fn csv(&self) -> &str {
        &self.csv
    }
}

/// The median of several runs, with the least and the greatest.
fn spread(cell: &Cell) -> Option<String> {
    let median = table::number(stats::median(&cell.values)?);
    let least = cell.values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = cell.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(if least < most {
        format!("{median} ({}–{})", table::number(least), table::number(most))
    } else {
        median
    })
}

/// Every text in a list of lists, and where it begins.
fn texts_of(value: &Spanned<DeValue<'_>>, into: &mut Vec<(String, usize)>) {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().for_each(|value| texts_of(value, into)),
        DeValue::String(text) => into.push((text.to_string(), value.span().start)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, RunData, Table};

    #[test]
    fn every_combination_once() {
        let text = "scenario = \"x\"\naxes = [[\"a=1\", \"a=2\"], [[\"b=1\", \"c=1\"], \"b=2\"]]\n";
        let points = Grid::parse("g.toml", text).unwrap().points().unwrap();
        let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(labels, ["a=1 b=1 c=1", "a=1 b=2", "a=2 b=1 c=1", "a=2 b=2"]);
        assert_eq!(points[0].changes.len(), 3);
    }

    #[test]
    fn a_spread_is_the_median_and_both_ends() {
        let of = |values: &[f64]| spread(&stats::cell(values).unwrap()).unwrap();
        assert_eq!(of(&[30.0, 10.5, 20.0]), "20.00 (10.50–30.00)");
        assert_eq!(of(&[3.0, 3.0]), "3.000");
    }

    #[test]
    fn unclear_comparisons_are_worth_repeating() {
        let set = |taut: f64, kernel: f64| {
            let run = |engine, goodput| {
                let mut run = RunData::default();
                (run.meta.engine, run.meta.variant) = (engine, "bulk".into());
                run.metrics.insert("goodput".into(), goodput);
                run
            };
            let column = |engine| Column { variant: "bulk".into(), engine, ..Column::default() };
            RunSet {
                table: Table { columns: vec![column(Engine::Live), column(Engine::Linux)], rows: Vec::new() },
                runs: vec![run(Engine::Live, taut), run(Engine::Linux, kernel)],
                ..RunSet::default()
            }
        };
        // Of a link of 100 Mbit/s: equal and near its rate; 6 % less; equal, but limited by chance; next to
        // nothing.
        for (taut, kernel, again) in [
            (94.0, 94.0, false),
            (88.3, 94.0, true),
            (40.0, 40.0, true),
            (3.0, 3.0, false),
            (1.9, 0.5, false),
            (3.0, 0.5, true),
        ] {
            assert_eq!(worth_repeating(&set(taut, kernel), 100.0), again, "{taut} beside {kernel}");
        }
        let alone = RunSet { runs: set(1.0, 90.0).runs.split_off(1), ..set(1.0, 90.0) };
        assert!(!worth_repeating(&alone, 100.0), "nothing to compare with");
    }

    #[test]
    fn mistakes_have_lines() {
        let error = |text: &str| Grid::parse("g.toml", text).map(|_| ()).unwrap_err().to_string();
        assert!(error("scenario = \"x\"\naxis = []\n").starts_with("g.toml:2: unknown field `axis`"));
        assert!(error("scenario = \"x\"\naxes = [[]]\n").contains("no steps"));
    }

    #[test]
    fn lab_29_a_mistake_in_a_grid_has_a_line_and_the_nearest_key() {
        let error = |text: &str| Grid::parse("g.toml", text).map(|_| ()).unwrap_err().to_string();
        let said = error("scenario = \"x\"\nseedz = 2\naxes = [[\"a=1\"]]\n");
        assert!(
            said.starts_with("g.toml:2: unknown field `seedz`") && said.ends_with("; did you mean `seeds`?"),
            "{said}"
        );
        let text =
            "scenario = \"x\"\naxes = [\n  [\"a=1\", \"a=2\"],\n  [[\"b=1\", \"c=1\"],\n    'd=1'],\n]\n";
        let points = Grid::parse("g.toml", text).unwrap().points().unwrap();
        let by = |point: usize| points[point].changes.iter().map(|change| &*change.by).collect::<Vec<_>>();
        assert_eq!(by(0), ["g.toml:3: axes: a=1", "g.toml:4: axes: b=1", "g.toml:4: axes: c=1"]);
        assert_eq!(by(3), ["g.toml:3: axes: a=2", "g.toml:5: axes: d=1"]);
        let odd = Grid::parse("g.toml", &text.replace("c=1", "c")).unwrap().points().unwrap_err().to_string();
        assert_eq!(odd, "g.toml:4: axes: c: must be PATH=VALUE, such as link.rate=1gbit");
    }
}
