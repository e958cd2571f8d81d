//! A network card, as far as a sender can tell: a ring of descriptors, a line, and interrupts. Called by a simulator;
//! sans-IO like everything here.
//!
//! ```text
//!   transmit ─▶ ring ─▶ cut (tso.rs) ─▶ line ─▶ poll_sent          receive ─▶ rx ring ─▶ interrupt ─▶ gro.rs ─▶ poll_received
//!      ▲         └──────▶ done ─▶ interrupt ─▶ poll_completed
//!      └── room: descriptors and byte queue limit (bql.rs)
//! ```
//!
//! **Line.** Segments follow each other at the line's rate, each with [`overhead`](NicSpec::overhead_bytes) beside its IP
//! packet: for Ethernet 14 bytes of header, 4 of checksum, 8 of preamble and 12 of gap. So a gigabit carries 81,274
//! full packets of 1500 bytes in a second, not 83,333. Times are computed from the bytes since the line was last idle:
//! nothing is rounded twice.
//!
//! **Ring.** A descriptor carries up to 16 KB; a super-packet takes several. They come free when the host is told
//! (not when the bytes have left), so a short ring with lazy interrupts idles. The host is asked to keep away, by
//! [`room`](Nic::room), while the largest packet might not fit.
//!
//! **Interrupts.** An interrupt costs a host microseconds, so a NIC collects: it interrupts when `usecs` have passed since
//! the first packet it has not told of, or when `frames` are there, whichever is sooner (`ethtool -C`). Until then the
//! sender's bytes count as being below it, as TCP Small Queues see it: this is the 16 µs that let automatic corking
//! hold back the head of a queue in 2013.

use alloc::collections::VecDeque;

use taut_core::{Duration, Instant};

use crate::bql::{Bql, BqlSpec};
use crate::gro::{Gro, Merge};
use crate::qdisc::Packet;
use crate::quantity::Rate;
use crate::tso::Cut;

/// Bytes that a descriptor can point to. Usual: 16 KB in Intel's cards.
const DESCRIPTOR_BYTES: u32 = 16_384;

/// Descriptors for the largest packet, 64 KB of payload and a header.
const DESCRIPTORS_MAX: usize = 5;

/// What a NIC is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicSpec {
    /// Bits that the line carries in a second.
    pub rate: Rate,
    /// Descriptors for transmission, at least 5. `ethtool -G tx`.
    pub ring: usize,
    /// Whether it cuts super-packets; otherwise they are cut before it, and each segment takes a descriptor.
    pub tso: bool,
    /// Byte queue limit; none when `None`.
    pub bql: Option<BqlSpec>,
    /// Bytes beside each IP packet on the wire: 38 for Ethernet.
    pub overhead_bytes: u32,
    /// How long completions are collected; zero for no time. `ethtool -C tx-usecs`.
    pub tx_usecs: Duration,
    /// How many completions are collected; zero for any number. `ethtool -C tx-frames`.
    pub tx_frames: u32,
    /// How long arrivals are collected; zero for no time. `ethtool -C rx-usecs`.
    pub rx_usecs: Duration,
    /// How many arrivals are collected; zero for any number. `ethtool -C rx-frames`.
    pub rx_frames: u32,
    /// Packets that may wait for the interrupt that announces them. `ethtool -G rx`.
    pub rx_ring: usize,
    /// Whether what arrives together is merged. `ethtool -K gro`.
    pub gro: bool,
}

impl NicSpec {
    /// Bytes beside an IP packet on Ethernet: header 14, checksum 4, preamble 8, gap 12.
    pub const ETHERNET_BYTES: u32 = 38;

    /// A card of this rate as Linux would set it up: 512 descriptors, TSO, GRO, byte queue limits, and interrupts that
    /// are not collected.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            ring: 512,
            tso: true,
            bql: Some(BqlSpec::default()),
            overhead_bytes: Self::ETHERNET_BYTES,
            tx_usecs: Duration::ZERO,
            tx_frames: 0,
            rx_usecs: Duration::ZERO,
            rx_frames: 0,
            rx_ring: 4_096,
            gro: true,
        }
    }
}

/// What a NIC has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NicStats {
    /// Packets on the wire, each segment counted.
    pub tx_packets: u64,
    /// Their bytes, IP headers included.
    pub tx_bytes: u64,
    /// Interrupts that told of completions.
    pub tx_interrupts: u64,
    /// Packets that arrived, not counting those dropped.
    pub rx_packets: u64,
    /// Their bytes, IP headers included.
    pub rx_bytes: u64,
    /// Interrupts that told of arrivals.
    pub rx_interrupts: u64,
    /// Packets handed up, a merged one being one.
    pub rx_handed_up: u64,
    /// Packets that found the receive ring full.
    pub rx_dropped: u64,
    /// How long the line was busy.
    pub tx_busy: Duration,
}

/// A network card. `T` is the packet, `C` what comes back when it has left, as a
/// [`TxTicket`](taut_core::TxTicket). `now` never goes backwards.
#[derive(Debug)]
pub struct Nic<T, C> {
    spec: NicSpec,
    bql: Option<Bql>,
    /// Not wholly on the wire; the first is being sent.
    jobs: VecDeque<Job<T, C>>,
    used_descriptors: usize,
    /// Bytes in the ring that are not on the wire.
    unsent_bytes: u64,
    line: Line,
    /// On the wire, not taken away.
    sent: VecDeque<Packet<T>>,
    /// On the wire, the host not told.
    done: VecDeque<Done<C>>,
    tx_irq: Coalescer,
    completed: VecDeque<C>,
    rx: VecDeque<Packet<T>>,
    rx_irq: Coalescer,
    gro: Gro<T>,
    received: VecDeque<Packet<T>>,
    stats: NicStats,
}

#[derive(Debug)]
struct Job<T, C> {
    packet: Packet<T>,
    /// Segments that are on the wire.
    cut: u16,
    descriptors: usize,
    /// Comes back with the last segment.
    token: Option<C>,
    ready_at: Instant,
    /// The segment being sent, and when it is wholly on the wire.
    now_sending: Option<(Packet<T>, Instant)>,
}

#[derive(Debug)]
struct Done<C> {
    token: Option<C>,
    descriptors: usize,
    bytes: u64,
}

/// Bytes one after the other at a rate.
#[derive(Debug)]
struct Line {
    rate: Rate,
    /// Since when it has been busy without a pause, until when, and how many bytes that are.
    from: Instant,
    until: Instant,
    bytes: u64,
}

impl Line {
    /// When the last of `bytes` that were there at `at` is sent.
    fn carry(&mut self, at: Instant, bytes: u64) -> Instant {
        if at > self.until {
            (self.from, self.bytes) = (at, 0);
        }
        self.bytes += bytes;
        self.until = self.from + self.rate.time_for(self.bytes);
        self.until
    }
}

/// Decides when to interrupt.
#[derive(Debug)]
struct Coalescer {
    usecs: Duration,
    frames: u32,
    /// Not told of.
    count: u32,
    at: Option<Instant>,
}

impl Coalescer {
    const fn new(usecs: Duration, frames: u32) -> Self {
        Self { usecs, frames, count: 0, at: None }
    }

    /// Something to tell of.
    fn add(&mut self, now: Instant) {
        self.count += 1;
        let deadline = *self.at.get_or_insert(now + self.usecs);
        if self.frames != 0 && self.count >= self.frames {
            self.at = Some(deadline.min(now));
        }
    }

    /// Whether to interrupt now; everything is told of then.
    fn fire(&mut self, now: Instant) -> bool {
        let fires = self.at.take_if(|at| *at <= now).is_some();
        if fires {
            self.count = 0;
        }
        fires
    }
}

impl<T, C> Nic<T, C> {
    /// An idle card.
    #[must_use]
    pub fn new(spec: NicSpec) -> Self {
        Self {
            bql: spec.bql.map(Bql::new),
            jobs: VecDeque::new(),
            used_descriptors: 0,
            unsent_bytes: 0,
            line: Line { rate: spec.rate, from: Instant::ZERO, until: Instant::ZERO, bytes: 0 },
            sent: VecDeque::new(),
            done: VecDeque::new(),
            tx_irq: Coalescer::new(spec.tx_usecs, spec.tx_frames),
            completed: VecDeque::new(),
            rx: VecDeque::new(),
            rx_irq: Coalescer::new(spec.rx_usecs, spec.rx_frames),
            gro: Gro::default(),
            received: VecDeque::new(),
            stats: NicStats::default(),
            spec,
        }
    }

    /// What it is like.
    #[must_use]
    pub const fn spec(&self) -> &NicSpec {
        &self.spec
    }

    /// What it has done.
    #[must_use]
    pub const fn stats(&self) -> NicStats {
        self.stats
    }

    /// Whether a packet of any size may be [transmitted](Self::transmit): descriptors and the byte queue limit have
    /// room. Ask it after [`poll_completed`](Self::poll_completed), which makes some.
    #[must_use]
    pub fn room(&self) -> bool {
        self.free_descriptors() >= DESCRIPTORS_MAX && self.bql.as_ref().is_none_or(Bql::has_room)
    }

    /// Bytes in the ring that are not on the wire, IP headers included.
    #[must_use]
    pub const fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Descriptors that are free.
    #[must_use]
    pub fn free_descriptors(&self) -> usize {
        self.spec.ring.max(DESCRIPTORS_MAX).saturating_sub(self.used_descriptors)
    }

    /// The byte queue limit, if there is one.
    #[must_use]
    pub const fn bql(&self) -> Option<&Bql> {
        self.bql.as_ref()
    }

    /// When one of the `poll` methods has something; an instant in the past means at once.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        if !self.sent.is_empty() || !self.completed.is_empty() || !self.received.is_empty() {
            return Some(Instant::ZERO);
        }
        let sending = self.jobs.front().and_then(|job| job.now_sending.as_ref()).map(|(_, at)| *at);
        [sending, self.tx_irq.at, self.rx_irq.at].into_iter().flatten().min()
    }

    /// A packet arrives from the wire.
    pub fn receive(&mut self, now: Instant, packet: Packet<T>) {
        if self.rx.len() >= self.spec.rx_ring {
            self.stats.rx_dropped += 1;
            return;
        }
        self.stats.rx_packets += u64::from(packet.segs);
        self.stats.rx_bytes += u64::from(packet.len);
        self.rx.push_back(packet);
        self.rx_irq.add(now);
    }

    /// A packet to hand up, once an interrupt has told of it.
    #[must_use = "a packet that was received must go somewhere"]
    pub fn poll_received(&mut self, now: Instant) -> Option<Packet<T>>
    where
        T: Merge,
    {
        if self.rx_irq.fire(now) {
            self.stats.rx_interrupts += 1;
            if self.spec.gro {
                self.rx.drain(..).for_each(|packet| self.gro.push(packet));
                self.gro.flush();
                self.received.extend(core::iter::from_fn(|| self.gro.pop()));
            } else {
                self.received.append(&mut self.rx);
            }
        }
        let packet = self.received.pop_front()?;
        self.stats.rx_handed_up += 1;
        Some(packet)
    }
}

impl<T: Cut, C> Nic<T, C> {
    /// Puts a packet into the ring. Only when there is [`room`](Self::room): beyond the ring's end packets are queued
    /// all the same. `token` comes back by [`poll_completed`](Self::poll_completed).
    pub fn transmit(&mut self, now: Instant, packet: Packet<T>, token: C) {
        self.advance(now);
        self.unsent_bytes += u64::from(packet.len);
        if let Some(bql) = &mut self.bql {
            bql.on_queued(u64::from(packet.len));
        }
        if self.spec.tso || packet.segs <= 1 {
            self.put(now, packet, Some(token));
        } else {
            let mut token = Some(token);
            for index in 0..packet.segs {
                let segment = segment(&packet, index);
                let is_last = index + 1 == packet.segs;
                self.put(now, segment, token.take_if(|_| is_last));
            }
        }
        self.start_sending();
    }

    fn put(&mut self, now: Instant, packet: Packet<T>, token: Option<C>) {
        let descriptors = packet.len.div_ceil(DESCRIPTOR_BYTES).max(1) as usize;
        self.used_descriptors += descriptors;
        self.jobs.push_back(Job { packet, cut: 0, descriptors, token, ready_at: now, now_sending: None });
    }

    /// A packet that is wholly on the wire, a segment where it was a super-packet.
    #[must_use = "a packet that was sent must go somewhere"]
    pub fn poll_sent(&mut self, now: Instant) -> Option<Packet<T>> {
        self.advance(now);
        self.sent.pop_front()
    }

    /// The token of a packet that has left, once an interrupt has told of it.
    pub fn poll_completed(&mut self, now: Instant) -> Option<C> {
        self.advance(now);
        self.completed.pop_front()
    }

    /// Whatever happened until `now`.
    fn advance(&mut self, now: Instant) {
        while let Some(job) = self.jobs.front_mut() {
            let Some((segment, at)) = job.now_sending.take_if(|(_, at)| *at <= now) else { break };
            let is_last = job.cut >= job.packet.segs;
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += u64::from(segment.len);
            self.unsent_bytes -= u64::from(segment.len).min(self.unsent_bytes);
            self.sent.push_back(segment);
            if let Some(job) = is_last.then(|| self.jobs.pop_front()).flatten() {
                let bytes = u64::from(job.packet.len);
                self.done.push_back(Done { token: job.token, descriptors: job.descriptors, bytes });
                self.tx_irq.add(at);
            }
            self.start_sending();
        }
        if self.tx_irq.fire(now) {
            self.stats.tx_interrupts += 1;
            let mut bytes = 0;
            for done in self.done.drain(..) {
                bytes += done.bytes;
                self.used_descriptors -= done.descriptors;
                self.completed.extend(done.token);
            }
            if let Some(bql) = &mut self.bql {
                bql.on_completed(now, bytes);
            }
        }
    }

    /// The first segment that is not on the wire, if none is being sent.
    fn start_sending(&mut self) {
        let Some(job) = self.jobs.front_mut().filter(|job| job.now_sending.is_none()) else { return };
        let next = segment(&job.packet, job.cut);
        let bytes = u64::from(next.len) + u64::from(self.spec.overhead_bytes);
        let start = self.line.until.max(job.ready_at);
        let until = self.line.carry(job.ready_at, bytes);
        self.stats.tx_busy += until.since(start);
        job.cut += 1;
        job.now_sending = Some((next, until));
    }
}

/// A packet of its own for each segment.
fn segment<T: Cut>(packet: &Packet<T>, index: u16) -> Packet<T> {
    let (item, len) = packet.item.cut(index, packet.segs, packet.len);
    let &Packet { departure, flow, priority, ecn, corrupt, .. } = packet;
    // A super-packet has one damaged bit.
    let corrupt = corrupt.filter(|_| index == 0);
    Packet { len, segs: 1, departure, flow, priority, ecn, corrupt, item }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::tests::packet;

    const START: Instant = Instant::from_nanos(3_000_000_000);
    /// A gigabit takes 8 ns for a byte; a full packet has 1500 and 38 beside.
    const FULL_NS: u64 = 1_538 * 8;

    fn ns(ns: u64) -> Instant {
        START + Duration::from_nanos(ns)
    }

    fn gigabit(change: impl FnOnce(&mut NicSpec)) -> Nic<u32, u32> {
        let mut spec = NicSpec { bql: None, ..NicSpec::new("1gbit".parse().unwrap()) };
        change(&mut spec);
        Nic::new(spec)
    }

    type Trace = Vec<(u64, u32)>;

    /// When each segment is on the wire and each token is back, in nanoseconds, driven by `next`.
    fn drive(nic: &mut Nic<u32, u32>, until: Instant) -> (Trace, Trace) {
        let (mut sent, mut completed) = (Vec::new(), Vec::new());
        while let Some(at) = nic.next().filter(|&at| at <= until) {
            let at_ns = at.since(START).as_nanos();
            sent.extend(core::iter::from_fn(|| nic.poll_sent(at)).map(|packet| (at_ns, packet.len)));
            completed.extend(core::iter::from_fn(|| nic.poll_completed(at)).map(|token| (at_ns, token)));
        }
        (sent, completed)
    }

    #[test]
    fn packets_follow_each_other_at_line_rate() {
        let mut nic = gigabit(|_| ());
        nic.transmit(START, packet(0, 1_500), 70);
        nic.transmit(START, packet(1, 1_500), 71);
        // The line has been idle for a while when the third comes.
        nic.transmit(ns(10_000), packet(2, 100), 72);
        let (sent, completed) = drive(&mut nic, ns(1_000_000));
        assert_eq!(sent, [(FULL_NS, 1_500), (2 * FULL_NS, 1_500), (2 * FULL_NS + 138 * 8, 100)]);
        assert_eq!(completed, [(FULL_NS, 70), (2 * FULL_NS, 71), (2 * FULL_NS + 138 * 8, 72)]);
        nic.transmit(ns(500_000), packet(3, 1_500), 73);
        assert_eq!(nic.next(), Some(ns(500_000 + FULL_NS)));
        let stats = nic.stats();
        assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_interrupts), (3, 3_100, 3));
    }

    #[test]
    fn a_second_of_full_packets_is_81274_of_them() {
        let mut nic = gigabit(|spec| spec.ring = 100_000);
        (0..90_000).for_each(|i| nic.transmit(START, packet(i, 1_500), i));
        let (sent, _) = drive(&mut nic, ns(1_000_000_000));
        // 125,000,000 / 1538.
        assert_eq!(sent.len(), 81_274);
    }

    #[test]
    fn a_super_packet_is_cut_on_the_wire_and_comes_back_once() {
        for tso in [true, false] {
            let mut nic = gigabit(|spec| (spec.tso, spec.ring) = (tso, 8));
            nic.transmit(START, Packet { segs: 3, ..packet(0, 4_300) }, 70);
            // Three pieces of 1434, 1434 and 1432 bytes: cut here, or each with its descriptor.
            assert_eq!((nic.free_descriptors(), nic.unsent_bytes()), (if tso { 7 } else { 5 }, 4_300));
            let (sent, completed) = drive(&mut nic, ns(1_000_000));
            let first = (1_434 + 38) * 8;
            let end = 2 * first + (1_432 + 38) * 8;
            assert_eq!(sent, [(first, 1_434), (2 * first, 1_434), (end, 1_432)]);
            assert_eq!(completed, [(end, 70)]);
            assert_eq!((nic.free_descriptors(), nic.unsent_bytes()), (8, 0));
            assert_eq!(nic.stats().tx_interrupts, if tso { 1 } else { 3 });
        }
    }

    #[test]
    fn completions_wait_for_time_or_number() {
        let usecs = Duration::from_micros(16);
        let mut nic = gigabit(|spec| spec.tx_usecs = usecs);
        nic.transmit(START, packet(0, 1_500), 70);
        nic.transmit(START, packet(1, 1_500), 71);
        nic.transmit(START, packet(2, 1_500), 72);
        // 16 µs after the first, the second has left too.
        let (_, completed) = drive(&mut nic, ns(1_000_000));
        assert_eq!(completed[..2], [(FULL_NS + 16_000, 70), (FULL_NS + 16_000, 71)]);
        assert_eq!(completed[2], (3 * FULL_NS + 16_000, 72));
        assert_eq!(nic.stats().tx_interrupts, 2);

        let mut nic = gigabit(|spec| (spec.tx_usecs, spec.tx_frames) = (Duration::from_millis(1), 2));
        (0..3).for_each(|i| nic.transmit(START, packet(i, 1_500), i));
        let (_, completed) = drive(&mut nic, ns(10_000_000));
        assert_eq!(completed, [(2 * FULL_NS, 0), (2 * FULL_NS, 1), (3 * FULL_NS + 1_000_000, 2)]);
    }

    #[test]
    fn descriptors_come_free_when_the_host_is_told() {
        let mut nic = gigabit(|spec| (spec.ring, spec.tx_usecs) = (8, Duration::from_micros(100)));
        (0..3).for_each(|i| nic.transmit(START, packet(i, 1_500), i));
        assert!(nic.room(), "five are free");
        // 64 KB take four.
        nic.transmit(START, Packet { segs: 44, ..packet(3, 65_536) }, 3);
        assert_eq!((nic.free_descriptors(), nic.room()), (1, false));
        assert_eq!(nic.poll_completed(ns(FULL_NS + 99_999)), None);
        assert_eq!(
            nic.poll_sent(ns(FULL_NS + 99_999)).map(|packet| packet.len),
            Some(1_500),
            "it left long ago"
        );
        assert!(!nic.room());
        assert_eq!(nic.poll_completed(ns(FULL_NS + 100_000)), Some(0));
        assert_eq!((nic.free_descriptors(), nic.room()), (4, false));
    }

    #[test]
    fn a_byte_queue_limit_keeps_the_ring_short_and_the_line_busy() {
        let collected = Duration::from_micros(100);
        let mut nic = gigabit(|spec| (spec.bql, spec.tx_usecs) = (Some(BqlSpec::default()), collected));
        let (mut now, mut most) = (START, 0);
        let mut busy_before = Duration::ZERO;
        while now < ns(3_000_000_000) {
            while nic.room() {
                nic.transmit(now, packet(0, 1_500), 0);
            }
            if now >= ns(2_000_000_000) {
                most = most.max(nic.unsent_bytes());
            } else {
                busy_before = nic.stats().tx_busy;
            }
            now = nic.next().unwrap().max(now);
            while nic.poll_sent(now).is_some() {}
            while nic.poll_completed(now).is_some() {}
        }
        let busy = nic.stats().tx_busy.saturating_sub(busy_before);
        assert!(busy > Duration::from_micros(999_000), "the line idled: {busy:?} of a second");
        // An interrupt's worth is 100 µs and a packet, 14,000 bytes; 512 descriptors would be 768,000.
        assert!(most < 4 * 14_000, "{most} bytes in the ring");
    }

    #[test]
    fn arrivals_are_announced_together_and_merged() {
        let mut nic = gigabit(|spec| (spec.rx_usecs, spec.rx_frames) = (Duration::from_micros(50), 4));
        let arrives =
            |nic: &mut Nic<u32, u32>, us: u64, item| nic.receive(ns(us * 1_000), packet(item, 1_500));
        (0..3).for_each(|i| arrives(&mut nic, u64::from(i) * 12, i));
        assert_eq!(nic.next(), Some(ns(50_000)), "50 µs after the first");
        assert_eq!(nic.poll_received(ns(49_999)), None);
        let merged = nic.poll_received(ns(50_000)).unwrap();
        assert_eq!((merged.segs, merged.len, merged.item), (3, 4_500, 2));
        assert_eq!(nic.poll_received(ns(50_000)), None);
        // The fourth of the next four interrupts at once.
        (3..7).for_each(|i| arrives(&mut nic, 60 + u64::from(i), i));
        assert_eq!(nic.next(), Some(ns(66_000)));
        assert_eq!(nic.poll_received(ns(66_000)).map(|packet| packet.segs), Some(4));
        let stats = nic.stats();
        assert_eq!((stats.rx_interrupts, stats.rx_packets, stats.rx_handed_up), (2, 7, 2));
    }

    #[test]
    fn a_full_receive_ring_drops() {
        let mut nic = gigabit(|spec| (spec.rx_ring, spec.gro) = (2, false));
        (0..3).for_each(|i| nic.receive(START, packet(i, 100)));
        assert_eq!(core::iter::from_fn(|| nic.poll_received(START)).count(), 2);
        assert_eq!(nic.stats().rx_dropped, 1);
    }
}
