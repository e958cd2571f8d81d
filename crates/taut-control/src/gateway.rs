//! Lists and changes of a running gateway: `taut gateway ctl`.
//!
//! ```text
//! → {"v":1,"request":"gateway","verb":"add_forward","kind":"tcp","ports":"8080:80"}
//! ← {"v":1,"reply":"gateway","data":[{"forward":{"kind":"tcp","at":"127.0.0.1:8080","port":80}}]}
//! ```
//!
//! A change is answered with the new list. `taut-gateway` acts; this is the form on the socket.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A list, or a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GatewayVerb {
    /// Every flow.
    Flows,
    /// The guests that have something in use.
    Guests,
    /// The addresses that virtual machines have leased.
    Leases,
    /// Every forwarded port.
    Forwards,
    /// Forwards ports of the host.
    AddForward(GatewayPorts),
    /// Forwards them no more.
    RemoveForward(GatewayPorts),
    /// Every rule, the first one first.
    Rules,
    /// Puts a rule in front of the one at this place.
    AddRule {
        /// Such as `deny 10.0.0.0/8`.
        rule: String,
        /// The first is 1.
        at: usize,
    },
    /// Takes a rule out.
    RemoveRule {
        /// Its place: the first is 1.
        at: usize,
    },
}

/// Ports of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayPorts {
    /// `tcp` or `udp`.
    pub kind: String,
    /// In the words of the gateway's `-t`, such as `8080:80`.
    pub ports: String,
}

/// One of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GatewayItem {
    /// A flow.
    Flow(GatewayFlow),
    /// A guest.
    Guest(GatewayGuest),
    /// A lease.
    Lease(GatewayLease),
    /// A forwarded port.
    Forward(GatewayForward),
    /// A rule.
    Rule(GatewayRule),
}

/// A flow of a gateway's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayFlow {
    /// `tcp`, `udp` or `ping`.
    pub kind: String,
    /// The guest's end.
    pub guest: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The other end began it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inward: bool,
    /// The name that it said, or the first that was resolved to its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The rule that let it begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Bytes from the guest.
    pub up: u64,
    /// Bytes to the guest.
    pub down: u64,
    /// Since it began.
    pub age_ns: u64,
}

/// A guest, and its use of the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayGuest {
    /// Its address; of IPv6, the first 64 bits.
    pub guest: IpAddr,
    /// Connections.
    pub connections: u32,
    /// Half-open ones among them.
    pub half_open: u32,
    /// Flows of UDP, and pings.
    pub datagram_flows: u32,
    /// Bytes that wait in the gateway.
    pub bytes: u64,
    /// Questions to name servers.
    pub questions: u32,
}

/// An address that a machine has leased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayLease {
    /// The address.
    pub address: Ipv4Addr,
    /// Its station.
    pub station: String,
    /// How long until it is over.
    pub ends_in_ns: u64,
}

/// A port of the host that leads to the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayForward {
    /// `tcp` or `udp`.
    pub kind: String,
    /// Where the host listens.
    pub at: SocketAddr,
    /// The guest's port.
    pub port: u16,
}

/// A rule of a gateway's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRule {
    /// Its place; the first is 1.
    pub at: usize,
    /// The rule.
    pub rule: String,
    /// One of the defaults, which stay.
    #[serde(default, skip_serializing_if = "is_false")]
    pub default: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_false(value: &bool) -> bool {
    !*value
}
