//! What leaves a shard: packets, tickets on their way back, wakers, and the time of the next deadline. Called
//! by `shard.rs` after each use of the stack.

use std::task::Waker;
use std::thread;

use taut_core::{Duration, Fate, Instant, Transmit};

use super::bulk::BULK_BYTES;
use super::{Inner, SERVE_BYTES, Shard, Until};
use crate::below::losses::Losses;
use crate::device::{Sent, TxDevice};
use crate::shard::waiters::Interest;
use crate::sync::{MutexGuard, Ordering};

/// How long a connection waits for tickets that are in the outbox, if neither a turn nor a write collects
/// them earlier: the thread that wrote then does something else.
pub(super) const COLLECT_AFTER: Duration = Duration::from_micros(100);

/// The same after a writer has collected tickets. It will do so again, and a timer for each packet would wake
/// the driver as often as the writer sends: with 250 µs, bulk writes of a thread take 1.26 times as much
/// processor time. What a writer that stops has left waits so long.
const COLLECT_AFTER_WRITER: Duration = Duration::from_millis(1);

impl Shard {
    /// Follows every use of the stack: handles due timers, output and events, and arms the timer for the next
    /// deadline. The caller must let packets [depart](Self::depart) when it has left the lock, and `now` is
    /// later than all that the stack was told.
    pub(super) fn settle(&self, inner: &mut Inner, now: Instant, wakers: &mut Vec<Waker>) {
        if inner.stack.poll_timeout().is_some_and(|(at, _)| at <= now) {
            inner.stack.handle_timeout(now);
        }
        self.transmit(inner, now);
        inner.take_events(Until::Batch, wakers);
        if inner.waiters.await_idle() && inner.stack.connections() == 0 {
            inner.waiters.wake_one(Interest::Idle, wakers);
        }
        if let Some(shared) = self.shared_memory.get()
            && let Some(elsewhere) = inner.memory.share(inner.stack.memory_use(), shared)
        {
            inner.stack.set_memory_elsewhere(elsewhere);
        }
        self.arm(inner, now);
    }

    /// Sends what is in the outbox: much of it with the lock (`bulk.rs`), otherwise after giving the lock
    /// back. If the stack has more than fitted, polls the stack again.
    pub(super) fn depart<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, wakers: &mut Vec<Waker>) {
        let Some(outbox) = &self.outbox else { return };
        let watch = |watch| self.watch_slow_room(watch);
        let waiting = self.waiting.load(Ordering::Relaxed);
        let mut is_over = false;
        let mut more = if inner.departs_much() && waiting > 0 && self.poller.get().is_some() {
            let more = outbox.serve_in_turn(watch);
            is_over = inner.turn.is_over(thread::current().id(), self.clock.now(), waiting);
            drop(inner);
            more
        } else {
            drop(inner);
            outbox.serve(watch)
        };
        while more {
            let mut inner = self.lock();
            inner.tx.retry();
            inner.collect();
            self.settle(&mut inner, self.clock.now(), wakers);
            // These bytes must not count in the next use.
            let _ = inner.departs_much();
            drop(inner);
            more = outbox.serve(watch);
        }
        if is_over {
            self.give_way();
        }
    }

    /// The device may have room or tickets: the thread that has it next, or has it now, must look.
    pub(super) fn note_news(&self) {
        if let Some(outbox) = &self.outbox {
            outbox.note_news();
        }
    }

    /// Collects the tickets in the outbox, in a turn. A driver leaves young ones, as every ACK brings a turn:
    /// a writer of small pieces would never fill a packet.
    pub(super) fn collect_in_turn(&self, inner: &mut Inner, until: Until, now: Instant) {
        let is_due = inner.collect_at.is_some_and(|at| at <= now);
        if is_due {
            // No writer came.
            inner.patience = COLLECT_AFTER;
        }
        let waits = matches!(until, Until::Met(_));
        if is_due || waits || self.outbox.as_ref().is_some_and(|outbox| outbox.is_ripe(now)) {
            inner.collect();
        }
    }

    /// Collects the tickets in the outbox, for a thread that uses the stack. More writes are expected if a
    /// connection waited for tickets, or if much was written; not after a request.
    pub(super) fn collect_for_writer(&self, inner: &mut Inner) {
        if inner.collect_at.is_some() || inner.sent_bytes >= SERVE_BYTES {
            inner.patience = COLLECT_AFTER_WRITER;
        }
        inner.collect();
    }

    /// Gives the device the packets that the stack has and that the queue in front releases, and the stack
    /// its tickets.
    fn transmit(&self, inner: &mut Inner, mut now: Instant) {
        loop {
            now = self.send_batch(inner, now);
            let Inner { stack, tx, .. } = inner;
            let moved = tx.release();
            let mut any_done = false;
            while let Some(ticket) = tx.poll_done() {
                stack.handle_tx(now, ticket, Fate::Left);
                any_done = true;
            }
            while let Some(conn) = tx.poll_congested() {
                stack.handle_tx_congestion(now, conn);
            }
            // Packets that left may have made room for more of their connections.
            if !moved && !any_done {
                break;
            }
            now = self.clock.now();
        }
        let Losses { drops, errors, late, out_of_order, unreported } = inner.tx.take_losses();
        inner.stack.note_device_losses(drops, errors);
        if late > 0 {
            inner.stack.note_completions(late, out_of_order, unreported);
        }
        if self.outbox.is_none() {
            self.watch_room(inner);
        }
    }

    /// Sends what the stack has, as long as there is room. Returns the time of the last look: the clock is
    /// asked for each packet, and not when there is none.
    fn send_batch(&self, inner: &mut Inner, mut now: Instant) -> Instant {
        let Inner { stack, tx, sent_bytes, departing, .. } = inner;
        loop {
            tx.set_now(now);
            if !tx.has_room() {
                return now;
            }
            let Some(Transmit { packet, ticket }) = stack.poll_transmit(now) else { return now };
            *sent_bytes += packet.payload.len();
            *departing += packet.header.len() + packet.payload.len();
            match tx.send(&packet, ticket) {
                // A packet that the device will never take has left, too: `losses.rs` says why, and counts
                // it.
                Sent::Left(ticket) | Sent::Never(ticket, _) => stack.handle_tx(now, ticket, Fate::Left),
                Sent::Kept => {}
                Sent::Full(ticket) => stack.handle_tx(now, ticket, Fate::Refused),
                Sent::Dropped(ticket) => stack.handle_tx(now, ticket, Fate::Dropped),
            }
            while let Some(conn) = tx.poll_congested() {
                stack.handle_tx_congestion(now, conn);
            }
            now = self.clock.now();
        }
    }

    /// Makes sure that a device without room is asked again when it has room.
    fn watch_room(&self, inner: &mut Inner) {
        let watch = inner.tx.is_full();
        if watch == inner.watches_room {
            return;
        }
        inner.watches_room = watch;
        self.watch_slow_room(watch);
    }

    /// The same for a device behind an outbox, which knows when to watch.
    fn watch_slow_room(&self, watch: bool) {
        self.announcer.watch_room(watch);
        if watch {
            self.end_grace();
        }
    }

    /// Moves the timer, if the next deadline is earlier than what it is armed for or that has passed. A later
    /// deadline is left to the next expiry: it costs one idle turn instead of a system call for each ACK.
    fn arm(&self, inner: &mut Inner, now: Instant) {
        let deadline = inner.stack.poll_timeout().map(|(at, _)| at);
        let owed =
            inner.stack.awaits_tickets() && self.outbox.as_ref().is_some_and(|outbox| outbox.owes_tickets());
        inner.collect_at = if owed { inner.collect_at.or(Some(now + inner.patience)) } else { None };
        let next = deadline.into_iter().chain(inner.tx.next()).chain(inner.collect_at).min();
        let expired = inner.armed <= now;
        match next {
            Some(next) if expired || next < inner.armed => {
                self.announcer.arm(next);
                inner.armed = next;
                if next <= now + super::GRACE {
                    self.end_grace();
                }
            }
            None if expired => {
                self.announcer.disarm();
                inner.armed = Instant::NEVER;
            }
            _ => {}
        }
    }
}

impl Inner {
    /// Whether what is about to depart is much at a time.
    fn departs_much(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.departing);
        let answers_bulk = std::mem::take(&mut self.took_bulk);
        bytes >= BULK_BYTES || (bytes > 0 && answers_bulk)
    }

    /// Collects the tickets that are in the outbox, if a connection waits for one.
    pub(super) fn collect_if_awaited(&mut self) {
        if self.stack.awaits_tickets() {
            self.collect();
        }
    }

    /// Collects the tickets that are in the outbox; [`Shard::settle`] returns them to the stack.
    pub(super) fn collect(&mut self) {
        self.tx.collect();
        self.collect_at = None;
    }
}
