//! The log of the commands that serve, on standard error: `2026-11-28T22:08:01.123Z INFO serving …`, or JSON.
//!
//! Called by every command. Lines are plain until [`LogArgs::start`], which only commands that serve call.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::shared::exit::program;
use crate::shared::{clock, date};

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// The start and errors, as text.
    None,
}

/// The log of a command that serves.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Operation")]
pub(crate) struct LogArgs {
    /// Log format: text, json or none
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    log: LogFormat,
    /// Log the start and errors only, as --log none
    #[arg(long, short)]
    quiet: bool,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Events.
    Info,
    /// Limits of the service.
    Warn,
    /// The end of a part of it.
    Error,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();
/// Whether a line was written.
static WRITTEN: AtomicBool = AtomicBool::new(false);

impl LogArgs {
    /// From now on this process logs in this format.
    pub(crate) fn start(self) {
        _ = FORMAT.set(if self.quiet { LogFormat::None } else { self.log });
    }
}

/// Logs an event that a guest or a client causes, with fields for JSON. `--quiet` leaves it out.
pub(crate) fn event(level: Level, name: &str, text: &str, fields: Map<String, Value>) {
    if level == Level::Error || FORMAT.get() != Some(&LogFormat::None) {
        write(level, name, text, fields);
    }
}

/// Logs a line for the operator: the address at which the command serves, or a missing permission.
pub(crate) fn notice(level: Level, name: &str, text: &str) {
    write(level, name, text, Map::new());
}

/// Prints the error that ends the command: as a line of its log, if the log has begun.
pub(crate) fn last(error: &anyhow::Error) {
    let text = format!("{error:#}");
    match FORMAT.get() {
        Some(LogFormat::Json) => notice(Level::Error, "failed", &text),
        Some(_) if WRITTEN.load(Relaxed) => notice(Level::Error, "failed", &text),
        _ => eprintln!("{}: {text}", program()),
    }
}

fn write(level: Level, name: &str, text: &str, fields: Map<String, Value>) {
    WRITTEN.store(true, Relaxed);
    let line = match FORMAT.get() {
        None => format!("{}: {text}\n", program()),
        Some(format) => line(*format, level, name, text, fields, clock::wall()),
    };
    // Whole, so that lines of several threads are not mixed. A log that cannot be written ends no service.
    _ = std::io::stderr().write_all(line.as_bytes());
}

fn line(
    format: LogFormat,
    level: Level,
    name: &str,
    text: &str,
    fields: Map<String, Value>,
    at: f64,
) -> String {
    if format != LogFormat::Json {
        return format!("{} {} {text}\n", date::rfc3339_ms(at), level.name());
    }
    let mut object = fields;
    for (key, value) in [("event", name), ("level", level.name()), ("text", text)] {
        object.insert(key.to_owned(), value.into());
    }
    object.insert("time".to_owned(), at.into());
    format!("{}\n", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_time_and_a_level() {
        let fields = || Map::from_iter([("to".to_owned(), Value::from("192.0.2.1:25"))]);
        let of = |format| line(format, Level::Warn, "denied", "denied: tcp", fields(), 951_782_400.123_4);
        assert_eq!(of(LogFormat::Text), "2000-02-29T00:00:00.123Z WARN denied: tcp\n");
        assert_eq!(
            of(LogFormat::Json),
            "{\"event\":\"denied\",\"level\":\"WARN\",\"text\":\"denied: tcp\",\"time\":951782400.1234,\
             \"to\":\"192.0.2.1:25\"}\n"
        );
    }
}
