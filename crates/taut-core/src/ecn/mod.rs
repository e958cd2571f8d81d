//! Explicit congestion notification: what is asked for and agreed on in the SYNs, what is told to the peer about marks,
//! and which of our packets may be marked.
//! RFC 3168 §6.1 with Linux's `tcp_ecn` and `tcp_ecn_fallback`; RFC 8257 §3.2 for the exact echo of DCTCP; RFC 9768,
//! with its counters in `accurate.rs` and its option in `option.rs`.
//! Called by the handshake, by arrival and by output; what an echo does to the window is `recovery/`'s affair.

mod accurate;
mod ace;
mod config;
mod echo;
mod feedback;
mod negotiate;
mod option;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{AccEcn, Ecn as Mark};

use crate::congestion::EcnUse;
use crate::recovery::AckOutcome;
use crate::words::{Duration, Instant};
use accurate::Accurate;
pub use config::{EcnConfig, EcnOptionUse, EcnPolicy};
use echo::Echo;
pub(crate) use echo::Turn;
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
/// ECN of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Ecn {
    /// What some SYN of ours asked for.
    asked: Request,
    agreed: Agreed,
    /// Our SYN or SYN-ACK arrived marked, and nothing was done about it yet.
    marked_syn: bool,
    /// Segments that the peer reported as marked, wrapping.
    delivered_ce: u32,
}

/// How the two ends report marks to each other.
#[derive(Clone, Debug)]
enum Agreed {
    /// Not at all, or nothing is agreed yet.
    Nothing,
    /// RFC 3168 and RFC 8257.
    Echo(Echo),
    /// RFC 9768.
    Accurate(Accurate),
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
    pub(crate) const OFF: Self =
        Self { asked: Request::Nothing, agreed: Agreed::Nothing, marked_syn: false, delivered_ce: 0 };

    /// ECN is in use.
    pub(crate) const fn is_on(&self) -> bool {
        !matches!(self.agreed, Agreed::Nothing)
    }

    /// A packet of the peer's was marked as capable. Linux: `TCPI_OPT_ECN_SEEN`.
    pub(crate) const fn seen(&self) -> bool {
        match &self.agreed {
            Agreed::Nothing => false,
            Agreed::Echo(echo) => echo.seen(),
            Agreed::Accurate(accurate) => accurate.seen(),
        }
    }

    pub(crate) const fn delivered_ce(&self) -> u32 {
        self.delivered_ce
    }

    const fn accurate(&self) -> Option<&Accurate> {
        match &self.agreed {
            Agreed::Accurate(accurate) => Some(accurate),
            Agreed::Nothing | Agreed::Echo(_) => None,
        }
    }

    const fn accurate_mut(&mut self) -> Option<&mut Accurate> {
        match &mut self.agreed {
            Agreed::Accurate(accurate) => Some(accurate),
            Agreed::Nothing | Agreed::Echo(_) => None,
        }
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
        self.agreed = match mode {
            Mode::Off => Agreed::Nothing,
            Mode::Classic => Agreed::Echo(Echo::new(false)),
            Mode::Dctcp => Agreed::Echo(Echo::new(true)),
            Mode::Accurate if syn.flags.contains(TcpFlags::ACK) => {
                self.marked_syn = ace::of(syn.flags) == ace::MARKED;
                Agreed::Accurate(Accurate::client(syn.flags, syn.mark, syn.option))
            }
            Mode::Accurate => Agreed::Accurate(Accurate::server(syn.mark)),
        };
    }

    /// The peer's SYN came again. False when it asks for another kind of ECN than the first.
    #[must_use]
    pub(crate) fn on_syn_again(&mut self, config: &EcnConfig, flags: TcpFlags, mark: Mark) -> bool {
        if self.is_on() && negotiate::contradicts(config, self.accurate().is_some(), flags) {
            return false;
        }
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_syn_again(flags, mark);
        }
        true
    }

    /// The SYN-ACK came again.
    pub(crate) fn on_syn_ack_again(&mut self, flags: TcpFlags, mark: Mark) {
        if let Some(accurate) = self.accurate_mut().filter(|accurate| accurate.is_client())
            && !matches!(ace::of(flags), 0b000 | 0b001 | 0b111)
        {
            accurate.on_syn_ack_again(mark);
        }
    }

    /// The segment came that ends the handshake of a server; `pure`: an ACK without data, and without SACK blocks.
    /// RFC 9768 table 4; without that ECE says it (RFC 5562 §3), where our SYN-ACK could be marked.
    pub(crate) fn on_handshake_ack(&mut self, flags: TcpFlags, option: Option<AccEcn>, pure: bool) {
        self.marked_syn = match &mut self.agreed {
            Agreed::Nothing => false,
            Agreed::Echo(echo) => echo.is_exact() && flags.contains(TcpFlags::ECE),
            Agreed::Accurate(accurate) => accurate.on_handshake_ack(flags, option, pure),
        };
        self.delivered_ce = self.delivered_ce.wrapping_add(u32::from(self.marked_syn));
    }

    /// Our SYN or SYN-ACK arrived marked: once. RFC 9768 §3.2.2.2: the congestion control is to act on it.
    pub(crate) fn take_marked_syn(&mut self) -> bool {
        core::mem::take(&mut self.marked_syn)
    }

    /// No segment has come since the handshake.
    pub(crate) fn awaits_first(&self) -> bool {
        self.accurate().is_some_and(Accurate::awaits_first)
    }

    /// It came. `few`: it acknowledges too little for the peer to have counted from 5 to 8.
    pub(crate) fn on_first(&mut self, flags: TcpFlags, few: bool) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_first(flags, few);
        }
    }

    /// Flags of our SYN-ACK, sent for the `retries`-th time again.
    pub(crate) fn syn_ack_flags(&mut self, config: &EcnConfig, retries: u8) -> TcpFlags {
        match &mut self.agreed {
            Agreed::Nothing => TcpFlags::NONE,
            Agreed::Echo(_) => TcpFlags::ECE,
            Agreed::Accurate(accurate) if config.fallback && retries >= ANSWERS_ACCURATE => {
                accurate.give_up_marking();
                TcpFlags::NONE
            }
            Agreed::Accurate(accurate) => accurate.syn_ack_flags(),
        }
    }

    /// How our SYN-ACK is marked.
    pub(crate) fn syn_ack_mark(&self) -> Mark {
        match &self.agreed {
            Agreed::Echo(echo) => echo.mark(Carries::Nothing),
            Agreed::Nothing | Agreed::Accurate(_) => Mark::NotEct,
        }
    }

    /// How a packet of ours is marked.
    pub(crate) fn mark(&self, carries: Carries, wanted: EcnUse) -> Mark {
        match &self.agreed {
            Agreed::Nothing => Mark::NotEct,
            Agreed::Echo(echo) => echo.mark(carries),
            Agreed::Accurate(accurate) => accurate.mark(carries, wanted),
        }
    }

    /// Flags of every segment after the handshake. `acks_syn`: it acknowledges the peer's SYN and does nothing else.
    pub(crate) fn echo_flags(&self, acks_syn: bool) -> TcpFlags {
        match &self.agreed {
            Agreed::Nothing => TcpFlags::NONE,
            Agreed::Echo(echo) => echo.flags(),
            Agreed::Accurate(accurate) => accurate.flags(acks_syn),
        }
    }

    /// A packet is asked for: what holds for its option. `srtt`: of the connection.
    pub(crate) fn prepare(&mut self, config: &EcnConfig, now: Instant, srtt: Option<Duration>) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.option_mut().before_packet(config, now, srtt);
        }
    }

    /// The option of a segment beside as many `sack_blocks`.
    pub(crate) fn option(&self, on: Carrier, timestamps: bool, sack_blocks: usize) -> Option<AccEcn> {
        let option = self.accurate()?.option(on)?;
        fits(option, timestamps, sack_blocks).then_some(option)
    }

    /// A segment leaves, perhaps with the option.
    pub(crate) fn note_said(&mut self, on: Carrier, option: bool) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.note_said(on, option);
        }
    }

    /// The device would not take it.
    pub(crate) fn note_unsaid(&mut self) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.option_mut().take_back();
        }
    }

    /// Data came again that was acknowledged.
    pub(crate) fn on_repeated(&mut self) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.option_mut().on_repeated_data();
        }
    }

    /// The peer is told of reductions (RFC 3168 §6.1.2); RFC 9768 §3.1.5 has no need, and the flag is taken.
    pub(crate) const fn says_cwr(&self) -> bool {
        matches!(self.agreed, Agreed::Echo(_))
    }

    /// The ACK of a client's handshake must leave before anything else does (RFC 9768 §3.2.2.1).
    pub(crate) fn acks_syn_first(&self) -> bool {
        self.accurate().is_some_and(Accurate::is_client)
    }

    /// See [`accurate`].
    pub(crate) fn needs_single_segments(&self) -> bool {
        self.accurate().is_some_and(Accurate::needs_single_segments)
    }

    /// What the peer says of marks on our packets.
    pub(crate) fn feedback(&self, flags: TcpFlags, option: Option<AccEcn>) -> Feedback {
        match &self.agreed {
            Agreed::Echo(_) if flags.contains(TcpFlags::ECE) => Feedback::Echo,
            Agreed::Nothing | Agreed::Echo(_) => Feedback::None,
            Agreed::Accurate(accurate) => accurate.feedback(flags, option),
        }
    }

    /// An ACK that said this was taken in. One that brought nothing may have been overtaken (RFC 9768 appendix A.1), and
    /// counts for nothing.
    pub(crate) fn on_ack(&mut self, marks: Feedback, outcome: &AckOutcome) {
        self.delivered_ce = self.delivered_ce.wrapping_add(outcome.delivered_ce);
        if let (Feedback::Counted(ack), Some(accurate)) = (marks, self.accurate_mut())
            && (outcome.advanced || outcome.delivered_segs > 0)
        {
            accurate.on_ack(ack, outcome.delivered_segs, outcome.delivered_ce);
        }
    }

    /// An acceptable packet came, of `segs` segments with `bytes` in all. `owed`: data is not acknowledged.
    pub(crate) fn on_packet(&mut self, mark: Mark, segs: u32, bytes: u32, owed: bool) -> Urgency {
        self.accurate_mut()
            .map_or_else(Urgency::default, |accurate| accurate.on_packet(mark, segs, bytes, owed))
    }

    /// Data came with this mark. `owed`: an ACK up to `rcv_nxt` is, for what came before.
    pub(crate) fn on_data(&mut self, flags: TcpFlags, mark: Mark, rcv_nxt: u64, owed: bool) -> Urgency {
        match &mut self.agreed {
            Agreed::Echo(echo) => echo.on_data(flags, mark, rcv_nxt, owed),
            Agreed::Nothing | Agreed::Accurate(_) => Urgency::default(),
        }
    }

    /// Whether an ACK must leave before anything else does.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(&self.agreed, Agreed::Echo(echo) if echo.has_turn())
    }

    /// The next ACK that stands for a change of marking.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        match &mut self.agreed {
            Agreed::Echo(echo) => echo.take_turn(),
            Agreed::Nothing | Agreed::Accurate(_) => None,
        }
    }
}

/// Bytes of options, and what timestamps take of them.
const OPTIONS_MAX: usize = 40;
const TIMESTAMPS_LEN: usize = 12;

/// Whether an option fits beside timestamps and two of `sack_blocks`, which come first (§3.2.3.3).
fn fits(option: AccEcn, timestamps: bool, sack_blocks: usize) -> bool {
    let timestamps = if timestamps { TIMESTAMPS_LEN } else { 0 };
    let sack = match sack_blocks.min(2) {
        0 => 0,
        blocks => 4 + 8 * blocks,
    };
    timestamps + sack + option.emitted_len() <= OPTIONS_MAX
}
