//! Scenario files and `--set`: an error or a scenario, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taut_core::congestion::Registry;
use taut_lab::scenario::{Change, Document};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (set, file) = text.split_once('\n').unwrap_or(("", text));
    let changes: Vec<Change> = Change::parse(set).into_iter().collect();
    if let Ok(document) = Document::parse("fuzz", "fuzz.toml", file, &changes, &Registry::default()) {
        let _ = (document.base(), document.cases());
    }
});
