//! The asynchronous counterpart of `blocking::Reader`, over a stream or a reading half.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

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

/// A stream or a reading half that can be read in place: its buffer is the memory in which packets arrived,
/// so [`AsyncBufRead`] copies nothing. It holds one chunk at a time.
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
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
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
