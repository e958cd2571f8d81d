//! Standard output of the commands that print a text and exit: `ss`, `nstat`, `sysctl`, `explain`.

use std::io::{self, Write as _};

/// Prints a text. A reader that closes the pipe early, as in `taut ss | head`, causes no error.
///
/// # Errors
/// Those of standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
        }),
    }
}

/// Prints a value as JSON, on one line.
///
/// # Errors
/// Those of standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(value)?;
    text.push('\n');
    Ok(print(&text)?)
}
