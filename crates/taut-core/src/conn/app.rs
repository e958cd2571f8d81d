//! The application's side of a connection: writing, reading, polling, options.
//! RFC 9293 §3.10.2 and §3.10.3, with Linux's socket options. Called by the stack for
//! [`ConnMut`](crate::ConnMut).

use core::task::Poll;

use bytes::Bytes;

use super::state::State;
use super::{Conn, StackCx};
use crate::buffers::Growth;
use crate::egress::WriteFlags;
use crate::egress::{Completion, Written};
use crate::settings::options::{ConnOptions, Keepalive, SetOption, tos_field};
use crate::words::{Duration, OptionError, ReadError, WriteError};

/// Longest `TCP_TX_DELAY`, in microseconds: 2³¹ − 1, as an `int` of `setsockopt(2)` has it.
const TX_DELAY_MAX_US: u64 = i32::MAX as u64;

fn tx_delay_us(delay: Duration) -> Option<u32> {
    u32::try_from(delay.as_micros()).ok().filter(|&us| u64::from(us) <= TX_DELAY_MAX_US)
}

impl Conn {
    /// Takes as much of `data` as there is room for.
    ///
    /// # Errors
    ///
    /// See [`WriteError`]; after an error, no data was taken.
    pub(crate) fn write(
        &mut self,
        cx: &mut StackCx<'_>,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        if let Err(error) = self.may_write() {
            return if self.awaits_first_write() { self.write_in_syn(cx, data) } else { Err(error) };
        }
        if data.is_empty() {
            return Ok(0);
        }
        let send = self.send_cx(cx);
        let written = self.tx.write(&send, data, flags, cx.pool, &mut cx.shared.totals);
        Self::note_written(cx, written)
    }

    /// Takes as much from the front of `data` as there is room for, without a copy. Returns the write's
    /// number; `None` if there was nothing to take.
    ///
    /// # Errors
    ///
    /// See [`WriteError`]; after an error, no data was taken.
    pub(crate) fn write_bytes(
        &mut self,
        cx: &mut StackCx<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Result<Option<u32>, WriteError> {
        if let Err(error) = self.may_write() {
            return if self.awaits_first_write() { self.lend_in_syn(cx, data) } else { Err(error) };
        }
        if data.is_empty() {
            return Ok(None);
        }
        let send = self.send_cx(cx);
        let (written, number) = self.tx.write_bytes(&send, data, flags, cx.pool, &mut cx.shared.totals);
        Self::note_written(cx, written).map(|_| number)
    }

    fn note_written(cx: &mut StackCx<'_>, written: Written) -> Result<usize, WriteError> {
        if let Some(held) = written.held {
            cx.counters.tcp_auto_corking += u64::from(held.throttled);
            cx.counters.autocork_held += 1;
        }
        if written.bytes == 0 { Err(WriteError::WouldBlock) } else { Ok(written.bytes) }
    }

    /// The next completed writes of [`write_bytes`](Self::write_bytes). If none is complete yet, the
    /// application is notified once one is.
    pub(crate) fn poll_free(&mut self, cx: &mut StackCx<'_>) -> Poll<Option<Completion>> {
        self.tx.poll_free(cx.now, self.state == State::Closed, &mut cx.pool.holders)
    }

    /// Lent bytes may be free now: notifies the application if it waits for that.
    #[inline]
    pub(super) fn check_loans(&mut self, cx: &mut StackCx<'_>) {
        let over = self.state == State::Closed;
        self.news.writable |= self.tx.settle_loans(cx.now, over, &mut cx.pool.holders);
    }

    pub(super) fn may_write(&self) -> Result<(), WriteError> {
        if let Some(error) = self.error {
            return Err(WriteError::Conn(error));
        }
        match self.state {
            State::SynSent | State::SynReceived if !self.is_open_early() => Err(WriteError::NotConnected),
            _ if self.tx.fin_queued() => Err(WriteError::Shutdown),
            state if state.may_write() => Ok(()),
            State::SynReceived if self.is_fast_child() => Ok(()),
            // The next write, after that which left with the SYN, waits for the handshake.
            State::SynSent | State::SynReceived => Err(WriteError::WouldBlock),
            _ => Err(WriteError::Shutdown),
        }
    }

    /// Whether a read would return something now (data, the end or an error).
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub(crate) fn may_read(&self) -> Result<(), ReadError> {
        if self.rx.unread() > 0 {
            return Ok(());
        }
        // The end of the stream takes precedence over a later error: the peer had sent everything.
        if self.rx.fin_received() || self.rx.is_shut() {
            return Ok(());
        }
        if let Some(error) = self.error {
            return Err(ReadError::Conn(error));
        }
        match self.state {
            State::SynSent | State::SynReceived if !self.is_open_early() => Err(ReadError::NotConnected),
            State::Closed | State::TimeWait => Ok(()),
            _ => Err(ReadError::WouldBlock),
        }
    }

    /// Moves received bytes to `into`; zero means the end of the stream.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub(crate) fn read(&mut self, cx: &mut StackCx<'_>, into: &mut [u8]) -> Result<usize, ReadError> {
        self.may_read()?;
        let count = self.rx.read(into, cx.pool);
        self.note_consumed(cx, count);
        Ok(count)
    }

    /// Moves at most `max` received bytes out, in the memory in which they arrived; none means the end of the
    /// stream, unless `max` is 0.
    ///
    /// # Errors
    ///
    /// See [`ReadError`].
    pub(crate) fn read_chunk(&mut self, cx: &mut StackCx<'_>, max: usize) -> Result<Bytes, ReadError> {
        self.may_read()?;
        let bytes = self.rx.read_chunk(max, cx.pool);
        self.note_consumed(cx, bytes.len());
        Ok(bytes)
    }

    /// Drops the first `count` unread bytes, or all if there are fewer.
    pub(crate) fn consume(&mut self, cx: &mut StackCx<'_>, count: usize) {
        let count = self.rx.consume(count, cx.pool);
        self.note_consumed(cx, count);
    }

    fn note_consumed(&mut self, cx: &mut StackCx<'_>, count: usize) {
        if count > 0 && self.state.may_receive() {
            self.rx.on_consumed(cx.now, count, self.growth(cx));
        }
    }

    pub(super) fn growth(&self, cx: &StackCx<'_>) -> Growth {
        let tuning = (!cx.pool.budget.is_pressed()).then_some(cx.config.tcp.buffers);
        (tuning, self.tx.recovery().min_rtt())
    }

    /// What the next read can return: unread bytes, or 1 for the end of the stream. Linux: `TCP_INQ`.
    pub(crate) fn inq(&self) -> u64 {
        self.rx.unread().max(u64::from(self.rx.fin_received()))
    }

    /// poll(2)'s POLLIN.
    pub(crate) fn is_readable(&self) -> bool {
        !matches!(self.may_read(), Err(ReadError::WouldBlock | ReadError::NotConnected))
    }

    /// poll(2)'s POLLOUT. If there is no room, the application is notified once there is.
    pub(crate) fn poll_writable(&mut self, cx: &StackCx<'_>) -> bool {
        match self.may_write() {
            Err(WriteError::NotConnected) => false,
            Err(WriteError::WouldBlock) => self.awaits_first_write(),
            // A write would report the error immediately.
            Err(_) => true,
            Ok(()) => {
                let send = self.send_cx(cx);
                self.tx.poll_writable(&send)
            }
        }
    }

    /// There may be room now: notifies the application if it waits for room.
    pub(super) fn check_space(&mut self, cx: &StackCx<'_>) {
        if self.tx.lacks_space() && self.state.may_write() {
            let send = self.send_cx(cx);
            self.news.writable |= self.tx.check_space(&send);
        }
    }

    /// Sets one option.
    ///
    /// # Errors
    ///
    /// [`OptionError::OutOfRange`]; in that case nothing has changed.
    pub(crate) fn set_option(&mut self, cx: &mut StackCx<'_>, option: SetOption) -> Result<(), OptionError> {
        match option {
            SetOption::Nodelay(on) => self.tx.set_nodelay(on),
            SetOption::Cork(on) => self.tx.set_cork(on),
            SetOption::Quickack(on) => self.rx.set_quickack(on),
            SetOption::NotsentLowat(bytes) => {
                self.tx.set_lowat(bytes);
                self.check_space(cx);
            }
            SetOption::Sndbuf(bytes) => {
                self.tx.set_sndbuf(bytes, cx.config.send.wmem_max);
                self.check_space(cx);
            }
            SetOption::Rcvbuf(bytes) => {
                let size = bytes.min(cx.config.receive.rmem_max).saturating_mul(2);
                self.rx.lock_rcvbuf(size);
            }
            SetOption::MaxPacingRate(0) => return Err(OptionError::OutOfRange("SO_MAX_PACING_RATE")),
            SetOption::MaxPacingRate(rate) => {
                self.extras_mut().max_pacing_rate = rate;
                self.tx.set_max_pacing_rate(rate);
            }
            SetOption::TxDelay(delay) => {
                let delay_us = tx_delay_us(delay).ok_or(OptionError::OutOfRange("TCP_TX_DELAY"))?;
                self.extras_mut().tx_delay_us = delay_us;
            }
            SetOption::Congestion(algorithm) => self.tx.set_algorithm(algorithm),
            SetOption::Keepalive(keepalive) => {
                if keepalive.is_some_and(|keepalive| !keepalive.is_valid()) {
                    return Err(OptionError::OutOfRange("SO_KEEPALIVE"));
                }
                self.extras_mut().keepalive = keepalive;
                self.arm_keepalive(cx);
            }
            SetOption::UserTimeout(timeout) => self.extras_mut().user_timeout = timeout,
            SetOption::Tos(tos) => self.set_tos(tos),
        }
        Ok(())
    }

    fn set_tos(&mut self, tos: u8) {
        let tos = tos_field(tos);
        if tos != self.tos() {
            self.extras_mut().tos = tos;
        }
    }

    /// Applies the initial options. Values out of range are clamped.
    pub(super) fn apply(&mut self, cx: &mut StackCx<'_>, options: &ConnOptions) {
        self.tx.begin_with_nodelay(options.nodelay);
        self.tx.set_lowat(options.notsent_lowat);
        if let Some(bytes) = options.sndbuf {
            self.tx.set_sndbuf(bytes, cx.config.send.wmem_max);
        }
        if let Some(rate) = options.max_pacing_rate.filter(|&rate| rate > 0) {
            let _ = self.set_option(cx, SetOption::MaxPacingRate(rate));
        }
        self.set_tos(options.tos);
        if options.keepalive.is_some() || options.user_timeout.is_some() {
            let keepalive = options.keepalive.filter(Keepalive::is_valid);
            let extras = self.extras_mut();
            extras.keepalive = keepalive;
            extras.user_timeout = options.user_timeout;
        }
    }
}
