//! The lab for Python: the native half of the package `taut_lab`. `lib/taut_lab` has the other, which people
//! call; this one reads a scenario, runs it and makes tables.
//!
//! ```text
//!   lib/taut_lab/__init__.py ─▶ lib.rs ─▶ runs.rs: threads, signals, progress ─▶ taut_lab::sim
//!                                  │          └─▶ controller.rs: congestion controllers in Python
//!                                  ├─▶ results.rs ─▶ table.rs: Arrow
//!                                  └─▶ sweep.rs: grids, series of seeds
//! ```

mod controller;
mod results;
mod runs;
mod sweep;
mod table;

use std::path::Path;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use taut_core::congestion::Registry;
use taut_lab::metrics::{self as lab_metrics, names};
use taut_lab::scenario::{Change, Document, LoadError, builtin};

use controller::Trouble;
use runs::{Keep, Plan, PlanError};

/// A value of Python as one of TOML. `path` is for the message.
fn value(path: &str, of: &Bound<'_, PyAny>) -> PyResult<toml::Value> {
    if of.is_instance_of::<PyBool>() {
        Ok(toml::Value::Boolean(of.extract()?))
    } else if of.is_instance_of::<PyInt>() {
        Ok(toml::Value::Integer(of.extract()?))
    } else if of.is_instance_of::<PyFloat>() {
        Ok(toml::Value::Float(of.extract()?))
    } else if of.is_instance_of::<PyString>() {
        Ok(toml::Value::String(of.extract()?))
    } else if let Ok(table) = of.cast::<PyDict>() {
        self::table(path, table).map(toml::Value::Table)
    } else if of.is_instance_of::<PyList>() || of.is_instance_of::<PyTuple>() {
        let items = of.try_iter()?.enumerate();
        items
            .map(|(at, item)| value(&below(path, &at.to_string()), &item?))
            .collect::<PyResult<_>>()
            .map(toml::Value::Array)
    } else {
        let kind = of.get_type().name()?;
        Err(PyTypeError::new_err(format!("{path}: a scenario has no values of type {kind}")))
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn table(path: &str, of: &Bound<'_, PyDict>) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, item) in of {
        let key: String = key.extract()?;
        // As in a file, what is not there is left out.
        if !item.is_none() {
            let item = value(&below(path, &key), &item)?;
            table.insert(key, item);
        }
    }
    Ok(table)
}

/// The exception for a scenario that is invalid. `file` is the name of the file, if a line means something to
/// the caller.
fn invalid(py: Python<'_>, error: &LoadError, file: Option<&str>) -> PyErr {
    // A change by a case or a variant is described after its line.
    let line = file.and_then(|file| error.place.strip_prefix(file)?.strip_prefix(':')?.split(':').next());
    let line = line.and_then(|line| line.parse::<u32>().ok());
    let key = Some(&error.key).filter(|key| !key.is_empty());
    let raise = || -> PyResult<PyErr> {
        let class = py.import("taut_lab._errors")?.getattr("ScenarioError")?;
        Ok(PyErr::from_value(class.call1((error.to_string(), key, line, &error.why))?))
    };
    raise().unwrap_or_else(|other| other)
}

fn run_error(py: Python<'_>, message: String) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        Ok(PyErr::from_value(py.import("taut_lab._errors")?.getattr("RunError")?.call1((message,))?))
    };
    raise().unwrap_or_else(|other| other)
}

/// Runs a scenario: `text` is TOML, or `data` a dict.
#[pyfunction]
#[pyo3(signature = (name, file, text, data, changes, seeds, seed_from, variants, cases, keep, threads, controllers, progress))]
#[expect(clippy::too_many_arguments, reason = "the package's own function names and documents them")]
#[expect(clippy::needless_pass_by_value, reason = "arguments of a Python function are owned")]
fn run(
    py: Python<'_>,
    name: &str,
    file: &str,
    text: Option<&str>,
    data: Option<&Bound<'_, PyDict>>,
    changes: Vec<(String, Bound<'_, PyAny>)>,
    seeds: Option<u32>,
    seed_from: u64,
    variants: Vec<String>,
    cases: Vec<String>,
    keep: &str,
    threads: usize,
    controllers: Option<&Bound<'_, PyDict>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<results::Results> {
    let keep = match keep {
        "none" => Keep::None,
        "first" => Keep::First,
        "all" => Keep::All,
        other => return Err(PyValueError::new_err(format!("keep must be none, first or all, not {other}"))),
    };
    let trouble = Trouble::default();
    let registry = controller::registry(controllers, &trouble)?;
    let change = |(path, of): (String, Bound<'_, PyAny>)| {
        let value = value(&path, &of)?;
        Ok(Change { by: format!("set {path}"), path, value })
    };
    let changes: Vec<Change> = changes.into_iter().map(change).collect::<PyResult<_>>()?;
    let written = match (text, data) {
        (Some(text), _) => text.to_owned(),
        (None, Some(data)) => {
            toml::to_string(&table("", data)?).map_err(|error| PyValueError::new_err(error.to_string()))?
        }
        (None, None) => return Err(PyTypeError::new_err("there is no scenario")),
    };
    // A dict has no lines.
    let lines_in = text.map(|_| file);
    let directory = text.map_or(Path::new(""), |_| Path::new(file)).parent().unwrap_or(Path::new(""));
    let read = |file: &str| sweep::read_beside(directory, file);
    let document =
        Document::parse_with(name, file, &written, &changes, &registry, &read).map_err(|error| {
            let place = error.place.strip_prefix(file).filter(|_| lines_in.is_none());
            let error = match place {
                Some(_) => LoadError { place: file.to_owned(), ..error },
                None => error,
            };
            invalid(py, &error, lines_in)
        })?;
    let plan = Plan { document, seeds, seed_from, variants, cases, keep, threads };
    let outcomes = plan.run(py, &trouble, progress.as_ref()).map_err(|error| match error {
        PlanError::Load(error) => invalid(py, &error, lines_in),
        PlanError::Run { job, error } => run_error(py, format!("{job}: {error}")),
        PlanError::Name(why) => PyValueError::new_err(why),
        PlanError::Raised(error) => error,
    })?;
    results::Results::new(&plan.document, &plan.cases, outcomes)
        .map_err(|error| invalid(py, &error, lines_in))
}

/// The text of a built-in scenario.
#[pyfunction]
fn builtin_text(name: &str) -> PyResult<&'static str> {
    builtin::find(name).ok_or_else(|| {
        let names: Vec<&str> = builtin::ALL.iter().map(|(name, _)| *name).collect();
        PyValueError::new_err(format!(
            "no scenario is called {name}; there are {}, or give a path that ends in .toml",
            names.join(", ")
        ))
    })
}

/// The built-in scenarios.
#[pyfunction]
fn scenarios(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = PyList::empty(py);
    for (name, text) in builtin::ALL {
        let base = Document::parse(name, name, text, &[], &Registry::default())
            .and_then(|document| document.base())
            .map_err(|error| invalid(py, &error, Some(name)))?;
        let one = PyDict::new(py);
        one.set_item("name", name)?;
        one.set_item("title", &base.title)?;
        one.set_item("about", base.about.trim())?;
        one.set_item("source", &base.source)?;
        one.set_item("takes", &base.takes)?;
        one.set_item("seeds", base.seeds)?;
        one.set_item("cases", base.cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>())?;
        one.set_item("variants", base.variants.iter().map(|v| v.name.as_str()).collect::<Vec<_>>())?;
        one.set_item("measure", &base.measure)?;
        all.append(one)?;
    }
    Ok(all)
}

/// What can be measured: name, label, unit.
#[pyfunction]
fn metrics() -> Vec<(&'static str, &'static str, &'static str)> {
    let found = names().into_iter().filter_map(lab_metrics::find);
    found.map(|metric| (metric.name.as_str(), metric.label.as_str(), metric.unit)).collect()
}

/// The congestion controls that scenarios may name without `controllers`.
#[pyfunction]
fn congestion_controls() -> Vec<String> {
    Registry::default().iter().map(|algorithm| algorithm.name().to_owned()).collect()
}

/// Names of the send path's gates and what they are called in words, in their order.
#[pyfunction]
fn gates() -> Vec<(&'static str, &'static str)> {
    taut_core::Gate::ALL.iter().map(|gate| (gate.name(), gate.words())).collect()
}

/// The native half of `taut_lab`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // `build.rs` reads the sources.
    module.add("SOURCES", env!("TAUT_SOURCES"))?;
    module.add_class::<table::Table>()?;
    module.add_class::<results::Results>()?;
    module.add_class::<sweep::Grid>()?;
    module.add_class::<sweep::Series>()?;
    module.add_class::<controller::PyWindow>()?;
    module.add_class::<controller::PyAck>()?;
    module.add_class::<controller::PyRateSample>()?;
    module.add_class::<controller::PyLostPacket>()?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add_function(wrap_pyfunction!(builtin_text, module)?)?;
    module.add_function(wrap_pyfunction!(scenarios, module)?)?;
    module.add_function(wrap_pyfunction!(metrics, module)?)?;
    module.add_function(wrap_pyfunction!(gates, module)?)?;
    module.add_function(wrap_pyfunction!(congestion_controls, module)?)
}
