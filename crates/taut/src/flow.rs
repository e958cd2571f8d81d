//! A flow that waits for a decision: what the asynchronous and the blocking [`IncomingFlow`](crate::IncomingFlow) share.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use taut_core::{ConnOptions, FlowId, Refusal, SynInfo};
use taut_driver::{Access, Shard};

use crate::error;
use crate::socket::{Acceptor, Attempt, ShardListener, Socket, now_or_would_block};

/// A flow; dropping it undecided drops it: its SYNs are not answered.
#[derive(Debug)]
pub(crate) struct Flow {
    shard: Arc<Shard>,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
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
            let (local, peer, syn) = (flow.local, flow.peer, Some(flow.syn));
            return Poll::Ready(Ok(Self {
                shard,
                local,
                peer,
                syn,
                nodelay,
                stage: Stage::Pending(flow.id),
            }));
        }
        acceptor.accept(listener, access).map_ok(|socket| {
            let (local, peer) = (socket.local, socket.peer);
            Self { shard, local, peer, syn: None, nodelay, stage: Stage::Open(socket) }
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

    pub(crate) fn refuse(mut self, how: Refusal) {
        match std::mem::replace(&mut self.stage, Stage::Decided) {
            Stage::Pending(id) => _ = self.shard.access(|access| access.stack.refuse_flow(id, how)),
            Stage::Open(socket) => socket.abort(),
            Stage::Decided => {}
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
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
        /// Where it comes from.
        #[must_use]
        pub const fn peer_addr(&self) -> std::net::SocketAddr {
            self.flow.peer
        }

        /// Where it wants to go: not an address of the stack, most of the time.
        #[must_use]
        pub const fn local_addr(&self) -> std::net::SocketAddr {
            self.flow.local
        }

        /// What its SYN said: window, MSS and other options. `None` if the flow is [open](Self::is_open).
        #[must_use]
        pub const fn syn(&self) -> Option<taut_core::SynInfo> {
            self.flow.syn
        }

        /// Whether the handshake is already complete. This happens only with
        /// [`cookies_when_full`](taut_core::IncomingOptions::cookies_when_full): such a flow can be refused by a reset only.
        #[must_use]
        pub fn is_open(&self) -> bool {
            self.flow.is_open()
        }

        /// Whether there is nothing left to decide: the client has given up, or the time for a decision is over.
        #[must_use]
        pub fn is_gone(&self) -> bool {
            self.flow.is_gone()
        }

        /// Refuses it: the client gets a reset, or an ICMP error.
        pub fn refuse(self, how: taut_core::Refusal) {
            self.flow.refuse(how);
        }
    };
}
pub(crate) use flow_methods;
