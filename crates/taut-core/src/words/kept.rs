//! A packet that outlives the call that handed it out: in a queue, in a device's ring, on another thread.
//! Ours; made by whatever keeps packets, a device or a queue in front of one.

use alloc::vec::Vec;

use super::{Gather, Instant, Offload, TxPacket};

/// What a [`TxPacket`] was, for as long as it is needed. Its memory serves one packet after another.
#[derive(Clone, Debug, Default)]
pub struct KeptPacket {
    header: Vec<u8>,
    payload: Vec<u8>,
    offload: Offload,
    departure: Instant,
}

impl TxPacket<'_> {
    /// The packet, for longer than this call.
    #[must_use]
    pub fn keep(&self) -> KeptPacket {
        let mut kept = KeptPacket::default();
        self.keep_in(&mut kept);
        kept
    }

    /// [`keep`](Self::keep), in the memory of a packet that is no longer needed.
    pub fn keep_in(&self, kept: &mut KeptPacket) {
        kept.header.clear();
        kept.header.extend_from_slice(self.header);
        kept.payload.clear();
        self.payload.slices().iter().for_each(|slice| kept.payload.extend_from_slice(slice));
        (kept.offload, kept.departure) = (self.offload, self.departure);
    }
}

impl KeptPacket {
    /// The packet, to be handed on.
    #[must_use]
    pub fn packet(&self) -> TxPacket<'_> {
        TxPacket {
            header: &self.header,
            payload: Gather::from(self.payload.as_slice()),
            offload: self.offload,
            departure: self.departure,
        }
    }

    /// Forgets the packet; what memory it had of its own serves the next.
    pub fn clear(&mut self) {
        self.header.clear();
        self.payload.clear();
    }

    /// Its headers, which may be changed.
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.header
    }
}
