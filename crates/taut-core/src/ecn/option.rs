//! When the AccECN option goes out, and with which of its counters. RFC 9768 §3.2.3.2 and §3.2.3.3, with Linux's
//! `tcp_ecn_option` and `tcp_ecn_option_beacon`. Called by `accurate.rs`, which counts, and by `ecn/mod.rs`.
//!
//! **Problem.** The option takes up to 12 of 40 bytes, which SACK wants, too, and room for payload. Some middleboxes strip
//! it, which does no harm; some drop what carries it.
//!
//! **Rule.** It rides on what acknowledges bytes that were not told of yet, with the counters that ever moved. Sparingly
//! (`tcp_ecn_option` 1) it does so only where something else than before was counted, on that ACK and the next, while
//! marks come, once for every 2²² bytes, and a few times a round trip. When data whose ACK carried it comes again, and
//! again, what carries it is thought to be dropped, and it goes out no more.

use taut_wire::{AccEcn, Ecn as Mark};

use super::accurate::Received;
use super::{EcnConfig, EcnOptionUse};
use crate::words::{Duration, Instant};

/// ACKs that are to carry it once another counter moves than before: that which tells of it, and the next. §3.2.3.3.
const DEMAND: u8 = 2;
/// Of every counter, one such part is told of at least, as they have 24 bits. §3.2.3.3.
const TURN_BYTES_LOG2: u32 = 22;
/// Data that came again after an option went out, so often in a row, means that those were lost; what comes again on a
/// path without such a middlebox is rarer than once in so many options.
const REPEATED_MAX: u8 = 3;
const OPTIONS_BETWEEN: u8 = 32;
/// Bytes of options, and what two SACK blocks take of them.
const OPTIONS_MAX: usize = 40;
const TIMESTAMPS_LEN: usize = 12;

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

/// The option, as one end sends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionSender {
    /// `tcp_ecn_option`, as of the last packet that was asked for.
    mode: EcnOptionUse,
    /// What the last one said.
    told: Option<Received>,
    /// Next ACKs that carry it where it is sent sparingly.
    demand: u8,
    /// The counter that moved last.
    last: Option<Mark>,
    /// When it went out last, and whether it is time again.
    told_at: Option<Instant>,
    beacon: bool,
    now: Instant,
    /// A client's first data segment is to carry it, and the one that leaves now did.
    first_data: bool,
    was_first_data: bool,
    /// Options that went out since data came again, and how often that was so in a row.
    since_repeated: u8,
    repeated: u8,
}

impl OptionSender {
    pub(super) fn new(client: bool) -> Self {
        Self {
            mode: EcnOptionUse::Usual,
            told: None,
            demand: 0,
            last: None,
            told_at: None,
            beacon: false,
            now: Instant::from_nanos(0),
            // §3.2.3.2.1: the ACK of a SYN-ACK may be lost, and nobody would know.
            first_data: client,
            was_first_data: false,
            since_repeated: 0,
            repeated: 0,
        }
    }

    /// A packet is asked for at `now`.
    pub(super) fn prepare(&mut self, config: &EcnConfig, now: Instant, srtt: Option<Duration>) {
        self.mode = config.option;
        self.now = now;
        let times = u64::from(config.option_beacon);
        self.beacon = times > 0
            && self.told_at.is_none_or(|at| now.since(at) * times >= srtt.unwrap_or(Duration::ZERO));
    }

    /// A counter moved.
    pub(super) fn on_bytes(&mut self, mark: Mark, before: u32, after: u32) {
        if mark == Mark::Ce || self.last != Some(mark) {
            self.demand = DEMAND;
        } else if (before ^ after) >> TURN_BYTES_LOG2 != 0 {
            self.demand = self.demand.max(1);
        }
        self.last = Some(mark);
    }

    /// Data came that was acknowledged before. §3.2.3.2.2.
    pub(super) fn on_repeated(&mut self) {
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

    /// The option of a segment that leaves when so much was `received`.
    pub(super) fn option(&self, received: Received, on: Carrier) -> Option<AccEcn> {
        if self.mode == EcnOptionUse::Never || (self.is_blocked() && self.mode != EcnOptionUse::Persistent) {
            return None;
        }
        let Received { ect0, ce, ect1 } = received;
        let low = |count: u32| Some(count % AccEcn::MODULUS);
        let all = AccEcn { ee0b: low(ect0), eceb: low(ce), ee1b: low(ect1) };
        match on {
            Carrier::Handshake => return Some(all),
            // §3.2.3.2.2: what drops the option may let a SYN-ACK without it pass.
            Carrier::HandshakeAgain => return Some(all).filter(|_| self.mode == EcnOptionUse::Persistent),
            Carrier::Data if self.first_data => return Some(all),
            Carrier::Data | Carrier::Ack => {}
        }
        let news = self.told.unwrap_or(Received::FIRST) != received;
        if !news || (self.mode == EcnOptionUse::Sparing && self.demand == 0 && !self.beacon) {
            return None;
        }
        // What never moved is left out.
        let moved = |is: u32, first: u32| is != first;
        let Received { ect0: ect0_0, ce: ce_0, ect1: ect1_0 } = Received::FIRST;
        let eceb = all.eceb.filter(|_| moved(ce, ce_0));
        Some(match (moved(ect0, ect0_0), moved(ect1, ect1_0)) {
            (true, true) => all,
            (false, true) => AccEcn { ee0b: None, eceb, ..all },
            _ => AccEcn { ee1b: None, eceb, ..all },
        })
    }

    /// A segment leaves, perhaps with the option.
    pub(super) fn note_said(&mut self, received: Received, on: Carrier, option: bool) {
        self.was_first_data = self.first_data && on == Carrier::Data;
        self.first_data &= on != Carrier::Data;
        if option {
            self.told = Some(received);
            self.told_at = Some(self.now);
            self.demand = self.demand.saturating_sub(1);
            self.since_repeated = self.since_repeated.saturating_add(1);
        }
    }

    /// It did not leave after all.
    pub(super) fn note_unsaid(&mut self) {
        self.told = None;
        self.first_data |= core::mem::take(&mut self.was_first_data);
        self.demand = self.demand.max(1);
    }
}

/// Whether an option fits beside timestamps and two of `sack_blocks`, which come first (§3.2.3.3).
pub(super) fn fits(option: AccEcn, timestamps: bool, sack_blocks: usize) -> bool {
    let timestamps = if timestamps { TIMESTAMPS_LEN } else { 0 };
    let sack = match sack_blocks.min(2) {
        0 => 0,
        blocks => 4 + 8 * blocks,
    };
    timestamps + sack + option.emitted_len() <= OPTIONS_MAX
}
