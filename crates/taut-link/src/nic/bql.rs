//! Byte queue limits: how many bytes a host puts into a NIC's ring before it waits for completions. Linux 3.3
//! (2011), `lib/dynamic_queue_limits.c`. Called by [`Nic`](crate::Nic).
//!
//! **Problem.** A ring has a fixed number of descriptors, and a descriptor holds anything from 60 bytes to 16
//! KB. A ring of 512 full of super-packets holds tens of milliseconds of a gigabit, in a place where no
//! discipline can reorder, drop or mark. But a ring with too little in it runs empty before the host has
//! noticed its completions, and the line idles.
//!
//! **Rule.** Find the lowest limit that never lets the line idle, from completions alone. At each completion,
//! look at the bytes that were queued since the previous one:
//!
//! - *Starved*: the limit had stopped the host, and the ring ran empty (or may have: everything that was in
//!   it when the host was last stopped is complete). The limit **grows at once**, by the bytes completed
//!   beyond that and by the bytes that had exceeded the limit.
//! - *Busy throughout*: part of the ring's contents was not needed. That part is **slack**: the limit less
//!   twice the bytes completed in the interval, because a host needs two intervals' worth: it is notified of
//!   one while the next is being sent. The least slack seen during one second is **subtracted** after it.
//!
//! A packet is accepted whole while there is any room, so up to one super-packet exceeds the limit; that
//! counts as overrun, not as slack.
//!
//! **Numbers.** The limit starts at its minimum, 0: the first completion finds the ring empty and lets it
//! grow. A second is long enough to include the longest of the usual intervals between interrupts, and short
//! enough to follow a change of link speed.
//!
//! **History.** Before, drivers came with rings of a few hundred descriptors, which administrators shortened
//! by hand. Packets that no longer fill the ring wait in the queue discipline instead, which made `fq_codel`
//! worth having.

use taut_core::{Duration, Instant};

/// The bounds of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BqlSpec {
    /// Lower bound. Linux: `limit_min`, 0.
    pub min_bytes: u64,
    /// Upper bound. Linux: `limit_max`, 1,879,048,192.
    pub max_bytes: u64,
    /// How long slack must persist before the limit shrinks. Linux: `hold_time`, 1 s.
    pub hold: Duration,
}

impl Default for BqlSpec {
    fn default() -> Self {
        Self { min_bytes: 0, max_bytes: 1_879_048_192, hold: Duration::from_secs(1) }
    }
}

impl BqlSpec {
    /// A fixed limit.
    #[must_use]
    pub fn fixed(bytes: u64) -> Self {
        Self { min_bytes: bytes, max_bytes: bytes, ..Self::default() }
    }
}

/// A limit that adapts.
#[derive(Clone, Debug)]
pub struct Bql {
    spec: BqlSpec,
    limit: u64,
    /// Total since the beginning.
    queued: u64,
    /// Total since the beginning.
    completed: u64,
    /// Bytes of the packet queued last.
    last_packet: u64,
    /// The state at the last completion.
    before: Before,
    slack_min: Option<u64>,
    /// Start of the current search for slack.
    slack_since: Instant,
}

/// The state at the last completion.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    queued: u64,
    /// Bytes by which the limit was exceeded, which stopped the host.
    over: u64,
    last_packet: u64,
}

impl Bql {
    /// A limit in its initial state.
    #[must_use]
    pub fn new(spec: BqlSpec) -> Self {
        Self {
            spec,
            limit: spec.min_bytes,
            queued: 0,
            completed: 0,
            last_packet: 0,
            before: Before::default(),
            slack_min: None,
            slack_since: Instant::ZERO,
        }
    }

    /// The current limit in bytes.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in the ring.
    #[must_use]
    pub const fn inflight(&self) -> u64 {
        self.queued - self.completed
    }

    /// Whether another packet may be queued. It may at exactly the limit, as in Linux.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.inflight() <= self.limit
    }

    /// Notes that a packet went into the ring.
    pub const fn on_queued(&mut self, bytes: u64) {
        self.queued += bytes;
        self.last_packet = bytes;
    }

    /// Notes that the host was notified that `bytes` are on the wire.
    pub fn on_completed(&mut self, now: Instant, bytes: u64) {
        let before = self.before;
        let was_inflight = self.inflight();
        let completed = (self.completed + bytes).min(self.queued);
        let bytes = completed - self.completed;
        let mut over = was_inflight.saturating_sub(self.limit);
        let left = self.queued - completed;
        // The bytes in the ring at the last completion, and whether all of them are complete.
        let lay_in_ring = before.queued.saturating_sub(self.completed);
        let all_done = completed >= before.queued;

        let mut limit = self.limit;
        if (over > 0 && left == 0) || (before.over > 0 && all_done) {
            limit += completed.saturating_sub(before.queued) + before.over;
            self.look_for_slack(now);
        } else if left > 0 && lay_in_ring > 0 && !all_done {
            // One packet may overrun the limit, with part of it below: that part was not needed either.
            let of_last_packet =
                if before.over > 0 { before.last_packet.saturating_sub(before.over) } else { 0 };
            let slack = (limit + before.over).saturating_sub(2 * bytes).max(of_last_packet);
            self.slack_min = Some(self.slack_min.map_or(slack, |least| least.min(slack)));
            if now.since(self.slack_since) > self.spec.hold {
                limit = limit.saturating_sub(self.slack_min.unwrap_or(0));
                self.look_for_slack(now);
            }
        }
        limit = limit.clamp(self.spec.min_bytes, self.spec.max_bytes);
        if limit != self.limit {
            self.limit = limit;
            // This was measured with the old limit, and says nothing about the new one.
            over = 0;
        }
        self.completed = completed;
        self.before = Before { queued: self.queued, over, last_packet: self.last_packet };
    }

    const fn look_for_slack(&mut self, now: Instant) {
        self.slack_since = now;
        self.slack_min = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_dry_ring_after_a_stop_lets_the_limit_grow() {
        let mut bql = Bql::new(BqlSpec::default());
        assert!(bql.has_room(), "at the limit of 0 one packet is accepted");
        bql.on_queued(1_500);
        assert!(!bql.has_room());
        // Stopped, and everything complete: starved. All 1500 bytes are beyond those in the ring before.
        bql.on_completed(ms(1), 1_500);
        assert_eq!((bql.limit(), bql.inflight()), (1_500, 0));
        bql.on_queued(1_500);
        assert!(bql.has_room(), "1500 of 1500");
        bql.on_queued(1_500);
        assert!(!bql.has_room());
        bql.on_completed(ms(2), 3_000);
        assert_eq!(bql.limit(), 4_500);
    }

    #[test]
    fn a_host_that_was_not_stopped_moves_nothing() {
        let mut bql = Bql::new(BqlSpec { min_bytes: 10_000, ..BqlSpec::default() });
        for i in 0..100 {
            bql.on_queued(1_500);
            bql.on_completed(ms(i * 100), 1_500);
        }
        assert_eq!(bql.limit(), 10_000);
    }

    #[test]
    fn slack_is_taken_off_after_a_second() {
        let mut bql = Bql::new(BqlSpec { min_bytes: 0, ..BqlSpec::default() });
        // It has grown to 90,000 at some point.
        bql.limit = 90_000;
        // The host fills up to the limit; 15,000 bytes complete every 10 ms, so twice that is enough.
        let mut at = 0;
        while at < 1_000 {
            while bql.has_room() {
                bql.on_queued(1_500);
            }
            at += 10;
            bql.on_completed(ms(at), 15_000);
            assert_eq!(bql.limit(), 90_000, "at {at} ms");
        }
        // The first fill made 91,500: over by 1500. Slack is 91,500 less 30,000; in the first interval it was
        // 0.
        while bql.has_room() {
            bql.on_queued(1_500);
        }
        bql.on_completed(ms(1_010), 15_000);
        assert_eq!(bql.limit(), 90_000 - (91_500 - 30_000));
    }

    #[test]
    fn a_fixed_limit_stays() {
        let mut bql = Bql::new(BqlSpec::fixed(3_000));
        for i in 0..1_000 {
            while bql.has_room() {
                bql.on_queued(1_500);
            }
            bql.on_completed(ms(i * 10), bql.inflight());
            assert_eq!(bql.limit(), 3_000);
        }
    }

    #[test]
    fn more_completions_than_packets_are_no_harm() {
        let mut bql = Bql::new(BqlSpec::default());
        bql.on_completed(ms(1), 1 << 40);
        bql.on_queued(5);
        bql.on_completed(ms(2), u64::MAX / 2);
        assert_eq!(bql.inflight(), 0);
    }
}
