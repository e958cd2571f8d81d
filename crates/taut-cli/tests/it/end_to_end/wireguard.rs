//! `taut wg`, `--device wireguard:FILE` and `taut gateway --out wireguard:FILE`. WG-30 to 33 and 35 to 38 of
//! `docs/spec/wireguard.md`.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use taut::{Stack, blocking};
use taut_device::sys::Capture;
use taut_testbed::{Kernel, PATIENCE, Subnet, eventually};
use taut_wireguard::{Config, PrivateKey, WireGuard};

use super::support::{Lab, Running, taut};

/// The port of the far end.
const PORT: u16 = 51820;

/// Standard output of a command that gets `input`.
fn with_input(args: &[&str], input: &str) -> Output {
    let mut command = taut(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn wg_30_keys_are_those_of_wg() {
    // RFC 7748 §6.1.
    let output = with_input(&["wg", "pubkey"], "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n");
    let key = String::from_utf8(with_input(&["wg", "genkey"], "").stdout).unwrap();
    assert_eq!((key.len(), key.trim().parse::<PrivateKey>().is_ok()), (45, true));
    let wrong = with_input(&["wg", "pubkey"], "dwdtCnMYpX08\n");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(1) && said.contains("not a key") && !said.contains("dwdt"), "{said}");
}

/// A far end in its namespace, and the file of the near one.
struct Far {
    kernel: Kernel,
    config: Config,
}

impl Far {
    /// Joins the lab's namespace to a new one, and writes `near.conf`.
    fn new(lab: &Lab, subnet: Subnet) -> Self {
        let kernel = Kernel::new().unwrap();
        lab.kernel.veth(&kernel, subnet, 1500).unwrap();
        let [near, far] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let file = |own: &PrivateKey, address: &str, peer: &PrivateKey, rest: &str| {
            format!(
                "[Interface]\nPrivateKey = {}\nAddress = {address}\n[Peer]\nPublicKey = {}\n{rest}\n",
                own.to_text().as_str(),
                peer.public()
            )
        };
        let at = subnet.far_v4();
        let text = file(
            &near,
            "10.66.0.2/32\nDNS = 10.66.0.1",
            &far,
            &format!("AllowedIPs = 0.0.0.0/0\nEndpoint = {at}:{PORT}"),
        );
        write(&lab.dir.join("near.conf"), &text, 0o600);
        let text = file(&far, &format!("10.66.0.1/24\nListenPort = {PORT}"), &near, "AllowedIPs = 10.66.0.2");
        Self { kernel, config: text.parse().unwrap() }
    }

    fn stack(&self) -> Stack {
        let device = self.kernel.enter(|| WireGuard::open(&self.config)).unwrap().unwrap();
        Stack::builder().device(device).address("10.66.0.1/24").build().unwrap()
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn wg_31_a_command_serves_through_a_tunnel_and_wg_shows_it() {
    let Some(lab) = Lab::without_turn("wireguard-device", &["ip"]) else { return };
    let far = Far::new(&lab, Subnet(80));
    std::fs::write(lab.dir.join("hello.txt"), "hello").unwrap();
    // It sends at once, so that the far end has its address.
    let text = std::fs::read_to_string(lab.dir.join("near.conf")).unwrap();
    write(
        &lab.dir.join("kept.conf"),
        &text.replace("AllowedIPs", "PersistentKeepalive = 25\nAllowedIPs"),
        0o600,
    );
    let _kept = lab.taut(&["serve", ".", "--device", "wireguard:kept.conf", "--port", "81"], "serving");
    let stack = far.stack();
    let mut reply = String::new();
    eventually("the far end has its address", || {
        let at = "10.66.0.2:81".parse().unwrap();
        let Ok(mut stream) = blocking::TcpStream::connect_timeout(&stack, &at, Duration::from_secs(5)) else {
            return false;
        };
        stream.write_all(b"GET /hello.txt HTTP/1.0\r\n\r\n").unwrap();
        stream.read_to_string(&mut reply).is_ok()
    });
    assert!(reply.ends_with("hello"), "{reply}");
    let shown = lab.output(&mut taut(&["wg", "show"]));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let own = shown
        .split("interface: ")
        .find(|part| part.starts_with("kept\n"))
        .unwrap_or_else(|| panic!("{shown}"));
    for part in [
        "private key: (hidden)",
        "allowed ips: 0.0.0.0/0",
        "latest handshake: ",
        "transfer: ",
        "every 25 seconds",
    ] {
        assert!(own.contains(part), "{part}: {own}");
    }
}

/// Seconds since 1970, by another program.
fn date() -> u64 {
    let output = Command::new("date").arg("+%s").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// The names are those of `wg-json` in wireguard-tools; the numbers are those of the far end.
#[test]
fn wg_36_wg_show_prints_json() {
    let Some(lab) = Lab::without_turn("wireguard-json", &["ip"]) else { return };
    let (far, begin) = (Far::new(&lab, Subnet(83)), date());
    let device = far.kernel.enter(|| WireGuard::open(&far.config)).unwrap().unwrap();
    let monitor = device.monitor();
    let stack = Stack::builder().device(device).address("10.66.0.1/24").build().unwrap();
    let _web = web_server(&stack);
    let args = ["proxy", "--out", "wireguard:near.conf", "--control", "here", "--listen", "127.0.0.1:1080"];
    let _proxy = lab.taut(&args, "a proxy at");
    let args = ["-sS", "--max-time", "60", "--socks5-hostname", "127.0.0.1:1080", "http://10.66.0.1/"];
    let fetched = lab.output(Command::new("curl").args(args));
    assert_eq!(String::from_utf8_lossy(&fetched.stdout), "hello", "{fetched:?}");
    let (mut own, mut there) = (Value::Null, monitor.status());
    eventually("both ends have counted alike", || {
        let shown = lab.output(&mut taut(&["wg", "show", "--json", "--socket", "here"]));
        let all: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{shown:?}"));
        (own, there) = (all["near"].clone(), monitor.status());
        let peer = &own["peers"][there.public_key.to_string()];
        (peer["transferRx"].as_u64(), peer["transferTx"].as_u64())
            == (Some(there.peers[0].tx_bytes), Some(there.peers[0].rx_bytes))
    });
    assert_eq!(own["publicKey"], there.peers[0].public_key.to_string());
    assert_eq!(own["listenPort"], there.peers[0].endpoint.unwrap().port());
    let peer = &own["peers"][there.public_key.to_string()];
    assert_eq!(peer["endpoint"], format!("{}:{PORT}", Subnet(83).far_v4()));
    assert_eq!((&peer["allowedIps"], &peer["mtu"]), (&serde_json::json!(["0.0.0.0/0"]), &1_420.into()));
    assert!((begin..=date()).contains(&peer["latestHandshake"].as_u64().unwrap()), "{peer}");
    // wg-json leaves out what is off.
    assert_eq!((peer.get("persistentKeepalive"), &own["drops"]["invalid"]), (None, &0.into()));
}

#[test]
fn wg_37_the_tunnels_of_gateways_and_proxies_are_shown() {
    let Some(lab) = Lab::without_turn("wireguard-shown", &["ip"]) else { return };
    let _far = Far::new(&lab, Subnet(84));
    let mut running = Vec::new();
    for (number, args) in [
        &["gateway", "--out", "wireguard:near.conf", "--qemu", "vm"][..],
        &["gateway", "--out", "wireguard:near.conf", "--run", "--", "cat"],
        &["proxy", "--out", "wireguard:near.conf"],
    ]
    .into_iter()
    .enumerate()
    {
        let control = format!("control-{number}");
        let args = [&args[..1], &["--control", &control], &args[1..]].concat();
        running
            .push(lab.spawn(taut(&args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null())));
        let mut machine = None;
        eventually("the tunnel is shown", || {
            if args.contains(&"--qemu") {
                machine = machine.take().or_else(|| UnixStream::connect(lab.dir.join("vm")).ok());
            }
            let shown = lab.output(&mut taut(&["wg", "show", "--socket", &control]));
            String::from_utf8_lossy(&shown.stdout).starts_with("interface: near\n  public key: ")
        });
    }
}

#[test]
fn wg_38_a_command_looks_names_up_through_the_tunnel() {
    let Some(lab) = Lab::without_turn("wireguard-names", &["ip"]) else { return };
    let far = Far::new(&lab, Subnet(85));
    // A way around the tunnel, which is not taken.
    lab.kernel.run("ip route add default via 10.85.0.1").unwrap();
    let capture = far.kernel.enter(|| Capture::open("veth0")).unwrap().unwrap();
    let stack = far.stack();
    let _serving = (name_server(&stack), web_server(&stack));
    let output = lab.output(&mut taut(&["get", "http://server.test/", "--device", "wireguard:near.conf"]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
    assert_eq!(leaks(&capture), Vec::<Vec<u8>>::new());
}

#[test]
fn wg_32_a_file_that_cannot_be_used_is_refused() {
    let Some(lab) = Lab::without_turn("wireguard-file", &["ip"]) else { return };
    _ = Far::new(&lab, Subnet(81));
    let text = std::fs::read_to_string(lab.dir.join("near.conf")).unwrap();
    write(&lab.dir.join("open.conf"), &text, 0o644);
    write(&lab.dir.join("mistake.conf"), &text.replace("DNS", "DSN"), 0o600);
    for (file, said) in [
        ("open.conf", "chmod 600"),
        ("mistake.conf", "line 4: unknown key DSN in [Interface]"),
        ("none.conf", "No such file"),
    ] {
        for args in [
            vec!["get", "http://10.66.0.1/", "--device"],
            vec!["gateway", "--run", "--out"],
            vec!["proxy", "--out"],
        ] {
            let device = format!("wireguard:{file}");
            let mut args = [args, vec![&device]].concat();
            if args[0] == "gateway" {
                args.extend(["--", "true"]);
            }
            let output = lab.output(&mut taut(&args));
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(2) && error.contains(said), "{args:?}: {error}");
        }
    }
    let unknown: String = text
        .lines()
        .map(|line| match line.starts_with("Endpoint") {
            true => "Endpoint = none.invalid:51820\n".to_owned(),
            false => format!("{line}\n"),
        })
        .collect();
    write(&lab.dir.join("unknown.conf"), &unknown, 0o600);
    for args in [
        &["get", "http://10.66.0.1/", "--device", "wireguard:unknown.conf"][..],
        &["gateway", "--out", "wireguard:unknown.conf", "--run", "--", "true"],
    ] {
        let error = String::from_utf8_lossy(&lab.output(&mut taut(args)).stderr).into_owned();
        assert!(
            error.contains("none.invalid:51820") && error.contains("each Endpoint in unknown.conf"),
            "{error}"
        );
        assert!(!error.contains("Broken pipe"), "{error}");
    }
    write(&lab.dir.join("nameless.conf"), &text.replace("DNS = 10.66.0.1", ""), 0o600);
    let name = lab.output(&mut taut(&["get", "http://example.com/", "--device", "wireguard:nameless.conf"]));
    assert!(String::from_utf8_lossy(&name.stderr).contains("outside the tunnel"), "{name:?}");
}

/// Answers each question with one address (RFC 1035 §4).
fn name_server(stack: &Stack) -> thread::JoinHandle<()> {
    let socket = blocking::UdpSocket::bind(stack, "10.66.0.1:53").unwrap();
    thread::spawn(move || {
        let mut message = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            let question = &message[..len];
            let end = 12 + question[12..].iter().position(|&byte| byte == 0).unwrap() + 5;
            let is_a = question[end - 4..end - 2] == [0, 1];
            // A response without error; one question, one answer if it is for an address of IPv4.
            let mut answer = question[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            if is_a {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 66, 0, 1]);
            }
            _ = socket.send_to(&answer, from);
        }
    })
}

/// Answers each request with one word.
fn web_server(stack: &Stack) -> thread::JoinHandle<()> {
    let listener = blocking::TcpListener::bind(stack, "10.66.0.1:80").unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            _ = stream.read(&mut [0; 4_096]);
            _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
        }
    })
}

/// Frames that arrive at the far end of the cable and are no datagrams to the tunnel's port.
fn leaks(capture: &Capture) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut frame = [0; 64];
    while let Some(captured) = capture.next(&mut frame, Duration::from_millis(200)).unwrap() {
        let frame = &frame[..captured.len.min(64)];
        // IPv4, UDP, to the port; ARP and IPv6's neighbour discovery are the kernels'.
        let is_tunnel = frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == PORT.to_be_bytes();
        let is_link = frame[12..14] == [8, 6]
            || (frame[12..14] == [0x86, 0xdd] && frame[20] == 58)
            || (frame[12..14] == [0x86, 0xdd] && frame[20] == 0);
        if !is_tunnel && !is_link {
            found.push(frame.to_vec());
        }
    }
    found
}

#[test]
fn wg_33_a_guest_s_network_is_the_tunnel_and_nothing_leaks() {
    let Some(lab) = Lab::without_turn("wireguard-gateway", &["ip", "curl"]) else { return };
    let far = Far::new(&lab, Subnet(82));
    // A way around the tunnel, which is not taken.
    lab.kernel.run("ip route add default via 10.82.0.1").unwrap();
    let capture = far.kernel.enter(|| Capture::open("veth0")).unwrap().unwrap();
    let stack = far.stack();
    let names = name_server(&stack);
    let server = web_server(&stack);
    let fetch = |limit: &str| {
        let args = ["gateway", "--out", "wireguard:near.conf", "--run", "--"];
        let guest = ["curl", "-sS", "-4", "--max-time", limit, "http://server.test/"];
        lab.output(&mut taut(&[&args[..], &guest[..]].concat()))
    };
    let output = fetch(&PATIENCE.as_secs().to_string());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
    // Pings leave by the tunnel, whatever the host allows.
    assert!(!String::from_utf8_lossy(&output.stderr).contains("cannot ping"), "{output:?}");
    assert_eq!(leaks(&capture), Vec::<Vec<u8>>::new());
    // The tunnel is down: names and connections fail, and go nowhere else.
    drop(stack);

    let output = fetch("3");
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(leaks(&capture), Vec::<Vec<u8>>::new());
    drop((names, server));
}

/// Gives the endpoint in `near.conf` a name.
fn name_endpoint(lab: &Lab, subnet: Subnet) {
    let path = lab.dir.join("near.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    write(&path, &text.replace(&subnet.far_v4().to_string(), "vpn.test"), 0o600);
}

/// `taut` in a mount namespace where this file of the lab's directory is a file of /etc.
fn with_file_of_etc(file: &str, args: &[&str]) -> Command {
    let script = format!("mount --bind {file} /etc/{file} && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_taut")]).args(args);
    command
}

/// Nothing is at the endpoint's first address. The sandbox has no file of the host's.
#[test]
fn wg_35_a_gateway_finds_an_endpoint_that_has_moved() {
    let Some(lab) = Lab::without_turn("wireguard-moves", &["ip", "curl"]) else { return };
    let (subnet, hosts) = (Subnet(86), lab.dir.join("hosts"));
    let far = Far::new(&lab, subnet);
    let stack = far.stack();
    let _serving = (name_server(&stack), web_server(&stack));
    name_endpoint(&lab, subnet);
    std::fs::write(&hosts, "10.86.0.9 vpn.test\n").unwrap();
    let guest = "echo > begun; until curl -sS -4 --max-time 5 http://server.test/; do sleep 0.2; done";
    let args = ["gateway", "--out", "wireguard:near.conf", "--run", "--", "sh", "-c", guest];
    let mut command = with_file_of_etc("hosts", &args);
    let gateway = lab.spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    eventually("the tunnel is open", || lab.dir.join("begun").exists());
    std::fs::write(&hosts, format!("{} vpn.test\n", subnet.far_v4())).unwrap();
    let output = gateway.output();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
}

/// A name server of the lab's namespace.
fn dnsmasq(lab: &Lab, vpn: &str) -> Running {
    let mut command = Command::new("dnsmasq");
    command
        .args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file="])
        .args(["--user=root", "--group=root", "--local=/test/", "--listen-address=127.0.0.1"])
        .args(["--bind-interfaces", &format!("--host-record=vpn.test,{vpn}")])
        .stdin(Stdio::null());
    let running = lab.spawn(&mut command);
    let listens = || lab.kernel.run("ss -Hltn sport = :53").is_ok_and(|lines| !lines.is_empty());
    eventually("dnsmasq listens", listens);
    running
}

#[test]
fn wg_35_a_proxy_finds_an_endpoint_that_has_moved() {
    let Some(lab) = Lab::without_turn("wireguard-roams", &["ip", "curl", "dnsmasq", "ss"]) else { return };
    let subnet = Subnet(87);
    let far = Far::new(&lab, subnet);
    let stack = far.stack();
    let _serving = (name_server(&stack), web_server(&stack));
    name_endpoint(&lab, subnet);
    std::fs::write(lab.dir.join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    let before = dnsmasq(&lab, "10.87.0.9");
    let mut command = with_file_of_etc("resolv.conf", &["proxy", "--out", "wireguard:near.conf"]);
    let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut proxy = lab.spawn(piped);
    let _said = proxy.wait_for("a proxy at");
    drop(before);
    let _after = dnsmasq(&lab, &subnet.far_v4().to_string());
    eventually("the far end is found", || {
        let args = ["-sS", "--max-time", "5", "--socks5-hostname", "127.0.0.1:1080", "http://server.test/"];
        lab.output(Command::new("curl").args(args)).stdout == b"hello"
    });
}
