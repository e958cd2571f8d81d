//! `list`, `metrics`, and the lookup of scenarios by name or file. Called by `mod.rs`, `run.rs` and
//! `sweep.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use taut_core::congestion::Registry;

use crate::shared::output;
use taut_lab::columns::{self, Column};
use taut_lab::metrics::{find, names};
use taut_lab::scenario::{Change, Document, builtin};

/// Prints the names of the built-in scenarios.
pub(super) fn list(json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for (name, text) in builtin::ALL {
        let document = Document::parse(name, &builtin::place(name), text, &[], &Registry::default())?;
        let base = document.base()?;
        let takes = base.takes.clone().unwrap_or_default();
        let variants: Vec<&str> = base.variants.iter().map(|variant| variant.name.as_str()).collect();
        objects.push(serde_json::json!({
            "name": name, "title": base.title, "takes": takes, "live": base.live,
            "published": base.source, "variants": variants,
        }));
        rows.push(vec![name.to_owned(), takes, base.title]);
    }
    if json {
        return output::print_json(&objects);
    }
    let name = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    let takes = rows.iter().map(|row| row[1].len()).max().unwrap_or(0);
    let text: String =
        rows.iter().map(|row| format!("{:name$}  {:takes$}  {}\n", row[0], row[1], row[2])).collect();
    output::print(&text)
}

/// Prints what can be measured: metrics, distributions, and the columns of a run's tables.
pub(super) fn metrics(json: bool) -> anyhow::Result<()> {
    let all = measured();
    if json {
        let of = |(part, column): &(&str, Column)| serde_json::json!({ "in": part, "name": column.name, "unit": column.unit, "label": column.label });
        return output::print_json(&all.iter().map(of).collect::<Vec<_>>());
    }
    output::print(&listed(&all))
}

/// All that is measured, with the part of the results where it is.
fn measured() -> Vec<(&'static str, Column)> {
    let metrics = names().into_iter().filter_map(find).map(|metric| {
        let (name, unit, label) = (metric.name.clone(), metric.unit_in_words(), metric.label.clone());
        ("metrics", Column { name, unit, label })
    });
    let distributions = columns::distributions().into_iter().map(|column| ("distributions", column));
    let tables = columns::tables();
    let columns =
        tables.into_iter().flat_map(|(file, columns)| columns.into_iter().map(move |column| (file, column)));
    metrics.chain(distributions).chain(columns).collect()
}

/// A line for each, below a heading for each part.
fn listed(all: &[(&str, Column)]) -> String {
    let name = all.iter().map(|(_, column)| column.name.len()).max().unwrap_or(0);
    let unit = all.iter().map(|(_, column)| column.unit.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    let mut before = "";
    for (part, column) in all {
        if *part != before {
            let gap = if before.is_empty() { "" } else { "\n" };
            let words = match *part {
                "metrics" => "a value for each run; a scenario's `measure`",
                "distributions" => "in a run's meta.json",
                "goodput.csv" | "fairness.csv" => "of every flow; a row for each interval",
                "intervals.csv" => "of the first eight flows; a row for each interval",
                "acks.csv" => "of the same flows; a row for each ACK",
                _ => "of the same flows; a row for each packet",
            };
            text += &format!("{gap}{part}: {words}\n");
            before = part;
        }
        text += &format!("  {:name$}  {:unit$}  {}\n", column.name, column.unit, column.label);
    }
    text
}

/// Opens a scenario by its name or its file.
pub(super) fn open(
    name: &str,
    relative_to: Option<&Path>,
    changes: &[Change],
    controllers: &Registry,
) -> anyhow::Result<Document> {
    let path = relative_to.map_or_else(|| PathBuf::from(name), |parent| parent.join(name));
    let is_file = name.ends_with(".toml") || name.contains('/');
    if !is_file {
        let Some(text) = builtin::find(name) else {
            let names: Vec<&str> = builtin::ALL.iter().map(|(name, _)| *name).collect();
            bail!(
                "no scenario is called {name}; there are {}, or give a file that ends in .toml",
                names.join(", ")
            );
        };
        let read = |file: &str| read_beside(None, file);
        return Ok(Document::parse_with(name, &builtin::place(name), text, changes, controllers, &read)?);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let read = |file: &str| read_beside(path.parent(), file);
    Ok(Document::parse_with(&stem, &path.display().to_string(), &text, changes, controllers, &read)?)
}

/// Reads a file that a scenario names, relative to the scenario's.
fn read_beside(directory: Option<&Path>, file: &str) -> Result<Vec<u8>, String> {
    let path = directory.map_or_else(|| PathBuf::from(file), |directory| directory.join(file));
    fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of every metric a line with its unit and words, and of every column of the files.
    #[test]
    fn lab_25_everything_that_is_measured_is_described_with_its_unit() {
        let text = listed(&measured());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let described = |name: &str| {
            let of_name = lines.iter().filter(|words| words.first() == Some(&name));
            of_name.filter(|words| words.len() >= 3).count()
        };
        for name in names() {
            assert!(described(name) >= 1, "{name}");
        }
        // The files of a run have the same names: `lab_25` of tests/run.rs compares them.
        for (file, columns) in columns::tables() {
            assert!(text.contains(&format!("\n{file}: ")), "{file}");
            for column in columns {
                assert!(described(&column.name) >= 1, "{file}: {}", column.name);
            }
        }
        let unit = |name: &str| find(name).unwrap().unit_in_words();
        for (name, expected) in [
            ("goodput", "Mbit/s"),
            ("share_of_3", "%"),
            ("fairness", "0 to 1"),
            ("fairness_of_7", "0 to 1"),
            ("retransmits", "count"),
            ("transactions", "1/s"),
            ("packets_per_mb", "1/MB"),
            ("writes_per_packet", "ratio"),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }
}
