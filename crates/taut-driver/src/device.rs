//! The contract between a driver and a device: the device sends a packet and gives its ticket back, receives
//! packets, and announces news. taut's own, modelled on Linux's (`ndo_start_xmit`, `xmit_more`,
//! `netdev_tx_completed_queue`). Implemented by `taut-device` and by applications, called by `shard.rs` and
//! `host_queue.rs`.
//!
//! ```text
//!            ┌── tx ── send(packet, ticket) ──▶ Left, Full, Dropped, Never: the ticket is back at once
//!   Device ──┤                              └─▶ Kept: poll_done() gives it back later, in any order
//!            │         flush(): the batch is complete
//!            └── rx ── recv(buffer) ──▶ a packet, nothing, or the reason why the device is gone for good
//! ```
//!
//! A device has two halves, because two threads may use it at the same time, each half under a lock. The half
//! that receives is used under the shard's lock. So is the half that sends, unless it [is
//! slow](TxDevice::is_slow): then it has a lock of its own, and `outbox.rs` is between it and the stack.
//!
//! Errors are transient ([`Sent::Full`]; a receive that finds nothing), concern one packet ([`Sent::Never`]),
//! or are final: then `recv` returns the error, the stack ends, and every waiting thread and task gets the
//! reason.

use std::fmt;
use std::io;
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::task::Waker;

use taut_core::{LinkCaps, NetworkChange, RxChecksum, TxPacket, TxTicket};

/// A link that carries IP packets.
pub struct Device {
    /// The link's capabilities, fixed for the life of the device.
    pub caps: LinkCaps,
    /// The half that sends.
    pub tx: Box<dyn TxDevice>,
    /// The half that receives.
    pub rx: Box<dyn RxDevice>,
}

impl Device {
    /// A device of two halves.
    //
    // A virtual call per packet costs a few nanoseconds, the system call under it microseconds: so the layers
    // above are not generic over devices.
    pub fn new(caps: LinkCaps, tx: impl TxDevice + 'static, rx: impl RxDevice + 'static) -> Self {
        Self { caps, tx: Box::new(tx), rx: Box::new(rx) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("caps", &self.caps).finish_non_exhaustive()
    }
}

/// The fate of a packet that was given to a device.
#[derive(Debug)]
#[must_use = "the ticket in it belongs to the stack"]
pub enum Sent {
    /// The bytes have left this host.
    Left(TxTicket),
    /// The device has the packet and its ticket, and will give the ticket back by [`TxDevice::poll_done`].
    Kept,
    /// No room now. The packet is offered again when the device announces room, and not before: a device that
    /// cannot announce any drops the packet instead.
    Full(TxTicket),
    /// A queue in the device is full and dropped the packet: its connection slows down, and retransmits the
    /// bytes a little later. Counted as `TautDeviceDrops`. Prefer [`Full`](Self::Full) if the device can say
    /// when it has room, because then nothing is lost.
    Dropped(TxTicket),
    /// The device will never take this packet, for example because it is too large: it is lost, as if on the
    /// link. Counted as `TautDeviceErrors`, and the last reason is kept:
    /// [`Shard::last_device_error`](crate::Shard::last_device_error).
    Never(TxTicket, io::Error),
}

/// How a half of a device announces news.
#[derive(Debug)]
pub enum News {
    /// By this descriptor. For a receiving half, it polls readable while there is a packet. For a sending
    /// half, it polls writable when a device that was full has room again, and in error (`POLLERR`, like a
    /// socket's error queue) while there are tickets to give back. Only on Unix; see
    /// [`DriverThread`](crate::DriverThread) for which drivers wait on it.
    #[cfg(unix)]
    Fd(OwnedFd),
    /// By the waker that it was given. The device calls it, from any thread, after a packet, room or a ticket
    /// has become available, or the device is gone.
    Waker,
}

/// The half of a device that sends.
pub trait TxDevice: Send {
    /// How this half announces room and tickets. Called once, before any other call.
    ///
    /// # Errors
    /// For example when no descriptor is left.
    fn news(&mut self, waker: &Waker) -> io::Result<News>;

    /// Puts one packet on the link. A device that needs the packet for longer than this call
    /// [keeps](TxPacket::keep) it, which copies no payload worth mentioning.
    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent;

    /// Whether [`send`](Self::send) takes long: microseconds in a system call, and not a copy into a queue.
    /// Then packets are sent without the stack's lock, so that other threads can use the stack meanwhile,
    /// except much at a time; the stack learns the fate of a packet a little later; and a packet that is
    /// [dropped](Sent::Dropped) is lost as in the network. In `send`, a device must not use its stack.
    fn is_slow(&self) -> bool {
        false
    }

    /// The batch of packets is complete: packets that waited for more of them must leave now.
    fn flush(&mut self) {}

    /// The ticket of a packet that was [kept](Sent::Kept) and has left this host or was lost in the device,
    /// which is the same to its connection. Tickets come in any order, each once.
    fn poll_done(&mut self) -> Option<TxTicket> {
        None
    }

    /// Whether [`poll_done`](Self::poll_done) has a ticket, as far as is known without a look at what is
    /// below. It is then asked as soon as the batch has been [sent](Self::flush), and not only when the
    /// device announces it.
    fn has_done(&self) -> bool {
        false
    }

    /// How many tickets [`poll_done`](Self::poll_done) gave back since the last call without news that their
    /// packets had left: those may have been dropped below. Counted as `TautDeviceUnreported`.
    fn take_unreported(&mut self) -> u64 {
        0
    }
}

/// The half of a device that receives.
pub trait RxDevice: Send {
    /// How this half announces packets. Called once, before any other call.
    ///
    /// # Errors
    /// For example when no descriptor is left.
    fn news(&mut self, waker: &Waker) -> io::Result<News>;

    /// A batch begins: packets may have come since the last one. A device that knows from a call in this
    /// batch that it has taken everything may say so without another call. A packet that comes after that is
    /// announced once more.
    fn begin_batch(&mut self) {}

    /// A batch has ended, which may be at any packet. A device that has read more than it has passed on
    /// announces the rest.
    fn end_batch(&mut self) {}

    /// Takes one packet from the link, or returns `None` if there is none. `buffer` has at least
    /// [`BUFFER_BYTES`](taut_core::BUFFER_BYTES). A device may exchange it for one of its own of at least
    /// that length, so that a device that receives many packets at a time can pass them on one by one.
    ///
    /// # Errors
    /// The reason why the device is gone. It will not be called again.
    fn recv(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Received>>;

    /// [`recv`](Self::recv) in two pieces: the first bytes of a packet into `headers`, the rest into
    /// `payload`, which has room for it. `None` from a device that cannot, which is the default.
    fn recv_placed(
        &mut self,
        _headers: &mut [u8],
        _payload: &mut [u8],
    ) -> Option<io::Result<Option<Received>>> {
        None
    }

    /// A change that the link has learnt, such as an address that nobody else has, or a router. Asked for
    /// when [`recv`](Self::recv) finds no packet. Only for a device with one queue.
    fn poll_change(&mut self) -> Option<NetworkChange> {
        None
    }

    /// The stack's owner changes the network. Returns whether the stack is to be told now; otherwise
    /// [`poll_change`](Self::poll_change) tells it, when the link has checked what was asked for.
    fn change_network(&mut self, _change: NetworkChange) -> bool {
        true
    }
}

/// A packet that [`RxDevice::recv`] put into the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The range of the packet in the buffer, from its IP header on; of one in two pieces, in both together.
    pub range: Range<usize>,
    /// Whether its transport checksum must still be verified.
    pub checksum: RxChecksum,
    /// Payload bytes of each segment of a super-packet; 0 for an ordinary packet.
    pub gso_size: u16,
}
