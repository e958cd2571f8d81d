//! What the fuzz targets share: a reader of the input's bytes, and a stack with one connection to a peer made
//! by hand.
//!
//! The input is a list of actions, read byte by byte; its end ends the run. Nothing else is random, so an
//! input repeats a run.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use taut_core::{
    ConnId, Duration, Fate, Frame, Instant, LinkCaps, ListenOptions, ListenerId, RxChecksum, RxPacket, Stack,
    StackConfig, Transmit,
};
use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, TcpOptions, protocol, raw};

/// Takes numbers from the front of an input.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn word(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    pub fn long(&mut self) -> Option<u32> {
        Some(u32::from(self.word()?) | u32::from(self.word()?) << 16)
    }

    pub fn below(&mut self, bound: u16) -> Option<u16> {
        Some(self.word()? % bound.max(1))
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

/// Byte `position` of every stream.
pub fn pattern(position: u32) -> u8 {
    (position.wrapping_mul(0x9e37_79b1) >> 13) as u8
}

pub fn stream(from: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| pattern(from + n)).collect()
}

/// What the stack sent, in relative numbers: the first byte of data is 0 in both directions.
pub struct Sent {
    pub flags: Flags,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub payload: Vec<u8>,
}

/// A stack, and a peer that shook hands with it.
pub struct Peer {
    pub stack: Stack,
    pub now: Instant,
    pub listener: ListenerId,
    pub conn: ConnId,
    /// Filters that are open.
    pub filters: Vec<ListenerId>,
    /// Our first number and the stack's.
    irs: u32,
    iss: u32,
}

const LOCAL: [u8; 4] = [192, 0, 2, 1];
const PEER: [u8; 4] = [192, 0, 2, 2];
const PORT: u16 = 40_000;

impl Peer {
    /// Listens, and accepts one connection with SACK and without timestamps.
    pub fn new(irs: u32) -> Self {
        let config = StackConfig::default().with(|config| config.addresses = vec![LOCAL.into()]);
        let mut stack = Stack::new(Arc::new(config), LinkCaps::plain(1_500), [42; 32]);
        let local = SocketAddr::from((LOCAL, 80));
        let listener = stack.listen(local, ListenOptions::default()).expect("the port is free");
        let now = Instant::from_nanos(5_000_000_000);
        let (conn, iss) = shake_hands(&mut stack, listener, now, irs);
        Self { stack, now, listener, conn, filters: Vec::new(), irs, iss }
    }

    /// A packet of the peer with these relative numbers.
    pub fn packet(&self, seq: u32, ack: u32, flags: Flags, window: u16, options: TcpOptions, payload: &[u8]) -> Vec<u8> {
        let tcp = TcpHeader {
            src_port: PORT,
            dst_port: 80,
            seq: seq.wrapping_add(self.irs).wrapping_add(1),
            ack: ack.wrapping_add(self.iss).wrapping_add(1),
            flags,
            window,
            options,
            ..TcpHeader::default()
        };
        packet(&tcp, payload)
    }

    /// The wire's number of a relative one of the stack's.
    pub fn iss(&self, seq: u32) -> u32 {
        seq.wrapping_add(self.iss).wrapping_add(1)
    }

    pub fn give(&mut self, bytes: &[u8]) {
        give(&mut self.stack, self.now, bytes);
    }

    /// Takes everything that the stack wants to send, and its events.
    pub fn poll(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(self.now) {
            let bytes = packet.to_vec();
            self.stack.handle_tx(self.now, ticket, Fate::Left);
            let ip = IpHeader::parse(&bytes).expect("what a stack sends is IP");
            if ip.protocol != protocol::TCP {
                continue;
            }
            let segment = &bytes[ip.header_len..];
            let (tcp, len) = TcpHeader::parse(segment).expect("what a stack sends is TCP");
            all.push(Sent {
                flags: tcp.flags,
                seq: tcp.seq.wrapping_sub(self.iss).wrapping_sub(1),
                ack: tcp.ack.wrapping_sub(self.irs).wrapping_sub(1),
                window: tcp.window,
                payload: segment[len..].to_vec(),
            });
        }
        while self.stack.poll_event().is_some() {}
        all
    }

    /// Time passes, and deadlines with it.
    pub fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some((at, _)) = self.stack.poll_timeout().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(at);
            self.stack.handle_timeout(self.now);
            self.poll();
        }
        self.now = end;
    }
}

/// Sends a packet of [`Peer::packet`] to another address and port.
pub fn redirect(bytes: &mut [u8], to: [u8; 4], port: u16) {
    let mut ip = IpHeader::parse(bytes).expect("a whole packet");
    ip.dst = to.into();
    ip.emit(bytes, 0);
    bytes[ip.header_len + 2..ip.header_len + 4].copy_from_slice(&port.to_be_bytes());
    raw::complete(bytes);
}

/// The handshake: the connection, and the stack's first number.
fn shake_hands(stack: &mut Stack, listener: ListenerId, now: Instant, irs: u32) -> (ConnId, u32) {
    let syn = TcpHeader {
        src_port: PORT,
        dst_port: 80,
        seq: irs,
        flags: Flags::SYN,
        window: 65_535,
        options: TcpOptions { mss: Some(1_000), sack_permitted: true, ..TcpOptions::default() },
        ..TcpHeader::default()
    };
    give(stack, now, &packet(&syn, &[]));
    let Transmit { packet: answer, ticket } = stack.poll_transmit(now).expect("a SYN is answered");
    let (answer, _) = TcpHeader::parse(&answer.to_vec()[20..]).expect("by TCP");
    stack.handle_tx(now, ticket, Fate::Left);
    let ack = TcpHeader {
        seq: irs.wrapping_add(1),
        ack: answer.seq.wrapping_add(1),
        flags: Flags::ACK,
        options: TcpOptions::default(),
        ..syn
    };
    give(stack, now, &packet(&ack, &[]));
    (stack.accept(listener).expect("the handshake is complete").0, answer.seq)
}

/// A packet from the peer's address to the stack's.
pub fn packet(tcp: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let len = tcp.header_len() + payload.len();
    let ip = IpHeader {
        src: IpAddr::from(PEER),
        dst: IpAddr::from(LOCAL),
        protocol: protocol::TCP,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len: len,
    };
    let mut bytes = vec![0; 20 + len];
    let at = ip.emit(&mut bytes, 0);
    let header = tcp.emit(&mut bytes[at..]);
    bytes[at + header..].copy_from_slice(payload);
    raw::complete(&mut bytes);
    bytes
}

pub fn give(stack: &mut Stack, now: Instant, bytes: &[u8]) {
    let frame = Frame::Slice(bytes);
    stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 });
}
