//! Lines of the gateway's log. Made by `gateway.rs`.

use std::net::{IpAddr, SocketAddr};

use taut::FlowKind;

use crate::logic::guests::Counted;

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
        rule: String,
    },
    /// A rule denied a name.
    NameDenied {
        /// The guest.
        guest: IpAddr,
        /// For which name.
        name: String,
        /// The rule.
        rule: String,
    },
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
