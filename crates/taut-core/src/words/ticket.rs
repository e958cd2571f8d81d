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

/// What became of a packet that was handed out, said with its ticket.
///
/// Only the packet that a connection handed out last can count as not sent. A device says [`Refused`](Self::Refused) or
/// [`Dropped`](Self::Dropped) before it asks for another one; said later, they mean [`Left`](Self::Left).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The bytes have left the host, or were lost below after the device had taken them: for TCP that is the same, and
    /// recovery answers for a loss.
    Left,
    /// The device had no room. The packet counts as not sent and is handed out again by a later
    /// [`poll_transmit`](crate::Stack::poll_transmit); ask when there is room. An answer to a stranger (RST, echo) is
    /// not kept: it is lost as in the network.
    Refused,
    /// A queue of this host dropped it. The packet counts as not sent, the connection slows down as for a congestion
    /// mark, and the same bytes are handed out again with its next ACK, completion or timeout. Linux: `NET_XMIT_DROP`
    /// from a queue discipline.
    Dropped,
}

/// The receipt for bytes below TCP: TCP Small Queues in one value.
///
/// Charged when a packet is handed out, released by [`handle_tx`](crate::Stack::handle_tx). It cannot be copied, so
/// bytes are neither released twice nor, if the driver keeps `must_use` in mind, forgotten.
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
    /// A ticket that charges nobody, for a packet that no connection waits for: an answer to a stranger, a copy that
    /// a queue made, a packet whose own ticket came back earlier.
    pub const fn blank() -> Self {
        Self {
            conn: None,
            truesize: 0,
            start: 0,
            end: 0,
            segs: 1,
            handed: Instant::ZERO,
            prior_departure: Instant::ZERO,
            output: Output::Ack,
        }
    }

    /// Whether it charges nobody: what became of its packet need not be told.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        self.conn.is_none()
    }

    /// Bytes charged below TCP for this packet, overhead included.
    #[must_use]
    pub const fn truesize(&self) -> u32 {
        self.truesize
    }

    /// The connection whose data the packet carries; `None` for an ACK, a segment of a handshake and a
    /// [blank](Self::blank) ticket. Name it to
    /// [`handle_tx_congestion`](crate::Stack::handle_tx_congestion).
    #[must_use]
    pub const fn data_of(&self) -> Option<ConnId> {
        match self.output {
            Output::Data(_) => self.conn,
            _ => None,
        }
    }
}
