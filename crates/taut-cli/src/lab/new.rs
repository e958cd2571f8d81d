//! `new` and `schema`: a scenario's file to begin with, and what an editor needs to complete and check one.
//! Both are the table of keys, `scenario/keys/table.rs`, written down. Called by `mod.rs`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::shared::output;
use taut_lab::metrics;
use taut_lab::scenario::keys::{self, Given, Key, Kind};

/// Arguments of `new`.
#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The file; it must not exist yet
    #[arg(default_value = "scenario.toml")]
    file: PathBuf,
    /// Print the file's name as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `schema`.
#[derive(Args, Debug)]
pub(super) struct SchemaArgs {
    /// Print it on one line
    #[arg(long)]
    json: bool,
}

/// Writes a commented scenario.
pub(super) fn new(args: &NewArgs) -> anyhow::Result<()> {
    let name = args.file.display();
    match OpenOptions::new().write(true).create_new(true).open(&args.file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{name} exists already: name another file, or remove it")
        }
        opened => opened
            .and_then(|mut file| file.write_all(text(&args.file).as_bytes()))
            .with_context(|| format!("cannot write {name}"))?,
    }
    if args.json {
        return output::print_json(&json!({ "file": args.file }));
    }
    output::print(&format!("{name}: run it with taut lab run {}\n", runnable(&args.file)))
}

/// Prints the schema.
pub(super) fn print_schema(args: &SchemaArgs) -> anyhow::Result<()> {
    if args.json {
        return output::print_json(&schema());
    }
    output::print(&(serde_json::to_string_pretty(&schema())? + "\n"))
}

/// The file as `run` knows it for one.
fn runnable(file: &Path) -> String {
    let text = file.display().to_string();
    if text.ends_with(".toml") || text.contains('/') { text } else { format!("./{text}") }
}

/// The text of the file. Lines `#key = value` are keys that may be there, with a value as an example.
fn text(file: &Path) -> String {
    let mut out = format!(
        "# A scenario of the lab: taut lab run {}\n\
         # A line #key = value has a key that may be there: remove the # before it, and before its [table].\n\
         # For completion and checks in an editor: taut lab schema > scenario.schema.json\n",
        runnable(file)
    );
    table(&mut out, "", keys::ALL, true);
    out
}

/// The keys of a table: first the values, then the tables with a heading of their own.
fn table(out: &mut String, path: &str, keys: &[Key], is_active: bool) {
    for (at, key) in keys.iter().filter(|key| is_value(key)).enumerate() {
        // Below a heading no line is left free.
        if at > 0 || path.is_empty() {
            out.push('\n');
        }
        comment(out, path, key);
        // What makes the other keys of the file apply is there from the beginning.
        let is_there =
            is_active && (key.given == Given::Required || path == "topology" && key.name == "kind");
        let mark = if is_there { "" } else { "#" };
        // Writing to a string does not fail.
        let _ = writeln!(out, "{mark}{} = {}", key.name, key.example);
    }
    for key in keys.iter().filter(|key| !is_value(key)) {
        let Some(inner) = key.kind.keys() else { continue };
        let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
        let is_active = is_active && (key.given == Given::Required || path == "topology");
        let mark = if is_active { "" } else { "#" };
        out.push('\n');
        comment(out, &path, key);
        let heading =
            if matches!(key.kind, Kind::Tables(_)) { format!("[[{path}]]") } else { format!("[{path}]") };
        let _ = writeln!(out, "{mark}{heading}");
        table(out, &path, inner, is_active);
    }
}

fn is_value(key: &Key) -> bool {
    !key.example.is_empty()
}

/// Explains a key of the table at `path`, in lines of at most 110 columns.
fn comment(out: &mut String, path: &str, key: &Key) {
    let given = match key.given {
        Given::Required => "Required".to_owned(),
        Given::Or(other) => format!("Default: {other}"),
    };
    // A table on one line has its keys here.
    let inner = key.kind.keys().filter(|_| is_value(key)).unwrap_or_default().iter();
    let inner: Vec<String> = inner.map(|key| format!("`{}`: {}", key.name, key.about)).collect();
    let inner = if inner.is_empty() { String::new() } else { format!(" {}.", inner.join("; ")) };
    let needs = needs(path, key).join(" and ");
    let needs = if needs.is_empty() { needs } else { format!(" Needs {needs}, for example.") };
    let text = format!("{}. {}.{inner} {given}.{needs}", key.about, sentence(&key.kind.to_string()));
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 110 {
            let _ = writeln!(out, "{line}");
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

/// The values that a key needs: as its own table has them, or with the name of another table.
fn needs(path: &str, key: &Key) -> Vec<String> {
    let parts = |need: &'static str| {
        let (path, value) = need.split_once('=').unwrap_or((need, ""));
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        (table.trim_end_matches(".0"), name, value)
    };
    let is_here = |need: &&'static str| parts(need).0 == path;
    let here: Vec<_> = key.needs.iter().copied().filter(is_here).map(parts).collect();
    let written = key.needs.iter().copied().filter_map(|need| {
        let (table, name, value) = parts(need);
        if table == path {
            return Some(format!("{name} = \"{value}\""));
        }
        // Two tables that have the same keys: the other one's.
        let is_other = here.iter().any(|(_, other, _)| *other == name);
        (!is_other).then(|| format!("{name} = \"{value}\" in [{table}]"))
    });
    written.collect()
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The schema, in the draft that most editors read (draft-07).
fn schema() -> Value {
    let mut schema = object(keys::ALL);
    schema.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
    schema.insert("title".into(), "A scenario of taut's lab".into());
    Value::Object(schema)
}

/// A table with these keys, and no others.
fn object(keys: &[Key]) -> Map<String, Value> {
    let mut properties = Map::new();
    for key in keys {
        let mut property = kind(&key.kind);
        let mut about = format!("{}. {}.", key.about, sentence(&key.kind.to_string()));
        if let Given::Or(other) = key.given {
            let _ = write!(about, " Default: {other}.");
        }
        property.insert("description".into(), about.into());
        if let Ok(example) = toml::from_str::<Map<String, Value>>(&format!("value = {}", key.example)) {
            property.insert("examples".into(), json!([example["value"]]));
        }
        properties.insert(key.name.to_owned(), Value::Object(property));
    }
    let required: Vec<&str> =
        keys.iter().filter(|key| key.given == Given::Required).map(|key| key.name).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), Value::Object(properties));
    schema.insert("required".into(), json!(required));
    schema.insert("additionalProperties".into(), false.into());
    schema
}

fn kind(of: &Kind) -> Map<String, Value> {
    let strings = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let schema = match of {
        Kind::Text | Kind::File | Kind::Queue | Kind::Control => json!({ "type": "string" }),
        Kind::YesNo => json!({ "type": "boolean" }),
        Kind::Whole(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
        Kind::Number(from, to) => json!({ "type": "number", "minimum": from, "maximum": to }),
        Kind::Share => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": r"^\s*((100(\.0*)?|\d{1,2}(\.\d*)?|\.\d+)\s*%|1(\.0*)?|0(\.\d*)?|\.\d+)\s*$" },
        ] }),
        Kind::Rate => json!({ "type": "string", "pattern": quantity(r"([kmgt]i?)?(bit|bps)") }),
        Kind::Time => json!({ "type": "string", "pattern": quantity(r"s|secs?|[mun]s|[mun]secs?") }),
        Kind::Size => json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": quantity(r"b|[kmg]b?|[kmg]bit") },
        ] }),
        Kind::Limit => json!({ "anyOf": [
            { "enum": ["on", "off"] },
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": quantity(r"b|[kmg]b?|[kmg]bit") },
        ] }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Metrics => json!({ "type": "array", "items": { "enum": metrics::names() } }),
        Kind::List(of) => json!({ "type": "array", "items": kind(of) }),
        Kind::Table(keys) => Value::Object(object(keys)),
        Kind::Tables(keys) => json!({ "type": "array", "items": object(keys) }),
        Kind::Settings => {
            json!({ "type": "object", "additionalProperties": { "type": ["string", "integer", "boolean"] } })
        }
        Kind::Set => json!({ "type": "object" }),
        Kind::Published => json!({ "type": "object", "additionalProperties": strings() }),
    };
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// A pattern for a number with one of these units, in any case, or none.
fn quantity(units: &str) -> String {
    let mut any_case = String::new();
    let mut in_set = false;
    for letter in units.chars() {
        in_set = (in_set || letter == '[') && letter != ']';
        match letter {
            letter if letter.is_ascii_alphabetic() && in_set => {
                any_case.extend([letter, letter.to_ascii_uppercase()]);
            }
            letter if letter.is_ascii_alphabetic() => {
                any_case.extend(['[', letter, letter.to_ascii_uppercase(), ']']);
            }
            other => any_case.push(other),
        }
    }
    format!(r"^\s*(\d+\.?\d*|\.\d+)({any_case})?\s*$")
}

#[cfg(test)]
mod tests {
    use taut_core::congestion::Registry;

    use super::*;
    use taut_lab::scenario::{Change, Document};

    fn parse(text: &str, changes: &[&str]) -> Result<Document, String> {
        let changes: Vec<Change> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
        let read = |_: &str| Ok(b"0,10mbit\n1,10mbit\n".to_vec());
        let document = Document::parse_with("new", "new.toml", text, &changes, &Registry::default(), &read);
        document.map_err(|error| error.to_string())
    }

    #[test]
    fn lab_02_a_new_file_is_a_scenario_and_each_of_its_lines_may_be_used() {
        let text = text(Path::new("new.toml"));
        parse(&text, &[]).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        let mut count = 0;
        each("", keys::ALL, &mut |path, key| {
            if key.example.is_empty() {
                return;
            }
            let line = format!("{} = {}", key.name, key.example);
            let is_line = text.lines().any(|one| one.trim_start_matches('#') == line);
            assert!(is_line || text.contains(&format!("`{}`: ", key.name)), "{path}: {line}");
            let mut changes: Vec<String> = key.needs.iter().map(|need| (*need).to_owned()).collect();
            changes.push(format!("{path}={}", key.example));
            // A table that is not there yet has what it requires.
            changes.splice(0..0, required(path));
            let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
            parse(&text, &changes).unwrap_or_else(|error| panic!("{changes:?}: {error}"));
            count += 1;
        });
        assert!(count > 90, "{count}");
        // What a key needs is in the words of the file, and above each key is a free line or its heading.
        let words = text.replace("\n#", "");
        assert_eq!(words.matches(r#" Needs reorder-delay = "5ms", for example."#).count(), 2, "{text}");
        assert!(words.contains(r#" Needs kind = "dumbbell" in [topology], for example."#), "{text}");
        assert!(words.contains(r#" Needs kind = "parking-lot", for example."#), "{text}");
        assert!(words.contains(r#" Needs app = "bulk" and off = "1s", for example."#), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        for at in 1..lines.len() {
            if lines[at].starts_with("# ") && !lines[at - 1].starts_with("# ") {
                assert!(
                    lines[at - 1].is_empty() || lines[at - 1].contains('['),
                    "line {at}: {}",
                    lines[at - 1]
                );
            }
        }
    }

    /// Calls it with each key and its path, with 0 for the place in a list.
    fn each(path: &str, keys: &[Key], call: &mut impl FnMut(&str, &Key)) {
        for key in keys {
            let path = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
            call(&path, key);
            if let Some(inner) = key.kind.keys() {
                let path = if matches!(key.kind, Kind::Tables(_)) { format!("{path}.0") } else { path };
                each(&path, inner, call);
            }
        }
    }

    /// What makes the tables on the way to a path whole.
    fn required(path: &str) -> Vec<String> {
        let of = |table: &str, text: &str| path.starts_with(table).then(|| text.to_owned());
        [
            of("variants.", r#"variants=[{ name = "a" }]"#),
            of("cases.", r#"cases=[{ name = "a" }]"#),
            of("link.steps.", "topology.kind=dumbbell"),
            of("link.steps.", r#"link.steps=[{ at = "1s", rate = "1mbit" }]"#),
            of("link.policer", "topology.kind=dumbbell"),
            of("link.policer.", r#"link.policer={ rate = "1mbit", burst = "10kb" }"#),
            of("link.faults.bursts.", "link.faults.bursts={ p = 0.1, r = 0.5 }"),
            of("link.back-faults.bursts.", "link.back-faults.bursts={ p = 0.1, r = 0.5 }"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    #[test]
    fn a_pattern_takes_units_in_any_case() {
        assert_eq!(quantity("s|[mu]s"), r"^\s*(\d+\.?\d*|\.\d+)([sS]|[mMuU][sS])?\s*$");
    }
}
