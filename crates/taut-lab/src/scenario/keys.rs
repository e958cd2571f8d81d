//! Every key of a scenario's file: its kind and unit, range, default, an example and a description. The
//! checks of ranges, the suggestion for a key that does not exist, `taut lab new` and `taut lab schema` are
//! all made from this one table, `keys/table.rs`; tests compare it with what the parser accepts, and with
//! docs/reference/scenario.md. Called by `load.rs` and the command.

use std::fmt;

use toml::Value;

use super::value::percent;

mod table;

/// What may be written for a key.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    YesNo,
    /// A whole number from here to there.
    Whole(u64, u64),
    /// A number from here to there.
    Number(f64, f64),
    /// A share: a number from 0 to 1, or a text such as `0.5%`.
    Share,
    /// A rate in `tc`'s units.
    Rate,
    /// A time in `tc`'s units.
    Time,
    /// Bytes: a number, or a text in `tc`'s units.
    Size,
    /// The name of a file, relative to the scenario's.
    File,
    /// A queue discipline in `tc`'s words.
    Queue,
    /// Byte queue limits: `on`, `off` or bytes.
    Limit,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A congestion control, with or without parameters.
    Control,
    /// Names of metrics.
    Metrics,
    /// A list.
    List(&'static Kind),
    /// A table with these keys.
    Table(&'static [Key]),
    /// A list of tables with these keys.
    Tables(&'static [Key]),
    /// Settings of a stack by name.
    Settings,
    /// Values of the scenario by path.
    Set,
    /// Published figures by metric and variant.
    Published,
}

/// Whether a key must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// It must.
    Required,
    /// Otherwise it is this, in words.
    Or(&'static str),
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What may be written.
    pub kind: Kind,
    /// Whether it must be there, or what it is otherwise.
    pub given: Given,
    /// A value, as TOML; empty for tables that have a heading of their own.
    pub example: &'static str,
    /// What it means.
    pub about: &'static str,
    /// Changes without which it does not apply, as for `--set`.
    pub needs: &'static [&'static str],
}

/// The keys of a scenario.
pub const ALL: &[Key] = table::ROOT;

impl fmt::Display for Kind {
    /// Kind, unit and range in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::YesNo => f.write_str("true or false"),
            Self::Whole(from, to) if *to >= u64::from(u32::MAX) => {
                write!(f, "a whole number, at least {from}")
            }
            Self::Whole(from, to) => write!(f, "a whole number from {from} to {to}"),
            Self::Number(from, to) => write!(f, "a number from {from} to {to}"),
            Self::Share => f.write_str("a share from 0 to 1, or such as \"0.5%\""),
            Self::Rate => f.write_str("a rate such as \"100mbit\": bit, kbit, mbit, gbit per second"),
            Self::Time => f.write_str("a time such as \"20ms\": s, ms, us, ns"),
            Self::Size => f.write_str("bytes, or a size such as \"64kb\": b, kb, mb, gb"),
            Self::File => f.write_str("a file, relative to this one"),
            Self::Queue => f.write_str("a queue discipline in tc's words, such as \"pfifo limit 100\""),
            Self::Limit => f.write_str("\"on\", \"off\", bytes, or a size such as \"30kb\""),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Control => f.write_str("a congestion control"),
            Self::Metrics => f.write_str("a list of metrics"),
            Self::List(of) => write!(f, "a list, each {of}"),
            Self::Table(_) => f.write_str("a table"),
            Self::Tables(_) => f.write_str("a list of tables"),
            Self::Settings => f.write_str("settings by name, each a number or a text"),
            Self::Set => f.write_str("values by path"),
            Self::Published => f.write_str("texts by metric and variant"),
        }
    }
}

impl Kind {
    /// The keys of a table or of each table of a list.
    #[must_use]
    pub const fn keys(&self) -> Option<&'static [Key]> {
        match self {
            Self::Table(keys) | Self::Tables(keys) => Some(keys),
            _ => None,
        }
    }
}

/// The keys of the table at a path such as `link` or `flows.0.options`; the empty path is the scenario.
#[must_use]
pub fn of_table(path: &str) -> Option<&'static [Key]> {
    let mut keys = ALL;
    let mut words = path.split('.').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let kind = keys.iter().find(|key| key.name == word)?.kind;
        keys = kind.keys()?;
        if matches!(kind, Kind::Tables(_)) {
            words.next()?;
        }
    }
    Some(keys)
}

/// What may have been meant by a key that does not exist: a similar one in this table, or the same one
/// elsewhere.
#[must_use]
pub(super) fn meant(table: &str, name: &str) -> Option<String> {
    let keys = of_table(table)?;
    near(name, keys.iter().map(|key| key.name)).or_else(|| {
        let place = elsewhere("", ALL, name)?;
        Some(format!("there is one in {place}"))
    })
}

/// The nearest of some names, if one is near.
#[must_use]
pub(super) fn near<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = names.map(|other| (distance(other, name), other));
    // One edit in three letters, and two in short names, as in `rat` and `dealy`.
    let near = near.filter(|(edits, other)| *edits <= 1 + other.len().min(name.len()) / 4).min();
    near.map(|(_, other)| format!("did you mean `{other}`?"))
}

/// The same for serde's message of a word or key that is none of those that it lists.
#[must_use]
pub(crate) fn near_listed(message: &str) -> Option<String> {
    let (what, rest) = message.split_once(" `")?;
    let (name, expected) = rest.split_once("`, expected ")?;
    let is_name = matches!(what, "unknown variant" | "unknown field");
    near(name, expected.split('`').skip(1).step_by(2)).filter(|_| is_name)
}

/// The parser's message of a value of another type, in TOML's words and with what the key takes.
#[must_use]
pub(super) fn typed(path: &str, message: &str) -> Option<String> {
    let (found, expected) = message.strip_prefix("invalid type: ")?.rsplit_once(", expected ")?;
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let key = of_table(table).and_then(|keys| keys.iter().find(|key| key.name == name));
    let expected = match key {
        Some(key) => key.kind.to_string(),
        // An entry of a list of tables has no key.
        None if expected.starts_with("struct ") => "a table".to_owned(),
        None => expected.to_owned(),
    };
    Some(match found {
        // Where a word must stand, the parser does not say what does.
        "unit variant" => format!("invalid type, expected {expected}"),
        "sequence" => format!("invalid type: a list, expected {expected}"),
        "map" => format!("invalid type: a table, expected {expected}"),
        _ => format!("invalid type: {found}, expected {expected}"),
    })
}

/// The first table that has a key of this name.
fn elsewhere(path: &str, keys: &[Key], name: &str) -> Option<String> {
    keys.iter().find_map(|key| {
        let below = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        let inner = key.kind.keys()?;
        let brackets = if matches!(key.kind, Kind::Tables(_)) { ["[[", "]]"] } else { ["[", "]"] };
        let is_here = inner.iter().any(|key| key.name == name);
        if is_here {
            Some(format!("{}{below}{}", brackets[0], brackets[1]))
        } else {
            elsewhere(&below, inner, name)
        }
    })
}

/// Letters that must be inserted, removed, replaced, or exchanged with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// The first number that is out of its range: its path, and the reason. What has another type is the
/// parser's to report.
pub(super) fn out_of_range(scenario: &toml::Table) -> Option<(String, String)> {
    in_table("", ALL, scenario)
}

fn in_table(path: &str, keys: &[Key], table: &toml::Table) -> Option<(String, String)> {
    keys.iter().find_map(|key| {
        let value = table.get(key.name)?;
        let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        in_value(path, key.kind, value)
    })
}

fn in_value(path: String, kind: Kind, value: &Value) -> Option<(String, String)> {
    match (kind, value) {
        (Kind::Table(keys), Value::Table(table)) => in_table(&path, keys, table),
        (Kind::Tables(keys), Value::Array(tables)) => tables.iter().enumerate().find_map(|(index, table)| {
            table.as_table().and_then(|table| in_table(&format!("{path}.{index}"), keys, table))
        }),
        (Kind::Whole(from, to), Value::Integer(number)) => {
            let is_in = u64::try_from(*number).is_ok_and(|number| (from..=to).contains(&number));
            let why = match to {
                0xffff_ffff => format!("must be at least {from}, and less than 2^32"),
                _ if to > 0xffff_ffff => format!("must be at least {from}"),
                _ => format!("must be from {from} to {to}"),
            };
            (!is_in).then_some((path, why))
        }
        (Kind::Number(from, to), value) => {
            let number = number(value)?;
            (!(from..=to).contains(&number)).then(|| (path, format!("must be from {from} to {to}")))
        }
        (Kind::Share, value) => {
            let share = value.as_str().map_or_else(|| number(value), |text| percent(text).ok())?;
            (!(0.0..=1.0).contains(&share)).then(|| (path, "must be a share from 0 to 1".to_owned()))
        }
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}
