//! The published results over packet sockets, live in a guest whose kernel has `fq`: [`taut_testbed::guest`].
//! The guest's clock counts instructions, so a busy machine changes nothing, and rates are those that its one
//! processor carries.
#![allow(missing_docs, reason = "tests")]
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::time::Duration;

use taut_testbed::{Guest, guest};

/// Arguments of `taut lab run`, at rates that the guest carries. A space within a word is `%20`.
const RUNS: [&str; 7] = [
    // The sender's queue is a `tbf`.
    "tsq --set cases=[] --set link.rate=50mbit --set duration=3s --set warm-up=1s",
    // It is an `fq` that limits each flow. Variants 2 to 4 are Linux's rule, `delivered`, and the default.
    "tsq --set cases=[] --set link.rate=1gbit --set duration=3s --set warm-up=1s --set hosts.sender.qdisc=fq%20maxrate%2050mbit \
     --set variants.2.live=false --set variants.2.packet=true --set variants.3.live=false --set variants.3.packet=true \
     --set variants.4.live=false --set variants.4.packet=true --set variants.4.set.hosts.sender.sysctls.taut.tsq=auto",
    "tso-autosizing",
    "small-writes --set cases=[] --set link.rate=50mbit",
    "autocork",
    "notsent-lowat --set flows.0.count=2 --set flows.0.options.max-pacing-rate=20mbit --set link.rate=1gbit",
    "pacing --set flows.0.count=2 --set link.rate=200mbit --set duration=3s --set warm-up=1s",
];

/// `make guest-results`; `SEEDS=3`.
#[test]
#[ignore = "takes minutes"]
fn published_results_in_a_guest() {
    let Some(guest) = Guest::new(&["tc", "ip"]) else { return };
    let seeds = std::env::var("SEEDS").unwrap_or_else(|_| "3".to_owned());
    for run in RUNS {
        let words: Vec<&str> = run.split_whitespace().chain(["--seeds", &seeds]).collect();
        let guest = guest.clone().program(env!("CARGO_BIN_EXE_taut")).set("LAB", &words.join("+"));
        println!("\n{run}\n{}", guest.run("inside_lab", Duration::from_secs(1_800)));
    }
}

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_lab() {
    guest::inside::run(|| {
        let words = std::env::var("LAB").unwrap();
        let mut command = Command::new("/bin/taut");
        command.args(["lab", "run", "--out", "/tmp/results", "--live", "--only-live", "--device", "packet"]);
        command.args(words.split('+').map(|word| word.replace("%20", " ")));
        // A serial line is no place for a bar of progress.
        let status = command.stderr(Stdio::null()).status().unwrap();
        assert!(status.success(), "{status}");
    });
}
