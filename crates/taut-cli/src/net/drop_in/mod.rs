//! `taut` in the place of pasta, passt and slirp4netns: by the name by which it is called, or as `taut pasta
//! …`. A table of each translates its options into those of `taut gateway`; one that is not in the table is
//! an error that names it. Called by `lib.rs`.

pub(crate) mod api;
pub(crate) mod manner;
mod passt;
mod pasta;
mod slirp4netns;
mod words;

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use manner::Manner;

use crate::shared::output;

/// A program whose place taut takes.
#[derive(Clone, Copy)]
enum Program {
    Pasta,
    Passt,
    Slirp4netns,
}

impl Program {
    /// The names of pasta's own files are `pasta` and `pasta.avx2`, as passt's.
    fn named(name: &str) -> Option<Self> {
        match name.split('.').next() {
            Some("pasta") => Some(Self::Pasta),
            Some("passt") => Some(Self::Passt),
            Some("slirp4netns") => Some(Self::Slirp4netns),
            _ => None,
        }
    }
}

/// The arguments of `taut gateway`, and how it begins and ends.
pub(crate) struct DropIn {
    /// From the program's name on.
    pub arguments: Vec<OsString>,
    pub manner: Manner,
}

/// The translation of a command line, if it is for another program; none, too, if it was for its help.
///
/// # Errors
/// The first word that has no equivalent.
pub(crate) fn find(given: &[OsString]) -> Option<anyhow::Result<Option<DropIn>>> {
    let (own, first) = (given.first()?, given.get(1));
    let own = Path::new(own).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (program, skipped) = match Program::named(own) {
        Some(program) => (program, 1),
        None => (Program::named(first?.to_str()?)?, 2),
    };
    Some(translated(program, &given[0], &given[skipped..]))
}

fn translated(program: Program, own: &OsString, args: &[OsString]) -> anyhow::Result<Option<DropIn>> {
    let args: Option<Vec<String>> = args.iter().map(|word| word.to_str().map(str::to_owned)).collect();
    let args = args.context("the arguments are not UTF-8")?;
    let asked = args.first().map(String::as_str);
    let text = match (program, asked) {
        (Program::Pasta, Some("-h" | "--help")) => Some(pasta::usage()),
        (Program::Passt, Some("-h" | "--help")) => Some(passt::usage()),
        (Program::Slirp4netns, Some("-h" | "--help")) => Some(slirp4netns::usage()),
        (Program::Pasta, Some("--version")) => Some(format!("pasta of taut {}\n", env!("CARGO_PKG_VERSION"))),
        (Program::Passt, Some("--version")) => Some(format!("passt of taut {}\n", env!("CARGO_PKG_VERSION"))),
        // Podman compares the version.
        (Program::Slirp4netns, Some("-v" | "--version")) => {
            Some(format!("slirp4netns version 1.2.0+taut.{}\n", env!("CARGO_PKG_VERSION")))
        }
        _ => None,
    };
    if let Some(text) = text {
        output::print(&text)?;
        return Ok(None);
    }
    let found = match program {
        Program::Pasta => pasta::read(&args)?,
        Program::Passt => passt::read(&args)?,
        Program::Slirp4netns => slirp4netns::read(&args)?,
    };
    let words =
        [own.clone(), "gateway".into()].into_iter().chain(found.words.into_iter().map(OsString::from));
    Ok(Some(DropIn { arguments: words.collect(), manner: found.manner }))
}
