//! Datagrams to groups of multicast: who receives them, and what the link is told. RFC 1112; Linux:
//! `__udp4_lib_mcast_deliver`. Called by `input.rs`, `sockets.rs` and `output.rs`.
//!
//! Nothing is answered: no error is ever sent about a packet to a group (RFC 1122 §3.2.2). What this host
//! sends to a group comes back to none of its own sockets (Linux: `IP_MULTICAST_LOOP`, which is on there).
//! Fragments to groups are not put together.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::{IpHeader, protocol};

use crate::stack::{News, Stack};
use crate::words::{Endpoint, Event, Instant, RxPacket};

impl Stack {
    /// A packet that is not for an address of this host. Returns whether it is for a group that a socket has
    /// joined.
    #[cold]
    pub(crate) fn on_group(&mut self, now: Instant, ip: &IpHeader, packet: &RxPacket<'_>) -> bool {
        if !cfg!(feature = "udp") || !ip.dst.is_multicast() || self.datagrams.groups.of(ip.dst).is_empty() {
            return false;
        }
        if ip.protocol == protocol::UDP && !self.is_forged(ip.src) {
            self.on_group_datagram(now, ip, packet);
        }
        true
    }

    fn on_group_datagram(&mut self, now: Instant, ip: &IpHeader, packet: &RxPacket<'_>) {
        let Some(udp) = self.udp_in(ip, packet) else { return };
        let payload = udp.payload();
        let receivers = self.group_receivers(ip.dst, udp.to.port(), udp.from);
        self.counters.udp_no_ports += u64::from(receivers.is_empty());
        let size = match usize::from(packet.gso_size) {
            0 => payload.len().max(1),
            size => size,
        };
        for slot in receivers {
            let mut pieces = payload.chunks(size).peekable();
            let empty = pieces.peek().is_none().then_some(&[][..]);
            for piece in pieces.chain(empty) {
                self.deliver_udp((now, slot), udp.incoming(piece.to_vec(), 0), 1, None);
            }
        }
    }

    /// The sockets that have joined the group, are bound to the port, and are connected to nobody else.
    fn group_receivers(&self, group: IpAddr, port: u16, from: Endpoint) -> Vec<u32> {
        let receives = |slot: &u32| {
            self.datagrams.table.at(*slot).is_some_and(|socket| {
                socket.bound.port() == port && socket.peer.is_none_or(|peer| peer == from)
            })
        };
        self.datagrams.groups.of(group).iter().copied().filter(receives).collect()
    }

    /// The groups that sockets have joined.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.datagrams.groups.iter()
    }

    /// The link is to be told about groups.
    pub(super) fn tell_groups(&mut self) {
        if self.datagrams.groups.has_news() {
            self.incoming.push_back(News::Group);
        }
    }

    /// What the link must be told.
    pub(crate) fn group_event(&mut self) -> Option<Event> {
        let (group, joined) = self.datagrams.groups.poll_news()?;
        self.tell_groups();
        Some(if joined { Event::GroupJoined(group) } else { Event::GroupLeft(group) })
    }
}
