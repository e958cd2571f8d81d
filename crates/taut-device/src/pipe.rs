//! A link between two stacks in one process: for tests, and for systems without TUN.
//!
//! Each direction is a queue bounded in bytes. A super-packet passes whole, with the state of its checksum,
//! as over TUN. The packet is copied into the queue, and counts as having left its host then.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use taut_core::{BUFFER_BYTES, LinkCaps, TxPacket, TxTicket};
use taut_driver::{Device, News, Received, RxDevice, Sent, TxDevice};

use crate::packets::Packets;

/// The two ends of a link. `limit_bytes` bounds each direction; a packet is taken if any room is left, so
/// that a packet of any size can pass.
///
/// # Errors
/// No descriptor or no memory left.
pub fn pipe(caps: LinkCaps, limit_bytes: usize) -> io::Result<(Pipe, Pipe)> {
    let end = || -> io::Result<_> { Ok(Direction::new(limit_bytes, Came::new()?)) };
    let link = Arc::new(Link { to: [end()?, end()?] });
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
    /// Indexed by the receiving end.
    to: [Direction; 2],
}

#[derive(Debug)]
struct Direction {
    queue: Mutex<Queue>,
    /// Announces that there is something to receive. Used under the lock.
    came: Came,
}

/// A descriptor that is readable while packets wait, for drivers that wait on several.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Came(crate::sys::EventFd);

#[cfg(target_os = "linux")]
impl Came {
    fn new() -> io::Result<Self> {
        crate::sys::EventFd::new().map(Self)
    }

    fn news(&self, _: &Waker) -> io::Result<News> {
        Ok(News::Fd(self.0.as_fd().try_clone_to_owned()?))
    }

    fn signal(&self) {
        self.0.signal();
    }

    fn drain(&self) {
        self.0.drain();
    }
}

/// Elsewhere, the waker of the receiving stack's driver.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Came(Mutex<Option<Waker>>);

#[cfg(not(target_os = "linux"))]
impl Came {
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    const fn new() -> io::Result<Self> {
        Ok(Self(Mutex::new(None)))
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    fn news(&self, waker: &Waker) -> io::Result<News> {
        *self.waker() = Some(waker.clone());
        Ok(News::Waker)
    }

    fn signal(&self) {
        self.waker().iter().for_each(Waker::wake_by_ref);
    }

    fn drain(&self) {}
}

#[derive(Debug)]
struct Queue {
    packets: Packets,
    /// The sender was refused, and must be notified of room.
    is_refused: bool,
    room: Option<Waker>,
    /// The receiver is gone.
    is_closed: bool,
}

impl Direction {
    const fn new(limit_bytes: usize, came: Came) -> Self {
        let packets = Packets::new(limit_bytes);
        Self { queue: Mutex::new(Queue { packets, is_refused: false, room: None, is_closed: false }), came }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pipe {
    /// The link's capabilities.
    #[must_use]
    pub const fn caps(&self) -> LinkCaps {
        self.caps
    }

    /// Puts a packet on the link.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the link is full, [`io::ErrorKind::InvalidInput`] for a packet that
    /// is too large.
    pub fn put(&self, packet: &TxPacket<'_>) -> io::Result<()> {
        if packet.len() > BUFFER_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let to = &self.link.to[1 - self.end];
        let mut queue = to.lock();
        if queue.is_closed {
            return Ok(()); // lost, as on a cable whose other end is not connected
        }
        if !queue.packets.has_room() {
            queue.is_refused = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let first = queue.packets.is_empty();
        queue.packets.put(packet);
        if first {
            to.came.signal();
        }
        Ok(())
    }

    /// How this end announces packets to [`recv`](Self::recv), for a device of yours that receives by it: an
    /// [`RxDevice::news`].
    ///
    /// # Errors
    /// No descriptor left.
    pub fn news(&self, waker: &Waker) -> io::Result<News> {
        self.link.to[self.end].came.news(waker)
    }

    /// Takes a packet off the link; `buffer` is exchanged for the buffer that holds the packet. `None` when
    /// there is no packet.
    pub fn recv(&self, buffer: &mut Vec<u8>) -> Option<Received> {
        let to = &self.link.to[self.end];
        let mut queue = to.lock();
        let Some(received) = queue.packets.take(buffer) else {
            // Under the lock, so that the next packet signals again.
            to.came.drain();
            return None;
        };
        let has_room = queue.is_refused && queue.packets.has_room();
        queue.is_refused &= !has_room;
        let room = queue.room.clone().filter(|_| has_room);
        drop(queue);
        room.into_iter().for_each(Waker::wake);
        Some(received)
    }
}

/// Polls readable when there is something to receive.
#[cfg(target_os = "linux")]
impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.to[self.end].came.0.as_fd()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut queue = self.link.to[self.end].lock();
        (queue.is_closed, queue.packets) = (true, Packets::new(0));
        let room = queue.room.take();
        drop(queue);
        room.into_iter().for_each(Waker::wake);
    }
}

impl From<Pipe> for Device {
    fn from(pipe: Pipe) -> Self {
        let (caps, pipe) = (pipe.caps, Arc::new(pipe));
        Self::new(caps, PipeTx(Arc::clone(&pipe)), PipeRx(pipe))
    }
}

struct PipeTx(Arc<Pipe>);

impl TxDevice for PipeTx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.link.to[1 - self.0.end].lock().room = Some(waker.clone());
        Ok(News::Waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        match self.0.put(packet) {
            Ok(()) => Sent::Left(ticket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Full(ticket),
            Err(error) => Sent::Never(ticket, error),
        }
    }
}

struct PipeRx(Arc<Pipe>);

impl RxDevice for PipeRx {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.news(waker)
    }

    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>> {
        Ok(self.0.recv(buffer))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use taut_core::{Gather, Instant, Offload, RxChecksum};

    use super::*;
    use crate::sys::{Epoll, Interest};

    fn readable(end: &Pipe) -> bool {
        let epoll = Epoll::new().unwrap();
        epoll.add(end.as_fd(), 1, Interest::Readable).unwrap();
        epoll.wait(Some(Duration::ZERO)).unwrap().contains(1)
    }

    fn packet<'a>(header: &'a [u8], payload: Gather<'a>, offload: Offload) -> TxPacket<'a> {
        TxPacket { header, payload, offload, departure: Instant::ZERO }
    }

    fn put(end: &Pipe, len: usize) -> io::Result<()> {
        end.put(&packet(&vec![0; len], Gather::EMPTY, Offload::None))
    }

    #[test]
    fn carries_super_packets_whole_in_order_and_reuses_their_buffers() {
        let (a, b) = pipe(LinkCaps::offloading(1500), 1 << 20).unwrap();
        let mut buffer = vec![0; BUFFER_BYTES];
        assert_eq!(b.recv(&mut buffer), None);
        let mut payload = Gather::EMPTY;
        payload.push(&[2; 40_000]);
        payload.push(&[3; 20_000]);
        let offload = Offload::Segment { mss: 1448, start: 20, offset: 16, ipv6: false };
        for _ in 0..3 {
            a.put(&packet(&[1; 40], payload, offload)).unwrap();
            a.put(&packet(&[4; 40], Gather::EMPTY, Offload::None)).unwrap();
            assert!(readable(&b));
            let got = b.recv(&mut buffer).unwrap();
            assert_eq!(got, Received { range: 0..60_040, checksum: RxChecksum::Verified, gso_size: 1448 });
            assert_eq!((buffer[39], buffer[40], buffer[40_039], buffer[40_040]), (1, 2, 2, 3));
            let got = b.recv(&mut buffer).unwrap();
            assert_eq!(got, Received { range: 0..40, checksum: RxChecksum::Unverified, gso_size: 0 });
            assert_eq!(buffer.len(), BUFFER_BYTES);
            assert_eq!(b.recv(&mut buffer), None);
            assert!(!readable(&b));
        }
        assert!(b.link.to[1].lock().packets.spare() <= 2, "buffers are reused");
    }

    /// Counts how often it is called.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_refused_sender_is_told_of_room() {
        let (a, b) = pipe(LinkCaps::plain(1500), 2_000).unwrap();
        let (mut a, told) = (Device::from(a), Arc::new(Count::default()));
        assert!(matches!(a.tx.news(&Waker::from(Arc::clone(&told))), Ok(News::Waker)));
        let mut send = |len: usize| {
            let header = vec![0; len];
            let sent = a.tx.send(&packet(&header, Gather::EMPTY, Offload::None), TxTicket::blank());
            matches!(sent, Sent::Left(_))
        };
        assert!(send(1500) && send(1500) && !send(1500));
        let mut buffer = vec![0; BUFFER_BYTES];
        assert_eq!(told.0.load(Ordering::SeqCst), 0);
        b.recv(&mut buffer).unwrap();
        assert_eq!(told.0.load(Ordering::SeqCst), 1);
        assert!(send(1500));
        b.recv(&mut buffer).unwrap();
        assert_eq!(told.0.load(Ordering::SeqCst), 1, "it was not refused again");
    }

    #[test]
    fn an_end_that_is_dropped_swallows() {
        let (a, b) = pipe(LinkCaps::plain(1500), 100).unwrap();
        put(&a, 100).unwrap();
        assert!(put(&a, 100).is_err());
        drop(b);
        put(&a, 100).unwrap();
        put(&a, 100).unwrap();
    }
}
