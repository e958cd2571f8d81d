//! `list`, `metrics`, and the lookup of scenarios by name or file. Called by `command.rs`, `run.rs` and
//! `sweep.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use taut_core::congestion::Registry;

use super::output;
use crate::metrics::{Metric, find, names};
use crate::scenario::{Change, Document, builtin};

/// Prints the names of the built-in scenarios.
pub(super) fn list(json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for (name, text) in builtin::ALL {
        let document = Document::parse(name, &builtin_file(name), text, &[], &Registry::default())?;
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
    Ok(output::print(&text)?)
}

/// Prints what can be measured.
pub(super) fn metrics(json: bool) -> anyhow::Result<()> {
    let all: Vec<_> = names().into_iter().filter_map(find).collect();
    if json {
        let of = |metric: &&Metric| serde_json::json!({ "name": metric.name, "unit": metric.unit, "label": metric.label });
        return output::print_json(&all.iter().map(of).collect::<Vec<_>>());
    }
    let name = all.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
    let unit = all.iter().map(|metric| metric.unit.chars().count()).max().unwrap_or(0);
    let line = |metric: &&Metric| format!("{:name$}  {:unit$}  {}\n", metric.name, metric.unit, metric.label);
    Ok(output::print(&all.iter().map(line).collect::<String>())?)
}

/// Where a built-in scenario is in the source tree.
fn builtin_file(name: &str) -> String {
    format!("crates/taut-lab/scenarios/{name}.toml")
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
        return Ok(Document::parse_with(name, &builtin_file(name), text, changes, controllers, &read)?);
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
