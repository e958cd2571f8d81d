//! Reading and writing without a copy: what both kinds of socket share, and a reader that hands out received memory in
//! place. The rules are in `taut_core::ConnMut::write_bytes` and its neighbours.

use std::io::{self, BufRead, Read, Write};
use std::task::Poll;

use bytes::{Buf, Bytes};
use taut_core::{Completion, ReadError, WriteError, WriteFlags};
use taut_driver::Access;

use crate::common::socket::{Attempt, Socket};
use crate::error;

impl Socket {
    pub(crate) fn read_chunk(&self, access: &mut Access<'_>, max: usize) -> Attempt<Bytes> {
        let (mut conn, now) = self.conn(access)?;
        match conn.read_chunk(now, max) {
            Err(ReadError::WouldBlock) => Poll::Pending,
            other => Poll::Ready(other.map_err(error::read)),
        }
    }

    /// Adds chunks of at most `max` bytes together to `into`; returns the number of bytes.
    pub(crate) fn read_chunks(
        &self,
        access: &mut Access<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Attempt<usize> {
        self.take_chunks(access, into, max).map_ok(|(total, _)| total)
    }

    /// The same. If nothing is left, the task waits for more, and this says so.
    pub(crate) fn read_chunks_and_wait(
        &self,
        access: &mut Access<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Attempt<(usize, bool)> {
        let taken = self.take_chunks(access, into, max);
        if let Poll::Ready(Ok((_, true))) = taken {
            access.wait_after();
        }
        taken
    }

    /// How many bytes, and whether nothing is left: neither bytes nor the end.
    fn take_chunks(
        &self,
        access: &mut Access<'_>,
        into: &mut Vec<Bytes>,
        max: usize,
    ) -> Attempt<(usize, bool)> {
        let (mut conn, now) = self.conn(access)?;
        let (mut total, mut is_all) = (0, false);
        while total < max {
            match conn.read_chunk(now, max - total) {
                Ok(chunk) if chunk.is_empty() => break,
                Ok(chunk) => {
                    total += chunk.len();
                    into.push(chunk);
                }
                Err(error) if total > 0 => {
                    is_all = matches!(error, ReadError::WouldBlock);
                    break;
                }
                Err(ReadError::WouldBlock) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error::read(error))),
            }
        }
        Poll::Ready(Ok((total, is_all)))
    }

    /// Hands what can be read, at most `room` bytes, to `put` piece by piece, in place.
    #[cfg(feature = "hyper")]
    pub(crate) fn read_pieces(
        &self,
        access: &mut Access<'_>,
        room: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Attempt<()> {
        let (mut conn, now) = self.conn(access)?;
        let mut left = room;
        while left > 0 {
            let count = match conn.chunk() {
                Ok(chunk) => {
                    let count = chunk.len().min(left);
                    put(&chunk[..count]);
                    count
                }
                Err(ReadError::WouldBlock) if left == room => return Poll::Pending,
                Err(error) if left == room => return Poll::Ready(Err(error::read(error))),
                Err(_) => break,
            };
            if count == 0 {
                break;
            }
            conn.consume(now, count);
            left -= count;
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn write_bytes(&self, access: &mut Access<'_>, data: &mut Bytes) -> Attempt<Option<u32>> {
        self.write_bytes_with(access, data, WriteFlags::default())
    }

    fn write_bytes_with(
        &self,
        access: &mut Access<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Attempt<Option<u32>> {
        let (mut conn, now) = self.conn(access)?;
        match conn.write_bytes_with(now, data, flags) {
            Err(WriteError::WouldBlock) => Poll::Pending,
            other => Poll::Ready(other.map_err(error::write)),
        }
    }

    /// [`write_bytes`](Self::write_bytes), and whether there is room for more: as [`writable`](Self::writable) says.
    pub(crate) fn write_bytes_and_look(
        &self,
        access: &mut Access<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Attempt<bool> {
        let written = self.write_bytes_with(access, data, flags);
        if !matches!(written, Poll::Ready(Ok(_))) {
            return written.map_ok(|_| false);
        }
        let (mut conn, now) = self.conn(access)?;
        Poll::Ready(Ok(conn.writable(now)))
    }

    pub(crate) fn freed(&self, access: &mut Access<'_>) -> Attempt<Option<Completion>> {
        let (mut conn, now) = self.conn(access)?;
        conn.poll_free(now).map(Ok)
    }
}

/// A [`blocking::TcpStream`](crate::blocking::TcpStream) that can be read in place: its buffer is the memory in which
/// packets arrived, so [`BufRead`] copies nothing. It holds one chunk at a time.
///
/// Made by [`blocking::TcpStream::buffered`](crate::blocking::TcpStream::buffered). What [`BufRead`] has buffered can
/// be read only here, no longer from another handle of the stream.
#[derive(Debug)]
pub struct BlockingReader {
    stream: crate::blocking::TcpStream,
    chunk: Bytes,
}

impl BlockingReader {
    pub(crate) const fn new(stream: crate::blocking::TcpStream) -> Self {
        Self { stream, chunk: Bytes::new() }
    }

    /// The stream.
    #[must_use]
    pub const fn get_ref(&self) -> &crate::blocking::TcpStream {
        &self.stream
    }

    /// The stream, and what was buffered and not read.
    #[must_use]
    pub fn into_parts(self) -> (crate::blocking::TcpStream, Bytes) {
        (self.stream, self.chunk)
    }

    /// The next bytes, in memory that may be kept; empty at the end of the stream. See
    /// [`read_chunk`](crate::blocking::TcpStream::read_chunk).
    ///
    /// # Errors
    /// Those of reading.
    pub fn read_chunk(&mut self, max: usize) -> io::Result<Bytes> {
        if self.chunk.is_empty() {
            return self.stream.read_chunk(max);
        }
        Ok(self.chunk.split_to(max.min(self.chunk.len())))
    }
}

impl Read for BlockingReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            return self.stream.read(into);
        }
        let count = self.chunk.len().min(into.len());
        self.chunk.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

impl BufRead for BlockingReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            self.chunk = self.stream.read_chunk(usize::MAX)?;
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, count: usize) {
        self.chunk.advance(count.min(self.chunk.len()));
    }
}

impl Write for BlockingReader {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.stream.write(data)
    }

    fn write_vectored(&mut self, data: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The asynchronous counterpart of [`BlockingReader`], over a stream or a reading half.
#[cfg(feature = "tokio")]
mod asynchronous {
    use std::pin::Pin;
    use std::task::{Context, ready};

    use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

    use super::{Buf, Bytes, Poll, io};
    use crate::tokio::split::{OwnedReadHalf, ReadHalf};
    use crate::tokio::stream::TcpStream;

    /// What chunks can be read from.
    pub trait Chunks: sealed::Chunks + AsyncRead + Unpin {}

    impl<S: sealed::Chunks + AsyncRead + Unpin> Chunks for S {}

    pub(crate) mod sealed {
        use super::{Bytes, Context, Poll, io};

        pub trait Chunks {
            fn poll_chunk(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>>;
        }
    }

    impl sealed::Chunks for TcpStream {
        fn poll_chunk(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
            self.poll_read_chunk(cx, max)
        }
    }

    impl sealed::Chunks for OwnedReadHalf {
        fn poll_chunk(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
            self.poll_read_chunk(cx, max)
        }
    }

    impl sealed::Chunks for ReadHalf<'_> {
        fn poll_chunk(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
            self.poll_read_chunk(cx, max)
        }
    }

    /// A stream or a reading half that can be read in place: its buffer is the memory in which packets arrived, so
    /// [`AsyncBufRead`] copies nothing. It holds one chunk at a time.
    ///
    /// Made by the methods `buffered`. Writing goes to the stream directly.
    #[derive(Debug)]
    pub struct Reader<S> {
        stream: S,
        chunk: Bytes,
    }

    impl<S: Chunks> Reader<S> {
        pub(crate) const fn new(stream: S) -> Self {
            Self { stream, chunk: Bytes::new() }
        }

        /// The stream.
        pub const fn get_ref(&self) -> &S {
            &self.stream
        }

        /// The stream, and what was buffered and not read.
        #[must_use]
        pub fn into_parts(self) -> (S, Bytes) {
            (self.stream, self.chunk)
        }

        /// The next bytes, at most `max`, in memory that may be kept; empty at the end of the stream. See
        /// [`TcpStream::read_chunk`].
        ///
        /// # Errors
        /// Why the connection ended.
        pub async fn read_chunk(&mut self, max: usize) -> io::Result<Bytes> {
            if self.chunk.is_empty() {
                return std::future::poll_fn(|cx| self.stream.poll_chunk(cx, max)).await;
            }
            Ok(self.chunk.split_to(max.min(self.chunk.len())))
        }
    }

    impl<S: Chunks> AsyncRead for Reader<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Self { stream, chunk } = &mut *self;
            if chunk.is_empty() {
                return Pin::new(stream).poll_read(cx, into);
            }
            let count = chunk.len().min(into.remaining());
            into.put_slice(&chunk.split_to(count));
            Poll::Ready(Ok(()))
        }
    }

    impl<S: Chunks> AsyncBufRead for Reader<S> {
        fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            let Self { stream, chunk } = self.get_mut();
            if chunk.is_empty() {
                *chunk = ready!(stream.poll_chunk(cx, usize::MAX))?;
            }
            Poll::Ready(Ok(chunk))
        }

        fn consume(mut self: Pin<&mut Self>, count: usize) {
            let count = count.min(self.chunk.len());
            self.chunk.advance(count);
        }
    }

    impl<S: Chunks + AsyncWrite> AsyncWrite for Reader<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write(cx, data)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            data: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.stream).poll_write_vectored(cx, data)
        }

        fn is_write_vectored(&self) -> bool {
            self.stream.is_write_vectored()
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }
}

#[cfg(feature = "tokio")]
pub use asynchronous::{Chunks, Reader};
