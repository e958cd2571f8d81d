//! A congestion control as a connection has it: a definition, and the values of its parameters. Its text,
//! `bbr` or `mine:gain=2.5,floor=4`, is the same thing in words. Called by `congestion/mod.rs`; users meet [`Algorithm`]
//! in the configuration and in socket options.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use super::controller::Controller;
use super::definition::{Definition, EcnUse, Params};
use super::{bbr, cubic, dctcp, prague, reno};

/// A congestion control that was chosen, with its parameters; a pointer that is cheap to clone.
///
/// Two are equal when they have the same name and the same values.
#[derive(Clone)]
pub struct Algorithm(Arc<Definition>);

/// Why there is no such congestion control.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// None has that name.
    #[error("no congestion control is called {name}; there are {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A parameter is none of its, or not in its range.
    #[error("{name}: {why}")]
    Param {
        /// The congestion control.
        name: String,
        /// The parameter, what is wrong with it, and what would be right.
        why: String,
    },
    /// A definition cannot be used.
    #[error("the congestion control \"{name}\" is not well defined: {why}")]
    Definition {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Algorithm {
    /// RFC 5681.
    #[must_use]
    pub fn reno() -> Self {
        Self(Arc::new(reno::definition()))
    }

    /// RFC 9438.
    #[must_use]
    pub fn cubic() -> Self {
        Self(Arc::new(cubic::definition()))
    }

    /// BBR version 3, draft-ietf-ccwg-bbr.
    #[must_use]
    pub fn bbr() -> Self {
        Self(Arc::new(bbr::definition()))
    }

    /// RFC 8257, for networks that mark early, and for those only.
    #[must_use]
    pub fn dctcp() -> Self {
        Self(Arc::new(dctcp::definition()))
    }

    /// DCTCP's rule on paths with an L4S queue, RFC 9331 and draft-briscoe-iccrg-prague-congestion-control.
    #[must_use]
    pub fn prague() -> Self {
        Self(Arc::new(prague::definition()))
    }

    /// All that are built in.
    #[must_use]
    pub fn built_in() -> [Self; 5] {
        [Self::reno(), Self::cubic(), Self::bbr(), Self::dctcp(), Self::prague()]
    }

    /// One of your own, with the defaults of its parameters. [`Registry::add`](super::Registry::add) makes one that can
    /// be had by name, too.
    ///
    /// # Errors
    /// [`AlgorithmError::Definition`].
    pub fn new(definition: Definition) -> Result<Self, AlgorithmError> {
        match definition.mistake() {
            None => Ok(Self(Arc::new(definition))),
            Some(why) => Err(AlgorithmError::Definition { name: definition.name().into(), why }),
        }
    }

    /// The same with another value of a parameter.
    ///
    /// # Errors
    /// [`AlgorithmError::Param`].
    pub fn with(mut self, param: &str, value: f64) -> Result<Self, AlgorithmError> {
        let set = Arc::make_mut(&mut self.0).params.set(param, &value.to_string());
        set.map_err(|why| self.wrong(why)).map(|()| self)
    }

    /// The same with the parameters of a text, `gain=2.5,floor=4`.
    pub(super) fn with_text(mut self, text: &str) -> Result<Self, AlgorithmError> {
        let mut given = Vec::new();
        for word in text.split(',') {
            let Some((name, value)) = word.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
            else {
                return Err(
                    self.wrong(format!("\"{word}\" is no parameter: write NAME=VALUE, as in gain=2.5"))
                );
            };
            if given.contains(&name) {
                return Err(self.wrong(format!("{name} is given twice")));
            }
            given.push(name);
            let set = Arc::make_mut(&mut self.0).params.set(name, value);
            set.map_err(|why| self.wrong(why))?;
        }
        Ok(self)
    }

    fn wrong(&self, why: String) -> AlgorithmError {
        AlgorithmError::Param { name: self.name().into(), why }
    }

    /// The name that `TCP_CONGESTION` knows it by.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Its parameters, and the values that they have.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.0.params
    }

    /// What it does with congestion marks.
    #[must_use]
    pub fn ecn(&self) -> EcnUse {
        self.0.ecn
    }

    pub(crate) fn paces(&self) -> bool {
        self.0.paces
    }

    pub(super) fn first_pacing_percent(&self) -> Option<u16> {
        self.0.first_pacing_percent
    }

    pub(super) fn make(&self) -> Box<dyn Controller> {
        self.0.make()
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.name() == other.name() && self.params() == other.params())
    }
}

// No value is NaN: no range contains it.
impl Eq for Algorithm {}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Its name, and those parameters whose values somebody chose: a text that [`Registry`](super::Registry) takes again.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.name().to_string();
        let chosen = self.params().iter().filter(|param| param.value() != param.default());
        for (number, param) in chosen.enumerate() {
            let sign = if number == 0 { ':' } else { ',' };
            text.push_str(&format!("{sign}{}={}", param.name(), param.value()));
        }
        f.pad(&text)
    }
}
