//! The five published experiments as built in, shortened: before is as bad as published and after as good, in
//! direction and magnitude. The figures in comments are the published ones.

use std::collections::BTreeMap;

use taut_core::congestion::Registry;
use taut_lab::data::{Engine, RunData};
use taut_lab::job::{Job, LiveDevice};
use taut_lab::scenario::{Change, Document, builtin};
use taut_lab::sim;

/// Simulates one case of a scenario; returns the results by variant.
fn run(name: &str, case: &str, seed: u64, changes: &[&str]) -> BTreeMap<String, RunData> {
    let changes: Vec<Change> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    let document =
        Document::parse(name, name, builtin::find(name).unwrap(), &changes, &Registry::default()).unwrap();
    let variations = document.variations().unwrap().into_iter().filter(|variation| variation.case == case);
    let runs: BTreeMap<String, RunData> = variations
        .map(|variation| {
            let variant = variation.variant.clone();
            let job = Job {
                scenario: name.into(),
                variation,
                seed,
                engine: Engine::Sim,
                keep: false,
                device: LiveDevice::Tun,
                real_time: false,
                command: "test".into(),
            };
            (variant, sim::run(&job, &|_| true).unwrap().data)
        })
        .collect();
    assert!(!runs.is_empty(), "{name} has no case {case}");
    runs
}

/// A metric of two given variants.
fn of_both(runs: &BTreeMap<String, RunData>, metric: &str, variants: [&str; 2]) -> (f64, f64) {
    let of = |variant: &str| runs[variant].metrics[metric];
    (of(variants[0]), of(variants[1]))
}

/// A metric before and after.
fn both(runs: &BTreeMap<String, RunData>, metric: &str) -> (f64, f64) {
    of_both(runs, metric, ["before", "after"])
}

fn assert_unchanged((before, after): (f64, f64)) {
    assert!((before / after - 1.0).abs() < 0.01, "throughput: {before} and {after}");
}

#[test]
fn m1_small_queues_at_a_gigabit() {
    let runs = run("tsq", "1 Gbit/s, TSO", 1, &["duration=1400ms", "warm-up=700ms"]);
    // 50 ms: 4 MB of socket buffer are 33 ms of a gigabit. After: below 1 ms by the limit of 128 KiB, plus
    // the packet of 64 KiB that exceeds it.
    let (before, after) = both(&runs, "device_time_max");
    assert!((20.0..60.0).contains(&before) && after < 1.7, "{before} and {after} ms");
    let (_, mean) = both(&runs, "device_time_mean");
    assert!(mean < 1.2, "{mean} ms");
    assert_unchanged(both(&runs, "goodput"));
    let (before, after) = both(&runs, "latency_max");
    assert!(before > 10_000.0 && after < 2_000.0, "{before} and {after} µs");
}

#[test]
fn m1_small_queues_at_a_tenth_of_that() {
    let runs = run("tsq", "100 Mbit/s, no TSO", 1, &[]);
    // 132 ms: a thousand packets in the queue are 121 ms, and there are some hundred in the ring. After:
    // below 8 ms.
    let (before, after) = both(&runs, "device_time_max");
    assert!((100.0..200.0).contains(&before) && after < 8.0, "{before} and {after} ms");
    let (_, ping) = both(&runs, "latency_max");
    assert!(ping < 8_000.0, "{ping} µs");
    assert_unchanged(both(&runs, "goodput"));
}

#[test]
fn m2_sizes_at_transmit_time() {
    let runs = run("tso-autosizing", "", 1, &[]);
    // 1397 each: 1382 of data, and a few others.
    let (before, after) = both(&runs, "tcp_out_segs");
    assert!((1_382.0..1_400.0).contains(&before), "{before}");
    assert_eq!(before, after);
    // 599 and 232; 600 and 221 ACKs.
    let (before, after) = both(&runs, "ip_out_requests");
    assert!((450.0..700.0).contains(&before) && (120.0..300.0).contains(&after), "{before} and {after}");
    let (before, after) = both(&runs, "ip_in_receives");
    assert!(before > 2.0 * after, "{before} and {after}");
    // 0.36 s each.
    let (before, after) = both(&runs, "elapsed");
    for seconds in [before, after] {
        assert!((0.28..0.4).contains(&seconds), "{seconds} s");
    }
}

#[test]
fn m3_autocorking_and_the_head() {
    for seed in [1, 2, 3] {
        let runs = run("autocork", "", seed, &["flows.0.transactions=5000"]);
        // 240 to 1050 µs with a maximum of 41,000, the delayed ACK; after, 21.6 to 22.8.
        let (before, after) = both(&runs, "latency_mean");
        assert!((100.0..3_000.0).contains(&before), "seed {seed}: {before} µs");
        assert!((17.0..25.0).contains(&after), "seed {seed}: {after} µs");
        let (before, _) = both(&runs, "latency_max");
        assert!((39_000.0..42_000.0).contains(&before), "seed {seed}: {before} µs");
        // 36 to 38.
        let (_, after) = both(&runs, "latency_p99");
        assert!(after < 38.0, "seed {seed}: {after} µs");
        let (lost, none) = both(&runs, "lost_wakeups");
        assert!(lost > 0.0 && none == 0.0, "seed {seed}: {lost} and {none}");
        assert_eq!(both(&runs, "autocork_held").1, 0.0, "seed {seed}: the head is never held");
        // Held until the completion comes, a request costs little; the lost wake-ups cost 40 ms.
        let (unlucky, after) = of_both(&runs, "latency_mean", ["no race", "after"]);
        assert!(unlucky > after, "seed {seed}: {unlucky} and {after} µs");
        let unlucky = &runs["no race"].metrics;
        assert!(
            unlucky["autocork_held"] > 100.0 && unlucky["latency_max"] < 40.0,
            "seed {seed}: {unlucky:?}"
        );
    }
}

#[test]
fn m4_wake_ups_and_memory() {
    let runs = run("notsent-lowat", "", 1, &["flows.0.count=2", "duration=6s", "warm-up=3s"]);
    // 54 MB and 3.5 MB per flow.
    let (unset, after) = of_both(&runs, "flow_memory", ["unset", "after"]);
    assert!((45.0..65.0).contains(&unset) && (3.0..4.5).contains(&after), "{unset} and {after} MB");
    // More wake-ups than unset, for a twentieth of the memory; and a tenth of the wake-ups at the mark.
    let (unset, after) = of_both(&runs, "flow_wakeups", ["unset", "after"]);
    let (before, _) = both(&runs, "flow_wakeups");
    assert!(unset < after && before > 10.0 * after, "{unset}, {before} and {after} per second");
    for variant in ["before", "after"] {
        let (unset, set) = of_both(&runs, "flow_goodput", ["unset", variant]);
        assert!((set / unset - 1.0).abs() < 0.02, "{variant}: {unset} and {set} Mbit/s");
    }
}

#[test]
fn m5_who_spaces_eighty_flows() {
    let runs = run("pacing", "", 1, &["duration=400ms", "warm-up=150ms"]);
    for variant in ["internal", "today"] {
        for flow in &runs[variant].flows {
            let share = flow.goodput_bps / 45e6;
            assert!((0.98..1.02).contains(&share), "{variant}, {}: {share}", flow.name);
        }
    }
    // 2.72 of 2.93 million packets: fq counts headers. 1448 of 1500 bytes, or of 1514 with Ethernet's.
    let (internal, fq) = of_both(&runs, "tx_packets", ["internal", "fq"]);
    assert!((0.94..0.975).contains(&(fq / internal)), "{fq} of {internal}");
    // With internal pacing, a timer for each packet; without it, one timer for all.
    let seconds = 0.25;
    let handed = |variant: &str| {
        let sender = runs[variant].hosts.iter().find(|host| host.name.starts_with("sender"));
        sender.unwrap().counts["packets_out"] as f64 / seconds
    };
    let [internal, today] = ["internal", "today"].map(|variant| &runs[variant].metrics);
    assert_eq!(internal["qdisc_timers"], 0.0);
    assert!(internal["stack_timers"] > 0.5 * handed("internal"), "{internal:?}");
    assert!(
        today["stack_timers"] < 0.5 * internal["stack_timers"] && today["qdisc_timers"] > 0.0,
        "{today:?}"
    );
    // Packets that TCP spaces do not wait below it.
    assert!(internal["tsq_throttled"] / seconds < 0.01 * handed("internal"), "{internal:?}");
    assert!(today["tsq_throttled"] / seconds > 0.5 * handed("today"), "{today:?}");
}
