//! The common part of the asynchronous and the blocking sockets: each operation is an attempt that is ready, pending,
//! or failed.
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

pub(crate) type Attempt<T> = Poll<io::Result<T>>;

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

    #[cfg(feature = "tokio")]
    pub(crate) fn readable(&self, access: &mut Access<'_>) -> Attempt<()> {
        let (mut conn, _) = self.conn(access)?;
        if conn.readable() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    #[cfg(feature = "tokio")]
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

/// The result of an attempt that must not wait.
pub(crate) fn now_or_would_block<T>(attempt: Attempt<T>) -> io::Result<T> {
    match attempt {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
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

/// The methods that do not wait, the same on both kinds of stream.
macro_rules! socket_methods {
    () => {
        /// This end's address.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
            Ok(self.socket.local)
        }

        /// The other end's address.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn peer_addr(&self) -> std::io::Result<std::net::SocketAddr> {
            Ok(self.socket.peer)
        }

        /// A snapshot of the connection. Linux: `TCP_INFO`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn info(&self) -> std::io::Result<taut_core::ConnInfo> {
            self.socket.info()
        }

        /// What held the connection back since its first write, and how long bytes waited in which queue.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn report(&self) -> std::io::Result<taut_core::Report> {
            self.socket.report()
        }

        /// Writes as much as there is room for, without waiting, like `send(2)` with `MSG_MORE` or `MSG_EOR`.
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when there is no room, or why the connection ended.
        pub fn try_write_with(&self, data: &[u8], flags: taut_core::WriteFlags) -> std::io::Result<usize> {
            if data.is_empty() {
                return Ok(0);
            }
            crate::common::socket::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.write_with(access, data, flags)),
            )
        }

        /// Hands over as much of `data` as there is room for, without a copy and without waiting. See
        /// [`write_bytes`](Self::write_bytes).
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when there is no room, or why the connection ended.
        pub fn try_write_bytes(&self, data: &mut bytes::Bytes) -> std::io::Result<Option<u32>> {
            crate::common::socket::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.write_bytes(access, data)),
            )
        }

        /// The next received bytes, at most `max`, without a copy and without waiting. See
        /// [`read_chunk`](Self::read_chunk).
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when there is no data, or why the connection ended.
        pub fn try_read_chunk(&self, max: usize) -> std::io::Result<bytes::Bytes> {
            crate::common::socket::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.read_chunk(access, max)),
            )
        }

        /// The next lent writes whose memory is free, without waiting; `None` if every one was reported.
        ///
        /// # Errors
        /// [`WouldBlock`](std::io::ErrorKind::WouldBlock) when none is free yet; the stack was shut down.
        pub fn try_next_completion(&self) -> std::io::Result<Option<taut_core::Completion>> {
            crate::common::socket::now_or_would_block(
                self.socket.shard.attempt(|access| self.socket.next_completion(access)),
            )
        }

        /// Sets any option.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a value out of range.
        pub fn set_option(&self, option: taut_core::SetOption) -> std::io::Result<()> {
            self.socket.set(option)
        }

        /// The error that ended the connection, if there is one that was not taken yet. Linux: `SO_ERROR`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
            self.socket.take_error()
        }

        /// `TCP_NODELAY`, as last set.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn nodelay(&self) -> std::io::Result<bool> {
            Ok(self.socket.nodelay())
        }

        /// `TCP_NODELAY`: small packets do not wait for the ACK of an earlier small one.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_nodelay(&self, nodelay: bool) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Nodelay(nodelay))
        }

        /// `TCP_CORK`: holds back partial segments until it is cleared, or for 200 ms.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_cork(&self, cork: bool) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Cork(cork))
        }

        /// `TCP_QUICKACK`: ACKs are not delayed.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_quickack(&self, quickack: bool) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Quickack(quickack))
        }

        /// `TCP_NOTSENT_LOWAT`: the socket takes more data while fewer bytes than this are unsent; 0 follows
        /// the stack's value.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_notsent_lowat(&self, bytes: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::NotsentLowat(bytes))
        }

        /// `SO_SNDBUF` in bytes; doubled as in Linux, and no longer tuned.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_sndbuf(&self, bytes: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Sndbuf(bytes))
        }

        /// `SO_RCVBUF` in bytes; doubled as in Linux, and no longer tuned.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_rcvbuf(&self, bytes: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Rcvbuf(bytes))
        }

        /// `SO_MAX_PACING_RATE` in bytes per second; `u64::MAX` is no limit. Switches pacing on.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_max_pacing_rate(&self, bytes_per_second: u64) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::MaxPacingRate(bytes_per_second))
        }

        /// `TCP_TX_DELAY`: packets depart this much later, on a link that paces.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) above 2³¹ − 1 µs.
        pub fn set_tx_delay(&self, delay: std::time::Duration) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::TxDelay(delay.into()))
        }

        /// `TCP_CONGESTION`: one of the stack's algorithms by name, such as `bbr`, or with parameters
        /// `mine:gain=2.5`. To set an [`Algorithm`](taut_core::Algorithm) value, use
        /// [`set_option`](Self::set_option).
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) when the stack has no algorithm with that name, or the
        /// algorithm has no such parameter; the error lists the known ones.
        pub fn set_congestion(&self, name: &str) -> std::io::Result<()> {
            self.socket.set_congestion(name)
        }

        /// `SO_KEEPALIVE` with its parameters; `None` switches it off.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a parameter out of range.
        pub fn set_keepalive(&self, keepalive: Option<taut_core::Keepalive>) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Keepalive(keepalive))
        }

        /// `TCP_USER_TIMEOUT`: how long written data may stay unacknowledged.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a value out of range.
        pub fn set_user_timeout(&self, timeout: Option<std::time::Duration>) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::UserTimeout(timeout.map(Into::into)))
        }

        /// `IP_TOS` or `IPV6_TCLASS` of the packets from now on: its upper six bits (DSCP). The lower two are ECN's, and ignored.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_tos(&self, tos: u8) -> std::io::Result<()> {
            self.socket.set(taut_core::SetOption::Tos(tos))
        }

        /// `IP_TOS`, as last set, without the two bits of ECN.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn tos(&self) -> std::io::Result<u8> {
            self.info().map(|info| info.tos)
        }

        /// What the next read can return: the bytes received and not read, or 1 for the end of the stream. Linux:
        /// `TCP_INQ`, `SIOCINQ`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn inq(&self) -> std::io::Result<u64> {
            self.info().map(|info| info.inq)
        }

        /// `SO_LINGER`. With zero, dropping the stream resets the connection. With any other value, or `None`, it
        /// closes in the background once everything written is delivered: dropping never blocks.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn set_linger(&self, linger: Option<std::time::Duration>) -> std::io::Result<()> {
            self.socket.set_linger(linger);
            Ok(())
        }

        /// `SO_LINGER`, as last set.
        ///
        /// # Errors
        /// None; the result is there to match `std`.
        pub fn linger(&self) -> std::io::Result<Option<std::time::Duration>> {
            Ok(self.socket.linger())
        }

        /// `SO_KEEPALIVE` and its parameters; `None` if it is off.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn keepalive(&self) -> std::io::Result<Option<taut_core::Keepalive>> {
            self.socket.keepalive()
        }

        /// `SO_SNDBUF`: the send buffer as it is now, in bytes.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn sndbuf(&self) -> std::io::Result<u32> {
            self.info().map(|info| info.sndbuf)
        }

        /// `SO_RCVBUF`: the receive buffer as it is now, in bytes.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn rcvbuf(&self) -> std::io::Result<u32> {
            self.info().map(|info| info.rcvbuf)
        }

        /// `IP_TTL`, or the hop limit: that of the stack, `ip_default_ttl`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn ttl(&self) -> std::io::Result<u32> {
            self.socket.ttl().map(u32::from)
        }

        /// Resets the connection now: the peer sees a reset, and later uses of this stream fail with
        /// [`NotConnected`](std::io::ErrorKind::NotConnected). Written data that has not arrived is lost.
        pub fn abort(&self) {
            self.socket.abort();
        }
    };
}
pub(crate) use socket_methods;
