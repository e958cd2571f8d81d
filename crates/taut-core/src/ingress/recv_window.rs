//! The window offered to the peer: how far it goes, when it moves, how the buffer behind it grows.
//! Origin: RFC 9293 §3.8.6.2.2 (silly window), §3.10.7.4; RFC 7323 §2; Linux: dynamic right-sizing,
//! `tcp_rmem`.
//! Called by segment arrival (`accepts`, `advance`, `on_data`), by reads, and when an ACK is written
//! (`select`).
//!
//! Accounting: the buffer is counted in payload bytes, where Linux counts memory and offers only a part of
//! the buffer as window (`tcp_adv_win_scale`). Our chunks are at least about half full, so a buffer of
//! `rcvbuf` takes at most about twice that in memory, and all of it can be offered. `rmem.rs` enforces that.

use core::ops::Range;

use crate::buffers::{BufferTuning, Growth, tuned_max};
use crate::words::{Duration, Instant};

/// RFC 7323 §2.3: the largest shift.
pub(crate) const SCALE_MAX: u8 = 14;

/// The least `SO_RCVBUF`, doubled. Linux: `SOCK_MIN_RCVBUF`, 2,048 bytes of payload and the 256 of an
/// `sk_buff`.
pub(crate) const RCVBUF_MIN: u32 = 2_304;

/// The buffer grows for twice the rate and this many segments more, so that slow start, which doubles every
/// round trip, is never held back by the window. Linux: the 16 segments of `tcp_rcv_space_adjust`.
const GROWTH_SEGMENTS: u64 = 16;

/// Up to here, the buffer follows what is read in a measured round trip. Linux: `tcp_rmem`'s maximum.
const FOLLOWS_MAX: u32 = 6 << 20;

/// While memory is scarce, a buffer that is half full takes so many segments. Linux:
/// `tcp_adjust_rcv_ssthresh`.
const PRESSED_SEGMENTS: u64 = 4;

/// The segments that a peer sends in its first round trip. RFC 6928; Linux: `TCP_INIT_CWND`.
const INITIAL_SEGMENTS: u32 = 10;

/// The receive window.
#[derive(Debug)]
pub(crate) struct RecvWindow {
    /// RCV.NXT.
    rcv_nxt: u64,
    /// The furthest right edge ever offered, RCV.NXT + RCV.WND. Never moves left.
    edge: u64,
    /// When RCV.NXT reaches this position, at least a round trip has passed.
    rtt_seq: u64,
    /// Since then.
    rtt_at: Instant,
    /// When the current measurement of the application's reads began.
    space_at: Instant,
    /// Bytes that the application may leave unread.
    rcvbuf: u32,
    /// The limit to which `rcvbuf` is tuned.
    rcvbuf_max: u32,
    /// Bytes read since `space_at`.
    copied: u32,
    /// The most bytes read in a round trip so far.
    space: u32,
    /// Round-trip time as the receiver measures it, in µs; 0 if unknown.
    rtt_us: u32,
    /// The shortest time in which a window's worth of data came, in µs; `u16::MAX` stands for all that is
    /// longer.
    least_us: u16,
    /// Shift of the window field in our segments. RFC 7323 §2.2.
    scale: u8,
    /// The application has set `rcvbuf`, or tuning is off.
    locked: bool,
}

/// The shift with which a 16-bit window field reaches `rcvbuf_max` bytes.
pub(crate) fn scale_for(rcvbuf_max: u32) -> u8 {
    let mut scale = 0;
    while scale < SCALE_MAX && (u64::from(u16::MAX) << scale) < u64::from(rcvbuf_max) {
        scale += 1;
    }
    scale
}

impl RecvWindow {
    /// A window before anything was offered. `rcvbuf` and `rcvbuf_max` are the last two numbers of
    /// `tcp_rmem`; `tuned` is `tcp_moderate_rcvbuf`.
    pub(crate) const fn new(rcvbuf: u32, rcvbuf_max: u32, tuned: bool) -> Self {
        Self {
            rcv_nxt: 0,
            edge: 0,
            rtt_seq: 0,
            rtt_at: Instant::ZERO,
            space_at: Instant::ZERO,
            rcvbuf,
            rcvbuf_max,
            copied: 0,
            space: 0,
            rtt_us: 0,
            least_us: u16::MAX,
            scale: 0,
            locked: !tuned,
        }
    }

    /// The field of a SYN or SYN-ACK, which is never scaled: RFC 7323 §2.2.
    pub(crate) fn syn_field(&self) -> u16 {
        u16::try_from(self.rcvbuf).unwrap_or(u16::MAX)
    }

    /// The peer's SYN was received: `rcv_nxt` follows it, and the window of our SYN counts from there.
    /// `scale` is 0 unless both sides sent the option. `mss` is the one we announced.
    pub(crate) fn establish(&mut self, now: Instant, rcv_nxt: u64, scale: u8, mss: u16) {
        self.rcv_nxt = rcv_nxt;
        self.edge = rcv_nxt + u64::from(self.syn_field());
        self.scale = scale.min(SCALE_MAX);
        if self.locked {
            self.lock_rcvbuf(self.rcvbuf);
        }
        // RFC 6928: ten segments arrive in the first round trip. An application that reads more than that
        // makes the buffer grow.
        self.space = u32::from(self.syn_field()).min(INITIAL_SEGMENTS * u32::from(mss));
        self.space_at = now;
        self.restart_rtt(now);
    }

    /// RCV.NXT.
    pub(crate) const fn rcv_nxt(&self) -> u64 {
        self.rcv_nxt
    }

    /// The furthest right edge offered.
    pub(crate) const fn edge(&self) -> u64 {
        self.edge
    }

    /// RCV.WND: bytes that the peer may still send.
    pub(crate) const fn window(&self) -> u64 {
        self.edge.saturating_sub(self.rcv_nxt)
    }

    pub(crate) const fn scale(&self) -> u8 {
        self.scale
    }

    pub(crate) const fn rcvbuf(&self) -> u32 {
        self.rcvbuf
    }

    /// Receiver's round-trip time, if one was measured.
    pub(crate) const fn rtt(&self) -> Option<Duration> {
        if self.rtt_us == 0 { None } else { Some(Duration::from_micros(self.rtt_us as u64)) }
    }

    /// `SO_RCVBUF`: from now on the buffer has this size, or the least. The window already offered stays
    /// offered.
    pub(crate) const fn lock_rcvbuf(&mut self, rcvbuf: u32) {
        // The window field counts in these units: of a buffer that is not even two of them, it could only say
        // that it is full.
        let units = 2_u32 << self.scale;
        let least = if units > RCVBUF_MIN { units } else { RCVBUF_MIN };
        self.rcvbuf = if rcvbuf > least { rcvbuf } else { least };
        self.locked = true;
    }

    /// RCV.NXT moved to `rcv_nxt`: data or a FIN was received in order.
    pub(crate) const fn advance_to(&mut self, rcv_nxt: u64) {
        if rcv_nxt > self.rcv_nxt {
            self.rcv_nxt = rcv_nxt;
        }
        // A FIN may arrive when the window is full of data: it takes a position, but no room.
        if self.edge < self.rcv_nxt {
            self.edge = self.rcv_nxt;
        }
    }

    /// Whether any part of a segment with sequence space `segment` (SYN and FIN counted) is in the window.
    /// RFC 9293 §3.10.7.4.
    ///
    /// Wider than the RFC's four cases in two places, as Linux is. A segment that covers the whole window and
    /// more on both sides is accepted (GRO makes such segments). So is an empty one at the right edge itself:
    /// a sender that has filled the window sends its ACKs from there, and they must count.
    pub(crate) fn accepts(&self, segment: &Range<u64>) -> bool {
        if segment.is_empty() {
            self.rcv_nxt <= segment.start && segment.start <= self.edge
        } else {
            self.rcv_nxt < segment.end && segment.start < self.edge
        }
    }

    /// The right edge for which the buffer has room and that the field can express. Out-of-order data lies
    /// before it and needs no extra room. `pressed`: the stack's memory is scarce, and a buffer that is half
    /// full takes only a few segments more.
    fn edge_possible(&self, unread: u64, mss: u16, pressed: bool) -> u64 {
        let mut window = u64::from(self.rcvbuf).saturating_sub(unread);
        // Linux: `tcp_adjust_rcv_ssthresh`.
        if pressed && window < u64::from(self.rcvbuf / 2) {
            window = window.min(PRESSED_SEGMENTS * u64::from(mss));
        }
        self.rcv_nxt + window.min(u64::from(u16::MAX) << self.scale)
    }

    /// The least that the edge moves by: RFC 9293 §3.8.6.2.2, min(Fr·RCV.BUFF, Eff.snd.MSS) with Fr = ½.
    fn step_min(&self, mss: u16) -> u64 {
        u64::from(self.rcvbuf / 2).min(u64::from(mss)).max(1)
    }

    /// The window field for a segment that is about to be sent; assumes that it is sent. `unread` is the
    /// number of bytes in the read queue.
    #[must_use]
    pub(crate) fn select(&mut self, unread: u64, mss: u16, pressed: bool) -> u16 {
        let possible = self.edge_possible(unread, mss, pressed);
        let wanted = if possible >= self.edge + self.step_min(mss) { possible } else { self.edge };
        let wanted = wanted.saturating_sub(self.rcv_nxt);
        let unit = 1_u64 << self.scale;
        let mut field = (wanted >> self.scale).min(u64::from(u16::MAX));
        if self.rcv_nxt + (field << self.scale) < self.edge {
            // RFC 7323 §2.4: cut to whole units, the edge would move left. One unit more prevents that,
            // unless the units gained in this way would add up (each segment of one byte can gain one) to
            // more than one unit beyond the buffer. Then the peer sees the edge move left by less than a
            // unit, as the RFC allows, and data that it sent according to the old edge is still accepted.
            let rounded = self.rcv_nxt + ((field + 1) << self.scale);
            if field < u64::from(u16::MAX) && rounded <= self.edge.max(possible + unit - 1) {
                field += 1;
            }
        }
        self.edge = self.edge.max(self.rcv_nxt + (field << self.scale));
        field as u16
    }

    /// Whether the application has read so much that the peer should be notified by an ACK of its own.
    ///
    /// This is so when the edge can move by two segments, or half of a small buffer, and that doubles the
    /// window (as it does when the window was closed). Linux has the doubling rule, too: the edge need not
    /// follow every read of a connection whose window is far from closed.
    pub(crate) fn window_update_due(&self, unread: u64, mss: u16, pressed: bool) -> bool {
        let gain = self.edge_possible(unread, mss, pressed).saturating_sub(self.edge);
        let least = u64::from(self.rcvbuf / 2).min(2 * u64::from(mss)).max(1);
        gain >= least.max(self.window())
    }

    /// Whether the second segment should be acknowledged at once. Not when the application is far behind and
    /// the edge could not move: its next read then sends one ACK that is also the window update. Linux
    /// compares the windows before and after, which has the same effect, because it offers only about half of
    /// its buffer.
    pub(crate) fn can_grow(&self, unread: u64, mss: u16, pressed: bool) -> bool {
        unread <= u64::from(self.rcvbuf / 2)
            || self.edge_possible(unread, mss, pressed) >= self.edge + self.step_min(mss)
    }

    /// New data was received, RCV.NXT has moved over it. `rtt` is the round trip measured with its timestamp,
    /// if any.
    pub(crate) fn on_data(&mut self, now: Instant, rtt: Option<Duration>) {
        if let Some(rtt) = rtt {
            let sample = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).max(1);
            // Smoothed with gain 1/8 as in RFC 6298, because a timestamp's round trip includes the sender's
            // pauses.
            self.rtt_us = if self.rtt_us == 0 {
                sample
            } else {
                ((u64::from(self.rtt_us) * 7 + u64::from(sample)) / 8).max(1) as u32
            };
        }
        if self.rcv_nxt >= self.rtt_seq {
            // A window's worth of data takes at least a round trip, so the smallest sample is the best.
            let sample = u32::try_from(now.since(self.rtt_at).as_micros()).unwrap_or(u32::MAX).max(1);
            self.least_us = self.least_us.min(u16::try_from(sample).unwrap_or(u16::MAX));
            if rtt.is_none() && (self.rtt_us == 0 || sample < self.rtt_us) {
                self.rtt_us = sample;
            }
            self.restart_rtt(now);
        }
    }

    const fn restart_rtt(&mut self, now: Instant) {
        self.rtt_seq = self.edge;
        self.rtt_at = now;
    }

    /// The application has read `n` bytes and left `unread`. Once per round trip: if it read more than ever
    /// before, the buffer grows so that the next round trip can carry twice as much.
    ///
    /// The most bytes that the application read in a round trip, by which the buffer is tuned.
    pub(crate) const fn space(&self) -> u32 {
        self.space
    }

    /// Linux: dynamic right-sizing (`tcp_rcv_space_adjust`). Unread bytes are deducted from the bytes read:
    /// an application that falls behind does not need a larger buffer. Beyond Linux's maximum, and below it
    /// on a path of less than a millisecond, the least round trip counts ([`tuned_max`]): a measured one
    /// contains the queue that a large buffer makes. `least_rtt` is that of our own segments; of a connection
    /// that only receives, it is the handshake's, which the first packet of a path often delays. Without
    /// `tuning`, as under memory pressure, the buffer stays as it is.
    #[inline]
    pub(crate) fn on_copied_to_user(
        &mut self,
        now: Instant,
        n: usize,
        unread: u64,
        mss: u16,
        tuning: Option<BufferTuning>,
        least_rtt: Option<Duration>,
    ) {
        self.copied = self.copied.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
        let span = now.since(self.space_at);
        if self.rtt_us == 0 || span.as_micros() < u64::from(self.rtt_us) {
            return;
        }
        let copied = u64::from(self.copied).saturating_sub(unread) as u32;
        if copied > self.space {
            if !self.locked
                && let Some(tuning) = tuning
            {
                let (copied, space) = (u64::from(copied), u64::from(self.space.max(1)));
                let wanted = 2 * copied + GROWTH_SEGMENTS * u64::from(mss);
                // Twice the relative increase is added, since the rate may keep growing while the new window
                // is on its way.
                let growth = u128::from(wanted) * u128::from(copied - space) / u128::from(space);
                let wanted = u64::try_from(u128::from(wanted) + 2 * growth).unwrap_or(u64::MAX);
                // While the rate doubles, what was read is a round trip old, two where a loss held it up, and
                // another passes until the window arrives.
                let times = if copied >= space / 2 * 3 { 16 } else { 2 };
                self.grow_to(wanted, tuning, times, (copied, span), least_rtt);
            }
            self.space = copied;
        }
        self.copied = 0;
        self.space_at = now;
    }

    /// New data lies beyond a hole, up to `end`. The application cannot read it until the hole is filled, a
    /// round trip or more: it needs room beside what the peer sends meanwhile. Linux 6.17. Here the window
    /// grows with the buffer; what was read in two round trips bounds it, so that a hole that is never filled
    /// gains nothing.
    pub(crate) fn on_reordered(&mut self, end: u64, mss: u16, (tuning, least_rtt): Growth) {
        if let Some(tuning) = tuning.filter(|_| !self.locked) {
            let space = u64::from(self.space);
            let waiting = end.saturating_sub(self.rcv_nxt).min(2 * space);
            let wanted = 2 * space + GROWTH_SEGMENTS * u64::from(mss) + waiting;
            let rtt = Duration::from_micros(self.rtt_us.into());
            self.grow_to(wanted, tuning, 2, (space, rtt), least_rtt);
        }
    }

    /// The buffer becomes `wanted` bytes, as far as a path that delivers `read` bytes in that time may have.
    fn grow_to(
        &mut self,
        wanted: u64,
        tuning: BufferTuning,
        times: u64,
        read: (u64, Duration),
        least_rtt: Option<Duration>,
    ) {
        let window = Duration::from_micros(self.least_us.into());
        let least_rtt = least_rtt.map(|rtt| if self.least_us < u16::MAX { rtt.min(window) } else { rtt });
        let path_max = tuned_max(tuning, FOLLOWS_MAX, times, read.0, read.1, least_rtt);
        let wanted = wanted.min(path_max).min(self.rcvbuf_max.into()) as u32;
        self.rcvbuf = self.rcvbuf.max(wanted);
    }
}

#[cfg(test)]
mod tests;
