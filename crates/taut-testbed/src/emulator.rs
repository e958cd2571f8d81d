//! A path between two ends: a thread that takes packets from one end, passes them through queues of
//! `taut-link`, and puts them into the other; in both directions.
//!
//! Each direction is a list of queue disciplines: for instance a router's queue, and the delay and losses of
//! a wire. A stack and the kernel can send through the same ones, also at the same time, through a
//! [`Switch`].
//!
//! A thread wakes up late, by an amount that depends on the machine. The queues are therefore given the times
//! at which events were due, not those at which the thread woke. A packet is delivered late by the thread's
//! lateness, but that delays or loses no other packet, and the rate is exact however busy the machine is. So
//! a line needs no burst. The thread also asks for real-time priority, for itself alone: a path that waits
//! for other work on the machine is a different path, while a host that does is what is measured.

mod segments;
mod switch;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use segments::{CHECKSUM_AT, Held, RawPacket};
pub use switch::Switch;
use taut_core::{BUFFER_BYTES, Duration, Gather, Instant, Offload, RxChecksum, TxPacket};
use taut_device::sys::{Epoll, EventFd, Interest, TimerFd, become_realtime, monotonic_ns};
use taut_device::{Pipe, Tun};
use taut_driver::Received;
use taut_link::{Ecn, NicSpec, Packet, Policer, PolicerSpec, Qdisc, QdiscSpec, Rate, Tree, Verdict};
use taut_wire::{raw, udp};

/// Packets taken from one side before the other side is served.
const BATCH: usize = 64;
/// How late packets may be so that several are delivered together: a NIC waits as long before it interrupts.
const SLACK: Duration = Duration::from_micros(30);
/// When to ask again a discipline that had nothing although it said otherwise.
const ASK_AGAIN: Duration = Duration::from_micros(100);

/// An end of the path.
#[derive(Debug)]
pub enum Port {
    /// A TUN.
    Tun(Tun),
    /// The other side of a stack's in-process link.
    Pipe(Pipe),
    /// Several hosts.
    Switch(Box<Switch>),
}

/// A packet as it comes from its sender.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// When it came.
    pub at: Instant,
    /// A hash of its addresses and ports.
    pub flow: u64,
    /// Segments of a super-packet; 1 for any other.
    pub segments: u64,
    /// Bytes of its segments' IP packets.
    pub bytes: usize,
    /// Its own bytes: a super-packet's headers count once.
    pub octets: usize,
    /// Bytes of TCP payload.
    pub payload: usize,
}

/// Sees what one direction carries.
pub trait Watch: Send {
    /// A packet comes from its sender.
    fn on_taken(&mut self, packet: &Taken);
    /// Queues dropped this many packets.
    fn on_dropped(&mut self, packets: u64);
}

/// Sees nothing.
impl Watch for () {
    fn on_taken(&mut self, _packet: &Taken) {}
    fn on_dropped(&mut self, _packets: u64) {}
}

/// An observer of one direction, shared with the caller.
pub type Watcher = Arc<Mutex<dyn Watch>>;

impl Port {
    fn recv(&mut self, buffer: &mut Vec<u8>) -> Option<Received> {
        match self {
            Self::Tun(tun) => tun.recv(buffer).ok(),
            Self::Pipe(pipe) => pipe.recv(buffer),
            Self::Switch(switch) => switch.recv(buffer),
        }
    }

    fn put(&self, header: &[u8], payload: &[u8], offload: Offload) -> io::Result<()> {
        let packet = TxPacket { header, payload: Gather::from(payload), offload, departure: Instant::ZERO };
        match self {
            Self::Tun(tun) => tun.put(&packet),
            Self::Pipe(pipe) => pipe.put(&packet),
            Self::Switch(switch) => match switch.port_to(header) {
                Some(port) => port.put(header, payload, offload),
                None => Err(io::ErrorKind::HostUnreachable.into()),
            },
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tun(tun) => tun.as_fd(),
            Self::Pipe(pipe) => pipe.as_fd(),
            Self::Switch(switch) => switch.fd(),
        }
    }
}

/// One direction.
struct Way {
    policer: Option<Policer>,
    queues: Vec<Tree<Rc<RawPacket>>>,
    /// Other rates of the first queue, each from a time on.
    steps: VecDeque<(Instant, Rate)>,
    watcher: Watcher,
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
        // Packets that are neither TCP nor UDP are not cut.
        let datagram = raw::udp_at(bytes).map(|at| at + udp::HEADER_LEN);
        let header_len = raw::headers_len(bytes).or(datagram).unwrap_or(bytes.len());
        let payload = bytes.len() - header_len;
        let segs = raw::segs(payload, received.gso_size.into());
        let len = bytes.len() + (segs - 1) * header_len;
        let offset = datagram.map_or(CHECKSUM_AT, |_| udp::CHECKSUM_OFFSET as u16);
        let (start, ipv6) = (ip_len as u16, raw::is_v6(bytes));
        let offload = match (received.checksum, received.gso_size) {
            (RxChecksum::Unverified, _) => Offload::None,
            (RxChecksum::Verified, 0) => Offload::Checksum { start, offset },
            (RxChecksum::Verified, mss) => Offload::Segment { mss, start, offset, ipv6 },
        };
        let (flow, ecn) = (raw::flow(bytes), raw::ecn(bytes).into());
        let taken = Taken { at: now, flow, segments: segs as u64, bytes: len, octets: bytes.len(), payload };
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner).on_taken(&taken);
        let at = now.max(self.at);
        let whole = RawPacket { bytes: bytes.to_vec(), header_len, offload };
        let packet = |segs: u16, len: usize, whole| {
            let on_wire = len as u32 + u32::from(segs) * NicSpec::ETHERNET_BYTES;
            Packet { segs, flow, ecn, departure: at, ..Packet::new(on_wire, Rc::new(whole)) }
        };
        if self.is_network {
            for part in whole.split() {
                self.enter(at, packet(1, part.bytes.len(), part));
            }
        } else {
            self.enter(at, packet(segs as u16, len, whole));
        }
    }

    fn enter(&mut self, now: Instant, packet: Packet<Rc<RawPacket>>) {
        if self.policer.as_mut().is_none_or(|policer| policer.passes(now, packet.len)) {
            self.enqueue(0, now, packet);
        } else {
            self.note_dropped(1);
        }
    }

    fn enqueue(&mut self, index: usize, now: Instant, packet: Packet<Rc<RawPacket>>) {
        let Some(queue) = self.queues.get_mut(index) else { return };
        let mut dropped = u64::from(matches!(queue.enqueue(now, packet), Verdict::Dropped(_)));
        while queue.poll_dropped().is_some() {
            dropped += 1;
        }
        if dropped > 0 {
            self.note_dropped(dropped);
        }
    }

    fn note_dropped(&self, packets: u64) {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner).on_dropped(packets);
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
            let step = self.steps.front().map(|(at, _)| *at);
            let next = self.queues.iter().filter_map(Qdisc::next).chain(step).min()?;
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
        while let Some(&(_, rate)) = self.steps.front().filter(|(from, _)| *from <= at) {
            self.steps.pop_front();
            moved = true;
            if let Some(queue) = self.queues.first_mut() {
                queue.set_rate(at, rate);
            }
        }
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
                self.note_dropped(1);
            }
        }
        moved
    }

    fn deliver(&mut self, packet: Packet<Rc<RawPacket>>, out: &Port) {
        // A receiver drops damaged packets. They are dropped here already, because the checksum of a packet
        // that was never on a wire is not computed yet.
        if packet.corrupt.is_some() {
            self.note_dropped(1);
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
            self.note_dropped(1);
        }
    }
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Emulator {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
    is_realtime: bool,
}

/// Orders to the thread while it runs.
#[derive(Debug)]
struct Orders {
    stop: AtomicBool,
    /// When the times of steps begin; [`NOT_YET`] before.
    begin_ns: AtomicU64,
    /// Signalled when one of them has changed.
    changed: EventFd,
}

/// No time.
const NOT_YET: u64 = u64::MAX;

/// A path's two directions, each from the queue at its sender to the one at its receiver.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// From the near end to the far one.
    pub there: Vec<QdiscSpec>,
    /// From the far end to the near one.
    pub back: Vec<QdiscSpec>,
    /// Drops what exceeds its rate on the way to the far end, in front of the queues.
    pub policer: Option<PolicerSpec>,
    /// Other rates of each direction's first queue, there and back, if that is a `tbf`: each from a time
    /// after [`Emulator::begin`] on, in order.
    pub steps: [Vec<(Duration, Rate)>; 2],
    /// Packets are cut to segments before they enter a queue, and merged again at the end.
    pub is_network: bool,
    /// Of losses and jitter.
    pub seed: u64,
}

impl Emulator {
    /// Joins two ports. `watchers` see the packets to the far end, and back.
    ///
    /// # Errors
    ///
    /// When the thread or its descriptors cannot be had.
    pub fn start(near: Port, far: Port, ways: Ways, watchers: [Watcher; 2]) -> io::Result<Self> {
        let orders = Arc::new(Orders {
            stop: AtomicBool::new(false),
            begin_ns: AtomicU64::new(NOT_YET),
            changed: EventFd::new()?,
        });
        let their_orders = Arc::clone(&orders);
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let _ = sender.send(become_realtime().is_ok());
            let Ways { there, back, policer, steps, is_network, seed } = ways;
            let [there_watcher, back_watcher] = watchers;
            let build = |specs: &[QdiscSpec], seed: u64, watcher| Way {
                policer: None,
                steps: VecDeque::new(),
                queues: specs.iter().zip(seed..).map(|(spec, seed)| spec.build(seed)).collect(),
                watcher,
                at: Instant::ZERO,
                is_network,
                held: None,
            };
            let mut ways = [build(&there, seed, there_watcher), build(&back, seed ^ (1 << 32), back_watcher)];
            ways[0].policer = policer.map(Policer::new);
            // A failure here, such as a descriptor that cannot be waited for, shows as a run without packets.
            let _ = run([near, far], &mut ways, steps, &their_orders);
        })?;
        Ok(Self { orders, thread: Some(thread), is_realtime: receiver.recv().unwrap_or(false) })
    }

    /// From now on, the time of steps runs. Only the first call has an effect.
    pub fn begin(&self) {
        let now = monotonic_ns();
        let _ = self.orders.begin_ns.compare_exchange(NOT_YET, now, Ordering::Relaxed, Ordering::Relaxed);
        self.orders.changed.signal();
    }

    /// Whether the thread was granted real-time priority.
    #[must_use]
    pub const fn is_realtime(&self) -> bool {
        self.is_realtime
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Relaxed);
        self.orders.changed.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut ports: [Port; 2],
    ways: &mut [Way; 2],
    steps: [Vec<(Duration, Rate)>; 2],
    orders: &Orders,
) -> io::Result<()> {
    let (epoll, timer) = (Epoll::new()?, TimerFd::new()?);
    epoll.add(ports[0].fd(), 0, Interest::Readable)?;
    epoll.add(ports[1].fd(), 1, Interest::Readable)?;
    epoll.add(timer.as_fd(), 2, Interest::Readable)?;
    epoll.add(orders.changed.as_fd(), 3, Interest::Readable)?;
    let mut steps = Some(steps);
    let mut buffer = vec![0; BUFFER_BYTES];
    while !orders.stop.load(Ordering::Relaxed) {
        let begin_ns = orders.begin_ns.load(Ordering::Relaxed);
        if begin_ns != NOT_YET
            && let Some(steps) = steps.take()
        {
            let begin = Instant::from_nanos(begin_ns);
            for (way, steps) in ways.iter_mut().zip(steps) {
                way.steps = steps.into_iter().map(|(after, rate)| (begin + after, rate)).collect();
            }
        }
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
        if epoll.wait(None)?.contains(3) {
            orders.changed.drain();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
