//! `list`, and the lookup of scenarios by name or file. Called by `command.rs`, `run.rs` and `sweep.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use taut_core::congestion::Registry;

use super::output;
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
        return Ok(Document::parse(name, &builtin_file(name), text, changes, controllers)?);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok(Document::parse(&stem, &path.display().to_string(), &text, changes, controllers)?)
}
