//! The size of the send buffer: chosen by the user, or following the congestion window.
//! Linux 6.12 (`tcp_sndbuf_expand`); called at establishment and after ACKs while the application waits for
//! room.
//!
//! **Problem.** Written bytes are kept until they are acknowledged, so a buffer smaller than a window of the
//! path (1 Gbit/s at 100 ms is 12.5 MB) caps the rate, however much the network would carry; a buffer of that
//! size for every connection is memory that most never use.
//!
//! **Rule.** Room for two congestion windows, one in flight and one ready to go, counted in segments as they
//! lie in memory, growing with the window up to `tcp_wmem`'s maximum and never shrinking. Beyond Linux's
//! maximum of 4 MiB it grows only to twice what the path holds ([`tuned_max`]): in a slow start that nothing
//! ends, the window follows the bytes in flight, these follow the buffer, and the buffer would follow the
//! window. It grows only for a connection whose application was refused while cwnd had room: only then is the
//! buffer the limit. What the peer has selectively acknowledged does not count as the path's: behind a hole
//! that takes several round trips to repair, as with 5 % of loss, it would fill the buffer while the path
//! runs empty. `SO_SNDBUF` is doubled, since the limit counts bookkeeping too, bounded by `wmem_max`, and
//! switches all this off for the socket.
//!
//! Beyond Linux's maximum, no buffer is larger than half of what is left of the stack's memory before that is
//! scarce. So n such connections leave 2/(n + 2) of it to all others, whatever their peers acknowledge. A
//! sender cannot see what a path really delivers: with optimistic ACKs, a peer may claim any rate.
//!
//! While the stack's memory is scarce (`tcp_mem`), no buffer grows, and one whose write was refused has the
//! least size until that is over (Linux halves it, `sk_stream_moderate_sndbuf`), so that its application
//! waits.
//!
//! *Unsent* data should be bounded separately, by [`notsent_lowat`](super::notsent_lowat).

use crate::buffers::{BufferTuning, Spare, tuned_max};
use crate::words::Duration;

/// Bytes that Linux adds to every segment for buffer bookkeeping, before rounding up to a power of two.
const HEADER_RESERVE: u64 = 320;
/// Per-segment structure, in addition to the rounded data.
const SEGMENT_OVERHEAD: u64 = 256;
/// Up to here, the buffer follows the window whatever the path holds. Linux: `tcp_wmem`'s maximum.
pub(crate) const FOLLOWS_MAX: u32 = 4 << 20;
/// The smallest send buffer. Linux: `SOCK_MIN_SNDBUF`.
pub(crate) const SNDBUF_MIN: u32 = 4_608;

/// The path, as far as it is known. The amount of data that it holds bounds the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    pub(crate) tuning: BufferTuning,
    /// Bytes per second, by the last sample; 0 while there is none.
    pub(crate) delivery_rate: u64,
    pub(crate) least_rtt: Option<Duration>,
    /// The window doubles every round trip, so the next one delivers twice as much.
    pub(crate) is_doubling: bool,
    /// Segments that the peer has behind a hole: they have left the path, and must be kept.
    pub(crate) sacked: u32,
}

impl Path {
    /// The most that the buffer may follow the window, when `mss` bytes take `segment` bytes of it.
    fn sndbuf_max(&self, mss: u64, segment: u64) -> u64 {
        let memory = self.delivery_rate.saturating_mul(segment) / mss;
        let times = if self.is_doubling { 4 } else { 2 };
        let in_path =
            tuned_max(self.tuning, FOLLOWS_MAX, times, memory, Duration::from_secs(1), self.least_rtt);
        in_path.saturating_add(u64::from(self.sacked) * segment)
    }
}

/// The limit of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBuffer {
    /// Bytes, overhead included.
    pub(crate) limit: u32,
    /// Set by the user: autotuning leaves it alone.
    pub(crate) locked: bool,
    /// A write or a poll found no room; the application will be woken when there is.
    pub(crate) nospace: bool,
    /// The stack's memory did not allow a write: until that is over, the buffer has the least size.
    pub(crate) squeezed: bool,
}

impl SendBuffer {
    pub(crate) const fn new(initial: u32) -> Self {
        Self { limit: initial, locked: false, nospace: false, squeezed: false }
    }

    /// The limit in force, when so much of the stack's memory is left.
    pub(crate) fn limit_now(&self, spare: Spare) -> u32 {
        if spare.pressed && self.squeezed {
            return self.limit.min(SNDBUF_MIN);
        }
        if self.locked || self.limit <= FOLLOWS_MAX {
            return self.limit;
        }
        self.limit.min(u32::try_from(spare.bytes / 2).unwrap_or(u32::MAX).max(FOLLOWS_MAX))
    }

    /// SO_SNDBUF: doubled, because the limit counts bookkeeping too, and locked.
    pub(crate) fn set(&mut self, bytes: u32, wmem_max: u32) {
        self.limit = bytes.min(wmem_max).saturating_mul(2).max(SNDBUF_MIN);
        self.locked = true;
    }

    /// Room for `factor` windows, never shrinking; not more than `path` allows. `factor` is 2: one window in
    /// flight, one ready to go.
    pub(crate) fn expand(
        &mut self,
        mss: u32,
        cwnd: u32,
        reordering: u32,
        factor: u64,
        path: &Path,
        wmem_max: u32,
    ) {
        if self.locked {
            return;
        }
        let segment = (u64::from(mss) + HEADER_RESERVE).next_power_of_two() + SEGMENT_OVERHEAD;
        let segments = u64::from(cwnd.max(reordering + 1).max(10));
        let most = path.sndbuf_max(u64::from(mss.max(1)), segment).min(u64::from(wmem_max));
        let wanted = (factor * segments * segment).min(most) as u32;
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
        buffer.expand(1_460, 10, 3, 2, &Path::default(), 4 << 20);
        assert_eq!(buffer.limit, 46_080);
        buffer.expand(1_460, 2, 3, 2, &Path::default(), 4 << 20);
        assert_eq!(buffer.limit, 46_080, "never shrinks");
        buffer.expand(1_460, 1_000_000, 3, 2, &Path::default(), 4 << 20);
        assert_eq!(buffer.limit, 4 << 20);
    }

    #[test]
    fn beyond_linux_maximum_it_follows_what_the_path_holds() {
        let limit = |rate, rtt_ms, is_doubling| {
            let least_rtt = Some(Duration::from_millis(rtt_ms));
            let path = Path { delivery_rate: rate, least_rtt, is_doubling, ..Path::default() };
            let mut buffer = SendBuffer::new(16_384);
            buffer.expand(1_448, 100_000, 3, 2, &path, 128 << 20);
            buffer.limit
        };
        // A segment of 1448 bytes takes 2304: pow2ceil(1448 + 320) + 256.
        assert_eq!(limit(12_500_000, 20, false), 4 << 20);
        let held = 125_000_000_u64 * 2_304 / 1_448 * 3 / 10;
        assert_eq!(u64::from(limit(125_000_000, 300, false)), 2 * held);
        assert_eq!(limit(125_000_000, 300, true), 128 << 20, "four times, but for the maximum");
        // 100 ms of 50 MB/s, in memory.
        assert_eq!(
            u64::from(limit(50_000_000, 100, true)),
            4 * (50_000_000 * 2_304 / 1_448 / 10),
            "four times"
        );
    }

    #[test]
    fn a_user_setting_is_doubled_bounded_and_locked() {
        let mut buffer = SendBuffer::new(16_384);
        buffer.set(1, 212_992);
        assert_eq!(buffer.limit, SNDBUF_MIN);
        buffer.set(1_000_000, 212_992);
        assert_eq!(buffer.limit, 425_984);
        buffer.expand(1_460, 1_000_000, 3, 2, &Path::default(), 4 << 20);
        assert_eq!(buffer.limit, 425_984);
    }
}
