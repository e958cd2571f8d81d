//! What is known from earlier runs (`$MUTANTS_DIR/results`, a line for each edit), and the edits that are equivalent
//! (`mutants/equivalent*.txt`).
//!
//! An edit that was killed stays killed until `--fresh`. One that survived is tried again when sources or tests have changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run::Outcome;

pub struct Store {
    file: File,
    version: String,
    known: BTreeMap<String, Outcome>,
}

impl Store {
    pub fn open(path: &Path, version: &str) -> Result<Store> {
        let mut known = BTreeMap::new();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let fields: Vec<_> = line.split('\t').collect();
            let [name, of, how, by] = fields.as_slice() else { continue };
            let outcome = match *how {
                "killed" => Outcome::Killed((*by).into()),
                "ended" => Outcome::Ended((*by).into()),
                "survived" if *of == version => Outcome::Survived,
                "unreached" if *of == version => Outcome::Unreached,
                _ => continue,
            };
            known.insert((*name).to_string(), outcome);
        }
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Store { file, version: version.into(), known })
    }

    pub fn get(&self, name: &str) -> Option<&Outcome> {
        self.known.get(name)
    }

    pub fn put(&mut self, name: &str, outcome: Outcome) -> Result<()> {
        let (how, by) = match &outcome {
            Outcome::Killed(by) => ("killed", by.as_str()),
            Outcome::Ended(by) => ("ended", by.as_str()),
            Outcome::Survived => ("survived", ""),
            Outcome::Unreached => ("unreached", ""),
        };
        writeln!(self.file, "{name}\t{}\t{how}\t{by}", self.version)?;
        self.known.insert(name.into(), outcome);
        Ok(())
    }

    /// How often each program has noticed an edit of a folder.
    pub fn kills(&self, folder: &str, program: &str) -> u64 {
        let by_it = |outcome: &Outcome| match outcome {
            Outcome::Killed(by) => by.split("::").next() == Some(program),
            _ => false,
        };
        self.known.iter().filter(|(name, outcome)| name.starts_with(folder) && by_it(outcome)).count() as u64
    }
}

/// Names of equivalent edits, with the reason for each, from `equivalent.txt` and `equivalent-FOLDER.txt`.
pub fn equivalent(dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut reasons = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        if !file.starts_with("equivalent") || !file.ends_with(".txt") {
            continue;
        }
        for line in
            fs::read_to_string(&path)?.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let Some((name, reason)) = line.rsplit_once(" | ") else { bail!("{file}: no reason in: {line}") };
            if name.split(" | ").count() < 4 || reason.trim().is_empty() {
                bail!("{file}: expected file | function | change | text | reason: {line}");
            }
            reasons.insert(name.to_string(), reason.to_string());
        }
    }
    Ok(reasons)
}
