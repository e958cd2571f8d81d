//! TCP Small Queues: a connection keeps only about a millisecond of its rate below TCP.
//! Linux 3.6 (46d3ceabd8d9), rate-scaled since 3.12; called by [`plan`](super::plan()) as its last gate, by
//! [`commit`](super::commit()) to charge and by the stack to release.
//!
//! **Problem.** A sender with a large window pushes all of it into the device queue. Everybody behind it waits
//! (50 ms on a 1 Gbit/s link, measured in 2012), and the sender's own decisions about size and order are frozen
//! long before the packet leaves.
//!
//! **Rule.** Bytes below TCP, counted from hand-over to completion, stay under
//! `max(2 packets, rate / 1024)`, capped by `tcp_limit_output_bytes`. Two packets keep the device busy while the
//! completion of one travels back; 1/1024 s of the rate keeps it busy when completions come in batches. A
//! retransmission has twice the limit: it is wanted more urgently than the data queued in front of it.
//!
//! **Exemption.** With at most one packet unacknowledged the gate is open whatever the counter says: there is no
//! ACK to come that would restart the flow if a slow device sits on its completion (Linux f921a4a5bffa).

use super::blocked::Blocked;

/// `rate >> 10` is the rate's share of one 1/1024 s. Linux: `sk_pacing_shift`.
pub(crate) const PACING_SHIFT: u32 = 10;

/// Bytes charged beside the payload for every packet below TCP: the order of what Linux's buffer and its
/// bookkeeping take. Nothing depends on the exact value.
pub(crate) const OVERHEAD: u32 = 1_024;

/// Bytes charged for a pure ACK: next to nothing, and its completion wakes nobody.
pub(crate) const ACK_TRUESIZE: u32 = 2;

/// Linux's `truesize` of a packet with `payload` bytes.
pub(crate) const fn truesize(payload: u32) -> u32 {
    OVERHEAD + payload
}

/// What a connection has below TCP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SmallQueue {
    /// Sum of the truesizes of all tickets that are out.
    outstanding: u32,
    /// The gate was found shut; the next completion resumes the connection.
    throttled: bool,
}

impl SmallQueue {
    /// Bytes below TCP.
    pub(crate) const fn outstanding(self) -> u32 {
        self.outstanding
    }

    /// A packet was handed to the device.
    pub(crate) fn charge(&mut self, truesize: u32) {
        self.outstanding = self.outstanding.saturating_add(truesize);
    }

    /// A ticket came back. Returns whether the connection waits for that and is to be resumed: any one completion
    /// consumes the flag, and the retry sets it again if need be.
    pub(crate) fn release(&mut self, truesize: u32) -> bool {
        debug_assert!(self.outstanding >= truesize, "more released than charged");
        self.outstanding = self.outstanding.saturating_sub(truesize);
        truesize > ACK_TRUESIZE && core::mem::take(&mut self.throttled)
    }

    /// Remember that somebody waits for a completion.
    pub(crate) fn throttle(&mut self) {
        self.throttled = true;
    }
}

/// How much may be below TCP before a packet of `candidate` bytes (truesize) is added, in bytes.
pub(crate) fn limit(candidate: u32, pacing_rate: u64, shift: u32, cap: u32, retransmit: bool) -> u64 {
    let rate_share = pacing_rate >> shift.min(63);
    let limit = rate_share.max(2 * u64::from(candidate)).min(u64::from(cap));
    limit << u32::from(retransmit)
}

/// The gate. `records` counts packets sent and not acknowledged.
pub(crate) fn gate(outstanding: u32, limit: u64, records: usize) -> Result<(), Blocked> {
    // Linux's counter starts at one, so that reaching the limit exactly already blocks.
    if u64::from(outstanding) < limit || records <= 1 { Ok(()) } else { Err(Blocked::SmallQueue) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_two_packets_or_a_millisecond_of_the_rate_under_the_cap() {
        // 1.25 MB/s >> 10 is 1220: less than two packets.
        assert_eq!(limit(3_920, 1_250_000, PACING_SHIFT, 4 << 20, false), 7_840);
        // 1.25 GB/s >> 10 = 1,220,703; the cap of 1 MiB wins, one of 4 MiB does not.
        assert_eq!(limit(3_920, 1_250_000_000, PACING_SHIFT, 1 << 20, false), 1_048_576);
        assert_eq!(limit(3_920, 1_250_000_000, PACING_SHIFT, 4 << 20, false), 1_220_703);
        // Doubled for a retransmission, after the cap.
        assert_eq!(limit(3_920, 1_250_000_000, PACING_SHIFT, 1 << 20, true), 2_097_152);
    }

    #[test]
    fn blocks_at_exactly_the_limit_with_two_records() {
        assert_eq!(gate(7_839, 7_840, 2), Ok(()));
        assert_eq!(gate(7_840, 7_840, 2), Err(Blocked::SmallQueue));
    }

    #[test]
    fn never_blocks_with_at_most_one_record() {
        assert_eq!(gate(u32::MAX, 7_840, 0), Ok(()));
        assert_eq!(gate(u32::MAX, 7_840, 1), Ok(()));
    }

    #[test]
    fn one_completion_consumes_the_flag_and_an_ack_does_not() {
        let mut queue = SmallQueue::default();
        queue.charge(5_000);
        queue.charge(5_000);
        queue.charge(ACK_TRUESIZE);
        queue.throttle();
        assert!(!queue.release(ACK_TRUESIZE));
        assert!(queue.release(5_000));
        assert!(!queue.release(5_000));
        assert_eq!(queue.outstanding(), 0);
    }
}
