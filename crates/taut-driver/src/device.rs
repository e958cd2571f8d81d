//! What a driver asks of a device: to send a packet and give its ticket back, to receive one, to say when there is news.
//! Ours; after what Linux asks of its own (`ndo_start_xmit`, `xmit_more`, `netdev_tx_completed_queue`). Implemented by
//! `taut-device` and by applications, called by `shard.rs` and `host_queue.rs`.
//!
//! ```text
//!            ┌── tx ── send(packet, ticket) ──▶ Left, Full, Dropped, Never: the ticket is back at once
//!   Device ──┤                              └─▶ Kept: poll_done() gives it back later, in any order
//!            │         flush(): the batch is complete
//!            └── rx ── recv(buffer) ──▶ a packet, nothing, or the reason why the device is gone for good
//! ```
//!
//! A device is two halves, since two threads may be in it at once: the driver hands each half to whoever holds that
//! half's lock. Today that is one lock, the shard's. To send after leaving it, a driver takes packets with
//! [`TxPacket::keep`] under the shard's lock, in order, and sends them under a lock around `tx` alone; their fates come
//! back under the shard's again. Nothing here need change for that.
//!
//! Errors are transient ([`Sent::Full`]; a receive that finds nothing), of one packet ([`Sent::Never`]), or final: then
//! `recv` says so, the stack ends, and everybody who waits for it is told.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::task::Waker;

use taut_core::{LinkCaps, RxChecksum, TxPacket, TxTicket};

/// A link that carries IP packets.
pub struct Device {
    /// What the link can do; the same for the life of the device.
    pub caps: LinkCaps,
    /// The half that sends.
    pub tx: Box<dyn TxDevice>,
    /// The half that receives.
    pub rx: Box<dyn RxDevice>,
}

impl Device {
    /// A device of two halves.
    //
    // A virtual call a packet costs a few nanoseconds, the system call under it microseconds: so nothing above is
    // generic over devices.
    pub fn new(caps: LinkCaps, tx: impl TxDevice + 'static, rx: impl RxDevice + 'static) -> Self {
        Self { caps, tx: Box::new(tx), rx: Box::new(rx) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("caps", &self.caps).finish_non_exhaustive()
    }
}

/// What became of a packet that was given to a device.
#[derive(Debug)]
#[must_use = "the ticket in it belongs to the stack"]
pub enum Sent {
    /// The bytes have left this host.
    Left(TxTicket),
    /// The device has the packet and its ticket, and gives that back by [`TxDevice::poll_done`].
    Kept,
    /// No room now. The packet is offered again when the device says that it has some.
    Full(TxTicket),
    /// A queue in the device is full and dropped the packet: its connection slows down, and sends the bytes again a
    /// little later. [`Full`](Self::Full) is better where it can be had, since nothing is lost by it.
    Dropped(TxTicket),
    /// The device will never take this packet: lost, as on the link. The reason is kept for whoever looks.
    Never(TxTicket, io::Error),
}

/// How a half of a device says that it has news.
#[derive(Debug)]
pub enum News {
    /// By this descriptor. It polls readable while a receiving half has a packet. It polls writable when a sending half
    /// that was full has room again, and in error (`POLLERR`, as a socket's error queue does) while that has tickets to
    /// give back.
    Fd(OwnedFd),
    /// By the waker that it was given: called, from any thread, after a packet, room or a ticket has come, or the device
    /// has gone.
    Waker,
}

/// The half of a device that sends.
pub trait TxDevice: Send {
    /// Says how it announces room and tickets. Called once, before anything else.
    ///
    /// # Errors
    /// No descriptor left.
    fn news(&mut self, waker: &Waker) -> io::Result<News>;

    /// Puts one packet on the link. A device that needs the packet for longer than this call [keeps](TxPacket::keep) it,
    /// which copies no payload worth mentioning.
    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent;

    /// The batch of packets is complete: what waited for more of them goes now.
    fn flush(&mut self) {}

    /// The ticket of a packet that was [kept](Sent::Kept) and has left this host, or was lost in the device: for its
    /// connection that is the same. In any order, each once.
    fn poll_done(&mut self) -> Option<TxTicket> {
        None
    }
}

/// The half of a device that receives.
pub trait RxDevice: Send {
    /// Says how it announces packets. Called once, before anything else.
    ///
    /// # Errors
    /// No descriptor left.
    fn news(&mut self, waker: &Waker) -> io::Result<News>;

    /// Takes one packet from the link, or says that none waits. `buffer` has at least
    /// [`BUFFER_BYTES`](taut_core::BUFFER_BYTES); a device may exchange it for one of its own that is as long, and so give
    /// away one by one what it received many at a time.
    ///
    /// # Errors
    /// The device is gone, and this is why. It will not be asked again.
    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>>;
}

/// A packet that [`RxDevice::recv`] put into the buffer it was lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The packet's place in the buffer, from its IP header on.
    pub range: Range<usize>,
    /// Whether its transport checksum is still to be verified.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment of a super-packet; 0 for an ordinary packet.
    pub gso_size: u16,
}
