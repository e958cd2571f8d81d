//! The size of the send buffer: chosen by the user, or following the congestion window.
//! Linux 6.12 (`tcp_sndbuf_expand`); called at establishment and after ACKs while the application waits for
//! room.
//!
//! **Problem.** Written bytes are kept until they are acknowledged, so a buffer smaller than a window of the
//! path (1 Gbit/s at 100 ms is 12.5 MB) caps the rate, however much the network would carry; a buffer of that
//! size for every connection is memory that most never use.
//!
//! **Rule.** Room for two congestion windows, one in flight and one ready to go, counted in segments as they
//! lie in memory, growing with the window up to `tcp_wmem`'s maximum and never shrinking. It grows only for a
//! connection whose application was refused while cwnd had room: only then is the buffer the limit.
//! `SO_SNDBUF` is doubled, since the limit counts bookkeeping too, bounded by `wmem_max`, and switches all
//! this off for the socket.
//!
//! *Unsent* data should be bounded separately, by [`notsent_lowat`](super::notsent_lowat).

/// Bytes that Linux adds to every segment for buffer bookkeeping, before rounding up to a power of two.
const HEADER_RESERVE: u64 = 320;
/// Per-segment structure, in addition to the rounded data.
const SEGMENT_OVERHEAD: u64 = 256;
/// The smallest send buffer. Linux: `SOCK_MIN_SNDBUF`.
pub(crate) const SNDBUF_MIN: u32 = 4_608;

/// The limit of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBuffer {
    /// Bytes, overhead included.
    pub(crate) limit: u32,
    /// Set by the user: autotuning leaves it alone.
    pub(crate) locked: bool,
    /// A write or a poll found no room; the application will be woken when there is.
    pub(crate) nospace: bool,
}

impl SendBuffer {
    pub(crate) const fn new(initial: u32) -> Self {
        Self { limit: initial, locked: false, nospace: false }
    }

    /// SO_SNDBUF: doubled, because the limit counts bookkeeping too, and locked.
    pub(crate) fn set(&mut self, bytes: u32, wmem_max: u32) {
        self.limit = bytes.min(wmem_max).saturating_mul(2).max(SNDBUF_MIN);
        self.locked = true;
    }

    /// Room for `factor` windows, never shrinking. `factor` is 2: one window in flight, one ready to go.
    pub(crate) fn expand(&mut self, mss: u32, cwnd: u32, reordering: u32, factor: u64, wmem_max: u32) {
        if self.locked {
            return;
        }
        let segment = (u64::from(mss) + HEADER_RESERVE).next_power_of_two() + SEGMENT_OVERHEAD;
        let segments = u64::from(cwnd.max(reordering + 1).max(10));
        let wanted = (factor * segments * segment).min(u64::from(wmem_max)) as u32;
        self.limit = self.limit.max(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_segments_at_establishment() {
        // 2 · 10 · (pow2ceil(1460 + 320) + 256) = 46,080.
        let mut buffer = SendBuffer::new(16_384);
        buffer.expand(1_460, 10, 3, 2, 4 << 20);
        assert_eq!(buffer.limit, 46_080);
        buffer.expand(1_460, 2, 3, 2, 4 << 20);
        assert_eq!(buffer.limit, 46_080, "never shrinks");
        buffer.expand(1_460, 1_000_000, 3, 2, 4 << 20);
        assert_eq!(buffer.limit, 4 << 20);
    }

    #[test]
    fn a_user_setting_is_doubled_bounded_and_locked() {
        let mut buffer = SendBuffer::new(16_384);
        buffer.set(1, 212_992);
        assert_eq!(buffer.limit, SNDBUF_MIN);
        buffer.set(1_000_000, 212_992);
        assert_eq!(buffer.limit, 425_984);
        buffer.expand(1_460, 1_000_000, 3, 2, 4 << 20);
        assert_eq!(buffer.limit, 425_984);
    }
}
