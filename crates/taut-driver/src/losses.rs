//! What the device did not send: counted, and the reason of the last error kept. Ours; around every device, put there by
//! `host_queue.rs`; `shard.rs` passes the counts on to the stack, which has them in `nstat`.

use std::io;
use std::task::Waker;

use taut_core::{TxPacket, TxTicket};

use crate::device::{News, Sent, TxDevice};

/// A device that never says [`Sent::Never`].
pub(crate) struct Counted {
    device: Box<dyn TxDevice>,
    losses: Losses,
    last_error: Option<io::Error>,
}

/// Packets that a device did not send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// It dropped them.
    pub(crate) drops: u64,
    /// It will never take them.
    pub(crate) errors: u64,
}

impl Counted {
    pub(crate) fn new(device: Box<dyn TxDevice>) -> Self {
        Self { device, losses: Losses::default(), last_error: None }
    }

    /// Those since the last call.
    pub(crate) fn take_losses(&mut self) -> Losses {
        std::mem::take(&mut self.losses)
    }

    /// Why it did not take a packet, when that happened last.
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
                self.last_error = Some(why);
                // Lost like any packet in a network: retransmission answers for it. If the stack kept it, it would
                // offer it again at once, for ever.
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

    fn poll_done(&mut self) -> Option<TxTicket> {
        self.device.poll_done()
    }
}
