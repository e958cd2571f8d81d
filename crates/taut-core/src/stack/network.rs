//! Addresses, routes and the MTU, changed while the stack runs; which address a packet comes from, and what a
//! sender cannot be. RFC 1122 §3.2.1.3 and §3.3, RFC 1812 §5.3.7 (martians), RFC 6724. Linux: `inet_del_ifa`,
//! `dev_set_mtu`, `fib_validate_source`. Called by the driver for what the link learnt (DHCP, routers), and
//! for the application.
//!
//! **Routes.** The stack has one link, so a route says two things: whether a destination can be reached at
//! all, and which address packets to it come from. Which station they go to is decided below, by the same
//! routes. Without a route for a family, all of it is reached over the link, as on a TUN.
//!
//! **An address that is removed** takes its connections along: they end with [`ConnError::AddressRemoved`],
//! without a word to the peer, because the address may be another host's now. Linux leaves them to time out,
//! after a quarter of an hour. Listeners and datagram sockets stay, and hear nothing until the address is
//! back.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::Stack;
use crate::conn::Conn;
use crate::ip::addresses::{Addresses, is_host};
use crate::ip::routes::Routes;
use crate::words::{Instant, Lease, Network, NetworkChange, NetworkError, Route};

/// The least MTU of any link (RFC 791), and of one that carries IPv6 (RFC 8200 §5).
const MTU_MIN: u16 = 68;
const MTU_MIN_V6: u16 = 1_280;
/// Name servers that are kept; resolvers ask three (`resolv.conf(5)`, `MAXNS`).
const NAME_SERVERS_MAX: usize = 8;

/// What a stack knows of the network around it.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(super) addresses: Addresses,
    pub(super) routes: Routes,
    name_servers: Vec<IpAddr>,
    lease: Option<HeldLease>,
}

/// The lease of an address, for reports.
#[derive(Clone, Copy, Debug)]
struct HeldLease {
    lease: Lease,
    renews_at: Instant,
    ends_at: Instant,
}

impl Surroundings {
    pub(super) fn of(addresses: &[IpAddr]) -> Self {
        let (addresses, routes) = (Addresses::of(addresses), Routes::default());
        Self { addresses, routes, name_servers: Vec::new(), lease: None }
    }

    /// The source of packets to `to`, or `None` if no route leads there or no address fits.
    pub(super) fn source(&self, to: IpAddr) -> Option<IpAddr> {
        match self.routes.find(to) {
            Some(route) => {
                let own = route.source.filter(|source| self.has(*source));
                own.or_else(|| self.addresses.source(to, route.via.unwrap_or(to)))
            }
            None => self.addresses.source(to, to),
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Whether a route leads there.
    pub(super) fn reaches(&self, to: IpAddr) -> bool {
        to.is_multicast() || self.routes.find(to).is_some() || !self.routes.has_family_of(to)
    }
}

impl Stack {
    /// Changes addresses, routes, the MTU or name servers. Adding what is there changes its details.
    ///
    /// Visits every connection when an address is removed or the MTU changes.
    ///
    /// # Errors
    /// See [`NetworkError`]; after an error nothing has changed.
    pub fn change_network(&mut self, now: Instant, change: NetworkChange) -> Result<(), NetworkError> {
        match change {
            NetworkChange::AddAddress(own) => {
                if own.address.is_ipv6() && self.caps.mtu < MTU_MIN_V6 {
                    return Err(NetworkError::InvalidMtu);
                }
                self.surroundings.addresses.add(own)?;
                if !self.config.addresses.contains(&own.address) {
                    Arc::make_mut(&mut self.config).addresses.push(own.address);
                }
            }
            NetworkChange::RemoveAddress(address) => {
                self.surroundings.addresses.remove(address)?;
                Arc::make_mut(&mut self.config).addresses.retain(|own| *own != address);
                if !self.config.any_address {
                    self.end_those_of(now, address);
                }
            }
            NetworkChange::Deprecate { address, deprecated } => {
                self.surroundings.addresses.deprecate(address, deprecated)?;
            }
            NetworkChange::AddRoute(route) => self.surroundings.routes.add(route)?,
            NetworkChange::RemoveRoute(route) => self.surroundings.routes.remove(&route)?,
            NetworkChange::AddNameServer(server) => self.add_name_server(server)?,
            NetworkChange::RemoveNameServer(server) => {
                let servers = &mut self.surroundings.name_servers;
                let at = servers.iter().position(|other| *other == server).ok_or(NetworkError::NotFound)?;
                servers.remove(at);
            }
            NetworkChange::SetLease(lease) => self.set_lease(now, lease),
            // Of the link alone: the stack's sockets join by an option.
            NetworkChange::JoinGroup(_) | NetworkChange::LeaveGroup(_) => {}
            NetworkChange::SetMtu(mtu) => {
                let has_v6 = self.config.addresses.iter().any(IpAddr::is_ipv6);
                if mtu < if has_v6 { MTU_MIN_V6 } else { MTU_MIN } {
                    return Err(NetworkError::InvalidMtu);
                }
                self.caps.mtu = mtu;
                let slots: Vec<u32> = self.tables.conns.ids().map(|id| id.slot).collect();
                for slot in slots {
                    self.with(now, slot, |conn, _| conn.on_link_mtu(mtu));
                }
            }
        }
        Ok(())
    }

    /// The stack's addresses, each with its network, in the order in which they were added. The prefix of one
    /// from the configuration is as long as the address.
    pub fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.surroundings.addresses.iter()
    }

    /// Whether new connections come from another address than this one, as long as there is one.
    #[must_use]
    pub fn is_deprecated(&self, address: IpAddr) -> bool {
        self.surroundings.addresses.is_deprecated(address)
    }

    /// The routes that were added, those with longer prefixes first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.surroundings.routes.iter()
    }

    /// The servers that know names, in the order in which they were added. The stack asks none of them.
    #[must_use]
    pub fn name_servers(&self) -> &[IpAddr] {
        &self.surroundings.name_servers
    }

    /// The address that a server of DHCP has leased, and how long from now.
    #[must_use]
    pub fn lease(&self, now: Instant) -> Option<Lease> {
        let HeldLease { lease, renews_at, ends_at } = self.surroundings.lease?;
        let left = |at: Instant| (at != Instant::NEVER).then(|| at.since(now));
        Some(Lease { renews_in: left(renews_at), ends_in: left(ends_at), ..lease })
    }

    fn add_name_server(&mut self, server: IpAddr) -> Result<(), NetworkError> {
        if !is_host(server) {
            return Err(NetworkError::InvalidAddress);
        }
        let servers = &mut self.surroundings.name_servers;
        if servers.contains(&server) {
            return Ok(());
        }
        if servers.len() >= NAME_SERVERS_MAX {
            return Err(NetworkError::TooMany);
        }
        servers.push(server);
        Ok(())
    }

    fn set_lease(&mut self, now: Instant, lease: Option<Lease>) {
        let lost = self.surroundings.lease.is_some() && lease.is_none();
        self.counters.dhcp_leases += u64::from(lease.is_some());
        self.counters.dhcp_leases_lost += u64::from(lost);
        self.surroundings.lease = lease.map(|lease| HeldLease {
            lease,
            renews_at: lease.renews_in.map_or(Instant::NEVER, |left| now + left),
            ends_at: lease.ends_in.map_or(Instant::NEVER, |left| now + left),
        });
    }

    /// Connections and half-open ones of an address that is gone. Those of a filter stand in for others'
    /// addresses, and stay.
    fn end_those_of(&mut self, now: Instant, address: IpAddr) {
        let ids: Vec<_> = self.tables.conns.ids().collect();
        for id in ids {
            let is_filters =
                |conn: &Conn| conn.listener().is_some_and(|id| self.tables.flows.filter(id).is_some());
            let ends = self
                .tables
                .conns
                .get(id)
                .is_some_and(|conn| conn.tuple.local.ip() == address && !is_filters(conn));
            if ends {
                self.with(now, id.slot, Conn::on_address_removed);
            }
        }
        let half_open: Vec<_> = self.tables.half_open.ids().collect();
        for id in half_open {
            if let Some((slot, entry)) = self.tables.half_open.find(id)
                && entry.tuple.local.ip() == address
                && self.tables.flows.filter(entry.listener).is_none()
            {
                self.drop_half_open(slot);
            }
        }
    }

    /// Whether a packet that belongs to no connection claims a sender that cannot be: this host, an address
    /// that no host has, or one that appears on no link (RFC 1122 §3.2.1.3, RFC 1812 §5.3.7, RFC 4291
    /// §2.5.3). Linux drops it as a martian.
    pub(super) fn is_forged(&mut self, src: IpAddr) -> bool {
        if src.is_loopback() {
            self.counters.in_loopback += 1;
            return true;
        }
        let is_martian = !is_host(src)
            || self.config.addresses.contains(&src)
            || self.surroundings.addresses.is_broadcast(src);
        self.counters.in_martians += u64::from(is_martian);
        is_martian
    }
}
