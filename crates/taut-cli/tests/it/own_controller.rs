//! `examples/own_controller.rs` as its author runs it: a controller of one's own by name, with parameters, in
//! runs, sweeps, reports and live.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use taut_testbed::{Scratch, live};

/// The program that `cargo test` built beside this test.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/own_controller");
    assert!(program.exists(), "{} is not built: cargo test -p taut-cli builds it", program.display());
    program
}

fn lab(args: &[&str]) -> Output {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    Command::new(program()).args(args).current_dir(examples).output().unwrap()
}

fn ok(args: &[&str]) -> String {
    let output = lab(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Milliseconds that a full packet takes on the scenario's line of 50 Mbit/s.
const PACKET_MS: f64 = 1_538.0 * 8.0 / 50e3;
/// Of 50 Mbit/s, 1448 bytes of 1538 are payload.
const GOODPUT: f64 = 50.0 * 1_448.0 / 1_538.0;

/// Means of a metric by variant and engine.
fn means(set: &serde_json::Value, metric: &str) -> Vec<(String, String, f64)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let rows = set["table"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["metric"] == metric).unwrap();
    let cells = row["cells"].as_array().unwrap().iter().zip(set["table"]["columns"].as_array().unwrap());
    cells
        .filter_map(|(cell, column)| {
            Some((text(&column["variant"]), text(&column["engine"]), cell.get("mean")?.as_f64()?))
        })
        .collect()
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn it_is_listed_with_its_parameters() {
    let text = ok(&["controllers"]);
    assert!(
        text.starts_with("reno\ncubic\nbbr\ndctcp\nprague\nvegas\n  least=2  from 0 to 10000: "),
        "{text}"
    );
    let json = parsed(&ok(&["controllers", "--json"]));
    let vegas = json.as_array().unwrap().last().unwrap();
    assert_eq!((&vegas["name"], &vegas["parameters"][1]["name"]), (&"vegas".into(), &"most".into()));
    assert_eq!(
        (&vegas["parameters"][1]["default"], &vegas["parameters"][1]["most"]),
        (&4.0.into(), &1e4.into())
    );
}

#[test]
fn a_run_gives_it_the_parameters_of_the_command_line_and_leaves_a_report() {
    let out = Scratch::new("own-run");
    let directory = out.0.to_str().unwrap();
    let args = ["run", "own_controller.toml", "--set", "congestion=vegas:least=30,most=30", "--json"];
    let sets = parsed(&ok(&[&args[..], &["--out", directory]].concat()));
    let rtt = means(&sets[0], "rtt_mean");
    let [(_, _, vegas), (_, _, cubic), _] = &rtt[..] else { panic!("{rtt:?}") };
    // 40 ms, and 30 packets in the queue.
    assert!((vegas - 40.0 - 30.0 * PACKET_MS).abs() < 1.5, "{vegas}");
    // CUBIC fills a queue of 400 packets, and keeps it between seven tenths full and full.
    assert!(*cubic > 40.0 + 200.0 * PACKET_MS, "{cubic}");
    for (variant, _, goodput) in means(&sets[0], "goodput") {
        assert!((goodput / GOODPUT - 1.0).abs() < 0.05, "{variant}: {goodput}");
    }
    let file = |name: &str| std::fs::read_to_string(out.0.join("own-controller").join(name)).unwrap();
    assert!(file("report.html").contains("vegas"));
    let meta = parsed(&file("vegas-sim-seed1/meta.json"));
    assert_eq!(meta["meta"]["parameters"]["congestion"], "vegas:least=30,most=30");
    let command = meta["meta"]["command"].as_str().unwrap();
    assert!(command.starts_with("own_controller run own_controller.toml --set congestion="), "{command}");
}

#[test]
fn a_sweep_of_its_parameters_has_a_line_for_each_pair() {
    let csv = ok(&["sweep", "own_controller_sweep.toml", "--csv"]);
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let points: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(
        points,
        [
            "congestion.least=2 congestion.most=10",
            "congestion.least=2 congestion.most=40",
            "congestion.least=10 congestion.most=10",
            "congestion.least=10 congestion.most=40",
        ]
    );
    let heading: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let column = heading.iter().position(|name| *name == "rtt_mean").unwrap();
    for (row, (least, most)) in rows.iter().zip([(2.0, 10.0), (2.0, 40.0), (10.0, 10.0), (10.0, 40.0)]) {
        let rtt: f64 = row[column].parse().unwrap();
        let queued = (rtt - 40.0) / PACKET_MS;
        // As many packets wait as it was told to keep, apart from the two being sent and those that just
        // left.
        assert!((least - 2.0..=most + 3.0).contains(&queued), "{}: {rtt} ms are {queued} packets", row[0]);
    }
}

#[test]
fn mistakes_name_what_there_is() {
    for (set, error) in [
        (
            "congestion=vegas:mots=3",
            "own_controller: --set congestion=vegas:mots=3: congestion: vegas: unknown parameter mots; it has \
             least, a number from 0 to 10000; most, a number from 0 to 10000\n",
        ),
        (
            "congestion=vega",
            "own_controller: --set congestion=vega: congestion: unknown congestion control vega; choose one of reno, \
             cubic, bbr, dctcp, prague, vegas\n",
        ),
    ] {
        let output = lab(&["run", "own_controller.toml", "--set", set]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stderr), error);
    }
    assert_eq!(lab(&["run", "--nonsense"]).status.code(), Some(2));
}

#[test]
fn live_it_sends_to_the_kernel_and_the_kernel_is_left_out() {
    if !live::ready(&["tc"]) {
        return;
    }
    let short = ["--set", "duration=4s", "--set", "warm-up=2s", "--set", "congestion=vegas:least=30,most=30"];
    let args = ["run", "own_controller.toml", "--live", "--no-files", "--json"];
    let output = lab(&[&args[..], &short].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("left out: this kernel has no vegas:least=30,most=30, only "), "{error}");
    let sets = parsed(&String::from_utf8(output.stdout).unwrap());
    let vegas: Vec<_> =
        means(&sets[0], "rtt_mean").into_iter().filter(|(name, ..)| name == "vegas").collect();
    let engines: Vec<&str> = vegas.iter().map(|(_, engine, _)| engine.as_str()).collect();
    assert_eq!(engines, ["sim", "live"]);
    // The queue is that of Vegas, not CUBIC's, whatever else the machine does.
    assert!((39.0..40.0 + 120.0 * PACKET_MS).contains(&vegas[1].2), "{vegas:?}");
}
