//! Standard output of every command. When its reader has gone, as in `taut get … | head`, the command ends
//! quietly.

use std::fmt;
use std::io::{self, Write as _};

use anyhow::Context as _;

/// The error of a command whose standard output has no reader any more; `main` turns it into exit code 0.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output has no reader")
    }
}

impl std::error::Error for ReaderGone {}

/// The result of a write to standard output, as an error of the command.
///
/// # Errors
/// [`ReaderGone`], or the reason.
pub(crate) fn written(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => other.context("cannot write to standard output"),
    }
}

/// Prints a text.
///
/// # Errors
/// Those of [`written`].
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints a value as JSON, on one line.
///
/// # Errors
/// Those of [`written`].
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    print(&text)
}
