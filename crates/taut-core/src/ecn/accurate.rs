//! Accurate ECN: both ends count marked packets and bytes, and every segment carries the count.
//! RFC 9768: §3.1 for SYNs, §3.2.2 for the ACE field; the option (§3.2.3) is in `option.rs`.
//! Called by `ecn/mod.rs`. The meaning of the peer's counts for our packets is in `feedback.rs`.
//!
//! **Problem.** ECE reports a mark, but only one per round trip. DCTCP's echo reports every mark, but only
//! while no ACK is lost, and only to a peer that is configured for it.
//!
//! **Rule.** The receiver counts marked packets, and the flags AE, CWR and ECE carry the low three bits of
//! the count: the ACE field (`ace.rs`). The AccECN option, which counts bytes, shows whether those bits
//! wrapped between two ACKs.
//!
//! **Broken paths.** A path that changes SYNs, the field or the option will change them again. After signs of
//! such a path, our packets are no longer marked as ECN-capable (§3.2.2.3, §3.2.2.4, §3.2.3.2.5), or the
//! option is ignored (§3.2.3.2.4). Arriving marks are counted and reported in any case (§3.1.5).
//!
//! **Segmentation.** All segments of a super-packet may carry one ACE field. But a device that cuts it by the
//! rules of RFC 3168 takes the middle bit for CWR and leaves it on the first segment only; Linux does so
//! below a TUN device, with and without `VIRTIO_NET_HDR_GSO_ECN`. While that bit is set, packets hold one
//! segment each (§3.3.4): [`needs_single_segments`](Accurate::needs_single_segments). The bit is clear at
//! first, and changes only if the peer's packets are marked.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{AccEcn, Ecn as Mark};

use super::ace;
use super::config::EcnConfig;
use super::feedback::{Counted, Feedback, PeerCounts};
use super::option::OptionSender;
use super::segment::{Beside, Carrier, SegmentIn, Stamp, Urgency};
use crate::congestion::EcnUse;
use crate::words::{Duration, Instant};

/// SYN-ACKs that report the mark of the SYN, before one is sent without. §3.2.3.2.2.
const ANSWERS: u8 = 2;
/// Marks after which a count that begins at 5 reads as zero.
const MARKS_TO_ZERO: u64 = (ace::MODULUS - ace::FIRST_COUNT) as u64;
/// Marked packets after which an ACK leaves: while data is unacknowledged, and when there is none.
/// §3.2.2.5.1.
const UNREPORTED_WITH_DATA: u32 = 2;
const UNREPORTED: u32 = 3;

/// State of a connection with accurate ECN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accurate {
    /// We sent the first SYN.
    client: bool,
    /// The mark of the latest SYN or SYN-ACK from the peer.
    peer_syn: Mark,
    /// Our packets are not marked as ECN-capable, because the path does not support it.
    unmarked: bool,
    /// The first segment after the handshake has not arrived yet: its field must not be zero. §3.2.2.4.
    first_due: bool,
    /// The peer has sent a packet marked as ECN-capable.
    seen: bool,
    /// r.cep: packets of the peer that arrived marked. §3.2.1.
    marked_in: u32,
    /// Marked packets since the last ACK left.
    unreported: u32,
    last_was_marked: bool,
    /// The peer's bytes by mark, and the state of reporting them.
    option: OptionSender,
    /// The peer's counts of our packets.
    peer: PeerCounts,
}

impl Accurate {
    const fn new(client: bool, peer_syn: Mark) -> Self {
        Self {
            client,
            peer_syn,
            unmarked: false,
            first_due: client,
            seen: false,
            marked_in: ace::FIRST_COUNT,
            unreported: 0,
            last_was_marked: false,
            option: OptionSender::new(client),
            peer: PeerCounts::new(),
        }
    }

    /// A SYN that requests accurate ECN arrived with this mark. §3.2.2.2: the SYN-ACK reports it; it is not
    /// counted.
    pub(super) const fn server(syn: Mark) -> Self {
        Self::new(false, syn)
    }

    /// A server that has sent SYN-ACKs: what [`handshake`](Self::handshake) told.
    pub(super) const fn resumed_server(syn: Mark, unmarked: bool) -> Self {
        let mut server = Self::server(syn);
        server.unmarked = unmarked;
        server
    }

    /// All that a server's SYN-ACKs and the peer's SYNs have changed: the mark of the latest SYN, and whether
    /// our packets are not to be marked.
    pub(super) const fn handshake(&self) -> (Mark, bool) {
        (self.peer_syn, self.unmarked)
    }

    /// A SYN-ACK that agrees to accurate ECN arrived with this mark.
    pub(super) fn client(syn_ack: TcpFlags, mark: Mark, option: Option<AccEcn>) -> Self {
        let mut new = Self::new(true, mark);
        // Table 3.
        new.marked_in += u32::from(mark == Mark::Ce);
        new.unmarked = !ace::is_intact(ace::of(syn_ack));
        new.peer.on_first_option(option);
        new
    }

    /// Packets of the peer that arrived marked.
    pub(super) const fn received_ce(&self) -> u32 {
        self.marked_in.wrapping_sub(ace::FIRST_COUNT)
    }

    /// The peer's SYN arrived again.
    pub(super) fn on_repeated_syn(&mut self, flags: TcpFlags, mark: Mark) {
        self.peer_syn = mark;
        // §3.1.5: the client may fall back to no ECN.
        self.unmarked |= !flags.intersects(ace::ALL);
    }

    /// The SYN-ACK arrived again, because its ACK was lost. The latest mark is reported (§3.1.5), and only
    /// one is counted (§3.2.2.2). A SYN-ACK that does not agree to this kind of ECN is ignored.
    pub(super) fn on_repeated_syn_ack(&mut self, flags: TcpFlags, mark: Mark) {
        if !self.client || matches!(ace::of(flags), 0b000 | 0b001 | 0b111) {
            return;
        }
        self.peer_syn = mark;
        if mark == Mark::Ce {
            self.marked_in = self.marked_in.max(ace::FIRST_COUNT + 1);
        }
    }

    /// The flags, option and mark of a SYN-ACK after `retries` timeouts; `again`: a SYN-ACK has left before.
    pub(super) fn stamp_syn_ack(&mut self, config: &EcnConfig, retries: u8, again: bool) -> Stamp {
        let gives_up = config.fallback && retries >= ANSWERS;
        self.unmarked |= gives_up;
        // Table 2.
        let flags = if gives_up { TcpFlags::NONE } else { ace::flags(ace::code(self.peer_syn)) };
        let beside = Beside { timestamps: true, sack_blocks: 0 };
        Stamp { flags, option: self.option.option(Carrier::SynAck { again }, beside), mark: Mark::NotEct }
    }

    /// The segment that ends the handshake arrived at a server. `pure`: it is only an ACK, and its field
    /// reports the mark of our SYN-ACK: table 4. Returns whether that was marked.
    pub(super) fn on_handshake_ack(&mut self, flags: TcpFlags, option: Option<AccEcn>, pure: bool) -> bool {
        self.peer.on_first_option(option);
        self.first_due = pure;
        if !pure {
            // No packet that could have been counted was sent yet.
            self.on_first(flags, 0);
            return false;
        }
        let code = ace::of(flags);
        self.refuse_zero(code);
        self.unmarked |= !ace::is_intact(code);
        let marked = code == ace::MARKED;
        if marked {
            self.peer.on_marked_syn_ack();
        }
        marked
    }

    /// No segment has arrived since the handshake.
    pub(super) const fn awaits_first(&self) -> bool {
        self.first_due
    }

    /// That segment arrived; it acknowledges `acks` segments of ours.
    fn on_first(&mut self, flags: TcpFlags, acks: u64) {
        self.first_due = false;
        if acks < MARKS_TO_ZERO {
            self.refuse_zero(ace::of(flags));
        }
    }

    /// A field is zero that cannot be zero: the path clears it. §3.2.2.1, note 1, and §3.2.2.4.
    const fn refuse_zero(&mut self, field: u32) {
        if field == 0 {
            self.unmarked = true;
            self.peer.disbelieve();
        }
    }

    pub(super) const fn seen(&self) -> bool {
        self.seen
    }

    /// An acceptable segment arrived: packets are counted by their marks, whatever they carry (§3.2).
    pub(super) fn on_segment(&mut self, segment: &SegmentIn) -> Urgency {
        let SegmentIn { mark, segs, bytes, .. } = *segment;
        if let Some(acks) = segment.first_acks {
            self.on_first(segment.flags, acks);
        }
        self.seen |= mark != Mark::NotEct;
        self.option.on_bytes(mark, bytes);
        let marked = mark == Mark::Ce;
        let begins = marked && !self.last_was_marked && bytes > 0;
        self.last_was_marked = marked;
        if marked {
            self.marked_in = self.marked_in.wrapping_add(segs);
            self.unreported = self.unreported.saturating_add(segs);
        }
        let most = if segment.owed || bytes > 0 { UNREPORTED_WITH_DATA } else { UNREPORTED };
        if begins || self.unreported >= most { Urgency::Ack } else { Urgency::None }
    }

    /// Data arrived that had been acknowledged before.
    pub(super) fn on_repeated_data(&mut self) {
        self.option.on_repeated_data();
    }

    /// Whether we are the client, whose first ACK reports the mark of the SYN-ACK.
    pub(super) const fn is_client(&self) -> bool {
        self.client
    }

    /// Whether the bit that segmentation takes for CWR is set.
    pub(super) const fn needs_single_segments(&self) -> bool {
        self.marked_in & 0b010 != 0
    }

    /// The connection is asked for a packet at `now`.
    pub(super) fn before_packet(&mut self, config: &EcnConfig, now: Instant, srtt: Option<Duration>) {
        self.option.before_packet(config, now, srtt);
    }

    /// The option of a segment that would leave now.
    pub(super) fn option(&self, carrier: Carrier, beside: Beside) -> Option<AccEcn> {
        self.option.option(carrier, beside)
    }

    /// The flags, option and mark of a segment that leaves now.
    pub(super) fn stamp(&mut self, carrier: Carrier, wanted: EcnUse, beside: Beside) -> Stamp {
        // §3.2.2.1: the client's first ACK reports the mark of the SYN-ACK. A server reports in its SYN-ACK.
        let carrier = if carrier == Carrier::AckOfSyn && !self.client { Carrier::Ack } else { carrier };
        let field = if carrier == Carrier::AckOfSyn { ace::code(self.peer_syn) } else { self.marked_in };
        self.unreported = 0;
        Stamp { flags: ace::flags(field), option: self.option.send(carrier, beside), mark: self.mark(wanted) }
    }

    /// Every segment but a SYN is ECN-capable, as in Linux 7.0: the peer counts marks on pure ACKs, FINs and
    /// retransmissions, too, and a queue that marks drops other packets instead. RFC 3168 §6.1.4 and §6.1.5
    /// exclude pure ACKs and retransmissions; RFC 8311 §4.3 permits experiments without these rules.
    /// ECT(1) promises that the sender accepts early and frequent marks (RFC 9331 §4.1).
    fn mark(&self, wanted: EcnUse) -> Mark {
        match wanted {
            _ if self.unmarked => Mark::NotEct,
            EcnUse::L4s => Mark::Ect1,
            EcnUse::Classic | EcnUse::Precise => Mark::Ect0,
        }
    }

    /// The segment that was stamped last did not leave.
    pub(super) fn take_back(&mut self) {
        self.option.take_back();
    }

    /// The marks on our packets that an ACK reports.
    pub(super) fn feedback(&self, flags: TcpFlags, option: Option<AccEcn>) -> Feedback {
        self.peer.read(flags, option)
    }

    /// The ACK with these differences delivered `delivered` packets, of which `marked` were taken for marked.
    pub(super) fn on_ack(&mut self, ack: Counted, delivered: u32, marked: u32) {
        self.unmarked |= self.peer.on_ack(ack, delivered, marked);
    }
}
