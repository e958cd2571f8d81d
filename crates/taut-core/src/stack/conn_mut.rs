//! A connection in the application's hands: the commands and getters of the public interface.

use core::task::Poll;

use bytes::Bytes;

use super::{ConnRef, Stack};
use crate::conn::Conn;
use crate::egress::Completion;
use crate::egress::WriteFlags;
use crate::settings::options::SetOption;
use crate::words::{Instant, OptionError, ReadError, WriteError};

/// One connection, borrowed from its stack with [`Stack::conn_mut`].
///
/// After a command, ask the stack for [transmissions](Stack::poll_transmit).
#[derive(Debug)]
pub struct ConnMut<'a> {
    stack: &'a mut Stack,
    slot: u32,
}

impl<'a> ConnMut<'a> {
    /// `slot` is in use: [`Stack::conn_mut`] has checked.
    pub(super) fn new(stack: &'a mut Stack, slot: u32) -> Self {
        Self { stack, slot }
    }

    fn conn(&self) -> &Conn {
        // A connection is freed only when its last holder releases it, and `self` is borrowed from that
        // holder.
        self.stack.tables.conns.at(self.slot).expect("the connection is held")
    }

    fn with<R>(&mut self, now: Instant, f: impl FnOnce(&mut Conn, &mut crate::conn::StackCx<'_>) -> R) -> R {
        self.stack.with(now, self.slot, f).expect("the connection is held")
    }

    /// Queues as much of `data` as there is room for and returns the number of bytes queued; see
    /// [`write_with`](Self::write_with).
    ///
    /// # Errors
    ///
    /// [`WriteError::WouldBlock`] when there is no room: [`Event::Writable`](crate::Event::Writable) follows.
    pub fn write(&mut self, now: Instant, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(now, data, WriteFlags::default())
    }

    /// Like `send(2)` with flags. Data is accepted while the send buffer and TCP_NOTSENT_LOWAT have room for
    /// another buffer, and always while the last buffer is not full.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_with(&mut self, now: Instant, data: &[u8], flags: WriteFlags) -> Result<usize, WriteError> {
        self.with(now, |conn, cx| conn.write(cx, data, flags))
    }

    /// [`write`](Self::write) without a copy: takes bytes from the front of `data`, as many as there is room
    /// for, and leaves the rest. The connection holds the memory until the peer has acknowledged the bytes;
    /// what it counts against the send buffer is the bytes, not the memory.
    ///
    /// Returns the number of this write, under which [`poll_free`](Self::poll_free) reports that the bytes
    /// are free: as for Linux's MSG_ZEROCOPY, the writes that took anything are counted from 0, and the count
    /// wraps. `None` if `data` is empty. Less than 4 KiB are copied; the completion says so.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); then `data` is as it was, and the write has no number.
    pub fn write_bytes(&mut self, now: Instant, data: &mut Bytes) -> Result<Option<u32>, WriteError> {
        self.write_bytes_with(now, data, WriteFlags::default())
    }

    /// [`write_bytes`](Self::write_bytes) with flags.
    ///
    /// # Errors
    ///
    /// As [`write_bytes`](Self::write_bytes).
    pub fn write_bytes_with(
        &mut self,
        now: Instant,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Result<Option<u32>, WriteError> {
        self.with(now, |conn, cx| conn.write_bytes(cx, data, flags))
    }

    /// The next range of writes by [`write_bytes`](Self::write_bytes) that are complete: their bytes are
    /// acknowledged (or never will be, because the connection ended), and neither the connection nor a packet
    /// in a device holds their memory. In order, and each write once; it need not be called.
    ///
    /// `Ready(None)` if every write was reported. After `Pending`,
    /// [`Event::Writable`](crate::Event::Writable) follows when there is something to report.
    pub fn poll_free(&mut self, now: Instant) -> Poll<Option<Completion>> {
        self.with(now, Conn::poll_free)
    }

    /// Moves received bytes to `into` and returns how many. Zero (for a buffer that is not empty) means the
    /// end of the stream.
    ///
    /// # Errors
    ///
    /// [`ReadError::WouldBlock`] when there is nothing: [`Event::Readable`](crate::Event::Readable) follows.
    pub fn read(&mut self, now: Instant, into: &mut [u8]) -> Result<usize, ReadError> {
        self.with(now, |conn, cx| conn.read(cx, into))
    }

    /// [`read`](Self::read) without a copy: the next received bytes that are contiguous in memory, at most
    /// `max`, in the memory in which they arrived. Empty (for a `max` above 0) means the end of the stream.
    ///
    /// Holding them keeps the whole piece of memory, of which they are at least an eighth; it returns to the
    /// stack's pool when they are dropped. Fewer bytes than that, or than 1 KiB, are copied. Bytes that were
    /// read no longer count against the receive buffer, so an application that collects them bounds its own
    /// memory.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_chunk(&mut self, now: Instant, max: usize) -> Result<Bytes, ReadError> {
        self.with(now, |conn, cx| conn.read_chunk(cx, max))
    }

    /// Copies received bytes without consuming them: a later read returns them too.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn peek(&mut self, into: &mut [u8]) -> Result<usize, ReadError> {
        self.conn().may_read()?;
        Ok(self.conn().rx.peek(into))
    }

    /// The next received bytes that are contiguous in memory, without a copy; empty at the end of the stream.
    /// Follow with [`consume`](Self::consume).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn chunk(&mut self) -> Result<&[u8], ReadError> {
        self.conn().may_read()?;
        Ok(self.conn().rx.chunk())
    }

    /// Drops the first `count` received bytes, or all if there are fewer.
    pub fn consume(&mut self, now: Instant, count: usize) {
        self.with(now, |conn, cx| conn.consume(cx, count));
    }

    /// Whether [`read`](Self::read) would return something now (data, the end or an error): POLLIN.
    #[must_use]
    pub fn readable(&mut self) -> bool {
        self.conn().is_readable()
    }

    /// Whether a write would take data now: POLLOUT. After `false`,
    /// [`Event::Writable`](crate::Event::Writable) follows.
    #[must_use]
    pub fn writable(&mut self, now: Instant) -> bool {
        self.with(now, |conn, cx| conn.poll_writable(cx))
    }

    /// Ends writing: FIN follows the queued data. A second call changes nothing.
    ///
    /// # Errors
    ///
    /// [`WriteError::NotConnected`], or the connection's error.
    pub fn shutdown_write(&mut self, now: Instant) -> Result<(), WriteError> {
        self.with(now, Conn::shutdown_write)
    }

    /// Ends reading: received data is acknowledged and dropped, now and later.
    pub fn shutdown_read(&mut self, now: Instant) {
        self.with(now, Conn::shutdown_read);
    }

    /// Releases the connection: queued data is still delivered, then FIN. If received data was left unread,
    /// the peer gets RST instead. The name is invalid afterwards.
    pub fn close(mut self, now: Instant) {
        self.with(now, Conn::close);
        self.stack.note_released(now, self.slot);
    }

    /// Releases the connection with RST. The name is invalid afterwards.
    pub fn abort(mut self, now: Instant) {
        self.with(now, |conn, cx| {
            conn.flags.held = false;
            conn.abort(cx);
        });
    }

    /// Sets one option.
    ///
    /// # Errors
    ///
    /// [`OptionError::OutOfRange`]; in that case nothing has changed.
    pub fn set_option(&mut self, now: Instant, option: SetOption) -> Result<(), OptionError> {
        self.with(now, |conn, cx| conn.set_option(cx, option))
    }

    /// The same connection, read only.
    #[must_use]
    pub fn as_ref(&self) -> ConnRef<'_> {
        ConnRef::new(self.stack, self.conn())
    }
}
