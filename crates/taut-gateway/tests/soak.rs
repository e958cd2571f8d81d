//! Flows without end: guests come and go, upstreams answer, refuse, reset and keep silent, for hours of
//! virtual time. GW-73 of `docs/spec/gateway.md`. A test binary of its own, because it counts what is
//! allocated.
//! `make gateway-soak` runs ten million.
//!
//! ```text
//!   guests: a stack ═══ 5 ms each way ═══ a stack with a filter for all ── Gateway ── an upstream: by the port
//! ```
#![allow(missing_docs, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use taut::FlowKind;
use taut_core::{
    ConnError, ConnId, ConnOptions, Duration, Event, Fate, FlowFilter, Frame, IncomingOptions, Instant,
    LinkCaps, ListenerId, RxChecksum, RxPacket, Stack, StackConfig, Transmit,
};
use taut_gateway::{Admission, Amounts, End, Failure, FlowId, Gateway, NextStep, Side};

/// Counts what the gateway and its stack allocate.
struct Counting;

static IS_GATEWAY: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicI64 = AtomicI64::new(0);

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one only counts")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_GATEWAY.load(Relaxed) {
            BYTES.fetch_add(layout.size() as i64, Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if IS_GATEWAY.load(Relaxed) {
            BYTES.fetch_sub(layout.size() as i64, Relaxed);
        }
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WIRE: Duration = Duration::from_millis(5);
/// A flow begins each millisecond.
const EVERY: Duration = Duration::from_millis(1);
const REQUEST: [u8; 200] = [7; 200];
const ANSWER: [u8; 2_000] = [8; 2_000];
/// A guest gives up an upstream that keeps silent.
const PATIENCE: Duration = Duration::from_secs(2);
/// Until as many connections are in TIME-WAIT, and as many silent upstreams are waited for, as there will be.
const WARM_UP: Duration = Duration::from_secs(400);

/// How a flow ends. The port that it goes to says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fated {
    GuestEnds = 1,
    UpstreamEnds,
    GuestResets,
    UpstreamResets,
    Refused,
    Unreachable,
    Silent,
}

impl Fated {
    const ALL: [Self; 7] = [
        Self::GuestEnds,
        Self::UpstreamEnds,
        Self::GuestResets,
        Self::UpstreamResets,
        Self::Refused,
        Self::Unreachable,
        Self::Silent,
    ];

    fn of(port: u16) -> Self {
        Self::ALL[usize::from(port) - 1]
    }

    /// Of a hundred flows, one waits for a silent upstream.
    fn by_chance(random: u64) -> Self {
        match random % 100 {
            0 => Self::Silent,
            1..11 => Self::Refused,
            11..21 => Self::Unreachable,
            21..31 => Self::GuestResets,
            31..41 => Self::UpstreamResets,
            41..70 => Self::UpstreamEnds,
            _ => Self::GuestEnds,
        }
    }
}

/// Something that happens later.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Later {
    /// A packet arrives at a side.
    Packet(usize, Vec<u8>),
    /// The upstream says whether it can be reached.
    Dialled(FlowId),
    /// It answers a request, or ends its half.
    Answers(FlowId),
    Ends(FlowId),
    GivesUp(ConnId),
}

/// A flow of the gateway.
struct Through {
    fated: Fated,
    guest: SocketAddr,
    pending: taut_core::FlowId,
    conn: Option<ConnId>,
    asked: usize,
}

/// A connection of a guest.
struct Client {
    fated: Fated,
    answered: usize,
}

struct World {
    now: Instant,
    start: Instant,
    stacks: [Stack; 2],
    filter: ListenerId,
    gateway: Gateway,
    later: BinaryHeap<Reverse<(Instant, u64, Later)>>,
    number: u64,
    through: BTreeMap<FlowId, Through>,
    by_conn: BTreeMap<ConnId, FlowId>,
    /// Those that are not decided.
    by_pending: BTreeMap<taut_core::FlowId, FlowId>,
    clients: BTreeMap<ConnId, Client>,
    begun: u64,
    /// How many flows ended as they were to.
    ended: [u64; 7],
    rng: u64,
}

/// Counts what a call allocates as the gateway's.
fn gateways<R>(call: impl FnOnce() -> R) -> R {
    IS_GATEWAY.store(true, Relaxed);
    let result = call();
    IS_GATEWAY.store(false, Relaxed);
    result
}

impl World {
    fn new() -> Self {
        let stack = |address: &str, seed| {
            let config = StackConfig::default().with(|c| {
                c.addresses = vec![address.parse().unwrap()];
                c.ip_local_port_range = (1_024, 65_535);
            });
            Stack::new(Arc::new(config), LinkCaps::plain(1_500), [seed; 32])
        };
        let guests = stack("10.0.0.1", 1);
        let (own, filter, gateway) = gateways(|| {
            let mut own = stack("10.0.0.2", 2);
            let options = IncomingOptions {
                max_pending: 8_192,
                max_pending_per_peer: 8_192,
                ..IncomingOptions::default()
            };
            let filter = own.incoming(FlowFilter::any(), options).unwrap();
            (own, filter, Gateway::default())
        });
        let start = Instant::from_nanos(1_000_000_000);
        Self {
            now: start,
            start,
            stacks: [guests, own],
            filter,
            gateway,
            later: BinaryHeap::new(),
            number: 0,
            through: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            by_pending: BTreeMap::new(),
            clients: BTreeMap::new(),
            begun: 0,
            ended: [0; 7],
            rng: 9,
        }
    }

    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.rng >> 33
    }

    fn later(&mut self, after: Duration, what: Later) {
        self.number += 1;
        self.later.push(Reverse((self.now + after, self.number, what)));
    }

    /// The gateway's time.
    fn time(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.now.since(self.start).as_nanos())
    }

    fn on<R>(&mut self, side: usize, call: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        IS_GATEWAY.store(side == 1, Relaxed);
        let result = call(&mut self.stacks[side], self.now);
        IS_GATEWAY.store(false, Relaxed);
        result
    }

    /// Takes everything that a side has to say.
    fn flush(&mut self, side: usize) {
        while let Some(event) = self.on(side, |stack, _| stack.poll_event()) {
            if side == 0 { self.guest_event(event) } else { self.gateway_event(event) }
        }
        loop {
            let packet = self.on(side, |stack, now| {
                let Transmit { packet, ticket } = stack.poll_transmit(now)?;
                IS_GATEWAY.store(false, Relaxed);
                let packet = packet.to_vec();
                IS_GATEWAY.store(side == 1, Relaxed);
                stack.handle_tx(now, ticket, Fate::Left);
                Some(packet)
            });
            let Some(packet) = packet else { break };
            self.later(WIRE, Later::Packet(1 - side, packet));
        }
    }

    // ---- the guests ----

    fn begin(&mut self) {
        let fated = Fated::by_chance(self.random());
        let [a, b] = (self.random() as u16).to_be_bytes();
        let to = SocketAddr::new(IpAddr::from([8, 8, a, b]), fated as u16);
        let id = self.on(0, |stack, now| stack.connect(now, to, &ConnOptions::default())).unwrap();
        self.begun += 1;
        self.clients.insert(id, Client { fated, answered: 0 });
        if fated == Fated::Silent {
            self.later(PATIENCE, Later::GivesUp(id));
        }
        self.flush(0);
    }

    /// A flow of a guest ended in this way.
    fn end(&mut self, id: ConnId, how: Fated) {
        let client = self.clients.remove(&id).unwrap();
        assert_eq!(client.fated, how, "after {} bytes", client.answered);
        self.ended[how as usize - 1] += 1;
    }

    /// Returns whether there may be more.
    fn guest_reads(&mut self, id: ConnId) -> bool {
        let mut buffer = [0; 4_000];
        let read = self.on(0, |stack, now| stack.conn_mut(id).map(|mut conn| conn.read(now, &mut buffer)));
        let Some(client) = self.clients.get_mut(&id) else { return false };
        match read {
            Some(Ok(0)) => {
                assert_eq!(client.answered, ANSWER.len());
                let how = client.fated;
                assert!(matches!(how, Fated::GuestEnds | Fated::UpstreamEnds), "{how:?}");
                self.end(id, how);
                self.on(0, |stack, now| stack.conn_mut(id).unwrap().close(now));
                false
            }
            Some(Ok(len)) => {
                client.answered += len;
                if client.answered < ANSWER.len() {
                    return true;
                }
                match client.fated {
                    Fated::GuestEnds => {
                        self.on(0, |stack, now| stack.conn_mut(id).unwrap().shutdown_write(now)).unwrap();
                    }
                    Fated::GuestResets => {
                        self.end(id, Fated::GuestResets);
                        self.on(0, |stack, now| stack.conn_mut(id).unwrap().abort(now));
                    }
                    _ => {}
                }
                true
            }
            // Nothing, or a failure, which is told, too.
            Some(Err(_)) | None => false,
        }
    }

    fn guest_event(&mut self, event: Event) {
        match event {
            Event::Connected(id) => {
                let sent = self.on(0, |stack, now| stack.conn_mut(id).unwrap().write(now, &REQUEST));
                assert_eq!(sent, Ok(REQUEST.len()));
            }
            Event::Readable(id) => while self.guest_reads(id) {},
            // It was its own doing.
            Event::Failed(_, ConnError::Aborted) => {}
            Event::Failed(id, why) => {
                let how = match why {
                    ConnError::Refused => Fated::Refused,
                    ConnError::HostUnreachable => Fated::Unreachable,
                    ConnError::Reset => Fated::UpstreamResets,
                    other => panic!("{other:?}"),
                };
                self.end(id, how);
                self.on(0, |stack, now| stack.conn_mut(id).unwrap().close(now));
            }
            Event::Writable(_) | Event::Closed(_) => {}
            other => panic!("{other:?}"),
        }
    }

    // ---- the gateway ----

    fn gateway_event(&mut self, event: Event) {
        match event {
            Event::Incoming(filter) => {
                assert_eq!(filter, self.filter);
                while let Some(flow) = self.on(1, |stack, _| stack.next_flow(filter)) {
                    let (now, fated) = (self.time(), Fated::of(flow.local.port()));
                    let admitted = gateways(|| self.gateway.admit(now, FlowKind::Tcp, flow.peer, flow.local));
                    let Admission::Dial(id, _) = admitted else { panic!("{admitted:?}") };
                    let (guest, pending) = (flow.peer, flow.id);
                    self.through.insert(id, Through { fated, guest, pending, conn: None, asked: 0 });
                    self.by_pending.insert(pending, id);
                    let after = Duration::from_millis(1 + self.random() % 50);
                    if fated != Fated::Silent {
                        self.later(after, Later::Dialled(id));
                    }
                }
            }
            // The stack's time for it is over.
            Event::FlowGone(pending) => {
                let (now, id) = (self.time(), self.by_pending[&pending]);
                let (fated, guest) = (self.through[&id].fated, self.through[&id].guest);
                let then = gateways(|| self.gateway.left(now, id, guest));
                assert_eq!((fated, then), (Fated::Silent, NextStep::Silence));
                self.close(id);
            }
            Event::Connected(conn) => {
                let (now, id) = (self.time(), self.by_conn[&conn]);
                assert_eq!(gateways(|| self.gateway.answered(now, id)), NextStep::Wait);
            }
            Event::Readable(conn) => while self.gateway_reads(conn) {},
            // The upstream's doing.
            Event::Failed(_, ConnError::Aborted) => {}
            Event::Failed(conn, ConnError::Reset) => {
                let (now, id) = (self.time(), self.by_conn[&conn]);
                let then = gateways(|| self.gateway.ended(now, id, Side::Guest, End::Reset));
                assert_eq!(then, NextStep::Reset(Side::Upstream));
                self.on(1, |stack, now| stack.conn_mut(conn).unwrap().close(now));
                self.close(id);
            }
            Event::Writable(_) | Event::Closed(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Passes on what the guest has sent. Returns whether there may be more.
    fn gateway_reads(&mut self, conn: ConnId) -> bool {
        let Some(&id) = self.by_conn.get(&conn) else { return false };
        let mut buffer = [0; 4_000];
        let read = self.on(1, |stack, now| stack.conn_mut(conn).unwrap().read(now, &mut buffer));
        let now = self.time();
        match read {
            Ok(0) => {
                match gateways(|| self.gateway.ended(now, id, Side::Guest, End::Fin)) {
                    NextStep::Finish(Side::Upstream) => self.later(WIRE, Later::Ends(id)),
                    NextStep::Close => self.finish(id),
                    other => panic!("{other:?}"),
                }
                false
            }
            Ok(len) => {
                gateways(|| self.gateway.passed(now, id, Side::Guest, len, 0));
                let through = self.through.get_mut(&id).unwrap();
                through.asked += len;
                if through.asked == REQUEST.len() {
                    self.later(WIRE, Later::Answers(id));
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Both halves have ended.
    fn finish(&mut self, id: FlowId) {
        let conn = self.through[&id].conn.unwrap();
        self.on(1, |stack, now| stack.conn_mut(conn).unwrap().close(now));
        self.close(id);
    }

    fn close(&mut self, id: FlowId) {
        let through = self.through.remove(&id).unwrap();
        self.by_pending.remove(&through.pending);
        if let Some(conn) = through.conn {
            self.by_conn.remove(&conn);
        }
        gateways(|| self.gateway.closed(id));
    }

    fn dialled(&mut self, id: FlowId) {
        let (now, fated, pending) = (self.time(), self.through[&id].fated, self.through[&id].pending);
        let why = match fated {
            Fated::Refused => Failure::Refused,
            Fated::Unreachable => Failure::HostUnreachable,
            _ => {
                assert_eq!(gateways(|| self.gateway.reached(now, id)), NextStep::Accept);
                let conn = self.on(1, |stack, now| stack.accept_flow(now, pending, None)).unwrap();
                self.through.get_mut(&id).unwrap().conn = Some(conn);
                self.by_conn.insert(conn, id);
                return;
            }
        };
        let then = gateways(|| self.gateway.failed(now, id, why));
        let NextStep::Refuse(how) = then else { panic!("{then:?}") };
        assert!(self.on(1, |stack, now| stack.refuse_flow(now, pending, how)));
        self.close(id);
    }

    fn answers(&mut self, id: FlowId) {
        let now = self.time();
        let Through { fated, conn: Some(conn), .. } = self.through[&id] else { panic!("no connection") };
        if fated == Fated::UpstreamResets {
            let then = gateways(|| self.gateway.ended(now, id, Side::Upstream, End::Reset));
            assert_eq!(then, NextStep::Reset(Side::Guest));
            self.on(1, |stack, now| stack.conn_mut(conn).unwrap().abort(now));
            return self.close(id);
        }
        let sent = self.on(1, |stack, now| stack.conn_mut(conn).unwrap().write(now, &ANSWER));
        assert_eq!(sent, Ok(ANSWER.len()));
        gateways(|| self.gateway.passed(now, id, Side::Upstream, ANSWER.len(), 0));
        if fated == Fated::UpstreamEnds {
            self.ends(id);
        }
    }

    /// The upstream's FIN.
    fn ends(&mut self, id: FlowId) {
        let now = self.time();
        match gateways(|| self.gateway.ended(now, id, Side::Upstream, End::Fin)) {
            NextStep::Finish(Side::Guest) => {
                let conn = self.through[&id].conn.unwrap();
                self.on(1, |stack, now| stack.conn_mut(conn).unwrap().shutdown_write(now)).unwrap();
            }
            NextStep::Close => self.finish(id),
            other => panic!("{other:?}"),
        }
    }

    /// Flows whose time is over: those to silent upstreams.
    fn expire(&mut self) {
        let now = self.time();
        gateways(|| self.gateway.handle_timeout(now));
        while let Some((id, then)) = gateways(|| self.gateway.poll_end()) {
            let through = &self.through[&id];
            assert_eq!((through.fated, then), (Fated::Silent, NextStep::Silence));
            let pending = through.pending;
            self.on(1, |stack, now| stack.drop_flow(now, pending));
            self.close(id);
        }
    }

    // ---- time ----

    fn happen(&mut self, what: Later) {
        match what {
            Later::Packet(side, packet) => {
                self.on(side, |stack, now| {
                    let frame = Frame::Slice(&packet);
                    stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Verified, gso_size: 0 });
                });
                self.flush(side);
            }
            Later::GivesUp(id) => {
                self.end(id, Fated::Silent);
                self.on(0, |stack, now| stack.conn_mut(id).unwrap().abort(now));
                self.flush(0);
            }
            Later::Dialled(id) => self.dialled(id),
            Later::Answers(id) => self.answers(id),
            Later::Ends(id) => self.ends(id),
        }
        self.flush(1);
    }

    /// Goes on until `end`.
    fn until(&mut self, end: Instant) {
        loop {
            let first = self.later.peek().map(|Reverse((at, ..))| *at);
            let timeouts = [0, 1].map(|side| self.stacks[side].poll_timeout().map(|(at, _)| at));
            let over =
                self.gateway.poll_timeout().map(|at| self.start + Duration::from_nanos(at.as_nanos() as u64));
            let next = [first, timeouts[0], timeouts[1], over].into_iter().flatten().min();
            let Some(next) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(next);
            for side in [0, 1] {
                if timeouts[side].is_some_and(|at| at <= next) {
                    self.on(side, Stack::handle_timeout);
                    self.flush(side);
                }
            }
            if over.is_some_and(|at| at <= next) {
                self.expire();
                self.flush(1);
            }
            while self.later.peek().is_some_and(|Reverse((at, ..))| *at <= next) {
                let Some(Reverse((_, _, what))) = self.later.pop() else { break };
                self.happen(what);
            }
        }
        self.now = end;
    }
}

/// So many flows, after a warm-up. What the gateway and its stack hold in the last tenth is what they held in
/// the first, to a hundredth; in the end they hold nothing.
fn soak(flows: u64) {
    let mut world = World::new();
    let mut held = vec![0_i64; 10];
    let tenth = flows / 10;
    let warm_up = WARM_UP.as_nanos() / EVERY.as_nanos();
    for number in 0..warm_up + 10 * tenth {
        world.begin();
        world.until(world.now + EVERY);
        if let Some(measured) = number.checked_sub(warm_up) {
            held[(measured / tenth) as usize] += BYTES.load(Relaxed);
            if measured % tenth == tenth - 1 {
                let (at, mean) = (measured + 1, held[(measured / tenth) as usize] / tenth as i64);
                println!(
                    "{at} flows, {mean} bytes held in the mean of the last tenth, {:?} in use",
                    world.gateway.in_use()
                );
            }
        }
    }
    let change = held[9] as f64 / held[0] as f64 - 1.0;
    println!("the last tenth holds {:.3} % more than the first", 100.0 * change);
    assert!(change.abs() < 0.01, "{held:?}");
    // Silent upstreams are waited for, and TIME-WAIT lasts.
    world.until(world.now + WARM_UP);
    println!("ended as they were to: {:?}", Fated::ALL.map(|how| (how, world.ended[how as usize - 1])));
    assert_eq!(world.ended.iter().sum::<u64>(), world.begun, "every flow ended as it was to");
    assert!(world.ended.iter().all(|&count| count > 0), "{:?}", world.ended);
    assert_eq!((world.gateway.in_use(), world.gateway.poll_timeout()), (Amounts::default(), None));
    assert_eq!((world.stacks[1].connections(), world.stacks[1].pending_flows()), (0, 0));
    assert!(world.through.is_empty() && world.clients.is_empty());
}

#[test]
fn gw_73_flows_leave_nothing_behind() {
    soak(100_000);
}

/// `make gateway-soak`.
#[test]
#[ignore = "takes minutes"]
fn ten_million_flows_leave_nothing_behind() {
    let flows = std::env::var("FLOWS").map_or(10_000_000, |flows| flows.parse().expect("FLOWS is a number"));
    soak(flows);
}
