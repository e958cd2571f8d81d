//! What makes a congestion control: its name, its parameters, what it asks of the connection, and how its state is made.
//! The trait that it implements stands in `controller.rs`. Called by `algorithm.rs` and `registry.rs`; those that are
//! built in are defined no differently from a user's.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use super::controller::Controller;

/// How an algorithm wants congestion to be marked and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EcnUse {
    /// As `tcp_ecn` says, and then by RFC 3168: one reduction a round trip, however much was marked.
    Classic,
    /// ECN always, and the peer is to say of every segment whether it was marked. RFC 8257 §3.2, RFC 9768.
    Precise,
    /// Accurate ECN always, or none; packets say by ECT(1) that they are for a queue that marks early. RFC 9331, RFC 9768.
    L4s,
}

/// A congestion control that connections can be given.
///
/// ```
/// # use taut_core::congestion::{AckEvent, Controller, Signal, Window};
/// use taut_core::{Algorithm, ConnOptions, StackConfig, congestion::Definition};
/// # #[derive(Debug)]
/// # struct Mine { gain: f64 }
/// # impl Mine { fn new(gain: f64) -> Self { Self { gain } } }
/// # impl Controller for Mine {
/// #     fn on_ack(&mut self, window: &mut Window, ack: &AckEvent<'_>) {}
/// #     fn reduce(&mut self, window: &Window, _: Signal, _: taut_core::Instant) -> u32 { window.cwnd() / 2 }
/// # }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mine = Definition::new("mine", |params| Mine::new(params.get("gain")))
///     .param("gain", 2.0, 1.0..=4.0, "how much faster than delivered to send")
///     .paced();
///
/// // For one connection:
/// let options = ConnOptions { congestion: Some(Algorithm::new(mine.clone())?), ..ConnOptions::default() };
/// // By name, for all of a stack:
/// let mut config = StackConfig::default();
/// config.congestion.registry.add(mine)?;
/// config.set_sysctl("tcp_congestion_control", "mine:gain=2.5")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Definition {
    pub(super) name: Cow<'static, str>,
    pub(super) paces: bool,
    pub(super) first_pacing_percent: Option<u16>,
    pub(super) ecn: EcnUse,
    pub(super) params: Params,
    make: Arc<Maker>,
}

type Maker = dyn Fn(&Params) -> Box<dyn Controller> + Send + Sync;

impl Definition {
    /// One with this name, which `TCP_CONGESTION`, `tcp_congestion_control` and `ss` know it by: letters, digits, `-`
    /// and `_`. `make` makes the state of a connection, when it first sends data.
    #[must_use]
    pub fn new<C: Controller + 'static>(
        name: impl Into<Cow<'static, str>>,
        make: impl Fn(&Params) -> C + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            paces: false,
            first_pacing_percent: None,
            ecn: EcnUse::Classic,
            params: Params::default(),
            make: Arc::new(move |params| Box::new(make(params))),
        }
    }

    /// A number that its user may choose; `make` asks for it by [`Params::get`].
    #[must_use]
    pub fn param(
        mut self,
        name: impl Into<Cow<'static, str>>,
        default: f64,
        range: RangeInclusive<f64>,
        help: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (name, help) = (name.into(), help.into());
        self.params.0.push(Param { name, help, range, default, value: default });
        self
    }

    /// Packets are spaced, whatever the user says; usually at [`Controller::pacing_rate`].
    #[must_use]
    pub fn paced(mut self) -> Self {
        self.paces = true;
        self
    }

    /// The pacing rate before the first ACK, in percent of cwnd/SRTT; without this, `tcp_pacing_ss_ratio`.
    #[must_use]
    pub fn first_pacing_percent(mut self, percent: u16) -> Self {
        self.first_pacing_percent = Some(percent);
        self
    }

    /// What it does with congestion marks; without this, [`EcnUse::Classic`].
    #[must_use]
    pub fn ecn(mut self, ecn: EcnUse) -> Self {
        self.ecn = ecn;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn make(&self) -> Box<dyn Controller> {
        (self.make)(&self.params)
    }

    /// Why it cannot be used, if it cannot: a mistake of its author.
    pub(super) fn mistake(&self) -> Option<String> {
        const WORD: &str = "must be made of letters, digits, - and _";
        if !is_word(&self.name) {
            return Some(format!("its name {WORD}"));
        }
        let params = &self.params.0;
        params.iter().enumerate().find_map(|(index, param)| {
            let Param { name, default, .. } = param;
            if !is_word(name) {
                return Some(format!("the name of its parameter \"{name}\" {WORD}"));
            }
            if params[..index].iter().any(|other| other.name == *name) {
                return Some(format!("it has two parameters called {name}"));
            }
            let is_allowed = param.range.contains(default);
            (!is_allowed).then(|| format!("the default of {name}, {default}, is not {}", param.expected()))
        })
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

/// Whether it can stand in a text like `mine:gain=2.5,floor=4`.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// A parameter of a congestion control, and the value that it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    name: Cow<'static, str>,
    help: Cow<'static, str>,
    range: RangeInclusive<f64>,
    default: f64,
    value: f64,
}

impl Param {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in one line.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }

    /// What it may be.
    #[must_use]
    pub fn range(&self) -> &RangeInclusive<f64> {
        &self.range
    }

    /// What it is unless somebody chooses.
    #[must_use]
    pub fn default(&self) -> f64 {
        self.default
    }

    /// What it is.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Its range in words.
    pub(super) fn expected(&self) -> String {
        format!("a number from {} to {}", self.range.start(), self.range.end())
    }
}

/// The parameters of a congestion control, in the order of their definition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(Vec<Param>);

impl Params {
    /// The value of a parameter.
    ///
    /// # Panics
    /// When the definition has none of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        let param = self.iter().find(|param| param.name == name);
        param.unwrap_or_else(|| panic!("the definition has no .param({name:?}, …)")).value
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Param> {
        self.0.iter()
    }

    /// Gives one a value; why not, if it cannot have it.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let Some(param) = self.0.iter_mut().find(|param| param.name == name) else {
            return Err(format!("no parameter is called {name}; {}", self.known()));
        };
        let value = text.parse().ok().filter(|value| param.range.contains(value));
        param.value = value.ok_or_else(|| format!("{name} = {text}: must be {}", param.expected()))?;
        Ok(())
    }

    /// Those there are.
    fn known(&self) -> String {
        let known: Vec<String> =
            self.iter().map(|param| format!("{}, {}", param.name, param.expected())).collect();
        if known.is_empty() { "it has none".into() } else { format!("there are {}", known.join("; ")) }
    }
}
