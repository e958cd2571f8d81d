//! A proxy between clients in one namespace and servers in another, with a stack of taut's as the sender:
//! PX-7 to 13, 18 and 30 of `docs/spec/proxy.md`.
//!
//! ```text
//!   near: clients ── the proxy's listener │ the proxy's stack, 10.7.0.2 ── TUN ── 10.7.0.1: far, with 10.50.0.0/16
//! ```
#![cfg(target_os = "linux")]

use crate::support;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use taut::{ConnOptions, Stack};
use taut_gateway::{
    Amounts, Clients, Counters, HostSockets, JoinUpstream, Limits, Link, Login, Resolver, Rules, Server,
    Settings, Timeouts, Transparent, WayOut,
};
use taut_testbed::{Kernel, PATIENCE, eventually, live, now};

use support::Running;

const STACK: [u8; 4] = [10, 7, 0, 2];
const SERVER: [u8; 4] = [10, 50, 0, 1];
const OTHER: [u8; 4] = [10, 50, 0, 2];
const UNREACHABLE: [u8; 4] = [10, 51, 0, 1];
const SILENT: [u8; 4] = [10, 53, 0, 1];
pub(crate) const PORT: u16 = 1_080;

pub(crate) struct World {
    /// Dropped first.
    _running: Running,
    near: Kernel,
    pub(crate) far: Kernel,
    pub(crate) server: Server,
}

/// Two namespaces, and a stack whose TUN is in the far one.
fn namespaces() -> Option<(Kernel, Kernel, Stack)> {
    if !live::ready(&["ip"]) {
        return None;
    }
    let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    far.run("ip route add local 10.50.0.0/16 dev lo").unwrap();
    far.run("ip route add unreachable 10.51.0.0/16").unwrap();
    far.set_sysctl("ip_forward", "1").unwrap();
    far.run("ip route add blackhole 10.53.0.0/16").unwrap();
    let stack = far
        .enter(|| Stack::builder().tun("taut0").address("10.7.0.2/24").host_address("10.7.0.1/24").build());
    Some((near, far, stack.unwrap().unwrap()))
}

impl World {
    /// Clients come from the near namespace to 127.0.0.1, and go out by the stack.
    fn new(settings: Settings, resolver: Resolver, login: Option<Login>) -> Option<Self> {
        let (near, far, stack) = namespaces()?;
        let way = link(&stack);
        let listener = near.enter(|| TcpListener::bind(("127.0.0.1", PORT))).unwrap().unwrap();
        let clients = move || {
            listener.set_nonblocking(true).unwrap();
            tokio::net::TcpListener::from_std(listener).unwrap()
        };
        Some(Self::by(near, far, settings, resolver, clients, way, login))
    }

    pub(crate) fn by<C: Clients, W: WayOut>(
        near: Kernel,
        far: Kernel,
        settings: Settings,
        resolver: Resolver,
        clients: impl FnOnce() -> C + Send + 'static,
        way: W,
        login: Option<Login>,
    ) -> Self
    where
        C::Stream: JoinUpstream<W::Stream>,
    {
        let (server, running) = Running::start(&near, move || {
            let server = Server::new(settings, resolver, Box::new(|_| {}));
            let serving = server.proxy(clients(), Arc::new(way), login);
            (server, serving)
        });
        Self { near, far, server, _running: running }
    }

    fn listener(&self, address: [u8; 4]) -> (TcpListener, SocketAddr) {
        let listener = self.far.enter(|| TcpListener::bind((Ipv4Addr::from(address), 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A connection to the proxy.
    pub(crate) fn client(&self) -> TcpStream {
        let stream = self.near.enter(|| TcpStream::connect(("127.0.0.1", PORT))).unwrap().unwrap();
        patient(stream)
    }

    /// What SOCKS5 replies to a request for this address, and the connection.
    fn socks5(&self, to: SocketAddr) -> (u8, TcpStream) {
        let SocketAddr::V4(v4) = to else { panic!("{to}") };
        self.socks5_by(&[&[1][..], &v4.ip().octets(), &v4.port().to_be_bytes()].concat())
    }

    /// The same for a name.
    pub(crate) fn named(&self, name: &str, port: u16) -> (u8, TcpStream) {
        self.socks5_by(&[&[3, name.len() as u8], name.as_bytes(), &port.to_be_bytes()].concat())
    }

    fn socks5_by(&self, place: &[u8]) -> (u8, TcpStream) {
        let mut stream = self.client();
        stream.write_all(&[5, 1, 0]).unwrap();
        let mut method = [0; 2];
        stream.read_exact(&mut method).unwrap();
        assert_eq!(method, [5, 0]);
        stream.write_all(&[&[5, 1, 0], place].concat()).unwrap();
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!((reply[0], &reply[2..]), (5, &[0, 1, 0, 0, 0, 0, 0, 0][..]));
        (reply[1], stream)
    }

    /// The status of HTTP's answer, and the connection.
    fn connect(&self, target: &str) -> (u16, TcpStream) {
        let mut stream = self.client();
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), stream)
    }

    /// Both ends of one connection through the proxy.
    pub(crate) fn pair(&self) -> (TcpStream, TcpStream) {
        let (listener, address) = self.listener(SERVER);
        let (code, client) = self.socks5(address);
        assert_eq!(code, 0);
        (client, patient(listener.accept().unwrap().0))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.server.look(|gateway| *gateway.counters())
    }

    pub(crate) fn nothing_is_left(&self) {
        eventually("no flow is left", || self.server.look(|gateway| gateway.in_use() == Amounts::default()));
    }
}

pub(crate) fn link(stack: &Stack) -> Link {
    let congestion = Some(stack.algorithm("bbr").unwrap());
    let options =
        ConnOptions { congestion, nodelay: true, notsent_lowat: 128 << 10, ..ConnOptions::default() };
    Link { stack: stack.clone(), options }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub(crate) fn plain() -> Option<World> {
    World::new(Settings::default(), Resolver::default(), None)
}

fn at(address: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::from((address, port))
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A call that waits with a limit is not repeated by the library when a process that was stopped goes on.
fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Bytes both ways, each to the end: half-close by the first, and all of it equal.
fn moves(client: &TcpStream, served: &TcpStream) {
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at * 31 % 251) as u8).collect();
    for (mut from, mut to) in [
        (client.try_clone().unwrap(), served.try_clone().unwrap()),
        (served.try_clone().unwrap(), client.try_clone().unwrap()),
    ] {
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || {
            from.write_all(&sent).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
        });
        let mut all = Vec::new();
        to.read_to_end(&mut all).unwrap();
        assert!(all == bytes);
        writer.join().unwrap();
    }
}

#[test]
fn px_7_by_socks5_and_http_over_the_link_with_half_close() {
    let Some(world) = plain() else { return };
    let (client, served) = world.pair();
    // The server sees the stack, and nobody else.
    assert_eq!(served.peer_addr().unwrap().ip(), Ipv4Addr::from(STACK));
    moves(&client, &served);
    let (listener, address) = world.listener(SERVER);
    let (status, client) = world.connect(&address.to_string());
    assert_eq!(status, 200);
    moves(&client, &patient(listener.accept().unwrap().0));
    // What a client sends behind its request, without waiting for the answer, arrives first.
    let mut client = world.client();
    client.write_all(format!("CONNECT {address} HTTP/1.1\r\n\r\nearly").as_bytes()).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let mut early = [0; 5];
    patient(served.try_clone().unwrap()).read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
    served.write_all(b"late").unwrap();
    drop(served);
    drop(client);
    world.nothing_is_left();
    let counters = world.counters();
    assert_eq!((counters.connections, counters.reached), (3, 3), "{counters:?}");
    assert_eq!((counters.bytes_up, counters.bytes_down >> 20), ((8 << 20) + 5, 8), "{counters:?}");
}

#[test]
fn px_8_a_client_hears_why_a_connection_is_not_there() {
    let rules = Rules::parse(["deny 10.50.0.2"]).unwrap();
    let settings = Settings { rules, ..Settings::default() };
    let Some(world) = World::new(settings.clone(), Resolver::default(), None) else { return };
    for (address, reply, status) in [
        (SERVER, 5, 502),
        (UNREACHABLE, 4, 502),
        // By a rule of the test, and by the defaults.
        (OTHER, 2, 403),
        ([127, 0, 0, 1], 2, 403),
        ([169, 254, 169, 254], 2, 403),
        (SILENT, 6, 504),
    ] {
        if address == SILENT {
            let timeouts = Timeouts { half_open: Duration::from_secs(1), ..Timeouts::default() };
            world.server.set(Settings { timeouts, ..settings.clone() });
        }
        assert_eq!(world.socks5(at(address, 99)).0, reply, "{address:?}");
        let target = format!("{}:99", Ipv4Addr::from(address));
        assert_eq!(world.connect(&target).0, status, "{address:?}");
    }
    world.server.set(settings);
    // None of them keeps a good one waiting or leaves anything.
    drop(world.pair());
    world.nothing_is_left();
    let counters = world.counters();
    assert_eq!((counters.refused, counters.denied, counters.silent), (4, 6, 2), "{counters:?}");
}

/// A name server of the near namespace, until the test ends.
fn name_server(near: &Kernel) -> SocketAddr {
    let socket = near.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut message = [0; 4_096];
        while let Ok((len, from)) = socket.recv_from(&mut message) {
            let question = &message[..len];
            let first = usize::from(question[12]);
            let name = String::from_utf8_lossy(&question[13..13 + first]).to_ascii_lowercase();
            let is_v4 = question[len - 4..] == [0, 1, 0, 1];
            let addresses: &[[u8; 4]] = match &*name {
                _ if !is_v4 => &[],
                "one" => &[SERVER],
                "two" => &[UNREACHABLE, SERVER],
                "local" => &[[127, 0, 0, 1]],
                "other" => &[OTHER],
                "denied" => panic!("a denied name was asked for"),
                _ => &[],
            };
            let mut answer = question.to_vec();
            (answer[2], answer[3], answer[7]) = (0x81, 0x80, addresses.len() as u8);
            for address in addresses {
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend_from_slice(address);
            }
            socket.send_to(&answer, from).unwrap();
        }
    });
    address
}

#[test]
fn px_9_names_are_resolved_here_and_checked_by_the_rules() {
    let Some((near, far, stack)) = namespaces() else { return };
    let servers = vec![name_server(&near)];
    let rules = ["deny denied.example.com", "allow *.example.com within 10.50.0.0/15", "deny any"];
    let settings = Settings { rules: Rules::parse(rules).unwrap(), ..Settings::default() };
    let listener = near.enter(|| TcpListener::bind(("127.0.0.1", PORT))).unwrap().unwrap();
    let clients = move || {
        listener.set_nonblocking(true).unwrap();
        tokio::net::TcpListener::from_std(listener).unwrap()
    };
    let way = link(&stack);
    let resolver = Resolver { servers, ..Resolver::default() };
    let world = World::by(near, far, settings, resolver, clients, way, None);
    let (listener, site) = world.listener(SERVER);
    // The address is closed; it opens with its name.
    assert_eq!(world.socks5(site).0, 2);
    for name in ["one.example.com", "One.Example.Com.", "two.example.com"] {
        let (code, mut client) = world.named(name, site.port());
        assert_eq!(code, 0, "{name}");
        client.write_all(name.as_bytes()).unwrap();
        let mut said = vec![0; name.len()];
        patient(listener.accept().unwrap().0).read_exact(&mut said).unwrap();
        assert_eq!(said, name.as_bytes());
        assert_eq!(world.connect(&format!("{name}:{}", site.port())).0, 200, "{name}");
        drop(listener.accept().unwrap());
    }
    assert_eq!(world.socks5(site).0, 0);
    // A name that leads to the loopback, a denied one, one of somebody else, one that is not there, and none.
    for (name, reply, status) in [
        ("local.example.com", 2, 403),
        ("denied.example.com", 2, 403),
        ("other.example.org", 2, 403),
        ("none.example.com", 4, 502),
        ("a..b", 4, 502),
    ] {
        assert_eq!(world.named(name, site.port()).0, reply, "{name}");
        assert_eq!(world.connect(&format!("{name}:{}", site.port())).0, status, "{name}");
    }
    drop(listener);
    world.nothing_is_left();
}

#[test]
fn px_31_a_connection_by_a_name_must_be_for_that_name() {
    let Some((near, far, stack)) = namespaces() else { return };
    let servers = vec![name_server(&near)];
    let rules = ["allow *.example.com within 10.50.0.0/15", "deny any"];
    let settings = Settings { rules: Rules::parse(rules).unwrap(), ..Settings::default() };
    let listener = near.enter(|| TcpListener::bind(("127.0.0.1", PORT))).unwrap().unwrap();
    let clients = move || {
        listener.set_nonblocking(true).unwrap();
        tokio::net::TcpListener::from_std(listener).unwrap()
    };
    let resolver = Resolver { servers, ..Resolver::default() };
    let way = link(&stack);
    let world = World::by(near, far, settings, resolver, clients, way, None);
    let (listener, site) = world.listener(SERVER);
    for (host, passes) in [("one.example.com", true), ("other.example.org", false)] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        for is_early in [false, true] {
            let target = format!("one.example.com:{}", site.port());
            let mut client = world.client();
            let connect = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
            if is_early {
                client.write_all(&[connect.as_bytes(), request.as_bytes()].concat()).unwrap();
            } else {
                client = world.connect(&target).1;
                client.write_all(request.as_bytes()).unwrap();
            }
            let mut all = Vec::new();
            let mut served = patient(listener.accept().unwrap().0);
            if passes {
                let mut said = vec![0; request.len()];
                served.read_exact(&mut said).unwrap();
                assert_eq!(said, request.as_bytes());
            } else {
                let end = served.read_to_end(&mut all).unwrap_err();
                assert_eq!((end.kind(), all.len()), (ErrorKind::ConnectionReset, 0), "{is_early}");
                assert_eq!(client.read_to_end(&mut all).unwrap_err().kind(), ErrorKind::ConnectionReset);
            }
        }
    }
    world.nothing_is_left();
}

/// Writes without end until nothing moves for half a second; returns how much was taken.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (chunk, mut taken, mut last) = (vec![7; 1 << 16], 0, now());
    while last.elapsed() < Duration::from_millis(500) {
        match stream.write(&chunk) {
            Ok(count) => (taken, last) = (taken + count, now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    taken
}

#[test]
fn px_10_a_slow_reader_makes_its_sender_wait_and_resets_pass() {
    const AT_ONCE: u64 = 128 << 10;
    let Some(world) = plain() else { return };
    for from_client in [true, false] {
        let (client, served) = world.pair();
        let (mut writer, mut reader) = if from_client { (client, served) } else { (served, client) };
        let taken = fill(&mut writer);
        let held = world.server.look(|gateway| gateway.in_use().bytes);
        assert!(held <= 2 * AT_ONCE && taken > 16 << 10, "{held} {taken}");
        writer.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), taken);
    }
    for from_client in [true, false] {
        let (client, served) = world.pair();
        let (broken, mut other) = if from_client { (client, served) } else { (served, client) };
        reset(broken);
        assert_eq!(
            again(|| other.read(&mut [0])).unwrap_err().kind(),
            ErrorKind::ConnectionReset,
            "{from_client}"
        );
    }
    world.nothing_is_left();
    let counters = world.counters();
    assert_eq!((counters.finished, counters.reset), (2, 2), "{counters:?}");
}

/// Bytes that the peer of a client's socket takes, `tcpi_snd_wnd`; `None` before Linux 5.4.
fn window(client: &TcpStream) -> Option<u32> {
    let info = taut::device::sys::tcp_info(client).unwrap();
    Some(u32::from_ne_bytes(*info.get(228..)?.first_chunk()?))
}

#[test]
fn px_30_a_clients_first_window_is_small_until_the_line_is_known() {
    let Some(world) = plain() else { return };
    // One that connects before the listener is prepared has the kernel's own window.
    drop(world.pair());
    let (mut client, mut served) = world.pair();
    let Some(first) = window(&client) else { return };
    assert!((4 << 10..=16 << 10).contains(&first), "{first}");
    let reader = std::thread::spawn(move || std::io::copy(&mut served, &mut std::io::sink()).unwrap());
    // A locked buffer would never offer more.
    let (block, mut written) = (vec![0; 256 << 10], 0);
    eventually("the window grows", || {
        assert!(written <= 16 << 20, "the window has not grown");
        client.write_all(&block).unwrap();
        written += block.len() as u64;
        window(&client).unwrap() > 32 << 10
    });
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), written);
}

#[test]
fn px_11_clients_over_the_link_go_out_by_the_host() {
    let Some((near, far, stack)) = namespaces() else { return };
    near.run("ip route add local 10.60.0.0/16 dev lo").unwrap();
    let listener = taut::TcpListener::bind_with(&stack, at(STACK, PORT), taut::ListenOptions::default());
    let listener = listener.unwrap();
    let world = World::by(
        near,
        far,
        Settings::default(),
        Resolver::default(),
        move || listener,
        HostSockets::default(),
        None,
    );
    let server = world.near.enter(|| TcpListener::bind(("10.60.0.1", 0))).unwrap().unwrap();
    let target = server.local_addr().unwrap();
    let ask = |target: SocketAddr| -> (String, TcpStream) {
        let mut client = patient(world.far.enter(|| TcpStream::connect(at(STACK, PORT))).unwrap().unwrap());
        client.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (String::from_utf8(head).unwrap(), client)
    };
    let (head, client) = ask(target);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    moves(&client, &patient(server.accept().unwrap().0));
    drop(server);
    assert!(ask(target).0.starts_with("HTTP/1.1 502 "));
    assert!(ask(at([127, 0, 0, 1], 22)).0.starts_with("HTTP/1.1 403 "));
    world.nothing_is_left();
}

/// A request for a destination that does not answer, by SOCKS5 or CONNECT, and what follows it at once.
fn asks(mut client: TcpStream, by_socks5: bool, then: &[u8]) -> TcpStream {
    let request = match by_socks5 {
        true => [&[5, 1, 0, 5, 1, 0, 1][..], &SILENT, &[0, 80]].concat(),
        false => format!("CONNECT {}:80 HTTP/1.1\r\n\r\n", Ipv4Addr::from(SILENT)).into_bytes(),
    };
    client.write_all(&[&request, then].concat()).unwrap();
    client
}

/// How clients leave, and that one that has ended its half after it sent something stays. `dialling` counts
/// connections that wait for an answer to their SYN.
fn leaving_ends_the_dialling(world: &World, connect: impl Fn() -> TcpStream, dialling: impl Fn() -> usize) {
    let in_use = || world.server.look(|gateway| gateway.in_use().half_open);
    for by_socks5 in [true, false] {
        let half_closed = asks(connect(), by_socks5, b"early");
        half_closed.shutdown(Shutdown::Write).unwrap();
        for (by_reset, then) in [(true, &b""[..]), (true, b"early"), (false, b"")] {
            let before = world.counters().left;
            let mut leaves = asks(connect(), by_socks5, then);
            eventually("both are dialled", || (in_use(), dialling()) == (2, 2));
            if by_reset {
                reset(leaves);
            } else {
                if by_socks5 {
                    // Closing would be a reset while something is unread.
                    leaves.read_exact(&mut [0; 2]).unwrap();
                }
                drop(leaves);
            }
            let name = format!("by SOCKS5: {by_socks5}, by a reset: {by_reset}, {} bytes", then.len());
            eventually(&name, || (in_use(), dialling()) == (1, 1));
            assert_eq!(world.counters().left, before + 1, "{name}");
        }
        reset(half_closed);
        eventually("all are gone", || (in_use(), dialling()) == (0, 0));
    }
    world.nothing_is_left();
}

#[test]
fn px_18_a_client_that_leaves_ends_the_dialling() {
    let Some((near, far, stack)) = namespaces() else { return };
    let listener = near.enter(|| TcpListener::bind(("127.0.0.1", PORT))).unwrap().unwrap();
    let clients = move || {
        listener.set_nonblocking(true).unwrap();
        tokio::net::TcpListener::from_std(listener).unwrap()
    };
    let way = link(&stack);
    let world = World::by(near, far, Settings::default(), Resolver::default(), clients, way, None);
    leaving_ends_the_dialling(&world, || world.client(), || stack.connections());
}

#[test]
fn px_18_a_client_over_the_link_that_leaves_ends_the_dialling() {
    let Some((near, far, stack)) = namespaces() else { return };
    // A host that does not forward drops without a word what comes in for others.
    near.run("ip route add 10.53.0.0/16 dev lo").unwrap();
    let listener = taut::TcpListener::bind_with(&stack, at(STACK, PORT), taut::ListenOptions::default());
    let listener = listener.unwrap();
    let world = World::by(
        near,
        far,
        Settings::default(),
        Resolver::default(),
        move || listener,
        HostSockets::default(),
        None,
    );
    let connect = || patient(world.far.enter(|| TcpStream::connect(at(STACK, PORT))).unwrap().unwrap());
    // State 2 in the kernel's table: SYN-SENT.
    let dialling = || {
        let table = world.near.enter(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
        let table = table.unwrap().unwrap();
        table.lines().filter(|line| line.split_whitespace().nth(3) == Some("02")).count()
    };
    leaving_ends_the_dialling(&world, connect, dialling);
}

#[test]
fn px_12_those_that_do_not_ask_or_have_no_login_are_not_served() {
    let login = Login { name: "n".into(), password: "p".into() };
    // Three quarters of four connections at once.
    let limits = Limits::of(Amounts { connections: 4, ..Limits::default().all });
    let settings = Settings { limits, ..Settings::default() };
    let Some(world) = World::new(settings, Resolver::default(), Some(login)) else { return };
    let (listener, site) = world.listener(SERVER);
    assert_eq!(world.connect(&site.to_string()).0, 407);
    let SocketAddr::V4(v4) = site else { panic!("{site}") };
    let ask = || -> io::Result<(u8, TcpStream)> {
        let mut stream = world.client();
        let place = [&v4.ip().octets()[..], &v4.port().to_be_bytes()].concat();
        stream.write_all(&[&[5, 1, 2, 1, 1, b'n', 1, b'p', 5, 1, 0, 1][..], &place].concat())?;
        let mut reply = [0; 2 + 2 + 10];
        stream.read_exact(&mut reply)?;
        Ok((reply[5], stream))
    };
    let open: Vec<_> = (0..3).map(|_| ask().unwrap()).collect();
    assert!(open.iter().all(|(code, _)| *code == 0));
    // More than its share: prohibited. It comes back.
    assert_eq!(ask().unwrap().0, 2);
    drop(open);
    drop([(); 3].map(|()| listener.accept().unwrap()));
    world.nothing_is_left();
    // One that says nothing is let go after ten seconds, and others are served before that.
    let begun = now();
    let mut silent = world.client();
    assert_eq!(ask().unwrap().0, 0);
    silent.set_nonblocking(true).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    silent.set_nonblocking(false).unwrap();
    assert_eq!(again(|| silent.read(&mut [0])).unwrap(), 0);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(10), "{waited:?}");
}

/// The kernel hands connections to others over to the proxy.
#[test]
fn px_13_transparent() {
    if !live::ready(&["nft"]) {
        return;
    }
    let Some((near, far, stack)) = namespaces() else { return };
    // The client is behind the near namespace, as behind a router.
    let client = Kernel::new().unwrap();
    near.veth(&client, taut_testbed::Subnet(9), 1500).unwrap();
    client.run("ip route add default via 10.9.0.2").unwrap();
    near.set_sysctl("ip_forward", "1").unwrap();
    near.run("ip route add local default dev lo table 100").unwrap();
    near.run("ip rule add fwmark 1 lookup 100").unwrap();
    let listener = near.run(
        "nft add table ip taut ; add chain ip taut in { type filter hook prerouting priority -150 ; } ; \
         add rule ip taut in iifname veth0 meta l4proto tcp tproxy to 127.0.0.1:1081 meta mark set 1",
    );
    listener.unwrap();
    let clients = || Transparent::bind(SocketAddr::from(([127, 0, 0, 1], 1_081))).unwrap();
    let way = link(&stack);
    let world = World::by(near, far, Settings::default(), Resolver::default(), clients, way, None);
    let (listener, site) = world.listener(SERVER);
    let connect =
        |to: SocketAddr| client.enter(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().map(patient);
    let stream = connect(site).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), site);
    let (served, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), Ipv4Addr::from(STACK));
    moves(&stream, &patient(served));
    // The kernel has answered already: a refused port is a reset at once.
    let read = |to: SocketAddr| connect(to).and_then(|mut stream| again(|| stream.read(&mut [0])));
    assert_eq!(read(at(SERVER, 99)).unwrap_err().kind(), ErrorKind::ConnectionReset);
    // What is denied by a rule is, too.
    assert_eq!(read(at([169, 254, 0, 1], 80)).unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.nothing_is_left();
}
