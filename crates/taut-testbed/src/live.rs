//! The rule for live network tests: where they run, and how they report that they were skipped. Called by
//! tests:
//!
//! ```
//! # #[allow(dead_code)]
//! fn a_live_test() {
//!     if !taut_testbed::live::ready(&["curl"]) {
//!         return;
//!     }
//!     // …
//! }
//! ```
//!
//! A test that cannot run prints `skipped: <why>` and returns; with `TAUT_REQUIRE_LIVE=1` it fails instead,
//! so that a green run in CI means that packets moved.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::thread;

/// Reports that the running test is skipped. The message bypasses the test harness's capture, so that it is
/// visible.
///
/// # Panics
/// When `TAUT_REQUIRE_LIVE=1`.
pub fn skip(why: &str) {
    let test = thread::current().name().unwrap_or("test").to_owned();
    _ = writeln!(io::stderr(), "\nskipped: {test}: {why}");
    let is_required = env::var_os("TAUT_REQUIRE_LIVE").is_some_and(|value| value == "1");
    assert!(!is_required, "skipped, and TAUT_REQUIRE_LIVE=1 forbids that: {why}");
}

/// Returns true if a test may open TUN devices and all `programs` are installed. Otherwise reports through
/// [`skip`] what is missing.
#[must_use]
pub fn ready(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|name| !is_installed(name)).collect();
    if !missing.is_empty() {
        skip(&format!("not installed: {} (run make setup)", missing.join(", ")));
        return false;
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        skip(&format!("/dev/net/tun: {error}"));
        return false;
    }
    true
}

fn is_installed(program: &str) -> bool {
    find(program).is_some()
}

/// Where a program is, of those in `PATH`, `/usr/sbin` and `/sbin`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|path| path.is_file())
}
