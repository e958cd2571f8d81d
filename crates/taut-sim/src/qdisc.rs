//! Queue disciplines by name, as a plan of a network has them.

use taut_link::{BANDS, Fifo, PfifoFast, Qdisc};

use crate::packet::PacketId;

/// A queue discipline and its parameters.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum QdiscSpec {
    /// `pfifo_fast`: three bands by priority, each of so many packets.
    PfifoFast {
        /// Packets that may wait in a band.
        packets: usize,
    },
    /// `pfifo`: so many packets, a super-packet being one.
    Pfifo {
        /// Packets that may wait.
        packets: usize,
    },
    /// `bfifo`: so many bytes.
    Bfifo {
        /// Bytes that may wait.
        bytes: u64,
    },
}

/// How much may wait at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueLimit {
    Packets(usize),
    Bytes(u64),
}

impl QdiscSpec {
    pub(crate) fn build(&self, _seed: u64) -> Box<dyn Qdisc<PacketId>> {
        match *self {
            Self::PfifoFast { packets } => Box::new(PfifoFast::with_limit(packets)),
            Self::Pfifo { packets } => Box::new(Fifo::packets(packets)),
            Self::Bfifo { bytes } => Box::new(Fifo::bytes(bytes)),
        }
    }

    /// What never waits more than.
    pub(crate) fn limit(&self) -> Option<QueueLimit> {
        match *self {
            Self::PfifoFast { packets } => Some(QueueLimit::Packets(BANDS * packets)),
            Self::Pfifo { packets } => Some(QueueLimit::Packets(packets)),
            Self::Bfifo { bytes } => Some(QueueLimit::Bytes(bytes)),
        }
    }

    /// Whether it honours departure times.
    pub(crate) fn paces(&self) -> bool {
        match self {
            Self::PfifoFast { .. } | Self::Pfifo { .. } | Self::Bfifo { .. } => false,
        }
    }
}
