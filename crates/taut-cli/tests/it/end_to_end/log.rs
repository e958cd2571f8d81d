//! The log of the commands that serve: a time and a level in each line, or JSON.

use std::process::{Command, Stdio};

use regex_lite::Regex;
use serde_json::Value;
use taut_testbed::eventually;

use crate::end_to_end::support::{Lab, Running, TAUT, taut};

/// Starts `taut`, has it serve a file once if it can, and returns its log and its standard output.
fn log(lab: &Lab, args: &[&str], ready: &str) -> (String, String) {
    let (mut running, path) = lab.logged(args, "log");
    let said = || std::fs::read_to_string(&path).unwrap_or_default();
    eventually(&format!("{args:?} is ready"), || said().contains(ready));
    if args[0] == "serve" {
        let fetched = lab.output(Command::new("curl").args(["-sS", &format!("http://{TAUT}/file")]));
        assert_eq!(fetched.stdout.len(), 1_000);
    }
    running.interrupt();
    let out = running.stdout();
    running.wait();
    (said(), std::io::read_to_string(out).unwrap())
}

#[test]
fn every_line_of_a_command_that_serves_has_a_time_and_a_level() {
    let Some(lab) = Lab::new("log", &["curl"]) else { return };
    lab.file("file", 1_000);
    let line = Regex::new(r"^2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|WARN|ERROR) .").unwrap();
    for (args, ready, part) in [
        (&["serve", "."][..], "serving", "GET /file 200 1,000 bytes"),
        (&["proxy", "--control", "none"], "a proxy at", "INFO a proxy at 127.0.0.1:1080 (Ctrl-C stops)\n"),
        (&["gateway", "--tun", "taut5"], "the gateway is at", "INFO the gateway is at "),
        (&["dash", "9121"], "the dashboard is at", "INFO the dashboard is at http://127.0.0.1:9121/"),
        (&["metrics", "--listen", "9122"], "serving", "INFO serving http://127.0.0.1:9122/metrics"),
    ] {
        let (said, _) = log(&lab, args, ready);
        assert!(said.contains(part), "{args:?}: {said}");
        said.lines().for_each(|text| assert!(line.is_match(text), "{args:?}: {text}"));
        if args[0] == "metrics" {
            continue;
        }
        let json = [args, &["--log", "json"]].concat();
        let (said, _) = log(&lab, &json, ready);
        for text in said.lines() {
            let object: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {said}"));
            assert!(object["time"].as_f64() > Some(1.7e9), "{text}");
            assert!(["event", "level", "text"].iter().all(|key| object[key].is_string()), "{text}");
        }
    }
    let request = |args: &[&str]| log(&lab, args, "serving");
    // Fields of their own.
    let (said, _) = request(&["serve", ".", "--log", "json"]);
    let entry = said.lines().find(|line| line.contains("\"request\"")).unwrap_or_else(|| panic!("{said}"));
    let entry: Value = serde_json::from_str(entry).unwrap();
    assert_eq!((entry["path"].as_str(), entry["bytes"].as_u64()), (Some("/file"), Some(1_000)));
    // Errors alone: nothing. Or requests on standard output.
    for quiet in ["-q", "--log=none"] {
        let running = lab.spawn(taut(&["serve", ".", quiet]).stdin(Stdio::null()).stderr(Stdio::piped()));
        let fetch = || lab.output(Command::new("curl").args(["-sS", &format!("http://{TAUT}/file")]));
        eventually("it serves", || fetch().stdout.len() == 1_000);
        running.interrupt();
        let output = running.output();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{quiet}");
    }
    let (said, out) = request(&["serve", ".", "--json"]);
    assert!(out.contains("\"path\":\"/file\"") && !said.contains("/file"), "{said}{out}");
}

/// Its last line is of the log, too.
#[test]
fn the_error_that_ends_a_server_is_in_its_log() {
    let Some(lab) = Lab::new("log-end", &[]) else { return };
    let end = |options: &[&str]| {
        let (mut running, path): (Running, _) = lab.logged(&[&["serve", "."], options].concat(), "log");
        let said = || std::fs::read_to_string(&path).unwrap_or_default();
        eventually("it serves", || said().contains("serving"));
        lab.kernel.enter(|| taut_device::Interface::open("taut0").unwrap().delete()).unwrap().unwrap();
        assert_eq!(running.wait(), Some(1));
        said().lines().last().unwrap_or_default().to_owned()
    };
    let text = end(&[]);
    assert!(text.contains("Z ERROR ") && text.contains("TUN interface taut0 was deleted"), "{text}");
    let object: Value = serde_json::from_str(&end(&["--log", "json"])).unwrap();
    assert_eq!(
        (object["event"].as_str(), object["level"].as_str()),
        (Some("failed"), Some("ERROR")),
        "{object}"
    );
}
