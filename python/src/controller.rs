//! Congestion controllers written in Python: a `Definition` that makes an object of the user's class for each
//! connection, and a `Controller` that asks this object. Called by `runs.rs`; `lib/taut_lab/_controller.py`
//! has the class to inherit from.
//!
//! A call takes the interpreter's lock, and may fail. The first exception of a run is kept in [`Trouble`],
//! which stops the run and is raised there; from then on the window stays as it is.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use taut_core::congestion::{
    AckEvent, Controller, Definition, EcnUse, LostPacket, Params, Registry, Signal, Window,
};
use taut_core::{Duration, Instant};

/// The first exception that a controller raised.
#[derive(Clone, Default)]
pub(crate) struct Trouble(Arc<(AtomicBool, Mutex<Option<PyErr>>)>);

impl Trouble {
    fn put(&self, error: PyErr) {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.0.0.store(true, Ordering::Release);
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Takes it.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Seconds since the run began.
fn at(now: Instant) -> f64 {
    seconds(now.since(taut_sim::BEGIN))
}

fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// The congestion window of a connection, in segments.
#[pyclass(name = "Window", module = "taut_lab")]
pub(crate) struct PyWindow(Window);

#[pymethods]
impl PyWindow {
    /// A window of `cwnd` segments in slow start, to try a controller without a run.
    #[new]
    fn new(cwnd: u32) -> Self {
        Self(Window::new(cwnd))
    }

    /// Segments that may be in flight; setting it keeps it between 1 and 2**24.
    #[getter]
    fn cwnd(&self) -> u32 {
        self.0.cwnd()
    }

    #[setter]
    fn set_cwnd(&mut self, cwnd: u32) {
        self.0.set_cwnd(cwnd);
    }

    /// Where slow start ends, in segments; None until the first reduction.
    #[getter]
    fn ssthresh(&self) -> Option<u32> {
        Some(self.0.ssthresh()).filter(|segments| *segments != u32::MAX)
    }

    /// Whether cwnd is below ssthresh.
    #[getter]
    fn in_slow_start(&self) -> bool {
        self.0.in_slow_start()
    }

    /// Slow start by `acked` segments, up to ssthresh; returns the segments left over.
    fn slow_start(&mut self, acked: u32) -> u32 {
        self.0.slow_start(acked)
    }

    /// One segment more for every `every` segments acknowledged.
    fn additive(&mut self, every: u32, acked: u32) {
        self.0.additive(every, acked);
    }

    /// Ends slow start here: ssthresh = cwnd.
    fn leave_slow_start(&mut self) {
        self.0.leave_slow_start();
    }

    /// The rate samples from now until everything in flight is acknowledged do not show what the path can
    /// carry.
    fn mark_app_limited(&mut self) {
        self.0.mark_app_limited();
    }

    fn __repr__(&self) -> String {
        match self.ssthresh() {
            Some(ssthresh) => format!("Window(cwnd={}, ssthresh={ssthresh})", self.cwnd()),
            None => format!("Window(cwnd={})", self.cwnd()),
        }
    }
}

/// A measurement of the delivery rate.
#[pyclass(name = "RateSample", module = "taut_lab", frozen, get_all)]
#[derive(Clone, Copy)]
pub(crate) struct PyRateSample {
    delivered: u32,
    interval_s: f64,
    bytes_per_s: u64,
    is_app_limited: bool,
    prior_in_flight: u32,
    tx_in_flight: u32,
    prior_delivered: u64,
    lost: u32,
    losses: u32,
    acked_sacked: u32,
}

/// An ACK's content and consequences.
#[pyclass(name = "Ack", module = "taut_lab", frozen, get_all)]
pub(crate) struct PyAck {
    now_s: f64,
    mss: u32,
    acked: u32,
    newly_lost: u32,
    prior_in_flight: u32,
    in_flight: u32,
    total_delivered: u64,
    total_lost: u32,
    rtt_s: Option<f64>,
    srtt_s: Option<f64>,
    min_rtt_s: Option<f64>,
    una: u64,
    nxt: u64,
    rate: Option<PyRateSample>,
    ece: bool,
    delivered_ce: u32,
    cwnd_limited: bool,
    recovering: bool,
    seed: u64,
}

impl PyAck {
    fn new(ack: &AckEvent<'_>) -> Self {
        let rate = ack.rate.map(|rate| PyRateSample {
            delivered: rate.delivered,
            interval_s: seconds(rate.interval),
            bytes_per_s: rate.bytes_per_sec(ack.mss),
            is_app_limited: rate.is_app_limited,
            prior_in_flight: rate.prior_in_flight,
            tx_in_flight: rate.tx_in_flight,
            prior_delivered: rate.prior_delivered,
            lost: rate.lost,
            losses: rate.losses,
            acked_sacked: rate.acked_sacked,
        });
        Self {
            now_s: at(ack.now),
            mss: ack.mss,
            acked: ack.acked,
            newly_lost: ack.newly_lost,
            prior_in_flight: ack.prior_in_flight,
            in_flight: ack.in_flight,
            total_delivered: ack.total_delivered,
            total_lost: ack.total_lost,
            rtt_s: ack.rtt.map(seconds),
            srtt_s: ack.srtt.map(seconds),
            min_rtt_s: ack.min_rtt.map(seconds),
            una: ack.una,
            nxt: ack.nxt,
            rate,
            ece: ack.ece,
            delivered_ce: ack.delivered_ce,
            cwnd_limited: ack.cwnd_limited,
            recovering: ack.recovering,
            seed: ack.seed,
        }
    }
}

/// A packet, or a part of one, that was found lost.
#[pyclass(name = "LostPacket", module = "taut_lab", frozen, get_all)]
pub(crate) struct PyLostPacket {
    segs: u32,
    tx_in_flight: u32,
    lost: u32,
    total_delivered: u64,
    is_app_limited: bool,
}

/// Which of the methods that need not be there the class has: each call takes the interpreter's lock.
#[derive(Clone, Copy, Default)]
struct Has {
    observe: bool,
    on_packet_lost: bool,
    on_timeout: bool,
    on_recovery_end: bool,
    undo: bool,
    on_idle_end: bool,
    pacing_rate: bool,
    send_quantum: bool,
}

/// What is known of a class before an object of it is made.
#[derive(Clone, Copy, Default)]
struct Kind {
    has: Has,
    owns_cwnd: bool,
    send_buffer_windows: Option<u8>,
}

impl Kind {
    fn of(class: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = class.py();
        for name in ["on_ack", "on_loss"] {
            if !class.getattr_opt(name)?.is_some_and(|method| method.is_callable()) {
                return Err(PyTypeError::new_err(format!("{class}: a controller needs a method {name}")));
            }
        }
        // What the class inherits from taut_lab.Controller does nothing, and is not called.
        let base = py.import(intern!(py, "taut_lab._controller"))?.getattr(intern!(py, "Controller"))?;
        let has = |name: &str| -> PyResult<bool> {
            let Some(own) = class.getattr_opt(name)? else { return Ok(false) };
            Ok(base.getattr_opt(name)?.is_none_or(|inherited| !own.is(&inherited)))
        };
        Ok(Self {
            has: Has {
                observe: has("observe")?,
                on_packet_lost: has("on_packet_lost")?,
                on_timeout: has("on_timeout")?,
                on_recovery_end: has("on_recovery_end")?,
                undo: has("undo")?,
                on_idle_end: has("on_idle_end")?,
                pacing_rate: has("pacing_rate")?,
                send_quantum: has("send_quantum")?,
            },
            owns_cwnd: attribute(class, "owns_cwnd")?.unwrap_or(false),
            send_buffer_windows: attribute(class, "send_buffer_windows")?,
        })
    }
}

/// A class attribute, if it is there.
fn attribute<'py, T>(class: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py>,
    for<'a> <T as FromPyObject<'a, 'py>>::Error: Into<PyErr>,
{
    let value = class.getattr_opt(name)?.filter(|value| !value.is_none());
    value.map(|value| value.extract().map_err(Into::into)).transpose()
}

/// Adds the classes to the congestion controls that scenarios may name.
///
/// # Errors
/// When a class lacks a method, or one of its attributes is not what it should be.
pub(crate) fn registry(classes: Option<&Bound<'_, PyDict>>, trouble: &Trouble) -> PyResult<Registry> {
    let mut registry = Registry::default();
    for (name, class) in classes.into_iter().flatten() {
        let definition = definition(&name.extract::<String>()?, &class, trouble)?;
        registry.add(definition).map_err(|error| PyValueError::new_err(error.to_string()))?;
    }
    Ok(registry)
}

fn definition(name: &str, class: &Bound<'_, PyAny>, trouble: &Trouble) -> PyResult<Definition> {
    let kind = Kind::of(class)?;
    let mut params: Vec<(String, f64, f64, f64, String)> = Vec::new();
    if let Some(given) = attribute::<Bound<'_, PyDict>>(class, "params")? {
        for (param, spec) in given {
            let param: String = param.extract()?;
            let wrong = |_| {
                PyTypeError::new_err(format!(
                    "{name}: params[{param:?}] must be (default, least, most, help)"
                ))
            };
            let (default, least, most, help) = spec.extract().map_err(wrong)?;
            params.push((param, default, least, most, help));
        }
    }
    let names: Vec<String> = params.iter().map(|param| param.0.clone()).collect();
    let (maker, trouble) = (class.clone().unbind(), trouble.clone());
    let make = move |params: &Params| PyController::new(&maker, kind, &names, params, &trouble);
    let mut definition = Definition::new(name.to_owned(), make);
    for (param, default, least, most, help) in params {
        definition = definition.param(param, default, least..=most, help);
    }
    if attribute(class, "paced")?.unwrap_or(false) {
        definition = definition.paced();
    }
    if let Some(percent) = attribute(class, "first_pacing_percent")? {
        definition = definition.first_pacing_percent(percent);
    }
    match attribute::<String>(class, "ecn")?.as_deref() {
        None | Some("classic") => Ok(definition),
        Some("precise") => Ok(definition.ecn(EcnUse::Precise)),
        Some("l4s") => Ok(definition.ecn(EcnUse::L4s)),
        Some(other) => {
            Err(PyValueError::new_err(format!("{name}: ecn must be classic, precise or l4s, not {other}")))
        }
    }
}

/// The controller of one connection.
struct PyController {
    /// None when it could not be made.
    object: Option<Py<PyAny>>,
    window: Option<Py<PyWindow>>,
    kind: Kind,
    trouble: Trouble,
}

impl fmt::Debug for PyController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PyController").finish_non_exhaustive()
    }
}

impl PyController {
    fn new(class: &Py<PyAny>, kind: Kind, names: &[String], params: &Params, trouble: &Trouble) -> Self {
        let made = Python::attach(|py| -> PyResult<_> {
            let keywords = PyDict::new(py);
            for name in names {
                keywords.set_item(name, params.get(name))?;
            }
            Ok((class.call(py, (), Some(&keywords))?, Py::new(py, PyWindow(Window::new(1)))?))
        });
        let (object, window) = match made {
            Ok((object, window)) => (Some(object), Some(window)),
            Err(error) => {
                trouble.put(error);
                (None, None)
            }
        };
        Self { object, window, kind, trouble: trouble.clone() }
    }

    /// Calls something of the object. Nothing is called after an exception.
    fn ask<T>(
        &self,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>, &Bound<'py, PyWindow>) -> PyResult<T>,
    ) -> Option<T> {
        let (object, own) = self.object.as_ref().zip(self.window.as_ref())?;
        if self.trouble.is_there() {
            return None;
        }
        let result = Python::attach(|py| call(object.bind(py), own.bind(py)));
        result.map_err(|error| self.trouble.put(error)).ok()
    }

    /// The same with a window, which the object may change if it is to be kept.
    fn with_window<T>(
        &self,
        window: &Window,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>, &Bound<'py, PyWindow>) -> PyResult<T>,
    ) -> Option<(T, Window)> {
        self.ask(|object, own| {
            own.try_borrow_mut()?.0 = *window;
            let result = call(object, own)?;
            Ok((result, own.try_borrow()?.0))
        })
    }

    /// A method that may change the window and returns nothing.
    fn change<'a>(
        &self,
        window: &mut Window,
        name: &str,
        arguments: impl FnOnce(Python<'_>) -> PyResult<Vec<Py<PyAny>>> + 'a,
    ) {
        let changed = self.with_window(window, |object, own| {
            let mut all = vec![own.clone().into_any().unbind()];
            all.extend(arguments(object.py())?);
            object.call_method1(name, PyTuple::new(object.py(), all)?).map(drop)
        });
        if let Some(((), after)) = changed {
            *window = after;
        }
    }
}

fn number(py: Python<'_>, value: f64) -> PyResult<Py<PyAny>> {
    Ok(value.into_pyobject(py)?.into_any().unbind())
}

const fn word(why: Signal) -> &'static str {
    match why {
        Signal::Mark => "mark",
        Signal::LocalQueue => "local-queue",
        Signal::Timeout => "timeout",
        _ => "loss",
    }
}

impl Controller for PyController {
    fn observe(&mut self, ack: &AckEvent<'_>) {
        if self.kind.has.observe {
            self.ask(|object, _| {
                object.call_method1(intern!(object.py(), "observe"), (PyAck::new(ack),)).map(drop)
            });
        }
    }

    fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {
        let changed = self.with_window(window, |object, own| {
            object.call_method1(intern!(object.py(), "on_ack"), (own, PyAck::new(ack))).map(drop)
        });
        if let Some(((), after)) = changed {
            *window = after;
        }
    }

    fn reduce(&mut self, window: &Window, why: Signal, now: Instant) -> u32 {
        let asked = self.with_window(window, |object, own| {
            let py = object.py();
            let answer = object.call_method1(intern!(py, "on_loss"), (own, word(why), at(now)))?;
            answer.extract::<u32>().map_err(|_| {
                let text = answer.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
                PyTypeError::new_err(format!(
                    "on_loss must return the new ssthresh, a whole number of segments from 0, not {text}"
                ))
            })
        });
        // The stack keeps at least two segments.
        asked.map_or_else(|| window.cwnd(), |(ssthresh, _)| ssthresh.max(1))
    }

    fn on_lost(&mut self, packet: &LostPacket) {
        if self.kind.has.on_packet_lost {
            let LostPacket { segs, tx_in_flight, lost, total_delivered, is_app_limited, .. } = *packet;
            let packet = PyLostPacket { segs, tx_in_flight, lost, total_delivered, is_app_limited };
            self.ask(|object, _| {
                object.call_method1(intern!(object.py(), "on_packet_lost"), (packet,)).map(drop)
            });
        }
    }

    fn on_timeout(&mut self, window: &mut Window) {
        if self.kind.has.on_timeout {
            self.change(window, "on_timeout", |_| Ok(Vec::new()));
        }
    }

    fn on_recovery_end(&mut self, window: &mut Window) {
        if self.kind.has.on_recovery_end {
            self.change(window, "on_recovery_end", |_| Ok(Vec::new()));
        }
    }

    fn undo(&mut self, window: &mut Window, now: Instant) {
        if self.kind.has.undo {
            self.change(window, "undo", |py| Ok(vec![number(py, at(now))?]));
        }
    }

    fn on_idle_end(&mut self, window: &mut Window, now: Instant, idle: Duration) {
        if self.kind.has.on_idle_end {
            self.change(window, "on_idle_end", |py| {
                Ok(vec![number(py, at(now))?, number(py, seconds(idle))?])
            });
        }
    }

    fn owns_cwnd(&self) -> bool {
        self.kind.owns_cwnd
    }

    fn pacing_rate(&self) -> Option<u64> {
        if !self.kind.has.pacing_rate {
            return None;
        }
        self.ask(|object, _| object.call_method0(intern!(object.py(), "pacing_rate"))?.extract()).flatten()
    }

    fn send_quantum(&self) -> Option<u32> {
        if !self.kind.has.send_quantum {
            return None;
        }
        self.ask(|object, _| object.call_method0(intern!(object.py(), "send_quantum"))?.extract()).flatten()
    }

    fn send_buffer_windows(&self) -> u8 {
        self.kind.send_buffer_windows.unwrap_or(2)
    }
}
