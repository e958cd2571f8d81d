//! Applications without connections: a UDP flow of a constant rate, with pauses or without, its sink, and
//! ping.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use taut_core::{DatagramId, DatagramKind, DatagramOptions, Duration, Event, Instant, SendMeta};

use super::{App, AppCx};

/// Results of a [`UdpFlow`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct UdpFlowStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams for which the socket had no room.
    pub refused: u64,
}

/// Sends datagrams at a constant rate. Each begins with its number and the time at which it was sent.
pub struct UdpFlow {
    to: SocketAddr,
    bytes: usize,
    gap: Duration,
    on: Duration,
    off: Duration,
    began: Option<Instant>,
    socket: Option<DatagramId>,
    stats: Rc<RefCell<UdpFlowStats>>,
}

impl UdpFlow {
    /// The least bytes of a datagram: its number and its time.
    const LEAST: usize = 16;

    /// A flow to `to`: `bytes` of payload, at least 16, each `gap`.
    #[must_use]
    pub fn new(to: SocketAddr, bytes: usize, gap: Duration) -> Self {
        Self {
            to,
            bytes: bytes.max(Self::LEAST),
            gap: gap.max(Duration::from_nanos(1)),
            on: Duration::ZERO,
            off: Duration::ZERO,
            began: None,
            socket: None,
            stats: Rc::default(),
        }
    }

    /// It sends for `on`, pauses for `off`, and so on.
    #[must_use]
    pub const fn on_off(mut self, on: Duration, off: Duration) -> Self {
        (self.on, self.off) = (on, off);
        self
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<UdpFlowStats>> {
        Rc::clone(&self.stats)
    }

    fn is_on(&self, now: Instant) -> bool {
        let period = (self.on + self.off).as_nanos();
        let since = self.began.map_or(0, |began| now.since(began).as_nanos());
        self.off.is_zero() || since.checked_rem(period).unwrap_or(0) < self.on.as_nanos()
    }
}

impl App for UdpFlow {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let any = if self.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        self.socket = any.parse().ok().and_then(|any| cx.open_datagram(DatagramKind::Udp, any));
        self.began = Some(cx.now());
        self.on_timer(cx, 0);
    }

    fn on_event(&mut self, _: &mut AppCx<'_>, _: Event) {}

    fn on_timer(&mut self, cx: &mut AppCx<'_>, _: u64) {
        let (now, Some(socket)) = (cx.now(), self.socket) else { return };
        cx.timer(now + self.gap, 0);
        if !self.is_on(now) {
            return;
        }
        let mut stats = self.stats.borrow_mut();
        let mut message = vec![0; self.bytes];
        message[..8].copy_from_slice(&stats.sent.to_be_bytes());
        message[8..16].copy_from_slice(&now.as_nanos().to_be_bytes());
        if cx.send_datagram(socket, self.to, &message) {
            stats.sent += 1;
        } else {
            stats.refused += 1;
        }
    }
}

/// Results of a [`UdpSink`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct UdpSinkStats {
    /// Datagrams received.
    pub received: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Datagrams that came after one with a higher number.
    pub reordered: u64,
    /// The time that each was on its way.
    pub delays: Vec<Duration>,
}

/// Receives the datagrams of [`UdpFlow`]s.
pub struct UdpSink {
    port: u16,
    socket: Option<DatagramId>,
    next: u64,
    stats: Rc<RefCell<UdpSinkStats>>,
}

impl UdpSink {
    /// A sink at this port, over IPv4 and IPv6.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self { port, socket: None, next: 0, stats: Rc::default() }
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<UdpSinkStats>> {
        Rc::clone(&self.stats)
    }
}

fn long(message: &[u8], at: usize) -> u64 {
    message.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl App for UdpSink {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let any = SocketAddr::from(([0_u16; 8], self.port));
        self.socket = cx.open_datagram(DatagramKind::Udp, any);
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, _: Event) {
        let Some(socket) = self.socket else { return };
        let mut stats = self.stats.borrow_mut();
        while let Some(message) = cx.recv_datagram(socket) {
            stats.received += 1;
            stats.bytes += message.len() as u64;
            let number = long(&message, 0);
            stats.reordered += u64::from(number < self.next);
            self.next = self.next.max(number + 1);
            stats.delays.push(cx.now().since(Instant::from_nanos(long(&message, 8))));
        }
    }
}

/// Results of a [`Ping`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PingStats {
    /// Echo requests sent.
    pub sent: u64,
    /// The round-trip time of each reply.
    pub round_trips: Vec<Duration>,
}

/// Sends echo requests of 64 bytes, header included, at a constant rate.
pub struct Ping {
    to: SocketAddr,
    every: Duration,
    socket: Option<DatagramId>,
    stats: Rc<RefCell<PingStats>>,
}

impl Ping {
    /// Bytes of a message: the header, and 56 bytes as `ping` sends them.
    const BYTES: usize = 64;

    /// Pings the host at `to`, whose port is not used.
    #[must_use]
    pub fn new(to: SocketAddr, every: Duration) -> Self {
        Self { to, every: every.max(Duration::from_nanos(1)), socket: None, stats: Rc::default() }
    }

    /// The results, to be read later.
    #[must_use]
    pub fn stats(&self) -> Rc<RefCell<PingStats>> {
        Rc::clone(&self.stats)
    }
}

impl App for Ping {
    fn start(&mut self, cx: &mut AppCx<'_>) {
        let any = if self.to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        self.socket = any.parse().ok().and_then(|any| cx.open_datagram(DatagramKind::Ping, any));
        self.on_timer(cx, 0);
    }

    fn on_event(&mut self, cx: &mut AppCx<'_>, _: Event) {
        let Some(socket) = self.socket else { return };
        while let Some(message) = cx.recv_datagram(socket) {
            let sent = Instant::from_nanos(long(&message, 8));
            self.stats.borrow_mut().round_trips.push(cx.now().since(sent));
        }
    }

    fn on_timer(&mut self, cx: &mut AppCx<'_>, _: u64) {
        let (now, Some(socket)) = (cx.now(), self.socket) else { return };
        let mut stats = self.stats.borrow_mut();
        let mut message = vec![0; Self::BYTES];
        message[..8].copy_from_slice(&taut_wire::icmp::echo_request(self.to.is_ipv4(), stats.sent as u16));
        message[8..16].copy_from_slice(&now.as_nanos().to_be_bytes());
        stats.sent += u64::from(cx.send_datagram(socket, self.to, &message));
        cx.timer(now + self.every, 0);
    }
}

impl AppCx<'_> {
    /// Opens a socket; `None` if the address is taken.
    pub fn open_datagram(&mut self, kind: DatagramKind, at: SocketAddr) -> Option<DatagramId> {
        self.syscall();
        let id = self.host.stack.open_datagram(kind, at, &DatagramOptions::default()).ok()?;
        self.host.apps.datagrams.push((id, self.id));
        Some(id)
    }

    /// `sendto(2)`. Returns whether the datagram was taken.
    pub fn send_datagram(&mut self, id: DatagramId, to: SocketAddr, message: &[u8]) -> bool {
        self.syscall();
        let now = self.fabric.now;
        let sent = self.host.stack.send_datagram(now, id, Some(to), message, &SendMeta::default());
        self.flush();
        sent.is_ok()
    }

    /// `recvfrom(2)`: the next datagram, if there is one. An error that ICMP reported is passed over.
    pub fn recv_datagram(&mut self, id: DatagramId) -> Option<Vec<u8>> {
        self.syscall();
        let mut message = vec![0; usize::from(u16::MAX)];
        let _ = self.host.stack.take_datagram_error(id);
        let received = self.host.stack.recv_datagram(id, &mut message, false).ok()?;
        message.truncate(received.len);
        Some(message)
    }
}
