//! ICMP beyond what TCP needs: echo answered, replies to our own pings, errors about packets that nobody
//! takes, and about packets that did not become whole. RFC 792, RFC 1122 §3.2.2, RFC 4443; Linux:
//! `icmp_send`, `ping_rcv`. Called by `input.rs` and `datagrams/`.

use alloc::vec::Vec;
use core::net::IpAddr;

use taut_wire::{Fragment, Icmp, IpHeader, Unreachable, fragment, icmp, protocol};

use super::Stack;
use super::incoming::Refusal;
use super::input::head;
use super::replies::{self, Reply};
use crate::ip::outgoing::IpOut;
use crate::ip::reassembly::Outcome;
use crate::words::{Frame, Instant, RxChecksum, RxPacket};

/// The most of a packet that an error needs to quote.
const QUOTED_MAX: usize = 1_280;

impl Stack {
    /// A packet for a port or of a protocol that nobody has: its sender is told, unless it has been told
    /// enough. `bytes` and `rest` are the packet.
    #[cold]
    pub(super) fn unreachable(
        &mut self,
        now: Instant,
        ip: &IpHeader,
        code: Unreachable,
        bytes: &[u8],
        rest: &[&[u8]],
    ) {
        let mut quoted = bytes.get(..bytes.len().min(QUOTED_MAX)).unwrap_or_default().to_vec();
        rest.iter().for_each(|piece| quoted.extend_from_slice(&piece[..piece.len().min(QUOTED_MAX)]));
        let write = |buf: &mut [u8], quoted: &[u8]| icmp::emit_unreachable(buf, ip.dst, ip.src, code, quoted);
        if self.send_error(now, ip.dst, ip.src, &quoted, write) {
            // ICMPv6 has a parameter problem instead of an unknown protocol.
            if ip.src.is_ipv6() && code == Unreachable::Protocol {
                self.counters.icmp_out_parm_probs += 1;
            } else {
                self.counters.icmp_out_dest_unreachs += 1;
            }
        }
    }

    /// Sends an error from `own` to `peer`, if the rules and the limits allow. Returns whether they did.
    fn send_error(
        &mut self,
        now: Instant,
        own: IpAddr,
        peer: IpAddr,
        quoted: &[u8],
        write: impl FnOnce(&mut [u8], &[u8]) -> usize,
    ) -> bool {
        if !cfg!(feature = "icmp") || !Self::may_be_told(peer) || !Self::may_be_told(own) {
            return false;
        }
        if !self.datagrams.icmp_limit.allows(&self.config.icmp, now, peer) {
            self.counters.icmp_out_rate_limited += 1;
            return false;
        }
        self.push_error(own, peer, quoted, write)
    }

    /// Sends an error from `own` about a flow that the application refuses, if the limit on all errors
    /// allows.
    pub(super) fn send_refusal(
        &mut self,
        now: Instant,
        own: IpAddr,
        peer: IpAddr,
        how: Refusal,
        quoted: &[u8],
    ) -> bool {
        if !self.datagrams.icmp_limit.allows_refusal(&self.config.icmp, now) {
            self.counters.icmp_out_rate_limited += 1;
            return false;
        }
        let write = |buf: &mut [u8], quoted: &[u8]| how.emit(buf, own, peer, quoted);
        let sent = self.push_error(own, peer, quoted, write);
        if how == Refusal::TimeExceeded {
            self.counters.icmp_out_time_excds += u64::from(sent);
        } else {
            self.counters.icmp_out_dest_unreachs += u64::from(sent);
        }
        sent
    }

    fn push_error(
        &mut self,
        own: IpAddr,
        peer: IpAddr,
        quoted: &[u8],
        write: impl FnOnce(&mut [u8], &[u8]) -> usize,
    ) -> bool {
        let ip = IpOut::icmp(own, peer, self.config.ip_default_ttl);
        let packet = ip.packet(icmp::error_len(own.is_ipv4(), quoted), |buf| write(buf, quoted));
        self.replies.push(Reply::Icmp(packet))
    }

    /// Answers a ping. An answer that is longer than the link's packets leaves in fragments.
    pub(super) fn answer_echo(&mut self, ip: &IpHeader, ident: u16, seq: u16, payload: &[u8]) {
        let out = IpOut::icmp(ip.dst, ip.src, self.config.ip_default_ttl);
        let Some(packet) = replies::echo(&out, ident, seq, payload) else { return };
        self.counters.icmp_out_echo_reps += 1;
        if packet.len() <= usize::from(self.caps.mtu) {
            self.replies.push(Reply::Icmp(packet));
            return;
        }
        if !cfg!(feature = "fragments") {
            return;
        }
        let header_len = fragment::header_len(out.src.is_ipv4());
        let size = (usize::from(self.caps.mtu).saturating_sub(header_len) & !7).max(8);
        let data = packet.get(out.header_len()..).unwrap_or_default();
        let ident = self.next_ident(out.src, out.dst);
        let count = data.len().div_ceil(size);
        if !self.replies.has_room(count) {
            return;
        }
        for (index, part) in data.chunks(size).enumerate() {
            let mut bytes = alloc::vec![0; header_len];
            out.emit_fragment(&mut bytes, part.len(), ident, (index * size, index + 1 < count));
            bytes.extend_from_slice(part);
            self.replies.push(Reply::Icmp(bytes));
        }
        self.counters.frag_oks += 1;
        self.counters.frag_creates += count as u64;
    }

    /// Counts a message by what it is.
    pub(super) fn count_icmp(&mut self, message: &Icmp<'_>) {
        let counters = &mut self.counters;
        let counter = match message {
            Icmp::DestinationUnreachable { .. } | Icmp::PacketTooBig { .. } => {
                &mut counters.icmp_in_dest_unreachs
            }
            Icmp::TimeExceeded { .. } => &mut counters.icmp_in_time_excds,
            Icmp::ParameterProblem { .. } => &mut counters.icmp_in_parm_probs,
            Icmp::EchoRequest { .. } => &mut counters.icmp_in_echos,
            _ => return,
        };
        *counter += 1;
    }

    // ---- fragments ----

    /// A fragment arrives. With the last one, the packet does.
    #[cold]
    pub(super) fn on_fragment(&mut self, now: Instant, packet: &RxPacket<'_>) {
        self.counters.reasm_reqds += 1;
        let (bytes, total) = head(&packet.frame);
        let joined: Vec<u8>;
        let bytes = match &packet.frame {
            Frame::Gather { header, payload } if !payload.is_empty() => {
                let mut all = Vec::with_capacity(total);
                all.extend_from_slice(header);
                payload.slices().iter().for_each(|piece| all.extend_from_slice(piece));
                joined = all;
                joined.as_slice()
            }
            _ => bytes,
        };
        let fragment = match Fragment::parse(bytes) {
            Ok(fragment) if self.is_for_us(fragment.src, fragment.dst) => fragment,
            Ok(_) => {
                self.counters.in_discards += 1;
                return;
            }
            Err(_) => {
                self.counters.in_hdr_errors += 1;
                return;
            }
        };
        let bytes = bytes.get(..fragment.data.end).unwrap_or(bytes);
        if self.is_forged(fragment.src) || self.breaks_chain(&fragment, bytes) {
            self.counters.reasm_fails += 1;
            return;
        }
        let outcome = self.datagrams.reassembly.take(&self.config.fragments, now, &fragment, bytes);
        self.update_side_deadline();
        match outcome {
            Outcome::Waits => {}
            Outcome::Dropped { whole } => {
                self.counters.reasm_fails += 1;
                self.counters.reasm_overlaps += u64::from(whole);
            }
            Outcome::Complete(whole) => {
                self.counters.reasm_oks += 1;
                let frame = Frame::Slice(&whole);
                self.take_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
            }
        }
    }

    /// RFC 8200 §4.5: the first fragment of an IPv6 packet has all headers, up to the upper layer's.
    fn breaks_chain(&self, fragment: &Fragment, bytes: &[u8]) -> bool {
        let least = match fragment.protocol {
            protocol::TCP => 20,
            protocol::UDP | protocol::ICMPV6 => 8,
            _ => 0,
        };
        let len = bytes.len().saturating_sub(fragment.data.start);
        fragment.src.is_ipv6() && fragment.is_first() && fragment.more && len < least
    }

    /// Packets whose fragments did not all arrive in time. Their senders are told if the first one did.
    pub(super) fn on_fragment_timeouts(&mut self, now: Instant) {
        while let Some(expired) = self.datagrams.reassembly.expire(&self.config.fragments, now) {
            self.counters.reasm_timeout += 1;
            self.counters.reasm_fails += 1;
            let Some(first) = expired.first else { continue };
            let Ok(fragment) = Fragment::parse(&first) else { continue };
            let (own, peer) = (fragment.dst, fragment.src);
            let trouble = icmp::Trouble::Reassembly;
            let write = |buf: &mut [u8], quoted: &[u8]| icmp::emit_trouble(buf, own, peer, trouble, quoted);
            if self.send_error(now, own, peer, &first, write) {
                self.counters.icmp_out_time_excds += 1;
            }
        }
    }
}
