//! Scenarios over recorded lines. The numbers are those of the statements in docs/spec/lab.md.

use taut_core::congestion::Registry;
use taut_lab::data::{Engine, RunData};
use taut_lab::job::{Job, LiveDevice};
use taut_lab::scenario::{Change, Document};
use taut_lab::sim;

const TEXT: &str = r#"title = "recorded"
duration = "8s"
interval = "100ms"
congestion = "cubic"
measure = ["goodput"]

[topology]
kind = "dumbbell"
queue = "pfifo limit 100"

[link]
rate = "12mbit"
trace = "cell"
delay = "10ms"

[[flows]]
app = "bulk"
"#;

/// 12 Mbit/s for two seconds, one second of silence, 12 Mbit/s for one second.
const CSV: &str = "0,12mbit\n2,0\n3,12mbit\n4,0\n";

fn parse(file: &str, sets: &[&str]) -> Result<Document, String> {
    let changes: Vec<Change> = sets.iter().map(|set| Change::parse(set).unwrap()).collect();
    let read = |name: &str| match name {
        "cell" => Ok(file.as_bytes().to_vec()),
        _ => Err(format!("cannot read {name}: not there")),
    };
    Document::parse_with("x", "x.toml", TEXT, &changes, &Registry::default(), &read)
        .map_err(|error| error.to_string())
}

fn run(file: &str) -> (RunData, String) {
    let variation = parse(file, &[]).unwrap().variations().unwrap().remove(0);
    let digest = variation.parameters["link.trace.digest"].clone();
    let job = Job {
        scenario: "x".into(),
        variation,
        seed: 1,
        engine: Engine::Sim,
        keep: true,
        device: LiveDevice::Tun,
        real_time: false,
        command: String::new(),
    };
    (sim::run(&job, &|_| true).unwrap().data, digest)
}

#[test]
fn lab_10_a_flow_gets_what_was_recorded_and_nothing_in_the_silence() {
    let (data, digest) = run(CSV);
    // Three of four seconds at 12 Mbit/s, with 1448 of 1538 bytes of payload: 8.474 Mbit/s.
    let most = 0.75 * 12.0 * 1448.0 / 1538.0;
    let goodput = data.metrics["goodput"];
    assert!((0.75 * most..=most).contains(&goodput), "{goodput} of {most}");
    // An ACK of what left before the silence is back 20 ms later, and until 3 s nothing new is.
    let silent = |t_s: f64| {
        let of_period = t_s % 4.0;
        (2.15..2.95).contains(&of_period)
    };
    let points: Vec<_> = data.series[0].points.iter().filter(|point| silent(point.t_s)).collect();
    assert!(points.len() >= 14, "{}", points.len());
    assert!(points.iter().all(|point| point.goodput_bps == 0.0), "{points:?}");
    // Another recording under the same name is another scenario.
    let (other, other_digest) = run("0,6mbit\n4,0\n");
    assert_ne!(digest, other_digest);
    let most = 6.0 * 1448.0 / 1538.0;
    let goodput = other.metrics["goodput"];
    assert!((0.9 * most..=most * 1.001).contains(&goodput), "{goodput} of {most}");
}

#[test]
fn lab_10_the_same_line_in_mahimahis_format_carries_as_much() {
    // A moment each millisecond, but for the silence: 1500 bytes of IP, of which 1448 are payload.
    let moments: String =
        (1..=4_000).filter(|ms| !(2_001..=3_000).contains(ms)).map(|ms| format!("{ms}\n")).collect();
    let (data, _) = run(&moments);
    let most = 0.75 * 12.0 * 1448.0 / 1500.0;
    let goodput = data.metrics["goodput"];
    assert!((0.75 * most..=most).contains(&goodput), "{goodput} of {most}");
}

const STEP: &str = "link.steps=[{ at = \"1s\", rate = \"1mbit\" }]";

#[test]
fn lab_10_mistakes_name_the_key_and_the_file() {
    for (file, sets, expected) in [
        ("0,12mbit\n2,fast\n", &[][..], "x.toml:13: link.trace: cell: line 2: \"fast\" is not a rate"),
        (
            CSV,
            &["link.trace=other"],
            "--set link.trace=other: link.trace: other: cannot read other: not there",
        ),
        (CSV, &["link.back-trace=other"], "--set link.back-trace=other: link.back-trace: other: cannot read"),
        (CSV, &["topology={ kind = \"pair\" }"], "x.toml:13: link.trace: does not apply to kind"),
        (CSV, &[STEP], "--set link.steps=[{ at = \"1s\", rate = \"1mbit\" }]: link.steps: cannot be given"),
    ] {
        let said = parse(file, sets).map(|_| ()).unwrap_err();
        assert!(said.starts_with(expected), "{said}\nnot\n{expected}");
    }
}
