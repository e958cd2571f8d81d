//! `--record` and `taut replay`: a transfer to the kernel, run again.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use taut_testbed::eventually;

use crate::end_to_end::support::{KERNEL, Lab, drain, taut};

const BYTES: u64 = 20_000_000;

/// Records `taut send` in the lab's directory.
fn record(lab: &Lab) {
    let digest = lab.file("data", BYTES);
    let listener = lab.kernel.enter(|| TcpListener::bind("0.0.0.0:7000").unwrap()).unwrap();
    let mut send = taut(&["send", &format!("{KERNEL}:7000"), "--record", "run", "--control", "none"]);
    let data = std::fs::File::open(lab.dir.join("data")).unwrap();
    let send = lab.spawn(send.stdin(data).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(drain(listener.accept().unwrap().0), (BYTES, digest));
    let output = send.output();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs `taut` with `--record full/run` on a file system of this size, which nothing else sees.
fn on_a_full_disk(size: &str, args: &[&str]) -> Command {
    let script = format!("mkdir -p full && mount -t tmpfs -o size={size} tmpfs full && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_taut")]).args(args);
    command.args(["--record", "full/run", "--control", "none"]).env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

#[test]
fn a_recording_on_a_full_disk_is_said_at_once_and_is_an_error_at_the_end() {
    let Some(lab) = Lab::new("record-full", &["curl", "unshare"]) else { return };
    lab.file("data", 1_000_000);
    let fetch = || {
        let mut curl = Command::new("curl");
        lab.output(curl.args(["-sS", "--max-time", "60", "http://10.9.0.2/data"])).stdout.len()
    };
    let mut serve = on_a_full_disk("128k", &["serve", "."]);
    let mut serve = lab.spawn(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    eventually("it serves", || fetch() == 1_000_000);
    let rest = serve
        .wait_for("ERROR --record full/run: the recording ended early: it could not be written: No space");
    // It serves on, and its end is the error.
    assert_eq!(fetch(), 1_000_000);
    serve.interrupt();
    assert_eq!(serve.wait(), Some(1));
    let said = rest.join().unwrap();
    assert!(said.trim_end().ends_with("Choose a place with more room or a faster disk"), "{said}");

    // One that ends before its recorder has noticed.
    let listener = lab.kernel.enter(|| TcpListener::bind("0.0.0.0:7000").unwrap()).unwrap();
    let mut send = on_a_full_disk("4k", &["send", &format!("{KERNEL}:7000")]);
    let data = std::fs::File::open(lab.dir.join("data")).unwrap();
    let send = lab.spawn(send.stdin(data).stdout(Stdio::null()).stderr(Stdio::piped()));
    assert_eq!(drain(listener.accept().unwrap().0).0, 1_000_000);
    let output = send.output();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--record full/run: the recording ended early"), "{said}");

    // A header that cannot be written is an error before anything is sent.
    let output =
        lab.output(&mut taut(&["send", "10.9.0.1:7000", "--record", "/dev/full", "--control", "none"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("/dev/full: No space left"), "{said}");
}

#[test]
fn a_recorded_transfer_is_replayed_and_shown_at_any_point() {
    let Some(lab) = Lab::new("replay", &[]) else { return };
    record(&lab);
    let replay = |args: &[&str]| {
        let mut command = taut(&[&["replay"], args].concat());
        let output = command.current_dir(&lab.dir).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };

    let (code, said, error) = replay(&["run"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.ends_with("\nevery packet, event and result is the same\n"), "{said}");
    assert!(!said.contains("ends here"));

    let (_, json, _) = replay(&["run", "--json"]);
    let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((whole["end"].as_str(), whole["difference"].is_null()), (Some("whole"), true));

    // In the middle: what the commands would have shown then.
    let half = (whole["inputs"].as_u64().unwrap() / 2).to_string();
    let (code, said, _) = replay(&["run", "--to", &half, "--capture", "run.pcapng"]);
    assert_eq!(code, Some(0));
    for part in ["State", "ESTAB", "cubic wscale:", "#taut\n", "TcpOutSegs", "10.9.0.1:7000  ", "queue"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(std::fs::metadata(lab.dir.join("run.pcapng")).unwrap().len() > 10_000);
    let (_, explained, _) = replay(&["run", "--to", &half, "explain"]);
    assert!(explained.contains("all connections since the stack began") && !explained.contains("ESTAB"));
    let (code, said, _) = replay(&["run", "--to", &half, "nstat"]);
    assert!(code == Some(0) && said.contains("TcpActiveOpens"), "{said}");
    // By time: how much has happened within a millisecond depends on the machine.
    let (code, said, _) = replay(&["run", "--to", "1ms", "nstat"]);
    assert!(code == Some(0) && said.contains("#taut"), "{said}");

    // A byte of the file is changed.
    let path = lab.dir.join("run");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(lab.dir.join("changed"), &bytes).unwrap();
    let (code, _, error) = replay(&["changed"]);
    assert!(code == Some(1) && error.contains("the recording is damaged at byte"), "{error}");

    // The file is cut, or another one.
    std::fs::write(lab.dir.join("cut"), &bytes[..middle / 2]).unwrap();
    let (code, said, _) = replay(&["cut"]);
    assert!(code == Some(0) && said.contains("ends here without a mark"), "{said}");
    let (code, _, error) = replay(&["data"]);
    assert!(code == Some(1) && error.contains("data: this is not a recording of taut"), "{error}");
    let (code, _, error) = replay(&["none"]);
    assert!(code == Some(1) && error.contains("No such file"), "{error}");
}
