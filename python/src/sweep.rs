//! What a sweep needs of the native half: a grid as a list of series, each one a point, a case and a
//! variant with its seeds; the run of one seed, wherever the series was carried to; and the table of
//! figures that came back. Called by `lib/taut_lab/_sweep.py`, which has the order, the places and the
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use taut_core::congestion::Registry;
use taut_lab::data::{Engine, RunData};
use taut_lab::job::{Job, LiveDevice};
use taut_lab::scenario::{Change, Document, LoadError, Variation, builtin};
use taut_lab::sweep::{Grid as LabGrid, Point, Results};
use taut_lab::{sim, table};

use crate::controller::{self, Trouble};
use crate::{invalid, run_error};

/// Why a grid cannot be used.
enum GridError {
    Load(LoadError),
    Name(String),
    File(String),
}

impl From<LoadError> for GridError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// The scenario that a grid names: a built-in one, or a file relative to the grid's.
fn open(
    name: &str,
    directory: &Path,
    changes: &[Change],
    controllers: &Registry,
) -> Result<Document, GridError> {
    if !name.ends_with(".toml") && !name.contains('/') {
        let text = builtin::find(name).ok_or_else(|| {
            let names: Vec<&str> = builtin::ALL.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            GridError::Name(format!(
                "no scenario is called {name}; there are {names}, or give a path that ends in .toml"
            ))
        })?;
        let read = |file: &str| read_beside(Path::new(""), file);
        return Ok(Document::parse_with(name, name, text, changes, controllers, &read)?);
    }
    let path = directory.join(name);
    let text = fs::read_to_string(&path)
        .map_err(|error| GridError::File(format!("cannot read {}: {error}", path.display())))?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let read = |file: &str| read_beside(path.parent().unwrap_or(Path::new("")), file);
    Ok(Document::parse_with(&stem, &path.display().to_string(), &text, changes, controllers, &read)?)
}

/// Reads a file that a scenario names, relative to the scenario's.
pub(crate) fn read_beside(directory: &Path, file: &str) -> Result<Vec<u8>, String> {
    let path = directory.join(file);
    fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// What a run depends on beside its seed and the code: every value of its scenario. `seeds` and `live` say
/// which runs there are, and change none.
fn describes(variation: &Variation) -> String {
    let mut parameters = variation.parameters.clone();
    for key in ["seeds", "live"] {
        parameters.remove(key);
    }
    serde_json::json!({
        "case": variation.case, "variant": variation.variant, "parameters": parameters,
    })
    .to_string()
}

/// A point, a case and a variant: what the seeds of a batch have in common.
struct Part {
    point: usize,
    variation: Variation,
    seeds: u32,
}

/// A grid with its scenarios.
#[pyclass(module = "taut_lab._native", frozen)]
pub(crate) struct Grid {
    spread: bool,
    points: Vec<(Point, Document)>,
    parts: Vec<Part>,
}

#[pymethods]
impl Grid {
    /// Reads a grid; `directory` is where the files are that it names, `controllers` has classes by name.
    #[new]
    #[pyo3(signature = (file, text, directory, changes, case, seeds, controllers))]
    #[expect(clippy::needless_pass_by_value, reason = "arguments of a Python function are owned")]
    #[expect(clippy::too_many_arguments, reason = "the package alone calls it")]
    fn new(
        py: Python<'_>,
        file: &str,
        text: &str,
        directory: PathBuf,
        changes: Vec<String>,
        case: Option<&str>,
        seeds: Option<u32>,
        controllers: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        // Nothing runs here.
        let controllers = controller::registry(controllers, &Trouble::default())?;
        let load = |error: LoadError| invalid(py, &error, Some(file));
        let grid = LabGrid::parse(file, text).map_err(load)?;
        let changes: Vec<Change> =
            changes.iter().map(|change| Change::parse(change)).collect::<Result<_, _>>().map_err(load)?;
        let points = grid
            .documents(file, &changes, case, |all| open(&grid.scenario, &directory, all, &controllers))
            .map_err(|error| match error {
                GridError::Load(error) => load(error),
                GridError::Name(why) => PyValueError::new_err(why),
                GridError::File(why) => PyOSError::new_err(why),
            })?;
        let mut parts = Vec::new();
        for (point, (_, document)) in points.iter().enumerate() {
            for variation in document.variations().map_err(load)? {
                if grid.variants.is_empty() || grid.variants.contains(&variation.variant) {
                    let seeds = seeds.or(grid.seeds).unwrap_or(variation.scenario.seeds);
                    parts.push(Part { point, variation, seeds });
                }
            }
        }
        Ok(Self { spread: grid.spread, points, parts })
    }

    /// The series: what each is called, what it depends on, and what [`Series`] takes.
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for part in &self.parts {
            let (point, document) = &self.points[part.point];
            let one = PyDict::new(py);
            one.set_item("point", &point.label)?;
            one.set_item("case", &part.variation.case)?;
            one.set_item("variant", &part.variation.variant)?;
            one.set_item("seeds", part.seeds)?;
            one.set_item("describes", describes(&part.variation))?;
            let changed = PyDict::new(py);
            for Change { path, .. } in &point.changes {
                // A parameter of a congestion control is a part of its text, and a table has no one value.
                changed.set_item(path, part.variation.parameters.get(path))?;
            }
            one.set_item("changed", changed)?;
            one.set_item("name", &document.name)?;
            one.set_item("file", &document.file)?;
            one.set_item("text", document.text())?;
            let changes = document.changes().iter();
            let changes: Vec<String> = changes.map(|c| format!("{}={}", c.path, c.value)).collect();
            one.set_item("changes", changes)?;
            let files = PyDict::new(py);
            for (name, bytes) in document.files() {
                files.set_item(name, PyBytes::new(py, bytes))?;
            }
            one.set_item("files", files)?;
            all.append(one)?;
        }
        Ok(all)
    }

    /// The table of the command, as text and as CSV, from the metrics of each series by seed.
    #[expect(clippy::needless_pass_by_value, reason = "arguments of a Python function are owned")]
    fn table(
        &self,
        py: Python<'_>,
        figures: Vec<BTreeMap<u64, BTreeMap<String, f64>>>,
    ) -> PyResult<(String, String)> {
        let mut results = Results::new(self.spread);
        for (number, (point, document)) in self.points.iter().enumerate() {
            let mut runs = Vec::new();
            for (part, by_seed) in self.parts.iter().zip(&figures).filter(|(part, _)| part.point == number) {
                for (&seed, metrics) in by_seed {
                    let mut run = RunData { metrics: metrics.clone(), ..RunData::default() };
                    run.meta.case = part.variation.case.clone();
                    run.meta.variant = part.variation.variant.clone();
                    (run.meta.engine, run.meta.seed) = (Engine::Sim, seed);
                    runs.push(run);
                }
            }
            if runs.is_empty() {
                continue;
            }
            results.add(point, &table::set(document, runs).map_err(|error| invalid(py, &error, None))?);
        }
        Ok((results.text(), results.csv().to_owned()))
    }
}

/// A series where its seeds are run.
#[pyclass(module = "taut_lab._native", frozen)]
pub(crate) struct Series {
    scenario: String,
    variation: Variation,
    trouble: Trouble,
}

#[pymethods]
impl Series {
    /// Reads the scenario again, with the values of [`Grid::parts`].
    #[new]
    #[pyo3(signature = (name, file, text, changes, case, variant, files, controllers))]
    #[expect(clippy::needless_pass_by_value, reason = "arguments of a Python function are owned")]
    #[expect(clippy::too_many_arguments, reason = "the package alone calls it")]
    fn new(
        py: Python<'_>,
        name: &str,
        file: &str,
        text: &str,
        changes: Vec<String>,
        case: &str,
        variant: &str,
        files: BTreeMap<String, Vec<u8>>,
        controllers: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let trouble = Trouble::default();
        let controllers = controller::registry(controllers, &trouble)?;
        let load = |error: LoadError| invalid(py, &error, Some(file));
        let changes: Vec<Change> =
            changes.iter().map(|change| Change::parse(change)).collect::<Result<_, _>>().map_err(load)?;
        let read = |file: &str| files.get(file).cloned().ok_or_else(|| "did not come along".to_owned());
        let document = Document::parse_with(name, file, text, &changes, &controllers, &read);
        let document = document.map_err(load)?;
        let is_it = |variation: &Variation| variation.case == case && variation.variant == variant;
        let variation = document.variations().map_err(load)?.into_iter().find(is_it);
        let variation = variation.ok_or_else(|| {
            PyValueError::new_err(format!("{name} has no case {case:?} with variant {variant:?}"))
        })?;
        Ok(Self { scenario: name.to_owned(), variation, trouble })
    }

    /// What a run depends on beside its seed and the code.
    #[getter]
    fn describes(&self) -> String {
        describes(&self.variation)
    }

    /// Runs one seed: the digest of all that happened, and the metrics.
    fn run(&self, py: Python<'_>, seed: u64) -> PyResult<(Option<String>, BTreeMap<String, f64>)> {
        let job = Job {
            scenario: self.scenario.clone(),
            variation: self.variation.clone(),
            seed,
            engine: Engine::Sim,
            keep: false,
            device: LiveDevice::default(),
            real_time: false,
            command: "taut_lab.sweep".to_owned(),
        };
        let outcome = py.detach(|| sim::run(&job, &|_| !self.trouble.is_there()));
        // What a controller raised stopped the run.
        if let Some(error) = self.trouble.take() {
            return Err(error);
        }
        let data = outcome.map_err(|error| run_error(py, format!("{}: {error}", job.label())))?.data;
        Ok((data.meta.digest, data.metrics))
    }
}
