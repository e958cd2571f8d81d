//! One stack between a peer and a device that a test plays by hand, so that a test reads as a trace:
//!
//! ```text
//!   let mut rig = Setup { rtt: Duration::from_millis(40), ..Setup::default() }.open();
//!   rig.write(10_000);                             the application
//!   assert_eq!(rig.news(), [0..7_240]);            what reached the device since the last call
//!   rig.complete(0);                               the device: this packet has left the host
//!   rig.ack(7_240);                                the peer
//!   rig.advance(Duration::from_millis(200));       the clock; timers fire exactly when they are due
//! ```
//!
//! Positions are bytes of the stream: the first byte written is 0. The device keeps every ticket until the
//! test gives it back; after each step the kept tickets are compared with the bytes that the connection
//! counts as below TCP, and the bytes on the wire with those written.

#![allow(dead_code, reason = "each part of the specification uses a part of it")]

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use taut_core::{
    Blocked, ConnId, ConnInfo, ConnMut, ConnOptions, Counters, Duration, Event, Fate, Frame, Instant,
    KeptPacket, LinkCaps, Offload, RxChecksum, RxPacket, SetOption, Stack, StackConfig, Transmit, TsqMode,
    TxTicket, WriteError, WriteFlags,
};
use taut_wire::{Flags, IpHeader, TcpHeader, TcpOptions, Timestamps};

use crate::support::{pattern, trace};

/// Payload bytes of a segment when the peer offers 1460: twelve are taken by timestamps.
pub(crate) const MSS: u64 = 1_448;
/// Bytes charged for a packet below TCP in addition to its payload.
pub(crate) const OVERHEAD: u32 = 1_024;

/// Bytes charged for a packet with this much payload.
pub(crate) const fn truesize(payload: u64) -> u32 {
    OVERHEAD + payload as u32
}

/// The settings with which a connection begins: room for everything, unless a test wants less. The send
/// buffer has its largest size from the beginning, so that it is no limit unless a test makes it one.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: StackConfig,
    pub(crate) caps: LinkCaps,
    pub(crate) options: ConnOptions,
    /// The delay of the SYN-ACK: the only RTT sample until data is acknowledged.
    pub(crate) rtt: Duration,
    /// The peer's window in bytes, offered in everything it sends after its SYN; a multiple of `1 << wscale`.
    pub(crate) window: u32,
    pub(crate) wscale: u8,
    /// The peer's MSS option. 12 bytes less are sent in a segment, for timestamps.
    pub(crate) mss: u16,
    pub(crate) sack: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let mut config = StackConfig::default();
        config.send.wmem.initial = config.send.wmem.max;
        // Linux's rules, from which most statements derive their numbers.
        config.send.tsq = TsqMode::RateScaled;
        config.send.notsent_lowat = u32::MAX;
        Self {
            config,
            caps: LinkCaps::offloading(1_500),
            options: ConnOptions::default(),
            rtt: Duration::from_millis(40),
            window: 8 << 20,
            wscale: 8,
            mss: 1_460,
            sack: true,
        }
    }
}

impl Setup {
    /// The same, with a change to the configuration.
    pub(crate) fn config(mut self, change: impl FnOnce(&mut StackConfig)) -> Self {
        change(&mut self.config);
        self
    }

    #[track_caller]
    pub(crate) fn open(&self) -> Rig {
        Rig::new(self)
    }
}

/// The device's response to a packet that is offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Takes it and keeps the ticket.
    Keeps,
    /// Takes it and gives the ticket back at once, as a driver that completes at submission.
    Completes,
    /// The same, and keeps the packet until it gives the ticket back.
    KeepsPackets,
    /// Has no room for it, and asks for no more packets.
    Refuses,
    /// A queue in front of it drops the packet, once per turn.
    Drops,
    /// Is asleep: asks for nothing. Events between two calls of one turn happen while it sleeps.
    Sleeps,
}

/// A packet that the stack handed out.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) departure: Instant,
    /// Its place in the stream; empty for a pure ACK.
    pub(crate) bytes: Range<u64>,
    pub(crate) flags: Flags,
    /// The segment size for the device; 0 when there is nothing to cut.
    pub(crate) gso: u16,
    /// Segments on the wire.
    pub(crate) segs: u64,
    pub(crate) truesize: u32,
    pub(crate) tsval: u32,
    /// Where each piece of the payload lies in memory, and how long it is.
    pub(crate) pieces: Vec<(usize, usize)>,
    /// The packet itself, if the device keeps packets: it holds the memory of its payload.
    kept: Option<KeptPacket>,
    /// The ticket, until it is given back.
    ticket: Option<TxTicket>,
}

impl Sent {
    pub(crate) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Whether it has these flags; letters as in [`trace::flags`].
    pub(crate) fn has(&self, text: &str) -> bool {
        self.flags.contains(trace::flags(text))
    }

    /// Whether it is still below TCP.
    pub(crate) fn is_out(&self) -> bool {
        self.ticket.is_some()
    }
}

/// An ACK from the peer that is more than a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ack {
    upto: u64,
    window: Option<u32>,
    sack: Vec<Range<u64>>,
    flags: Flags,
    echo: Option<u32>,
    payload: usize,
    again: bool,
}

impl Ack {
    /// Everything before `upto` has arrived.
    pub(crate) fn of(upto: u64) -> Self {
        Self { upto, flags: Flags::ACK, ..Self::default() }
    }

    /// With another window, which the peer keeps from then on.
    pub(crate) fn window(self, bytes: u32) -> Self {
        Self { window: Some(bytes), ..self }
    }

    pub(crate) fn sack(self, blocks: &[Range<u64>]) -> Self {
        Self { sack: blocks.to_vec(), ..self }
    }

    /// The peer saw a congestion mark.
    pub(crate) fn ece(self) -> Self {
        Self { flags: self.flags | Flags::ECE, ..self }
    }

    pub(crate) fn reset(self) -> Self {
        Self { flags: self.flags | Flags::RST, ..self }
    }

    pub(crate) fn fin(self) -> Self {
        Self { flags: self.flags | Flags::FIN, ..self }
    }

    /// Echoes this timestamp instead of the latest one sent.
    pub(crate) fn echo(self, tsval: u32) -> Self {
        Self { echo: Some(tsval), ..self }
    }

    /// Carries data from the peer.
    pub(crate) fn payload(self, len: usize) -> Self {
        Self { payload: len, ..self }
    }

    /// The data is a copy of the data that the peer sent last.
    pub(crate) fn again(self) -> Self {
        Self { again: true, ..self }
    }
}

pub(crate) struct Rig {
    pub(crate) stack: Stack,
    pub(crate) now: Instant,
    pub(crate) id: ConnId,
    pub(crate) device: Device,
    /// Everything handed out since the handshake, in order. A packet's index is its name.
    pub(crate) sent: Vec<Sent>,
    /// How much of `sent` was returned by [`news`](Self::news).
    seen: usize,
    events: Vec<Event>,
    /// Timers that fired since time last passed.
    spins: u32,
    /// Bytes written so far.
    pub(crate) written: u64,
    local: SocketAddr,
    peer: SocketAddr,
    iss: u32,
    irs: u32,
    /// Sequence space that the peer has used after its SYN.
    peer_sent: u32,
    window: u32,
    wscale: u8,
}

const START: Instant = Instant::from_nanos(5_000_000_000);

impl Rig {
    /// A stack with an established connection that it opened; from now on, the device keeps every ticket.
    #[track_caller]
    pub(crate) fn new(setup: &Setup) -> Self {
        let (own, peer): (IpAddr, SocketAddr) =
            ("192.0.2.1".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let config = setup.config.clone().with(|c| c.addresses = vec![own]);
        let mut stack = Stack::new(Arc::new(config), setup.caps, [42; 32]);
        let id = stack.connect(START, peer, &setup.options).unwrap();
        let mut rig = Self {
            stack,
            now: START,
            id,
            device: Device::Completes,
            sent: Vec::new(),
            seen: 0,
            events: Vec::new(),
            spins: 0,
            written: 0,
            local: SocketAddr::new(own, 0),
            peer,
            iss: 0,
            irs: 0xffff_f000,
            peer_sent: 0,
            window: setup.window,
            wscale: setup.wscale,
        };
        rig.poll();
        rig.advance(setup.rtt);
        let syn_ack = TcpOptions {
            mss: Some(setup.mss),
            window_scale: Some(setup.wscale),
            sack_permitted: setup.sack,
            ..TcpOptions::default()
        };
        // The window of a SYN is never scaled (RFC 7323 §2.2): the real one follows in an ACK.
        let first = u16::try_from(setup.window).unwrap_or(u16::MAX);
        rig.inject(rig.irs, rig.iss.wrapping_add(1), Flags::SYN | Flags::ACK, first, syn_ack, &[], None);
        rig.ack(0);
        assert_eq!(rig.info().snd_wnd, setup.window, "the window is a multiple of its scale");
        rig.sent.clear();
        rig.seen = 0;
        rig.events.clear();
        rig.device = Device::Keeps;
        rig
    }

    // ---- the application ----

    #[track_caller]
    pub(crate) fn conn(&mut self) -> ConnMut<'_> {
        self.stack.conn_mut(self.id).expect("the connection is held")
    }

    /// Writes that many bytes; all must be accepted.
    #[track_caller]
    pub(crate) fn write(&mut self, len: u64) {
        assert_eq!(self.try_write(len, WriteFlags::default()), Ok(len), "room for {len} bytes");
    }

    #[track_caller]
    pub(crate) fn write_more(&mut self, len: u64) {
        let flags = WriteFlags { more: true, ..WriteFlags::default() };
        assert_eq!(self.try_write(len, flags), Ok(len), "room for {len} bytes");
    }

    #[track_caller]
    pub(crate) fn write_eor(&mut self, len: u64) {
        let flags = WriteFlags { eor: true, ..WriteFlags::default() };
        assert_eq!(self.try_write(len, flags), Ok(len), "room for {len} bytes");
    }

    /// One call of `write_with`, with any result.
    #[track_caller]
    pub(crate) fn try_write(&mut self, len: u64, flags: WriteFlags) -> Result<u64, WriteError> {
        let data: Vec<u8> = (self.written..self.written + len).map(pattern).collect();
        let now = self.now;
        let taken = self.conn().write_with(now, &data, flags)?;
        self.written += taken as u64;
        self.poll();
        Ok(taken as u64)
    }

    /// The next bytes of the stream, as an application would lend them.
    pub(crate) fn bytes(&self, len: u64) -> Bytes {
        (self.written..self.written + len).map(pattern).collect()
    }

    /// One call of `write_bytes`: returns the write's number. What was taken is removed from the front of
    /// `data`.
    #[track_caller]
    pub(crate) fn lend(&mut self, data: &mut Bytes) -> Result<Option<u32>, WriteError> {
        let (now, before) = (self.now, data.len());
        let number = self.conn().write_bytes(now, data)?;
        self.written += (before - data.len()) as u64;
        self.poll();
        Ok(number)
    }

    /// Writes until there is no room; returns how many bytes that took.
    #[track_caller]
    pub(crate) fn fill(&mut self) -> u64 {
        let before = self.written;
        while self.try_write(100_000, WriteFlags::default()).is_ok() {}
        self.written - before
    }

    #[track_caller]
    pub(crate) fn set(&mut self, option: SetOption) {
        let now = self.now;
        self.conn().set_option(now, option).unwrap();
        self.poll();
    }

    #[track_caller]
    pub(crate) fn shutdown(&mut self) {
        let now = self.now;
        self.conn().shutdown_write(now).unwrap();
        self.poll();
    }

    #[track_caller]
    pub(crate) fn writable(&mut self) -> bool {
        let now = self.now;
        self.conn().writable(now)
    }

    #[track_caller]
    pub(crate) fn info(&mut self) -> ConnInfo {
        let now = self.now;
        self.conn().as_ref().info(now)
    }

    #[track_caller]
    pub(crate) fn blocked(&mut self) -> Blocked {
        self.conn().as_ref().blocked()
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.stack.counters()
    }

    /// A counter by its name.
    #[track_caller]
    pub(crate) fn count(&self, name: &str) -> u64 {
        let found = self.counters().iter().find(|&(is, _)| is == name);
        found.unwrap_or_else(|| panic!("no counter is called {name}")).1
    }

    /// The number of `Event::Writable` since the last call.
    pub(crate) fn writable_events(&mut self) -> usize {
        let before = self.events.len();
        self.events.retain(|event| !matches!(event, Event::Writable(_)));
        before - self.events.len()
    }

    // ---- the device ----

    /// The device asks for every packet that may leave.
    #[track_caller]
    pub(crate) fn poll(&mut self) {
        while self.device != Device::Sleeps && self.poll_one() {}
        while let Some(event) = self.stack.poll_event() {
            self.events.push(event);
        }
        self.check();
    }

    /// Offers the device one packet. Returns false when there was none, or no room for it.
    #[track_caller]
    pub(crate) fn poll_one(&mut self) -> bool {
        let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(self.now) else { return false };
        let bytes = packet.to_vec();
        let gso = match packet.offload {
            Offload::Segment { mss, .. } => mss,
            Offload::None | Offload::Checksum { .. } => 0,
        };
        let departure = packet.departure;
        let pieces =
            packet.payload.slices().iter().map(|piece| (piece.as_ptr().addr(), piece.len())).collect();
        let kept = (self.device == Device::KeepsPackets).then(|| packet.keep());
        if self.device == Device::Refuses {
            self.stack.handle_tx(self.now, ticket, Fate::Refused);
            return false;
        }
        if self.device == Device::Drops {
            self.stack.handle_tx(self.now, ticket, Fate::Dropped);
            return false;
        }
        let mut sent = Sent { pieces, kept, ..self.parse(&bytes, gso, departure, ticket.truesize()) };
        if self.device == Device::Completes {
            self.stack.handle_tx(self.now, ticket, Fate::Left);
        } else {
            sent.ticket = Some(ticket);
        }
        self.sent.push(sent);
        true
    }

    fn parse(&mut self, packet: &[u8], gso: u16, departure: Instant, truesize: u32) -> Sent {
        let ip = IpHeader::parse(packet).expect("what the stack sends is IP");
        assert_eq!(ip.header_len + ip.payload_len, packet.len(), "the length in the IP header");
        let segment = &packet[ip.header_len..];
        let (tcp, header_len) = TcpHeader::parse(segment).expect("what the stack sends is TCP");
        if tcp.flags.contains(Flags::SYN) {
            self.iss = tcp.seq;
            self.local = SocketAddr::new(ip.src, tcp.src_port);
        }
        let payload = &segment[header_len..];
        let start = u64::from(tcp.seq.wrapping_sub(self.iss.wrapping_add(1)));
        for (position, &byte) in (start..).zip(payload) {
            assert_eq!(byte, pattern(position), "byte {position} of the stream");
        }
        let len = payload.len() as u64;
        Sent {
            at: self.now,
            departure,
            bytes: start..start + len,
            flags: tcp.flags,
            gso,
            segs: if gso == 0 { 1 } else { len.div_ceil(gso.into()) },
            truesize,
            tsval: tcp.options.timestamps.map_or(0, |timestamps| timestamps.value),
            pieces: Vec::new(),
            kept: None,
            ticket: None,
        }
    }

    /// The data packets handed out since the last call, by their place in the stream.
    pub(crate) fn news(&mut self) -> Vec<Range<u64>> {
        let from = std::mem::replace(&mut self.seen, self.sent.len());
        self.sent[from..].iter().filter(|sent| sent.len() > 0).map(|sent| sent.bytes.clone()).collect()
    }

    /// Names of the packets that are below TCP, in the order of sending.
    pub(crate) fn held(&self) -> Vec<usize> {
        (0..self.sent.len()).filter(|&name| self.sent[name].is_out()).collect()
    }

    /// Bytes below TCP, counted by the tickets.
    pub(crate) fn out(&self) -> u32 {
        self.sent.iter().filter(|sent| sent.is_out()).map(|sent| sent.truesize).sum()
    }

    /// That packet has left the host; the device asks for nothing yet.
    #[track_caller]
    pub(crate) fn complete_quietly(&mut self, name: usize) {
        self.sent[name].kept = None;
        let ticket = self.sent[name].ticket.take().expect("the packet is below TCP");
        self.stack.handle_tx(self.now, ticket, Fate::Left);
        self.check();
    }

    /// That packet has left the host.
    #[track_caller]
    pub(crate) fn complete(&mut self, name: usize) {
        self.complete_quietly(name);
        self.poll();
    }

    /// The device finds that it had no room for that packet, the one handed out last.
    #[track_caller]
    pub(crate) fn refuse(&mut self, name: usize) {
        self.give_back(name, Fate::Refused);
    }

    /// The device reports the fate of that packet.
    #[track_caller]
    pub(crate) fn give_back(&mut self, name: usize, fate: Fate) {
        self.sent[name].kept = None;
        let ticket = self.sent[name].ticket.take().expect("the packet is below TCP");
        self.stack.handle_tx(self.now, ticket, fate);
        self.poll();
    }

    /// The queue in front of the device took that packet, and says that it is full.
    #[track_caller]
    pub(crate) fn congested(&mut self, name: usize) {
        let ticket = self.sent[name].ticket.as_ref().expect("the packet is below TCP");
        let conn = ticket.data_of().expect("the packet carries data");
        self.stack.handle_tx_congestion(self.now, conn);
        self.poll();
    }

    /// The packets that the device keeps, as they are on a wire: without their tickets.
    pub(crate) fn take_packets(&mut self) -> Vec<KeptPacket> {
        self.sent.iter_mut().filter_map(|sent| sent.kept.take()).collect()
    }

    /// Everything that is below TCP now leaves the host.
    #[track_caller]
    pub(crate) fn complete_all(&mut self) {
        for name in self.held() {
            self.complete_quietly(name);
        }
        self.poll();
    }

    #[track_caller]
    fn check(&mut self) {
        let (now, out) = (self.now, self.out());
        if let Some(conn) = self.stack.conn_mut(self.id) {
            assert_eq!(conn.as_ref().info(now).wmem_alloc, out, "bytes below TCP are in the device");
        }
    }

    // ---- the peer ----

    /// The peer acknowledges everything before `upto`.
    #[track_caller]
    pub(crate) fn ack(&mut self, upto: u64) {
        self.ack_with(&Ack::of(upto));
    }

    /// The peer acknowledges everything that was sent.
    #[track_caller]
    pub(crate) fn ack_all(&mut self) {
        self.ack(self.sent.iter().map(|sent| sent.bytes.end).max().unwrap_or(0));
    }

    #[track_caller]
    pub(crate) fn ack_with(&mut self, ack: &Ack) {
        self.window = ack.window.unwrap_or(self.window);
        let first = self.iss.wrapping_add(1);
        let at = |position: u64| first.wrapping_add(position as u32);
        let options = TcpOptions {
            sack: ack.sack.iter().map(|block| (at(block.start), at(block.end))).collect(),
            ..TcpOptions::default()
        };
        let window = u16::try_from(self.window >> self.wscale).expect("the window fits its scale");
        let len = ack.payload as u32 + u32::from(ack.flags.contains(Flags::FIN));
        if ack.again {
            self.peer_sent -= len;
        }
        let seq = self.irs.wrapping_add(1).wrapping_add(self.peer_sent);
        self.peer_sent += len;
        self.inject(seq, at(ack.upto), ack.flags, window, options, &vec![0; ack.payload], ack.echo);
    }

    /// A super-packet of the peer's next bytes arrives in `buffer`, which the stack may take.
    #[track_caller]
    pub(crate) fn receive(&mut self, buffer: &mut Vec<u8>, payload: &[u8]) {
        let upto = self.written.min(self.sent.iter().map(|sent| sent.bytes.end).max().unwrap_or(0));
        let ack = self.iss.wrapping_add(1).wrapping_add(upto as u32);
        let seq = self.irs.wrapping_add(1).wrapping_add(self.peer_sent);
        self.peer_sent += payload.len() as u32;
        let window = u16::try_from(self.window >> self.wscale).expect("the window fits its scale");
        let header = self.header(seq, ack, Flags::ACK, window, TcpOptions::default(), None);
        let packet = trace::packet(self.peer.ip(), self.local.ip(), &header, payload);
        buffer[..packet.len()].copy_from_slice(&packet);
        let frame = Frame::Lend { buffer, range: 0..packet.len() };
        let packet = RxPacket { frame, checksum: RxChecksum::Verified, gso_size: MSS as u16 };
        self.stack.handle_packet(self.now, packet);
        self.poll();
    }

    fn header(
        &self,
        seq: u32,
        ack: u32,
        flags: Flags,
        window: u16,
        mut options: TcpOptions,
        echo: Option<u32>,
    ) -> TcpHeader {
        let latest = self.sent.last().map_or(0, |sent| sent.tsval);
        let value = (self.now.as_millis() as u32).wrapping_add(77_000);
        options.timestamps = Some(Timestamps { value, echo: echo.unwrap_or(latest) });
        let (src_port, dst_port) = (self.peer.port(), self.local.port());
        TcpHeader { src_port, dst_port, seq, ack, flags, window, urgent: 0, options }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a segment")]
    #[track_caller]
    fn inject(
        &mut self,
        seq: u32,
        ack: u32,
        flags: Flags,
        window: u16,
        options: TcpOptions,
        payload: &[u8],
        echo: Option<u32>,
    ) {
        let header = self.header(seq, ack, flags, window, options, echo);
        let packet = trace::packet(self.peer.ip(), self.local.ip(), &header, payload);
        let frame = Frame::Slice(&packet);
        let packet = RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 };
        self.stack.handle_packet(self.now, packet);
        self.poll();
    }

    // ---- the clock ----

    /// Time passes; timers fire exactly when they are due.
    #[track_caller]
    pub(crate) fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while self.fire(end) {}
        self.now = end;
    }

    /// The thread that drives the stack sleeps, and wakes up at `at`: timers that were due before fire late.
    #[track_caller]
    pub(crate) fn sleep_until(&mut self, at: Instant) {
        assert!(at >= self.now);
        self.now = at;
        self.stack.handle_timeout(at);
        self.poll();
    }

    /// Advances until the next packet leaves by itself; returns how long that took. Panics if nothing leaves
    /// for `limit`.
    #[track_caller]
    pub(crate) fn advance_to_send(&mut self, limit: Duration) -> Duration {
        let (start, count) = (self.now, self.sent.len());
        while self.fire(start + limit) {
            if self.sent.len() > count {
                return self.now.since(start);
            }
        }
        panic!("nothing was sent for {limit:?}")
    }

    /// Advances to the next timer, not beyond `end`. Returns false when there is none.
    #[track_caller]
    fn fire(&mut self, end: Instant) -> bool {
        let Some((at, _)) = self.stack.poll_timeout().filter(|&(at, _)| at <= end) else { return false };
        self.spins = if at > self.now { 0 } else { self.spins + 1 };
        assert!(self.spins < 1_000, "a timer fires again and again: {}", self.blocked());
        self.now = self.now.max(at);
        self.stack.handle_timeout(self.now);
        self.poll();
        true
    }

    // ---- into a known state ----

    /// Sets SO_MAX_PACING_RATE below the rate that window and RTT give, so that it is exactly the pacing
    /// rate. Switches pacing on: internal, or only departure stamps on a link that paces.
    #[track_caller]
    pub(crate) fn limit_rate(&mut self, bytes_per_sec: u64) {
        self.set(SetOption::MaxPacingRate(bytes_per_sec));
        assert_eq!(self.info().pacing_rate, bytes_per_sec, "the rate was higher before");
    }

    /// Sends and acknowledges, in round trips of `rtt`, until the congestion window has at least `segments`,
    /// and leaves nothing queued, in flight or below TCP.
    #[track_caller]
    pub(crate) fn grow_cwnd(&mut self, segments: u32, rtt: Duration) {
        let device = std::mem::replace(&mut self.device, Device::Completes);
        for _ in 0..10_000 {
            if self.info().snd_cwnd >= segments {
                break;
            }
            let len = u64::from(self.info().snd_cwnd + 10) * MSS;
            let _ = self.try_write(len, WriteFlags::default());
            self.advance(rtt);
            self.ack_all();
        }
        assert!(self.info().snd_cwnd >= segments, "{:#?}", self.info());
        self.finish(rtt);
        self.device = device;
        self.news();
        self.writable_events();
    }

    /// Round trips of `rtt` until everything written is acknowledged.
    #[track_caller]
    pub(crate) fn finish(&mut self, rtt: Duration) {
        for _ in 0..1_000 {
            if self.info().bytes_acked == self.written {
                return;
            }
            self.advance(rtt);
            self.ack_all();
        }
        panic!("the transfer does not end: {:#?}", self.info());
    }
}
