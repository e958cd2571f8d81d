//! The published results over packet sockets, live in a guest whose kernel has `fq`: [`taut_testbed::guest`]. The guest's clock
//! counts instructions, so rates are those that its one processor carries.
#![allow(missing_docs, reason = "tests")]
#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use taut_testbed::{Guest, guest};

/// `make guest-results`. `LAB` has the arguments of `taut lab run`.
#[test]
#[ignore = "takes minutes"]
fn published_results_in_a_guest() {
    let Some(guest) = Guest::new(&["tc", "ip"]) else { return };
    let guest = guest.program(env!("CARGO_BIN_EXE_taut"));
    let words = std::env::var("LAB").unwrap_or_default();
    let guest = guest.set("LAB", &words.replace(' ', "+"));
    print!("{}", guest.run("inside_lab", Duration::from_secs(3_000)));
}

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_lab() {
    guest::inside::run(|| {
        let words = std::env::var("LAB").unwrap();
        let mut command = Command::new("/bin/taut");
        command.args(["lab", "run", "--out", "/tmp/results", "--live", "--only-live", "--device", "packet"]);
        let status = command.args(words.split('+').filter(|word| !word.is_empty())).status().unwrap();
        assert!(status.success(), "{status}");
    });
}
