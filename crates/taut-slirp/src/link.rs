//! The link to the guest: frames of Ethernet in, frames out. The link layer is `taut-ethernet`'s, as it is
//! for virtual machines at a socket.
//!
//! Frames that leave are collected in one piece of memory, and the caller's `send_packet` gets them when
//! nothing of this crate is borrowed any more (`ffi/`).

use std::net::IpAddr;

use taut_core::{Fate, Frame, Instant, Network, NetworkChange, RxChecksum, RxPacket, Stack, TxPacket};
use taut_ethernet::{Arrival, Ethernet, FRAME_MAX, Hop, Resolved};
use taut_wire::{Mac, ether_type, ethernet};

use crate::config::Config;

/// Frames that leave in one turn of the caller's loop, if the guest's do not wait behind them.
pub(crate) const BATCH: usize = 64;

/// Frames for the guest, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Frames {
    fn push<'a>(&mut self, header: &[u8], pieces: impl Iterator<Item = &'a [u8]>) {
        self.bytes.extend_from_slice(header);
        pieces.for_each(|piece| self.bytes.extend_from_slice(piece));
        self.ends.push(self.bytes.len());
    }

    /// One frame, all its bytes at once.
    pub(crate) fn push_whole(&mut self, frame: &[u8]) {
        self.push(frame, std::iter::empty());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn len(&self) -> usize {
        self.ends.len()
    }
}

/// The host's end of the link.
#[derive(Debug)]
pub(crate) struct Link {
    ethernet: Ethernet<Vec<u8>>,
    /// Neither family is taken in that the caller has not switched on.
    has_v4: bool,
    has_v6: bool,
    out: Frames,
    /// Frames that may still leave in this turn of the caller's loop.
    left: usize,
}

impl Link {
    pub(crate) fn new(config: &Config, seed: [u8; 16]) -> Self {
        let ethernet = Ethernet::new(config.ethernet(), seed);
        Self {
            ethernet,
            has_v4: config.v4.is_some(),
            has_v6: config.v6.is_some(),
            out: Frames::default(),
            left: BATCH,
        }
    }

    /// The caller's loop has come round: so many frames may leave until it does so again.
    pub(crate) const fn begin_turn(&mut self, frames: usize) {
        self.left = frames;
    }

    /// Whether no more frames may leave in this turn.
    pub(crate) const fn is_spent(&self) -> bool {
        self.left == 0
    }

    fn is_full(&self) -> bool {
        self.out.len() >= self.left
    }

    /// Frames for the guest, in exchange for memory to put further ones into.
    pub(crate) fn take(&mut self, empty: Frames) -> Frames {
        self.left -= self.left.min(self.out.len());
        std::mem::replace(&mut self.out, empty)
    }

    /// A frame of the guest's. A packet in it goes to the stack.
    pub(crate) fn input(&mut self, now: Instant, frame: &[u8], stack: &mut Stack) {
        let Some((header, packet)) = frame.split_at_checked(ethernet::HEADER_LEN) else { return };
        let is_on = match u16::from_be_bytes([header[12], header[13]]) {
            ether_type::IPV4 | ether_type::ARP => self.has_v4,
            ether_type::IPV6 => self.has_v6,
            _ => false,
        };
        if is_on && self.ethernet.handle_frame(now, frame) == Arrival::Packet {
            let frame = Frame::Slice(packet);
            stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
        }
    }

    /// Collects what is to leave, as much as may.
    pub(crate) fn output(&mut self, now: Instant, stack: &mut Stack) {
        self.ethernet.handle_timeout(now);
        while let Some(change) = self.ethernet.poll_change() {
            _ = stack.change_network(now, change);
        }
        let mut buf = [0; FRAME_MAX];
        while !self.is_full()
            && let Some(len) = self.ethernet.poll_frame(&mut buf)
        {
            self.out.push_whole(&buf[..len]);
        }
        while !self.is_full()
            && let Some(resolved) = self.ethernet.poll_resolved()
        {
            if let Resolved::Ready(header, packet) = resolved {
                self.out.push(&header, std::iter::once(&packet[..]));
            }
        }
        while !self.is_full()
            && let Some(transmit) = stack.poll_transmit(now)
        {
            send(&mut self.ethernet, &mut self.out, now, &transmit.packet);
            let ticket = transmit.ticket;
            stack.handle_tx(now, ticket, Fate::Left);
        }
        // A packet may have begun a question for its neighbour.
        while !self.is_full()
            && let Some(len) = self.ethernet.poll_frame(&mut buf)
        {
            self.out.push_whole(&buf[..len]);
        }
    }

    /// When something is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.ethernet.poll_timeout()
    }

    /// A guest's station, as a saved state has it.
    pub(crate) fn remember(&mut self, now: Instant, guest: IpAddr, station: Mac) {
        self.ethernet.remember(now, guest, station);
    }

    /// The host has one more address from now on, or no more.
    pub(crate) fn stand_in(&mut self, now: Instant, service: Network, is_there: bool) {
        if is_there {
            self.ethernet.adopt(service);
        } else {
            self.ethernet.change_network(now, NetworkChange::RemoveAddress(service.address));
        }
    }

    /// The neighbours whose station is known, in order of their addresses.
    pub(crate) fn stations(&self) -> Vec<(IpAddr, Mac)> {
        let mut all: Vec<_> = self.ethernet.stations().collect();
        all.sort_unstable_by_key(|(ip, _)| *ip);
        all
    }
}

fn send(ethernet: &mut Ethernet<Vec<u8>>, out: &mut Frames, now: Instant, packet: &TxPacket<'_>) {
    match ethernet.next_hop(now, packet.header) {
        Hop::Ready(header) => out.push(&header, packet.pieces()),
        // One without a place is lost, as on a wire.
        Hop::Wait(neighbour) => _ = ethernet.wait(neighbour, packet.to_vec()),
        Hop::NoRoute => {}
    }
}
