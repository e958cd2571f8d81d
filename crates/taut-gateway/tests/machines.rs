//! Virtual machines as guests, played by stacks of taut's, which configure themselves: VM-15 to 18, GW-265
//! and 266 of `docs/spec/gateway.md`.
//!
//! ```text
//!   guest: a stack with DHCP and SLAAC ── Unix socket ── the gateway's stack │ its sockets ── far: 10.50.0.1, fd50::1
//! ```
//!
//! A program of its own: it measures the memory of its process.
#![allow(missing_docs, reason = "tests")]
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "it uses a part")]
#[path = "it/support/mod.rs"]
mod support;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use taut::device::packet::Mac;
use taut::device::{FixedLease, Frames, FramesOptions, SearchDomains};
use taut::network::{Network, NetworkChange};
use taut::{DatagramOptions, PingSocket, Stack, blocking};
use taut_gateway::{
    Amounts, ClientAddress, HostSockets, Live, MachineEvent, MachineLog, MachineNetwork, Machines, Resolver,
    Server, Settings, VmSocket,
};
use taut_testbed::{Kernel, PATIENCE, Scratch, eventually, live, now};

use support::Running;

/// Held by a test that measures memory, and by one that would be measured, too.
static MEMORY: Mutex<()> = Mutex::new(());

const FAR: &str = "10.50.0.1";
const FAR_V6: &str = "fd50::1";
const MTU: u16 = 9_000;
/// The station that has a lease of its own.
const WEB: Mac = Mac([2, 0, 0, 0, 0, 0x77]);

struct World {
    /// Dropped first.
    _running: Running,
    far: Kernel,
    server: Server,
    events: Arc<Mutex<Vec<String>>>,
    folder: Scratch,
}

/// The network of machine number `n`.
fn network(n: u8) -> MachineNetwork {
    let pair = |guest: &str, own: &str| (guest.parse().unwrap(), own.parse().unwrap());
    let addresses = vec![
        pair(&format!("10.0.{n}.15/24"), &format!("10.0.{n}.2/24")),
        pair(&format!("fd74:0:0:{n}::15/64"), &format!("fd74:0:0:{n}::2/64")),
    ];
    let address = format!("10.0.{n}.40").parse().unwrap();
    let fixed = vec![FixedLease { station: WEB, address, name: Some("web".to_owned()) }];
    MachineNetwork { addresses, mtu: MTU, search: SearchDomains::default(), fixed, capture: None }
}

impl World {
    /// A gateway with these sockets, named 0, 1, …. `None`, with a message, if live tests cannot run.
    fn new(name: &str, plugs: &[VmSocket]) -> Option<Self> {
        if !live::ready(&["ip"]) {
            return None;
        }
        let far = Kernel::new().unwrap();
        far.set_sysctl("ping_group_range", "0 2147483647").unwrap();
        far.run(&format!("ip address add {FAR}/32 dev lo")).unwrap();
        far.run(&format!("ip address add {FAR_V6}/128 dev lo nodad")).unwrap();
        let folder = Scratch::new(name);
        let events = Arc::<Mutex<Vec<String>>>::default();
        let listen =
            |(n, plug): (usize, &VmSocket)| Machines::listen(*plug, &folder.join(n.to_string())).unwrap();
        let machines: Vec<Machines> = plugs.iter().enumerate().map(listen).collect();
        let noted = Arc::clone(&events);
        let (server, running) = Running::start(&far, move || {
            let own = (0..machines.len()).flat_map(|n| network(n as u8).addresses);
            let own = own.map(|(_, own)| own.address()).collect();
            let settings = Settings { own, ..Settings::default() };
            let server = Server::new(settings, Resolver::default(), Box::new(|_| {}));
            let mut tasks = tokio::task::JoinSet::new();
            for (n, machines) in machines.into_iter().enumerate() {
                let (server, noted) = (server.clone(), Arc::clone(&noted));
                tasks.spawn(async move {
                    let log: MachineLog = Box::new(move |event| {
                        let word = match event {
                            MachineEvent::Came => "came".to_owned(),
                            MachineEvent::Gone(_) => "gone".to_owned(),
                            MachineEvent::TurnedAway => "turned away".to_owned(),
                            MachineEvent::Ended(why) => format!("ended: {why}"),
                            MachineEvent::Refused(what) => format!("refused: {what:?}"),
                            MachineEvent::Failed(why) => format!("failed: {why}"),
                        };
                        noted.lock().unwrap().push(format!("{n} {word}"));
                    });
                    let (way, network) = (Arc::new(HostSockets::default()), network(n as u8));
                    let live = Live::new(&server, network.addresses[0].0.address(), ClientAddress::default());
                    machines.serve(&live, way, &network, || Ok(Stack::builder()), &log).await
                });
            }
            (server, async move { tasks.join_next().await })
        });
        Some(Self { far, server, events, folder, _running: running })
    }

    fn path(&self, n: u8) -> PathBuf {
        self.folder.join(n.to_string())
    }

    fn plug(&self, n: u8) -> UnixStream {
        UnixStream::connect(self.path(n)).unwrap()
    }

    /// A server that sends back what comes, at both addresses.
    fn echo(&self) -> u16 {
        let listener = self.far.enter(|| TcpListener::bind("[::]:0")).unwrap().unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        port
    }

    fn heard(&self, event: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|other| *other == event).count()
    }

    fn nothing_is_left(&self) {
        eventually("no flow is left", || self.server.look(|gateway| gateway.in_use() == Amounts::default()));
    }
}

fn options() -> FramesOptions {
    FramesOptions { dhcp: true, slaac: true, mtu: MTU, ..FramesOptions::default() }
}

/// A machine that has an address of each family.
fn machine(frames: Frames, n: u8) -> Stack {
    machine_with(frames, n, 15)
}

fn machine_with(frames: Frames, n: u8, last: u8) -> Stack {
    let stack = Stack::builder().device(frames).build().unwrap();
    let v4: IpAddr = format!("10.0.{n}.{last}").parse().unwrap();
    assert_eq!(stack.wait_for_address(Some(v4), PATIENCE), Some(v4));
    let is_of_prefix = |address: IpAddr| match address {
        IpAddr::V6(v6) => v6.segments()[..4] == [0xfd74, 0, 0, n.into()],
        IpAddr::V4(_) => false,
    };
    eventually("an address of IPv6", || stack.networks().iter().any(|own| is_of_prefix(own.address)));
    stack
}

fn machine_at(socket: UnixStream, n: u8) -> Stack {
    machine(Frames::stream(socket, &[], &options()).unwrap(), n)
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// Sends bytes to the echo and gets them back.
fn there_and_back(stack: &Stack, to: SocketAddr, count: usize) {
    let mut stream = blocking::TcpStream::connect(stack, to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let bytes: Vec<u8> = (0..count).map(|at| (at * 31 % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let sent = bytes.clone();
    let writing = std::thread::spawn(move || writer.write_all(&sent));
    let mut back = vec![0; count];
    stream.read_exact(&mut back).unwrap();
    writing.join().unwrap().unwrap();
    assert!(back == bytes);
}

#[test]
fn vm_15_a_machine_configures_itself_and_reaches_everything() {
    let Some(world) = World::new("machines-15", &[VmSocket::Datagrams, VmSocket::Stream]) else { return };
    let stack = machine_at(world.plug(1), 1);
    assert_eq!(world.heard("1 came"), 1);
    assert_eq!(stack.name_servers(), ["10.0.1.2".parse::<IpAddr>().unwrap()]);
    assert_eq!(stack.lease().unwrap().server, "10.0.1.2".parse::<IpAddr>().unwrap());
    let echo = world.echo();
    there_and_back(&stack, at(FAR, echo), 1 << 20);
    there_and_back(&stack, at(FAR_V6, echo), 1 << 20);
    let refused = blocking::TcpStream::connect(&stack, at(FAR, 9)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let answerer = world.far.enter(|| UdpSocket::bind((FAR, 0))).unwrap().unwrap();
    let question = answerer.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // A datagram that takes the whole MTU.
        let socket = taut::UdpSocket::bind(&stack, "10.0.1.15:0").await.unwrap();
        let (sent, mut got) = (vec![7; usize::from(MTU) - 28], vec![0; 65_536]);
        socket.send_to(&sent, question).await.unwrap();
        let (len, from) = answerer.recv_from(&mut got).unwrap();
        assert!(got[..len] == sent);
        answerer.send_to(&sent, from).unwrap();
        let back = tokio::time::timeout(PATIENCE, socket.recv_from(&mut got)).await.unwrap().unwrap();
        assert_eq!((back, got[..sent.len()] == sent), ((sent.len(), question), true));
        // The name server that it was told, by its own name (RFC 1035 §4.1).
        let ask = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07gateway\x04home\x04arpa\0\0\x01\0\x01";
        socket.send_to(ask, "10.0.1.2:53").await.unwrap();
        let (len, _) = tokio::time::timeout(PATIENCE, socket.recv_from(&mut got)).await.unwrap().unwrap();
        assert_eq!(got[..2], [0x12, 0x34]);
        // 10.0.0.2 and 10.0.1.2: the addresses of the gateway.
        assert!(got[..len].windows(4).any(|four| four == [10, 0, 1, 2]));
        for (own, far) in [("10.0.1.15:0", FAR), ("[::]:0", FAR_V6)] {
            let pings = PingSocket::bind(&stack, own.parse().unwrap(), &DatagramOptions::default()).unwrap();
            pings.send_to(1, b"hello", far.parse().unwrap()).await.unwrap();
            let mut data = [0; 100];
            tokio::time::timeout(PATIENCE, pings.recv(&mut data)).await.unwrap().unwrap();
            assert_eq!(&data[..5], b"hello");
        }
    });
}

/// A connection to a listener of the far side, and its other end.
fn pair(world: &World, stack: &Stack) -> (blocking::TcpStream, TcpStream) {
    let listener = world.far.enter(|| TcpListener::bind((FAR, 0))).unwrap().unwrap();
    let guest = blocking::TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
    let (served, _) = listener.accept().unwrap();
    served.set_read_timeout(Some(PATIENCE)).unwrap();
    (guest, served)
}

#[test]
fn vm_16_a_machine_goes_and_comes_back() {
    let Some(world) = World::new("machines-16", &[VmSocket::Stream]) else { return };
    for round in 1..=3 {
        let socket = world.plug(0);
        let cable = socket.try_clone().unwrap();
        // Its address is its station's.
        let options = FramesOptions { mac: Some(Mac([2, 0, 0, 0, 0, 9])), ..options() };
        let stack = machine(Frames::stream(socket, &[], &options).unwrap(), 0);
        let (_guest, mut served) = pair(&world, &stack);
        there_and_back(&stack, at(FAR, world.echo()), 1 << 16);
        // Killed: the other ends of its connections hear it at once.
        cable.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(served.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        world.nothing_is_left();
        eventually("the gateway has seen it", || world.heard("0 gone") == round);
    }
    assert_eq!(world.heard("0 came"), 3);
}

#[test]
fn vm_17_a_machine_at_a_datagram_socket_goes_and_comes_back_with_another_name() {
    let Some(world) = World::new("machines-17", &[VmSocket::Datagrams]) else { return };
    for round in 1..=2 {
        let own = world.folder.join(format!("vfkit-{round}.sock"));
        let socket = UnixDatagram::bind(&own).unwrap();
        socket.connect(world.path(0)).unwrap();
        // How vfkit begins.
        socket.send(b"VFKT").unwrap();
        let cable = socket.try_clone().unwrap();
        // Leases outlive a machine here, so one with another station would get another address.
        let options = FramesOptions { mac: Some(Mac([2, 0, 0, 0, 0, 9])), ..options() };
        let stack = machine(Frames::datagrams(socket, &[], &options).unwrap(), 0);
        eventually("the gateway has seen it", || world.heard("0 came") == round);
        there_and_back(&stack, at(FAR, world.echo()), 1 << 20);
        let (_guest, mut served) = pair(&world, &stack);
        // Another program is kept away meanwhile.
        let other = UnixDatagram::bind(world.folder.join(format!("other-{round}.sock"))).unwrap();
        other.connect(world.path(0)).unwrap_err();
        drop(stack);
        drop(cable);
        // The stack's thread may hold the socket for a moment: a machine that is killed has no such moment.
        std::fs::remove_file(&own).unwrap();
        eventually("the gateway has seen it go", || world.heard("0 gone") == round);
        assert_eq!(served.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        world.nothing_is_left();
    }
}

/// Numbers that are the same in each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// An IPv4 packet of the guest 10.0.1.15 in a frame, with a right header checksum and whatever is behind it.
fn packet(protocol: u8, to: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = b"\x02taut\x02\x02\0\0\0\x01\x01\x08\0".to_vec();
    let mut head = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 1, 15];
    head.extend(to.to_be_bytes());
    let len = (20 + payload.len()) as u16;
    head[2..4].copy_from_slice(&len.to_be_bytes());
    let sum: u32 = head.as_chunks::<2>().0.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(head);
    frame.extend(payload);
    frame
}

/// A frame that an honest machine would not send.
fn hostile(noise: &mut Noise) -> Vec<u8> {
    let kind = noise.next() % 8;
    let mut random = |len: u64| (0..len).map(|_| noise.next() as u8).collect::<Vec<u8>>();
    match kind {
        0 => random(80),
        // Neighbours and groups without end.
        1 => [
            &b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\x01\x01\x08\x06\0\x01\x08\0\x06\x04\0\x01"[..],
            &random(6),
            &[10, 0, 1],
            &random(1),
            &[0; 6],
            &[10, 0, 1, 2],
        ]
        .concat(),
        2 => [&b"\x33\x33\0\0\0\x02\x02\0\0\0\x01\x01\x86\xdd\x60\0\0\0\0\x10\x3a\xff"[..], &random(48)]
            .concat(),
        // DHCP of any kind from any station.
        3 => {
            let mut message = vec![1, 1, 6, 0];
            message.extend(random(4));
            message.resize(28, 0);
            message.extend(random(6));
            message.resize(236, 0);
            message.extend([99, 130, 83, 99, 53, 1]);
            message.extend(random(40));
            let mut udp = vec![0, 68, 0, 67, 0, 0, 0, 0];
            udp.extend(message);
            let len = udp.len() as u16;
            udp[4..6].copy_from_slice(&len.to_be_bytes());
            packet(17, u32::MAX, &udp)
        }
        // Broken TCP, SYNs to anywhere, UDP to anywhere, fragments.
        4 => packet(6, 0x0a32_0001, &random(40)),
        5 => {
            let to = u32::from_be_bytes(random(4).try_into().unwrap());
            packet(17, to, &random(30))
        }
        6 => {
            let mut frame = packet(17, 0x0a32_0001, &random(64));
            frame[20..22].copy_from_slice(&random(2));
            frame
        }
        _ => packet(1, 0x0a32_0001, &random(60)),
    }
}

/// Kilobytes that this process has in memory (proc(5)).
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn vm_18_a_hostile_machine_takes_bounded_memory_and_another_lives_on() {
    let Some(world) = World::new("machines-18", &[VmSocket::Stream, VmSocket::Stream]) else { return };
    let stack = machine_at(world.plug(0), 0);
    let echo = at(FAR, world.echo());
    let (mut guest, mut served) = pair(&world, &stack);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let mut flood = |count: usize| {
        let mut hostile_end = world.plug(1);
        hostile_end.set_nonblocking(false).unwrap();
        // Answers are read, so that the gateway is not kept waiting; nobody looks at them.
        let mut answers = hostile_end.try_clone().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
        let start = now();
        for at in 0..count {
            let frame = hostile(&mut noise);
            let framed = [&(frame.len() as u32).to_be_bytes()[..], &frame].concat();
            hostile_end.write_all(&framed).unwrap();
            if at % 5_000 == 0 {
                // The other machine's old connection and a new one.
                guest.write_all(b"still there?").unwrap();
                let mut heard = [0; 12];
                served.read_exact(&mut heard).unwrap();
                assert_eq!(&heard, b"still there?");
                there_and_back(&stack, echo, 1_000);
            }
        }
        // The last words: a frame that is longer than any.
        hostile_end.write_all(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).unwrap();
        reader.join().unwrap().ok();
        start.elapsed()
    };
    flood(10_000);
    let first = resident_kb();
    let took = flood(40_000);
    let second = resident_kb();
    println!("{first} KB after 10,000 frames, {second} KB after 40,000 more, in {took:?}");
    // Four times as many frames take no more memory, but for what the allocator keeps.
    assert!(second < first + 8_000, "{first} KB, then {second} KB");
    let limits = Settings::default().limits;
    let used = world.server.look(taut_gateway::Gateway::in_use);
    assert!(used.datagram_flows <= limits.guest.datagram_flows && used.half_open <= limits.guest.half_open);
    eventually("both floods have ended", || world.heard("1 gone") == 2);
    assert_eq!((world.heard("0 gone"), world.heard("0 came")), (0, 1));
    there_and_back(&stack, echo, 1 << 20);
    drop((guest, served));
    world.nothing_is_left();
}

/// A machine with this station, at this last byte of its address; and its cable.
fn beside(world: &World, mac: Mac, last: u8) -> (Stack, UnixStream) {
    let socket = world.plug(0);
    let cable = socket.try_clone().unwrap();
    let options = FramesOptions { mac: Some(mac), ..options() };
    (machine_with(Frames::stream(socket, &[], &options).unwrap(), 0, last), cable)
}

/// A server of a machine's that sends back what comes.
fn echo_in(stack: &Stack) {
    let listener = blocking::TcpListener::bind(stack, "[::]:7000".parse::<SocketAddr>().unwrap()).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut writer = stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream, &mut writer));
        }
    });
}

/// The last byte of the address of IPv4 that the gateway's name server gives a name.
fn address_of(stack: &Stack, own: &str, name: &str) -> Option<u8> {
    answer(stack, (own, "10.0.0.2:53"), name, 1)
}

/// The same of an address of this type (RFC 1035 §3.2.2, RFC 3596 §2.1).
fn answer(stack: &Stack, (own, server): (&str, &str), name: &str, kind: u8) -> Option<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = taut::UdpSocket::bind(stack, own).await.unwrap();
        // RFC 1035 §4.1: one question, class IN.
        let mut ask = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
        for label in name.split('.') {
            ask.extend([&[label.len() as u8], label.as_bytes()].concat());
        }
        ask.extend([0, 0, kind, 0, 1]);
        socket.send_to(&ask, server).await.unwrap();
        let mut got = vec![0; 512];
        let (len, _) = tokio::time::timeout(PATIENCE, socket.recv_from(&mut got)).await.unwrap().unwrap();
        (got[7] == 1).then(|| got[len - 1])
    })
}

#[test]
fn gw_265_machines_at_one_socket_reach_each_other_and_go_one_by_one() {
    let Some(world) = World::new("machines-265", &[VmSocket::Stream]) else { return };
    let [first, third] = [0x0a, 0x0c].map(|last| Mac([2, 0, 0, 0, 0, last]));
    let (a, cable_a) = beside(&world, first, 15);
    let (b, cable_b) = beside(&world, WEB, 40);
    let far = at(FAR, world.echo());
    echo_in(&b);
    let v6 = b.networks().into_iter().find_map(|own| match own.address {
        IpAddr::V6(v6) if v6.segments()[0] == 0xfd74 => Some(v6.to_string()),
        _ => None,
    });
    there_and_back(&a, at("10.0.0.40", 7_000), 1 << 20);
    there_and_back(&a, at(&v6.unwrap(), 7_000), 1 << 20);
    assert_eq!(address_of(&a, "10.0.0.15:0", "web"), Some(40));
    assert_eq!(address_of(&a, "10.0.0.15:0", "web.home.arpa"), Some(40));
    assert_eq!(address_of(&b, "10.0.0.40:0", "host.home.arpa"), Some(2));
    // Each is a guest of its own to the gateway, with both its addresses.
    let (_of_a, mut served_a) = pair(&world, &a);
    let (mut of_b, mut served_b) = pair(&world, &b);
    there_and_back(&a, at(FAR_V6, far.port()), 1_000);
    there_and_back(&b, far, 1_000);
    // One goes: its connections are reset, the other's stay.
    cable_a.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(served_a.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    eventually("the gateway has seen it", || world.heard("0 gone") == 1);
    of_b.write_all(b"still there?").unwrap();
    let mut heard = [0; 12];
    served_b.read_exact(&mut heard).unwrap();
    // Another one comes, and the first one again: each has its own address.
    let (c, _cable_c) = beside(&world, third, 16);
    let (a, _cable_a) = beside(&world, first, 15);
    there_and_back(&c, far, 1_000);
    there_and_back(&c, at("10.0.0.40", 7_000), 1_000);
    // A name goes with its machine.
    cable_b.shutdown(std::net::Shutdown::Both).unwrap();
    eventually("the gateway has seen it", || world.heard("0 gone") == 2);
    // It is a query for the host's name server then, and there is none.
    assert_eq!(address_of(&a, "10.0.0.15:0", "web"), None);
    // 16 machines, and no more.
    let more: Vec<UnixStream> = (0..14).map(|_| world.plug(0)).collect();
    eventually("they are there", || world.heard("0 came") == 4 + 14);
    let mut one_more = world.plug(0);
    one_more.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(one_more.read(&mut [0]).unwrap(), 0);
    eventually("it is turned away", || world.heard("0 turned away") == 1);
    drop(more);
    eventually("they are gone", || world.heard("0 gone") == 2 + 14);
    there_and_back(&a, far, 1 << 20);
}

#[test]
fn gw_275_a_machines_name_has_the_address_of_ipv6_that_it_got() {
    let _turn = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("machines-275", &[VmSocket::Stream]) else { return };
    let (a, _cable_a) = beside(&world, Mac([2, 0, 0, 0, 0, 0x0a]), 15);
    let (b, _cable_b) = beside(&world, WEB, 40);
    echo_in(&b);
    let of_web = || answer(&a, ("10.0.0.15:0", "10.0.0.2:53"), "web", 28);
    // It has made one by itself, and then one of its station, as DHCP gives it (GW-270).
    assert_eq!(of_web(), None);
    let own = "fd74::dc6:200:0:77".parse().unwrap();
    b.change_network(NetworkChange::AddAddress(Network { address: own, prefix: 64 })).unwrap();
    assert_eq!(b.wait_for_address(Some(own), PATIENCE), Some(own));
    let first = answer(&b, ("[fd74::dc6:200:0:77]:0", "[fd74::2]:53"), "host.home.arpa", 28);
    assert_eq!((first, of_web()), (Some(2), Some(0x77)));
    assert_eq!(address_of(&a, "10.0.0.15:0", "web"), Some(40));
    there_and_back(&a, at("fd74::dc6:200:0:77", 7_000), 1_000);
}

/// A broadcast of this station, for an address (RFC 826).
fn asks(station: [u8; 6], sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let head = [&[0xff; 6][..], &station, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head[..], &station, &sender, &[0; 6], &target].concat()
}

#[test]
fn gw_266_a_machine_that_floods_or_does_not_read_stops_no_other() {
    let _turn = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("machines-266", &[VmSocket::Stream]) else { return };
    let honest = Mac([2, 0, 0, 0, 0, 0x0a]);
    let (a, _cable) = beside(&world, honest, 15);
    let (b, _cable_b) = beside(&world, WEB, 40);
    echo_in(&b);
    let far = at(FAR, world.echo());
    let mut hostile = world.plug(0);
    let mut say = |frame: &[u8]| {
        hostile.write_all(&[&(frame.len() as u32).to_be_bytes()[..], frame].concat()).unwrap();
    };
    let own = [2, 0, 0, 0, 0, 0x66];
    // In another's name: nothing is taken, and one line each.
    for _ in 0..100 {
        say(&asks(honest.0, [10, 0, 0, 66], [10, 0, 0, 2]));
        say(&asks(own, [10, 0, 0, 15], [10, 0, 0, 2]));
    }
    eventually("both are refused", || world.heard(&format!("0 refused: Station({honest:?})")) == 1);
    eventually("both are refused", || world.heard("0 refused: Address(10.0.0.15)") == 1);
    there_and_back(&a, far, 1 << 20);
    let before = resident_kb();
    // From its own place: broadcasts, frames for another one, answers that it never reads.
    let echoed = world.far.enter(|| UdpSocket::bind((FAR, 0))).unwrap().unwrap();
    let port = echoed.local_addr().unwrap().port().to_be_bytes();
    std::thread::spawn(move || {
        let mut bytes = [0; 2_000];
        while let Ok((len, from)) = echoed.recv_from(&mut bytes) {
            for _ in 0..4 {
                _ = echoed.send_to(&bytes[..len], from);
            }
        }
    });
    let mut datagram =
        packet(17, 0x0a32_0001, &[&[0x10, 0x00, port[0], port[1], 4, 8, 0, 0][..], &[7; 1_024]].concat());
    datagram[6..12].copy_from_slice(&own);
    // 10.0.0.66 is its address: the header's checksum again.
    datagram[26..30].copy_from_slice(&[10, 0, 0, 66]);
    datagram[24..26].fill(0);
    let sum: u32 = datagram[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    datagram[24..26].copy_from_slice(&checksum.to_be_bytes());
    let mut to_other = datagram.clone();
    to_other[..6].copy_from_slice(&honest.0);
    // One that is there, and reads nothing.
    let mut idle = world.plug(0);
    let idle_station = [2, 0, 0, 0, 0, 0x67];
    let first = asks(idle_station, [10, 0, 0, 67], [10, 0, 0, 2]);
    idle.write_all(&[&(first.len() as u32).to_be_bytes()[..], &first].concat()).unwrap();
    eventually("it is there", || world.heard("0 came") == 4);
    let mut to_idle = datagram.clone();
    to_idle[..6].copy_from_slice(&idle_station);
    for round in 0..4 {
        for _ in 0..2_000 {
            say(&asks(own, [10, 0, 0, 66], [10, 0, 0, 99]));
            say(&to_other);
            (0..4).for_each(|_| say(&to_idle));
            say(&datagram);
        }
        there_and_back(&a, far, 1 << 18);
        there_and_back(&a, at("10.0.0.40", 7_000), 1 << 18);
        println!("round {round}: {} KB", resident_kb());
    }
    assert!(resident_kb() < before + 10_000, "{before} KB, then {}", resident_kb());
    assert_eq!((world.heard("0 came"), world.heard("0 gone")), (4, 0));
}
