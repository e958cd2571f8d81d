//! Accurate ECN: both ends count what was marked, and every segment carries the count.
//! RFC 9768: §3.1 what SYNs say, §3.2.2 the ACE field. Called by `ecn/mod.rs`; the option (§3.2.3) is `option.rs`, and what
//! the peer's counts say of our packets is `feedback.rs`.
//!
//! **Problem.** ECE says that there was a mark, once a round trip; DCTCP's echo says it exactly, but only while no ACK is
//! lost, and only to a peer that was told to listen so.
//!
//! **Rule.** The receiver counts marked packets, and the low three bits of the count stand where AE, CWR and ECE were: the
//! ACE field (`ace.rs`). Whether those went round between two ACKs is told by the AccECN option, which counts bytes.
//!
//! **Broken paths.** What something on the way does to SYNs, to the field or to the option it will do to more: after signs
//! of that nothing is marked as capable any more (§3.2.2.3, §3.2.2.4, §3.2.3.2.5), or what the option says is not read
//! (§3.2.3.2.4). What arrives is counted and reported in any case (§3.1.5).
//!
//! **Segmentation.** All segments of a super-packet may carry one ACE field. But what cuts them up by the rules of
//! RFC 3168 takes the middle bit for CWR, and leaves it on the first segment only; so does Linux below a TUN device, with
//! and without `VIRTIO_NET_HDR_GSO_ECN`. While that bit is set, packets hold one segment each (§3.3.4):
//! [`needs_single_segments`](Accurate::needs_single_segments). The count starts with it clear, and moves only where the
//! peer's packets are marked.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{AccEcn, Ecn as Mark};

use super::feedback::{Counted, Feedback, PeerCounts};
use super::option::{Carrier, OptionSender};
use super::{Carries, Urgency, ace};
use crate::congestion::EcnUse;

/// Marked packets after which an ACK leaves: while data is unacknowledged, and when there is none. §3.2.2.5.1.
const UNREPORTED_WITH_DATA: u32 = 2;
const UNREPORTED: u32 = 3;

/// State of a connection that both ends agreed to count on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accurate {
    /// We sent the first SYN.
    client: bool,
    /// How the peer's SYN or SYN-ACK was marked, the latest that came.
    peer_syn: Mark,
    /// Nothing of ours is marked as capable: something on the way does not bear it.
    unmarked: bool,
    /// The first segment after the handshake has not come: its field must not be zero. §3.2.2.4.
    first_due: bool,
    /// A packet of the peer's was marked as capable.
    seen: bool,
    /// r.cep: packets of the peer's that arrived marked. §3.2.1.
    marked_in: u32,
    /// Those since an ACK left.
    unreported: u32,
    last_was_marked: bool,
    /// Bytes of the peer's that arrived marked, and when that is said.
    option: OptionSender,
    /// What the peer counts of ours.
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

    /// A SYN that asks came, marked so. §3.2.2.2: the SYN-ACK says it, and it is not counted.
    pub(super) const fn server(syn: Mark) -> Self {
        Self::new(false, syn)
    }

    /// A SYN-ACK that agrees came, marked so.
    pub(super) fn client(syn_ack: TcpFlags, mark: Mark, option: Option<AccEcn>) -> Self {
        let mut new = Self::new(true, mark);
        // Table 3.
        new.marked_in += u32::from(mark == Mark::Ce);
        new.unmarked = !ace::is_intact(ace::of(syn_ack));
        new.peer.on_first_option(option);
        new
    }

    /// The SYN-ACK came again: its ACK was lost. The latest mark is told (§3.1.5), and one is counted (§3.2.2.2).
    pub(super) fn on_syn_ack_again(&mut self, mark: Mark) {
        self.peer_syn = mark;
        if mark == Mark::Ce {
            self.marked_in = self.marked_in.max(ace::FIRST_COUNT + 1);
        }
    }

    /// The peer's SYN came again, after it was taken.
    pub(super) fn on_syn_again(&mut self, flags: TcpFlags, mark: Mark) {
        self.peer_syn = mark;
        // §3.1.5: the client may end without ECN.
        self.unmarked |= !flags.intersects(ace::ALL);
    }

    /// Flags of the SYN-ACK. Table 2.
    pub(super) fn syn_ack_flags(&self) -> TcpFlags {
        ace::flags(ace::code(self.peer_syn))
    }

    /// A SYN-ACK goes out that does not say so. §3.2.3.2.2.
    pub(super) const fn give_up_marking(&mut self) {
        self.unmarked = true;
    }

    /// The segment that ends the handshake came to a server. `pure`: it is nothing but an ACK, and its field says how our
    /// SYN-ACK came: table 4. True if marked.
    pub(super) fn on_handshake_ack(&mut self, flags: TcpFlags, option: Option<AccEcn>, pure: bool) -> bool {
        self.peer.on_first_option(option);
        self.first_due = pure;
        if !pure {
            // Nothing was sent yet that could have been counted.
            self.on_first(flags, true);
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

    /// No segment has come since the handshake.
    pub(super) const fn awaits_first(&self) -> bool {
        self.first_due
    }

    /// It came. `few`: it acknowledges too little for the peer to have counted from 5 to 8.
    pub(super) fn on_first(&mut self, flags: TcpFlags, few: bool) {
        self.first_due = false;
        if few {
            self.refuse_zero(ace::of(flags));
        }
    }

    /// A field that cannot be zero is: something on the way clears it. §3.2.2.1, note 1, and §3.2.2.4.
    const fn refuse_zero(&mut self, field: u32) {
        if field == 0 {
            self.unmarked = true;
            self.peer.disbelieve();
        }
    }

    pub(super) const fn seen(&self) -> bool {
        self.seen
    }

    /// An acceptable packet came: `segs` of them, with `bytes` in all. `owed`: data is not acknowledged.
    pub(super) fn on_packet(&mut self, mark: Mark, segs: u32, bytes: u32, owed: bool) -> Urgency {
        self.seen |= mark != Mark::NotEct;
        self.option.on_bytes(mark, bytes);
        let marked = mark == Mark::Ce;
        let begins = marked && !self.last_was_marked && bytes > 0;
        self.last_was_marked = marked;
        if marked {
            self.marked_in = self.marked_in.wrapping_add(segs);
            self.unreported = self.unreported.saturating_add(segs);
        }
        let most = if owed || bytes > 0 { UNREPORTED_WITH_DATA } else { UNREPORTED };
        Urgency { now: begins || self.unreported >= most, quick: false }
    }

    /// The ACE field of a segment. `acks_syn`: it is a pure ACK for the peer's SYN and no more.
    pub(super) fn flags(&self, acks_syn: bool) -> TcpFlags {
        ace::flags(if acks_syn && self.client { ace::code(self.peer_syn) } else { self.marked_in })
    }

    /// We are the client, and it is its ACK that tells how the SYN-ACK was marked.
    pub(super) const fn is_client(&self) -> bool {
        self.client
    }

    /// The bit that segmentation takes for CWR is set.
    pub(super) const fn needs_single_segments(&self) -> bool {
        self.marked_in & 0b010 != 0
    }

    /// How a packet is marked. RFC 3168 §6.1.4 and §6.1.5 still hold for retransmissions and for ACKs (RFC 9768 §4); but
    /// DCTCP's data is marked where it would be dropped. ECT(1) is a promise to bear marks that come early and often
    /// (RFC 9331 §4.1).
    pub(super) fn mark(&self, carries: Carries, wanted: EcnUse) -> Mark {
        let capable = match carries {
            Carries::New => true,
            Carries::Again => wanted != EcnUse::Classic,
            Carries::Nothing => false,
        };
        match wanted {
            _ if !capable || self.unmarked => Mark::NotEct,
            EcnUse::L4s => Mark::Ect1,
            EcnUse::Classic | EcnUse::Precise => Mark::Ect0,
        }
    }

    /// When and whether the option goes out.
    pub(super) const fn option_mut(&mut self) -> &mut OptionSender {
        &mut self.option
    }

    /// The option of a segment.
    pub(super) fn option(&self, on: Carrier) -> Option<AccEcn> {
        self.option.wanted(on)
    }

    /// A segment leaves with the field, and perhaps with the option.
    pub(super) fn note_said(&mut self, on: Carrier, option: bool) {
        self.unreported = 0;
        self.option.on_sent(on, option);
    }

    /// What an ACK says of our packets.
    pub(super) fn feedback(&self, flags: TcpFlags, option: Option<AccEcn>) -> Feedback {
        self.peer.read(flags, option)
    }

    /// The ACK with these differences delivered so many packets, and so many were taken for marked.
    pub(super) fn on_ack(&mut self, ack: Counted, delivered: u32, marked: u32) {
        self.unmarked |= self.peer.on_ack(ack, delivered, marked);
    }
}
