//! The asynchronous [`TcpStream`].

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use taut_core::{Completion, ConnOptions, WriteFlags};
use taut_driver::{Access, WaitKey};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Ready};

use crate::common::socket::Socket;
use crate::common::socket_methods::socket_methods;
use crate::dns::Target;
use crate::stack::Stack;
use crate::tokio::reader::Reader;
use crate::tokio::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::wait::{Attempt, Waiting, now_or_would_block, until};

/// A connection, like [`tokio::net::TcpStream`].
///
/// Dropping it closes it gracefully: written data is still delivered, in the background. If received data was
/// not read, the peer gets a reset, as with kernel sockets.
///
/// ```no_run
/// # async fn example(stack: &taut::Stack) -> std::io::Result<()> {
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let mut stream = taut::TcpStream::connect(stack, "example.com:80").await?;
/// stream.set_nodelay(true)?;
/// stream.write_all(b"GET / HTTP/1.0\r\nHost: example.com\r\n\r\n").await?;
/// let mut page = Vec::new();
/// stream.read_to_end(&mut page).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TcpStream {
    pub(crate) socket: Arc<Socket>,
}

impl Stack {
    /// [`TcpStream::connect`] to an address.
    ///
    /// # Errors
    /// Those of [`TcpStream::connect`].
    pub async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(self, to, &ConnOptions::default()).await
    }
}

impl TcpStream {
    /// Connects to the first of the addresses that answers. A name is [looked up](crate::dns).
    ///
    /// # Errors
    /// [`io::ErrorKind::ConnectionRefused`], [`io::ErrorKind::TimedOut`],
    /// [`io::ErrorKind::HostUnreachable`], [`io::ErrorKind::NetworkUnreachable`],
    /// [`io::ErrorKind::AddrNotAvailable`] when the stack has no address of that family, or those of name
    /// resolution.
    pub async fn connect(stack: &Stack, addresses: impl Into<Target>) -> io::Result<Self> {
        let mut last = None;
        for address in addresses.into().found(stack).await? {
            match Self::connect_with(stack, address, &ConnOptions::default()).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to")))
    }

    /// Connects with options, which may include the local address. Dropping the future gives up the attempt.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect), or [`io::ErrorKind::AddrInUse`].
    pub async fn connect_with(stack: &Stack, to: SocketAddr, options: &ConnOptions) -> io::Result<Self> {
        let socket = Socket::connect(stack, to, options)?;
        until(&socket.shard, socket.write_interest(), |access| socket.connected(access)).await?;
        Ok(Self { socket })
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
    pub async fn connect_with_data(
        stack: &Stack,
        to: SocketAddr,
        options: &ConnOptions,
        data: &[u8],
    ) -> io::Result<(Self, usize)> {
        let stream = Self::connect_with(stack, to, &options.clone().with_fast_open()).await?;
        let socket = &*stream.socket;
        let taken =
            until(&socket.shard, socket.write_interest(), |access| socket.write(access, data)).await?;
        Ok((stream, taken))
    }

    /// Connects within `timeout`. Needs a tokio runtime with time enabled.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect); [`io::ErrorKind::TimedOut`] when the time is over.
    pub async fn connect_timeout(stack: &Stack, to: SocketAddr, timeout: Duration) -> io::Result<Self> {
        match tokio::time::timeout(timeout, stack.connect(to)).await {
            Ok(result) => result,
            Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
        }
    }

    socket_methods!();

    /// Waits until there is data to read, or the end of the stream.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn readable(&self) -> io::Result<()> {
        let socket = &*self.socket;
        until(&socket.shard, socket.read_interest(), |access| socket.readable(access)).await
    }

    /// Waits until there is room to write: fewer unsent bytes than half of `TCP_NOTSENT_LOWAT`.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn writable(&self) -> io::Result<()> {
        let socket = &*self.socket;
        until(&socket.shard, socket.write_interest(), |access| socket.writable(access)).await
    }

    /// Waits until one of the conditions in `interest` holds, and returns which.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn ready(&self, interest: tokio::io::Interest) -> io::Result<Ready> {
        let socket = &*self.socket;
        let (read, write) = (interest.is_readable(), interest.is_writable());
        let mut reading = Waiting::new(&socket.shard, socket.read_interest());
        let mut writing = Waiting::new(&socket.shard, socket.write_interest());
        poll_fn(|cx| {
            let mut found = Ready::EMPTY;
            if read && reading.poll(cx, &mut |access| socket.readable(access))?.is_ready() {
                found |= Ready::READABLE;
            }
            if write && writing.poll(cx, &mut |access| socket.writable(access))?.is_ready() {
                found |= Ready::WRITABLE;
            }
            if found.is_empty() { Poll::Pending } else { Poll::Ready(Ok(found)) }
        })
        .await
    }

    /// Reads available data, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is no data, or why the connection ended.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        now_or_would_block(self.socket.shard.attempt(|access| self.socket.read(access, into)))
    }

    /// Writes as much as there is room for, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is no room, or why the connection ended.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        now_or_would_block(self.socket.shard.attempt(|access| self.socket.write(access, data)))
    }

    /// [`try_write`](Self::try_write) from several pieces.
    ///
    /// # Errors
    /// Those of [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        now_or_would_block(self.socket.shard.attempt(|access| self.socket.write_vectored(access, data)))
    }

    /// Waits for data and copies it without consuming it.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        let socket = &*self.socket;
        until(&socket.shard, socket.read_interest(), |access| socket.peek(access, into)).await
    }

    /// Hands over bytes without a copy: waits for room, takes as many as there is room for from the front of
    /// `data`, and leaves the rest. The connection holds their memory until the peer has acknowledged them.
    ///
    /// Returns the write's number, under which [`next_completion`](Self::next_completion) reports that the
    /// bytes are free, as Linux's MSG_ZEROCOPY does; `None` if `data` is empty. The writes that take
    /// something are counted from 0. Less than 4 KiB are copied.
    ///
    /// The future is cancel safe: when it is dropped before it is ready, nothing was taken.
    ///
    /// # Errors
    /// Why the connection ended; then `data` is as it was.
    pub async fn write_bytes(&self, data: &mut Bytes) -> io::Result<Option<u32>> {
        let socket = &*self.socket;
        let mut waiting = Waiting::new(&socket.shard, socket.write_interest());
        poll_fn(|cx| {
            if socket.turn.is_over(cx) {
                return Poll::Pending;
            }
            let before = data.len();
            let result = waiting.poll(cx, &mut |access| socket.write_bytes(access, data));
            socket.turn.note(&result, before - data.len());
            result
        })
        .await
    }

    /// [`write_bytes`](Self::write_bytes) until everything is handed over.
    ///
    /// The future is not cancel safe: when it is dropped before it is ready, a part may have been handed
    /// over.
    ///
    /// # Errors
    /// Why the connection ended; then a part may have been handed over.
    pub async fn write_all_bytes(&self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            self.write_bytes(&mut data).await?;
        }
        Ok(())
    }

    /// Waits until lent writes are complete, and returns their numbers: their bytes are acknowledged (or
    /// never will be, because the connection ended), and nobody holds their memory. In order, each write
    /// once. `None` if every write was reported. It need not be called.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn next_completion(&self) -> io::Result<Option<Completion>> {
        let socket = &*self.socket;
        until(&socket.shard, socket.write_interest(), |access| socket.next_completion(access)).await
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
    /// Why the connection ended.
    pub async fn read_chunk(&self, max: usize) -> io::Result<Bytes> {
        let socket = &*self.socket;
        until(&socket.shard, socket.read_interest(), |access| socket.read_chunk(access, max)).await
    }

    /// Waits for received bytes and adds what there is, at most `max` bytes, to `into`, as the chunks that
    /// [`read_chunk`](Self::read_chunk) would return one by one. Returns the number of bytes; zero (for a
    /// `max` above 0) means the end of the stream. A call costs the same for one chunk as for many, and the
    /// window opens once.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn read_chunks(&self, into: &mut Vec<Bytes>, max: usize) -> io::Result<usize> {
        let socket = &*self.socket;
        until(&socket.shard, socket.read_interest(), |access| socket.read_chunks(access, into, max)).await
    }

    /// A reader with [`AsyncBufRead`](tokio::io::AsyncBufRead) whose buffer is the received memory itself.
    #[must_use]
    pub const fn buffered(self) -> Reader<Self> {
        Reader::new(self)
    }

    /// Ends reading, writing, or both. When writing ends, the peer sees the end of the stream after all
    /// written data.
    ///
    /// The name is not `shutdown` because that is the name of `AsyncWriteExt::shutdown`, which ends writing.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn shutdown_with(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Splits the stream into a reading and a writing half that borrow it.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// Splits the stream into owned halves, for different tasks. Dropping the write half ends writing.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        OwnedReadHalf::pair(self)
    }

    pub(crate) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let socket = &*self.socket;
        let place = into.initialize_unfilled();
        let count = ready!(socket.shard.poll_into(socket.id, WaitKey::POLL, cx.waker(), place, |access| {
            socket.read_placed(access)
        }))?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_peek_shared(
        &self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let socket = &*self.socket;
        let place = into.initialize_unfilled();
        let count = ready!(socket.shard.poll(socket.read_interest(), WaitKey::POLL, cx.waker(), |access| {
            socket.peek(access, place)
        }))?;
        into.advance(count);
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_write_shared(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let socket = &*self.socket;
        socket.turn.write(cx, || {
            socket
                .shard
                .poll(socket.write_interest(), WaitKey::POLL, cx.waker(), |access| socket.write(access, data))
        })
    }

    pub(crate) fn poll_write_vectored_shared(
        &self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = &*self.socket;
        socket.turn.write(cx, || {
            socket.shard.poll(socket.write_interest(), WaitKey::POLL, cx.waker(), |access| {
                socket.write_vectored(access, data)
            })
        })
    }

    /// [`peek`](Self::peek) as a poll function.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn poll_peek(&self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.poll_peek_shared(cx, into)
    }

    /// [`read_chunk`](Self::read_chunk) as a poll function.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn poll_read_chunk(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
        let socket = &*self.socket;
        socket
            .shard
            .poll(socket.read_interest(), WaitKey::POLL, cx.waker(), |access| socket.read_chunk(access, max))
    }

    /// [`read_chunks`](Self::read_chunks) as a poll function.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn poll_read_chunks(
        &self,
        cx: &mut Context<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let socket = &*self.socket;
        socket.shard.poll(socket.read_interest(), WaitKey::POLL, cx.waker(), |access| {
            socket.read_chunks(access, into, max)
        })
    }

    /// [`poll_read_chunks`](Self::poll_read_chunks), for a task that will read again. Returns also whether
    /// nothing is left, neither bytes nor the end: then the task is woken by what comes next, as after
    /// `Pending`, and need not poll once more to learn that there is nothing.
    ///
    /// # Errors
    /// Why the connection ended.
    // Public for the relay of taut-gateway, which saves a poll under the lock for each piece with it. Hidden,
    // because its caller must not poll again before it is woken.
    #[doc(hidden)]
    pub fn poll_read_chunks_and_wait(
        &self,
        cx: &mut Context<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Poll<io::Result<(usize, bool)>> {
        let socket = &*self.socket;
        socket.shard.poll(socket.read_interest(), WaitKey::POLL, cx.waker(), |access| {
            socket.read_chunks_and_wait(access, into, max)
        })
    }

    /// [`poll_write_bytes`](Self::poll_write_bytes) with flags, which returns whether there is room for more,
    /// so that [`writable`](Self::writable) would be ready at once.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn poll_write_bytes_and_look(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Poll<io::Result<bool>> {
        self.write_in_turn(cx, data, |socket, access, data| socket.write_bytes_and_look(access, data, flags))
    }

    /// [`write_bytes`](Self::write_bytes) as a poll function.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn poll_write_bytes(&self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<io::Result<Option<u32>>> {
        self.write_in_turn(cx, data, Socket::write_bytes)
    }

    /// Writes in this task's turn; when that is over, others run first.
    fn write_in_turn<R>(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        write: impl Fn(&Socket, &mut Access<'_>, &mut Bytes) -> Attempt<R>,
    ) -> Poll<io::Result<R>> {
        let socket = &*self.socket;
        if socket.turn.is_over(cx) {
            return Poll::Pending;
        }
        let before = data.len();
        let result = socket
            .shard
            .poll(socket.write_interest(), WaitKey::POLL, cx.waker(), |access| write(socket, access, data));
        socket.turn.note(&result, before - data.len());
        result
    }

    /// [`next_completion`](Self::next_completion) as a poll function. The task that polled last is woken,
    /// whether it polled this or a write.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn poll_next_completion(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Completion>>> {
        let socket = &*self.socket;
        socket
            .shard
            .poll(socket.write_interest(), WaitKey::POLL, cx.waker(), |access| socket.next_completion(access))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_shared(cx, into)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored_shared(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: written data is already on its way.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_with(Shutdown::Write))
    }
}
