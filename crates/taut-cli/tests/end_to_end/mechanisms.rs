//! `taut mechanisms --quick`: the directions that must hold, whatever else the machine does.

use std::process::Stdio;

use serde_json::Value;

use crate::support::{Lab, taut};

/// The rows of one mechanism.
struct Rows(Vec<Value>);

impl Rows {
    fn of(result: &Value, mechanism: &str) -> Self {
        let sections = result["mechanisms"].as_array().unwrap();
        let section = sections.iter().find(|section| section["mechanism"] == mechanism).unwrap();
        Self(section["rows"].as_array().unwrap().clone())
    }

    /// The number under `key` in the one row whose names are these.
    fn number(&self, names: &[(&str, &str)], key: &str) -> f64 {
        let is_it = |row: &&Value| {
            names.iter().all(|(key, name)| match &row[*key] {
                Value::String(text) => text == name,
                other => &other.to_string() == name,
            })
        };
        let found: Vec<_> = self.0.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{names:?} in {:#?}", self.0);
        found[0][key].as_f64().unwrap_or_else(|| panic!("{key} of {}", found[0]))
    }
}

/// The rows of one mechanism, measured now.
fn measured(lab: &Lab, which: &[&str]) -> Value {
    let mut command = taut(&["mechanisms", "--quick", "--json"]);
    let output = lab.output(command.args(which).stdin(Stdio::null()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The 1 Gbit/s line needs more than a busy machine may have; what is compared here is what holds without.
#[test]
fn every_mechanism_shows_its_direction() {
    let Some(lab) = Lab::new("mechanisms", &[]) else { return };
    let result = measured(&lab, &[]);
    assert!(result["failures"].as_array().unwrap().is_empty());
    let order: Vec<_> = result["mechanisms"].as_array().unwrap().iter().map(|m| &m["mechanism"]).collect();
    assert_eq!(order, ["tsq", "autosizing", "autocork", "lowat", "pacing", "bulk"]);

    // A pacing timer for every small packet would show in both.
    let bulk = Rows::of(&result, "bulk");
    let bbr = |key| bulk.number(&[("sender", "taut"), ("congestion", "bbr")], key);
    assert!(bbr("of_cubic") > 0.5, "bbr has {} of what cubic has", bbr("of_cubic"));
    assert!(bbr("payload_bytes_mean") > 20_000.0, "{} bytes a packet", bbr("payload_bytes_mean"));

    let tsq = Rows::of(&result, "tsq");
    let at_100m = |mode, key| tsq.number(&[("rate", "100mbit"), ("mode", mode)], key);
    for mode in ["fixed 128 KiB", "rate-scaled"] {
        let (off, on) = (at_100m("off", "backlog_mean_ms"), at_100m(mode, "backlog_mean_ms"));
        assert!(off > 4.0 * on, "{mode}: {on} ms, off: {off} ms");
        let goodput = at_100m(mode, "goodput_percent");
        assert!((60.0..100.0).contains(&goodput), "{mode}: {goodput} %");
        let (off, on) = (at_100m("off", "ping_mean_ms"), at_100m(mode, "ping_mean_ms"));
        assert!(off > 2.0 * on, "the other flow waits {on} ms with {mode}, {off} ms without");
    }

    let autosizing = Rows::of(&result, "autosizing");
    let packets = |mode| autosizing.number(&[("mode", mode)], "packets");
    let (never, at_write, at_transmit) = (packets("never"), packets("at write"), packets("at transmit"));
    assert!(at_transmit < at_write * 0.6, "{at_transmit} packets at transmit, {at_write} at write");
    assert!(never < at_transmit, "{never} packets never sized, {at_transmit} at transmit");
    for mode in ["never", "at write", "at transmit"] {
        // 2,000,000 bytes are 1382 segments of 1448; a SYN, ACKs and a FIN beside, and what a busy machine makes resend.
        let segments = autosizing.number(&[("mode", mode)], "segments");
        assert!((1_383.0..1_600.0).contains(&segments), "{segments}");
    }

    let autocork = Rows::of(&result, "autocork");
    let held =
        |mode| autocork.number(&[("work", "write after write"), ("rate", "1gbit"), ("mode", mode)], "held");
    assert!(held("off") == 0.0 && held("fixed") > 0.0, "{} and {} held", held("off"), held("fixed"));

    let lowat = Rows::of(&result, "lowat");
    let at = |mode, key| lowat.number(&[("mode", mode)], key);
    let (mark, half) = (at("wake at mark", "wakeups_per_mb"), at("wake at half", "wakeups_per_mb"));
    assert!(half < mark * 0.8, "{half} wake-ups a MB at half, {mark} at the mark");
    let (unset, half) = (at("unset", "memory_kb"), at("wake at half", "memory_kb"));
    assert!(half < unset * 0.7, "{half} kB a flow at half, {unset} kB without");

    let pacing = Rows::of(&result, "pacing");
    for asked in ["10", "48"] {
        let at = |mode, key| pacing.number(&[("flows", "1"), ("asked_mbit", asked), ("mode", mode)], key);
        let (gap, wanted) = (at("internal", "gap_p50_us"), at("internal", "gap_asked_us"));
        assert!((0.7..1.5).contains(&(gap / wanted)), "{gap} µs between packets, asked {wanted} µs");
        assert!(at("off", "gap_p50_us") < at("off", "gap_asked_us") / 3.0);
        // A run has few packets of 65 kB at 10 Mbit/s: one more or less is 7 %.
        assert!(at("internal", "achieved_percent_max") < 115.0);
        assert!(at("off", "achieved_percent_max") > 200.0);
    }
}

/// A sender that does not get to run finds all its writes in one buffer, corked or not: on a busy machine the packets of
/// one run say little.
#[test]
fn corked_writes_are_fewer_packets() {
    let Some(lab) = Lab::new("mechanisms-autocork", &[]) else { return };
    let mut seen = Vec::new();
    for _ in 0..5 {
        let rows = Rows::of(&measured(&lab, &["autocork"]), "autocork");
        let packets = |mode| {
            rows.number(&[("work", "write after write"), ("rate", "1gbit"), ("mode", mode)], "packets")
        };
        seen.push((packets("off"), packets("fixed")));
        if packets("fixed") < packets("off") * 0.7 {
            return;
        }
    }
    panic!("packets with autocorking off and on: {seen:?}");
}

#[test]
fn only_what_was_asked_for_is_measured() {
    let Some(lab) = Lab::new("mechanisms-one", &[]) else { return };
    let output = lab.output(taut(&["mechanisms", "autosizing", "--quick"]).stdin(Stdio::null()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("autosizing: 2,000,000 bytes"), "{text}");
    assert!(text.contains("at transmit") && text.contains("Published: 2014"), "{text}");
    assert!(!text.contains("tsq:"), "{text}");
}
