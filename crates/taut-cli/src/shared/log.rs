//! The log of the commands that serve, on standard error: `2026-11-28T22:08:01.123Z INFO serving`, or JSON.
//!
//! Called by every command. Lines are plain until [`LogArgs::start`], which only commands that serve call.
//! A guest or a stranger causes at most [`BURST`] lines of a kind at once and then one a second; the rest is
//! counted. After [`serve`], a thread of its own writes, from a queue that drops and counts: nothing else
//! waits for a slow or full standard error.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use crate::shared::clock::{self, Stopwatch};
use crate::shared::date;
use crate::shared::exit::program;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// Errors, as text.
    None,
}

/// The log of a command that serves.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Operation")]
pub(crate) struct LogArgs {
    /// Log format: text, json or none
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    log: LogFormat,
    /// Log errors only, as --log none
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

/// Lines of one kind at once.
const BURST: u32 = 10;
/// The kind of the flows that have ended, which a log of decisions has: more lines at once, and a second.
pub(crate) const FLOW: &str = "flow";
const FLOWS: (u32, u64) = (1_000, 100);
/// Kinds whose lines are limited: there are fewer.
const KINDS: usize = 64;
/// Lines that wait for the thread that writes.
const QUEUE: usize = 256;
/// How long the end of the command waits for a slow standard error.
const LAST: Duration = Duration::from_millis(500);
const SECOND: Duration = Duration::from_secs(1);

/// Lines of each kind: how many may be written, since when, and how many were not.
type Kinds = BTreeMap<String, Bucket>;

#[derive(Debug)]
struct Bucket {
    left: u32,
    filled: Duration,
    held_back: u64,
}

static LIMITED: Mutex<Kinds> = Mutex::new(BTreeMap::new());
static SINCE: OnceLock<Stopwatch> = OnceLock::new();
static WRITER: OnceLock<SyncSender<Line>> = OnceLock::new();
/// Lines for which the queue had no room.
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Line {
    Text(String),
    /// All before it is written.
    Flush(SyncSender<()>),
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();
/// Whether a line was written.
static WRITTEN: AtomicBool = AtomicBool::new(false);

impl LogArgs {
    /// Whether lines will be JSON.
    pub(crate) fn will_be_json(self) -> bool {
        !self.quiet && self.log == LogFormat::Json
    }

    /// From now on this process logs in this format.
    pub(crate) fn start(self) {
        _ = FORMAT.set(if self.quiet { LogFormat::None } else { self.log });
    }
}

/// Whether lines are JSON.
pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// Starts the thread that writes from now on. Call it when the process has its rights, and no thread yet.
pub(crate) fn serve() {
    let (sender, receiver) = sync_channel(QUEUE);
    let writer = std::thread::Builder::new().name("taut-log".to_owned()).spawn(move || write_all(&receiver));
    // Without a thread, lines are written as before.
    if writer.is_ok() {
        _ = WRITER.set(sender);
    }
}

/// Waits until what was logged is written, but not for long: call it before the process ends.
pub(crate) fn finish() {
    let Some(writer) = WRITER.get() else { return };
    let (done, is_done) = sync_channel(1);
    if writer.try_send(Line::Flush(done)).is_ok() {
        _ = is_done.recv_timeout(LAST);
    }
}

/// Ends this process, whose log is written before.
pub(crate) fn exit(code: i32) -> ! {
    finish();
    std::process::exit(code)
}

/// Writes what comes. Once a second it reports what was held back.
fn write_all(lines: &Receiver<Line>) {
    loop {
        match lines.recv_timeout(SECOND) {
            Ok(Line::Text(text)) => put(&text),
            Ok(Line::Flush(done)) => {
                report_counts(true);
                _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => report_counts(false),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let dropped = DROPPED.swap(0, Relaxed);
        if dropped > 0 {
            let text = format!("{dropped} lines were left out: standard error is slow");
            put(&formatted(Level::Warn, "log-slow", &text, Map::new()));
        }
    }
}

/// A line for each kind of which some were held back: at the end, or if its second is over.
fn report_counts(is_last: bool) {
    let now = SINCE.get_or_init(Stopwatch::start).elapsed();
    let held: Vec<(String, u64)> = {
        let mut kinds = LIMITED.lock().unwrap_or_else(PoisonError::into_inner);
        let due = |bucket: &Bucket| bucket.held_back > 0 && (is_last || now >= bucket.filled + SECOND);
        let due = kinds.iter_mut().filter(|(_, bucket)| due(bucket));
        due.map(|(kind, bucket)| (kind.clone(), std::mem::take(&mut bucket.held_back))).collect()
    };
    for (kind, count) in held {
        put(&more(&kind, count));
    }
}

/// The line about those that were held back.
fn more(kind: &str, count: u64) -> String {
    let fields = Map::from_iter([("kind".to_owned(), kind.into()), ("count".to_owned(), count.into())]);
    formatted(Level::Info, "more", &format!("{count} more lines of the kind {kind}"), fields)
}

/// Whether a line of this kind may be written now, and how many were held back before it.
fn admitted(kinds: &mut Kinds, kind: &str, now: Duration) -> Option<u64> {
    let (burst, per_second) = if kind == FLOW { FLOWS } else { (BURST, 1) };
    if !kinds.contains_key(kind) {
        if kinds.len() >= KINDS {
            return None;
        }
        kinds.insert(kind.to_owned(), Bucket { left: burst, filled: now, held_back: 0 });
    }
    let bucket = kinds.get_mut(kind)?;
    let seconds = now.saturating_sub(bucket.filled).as_secs();
    if seconds > 0 {
        let more = u32::try_from(seconds.saturating_mul(per_second)).unwrap_or(burst);
        bucket.left = more.saturating_add(bucket.left).min(burst);
        bucket.filled = now;
    }
    if bucket.left == 0 {
        bucket.held_back += 1;
        return None;
    }
    bucket.left -= 1;
    Some(std::mem::take(&mut bucket.held_back))
}

/// Whether `--quiet` leaves a line out.
fn is_silent(level: Level) -> bool {
    level != Level::Error && FORMAT.get() == Some(&LogFormat::None)
}

/// Logs an event that a guest or a client causes, with fields for JSON. Of a kind, that is of one `name`,
/// there are [`BURST`] lines, and then one a second; the others are counted.
pub(crate) fn event(level: Level, name: &str, text: &str, fields: Map<String, Value>) {
    if is_silent(level) {
        return;
    }
    let now = SINCE.get_or_init(Stopwatch::start).elapsed();
    let admitted = admitted(&mut LIMITED.lock().unwrap_or_else(PoisonError::into_inner), name, now);
    let Some(held_back) = admitted else { return };
    if held_back > 0 {
        pass(more(name, held_back));
    }
    write(level, name, text, fields);
}

/// Logs a line for the operator: the address at which the command serves, or a missing permission.
pub(crate) fn notice(level: Level, name: &str, text: &str) {
    if is_silent(level) {
        return;
    }
    write(level, name, text, Map::new());
}

/// Prints the error that ends the command: as a line of its log, if the log has begun.
pub(crate) fn last(error: &anyhow::Error) {
    let text = format!("{error:#}");
    match FORMAT.get() {
        Some(LogFormat::Json) => notice(Level::Error, "failed", &text),
        Some(_) if WRITTEN.load(Relaxed) => notice(Level::Error, "failed", &text),
        _ => put(&format!("{}: {text}\n", program())),
    }
    finish();
}

fn write(level: Level, name: &str, text: &str, fields: Map<String, Value>) {
    WRITTEN.store(true, Relaxed);
    pass(formatted(level, name, text, fields));
}

fn formatted(level: Level, name: &str, text: &str, fields: Map<String, Value>) -> String {
    match FORMAT.get() {
        None => format!("{}: {text}\n", program()),
        Some(format) => line(*format, level, name, text, fields, clock::wall()),
    }
}

/// To the thread that writes, if there is one.
fn pass(text: String) {
    match WRITER.get() {
        None => put(&text),
        Some(writer) if writer.try_send(Line::Text(text)).is_ok() => {}
        Some(_) => _ = DROPPED.fetch_add(1, Relaxed),
    }
}

/// Whole, so that lines of several threads are not mixed. A log that cannot be written ends no service.
fn put(text: &str) {
    _ = std::io::stderr().write_all(text.as_bytes());
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
    fn conf_20_ten_lines_of_a_kind_and_then_one_a_second() {
        let (mut kinds, ms) = (Kinds::new(), Duration::from_millis);
        let mut written = |kind: &str, from: u64, to: u64| {
            (from..to).filter_map(|at| admitted(&mut kinds, kind, ms(at))).collect::<Vec<_>>()
        };
        // A line each millisecond for ten seconds.
        let flood = written("denied", 0, 10_000);
        assert_eq!(flood.len(), 10 + 9);
        let (before, after) = flood.split_at(10);
        assert!(before.iter().all(|held| *held == 0));
        // Those that were held back are counted by the next one: 999 of each second, and 989 of the first.
        assert_eq!(after.iter().sum::<u64>(), 9_000 - 10 - 9 + 1);
        // Flows of a log of decisions have more.
        assert_eq!(written(FLOW, 0, 3_000).len(), 1_000 + 2 * 100);
        // Another kind has its own.
        assert_eq!(written("left", 10_000, 10_005), [0; 5]);
        // After a minute of silence there are ten again.
        assert_eq!(written("denied", 70_000, 70_100).len(), 10);
        // No more kinds than are known.
        let mut kinds = Kinds::new();
        for kind in 0..200 {
            _ = admitted(&mut kinds, &kind.to_string(), ms(0));
        }
        assert_eq!(kinds.len(), KINDS);
    }

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
