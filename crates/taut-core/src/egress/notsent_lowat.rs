//! TCP_NOTSENT_LOWAT with hysteresis: how much unsent data a connection may hold, and when to ask for more.
//! Linux 3.12, wake-up below half since 5.0; called by writes, by `writable` and after every transmission and ACK.
//!
//! **Problem.** A send buffer is sized for the network (bytes in flight until acknowledged); an application that fills
//! it has decided megabytes too early what to send. A plain limit wakes it for every ACK. **Rule.** A write may start a
//! new buffer while fewer than X bytes are unsent; writability is told only below X/2, so a wake-up is worth X/2 bytes.

/// Bookkeeping bytes of the send side at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes in the write queue and in flight, overhead included.
    pub(crate) queued: u32,
    /// Limit of `queued`.
    pub(crate) sndbuf: u32,
    /// Bytes written and never sent.
    pub(crate) unsent: u64,
    /// TCP_NOTSENT_LOWAT, or the stack's.
    pub(crate) lowat: u32,
}

impl Room {
    /// Whether a write may start another buffer.
    pub(crate) const fn may_start_buffer(self) -> bool {
        self.queued < self.sndbuf && self.unsent < self.lowat as u64
    }

    /// What poll(2) and epoll report: a third of the buffer is free, and less than half of the low-water mark unsent.
    pub(crate) const fn is_writable(self) -> bool {
        self.queued < self.sndbuf
            && self.sndbuf - self.queued >= self.queued / 2
            && 2 * self.unsent < self.lowat as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSET: u32 = u32::MAX;

    #[test]
    fn a_third_of_the_buffer_must_be_free() {
        let room = |queued| Room { queued, sndbuf: 87_040, unsent: 0, lowat: UNSET };
        assert!(room(58_027).is_writable());
        assert!(!room(58_028).is_writable());
        assert!(room(87_039).may_start_buffer());
        assert!(!room(87_040).may_start_buffer());
    }

    #[test]
    fn writes_fill_to_the_mark_and_wake_below_half() {
        let room = |unsent| Room { queued: 0, sndbuf: 1 << 20, unsent, lowat: 16_384 };
        assert!(room(16_383).may_start_buffer());
        assert!(!room(16_384).may_start_buffer());
        assert!(!room(8_192).is_writable());
        assert!(room(8_191).is_writable());
    }
}
