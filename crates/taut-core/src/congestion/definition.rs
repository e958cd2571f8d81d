//! The definition of a congestion control: its name, its parameters, its demands on the connection, and how
//! to make its state. The trait that it implements is in `controller.rs`. Called by `algorithm.rs` and
//! `registry.rs`; the built-in algorithms are defined in the same way as a user's.

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
    /// ECN if `tcp_ecn` says so, then by RFC 3168: one reduction per round trip, however much was marked.
    Classic,
    /// Always ECN, and the peer must report for every segment whether it was marked. RFC 8257 §3.2, RFC 9768.
    Precise,
    /// Always accurate ECN, or none at all. ECT(1) assigns packets to a queue that marks early. RFC 9331, RFC
    /// 9768.
    L4s,
}

/// A congestion control that connections can use.
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
/// // By name, for a whole stack:
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
    /// A congestion control with this name, for `TCP_CONGESTION`, `tcp_congestion_control` and `ss`: letters,
    /// digits, `-` and `_`. `make` makes the state of a connection when it first sends data.
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

    /// Adds a parameter, a number that users may set; `make` reads it with [`Params::get`].
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

    /// Packets are paced even if the user does not ask for it; usually at [`Controller::pacing_rate`].
    #[must_use]
    pub fn paced(mut self) -> Self {
        self.paces = true;
        self
    }

    /// The pacing rate before the first ACK, in percent of cwnd/SRTT; `tcp_pacing_ss_ratio` by default.
    #[must_use]
    pub fn first_pacing_percent(mut self, percent: u16) -> Self {
        self.first_pacing_percent = Some(percent);
        self
    }

    /// How it uses congestion marks; [`EcnUse::Classic`] by default.
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

    /// The mistake because of which this definition cannot be used, if there is one.
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

/// Whether the name can be used in a text like `mine:gain=2.5,floor=4`.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// A parameter of a congestion control, and its value.
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

    /// Its description, in one line.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }

    /// The allowed range.
    #[must_use]
    pub fn range(&self) -> &RangeInclusive<f64> {
        &self.range
    }

    /// The default value.
    #[must_use]
    pub fn default(&self) -> f64 {
        self.default
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The allowed range in words.
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
    /// If the definition has no parameter with that name.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        let param = self.iter().find(|param| param.name == name);
        param.unwrap_or_else(|| panic!("the definition has no .param({name:?}, …)")).value
    }

    /// All parameters.
    pub fn iter(&self) -> impl Iterator<Item = &Param> {
        self.0.iter()
    }

    /// Sets a parameter; the error is the reason why it cannot have that value.
    pub(super) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let Some(param) = self.0.iter_mut().find(|param| param.name == name) else {
            return Err(format!("unknown parameter {name}; {}", self.known()));
        };
        let value = text.parse().ok().filter(|value| param.range.contains(value));
        param.value = value.ok_or_else(|| format!("{name} = {text}: must be {}", param.expected()))?;
        Ok(())
    }

    /// The list of parameters, for an error message.
    fn known(&self) -> String {
        let known: Vec<String> =
            self.iter().map(|param| format!("{}, {}", param.name, param.expected())).collect();
        if known.is_empty() { "it has no parameters".into() } else { format!("it has {}", known.join("; ")) }
    }
}
