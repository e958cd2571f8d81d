//! The memory of an idle connection, and of data that is held. A test binary of its own, because it counts
//! every allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use taut_core::{
    ConnId, ConnOptions, Duration, Fate, Frame, Instant, LinkCaps, ListenOptions, RxChecksum, RxPacket,
    Stack, StackConfig, Transmit,
};
use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol};

/// Counts the bytes that are allocated while each side is at work.
struct Counting;

static SIDE: AtomicUsize = AtomicUsize::new(2);
static BYTES: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

fn count(bytes: i64) {
    BYTES[SIDE.load(Relaxed)].fetch_add(bytes, Relaxed);
}

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one only counts")]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONNECTIONS: usize = 10_000;

/// One test at a time: they share the counts.
static ALONE: Mutex<()> = Mutex::new(());

struct Pair {
    now: Instant,
    stacks: [Stack; 2],
}

impl Pair {
    fn on<R>(&mut self, side: usize, f: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        SIDE.store(side, Relaxed);
        let result = f(&mut self.stacks[side], self.now);
        SIDE.store(2, Relaxed);
        result
    }

    /// Carries packets until both are silent.
    fn run(&mut self) {
        loop {
            let mut idle = true;
            for from in [0, 1] {
                loop {
                    let packet = self.on(from, |stack, now| {
                        let Transmit { packet, ticket } = stack.poll_transmit(now)?;
                        SIDE.store(2, Relaxed);
                        let packet = packet.to_vec();
                        SIDE.store(from, Relaxed);
                        stack.handle_tx(now, ticket, Fate::Left);
                        Some(packet)
                    });
                    let Some(packet) = packet else { break };
                    idle = false;
                    self.on(1 - from, |stack, now| {
                        let frame = Frame::Slice(&packet);
                        stack.handle_packet(
                            now,
                            RxPacket { frame, checksum: RxChecksum::Verified, gso_size: 0 },
                        );
                    });
                }
            }
            if idle {
                break;
            }
        }
        for side in [0, 1] {
            self.on(side, |stack, _| while stack.poll_event().is_some() {});
        }
    }

    /// Until every timer is quiet.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.now += Duration::from_millis(100);
            for side in [0, 1] {
                self.on(side, Stack::handle_timeout);
            }
            self.run();
        }
    }
}

/// Bytes for each connection, on the side that connected and on the side that accepted.
fn per_connection() -> [i64; 2] {
    [0, 1].map(|side| BYTES[side].load(Relaxed) / CONNECTIONS as i64)
}

#[test]
fn an_idle_connection_costs_at_most_576_bytes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stack = |address: &str| {
        let config = StackConfig::default().with(|c| c.addresses = vec![address.parse().unwrap()]);
        Stack::new(Arc::new(config), LinkCaps::plain(1_500), [1; 32])
    };
    let mut pair =
        Pair { now: Instant::from_nanos(1_000_000_000), stacks: [stack("10.0.0.1"), stack("10.0.0.2")] };
    let to: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let listener = pair.on(1, |stack, _| stack.listen(to, ListenOptions::default())).unwrap();
    for side in &BYTES {
        side.store(0, Relaxed);
    }
    let mut ids: [Vec<ConnId>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..CONNECTIONS {
        let id = pair.on(0, |stack, now| stack.connect(now, to, &ConnOptions::default())).unwrap();
        ids[0].push(id);
        pair.run();
        ids[1].push(pair.on(1, |stack, _| stack.accept(listener)).unwrap().0);
    }
    pair.settle();
    let fresh = per_connection();
    println!("fresh: {} bytes where begun, {} where accepted", fresh[0], fresh[1]);
    assert!(fresh[0] <= 576 && fresh[1] <= 576, "{fresh:?}");

    // Once used: a request and a response that takes several round trips.
    let [begun, accepted] = ids;
    for (begun, accepted) in begun.into_iter().zip(accepted) {
        let mut buffer = vec![0; 40_000];
        pair.on(0, |stack, now| stack.conn_mut(begun).unwrap().write(now, b"request")).unwrap();
        pair.run();
        pair.on(1, |stack, now| {
            let mut conn = stack.conn_mut(accepted).unwrap();
            assert_eq!(conn.read(now, &mut buffer), Ok(7));
            assert_eq!(conn.write(now, &buffer[..20_000]), Ok(20_000));
        });
        pair.run();
        let mut got = 0;
        while got < 20_000 {
            got += pair.on(0, |stack, now| stack.conn_mut(begun).unwrap().read(now, &mut buffer)).unwrap();
            pair.run();
        }
    }
    pair.settle();
    let used = per_connection();
    println!("used: {} bytes where begun, {} where accepted", used[0], used[1]);
    // The state of congestion control and the ledger stay; all other memory was released.
    assert!(used[0] <= 1_040 && used[1] <= 1_040, "{used:?}");
}

/// As many SYNs as a listener's default backlog, from hosts that never answer: 128 bytes of the table, 8 of
/// the listener's order, and 10 of the index by addresses.
#[test]
fn half_02_a_half_open_connection_costs_at_most_150_bytes() {
    const SYNS: u16 = 4_096;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = StackConfig::default().with(|c| c.addresses = vec!["10.0.0.2".parse().unwrap()]);
    let stack = || Stack::new(Arc::new(config.clone()), LinkCaps::plain(1_500), [1; 32]);
    let mut pair = Pair { now: Instant::from_nanos(1_000_000_000), stacks: [stack(), stack()] };
    let to: SocketAddr = "10.0.0.2:80".parse().unwrap();
    pair.on(1, |stack, _| stack.listen(to, ListenOptions::default())).unwrap();
    BYTES[1].store(0, Relaxed);
    for port in 1..=SYNS {
        let (src, dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let header = TcpHeader { src_port: port, dst_port: 80, flags: Flags::SYN, ..TcpHeader::default() };
        let mut packet = vec![0; 40];
        let ip = IpHeader {
            src,
            dst,
            protocol: protocol::TCP,
            hop_limit: 64,
            ecn: Ecn::NotEct,
            header_len: 20,
            payload_len: 20,
        };
        ip.emit(&mut packet, 0);
        header.emit(&mut packet[20..]);
        pair.on(1, |stack, now| {
            let frame = Frame::Slice(&packet);
            stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Verified, gso_size: 0 });
            let Transmit { ticket, .. } = stack.poll_transmit(now).expect("a SYN-ACK");
            stack.handle_tx(now, ticket, Fate::Left);
        });
    }
    let bytes = BYTES[1].load(Relaxed);
    println!("{bytes} bytes, {} for each", bytes / i64::from(SYNS));
    assert_eq!(pair.stacks[1].connections(), usize::from(SYNS));
    assert!(bytes <= 150 * i64::from(SYNS), "{bytes} bytes");
    // When they have expired, the memory is free but for the index and the queues, whose sizes stay.
    for _ in 0..70 {
        pair.now += Duration::from_secs(1);
        pair.on(1, |stack, now| {
            stack.handle_timeout(now);
            while let Some(Transmit { ticket, .. }) = stack.poll_transmit(now) {
                stack.handle_tx(now, ticket, Fate::Left);
            }
        });
    }
    assert_eq!(pair.stacks[1].connections(), 0);
    let left = BYTES[1].load(Relaxed);
    assert!(left <= 30 * i64::from(SYNS), "{left} bytes are left");
}

/// A single byte beyond a hole, two hundred times: what is counted is at least what the allocator was asked
/// for.
#[test]
fn mem_10_what_counts_as_memory_is_what_was_allocated() {
    const SEGMENTS: u32 = 200;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stack = |address: &str| {
        let config = StackConfig::default().with(|c| c.addresses = vec![address.parse().unwrap()]);
        Stack::new(Arc::new(config), LinkCaps::plain(1_500), [1; 32])
    };
    let mut pair =
        Pair { now: Instant::from_nanos(1_000_000_000), stacks: [stack("10.0.0.1"), stack("10.0.0.2")] };
    let to: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let listener = pair.on(1, |stack, _| stack.listen(to, ListenOptions::default())).unwrap();
    let id = pair.on(0, |stack, now| stack.connect(now, to, &ConnOptions::default())).unwrap();
    pair.run();
    pair.on(1, |stack, _| stack.accept(listener)).unwrap();
    pair.on(0, |stack, now| stack.conn_mut(id).unwrap().write(now, b"x")).unwrap();
    let packet = pair.on(0, |stack, now| stack.poll_transmit(now).unwrap().packet.to_vec());
    let ip = IpHeader::parse(&packet).unwrap();
    let (header, len) = TcpHeader::parse(&packet[ip.header_len..]).unwrap();
    pair.settle();
    BYTES[1].store(0, Relaxed);
    for n in 1..=SEGMENTS {
        let mut packet = packet.clone();
        let header = TcpHeader { seq: header.seq.wrapping_add(2 * n), ..header };
        header.emit(&mut packet[ip.header_len..ip.header_len + len]);
        pair.on(1, |stack, now| {
            let frame = Frame::Slice(&packet);
            stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Verified, gso_size: 0 });
        });
        pair.run();
    }
    let counted = pair.stacks[1].memory_use().bytes;
    let allocated = BYTES[1].load(Relaxed);
    println!("{} bytes each, counted as {}", allocated / i64::from(SEGMENTS), counted / u64::from(SEGMENTS));
    // A chunk of 512 bytes, and 192 for what goes with it. glibc's allocator adds 8 bytes to each of two
    // allocations, and rounds to 16.
    assert_eq!(counted, 704 * u64::from(SEGMENTS));
    let with_headers = allocated + i64::from(SEGMENTS) * 2 * (8 + 8);
    assert!(with_headers <= counted as i64, "{allocated} bytes allocated, {counted} counted");
    assert!(2 * allocated > counted as i64);
}
