//! The port of one machine: its socket, and the frames that wait for room in it. Called by `tx.rs` with the
//! stack's packets, and by `rx.rs` with frames of other machines.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use taut_core::{GATHER_MAX, TxPacket, TxTicket};
use taut_driver::Sent;
use taut_driver::sys::{Epoll, Interest};
use taut_ethernet::{PortId, Refused};
use taut_wire::ethernet::HEADER_LEN;

use super::super::carrier::Carrier;
use super::super::line::Parcel;
use crate::packet::below::{Below, Gone};

/// Packets of the stack that wait: connections have less, by their small queues.
const OWN_MAX: usize = 256;
/// Bytes of other machines' frames that wait: four of the longest.
const PASSED_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Port {
    pub(super) id: PortId,
    pub(super) carrier: Carrier,
    /// The socket, to wait for its room.
    room: OwnedFd,
    out: Mutex<Out>,
    /// Whether each of the two refusals was reported.
    said: [AtomicBool; 2],
}

/// Frames that have not been read yet.
#[derive(Debug)]
struct Out {
    /// In the socket; frames of other machines without a ticket.
    below: Below<Option<TxTicket>>,
    /// For which the socket had no room.
    queue: VecDeque<Waiting>,
    /// Packets of the stack there, and in the socket.
    own: usize,
    own_below: usize,
    /// Bytes of other machines' frames there.
    passed: usize,
    /// Room is waited for.
    is_full: bool,
    is_closed: bool,
}

#[derive(Debug)]
enum Waiting {
    Own([u8; HEADER_LEN], Parcel),
    /// From another machine.
    Passed(Vec<u8>),
}

impl Port {
    pub(super) fn new(id: PortId, socket: UnixStream, news: &Epoll) -> io::Result<Self> {
        let room = OwnedFd::from(socket.try_clone()?);
        let carrier = Carrier::stream(socket.into());
        news.add(carrier.as_fd(), 2 * u64::from(id.0), Interest::Readable)?;
        news.add(room.as_fd(), 2 * u64::from(id.0) + 1, Interest::Nothing)?;
        let out = Out {
            below: Below::new(),
            queue: VecDeque::new(),
            own: 0,
            own_below: 0,
            passed: 0,
            is_full: false,
            is_closed: false,
        };
        Ok(Self { id, carrier, room, out: Mutex::new(out), said: [const { AtomicBool::new(false) }; 2] })
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this refusal has not been reported yet.
    pub(super) fn is_news(&self, refused: Refused) -> bool {
        let at = match refused {
            Refused::Station(_) => 0,
            Refused::Address(_) => 1,
            Refused::Other => return false,
        };
        !self.said[at].swap(true, Ordering::Relaxed)
    }

    /// Returns the tickets of all that have not been read. No packet is taken any more.
    pub(super) fn close(&self) -> Vec<TxTicket> {
        let mut out = self.out();
        out.is_closed = true;
        let waiting = out.queue.drain(..).filter_map(|waiting| match waiting {
            Waiting::Own(_, parcel) => Some(parcel.ticket),
            Waiting::Passed(_) => None,
        });
        let mut tickets: Vec<TxTicket> = waiting.collect();
        tickets.extend(std::iter::from_fn(|| out.below.gone(0)).filter_map(|Gone { ticket, .. }| ticket));
        tickets
    }

    /// Sends a packet of the stack's, or keeps it until there is room.
    pub(super) fn send(
        &self,
        news: &Epoll,
        header: &[u8; HEADER_LEN],
        packet: &TxPacket<'_>,
        ticket: TxTicket,
    ) -> Sent {
        let mut out = self.out();
        if out.is_closed {
            return Sent::Left(ticket);
        }
        if out.queue.is_empty() {
            match self.put(header, packet.pieces()) {
                Ok(()) if self.is_read(&out) => return Sent::Left(ticket),
                Ok(()) => {
                    out.put(Some(ticket), HEADER_LEN + packet.len());
                    self.watch_room(news, &mut out);
                    return Sent::Kept;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return failed(&error, ticket),
            }
        }
        if out.own >= OWN_MAX {
            return Sent::Dropped(ticket);
        }
        out.own += 1;
        out.queue.push_back(Waiting::Own(*header, Parcel { packet: packet.keep(), ticket }));
        self.watch_room(news, &mut out);
        Sent::Kept
    }

    /// Sends a frame, or keeps it until there is room. One for which there is no place is lost.
    pub(super) fn pass(&self, news: &Epoll, frame: &[u8]) {
        let mut out = self.out();
        if out.is_closed {
            return;
        }
        let sent = if out.queue.is_empty() { self.put(frame, std::iter::empty()) } else { Err(full()) };
        match sent {
            Ok(()) if self.is_read(&out) => {}
            Ok(()) => out.put(None, frame.len()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {}
            Err(_) if out.passed + frame.len() > PASSED_MAX => {}
            Err(_) => {
                out.passed += frame.len();
                out.queue.push_back(Waiting::Passed(frame.to_vec()));
            }
        }
        self.watch_room(news, &mut out);
    }

    /// Whether the machine has read all.
    fn is_read(&self, out: &Out) -> bool {
        out.below.is_empty() && self.carrier.bytes_below() == 0 && !self.carrier.push_rest()
    }

    /// Waits for room exactly while something needs it: a frame, or the rest of one.
    fn watch_room(&self, news: &Epoll, out: &mut Out) {
        let is_full = !out.queue.is_empty() || self.carrier.push_rest();
        if is_full != out.is_full {
            out.is_full = is_full;
            let interest = if is_full { Interest::Writable } else { Interest::Nothing };
            // Cannot fail: it is in the set.
            let _ = news.modify(self.room.as_fd(), 2 * u64::from(self.id.0) + 1, interest);
        }
    }

    fn put<'a>(&self, header: &'a [u8], pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        // The first piece is the place of a length.
        let mut all = [IoSlice::new(&[]); 3 + GATHER_MAX];
        let (mut count, mut len) = (1, 0);
        for piece in std::iter::once(header).chain(pieces) {
            all[count] = IoSlice::new(piece);
            count += 1;
            len += piece.len();
        }
        self.carrier.send(&mut all[..count], len)
    }

    /// Sends what has waited, as far as there is room, and gives tickets back. Returns whether a packet of
    /// the stack has not been read yet.
    pub(super) fn look(&self, news: &Epoll, done: &mut VecDeque<TxTicket>) -> bool {
        let mut out = self.out();
        self.send_waiting(news, &mut out, done);
        out.has_own()
    }

    /// The same for the receiving half, if no packet of the stack is here: then the sending one is not
    /// called.
    pub(super) fn flush(&self, news: &Epoll) {
        let mut out = self.out();
        if !out.has_own() {
            // So there is no ticket.
            self.send_waiting(news, &mut out, &mut VecDeque::new());
        }
    }

    fn send_waiting(&self, news: &Epoll, out: &mut Out, done: &mut VecDeque<TxTicket>) {
        while let Some(waiting) = out.queue.front() {
            let sent = match waiting {
                Waiting::Own(header, parcel) => self.put(header, parcel.packet.packet().pieces()),
                Waiting::Passed(frame) => self.put(frame, std::iter::empty()),
            };
            if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            let (ticket, len) = match out.queue.pop_front() {
                Some(Waiting::Own(_, Parcel { packet, ticket })) => {
                    out.own -= 1;
                    (Some(ticket), HEADER_LEN + packet.packet().len())
                }
                Some(Waiting::Passed(frame)) => {
                    out.passed -= frame.len();
                    (None, frame.len())
                }
                None => break,
            };
            match sent {
                Ok(()) => out.put(ticket, len),
                // Lost, as on the wire.
                Err(_) => done.extend(ticket),
            }
        }
        self.watch_room(news, out);
        // The rest of a frame is not counted by the kernel yet.
        if !out.below.is_empty() && !self.carrier.push_rest() {
            let bytes = self.carrier.bytes_below();
            while let Some(Gone { ticket, .. }) = out.below.gone(bytes) {
                out.own_below -= usize::from(ticket.is_some());
                done.extend(ticket);
            }
        }
    }
}

impl Out {
    const fn has_own(&self) -> bool {
        self.own + self.own_below > 0
    }

    /// A frame of so many bytes is in the socket.
    fn put(&mut self, ticket: Option<TxTicket>, len: usize) {
        self.own_below += usize::from(ticket.is_some());
        self.below.put(ticket, len, None);
    }
}

fn full() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

/// The fate of a packet that the socket did not take: without memory it is dropped in this host; the
/// receiving half notices a machine that is gone.
fn failed(error: &io::Error, ticket: TxTicket) -> Sent {
    match Errno::from_io_error(error) {
        Some(Errno::NOBUFS | Errno::NOMEM) => Sent::Dropped(ticket),
        _ => Sent::Left(ticket),
    }
}
