//! `--record` and `taut replay`: a transfer to the kernel, run again.

use std::net::TcpListener;
use std::process::Stdio;

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
