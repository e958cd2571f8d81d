//! What arrives at a shard: from its device, and from other shards that received it. Called by `shard.rs`.

use std::sync::Weak;
use std::task::Waker;

use taut_core::{BUFFER_BYTES, Event, Frame, Instant, NetworkChange, RxPacket};
use taut_replay::Taped;

use super::{Inner, ReadInto, Shard, Until};
use crate::device::Received;
use crate::shard::waiters::Interest;

/// Most packets taken from the device before the stack may send and others may have the lock. Sixteen of 64
/// KB still lie in a core's cache when the application reads them.
const BATCH_PACKETS: usize = 16;
/// A packet of fewer bytes, with its headers, is short: a request or an answer, not a part of a transfer.
const SHORT_BYTES: usize = 576;
/// The most packets that other shards handed over and one turn takes.
const HANDED_PACKETS: usize = 4 * BATCH_PACKETS;

/// The result of a batch.
pub(super) struct Taken {
    /// How many packets came from the device.
    pub(super) packets: usize,
    /// There may be more.
    pub(super) more: bool,
}

/// Whether a batch should end with the packet that its reader waits for. It saves the read that would find
/// nothing; where packets come in bursts it saves nothing, and small batches cost more than large ones.
#[derive(Debug, Default)]
pub(super) struct EarlyEnd {
    /// The last batch ended early.
    ended: bool,
    /// Batches that are taken whole, because packets had waited behind one that ended early.
    whole: u8,
}

impl EarlyEnd {
    /// Batches that are taken whole after an early end that was wrong.
    const WHOLE: u8 = 32;

    fn may_end(&mut self) -> bool {
        self.whole = self.whole.saturating_sub(1);
        self.whole == 0
    }

    fn note_end(&mut self) {
        self.ended = true;
    }

    fn note_nothing(&mut self) {
        self.ended = false;
    }

    /// A batch has a packet.
    fn note_packet(&mut self, is_first: bool) {
        if std::mem::take(&mut self.ended) && is_first {
            self.whole = Self::WHOLE;
        }
    }
}

/// Whether a waiter should look at the device before it waits. Under load, what it waits for is often there;
/// between a request and its response it never is, and the look is a system call for nothing. So each look
/// that finds nothing doubles the number of waits without one, up to 32, and one that finds something ends
/// this.
#[derive(Debug, Default)]
pub(super) struct Looks {
    misses: u8,
    skip: u8,
}

impl Looks {
    const DOUBLINGS: u8 = 5;

    pub(super) fn may_look(&mut self) -> bool {
        let may = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        may
    }

    fn note(&mut self, found: bool) {
        self.misses = if found { 0 } else { (self.misses + 1).min(Self::DOUBLINGS) };
        self.skip = (1 << self.misses) - 1;
    }
}

impl Shard {
    /// Takes a batch of packets from the device, no longer than the stack has an answer to wait for, and no
    /// longer than `until`.
    pub(super) fn take_batch(
        &self,
        inner: &mut Inner,
        now: Instant,
        until: Until,
        place: &mut ReadInto<'_>,
        wakers: &mut Vec<Waker>,
    ) -> Taken {
        if inner.sent_bytes > 0 && inner.waiters.count() <= 1 {
            // A packet that is there now answers what was sent: it had not waited.
            inner.early_end.note_nothing();
        }
        (inner.served, inner.sent_bytes) = (now, 0);
        inner.rx.begin_batch();
        let taken = self.take_until(inner, now, until, place, wakers);
        inner.rx.end_batch();
        taken
    }

    /// The batch itself.
    fn take_until(
        &self,
        inner: &mut Inner,
        now: Instant,
        until: Until,
        place: &mut ReadInto<'_>,
        wakers: &mut Vec<Waker>,
    ) -> Taken {
        let handed = self.take_handed(inner);
        let may_end = matches!(until, Until::Met(_)) && inner.early_end.may_end();
        for packets in 0..BATCH_PACKETS {
            let placed = self.receive_placed(inner, place);
            if placed == Some(true) {
                if place.is_full() || inner.stack.must_answer() {
                    return Taken { packets: packets + 1, more: true };
                }
                continue;
            }
            let found = if placed.is_none() { self.receive(inner) } else { None };
            let Some(is_small) = found.or_else(|| self.look_again(inner)) else {
                inner.early_end.note_nothing();
                inner.learn(now, wakers);
                return Taken { packets, more: handed >= HANDED_PACKETS };
            };
            inner.early_end.note_packet(packets == 0);
            let is_met = may_end && is_small && inner.take_events(until, wakers);
            if is_met {
                inner.early_end.note_end();
            }
            if is_met || inner.stack.must_answer() {
                return Taken { packets: packets + 1, more: true };
            }
        }
        Taken { packets: BATCH_PACKETS, more: true }
    }

    /// A waiter looks at the device before it waits. Returns how many packets came.
    pub(super) fn look(
        &self,
        inner: &mut Inner,
        interest: Interest,
        place: &mut ReadInto<'_>,
        wakers: &mut Vec<Waker>,
    ) -> usize {
        let now = self.clock.now();
        if let Some(poller) = self.poller.get() {
            poller.note_look(now);
        }
        let counts = !matches!(interest, Interest::Write(conn) if inner.is_connecting(conn));
        let taken = self.take_batch(inner, now, Until::Met(interest), place, wakers);
        let any = taken.packets > 0;
        if counts {
            inner.looks.note(any);
        }
        if any {
            inner.collect();
        }
        taken.packets
    }

    /// Takes what other shards received for this one: a few batches at most, or answers and other packets
    /// would wait for thousands of them. Returns how many packets it took.
    fn take_handed(&self, inner: &mut Inner) -> usize {
        let handed = self.inbox.take(HANDED_PACKETS);
        let count = handed.len();
        for handed in handed {
            let frame = Frame::Slice(&handed.bytes);
            let packet = RxPacket { frame, checksum: handed.checksum, gso_size: handed.gso_size };
            inner.stack.handle_packet(self.clock.now(), packet);
        }
        count
    }

    /// Gives a packet to the shard that owns it. False if that is this shard.
    fn hand_over(&self, stack: &mut Taped, buffer: &[u8], received: &Received) -> bool {
        let Some(peers) = self.peers.get() else { return false };
        let packet = buffer.get(received.range.clone()).unwrap_or_default();
        let Some(owner) = stack.owner_elsewhere(packet) else { return false };
        let peer = peers.get(owner).and_then(Weak::upgrade);
        if peer.as_ref().is_some_and(|peer| peer.inbox.put(packet, received)) {
            // No other event wakes it.
            peer.iter().for_each(|peer| peer.end_grace());
        } else {
            stack.note_steered_lost();
        }
        true
    }

    /// A device that rings a bell may have done so just before it was silenced.
    fn look_again(&self, inner: &mut Inner) -> Option<bool> {
        if self.announcer.silence() { self.receive(inner) } else { None }
    }

    /// Takes one packet from the device. Returns whether it was one segment, or `None` if there was no
    /// packet.
    fn receive(&self, inner: &mut Inner) -> Option<bool> {
        let Inner { stack, rx, buffer, is_bulk, took_bulk, is_short, .. } = inner;
        if self.is_closed() {
            return None;
        }
        let received = match rx.recv(buffer) {
            Ok(received) => received?,
            Err(why) => {
                self.end(why);
                return None;
            }
        };
        let is_small = received.gso_size == 0;
        *is_bulk = !is_small;
        *took_bulk |= *is_bulk;
        *is_short = received.range.len() < SHORT_BYTES;
        if self.hand_over(stack, buffer, &received) {
            return Some(is_small);
        }
        let frame = Frame::Lend { buffer: &mut *buffer, range: received.range };
        let packet = RxPacket { frame, checksum: received.checksum, gso_size: received.gso_size };
        stack.handle_packet(self.clock.now(), packet);
        if buffer.len() < BUFFER_BYTES {
            // The stack has kept the buffer and had none to spare.
            *buffer = vec![0; BUFFER_BYTES];
        }
        Some(is_small)
    }
}

impl Inner {
    /// Tells the stack what the link has learnt.
    fn learn(&mut self, now: Instant, wakers: &mut Vec<Waker>) {
        while let Some(change) = self.rx.poll_change() {
            // One that the stack has no place for changes nothing.
            _ = self.stack.change_network(now, change);
            self.waiters.wake_one(Interest::Network, wakers);
        }
    }

    /// Takes the stack's events, and the wakers that they concern. Returns whether one of them is what
    /// `until` waits for.
    pub(super) fn take_events(&mut self, until: Until, wakers: &mut Vec<Waker>) -> bool {
        let mut is_met = false;
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::GroupJoined(group) => _ = self.rx.change_network(NetworkChange::JoinGroup(group)),
                Event::GroupLeft(group) => _ = self.rx.change_network(NetworkChange::LeaveGroup(group)),
                _ => {}
            }
            is_met |= until.is_met_by(&event);
            self.waiters.wake(event, wakers);
        }
        is_met
    }
}
