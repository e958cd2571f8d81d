//! Sending the AccECN option: when, and with which of its counters.
//! RFC 9768 §3.2.3.2 and §3.2.3.3, with Linux's `tcp_ecn_option` and `tcp_ecn_option_beacon`.
//! Called by `accurate.rs` for every segment that arrives or leaves.
//!
//! **Problem.** The option takes up to 12 of the 40 bytes of options, which SACK needs too, and leaves less
//! room for payload. Some middleboxes strip it, which does no harm; others drop the packets that carry it.
//!
//! **Rule.** Segments that acknowledge bytes not reported yet carry the option, with the counters that have
//! ever moved. If it is sent sparingly (`tcp_ecn_option` 1), it is sent when a different counter moves, on
//! that ACK and the next; while marks arrive; once for every 2²² bytes; and a few times per round trip. If
//! three times in a row data is retransmitted whose ACK carried the option, the path is assumed to drop
//! packets with it, and it is no longer sent.

use taut_wire::{AccEcn, Ecn as Mark};

use super::config::{EcnConfig, EcnOptionUse};
use super::segment::{Beside, Carrier};
use crate::words::{Duration, Instant};

/// ACKs that carry the option when a different counter moves than before: that ACK and the next. §3.2.3.3.
const DEMAND: u8 = 2;
/// A counter has 24 bits and must not wrap unnoticed: a report is due for each such part of it. §3.2.3.3.
const PART_BYTES_LOG2: u32 = 22;
/// Data that arrives again after an option was sent, this often in a row, means that packets with options are
/// lost. On a path without such a middlebox, data arrives again less often than once per this many options.
const REPEATED_MAX: u8 = 3;
const OPTIONS_BETWEEN: u8 = 32;

/// Payload bytes received, by mark. §3.2.1: r.e0b, r.ceb, r.e1b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    ect0: u32,
    ce: u32,
    ect1: u32,
}

impl Received {
    const FIRST: Self = Self { ect0: 1, ce: 0, ect1: 1 };

    /// The counter for bytes with this mark.
    const fn of(&mut self, mark: Mark) -> Option<&mut u32> {
        match mark {
            Mark::NotEct => None,
            Mark::Ect0 => Some(&mut self.ect0),
            Mark::Ect1 => Some(&mut self.ect1),
            Mark::Ce => Some(&mut self.ce),
        }
    }

    /// The option with all counters.
    fn all(self) -> AccEcn {
        let low = |count: u32| Some(count % AccEcn::MODULUS);
        AccEcn { ee0b: low(self.ect0), eceb: low(self.ce), ee1b: low(self.ect1) }
    }

    /// The option without the counters that never moved.
    fn moved(self) -> AccEcn {
        let all = self.all();
        let eceb = all.eceb.filter(|_| self.ce != Self::FIRST.ce);
        match (self.ect0 != Self::FIRST.ect0, self.ect1 != Self::FIRST.ect1) {
            (true, true) => all,
            (false, true) => AccEcn { ee0b: None, eceb, ..all },
            _ => AccEcn { ee1b: None, eceb, ..all },
        }
    }
}

/// The sending side of the option.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionSender {
    received: Received,
    /// The counters in the last option.
    reported: Option<Received>,
    /// When that left.
    sent_at: Option<Instant>,
    /// The counter that moved last.
    last: Option<Mark>,
    /// With sparing use: the number of ACKs to come that carry the option.
    demand: u8,
    /// A client's first data segment carries the option; and the segment that was sent last was that one.
    first_data: bool,
    was_first_data: bool,
    /// Options sent since data last arrived again, and how often that has happened in a row.
    since_repeated: u8,
    repeated: u8,
    /// `tcp_ecn_option`, the time, and whether the beacon is due, as of
    /// [`before_packet`](Self::before_packet).
    mode: EcnOptionUse,
    now: Instant,
    beacon: bool,
}

impl OptionSender {
    pub(super) const fn new(client: bool) -> Self {
        Self {
            received: Received::FIRST,
            reported: None,
            sent_at: None,
            last: None,
            demand: 0,
            // §3.2.3.2.1: the ACK of a SYN-ACK may be lost unnoticed.
            first_data: client,
            was_first_data: false,
            since_repeated: 0,
            repeated: 0,
            mode: EcnOptionUse::Usual,
            now: Instant::from_nanos(0),
            beacon: false,
        }
    }

    /// Payload arrived with this mark.
    pub(super) fn on_bytes(&mut self, mark: Mark, bytes: u32) {
        let Some(counter) = self.received.of(mark).filter(|_| bytes > 0) else { return };
        let before = *counter;
        let after = before.wrapping_add(bytes);
        *counter = after;
        if mark == Mark::Ce || self.last != Some(mark) {
            self.demand = DEMAND;
        } else if (before ^ after) >> PART_BYTES_LOG2 != 0 {
            self.demand = self.demand.max(1);
        }
        self.last = Some(mark);
    }

    /// Data arrived that had been acknowledged before. §3.2.3.2.2.
    pub(super) fn on_repeated_data(&mut self) {
        match self.since_repeated {
            0 => {}
            1..OPTIONS_BETWEEN => self.repeated = self.repeated.saturating_add(1),
            _ => self.repeated = 1,
        }
        self.since_repeated = 0;
    }

    /// Whether the path seems to drop packets with the option.
    const fn is_blocked(&self) -> bool {
        self.repeated >= REPEATED_MAX
    }

    /// The connection is asked for a packet at `now`.
    pub(super) fn before_packet(&mut self, config: &EcnConfig, now: Instant, srtt: Option<Duration>) {
        self.mode = config.option;
        self.now = now;
        let times = u64::from(config.option_beacon);
        self.beacon = times > 0
            && self.sent_at.is_none_or(|at| now.since(at) * times >= srtt.unwrap_or(Duration::ZERO));
    }

    /// The option of a segment that would leave now with these other options.
    pub(super) fn option(&self, carrier: Carrier, beside: Beside) -> Option<AccEcn> {
        if self.mode == EcnOptionUse::Never || (self.is_blocked() && self.mode != EcnOptionUse::Persistent) {
            return None;
        }
        let option = match carrier {
            // §3.2.3.2.2: a path that drops the option may let a SYN-ACK without it pass.
            Carrier::SynAck { again } => {
                (!again || self.mode == EcnOptionUse::Persistent).then(|| self.received.all())
            }
            Carrier::AckOfSyn => Some(self.received.all()),
            _ if carrier.is_data() && self.first_data => Some(self.received.all()),
            _ => {
                let news = self.reported.unwrap_or(Received::FIRST) != self.received;
                let due = self.mode != EcnOptionUse::Sparing || self.demand > 0 || self.beacon;
                (news && due).then(|| self.received.moved())
            }
        };
        option.filter(|option| option.emitted_len() <= beside.room())
    }

    /// A segment leaves with these other options: returns ours, if the segment carries it.
    pub(super) fn send(&mut self, carrier: Carrier, beside: Beside) -> Option<AccEcn> {
        let option = self.option(carrier, beside);
        self.was_first_data = self.first_data && carrier.is_data();
        self.first_data &= !carrier.is_data();
        if option.is_some() {
            self.reported = Some(self.received);
            self.sent_at = Some(self.now);
            self.demand = self.demand.saturating_sub(1);
            self.since_repeated = self.since_repeated.saturating_add(1);
        }
        option
    }

    /// The segment did not leave after all.
    pub(super) fn take_back(&mut self) {
        self.reported = None;
        self.first_data |= core::mem::take(&mut self.was_first_data);
        self.demand = self.demand.max(1);
    }
}
