//! The blocking [`IncomingFlows`].

use std::io;

use taut_core::{ConnOptions, FlowFilter, IncomingOptions};

use super::{EchoSocket, TcpStream, UdpSocket};
use crate::common::acceptor::Acceptor;
use crate::common::flow::{Flow, flow_methods};
use crate::stack::Stack;

/// Every new connection to the addresses and ports of a filter, before it is answered, and flows of datagrams
/// if the filter says so: `taut::IncomingFlows` for threads.
#[derive(Debug)]
pub struct IncomingFlows {
    acceptor: Acceptor,
}

impl IncomingFlows {
    /// Yields the flows of `filter`, with the default limits.
    ///
    /// # Errors
    /// [`io::ErrorKind::QuotaExceeded`] if sixteen filters are open; the stack was shut down.
    pub fn open(stack: &Stack, filter: FlowFilter) -> io::Result<Self> {
        Self::open_with(stack, filter, IncomingOptions::default())
    }

    /// Yields the flows of `filter`, with other limits, and options for their connections. With several
    /// shards, limits are for each.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    #[expect(clippy::needless_pass_by_value, reason = "like the options of a listener")]
    pub fn open_with(stack: &Stack, filter: FlowFilter, options: IncomingOptions) -> io::Result<Self> {
        Acceptor::filter(stack.shards(), &filter, &options).map(|acceptor| Self { acceptor })
    }

    /// Waits for a flow.
    ///
    /// # Errors
    /// The stack was shut down.
    pub fn accept(&self) -> io::Result<IncomingFlow> {
        let acceptor = &self.acceptor;
        acceptor
            .wait(|listener, access| Flow::next(acceptor, listener, access))
            .map(|flow| IncomingFlow { flow })
    }

    /// The next flow, without waiting.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none; the stack was shut down.
    pub fn try_accept(&self) -> io::Result<IncomingFlow> {
        let acceptor = &self.acceptor;
        acceptor
            .now(|listener, access| Flow::next(acceptor, listener, access))
            .map(|flow| IncomingFlow { flow })
    }
}

/// A connection that a client wants, and that is not answered yet; or the first datagrams from one address
/// and port to another.
///
/// Dropping it without a decision drops the flow: the client gets no answer, now or to a repeated SYN or a
/// further datagram, as from a host that is silent.
#[derive(Debug)]
pub struct IncomingFlow {
    flow: Flow,
}

impl IncomingFlow {
    flow_methods!();

    /// Accepts it: the client's SYN is answered. Waits for the end of the handshake.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it is not a connection; it is dropped then.
    /// [`io::ErrorKind::ConnectionAborted`] if the flow [is gone](Self::is_gone),
    /// [`io::ErrorKind::QuotaExceeded`] if there are too many connections; or why the handshake failed, such
    /// as [`io::ErrorKind::TimedOut`].
    pub fn accept(self) -> io::Result<TcpStream> {
        self.accept_as(None)
    }

    /// [`accept`](Self::accept) with options for the connection, instead of those of the filter.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub fn accept_with(self, options: &ConnOptions) -> io::Result<TcpStream> {
        self.accept_as(Some(options))
    }

    fn accept_as(self, options: Option<&ConnOptions>) -> io::Result<TcpStream> {
        let socket = self.flow.accept(options)?;
        socket
            .shard
            .wait(socket.write_interest(), None, |access| socket.connected(access))
            .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
        Ok(TcpStream::of(socket))
    }
}
