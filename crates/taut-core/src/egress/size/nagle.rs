//! Nagle with Minshall's refinement, TCP_NODELAY, TCP_CORK and MSG_MORE: when a partial segment waits.
//! RFC 9293 §3.7.4, draft-minshall-nagle-01, Linux 6.12 (`tcp_nagle_test`); called by `plan` for the last
//! segment only.
//!
//! **Problem.** One-byte writes become packets of forty-one bytes, and a slow link is full of headers (1984).
//!
//! **Rule.** A piece smaller than a segment waits while an earlier *small* packet is unacknowledged. Nagle's
//! own rule, "while anything is unacknowledged", made a write of two and a half segments wait for the delayed
//! ACK of its first two: 40 to 200 ms for nothing. Full segments in flight therefore do not count (Minshall).
//! A FIN never waits, and of the written data only the very end does.
//!
//! | option | effect on a partial segment |
//! |---|---|
//! | TCP_NODELAY | does not wait for an ACK. Setting it flushes the queue, once, even if corked |
//! | TCP_CORK | always waits, until cork is cleared, the segment is full, or the ceiling; it beats TCP_NODELAY for later data |
//! | MSG_MORE | as cork, for this write's attempt only: the next ACK or completion may flush it by the ordinary rules |
//!
//! **Ceiling.** With data in flight, an ACK will ask again. With nothing in flight no ACK will come, so the
//! withheld data leaves with PSH when the probe timer fires: after the retransmission timeout, at least
//! 200 ms.
//!
//! **History.** Nagle and delayed ACKs were invented in the same years by people who did not know of each
//! other; most programs that set TCP_NODELAY do so because the two together stall, which Minshall's rule
//! already prevents for writes of more than a segment. Neither of them sees the device: a program with
//! TCP_NODELAY and small writes is helped by [`autocork`](super::autocork), not here.

use crate::egress::blocked::Blocked;
use crate::words::seq;

/// The socket's switches and the memory of the last small packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nagle {
    /// TCP_NODELAY.
    off: bool,
    /// TCP_CORK.
    cork: bool,
    /// Sends the queued data, once: NODELAY was set, or the ceiling of cork was reached. Lasts until data
    /// starts a new buffer.
    push: bool,
    /// MSG_MORE on the latest write: cork, until the gates have been asked once.
    more: bool,
    /// End of the last packet sent whose length was no multiple of the segment size, as it goes on the wire.
    /// After 2 GB without such a packet it may be mistaken for one in flight, as in Linux, and a piece then
    /// waits for an ACK.
    small_end: u32,
}

impl Nagle {
    /// For a connection whose first data byte has position `first`.
    pub(crate) const fn new(first: u64) -> Self {
        Self { off: false, cork: false, push: false, more: false, small_end: seq::wire(first) }
    }

    /// TCP_NODELAY of a connection that has written nothing.
    pub(crate) const fn begin_with_nodelay(&mut self, off: bool) {
        self.off = off;
    }

    /// TCP_NODELAY. Returns whether the queued data may leave now.
    pub(crate) const fn set_nodelay(&mut self, on: bool) -> bool {
        self.off = on;
        self.push |= on;
        on
    }

    /// TCP_CORK. Returns whether the queued data may leave now.
    pub(crate) const fn set_cork(&mut self, on: bool) -> bool {
        self.cork = on;
        self.push |= !on && self.off;
        !on
    }

    /// Data starts a new buffer.
    pub(crate) const fn on_new_buffer(&mut self) {
        self.push = false;
    }

    /// A write ended. `more`: with MSG_MORE, and all of it was taken.
    pub(crate) const fn on_write_end(&mut self, more: bool) {
        self.more = more;
    }

    /// Whether the latest write said that more would follow.
    pub(crate) const fn expects_more(&self) -> bool {
        self.more
    }

    /// MSG_MORE holds no longer: the gates were asked, or a completion asks them.
    pub(crate) const fn forget_more(&mut self) {
        self.more = false;
    }

    /// The ceiling was reached: the queued data leaves.
    pub(crate) const fn release(&mut self) {
        self.push = true;
    }

    /// A packet of `len` payload bytes ending at `end` was sent.
    pub(crate) fn note_sent(&mut self, len: u32, mss: u32, end: u64) {
        if mss != 0 && !len.is_multiple_of(mss) {
            self.small_end = seq::wire(end);
        }
    }

    /// Whether a small packet is still unacknowledged.
    const fn small_in_flight(&self, una: u64, nxt: u64) -> bool {
        let small_end = seq::expand(nxt, self.small_end);
        una < small_end && small_end <= nxt
    }

    /// Whether a piece smaller than a segment, at the tail of the queue, must wait.
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
        let mut nagle = Nagle::new(0);
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
            (Nagle { cork: true, ..Nagle::new(0) }, 10, 10, Err(Blocked::Cork)),
            (Nagle { cork: true, off: true, ..Nagle::new(0) }, 10, 10, Err(Blocked::Cork)),
            (Nagle { cork: true, push: true, ..Nagle::new(0) }, 10, 10, Ok(())),
            (Nagle { more: true, ..Nagle::new(0) }, 10, 10, Err(Blocked::Cork)),
        ];
        for (nagle, una, nxt, expected) in cases {
            assert_eq!(nagle.gate(una, nxt), expected, "{nagle:?} una {una} nxt {nxt}");
        }
    }

    #[test]
    fn before_any_small_packet_nothing_waits_wherever_the_stream_begins() {
        for first in [seq::FIRST + 1, seq::FIRST + 0xffff_ffff, seq::FIRST + (1 << 32)] {
            let nagle = Nagle::new(first);
            assert_eq!(nagle.gate(first, first + 1_448), Ok(()));
            assert_eq!(nagle.gate(first, first + 1_000_000), Ok(()), "also across the wrap");
            let mut sent = nagle;
            sent.note_sent(10, 1_448, first + 10);
            assert_eq!(sent.gate(first, first + 10), Err(Blocked::Nagle));
            assert_eq!(sent.gate(first + 10, first + 1_458), Ok(()));
        }
    }
}
