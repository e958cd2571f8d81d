//! `taut compare`, shortened: over the TUN, and over the in-process link.

use std::process::Stdio;

use taut_testbed::eventually;

use crate::end_to_end::support::{Lab, taut};

/// Runs the comparison; its JSON.
fn compare(lab: &Lab, more: &[&str]) -> serde_json::Value {
    let mut command = taut(&["compare", "--json", "--seconds", "0.02", "--bytes", "4M"]);
    let output = lab.output(command.args(more).stdin(Stdio::null()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check(result: &serde_json::Value, rounds: usize) {
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 14, "{result:#}");
    assert_eq!(result["rounds"], rounds);
    for row in rows {
        for side in ["taut", "kernel"] {
            let samples: Vec<f64> = row[format!("{side}_samples")]
                .as_array()
                .unwrap()
                .iter()
                .map(|sample| sample.as_f64().unwrap())
                .collect();
            assert_eq!(samples.len(), rounds, "{row}");
            let median = row[side].as_f64().unwrap();
            // On a busy machine, the 20 ms of a measurement may pass without a connection.
            let least = if row["unit"] == "per s" { 0.0 } else { f64::MIN_POSITIVE };
            assert!(samples.iter().all(|sample| *sample >= least), "{row}");
            // At most half of the samples are above the median, and at most half below; some may be equal.
            let above = samples.iter().filter(|sample| **sample > median).count();
            let below = samples.iter().filter(|sample| **sample < median).count();
            assert!(above.max(below) <= rounds / 2, "{row}");
        }
        assert!(row["others_cores"].as_f64().unwrap() >= 0.0, "{row}");
    }
    assert!(result["others_cores"].as_f64().unwrap() >= 0.0, "{result:#}");
    // At least two uploads and one download, for each side, over each family, in each round.
    assert!(result["verified_bytes"].as_u64().unwrap() >= 12 * (4 << 20) * rounds as u64, "{result:#}");
}

#[test]
fn the_comparison_runs_over_a_tun() {
    let Some(lab) = Lab::new("compare", &[]) else { return };
    let result = compare(&lab, &[]);
    check(&result, 5);
    assert_eq!(result["congestion"], serde_json::json!({ "taut": "cubic", "kernel": "cubic" }));
    assert_eq!(result["stack_threads"], 1);
    assert_eq!(result["taut"], "taut to kernel over TUN");
    assert_eq!(result["kernel"], "kernel to kernel over veth");
}

#[test]
fn the_comparison_runs_over_the_in_process_link() {
    let Some(lab) = Lab::new("compare-in-process", &[]) else { return };
    let result = compare(&lab, &["--in-process", "--rounds", "2"]);
    check(&result, 2);
    assert_eq!(result["stack_threads"], 2);
    assert_eq!(result["taut"], "taut to taut, in-process");
}

#[test]
fn the_comparison_says_what_runs_where_and_how_busy_others_were() {
    let Some(lab) = Lab::new("compare-text", &[]) else { return };
    let args = ["--seconds", "0.01", "--bytes", "64K", "--rounds", "3", "--priority", "nice:1"];
    let controls = ["--congestion", "prague", "--kernel-congestion", "reno"];
    let output = lab.output(taut(&[&["compare"], &args[..], &controls].concat()).stdin(Stdio::null()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for said in [
        "Columns: taut to kernel over TUN, and kernel to kernel over veth: median and range of 3 rounds,",
        "Congestion control: prague in taut, reno in all of the kernel's sockets.",
        "taut's stack adds 1 thread, with priority nice:1.",
        "\nLoad of others: ",
    ] {
        assert!(text.contains(said), "{text}");
    }
    // Every row has two ranges.
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("IPv")).collect();
    assert_eq!(rows.len(), 14, "{text}");
    assert!(rows.iter().all(|row| row.matches('–').count() == 2), "{text}");
}

#[test]
fn a_congestion_control_that_the_kernel_lacks_is_an_error_that_names_what_it_has() {
    let Some(lab) = Lab::new("compare-congestion", &[]) else { return };
    // taut has prague, and Linux does not; neither has aimd.
    for args in [&["--congestion", "prague"][..], &["--kernel-congestion", "aimd"]] {
        let output = lab.output(&mut taut(&[&["compare"], args].concat()));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let said =
            format!("the kernel's sockets cannot use the congestion control {}; the kernel has ", args[1]);
        assert!(error.contains(&said) && error.contains("reno"), "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_comparisons_stack_has_the_priority_that_was_asked_for() {
    let Some(lab) = Lab::new("compare-priority", &["kill", "env"]) else { return };
    for (link, stacks) in [(&[][..], 1), (&["--in-process"], 2)] {
        let args = [link, &["--seconds", "60", "--priority", "nice:7"]].concat();
        let mut running = lab.spawn(watched(&lab, &args).stderr(Stdio::null()));
        let with_it = || running.nice_values().into_iter().filter(|nice| *nice == 7).count();
        eventually("the stacks have it, and nothing else", || with_it() == stacks);
        eventually("signals are watched", || running.catches_signals());
        running.signal("INT");
        assert_eq!(running.wait(), Some(130), "{link:?}");
    }
    let output = lab.output(&mut taut(&["compare", "--priority", "high"]));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("not realtime:1 to realtime:99, nor nice:-20 to nice:19"), "{error}");
}

/// Names of the files in the directory of control sockets.
fn sockets(lab: &Lab) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(lab.dir.join("sockets")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// A comparison with its control socket in the test's directory.
fn watched(lab: &Lab, args: &[&str]) -> std::process::Command {
    use std::os::unix::fs::DirBuilderExt as _;
    let dir = lab.dir.join("sockets");
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir).unwrap();
    // The tests may run under nohup, and then the command would ignore a closed terminal.
    let compare = taut(&[&["compare"], args].concat());
    let mut command = std::process::Command::new("env");
    command.arg("--default-signal=HUP").arg(compare.get_program()).args(compare.get_args());
    command.env("TAUT_CONTROL_DIR", dir).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

#[test]
fn a_comparison_leaves_no_socket_behind_however_it_ends() {
    let Some(lab) = Lab::new("compare-signalled", &["kill", "env"]) else { return };
    for link in [&[][..], &["--in-process"]] {
        for name in ["INT", "TERM", "HUP"] {
            let args = [link, &["--seconds", "60"]].concat();
            let mut running = lab.spawn(watched(&lab, &args).stderr(Stdio::null()));
            eventually("the control socket", || sockets(&lab).len() == link.len() + 1);
            eventually("signals are watched", || running.catches_signals());
            running.signal(name);
            assert_eq!(running.wait(), Some(130), "{link:?}, SIG{name}");
            assert_eq!(sockets(&lab), [""; 0], "{link:?}, SIG{name}");
        }
        let short = [link, &["--seconds", "0.01", "--bytes", "64K"]].concat();
        let output = lab.output(&mut watched(&lab, &short));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(sockets(&lab), [""; 0], "{link:?}");
    }
}

/// In a user namespace the comparison is root, and its control socket is still where the user looks for it.
#[test]
fn the_comparison_of_an_ordinary_user_is_found_by_that_user() {
    const SCRIPT: &str =
        "exec 3<\"$TAUT\" && mount -t tmpfs none /tmp && cat <&3 >/tmp/taut && chmod 755 /tmp/taut && cd / &&
        exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '
            /tmp/taut compare --in-process --seconds 60 >/dev/null 2>&1 & compare=$!
            for _ in $(seq 200); do
                found=$(/tmp/taut ss -s 2>&1)
                case $found in *several*) break;; esac
                sleep 0.1
            done
            kill $compare
            echo \"$found\"'";
    let Some(lab) = Lab::new("compare-of-a-user", &["unshare", "mount", "setpriv"]) else { return };
    let mut script = std::process::Command::new("unshare");
    script.args(["--mount", "sh", "-c", SCRIPT]).env("TAUT", env!("CARGO_BIN_EXE_taut"));
    script.env_remove("TAUT_CONTROL_DIR").env_remove("XDG_RUNTIME_DIR");
    let output = lab.output(script.stdin(Stdio::null()));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("several stacks are running; choose one with --socket PATH:"), "{said}");
    assert_eq!(said.matches("/tmp/taut-65534/").count(), 2, "{said}");
}
