//! A queue in front of a device, and a wire behind the queue. Where the path is slower than the device,
//! packets then wait in this queue, where they can be counted. taut's own; called by [`Shard`](crate::Shard),
//! which always has a host queue, mostly an empty one.
//!
//! ```text
//!   send ─▶ queue (taut_link::Qdisc) ─▶ wire (Delay) ─▶ device
//!              │            └─▶ poll_done, or a little later, many at a time
//!              └─▶ Sent::Dropped, poll_congested
//! ```
//!
//! Without a queue, packets pass straight through. The queue can be replaced while it runs
//! ([`HostQueue::set_qdisc`]): packets move from the old one to the new one. Packets for which the new one
//! has no room yet wait outside it.
//!
//! The ticket of a packet comes back when the packet leaves the queue: packets on the wire count as having
//! left the host. Without a wire, the ticket goes along to the device; if the device has no room, the packet
//! stays here, first in line.

mod store;
mod waiting;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use taut_core::{ConnId, Duration, Instant, LinkCaps, TxPacket, TxTicket};
use taut_link::{LinkSpec, QdiscReport, QdiscSpec, QdiscStats, Spread};

use crate::below::losses::{Counted, Losses};
use crate::below::outbox::{Back, Outbox};
use crate::device::{News, Sent, TxDevice};
use waiting::{Fed, Waiting};

/// A report on a queue in front of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkReport {
    /// Its configuration.
    pub spec: LinkSpec,
    /// Waiting bytes, headers included.
    pub backlog_bytes: u64,
    /// Waiting packets; a super-packet counts as one.
    pub backlog_packets: usize,
    /// How long the packet waited that left last.
    pub sojourn: Duration,
    /// Packets on the wire behind the queue.
    pub wire_packets: usize,
    /// The counters of `tc -s qdisc`.
    pub stats: QdiscStats,
    /// `backlog_bytes` after each packet that the queue took.
    pub backlogs: Spread,
    /// How long each packet waited, in nanoseconds.
    pub sojourns: Spread,
}

/// One of the queue disciplines in front of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscEntry {
    /// Its handle.
    pub handle: QdiscHandle,
    /// The handle of its parent; the root has none.
    pub parent: Option<QdiscHandle>,
    /// Its state and counters.
    pub report: QdiscReport,
}

/// The handle of a queue discipline, printed as by `tc`: `8001:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QdiscHandle(pub u16);

impl fmt::Display for QdiscHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:", self.0)
    }
}

/// A device, and the queue in front of it if there is one.
pub(crate) struct HostQueue {
    exit: Exit,
    /// Of the device, and whether the queue in front of it honours departure times.
    caps: LinkCaps,
    paces: bool,
    waiting: Option<Box<Waiting>>,
    /// The present time: devices do not get it as an argument.
    now: Instant,
    /// The device had no room when it was last given a packet.
    is_full: bool,
    /// The device was given packets since its last flush.
    is_unflushed: bool,
    /// Connections of packets that a slow device dropped.
    slowed: Vec<ConnId>,
    /// What a slow device did not send, as collected.
    losses: Losses,
}

/// What packets go to.
enum Exit {
    Direct(Counted),
    Outbox {
        outbox: Arc<Outbox>,
        /// Tickets that were collected, for the stack.
        back: VecDeque<Back>,
    },
}

impl Exit {
    fn outbox(device: Counted) -> Self {
        Self::Outbox { outbox: Arc::new(Outbox::new(device)), back: VecDeque::new() }
    }
}

impl TxDevice for Exit {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        match self {
            Self::Direct(device) => device.news(waker),
            Self::Outbox { outbox, .. } => outbox.news_of_device(waker),
        }
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        match self {
            Self::Direct(device) => device.send(packet, ticket),
            Self::Outbox { outbox, .. } => outbox.put(packet, ticket),
        }
    }

    fn flush(&mut self) {
        if let Self::Direct(device) = self {
            device.flush();
        }
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        match self {
            Self::Direct(device) => device.poll_done(),
            Self::Outbox { back, .. } => back.pop_front().map(|back| back.ticket),
        }
    }
}

impl HostQueue {
    pub(crate) fn new(device: Box<dyn TxDevice>, caps: LinkCaps, link: Option<LinkSpec>) -> Self {
        Self::over(device, caps, link.map(Waiting::behind))
    }

    fn over(device: Box<dyn TxDevice>, caps: LinkCaps, waiting: Option<Box<Waiting>>) -> Self {
        let is_slow = device.is_slow();
        let device = Counted::new(device);
        let exit = if is_slow { Exit::outbox(device) } else { Exit::Direct(device) };
        Self {
            exit,
            caps,
            paces: false,
            waiting,
            now: Instant::ZERO,
            is_full: false,
            is_unflushed: false,
            slowed: Vec::new(),
            losses: Losses::default(),
        }
    }

    /// Sets the time for the next calls.
    pub(crate) const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// The device may have room again.
    pub(crate) const fn retry(&mut self) {
        self.is_full = false;
    }

    /// Whether the device has no room, so that packets here or above wait for it.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the stack should be asked for a packet.
    pub(crate) fn has_room(&mut self) -> bool {
        match &mut self.waiting {
            Some(waiting) => waiting.has_room(self.now),
            None => !self.is_full,
        }
    }

    /// Moves packets that are due from the queue to the wire and on to the device. Returns whether any moved,
    /// so that there may be room for more.
    pub(crate) fn release(&mut self) -> bool {
        let mut moved = false;
        if let Some(waiting) = &mut self.waiting {
            moved = waiting.fill_wire(self.now);
            if !self.is_full {
                let Fed { any, is_full } = waiting.feed(self.now, &mut self.exit);
                (moved, self.is_unflushed, self.is_full) = (moved || any, self.is_unflushed || any, is_full);
            }
            if waiting.is_over() {
                self.waiting = None;
                moved = true;
            }
        }
        if std::mem::take(&mut self.is_unflushed) {
            self.exit.flush();
        }
        moved
    }

    /// When to call [`release`](Self::release) next, if nothing happens before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.as_ref().and_then(|waiting| waiting.next())
    }

    /// The connection of a packet that the queue took while it was filling up, or that a slow device dropped.
    pub(crate) fn poll_congested(&mut self) -> Option<ConnId> {
        let congested = self.waiting.as_mut().and_then(|waiting| waiting.poll_congested());
        congested.or_else(|| self.slowed.pop())
    }

    /// Replaces the queue discipline; with `None`, by that of the link, or by none if there is no link.
    /// Waiting packets are neither lost nor reordered.
    pub(crate) fn set_qdisc(&mut self, spec: Option<&QdiscSpec>, seed: u64) {
        self.paces = spec.is_some_and(QdiscSpec::paces);
        match (&mut self.waiting, spec) {
            (Some(waiting), Some(spec)) => waiting.replace(self.now, spec, seed),
            (Some(waiting), None) => waiting.restore(self.now),
            (None, Some(spec)) => self.waiting = Some(Waiting::of(spec, seed)),
            (None, None) => {}
        }
    }

    /// Whether departure times are honoured below the stack.
    pub(crate) const fn paces(&self) -> bool {
        self.caps.paces || self.paces
    }

    /// Whether a ticket comes back when its packet has left the host.
    pub(crate) fn completes_on_departure(&self) -> bool {
        let device = self.caps.completes_on_departure;
        self.waiting.as_ref().map_or(device, |waiting| waiting.completes_on_departure(device))
    }

    /// The outbox in front of a slow device.
    pub(crate) const fn outbox(&self) -> Option<&Arc<Outbox>> {
        match &self.exit {
            Exit::Direct(_) => None,
            Exit::Outbox { outbox, .. } => Some(outbox),
        }
    }

    /// Collects the tickets that came back to an outbox.
    pub(crate) fn collect(&mut self) {
        if let Exit::Outbox { outbox, back } = &mut self.exit
            && back.is_empty()
        {
            self.losses += outbox.take_back(back);
            let dropped = back.iter().filter(|back| back.dropped);
            self.slowed.extend(dropped.filter_map(|back| back.ticket.data_of()));
        }
    }

    /// Packets that the device did not send, since the last call.
    pub(crate) fn take_losses(&mut self) -> Losses {
        match &mut self.exit {
            Exit::Direct(device) => device.take_losses(),
            Exit::Outbox { .. } => std::mem::take(&mut self.losses),
        }
    }

    /// Reads the last reason why the device did not take a packet.
    pub(crate) fn last_error<R>(&self, read: impl FnOnce(&io::Error) -> R) -> Option<R> {
        match &self.exit {
            Exit::Direct(device) => device.last_error().map(read),
            Exit::Outbox { outbox, .. } => outbox.last_error(read),
        }
    }

    /// A report on the queue, if there is one.
    pub(crate) fn report(&self) -> Option<LinkReport> {
        self.waiting.as_ref().map(|waiting| waiting.report())
    }

    /// The queue disciplines, the root first.
    pub(crate) fn qdiscs(&self) -> Vec<QdiscEntry> {
        self.waiting.as_ref().map(|waiting| waiting.qdiscs()).unwrap_or_default()
    }
}

impl TxDevice for HostQueue {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.exit.news(waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        if let Some(waiting) = &mut self.waiting {
            return waiting.send(self.now, packet, ticket);
        }
        let sent = self.exit.send(packet, ticket);
        self.is_full = matches!(sent, Sent::Full(_));
        self.is_unflushed |= !self.is_full;
        sent
    }

    fn flush(&mut self) {
        self.release();
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        let own = self.waiting.as_mut().and_then(|waiting| waiting.poll_done(self.now));
        own.or_else(|| self.exit.poll_done())
    }
}

#[cfg(test)]
mod tests;
