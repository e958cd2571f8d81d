//! The mechanisms of the send path, live: counted in packets, bytes, holds and wake-ups, which their rules
//! bound whatever else the machine does. Figures that depend on the scheduler (goodput, latencies, gaps, how
//! many writes share a packet) are measured by `make mechanisms` and not asserted. Also the two scenarios
//! without published figures, simulated.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use taut_core::congestion::Registry;
use taut_lab::data::Engine;
use taut_lab::job::{Job, LiveDevice, Outcome, RunError};
use taut_lab::scenario::{Change, Document, builtin};
use taut_lab::{live, sim};
use taut_testbed::live::ready;

/// One live run at a time: live runs have real-time priority.
static TURN: Mutex<()> = Mutex::new(());

/// The metrics of a run.
struct Run(BTreeMap<String, f64>);

impl Run {
    /// Runs a scenario's variant with changes.
    fn new(engine: Engine, name: &str, variant: &str, changes: &[&str]) -> Self {
        Self::over(LiveDevice::Tun, engine, name, variant, changes)
    }

    /// The same; a live run's sender sends over this device.
    fn over(device: LiveDevice, engine: Engine, name: &str, variant: &str, changes: &[&str]) -> Self {
        let changes: Vec<Change> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
        let text = builtin::find(name).unwrap();
        let document = Document::parse(name, name, text, &changes, &Registry::default()).unwrap();
        let variations = document.variations().unwrap();
        let variation = variations.into_iter().find(|variation| variation.variant == variant).unwrap();
        let job = Job {
            scenario: name.into(),
            variation,
            seed: 1,
            engine,
            keep: false,
            device,
            real_time: false,
            command: "test".into(),
        };
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome: Result<Outcome, RunError> = match engine {
            Engine::Sim => sim::run(&job, &|_| true),
            Engine::Live | Engine::Linux => live::run(&job, &|_| true),
        };
        Self(outcome.unwrap_or_else(|error| panic!("{}: {error}", job.label())).data.metrics)
    }

    fn live(name: &str, variant: &str, changes: &[&str]) -> Self {
        Self::new(Engine::Live, name, variant, changes)
    }

    fn at(&self, metric: &str) -> f64 {
        *self.0.get(metric).unwrap_or_else(|| panic!("no {metric} in {:?}", self.0))
    }
}

/// The fixed limit of 128 KiB, and the super-packet of 64 KiB that exceeds it, in kB.
const SMALL_QUEUE_KB: f64 = 205.0;

/// Reno's slow start ends only with a loss, and nothing is lost here: within 3 s the window grows far beyond
/// the limit, also with a tenth of a processor.
const GROWING: [&str; 5] =
    ["cases=[]", "link.rate=50mbit", "duration=3s", "warm-up=200ms", "congestion=reno"];

#[test]
fn tsq_bounds_what_waits_in_the_device() {
    if !ready(&["tc"]) {
        return;
    }
    let [before, after] = ["before", "after"].map(|variant| Run::live("tsq", variant, &GROWING));
    assert!(after.at("device_bytes_max") < SMALL_QUEUE_KB, "{:?}", after.0);
    assert!(after.at("tsq_throttled") > 0.0, "{:?}", after.0);
    // As much as the send buffer of 4 MB allows.
    assert!(before.at("device_bytes_max") > 2.0 * SMALL_QUEUE_KB, "{:?}", before.0);
    // The kernel's own rule, over a queue with the same rate.
    let linux = Run::new(Engine::Linux, "tsq", "today", &GROWING);
    assert!(linux.at("device_bytes_max") < before.at("device_bytes_max"), "{:?} {:?}", before.0, linux.0);
}

/// On an Ethernet interface, the queue is the kernel's for both senders, and the limits are the same.
#[test]
fn tsq_bounds_what_waits_in_the_kernels_queue() {
    if !ready(&["tc", "ip"]) {
        return;
    }
    let run = |engine, variant| Run::over(LiveDevice::Packet, engine, "tsq", variant, &GROWING);
    let [before, after] = ["before", "after"].map(|variant| run(Engine::Live, variant));
    assert!(after.at("device_bytes_max") < SMALL_QUEUE_KB, "{:?}", after.0);
    assert!(before.at("device_bytes_max") > 2.0 * SMALL_QUEUE_KB, "{:?}", before.0);
    let linux = run(Engine::Linux, "today");
    assert!(linux.at("device_bytes_max") < before.at("device_bytes_max"), "{:?} {:?}", before.0, linux.0);
    for run in [&after, &linux] {
        assert!(run.at("goodput") > 0.0, "{:?}", run.0);
    }
}

#[test]
fn super_packets_grow_with_the_rate_when_they_are_sized_at_the_transmission() {
    if !ready(&[]) {
        return;
    }
    // Time enough also where the kernel's receiver does not widen its window: then 64 KB go in each 40 ms.
    let long = ["duration=6s"];
    let [before, after] = ["before", "after"].map(|variant| Run::live("tso-autosizing", variant, &long));
    for run in [&before, &after] {
        // 2,000,000 bytes are 1382 segments of 1448; in addition the SYN, ACKs, the FIN, and retransmissions
        // on a busy machine.
        assert!((1_383.0..1_600.0).contains(&run.at("tcp_out_segs")), "{:?}", run.0);
    }
    // At the time of the write the rate is that of the initial window: a millisecond of it is less than the
    // minimum of two segments.
    assert!(before.at("super_packet_mean") < 3.0, "{:?}", before.0);
    assert!(after.at("packets_per_mb") < 0.8 * before.at("packets_per_mb"), "{:?} {:?}", before.0, after.0);
}

#[test]
fn without_autocorking_no_write_is_held_and_none_is_lost_with_it() {
    if !ready(&["tc"]) {
        return;
    }
    // All fits into the send buffer, so that no write is cut. How many writes are held depends on when the
    // writer runs: `small_writes_and_bulk_simulated` counts that in virtual time.
    let short = [
        "cases=[]",
        "link.rate=10mbit",
        "flows.0.total=100000",
        "flows.0.options.sndbuf=212992",
        "duration=2s",
    ];
    let [off, fixed] = ["off", "fixed"].map(|variant| Run::live("small-writes", variant, &short));
    assert_eq!(off.at("autocork_held"), 0.0);
    let linux = Run::new(Engine::Linux, "small-writes", "fixed", &short);
    assert!(linux.0.contains_key("tcp_auto_corking") && !linux.0.contains_key("autocork_held"));
    for run in [&off, &fixed, &linux] {
        // The number of writes follows from the bytes, whichever stack sends.
        let writes = run.at("writes_per_packet") * run.at("ip_out_requests");
        assert!((1_000.0..1_010.0).contains(&writes.round()), "{writes} writes: {:?}", run.0);
    }
}

#[test]
fn a_writer_is_woken_once_for_half_the_mark() {
    if !ready(&["tc"]) {
        return;
    }
    const MARK: f64 = 262_144.0;
    let short = ["flows.0.count=2", "duration=2500ms", "warm-up=1500ms"];
    let unset = Run::live("notsent-lowat", "unset", &short);
    let marked = [&short[..], &["flows.0.options.notsent-lowat=262144"]].concat();
    for engine in [Engine::Live, Engine::Linux] {
        let after = Run::new(engine, "notsent-lowat", "after", &marked);
        // Each wake-up lets it write at least half a mark. Three times as often, since what is written is not
        // yet acknowledged; a writer that each ACK of two segments woke would be woken 45 times as often.
        let most = 3.0 * 1e6 / (MARK / 2.0);
        assert!(after.at("wakeups_per_mb") < most, "{engine:?}, {most}: {:?}", after.0);
        // The mark, and one write that began below it.
        assert!(after.at("flow_unsent") <= (MARK + 65_536.0) / 1e3, "{engine:?}: {:?}", after.0);
        assert!(after.at("flow_memory") < 0.5 * unset.at("flow_memory"), "{:?}, {:?}", unset.0, after.0);
    }
}

#[test]
fn paced_flows_have_their_rate_and_no_more() {
    if !ready(&["tc"]) {
        return;
    }
    /// The rate of 5 Mbit/s, and a tenth more for the first window.
    const MOST_MBIT: f64 = 5.5;
    let short = [
        "flows.0.count=4",
        "flows.0.options.max-pacing-rate=5mbit",
        "link.rate=200mbit",
        "duration=1500ms",
        // From the beginning, so that all that is acknowledged was sent in the same time.
        "warm-up=0ms",
    ];
    for engine in [Engine::Live, Engine::Linux] {
        let paced = Run::new(engine, "pacing", "internal", &short);
        assert!(paced.at("flow_goodput") < MOST_MBIT, "{engine:?}: {:?}", paced.0);
    }
    let paced = Run::live("pacing", "internal", &short);
    let off =
        Run::live("pacing", "internal", &[&short[..], &["hosts.sender.sysctls.taut.pacing=off"]].concat());
    assert!(paced.at("pacing_blocked") > 0.0 && off.at("pacing_blocked") == 0.0, "{:?}", off.0);
    assert!(off.at("flow_goodput") > MOST_MBIT, "{:?}", off.0);
}

#[test]
fn bbr_without_a_limit_sends_long_packets() {
    if !ready(&[]) {
        return;
    }
    for engine in [Engine::Live, Engine::Linux] {
        let bbr = Run::new(engine, "bulk", "bbr", &["congestion=bbr", "duration=700ms", "warm-up=300ms"]);
        assert!(bbr.at("goodput") > 0.0, "{engine:?}: {:?}", bbr.0);
        if engine == Engine::Live {
            // More than four segments in a packet: a timer for every few segments makes shorter ones.
            assert!(bbr.at("packets_per_mb") < 1e6 / (4.0 * 1448.0), "{:?}", bbr.0);
        }
    }
}

#[test]
fn small_writes_and_bulk_simulated() {
    let case = ["cases=[]", "flows.0.total=2000000"];
    let [off, fixed] = ["off", "fixed"].map(|variant| Run::new(Engine::Sim, "small-writes", variant, &case));
    // A packet for each of 20,000 writes, and those of the handshake and the end. With autocorking one or two
    // writes share a packet, because a completion comes 16 µs after the packet and a write every 10 µs.
    assert!((20_000.0..20_010.0).contains(&off.at("ip_out_requests")), "{:?}", off.0);
    assert!((1.2..2.0).contains(&fixed.at("writes_per_packet")), "{:?}", fixed.0);
    let [cubic, bbr] =
        ["cubic", "bbr"].map(|variant| Run::new(Engine::Sim, "bulk", variant, &["duration=800ms"]));
    // 1448 of 1538 bytes are payload.
    assert!((9_000.0..9_415.0).contains(&cubic.at("goodput")), "{:?}", cubic.0);
    assert!(bbr.at("goodput") > 0.9 * cubic.at("goodput"), "{:?}", bbr.0);
}

/// A thread that wakes up late is in a scenario's reach: the counters show it, and the default is exact.
#[test]
fn wakeups_are_as_late_as_the_scenario_says() {
    let run = |wakeups: &[&str]| {
        let short = ["flows.0.count=4", "flows.0.options.max-pacing-rate=5mbit", "duration=1500ms"];
        let run = Run::new(Engine::Sim, "pacing", "internal", &[&short[..], wakeups].concat());
        (run.at("pacing_blocked"), run.at("pacing_late_1ms"))
    };
    let exact = run(&[]);
    assert_eq!(exact.1, 0.0);
    assert_eq!(run(&["hosts.sender.cpu.wakeups=exact"]), exact);
    let (waits, late) = run(&["hosts.sender.cpu.wakeups=quiet"]);
    assert!(late <= waits * 0.01, "{late} of {waits}: one in a thousand, and others that share the wake-up");
    let (waits, late) = run(&["hosts.sender.cpu.wakeups=busy"]);
    // An eighth of the wake-ups are later than a millisecond; several flows that share one are late together.
    assert!(late > waits * 0.05 && late < waits, "{late} of {waits}");
}
