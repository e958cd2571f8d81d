//! Reads a scenario's file: first applies the changes of cases, variants and the command line, then the
//! schema. A mistake is reported with its file, line and key, or with the change that made it. Called by
//! everything that runs a scenario.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use taut_core::congestion::Registry;
use taut_link::Trace;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::controllers::with_param;
use super::{Case, Scenario, Variant, builtin, keys};
use crate::metrics;
use crate::recorded::trace;

/// Why a file or a change to it is not a valid scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// File and line, or the change.
    pub place: String,
    /// The key, if one is at fault.
    pub key: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key, why } = self;
        if key.is_empty() { write!(f, "{place}: {why}") } else { write!(f, "{place}: {key}: {why}") }
    }
}

impl std::error::Error for LoadError {}

/// A change: a new value at a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The path, such as `link.rate` or `flows.0.count`.
    pub path: String,
    /// The new value.
    pub value: Value,
    /// Where the change comes from, such as `--set link.rate=1gbit`.
    pub by: String,
}

impl Change {
    /// Parses a change as on the command line: `link.rate=1gbit`.
    ///
    /// # Errors
    /// Without a path or an equals sign.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let wrong =
            |why: &str| LoadError { place: format!("--set {text}"), key: String::new(), why: why.into() };
        let (path, value) =
            text.split_once('=').ok_or_else(|| wrong("must be PATH=VALUE, such as link.rate=1gbit"))?;
        let path = path.trim();
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(wrong("must be PATH=VALUE, such as link.rate=1gbit"));
        }
        Ok(Self { path: path.into(), value: read_value(value.trim()), by: format!("--set {text}") })
    }
}

impl Change {
    /// A change that sets a list of texts.
    #[must_use]
    pub fn list(path: &str, values: &[String], by: &str) -> Self {
        let values = values.iter().map(|value| Value::String(value.clone())).collect();
        Self { path: path.into(), value: Value::Array(values), by: by.into() }
    }
}

/// Parses a TOML value; other text becomes a string.
fn read_value(text: &str) -> Value {
    let document: Option<Table> = toml::from_str(&format!("value = {text}\n")).ok();
    let value = document.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    match value {
        Some(Value::Datetime(_)) | None => Value::String(text.into()),
        Some(value) => value,
    }
}

/// Reads a file that a scenario names, or says why it cannot.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// A file that a scenario names, and the line that it records.
#[derive(Clone, Debug)]
struct Recording {
    bytes: Arc<[u8]>,
    trace: Result<Arc<Trace>, String>,
}

/// A scenario's file.
#[derive(Clone, Debug)]
pub struct Document {
    /// Name of the scenario: the file's name without `.toml`.
    pub name: String,
    /// The file's name in messages.
    pub file: String,
    text: String,
    table: Table,
    changes: Vec<Change>,
    controllers: Registry,
    /// By name.
    recordings: BTreeMap<String, Recording>,
}

/// A scenario with one case and one variant applied.
#[derive(Clone, Debug)]
pub struct Variation {
    /// Its case; empty when it has none.
    pub case: String,
    /// Its variant.
    pub variant: String,
    /// Whether today's kernel is compared with it.
    pub linux: bool,
    /// Whether it can run live.
    pub live: bool,
    /// Whether it can run live over an Ethernet interface, with the sender's queue discipline in the kernel.
    pub packet: bool,
    /// The scenario with all changes applied.
    pub scenario: Scenario,
    /// Every value, by path.
    pub parameters: BTreeMap<String, String>,
}

impl Document {
    /// Parses a file's text and applies the changes of the command line. Flows may use any of these
    /// congestion controls. The scenario names no other files.
    ///
    /// # Errors
    /// When it is not TOML, or not a valid scenario in one of its variations.
    pub fn parse(
        name: &str,
        file: &str,
        text: &str,
        changes: &[Change],
        controllers: &Registry,
    ) -> Result<Self, LoadError> {
        let no_files = |_: &str| Err("there are no files here".to_owned());
        Self::parse_with(name, file, text, changes, controllers, &no_files)
    }

    /// The same, with the files that the scenario names.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and when a file cannot be read or is not valid.
    pub fn parse_with(
        name: &str,
        file: &str,
        text: &str,
        changes: &[Change],
        controllers: &Registry,
        read: ReadFile<'_>,
    ) -> Result<Self, LoadError> {
        let table: Table = toml::from_str(text).map_err(|error| LoadError {
            place: place(file, text, error.span()),
            key: String::new(),
            why: error.message().to_owned(),
        })?;
        let mut names = Vec::new();
        table.iter().for_each(|(key, value)| files_of(key, value, &mut names));
        changes.iter().for_each(|change| files_of(&change.path, &change.value, &mut names));
        let recordings = names.into_iter().map(|name| {
            // A mistake in a file matters where a variation uses it.
            let bytes = read(&name);
            let trace =
                bytes.as_ref().map_err(Clone::clone).and_then(|bytes| trace::parse(bytes)).map(Arc::new);
            (name, Recording { bytes: bytes.unwrap_or_default().into(), trace })
        });
        let recordings = recordings.collect();
        let document = Self {
            name: name.into(),
            file: file.into(),
            text: text.into(),
            table,
            changes: changes.to_vec(),
            controllers: controllers.clone(),
            recordings,
        };
        document.variations()?;
        Ok(document)
    }

    /// The text of its file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The changes that were made to it, in their order. With them, [`text`](Self::text) gives the same
    /// scenario elsewhere.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The files that it names, with their content.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.recordings.iter().map(|(name, recording)| (name.as_str(), &*recording.bytes))
    }

    /// The scenario without any variant.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), which has already excluded them.
    pub fn base(&self) -> Result<Scenario, LoadError> {
        self.read(&[]).map(|(scenario, _)| scenario)
    }

    /// The names of its cases.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), which has already excluded them.
    pub fn cases(&self) -> Result<Vec<String>, LoadError> {
        Ok(self.base()?.cases.into_iter().map(|case| case.name).collect())
    }

    /// The same scenario with one of its cases only.
    ///
    /// # Errors
    /// When it has no case of this name.
    pub fn only_case(&self, name: &str) -> Result<Self, LoadError> {
        let by = format!("--case {name}");
        let names = self.cases()?;
        let is_it = |case: &&Value| case.get("name").and_then(Value::as_str) == Some(name);
        let cases = self.table.get("cases").and_then(Value::as_array);
        let case =
            cases.and_then(|cases| cases.iter().find(is_it)).filter(|_| names.iter().any(|n| n == name));
        let Some(case) = case else {
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let why = format!("{} has no case of this name; there are {there}", self.name);
            return Err(LoadError { place: by, key: String::new(), why });
        };
        let mut document = self.clone();
        document.changes.push(Change { path: "cases".into(), value: Value::Array(vec![case.clone()]), by });
        Ok(document)
    }

    /// Each case with each variant, in the order of the file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), which has already excluded them.
    pub fn variations(&self) -> Result<Vec<Variation>, LoadError> {
        let base = self.base()?;
        let plain_case = Case { name: String::new(), set: Table::new(), published: Default::default() };
        let plain = Variant { name: "run".into(), set: Table::new(), linux: true, live: true, packet: false };
        let cases = if base.cases.is_empty() { vec![plain_case] } else { base.cases };
        let variants = if base.variants.is_empty() { vec![plain] } else { base.variants };
        let mut variations = Vec::new();
        let root = DeTable::parse(&self.text).ok();
        for case in &cases {
            for variant in &variants {
                let of = |what: &str, name: &str, set: &Table| {
                    let change = |(path, value): (&String, &Value)| {
                        let span = root
                            .as_ref()
                            .and_then(|root| set_in(root.get_ref(), &format!("{what}s"), name, path));
                        let place = place(&self.file, &self.text, span);
                        let by = format!("{place}: {what} \"{name}\" sets {path}");
                        Change { path: path.clone(), value: value.clone(), by }
                    };
                    set.iter().map(change).collect::<Vec<_>>()
                };
                let mut changes = of("case", &case.name, &case.set);
                changes.extend(of("variant", &variant.name, &variant.set));
                let (scenario, parameters) = self.read(&changes)?;
                variations.push(Variation {
                    case: case.name.clone(),
                    variant: variant.name.clone(),
                    linux: variant.linux,
                    live: variant.live,
                    packet: variant.packet,
                    scenario,
                    parameters,
                });
            }
        }
        Ok(variations)
    }

    /// Why a value that the file has is wrong, with the changes of others that may have made it so.
    fn with_changes(&self, why: String) -> String {
        let changes: Vec<&str> = self.changes.iter().map(|change| &*change.by).collect();
        if changes.is_empty() { why } else { format!("{why} (with {})", changes.join(" ")) }
    }

    /// Applies these changes, and then those of the command line.
    fn read(&self, changes: &[Change]) -> Result<(Scenario, BTreeMap<String, String>), LoadError> {
        let mut table = self.table.clone();
        let all: Vec<&Change> = changes.iter().chain(&self.changes).collect();
        for change in &all {
            apply(&mut table, change)?;
        }
        // The latest change to the path is to blame, or otherwise the file.
        let blame = |path: &str, why: String| {
            let about = |change: &&&Change| {
                let of = |one: &str, other: &str| {
                    one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                !path.is_empty() && (of(path, &change.path) || of(&change.path, path))
            };
            let (place, why) = match all.iter().rev().find(about) {
                Some(change) => (change.by.clone(), why),
                None => (place(&self.file, &self.text, self.span_of(path)), self.with_changes(why)),
            };
            LoadError { place, key: path.to_owned(), why }
        };
        if let Some((path, why)) = keys::out_of_range(&table) {
            return Err(blame(&path, why));
        }
        let mut scenario: Scenario =
            serde_path_to_error::deserialize(Value::Table(table.clone())).map_err(|error| {
                let path = error.path().to_string().replace('[', ".").replace(']', "");
                let path = if path == "." { String::new() } else { path };
                let message = error.into_inner().message().trim_end().to_owned();
                let message = keys::typed(&path, &message).unwrap_or(message);
                // An unknown key is reported with its table's path; this adds the key.
                let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
                let hint = unknown.and_then(|key| {
                    keys::meant(
                        path.strip_suffix(key).map_or(&*path, |table| table.trim_end_matches('.')),
                        key,
                    )
                });
                let hint = hint.or_else(|| keys::near_listed(&message));
                let message = hint.map_or_else(|| message.clone(), |hint| format!("{message}; {hint}"));
                let path = match unknown {
                    Some(key) if path.rsplit('.').next() != Some(key) && path.is_empty() => key.to_owned(),
                    Some(key) if path.rsplit('.').next() != Some(key) => format!("{path}.{key}"),
                    _ => path,
                };
                blame(&path, message)
            })?;
        scenario.look_up(&self.controllers).map_err(|(path, why)| blame(&path, why))?;
        if let Some((path, why)) = scenario.mistake() {
            return Err(blame(&path, why));
        }
        let mut parameters = BTreeMap::new();
        let link = &mut scenario.link;
        for (path, name, line) in [
            ("link.trace", &link.trace, &mut link.recorded),
            ("link.back-trace", &link.back_trace, &mut link.back_recorded),
        ] {
            let Some(name) = name else { continue };
            let recording =
                self.recordings.get(name).ok_or_else(|| blame(path, "is no file's name".into()))?;
            let trace = recording.trace.as_ref().map_err(|why| blame(path, format!("{name}: {why}")))?;
            *line = Some(Arc::clone(trace));
            // A run depends on what is in the file.
            parameters.insert(format!("{path}.digest"), trace::digest(&recording.bytes));
        }
        for (index, metric) in scenario.measure.iter().enumerate() {
            if metrics::find(metric).is_none() {
                let names = metrics::names();
                let hint = keys::near(metric, names.iter().copied())
                    .map_or_else(String::new, |hint| format!("; {hint}"));
                let why = format!("no metric is called {metric}; there are {}{hint}", names.join(", "));
                return Err(blame(&format!("measure.{index}"), why));
            }
        }
        let in_cases = scenario.cases.iter().enumerate();
        let published = in_cases
            .map(|(index, case)| (format!("cases.{index}.published"), &case.published))
            .chain([("published".to_owned(), &scenario.published)]);
        for (path, published) in published {
            for (metric, by_variant) in published {
                if !scenario.measure.contains(metric) {
                    return Err(blame(&format!("{path}.{metric}"), "is not measured".into()));
                }
                let known = |name: &String| scenario.variants.iter().any(|variant| variant.name == *name);
                if let Some(name) = by_variant.keys().find(|name| !known(name)) {
                    return Err(blame(&format!("{path}.{metric}.{name}"), "no variant has this name".into()));
                }
            }
        }
        for key in ["variants", "cases", "published", "about", "title", "source", "takes", "measure"] {
            table.remove(key);
        }
        flatten("", &Value::Table(table), &mut parameters);
        Ok((scenario, parameters))
    }

    /// The place of a path in the file, or of the part of it that is there.
    fn span_of(&self, path: &str) -> Option<Range<usize>> {
        let root = DeTable::parse(&self.text).ok()?;
        let mut span = None;
        let mut table = Some(root.get_ref());
        let mut rest = path;
        let mut array = None;
        while !rest.is_empty() {
            let word = rest.split('.').next().unwrap_or(rest);
            let after =
                |len: usize| rest.get(len..).map_or("", |rest| rest.strip_prefix('.').unwrap_or(rest));
            let (value, next) = if let Some(table) = table.take() {
                // Names of settings contain dots.
                let entry = table.iter().filter(|(key, _)| starts_with_path(rest, key.get_ref().as_ref()));
                let Some((key, value)) = entry.max_by_key(|(key, _)| key.get_ref().len()) else { break };
                span = Some(key.span());
                (value, after(key.get_ref().len()))
            } else if let Some(array) = Option::<&toml::de::DeArray<'_>>::take(&mut array) {
                let Some(value) = word.parse().ok().and_then(|index: usize| array.get(index)) else { break };
                span = Some(value.span());
                (value, after(word.len()))
            } else {
                break;
            };
            match value.get_ref() {
                DeValue::Table(inner) => table = Some(inner),
                DeValue::Array(inner) => array = Some(inner),
                _ => {}
            }
            rest = next;
        }
        span
    }
}

/// The place of what a case or a variant of this name sets at a path. `--case` may have taken the others
/// away, so that its number is not that in the file.
fn set_in(root: &DeTable<'_>, list: &str, name: &str, path: &str) -> Option<Range<usize>> {
    let tables = root.get(list)?.get_ref().as_array()?.iter().filter_map(|entry| entry.get_ref().as_table());
    let is_it = |table: &&DeTable<'_>| table.get("name").and_then(|of| of.get_ref().as_str()) == Some(name);
    let set = tables.into_iter().find(is_it)?.get("set")?.get_ref().as_table()?;
    // A path may also be written as tables, of which the first word is the key.
    set.iter().find(|(key, _)| key.get_ref() == path).map(|(key, _)| key.span())
}

/// Adds the names of files that a value has at any depth: of `link.trace`, however it is written.
fn files_of(key: &str, value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Table(table) => table.iter().for_each(|(key, value)| files_of(key, value, names)),
        Value::Array(values) => values.iter().for_each(|value| files_of("", value, names)),
        Value::String(name) => {
            let is_file = matches!(key.rsplit('.').next(), Some("trace" | "back-trace"));
            if is_file && !names.contains(name) {
                names.push(name.clone());
            }
        }
        _ => {}
    }
}

fn starts_with_path(path: &str, key: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// File and line.
fn place(file: &str, text: &str, span: Option<Range<usize>>) -> String {
    match span {
        // Not of a built-in scenario, whose text users do not see.
        Some(span) if !builtin::is_place(file) => {
            let before = text.get(..span.start).unwrap_or(text);
            format!("{file}:{}", before.matches('\n').count() + 1)
        }
        _ => file.to_owned(),
    }
}

/// Sets a value at its path. Missing tables on the way are created; the schema decides whether they are
/// allowed.
fn apply(table: &mut Table, change: &Change) -> Result<(), LoadError> {
    let wrong = |why: String| LoadError { place: change.by.clone(), key: change.path.clone(), why };
    let mut words: Vec<&str> = change.path.split('.').collect();
    // The name of a setting is one key, even if it contains dots.
    let setting;
    if let Some(at) = words.iter().position(|&word| word == "sysctls")
        && words.len() > at + 1
    {
        setting = words.split_off(at + 1).join(".");
        words.push(&setting);
    }
    if let [way @ .., "congestion", param] = &*words {
        return set_param(table, way, param, &change.value).map_err(wrong);
    }
    let Some((last, way)) = words.split_last() else { return Err(wrong("names nothing".into())) };
    let mut container = Container::Table(table);
    for word in way {
        container = container.enter(word).map_err(&wrong)?;
    }
    let slot = container.slot(last).map_err(&wrong)?;
    // A text stays a text: a size of 100 bytes, a setting's 1.
    *slot = match (&*slot, change.value.clone()) {
        (Value::String(_), Value::Integer(number)) => Value::String(number.to_string()),
        (Value::Float(_), Value::Integer(number)) => Value::Float(number as f64),
        (_, value) => value,
    };
    Ok(())
}

/// Changes a parameter of a congestion control, which is a part of its text.
fn set_param(table: &mut Table, way: &[&str], param: &str, value: &Value) -> Result<(), String> {
    let container = way.iter().try_fold(Container::Table(table), |container, word| container.enter(word))?;
    match container.slot("congestion")? {
        Value::String(text) => {
            *text = with_param(text, param, &text_of(value).ok_or("is not a number")?);
            Ok(())
        }
        _ => Err("there is no congestion control to take this parameter".into()),
    }
}

enum Container<'a> {
    Table(&'a mut Table),
    Array(&'a mut Vec<Value>),
}

impl<'a> Container<'a> {
    fn slot(self, word: &str) -> Result<&'a mut Value, String> {
        match self {
            // A value that was not set yet may have any type.
            Self::Table(table) => Ok(table.entry(word).or_insert_with(|| Value::Array(Vec::new()))),
            Self::Array(array) => {
                let len = array.len();
                let index = word.parse::<usize>().ok();
                index
                    .and_then(|index| array.get_mut(index))
                    .ok_or_else(|| format!("there is no {word}: this is a list of {len}, numbered from 0"))
            }
        }
    }

    fn enter(self, word: &str) -> Result<Self, String> {
        let slot = match self {
            Self::Table(table) => table.entry(word).or_insert_with(|| Value::Table(Table::new())),
            array @ Self::Array(_) => array.slot(word)?,
        };
        match slot {
            Value::Table(table) => Ok(Self::Table(table)),
            Value::Array(array) => Ok(Self::Array(array)),
            _ => Err(format!("{word} is a value and has no parts")),
        }
    }
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Table(table) => table.iter().for_each(|(key, value)| flatten(&below(key), value, into)),
        Value::Array(array) => {
            array
                .iter()
                .enumerate()
                .for_each(|(index, value)| flatten(&below(&index.to_string()), value, into));
        }
        value => drop(text_of(value).map(|text| into.insert(path.to_owned(), text))),
    }
}

/// A single value as text. Scenarios contain no dates.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(on) => Some(on.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}
