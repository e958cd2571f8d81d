//! F-RTO: finds out from the next ACKs whether a retransmission timeout was spurious. RFC 5682 §3.1 (the
//! SACK-enhanced version, which also works without SACK), with Linux's conditions (`tcp_frto`). Called by
//! `timers.rs` at a timeout and by `ack.rs` for every ACK in state Loss.
//!
//! After the timeout only the head is retransmitted. If the following ACKs are for packets that were never
//! retransmitted, these packets were in flight all the time. To provoke such ACKs, two new segments are sent
//! instead of old ones:
//!
//! ```text
//!   timeout ─▶ Waiting ── una moved, new data can leave ─▶ SendNew ── next ACK ─▶ Waiting
//!                 │                                            │
//!                 ├── something sent only once was delivered ──┴─▶ spurious: undo
//!                 └── no new data, or a duplicate after it ──────▶ Off: the loss was real
//! ```

/// The state of the detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Frto {
    /// Not under way, or finished.
    #[default]
    Off,
    /// The head was retransmitted; the next ACKs decide.
    Waiting,
    /// Until the next ACK, new data is sent before data that is thought lost.
    SendNew,
}

/// The properties of an ACK on which the detection depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrtoAck {
    /// Something below `high_seq` was delivered, cumulatively or selectively, that was sent only once.
    pub(crate) original_delivered: bool,
    pub(crate) advanced: bool,
    /// Everything in flight at the timeout is acknowledged.
    pub(crate) recovered: bool,
    /// New data was sent since the timeout.
    pub(crate) new_data_out: bool,
    /// It repeats `una`, or acknowledges selectively.
    pub(crate) dup_or_sacked: bool,
    /// There is unsent data, and the peer's window has room for it.
    pub(crate) may_send_new: bool,
}

impl Frto {
    /// A timeout fired. RFC 5682 §3.1 step 1: only if no recovery was under way, or this is not its first
    /// timeout.
    pub(crate) const fn on_timeout(&mut self, is_on: bool, recovering: bool, timeouts_before: u8) {
        *self = if is_on && (!recovering || timeouts_before > 0) { Self::Waiting } else { Self::Off };
    }

    /// Whether the timeout was spurious.
    pub(crate) const fn on_ack(&mut self, ack: &FrtoAck) -> bool {
        if matches!(self, Self::Off) {
            return false;
        }
        if ack.original_delivered {
            // Step 3.b.
            *self = Self::Off;
            return true;
        }
        *self = if ack.new_data_out {
            // Step 3.a: the new data arrived, the old data did not.
            if ack.dup_or_sacked { Self::Off } else { Self::Waiting }
        } else if ack.advanced && !ack.recovered {
            // Step 2.b.
            if ack.may_send_new { Self::SendNew } else { Self::Off }
        } else {
            Self::Waiting
        };
        false
    }
}
