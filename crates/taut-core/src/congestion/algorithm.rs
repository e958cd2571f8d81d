//! Which congestion controls there are, by Linux's names.
//! Called by `congestion/mod.rs`; users meet [`Algorithm`] in the configuration and in socket options.

use alloc::boxed::Box;
use core::fmt;

use super::controller::Controller;
use super::{bbr, cubic, dctcp, prague, reno};

/// A congestion control: one built in, or one from outside. Its name is the same thing in words.
#[derive(Clone, Copy)]
pub struct Algorithm(&'static Definition);

/// What makes a congestion control. Those built in are defined no differently: a `static` of this is all it takes, handed
/// in with `ConnOptions { congestion: Some(Algorithm::custom(&MINE)), .. }` for one connection, or as one of
/// [`CongestionConfig::custom`](super::CongestionConfig::custom) to be had by name everywhere.
#[derive(Debug)]
pub struct Definition {
    /// Its name for `TCP_CONGESTION`, `tcp_congestion_control` and `ss`. Linux's, where it is also Linux's.
    pub name: &'static str,
    /// Packets are to be spaced, whatever the user says; usually at [`Controller::pacing_rate`].
    pub paces: bool,
    /// Rate before the first ACK in percent of cwnd/SRTT; `None` for the usual, `tcp_pacing_ss_ratio`.
    pub first_pacing_percent: Option<u16>,
    /// What it does with congestion marks.
    pub ecn: EcnUse,
    /// Makes the state of a connection, when it first sends data.
    pub make: fn() -> Box<dyn Controller>,
}

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

impl Algorithm {
    /// RFC 5681.
    #[allow(
        non_upper_case_globals,
        reason = "read like the variants of an enum, which they are but for `custom`"
    )]
    pub const Reno: Self = Self(&reno::DEFINITION);
    /// RFC 9438.
    #[allow(non_upper_case_globals, reason = "as above")]
    pub const Cubic: Self = Self(&cubic::DEFINITION);
    /// BBR version 3, draft-ietf-ccwg-bbr.
    #[allow(non_upper_case_globals, reason = "as above")]
    pub const Bbr: Self = Self(&bbr::DEFINITION);
    /// RFC 8257, for networks that mark early, and for those only.
    #[allow(non_upper_case_globals, reason = "as above")]
    pub const Dctcp: Self = Self(&dctcp::DEFINITION);

    /// DCTCP's rule on paths with an L4S queue, RFC 9331 and draft-briscoe-iccrg-prague-congestion-control.
    #[allow(non_upper_case_globals, reason = "as above")]
    pub const Prague: Self = Self(&prague::DEFINITION);

    /// All that are built in.
    pub const ALL: [Self; 5] = [Self::Reno, Self::Cubic, Self::Bbr, Self::Dctcp, Self::Prague];

    /// One from outside.
    #[must_use]
    pub const fn custom(definition: &'static Definition) -> Self {
        Self(definition)
    }

    /// The name that `TCP_CONGESTION` knows it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// What it does with congestion marks.
    #[must_use]
    pub const fn ecn(self) -> EcnUse {
        self.0.ecn
    }

    /// The built-in algorithm of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    pub(crate) const fn paces(self) -> bool {
        self.0.paces
    }

    pub(super) const fn first_pacing_percent(self) -> Option<u16> {
        self.0.first_pacing_percent
    }

    pub(super) fn make(self) -> Box<dyn Controller> {
        (self.0.make)()
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Algorithm {}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
