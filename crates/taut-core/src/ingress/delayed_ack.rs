//! When to acknowledge: at once, or after a delay in which a response may carry the ACK or a second segment
//! share it.
//! Origin: RFC 9293 §3.8.6.3, RFC 5681 §4.2; Linux: quick ACKs, interactive ("pingpong") mode, `ato`,
//! compressed ACKs.
//! Called by segment arrival, by every packet sent, and by the timer whose deadline it sets.

use crate::words::{Duration, Instant};

/// Quick ACKs at the start and after a pause: a sender in slow start needs every ACK. Linux:
/// `TCP_MAX_QUICKACKS`.
const QUICK_MAX: u8 = 16;
/// Shortest delay. Linux: `TCP_ATO_MIN`, `TCP_DELACK_MIN`.
const ATO_MIN_MS: u8 = 40;
/// Longest delay; RFC 9293 §3.8.6.3 asks for less than 500 ms. Linux: `TCP_DELACK_MAX`.
const ATO_MAX_MS: u8 = 200;
/// The initial and smallest estimate of the peer's segment size: RFC 9293 §3.7.1's default MSS.
const RCV_MSS_MIN: u16 = 536;

/// A sender without RACK counts three duplicate ACKs (RFC 5681 §3.2): these are never combined.
const DUPS_MIN: u8 = 3;

const QUICKACK: u8 = 1;
const INTERACTIVE: u8 = 2;
const NOW: u8 = 4;
const STARTED: u8 = 8;
/// Duplicate ACKs sent for the present hole, up to [`DUPS_MIN`]: two bits of the flags.
const DUPS: u8 = 0b11 << DUPS_SHIFT;
const DUPS_SHIFT: u8 = 4;

/// When a pending acknowledgement must leave.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    /// When the delayed ACK leaves; the end of time if none is pending.
    deadline: Instant,
    /// When data last arrived, in ms; wraps after 49 days, which only makes one delay wrong.
    last_data_ms: u32,
    /// Bytes received in order and not acknowledged yet.
    pending: u32,
    /// Size of the segments the peer sends, at least [`RCV_MSS_MIN`].
    rcv_mss: u16,
    /// Delay, in ms: between [`ATO_MIN_MS`] and [`ATO_MAX_MS`], follows the gaps between arrivals.
    ato_ms: u8,
    /// Length of the last segment that was shorter than `rcv_mss`.
    last_len: u16,
    /// ACKs that are still to leave without delay.
    quick: u8,
    flags: u8,
    /// ACKs of out-of-order data that wait to be combined into one.
    compressed: u8,
}

/// The properties of a data segment on which its acknowledgement depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Payload bytes, of the whole super-packet.
    pub(crate) len: usize,
    /// Segment size in a super-packet, 0 in an ordinary packet.
    pub(crate) gso_size: u16,
    /// It was the next segment expected, and left no hole.
    pub(crate) in_order: bool,
    /// The peer's FIN was reached.
    pub(crate) fin: bool,
    /// The MSS that we announced: no segment is longer.
    pub(crate) advmss: u16,
    /// RCV.WND.
    pub(crate) rcv_wnd: u64,
    /// Whether an ACK could move the right edge of the window.
    pub(crate) can_grow: bool,
    /// Smoothed round-trip time, if known.
    pub(crate) srtt: Option<Duration>,
    /// Retransmission timeout: a longer silence is a pause, not a gap between arrivals.
    pub(crate) rto: Duration,
    /// It is only new data beyond a hole, and SACK will report it to the peer.
    pub(crate) reordered: bool,
    /// Round-trip time as this receiver measures it, if known.
    pub(crate) rcv_rtt: Option<Duration>,
    /// `tcp_comp_sack_delay_ns`, `tcp_comp_sack_rtt_percent` and `tcp_comp_sack_nr`.
    pub(crate) compression: (Duration, u16, u8),
}

impl DelayedAck {
    pub(crate) const fn new() -> Self {
        Self {
            deadline: Instant::NEVER,
            last_data_ms: 0,
            pending: 0,
            rcv_mss: RCV_MSS_MIN,
            ato_ms: ATO_MIN_MS,
            last_len: 0,
            quick: 0,
            flags: 0,
            compressed: 0,
        }
    }

    /// The peer's segment size, as estimated.
    pub(crate) const fn rcv_mss(&self) -> u16 {
        self.rcv_mss
    }

    /// The delay at present.
    pub(crate) const fn ato(&self) -> Duration {
        Duration::from_millis(self.ato_ms as u64)
    }

    /// The handshake is complete: until data arrives, the time since the last counts from now.
    pub(crate) const fn on_established(&mut self, now: Instant) {
        self.last_data_ms = now.as_millis() as u32;
    }

    /// Time since data last arrived, or since the handshake, to the millisecond.
    pub(crate) fn since_last_data(&self, now: Instant) -> Duration {
        Duration::from_millis(self.since_last_data_ms(now).into())
    }

    /// Whether an ACK must leave with the next packet, or alone.
    pub(crate) const fn must_ack_now(&self) -> bool {
        self.flags & NOW != 0
    }

    /// Whether an ACK is pending, now or later.
    pub(crate) const fn is_pending(&self) -> bool {
        self.must_ack_now() || self.pending > 0
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (self.deadline != Instant::NEVER).then_some(self.deadline)
    }

    /// Asks for an ACK at once: a FIN, a duplicate, a challenge, a window update.
    pub(crate) const fn ack_now(&mut self) {
        self.flags |= NOW;
    }

    /// `TCP_QUICKACK`: when on, ACKs are not delayed, and a pending one leaves now; when off, the connection
    /// counts as interactive.
    pub(crate) const fn set_quickack(&mut self, on: bool) {
        if on {
            self.flags = (self.flags | QUICKACK) & !INTERACTIVE;
            if self.pending > 0 {
                self.flags |= NOW;
            }
        } else {
            self.flags = (self.flags | INTERACTIVE) & !QUICKACK;
        }
    }

    /// Data was received that must be acknowledged, now or later.
    #[inline]
    pub(crate) fn on_data(&mut self, now: Instant, arrival: &Arrival) {
        self.estimate_mss(arrival);
        self.pending = self.pending.saturating_add(u32::try_from(arrival.len).unwrap_or(u32::MAX));
        self.follow_gaps(now, arrival);
        if arrival.fin {
            // Our own FIN mostly follows at once, with the ACK. Linux: interactive mode in CLOSE-WAIT.
            self.pending = self.pending.saturating_add(1);
            self.flags |= INTERACTIVE;
        }
        // RFC 5681 §4.2: out-of-order data, and data that fills a hole, is acknowledged at once. Linux: that
        // segment alone (`ICSK_ACK_NOW`); those that follow are acknowledged as they are without a hole.
        if !arrival.reordered {
            self.flags &= !DUPS;
            if !arrival.in_order {
                self.flags |= NOW;
            }
        } else if !self.compresses(now, arrival) {
            self.flags |= NOW;
        } else {
            return;
        }
        // RFC 9293 §3.8.6.3: at least every second full segment. Linux: when more than one is pending, unless
        // the ACK would not open the window; then the application's next read will send it.
        if self.pending > u32::from(self.rcv_mss) && arrival.can_grow {
            self.flags |= NOW;
        }
        if self.flags & QUICKACK != 0 || (self.quick > 0 && self.flags & INTERACTIVE == 0) {
            self.flags |= NOW;
        }
        if self.flags & NOW == 0 {
            // The first segment starts the delay; a later one can only shorten it.
            self.deadline = self.deadline.min(now + self.delay(arrival.srtt));
        }
    }

    /// Whether the ACK of out-of-order data waits for a timer that combines several: otherwise a burst of
    /// reordered packets would be answered with as many ACKs, each of which repeats everything in the one
    /// before it.
    fn compresses(&mut self, now: Instant, arrival: &Arrival) -> bool {
        let (longest, percent, most) = arrival.compression;
        let rtt = [arrival.rcv_rtt, arrival.srtt].into_iter().flatten().min();
        let urgent = self.flags & (QUICKACK | NOW) != 0 || (self.quick > 0 && self.flags & INTERACTIVE == 0);
        let Some(rtt) = rtt.filter(|_| !urgent && self.compressed < most) else { return false };
        if (self.flags & DUPS) >> DUPS_SHIFT < DUPS_MIN {
            self.flags += 1 << DUPS_SHIFT;
            return false;
        }
        self.compressed += 1;
        self.deadline = self.deadline.min(now + longest.min(rtt * u64::from(percent) / 100));
        true
    }

    /// ACKs that the next one replaces.
    pub(crate) const fn compressed(&self) -> u8 {
        self.compressed
    }

    /// The application has read. Data whose ACK waited for that, because the window was full, is acknowledged
    /// now.
    pub(crate) fn on_read(&mut self) {
        if self.pending > u32::from(self.rcv_mss) {
            self.flags |= NOW;
        }
    }

    /// A segment acknowledging everything was sent.
    pub(crate) const fn on_ack_sent(&mut self) {
        if self.is_pending() && self.quick > 0 {
            self.quick -= 1;
            if self.quick == 0 {
                // The peer's slow start is over; from here on ACKs are delayed, with the shortest delay at
                // first.
                self.ato_ms = ATO_MIN_MS;
            }
        }
        self.pending = 0;
        self.compressed = 0;
        self.flags &= !NOW;
        self.deadline = Instant::NEVER;
    }

    /// New data was sent. Soon after data arrived, it was probably the response: the next ACK can wait for
    /// the next response.
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        if self.flags & STARTED != 0 && self.since_last_data_ms(now) < u32::from(self.ato_ms) {
            self.flags |= INTERACTIVE;
        }
    }

    /// The deadline has passed: the ACK leaves now.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.deadline > now {
            return;
        }
        self.deadline = Instant::NEVER;
        if self.pending == 0 {
            return;
        }
        if self.compressed > 0 {
            self.flags |= NOW;
            return;
        }
        if self.flags & INTERACTIVE == 0 {
            // No second segment arrived within the delay, so the delay grows.
            self.ato_ms = self.ato_ms.saturating_mul(2).min(ATO_MAX_MS);
        } else {
            // No response was sent: the connection is not interactive after all.
            self.flags &= !INTERACTIVE;
            self.ato_ms = ATO_MIN_MS;
        }
        self.flags |= NOW;
    }

    fn since_last_data_ms(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_sub(self.last_data_ms)
    }

    fn estimate_mss(&mut self, arrival: &Arrival) {
        let segment = if arrival.gso_size > 0 { usize::from(arrival.gso_size) } else { arrival.len };
        let segment = u16::try_from(segment).unwrap_or(u16::MAX).min(arrival.advmss);
        if segment >= self.rcv_mss {
            self.rcv_mss = segment;
        } else if segment >= RCV_MSS_MIN && segment == self.last_len {
            // Two shorter segments of equal length in a row: the path's MSS has shrunk.
            self.rcv_mss = segment;
        }
        self.last_len = segment;
    }

    fn follow_gaps(&mut self, now: Instant, arrival: &Arrival) {
        let gap_ms = self.since_last_data_ms(now);
        if self.flags & STARTED == 0 {
            self.flags |= STARTED;
            self.fill_quick(arrival);
        } else if gap_ms <= u32::from(ATO_MIN_MS / 2) {
            self.ato_ms = self.ato_ms / 2 + ATO_MIN_MS / 2;
        } else if gap_ms < u32::from(self.ato_ms) {
            self.ato_ms = (self.ato_ms / 2).saturating_add(gap_ms as u8).min(ATO_MAX_MS);
        } else if u64::from(gap_ms) > arrival.rto.as_millis() {
            // A pause: the sender has gone back to slow start.
            self.fill_quick(arrival);
        }
        self.last_data_ms = now.as_millis() as u32;
    }

    /// As many quick ACKs as half of the window has segments, in pairs.
    fn fill_quick(&mut self, arrival: &Arrival) {
        let segments = arrival.rcv_wnd / (2 * u64::from(self.rcv_mss));
        let quick = u8::try_from(segments).unwrap_or(u8::MAX).clamp(2, QUICK_MAX);
        self.quick = self.quick.max(quick);
    }

    /// The next two ACKs are not delayed, because the peer has a reason to wait for them. Linux: quick-ack
    /// mode, entered with 2.
    pub(crate) fn quicken(&mut self) {
        self.quick = self.quick.max(2);
        self.flags &= !INTERACTIVE;
        self.ato_ms = ATO_MIN_MS;
    }

    fn delay(&self, srtt: Option<Duration>) -> Duration {
        let min = Duration::from_millis(u64::from(ATO_MIN_MS));
        // Not much longer than a round trip, or it would affect the peer's RTT estimate.
        let max = srtt.map_or(Duration::from_millis(u64::from(ATO_MAX_MS)), |srtt| {
            srtt.max(min).min(Duration::from_millis(u64::from(ATO_MAX_MS)))
        });
        Duration::from_millis(u64::from(self.ato_ms)).min(max)
    }
}

#[cfg(test)]
pub(super) mod tests;
