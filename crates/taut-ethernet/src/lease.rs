//! An address that a server leases: the client's messages as frames, its address among those of the host, and
//! what the stack is told. RFC 2131. Part of [`Ethernet`]; `dhcp.rs` decides, `own.rs` looks whether another
//! station has the address.
//!
//! ```text
//!   Act::Check ─▶ address checked ─▶ AddAddress, routes, MTU, name servers, SetLease(Some) ─▶ poll_change
//!   Act::Renewed ─▶ what is different, SetLease(Some)
//!   Act::Lost, another station has it, the owner removes it ─▶ all of it gone, SetLease(None)
//! ```
//!
//! **Several queues.** One of them has the client. What the lease changes, it tells its stack and the others:
//!
//! ```text
//!   a server's message ─▶ any queue ─▶ overhear: the client ─▶ tell ─▶ poll_change ─▶ its stack
//!                                                                └───▶ poll_shared ─▶ follow: the others ─▶ poll_change ─▶ theirs
//! ```

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use taut_wire::{DhcpMessage, DhcpReply, Mac};

use crate::auto::{CHANGES_MAX, default_route, on_link};
use crate::dhcp::bootp::{self, Ports};
use crate::dhcp::client::{Act, Client, Lease};
use crate::dhcp::terms::Terms;
use crate::ethernet::{Ethernet, Outgoing, Role};
use crate::own::Lifetime;
use taut_core::{self, Instant, Network, NetworkChange};

impl<P> Ethernet<P> {
    /// The client, if there is one.
    pub(crate) const fn dhcp(&mut self) -> Option<&mut Client> {
        if cfg!(feature = "dhcp") { self.dhcp.as_mut() } else { None }
    }

    /// Takes a packet of IPv4 that is a server's message for this host. Others are left to the stack.
    pub(crate) fn take_dhcp(&mut self, now: Instant, station: Mac, packet: &[u8]) -> bool {
        let is_asked = cfg!(feature = "dhcp") && self.config.dhcp;
        let message = is_asked.then(|| bootp::message_of(packet, Ports::OF_SERVER, |_| true)).flatten();
        let Some(message) = message else { return false };
        let reply = message.and_then(|message| DhcpReply::parse(message).ok());
        let is_room = self.changes.len().max(self.shared.len()) < CHANGES_MAX;
        let Self { dhcp: Some(client), own, stats, .. } = self else { return true };
        let is_ours = |address: Ipv4Addr| own.knows(address.into());
        match reply.filter(|_| is_room).and_then(|reply| client.on_reply(now, &reply, station, is_ours)) {
            Some(act) => self.on_dhcp(now, act),
            None => stats.ignored += 1,
        }
        true
    }

    /// Does what the client wants.
    pub(crate) fn on_dhcp(&mut self, now: Instant, act: Act) {
        match act {
            Act::Broadcast(message) => {
                self.say(Outgoing::Dhcp { to: Mac::BROADCAST, dst: Ipv4Addr::BROADCAST, message });
            }
            Act::ToServer(message) => {
                if let Some(lease) = self.dhcp().and_then(|client| client.lease().copied()) {
                    self.say_to_server(&lease, message);
                }
            }
            Act::Check(terms) => {
                // Without a place for it, it stays with the server, and is asked for again when its time is
                // over.
                self.own.check(now, terms.network(), Lifetime::FOREVER, false);
            }
            Act::Renewed(before) => {
                if let Some(lease) = self.dhcp().and_then(|client| client.lease().copied()) {
                    self.change_terms(Some(&before), Some(&lease.terms));
                    self.tell_lease(now, &lease);
                }
            }
            Act::Lost(terms) => {
                let was_used = self.own.has(terms.address.into());
                self.own.remove(terms.address.into());
                if was_used {
                    self.lose_terms(&terms);
                    self.changes.push_back(NetworkChange::RemoveAddress(terms.address.into()));
                }
            }
            Act::Refused => {}
        }
    }

    /// A message to the server that leased the address, or to the router towards it.
    fn say_to_server(&mut self, lease: &Lease, message: DhcpMessage) {
        let dst = lease.terms.server;
        // If the neighbour is not known now, where its answer came from.
        let known = self.neighbour_towards(dst.into()).and_then(|next| self.mac_of(next));
        self.say(Outgoing::Dhcp { to: known.unwrap_or(lease.station), dst, message });
    }

    /// Nobody has this address, and the host uses it from now on.
    pub(crate) fn on_address_checked(&mut self, now: Instant, address: IpAddr) {
        let IpAddr::V4(address) = address else { return };
        if let Some(lease) = self.dhcp().and_then(|client| client.on_checked(address)) {
            self.share(NetworkChange::AddAddress(lease.terms.network()));
            self.change_terms(None, Some(&lease.terms));
            self.tell_lease(now, &lease);
        }
    }

    /// Another station has this address.
    pub(crate) fn on_address_taken(&mut self, now: Instant, address: IpAddr, was_used: bool) {
        let IpAddr::V4(address) = address else { return };
        let Some((decline, terms)) = self.dhcp().and_then(|client| client.on_taken(now, address)) else {
            return;
        };
        self.on_dhcp(now, Act::Broadcast(decline));
        if was_used {
            self.lose_terms(&terms);
        }
    }

    /// The owner has removed this address.
    pub(crate) fn on_address_removed(&mut self, now: Instant, address: IpAddr) {
        let IpAddr::V4(address) = address else { return };
        if let Some((release, lease)) = self.dhcp().and_then(|client| client.on_removed(now, address)) {
            self.say_to_server(&lease, release);
            self.lose_terms(&lease.terms);
        }
    }

    fn lose_terms(&mut self, terms: &Terms) {
        self.change_terms(Some(terms), None);
        self.tell(NetworkChange::SetLease(None));
        self.share(NetworkChange::RemoveAddress(terms.address.into()));
    }

    fn tell_lease(&mut self, now: Instant, lease: &Lease) {
        let left = |at: Instant| (at != Instant::NEVER).then(|| at.since(now));
        self.tell(NetworkChange::SetLease(Some(taut_core::Lease {
            network: lease.terms.network(),
            server: lease.terms.server.into(),
            renews_in: left(lease.renew_at),
            ends_in: left(lease.ends_at),
        })));
    }

    /// Tells the stack what is different: routes, name servers, the MTU, the length of the prefix. What is
    /// new comes first, so that connections always have a way.
    fn change_terms(&mut self, before: Option<&Terms>, after: Option<&Terms>) {
        let (old, new) = (routes(before), routes(after));
        for route in new.iter().filter(|route| !old.contains(route)) {
            _ = self.routes.add(*route);
            self.tell(NetworkChange::AddRoute(*route));
        }
        for route in old.iter().filter(|route| !new.contains(route)) {
            // The network stays on the link as long as another address is in it.
            if route.via.is_some() || !self.has_other_in(route.to) {
                _ = self.routes.remove(route);
                self.tell(NetworkChange::RemoveRoute(*route));
            }
        }
        let (old, new) = (servers(before), servers(after));
        let added = new.iter().filter(|server| !old.contains(server));
        let removed = old.iter().filter(|server| !new.contains(server));
        // Removed first: the stack has a few places.
        removed.for_each(|server| self.tell(NetworkChange::RemoveNameServer(*server)));
        added.for_each(|server| self.tell(NetworkChange::AddNameServer(*server)));
        let mtu = |terms: Option<&Terms>| terms.and_then(|terms| terms.mtu).unwrap_or(self.config.mtu);
        let (old, new) = (mtu(before), mtu(after));
        if old != new {
            self.tell(NetworkChange::SetMtu(new));
        }
        if let (Some(before), Some(after)) = (before, after)
            && before.prefix != after.prefix
        {
            self.own.change_prefix(after.network());
            self.tell(NetworkChange::AddAddress(after.network()));
        }
    }

    /// The address of the lease, as long as there is one.
    pub(crate) fn leased(&self) -> Option<Ipv4Addr> {
        self.dhcp.as_ref()?.lease().map(|lease| lease.terms.address)
    }

    /// The stack, and the other queues of this host, are told of a change of the lease.
    fn tell(&mut self, change: NetworkChange) {
        self.changes.push_back(change);
        self.share(change);
    }

    /// Only the other queues are told: the stack has been.
    fn share(&mut self, change: NetworkChange) {
        if self.config.role == Role::First {
            self.shared.push_back(change);
        }
    }

    /// The next change of the lease, which all other queues of this host must [`follow`](Self::follow). It
    /// waits until they [can](Self::can_follow); while too many wait, servers are not listened to.
    pub fn poll_shared(&mut self) -> Option<NetworkChange> {
        self.shared.pop_front()
    }

    /// Whether there is room for a change.
    #[must_use]
    pub fn can_follow(&self) -> bool {
        self.changes.len() < CHANGES_MAX
    }

    /// The queue that asks for an address has learnt this: so it is here, and the stack is told. An address
    /// is not checked, for that queue has done so, and defends it.
    pub fn follow(&mut self, change: NetworkChange) {
        match change {
            NetworkChange::AddAddress(own) => self.own.adopt(own),
            NetworkChange::RemoveAddress(address) => _ = self.own.remove(address),
            NetworkChange::AddRoute(route) => _ = self.routes.add(route),
            NetworkChange::RemoveRoute(route) => _ = self.routes.remove(&route),
            _ => {}
        }
        self.changes.push_back(change);
    }

    /// Whether the host has two addresses of this network, or one that is not the lease's.
    fn has_other_in(&self, network: Network) -> bool {
        self.own.used().any(|own| own.is_same_prefix(network) && own.address != network.address)
    }
}

/// The routes of a lease: the network on the link, and each router as a default one.
fn routes(terms: Option<&Terms>) -> Vec<taut_core::Route> {
    let Some(terms) = terms else { return Vec::new() };
    let mut routes = alloc::vec![on_link(terms.network())];
    for router in terms.routers.iter() {
        let is_beyond = !terms.network().contains(router.into());
        let own = is_beyond.then(|| on_link(Network::host(router.into())));
        for route in own.into_iter().chain([default_route(router.into())]) {
            // A server may say a router twice.
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    routes
}

fn servers(terms: Option<&Terms>) -> Vec<IpAddr> {
    let mut servers: Vec<IpAddr> = Vec::new();
    for server in terms.iter().flat_map(|terms| terms.name_servers.iter()).map(IpAddr::V4) {
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    servers
}
