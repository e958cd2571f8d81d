//! An address that a server leases: the client's messages as frames, its address among those of the host, and
//! what the stack is told. RFC 2131. Part of [`Ethernet`]; `dhcp.rs` decides, `own.rs` looks whether another
//! station has the address.
//!
//! ```text
//!   Act::Check ─▶ address checked ─▶ AddAddress, routes, MTU, name servers, SetLease(Some) ─▶ poll_change
//!   Act::Renewed ─▶ what is different, SetLease(Some)
//!   Act::Lost, another station has it, the owner removes it ─▶ all of it gone, SetLease(None)
//! ```

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use taut_wire::{DhcpMessage, DhcpReply, Ecn, EthernetHeader, IpHeader, Mac, UdpHeader, dhcp, ether_type};
use taut_wire::{ethernet, protocol, udp};

use super::auto::{CHANGES_MAX, default_route, on_link};
use super::dhcp::{Act, Client, Lease};
use super::ethernet::{Ethernet, FRAME_MAX, Outgoing};
use super::own::Lifetime;
use super::terms::Terms;
use crate::words::{self, Instant, Network, NetworkChange};

const IP_LEN: usize = 20;
const HOP_LIMIT: u8 = 64;
/// The longest frame of a client.
pub(super) const FRAME_LEN: usize = ethernet::HEADER_LEN + IP_LEN + udp::HEADER_LEN + dhcp::MESSAGE_LEN;

impl<P> Ethernet<P> {
    /// The client, if there is one.
    pub(super) const fn dhcp(&mut self) -> Option<&mut Client> {
        if cfg!(feature = "dhcp") { self.dhcp.as_mut() } else { None }
    }

    /// Takes a packet of IPv4 that is a server's message for this host. Others are left to the stack.
    pub(super) fn take_dhcp(&mut self, now: Instant, station: Mac, packet: &[u8]) -> bool {
        let Some(message) = self.dhcp().and_then(|_| message_of(packet)) else { return false };
        let reply = message.and_then(|message| DhcpReply::parse(message).ok());
        let is_room = self.changes.len() < CHANGES_MAX;
        let Self { dhcp: Some(client), own, stats, .. } = self else { return true };
        let is_ours = |address: Ipv4Addr| own.knows(address.into());
        match reply.filter(|_| is_room).and_then(|reply| client.on_reply(now, &reply, station, is_ours)) {
            Some(act) => self.on_dhcp(now, act),
            None => stats.ignored += 1,
        }
        true
    }

    /// Does what the client wants.
    pub(super) fn on_dhcp(&mut self, now: Instant, act: Act) {
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
                // Without a place for it, it stays with the server, and is asked for again when its time is over.
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
    pub(super) fn on_address_checked(&mut self, now: Instant, address: IpAddr) {
        let IpAddr::V4(address) = address else { return };
        if let Some(lease) = self.dhcp().and_then(|client| client.on_checked(address)) {
            self.change_terms(None, Some(&lease.terms));
            self.tell_lease(now, &lease);
        }
    }

    /// Another station has this address.
    pub(super) fn on_address_taken(&mut self, now: Instant, address: IpAddr, was_used: bool) {
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
    pub(super) fn on_address_removed(&mut self, now: Instant, address: IpAddr) {
        let IpAddr::V4(address) = address else { return };
        if let Some((release, lease)) = self.dhcp().and_then(|client| client.on_removed(now, address)) {
            self.say_to_server(&lease, release);
            self.lose_terms(&lease.terms);
        }
    }

    fn lose_terms(&mut self, terms: &Terms) {
        self.change_terms(Some(terms), None);
        self.changes.push_back(NetworkChange::SetLease(None));
    }

    fn tell_lease(&mut self, now: Instant, lease: &Lease) {
        let left = |at: Instant| (at != Instant::NEVER).then(|| at.since(now));
        self.changes.push_back(NetworkChange::SetLease(Some(words::Lease {
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
            self.changes.push_back(NetworkChange::AddRoute(*route));
        }
        for route in old.iter().filter(|route| !new.contains(route)) {
            // The network stays on the link as long as another address is in it.
            if route.via.is_some() || !self.has_other_in(route.to) {
                _ = self.routes.remove(route);
                self.changes.push_back(NetworkChange::RemoveRoute(*route));
            }
        }
        let (old, new) = (servers(before), servers(after));
        let added = new.iter().filter(|server| !old.contains(server));
        let removed = old.iter().filter(|server| !new.contains(server));
        // Removed first: the stack has a few places.
        self.changes.extend(removed.map(|server| NetworkChange::RemoveNameServer(*server)));
        self.changes.extend(added.map(|server| NetworkChange::AddNameServer(*server)));
        let mtu = |terms: Option<&Terms>| terms.and_then(|terms| terms.mtu).unwrap_or(self.config.mtu);
        if mtu(before) != mtu(after) {
            self.changes.push_back(NetworkChange::SetMtu(mtu(after)));
        }
        if let (Some(before), Some(after)) = (before, after)
            && before.prefix != after.prefix
        {
            self.own.change_prefix(after.network());
            self.changes.push_back(NetworkChange::AddAddress(after.network()));
        }
    }

    /// Whether the host has two addresses of this network, or one that is not the lease's.
    fn has_other_in(&self, network: Network) -> bool {
        self.own.used().any(|own| own.is_same_prefix(network) && own.address != network.address)
    }
}

/// The routes of a lease: the network on the link, and each router as a default one.
fn routes(terms: Option<&Terms>) -> Vec<words::Route> {
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

/// The message of a packet from a server's port to a client's; `None` for other packets, `Some(None)` for a
/// broken one.
#[expect(clippy::option_option, reason = "another packet and a broken one are two things")]
fn message_of(packet: &[u8]) -> Option<Option<&[u8]>> {
    let ip = IpHeader::parse(packet).ok().filter(|ip| ip.protocol == protocol::UDP)?;
    let datagram = packet.get(ip.header_len..ip.header_len + ip.payload_len)?;
    let header = UdpHeader::parse(datagram, ip.payload_len).ok()?;
    if (header.src_port, header.dst_port) != (dhcp::SERVER_PORT, dhcp::CLIENT_PORT) {
        return None;
    }
    let datagram = datagram.get(..header.len.into())?;
    // A server on the same machine leaves the checksum to a card that is not there: its field has that of the
    // pseudo-header.
    let partial = udp::partial_checksum(ip.src, ip.dst, header.len.into());
    let is_partial = datagram[udp::CHECKSUM_OFFSET..udp::HEADER_LEN] == partial.to_be_bytes();
    let is_whole = is_partial || udp::verify(ip.src, ip.dst, datagram, &[]);
    Some(is_whole.then(|| &datagram[udp::HEADER_LEN..]))
}

/// Writes a frame with a client's message, and returns its length.
pub(super) fn emit(
    buf: &mut [u8; FRAME_MAX],
    (src, to): (Mac, Mac),
    dst: Ipv4Addr,
    message: &DhcpMessage,
) -> usize {
    let (frame, _) = buf.split_at_mut(FRAME_LEN);
    let header = EthernetHeader { dst: to, src, ether_type: ether_type::IPV4 }.emit();
    let (link, packet) = frame.split_at_mut(header.len());
    link.copy_from_slice(&header);
    let (head, rest) = packet.split_at_mut(IP_LEN);
    let (udp_header, payload) = rest.split_at_mut(udp::HEADER_LEN);
    let len = udp::HEADER_LEN + message.emit(payload);
    let ip = IpHeader {
        src: message.address.into(),
        dst: dst.into(),
        protocol: protocol::UDP,
        hop_limit: HOP_LIMIT,
        ecn: Ecn::NotEct,
        header_len: IP_LEN,
        payload_len: len,
    };
    ip.emit(head, 0);
    let (src_port, dst_port) = (dhcp::CLIENT_PORT, dhcp::SERVER_PORT);
    UdpHeader { src_port, dst_port, len: len as u16 }.emit(udp_header);
    let checksum = udp::full_checksum(ip.src, ip.dst, udp_header, &[payload]);
    udp::set_checksum(udp_header, checksum);
    FRAME_LEN
}
