//! The gateway between the kernel's clients in one namespace and its servers in another: GW-21 to 26, 30 to
//! 32, 77 and 78 of `docs/spec/gateway.md`.
//!
//! ```text
//!   near: 10.7.0.1, default route ── TUN ── 10.7.0.2, the gateway's stack │ the gateway's sockets ── far: 10.50.0.0/16
//! ```
#![cfg(target_os = "linux")]

use crate::{proxy, support};

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use taut::{FlowKind, Stack};
use taut_gateway::{
    Counters, Forward, HostSockets, HttpConnect, Resolver, Rules, Server, Settings, Socks5, WayOut,
};
use taut_testbed::{Kernel, PATIENCE, eventually, live, now};

use support::Running;

/// Addresses of the far namespace, by what is behind them.
pub(crate) const SERVER: [u8; 4] = [10, 50, 0, 1];
const UNREACHABLE: [u8; 4] = [10, 51, 0, 1];
const PROHIBITED: [u8; 4] = [10, 52, 0, 1];
const SILENT: [u8; 4] = [10, 53, 0, 1];
const NOWHERE: [u8; 4] = [10, 54, 0, 1];
pub(crate) const GATEWAY: [u8; 4] = [10, 7, 0, 2];
const GUEST: [u8; 4] = [10, 7, 0, 1];

pub(crate) struct World {
    /// Dropped first.
    _running: Running,
    pub(crate) near: Kernel,
    pub(crate) far: Kernel,
    pub(crate) stack: Stack,
    pub(crate) server: Server,
}

impl World {
    /// `None`, with a message, if live tests cannot run.
    pub(crate) fn new(settings: Settings, resolver: Resolver, forwards: &[Forward]) -> Option<Self> {
        Self::by(settings, resolver, forwards, |_| HostSockets::default())
    }

    /// The same by another way out, which is made in the far namespace.
    pub(crate) fn by<W: WayOut>(
        settings: Settings,
        resolver: Resolver,
        forwards: &[Forward],
        way: impl FnOnce(&Kernel) -> W,
    ) -> Option<Self> {
        if !live::ready(&["ip"]) {
            return None;
        }
        let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
        for kernel in [&near, &far] {
            kernel.set_sysctl("ping_group_range", "0 2147483647").unwrap();
        }
        far.run("ip route add local 10.50.0.0/16 dev lo").unwrap();
        far.run("ip route add unreachable 10.51.0.0/16").unwrap();
        far.run("ip route add prohibit 10.52.0.0/16").unwrap();
        // A host that does not forward drops without a word what comes in for others.
        far.run("ip route add 10.53.0.0/16 dev lo").unwrap();
        let stack = near.enter(|| {
            Stack::builder().tun("taut0").address("10.7.0.2/24").host_address("10.7.0.1/24").build()
        });
        let stack = stack.unwrap().unwrap();
        near.run("ip route add default dev taut0").unwrap();
        let own = vec![Ipv4Addr::from(GATEWAY).into()];
        let settings = Settings { own, ..settings };
        let forwards = forwards.to_vec();
        let way = way(&far);
        let kept = stack.clone();
        let (server, running) = Running::start(&far, move || {
            let server = Server::new(settings, resolver, Box::new(|_| {}));
            for forward in forwards {
                let port = server.forward_port(&stack, IpAddr::from(GUEST).into(), forward).unwrap();
                tokio::spawn(port);
            }
            let serving = server.serve(&stack, Arc::new(way)).unwrap();
            // The stack ends when nobody has it.
            (server, async move { (serving.await, stack).0 })
        });
        Some(Self { near, far, stack: kept, server, _running: running })
    }

    /// A listener of the far namespace.
    fn listener(&self, address: [u8; 4]) -> (TcpListener, SocketAddr) {
        let listener = self.far.enter(|| TcpListener::bind((Ipv4Addr::from(address), 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A connection from the near namespace.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.near.enter(|| {
            let stream = TcpStream::connect(to)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        })?
    }

    /// Both ends of one connection through the gateway.
    pub(crate) fn pair(&self) -> (TcpStream, TcpStream) {
        let (listener, address) = self.listener(SERVER);
        let client = self.connect(address).unwrap();
        let (served, _) = listener.accept().unwrap();
        served.set_read_timeout(Some(PATIENCE)).unwrap();
        served.set_write_timeout(Some(PATIENCE)).unwrap();
        (client, served)
    }

    pub(crate) fn udp(&self, to: SocketAddr) -> UdpSocket {
        let socket = self.near.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// Sockets of the gateway's that wait for an answer to their SYN: state 2 in the kernel's table.
    fn dialling(&self) -> usize {
        let table = self.far.enter(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap().unwrap();
        table.lines().filter(|line| line.split_whitespace().nth(3) == Some("02")).count()
    }

    fn counters(&self) -> Counters {
        self.server.look(|gateway| *gateway.counters())
    }

    fn nothing_is_left(&self) {
        eventually("no flow is left", || {
            self.server.look(|gateway| gateway.in_use() == taut_gateway::Amounts::default())
        });
    }
}

pub(crate) fn plain() -> Option<World> {
    World::new(Settings::default(), Resolver::default(), &[])
}

/// The way out is a stack, whose kernel is the far namespace.
pub(crate) fn by_another_stack() -> Option<World> {
    World::by(Settings::default(), Resolver::default(), &[], |far| {
        let stack = far.enter(|| {
            Stack::builder().tun("out0").address("10.8.0.2/24").host_address("10.8.0.1/24").build()
        });
        proxy::link(&stack.unwrap().unwrap())
    })
}

pub(crate) fn at(address: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::from((address, port))
}

/// A call that waits with a limit is not repeated by the library when a process that was stopped goes on.
pub(crate) fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn gw_21_refusals_and_silence_arrive_as_what_they_were() {
    let Some(world) = plain() else { return };
    for (address, expected) in [
        (SERVER, ErrorKind::ConnectionRefused),
        (UNREACHABLE, ErrorKind::HostUnreachable),
        // RFC 1812's code 13, which a kernel takes for an unreachable host.
        (PROHIBITED, ErrorKind::HostUnreachable),
        (NOWHERE, ErrorKind::NetworkUnreachable),
        // The host's loopback, by rule.
        (GATEWAY, ErrorKind::HostUnreachable),
    ] {
        let error = world.connect(at(address, 99)).unwrap_err();
        assert_eq!(error.kind(), expected, "{address:?}");
    }
    // Silence is silence; and those who wait for it keep nobody else waiting.
    let silent = world.near.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        (socket.connect_timeout(&at(SILENT, 80).into(), Duration::from_secs(3)), socket)
    });
    // It is kept: the gateway notices when a client leaves.
    let (silent, _waiting) = silent.unwrap();
    assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(world.pair());
    let counters = world.counters();
    assert_eq!((counters.refused, counters.denied, counters.reached), (4, 1, 1), "{counters:?}");
    // The last one is open when the guest's ACK has come.
    eventually("only the silent one is half open", || {
        world.server.look(|gateway| gateway.in_use().half_open) == 1
    });
}

#[test]
fn gw_22_each_half_ends_by_itself_and_a_reset_is_a_reset() {
    let Some(world) = plain() else { return };
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at * 31 % 251) as u8).collect();
    // The guest ends its half; a mebibyte comes back after that.
    let (mut client, mut served) = world.pair();
    client.write_all(b"that is all").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    served.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"that is all");
    let writer = std::thread::spawn({
        let bytes = bytes.clone();
        move || served.write_all(&bytes).unwrap()
    });
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert!(back == bytes);
    writer.join().unwrap();
    // The server ends its half, and is told a mebibyte after that.
    let (mut client, mut served) = world.pair();
    served.shutdown(Shutdown::Write).unwrap();
    assert_eq!(again(|| client.read(&mut [0])).unwrap(), 0);
    let writer = std::thread::spawn({
        let bytes = bytes.clone();
        move || client.write_all(&bytes).unwrap()
    });
    let mut all = Vec::new();
    served.read_to_end(&mut all).unwrap();
    assert!(all == bytes);
    writer.join().unwrap();
    drop(served);
    world.nothing_is_left();
    assert_eq!(world.counters().finished, 2);
    // Resets, either way.
    let (mut client, served) = world.pair();
    reset(served);
    assert_eq!(again(|| client.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (client, mut served) = world.pair();
    reset(client);
    assert_eq!(again(|| served.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.nothing_is_left();
    let counters = world.counters();
    assert_eq!((counters.finished, counters.reset), (2, 2));
    assert_eq!((counters.bytes_up, counters.bytes_down), ((1 << 20) + 11, 1 << 20));
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
    taken
}

#[test]
fn gw_23_a_slow_reader_makes_its_sender_wait_and_a_reset_is_seen_meanwhile() {
    const LEAST: usize = 16 << 10;
    const AT_ONCE: u64 = 128 << 10;
    let Some(world) = plain() else { return };
    for from_guest in [true, false] {
        // Two: one that is read in the end, and one whose sender is reset.
        let ends: Vec<_> = (0..2).map(|_| world.pair()).collect();
        let mut ends: Vec<_> =
            ends.into_iter().map(|(c, s)| if from_guest { (c, s) } else { (s, c) }).collect();
        let taken: Vec<usize> = ends.iter_mut().map(|(writer, _)| fill(writer)).collect();
        // In the gateway there is one piece of each at most.
        let held = world.server.look(|gateway| gateway.in_use().bytes);
        assert!(held <= 2 * AT_ONCE, "{held}");
        assert!(taken.iter().all(|bytes| *bytes >= LEAST), "{taken:?}");
        let (writer, mut reader) = ends.pop().unwrap();
        reset(writer);
        // The gateway sees it though nobody reads.
        eventually("one flow is left", || world.server.look(|gateway| gateway.in_use().connections == 1));
        // Its buffers are full of what came before; the reset is seen behind that, or at once.
        let mut all = Vec::new();
        let end = reader.read_to_end(&mut all).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "from the guest: {from_guest}");
        // The other one is whole.
        let (writer, mut reader) = ends.pop().unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), taken[0]);
        drop((reader, writer));
        world.nothing_is_left();
    }
}

#[test]
fn gw_24_datagrams_and_pings_pass_and_so_do_refusals() {
    let Some(world) = plain() else { return };
    let echo = world.far.enter(|| UdpSocket::bind((Ipv4Addr::from(SERVER), 0))).unwrap().unwrap();
    let to = echo.local_addr().unwrap();
    echo.set_read_timeout(Some(PATIENCE)).unwrap();
    let answers = std::thread::spawn(move || {
        let mut message = [0; 65_536];
        for _ in 0..100 {
            let (len, from) = again(|| echo.recv_from(&mut message)).unwrap();
            message[..len].reverse();
            echo.send_to(&message[..len], from).unwrap();
        }
    });
    let client = world.udp(to);
    let mut answer = [0; 65_536];
    for number in 0..100_u8 {
        let question: Vec<u8> = (0..usize::from(number) * 14).map(|at| at as u8).chain([number]).collect();
        client.send(&question).unwrap();
        let len = again(|| client.recv(&mut answer)).unwrap();
        answer[..len].reverse();
        assert!(answer[..len] == question, "{number}");
    }
    answers.join().unwrap();
    let refused = world.udp(at(SERVER, 99));
    for _ in 0..2 {
        refused.send(b"?").unwrap();
        assert_eq!(again(|| refused.recv(&mut answer)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    // RFC 1812's code 13, of which a kernel tells a socket; of an unreachable host it does not.
    let prohibited = world.udp(at(PROHIBITED, 7));
    prohibited.send(b"?").unwrap();
    assert_eq!(again(|| prohibited.recv(&mut answer)).unwrap_err().kind(), ErrorKind::HostUnreachable);
    // A ping, and one that nobody answers.
    let ping = |to: [u8; 4], patience: Duration| {
        let socket = world
            .near
            .enter(|| Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4)))
            .unwrap()
            .unwrap();
        socket.connect(&at(to, 0).into()).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        socket.send(&[8, 0, 0, 0, 0, 0, 0x12, 0x34, b'h', b'i']).unwrap();
        let mut reply = [0; 64];
        let len = again(|| (&socket).read(&mut reply))?;
        io::Result::Ok(reply[..len].to_vec())
    };
    let reply = ping(SERVER, PATIENCE).unwrap();
    // An echo reply with the number and the data of the request.
    assert_eq!((reply[0], &reply[6..]), (0, &[0x12, 0x34, b'h', b'i'][..]));
    let lost = ping(SILENT, Duration::from_secs(1)).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::WouldBlock);
    eventually("all flows are counted", || {
        let counters = world.counters();
        (counters.pings, counters.udp_flows) == (2, 3)
    });
}

#[test]
fn gw_86_datagrams_that_wait_together_arrive_as_they_were() {
    // A path on which no piece of 1,400 bytes can be cut from a longer one.
    const NARROW: [u8; 4] = [10, 57, 0, 1];
    let Some(world) = plain() else { return };
    world.far.run("ip route add local 10.57.0.0/16 dev lo mtu 1300").unwrap();
    // Of one length, shorter ones among them, empty ones, and longer ones, which the guest's kernel cuts.
    let mut lens = vec![1_400; 30];
    lens.extend([700, 1_400, 1_400, 0, 0, 3, 1_400, 1_401, 1_401, 9, 9, 9, 8]);
    lens.extend([4_000; 4]);
    for address in [SERVER, NARROW] {
        let server = world.far.enter(|| UdpSocket::bind((Ipv4Addr::from(address), 0))).unwrap().unwrap();
        SockRef::from(&server).set_recv_buffer_size(4 << 20).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let client = world.udp(server.local_addr().unwrap());
        let mut message = [0; 8_192];
        // Little waits for a flow that is not decided yet.
        client.send(b"first").unwrap();
        assert_eq!(again(|| server.recv(&mut message)).unwrap(), 5);
        for round in 0..20_usize {
            let sent: Vec<Vec<u8>> =
                lens.iter().enumerate().map(|(at, &len)| vec![(round * 47 + at) as u8; len]).collect();
            sent.iter().for_each(|message| assert_eq!(client.send(message).unwrap(), message.len()));
            for (at, expected) in sent.iter().enumerate() {
                let len = again(|| server.recv(&mut message)).unwrap();
                assert!(
                    message[..len] == expected[..],
                    "{address:?}, round {round}, message {at}: {len} bytes"
                );
            }
        }
    }
    // The last one may arrive before it is counted.
    let all = 2 * (5 + 20 * lens.iter().sum::<usize>() as u64);
    eventually("all bytes are counted", || world.counters().bytes_up == all);
}

/// Both ends of an idle connection hear that it is over, and those of one that is used do not.
#[test]
fn gw_95_an_idle_connection_is_reset_at_both_ends() {
    let timeouts = taut_gateway::Timeouts { idle: Duration::from_secs(4), ..Default::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let Some(world) = World::new(settings, Resolver::default(), &[]) else { return };
    let (listener, address) = world.listener(SERVER);
    let [idle, used] = [(); 2].map(|()| {
        let client = world.connect(address).unwrap();
        (client, listener.accept().unwrap().0)
    });
    let (mut client, mut server) = used;
    // A byte every 20 ms, until after the other one is over: a pause of 4 s would be two hundred of them.
    let mut pass_one = || {
        std::thread::sleep(Duration::from_millis(20));
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
    };
    eventually("the idle one is over", || {
        pass_one();
        world.counters().idle > 0
    });
    (0..50).for_each(|_| pass_one());
    for mut end in [idle.0, idle.1] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(again(|| end.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(world.counters().idle, 1);
}

#[test]
fn gw_149_keepalives_of_a_guest_keep_its_connection() {
    let timeouts = taut_gateway::Timeouts { idle: Duration::from_secs(4), ..Default::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let Some(world) = World::new(settings, Resolver::default(), &[]) else { return };
    let (listener, address) = world.listener(SERVER);
    let kept = world.connect(address).unwrap();
    // Nothing is passed for it; at that rate, a load must delay forty of them.
    let often = TcpKeepalive::new().with_time(Duration::from_secs(1)).with_interval(Duration::from_secs(1));
    SockRef::from(&kept).set_tcp_keepalive(&often).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    // Twice the time of connections that do not.
    for round in 1..=2 {
        let mut silent = world.connect(address).unwrap();
        let _server = listener.accept().unwrap();
        assert_eq!(again(|| silent.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(world.counters().idle, round);
    }
    (&kept).write_all(b"!").unwrap();
    served.set_read_timeout(Some(PATIENCE)).unwrap();
    served.read_exact(&mut [0]).unwrap();
}

#[test]
fn gw_150_the_end_of_a_server_that_is_gone_reaches_the_guest() {
    let Some(world) = plain() else { return };
    // The host's settings: after a second, two probes.
    for (name, value) in [("time", "1"), ("intvl", "1"), ("probes", "2")] {
        world.far.set_sysctl(&format!("tcp_keepalive_{name}"), value).unwrap();
    }
    let (mut client, served) = world.pair();
    // From now on it receives nothing, as if its host were gone: BPF_RET of 0 bytes.
    SockRef::from(&served).attach_filter(&[socket2::SockFilter::new(6, 0, 0, 0)]).unwrap();
    assert_eq!(again(|| client.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    world.nothing_is_left();
}

#[test]
fn gw_151_no_urgent_byte_is_lost() {
    let Some(world) = plain() else { return };
    let (client, served) = world.pair();
    // Each side waits for the urgent byte, which nothing follows; a reader may find it with those before it.
    for (from, to) in [(&served, &client), (&client, &served)].repeat(50) {
        (&*from).write_all(b"abc").unwrap();
        SockRef::from(from).send_out_of_band(b"X").unwrap();
        // The reader's own kernel has it in line, too.
        SockRef::from(to).set_out_of_band_inline(true).unwrap();
        let mut all = [0; 4];
        (&*to).read_exact(&mut all).unwrap();
        assert_eq!(&all, b"abcX");
    }
    for (from, to) in [(&served, &client), (&client, &served)] {
        (&*from).write_all(b"def").unwrap();
        let mut all = [0; 3];
        (&*to).read_exact(&mut all).unwrap();
        assert_eq!(&all, b"def");
    }
}

/// A question of type A.
pub(crate) fn asks(name: &str) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// The answer: the name's address is [`SERVER`].
pub(crate) fn answers(question: &[u8]) -> Vec<u8> {
    let mut message = question.to_vec();
    (message[2], message[3], message[7]) = (0x81, 0x80, 1);
    message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
    message.extend_from_slice(&SERVER);
    message
}

#[test]
fn gw_25_names_are_asked_of_the_hosts_servers_and_opened_by_rules() {
    // The first server is closed, the second one lies first, and speaks over TCP, too.
    let dns = at(SERVER, 5_353);
    let rules = Rules::parse(["allow *.example.com within 10.50.0.0/16", "deny any"]).unwrap();
    let resolver = Resolver { servers: vec![at(SERVER, 5_352), dns], ..Resolver::default() };
    let Some(world) = World::new(Settings { rules, ..Settings::default() }, resolver, &[]) else { return };
    let over_udp = world.far.enter(|| UdpSocket::bind(dns)).unwrap().unwrap();
    let over_tcp = world.far.enter(|| TcpListener::bind(dns)).unwrap().unwrap();
    let name_server = std::thread::spawn(move || {
        let mut message = [0; 4_096];
        let (len, from) = again(|| over_udp.recv_from(&mut message)).unwrap();
        let good = answers(&message[..len]);
        let mut lie = good.clone();
        lie[0] ^= 1;
        over_udp.send_to(&lie, from).unwrap();
        over_udp.send_to(&good, from).unwrap();
        let (mut stream, _) = over_tcp.accept().unwrap();
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut question).unwrap();
        let answer = answers(&question);
        stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat()).unwrap();
    });
    let (listener, site) = world.listener(SERVER);
    assert_eq!(world.connect(site).unwrap_err().kind(), ErrorKind::HostUnreachable);
    let socket = world.udp(at(GATEWAY, 53));
    let mut message = [0; 4_096];
    let mut ask = |question: &[u8]| {
        socket.send(question).unwrap();
        let len = again(|| socket.recv(&mut message)).unwrap();
        message[..len].to_vec()
    };
    let question = asks("www.example.com");
    assert_eq!(ask(&question), answers(&question));
    // The name is open now.
    drop(world.connect(site).unwrap());
    drop(listener);
    // The gateway's own name needs no server.
    let own = ask(&asks("gateway.home.arpa"));
    assert_eq!(own[own.len() - 4..], GATEWAY);
    // Over TCP, in one piece or not.
    let mut stream = world.connect(at(GATEWAY, 53)).unwrap();
    let framed = [&(question.len() as u16).to_be_bytes()[..], &question].concat();
    for piece in framed.chunks(5) {
        stream.write_all(piece).unwrap();
    }
    let mut answer = vec![0; 2 + answers(&question).len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[2..], answers(&question));
    name_server.join().unwrap();
    let counters = world.counters();
    assert_eq!((counters.questions, counters.answered_here, counters.denied), (3, 1, 1), "{counters:?}");
    assert_eq!(world.server.look(|gateway| gateway.in_use().questions), 0);
}

#[test]
fn gw_26_ports_of_the_host_lead_to_the_guest() {
    let forward = |kind, text| Forward::parse(kind, text).unwrap()[0];
    let forwards = [
        forward(FlowKind::Tcp, "8080:80"),
        forward(FlowKind::Tcp, "8081:81"),
        forward(FlowKind::Udp, "5353:53"),
    ];
    let Some(world) = World::new(Settings::default(), Resolver::default(), &forwards) else { return };
    let listener = world.near.enter(|| TcpListener::bind("0.0.0.0:80")).unwrap().unwrap();
    let connect = |port: u16| {
        let stream = world.far.enter(|| TcpStream::connect(("127.0.0.1", port))).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut client = connect(8_080);
    let (mut served, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), Ipv4Addr::from(GATEWAY));
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    served.read_to_end(&mut all).unwrap();
    served.write_all(b"answer").unwrap();
    drop(served);
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!((&all[..], &back[..]), (&b"question"[..], &b"answer"[..]));
    // Nobody listens in the guest: the host's kernel has answered, and the client sees a reset.
    let mut refused = connect(8_081);
    let end = again(|| refused.read(&mut [0])).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    // Two clients of one port have each their own answers.
    let guest = world.near.enter(|| UdpSocket::bind("0.0.0.0:53")).unwrap().unwrap();
    guest.set_read_timeout(Some(PATIENCE)).unwrap();
    let clients: Vec<UdpSocket> =
        (0..2).map(|_| world.far.enter(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap()).collect();
    let mut message = [0; 100];
    for round in 0..3_u8 {
        for (number, client) in clients.iter().enumerate() {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send_to(&[round, number as u8], "127.0.0.1:5353").unwrap();
            let (len, from) = again(|| guest.recv_from(&mut message)).unwrap();
            assert_eq!(message[..len], [round, number as u8]);
            guest.send_to(&[round, number as u8, 9], from).unwrap();
            assert_eq!(
                (again(|| client.recv(&mut message)).unwrap(), &message[..3]),
                (3, &[round, number as u8, 9][..])
            );
        }
    }
    assert_eq!(world.counters().forwarded, 4);
}

/// Where everything goes that a proxy is to carry; no namespace has it.
const BEYOND: [u8; 4] = [203, 0, 113, 1];
/// The port to which a proxy connects; it says at once "welcome", and echoes after that.
const OPEN: u16 = 80;

/// A proxy in the far namespace. `shake` reads a request and answers it; it returns whether the client is
/// connected now.
fn proxy(
    far: &Kernel,
    shake: impl Fn(&mut TcpStream) -> io::Result<bool> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = far.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let shake = Arc::new(shake);
    far.thread("proxy", move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let shake = Arc::clone(&shake);
            std::thread::spawn(move || {
                if shake(&mut stream)? {
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all)?;
                    stream.write_all(&all)?;
                }
                io::Result::Ok(())
            });
        }
    })
    .unwrap();
    address
}

/// What a client sees of each port, and of UDP.
fn check_proxy(world: &World, outcomes: &[(u16, ErrorKind)]) {
    for &(port, expected) in outcomes {
        assert_eq!(world.connect(at(BEYOND, port)).unwrap_err().kind(), expected, "{port}");
    }
    // What follows the proxy's answer at once is the destination's.
    let mut client = world.connect(at(BEYOND, OPEN)).unwrap();
    let mut welcome = [0; 7];
    client.read_exact(&mut welcome).unwrap();
    client.write_all(b"there and back").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!((&welcome, &back[..]), (b"welcome", &b"there and back"[..]));
    // No datagram goes around the proxy.
    let udp = world.udp(at(SERVER, 7));
    udp.send(b"?").unwrap();
    assert_eq!(again(|| udp.recv(&mut [0])).unwrap_err().kind(), ErrorKind::HostUnreachable);
}

/// A client of the kernel's that does not wait for the answer to its SYN.
fn begins(world: &World, to: SocketAddr) -> Socket {
    let begun = world.near.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        let connecting = socket.connect(&to.into()).unwrap_err();
        assert_eq!(connecting.raw_os_error(), Some(115), "{connecting}, not EINPROGRESS");
        io::Result::Ok(socket)
    });
    begun.unwrap().unwrap()
}

#[test]
fn gw_77_a_client_that_closes_its_socket_ends_the_dialling() {
    let Some(world) = plain() else { return };
    let in_use = || world.server.look(|gateway| gateway.in_use().half_open);
    // A listener whose queue is full lets SYNs fall.
    let full = world.far.enter(|| {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        listener.bind(&at(SERVER, 0).into())?;
        listener.listen(0)?;
        io::Result::Ok(TcpListener::from(listener))
    });
    let full = full.unwrap().unwrap();
    let address = full.local_addr().unwrap();
    let first = world.far.enter(|| TcpStream::connect(address)).unwrap().unwrap();
    let stays = begins(&world, address);
    let leaves = begins(&world, at(SILENT, 81));
    eventually("both are dialled", || world.dialling() == 2 && in_use() == 2);
    // A kernel says nothing when a socket in SYN-SENT is closed; it is asked each half second. By itself the
    // dialling lasts for two minutes.
    drop(leaves);
    eventually("one is dialled", || world.dialling() == 1 && in_use() == 1);
    assert_eq!(world.counters().left, 1);
    // The one that stays is asked several times, and knows nothing of it: when its destination is there, so
    // is its connection.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((world.dialling(), in_use(), world.counters().left), (1, 1, 1));
    drop((full.accept().unwrap(), first));
    let (mut served, _) = full.accept().unwrap();
    served.write_all(b"there").unwrap();
    stays.set_nonblocking(false).unwrap();
    let mut stays = TcpStream::from(stays);
    stays.set_read_timeout(Some(PATIENCE)).unwrap();
    eventually("it is connected", || stays.peer_addr().is_ok());
    let mut word = [0; 5];
    stays.read_exact(&mut word).unwrap();
    assert_eq!((&word, world.counters().left), (b"there", 1));
    // Half the guest's share of half-open flows may come and go: their places are free again.
    for _ in 0..20 {
        let many: Vec<_> = (0..50).map(|port| begins(&world, at(SILENT, port + 1))).collect();
        eventually("all are dialled", || in_use() == 50);
        drop(many);
        eventually("none is left", || in_use() == 0 && world.dialling() == 0);
    }
    assert_eq!(world.counters().left, 1_001);
    drop((stays, served));
    world.nothing_is_left();
}

#[test]
fn gw_78_a_client_of_a_forwarded_port_that_leaves_ends_the_dialling() {
    let forwards = [Forward::parse(FlowKind::Tcp, "8082:82").unwrap()[0]];
    let Some(world) = World::new(Settings::default(), Resolver::default(), &forwards) else { return };
    let in_use = || world.server.look(|gateway| gateway.in_use().half_open);
    // The guest's kernel answers nothing at this port.
    world.near.run("ip route add blackhole 10.7.0.2/32").unwrap();
    let connect = || world.far.enter(|| TcpStream::connect(("127.0.0.1", 8_082))).unwrap().unwrap();
    let (reset_one, ended) = (connect(), connect());
    eventually("both are dialled", || in_use() == 2);
    // One that has ended its half may wait for what the guest says.
    ended.shutdown(Shutdown::Write).unwrap();
    reset(reset_one);
    eventually("one is dialled", || in_use() == 1);
    assert_eq!(world.counters().left, 1);
    reset(ended);
    world.nothing_is_left();
    assert_eq!(world.counters().left, 2);
}

#[test]
fn gw_30_by_a_socks5_server() {
    // RFC 1928 §6, RFC 1929: the last two digits of the port are the reply.
    let shake = |stream: &mut TcpStream| -> io::Result<bool> {
        let mut head = [0; 3];
        stream.read_exact(&mut head)?;
        assert_eq!(head, [5, 1, 2]);
        stream.write_all(&[5, 2])?;
        let mut login = [0; 3 + 4 + 6];
        stream.read_exact(&mut login)?;
        assert_eq!(&login, b"\x01\x04name\x06secret");
        stream.write_all(&[1, 0])?;
        let mut request = [0; 10];
        stream.read_exact(&mut request)?;
        assert_eq!(request[..8], [5, 1, 0, 1, 203, 0, 113, 1]);
        let port = u16::from_be_bytes([request[8], request[9]]);
        let code = if port == OPEN { 0 } else { (port % 100) as u8 };
        // A name of three bytes and a port, and what the destination says.
        let welcome = if code == 0 { &b"welcome"[..] } else { &[] };
        stream.write_all(&[&[5, code, 0, 3, 3, b'a', b'b', b'c', 0, 80], welcome].concat())?;
        Ok(code == 0)
    };
    let login = Some(("name".to_owned(), "secret".to_owned()));
    let way = |far: &Kernel| Socks5 { proxy: proxy(far, shake), login };
    let Some(world) = World::by(Settings::default(), Resolver::default(), &[], way) else { return };
    check_proxy(
        &world,
        &[
            (1_001, ErrorKind::HostUnreachable),
            // Prohibited, which a kernel takes for an unreachable host.
            (1_002, ErrorKind::HostUnreachable),
            (1_003, ErrorKind::NetworkUnreachable),
            (1_004, ErrorKind::HostUnreachable),
            (1_005, ErrorKind::ConnectionRefused),
            (1_008, ErrorKind::HostUnreachable),
        ],
    );
    // Its time to live is over: nobody has answered.
    let silent = world.near.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.connect_timeout(&at(BEYOND, 1_006).into(), Duration::from_secs(2))
    });
    assert_eq!(silent.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn gw_31_by_an_http_proxy() {
    // RFC 9110 §9.3.6: the port is the status.
    let shake = |stream: &mut TcpStream| -> io::Result<bool> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let port: u16 = head.split(&[' ', ':'][..]).nth(2).unwrap().parse().unwrap();
        assert_eq!(head, format!("CONNECT 203.0.113.1:{port} HTTP/1.1\r\nHost: 203.0.113.1:{port}\r\n\r\n"));
        match port {
            OPEN => stream.write_all(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nwelcome")?,
            999 => stream.write_all(b"SSH-2.0\r\n\r\n")?,
            998 => {}
            _ => stream.write_all(format!("HTTP/1.1 {port} No\r\n\r\n").as_bytes())?,
        }
        Ok(port == OPEN)
    };
    let way = |far: &Kernel| HttpConnect { proxy: proxy(far, shake) };
    let Some(world) = World::by(Settings::default(), Resolver::default(), &[], way) else { return };
    check_proxy(
        &world,
        &[
            (403, ErrorKind::HostUnreachable),
            (407, ErrorKind::HostUnreachable),
            (502, ErrorKind::HostUnreachable),
            (503, ErrorKind::HostUnreachable),
            // No proxy, and one that hangs up.
            (999, ErrorKind::NetworkUnreachable),
            (998, ErrorKind::NetworkUnreachable),
        ],
    );
    // A proxy that is not there.
    let way = |_: &Kernel| HttpConnect { proxy: at([127, 0, 0, 1], 9) };
    let world = World::by(Settings::default(), Resolver::default(), &[], way).unwrap();
    assert_eq!(world.connect(at(BEYOND, OPEN)).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
}

#[test]
fn gw_32_by_another_stack() {
    let Some(world) = by_another_stack() else { return };
    let (mut client, mut served) = world.pair();
    // The server's kernel sees the stack.
    assert_eq!(served.peer_addr().unwrap().ip(), Ipv4Addr::new(10, 8, 0, 2));
    let bytes: Vec<u8> = (0..4_u32 << 20).map(|at| (at * 31 % 251) as u8).collect();
    let writer = std::thread::spawn({
        let bytes = bytes.clone();
        move || {
            client.write_all(&bytes).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        }
    });
    let mut all = Vec::new();
    served.read_to_end(&mut all).unwrap();
    assert!(all == bytes);
    let mut client = writer.join().unwrap();
    let writer = std::thread::spawn(move || served.write_all(&all).unwrap());
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert!(back == bytes);
    writer.join().unwrap();
    assert_eq!(world.connect(at(SERVER, 99)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let (mut client, served) = world.pair();
    reset(served);
    assert_eq!(again(|| client.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (client, mut served) = world.pair();
    reset(client);
    assert_eq!(again(|| served.read(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = world.udp(at(SERVER, 99));
    refused.send(b"?").unwrap();
    assert_eq!(again(|| refused.recv(&mut [0])).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let ping =
        world.near.enter(|| Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::ICMPV4))).unwrap().unwrap();
    ping.connect(&at(SERVER, 0).into()).unwrap();
    ping.set_read_timeout(Some(PATIENCE)).unwrap();
    ping.send(&[8, 0, 0, 0, 0, 0, 0x12, 0x34, b'h', b'i']).unwrap();
    let mut reply = [0; 64];
    let len = again(|| (&ping).read(&mut reply)).unwrap();
    assert_eq!((reply[0], &reply[6..len]), (0, &[0x12, 0x34, b'h', b'i'][..]));
}
