//! The TUN interface is deleted under a running command: the command ends and prints the reason.

use std::net::TcpListener;
use std::process::Stdio;

use taut_device::Interface;

use crate::end_to_end::support::{KERNEL, Lab, taut};

fn delete(lab: &Lab) {
    lab.kernel.enter(|| Interface::open("taut0").unwrap().delete()).unwrap().unwrap();
}

const REASON: &str = "TUN interface taut0 was deleted";

#[test]
fn serve_ends_with_its_interface() {
    for shards in ["1", "2"] {
        let Some(lab) = Lab::new("gone-serve", &[]) else { return };
        let mut serve = taut(&["serve", ".", "--shards", shards]);
        let mut serve = lab.spawn(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
        let rest = serve.wait_for("serving");
        delete(&lab);
        assert_eq!(serve.wait(), Some(1));
        let said = rest.join().unwrap();
        assert!(said.contains(REASON), "{said}");
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
}

/// The same while it waits for its standard input.
#[test]
fn send_ends_while_its_input_is_silent() {
    let Some(lab) = Lab::new("gone-send", &[]) else { return };
    let listener = lab.kernel.enter(|| TcpListener::bind("0.0.0.0:7000").unwrap()).unwrap();
    let mut send = taut(&["send", &format!("{KERNEL}:7000")]);
    let mut send = lab.spawn(send.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()));
    let _input = send.stdin();
    let _connection = listener.accept().unwrap();
    delete(&lab);
    let output = send.output();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(REASON), "{said}");
}

#[test]
fn recv_ends_while_nobody_connects() {
    let Some(lab) = Lab::new("gone-recv", &[]) else { return };
    let mut recv = taut(&["recv", "--listen", "7000"]);
    let mut recv = lab.spawn(recv.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    let rest = recv.wait_for("listening");
    delete(&lab);
    assert_eq!(recv.wait(), Some(1));
    let said = rest.join().unwrap();
    assert!(said.contains(REASON), "{said}");
}
