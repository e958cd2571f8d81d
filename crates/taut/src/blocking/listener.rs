//! The blocking [`TcpListener`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use taut_core::ListenOptions;

use super::TcpStream;
use crate::common::acceptor::Acceptor;
use crate::dns::{Target, first_of};
use crate::stack::Stack;

/// A listening socket, like [`std::net::TcpListener`]. Dropping the last clone resets connections that were
/// not accepted.
#[derive(Debug)]
pub struct TcpListener {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    acceptor: Acceptor,
    nonblocking: AtomicBool,
}

impl TcpListener {
    /// Listens at the first of the addresses that is available. A name is [looked up](crate::dns); port 0
    /// picks a free port.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`], or those of [`Stack::look_up`].
    pub fn bind(stack: &Stack, addresses: impl Into<Target>) -> io::Result<Self> {
        let found = addresses.into().look_up(stack)?;
        first_of(found, |address| Self::bind_with(stack, address, ListenOptions::default()))
    }

    /// Listens with options: those of the listener, and the initial ones of its connections.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] or [`io::ErrorKind::AddrNotAvailable`].
    pub fn bind_with(stack: &Stack, address: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        let acceptor = Acceptor::bind(stack.shards(), address, options)?;
        Ok(Self { shared: Arc::new(Shared { acceptor, nonblocking: AtomicBool::new(false) }) })
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The stack was shut down, or [`io::ErrorKind::WouldBlock`] in nonblocking mode.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let acceptor = &self.shared.acceptor;
        let socket = if self.shared.nonblocking.load(Ordering::Relaxed) {
            acceptor.accept_now()?
        } else {
            acceptor.wait_accept()?
        };
        let peer = socket.peer;
        Ok((TcpStream::of(socket), peer))
    }

    /// Whether a connection waits to be accepted; if not, `waker` is called when one does. For an event loop:
    /// only the last waker that was given is called, and once.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn ready_or_wake(&self, waker: &Waker) -> io::Result<bool> {
        self.shared.acceptor.ready_or_wake(waker)
    }

    /// The connections, without end.
    #[must_use]
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming(self)
    }

    /// Sets whether [`accept`](Self::accept) fails with [`io::ErrorKind::WouldBlock`] instead of waiting.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// The address at which it listens.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared.acceptor.local)
    }

    /// Another handle to the same listener.
    ///
    /// # Errors
    /// None; the result is there to match `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }
}

/// The connections of a [`TcpListener`].
#[derive(Debug)]
pub struct Incoming<'a>(&'a TcpListener);

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.accept().map(|(stream, _)| stream))
    }
}
