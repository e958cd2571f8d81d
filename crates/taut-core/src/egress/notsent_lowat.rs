//! TCP_NOTSENT_LOWAT with hysteresis: how much unsent data a connection may hold, and when to ask for more.
//! Linux 3.12 (c9bee3b7fdec), wake-up below half since 5.0 (a74f0fa082b7), space checked after transmissions
//! since 5.18 (4bfe744ff164); called by writes, by `writable` and after every transmission and ACK.
//!
//! **Problem.** A send buffer is sized for the network: bytes stay in it until they are acknowledged,
//! megabytes on a long path. An application that fills it has decided seconds too early what to send (which
//! video quality, which of its HTTP/2 streams), and a hundred such connections hold gigabytes. The network
//! needs only that *unsent* data never runs out.
//!
//! **Rule.** With a mark of X bytes, a write may start a new buffer while fewer than X bytes are unsent (and
//! the send buffer has room); it always fills the last buffer, so up to a super-packet more may be queued.
//! Writability is signalled only below X/2, so that a wake-up is worth X/2 bytes of writing. The check runs
//! after ACKs and after every transmission that moved bytes from unsent to sent, since otherwise a queue
//! could run dry without a wake-up. An application is woken only if it was refused: by a write that found no
//! room, or by a negative answer from `writable`.
//!
//! Without a mark, a third of the send buffer must be free: the same hysteresis in memory rather than in
//! unsent bytes.
//!
//! **History.** Until 5.0 the wake-up came at X. Every ACK frees a little, so every ACK woke the application
//! for a few kilobytes. Users then set X to megabytes to save CPU time, or left the option alone: 100 flows
//! at 100 ms held 54 MB each; with X = 2 MiB and wake-ups below half of it, 3.5 MB, for twice the context
//! switches of no mark at all.

/// When a socket with a mark becomes writable again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LowatMode {
    /// Linux 3.12 to 4.20: as soon as fewer than X bytes are unsent.
    WakeAtMark,
    /// Today: below X/2.
    #[default]
    WakeAtHalf,
}

/// The send side's buffer accounting at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes in the write queue and in flight, overhead included.
    pub(crate) queued: u32,
    /// The limit of `queued`.
    pub(crate) sndbuf: u32,
    /// Bytes written and never sent.
    pub(crate) unsent: u64,
    /// TCP_NOTSENT_LOWAT, or the stack's.
    pub(crate) lowat: u32,
    pub(crate) mode: LowatMode,
}

impl Room {
    /// Whether a write may start another buffer.
    pub(crate) const fn may_start_buffer(self) -> bool {
        self.queued < self.sndbuf && self.unsent < self.lowat as u64
    }

    /// The answer of poll(2) and epoll: a third of the buffer is free, and less than half of the low-water
    /// mark is unsent.
    pub(crate) const fn is_writable(self) -> bool {
        let weight = match self.mode {
            LowatMode::WakeAtMark => 1,
            LowatMode::WakeAtHalf => 2,
        };
        self.queued < self.sndbuf
            && self.sndbuf - self.queued >= self.queued / 2
            && weight * self.unsent < self.lowat as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSET: u32 = u32::MAX;

    #[test]
    fn a_third_of_the_buffer_must_be_free() {
        let mode = LowatMode::WakeAtHalf;
        let room = |queued| Room { queued, sndbuf: 87_040, unsent: 0, lowat: UNSET, mode };
        assert!(room(58_027).is_writable());
        assert!(!room(58_028).is_writable());
        assert!(room(87_039).may_start_buffer());
        assert!(!room(87_040).may_start_buffer());
    }

    #[test]
    fn writes_fill_to_the_mark_and_wake_below_half() {
        let mode = LowatMode::WakeAtHalf;
        let room = |unsent| Room { queued: 0, sndbuf: 1 << 20, unsent, lowat: 16_384, mode };
        assert!(room(16_383).may_start_buffer());
        assert!(!room(16_384).may_start_buffer());
        assert!(!room(8_192).is_writable());
        assert!(room(8_191).is_writable());
        let older = Room { mode: LowatMode::WakeAtMark, ..room(16_383) };
        assert!(older.is_writable(), "before 5.0, any room below the mark was signalled");
        assert!(!Room { unsent: 16_384, ..older }.is_writable());
    }
}
