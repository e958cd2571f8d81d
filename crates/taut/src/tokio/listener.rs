//! The asynchronous [`TcpListener`].

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use taut_core::ListenOptions;
use taut_driver::WaitKey;

use crate::common::acceptor::Acceptor;
use crate::dns::{Target, first_of};
use crate::stack::Stack;
use crate::tokio::stream::TcpStream;
use crate::wait::until;

/// A listening socket, like [`tokio::net::TcpListener`]. Dropping it resets connections that were not
/// accepted.
///
/// ```no_run
/// # async fn example(stack: &taut::Stack) -> std::io::Result<()> {
/// let listener = taut::TcpListener::bind(stack, "10.0.0.2:7").await?;
/// loop {
///     let (mut stream, _peer) = listener.accept().await?;
///     tokio::spawn(async move {
///         let (mut read, mut write) = stream.split();
///         tokio::io::copy(&mut read, &mut write).await
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct TcpListener {
    acceptor: Acceptor,
}

impl Stack {
    /// [`TcpListener::bind`] to an address; not asynchronous, because there is no name to resolve.
    ///
    /// # Errors
    /// Those of [`TcpListener::bind`].
    pub fn listen(&self, at: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind_with(self, at, ListenOptions::default())
    }
}

impl TcpListener {
    /// Listens at the first of the addresses that is available. A name is [looked up](crate::dns); port 0
    /// picks a free port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`], or those of [`Stack::look_up`].
    pub async fn bind(stack: &Stack, addresses: impl Into<Target>) -> io::Result<Self> {
        let found = addresses.into().found(stack).await?;
        first_of(found, |address| Self::bind_with(stack, address, ListenOptions::default()))
    }

    /// Listens with options: those of the listener, and the initial ones of its connections.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] or [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind_with(stack: &Stack, address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        Acceptor::bind(stack.shards(), address, options).map(|acceptor| Self { acceptor })
    }

    /// Waits for a connection. The future is cancel safe: no connection is lost when it is dropped.
    ///
    /// # Errors
    /// The stack was shut down.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let acceptor = &self.acceptor;
        let socket = match acceptor.only_listener() {
            Some(listener) => {
                until(&listener.shard, listener.interest(), |access| acceptor.accept(listener, access))
                    .await?
            }
            None => {
                let waiting = Waiting { acceptor, key: WaitKey::unique() };
                poll_fn(|cx| acceptor.poll_accept(waiting.key, cx.waker())).await?
            }
        };
        let peer = socket.peer;
        Ok((TcpStream { socket }, peer))
    }

    /// [`accept`](Self::accept) as a poll function. If several tasks poll, only the last one is woken.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let acceptor = &self.acceptor;
        let socket = ready!(acceptor.poll_accept(WaitKey::POLL, cx.waker()))?;
        let peer = socket.peer;
        Poll::Ready(Ok((TcpStream { socket }, peer)))
    }

    /// The connections, as a stream that does not end.
    #[must_use]
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// None; the result is there to match `tokio`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.acceptor.local)
    }
}

/// The registration of a waiting future in every shard; removed when this is dropped.
struct Waiting<'a> {
    acceptor: &'a Acceptor,
    key: WaitKey,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.acceptor.cancel(self.key);
    }
}

/// The connections of a [`TcpListener`].
///
/// ```no_run
/// # async fn example(listener: &taut::TcpListener) -> std::io::Result<()> {
/// use std::{future::poll_fn, pin::Pin};
/// use futures_core::Stream;
///
/// let mut incoming: taut::Incoming<'_> = listener.incoming();
/// while let Some(stream) = poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await {
///     println!("{}", stream?.peer_addr()?);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_accept(cx).map(|result| Some(result.map(|(stream, _)| stream)))
    }
}
