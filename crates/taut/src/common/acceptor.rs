//! The common part of the asynchronous and the blocking listeners and filters of flows: a listener in every
//! shard, of which any may have the next connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use taut_core::{FlowFilter, IncomingOptions, ListenOptions, ListenerId};
use taut_driver::{Access, Interest, Shard, WaitKey};

use crate::common::socket::Socket;
use crate::error;
use crate::wait::{Attempt, Unpark, is_ready, now_or_would_block};

/// A listening socket: a listener in every shard, because each connection arrives at the shard that owns it.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<ShardListener>,
    pub(crate) local: SocketAddr,
    nodelay: bool,
    /// The listener that is checked first, round robin, so that none waits behind a busier one.
    first: AtomicUsize,
}

/// The listener of one shard.
#[derive(Debug)]
pub(crate) struct ShardListener {
    pub(crate) shard: Arc<Shard>,
    pub(crate) id: ListenerId,
}

impl ShardListener {
    pub(crate) const fn interest(&self) -> Interest {
        Interest::Accept(self.id)
    }
}

impl Acceptor {
    #[expect(clippy::needless_pass_by_value, reason = "as in the calls of the sockets")]
    pub(crate) fn bind(shards: &[Arc<Shard>], at: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        // For port 0, the first shard picks one. If another shard refuses it, because a listener there is
        // about to be closed, the first one picks another: it must not be given back before.
        let mut refused = Vec::new();
        loop {
            let nodelay = options.conn.nodelay;
            let mut acceptor = Self { listeners: Vec::new(), local: at, nodelay, first: AtomicUsize::new(0) };
            let result = shards.iter().try_for_each(|shard| acceptor.listen(shard, options.clone()));
            match result {
                Ok(()) => return Ok(acceptor),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(error) if at.port() != 0 || acceptor.listeners.is_empty() => return Err(error),
                Err(_) => refused.push(acceptor),
            }
        }
    }

    /// The same for a filter of flows, which has no address.
    pub(crate) fn filter(
        shards: &[Arc<Shard>],
        filter: &FlowFilter,
        options: &IncomingOptions,
    ) -> io::Result<Self> {
        let local = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 0);
        let nodelay = options.conn.nodelay;
        let mut acceptor = Self { listeners: Vec::new(), local, nodelay, first: AtomicUsize::new(0) };
        for shard in shards {
            let id = now_or_would_block(shard.attempt(|access| {
                Poll::Ready(access.stack.incoming(filter.clone(), options.clone()).map_err(error::listen))
            }))?;
            acceptor.listeners.push(ShardListener { shard: Arc::clone(shard), id });
        }
        Ok(acceptor)
    }

    fn listen(&mut self, shard: &Arc<Shard>, options: ListenOptions) -> io::Result<()> {
        let at = self.local;
        let (id, local) = now_or_would_block(shard.attempt(|access| {
            let listening = access.stack.listen(at, options).map_err(error::listen);
            Poll::Ready(listening.map(|id| (id, access.stack.listener_addr(id).unwrap_or(at))))
        }))?;
        self.local = local;
        self.listeners.push(ShardListener { shard: Arc::clone(shard), id });
        Ok(())
    }

    /// `TCP_NODELAY` of its connections.
    pub(crate) const fn nodelay(&self) -> bool {
        self.nodelay
    }

    /// All listeners, beginning with a different one each time.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &ShardListener> {
        let first = self.first.fetch_add(1, Ordering::Relaxed) % self.listeners.len().max(1);
        self.listeners.iter().cycle().skip(first).take(self.listeners.len())
    }

    /// The listener, if there is only one.
    pub(crate) fn only_listener(&self) -> Option<&ShardListener> {
        match &self.listeners[..] {
            [listener] => Some(listener),
            _ => None,
        }
    }

    pub(crate) fn accept(&self, listener: &ShardListener, access: &mut Access<'_>) -> Attempt<Arc<Socket>> {
        let Some((id, peer)) = access.stack.accept(listener.id) else { return Poll::Pending };
        let local = access.stack.conn_mut(id).map_or(self.local, |conn| conn.as_ref().local_addr());
        Poll::Ready(Ok(Socket::held(Arc::clone(&listener.shard), id, local, peer, self.nodelay)))
    }

    pub(crate) fn accept_now(&self) -> io::Result<Arc<Socket>> {
        self.now(|listener, access| self.accept(listener, access))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll_accept(&self, key: WaitKey, waker: &Waker) -> Attempt<Arc<Socket>> {
        self.poll(key, waker, |listener, access| self.accept(listener, access))
    }

    /// Whether a connection waits; else `waker` is called when one does.
    pub(crate) fn ready_or_wake(&self, waker: &Waker) -> io::Result<bool> {
        let waits = |listener: &ShardListener, access: &mut Access<'_>| {
            let is_it = |info: &taut_core::ListenerInfo| info.id == listener.id;
            if access.stack.listeners().find(is_it).is_none_or(|info| info.ready > 0) {
                return Poll::Ready(Ok(()));
            }
            // The next connection is an event only when the listener has returned that there is none.
            let none = access.stack.accept(listener.id);
            debug_assert!(none.is_none(), "{none:?}");
            Poll::Pending
        };
        is_ready(self.poll(WaitKey::POLL, waker, waits))
    }

    /// Blocks this thread until there is a connection.
    pub(crate) fn wait_accept(&self) -> io::Result<Arc<Socket>> {
        self.wait(|listener, access| self.accept(listener, access))
    }

    /// Tries in one shard after the other.
    pub(crate) fn now<T>(
        &self,
        attempt: impl Fn(&ShardListener, &mut Access<'_>) -> Attempt<T>,
    ) -> io::Result<T> {
        for listener in self.listeners() {
            if let Poll::Ready(result) = listener.shard.attempt(|access| attempt(listener, access)) {
                return result;
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Waits in all shards at the same time.
    pub(crate) fn poll<T>(
        &self,
        key: WaitKey,
        waker: &Waker,
        attempt: impl Fn(&ShardListener, &mut Access<'_>) -> Attempt<T>,
    ) -> Attempt<T> {
        for listener in self.listeners() {
            let result =
                listener.shard.poll(listener.interest(), key, waker, |access| attempt(listener, access));
            if result.is_ready() {
                return result;
            }
        }
        Poll::Pending
    }

    /// Removes the wakers that a pending [`poll`](Self::poll) left.
    pub(crate) fn cancel(&self, key: WaitKey) {
        for listener in &self.listeners {
            listener.shard.cancel(listener.interest(), key);
        }
    }

    /// Blocks this thread until an attempt is ready.
    pub(crate) fn wait<T>(
        &self,
        attempt: impl Fn(&ShardListener, &mut Access<'_>) -> Attempt<T>,
    ) -> io::Result<T> {
        if let Some(listener) = self.only_listener() {
            let accepted = listener.shard.wait(listener.interest(), None, |access| attempt(listener, access));
            return accepted.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()));
        }
        let (key, waker) = (WaitKey::unique(), Unpark::here());
        loop {
            if let Poll::Ready(result) = self.poll(key, &waker, &attempt) {
                self.cancel(key);
                return result;
            }
            std::thread::park();
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        for listener in &self.listeners {
            listener.shard.access(|access| {
                access.wake(listener.interest());
                access.stack.close_listener(access.now, listener.id);
            });
        }
    }
}
