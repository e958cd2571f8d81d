//! `taut send` and `taut recv` against the kernel's sockets, IPv4 and IPv6, and what Ctrl-C does.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;

use taut_cli::text::hex;
use taut_testbed::{Noise, sha256};

use crate::end_to_end::support::{KERNEL, Lab, TAUT, drain, taut};

const BYTES: usize = 100_000_000;
const LINKS: [(&str, &str, &str); 2] =
    [(TAUT, KERNEL, "10.9.0.2/24"), ("[fd09::2]", "[fd09::1]", "fd09::2/64")];

#[test]
fn recv_gets_what_a_kernel_socket_sent() {
    let Some(lab) = Lab::new("recv", &[]) else { return };
    let data = Noise::new(1).bytes(BYTES);
    for (own, _, address) in LINKS {
        let mut recv = taut(&["recv", "--listen", "7000", "--address", address]);
        let mut recv = lab.spawn(recv.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        recv.wait_for("listening");
        let (got, end) = std::thread::scope(|scope| {
            let stdout = recv.stdout();
            let got = scope.spawn(|| drain(stdout));
            let end = lab.kernel.enter(|| {
                let mut stream = TcpStream::connect(format!("{own}:7000")).unwrap();
                stream.write_all(&data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                stream.read(&mut [0]).unwrap()
            });
            (got.join().unwrap(), end.unwrap())
        });
        assert_eq!(end, 0);
        assert_eq!(got, (BYTES as u64, hex(&sha256(&data))));
        assert_eq!(recv.wait(), Some(0));
    }
}

#[test]
fn a_kernel_socket_gets_what_send_sent() {
    let Some(lab) = Lab::new("send", &[]) else { return };
    let digest = lab.file("data", BYTES as u64);
    for (_, peer, address) in LINKS {
        let listener = lab.kernel.enter(|| TcpListener::bind("[::]:7000").unwrap()).unwrap();
        let mut send = taut(&["send", &format!("{peer}:7000"), "--json", "--address", address]);
        let data = std::fs::File::open(lab.dir.join("data")).unwrap();
        let send = lab.spawn(send.stdin(data).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let got = drain(listener.accept().unwrap().0);
        assert_eq!(got, (BYTES as u64, digest.clone()));
        let output = send.output();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(summary["sha256"].as_str(), Some(&*digest));
    }
}

#[test]
fn an_interrupted_transfer_is_a_reset_for_its_peer_and_not_an_end() {
    let Some(lab) = Lab::new("interrupt", &[]) else { return };

    let mut recv = lab.taut(&["recv", "--listen", "7000"], "listening");
    let mut stream = lab.kernel.enter(|| TcpStream::connect(format!("{TAUT}:7000")).unwrap()).unwrap();
    stream.write_all(b"some").unwrap();
    recv.stdout().read_exact(&mut [0; 4]).unwrap();
    recv.interrupt();
    assert_eq!(recv.wait(), Some(130));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);

    let listener = lab.kernel.enter(|| TcpListener::bind("0.0.0.0:7001").unwrap()).unwrap();
    let mut send = taut(&["send", &format!("{KERNEL}:7001")]);
    let mut send = lab.spawn(send.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()));
    let mut stdin = send.stdin();
    stdin.write_all(b"some").unwrap();
    let mut stream = listener.accept().unwrap().0;
    stream.read_exact(&mut [0; 4]).unwrap();
    send.interrupt();
    assert_eq!(send.wait(), Some(130));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}
