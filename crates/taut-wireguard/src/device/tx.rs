//! The half that sends: cuts, encrypts, batches, and gives tickets back when datagrams have left. Called by
//! the driver, through `taut_driver`'s outbox, which has the stack's lock only while much at a time leaves.
//!
//! **When a packet has left.** After each call the kernel says how many bytes it holds (`SIOCOUTQ`). None:
//! all have left, as on a link without a queue. Otherwise their tickets wait, and the kernel is queried again
//! with the next call, and each [`LOOK_EVERY`] (`below.rs`).
//!
//! **Without room** at the socket, what is encrypted waits: its counters are used up. No further packet is
//! taken.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::Waker;

use nix::libc::{EAGAIN, EMSGSIZE};
use taut_core::{Duration, Instant, TxPacket, TxTicket};
use taut_driver::{News, Sent, TxDevice};
use taut_wire::icmp::Unreachable;
use taut_wire::raw;

use super::batch::Batch;
use super::below::Below;
use super::{Tunnel, cut, now};
use crate::peer::{OVERHEAD, SMALL};

/// How often what is below is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Batches whose memory is kept.
const SPARE_MAX: usize = 4;

pub(super) struct Tx {
    tunnel: Arc<Tunnel>,
    /// Batches to be sent, the last of which may grow.
    waiting: VecDeque<Batch>,
    spare: Vec<Batch>,
    /// The socket had no room for the first of them.
    is_blocked: bool,
    below: Below<TxTicket>,
    /// Tickets to give back.
    done: VecDeque<TxTicket>,
    /// An inner packet.
    plain: Vec<u8>,
    look_at: Instant,
}

impl Tx {
    pub(super) fn new(tunnel: Arc<Tunnel>) -> Self {
        Self {
            tunnel,
            waiting: VecDeque::new(),
            spare: Vec::new(),
            is_blocked: false,
            below: Below::new(),
            done: VecDeque::new(),
            plain: Vec::new(),
            look_at: Instant::NEVER,
        }
    }

    /// Sends the batches that wait, until the socket has no room.
    fn send_waiting(&mut self) {
        self.is_blocked = false;
        while let Some(batch) = self.waiting.front_mut() {
            match send(&self.tunnel, batch) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    break;
                }
                Ok(()) => {
                    let bytes = batch.datagrams().len();
                    self.below.put(batch.tickets.drain(..), bytes);
                }
                Err(_) => {
                    self.tunnel.counters.unsent.add();
                    self.done.extend(batch.tickets.drain(..));
                }
            }
            if let Some(batch) = self.waiting.pop_front()
                && self.spare.len() < SPARE_MAX
            {
                self.spare.push(batch);
            }
        }
        self.look();
    }

    /// Looks at what has left.
    fn look(&mut self) {
        if !self.below.is_empty() {
            let bytes = taut_device::sys::bytes_below(&self.tunnel.socket).unwrap_or(0);
            while let Some(ticket) = self.below.gone(bytes) {
                self.done.push_back(ticket);
            }
        }
        let waits = !self.below.is_empty() || self.is_blocked;
        let now = if waits || self.look_at != Instant::NEVER { now() } else { return };
        if !waits {
            self.look_at = Instant::NEVER;
        } else if self.look_at == Instant::NEVER || self.look_at <= now {
            self.look_at = now + LOOK_EVERY;
        } else {
            return;
        }
        self.tunnel.look_at(self.look_at);
    }

    /// Encrypts a packet, of which there is one part or several, into the batches.
    fn seal(&mut self, packet: &TxPacket<'_>, number: usize, ticket: TxTicket) -> Sent {
        let Self { tunnel, waiting, spare, plain, .. } = self;
        let (peer, now) = (&tunnel.peers[number], now());
        let mut state = peer.lock();
        let Some(to) = state.endpoint else {
            drop(state);
            tunnel.tell(packet.header, Unreachable::Host);
            let message = format!("the peer {} has not been heard of, and has no Endpoint", peer.key);
            return Sent::Never(ticket, io::Error::new(io::ErrorKind::HostUnreachable, message));
        };
        let mtu = state.mtu.get(now);
        if cut::largest(packet) > mtu.into() {
            drop(state);
            let mut first = packet.header.to_vec();
            // An error quotes a part of the payload, too.
            packet.payload.slices().iter().take(1).for_each(|piece| first.extend_from_slice(piece));
            tunnel.tell(&first, Unreachable::FragmentationNeeded { mtu: mtu.into() });
            tunnel.counters.too_big.add();
            return Sent::Left(ticket);
        }
        let ecn = raw::ecn(packet.header);
        let most = tunnel.udp.max_gso_segments();
        let mut emit = |message: &[u8], to| tunnel.send_alone(message, to);
        state.touch(now, &mut emit);
        let mut in_batch = false;
        for index in 0..cut::count(packet) {
            cut::nth(packet, index, plain);
            let bytes = plain.len() + OVERHEAD;
            if !waiting.back().is_some_and(|batch| batch.takes(to, ecn, bytes, most)) {
                let mut batch = spare.pop().unwrap_or_else(|| Batch::new(to));
                batch.begin(to, ecn);
                waiting.push_back(batch);
            }
            let Some(batch) = waiting.back_mut() else { continue };
            debug_assert!(batch.room().len() >= bytes.max(SMALL), "the batch takes it");
            if let Some(bytes) = state.seal(now, plain, batch.room(), &mut emit) {
                batch.add(bytes);
                in_batch = true;
            }
        }
        tunnel.note_due(peer.note_due(&state));
        drop(state);
        if waiting.back().is_some_and(Batch::is_empty) {
            spare.extend(waiting.pop_back());
        }
        match waiting.back_mut().filter(|_| in_batch) {
            Some(batch) => {
                batch.tickets.push(ticket);
                Sent::Kept
            }
            // It waits for a handshake, or was lost.
            None => Sent::Left(ticket),
        }
    }
}

/// Sends a batch, by one call if the system can.
fn send(tunnel: &Tunnel, batch: &Batch) -> io::Result<()> {
    let sent = tunnel.transmit(batch.datagrams(), batch.size, batch.to, batch.ecn);
    match sent {
        // An interface may be unable to cut, which is known only now.
        Err(error)
            if !matches!(error.raw_os_error(), Some(EAGAIN | EMSGSIZE))
                && batch.size < batch.datagrams().len() =>
        {
            let mut last = Ok(());
            for datagram in batch.datagrams().chunks(batch.size) {
                last = tunnel.transmit(datagram, datagram.len(), batch.to, batch.ecn);
            }
            match last {
                // Some have left: the rest is lost, rather than sent twice.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                other => other,
            }
        }
        other => other,
    }
}

impl TxDevice for Tx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.tunnel.socket.as_fd().try_clone_to_owned()?))
    }

    /// Encryption takes longer than anything under the stack's lock.
    fn is_slow(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        if self.is_blocked {
            self.send_waiting();
            if self.is_blocked {
                return Sent::Full(ticket);
            }
        }
        let to = raw::destination(packet.header);
        let Some(number) = to.and_then(|to| self.tunnel.routes.peer_of(to)) else {
            self.tunnel.tell(packet.header, Unreachable::Host);
            let to = to.map_or_else(|| "its destination".to_owned(), |to| to.to_string());
            let message = format!("{to} is in the AllowedIPs of no peer");
            return Sent::Never(ticket, io::Error::new(io::ErrorKind::HostUnreachable, message));
        };
        let sent = self.seal(packet, number, ticket);
        // All but the last batch are complete.
        if self.waiting.len() > 1 {
            self.send_waiting();
        }
        sent
    }

    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.send_waiting();
        }
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        if self.done.is_empty() {
            if self.is_blocked { self.send_waiting() } else { self.look() }
        }
        self.done.pop_front()
    }

    fn has_done(&self) -> bool {
        !self.done.is_empty()
    }
}
