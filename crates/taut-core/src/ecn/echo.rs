//! Reporting marks to the peer by ECE: RFC 3168's echo, and DCTCP's. RFC 3168 §6.1.2 to §6.1.5; RFC 8257
//! §3.2, with Linux's details. Called by `ecn/mod.rs` if the handshake agreed on one of them; with RFC 9768
//! both ends count (`accurate.rs`).
//!
//! **Problem.** A single flag must notify a sender that a queue marked its data, although ACKs are delayed
//! and lost.
//!
//! **Rule.** RFC 3168: every segment carries ECE from the first mark on, until the sender answers with CWR;
//! so no mark is lost, and all marks of a round trip count as one. DCTCP: the ECE flag of each ACK says
//! whether the data that it acknowledges was marked. If the marking changes while data waits for a delayed
//! ACK, an ACK for that data leaves first, a [`Turn`].

use alloc::collections::VecDeque;

use taut_wire::Ecn as Mark;
use taut_wire::tcp::Flags as TcpFlags;

use super::segment::{Carrier, SegmentIn, Stamp, Urgency};

/// Turns that may wait to leave; more are joined into the last.
const TURNS_MAX: usize = 8;

/// An ACK that must leave before any other segment: it acknowledges up to a change of marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// RCV.NXT at the change.
    pub(crate) ack: u64,
    /// The data that it acknowledges was marked.
    pub(crate) marked: bool,
}

/// State of a connection that agreed to report marks by ECE.
#[derive(Clone, Debug)]
pub(super) struct Echo {
    /// RFC 8257: each ACK reports only on the data that it acknowledges.
    exact: bool,
    /// Segments carry ECE: until CWR arrives, or as long as marks arrive.
    on: bool,
    /// The peer has sent a packet marked as ECN-capable.
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

    /// Data arrived.
    pub(super) fn on_data(&mut self, segment: &SegmentIn) -> Urgency {
        let SegmentIn { flags, mark, rcv_nxt, owed, .. } = *segment;
        let marked = mark == Mark::Ce;
        let answered = flags.contains(TcpFlags::CWR);
        let mut urgency = if answered { Urgency::Data } else { Urgency::None };
        if self.exact {
            if mark != Mark::NotEct && marked != self.on {
                // RFC 8257 §3.2: an ACK for the data with the other marking, then one for this segment.
                if owed {
                    self.push_turn(Turn { ack: rcv_nxt, marked: self.on });
                }
                self.on = marked;
                urgency = if marked { Urgency::QuickData } else { Urgency::Data };
            }
        } else {
            // RFC 3168 §6.1.3. The peer's window may be down to this one segment (Linux: acknowledged
            // immediately).
            self.on &= !answered;
            if marked && !self.on {
                self.on = true;
                urgency = Urgency::QuickData;
            }
        }
        if mark != Mark::NotEct {
            self.seen = true;
        } else if self.seen {
            // Linux: an unmarked segment among marked ones is probably a retransmission, and its sender
            // waits.
            urgency = Urgency::QuickData;
        }
        urgency
    }

    fn push_turn(&mut self, turn: Turn) {
        if self.turns.len() == TURNS_MAX {
            self.turns.pop_back();
        }
        self.turns.push_back(turn);
    }

    /// Whether an ACK must leave before any other segment.
    pub(super) fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// The next ACK that reports a change of marking.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    /// Drops all waiting ACKs.
    pub(super) fn forget_turns(&mut self) {
        self.turns.clear();
    }

    /// The flags of a SYN-ACK, which agree to ECN.
    pub(super) fn stamp_syn_ack(&self) -> Stamp {
        Stamp { flags: TcpFlags::ECE, mark: self.mark(Carrier::SynAck { again: false }), ..Stamp::NONE }
    }

    /// The flags and mark of any other segment.
    pub(super) fn stamp(&self, carrier: Carrier) -> Stamp {
        let echo = if self.on { TcpFlags::ECE } else { TcpFlags::NONE };
        let answer = match carrier {
            // RFC 3168 §6.1.2: once for each reduction, on new data.
            Carrier::NewData { reduced: true } => TcpFlags::CWR,
            _ => TcpFlags::NONE,
        };
        Stamp { flags: echo | answer, mark: self.mark(carrier), ..Stamp::NONE }
    }

    /// RFC 3168 §6.1.4, §6.1.5: neither pure ACKs nor retransmissions are marked as ECN-capable. DCTCP marks
    /// all its packets, as in Linux, or the others would fare worse than data at a queue that marks.
    fn mark(&self, carrier: Carrier) -> Mark {
        if self.exact || matches!(carrier, Carrier::NewData { .. }) { Mark::Ect0 } else { Mark::NotEct }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn data(flags: TcpFlags, mark: Mark, rcv_nxt: u64, owed: bool) -> SegmentIn {
        SegmentIn { flags, mark, segs: 1, bytes: 1_000, taken: true, rcv_nxt, owed, first_acks: None }
    }

    fn echoed(echo: &Echo) -> TcpFlags {
        echo.stamp(Carrier::Ack).flags
    }

    #[test]
    fn ecn_09_marks_are_echoed_until_cwr_comes() {
        let mut echo = Echo::new(false);
        let _ = echo.on_data(&data(TcpFlags::ACK, Mark::Ect0, 1, false));
        assert_eq!(echoed(&echo), TcpFlags::NONE);
        assert_eq!(echo.on_data(&data(TcpFlags::ACK, Mark::Ce, 2, false)), Urgency::QuickData);
        for _ in 0..3 {
            let _ = echo.on_data(&data(TcpFlags::ACK, Mark::Ect0, 3, false));
            assert_eq!(echoed(&echo), TcpFlags::ECE);
        }
        assert_eq!(echo.on_data(&data(TcpFlags::CWR, Mark::Ect0, 4, false)), Urgency::Data);
        assert_eq!(echoed(&echo), TcpFlags::NONE);
        // §6.1.3: a mark on the very segment that carries CWR is a new one.
        let _ = echo.on_data(&data(TcpFlags::CWR, Mark::Ce, 5, false));
        assert_eq!(echoed(&echo), TcpFlags::ECE);
        // §6.1.2, §6.1.4, §6.1.5: CWR on new data; only new data is marked as ECN-capable.
        let new = echo.stamp(Carrier::NewData { reduced: true });
        assert_eq!((new.flags, new.mark), (TcpFlags::ECE | TcpFlags::CWR, Mark::Ect0));
        for carrier in [Carrier::OldData, Carrier::Fin, Carrier::Ack, Carrier::AckOfSyn] {
            assert_eq!((echo.stamp(carrier).flags, echo.stamp(carrier).mark), (TcpFlags::ECE, Mark::NotEct));
        }
    }

    #[test]
    fn dctcp_08_each_change_of_marking_is_echoed() {
        // RFC 8257 §3.2, figure 1: two states, an immediate ACK at each change.
        let mut echo = Echo::new(true);
        assert_eq!(echo.on_data(&data(TcpFlags::ACK, Mark::Ect0, 1, false)), Urgency::None);
        assert_eq!(echo.on_data(&data(TcpFlags::ACK, Mark::Ce, 1_000, true)), Urgency::QuickData);
        assert_eq!(echo.take_turn(), Some(Turn { ack: 1_000, marked: false }));
        assert_eq!(echoed(&echo), TcpFlags::ECE);
        assert_eq!(echo.on_data(&data(TcpFlags::ACK, Mark::Ce, 2_000, false)), Urgency::None);
        assert_eq!(echo.on_data(&data(TcpFlags::ACK, Mark::Ect0, 3_000, true)), Urgency::Data);
        assert_eq!(echo.take_turn(), Some(Turn { ack: 3_000, marked: true }));
        assert_eq!(echo.take_turn(), None);
        assert_eq!(echoed(&echo), TcpFlags::NONE);
        // A peer whose marking alternates does not get more pending ACKs than that: the last one replaces all
        // that were joined into it.
        for n in 4..44 {
            let mark = if n % 2 == 0 { Mark::Ce } else { Mark::Ect0 };
            let _ = echo.on_data(&data(TcpFlags::ACK, mark, n * 1_000, true));
        }
        let turns: Vec<Turn> = core::iter::from_fn(|| echo.take_turn()).collect();
        assert_eq!(turns.len(), TURNS_MAX);
        assert_eq!(turns.first(), Some(&Turn { ack: 4_000, marked: false }));
        assert_eq!(turns.last(), Some(&Turn { ack: 43_000, marked: true }));
        // No ACK was owed: one ACK is enough.
        assert_eq!(echo.on_data(&data(TcpFlags::ACK, Mark::Ce, 4_000, false)), Urgency::QuickData);
        assert_eq!(echo.take_turn(), None);
    }
}
