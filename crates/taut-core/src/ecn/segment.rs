//! The properties of arriving and leaving segments on which ECN depends, and ECN's decisions about them.
//! RFC 3168 §6.1, RFC 9768 §3.2.
//! `conn/arrival.rs` and `conn/output.rs` fill these in; the files of this folder read them.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{AccEcn, Ecn as Mark, TcpOptions, Timestamps};

/// An acceptable segment, or several in one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentIn {
    pub(crate) flags: TcpFlags,
    /// ECN field of the packet, or of every packet that was joined into it.
    pub(crate) mark: Mark,
    pub(crate) segs: u32,
    /// Payload.
    pub(crate) bytes: u32,
    /// There is payload, and the application takes it.
    pub(crate) taken: bool,
    /// RCV.NXT before it arrived, and whether data up to there is not acknowledged yet.
    pub(crate) rcv_nxt: u64,
    pub(crate) owed: bool,
    /// The number of full-sized segments of ours that it acknowledges, rounded up; only for the first segment
    /// after the handshake, when [`Ecn::awaits_first`](super::Ecn::awaits_first) is true.
    pub(crate) first_acks: Option<u64>,
}

/// How soon marks must be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// With the next ACK, whenever that is due.
    #[default]
    None,
    /// Immediately, even without data to acknowledge.
    Ack,
    /// Together with this data, which is acknowledged immediately.
    Data,
    /// The same, and the ACKs of the next few segments are not delayed either.
    QuickData,
}

/// The kind of a segment of ours; it decides how the segment is marked and whether it carries the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The SYN-ACK, first or retransmitted.
    SynAck { again: bool },
    /// A pure ACK while only a SYN has arrived from the peer.
    AckOfSyn,
    /// Data that was never sent before. `reduced`: the first after the window was reduced.
    NewData { reduced: bool },
    /// Data that was sent before.
    OldData,
    /// FIN without data.
    Fin,
    /// Any other pure ACK.
    Ack,
}

impl Carrier {
    /// Whether it takes up sequence numbers after the handshake's.
    pub(super) const fn is_data(self) -> bool {
        matches!(self, Self::NewData { .. } | Self::OldData | Self::Fin)
    }
}

/// The options that come before ours in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) timestamps: bool,
    pub(crate) sack_blocks: usize,
}

impl Beside {
    /// Bytes that they leave for ours. Only the first two SACK blocks take precedence over it (RFC 9768
    /// §3.2.3.3).
    pub(super) fn room(self) -> usize {
        let timestamps = if self.timestamps { Timestamps::LEN } else { 0 };
        let sack = match self.sack_blocks.min(2) {
            0 => 0,
            blocks => 4 + 8 * blocks,
        };
        TcpOptions::MAX_LEN - timestamps - sack
    }
}

/// What ECN puts on a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Those of AE, CWR and ECE that are set.
    pub(crate) flags: TcpFlags,
    pub(crate) option: Option<AccEcn>,
    /// ECN field of the packet.
    pub(crate) mark: Mark,
}

impl Stamp {
    /// The same as without ECN.
    pub(crate) const NONE: Self = Self { flags: TcpFlags::NONE, option: None, mark: Mark::NotEct };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accecn_20_the_option_fits_beside_one_sack_block_and_timestamps() {
        // RFC 9768 §3.2.3.3: 40 bytes, of which timestamps take 12 and n blocks 4 + 8n; blocks beyond the
        // second make room.
        let room = |timestamps, sack_blocks| Beside { timestamps, sack_blocks }.room();
        assert_eq!([room(false, 0), room(true, 0), room(true, 1), room(true, 2)], [40, 28, 16, 8]);
        assert_eq!(room(true, 4), room(true, 2));
    }
}
