//! The memory of a whole stack with its driver, its device and its sockets, as in a network extension of a
//! phone, which may hold 50 MB: MEM-19 and MEM-20 of docs/spec/reliability.md. A binary of its own, because
//! it counts every allocation.
#![allow(missing_docs, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use taut::blocking::{IncomingFlows, TcpStream};
use taut::device::{FarEnd, LinkCaps, RxChecksum, TxPacket, channel};
use taut::{FlowFilter, Stack};
use taut_core::{ConnId, ConnOptions, Fate, Frame, Instant, RxPacket, StackConfig, Transmit};
use taut_testbed::{PATIENCE, now};

/// The setting of docs/guide/embed.md.
const TCP_MEM: &str = "128 256 512";
const MOST_BYTES: i64 = 10_000_000;
const FLOWS: usize = 500;

/// One test at a time: they share the counts.
static ALONE: Mutex<()> = Mutex::new(());

/// Counts what is allocated, but by the far end; each allocation says by whom it was made.
struct Counting;

thread_local! {
    static IS_FAR: Cell<bool> = const { Cell::new(false) };
}
static BYTES: AtomicI64 = AtomicI64::new(0);
static MOST: AtomicI64 = AtomicI64::new(0);

/// A place for the mark in front, which keeps the alignment.
fn marked(layout: Layout) -> (Layout, usize) {
    let head = layout.align().max(16);
    // Too large for the allocator, too.
    (Layout::from_size_align(layout.size() + head, head).unwrap_or(layout), head)
}

fn count(bytes: i64) {
    let held = BYTES.fetch_add(bytes, Relaxed) + bytes;
    MOST.fetch_max(held, Relaxed);
}

#[expect(unsafe_code, reason = "an allocator is an unsafe trait; this one only counts")]
// SAFETY: every call is passed on to the system's allocator, with room for a mark in front.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (whole, head) = marked(layout);
        let is_far = IS_FAR.try_with(Cell::get).unwrap_or(false);
        // SAFETY: the layout is as the caller promises, and larger.
        unsafe {
            let at = System.alloc(whole);
            if at.is_null() {
                return at;
            }
            at.write(u8::from(is_far));
            if !is_far {
                count(layout.size() as i64);
            }
            at.add(head)
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let (whole, head) = marked(layout);
        // SAFETY: `alloc` has returned this place, behind its mark.
        unsafe {
            let at = at.sub(head);
            if at.read() == 0 {
                count(-(layout.size() as i64));
            }
            System.dealloc(at, whole);
        }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The far end of the device, with a stack of its own.
struct Far {
    stack: taut_core::Stack,
    end: FarEnd,
    began: std::time::Instant,
    packet: Vec<u8>,
}

impl Far {
    fn new(end: FarEnd) -> Self {
        let config = StackConfig::default().with(|c| {
            c.addresses = vec!["10.0.0.2".parse().unwrap()];
            c.set_sysctl("net.ipv4.tcp_rmem", "4096 65536 65536").unwrap();
            c.set_sysctl("net.ipv4.tcp_wmem", "4096 65536 65536").unwrap();
        });
        IS_FAR.set(true);
        let stack = taut_core::Stack::new(Arc::new(config), LinkCaps::plain(1_500), [1; 32]);
        IS_FAR.set(false);
        Self { stack, end, began: now(), packet: vec![0; 2_048] }
    }

    fn on<R>(&mut self, f: impl FnOnce(&mut taut_core::Stack, Instant) -> R) -> R {
        IS_FAR.set(true);
        let nanos = self.began.elapsed().as_nanos() as u64;
        let result = f(&mut self.stack, Instant::from_nanos(1_000_000_000 + nanos));
        IS_FAR.set(false);
        result
    }

    /// Carries the packets that are there, both ways.
    fn turn(&mut self) {
        let mut packet = std::mem::take(&mut self.packet);
        while let Some(parcel) = self.end.try_recv() {
            let len = parcel.copy_to(&mut packet).unwrap();
            drop(parcel);
            self.on(|stack, now| {
                let frame = Frame::Slice(&packet[..len]);
                stack.handle_packet(now, RxPacket { frame, checksum: RxChecksum::Verified, gso_size: 0 });
            });
        }
        self.on(|stack, now| {
            stack.handle_timeout(now);
            while stack.poll_event().is_some() {}
        });
        loop {
            let len = self.on(|stack, now| {
                let Transmit { packet: from, ticket } = stack.poll_transmit(now)?;
                let bytes = from.to_vec();
                packet[..bytes.len()].copy_from_slice(&bytes);
                stack.handle_tx(now, ticket, Fate::Left);
                Some(bytes.len())
            });
            let Some(len) = len else { break };
            // One for which the channel has no room is lost.
            _ = self.end.put(&TxPacket::whole(&packet[..len]));
        }
        self.packet = packet;
    }
}

/// Opens connections to as many addresses, and fills each in both directions, while neither end reads.
fn fill(far: &mut Far, accepted: &mpsc::Receiver<TcpStream>) -> (Vec<ConnId>, Vec<TcpStream>) {
    let (mut ids, mut near) = (Vec::new(), Vec::new());
    let data = [7; 16_384];
    for number in 0..FLOWS {
        let to = SocketAddr::from(([192, 0, (number / 250) as u8, (number % 250) as u8], 443));
        ids.push(far.on(|stack, now| stack.connect(now, to, &ConnOptions::default())).unwrap());
        let begun = now();
        near.push(loop {
            far.turn();
            if let Ok(stream) = accepted.try_recv() {
                break stream;
            }
            assert!(begun.elapsed() < PATIENCE, "flow {number} does not come");
        });
    }
    // Until neither end takes more; probes of closed windows never end.
    let (mut quiet, begun) = (0, now());
    while quiet < 300 {
        let mut moved = 0;
        for stream in &mut near {
            while let Ok(count) = stream.write(&data) {
                moved += count;
            }
        }
        for id in &ids {
            moved += far.on(|stack, now| {
                let mut conn = stack.conn_mut(*id).unwrap();
                std::iter::from_fn(|| conn.write(now, &data).ok().filter(|count| *count > 0)).sum::<usize>()
            });
        }
        far.turn();
        quiet = if moved > 0 { 0 } else { quiet + 1 };
        thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < PATIENCE, "it takes more and more");
    }
    (ids, near)
}

#[test]
fn mem_19_500_full_flows_hold_less_than_10_mb() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = BYTES.load(Relaxed);
    let (device, end) = channel(LinkCaps::plain(1_500), 256 << 10);
    let builder = Stack::builder().device(device).address("10.0.0.1/24");
    let stack = builder.set_sysctl("net.ipv4.tcp_mem", TCP_MEM).build().unwrap();
    let flows = IncomingFlows::open(&stack, FlowFilter::any()).unwrap();
    let (to, accepted) = mpsc::channel();
    let acceptor = thread::spawn(move || {
        while let Ok(flow) = flows.accept() {
            let stream = flow.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            to.send(stream).unwrap();
        }
    });
    let mut far = Far::new(end);
    // The second time, there is spare memory of the first.
    for round in 0..2 {
        MOST.store(0, Relaxed);
        let (ids, mut near) = fill(&mut far, &accepted);
        let most = MOST.load(Relaxed) - before;
        let conns: Vec<_> = stack.snapshot().connections;
        println!("round {round}: {most} bytes at most; {} connections", conns.len());
        assert_eq!(conns.len(), FLOWS);
        assert!(conns.iter().all(|conn| conn.rcv_queue_bytes > 0 && conn.wmem_queued > 0), "all are full");
        assert!(most < MOST_BYTES, "{most} bytes");
        // Each still works: its reader begins to read.
        let mut got = vec![0; 4_096];
        for stream in &mut near {
            assert!(stream.read(&mut got).unwrap() > 0);
        }
        for id in ids {
            far.on(|stack, now| stack.conn_mut(id).into_iter().for_each(|conn| conn.abort(now)));
        }
        drop(near);
        let begun = now();
        while stack.connections() > 0 {
            far.turn();
            assert!(begun.elapsed() < PATIENCE, "{} are left", stack.connections());
        }
    }
    drop((stack, far));
    acceptor.join().unwrap();
}

/// Packets of 52 bytes, as ACKs are, and of 1,500.
#[test]
fn mem_20_packets_that_wait_in_a_channel_hold_little_more_than_its_limit() {
    const LIMIT: usize = 256 << 10;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for len in [52, 1_500] {
        let (device, end) = channel(LinkCaps::plain(1_500), LIMIT);
        let (packet, before) = (vec![0; len], BYTES.load(Relaxed));
        let count = (0..).take_while(|_| end.put(&TxPacket::whole(&packet))).count();
        let held = BYTES.load(Relaxed) - before;
        println!("{count} packets of {len} bytes hold {held}");
        assert_eq!(count, LIMIT.div_ceil(len));
        assert!(held < 4 * LIMIT as i64, "{held} bytes");
        drop((device, end));
    }
}
