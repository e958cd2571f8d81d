//! Applications: state machines that receive events and act on connections through [`AppCx`]. Called by the
//! host.
//!
//! An application is a separate thread that sleeps until something happens to one of its connections or
//! timers, as if it waited in `epoll_wait`. It then receives all events up to that time together: that is one
//! wake-up.

mod bulk;
mod datagram;
mod rr;
mod sink;
mod stream;
mod web;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

pub use bulk::{Bulk, BulkStats, Pause};
pub use datagram::{Ping, PingStats, UdpFlow, UdpFlowStats, UdpSink, UdpSinkStats};
pub use rr::{Request, Responder, RrStats};
pub use sink::{Sink, SinkStats};
pub use stream::{Stream, StreamStats};
pub use web::{Web, WebServer, WebStats};

use taut_core::{
    Algorithm, Bytes, ConnId, ConnInfo, ConnOptions, ConnectError, DatagramId, Event, FlowError, FlowFilter,
    FlowId, FlowInfo, IncomingOptions, Instant, ListenError, ListenOptions, ListenerId, ReadError, Refusal,
    SetOption, WriteError, WriteFlags,
};

use crate::event::AlarmId;
use crate::failure::{Failure, Kind};
use crate::ids::{AppId, HostId};
use crate::parts::fabric::Fabric;
use crate::parts::host::Host;
use crate::pattern::Pattern;
use crate::probe::ProbeEvent;
use crate::rng::Rng;

/// An application.
pub trait App {
    /// The application starts.
    fn start(&mut self, cx: &mut AppCx<'_>);

    /// Something happened to one of the application's connections or listeners.
    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event);

    /// A timer that the application set with [`AppCx::timer`] fired.
    fn on_timer(&mut self, cx: &mut AppCx<'_>, token: u64) {
        let _ = (cx, token);
    }
}

/// An event for an application.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppEvent {
    Start,
    Timer(u64),
    Net(Event),
}

/// Token of the timer that starts an application.
const START: u64 = u64::MAX;

struct AppEntry {
    app: Option<Box<dyn App>>,
    alarm: AlarmId,
    /// The time, the number of timers set before, and the token.
    timers: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    rng: Rng,
}

/// All applications of a host.
#[derive(Default)]
pub(crate) struct Apps {
    entries: Vec<AppEntry>,
    queue: VecDeque<(AppId, AppEvent)>,
    /// The owner of each connection, by slot.
    conns: Vec<Option<(ConnId, AppId)>>,
    listeners: Vec<(ListenerId, AppId)>,
    datagrams: Vec<(DatagramId, AppId)>,
    timers_set: u64,
}

impl Apps {
    pub(crate) fn add(&mut self, fabric: &mut Fabric, host: HostId, at: Instant, app: Box<dyn App>) -> AppId {
        let id = AppId(self.entries.len() as u32);
        let alarm = fabric.app_alarm(host, id);
        let rng = fabric.rng.fork();
        let timers = BinaryHeap::from([Reverse((at, 0, START))]);
        self.entries.push(AppEntry { app: Some(app), alarm, timers, rng });
        self.arm(fabric, id);
        id
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn next_event(&mut self) -> Option<(AppId, AppEvent)> {
        self.queue.pop_front()
    }

    pub(crate) fn take(&mut self, id: AppId) -> Option<Box<dyn App>> {
        self.entries.get_mut(id.index())?.app.take()
    }

    pub(crate) fn put_back(&mut self, id: AppId, app: Box<dyn App>) {
        if let Some(entry) = self.entries.get_mut(id.index()) {
            entry.app = Some(app);
        }
    }

    pub(crate) fn arm(&mut self, fabric: &mut Fabric, id: AppId) {
        if let Some(entry) = self.entries.get(id.index()) {
            let next = entry.timers.peek().map(|Reverse((at, ..))| (*at).max(fabric.now));
            fabric.agenda.set(entry.alarm, next);
        }
    }

    pub(crate) fn on_alarm(&mut self, fabric: &mut Fabric, app: u32) {
        let Some(entry) = self.entries.get_mut(app as usize) else { return };
        while let Some(Reverse((at, _, token))) = entry.timers.peek().copied() {
            if at > fabric.now {
                break;
            }
            entry.timers.pop();
            let event = if token == START { AppEvent::Start } else { AppEvent::Timer(token) };
            self.queue.push_back((AppId(app), event));
        }
        self.arm(fabric, AppId(app));
    }

    /// Passes an event of the stack to the application that it concerns.
    pub(crate) fn tell(&mut self, event: Event) {
        let app = match event {
            Event::Incoming(listener) => {
                self.listeners.iter().find(|(id, _)| *id == listener).map(|(_, app)| *app)
            }
            Event::Connected(id)
            | Event::Readable(id)
            | Event::Writable(id)
            | Event::Failed(id, _)
            | Event::Closed(id) => self.owner(id),
            Event::DatagramReadable(socket) | Event::DatagramWritable(socket) => {
                self.datagrams.iter().find(|(id, _)| *id == socket).map(|(_, app)| *app)
            }
            _ => None,
        };
        if let Some(app) = app {
            self.queue.push_back((app, AppEvent::Net(event)));
        }
    }

    fn owner(&self, id: ConnId) -> Option<AppId> {
        self.conns.get(id.slot()).copied().flatten().filter(|(conn, _)| *conn == id).map(|(_, app)| app)
    }

    fn own(&mut self, id: ConnId, app: Option<AppId>) {
        if self.conns.len() <= id.slot() {
            self.conns.resize(id.slot() + 1, None);
        }
        if let Some(slot) = self.conns.get_mut(id.slot()) {
            *slot = app.map(|app| (id, app));
        }
    }

    /// Connections that belong to applications.
    pub(crate) fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.iter().flatten().map(|(id, _)| *id)
    }
}

/// The calls that an application can make. Each one that a real application would make to its kernel counts
/// as a system call and, with a [`CpuModel`](crate::CpuModel), takes its time.
pub struct AppCx<'a> {
    host: &'a mut Host,
    fabric: &'a mut Fabric,
    id: AppId,
}

impl<'a> AppCx<'a> {
    pub(crate) fn new(host: &'a mut Host, fabric: &'a mut Fabric, id: AppId) -> Self {
        Self { host, fabric, id }
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.fabric.now
    }

    /// The application's host.
    #[must_use]
    pub fn host(&self) -> HostId {
        self.host.id
    }

    /// The application's ID.
    #[must_use]
    pub fn id(&self) -> AppId {
        self.id
    }

    /// The application's own stream of random numbers.
    ///
    /// # Panics
    /// Never: an application that runs has an entry.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.host.apps.entries[self.id.index()].rng
    }

    fn syscall(&mut self) {
        self.host.counts.syscalls += 1;
        let cost = self.host.cpu.model.syscall;
        self.host.cpu.owe(cost, 1);
    }

    /// Lets the stack send, after a call that may have given it something to send.
    fn flush(&mut self) {
        self.host.pump(self.fabric);
    }

    /// Sets a timer that fires once at `at` with `token`, which must not be `u64::MAX`.
    pub fn timer(&mut self, at: Instant, token: u64) {
        let apps = &mut self.host.apps;
        apps.timers_set += 1;
        let order = apps.timers_set;
        if let Some(entry) = apps.entries.get_mut(self.id.index()) {
            entry.timers.push(Reverse((at, order, token)));
        }
    }

    /// `connect(2)`.
    ///
    /// # Errors
    /// As [`taut_core::Stack::connect`].
    pub fn connect(&mut self, to: SocketAddr, options: &ConnOptions) -> Result<ConnId, ConnectError> {
        self.syscall();
        let id = self.host.stack.connect(self.fabric.now, to, options)?;
        self.host.apps.own(id, Some(self.id));
        self.host.on_conn(id);
        self.flush();
        Ok(id)
    }

    /// `listen(2)`.
    ///
    /// # Errors
    /// As [`taut_core::Stack::listen`].
    pub fn listen(&mut self, at: SocketAddr, options: ListenOptions) -> Result<ListenerId, ListenError> {
        self.syscall();
        let id = self.host.stack.listen(at, options)?;
        self.host.apps.listeners.push((id, self.id));
        Ok(id)
    }

    /// `accept(2)`.
    pub fn accept(&mut self, listener: ListenerId) -> Option<(ConnId, SocketAddr)> {
        self.syscall();
        let (id, peer) = self.host.stack.accept(listener)?;
        self.host.apps.own(id, Some(self.id));
        self.host.on_conn(id);
        Some((id, peer))
    }

    /// Opens a filter: connections to any address are flows, about which the application decides.
    ///
    /// # Errors
    /// As [`taut_core::Stack::incoming`].
    pub fn incoming(
        &mut self,
        filter: FlowFilter,
        options: IncomingOptions,
    ) -> Result<ListenerId, ListenError> {
        self.syscall();
        let id = self.host.stack.incoming(filter, options)?;
        self.host.apps.listeners.push((id, self.id));
        Ok(id)
    }

    /// The next flow that waits for a decision.
    pub fn next_flow(&mut self, filter: ListenerId) -> Option<FlowInfo> {
        self.syscall();
        self.host.stack.next_flow(filter)
    }

    /// Accepts a flow.
    ///
    /// # Errors
    /// As [`taut_core::Stack::accept_flow`].
    pub fn accept_flow(&mut self, flow: FlowId) -> Result<ConnId, FlowError> {
        self.syscall();
        let id = self.host.stack.accept_flow(self.fabric.now, flow, None)?;
        self.host.apps.own(id, Some(self.id));
        self.host.on_conn(id);
        self.flush();
        Ok(id)
    }

    /// Refuses a flow.
    pub fn refuse_flow(&mut self, flow: FlowId, how: Refusal) {
        self.syscall();
        let now = self.fabric.now;
        self.host.stack.refuse_flow(now, flow, how);
        self.flush();
    }

    /// `send(2)`.
    ///
    /// # Errors
    /// As [`taut_core::ConnMut::write`]; a closed connection gives [`WriteError::NotConnected`].
    pub fn write(&mut self, conn: ConnId, data: &[u8]) -> Result<usize, WriteError> {
        self.write_with(conn, data, WriteFlags::default())
    }

    /// `send(2)` with flags.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with(&mut self, conn: ConnId, data: &[u8], flags: WriteFlags) -> Result<usize, WriteError> {
        self.syscall();
        let now = self.fabric.now;
        let Some(mut handle) = self.host.stack.conn_mut(conn) else { return Err(WriteError::NotConnected) };
        let bytes = handle.write_with(now, data, flags)?;
        self.host.counts.writes += 1;
        self.host.counts.bytes_written += bytes as u64;
        if self.fabric.probes.want.apps {
            let what = ProbeEvent::Wrote { host: self.host.id, app: self.id, conn, bytes: bytes as u64 };
            self.fabric.probes.tell(now, &what);
        }
        self.flush();
        self.host.note_held(now, conn);
        Ok(bytes)
    }

    /// Writes the next bytes of a pattern, at most `len` bytes and 64 KiB.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_pattern(
        &mut self,
        conn: ConnId,
        pattern: &mut Pattern,
        len: usize,
    ) -> Result<usize, WriteError> {
        let bytes = self.write(conn, pattern.bytes(len))?;
        pattern.pass(bytes);
        Ok(bytes)
    }

    /// A write without a copy: takes bytes from the front of `data`, and returns how many.
    ///
    /// # Errors
    /// As [`taut_core::ConnMut::write_bytes`].
    pub fn write_bytes(
        &mut self,
        conn: ConnId,
        data: &mut Bytes,
        flags: WriteFlags,
    ) -> Result<usize, WriteError> {
        self.syscall();
        let (now, before) = (self.fabric.now, data.len());
        let Some(mut handle) = self.host.stack.conn_mut(conn) else { return Err(WriteError::NotConnected) };
        handle.write_bytes_with(now, data, flags)?;
        let bytes = before - data.len();
        self.host.counts.writes += 1;
        self.host.counts.bytes_written += bytes as u64;
        self.flush();
        self.host.note_held(now, conn);
        Ok(bytes)
    }

    /// A read without a copy, of at most `max` bytes that are contiguous in memory; empty at the end of the
    /// stream.
    ///
    /// # Errors
    /// As [`taut_core::ConnMut::read_chunk`].
    pub fn read_chunk(&mut self, conn: ConnId, max: usize) -> Result<Bytes, ReadError> {
        self.syscall();
        let now = self.fabric.now;
        let Some(mut handle) = self.host.stack.conn_mut(conn) else { return Err(ReadError::NotConnected) };
        let bytes = handle.read_chunk(now, max)?;
        self.host.counts.bytes_read += bytes.len() as u64;
        self.flush();
        Ok(bytes)
    }

    /// `poll(2)`: whether a write would succeed. After `false`, an [`Event::Writable`] follows.
    pub fn writable(&mut self, conn: ConnId) -> bool {
        self.syscall();
        let now = self.fabric.now;
        self.host.stack.conn_mut(conn).is_some_and(|mut conn| conn.writable(now))
    }

    /// `recv(2)` without a copy: `f` is called with the available data piece by piece, at most `max` bytes.
    /// Returns their number; `None` at the end of the stream.
    ///
    /// # Errors
    /// As [`taut_core::ConnMut::read`].
    pub fn read(
        &mut self,
        conn: ConnId,
        max: usize,
        mut f: impl FnMut(&[u8]),
    ) -> Result<Option<usize>, ReadError> {
        self.syscall();
        let now = self.fabric.now;
        let mut total = 0;
        while total < max {
            let Some(mut handle) = self.host.stack.conn_mut(conn) else {
                return Err(ReadError::NotConnected);
            };
            let piece = match handle.chunk() {
                Ok([]) if total == 0 => return Ok(None),
                Ok(piece) => &piece[..piece.len().min(max - total)],
                Err(error) if total == 0 => return Err(error),
                Err(_) => &[],
            };
            if piece.is_empty() {
                break;
            }
            f(piece);
            let count = piece.len();
            handle.consume(now, count);
            total += count;
        }
        self.host.counts.bytes_read += total as u64;
        if self.fabric.probes.want.apps {
            let what = ProbeEvent::Read { host: self.host.id, app: self.id, conn, bytes: total as u64 };
            self.fabric.probes.tell(now, &what);
        }
        // Reading may open the window.
        self.flush();
        Ok(Some(total))
    }

    /// Reads all available data and compares it with a pattern; a different byte fails the run. Returns the
    /// number of bytes, and whether the stream has ended.
    pub fn check_pattern(&mut self, conn: ConnId, pattern: &mut Pattern) -> (u64, bool) {
        let mut total = 0;
        loop {
            let mut is_right = true;
            match self.read(conn, 1 << 20, |piece| is_right &= pattern.check(piece)) {
                Ok(Some(count)) => total += count as u64,
                Ok(None) => return (total, true),
                Err(ReadError::WouldBlock) => return (total, false),
                Err(_) => return (total, true),
            }
            if !is_right {
                let place = pattern.passed();
                self.fail(format!(
                    "connection {} read bytes that differ from those written, after {place}",
                    conn.slot()
                ));
                return (total, true);
            }
        }
    }

    /// `shutdown(2)` of the sending side.
    pub fn finish(&mut self, conn: ConnId) {
        self.syscall();
        let now = self.fabric.now;
        if let Some(mut handle) = self.host.stack.conn_mut(conn) {
            // An error has already ended the connection.
            let _ = handle.shutdown_write(now);
        }
        self.flush();
    }

    /// `shutdown(2)` of the receiving side.
    pub fn finish_reading(&mut self, conn: ConnId) {
        self.syscall();
        let now = self.fabric.now;
        if let Some(mut handle) = self.host.stack.conn_mut(conn) {
            handle.shutdown_read(now);
        }
        self.flush();
    }

    /// `close(2)` with `SO_LINGER` 0: the peer gets RST.
    pub fn abort(&mut self, conn: ConnId) {
        self.syscall();
        self.host.on_conn_gone(conn);
        self.host.apps.own(conn, None);
        if let Some(handle) = self.host.stack.conn_mut(conn) {
            handle.abort(self.fabric.now);
        }
        self.flush();
    }

    /// `close(2)`.
    pub fn close(&mut self, conn: ConnId) {
        self.syscall();
        self.host.on_conn_gone(conn);
        self.host.apps.own(conn, None);
        if let Some(handle) = self.host.stack.conn_mut(conn) {
            handle.close(self.fabric.now);
        }
        self.flush();
    }

    /// `setsockopt(2)`; an option that is out of range is ignored.
    pub fn set_option(&mut self, conn: ConnId, option: SetOption) {
        self.syscall();
        let now = self.fabric.now;
        if let Some(mut handle) = self.host.stack.conn_mut(conn) {
            // Experiments set options within their range; otherwise they would see no effect.
            let _ = handle.set_option(now, option);
        }
        self.flush();
    }

    /// The congestion control of this name, if the stack has it.
    #[must_use]
    pub fn algorithm(&self, name: &str) -> Option<Algorithm> {
        self.host.stack.algorithm(name).ok()
    }

    /// `TCP_INFO`; not counted as a call.
    #[must_use]
    pub fn info(&self, conn: ConnId) -> Option<ConnInfo> {
        self.host.stack.conn(conn).map(|conn| conn.info(self.fabric.now))
    }

    /// The other end.
    pub fn peer(&mut self, conn: ConnId) -> Option<SocketAddr> {
        self.host.stack.conn(conn).map(|conn| conn.peer_addr())
    }

    /// This end.
    pub fn local(&mut self, conn: ConnId) -> Option<SocketAddr> {
        self.host.stack.conn(conn).map(|conn| conn.local_addr())
    }

    /// The stream of bytes that one side of the connection writes, its opener or its acceptor: the same at
    /// both ends.
    pub fn pattern(&mut self, conn: ConnId, opener: bool) -> Pattern {
        let ends = (self.local(conn), self.peer(conn));
        let (Some(local), Some(peer)) = ends else { return Pattern::new(0) };
        let (opener, other) = if opener { (local, peer) } else { (peer, local) };
        Pattern::new(u64::from(opener.port()) << 16 | u64::from(other.port()))
    }

    /// Fails the run.
    pub fn fail(&mut self, why: String) {
        let failure = Failure::new(self.fabric.now, Kind::WrongBytes, why);
        self.fabric.failures.push_back(failure);
    }
}
