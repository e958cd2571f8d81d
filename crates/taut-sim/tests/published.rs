//! The published experiments, shortened: before is as bad as they said, after as good, in direction and magnitude. The
//! figures in comments are the published ones.

use taut_core::{AutocorkMode, AutosizeMode, Duration, LowatMode, TsqMode};
use taut_sim::published::{
    AutocorkCase, AutosizeCase, LowatCase, PacingCase, Spacer, TsqCase, autocork, autosize, lowat, pacing,
    tsq,
};

#[test]
fn m1_small_queues_at_a_gigabit() {
    let run = |mode| {
        let case = TsqCase::of_2012("1gbit".parse().unwrap(), true, mode);
        tsq(TsqCase { span: Duration::from_millis(700), ..case }).unwrap()
    };
    let (before, after) = (run(TsqMode::Off), run(TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 }));
    // 50 ms: 4 MB of socket buffer, which are 33 ms of a gigabit.
    assert!((20.0..60.0).contains(&before.backlog_max_ms), "{before:?}");
    // Below 1 ms by its limit of 128 KiB, and the packet of 64 KiB that went beyond it.
    assert!(after.backlog_mean_ms < 1.2 && after.backlog_max_ms < 1.7, "{after:?}");
    assert!(
        (before.throughput_mbit / after.throughput_mbit - 1.0).abs() < 0.01,
        "unchanged: {before:?} {after:?}"
    );
    assert!(after.ping_max_ms < 2.0 && before.ping_max_ms > 10.0, "{before:?} {after:?}");
}

#[test]
fn m1_small_queues_at_a_tenth_of_that() {
    let run = |mode| {
        let case = TsqCase::of_2012("100mbit".parse().unwrap(), false, mode);
        tsq(TsqCase { span: Duration::from_secs(3), ..case }).unwrap()
    };
    let (before, after) = (run(TsqMode::Off), run(TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 }));
    // 132 ms: a thousand packets in the queue are 121 ms, and some hundred in the ring.
    assert!((100.0..200.0).contains(&before.backlog_max_ms), "{before:?}");
    // Below 8 ms.
    assert!(after.backlog_max_ms < 8.0 && after.ping_max_ms < 8.0, "{after:?}");
    assert!(
        (before.throughput_mbit / after.throughput_mbit - 1.0).abs() < 0.01,
        "unchanged: {before:?} {after:?}"
    );
}

#[test]
fn m2_sizes_at_transmit_time() {
    let run = |mode| autosize(AutosizeCase { rate: "10gbit".parse().unwrap(), mode, seed: 1 }).unwrap();
    let (before, after) = (run(AutosizeMode::AtWrite), run(AutosizeMode::AtTransmit));
    // 1397 each: 1382 of data, and a few.
    assert!((1_382..1_400).contains(&before.tcp_out_segs), "{before:?}");
    assert_eq!(before.tcp_out_segs, after.tcp_out_segs);
    // 599 and 232; 600 and 221 ACKs.
    assert!((450..700).contains(&before.ip_out_requests), "{before:?}");
    assert!((120..300).contains(&after.ip_out_requests), "{after:?}");
    assert!(before.ip_in_receives > 2 * after.ip_in_receives, "{before:?} {after:?}");
    // 0.36 s each.
    for result in [before, after] {
        let ms = result.elapsed.as_millis();
        assert!((280..400).contains(&ms), "{result:?}");
    }
}

#[test]
fn m3_autocorking_and_the_head() {
    for seed in [1, 2, 3] {
        let run = |mode, race| {
            let case = AutocorkCase::published("10gbit".parse().unwrap(), mode, seed);
            let race = if race { case.race } else { None };
            autocork(AutocorkCase { count: 5_000, race, ..case }).unwrap()
        };
        // 240 to 1050 µs, with a maximum of 41,000: the delayed ACK.
        let before = run(AutocorkMode::MayHoldHead, true);
        assert!((100.0..3_000.0).contains(&before.mean), "{before:?}");
        assert!((39_000.0..42_000.0).contains(&before.max) && before.lost_wakeups > 0, "{before:?}");
        // 21.6 to 22.8 µs, p99 36 to 38.
        let after = run(AutocorkMode::Fixed, true);
        assert!((17.0..25.0).contains(&after.mean) && after.p99 < 38.0, "{after:?}");
        assert_eq!((after.held, after.lost_wakeups), (0, 0), "the head is never held");
        // Held until the completion comes, it costs little: it is the lost wake-ups that cost 40 ms.
        let unlucky = run(AutocorkMode::MayHoldHead, false);
        assert!(unlucky.held > 100 && unlucky.mean > after.mean && unlucky.max < 40.0, "{unlucky:?}");
    }
}

#[test]
fn m4_wake_ups_and_memory() {
    let run = |mark, mode| {
        let case = LowatCase::published("40gbit".parse().unwrap(), mark, mode);
        lowat(LowatCase { flows: 2, each: 50, span: Duration::from_secs(3), ..case }).unwrap()
    };
    let unset = run(None, LowatMode::WakeAtHalf);
    let at_mark = run(Some(2 << 20), LowatMode::WakeAtMark);
    let at_half = run(Some(2 << 20), LowatMode::WakeAtHalf);
    // 54 MB and 3.5 MB a flow.
    assert!((45e6..65e6).contains(&unset.memory_per_flow), "{unset:?}");
    assert!((3e6..4.5e6).contains(&at_half.memory_per_flow), "{at_half:?}");
    // More wake-ups than unset, for a twentieth of the memory; and a tenth of those that come at the mark.
    assert!(unset.wakeups < at_half.wakeups, "{unset:?} {at_half:?}");
    assert!(at_mark.wakeups > 10.0 * at_half.wakeups, "{at_mark:?} {at_half:?}");
    for result in [at_mark, at_half] {
        assert!((result.throughput_mbit / unset.throughput_mbit - 1.0).abs() < 0.02, "{unset:?} {result:?}");
    }
}

#[test]
fn m5_who_spaces_eight_hundred_flows() {
    // A tenth of the flows and of the line.
    let run = |spacer| {
        let case = PacingCase::published("4gbit".parse().unwrap(), "45mbit".parse().unwrap(), spacer);
        pacing(PacingCase { flows: 80, ..case }).unwrap()
    };
    let (internal, stamped, fq) = (run(Spacer::Internal), run(Spacer::Stamped), run(Spacer::Fq));
    for result in [internal, stamped] {
        assert!(result.least_share > 0.98 && result.most_share < 1.02, "{result:?}");
    }
    // 2.72 of 2.93 million packets: fq counts headers. 1448 of 1500 bytes, or with those of Ethernet 1514.
    let share = fq.tx_packets / internal.tx_packets;
    assert!((0.94..0.975).contains(&share), "{share}: {fq:?}");
    // A timer a packet with internal pacing; without, one timer for all.
    assert!(internal.qdisc_timers < 1.0 && internal.stack_timers > 0.5 * internal.handed, "{internal:?}");
    assert!(stamped.stack_timers < 0.5 * internal.stack_timers && stamped.qdisc_timers > 0.0, "{stamped:?}");
    // What TCP spaces does not wait below it.
    assert!(internal.throttled < 0.01 * internal.handed && stamped.throttled > 0.5 * stamped.handed);
}
