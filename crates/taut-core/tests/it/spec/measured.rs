//! The small queue that measures, in a whole connection: TSQ-M15 to M18, and M26. The device itself, with
//! others and over minutes, is in `src/egress/small_queue/measured/tests.rs`.

use taut_core::{Blocked, Duration, Fate, LinkCaps, SetOption, TsqMode};

use crate::spec::rig::{Ack, Device, MSS, Rig, Setup, truesize};

const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What a device that was never measured may hold.
const FIRST: u64 = 32 * 1_024;

fn measured(caps: LinkCaps) -> Setup {
    Setup { caps, ..Setup::default() }.config(|config| config.send.tsq = TsqMode::Measured)
}

#[test]
fn tsq_m15_who_measures() {
    for (mode, departs, rule) in [
        (TsqMode::Auto, true, "measured"),
        (TsqMode::Auto, false, "delivered"),
        (TsqMode::Measured, false, "measured"),
        (TsqMode::Delivered, true, "delivered"),
        (TsqMode::RateScaled, true, "rate-scaled"),
        (TsqMode::Off, true, "off"),
    ] {
        let caps = LinkCaps { completes_on_departure: departs, ..LinkCaps::plain(1_500) };
        let mut rig = Setup { caps, ..Setup::default() }.config(|config| config.send.tsq = mode).open();
        let info = rig.info();
        assert_eq!((info.tsq_rule, info.tsq_time), (rule, None), "{mode:?} {departs}");
        // By the others, two packets of 1448 bytes, or a millisecond of 20 segments in 40 ms, which is less;
        // or none.
        let limit = match rule {
            "measured" => Some(FIRST),
            "off" => None,
            _ => Some(2 * u64::from(truesize(MSS))),
        };
        assert_eq!(info.tsq_limit, limit, "{mode:?} {departs}");
    }
}

/// Nothing was measured: the rates do not matter to the limit. A super-packet is at most a millisecond
/// (1/1024 s) of the pacing rate, and half of the limit.
#[test]
fn tsq_m16_the_first_limit_is_a_constant_and_super_packets_follow_the_pacing_rate() {
    for shift in [10, 8, 6, 255] {
        let caps = LinkCaps { pacing_shift: shift, ..LinkCaps::offloading(1_500) };
        let setup = Setup { rtt: millis(5), ..measured(caps) };
        let mut rig = setup.open();
        rig.grow_cwnd(100, setup.rtt);
        let paced = rig.info().pacing_rate;
        assert!(paced > 12_000_000, "twice tens of segments in 5 ms: {paced}");
        rig.write(100 * MSS);
        let most = if shift > 63 { 0 } else { paced >> shift };
        // `tcp_min_tso_segs` is 2.
        let segs = (most.min(FIRST / 2) / MSS).max(2);
        assert_eq!(rig.held().iter().map(|&name| rig.sent[name].segs).max(), Some(segs), "{shift}");
        for rate in [u64::MAX, 3_000_000, 1_250_000] {
            if rate != u64::MAX {
                rig.limit_rate(rate);
            }
            assert_eq!(rig.info().tsq_limit, Some(FIRST), "{rate} {shift}");
        }
    }
    // On a path of 50 µs, Linux's rule for short paths adds the longest packet to the rate's millisecond;
    // nothing is added here.
    let short = Setup { rtt: Duration::from_micros(50), ..measured(LinkCaps::offloading(1_500)) };
    for rate in [1_000_000, 4_000_000, 12_500_000] {
        let mut rig = short.open();
        rig.grow_cwnd(100, short.rtt);
        rig.limit_rate(rate);
        rig.write(100 * MSS);
        let segs = rig.held().iter().map(|&name| rig.sent[name].segs).max();
        assert_eq!(segs, Some(((rate >> 10) / MSS).max(2)), "{rate} B/s");
    }
    // TCP_TX_DELAY holds packets below TCP on purpose: twice the bytes of that time are added, with 2^20 for
    // a million. Linux: `tcp_small_queue_check`.
    let mut rig = measured(LinkCaps::plain(1_500)).open();
    rig.limit_rate(500_000);
    rig.set(SetOption::TxDelay(millis(10)));
    assert_eq!(rig.info().tsq_limit, Some(FIRST + ((500_000 * 10_000) >> 19)));
}

#[test]
fn tsq_m17_as_much_is_below_and_a_retransmission_may_be_more() {
    let setup = measured(LinkCaps::plain(1_500));
    let mut rig = setup.open();
    rig.grow_cwnd(100, setup.rtt);
    let limit = rig.info().tsq_limit.unwrap();
    // Half of a packet must fit.
    let fits = (limit + MSS / 2) / MSS;
    rig.write(90 * MSS);
    assert_eq!(rig.held().len() as u64, fits, "{limit} bytes");
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    // One has left, one leaves. One was refused: it leaves again, and no more.
    let first = rig.held()[0];
    rig.complete(first);
    assert_eq!(rig.held().len() as u64, fits);
    let last = *rig.held().last().unwrap();
    rig.news();
    rig.refuse(last);
    assert_eq!((rig.news().len(), rig.held().len() as u64), (1, fits));
    // All have left, and then as much as fits is below again. What is lost may have as much beside it.
    rig.device = Device::Completes;
    rig.complete_all();
    rig.advance(setup.rtt);
    rig.device = Device::Keeps;
    let una = rig.info().bytes_acked;
    rig.ack_with(&Ack::of(una).sack(&[una + 50 * MSS..una + 90 * MSS]));
    assert_eq!(rig.info().retrans.min(2 * fits as u32), rig.held().len() as u32);
    assert!(rig.held().len() as u64 > fits, "{} of {}", rig.held().len(), fits);
    assert!(rig.held().len() as u64 <= (2 * limit + MSS / 2) / MSS);
}

#[test]
fn tsq_m26_nobody_waits_any_more_when_nothing_is_measured() {
    let setup = measured(LinkCaps::plain(1_500));
    let mut rig = setup.open();
    rig.grow_cwnd(100, setup.rtt);
    let fits = (rig.info().tsq_limit.unwrap() + MSS / 2) / MSS;
    rig.write(90 * MSS);
    assert_eq!((rig.news().len() as u64, rig.blocked()), (fits, Blocked::SmallQueue));
    rig.stack.set_sysctl("taut.tsq", "off").unwrap();
    rig.poll();
    assert_eq!(rig.news().len() as u64, 90 - fits, "no completion came");
}

/// A line of 12.5 MB/s whose completions come at once.
fn line(rig: &mut Rig, packets: usize) {
    for _ in 0..packets {
        let name = rig.held()[0];
        let bytes = rig.sent[name].len();
        rig.advance(Duration::from_nanos(bytes * 80));
        rig.complete(name);
        let end = rig.sent[name].bytes.end;
        rig.ack(end);
    }
}

#[test]
fn tsq_m18_a_connection_measures_its_device() {
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        let setup = measured(caps);
        let mut rig = setup.open();
        rig.grow_cwnd(200, setup.rtt);
        rig.write(6_000 * MSS);
        line(&mut rig, 1_000);
        // TSQ-M1: rate · 1 ms.
        let (limit, expected) = (rig.info().tsq_limit.unwrap(), 12_500_000 / 1_000);
        assert!(limit.abs_diff(expected) <= expected / 20, "{limit} {expected}");
        assert!(rig.info().tsq_time.is_some());
        assert!(rig.count("TautTsqTurnsAwaited") > 0, "it waited in the line");
        let below: u64 = rig.held().iter().map(|&name| rig.sent[name].len()).sum();
        assert!(below <= limit + limit / 3, "{below} {limit}");
        // TSQ-M6: packets of two thirds of a millisecond, 8333 bytes.
        let most = rig.held().iter().map(|&name| rig.sent[name].segs).max();
        assert_eq!(most, Some(if caps.gso_max_segs > 1 { 5 } else { 1 }));
        // A packet that the device dropped is below no more.
        let before = rig.held().len();
        let last = *rig.held().last().unwrap();
        rig.give_back(last, Fate::Refused);
        assert_eq!(rig.held().len(), before, "another one in its place");
    }
}
