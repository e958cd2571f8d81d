//! Socket options, by their Linux names. All but the buffer sizes may be changed at any time.

use core::net::SocketAddr;

use crate::congestion::Algorithm;
use crate::fast_open::FastOpenKeys;
use crate::words::Duration;

/// TCP keepalive (RFC 9293 §3.8.4). Linux: `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe; not zero.
    pub idle: Duration,
    /// Time between probes; not zero.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up, 1..=127.
    pub count: u8,
}

impl Keepalive {
    /// Linux takes 1 s or more for both times, and 1 to 127 probes.
    pub(crate) const fn is_valid(&self) -> bool {
        !self.idle.is_zero() && !self.interval.is_zero() && 1 <= self.count && self.count <= 127
    }
}

/// The options with which a connection starts; the defaults are those of a new Linux socket.
#[derive(Clone, Debug, Default)]
pub struct ConnOptions {
    /// Local address and port to connect from, as with `bind` before `connect`; port 0 lets the stack choose.
    pub bind: Option<SocketAddr>,
    /// `TCP_NODELAY`: small packets do not wait for the ACK of an earlier small one.
    pub nodelay: bool,
    /// `TCP_NOTSENT_LOWAT` in bytes; 0 follows the stack's value.
    pub notsent_lowat: u32,
    /// `SO_SNDBUF` in bytes; it is doubled, as in Linux, and switches autotuning off.
    pub sndbuf: Option<u32>,
    /// `SO_RCVBUF` in bytes; it is doubled, as in Linux, and at least 2,304 then; it switches autotuning off.
    pub rcvbuf: Option<u32>,
    /// `SO_MAX_PACING_RATE` in bytes per second; setting it switches pacing on.
    pub max_pacing_rate: Option<u64>,
    /// `TCP_CONGESTION`; [`Stack::algorithm`](crate::Stack::algorithm) finds an algorithm by name.
    pub congestion: Option<Algorithm>,
    /// `SO_KEEPALIVE` and its three parameters.
    pub keepalive: Option<Keepalive>,
    /// `TCP_USER_TIMEOUT`: how long written data may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// `TCP_MAXSEG`: upper bound of the segment size, both offered and used; 88..=32,767.
    pub maxseg: Option<u16>,
    /// `IP_TOS` or `IPV6_TCLASS`: the upper six bits (DSCP) of that byte in every packet; the lower two are
    /// ECN's, and ignored.
    pub tos: u8,
    /// `TCP_FASTOPEN_CONNECT`: if there is a cookie of the server, the connection may be written at once, and
    /// its SYN waits for the first write and carries its data. Without a cookie, the SYN asks for one.
    pub fast_open: bool,
    /// `TCP_FASTOPEN_NO_COOKIE`: the SYN carries data even without a cookie. Has an effect only with
    /// [`fast_open`](Self::fast_open).
    pub fast_open_no_cookie: bool,
}

impl ConnOptions {
    /// The same with [`fast_open`](Self::fast_open).
    #[must_use]
    pub fn with_fast_open(self) -> Self {
        Self { fast_open: true, ..self }
    }
}

/// The bits of `IP_TOS` that an application may set: the others belong to ECN, as in Linux.
pub(crate) const fn tos_field(tos: u8) -> u8 {
    tos & !3
}

/// Options of a listening socket.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Connections that may wait for `accept`; the same number again may be half open. Linux: `listen(2)`,
    /// bounded by `somaxconn`.
    pub backlog: u32,
    /// The most connections that came from this listener, from their SYN until they are over; further SYNs
    /// are dropped.
    pub max_connections: u32,
    /// The most of them from one peer: an IPv4 address, or the first 64 bits of an IPv6 address.
    pub max_per_peer: u32,
    /// The most of those whose handshake is not complete.
    pub max_half_open_per_peer: u32,
    /// The options of accepted connections ([`ConnOptions::bind`] and the two about Fast Open are ignored).
    pub conn: ConnOptions,
    /// Data in SYNs.
    pub fast_open: FastOpenListen,
}

impl ListenOptions {
    /// The same with data in SYNs accepted, for at most so many pending connections. The setting
    /// `tcp_fastopen` must allow it.
    #[must_use]
    pub fn with_fast_open(mut self, pending_max: u32) -> Self {
        self.fast_open.pending_max = pending_max;
        self
    }
}

/// Whether a listener accepts data in SYNs, if `tcp_fastopen` allows that to listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenListen {
    /// `TCP_FASTOPEN`: connections that such a SYN opened and whose handshake is not complete; for further
    /// ones, the data in the SYN is ignored. 0 is off.
    pub pending_max: u32,
    /// `TCP_FASTOPEN_NO_COOKIE`: data is accepted even without a cookie.
    pub no_cookie: bool,
    /// `TCP_FASTOPEN_KEY`: keys of this listener's own, instead of the stack's.
    pub keys: Option<FastOpenKeys>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 4_096,
            max_connections: u32::MAX,
            max_per_peer: u32::MAX,
            max_half_open_per_peer: u32::MAX,
            conn: ConnOptions::default(),
            fast_open: FastOpenListen::default(),
        }
    }
}

/// An option and its new value, for an existing connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetOption {
    /// `TCP_NODELAY`. Setting it also flushes the queue, even if corked.
    Nodelay(bool),
    /// `TCP_CORK`. Clearing it flushes.
    Cork(bool),
    /// `TCP_QUICKACK`.
    Quickack(bool),
    /// `TCP_NOTSENT_LOWAT` in bytes; 0 follows the stack's value.
    NotsentLowat(u32),
    /// `SO_SNDBUF` in bytes.
    Sndbuf(u32),
    /// `SO_RCVBUF` in bytes.
    Rcvbuf(u32),
    /// `SO_MAX_PACING_RATE` in bytes per second; `u64::MAX` is no limit.
    MaxPacingRate(u64),
    /// `TCP_TX_DELAY`, 0..=2³¹ − 1 µs: packets depart this much later. Has an effect only on a link that
    /// [paces](crate::LinkCaps::paces); packets that wait there on purpose do not count as a queue.
    TxDelay(Duration),
    /// `TCP_CONGESTION`.
    Congestion(Algorithm),
    /// `SO_KEEPALIVE` and its parameters.
    Keepalive(Option<Keepalive>),
    /// `TCP_USER_TIMEOUT`.
    UserTimeout(Option<Duration>),
    /// `IP_TOS` or `IPV6_TCLASS`: its upper six bits; the lower two are ECN's, and ignored.
    Tos(u8),
}
