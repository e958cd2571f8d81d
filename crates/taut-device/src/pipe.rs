//! A link between two stacks in one process: for tests, and for where no TUN is to be had.
//!
//! Each direction is a queue bounded in bytes. A super-packet passes whole, with what is known of its checksum,
//! as over TUN. The buffers that carry packets go round between the ends, so nothing is allocated once they flow.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use taut_core::{BUFFER_BYTES, Gather, LinkCaps, Offload, RxChecksum, TxPacket};

use crate::device::{Device, Received};
use crate::sys::EventFd;

/// Buffers kept for later in each direction.
const SPARE_MAX: usize = 16;

/// Joins two ends. `limit_bytes` bounds each direction; a packet is taken if any room is left, so that one of any
/// size can pass.
///
/// # Errors
/// No descriptor or no memory left.
pub fn pipe(caps: LinkCaps, limit_bytes: usize) -> io::Result<(Pipe, Pipe)> {
    let link = Arc::new(Link {
        queues: [Mutex::default(), Mutex::default()],
        wake: [EventFd::new()?, EventFd::new()?],
        limit_bytes,
    });
    Ok((Pipe { link: Arc::clone(&link), end: 0, caps }, Pipe { link, end: 1, caps }))
}

/// One end of an in-process link.
#[derive(Debug)]
pub struct Pipe {
    link: Arc<Link>,
    end: usize,
    caps: LinkCaps,
}

#[derive(Debug)]
struct Link {
    /// What end `i` is to receive.
    queues: [Mutex<Queue>; 2],
    /// Readable when end `i` has something to receive, or room again after a refusal.
    wake: [EventFd; 2],
    limit_bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Packet>,
    /// Sum of the packets' lengths.
    bytes: usize,
    /// Buffers of [`BUFFER_BYTES`] bytes, empty of meaning.
    spare: Vec<Vec<u8>>,
    /// The sender was refused and waits to be told of room.
    refused: bool,
    /// The other end is gone.
    closed: bool,
}

#[derive(Debug)]
struct Packet {
    buffer: Vec<u8>,
    len: usize,
    checksum: RxChecksum,
    gso_size: u16,
}

impl Link {
    fn queue(&self, end: usize) -> MutexGuard<'_, Queue> {
        self.queues[end].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipe {
    const fn peer(&self) -> usize {
        1 - self.end
    }

    /// Puts a packet on the link.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the link is full.
    pub fn put(&self, header: &[u8], payload: &Gather<'_>, offload: Offload) -> io::Result<()> {
        let len = header.len() + payload.len();
        if len > BUFFER_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut queue = self.link.queue(self.peer());
        if queue.closed {
            return Ok(()); // lost, as on a cable that nobody holds the other end of
        }
        if queue.bytes >= self.link.limit_bytes {
            queue.refused = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut buffer = queue.spare.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]);
        let mut at = 0;
        for piece in std::iter::once(&header).chain(payload.slices()) {
            buffer[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let (checksum, gso_size) = match offload {
            Offload::None => (RxChecksum::Unverified, 0),
            // The sum is never completed: it does not leave this process.
            Offload::Checksum { .. } => (RxChecksum::Verified, 0),
            Offload::Segment { mss, .. } => (RxChecksum::Verified, mss),
        };
        let first = queue.packets.is_empty();
        queue.bytes += len;
        queue.packets.push_back(Packet { buffer, len, checksum, gso_size });
        if first {
            self.link.wake[self.peer()].signal();
        }
        Ok(())
    }
}

impl Device for Pipe {
    fn caps(&self) -> LinkCaps {
        self.caps
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        let mut queue = self.link.queue(self.end);
        let Some(packet) = queue.packets.pop_front() else {
            // Under the lock, so that a packet that comes next signals anew.
            self.link.wake[self.end].drain();
            return Err(io::ErrorKind::WouldBlock.into());
        };
        queue.bytes -= packet.len;
        let used = std::mem::replace(buffer, packet.buffer);
        if used.len() >= BUFFER_BYTES && queue.spare.len() < SPARE_MAX {
            queue.spare.push(used);
        }
        if queue.refused && queue.bytes < self.link.limit_bytes {
            queue.refused = false;
            self.link.wake[self.peer()].signal();
        }
        Ok(Received { range: 0..packet.len, checksum: packet.checksum, gso_size: packet.gso_size })
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> io::Result<()> {
        self.put(packet.header, &packet.payload, packet.offload)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.wake[self.end].as_fd()
    }

    fn polls_writable(&self) -> bool {
        false
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut queue = self.link.queue(self.end);
        let gone = std::mem::replace(&mut *queue, Queue { closed: true, ..Queue::default() });
        if gone.refused {
            self.link.wake[self.peer()].signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::{Epoll, Interest};

    fn readable(end: &Pipe) -> bool {
        let epoll = Epoll::new().unwrap();
        epoll.add(end.as_fd(), 1, Interest::Readable).unwrap();
        epoll.wait(Some(Duration::ZERO)).unwrap().contains(1)
    }

    #[test]
    fn carries_super_packets_whole_in_order_and_reuses_their_buffers() {
        let (a, mut b) = pipe(LinkCaps::offloading(1500), 1 << 20).unwrap();
        let mut buffer = vec![0; BUFFER_BYTES];
        assert_eq!(b.recv(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let mut payload = Gather::EMPTY;
        payload.push(&[2; 40_000]);
        payload.push(&[3; 20_000]);
        let offload = Offload::Segment { mss: 1448, start: 20, offset: 16, ipv6: false };
        for _ in 0..3 {
            a.put(&[1; 40], &payload, offload).unwrap();
            a.put(&[4; 40], &Gather::EMPTY, Offload::None).unwrap();
            assert!(readable(&b));
            let got = b.recv(&mut buffer).unwrap();
            assert_eq!(got, Received { range: 0..60_040, checksum: RxChecksum::Verified, gso_size: 1448 });
            assert_eq!((buffer[39], buffer[40], buffer[40_039], buffer[40_040]), (1, 2, 2, 3));
            let got = b.recv(&mut buffer).unwrap();
            assert_eq!(got, Received { range: 0..40, checksum: RxChecksum::Unverified, gso_size: 0 });
            assert_eq!(buffer.len(), BUFFER_BYTES);
            assert!(b.recv(&mut buffer).is_err());
            assert!(!readable(&b));
        }
        assert!(b.link.queue(1).spare.len() <= 2, "buffers go round");
    }

    #[test]
    fn a_refused_sender_is_told_of_room() {
        let (mut a, mut b) = pipe(LinkCaps::plain(1500), 2_000).unwrap();
        let send = |a: &Pipe| a.put(&[0; 1500], &Gather::EMPTY, Offload::None);
        send(&a).unwrap();
        send(&a).unwrap();
        assert_eq!(send(&a).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(!readable(&a));
        let mut buffer = vec![0; BUFFER_BYTES];
        b.recv(&mut buffer).unwrap();
        assert!(readable(&a));
        assert!(a.recv(&mut buffer).is_err());
        send(&a).unwrap();
    }

    #[test]
    fn an_end_that_is_dropped_swallows() {
        let (a, b) = pipe(LinkCaps::plain(1500), 100).unwrap();
        let send = |a: &Pipe| a.put(&[0; 100], &Gather::EMPTY, Offload::None);
        send(&a).unwrap();
        assert!(send(&a).is_err());
        drop(b);
        assert!(readable(&a));
        send(&a).unwrap();
        send(&a).unwrap();
    }
}
