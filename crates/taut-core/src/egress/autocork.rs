//! Autocorking: small writes coalesce while an earlier packet of the connection is still below TCP.
//! Linux 3.14, head rule and re-test a181ceb501b3; called when a write ends, by
//! [`Sender::push`](super::Sender::push), and released by the completion of any data packet.
//!
//! **Problem.** An application that writes a hundred bytes at a time makes packets of a hundred bytes, although the
//! device is busy anyway. **Rule.** The end of a write does not start a transmission while a packet is below TCP whose
//! completion will, unless that would hold the head of the connection: with nothing unacknowledged, data never waits.
//! Once the tail outgrows what lies below, it goes.
//!
//! **History.** The first version held the head of the queue; a NIC that coalesced its completions by 16 µs turned a
//! request/response of 23 µs into one of 1050 µs, because the ACK overtook the completion.

use super::tsq;

/// Everything that decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Autocork {
    /// `tcp_autocorking`.
    pub(crate) enabled: bool,
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
    input.enabled
        && input.tail_len < input.size_goal
        && input.records > 0
        // Linux's counter has a bias of one, so that equal sizes hold.
        && input.outstanding.saturating_add(1) > tsq::truesize(input.tail_len)
        && !input.tail_is_eor
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDING: Autocork = Autocork {
        enabled: true,
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
        assert!(!holds(Autocork { tail_len: 101, ..HOLDING }), "the tail outgrew what is below");
        assert!(!holds(Autocork { enabled: false, ..HOLDING }));
        assert!(!holds(Autocork { records: 0, ..HOLDING }), "never hold the head");
        assert!(!holds(Autocork { outstanding: tsq::ACK_TRUESIZE, ..HOLDING }), "an ACK holds nothing");
        assert!(!holds(Autocork { size_goal: 50, ..HOLDING }), "a full buffer goes");
        assert!(!holds(Autocork { tail_is_eor: true, ..HOLDING }));
    }
}
