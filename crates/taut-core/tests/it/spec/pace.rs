//! Pacing: PACE-1 … PACE-23.
//!
//! After a data packet of `payload` bytes, the next one departs `payload / rate` later, less at most half of
//! that for lateness: `d = payload · 10⁹ / rate; d −= min(d / 2, late)`. Until the tenth segment of a
//! connection has been sent, nothing is spaced.

use taut_core::{Algorithm, Blocked, ConnOptions, Duration, Instant, LinkCaps, PacingMode, SetOption};

use crate::spec::rig::{Ack, Device, MSS, Rig, Setup};

const RATE: u64 = 1_250_000;
/// 1448 · 10⁹ / 1,250,000.
const GAP: Duration = Duration::from_nanos(1_158_400);

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Single segments at 1.25 MB/s over a path of 10 ms; completions come at once.
fn plain() -> Rig {
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: millis(10), ..Setup::default() };
    let mut rig = setup.open();
    rig.device = Device::Completes;
    rig.limit_rate(RATE);
    rig
}

/// As [`plain`], with the ten free segments sent and acknowledged: the next one departs one gap after the
/// tenth. Returns when that is.
fn past_the_free_ones() -> (Rig, Instant) {
    let mut rig = plain();
    rig.write(10 * MSS);
    assert_eq!(rig.news().len(), 10);
    let next = rig.now + GAP;
    rig.advance(micros(500));
    rig.ack_all();
    (rig, next)
}

/// Advances to that moment; timers fire on the way.
fn advance_to(rig: &mut Rig, at: Instant) {
    assert!(at >= rig.now);
    rig.advance(at.since(rig.now));
}

/// The times at which the data packets from `first` on left.
fn times(rig: &Rig, first: usize) -> Vec<Instant> {
    rig.sent[first..].iter().filter(|sent| sent.len() > 0).map(|sent| sent.at).collect()
}

/// CUBIC alone does not pace; a maximum rate does.
#[test]
fn pace_01_only_a_maximum_rate_switches_pacing_on() {
    let options = ConnOptions { congestion: Some(Algorithm::cubic()), ..ConnOptions::default() };
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: millis(10), options, ..Setup::default() };
    let mut rig = setup.open();
    rig.device = Device::Completes;
    rig.write(40 * MSS);
    rig.advance(millis(10));
    rig.ack_all();
    // Twenty at one moment: the rate is known (see PACE-10), and nothing is spaced.
    assert_eq!(rig.news().len(), 30);
    assert!(rig.sent[10..].iter().all(|sent| sent.at == rig.now && sent.departure <= sent.at));
    assert_eq!(rig.count("TautPacingBlocked"), 0);
    rig.advance(millis(10));
    rig.ack_all();
    rig.news();

    assert_eq!(rig.info().bytes_sent, 40 * MSS);
    rig.limit_rate(RATE);
    let (start, first) = (rig.now, rig.sent.len());
    rig.write(2 * MSS);
    rig.advance(millis(5));
    assert_eq!(times(&rig, first), [start, start + GAP]);
    assert_eq!(rig.count("TautPacingBlocked"), 1);
}

/// Once something below honours departure times, no timer is armed: everything is handed down at once,
/// stamped.
#[test]
fn pace_02_a_pacing_link_takes_over() {
    let (mut rig, next) = past_the_free_ones();
    rig.write(3 * MSS);
    assert!(rig.news().is_empty());
    assert_eq!(rig.blocked(), Blocked::Pacing { until: next });
    rig.stack.set_link_paces(true);
    rig.write(MSS);
    assert_eq!(rig.news().len(), 4);
    let stamps: Vec<_> = rig.sent[10..].iter().map(|sent| sent.departure).collect();
    assert_eq!(stamps, [next, next + GAP, next + GAP * 2, next + GAP * 3]);
    assert_eq!(rig.blocked(), Blocked::NoData);

    // A link that always did: the first timer is the tail loss probe, 2 · srtt + 2 ms later.
    let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
    let mut rig = Setup { caps, rtt: millis(10), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.limit_rate(RATE);
    rig.write(10 * MSS);
    assert_eq!(rig.news().len(), 10);
    let (timer, _) = rig.stack.poll_timeout().unwrap();
    assert!(timer >= rig.now + millis(22));
    assert_eq!(rig.count("TautPacingBlocked"), 0);
}

/// A link that paces needs no thread that wakes up in time: the stamp of a packet that it takes 5 ms late is
/// followed by half a gap (PACE-4), and no burst.
#[test]
fn pace_02_lateness_of_a_thread_is_not_made_good_there() {
    let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
    let mut rig = Setup { caps, rtt: millis(10), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.limit_rate(RATE);
    rig.write(10 * MSS);
    rig.advance(millis(20));
    rig.ack_all();
    rig.device = Device::Sleeps;
    rig.write(4 * MSS);
    rig.device = Device::Completes;
    assert!(rig.poll_one());
    let late = rig.now + GAP + millis(5);
    rig.device = Device::Sleeps;
    rig.advance(late.since(rig.now));
    rig.device = Device::Completes;
    rig.poll();
    let stamps: Vec<_> = rig.sent[11..].iter().map(|sent| sent.departure).collect();
    assert_eq!(stamps, [late, late + GAP / 2, late + GAP / 2 + GAP]);
}

/// A retransmission that is stamped ahead of time is not mistaken for its original when its ACK comes: the
/// loss was real, and the reduction of the window stays.
#[test]
fn pace_02_a_stamped_retransmission_is_no_original() {
    let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
    let mut rig = Setup { caps, rtt: millis(10), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.limit_rate(RATE);
    rig.write(10 * MSS);
    rig.advance(millis(10));
    rig.ack_all();
    rig.write(20 * MSS);
    assert_eq!(rig.sent.len(), 30);
    // Four of these have departed, and the first of them is lost.
    let fourth = rig.sent[13].departure;
    advance_to(&mut rig, fourth + millis(10));
    for upto in [12, 13, 14] {
        rig.ack_with(&Ack::of(10 * MSS).sack(&[11 * MSS..upto * MSS]));
    }
    let again = &rig.sent[30];
    assert_eq!(again.bytes, 10 * MSS..11 * MSS);
    let (departure, tsval) = (again.departure, again.tsval);
    assert!(departure > rig.now + millis(2), "behind the others");
    let reduced = rig.info().snd_ssthresh;
    assert!(reduced < 20);
    advance_to(&mut rig, departure + millis(10));
    rig.ack_with(&Ack::of(30 * MSS).echo(tsval));
    assert_eq!(rig.info().snd_ssthresh, reduced);
}

/// The gap counts payload, without headers; for a super-packet, all of its payload.
#[test]
fn pace_03_gap_counts_payload_only() {
    let (mut rig, next) = past_the_free_ones();
    rig.set(SetOption::Nodelay(true));
    for len in [MSS, 100, 1] {
        rig.write_eor(len);
    }
    rig.advance(millis(5));
    // 100 B at 1.25 MB/s are 80 µs.
    assert_eq!(times(&rig, 10), [next, next + GAP, next + GAP + micros(80)]);
}

/// Lateness shortens one gap, by at most half: 1,158,400 ns on time, 858,400 when 300 µs late, 579,200 from
/// 579,200 on.
#[test]
fn pace_04_lateness_credit() {
    for (late_ns, gap_ns) in
        [(0, 1_158_400), (300_000, 858_400), (579_200, 579_200), (579_201, 579_200), (5_000_000, 579_200)]
    {
        let (mut rig, next) = past_the_free_ones();
        let late = next + Duration::from_nanos(late_ns);
        advance_to(&mut rig, late);
        rig.write(3 * MSS);
        assert_eq!(times(&rig, 10), [late], "late by {late_ns} ns");
        rig.advance(millis(4));
        let second = late + Duration::from_nanos(gap_ns);
        // Credit never accumulates: the one after that has its whole gap.
        assert_eq!(times(&rig, 10), [late, second, second + GAP], "late by {late_ns} ns");
    }
}

/// Idle for 10 s, then three writes of a segment: the first leaves at once, after half a gap the other two as
/// one packet.
#[test]
fn pace_05_after_idleness() {
    let mut rig = Setup { rtt: millis(10), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.limit_rate(RATE);
    rig.write(20 * MSS);
    for _ in 0..10 {
        rig.advance(millis(10));
        rig.ack_all();
    }
    assert_eq!(rig.info().bytes_acked, 20 * MSS);
    rig.advance(Duration::from_secs(10));
    rig.news();
    let (start, first) = (rig.now, rig.sent.len());
    for _ in 0..3 {
        rig.write(MSS);
    }
    assert_eq!(rig.news(), [20 * MSS..21 * MSS]);
    rig.advance(millis(9));
    assert_eq!(rig.news(), [21 * MSS..23 * MSS]);
    assert_eq!(times(&rig, first), [start, start + GAP / 2]);
}

/// 40 segments at 100 kB/s, cwnd 10, on a path so short that packets are large: 5 + 5 segments at once, the
/// next burst after the time of 5 segments (72.4 ms), the one after it 10 segments' time later.
#[test]
fn pace_06_initial_window_and_the_bursts_after_it() {
    let mut rig = Setup { rtt: millis(1), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.limit_rate(100_000);
    let start = rig.now;
    rig.write(40 * MSS);
    assert_eq!(rig.news(), [0..5 * MSS, 5 * MSS..10 * MSS]);
    rig.advance(millis(1));
    rig.ack_all();
    assert_eq!(rig.info().snd_cwnd, 20, "the window is no limit");
    rig.advance(millis(220));
    assert_eq!(rig.news(), [10 * MSS..20 * MSS, 20 * MSS..30 * MSS], "half a window each");
    let second = start + micros(72_400);
    assert_eq!(times(&rig, 2), [second, second + micros(144_800)]);
}

/// A retransmission waits for its time and takes one; the head after a timeout does not wait.
#[test]
fn pace_07_retransmissions_are_paced_but_not_the_head_after_a_timeout() {
    let (mut rig, next) = past_the_free_ones();
    rig.write(10 * MSS);
    let ten = times(&rig, 10);
    assert!(ten.is_empty());
    advance_to(&mut rig, next + GAP * 9);
    assert_eq!(times(&rig, 10).len(), 10);
    let lost = 10 * MSS;
    // The first of these ten is lost; the ACKs of three others reveal that, within the gap after the last.
    for upto in [12, 13, 14] {
        rig.ack_with(&Ack::of(lost).sack(&[lost + MSS..upto * MSS]));
    }
    assert_eq!(rig.info().lost, 1);
    assert_eq!(times(&rig, 20), [], "too early");
    assert_eq!(rig.blocked(), Blocked::Pacing { until: next + GAP * 10 });
    rig.write(MSS);
    rig.ack_with(&Ack::of(lost).sack(&[lost + MSS..20 * MSS]));
    rig.advance(millis(5));
    assert_eq!(times(&rig, 20), [next + GAP * 10, next + GAP * 11]);
    assert_eq!(rig.sent[20].bytes, lost..lost + MSS);
    assert_eq!(rig.sent[21].bytes, 20 * MSS..21 * MSS);

    // 14,480 B/s: a segment takes 100 ms. Without tail loss probes, and without F-RTO, which would send new
    // data.
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: millis(10), ..Setup::default() };
    let mut rig = setup
        .config(|config| {
            config.recovery.tail_loss_probes = false;
            config.recovery.frto = false;
        })
        .open();
    rig.device = Device::Completes;
    rig.limit_rate(14_480);
    let start = rig.now;
    rig.write(15 * MSS);
    assert_eq!(rig.news().len(), 10);
    rig.advance(millis(10));
    rig.ack_all();
    // Segment 10 leaves at 100 ms, 11 at 200, 12 at 300; RTO = srtt + 200 ms.
    rig.advance(millis(299));
    assert_eq!(times(&rig, 10), [100, 200, 300].map(|ms| start + millis(ms)));
    assert_eq!(rig.news().len(), 3);
    assert!(rig.now < start + millis(310));
    rig.advance(millis(1));
    assert_eq!(rig.news(), [10 * MSS..11 * MSS], "the head, though it is not 400 ms yet");
    // It still moved the departure: the other lost segments wait until 500 ms.
    rig.advance(millis(10));
    rig.ack(11 * MSS);
    assert!(rig.news().is_empty());
    assert_eq!(rig.blocked(), Blocked::Pacing { until: start + millis(500) });
    rig.advance(millis(180));
    assert_eq!(rig.news(), [11 * MSS..12 * MSS]);
    assert_eq!(rig.sent.last().unwrap().at, start + millis(500));
}

/// A pure ACK leaves now although the next data may not, and moves no departure.
#[test]
fn pace_08_acks_are_not_paced() {
    let (mut rig, next) = past_the_free_ones();
    rig.write(2 * MSS);
    assert_eq!(rig.blocked(), Blocked::Pacing { until: next });
    rig.ack_with(&Ack::of(10 * MSS).payload(1_448));
    rig.ack_with(&Ack::of(10 * MSS).payload(1_448));
    let acks = &rig.sent[10..];
    assert!(!acks.is_empty() && acks.iter().all(|ack| ack.len() == 0 && ack.departure <= rig.now));
    rig.advance(millis(3));
    assert_eq!(times(&rig, 10), [next, next + GAP]);
}

/// The timer fires while the user has the socket. The nearest case here: firing sends nothing, and neither
/// does a command; the due packet leaves at the next poll for packets, once.
#[test]
fn pace_09_firing_sends_nothing_by_itself() {
    let (mut rig, next) = past_the_free_ones();
    rig.write(2 * MSS);
    rig.device = Device::Sleeps;
    advance_to(&mut rig, next);
    rig.write(100);
    assert!(rig.news().is_empty());
    rig.device = Device::Completes;
    rig.poll();
    assert_eq!(times(&rig, 10), [next]);
}

/// rate = mss · max(cwnd, packets out) · ratio / srtt; 200 % while cwnd < ssthresh / 2, else 120 %.
#[test]
fn pace_10_rate() {
    fn expected(rig: &mut Rig, percent: u64) -> u64 {
        let info = rig.info();
        let segments = u64::from(info.snd_cwnd.max(info.unacked));
        MSS * segments * percent * 10_000_000 / info.rtt.unwrap().as_nanos()
    }
    let options = ConnOptions { congestion: Some(Algorithm::reno()), ..ConnOptions::default() };
    let setup = Setup { caps: LinkCaps::plain(1_500), options, ..Setup::default() };
    let mut rig = setup.config(|config| config.congestion.slow_start_after_idle = false).open();
    rig.device = Device::Completes;
    // cwnd 10, ssthresh infinite, 40 ms.
    assert_eq!(rig.info().pacing_rate, 724_000);
    rig.grow_cwnd(40, millis(40));
    assert_eq!(rig.info().pacing_rate, expected(&mut rig, 200));
    // A timeout: ssthresh = cwnd / 2, and slow start from one segment.
    let cwnd = u64::from(rig.info().snd_cwnd);
    rig.write(cwnd * MSS);
    rig.advance(Duration::from_secs(1));
    let ssthresh = rig.info().snd_ssthresh;
    assert_eq!(u64::from(ssthresh), cwnd / 2);
    let mut at_half = 0;
    while rig.info().snd_cwnd < ssthresh {
        rig.advance(millis(40));
        let next = rig.info().bytes_acked + MSS;
        rig.ack(next);
        let percent = if rig.info().snd_cwnd < ssthresh / 2 { 200 } else { 120 };
        at_half += u32::from(rig.info().snd_cwnd == ssthresh / 2);
        assert_eq!(rig.info().pacing_rate, expected(&mut rig, percent), "{:#?}", rig.info());
    }
    assert_eq!(at_half, 1, "the border was visited");
    // 434,400: cwnd 10, no longer below half of the threshold, 40 ms.
    assert_eq!(MSS * 10 * 120 * 10_000_000 / 40_000_000, 434_400);
}

/// A maximum below the rate applies at once, a higher one with the next ACK.
#[test]
fn pace_11_a_lower_maximum_applies_at_once() {
    let mut rig = Setup::default().open();
    rig.device = Device::Completes;
    assert_eq!(rig.info().pacing_rate, 724_000);
    rig.set(SetOption::MaxPacingRate(100_000));
    assert_eq!(rig.info().pacing_rate, 100_000);
    rig.set(SetOption::MaxPacingRate(200_000));
    assert_eq!(rig.info().pacing_rate, 100_000);
    rig.write(100);
    rig.advance(millis(40));
    rig.ack_all();
    assert_eq!(rig.info().pacing_rate, 200_000);
}

/// What spaces a flow of 1.25 MB/s, by mode, by link and by whether a maximum rate is set: how many of
/// 15 segments leave at once, whether the last of these departs later, and whether a timer waits for more.
#[test]
fn pace_modes() {
    const ALL: usize = 15;
    // (mode, the link paces, a maximum is set) → (at once, stamped ahead, waits)
    let cases = [
        (PacingMode::Off, true, true, (ALL, false, false)),
        (PacingMode::Internal, true, true, (1, false, true)),
        (PacingMode::Internal, true, false, (ALL, false, false)),
        (PacingMode::Delegated, false, false, (ALL, true, false)),
        (PacingMode::Auto, false, false, (ALL, false, false)),
        (PacingMode::Auto, false, true, (1, false, true)),
        (PacingMode::Auto, true, false, (ALL, true, false)),
        (PacingMode::Auto, true, true, (ALL, true, false)),
    ];
    for (mode, paces, limited, expected) in cases {
        let caps = LinkCaps { paces, ..LinkCaps::plain(1_500) };
        let setup = Setup { caps, rtt: millis(10), ..Setup::default() };
        let mut rig = setup.config(|config| config.send.pacing = mode).open();
        rig.device = Device::Completes;
        if limited {
            rig.limit_rate(RATE);
        }
        rig.write(10 * MSS);
        rig.advance(millis(10));
        rig.ack_all();
        rig.news();
        rig.write(ALL as u64 * MSS);
        let count = rig.news().len();
        let ahead = rig.sent.last().unwrap().departure > rig.now;
        let waits = matches!(rig.blocked(), Blocked::Pacing { .. });
        assert_eq!((count, ahead, waits), expected, "{mode:?}, link paces {paces}, maximum {limited}");
    }
}

/// Lets the pacing timer fire `late` after it is due, and says how many bytes left then.
fn fire_late(rig: &mut Rig, late: Duration) -> u64 {
    let (due, _) = rig.stack.poll_timeout().expect("the connection waits");
    rig.sleep_until(due + late);
    rig.news().iter().map(|bytes| bytes.end - bytes.start).sum()
}

/// A connection whose window is no limit, and its rate is.
fn limited_to(rate: u64) -> Rig {
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: millis(10), ..Setup::default() };
    let mut rig = setup.open();
    rig.grow_cwnd(400, millis(10));
    rig.device = Device::Completes;
    rig.limit_rate(rate);
    rig
}

/// The timer is late by 0 to 10 ms each time, at rates of which that is one packet to a hundred; the device
/// and the peer answer at once.
#[test]
fn pace_12_a_late_timer_costs_no_rate() {
    for rate in [125_000, 1_250_000, 12_500_000] {
        let mut rig = limited_to(rate);
        rig.write(20 * MSS);
        let (start, mut bytes, mut lateness) = (rig.now, 0, 0);
        rig.news();
        while rig.now.since(start) < Duration::from_secs(10) {
            // A cheap sequence of lateness, spread over 0 to 10 ms.
            lateness = (lateness + 6_180) % 10_000;
            bytes += fire_late(&mut rig, micros(lateness));
            // No burst is larger than what the rate allows until now, and a packet.
            let allowed = rig.now.since(start).as_nanos() * rate / 1_000_000_000;
            assert!(bytes <= allowed + 2 * MSS, "{bytes} of {allowed} bytes at {rate}");
            rig.ack_all();
            let wanted = rig.info().bytes_acked + 20 * MSS + rate / 20;
            rig.write(wanted - rig.written);
        }
        let target = rate as f64 * rig.now.since(start).as_nanos() as f64 / 1e9;
        let share = bytes as f64 / target;
        assert!((0.99..=1.01).contains(&share), "{share} of {rate} bytes/s");
    }
}

/// Packets of one segment. The timer is late each time by the same 0 to 10 ms: what leaves then is what the
/// rate allows in that time, and the packet that was due. Once the window is open, an exact timer sends one
/// packet a gap.
#[test]
fn pace_17_a_burst_is_what_lateness_forces() {
    for rate in [125_000, 1_250_000, 12_500_000] {
        for late_ms in [0, 1, 5, 10] {
            let mut rig = limited_to(rate);
            rig.write(20 * MSS + rate / 20);
            let (start, mut bytes) = (rig.now, 0);
            rig.news();
            let (mut largest, mut latest) = (0, None);
            while rig.now.since(start) < Duration::from_secs(1) {
                let burst = fire_late(&mut rig, millis(late_ms));
                bytes += burst;
                largest = burst.max(largest);
                if late_ms == 0 && burst > 0 {
                    let gap = Duration::from_nanos(MSS * 1_000_000_000 / rate);
                    let expected = latest.replace(rig.now).map_or(rig.now, |latest| latest + gap);
                    assert_eq!((rig.now, burst), (expected, MSS), "at {rate} bytes/s");
                }
                rig.ack_all();
                let wanted = rig.info().bytes_acked + 20 * MSS + rate / 20;
                rig.write(wanted - rig.written);
            }
            let most = rate * late_ms / 1_000 + MSS;
            assert!(largest <= most, "{largest} bytes at once of {most}: {rate} bytes/s, {late_ms} ms late");
            let share = bytes as f64 * 1e9 / (rate as f64 * rig.now.since(start).as_nanos() as f64);
            assert!((0.99..=1.01).contains(&share), "{share} of {rate} bytes/s, {late_ms} ms late");
        }
    }
}

#[test]
fn pace_13_a_stall_is_not_made_good() {
    let mut rig = limited_to(RATE);
    rig.write(200 * MSS);
    rig.news();
    // 10 ms at 1.25 MB/s are 8.6 packets: the one that is due, and eight of those gaps until the clock is
    // ahead.
    assert_eq!(fire_late(&mut rig, millis(500)), 9 * MSS);
    assert_eq!(fire_late(&mut rig, micros(0)), MSS);
}

#[test]
fn pace_14_only_time_that_was_waited_for_is_made_good() {
    let (mut rig, _) = past_the_free_ones();
    rig.write(2 * MSS);
    rig.news();
    assert_eq!(fire_late(&mut rig, millis(5)), 2 * MSS, "both, and then there is no data");
    rig.ack_all();
    rig.advance(Duration::from_secs(1));
    let (start, first) = (rig.now, rig.sent.len());
    rig.write(MSS);
    rig.write(MSS);
    rig.advance(millis(5));
    assert_eq!(times(&rig, first), [start, start + GAP / 2]);
}

/// The timer is 0 to 1 ms late, and after each packet the thread has no processor for 0.2 ms, after every
/// fourth for 3 ms: 0.9 ms in the mean, and the gap is 1.16 ms, so the rate can be kept.
#[test]
fn pace_19_time_lost_between_two_packets_costs_no_rate() {
    let mut rig = limited_to(RATE);
    rig.write(100 * MSS);
    let (start, mut bytes, mut spread) = (rig.now, 0, 0);
    rig.news();
    while rig.now.since(start) < Duration::from_secs(10) {
        spread = (spread + 6_180) % 10_000;
        let due = rig.stack.poll_timeout().expect("the connection waits").0;
        rig.device = Device::Sleeps;
        rig.sleep_until(due.max(rig.now) + micros(spread / 10));
        rig.device = Device::Completes;
        while rig.poll_one() {
            rig.now += if rig.sent.len().is_multiple_of(4) { millis(3) } else { micros(200) };
        }
        bytes += rig.news().iter().map(|bytes| bytes.end - bytes.start).sum::<u64>();
        let allowed = rig.now.since(start).as_nanos() * RATE / 1_000_000_000;
        assert!(bytes <= allowed + 2 * MSS, "{bytes} of {allowed} bytes");
        rig.ack_all();
        let wanted = rig.info().bytes_acked + 100 * MSS;
        rig.write(wanted - rig.written);
    }
    let share = bytes as f64 * 1e9 / (RATE as f64 * rig.now.since(start).as_nanos() as f64);
    assert!((0.99..=1.01).contains(&share), "{share} of the rate");
}

/// After idleness the first packet leaves at once, the next half a gap later (PACE-5). The thread has no
/// processor for 5 ms: 0.58, 1.74, 2.90 and 4.05 ms have come by then.
#[test]
fn pace_19_also_behind_the_first_packet() {
    let (mut rig, _) = past_the_free_ones();
    rig.advance(Duration::from_secs(1));
    rig.news();
    rig.device = Device::Sleeps;
    rig.write(10 * MSS);
    rig.device = Device::Completes;
    assert!(rig.poll_one());
    rig.now += millis(5);
    rig.poll();
    assert_eq!(rig.news().len(), 1 + 4);
}

/// The timer is exact. Then a small queue holds the packet for 8 ms, or the device refuses it for as long.
#[test]
fn pace_20_time_in_which_the_link_holds_is_not_made_good() {
    // Two packets wait in the device: the third is held.
    let mut rig = limited_to(RATE);
    rig.device = Device::Keeps;
    rig.write(20 * MSS);
    rig.advance(GAP);
    assert_eq!(rig.held().len(), 2);
    rig.advance(GAP);
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    rig.advance(millis(8));
    rig.device = Device::Completes;
    let first = rig.sent.len();
    rig.complete_all();
    let now = rig.now;
    rig.advance(GAP * 2);
    assert_eq!(times(&rig, first), [now, now + GAP / 2, now + GAP / 2 + GAP]);

    let mut rig = limited_to(RATE);
    rig.write(20 * MSS);
    rig.device = Device::Refuses;
    rig.advance(GAP);
    rig.device = Device::Sleeps;
    rig.advance(millis(8));
    rig.device = Device::Completes;
    let (first, now) = (rig.sent.len(), rig.now);
    rig.poll();
    rig.advance(GAP * 2);
    assert_eq!(times(&rig, first), [now, now + GAP / 2, now + GAP / 2 + GAP]);
}

/// What an earlier late timer was worth is forgotten once it was made good, also if no timer fires again:
/// writes at the moments of departure take the next packets along.
#[test]
fn pace_20_an_earlier_late_timer_is_worth_nothing() {
    let mut rig = limited_to(RATE);
    rig.write(50 * MSS);
    rig.news();
    assert_eq!(fire_late(&mut rig, millis(5)), 5 * MSS);
    rig.device = Device::Keeps;
    for _ in 0..3 {
        let Blocked::Pacing { until } = rig.blocked() else { panic!("{:?}", rig.blocked()) };
        rig.now = until;
        rig.write(MSS);
    }
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    rig.now += millis(8);
    rig.device = Device::Completes;
    let (first, now) = (rig.sent.len(), rig.now);
    rig.complete_all();
    rig.advance(GAP * 2);
    assert_eq!(times(&rig, first), [now, now + GAP / 2, now + GAP / 2 + GAP]);
}

/// The timer is 5 ms late, so five packets are due. The small queue lets two through at a time, each pair
/// takes 0.2 ms in the device: the sixth departs at its time.
#[test]
fn pace_23_a_small_queue_between_late_packets_costs_no_rate() {
    let mut rig = limited_to(RATE);
    rig.write(50 * MSS);
    rig.news();
    let (due, _) = rig.stack.poll_timeout().expect("the connection waits");
    let first = rig.sent.len();
    rig.device = Device::Keeps;
    rig.sleep_until(due + millis(5));
    for sent in [2, 4] {
        assert_eq!(times(&rig, first).len(), sent);
        assert_eq!(rig.blocked(), Blocked::SmallQueue);
        rig.advance(micros(200));
        rig.complete_all();
    }
    let late = due + millis(5);
    let expected = [late, late, late + micros(200), late + micros(200), late + micros(400)];
    assert_eq!(times(&rig, first), expected);
    assert_eq!(rig.blocked(), Blocked::Pacing { until: due + GAP * 5 });
}

/// Two packets of 250 kB/s take 11.6 ms, so 12: after a stall, the one that was due leaves, and those two, as
/// `fq` would have had two that are due, and got another.
#[test]
fn pace_24_a_slow_flow_has_two_packets_after_a_stall() {
    let (rate, gap) = (RATE / 5, GAP * 5);
    for (late_ms, packets, lost) in
        [(5, 1, millis(0)), (12, 3, millis(0)), (16, 3, millis(4)), (500, 3, millis(488))]
    {
        let mut rig = limited_to(rate);
        rig.write(200 * MSS);
        rig.news();
        let (due, _) = rig.stack.poll_timeout().expect("the connection waits");
        assert_eq!(fire_late(&mut rig, millis(late_ms)), packets * MSS, "{late_ms} ms late");
        assert_eq!(rig.blocked(), Blocked::Pacing { until: due + gap * packets + lost });
        assert_eq!(rig.stack.counters().pacing_lost_ns, lost.as_nanos());
    }
}

/// A thread that has no processor for 90 ms between two packets of a burst has stalled as one whose timer is
/// so late (PACE-16): 10 ms are made good, and the flight is no measurement.
#[test]
fn pace_21_a_stall_between_two_packets() {
    let near = |rate: u64, expected: u64| rate.abs_diff(expected) * 100 <= expected;
    let mut rig = limited_to(RATE);
    rig.write(200 * MSS);
    rig.news();
    for _ in 0..9 {
        fire_late(&mut rig, micros(0));
    }
    steady(&mut rig, 30);
    assert!(near(rig.info().delivery_rate, RATE), "{}", rig.info().delivery_rate);

    let (before, count) = (rig.sent.last().unwrap().bytes.end, rig.sent.len());
    let due = rig.stack.poll_timeout().expect("the connection waits").0;
    rig.device = Device::Sleeps;
    rig.sleep_until(due + millis(3));
    rig.device = Device::Completes;
    assert!(rig.poll_one(), "three are due");
    rig.now += millis(90);
    rig.poll();
    // 10 ms at 1.25 MB/s are 8.6 packets, as in PACE-13.
    assert_eq!(rig.sent.len() - count, 1 + 9);
    rig.ack(before);
    assert!(near(rig.info().delivery_rate, RATE), "before: {}", rig.info().delivery_rate);
    rig.advance(GAP * 5);
    rig.ack(before + 2 * MSS);
    assert!(near(rig.info().delivery_rate, RATE), "after: {}", rig.info().delivery_rate);
}

/// The timer is 8 ms late, and two packets of the seven that are due are there: 8 - 2 · 1.16 = 5.7 ms are
/// left. More comes 3 ms later: five packets take 5.8 ms. After more than 10 ms nothing is left but half a
/// gap.
#[test]
fn pace_22_a_writer_that_is_late_too() {
    for (later_ms, leave) in [(3, 5), (9, 5), (16, 1), (1_000, 1)] {
        let (mut rig, _) = past_the_free_ones();
        rig.write(2 * MSS);
        rig.news();
        assert_eq!(fire_late(&mut rig, millis(8)), 2 * MSS);
        rig.ack_all();
        rig.advance(millis(later_ms));
        rig.write(20 * MSS);
        assert_eq!(rig.news().len(), leave, "{later_ms} ms later");
    }
}

/// Timers that are 0, 101 µs, 2 ms, 10 ms, 11 ms and 60 ms late: each counts in every counter whose bound it
/// exceeds.
#[test]
fn pace_15_lateness_is_counted() {
    let mut rig = limited_to(RATE);
    rig.write(200 * MSS);
    rig.news();
    for late_us in [0, 101, 2_000, 10_000, 11_000, 60_000] {
        fire_late(&mut rig, micros(late_us));
    }
    let names = ["TautPacingLate100us", "TautPacingLate1ms", "TautPacingLate10ms", "TautPacingLate50ms"];
    assert_eq!(names.map(|name| rig.count(name)), [5, 4, 2, 1]);
    assert_eq!(rig.count("TautPacingLateNs"), 83_101_000);
    assert_eq!(rig.count("TautPacingLostNs"), 51_000_000, "1 ms of one and 50 ms of the other");
    let (now, id) = (rig.now, rig.id);
    let all = rig.stack.report(now).lateness;
    assert_eq!((all.most, all.times.count()), (millis(60), 6));
    // Two of six are below 128 µs, and all below 65.536 ms.
    assert_eq!(all.times.quantile_below(1.0 / 3.0), Some(micros(128)));
    assert_eq!(all.times.quantile_below(1.0), Some(micros(65_536)));
    assert_eq!(rig.stack.conn(id).unwrap().report(now).lateness.most, millis(60));
}

/// Lets the pacing timer fire in time `rounds` times, with nine packets in flight: each departure brings the
/// ACK of the packet before those.
fn steady(rig: &mut Rig, rounds: u64) {
    for _ in 0..rounds {
        assert_eq!(fire_late(rig, micros(0)), MSS);
        let sent = rig.sent.last().unwrap().bytes.end;
        rig.ack(sent - 9 * MSS);
    }
}

/// With ten packets in flight, an ACK of them that is read 90 ms late measures them in two gaps and 90 ms:
/// 157 kB/s. The packet that leaves then measures as many in six gaps and 90 ms. Neither counts; when both
/// flights are delivered, a lower rate counts at once.
#[test]
fn pace_16_a_stall_does_not_lower_the_delivery_rate() {
    let near = |rate: u64, expected: u64| rate.abs_diff(expected) * 100 <= expected;
    let mut rig = limited_to(RATE);
    rig.write(200 * MSS);
    rig.news();
    let first = rig.info().bytes_acked;
    for _ in 0..9 {
        fire_late(&mut rig, micros(0));
    }
    assert_eq!(rig.info().bytes_acked, first);
    steady(&mut rig, 30);
    assert!(near(rig.info().delivery_rate, RATE), "{}", rig.info().delivery_rate);

    let before = rig.sent.last().unwrap().bytes.end;
    assert_eq!(fire_late(&mut rig, millis(90)), 9 * MSS, "10 ms of it are made good");
    rig.ack(before);
    assert!(near(rig.info().delivery_rate, RATE), "before: {}", rig.info().delivery_rate);
    rig.advance(GAP * 5);
    rig.ack(before + MSS);
    assert!(near(rig.info().delivery_rate, RATE), "after: {}", rig.info().delivery_rate);
    rig.news();
    steady(&mut rig, 30);
    rig.limit_rate(RATE / 2);
    steady(&mut rig, 30);
    assert!(near(rig.info().delivery_rate, RATE / 2), "{}", rig.info().delivery_rate);
}

/// A link that was told to hold packets until their departure sends them at once, as when its queue
/// discipline is replaced. What follows, an ACK or data, does not have an earlier timestamp, or the peer's
/// PAWS would drop it.
#[test]
fn pace_18_timestamps_never_run_backwards() {
    let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
    let mut rig = Setup { caps, rtt: millis(10), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.limit_rate(14_480);
    rig.write(10 * MSS);
    rig.advance(millis(10));
    rig.ack_all();
    rig.write(5 * MSS);
    let last = rig.sent.last().unwrap();
    let (stamp, departure) = (last.tsval, last.departure);
    assert!(departure >= rig.now + millis(400), "a segment takes 100 ms");
    rig.advance(millis(10));
    rig.ack_with(&Ack::of(15 * MSS).payload(1_000));
    rig.advance(millis(100));
    let ack = rig.sent.last().unwrap();
    assert!(ack.len() == 0 && ack.at < departure);
    assert_eq!(ack.tsval, stamp, "of the ACK");
    rig.stack.set_link_paces(false);
    rig.advance(millis(600));
    rig.write(MSS);
    let data = rig.sent.last().unwrap();
    assert!(data.len() > 0 && data.tsval.wrapping_sub(stamp) < 1_000, "the present again");
    let stamps: Vec<_> = rig.sent.iter().map(|sent| sent.tsval).collect();
    assert!(stamps.is_sorted_by_key(|stamp| stamp.wrapping_sub(stamps[0])), "{stamps:?}");
}
