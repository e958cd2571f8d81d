//! `taut udp`: iperf3's clients, both ways, and the echo.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::support::{Lab, TAUT};

fn iperf3(lab: &Lab, arguments: &str) -> serde_json::Value {
    let mut command = Command::new("iperf3");
    command.args(["-c", TAUT, "-J"]).args(arguments.split(' '));
    let output = lab.output(&mut command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("iperf3 {arguments}: {said}"))
}

#[test]
fn iperf3_sends_to_taut_udp_and_receives_from_it() {
    let Some(lab) = Lab::new("iperf3", &["iperf3"]) else { return };
    let mut server = lab.taut(&["udp", "--json"], "iperf3 -u at 10.9.0.2:5201");
    // A wide margin: what is lost on a busy machine is no matter of this test.
    for (arguments, streams) in [("-u -b 20M -l 1200 -t 1", 1), ("-u -b 5M -l 900 -t 1 -P 3", 3)] {
        for (way, reverse) in [("", false), (" -R", true)] {
            let report = iperf3(&lab, &format!("{arguments}{way}"));
            assert!(report["error"].is_null(), "{arguments}{way}: {}", report["error"]);
            assert_eq!(report["end"]["streams"].as_array().unwrap().len(), streams);
            let sum = &report["end"]["sum"];
            let (packets, lost) = (sum["packets"].as_u64().unwrap(), sum["lost_packets"].as_u64().unwrap());
            // 20 Mbit/s of 1,200 bytes are 2,083 a second; three times 5 Mbit/s of 900 bytes also.
            assert!((1_000..4_000).contains(&packets) && lost < packets / 2, "{arguments}{way}: {sum}");
            let said = report["start"]["test_start"]["reverse"].as_u64().unwrap() == 1;
            assert_eq!(said, reverse);
        }
    }
    // A client of TCP is refused, and the next one is served.
    assert!(!iperf3(&lab, "-t 1")["error"].is_null());
    assert!(iperf3(&lab, "-u -b 1M -t 1")["error"].is_null());
    let echo = lab.kernel.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.connect((TAUT, 7))?;
        socket.send(b"over a TUN")?;
        let mut answer = [0; 100];
        let len = socket.recv(&mut answer)?;
        std::io::Result::Ok(answer[..len].to_vec())
    });
    assert_eq!(echo.unwrap().unwrap(), b"over a TUN");
    server.interrupt();
    assert_eq!(server.wait(), Some(0));
}
