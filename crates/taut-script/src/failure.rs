//! Why a script could not be read, or did not pass, and where. Made by the parser and by the runner; printed
//! by the command.

use std::fmt;

/// A failure of a script, with its place: `file:line: what`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The script's file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// What is wrong; for a packet also the expected and the actual one, in the script's notation.
    pub what: String,
    /// What the script's code printed before, and with `verbose` a line for each event.
    pub output: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl std::error::Error for Failure {}
