//! A line: sends packets one after another at a rate. Called by [`Nic`](crate::Nic) and by a router's port.
//!
//! It sends one packet at a time, which takes the packet's length divided by the rate. Times are exact: the
//! fraction of a nanosecond that one packet does not use is carried over to the next, so rounding errors do
//! not add up.

use taut_core::{Duration, Instant};

use crate::quantity::Rate;

const NS: u64 = 1_000_000_000;

/// Sends packets one after another at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Bytes per second; at 0, packets are sent at once.
    rate: u64,
    /// Bytes on the line for each packet in addition to its own.
    overhead_bytes: u32,
    /// When the last packet will be sent, rounded up.
    free_at: Instant,
    /// The same rounded down, and the remainder in 1/`rate` of a nanosecond.
    floor: Instant,
    missing: u64,
}

impl Line {
    /// An idle line. Without a rate it sends at once; each packet takes `overhead_bytes` in addition to its
    /// own bytes.
    #[must_use]
    pub fn new(rate: Option<Rate>, overhead_bytes: u32) -> Self {
        let rate = rate.map_or(0, Rate::bytes_per_second);
        Self { rate, overhead_bytes, free_at: Instant::ZERO, floor: Instant::ZERO, missing: 0 }
    }

    /// From the next packet on, the rate is this. A packet that is being sent is sent at the rate before.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.rate = rate.map_or(0, Rate::bytes_per_second);
        (self.floor, self.missing) = (self.free_at, 0);
    }

    /// When it will have sent everything it was given.
    #[inline]
    #[must_use]
    pub const fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Begins to send an IP packet of `len` bytes, now or after the previous one. Returns when its last bit
    /// is sent.
    #[inline]
    pub fn send(&mut self, now: Instant, len: u32) -> Instant {
        if self.free_at < now {
            (self.floor, self.missing) = (now, 0);
        }
        // 64 KiB at a nanosecond each are 2⁴⁶; a rate is less than 2⁶¹.
        let work = u64::from(len + self.overhead_bytes) * NS + self.missing;
        if let Some(ns) = work.checked_div(self.rate) {
            self.floor += Duration::from_nanos(ns);
            self.missing = work % self.rate;
        }
        self.free_at = self.floor + Duration::from_nanos(u64::from(self.missing > 0));
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_rate_to_the_nanosecond() {
        // 7 Gbit/s: 1.142857 ns per byte, and 1538 bytes on the line for 1500.
        let mut line = Line::new(Rate::from_bits_per_second(7_000_000_000), 38);
        let start = Instant::from_nanos(5);
        let mut end = start;
        for _ in 0..1_000_000 {
            end = line.send(start, 1_500);
        }
        let exact = 1_538_000_000_000_u64.div_ceil(875);
        assert_eq!(end.since(start).as_nanos(), exact);
        // A tenth of the rate: ten times the time, from where the last packet ended.
        let mut slow = line;
        slow.set_rate(Rate::from_bits_per_second(700_000_000));
        assert_eq!(slow.send(start, 837), end + Duration::from_nanos(10_000));
        // After a pause there is no remainder.
        assert_eq!(line.send(end + Duration::from_nanos(10), 837), end + Duration::from_nanos(1_010));
    }
}
