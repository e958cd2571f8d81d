//! The parts in front of a device: the queue, the wire behind it, the packets in them, and their tickets on
//! the way back. Called by `host_queue.rs`.

use std::collections::VecDeque;

use taut_core::{ConnId, Duration, Instant, TxPacket, TxTicket};
use taut_link::{Delay, Ecn, Fifo, LinkSpec, Packet, Qdisc, QdiscReport, QdiscSpec, Spread, Tree, Verdict};

use super::store::{PacketRef, Store};
use super::{LinkReport, QdiscEntry, QdiscHandle};
use crate::device::{Sent, TxDevice};

/// Most packets that the queue may refuse before the stack is not asked for more until the device was fed.
const REFUSALS_AT_ONCE: usize = 64;

/// Handle of the first queue discipline, as in Linux.
const FIRST_HANDLE: u16 = 0x8001;

/// A queue that can report on itself and on the queues in it.
pub(super) trait Queue: Qdisc<PacketRef> + Send {
    fn reports(&self) -> Vec<QdiscReport>;
}

impl Queue for Tree<PacketRef> {
    fn reports(&self) -> Vec<QdiscReport> {
        self.reports()
    }
}

/// The last packets pass through this queue before the queue is removed.
impl Queue for Fifo<PacketRef> {
    fn reports(&self) -> Vec<QdiscReport> {
        Vec::new()
    }
}

/// The queue's response to a packet.
enum Offered {
    Waits,
    /// It waits in a queue that simulates the path, so it counts as having left this host.
    Left(TxTicket),
    Refused(Packet<PacketRef>),
}

/// The result of feeding a device.
pub(super) struct Fed {
    pub(super) any: bool,
    /// It had no room for the next packet.
    pub(super) is_full: bool,
}

/// The queue, the wire, and the packets in them.
pub(super) struct Waiting {
    spec: LinkSpec,
    queue: Box<dyn Queue>,
    /// The handle of the root. Each replacement has new handles.
    handle: u16,
    /// Packets of the previous queue that this one has not taken yet. They go before new packets.
    carried: VecDeque<Packet<PacketRef>>,
    /// Segments of them that the queue counted as dropped, although it only had no room for them yet.
    not_dropped: u64,
    /// The queue is removed when it is empty.
    is_ending: bool,
    wire: Option<Delay<PacketRef>>,
    store: Store,
    /// Next for the device, which had no room for it.
    stuck: Option<(Packet<PacketRef>, TxTicket)>,
    /// Packets refused since the device was last fed.
    refusals: usize,
    /// Tickets to return to the stack now.
    done: VecDeque<TxTicket>,
    /// Tickets of packets that have left, to be returned at `tell_at`.
    left: Vec<TxTicket>,
    tell_at: Option<Instant>,
    /// Connections from which the queue took a packet while it was about to drop others.
    congested: Vec<ConnId>,
    requeues: u64,
    sojourn: Duration,
    backlogs: Spread,
    sojourns: Spread,
}

impl Waiting {
    pub(super) fn behind(spec: LinkSpec) -> Box<Self> {
        Self::over(spec, Box::new(spec.shaper()))
    }

    /// A queue without a wire.
    pub(super) fn of(spec: &QdiscSpec, seed: u64) -> Box<Self> {
        Self::over(LinkSpec::default(), Box::new(spec.build(seed)))
    }

    pub(super) fn over(spec: LinkSpec, queue: Box<dyn Queue>) -> Box<Self> {
        let wire = spec.wire();
        Box::new(Self {
            spec,
            queue,
            handle: FIRST_HANDLE,
            carried: VecDeque::new(),
            not_dropped: 0,
            is_ending: false,
            wire,
            store: Store::default(),
            stuck: None,
            refusals: 0,
            done: VecDeque::new(),
            left: Vec::new(),
            tell_at: None,
            congested: Vec::new(),
            requeues: 0,
            sojourn: Duration::ZERO,
            backlogs: Spread::default(),
            sojourns: Spread::default(),
        })
    }

    /// Replaces the queue. Waiting packets move to the new one in order, without loss.
    pub(super) fn replace(&mut self, now: Instant, spec: &QdiscSpec, seed: u64) {
        let used = self.queue.reports().len() as u16;
        self.handle = self.handle.checked_add(used.max(1)).unwrap_or(FIRST_HANDLE);
        self.is_ending = false;
        self.put(now, Box::new(spec.build(seed)));
    }

    /// Restores the queue of the link, or removes the queue if there is no link. In the second case,
    /// [`is_over`](Self::is_over) says when that is complete.
    pub(super) fn restore(&mut self, now: Instant) {
        if self.spec == LinkSpec::default() {
            self.is_ending = true;
            self.put(now, Box::new(Fifo::unlimited()));
        } else {
            self.replace(now, &self.spec.qdisc(), 0);
        }
    }

    /// Whether the queue was removed and no packet is left.
    pub(super) fn is_over(&self) -> bool {
        self.is_ending && self.is_empty()
    }

    /// Whether there is no packet and no ticket here.
    pub(super) fn is_empty(&self) -> bool {
        self.store.is_empty() && self.done.is_empty() && self.left.is_empty()
    }

    fn put(&mut self, now: Instant, queue: Box<dyn Queue>) {
        let mut old = std::mem::replace(&mut self.queue, queue);
        let waited = std::iter::from_fn(|| old.evict());
        // Carried packets arrived after those in the old queue.
        self.carried = waited.chain(std::mem::take(&mut self.carried)).collect();
        (self.requeues, self.not_dropped) = (0, 0);
        self.carry_over(now);
    }

    /// Offers the queue the packets of the previous one. Returns whether it has taken all.
    fn carry_over(&mut self, now: Instant) -> bool {
        while let Some(packet) = self.carried.pop_front() {
            let may_wait = self.queue.backlog_packets() > 0;
            let segs = u64::from(packet.segs);
            match self.enqueue(now, packet) {
                Offered::Refused(packet) if may_wait => {
                    self.not_dropped += segs;
                    self.carried.push_front(packet);
                    return false;
                }
                // It will never be taken: lost, like any other packet on the path.
                Offered::Refused(packet) => {
                    self.done.extend(self.store.take_ticket(&packet.item));
                    self.store.free(packet.item);
                }
                Offered::Left(ticket) => self.complete(now, ticket),
                Offered::Waits => {}
            }
        }
        true
    }

    /// Whether a ticket comes back when its packet has left the host. What waits at a rate of this queue's
    /// own, waits here. Else it waits at the device, which gets the ticket unless there is a wire.
    pub(super) fn completes_on_departure(&self, device: bool) -> bool {
        !self.queue.orphans() && (self.queue.shapes() || device && self.wire.is_none())
    }

    /// The queue disciplines, the root first.
    pub(super) fn qdiscs(&self) -> Vec<QdiscEntry> {
        let carried =
            (self.carried.iter().map(|packet| u64::from(packet.len)).sum::<u64>(), self.carried.len());
        let stuck = self.stuck_behind_queue();
        let handles = (self.handle..).map(QdiscHandle);
        let mut parent = None;
        let mut entries: Vec<_> = handles
            .zip(self.queue.reports())
            .map(|(handle, report)| QdiscEntry { handle, parent: parent.replace(handle), report })
            .collect();
        if let Some(QdiscEntry { report, .. }) = entries.first_mut() {
            // Packets that wait outside the queue count as part of it.
            report.backlog_bytes += carried.0 + stuck.map_or(0, |packet| u64::from(packet.len));
            report.backlog_packets += carried.1 + usize::from(stuck.is_some());
            report.stats.requeues += self.requeues;
            report.stats.dropped = report.stats.dropped.saturating_sub(self.not_dropped);
        }
        entries
    }

    pub(super) fn report(&self) -> LinkReport {
        let mut stats = self.queue.stats();
        stats.requeues += self.requeues;
        stats.dropped = stats.dropped.saturating_sub(self.not_dropped);
        let beside = self.carried.iter().chain(self.stuck_behind_queue()).map(|packet| u64::from(packet.len));
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

    /// The packet for which the device had no room, if it came out of the queue and not off the wire.
    fn stuck_behind_queue(&self) -> Option<&Packet<PacketRef>> {
        self.stuck.as_ref().filter(|_| self.wire.is_none()).map(|(packet, _)| packet)
    }

    /// When there is something to do here other than to wait for the device.
    pub(super) fn next(&self) -> Option<Instant> {
        let has_room = self.stuck.is_none();
        let wire = self.wire.as_ref().filter(|_| has_room).and_then(Qdisc::next);
        let queue = (has_room || self.wire.is_some()).then(|| self.queue.next()).flatten();
        [queue, wire, self.tell_at].into_iter().flatten().min()
    }

    /// Whether [`send`](Self::send) may be called: not while packets of an earlier queue wait for room.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        self.refusals < REFUSALS_AT_ONCE && self.carry_over(now)
    }

    pub(super) fn send(&mut self, now: Instant, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let packet = self.store.put(now, packet, ticket);
        match self.enqueue(now, packet) {
            Offered::Refused(packet) => {
                self.refusals += 1;
                let ticket = self.store.take_ticket(&packet.item);
                self.store.free(packet.item);
                ticket.map_or(Sent::Kept, Sent::Dropped)
            }
            Offered::Left(ticket) if self.spec.completion_delay.is_zero() => Sent::Left(ticket),
            Offered::Left(ticket) => {
                self.complete(now, ticket);
                Sent::Kept
            }
            Offered::Waits => Sent::Kept,
        }
    }

    /// Offers the queue a packet.
    fn enqueue(&mut self, now: Instant, packet: Packet<PacketRef>) -> Offered {
        let reference = packet.item.clone();
        let verdict = self.queue.enqueue(now, packet);
        if matches!(verdict, Verdict::Congested) {
            self.congested.extend(self.store.ticket(&reference).and_then(TxTicket::data_of));
        }
        let offered = if let Verdict::Dropped(packet) = verdict {
            Offered::Refused(packet)
        } else {
            self.backlogs.record(self.queue.backlog_bytes());
            let left = if self.queue.orphans() { self.store.take_ticket(&reference) } else { None };
            left.map_or(Offered::Waits, Offered::Left)
        };
        // The reference is held until here, or it might be reused for another packet if this one was dropped.
        self.throw_out();
        self.store.free(reference);
        offered
    }

    /// Moves packets from the queue to the wire, if there is one.
    pub(super) fn fill_wire(&mut self, now: Instant) -> bool {
        let Some(mut wire) = self.wire.take() else { return false };
        let mut moved = false;
        while let Some(packet) = self.dequeue(now) {
            moved = true;
            if let Some(ticket) = self.store.take_ticket(&packet.item) {
                self.complete(now, ticket);
            }
            if let Verdict::Dropped(packet) = wire.enqueue(now, packet) {
                self.store.free(packet.item);
            }
        }
        self.wire = Some(wire);
        moved
    }

    /// Moves packets from the wire, or from the queue if there is no wire, to a device that has room. Then
    /// the stack may be asked again.
    pub(super) fn feed(&mut self, now: Instant, device: &mut dyn TxDevice) -> Fed {
        self.refusals = 0;
        let mut any = false;
        while let Some((packet, ticket)) = self.stuck.take().or_else(|| self.next_for_device(now)) {
            match self.store.send(&packet, ticket, device) {
                Sent::Full(ticket) => {
                    self.requeues += 1;
                    self.stuck = Some((packet, ticket));
                    return Fed { any, is_full: true };
                }
                Sent::Kept => {}
                // A packet that the device drops or will never take is lost: it is too late to undo its
                // transmission.
                Sent::Left(ticket) | Sent::Dropped(ticket) | Sent::Never(ticket, _) => {
                    self.complete(now, ticket);
                }
            }
            self.store.free(packet.item);
            any = true;
        }
        Fed { any, is_full: false }
    }

    /// The next packet for the device, with its ticket, or with a blank one if the ticket has already come
    /// back.
    fn next_for_device(&mut self, now: Instant) -> Option<(Packet<PacketRef>, TxTicket)> {
        let packet = match &mut self.wire {
            Some(wire) => wire.dequeue(now),
            None => self.dequeue(now),
        }?;
        let ticket = self.store.take_ticket(&packet.item).unwrap_or_else(TxTicket::blank);
        Some((packet, ticket))
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<PacketRef>> {
        let packet = self.queue.dequeue(now);
        self.throw_out();
        let packet = packet?;
        if packet.ecn == Ecn::Marked {
            self.store.mark(&packet.item);
        }
        self.sojourn = now.since(self.store.entered(&packet.item));
        self.sojourns.record(self.sojourn.as_nanos());
        Some(packet)
    }

    /// A packet has left the host.
    fn complete(&mut self, now: Instant, ticket: TxTicket) {
        if ticket.is_blank() {
            return;
        }
        if self.spec.completion_delay.is_zero() {
            self.done.push_back(ticket);
        } else {
            self.left.push(ticket);
            self.tell_at.get_or_insert(now + self.spec.completion_delay);
        }
    }

    /// The queue dropped packets that it had already taken: they are lost, like any other packet on the path.
    fn throw_out(&mut self) {
        while let Some(packet) = self.queue.poll_dropped() {
            self.done.extend(self.store.take_ticket(&packet.item));
            self.store.free(packet.item);
        }
    }

    pub(super) fn poll_congested(&mut self) -> Option<ConnId> {
        self.congested.pop()
    }

    pub(super) fn poll_done(&mut self, now: Instant) -> Option<TxTicket> {
        if self.tell_at.take_if(|at| *at <= now).is_some() {
            self.done.extend(self.left.drain(..));
        }
        self.done.pop_front()
    }
}
