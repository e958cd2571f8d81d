//! A small queue that measures: as much below TCP as keeps the device busy until the next completion and for
//! a millisecond, and no more. taut's own (`taut.tsq=measured`); its aim is that of Linux's byte queue
//! limits, for a stack instead of a ring. Called by `plan` through [`rule`](super::rule), by `commit` and by
//! the stack's bookkeeping.
//!
//! **Problem.** A millisecond of the rate is a guess. Where a completion takes longer, because the device
//! interrupts seldom or sends in bursts, the rate falls to a millisecond's bytes in that time, the limit
//! follows the rate, and both end at two packets. A driver must set that by hand (`sk_pacing_shift`).
//!
//! **Rule.** For all connections of the stack together, which share the device:
//!
//! ```text
//!   limit = rate · (completion time + 1 ms)        at least two segments
//! ```
//!
//! A packet may leave if half of it fits, so the limit is the mean before and after it. A super-packet is two
//! thirds of a millisecond: two of them are below, and while the host answers to the completion of one, the
//! other is sent. `tcp_limit_output_bytes` bounds what is above the completion time.
//!
//! **Data flow.** A packet is handed over: its payload counts as below. Its ticket comes back with the time:
//! the payload counts as completed. Nothing else is needed, and no clock of the device.
//!
//! - The *rate* is the median of three *spans*, each of two round trips to the device, four packets and a
//!   millisecond, or what a full token bucket lets through at once would be several spans. A span counts if
//!   the device had a queue in it: bytes were below for half a millisecond longer than a completion takes,
//!   whoever held the stack back. Else the device may have been idle, and a span can only raise the rate.
//! - The *completion time* is the median of three packets that were *alone* below, from the hand-over to the
//!   ticket. A queue hides it: with any limit that is enough, bytes are below for as long as the limit says.
//!   So twice a second, if the device has a queue, it is let run dry, and the next packet, of one segment,
//!   goes alone (a *look*). If it took as long as known, that is all; else two more go alone. A packet of one
//!   segment that is alone because there is nothing else to send says the same, for nothing. Where tickets
//!   overtake each other, each is late for itself: then the time is the longest of the three and a third
//!   more, and it falls by a quarter a look at most.
//!
//! **Why medians.** A thread that waits for a processor for some milliseconds spoils one span and one look. A
//! token bucket below (`tbf`, a provider's shaper) makes good at once what it left idle, faster than its
//! rate, in one span.
//!
//! **From below.** A limit that is too low for the device makes a low rate, and the rate a low limit. A known
//! completion time ends this: the limit is more than the rate needs, so the rate rises. While it does so
//! twice in a row, and before the first queue, the limit is twice what the completion time takes. A wrong
//! completion time lasts until the next look.
//!
//! **The first limit** is 32 KiB, more than an initial window, until a span has had a queue.
//!
//! **Turns.** A packet counts before it is sent, and may always leave if nothing is below. A connection that
//! finds no room waits in the stack's line. When bytes have left, the first in the line has its turn: it is
//! asked, and hands over one packet, or keeps its place. So many connections have no more below than one,
//! each gets a packet in a round, and a completion asks one connection, however many wait. A connection that
//! sends little, and has nothing there, passes the line with a packet of one segment; when a limit of bytes
//! has passed the line in that way, a turn comes first. A retransmission waits for no turn, and has twice the
//! limit, as by Linux's rule.
//!
//! **No exemption.** By Linux's rule a packet leaves when little is unacknowledged. Here each of many
//! connections would have one, and more where ACKs overtake tickets. Against tickets that never come back, a
//! connection that waits with nothing in flight has a timer; if it ends, and none came for 200 ms, those that
//! are out are counted no more.

use super::gate::{Device, bytes_in};
use super::metered::{IN_LINE, MOST, Metered, TURN, WAITS};
use crate::words::{Duration, Instant};

/// What a device should have beyond its completion time.
const SLACK: Duration = Duration::from_millis(1);

/// The limit before anything is known, in bytes: more than an initial window of ten segments.
const FIRST: u32 = 32 * 1_024;

/// A device that has returned no ticket for so long, while a connection waited, has lost them: Linux's least
/// retransmission timeout, after which a connection cannot wait for an acknowledgement either.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// A span lasts at least this many round trips to the device, this many packets, and [`SLACK`].
const ROUNDS: u32 = 2;
const PACKETS: u32 = 4;

/// The time from one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After one that found nothing new, there is none for so many times what a packet took.
const LOOK_REST: u64 = 512;

/// The most packets that go alone in a look.
const LOOKS: u8 = 3;

/// The latest three values.
#[derive(Clone, Copy, Debug, Default)]
struct Latest([u64; 3]);

impl Latest {
    /// By a sixteenth, twice.
    const fn is_rising(self) -> bool {
        let [first, second, third] = self.0;
        second > first / 16 * 17 && third > second / 16 * 17
    }

    const fn add(&mut self, value: u64) {
        let [_, second, third] = self.0;
        self.0 = [second, third, value];
    }

    fn most(self) -> u64 {
        self.0.into_iter().max().unwrap_or_default()
    }

    fn median(self) -> u64 {
        let [a, b, c] = self.0;
        a.min(b).max(a.max(b).min(c))
    }
}

/// The span of time over which completions are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    since: Instant,
    /// Bytes and packets completed after `since`.
    bytes: u64,
    packets: u32,
    /// How long they were below: the sum of bytes times nanoseconds.
    waits: u64,
    /// Round trips, and the time from which on a packet of the current one was handed over.
    rounds: u32,
    round_since: Instant,
}

/// A device as its completions show it. One for each stack.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// What the gate reads.
    device: Device,
    /// The part of what is below whose tickets are not waited for.
    lost: u64,
    /// Bytes have left since the first in the line was asked.
    is_open: bool,
    /// Bytes per second of spans.
    rates: Latest,
    /// Nanoseconds that packets were below alone.
    times: Latest,
    /// A span had a queue.
    is_known: bool,
    /// Packets that are still to go alone.
    looks: u8,
    /// No look before this.
    look_at: Instant,
    /// When the youngest packet was handed over that has come back.
    newest: Instant,
    /// A packet came back before one that was handed over earlier: before the latest look, and since.
    is_disordered: [bool; 2],
    /// The packet that is below is alone.
    is_alone: bool,
    /// The time of the latest completion.
    at: Instant,
    span: Span,
    /// Segment size of the latest packet.
    mss: u32,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            device: Device { limit: FIRST, ..Device::NOTHING },
            lost: 0,
            is_open: true,
            rates: Latest::default(),
            times: Latest::default(),
            is_known: false,
            looks: 0,
            look_at: Instant::ZERO,
            newest: Instant::ZERO,
            is_disordered: [false; 2],
            is_alone: false,
            at: Instant::ZERO,
            span: Span::default(),
            mss: 0,
        }
    }
}

impl Meter {
    /// A packet of a connection was handed over.
    pub(crate) fn on_handed(&mut self, own: &mut Metered, payload: u32, mss: u32) {
        let payload = payload.min(MOST - own.bytes());
        let is_first = self.device.below == self.lost;
        self.is_alone = is_first && (payload <= mss || self.looks > 0);
        if !is_first && self.looks > 0 {
            // Something else passes the gate, so nothing goes alone.
            self.end_looks();
            self.set_limit();
        }
        let is_turn = own.has(TURN);
        self.end_wait(own);
        if is_turn {
            self.device.passed = 0;
        } else if self.device.waiting > 0 {
            self.device.passed = self.device.passed.saturating_add(payload);
        }
        own.bits += payload;
        self.device.below += u64::from(payload);
        self.mss = mss;
    }

    /// A packet's ticket came back: it was handed over at `handed`.
    pub(crate) fn on_completed(&mut self, own: &mut Metered, now: Instant, handed: Instant, payload: u32) {
        if now > self.at {
            self.on_batch(now);
        }
        if now > self.span.since {
            self.span.bytes += u64::from(payload);
            self.span.packets += 1;
            let wait = now.since(handed).as_nanos().saturating_mul(payload.into());
            self.span.waits = self.span.waits.saturating_add(wait);
        }
        if handed >= self.span.round_since {
            self.span.rounds += 1;
            self.span.round_since = now;
        }
        self.newest = self.newest.max(handed);
        self.is_disordered[1] |= handed < self.newest;
        self.take_back(own, payload);
        if self.is_alone && self.device.below == self.lost {
            self.is_alone = false;
            self.on_alone(now.since(handed));
        }
    }

    /// A packet was not sent after all.
    pub(crate) fn take_back(&mut self, own: &mut Metered, payload: u32) {
        let payload = payload.min(own.bytes());
        own.bits -= payload;
        self.device.below -= u64::from(payload);
        self.lost = self.lost.min(self.device.below);
        self.is_open = true;
    }

    /// A connection waited for a timeout, with nothing in flight. If no ticket came back meanwhile, those
    /// that are out are not waited for any more.
    pub(crate) fn on_overdue(&mut self, now: Instant) {
        if now.since(self.at) >= LOST_AFTER {
            self.lost = self.device.below;
            self.is_open = true;
        }
    }

    /// The connection found the gate shut. If it was its turn, it keeps its place, and no connection gets a
    /// turn before the next completion.
    pub(crate) fn on_wait(&mut self, own: &mut Metered) {
        if own.set(TURN, false) {
            self.is_open = false;
        }
        self.device.waiting += u32::from(!own.set(WAITS, true));
    }

    /// The connection waits for something else, or not at all.
    pub(crate) fn end_wait(&mut self, own: &mut Metered) {
        own.set(TURN, false);
        self.device.waiting -= u32::from(own.set(WAITS, false));
    }

    /// Whether the first in the line may be asked.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open && self.device.waiting > 0
    }

    /// The connection left the line. Returns whether it still waits: then it is its turn.
    pub(crate) fn give_turn(&mut self, own: &mut Metered) -> bool {
        own.set(IN_LINE, false);
        let waited = own.waits();
        self.end_wait(own);
        own.set(TURN, waited);
        waited
    }

    /// The connection is gone; its tickets will not be reported.
    pub(crate) fn on_gone(&mut self, own: &mut Metered) {
        self.take_back(own, own.bytes());
        self.end_wait(own);
    }

    /// What the gate needs to know now.
    pub(crate) const fn device(&self) -> Device {
        Device { below: self.device.below - self.lost, ..self.device }
    }

    /// The completion time, once one was measured.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.is_known.then(|| self.completion())
    }

    // ---- measuring ----

    fn completion(&self) -> Duration {
        // A packet that was alone took its own time on the line, too.
        let sent = (u64::from(self.mss) * 1_000_000_000).checked_div(self.rates.median()).unwrap_or_default();
        self.alone() - Duration::from_nanos(sent)
    }

    /// How long a packet is below alone. If each is late for itself, three have three quarters of the most in
    /// the mean.
    fn alone(&self) -> Duration {
        Duration::from_nanos(if self.is_disordered() {
            self.times.most() / 3 * 4
        } else {
            self.times.median()
        })
    }

    fn is_disordered(&self) -> bool {
        self.is_disordered != [false; 2]
    }

    /// The first ticket of a new completion is here; all those of the one before have been counted.
    fn on_batch(&mut self, now: Instant) {
        let is_over = self.span.rounds >= ROUNDS && self.span.packets >= PACKETS;
        if is_over && self.at.since(self.span.since) >= SLACK && self.looks == 0 {
            self.judge();
        }
        self.at = now;
    }

    /// A span is over.
    fn judge(&mut self) {
        let span = core::mem::replace(&mut self.span, Span::begin(self.at));
        let rate = span.bytes.saturating_mul(1_000_000_000) / self.at.since(span.since).as_nanos().max(1);
        let below = Duration::from_nanos(span.waits / span.bytes.max(1));
        let is_queue = below >= self.completion() + SLACK / 2;
        if is_queue && self.at >= self.look_at {
            self.looks = LOOKS;
            return self.set_limit();
        }
        self.is_known |= is_queue;
        if is_queue || rate > self.rates.median() {
            self.rates.add(rate);
            self.set_limit();
        }
    }

    /// A packet of one segment was below for so long, and no other.
    fn on_alone(&mut self, below: Duration) {
        let known = self.alone();
        // Three are few for what is random: the longest of them falls by a quarter at most.
        let least = if self.is_disordered() { self.times.most() / 4 * 3 } else { 0 };
        self.times.add(below.as_nanos().max(least));
        if self.looks > 0 {
            let is_longer = below > known + SLACK / 4;
            let is_same = !is_longer && (self.is_disordered() || below + SLACK / 4 >= known);
            self.looks = if is_same { 0 } else { self.looks - 1 };
            if self.looks == 0 {
                self.end_looks();
                if is_same {
                    self.look_at = self.at + LOOK_EVERY.max(below * LOOK_REST);
                }
            }
        }
        self.set_limit();
    }

    fn end_looks(&mut self) {
        self.looks = 0;
        self.is_disordered = [self.is_disordered[1], false];
        self.look_at = self.at + LOOK_EVERY;
        self.span = Span::begin(self.at);
    }

    /// Sets the limit: until the next completion and for a millisecond; one packet in a look.
    fn set_limit(&mut self) {
        let (rate, time) = (self.rates.median(), self.completion());
        let first = if self.is_known { 0 } else { FIRST };
        self.device.needed = bytes_in(rate, time);
        // A limit that was too low for the device, and is higher now, brings more rate.
        let is_rising = (!self.is_known || self.rates.is_rising()) && !self.is_disordered();
        // One segment more than brings the rate, half of which must fit, and a quarter against rounding.
        let above = bytes_in(rate, if is_rising { SLACK.max(time) } else { SLACK }).max(self.mss / 4 * 7);
        self.device.limit = bytes_in(rate, time).saturating_add(above).max(first);
        self.device.packet = if self.is_known { bytes_in(rate, SLACK) / 3 * 2 } else { 0 };
        if self.looks > 0 {
            self.device.limit = 0;
        }
    }
}

impl Span {
    fn begin(at: Instant) -> Self {
        Self { since: at, round_since: at, ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
