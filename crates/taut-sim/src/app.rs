//! Applications: state machines that are told of events and act on connections through [`AppCx`]. Called by the host.
//!
//! An application is a thread of its own that sleeps until something happens to one of its connections or timers, as one
//! that waits in `epoll_wait`. All that happened by then it is told in one go: one wake-up.

mod bulk;
mod rr;
mod sink;
mod stream;
mod web;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

pub use bulk::{Bulk, BulkStats, Pause};
pub use rr::{Request, Responder, RrStats};
pub use sink::{Sink, SinkStats};
pub use stream::{Stream, StreamStats};
pub use web::{Web, WebServer, WebStats};

use taut_core::{
    ConnId, ConnInfo, ConnOptions, ConnectError, Event, Instant, ListenError, ListenOptions, ListenerId,
    ReadError, SetOption, WriteError, WriteFlags,
};

use crate::check::{Failure, Kind};
use crate::event::AlarmId;
use crate::host::Host;
use crate::pattern::Pattern;
use crate::probe::ProbeEvent;
use crate::rng::Rng;
use crate::world::{Fabric, HostId};

/// An application.
pub trait App {
    /// It begins.
    fn start(&mut self, cx: &mut AppCx<'_>);

    /// Something happened to one of its connections or listeners.
    fn on_event(&mut self, cx: &mut AppCx<'_>, event: Event);

    /// A timer that it set with [`AppCx::timer`] fired.
    fn on_timer(&mut self, cx: &mut AppCx<'_>, token: u64) {
        let _ = (cx, token);
    }
}

/// Names an application of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppId(u32);

impl AppId {
    /// Nobody.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Its number at its host, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an application is told.
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
    /// When, how many were set before, and the token.
    timers: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    rng: Rng,
}

/// All applications of a host.
#[derive(Default)]
pub(crate) struct Apps {
    entries: Vec<AppEntry>,
    queue: VecDeque<(AppId, AppEvent)>,
    /// Who holds a connection, by its slot.
    conns: Vec<Option<(ConnId, AppId)>>,
    listeners: Vec<(ListenerId, AppId)>,
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

    /// Passes the stack's news to whom they concern.
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

    /// Connections that applications hold.
    pub(crate) fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.iter().flatten().map(|(id, _)| *id)
    }
}

/// What an application can do. Each call that a real one would make of its kernel counts as one and, with a
/// [`CpuModel`](crate::CpuModel), takes its time.
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

    /// The host it runs on.
    #[must_use]
    pub fn host(&self) -> HostId {
        self.host.id
    }

    /// Its own name.
    #[must_use]
    pub fn id(&self) -> AppId {
        self.id
    }

    /// Chance, its own stream of it.
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

    /// After a call that may have made the stack want to send.
    fn flush(&mut self) {
        self.host.pump(self.fabric);
    }

    /// Fires once at `at`, and tells `token`, which is not `u64::MAX`.
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

    /// `send(2)`.
    ///
    /// # Errors
    /// As [`taut_core::ConnMut::write`]; a connection that was closed has [`WriteError::NotConnected`].
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

    /// Writes what comes next of a pattern, at most `len` bytes and 64 KiB.
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

    /// `poll(2)`: whether it is worth writing. After `false` [`Event::Writable`] follows.
    pub fn writable(&mut self, conn: ConnId) -> bool {
        self.syscall();
        let now = self.fabric.now;
        self.host.stack.conn_mut(conn).is_some_and(|mut conn| conn.writable(now))
    }

    /// `recv(2)`, without a copy: `f` looks at what is there, piece by piece, at most `max` bytes. Says how many; `None`
    /// at the end of the stream.
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

    /// Reads everything that is there and holds it against a pattern; a byte that was not written so fails the run.
    /// Says how many bytes there were, and whether the stream has ended.
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
                    "connection {} read other bytes than were written, after {place}",
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
            // An error has ended the connection already.
            let _ = handle.shutdown_write(now);
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

    /// `setsockopt(2)`; one that is out of range is left as it is.
    pub fn set_option(&mut self, conn: ConnId, option: SetOption) {
        self.syscall();
        let now = self.fabric.now;
        if let Some(mut handle) = self.host.stack.conn_mut(conn) {
            // What an experiment asks for is in range, or it would see no effect.
            let _ = handle.set_option(now, option);
        }
        self.flush();
    }

    /// `TCP_INFO`, without the call being counted.
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

    /// The stream of bytes that this connection's opener writes: the same at both ends.
    pub fn pattern(&mut self, conn: ConnId, opener: bool) -> Pattern {
        let ends = (self.local(conn), self.peer(conn));
        let (Some(local), Some(peer)) = ends else { return Pattern::new(0) };
        let (opener, other) = if opener { (local, peer) } else { (peer, local) };
        Pattern::new(u64::from(opener.port()) << 16 | u64::from(other.port()))
    }

    /// The run has failed.
    pub fn fail(&mut self, why: String) {
        let failure = Failure::new(self.fabric.now, Kind::WrongBytes, why);
        self.fabric.failures.push_back(failure);
    }
}
