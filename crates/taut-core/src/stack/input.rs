//! Packets from the link: which connection they belong to, and the answers to those that belong to none.
//! RFC 9293 §3.10.7.1–2, RFC 1122 §3.2; the first stage of input processing for every packet.

use core::net::IpAddr;

use taut_wire::tcp::{self, Flags as TcpFlags};
use taut_wire::{
    Ecn, FastOpen, Icmp, IpHeader, ParseError, Quoted, TcpHeader, TcpOptions, Timestamps, Unreachable,
    protocol,
};

use super::Stack;
use super::opening::open::is_broadcast;
use super::replies::{self, Reply};
use super::tables::demux::Owner;
use super::tables::time_wait::{TimeWaitAction, TimeWaitSegment};
use crate::conn::{Arrival, Consequence};
use crate::ingress::Payload;
use crate::words::{ConnError, Endpoint, Frame, Instant, RxChecksum, RxPacket, Tuple, seq};

/// A segment that belongs to no connection.
#[derive(Debug)]
pub(super) struct Stray<'a> {
    pub(super) arrival: Arrival<'a>,
    /// TCP Fast Open's option, of a SYN.
    pub(super) option: Option<FastOpen>,
}

/// The part of a frame that holds all headers, and the length of the whole.
pub(super) fn head<'f>(frame: &'f Frame<'_>) -> (&'f [u8], usize) {
    match frame {
        Frame::Slice(slice) => (slice, slice.len()),
        Frame::Gather { header, payload } => (header, header.len() + payload.len()),
        Frame::Lend { buffer, range } => {
            let packet = buffer.get(range.clone()).unwrap_or_default();
            (packet, packet.len())
        }
    }
}

/// Whether a TCP peer can be at this address at all (RFC 1122 §3.2.1.3, RFC 4291 §2.5.5.2).
fn is_possible_peer(ip: IpAddr) -> bool {
    let mapped = matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
    !(ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip) || mapped)
}

impl Stack {
    /// Takes in one packet, or a GRO super-packet. Its content is not trusted.
    pub fn handle_packet(&mut self, now: Instant, packet: RxPacket<'_>) {
        self.counters.in_receives += 1;
        self.take_packet(now, packet);
    }

    /// A packet that arrived, or was put together from fragments that did.
    pub(super) fn take_packet(&mut self, now: Instant, packet: RxPacket<'_>) {
        let (bytes, total) = head(&packet.frame);
        let ip = match IpHeader::parse_prefix(bytes, total) {
            Ok(ip) if cfg!(feature = "ipv6") || ip.src.is_ipv4() => ip,
            Err(ParseError::Fragment) if cfg!(feature = "fragments") => {
                return self.on_fragment(now, &packet);
            }
            Ok(_) | Err(_) => {
                self.counters.in_hdr_errors += 1;
                return;
            }
        };
        // No packet from us to us arrives over a link: it is forged, and we would be answering ourselves.
        if !self.is_for_us(ip.src, ip.dst) {
            self.counters.in_discards += u64::from(!self.on_group(now, &ip, &packet));
            return;
        }
        match ip.protocol {
            protocol::TCP => self.on_tcp(now, &ip, packet),
            _ => self.on_other(now, &ip, &packet),
        }
    }

    /// A packet of another protocol. Apart from TCP's path, which pays for none of it.
    #[cold]
    #[inline(never)]
    fn on_other(&mut self, now: Instant, ip: &IpHeader, packet: &RxPacket<'_>) {
        let (bytes, _) = head(&packet.frame);
        match ip.protocol {
            protocol::UDP if cfg!(feature = "udp") => self.on_udp(now, ip, packet),
            // Counted.
            _ if self.is_forged(ip.src) => {}
            protocol::ICMP | protocol::ICMPV6 => {
                self.count_marks(ip.ecn, 1);
                let message = bytes.get(ip.header_len..ip.header_len + ip.payload_len);
                let Frame::Gather { payload, .. } = &packet.frame else {
                    return self.on_icmp(now, ip, bytes, message.unwrap_or_default());
                };
                let start = bytes.get(ip.header_len..).unwrap_or_default();
                let message = [&[start], payload.slices()].concat().concat();
                self.on_icmp(now, ip, bytes, message.get(..ip.payload_len).unwrap_or_default());
            }
            _ => {
                self.counters.in_discards += 1;
                if self.stands_in_for(ip.dst) {
                    self.unreachable(now, ip, Unreachable::Protocol, bytes, &[]);
                }
            }
        }
    }

    /// Whether to call [`poll_transmit`](Self::poll_transmit) before the next packet is handed over. It is
    /// true when an ACK is due that already reports as many SACK blocks as fit into it. A packet handed over
    /// before this ACK leaves would be reported by another ACK, and a peer that receives that one first would
    /// take the rest for lost. False again after `poll_transmit`. A caller that ignores this loses speed on
    /// fast paths with many losses, and nothing else.
    #[must_use]
    pub const fn must_answer(&self) -> bool {
        self.must_answer
    }

    /// Whether a packet from `src` may arrive here for `dst`.
    pub(super) fn is_for_us(&self, src: IpAddr, dst: IpAddr) -> bool {
        self.is_ours(dst) && is_possible_peer(src) && src != dst
    }

    fn is_ours(&self, ip: IpAddr) -> bool {
        self.config.addresses.contains(&ip)
            || (self.config.any_address && is_possible_peer(ip))
            || self.may_be_flow(ip)
    }

    // In a function of its own, `ip` stays in memory as it is; inlined, the compiler takes it apart and puts
    // it together again, at 150 instructions per packet.
    #[inline(never)]
    fn on_tcp(&mut self, now: Instant, ip: &IpHeader, packet: RxPacket<'_>) {
        let (bytes, _) = head(&packet.frame);
        let segment = bytes.get(ip.header_len..).unwrap_or_default();
        let segment = segment.get(..ip.payload_len).unwrap_or(segment);
        let Ok((header, header_len)) = TcpHeader::parse(segment) else {
            self.counters.in_errs += 1;
            return;
        };
        if header_len > ip.payload_len || header.src_port == 0 {
            self.counters.in_errs += 1;
            return;
        }
        if packet.checksum == RxChecksum::Unverified && !is_intact(ip, segment, &packet.frame) {
            self.counters.in_errs += 1;
            return;
        }
        let gso_size = packet.gso_size;
        let is_special = header.flags.intersects(TcpFlags::SYN | TcpFlags::RST);
        let option = if is_special { fast_open_option(segment, header_len) } else { None };
        let payload = Payload::new(packet.frame, ip.header_len + header_len, ip.payload_len - header_len);
        let segs = payload.segments(gso_size);
        self.counters.in_segs += segs as u64;
        self.count_marks(ip.ecn, segs as u64);
        let tuple = Tuple {
            local: Endpoint::new(ip.dst, header.dst_port),
            peer: Endpoint::new(ip.src, header.src_port),
        };
        match self.owner(&tuple) {
            Some(Owner::Conn(slot)) => {
                let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
                if is_special {
                    return self.on_special(now, slot, &tuple, arrival, option);
                }
                let len = arrival.len();
                let consequence = self.with(now, slot, |conn, cx| conn.on_segment(cx, arrival));
                if consequence == Some(Consequence::Reset) {
                    self.reset(&tuple, &header, len);
                }
            }
            Some(Owner::HalfOpen(slot)) => {
                let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
                self.on_half_open(now, slot, arrival);
            }
            Some(Owner::TimeWait(slot)) => {
                let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
                let stray = Stray { arrival, option };
                self.on_time_wait(now, slot, &tuple, stray);
            }
            Some(Owner::Flow(slot)) => {
                let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
                let len = arrival.len();
                self.on_flow_segment(now, slot, &tuple, (&header, ip.ecn), len);
            }
            None if header.flags.contains(TcpFlags::ACK) && self.revive(now, &tuple, &header) => {
                if let Some(Owner::HalfOpen(slot)) = self.owner(&tuple) {
                    let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
                    self.on_half_open(now, slot, arrival);
                }
            }
            None => {
                let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
                let stray = Stray { arrival, option };
                self.on_stray(now, &tuple, stray, None);
            }
        }
    }

    /// A segment with SYN or RST, for a connection.
    #[cold]
    fn on_special(
        &mut self,
        now: Instant,
        slot: u32,
        tuple: &Tuple,
        arrival: Arrival<'_>,
        option: Option<FastOpen>,
    ) {
        let (header, len) = (arrival.header, arrival.len());
        let result = self.with(now, slot, |conn, cx| {
            let consequence = conn.on_segment(cx, arrival);
            (consequence, conn.take_black_hole())
        });
        let Some((consequence, black_hole)) = result else { return };
        match consequence {
            Consequence::None => {}
            Consequence::Reset => self.reset(tuple, header, len),
            Consequence::SynAnswered => self.learn_fast_open(slot, header, option),
        }
        if black_hole {
            self.note_black_hole(now);
        }
    }

    pub(super) fn count_marks(&mut self, mark: Ecn, packets: u64) {
        let counter = match mark {
            Ecn::NotEct => &mut self.counters.in_no_ect_pkts,
            Ecn::Ect1 => &mut self.counters.in_ect1_pkts,
            Ecn::Ect0 => &mut self.counters.in_ect0_pkts,
            Ecn::Ce => &mut self.counters.in_ce_pkts,
        };
        *counter += packets;
    }

    /// §3.10.7.1–2: no connection has this tuple.
    fn on_stray(&mut self, now: Instant, tuple: &Tuple, segment: Stray<'_>, min_iss: Option<u32>) {
        let (header, len) = (segment.arrival.header, segment.arrival.len());
        if self.is_forged(tuple.peer.ip()) {
            return;
        }
        let flags = header.flags;
        let Some(listener) = self.taker(tuple.local) else {
            if self.stands_in_for(tuple.local.ip()) {
                self.reset(tuple, header, len);
            } else {
                self.counters.in_discards += 1;
            }
            return;
        };
        if flags.contains(TcpFlags::RST) {
            return;
        }
        if flags.contains(TcpFlags::ACK) {
            return self.reset(tuple, header, len);
        }
        // No honest peer sends a SYN together with a FIN. Linux drops it, too.
        if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN) {
            return;
        }
        self.on_syn(now, tuple, listener, segment, min_iss);
    }

    fn on_time_wait(&mut self, now: Instant, slot: u32, tuple: &Tuple, stray: Stray<'_>) {
        let Some(entry) = self.tables.time_wait.get(slot) else { return };
        let (header, len) = (stray.arrival.header, stray.arrival.len());
        let segment = TimeWaitSegment {
            seq: header.seq,
            len: stray.arrival.payload.len(),
            syn: header.flags.contains(TcpFlags::SYN),
            ack: header.flags.contains(TcpFlags::ACK),
            fin: header.flags.contains(TcpFlags::FIN),
            rst: header.flags.contains(TcpFlags::RST),
            tsval: header.options.timestamps.map(|timestamps| timestamps.value),
        };
        let answer = TcpHeader {
            src_port: tuple.local.port(),
            dst_port: tuple.peer.port(),
            seq: seq::wire(entry.snd_nxt),
            ack: seq::wire(entry.rcv_nxt),
            flags: TcpFlags::ACK,
            window: entry.window_field,
            urgent: 0,
            options: TcpOptions {
                timestamps: entry.timestamps.then(|| Timestamps {
                    value: (now.as_millis() as u32).wrapping_add(entry.ts_offset),
                    echo: entry.ts_recent,
                }),
                ..TcpOptions::default()
            },
        };
        let answer = Reply::Tcp { src: tuple.local.ip(), dst: tuple.peer.ip(), header: answer };
        match entry.on_segment(now, &segment) {
            TimeWaitAction::Ignore => {}
            TimeWaitAction::Ack => {
                self.tables.time_wait.restart(slot, now);
                self.replies.push(answer);
            }
            action @ (TimeWaitAction::AckStray | TimeWaitAction::ChallengeAck) => {
                if action == TimeWaitAction::AckStray {
                    self.tables.time_wait.restart(slot, now);
                }
                if self.tables.time_wait.may_answer(slot, now, self.config.tcp.invalid_ratelimit) {
                    self.counters.tcp_challenge_ack += 1;
                    self.replies.push(answer);
                }
            }
            TimeWaitAction::Reuse { min_iss } => {
                if self.taker(tuple.local).is_some() {
                    self.forget_time_wait(slot);
                    self.counters.tw_recycled += 1;
                    self.on_stray(now, tuple, stray, Some(min_iss));
                } else {
                    self.reset(tuple, header, len);
                }
            }
        }
    }

    pub(super) fn reset(&mut self, tuple: &Tuple, header: &TcpHeader, len: u32) {
        if let Some(header) = replies::reset(header, len) {
            let reply = Reply::Tcp { src: tuple.local.ip(), dst: tuple.peer.ip(), header };
            if self.replies.push(reply) {
                self.counters.out_rsts += 1;
            }
        }
    }

    fn on_icmp(&mut self, now: Instant, ip: &IpHeader, packet: &[u8], message: &[u8]) {
        self.counters.icmp_in_msgs += 1;
        let parsed = match (ip.src, ip.dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Icmp::parse_v6(src, dst, message),
            _ => Icmp::parse_v4(message),
        };
        let Ok(parsed) = parsed else {
            self.counters.icmp_in_errors += 1;
            return;
        };
        self.count_icmp(&parsed);
        match parsed {
            // A filter's addresses are others': they answer for themselves.
            Icmp::EchoRequest { ident, seq, payload } if self.config.icmp_echo && self.is_own(ip.dst) => {
                self.answer_echo(ip, ident, seq, payload);
            }
            Icmp::EchoRequest { ident, .. } if cfg!(feature = "icmp") && self.may_be_flow(ip.dst) => {
                self.on_echo_flow(now, ip, packet, message, ident);
            }
            Icmp::EchoReply { ident, .. } if cfg!(feature = "icmp") => {
                self.on_echo_reply(ip, packet, message, ident);
            }
            Icmp::DestinationUnreachable { code: Unreachable::FragmentationNeeded { mtu }, quoted }
            | Icmp::PacketTooBig { mtu, quoted } => {
                // A SYN-ACK is never too big.
                if let Some((Owner::Conn(slot), seq)) = self.owner_of_quoted(quoted) {
                    self.with(now, slot, |conn, cx| conn.on_too_big(cx, seq, mtu));
                }
                self.on_datagram_error(now, ip, message, mtu);
            }
            Icmp::DestinationUnreachable { code, quoted } => {
                let error = match code {
                    Unreachable::Network => ConnError::NetworkUnreachable,
                    Unreachable::Port | Unreachable::Protocol => ConnError::Refused,
                    _ => ConnError::HostUnreachable,
                };
                match self.owner_of_quoted(quoted) {
                    Some((Owner::Conn(slot), seq)) => {
                        self.with(now, slot, |conn, cx| conn.on_unreachable(cx, seq, error));
                    }
                    Some((Owner::HalfOpen(slot), seq)) => self.on_half_open_unreachable(slot, seq),
                    Some((Owner::TimeWait(_) | Owner::Flow(_), _)) | None => {}
                }
                self.on_datagram_error(now, ip, message, 0);
            }
            Icmp::TimeExceeded { .. } | Icmp::ParameterProblem { .. } => {
                self.on_datagram_error(now, ip, message, 0);
            }
            _ => {}
        }
    }

    /// Whose packet an ICMP error quotes, and its sequence number.
    fn owner_of_quoted(&mut self, quoted: &[u8]) -> Option<(Owner, u32)> {
        let quoted = Quoted::parse(quoted).ok().filter(|quoted| quoted.protocol == protocol::TCP)?;
        let tuple = Tuple { local: quoted.src.into(), peer: quoted.dst.into() };
        Some((self.owner(&tuple)?, quoted.seq))
    }
}

#[cold]
fn fast_open_option(segment: &[u8], header_len: usize) -> Option<FastOpen> {
    FastOpen::find(segment.get(tcp::HEADER_LEN..header_len)?)
}

fn is_intact(ip: &IpHeader, segment: &[u8], frame: &Frame<'_>) -> bool {
    match frame {
        Frame::Gather { payload, .. } => tcp::verify(ip.src, ip.dst, segment, payload.slices()),
        Frame::Slice(_) | Frame::Lend { .. } => tcp::verify(ip.src, ip.dst, segment, &[]),
    }
}
