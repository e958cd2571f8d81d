//! The window that is offered, the buffer that follows the reader, and the round trips of the receiver.

use super::*;
use crate::words::seq::FIRST;
use proptest::prelude::*;

const MSS: u16 = 1460;

/// So many nanoseconds after the connection began: not at the clock's zero, which fields have before they
/// are set.
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

/// A sender cannot send more than a window before it hears of it: a window's worth of data takes a round trip
/// at least.
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
        w.accepts(&(nxt - 5..nxt + 1)) && w.accepts(&(edge - 1..edge + 5)) && w.accepts(&(nxt - 5..edge + 5))
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
    // A buffer of less than two segments moves by halves, and one of a byte by that: the least of
    // `tcp_rmem` is 1.
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

/// Bytes that were not read yet say nothing about how fast the application reads.
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

/// RFC 7323 §2.3: 14 is the largest shift. A buffer that is set, or not tuned, has two units of the
/// window field, and Linux's least.
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

/// RFC 7323 §2.4. The edge is one byte into a unit: a unit more reaches 127 bytes beyond the buffer, which is
/// less than a unit.
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

/// Beyond 6 MiB the buffer is what was read in the least round trip, 16 times while that grows by half and
/// more, else twice; and not more than is wanted: 2 · copied + 16 segments, and twice the growth of that.
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

#[test]
fn mem_17_data_beyond_a_hole_enlarges_the_buffer() {
    let growth = (Some(BufferTuning::FollowPath), Some(Duration::from_millis(10)));
    // 100,000 bytes were read in a round trip, and the buffer has its first size.
    let read = || RecvWindow { space: 100_000, rtt_us: 10_000, ..window(131_072, 7) };
    // Linux 6.17: 2 · 100,000 + 16 · 1460, and what lies up to the end of the data beyond the hole.
    let mut w = read();
    w.on_reordered(FIRST + 60_000, MSS, growth);
    assert_eq!(w.rcvbuf(), 283_360);
    w.on_reordered(FIRST + 50_000, MSS, growth);
    assert_eq!(w.rcvbuf(), 283_360, "never smaller");
    // No more than for two round trips more.
    w.on_reordered(FIRST + 10_000_000, MSS, growth);
    assert_eq!(w.rcvbuf(), 423_360);
    // Of a path that holds less, Linux's maximum.
    let mut large = RecvWindow { space: 3_000_000, rcvbuf_max: 128 << 20, ..read() };
    large.on_reordered(FIRST + 10_000_000, MSS, growth);
    assert_eq!(large.rcvbuf(), 6 << 20);
    // Nothing under pressure, and of a buffer that was set.
    let mut w = read();
    w.on_reordered(FIRST + 60_000, MSS, (None, None));
    w.lock_rcvbuf(131_072);
    w.on_reordered(FIRST + 60_000, MSS, growth);
    assert_eq!(w.rcvbuf(), 131_072);
}
