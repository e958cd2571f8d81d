//! Compiles the copy. Edits that are no Rust (a `Duration` times a `Duration`) are found by the compiler's errors, left out,
//! and remembered; the rest is one build for all edits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::edit::Edit;
use crate::tree::{Places, Tree};

/// More rounds than this means that an error is in none of the edits.
const MAX_ROUNDS: usize = 40;

pub struct Compiler<'a> {
    pub tree: &'a Tree,
    pub target: PathBuf,
}

/// Counts allocations, and the recorder of `run.rs` makes some.
const NOT_RUN: &str = "size";

/// A test program, `spec` or `lib`.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
}

impl Compiler<'_> {
    /// Takes those that do not compile out of `edits`, and returns their numbers.
    pub fn drop_what_does_not_compile(&self, edits: &mut BTreeMap<usize, &Edit>) -> Result<BTreeSet<usize>> {
        let mut dropped = BTreeSet::new();
        for round in 1..=MAX_ROUNDS {
            let places = self.tree.write(edits)?;
            let (messages, ok) = self.cargo(&["check", "--lib"])?;
            if ok {
                return Ok(dropped);
            }
            let leaves = |number: &usize| {
                edits
                    .get(number)
                    .is_some_and(|edit| matches!(&*edit.name.change, "drop return" | "drop continue"))
            };
            let wrong = blamed(&messages, &places, leaves);
            eprintln!("mutants: check {round}: {} edits do not compile", wrong.len());
            if wrong.is_empty() {
                bail!("the copy does not compile, and not because of an edit:\n{}", rendered(&messages));
            }
            edits.retain(|number, _| !wrong.contains(number));
            dropped.extend(wrong);
        }
        bail!("still edits that do not compile after {MAX_ROUNDS} rounds")
    }

    /// Builds the core's test programs.
    pub fn build(&self) -> Result<Vec<Program>> {
        let (messages, ok) = self.cargo(&["test", "--no-run", "--lib", "--tests"])?;
        if !ok {
            bail!("the tests do not compile:\n{}", rendered(&messages));
        }
        let mut programs = Vec::new();
        for message in messages.iter().filter(|message| message["reason"] == "compiler-artifact") {
            if message["profile"]["test"] == true
                && let Some(path) = message["executable"].as_str()
            {
                let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
                let name = message["target"]["name"].as_str().unwrap_or_default();
                if name == NOT_RUN {
                    continue;
                }
                programs.push(Program {
                    name: if kind == "test" { name } else { "lib" }.into(),
                    path: path.into(),
                });
            }
        }
        programs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(programs)
    }

    fn cargo(&self, arguments: &[&str]) -> Result<(Vec<Value>, bool)> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let output = Command::new(cargo)
            .args(arguments)
            .args(["-p", "taut-core", "--features", "steps", "--message-format", "json"])
            .current_dir(&self.tree.copy)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "--cap-lints allow")
            // Nobody debugs these programs, and they are built whole: a third of the time.
            .envs([
                ("CARGO_PROFILE_TEST_DEBUG", "0"),
                ("CARGO_PROFILE_DEV_DEBUG", "0"),
                ("CARGO_INCREMENTAL", "0"),
            ])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok((
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            output.status.success(),
        ))
    }
}

/// The innermost edits at the places of the errors.
fn blamed(messages: &[Value], places: &Places, leaves: impl Fn(&usize) -> bool) -> BTreeSet<usize> {
    let mut wrong = BTreeSet::new();
    // A value that is moved, then used: the move was followed by a `return` that is dropped now.
    let leave_before = |places: &[(usize, Range<usize>)], error: Range<usize>| {
        let before = places.iter().filter(|(number, place)| place.end <= error.start && leaves(number));
        before.max_by_key(|(_, place)| place.end).map(|(number, _)| *number)
    };
    for message in messages.iter().filter(|message| message["reason"] == "compiler-message") {
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Where the error is; if no edit is there, what it has to do with; else what is within: a block whose last
        // statement must leave the function.
        let looks: [(bool, Look<'_>); 4] =
            [(true, &innermost), (false, &innermost), (true, &last_within), (true, &leave_before)];
        for (primary, look) in looks {
            let spans = spans.iter().filter(|span| span["is_primary"] == primary);
            let found: Vec<_> = spans.filter_map(|span| edit_at(span, places, look)).collect();
            if !found.is_empty() {
                wrong.extend(found);
                break;
            }
        }
    }
    wrong
}

type Look<'a> = &'a dyn Fn(&[(usize, Range<usize>)], Range<usize>) -> Option<usize>;

fn innermost(places: &[(usize, Range<usize>)], error: Range<usize>) -> Option<usize> {
    let covering = places.iter().filter(|(_, place)| place.start <= error.start && error.end <= place.end);
    covering.min_by_key(|(_, place)| place.len()).map(|(number, _)| *number)
}

fn last_within(places: &[(usize, Range<usize>)], error: Range<usize>) -> Option<usize> {
    let within = places.iter().filter(|(_, place)| error.start <= place.start && place.end <= error.end);
    within.max_by_key(|(_, place)| place.end).map(|(number, _)| *number)
}

fn edit_at(span: &Value, places: &Places, look: Look<'_>) -> Option<usize> {
    let file = span["file_name"].as_str()?;
    let error = span["byte_start"].as_u64()? as usize..span["byte_end"].as_u64()? as usize;
    let (_, places) = places.iter().find(|(name, _)| Path::new(file).ends_with(name))?;
    look(places, error)
}

fn rendered(messages: &[Value]) -> String {
    let texts = messages.iter().filter_map(|message| message["message"]["rendered"].as_str());
    texts.take(5).collect::<Vec<_>>().join("\n")
}
