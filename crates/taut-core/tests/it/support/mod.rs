//! Two stacks, a link between them that can be slow and unreliable, and a clock that jumps to the next event.
//! All randomness comes from one seed: a failing run is repeated by its number.

#![allow(dead_code, reason = "a program of its own uses a part of it")]

#[macro_use]
pub(crate) mod trace;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use taut_core::{
    ConnId, ConnOptions, Duration, Event, Fate, Frame, Instant, LinkCaps, ListenOptions, ListenerId, Offload,
    RxChecksum, RxPacket, Stack, StackConfig, Transmit,
};

/// A small generator (xorshift64*): the tests need reproducible, not good, randomness.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }
}

/// The faults and delays of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// One way.
    pub(crate) delay: Duration,
    /// Lost, duplicated, delayed by up to `jitter`, and flipped in one bit: per mille.
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) reorder: u64,
    pub(crate) jitter: Duration,
    pub(crate) corrupt: u64,
    /// Completions come this much later than the hand-over.
    pub(crate) completion_delay: Duration,
    /// Bytes per second, 0 for no limit; further packets wait.
    pub(crate) rate: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(5),
            loss: 0,
            duplicate: 0,
            reorder: 0,
            jitter: Duration::from_millis(3),
            corrupt: 0,
            completion_delay: Duration::ZERO,
            rate: 0,
        }
    }
}

/// A packet on its way, as one contiguous piece.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wire {
    pub(crate) at: Instant,
    /// Counts packets: the order of those that arrive at the same time.
    pub(crate) sent: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) gso_size: u16,
    pub(crate) verified: bool,
}

/// Gets the sender and the packet; true loses it.
pub(crate) type Filter = Box<dyn FnMut(usize, &[u8]) -> bool>;

/// A ticket on its way back.
struct Completion {
    at: Instant,
    sent: u64,
    from: usize,
    ticket: taut_core::TxTicket,
}

impl PartialEq for Completion {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sent) == (other.at, other.sent)
    }
}

impl Eq for Completion {}

impl PartialOrd for Completion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Completion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sent).cmp(&(other.at, other.sent))
    }
}

pub(crate) const A: &str = "10.0.0.1";
pub(crate) const B: &str = "10.0.0.2";

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) stacks: [Stack; 2],
    /// To stack 0 and to stack 1.
    pub(crate) wires: [BinaryHeap<Reverse<Wire>>; 2],
    /// When each link has sent what was given to it.
    busy_until: [Instant; 2],
    pub(crate) filter: Option<Filter>,
    pub(crate) faults: [Faults; 2],
    pub(crate) rng: Rng,
    pub(crate) events: [VecDeque<Event>; 2],
    /// Every packet handed out, before faults: (sender, time, packet).
    pub(crate) log: Vec<(usize, Instant, Vec<u8>)>,
    pub(crate) keep_log: bool,
    completions: BinaryHeap<Reverse<Completion>>,
    sent: u64,
}

pub(crate) fn config(address: &str) -> StackConfig {
    StackConfig::default().with(|c| c.addresses = vec![address.parse().unwrap()])
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, config(A), config(B), LinkCaps::plain(1_500))
    }

    pub(crate) fn with(seed: u64, a: StackConfig, b: StackConfig, caps: LinkCaps) -> Self {
        let stack = |config, salt: u8| {
            let mut bytes = [salt; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            Stack::new(Arc::new(config), caps, bytes)
        };
        Self {
            now: Instant::from_nanos(1_000_000_000),
            stacks: [stack(a, 1), stack(b, 2)],
            wires: [BinaryHeap::new(), BinaryHeap::new()],
            busy_until: [Instant::ZERO; 2],
            filter: None,
            faults: [Faults::default(); 2],
            rng: Rng::new(seed),
            events: [VecDeque::new(), VecDeque::new()],
            log: Vec::new(),
            keep_log: false,
            completions: BinaryHeap::new(),
            sent: 0,
        }
    }

    pub(crate) fn faults(&mut self, faults: Faults) {
        self.faults = [faults; 2];
    }

    /// Takes everything that both stacks want to send, and their events.
    pub(crate) fn flush(&mut self) {
        for from in 0..2 {
            while let Some(Transmit { packet, ticket }) = self.stacks[from].poll_transmit(self.now) {
                let bytes = packet.to_vec();
                let (gso_size, verified) = match packet.offload {
                    Offload::None => (0, false),
                    Offload::Checksum { .. } => (0, true),
                    Offload::Segment { mss, .. } => (mss, true),
                };
                if self.faults[1 - from].completion_delay.is_zero() {
                    self.stacks[from].handle_tx(self.now, ticket, Fate::Left);
                } else {
                    let at = self.now + self.faults[1 - from].completion_delay;
                    self.sent += 1;
                    self.completions.push(Reverse(Completion { at, sent: self.sent, from, ticket }));
                }
                if self.keep_log {
                    self.log.push((from, self.now, bytes.clone()));
                }
                self.launch(1 - from, bytes, gso_size, verified);
            }
            while let Some(event) = self.stacks[from].poll_event() {
                self.events[from].push_back(event);
            }
        }
    }

    fn launch(&mut self, to: usize, mut bytes: Vec<u8>, gso_size: u16, verified: bool) {
        let faults = self.faults[to];
        if self.filter.as_mut().is_some_and(|lose| lose(1 - to, &bytes)) || self.rng.chance(faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(faults.duplicate));
        if self.rng.chance(faults.corrupt) {
            let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut leaves = self.now;
        if let Some(ns) = (bytes.len() as u64 * 1_000_000_000).checked_div(faults.rate) {
            let span = Duration::from_nanos(ns);
            leaves = self.busy_until[to].max(self.now) + span;
            self.busy_until[to] = leaves;
        }
        for _ in 0..copies {
            let mut at = leaves + faults.delay;
            if self.rng.chance(faults.reorder) {
                at += Duration::from_nanos(self.rng.below(faults.jitter.as_nanos()));
            }
            self.sent += 1;
            let wire = Wire { at, sent: self.sent, bytes: bytes.clone(), gso_size, verified };
            self.wires[to].push(Reverse(wire));
        }
    }

    /// A forged packet, which arrives now.
    pub(crate) fn inject(&mut self, to: usize, bytes: &[u8]) {
        let packet = RxPacket { frame: Frame::Slice(bytes), checksum: RxChecksum::Unverified, gso_size: 0 };
        self.stacks[to].handle_packet(self.now, packet);
    }

    /// The time of the next event.
    pub(crate) fn next(&self) -> Option<Instant> {
        let wires = self.wires.iter().filter_map(|heap| heap.peek().map(|wire| wire.0.at));
        let timers = self.stacks.iter().filter_map(|stack| stack.poll_timeout().map(|(at, _)| at));
        wires.chain(timers).chain(self.completions.peek().map(|done| done.0.at)).min()
    }

    /// Advances to the next event and handles it. False when there is none before `limit`.
    pub(crate) fn step(&mut self, limit: Instant) -> bool {
        self.flush();
        let Some(next) = self.next().filter(|&next| next <= limit) else {
            self.now = self.now.max(limit);
            return false;
        };
        self.now = self.now.max(next);
        let now = self.now;
        while self.completions.peek().is_some_and(|done| done.0.at <= now) {
            let Reverse(done) = self.completions.pop().unwrap();
            self.stacks[done.from].handle_tx(now, done.ticket, Fate::Left);
        }
        for to in 0..2 {
            while self.wires[to].peek().is_some_and(|wire| wire.0.at <= now) {
                let Reverse(mut wire) = self.wires[to].pop().unwrap();
                let checksum = if wire.verified { RxChecksum::Verified } else { RxChecksum::Unverified };
                let len = wire.bytes.len();
                let frame = if wire.sent % 2 == 0 {
                    Frame::Slice(&wire.bytes)
                } else {
                    Frame::Lend { buffer: &mut wire.bytes, range: 0..len }
                };
                let packet = RxPacket { frame, checksum, gso_size: wire.gso_size };
                self.stacks[to].handle_packet(now, packet);
            }
            self.stacks[to].handle_timeout(now);
        }
        self.flush();
        true
    }

    /// Runs for `span`, or until nothing more happens.
    pub(crate) fn run_for(&mut self, span: Duration) {
        let limit = self.now + span;
        while self.step(limit) {}
    }

    /// Runs until `done` returns true, for at most `span`; returns whether it did.
    pub(crate) fn run_until(&mut self, span: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + span;
        loop {
            self.flush();
            if done(self) {
                return true;
            }
            if !self.step(limit) {
                return done(self);
            }
        }
    }

    pub(crate) fn listen(&mut self, side: usize, at: &str) -> ListenerId {
        self.stacks[side].listen(at.parse().unwrap(), ListenOptions::default()).unwrap()
    }

    pub(crate) fn connect(&mut self, side: usize, to: &str) -> ConnId {
        let to: SocketAddr = to.parse().unwrap();
        self.stacks[side].connect(self.now, to, &ConnOptions::default()).unwrap()
    }

    /// A connection from stack 0 to stack 1, established.
    pub(crate) fn pair(&mut self) -> (ConnId, ConnId) {
        let listener = self.listen(1, &format!("{B}:80"));
        let client = self.connect(0, &format!("{B}:80"));
        let mut server = None;
        let done = self.run_until(Duration::from_secs(60), |world| {
            server = server.or_else(|| world.stacks[1].accept(listener).map(|(id, _)| id));
            server.is_some()
        });
        assert!(done, "the handshake completes");
        (client, server.unwrap())
    }
}

/// Byte `position` of the stream that the tests send.
pub(crate) fn pattern(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b1) >> 13) as u8
}

/// Writes as much of the stream's bytes from `*position` up to `end` as there is room for.
pub(crate) fn pump(world: &mut World, side: usize, id: ConnId, position: &mut u64, end: u64) {
    let now = world.now;
    let Some(mut conn) = world.stacks[side].conn_mut(id) else { return };
    while *position < end {
        let chunk: Vec<u8> = (*position..end.min(*position + 8_000)).map(pattern).collect();
        match conn.write(now, &chunk) {
            Ok(count) => *position += count as u64,
            Err(_) => break,
        }
    }
}

/// Reads what there is, and checks that it is the stream from `*position` on. True at its end.
pub(crate) fn drain(world: &mut World, side: usize, id: ConnId, position: &mut u64) -> bool {
    let now = world.now;
    let Some(mut conn) = world.stacks[side].conn_mut(id) else { return false };
    let mut buffer = [0; 10_000];
    loop {
        match conn.read(now, &mut buffer) {
            Ok(0) => return true,
            Ok(count) => {
                for &byte in &buffer[..count] {
                    assert_eq!(byte, pattern(*position), "byte {position} of the stream");
                    *position += 1;
                }
            }
            Err(_) => return false,
        }
    }
}

/// Sends `len` bytes from stack 0 to stack 1 and closes; every byte is checked. Returns the time it took.
pub(crate) fn transfer(world: &mut World, len: u64, limit: Duration) -> Duration {
    let (client, server) = world.pair();
    let start = world.now;
    let (mut written, mut read, mut shut) = (0, 0, false);
    let done = world.run_until(limit, |world| {
        pump(world, 0, client, &mut written, len);
        if written == len && !shut {
            let now = world.now;
            shut = world.stacks[0].conn_mut(client).unwrap().shutdown_write(now).is_ok();
        }
        drain(world, 1, server, &mut read)
    });
    let now = world.now;
    let info = world.stacks[0].conn(client).map(|conn| conn.info(now));
    assert!(done, "transfer of {len} ended after {read} bytes at {now:?}: {info:#?}");
    assert_eq!(read, len);
    now.since(start)
}
