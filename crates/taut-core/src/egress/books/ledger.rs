//! The ledger: where bytes waited, how long, and what held the connection back.
//! taut's own; kept by the send path as it acts, read by [`ConnMut::report`](crate::ConnMut::report).
//!
//! Every byte is unsent, in the device, or in flight. How long it stays is measured on a sample: one marked
//! byte at a time in the write queue and in flight, and each ticket in the device. The mark is set when a
//! byte enters an unmarked queue and read when it leaves, so a mark costs two comparisons per packet,
//! whatever the queue's length; over time, each queue is sampled about once per turnover.
//!
//! Shares: at every moment one gate is shut, or the application has written nothing. When the gate changes,
//! the time since the last change is added to the one that was shut, and to the stack's sum over all
//! connections.
//!
//! The ledger is made at a connection's first write: a connection that only receives has none. It adds up,
//! and decides nothing.

use super::chrono::Chrono;
use crate::egress::blocked::Gate;
use crate::stats::{Histogram, Lateness};
use crate::words::{Duration, Instant};

/// The places where bytes wait, in the order in which they pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Unsent,
    Device,
    InFlight,
}

impl Queue {
    pub(crate) const ALL: [Self; 3] = [Self::Unsent, Self::Device, Self::InFlight];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Device => "device",
            Self::InFlight => "in flight",
        }
    }
}

/// The unit in which a connection remembers lateness: up to 0.65 s fit into the two bytes that are free in a
/// ledger.
const LATE_UNIT: Duration = Duration::from_micros(10);

/// Sums over all connections that a stack ever had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) shares: [Duration; Gate::COUNT],
    pub(crate) sojourn: [Histogram; 3],
    /// How late timers of pacing were.
    pub(crate) lateness: Lateness,
}

impl Totals {
    pub(crate) fn add_share(&mut self, gate: Gate, span: Duration) {
        if let Some(share) = self.shares.get_mut(gate as usize) {
            *share += span;
        }
    }

    pub(crate) fn add_sojourn(&mut self, queue: Queue, span: Duration) {
        if let Some(histogram) = self.sojourn.get_mut(queue as usize) {
            histogram.record(span);
        }
    }
}

/// A [`Histogram`] of 16-bit counts. When one is full, all are halved, so that recent samples count more.
#[derive(Clone, Copy, Debug, Default)]
struct Compact([u16; Histogram::BUCKETS]);

impl Compact {
    fn record(&mut self, span: Duration) {
        let Some(count) = self.0.get_mut(Histogram::bucket_of(span)) else { return };
        *count += 1;
        if *count == u16::MAX {
            for count in &mut self.0 {
                *count /= 2;
            }
        }
    }
}

/// A byte whose passage is timed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Position of the byte; [`Mark::NONE`] for no mark.
    at: u64,
    since: Instant,
}

impl Mark {
    const NONE: u64 = u64::MAX;

    const fn new() -> Self {
        Self { at: Self::NONE, since: Instant::ZERO }
    }

    fn set(&mut self, at: u64, now: Instant) {
        if self.at == Self::NONE {
            *self = Self { at, since: now };
        }
    }

    /// The queue now begins at `start`. Returns the time that the marked byte spent there, if it has left.
    fn passed(&mut self, start: u64, now: Instant) -> Option<Duration> {
        if self.at >= start {
            return None;
        }
        self.at = Self::NONE;
        Some(now.since(self.since))
    }

    fn age(&self, now: Instant) -> Option<Duration> {
        (self.at != Self::NONE).then(|| now.since(self.since))
    }
}

/// The books of one connection.
#[derive(Debug)]
pub(crate) struct Ledger {
    gate: Gate,
    since: Instant,
    shares: [Duration; Gate::COUNT],
    unsent: Mark,
    in_flight: Mark,
    /// Payload bytes below TCP.
    device_bytes: u32,
    /// The hand-over time of the packet whose ticket came back last, or the time at which the device began to
    /// hold anything: no packet still there is older.
    device_since: Instant,
    sojourn: [Compact; 3],
    /// The most by which its timer of pacing was late, in units of [`LATE_UNIT`].
    late_most: u16,
    pub(crate) chrono: Chrono,
    /// Whether the latest sample of the delivery rate was limited by the application.
    pub(crate) app_limited: bool,
    /// Payload bytes retransmitted.
    pub(crate) bytes_retrans: u64,
}

impl Ledger {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            gate: Gate::NoData,
            since: now,
            shares: [Duration::ZERO; Gate::COUNT],
            unsent: Mark::new(),
            in_flight: Mark::new(),
            device_bytes: 0,
            device_since: now,
            sojourn: [Compact([0; Histogram::BUCKETS]); 3],
            late_most: 0,
            chrono: Chrono::new(now),
            app_limited: false,
            bytes_retrans: 0,
        }
    }

    /// From now on, `gate` holds the connection back.
    pub(crate) fn on_gate(&mut self, now: Instant, gate: Gate, totals: &mut Totals) {
        let span = now.since(self.since);
        if let Some(share) = self.shares.get_mut(self.gate as usize) {
            *share += span;
        }
        totals.add_share(self.gate, span);
        self.since = now;
        self.gate = gate;
    }

    /// Bytes from position `at` on were written.
    pub(crate) fn on_written(&mut self, now: Instant, at: u64) {
        self.unsent.set(at, now);
    }

    /// `start..end` was sent for the first time.
    pub(crate) fn on_sent(&mut self, now: Instant, start: u64, end: u64, totals: &mut Totals) {
        if let Some(span) = self.unsent.passed(end, now) {
            self.record(Queue::Unsent, span, totals);
        }
        self.in_flight.set(start, now);
    }

    /// A packet with `payload` bytes was handed to the device.
    pub(crate) fn on_handed(&mut self, now: Instant, payload: u32) {
        if self.device_bytes == 0 {
            self.device_since = now;
        }
        self.device_bytes += payload;
    }

    /// `payload` bytes that were handed to the device are not there: it refused or dropped them.
    pub(crate) fn on_refused(&mut self, payload: u32) {
        self.device_bytes = self.device_bytes.saturating_sub(payload);
    }

    /// The bytes from `start` on were not sent after all: the device refused them.
    pub(crate) fn on_unsent(&mut self, now: Instant, start: u64) {
        if self.in_flight.at != Mark::NONE && self.in_flight.at >= start {
            self.in_flight.at = Mark::NONE;
        }
        self.unsent.set(start, now);
    }

    /// The ticket of a packet with `payload` bytes that was handed over at `handed` came back.
    pub(crate) fn on_completed(&mut self, now: Instant, handed: Instant, payload: u32, totals: &mut Totals) {
        self.device_bytes = self.device_bytes.saturating_sub(payload);
        self.device_since = self.device_since.max(handed);
        self.record(Queue::Device, now.since(handed), totals);
    }

    /// Everything before `una` is acknowledged.
    pub(crate) fn on_acked(&mut self, now: Instant, una: u64, totals: &mut Totals) {
        if let Some(span) = self.in_flight.passed(una, now) {
            self.record(Queue::InFlight, span, totals);
        }
    }

    /// The timer for the next departure fired, that much after it.
    pub(crate) fn on_pacing_timer(&mut self, late: Duration) {
        let units = late.as_nanos().div_ceil(LATE_UNIT.as_nanos());
        self.late_most = self.late_most.max(u16::try_from(units).unwrap_or(u16::MAX));
    }

    /// After an acknowledgement that leaves data in flight: times the next byte to be acknowledged from its
    /// packet's departure.
    pub(crate) fn time_head(&mut self, una: u64, sent_at: Instant) {
        self.in_flight.set(una, sent_at);
    }

    fn record(&mut self, queue: Queue, span: Duration, totals: &mut Totals) {
        if let Some(histogram) = self.sojourn.get_mut(queue as usize) {
            histogram.record(span);
        }
        totals.add_sojourn(queue, span);
    }

    /// Time with each gate shut until `now`.
    pub(crate) fn shares_until(&self, now: Instant) -> [Duration; Gate::COUNT] {
        let mut shares = self.shares;
        if let Some(share) = shares.get_mut(self.gate as usize) {
            *share += now.since(self.since);
        }
        shares
    }

    /// How long bytes stayed in a queue.
    pub(crate) fn sojourn(&self, queue: Queue) -> Histogram {
        let compact = self.sojourn.get(queue as usize).copied().unwrap_or_default();
        Histogram::from_counts(compact.0.map(u64::from))
    }

    /// The most by which the timer of pacing was late, rounded up to [`LATE_UNIT`].
    pub(crate) fn late_most(&self) -> Duration {
        LATE_UNIT * u64::from(self.late_most)
    }

    /// How long the marked byte has been in the write queue: at most as long as the oldest one.
    pub(crate) fn unsent_age(&self, now: Instant) -> Option<Duration> {
        self.unsent.age(now)
    }

    /// Payload bytes below TCP.
    pub(crate) const fn device_bytes(&self) -> u32 {
        self.device_bytes
    }

    /// No packet in the device is older.
    pub(crate) fn device_age(&self, now: Instant) -> Duration {
        now.since(self.device_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn time_goes_to_the_gate_that_was_shut() {
        let mut totals = Totals::default();
        let mut ledger = Ledger::new(at(0));
        ledger.on_gate(at(10), Gate::Cwnd, &mut totals);
        ledger.on_gate(at(30), Gate::Pacing, &mut totals);
        let shares = ledger.shares_until(at(60));
        assert_eq!(shares[Gate::NoData as usize], Duration::from_millis(10));
        assert_eq!(shares[Gate::Cwnd as usize], Duration::from_millis(20));
        assert_eq!(shares[Gate::Pacing as usize], Duration::from_millis(30));
        assert_eq!(totals.shares[Gate::Cwnd as usize], Duration::from_millis(20));
    }

    #[test]
    fn a_marked_byte_is_timed_through_both_queues() {
        let mut totals = Totals::default();
        let mut ledger = Ledger::new(at(0));
        ledger.on_written(at(0), 100);
        ledger.on_written(at(5), 200);
        // Everything up to the marked byte, not the byte itself.
        ledger.on_sent(at(6), 50, 100, &mut totals);
        assert_eq!(ledger.sojourn(Queue::Unsent).count(), 0);
        ledger.on_sent(at(8), 100, 150, &mut totals);
        assert_eq!(ledger.sojourn(Queue::Unsent).count(), 1);
        assert_eq!(totals.sojourn[0].quantile_below(0.5), Some(Duration::from_micros(8_192)));
        ledger.on_acked(at(20), 50, &mut totals);
        assert_eq!(ledger.sojourn(Queue::InFlight).count(), 0);
        // Byte 50 left at 6 and was acknowledged at 21.
        ledger.on_acked(at(21), 51, &mut totals);
        assert_eq!(totals.sojourn[2].quantile_below(1.0), Some(Duration::from_micros(16_384)));
    }

    #[test]
    fn a_full_count_halves_all() {
        let mut compact = Compact::default();
        for _ in 0..u16::MAX {
            compact.record(Duration::from_micros(3));
        }
        compact.record(Duration::from_micros(300));
        assert_eq!(compact.0[Histogram::bucket_of(Duration::from_micros(3))], u16::MAX / 2);
        assert_eq!(compact.0[Histogram::bucket_of(Duration::from_micros(300))], 1);
    }
}
