//! SYNs for a listener: a half-open connection, a cookie, or nothing; and the ACKs that bring cookies back.
//! RFC 9293 §3.10.7.2, RFC 4987; Linux's rules for full queues. Called by `input.rs`.

use taut_wire::TcpHeader;
use taut_wire::tcp::Flags as TcpFlags;

use super::fast_open::Opened;
use super::input::Stray;
use super::replies::Reply;
use super::syn_cookies::{self, SynCookies};
use super::{Stack, stack_cx};
use crate::conn::handshake::Birth;
use crate::conn::{Arrival, Conn, StackCx};
use crate::words::{Instant, ListenerId, Tuple};

impl Stack {
    /// A SYN that belongs to no connection.
    pub(super) fn on_syn(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        listener: ListenerId,
        segment: Stray<'_>,
        min_iss: Option<u32>,
    ) {
        let Arrival { header: syn, mark, .. } = segment.arrival;
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
        if self.table.len() >= self.config.max_connections as usize {
            self.counters.listen_overflows += 1;
            return;
        }
        let cookie = match self.try_fast_open(now, tuple, listener, segment, min_iss) {
            Ok(cookie) => cookie,
            Err(Opened) => return,
        };
        if is_full {
            self.drop_oldest_half_open(now, listener);
        }
        let Some(entry) = self.listeners.get_mut(listener) else { return };
        entry.begin(tuple.peer.ip());
        let options = entry.options.conn.clone();
        let id = self.open(now, *tuple, min_iss, &options, |cx, birth| {
            let mut conn = Conn::passive(cx, birth, listener, syn, mark);
            if let Some(option) = cookie {
                conn.give_cookie(option);
            }
            conn
        });
        let Self { listeners, table, .. } = self;
        if let Some(entry) = listeners.get_mut(listener) {
            entry.by_age.push_back(id);
            if entry.by_age.len() > 2 * entry.half_open as usize + 64 {
                entry.by_age.retain(|&id| table.get(id).is_some_and(|conn| conn.flags.half_open));
            }
        }
    }

    /// Whoever has waited longest for the end of its handshake gives way.
    fn drop_oldest_half_open(&mut self, now: Instant, listener: ListenerId) {
        while let Some(id) = self.listeners.get_mut(listener).and_then(|entry| entry.by_age.pop_front()) {
            if self.table.get(id).is_some_and(|conn| conn.flags.half_open) {
                self.counters.req_q_full_drop += 1;
                self.with(now, id.slot, Conn::give_way);
                return;
            }
        }
    }

    /// Answers a SYN and forgets it.
    fn send_cookie(&mut self, now: Instant, tuple: &Tuple, listener: ListenerId, syn: &TcpHeader) {
        let Some(entry) = self.listeners.get(listener) else { return };
        let birth = Birth {
            tuple: *tuple,
            generation: 0,
            options: &entry.options.conn,
            isn: syn_cookies::number(&self.secrets, now, tuple, syn),
            timestamp_offset: self.secrets.timestamp_offset(tuple),
        };
        let syn = syn_cookies::remembered(syn, self.config.tcp.timestamps);
        let mut header = Conn::syn_ack(&mut stack_cx!(self, now), &birth, listener, &syn);
        if let Some(timestamps) = &mut header.options.timestamps {
            timestamps.value = syn_cookies::timestamp(timestamps.value, &syn);
        }
        if self.replies.push(Reply::Tcp { src: tuple.local.ip(), dst: tuple.peer.ip(), header }) {
            self.counters.syncookies_sent += 1;
        }
    }

    /// An ACK at a listener, without a connection: if it brings back a cookie, the connection exists from now on, half-open,
    /// and the ACK must be handed to it. Returns false when the ACK is none of a cookie.
    pub(super) fn revive(&mut self, now: Instant, tuple: &Tuple, ack: &TcpHeader) -> bool {
        let cookies = self.config.tcp.syncookies;
        let Some(listener) = self.listeners.find(tuple.local) else { return false };
        let Some(entry) = self.listeners.get_mut(listener) else { return false };
        let may_be_one = entry.has_sent_cookies(now) && cookies != SynCookies::Off;
        if !may_be_one || ack.flags.contains(TcpFlags::SYN) || ack.flags.contains(TcpFlags::RST) {
            return false;
        }
        let Some(syn) = syn_cookies::syn_of(&self.secrets, now, tuple, ack) else {
            self.counters.syncookies_failed += 1;
            return false;
        };
        self.counters.syncookies_recv += 1;
        if !entry.may_be_ready() || self.table.len() >= self.config.max_connections as usize {
            // The peer thinks that the connection is open. It will repeat what it sends next, and there may be room then.
            self.counters.listen_overflows += 1;
            return true;
        }
        if !entry.allows(tuple.peer.ip()) {
            self.counters.listen_capped += 1;
            return true;
        }
        entry.begin(tuple.peer.ip());
        let options = entry.options.conn.clone();
        let isn = ack.ack.wrapping_sub(1);
        self.open(now, *tuple, Some(isn), &options, |cx, birth| Conn::revived(cx, birth, listener, &syn));
        true
    }
}
