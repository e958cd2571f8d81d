//! One stack against a peer made by hand, so that a test reads like a packet trace.
//!
//! Sequence numbers are relative: on both sides the SYN is 0 and the first byte of data is 1. The peer's
//! initial sequence number is chosen so that the real ones wrap early.
//!
//! ```text
//!   inject!(t, "S", seq(0), win(65_535), mss(1460), sackok());    the peer sends
//!   expect!(t, "S.", seq(0), ack(1), mss(1460));                  the stack has sent; only what is stated is compared
//!   expect!(t, "S.", seq(0), after_ms(1_000));                    it sends exactly this long after the line above
//!   expect_nothing!(t);                                           it has sent nothing more
//!   expect_nothing!(t, for_ms 500);                               and will not
//! ```

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use taut_core::config::MemoryUse;
use taut_core::{
    ConnId, ConnInfo, ConnMut, ConnOptions, Duration, Event, Fate, Frame, Instant, LinkCaps, ListenOptions,
    ListenerId, Offload, ReadError, RxChecksum, RxPacket, Stack, StackConfig, State, Transmit, TxTicket,
    WriteError,
};
use taut_wire::{
    AccEcn, Ecn, FastOpen, Flags, IpHeader, TcpHeader, TcpOptions, Timestamps, Unreachable, icmp, protocol,
    tcp,
};

use super::pattern;

/// A segment to inject or to expect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seg {
    flags: Flags,
    seq: Option<u32>,
    ack: Option<u32>,
    win: Option<u16>,
    len: usize,
    mss: Option<u16>,
    wscale: Option<u8>,
    sackok: bool,
    ts: Option<Option<Timestamps>>,
    sack: Option<Vec<(u32, u32)>>,
    urgent: u16,
    pub(crate) gso: u16,
    after_ms: Option<u64>,
    port: Option<u16>,
    ecn: Option<Ecn>,
    accecn: Option<AccEcn>,
    fast_open: Option<FastOpen>,
}

/// `S` SYN, `F` FIN, `R` RST, `P` PSH, `U` URG, `.` ACK, `E` ECE, `W` CWR, `A` AE.
pub(crate) fn flags(text: &str) -> Flags {
    text.chars().fold(Flags::NONE, |flags, c| {
        flags
            | match c {
                'S' => Flags::SYN,
                'F' => Flags::FIN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                'U' => Flags::URG,
                '.' => Flags::ACK,
                'E' => Flags::ECE,
                'W' => Flags::CWR,
                'A' => Flags::AE,
                other => panic!("unknown flag {other}"),
            }
    })
}

impl Seg {
    pub(crate) fn new(text: &str) -> Self {
        Self { flags: flags(text), ..Self::default() }
    }

    pub(crate) fn seq(self, seq: u32) -> Self {
        Self { seq: Some(seq), ..self }
    }

    pub(crate) fn ack(self, ack: u32) -> Self {
        Self { ack: Some(ack), ..self }
    }

    pub(crate) fn win(self, win: u16) -> Self {
        Self { win: Some(win), ..self }
    }

    /// Payload bytes; 0 unless stated, also when expected.
    pub(crate) fn len(self, len: usize) -> Self {
        Self { len, ..self }
    }

    pub(crate) fn mss(self, mss: u16) -> Self {
        Self { mss: Some(mss), ..self }
    }

    pub(crate) fn wscale(self, shift: u8) -> Self {
        Self { wscale: Some(shift), ..self }
    }

    pub(crate) fn sackok(self) -> Self {
        Self { sackok: true, ..self }
    }

    /// Timestamps other than those the peer's clock gives.
    pub(crate) fn ts(self, value: u32, echo: u32) -> Self {
        Self { ts: Some(Some(Timestamps { value, echo })), ..self }
    }

    /// No timestamps, though they were agreed on.
    pub(crate) fn nots(self) -> Self {
        Self { ts: Some(None), ..self }
    }

    pub(crate) fn sack(self, blocks: &[(u32, u32)]) -> Self {
        Self { sack: Some(blocks.to_vec()), ..self }
    }

    pub(crate) fn urgent(self, pointer: u16) -> Self {
        Self { urgent: pointer, ..self }
    }

    pub(crate) fn gso(self, gso: u16) -> Self {
        Self { gso, ..self }
    }

    /// From another port of the peer.
    pub(crate) fn port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// ECN field of the packet; not ECN-capable unless stated, and compared only if stated.
    pub(crate) fn ecn(self, ecn: Ecn) -> Self {
        Self { ecn: Some(ecn), ..self }
    }

    /// The AccECN option; compared only if stated.
    pub(crate) fn accecn(self, accecn: AccEcn) -> Self {
        Self { accecn: Some(accecn), ..self }
    }

    /// TCP Fast Open's option.
    pub(crate) fn fast_open(self, fast_open: FastOpen) -> Self {
        Self { fast_open: Some(fast_open), ..self }
    }

    pub(crate) fn after_ms(self, ms: u64) -> Self {
        Self { after_ms: Some(ms), ..self }
    }
}

/// A segment that the stack sent, in relative numbers.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) at: Instant,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) win: u16,
    pub(crate) options: TcpOptions,
    pub(crate) sack: Vec<(u32, u32)>,
    pub(crate) payload: Vec<u8>,
    pub(crate) ecn: Ecn,
    pub(crate) wire: TcpHeader,
    /// The whole packet.
    pub(crate) bytes: Vec<u8>,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
}

impl Got {
    /// TCP Fast Open's option.
    pub(crate) fn fast_open(&self) -> Option<FastOpen> {
        let at = self.bytes.len() - self.payload.len() - self.options_len();
        FastOpen::find(&self.bytes[at..at + self.options_len()])
    }

    fn options_len(&self) -> usize {
        let tcp = if self.src.is_ipv4() { 20 } else { 40 };
        usize::from(self.bytes[tcp + 12] >> 4) * 4 - 20
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.flags.contains(flags(text))
    }
}

/// The peer's offer in its SYN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) mss: Option<u16>,
    pub(crate) wscale: Option<u8>,
    pub(crate) sackok: bool,
    pub(crate) ts: bool,
    pub(crate) win: u16,
}

impl Offer {
    /// Everything.
    pub(crate) const ALL: Self =
        Self { mss: Some(1460), wscale: Some(7), sackok: true, ts: true, win: 65_535 };
    /// Easy numbers: segments of 1000 bytes, an unscaled window, SACK, no timestamps.
    pub(crate) const EASY: Self =
        Self { mss: Some(1000), wscale: None, sackok: true, ts: false, win: 65_535 };

    fn on(self, mut seg: Seg) -> Seg {
        seg.mss = self.mss;
        seg.wscale = self.wscale;
        seg.sackok = self.sackok;
        seg.win = Some(self.win);
        seg
    }
}

pub(crate) struct Trace {
    pub(crate) stack: Stack,
    pub(crate) now: Instant,
    pub(crate) id: Option<ConnId>,
    pub(crate) listener: Option<ListenerId>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) out: VecDeque<Got>,
    /// ICMP messages that came out.
    pub(crate) icmp: Vec<Vec<u8>>,
    /// Tickets, when `hold_tickets`.
    pub(crate) tickets: VecDeque<TxTicket>,
    pub(crate) hold_tickets: bool,
    /// A queue of the host drops every packet, at these times.
    pub(crate) drop_all: bool,
    pub(crate) dropped_at: Vec<Instant>,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// Initial sequence numbers: the stack's once it is known, and the peer's.
    pub(crate) iss: u32,
    pub(crate) irs: u32,
    /// The peer puts timestamps into everything.
    pub(crate) ts: bool,
    pub(crate) last_tsval: u32,
    /// The link completes checksums and cuts segments.
    offloads: bool,
    mark: Instant,
}

const START: Instant = Instant::from_nanos(5_000_000_000);

impl Trace {
    pub(crate) fn new() -> Self {
        Self::with(StackConfig::default())
    }

    pub(crate) fn with(config: StackConfig) -> Self {
        Self::on(config, LinkCaps::plain(1_500), "192.0.2.1", "192.0.2.2")
    }

    pub(crate) fn v6() -> Self {
        Self::on(StackConfig::default(), LinkCaps::plain(1_500), "2001:db8::1", "2001:db8::2")
    }

    pub(crate) fn on(mut config: StackConfig, caps: LinkCaps, own: &str, peer: &str) -> Self {
        config.addresses = vec![own.parse().unwrap()];
        Self {
            stack: Stack::new(Arc::new(config), caps, [42; 32]),
            now: START,
            id: None,
            listener: None,
            events: VecDeque::new(),
            out: VecDeque::new(),
            icmp: Vec::new(),
            tickets: VecDeque::new(),
            hold_tickets: false,
            drop_all: false,
            dropped_at: Vec::new(),
            local: SocketAddr::new(own.parse().unwrap(), 80),
            peer: SocketAddr::new(peer.parse().unwrap(), 40_000),
            iss: 0,
            irs: 0xffff_f000,
            ts: false,
            last_tsval: 0,
            offloads: caps.tx_checksum,
            mark: START,
        }
    }

    // ---- ways to begin ----

    pub(crate) fn listen(&mut self) -> ListenerId {
        self.listen_with(ListenOptions::default())
    }

    pub(crate) fn listen_with(&mut self, options: ListenOptions) -> ListenerId {
        let id = self.stack.listen(self.local, options).unwrap();
        self.listener = Some(id);
        id
    }

    pub(crate) fn connect(&mut self) -> ConnId {
        self.connect_with(&ConnOptions::default())
    }

    pub(crate) fn connect_with(&mut self, options: &ConnOptions) -> ConnId {
        self.peer.set_port(80);
        let id = self.stack.connect(self.now, self.peer, options).unwrap();
        self.id = Some(id);
        self.mark = self.now;
        self.poll();
        if let Some(syn) = self.out.front_mut() {
            self.iss = syn.wire.seq;
            self.local = syn.src;
            syn.seq = 0;
        }
        id
    }

    /// The peer's SYN.
    pub(crate) fn syn(&mut self, offer: Offer) {
        self.ts = offer.ts;
        let syn = offer.on(Seg::new("S").seq(0).ack(0));
        self.inject(&syn);
    }

    /// The peer's SYN-ACK.
    pub(crate) fn syn_ack(&mut self, offer: Offer) {
        self.ts = offer.ts;
        let syn = offer.on(Seg::new("S.").seq(0).ack(1));
        self.inject(&syn);
    }

    /// Passive open, all the way.
    #[track_caller]
    pub(crate) fn accept(&mut self, offer: Offer) {
        self.accept_with(offer, ListenOptions::default());
    }

    #[track_caller]
    pub(crate) fn accept_with(&mut self, offer: Offer, options: ListenOptions) {
        let listener = self.listen_with(options);
        self.syn(offer);
        self.expect(&Seg::new("S.").seq(0).ack(1));
        self.inject(&Seg::new(".").seq(1).ack(1).win(offer.win));
        let (id, _) = self.stack.accept(listener).expect("the handshake is complete");
        self.id = Some(id);
        self.expect_nothing();
    }

    /// A stack and an established connection with it, which the peer began.
    #[track_caller]
    pub(crate) fn accepted(offer: Offer) -> Self {
        let mut trace = Self::new();
        trace.accept(offer);
        trace
    }

    /// Active open, all the way.
    #[track_caller]
    pub(crate) fn establish(&mut self, offer: Offer, options: &ConnOptions) {
        self.connect_with(options);
        self.expect(&Seg::new("S").seq(0));
        self.syn_ack(offer);
        self.expect(&Seg::new(".").seq(1).ack(1));
        self.expect_nothing();
    }

    /// A stack and an established connection that it began.
    #[track_caller]
    pub(crate) fn connected(offer: Offer) -> Self {
        let mut trace = Self::new();
        trace.establish(offer, &ConnOptions::default());
        trace
    }

    // ---- the application ----

    #[track_caller]
    pub(crate) fn conn(&mut self) -> ConnMut<'_> {
        self.stack.conn_mut(self.id.expect("there is a connection")).expect("it is held")
    }

    #[track_caller]
    pub(crate) fn info(&mut self) -> ConnInfo {
        let now = self.now;
        self.conn().as_ref().info(now)
    }

    #[track_caller]
    pub(crate) fn state(&mut self) -> State {
        self.conn().as_ref().state()
    }

    /// Writes `len` bytes of the pattern; all must fit.
    #[track_caller]
    pub(crate) fn write(&mut self, len: usize) {
        let now = self.now;
        let data: Vec<u8> = (0..len as u64).map(pattern).collect();
        assert_eq!(self.conn().write(now, &data), Ok(len));
        self.mark = now;
    }

    /// Reads `len` bytes, no more and no less.
    #[track_caller]
    pub(crate) fn read(&mut self, len: usize) {
        let now = self.now;
        let mut buffer = vec![0; len];
        let mut got = 0;
        while got < len {
            got += self.conn().read(now, &mut buffer[got..]).unwrap();
        }
        self.mark = now;
    }

    /// One read, with any result.
    #[track_caller]
    pub(crate) fn try_read(&mut self) -> Result<usize, ReadError> {
        let now = self.now;
        self.conn().read(now, &mut [0; 1_000])
    }

    /// One write of a byte, with any result.
    #[track_caller]
    pub(crate) fn try_write(&mut self) -> Result<usize, WriteError> {
        let now = self.now;
        self.conn().write(now, b"x")
    }

    #[track_caller]
    pub(crate) fn shutdown(&mut self) {
        let now = self.now;
        self.conn().shutdown_write(now).unwrap();
        self.mark = now;
    }

    #[track_caller]
    pub(crate) fn close(&mut self) {
        let now = self.now;
        self.conn().close(now);
        self.mark = now;
    }

    /// The next event, if any.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.poll();
        self.events.pop_front()
    }

    /// Nothing of any connection is left.
    #[track_caller]
    pub(crate) fn expect_gone(&mut self) {
        self.poll();
        assert_eq!((self.stack.connections(), self.stack.time_waits()), (0, 0));
        assert_eq!((self.stack.memory_use(), self.stack.orphans()), (MemoryUse::default(), 0));
    }

    // ---- the wire ----

    /// Takes everything that wants to leave.
    pub(crate) fn poll(&mut self) {
        while let Some(Transmit { packet, ticket }) = self.stack.poll_transmit(self.now) {
            let bytes = packet.to_vec();
            let complete = packet.offload == Offload::None;
            assert!(complete || self.offloads, "the link does nothing of {:?}", packet.offload);
            if self.drop_all {
                self.stack.handle_tx(self.now, ticket, Fate::Dropped);
                self.dropped_at.push(self.now);
                continue;
            }
            if self.hold_tickets {
                self.tickets.push_back(ticket);
            } else {
                self.stack.handle_tx(self.now, ticket, Fate::Left);
            }
            self.note(&bytes, complete);
        }
        while let Some(event) = self.stack.poll_event() {
            self.events.push_back(event);
        }
    }

    fn note(&mut self, bytes: &[u8], complete: bool) {
        let ip = IpHeader::parse(bytes).expect("what the stack sends is IP");
        assert_eq!(ip.header_len + ip.payload_len, bytes.len(), "the length in the IP header");
        if ip.protocol != protocol::TCP {
            self.icmp.push(bytes.to_vec());
            return;
        }
        let segment = &bytes[ip.header_len..];
        let (wire, len) = TcpHeader::parse(segment).expect("what the stack sends is TCP");
        if complete {
            assert!(tcp::verify(ip.src, ip.dst, segment, &[]), "the checksum is right");
        } else {
            let field = u16::from_be_bytes([segment[16], segment[17]]);
            let begun = tcp::partial_checksum(ip.src, ip.dst, segment.len() as u32);
            assert_eq!(field, begun, "the part of the checksum that the link completes");
        }
        if wire.flags.contains(Flags::SYN) && !wire.flags.contains(Flags::RST) {
            self.iss = wire.seq;
        }
        if let Some(timestamps) = wire.options.timestamps {
            self.last_tsval = timestamps.value;
        }
        let (iss, irs) = (self.iss, self.irs);
        self.out.push_back(Got {
            at: self.now,
            flags: wire.flags,
            seq: wire.seq.wrapping_sub(iss),
            ack: wire.ack.wrapping_sub(irs),
            win: wire.window,
            sack: wire
                .options
                .sack
                .iter()
                .map(|(left, right)| (left.wrapping_sub(irs), right.wrapping_sub(irs)))
                .collect(),
            options: wire.options,
            payload: segment[len..].to_vec(),
            ecn: ip.ecn,
            wire,
            bytes: bytes.to_vec(),
            src: SocketAddr::new(ip.src, wire.src_port),
            dst: SocketAddr::new(ip.dst, wire.dst_port),
        });
    }

    /// The peer's timestamp clock: milliseconds, another origin.
    pub(crate) fn peer_clock(&self) -> u32 {
        (self.now.as_millis() as u32).wrapping_add(77_000)
    }

    /// The bytes of a segment from the peer.
    pub(crate) fn build(&self, seg: &Seg) -> Vec<u8> {
        let timestamps = match seg.ts {
            Some(explicit) => explicit,
            None => self.ts.then(|| Timestamps { value: self.peer_clock(), echo: self.last_tsval }),
        };
        let (iss, irs) = (self.iss, self.irs);
        let sack = seg.sack.iter().flatten();
        let header = TcpHeader {
            src_port: seg.port.unwrap_or(self.peer.port()),
            dst_port: self.local.port(),
            seq: seg.seq.unwrap_or(1).wrapping_add(irs),
            ack: if seg.flags.contains(Flags::ACK) { seg.ack.unwrap_or(1).wrapping_add(iss) } else { 0 },
            flags: seg.flags,
            window: seg.win.unwrap_or(65_535),
            urgent: seg.urgent,
            options: TcpOptions {
                mss: seg.mss,
                window_scale: seg.wscale,
                sack_permitted: seg.sackok,
                timestamps,
                sack: sack.map(|&(left, right)| (left.wrapping_add(iss), right.wrapping_add(iss))).collect(),
                accecn: seg.accecn,
            },
        };
        // The first byte of data has number 1, or follows a SYN of number 0.
        let syn = u64::from(seg.flags.contains(Flags::SYN));
        let first = u64::from(seg.seq.unwrap_or(1)).wrapping_add(syn).wrapping_sub(1);
        let payload: Vec<u8> = (0..seg.len as u64).map(|at| pattern(first.wrapping_add(at))).collect();
        let ends = (self.peer.ip(), self.local.ip(), seg.ecn.unwrap_or_default());
        marked_packet(ends, &header, seg.fast_open, &payload)
    }

    pub(crate) fn inject(&mut self, seg: &Seg) {
        let bytes = self.build(seg);
        self.inject_bytes(&bytes, seg.gso);
    }

    pub(crate) fn inject_bytes(&mut self, bytes: &[u8], gso_size: u16) {
        self.handle(bytes, gso_size);
        self.poll();
    }

    /// [`inject`](Self::inject) without taking the stack's output yet.
    pub(crate) fn inject_unpolled(&mut self, seg: &Seg) {
        let bytes = self.build(seg);
        self.handle(&bytes, seg.gso);
    }

    fn handle(&mut self, bytes: &[u8], gso_size: u16) {
        let packet = RxPacket { frame: Frame::Slice(bytes), checksum: RxChecksum::Unverified, gso_size };
        self.stack.handle_packet(self.now, packet);
        self.mark = self.now;
    }

    /// The device refuses the next packet. Returns the length of its payload.
    pub(crate) fn refuse(&mut self) -> usize {
        let Transmit { packet, ticket } = self.stack.poll_transmit(self.now).expect("there is a packet");
        let len = packet.payload.len();
        self.stack.handle_tx(self.now, ticket, Fate::Refused);
        len
    }

    /// A router sends an ICMP error about a packet of the stack.
    pub(crate) fn inject_icmp(&mut self, code: Unreachable, quoted: &[u8]) {
        let router: IpAddr =
            if self.local.is_ipv4() { "198.51.100.1" } else { "2001:db8:ffff::1" }.parse().unwrap();
        let dst = self.local.ip();
        let (at, protocol) = if dst.is_ipv4() { (20, protocol::ICMP) } else { (40, protocol::ICMPV6) };
        let mut bytes = vec![0; at + 1_240];
        let payload_len = icmp::emit_unreachable(&mut bytes[at..], router, dst, code, quoted);
        let ip = IpHeader {
            src: router,
            dst,
            protocol,
            hop_limit: 64,
            ecn: Ecn::NotEct,
            header_len: at,
            payload_len,
        };
        ip.emit(&mut bytes, 0);
        bytes.truncate(at + payload_len);
        self.inject_bytes(&bytes, 0);
    }

    /// The next packet of the stack, which must be as described.
    #[track_caller]
    pub(crate) fn expect(&mut self, want: &Seg) -> Got {
        self.poll();
        if want.after_ms.is_some() {
            assert!(self.out.is_empty(), "already sent: {:#?}", self.out);
            let limit = self.now + Duration::from_secs(100_000);
            while self.out.is_empty() && self.step(limit) {}
        }
        let Some(got) = self.out.pop_front() else { panic!("nothing was sent; expected {want:?}") };
        if let Some(ms) = want.after_ms {
            let waited = got.at.since(self.mark).as_millis();
            assert_eq!(waited, ms, "ms waited for {got:?}");
        }
        let mut flags = got.flags;
        if !want.flags.contains(Flags::PSH) {
            flags = flags.without(Flags::PSH);
        }
        assert_eq!(flags, want.flags, "flags of {got:?}");
        let check = |name: &str, want: Option<u32>, is: u32| {
            if let Some(want) = want {
                assert_eq!(is, want, "{name} of {got:?}");
            }
        };
        check("seq", want.seq, got.seq);
        check("ack", want.ack, got.ack);
        check("win", want.win.map(u32::from), got.win.into());
        assert_eq!(got.payload.len(), want.len, "payload bytes of {got:?}");
        if let Some(ecn) = want.ecn {
            assert_eq!(got.ecn, ecn, "ECN field of {got:?}");
        }
        if want.accecn.is_some() {
            assert_eq!(got.options.accecn, want.accecn, "{got:?}");
        }
        if want.mss.is_some() {
            assert_eq!(got.options.mss, want.mss, "{got:?}");
        }
        if want.wscale.is_some() {
            assert_eq!(got.options.window_scale, want.wscale, "{got:?}");
        }
        assert!(!want.sackok || got.options.sack_permitted, "{got:?}");
        if let Some(Some(ts)) = want.ts {
            assert_eq!(got.options.timestamps, Some(ts), "{got:?}");
        }
        if want.ts == Some(None) {
            assert_eq!(got.options.timestamps, None, "{got:?}");
        }
        if let Some(sack) = &want.sack {
            assert_eq!(&got.sack, sack, "SACK blocks of {got:?}");
        }
        self.mark = got.at;
        got
    }

    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        self.poll();
        assert!(self.out.is_empty(), "sent: {:#?}", self.out);
    }

    /// Goes to the next timer, not beyond `limit`. False when there is none.
    pub(crate) fn step(&mut self, limit: Instant) -> bool {
        self.poll();
        match self.stack.poll_timeout() {
            Some((at, _)) if at <= limit => {
                self.now = self.now.max(at);
                self.stack.handle_timeout(self.now);
                self.poll();
                true
            }
            _ => {
                self.now = self.now.max(limit);
                false
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn wait_ms(&mut self, ms: u64) {
        let limit = self.now + Duration::from_millis(ms);
        while self.step(limit) {}
        self.mark = self.now;
    }

    pub(crate) fn wait_s(&mut self, s: u64) {
        self.wait_ms(s * 1_000);
    }
}

/// A whole IP packet.
pub(crate) fn packet(src: IpAddr, dst: IpAddr, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    marked_packet((src, dst, Ecn::NotEct), header, None, payload)
}

fn marked_packet(
    (src, dst, ecn): (IpAddr, IpAddr, Ecn),
    header: &TcpHeader,
    fast_open: Option<FastOpen>,
    payload: &[u8],
) -> Vec<u8> {
    let option_len = fast_open.map_or(0, |option| option.emitted_len());
    let header_len = if src.is_ipv4() { 20 } else { 40 };
    let ip = IpHeader {
        src,
        dst,
        protocol: protocol::TCP,
        hop_limit: 64,
        ecn,
        header_len,
        payload_len: header.header_len() + option_len + payload.len(),
    };
    let mut bytes = vec![0; header_len + header.header_len() + option_len];
    ip.emit(&mut bytes, 0);
    let len = header.emit(&mut bytes[header_len..]);
    if let Some(option) = fast_open {
        assert!(option.append(&mut bytes[header_len..], len) > len, "the option fits");
    }
    let sum = tcp::full_checksum(src, dst, &bytes[header_len..], &[payload]);
    tcp::set_checksum(&mut bytes[header_len..], sum);
    bytes.extend_from_slice(payload);
    bytes
}

#[allow(unused_macros, reason = "each test binary uses a part of it")]
macro_rules! inject {
    ($trace:expr, $flags:literal $(, $field:ident($($value:expr),*))* $(,)?) => {
        $trace.inject(&$crate::support::trace::Seg::new($flags)$(.$field($($value),*))*)
    };
}

#[allow(unused_macros, reason = "each test binary uses a part of it")]
macro_rules! expect {
    ($trace:expr, $flags:literal $(, $field:ident($($value:expr),*))* $(,)?) => {
        $trace.expect(&$crate::support::trace::Seg::new($flags)$(.$field($($value),*))*)
    };
}

#[allow(unused_macros, reason = "each test binary uses a part of it")]
macro_rules! expect_nothing {
    ($trace:expr) => {
        $trace.expect_nothing()
    };
    ($trace:expr, for_ms $ms:expr) => {{
        $trace.expect_nothing();
        $trace.wait_ms($ms);
        $trace.expect_nothing();
    }};
}
