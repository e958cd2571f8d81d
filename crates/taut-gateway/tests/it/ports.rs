//! Ports of UDP of the kernel in one namespace, and what servers in another see of them: GW-140, 142, 143 and
//! 147 of `docs/spec/gateway.md`.
//!
//! ```text
//!   near: 10.7.0.1, fd07::1 ── TUN ── the gateway's stack │ its sockets ── far: 10.50.0.0/16, fd50::1
//! ```
#![cfg(target_os = "linux")]

use crate::support;

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};

use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use taut::{ConnOptions, Stack};
use taut_gateway::{
    Amounts, HostSockets, Limits, Link, Resolver, Server, Settings, Timeouts, UdpFilter, WayOut,
};
use taut_testbed::{Kernel, PATIENCE, Subnet, eventually, live};

use support::Running;

struct World {
    /// Dropped first.
    _running: Running,
    near: Kernel,
    far: Kernel,
    server: Server,
}

/// Two servers of each family.
const SERVERS: [[&str; 2]; 2] = [["10.50.0.1", "10.50.0.2"], ["fd50::1", "fd50::2"]];

impl World {
    fn by<W: WayOut>(settings: Settings, way: impl FnOnce(&Kernel) -> W) -> Option<Self> {
        if !live::ready(&["ip"]) || !Subnet::has_ipv6() {
            return None;
        }
        let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
        far.run("ip route add local 10.50.0.0/16 dev lo").unwrap();
        for own in SERVERS[1] {
            far.run(&format!("ip address add {own}/128 dev lo nodad")).unwrap();
        }
        far.set_sysctl("ip_forward", "1").unwrap();
        far.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
        let stack = near.enter(|| {
            let builder = Stack::builder().tun("taut0").address("10.7.0.2/24").address("fd07::2/64");
            builder.host_address("10.7.0.1/24").host_address("fd07::1/64").build()
        });
        let stack = stack.unwrap().unwrap();
        near.run("ip route add default dev taut0").unwrap();
        near.run("ip -6 route add default dev taut0").unwrap();
        let way = way(&far);
        let (server, running) = Running::start(&far, move || {
            let own = ["10.7.0.2", "fd07::2"].map(|own| own.parse().unwrap()).to_vec();
            let server = Server::new(Settings { own, ..settings }, Resolver::default(), Box::new(|_| {}));
            let serving = server.serve(&stack, Arc::new(way)).unwrap();
            // The stack ends when its last handle is dropped.
            (server, async move { (serving.await, stack).0 })
        });
        Some(Self { near, far, server, _running: running })
    }

    fn plain(settings: Settings) -> Option<Self> {
        Self::by(settings, |_| HostSockets::default())
    }

    fn server(&self, ip: &str) -> UdpSocket {
        bound(&self.far, ip.parse().unwrap())
    }

    /// A socket of the guest's, which sends to addresses of this family.
    fn client(&self, like: &UdpSocket) -> UdpSocket {
        let any = if like.local_addr().unwrap().is_ipv4() { "0.0.0.0" } else { "::" };
        bound(&self.near, any.parse().unwrap())
    }

    /// Sockets of UDP in the far namespace.
    fn sockets(&self) -> usize {
        let count = |table: &str| std::fs::read_to_string(table).unwrap().lines().count() - 1;
        let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
        self.far.enter(|| tables.map(count).iter().sum()).unwrap()
    }
}

fn bound(kernel: &Kernel, ip: IpAddr) -> UdpSocket {
    let socket = kernel.enter(|| UdpSocket::bind((ip, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next datagram, and who sent it.
fn next(socket: &UdpSocket) -> io::Result<(Vec<u8>, SocketAddr)> {
    let mut message = [0; 2_048];
    loop {
        match socket.recv_from(&mut message) {
            // A call that waits with a limit is not repeated when a stopped process continues.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok((len, from)) => return Ok((message[..len].to_vec(), from)),
        }
    }
}

/// A question and its answer; returns whom the server saw.
fn ask(client: &UdpSocket, server: &UdpSocket) -> SocketAddr {
    let to = server.local_addr().unwrap();
    client.send_to(b"who am I?", to).unwrap();
    let (question, seen) = next(server).unwrap();
    assert_eq!(question, b"who am I?");
    server.send_to(seen.to_string().as_bytes(), seen).unwrap();
    assert_eq!(next(client).unwrap(), (seen.to_string().into_bytes(), to));
    seen
}

/// RFC 4787 §4.1, REQ-1.
fn one_port_for_all(world: &World) {
    for ips in SERVERS {
        // Two addresses, and two ports of one of them.
        let servers = [ips[0], ips[1], ips[0]].map(|ip| world.server(ip));
        let clients = [(); 2].map(|()| world.client(&servers[0]));
        let seen = clients.each_ref().map(|client| {
            let ports: Vec<u16> =
                servers.iter().chain([&servers[1]]).map(|server| ask(client, server).port()).collect();
            assert!(ports.iter().all(|port| *port == ports[0]), "{ports:?}");
            ports[0]
        });
        assert_ne!(seen[0], seen[1]);
    }
}

#[test]
fn gw_140_a_port_of_the_guests_is_one_port_whatever_it_sends_to() {
    let Some(world) = World::plain(Settings::default()) else { return };
    one_port_for_all(&world);
    // The servers of a family are closed by now; each client has had one socket.
    assert_eq!((world.sockets(), world.server.look(|gateway| gateway.in_use().datagram_flows)), (4, 12));
}

#[test]
fn gw_140_the_same_by_another_stack() {
    let way = |far: &Kernel| {
        let stack = far.enter(|| {
            let builder = Stack::builder().tun("out0").address("10.8.0.2/24").address("fd08::2/64");
            builder.host_address("10.8.0.1/24").host_address("fd08::1/64").build()
        });
        Link { stack: stack.unwrap().unwrap(), options: ConnOptions::default() }
    };
    let Some(world) = World::by(Settings::default(), way) else { return };
    one_port_for_all(&world);
}

#[test]
fn gw_142_who_may_send_to_a_guests_port() {
    for udp_filter in [UdpFilter::Address, UdpFilter::Any] {
        let Some(world) = World::plain(Settings { udp_filter, ..Settings::default() }) else { return };
        // The stranger's address is greater than the known one, and less.
        for ips in SERVERS.into_iter().flat_map(|[a, b]| [[a, b], [b, a]]) {
            let (server, same, other) = (world.server(ips[0]), world.server(ips[0]), world.server(ips[1]));
            let client = world.client(&server);
            let seen = ask(&client, &server);
            let hello = |from: &UdpSocket| {
                let local = from.local_addr().unwrap();
                from.send_to(b"hello", SocketAddr::new(seen.ip(), seen.port())).unwrap();
                local
            };
            // In order, so the last one shows what became of those before.
            let strangers = [hello(&other), hello(&same)];
            let expected: Vec<SocketAddr> = match udp_filter {
                UdpFilter::Address => vec![strangers[1]],
                UdpFilter::Any => strangers.to_vec(),
            };
            for from in expected {
                assert_eq!(next(&client).unwrap(), (b"hello".to_vec(), from), "{udp_filter:?}");
                // An answer leaves from the same port.
                client.send_to(b"hello yourself", from).unwrap();
                let whose = if from == strangers[0] { &other } else { &same };
                let (answer, by) = next(whose).unwrap();
                assert_eq!((&*answer, by.port()), (&b"hello yourself"[..], seen.port()));
            }
        }
        let filtered = world.server.look(|gateway| gateway.counters().filtered);
        assert_eq!(filtered, if udp_filter == UdpFilter::Address { 4 } else { 0 });
    }
}

#[test]
fn gw_143_a_flow_that_received_for_others_ends_and_they_continue() {
    let timeouts = Timeouts { datagrams: Duration::from_secs(2), ..Timeouts::default() };
    let Some(world) = World::plain(Settings { timeouts, ..Settings::default() }) else { return };
    for (round, ips) in SERVERS.into_iter().enumerate() {
        let servers = ips.map(|ip| world.server(ip));
        let client = world.client(&servers[0]);
        let port = ask(&client, &servers[0]).port();
        // A question each 20 ms, until after the first flow is over: a pause of 2 s would be a hundred of
        // them.
        eventually("the first flow is over", || {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(ask(&client, &servers[1]).port(), port);
            world.server.look(|gateway| gateway.counters().idle) > 2 * round as u64
        });
        (0..10).for_each(|_| assert_eq!(ask(&client, &servers[1]).port(), port));
        // It begins again, at the same port.
        assert_eq!(ask(&client, &servers[0]).port(), port);
        eventually("both are over", || world.server.look(|gateway| gateway.in_use() == Amounts::default()));
        eventually("the socket is closed", || world.sockets() == 2);
    }
}

#[test]
fn gw_147_each_question_is_answered_though_the_table_is_full() {
    let limits = Limits::of(Amounts { datagram_flows: 64, ..Limits::default().all });
    let Some(world) = World::plain(Settings { limits, ..Settings::default() }) else { return };
    let server = world.server(SERVERS[0][0]);
    // All wait, so that no port of the guest's is used twice.
    let clients: Vec<UdpSocket> = (0..500)
        .map(|_| {
            let client = world.client(&server);
            ask(&client, &server);
            client
        })
        .collect();
    let (used, replaced) =
        world.server.look(|gateway| (gateway.in_use().datagram_flows, gateway.counters().replaced));
    assert_eq!((used, replaced), (48, 500 - 48));
    eventually("those that were replaced have no socket", || world.sockets() == 1 + 48);
    // The first one's next question begins a flow again.
    ask(&clients[0], &server);
}

/// A socket that receives each packet of this protocol for an address of the namespace, with its IPv4 header.
fn packets(kernel: &Kernel, protocol: Protocol) -> Socket {
    let socket = kernel.enter(|| Socket::new(Domain::IPV4, Type::RAW, Some(protocol))).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// TOS, TTL and DF of the next packet to this port.
fn fields(packets: &Socket, port: u16) -> (u8, u8, bool) {
    let mut packet = [0; 2_048];
    loop {
        match (&mut &*packets).read(&mut packet) {
            Ok(len) if len >= 28 && packet[22..24] == port.to_be_bytes() => {
                return (packet[1], packet[8], packet[6] & 0x40 != 0);
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => panic!("{error}"),
            _ => {}
        }
    }
}

/// DSCP 46, and each value of the two bits of ECN (RFC 3168 §5).
const TOS: [u8; 5] = [0, 0xb8, 0xb9, 0xba, 0xbb];

#[test]
fn gw_154_of_a_datagrams_header_tos_and_ecn_pass_and_ttl_and_df_do_not() {
    let Some(world) = World::plain(Settings::default()) else { return };
    let [outside, inside] = [&world.far, &world.near].map(|kernel| packets(kernel, Protocol::UDP));
    let server = world.server(SERVERS[0][0]);
    let client = world.client(&server);
    let seen = ask(&client, &server);
    let to = server.local_addr().unwrap();
    let ports = [to.port(), client.local_addr().unwrap().port()];
    _ = (fields(&outside, ports[0]), fields(&inside, ports[1]));
    for (tos, ttl) in TOS.into_iter().zip([9, 200, 2, 64, 255]) {
        for (from, to, packets, port) in
            [(&client, to, &outside, ports[0]), (&server, seen, &inside, ports[1])]
        {
            SockRef::from(from).set_tos_v4(tos.into()).unwrap();
            from.set_ttl(ttl).unwrap();
            for df in [Ipv4PathMtuDiscovery::DONT, Ipv4PathMtuDiscovery::DO] {
                set_ip_mtu_discover(from, df).unwrap();
                from.send_to(b"marked", to).unwrap();
                assert_eq!(fields(packets, port), (tos, 64, true), "to {to}");
            }
        }
    }
}

#[test]
fn gw_154_of_a_connections_header_nothing_passes() {
    let Some(world) = World::plain(Settings::default()) else { return };
    let [outside, inside] = [&world.far, &world.near].map(|kernel| packets(kernel, Protocol::TCP));
    let at: SocketAddr = SocketAddr::new(SERVERS[0][0].parse().unwrap(), 0);
    let listener = world.far.enter(|| TcpListener::bind(at)).unwrap().unwrap();
    SockRef::from(&listener).set_tos_v4(0xb8).unwrap();
    let to = listener.local_addr().unwrap();
    let client = world.near.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_tos_v4(0xb8).unwrap();
        socket.set_ttl_v4(9).unwrap();
        socket.connect(&to.into()).unwrap();
        socket
    });
    let (mut served, _) = listener.accept().unwrap();
    let client = client.unwrap();
    (&client).write_all(b"there").unwrap();
    served.write_all(b"back").unwrap();
    let port = client.local_addr().unwrap().as_socket().unwrap().port();
    for (packets, port) in [(&outside, to.port()), (&inside, port)] {
        // The SYN or what answers it, and the bytes.
        assert_eq!([(); 2].map(|()| fields(packets, port)), [(0, 64, true); 2]);
    }
}

#[test]
fn gw_154_a_traffic_class_passes() {
    let Some(world) = World::plain(Settings::default()) else { return };
    let server = world.server(SERVERS[1][0]);
    let client = world.client(&server);
    let seen = ask(&client, &server);
    let to = server.local_addr().unwrap();
    for (from, to, reader) in [(&client, to, &server), (&server, seen, &client)] {
        setsockopt(reader, sockopt::Ipv6RecvTClass, &true).unwrap();
        for tos in TOS {
            setsockopt(from, sockopt::Ipv6TClass, &tos.into()).unwrap();
            from.send_to(b"marked", to).unwrap();
            let (mut data, mut control) = ([0; 16], vec![0; 128]);
            let mut pieces = [IoSliceMut::new(&mut data)];
            let flags = MsgFlags::empty();
            let message = recvmsg::<()>(reader.as_raw_fd(), &mut pieces, Some(&mut control), flags).unwrap();
            let class = message.cmsgs().unwrap().find_map(|control| match control {
                ControlMessageOwned::Ipv6TClass(class) => Some(class),
                _ => None,
            });
            assert_eq!(class, Some(tos.into()), "to {to}");
        }
    }
}
