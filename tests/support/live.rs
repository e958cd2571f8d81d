//! What a live network test asks before it starts, and how it says that it cannot run.
//!
//! Included by path, as in the Makefile's head. A test that cannot run prints `skipped: <why>` and returns; with
//! `TAUT_REQUIRE_LIVE=1` it fails instead, so that a green run in CI means that packets moved.

#![allow(dead_code, reason = "each test binary that includes this file uses part of it")]

use std::io::Write as _;
use std::path::Path;

/// Says that the running test is skipped. Written past the test harness's capture, so that it is seen.
///
/// # Panics
/// When `TAUT_REQUIRE_LIVE=1`.
pub(crate) fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    _ = writeln!(std::io::stderr(), "\nskipped: {test}: {why}");
    assert!(!is_required(), "skipped, and TAUT_REQUIRE_LIVE=1 forbids that: {why}");
}

/// True where a test may make namespaces and TUN devices, and every one of `programs` is installed.
/// Otherwise says what is missing, through [`skip`].
pub(crate) fn ready(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| !is_installed(name)).collect();
    if !missing.is_empty() {
        skip(&format!("not installed: {} (make setup)", missing.join(", ")));
        return false;
    }
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        skip(&format!("/dev/net/tun: {error}"));
        return false;
    }
    true
}

/// True where a program can be found, `/usr/sbin` and `/sbin` included.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir: std::path::PathBuf| Path::new(&dir).join(program).is_file())
}

/// True where a skip is a failure.
pub(crate) fn is_required() -> bool {
    std::env::var_os("TAUT_REQUIRE_LIVE").is_some_and(|value| value == "1")
}
