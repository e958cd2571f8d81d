//! The half of an XDP device that sends, and gives tickets back when the kernel gives chunks back. Called by
//! the driver, through `taut_driver`'s outbox.
//!
//! Packets of a batch are put into the TX ring one by one, and one call makes the kernel send them all. On a
//! virtual link the completion ring has all of them when that call returns. Where a card completes them
//! later, nobody announces it, so the ring is looked at with each call of the driver, and every
//! [`LOOK_EVERY`] while anything is out.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;

use rustix::io::Errno;
use taut_core::{Duration, Instant, TxPacket, TxTicket};
use taut_driver::{News, Sent, TxDevice};
use taut_wire::ethernet;

use super::slots::Slots;
use super::{PIECES_MAX, Program};
use crate::packet::line::{Parcel, Shared, now};
use crate::sys::xdp_socket::{self, Area, CHUNK, CONTINUES, Descriptor, Ring};

/// How often chunks that are out are looked for: a card's usual delay of interrupts is less.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// The same while the interface is down.
const LOOK_EVERY_DOWN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct XdpTx {
    shared: Arc<Shared>,
    owned: (Arc<OwnedFd>, Arc<Program>),
    ring: Ring<Descriptor>,
    completion: Ring<u64>,
    area: Area,
    slots: Slots<TxTicket>,
    /// Tickets to give back.
    done: VecDeque<TxTicket>,
    /// The interface is gone for good.
    is_gone: bool,
    is_down: bool,
}

impl XdpTx {
    pub(super) fn new(
        shared: Arc<Shared>,
        owned: (Arc<OwnedFd>, Arc<Program>),
        ring: Ring<Descriptor>,
        completion: Ring<u64>,
        area: Area,
    ) -> Self {
        let slots = Slots::new(area.chunks());
        let done = VecDeque::new();
        Self { shared, owned, ring, completion, area, slots, done, is_gone: false, is_down: false }
    }

    /// Takes back what the kernel has given back.
    fn collect(&mut self) {
        let mut count = 0;
        while let Some(place) = self.completion.peek(count) {
            count += 1;
            let chunk = self.area.chunk_of(place);
            self.done.extend(chunk.and_then(|chunk| self.slots.complete(chunk)));
        }
        if count > 0 {
            self.completion.release(count);
        }
    }

    /// Makes the kernel send what is in the ring. Each call takes some of it, or the kernel has no room now.
    fn wake(&mut self) {
        let mut untaken = self.ring.untaken();
        while untaken > 0 && self.ring.needs_wakeup() && !self.is_gone {
            let woken = xdp_socket::wake_tx(&self.owned.0);
            self.is_down = woken == Err(Errno::NETDOWN);
            if woken == Err(Errno::NXIO) {
                // The socket is bound to nothing any more.
                self.lose();
                return;
            }
            self.collect();
            if self.ring.untaken() == untaken {
                return;
            }
            untaken = self.ring.untaken();
        }
    }

    /// The interface is gone, and gives nothing back any more.
    fn lose(&mut self) {
        self.is_gone = true;
        self.collect();
        self.done.extend(self.slots.take_all());
    }

    /// Copies a packet into chunks and puts them into the ring.
    fn put(
        &mut self,
        header: &[u8; ethernet::HEADER_LEN],
        packet: &TxPacket<'_>,
        ticket: TxTicket,
    ) -> Result<(), TxTicket> {
        let len = header.len() + packet.len();
        let (mut left, mut pieces) = (len, [Descriptor { addr: 0, len: 0, options: 0 }; PIECES_MAX]);
        let (area, mut count) = (&self.area, 0);
        self.slots.put(len.div_ceil(CHUNK), ticket, |chunk| {
            let here = left.min(CHUNK);
            left -= here;
            let options = if left > 0 { CONTINUES } else { 0 };
            pieces[count] = Descriptor { addr: area.place(chunk), len: here as u32, options };
            count += 1;
        })?;
        let (mut chunk, mut at) = (0, 0);
        for mut piece in std::iter::once(&header[..]).chain(packet.pieces()) {
            while !piece.is_empty() {
                let (here, rest) = piece.split_at(piece.len().min(CHUNK - at));
                let written = self.area.write(pieces[chunk].addr + at as u64, here);
                debug_assert!(written, "chunks are in the area");
                (piece, at) = (rest, at + here.len());
                if at == CHUNK {
                    (chunk, at) = (chunk + 1, 0);
                }
            }
        }
        for piece in &pieces[..count] {
            let pushed = self.ring.push(*piece);
            debug_assert!(pushed, "the ring has a slot for each chunk");
        }
        self.ring.publish();
        Ok(())
    }

    /// Sends a packet, whose ticket comes back later.
    fn transmit(
        &mut self,
        header: &[u8; ethernet::HEADER_LEN],
        packet: &TxPacket<'_>,
        ticket: TxTicket,
    ) -> Sent {
        if self.is_gone || self.is_down {
            return Sent::Never(ticket, self.why());
        }
        let len = header.len() + packet.len();
        if len.div_ceil(CHUNK) > PIECES_MAX {
            return Sent::Never(ticket, io::ErrorKind::InvalidInput.into());
        }
        if self.slots.free() < len.div_ceil(CHUNK) {
            self.collect();
            self.wake();
        }
        if self.is_gone {
            return Sent::Never(ticket, self.why());
        }
        match self.put(header, packet, ticket) {
            Ok(()) => Sent::Kept,
            Err(ticket) => {
                self.look_later();
                Sent::Full(ticket)
            }
        }
    }

    fn why(&self) -> io::Error {
        let name = self.shared.name();
        let why = if self.is_gone {
            "it was deleted, or moved to another namespace".to_owned()
        } else {
            format!("it is down; bring it up with: ip link set dev {name} up")
        };
        io::Error::new(io::ErrorKind::NetworkDown, format!("the interface {name}: {why}"))
    }

    fn look_later(&self) {
        let every = if self.is_down { LOOK_EVERY_DOWN } else { LOOK_EVERY };
        let mut line = self.shared.line();
        line.look_at = if self.slots.is_empty() { Instant::NEVER } else { now() + every };
        self.shared.settle(&mut line);
    }

    /// Sends what has waited for a neighbour.
    fn send_resolved(&mut self) {
        loop {
            let resolved = self.shared.line().ethernet.poll_resolved();
            let Some(resolved) = resolved else { return };
            let ticket =
                Parcel::resolved(resolved, |header, packet, ticket| self.transmit(header, packet, ticket));
            self.done.extend(ticket);
        }
    }

    /// Looks at what has left, and makes the kernel send what has not.
    fn look(&mut self) {
        self.send_resolved();
        self.collect();
        self.wake();
        if self.shared.is_gone() && !self.is_gone {
            self.lose();
        }
        let is_armed_in_vain = {
            let line = self.shared.line();
            (line.look_at != Instant::NEVER && (self.slots.is_empty() || line.look_at <= now()))
                || line.ethernet.has_resolved()
        };
        if is_armed_in_vain {
            self.look_later();
        }
    }
}

impl TxDevice for XdpTx {
    /// Room and tickets are looked for when the timer of the receiving half says so, which calls this waker.
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.shared.line().waker = Some(waker.clone());
        Ok(News::Waker)
    }

    /// The call that makes the kernel send runs the peer's receive path on a virtual link.
    fn is_slow(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        // What has waited was made before this one.
        self.send_resolved();
        match self.shared.direct(packet, ticket, &mut self.done) {
            Ok((header, ticket)) => self.transmit(&header, packet, ticket),
            Err(sent) => sent,
        }
    }

    fn flush(&mut self) {
        self.wake();
        self.collect();
        if !self.slots.is_empty() {
            self.look_later();
        }
    }

    fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        if self.done.is_empty() {
            self.look();
        }
        self.done.pop_front()
    }
}
