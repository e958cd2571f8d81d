//! TCP_NOTSENT_LOWAT and writability: LOWAT-1 … LOWAT-15.

use crate::spec::rig::{Ack, Device, MSS, OVERHEAD, Rig, Setup};
use taut_core::{ConnOptions, Duration, SetOption, WriteError, WriteFlags};

/// The size to which a buffer is filled: 45 segments.
const SIZE_GOAL: u64 = 45 * MSS;

/// TCP_NOTSENT_LOWAT is `lowat`, and the device is asleep: everything written stays unsent.
#[track_caller]
fn asleep(lowat: u32) -> Rig {
    let options = ConnOptions { notsent_lowat: lowat, ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.open();
    rig.device = Device::Sleeps;
    rig
}

/// Wakes the device, which completes at once.
#[track_caller]
fn wake(rig: &mut Rig) {
    rig.device = Device::Completes;
    rig.poll();
}

#[track_caller]
fn try_write(rig: &mut Rig, len: u64) -> Result<u64, WriteError> {
    rig.try_write(len, WriteFlags::default())
}

/// Acknowledges segment by segment; returns the unsent bytes after each ACK, and how many wake-ups came with
/// it.
#[track_caller]
fn ack_by_segment(rig: &mut Rig, until_unsent: u64) -> Vec<(u64, usize)> {
    let mut steps = Vec::new();
    let mut acked = rig.info().bytes_acked;
    while rig.info().notsent_bytes > until_unsent {
        rig.advance(Duration::from_micros(500));
        acked += MSS;
        let sent = rig.written - rig.info().notsent_bytes;
        rig.ack(acked.min(sent));
        steps.push((rig.info().notsent_bytes, rig.writable_events()));
    }
    steps
}

/// An application that was refused a write is notified once, when less than half of the mark is unsent.
#[test]
fn lowat_01_woken_once_below_half_of_the_mark() {
    const X: u64 = 200_000;
    let mut rig = asleep(X as u32);
    rig.fill();
    assert!(rig.info().notsent_bytes >= X);
    wake(&mut rig);
    assert_eq!(rig.writable_events(), 0);
    let steps = ack_by_segment(&mut rig, 0);
    let first_below = steps.iter().position(|&(unsent, _)| 2 * unsent < X).unwrap();
    for (step, &(unsent, events)) in steps.iter().enumerate() {
        assert_eq!(events, usize::from(step == first_below), "{unsent} unsent");
    }
}

/// Many ACKs come between the mark and its half, and none of them wakes the application.
#[test]
fn lowat_02_acks_between_the_mark_and_its_half_wake_nobody() {
    const X: u64 = 2 << 20;
    let mut rig = asleep(X as u32);
    rig.fill();
    wake(&mut rig);
    let steps = ack_by_segment(&mut rig, X / 2 - 1);
    let between: Vec<_> = steps.iter().filter(|(unsent, _)| (X / 2..X).contains(unsent)).collect();
    assert!(between.len() > 100, "{} ACKs", between.len());
    assert!(between.iter().all(|&&(_, events)| events == 0), "{between:?}");
    assert_eq!(steps.last().unwrap().1, 1, "and the one that goes below it does");
}

/// The mark is checked when a buffer begins: up to one buffer may exceed it.
#[test]
fn lowat_03_a_new_buffer_may_exceed_the_mark() {
    // One buffer is full, one byte below the mark.
    let mut rig = asleep(SIZE_GOAL as u32 + 1);
    rig.write(SIZE_GOAL);
    assert_eq!(try_write(&mut rig, 1_000_000), Ok(SIZE_GOAL));
    assert_eq!(rig.info().notsent_bytes, SIZE_GOAL + SIZE_GOAL, "mark - 1 + size goal");
    assert_eq!(try_write(&mut rig, 1), Err(WriteError::WouldBlock));

    // At the mark exactly no buffer begins.
    let mut rig = asleep(SIZE_GOAL as u32);
    rig.write(SIZE_GOAL);
    assert_eq!(try_write(&mut rig, 1), Err(WriteError::WouldBlock));

    let mut rig = asleep(4_096);
    assert_eq!(try_write(&mut rig, 1_000_000), Ok(SIZE_GOAL));
}

/// Above the mark a write still fills the last buffer.
#[test]
fn lowat_04_an_open_buffer_takes_more_above_the_mark() {
    let mut rig = asleep(4_096);
    rig.write(10_000);
    assert_eq!(try_write(&mut rig, 1_000), Ok(1_000));
    assert_eq!(try_write(&mut rig, 1_000_000), Ok(SIZE_GOAL - 11_000));
    assert_eq!(try_write(&mut rig, 1), Err(WriteError::WouldBlock));
}

/// Transmission alone makes room, and it may be the last thing that happens for a round trip.
#[test]
fn lowat_05_transmission_without_an_ack_wakes() {
    let mut rig = asleep(10_000);
    rig.write(10 * MSS);
    assert!(!rig.writable());
    assert_eq!(rig.writable_events(), 0);
    wake(&mut rig);
    assert_eq!(rig.info().notsent_bytes, 0);
    assert_eq!((rig.info().bytes_acked, rig.writable_events()), (0, 1));
}

/// An application that was neither refused a write nor asked is not notified.
#[test]
fn lowat_06_nobody_is_woken_who_does_not_wait() {
    const X: u64 = 100_000;
    let mut rig = asleep(X as u32);
    rig.write(SIZE_GOAL);
    rig.write(X - SIZE_GOAL);
    wake(&mut rig);
    let steps = ack_by_segment(&mut rig, 0);
    assert!(
        steps.iter().any(|&(unsent, _)| unsent >= X / 2) && steps.iter().any(|&(unsent, _)| unsent < X / 2)
    );
    assert!(steps.iter().all(|&(_, events)| events == 0), "{steps:?}");
    assert!(rig.writable());
}

/// Between half of the mark and the mark, poll says no and a write succeeds.
#[test]
fn lowat_07_not_writable_yet_a_write_is_taken() {
    // Records, so that each write needs a buffer of its own.
    for (unsent, writable, taken) in
        [(9_999, true, true), (10_000, false, true), (19_999, false, true), (20_000, false, false)]
    {
        let mut rig = asleep(20_000);
        rig.write_eor(unsent);
        assert_eq!(rig.writable(), writable, "{unsent} unsent");
        let expected = if taken { Ok(1_000) } else { Err(WriteError::WouldBlock) };
        assert_eq!(try_write(&mut rig, 1_000), expected, "{unsent} unsent");
    }
}

/// The option 0 means the stack's current value.
#[test]
fn lowat_08_without_an_option_the_stacks_value_holds_live() {
    let mut rig = asleep(0);
    rig.write_eor(12_000);
    assert!(rig.writable());
    rig.stack.set_sysctl("net.ipv4.tcp_notsent_lowat", "12000").unwrap();
    assert!(!rig.writable());
    assert_eq!(try_write(&mut rig, 1), Err(WriteError::WouldBlock));
    rig.stack.set_sysctl("net.ipv4.tcp_notsent_lowat", "12001").unwrap();
    assert!(!rig.writable());
    assert_eq!(try_write(&mut rig, 1), Ok(1));
    // An option that is set holds for the connection, whatever the stack's value.
    rig.set(SetOption::NotsentLowat(50_000));
    rig.stack.set_sysctl("net.ipv4.tcp_notsent_lowat", "1").unwrap();
    assert!(rig.writable());
}

/// A larger option wakes at once.
#[test]
fn lowat_08_a_larger_mark_wakes_at_once() {
    let mut rig = asleep(10_000);
    rig.write_eor(12_000);
    assert_eq!(try_write(&mut rig, 1), Err(WriteError::WouldBlock));
    rig.set(SetOption::NotsentLowat(24_000));
    assert_eq!(rig.writable_events(), 0, "12,000 is not less than half of 24,000");
    rig.set(SetOption::NotsentLowat(24_001));
    assert_eq!(rig.writable_events(), 1);
    assert_eq!(try_write(&mut rig, 1), Ok(1));
}

/// A larger send buffer wakes at once, too.
#[test]
fn lowat_08_a_larger_buffer_wakes_at_once() {
    let options = ConnOptions { sndbuf: Some(10_000), ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.open();
    rig.device = Device::Sleeps;
    rig.write_eor(20_000);
    assert_eq!(try_write(&mut rig, 1), Err(WriteError::WouldBlock));
    // 21,024 are queued. Of 31,534, a third is not free; of 31,536 it is.
    rig.set(SetOption::Sndbuf(31_534 / 2));
    assert_eq!(rig.writable_events(), 0);
    rig.set(SetOption::Sndbuf(31_536 / 2));
    assert_eq!(rig.writable_events(), 1);
}

/// Writable means that a third of the send buffer is free.
#[test]
fn lowat_09_a_third_of_the_buffer_must_be_free() {
    let options = ConnOptions { sndbuf: Some(87_040 / 2), ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.open();
    rig.device = Device::Sleeps;
    assert_eq!(rig.info().sndbuf, 87_040);
    // 87,040 - 58,027 = 29,013 = 58,027 / 2 rounded down; one more byte queued and one less free are too
    // many.
    rig.write(58_027 - u64::from(OVERHEAD));
    assert_eq!((rig.info().wmem_queued, rig.writable()), (58_027, true));
    rig.write(1);
    assert_eq!((rig.info().wmem_queued, rig.writable()), (58_028, false));
}

/// The mark follows the rate, and the path has just delivered `segments` in a round trip of 20 ms. The device
/// is asleep.
fn by_rate(segments: u32, options: ConnOptions) -> Rig {
    by_rate_with(Setup::default(), segments, options)
}

fn by_rate_with(setup: Setup, segments: u32, options: ConnOptions) -> Rig {
    const RTT: Duration = Duration::from_millis(20);
    let mut rig = Setup { rtt: RTT, options, ..setup }.open();
    rig.grow_cwnd(segments, RTT);
    rig.device = Device::Completes;
    rig.write(u64::from(segments) * MSS);
    rig.finish(RTT);
    rig.device = Device::Sleeps;
    rig.stack.set_sysctl("net.ipv4.tcp_notsent_lowat", "0").unwrap();
    rig
}

/// 100 segments of 1448 bytes in 20 ms, in bytes per second.
const RATE: u64 = 7_240_000;

/// X = 64 KiB, 20 ms and 500 µs of the rate.
#[test]
fn lowat_10_without_an_option_the_mark_follows_the_rate() {
    const X: u64 = 65_536 + RATE / 50 + RATE / 2_000;
    let mut rig = by_rate(100, ConnOptions::default());
    rig.fill();
    // The first buffer that reaches the mark is the last.
    assert_eq!(rig.info().notsent_bytes, X.div_ceil(SIZE_GOAL) * SIZE_GOAL);
    wake(&mut rig);
    rig.limit_rate(1_000_000);
    let mut woken = false;
    while !woken {
        rig.advance(Duration::from_millis(2));
        woken = rig.writable_events() > 0;
        let unsent = rig.info().notsent_bytes;
        assert_eq!(woken, unsent < X / 4 * 3, "{unsent} unsent");
    }
}

/// Beyond 256 KiB the 20 ms count no more: 4000 segments in 20 ms are 289.6 MB/s.
#[test]
fn lowat_10_at_high_rates_twenty_milliseconds_are_too_much() {
    const X: u64 = (320 << 10) + 289_600_000 / 2_000;
    let mut rig = by_rate(4_000, ConnOptions::default());
    rig.fill();
    assert_eq!(rig.info().notsent_bytes, X.div_ceil(SIZE_GOAL) * SIZE_GOAL);
}

/// An application that writes 4 ms after it was woken needs 4 ms of data in the lower half.
#[test]
fn lowat_11_a_slow_application_gets_a_larger_mark() {
    // Four buffers are sent at once, and acknowledged 20 ms later.
    const NEW_RATE: u64 = 4 * SIZE_GOAL * 50;
    const SLOW: u64 = 65_536 + NEW_RATE / 50 + 2 * NEW_RATE * 4 / 1_000;
    let mut rig = by_rate(100, ConnOptions::default());
    rig.fill();
    assert_eq!(rig.info().notsent_bytes, 4 * SIZE_GOAL);
    wake(&mut rig);
    rig.advance(Duration::from_millis(20));
    rig.ack_all();
    assert_eq!((rig.writable_events(), rig.info().notsent_bytes), (1, 0));
    rig.advance(Duration::from_millis(4));
    rig.device = Device::Sleeps;
    rig.fill();
    let taken = rig.info().notsent_bytes;
    assert_eq!(taken, SLOW.div_ceil(SIZE_GOAL) * SIZE_GOAL);
}

/// A buffer that is set and 4294967295 as the option or the stack's value leave only the send buffer's limit.
#[test]
fn lowat_12_a_set_buffer_or_option_has_no_such_mark() {
    let default = ConnOptions::default;
    let cases = [
        (ConnOptions { sndbuf: Some(4 << 20), ..default() }, "0"),
        (ConnOptions { notsent_lowat: u32::MAX, ..default() }, "0"),
        (default(), "4294967295"),
    ];
    for (options, stack) in cases {
        let mut rig = by_rate(100, options);
        rig.stack.set_sysctl("net.ipv4.tcp_notsent_lowat", stack).unwrap();
        // MEM-16 leaves others nothing here.
        rig.stack.set_sysctl("net.ipv4.tcp_mem", "1000000 1000000 1000000").unwrap();
        rig.fill();
        let info = rig.info();
        assert!(info.wmem_queued >= info.sndbuf && info.notsent_bytes > 4_000_000, "{info:?}");
    }
}

/// The peer lacks the first segment of a flight and gets everything else. As data piles up behind it, the
/// mark shrinks by as much, as far as 64 KiB and 500 µs of the rate.
#[test]
fn lowat_13_the_mark_gives_way_to_data_behind_a_hole() {
    const RTT: Duration = Duration::from_millis(20);
    let mut rig = by_rate(400, ConnOptions::default());
    let hole = rig.written;
    rig.device = Device::Completes;
    for _ in 0..8 {
        rig.write(100 * MSS);
    }
    let (mut least, mut whole, mut between) = (false, false, false);
    rig.advance(RTT);
    for step in 1..=8 {
        // 100 segments in 2 ms, for which about 70 new ones leave.
        rig.advance(Duration::from_millis(2));
        rig.ack_with(&Ack::of(hole).sack(&[hole + MSS..hole + step * 100 * MSS]));
        rig.fill();
        let info = rig.info();
        assert_eq!((info.ca_state, info.min_rtt), ("recovery", Some(RTT)));
        let (rate, unacked) = (info.delivery_rate, rig.written - info.bytes_acked - info.notsent_bytes);
        let floor = 65_536 + rate / 2_000;
        let usual = floor + (rate / 50).min(262_144);
        let room = (2 * (rate / 50) + 393_216).saturating_sub(unacked);
        let mark = usual.min(room.max(floor));
        // Microseconds are rounded down, and so is each product.
        assert!(u64::from(info.notsent_lowat).abs_diff(mark) <= 2, "{} for {mark}", info.notsent_lowat);
        (least, whole, between) =
            (least | (mark == floor), whole | (mark == usual), between | (floor < mark && mark < usual));
    }
    assert!(least && between && whole, "{least} {between} {whole}");
    // The hole is filled: the mark is the usual one.
    rig.advance(RTT);
    rig.ack_all();
    let info = rig.info();
    let usual = 65_536 + info.delivery_rate / 2_000 + (info.delivery_rate / 50).min(262_144);
    assert_eq!(info.ca_state, "open");
    assert!(u64::from(info.notsent_lowat).abs_diff(usual) <= 2, "{} for {usual}", info.notsent_lowat);
}

/// A connection that delivers 400 segments in 20 ms, with as many in flight, and an application that was
/// woken and writes `late` after that. Returns the mark and what the formulas of LOWAT-11 and 14 take: the
/// rate and the bytes in flight.
fn mark_of_a_late_one(late: Duration, is_acked: bool) -> (u64, u64, u64) {
    let mut rig = by_rate(400, ConnOptions::default());
    rig.fill();
    wake(&mut rig);
    assert_eq!(rig.writable_events(), 1);
    if is_acked {
        rig.advance(Duration::from_millis(20));
        rig.ack_all();
    }
    rig.advance(late);
    rig.write(MSS);
    let info = rig.info();
    let unacked = rig.written - info.bytes_acked - info.notsent_bytes;
    (info.notsent_lowat.into(), info.delivery_rate, unacked)
}

/// 16 ms at 29 MB/s are more than the usual mark lasts; 60 ms are more than there is room for.
#[test]
fn lowat_14_the_mark_lasts_for_a_late_application() {
    let (mut lasts, mut bounded) = (false, false);
    for late_ms in [2, 16, 60] {
        let (mark, rate, unacked) = mark_of_a_late_one(Duration::from_millis(late_ms), false);
        assert!(unacked > 0);
        let usual = 65_536 + (rate / 50).min(262_144) + rate * 2 * late_ms.min(4) / 1_000;
        let late = 65_536 + rate * 3 * late_ms / 2_000;
        let room = (2 * (rate / 50) + 393_216).saturating_sub(unacked);
        let wanted = if late_ms > 4 { usual.max(late.min(room)) } else { usual };
        // Microseconds are odd, so that a time may be one longer; rates of bytes per microsecond are rounded
        // down.
        assert!(mark.abs_diff(wanted) <= rate / 100_000, "{mark} for {wanted}, {late_ms} ms late");
        (lasts, bounded) = (lasts | (wanted == late), bounded | (wanted == room));
    }
    assert!(lasts && bounded, "{lasts} {bounded}");
}

/// When it writes, everything has been acknowledged: it had nothing to write.
#[test]
fn lowat_14_an_application_that_was_away_is_not_waited_for() {
    let (mark, rate, unacked) = mark_of_a_late_one(Duration::from_millis(60), true);
    let usual = 65_536 + (rate / 50).min(262_144) + rate * 2 * 4 / 1_000;
    assert!(unacked <= MSS && mark.abs_diff(usual) <= 2, "{mark} for {usual}");
}

/// The longest pause of an application that goes on writing, from one write to the next, counts like the
/// first; once it has found no room, no time counts.
#[test]
fn lowat_14_pauses_between_writes_count_until_there_is_no_room() {
    let mut rig = by_rate(400, ConnOptions::default());
    rig.fill();
    wake(&mut rig);
    assert_eq!(rig.writable_events(), 1);
    let mark = |rig: &mut Rig| u64::from(rig.info().notsent_lowat);
    rig.write(MSS);
    let before = mark(&mut rig);
    rig.advance(Duration::from_millis(16));
    rig.write(MSS);
    let late = 65_536 + rig.info().delivery_rate * 3 * 16 / 2_000;
    assert!(before < late && mark(&mut rig).abs_diff(late) <= 1_000, "{} for {late}", mark(&mut rig));
    rig.device = Device::Sleeps;
    rig.fill();
    let full = mark(&mut rig);
    rig.advance(Duration::from_millis(19));
    rig.fill();
    assert_eq!(mark(&mut rig), full, "it was refused, and not woken since");
}

/// A window as large as the buffer is in flight and nothing unsent: the ACKs free the buffer, segment by
/// segment. Above 4 MiB room for the mark is enough, below a third of the buffer must be free, half as much
/// as is queued (LOWAT-9).
#[test]
fn lowat_15_room_for_the_mark_is_room_enough_in_a_large_buffer() {
    const RTT: Duration = Duration::from_millis(20);
    for (buffer, window, by_mark) in [(6_000_000, 4_000, true), (2_000_000, 1_300, false)] {
        let setup = Setup::default().config(|c| (c.send.wmem.initial, c.send.wmem.max) = (buffer, buffer));
        let mut rig = by_rate_with(setup, window, ConnOptions::default());
        rig.device = Device::Completes;
        rig.fill();
        assert_eq!((rig.info().sndbuf, rig.writable_events()), (buffer, 0));
        let mut acked = rig.info().bytes_acked;
        rig.advance(RTT);
        let woken_with = loop {
            acked += MSS;
            rig.ack(acked);
            let info = rig.info();
            let (x, free) = (info.notsent_lowat, info.sndbuf.saturating_sub(info.wmem_queued));
            let third = info.wmem_queued / 2;
            let is_woken = rig.writable_events() > 0;
            assert_eq!(is_woken, free >= if by_mark { x } else { third }, "{free} free, X = {x}");
            assert!(x < third, "or both would be the same");
            if is_woken {
                break info;
            }
        };
        assert_eq!(woken_with.notsent_bytes, 0);
    }
}
