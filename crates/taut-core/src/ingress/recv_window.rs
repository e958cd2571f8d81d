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

use crate::buffers::{BufferTuning, tuned_max};
use crate::words::{Duration, Instant};

/// RFC 7323 §2.3: the largest shift.
pub(crate) const SCALE_MAX: u8 = 14;

/// The least `SO_RCVBUF`, doubled. Linux: `SOCK_MIN_RCVBUF`, 2,048 bytes of payload and the 256 of an `sk_buff`.
pub(crate) const RCVBUF_MIN: u32 = 2_304;

/// The buffer grows for twice the rate and this many segments more, so that slow start, which doubles every
/// round trip, is never held back by the window. Linux: the 16 segments of `tcp_rcv_space_adjust`.
const GROWTH_SEGMENTS: u64 = 16;

/// Up to here, the buffer follows what is read in a measured round trip. Linux: `tcp_rmem`'s maximum.
const FOLLOWS_MAX: u32 = 6 << 20;

/// While memory is scarce, a buffer that is half full takes so many segments. Linux: `tcp_adjust_rcv_ssthresh`.
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
    /// The shortest time in which a window's worth of data came, in µs; `u16::MAX` stands for all that is longer.
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

    /// `SO_RCVBUF`: from now on the buffer has this size, or the least. The window already offered stays offered.
    pub(crate) const fn lock_rcvbuf(&mut self, rcvbuf: u32) {
        // The window field counts in these units: of a buffer that is not even two of them, it could only say that it is
        // full.
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
    /// before it and needs no extra room. `pressed`: the stack's memory is scarce, and a buffer that is half full
    /// takes only a few segments more.
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
    /// an application that falls behind does not need a larger buffer. Beyond Linux's maximum, and below it on a
    /// path of less than a millisecond, the least round trip counts ([`tuned_max`]): a measured one contains the queue
    /// that a large buffer makes. `least_rtt` is that of our own segments; of a connection that only receives, it is the
    /// handshake's, which the first packet of a path often delays. Without `tuning`, as under memory pressure, the buffer
    /// stays as it is.
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
                // While the rate doubles, what was read is a round trip old, two where a loss held it up, and another
                // passes until the window arrives.
                let times = if copied >= space / 2 * 3 { 16 } else { 2 };
                let window = Duration::from_micros(self.least_us.into());
                let least_rtt =
                    least_rtt.map(|rtt| if self.least_us < u16::MAX { rtt.min(window) } else { rtt });
                let path_max = tuned_max(tuning, FOLLOWS_MAX, times, copied, span, least_rtt);
                let most = path_max.min(self.rcvbuf_max.into());
                let wanted = wanted.min(most) as u32;
                self.rcvbuf = self.rcvbuf.max(wanted);
            }
            self.space = copied;
        }
        self.copied = 0;
        self.space_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::seq::FIRST;
    use proptest::prelude::*;

    const MSS: u16 = 1460;

    /// So many nanoseconds after the connection began: not at the clock's zero, which fields have before they are set.
    const fn ns(after: u64) -> Instant {
        Instant::from_nanos(10_000_000_000 + after)
    }

    fn window(rcvbuf: u32, scale: u8) -> RecvWindow {
        let mut window = RecvWindow::new(rcvbuf, 6 << 20, true);
        window.establish(ns(0), FIRST, scale, MSS);
        window
    }

    #[test]
    fn is_small() {
        assert!(size_of::<RecvWindow>() <= 64);
    }

    #[test]
    fn scale_reaches_the_largest_buffer() {
        // Linux: 7 with the default tcp_rmem of 6 MiB.
        assert_eq!(scale_for(6 << 20), 7);
        assert_eq!(scale_for(128 << 20), 12);
        assert_eq!(scale_for(65_535), 0);
        assert_eq!(scale_for(65_536), 1);
        assert_eq!(scale_for(u32::MAX), 14);
    }

    #[test]
    fn the_first_window_is_unscaled_and_the_second_is_the_buffer() {
        let mut window = window(131_072, 7);
        assert_eq!(window.syn_field(), 65_535);
        assert_eq!(window.window(), 65_535);
        assert_eq!(window.select(0, MSS, false), 1024);
        assert_eq!(window.window(), 131_072);
    }

    /// The second segment's ACK waits for a read only if it would bring no window.
    #[test]
    fn the_window_can_grow_while_half_is_free_or_the_edge_can_move() {
        for (unread, moved, grows) in
            [(10_000, 0, true), (10_001, 0, false), (10_001, 11_460, false), (10_001, 11_461, true)]
        {
            let mut w = window(20_000, 0);
            let _ = w.select(0, MSS, false);
            w.advance_to(FIRST + moved);
            assert_eq!(w.can_grow(unread, MSS, false), grows, "{unread} {moved}");
        }
    }

    #[test]
    fn the_peer_is_told_of_two_segments_that_double_the_window() {
        // (buffer, window that is left, gain): due. Of a small buffer half is enough: RFC 1122 §4.2.3.3.
        for (rcvbuf, left, gain, due) in [
            (20_000, 0, 2_920, true),
            (20_000, 0, 2_919, false),
            (20_000, 4_000, 4_000, true),
            (20_000, 4_000, 3_999, false),
            (20_000, 10_000, 10_000, true),
            (4_000, 0, 2_000, true),
            (4_000, 0, 1_999, false),
        ] {
            let mut w = window(rcvbuf, 0);
            let _ = w.select(0, MSS, false);
            w.advance_to(w.edge() - left);
            let unread = u64::from(rcvbuf) - left - gain;
            assert_eq!(w.window_update_due(unread, MSS, false), due, "{rcvbuf} {left} {gain}");
        }
    }

    /// A sender cannot send more than a window before it hears of it: a window's worth of data takes a round trip at least.
    #[test]
    fn info_06_the_receiver_measures_round_trips() {
        let at = |ms: u64| ns(ms * 1_000_000);
        let mut w = window(10_000, 0);
        let mut data = |upto: u64, ms| {
            w.advance_to(FIRST + upto);
            let _ = w.select(0, MSS, false);
            w.on_data(at(ms), None);
            w.rtt().map(Duration::as_millis)
        };
        assert_eq!(data(9_000, 30), None);
        assert_eq!(data(10_000, 50), Some(50));
        let mut upto = 10_000;
        let mut round = |ms| {
            upto += 10_000;
            data(upto, ms)
        };
        assert_eq!(round(130), Some(50), "80 ms: the application was slow");
        assert_eq!(round(150), Some(20));
        assert_eq!(round(180), Some(20));
        // With timestamps, by their echo, with gain 1/8 (RFC 6298), and by nothing else: (7 · 70 + 150) / 8.
        let mut w = window(10_000, 0);
        for (echo, rtt) in [(70, 70), (150, 80)] {
            w.advance_to(FIRST + 10_000);
            w.on_data(at(20), Some(Duration::from_millis(echo)));
            assert_eq!(w.rtt(), Some(Duration::from_millis(rtt)));
        }
    }

    /// RFC 9293 §3.10.7.4, table 6, and the two deviations.
    #[test]
    fn acceptability() {
        let w = window(1000, 0);
        let (nxt, edge) = (FIRST, FIRST + 1000);
        assert!(w.accepts(&(nxt..nxt)) && w.accepts(&(nxt + 999..nxt + 999)) && w.accepts(&(edge..edge)));
        assert!(!w.accepts(&(nxt - 1..nxt - 1)) && !w.accepts(&(edge + 1..edge + 1)));
        assert!(
            w.accepts(&(nxt - 5..nxt + 1))
                && w.accepts(&(edge - 1..edge + 5))
                && w.accepts(&(nxt - 5..edge + 5))
        );
        assert!(!w.accepts(&(nxt - 5..nxt)) && !w.accepts(&(edge..edge + 1)));

        let mut closed = window(1000, 0);
        closed.advance_to(edge);
        assert!(closed.accepts(&(edge..edge)));
        assert!(!closed.accepts(&(edge..edge + 1)) && !closed.accepts(&(edge - 1..edge - 1)));
    }

    #[test]
    fn small_steps_are_withheld() {
        let mut w = window(65_535, 0);
        w.advance_to(FIRST + 10_000);
        assert_eq!(w.select(10_000, MSS, false), 55_535);
        // RFC 9293 §3.8.6.2.2: less than a segment was read.
        assert_eq!(w.select(10_000 - 1459, MSS, false), 55_535);
        assert_eq!(w.select(10_000 - 1460, MSS, false), 56_995);
        // A buffer of less than two segments moves by halves, and one of a byte by that: the least of `tcp_rmem` is 1.
        for (rcvbuf, too_little, enough) in [(1_000, 499, 500), (4, 1, 2), (3, 0, 1), (1, 0, 1)] {
            let mut w = window(rcvbuf, 0);
            w.advance_to(FIRST + u64::from(rcvbuf));
            let unread = |read: u32| u64::from(rcvbuf - read);
            for (read, field) in [(0, 0), (too_little, 0), (enough, enough)] {
                assert_eq!(w.window_update_due(unread(read), MSS, false), field > 0, "{rcvbuf} {read}");
                assert_eq!(u32::from(w.select(unread(read), MSS, false)), field, "{rcvbuf} {read}");
            }
        }
    }

    #[test]
    fn a_closed_window_is_reopened_by_an_update() {
        let mut w = window(65_535, 0);
        w.advance_to(FIRST + 65_535);
        assert_eq!(w.select(65_535, MSS, false), 0);
        assert!(!w.window_update_due(65_535 - 2 * 1460 + 1, MSS, false));
        assert!(w.window_update_due(65_535 - 2 * 1460, MSS, false));
        assert!(!w.can_grow(65_535, MSS, false));
    }

    #[test]
    fn an_open_window_is_not_updated_at_every_read() {
        let mut w = window(65_535, 0);
        w.advance_to(FIRST + 10_000);
        assert_eq!(w.select(10_000, MSS, false), 55_535);
        assert!(!w.window_update_due(0, MSS, false));
        w.advance_to(FIRST + 33_000);
        assert!(w.window_update_due(0, MSS, false));
        // Nor is there a reason when the field cannot express more.
        let mut w = window(1 << 20, 0);
        assert_eq!(w.select(0, MSS, false), 65_535);
        assert!(!w.window_update_due(0, MSS, false));
    }

    #[test]
    fn the_buffer_follows_what_is_read_in_a_round_trip() {
        let rtt = Duration::from_millis(40);
        let mut now = ns(0);
        let mut w = window(131_072, 7);
        w.on_data(now, Some(rtt));
        for copied in [14_600, 29_200, 58_400, 116_800] {
            now += rtt;
            w.on_copied_to_user(now, copied, 0, MSS, Some(BufferTuning::FollowPath), None);
            // The buffer must carry twice as much in the next round trip.
            assert!(u64::from(w.rcvbuf()) >= 2 * copied as u64);
        }
        // 58 400 → 116 800: (2·116 800 + 16·1460)·(1 + 2·1).
        assert_eq!(w.rcvbuf(), 770_880);
        for _ in 0..10 {
            now += rtt;
            w.on_copied_to_user(now, 116_800, 0, MSS, Some(BufferTuning::FollowPath), None);
        }
        assert_eq!(w.rcvbuf(), 770_880);
        now += rtt;
        w.on_copied_to_user(now, 100_000_000, 0, MSS, Some(BufferTuning::FollowPath), None);
        assert_eq!(w.rcvbuf(), 6 << 20);
    }

    /// 20 Gbit/s are read, and the measured round trip of 5 ms is nearly all queue.
    #[test]
    fn on_a_short_path_the_buffer_does_not_follow_its_own_queue() {
        let after_window = |tuning, least_us, window_us| {
            let mut w = RecvWindow::new(131_072, 128 << 20, true);
            let (rtt, mut now) = (Duration::from_millis(5), ns(0));
            w.establish(now, FIRST, 12, MSS);
            // The window of the SYN is filled, in so long a time.
            now += Duration::from_micros(window_us);
            w.advance_to(FIRST + 65_535);
            w.on_data(now, Some(rtt));
            for copied in [1_000_000, 6_000_000, 12_500_000, 12_600_000] {
                now += rtt;
                w.on_copied_to_user(now, copied, 0, MSS, Some(tuning), Some(Duration::from_micros(least_us)));
            }
            w.rcvbuf()
        };
        let after = |tuning, least_us| after_window(tuning, least_us, 1_000_000);
        // The path holds 125 kB in 50 µs: a twentieth of 6 MiB is less than the least, 512 KiB.
        assert_eq!(after(BufferTuning::FollowPath, 50), 512 << 10);
        // It holds 2.5 MB in 1 ms and 12.5 MB in 5 ms: up to 16 times while the rate doubles.
        assert_eq!(after(BufferTuning::FollowPath, 1_000), 12_500_000 / 5 * 16);
        assert!(after(BufferTuning::FollowPath, 5_000) > 64 << 20);
        assert!(after(BufferTuning::FollowWindow, 50) > 64 << 20);
        // A handshake of 5 ms, and then a window that came within 50 µs.
        assert_eq!(after_window(BufferTuning::FollowPath, 5_000, 50), 512 << 10);
    }

    /// What the application has not read yet says nothing about how fast it reads.
    #[test]
    fn unread_bytes_are_not_counted_as_read() {
        for (unread, space) in [(0, 40_000), (20_000, 20_000), (25_400, 14_600), (50_000, 14_600)] {
            let mut w = window(131_072, 7);
            w.on_data(ns(0), Some(Duration::from_millis(1)));
            w.on_copied_to_user(ns(1_000_000), 40_000, unread, MSS, Some(BufferTuning::FollowPath), None);
            assert_eq!(w.space(), space, "{unread}");
        }
        // The first round trip brings ten segments, or a window that is smaller than these.
        assert_eq!(window(8_000, 0).space(), 8_000);
    }

    /// RFC 7323 §2.3: 14 is the largest shift. A buffer that is set, or not tuned, has two units of the window field, and
    /// Linux's least.
    #[test]
    fn the_least_buffer_is_two_units() {
        for (scale, least) in [(0, 2_304), (10, 2_304), (11, 4_096), (14, 32_768), (15, 32_768)] {
            let mut w = RecvWindow::new(100, 100, false);
            w.establish(ns(0), FIRST, scale, MSS);
            assert_eq!((w.scale(), w.rcvbuf()), (scale.min(14), least));
            w.lock_rcvbuf(1);
            assert_eq!(w.rcvbuf(), least);
            w.lock_rcvbuf(least + 1);
            assert_eq!(w.rcvbuf(), least + 1);
        }
    }

    #[test]
    fn a_buffer_the_user_chose_is_not_tuned() {
        let mut w = window(131_072, 7);
        w.lock_rcvbuf(50_000);
        w.on_data(ns(1), Some(Duration::from_millis(1)));
        w.on_copied_to_user(ns(1 << 40), 1 << 20, 0, MSS, Some(BufferTuning::FollowPath), None);
        assert_eq!(w.rcvbuf(), 50_000);
        // The window offered stays offered: 65 535 bytes, expressed in whole units of 128.
        assert_eq!(w.select(0, MSS, false), 511);
        assert_eq!(w.edge(), FIRST + 65_535);
    }

    #[test]
    fn a_round_trip_is_a_windowful_without_timestamps() {
        let mut w = window(65_535, 0);
        w.advance_to(FIRST + 60_000);
        w.on_data(ns(10_000_000), None);
        assert_eq!(w.rtt(), None);
        w.advance_to(FIRST + 65_535);
        w.on_data(ns(30_000_000), None);
        assert_eq!(w.rtt(), Some(Duration::from_millis(30)));
    }

    /// RFC 6298 §2.3's gain of 1/8: 7/8 · 40 + 1/8 · 80 ms.
    #[test]
    fn a_timestamps_round_trip_is_smoothed() {
        let mut w = window(65_535, 0);
        w.on_data(ns(1), Some(Duration::from_millis(40)));
        w.on_data(ns(2), Some(Duration::from_millis(80)));
        assert_eq!(w.rtt(), Some(Duration::from_millis(45)));
    }

    #[test]
    fn reads_within_a_round_trip_count_together() {
        let rtt = Duration::from_millis(40);
        let start = ns(0);
        let mut w = window(131_072, 7);
        w.on_data(start, Some(rtt));
        for part in 1..=4 {
            // 30,000 bytes each, the last exactly a round trip after the first.
            w.on_copied_to_user(start + rtt / 4 * part, 30_000, 0, MSS, Some(BufferTuning::FollowPath), None);
            assert_eq!(w.space(), if part < 4 { 14_600 } else { 120_000 });
        }
    }

    /// RFC 7323 §2.4. The edge is one byte into a unit: a unit more reaches 127 bytes beyond the buffer, which is less
    /// than a unit.
    #[test]
    fn an_edge_within_a_unit_is_rounded_up() {
        let mut w = window(131_072, 7);
        assert_eq!(w.select(0, MSS, false), 1_024);
        w.advance_to(FIRST + 127);
        assert_eq!(w.select(127, MSS, false), 1_024);
        assert_eq!(w.edge(), FIRST + 127 + (1_024 << 7));
        // Another byte, and the edge would be a whole unit beyond the buffer: it stays, to be seen further left.
        w.advance_to(FIRST + 129);
        assert_eq!(w.select(129, MSS, false), 1_023);
        assert_eq!(w.edge(), FIRST + 127 + (1_024 << 7));
    }

    proptest! {
        /// The edge never moves left (by a unit or more, as the peer sees it), and never beyond the buffer.
        #[test]
        fn never_shrinks(
            scale in 0_u8..=14,
            rcvbuf in 1_u32..8_000_000,
            steps in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 1..200),
        ) {
            let mut w = window(rcvbuf, scale);
            let unit = 1_u64 << scale;
            let mut unread = 0_u64;
            let mut limit = w.edge();
            for (received, read, tiny) in steps {
                let received = u64::from(received) % (w.window() + 1);
                let received = if tiny { received.min(1) } else { received };
                w.advance_to(w.rcv_nxt() + received);
                unread += received;
                unread -= u64::from(read) % (unread + 1);
                let (nxt, before) = (w.rcv_nxt(), w.edge());
                let seen = nxt + (u64::from(w.select(unread, MSS, false)) << scale);
                prop_assert!(w.edge() >= before && w.rcv_nxt() == nxt);
                prop_assert!(seen + unit > before, "shrunk by {}", before - seen);
                limit = limit.max(nxt + u64::from(rcvbuf) - unread.min(u64::from(rcvbuf)));
                prop_assert!(w.edge() < limit + unit);
            }
        }
    }

    /// RFC 6298's 7/8 · 1 + 1/8 · 1 µs, and nothing is taken for 0, which means that nothing was measured.
    #[test]
    fn a_round_trip_of_a_microsecond_is_one() {
        let mut w = window(65_535, 0);
        for us in [0, 1, 1, 0] {
            w.on_data(ns(1), Some(Duration::from_micros(us)));
            assert_eq!(w.rtt(), Some(Duration::from_micros(1)));
        }
    }

    /// A buffer that is half free is not reduced, nor is one less than that by a byte more than four segments.
    #[test]
    fn while_memory_is_scarce_a_buffer_that_is_half_full_takes_four_segments() {
        for (unread, offered) in [(0, 131_072), (65_536, 65_536), (65_537, 4 * 1_460)] {
            let mut w = RecvWindow::new(131_072, 6 << 20, true);
            w.establish(ns(0), FIRST, 0, MSS);
            w.scale = 7;
            w.edge = FIRST;
            let _ = w.select(unread, MSS, true);
            // In units of 128 bytes.
            assert_eq!(w.window(), offered / 128 * 128, "{unread}");
        }
    }

    /// Beyond 6 MiB the buffer is what was read in the least round trip, 16 times while that grows by half and more, else twice;
    /// and not more than is wanted: 2 · copied + 16 segments, and twice the growth of that.
    #[test]
    fn a_rate_that_still_grows_has_a_larger_buffer() {
        let at = |ms: u64| ns(ms * 1_000_000);
        // Of 100 ms, too: no window's worth of data has come in less.
        for ms in [10, 100] {
            let rtt = Some(Duration::from_millis(ms));
            for (copied, expected) in [
                (12_000_000, 2 * 12_000_000),
                (14_999_990, 2 * 14_999_990),
                (15_000_000, 2 * (2 * 15_000_000 + 16 * 1_460)),
            ] {
                let mut w = RecvWindow::new(131_072, 128 << 20, true);
                w.establish(at(0), FIRST, 12, MSS);
                w.on_data(at(0), rtt);
                w.on_copied_to_user(at(ms), 10_000_000, 0, MSS, None, rtt);
                assert_eq!(w.space(), 10_000_000);
                w.on_copied_to_user(at(2 * ms), copied, 0, MSS, Some(BufferTuning::FollowPath), rtt);
                assert_eq!(w.rcvbuf(), expected, "{copied} in {ms} ms");
            }
        }
    }
}
