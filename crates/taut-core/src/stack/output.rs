//! What a stack gives: events for the application and packets for the link, each when asked.
//! RFC 9293 §3.10 says what leaves, [`conn::output`](crate::conn) decides it; here connections take turns.

use taut_wire::Ecn;

use super::replies::Reply;
use super::{Decided, Stack, StackCx, stack_cx};
use crate::egress::emit;
use crate::words::{ConnId, Event, Gather, Instant, Offload, Output, Transmit, TxTicket};

impl Stack {
    /// News for the application, oldest first.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(listener) = self.incoming.pop_front() {
            return Some(Event::Incoming(listener));
        }
        while let Some(&slot) = self.news.front() {
            let event = self.table.at_mut(slot).and_then(|conn| {
                let id = ConnId { slot, generation: conn.generation };
                let news = &mut conn.news;
                if core::mem::take(&mut news.connected) {
                    Some(Event::Connected(id))
                } else if core::mem::take(&mut news.readable) {
                    Some(Event::Readable(id))
                } else if core::mem::take(&mut news.writable) {
                    Some(Event::Writable(id))
                } else if core::mem::take(&mut news.ended) {
                    Some(conn.error.map_or(Event::Closed(id), |error| Event::Failed(id, error)))
                } else {
                    conn.flags.queued_for_news = false;
                    None
                }
            });
            if event.is_some() {
                return event;
            }
            self.news.pop_front();
        }
        None
    }

    /// The next packet to put on the link. Ask until there is none, or the link is full.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.must_answer = false;
        let decided = self.decide_reply(now).or_else(|| self.decide(now))?;
        self.counters.out_requests += 1;
        let payload = match &decided.conn {
            Some((slot, range)) => {
                self.table.at(*slot).map_or(Gather::EMPTY, |conn| conn.tx.payload(range.clone()))
            }
            None => Gather::EMPTY,
        };
        let header = if decided.is_message {
            self.message.as_slice()
        } else {
            self.header.get(..decided.header_len).unwrap_or_default()
        };
        Some(Transmit {
            header,
            payload,
            offload: decided.offload,
            departure: decided.departure,
            ticket: decided.ticket,
        })
    }

    /// Answers to strangers go first: they are small, few, and nobody paces them.
    fn decide_reply(&mut self, now: Instant) -> Option<Decided> {
        let (header_len, is_message, offload) = match self.replies.pop()? {
            Reply::Tcp { src, dst, header } => {
                self.counters.out_segs += 1;
                let (len, offload) = emit::tcp_packet(
                    &mut self.header,
                    (src, dst, Ecn::NotEct),
                    &header,
                    0,
                    &Gather::EMPTY,
                    0,
                    &self.caps,
                );
                (len, false, offload)
            }
            Reply::Icmp(message) => {
                self.counters.icmp_out_msgs += 1;
                self.message = message;
                (0, true, Offload::None)
            }
        };
        let ticket = TxTicket {
            conn: None,
            truesize: 0,
            start: 0,
            end: 0,
            segs: 1,
            handed: now,
            prior_departure: now,
            output: Output::Ack,
        };
        Some(Decided { conn: None, header_len, is_message, offload, departure: now, ticket })
    }

    /// The next packet of the connections, in turn.
    fn decide(&mut self, now: Instant) -> Option<Decided> {
        loop {
            let slot = self.ready.pop_front()?;
            let Some(conn) = self.table.at_mut(slot) else { continue };
            let mut cx = stack_cx!(self, now);
            let Some(segment) = conn.poll_output(&mut cx) else {
                conn.flags.queued_for_output = false;
                self.settle(now, slot);
                continue;
            };
            self.ready.push_back(slot);
            let len = (segment.payload.end - segment.payload.start) as usize;
            let payload =
                if self.caps.tx_checksum { Gather::EMPTY } else { conn.tx.payload(segment.payload.clone()) };
            let ends = (conn.tuple.local.ip(), conn.tuple.peer.ip(), segment.mark);
            let (header_len, offload) = emit::tcp_packet(
                &mut self.header,
                ends,
                &segment.header,
                len,
                &payload,
                segment.mss,
                &self.caps,
            );
            if matches!(segment.output, Output::Data(crate::words::SendKind::New)) || segment.mss == 0 {
                self.counters.out_segs += u64::from(segment.segs);
            }
            let id = ConnId { slot, generation: conn.generation };
            let ticket = TxTicket {
                conn: Some(id),
                truesize: segment.truesize,
                start: segment.range.start,
                end: segment.range.end,
                segs: u16::try_from(segment.segs).unwrap_or(u16::MAX),
                handed: now,
                prior_departure: segment.prior_departure,
                output: segment.output,
            };
            return Some(Decided {
                conn: Some((slot, segment.payload)),
                header_len,
                is_message: false,
                offload,
                departure: segment.departure,
                ticket,
            });
        }
    }
}
