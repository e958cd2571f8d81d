//! A small queue that measures: as much below TCP as keeps the device busy until the next completion, and no more.
//! taut's own (`taut.tsq=measured`); its aim is that of Linux's byte queue limits, for a stack instead of a ring. Called by
//! `plan` through [`rule`](super::rule), by `commit` and by the stack's bookkeeping.
//!
//! **Problem.** A millisecond of the rate is a guess. A device that interrupts at once needs two packets, one that
//! sends in bursts of 4 ms needs four times as much, and a driver must set that by hand (`sk_pacing_shift`). Worse,
//! where a completion takes longer than the millisecond, the rate falls to a millisecond's bytes in that time, the
//! limit follows the rate, and both end at two packets.
//!
//! **Data flow.** A packet is handed over: its payload counts as below. Its ticket comes back with the time: the
//! payload counts as completed. Nothing else is needed, no clock of the device and nothing for each packet:
//!
//! ```text
//!   completion time = bytes below TCP / bytes per second, while these bytes are too few for the device
//! ```
//!
//! (Little's law.) In any other state the same quotient also holds the time in the queue. So the state that counts is
//! one in which the limit is too low, and it is made on purpose: now and then the limit is a quarter for some round
//! trips to the device and back (a *look*). If the rate falls, the quotient is the completion time, whether the device
//! collects completions, sends in bursts, or gives tickets back late and in any order. If not, a quarter is enough.
//!
//! **Rule.** For all connections of the stack together, which share the device:
//!
//! ```text
//!   limit = rate · completion time + min( rate · 1/2 ms + a segment, tcp_limit_output_bytes )      at least two segments
//! ```
//!
//! The setting cannot bound what the completion time needs: the device would idle, at 10 Gbit/s with completions every 4 ms
//! below 5.6 MB. The quotient is a mean. Where tickets come back in any order, one is late by more than another, up to twice
//! the mean if that is spread evenly; there the completion time is 8/5 of the quotient.
//!
//! **Turns.** A packet counts before it is sent: it may leave if it fits, or if nothing is below. A connection that finds
//! no room waits in the stack's line. When bytes have left, the first in the line has its turn: it is asked, and hands over
//! one packet, or keeps its place. So many connections have no more below than one, each gets a packet in a round, and a
//! completion asks one connection, however many wait. A connection that sends little, and has nothing there, passes the
//! line with a packet of one segment; when a limit of bytes has passed the line in that way, a turn comes first.
//! A retransmission waits for no turn, and has twice the limit, as by Linux's rule. Super-packets are at most a quarter of a
//! millisecond (half of what lies above the completion time), and half of the limit, even if that is less than
//! `tcp_min_tso_segs`.
//!
//! **No exemption.** By Linux's rule a packet leaves when little is unacknowledged. Here each of many connections would have one,
//! and more where ACKs overtake tickets. Against tickets that never come back, a connection that waits with nothing in
//! flight has a timer; if it ends, and none came for 200 ms, those that are out are counted no more.
//!
//! **When it measures.** Only while the limit is what holds the stack back: at each completion, a connection
//! waits at this gate. The first limit is 32 KiB, which is more than an initial window; it doubles while that
//! brings a quarter more rate, and while it is needed: after 64 completions at which nobody waits, it is that
//! of the sample before. Windows may allow less than the first limit, and yet more than the device needs: ten
//! segments are 12 ms at 10 Mbit/s. So if 64 packets were below for more than a millisecond, although not all
//! completions found somebody waiting, and the device was never without one, there is a first look, at two
//! segments. It ends, and says nothing, once nothing is below: a burst is too short for it. On a fast device,
//! windows or pacing may hold a flow back for ever, and packets of half of 32 KiB would be many. So the first
//! limit doubles, up to two of the longest packets, after 64 packets of a quarter of it or more that were
//! below for less than 1/4 ms: then a packet of half the new limit takes less than a millisecond. After one
//! that was below for 1/2 ms, or a first judgement, that is over. The same search begins when the rate falls
//! by more than a quarter: the device has become slower, or its completions later. A look costs at most the
//! device's time for as long as it lasts, so it is followed by 512 times that without one, and by a second at
//! least.
//!
//! **A flow that paces itself** by the rate at which its data is delivered, as BBR does, hides a limit that is too low: its own
//! rate follows what the limit lets through, and then time holds it back and not the limit. So if somebody waited at an eighth of
//! the completions only, that is enough to double a limit that is being found, and, before anything is known, for a first look; and
//! it is not enough for a judgement of a limit that was found, but the rate, and the limit with it, rise to what was completed.
//!
//! **A token bucket** below, as `tbf` or a provider's shaper is one, makes good what a look left idle: it
//! sends faster than its rate for some milliseconds. So the rate rises only to what two samples in a row
//! have.
//!
//! **A host that is away**: a thread that waits for a processor for some milliseconds hands over nothing
//! meanwhile, and one sample has too low a rate. So a limit is doubled only after two samples in a row that
//! call for it.
//!
//! **Numbers.** Half a millisecond above the completion time is two super-packets, one for the device to work on while the
//! host answers to the completion of the other. A rate is that of three
//! round trips and of 64 packets, so that tickets that come back in any order change it by some percent only. A look has a
//! quarter of the limit because a half may still be enough.

use super::gate::{Device, bytes_in};
use super::metered::{IN_LINE, MOST, Metered, TURN, WAITS};
use crate::words::{Duration, Instant};

/// What a device should have beyond its completion time.
const SLACK: Duration = Duration::from_micros(500);

/// The limit before anything is known, in bytes: more than an initial window of ten segments.
const FIRST: u32 = 32 * 1_024;

/// And at most, on a device that is fast though nothing held the stack back: two of the longest packets.
const FIRST_MOST: u32 = 4 * FIRST;

/// A device that has returned no ticket for so long, while a connection waited, has lost them: Linux's least retransmission
/// timeout, after which a connection cannot wait for an acknowledgement either.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// A rate is measured over at least this many round trips to the device, and this many packets.
const ROUNDS: u32 = 3;
const PACKETS: u32 = 64;

/// In a look, the limit is divided by this.
const LOOK_SHARE: u32 = 4;

/// After a look, there is none for this many times its duration, nor for this long.
const LOOK_REST: u64 = 512;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Completions at one rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    /// Bytes per second.
    rate: u64,
    /// Bytes below TCP before a completion, in the mean.
    level: u64,
    /// At least an eighth of the tickets overtook others.
    overtakes: bool,
}

impl Sample {
    /// How long a byte stayed below TCP (Little's law).
    const fn time(self) -> Duration {
        Duration::from_nanos(
            self.level.saturating_mul(1_000_000_000) / if self.rate == 0 { 1 } else { self.rate },
        )
    }
}

/// What the limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It doubles while that helps. The sample of half the limit, if there is one, and whether a doubling has
    /// helped.
    Search { half: Option<Sample>, helped: bool },
    /// It is known.
    Steady,
    /// It is too low on purpose since then. In the first look, the limit had not held the stack back before.
    Look { since: Instant, is_first: bool },
}

impl Phase {
    const NEW: Self = Self::Search { half: None, helped: false };
}

/// The span of time over which completions are counted.
#[derive(Clone, Copy, Debug)]
struct Span {
    since: Instant,
    /// Bytes completed after `since`.
    bytes: u64,
    packets: u32,
    /// Those handed over before one that came back earlier.
    overtaken: u32,
    /// Completions at different times, and the sum of the bytes below TCP before each of them.
    batches: u32,
    levels: u64,
    /// Round trips, and the time from which on a packet of the current one was handed over.
    rounds: u32,
    round_since: Instant,
    round_over: bool,
    /// Completions at which somebody waited, and at which nobody did.
    held: u32,
    unheld: u32,
    /// The limit has just changed: the first round trip does not count.
    settles: bool,
}

impl Span {
    /// The limit was in the way at an eighth of the completions, if not at all.
    const fn is_touched(&self) -> bool {
        self.held > self.unheld / 7
    }

    const fn new(since: Instant, settles: bool) -> Self {
        Self {
            since,
            bytes: 0,
            packets: 0,
            overtaken: 0,
            batches: 0,
            levels: 0,
            rounds: 0,
            round_since: since,
            round_over: false,
            held: 0,
            unheld: 0,
            settles,
        }
    }
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
    /// Bytes per second that the device completes while the limit holds the stack back; 0 if unknown.
    rate: u64,
    /// The completion time.
    time: Duration,
    /// The rate of the sample before, if the limit was the same for it: a rate that comes once is no rate.
    before: u64,
    /// The latest sample called for a higher limit. The next one must do so, too.
    unsure: bool,
    phase: Phase,
    /// Completions in a row at which nobody waited.
    unheld: u32,
    /// The limit while nothing is known, and packets that suggest a higher one.
    first: u32,
    quick: u32,
    /// No look before this.
    look_at: Instant,
    /// The time of the latest completion.
    at: Instant,
    /// When the youngest packet was handed over that has come back.
    newest: Instant,
    /// Tickets come back in any order.
    overtakes: bool,
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
            unheld: 0,
            first: FIRST,
            quick: 0,
            rate: 0,
            time: Duration::ZERO,
            before: 0,
            unsure: false,
            phase: Phase::NEW,
            look_at: Instant::ZERO,
            at: Instant::ZERO,
            newest: Instant::ZERO,
            overtakes: false,
            span: Span::new(Instant::ZERO, true),
            mss: 0,
        }
    }
}

impl Meter {
    /// A packet of a connection was handed over.
    pub(crate) fn on_handed(&mut self, own: &mut Metered, payload: u32, mss: u32) {
        let payload = payload.min(MOST - own.bytes());
        let is_turn = own.has(TURN);
        if self.device.below == 0 && self.device.waiting == 0 && !is_turn {
            self.on_idle();
        }
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
            self.at = now;
        }
        if now > self.span.since {
            self.span.bytes += u64::from(payload);
            self.span.packets += 1;
            self.span.overtaken += u32::from(handed < self.newest);
        }
        if self.device.is_unknown() {
            self.note_speed(now.since(handed), payload);
        }
        self.newest = self.newest.max(handed);
        self.span.round_over |= handed >= self.span.round_since;
        self.take_back(own, payload);
    }

    /// A packet was not sent after all.
    pub(crate) fn take_back(&mut self, own: &mut Metered, payload: u32) {
        let payload = payload.min(own.bytes());
        own.bits -= payload;
        self.device.below -= u64::from(payload);
        self.lost = self.lost.min(self.device.below);
        self.is_open = true;
    }

    /// A connection waited for a timeout, with nothing in flight. If no ticket came back meanwhile, those that are out
    /// are not waited for any more.
    pub(crate) fn on_overdue(&mut self, now: Instant) {
        if now.since(self.at) >= LOST_AFTER {
            self.lost = self.device.below;
            self.is_open = true;
        }
    }

    /// The connection found the gate shut. If it was its turn, it keeps its place, and nobody gets a turn before the next
    /// completion.
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
        (self.rate > 0).then_some(self.time)
    }

    // ---- measuring ----

    /// The first ticket of a new completion is here; all those of the one before have been counted.
    fn on_batch(&mut self, now: Instant) {
        let is_held = self.device.waiting > 0;
        if self.is_new() {
            return self.count_any(is_held);
        }
        if !is_held {
            // Something else held the stack back: this says nothing about the device.
            self.unheld = self.unheld.saturating_add(1);
            match self.phase {
                Phase::Look { .. } => {
                    self.look_at = now + LOOK_EVERY;
                    self.settle_at(now, self.time);
                }
                // Nothing needs twice of what was enough for this.
                Phase::Search { half: Some(half), .. } if self.unheld >= PACKETS => {
                    self.rate = half.rate;
                    self.settle_at(now, self.enough(half));
                }
                Phase::Search { .. } | Phase::Steady => self.count_some(false),
            }
            return;
        }
        self.unheld = 0;
        self.count_some(true);
    }

    /// A completion. After all of a span were held back, or while the limit doubles, it is judged; else the rate may only rise.
    fn count_some(&mut self, is_held: bool) {
        if let Some((sample, span)) = self.sample() {
            let is_search = matches!(self.phase, Phase::Search { .. });
            if span.unheld == 0 || is_search && span.is_touched() {
                self.judge(sample);
            } else if span.is_touched() {
                self.rise(sample.rate);
            }
        }
        self.count(is_held);
    }

    /// So much was completed, and the limit was in the way.
    fn rise(&mut self, rate: u64) {
        if rate > self.rate {
            self.rate = rate;
            self.set_limit();
        }
    }

    fn count(&mut self, is_held: bool) {
        *(if is_held { &mut self.span.held } else { &mut self.span.unheld }) += 1;
        self.span.batches += 1;
        self.span.levels += self.device.below - self.lost;
    }

    /// Whether the limit has never held the stack back for long.
    fn is_new(&self) -> bool {
        match self.phase {
            Phase::Search { half, .. } => half.is_none(),
            Phase::Look { is_first, .. } => is_first,
            Phase::Steady => false,
        }
    }

    /// A new completion while that is so. If packets are below for long although nobody waits, a look at two segments shows
    /// why: the rate falls if completions are late, and does not if the windows alone made a queue.
    fn count_any(&mut self, is_held: bool) {
        if let Some((sample, span)) = self.sample() {
            match self.phase {
                _ if span.unheld == 0 => self.judge(sample),
                Phase::Look { .. } if span.held == 0 => self.on_idle(),
                Phase::Look { .. } => self.judge(sample),
                _ if (span.is_touched() || sample.time() > SLACK * 2)
                    && sample.level > u64::from(self.mss) * 2 =>
                {
                    (self.rate, self.time) = (sample.rate, self.enough(sample));
                    self.overtakes = sample.overtakes;
                    self.phase = Phase::Look { since: self.at, is_first: true };
                    self.device.limit = 2 * self.mss;
                    self.span = Span::new(self.at, true);
                }
                _ => {}
            }
        }
        self.count(is_held);
    }

    /// A packet was below for so long, before anything is known. Long packets that leave quickly may become longer.
    fn note_speed(&mut self, below: Duration, payload: u32) {
        let before = self.first;
        if below >= SLACK {
            (self.first, self.quick) = (FIRST, 0);
        } else if below < SLACK / 2 && payload >= self.first / 4 {
            self.quick += 1;
        }
        if self.quick >= PACKETS && self.first < FIRST_MOST {
            (self.first, self.quick) = (self.first * 2, 0);
        }
        if self.device.limit == before {
            self.device.limit = self.first;
        }
    }

    /// The device was idle, so the span says nothing about it. A first look is given up.
    fn on_idle(&mut self) {
        if self.is_new() {
            (self.rate, self.time) = (0, Duration::ZERO);
            self.phase = Phase::NEW;
            self.device.limit = self.first;
            self.span = Span::new(self.at, true);
        }
    }

    /// The sample of the span and the span, if a round trip is over and it was long enough.
    fn sample(&mut self) -> Option<(Sample, Span)> {
        let span = &mut self.span;
        if !core::mem::take(&mut span.round_over) {
            return None;
        }
        span.rounds += 1;
        span.round_since = self.at;
        if span.settles {
            *span = Span::new(self.at, false);
        } else if span.rounds >= ROUNDS && span.packets >= PACKETS {
            let ns = self.at.since(span.since).as_nanos().max(1);
            let rate = span.bytes.saturating_mul(1_000_000_000) / ns;
            let level = span.levels / u64::from(span.batches.max(1));
            let overtakes = span.overtaken >= span.packets / 8;
            let sample = Sample { rate, level, overtakes };
            return Some((sample, core::mem::replace(span, Span::new(self.at, false))));
        }
        None
    }

    fn judge(&mut self, sample: Sample) {
        match self.phase {
            Phase::Search { half: Some(half), helped } if sample.rate < half.rate + half.rate / 4 => {
                self.rate = sample.rate;
                let time = if helped || self.time > Duration::ZERO { self.time } else { self.enough(half) };
                self.look_at = self.at;
                self.settle_at(self.at, time);
            }
            Phase::Search { half, .. } => {
                if half.is_some() && !self.is_sure() {
                    return;
                }
                if let Some(half) = half {
                    // Half the limit was too low, so it shows the completion time.
                    self.time = half.time();
                }
                self.search(sample, half.is_some());
            }
            Phase::Steady => {
                self.overtakes = sample.overtakes;
                if sample.rate < self.rate / 4 * 3 {
                    if self.is_sure() {
                        self.rate = sample.rate;
                        self.search(sample, false);
                    }
                    return;
                }
                self.unsure = false;
                let before = core::mem::replace(&mut self.before, sample.rate);
                self.rate = if sample.rate > self.rate {
                    self.rate.max(before.min(sample.rate))
                } else {
                    self.rate - (self.rate - sample.rate) / 8
                };
                self.set_limit();
                let look = (self.device.limit / LOOK_SHARE).max(2 * self.mss);
                if self.at >= self.look_at && look <= self.device.limit / 4 * 3 {
                    self.phase = Phase::Look { since: self.at, is_first: false };
                    self.device.limit = look;
                    self.span = Span::new(self.at, true);
                }
            }
            Phase::Look { since, .. } => {
                let spent = self.at.since(since);
                self.look_at = self.at + LOOK_EVERY.max(spent * LOOK_REST);
                let time = if sample.rate < self.rate / 16 * 15 {
                    if self.overtakes { sample.time() * 8 / 5 } else { sample.time() }
                } else {
                    let time = self.enough(sample);
                    if time < self.time / 2 {
                        // It cost nothing, and even less may be enough.
                        self.look_at = self.at;
                    }
                    time.min(self.time)
                };
                self.settle_at(self.at, time);
            }
        }
    }

    /// Whether the sample before called for a higher limit, too.
    fn is_sure(&mut self) -> bool {
        self.unsure = !self.unsure;
        !self.unsure
    }

    /// The completion time by which the limit is what was below in a sample, and some more to be sure.
    fn enough(&self, sample: Sample) -> Duration {
        let segment = Sample { level: self.mss.into(), ..sample }.time();
        let (enough, above) = (sample.time() + SLACK / 2, SLACK + segment);
        Duration::from_nanos(enough.as_nanos().saturating_sub(above.as_nanos()))
    }

    /// Doubles the limit, after a sample of what it is now.
    fn search(&mut self, sample: Sample, helped: bool) {
        self.phase = Phase::Search { half: Some(sample), helped };
        self.device.needed = u32::try_from(sample.level).unwrap_or(u32::MAX);
        self.device.limit = self.device.needed.saturating_mul(2);
        self.device.packet = bytes_in(sample.rate, SLACK) / 2;
        self.span = Span::new(self.at, true);
    }

    /// The completion time is known.
    fn settle_at(&mut self, now: Instant, time: Duration) {
        self.time = time;
        self.before = 0;
        self.unsure = false;
        self.set_limit();
        self.phase = Phase::Steady;
        self.span = Span::new(now, true);
    }

    /// What keeps the device busy until the next completion.
    fn set_limit(&mut self) {
        self.device.needed = bytes_in(self.rate, self.time);
        self.device.limit = bytes_in(self.rate, self.time + SLACK).saturating_add(self.mss);
        self.device.packet = bytes_in(self.rate, SLACK) / 2;
    }
}

#[cfg(test)]
mod tests;
