//! Packets on their way to a device whose sends take long: they are queued under the shard's lock, in order,
//! and sent without it, except much at a time (`bulk.rs`). taut's own; filled and emptied by `shard.rs`
//! through `host_queue.rs`.
//!
//! **Problem.** A write to a TUN interface runs the whole receive path of the peer, on the thread that
//! writes: half of the time of a shard under load. If that happened under the shard's lock, no other thread
//! could read, write or accept meanwhile, and two cores would open fewer connections than one.
//!
//! **Rule.** [`put`](Outbox::put) keeps the packet: its headers are copied, its payload is not. After a
//! thread has left the shard's lock, it [serves](Outbox::serve) the outbox: if no other thread has the
//! device, it takes the device and sends what waits; else the thread that has the device sends it. So packets
//! leave in the order in which the stack made them, and none waits for a thread that has gone on.
//!
//! ```text
//!   under the shard's lock                          with the device
//!     put ──▶ packets ──────────── serve ──────────▶ send ─▶ Left, Kept, Full, Dropped, Never
//!     take_back ◀── tickets ◀──────────────────────── the tickets that came back
//! ```
//!
//! **No packet is left behind.** A thread gives the device back under the same small lock under which it has
//! just found nothing more to send. A thread that puts a packet in later finds the device there.
//!
//! **Two locks**, that of the device and the small one, are taken in this order; with the small one, a thread
//! only tries to take the device.
//!
//! **Tickets** come back when the shard collects them: with each turn, or with an access that finds them [old
//! enough](Outbox::is_ripe). Until then the bytes count as being below TCP. So small writes coalesce behind a
//! packet that has just left (autocorking), although a write to a TUN interface is over when it returns.
//!
//! A packet that the device drops is lost as in the network, because others have been made since; its
//! connection slows down.

use std::collections::VecDeque;
use std::io;
use std::task::Waker;

use taut_core::{Duration, Instant, KeptPacket, TxPacket, TxTicket};

use crate::below::losses::{Counted, Losses};
use crate::device::{News, Sent, TxDevice};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};

/// Most packets in the outbox. More would wait here instead of in the connections, which decide better the
/// later they decide; fewer would make a thread go back for the shard's lock more often.
const PACKETS_MAX: usize = 32;

/// Packets sent before their tickets are reported, so that the stack can prepare the next ones meanwhile.
const BATCH_PACKETS: usize = 8;

/// The age from which tickets are collected by any use of the stack. A thread that writes 64 bytes at a time
/// has written 20 KB by then, and 10 KB on a core that others use, too (with 50 µs: 8 to 13 KB). A full small
/// queue holds a millisecond.
const RIPE: Duration = Duration::from_micros(100);

/// The queue to a device, and the device.
pub(crate) struct Outbox {
    /// Locked by the thread that has the device.
    way: Mutex<Way>,
    state: Mutex<State>,
}

struct State {
    packets: VecDeque<Parcel>,
    /// Packets that the thread with the device has taken and not yet reported.
    taken: usize,
    /// Memory of packets that have left.
    spare: Vec<KeptPacket>,
    /// Tickets that came back.
    back: VecDeque<Back>,
    /// Tickets that the device has.
    kept: usize,
    /// The device had no room when it was last asked, and has not announced any since.
    is_full: bool,
    /// The device may have room or tickets.
    has_news: bool,
    /// A packet was refused since the last [`serve`](Outbox::serve).
    refused: bool,
    /// The device has reported packets that left since then: their connections may have room.
    reported: bool,
    losses: Losses,
    last_error: Option<io::Error>,
}

/// A packet, and the ticket that goes with it.
struct Parcel {
    packet: KeptPacket,
    ticket: TxTicket,
}

/// A ticket that came back.
#[derive(Debug)]
pub(crate) struct Back {
    pub(crate) ticket: TxTicket,
    /// The device dropped the packet.
    pub(crate) dropped: bool,
}

/// The device, and the packets that the thread that has it is sending.
struct Way {
    device: Counted,
    batch: VecDeque<Parcel>,
    /// No packet waits behind the batch.
    is_last: bool,
    sent: Vec<KeptPacket>,
    back: Vec<Back>,
}

impl State {
    fn len(&self) -> usize {
        self.packets.len() + self.taken
    }

    /// Whether a thread with the device would have something to do.
    fn wants_device(&self) -> bool {
        self.has_news || (!self.is_full && !self.packets.is_empty())
    }

    /// Whether the caller must poll the stack again.
    fn take_must_poll(&mut self) -> bool {
        let may_ask = !self.is_full && std::mem::take(&mut self.refused);
        std::mem::take(&mut self.reported) || may_ask
    }

    /// Begins a batch.
    fn begin(&mut self, way: &mut Way) -> Task {
        let task = Task { was_full: self.is_full, has_news: std::mem::take(&mut self.has_news) };
        self.taken = self.packets.len().min(BATCH_PACKETS);
        way.batch.extend(self.packets.drain(..self.taken));
        way.is_last = self.packets.is_empty();
        self.is_full = false;
        task
    }

    /// Reports what became of a batch.
    fn end(&mut self, way: &mut Way, done: Done) {
        self.taken = 0;
        self.kept = self.kept.saturating_add_signed(done.kept);
        // News that came meanwhile may be of room.
        self.is_full = done.is_full;
        self.reported |= done.reported;
        while let Some(parcel) = way.batch.pop_back() {
            self.packets.push_front(parcel);
        }
        self.back.extend(way.back.drain(..));
        self.spare.append(&mut way.sent);
        self.losses += way.device.take_losses();
        if let Some(error) = way.device.take_error() {
            self.last_error = Some(error);
        }
    }
}

/// What a thread with the device is to do besides sending a batch.
struct Task {
    /// The device had no room before.
    was_full: bool,
    /// It may have tickets.
    has_news: bool,
}

/// The result of a batch.
#[derive(Clone, Copy)]
struct Done {
    /// By how many packets the device has more.
    kept: isize,
    /// The news was of packets that left.
    reported: bool,
    is_full: bool,
}

impl Outbox {
    pub(crate) fn new(device: Counted) -> Self {
        let way = Way { device, batch: VecDeque::new(), is_last: true, sent: Vec::new(), back: Vec::new() };
        let state = State {
            packets: VecDeque::new(),
            taken: 0,
            spare: Vec::new(),
            back: VecDeque::new(),
            kept: 0,
            is_full: false,
            has_news: false,
            refused: false,
            reported: false,
            losses: Losses::default(),
            last_error: None,
        };
        Self { way: Mutex::new(way), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Asks the device how it announces its news, before any thread uses it.
    pub(crate) fn news_of_device(&self, waker: &Waker) -> io::Result<News> {
        lock(&self.way).device.news(waker)
    }

    /// Takes a packet, for a thread with the shard's lock.
    pub(crate) fn put(&self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let mut state = self.state();
        if state.is_full || state.len() >= PACKETS_MAX {
            state.refused = true;
            return Sent::Full(ticket);
        }
        let mut kept = state.spare.pop().unwrap_or_default();
        packet.keep_in(&mut kept);
        state.packets.push_back(Parcel { packet: kept, ticket });
        Sent::Kept
    }

    /// The device may have room, or tickets to give back. The caller must [`serve`](Self::serve) afterwards.
    pub(crate) fn note_news(&self) {
        let mut state = self.state();
        // A batch under way may just have been refused, or be kept: that is not reported yet.
        state.has_news |= state.is_full || state.kept > 0 || state.taken > 0;
    }

    /// Whether the device has no room.
    pub(crate) fn is_full(&self) -> bool {
        self.state().is_full
    }

    /// Whether there are tickets to collect, now or as soon as the packets here are sent.
    pub(crate) fn owes_tickets(&self) -> bool {
        let state = self.state();
        !state.back.is_empty() || (state.len() > 0 && !state.is_full)
    }

    /// Whether tickets have been here for so long that any use of the stack should collect them.
    pub(crate) fn is_ripe(&self, now: Instant) -> bool {
        self.state().back.front().is_some_and(|back| now.since(back.ticket.handed()) >= RIPE)
    }

    /// Collects the tickets that came back, for a thread with the shard's lock, and returns the losses since
    /// the last call.
    pub(crate) fn take_back(&self, into: &mut VecDeque<Back>) -> Losses {
        debug_assert!(into.is_empty(), "tickets that were not returned");
        let mut state = self.state();
        std::mem::swap(&mut state.back, into);
        std::mem::take(&mut state.losses)
    }

    /// Reads the last reason why the device did not take a packet.
    pub(crate) fn last_error<R>(&self, read: impl FnOnce(&io::Error) -> R) -> Option<R> {
        self.state().last_error.as_ref().map(read)
    }

    /// Sends what waits, unless another thread has the device and will do so. The caller must not have the
    /// shard's lock. `watch_room` is called with whether the device's room must be watched. Returns whether
    /// packets have left since they were given to the device, or the stack was refused and there may be room
    /// now: then the caller must ask the stack again.
    #[must_use]
    pub(crate) fn serve(&self, watch_room: impl Fn(bool)) -> bool {
        let mut state = self.state();
        if !state.wants_device() {
            return state.take_must_poll();
        }
        let Some(way) = try_lock(&self.way) else { return false };
        self.work(way, state, watch_room).take_must_poll()
    }

    /// [`serve`](Self::serve) for a thread that keeps the shard's lock: it waits for a thread that has the
    /// device, whose batch is short.
    #[must_use]
    pub(crate) fn serve_in_turn(&self, watch_room: impl Fn(bool)) -> bool {
        let way = lock(&self.way);
        self.work(way, self.state(), watch_room).take_must_poll()
    }

    /// Sends what waits, and gives the device back.
    fn work<'a>(
        &'a self,
        mut way: MutexGuard<'_, Way>,
        mut state: MutexGuard<'a, State>,
        watch_room: impl Fn(bool),
    ) -> MutexGuard<'a, State> {
        while state.wants_device() {
            let task = state.begin(&mut way);
            drop(state);
            let done = way.work(task.has_news);
            let is_full = done.is_full;
            state = self.state();
            state.end(&mut way, done);
            if task.was_full != is_full {
                // Only after the report: news of room that comes from now on is noted.
                drop(state);
                watch_room(is_full);
                state = self.state();
            }
        }
        state
    }
}

impl Way {
    fn give_back(&mut self, ticket: TxTicket, dropped: bool) {
        if !ticket.is_blank() {
            self.back.push(Back { ticket, dropped });
        }
    }

    /// Sends a batch, and asks for tickets.
    fn work(&mut self, has_news: bool) -> Done {
        let any = !self.batch.is_empty();
        let mut done = self.send_batch();
        if any && (self.is_last || done.is_full) {
            self.device.flush();
        }
        if has_news || self.device.has_done() {
            while let Some(ticket) = self.device.poll_done() {
                self.give_back(ticket, false);
                done.kept -= 1;
                done.reported = has_news;
            }
        }
        done
    }

    /// Sends the packets of a batch until the device has no room.
    fn send_batch(&mut self) -> Done {
        let mut kept = 0;
        while let Some(Parcel { mut packet, ticket }) = self.batch.pop_front() {
            match self.device.send(&packet.packet(), ticket) {
                Sent::Full(ticket) => {
                    self.batch.push_front(Parcel { packet, ticket });
                    return Done { kept, reported: false, is_full: true };
                }
                Sent::Kept => kept += 1,
                // A packet that the device will never take has left, too: `losses.rs` says why, and counts
                // it.
                Sent::Left(ticket) | Sent::Never(ticket, _) => self.give_back(ticket, false),
                Sent::Dropped(ticket) => self.give_back(ticket, true),
            }
            packet.clear();
            self.sent.push(packet);
        }
        Done { kept, reported: false, is_full: false }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A device that keeps each packet until it has left.
    #[derive(Clone, Default)]
    struct Queue {
        below: Arc<Mutex<VecDeque<TxTicket>>>,
        left: Arc<Mutex<VecDeque<TxTicket>>>,
    }

    impl TxDevice for Queue {
        fn news(&mut self, _: &Waker) -> io::Result<News> {
            Ok(News::Waker)
        }

        fn send(&mut self, _: &TxPacket<'_>, ticket: TxTicket) -> Sent {
            lock(&self.below).push_back(ticket);
            Sent::Kept
        }

        fn poll_done(&mut self) -> Option<TxTicket> {
            lock(&self.left).pop_front()
        }
    }

    /// The thread that reads a report must ask the stack again: no ACK and no timer has to come first.
    #[test]
    fn dev_18_a_report_makes_room_at_once() {
        let queue = Queue::default();
        let outbox = Outbox::new(Counted::new(Box::new(queue.clone())));
        assert!(matches!(outbox.put(&TxPacket::whole(&[1]), TxTicket::blank()), Sent::Kept));
        assert!(!outbox.serve(|_| ()), "it is below");
        outbox.note_news();
        assert!(!outbox.serve(|_| ()), "news of something else");
        let ticket = lock(&queue.below).pop_front().unwrap();
        lock(&queue.left).push_back(ticket);
        outbox.note_news();
        assert!(outbox.serve(|_| ()), "it has left");
        assert!(!outbox.serve(|_| ()), "the stack was asked");
    }
}
