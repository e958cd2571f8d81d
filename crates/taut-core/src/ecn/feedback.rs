//! The marks on our packets that an ACK reports, and the number of packets that were marked.
//! RFC 3168 §6.1.2 and RFC 8257 §3.3 for ECE; RFC 9768 §3.2.2.5 and appendix A for counters.
//! Called by `ecn/mod.rs` for every ACK, and by `recovery/ack.rs`, which knows how many packets it delivered.
//!
//! **Problem.** The peer counts marked packets, and three bits of the count are in every segment. They
//! distinguish up to seven marks between two ACKs; an ACK for eight packets or more may mean eight marks more
//! than it shows.
//!
//! **Rule.** The peer's count of marked bytes (the AccECN option), if the ACK carries it, shows how often the
//! three bits wrapped: we assume the smallest number of marked packets that could hold those bytes. If the
//! peer never sends the option, we assume as many as the newly delivered packets allow (RFC 9768 appendix
//! A.2.1), unless its ACKs are for many packets as a rule: then eight packets say nothing about a wrap, and
//! we assume as few as possible ([`PerAck`]). If it sends the option, but not with this ACK, we assume as few
//! as possible; the next option will show the difference, which is counted then.

use taut_wire::AccEcn;
use taut_wire::tcp::Flags as TcpFlags;

use super::ace;

/// What an ACK reports about congestion marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Feedback {
    /// Nothing.
    #[default]
    None,
    /// ECE: there were marks, and all the data that the ACK acknowledges may have been marked.
    Echo,
    /// The change of RFC 9768's counters.
    Counted(Counted),
}

/// The counters of RFC 9768 in one ACK, as differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Marked packets, modulo 8.
    packets: u32,
    /// Marked bytes.
    bytes: MarkedBytes,
}

/// The count of marked bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkedBytes {
    /// The peer does not send it, or the path does not let it pass.
    Never(PerAck),
    /// The peer has sent it before, but not with this ACK.
    Absent,
    /// The count grew by `bytes` since the peer last sent it; meanwhile `delivered` packets were delivered,
    /// and `counted` of them were taken for marked.
    Moved { bytes: u32, delivered: u32, counted: u32 },
}

/// The mean number of packets that an ACK delivers, in parts of 64. It follows new ACKs by a 64th, and begins
/// with the first one. Linux 7.0: `pkts_acked_ewma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PerAck(u32);

impl PerAck {
    /// 1 << 6 is one packet, and 1/64 the weight of an ACK.
    const SHIFT: u32 = 6;
    /// Beyond this mean, one ACK for many packets is no sign that others were lost.
    const MANY: Self = Self(4 << Self::SHIFT);
    const DELIVERED_MAX: u32 = 0xffff;

    /// With an ACK that delivers `delivered` packets.
    fn with(self, delivered: u32) -> Self {
        let delivered = delivered.min(Self::DELIVERED_MAX);
        match (self.0, delivered) {
            (_, 0) => self,
            (0, _) => Self(delivered << Self::SHIFT),
            (mean, _) => Self(mean - mean.div_ceil(1 << Self::SHIFT) + delivered),
        }
    }

    const fn is_many(self) -> bool {
        self.0 > Self::MANY.0
    }
}

impl Feedback {
    /// The number of packets that an ACK reports as marked, if it delivered `newly` packets of at most `mss`
    /// bytes each; `None` when it reports no mark.
    pub(crate) fn marked(self, newly: u32, advanced: bool, mss: u32) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Echo => Some(newly),
            // An ACK that acknowledges nothing new may have been overtaken (RFC 9768 appendix A.1).
            Self::Counted(counted) if advanced || newly > 0 => {
                Some(counted.marked(newly, mss)).filter(|&marked| marked > 0)
            }
            Self::Counted(_) => None,
        }
    }
}

impl Counted {
    /// The number of marked packets, if `newly` packets of at most `mss` bytes each were delivered.
    fn marked(self, newly: u32, mss: u32) -> u32 {
        let least = self.packets;
        match self.bytes {
            // A packet that is not in `newly`, such as a pure ACK, may have been marked too: the counter is
            // right.
            MarkedBytes::Never(mean) if !mean.with(newly).is_many() => most(newly, least),
            MarkedBytes::Never(_) | MarkedBytes::Absent => least,
            MarkedBytes::Moved { bytes, delivered, counted } => {
                let held = bytes.div_ceil(mss.max(1)).saturating_sub(counted);
                let more = held.saturating_sub(least).next_multiple_of(ace::MODULUS);
                (least + more).min(most(newly.saturating_add(delivered).saturating_sub(counted), least))
            }
        }
    }
}

/// The largest number up to `newly` that equals `least` modulo 8. Appendix A.2.1.
const fn most(newly: u32, least: u32) -> u32 {
    if newly < least { least } else { newly - (newly - least) % ace::MODULUS }
}

/// The peer's counters of our packets, as last known; the next ACK is compared with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerCounts {
    /// s.cep: packets of ours that the peer counts as marked. §3.2.1.
    packets: u32,
    /// s.ceb: bytes, as of the last option with them; modulo 2²⁴.
    bytes: u32,
    /// The peer sends options.
    has_options: bool,
    /// The path zeroes the options. §3.2.3.2.4.
    zeroed: bool,
    /// The peer's reports are not believed. §3.2.2.1, note 1, and §3.2.2.4.
    disbelieved: bool,
    /// Packets delivered, and counted as marked, since the last option.
    delivered: u32,
    counted: u32,
    per_ack: PerAck,
}

impl PeerCounts {
    pub(super) const fn new() -> Self {
        Self {
            packets: ace::FIRST_COUNT,
            bytes: 0,
            has_options: false,
            zeroed: false,
            disbelieved: false,
            delivered: 0,
            counted: 0,
            per_ack: PerAck(0),
        }
    }

    /// The segment that acknowledges our SYN arrived with this option. Counters begin at values other than
    /// zero.
    pub(super) fn on_first_option(&mut self, option: Option<AccEcn>) {
        self.has_options = option.is_some();
        self.zeroed = option.is_some_and(|option| option.ee0b == Some(0) || option.ee1b == Some(0));
    }

    /// The peer reports that our SYN-ACK arrived marked, and has counted it. §3.2.2.2.
    pub(super) const fn on_marked_syn_ack(&mut self) {
        self.packets += 1;
    }

    /// From now on the peer's reports are not believed.
    pub(super) const fn disbelieve(&mut self) {
        self.disbelieved = true;
    }

    /// The report of an ACK, if the peer's reports are believed.
    pub(super) fn read(&self, flags: TcpFlags, option: Option<AccEcn>) -> Feedback {
        let option = option.filter(|_| !self.zeroed);
        let moved = |bytes: u32| bytes.wrapping_sub(self.bytes) % AccEcn::MODULUS;
        // The count of marked bytes never falls: an ACK with a lower one was sent before the last one that
        // arrived.
        let is_overtaken =
            option.and_then(|option| option.eceb).is_some_and(|bytes| moved(bytes) >= AccEcn::MODULUS / 2);
        if self.disbelieved || is_overtaken {
            return Feedback::None;
        }
        let Self { delivered, counted, .. } = *self;
        let bytes = match option.map(|option| option.eceb) {
            Some(Some(bytes)) => MarkedBytes::Moved { bytes: moved(bytes), delivered, counted },
            // The count is absent because it never moved, or because it has not changed; in the second case,
            // an option with a change may have been lost.
            Some(None) if self.bytes == 0 => MarkedBytes::Moved { bytes: 0, delivered, counted },
            _ if self.has_options && !self.zeroed => MarkedBytes::Absent,
            _ => MarkedBytes::Never(self.per_ack),
        };
        let packets = ace::of(flags).wrapping_sub(self.packets) % ace::MODULUS;
        Feedback::Counted(Counted { packets, bytes })
    }

    /// An ACK with these differences delivered `delivered` packets, of which `marked` were taken for marked.
    /// Returns true when it contradicts itself: marked bytes without a marked packet (§3.2.3.2.5). Eight
    /// packets or more would have been taken for marked.
    #[must_use]
    pub(super) fn on_ack(&mut self, ack: Counted, delivered: u32, marked: u32) -> bool {
        self.packets = self.packets.wrapping_add(marked);
        self.per_ack = self.per_ack.with(delivered);
        self.delivered = self.delivered.saturating_add(delivered);
        self.counted = self.counted.saturating_add(marked);
        let MarkedBytes::Moved { bytes, .. } = ack.bytes else { return false };
        let contradiction = bytes != 0 && self.counted == 0;
        self.bytes = self.bytes.wrapping_add(bytes) % AccEcn::MODULUS;
        self.has_options = true;
        self.delivered = 0;
        self.counted = 0;
        contradiction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After ACKs for one packet each.
    fn never(packets: u32, newly: u32) -> u32 {
        let bytes = MarkedBytes::Never(PerAck(0).with(1));
        Counted { packets, bytes }.marked(newly, 1_000)
    }

    #[test]
    fn accecn_17_without_bytes_the_safest_count() {
        // Appendix A.2.1: newlyAckedPkt − ((newlyAckedPkt − d.cep) mod 8).
        for (packets, newly, marked) in
            [(0, 7, 0), (3, 7, 3), (0, 8, 8), (4, 9, 4), (4, 12, 12), (1, 44, 41), (7, 16, 15)]
        {
            assert_eq!(never(packets, newly), marked, "{packets} of {newly}");
        }
        // §3.2.2.5.2: more marks than acknowledged packets; the counter is right.
        assert_eq!(never(5, 2), 5);
    }

    #[test]
    fn accecn_41_the_mean_follows_by_a_64th() {
        let of = |acks: &[u32]| acks.iter().fold(PerAck(0), |mean, &packets| mean.with(packets));
        // Nothing delivered says nothing; the first ACK is the mean. 63/64 · 1 + 44/64 is 107/64.
        assert_eq!([of(&[0]), of(&[0, 10]), of(&[1, 44])], [PerAck(0), PerAck(640), PerAck(107)]);
        // (63/64)ⁿ · 1 + (1 − (63/64)ⁿ) · 44 exceeds 4 when n > ln(43/40) / ln(64/63) = 4.6.
        assert_eq!(
            [4, 5].map(|n| of(&[[1].as_slice(), &[44, 44, 44, 44, 44][..n]].concat()).is_many()),
            [false, true]
        );
        assert!(!of(&[4; 200]).is_many() && of(&[5; 200]).is_many(), "beyond four packets");
        assert!(of(&[u32::MAX; 200]).is_many());
    }

    #[test]
    fn accecn_17_bytes_show_how_often_the_field_wrapped() {
        for marked in 0..=44 {
            let bytes = MarkedBytes::Moved { bytes: marked * 1_000, delivered: 0, counted: 0 };
            assert_eq!(Counted { packets: marked % 8, bytes }.marked(44, 1_000), marked);
        }
        // Bytes of five, and a field that says three more: eleven, the least that hold them. A pure ACK has
        // no bytes.
        let bytes = MarkedBytes::Moved { bytes: 5_000, delivered: 0, counted: 0 };
        assert_eq!(Counted { packets: 3, bytes }.marked(44, 1_000), 11);
        // More bytes than were ever sent: limited to the packets delivered.
        let bytes = MarkedBytes::Moved { bytes: 1_000_000, delivered: 0, counted: 0 };
        assert_eq!(Counted { packets: 2, bytes }.marked(12, 1_000), 10);
        // A peer that sent one option, and the next one after a very long time.
        let bytes = MarkedBytes::Moved { bytes: 2_000, delivered: u32::MAX, counted: 0 };
        assert_eq!(Counted { packets: 2, bytes }.marked(12, 1_000), 2);
    }

    #[test]
    fn accecn_19_what_an_ack_without_bytes_hid_comes_with_the_next() {
        // 20 of 20 marked: 4 are seen. Then 3 of 10 more, with all 23 in bytes.
        assert_eq!(Counted { packets: 4, bytes: MarkedBytes::Absent }.marked(20, 1_000), 4);
        let bytes = MarkedBytes::Moved { bytes: 23_000, delivered: 20, counted: 4 };
        assert_eq!(Counted { packets: 3, bytes }.marked(10, 1_000), 19);
    }
}
