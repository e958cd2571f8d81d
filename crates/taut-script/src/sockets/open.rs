//! How sockets begin and end: socket, bind, listen, accept, connect, shutdown, close.

use std::net::SocketAddr;

use taut_core::{ConnError, ConnectError, ListenError, ListenOptions, State, WriteError};

use super::{Called, File, Kind, Socket, Sockets, Stop, fails};
use crate::errno::Errno;

impl Sockets {
    /// `socket(2)`: a TCP socket with this number.
    ///
    /// # Errors
    /// None that a socket call has.
    pub(crate) fn socket(&mut self, fd: i32, nonblocking: bool) -> Called<()> {
        self.files.insert(fd, File::Socket(Box::new(Socket { nonblocking, ..Socket::default() })));
        Ok(())
    }

    /// `bind(2)`.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub(crate) fn bind(&mut self, fd: i32, to: SocketAddr) -> Called<()> {
        let addresses = &self.host.stack.config().addresses;
        if !to.ip().is_unspecified() && !addresses.contains(&to.ip()) {
            return fails("EADDRNOTAVAIL");
        }
        let socket = self.socket_mut(fd)?;
        if socket.kind != Kind::New || socket.bound.is_some() {
            return fails("EINVAL");
        }
        socket.bound = Some(to);
        Ok(())
    }

    /// `listen(2)`.
    ///
    /// # Errors
    /// As `listen(2)`.
    pub(crate) fn listen(&mut self, fd: i32, backlog: u32) -> Called<()> {
        let unspecified = SocketAddr::new([0, 0, 0, 0].into(), 0);
        let socket = self.socket_ref(fd)?;
        match socket.kind {
            Kind::New => {}
            Kind::Listening(_) => return Ok(()),
            Kind::Conn(_) => return fails("EINVAL"),
        }
        let at = socket.bound.unwrap_or(unspecified);
        match self.host.stack.listen(at, options(socket, backlog)) {
            Ok(id) => self.socket_mut(fd)?.kind = Kind::Listening(id),
            Err(ListenError::AddrInUse) => return fails("EADDRINUSE"),
            Err(_) => return fails("EADDRNOTAVAIL"),
        }
        Ok(())
    }

    /// `accept(2)`: the connection gets the number `new`.
    ///
    /// # Errors
    /// As `accept(2)`.
    pub(crate) fn accept(&mut self, fd: i32, new: i32) -> Called<SocketAddr> {
        let Kind::Listening(listener) = self.socket_ref(fd)?.kind else { return fails("EINVAL") };
        let Some((id, peer)) = self.host.stack.accept(listener) else { return self.would_block(fd) };
        let parent = self.socket_ref(fd)?;
        let socket = Socket {
            kind: Kind::Conn(id),
            nonblocking: false,
            begin: parent.begin.clone(),
            then: parent.then.clone(),
            keep: parent.keep,
            linger: parent.linger,
            inq: parent.inq,
            zero_copy: parent.zero_copy,
            kept: parent.kept.clone(),
            ..Socket::default()
        };
        self.files.insert(new, File::Socket(Box::new(socket)));
        self.begin(new)?;
        Ok(peer)
    }

    /// A connection exists: gives it the options that were set before.
    fn begin(&mut self, fd: i32) -> Called<()> {
        let now = self.now();
        let keepalive = self.keepalive_of(fd)?;
        let Some(id) = self.conn(fd) else { return Ok(()) };
        let then = self.socket_ref(fd)?.then.clone();
        if let Some(mut conn) = self.host.stack.conn_mut(id) {
            for option in then.into_iter().chain(keepalive) {
                // Each was within its range when it was set.
                let _ = conn.set_option(now, option);
            }
        }
        Ok(())
    }

    /// Why a call that has nothing to return stops.
    pub(super) fn would_block<T>(&self, fd: i32) -> Called<T> {
        if self.is_nonblocking(fd) { fails("EAGAIN") } else { Err(Stop::Blocks) }
    }

    /// `connect(2)`. While it blocks, call it again with `again`.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub(crate) fn connect(&mut self, fd: i32, to: SocketAddr, again: bool) -> Called<()> {
        match self.socket_ref(fd)?.kind {
            Kind::Listening(_) => return fails("EISCONN"),
            Kind::Conn(_) => return self.connecting(fd, to, again),
            Kind::New => {}
        }
        let keepalive = self.keepalive_options(fd)?;
        let socket = self.socket_ref(fd)?;
        let mut options = socket.begin.clone();
        options.bind = socket.bound;
        options.keepalive = keepalive;
        let now = self.now();
        match self.host.stack.connect(now, to, &options) {
            Ok(id) => {
                let socket = self.socket_mut(fd)?;
                (socket.kind, socket.connecting, socket.error_taken) = (Kind::Conn(id), true, false);
            }
            Err(ConnectError::AddrInUse) => return fails("EADDRNOTAVAIL"),
            Err(ConnectError::InvalidPeer) => return fails("ENETUNREACH"),
            Err(_) => return fails("EADDRNOTAVAIL"),
        }
        self.begin(fd)?;
        self.host.turn();
        if self.awaits_first_write(fd) {
            // Linux: the SYN leaves with the first write, and the socket counts as connected until then.
            self.socket_mut(fd)?.connecting = false;
            return Ok(());
        }
        if self.is_nonblocking(fd) { fails("EINPROGRESS") } else { Err(Stop::Blocks) }
    }

    /// The state of a connection that was begun.
    fn connecting(&mut self, fd: i32, to: SocketAddr, again: bool) -> Called<()> {
        let Some(conn) = self.conn(fd).and_then(|id| self.host.stack.conn(id)) else {
            return fails("EINVAL");
        };
        if conn.awaits_first_write() {
            return fails("EISCONN");
        }
        let (state, error) = (conn.state(), conn.error());
        let socket = self.socket_mut(fd)?;
        match state {
            State::SynSent | State::SynReceived if again => Err(Stop::Blocks),
            State::SynSent | State::SynReceived => fails("EALREADY"),
            State::Closed if socket.connecting => {
                (socket.connecting, socket.error_taken) = (false, true);
                let error = error.unwrap_or(ConnError::Aborted);
                self.release(fd)?;
                Err(Stop::Fails(Errno::of(error)))
            }
            State::Closed => {
                self.release(fd)?;
                self.connect(fd, to, false)
            }
            _ if std::mem::take(&mut socket.connecting) => Ok(()),
            _ => fails("EISCONN"),
        }
    }

    /// A connection that is over leaves its socket, which can connect again.
    fn release(&mut self, fd: i32) -> Called<()> {
        let now = self.now();
        if let Some(conn) = self.conn(fd).and_then(|id| self.host.stack.conn_mut(id)) {
            conn.close(now);
        }
        self.socket_mut(fd)?.kind = Kind::New;
        Ok(())
    }

    /// `shutdown(2)`: 0 reading, 1 writing, 2 both.
    ///
    /// # Errors
    /// As `shutdown(2)`.
    pub(crate) fn shutdown(&mut self, fd: i32, how: i64) -> Called<()> {
        let now = self.now();
        let kind = self.socket_ref(fd)?.kind;
        if !(0..=2).contains(&how) {
            return fails("EINVAL");
        }
        let Kind::Conn(id) = kind else { return fails("ENOTCONN") };
        let Some(mut conn) = self.host.stack.conn_mut(id) else { return fails("ENOTCONN") };
        if matches!(conn.as_ref().state(), State::Closed | State::TimeWait) {
            return fails("ENOTCONN");
        }
        if how != 1 {
            conn.shutdown_read(now);
        }
        if how != 0 {
            match conn.shutdown_write(now) {
                Ok(()) | Err(WriteError::Shutdown) => {}
                Err(_) => return fails("ENOTCONN"),
            }
        }
        Ok(())
    }

    /// `close(2)`.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn close(&mut self, fd: i32) -> Called<()> {
        let now = self.now();
        let Some(file) = self.files.remove(&fd) else { return fails("EBADF") };
        if let File::Socket(socket) = file {
            match socket.kind {
                Kind::New => {}
                Kind::Listening(id) => self.host.stack.close_listener(now, id),
                Kind::Conn(id) => {
                    let conn = self.host.stack.conn_mut(id);
                    match (conn, socket.linger) {
                        (Some(conn), Some(0)) => conn.abort(now),
                        (Some(conn), _) => conn.close(now),
                        (None, _) => {}
                    }
                }
            }
        }
        self.forget(fd);
        Ok(())
    }
}

/// What a socket listens with.
fn options(socket: &Socket, backlog: u32) -> ListenOptions {
    let (conn, fast_open) = (socket.begin.clone(), socket.fast_open);
    ListenOptions { backlog, conn, fast_open, ..ListenOptions::default() }
}
