//! The way between two ends of a live run: a thread that takes packets from one, lets them pass queues of `taut-link`,
//! and puts them into the other; both ways. Called by `live.rs`.
//!
//! Each way is a list of queue disciplines: the router's queue of a dumbbell, if there is one, and the delay and losses of
//! the wire. Whoever sends, taut or the kernel, sends through the same.
//!
//! A thread is woken late, and by how much is the machine's affair. Queues are told the times at which something was due
//! rather than those at which the thread came: a packet comes late by as much as the thread did, but none is sent later
//! or lost for it, and the rate is exact however busy the machine. So a line needs no burst.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::segments::{Frame, set_ipv4_checksum};
use taut_core::{BUFFER_BYTES, Duration, Gather, Instant, Offload, RxChecksum, TxPacket};
use taut_device::sys::{Epoll, EventFd, Interest, TimerFd, monotonic_ns};
use taut_device::{Pipe, Tun};
use taut_driver::Received;
use taut_link::{Ecn, Packet, Qdisc, QdiscSpec, Tree, Verdict};

/// Packets taken from one side before the other is looked at.
const BATCH: usize = 64;
/// How late packets may be so that more than one comes along: a NIC waits as long before it interrupts.
const SLACK: Duration = Duration::from_micros(30);
/// When a discipline is asked again that had nothing although it said so.
const ASK_AGAIN: Duration = Duration::from_micros(100);
/// What Ethernet sends beside an IP packet: header, checksum, preamble and gap, as the simulator's NICs count.
pub(super) const OVERHEAD_BYTES: u32 = 38;

/// An end of the way.
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

/// What one way has carried.
#[derive(Debug, Default)]
pub(super) struct WayCounts {
    /// Packets, a super-packet being one.
    pub(super) packets: AtomicU64,
    /// Segments.
    pub(super) segments: AtomicU64,
    /// Bytes of IP packets.
    pub(super) bytes: AtomicU64,
    /// Bytes, a super-packet's headers being counted once.
    pub(super) octets: AtomicU64,
    /// Packets that a queue dropped.
    pub(super) dropped: AtomicU64,
}

/// Counts both ways: there, and back.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(pub(super) [Arc<WayCounts>; 2]);

/// One way.
struct Way {
    queues: Vec<Tree<Rc<Frame>>>,
    counts: Arc<WayCounts>,
    /// What has happened so far.
    at: Instant,
    /// Super-packets are cut, and merged at the end.
    is_network: bool,
    /// At the end, as long as others may follow that continue it.
    held: Option<Frame>,
}

impl Way {
    fn take(&mut self, now: Instant, buffer: &[u8], received: &Received) {
        let Some(bytes) = buffer.get(received.range.clone()) else { return };
        let Some(header_len) = header_len(bytes) else { return };
        let payload = bytes.len() - header_len;
        let segs = if received.gso_size == 0 { 1 } else { payload.div_ceil(received.gso_size.into()).max(1) };
        let len = bytes.len() + (segs - 1) * header_len;
        let start = ip_len(bytes);
        let offload = match (received.checksum, received.gso_size) {
            (RxChecksum::Unverified, _) => Offload::None,
            (RxChecksum::Verified, 0) => Offload::Checksum { start, offset: 16 },
            (RxChecksum::Verified, mss) => {
                Offload::Segment { mss, start, offset: 16, ipv6: bytes[0] >> 4 == 6 }
            }
        };
        let ecn = match bytes.get(1) {
            Some(tos) if bytes[0] >> 4 == 4 => codepoint(*tos),
            Some(low) => codepoint(*low >> 4),
            None => Ecn::NotCapable,
        };
        let flow = bytes.get(usize::from(start)..usize::from(start) + 4);
        let flow =
            flow.map_or(0, |ports| u64::from(u32::from_be_bytes([ports[0], ports[1], ports[2], ports[3]])));
        let counts = &self.counts;
        counts.packets.fetch_add(1, Ordering::Relaxed);
        counts.segments.fetch_add(segs as u64, Ordering::Relaxed);
        counts.bytes.fetch_add(len as u64, Ordering::Relaxed);
        counts.octets.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let at = now.max(self.at);
        let frame = Frame { bytes: bytes.to_vec(), header_len, offload };
        let packet = |segs: u16, len: usize, frame| {
            let on_wire = len as u32 + u32::from(segs) * OVERHEAD_BYTES;
            Packet { segs, flow, ecn, departure: at, ..Packet::new(on_wire, Rc::new(frame)) }
        };
        if self.is_network {
            for part in frame.split() {
                self.enqueue(0, at, packet(1, part.bytes.len(), part));
            }
        } else {
            self.enqueue(0, at, packet(segs as u16, len, frame));
        }
    }

    fn enqueue(&mut self, index: usize, now: Instant, packet: Packet<Rc<Frame>>) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let mut dropped = u64::from(matches!(queue.enqueue(now, packet), Verdict::Dropped(_)));
        while queue.poll_dropped().is_some() {
            dropped += 1;
        }
        if dropped > 0 {
            self.counts.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Lets everything happen that was due until now, each at its time, and puts what has come to the end into `out`.
    /// Says when there is more to do.
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
            // A discipline may say that it has something and not give it: it knows better at another time.
            if !self.step(self.at, out) {
                if self.at >= now {
                    return Some(now + ASK_AGAIN);
                }
                self.at = now;
            }
        }
    }

    /// What is due at this time. Says whether there was anything.
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
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        moved
    }

    fn deliver(&mut self, packet: Packet<Rc<Frame>>, out: &Port) {
        // A receiver drops what is damaged. Here it is dropped before, since the checksum of a packet that never was on a
        // wire is yet to be made.
        if packet.corrupt.is_some() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut frame = Rc::unwrap_or_clone(packet.item);
        if packet.ecn == Ecn::Marked {
            mark(&mut frame.bytes);
        }
        if self.held.as_mut().is_some_and(|held| held.merge(&frame)) {
            return;
        }
        self.release(out);
        self.held = Some(frame);
        if !self.is_network {
            self.release(out);
        }
    }

    /// Puts what was held.
    fn release(&mut self, out: &Port) {
        let Some(mut frame) = self.held.take() else { return };
        frame.finish();
        let (header, payload) = frame.bytes.split_at(frame.header_len);
        if out.put(header, payload, frame.offload).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// RFC 3168 §5.
const fn codepoint(tos: u8) -> Ecn {
    match tos & 3 {
        0 => Ecn::NotCapable,
        3 => Ecn::Marked,
        _ => Ecn::Capable,
    }
}

/// Writes CE into the header.
fn mark(bytes: &mut [u8]) {
    match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= 20 => {
            bytes[1] |= 3;
            set_ipv4_checksum(bytes);
        }
        Some(6) if bytes.len() >= 2 => bytes[1] |= 3 << 4,
        _ => {}
    }
}

fn ip_len(bytes: &[u8]) -> u16 {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => u16::from(bytes[0] & 15) * 4,
        _ => 40,
    }
}

/// Bytes of IP and TCP headers; of the whole packet if it is no TCP.
fn header_len(bytes: &[u8]) -> Option<usize> {
    const TCP: u8 = 6;
    let protocol = match bytes.first()? >> 4 {
        4 => *bytes.get(9)?,
        6 => *bytes.get(6)?,
        _ => return None,
    };
    let ip = usize::from(ip_len(bytes));
    if protocol != TCP {
        return Some(bytes.len());
    }
    let len = ip + usize::from(bytes.get(ip + 12)? >> 4) * 4;
    (len <= bytes.len()).then_some(len)
}

/// The thread; it ends when this is dropped.
pub(super) struct Emulator {
    stop: Arc<(AtomicBool, EventFd)>,
    thread: Option<JoinHandle<()>>,
    pub(super) counts: Counts,
}

impl Emulator {
    /// Joins two ports by the queues of each way; in a network super-packets are cut.
    pub(super) fn start(
        near: Port,
        far: Port,
        there: Vec<QdiscSpec>,
        back: Vec<QdiscSpec>,
        seed: u64,
        is_network: bool,
    ) -> io::Result<Self> {
        let counts = Counts::default();
        let stop = Arc::new((AtomicBool::new(false), EventFd::new()?));
        let (their_stop, their_counts) = (Arc::clone(&stop), counts.clone());
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let Counts([there_counts, back_counts]) = their_counts;
            let build = |specs: &[QdiscSpec], seed: u64, counts| Way {
                queues: specs.iter().zip(seed..).map(|(spec, seed)| spec.build(seed)).collect(),
                counts,
                at: Instant::ZERO,
                is_network,
                held: None,
            };
            let mut ways = [build(&there, seed, there_counts), build(&back, seed ^ (1 << 32), back_counts)];
            // What fails here, a descriptor that cannot be waited for, shows as a run without packets.
            let _ = run([near, far], &mut ways, &their_stop);
        })?;
        Ok(Self { stop, thread: Some(thread), counts })
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
                        // What left before it came makes room for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_leaves_the_checksum_right() {
        // RFC 1071: the sum of all words with the checksum is all ones.
        let sum = |bytes: &[u8]| {
            let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            let sum: u32 = words.sum();
            (sum & 0xffff) + (sum >> 16)
        };
        let mut header =
            [0x45, 0x02, 0x00, 0x28, 0x12, 0x34, 0x40, 0x00, 64, 6, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
        let checksum = !(sum(&header) as u16);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!((codepoint(header[1]), sum(&header)), (Ecn::Capable, 0xffff));
        let mut after = header;
        mark(&mut after);
        assert_eq!((codepoint(after[1]), sum(&after)), (Ecn::Marked, 0xffff));
        assert_eq!(after[2..10], header[2..10]);
    }
}
