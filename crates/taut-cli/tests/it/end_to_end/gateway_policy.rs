//! Rules by real programs in a guest: dig, curl. GW-172 and 175 of `docs/spec/gateway.md`.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use super::gateway_operations::{SERVER, lab};
use super::support::{Lab, taut};

/// The names that the name server below has.
const NAMES: [&str; 2] = ["one.example", "two.example"];

/// A name server in the test's namespace, whose names are all at [`SERVER`]. It reports those that it
/// receives.
fn name_server(lab: &Lab) -> (String, Receiver<String>) {
    let socket = lab.kernel.enter(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    let place = socket.local_addr().unwrap().to_string();
    let (asked, names) = channel();
    std::thread::spawn(move || {
        let mut message = [0; 4_096];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            let end = 12 + message[12..len].iter().position(|byte| *byte == 0).unwrap();
            let name = String::from_utf8_lossy(&message[13..end]).replace(|c: char| c.is_control(), ".");
            let kind = message[end + 2];
            let mut answer = message[..end + 5].to_vec();
            let is_known = NAMES.contains(&&*name);
            answer[2..4].copy_from_slice(&[0x81, if is_known { 0x80 } else { 0x83 }]);
            answer[6..12].copy_from_slice(&[0, u8::from(is_known && kind == 1), 0, 0, 0, 0]);
            if is_known && kind == 1 {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend(SERVER.parse::<Ipv4Addr>().unwrap().octets());
            }
            _ = socket.send_to(&answer, from);
            _ = asked.send(name);
        }
    });
    (place, names)
}

/// The output of a guest, and the log.
fn inside(lab: &Lab, options: &[&str], script: &str) -> (String, String) {
    let args = [&["gateway", "--run"], options, &["--", "sh", "-c", script]].concat();
    let output = lab.output(taut(&args).stdin(Stdio::null()));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn gw_172_no_private_closes_this_hosts_networks() {
    let Some(lab) = lab("gateway-private", &["curl"]) else { return };
    let output =
        lab.output(&mut taut(&["gateway", "--no-private", "--rule", "allow 10.1.0.0/16", "--show-rules"]));
    let rules = String::from_utf8_lossy(&output.stdout);
    for rule in ["deny 10.0.0.0/8", "deny fc00::/7", "deny 198.51.100.1", "deny 169.254.0.0/16"] {
        assert!(rules.lines().any(|line| line == rule), "{rule}: {rules}");
    }
    assert!(rules.starts_with("allow 10.1.0.0/16\n") && rules.ends_with("allow any\n"), "{rules}");
    // The address of this host is a network of its own; a reload keeps it.
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 80))).unwrap().unwrap();
    let fetch = format!("curl -s --max-time 20 http://{SERVER}/; echo $?");
    let (printed, log) = inside(&lab, &["--no-private"], &fetch);
    assert_eq!(printed, "7\n", "{log}");
    assert!(log.contains("deny 198.51.100.1"), "{log}");
    drop(listener);
}

#[test]
fn gw_175_a_question_for_a_name_of_no_rule_does_not_leave() {
    let Some(lab) = lab("gateway-tunnel", &["dig"]) else { return };
    let (dns, asked) = name_server(&lab);
    let options = ["--dns", &dns, "--rule", "allow one.example port 443", "--rule", "deny any"];
    let dig = "for name in secret.two.example two.example 9.9.9.9.in-addr.arpa; do \
               for kind in A TXT; do dig +tries=1 +time=20 $name $kind | grep -o 'status: [A-Z]*'; done; done; \
               dig +tcp +tries=1 +time=20 two.example | grep -o 'status: [A-Z]*'; \
               dig +tries=1 +time=20 +short one.example";
    let (printed, log) = inside(&lab, &options, dig);
    let expected = format!("{}{SERVER}\n", "status: REFUSED\n".repeat(7));
    assert_eq!(printed, expected, "{log}");
    assert!(log.contains("denied: name secret.two.example for 10.0.2.15: deny any"), "{log}");
    let names: Vec<String> = asked.try_iter().collect();
    assert!(!names.is_empty() && names.iter().all(|name| name == "one.example"), "{names:?}");
}
