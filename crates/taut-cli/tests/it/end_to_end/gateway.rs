//! `taut gateway --run`: a command in a namespace of its own, with a network through the namespace of the
//! test; as GW-27 to 29 of `docs/spec/gateway.md`, by the command.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use super::support::{Lab, taut};

/// An address of the namespace of the test, which is neither loopback nor on a link.
const SERVER: &str = "198.51.100.1";

fn lab(name: &str, programs: &[&str]) -> Option<Lab> {
    let lab = Lab::without_turn(name, &[&["ip", "sh"], programs].concat())?;
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    Some(lab)
}

/// A server that answers each client with the same bytes, and with what it was asked.
fn server(lab: &Lab, answer: &'static [u8]) -> u16 {
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 1_000];
            _ = stream.read(&mut asked);
            _ = stream.write_all(answer);
        }
    });
    port
}

/// The standard output, the errors and the exit code of a command inside.
fn inside(lab: &Lab, options: &[&str], script: &str) -> (String, String, i32) {
    let args = [&["gateway", "--run"], options, &["--", "sh", "-c", script]].concat();
    let output = lab.output(taut(&args).stdin(Stdio::null()));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn a_command_has_a_network_of_its_own() {
    let Some(lab) = lab("gateway-run", &["curl", "id", "cat"]) else { return };
    let port = server(&lab, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    let fetch = format!("curl -sS --max-time 60 http://{SERVER}:{port}/");
    assert_eq!(inside(&lab, &[], &fetch).0, "hello");
    // Root there, with a name server and an interface for super-packets.
    let (seen, _, _) = inside(
        &lab,
        &[],
        "id -u; cat /etc/resolv.conf; ip -o link show taut0; ip -o -4 addr show taut0; ip route",
    );
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[..2], ["0", "nameserver 10.0.2.2"], "{seen}");
    assert!(
        seen.contains("mtu 65520") && seen.contains("10.0.2.15/24") && seen.contains("default dev taut0"),
        "{seen}"
    );
    let searching = ["--search", "a.test", "--search", "b.test"];
    let (seen, _, _) = inside(&lab, &searching, "cat /etc/resolv.conf");
    assert!(seen.lines().any(|line| line == "search a.test b.test"), "{seen}");
    // The host's file is as it was.
    assert_ne!(std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default().trim(), "nameserver 10.0.2.2");
    // A rule that denies, with its line in the log; and the host's loopback, by choice.
    let (_, log, code) = inside(&lab, &["--rule", "deny 198.51.100.0/24"], &fetch);
    assert_eq!(code, 7, "curl: could not connect; {log}");
    assert!(log.contains("denied: tcp from 10.0.2.15") && log.contains("deny 198.51.100.0/24"), "{log}");
    let local = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let port = local.local_addr().unwrap().port();
    let own = format!("curl -sS --http0.9 --max-time 60 http://10.0.2.2:{port}/");
    let (_, log, code) = inside(&lab, &[], &own);
    assert_eq!(code, 7, "{log}");
    let served = std::thread::spawn(move || {
        let (mut stream, _) = local.accept().unwrap();
        assert!(stream.read(&mut [0; 1_000]).unwrap() > 0);
        stream.write_all(b"local").unwrap();
    });
    assert_eq!(inside(&lab, &["--host-loopback"], &own).0, "local");
    served.join().unwrap();
}

#[test]
fn exit_codes_signals_and_standard_input_are_the_commands() {
    let Some(lab) = lab("gateway-codes", &["cat", "kill"]) else { return };
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        assert_eq!(inside(&lab, &[], script).2, expected, "{script}");
    }
    let output = lab.output(taut(&["gateway", "--run", "--", "/no/such/program"]).stdin(Stdio::null()));
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"), "{output:?}");
    // A wrong argument is an error before anything runs.
    let output = lab.output(&mut taut(&["gateway", "--run", "--rule", "allow 10.0.0.0/40", "--", "true"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a rule"), "{output:?}");
    let output = lab.output(&mut taut(&["gateway", "--netns", "/no/such/file"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/file"), "{output:?}");
    // Standard input, and its end.
    let args = ["gateway", "--run", "--", "cat"];
    let mut cat = lab.spawn(taut(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut stdin = cat.stdin();
    stdin.write_all(b"through").unwrap();
    drop(stdin);
    let output = cat.output();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"through"[..], Some(0)), "{output:?}");
    // TERM goes on to the command, which may do with it what it likes.
    let script = "trap 'echo told; exit 3' TERM; echo ready >&2; while :; do sleep 0.1; done";
    let args = ["gateway", "--run", "--", "sh", "-c", script];
    let running = lab.taut(&args, "ready");
    running.signal("TERM");
    let output = running.output();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"told\n"[..], Some(3)), "{output:?}");
}

/// A user without any privilege, and a device node that anybody may open, as most systems have it.
#[test]
fn nothing_needs_root() {
    let Some(lab) = lab("gateway-rootless", &["curl", "unshare", "setpriv", "mknod", "mount", "cp"]) else {
        return;
    };
    let port = server(&lab, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    let script = format!(
        "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && cp {} /dev/net/taut && cd / && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --no-new-privs \
         /dev/net/taut gateway --run --control none -- sh -c \
         'id -u; cat /proc/self/uid_map; curl -sS --max-time 60 http://{SERVER}:{port}/'",
        env!("CARGO_BIN_EXE_taut")
    );
    let output = lab.output(Command::new("unshare").args(["-m", "sh", "-c", &script]).stdin(Stdio::null()));
    let said = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["0", "0", "65534", "1", "hello"], "{output:?}");
}
