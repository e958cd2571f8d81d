//! Explicit congestion notification: what is asked for and agreed on in the SYNs, what is told to the peer about marks,
//! and which of our packets may be marked.
//! RFC 3168 §6.1 with Linux's `tcp_ecn` and `tcp_ecn_fallback`; RFC 8257 §3.2 for the exact echo of DCTCP.
//! Called by the handshake, by arrival and by output; what an echo does to the window is `recovery/`'s affair.

use alloc::collections::VecDeque;

use taut_wire::Ecn as Mark;
use taut_wire::tcp::Flags as TcpFlags;

use crate::config::StackConfig;
use crate::congestion::EcnUse;

/// Whether our SYN, sent for the `retries`-th time again, asks for ECN. RFC 3168 §6.1.1.
pub(crate) fn asks(config: &StackConfig, wanted: EcnUse, retries: u8) -> bool {
    // §6.1.1.1: what drops such a SYN may let one without ECN pass.
    let again = !config.tcp_ecn_fallback || retries == 0;
    again && (config.tcp_ecn == ASK || wanted == EcnUse::Precise)
}

/// How our SYN or SYN-ACK is marked.
pub(crate) fn syn_mark(wanted: EcnUse, flags: TcpFlags) -> Mark {
    let capable = wanted == EcnUse::Precise && flags.contains(TcpFlags::ECE);
    if capable { Mark::Ect0 } else { Mark::NotEct }
}

/// What both ends agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EcnMode {
    /// No ECN, or nothing agreed yet.
    #[default]
    Off,
    /// RFC 3168: a mark is echoed until the sender answers with CWR.
    Classic,
    /// RFC 8257: ECE says of each ACK whether what it acknowledges was marked.
    Dctcp,
}

impl EcnMode {
    const fn of(wanted: EcnUse) -> Self {
        match wanted {
            EcnUse::Classic => Self::Classic,
            EcnUse::Precise => Self::Dctcp,
        }
    }
}

/// `tcp_ecn`: what is accepted, and what is asked for.
const ACCEPT: core::ops::RangeInclusive<u8> = 1..=2;
const ASK: u8 = 1;

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
    mode: EcnMode,
    /// Some SYN of ours asked.
    asked: bool,
    /// ECE goes out: until CWR comes, or as long as marks come.
    echo: bool,
    /// A packet of the peer's was marked as capable. Linux: `TCPI_OPT_ECN_SEEN`.
    seen: bool,
    /// Segments that the peer reported as marked, wrapping.
    delivered_ce: u32,
    turns: VecDeque<Turn>,
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
        mode: EcnMode::Off,
        asked: false,
        echo: false,
        seen: false,
        delivered_ce: 0,
        turns: VecDeque::new(),
    };

    /// ECN is in use.
    pub(crate) fn is_on(&self) -> bool {
        self.mode != EcnMode::Off
    }

    pub(crate) const fn seen(&self) -> bool {
        self.seen
    }

    pub(crate) const fn delivered_ce(&self) -> u32 {
        self.delivered_ce
    }

    /// The peer reported `segs` segments as marked.
    pub(crate) const fn note_delivered(&mut self, segs: u32) {
        self.delivered_ce = self.delivered_ce.wrapping_add(segs);
    }

    /// A SYN that asks leaves.
    pub(crate) const fn note_asked(&mut self) {
        self.asked = true;
    }

    /// The peer's SYN came, in a packet marked `mark`: what holds then. RFC 3168 §6.1.1.
    pub(crate) fn on_syn(config: &StackConfig, wanted: EcnUse, flags: TcpFlags, mark: Mark) -> EcnMode {
        let asks = flags.contains(TcpFlags::ECE | TcpFlags::CWR);
        // A SYN must not be marked as capable; one that is was tampered with, or is DCTCP's.
        let accepts = ACCEPT.contains(&config.tcp_ecn) && mark == Mark::NotEct;
        if asks && (accepts || wanted == EcnUse::Precise) { EcnMode::of(wanted) } else { EcnMode::Off }
    }

    /// The peer's SYN-ACK came: what holds then.
    pub(crate) fn on_syn_ack(&self, wanted: EcnUse, flags: TcpFlags) -> EcnMode {
        // Both flags are a reflection by somebody who does not know them.
        let agrees = flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::CWR);
        if self.asked && agrees { EcnMode::of(wanted) } else { EcnMode::Off }
    }

    /// Both ends agreed.
    pub(crate) const fn begin(&mut self, mode: EcnMode) {
        self.mode = mode;
    }

    /// Flags of our SYN-ACK.
    pub(crate) fn syn_ack_flags(&self) -> TcpFlags {
        if self.is_on() { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// How a packet of ours is marked. RFC 3168 §6.1.4, §6.1.5: neither pure ACKs nor what is sent again; DCTCP, as
    /// in Linux, marks all it sends, or its own packets would fare worse than data at a queue that marks.
    pub(crate) fn mark(&self, new_data: bool) -> Mark {
        match self.mode {
            EcnMode::Classic if new_data => Mark::Ect0,
            EcnMode::Dctcp => Mark::Ect0,
            EcnMode::Off | EcnMode::Classic => Mark::NotEct,
        }
    }

    /// Flags of every segment after the handshake.
    pub(crate) const fn echo_flags(&self) -> TcpFlags {
        if self.echo { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// Whether the peer says that what this ACK acknowledges, or something before, was marked.
    pub(crate) fn is_echo(&self, flags: TcpFlags) -> bool {
        self.is_on() && flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::SYN)
    }

    /// Data came with this mark. `owed`: an ACK up to `rcv_nxt` is, for what came before.
    pub(crate) fn on_data(&mut self, flags: TcpFlags, mark: Mark, rcv_nxt: u64, owed: bool) -> Urgency {
        if !self.is_on() {
            return Urgency::default();
        }
        let mut urgency = Urgency::default();
        if flags.contains(TcpFlags::CWR) {
            // §6.1.3. The peer's window may be down to this segment (Linux: acknowledged at once).
            self.echo &= self.mode != EcnMode::Classic;
            urgency.now = true;
        }
        let marked = mark == Mark::Ce;
        if self.mode == EcnMode::Dctcp && mark != Mark::NotEct && marked != self.echo {
            // RFC 8257 §3.2: an ACK for what came under the other marking, then one for this.
            if owed {
                self.push_turn(Turn { ack: rcv_nxt, marked: self.echo });
            }
            self.echo = marked;
            urgency = Urgency { now: true, quick: marked };
        } else if self.mode == EcnMode::Classic && marked && !self.echo {
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

    /// The next ACK that stands for a change of marking.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

    fn config(tcp_ecn: u8) -> StackConfig {
        StackConfig { tcp_ecn, ..StackConfig::default() }
    }

    fn agreed(mode: EcnMode) -> Ecn {
        let mut ecn = Ecn::OFF;
        ecn.begin(mode);
        ecn
    }

    #[test]
    fn who_asks_and_who_accepts() {
        // Linux: 0 neither, 1 both, 2 accepts only.
        for (sysctl, asked, accepts) in [(0, false, false), (1, true, true), (2, false, true)] {
            assert_eq!(asks(&config(sysctl), EcnUse::Classic, 0), asked, "{sysctl}");
            let mode = Ecn::on_syn(&config(sysctl), EcnUse::Classic, ASKS, Mark::NotEct);
            assert_eq!(mode == EcnMode::Classic, accepts, "{sysctl}");
        }
        // A SYN that is not asking, or that was marked as capable on its way.
        for (flags, mark) in
            [(TcpFlags::ECE, Mark::NotEct), (TcpFlags::CWR, Mark::NotEct), (ASKS, Mark::Ect0)]
        {
            assert_eq!(Ecn::on_syn(&config(1), EcnUse::Classic, flags, mark), EcnMode::Off);
        }
        // DCTCP asks and accepts whatever the setting.
        assert!(asks(&config(0), EcnUse::Precise, 0));
        assert_eq!(Ecn::on_syn(&config(0), EcnUse::Precise, ASKS, Mark::Ect0), EcnMode::Dctcp);
        // A SYN sent again does not ask (Linux: from the first time on).
        assert!(!asks(&config(1), EcnUse::Classic, 1));
        assert!(asks(&StackConfig { tcp_ecn_fallback: false, ..config(1) }, EcnUse::Classic, 1));
    }

    #[test]
    fn every_answer_to_a_syn_that_asked() {
        // RFC 3168 §6.1.1: ECE without CWR is the only ECN-setup SYN-ACK.
        for (flags, mode) in [
            (TcpFlags::NONE, EcnMode::Off),
            (TcpFlags::ECE, EcnMode::Classic),
            (TcpFlags::CWR, EcnMode::Off),
            (ASKS, EcnMode::Off),
        ] {
            assert_eq!(Ecn { asked: true, ..Ecn::OFF }.on_syn_ack(EcnUse::Classic, flags), mode, "{flags}");
            assert_eq!(Ecn::OFF.on_syn_ack(EcnUse::Classic, flags), EcnMode::Off, "unasked");
        }
    }

    #[test]
    fn classic_echoes_until_cwr() {
        let mut ecn = agreed(EcnMode::Classic);
        let _ = ecn.on_data(TcpFlags::ACK, Mark::Ect0, 1, false);
        assert_eq!(ecn.echo_flags(), TcpFlags::NONE);
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ce, 2, false).quick);
        for _ in 0..3 {
            let _ = ecn.on_data(TcpFlags::ACK, Mark::Ect0, 3, false);
            assert_eq!(ecn.echo_flags(), TcpFlags::ECE);
        }
        assert!(ecn.on_data(TcpFlags::CWR, Mark::Ect0, 4, false).now);
        assert_eq!(ecn.echo_flags(), TcpFlags::NONE);
        // §6.1.3: a mark on the very segment that says CWR is a new one.
        let _ = ecn.on_data(TcpFlags::CWR, Mark::Ce, 5, false);
        assert_eq!(ecn.echo_flags(), TcpFlags::ECE);
    }

    #[test]
    fn dctcp_echoes_each_change_exactly() {
        // RFC 8257 §3.2, figure 1: two states, an immediate ACK at each change.
        let mut ecn = agreed(EcnMode::Dctcp);
        assert_eq!(ecn.on_data(TcpFlags::ACK, Mark::Ect0, 1, false), Urgency::default());
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ce, 1_000, true).now);
        assert_eq!(ecn.take_turn(), Some(Turn { ack: 1_000, marked: false }));
        assert_eq!(ecn.echo_flags(), TcpFlags::ECE);
        assert!(!ecn.on_data(TcpFlags::ACK, Mark::Ce, 2_000, false).now);
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ect0, 3_000, true).now);
        assert_eq!(ecn.take_turn(), Some(Turn { ack: 3_000, marked: true }));
        assert_eq!(ecn.take_turn(), None);
        assert_eq!(ecn.echo_flags(), TcpFlags::NONE);
        // Nothing owed: one ACK says it all.
        assert!(ecn.on_data(TcpFlags::ACK, Mark::Ce, 4_000, false).now);
        assert_eq!(ecn.take_turn(), None);
    }
}
