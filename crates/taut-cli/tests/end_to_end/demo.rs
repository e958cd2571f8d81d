//! `taut demo`, shortened: over the TUN, and over the in-process link.

use std::process::Stdio;

use crate::support::{Lab, taut};

/// Runs the demo; its JSON.
fn demo(lab: &Lab, more: &[&str]) -> serde_json::Value {
    let mut command = taut(&["demo", "--json", "--seconds", "0.05", "--bytes", "4M"]);
    let output = lab.output(command.args(more).stdin(Stdio::null()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check(result: &serde_json::Value) {
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12, "{result:#}");
    for row in rows {
        assert!(row["taut"].as_f64().unwrap() > 0.0 && row["kernel"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Upload and download, of each side, over each family, at least once.
    assert!(result["verified_bytes"].as_u64().unwrap() >= 8 * (4 << 20), "{result:#}");
}

#[test]
fn the_demo_runs_over_a_tun() {
    let Some(lab) = Lab::new("demo", &[]) else { return };
    let result = demo(&lab, &[]);
    check(&result);
    assert_eq!(result["taut"], "taut to kernel over TUN");
    assert_eq!(result["kernel"], "kernel to kernel over veth");
}

#[test]
fn the_demo_runs_over_the_in_process_link() {
    let Some(lab) = Lab::new("demo-in-process", &[]) else { return };
    let result = demo(&lab, &["--in-process"]);
    check(&result);
    assert_eq!(result["taut"], "taut to taut, in-process");
}
