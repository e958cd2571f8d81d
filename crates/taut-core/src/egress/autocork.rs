//! Autocorking: small writes coalesce while an earlier packet of the connection is still below TCP.
//! Linux 3.14 (f54b311142a9), head rule and re-test a181ceb501b3, today's form 114f39feab36; called when a
//! write ends, by `Sender::push`, and ended by the completion of any data packet.
//!
//! **Problem.** An application that writes a hundred bytes at a time makes packets of a hundred bytes,
//! although the device is busy anyway and the packet gains nothing by leaving TCP now.
//!
//! **Rule.** The end of a write does not start a transmission while a packet is below TCP whose completion
//! will start it, unless the tail is a full buffer, ends a record, or is larger than the data below (a tail
//! of equal size waits, one byte more does not: such a small packet completes soon, or nothing is gained by
//! waiting longer). A pure ACK below TCP weighs 2 bytes and holds nothing. TCP_NODELAY does not switch
//! autocorking off: the wait costs no round trip, only a completion.
//!
//! **Never the head.** With nothing unacknowledged, data leaves at once, whatever is below TCP.
//!
//! **History.** The first version held the head, too. A NIC that delays its completions by 16 µs so as to
//! raise fewer interrupts then held *every* request of a request/response exchange: the answer overtook the
//! completion of the request, the next request waited for that completion, and a mean of 23 µs became one of
//! 1050 µs. The fix asked whether the tail was the head of the queue, and asked again after setting the flag
//! that makes a completion resume the connection: a completion in between could have been the last. When 4.15
//! moved sent data to a queue of its own, "is the head" was always true and autocorking never happened,
//! unnoticed for months; since then the question is whether anything is unacknowledged.

use super::tsq;

/// What small writes wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutocorkMode {
    /// Nothing, as with `tcp_autocorking = 0`.
    Off,
    /// Linux 3.14 at first: a completion, even with nothing else to wait for.
    MayHoldHead,
    /// Today: a completion, but never at the head of the connection.
    #[default]
    Fixed,
}

/// Everything on which the decision depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Autocork {
    /// [`AutocorkMode::Off`] when `tcp_autocorking` is.
    pub(crate) mode: AutocorkMode,
    /// Payload bytes in the tail buffer.
    pub(crate) tail_len: u32,
    pub(crate) size_goal: u32,
    /// Packets sent and not acknowledged.
    pub(crate) records: usize,
    /// Bytes below TCP.
    pub(crate) outstanding: u32,
    /// The tail ends a record.
    pub(crate) tail_is_eor: bool,
}

/// Whether the tail waits for a completion.
pub(crate) fn holds(input: Autocork) -> bool {
    let mode_holds = match input.mode {
        AutocorkMode::Off => false,
        AutocorkMode::MayHoldHead => true,
        AutocorkMode::Fixed => input.records > 0,
    };
    mode_holds
        && input.tail_len < input.size_goal
        // Linux's counter has a bias of one, so that equal sizes hold.
        && input.outstanding.saturating_add(1) > tsq::truesize(input.tail_len)
        && !input.tail_is_eor
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDING: Autocork = Autocork {
        mode: AutocorkMode::Fixed,
        tail_len: 50,
        size_goal: 65_160,
        records: 1,
        outstanding: tsq::truesize(100),
        tail_is_eor: false,
    };

    #[test]
    fn every_condition_opens_the_gate_alone() {
        assert!(holds(HOLDING));
        assert!(holds(Autocork { tail_len: 100, ..HOLDING }), "equal sizes hold");
        assert!(!holds(Autocork { tail_len: 101, ..HOLDING }), "the tail is larger than the data below");
        assert!(!holds(Autocork { mode: AutocorkMode::Off, ..HOLDING }));
        assert!(!holds(Autocork { records: 0, ..HOLDING }), "never hold the head");
        assert!(!holds(Autocork { outstanding: tsq::ACK_TRUESIZE, ..HOLDING }), "an ACK holds nothing");
        assert!(!holds(Autocork { size_goal: 50, ..HOLDING }), "a full buffer leaves");
        assert!(!holds(Autocork { tail_is_eor: true, ..HOLDING }));
    }

    #[test]
    fn the_first_version_held_the_head() {
        assert!(holds(Autocork { mode: AutocorkMode::MayHoldHead, records: 0, ..HOLDING }));
    }
}
