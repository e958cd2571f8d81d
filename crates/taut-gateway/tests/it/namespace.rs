//! A command in a namespace of its own, by the example `run`: GW-27 to 29, 124 and 126 of
//! `docs/spec/gateway.md`. `cargo test` builds the example together with this test.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use taut_testbed::{Kernel, Scratch, live};

/// An address of the namespace of the test, which is neither loopback nor on a link.
const SERVER: &str = "198.51.100.1";

fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples/run");
    assert!(program.exists(), "{} is not built: `cargo test -p taut-gateway` builds it", program.display());
    program
}

/// The namespace in which the gateway runs; `None`, with a message, if live tests cannot run.
fn host(programs: &[&str]) -> Option<Kernel> {
    if !live::ready(&[&["ip", "sh"], programs].concat()) {
        return None;
    }
    let kernel = Kernel::new().unwrap();
    kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    Some(kernel)
}

/// A server that answers each client with a page.
fn server(kernel: &Kernel) -> u16 {
    let listener = kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 1_000];
            _ = stream.read(&mut asked);
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        }
    });
    port
}

fn output(kernel: &Kernel, command: &mut Command) -> Output {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    kernel.namespace.spawn(command).unwrap().wait_with_output().unwrap()
}

fn inside(kernel: &Kernel, script: &str) -> Output {
    output(kernel, Command::new(program()).args(["sh", "-c", script]))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn gw_27_a_command_has_a_network_of_its_own() {
    let Some(kernel) = host(&["curl", "id", "cat"]) else { return };
    let port = server(&kernel);
    let fetched = inside(&kernel, &format!("curl -sS --max-time 60 http://{SERVER}:{port}/"));
    assert_eq!(text(&fetched), "hello", "{fetched:?}");
    // Root there, with a name server, an interface for super-packets, addresses and a route.
    let script = "id -u; cat /etc/resolv.conf; ip -o link show taut0; ip -o -4 address show taut0; ip route";
    let seen = inside(&kernel, script);
    let said = text(&seen);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["0", "nameserver 10.0.2.2"], "{seen:?}");
    for expected in ["mtu 65520", "inet 10.0.2.15/24", "default dev taut0"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    // The host's file is as it was.
    let own = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    assert_ne!(own.trim(), "nameserver 10.0.2.2");
    // The host's loopback is closed, and the log has the rule.
    let local = kernel.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let port = local.local_addr().unwrap().port();
    let denied = inside(&kernel, &format!("curl -sS --max-time 60 http://10.0.2.2:{port}/"));
    // curl: could not connect.
    assert_eq!(denied.status.code(), Some(7), "{denied:?}");
    assert!(String::from_utf8_lossy(&denied.stderr).contains("deny 127.0.0.0/8"), "{denied:?}");
}

#[test]
fn gw_101_a_new_namespace_bounds_what_its_sockets_have_unsent() {
    let Some(kernel) = host(&["cat"]) else { return };
    let seen = inside(&kernel, "cat /proc/sys/net/ipv4/tcp_notsent_lowat");
    assert_eq!(text(&seen).trim(), "16384", "{seen:?}");
}

#[test]
fn gw_124_a_command_searches_the_domains_of_the_host_with_its_options() {
    let Some(kernel) = host(&["unshare", "mount", "cat"]) else { return };
    let scratch = Scratch::new("resolv-conf");
    let file = scratch.join("resolv.conf");
    let conf = "nameserver 192.0.2.53\nsearch corp.example lab.example\noptions ndots:2 edns0\n";
    std::fs::write(&file, conf).unwrap();
    let (file, program) = (file.display(), program());
    let script =
        format!("mount --bind {file} /etc/resolv.conf && exec {} cat /etc/resolv.conf", program.display());
    let ran = output(&kernel, Command::new("unshare").args(["-m", "sh", "-c", &script]));
    assert_eq!(text(&ran), conf.replace("192.0.2.53", "10.0.2.2"), "{ran:?}");
}

#[test]
fn gw_126_a_command_keeps_its_name_server_when_the_hosts_file_is_replaced() {
    let Some(kernel) = host(&["unshare", "mount", "cat", "timeout", "grep"]) else { return };
    let script = format!(
        "mount -t tmpfs none /etc && echo nameserver 192.0.2.53 >/etc/resolv.conf
         (until [ -e /etc/started ]; do sleep 0.05; done; echo search new.example >/etc/new
          mv /etc/new /etc/resolv.conf; until [ -e /etc/again ]; do sleep 0.05; done; rm /etc/resolv.conf
          echo search other.example >/etc/resolv.conf) &
         exec {} sh -c '>/etc/started
             timeout 60 sh -c \"until [ \\$(grep -c -e new.example -e 10.0.2.2 /etc/resolv.conf) = 2 ]; do sleep 0.05; done\"
             cat /etc/resolv.conf; >/etc/again
             timeout 60 sh -c \"until [ \\$(grep -c -e other.example -e 10.0.2.2 /etc/resolv.conf) = 2 ]; do sleep 0.05; done\"
             cat /etc/resolv.conf'",
        program().display()
    );
    let ran = output(&kernel, Command::new("unshare").args(["-m", "sh", "-c", &script]));
    let expected = ["new", "other"].map(|name| format!("nameserver 10.0.2.2\nsearch {name}.example\n"));
    assert_eq!(text(&ran), expected.concat(), "{ran:?}");
}

#[test]
fn gw_28_the_command_is_the_process() {
    let Some(kernel) = host(&["cat"]) else { return };
    for code in [0, 7] {
        assert_eq!(inside(&kernel, &format!("exit {code}")).status.code(), Some(code));
    }
    let missing = output(&kernel, Command::new(program()).arg("/no/such/program"));
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such/program"), "{missing:?}");
    // Its standard input is the caller's, and not the gateway's socket.
    let mut command = Command::new(program());
    command.arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut cat = kernel.namespace.spawn(&mut command).unwrap();
    cat.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(text(&cat.wait_with_output().unwrap()), "through");
}

/// A user without any privilege, and a device node that anybody may open, as most systems have it.
#[test]
fn gw_29_nothing_needs_root() {
    let Some(kernel) = host(&["curl", "unshare", "setpriv", "mknod", "mount", "cp"]) else { return };
    let port = server(&kernel);
    let script = format!(
        "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 && cp {} /dev/net/run && cd / && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all --no-new-privs \
         /dev/net/run sh -c 'id -u; cat /proc/self/uid_map; curl -sS --max-time 60 http://{SERVER}:{port}/'",
        program().display()
    );
    let ran = output(&kernel, Command::new("unshare").args(["-m", "sh", "-c", &script]));
    let said = text(&ran);
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["0", "0", "65534", "1", "hello"], "{ran:?}");
}
