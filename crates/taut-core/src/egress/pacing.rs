//! Pacing inside TCP: no packet departs before its time.
//! Linux 4.13 (218af599fa63), departure times since 4.20; called by [`plan`](super::plan()) as its first gate and
//! by [`commit`](super::commit()) to stamp.
//!
//! **Problem.** A window sent as one burst overflows the first shallow buffer on its way. **Rule.** Every data packet
//! departs `bytes / rate` after the one before it. Lateness is made up by at most half of one packet's gap and never
//! adds up, so that a stall is not followed by a burst. The first ten segments of a connection are not paced: nothing
//! is known yet that would make a better rate. Where a layer below holds packets until their departure time (fq, or
//! a NIC), the gate is open and only the stamp is written.
//!
//! Payload bytes count, headers do not (as in Linux, unlike fq).

use super::blocked::Blocked;
use crate::units::{Duration, Instant};

/// "No limit": what the rate is until the first RTT is known and when nobody set one.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Segments at the start of a connection that are never spaced. Linux counts the packet being sent.
const FREE_SEGMENTS: u64 = 10;

/// Who spaces the packets of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nobody: the congestion control does not ask for it and no maximum is set.
    #[default]
    None,
    /// This file.
    Needed,
    /// The link, by departure times.
    Delegated,
}

/// The clock of departures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacing {
    pub(crate) status: Status,
    /// Earliest departure of the next packet.
    departure: Instant,
}

impl Pacing {
    pub(crate) const fn new(max_rate: u64) -> Self {
        let status = if max_rate == UNLIMITED { Status::None } else { Status::Needed };
        Self { status, departure: Instant::ZERO }
    }

    /// Pacing is wanted from now on; it is never unwanted again.
    pub(crate) fn require(&mut self, link_paces: bool) {
        self.status = if link_paces { Status::Delegated } else { Status::Needed };
    }

    /// Earliest departure of the next packet.
    pub(crate) const fn next_departure(&self) -> Instant {
        self.departure
    }

    /// The gate.
    pub(crate) fn gate(&self, now: Instant) -> Result<(), Blocked> {
        if self.status == Status::Needed && self.departure > now {
            return Err(Blocked::Pacing { until: self.departure });
        }
        Ok(())
    }

    /// A data packet of `payload` bytes is handed over at `now`; `segments_out` counts all data segments of the
    /// connection, this packet's included. Returns the packet's own departure time.
    pub(crate) fn note_sent(&mut self, now: Instant, payload: u32, rate: u64, segments_out: u64) -> Instant {
        let previous = self.departure;
        let departure = previous.max(now);
        self.departure = departure;
        if self.status != Status::None && rate != 0 && rate != UNLIMITED && segments_out >= FREE_SEGMENTS {
            let gap = Duration::from_nanos(u64::from(payload).saturating_mul(1_000_000_000) / rate);
            let lateness = departure.since(previous);
            self.departure = departure + (gap - lateness.min(gap / 2));
        }
        departure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    /// Gap after a 1448-byte packet at 1.25 MB/s that left `late_ns` after its time.
    fn gap_when_late(late_ns: u64) -> u64 {
        let mut pacing = Pacing::new(1_250_000);
        pacing.departure = START;
        let now = START + Duration::from_nanos(late_ns);
        let departure = pacing.note_sent(now, 1_448, 1_250_000, 11);
        assert_eq!(departure, now);
        pacing.next_departure().since(departure).as_nanos()
    }

    #[test]
    fn lateness_is_credited_up_to_half_a_gap() {
        assert_eq!(gap_when_late(0), 1_158_400);
        assert_eq!(gap_when_late(300_000), 858_400);
        assert_eq!(gap_when_late(579_200), 579_200);
        assert_eq!(gap_when_late(10_000_000_000), 579_200);
    }

    #[test]
    fn first_nine_segments_are_free() {
        let mut pacing = Pacing::new(100_000);
        pacing.note_sent(START, 5 * 1_448, 100_000, 5);
        assert_eq!(pacing.gate(START), Ok(()));
        pacing.note_sent(START, 5 * 1_448, 100_000, 10);
        // 5 · 1448 B at 100 kB/s are 72.4 ms.
        let until = START + Duration::from_micros(72_400);
        assert_eq!(pacing.gate(START), Err(Blocked::Pacing { until }));
        assert_eq!(pacing.gate(until), Ok(()));
    }

    #[test]
    fn no_gate_unless_needed() {
        let mut pacing = Pacing::new(UNLIMITED);
        assert_eq!(pacing.status, Status::None);
        pacing.note_sent(START, 60_000, 1_000, 100);
        assert_eq!(pacing.gate(START), Ok(()));
        pacing.require(true);
        pacing.note_sent(START, 60_000, 1_000, 100);
        assert_eq!(pacing.gate(START), Ok(()), "a pacing link gets the stamp, the gate stays open");
        assert!(pacing.next_departure() > START);
    }
}
