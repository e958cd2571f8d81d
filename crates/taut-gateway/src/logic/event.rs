//! What the gateway's log says. Made by `gateway.rs`.

use std::net::{IpAddr, SocketAddr};

use taut::FlowKind;

use crate::logic::guests::Counted;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rule denied a flow.
    Denied {
        /// Who wanted it.
        guest: SocketAddr,
        /// What it was.
        kind: FlowKind,
        /// Where it was to go.
        to: SocketAddr,
        /// The rule.
        rule: String,
    },
    /// A rule denied a name.
    NameDenied {
        /// Who asked.
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
        /// Who wanted it.
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
