//! A queue of our own in front of the device, and a wire behind it: what a driver puts where the path below is slower
//! than the device, so that packets wait where they can be counted. Called by [`Shard`](crate::Shard).
//!
//! ```text
//!   poll_transmit ─▶ copy ─▶ queue (taut_link::Qdisc) ─▶ wire (Delay) ─▶ device
//!                              │            └─▶ Fate::Left, or a little later, many at a time
//!                              └─▶ Fate::Dropped, handle_tx_congestion
//! ```
//!
//! The queue can be replaced while it runs ([`Front::replace`]): what waits in the old one goes into the new one, and
//! what that does not take waits beside it until it does.
//!
//! A packet is copied once, since the write queue it lies in may move on before it leaves. Its ticket comes back when it
//! leaves the queue: what is on the wire has left the host. Where there is no wire that is when the device has taken it;
//! a device without room keeps it here, first in line. Nothing is sent from within a completion: the stack only notes
//! it, and is asked for packets afterwards.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use taut_core::{Duration, Fate, Instant, Stack, TxTicket};
use taut_device::Device;
use taut_link::{
    Delay, Ecn, Fifo, LinkSpec, Packet, Qdisc, QdiscReport, QdiscSpec, QdiscStats, Spread, Tree, Verdict,
};

use crate::frames::{Frames, Slot};

/// Most packets that the queue may refuse before the stack is left alone until something has left.
const REFUSALS_AT_ONCE: usize = 64;

/// Handle of the first queue discipline, as Linux gives them out.
const FIRST_HANDLE: u16 = 0x8001;

/// What can be known of a queue in front of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkReport {
    /// As it was configured.
    pub spec: LinkSpec,
    /// Bytes that wait, headers included.
    pub backlog_bytes: u64,
    /// Packets that wait, a super-packet being one.
    pub backlog_packets: usize,
    /// How long the packet that left last had waited.
    pub sojourn: Duration,
    /// Packets on the wire behind the queue.
    pub wire_packets: usize,
    /// Counts, as `tc -s qdisc` has them.
    pub stats: QdiscStats,
    /// `backlog_bytes` as each packet that was taken made it.
    pub backlogs: Spread,
    /// How long each packet waited, in nanoseconds.
    pub sojourns: Spread,
}

/// One of the queue disciplines in front of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscEntry {
    /// Its own.
    pub handle: QdiscHandle,
    /// That of the one it stands behind; the root has none.
    pub parent: Option<QdiscHandle>,
    /// How it is.
    pub report: QdiscReport,
}

/// The number of a queue discipline, printed as `tc` does: `8001:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QdiscHandle(pub u16);

impl fmt::Display for QdiscHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.0)
    }
}

/// A queue, and how it and those in it are.
pub(crate) trait Queue: Qdisc<Slot> + Send {
    fn reports(&self) -> Vec<QdiscReport>;
}

impl Queue for Tree<Slot> {
    fn reports(&self) -> Vec<QdiscReport> {
        self.reports()
    }
}

/// What the last packets pass through before there is no queue any more.
impl Queue for Fifo<Slot> {
    fn reports(&self) -> Vec<QdiscReport> {
        Vec::new()
    }
}

/// The queue, the wire, and the packets in them.
pub(crate) struct Front {
    spec: LinkSpec,
    queue: Box<dyn Queue>,
    /// Of the root. Each replacement has new ones.
    handle: u16,
    /// What the queue before held and this one has not taken yet. Goes before anything new.
    carried: VecDeque<Packet<Slot>>,
    /// Segments of those counted as dropped when they were only not taken yet.
    not_dropped: u64,
    /// There is to be no queue any more when nothing is left.
    is_ending: bool,
    wire: Option<Delay<Slot>>,
    frames: Frames,
    /// Next for the device, which had no room for it.
    stuck: Option<Packet<Slot>>,
    /// Tickets of packets that have left, of which the stack is told at `tell_at`.
    left: Vec<TxTicket>,
    tell_at: Option<Instant>,
    requeues: u64,
    sojourn: Duration,
    backlogs: Spread,
    sojourns: Spread,
}

impl Front {
    pub(crate) fn new(spec: LinkSpec) -> Box<Self> {
        Self::over(spec, Box::new(spec.shaper()))
    }

    /// One without a wire.
    pub(crate) fn with_qdisc(spec: &QdiscSpec, seed: u64) -> Box<Self> {
        Self::over(LinkSpec::default(), Box::new(spec.build(seed)))
    }

    fn over(spec: LinkSpec, queue: Box<dyn Queue>) -> Box<Self> {
        let wire = spec.wire();
        Box::new(Self {
            spec,
            queue,
            handle: FIRST_HANDLE,
            carried: VecDeque::new(),
            not_dropped: 0,
            is_ending: false,
            wire,
            frames: Frames::default(),
            stuck: None,
            left: Vec::new(),
            tell_at: None,
            requeues: 0,
            sojourn: Duration::ZERO,
            backlogs: Spread::default(),
            sojourns: Spread::default(),
        })
    }

    /// Puts another queue in the place of this one. What waits goes there in order; nothing is lost by that.
    pub(crate) fn replace(&mut self, now: Instant, stack: &mut Stack, spec: &QdiscSpec, seed: u64) {
        let used = self.queue.reports().len() as u16;
        self.handle = self.handle.checked_add(used.max(1)).unwrap_or(FIRST_HANDLE);
        self.is_ending = false;
        self.put(now, stack, Box::new(spec.build(seed)));
    }

    /// Back to the queue of the link, or none where it has none. Then [`is_over`](Self::is_over) says when.
    pub(crate) fn restore(&mut self, now: Instant, stack: &mut Stack) {
        if self.spec == LinkSpec::default() {
            self.is_ending = true;
            self.put(now, stack, Box::new(Fifo::unlimited()));
        } else {
            self.replace(now, stack, &self.spec.qdisc(), 0);
        }
    }

    /// Nothing is left, and nothing is wanted.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.frames.are_empty() && self.left.is_empty()
    }

    fn put(&mut self, now: Instant, stack: &mut Stack, queue: Box<dyn Queue>) {
        let mut old = std::mem::replace(&mut self.queue, queue);
        let waited = std::iter::from_fn(|| old.evict());
        // What was carried came after what the old queue had.
        self.carried = waited.chain(std::mem::take(&mut self.carried)).collect();
        (self.requeues, self.not_dropped) = (0, 0);
        self.carry_over(now, stack);
    }

    /// Offers the queue what the one before left to it. Whether that is all.
    fn carry_over(&mut self, now: Instant, stack: &mut Stack) -> bool {
        while let Some(packet) = self.carried.pop_front() {
            let may_wait = self.queue.backlog_packets() > 0;
            let segs = u64::from(packet.segs);
            match self.offer_queue(now, stack, packet) {
                Some(packet) if may_wait => {
                    self.not_dropped += segs;
                    self.carried.push_front(packet);
                    return false;
                }
                // It will never be taken.
                Some(packet) => self.drop_packet(now, stack, packet.item),
                None => {}
            }
        }
        true
    }

    /// The queue disciplines, the root first.
    pub(crate) fn qdiscs(&self) -> Vec<QdiscEntry> {
        let carried =
            (self.carried.iter().map(|packet| u64::from(packet.len)).sum::<u64>(), self.carried.len());
        let stuck = self.stuck.as_ref().filter(|_| self.wire.is_none());
        let handles = (self.handle..).map(QdiscHandle);
        let mut parent = None;
        let mut entries: Vec<_> = handles
            .zip(self.queue.reports())
            .map(|(handle, report)| QdiscEntry { handle, parent: parent.replace(handle), report })
            .collect();
        if let Some(QdiscEntry { report, .. }) = entries.first_mut() {
            // What waits beside it waits in it, for all that anybody need know.
            report.backlog_bytes += carried.0 + stuck.map_or(0, |packet| u64::from(packet.len));
            report.backlog_packets += carried.1 + usize::from(stuck.is_some());
            report.stats.requeues += self.requeues;
            report.stats.dropped = report.stats.dropped.saturating_sub(self.not_dropped);
        }
        entries
    }

    pub(crate) fn report(&self) -> LinkReport {
        let mut stats = self.queue.stats();
        stats.requeues += self.requeues;
        stats.dropped = stats.dropped.saturating_sub(self.not_dropped);
        let stuck = self.stuck.as_ref().filter(|_| self.wire.is_none());
        let beside = self.carried.iter().chain(stuck).map(|packet| u64::from(packet.len));
        LinkReport {
            spec: self.spec,
            backlog_bytes: self.queue.backlog_bytes() + beside.clone().sum::<u64>(),
            backlog_packets: self.queue.backlog_packets() + beside.count(),
            sojourn: self.sojourn,
            wire_packets: self
                .wire
                .as_ref()
                .map_or(0, |wire| wire.backlog_packets() + usize::from(self.stuck.is_some())),
            stats,
            backlogs: self.backlogs.clone(),
            sojourns: self.sojourns.clone(),
        }
    }

    /// When there is something to do here, other than wait for the device.
    pub(crate) fn next(&self) -> Option<Instant> {
        let has_room = self.stuck.is_none();
        let wire = self.wire.as_ref().filter(|_| has_room).and_then(Qdisc::next);
        let queue = (has_room || self.wire.is_some()).then(|| self.queue.next()).flatten();
        [queue, wire, self.tell_at].into_iter().flatten().min()
    }

    /// Takes what the stack has.
    pub(crate) fn take(&mut self, now: Instant, stack: &mut Stack) {
        let mut refusals = 0;
        while refusals < REFUSALS_AT_ONCE && self.carry_over(now, stack) {
            let Some(transmit) = stack.poll_transmit(now) else { return };
            let packet = self.frames.put(now, transmit);
            if let Some(packet) = self.offer_queue(now, stack, packet) {
                refusals += 1;
                self.drop_packet(now, stack, packet.item);
            }
        }
    }

    /// Offers the queue a packet. Gives it back if it was not taken.
    fn offer_queue(&mut self, now: Instant, stack: &mut Stack, packet: Packet<Slot>) -> Option<Packet<Slot>> {
        let slot = packet.item.clone();
        let refused = match self.queue.enqueue(now, packet) {
            Verdict::Taken => None,
            Verdict::Congested => {
                if let Some(conn) = self.frames.ticket(&slot).and_then(TxTicket::data_of) {
                    stack.handle_tx_congestion(now, conn);
                }
                None
            }
            Verdict::Dropped(packet) => Some(packet),
        };
        if refused.is_none() {
            self.backlogs.record(self.queue.backlog_bytes());
            if self.queue.orphans()
                && let Some(ticket) = self.frames.take_ticket(&slot)
            {
                self.complete(now, stack, ticket);
            }
        }
        // Held until here, lest the slot be used for another packet if this one was thrown out.
        self.throw_out(now, stack);
        self.frames.free(slot);
        refused
    }

    /// The queue does not take it: as if never sent, if the stack still waits for it.
    fn drop_packet(&mut self, now: Instant, stack: &mut Stack, slot: Slot) {
        if let Some(ticket) = self.frames.take_ticket(&slot) {
            stack.handle_tx(now, ticket, Fate::Dropped);
        }
        self.frames.free(slot);
    }

    /// Lets go what is due: from the queue to the wire and, if it `has_room`, from there to the device. Says whether
    /// anything moved.
    ///
    /// # Errors
    /// That of a device without room. The packet stays here; offer again when it has some.
    pub(crate) fn release<D: Device>(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        device: &mut D,
        has_room: bool,
    ) -> io::Result<bool> {
        let moved = self.fill_wire(now, stack);
        if !has_room {
            return Ok(moved);
        }
        Ok(self.offer(now, stack, device)? || moved)
    }

    /// From the queue to the wire, if there is one.
    fn fill_wire(&mut self, now: Instant, stack: &mut Stack) -> bool {
        let Some(mut wire) = self.wire.take() else { return false };
        let mut moved = false;
        while let Some(packet) = self.dequeue(now, stack) {
            moved = true;
            if let Some(ticket) = self.frames.take_ticket(&packet.item) {
                self.complete(now, stack, ticket);
            }
            if let Verdict::Dropped(packet) = wire.enqueue(now, packet) {
                self.frames.free(packet.item);
            }
        }
        self.wire = Some(wire);
        moved
    }

    /// From the wire, or the queue where there is none, to the device.
    fn offer<D: Device>(&mut self, now: Instant, stack: &mut Stack, device: &mut D) -> io::Result<bool> {
        let mut moved = false;
        loop {
            let next = self.stuck.take().or_else(|| match &mut self.wire {
                Some(wire) => wire.dequeue(now),
                None => self.dequeue(now, stack),
            });
            let Some(packet) = next else { return Ok(moved) };
            if packet.corrupt.is_some() && !self.frames.can_damage(&packet.item) {
                // Cut from it, every segment would fail its checksum.
                if let Some(ticket) = self.frames.take_ticket(&packet.item) {
                    self.complete(now, stack, ticket);
                }
                self.frames.free(packet.item);
                continue;
            }
            // Another copy of it may be sound, and a device without room will be offered it again.
            let damage = packet.corrupt.map(|bit| self.frames.damage(&packet.item, bit));
            let sent = device.send(&self.frames.get(&packet.item));
            if let Some(damage) = damage {
                self.frames.repair(&packet.item, damage);
            }
            if let Some(error) = sent.err().filter(is_congestion) {
                self.requeues += 1;
                self.stuck = Some(packet);
                return Err(error);
            }
            // A packet that the device will never take is lost like any other.
            if let Some(ticket) = self.frames.take_ticket(&packet.item) {
                self.complete(now, stack, ticket);
            }
            self.frames.free(packet.item);
            moved = true;
        }
    }

    /// Tells the stack of packets that have left, if it is time to.
    pub(crate) fn tell(&mut self, now: Instant, stack: &mut Stack) {
        if self.tell_at.take_if(|at| *at <= now).is_some() {
            for ticket in self.left.drain(..) {
                stack.handle_tx(now, ticket, Fate::Left);
            }
        }
    }

    fn dequeue(&mut self, now: Instant, stack: &mut Stack) -> Option<Packet<Slot>> {
        let packet = self.queue.dequeue(now);
        self.throw_out(now, stack);
        let packet = packet?;
        if packet.ecn == Ecn::Marked {
            self.frames.mark(&packet.item);
        }
        self.sojourn = now.since(self.frames.entered(&packet.item));
        self.sojourns.record(self.sojourn.as_nanos());
        Some(packet)
    }

    /// A packet has left the host.
    fn complete(&mut self, now: Instant, stack: &mut Stack, ticket: TxTicket) {
        if self.spec.completion_delay.is_zero() {
            stack.handle_tx(now, ticket, Fate::Left);
        } else {
            self.left.push(ticket);
            self.tell_at.get_or_insert(now + self.spec.completion_delay);
        }
    }

    /// The queue threw a packet out that it had taken: lost, like any other on its way.
    fn throw_out(&mut self, now: Instant, stack: &mut Stack) {
        while let Some(packet) = self.queue.poll_dropped() {
            if let Some(ticket) = self.frames.take_ticket(&packet.item) {
                stack.handle_tx(now, ticket, Fate::Left);
            }
            self.frames.free(packet.item);
        }
    }
}

/// The device is full, as opposed to: the packet is impossible.
pub(crate) fn is_congestion(error: &io::Error) -> bool {
    // ENOBUFS has no ErrorKind of its own.
    const ENOBUFS: i32 = 105;
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
        || error.raw_os_error() == Some(ENOBUFS)
}

#[cfg(test)]
mod tests;
