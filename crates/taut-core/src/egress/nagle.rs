//! Nagle with Minshall's refinement, TCP_NODELAY and TCP_CORK: when a partial segment waits.
//! RFC 9293 §3.7.4, draft-minshall-nagle-01, Linux 6.12; called by [`plan`](super::plan()) for the last segment only.
//!
//! **Problem.** One-byte writes become forty-one-byte packets. **Rule.** A piece smaller than a segment waits while an
//! earlier *small* packet is unacknowledged; full segments in flight do not hold it back, so a write of two and a half
//! segments never waits for a delayed ACK. Cork withholds a partial segment always; a corked tail with nothing in
//! flight leaves when the probe timer fires (at most 200 ms or the RTO, whichever is later).

use super::blocked::Blocked;

/// The socket's switches and the memory of the last small packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nagle {
    /// TCP_NODELAY.
    pub(crate) off: bool,
    /// TCP_CORK.
    pub(crate) cork: bool,
    /// Send what is queued, once: NODELAY was set, or the ceiling of cork was reached. Lasts until data starts a
    /// new buffer.
    pub(crate) push: bool,
    /// MSG_MORE on the latest write: cork for this push only.
    pub(crate) more: bool,
    /// End of the last packet sent whose length was no multiple of the segment size.
    small_end: u64,
}

impl Nagle {
    /// A packet of `len` payload bytes ending at `end` was sent.
    pub(crate) fn note_sent(&mut self, len: u32, mss: u32, end: u64) {
        if mss != 0 && !len.is_multiple_of(mss) {
            self.small_end = end;
        }
    }

    /// Whether a small packet is still unacknowledged.
    const fn small_in_flight(&self, una: u64, nxt: u64) -> bool {
        una < self.small_end && self.small_end <= nxt
    }

    /// Whether a piece smaller than a segment, at the tail of the queue, is to wait.
    pub(crate) fn gate(&self, una: u64, nxt: u64) -> Result<(), Blocked> {
        if self.push {
            return Ok(());
        }
        if self.cork || self.more {
            return Err(Blocked::Cork);
        }
        if !self.off && una < nxt && self.small_in_flight(una, nxt) {
            return Err(Blocked::Nagle);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(len: u32, end: u64) -> Nagle {
        let mut nagle = Nagle::default();
        nagle.note_sent(len, 1_448, end);
        nagle
    }

    #[test]
    fn waits_only_for_an_earlier_small_packet() {
        // (nagle, una, nxt, expected)
        let cases = [
            (sent(1_448, 1_448), 0, 1_448, Ok(())),
            (sent(10, 10), 0, 10, Err(Blocked::Nagle)),
            (sent(10, 10), 10, 10, Ok(())),
            (sent(10, 10), 10, 1_458, Ok(())),
            (Nagle { off: true, ..sent(10, 10) }, 0, 10, Ok(())),
            (Nagle { cork: true, ..Nagle::default() }, 10, 10, Err(Blocked::Cork)),
            (Nagle { cork: true, off: true, ..Nagle::default() }, 10, 10, Err(Blocked::Cork)),
            (Nagle { cork: true, push: true, ..Nagle::default() }, 10, 10, Ok(())),
            (Nagle { more: true, ..Nagle::default() }, 10, 10, Err(Blocked::Cork)),
        ];
        for (nagle, una, nxt, expected) in cases {
            assert_eq!(nagle.gate(una, nxt), expected, "{nagle:?} una {una} nxt {nxt}");
        }
    }
}
