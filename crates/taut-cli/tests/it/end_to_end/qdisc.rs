//! `taut qdisc` on a running stack, and compared with the kernel's `tc`.

use std::process::{Command, Stdio};

use crate::end_to_end::observe::Observer;
use crate::end_to_end::support::{Lab, TAUT};

/// How long the kernel takes to connect to the stack, in seconds.
fn time_to_connect(lab: &Lab) -> f64 {
    let url = format!("http://{TAUT}/");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{time_connect}", &url]);
    let output = lab.spawn(curl.stdout(Stdio::piped())).output();
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

#[test]
fn a_discipline_is_put_shown_and_taken_away_while_a_stack_serves() {
    let Some(lab) = Lab::new("qdisc", &["curl"]) else { return };
    let observer = Observer::new("qdisc");
    let _server = observer.start(&lab, &["serve", "."], "serving");
    assert_eq!(observer.says(&["qdisc"]), "qdisc noqueue 0: dev taut0 root refcnt 2 \n");
    assert!(time_to_connect(&lab) < 0.06);

    assert_eq!(observer.says(&["qdisc", "replace", "dev", "taut0", "root", "netem", "delay", "60ms"]), "");
    let delayed = time_to_connect(&lab);
    assert!((0.06..0.2).contains(&delayed), "{delayed} s");
    let shown = observer.says(&["qdisc", "show", "-s", "dev", "taut0"]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], "qdisc netem 8001: root refcnt 2 limit 1000 delay 60ms");
    assert!(
        lines[1].starts_with(" Sent ") && lines[1].ends_with(" pkt (dropped 0, overlimits 0 requeues 0) "),
        "{shown}"
    );
    assert!(!lines[1].starts_with(" Sent 0 "), "{shown}");
    assert!(lines[2].starts_with(" backlog ") && lines[2].ends_with("p requeues 0"), "{shown}");

    // A tree, as words from a shell.
    let tree =
        ["qdisc", "replace", "dev", "taut0", "root", "tbf", "rate", "100mbit", "burst", "32kb", "|", "fq"];
    let json = observer.json(&[&tree[..], &["--json"]].concat());
    assert_eq!(
        (&json[0]["kind"], &json[0]["handle"], &json[0]["root"]),
        (&"tbf".into(), &"8002:".into(), &true.into())
    );
    assert_eq!(
        (&json[1]["kind"], &json[1]["parent"], &json[1]["flows"]),
        (&"fq".into(), &"8002:".into(), &0.into())
    );
    assert_eq!(json[1]["options"]["flow_limit"], 100);
    assert!(time_to_connect(&lab) < 0.06);
    let json = observer.json(&["qdisc", "show", "-s", "--json"]);
    assert_eq!(json[0]["dev"], "taut0");
    assert!(json[1]["packets"].as_u64() > Some(0), "{json}");

    assert_eq!(observer.says(&["qdisc", "del", "dev", "taut0", "root"]), "");
    assert_eq!(observer.says(&["qdisc", "show", "dev", "taut0"]), "qdisc noqueue 0: root refcnt 2 \n");

    // Errors name the mistake, and change nothing.
    let fails = |args: &str| observer.fails(&args.split(' ').collect::<Vec<_>>());
    assert!(fails("qdisc replace dev taut0 root fq speed 5").contains("fq has no option \"speed\""));
    assert!(fails("qdisc replace dev taut0 root red").contains("use one of pfifo"));
    assert!(fails("qdisc replace dev taut0 root").contains("root fq"));
    assert!(fails("qdisc replace dev eth7 root fq").contains("no stack of this user sends over eth7"));
    assert!(fails("qdisc replace taut0 fq").contains("dev taut0 root fq"));
    assert!(fails("qdisc del dev taut0 root fq").contains("nothing after root"));
    assert_eq!(observer.says(&["qdisc"]), "qdisc noqueue 0: dev taut0 root refcnt 2 \n");
}

#[test]
fn the_kernels_tc_prints_the_same() {
    let Some(lab) = Lab::new("tc", &["tc"]) else { return };
    let observer = Observer::new("tc");
    let _server = observer.start(&lab, &["serve", "."], "serving");
    let tc = |args: &[&str]| {
        let output =
            lab.spawn(Command::new("tc").args(args).stdout(Stdio::piped()).stderr(Stdio::piped())).output();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    // Without the handle, which the kernel chooses.
    let without_handle = |line: &str| {
        let mut words = line.split(' ').filter(|word| !word.ends_with(':') || word.len() < 4);
        words.by_ref().collect::<Vec<_>>().join(" ")
    };
    for spec in [
        "pfifo limit 100",
        "bfifo limit 64kb",
        "bfifo limit 1000",
        "pfifo_fast",
        "tbf rate 100mbit burst 32kb limit 64kb",
        "tbf rate 1500kbit burst 2kb latency 50ms",
    ] {
        let words: Vec<_> = spec.split(' ').collect();
        let ours = ["qdisc", "replace", "dev", "taut0", "root"];
        assert_eq!(observer.says(&[&ours[..], &words].concat()), "", "{spec}");
        let (has_it, _) = tc(&[&["qdisc", "replace", "dev", "lo", "root"][..], &words].concat());
        assert!(has_it, "{spec}: every kernel has it");
        let (_, kernel) = tc(&["qdisc", "show", "dev", "lo"]);
        let shown = observer.says(&["qdisc", "show", "dev", "taut0"]);
        let kernel = kernel.lines().next().unwrap();
        assert_eq!(without_handle(shown.lines().next().unwrap()), without_handle(kernel), "{spec}");
        let (_, kernel) = tc(&["-s", "-j", "qdisc", "show", "dev", "lo"]);
        let kernel: serde_json::Value = serde_json::from_str(&kernel).unwrap();
        let ours = observer.json(&["qdisc", "show", "-s", "-j", "dev", "taut0"]);
        let keys = |of: &serde_json::Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&ours[0]), keys(&kernel[0]), "{spec}");
        assert_eq!(keys(&ours[0]["options"]), keys(&kernel[0]["options"]), "{spec}");
    }
}
