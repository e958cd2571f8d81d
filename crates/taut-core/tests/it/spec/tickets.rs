//! Random worlds: two stacks whose devices complete, delay, refuse and drop as they like, between
//! applications that write, read, set options and close as they like. Whatever the order:
//!
//! - the bytes that a connection counts as below TCP are those that the device holds, and none once every
//!   ticket came back;
//! - every wait is ended by an event that is still to come: a completion, an ACK, a timer;
//! - an application that found no room is notified when there is some;
//! - everything written arrives in order, or the connection has failed.
//!
//! A failure names its seed; `TAUT_SPEC_SEED=<seed> cargo test -p taut-core --test it tickets_` runs it
//! alone.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use taut_core::{
    Algorithm, AutocorkMode, AutosizeMode, Blocked, ConnId, ConnOptions, Duration, Event, Fate, Frame,
    Instant, LinkCaps, ListenOptions, LowatMode, Offload, PacingMode, RxChecksum, RxPacket, SetOption, Stack,
    StackConfig, State, Transmit, TsqMode, TxTicket, WriteFlags,
};
use taut_wire::{IpHeader, TcpHeader};

use crate::support::{A, B, Rng, config, pattern};

const PORT: u16 = 80;

/// A packet in flight.
#[derive(Clone)]
struct Packet {
    bytes: Vec<u8>,
    gso_size: u16,
}

/// A packet below TCP, and the port of the connection it belongs to.
struct Held {
    ticket: TxTicket,
    port: u16,
}

/// One end of a connection, as its application sees it.
#[derive(Default)]
struct End {
    id: Option<ConnId>,
    written: u64,
    read: u64,
    /// A write found no room, and no event has reported room since.
    waiting: bool,
    shut: bool,
    /// The application has released the connection.
    released: bool,
    failed: bool,
}

struct Worlds {
    seed: u64,
    rng: Rng,
    now: Instant,
    stacks: [Stack; 2],
    /// By side; the port is the client's.
    ends: [Vec<End>; 2],
    ports: Vec<u16>,
    held: [Vec<Held>; 2],
    /// To stack 0 and to stack 1.
    wires: [VecDeque<Packet>; 2],
    /// Packets and segments that each device took.
    took: [(u64, u64); 2],
    /// Per mille.
    refuse: u64,
    drop: u64,
    congest: u64,
    lose: u64,
    /// Counts of what the devices did, over all worlds.
    tally: Tally,
}

/// How often something was exercised, by its name.
type Tally = BTreeMap<&'static str, u64>;

/// A random one of these.
fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize].clone()
}

fn random_config(rng: &mut Rng, address: &str) -> StackConfig {
    let mut config = config(address).with(|c| {
        c.send.tsq = pick(
            rng,
            &[
                TsqMode::Off,
                TsqMode::Fixed { cap_bytes: 40_000 },
                TsqMode::Fixed { cap_bytes: 3_000 },
                TsqMode::RateScaled,
                TsqMode::RateScaled,
            ],
        );
        c.send.autosizing = pick(rng, &[AutosizeMode::Off, AutosizeMode::AtWrite, AutosizeMode::AtTransmit]);
        c.send.autocork = pick(
            rng,
            &[AutocorkMode::Off, AutocorkMode::MayHoldHead, AutocorkMode::Fixed, AutocorkMode::Stream],
        );
        c.send.lowat = pick(rng, &[LowatMode::WakeAtMark, LowatMode::WakeAtHalf]);
        c.send.pacing =
            pick(rng, &[PacingMode::Off, PacingMode::Internal, PacingMode::Delegated, PacingMode::Auto]);
        c.send.limit_output_bytes = pick(rng, &[4_194_304, 4_194_304, 65_536, 3_000]);
        c.send.notsent_lowat = pick(rng, &[u32::MAX, 0, 16_384, 1]);
        c.tcp.sack = !rng.chance(200);
        c.tcp.timestamps = !rng.chance(200);
        c.congestion.control = pick(rng, &Algorithm::built_in());
    });
    if rng.chance(300) {
        config.send.wmem.initial = 4_608;
        config.send.wmem.max = 40_000;
    }
    config
}

fn random_caps(rng: &mut Rng) -> LinkCaps {
    let caps = if rng.chance(400) { LinkCaps::plain(1_500) } else { LinkCaps::offloading(1_500) };
    LinkCaps { paces: rng.chance(300), pacing_shift: pick(rng, &[10, 10, 7]), ..caps }
}

fn random_options(rng: &mut Rng) -> ConnOptions {
    ConnOptions {
        nodelay: rng.chance(300),
        notsent_lowat: pick(rng, &[0, 0, 5_000]),
        sndbuf: pick(rng, &[None, None, Some(8_000), Some(100_000)]),
        rcvbuf: pick(rng, &[None, None, Some(3_000), Some(30_000)]),
        max_pacing_rate: pick(rng, &[None, None, Some(50_000), Some(5_000_000)]),
        maxseg: pick(rng, &[None, None, None, Some(600)]),
        ..ConnOptions::default()
    }
}

impl Worlds {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut stack = |address, salt| {
            let config = random_config(&mut rng, address);
            Stack::new(Arc::new(config), random_caps(&mut rng), [salt; 32])
        };
        let stacks = [stack(A, 3), stack(B, 4)];
        let nasty = |rng: &mut Rng, per_mille| if rng.chance(500) { rng.below(per_mille) } else { 0 };
        let mut worlds = Self {
            seed,
            now: Instant::from_nanos(1_000_000_000),
            stacks,
            ends: [Vec::new(), Vec::new()],
            ports: Vec::new(),
            held: [Vec::new(), Vec::new()],
            wires: [VecDeque::new(), VecDeque::new()],
            took: [(0, 0); 2],
            refuse: nasty(&mut rng, 400),
            drop: nasty(&mut rng, 200),
            congest: nasty(&mut rng, 200),
            lose: nasty(&mut rng, 60),
            rng,
            tally: Tally::new(),
        };
        worlds.open();
        worlds
    }

    /// One to three connections, established over a link without faults.
    fn open(&mut self) {
        let to: SocketAddr = format!("{B}:{PORT}").parse().unwrap();
        let accepted = ListenOptions { conn: random_options(&mut self.rng), ..ListenOptions::default() };
        let listener = self.stacks[1].listen(to, accepted).unwrap();
        for _ in 0..1 + self.rng.below(3) {
            let options = random_options(&mut self.rng);
            let client = self.stacks[0].connect(self.now, to, &options).unwrap();
            self.ports.push(self.stacks[0].conn(client).unwrap().local_addr().port());
            let mut server = None;
            let delay = Duration::from_micros(self.rng.below(20_000));
            while server.is_none() {
                assert!(self.now < Instant::from_nanos(60_000_000_000), "the handshake of {}", self.seed);
                for side in [0, 1] {
                    self.transmit(side, usize::MAX, false);
                }
                self.now += delay;
                for side in [0, 1] {
                    self.deliver(side, usize::MAX, false);
                    self.stacks[side].handle_timeout(self.now);
                }
                server = self.stacks[1].accept(listener).map(|(id, _)| id);
            }
            self.ends[0].push(End { id: Some(client), ..End::default() });
            self.ends[1].push(End { id: server, ..End::default() });
        }
    }

    // ---- the devices and the wires ----

    /// Hands packets to a device, at most `count`.
    fn transmit(&mut self, side: usize, count: usize, faulty: bool) -> bool {
        let mut moved = false;
        for _ in 0..count {
            let now = self.now;
            let Some(Transmit { packet, ticket }) = self.stacks[side].poll_transmit(now) else {
                self.check_wakers(side);
                break;
            };
            moved = true;
            let bytes = packet.to_vec();
            let gso_size = match packet.offload {
                Offload::Segment { mss, .. } => mss,
                Offload::None | Offload::Checksum { .. } => 0,
            };
            let ip = IpHeader::parse(&bytes).unwrap();
            let (tcp, header_len) = TcpHeader::parse(&bytes[ip.header_len..]).unwrap();
            let payload = (bytes.len() - ip.header_len - header_len) as u64;
            let segs = if gso_size == 0 { 1 } else { payload.div_ceil(gso_size.into()) };
            let port = if side == 0 { tcp.src_port } else { tcp.dst_port };
            let (packets, segments) = self.took[side];
            if faulty && self.rng.chance(self.refuse) {
                // A reply to a segment without a connection is not offered twice.
                if ticket.truesize() == 0 {
                    self.took[side] = (packets + 1, segments + 1);
                }
                // The device is full: it asks for nothing until there is room.
                self.stacks[side].handle_tx(now, ticket, Fate::Refused);
                *self.tally.entry("refused").or_default() += 1;
                self.check(side);
                break;
            }
            if faulty && self.rng.chance(self.drop) {
                // A pure ACK is gone; data was not sent.
                if ticket.truesize() <= 2 {
                    self.took[side] = (packets + 1, segments + 1);
                }
                self.stacks[side].handle_tx(now, ticket, Fate::Dropped);
                *self.tally.entry("dropped").or_default() += 1;
                self.check(side);
                continue;
            }
            if faulty && self.rng.chance(self.congest) {
                if let Some(conn) = ticket.data_of() {
                    self.stacks[side].handle_tx_congestion(now, conn);
                }
                *self.tally.entry("congested").or_default() += 1;
            }
            self.took[side] = (packets + 1, segments + segs);
            self.held[side].push(Held { ticket, port });
            self.wires[1 - side].push_back(Packet { bytes, gso_size });
            self.check(side);
        }
        moved
    }

    /// Gives some tickets back, in any order.
    fn complete(&mut self, side: usize, count: usize) -> bool {
        let count = count.min(self.held[side].len());
        for _ in 0..count {
            let at = self.rng.below(self.held[side].len() as u64) as usize;
            let held = self.held[side].swap_remove(at);
            self.stacks[side].handle_tx(self.now, held.ticket, Fate::Left);
            self.check(side);
        }
        count > 0
    }

    /// Packets arrive, mostly in order.
    fn deliver(&mut self, side: usize, count: usize, faulty: bool) -> bool {
        let count = count.min(self.wires[side].len());
        for _ in 0..count {
            let late = faulty && self.rng.chance(50);
            let at = if late { self.rng.below(self.wires[side].len() as u64) as usize } else { 0 };
            let packet = self.wires[side].remove(at).unwrap();
            if faulty && self.rng.chance(self.lose) {
                *self.tally.entry("lost").or_default() += 1;
                continue;
            }
            if faulty && self.rng.chance(10) {
                self.wires[side].push_back(packet.clone());
            }
            let frame = Frame::Slice(&packet.bytes);
            let packet = RxPacket { frame, checksum: RxChecksum::Verified, gso_size: packet.gso_size };
            self.stacks[side].handle_packet(self.now, packet);
            self.check(side);
        }
        count > 0
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        for side in [0, 1] {
            self.stacks[side].handle_timeout(self.now);
            self.check(side);
        }
    }

    // ---- the invariants ----

    /// The bytes that each connection counts as below TCP are those that the device holds.
    #[track_caller]
    fn check(&mut self, side: usize) {
        for (end, &port) in self.ends[side].iter().zip(&self.ports) {
            let Some(conn) = end.id.and_then(|id| self.stacks[side].conn_mut(id)) else { continue };
            let held = self.held[side].iter().filter(|held| held.port == port);
            let held: u32 = held.map(|held| held.ticket.truesize()).sum();
            assert_eq!(
                held,
                conn.as_ref().info(self.now).wmem_alloc,
                "seed {}, side {side}, port {port}",
                self.seed
            );
        }
    }

    /// The stack was asked until it had nothing: for whatever holds unsent data back, some event will end the
    /// wait.
    #[track_caller]
    fn check_wakers(&mut self, side: usize) {
        let timer = self.stacks[side].poll_timeout().map(|(at, _)| at);
        for (end, &port) in self.ends[side].iter().zip(&self.ports) {
            let Some(conn) = end.id.and_then(|id| self.stacks[side].conn_mut(id)) else { continue };
            let (info, blocked) = (conn.as_ref().info(self.now), conn.as_ref().blocked());
            if info.notsent_bytes == 0 || conn.as_ref().error().is_some() {
                continue;
            }
            let held = self.held[side].iter().any(|held| held.port == port && held.ticket.truesize() > 2);
            // An ACK or a timeout: with anything in flight there is a timer, too.
            let answer = timer.is_some() && info.unacked > 0;
            let wakes = match blocked {
                Blocked::Pacing { until } => timer.is_some_and(|at| at <= until),
                Blocked::SmallQueue | Blocked::Autocork => held,
                Blocked::Cwnd | Blocked::TsoDefer => answer,
                // These gates have a timer, even with nothing in flight.
                Blocked::PeerWindow | Blocked::Nagle | Blocked::Cork | Blocked::Device => timer.is_some(),
                _ => false,
            };
            assert!(wakes, "seed {}, side {side}: nothing ends {blocked}: {info:#?}", self.seed);
        }
    }

    fn events(&mut self) {
        for side in [0, 1] {
            while let Some(event) = self.stacks[side].poll_event() {
                let (Event::Writable(id) | Event::Failed(id, _)) = event else { continue };
                let Some(end) = self.ends[side].iter_mut().find(|end| end.id == Some(id)) else { continue };
                if matches!(event, Event::Writable(_)) {
                    *self.tally.entry("woken").or_default() += u64::from(end.waiting);
                    end.waiting = false;
                } else {
                    end.failed = true;
                }
            }
        }
    }

    // ---- the applications ----

    fn write(&mut self, side: usize, which: usize) {
        let len = match self.rng.below(4) {
            0 => 1 + self.rng.below(100),
            1 => 1 + self.rng.below(1_448),
            2 => 1_448 * (1 + self.rng.below(10)),
            _ => 1 + self.rng.below(60_000),
        };
        let flags = WriteFlags { more: self.rng.chance(100), eor: self.rng.chance(100) };
        let (now, end) = (self.now, &mut self.ends[side][which]);
        let Some(mut conn) = end.id.and_then(|id| self.stacks[side].conn_mut(id)) else { return };
        if end.shut || end.failed || end.written > 150_000 {
            return;
        }
        let data: Vec<u8> = (end.written..end.written + len).map(pattern).collect();
        let taken = conn.write_with(now, &data, flags).unwrap_or(0) as u64;
        end.written += taken;
        end.waiting |= taken < len;
    }

    /// Reads up to `len` bytes, and checks them.
    #[track_caller]
    fn read(&mut self, side: usize, which: usize, len: usize) -> bool {
        let (now, end) = (self.now, &mut self.ends[side][which]);
        let Some(mut conn) = end.id.and_then(|id| self.stacks[side].conn_mut(id)) else { return false };
        let mut buffer = vec![0; len];
        let count = conn.read(now, &mut buffer).unwrap_or(0);
        for &byte in &buffer[..count] {
            assert_eq!(byte, pattern(end.read), "seed {}: byte {}", self.seed, end.read);
            end.read += 1;
        }
        count > 0
    }

    fn set_option(&mut self, side: usize, which: usize) {
        let rng = &mut self.rng;
        let on = rng.chance(500);
        let option = match rng.below(10) {
            0 => SetOption::Nodelay(on),
            1 | 2 => SetOption::Cork(on),
            3 => SetOption::Quickack(on),
            4 => SetOption::NotsentLowat(pick(rng, &[0, 1, 5_000, 100_000])),
            5 => SetOption::Sndbuf(pick(rng, &[1, 20_000, 200_000])),
            6 | 7 => SetOption::MaxPacingRate(pick(rng, &[20_000, 1_000_000, 100_000_000, u64::MAX])),
            8 => SetOption::Congestion(pick(rng, &Algorithm::built_in())),
            _ => SetOption::TxDelay(Duration::from_micros(pick(rng, &[0, 500, 5_000]))),
        };
        let id = self.ends[side][which].id;
        if let Some(mut conn) = id.and_then(|id| self.stacks[side].conn_mut(id)) {
            conn.set_option(self.now, option).unwrap();
        }
    }

    fn set_sysctl(&mut self, side: usize) {
        let (name, value) = pick(
            &mut self.rng,
            &[
                ("taut.tsq", "off"),
                ("taut.tsq", "fixed:40000"),
                ("taut.tsq", "rate-scaled"),
                ("net.ipv4.tcp_limit_output_bytes", "4194304"),
                ("net.ipv4.tcp_limit_output_bytes", "2000"),
                ("net.ipv4.tcp_autocorking", "0"),
                ("net.ipv4.tcp_autocorking", "1"),
                ("net.ipv4.tcp_notsent_lowat", "4096"),
                ("net.ipv4.tcp_notsent_lowat", "4294967295"),
                ("net.ipv4.tcp_min_tso_segs", "20"),
            ],
        );
        self.stacks[side].set_sysctl(name, value).unwrap();
    }

    /// The application releases the connection, in one of the possible ways.
    fn release(&mut self, side: usize, which: usize, abort: bool) {
        let end = &mut self.ends[side][which];
        if let Some(conn) = end.id.take().and_then(|id| self.stacks[side].conn_mut(id)) {
            if abort { conn.abort(self.now) } else { conn.close(self.now) }
        }
        end.released = true;
    }

    /// Something happens.
    fn step(&mut self, closing: bool) {
        let side = self.rng.below(2) as usize;
        let which = self.rng.below(self.ports.len() as u64) as usize;
        let count = 1 + self.rng.below(12) as usize;
        match self.rng.below(100) {
            0..20 => self.write(side, which),
            20..28 => {
                let len = 1 + self.rng.below(30_000) as usize;
                self.read(side, which, len);
            }
            28..33 => self.set_option(side, which),
            33 => self.set_sysctl(side),
            34..55 => {
                self.transmit(side, count, true);
            }
            55..70 => {
                self.complete(side, count);
            }
            70..88 => {
                self.deliver(side, count, true);
            }
            88..98 => {
                let span = pick(&mut self.rng, &[10, 300, 3_000, 50_000]);
                let span = self.rng.below(span);
                self.pass(Duration::from_micros(span));
            }
            98 => {
                // Time passes to the next timer, if it is near.
                let next = self.stacks[side].poll_timeout().map_or(self.now, |(at, _)| at);
                self.pass(next.since(self.now));
            }
            _ if closing => {
                let abort = self.rng.chance(300);
                self.release(side, which, abort);
            }
            _ => {
                let end = &mut self.ends[side][which];
                if self.rng.chance(100)
                    && let Some(mut conn) = end.id.and_then(|id| self.stacks[side].conn_mut(id))
                {
                    end.shut = conn.shutdown_write(self.now).is_ok();
                }
            }
        }
        self.check(side);
        self.events();
    }

    /// Devices and wires work without faults, applications read but do not write, until nothing happens any
    /// more.
    #[track_caller]
    fn settle(&mut self) {
        for _ in 0..200_000 {
            let mut moved = false;
            for side in [0, 1] {
                moved |= self.transmit(side, usize::MAX, false);
                moved |= self.complete(side, usize::MAX);
            }
            for side in [0, 1] {
                moved |= self.deliver(side, usize::MAX, false);
                for which in 0..self.ports.len() {
                    moved |= self.read(side, which, 100_000);
                }
            }
            self.events();
            if moved {
                // A round trip takes a while.
                self.pass(Duration::from_micros(1_000));
                continue;
            }
            let next = self.stacks.iter().filter_map(Stack::poll_timeout).map(|(at, _)| at).min();
            let Some(next) = next else { return };
            self.pass(next.since(self.now));
        }
        panic!("seed {} never becomes idle", self.seed);
    }

    /// Everything written arrived, every ticket came back, and every application that waited was notified.
    #[track_caller]
    fn check_delivered(&mut self) {
        for which in 0..self.ports.len() {
            if self.ends.iter().any(|ends| ends[which].failed) {
                *self.tally.entry("failed").or_default() += 1;
                continue;
            }
            for side in [0, 1] {
                let (from, to) = (&self.ends[side][which], &self.ends[1 - side][which]);
                let conn = self.stacks[side].conn_mut(from.id.unwrap()).unwrap();
                let (info, blocked) = (conn.as_ref().info(self.now), conn.as_ref().blocked());
                let story = format!("seed {}, side {side}: {blocked}: {info:#?}", self.seed);
                assert_eq!(to.read, from.written, "{story}");
                assert_eq!((info.wmem_alloc, info.unacked, info.notsent_bytes), (0, 0, 0), "{story}");
                assert_eq!(info.bytes_sent - info.bytes_retrans, from.written, "{story}");
                if info.state == State::Established {
                    assert!(matches!(blocked, Blocked::NoData | Blocked::SendBuffer), "{story}");
                }
                assert!(!from.waiting, "never notified that there is room: {story}");
                *self.tally.entry("bytes").or_default() += from.written;
            }
        }
    }

    /// All applications release their connections: nothing of any connection is left, whether or not tickets
    /// are still out.
    fn end(&mut self) {
        for side in [0, 1] {
            for which in 0..self.ports.len() {
                self.release(side, which, false);
            }
        }
        // The tickets that are out now come back only after the end: the small queue of 2012 waits for them,
        // today's does not.
        let kept: [Vec<Held>; 2] = std::mem::take(&mut self.held);
        self.settle();
        for (side, kept) in kept.into_iter().enumerate() {
            for held in kept {
                self.stacks[side].handle_tx(self.now, held.ticket, Fate::Left);
            }
        }
        self.settle();
        for side in [0, 1] {
            let stack = &self.stacks[side];
            assert_eq!((stack.connections(), stack.time_waits()), (0, 0), "seed {}, side {side}", self.seed);
            let counters = *stack.counters();
            let (packets, segments) = self.took[side];
            assert_eq!(counters.out_requests, packets, "seed {}, side {side}", self.seed);
            assert_eq!(
                counters.out_segs + counters.retrans_segs,
                segments,
                "seed {}, side {side}",
                self.seed
            );
            let count =
                |name: &str| counters.iter().find(|&(is, _)| is == name).map_or(0, |(_, count)| count);
            *self.tally.entry("throttled").or_default() += count("TautTsqThrottled");
            *self.tally.entry("exempt").or_default() += count("TautTsqExempt");
            *self.tally.entry("paced").or_default() += count("TautPacingBlocked");
            *self.tally.entry("corked").or_default() += count("TcpExtTCPAutoCorking");
        }
    }
}

/// The seeds to run: those of the test, or the one requested in `TAUT_SPEC_SEED`.
fn seeds(all: std::ops::Range<u64>) -> Vec<u64> {
    match std::env::var("TAUT_SPEC_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => all.collect(),
    }
}

#[test]
fn tickets_in_any_order_lose_and_repeat_nothing() {
    let mut tally = Tally::new();
    let seeds = seeds(0..1_000);
    for &seed in &seeds {
        let mut worlds = Worlds::new(seed);
        for _ in 0..2 {
            for _ in 0..50 + worlds.rng.below(400) {
                worlds.step(false);
            }
            worlds.settle();
            worlds.check_delivered();
        }
        worlds.end();
        for (name, count) in worlds.tally {
            *tally.entry(name).or_default() += count;
        }
    }
    if seeds.len() > 1 {
        println!("{tally:?}");
        let common =
            ["refused", "dropped", "congested", "lost", "woken", "throttled", "exempt", "paced", "corked"];
        assert!(common.iter().all(|name| tally[name] > 1_000), "{tally:?}");
        assert!(tally["bytes"] > 100_000_000, "{tally:?}");
        // A connection fails only if loss lasts for minutes.
        assert_eq!(tally.get("failed"), None, "{tally:?}");
    }
}

#[test]
fn tickets_outlive_close_and_abort() {
    for seed in seeds(100_000..101_000) {
        let mut worlds = Worlds::new(seed);
        for _ in 0..100 + worlds.rng.below(400) {
            worlds.step(true);
        }
        worlds.end();
    }
}
