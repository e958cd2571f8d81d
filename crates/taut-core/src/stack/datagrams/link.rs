//! Datagram sockets and the link: what arrives for them, what they hand out, and what becomes of it. RFC 768,
//! RFC 1122 §4.1, RFC 8200 §8.1; Linux: `__udp4_lib_rcv`, `udp_send_skb`. Called by `input.rs` and
//! `output.rs`.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::udp::{self, UdpHeader};
use taut_wire::{IpHeader, Quoted, protocol, raw};

use super::NO_SOCKET;
use super::flows::Receiver;
use super::sockets::HEADERS_MAX;
use crate::datagram::inbox::Incoming;
use crate::datagram::outbox::{Form, Leaving, Outgoing};
use crate::datagram::{DatagramKind, IcmpReport, told};
use crate::egress::emit::HEADER_MAX;
use crate::ip::outgoing::IpOut;
use crate::stack::incoming::FlowKind;
use crate::stack::input::head;
use crate::stack::replies::Reply;
use crate::stack::tables::demux::DATAGRAM_BIT;
use crate::stack::{News, Stack};
use crate::words::{
    ConnId, DatagramId, Endpoint, Event, Fate, Frame, Gather, Instant, LinkCaps, Offload, Output, RxChecksum,
    RxPacket, Transmit, Tuple, TxPacket, TxTicket,
};

/// A datagram of UDP, verified.
pub(super) struct UdpIn<'p> {
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    /// Its header and what follows it there, and the rest of its payload.
    start: &'p [u8],
    rest: &'p [&'p [u8]],
    /// Of the payload.
    len: usize,
    class_and_hops: (u8, u8),
}

impl UdpIn<'_> {
    pub(super) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.len);
        payload.extend_from_slice(self.start.get(udp::HEADER_LEN..).unwrap_or_default());
        self.rest.iter().for_each(|piece| payload.extend_from_slice(piece));
        payload.truncate(self.len);
        payload
    }

    pub(super) const fn incoming(&self, bytes: Vec<u8>, segment: u16) -> Incoming {
        let (class, hops) = self.class_and_hops;
        Incoming { bytes, from: self.from, to: self.to.ip(), class, hops, segment }
    }
}

impl Stack {
    // ---- what arrives ----

    #[inline(never)]
    pub(crate) fn on_udp(&mut self, now: Instant, ip: &IpHeader, packet: &RxPacket<'_>) {
        if self.is_forged(ip.src) {
            return;
        }
        let Some(udp) = self.udp_in(ip, packet) else { return };
        let segments = raw::segs(udp.len, packet.gso_size.into()) as u64;
        self.count_marks(ip.ecn, segments);
        let tuple = Tuple { local: udp.to, peer: udp.from };
        let slot = match self.receiver(now, FlowKind::Udp, &tuple, udp.len) {
            Receiver::Socket(slot) => slot,
            Receiver::Dropped => return,
            Receiver::Nobody => {
                self.counters.udp_no_ports += segments;
                let (bytes, _) = head(&packet.frame);
                self.unreachable(now, ip, taut_wire::Unreachable::Port, bytes, udp.rest);
                return;
            }
        };
        let socket = self.datagrams.table.at(slot);
        let gro = socket.is_some_and(|socket| socket.options.gro);
        let quote = socket.filter(|socket| socket.flow.is_some()).map(|_| quote_of(udp.start, packet));
        let size = usize::from(packet.gso_size);
        let payload = udp.payload();
        if size == 0 || gro {
            self.deliver_udp((now, slot), udp.incoming(payload, packet.gso_size), segments, quote);
        } else {
            for piece in payload.chunks(size) {
                self.deliver_udp((now, slot), udp.incoming(piece.to_vec(), 0), 1, quote);
            }
        }
    }

    /// Parses and verifies a datagram, and counts one that is not what its sender sent.
    pub(super) fn udp_in<'p>(&mut self, ip: &IpHeader, packet: &'p RxPacket<'_>) -> Option<UdpIn<'p>> {
        let (bytes, _) = head(&packet.frame);
        let start = bytes.get(ip.header_len..).unwrap_or_default();
        let start = start.get(..ip.payload_len).unwrap_or(start);
        let Ok(header) = UdpHeader::parse(start, ip.payload_len) else {
            self.counters.udp_in_errors += 1;
            return None;
        };
        let rest: &[&[u8]] = match &packet.frame {
            Frame::Gather { payload, .. } => payload.slices(),
            Frame::Slice(_) | Frame::Lend { .. } => &[],
        };
        // Behind the datagram is padding, which its checksum does not cover.
        let start = start.get(..usize::from(header.len)).unwrap_or(start);
        if packet.checksum == RxChecksum::Unverified && !udp::verify(ip.src, ip.dst, start, rest) {
            self.counters.udp_in_csum_errors += 1;
            self.counters.udp_in_errors += 1;
            return None;
        }
        let from = Endpoint::new(ip.src, header.src_port);
        let to = Endpoint::new(ip.dst, header.dst_port);
        let len = usize::from(header.len) - udp::HEADER_LEN;
        Some(UdpIn { from, to, start, rest, len, class_and_hops: raw::class_and_hops(bytes) })
    }

    pub(super) fn deliver_udp(
        &mut self,
        (now, slot): (Instant, u32),
        incoming: Incoming,
        datagrams: u64,
        quote: Option<[u8; 8]>,
    ) {
        let taken = match quote {
            None => self.deliver(slot, incoming),
            Some(quote) => self.deliver_to_flow(now, slot, incoming, quote),
        };
        if taken {
            self.counters.udp_in_datagrams += datagrams;
        } else {
            self.counters.udp_in_errors += datagrams;
            self.counters.udp_rcvbuf_errors += datagrams;
        }
    }

    /// Returns whether there was room.
    fn deliver(&mut self, slot: u32, incoming: Incoming) -> bool {
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return false };
        if !socket.inbox.has_room() {
            return false;
        }
        socket.inbox.push(incoming);
        socket.news.readable = true;
        self.tell(slot);
        true
    }

    /// The answer to a ping of ours: `message` is all of it.
    pub(crate) fn on_echo_reply(&mut self, ip: &IpHeader, packet: &[u8], message: &[u8], ident: u16) {
        self.counters.icmp_in_echo_reps += 1;
        let (local, from) = (Endpoint::new(ip.dst, ident), Endpoint::new(ip.src, 0));
        let Some(slot) = self.datagrams.table.find(DatagramKind::Ping, local, from) else { return };
        self.deliver(slot, echo_in(ip, packet, message));
    }

    /// A ping that this host does not answer by itself: a filter may take it.
    #[cold]
    pub(crate) fn on_echo_flow(
        &mut self,
        now: Instant,
        ip: &IpHeader,
        packet: &[u8],
        message: &[u8],
        ident: u16,
    ) {
        let tuple = Tuple { local: Endpoint::new(ip.dst, ident), peer: Endpoint::new(ip.src, 0) };
        let Receiver::Socket(slot) = self.receiver(now, FlowKind::Echo, &tuple, message.len()) else {
            return;
        };
        let quote = message.first_chunk().copied().unwrap_or_default();
        self.deliver_to_flow(now, slot, echo_in(ip, packet, message), quote);
    }

    /// An ICMP error about a packet that no connection sent. `message` is all of it.
    #[cold]
    pub(crate) fn on_datagram_error(&mut self, now: Instant, ip: &IpHeader, message: &[u8], mtu: u32) {
        if !cfg!(any(feature = "udp", feature = "icmp")) {
            return;
        }
        let [kind, code, ..] = *message else { return };
        let Some(told) = told(ip.src.is_ipv4(), kind, code) else { return };
        let quoted = message.get(8..).unwrap_or_default();
        let Ok(Quoted { src, dst, protocol: upper, seq }) = Quoted::parse(quoted) else { return };
        let found = match upper {
            protocol::UDP => self.datagrams.table.find(DatagramKind::Udp, src.into(), dst.into()),
            // The identifier is in the second word of an echo request.
            protocol::ICMP | protocol::ICMPV6 => {
                let local = Endpoint::new(src.ip(), (seq >> 16) as u16);
                self.datagrams.table.find(DatagramKind::Ping, local, Endpoint::new(dst.ip(), 0))
            }
            _ => None,
        };
        let Some(slot) = found else { return };
        // Nothing was sent on a flow that is not decided.
        if self.datagrams.table.at(slot).is_none_or(|socket| !socket.is_held()) {
            return;
        }
        if mtu > 0 || told.error == crate::DatagramError::TooLong {
            self.datagrams.paths.lower(now, dst.ip(), mtu, self.caps.mtu);
        }
        let report = IcmpReport { error: told.error, router: ip.src, kind, code, to: dst, mtu };
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return };
        if socket.on_icmp(told, report) {
            socket.news.readable = true;
            socket.news.writable = true;
            self.tell(slot);
        }
    }

    // ---- what leaves ----

    /// Takes the next packet of a socket whose turn it is; returns whether there is one. A turn is as many
    /// bytes as a super-packet may have, so that small datagrams get as much of the link as a connection
    /// does.
    #[cold]
    pub(crate) fn next_datagram(&mut self, now: Instant, slot: u32) -> bool {
        let paces = self.caps.paces;
        let turn = self.caps.gso_max_bytes.max(self.caps.mtu.into());
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return false };
        if socket.outbox.due().is_none_or(|due| due > now && !paces) {
            socket.is_ready = false;
            socket.turn_bytes = 0;
            self.make_ready(now, slot);
            return false;
        }
        if socket.turn_bytes == 0 {
            socket.turn_bytes = turn;
        }
        let Some(next) = socket.outbox.pop(now) else { return false };
        socket.turn_bytes = socket.turn_bytes.saturating_sub(next.outgoing.truesize());
        if socket.outbox.is_empty() {
            socket.is_ready = false;
            socket.turn_bytes = 0;
        } else if socket.turn_bytes == 0 {
            self.ready.push_back(slot | DATAGRAM_BIT);
        } else {
            self.ready.push_front(slot | DATAGRAM_BIT);
        }
        self.datagrams.leaving = Some(next);
        self.datagrams.leaving_serial += 1;
        true
    }

    /// Hands out the packet that [`next_datagram`](Self::next_datagram) took.
    #[cold]
    pub(crate) fn transmit_datagram(&mut self, now: Instant, slot: u32) -> Option<Transmit<'_>> {
        let generation = self.datagrams.table.at(slot)?.generation;
        self.counters.out_requests += 1;
        let Self { datagrams, header, caps, .. } = self;
        let Leaving { outgoing, departure, prior } = datagrams.leaving.as_ref()?;
        let (len, offload) = datagram_headers(header, caps, outgoing);
        let ticket = TxTicket {
            conn: Some(ConnId { slot: slot | DATAGRAM_BIT, generation }),
            truesize: outgoing.truesize(),
            start: datagrams.leaving_serial,
            segs: outgoing.segs(),
            handed: now,
            prior_departure: *prior,
            output: Output::Datagram,
            ..TxTicket::blank()
        };
        let mut payload = Gather::EMPTY;
        let bytes = outgoing.memory.bytes().get(outgoing.range.clone()).unwrap_or_default();
        payload.push_of(bytes, Some(&outgoing.memory));
        let header = header.get(..len).unwrap_or_default();
        Some(Transmit { packet: TxPacket { header, payload, offload, departure: *departure }, ticket })
    }

    /// A ticket of a datagram socket came back.
    #[cold]
    pub(crate) fn on_datagram_fate(&mut self, now: Instant, ticket: &TxTicket, fate: Fate) {
        let Some(ConnId { slot, generation }) = ticket.conn else { return };
        if slot == NO_SOCKET {
            if fate == Fate::Refused && ticket.start == self.datagrams.leaving_serial {
                self.counters.out_requests -= 1;
                self.counters.icmp_out_msgs -= 1;
                self.replies.put_back(Reply::Icmp(core::mem::take(&mut self.message)));
            }
            return;
        }
        let id = DatagramId { slot: slot & !DATAGRAM_BIT, generation };
        let leaving =
            if ticket.start == self.datagrams.leaving_serial { self.datagrams.leaving.take() } else { None };
        let Some(socket) = self.datagrams.table.get_mut(id) else { return };
        match (fate, leaving) {
            (Fate::Refused, Some(leaving)) => {
                self.counters.out_requests -= 1;
                socket.outbox.put_back(leaving);
                return self.make_ready(now, id.slot);
            }
            (Fate::Dropped, _) => {
                self.counters.out_discards += 1;
                self.counters.udp_sndbuf_errors += u64::from(socket.kind == DatagramKind::Udp);
            }
            _ => {}
        }
        let has_room = self.datagrams.outbox(id, |outbox| outbox.release(ticket.truesize));
        if has_room == Some(true)
            && let Some(socket) = self.datagrams.table.get_mut(id)
        {
            socket.news.writable = true;
            self.tell(id.slot);
        }
    }

    // ---- news and time ----

    /// The next event of a socket that is at the front of the list.
    #[cold]
    pub(crate) fn datagram_event(&mut self, slot: u32) -> Option<Event> {
        let socket = self.datagrams.table.at_mut(slot)?;
        let id = DatagramId { slot, generation: socket.generation };
        let event = if core::mem::take(&mut socket.news.readable) {
            Some(Event::DatagramReadable(id))
        } else if core::mem::take(&mut socket.news.writable) {
            Some(Event::DatagramWritable(id))
        } else {
            None
        };
        if socket.news.readable || socket.news.writable {
            self.incoming.push_front(News::Datagram(slot));
        } else {
            socket.news.is_queued = false;
        }
        event
    }

    /// Sockets whose time to send has come.
    #[cold]
    pub(crate) fn on_side_timeouts(&mut self, now: Instant) {
        while let Some(&(due, slot)) = self.datagrams.departures.first() {
            if due > now {
                break;
            }
            self.datagrams.departures.pop_first();
            self.make_ready(now, slot);
        }
        self.on_fragment_timeouts(now);
        self.on_idle_flows(now);
        self.update_side_deadline();
    }

    /// After a change of what `poll_timeout` must know of datagram sockets and fragments.
    pub(crate) fn update_side_deadline(&mut self) {
        let departure = self.datagrams.departures.first().map(|&(due, _)| due);
        let fragments = self.datagrams.reassembly.next_deadline(&self.config.fragments);
        let idle = self.datagrams.idle.first().map(|&(at, _)| at);
        self.side_deadline =
            departure.into_iter().chain(fragments).chain(idle).min().unwrap_or(Instant::NEVER);
    }

    /// Whether an address is one to which an error may be sent (RFC 1122 §3.2.2).
    pub(crate) fn may_be_told(ip: IpAddr) -> bool {
        !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback())
    }
}

/// An echo request or its reply.
fn echo_in(ip: &IpHeader, packet: &[u8], message: &[u8]) -> Incoming {
    let (class, hops) = raw::class_and_hops(packet);
    let from = Endpoint::new(ip.src, 0);
    Incoming { bytes: message.to_vec(), from, to: ip.dst, class, hops, segment: 0 }
}

/// What an error about a datagram of a flow quotes: its header.
fn quote_of(datagram: &[u8], packet: &RxPacket<'_>) -> [u8; 8] {
    let mut quote: [u8; 8] = datagram.first_chunk().copied().unwrap_or_default();
    if packet.gso_size > 0 || packet.checksum != RxChecksum::Unverified {
        // It is not the checksum that a single datagram has on a wire.
        quote[6..].fill(0);
    }
    quote
}

/// Writes the headers of a packet; returns their length, and what is left to the device.
fn datagram_headers(header: &mut [u8; HEADER_MAX], caps: &LinkCaps, outgoing: &Outgoing) -> (usize, Offload) {
    let Outgoing { src, src_port, to, class, hops, form, protocol, ident, .. } = *outgoing;
    let bytes = outgoing.memory.bytes().get(outgoing.range.clone()).unwrap_or_default();
    let transport_len = if matches!(form, Form::Udp { .. }) { udp::HEADER_LEN } else { 0 };
    let len = transport_len + bytes.len();
    let dst = to.ip();
    let ip = IpOut { src, dst, protocol, hop_limit: hops, class };
    let buffer = &mut header[..HEADERS_MAX];
    let at = match form {
        Form::Fragment { offset, more } => ip.emit_fragment(buffer, len, ident.unwrap_or(0), (offset, more)),
        Form::Udp { .. } | Form::Message => match ident {
            Some(ident) => ip.emit_fragmentable(buffer, len, ident as u16),
            None => ip.emit(buffer, len),
        },
    };
    let Form::Udp { segment } = form else { return (at, Offload::None) };
    let header = UdpHeader { src_port, dst_port: to.port(), len: len as u16 };
    let end = at + header.emit(&mut buffer[at..]);
    let checksum = if caps.tx_checksum {
        udp::partial_checksum(src, dst, len as u32)
    } else {
        udp::full_checksum(src, dst, &buffer[at..end], &[bytes])
    };
    udp::set_checksum(&mut buffer[at..end], checksum);
    let (start, offset) = (at as u16, udp::CHECKSUM_OFFSET as u16);
    let offload = if segment > 0 {
        Offload::Segment { mss: segment, start, offset, ipv6: src.is_ipv6() }
    } else if caps.tx_checksum {
        Offload::Checksum { start, offset }
    } else {
        Offload::None
    };
    (end, offload)
}
