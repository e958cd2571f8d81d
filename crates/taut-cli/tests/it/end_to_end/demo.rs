//! `taut demo`, shortened: its parts in namespaces of the test, as root and as an ordinary user.

use std::process::Stdio;

use taut_testbed::eventually;

use crate::end_to_end::support::{Lab, taut};

/// Runs the demo; its JSON.
fn demo(lab: &Lab, more: &[&str]) -> serde_json::Value {
    let output =
        lab.output(taut(&[&["demo", "--json", "--seconds", "1"], more].concat()).stdin(Stdio::null()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_demo_has_its_parts_and_a_page() {
    let Some(lab) = Lab::new("demo", &["ip", "curl"]) else { return };
    // Each part by itself: all of them take a minute of an unoptimised program.
    let part = |name: &str| demo(&lab, &["--only", name])["parts"][0].take();
    let parts = ["uplink", "line", "cost"].map(part);
    let keys = parts.each_ref().map(|part| part["key"].as_str().unwrap());
    assert_eq!(keys, ["uplink", "line", "cost"]);
    for (part, bars, senders) in [(0, 4, 4), (1, 1, 3), (2, 6, 3)] {
        let all = parts[part]["bars"].as_array().unwrap();
        assert_eq!(all.len(), bars, "{all:?}");
        for bar in all.iter().flat_map(|bars| {
            let values = bars["values"].as_array().unwrap();
            // A kernel without bbr leaves one out, and says so.
            let left_out = parts[part]["missing"].as_array().unwrap().len();
            assert_eq!(values.len() + left_out, senders, "{values:?}");
            values
        }) {
            assert!(bar["value"].as_f64().unwrap() > 0.0, "{bar}");
        }
    }
    // In virtual time. Published: 50 and less than 1 ms for the first, 599 and 232 packets for the second.
    let published = part("published");
    let change = |at: usize| [0, 1].map(|side| published["changes"][at]["taut"][side].as_f64().unwrap());
    let ([before, after], [whole, cut]) = (change(0), change(1));
    assert!(before > 25.0 && after < 1.2, "{before} {after}");
    assert!(whole > 540.0 && cut < 232.0, "{whole} {cut}");
    let page = std::fs::read_to_string(lab.dir.join("taut-demo.html")).unwrap();
    assert!(page.contains("<h2>Five results that Linux published</h2>"), "{page}");
}

#[test]
fn the_demo_runs_the_parts_that_were_asked_for_and_says_what_was_interrupted() {
    let Some(lab) = Lab::new("demo-parts", &["kill"]) else { return };
    let found = demo(&lab, &["--only", "uplink", "--no-page"]);
    assert_eq!(found["parts"].as_array().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(&lab.dir).unwrap().count(), 0, "no page");
    let mut running =
        lab.spawn(taut(&["demo", "--only", "uplink", "--seconds", "600"]).stderr(Stdio::null()));
    // The thread that watches signals is there.
    let tasks = format!("/proc/{}/task", running.id());
    let named = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let watches = || {
        let tasks = std::fs::read_dir(&tasks).unwrap().map_while(Result::ok);
        tasks.map(named).any(|name| name.is_ok_and(|name| name == "signals\n"))
    };
    eventually("signals are watched", watches);
    running.signal("INT");
    assert_eq!(running.wait(), Some(130));
}

/// The file of the device is open to everybody, as udev makes it; here in a mount namespace of the test.
#[test]
fn an_ordinary_user_may_run_the_demo() {
    const SCRIPT: &str =
        "exec 3<\"$TAUT\" && mount -t tmpfs none /tmp && cat <&3 >/tmp/taut && chmod 755 /tmp/taut &&
        mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && cd /tmp &&
        setpriv --reuid=65534 --regid=65534 --clear-groups \
            /tmp/taut demo --only uplink,line --seconds 1 --json --no-page &&
        ls -A /tmp >&2";
    let Some(lab) = Lab::new("demo-of-a-user", &["unshare", "mount", "setpriv", "ip", "curl"]) else {
        return;
    };
    let mut script = std::process::Command::new("unshare");
    script.args(["--mount", "sh", "-c", SCRIPT]).env("TAUT", env!("CARGO_BIN_EXE_taut"));
    let output = lab.output(script.stdin(Stdio::null()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim(), "taut", "nothing but the program is left");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert_eq!(found["failures"], serde_json::json!([]), "{said}");
    assert_eq!(found["parts"].as_array().unwrap().len(), 2);
}
