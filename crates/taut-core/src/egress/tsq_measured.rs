//! A small queue that measures: as much below TCP as keeps the device busy until the next completion, and no more.
//! taut's own (`taut.tsq=measured`); its aim is that of Linux's byte queue limits, for a stack instead of a ring. Called by
//! `plan` through [`tsq`](super::tsq), by `commit` and by the stack's bookkeeping.
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
//!   limit = rate · (completion time + 1/2 ms) + a segment      at most tcp_limit_output_bytes
//! ```
//!
//! The quotient is a mean. Where tickets come back in any order, one is late by more than another, up to twice the mean if
//! that is spread evenly; there the completion time is 8/5 of the quotient.
//!
//! A connection may have what the others leave of it, at least its fair share, and in any case a packet of one
//! segment; two, if it is alone. Here a packet counts before it is sent: it may leave if it fits. Super-packets are at
//! most a quarter of a millisecond (half of what lies above the completion time), and half of the connection's limit,
//! even if that is less than `tcp_min_tso_segs`. A retransmission has twice the limit, as by Linux's rule.
//!
//! **When it measures.** Only while the limit is what holds the stack back: at each completion, a connection waits at
//! this gate. The first limit is a millisecond of what is delivered, or 32 KiB, which is more than an initial window,
//! while that is unknown; it doubles while that brings a quarter more rate. The same search begins when the rate falls by more than a quarter: the device has become slower, or its
//! completions later. A look costs at most the device's time for as long as it lasts, so it is followed by 512 times
//! that without one, and by a second at least.
//!
//! **Numbers.** Half a millisecond above the completion time is two super-packets, one for the device to work on while the
//! host answers to the completion of the other. A rate is that of three
//! round trips and of 64 packets, so that tickets that come back in any order change it by some percent only. A look has a
//! quarter of the limit because a half may still be enough.

use super::blocked::Blocked;
use super::tsq::Pass;
use crate::words::{Duration, Instant};

/// What a device should have beyond its completion time.
const SLACK: Duration = Duration::from_micros(500);

/// The limit before anything is known, in bytes: more than an initial window of ten segments.
const FIRST: u32 = 32 * 1_024;

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
    /// Many tickets overtook others.
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
    /// It doubles while that helps. The sample of half the limit, and whether a doubling has helped.
    Search { half: Sample, helped: bool },
    /// It is known.
    Steady,
    /// It is too low on purpose since then.
    Look { since: Instant },
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
    /// The limit has just changed: the first round trip does not count.
    settles: bool,
}

impl Span {
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
            settles,
        }
    }
}

/// A device as its completions show it. One for each stack.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// What the gate reads.
    device: Device,
    /// Connections that wait at the gate.
    waiting: u32,
    /// Bytes per second that the device completes while the limit holds the stack back; 0 if unknown.
    rate: u64,
    /// The completion time.
    time: Duration,
    phase: Phase,
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
            device: Device { limit: FIRST, below: 0, sharers: 0, packet: 0 },
            waiting: 0,
            rate: 0,
            time: Duration::ZERO,
            phase: Phase::Search { half: Sample { rate: 0, level: 0, overtakes: false }, helped: false },
            look_at: Instant::ZERO,
            at: Instant::ZERO,
            newest: Instant::ZERO,
            overtakes: false,
            span: Span::new(Instant::ZERO, true),
            mss: 0,
        }
    }
}

/// The bytes of a connection below TCP whose completions are measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Metered {
    /// The payload bytes below two flags: four bytes in all, since every idle connection has them.
    bits: u32,
}

/// The connection waits at the gate, and is counted as waiting.
const WAITS: u32 = 1 << 31;

/// The small queue's own flag, of every mode: the next completion resumes the connection.
const THROTTLED: u32 = 1 << 30;

/// The most payload bytes that are counted.
const MOST: u32 = THROTTLED - 1;

impl Metered {
    /// Payload bytes.
    pub(crate) const fn bytes(self) -> u32 {
        self.bits & MOST
    }

    pub(super) const fn throttled(self) -> bool {
        self.bits & THROTTLED != 0
    }

    /// Sets or clears the flag. Returns what it was.
    pub(super) const fn throttle(&mut self, on: bool) -> bool {
        let was = self.throttled();
        self.bits = if on { self.bits | THROTTLED } else { self.bits & !THROTTLED };
        was
    }

    const fn waits(self) -> bool {
        self.bits & WAITS != 0
    }
}

impl Meter {
    /// A packet of a connection was handed over.
    pub(crate) fn on_handed(&mut self, own: &mut Metered, payload: u32, mss: u32) {
        let payload = payload.min(MOST - own.bytes());
        if own.bytes() == 0 && payload > 0 {
            self.device.sharers += 1;
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
        self.newest = self.newest.max(handed);
        self.span.round_over |= handed >= self.span.round_since;
        self.take_back(own, payload);
        self.end_wait(own);
    }

    /// A packet was not sent after all.
    pub(crate) fn take_back(&mut self, own: &mut Metered, payload: u32) {
        let payload = payload.min(own.bytes());
        own.bits -= payload;
        self.device.below -= u64::from(payload);
        if own.bytes() == 0 && payload > 0 {
            self.device.sharers -= 1;
        }
    }

    /// The connection found the gate shut.
    pub(crate) fn on_wait(&mut self, own: &mut Metered) {
        self.waiting += u32::from(!own.waits());
        own.bits |= WAITS;
    }

    fn end_wait(&mut self, own: &mut Metered) {
        self.waiting -= u32::from(own.waits());
        own.bits &= !WAITS;
    }

    /// The connection is gone; its tickets will not be reported.
    pub(crate) fn on_gone(&mut self, own: &mut Metered) {
        self.take_back(own, own.bytes());
        self.end_wait(own);
    }

    /// What the gate needs to know now.
    pub(crate) const fn device(&self) -> Device {
        self.device
    }

    /// The completion time, once one was measured.
    pub(crate) fn time(&self) -> Option<Duration> {
        (self.rate > 0).then_some(self.time)
    }

    // ---- measuring ----

    /// The first ticket of a new completion is here; all those of the one before have been counted.
    fn on_batch(&mut self, now: Instant) {
        if self.waiting == 0 {
            // Something else held the stack back: this says nothing about the device.
            if let Phase::Look { .. } = self.phase {
                self.look_at = now + LOOK_EVERY;
                self.settle_at(now, self.time);
            }
            self.span = Span::new(now, true);
            return;
        }
        let span = &mut self.span;
        if core::mem::take(&mut span.round_over) {
            span.rounds += 1;
            span.round_since = self.at;
            if span.settles {
                *span = Span::new(self.at, false);
            } else if span.rounds >= ROUNDS && span.packets >= PACKETS {
                let ns = self.at.since(span.since).as_nanos().max(1);
                let rate = span.bytes.saturating_mul(1_000_000_000) / ns;
                let level = span.levels / u64::from(span.batches.max(1));
                let overtakes = span.overtaken >= span.packets / 8;
                self.span = Span::new(self.at, false);
                self.judge(Sample { rate, level, overtakes });
            }
        }
        self.span.batches += 1;
        self.span.levels += self.device.below;
    }

    fn judge(&mut self, sample: Sample) {
        match self.phase {
            Phase::Search { half, helped } => {
                if sample.rate >= half.rate + half.rate / 4 {
                    // Half the limit was too low, so it shows the completion time.
                    if half.rate > 0 {
                        self.time = half.time();
                    }
                    self.search(sample, half.rate > 0);
                } else {
                    self.rate = sample.rate;
                    let time = if helped || self.time > Duration::ZERO { self.time } else { half.time() };
                    self.look_at = self.at;
                    self.settle_at(self.at, time);
                }
            }
            Phase::Steady => {
                self.overtakes = sample.overtakes;
                if sample.rate < self.rate / 4 * 3 {
                    self.rate = sample.rate;
                    return self.search(sample, false);
                }
                self.rate = if sample.rate > self.rate {
                    sample.rate
                } else {
                    self.rate - (self.rate - sample.rate) / 8
                };
                self.set_limit();
                let look = (self.device.limit / LOOK_SHARE).max(2 * self.mss);
                if self.at >= self.look_at && look <= self.device.limit / 4 * 3 {
                    self.phase = Phase::Look { since: self.at };
                    self.device.limit = look;
                    self.span = Span::new(self.at, true);
                }
            }
            Phase::Look { since } => {
                let spent = self.at.since(since);
                self.look_at = self.at + LOOK_EVERY.max(spent * LOOK_REST);
                let time = if sample.rate < self.rate / 16 * 15 {
                    if self.overtakes { sample.time() * 8 / 5 } else { sample.time() }
                } else {
                    // As much as was below is enough, and some more to be sure.
                    let segment = Sample { level: self.mss.into(), ..sample }.time();
                    let enough = sample.time() + SLACK / 2;
                    let above = SLACK + segment;
                    let time = Duration::from_nanos(enough.as_nanos().saturating_sub(above.as_nanos()));
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

    /// Doubles the limit, after a sample of what it is now.
    fn search(&mut self, sample: Sample, helped: bool) {
        self.phase = Phase::Search { half: sample, helped };
        self.device.limit = u32::try_from(sample.level * 2).unwrap_or(u32::MAX);
        self.device.packet = bytes_in(sample.rate, SLACK) / 2;
        self.span = Span::new(self.at, true);
    }

    /// The completion time is known.
    fn settle_at(&mut self, now: Instant, time: Duration) {
        self.time = time;
        self.set_limit();
        self.phase = Phase::Steady;
        self.span = Span::new(now, true);
    }

    /// What keeps the device busy until the next completion.
    fn set_limit(&mut self) {
        self.device.limit = bytes_in(self.rate, self.time + SLACK).saturating_add(self.mss);
        self.device.packet = bytes_in(self.rate, SLACK) / 2;
    }
}

/// The gate, for a packet of `payload` bytes of a connection that has `own` below TCP. It is open if the packet fits or
/// would be the only one, and if nothing is unacknowledged: then a ticket that never comes back stops nobody. One packet
/// unacknowledged is no exemption as by Linux's rule, or each of many connections would have two.
pub(crate) fn gate(own: u32, payload: u32, share: u64, records: usize) -> Result<Pass, Blocked> {
    if own == 0 || u64::from(own) + u64::from(payload) <= share {
        Ok(Pass::Room)
    } else if records == 0 {
        Ok(Pass::Exempt)
    } else {
        Err(Blocked::SmallQueue)
    }
}

/// Bytes that `rate` brings in that time.
fn bytes_in(rate: u64, time: Duration) -> u32 {
    let bytes = u128::from(rate) * u128::from(time.as_nanos()) / 1_000_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A device as the gate sees it: values, computed before the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// Bytes of all connections that may be below TCP.
    limit: u32,
    /// And that are.
    below: u64,
    /// Connections that have some.
    sharers: u32,
    /// Bytes of the largest super-packet; 0 if not known.
    packet: u32,
}

impl Device {
    /// Whether nothing was measured yet.
    pub(crate) const fn is_unknown(self) -> bool {
        self.packet == 0
    }

    /// Payload bytes that a connection may have below TCP, of which it has `own`.
    pub(crate) fn share(self, own: u32, mss: u32, cap: u32) -> u32 {
        let limit = self.limit.min(cap);
        let others = self.below.saturating_sub(own.into());
        let sharers = self.sharers + u32::from(own == 0);
        let least = if others == 0 { mss.saturating_mul(2) } else { mss };
        (limit / sharers.max(1)).max(limit.saturating_sub(others.min(limit.into()) as u32)).max(least)
    }

    /// Segments of the largest super-packet.
    pub(crate) fn segs(self, own: u32, mss: u32, cap: u32) -> u32 {
        let half = self.share(own, mss, cap) / 2;
        let most = if self.packet == 0 { half } else { half.min(self.packet) };
        (most / mss.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests;
