//! Many connections at the same time, each used now and then, each replaced when it is over: the statement
//! LOAD-1 of docs/spec/reliability.md. A test binary of its own, because it counts every allocation. `make
//! load` runs the long case.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use taut_core::config::MemoryUse;
use taut_core::{
    ConnId, ConnOptions, Duration, Event, Fate, Frame, Instant, LinkCaps, ListenOptions, ListenerId,
    RxChecksum, RxPacket, Stack, StackConfig, Transmit,
};

/// Counts what is allocated while a stack is at work: the first two sides. The third is the test itself.
struct Counting;

static SIDE: AtomicUsize = AtomicUsize::new(2);
static BYTES: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];
static ALLOCATIONS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one only counts")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let side = SIDE.load(Relaxed);
        BYTES[side].fetch_add(layout.size() as i64, Relaxed);
        ALLOCATIONS[side].fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES[SIDE.load(Relaxed)].fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SERVER: &str = "10.0.0.2";
/// Ten ports, so that there are more tuples than connections and TIME-WAITs.
const PORTS: u16 = 10;
const DELAY: Duration = Duration::from_millis(10);
/// A connection lives for 30 to 90 s, and exchanges a request and its answer when it begins and every 20 s.
const LIVES_S: (u64, u64) = (30, 90);
const EVERY: Duration = Duration::from_secs(20);
const MESSAGE: [u8; 200] = [7; 200];

/// Something that happens later.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// A packet arrives at a side.
    Packet(usize, Vec<u8>),
    /// The n-th client sends its next request, or is over.
    Client(usize),
}

struct Client {
    id: Option<ConnId>,
    ends: Instant,
}

struct Load {
    now: Instant,
    start: Instant,
    stacks: [Stack; 2],
    listeners: Vec<ListenerId>,
    later: BinaryHeap<Reverse<(Instant, u64, Later)>>,
    number: u64,
    clients: Vec<Client>,
    /// Whose connection has this slot.
    by_slot: Vec<usize>,
    opened: u64,
    answers: u64,
    packets: u64,
    reopens: bool,
    rng: u64,
}

/// The most that was held in a minute, of each side.
type Peak = [i64; 2];

impl Load {
    fn new() -> Self {
        let stack = |address: &str, seed| {
            let config = StackConfig::default().with(|c| {
                c.addresses = vec![address.parse().unwrap()];
                c.ip_local_port_range = (1_024, 65_535);
                // In the end all close at once, and nobody holds what is not over yet.
                c.max_orphans = 1 << 17;
            });
            Stack::new(Arc::new(config), LinkCaps::plain(1_500), [seed; 32])
        };
        let mut stacks = [stack("10.0.0.1", 1), stack(SERVER, 2)];
        let options = ListenOptions { backlog: 65_536, ..ListenOptions::default() };
        let listeners = (80..80 + PORTS)
            .map(|port| {
                stacks[1].listen(SocketAddr::new(SERVER.parse().unwrap(), port), options.clone()).unwrap()
            })
            .collect();
        for side in &BYTES {
            side.store(0, Relaxed);
        }
        let start = Instant::from_nanos(1_000_000_000);
        Self {
            now: start,
            start,
            stacks,
            listeners,
            later: BinaryHeap::new(),
            number: 0,
            clients: Vec::new(),
            by_slot: Vec::new(),
            opened: 0,
            answers: 0,
            packets: 0,
            reopens: true,
            rng: 9,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 33) % below
    }

    fn later(&mut self, at: Instant, what: Later) {
        self.number += 1;
        self.later.push(Reverse((at, self.number, what)));
    }

    /// A call of a stack: its allocations are its own.
    fn on<R>(&mut self, side: usize, f: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        SIDE.store(side, Relaxed);
        let result = f(&mut self.stacks[side], self.now);
        SIDE.store(2, Relaxed);
        result
    }

    /// Takes everything that a side has to say.
    fn flush(&mut self, side: usize) {
        while let Some(event) = self.on(side, |stack, _| stack.poll_event()) {
            if side == 0 { self.client_event(event) } else { self.server_event(event) }
        }
        loop {
            let packet = self.on(side, |stack, now| {
                let Transmit { packet, ticket } = stack.poll_transmit(now)?;
                SIDE.store(2, Relaxed);
                let packet = packet.to_vec();
                SIDE.store(side, Relaxed);
                stack.handle_tx(now, ticket, Fate::Left);
                Some(packet)
            });
            let Some(packet) = packet else { break };
            self.packets += 1;
            self.later(self.now + DELAY, Later::Packet(1 - side, packet));
        }
    }

    fn client_event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => {
                self.on(0, |stack, now| stack.conn_mut(id).unwrap().write(now, &MESSAGE)).unwrap();
                self.later(self.now + EVERY, Later::Client(self.by_slot[id.slot()]));
            }
            Event::Readable(id) => {
                let mut buffer = [0; 1_000];
                let read = self.on(0, |stack, now| stack.conn_mut(id).unwrap().read(now, &mut buffer));
                assert_eq!(read, Ok(MESSAGE.len()));
                self.answers += 1;
            }
            Event::Writable(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn server_event(&mut self, event: Event) {
        match event {
            Event::Incoming(listener) => while self.on(1, |stack, _| stack.accept(listener)).is_some() {},
            Event::Readable(id) => {
                let mut buffer = [0; 1_000];
                match self.on(1, |stack, now| stack.conn_mut(id).unwrap().read(now, &mut buffer)) {
                    Ok(0) => self.on(1, |stack, now| stack.conn_mut(id).unwrap().close(now)),
                    Ok(len) => {
                        assert_eq!(len, MESSAGE.len());
                        self.on(1, |stack, now| stack.conn_mut(id).unwrap().write(now, &MESSAGE)).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Event::Writable(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, client: usize, lives: Duration) {
        let port = 80 + (self.opened % u64::from(PORTS)) as u16;
        let to = SocketAddr::new(SERVER.parse().unwrap(), port);
        let id = self.on(0, |stack, now| stack.connect(now, to, &ConnOptions::default())).unwrap();
        self.opened += 1;
        if self.by_slot.len() <= id.slot() {
            self.by_slot.resize(id.slot() + 1, 0);
        }
        self.by_slot[id.slot()] = client;
        self.clients[client] = Client { id: Some(id), ends: self.now + lives };
    }

    fn lifetime(&mut self) -> Duration {
        Duration::from_millis(1_000 * LIVES_S.0 + self.random(1_000 * (LIVES_S.1 - LIVES_S.0)))
    }

    fn turn(&mut self, client: usize) {
        let Client { id, ends } = self.clients[client];
        match id {
            // Not so late that the answer would come when the client has gone.
            Some(id) if self.now + Duration::from_secs(1) < ends && self.reopens => {
                self.on(0, |stack, now| stack.conn_mut(id).unwrap().write(now, &MESSAGE)).unwrap();
                // The last turn is the end.
                self.later((self.now + EVERY).min(ends), Later::Client(client));
            }
            Some(id) => {
                self.on(0, |stack, now| stack.conn_mut(id).unwrap().close(now));
                self.clients[client].id = None;
                if self.reopens {
                    let lives = self.lifetime();
                    self.open(client, lives);
                }
            }
            None => {}
        }
    }

    /// What happens next, if it does until `end`.
    fn step(&mut self, end: Instant) -> bool {
        let first = self.later.peek().map(|Reverse((at, ..))| *at);
        let timeouts = [0, 1].map(|side| self.stacks[side].poll_timeout().map(|(at, _)| at));
        let Some(next) =
            first.into_iter().chain(timeouts.into_iter().flatten()).min().filter(|&at| at <= end)
        else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        for side in [0, 1] {
            if timeouts[side].is_some_and(|at| at <= next) {
                self.on(side, Stack::handle_timeout);
                self.flush(side);
            }
        }
        while self.later.peek().is_some_and(|Reverse((at, ..))| *at <= next) {
            let Some(Reverse((_, _, what))) = self.later.pop() else { break };
            match what {
                Later::Packet(side, packet) => {
                    self.on(side, |stack, now| {
                        let frame = Frame::Slice(&packet);
                        stack.handle_packet(
                            now,
                            RxPacket { frame, checksum: RxChecksum::Verified, gso_size: 0 },
                        );
                    });
                    self.flush(side);
                }
                Later::Client(client) => {
                    self.turn(client);
                    self.flush(0);
                }
            }
        }
        true
    }

    /// Runs to the `s`-th second, and returns the most that was held at the ends of its seconds.
    fn until(&mut self, s: u64) -> Peak {
        let mut peak = [0; 2];
        let end = self.start + Duration::from_secs(s);
        while self.now < end {
            let second = end.min(self.now + Duration::from_secs(1));
            while self.step(second) {}
            for (side, peak) in peak.iter_mut().enumerate() {
                *peak = (*peak).max(BYTES[side].load(Relaxed));
            }
        }
        peak
    }
}

/// `count` connections that begin within 20 s, for a minute and then for so many minutes; then all of them
/// end.
fn churn(count: usize, minutes: u64) {
    let mut load = Load::new();
    for client in 0..count {
        load.clients.push(Client { id: None, ends: load.now });
        // The first ones have lived for a part of their time.
        let lives = load.lifetime().as_millis();
        let lives = Duration::from_millis(1 + load.random(lives));
        while load.step(load.start + Duration::from_millis(20_000 * client as u64 / count as u64)) {}
        load.open(client, lives);
        load.flush(0);
    }
    // A minute until as many close as begin; minutes are counted from then on.
    load.until(120);
    let second = load.until(180);
    let allocations = ALLOCATIONS[0].load(Relaxed) + ALLOCATIONS[1].load(Relaxed);
    let (opened, packets) = (load.opened, load.packets);
    let mut last = [0; 2];
    for minute in 3..=minutes {
        last = load.until(60 * (minute + 1));
        println!(
            "minute {minute}: {} connections, {} in TIME-WAIT, {} and {} bytes",
            load.stacks[0].connections(),
            load.stacks[0].time_waits(),
            last[0],
            last[1]
        );
    }
    let allocations = ALLOCATIONS[0].load(Relaxed) + ALLOCATIONS[1].load(Relaxed) - allocations;
    let (opened, packets) = (load.opened - opened, load.packets - packets);
    println!(
        "{count} connections for {minutes} minutes: {} opened, {} answers, {} packets; after two minutes {:.2} allocations \
         for each connection and its {:.1} packets",
        load.opened,
        load.answers,
        load.packets,
        allocations as f64 / opened as f64,
        packets as f64 / opened as f64,
    );
    for side in [0, 1] {
        let (second, last) = (second[side], last[side]);
        println!("side {side}: {second} bytes in the second minute, {last} in the last");
        assert!((last - second).abs() * 100 <= second, "side {side}: {second} bytes, then {last}");
    }
    assert!(load.stacks[1].connections() >= count);
    for side in [0, 1] {
        let counters = load.stacks[side].counters();
        assert_eq!((counters.attempt_fails, counters.estab_resets, counters.retrans_segs), (0, 0, 0));
    }

    // The application stops: every connection ends in order, and nothing is left.
    load.reopens = false;
    load.until((load.now.since(load.start)).as_millis() / 1_000 + 1);
    for client in 0..count {
        load.turn(client);
    }
    load.flush(0);
    let closing = load.now;
    while load.stacks[1].connections() > 0 {
        assert!(load.step(closing + Duration::from_secs(5)), "{} are left", load.stacks[1].connections());
    }
    println!("all closed in {} ms", load.now.since(closing).as_millis());
    load.until((load.now.since(load.start)).as_millis() / 1_000 + 200);
    for side in [0, 1] {
        let stack = &load.stacks[side];
        assert_eq!((stack.connections(), stack.time_waits(), stack.poll_timeout()), (0, 0, None));
        assert_eq!(stack.memory_use(), MemoryUse::default());
        assert_eq!(stack.counters().estab_resets, 0);
        let left = BYTES[side].load(Relaxed);
        println!("side {side}: {left} bytes are left for the next connections");
        // Indexes of 8 and 4 bytes, twice as many as there were connections and TIME-WAITs at most, and spare
        // chunks.
        assert!(left <= 100 * count as i64 + (2 << 20), "{left} bytes");
    }
    let listeners = core::mem::take(&mut load.listeners);
    for listener in listeners {
        load.on(1, |stack, now| stack.close_listener(now, listener));
    }
    assert_eq!(load.stacks[1].listeners().count(), 0);
}

#[test]
fn load_01_five_thousand_connections_with_churn_hold_as_much_at_the_end_as_at_the_beginning() {
    churn(5_000, 3);
}

#[test]
#[ignore = "minutes of work: make load"]
fn a_hundred_thousand_connections_for_ten_minutes() {
    churn(100_000, 10);
}
