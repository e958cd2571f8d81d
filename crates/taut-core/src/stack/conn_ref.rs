//! A read-only view of a connection. taut's own; returned by [`Stack::conn`], for connections in any state,
//! including those that the application has released.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Stack;
use crate::conn::Conn;
use crate::conn::handshake::Resumed;
use crate::conn::info::ConnInfo;
use crate::conn::report::Report;
use crate::conn::state::State;
use crate::egress::Blocked;
use crate::words::{ConnError, Instant};

/// A connection, read only. [`ConnMut`](crate::ConnMut) has the calls that change it.
#[derive(Debug)]
pub struct ConnRef<'a> {
    stack: &'a Stack,
    conn: View<'a>,
}

#[derive(Debug)]
enum View<'a> {
    Present(&'a Conn),
    /// Of a half-open connection: what it would become now.
    Made(Box<Conn>),
}

impl core::ops::Deref for View<'_> {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        match self {
            Self::Present(conn) => conn,
            Self::Made(conn) => conn,
        }
    }
}

impl<'a> ConnRef<'a> {
    pub(super) const fn new(stack: &'a Stack, conn: &'a Conn) -> Self {
        Self { stack, conn: View::Present(conn) }
    }

    pub(super) fn of_half_open(stack: &'a Stack, conn: Conn) -> Self {
        Self { stack, conn: View::Made(Box::new(conn)) }
    }

    /// A snapshot in `TCP_INFO`'s terms.
    #[must_use]
    pub fn info(&self, now: Instant) -> ConnInfo {
        self.conn.info(&self.stack.caps, &self.stack.config, &self.stack.shared, now)
    }

    /// What held the connection back since its first write, and how long bytes waited in which queue.
    #[must_use]
    pub fn report(&self, now: Instant) -> Report {
        let mut report = Report::new();
        self.conn.report_to(&mut report, now, true);
        report
    }

    /// The state of its congestion control, in words: BBR gives its state, bandwidth, least RTT and gains.
    /// Empty for an algorithm that reports none.
    #[must_use]
    pub fn congestion(&self) -> String {
        self.conn.congestion_state()
    }

    /// Which gate was shut when the connection was last asked for a packet.
    #[must_use]
    pub fn blocked(&self) -> Blocked {
        self.conn.blocked()
    }

    /// This end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.conn.tuple.local.into()
    }

    /// The other end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.conn.tuple.peer.into()
    }

    /// State of RFC 9293.
    #[must_use]
    pub fn state(&self) -> State {
        self.conn.state
    }

    /// Why the connection ended, if it did with an error.
    #[must_use]
    pub fn error(&self) -> Option<ConnError> {
        self.conn.error
    }

    /// What a router said about data that is in flight, and that it did not deliver. It may pass: the
    /// connection goes on. If it times out, this is the reason that [`error`](Self::error) gives. Linux:
    /// `SO_ERROR`.
    #[must_use]
    pub fn soft_error(&self) -> Option<ConnError> {
        self.conn.soft_error()
    }

    /// Its keepalive, if it is on. Linux: `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`.
    #[must_use]
    pub fn keepalive(&self) -> Option<crate::Keepalive> {
        self.conn.keepalive()
    }

    /// Whether its SYN waits for the first write ([`ConnOptions::fast_open`](crate::ConnOptions::fast_open)):
    /// it can be written although no handshake has begun.
    #[must_use]
    pub fn awaits_first_write(&self) -> bool {
        self.conn.awaits_first_write()
    }

    /// Whether a read would return something now (data, the end or an error): POLLIN.
    #[must_use]
    pub fn readable(&self) -> bool {
        self.conn.is_readable()
    }

    /// The state with which it continues in another stack ([`Stack::resume`]); `None` if it is not open, or
    /// over.
    #[must_use]
    pub fn resumed(&self, now: Instant) -> Option<Resumed> {
        self.conn.resumed(now)
    }

    /// A copy of the bytes that were written and are not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> Vec<u8> {
        let (tx, mut bytes) = (&self.conn.tx, Vec::new());
        let (mut at, end) = (tx.una(), tx.written_until());
        while at < end {
            let piece = tx.payload(at..end);
            if piece.is_empty() {
                break;
            }
            piece.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
            at += piece.len() as u64;
        }
        bytes
    }
}
