//! The mechanisms as they once were: every value of the modes does what its description says.

use crate::spec::rig::{Device, MSS, OVERHEAD, Rig, Setup, truesize};
use crate::spec::tso::{at_rate, fast, micros, millis, unpaced};
use taut_core::{
    AutocorkMode, AutosizeMode, Blocked, ConnOptions, LinkCaps, LowatMode, PacingMode, SetOption,
    StackConfig, TsqMode, WriteFlags,
};

/// A connection with `cwnd` segments of window, sending in bulk while the device keeps everything.
#[track_caller]
fn bulk(mode: TsqMode, cwnd: u32) -> Rig {
    let setup = fast().config(|config| {
        config.send.tsq = mode;
        // Today's cap, which the older rules do not use.
        config.send.limit_output_bytes = 10_000;
    });
    let mut rig = setup.open();
    rig.grow_cwnd(cwnd, micros(100));
    rig.write(1_000_000);
    rig
}

/// Off: the windows are the only limit of the bytes below TCP.
#[test]
fn tsq_off_fills_the_device_with_the_window() {
    let mut rig = bulk(TsqMode::Off, 200);
    assert_eq!(rig.blocked(), Blocked::Cwnd);
    assert_eq!(rig.info().unacked, rig.info().snd_cwnd);
    assert!(u64::from(rig.out()) > 200 * MSS);

    // Today's limit for the same at a rate of 1.25 MB/s: two packets.
    let mut rig = at_rate(&unpaced(millis(40)), 1_250_000, 200);
    rig.write(1_000_000);
    assert_eq!((rig.blocked(), rig.out()), (Blocked::SmallQueue, 2 * truesize(2 * MSS)));
}

/// Fixed: a constant cap, which two packets have to fit.
#[test]
fn tsq_fixed_caps_bytes_below_and_halves_packets() {
    for cap_bytes in [40_000, TsqMode::CAP_2012] {
        let mut rig = bulk(TsqMode::Fixed { cap_bytes }, 200);
        let most = (u64::from(cap_bytes / 2) / MSS * MSS).min(45 * MSS);
        let packets = rig.news();
        assert!(
            packets.iter().all(|packet| packet.end - packet.start <= u64::from(cap_bytes / 2)),
            "{packets:?}"
        );
        assert_eq!(packets[0].end - packets[0].start, most);
        assert_eq!(rig.blocked(), Blocked::SmallQueue);
        assert!(
            (cap_bytes..cap_bytes + truesize(most)).contains(&rig.out()),
            "{} for {cap_bytes}",
            rig.out()
        );
    }
}

/// Fixed: a cap of less than two segments leaves packets of one.
#[test]
fn tsq_fixed_leaves_a_segment_at_least() {
    let mut rig = bulk(TsqMode::Fixed { cap_bytes: 2_000 }, 200);
    assert_eq!(rig.news().iter().map(|packet| packet.end - packet.start).max(), Some(MSS));
}

/// Fixed: neither the rate nor the number of packets in flight matters. The exemption came in 2017.
#[test]
fn tsq_fixed_knows_no_rate_and_no_exemption() {
    let setup = unpaced(millis(40)).config(|config| config.send.tsq = TsqMode::Fixed { cap_bytes: 20_000 });
    let mut rig = at_rate(&setup, 1_250_000, 40);
    rig.write(500_000);
    // Two segments a packet at that rate; the sixth makes 23,520 of 19,600.
    assert_eq!((rig.blocked(), rig.out()), (Blocked::SmallQueue, 6 * truesize(2 * MSS)));
    rig.advance(millis(40));
    rig.ack_all();
    assert_eq!(rig.info().unacked, 0);
    assert_eq!(
        rig.blocked(),
        Blocked::SmallQueue,
        "nothing in flight, and nothing may leave before a completion"
    );
    rig.news();
    rig.complete(rig.held()[0]);
    assert_eq!(rig.news().len(), 1, "out is 19,600 then, less than the cap");
}

/// Off: half of the window at once, as much as the device takes, whatever the rate.
#[test]
fn autosize_off_sends_what_the_device_takes() {
    for (cwnd, expected) in [(40, 20), (200, 45)] {
        let setup = unpaced(millis(40)).config(|config| config.send.autosizing = AutosizeMode::Off);
        let mut rig = at_rate(&setup, 1_250_000, cwnd);
        let half = u64::from(rig.info().snd_cwnd / 2).min(45);
        assert!(half >= expected);
        let start = rig.written;
        rig.write(300_000);
        assert_eq!(rig.news()[0], start..start + half * MSS);
    }
}

/// Asleep, 40 segments are written at `rate`, and another maximum rate is set.
#[track_caller]
fn written_at(mode: AutosizeMode, rate: u64, then: u64) -> (Rig, u64) {
    let setup = unpaced(millis(40)).config(|config| config.send.autosizing = mode);
    let mut rig = at_rate(&setup, rate, 200);
    let start = rig.written;
    rig.device = Device::Sleeps;
    rig.write(40 * MSS);
    rig.set(SetOption::MaxPacingRate(then));
    (rig, start)
}

/// Lengths of the packets that leave now, in segments.
#[track_caller]
fn segments_that_leave(rig: &mut Rig) -> Vec<u64> {
    rig.device = Device::Completes;
    rig.poll();
    rig.news().iter().map(|packet| (packet.end - packet.start) / MSS).collect()
}

/// AtWrite: packets have the size that the rate gave when they were written.
#[test]
fn autosize_at_write_keeps_the_size_of_the_rate_when_written() {
    // Half a millisecond of 12.5 MB/s is four segments of 1448, of 1.25 MB/s two at least.
    let (mut rig, _) = written_at(AutosizeMode::AtWrite, 12_500_000, 1_250_000);
    assert_eq!(rig.info().pacing_rate, 1_250_000);
    assert_eq!(segments_that_leave(&mut rig), [4; 10]);
    rig.device = Device::Sleeps;
    rig.write(8 * MSS);
    assert_eq!(segments_that_leave(&mut rig), [2; 4], "data written now has the present size");

    // Packets that were made small stay small when the rate has risen.
    let (mut rig, start) = written_at(AutosizeMode::AtWrite, 1_250_000, 12_500_000);
    rig.device = Device::Completes;
    assert!(rig.poll_one());
    assert_eq!(rig.news(), [start..start + 2 * MSS]);
    rig.device = Device::Sleeps;
    rig.advance(millis(40));
    rig.ack(start + 2 * MSS);
    assert_eq!(rig.info().pacing_rate, 12_500_000);
    assert_eq!(segments_that_leave(&mut rig), [2; 19]);
}

/// AtTransmit: packets have the size that the rate gives when they leave.
#[test]
fn autosize_at_transmit_follows_the_rate() {
    let (mut rig, _) = written_at(AutosizeMode::AtTransmit, 12_500_000, 1_250_000);
    assert_eq!(segments_that_leave(&mut rig), [2; 20]);
}

/// TCP_NODELAY, a packet of 100 bytes acknowledged before the device has completed it, and 50 bytes written.
#[track_caller]
fn ack_before_completion(change: impl FnOnce(&mut StackConfig)) -> Rig {
    let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.config(change).open();
    rig.write(100);
    rig.advance(millis(40));
    rig.ack(100);
    rig.news();
    rig.write(50);
    rig
}

/// MayHoldHead: a late completion delays a request although nothing is in flight.
#[test]
fn autocork_may_hold_the_head_when_a_completion_is_late() {
    let mut rig = ack_before_completion(|config| config.send.autocork = AutocorkMode::MayHoldHead);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::Autocork));
    rig.advance(millis(5));
    assert_eq!(rig.news(), [], "however late");
    rig.complete(0);
    assert_eq!(rig.news(), [100..150]);
}

/// Fixed, Off, and `tcp_autocorking` off: the head is not held.
#[test]
fn autocork_otherwise_lets_the_head_go() {
    let fixed = ack_before_completion(|config| config.send.autocork = AutocorkMode::Fixed);
    let off = ack_before_completion(|config| config.send.autocork = AutocorkMode::Off);
    let switched_off = ack_before_completion(|config| {
        config.send.autocork = AutocorkMode::MayHoldHead;
        config.send.autocorking = false;
    });
    for mut rig in [fixed, off, switched_off] {
        assert_eq!(rig.news(), [100..150]);
    }
}

/// Off: nothing else is held either.
#[test]
fn autocork_off_holds_nothing() {
    for (mode, expected) in [(AutocorkMode::Off, vec![100..150]), (AutocorkMode::Fixed, vec![])] {
        let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
        let mut rig =
            Setup { options, ..Setup::default() }.config(|config| config.send.autocork = mode).open();
        rig.write(100);
        rig.news();
        rig.write(50);
        assert_eq!(rig.news(), expected, "{mode:?}");
    }
}

/// An application that writes whenever it is woken, until it is refused, over a link that cuts no segments,
/// so that a buffer is a segment. Returns how many of 30 ACKs of a segment each woke it.
#[track_caller]
fn wakeups_of_thirty_acks(mode: LowatMode) -> usize {
    const X: u64 = 200 * MSS;
    let options = ConnOptions { notsent_lowat: X as u32, ..ConnOptions::default() };
    let setup = Setup { options, caps: LinkCaps::plain(1_500), ..Setup::default() };
    let mut rig = setup.config(|config| config.send.lowat = mode).open();
    rig.device = Device::Completes;
    // The window's worth leaves at once; the rest, up to the mark, waits.
    while rig.try_write(MSS, WriteFlags::default()).is_ok() {}
    assert_eq!(rig.info().notsent_bytes, X);
    rig.writable_events();
    rig.advance(millis(40));
    let mut woken = 0;
    for segment in 1..=30 {
        rig.ack(segment * MSS);
        let events = rig.writable_events();
        if events > 0 {
            while rig.try_write(MSS, WriteFlags::default()).is_ok() {}
        }
        woken += events;
    }
    woken
}

/// WakeAtMark: every ACK makes a little room below the mark, and every ACK wakes the application. WakeAtHalf:
/// a wake-up is worth half of the mark.
#[test]
fn lowat_wakes_at_the_mark_on_every_ack_or_at_half_of_it() {
    assert_eq!(wakeups_of_thirty_acks(LowatMode::WakeAtMark), 30);
    // In slow start, each ACK lets two segments leave: 60 of the 100 between the mark and its half.
    assert_eq!(wakeups_of_thirty_acks(LowatMode::WakeAtHalf), 0);
}

/// The answer of poll follows the same rule; a write is accepted alike in both modes.
#[test]
fn lowat_mark_decides_what_poll_says() {
    for (mode, unsent, writable) in [
        (LowatMode::WakeAtMark, 19_999, true),
        (LowatMode::WakeAtMark, 20_000, false),
        (LowatMode::WakeAtHalf, 9_999, true),
        (LowatMode::WakeAtHalf, 10_000, false),
    ] {
        let options = ConnOptions { notsent_lowat: 20_000, ..ConnOptions::default() };
        let mut rig = Setup { options, ..Setup::default() }.config(|config| config.send.lowat = mode).open();
        rig.device = Device::Sleeps;
        rig.write_eor(unsent);
        assert_eq!(rig.info().wmem_queued, unsent as u32 + OVERHEAD);
        assert_eq!(rig.writable(), writable, "{mode:?}, {unsent} unsent");
        assert_eq!(rig.try_write(1, WriteFlags::default()).is_ok(), unsent < 20_000);
    }
}

/// What spaces the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spaced {
    Nobody,
    /// The gate is shut until the departure.
    Stack,
    /// Packets leave the stack at once and carry later departures.
    Link,
}

/// Ten segments are sent and more are written: a flow that is paced has a gap after the tenth.
#[track_caller]
fn who_spaces(mode: PacingMode, link_paces: bool, max_rate: bool) -> Spaced {
    let caps = LinkCaps { paces: link_paces, ..LinkCaps::offloading(1_500) };
    let mut rig = Setup { caps, ..Setup::default() }.config(|config| config.send.pacing = mode).open();
    if max_rate {
        rig.limit_rate(100_000);
    }
    rig.device = Device::Completes;
    rig.write(40 * MSS);
    let gate = rig.blocked();
    if let Blocked::Pacing { until } = gate {
        assert!(until > rig.now);
        assert!(rig.sent.iter().all(|sent| sent.departure == sent.at));
        return Spaced::Stack;
    }
    assert_eq!(gate, Blocked::Cwnd);
    rig.ack(2 * MSS);
    let last = rig.sent.last().expect("the window moved");
    assert!(last.bytes.end > 10 * MSS);
    if last.departure > last.at { Spaced::Link } else { Spaced::Nobody }
}

/// Off: nothing. Internal: the stack, for flows with a maximum rate. Delegated: the link. Auto: the link if
/// it can, otherwise the stack, for flows with a maximum rate.
#[test]
fn pacing_modes_say_who_spaces() {
    let table = [
        (PacingMode::Off, [Spaced::Nobody; 4]),
        (PacingMode::Internal, [Spaced::Nobody, Spaced::Stack, Spaced::Nobody, Spaced::Stack]),
        (PacingMode::Delegated, [Spaced::Link; 4]),
        (PacingMode::Auto, [Spaced::Nobody, Spaced::Stack, Spaced::Link, Spaced::Link]),
    ];
    for (mode, expected) in table {
        let columns = [(false, false), (false, true), (true, false), (true, true)];
        let got = columns.map(|(link_paces, max_rate)| who_spaces(mode, link_paces, max_rate));
        assert_eq!(got, expected, "{mode:?}: plain link, with maximum rate; pacing link, with maximum rate");
    }
}

/// A setting changed by name holds at once for existing connections.
#[test]
fn settings_by_name_hold_at_once() {
    let options = ConnOptions { nodelay: true, notsent_lowat: 20_000, ..ConnOptions::default() };
    let mut rig = Setup { options, ..Setup::default() }.open();
    let set = |rig: &mut Rig, name, value| rig.stack.set_sysctl(name, value).unwrap();
    rig.write(100);
    rig.advance(millis(40));
    rig.ack(100);
    rig.news();
    set(&mut rig, "taut.autocork", "may-hold-head");
    rig.write(50);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::Autocork));
    rig.complete_all();
    assert_eq!(rig.news(), [100..150]);
    set(&mut rig, "taut.autocork", "off");
    rig.write(10);
    assert_eq!(rig.news(), [150..160]);

    rig.device = Device::Sleeps;
    rig.write_eor(15_000);
    assert!(!rig.writable());
    set(&mut rig, "taut.lowat", "wake-at-mark");
    assert!(rig.writable());
}
