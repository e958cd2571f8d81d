//! Counts the packets that the device did not send and the completions that came late, and keeps the reason
//! of the last error. Our own mechanism. `host_queue.rs` wraps every device in it; `shard.rs` passes the
//! counts on to the stack, and `nstat` shows them.

use std::io;
use std::ops::AddAssign;
use std::task::Waker;

use taut_core::{Instant, TxPacket, TxTicket};

use crate::device::{News, Sent, TxDevice};

/// A device that counts its losses, and never returns [`Sent::Never`].
pub(crate) struct Counted {
    device: Box<dyn TxDevice>,
    losses: Losses,
    last_error: Option<io::Error>,
    /// When the latest of the packets was made that have come back late.
    latest: Instant,
    /// The kind of the last error that was an event.
    #[cfg(feature = "tracing")]
    reported: Option<io::ErrorKind>,
}

/// Packets that a device did not send, and those that it did not send at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Packets that the device dropped.
    pub(crate) drops: u64,
    /// Packets that it will never take.
    pub(crate) errors: u64,
    /// Tickets that it kept, and gave back later.
    pub(crate) late: u64,
    /// Those of packets that the stack had made before one that came back earlier.
    pub(crate) out_of_order: u64,
    /// Those that it gave back without a report.
    pub(crate) unreported: u64,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, more: Self) {
        self.drops += more.drops;
        self.errors += more.errors;
        self.late += more.late;
        self.out_of_order += more.out_of_order;
        self.unreported += more.unreported;
    }
}

impl Counted {
    pub(crate) fn new(device: Box<dyn TxDevice>) -> Self {
        Self {
            device,
            losses: Losses::default(),
            last_error: None,
            latest: Instant::ZERO,
            #[cfg(feature = "tracing")]
            reported: None,
        }
    }

    /// What was counted since the last call.
    pub(crate) fn take_losses(&mut self) -> Losses {
        if self.losses.late > 0 {
            self.losses.unreported += self.device.take_unreported();
        }
        std::mem::take(&mut self.losses)
    }

    /// The reason why it did not take a packet, if there is one since the last call.
    pub(crate) const fn take_error(&mut self) -> Option<io::Error> {
        self.last_error.take()
    }

    /// The reason why it last did not take a packet.
    pub(crate) const fn last_error(&self) -> Option<&io::Error> {
        self.last_error.as_ref()
    }
}

impl TxDevice for Counted {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.device.news(waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        match self.device.send(packet, ticket) {
            Sent::Never(ticket, why) => {
                self.losses.errors += 1;
                // A packet that is too large comes again and again.
                #[cfg(feature = "tracing")]
                if self.reported.replace(why.kind()) != Some(why.kind()) {
                    tracing::warn!(%why, "device error");
                }
                self.last_error = Some(why);
                // Treated as lost in the network, so retransmission repairs it. If the stack kept the packet,
                // it would offer it again immediately, for ever.
                Sent::Left(ticket)
            }
            Sent::Dropped(ticket) => {
                self.losses.drops += 1;
                Sent::Dropped(ticket)
            }
            sent => sent,
        }
    }

    fn flush(&mut self) {
        self.device.flush();
    }

    fn has_done(&self) -> bool {
        self.device.has_done()
    }

    fn poll_done(&mut self) -> Option<TxTicket> {
        let ticket = self.device.poll_done()?;
        self.losses.late += 1;
        // A blank one has no time.
        if !ticket.is_blank() && ticket.handed() < self.latest {
            self.losses.out_of_order += 1;
        }
        self.latest = self.latest.max(ticket.handed());
        Some(ticket)
    }
}
