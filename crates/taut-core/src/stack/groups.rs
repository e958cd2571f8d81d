//! Datagrams to groups of multicast: who receives them, and what the link is told. RFC 1112; Linux:
//! `__udp4_lib_mcast_deliver`. Called by `input.rs`, `datagram.rs` and `output.rs`.
//!
//! Nothing is answered: no error is ever sent about a packet to a group (RFC 1122 §3.2.2). What this host
//! sends to a group comes back to none of its own sockets (Linux: `IP_MULTICAST_LOOP`, which is on there).
//! Fragments to groups are not put together.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::udp::{self, UdpHeader};
use taut_wire::{IpHeader, protocol, raw};

use super::input::head;
use super::{News, Stack};
use crate::datagram::inbox::Incoming;
use crate::words::{Endpoint, Event, Frame, Instant, RxChecksum, RxPacket};

impl Stack {
    /// A packet that is not for an address of this host. Returns whether it is for a group that a socket has
    /// joined.
    #[cold]
    pub(super) fn on_group(&mut self, now: Instant, ip: &IpHeader, packet: &RxPacket<'_>) -> bool {
        if !cfg!(feature = "udp") || !ip.dst.is_multicast() || self.datagrams.groups.of(ip.dst).is_empty() {
            return false;
        }
        if ip.protocol == protocol::UDP && !self.is_forged(ip.src) {
            self.on_group_datagram(now, ip, packet);
        }
        true
    }

    fn on_group_datagram(&mut self, _: Instant, ip: &IpHeader, packet: &RxPacket<'_>) {
        let (bytes, _) = head(&packet.frame);
        let rest: &[&[u8]] = match &packet.frame {
            Frame::Gather { payload, .. } => payload.slices(),
            Frame::Slice(_) | Frame::Lend { .. } => &[],
        };
        let start = bytes.get(ip.header_len..).unwrap_or_default();
        let whole = [&[start], rest].concat().concat();
        let datagram = whole.get(..ip.payload_len).unwrap_or(&whole);
        let Ok(header) = UdpHeader::parse(datagram, ip.payload_len) else {
            self.counters.udp_in_errors += 1;
            return;
        };
        let datagram = datagram.get(..usize::from(header.len)).unwrap_or(datagram);
        if packet.checksum == RxChecksum::Unverified && !udp::verify(ip.src, ip.dst, datagram, &[]) {
            self.counters.udp_in_csum_errors += 1;
            self.counters.udp_in_errors += 1;
            return;
        }
        let payload = datagram.get(udp::HEADER_LEN..).unwrap_or_default();
        let (class, hops) = raw::class_and_hops(bytes);
        let from = Endpoint::new(ip.src, header.src_port);
        let receivers = self.group_receivers(ip.dst, header.dst_port, from);
        self.counters.udp_no_ports += u64::from(receivers.is_empty());
        let size = match usize::from(packet.gso_size) {
            0 => payload.len().max(1),
            size => size,
        };
        for slot in receivers {
            let mut pieces = payload.chunks(size).peekable();
            let empty = pieces.peek().is_none().then_some(&[][..]);
            for piece in pieces.chain(empty) {
                let incoming = Incoming { bytes: piece.to_vec(), from, to: ip.dst, class, hops, segment: 0 };
                let taken = self.deliver(slot, incoming);
                self.counters.udp_in_datagrams += u64::from(taken);
                self.counters.udp_in_errors += u64::from(!taken);
                self.counters.udp_rcvbuf_errors += u64::from(!taken);
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
    pub(super) fn group_event(&mut self) -> Option<Event> {
        let (group, joined) = self.datagrams.groups.poll_news()?;
        self.tell_groups();
        Some(if joined { Event::GroupJoined(group) } else { Event::GroupLeft(group) })
    }
}
