//! How many of our packets an ACK reports as marked.
//! RFC 3168 §6.1.2 and RFC 8257 §3.3 for ECE; RFC 9768 §3.2.2.5 and appendix A.2 for counters. Called by `ack.rs`.
//!
//! **Problem.** The peer counts marked packets, and three bits of the count are in every segment. Seven marks between two
//! ACKs can be told apart; an ACK for eight packets or more may stand for eight marks more than it shows.
//!
//! **Rule.** Where the peer's count of marked bytes comes along (the AccECN option), it says how often the three bits
//! went round: as few packets as could hold those bytes. From a peer that never sends it, the most that the newly
//! delivered packets allow (RFC 9768 appendix A.2.1). From one that does, but not with this ACK, the least: the next
//! option will show the rest, and the difference is counted then.

/// One more than the most that the ACE field holds.
const ACE_MODULUS: u32 = 8;

/// What an ACK says of congestion marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Feedback {
    /// Nothing.
    #[default]
    None,
    /// ECE: something was marked, all that it acknowledges as far as is known.
    Echo,
    /// By how much the counters of RFC 9768 moved.
    Counted(Counted),
}

/// The counters of RFC 9768 in one ACK, as differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Marked packets, modulo 8.
    pub(crate) packets: u32,
    /// Marked bytes.
    pub(crate) bytes: Bytes,
}

/// The count of marked bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// The peer does not send it, or the path does not let it pass.
    Never,
    /// It came before, and not with this ACK.
    Absent,
    /// It moved by so much since it came last; meanwhile so many packets were delivered, and taken for marked.
    Moved { bytes: u32, delivered: u32, counted: u32 },
}

impl Feedback {
    /// How many packets an ACK reports as marked that delivered `newly` of at most `mss` bytes each; `None` when it
    /// reports no mark.
    pub(crate) fn marked(self, newly: u32, advanced: bool, mss: u32) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Echo => Some(newly),
            // An ACK that brings nothing may have been overtaken (RFC 9768 appendix A.1).
            Self::Counted(counted) if advanced || newly > 0 => {
                Some(counted.marked(newly, mss)).filter(|&marked| marked > 0)
            }
            Self::Counted(_) => None,
        }
    }
}

impl Counted {
    /// Packets marked, when `newly` were delivered of at most `mss` bytes each.
    fn marked(self, newly: u32, mss: u32) -> u32 {
        let least = self.packets;
        match self.bytes {
            // A packet that is not in `newly`, such as a pure ACK, may have been marked too: the counter is right.
            Bytes::Never => most(newly, least),
            Bytes::Absent => least,
            Bytes::Moved { bytes, delivered, counted } => {
                let held = bytes.div_ceil(mss.max(1)).saturating_sub(counted);
                let more = held.saturating_sub(least).next_multiple_of(ACE_MODULUS);
                (least + more).min(most(newly.saturating_add(delivered).saturating_sub(counted), least))
            }
        }
    }
}

/// The most of `newly` that are `least` modulo 8. Appendix A.2.1.
const fn most(newly: u32, least: u32) -> u32 {
    if newly < least { least } else { newly - (newly - least) % ACE_MODULUS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(packets: u32, newly: u32) -> u32 {
        Counted { packets, bytes: Bytes::Never }.marked(newly, 1_000)
    }

    #[test]
    fn without_bytes_the_safest_count() {
        // Appendix A.2.1: newlyAckedPkt − ((newlyAckedPkt − d.cep) mod 8).
        for (packets, newly, marked) in
            [(0, 7, 0), (3, 7, 3), (0, 8, 8), (4, 9, 4), (4, 12, 12), (1, 44, 41), (7, 16, 15)]
        {
            assert_eq!(never(packets, newly), marked, "{packets} of {newly}");
        }
        // §3.2.2.5.2: more than were acknowledged, and the counter is right.
        assert_eq!(never(5, 2), 5);
    }

    #[test]
    fn bytes_say_how_often_the_field_went_round() {
        for marked in 0..=44 {
            let bytes = Bytes::Moved { bytes: marked * 1_000, delivered: 0, counted: 0 };
            assert_eq!(Counted { packets: marked % 8, bytes }.marked(44, 1_000), marked);
        }
        // Bytes that nobody sent: not more than was delivered.
        let bytes = Bytes::Moved { bytes: 1_000_000, delivered: 0, counted: 0 };
        assert_eq!(Counted { packets: 2, bytes }.marked(12, 1_000), 10);
        // A peer that sent one option, and the next after a very long time.
        let bytes = Bytes::Moved { bytes: 2_000, delivered: u32::MAX, counted: 0 };
        assert_eq!(Counted { packets: 2, bytes }.marked(12, 1_000), 2);
    }

    #[test]
    fn what_an_ack_without_bytes_hid_comes_with_the_next() {
        // 20 of 20 marked: 4 are seen. Then 3 of 10 more, with all 23 in bytes.
        assert_eq!(Counted { packets: 4, bytes: Bytes::Absent }.marked(20, 1_000), 4);
        let bytes = Bytes::Moved { bytes: 23_000, delivered: 20, counted: 4 };
        assert_eq!(Counted { packets: 3, bytes }.marked(10, 1_000), 19);
    }
}
