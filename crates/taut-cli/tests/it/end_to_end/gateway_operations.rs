//! `taut gateway` as it is run for long: its file, ways out, forwarded ports, log, rights, and what happens
//! to the host: GW-62 to 70, 89, 91 and 159 of `docs/spec/gateway.md`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use taut_testbed::{Kernel, PATIENCE, Subnet, eventually};

use super::support::{Lab, Running, taut};

/// An address of the namespace of the test, which is neither loopback nor on a link.
pub(super) const SERVER: &str = "198.51.100.1";
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";

/// A gateway with its guest, and what it says.
pub(super) struct Gateway {
    pub(super) running: Running,
    log: PathBuf,
}

impl Gateway {
    /// Starts a gateway for `script`.
    pub(super) fn run(lab: &Lab, name: &str, options: &[&str], script: &str) -> Self {
        let args = [&["gateway", "--run"], options, &["--", "sh", "-c", script]].concat();
        Self::by(lab, name, &mut taut(&args))
    }

    pub(super) fn by(lab: &Lab, name: &str, command: &mut Command) -> Self {
        let log = lab.dir.join(name);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        Self { running: lab.spawn(command.stderr(File::create(&log).unwrap())), log }
    }

    /// Starts a gateway for `script`, which reads what the test writes.
    fn told(lab: &Lab, script: &str) -> (Self, std::process::ChildStdin) {
        let log = lab.dir.join("log");
        let mut command = taut(&["gateway", "--run", "--", "sh", "-c", script]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = lab.spawn(command.stderr(File::create(&log).unwrap()));
        let stdin = running.stdin();
        (Self { running, log }, stdin)
    }

    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(super) fn says(&self, text: &str) {
        eventually(&format!("{text:?}"), || self.said().contains(text));
    }

    /// The process of the command inside, when it runs.
    pub(super) fn guest(&self, comm: &str) -> u32 {
        let pid = self.running.id();
        let mut found = None;
        eventually("the guest", || {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let mut children = children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
            found = children.find(|child| {
                std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.trim() == comm)
            });
            found.is_some()
        });
        found.unwrap()
    }
}

/// Runs a closure in the network of a process.
pub(super) fn within<R: Send>(process: u32, run: impl FnOnce() -> R + Send) -> R {
    let network = File::open(format!("/proc/{process}/ns/net")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            run()
        });
        thread.join().unwrap()
    })
}

pub(super) fn lab(name: &str, programs: &[&str]) -> Option<Lab> {
    let lab = Lab::without_turn(name, &[&["ip", "sh"], programs].concat())?;
    lab.kernel.run(&format!("ip address add {SERVER}/32 dev lo")).unwrap();
    Some(lab)
}

/// A server that answers at once; each client's address is sent to the test.
fn server(kernel: &Kernel) -> (u16, Receiver<SocketAddr>) {
    let listener = kernel.enter(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, clients) = channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, from)) = listener.accept() {
            _ = seen.send(from);
            std::thread::spawn(move || {
                _ = stream.read(&mut [0; 1_000]);
                _ = stream.write_all(PAGE);
            });
        }
    });
    (port, clients)
}

/// A server that sends half of its page, and the rest when the test says so.
fn slow_server(kernel: &Kernel) -> (u16, Sender<()>, Receiver<()>) {
    let listener = kernel.enter(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let ((go, may_go), (began, has_begun)) = (channel(), channel());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        _ = stream.read(&mut [0; 1_000]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").unwrap();
        began.send(()).unwrap();
        may_go.recv().unwrap();
        stream.write_all(b"world").unwrap();
    });
    (port, go, has_begun)
}

#[test]
fn gw_62_a_new_file_of_rules_loses_no_flow() {
    let Some(lab) = lab("gateway-file", &["curl"]) else { return };
    let (port, go, began) = slow_server(&lab.kernel);
    let (other, _) = server(&lab.kernel);
    let file = lab.dir.join("gateway.toml");
    std::fs::write(&file, "rules = ['allow any']\n[limits]\nconnections = 100\n").unwrap();
    let script = format!(
        "curl -sS --max-time 60 http://{SERVER}:{port}/ && echo && curl -s --max-time 60 http://{SERVER}:{other}/; echo $?"
    );
    let gateway = Gateway::run(&lab, "log", &["--config", file.to_str().unwrap()], &script);
    began.recv_timeout(PATIENCE).unwrap();
    // A mistake changes nothing, and is named.
    std::fs::write(&file, "rules = ['allow 10.0.0.0/40']\n").unwrap();
    gateway.running.signal("HUP");
    gateway.says("the rules stay as they were");
    assert!(gateway.said().contains("10.0.0.0/40"), "{}", gateway.said());
    // Another file by the same name, as editors write it.
    std::fs::write(lab.dir.join("new"), "rules = ['deny 198.51.100.0/24']\n").unwrap();
    std::fs::rename(lab.dir.join("new"), &file).unwrap();
    gateway.running.signal("HUP");
    gateway.says("the rules are as in the file now");
    go.send(()).unwrap();
    let log = gateway.log.clone();
    let output = gateway.running.output();
    // The flow from before went on; the next one is denied: curl cannot connect.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "helloworld\n7\n", "{output:?}");
    assert!(std::fs::read_to_string(log).unwrap().contains("deny 198.51.100.0/24"));
}

#[test]
fn gw_63_other_ways_out() {
    let Some(lab) = lab("gateway-out", &["curl"]) else { return };
    // Proxies that know one destination, which is nowhere, and answer in its place.
    let proxy = |shake: fn(&mut TcpStream) -> Option<()>| {
        let listener = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            shake(&mut stream)?;
            _ = stream.read(&mut [0; 1_000]).ok()?;
            stream.write_all(PAGE).ok()
        });
        port
    };
    let socks5 = |stream: &mut TcpStream| {
        stream.read_exact(&mut [0; 3]).ok()?;
        stream.write_all(&[5, 0]).ok()?;
        let mut request = [0; 10];
        stream.read_exact(&mut request).ok()?;
        assert_eq!(request, [5, 1, 0, 1, 203, 0, 113, 1, 0, 80]);
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()
    };
    let http = |stream: &mut TcpStream| {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        assert_eq!(lines.next()?.ok()?, "CONNECT 203.0.113.1:80 HTTP/1.1");
        while !lines.next()?.ok()?.is_empty() {}
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()
    };
    for out in [format!("socks5://127.0.0.1:{}", proxy(socks5)), format!("http://127.0.0.1:{}", proxy(http))]
    {
        let gateway =
            Gateway::run(&lab, "log", &["--out", &out], "curl -sS --max-time 60 http://203.0.113.1/");
        let log = gateway.log.clone();
        let output = gateway.running.output();
        assert_eq!(output.stdout, b"hello", "{out}: {}", std::fs::read_to_string(log).unwrap());
    }
    // Another stack: the server sees its address.
    let (port, clients) = server(&lab.kernel);
    let script = format!(
        "for i in $(seq 100); do curl -s --max-time 5 http://{SERVER}:{port}/ && exit; sleep 0.1; done"
    );
    let options = ["--out", "tun:out0", "--out-address", "10.0.3.2/24", "--congestion", "bbr"];
    let gateway = Gateway::run(&lab, "log", &options, &script);
    eventually("the stack's interface", || lab.kernel.run("ip link show out0").is_ok());
    lab.kernel.run("ip address add 10.0.3.1/24 dev out0").unwrap();
    let log = gateway.log.clone();
    let output = gateway.running.output();
    assert_eq!(output.stdout, b"hello", "{}", std::fs::read_to_string(log).unwrap());
    assert_eq!(clients.recv().unwrap().ip(), Ipv4Addr::new(10, 0, 3, 2));
    // What is no way out is refused before anything runs.
    for wrong in ["socks4://127.0.0.1:1", "tun:", "http://127.0.0.1"] {
        let output = lab.output(&mut taut(&["gateway", "--run", "--out", wrong, "--", "true"]));
        assert!(!output.status.success(), "{wrong}");
    }
}

#[test]
fn gw_64_several_threads_carry_the_flows() {
    let Some(lab) = lab("gateway-threads", &["curl"]) else { return };
    let (port, _clients) = server(&lab.kernel);
    let fetch = format!("curl -sS --max-time 60 http://{SERVER}:{port}/");
    let script = format!("for i in $(seq 40); do {fetch} & done; wait; echo; echo ready >&2; exec sleep 100");
    let mut gateway = Gateway::run(&lab, "log", &["--threads", "3"], &script);
    gateway.says("ready");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.running.worker())).unwrap();
    let named = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm"))
            .is_ok_and(|name| name.starts_with("tokio-"))
    };
    // One more waits for the command.
    assert!(tasks.map(named).filter(|is| *is).count() >= 3);
    let mut line = String::new();
    BufReader::new(gateway.running.stdout()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("{}\n", "hello".repeat(40)));
}

/// Bytes pass both ways between a client in the test's namespace and a listener.
pub(super) fn passes(lab: &Lab, at: &str, listener: &TcpListener) {
    let mut client = lab.kernel.enter(|| TcpStream::connect(at)).unwrap().unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(at.as_bytes()).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let mut said = vec![0; at.len()];
    served.read_exact(&mut said).unwrap();
    served.write_all(&said).unwrap();
    let mut back = vec![0; at.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(String::from_utf8(back).unwrap(), at);
}

#[test]
fn gw_65_ports_are_forwarded_by_the_command() {
    let Some(lab) = lab("gateway-ports", &["sleep"]) else { return };
    let options =
        ["-t", "8080:80", "-t", "127.0.0.2:9000-9001:90-91", "-t", "198.51.100.1:7000", "-u", "5353:53"];
    let gateway = Gateway::run(&lab, "log", &options, "exec sleep 100");
    let guest = gateway.guest("sleep");
    for (at, port) in
        [("127.0.0.1:8080", 80), ("127.0.0.2:9000", 90), ("127.0.0.2:9001", 91), ("198.51.100.1:7000", 7_000)]
    {
        let listener = within(guest, || TcpListener::bind(("0.0.0.0", port))).unwrap();
        passes(&lab, at, &listener);
    }
    // No other address of the host is open.
    let closed = lab.kernel.enter(|| TcpStream::connect("127.0.0.2:8080")).unwrap().unwrap_err();
    assert_eq!(closed.kind(), std::io::ErrorKind::ConnectionRefused);
    let inner = within(guest, || UdpSocket::bind("0.0.0.0:53")).unwrap();
    let client = lab.kernel.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    for socket in [&inner, &client] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    client.send_to(b"question", "127.0.0.1:5353").unwrap();
    let mut message = [0; 100];
    let (len, from) = inner.recv_from(&mut message).unwrap();
    assert_eq!(&message[..len], b"question");
    inner.send_to(b"answer", from).unwrap();
    assert_eq!((client.recv(&mut message).unwrap(), &message[..6]), (6, &b"answer"[..]));
    // A port that is in use is named, and nothing runs.
    let output = lab.output(&mut taut(&["gateway", "--run", "-t", "8080:80", "--", "echo", "ran"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot forward 127.0.0.1:8080"), "{said}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
}

#[test]
fn gw_66_what_listens_inside_is_forwarded() {
    let Some(lab) = lab("gateway-auto", &["sleep"]) else { return };
    let taken = lab.kernel.enter(|| TcpListener::bind("127.0.0.1:7003")).unwrap().unwrap();
    let gateway = Gateway::run(&lab, "log", &["-t", "auto"], "exec sleep 100");
    let guest = gateway.guest("sleep");
    let connect = |port: u16| lab.kernel.enter(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
    assert!(connect(7_001).is_err());
    let all = within(guest, || ["0.0.0.0:7001", "127.0.0.2:7002", "0.0.0.0:7003"].map(TcpListener::bind));
    let [open, local, other] = all.map(Result::unwrap);
    let mut first = None;
    eventually("the port is open", || {
        first = connect(7_001).ok();
        first.is_some()
    });
    open.accept().unwrap();
    // That of another address of the guest's loopback is not, and one that the host has itself is named.
    gateway.says("cannot forward 127.0.0.1:7003");
    assert!(connect(7_002).is_err());
    passes(&lab, "127.0.0.1:7001", &open);
    drop((open, local));
    eventually("the port is closed", || connect(7_001).is_err());
    // It is opened when whoever had it is gone.
    drop(taken);
    eventually("the port is open", || connect(7_003).is_ok());
    drop(other);
    assert_eq!(gateway.said().matches("cannot forward").count(), 1, "{}", gateway.said());
    // A TUN's guests cannot be looked at.
    let output = lab.output(&mut taut(&["gateway", "--tun", "taut7", "-t", "auto"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("-t auto is for --run"), "{output:?}");
}

/// A datagram to a port of the host's from a client of the lab's, and its answer: `None` where the port is
/// closed.
pub(super) fn asked(client: &UdpSocket, at: &str) -> Option<String> {
    client.connect(at).unwrap();
    client.send(b"question").ok()?;
    let mut answer = [0; 100];
    let len = client.recv(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer[..len]).into_owned())
}

/// Answers each datagram with the socket's port, until a datagram says "end".
pub(super) fn answering(socket: UdpSocket) -> std::thread::JoinHandle<()> {
    let port = socket.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        let mut question = [0; 100];
        while let Ok((len, from)) = socket.recv_from(&mut question) {
            if &question[..len] == b"end" {
                return;
            }
            _ = socket.send_to(port.as_bytes(), from);
        }
    })
}

/// Whether a UDP port of the lab's 127.0.0.1 is open, by the kernel's table.
pub(super) fn is_open(lab: &Lab, port: u16) -> bool {
    let text = lab.kernel.enter(|| std::fs::read_to_string("/proc/thread-self/net/udp")).unwrap().unwrap();
    let own = format!("0100007F:{port:04X}");
    text.lines().any(|line| line.split_whitespace().nth(1) == Some(&own))
}

#[test]
fn gw_91_what_serves_udp_inside_is_forwarded() {
    let Some(lab) = lab("gateway-auto-udp", &["sleep"]) else { return };
    let bind = |at: &str| lab.kernel.enter(|| UdpSocket::bind(at)).unwrap().unwrap();
    let taken = bind("127.0.0.1:7003");
    let gateway = Gateway::run(&lab, "log", &["-u", "auto", "-u", "198.51.100.1:auto"], "exec sleep 100");
    let guest = gateway.guest("sleep");
    let client = bind("0.0.0.0:0");
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let in_guest = |at: &str| within(guest, || UdpSocket::bind(at)).unwrap();
    // Servers' last, so that the others were there when these are seen. One has a port of those that the
    // kernel chooses from.
    let others =
        ["127.0.0.2:7002", "224.0.0.251:7004", "0.0.0.0:68", "0.0.0.0:0", "0.0.0.0:7005"].map(in_guest);
    within(guest, || others[4].connect("10.0.2.2:9")).unwrap();
    let of_kernel = others[3].local_addr().unwrap().port();
    let servers = ["0.0.0.0:7003", "0.0.0.0:45000", "0.0.0.0:7001"].map(in_guest).map(answering);
    for (host, port) in [("127.0.0.1", 7_001), (SERVER, 7_001), ("127.0.0.1", 45_000), (SERVER, 7_003)] {
        let at = format!("{host}:{port}");
        eventually(&at, || asked(&client, &at) == Some(port.to_string()));
    }
    assert!(is_open(&lab, 7_001));
    for port in [7_002, 7_004, 68, of_kernel, 7_005] {
        assert!(!is_open(&lab, port), "{port}");
    }
    gateway.says("cannot forward 127.0.0.1:7003");
    // The server ends: its port is closed, under the flow that is open through it, and opened again with the
    // next one.
    let at = "127.0.0.1:7001";
    client.connect(at).unwrap();
    client.send(b"end").unwrap();
    let [_, _, first] = servers;
    first.join().unwrap();
    eventually("the port is closed", || !is_open(&lab, 7_001));
    let _next = answering(in_guest("0.0.0.0:7001"));
    eventually("the port is open", || asked(&client, at) == Some("7001".to_owned()));
    // It is opened when whoever had it is gone.
    drop(taken);
    eventually("the port is open", || asked(&client, "127.0.0.1:7003") == Some("7003".to_owned()));
    assert_eq!(gateway.said().matches("cannot forward").count(), 1, "{}", gateway.said());
    // A TUN's guests cannot be looked at.
    let output = lab.output(&mut taut(&["gateway", "--tun", "taut7", "-u", "auto"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("-u auto is for --run"), "{output:?}");
}

#[test]
fn gw_67_the_log_in_json_and_metrics() {
    let Some(lab) = lab("gateway-log", &["curl"]) else { return };
    let (port, _clients) = server(&lab.kernel);
    let fetch = format!("curl -s --max-time 60 http://{SERVER}:{port}/");
    let script = format!("curl -s --max-time 60 http://10.77.0.1/; {fetch}; echo ready >&2; exec sleep 100");
    let options = ["--log", "json", "--rule", "deny 10.77.0.0/16"];
    let mut command = taut(&[&["gateway", "--run"], &options[..], &["--", "sh", "-c", &script]].concat());
    let control = lab.dir.join("control");
    std::fs::DirBuilder::new().mode(0o700).create(&control).unwrap();
    let gateway = Gateway::by(&lab, "log", command.env("TAUT_CONTROL_DIR", &control));
    gateway.says("ready");
    let said = gateway.said();
    let line = said.lines().find(|line| line.contains("denied")).expect("a line about it");
    let event: serde_json::Value = serde_json::from_str(line).unwrap();
    for (field, value) in
        [("event", "denied"), ("kind", "tcp"), ("to", "10.77.0.1:80"), ("rule", "deny 10.77.0.0/16")]
    {
        assert_eq!(event[field], value, "{line}");
    }
    assert!(event["time"].as_f64().unwrap() > 1.7e9, "{line}");
    let metrics = lab.output(taut(&["metrics"]).env("TAUT_CONTROL_DIR", &control));
    let text = String::from_utf8(metrics.stdout.clone()).unwrap();
    assert!(metrics.status.success() && !text.is_empty(), "{metrics:?}, {}", gateway.said());
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        assert!(line.contains(&format!("pid=\"{}\"", gateway.running.id())), "{line}");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    // One that was denied, one that was served.
    assert_eq!(value("taut_flows_in_total") as u32, 2, "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    // None: no line.
    let quiet =
        Gateway::run(&lab, "quiet", &["--log", "none", "--rule", "deny any"], &format!("{fetch}; true"));
    let log = quiet.log.clone();
    quiet.running.output();
    assert!(!std::fs::read_to_string(log).unwrap().contains("denied"));
}

#[test]
fn gw_68_no_rights_are_left_after_the_start() {
    let Some(lab) = lab("gateway-rights", &["sleep"]) else { return };
    let status = |options: &[&str], field: &str| -> Vec<u64> {
        let gateway = Gateway::run(&lab, "log", options, "exec sleep 100");
        gateway.guest("sleep");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.running.worker())).unwrap();
        let of = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            u64::from_str_radix(value.trim_start_matches(':').trim(), 16).unwrap()
        };
        tasks.map(of).collect()
    };
    for options in [&["-t", "8080:80"][..], &["--threads", "3"]] {
        for field in ["CapEff", "CapPrm", "CapInh"] {
            let all = status(options, field);
            assert!(all.len() > 1 && all.iter().all(|set| *set == 0), "{field}: {all:x?}");
        }
        // A filter, and no new privileges.
        assert!(status(options, "Seccomp").iter().all(|mode| *mode == 2));
        assert!(status(options, "NoNewPrivs").iter().all(|is| *is == 1));
    }
    // The one that is needed to open a port below 1024: CAP_NET_BIND_SERVICE, number 10.
    assert!(status(&["-t", "81:80"], "CapEff").iter().all(|set| *set == 1 << 10));
    let out = ["--out", "tun:out1", "--out-address", "10.0.4.2/24"];
    assert!(status(&out, "CapEff").iter().all(|set| *set == 0));
    // That the test can fail: with all rights.
    assert!(status(&["--no-sandbox"], "CapEff").iter().all(|set| *set != 0));
}

#[test]
fn gw_69_the_hosts_network_goes_away_and_comes_back() {
    let Some(lab) = lab("gateway-away", &["curl"]) else { return };
    let far = Kernel::new().unwrap();
    lab.kernel.veth(&far, Subnet(66), 1500).unwrap();
    lab.kernel.run("ip route add default via 10.66.0.1").unwrap();
    far.run("ip address add 203.0.113.9/32 dev lo").unwrap();
    let (slow, go, began) = slow_server(&far);
    let (port, _clients) = server(&far);
    let fetch = format!("curl -s --max-time 60 http://203.0.113.9:{port}/");
    let script = format!(
        "curl -sS --max-time 60 -o slow http://203.0.113.9:{slow}/ & {fetch}; echo; echo before >&2; read go; {fetch}; echo $?; \
         echo away >&2; read go; {fetch}; echo; wait; cat slow"
    );
    let (gateway, mut stdin) = Gateway::told(&lab, &script);
    gateway.says("before");
    began.recv_timeout(PATIENCE).unwrap();
    lab.kernel.run("ip link set veth0 down").unwrap();
    stdin.write_all(b"go\n").unwrap();
    gateway.says("away");
    lab.kernel.run("ip link set veth0 up").unwrap();
    // The route went with its interface, as with a network that is left.
    lab.kernel.run("ip route add default via 10.66.0.1").unwrap();
    go.send(()).unwrap();
    stdin.write_all(b"go\n").unwrap();
    let output = gateway.running.output();
    let said = String::from_utf8_lossy(&output.stdout);
    // Before; unreachable at once, which is curl's 7; again; and the flow that was there all the time.
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words, ["hello", "7", "hello", "helloworld"]);
}

/// As when the machine sleeps, but that time goes on: with more timers that are late than after sleep.
#[test]
fn gw_89_a_gateway_that_was_stopped_goes_on() {
    let Some(lab) = lab("gateway-stopped", &["curl"]) else { return };
    let (slow, go, began) = slow_server(&lab.kernel);
    let (port, _clients) = server(&lab.kernel);
    let script = format!(
        "curl -sS --max-time 60 -o slow http://{SERVER}:{slow}/ & read go; echo begun >&2; \
         curl -sS --max-time 60 http://{SERVER}:{port}/; echo; wait; cat slow"
    );
    let (gateway, mut stdin) = Gateway::told(&lab, &script);
    began.recv_timeout(PATIENCE).unwrap();
    gateway.running.signal_worker("STOP");
    // Both sides go on meanwhile: the guest begins a connection, and the server sends what is left.
    stdin.write_all(b"go\n").unwrap();
    gateway.says("begun");
    go.send(()).unwrap();
    std::thread::sleep(Duration::from_secs(4));
    gateway.running.signal_worker("CONT");
    let output = gateway.running.output();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["hello", "helloworld"], "{output:?}");
}

#[test]
fn gw_146_without_a_descriptor_a_question_has_that_of_the_oldest_idle_flow() {
    let Some(lab) = lab("gateway-udp-descriptors", &["sleep"]) else { return };
    let server = lab.kernel.enter(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let script = "ulimit -n 64 && exec \"$0\" gateway --run -- sleep 100";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_taut")]);
    let gateway = Gateway::by(&lab, "log", &mut command);
    let guest = gateway.guest("sleep");
    let to = server.local_addr().unwrap();
    let mut message = [0; 16];
    let clients: Vec<UdpSocket> = (0..200_u8)
        .map(|number| {
            let client = within(guest, || UdpSocket::bind("0.0.0.0:0")).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(&[number], to).unwrap();
            let (len, from) = server.recv_from(&mut message).unwrap();
            server.send_to(&message[..len], from).unwrap();
            assert_eq!(client.recv(&mut message).unwrap(), 1, "question {number}");
            client
        })
        .collect();
    assert_eq!(clients.len(), 200);
    assert_eq!(gateway.said().matches("no descriptor").count(), 0, "{}", gateway.said());
}

#[test]
fn gw_70_exhausted_descriptors_are_named_and_the_others_live_on() {
    let Some(lab) = lab("gateway-descriptors", &["sleep"]) else { return };
    let listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let script = "ulimit -n 64 && exec \"$0\" gateway --run -t 8080:80 -- sleep 100";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_taut")]);
    let gateway = Gateway::by(&lab, "log", &mut command);
    let guest = gateway.guest("sleep");
    let connect = || within(guest, || TcpStream::connect_timeout(&address, PATIENCE));
    let mut first = connect().unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let all: Vec<_> = (0..100).map(|_| connect()).collect();
    let open = all.iter().filter(|one| one.is_ok()).count();
    assert!((20..64).contains(&open), "{open} of 100 with 64 descriptors");
    gateway.says(&format!("no descriptor, port or memory for a flow to {address}; see ulimit -n"));
    // One from before is as it was.
    first.write_all(b"still there").unwrap();
    let mut said = [0; 11];
    served.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"still there");
    // A client of a forwarded port waits until there is a descriptor.
    let inner = within(guest, || TcpListener::bind("0.0.0.0:80")).unwrap();
    let client = lab.kernel.enter(|| TcpStream::connect("127.0.0.1:8080")).unwrap().unwrap();
    gateway.says("no descriptor or memory to accept a client at 127.0.0.1:8080");
    drop(all);
    listener.set_nonblocking(true).unwrap();
    eventually("the others are gone", || {
        while listener.accept().is_ok() {}
        connect().is_ok()
    });
    inner.accept().unwrap();
    drop(client);
    // A line for each second at most, and not for each flow.
    let lines = gateway.said().matches("no descriptor").count();
    assert!(lines < 100, "{}", gateway.said());
}

#[test]
fn gw_159_explain_and_ss_name_the_rooms() {
    let Some(lab) = lab("gateway-rooms", &["sleep"]) else { return };
    let socket = lab.dir.join("control").display().to_string();
    let _listener = lab.kernel.enter(|| TcpListener::bind((SERVER, 7_000))).unwrap().unwrap();
    let gateway = Gateway::run(&lab, "log", &["--control", &socket], "exec sleep 100");
    let mut client = within(gateway.guest("sleep"), || TcpStream::connect((SERVER, 7_000))).unwrap();
    client.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    while client.write(&[0; 65_536]).is_ok() {}
    for (args, text) in [
        (&["explain"][..], "the receiver's window is the gate"),
        (&["explain", "--json"], r#""gate":"receiver-window""#),
        (&["ss", "-te"], ",gate:receiver-window)"),
        (&["ss", "--json"], r#""gate":"receiver-window""#),
    ] {
        let output = || lab.output(&mut taut(&[args, &["--socket", &socket]].concat()));
        eventually(text, || String::from_utf8(output().stdout).unwrap().contains(text));
    }
}
