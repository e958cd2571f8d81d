//! Explicit congestion notification: what is asked for and agreed on in the SYNs, what is told to the peer about marks,
//! and which of our packets may be marked.
//! RFC 3168 §6.1 with Linux's `tcp_ecn` and `tcp_ecn_fallback`; RFC 8257 §3.2 for the exact echo of DCTCP; RFC 9768,
//! with its counters in `accurate.rs` and its option in `option.rs`.
//! Called by the handshake, by arrival and by output; what an echo does to the window is `recovery/`'s affair.

mod accurate;
mod ace;
mod config;
mod feedback;
mod negotiate;
mod option;

use alloc::collections::VecDeque;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{AccEcn, Ecn as Mark};

use crate::congestion::EcnUse;
use crate::recovery::AckOutcome;
use crate::words::{Duration, Instant};
use accurate::Accurate;
pub use config::{EcnConfig, EcnOptionUse, EcnPolicy};
pub(crate) use feedback::Feedback;
use negotiate::Mode;
pub(crate) use negotiate::{Mode as EcnMode, Request};
use option::Carrier;
pub(crate) use option::Carrier as Said;

/// What a packet carries, as far as its mark goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Data that was never sent before.
    New,
    /// Data sent again.
    Again,
    /// No data.
    Nothing,
}

/// SYN-ACKs that agree to RFC 9768 before one does not. §3.2.3.2.2.
const ANSWERS_ACCURATE: u8 = 2;
/// ACKs of the other marking that may wait to leave; more are joined into the last.
const TURNS_MAX: usize = 8;

/// An ACK that must leave before anything else does: it acknowledges up to a change of marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// RCV.NXT then.
    pub(crate) ack: u64,
    /// What it acknowledges was marked.
    pub(crate) marked: bool,
}

/// ECN of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Ecn {
    mode: Mode,
    /// What some SYN of ours asked for.
    asked: Request,
    /// ECE goes out: until CWR comes, or as long as marks come.
    echo: bool,
    /// A packet of the peer's was marked as capable. Linux: `TCPI_OPT_ECN_SEEN`.
    seen: bool,
    /// Our SYN or SYN-ACK arrived marked, and nothing was done about it yet.
    marked_syn: bool,
    /// Segments that the peer reported as marked, wrapping.
    delivered_ce: u32,
    turns: VecDeque<Turn>,
    accurate: Option<Accurate>,
}

/// The peer's SYN or SYN-ACK, as far as ECN goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSyn {
    pub(crate) flags: TcpFlags,
    /// ECN field of the packet it came in.
    pub(crate) mark: Mark,
    pub(crate) option: Option<AccEcn>,
}

/// What the marks of a data segment ask of the delayed ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Urgency {
    /// Acknowledge at once.
    pub(crate) now: bool,
    /// The next few ACKs should not wait either.
    pub(crate) quick: bool,
}

impl Ecn {
    /// Nothing asked, nothing agreed.
    pub(crate) const OFF: Self = Self {
        mode: Mode::Off,
        asked: Request::Nothing,
        echo: false,
        seen: false,
        marked_syn: false,
        delivered_ce: 0,
        turns: VecDeque::new(),
        accurate: None,
    };

    /// ECN is in use.
    pub(crate) fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    pub(crate) const fn seen(&self) -> bool {
        self.seen
    }

    pub(crate) const fn delivered_ce(&self) -> u32 {
        self.delivered_ce
    }

    /// A SYN that asks leaves.
    pub(crate) const fn note_asked(&mut self, request: Request) {
        self.asked = request;
    }

    /// The peer's SYN came, in a packet marked `mark`: what holds then.
    pub(crate) fn on_syn(config: &EcnConfig, wanted: EcnUse, flags: TcpFlags, mark: Mark) -> Mode {
        negotiate::on_syn(config, wanted, flags, mark)
    }

    /// The peer's SYN-ACK came: what holds then.
    pub(crate) fn on_syn_ack(&self, wanted: EcnUse, flags: TcpFlags) -> Mode {
        self.asked.on_syn_ack(wanted, flags)
    }

    /// Both ends agreed, by this `syn` of the peer's.
    pub(crate) fn begin(&mut self, mode: Mode, syn: PeerSyn) {
        self.mode = mode;
        if mode == Mode::Accurate {
            self.accurate = Some(if syn.flags.contains(TcpFlags::ACK) {
                self.marked_syn = ace::of(syn.flags) == ace::MARKED;
                Accurate::client(syn.flags, syn.mark, syn.option)
            } else {
                Accurate::server(syn.mark)
            });
        }
    }

    /// The peer's SYN came again. False when it asks for another kind of ECN than the first.
    #[must_use]
    pub(crate) fn on_syn_again(&mut self, config: &EcnConfig, flags: TcpFlags, mark: Mark) -> bool {
        if self.is_on() && negotiate::contradicts(config, self.accurate.is_some(), flags) {
            return false;
        }
        if let Some(accurate) = &mut self.accurate {
            accurate.on_syn_again(flags, mark);
        }
        true
    }

    /// The SYN-ACK came again.
    pub(crate) fn on_syn_ack_again(&mut self, flags: TcpFlags, mark: Mark) {
        if let Some(accurate) = self.accurate.as_mut().filter(|accurate| accurate.is_client())
            && !matches!(ace::of(flags), 0b000 | 0b001 | 0b111)
        {
            accurate.on_syn_ack_again(mark);
        }
    }

    /// The segment came that ends the handshake of a server; `pure`: an ACK without data, and without SACK blocks.
    /// RFC 9768 table 4; without that ECE says it (RFC 5562 §3), where our SYN-ACK could be marked.
    pub(crate) fn on_handshake_ack(&mut self, flags: TcpFlags, option: Option<AccEcn>, pure: bool) {
        self.marked_syn = match &mut self.accurate {
            Some(accurate) => accurate.on_handshake_ack(flags, option, pure),
            None => self.mode == Mode::Dctcp && flags.contains(TcpFlags::ECE),
        };
        self.delivered_ce = self.delivered_ce.wrapping_add(u32::from(self.marked_syn));
    }

    /// Our SYN or SYN-ACK arrived marked: once. RFC 9768 §3.2.2.2: the congestion control is to act on it.
    pub(crate) fn take_marked_syn(&mut self) -> bool {
        core::mem::take(&mut self.marked_syn)
    }

    /// No segment has come since the handshake.
    pub(crate) fn awaits_first(&self) -> bool {
        self.accurate.as_ref().is_some_and(Accurate::awaits_first)
    }

    /// It came. `few`: it acknowledges too little for the peer to have counted from 5 to 8.
    pub(crate) fn on_first(&mut self, flags: TcpFlags, few: bool) {
        if let Some(accurate) = &mut self.accurate {
            accurate.on_first(flags, few);
        }
    }

    /// Flags of our SYN-ACK, sent for the `retries`-th time again.
    pub(crate) fn syn_ack_flags(&mut self, config: &EcnConfig, retries: u8) -> TcpFlags {
        let classic = if self.is_on() { TcpFlags::ECE } else { TcpFlags::NONE };
        match &mut self.accurate {
            Some(accurate) if config.fallback && retries >= ANSWERS_ACCURATE => {
                accurate.give_up_marking();
                TcpFlags::NONE
            }
            Some(accurate) => accurate.syn_ack_flags(),
            None => classic,
        }
    }

    /// How our SYN-ACK is marked.
    pub(crate) fn syn_ack_mark(&self) -> Mark {
        if self.mode == Mode::Dctcp { Mark::Ect0 } else { Mark::NotEct }
    }

    /// How a packet of ours is marked. RFC 3168 §6.1.4, §6.1.5: neither pure ACKs nor what is sent again; DCTCP, as
    /// in Linux, marks all it sends, or its own packets would fare worse than data at a queue that marks.
    pub(crate) fn mark(&self, carries: Carries, wanted: EcnUse) -> Mark {
        match (self.mode, &self.accurate) {
            (_, Some(accurate)) => accurate.mark(carries, wanted),
            (Mode::Classic, _) if carries == Carries::New => Mark::Ect0,
            (Mode::Dctcp, _) => Mark::Ect0,
            _ => Mark::NotEct,
        }
    }

    /// Flags of every segment after the handshake. `acks_syn`: it acknowledges the peer's SYN and does nothing else.
    pub(crate) fn echo_flags(&self, acks_syn: bool) -> TcpFlags {
        match &self.accurate {
            Some(accurate) => accurate.flags(acks_syn),
            None if self.echo => TcpFlags::ECE,
            None => TcpFlags::NONE,
        }
    }

    /// A packet is asked for: what holds for its option. `srtt`: of the connection.
    pub(crate) fn prepare(&mut self, config: &EcnConfig, now: Instant, srtt: Option<Duration>) {
        if let Some(accurate) = &mut self.accurate {
            accurate.option_mut().prepare(config, now, srtt);
        }
    }

    /// The option of a segment beside as many `sack_blocks`.
    pub(crate) fn option(&self, on: Carrier, timestamps: bool, sack_blocks: usize) -> Option<AccEcn> {
        let option = self.accurate.as_ref()?.option(on)?;
        option::fits(option, timestamps, sack_blocks).then_some(option)
    }

    /// A segment leaves, perhaps with the option.
    pub(crate) fn note_said(&mut self, on: Carrier, option: bool) {
        if let Some(accurate) = &mut self.accurate {
            accurate.note_said(on, option);
        }
    }

    /// The device would not take it.
    pub(crate) fn note_unsaid(&mut self) {
        if let Some(accurate) = &mut self.accurate {
            accurate.option_mut().note_unsaid();
        }
    }

    /// Data came again that was acknowledged.
    pub(crate) fn on_repeated(&mut self) {
        if let Some(accurate) = &mut self.accurate {
            accurate.option_mut().on_repeated();
        }
    }

    /// The peer is told of reductions (RFC 3168 §6.1.2); RFC 9768 §3.1.5 has no need, and the flag is taken.
    pub(crate) fn says_cwr(&self) -> bool {
        matches!(self.mode, Mode::Classic | Mode::Dctcp)
    }

    /// The ACK of a client's handshake must leave before anything else does (RFC 9768 §3.2.2.1).
    pub(crate) fn acks_syn_first(&self) -> bool {
        self.accurate.as_ref().is_some_and(Accurate::is_client)
    }

    /// See [`accurate`].
    pub(crate) fn needs_single_segments(&self) -> bool {
        self.accurate.as_ref().is_some_and(Accurate::needs_single_segments)
    }

    /// What the peer says of marks on our packets.
    pub(crate) fn feedback(&self, flags: TcpFlags, option: Option<AccEcn>) -> Feedback {
        match &self.accurate {
            Some(accurate) => accurate.feedback(flags, option).map_or(Feedback::None, Feedback::Counted),
            None if self.is_on() && flags.contains(TcpFlags::ECE) => Feedback::Echo,
            None => Feedback::None,
        }
    }

    /// An ACK was taken in.
    pub(crate) fn on_ack(&mut self, option: Option<AccEcn>, outcome: &AckOutcome) {
        self.delivered_ce = self.delivered_ce.wrapping_add(outcome.delivered_ce);
        if let Some(accurate) = &mut self.accurate {
            accurate.on_ack(option, outcome);
        }
    }

    /// An acceptable packet came, of `segs` segments with `bytes` in all. `owed`: data is not acknowledged.
    pub(crate) fn on_packet(&mut self, mark: Mark, segs: u32, bytes: u32, owed: bool) -> Urgency {
        let Some(accurate) = &mut self.accurate else { return Urgency::default() };
        self.seen |= mark != Mark::NotEct;
        accurate.on_packet(mark, segs, bytes, owed)
    }

    /// Data came with this mark. `owed`: an ACK up to `rcv_nxt` is, for what came before.
    pub(crate) fn on_data(&mut self, flags: TcpFlags, mark: Mark, rcv_nxt: u64, owed: bool) -> Urgency {
        if !self.is_on() || self.mode == Mode::Accurate {
            return Urgency::default();
        }
        let mut urgency = Urgency::default();
        if flags.contains(TcpFlags::CWR) {
            // §6.1.3. The peer's window may be down to this segment (Linux: acknowledged at once).
            self.echo &= self.mode != Mode::Classic;
            urgency.now = true;
        }
        let marked = mark == Mark::Ce;
        if self.mode == Mode::Dctcp && mark != Mark::NotEct && marked != self.echo {
            // RFC 8257 §3.2: an ACK for what came under the other marking, then one for this.
            if owed {
                self.push_turn(Turn { ack: rcv_nxt, marked: self.echo });
            }
            self.echo = marked;
            urgency = Urgency { now: true, quick: marked };
        } else if self.mode == Mode::Classic && marked && !self.echo {
            self.echo = true;
            urgency.quick = true;
        }
        // Linux: an unmarked segment among marked ones is probably one sent again, whose sender waits.
        urgency.quick |= mark == Mark::NotEct && self.seen;
        self.seen |= mark != Mark::NotEct;
        urgency
    }

    fn push_turn(&mut self, turn: Turn) {
        if self.turns.len() == TURNS_MAX {
            self.turns.pop_back();
        }
        self.turns.push_back(turn);
    }

    /// Whether an ACK must leave before anything else does.
    pub(crate) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The next ACK that stands for a change of marking.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn agreed(mode: Mode) -> Ecn {
        let mut ecn = Ecn::OFF;
        let syn = PeerSyn { flags: TcpFlags::SYN, mark: Mark::NotEct, option: None };
        ecn.begin(mode, syn);
        ecn
    }

    #[test]
    fn classic_echoes_until_cwr() {
        let mut ecn = agreed(Mode::Classic);
        let _ = ecn.on_data(TcpFlags::ACK, Mark::Ect0, 1, false);
        assert_eq!(ecn.echo_flags(false), TcpFlags::NONE);
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ce, 2, false).quick);
        for _ in 0..3 {
            let _ = ecn.on_data(TcpFlags::ACK, Mark::Ect0, 3, false);
            assert_eq!(ecn.echo_flags(false), TcpFlags::ECE);
        }
        assert!(ecn.on_data(TcpFlags::CWR, Mark::Ect0, 4, false).now);
        assert_eq!(ecn.echo_flags(false), TcpFlags::NONE);
        // §6.1.3: a mark on the very segment that says CWR is a new one.
        let _ = ecn.on_data(TcpFlags::CWR, Mark::Ce, 5, false);
        assert_eq!(ecn.echo_flags(false), TcpFlags::ECE);
    }

    #[test]
    fn dctcp_echoes_each_change_exactly() {
        // RFC 8257 §3.2, figure 1: two states, an immediate ACK at each change.
        let mut ecn = agreed(Mode::Dctcp);
        assert_eq!(ecn.on_data(TcpFlags::ACK, Mark::Ect0, 1, false), Urgency::default());
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ce, 1_000, true).now);
        assert_eq!(ecn.take_turn(), Some(Turn { ack: 1_000, marked: false }));
        assert_eq!(ecn.echo_flags(false), TcpFlags::ECE);
        assert!(!ecn.on_data(TcpFlags::ACK, Mark::Ce, 2_000, false).now);
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ect0, 3_000, true).now);
        assert_eq!(ecn.take_turn(), Some(Turn { ack: 3_000, marked: true }));
        assert_eq!(ecn.take_turn(), None);
        assert_eq!(ecn.echo_flags(false), TcpFlags::NONE);
        // A peer that alternates gets no more ACKs at once than that: the last stands for all that were joined into it.
        for n in 4..44 {
            let mark = if n % 2 == 0 { Mark::Ce } else { Mark::Ect0 };
            let _ = ecn.on_data(TcpFlags::ACK, mark, n * 1_000, true);
        }
        let turns: Vec<Turn> = core::iter::from_fn(|| ecn.take_turn()).collect();
        assert_eq!(turns.len(), TURNS_MAX);
        assert_eq!(turns.last(), Some(&Turn { ack: 43_000, marked: true }));
        // Nothing owed: one ACK says it all.
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ce, 4_000, false).now);
        assert_eq!(ecn.take_turn(), None);
    }
}
