//! The inside of a `taut_socket`: one of `taut::blocking`'s sockets, and its descriptor once there is one.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

use libc::{EINVAL, ENOPROTOOPT, EOPNOTSUPP, POLLIN, POLLOUT, SO_ERROR, SOL_SOCKET};
use taut::Stack;
use taut::blocking::{TcpListener, TcpStream, UdpSocket};
use taut_core::{ConnOptions, DatagramOptions, ListenOptions};

use super::bell::Bell;
use crate::border::{Answer, Errno};
use crate::options;

pub(super) struct Socket {
    kind: Kind,
    bell: OnceLock<Bell>,
}

enum Kind {
    Stream(TcpStream),
    Listener(TcpListener),
    Udp(UdpSocket),
}

/// Poll's words for what may be waited for.
const EVENTS: c_int = (POLLIN | POLLOUT) as c_int;

impl Socket {
    fn of(kind: Kind) -> Self {
        Self { kind, bell: OnceLock::new() }
    }

    pub(super) fn connect(stack: &Stack, to: SocketAddr, nonblocking: bool) -> Answer<Self> {
        let options = ConnOptions::default();
        let stream = if nonblocking {
            TcpStream::begin_connect(stack, to, &options)?
        } else {
            TcpStream::connect_with(stack, to, &options, None)?
        };
        Ok(Self::of(Kind::Stream(stream)))
    }

    pub(super) fn listen(stack: &Stack, at: SocketAddr, backlog: u32, nonblocking: bool) -> Answer<Self> {
        let listener =
            TcpListener::bind_with(stack, at, ListenOptions { backlog, ..ListenOptions::default() })?;
        listener.set_nonblocking(nonblocking)?;
        Ok(Self::of(Kind::Listener(listener)))
    }

    pub(super) fn udp(stack: &Stack, at: SocketAddr, nonblocking: bool) -> Answer<Self> {
        let socket = UdpSocket::bind_with(stack, at, &DatagramOptions::default())?;
        socket.set_nonblocking(nonblocking)?;
        Ok(Self::of(Kind::Udp(socket)))
    }

    pub(super) fn accept(&self, nonblocking: bool) -> Answer<(Self, SocketAddr)> {
        let Kind::Listener(listener) = &self.kind else { return Err(Errno(EINVAL)) };
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(nonblocking)?;
        Ok((Self::of(Kind::Stream(stream)), peer))
    }

    fn stream(&self) -> Answer<&TcpStream> {
        if let Kind::Stream(stream) = &self.kind { Ok(stream) } else { Err(Errno(EOPNOTSUPP)) }
    }

    fn datagrams(&self) -> Answer<&UdpSocket> {
        if let Kind::Udp(socket) = &self.kind { Ok(socket) } else { Err(Errno(EOPNOTSUPP)) }
    }

    pub(super) fn read(&self, into: &mut [u8]) -> Answer<usize> {
        Ok(self.stream()?.read(into)?)
    }

    pub(super) fn write(&self, data: &[u8]) -> Answer<usize> {
        Ok(self.stream()?.write(data)?)
    }

    pub(super) fn send_to(&self, data: &[u8], to: SocketAddr) -> Answer<usize> {
        Ok(self.datagrams()?.send_to(data, to)?)
    }

    pub(super) fn recv_from(&self, into: &mut [u8]) -> Answer<(usize, SocketAddr)> {
        Ok(self.datagrams()?.recv_from(into)?)
    }

    pub(super) fn shutdown(&self, how: c_int) -> Answer<()> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno(EINVAL)),
        };
        Ok(self.stream()?.shutdown(how)?)
    }

    pub(super) fn local_addr(&self) -> Answer<SocketAddr> {
        Ok(match &self.kind {
            Kind::Stream(stream) => stream.local_addr()?,
            Kind::Listener(listener) => listener.local_addr()?,
            Kind::Udp(socket) => socket.local_addr()?,
        })
    }

    pub(super) fn set_option(&self, level: c_int, name: c_int, value: i64) -> Answer<()> {
        match &self.kind {
            Kind::Stream(stream) => {
                let option = options::of_conn(level, name, value, stream.keepalive()?)?;
                Ok(stream.set_option(option)?)
            }
            Kind::Udp(socket) => Ok(socket.set_option(options::of_udp(level, name, value)?)?),
            Kind::Listener(_) => Err(Errno(ENOPROTOOPT)),
        }
    }

    pub(super) fn option(&self, level: c_int, name: c_int) -> Answer<i64> {
        let is_error = (level, name) == (SOL_SOCKET, SO_ERROR);
        let number = |error: Option<std::io::Error>| error.map_or(0, |error| Errno::from(error).0.into());
        match &self.kind {
            Kind::Stream(stream) if is_error => Ok(number(stream.take_error()?)),
            Kind::Udp(socket) if is_error => Ok(number(socket.take_error()?)),
            Kind::Stream(stream) => options::read_conn(level, name, &stream.info()?),
            Kind::Udp(socket) => options::read_udp(level, name, &socket.info()?),
            Kind::Listener(_) => Err(Errno(ENOPROTOOPT)),
        }
    }

    pub(super) fn set_option_bytes(&self, level: c_int, name: c_int, value: &[u8]) -> Answer<()> {
        let stream = self.stream()?;
        Ok(stream.set_congestion(options::congestion_of_conn(level, name, value)?)?)
    }

    pub(super) fn option_bytes(&self, level: c_int, name: c_int) -> Answer<Vec<u8>> {
        options::read_conn_bytes(level, name, &self.stream()?.info()?)
    }

    /// Closing it resets the connection.
    pub(super) fn reset_on_close(&self) -> Answer<()> {
        Ok(self.stream()?.set_linger(Some(Duration::ZERO))?)
    }

    // ---- readiness ----

    fn bell(&self) -> Answer<&Bell> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell);
        }
        let bell = Bell::new()?;
        Ok(self.bell.get_or_init(|| bell))
    }

    pub(super) fn fd(&self) -> Answer<RawFd> {
        Ok(self.bell()?.fd())
    }

    /// Which of `events` hold. If none does, the descriptor is cleared, and rung when one does.
    pub(super) fn poll(&self, events: c_int) -> Answer<c_int> {
        if events & EVENTS == 0 || events & !EVENTS != 0 {
            return Err(Errno(EINVAL));
        }
        let bell = self.bell()?;
        // First: what rings it from now on is news.
        bell.clear();
        let waker = bell.waker();
        let mut ready = 0;
        for (event, look) in [(POLLIN, Self::is_readable as Look), (POLLOUT, Self::is_writable as Look)] {
            let event = c_int::from(event);
            // An error of the stack is what the next call returns.
            if events & event != 0 && look(self, &waker).unwrap_or(true) {
                ready |= event;
            }
        }
        if ready != 0 {
            bell.ring();
        }
        Ok(ready)
    }

    fn is_readable(&self, waker: &Waker) -> std::io::Result<bool> {
        match &self.kind {
            Kind::Stream(stream) => stream.readable_or_wake(waker),
            Kind::Listener(listener) => listener.ready_or_wake(waker),
            Kind::Udp(socket) => socket.readable_or_wake(waker),
        }
    }

    fn is_writable(&self, waker: &Waker) -> std::io::Result<bool> {
        match &self.kind {
            Kind::Stream(stream) => stream.writable_or_wake(waker),
            Kind::Listener(_) => Ok(false),
            Kind::Udp(socket) => socket.writable_or_wake(waker),
        }
    }
}

type Look = fn(&Socket, &Waker) -> std::io::Result<bool>;
