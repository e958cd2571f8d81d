//! The lab's simulator as a WebAssembly module: a run is begun from a scenario's name or text, goes on by
//! simulated time, says at each step where all bytes are, and ends with the figures that `taut lab run
//! --json` prints for the same scenario and seed, bit for bit.
//!
//! `run.rs` has what it does, in plain Rust with JSON at its edges; here is its face for JavaScript, which
//! the worker of `playground/src/worker.ts` calls.

mod run;

use wasm_bindgen::prelude::*;

pub use run::{FIELDS, Request, Run};

/// The built-in scenarios, as JSON: name, title, about, source, cases, variants, and the published figures
/// with their units.
///
/// # Errors
/// Never for the scenarios that are built in.
#[wasm_bindgen]
pub fn scenarios() -> Result<String, JsError> {
    run::scenarios().map_err(|why| JsError::new(&why))
}

/// The names of a frame's values, in their order, as JSON.
#[wasm_bindgen]
#[must_use]
pub fn fields() -> String {
    serde_json::to_string(&FIELDS).unwrap_or_default()
}

/// The names and words of what can hold a sender back, as JSON; a frame has its number here.
#[wasm_bindgen]
#[must_use]
pub fn gates() -> String {
    run::gates()
}

/// A run.
#[wasm_bindgen]
pub struct Simulation(Run);

#[wasm_bindgen]
impl Simulation {
    /// Begins a run: `request` is the JSON of a [`Request`].
    ///
    /// # Errors
    /// When the request is not one, or the scenario is invalid: the message names the key.
    #[wasm_bindgen(constructor)]
    pub fn new(request: &str) -> Result<Simulation, JsError> {
        let request = serde_json::from_str(request).map_err(|error| JsError::new(&error.to_string()))?;
        Run::new(&request).map(Self).map_err(|why| JsError::new(&why))
    }

    /// What runs, as JSON: every parameter by its path, duration, warm-up, topology.
    #[must_use]
    pub fn about(&self) -> String {
        self.0.about()
    }

    /// Simulates until so many seconds after the beginning, and returns the frame there, its values in the
    /// order of [`fields`]; a value that there is not is NaN.
    ///
    /// # Errors
    /// When an invariant of the simulator fails.
    pub fn step(&mut self, until_s: f64) -> Result<Vec<f64>, JsError> {
        self.0.step(until_s).map(|frame| frame.to_vec()).map_err(|why| JsError::new(&why))
    }

    /// Simulates what is left; returns the run's data as JSON, as in `runs` of `taut lab run --json`.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn finish(self) -> Result<String, JsError> {
        self.0.finish().map_err(|why| JsError::new(&why))
    }
}
