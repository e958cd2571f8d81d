//! Sweeps: a scenario with every combination of changes. Called by the command.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::data::RunSet;
use crate::scenario::{Change, LoadError};
use crate::table;

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
    /// The axes: a list of steps for each, each step a change as on the command line or several made
    /// together.
    pub axes: Vec<Vec<Step>>,
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
    /// The changes that it makes.
    pub changes: Vec<Change>,
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
        let grid: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            wrong(before.map(|before| before.matches('\n').count() + 1), error.message().to_owned())
        })?;
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
        let mut points = vec![Point { label: String::new(), changes: Vec::new() }];
        for axis in &self.axes {
            let mut next = Vec::new();
            for point in &points {
                for step in axis {
                    let mut more = point.clone();
                    for text in step.texts() {
                        more.changes.push(Change { by: format!("axes: {text}"), ..Change::parse(text)? });
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
}

/// The results, with a line for each point, case and variant.
#[derive(Clone, Debug, Default)]
pub struct Results {
    heading: Vec<String>,
    lines: Vec<Vec<String>>,
    csv: String,
}

impl Results {
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
                let _ = write!(self.csv, ",{metric},{metric}_ci95");
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
                    line.push(cell.map_or_else(|| "–".to_owned(), |cell| table::number(cell.mean)));
                    let mean = cell.map_or_else(String::new, |cell| cell.mean.to_string());
                    let ci95 =
                        cell.and_then(|cell| cell.ci95).map_or_else(String::new, |width| width.to_string());
                    let _ = write!(self.csv, ",{mean},{ci95}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_once() {
        let text = "scenario = \"x\"\naxes = [[\"a=1\", \"a=2\"], [[\"b=1\", \"c=1\"], \"b=2\"]]\n";
        let points = Grid::parse("g.toml", text).unwrap().points().unwrap();
        let labels: Vec<&str> = points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(labels, ["a=1 b=1 c=1", "a=1 b=2", "a=2 b=1 c=1", "a=2 b=2"]);
        assert_eq!(points[0].changes.len(), 3);
    }

    #[test]
    fn mistakes_have_lines() {
        let error = |text: &str| Grid::parse("g.toml", text).map(|_| ()).unwrap_err().to_string();
        assert!(error("scenario = \"x\"\naxis = []\n").starts_with("g.toml:2: unknown field `axis`"));
        assert!(error("scenario = \"x\"\naxes = [[]]\n").contains("no steps"));
    }
}
