//! SYNs for a listener: a half-open connection, a cookie, or nothing; and the ACKs that bring cookies back.
//! RFC 9293 §3.10.7.2, RFC 4987; Linux's rules for full queues. Called by `input.rs`.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn, TcpHeader};

use super::fast_open::Opened;
use super::syn_cookies;
use crate::conn::half_open::HalfOpen;
use crate::conn::handshake::Birth;
use crate::conn::{Arrival, StackCx};
use crate::settings::config::SynCookies;
use crate::stack::input::Stray;
use crate::stack::replies::Reply;
use crate::stack::{Stack, stack_cx};
use crate::words::{Instant, ListenerId, Tuple};

impl Stack {
    /// A SYN that belongs to no connection.
    pub(in crate::stack) fn on_syn(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        listener: ListenerId,
        segment: Stray<'_>,
        min_iss: Option<u32>,
    ) {
        let Arrival { header: syn, mark, .. } = segment.arrival;
        if self.tables.flows.filter(listener).is_some() {
            if self.on_flow_syn(now, tuple, listener, (syn, mark), min_iss) {
                self.send_cookie(now, tuple, listener, syn);
            }
            return;
        }
        let Some(entry) = self.listeners.get_mut(listener) else { return };
        if !entry.may_be_ready() {
            self.counters.listen_overflows += 1;
            return;
        }
        if !entry.allows(tuple.peer.ip()) {
            self.counters.listen_capped += 1;
            return;
        }
        let cookies = self.config.tcp.syncookies;
        let is_full = !entry.may_be_half_open();
        if cookies == SynCookies::Always || (is_full && cookies == SynCookies::WhenFull) {
            entry.cookie_at = Some(now);
            return self.send_cookie(now, tuple, listener, syn);
        }
        if self.is_full() {
            self.counters.listen_overflows += 1;
            return;
        }
        let cookie = match self.try_fast_open(now, tuple, listener, segment, min_iss) {
            Ok(cookie) => cookie,
            Err(Opened) => return,
        };
        if is_full {
            self.drop_oldest_half_open(listener);
        }
        let Some(entry) = self.listeners.get(listener) else { return };
        let birth = Birth {
            tuple: *tuple,
            generation: self.tables.half_open.next_id().generation,
            options: &entry.options.conn,
            isn: min_iss.unwrap_or_else(|| self.secrets.isn(tuple, now)),
            timestamp_offset: self.secrets.timestamp_offset(tuple),
            born: now,
        };
        let mut half_open = HalfOpen::new(&stack_cx!(self, now), &birth, listener, syn, mark);
        half_open.gives_cookie = cookie.map(|option| option.experimental);
        self.begin_half_open(half_open);
    }

    /// Drops the oldest half-open connection to make room.
    fn drop_oldest_half_open(&mut self, listener: ListenerId) {
        while let Some(id) = self.listeners.get_mut(listener).and_then(|entry| entry.by_age.pop_front()) {
            let oldest = self.tables.half_open.find(id).map(|(slot, _)| slot);
            if let Some(slot) = oldest {
                self.counters.req_q_full_drop += 1;
                return self.drop_half_open(slot);
            }
        }
    }

    /// Answers a SYN and forgets it.
    pub(crate) fn send_cookie(&mut self, now: Instant, tuple: &Tuple, listener: ListenerId, syn: &TcpHeader) {
        let Some(entry) = self.listeners.get(listener) else { return };
        let birth = Birth {
            tuple: *tuple,
            generation: 0,
            options: &entry.options.conn,
            isn: syn_cookies::number(&self.secrets, now, tuple, syn),
            timestamp_offset: self.secrets.timestamp_offset(tuple),
            born: now,
        };
        let syn = syn_cookies::remembered(syn, self.config.tcp.timestamps);
        let cx = stack_cx!(self, now);
        let (mut header, _) = HalfOpen::new(&cx, &birth, listener, &syn, Ecn::NotEct).syn_ack(&cx);
        if let Some(timestamps) = &mut header.options.timestamps {
            timestamps.value = syn_cookies::timestamp(timestamps.value, &syn);
        }
        if self.replies.push(Reply::Tcp { src: tuple.local.ip(), dst: tuple.peer.ip(), header }) {
            self.counters.syncookies_sent += 1;
        }
    }

    /// An ACK at a listener, without a connection: if it brings back a cookie, the connection exists from now
    /// on, half-open, and the ACK must be handed to it. Returns false when the ACK is none of a cookie.
    pub(crate) fn revive(&mut self, now: Instant, tuple: &Tuple, ack: &TcpHeader) -> bool {
        let cookies = self.config.tcp.syncookies;
        let Some(listener) = self.taker(tuple.local) else { return false };
        let Some(entry) = self.listeners.get(listener) else { return false };
        let may_be_one = entry.has_sent_cookies(now) && cookies != SynCookies::Off;
        if !may_be_one || ack.flags.contains(TcpFlags::SYN) || ack.flags.contains(TcpFlags::RST) {
            return false;
        }
        let Some(syn) = syn_cookies::syn_of(&self.secrets, now, tuple, ack) else {
            self.counters.syncookies_failed += 1;
            return false;
        };
        self.counters.syncookies_recv += 1;
        if !entry.may_be_ready() || self.is_full() {
            // The peer thinks that the connection is open. It will repeat what it sends next, and there may
            // be room then.
            self.counters.listen_overflows += 1;
            return true;
        }
        if !entry.allows(tuple.peer.ip()) {
            self.counters.listen_capped += 1;
            return true;
        }
        let birth = Birth {
            tuple: *tuple,
            generation: self.tables.half_open.next_id().generation,
            options: &entry.options.conn,
            isn: ack.ack.wrapping_sub(1),
            timestamp_offset: self.secrets.timestamp_offset(tuple),
            born: now,
        };
        let half_open = HalfOpen::revived(&stack_cx!(self, now), &birth, listener, &syn);
        self.begin_half_open(half_open);
        true
    }
}
