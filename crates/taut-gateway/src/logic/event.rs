//! Lines of the gateway's log. Made by `gateway.rs`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use taut::FlowKind;

use crate::logic::guests::Counted;

/// A flow that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its kind.
    pub kind: FlowKind,
    /// Where it went: of the gateway's own address, the host's loopback.
    pub to: SocketAddr,
    /// The decision about it.
    pub decision: Decision,
    /// Bytes from the guest, and to it.
    pub bytes: [u64; 2],
    /// From its beginning until something happened last.
    pub time: Duration,
}

/// The decision about a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Its source.
    pub guest: SocketAddr,
    /// The name that it said, or the first that was resolved to its address.
    pub name: Option<String>,
    /// The rule that decided.
    pub rule: Arc<str>,
    /// The rule denies it: it is a dry run.
    pub would_deny: bool,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rule denied a flow.
    Denied {
        /// Its source.
        guest: SocketAddr,
        /// Its kind.
        kind: FlowKind,
        /// Where it was to go.
        to: SocketAddr,
        /// The rule.
        rule: Arc<str>,
    },
    /// A rule denied a name.
    NameDenied {
        /// The guest.
        guest: IpAddr,
        /// For which name.
        name: String,
        /// The rule.
        rule: Arc<str>,
        /// It was resolved nevertheless ([`Settings::dry_run`](crate::Settings::dry_run)).
        is_dry: bool,
    },
    /// A flow of a guest's has ended ([`Settings::decisions`](crate::Settings::decisions)).
    Ended(Ended),
    /// A client gave up before its connection was there.
    Left {
        /// Its address.
        client: SocketAddr,
        /// Where it was to go.
        to: SocketAddr,
    },
    /// There was no room for one more.
    OverLimit {
        /// Its source.
        guest: IpAddr,
        /// Of what.
        what: Counted,
    },
    /// This host had no descriptor, port or memory for a flow. Once a second at most.
    NoResources {
        /// Where it was to go.
        to: SocketAddr,
    },
    /// A port at which the guest listens cannot be opened on the host.
    CannotForward {
        /// Where it was to be.
        at: SocketAddr,
        /// Why not.
        why: String,
    },
    /// No descriptor or memory for clients that wait to be accepted. Once a second at most.
    CannotAccept {
        /// Where they wait.
        at: SocketAddr,
    },
}
