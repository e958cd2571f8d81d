//! The halves of a [`TcpStream`]: borrowed, and owned.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use taut_core::Completion;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tokio::reader::Reader;
use crate::tokio::stream::TcpStream;

/// The reading half of [`TcpStream::split`].
///
/// ```no_run
/// # async fn example(mut stream: taut::TcpStream) -> std::io::Result<()> {
/// use tokio::io::AsyncReadExt;
///
/// let (mut read, _write) = stream.split();
/// let mut head = [0; 16];
/// read.read_exact(&mut head).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ReadHalf<'a>(pub(crate) &'a TcpStream);

/// The writing half of [`TcpStream::split`].
///
/// ```no_run
/// # async fn example(mut stream: taut::TcpStream) -> std::io::Result<()> {
/// use tokio::io::AsyncWriteExt;
///
/// let (_read, mut write) = stream.split();
/// write.write_all(b"the last words").await?;
/// write.shutdown().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct WriteHalf<'a>(pub(crate) &'a TcpStream);

/// The reading half of [`TcpStream::into_split`].
///
/// ```no_run
/// # async fn example(stream: taut::TcpStream) -> std::io::Result<()> {
/// use tokio::io::AsyncReadExt;
///
/// let (mut read, write) = stream.into_split();
/// let reader = tokio::spawn(async move { read.read_u64().await });
/// println!("{}", reader.await??);
/// # drop(write);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The writing half of [`TcpStream::into_split`]. Dropping it ends writing.
///
/// ```no_run
/// # async fn example(stream: taut::TcpStream) -> std::io::Result<()> {
/// use tokio::io::AsyncWriteExt;
///
/// let (read, mut write) = stream.into_split();
/// let writer = tokio::spawn(async move { write.write_all(b"hello").await });
/// writer.await??;
/// # drop(read);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct OwnedWriteHalf {
    /// `None` after [`forget`](Self::forget) or [`OwnedReadHalf::reunite`].
    stream: Option<Arc<TcpStream>>,
}

/// The error of reuniting two halves of different streams.
///
/// ```no_run
/// # fn example(one: taut::TcpStream, other: taut::TcpStream) {
/// let ((read, _), (_, write)) = (one.into_split(), other.into_split());
/// let taut::ReuniteError(read, write) = read.reunite(write).unwrap_err();
/// # drop((read, write));
/// # }
/// ```
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are not of the same stream")
    }
}

impl std::error::Error for ReuniteError {}

impl OwnedReadHalf {
    pub(crate) fn pair(stream: TcpStream) -> (Self, OwnedWriteHalf) {
        let stream = Arc::new(stream);
        (Self(Arc::clone(&stream)), OwnedWriteHalf { stream: Some(stream) })
    }

    /// Puts the stream together again.
    ///
    /// # Errors
    /// The halves are not of the same stream; the error returns them.
    pub fn reunite(self, write: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        write.reunite(self)
    }

    fn stream(&self) -> &TcpStream {
        &self.0
    }
}

impl OwnedWriteHalf {
    /// Drops this half without ending writing.
    pub fn forget(mut self) {
        self.stream = None;
    }

    fn reunite(mut self, read: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&read.0, self.shared()) {
            return Err(ReuniteError(read, self));
        }
        self.stream = None;
        // Both owners are here. If the stream is nevertheless borrowed elsewhere, another handle has the same
        // socket.
        let OwnedReadHalf(stream) = read;
        Ok(Arc::try_unwrap(stream).unwrap_or_else(|stream| TcpStream { socket: Arc::clone(&stream.socket) }))
    }

    fn shared(&self) -> &Arc<TcpStream> {
        match &self.stream {
            Some(stream) => stream,
            None => unreachable!("only methods that take the half empty it"),
        }
    }

    fn stream(&self) -> &TcpStream {
        self.shared()
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // An error means that the connection is already over.
            let _ = stream.shutdown_with(Shutdown::Write);
        }
    }
}

impl ReadHalf<'_> {
    fn stream(&self) -> &TcpStream {
        self.0
    }
}

impl WriteHalf<'_> {
    fn stream(&self) -> &TcpStream {
        self.0
    }
}

macro_rules! half {
    ($half:ty) => {
        impl $half {
            /// This end's address.
            ///
            /// # Errors
            /// None; the result is there to match `tokio`.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.stream().local_addr()
            }

            /// The other end's address.
            ///
            /// # Errors
            /// None; the result is there to match `tokio`.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                self.stream().peer_addr()
            }
        }
    };
}

macro_rules! read_half {
    ($half:ty) => {
        half!($half);

        impl $half {
            /// [`TcpStream::readable`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn readable(&self) -> io::Result<()> {
                self.stream().readable().await
            }

            /// [`TcpStream::try_read`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
                self.stream().try_read(into)
            }

            /// [`TcpStream::peek`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn peek(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.stream().peek(into).await
            }

            /// [`TcpStream::read_chunk`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn read_chunk(&mut self, max: usize) -> io::Result<Bytes> {
                self.stream().read_chunk(max).await
            }

            /// [`TcpStream::read_chunks`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn read_chunks(&mut self, into: &mut Vec<Bytes>, max: usize) -> io::Result<usize> {
                self.stream().read_chunks(into, max).await
            }

            /// [`TcpStream::try_read_chunk`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn try_read_chunk(&self, max: usize) -> io::Result<Bytes> {
                self.stream().try_read_chunk(max)
            }

            /// [`TcpStream::poll_read_chunk`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn poll_read_chunk(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
                self.stream().poll_read_chunk(cx, max)
            }

            /// [`TcpStream::buffered`].
            #[must_use]
            pub const fn buffered(self) -> Reader<Self> {
                Reader::new(self)
            }
        }

        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                into: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.stream().poll_read_shared(cx, into)
            }
        }
    };
}

macro_rules! write_half {
    ($half:ty) => {
        half!($half);

        impl $half {
            /// [`TcpStream::writable`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn writable(&self) -> io::Result<()> {
                self.stream().writable().await
            }

            /// [`TcpStream::try_write`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
                self.stream().try_write(data)
            }

            /// [`TcpStream::write_bytes`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn write_bytes(&mut self, data: &mut Bytes) -> io::Result<Option<u32>> {
                self.stream().write_bytes(data).await
            }

            /// [`TcpStream::write_all_bytes`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn write_all_bytes(&mut self, data: Bytes) -> io::Result<()> {
                self.stream().write_all_bytes(data).await
            }

            /// [`TcpStream::try_write_bytes`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn try_write_bytes(&self, data: &mut Bytes) -> io::Result<Option<u32>> {
                self.stream().try_write_bytes(data)
            }

            /// [`TcpStream::poll_write_bytes`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn poll_write_bytes(
                &self,
                cx: &mut Context<'_>,
                data: &mut Bytes,
            ) -> Poll<io::Result<Option<u32>>> {
                self.stream().poll_write_bytes(cx, data)
            }

            /// [`TcpStream::next_completion`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub async fn next_completion(&self) -> io::Result<Option<Completion>> {
                self.stream().next_completion().await
            }

            /// [`TcpStream::try_next_completion`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn try_next_completion(&self) -> io::Result<Option<Completion>> {
                self.stream().try_next_completion()
            }

            /// [`TcpStream::poll_next_completion`].
            ///
            /// # Errors
            /// Those of the stream's.
            pub fn poll_next_completion(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Completion>>> {
                self.stream().poll_next_completion(cx)
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                data: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write_shared(cx, data)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                data: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.stream().poll_write_vectored_shared(cx, data)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.stream().shutdown_with(Shutdown::Write))
            }
        }
    };
}

read_half!(ReadHalf<'_>);
read_half!(OwnedReadHalf);
write_half!(WriteHalf<'_>);
write_half!(OwnedWriteHalf);
