//! Payload that the device puts at its reader's memory. Called by `arrivals.rs` for a thread or task that
//! reads.
//!
//! **Problem.** A payload is copied twice: by the kernel into a buffer of the stack's, and from there to the
//! reader, by which time it has left the cache.
//!
//! **Rule.** While at most one thread or task waits, it has read everything, and super-packets arrive, the
//! next packet is read with its payload at the reader's memory. One that turns out to be another's is put
//! together and taken as usual.

use std::io;
use std::task::{Poll, Waker};

use taut_core::{BUFFER_BYTES, ConnId, Frame, Instant, RxChecksum, RxPacket};

use super::waiters::{Interest, WaitKey};
use super::{Access, Inner, Shard};

/// Room for any packet's payload.
const ROOM: usize = 65_535 - HEADERS_MIN;
/// Headers of IPv4 and TCP without options.
const HEADERS_MIN: usize = 40;
/// Of IPv6 and TCP with timestamps, and more.
const HEADERS_MAX: usize = 80;

/// The memory of a reader.
#[derive(Debug, Default)]
pub(crate) struct ReadInto<'a> {
    conn: Option<ConnId>,
    into: &'a mut [u8],
    /// So much of it has been read.
    filled: usize,
}

impl<'a> ReadInto<'a> {
    pub(crate) const fn new(conn: ConnId, into: &'a mut [u8]) -> Self {
        Self { conn: Some(conn), into, filled: 0 }
    }

    /// Nothing has been read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// There is no room for another packet.
    pub(super) const fn is_full(&self) -> bool {
        self.into.len() - self.filled < ROOM
    }

    /// The memory, and how much of it has been read.
    pub(super) fn parts(&mut self) -> (&mut [u8], usize) {
        (self.into, self.filled)
    }
}

impl Shard {
    /// Blocks this thread until `attempt` is ready; `None` when `deadline` passes first.
    pub fn wait<T>(
        &self,
        interest: Interest,
        deadline: Option<Instant>,
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        self.wait_place(interest, deadline, &mut ReadInto::default(), attempt)
    }

    /// [`wait`](Self::wait) for the reader of a connection, whose bytes the device may put at `into`: see
    /// [`Access::filled`].
    pub fn wait_into<T>(
        &self,
        conn: ConnId,
        deadline: Option<Instant>,
        into: &mut [u8],
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        self.wait_place(Interest::Read(conn), deadline, &mut ReadInto::new(conn, into), attempt)
    }

    /// [`poll`](Self::poll) for the reader of a connection, whose bytes the device may put at `into`: see
    /// [`Access::filled`].
    ///
    /// # Errors
    /// Those of `attempt`, or why the shard is [closed](Self::closed).
    pub fn poll_into<T>(
        &self,
        conn: ConnId,
        key: WaitKey,
        waker: &Waker,
        into: &mut [u8],
        attempt: impl FnMut(&mut Access<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.poll_place(Interest::Read(conn), key, waker, &mut ReadInto::new(conn, into), attempt)
    }

    /// Takes one packet from the device whose payload is meant for `place`. Returns whether there was one, or
    /// `None` if the packet must be taken in the usual way.
    pub(super) fn receive_placed(&self, inner: &mut Inner, place: &mut ReadInto<'_>) -> Option<bool> {
        let conn = place.conn?;
        let room = place.into.get_mut(place.filled..).filter(|room| room.len() >= ROOM)?;
        if !inner.is_bulk || inner.waiters.count() > 1 || self.peers.get().is_some() || self.is_closed() {
            return None;
        }
        let Inner { stack, rx, buffer, is_bulk, .. } = inner;
        let mut headers = [0; HEADERS_MAX];
        let headers = headers.get_mut(..stack.placed_headers(conn)?)?;
        let received = match rx.recv_placed(headers, room)? {
            Ok(Some(received)) => received,
            Ok(None) => return Some(false),
            Err(why) => {
                self.end(why);
                return Some(false);
            }
        };
        let len = received.range.len();
        let now = self.clock.now();
        let payload = room.get(..len.saturating_sub(headers.len())).unwrap_or_default();
        if received.checksum == RxChecksum::Verified
            && let Some(count) = stack.handle_placed(now, conn, headers, payload, received.gso_size)
        {
            place.filled += count;
            return Some(true);
        }
        // The next one is read as usual.
        *is_bulk = false;
        let (first, second) = buffer.split_at_mut(headers.len());
        first.copy_from_slice(headers);
        second.get_mut(..payload.len())?.copy_from_slice(payload);
        let frame = Frame::Lend { buffer: &mut *buffer, range: 0..len };
        let packet = RxPacket { frame, checksum: received.checksum, gso_size: received.gso_size };
        stack.handle_packet(now, packet);
        if buffer.len() < BUFFER_BYTES {
            *buffer = vec![0; BUFFER_BYTES];
        }
        Some(true)
    }
}
