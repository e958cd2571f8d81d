//! Connections to any address, live: the kernel's clients in one namespace, behind a TUN; the kernel's
//! servers in another; between them the example `tun2socks`. Every refusal, reset, time-out and half-close
//! arrives as what it was. `make incoming` runs 10,000 flows; the test 1,000.
#![cfg(all(feature = "tokio", target_os = "linux"))]

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use socket2::SockRef;
use taut::observe::Counters;
use taut::{FlowFilter, FlowKind, IncomingFlows, IncomingOptions, Refusal, Stack};
use taut_testbed::{Kernel, Scratch, eventually, live};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[path = "../../examples/tun2socks/main.rs"]
#[allow(dead_code, unreachable_pub, reason = "its `main` runs as a program")]
mod tun2socks;

/// What is behind an address of the far namespace.
const SERVERS: [u8; 2] = [10, 50];
const UNREACHABLE: [u8; 2] = [10, 51];
const PROHIBITED: [u8; 2] = [10, 52];
const SILENT: [u8; 2] = [10, 53];
const NOWHERE: [u8; 2] = [10, 54];

/// The ports of the servers; nothing listens at [`CLOSED`].
const ECHO: u16 = 7;
const RESETS: u16 = 9;
const HEARS: u16 = 11;
const SPEAKS_FIRST: u16 = 13;
const CLOSED: u16 = 99;

/// How long an upstream may take, and after which a client knows that nobody answers.
const PATIENCE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(15);

/// After which a flow of UDP is over.
const IDLE: Duration = Duration::from_secs(2);

/// The near namespace, whose packets to anywhere go to the stack, and the far one, where the upstreams are.
struct Two {
    near: Kernel,
    far: Kernel,
    stack: Stack,
}

fn two() -> Two {
    let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    let stack = near
        .enter(|| Stack::builder().tun("taut0").address("10.7.0.2/24").host_address("10.7.0.1/24").build());
    let stack = stack.unwrap().unwrap();
    near.run("ip route add 10.48.0.0/12 dev taut0").unwrap();
    near.set_sysctl("ip_local_port_range", "1024 65535").unwrap();
    far.run("ip route add local 10.50.0.0/16 dev lo").unwrap();
    far.run("ip route add unreachable 10.51.0.0/16").unwrap();
    far.run("ip route add prohibit 10.52.0.0/16").unwrap();
    // A host that does not forward drops without a word what comes in for others.
    far.run("ip route add 10.53.0.0/16 dev lo").unwrap();
    far.set_sysctl("ip_local_port_range", "1024 65535").unwrap();
    Two { near, far, stack }
}

fn address([a, b]: [u8; 2], number: u32, port: u16) -> SocketAddr {
    (Ipv4Addr::from([a, b, (number / 200 % 200) as u8, 1 + (number % 200) as u8]), port).into()
}

/// The servers of the far namespace. Counts the resets that they see.
async fn servers(resets: Arc<AtomicU32>) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    for port in [ECHO, RESETS, HEARS, SPEAKS_FIRST] {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::UNSPECIFIED, port).into())?;
        let (listener, resets): (TcpListener, _) = (socket.listen(4_096)?, Arc::clone(&resets));
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(port, stream, Arc::clone(&resets)));
            }
        });
    }
    tasks.join_all().await;
    Ok(())
}

async fn serve(port: u16, mut stream: TcpStream, resets: Arc<AtomicU32>) -> io::Result<()> {
    let mut all = Vec::new();
    match port {
        // Answers when the client has ended its half.
        ECHO => {
            stream.read_to_end(&mut all).await?;
            stream.write_all(&all).await?;
        }
        RESETS => {
            stream.read_u8().await?;
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        }
        HEARS => {
            let end = stream.read_to_end(&mut all).await;
            if end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {
                resets.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Ends its own half first, and then hears the client out.
        _ => {
            stream.write_all(b"goodbye").await?;
            stream.shutdown().await?;
            stream.read_to_end(&mut all).await?;
            assert_eq!(all, b"and thanks");
            resets.fetch_add(1 << 16, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Where a client goes.
fn goal(number: u32) -> ([u8; 2], u16) {
    let kinds: [([u8; 2], u16); 9] = [
        (SERVERS, ECHO),
        (SERVERS, RESETS),
        (SERVERS, HEARS),
        (SERVERS, SPEAKS_FIRST),
        (SERVERS, CLOSED),
        (UNREACHABLE, 80),
        (PROHIBITED, 80),
        (SILENT, 80),
        (NOWHERE, 80),
    ];
    // A generator that knows nothing of the kinds: SplitMix64's constants.
    let mixed = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    kinds[((mixed >> 33) % 9) as usize]
}

/// What becomes of a client's connection.
async fn client(number: u32) -> Result<(), String> {
    let (network, port) = goal(number);
    let to = address(network, number, port);
    let told = |what: &str| format!("{number}, {to}: {what}");
    let patience = if network == SILENT { SILENCE } else { Duration::from_secs(60) };
    let connected = tokio::time::timeout(patience, TcpStream::connect(to)).await;
    let expected = match (network, port) {
        (SERVERS, CLOSED) => Some(ErrorKind::ConnectionRefused),
        (UNREACHABLE, _) => Some(ErrorKind::HostUnreachable),
        // RFC 1812's code 13, which a kernel takes for an unreachable host.
        (PROHIBITED, _) => Some(ErrorKind::HostUnreachable),
        (NOWHERE, _) => Some(ErrorKind::NetworkUnreachable),
        (SILENT, _) => {
            return connected.map_or(Ok(()), |result| Err(told(&format!("was answered: {result:?}"))));
        }
        _ => None,
    };
    let connected = connected.map_err(|_| told("was not answered"))?;
    let mut stream = match (connected, expected) {
        (Err(error), Some(kind)) if error.kind() == kind => return Ok(()),
        (Ok(stream), None) => stream,
        (Ok(mut stream), Some(_)) => {
            // Once in 100,000 times, tokio takes a socket for connected that the kernel does not: then it has
            // no peer.
            let (peer, end) = (stream.peer_addr(), stream.read_u8().await);
            let is_connected = !peer.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotConnected);
            let why = format!("connected, peer {peer:?}, read {end:?}");
            return if is_connected { Err(told(&why)) } else { Ok(()) };
        }
        (Err(error), _) => return Err(told(&error.to_string())),
    };
    let mut all = Vec::new();
    let say = |error: io::Error| told(&error.to_string());
    match port {
        ECHO => {
            let bytes = vec![number as u8; 20_000];
            stream.write_all(&bytes).await.map_err(say)?;
            stream.shutdown().await.map_err(say)?;
            stream.read_to_end(&mut all).await.map_err(say)?;
            if all != bytes {
                return Err(told("other bytes"));
            }
        }
        RESETS => {
            stream.write_all(b"x").await.map_err(say)?;
            let end = stream.read_to_end(&mut all).await;
            if !end.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {
                return Err(told(&format!("no reset but {end:?}")));
            }
        }
        HEARS => {
            stream.write_all(&[1; 1_000]).await.map_err(say)?;
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).map_err(say)?;
        }
        _ => {
            stream.read_to_end(&mut all).await.map_err(say)?;
            if all != b"goodbye" {
                return Err(told("another goodbye"));
            }
            stream.write_all(b"and thanks").await.map_err(say)?;
        }
    }
    Ok(())
}

/// `count` connections at once through `tun2socks`. Returns what went wrong, the resets and goodbyes that
/// servers saw, and the counters of the stack.
fn through(count: u32) -> (Vec<String>, u32, Counters) {
    let Two { near, far, stack } = two();
    let (resets, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let (counted, ends, served) = (Arc::clone(&resets), Arc::clone(&stop), stack.clone());
    let upstream = far.thread("upstream", move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            tokio::select! {
                end = servers(counted) => end.unwrap(),
                end = tun2socks::serve(served, None, PATIENCE, IDLE) => end.unwrap(),
                () = ends.notified() => {}
            }
        });
    });
    let clients = near.thread("clients", move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            // The servers listen, and the filter is open.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut tasks: JoinSet<_> = (0..count).map(client).collect();
            let mut wrong = Vec::new();
            while let Some(result) = tasks.join_next().await {
                wrong.extend(result.unwrap().err());
            }
            // The last resets arrive.
            tokio::time::sleep(Duration::from_secs(1)).await;
            wrong
        })
    });
    let wrong = clients.unwrap().join().unwrap();
    stop.notify_one();
    upstream.unwrap().join().unwrap();
    (wrong, resets.load(Ordering::Relaxed), stack.counters())
}

fn check(count: u32) {
    if !live::ready(&["ip"]) {
        return;
    }
    let (wrong, seen, counters) = through(count);
    let (some, all) = (&wrong[..wrong.len().min(10)], wrong.len());
    assert!(wrong.is_empty(), "{all} of {count}: {some:#?}\n{counters:?}");
    // A ninth of the clients reset, and a ninth are heard out, give or take six standard deviations.
    let (resets, goodbyes) = (seen & 0xffff, seen >> 16);
    let (mean, slack) = (count / 9, 6 * (f64::from(count) * 8.0 / 81.0).sqrt() as u32);
    for seen in [resets, goodbyes] {
        assert!((mean - slack..=mean + slack).contains(&seen), "{resets} resets, {goodbyes} goodbyes");
    }
    assert_eq!((counters.flows_expired, counters.flows_overflows), (0, 0));
    assert!(counters.flows_in >= u64::from(count), "{counters:?}");
    let served = (0..count).map(goal).filter(|&(network, port)| network == SERVERS && port != CLOSED);
    assert_eq!(counters.flows_accepted, served.count() as u64);
    let [accepted, refused, dropped] =
        [counters.flows_accepted, counters.flows_refused, counters.flows_dropped];
    println!("{count} flows: {accepted} accepted, {refused} refused, {dropped} dropped");
}

#[test]
fn every_end_of_1000_flows_arrives_as_what_it_was() {
    check(1_000);
}

#[test]
#[ignore = "make incoming"]
fn every_end_of_10000_flows_arrives_as_what_it_was() {
    check(10_000);
}

/// One question by UDP, and what came back.
fn asks(socket: &UdpSocket, question: &[u8]) -> io::Result<Vec<u8>> {
    socket.send(question)?;
    let mut answer = vec![0; 2_000];
    let len = socket.recv(&mut answer)?;
    answer.truncate(len);
    Ok(answer)
}

fn udp_client(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(taut_testbed::PATIENCE))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Questions and answers by UDP through `tun2socks`; refusals arrive as refusals; idle flows end, and begin
/// again.
#[test]
fn udp_passes_through_and_so_do_its_refusals() {
    if !live::ready(&["ip", "tshark"]) {
        return;
    }
    let Two { near, far, stack } = two();
    let scratch = Scratch::new("tun2socks");
    let file = scratch.join("wire.pcapng");
    let mut command = std::process::Command::new("tshark");
    command.args(["-q", "-i", "taut0", "-w"]).arg(&file).stderr(std::process::Stdio::null());
    let mut capture = near.namespace.spawn(&mut command).unwrap();
    eventually("tshark captures", || file.exists());
    let (stop, served) = (Arc::new(Notify::new()), stack.clone());
    let ends = Arc::clone(&stop);
    let upstream = far.thread("upstream", move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let echo = async {
                let socket = tokio::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ECHO)).await?;
                let mut bytes = [0; 2_000];
                loop {
                    let (len, from) = socket.recv_from(&mut bytes).await?;
                    bytes[..len].reverse();
                    socket.send_to(&bytes[..len], from).await?;
                }
            };
            tokio::select! {
                end = echo => { let _: io::Result<()> = end; }
                end = tun2socks::serve(served, None, PATIENCE, IDLE) => end.unwrap(),
                () = ends.notified() => {}
            }
        });
    });
    let counters = stack.clone();
    let clients = near.thread("clients", move || {
        std::thread::sleep(Duration::from_millis(300));
        let echo = SocketAddr::from((Ipv4Addr::new(10, 50, 0, 1), ECHO));
        for number in 0..200_u32 {
            let question = [&number.to_be_bytes()[..], &vec![7; number as usize * 7]].concat();
            let mut answer = asks(&udp_client(echo).unwrap(), &question).unwrap();
            answer.reverse();
            assert_eq!(answer, question);
        }
        let refused = udp_client(address(SERVERS, 1, CLOSED)).unwrap();
        for _ in 0..2 {
            assert_eq!(asks(&refused, b"?").unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        // RFC 1812's code 13.
        let prohibited = udp_client(address(PROHIBITED, 1, ECHO)).unwrap();
        assert_eq!(asks(&prohibited, b"?").unwrap_err().kind(), ErrorKind::HostUnreachable);
        // One flow as long as it is used; and another after it was idle.
        let stays = udp_client(echo).unwrap();
        let began = counters.counters().datagram_flows_in;
        for _ in 0..6 {
            assert_eq!(asks(&stays, b"ab").unwrap(), b"ba");
            std::thread::sleep(IDLE / 5);
        }
        assert_eq!(counters.counters().datagram_flows_in, began + 1);
        eventually("all flows are idle", || {
            let counters = counters.counters();
            counters.datagram_flows_idle == counters.datagram_flows_accepted
        });
        assert_eq!(asks(&stays, b"ab").unwrap(), b"ba");
        assert_eq!(counters.counters().datagram_flows_in, began + 2);
    });
    clients.unwrap().join().unwrap();
    stop.notify_one();
    upstream.unwrap().join().unwrap();
    near.run(&format!("kill -INT {}", capture.id())).unwrap();
    capture.wait().unwrap();
    let count = |filter: &str| {
        let mut tshark = std::process::Command::new("tshark");
        let output = tshark.arg("-r").arg(&file).args(["-Y", filter]).output();
        String::from_utf8_lossy(&output.unwrap().stdout).lines().count()
    };
    assert!(count("udp.srcport == 7 && !icmp") > 200 && count("icmp.type == 3") >= 3);
    // The checksums of UDP are the interface's work, as those of TCP.
    assert_eq!(count("_ws.malformed || icmp.checksum.status == 0 || ip.checksum.status == 0"), 0);
    let counters = stack.counters();
    assert_eq!((counters.datagram_flows_overflows, counters.datagram_flows_refused), (0, 1), "{counters:?}");
}

/// A name server that knows no names: the question comes back as an answer without records (RFC 1035 §4.1.1).
async fn name_server() -> io::Result<()> {
    let socket = tokio::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 53)).await?;
    let mut bytes = [0; 2_000];
    loop {
        let (len, from) = socket.recv_from(&mut bytes).await?;
        bytes[2] |= 0x80;
        // `dig` adds a record about itself.
        bytes[10..12].fill(0);
        let end = 12 + bytes[12..len].iter().position(|&byte| byte == 0).unwrap_or(0) + 5;
        socket.send_to(&bytes[..end], from).await?;
    }
}

/// The number after a name in `iperf3`'s report, the last one of that name.
fn last_of(report: &str, name: &str) -> f64 {
    let (_, rest) = report.rsplit_once(&format!("\"{name}\":")).expect(name);
    rest.trim_start().split([',', '\n']).next().unwrap().trim().parse().unwrap()
}

/// A relay between the two namespaces, with iperf3's server behind it, until it is dropped.
struct Relay {
    two: Two,
    stop: Arc<Notify>,
    upstream: Option<std::thread::JoinHandle<()>>,
    server: std::process::Child,
}

impl Relay {
    fn start() -> Self {
        let two = two();
        let (stop, served) = (Arc::new(Notify::new()), two.stack.clone());
        let ends = Arc::clone(&stop);
        let upstream = two.far.thread("upstream", move || {
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                tokio::select! {
                    end = name_server() => end.unwrap(),
                    end = tun2socks::serve(served, None, PATIENCE, IDLE) => end.unwrap(),
                    () = ends.notified() => {}
                }
            });
        });
        let mut command = std::process::Command::new("iperf3");
        command.arg("-s").stdout(std::process::Stdio::null());
        let server = two.far.namespace.spawn(&mut command).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        Self { two, stop, upstream: upstream.ok(), server }
    }

    /// Datagrams that were dropped so far: by the interface's queue, by flows whose receive buffers were
    /// full, by the far kernel's receive buffers, which are those of the relay and of iperf3's server, and by
    /// those of iperf3's client.
    fn drops(&self) -> [u64; 4] {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let all = self.two.near.enter(read).unwrap();
        let line = all.lines().find(|line| line.trim_start().starts_with("taut0:")).unwrap();
        let of_interface = line.split_whitespace().nth(12).unwrap().parse().unwrap();
        let [far, near] =
            [&self.two.far, &self.two.near].map(|kernel| kernel.counters().unwrap()["UdpRcvbufErrors"]);
        [of_interface, self.two.stack.counters().udp_rcvbuf_errors, far, near]
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        _ = self.server.kill();
        _ = self.server.wait();
        self.stop.notify_one();
        if let Some(thread) = self.upstream.take() {
            _ = thread.join();
        }
    }
}

/// Runs iperf3's UDP client for two seconds; returns datagrams sent and lost.
fn iperf3(kernel: &Kernel, to: &str, rate: &str, way: &str) -> [f64; 2] {
    let command = format!("iperf3 -c {to} -u -b {rate} -l 1200 -t 2 -J{way}");
    let mut report = String::new();
    eventually("the server is free, and the client reports", || {
        report = kernel.run(&command).unwrap_or_default();
        report.contains("\"lost_packets\":")
    });
    ["packets", "lost_packets"].map(|name| last_of(&report, name))
}

#[test]
fn dig_and_iperf3_pass_through() {
    if !live::ready(&["ip", "dig", "iperf3"]) {
        return;
    }
    let relay = Relay::start();
    let near = &relay.two.near;
    let answer = near.run("dig @10.50.0.1 example.com +tries=1 +time=20").unwrap();
    assert!(answer.contains("status: NOERROR") && answer.contains("10.50.0.1#53"), "{answer}");
    let refused = near.run("dig @10.50.0.1 -p 99 example.com +tries=1 +time=20");
    let refused = refused.unwrap_or_else(|error| error.to_string());
    assert!(refused.contains("connection refused") || !refused.contains("timed out"), "{refused}");
    for way in ["", " -R"] {
        let [packets, lost] = iperf3(near, "10.50.0.1", "100M", way);
        println!("iperf3 -u{way}: {lost} of {packets} datagrams lost, at 100 Mbit/s");
        assert!(packets - lost > 1_000.0, "{lost} of {packets}");
    }
}

/// What gets through at which rate, and where the rest is dropped, beside the kernel's own path: `make
/// iperf3`.
#[test]
#[ignore = "make iperf3"]
fn iperf3_through_the_relay_beside_the_kernels_own() {
    if !live::ready(&["ip", "iperf3"]) {
        return;
    }
    let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    near.veth(&far, taut_testbed::Subnet(9), 1_500).unwrap();
    let mut command = std::process::Command::new("iperf3");
    command.arg("-s").stdout(std::process::Stdio::null());
    let mut server = far.namespace.spawn(&mut command).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let relay = Relay::start();
    let percent = |[packets, lost]: [f64; 2]| 100.0 * lost / packets;
    println!(
        "| Mbit/s | way | kernel to kernel, lost | through the relay, lost | interface | flows | far kernel | client |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for rate in [50, 100, 200, 400, 800] {
        for way in ["", " -R"] {
            for _ in 0..3 {
                let own = percent(iperf3(&near, "10.9.0.1", &format!("{rate}M"), way));
                let before = relay.drops();
                let through = percent(iperf3(&relay.two.near, "10.50.0.1", &format!("{rate}M"), way));
                let after = relay.drops();
                let [interface, flows, kernel, client] = [0, 1, 2, 3].map(|at| after[at] - before[at]);
                let way = if way.is_empty() { "up" } else { "down" };
                println!(
                    "| {rate} | {way} | {own:.2} % | {through:.2} % | {interface} | {flows} | {kernel} | {client} |"
                );
            }
        }
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Blocking sockets: UDP and pings beside connections.
#[test]
fn a_thread_answers_datagrams_and_pings() {
    if !live::ready(&["ip", "ping"]) {
        return;
    }
    let Two { near, stack, far: _ } = two();
    let filter = FlowFilter::any().kinds([FlowKind::Udp, FlowKind::Echo]);
    let flows = taut::blocking::IncomingFlows::open(&stack, filter).unwrap();
    let to = address(SERVERS, 1, 53);
    let client = near.thread("client", move || asks(&udp_client(to).unwrap(), b"question"));
    let flow = flows.accept().unwrap();
    assert_eq!((flow.kind(), flow.local_addr(), flow.syn()), (FlowKind::Udp, to, None));
    let peer = flow.peer_addr();
    let socket = flow.accept_udp().unwrap();
    assert_eq!((socket.local_addr().unwrap(), socket.peer_addr().unwrap()), (to, peer));
    let mut bytes = [0; 100];
    let len = socket.recv(&mut bytes).unwrap();
    socket.send(&bytes[len - 2..len]).unwrap();
    assert_eq!(client.unwrap().join().unwrap().unwrap(), b"on");

    let client = near.thread("client", move || asks(&udp_client(to).unwrap(), b"question"));
    flows.accept().unwrap().refuse(Refusal::Reset);
    assert_eq!(client.unwrap().join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let client = near.thread("client", move || asks(&udp_client(to).unwrap(), b"question"));
    let wrong = flows.accept().unwrap().accept();
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidInput, "UDP is no connection");
    drop(client);

    let kernel = std::thread::scope(|scope| {
        let ping = scope.spawn(|| near.run("ping -c 3 -i 0.2 -s 1000 10.50.0.9"));
        let flow = flows.accept().unwrap();
        assert_eq!(
            (flow.kind(), flow.local_addr().ip()),
            (FlowKind::Echo, Ipv4Addr::new(10, 50, 0, 9).into())
        );
        let echo = flow.accept_echo().unwrap();
        let mut data = [0; 2_000];
        for seq in 1..=3 {
            let request = echo.recv(&mut data).unwrap();
            assert_eq!((request.seq, request.len), (seq, 1_000));
            echo.send(seq, &data[..request.len]).unwrap();
        }
        ping.join().unwrap().unwrap()
    });
    assert!(kernel.contains("3 received"), "{kernel}");
}

/// Blocking sockets: the decision may be late, and a flow that is dropped stays silent.
#[test]
fn a_thread_decides_about_flows() {
    if !live::ready(&["ip"]) {
        return;
    }
    use std::net::TcpStream;
    let Two { near, stack, far: _ } = two();
    let options = IncomingOptions::default();
    let flows = taut::blocking::IncomingFlows::open_with(&stack, FlowFilter::any(), options).unwrap();
    assert_eq!(flows.try_accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let connect = |number, patience| {
        let to = address(SERVERS, number, 80);
        near.thread("client", move || TcpStream::connect_timeout(&to, patience)).unwrap()
    };
    let long = Duration::from_secs(60);
    let waits = connect(1, long);
    let flow = flows.accept().unwrap();
    assert_eq!(flow.local_addr(), address(SERVERS, 1, 80));
    assert_eq!(flow.peer_addr().ip(), Ipv4Addr::new(10, 7, 0, 1));
    let syn = flow.syn().unwrap();
    assert!(syn.mss == Some(1_460) && syn.sack && syn.window_scale.is_some(), "{syn:?}");
    // The kernel repeats its SYN after a second.
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(!waits.is_finished() && !flow.is_gone() && !flow.is_open());
    assert_eq!(flows.try_accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let accepted = flow.accept().unwrap();
    let client = waits.join().unwrap().unwrap();
    assert_eq!(client.local_addr().unwrap(), accepted.peer_addr().unwrap());
    assert_eq!(accepted.local_addr().unwrap(), address(SERVERS, 1, 80));
    // A reset is a reset.
    assert_eq!(accepted.linger().unwrap(), None);
    accepted.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(accepted.linger().unwrap(), Some(Duration::ZERO));
    drop(accepted);
    let end = io::Read::read(&mut &client, &mut [0; 1]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);

    let refused = connect(2, long);
    flows.accept().unwrap().refuse(Refusal::PortUnreachable);
    assert_eq!(refused.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionRefused);

    let silent = connect(3, Duration::from_millis(1_500));
    drop(flows.accept().unwrap());
    assert_eq!(silent.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(flows.try_accept().unwrap_err().kind(), ErrorKind::WouldBlock, "its SYN came again");
    let counters = stack.counters();
    assert_eq!((counters.flows_in, counters.flows_refused, counters.flows_dropped), (3, 1, 1));
}

/// Tokio's: a waiting `accept` may be dropped, and loses nothing.
#[test]
fn a_dropped_accept_loses_no_flow() {
    if !live::ready(&["ip"]) {
        return;
    }
    let Two { near, stack, far: _ } = two();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let flows = IncomingFlows::open(&stack, FlowFilter::any()).unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            let brief = tokio::time::timeout(Duration::from_millis(10), flows.accept()).await;
            assert!(brief.is_err(), "nobody connects");
        }
        let to = address(SERVERS, 1, 80);
        let client = near.thread("client", move || std::net::TcpStream::connect(to)).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let flow = flows.accept().await.unwrap();
        // An accept that is dropped halfway closes the connection.
        let stream = flow.accept().await.unwrap();
        client.join().unwrap().unwrap();
        drop(stream);
        drop(flows);
        assert_eq!(stack.counters().flows_accepted, 1);
    });
}
