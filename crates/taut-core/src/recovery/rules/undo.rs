//! Undo: no packet was lost, so the window is restored.
//! RFC 3522 / RFC 4015 (Eifel, by timestamps) and RFC 3708 (by D-SACK), the tests in Linux's order.
//! Called by `states.rs` when recovery begins and by `ack.rs` for every ACK after.

use crate::words::{Duration, Instant};

/// The state needed to find out that retransmissions were unnecessary.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Undo {
    /// `una` when the window was reduced; `None` when there is nothing to undo.
    marker: Option<u64>,
    /// Retransmitted segments that no D-SACK has reported yet; `None` before the first retransmission.
    unreported: Option<u32>,
    /// The first retransmission since all data was last acknowledged.
    first_retransmit: Option<Instant>,
}

impl Undo {
    pub(crate) fn begin(&mut self, una: u64, retrans_out: u32) {
        self.marker = Some(una);
        self.unreported = (retrans_out > 0).then_some(retrans_out);
        if retrans_out == 0 {
            self.first_retransmit = None;
        }
    }

    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn on_retransmit(&mut self, now: Instant, segs: u32) {
        self.first_retransmit.get_or_insert(now);
        if self.marker.is_some() {
            self.unreported = Some(self.unreported.unwrap_or(0).saturating_add(segs));
        }
    }

    pub(crate) fn on_refused(&mut self, segs: u32) {
        if let Some(unreported) = &mut self.unreported {
            *unreported = unreported.saturating_sub(segs);
            if *unreported == 0 {
                self.unreported = None;
            }
        }
    }

    /// The peer received `segs` segments up to `end` twice.
    pub(crate) fn on_dsack(&mut self, end: u64, segs: u32) {
        if self.marker.is_some_and(|marker| end > marker)
            && let Some(unreported) = &mut self.unreported
        {
            *unreported = unreported.saturating_sub(segs);
        }
    }

    /// Every retransmitted segment arrived twice: no retransmission was needed. RFC 3708.
    pub(crate) fn all_reported(&self) -> bool {
        self.marker.is_some() && self.unreported == Some(0)
    }

    /// Whether anything was retransmitted since all data was last acknowledged.
    pub(crate) const fn was_retransmitted(&self) -> bool {
        self.first_retransmit.is_some()
    }

    /// When the first of the present retransmissions left, if that is known.
    pub(crate) const fn first_retransmit(&self) -> Option<Instant> {
        self.first_retransmit
    }

    /// Whether an ACK that advances is for the original: it echoes a timestamp from before the first
    /// retransmission (RFC 3522 §3.2), or nothing was retransmitted yet because pacing or a small queue
    /// delayed it. Timestamps tick in milliseconds of `now`, so the comparison is in whole ticks.
    pub(crate) fn original_arrived(&self, now: Instant, echo_rtt: Option<Duration>) -> bool {
        if self.marker.is_none() {
            return false;
        }
        let Some(resent) = self.first_retransmit else { return true };
        let Some(rtt) = echo_rtt else { return false };
        now.as_millis().saturating_sub(rtt.as_millis()) < resent.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000);

    /// One segment at 1000 was retransmitted.
    fn resent() -> Undo {
        let mut undo = Undo::default();
        undo.begin(1_000, 0);
        undo.on_retransmit(NOW, 1);
        undo
    }

    #[test]
    fn undo_04_only_what_was_sent_again_since_the_reduction_counts() {
        // RFC 3708 §2: only reports about the window in which the loss was found count.
        let mut undo = resent();
        assert!(!undo.all_reported());
        undo.on_dsack(1_000, 1);
        assert!(!undo.all_reported(), "from before it");
        undo.on_dsack(2_000, 1);
        assert!(undo.all_reported());
        undo.end();
        assert!(!undo.all_reported(), "nothing to undo");
    }

    /// RFC 3708 §2: every retransmission must be reported. Linux (`tcp_init_undo`): also those that were out
    /// when the window was reduced, such as a tail loss probe.
    #[test]
    fn undo_04_what_was_out_before_the_reduction_must_be_reported_too() {
        let mut undo = Undo::default();
        undo.on_retransmit(NOW, 1);
        undo.begin(1_000, 1);
        undo.on_retransmit(NOW, 2);
        for end in [2_000, 3_000] {
            undo.on_dsack(end, 1);
            assert!(!undo.all_reported(), "one of three is missing");
        }
        undo.on_dsack(4_000, 1);
        assert!(undo.all_reported());
        // A reduction before anything was retransmitted waits for the retransmissions that follow.
        undo.begin(5_000, 0);
        assert!(!undo.all_reported(), "nothing was");
    }

    #[test]
    fn undo_04_what_never_left_is_not_waited_for_and_proves_nothing() {
        let mut undo = resent();
        undo.on_refused(1);
        assert!(!undo.all_reported());
        undo.on_retransmit(NOW, 2);
        undo.on_refused(1);
        undo.on_dsack(2_000, 1);
        assert!(undo.all_reported());
    }
}
