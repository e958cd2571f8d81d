//! Rules by real programs in a guest: dig, curl, openssl, Python's ssl. GW-172, 175, 182, 183, 203 and 248 of
//! `docs/spec/gateway.md`.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use taut_testbed::eventually;

use super::gateway_operations::{SERVER, lab};
use super::support::{Lab, Running, taut};

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
fn gw_248_a_class_is_refused_where_flows_cannot_have_one() {
    let rule = ["--rule", "allow tcp any class bulk"];
    for (args, why) in [
        (&["gateway", "--show-rules", "--out", "tun:x"][..], "by --out tun or wireguard cannot"),
        (&["proxy"], "over the link cannot"),
    ] {
        let output = taut(&[args, &rule].concat()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    }
    let output = taut(&[&["gateway", "--show-rules"], &rule[..]].concat()).output().unwrap();
    assert!(output.stdout.starts_with(b"allow tcp any class bulk\n"), "{output:?}");
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

/// `openssl s_server` with a certificate for each of two names.
fn tls_server(lab: &Lab, options: &[&str]) -> Running {
    for name in NAMES {
        let mut request = Command::new("openssl");
        request.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]);
        request.args(["-subj", &format!("/CN={name}"), "-keyout", &format!("{name}.key"), "-out", name]);
        let output = lab.output(&mut request);
        assert!(output.status.success(), "{output:?}");
    }
    let mut server = Command::new("openssl");
    server.args(["s_server", "-www", "-accept", &format!("{SERVER}:443"), "-cert", NAMES[0]]);
    server.args([
        "-key",
        "one.example.key",
        "-servername",
        NAMES[1],
        "-cert2",
        NAMES[1],
        "-key2",
        "two.example.key",
    ]);
    server.args(options).stdin(Stdio::null()).stdout(Stdio::null());
    let running = lab.spawn(&mut server);
    eventually("the server listens", || {
        lab.kernel.enter(|| std::net::TcpStream::connect((SERVER, 443))).unwrap().is_ok()
    });
    running
}

/// Python's TLS, which sends its ClientHello byte by byte.
const IN_PIECES: &str = "import socket,ssl,sys\n\
    c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname=False; c.verify_mode=ssl.CERT_NONE\n\
    i,o=ssl.MemoryBIO(),ssl.MemoryBIO(); t=c.wrap_bio(i,o,server_hostname=sys.argv[1])\n\
    s=socket.create_connection(('one.example',443),20); s.setsockopt(6,1,1)\n\
    while True:\n\
    \x20try: t.do_handshake(); break\n\
    \x20except ssl.SSLWantReadError: pass\n\
    \x20for b in o.read(): s.send(bytes([b]))\n\
    \x20i.write(s.recv(65536))\n\
    print(t.version())\n";

#[test]
fn gw_182_another_name_at_the_same_address_is_refused() {
    let Some(lab) = lab("gateway-sni", &["curl", "openssl", "python3"]) else { return };
    let (dns, _asked) = name_server(&lab);
    let options = ["--dns", &dns, "--rule", "allow one.example port 80,443", "--rule", "deny any"];
    // P-384 alone is what no client offers a key for: the server has it say its hello again.
    for groups in ["X25519:P-256", "P-384"] {
        let _server = tls_server(&lab, &["-groups", groups]);
        let client = "openssl s_client -connect one.example:443 -brief </dev/null 2>&1 -servername";
        let script = format!(
            "test $(curl -sSk --max-time 60 https://one.example/ | grep -c s_server) -gt 0 && echo page; \
             {client} one.example | grep -o 'CN *= *[a-z.]*' | tail -n 1; \
             {client} two.example | grep -c 'CN *='; \
             openssl s_client -connect one.example:443 -noservername -brief </dev/null 2>&1 | grep -c 'CN *='; \
             curl -sSk --max-time 60 --resolve two.example:443:{SERVER} https://two.example/ 2>/dev/null; echo $?; \
             python3 -c \"$PIECES\" one.example; \
             python3 -c \"$PIECES\" two.example 2>&1 | tail -n 1 | cut -d: -f1"
        );
        let args = [&["gateway", "--run"], &options[..], &["--", "sh", "-c", &script]].concat();
        let output = lab.output(taut(&args).env("PIECES", IN_PIECES).stdin(Stdio::null()));
        let (printed, log) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines.len(), 7, "{groups}: {printed}{log}");
        assert_eq!(lines[0], "page", "{groups}: {printed}{log}");
        assert!(lines[1].ends_with("one.example"), "{groups}: {printed}{log}");
        // 35: the connection ended while curl shook hands.
        assert_eq!(lines[2..5], ["0", "0", "35"], "{groups}: {printed}{log}");
        assert_eq!(lines[5..], ["TLSv1.3", "ConnectionResetError"], "{groups}: {printed}{log}");
        assert!(log.contains("deny any: it is for two.example"), "{log}");
        assert!(log.contains("its ClientHello names no server"), "{log}");
    }
}

#[test]
fn gw_183_http_other_protocols_and_quic_of_a_rule_with_a_name() {
    let Some(lab) = lab("gateway-host", &["curl", "python3"]) else { return };
    let (dns, _asked) = name_server(&lab);
    let (seen, requests) = channel();
    let web = lab.kernel.enter(|| TcpListener::bind((SERVER, 80))).unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in web.incoming().map_while(Result::ok) {
            let mut request = [0; 1_000];
            let len = stream.read(&mut request).unwrap_or(0);
            _ = seen.send(String::from_utf8_lossy(&request[..len]).into_owned());
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        }
    });
    // A server that speaks first, and then repeats a line.
    let mail = lab.kernel.enter(|| TcpListener::bind((SERVER, 25))).unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in mail.incoming().map_while(Result::ok) {
            _ = stream.write_all(b"220 mail\r\n");
            let mut line = [0; 100];
            let len = stream.read(&mut line).unwrap_or(0);
            _ = stream.write_all(&line[..len]);
        }
    });
    let quic = lab.kernel.enter(|| UdpSocket::bind((SERVER, 443))).unwrap().unwrap();
    let options = ["--dns", &dns, "--rule", "allow one.example", "--rule", "deny any"];
    let udp = "import socket,time\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(('one.example',443))\n\
        s.send(b'q'); time.sleep(0.5)\n\
        try: s.send(b'q'); print('sent')\n\
        except OSError as e: print('refused')\n";
    let smtp = "import socket\n\
        s=socket.create_connection(('one.example',25),20); f=s.makefile('rwb')\n\
        print(f.readline().decode().strip()); f.write(b'EHLO me\\r\\n'); f.flush()\n\
        print(f.readline().decode().strip())\n";
    let script = format!(
        "curl -sS --max-time 60 http://one.example/; echo; \
         curl -s --max-time 60 -H 'Host: two.example' http://one.example/; echo $?; \
         curl -s --max-time 60 --resolve two.example:80:{SERVER} http://two.example/; echo $?; \
         python3 -c \"$SMTP\"; python3 -c \"$QUIC\""
    );
    let args = [&["gateway", "--run"], &options[..], &["--", "sh", "-c", &script]].concat();
    let output = lab.output(taut(&args).env("SMTP", smtp).env("QUIC", udp).stdin(Stdio::null()));
    let (printed, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // 56: the connection was reset.
    assert_eq!(printed, "hello\n56\n56\n220 mail\nEHLO me\nrefused\n", "{log}");
    let requests: Vec<String> = requests.try_iter().filter(|request| !request.is_empty()).collect();
    assert!(requests.len() == 1 && requests[0].contains("Host: one.example\r\n"), "{requests:?}");
    quic.set_nonblocking(true).unwrap();
    assert!(quic.recv(&mut [0]).is_err(), "a datagram arrived");
}

#[test]
fn gw_203_the_rules_of_a_dry_run_confine_the_next_one() {
    let Some(lab) = lab("gateway-dry", &["curl", "openssl"]) else { return };
    let (dns, _asked) = name_server(&lab);
    let _server = tls_server(&lab, &[]);
    // With -q, grep would end first, and curl would fail with a line of its own.
    let fetch = "test $(curl -sSk --max-time 60 https://one.example/ | grep -c s_server) -gt 0 && echo page";
    let first = ["--dns", &dns, "--log", "json", "--dry-run", "--rule", "deny any"];
    let (printed, log) = inside(&lab, &first, fetch);
    assert_eq!(printed, "page\n", "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let flow = lines.iter().find(|line| line["event"] == "flow" && line["kind"] == "tcp").expect(&log);
    assert_eq!(flow["name"], "one.example");
    assert_eq!(flow["to"], format!("{SERVER}:443"));
    assert!(flow["would-deny"] == true && flow["rule"].as_str().unwrap().starts_with("deny any"), "{flow}");
    assert!(flow["guest"].as_str().unwrap().starts_with("10.0.2.15:"), "{flow}");
    // A ClientHello, and a page of OpenSSL's.
    assert!(flow["up"].as_u64() > Some(300) && flow["down"].as_u64() > Some(1_000), "{flow}");
    assert!(lines.iter().any(|line| line["event"] == "name-denied" && line["dry-run"] == true), "{log}");
    std::fs::write(lab.dir.join("log"), &log).unwrap();
    let output = lab.output(&mut taut(&["gateway", "rules-from", "log"]));
    let rules = String::from_utf8_lossy(&output.stdout);
    assert_eq!(rules, "rules = [\n  \"allow tcp one.example port 443\",\n  \"deny any\",\n]\n");
    std::fs::write(lab.dir.join("rules.toml"), &*rules).unwrap();
    let config = lab.dir.join("rules.toml").display().to_string();
    let both = format!("{fetch}; curl -s --max-time 60 https://two.example/; echo $?");
    let (printed, log) = inside(&lab, &["--dns", &dns, "--config", &config], &both);
    // 6: the name was not resolved.
    assert_eq!(printed, "page\n6\n", "{log}");
}
