//! Accurate ECN: both ends count what was marked, and every segment carries the count.
//! RFC 9768: §3.1 what SYNs say, §3.2.2 the ACE field, §3.2.3 the option. Called by `ecn/mod.rs`; how many packets
//! an ACK then reports is counted in `feedback.rs`.
//!
//! **Problem.** ECE says that there was a mark, once a round trip; DCTCP's echo says it exactly, but only while no ACK is
//! lost, and only to a peer that was told to listen so.
//!
//! **Rule.** The receiver counts marked packets, and the low three bits of the count stand where AE, CWR and ECE were: the
//! ACE field. Whether those went round between two ACKs is told by the AccECN option, which counts bytes.
//!
//! **Broken paths.** What something on the way does to SYNs, to the field or to the option it will do to more: after signs
//! of that nothing is marked as capable any more (§3.2.2.3, §3.2.2.4, §3.2.3.2.5), or what the option says is not read
//! (§3.2.3.2.4). What arrives is counted and told in any case (§3.1.5).
//!
//! **Segmentation.** All segments of a super-packet may carry one ACE field. But what cuts them up by the rules of
//! RFC 3168 takes the middle bit for CWR, and leaves it on the first segment only; so does Linux below a TUN device, with
//! and without `VIRTIO_NET_HDR_GSO_ECN`. While that bit is set, packets hold one segment each (§3.3.4):
//! [`needs_single_segments`](Accurate::needs_single_segments). The count starts with it clear, and moves only where the
//! peer's packets are marked.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{AccEcn, Ecn as Mark};

use super::feedback::{Bytes, Counted};
use super::option::{Carrier, OptionSender};
use super::{Carries, Urgency, ace};
use crate::congestion::EcnUse;
use crate::recovery::AckOutcome;

/// Marked packets after which an ACK leaves: while data is unacknowledged, and when there is none. §3.2.2.5.1.
const UNSAID_WITH_DATA: u32 = 2;
const UNSAID: u32 = 3;

/// Payload bytes received, by mark. §3.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) ect0: u32,
    pub(super) ce: u32,
    pub(super) ect1: u32,
}

impl Received {
    pub(super) const FIRST: Self = Self { ect0: 1, ce: 0, ect1: 1 };

    /// The counter that bytes with this mark go to.
    const fn of(&mut self, mark: Mark) -> Option<&mut u32> {
        match mark {
            Mark::NotEct => None,
            Mark::Ect0 => Some(&mut self.ect0),
            Mark::Ect1 => Some(&mut self.ect1),
            Mark::Ce => Some(&mut self.ce),
        }
    }
}

/// State of a connection that both ends agreed to count on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accurate {
    /// We sent the first SYN.
    client: bool,
    /// How the peer's SYN or SYN-ACK was marked, the latest that came.
    peer_syn: Mark,
    /// Nothing of ours is marked as capable: something on the way does not bear it.
    unmarked: bool,
    /// What the peer says of marks is not believed. §3.2.2.1, note 1, and §3.2.2.4.
    deaf: bool,
    /// The first segment after the handshake has not come: its field must not be zero. §3.2.2.4.
    first_due: bool,

    /// r.cep: packets of the peer's that arrived marked.
    cep: u32,
    received: Received,
    option: OptionSender,
    /// Marked packets since an ACK left.
    unsaid: u32,
    last_was_marked: bool,

    /// s.cep: packets of ours that the peer counts as marked.
    sent_cep: u32,
    /// s.ceb, as of the last option with it; modulo 2²⁴.
    sent_ceb: u32,
    /// The peer sends options.
    has_options: bool,
    /// Something on the way zeroes them. §3.2.3.2.4.
    zeroed: bool,
    /// Packets delivered, and counted as marked, since the last option.
    delivered: u32,
    counted: u32,
}

impl Accurate {
    fn new(client: bool, peer_syn: Mark) -> Self {
        Self {
            client,
            peer_syn,
            unmarked: false,
            deaf: false,
            first_due: client,
            cep: ace::FIRST_COUNT,
            received: Received::FIRST,
            option: OptionSender::new(client),
            unsaid: 0,
            last_was_marked: false,
            sent_cep: ace::FIRST_COUNT,
            sent_ceb: 0,
            has_options: false,
            zeroed: false,
            delivered: 0,
            counted: 0,
        }
    }

    /// A SYN that asks came, marked so. §3.2.2.2: it is told of in the SYN-ACK, and not counted.
    pub(super) fn server(syn: Mark) -> Self {
        Self::new(false, syn)
    }

    /// A SYN-ACK that agrees came, marked so.
    pub(super) fn client(syn_ack: TcpFlags, mark: Mark, option: Option<AccEcn>) -> Self {
        let mut new = Self::new(true, mark);
        // Table 3.
        new.cep += u32::from(mark == Mark::Ce);
        new.unmarked = !ace::is_intact(ace::of(syn_ack));
        new.note_first_option(option);
        new
    }

    /// The SYN-ACK came again: its ACK was lost. The latest mark is told (§3.1.5), and one is counted (§3.2.2.2).
    pub(super) fn on_syn_ack_again(&mut self, mark: Mark) {
        self.peer_syn = mark;
        if mark == Mark::Ce {
            self.cep = self.cep.max(ace::FIRST_COUNT + 1);
        }
    }

    /// What acknowledges our SYN came, with this option.
    fn note_first_option(&mut self, option: Option<AccEcn>) {
        self.has_options = option.is_some();
        self.zeroed = option.is_some_and(|option| option.ee0b == Some(0) || option.ee1b == Some(0));
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
    pub(super) fn give_up_marking(&mut self) {
        self.unmarked = true;
    }

    /// The segment that ends the handshake came to a server. `pure`: it is nothing but an ACK, and its field says how our
    /// SYN-ACK came: table 4. True if marked.
    pub(super) fn on_handshake_ack(&mut self, flags: TcpFlags, option: Option<AccEcn>, pure: bool) -> bool {
        self.note_first_option(option);
        self.first_due = pure;
        let code = ace::of(flags);
        if !pure {
            // Nothing was sent yet that could have been counted.
            self.on_first(flags, true);
            return false;
        }
        if code == 0 {
            self.unmarked = true;
            self.deaf = true;
        }
        self.unmarked |= !ace::is_intact(code);
        let marked = code == ace::MARKED;
        self.sent_cep += u32::from(marked);
        marked
    }

    /// No segment has come since the handshake.
    pub(super) const fn awaits_first(&self) -> bool {
        self.first_due
    }

    /// It came. `few`: it acknowledges too little for the peer to have counted from 5 to 8.
    pub(super) fn on_first(&mut self, flags: TcpFlags, few: bool) {
        self.first_due = false;
        if few && ace::of(flags) == 0 {
            self.unmarked = true;
            self.deaf = true;
        }
    }

    /// The ACE field of a segment. `acks_syn`: it is a pure ACK for the peer's SYN and no more.
    pub(super) fn flags(&self, acks_syn: bool) -> TcpFlags {
        ace::flags(if acks_syn && self.client { ace::code(self.peer_syn) } else { self.cep })
    }

    /// We are the client, and it is its ACK that tells how the SYN-ACK was marked.
    pub(super) const fn is_client(&self) -> bool {
        self.client
    }

    /// The bit that segmentation takes for CWR is set.
    pub(super) const fn needs_single_segments(&self) -> bool {
        self.cep & 0b010 != 0
    }

    /// How a packet is marked. RFC 3168 §6.1.4 and §6.1.5 still hold for what is sent again and for ACKs (RFC 9768 §4);
    /// but DCTCP's data is to be marked where it would be dropped. ECT(1) is a promise to bear marks that come early
    /// and often (RFC 9331 §4.1).
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

    /// An acceptable packet came: `segs` of them, with `bytes` in all. `owed`: data is not acknowledged.
    pub(super) fn on_packet(&mut self, mark: Mark, segs: u32, bytes: u32, owed: bool) -> Urgency {
        if let Some(counter) = self.received.of(mark).filter(|_| bytes > 0) {
            let before = *counter;
            *counter = counter.wrapping_add(bytes);
            self.option.on_bytes(mark, before, *counter);
        }
        let marked = mark == Mark::Ce;
        let begins = marked && !self.last_was_marked && bytes > 0;
        self.last_was_marked = marked;
        if marked {
            self.cep = self.cep.wrapping_add(segs);
            self.unsaid = self.unsaid.saturating_add(segs);
        }
        let most = if owed || bytes > 0 { UNSAID_WITH_DATA } else { UNSAID };
        Urgency { now: begins || self.unsaid >= most, quick: false }
    }

    /// When and whether the option goes out.
    pub(super) const fn option_mut(&mut self) -> &mut OptionSender {
        &mut self.option
    }

    /// The option of a segment.
    pub(super) fn option(&self, on: Carrier) -> Option<AccEcn> {
        self.option.option(self.received, on)
    }

    /// A segment leaves with the field, and perhaps with the option.
    pub(super) fn note_said(&mut self, on: Carrier, option: bool) {
        self.unsaid = 0;
        self.option.note_said(self.received, on, option);
    }

    /// Marked bytes do not become fewer: it was sent before the last one that came.
    fn is_overtaken(&self, option: Option<AccEcn>) -> bool {
        let ceb = option.filter(|_| !self.zeroed).and_then(|option| option.eceb).unwrap_or(self.sent_ceb);
        ceb.wrapping_sub(self.sent_ceb) % AccEcn::MODULUS >= AccEcn::MODULUS / 2
    }

    /// What an ACK says of our packets, if its sender is to be believed.
    pub(super) fn feedback(&self, flags: TcpFlags, option: Option<AccEcn>) -> Option<Counted> {
        if self.deaf || self.is_overtaken(option) {
            return None;
        }
        let packets = ace::of(flags).wrapping_sub(self.sent_cep) & (ace::MODULUS - 1);
        let moved = |ceb: u32| Bytes::Moved {
            bytes: ceb.wrapping_sub(self.sent_ceb) % AccEcn::MODULUS,
            delivered: self.delivered,
            counted: self.counted,
        };
        let bytes = match option.filter(|_| !self.zeroed).map(|option| option.eceb) {
            Some(Some(ceb)) => moved(ceb),
            // Not counted yet, or else not changed: then it may be that another with the change was lost.
            Some(None) if self.sent_ceb == 0 => moved(0),
            _ if self.has_options && !self.zeroed => Bytes::Absent,
            _ => Bytes::Never,
        };
        Some(Counted { packets, bytes })
    }

    /// The ACK was taken for as many marks as `outcome` says. One that brought nothing may have been overtaken
    /// (appendix A.1), and counts for nothing.
    pub(super) fn on_ack(&mut self, option: Option<AccEcn>, outcome: &AckOutcome) {
        if (!outcome.advanced && outcome.delivered_segs == 0) || self.is_overtaken(option) {
            return;
        }
        self.sent_cep = self.sent_cep.wrapping_add(outcome.delivered_ce);
        self.has_options |= option.is_some();
        self.delivered = self.delivered.saturating_add(outcome.delivered_segs);
        self.counted = self.counted.saturating_add(outcome.delivered_ce);
        if let Some(option) = option.filter(|_| !self.zeroed)
            && (option.eceb.is_some() || self.sent_ceb == 0)
        {
            let ceb = option.eceb.unwrap_or(0);
            // §3.2.3.2.5: marked bytes without a marked packet. Eight packets or more would have been taken for marked.
            self.unmarked |= ceb != self.sent_ceb && self.counted == 0;
            self.sent_ceb = ceb;
            self.delivered = 0;
            self.counted = 0;
        }
    }
}
