//! Proportional rate reduction: how many segments may be sent after each ACK while cwnd is being reduced.
//! RFC 9937, in segments.
//! Called by `ack.rs` in states CWR and Recovery, and by `transmit.rs`.

/// One reduction. RFC 9937 §6.1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// Delivered since it began.
    delivered: u32,
    /// Sent since it began, retransmissions included.
    out: u32,
    /// RecoverFS: all segments that can still be delivered during it.
    recover_fs: u32,
}

impl Prr {
    /// `unsacked`: segments out and not selectively acknowledged; `delivered_now`: by the ACK that began it.
    pub(crate) fn begin(unsacked: u32, delivered_now: u32) -> Self {
        // RFC 9937 §6.1: segments SACKed before will not be delivered again; those that this ACK reports
        // count.
        Self { delivered: 0, out: 0, recover_fs: (unsacked + delivered_now).max(1) }
    }

    pub(crate) const fn on_sent(&mut self, segs: u32) {
        self.out = self.out.saturating_add(segs);
    }

    pub(crate) const fn on_refused(&mut self, segs: u32) {
        self.out = self.out.saturating_sub(segs);
    }

    /// The cwnd after an ACK that delivered `delivered_now` segments. RFC 9937 §6.2.
    /// `safe`: `una` advanced and nothing more was found lost.
    pub(crate) fn on_ack(&mut self, delivered_now: u32, in_flight: u32, ssthresh: u32, safe: bool) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered_now);
        let mut quota = if in_flight > ssthresh {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            let due = share.div_ceil(u64::from(self.recover_fs.max(1)));
            u32::try_from(due).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            // SafeACK: slow start, else packet conservation; never past ssthresh.
            let conserve = self.delivered.saturating_sub(self.out).max(delivered_now);
            conserve.saturating_add(u32::from(safe)).min(ssthresh - in_flight)
        };
        if self.out == 0 {
            // The first retransmission must leave.
            quota = quota.max(1);
        }
        in_flight.saturating_add(quota)
    }
}
