//! Every example runs, and shows what it says. `cargo test` builds them beside this test.
#![cfg(all(feature = "control", feature = "tokio"))]
#![allow(missing_docs, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use custom_device::{Outcome, Sample, WORKER_BPS, transfer};
use taut::device::LinkCaps;

#[path = "../examples/custom_device.rs"]
#[allow(dead_code, reason = "its `main` runs as a program")]
mod custom_device;

/// One at a time: they measure rates.
static TURN: Mutex<()> = Mutex::new(());

/// What an example prints.
fn run(name: &str, args: &[&str]) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let test = std::env::current_exe().unwrap();
    let program: PathBuf = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is not built: `cargo test -p taut` builds it", program.display());
    let output = Command::new(program).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {}, {error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What the small queue holds at most just after it has let a packet through: less than its limit before, max(two packets,
/// rate >> 10), and that packet. Linux: `tcp_small_queue_check`, `sk_pacing_shift` 10. Retransmissions have twice the
/// limit; none are needed here.
fn bound(truesize: u64, pacing_rate: u64) -> u64 {
    (2 * truesize).max(pacing_rate / 1_024) + truesize
}

/// Samples with more below TCP than the rule allowed at any time of the 50 before, from which such bytes may be.
fn above(samples: &[Sample], truesize: u64) -> usize {
    let is_above = |&end: &usize| {
        let lately = &samples[end.saturating_sub(50)..=end];
        let rate = lately.iter().map(|sample| sample.pacing_rate).max().unwrap();
        samples[end].charged > bound(truesize, rate)
    };
    (0..samples.len()).filter(is_above).count()
}

#[track_caller]
fn assert_kept_short(outcome: &Outcome, truesize: u64) {
    let Outcome { goodput_bps, samples, charged_at_end, tickets, .. } = outcome;
    // Headers are 52 bytes of 1,500, so 96.5 % of the rate are payload in packets of their own. Three quarters of the
    // rate are left where other programs have the processors, too.
    assert!((0.75 * WORKER_BPS..1.01 * WORKER_BPS).contains(goodput_bps), "{goodput_bps} bit/s");
    assert!(samples.len() > 500, "{} samples", samples.len());
    let above = above(samples, truesize);
    assert!(above * 100 <= samples.len(), "{above} of {} samples are above the limit", samples.len());
    // Short, but not so short that the worker runs dry.
    let busy = samples.iter().filter(|sample| sample.charged >= truesize).count();
    assert!(busy * 4 > samples.len() * 3, "{busy} of {} samples", samples.len());
    assert_eq!(*charged_at_end, 0, "bytes whose tickets are lost");
    let (out, back) = (tickets.out.load(Relaxed), tickets.back.load(Relaxed));
    assert_eq!(out, back, "tickets out and back");
}

#[test]
fn custom_device_keeps_a_short_queue_of_packets() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = transfer(LinkCaps::plain(1_500), 20_000_000).unwrap();
    // 1,500 bytes less headers of IP (20) and TCP (20) and timestamps (12), and what a packet is charged in addition.
    assert_kept_short(&outcome, 1_500 - 52 + 1_024);
    let (overtaken, back) = (outcome.tickets.overtaken.load(Relaxed), outcome.tickets.back.load(Relaxed));
    assert!(overtaken * 4 > back, "{overtaken} of {back} tickets came back after a newer one");
}

#[test]
fn custom_device_keeps_a_short_queue_of_super_packets() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = transfer(LinkCaps::offloading(1_500), 20_000_000).unwrap();
    // 45 segments of 1,448 bytes: as many as fit into 65,536 bytes less 320 for headers, and one.
    assert_kept_short(&outcome, 45 * 1_448 + 1_024);
    assert!(outcome.tickets.overtaken.load(Relaxed) > 0);
}

#[test]
fn custom_device_prints_its_figures() {
    let said = run("custom_device", &["2"]);
    for words in [
        "2 MB in packets:",
        "2 MB in super-packets:",
        "goodput",
        "below TCP",
        "ms of the worker's rate",
        "small queue",
    ] {
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
    assert_eq!(said.matches("at the end       0 bytes charged").count(), 2, "{said}");
}
