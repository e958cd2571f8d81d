//! The receipt for bytes below TCP, and the facts about the packet that it carries. Linux: the truesize of an
//! `sk_buff` and its destructor (TCP Small Queues, 2012). Made when a packet is handed out; the device gives
//! it back.

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

/// The kind of a segment, as needed when its ticket comes back: the device may have refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Reset,
    Syn,
    Data(SendKind),
    /// Asks the peer for an ACK: a probe of a closed window, or a keepalive.
    WindowProbe,
    Ack,
    /// Of a datagram socket: `start` numbers the packets of all of them.
    Datagram,
}

/// The fate of a packet that was handed out, reported with its ticket.
///
/// Only the packet that a connection handed out last can count as not sent. So report
/// [`Refused`](Self::Refused) or [`Dropped`](Self::Dropped) before asking for another packet; reported later,
/// they are treated as [`Left`](Self::Left).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The bytes have left the host, or were lost after the device had taken them. For TCP that is the same:
    /// recovery repairs a loss.
    Left,
    /// The device had no room. The packet counts as not sent and is handed out again by a later
    /// [`poll_transmit`](crate::Stack::poll_transmit); call that when there is room again. A RST that belongs
    /// to no connection is not kept: it is lost, as it might be in the network.
    Refused,
    /// A queue of this host dropped it. The packet counts as not sent, the connection slows down as for a
    /// congestion mark, and the same bytes are handed out again with its next ACK, completion or timeout.
    /// Linux: `NET_XMIT_DROP` from a queue discipline.
    Dropped,
}

/// The receipt for bytes below TCP: TCP Small Queues in one value.
///
/// Charged when a packet is handed out, released by [`handle_tx`](crate::Stack::handle_tx). It cannot be
/// copied, so bytes cannot be released twice; `must_use` warns a driver that forgets to release them.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lost ticket leaves its bytes charged to the connection for ever"]
pub struct TxTicket {
    /// The connection charged, or the datagram socket; `None` for packets that belong to no connection (RST
    /// to an unknown sender, echo reply).
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
    /// The connection's earliest departure before this packet, in case the device refuses it.
    pub(crate) prior_departure: Instant,
    /// The kind of packet, in case the device refuses it.
    pub(crate) output: Output,
    /// Data segments that the connection had sent with this one, wrapping: whether it is still the last one.
    pub(crate) serial: u16,
    /// It repeats data after a retransmission timeout, and was counted so.
    pub(crate) in_loss: bool,
    /// Its completion is measured.
    pub(crate) metered: bool,
}

impl TxTicket {
    /// A ticket that charges no connection, for a packet that no connection waits for: a reply outside any
    /// connection, a copy that a queue made, a packet whose own ticket came back earlier.
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
            serial: 0,
            in_loss: false,
            metered: false,
        }
    }

    /// Whether it charges no connection and no socket: the fate of its packet need not be reported.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        self.conn.is_none()
    }

    /// Bytes charged below TCP for this packet, overhead included.
    #[must_use]
    pub const fn truesize(&self) -> u32 {
        self.truesize
    }

    /// When the packet was handed out.
    #[must_use]
    pub const fn handed(&self) -> Instant {
        self.handed
    }

    /// The connection that it charges; `None` if that is a datagram socket, or nobody.
    #[must_use]
    pub const fn conn(&self) -> Option<ConnId> {
        match self.output {
            Output::Datagram => None,
            _ => self.conn,
        }
    }

    /// All that the ticket says, in one number: of two tickets with the same number, it does not matter which
    /// is given back. A recording names tickets by it.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        // Odd constants of SplitMix64: every bit of a word reaches the upper half, which is shifted down for
        // the next one.
        let mix = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (mixed >> 29)
        };
        let kind = match self.output {
            Output::Reset => 0,
            Output::Syn => 1,
            Output::Data(SendKind::New) => 2,
            Output::Data(SendKind::Retransmit) => 3,
            Output::Data(SendKind::TailProbe) => 4,
            Output::WindowProbe => 5,
            Output::Ack => 6,
            Output::Datagram => 7,
        };
        let small =
            u64::from(self.segs) | u64::from(self.serial) << 16 | kind << 32 | u64::from(self.in_loss) << 40;
        [
            self.conn.map_or(u64::MAX, ConnId::to_bits),
            u64::from(self.truesize),
            self.start,
            self.end,
            small,
            self.handed.as_nanos(),
            self.prior_departure.as_nanos(),
        ]
        .into_iter()
        .fold(0x9e37_79b9_7f4a_7c15, mix)
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
