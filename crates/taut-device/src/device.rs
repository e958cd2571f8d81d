//! What a driver needs of a device: take a packet, give a packet, and a descriptor to wait on.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use taut_core::{LinkCaps, RxChecksum, TxPacket};

/// A packet that [`Device::recv`] put into the buffer it was lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The packet's place in the buffer, from its IP header on.
    pub range: Range<usize>,
    /// Whether its transport checksum is still to be verified.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment of a super-packet; 0 for an ordinary packet.
    pub gso_size: u16,
}

/// A link that carries IP packets.
///
/// A driver holds it behind a lock and calls it from whichever thread has something to send.
pub trait Device: Send {
    /// What the link can do; the same for the life of the device.
    fn caps(&self) -> LinkCaps;

    /// Takes one packet from the link. `buffer` has at least [`BUFFER_BYTES`] bytes; a device may exchange it for
    /// one of its own that is as long.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when nothing waits.
    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Received>;

    /// Puts one packet on the link. When it returns `Ok`, the bytes have left.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the link is full. Any other error concerns this packet alone.
    fn send(&mut self, packet: &TxPacket<'_>) -> io::Result<()>;

    /// Polls readable when [`recv`](Self::recv) has something.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Whether [`as_fd`](Self::as_fd) polls writable when a link that was full has room again. Where it does
    /// not, it polls readable then.
    fn polls_writable(&self) -> bool {
        true
    }
}

// A virtual call a packet costs a few nanoseconds, the system call under it microseconds; so the sockets need not
// be generic over their device.
impl<D: Device + ?Sized> Device for Box<D> {
    fn caps(&self) -> LinkCaps {
        (**self).caps()
    }
    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Received> {
        (**self).recv(buffer)
    }
    fn send(&mut self, packet: &TxPacket<'_>) -> io::Result<()> {
        (**self).send(packet)
    }
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
    fn polls_writable(&self) -> bool {
        (**self).polls_writable()
    }
}
