//! The receipt for bytes below TCP, and what it remembers of the packet.
//! Linux: the truesize of an `sk_buff` and its destructor (TCP Small Queues, 2012). Made when a packet is handed out; the
//! device gives it back.

use super::{ConnId, Instant};

/// Why a packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendKind {
    /// Never sent before.
    New,
    /// Found lost.
    Retransmit,
    /// A tail loss probe that repeats data.
    TailProbe,
}

/// What a segment is, as far as its return matters: the device may refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Reset,
    Syn,
    Data(SendKind),
    /// Asks for an ACK: of a closed window, or a keepalive.
    WindowProbe,
    Ack,
}

/// The receipt for bytes below TCP: TCP Small Queues in one value.
///
/// Charged when a packet is handed out, released by
/// [`handle_tx_completion`](crate::Stack::handle_tx_completion). It cannot be copied, so bytes are neither
/// released twice nor, if the driver keeps `must_use` in mind, forgotten.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lost ticket leaves its bytes charged to the connection for ever"]
pub struct TxTicket {
    /// The connection charged; `None` for packets that belong to none (a RST to a stranger, an echo reply).
    pub(crate) conn: Option<ConnId>,
    /// Bytes charged: Linux's truesize.
    pub(crate) truesize: u32,
    /// Sequence space carried; empty for pure ACKs.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Segments on the wire.
    pub(crate) segs: u16,
    /// When it was handed out.
    pub(crate) handed: Instant,
    /// Earliest departure of the connection before this packet, in case the device refuses it.
    pub(crate) prior_departure: Instant,
    /// What it was, in case the device refuses it.
    pub(crate) output: Output,
}

impl TxTicket {
    /// Bytes charged below TCP for this packet, overhead included.
    #[must_use]
    pub const fn truesize(&self) -> u32 {
        self.truesize
    }
}
