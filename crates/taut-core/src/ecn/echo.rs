//! What ECE tells the peer about marks: RFC 3168's echo, and DCTCP's.
//! RFC 3168 §6.1.2 to §6.1.5; RFC 8257 §3.2, with Linux's details. Called by `ecn/mod.rs` where the handshake led to
//! one of the two; with RFC 9768 both ends count instead (`accurate.rs`).
//!
//! **Problem.** One flag has to tell a sender that a queue marked its data, although ACKs are delayed and lost.
//!
//! **Rule.** RFC 3168: every segment says ECE from the first mark on, until the sender answers with CWR; so no mark is lost,
//! and all marks of a round trip are one. DCTCP: ECE says of each ACK whether what it acknowledges was marked. Where the
//! marking changes while data waits for a delayed ACK, an ACK for that data leaves first, a [`Turn`].

use alloc::collections::VecDeque;

use taut_wire::Ecn as Mark;
use taut_wire::tcp::Flags as TcpFlags;

use super::{Carries, Urgency};

/// Turns that may wait to leave; more are joined into the last.
const TURNS_MAX: usize = 8;

/// An ACK that must leave before anything else does: it acknowledges up to a change of marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// RCV.NXT then.
    pub(crate) ack: u64,
    /// What it acknowledges was marked.
    pub(crate) marked: bool,
}

/// State of a connection that agreed on ECE as the report of marks.
#[derive(Clone, Debug)]
pub(super) struct Echo {
    /// RFC 8257: each ACK reports on what it acknowledges, and no more.
    exact: bool,
    /// ECE goes out: until CWR comes, or as long as marks come.
    on: bool,
    /// A packet of the peer's was marked as capable.
    seen: bool,
    turns: VecDeque<Turn>,
}

impl Echo {
    pub(super) const fn new(exact: bool) -> Self {
        Self { exact, on: false, seen: false, turns: VecDeque::new() }
    }

    pub(super) const fn is_exact(&self) -> bool {
        self.exact
    }

    pub(super) const fn seen(&self) -> bool {
        self.seen
    }

    /// Data came with this mark. `owed`: an ACK up to `rcv_nxt` is, for what came before.
    pub(super) fn on_data(&mut self, flags: TcpFlags, mark: Mark, rcv_nxt: u64, owed: bool) -> Urgency {
        let mut urgency = Urgency::default();
        if flags.contains(TcpFlags::CWR) {
            // RFC 3168 §6.1.3. The peer's window may be down to this segment (Linux: acknowledged at once).
            self.on &= self.exact;
            urgency.now = true;
        }
        let marked = mark == Mark::Ce;
        if self.exact && mark != Mark::NotEct && marked != self.on {
            // RFC 8257 §3.2: an ACK for what came under the other marking, then one for this.
            if owed {
                self.push_turn(Turn { ack: rcv_nxt, marked: self.on });
            }
            self.on = marked;
            urgency = Urgency { now: true, quick: marked };
        } else if !self.exact && marked && !self.on {
            self.on = true;
            urgency.quick = true;
        }
        // Linux: an unmarked segment among marked ones is probably a retransmission, whose sender waits.
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

    /// Whether an ACK waits to leave before anything else.
    pub(super) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The next ACK that stands for a change of marking.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    /// Flags of every segment after the handshake.
    pub(super) const fn flags(&self) -> TcpFlags {
        if self.on { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// How a packet is marked. RFC 3168 §6.1.4, §6.1.5: neither pure ACKs nor retransmissions; DCTCP, as in Linux,
    /// marks all it sends, SYN-ACK included, or its own packets would fare worse than data at a queue that marks.
    pub(super) fn mark(&self, carries: Carries) -> Mark {
        if self.exact || carries == Carries::New { Mark::Ect0 } else { Mark::NotEct }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn classic_echoes_until_cwr() {
        let mut echo = Echo::new(false);
        let _ = echo.on_data(TcpFlags::ACK, Mark::Ect0, 1, false);
        assert_eq!(echo.flags(), TcpFlags::NONE);
        assert!(echo.on_data(TcpFlags::ACK, Mark::Ce, 2, false).quick);
        for _ in 0..3 {
            let _ = echo.on_data(TcpFlags::ACK, Mark::Ect0, 3, false);
            assert_eq!(echo.flags(), TcpFlags::ECE);
        }
        assert!(echo.on_data(TcpFlags::CWR, Mark::Ect0, 4, false).now);
        assert_eq!(echo.flags(), TcpFlags::NONE);
        // §6.1.3: a mark on the very segment that says CWR is a new one.
        let _ = echo.on_data(TcpFlags::CWR, Mark::Ce, 5, false);
        assert_eq!(echo.flags(), TcpFlags::ECE);
    }

    #[test]
    fn dctcp_echoes_each_change_exactly() {
        // RFC 8257 §3.2, figure 1: two states, an immediate ACK at each change.
        let mut echo = Echo::new(true);
        assert_eq!(echo.on_data(TcpFlags::ACK, Mark::Ect0, 1, false), Urgency::default());
        assert!(echo.on_data(TcpFlags::ACK, Mark::Ce, 1_000, true).now);
        assert_eq!(echo.take_turn(), Some(Turn { ack: 1_000, marked: false }));
        assert_eq!(echo.flags(), TcpFlags::ECE);
        assert!(!echo.on_data(TcpFlags::ACK, Mark::Ce, 2_000, false).now);
        assert!(echo.on_data(TcpFlags::ACK, Mark::Ect0, 3_000, true).now);
        assert_eq!(echo.take_turn(), Some(Turn { ack: 3_000, marked: true }));
        assert_eq!(echo.take_turn(), None);
        assert_eq!(echo.flags(), TcpFlags::NONE);
        // A peer that alternates gets no more ACKs at once than that: the last stands for all that were joined into it.
        for n in 4..44 {
            let mark = if n % 2 == 0 { Mark::Ce } else { Mark::Ect0 };
            let _ = echo.on_data(TcpFlags::ACK, mark, n * 1_000, true);
        }
        let turns: Vec<Turn> = core::iter::from_fn(|| echo.take_turn()).collect();
        assert_eq!(turns.len(), TURNS_MAX);
        assert_eq!(turns.last(), Some(&Turn { ack: 43_000, marked: true }));
        // Nothing owed: one ACK says it all.
        assert!(echo.on_data(TcpFlags::ACK, Mark::Ce, 4_000, false).now);
        assert_eq!(echo.take_turn(), None);
    }
}
