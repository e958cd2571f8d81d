//! A running gateway is listed and changed by `taut gateway ctl`: GW-236 of `docs/spec/gateway.md`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use taut_testbed::{PATIENCE, eventually};

use super::gateway_operations::{Gateway, SERVER, lab, within};
use super::support::{Lab, taut};

/// A web server of the guest's, at port 80.
const SERVICE: &str = "import socket\n\
    s=socket.create_server(('0.0.0.0',80)); open('listens','w')\n\
    while 1:\n\
    \x20c=s.accept()[0]; c.recv(1000)\n\
    \x20c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\nConnection: close\\r\\n\\r\\ninner'); c.close()\n";

/// A gateway with a guest that serves, and the number of the guest's process.
fn start(lab: &Lab, options: &[&str]) -> (Gateway, u32) {
    let listens = lab.dir.join("listens");
    _ = std::fs::remove_file(&listens);
    let args = [&["gateway", "--run"], options, &["--", "python3", "-c", SERVICE]].concat();
    let gateway = Gateway::by(lab, "log", taut(&args).env("TAUT_CONTROL_DIR", lab.dir.join("control")));
    eventually("the guest listens", || listens.exists());
    let guest = gateway.guest("python3");
    (gateway, guest)
}

fn curl(lab: &Lab, args: &[&str]) -> (Option<i32>, String) {
    let output =
        lab.output(Command::new("curl").args(["-sS", "--max-time", "60"]).args(args).stdin(Stdio::null()));
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `taut gateway ctl`: what it prints, or its error.
fn ctl(lab: &Lab, words: &[&str]) -> Result<String, String> {
    let mut command = taut(&[&["gateway", "ctl"], words].concat());
    let output = lab.output(command.env("TAUT_CONTROL_DIR", lab.dir.join("control")).stdin(Stdio::null()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The words of the lines of a list.
fn words(list: &str) -> Vec<String> {
    list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// A server outside, which says seven bytes to each five.
fn server(lab: &Lab) -> SocketAddr {
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let place = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                while stream.read_exact(&mut [0; 5]).is_ok() {
                    _ = stream.write_all(b"welcome");
                }
            });
        }
    });
    place
}

fn talk(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut said = [0; 7];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"welcome");
}

#[test]
fn gw_236_a_running_gateway_is_listed_and_changed() {
    let Some(lab) = lab("gateway-ctl", &["curl", "python3"]) else { return };
    let place = server(&lab);
    assert!(ctl(&lab, &["flows"]).unwrap_err().contains("no running gateway"));
    let (gateway, guest) = start(&lab, &["--rule", "deny 203.0.113.0/24"]);
    let pid = gateway.running.id().to_string();
    let refused = |words: &[&str], why: &str| {
        let error = ctl(&lab, words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    };
    // Ports that come and go, at once.
    let url = "http://127.0.0.1:7080/";
    assert_eq!(ctl(&lab, &["forwards"]).unwrap(), "");
    assert_eq!(curl(&lab, &[url]).0, Some(7), "refused");
    assert_eq!(
        words(&ctl(&lab, &["forward", "add", "tcp", "7080:80"]).unwrap()),
        ["tcp 127.0.0.1:7080 -> 80"]
    );
    assert_eq!(curl(&lab, &[url]), (Some(0), "inner".to_owned()));
    let both = words(&ctl(&lab, &["forward", "add", "udp", "[::1]:7053:53"]).unwrap());
    assert_eq!(both, ["tcp 127.0.0.1:7080 -> 80", "udp [::1]:7053 -> 53"]);
    assert!(lab.kernel.enter(|| UdpSocket::bind("[::1]:7053")).unwrap().is_err());
    refused(&["forward", "add", "tcp", "7080:81"], "cannot forward 127.0.0.1:7080: it is forwarded already");
    assert_eq!(
        words(&ctl(&lab, &[&pid, "forward", "remove", "tcp", "7080"]).unwrap()),
        ["udp [::1]:7053 -> 53"]
    );
    assert_eq!(curl(&lab, &[url]).0, Some(7), "refused again");
    assert_eq!(ctl(&lab, &["forward", "remove", "udp", "[::1]:7053"]).unwrap(), "");
    lab.kernel.enter(|| UdpSocket::bind("[::1]:7053")).unwrap().unwrap();
    refused(&["forward", "remove", "tcp", "7080"], "127.0.0.1:7080 is not forwarded");
    refused(&["forward", "add", "tcp", "80:80"], "CAP_NET_BIND_SERVICE");
    // All ports of a range, or none.
    let taken = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:7091")).unwrap().unwrap();
    refused(&["forward", "add", "tcp", "7090-7091:80-81"], "cannot forward 127.0.0.1:7091: Address");
    assert_eq!(ctl(&lab, &["forwards"]).unwrap(), "");
    drop(taken);
    // A flow, and what it has carried.
    let connect = || within(guest, || TcpStream::connect(place));
    let mut runs = connect().unwrap();
    talk(&mut runs);
    let from = runs.local_addr().unwrap();
    let flows = || -> Vec<Value> { serde_json::from_str(&ctl(&lab, &["flows", "--json"]).unwrap()).unwrap() };
    // Bytes are counted after they have passed.
    eventually("a flow with its bytes", || flows().iter().any(|flow| flow["down"] == json!(7)));
    let all = flows();
    let mut flow = all[0].clone();
    assert!(flow["age_ns"].as_u64().unwrap() > 0 && all.len() == 1, "{all:?}");
    flow["age_ns"] = json!(0);
    let expected = json!({
        "kind": "tcp", "guest": from.to_string(), "peer": place.to_string(), "rule": "allow any",
        "up": 5, "down": 7, "age_ns": 0,
    });
    assert_eq!(flow, expected);
    let line = ctl(&lab, &["flows"]).unwrap();
    assert!(line.contains(&format!("{from}  ->  {place}")) && line.contains("down 7 B"), "{line}");
    let guests = ctl(&lab, &["guests"]).unwrap();
    assert!(guests.contains("10.0.2.15") && guests.contains("connections 1"), "{guests}");
    assert_eq!(ctl(&lab, &["leases", "--json"]).unwrap(), "[]\n");
    // A changed rule holds for new flows.
    let deny = format!("deny {SERVER}");
    let rules = words(&ctl(&lab, &["rule", "add", &deny]).unwrap());
    assert_eq!(rules[..2], [format!("1 {deny}"), "2 deny 203.0.113.0/24".to_owned()]);
    assert_eq!(rules.last().unwrap(), "13 allow any (default)");
    assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::HostUnreachable);
    talk(&mut runs);
    let rules = words(&ctl(&lab, &["rule", "add", "allow", SERVER, "--at", "2"]).unwrap());
    assert_eq!(rules[1], format!("2 allow {SERVER}"));
    assert!(connect().is_err(), "the first rule decides");
    assert_eq!(words(&ctl(&lab, &["rule", "remove", "1"]).unwrap())[0], format!("1 allow {SERVER}"));
    talk(&mut connect().unwrap());
    assert_eq!(words(&ctl(&lab, &["rules"]).unwrap()).len(), 13);
    refused(&["rule", "add", "forbid any"], "it begins with allow, deny or drop");
    refused(&["rule", "remove", "13"], "rule 13 is one of the defaults");
    refused(&["rule", "add", "deny any", "--at", "9"], "there is no place 9");
    // One of two.
    let (other, _) = start(&lab, &[]);
    refused(&["flows"], "several gateways are running");
    refused(&["1", "flows"], "no running gateway with the interface or process 1");
    let of = |gateway: &Gateway| {
        let pid = gateway.running.id().to_string();
        words(&ctl(&lab, &[&pid, "rules"]).unwrap()).len()
    };
    assert_eq!((of(&gateway), of(&other)), (13, 11));
}
