//! The ways in which a connection ends: FIN after the data, an immediate RST, or an error from outside.
//! RFC 9293 §3.6 and §3.10.4–3.10.5; called by the application's commands, by arrival and by timers.

use super::state::State;
use super::{Conn, StackCx};
use crate::words::{ConnError, WriteError};

impl Conn {
    /// The application will write no more: FIN follows the data.
    ///
    /// # Errors
    ///
    /// See [`WriteError`]; shutting down twice is not an error.
    pub(crate) fn shutdown_write(&mut self, cx: &mut StackCx<'_>) -> Result<(), WriteError> {
        if self.tx.fin_queued() {
            return Ok(());
        }
        match self.may_write() {
            Err(WriteError::WouldBlock) => self.stop_waiting(),
            other => other?,
        }
        self.queue_fin(cx);
        Ok(())
    }

    fn queue_fin(&mut self, cx: &mut StackCx<'_>) {
        // The application will not write any more, but a task that waits for room must be woken to notice
        // that.
        self.news.writable |= self.tx.queue_fin();
        // If the handshake is not complete, the state changes at its end.
        if !self.is_open_early() && !self.is_accepted() {
            self.state = self.state.on_close();
        }
        self.arm_fin_wait(cx);
    }

    /// The application will read no more: received data is dropped, now and later.
    pub(crate) fn shutdown_read(&mut self, cx: &mut StackCx<'_>) {
        self.rx.shut();
        self.consume(cx, usize::MAX);
        self.news.readable = true;
    }

    /// The application releases the connection.
    pub(crate) fn close(&mut self, cx: &mut StackCx<'_>) {
        self.flags.held = false;
        let unread = self.rx.unread() > 0;
        match self.state {
            State::Closed | State::TimeWait => {}
            State::SynSent if !self.tx.has_unsent() => self.finish(cx),
            // Unread data is dropped, and the peer must be notified (RFC 2525 §2.17).
            _ if unread => {
                cx.counters.tcp_abort_on_close += 1;
                self.abort(cx);
            }
            _ if self.tx.fin_queued() => self.arm_fin_wait(cx),
            _ => self.queue_fin(cx),
        }
    }

    /// Sends RST and forgets everything queued (RFC 9293 §3.10.5).
    pub(crate) fn abort(&mut self, cx: &mut StackCx<'_>) {
        if self.state == State::Closed || self.state == State::TimeWait {
            return;
        }
        self.flags.rst_due = self.state != State::SynSent;
        self.fail(cx, ConnError::Aborted);
    }

    /// Nobody holds the connection, and there are too many such ones, or no memory.
    pub(crate) fn abort_for_memory(&mut self, cx: &mut StackCx<'_>) {
        cx.counters.tcp_abort_on_memory += 1;
        // At once: others may be asked before the RST has left.
        if core::mem::take(&mut self.flags.orphan) {
            cx.pool.budget.remove_orphan();
        }
        self.abort(cx);
    }

    /// The local address may be another host's from now on: nothing more is sent from it, not even a RST.
    pub(crate) fn on_address_removed(&mut self, cx: &mut StackCx<'_>) {
        self.flags.rst_due = false;
        if self.state != State::Closed {
            self.fail(cx, ConnError::AddressRemoved);
        }
    }

    /// Nothing has answered for too long.
    pub(super) fn give_up(&mut self, cx: &mut StackCx<'_>) {
        cx.counters.tcp_abort_on_timeout += 1;
        self.fail(cx, self.soft_error().unwrap_or(ConnError::TimedOut));
    }

    /// The connection ends with an error. Received data stays readable.
    pub(super) fn fail(&mut self, cx: &mut StackCx<'_>, error: ConnError) {
        self.error = Some(error);
        self.finish(cx);
    }

    /// The connection ends immediately: nothing is sent or received any more, except a RST that is due.
    pub(super) fn finish(&mut self, cx: &mut StackCx<'_>) {
        self.count_end(cx);
        self.state = State::Closed;
        self.news.ended = true;
        self.flags.syn_due = false;
        self.flags.window_probe_due = false;
        if let Some(ecn) = self.ecn_mut() {
            ecn.forget_turns();
        }
        self.cancel_timers();
        self.tx.discard(cx.pool);
        self.suspect_early_fin();
        self.rx.discard(cx.pool);
        self.check_loans(cx);
    }

    /// RFC 4022, tcpAttemptFails and tcpEstabResets: what counts is the state in which the end comes, whoever
    /// ends it. As in Linux, an attempt that the application itself breaks off has not failed.
    fn count_end(&self, cx: &mut StackCx<'_>) {
        match (self.state, self.error) {
            (State::SynSent, None | Some(ConnError::Aborted)) => {}
            (State::SynSent | State::SynReceived, _) => cx.counters.attempt_fails += 1,
            (State::Established | State::CloseWait, _) => cx.counters.estab_resets += 1,
            _ => {}
        }
    }

    /// Our FIN was acknowledged.
    pub(super) fn on_fin_acked(&mut self, cx: &mut StackCx<'_>) {
        self.state = self.state.on_fin_acked();
        match self.state {
            State::FinWait2 => self.arm_fin_wait(cx),
            State::TimeWait => self.enter_time_wait(cx),
            State::Closed => self.finish(cx),
            _ => {}
        }
    }

    /// The peer's FIN was received in order.
    pub(super) fn on_fin(&mut self, cx: &mut StackCx<'_>) {
        self.state = self.state.on_fin();
        self.news.readable = true;
        match self.state {
            State::TimeWait => self.enter_time_wait(cx),
            // Our FIN, with the ACK, may follow at once.
            State::CloseWait => {}
            _ => self.rx.owe_ack(),
        }
    }

    /// Both sides are done; the stack moves the remaining state into its TIME-WAIT table once the last ACK
    /// has left.
    fn enter_time_wait(&mut self, _around: &mut StackCx<'_>) {
        self.news.ended = true;
        self.cancel_timers();
        self.rx.owe_ack();
    }
}
