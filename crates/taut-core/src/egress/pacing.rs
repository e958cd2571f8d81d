//! Pacing inside TCP: no packet departs before its time.
//! Linux 4.13 (218af599fa63), departure times since 4.20; called by `plan` as its first gate and by `commit`
//! to stamp.
//!
//! **Problem.** A window sent as one burst overflows the first shallow buffer on the path; in a deeper one,
//! its packets wait behind each other. A sender that knows its rate can spread the window over the round trip
//! instead; BBR cannot work otherwise.
//!
//! **Rule.** Every data packet, new or retransmitted, moves the earliest departure of the next one:
//!
//! ```text
//!   departure = max(departure, now)                 this packet's own, written into its TxPacket
//!   gap       = payload bytes / rate                headers do not count
//!   departure = departure + gap − min(gap/2, lateness)
//! ```
//!
//! *Lateness* is the time by which the packet missed its earliest departure. It shortens one gap, by at most
//! half, and never accumulates, so that a stall is not followed by a burst: after an hour of idleness the
//! second packet leaves half a gap after the first.
//!
//! **A late timer.** Linux's timer fires in an interrupt, some microseconds late. A thread wakes up
//! milliseconds late on a busy machine, and half a gap for each packet would lose most of the rate. So time
//! that passed between the departure for which a connection *waited* and the call that fires its timer is
//! made good in full, up to 10 ms or the time of two packets: the clock goes on from the departure, and not
//! from now. The packets that should have left meanwhile leave together, and no more than those; an exact
//! timer changes nothing. A thread also loses its processor between two packets of a burst, most of all to
//! whoever the first one woke: as long as nothing else holds the connection back, that time is made good
//! alike. While the link holds it, or a writer that is late too has left less than a segment, the credit does
//! not grow, and lasts for 10 ms; it ends as soon as anything else holds the connection. So packets that are
//! late anyway lose nothing by a small queue that lets two of them through at a time.
//!
//! **Samples of the delivery rate** (draft-ietf-ccwg-bbr §4.1) need no correction within that limit. A packet
//! in the burst measures too low a rate, as the rest of the burst is missing from the flight that it
//! measures; for the last one nothing is missing, and BBR keeps the largest sample. None is too high: a burst
//! shortens no interval, as it leaves no earlier than the packets should have. But a stall beyond the limit
//! is missing from a whole flight, as if the application had written nothing meanwhile; and the ACKs of the
//! flight before are read too late. Samples of both count only if they are larger, as those that the
//! application limits.
//!
//! The first segments of a connection, up to nine, are not
//! spaced: an initial window is small enough for every path, and nothing is known yet from which to choose a
//! better rate.
//!
//! **Where packets wait.** On a link that holds packets until their departure time
//! ([`LinkCaps::paces`](crate::LinkCaps::paces): fq, or a NIC), the gate is always open and only the stamp is
//! written: no timer, no wake-up for each packet. On any other link the gate is shut until the departure, and
//! the connection's deadline is that instant: one timer per connection, however many bytes wait. Pure ACKs
//! leave at once and move nothing. The head's retransmission after a timeout and a probe that repeats data
//! leave at once too, since they are late already.
//!
//! **When.** A flow is spaced here when its congestion control asks for it (BBR) or `SO_MAX_PACING_RATE` is
//! set. A link that paces spaces every flow, at the rate that also sizes packets: 120 % of `cwnd / srtt`, or
//! 200 % in slow start.
//!
//! **History.** Until 4.13 pacing needed the fq queue discipline; on a host without it, BBR silently
//! misbehaved. The first internal form armed a timer for each packet's duration; with 800 flows of 48 Mbit/s
//! it cost twice the events of fq. Departure times replaced it in 4.20, so that the same clock serves fq,
//! NICs and the internal timer.

use super::blocked::Blocked;
use crate::stats::Counters;
use crate::words::{Duration, Instant};

/// "No limit": the rate until the first RTT is known, and the maximum rate until one is set.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Packets are spaced once the connection has sent this many data segments, those of the packet being sent
/// included.
const FREE_SEGMENTS: u32 = 10;

/// The most time that is made good after a late timer, if that of [`PACKETS`] packets is not longer. A thread
/// that sleeps longer is a stall, and a burst of more than 10 ms of the rate would overflow queues that
/// pacing exists to spare.
const LATE_MAX: Duration = Duration::from_millis(10);
/// So many packets of a slow flow are made good: a small queue lets two into `fq`, which has them due then.
const PACKETS: u32 = 2;

/// What spaces packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacingMode {
    /// Nothing, even if a flow asks for it: senders before 2013.
    Off,
    /// The stack's timer, for flows that ask for pacing, whatever the link can do (Linux 4.13).
    Internal,
    /// The link: every packet carries its departure time and leaves the stack at once.
    Delegated,
    /// Delegated on a link that [paces](crate::LinkCaps::paces), else internal for flows that ask for pacing.
    #[default]
    Auto,
}

/// What spaces the packets of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing.
    None,
    /// The gate in this file.
    Needed,
    /// The link, by departure times.
    Delegated,
}

impl PacingMode {
    /// Whether a link, which paces or not, spaces the packets of all connections.
    pub(crate) const fn is_delegated(self, link_paces: bool) -> bool {
        matches!(self.status(false, link_paces), Status::Delegated)
    }

    /// The status of a connection. `wanted`: its congestion control or its maximum rate asks for pacing.
    pub(crate) const fn status(self, wanted: bool, link_paces: bool) -> Status {
        match (self, wanted, link_paces) {
            (Self::Off, ..) => Status::None,
            (Self::Delegated, ..) | (Self::Auto, _, true) => Status::Delegated,
            (Self::Internal, true, _) | (Self::Auto, true, false) => Status::Needed,
            (Self::Internal, false, _) | (Self::Auto, false, false) => Status::None,
        }
    }
}

/// The clock of departures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacing {
    /// Earliest departure of the next packet.
    departure: Instant,
}

/// The most lateness that is made good, in units of 2 ms: [`LATE_MAX`] or the time of [`PACKETS`] packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateMax(u8);

impl LateMax {
    pub(crate) const fn new() -> Self {
        Self((LATE_MAX.as_millis() / 2) as u8)
    }

    /// After a packet of so many bytes at this rate.
    pub(super) fn after(payload: u32, rate: u64) -> Self {
        let units = (u64::from(payload) * u64::from(PACKETS) * 500).div_ceil(rate.max(1));
        Self(units.clamp(u64::from(Self::new().0), u8::MAX.into()) as u8)
    }

    pub(super) const fn time(self) -> Duration {
        Duration::from_millis(self.0 as u64 * 2)
    }
}

/// How far the clock of departures may stay behind the present: by how much this host alone has delayed the
/// connection since it was last on time. In ns, at most [`LateMax`]; with [`Self::RUNNING`] that may
/// still grow, as nothing else holds it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed(u32);

impl Owed {
    const RUNNING: u32 = 1 << 31;

    const fn is_running(self) -> bool {
        self.0 & Self::RUNNING != 0
    }

    const fn credit(self) -> Duration {
        Duration::from_nanos((self.0 & !Self::RUNNING) as u64)
    }

    fn set(&mut self, most: LateMax, credit: Duration, running: bool) {
        self.0 = credit.min(most.time()).as_nanos() as u32 | if running { Self::RUNNING } else { 0 };
    }

    /// The timer of a connection that waited for its departure fires. Returns how late.
    pub(crate) fn on_timer(&mut self, pacing: &Pacing, most: LateMax, now: Instant) -> Duration {
        let late = now.since(pacing.departure);
        self.set(most, late, true);
        late
    }

    /// The link holds the connection back. What it needs for packets that were late anyway is made good, and
    /// no more.
    pub(crate) fn hold(&mut self, pacing: &Pacing, most: LateMax, now: Instant) {
        if self.is_running() {
            self.set(most, self.credit().max(now.since(pacing.departure)), false);
        }
    }

    /// The application has written too little: it is owed what is left.
    pub(crate) fn freeze(&mut self, pacing: &Pacing, most: LateMax, now: Instant) {
        let left = now.since(pacing.departure);
        self.set(most, if self.is_running() { left } else { self.credit().min(left) }, false);
    }

    /// Something else holds the connection back.
    pub(crate) const fn forget(&mut self) {
        self.0 = 0;
    }

    /// A packet leaves at `now`: whether so much time passed before it that not all of it is made good.
    pub(crate) fn is_stalled(self, pacing: &Pacing, most: LateMax, now: Instant) -> bool {
        self.is_running() && now.since(pacing.departure) > most.time()
    }

    /// A packet leaves, `behind` its time. Returns how much of that is made good.
    fn take(&mut self, most: LateMax, behind: Duration) -> Duration {
        let credit = if self.is_running() {
            self.credit().max(behind)
        } else if behind > most.time() + LATE_MAX {
            Duration::ZERO
        } else {
            self.credit()
        };
        self.set(most, credit, true);
        self.credit()
    }
}

/// Counts a timer that was `late`, of which `most` is made good.
pub(super) fn count(late: Duration, most: LateMax, counters: &mut Counters) {
    let over = |bound_us| u64::from(late > Duration::from_micros(bound_us));
    counters.pacing_late_100us += over(100);
    counters.pacing_late_1ms += over(1_000);
    counters.pacing_late_10ms += over(10_000);
    counters.pacing_late_50ms += over(50_000);
    counters.pacing_late_ns += late.as_nanos();
    counters.pacing_lost_ns += late.saturating_sub(most.time()).as_nanos();
}

impl Pacing {
    pub(crate) const fn new() -> Self {
        Self { departure: Instant::ZERO }
    }

    /// Earliest departure of the next packet.
    pub(crate) const fn next_departure(&self) -> Instant {
        self.departure
    }

    /// The packet handed over last was taken back: its departure is free again.
    pub(crate) fn restore(&mut self, departure: Instant) {
        self.departure = departure;
    }

    /// The gate.
    pub(crate) fn gate(&self, status: Status, now: Instant) -> Result<(), Blocked> {
        if status == Status::Needed && self.departure > now {
            return Err(Blocked::Pacing { until: self.departure });
        }
        Ok(())
    }

    /// A data packet of `payload` bytes is handed over at `now`; `segments_out` counts all data segments of
    /// the connection, this packet's included. Returns the packet's own departure time.
    pub(crate) fn note_sent(
        &mut self,
        status: Status,
        now: Instant,
        (owed, most): (&mut Owed, LateMax),
        payload: u32,
        rate: u64,
        segments_out: u32,
    ) -> Instant {
        let previous = self.departure;
        let departure = previous.max(now);
        // After a late timer the clock goes on from where it stood. A link that paces needs no timer.
        let credit = owed.take(most, departure.since(previous));
        let credit = if status == Status::Needed { credit } else { Duration::ZERO };
        let from = departure.saturating_sub(credit).max(previous);
        self.departure = departure;
        if status != Status::None && rate != 0 && rate != UNLIMITED && segments_out >= FREE_SEGMENTS {
            let gap = Duration::from_nanos(u64::from(payload).saturating_mul(1_000_000_000) / rate);
            let lateness = if credit.is_zero() { departure.since(previous) } else { Duration::ZERO };
            self.departure = from + (gap - lateness.min(gap / 2));
        }
        departure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: LateMax = LateMax::new();
    const START: Instant = Instant::from_nanos(1_000_000_000);

    /// Gap after a 1448-byte packet at 1.25 MB/s that left `late_ns` after its earliest departure.
    fn gap_when_late(late_ns: u64) -> u64 {
        let mut pacing = Pacing { departure: START };
        let now = START + Duration::from_nanos(late_ns);
        let departure = pacing.note_sent(Status::Needed, now, (&mut Owed(0), MOST), 1_448, 1_250_000, 11);
        assert_eq!(departure, now);
        pacing.next_departure().since(departure).as_nanos()
    }

    /// payload / rate, to the nanosecond, rounded down: from a byte a second on.
    #[test]
    fn pace_03_a_gap_is_as_long_as_the_rate_takes_for_the_payload() {
        for (payload, rate, gap_ns) in [
            (1, 1, 1_000_000_000),
            (1_448, 1_000, 1_448_000_000),
            (65_536, 1, 65_536_000_000_000),
            (1_448, 1_250_000, 1_158_400),
            (1_448, 3_000_000_000, 482),
        ] {
            let mut pacing = Pacing { departure: START };
            pacing.note_sent(Status::Needed, START, (&mut Owed(0), MOST), payload, rate, 11);
            assert_eq!(pacing.next_departure().since(START).as_nanos(), gap_ns, "{payload} {rate}");
        }
    }

    /// A timer that is exactly as late as a bound is not later than that. What is beyond 10 ms is not made
    /// good.
    #[test]
    fn pace_15_timers_are_counted_by_how_late_they_are() {
        for (late_ns, bounds, lost_ns) in [
            (100_000, [0, 0, 0, 0], 0),
            (100_001, [1, 0, 0, 0], 0),
            (1_000_000, [1, 0, 0, 0], 0),
            (1_000_001, [1, 1, 0, 0], 0),
            (10_000_000, [1, 1, 0, 0], 0),
            (10_000_001, [1, 1, 1, 0], 1),
            (50_000_000, [1, 1, 1, 0], 40_000_000),
            (50_000_001, [1, 1, 1, 1], 40_000_001),
        ] {
            let mut c = Counters::default();
            count(Duration::from_nanos(late_ns), MOST, &mut c);
            let over = [c.pacing_late_100us, c.pacing_late_1ms, c.pacing_late_10ms, c.pacing_late_50ms];
            assert_eq!((over, c.pacing_late_ns, c.pacing_lost_ns), (bounds, late_ns, lost_ns), "{late_ns}");
        }
    }

    #[test]
    fn lateness_is_credited_up_to_half_a_gap() {
        assert_eq!(gap_when_late(0), 1_158_400);
        assert_eq!(gap_when_late(300_000), 858_400);
        assert_eq!(gap_when_late(579_200), 579_200);
        assert_eq!(gap_when_late(10_000_000_000), 579_200);
    }

    /// A timer that is late by at most 10 ms costs no time: packets leave until the clock has caught up.
    #[test]
    fn a_late_timer_is_made_good() {
        let gap = Duration::from_nanos(1_158_400);
        for (late_us, packets) in [(0, 1_u64), (1_158, 1), (1_159, 2), (5_000, 5), (10_000, 9)] {
            let (mut pacing, mut owed) = (Pacing { departure: START }, Owed::default());
            let now = START + Duration::from_micros(late_us);
            owed.on_timer(&pacing, MOST, now);
            let mut left = 0;
            while pacing.gate(Status::Needed, now).is_ok() {
                assert_eq!(
                    pacing.note_sent(Status::Needed, now, (&mut owed, MOST), 1_448, 1_250_000, 11),
                    now
                );
                left += 1;
            }
            assert_eq!(left, packets, "{late_us} µs");
            assert_eq!(pacing.next_departure(), START + gap * left, "no time is lost");
        }
        // A longer stall: 10 ms of it.
        let (mut pacing, mut owed) = (Pacing { departure: START }, Owed::default());
        let now = START + Duration::from_millis(500);
        owed.on_timer(&pacing, MOST, now);
        pacing.note_sent(Status::Needed, now, (&mut owed, MOST), 1_448, 1_250_000, 11);
        assert_eq!(pacing.next_departure() + LATE_MAX, now + gap);
    }

    /// The link held the connection while it was 3 ms late; a packet has left since, so it is owed the 5 ms
    /// that it is late now.
    #[test]
    fn what_is_owed_grows_again_once_a_packet_has_left() {
        let ms = Duration::from_millis;
        let (pacing, mut owed) = (Pacing { departure: START }, Owed::default());
        owed.on_timer(&pacing, MOST, START + ms(3));
        owed.hold(&pacing, MOST, START + ms(3));
        assert_eq!(owed.take(MOST, ms(5)), ms(3));
        assert_eq!(owed.take(MOST, ms(5)), ms(5));
    }

    /// Ten milliseconds are made good, and what is owed lasts for ten more.
    #[test]
    fn what_is_owed_lasts_for_ten_milliseconds() {
        let ns = Duration::from_nanos;
        for (late_ns, stalled) in [(10_000_000, false), (10_000_001, true)] {
            let (pacing, mut owed) = (Pacing { departure: START }, Owed::default());
            owed.on_timer(&pacing, MOST, START);
            assert_eq!(owed.is_stalled(&pacing, MOST, START + ns(late_ns)), stalled, "{late_ns}");
        }
        for (behind_ns, credit_ns) in [(20_000_000, 10_000_000), (20_000_001, 0)] {
            let (pacing, mut owed) = (Pacing { departure: START }, Owed::default());
            owed.on_timer(&pacing, MOST, START + ns(10_000_000));
            owed.hold(&pacing, MOST, START + ns(10_000_000));
            assert_eq!(owed.take(MOST, ns(behind_ns)), ns(credit_ns), "{behind_ns}");
        }
    }

    #[test]
    fn lateness_is_void_when_something_else_held_the_packet() {
        let (mut pacing, mut owed) = (Pacing { departure: START }, Owed::default());
        let now = START + Duration::from_millis(5);
        owed.on_timer(&pacing, MOST, now);
        owed.forget();
        pacing.note_sent(Status::Needed, now, (&mut owed, MOST), 1_448, 1_250_000, 11);
        assert_eq!(pacing.next_departure(), now + Duration::from_nanos(579_200));
    }

    #[test]
    fn first_nine_segments_are_free() {
        let status = Status::Needed;
        let mut pacing = Pacing::new();
        pacing.note_sent(status, START, (&mut Owed(0), MOST), 5 * 1_448, 100_000, 5);
        assert_eq!(pacing.gate(status, START), Ok(()));
        pacing.note_sent(status, START, (&mut Owed(0), MOST), 5 * 1_448, 100_000, 10);
        // 5 · 1448 B at 100 kB/s are 72.4 ms.
        let until = START + Duration::from_micros(72_400);
        assert_eq!(pacing.gate(status, START), Err(Blocked::Pacing { until }));
        assert_eq!(pacing.gate(status, until), Ok(()));
    }

    #[test]
    fn the_gate_is_shut_only_where_nobody_else_waits() {
        let mut pacing = Pacing::new();
        pacing.note_sent(Status::None, START, (&mut Owed(0), MOST), 60_000, 1_000, 100);
        assert_eq!(pacing.next_departure(), START, "unpaced packets take no time");
        pacing.note_sent(Status::Delegated, START, (&mut Owed(0), MOST), 60_000, 1_000, 100);
        assert_eq!(
            pacing.gate(Status::Delegated, START),
            Ok(()),
            "the link gets the stamp, the gate stays open"
        );
        assert!(pacing.next_departure() > START);
    }

    #[test]
    fn who_spaces_packets() {
        use PacingMode::{Auto, Delegated, Internal, Off};
        // (mode, wanted, the link paces, status)
        let cases = [
            (Off, true, true, Status::None),
            (Internal, true, true, Status::Needed),
            (Internal, false, true, Status::None),
            (Delegated, false, false, Status::Delegated),
            (Auto, false, false, Status::None),
            (Auto, true, false, Status::Needed),
            (Auto, false, true, Status::Delegated),
            (Auto, true, true, Status::Delegated),
        ];
        for (mode, wanted, link, expected) in cases {
            assert_eq!(mode.status(wanted, link), expected, "{mode:?} {wanted} {link}");
        }
    }
}
