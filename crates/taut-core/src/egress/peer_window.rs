//! The peer's window: how far it lets us send.
//! RFC 9293 §3.3.1 (SND.WND, SND.WL1, SND.WL2) and §3.10.7.4. Called by the sender for every acceptable
//! segment.

/// The window that the peer offered last, and the largest it ever offered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerWindow {
    /// Bytes from `una` on.
    bytes: u32,
    /// The largest the peer ever offered.
    max: u32,
    /// Sequence number of the segment that last changed it.
    changed_by_seq: u64,
}

impl PeerWindow {
    /// The window of a SYN.
    pub(super) const fn of_syn(bytes: u32) -> Self {
        Self { bytes, max: bytes, changed_by_seq: 0 }
    }

    /// Bytes from `una` on.
    pub(super) const fn bytes(self) -> u32 {
        self.bytes
    }

    /// The largest the peer ever offered.
    pub(super) const fn max(self) -> u32 {
        self.max
    }

    /// A segment at `start` that acknowledges `ack` offers a window. Returns whether that changes anything. A
    /// segment with the same numbers may only open the window, or close it altogether: reordered ACKs must
    /// not shrink it.
    #[inline]
    pub(super) fn on_segment(&mut self, offered: u32, ack: u64, start: u64, una: u64) -> bool {
        let newer = ack > una
            || start > self.changed_by_seq
            || (start == self.changed_by_seq && (offered > self.bytes || offered == 0));
        if !newer || ack < una {
            return false;
        }
        let changed = self.bytes != offered;
        self.bytes = offered;
        self.max = self.max.max(offered);
        self.changed_by_seq = start;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn win_01_a_reordered_segment_changes_nothing() {
        let mut window = PeerWindow::of_syn(1_000);
        assert!(window.on_segment(2_000, 10, 10, 10));
        assert!(!window.on_segment(500, 10, 9, 10), "an older segment");
        assert!(!window.on_segment(500, 10, 10, 10), "an equal one would shrink it");
        assert!(!window.on_segment(3_000, 9, 11, 10), "an ACK below una");
        assert_eq!((window.bytes(), window.max()), (2_000, 2_000));
        assert!(window.on_segment(3_000, 10, 10, 10), "an equal one opens it");
        assert!(window.on_segment(0, 10, 10, 10), "and closes it altogether");
        assert!(window.on_segment(700, 11, 10, 10), "a segment that acknowledges more is newer");
        assert_eq!((window.bytes(), window.max()), (700, 3_000));
    }
}
