//! A capture of both directions, checked by tshark: no malformed packet, no wrong checksum, no
//! retransmission, no missing packet.
//!
//! With offload the capture has the headers of super-packets, whose TCP checksums are partial; so the
//! checksums are checked without offload, on whole packets of a shorter transfer.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use taut_testbed::eventually;

use crate::end_to_end::support::{Lab, TAUT, drain};

/// Reads the capture; the packets that `filter` selects, one line each.
fn select(lab: &Lab, filter: &str) -> Vec<String> {
    let checks = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE"];
    let output = lab.output(
        Command::new("tshark")
            .args(["-n", "-r", "capture.pcapng", "-Y", filter])
            // The payload is noise, which tshark would take for a protocol of either port.
            .args(["-d", "tcp.port==1-65535,data"])
            .args(checks.iter().flat_map(|check| ["-o", check]))
            .stdin(Stdio::null()),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn ip(lab: &Lab, args: &str) {
    let output = lab.output(Command::new("ip").args(args.split(' ')));
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves `bytes` each way over IPv4 while dumpcap writes the first `snaplen` bytes of each packet.
fn capture(lab: &Lab, bytes: u64, snaplen: &str, more: &[&str]) {
    // An interface that outlives the two commands, prepared as an administrator would.
    ip(lab, "tuntap add dev taut0 mode tun");
    ip(lab, "link set taut0 up txqueuelen 10000");
    ip(lab, "address add 10.9.0.1/24 dev taut0");
    let digest = lab.file("data", bytes);
    let mut dumpcap = Command::new("dumpcap");
    dumpcap.args(["-q", "-i", "taut0", "-s", snaplen, "-B", "64", "-w", "capture.pcapng"]);
    let dumpcap = lab.spawn(dumpcap.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    eventually("dumpcap writes", || {
        std::fs::metadata(lab.dir.join("capture.pcapng")).is_ok_and(|file| file.len() > 0)
    });

    let mut server = lab.taut(&[&["serve", "."], more].concat(), "serving");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--max-time", "60", &format!("http://{TAUT}/data")]);
    let mut curl = lab.spawn(curl.stdout(Stdio::piped()));
    assert_eq!(drain(curl.stdout()), (bytes, digest.clone()));
    assert_eq!(curl.wait(), Some(0));
    server.interrupt();
    assert_eq!(server.wait(), Some(0));

    let mut recv = lab.taut(&[&["recv", "--listen", "7000"], more].concat(), "listening");
    let data = std::fs::read(lab.dir.join("data")).unwrap();
    let got = std::thread::scope(|scope| {
        let stdout = recv.stdout();
        let got = scope.spawn(|| drain(stdout));
        let sent = lab.kernel.enter(|| TcpStream::connect(format!("{TAUT}:7000")).unwrap().write_all(&data));
        sent.unwrap().unwrap();
        got.join().unwrap()
    });
    assert_eq!(got, (bytes, digest));
    assert_eq!(recv.wait(), Some(0));

    dumpcap.interrupt();
    let said = dumpcap.output();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    // "Packets received/dropped on interface 'taut0': 1234/0 (…)": only a complete capture can be judged.
    let counts =
        said.lines().find(|line| line.contains("received/dropped")).unwrap_or_else(|| panic!("{said}"));
    assert!(counts.contains("/0 ("), "{counts}");
}

/// Faults that no capture of a clean link may contain.
//
// On a busy machine either end may answer so late that the other sends a tail loss probe; that is no fault of
// the capture. taut's comes at least 2 ms after any other packet (TLP-1), and a retransmission for no reason
// would come at once. tshark marks a probe as spurious if the capture has the ACK, even if the stack has not
// read it yet. The ACK of a needless probe is a duplicate with a block of SACK (RFC 2883); a loss has other
// faults.
const FAULTS: [&str; 6] = [
    "_ws.malformed",
    "ip.checksum.status == \"Bad\"",
    "ip.src == 10.9.0.2 && tcp.time_delta < 0.002 && !tcp.analysis.spurious_retransmission && \
     (tcp.analysis.retransmission || tcp.analysis.fast_retransmission)",
    "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment",
    "tcp.analysis.out_of_order || (tcp.analysis.duplicate_ack && !tcp.options.sack_le)",
    "tcp.flags.reset == 1",
];

fn assert_clean(lab: &Lab, more: &[&str]) {
    assert!(
        !select(lab, "tcp.flags.syn == 1 && tcp.flags.ack == 1").is_empty(),
        "the capture has no connection"
    );
    for filter in FAULTS.iter().chain(more) {
        let found = select(lab, filter);
        let some = found.iter().take(10).fold(String::new(), |text, line| text + line + "\n");
        assert!(found.is_empty(), "{} packets are {filter}:\n{some}", found.len());
    }
}

#[test]
fn a_capture_of_super_packets_is_clean() {
    let Some(lab) = Lab::new("capture", &["ip", "curl", "tshark", "dumpcap"]) else { return };
    capture(&lab, 50_000_000, "128", &[]);
    assert_clean(&lab, &[]);
    assert!(!select(&lab, "ip.src == 10.9.0.2 && tcp.len > 1460").is_empty(), "taut sent no super-packet");
}

#[test]
fn a_capture_of_plain_packets_is_clean_and_their_checksums_are_right() {
    let Some(lab) = Lab::new("capture-plain", &["ip", "curl", "tshark", "dumpcap"]) else { return };
    capture(&lab, 10_000_000, "0", &["--no-offload"]);
    // tshark did check them.
    assert!(
        !select(
            &lab,
            "ip.src == 10.9.0.2 && ip.checksum.status == \"Good\" && tcp.checksum.status == \"Good\""
        )
        .is_empty()
    );
    // Once in 65,536 times, the kernel writes a sum of zero as 0xffff, the other zero of ones' complement,
    // which tshark reports as bad. taut's checksums must all be good.
    let bad = "tcp.checksum.status == \"Bad\" && (ip.src == 10.9.0.2 || tcp.checksum != 0xffff)";
    assert_clean(&lab, &[bad, "frame.len > 1500"]);
}
