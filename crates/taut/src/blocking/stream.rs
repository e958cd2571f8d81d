//! The blocking [`TcpStream`].

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use taut_core::{Completion, ConnOptions};
use taut_driver::{Access, Interest, WaitKey};

use super::reader::Reader;
use crate::common::socket::Socket;
use crate::common::socket_methods::socket_methods;
use crate::dns::{Target, first_of};
use crate::stack::Stack;
use crate::wait::{Attempt, is_ready, now_or_would_block};

/// A connection, like [`std::net::TcpStream`]. Dropping the last clone closes it gracefully, in the
/// background.
#[derive(Debug)]
pub struct TcpStream {
    pub(crate) socket: Arc<Socket>,
    /// Shared by clones, as options of a kernel socket are.
    modes: Arc<Modes>,
}

#[derive(Debug, Default)]
struct Modes {
    nonblocking: AtomicBool,
    /// In nanoseconds; 0 is none.
    read_timeout_ns: AtomicU64,
    write_timeout_ns: AtomicU64,
}

impl TcpStream {
    /// Connects to the first of the addresses that answers. A name is [looked up](crate::dns).
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`], [`io::ErrorKind::TimedOut`],
    /// [`io::ErrorKind::HostUnreachable`], [`io::ErrorKind::NetworkUnreachable`],
    /// [`io::ErrorKind::AddrNotAvailable`] when the stack has no address of that family, or those of name
    /// resolution.
    pub fn connect(stack: &Stack, addresses: impl Into<Target>) -> io::Result<Self> {
        let found = addresses.into().look_up(stack)?;
        first_of(found, |address| Self::connect_with(stack, address, &ConnOptions::default(), None))
    }

    /// Connects within `timeout`.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect); [`io::ErrorKind::TimedOut`] when the time is over,
    /// [`io::ErrorKind::InvalidInput`] when there is none.
    pub fn connect_timeout(stack: &Stack, address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        positive(Some(timeout))?;
        Self::connect_with(stack, *address, &ConnOptions::default(), Some(timeout))
    }

    /// Connects with options, which may include the local address, within `timeout` if it is given.
    ///
    /// # Errors
    /// Those of [`connect_timeout`](Self::connect_timeout), or [`io::ErrorKind::AddrInUse`].
    pub fn connect_with(
        stack: &Stack,
        to: SocketAddr,
        options: &ConnOptions,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let socket = Socket::connect(stack, to, options)?;
        let deadline = timeout.map(|timeout| socket.shard.clock().now() + timeout.into());
        socket
            .shard
            .wait(socket.write_interest(), deadline, |access| socket.connected(access))
            .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out")))?;
        Ok(Self::of(socket))
    }

    /// Connects, and hands over the beginning of `data`: with TCP Fast Open, so that it leaves with the SYN
    /// if there is a cookie of the server; else when the connection is open. Returns how much was taken.
    /// Linux: `MSG_FASTOPEN`.
    ///
    /// Data in a SYN may arrive twice, at two connections, if the network repeats the SYN: it must not do
    /// harm then (RFC 7413 §6.1).
    ///
    /// # Errors
    /// Those of [`connect_with`](Self::connect_with). With a cookie, the server has not answered yet, and the
    /// stream's reads and writes report what goes wrong.
    pub fn connect_with_data(
        stack: &Stack,
        to: SocketAddr,
        options: &ConnOptions,
        data: &[u8],
    ) -> io::Result<(Self, usize)> {
        let stream = Self::connect_with(stack, to, &options.clone().with_fast_open(), None)?;
        let socket = &*stream.socket;
        let taken = socket
            .shard
            .wait(socket.write_interest(), None, |access| socket.write(access, data))
            .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
        Ok((stream, taken))
    }

    /// Begins to connect, and does not wait. The stream is in nonblocking mode;
    /// [`writable_or_wake`](Self::writable_or_wake) says when it is connected or has failed, and
    /// [`take_error`](Self::take_error) why.
    ///
    /// # Errors
    /// Those of [`connect_with`](Self::connect_with) that are there before a packet is sent.
    pub fn begin_connect(stack: &Stack, to: SocketAddr, options: &ConnOptions) -> io::Result<Self> {
        let stream = Self::of(Socket::connect(stack, to, options)?);
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Whether a read would return something: data, the end, an error. If not, `waker` is called when it
    /// may. For an event loop: only the last waker that was given for reading is called, and once.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn readable_or_wake(&self, waker: &Waker) -> io::Result<bool> {
        let (shard, socket) = (&self.socket.shard, &self.socket);
        is_ready(shard.poll(socket.read_interest(), WaitKey::POLL, waker, |access| socket.readable(access)))
    }

    /// Whether a write would take something or return an error; if not, `waker` is called when it may. For an
    /// event loop: only the last waker that was given for writing is called, and once.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn writable_or_wake(&self, waker: &Waker) -> io::Result<bool> {
        let (shard, socket) = (&self.socket.shard, &self.socket);
        is_ready(shard.poll(socket.write_interest(), WaitKey::POLL, waker, |access| socket.writable(access)))
    }

    pub(crate) fn of(socket: Arc<Socket>) -> Self {
        Self { socket, modes: Arc::default() }
    }

    socket_methods!();

    /// Another handle to the same connection, which shares its options.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: Arc::clone(&self.socket), modes: Arc::clone(&self.modes) })
    }

    /// Ends reading, writing, or both. When writing ends, the peer sees the end of the stream after all
    /// written data.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Sets whether reads and writes fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.modes.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Sets how long a read waits before it fails with [`io::ErrorKind::WouldBlock`]; `None` means forever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.modes.read_timeout_ns.store(positive(timeout)?, Ordering::Relaxed);
        Ok(())
    }

    /// Sets how long a write waits before it fails with [`io::ErrorKind::WouldBlock`]; `None` means forever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.modes.write_timeout_ns.store(positive(timeout)?, Ordering::Relaxed);
        Ok(())
    }

    /// The read timeout, as last set.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(timeout(&self.modes.read_timeout_ns))
    }

    /// The write timeout, as last set.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(timeout(&self.modes.write_timeout_ns))
    }

    /// Waits for data and copies it without consuming it.
    ///
    /// # Errors
    /// Those of reading.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.wait_read(|access| self.socket.peek(access, into))
    }

    /// Hands over bytes without a copy: waits for room, takes as many as there is room for from the front of
    /// `data`, and leaves the rest. The connection holds their memory until the peer has acknowledged them.
    ///
    /// Returns the write's number, under which [`next_completion`](Self::next_completion) reports that the
    /// bytes are free, as Linux's MSG_ZEROCOPY does; `None` if `data` is empty. The writes that take
    /// something are counted from 0. Less than 4 KiB are copied.
    ///
    /// # Errors
    /// Those of writing; then `data` is as it was.
    pub fn write_bytes(&self, data: &mut Bytes) -> io::Result<Option<u32>> {
        self.wait_write(|access| self.socket.write_bytes(access, data))
    }

    /// [`write_bytes`](Self::write_bytes) until everything is handed over.
    ///
    /// # Errors
    /// Those of writing; then a part may have been handed over.
    pub fn write_all_bytes(&self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            self.write_bytes(&mut data)?;
        }
        Ok(())
    }

    /// Waits until lent writes are complete, and returns their numbers: their bytes are acknowledged (or
    /// never will be, because the connection ended), and nobody holds their memory. In order, each write
    /// once. `None` if every write was reported. It need not be called.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] after the write timeout; the stack was shut down.
    pub fn next_completion(&self) -> io::Result<Option<Completion>> {
        self.wait_write(|access| self.socket.next_completion(access))
    }

    /// Waits for received bytes and returns those that are contiguous in memory, at most `max`, without a
    /// copy. Empty (for a `max` above 0) means the end of the stream.
    ///
    /// They may be kept. Each chunk holds at most eight times as much memory as it has bytes: fewer bytes
    /// than that are copied, as are less than 1 KiB. They no longer count against the receive buffer, so an
    /// application that collects chunks bounds its own memory. Memory that is dropped returns to the stack's
    /// pool.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read_chunk(&self, max: usize) -> io::Result<Bytes> {
        self.wait_read(|access| self.socket.read_chunk(access, max))
    }

    /// Waits for received bytes and adds what there is, at most `max` bytes, to `into`, as the chunks that
    /// [`read_chunk`](Self::read_chunk) would return one by one. Returns the number of bytes; zero (for a
    /// `max` above 0) means the end of the stream. A call costs the same for one chunk as for many, and the
    /// window opens once.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read_chunks(&self, into: &mut Vec<Bytes>, max: usize) -> io::Result<usize> {
        self.wait_read(|access| self.socket.read_chunks(access, into, max))
    }

    /// A reader with [`BufRead`](io::BufRead) whose buffer is the received memory itself.
    #[must_use]
    pub const fn buffered(self) -> Reader {
        Reader::new(self)
    }

    fn wait_read<T>(&self, attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>) -> io::Result<T> {
        self.wait(self.socket.read_interest(), &self.modes.read_timeout_ns, attempt)
    }

    fn wait_write<T>(&self, attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>) -> io::Result<T> {
        self.wait(self.socket.write_interest(), &self.modes.write_timeout_ns, attempt)
    }

    fn wait<T>(
        &self,
        interest: Interest,
        timeout_ns: &AtomicU64,
        attempt: impl FnMut(&mut Access<'_>) -> Attempt<T>,
    ) -> io::Result<T> {
        let shard = &self.socket.shard;
        if self.modes.nonblocking.load(Ordering::Relaxed) {
            return now_or_would_block(shard.attempt(attempt));
        }
        let deadline = self.deadline(timeout_ns);
        shard.wait(interest, deadline, attempt).unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn deadline(&self, timeout_ns: &AtomicU64) -> Option<taut_core::Instant> {
        timeout(timeout_ns).map(|timeout| self.socket.shard.clock().now() + timeout.into())
    }
}

fn positive(timeout: Option<Duration>) -> io::Result<u64> {
    match timeout {
        None => Ok(0),
        Some(Duration::ZERO) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "the timeout must not be zero"))
        }
        Some(timeout) => Ok(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
    }
}

fn timeout(ns: &AtomicU64) -> Option<Duration> {
    match ns.load(Ordering::Relaxed) {
        0 => None,
        ns => Some(Duration::from_nanos(ns)),
    }
}

impl Read for &TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let (shard, socket) = (&self.socket.shard, &self.socket);
        if self.modes.nonblocking.load(Ordering::Relaxed) {
            return now_or_would_block(shard.attempt(|access| socket.read(access, into)));
        }
        let deadline = self.deadline(&self.modes.read_timeout_ns);
        shard
            .wait_into(socket.id, deadline, into, |access| socket.read_placed(access))
            .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.wait_read(|access| self.socket.read_vectored(access, into))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.wait_write(|access| self.socket.write(access, data))
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        self.wait_write(|access| self.socket.write_vectored(access, data))
    }

    /// Does nothing: written data is already on its way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(into)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }
    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(data)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
