//! Tables: published figures beside measured ones, as text and as CSV. Called by the command and by
//! `files.rs`.

use std::fmt::Write as _;

use crate::data::{Cell, Column, Engine, Row, RunData, RunSet, SCHEMA, Table};
use crate::metrics;
use crate::scenario::{Document, LoadError, Scenario};
use crate::stats;

/// Makes the run set of one scenario, with its table.
///
/// # Errors
/// As [`Document::variations`].
pub fn set(document: &Document, runs: Vec<RunData>) -> Result<RunSet, LoadError> {
    let base = document.base()?;
    Ok(RunSet {
        schema: SCHEMA,
        scenario: document.name.clone(),
        title: base.title.clone(),
        about: base.about.trim().to_owned(),
        source: base.source.clone(),
        table: table(document, &base, &runs)?,
        runs,
    })
}

fn table(document: &Document, base: &Scenario, runs: &[RunData]) -> Result<Table, LoadError> {
    let variations = document.variations()?;
    let (mut cases, mut columns): (Vec<&str>, Vec<Column>) = (Vec::new(), Vec::new());
    for variation in &variations {
        if !cases.contains(&variation.case.as_str()) {
            cases.push(&variation.case);
        }
        for engine in [Engine::Sim, Engine::Live, Engine::Linux] {
            let of = |run: &&RunData| run.meta.variant == variation.variant && run.meta.engine == engine;
            let in_case = |run: &&RunData| of(run) && run.meta.case == variation.case;
            let count = runs.iter().filter(in_case).count() as u32;
            let is_there = |column: &Column| column.variant == variation.variant && column.engine == engine;
            match columns.iter_mut().find(|column| is_there(column)) {
                Some(column) => column.runs = column.runs.max(count),
                None if runs.iter().any(|run| of(&run)) => {
                    columns.push(Column { variant: variation.variant.clone(), engine, runs: count });
                }
                None => {}
            }
        }
    }
    // Columns of one variant are adjacent, whatever engine ran them.
    let mut rows = Vec::new();
    for case in &cases {
        let own = base.cases.iter().find(|other| other.name == **case).map(|case| &case.published);
        for name in &base.measure {
            let Some(metric) = metrics::find(name) else { continue };
            let published = own.and_then(|own| own.get(name)).or_else(|| base.published.get(name));
            let cells = columns.iter().map(|column| {
                let of = runs.iter().filter(|run| {
                    run.meta.case == **case
                        && run.meta.variant == column.variant
                        && run.meta.engine == column.engine
                });
                let values: Vec<f64> = of.filter_map(|run| run.metrics.get(name).copied()).collect();
                stats::cell(&values)
            });
            rows.push(Row {
                case: (*case).to_owned(),
                metric: name.clone(),
                label: metric.label.clone(),
                unit: metric.unit.into(),
                published: published.cloned().unwrap_or_default(),
                cells: cells.collect(),
            });
        }
    }
    Ok(Table { columns, rows })
}

/// A number with its significant digits.
#[must_use]
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if value == 0.0 => "0".to_owned(),
        1_000.0.. => {
            let whole = format!("{:.0}", magnitude);
            let mut grouped = String::new();
            for (index, digit) in whole.chars().enumerate() {
                if index > 0 && (whole.len() - index).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            if value < 0.0 { format!("-{grouped}") } else { grouped }
        }
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        0.001.. => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// Whether all runs of a column have the same figures: then their seeds make no difference.
fn are_equal(set: &RunSet, case: &str, column: &Column) -> bool {
    let is_its = |run: &&RunData| {
        let meta = &run.meta;
        meta.case == case && meta.variant == column.variant && meta.engine == column.engine
    };
    let mut runs = set.runs.iter().filter(is_its);
    let Some(first) = runs.next() else { return false };
    runs.all(|run| run.metrics == first.metrics)
}

/// The width of a cell's interval; none where it is zero.
fn width(cell: &Cell) -> Option<f64> {
    cell.ci95.filter(|width| *width > 0.0 && *width >= cell.mean.abs() * 1e-9)
}

fn cell(cell: &Cell) -> String {
    match width(cell) {
        Some(width) => format!("{} ±{}", number(cell.mean), number(width)),
        None => number(cell.mean),
    }
}

/// Aligns the columns of lines; the first column to the left.
fn align(rows: &[Vec<String>], out: &mut String) {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|index| {
            rows.iter().filter_map(|row| row.get(index)).map(|text| text.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (index, (text, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - text.chars().count());
            if index == 0 {
                line.push_str(text);
                line.push_str(&pad);
            } else {
                line.push_str("  ");
                line.push_str(&pad);
                line.push_str(text);
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// The table as text.
#[must_use]
pub fn text(set: &RunSet) -> String {
    let mut out = format!("{}: {}\n", set.scenario, set.title);
    if let Some(source) = &set.source {
        // Writing to a string does not fail.
        let _ = writeln!(out, "published: {source}");
    }
    let Table { columns, rows } = &set.table;
    let mut cases: Vec<&str> = Vec::new();
    for row in rows {
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    let one_engine = columns.windows(2).all(|pair| pair[0].engine == pair[1].engine);
    for case in cases {
        let in_case: Vec<&Row> = rows.iter().filter(|row| row.case == case).collect();
        let mut published: Vec<&str> = Vec::new();
        for column in columns {
            let name = column.variant.as_str();
            if in_case.iter().any(|row| row.published.contains_key(name)) && !published.contains(&name) {
                published.push(name);
            }
        }
        let mut lines = Vec::new();
        let mut heads = [vec![case.to_owned()], vec![String::new()]];
        for name in &published {
            heads[0].push("published".into());
            heads[1].push((*name).to_owned());
        }
        for column in columns {
            let runs = match column.runs {
                0 | 1 => String::new(),
                runs if are_equal(set, case, column) => format!(" ({runs} equal runs)"),
                runs => format!(" ({runs} runs)"),
            };
            heads[0].push(format!("{}{runs}", column.engine.label()));
            heads[1].push(column.variant.clone());
        }
        lines.extend(heads);
        for row in in_case {
            let unit = if row.unit.is_empty() {
                String::new()
            } else {
                format!(", {}", row.unit.replace("us", "µs"))
            };
            let mut line = vec![format!("  {}{unit}", row.label)];
            line.extend(published.iter().map(|name| row.published.get(*name).cloned().unwrap_or_default()));
            line.extend(row.cells.iter().map(|value| value.as_ref().map_or_else(|| "–".to_owned(), cell)));
            lines.push(line);
        }
        out.push('\n');
        align(&lines, &mut out);
    }
    let has_interval = rows.iter().flat_map(|row| &row.cells).flatten().any(|value| width(value).is_some());
    if one_engine && has_interval {
        out.push_str("\n± is the 95 % confidence interval of the mean over seeds.\n");
    }
    out
}

/// Quotes a field of CSV (RFC 4180).
#[must_use]
pub fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The table as CSV: a line for each metric and column.
#[must_use]
pub fn csv(set: &RunSet) -> String {
    let mut out = String::from("scenario,case,metric,unit,variant,engine,published,mean,ci95,runs\n");
    for row in &set.table.rows {
        for (column, value) in set.table.columns.iter().zip(&row.cells) {
            let Some(value) = value else { continue };
            let published = row.published.get(&column.variant).map_or("", String::as_str);
            let ci95 = value.ci95.map_or_else(String::new, |width| width.to_string());
            let engine = column.engine.label();
            let texts =
                [&set.scenario, &row.case, &row.metric, &row.unit, &column.variant, engine, published];
            let _ =
                writeln!(out, "{},{},{ci95},{}", texts.map(field).join(","), value.mean, value.values.len());
        }
    }
    out
}

/// A heading and the lines below it, aligned.
#[must_use]
pub fn plain(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    align(rows, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_or_more_digits() {
        for (value, text) in [
            (0.0, "0"),
            (941.23, "941.2"),
            (9_999_999.4, "9,999,999"),
            (-1_234.0, "-1,234"),
            (12.345, "12.35"),
            (0.05, "0.050"),
            (0.000_05, "5.0e-5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        assert_eq!(field("1 Gbit/s, \"TSO\""), "\"1 Gbit/s, \"\"TSO\"\"\"");
        assert_eq!(field("plain"), "plain");
    }
}
