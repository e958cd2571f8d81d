//! The part of a sender that exists from its first write on: its ledger, and the inputs of the gates at a
//! write. A connection that only receives has none.

use alloc::boxed::Box;

use super::books::ledger::Ledger;
use super::queue::loans::Loans;
use super::queue::notsent_lowat::Refill;
use super::size::autocork::Stream;
use crate::words::Instant;

/// The writing side of one connection.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) ledger: Ledger,
    /// How promptly the application writes.
    pub(super) refill: Refill,
    /// Whether it writes small pieces in a row.
    pub(super) stream: Stream,
    /// Bytes per second, by the latest sample of the delivery rate.
    pub(super) delivery_rate: u64,
    /// Memory that the application lent; most connections have none.
    pub(super) loans: Option<Box<Loans>>,
}

impl Writer {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            ledger: Ledger::new(now),
            refill: Refill::new(),
            stream: Stream::new(),
            delivery_rate: 0,
            loans: None,
        }
    }

    /// A sample of the delivery rate, in bytes per second. One limited by the application counts only if it
    /// is higher: the path can do at least that.
    pub(super) const fn note_delivery_rate(&mut self, rate: u64, app_limited: bool) {
        if !app_limited || rate > self.delivery_rate {
            self.delivery_rate = rate;
            self.ledger.app_limited = app_limited;
        }
    }
}
