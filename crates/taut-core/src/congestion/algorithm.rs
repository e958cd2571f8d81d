//! The congestion control of a connection: a definition, and the values of its parameters. It can be written
//! as text, such as `bbr` or `mine:gain=2.5,floor=4`. Called by `congestion/mod.rs`; [`Algorithm`] is also
//! the type of the setting in the configuration and in socket options.

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

/// A congestion control with its parameters; cheap to clone, because it is a pointer.
///
/// Two are equal when they have the same name and the same values.
#[derive(Clone)]
pub struct Algorithm(Arc<Definition>);

/// Why a congestion control cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// No algorithm has that name.
    #[error("unknown congestion control {name}; choose one of {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The algorithm has no such parameter, or the value is out of range.
    #[error("{name}: {why}")]
    Param {
        /// The congestion control.
        name: String,
        /// The parameter, the mistake, and the allowed values.
        why: String,
    },
    /// The definition of an algorithm is invalid.
    #[error("the definition of the congestion control \"{name}\" is invalid: {why}")]
    Definition {
        /// Its name.
        name: String,
        /// The mistake.
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

    /// DCTCP's rule for paths with an L4S queue, RFC 9331 and draft-briscoe-iccrg-prague-congestion-control.
    #[must_use]
    pub fn prague() -> Self {
        Self(Arc::new(prague::definition()))
    }

    /// All built-in algorithms.
    #[must_use]
    pub fn built_in() -> [Self; 5] {
        [Self::reno(), Self::cubic(), Self::bbr(), Self::dctcp(), Self::prague()]
    }

    /// An algorithm of your own, with the default values of its parameters.
    /// [`Registry::add`](super::Registry::add) does the same and also makes it available by name.
    ///
    /// # Errors
    /// [`AlgorithmError::Definition`].
    pub fn new(definition: Definition) -> Result<Self, AlgorithmError> {
        match definition.mistake() {
            None => Ok(Self(Arc::new(definition))),
            Some(why) => Err(AlgorithmError::Definition { name: definition.name().into(), why }),
        }
    }

    /// The same algorithm with another value of one parameter.
    ///
    /// # Errors
    /// [`AlgorithmError::Param`].
    pub fn with(mut self, param: &str, value: f64) -> Result<Self, AlgorithmError> {
        let set = Arc::make_mut(&mut self.0).params.set(param, &value.to_string());
        set.map_err(|why| self.wrong(why)).map(|()| self)
    }

    /// The same algorithm with parameters from a text such as `gain=2.5,floor=4`.
    pub(super) fn with_text(mut self, text: &str) -> Result<Self, AlgorithmError> {
        let mut given = Vec::new();
        for word in text.split(',') {
            let Some((name, value)) = word.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
            else {
                return Err(
                    self.wrong(format!("\"{word}\" is not a parameter; write NAME=VALUE, such as gain=2.5"))
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

    /// Its name, as `TCP_CONGESTION` knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Its parameters and their values.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.0.params
    }

    /// How it uses congestion marks.
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

/// Its name, and the parameters that differ from their defaults, in the form that
/// [`Registry`](super::Registry) reads.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// BBR's draft §5.6.2 and Prague's §3.5 need pacing; the others go without, as in Linux.
    #[test]
    fn who_paces() {
        let paces = Algorithm::built_in().map(|algorithm| algorithm.paces());
        assert_eq!(paces, [false, false, true, false, true], "reno, cubic, bbr, dctcp, prague");
    }
}
