//! The common part of the asynchronous and the blocking sockets: each operation is an attempt that is ready,
//! pending, or failed.
//!
//! The asynchronous sockets poll an attempt with a task's waker; the blocking ones wait for it on the thread.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use taut_core::{
    ConnId, ConnInfo, ConnOptions, Instant, Keepalive, ReadError, Report, SetOption, WriteError, WriteFlags,
};
use taut_driver::{Access, Interest, Shard};
use taut_replay::TapedConn;

#[cfg(feature = "tokio")]
use crate::common::turn::Turn;
use crate::error;
use crate::stack::Stack;
use crate::wait::{Attempt, now_or_would_block};

/// No `SO_LINGER`.
const NO_LINGER: u64 = u64::MAX;

/// A connection that an application holds. Dropping the last reference closes it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) shard: Arc<Shard>,
    pub(crate) id: ConnId,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    nodelay: AtomicBool,
    /// `SO_LINGER` in nanoseconds, [`NO_LINGER`] for none. With zero, dropping resets the connection.
    linger_ns: AtomicU64,
    error_taken: AtomicBool,
    #[cfg(feature = "tokio")]
    pub(crate) turn: Turn,
}

impl Socket {
    /// Sends a SYN. [`connected`](Self::connected) becomes ready when it is answered.
    pub(crate) fn connect(stack: &Stack, to: SocketAddr, options: &ConnOptions) -> io::Result<Arc<Self>> {
        let shard = stack.shard_for(to, options.bind);
        let started = shard.attempt(|access| {
            let Access { stack, now, .. } = access;
            Poll::Ready(stack.connect(*now, to, options).map_err(error::connect).map(|id| {
                let local = stack.conn(id).map(|conn| conn.local_addr());
                (id, local)
            }))
        });
        let (id, local) = now_or_would_block(started)?;
        let local = local.ok_or_else(error::gone)?;
        Ok(Self::held(Arc::clone(shard), id, local, to, options.nodelay))
    }

    pub(crate) fn held(
        shard: Arc<Shard>,
        id: ConnId,
        local: SocketAddr,
        peer: SocketAddr,
        nodelay: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            shard,
            id,
            local,
            peer,
            nodelay: AtomicBool::new(nodelay),
            linger_ns: AtomicU64::new(NO_LINGER),
            error_taken: AtomicBool::new(false),
            #[cfg(feature = "tokio")]
            turn: Turn::default(),
        })
    }

    pub(crate) const fn read_interest(&self) -> Interest {
        Interest::Read(self.id)
    }

    pub(crate) const fn write_interest(&self) -> Interest {
        Interest::Write(self.id)
    }

    pub(crate) fn conn<'a>(&self, access: &'a mut Access<'_>) -> io::Result<(TapedConn<'a>, Instant)> {
        let conn = access.stack.conn_mut(self.id).ok_or_else(error::gone)?;
        Ok((conn, access.now))
    }

    // Attempts, for Shard::poll, Shard::wait and Shard::attempt.

    pub(crate) fn connected(&self, access: &mut Access<'_>) -> Attempt<()> {
        let (conn, _) = self.conn(access)?;
        if let Some(error) = conn.as_ref().error() {
            return Poll::Ready(Err(error::conn(error)));
        }
        match conn.as_ref().state() {
            state if state.is_synchronized() => Poll::Ready(Ok(())),
            // TCP Fast Open: the first write begins the handshake.
            _ if conn.as_ref().awaits_first_write() => Poll::Ready(Ok(())),
            taut_core::State::Closed => Poll::Ready(Err(error::gone())),
            _ => Poll::Pending,
        }
    }

    pub(crate) fn read(&self, access: &mut Access<'_>, into: &mut [u8]) -> Attempt<usize> {
        let (mut conn, now) = self.conn(access)?;
        read_result(conn.read(now, into))
    }

    /// [`read`](Self::read) into [`Access::into`], where the device may have put the bytes already.
    pub(crate) fn read_placed(&self, access: &mut Access<'_>) -> Attempt<usize> {
        if access.filled > 0 {
            return Poll::Ready(Ok(access.filled));
        }
        let mut conn = access.stack.conn_mut(self.id).ok_or_else(error::gone)?;
        read_result(conn.read(access.now, access.into))
    }

    pub(crate) fn read_vectored(
        &self,
        access: &mut Access<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Attempt<usize> {
        let (mut conn, now) = self.conn(access)?;
        let mut total = 0;
        for piece in into.iter_mut().filter(|piece| !piece.is_empty()) {
            match conn.read(now, piece) {
                Ok(count) => {
                    total += count;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(error) => return read_result(Err(error)),
            }
        }
        Poll::Ready(Ok(total))
    }

    pub(crate) fn peek(&self, access: &mut Access<'_>, into: &mut [u8]) -> Attempt<usize> {
        let (mut conn, _) = self.conn(access)?;
        read_result(conn.peek(into))
    }

    pub(crate) fn write(&self, access: &mut Access<'_>, data: &[u8]) -> Attempt<usize> {
        self.write_with(access, data, WriteFlags::default())
    }

    pub(crate) fn write_with(
        &self,
        access: &mut Access<'_>,
        data: &[u8],
        flags: WriteFlags,
    ) -> Attempt<usize> {
        let (mut conn, now) = self.conn(access)?;
        write_result(conn.write_with(now, data, flags))
    }

    pub(crate) fn write_vectored(&self, access: &mut Access<'_>, data: &[IoSlice<'_>]) -> Attempt<usize> {
        let (mut conn, now) = self.conn(access)?;
        let mut total = 0;
        // Nothing is sent while the access lasts, so the pieces share segments.
        for piece in data.iter().filter(|piece| !piece.is_empty()) {
            match conn.write(now, piece) {
                Ok(count) => {
                    total += count;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(error) => return write_result(Err(error)),
            }
        }
        Poll::Ready(Ok(total))
    }

    pub(crate) fn readable(&self, access: &mut Access<'_>) -> Attempt<()> {
        let (mut conn, _) = self.conn(access)?;
        if conn.readable() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    pub(crate) fn writable(&self, access: &mut Access<'_>) -> Attempt<()> {
        let (mut conn, now) = self.conn(access)?;
        if conn.writable(now) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    // Commands.

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let done = self.shard.attempt(|access| {
            let (mut conn, now) = self.conn(access)?;
            if matches!(how, Shutdown::Read | Shutdown::Both) {
                conn.shutdown_read(now);
            }
            let result = match how {
                Shutdown::Read => Ok(()),
                Shutdown::Write | Shutdown::Both => conn.shutdown_write(now).map_err(error::write),
            };
            // A waiting reader must see the end now, and a waiting writer the broken pipe.
            access.wake(Interest::Read(self.id));
            access.wake(Interest::Write(self.id));
            Poll::Ready(result)
        });
        now_or_would_block(done)
    }

    pub(crate) fn set(&self, option: SetOption) -> io::Result<()> {
        let nodelay = match option {
            SetOption::Nodelay(nodelay) => Some(nodelay),
            _ => None,
        };
        let done = self.shard.attempt(|access| {
            let (mut conn, now) = self.conn(access)?;
            Poll::Ready(conn.set_option(now, option).map_err(error::option))
        });
        now_or_would_block(done)?;
        if let Some(nodelay) = nodelay {
            self.nodelay.store(nodelay, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn set_congestion(&self, text: &str) -> io::Result<()> {
        let found = self.shard.access(|access| access.stack.algorithm(text));
        self.set(SetOption::Congestion(found.map_err(error::algorithm)?))
    }

    pub(crate) fn nodelay(&self) -> bool {
        self.nodelay.load(Ordering::Relaxed)
    }

    pub(crate) fn set_linger(&self, linger: Option<Duration>) {
        let ns = linger.map_or(NO_LINGER, |linger| u64::try_from(linger.as_nanos()).unwrap_or(NO_LINGER - 1));
        self.linger_ns.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn linger(&self) -> Option<Duration> {
        let ns = self.linger_ns.load(Ordering::Relaxed);
        (ns != NO_LINGER).then(|| Duration::from_nanos(ns))
    }

    pub(crate) fn keepalive(&self) -> io::Result<Option<Keepalive>> {
        now_or_would_block(self.shard.attempt(|access| {
            let (conn, _) = self.conn(access)?;
            Poll::Ready(Ok(conn.as_ref().keepalive()))
        }))
    }

    pub(crate) fn ttl(&self) -> io::Result<u8> {
        self.shard
            .access(|access| access.stack.sysctl("ip_default_ttl"))
            .map_or_else(|error| Err(io::Error::other(error)), |ttl| ttl.parse().map_err(io::Error::other))
    }

    /// Sends a reset now, and releases the connection.
    pub(crate) fn abort(&self) {
        self.shard.access(|access| {
            access.wake(Interest::Read(self.id));
            access.wake(Interest::Write(self.id));
            if let Ok((conn, now)) = self.conn(access) {
                conn.abort(now);
            }
        });
    }

    pub(crate) fn info(&self) -> io::Result<ConnInfo> {
        now_or_would_block(self.shard.attempt(|access| {
            let (conn, now) = self.conn(access)?;
            Poll::Ready(Ok(conn.as_ref().info(now)))
        }))
    }

    pub(crate) fn report(&self) -> io::Result<Report> {
        now_or_would_block(self.shard.attempt(|access| {
            let (conn, now) = self.conn(access)?;
            Poll::Ready(Ok(conn.as_ref().report(now)))
        }))
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let error = now_or_would_block(self.shard.attempt(|access| {
            let (conn, _) = self.conn(access)?;
            Poll::Ready(Ok(conn.as_ref().error()))
        }))?;
        let Some(error) = error else { return Ok(None) };
        // The stack keeps the error; here it is returned only once, like SO_ERROR.
        Ok((!self.error_taken.swap(true, Ordering::Relaxed)).then(|| error::conn(error)))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let abort = *self.linger_ns.get_mut() == 0 || self.shard.is_closed();
        self.shard.access(|access| {
            // No task may keep waiting here: the slot may soon have a new owner.
            access.wake(Interest::Read(self.id));
            access.wake(Interest::Write(self.id));
            if let Ok((conn, now)) = self.conn(access) {
                if abort { conn.abort(now) } else { conn.close(now) }
            }
        });
    }
}

fn read_result(result: Result<usize, ReadError>) -> Attempt<usize> {
    match result {
        Err(ReadError::WouldBlock) => Poll::Pending,
        other => Poll::Ready(other.map_err(error::read)),
    }
}

fn write_result(result: Result<usize, WriteError>) -> Attempt<usize> {
    match result {
        Err(WriteError::WouldBlock) => Poll::Pending,
        other => Poll::Ready(other.map_err(error::write)),
    }
}
