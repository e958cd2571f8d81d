//! Packets on their way to a device whose sends take long: they are queued under the shard's lock, in order, and sent
//! without it. taut's own; filled and emptied by `shard.rs` through `host_queue.rs`.
//!
//! **Problem.** A write to a TUN interface runs the whole receive path of the peer, on the thread that writes: half of
//! the time of a shard under load. If that happened under the shard's lock, no other thread could read, write or accept
//! meanwhile, and two cores would open fewer connections than one.
//!
//! **Rule.** [`put`](Outbox::put) keeps the packet: its headers are copied, its payload is not. After a thread has left
//! the shard's lock, it [serves](Outbox::serve) the outbox: if no other thread has the device, it takes the device and
//! sends what waits; else the thread that has the device sends it. So packets leave in the order in which the stack
//! made them, and none waits for a thread that has gone on.
//!
//! ```text
//!   under the shard's lock                          with the device
//!     put ──▶ packets ──────────── serve ──────────▶ send ─▶ Left, Kept, Full, Dropped, Never
//!     take_back ◀── tickets ◀──────────────────────── the tickets that came back
//! ```
//!
//! **No packet is left behind.** A thread that finds the device taken relies on the one that has it, which looks again
//! after it has given the device back. Both look under the same small lock. If that thread did not see the packet, it
//! looked before the packet was there, so it had already given the device back, and the other one finds the device free.
//!
//! **Tickets** come back when the shard collects them: with each turn, or with an access that finds them
//! [old enough](Outbox::is_ripe). Until then the bytes count as being below TCP. So small writes coalesce behind a packet
//! that has just left (autocorking), although a write to a TUN interface is over when it returns.
//!
//! A packet that the device drops is lost as in the network, because others have been made since; its connection
//! slows down.

use std::collections::VecDeque;
use std::io;
use std::task::Waker;

use taut_core::{Duration, Instant, KeptPacket, TxPacket, TxTicket};

use crate::device::{News, Sent, TxDevice};
use crate::losses::{Counted, Losses};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};

/// Most packets in the outbox. More would wait here instead of in the connections, which decide better the later they
/// decide; fewer would make a thread go back for the shard's lock more often.
const PACKETS_MAX: usize = 32;

/// Packets sent before their tickets are reported, so that the stack can prepare the next ones meanwhile.
const BATCH_PACKETS: usize = 8;

/// The age from which tickets are collected by any use of the stack. A thread that writes 64 bytes at a time has written
/// more than 10 KB by then, and a full small queue holds a millisecond.
const RIPE: Duration = Duration::from_micros(50);

/// The queue to a device, and the device.
pub(crate) struct Outbox {
    state: Mutex<State>,
    way: Mutex<Way>,
}

#[derive(Default)]
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
}

impl Outbox {
    pub(crate) fn new(device: Counted) -> Self {
        let way = Way { device, batch: VecDeque::new(), sent: Vec::new(), back: Vec::new() };
        Self { state: Mutex::new(State::default()), way: Mutex::new(way) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Asks the device how it announces its news.
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

    /// Whether there are packets here, or tickets that were not collected.
    pub(crate) fn owes_tickets(&self) -> bool {
        let state = self.state();
        state.len() > 0 || !state.back.is_empty()
    }

    /// Whether tickets have been here for so long that any use of the stack should collect them.
    pub(crate) fn is_ripe(&self, now: Instant) -> bool {
        self.state().back.front().is_some_and(|back| now.since(back.ticket.handed()) >= RIPE)
    }

    /// Collects the tickets that came back, for a thread with the shard's lock.
    pub(crate) fn take_back(&self, into: &mut VecDeque<Back>) {
        debug_assert!(into.is_empty(), "tickets that were not returned");
        std::mem::swap(&mut self.state().back, into);
    }

    pub(crate) fn take_losses(&self) -> Losses {
        std::mem::take(&mut self.state().losses)
    }

    /// Reads the last reason why the device did not take a packet.
    pub(crate) fn last_error<R>(&self, read: impl FnOnce(&io::Error) -> R) -> Option<R> {
        self.state().last_error.as_ref().map(read)
    }

    /// Sends what waits, unless another thread has the device and will do so. The caller must not have the shard's lock.
    /// `watch_room` is called with whether the device's room must be watched. Returns whether the stack was refused and
    /// there may be room now: then the caller must ask the stack again.
    #[must_use]
    pub(crate) fn serve(&self, watch_room: impl Fn(bool)) -> bool {
        while self.state().wants_device() {
            let Some(mut way) = try_lock(&self.way) else { return false };
            self.work(&mut way, &watch_room);
        }
        let mut state = self.state();
        !state.is_full && std::mem::take(&mut state.refused)
    }

    fn work(&self, way: &mut Way, watch_room: &impl Fn(bool)) {
        let mut any = false;
        loop {
            let (was_full, news) = {
                let mut state = self.state();
                if !state.wants_device() {
                    break;
                }
                let (was_full, news) = (state.is_full, std::mem::take(&mut state.has_news));
                let count = state.packets.len().min(BATCH_PACKETS);
                way.batch.extend(state.packets.drain(..count));
                (state.taken, state.is_full) = (count, false);
                (was_full, news)
            };
            let (mut kept, is_full) = way.send_batch(&mut any);
            if news {
                while let Some(ticket) = way.device.poll_done() {
                    way.give_back(ticket, false);
                    kept -= 1;
                }
            }
            self.report(way, kept, is_full);
            if was_full != is_full {
                watch_room(is_full);
            }
        }
        if any {
            way.device.flush();
        }
    }

    /// Reports what became of a batch.
    fn report(&self, way: &mut Way, kept: isize, is_full: bool) {
        let mut state = self.state();
        state.taken = 0;
        state.kept = state.kept.saturating_add_signed(kept);
        state.is_full = is_full;
        while let Some(parcel) = way.batch.pop_back() {
            state.packets.push_front(parcel);
        }
        state.back.extend(way.back.drain(..));
        state.spare.append(&mut way.sent);
        state.losses += way.device.take_losses();
        if let Some(error) = way.device.take_error() {
            state.last_error = Some(error);
        }
    }
}

impl Way {
    fn give_back(&mut self, ticket: TxTicket, dropped: bool) {
        if !ticket.is_blank() {
            self.back.push(Back { ticket, dropped });
        }
    }

    /// Sends the packets of a batch until the device has no room. Returns how many the device kept, and whether it has no
    /// room.
    fn send_batch(&mut self, any: &mut bool) -> (isize, bool) {
        let mut kept = 0;
        while let Some(Parcel { mut packet, ticket }) = self.batch.pop_front() {
            match self.device.send(&packet.packet(), ticket) {
                Sent::Full(ticket) => {
                    self.batch.push_front(Parcel { packet, ticket });
                    return (kept, true);
                }
                Sent::Kept => kept += 1,
                // A packet that the device will never take has left, too: `losses.rs` says why, and counts it.
                Sent::Left(ticket) | Sent::Never(ticket, _) => self.give_back(ticket, false),
                Sent::Dropped(ticket) => self.give_back(ticket, true),
            }
            *any = true;
            packet.clear();
            self.sent.push(packet);
        }
        (kept, false)
    }
}
