//! `taut lab` as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output};

#[path = "../../../tests/support/live.rs"]
mod live;

fn taut(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_taut")).args(args).output().unwrap()
}

fn ok(args: &[&str]) -> String {
    let output = taut(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Value of a metric in the case and variant.
fn mean(set: &serde_json::Value, case: &str, metric: &str, variant: &str) -> f64 {
    let columns = set["table"]["columns"].as_array().unwrap();
    let column = columns.iter().position(|column| column["variant"] == variant).unwrap();
    let rows = set["table"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric).unwrap();
    row["cells"][column]["mean"].as_f64().unwrap()
}

#[test]
fn small_queues_make_the_device_queue_short_and_nothing_slower() {
    let short = ["--set", "duration=1500ms", "--set", "warm-up=1s"];
    let args = [&["lab", "run", "tsq", "--seeds", "2", "--no-files", "--json"][..], &short].concat();
    let sets: serde_json::Value = serde_json::from_str(&ok(&args)).unwrap();
    let set = &sets[0];
    assert_eq!(set["scenario"], "tsq");
    assert_eq!(set["table"]["columns"][0]["runs"], 2);
    let at = |metric, variant| mean(set, "1 Gbit/s, TSO", metric, variant);
    // Published: from 50 ms to less than one.
    assert!(at("device_time_max", "before") > 10.0 * at("device_time_max", "after"));
    assert!(at("device_time_max", "after") < 1.7);
    assert!((at("goodput", "before") / at("goodput", "after") - 1.0).abs() < 0.01);
    assert!(at("latency_max", "before") > 5.0 * at("latency_max", "after"));
}

#[test]
fn the_list_names_what_can_be_run() {
    let text = ok(&["lab", "list"]);
    for name in
        ["tsq", "autocork", "tso-autosizing", "notsent-lowat", "pacing", "single-flow", "dumbbell", "lossy"]
    {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    for (args, words) in [
        (&["lab", "run", "tsk"][..], "no scenario is called tsk"),
        (&["lab", "run", "tsq", "--set", "link.rate=fast"], "--set link.rate=fast: link.rate: "),
        (&["lab", "run", "/nonexistent.toml"], "cannot read /nonexistent.toml"),
    ] {
        let output = taut(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_sweep_is_a_table_of_all_combinations() {
    let grid: PathBuf = std::env::temp_dir().join(format!("taut-lab-grid-{}.toml", std::process::id()));
    std::fs::write(
        &grid,
        "scenario = \"single-flow\"\nvariants = [\"reno\"]\nmeasure = [\"goodput\"]\n\
         axes = [[\"link.rate=5mbit\", \"link.rate=10mbit\"], [\"link.delay=1ms\", \"link.delay=5ms\"]]\n",
    )
    .unwrap();
    let path = grid.to_str().unwrap();
    let csv = ok(&["lab", "sweep", path, "--csv", "--set", "duration=1s"]);
    std::fs::remove_file(&grid).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "point,case,variant,engine,runs,goodput,goodput_ci95");
    assert_eq!(lines.len(), 5, "{csv}");
    let goodput = |line: &str| line.split(',').nth(5).unwrap().parse::<f64>().unwrap();
    assert!(lines[1].starts_with("link.rate=5mbit link.delay=1ms,,reno,taut sim,1,"), "{csv}");
    assert!((3.0..5.0).contains(&goodput(lines[1])) && (6.0..10.0).contains(&goodput(lines[3])), "{csv}");
}

#[test]
fn live_taut_and_the_kernel_send_over_the_same_link() {
    if !live::ready(&["tc"]) {
        return;
    }
    let args = ["lab", "run", "single-flow", "--live", "--seeds", "1", "--no-files", "--json"];
    let short = ["--set", "duration=3s", "--set", "warm-up=1s", "--set", "link.rate=20mbit"];
    let sets: serde_json::Value = serde_json::from_str(&ok(&[&args[..], &short].concat())).unwrap();
    let set = &sets[0];
    let engines: Vec<&str> =
        set["table"]["columns"].as_array().unwrap().iter().map(|c| c["engine"].as_str().unwrap()).collect();
    for engine in ["sim", "live", "linux"] {
        assert!(engines.contains(&engine), "{engines:?}");
    }
    let rows = set["table"]["rows"].as_array().unwrap();
    let goodput = rows.iter().find(|row| row["metric"] == "goodput").unwrap();
    for (cell, column) in goodput["cells"].as_array().unwrap().iter().zip(&engines) {
        // The link has 20 Mbit/s, of which headers take 4 %; whatever else the machine does, it is not exceeded, and a
        // good part of it is had.
        let mean = cell["mean"].as_f64().unwrap();
        assert!((8.0..20.5).contains(&mean), "{column}: {mean}");
    }
}

#[test]
fn live_small_queues_see_the_hosts_own_queue() {
    if !live::ready(&["tc"]) {
        return;
    }
    let args = ["lab", "run", "tsq", "--live", "--seeds", "1", "--no-files", "--json"];
    // Slow enough for a busy machine; without its cases it is one table.
    let short =
        ["--set", "duration=3s", "--set", "warm-up=1s", "--set", "link.rate=50mbit", "--set", "cases=[]"];
    let sets: serde_json::Value = serde_json::from_str(&ok(&[&args[..], &short].concat())).unwrap();
    let table = &sets[0]["table"];
    let row =
        table["rows"].as_array().unwrap().iter().find(|row| row["metric"] == "device_bytes_max").unwrap();
    let kbytes = |variant: &str, engine: &str| {
        let columns = table["columns"].as_array().unwrap();
        let is = |column: &serde_json::Value| column["variant"] == variant && column["engine"] == engine;
        row["cells"][columns.iter().position(is).unwrap()]["mean"].as_f64().unwrap()
    };
    assert!(kbytes("before", "live") > 5.0 * kbytes("after", "live"));
    assert!(kbytes("after", "live") < 250.0, "128 KiB, and a super-packet of 64 beyond it");
    assert!(kbytes("today", "linux") < kbytes("before", "live") / 3.0, "the kernel has small queues, too");
}
