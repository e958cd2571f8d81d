//! The path between the two ends of a live run: a thread that takes packets from one end, passes them through
//! queues of `taut-link`, and puts them into the other; in both directions. Called by `live.rs`.
//!
//! Each direction is a list of queue disciplines: the router's queue of a dumbbell, if there is one, and the
//! delay and losses of the wire. taut and the kernel send through the same ones.
//!
//! A thread wakes up late, by an amount that depends on the machine. The queues are therefore given the times
//! at which events were due, not those at which the thread woke. A packet is delivered late by the thread's
//! lateness, but that delays or loses no other packet, and the rate is exact however busy the machine is. So
//! a line needs no burst.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::carried::Carried;
use super::segments::{CHECKSUM_AT, Held, RawPacket};
use taut_core::{BUFFER_BYTES, Duration, Gather, Instant, Offload, RxChecksum, TxPacket};
use taut_device::sys::{Epoll, EventFd, Interest, TimerFd, monotonic_ns};
use taut_device::{Pipe, Tun};
use taut_driver::Received;
use taut_link::{Ecn, NicSpec, Packet, Qdisc, QdiscSpec, Tree, Verdict};
use taut_wire::raw;

/// Packets taken from one side before the other side is served.
const BATCH: usize = 64;
/// How late packets may be so that several are delivered together: a NIC waits as long before it interrupts.
const SLACK: Duration = Duration::from_micros(30);
/// When to ask again a discipline that had nothing although it said otherwise.
const ASK_AGAIN: Duration = Duration::from_micros(100);

/// An end of the path.
pub(super) enum Port {
    Tun(Tun),
    Pipe(Pipe),
}

impl Port {
    fn recv(&mut self, buffer: &mut Vec<u8>) -> Option<Received> {
        match self {
            Self::Tun(tun) => tun.recv(buffer).ok(),
            Self::Pipe(pipe) => pipe.recv(buffer),
        }
    }

    fn put(&self, header: &[u8], payload: &[u8], offload: Offload) -> io::Result<()> {
        let packet = TxPacket { header, payload: Gather::from(payload), offload, departure: Instant::ZERO };
        match self {
            Self::Tun(tun) => tun.put(&packet),
            Self::Pipe(pipe) => pipe.put(&packet),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(tun) => tun.as_fd(),
            Self::Pipe(pipe) => pipe.as_fd(),
        }
    }
}

fn lock(counts: &Mutex<Carried>) -> MutexGuard<'_, Carried> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One direction.
struct Way {
    queues: Vec<Tree<Rc<RawPacket>>>,
    counts: Arc<Mutex<Carried>>,
    /// The time up to which events have happened.
    at: Instant,
    /// Whether super-packets are cut, and merged at the end.
    is_network: bool,
    /// A packet at the end, kept while following packets may be merged with it.
    held: Option<Held>,
}

impl Way {
    fn take(&mut self, now: Instant, buffer: &[u8], received: &Received) {
        let Some(bytes) = buffer.get(received.range.clone()) else { return };
        let Some(ip_len) = raw::ip_len(bytes) else { return };
        // Packets that are not TCP are not cut.
        let header_len = raw::headers_len(bytes).unwrap_or(bytes.len());
        let payload = bytes.len() - header_len;
        let segs = raw::segs(payload, received.gso_size.into());
        let len = bytes.len() + (segs - 1) * header_len;
        let (start, offset, ipv6) = (ip_len as u16, CHECKSUM_AT, raw::is_v6(bytes));
        let offload = match (received.checksum, received.gso_size) {
            (RxChecksum::Unverified, _) => Offload::None,
            (RxChecksum::Verified, 0) => Offload::Checksum { start, offset },
            (RxChecksum::Verified, mss) => Offload::Segment { mss, start, offset, ipv6 },
        };
        let (flow, ecn) = (raw::flow(bytes), raw::ecn(bytes).into());
        lock(&self.counts).take(now, flow, segs as u64, (len, bytes.len(), payload));
        let at = now.max(self.at);
        let whole = RawPacket { bytes: bytes.to_vec(), header_len, offload };
        let packet = |segs: u16, len: usize, whole| {
            let on_wire = len as u32 + u32::from(segs) * NicSpec::ETHERNET_BYTES;
            Packet { segs, flow, ecn, departure: at, ..Packet::new(on_wire, Rc::new(whole)) }
        };
        if self.is_network {
            for part in whole.split() {
                self.enqueue(0, at, packet(1, part.bytes.len(), part));
            }
        } else {
            self.enqueue(0, at, packet(segs as u16, len, whole));
        }
    }

    fn enqueue(&mut self, index: usize, now: Instant, packet: Packet<Rc<RawPacket>>) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let mut dropped = u64::from(matches!(queue.enqueue(now, packet), Verdict::Dropped(_)));
        while queue.poll_dropped().is_some() {
            dropped += 1;
        }
        if dropped > 0 {
            lock(&self.counts).dropped += dropped;
        }
    }

    /// Carries out everything that was due until now, each event at its own time, and puts the packets that
    /// reach the end into `out`. Returns when there is more to do.
    fn run(&mut self, now: Instant, out: &Port) -> Option<Instant> {
        let next = self.run_queues(now, out);
        self.release(out);
        next
    }

    fn run_queues(&mut self, now: Instant, out: &Port) -> Option<Instant> {
        loop {
            let next = self.queues.iter().filter_map(Qdisc::next).min()?;
            if next > now {
                return Some(next);
            }
            self.at = self.at.max(next);
            // A discipline may say that it has a packet and not give it; it will at a later time.
            if !self.step(self.at, out) {
                if self.at >= now {
                    return Some(now + ASK_AGAIN);
                }
                self.at = now;
            }
        }
    }

    /// Carries out the events due at this time. Returns whether there were any.
    fn step(&mut self, at: Instant, out: &Port) -> bool {
        let mut moved = false;
        for index in 0..self.queues.len() {
            while let Some(packet) = self.queues.get_mut(index).and_then(|queue| queue.dequeue(at)) {
                moved = true;
                if index + 1 < self.queues.len() {
                    self.enqueue(index + 1, at, Packet { departure: at, ..packet });
                } else {
                    self.deliver(packet, out);
                }
            }
            while self.queues.get_mut(index).and_then(Qdisc::poll_dropped).is_some() {
                lock(&self.counts).dropped += 1;
            }
        }
        moved
    }

    fn deliver(&mut self, packet: Packet<Rc<RawPacket>>, out: &Port) {
        // A receiver drops damaged packets. They are dropped here already, because the checksum of a packet
        // that was never on a wire is not computed yet.
        if packet.corrupt.is_some() {
            lock(&self.counts).dropped += 1;
            return;
        }
        let mut raw_packet = Rc::unwrap_or_clone(packet.item);
        if packet.ecn == Ecn::Marked {
            raw::set_ce(&mut raw_packet.bytes);
        }
        if self.held.as_mut().is_some_and(|held| held.add(&raw_packet)) {
            return;
        }
        self.release(out);
        self.held = Some(Held::new(raw_packet));
        if !self.is_network {
            self.release(out);
        }
    }

    /// Releases the kept packet.
    fn release(&mut self, out: &Port) {
        let Some(Held { packet, .. }) = self.held.take() else { return };
        if out.put(packet.header(), packet.payload(), packet.offload).is_err() {
            lock(&self.counts).dropped += 1;
        }
    }
}

/// The thread; it ends when this is dropped.
pub(super) struct Emulator {
    stop: Arc<(AtomicBool, EventFd)>,
    thread: Option<JoinHandle<()>>,
    /// Counts of the direction to the receiver, and back.
    counts: [Arc<Mutex<Carried>>; 2],
}

impl Emulator {
    /// Joins two ports by the queues of each direction; in a network, super-packets are cut.
    pub(super) fn start(
        near: Port,
        far: Port,
        there: Vec<QdiscSpec>,
        back: Vec<QdiscSpec>,
        seed: u64,
        is_network: bool,
    ) -> io::Result<Self> {
        let counts = <[Arc<Mutex<Carried>>; 2]>::default();
        let stop = Arc::new((AtomicBool::new(false), EventFd::new()?));
        let (their_stop, their_counts) = (Arc::clone(&stop), counts.clone());
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let [there_counts, back_counts] = their_counts;
            let build = |specs: &[QdiscSpec], seed: u64, counts| Way {
                queues: specs.iter().zip(seed..).map(|(spec, seed)| spec.build(seed)).collect(),
                counts,
                at: Instant::ZERO,
                is_network,
                held: None,
            };
            let mut ways = [build(&there, seed, there_counts), build(&back, seed ^ (1 << 32), back_counts)];
            // A failure here, such as a descriptor that cannot be waited for, shows as a run without packets.
            let _ = run([near, far], &mut ways, &their_stop);
        })?;
        Ok(Self { stop, thread: Some(thread), counts })
    }

    /// Resets the counts.
    pub(super) fn begin(&self) {
        self.counts.iter().for_each(|counts| lock(counts).begin());
    }

    /// The counts since then, to the receiver and back.
    pub(super) fn carried(&self) -> [Carried; 2] {
        self.counts.each_ref().map(|counts| lock(counts).clone())
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        self.stop.1.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut ports: [Port; 2], ways: &mut [Way; 2], stop: &(AtomicBool, EventFd)) -> io::Result<()> {
    let (epoll, timer) = (Epoll::new()?, TimerFd::new()?);
    epoll.add(ports[0].fd(), 0, Interest::Readable)?;
    epoll.add(ports[1].fd(), 1, Interest::Readable)?;
    epoll.add(timer.as_fd(), 2, Interest::Readable)?;
    epoll.add(stop.1.as_fd(), 3, Interest::Readable)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    while !stop.0.load(Ordering::Relaxed) {
        let mut more = false;
        for side in 0..2 {
            for number in 0..=BATCH {
                more |= number == BATCH;
                if number == BATCH {
                    break;
                }
                match ports[side].recv(&mut buffer) {
                    Some(received) => {
                        let now = Instant::from_nanos(monotonic_ns());
                        // Packets that left before it came make room for it.
                        ways[side].run(now, &ports[1 - side]);
                        ways[side].take(now, &buffer, &received);
                    }
                    None => break,
                }
            }
        }
        let now = Instant::from_nanos(monotonic_ns());
        let due = [ways[0].run(now, &ports[1]), ways[1].run(now, &ports[0])];
        if more {
            continue;
        }
        match due.into_iter().flatten().min() {
            Some(at) if at <= now => continue,
            Some(at) => timer.arm(at.max(now + SLACK).as_nanos()),
            None => timer.disarm(),
        }
        epoll.wait(None)?;
    }
    Ok(())
}
