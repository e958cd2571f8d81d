//! A flow that waits for a decision: what the asynchronous and the blocking
//! [`IncomingFlow`](crate::IncomingFlow) share.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use taut_core::{ConnOptions, DatagramOptions, FlowId, FlowKind, Refusal, SynInfo};
#[cfg(feature = "tokio")]
use taut_driver::Interest;
use taut_driver::{Access, Shard};

use crate::common::acceptor::{Acceptor, ShardListener};
use crate::common::datagram;
use crate::common::socket::Socket;
use crate::error;
#[cfg(feature = "tokio")]
use crate::wait::until;
use crate::wait::{Attempt, now_or_would_block};

/// A flow; dropping it undecided drops it: its SYNs or datagrams are not answered.
#[derive(Debug)]
pub(crate) struct Flow {
    shard: Arc<Shard>,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) kind: FlowKind,
    pub(crate) syn: Option<SynInfo>,
    nodelay: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Pending(FlowId),
    /// Its SYN was answered by a cookie, and the peer has brought it back.
    Open(Arc<Socket>),
    Decided,
}

impl Flow {
    /// The next flow of a filter in one shard.
    pub(crate) fn next(
        acceptor: &Acceptor,
        listener: &ShardListener,
        access: &mut Access<'_>,
    ) -> Attempt<Self> {
        let shard = Arc::clone(&listener.shard);
        let nodelay = acceptor.nodelay();
        if let Some(flow) = access.stack.next_flow(listener.id) {
            return Poll::Ready(Ok(Self {
                shard,
                local: flow.local,
                peer: flow.peer,
                kind: flow.kind,
                syn: flow.syn,
                nodelay,
                stage: Stage::Pending(flow.id),
            }));
        }
        acceptor.accept(listener, access).map_ok(|socket| {
            let (local, peer) = (socket.local, socket.peer);
            let stage = Stage::Open(socket);
            Self { shard, local, peer, kind: FlowKind::Tcp, syn: None, nodelay, stage }
        })
    }

    /// The connection, whose handshake may have to be waited for.
    pub(crate) fn accept(mut self, options: Option<&ConnOptions>) -> io::Result<Arc<Socket>> {
        let id = match std::mem::replace(&mut self.stage, Stage::Decided) {
            Stage::Pending(id) => id,
            Stage::Open(socket) => return Ok(socket),
            Stage::Decided => return Err(error::gone()),
        };
        let accepted = now_or_would_block(self.shard.attempt(|access| {
            let accepted = access.stack.accept_flow(access.now, id, options).map_err(error::flow);
            if accepted.is_err() {
                access.stack.drop_flow(access.now, id);
            }
            Poll::Ready(accepted)
        }))?;
        let nodelay = options.map_or(self.nodelay, |options| options.nodelay);
        Ok(Socket::held(Arc::clone(&self.shard), accepted, self.local, self.peer, nodelay))
    }

    /// The socket of a flow of datagrams of that kind.
    pub(crate) fn accept_datagrams(
        mut self,
        kind: FlowKind,
        options: Option<&DatagramOptions>,
    ) -> io::Result<datagram::Socket> {
        let id = match &self.stage {
            Stage::Pending(id) if self.kind == kind => *id,
            Stage::Decided => return Err(error::gone()),
            // Dropping `self` drops the flow.
            _ => return Err(error::flow(taut_core::FlowError::OtherKind)),
        };
        let accepted = now_or_would_block(self.shard.attempt(|access| {
            Poll::Ready(access.stack.accept_datagram_flow(access.now, id, options).map_err(error::flow))
        }))?;
        self.stage = Stage::Decided;
        Ok(datagram::Socket::held(Arc::clone(&self.shard), accepted))
    }

    pub(crate) fn refuse(mut self, how: Refusal) {
        match std::mem::replace(&mut self.stage, Stage::Decided) {
            Stage::Pending(id) => {
                self.shard.access(|access| access.stack.refuse_flow(access.now, id, how));
            }
            Stage::Open(socket) => socket.abort(),
            Stage::Decided => {}
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Asks the client whether it still wants the flow.
    pub(crate) fn probe(&self) -> bool {
        match &self.stage {
            Stage::Pending(id) => self.shard.access(|access| access.stack.probe_flow(*id)),
            Stage::Open(_) | Stage::Decided => false,
        }
    }

    /// Waits until there is nothing left to decide.
    #[cfg(feature = "tokio")]
    pub(crate) async fn gone(&self) -> io::Result<()> {
        match &self.stage {
            Stage::Pending(id) => {
                let gone = |access: &mut Access<'_>| match access.stack.flow(*id) {
                    None => Poll::Ready(Ok(())),
                    Some(_) => Poll::Pending,
                };
                until(&self.shard, Interest::Flow(*id), gone).await
            }
            Stage::Open(socket) => {
                let closed = |access: &mut Access<'_>| match socket.conn(access) {
                    Ok((conn, _)) if conn.as_ref().state() != taut_core::State::Closed => Poll::Pending,
                    _ => Poll::Ready(Ok(())),
                };
                until(&self.shard, socket.read_interest(), closed).await
            }
            Stage::Decided => Ok(()),
        }
    }

    /// Whether there is nothing left to decide.
    pub(crate) fn is_gone(&self) -> bool {
        match &self.stage {
            Stage::Pending(id) => self.shard.access(|access| access.stack.flow(*id).is_none()),
            Stage::Open(socket) => socket.info().map_or(true, |info| info.state == taut_core::State::Closed),
            Stage::Decided => true,
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Decided) {
            Stage::Pending(id) => _ = self.shard.access(|access| access.stack.drop_flow(access.now, id)),
            Stage::Open(socket) => socket.abort(),
            Stage::Decided => {}
        }
    }
}

/// The methods of a flow that do not wait, the same on both kinds.
macro_rules! flow_methods {
    () => {
        /// What it is: a connection, UDP, or echo requests.
        #[must_use]
        pub const fn kind(&self) -> taut_core::FlowKind {
            self.flow.kind
        }

        /// Accepts a flow of UDP: a connected socket, in which the first datagrams wait. Replies come from
        /// [`local_addr`](Self::local_addr). When nothing was sent or received for
        /// [`idle_timeout`](taut_core::DatagramFlowOptions::idle_timeout), it reports
        /// [`TimedOut`](std::io::ErrorKind::TimedOut).
        ///
        /// # Errors
        /// [`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted) if the flow [is gone](Self::is_gone),
        /// or [`InvalidInput`](std::io::ErrorKind::InvalidInput) if it is not of UDP; it is dropped then.
        pub fn accept_udp(self) -> std::io::Result<UdpSocket> {
            let socket = self.flow.accept_datagrams(taut_core::FlowKind::Udp, None)?;
            Ok(UdpSocket::of(socket))
        }

        /// [`accept_udp`](Self::accept_udp) with options for the socket, instead of those of the filter.
        ///
        /// # Errors
        /// Those of [`accept_udp`](Self::accept_udp).
        pub fn accept_udp_with(self, options: &taut_core::DatagramOptions) -> std::io::Result<UdpSocket> {
            let socket = self.flow.accept_datagrams(taut_core::FlowKind::Udp, Some(options))?;
            Ok(UdpSocket::of(socket))
        }

        /// Accepts a flow of echo requests: a program that pings.
        ///
        /// # Errors
        /// Those of [`accept_udp`](Self::accept_udp).
        pub fn accept_echo(self) -> std::io::Result<EchoSocket> {
            let socket = self.flow.accept_datagrams(taut_core::FlowKind::Echo, None)?;
            Ok(EchoSocket::of(socket))
        }

        /// Where it comes from. The port of an echo flow is 0.
        #[must_use]
        pub const fn peer_addr(&self) -> std::net::SocketAddr {
            self.flow.peer
        }

        /// Where it wants to go: not an address of the stack, most of the time. The port of an echo flow is
        /// the identifier of its requests.
        #[must_use]
        pub const fn local_addr(&self) -> std::net::SocketAddr {
            self.flow.local
        }

        /// What its SYN said: window, MSS and other options. `None` if the flow is [open](Self::is_open), or
        /// not a connection.
        #[must_use]
        pub const fn syn(&self) -> Option<taut_core::SynInfo> {
            self.flow.syn
        }

        /// Whether the handshake is already complete. This happens only with
        /// [`cookies_when_full`](taut_core::IncomingOptions::cookies_when_full): such a flow can be refused
        /// by a reset only.
        #[must_use]
        pub fn is_open(&self) -> bool {
            self.flow.is_open()
        }

        /// Whether there is nothing left to decide: the client has given up, or the time for a decision is
        /// over.
        #[must_use]
        pub fn is_gone(&self) -> bool {
            self.flow.is_gone()
        }

        /// Asks the client whether it still wants its connection: a host that gives up while its SYN is not
        /// answered does not say so by itself. If it does not, the flow [is gone](Self::is_gone) as soon as
        /// its answer comes. Returns whether there was something to ask.
        pub fn probe(&self) -> bool {
            self.flow.probe()
        }

        /// Refuses it: the client gets a reset, or an ICMP error. There are at most 50 errors about datagrams
        /// at once, and 1,000 a second.
        pub fn refuse(self, how: taut_core::Refusal) {
            self.flow.refuse(how);
        }
    };
}
pub(crate) use flow_methods;
