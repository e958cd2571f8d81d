//! F-RTO: whether a retransmission timeout was needless, found out by what the next ACKs acknowledge.
//! RFC 5682 §3.1 (the version enhanced by SACK, which does without it too), with Linux's conditions (`tcp_frto`).
//! Called by `timers.rs` at a timeout and by `ack.rs` for every ACK in state Loss.
//!
//! After the timeout only the head is retransmitted. If the ACKs that follow are for packets that were never
//! retransmitted, those were under way all the time. To provoke such ACKs, two new segments are sent instead of old ones:
//!
//! ```text
//!   timeout ─▶ Waiting ── una moved, new data can leave ─▶ SendNew ── next ACK ─▶ Waiting
//!                 │                                            │
//!                 ├── something sent only once was delivered ──┴─▶ needless: undo
//!                 └── no new data, or a duplicate after it ──────▶ Off: the loss was real
//! ```

/// Where the question stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Frto {
    /// Not asked, or answered.
    #[default]
    Off,
    /// The head was retransmitted; the next ACKs give the answer.
    Waiting,
    /// New data goes before what is thought lost, until the next ACK.
    SendNew,
}

/// An ACK, as far as the question depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrtoAck {
    /// Something below `high_seq` was delivered, cumulatively or selectively, that was sent only once.
    pub(super) original_delivered: bool,
    pub(super) advanced: bool,
    /// All that was out at the timeout is acknowledged.
    pub(super) recovered: bool,
    /// New data was sent since.
    pub(super) new_data_out: bool,
    /// It repeats `una`, or acknowledges selectively.
    pub(super) dup_or_sacked: bool,
    /// There is data never sent, and the peer's window has room for it.
    pub(super) may_send_new: bool,
}

impl Frto {
    /// A timeout fired. RFC 5682 §3.1 step 1: only if no recovery was under way, or this is not its first timeout.
    pub(super) const fn on_timeout(&mut self, is_on: bool, recovering: bool, timeouts_before: u8) {
        *self = if is_on && (!recovering || timeouts_before > 0) { Self::Waiting } else { Self::Off };
    }

    /// Whether the timeout was needless.
    pub(super) const fn on_ack(&mut self, ack: &FrtoAck) -> bool {
        if matches!(self, Self::Off) {
            return false;
        }
        if ack.original_delivered {
            // Step 3.b.
            *self = Self::Off;
            return true;
        }
        *self = if ack.new_data_out {
            // Step 3.a: what is new arrived, what is old did not.
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
