//! The copy of the sources that has every edit in it. The sources themselves are never touched.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::edit::{self, Edit};
use crate::find;

/// The folders of the core whose edits are tried.
pub const FOLDERS: [&str; 5] = ["egress", "recovery", "congestion", "ingress", "conn"];
/// What the core's tests need: the crate, what it imports, and a document that a test reads.
const COPIED: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", "clippy.toml", "docs", "crates/taut-core", "crates/taut-wire"];
const CORE: &str = "crates/taut-core/src";

pub struct Tree {
    /// The repository.
    source: PathBuf,
    /// The copy.
    pub copy: PathBuf,
}

/// A file of the copy, and where in it each edit is.
pub type Places = BTreeMap<String, Vec<(usize, Range<usize>)>>;

impl Tree {
    pub fn new(source: &Path, copy: &Path) -> Tree {
        Tree { source: source.into(), copy: copy.into() }
    }

    /// All edits of the five folders, file by file.
    pub fn edits(&self) -> Result<Vec<Edit>> {
        let root = self.source.join(CORE);
        let mut edits = Vec::new();
        for file in find::modules(&root)? {
            let name = file.strip_prefix(&root)?.to_str().context("a file's name is not UTF-8")?;
            if FOLDERS
                .iter()
                .any(|folder| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
            {
                edits.extend(find::edits(name, &fs::read_to_string(&file)?)?);
            }
        }
        Ok(edits)
    }

    /// A fingerprint of everything that a result depends on: sources and tests.
    pub fn version(&self) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        for name in self.files()? {
            name.hash(&mut hasher);
            fs::read(self.source.join(&name))?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Writes the copy with these edits. A file that says what it said keeps its time, so that cargo leaves it alone.
    pub fn write(&self, edits: &BTreeMap<usize, &Edit>) -> Result<Places> {
        let files = self.files()?;
        let mut places = Places::new();
        for name in &files {
            let mut bytes = fs::read(self.source.join(name))?;
            if let Some(file) = name.strip_prefix(&format!("{CORE}/")) {
                let here: Vec<_> = edits
                    .iter()
                    .filter(|(_, edit)| edit.name.file == file)
                    .map(|(number, edit)| (*number, *edit))
                    .collect();
                if !here.is_empty() {
                    let (text, found) = edit::splice(&String::from_utf8(bytes)?, &here);
                    bytes = text.into_bytes();
                    places.insert(name.clone(), found);
                }
                if file == "lib.rs" {
                    bytes.extend(b"\nmod mutant;\n");
                }
            }
            write_if_new(&self.copy.join(name), &bytes)?;
        }
        let switch = format!("{CORE}/mutant.rs");
        write_if_new(&self.copy.join(&switch), include_bytes!("mutant.rs.txt"))?;
        for stale in list(&self.copy, "crates")? {
            if stale != switch && !files.contains(&stale) {
                fs::remove_file(self.copy.join(&stale))?;
            }
        }
        Ok(places)
    }

    fn files(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        for name in COPIED {
            files.extend(list(&self.source, name)?);
        }
        files.sort();
        Ok(files)
    }
}

/// The files at or below `name`, relative to `root`.
fn list(root: &Path, name: &str) -> Result<Vec<String>> {
    let path = root.join(name);
    if !path.is_dir() {
        return Ok(if path.exists() { vec![name.into()] } else { Vec::new() });
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
        let entry = entry?.file_name();
        let entry = entry.to_str().context("a file's name is not UTF-8")?;
        if entry != "proptest-regressions" {
            files.extend(list(root, &format!("{name}/{entry}"))?);
        }
    }
    Ok(files)
}

fn write_if_new(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a path without a folder")?)?;
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
