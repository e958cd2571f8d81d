//! System calls as `strace` prints them: `getsockopt(4, SOL_SOCKET, SO_ERROR, [0], [4]) = 0`.

use super::Wrong;
use super::scan::{Scan, is_name};
use crate::script::{Call, Value, When};

pub(super) fn call(scan: &mut Scan<'_>, end: Option<When>) -> Result<Call, Wrong> {
    let name = scan.name().to_owned();
    scan.needs("(")?;
    let args = values(scan, ")")?;
    scan.needs("=")?;
    scan.skip();
    let result = value(scan)?;
    scan.skip();
    let errno =
        if result == Value::Int(-1) && scan.sees_name() { Some(scan.name().to_owned()) } else { None };
    // What strace explains: `-1 EAGAIN (Resource temporarily unavailable)`.
    if scan.takes("(") {
        scan.up_to(")")?;
    }
    Ok(Call { name, args, end, result, errno })
}

/// Values with commas between them, up to `end`, which is passed.
fn values(scan: &mut Scan<'_>, end: &str) -> Result<Vec<Value>, Wrong> {
    let mut values = Vec::new();
    if scan.takes(end) {
        return Ok(values);
    }
    loop {
        values.push(value(scan)?);
        if scan.takes(end) {
            return Ok(values);
        }
        if !scan.takes(",") {
            return Err(scan.wrong(&format!("`,` or `{end}`")));
        }
    }
}

/// Lists and structs within each other: each takes the program's stack.
const DEPTH_MAX: u32 = 20;

fn value(scan: &mut Scan<'_>) -> Result<Value, Wrong> {
    scan.depth += 1;
    if scan.depth > DEPTH_MAX {
        return Err((scan.line(), format!("more than {DEPTH_MAX} values within each other")));
    }
    let value = parts(scan);
    scan.depth -= 1;
    value
}

fn parts(scan: &mut Scan<'_>) -> Result<Value, Wrong> {
    let first = single(scan)?;
    if !scan.takes("|") {
        return Ok(first);
    }
    let mut parts = vec![first, single(scan)?];
    while scan.takes("|") {
        parts.push(single(scan)?);
    }
    Ok(Value::Or(parts))
}

fn single(scan: &mut Scan<'_>) -> Result<Value, Wrong> {
    if scan.takes("...") {
        return Ok(Value::Any);
    }
    if scan.take("[") {
        return values(scan, "]").map(Value::List);
    }
    if scan.take("{") {
        return fields(scan);
    }
    if scan.take("\"") {
        return Ok(Value::Text(scan.up_to("\"")?.to_owned()));
    }
    if scan.take("(") {
        let inner = value(scan)?;
        scan.needs(")")?;
        return Ok(inner);
    }
    if scan.sees_name() {
        let name = scan.name().to_owned();
        return if scan.takes("(") {
            values(scan, ")").map(|args| Value::Apply(name, args))
        } else {
            Ok(Value::Name(name))
        };
    }
    scan.int().map(Value::Int)
}

/// `{name=value, msg_iov(1)=[…]}`: the number in brackets repeats the length of the list, and is not kept.
fn fields(scan: &mut Scan<'_>) -> Result<Value, Wrong> {
    let mut fields = Vec::new();
    if scan.takes("}") {
        return Ok(Value::Struct(fields));
    }
    loop {
        scan.skip();
        fields.push(field(scan)?);
        if scan.takes("}") {
            return Ok(Value::Struct(fields));
        }
        scan.needs(",")?;
    }
}

fn field(scan: &mut Scan<'_>) -> Result<(String, Value), Wrong> {
    let ahead = scan.ahead(is_name);
    if !scan.sees_name() || !matches!(ahead, Some('=' | '(' | ' ')) {
        return value(scan).map(|value| (String::new(), value));
    }
    let name = scan.name().to_owned();
    if scan.takes("(") {
        scan.up_to(")")?;
    }
    scan.needs("=")?;
    Ok((name, value(scan)?))
}
