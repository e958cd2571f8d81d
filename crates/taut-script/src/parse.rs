//! The parser: a recursive descent over the characters of a script, because the notation has no single set of
//! tokens (`.` is a flag, a decimal point, and `...` an argument or a span of time).
//!
//! | file | reads |
//! |---|---|
//! | `scan.rs` | spaces, comments, numbers, names |
//! | `packet.rs` | what follows `<` and `>` |
//! | `call.rs` | system calls and their arguments |
//!
//! The language is that of packetdrill's published reference; docs/reference/packets.md has the table of what
//! is taken.

mod call;
mod packet;
mod scan;
#[cfg(test)]
mod tests;

use taut_core::Duration;

use crate::script::{Event, Script, What, When};
use scan::Scan;

/// A line, and what is wrong there.
pub(crate) type Wrong = (u32, String);

pub(crate) fn script(file: &str, text: &str) -> Result<Script, Wrong> {
    let mut scan = Scan::new(text);
    let mut options = Vec::new();
    let mut events: Vec<Event> = Vec::new();
    loop {
        scan.skip();
        if scan.is_at_end() {
            return Ok(Script { file: file.to_owned(), options, events });
        }
        let line = scan.line();
        if scan.sees("--") {
            if !events.is_empty() {
                return Err((line, "an option belongs at the top, before the first event".into()));
            }
            options.push(option(&mut scan)?);
            continue;
        }
        let (when, end) = time(&mut scan)?;
        events.push(event(&mut scan, line, when, end)?);
    }
}

fn option(scan: &mut Scan<'_>) -> Result<(u32, String, String), Wrong> {
    let line = scan.line();
    scan.take("--");
    let text = scan.until(char::is_whitespace);
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Ok((line, name.to_owned(), value.to_owned()))
}

/// The time of an event, and after three dots the time at which a blocking call returns.
fn time(scan: &mut Scan<'_>) -> Result<(When, Option<When>), Wrong> {
    if scan.take("*") {
        return Ok((When::Any, None));
    }
    let relative = scan.take("+");
    if !scan.sees_number() {
        return if relative { Err(scan.wrong("a time in seconds")) } else { Ok((When::Unsaid, None)) };
    }
    let at = |at| if relative { When::After(at) } else { When::At(at) };
    let first = scan.seconds()?;
    let separator = ["~", "..."].into_iter().find(|text| scan.take(text));
    let Some(separator) = separator else { return Ok((at(first), None)) };
    scan.skip();
    scan.take("+");
    let last = scan.seconds()?;
    if last < first {
        return Err((scan.line(), "the time ends before it begins".into()));
    }
    Ok(match (separator, relative) {
        ("~", true) => (When::AfterBetween(first, last), None),
        ("~", false) => (When::Between(first, last), None),
        _ => (at(first), Some(at(last))),
    })
}

fn event(scan: &mut Scan<'_>, line: u32, when: When, end: Option<When>) -> Result<Event, Wrong> {
    scan.skip();
    let what = if scan.take("`") {
        What::Shell(scan.up_to("`")?.to_owned())
    } else if scan.take("%{") {
        What::Code(scan.up_to("}%")?.to_owned())
    } else if scan.take("<") {
        What::Inbound(packet::inbound(scan)?)
    } else if scan.take(">") {
        What::Outbound(packet::outbound(scan)?)
    } else if scan.sees_name() {
        What::Call(call::call(scan, end)?)
    } else {
        return Err(scan.wrong("a packet (< or >), a system call, `commands` or %{ code }%"));
    };
    if end.is_some() && !matches!(what, What::Call(_)) {
        return Err((line, "only a system call can last: `start...end` belongs to calls".into()));
    }
    if when == When::Unsaid && !matches!(what, What::Shell(_) | What::Code(_)) {
        return Err((line, "an event begins with its time, such as +0 or +.1".into()));
    }
    Ok(Event { line, when, what })
}

/// Seconds as written, exactly.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let part: u64 = format!("{part:0<9}").parse().ok()?;
    Some(Duration::from_nanos(whole.checked_mul(1_000_000_000)?.checked_add(part)?))
}
