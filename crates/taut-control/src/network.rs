//! Addresses, routes and the MTU of a stack, as they are sent over the socket, and their changes. Read by
//! `taut addr`, `taut route`, `taut mtu`, `taut ss -s` and `taut explain`.
//!
//! ```text
//! → {"v":1,"request":"network"}
//! ← {"v":1,"reply":"network","data":{"mtu":1500,"addresses":[{"address":"10.9.0.7","prefix":24}],"routes":[…]}}
//! → {"v":1,"request":"change_network","change":"add_address","address":"10.9.0.8","prefix":24}
//! ← {"v":1,"reply":"network","data":{…}}
//! ```
//!
//! On Ethernet an address is checked before the stack has it, so the reply to its addition does not show it
//! yet.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use taut_core::{Instant, Lease, Network, NetworkChange, Route, Stack};

/// What a stack knows of its network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkSnapshot {
    /// The largest IP packet of the link, in bytes.
    pub mtu: u16,
    /// The stack's addresses.
    pub addresses: Vec<AddressSnapshot>,
    /// Its routes, those with longer prefixes first. Without one for a family, all of it is reached over the
    /// link.
    pub routes: Vec<RouteSnapshot>,
    /// Servers that know names, as the link told them.
    pub name_servers: Vec<IpAddr>,
    /// The address that a server of DHCP has leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseSnapshot>,
}

/// An address, and how many of its leading bits are those of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSnapshot {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix: all, if nothing is known of the network.
    pub prefix: u8,
    /// New connections come from another one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deprecated: bool,
}

/// Where packets for a prefix go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSnapshot {
    /// The destinations.
    pub to: IpAddr,
    /// Bits of their prefix; 0 is the default route.
    pub prefix: u8,
    /// The router; none if they are on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The address that packets by this route come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
}

/// A lease of DHCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSnapshot {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix: u8,
    /// The server.
    pub server: IpAddr,
    /// How long until the server is asked to prolong it; none if it is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews_in_ns: Option<u64>,
    /// How long until it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_ns: Option<u64>,
}

/// A change of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// The stack has this address from now on, or after its check.
    AddAddress {
        /// The address.
        address: IpAddr,
        /// Bits of the prefix.
        prefix: u8,
    },
    /// It has it no more, and its connections end.
    RemoveAddress {
        /// The address.
        address: IpAddr,
    },
    /// A route. One for the same prefix and router is replaced.
    AddRoute(RouteSnapshot),
    /// The route for this prefix and router is gone.
    RemoveRoute(RouteSnapshot),
    /// The MTU.
    SetMtu {
        /// In bytes.
        mtu: u16,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl From<Change> for NetworkChange {
    fn from(change: Change) -> Self {
        match change {
            Change::AddAddress { address, prefix } => Self::AddAddress(Network { address, prefix }),
            Change::RemoveAddress { address } => Self::RemoveAddress(address),
            Change::AddRoute(route) => Self::AddRoute(route.into()),
            Change::RemoveRoute(route) => Self::RemoveRoute(route.into()),
            Change::SetMtu { mtu } => Self::SetMtu(mtu),
        }
    }
}

impl From<RouteSnapshot> for Route {
    fn from(RouteSnapshot { to, prefix, via, source }: RouteSnapshot) -> Self {
        Self { to: Network { address: to, prefix }, via, source }
    }
}

impl From<&Route> for RouteSnapshot {
    fn from(Route { to, via, source }: &Route) -> Self {
        Self { to: to.address, prefix: to.prefix, via: *via, source: *source }
    }
}

impl From<Lease> for LeaseSnapshot {
    fn from(Lease { network, server, renews_in, ends_in }: Lease) -> Self {
        Self {
            address: network.address,
            prefix: network.prefix,
            server,
            renews_in_ns: renews_in.map(taut_core::Duration::as_nanos),
            ends_in_ns: ends_in.map(taut_core::Duration::as_nanos),
        }
    }
}

/// Copies what a stack knows. `given` are its first addresses as text, with their prefixes, which the stack
/// itself does not know.
pub(crate) fn snapshot(stack: &Stack, now: Instant, given: &[String]) -> NetworkSnapshot {
    NetworkSnapshot {
        mtu: stack.caps().mtu,
        addresses: stack.networks().map(|own| address(stack, own, given)).collect(),
        routes: stack.routes().map(RouteSnapshot::from).collect(),
        name_servers: stack.name_servers().to_vec(),
        lease: stack.lease(now).map(LeaseSnapshot::from),
    }
}

fn address(stack: &Stack, own: Network, given: &[String]) -> AddressSnapshot {
    let is_bare = own == Network::host(own.address);
    let known = given.iter().filter_map(|text| {
        let (address, prefix) = text.split_once('/')?;
        (address.parse() == Ok(own.address)).then_some(prefix)?.parse().ok()
    });
    let prefix = if is_bare { known.into_iter().next().unwrap_or(own.prefix) } else { own.prefix };
    AddressSnapshot { address: own.address, prefix, deprecated: stack.is_deprecated(own.address) }
}

/// The addresses as text: those of which nothing else is known without a prefix.
pub(crate) fn texts(network: &NetworkSnapshot) -> Vec<String> {
    let text = |own: &AddressSnapshot| match own.address {
        IpAddr::V4(_) if own.prefix == 32 => own.address.to_string(),
        IpAddr::V6(_) if own.prefix == 128 => own.address.to_string(),
        _ => format!("{}/{}", own.address, own.prefix),
    };
    network.addresses.iter().map(text).collect()
}
