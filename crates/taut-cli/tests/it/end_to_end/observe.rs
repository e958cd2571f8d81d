//! A running stack, observed from outside: `ss`, `nstat`, `sysctl` and `explain`.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use regex_lite::Regex;
use serde_json::Value;
use taut::blocking::{IncomingFlows, TcpListener, TcpStream, UdpSocket};
use taut::device::{LinkCaps, pipe};
use taut::{ConnOptions, FlowFilter, Stack};
use taut_testbed::{PATIENCE, Scratch, eventually, live, now};

use crate::end_to_end::support::{KERNEL, Lab, Running, TAUT, taut};

/// A directory for the test's control sockets, so that other stacks of this machine are not seen.
pub(crate) struct Observer {
    pub(crate) dir: Scratch,
}

impl Observer {
    pub(crate) fn new(test: &str) -> Self {
        Self { dir: Scratch::new(test) }
    }

    pub(crate) fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = taut(args);
        command.env("TAUT_CONTROL_DIR", &*self.dir).env_remove("TAUT_NSTAT_HISTORY");
        command
    }

    fn look(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Its standard output.
    pub(crate) fn says(&self, args: &[&str]) -> String {
        let output = self.look(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.says(args)).unwrap()
    }

    /// Its error message when it fails.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let output = self.look(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts `taut` in the lab's namespace, and waits until it prints `ready`.
    pub(crate) fn start(&self, lab: &Lab, args: &[&str], ready: &str) -> Running {
        let mut command = self.command(args);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = lab.spawn(piped);
        running.wait_for(ready);
        running
    }

    /// Files in the directory of the sockets.
    fn sockets(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&*self.dir).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
    }
}

/// Starts curl in the lab's namespace, with a limited rate.
pub(crate) fn slow_curl(lab: &Lab, rate: &str) -> Running {
    let url = format!("http://{TAUT}/large");
    let mut curl = std::process::Command::new("curl");
    curl.args(["--silent", "--limit-rate", rate, "--output", "/dev/null", &url]);
    lab.spawn(&mut curl)
}

/// The names of a line's tokens, in order; a congestion control becomes `<cc>`, without its own values.
fn names(line: &str) -> Vec<String> {
    let mut names = Vec::new();
    for token in line.split_whitespace() {
        let name = token.split_once(':').map_or(token, |(name, _)| name);
        let is_control = ["reno", "cubic", "bbr"].contains(&name);
        if is_control && !token.contains(':') {
            names.push("<cc>".to_owned());
        } else if !is_control && !name.starts_with(|first: char| first.is_ascii_digit()) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The tokens of `ss -tinmo` of iproute2 6.1, in its order. The live test also compares the installed `ss`
/// with this list.
const ORDER: [&str; 51] = [
    "skmem",
    "ts",
    "sack",
    "ecn",
    "ecnseen",
    "fastopen",
    "<cc>",
    "wscale",
    "rto",
    "backoff",
    "rtt",
    "ato",
    "mss",
    "pmtu",
    "rcvmss",
    "advmss",
    "cwnd",
    "ssthresh",
    "bytes_sent",
    "bytes_retrans",
    "bytes_acked",
    "bytes_received",
    "segs_out",
    "segs_in",
    "data_segs_out",
    "data_segs_in",
    "send",
    "lastsnd",
    "lastrcv",
    "lastack",
    "pacing_rate",
    "tsq",
    "delivery_rate",
    "delivered",
    "delivered_ce",
    "app_limited",
    "busy",
    "rwnd_limited",
    "sndbuf_limited",
    "unacked",
    "retrans",
    "lost",
    "sacked",
    "dsack_dups",
    "reordering",
    "reord_seen",
    "rcv_rtt",
    "rcv_space",
    "rcv_ssthresh",
    "notsent",
    "minrtt",
];

/// The last tokens, in the order in which they may follow each other.
const LAST: [&str; 4] = ["rcv_ooopack", "snd_wnd", "rcv_wnd", "rehash"];

/// Whether a line has only tokens of ss's, in ss's order.
fn is_in_order(line: &str) -> Result<(), String> {
    let mut rest = ORDER.iter().chain(&LAST);
    match names(line).into_iter().find(|name| !rest.any(|known| known == name)) {
        Some(name) => Err(format!("{name:?} is unknown or out of order in {line:?}")),
        None => Ok(()),
    }
}

/// The number that a pattern of flent or a similar program finds in a line.
fn found(pattern: &str, line: &str) -> f64 {
    let regex = Regex::new(pattern).unwrap();
    let captures = regex.captures(line).unwrap_or_else(|| panic!("no {pattern} in {line}"));
    captures[1].parse().unwrap_or_else(|error| panic!("{pattern} in {line}: {error}"))
}

#[test]
fn ss_speaks_the_language_of_the_kernels_ss() {
    let Some(lab) = Lab::new("ss", &["curl", "ss"]) else { return };
    let observer = Observer::new("ss");
    lab.file("large", 100_000_000);
    let mut server = observer.start(&lab, &["serve", "."], "serving");
    let _slow = slow_curl(&lab, "5M");
    eventually("the connection carries data", || {
        let connections = observer.json(&["ss", "--json"]);
        connections["connections"][0]["bytes_acked"].as_u64() > Some(1_000_000)
    });

    // Both ends of one connection: taut's report on its end, and the kernel's report on its own.
    let ours = observer.says(&["ss", "-tinmoH", "state", "established", "sport = :80"]);
    let kernels = lab.output(std::process::Command::new("ss").args(["-tinmoH", "dport = :80"]));
    let kernels = String::from_utf8(kernels.stdout).unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) = (ours.lines().collect(), kernels.lines().collect());
    assert_eq!((ours.len(), theirs.len()), (2, 2), "{ours:?} {theirs:?}");
    for line in [ours[1], theirs[1]] {
        assert!(line.starts_with("\t "), "{line:?}");
        is_in_order(line).unwrap();
    }
    // Tokens that both print are in the same order.
    let (our_names, their_names) = (names(ours[1]), names(theirs[1]));
    let common = |names: &[String], other: &[String]| -> Vec<String> {
        names.iter().filter(|name| other.contains(name)).cloned().collect()
    };
    let shared = common(&our_names, &their_names);
    assert_eq!(shared, common(&their_names, &our_names));
    for name in
        ["skmem", "ts", "sack", "<cc>", "wscale", "rto", "rtt", "mss", "pmtu", "cwnd", "segs_in", "send"]
    {
        assert!(shared.iter().any(|shared| shared == name), "{name}: {our_names:?} {their_names:?}");
    }

    // The columns of the first line: queues, the two ends, no state because the filter names it.
    let columns: Vec<_> = ours[0].split_whitespace().collect();
    assert_eq!(columns[2], format!("{TAUT}:80"));
    assert!(columns[3].starts_with(&format!("{KERNEL}:")));
    let line = observer.says(&["ss", "-tinmoH"]);
    assert!(line.starts_with("ESTAB "), "{line}");

    // The values that the expressions of flent and others find in it.
    assert!(found(r"cwnd:(\d+)", &line) >= 10.0);
    assert!(found(r"rtt:([\d.]+)/[\d.]+", &line) > 0.0);
    assert!(found(r"rtt:[\d.]+/([\d.]+)", &line) >= 0.0);
    assert_eq!(found(r"\bmss:(\d+)", &line), 1448.0);
    assert!(found(r"pacing_rate (\d+)bps", &line) > 0.0);
    assert!(found(r"delivery_rate (\d+)bps", &line) > 0.0);
    assert!(found(r"bytes_acked:(\d+)", &line) > 1e6);
    assert!(found(r"skmem:\(r\d+,rb(\d+),t\d+,tb\d+,f0,w\d+,o0,bl0,d0\)", &line) > 0.0);
    let line = observer.says(&["ss", "-ti"]);
    let unit = |name: &str| Regex::new(&format!(r"{name} [\d.]+[kMGT]?bps")).unwrap();
    assert!(unit("pacing_rate").is_match(&line) && unit("delivery_rate").is_match(&line), "{line}");

    // The values of one congestion control, in the format and at the position of ss.
    observer.says(&["sysctl", "-w", "tcp_congestion_control=bbr"]);
    let _paced = slow_curl(&lab, "4M");
    eventually("a connection with BBR", || observer.says(&["ss", "-tinH"]).contains(" bbr:(bw:"));
    let two = observer.says(&["ss", "-tinmoeH"]);
    let line = two.lines().find(|line| line.contains(" bbr ")).unwrap_or_else(|| panic!("{two}"));
    let form =
        r"data_segs_in:\d+ bbr:\(bw:(\d+)bps,mrtt:([\d.]+),pacing_gain:([\d.]+),cwnd_gain:([\d.]+)\) send ";
    let captures = Regex::new(form).unwrap().captures(line).unwrap_or_else(|| panic!("{line}"));
    for index in 1..=4 {
        assert!(captures[index].parse::<f64>().unwrap() > 0.0, "{line}");
    }
    assert!(Regex::new(r" cc_state:(startup|drain|probe_\w+) ").unwrap().is_match(line), "{line}");
    assert!(two.lines().any(|line| line.contains(" cubic ") && !line.contains("bbr:(")), "{two}");

    // Listeners, and filters that nothing passes.
    let listening = observer.says(&["ss", "-tln"]);
    let listening: Vec<_> = listening.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(listening[..5], ["LISTEN", "0", "4096", "10.9.0.2:80", "0.0.0.0:*"]);
    assert_eq!(observer.says(&["ss", "-tH", "dport = :80"]), "");
    assert!(observer.fails(&["ss", "state", "happy"]).contains("happy"));
    server.interrupt();
    assert_eq!(server.wait(), Some(0));
    assert!(observer.sockets().is_empty(), "the socket was removed with the stack");
}

#[test]
fn connections_have_the_congestion_control_of_the_command_line() {
    let Some(lab) = Lab::new("congestion", &["curl"]) else { return };
    let observer = Observer::new("congestion");
    lab.file("large", 10_000_000);
    let _server = observer.start(&lab, &["serve", ".", "--congestion", "dctcp"], "serving");
    assert_eq!(observer.says(&["sysctl", "-n", "net.ipv4.tcp_congestion_control"]), "dctcp\n");
    let _slow = slow_curl(&lab, "1M");
    eventually("a connection with it", || observer.says(&["ss", "-tinH"]).contains(" dctcp "));
}

#[test]
fn counters_and_settings_of_a_running_server() {
    let Some(lab) = Lab::new("nstat", &["curl"]) else { return };
    let observer = Observer::new("nstat");
    lab.file("large", 1_000_000);
    let _server = observer.start(&lab, &["serve", "."], "serving");
    let fetch = || assert_eq!(slow_curl(&lab, "1G").wait(), Some(0));
    let opened = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("TcpPassiveOpens "));
        row.map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let row = |value: &str| Some(["TcpPassiveOpens", value, "0.0"].map(str::to_owned).to_vec());

    fetch();
    let first = observer.says(&["nstat"]);
    assert!(first.starts_with("#taut\n"));
    assert_eq!(opened(&first), row("1"));
    // None since then; then two; and two again, because the call was not remembered; three in total.
    assert_eq!(opened(&observer.says(&["nstat"])), None);
    fetch();
    fetch();
    assert_eq!(opened(&observer.says(&["nstat", "-s"])), row("2"));
    assert_eq!(opened(&observer.says(&["nstat", "-s", "TcpPassive*"])), row("2"));
    assert_eq!(opened(&observer.says(&["nstat", "-as"])), row("3"));
    assert_eq!(opened(&observer.says(&["nstat", "-rs"])), row("3"));
    assert_eq!(observer.says(&["nstat", "-n"]), "");
    assert_eq!(opened(&observer.says(&["nstat", "-z"])), row("0"));
    let json = observer.json(&["nstat", "-a", "--json"]);
    assert_eq!(json["taut"]["TcpPassiveOpens"], 3);

    let autocorking = "net.ipv4.tcp_autocorking";
    assert_eq!(observer.says(&["sysctl", autocorking]), "net.ipv4.tcp_autocorking = 1\n");
    let set = observer.says(&["sysctl", "-w", "net.ipv4.tcp_autocorking=0"]);
    assert_eq!(set, "net.ipv4.tcp_autocorking = 0\n");
    assert_eq!(observer.says(&["sysctl", "-n", autocorking]), "0\n");
    assert_eq!(observer.json(&["sysctl", "--json", autocorking])[autocorking], "0");
    let all = observer.says(&["sysctl", "-a"]);
    assert!(all.lines().all(|line| line.contains(" = ")) && all.contains("\ntaut.tsq = "), "{all}");
    // Invalid arguments are reported, and valid ones are applied.
    let output = observer.look(&["sysctl", "net.ipv4.tcp_sack=7", "tcp_moon=1", "taut.tsq=off"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "taut.tsq = off\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("from 0 to 1") && said.contains("tcp_moon"), "{said}");
    assert_eq!(observer.says(&["sysctl", "-n", "net.ipv4.tcp_sack"]), "1\n");
    assert!(observer.fails(&["sysctl", "moon"]).contains("moon; `taut sysctl -a` lists all settings"));
    fetch();
}

#[test]
fn explain_finds_a_receiver_that_does_not_read() {
    const PORT: u16 = 7000;
    let Some(lab) = Lab::new("explain", &[]) else { return };
    let observer = Observer::new("explain");
    // The kernel's address comes with the interface: the listener takes any.
    let listener = lab.kernel.enter(|| std::net::TcpListener::bind(("0.0.0.0", PORT))).unwrap().unwrap();
    let to = format!("{KERNEL}:{PORT}");
    let mut command = observer.command(&["send", &to]);
    let mut sender = lab.spawn(command.stdin(Stdio::piped()).stderr(Stdio::null()));
    let mut input = sender.stdin();
    std::thread::spawn(move || while input.write_all(&[0; 65536]).is_ok() {});
    let (mut receiver, _) = listener.accept().unwrap();
    let mut some = [0; 1000];
    receiver.read_exact(&mut some).unwrap();

    let explain = || observer.says(&["explain", &to]);
    // It no longer reads: the share of its window grows with time.
    eventually("the receiver's window is the largest reason", || {
        explain()
            .lines()
            .next()
            .is_some_and(|line| Regex::new(r"  \d+ % receiver's window").unwrap().is_match(line))
    });
    let said = explain();
    assert!(said.starts_with(&format!("{TAUT}:")) && said.contains(&format!(" -> {to}  ")), "{said}");
    assert!(said.contains("reads too slowly"), "{said}");
    let unsent = said.lines().find(|line| line.trim_start().starts_with("unsent")).unwrap();
    let bytes: u64 = unsent.split_whitespace().nth(1).unwrap().replace(',', "").parse().unwrap();
    assert!(bytes > 0, "{said}");
    let json = observer.json(&["explain", "--json"]);
    let queues = json["stack"]["queues"].as_array().unwrap();
    assert!(queues[0]["name"] == "unsent" && queues[0]["bytes"].as_u64() > Some(0), "{json}");
    assert!(observer.fails(&["explain", "10.1.2.3:4"]).contains("no connection"));

    // Two stacks in the same directory: one must be chosen.
    let _other = observer.start(
        &lab,
        &["recv", "--listen", "80", "--tun", "taut1", "--address", "10.8.0.2/24"],
        "listening",
    );
    let choice = observer.fails(&["ss"]);
    assert!(
        choice.contains("several") && choice.contains("taut0") && choice.contains("10.8.0.2/24"),
        "{choice}"
    );
    let sockets = observer.sockets();
    assert_eq!(sockets.len(), 2);
    for socket in &sockets {
        let pid = socket.file_stem().unwrap().to_str().unwrap();
        assert!(choice.contains(pid));
        assert!(observer.says(&["ss", "-s", "--socket", pid]).contains(pid));
        assert!(observer.says(&["ss", "-s", "--socket", socket.to_str().unwrap()]).contains(pid));
    }
}

#[test]
fn a_stack_that_is_not_there_is_said_not_to_be() {
    let observer = Observer::new("none");
    let said = observer.fails(&["ss"]);
    assert!(said.contains("no running stack") && said.contains(observer.dir.to_str().unwrap()), "{said}");
    let gone = observer.dir.join("gone.sock");
    assert!(observer.fails(&["nstat", "--socket", gone.to_str().unwrap()]).contains("no such socket"));
    drop(std::os::unix::net::UnixListener::bind(&gone).unwrap());
    assert!(
        observer.fails(&["nstat", "--socket", gone.to_str().unwrap()]).contains("left its socket behind")
    );
    assert!(observer.fails(&["sysctl", "-a", "--socket", "4194304"]).contains("4194304"));
}

#[test]
fn a_killed_stack_leaves_a_socket_that_the_next_look_removes() {
    let Some(lab) = Lab::new("killed", &[]) else { return };
    let observer = Observer::new("killed");
    let server = observer.start(&lab, &["serve", "."], "serving");
    let left = observer.sockets();
    assert_eq!(left.len(), 1);
    // Dropping kills.
    drop(server);
    assert!(left[0].exists());
    assert!(observer.fails(&["ss"]).contains("no running stack"));
    assert!(!left[0].exists());
}

#[test]
fn a_control_socket_at_a_path_or_none() {
    let Some(lab) = Lab::new("control", &[]) else { return };
    let observer = Observer::new("control");
    // At a path that only the command line names.
    let path = observer.dir.join("here");
    let path = path.to_str().unwrap();
    let mut at_path = observer.start(&lab, &["serve", ".", "--control", path], "serving");
    assert!(observer.sockets().is_empty());
    let who = observer.says(&["ss", "-s", "--socket", path]);
    assert!(who.contains("taut0: 10.9.0.2/24"), "{who}");
    at_path.interrupt();
    assert_eq!(at_path.wait(), Some(0));
    assert!(!std::path::Path::new(path).exists());
    let _none = observer.start(&lab, &["serve", ".", "--control", "none", "--tun", "taut1"], "serving");
    assert!(observer.sockets().is_empty());
}

#[test]
fn another_users_stack_is_out_of_reach() {
    const NOBODY: u32 = 65534;
    let Some(lab) = Lab::new("stranger", &[]) else { return };
    let observer = Observer::new("stranger");
    let _server = observer.start(&lab, &["serve", "."], "serving");
    let socket = observer.sockets().remove(0);
    // If the other user may not run the program, only the modes can be checked.
    let mut command = observer.command(&["ss", "--socket", socket.to_str().unwrap()]);
    match std::os::unix::process::CommandExt::uid(&mut command, NOBODY).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1));
            assert!(said.contains("another user"), "{said}");
        }
        Err(error) => live::skip(&format!("cannot run as another user: {error}")),
    }
}

/// Without the fields that grow while nothing happens.
fn at_rest(mut sockets: Value) -> Value {
    let all = sockets.as_object_mut().into_iter().flat_map(|lists| lists.values_mut());
    for socket in all.filter_map(Value::as_array_mut).flatten().filter_map(Value::as_object_mut) {
        for growing in ["last_snd_ns", "last_rcv_ns", "last_ack_ns", "expires_ns", "syns"] {
            socket.remove(growing);
        }
    }
    sockets
}

/// The library and the command, of the same stack; more connections than are copied at a time.
#[test]
fn api_01_a_snapshot_has_what_taut_ss_shows() {
    let observer = Observer::new("snapshot");
    let socket = observer.dir.join("here");
    let (near, far) = pipe(LinkCaps::offloading(1_500), 1 << 20).unwrap();
    let builder = Stack::builder().device(near).address("10.0.0.1/24").control(&socket);
    let stack = builder.build().unwrap();
    let peer = Stack::builder().device(far).address("10.0.0.2/24").build().unwrap();
    let listener = TcpListener::bind(&stack, "10.0.0.1:80").unwrap();
    let _flows = IncomingFlows::open(&stack, FlowFilter::any()).unwrap();
    let udp = UdpSocket::bind(&stack, "10.0.0.1:53").unwrap();
    udp.connect("10.0.0.2:53").unwrap();
    let mut streams = Vec::new();
    for count in 0..100 {
        let mut stream = TcpStream::connect(&peer, "10.0.0.1:80").unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(&vec![1; 10 * count]).unwrap();
        accepted.write_all(&vec![2; 1_000]).unwrap();
        streams.push((stream, accepted));
    }
    let _pending =
        TcpStream::begin_connect(&peer, "192.0.2.1:443".parse().unwrap(), &ConnOptions::default()).unwrap();
    let (mut ours, mut shown) = (Value::Null, Value::Null);
    let socket = socket.to_str().unwrap();
    let begun = now();
    // Until nothing moves.
    while begun.elapsed() < PATIENCE && (ours == Value::Null || ours != shown) {
        let taken = stack.snapshot();
        ours = at_rest(serde_json::json!({
            "listeners": taken.listeners, "flows": taken.flows, "connections": taken.connections,
            "datagrams": taken.datagrams, "rooms": [],
        }));
        shown = at_rest(observer.json(&["ss", "-atuw", "--json", "--socket", socket]));
    }
    assert_eq!(ours, shown);
    // The filter of flows listens, too.
    let lists = ["listeners", "flows", "connections", "datagrams"];
    assert_eq!(lists.map(|list| shown[list].as_array().map_or(0, Vec::len)), [2, 1, 100, 1]);
    let taken = stack.snapshot();
    let named = |name: &str| taken.counters.iter().find(|counter| counter.name == name).unwrap().value;
    assert_eq!((named("TcpPassiveOpens"), taken.reports.len()), (100, 100));
    drop(streams);
}

#[test]
fn the_real_lines_of_ss_are_in_the_order_that_is_asked_for() {
    // As iproute2 6.1 printed them of kernel connections.
    for line in [
        "\t skmem:(r0,rb131072,t0,tb4194304,f36424,w201144,o0,bl0,d0) ts sack bbr wscale:10,10 rto:204 rtt:0.045/0.036 \
         mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:218 ssthresh:282 bytes_sent:3701733957 bytes_retrans:260640 \
         bytes_acked:3701473318 segs_out:2569831 segs_in:75587 data_segs_out:2569829 \
         bbr:(bw:24221090592bps,mrtt:0.002,pacing_gain:1,cwnd_gain:2) send 56118044444bps lastrcv:2004 pacing_rate \
         29973599608bps delivery_rate 22202666664bps delivered:2569830 busy:1360ms retrans:0/180 dsack_dups:180 \
         reordering:180 reord_seen:7 rcv_space:14480 rcv_ssthresh:64088 minrtt:0.002 snd_wnd:7387136",
        "\t skmem:(r8283944,rb11764961,t0,tb69120,f2264,w0,o0,bl0,d0) ts sack bbr wscale:10,10 rto:204 rtt:0.01/0.005 \
         ato:40 mss:1448 pmtu:1500 rcvmss:1448 advmss:1448 cwnd:10 bytes_received:3802136613 segs_out:76538 \
         segs_in:2639279 data_segs_in:2639277 bbr:(bw:0bps,mrtt:0.01) send 11584000000bps lastsnd:2080 pacing_rate \
         33105352496bps delivered:1 app_limited rcv_rtt:0.518 rcv_space:2752512 rcv_ssthresh:10522708 minrtt:0.01 \
         rcv_ooopack:360 snd_wnd:64512",
    ] {
        is_in_order(line).unwrap();
    }
    assert!(is_in_order("\t rtt:1/1 rto:204").is_err() && is_in_order("\t moon:1").is_err());
}
