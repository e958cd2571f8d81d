//! The half that receives: datagrams of many packets, their authenticity, their inner source, their marks.
//! Called by the driver, under the stack's lock.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Packet, TunnResult, handshake};
use quinn_udp::RecvMeta;
use taut_core::{BUFFER_BYTES, Instant, RxChecksum};
use taut_driver::{News, Received, RxDevice};
use taut_wire::{Ecn, IpHeader, raw};

use super::merge::Growing;
use super::{Tunnel, now};
use crate::ecn::{Leaving, leave};
#[cfg(feature = "tracing")]
use crate::peer::Peer;
use crate::peer::{Opened, SMALL};

/// Buffers of a call, each for a datagram or, if the kernel merges, for 64 KB of them.
const BUFFERS: usize = 8;
const DATAGRAMS_BYTES: usize = 65_536;
/// Datagrams that may be of no use to the stack before it has a turn: a flood must not keep it from its
/// packets.
const USELESS_MAX: usize = 256;

pub(super) struct Rx {
    tunnel: Arc<Tunnel>,
    buffers: Vec<Vec<u8>>,
    metas: [RecvMeta; BUFFERS],
    /// Buffers of the last call, and the next datagram: its buffer, and where it begins.
    count: usize,
    next: (usize, usize),
    /// The socket had nothing more at the last call of this batch.
    is_empty: bool,
    /// An inner packet that did not continue the one before.
    held: Vec<u8>,
    held_len: usize,
    growing: Growing,
    /// It is announced that there is more.
    has_more: bool,
}

impl Rx {
    pub(super) fn new(tunnel: Arc<Tunnel>) -> Self {
        Self {
            tunnel,
            buffers: vec![vec![0; DATAGRAMS_BYTES]; BUFFERS],
            metas: [RecvMeta::default(); BUFFERS],
            count: 0,
            next: (0, 0),
            is_empty: false,
            held: vec![0; BUFFER_BYTES],
            held_len: 0,
            growing: Growing::default(),
            has_more: false,
        }
    }

    /// Receives datagrams. Returns whether there are any.
    fn fill(&mut self) -> bool {
        if self.is_empty {
            return false;
        }
        let mut slices = self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer));
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
        let tunnel = &*self.tunnel;
        if tunnel.has_errors.load(Ordering::Relaxed) {
            tunnel.take_errors();
        }
        (self.count, self.next) = (0, (0, 0));
        // A report about what was sent comes as an error first.
        for _ in 0..2 {
            match tunnel.udp.recv((&tunnel.socket).into(), &mut slices, &mut self.metas) {
                Ok(count) => {
                    self.count = count;
                    self.is_empty = count < BUFFERS;
                    return count > 0;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_empty = true;
                    return false;
                }
                Err(_) => tunnel.take_errors(),
            }
        }
        false
    }

    /// The next datagram: its buffer, its range there, its sender, and its mark.
    fn next_datagram(&mut self) -> Option<(usize, std::ops::Range<usize>, SocketAddr, Ecn)> {
        loop {
            let (at, from) = self.next;
            if at >= self.count {
                return None;
            }
            let RecvMeta { addr, len, stride, ecn, .. } = self.metas[at];
            let to = (from + stride.max(1)).min(len);
            self.next = if to >= len { (at + 1, 0) } else { (at, to) };
            if from < to {
                let sender = SocketAddr::new(addr.ip().to_canonical(), addr.port());
                return Some((
                    at,
                    from..to,
                    sender,
                    ecn.map_or(Ecn::NotEct, |ecn| Ecn::from_bits(ecn as u8)),
                ));
            }
        }
    }

    /// Opens datagrams until one has an inner packet for the stack, which is in `held` then. `fills` says
    /// whether the socket may be read.
    fn next_packet(&mut self, now: Instant, fills: bool) -> bool {
        for _ in 0..USELESS_MAX {
            let Some((at, range, from, ecn)) = self.next_datagram() else {
                if fills && self.fill() {
                    continue;
                }
                return false;
            };
            let datagram = &self.buffers[at][range];
            if let Some(len) = open(&self.tunnel, now, datagram, from, ecn, &mut self.held) {
                self.held_len = len;
                return true;
            }
        }
        false
    }
}

/// Opens a datagram into `room`. Returns the length of the inner packet, if it has one that may come from its
/// sender.
fn open(
    tunnel: &Tunnel,
    now: Instant,
    datagram: &[u8],
    from: SocketAddr,
    outer: Ecn,
    room: &mut [u8],
) -> Option<usize> {
    let number = receiver(tunnel, datagram, from)?;
    let peer = &tunnel.peers[number];
    let mut state = peer.lock();
    #[cfg(feature = "tracing")]
    let before = (state.endpoint, state.counts.handshake_at);
    let emit = &mut |message: &[u8], to| tunnel.send_alone(message, to);
    let opened = state.open(now, datagram, from, room, emit);
    tunnel.note_due(peer.note_due(&state));
    #[cfg(feature = "tracing")]
    let after = (state.endpoint, state.counts.handshake_at);
    drop(state);
    #[cfg(feature = "tracing")]
    events(peer, before, after);
    let packet = match opened {
        Opened::Packet(packet) => packet,
        Opened::Nothing => return None,
        Opened::Refused(error) => {
            count(tunnel, &error);
            return None;
        }
    };
    let is_allowed = IpHeader::parse(packet).is_ok_and(|ip| tunnel.routes.peer_of(ip.src) == Some(number));
    if !is_allowed {
        tunnel.counters.source.add();
        return None;
    }
    match leave(outer, raw::ecn(packet)) {
        Leaving::Same => {}
        Leaving::Set(ecn) => raw::set_ecn(packet, ecn),
        Leaving::Drop => {
            tunnel.counters.congestion.add();
            return None;
        }
    }
    Some(packet.len())
}

/// An authentic message may have ended a handshake, and have come from elsewhere than the one before.
#[cfg(feature = "tracing")]
fn events(peer: &Peer, before: Seen, after: Seen) {
    if before.1 != after.1 {
        tracing::debug!(peer = %peer.key, "handshake");
    }
    if let ((Some(from), _), (Some(to), _)) = (before, after)
        && from != to
    {
        tracing::debug!(peer = %peer.key, %from, %to, "endpoint roamed");
    }
}

/// Where a peer is, and when its last handshake was.
#[cfg(feature = "tracing")]
type Seen = (Option<SocketAddr>, Option<Instant>);

fn count(tunnel: &Tunnel, error: &WireGuardError) {
    let counters = &tunnel.counters;
    match error {
        WireGuardError::DuplicateCounter
        | WireGuardError::InvalidCounter
        | WireGuardError::WrongTai64nTimestamp => counters.replayed.add(),
        _ => counters.invalid.add(),
    }
}

/// The number of the peer that a datagram is for. Under load, the sender of a handshake proves its address
/// first.
fn receiver(tunnel: &Tunnel, datagram: &[u8], from: SocketAddr) -> Option<usize> {
    let mut cookie = [0; SMALL];
    if matches!(datagram.first(), Some(1 | 2)) {
        // It counts for a second at most.
        tunnel.limiter.reset_count();
    }
    let packet = match tunnel.limiter.verify_packet(Some(from.ip()), datagram, &mut cookie) {
        Ok(packet) => packet,
        Err(TunnResult::WriteToNetwork(cookie)) => {
            tunnel.counters.cookies.add();
            tunnel.send_alone(cookie, from);
            return None;
        }
        Err(_) => {
            tunnel.counters.invalid.add();
            return None;
        }
    };
    let number = match packet {
        Packet::HandshakeInit(init) => {
            handshake::parse_handshake_anon(&tunnel.own.0, &tunnel.public.0, &init)
                .ok()
                .and_then(|half| tunnel.by_key.get(&half.peer_static_public).copied())
        }
        Packet::HandshakeResponse(response) => tunnel.peer_with(response.receiver_idx),
        Packet::PacketCookieReply(reply) => tunnel.peer_with(reply.receiver_idx),
        Packet::PacketData(data) => tunnel.peer_with(data.receiver_idx),
    };
    if number.is_none() {
        tunnel.counters.stranger.add();
    }
    number
}

impl RxDevice for Rx {
    fn news(&mut self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.tunnel.news()?))
    }

    fn begin_batch(&mut self) {
        self.is_empty = false;
        // A socket that is never empty does not keep peers from their timers.
        self.tunnel.handle_timeout();
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        if let Some(notice) = self.tunnel.next_notice() {
            buffer[..notice.len()].copy_from_slice(&notice);
            return Ok(Some(Received {
                range: 0..notice.len(),
                checksum: RxChecksum::Unverified,
                gso_size: 0,
            }));
        }
        let now = now();
        if self.held_len == 0 && !self.next_packet(now, true) {
            return Ok(None);
        }
        std::mem::swap(buffer, &mut self.held);
        self.growing.begin(buffer, std::mem::take(&mut self.held_len));
        // Packets that have come with it, and continue it.
        while self.next_packet(now, false) && self.growing.add(buffer, &self.held[..self.held_len]) {
            self.held_len = 0;
        }
        Ok(Some(self.growing.end(buffer)))
    }

    /// The driver may end its batch at any packet: what was read then is not announced by the socket.
    fn end_batch(&mut self) {
        let has_more = self.held_len > 0 || self.next.0 < self.count;
        if has_more != self.has_more {
            self.has_more = has_more;
            self.tunnel.announce(has_more);
        }
    }
}
