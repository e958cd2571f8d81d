//! The AccECN option, as we send it: when it goes out, and with which of its counters.
//! RFC 9768 §3.2.3.2 and §3.2.3.3, with Linux's `tcp_ecn_option` and `tcp_ecn_option_beacon`. Called by `accurate.rs`.
//!
//! **Problem.** The option takes up to 12 of 40 bytes, which SACK wants, too, and room for payload. Some middleboxes strip
//! it, which does no harm; some drop what carries it.
//!
//! **Rule.** It rides on what acknowledges bytes that were not reported yet, with the counters that ever moved. Sparingly
//! (`tcp_ecn_option` 1) it does so only where something else than before was counted, on that ACK and the next, while
//! marks come, once for every 2²² bytes, and a few times a round trip. When data whose ACK carried it comes again, and
//! again, what carries it is thought to be dropped, and it goes out no more.

use taut_wire::{AccEcn, Ecn as Mark};

use super::config::{EcnConfig, EcnOptionUse};
use crate::words::{Duration, Instant};

/// ACKs that carry it once another counter moves than before: the one that reports that, and the next. §3.2.3.3.
const DEMAND: u8 = 2;
/// A counter has 24 bits, so one report at least is due for each such part of it. §3.2.3.3.
const PART_BYTES_LOG2: u32 = 22;
/// Data that came again after an option went out, so often in a row, means that those were lost; what comes again on a
/// path without such a middlebox is rarer than once in so many options.
const REPEATED_MAX: u8 = 3;
const OPTIONS_BETWEEN: u8 = 32;

/// What a segment is, as far as its option goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The SYN-ACK of a server, or the ACK of it.
    Handshake,
    /// A SYN-ACK that was sent before.
    HandshakeAgain,
    /// One with data, or FIN.
    Data,
    /// A pure ACK.
    Ack,
}

/// Payload bytes received, by mark. §3.2.1: r.e0b, r.ceb, r.e1b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    ect0: u32,
    ce: u32,
    ect1: u32,
}

impl Received {
    const FIRST: Self = Self { ect0: 1, ce: 0, ect1: 1 };

    /// The counter that bytes with this mark go to.
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

/// The option, as one end sends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionSender {
    received: Received,
    /// What the last option said.
    reported: Option<Received>,
    /// When it went out.
    sent_at: Option<Instant>,
    /// The counter that moved last.
    last: Option<Mark>,
    /// Next ACKs that carry the option where it is sent sparingly.
    demand: u8,
    /// A client's first data segment carries it; and the segment that was sent last was that.
    first_data: bool,
    was_first_data: bool,
    /// Options that went out since data came again, and how often that was so in a row.
    since_repeated: u8,
    repeated: u8,
    /// `tcp_ecn_option`, the time, and whether the beacon is due, as of [`before_packet`](Self::before_packet).
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
            // §3.2.3.2.1: the ACK of a SYN-ACK may be lost, and nobody would know.
            first_data: client,
            was_first_data: false,
            since_repeated: 0,
            repeated: 0,
            mode: EcnOptionUse::Usual,
            now: Instant::from_nanos(0),
            beacon: false,
        }
    }

    /// Payload came with this mark.
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

    /// Data came that was acknowledged before. §3.2.3.2.2.
    pub(super) fn on_repeated_data(&mut self) {
        match self.since_repeated {
            0 => {}
            1..OPTIONS_BETWEEN => self.repeated = self.repeated.saturating_add(1),
            _ => self.repeated = 1,
        }
        self.since_repeated = 0;
    }

    /// What carries it seems to be lost.
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

    /// The option of a segment that leaves now, if it has room for that.
    pub(super) fn wanted(&self, on: Carrier) -> Option<AccEcn> {
        if self.mode == EcnOptionUse::Never || (self.is_blocked() && self.mode != EcnOptionUse::Persistent) {
            return None;
        }
        match on {
            Carrier::Handshake => return Some(self.received.all()),
            // §3.2.3.2.2: what drops the option may let a SYN-ACK without it pass.
            Carrier::HandshakeAgain if self.mode == EcnOptionUse::Persistent => {
                return Some(self.received.all());
            }
            Carrier::HandshakeAgain => return None,
            Carrier::Data if self.first_data => return Some(self.received.all()),
            Carrier::Data | Carrier::Ack => {}
        }
        let news = self.reported.unwrap_or(Received::FIRST) != self.received;
        let due = self.mode != EcnOptionUse::Sparing || self.demand > 0 || self.beacon;
        (news && due).then(|| self.received.moved())
    }

    /// A segment leaves; `carried`: with the option.
    pub(super) fn on_sent(&mut self, on: Carrier, carried: bool) {
        self.was_first_data = self.first_data && on == Carrier::Data;
        self.first_data &= on != Carrier::Data;
        if carried {
            self.reported = Some(self.received);
            self.sent_at = Some(self.now);
            self.demand = self.demand.saturating_sub(1);
            self.since_repeated = self.since_repeated.saturating_add(1);
        }
    }

    /// The segment did not leave after all.
    pub(super) fn take_back(&mut self) {
        self.reported = None;
        self.first_data |= core::mem::take(&mut self.was_first_data);
        self.demand = self.demand.max(1);
    }
}
