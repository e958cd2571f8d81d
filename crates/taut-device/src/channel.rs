//! A device whose other end is in this process, in other hands: what a tunnel's encryption worker holds, or
//! any program that wants a stack's packets as values.
//!
//! ```text
//!   stack ── send ──▶ packets, with their tickets ──▶ FarEnd::recv ──▶ Parcel ── dropped ──▶ the ticket is back
//!         ◀── recv ── packets ◀────────────────────── FarEnd::put
//! ```
//!
//! The far end keeps a packet for as long as it likes and lets go of it in any order; until then its bytes
//! count as not having left, so the stack sends no more than keeps the far end busy (TCP Small Queues). It
//! may be used by several threads, behind an `Arc`. When it is dropped, the device is gone.

#[cfg(any(target_os = "macos", windows))]
mod system_tun;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use taut_core::{BUFFER_BYTES, KeptPacket, LinkCaps, TxPacket, TxTicket};
use taut_driver::{Device, News, Received, RxDevice, Sent, TxDevice};

use crate::packets::Packets;
#[cfg(any(target_os = "macos", windows))]
pub use system_tun::SystemTun;

/// A device and its far end. `limit_bytes` bounds what waits for the far end, and what waits for the stack;
/// what the far end has taken and not let go of is bounded by the stack alone.
#[must_use]
pub fn channel(caps: LinkCaps, limit_bytes: usize) -> (Device, FarEnd) {
    let there = There {
        waiting: VecDeque::new(),
        bytes: 0,
        limit_bytes,
        done: VecDeque::new(),
        spare: Vec::new(),
        is_refused: false,
        is_closed: false,
        to_stack: None,
        to_far: None,
    };
    let back = Back { packets: Packets::new(limit_bytes), is_closed: false, to_stack: None };
    let link = Arc::new(Link { there: Mutex::new(there), came: Condvar::new(), back: Mutex::new(back) });
    let device = Device::new(caps, ChannelTx(Arc::clone(&link)), ChannelRx(Arc::clone(&link)));
    (device, FarEnd { link })
}

struct Link {
    there: Mutex<There>,
    /// A packet waits for the far end, or none will come any more.
    came: Condvar,
    back: Mutex<Back>,
}

/// From the stack to the far end.
struct There {
    waiting: VecDeque<(KeptPacket, TxTicket)>,
    /// Sum of the lengths of those that wait.
    bytes: usize,
    limit_bytes: usize,
    /// Tickets on their way back.
    done: VecDeque<TxTicket>,
    /// Memory of packets that are done with.
    spare: Vec<KeptPacket>,
    /// The stack was refused, and is to be told of room.
    is_refused: bool,
    /// One of the ends is gone.
    is_closed: bool,
    to_stack: Option<Waker>,
    /// A task of the far end that waits.
    to_far: Option<Waker>,
}

/// From the far end to the stack.
struct Back {
    packets: Packets,
    /// One of the ends is gone.
    is_closed: bool,
    to_stack: Option<Waker>,
}

/// Packets whose memory is kept for later.
const SPARE_MAX: usize = 64;

impl Link {
    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn back(&self) -> MutexGuard<'_, Back> {
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The far end lets go of a packet.
    fn done(&self, mut packet: KeptPacket, ticket: TxTicket) {
        packet.clear();
        let mut there = self.there();
        there.done.push_back(ticket);
        if there.spare.len() < SPARE_MAX {
            there.spare.push(packet);
        }
        let to_stack = there.to_stack.clone();
        drop(there);
        to_stack.into_iter().for_each(Waker::wake);
    }

    /// One end is gone: the other is told, and nothing waits any more.
    fn close(&self) {
        let mut there = self.there();
        there.is_closed = true;
        there.bytes = 0;
        let waiting = std::mem::take(&mut there.waiting);
        there.done.extend(waiting.into_iter().map(|(_, ticket)| ticket));
        let (to_stack, to_far) = (there.to_stack.clone(), there.to_far.take());
        drop(there);
        let mut back = self.back();
        back.is_closed = true;
        let wakers = [to_stack, to_far, back.to_stack.clone()];
        drop(back);
        self.came.notify_all();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

struct ChannelTx(Arc<Link>);

impl TxDevice for ChannelTx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.there().to_stack = Some(waker.clone());
        Ok(News::Waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let mut there = self.0.there();
        if there.is_closed {
            return Sent::Never(ticket, gone());
        }
        if there.bytes >= there.limit_bytes {
            there.is_refused = true;
            return Sent::Full(ticket);
        }
        let mut kept = there.spare.pop().unwrap_or_default();
        packet.keep_in(&mut kept);
        there.bytes += packet.len();
        there.waiting.push_back((kept, ticket));
        let to_far = there.to_far.take();
        drop(there);
        self.0.came.notify_one();
        to_far.into_iter().for_each(Waker::wake);
        Sent::Kept
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        self.0.there().done.pop_front()
    }
}

impl Drop for ChannelTx {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct ChannelRx(Arc<Link>);

impl RxDevice for ChannelRx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.back().to_stack = Some(waker.clone());
        Ok(News::Waker)
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let mut back = self.0.back();
        match back.packets.take(buffer) {
            None if back.is_closed => Err(gone()),
            received => Ok(received),
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the far end of the channel was dropped")
}

/// What a stack sends comes out here, and what is put in here goes to the stack.
pub struct FarEnd {
    link: Arc<Link>,
}

impl fmt::Debug for FarEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarEnd").finish_non_exhaustive()
    }
}

impl FarEnd {
    /// Waits for a packet. `None` when the stack is gone.
    #[must_use]
    pub fn recv(&self) -> Option<Parcel> {
        let mut there = self.link.there();
        loop {
            there = match self.take(there) {
                Ok(parcel) => return Some(parcel),
                Err(there) if there.is_closed => return None,
                Err(there) => self.link.came.wait(there).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The next packet, if one waits.
    #[must_use]
    pub fn try_recv(&self) -> Option<Parcel> {
        self.take(self.link.there()).ok()
    }

    /// [`recv`](Self::recv) for a task, in any executor. Of several tasks the last to wait is woken.
    pub async fn recv_async(&self) -> Option<Parcel> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Takes the packets that wait, `most` at most, in their order, and appends them to `into`. Returns how
    /// many: with one lock and one wake-up of the stack for all of them.
    pub fn try_recv_many(&self, into: &mut Vec<Parcel>, most: usize) -> usize {
        let mut there = self.link.there();
        let count = there.waiting.len().min(most);
        for _ in 0..count {
            let Some((packet, ticket)) = there.waiting.pop_front() else { break };
            there.bytes -= packet.packet().len();
            into.push(Parcel { packet, ticket: Some(ticket), link: Arc::clone(&self.link) });
        }
        let has_room = count > 0 && std::mem::take(&mut there.is_refused);
        let to_stack = there.to_stack.clone().filter(|_| has_room);
        drop(there);
        to_stack.into_iter().for_each(Waker::wake);
        count
    }

    /// [`recv`](Self::recv) for a task that polls. Of several tasks the last to poll is woken.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Option<Parcel>> {
        match self.take(self.link.there()) {
            Ok(parcel) => Poll::Ready(Some(parcel)),
            Err(there) if there.is_closed => Poll::Ready(None),
            Err(mut there) => {
                there.to_far = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next packet, or what is locked.
    fn take<'a>(&self, mut there: MutexGuard<'a, There>) -> Result<Parcel, MutexGuard<'a, There>> {
        let Some((packet, ticket)) = there.waiting.pop_front() else { return Err(there) };
        there.bytes -= packet.packet().len();
        let was_refused = std::mem::take(&mut there.is_refused);
        let to_stack = there.to_stack.clone().filter(|_| was_refused);
        drop(there);
        to_stack.into_iter().for_each(Waker::wake);
        Ok(Parcel { packet, ticket: Some(ticket), link: Arc::clone(&self.link) })
    }

    /// [`put`](Self::put) for several packets, with one wake-up of the stack. Returns how many there was room
    /// for: the first ones.
    pub fn put_many<'a>(&self, packets: impl IntoIterator<Item = TxPacket<'a>>) -> usize {
        let mut back = self.link.back();
        let mut count = 0;
        for packet in packets {
            if back.is_closed || packet.len() > BUFFER_BYTES || !back.packets.has_room() {
                break;
            }
            back.packets.put(&packet);
            count += 1;
        }
        let to_stack = back.to_stack.clone().filter(|_| count > 0);
        drop(back);
        to_stack.into_iter().for_each(Waker::wake);
        count
    }

    /// Gives the stack a packet, as another stack sent it or, with [`TxPacket::whole`], as it came from
    /// anywhere. Says whether there was room for it.
    pub fn put(&self, packet: &TxPacket<'_>) -> bool {
        let mut back = self.link.back();
        if back.is_closed || packet.len() > BUFFER_BYTES || !back.packets.has_room() {
            return false;
        }
        back.packets.put(packet);
        let to_stack = back.to_stack.clone();
        drop(back);
        to_stack.into_iter().for_each(Waker::wake);
        true
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// A packet that the far end has taken. It has left the stack's host when this is dropped.
pub struct Parcel {
    packet: KeptPacket,
    /// Until it is dropped.
    ticket: Option<TxTicket>,
    link: Arc<Link>,
}

impl Parcel {
    /// The packet.
    #[must_use]
    pub fn packet(&self) -> TxPacket<'_> {
        self.packet.packet()
    }

    /// Copies the packet's bytes to the start of `into`, and returns their number; `None` if they do not fit.
    pub fn copy_to(&self, into: &mut [u8]) -> Option<usize> {
        let packet = self.packet();
        let mut rest = into.get_mut(..packet.len())?;
        for piece in packet.pieces() {
            let (here, after) = rest.split_at_mut(piece.len());
            here.copy_from_slice(piece);
            rest = after;
        }
        Some(packet.len())
    }

    /// Bytes charged below TCP for it.
    #[must_use]
    pub fn truesize(&self) -> u32 {
        self.ticket.as_ref().map_or(0, TxTicket::truesize)
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("truesize", &self.truesize()).finish_non_exhaustive()
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.link.done(std::mem::take(&mut self.packet), ticket);
        }
    }
}

#[cfg(test)]
mod tests;
