//! A stack's output: events for the application and packets for the link, each on request. RFC 9293 §3.10.
//! [`conn::output`](crate::conn) decides what a connection sends; this file serves connections round robin.

use super::replies::Reply;
use super::tables::demux::{DATAGRAM_BIT, HALF_OPEN_BIT};
use super::{News, Stack, StackCx, stack_cx};
use crate::conn::output::Segment;
use crate::egress::emit;
use crate::ip::outgoing::IpOut;
use crate::words::{
    ConnId, Event, Fate, Gather, Instant, Offload, Output, SendKind, Transmit, TxPacket, TxTicket,
};

/// What leaves next, and the slot of its connection.
enum Next {
    Segment(u32, Segment),
    /// Of a half-open connection.
    SynAck(u32),
    /// Of a datagram socket.
    Datagram(u32),
}

impl Stack {
    /// News for the application, oldest first.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(news) = self.incoming.pop_front() {
            match news {
                News::Listener(listener) => return Some(Event::Incoming(listener)),
                News::Flow(flow) => return Some(Event::FlowGone(flow)),
                News::Group => {
                    let event = self.group_event();
                    if event.is_some() {
                        return event;
                    }
                }
                News::Datagram(slot) => {
                    let event = self.datagram_event(slot);
                    if event.is_some() {
                        return event;
                    }
                }
            }
        }
        while let Some(&slot) = self.news.front() {
            let event = self.tables.conns.at_mut(slot).and_then(|conn| {
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
        // Replies that belong to no connection go first: they are small, few, and not paced.
        if let Some(reply) = self.replies.pop() {
            return Some(self.transmit_reply(now, reply));
        }
        let (slot, segment) = match self.next_segment(now)? {
            Next::Segment(slot, segment) => (slot, segment),
            Next::SynAck(slot) => return self.transmit_syn_ack(now, slot),
            Next::Datagram(slot) => return self.transmit_datagram(now, slot),
        };
        if segment.payload.end - segment.payload.start > emit::ALWAYS_FITS && !self.fits(slot, &segment) {
            return self.lose(now, slot, segment.ticket);
        }
        let conn = self.tables.conns.at(slot)?;
        let Segment { header, mark, payload, mss, departure, mut ticket } = segment;
        self.counters.out_requests += 1;
        if ticket.output == Output::Data(SendKind::New) || mss == 0 {
            self.counters.out_segs += u64::from(ticket.segs);
        }
        ticket.conn = Some(ConnId { slot, generation: conn.generation });
        let payload = conn.tx.payload(payload);
        let (src, dst) = (conn.tuple.local.ip(), conn.tuple.peer.ip());
        let ip = IpOut::tcp(src, dst, self.config.ip_default_ttl, conn.tos() | mark.to_bits());
        let (header_len, offload) = if ticket.output == Output::Syn {
            emit::syn_packet(&mut self.header, &ip, header, conn.syn_option(), &payload, &self.caps)
        } else {
            emit::tcp_packet(&mut self.header, &ip, &header, &payload, mss, &self.caps)
        };
        let header = self.header.get(..header_len).unwrap_or_default();
        Some(Transmit { packet: TxPacket { header, payload, offload, departure }, ticket })
    }

    fn transmit_reply(&mut self, now: Instant, reply: Reply) -> Transmit<'_> {
        self.counters.out_requests += 1;
        let mut ticket = TxTicket::blank();
        let (header, offload) = match reply {
            Reply::Tcp { src, dst, header } => {
                self.counters.out_segs += 1;
                let ip = IpOut::tcp(src, dst, self.config.ip_default_ttl, 0);
                let (len, offload) =
                    emit::tcp_packet(&mut self.header, &ip, &header, &Gather::EMPTY, 0, &self.caps);
                (self.header.get(..len).unwrap_or_default(), offload)
            }
            Reply::Icmp(message) => {
                self.counters.icmp_out_msgs += 1;
                self.message = message;
                ticket = self.datagrams.message_ticket(now);
                (self.message.as_slice(), Offload::None)
            }
        };
        let packet = TxPacket { header, payload: Gather::EMPTY, offload, departure: now };
        Transmit { packet, ticket }
    }

    /// Whether a header can say how long the packet would be.
    #[cold]
    fn fits(&self, slot: u32, segment: &Segment) -> bool {
        let payload = segment.payload.end - segment.payload.start;
        self.tables
            .conns
            .at(slot)
            .is_none_or(|conn| emit::fits(conn.tuple.local.ip(), &segment.header, payload))
    }

    /// No gate lets a packet pass that is longer than its header can say. If one did, it is lost here, rather
    /// than be a packet of another length.
    #[cold]
    fn lose(&mut self, now: Instant, slot: u32, mut ticket: TxTicket) -> Option<Transmit<'_>> {
        self.counters.out_too_long += 1;
        let generation = self.tables.conns.at(slot)?.generation;
        ticket.conn = Some(ConnId { slot, generation });
        self.handle_tx(now, ticket, Fate::Left);
        self.poll_transmit(now)
    }

    /// The next segment, from the connections round robin.
    fn next_segment(&mut self, now: Instant) -> Option<Next> {
        loop {
            let (slot, is_turn) = match self.ready.pop_front() {
                Some(slot) => (slot, false),
                None => (self.next_turn()?, true),
            };
            if slot & (DATAGRAM_BIT | HALF_OPEN_BIT) != 0 {
                if slot & DATAGRAM_BIT != 0 {
                    let slot = slot & !DATAGRAM_BIT;
                    if self.next_datagram(now, slot) {
                        return Some(Next::Datagram(slot));
                    }
                    continue;
                }
                let slot = slot & !HALF_OPEN_BIT;
                if self.wants_syn_ack(slot) {
                    return Some(Next::SynAck(slot));
                }
                continue;
            }
            let Some(conn) = self.tables.conns.at_mut(slot) else { continue };
            if let Some(segment) = conn.poll_output(&mut stack_cx!(self, now)) {
                self.ready.push_back(slot);
                return Some(Next::Segment(slot, segment));
            }
            conn.flags.queued_for_output = false;
            if conn.tx.joins_line() {
                let id = ConnId { slot, generation: conn.generation };
                if is_turn { self.line.push_front(id) } else { self.line.push_back(id) }
            }
            self.settle(now, slot);
        }
    }

    /// Completions may be measured no more: then nobody waits for those of others, which may never come back.
    pub(super) fn end_line_unless_measured(&mut self) {
        if self.config.send.tsq.measures(&self.caps) {
            return;
        }
        while let Some(id) = self.line.pop_front() {
            if let Some(conn) = self.tables.conns.get_mut(id)
                && conn.tx.take_turn(&mut self.shared)
                && !core::mem::replace(&mut conn.flags.queued_for_output, true)
            {
                self.ready.push_back(id.slot);
            }
        }
    }

    /// The slot of the first connection in the line for the device, if that may have room; it is in the line
    /// no more.
    fn next_turn(&mut self) -> Option<u32> {
        while self.shared.meter.is_open() {
            let id = self.line.pop_front()?;
            if let Some(conn) = self.tables.conns.get_mut(id)
                && conn.tx.take_turn(&mut self.shared)
            {
                conn.flags.queued_for_output = true;
                return Some(id.slot);
            }
        }
        None
    }
}
