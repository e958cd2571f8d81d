//! Bookkeeping around a connection: after every touch, queues, timers, listeners and tables are brought in
//! line with its state, until its slot is free. taut's own; called by everything that touches a connection.

use super::Stack;
use super::stack_cx;
use super::tables::demux::Owner;
use super::tables::time_wait::TimeWait;
use crate::conn::state::State;
use crate::conn::{Conn, StackCx};
use crate::words::{ConnId, Instant, ListenerId};

impl Stack {
    /// Calls `f` with a connection and its context, then updates the rest of the stack.
    pub(super) fn with<R>(
        &mut self,
        now: Instant,
        slot: u32,
        f: impl FnOnce(&mut Conn, &mut StackCx<'_>) -> R,
    ) -> Option<R> {
        let conn = self.tables.conns.at_mut(slot)?;
        let mut cx = stack_cx!(self, now);
        let result = f(conn, &mut cx);
        self.settle(now, slot);
        Some(result)
    }

    /// After a connection was touched: brings queues, timers, listeners and tables in line with its state.
    pub(super) fn settle(&mut self, now: Instant, slot: u32) {
        self.counters.tcp_memory_pressures = self.pool.budget.pressures();
        let Some(conn) = self.tables.conns.at_mut(slot) else { return };
        if conn.flags.half_open && conn.state != State::SynReceived {
            self.leave_fast_open(now, slot);
        }
        let Some(conn) = self.tables.conns.at_mut(slot) else { return };
        if cfg!(debug_assertions) {
            conn.invariants();
        }
        if conn.wants_output() && !conn.flags.queued_for_output {
            conn.flags.queued_for_output = true;
            self.ready.push_back(slot);
        }
        if conn.tx.awaits_ticket() != conn.flags.awaits_ticket {
            conn.flags.awaits_ticket = !conn.flags.awaits_ticket;
            if conn.flags.awaits_ticket {
                self.awaiting_tickets += 1;
            } else {
                self.awaiting_tickets -= 1;
            }
        }
        if conn.news.any() && conn.flags.held && !conn.flags.queued_for_news {
            conn.flags.queued_for_news = true;
            self.news.push_back(slot);
        }
        if !conn.flags.detached {
            let ended = match conn.state {
                State::TimeWait => !conn.wants_output(),
                State::Closed => !conn.flags.rst_due,
                _ => false,
            };
            if ended {
                self.detach(now, slot);
            } else if let Some(at) = conn.deadline() {
                let at = if at <= now { at.max(self.timers_again_at) } else { at };
                self.timers.set_if_earlier(slot, at);
            }
        } else if conn.flags.held && conn.tx.look_at_loans() != Instant::NEVER {
            // The connection has ended, and a packet that is still on a wire holds memory of the application.
            let at = conn.tx.look_at_loans();
            let at = if at <= now { at.max(self.timers_again_at) } else { at };
            self.timers.set_if_earlier(slot, at);
        }
        let conn = self.tables.conns.at(slot);
        if conn.is_some_and(|conn| conn.flags.detached && !conn.flags.held && !conn.flags.queued_for_output) {
            self.free(now, slot);
        }
    }

    /// The handshake of a connection that a SYN opened ended, in success or failure.
    fn leave_fast_open(&mut self, now: Instant, slot: u32) {
        let Some(conn) = self.tables.conns.at_mut(slot) else { return };
        conn.flags.half_open = false;
        let (listener, peer, reset) = (conn.listener(), conn.tuple.peer.ip(), conn.was_reset());
        self.leave_pending(now, listener, peer, reset);
    }

    /// A connection of a listener is open: `accept` returns it.
    pub(super) fn offer(&mut self, listener_id: ListenerId, id: ConnId) {
        let Some(listener) = self.listeners.get_mut(listener_id) else { return };
        self.counters.passive_opens += 1;
        listener.ready.push_back(id);
        if !listener.notified {
            listener.notified = true;
            self.incoming.push_back(super::News::Listener(listener_id));
        }
    }

    /// No packet reaches this connection any more: its tuple is free, or belongs to a TIME-WAIT entry.
    pub(super) fn detach(&mut self, now: Instant, slot: u32) {
        let Some(conn) = self.tables.conns.at_mut(slot) else { return };
        conn.flags.detached = true;
        conn.tx.finish(now, &mut self.shared.totals);
        if core::mem::take(&mut conn.flags.orphan) {
            self.pool.budget.remove_orphan();
        }
        let tuple = conn.tuple;
        if let Some(listener) = conn.listener().and_then(|listener| self.listeners.get_mut(listener)) {
            listener.counts.remove(tuple.peer.ip());
        }
        let remnant = (conn.state == State::TimeWait).then(|| TimeWait::of(now, conn));
        self.tables.demux.remove(&tuple, Owner::Conn(slot));
        self.timers.clear(slot);
        if let Some(entry) = remnant
            && let Some(place) = self.tables.time_wait.insert(now, entry)
        {
            self.counters.time_wait += 1;
            self.tables.insert(&tuple, Owner::TimeWait(place));
        }
    }

    pub(super) fn free(&mut self, now: Instant, slot: u32) {
        self.timers.clear(slot);
        if let Some(mut conn) = self.tables.conns.remove(slot) {
            self.awaiting_tickets -= u32::from(conn.flags.awaits_ticket);
            if conn.take_black_hole() {
                self.note_black_hole(now);
            } else if conn.fast_open_worked() {
                self.fast_open.note_worked(now, &self.config.fast_open);
            }
            conn.tx.leave_device(&mut self.shared);
            conn.discard(&mut self.pool);
            self.pool.budget.set_connections(self.tables.conns.len());
        }
    }
}
