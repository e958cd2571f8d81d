//! The state behind a `taut_stack`: the stack, the tickets that the device holds, and the time. The
//! functions of the header call its methods, which mirror `taut_core::Stack`'s.

use std::ffi::c_int;
use std::net::SocketAddr;

use libc::{EAGAIN, EBADF, EINVAL, ENOENT, EOPNOTSUPP};
use taut_core::{
    ConnMut, ConnOptions, DatagramKind, DatagramOptions, Event, Fate, Frame, Instant, ListenOptions,
    RxChecksum, RxPacket, SendMeta, SetOption, Stack, Transmit,
};

use super::device::{Device, TAUT_KEPT, TAUT_LEFT};
use super::event::{
    TAUT_EVENT_ACCEPT, TAUT_EVENT_CLOSED, TAUT_EVENT_CONNECTED, TAUT_EVENT_READABLE, TAUT_EVENT_WRITABLE,
    TautEvent,
};
use super::name::Name;
use super::tickets::Tickets;
use crate::border::{Answer, Errno};
use crate::{errno, options};

/// No deadline, as taut_stack_poll() returns it.
pub const TAUT_NEVER: i64 = 0x7fff_ffff_ffff_ffff;

pub(super) struct Machine {
    stack: Stack,
    device: Device,
    tickets: Tickets,
    /// The latest time that the program has said: it does not go back.
    now: Instant,
}

impl Machine {
    pub(super) fn new(stack: Stack, device: Device) -> Self {
        Self { stack, device, tickets: Tickets::default(), now: Instant::ZERO }
    }

    fn at(&mut self, now_ns: i64) -> Answer<Instant> {
        let now = u64::try_from(now_ns).map_err(|_| Errno(EINVAL))?;
        self.now = self.now.max(Instant::from_nanos(now));
        Ok(self.now)
    }

    // ---- the link and the time ----

    /// Whether it should be polled before the next packet.
    pub(super) fn input(&mut self, now_ns: i64, packet: &[u8], gso_size: u16, checked: bool) -> Answer<bool> {
        let now = self.at(now_ns)?;
        let checksum = if checked { RxChecksum::Verified } else { RxChecksum::Unverified };
        self.stack.handle_packet(now, RxPacket { frame: Frame::Slice(packet), checksum, gso_size });
        Ok(self.stack.must_answer())
    }

    /// Handles what is due, hands packets out, and returns the next deadline.
    pub(super) fn poll(&mut self, now_ns: i64) -> Answer<i64> {
        let now = self.at(now_ns)?;
        if self.stack.poll_timeout().is_some_and(|(due, _)| due <= now) {
            self.stack.handle_timeout(now);
        }
        while let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(now) {
            let fate = match self.device.send(&packet, self.tickets.next()) {
                TAUT_KEPT => {
                    self.tickets.keep(ticket);
                    continue;
                }
                TAUT_LEFT => Fate::Left,
                number if number == -EAGAIN => Fate::Refused,
                _ => Fate::Dropped,
            };
            self.stack.handle_tx(now, ticket, fate);
            if fate == Fate::Refused {
                break;
            }
        }
        let due = self.stack.poll_timeout().map(|(due, _)| due.as_nanos());
        Ok(due.and_then(|due| i64::try_from(due).ok()).unwrap_or(TAUT_NEVER))
    }

    pub(super) fn complete(&mut self, now_ns: i64, ticket: u64) -> Answer<()> {
        let now = self.at(now_ns)?;
        let ticket = self.tickets.take(ticket).ok_or(Errno(ENOENT))?;
        self.stack.handle_tx(now, ticket, Fate::Left);
        Ok(())
    }

    pub(super) fn event(&mut self) -> Option<TautEvent> {
        let size = size_of::<TautEvent>();
        let news = |name: Name, kind, error| Some(TautEvent { size, id: name.to_bits(), kind, error });
        loop {
            let found = match self.stack.poll_event()? {
                Event::Incoming(id) => news(Name::Listener(id), TAUT_EVENT_ACCEPT, 0),
                Event::Connected(id) => news(Name::Conn(id), TAUT_EVENT_CONNECTED, 0),
                Event::Readable(id) => news(Name::Conn(id), TAUT_EVENT_READABLE, 0),
                Event::Writable(id) => news(Name::Conn(id), TAUT_EVENT_WRITABLE, 0),
                Event::Closed(id) => news(Name::Conn(id), TAUT_EVENT_CLOSED, 0),
                Event::Failed(id, error) => news(Name::Conn(id), TAUT_EVENT_CLOSED, -errno::of_conn(error)),
                Event::DatagramReadable(id) => news(Name::Udp(id), TAUT_EVENT_READABLE, 0),
                Event::DatagramWritable(id) => news(Name::Udp(id), TAUT_EVENT_WRITABLE, 0),
                // Of flows and groups, which this interface does not have.
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
    }

    pub(super) fn set_sysctl(&mut self, name: &str, value: &str) -> Answer<()> {
        Ok(self.stack.set_sysctl(name, value)?)
    }

    // ---- sockets ----

    pub(super) fn connect(&mut self, now_ns: i64, to: SocketAddr) -> Answer<u64> {
        let now = self.at(now_ns)?;
        Ok(Name::Conn(self.stack.connect(now, to, &ConnOptions::default())?).to_bits())
    }

    pub(super) fn listen(&mut self, at: SocketAddr, backlog: u32) -> Answer<u64> {
        let options = ListenOptions { backlog, ..ListenOptions::default() };
        Ok(Name::Listener(self.stack.listen(at, options)?).to_bits())
    }

    pub(super) fn accept(&mut self, listener: u64) -> Answer<(u64, SocketAddr)> {
        let Name::Listener(id) = Name::from_bits(listener)? else { return Err(Errno(EINVAL)) };
        self.stack.listener_addr(id).ok_or(Errno(EBADF))?;
        let (conn, peer) = self.stack.accept(id).ok_or(Errno(EAGAIN))?;
        Ok((Name::Conn(conn).to_bits(), peer))
    }

    pub(super) fn udp(&mut self, at: SocketAddr) -> Answer<u64> {
        let opened = self.stack.open_datagram(DatagramKind::Udp, at, &DatagramOptions::default())?;
        Ok(Name::Udp(opened).to_bits())
    }

    fn conn(&mut self, id: u64) -> Answer<ConnMut<'_>> {
        match Name::from_bits(id)? {
            Name::Conn(id) => self.stack.conn_mut(id).ok_or(Errno(EBADF)),
            _ => Err(Errno(EOPNOTSUPP)),
        }
    }

    pub(super) fn read(&mut self, now_ns: i64, id: u64, into: &mut [u8]) -> Answer<usize> {
        let now = self.at(now_ns)?;
        let mut conn = self.conn(id)?;
        if into.is_empty() { Ok(0) } else { Ok(conn.read(now, into)?) }
    }

    pub(super) fn write(&mut self, now_ns: i64, id: u64, data: &[u8]) -> Answer<usize> {
        let now = self.at(now_ns)?;
        Ok(self.conn(id)?.write(now, data)?)
    }

    pub(super) fn shutdown(&mut self, now_ns: i64, id: u64, how: c_int) -> Answer<()> {
        let now = self.at(now_ns)?;
        let mut conn = self.conn(id)?;
        if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
            return Err(Errno(EINVAL));
        }
        if how != libc::SHUT_WR {
            conn.shutdown_read(now);
        }
        if how != libc::SHUT_RD {
            conn.shutdown_write(now)?;
        }
        Ok(())
    }

    pub(super) fn send_to(&mut self, now_ns: i64, id: u64, data: &[u8], to: SocketAddr) -> Answer<usize> {
        let now = self.at(now_ns)?;
        let Name::Udp(id) = Name::from_bits(id)? else { return Err(Errno(EOPNOTSUPP)) };
        self.stack.datagram(id).ok_or(Errno(EBADF))?;
        self.stack.send_datagram(now, id, Some(to), data, &SendMeta::default())?;
        Ok(data.len())
    }

    pub(super) fn recv_from(&mut self, id: u64, into: &mut [u8]) -> Answer<(usize, SocketAddr)> {
        let Name::Udp(id) = Name::from_bits(id)? else { return Err(Errno(EOPNOTSUPP)) };
        self.stack.datagram(id).ok_or(Errno(EBADF))?;
        let received = self.stack.recv_datagram(id, into, false)?;
        Ok((received.len, received.from))
    }

    pub(super) fn local_addr(&mut self, id: u64) -> Answer<SocketAddr> {
        match Name::from_bits(id)? {
            Name::Conn(_) => Ok(self.conn(id)?.as_ref().local_addr()),
            Name::Listener(id) => self.stack.listener_addr(id).ok_or(Errno(EBADF)),
            Name::Udp(id) => self.stack.datagram(id).map(|info| info.local).ok_or(Errno(EBADF)),
        }
    }

    pub(super) fn set_option(
        &mut self,
        now_ns: i64,
        id: u64,
        (level, name, value): (c_int, c_int, i64),
    ) -> Answer<()> {
        let now = self.at(now_ns)?;
        if let Name::Udp(id) = Name::from_bits(id)? {
            self.stack.datagram(id).ok_or(Errno(EBADF))?;
            return Ok(self.stack.set_datagram_option(id, options::of_udp(level, name, value)?)?);
        }
        let mut conn = self.conn(id)?;
        let option = options::of_conn(level, name, value, conn.as_ref().keepalive())?;
        Ok(conn.set_option(now, option)?)
    }

    pub(super) fn set_option_bytes(
        &mut self,
        now_ns: i64,
        id: u64,
        (level, name, value): (c_int, c_int, &[u8]),
    ) -> Answer<()> {
        let now = self.at(now_ns)?;
        self.conn(id)?;
        let congestion = self.stack.algorithm(options::congestion_of_conn(level, name, value)?)?;
        Ok(self.conn(id)?.set_option(now, SetOption::Congestion(congestion))?)
    }

    pub(super) fn option_bytes(
        &mut self,
        now_ns: i64,
        id: u64,
        level: c_int,
        name: c_int,
    ) -> Answer<Vec<u8>> {
        let now = self.at(now_ns)?;
        options::read_conn_bytes(level, name, &self.conn(id)?.as_ref().info(now))
    }

    pub(super) fn option(&mut self, now_ns: i64, id: u64, level: c_int, name: c_int) -> Answer<i64> {
        let now = self.at(now_ns)?;
        let is_error = (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR);
        if let Name::Udp(id) = Name::from_bits(id)? {
            if is_error {
                self.stack.datagram(id).ok_or(Errno(EBADF))?;
                let taken = self.stack.take_datagram_error(id);
                return Ok(taken.map_or(0, |error| Errno::from(error).0.into()));
            }
            return options::read_udp(level, name, &self.stack.datagram(id).ok_or(Errno(EBADF))?);
        }
        let conn = self.conn(id)?;
        if is_error {
            return Ok(conn.as_ref().error().map_or(0, |error| errno::of_conn(error).into()));
        }
        options::read_conn(level, name, &conn.as_ref().info(now))
    }

    pub(super) fn close(&mut self, now_ns: i64, id: u64) -> Answer<()> {
        let now = self.at(now_ns)?;
        match Name::from_bits(id)? {
            Name::Conn(_) => self.conn(id)?.close(now),
            Name::Listener(id) => {
                self.stack.listener_addr(id).ok_or(Errno(EBADF))?;
                self.stack.close_listener(now, id);
            }
            Name::Udp(id) => {
                self.stack.datagram(id).ok_or(Errno(EBADF))?;
                self.stack.close_datagram(id);
            }
        }
        Ok(())
    }

    pub(super) fn abort(&mut self, now_ns: i64, id: u64) -> Answer<()> {
        let now = self.at(now_ns)?;
        self.conn(id)?.abort(now);
        Ok(())
    }
}
