//! TCP Fast Open in a stack: how a connection to a server begins, whether a SYN opens a connection at once,
//! and what both teach. RFC 7413 §4.2, with the rules of Linux 6.18. Called by `open.rs`, `passive.rs`,
//! `input.rs` and `lifecycle.rs`; the pages under [`fast_open`](crate::fast_open) have the picture.

use core::net::IpAddr;

use taut_wire::{FastOpen, TcpHeader};

use crate::conn::{Arrival, Conn};
use crate::fast_open::Known;
use crate::settings::options::ConnOptions;
use crate::stack::Stack;
use crate::stack::input::Stray;
use crate::words::{ConnId, Instant, ListenerId, Tuple};

/// What a listener does with a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// An ordinary handshake; its SYN-ACK may carry a cookie.
    Ordinary(Option<FastOpen>),
    /// The connection is open; its SYN-ACK may carry a new cookie.
    Open(Option<FastOpen>),
}

impl Stack {
    // ---- client ----

    /// A connection was made, and its SYN has not left.
    pub(crate) fn begin_fast_open(&mut self, now: Instant, id: ConnId, options: &ConnOptions) {
        let Some(conn) = self.tables.conns.get(id) else { return };
        let pair = (conn.tuple.local.ip(), conn.tuple.peer.ip());
        let attempt = self.fast_open.attempt(now, &self.config.fast_open, options.fast_open_no_cookie, pair);
        self.with(now, id.slot, |conn, _| conn.attempt_fast_open(attempt));
    }

    /// A SYN-ACK acknowledged a connection's SYN: notes what it says about the server (RFC 7413 §4.2.1).
    pub(crate) fn learn_fast_open(&mut self, slot: u32, syn: &TcpHeader, option: Option<FastOpen>) {
        let Some(conn) = self.tables.conns.at(slot) else { return };
        let pair = (conn.tuple.local.ip(), conn.tuple.peer.ip());
        if let Some(lesson) = conn.fast_open_lesson(option, syn.options.mss) {
            self.fast_open.learn(pair, &lesson);
        }
    }

    /// A connection suspects that its path drops data in SYNs, or what follows them.
    pub(crate) fn note_black_hole(&mut self, now: Instant) {
        let timeout = self.config.fast_open.black_hole_timeout;
        self.counters.tcp_fast_open_blackhole += u64::from(self.fast_open.note_black_hole(now, timeout));
    }

    // ---- server ----

    /// A SYN for which there is room. If it opens a connection at once, there is nothing left to do, and the
    /// answer is `Err`. Else an ordinary handshake follows, whose SYN-ACK carries the option that is
    /// returned.
    pub(in crate::stack) fn try_fast_open(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        listener: ListenerId,
        segment: Stray<'_>,
        min_iss: Option<u32>,
    ) -> Result<Option<FastOpen>, Opened> {
        let asks = segment.option.is_some_and(|option| option.cookie.is_none());
        self.counters.tcp_fast_open_cookie_reqd += u64::from(asks);
        let option = match self.judge_syn(now, tuple, listener, &segment) {
            Verdict::Ordinary(option) => return Ok(option),
            Verdict::Open(option) => option,
        };
        let Some(entry) = self.listeners.get_mut(listener) else { return Ok(None) };
        entry.pending.begin();
        entry.counts.add(&entry.options, tuple.peer.ip());
        let options = entry.options.conn.clone();
        let Arrival { header, mark, payload, gso_size } = segment.arrival;
        let id = self.open(now, *tuple, min_iss, &options, |cx, birth| {
            let mut conn = Conn::early(cx, birth, listener, header, mark);
            conn.open_early(cx, option, payload, gso_size);
            conn
        });
        self.counters.tcp_fast_open_passive += 1;
        self.offer(listener, id);
        Err(Opened)
    }

    fn judge_syn(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        listener: ListenerId,
        segment: &Stray<'_>,
    ) -> Verdict {
        let config = &self.config.fast_open;
        let Some(entry) = self.listeners.get_mut(listener) else { return Verdict::Ordinary(None) };
        let own = entry.options.fast_open;
        let limit = match own.pending_max {
            0 if config.all_listeners => entry.options.backlog,
            limit => limit,
        };
        let is_wanted = segment.option.is_some() || !segment.arrival.payload.is_empty();
        if !config.server || !is_wanted || limit == 0 {
            return Verdict::Ordinary(None);
        }
        if !entry.pending.has_room(now, limit) {
            self.counters.tcp_fast_open_listen_overflow += 1;
            return Verdict::Ordinary(None);
        }
        if own.no_cookie || config.server_no_cookie {
            return Verdict::Open(None);
        }
        let Some(FastOpen { cookie, experimental }) = segment.option else { return Verdict::Ordinary(None) };
        let keys = own.keys.or(config.keys).unwrap_or(self.fast_open_keys);
        let (client, server) = (tuple.peer.ip(), tuple.local.ip());
        let new = Some(FastOpen { cookie: keys.cookie(client, server), experimental });
        let known = cookie.map(|cookie| keys.check(&cookie, client, server));
        match known {
            None => Verdict::Ordinary(new),
            Some(Known::Primary) => Verdict::Open(None),
            Some(Known::Backup) => {
                self.counters.tcp_fast_open_passive_alt_key += 1;
                Verdict::Open(new)
            }
            Some(Known::No) => {
                self.counters.tcp_fast_open_passive_fail += 1;
                Verdict::Ordinary(new)
            }
        }
    }

    /// The option of a SYN-ACK that gives the client a cookie.
    pub(crate) fn cookie_for(&self, listener: ListenerId, tuple: &Tuple, experimental: bool) -> FastOpen {
        let own = self.listeners.get(listener).and_then(|entry| entry.options.fast_open.keys);
        let keys = own.or(self.config.fast_open.keys).unwrap_or(self.fast_open_keys);
        FastOpen { cookie: keys.cookie(tuple.peer.ip(), tuple.local.ip()), experimental }
    }

    /// The handshake of a connection that a SYN opened ended, in success or failure.
    pub(crate) fn leave_pending(
        &mut self,
        now: Instant,
        listener: Option<ListenerId>,
        peer: IpAddr,
        reset: bool,
    ) {
        if listener.is_some_and(|listener| self.leave_accepted(listener, peer)) {
            return;
        }
        if let Some(entry) = listener.and_then(|listener| self.listeners.get_mut(listener)) {
            entry.counts.leave_half_open(peer);
            entry.pending.end(now, reset);
        }
    }
}

/// A SYN opened a connection at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened;
