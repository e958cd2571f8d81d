//! A stack on a link that carries frames over a descriptor: a TAP with the kernel behind it, the sockets of
//! QEMU and passt, another stack, and descriptors that another program has opened.

use crate::net;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use net::{digest_of, echo, send_noise, serve};
use socket2::{Domain, Socket, Type};
use taut::blocking::{TcpListener, TcpStream};
use taut::device::{Cidr, Device, Frames, FramesOptions, Interface, Tun, TunOptions, from_descriptor};
use taut::network::{Network, NetworkChange};
use taut::{Stack, StackBuilder};
use taut_testbed::{Kernel, PATIENCE, Scratch, eventually, listen};
use taut_wire::Mac;

const STACK: [&str; 2] = ["10.9.0.2", "[fd09::2]"];
const FAR: [&str; 2] = ["10.9.0.1", "[fd09::1]"];

fn addresses() -> Vec<Cidr> {
    ["10.9.0.2/24", "fd09::2/64"].map(|text| text.parse().unwrap()).into()
}

fn stack(device: impl Into<Device>) -> Stack {
    with(device, |builder| builder)
}

fn with(device: impl Into<Device>, change: impl FnOnce(StackBuilder) -> StackBuilder) -> Stack {
    let builder = Stack::builder().device(device).address("10.9.0.2/24").address("fd09::2/64");
    change(builder).build().expect("a stack")
}

/// Gives the kernel its addresses on an interface.
fn configure(kernel: &Kernel, interface: &str) {
    let give = || {
        let interface = Interface::open(interface).unwrap();
        interface.set_up().unwrap();
        for address in ["10.9.0.1/24", "fd09::1/64"] {
            interface.add_address(address.parse().unwrap()).unwrap();
        }
    };
    kernel.enter(give).unwrap();
}

/// Bytes from the stack to the kernel, and back, by both families.
fn both_ways(stack: &Stack, kernel: &Kernel, bytes: usize) {
    for family in [0, 1] {
        let address = format!("{}:0", FAR[family]).parse().unwrap();
        let listener: KernelListener = kernel.enter(|| listen(address, None)).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let sink = serve(listener, digest_of);
        let mut stream = TcpStream::connect(stack, at).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let sent = send_noise(&mut stream, bytes, 7);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sink.join().unwrap(), (bytes, sent));

        let own: SocketAddr = format!("{}:0", STACK[family]).parse().unwrap();
        let listener = TcpListener::bind(stack, own).unwrap();
        let at = listener.local_addr().unwrap();
        let near = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            digest_of(stream)
        });
        let stream = kernel.enter(|| KernelStream::connect_timeout(&at, PATIENCE));
        let mut stream = stream.unwrap().unwrap();
        let sent = send_noise(&mut stream, bytes, 8);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(near.join().unwrap(), (bytes, sent));
    }
    eventually("every ticket is back", || below(stack) == 0);
}

/// Bytes that connections believe to be below TCP.
fn below(stack: &Stack) -> u64 {
    let report = stack.report();
    report.queues.iter().find(|queue| queue.name == "device").unwrap().bytes
}

#[test]
fn a_tap_carries_both_families_with_super_packets_or_without() {
    for vnet_header in [true, false] {
        let kernel = Kernel::new().expect("a network namespace, which needs root");
        let options = FramesOptions { vnet_header: Some(vnet_header), ..FramesOptions::default() };
        let tap = kernel.enter(|| Frames::tap("tap%d", &addresses(), &options)).unwrap();
        let tap = tap.expect("a TAP interface");
        assert_eq!(tap.name(), "the TAP interface tap0");
        let mac = tap.mac().unwrap().to_string();
        let stack = stack(tap);
        configure(&kernel, "tap0");
        both_ways(&stack, &kernel, 10_000_000);
        // The kernel has learnt the station that the stack has made up, and resets nothing.
        let known = kernel.run("ip neigh show to 10.9.0.2").unwrap();
        assert!(known.contains(&mac), "{known}, not {mac}");
        assert_eq!(kernel.counters().unwrap()["TcpOutRsts"], 0);
    }
}

#[test]
fn a_tap_that_is_deleted_ends_the_stack_with_the_reason() {
    let kernel = Kernel::new().unwrap();
    let tap = kernel.enter(|| Frames::tap("tap0", &addresses(), &FramesOptions::default())).unwrap().unwrap();
    let stack = stack(tap);
    configure(&kernel, "tap0");
    kernel.run("ip link delete tap0").unwrap();
    eventually("the stack has ended", || stack.closed().is_some());
    let why = stack.closed().unwrap().to_string();
    assert!(why.contains("the TAP interface tap0"), "{why}");
}

/// A privileged program opens the interface, and hands its descriptor to one that has no rights.
#[test]
fn descriptors_that_another_program_has_opened() {
    let kernel = Kernel::new().unwrap();
    let tap = kernel.enter(|| Frames::tap("tap0", &addresses(), &FramesOptions::default())).unwrap().unwrap();
    let handed = tap.as_fd().try_clone_to_owned().unwrap();
    drop(tap);
    let first = stack(from_descriptor(handed, &addresses(), &FramesOptions::default()).unwrap());
    configure(&kernel, "tap0");
    both_ways(&first, &kernel, 1_000_000);
    drop(first);

    for offload in [true, false] {
        let kernel = Kernel::new().unwrap();
        let options = TunOptions { offload, ..TunOptions::default() };
        let tun = kernel.enter(|| Tun::open("tun0", &options)).unwrap().unwrap();
        let handed = tun.as_fd().try_clone_to_owned().unwrap();
        drop(tun);
        let device = from_descriptor(handed, &addresses(), &FramesOptions::default()).unwrap();
        let second = stack(device);
        configure(&kernel, "tun0");
        both_ways(&second, &kernel, 1_000_000);
    }
}

/// Two stacks, which agree on a virtio-net header: super-packets stay whole. With Ethernet and without.
#[test]
fn two_stacks_over_sockets_of_each_type() {
    for (kind, ethernet, vnet_header) in [
        (Type::SEQPACKET, false, true),
        (Type::SEQPACKET, true, true),
        (Type::SEQPACKET, true, false),
        (Type::STREAM, true, true),
        (Type::STREAM, false, false),
        (Type::DGRAM, true, true),
    ] {
        let (one, other) = Socket::pair(Domain::UNIX, kind, None).unwrap();
        let options = FramesOptions { ethernet, vnet_header: Some(vnet_header), ..FramesOptions::default() };
        let far: Vec<Cidr> = ["10.9.0.1/24", "fd09::1/64"].map(|text| text.parse().unwrap()).into();
        let near = stack(from_descriptor(one.into(), &addresses(), &options).unwrap());
        let server = Stack::builder()
            .device(from_descriptor(other.into(), &far, &options).unwrap())
            .address("10.9.0.1/24")
            .address("fd09::1/64")
            .build()
            .unwrap();
        for family in [0, 1] {
            let at: SocketAddr = format!("{}:80", FAR[family]).parse().unwrap();
            let listener = TcpListener::bind(&server, at).unwrap();
            let sink = thread::spawn(move || digest_of(listener.accept().unwrap().0));
            let mut stream = TcpStream::connect(&near, at).unwrap();
            let sent = send_noise(&mut stream, 5_000_000, 9);
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(sink.join().unwrap(), (5_000_000, sent), "{kind:?} {ethernet} {vnet_header}");
        }
        eventually("every ticket is back", || below(&near) == 0);
        let cut = near.counters().iter().find(|(name, _)| *name == "TcpOutSegs").unwrap().1;
        assert!(cut > 6_000, "{cut} segments of 1,448 bytes for ten megabytes");
        if kind != Type::DGRAM {
            drop(server);
            eventually("the stack has ended", || near.closed().is_some());
            let why = near.closed().unwrap().to_string();
            assert!(why.contains("the peer has closed it"), "{why}");
        }
    }
}

/// Pairs of frames, the second of which comes while the driver has read the first and goes to sleep: each is
/// answered. The stack has no connection, and therefore no timer that could hide a mistake.
#[test]
fn dev_15_no_driver_overlooks_a_frame() {
    const ROUNDS: usize = 2_000;
    let ask = |mut far: UnixStream| {
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut arp = vec![0, 0, 0, 42];
        arp.extend([[0xff; 6], [2, 0, 0, 0, 0, 1]].concat());
        arp.extend([
            8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 9, 0, 1, 0, 0, 0, 0, 0, 0, 10, 9, 0, 2,
        ]);
        let is_answer =
            |frame: &[u8]| frame.get(12..14) == Some(&[8, 6]) && frame.get(20..22) == Some(&[0, 2]);
        for round in 0..ROUNDS {
            far.write_all(&arp).unwrap();
            // From at once to the time that an answer takes.
            (0..round % 200 * 50).for_each(|_| std::hint::spin_loop());
            far.write_all(&arp).unwrap();
            let mut answers = 0;
            while answers < 2 {
                let mut length = [0; 4];
                far.read_exact(&mut length).unwrap_or_else(|error| panic!("round {round}: {error}"));
                let mut frame = vec![0; u32::from_be_bytes(length) as usize];
                far.read_exact(&mut frame).unwrap();
                answers += usize::from(is_answer(&frame));
            }
        }
    };
    let device = || {
        let (near, far) = UnixStream::pair().unwrap();
        let own: Cidr = "10.9.0.2/24".parse().unwrap();
        (Frames::stream(near, &[own], &FramesOptions::default()).unwrap(), far)
    };
    let builder = |device| Stack::builder().device(device).address("10.9.0.2/24");
    let (near, far) = device();
    let stack = builder(near).build().unwrap();
    ask(far);
    drop(stack);
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for runtime in [one, two] {
        let (near, far) = device();
        runtime.block_on(async {
            let stack = builder(near).build_tokio().unwrap();
            tokio::task::spawn_blocking(move || ask(far)).await.unwrap();
            drop(stack);
        });
    }
}

/// The stack's own packets are of 15 pages and 52 bytes at most; the peer's may be longer: a ping, whose
/// reply is cut.
#[test]
fn dev_17_the_peer_may_send_more() {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let options = FramesOptions { ethernet: false, mtu: 65_520, ..FramesOptions::default() };
    let own: Vec<Cidr> = vec!["10.9.0.2/24".parse().unwrap()];
    let device = Frames::stream(near, &own, &options).unwrap();
    let _stack = Stack::builder().device(device).address("10.9.0.2/24").build().unwrap();
    let checksum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum = words.fold(0, |sum, word| (sum + word) % 0xffff);
        (!(sum as u16)).to_be_bytes()
    };
    let mut ip = vec![0x45, 0, 0xff, 0xe4, 0, 1, 0, 0, 64, 1, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let mut icmp = vec![8, 0, 0, 0, 0, 1, 0, 1];
    icmp.resize(65_488, 7);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    far.write_all(&[vec![0, 0, 0xff, 0xe4], ip, icmp].concat()).unwrap();
    let (mut replied, mut longest) = (0, 0);
    while replied < 65_488 {
        let mut length = [0; 4];
        far.read_exact(&mut length).unwrap();
        let mut packet = vec![0; u32::from_be_bytes(length) as usize];
        far.read_exact(&mut packet).unwrap();
        assert_eq!(packet[9], 1, "ICMP");
        replied += packet.len() - 20;
        longest = longest.max(packet.len());
    }
    assert_eq!(replied, 65_488);
    assert!(longest <= 61_492, "{longest}");
}

/// A peer that reads slowly: what it has not read is below TCP, and the small queue holds the rest back.
#[test]
fn what_the_peer_has_not_read_counts_as_below() {
    let (near, far) = UnixStream::pair().unwrap();
    let options = FramesOptions { ethernet: false, ..FramesOptions::default() };
    let near = stack(Frames::stream(near, &addresses(), &options).unwrap());
    let far_addresses: Vec<Cidr> = vec!["10.9.0.1/24".parse().unwrap()];
    // In between, 20 Mbit/s: 5 frames every 3 ms.
    let (behind, there) = UnixStream::pair().unwrap();
    let pump = |from: UnixStream, to: UnixStream, slow: bool| {
        thread::spawn(move || -> io::Result<()> {
            let (mut from, mut to) = (from, to);
            let mut frame = vec![0; 70_000];
            loop {
                from.read_exact(&mut frame[..4])?;
                let len = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
                from.read_exact(&mut frame[4..4 + len])?;
                to.write_all(&frame[..4 + len])?;
                if slow {
                    thread::sleep(Duration::from_micros(600));
                }
            }
        })
    };
    pump(far.try_clone().unwrap(), there.try_clone().unwrap(), true);
    pump(there, far, false);
    let server = Stack::builder()
        .device(Frames::stream(behind, &far_addresses, &options).unwrap())
        .address("10.9.0.1/24")
        .build()
        .unwrap();
    let listener = TcpListener::bind(&server, "10.9.0.1:80".parse::<SocketAddr>().unwrap()).unwrap();
    let sink = thread::spawn(move || digest_of(listener.accept().unwrap().0));
    let mut stream = TcpStream::connect(&near, "10.9.0.1:80".parse::<SocketAddr>().unwrap()).unwrap();
    let mut most = 0;
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = send_noise(&mut stream, 2_000_000, 9);
            stream.shutdown(Shutdown::Write).unwrap();
            sent
        });
        while !sender.is_finished() {
            most = most.max(below(&near));
            thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(sink.join().unwrap(), (2_000_000, sender.join().unwrap()));
    });
    // The socket alone would hold 212,992 bytes of memory, which is 90 frames or more.
    assert!((1_500..60_000).contains(&most), "{most} bytes below");
    eventually("every ticket is back", || below(&near) == 0);
}

/// A program that is killed when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// QEMU without a machine: a hub between one of its sockets and a TAP interface.
fn qemu(kernel: &Kernel, socket: &str) -> Running {
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-machine", "none", "-nodefaults", "-display", "none", "-netdev"])
        .arg(format!("{socket},id=socket"))
        .args(["-netdev", "tap,id=tap,ifname=tap0,script=no,downscript=no"])
        .args(["-netdev", "hubport,id=one,hubid=0,netdev=socket"])
        .args(["-netdev", "hubport,id=two,hubid=0,netdev=tap"])
        .stdin(Stdio::null());
    let running = Running(kernel.namespace.spawn(&mut command).unwrap());
    eventually("QEMU has made the interface", || kernel.run("ip link show tap0").is_ok());
    configure(kernel, "tap0");
    running
}

fn has(program: &str) -> bool {
    let found = Command::new("which")
        .arg(program)
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        assert!(
            std::env::var_os("TAUT_REQUIRE_LIVE").is_none(),
            "{program} is not installed: run make setup"
        );
        println!("skipped: {program} is not installed");
    }
    found
}

/// A connection to a socket that a program is about to make.
fn connected(path: &Path) -> UnixStream {
    let mut stream = None;
    eventually("the socket is there", || {
        stream = UnixStream::connect(path).ok();
        stream.is_some()
    });
    stream.unwrap()
}

#[test]
fn qemus_stream_and_datagram_sockets() {
    if !has("qemu-system-x86_64") {
        return;
    }
    let scratch = Scratch::new("frames-qemu");
    let kernel = Kernel::new().unwrap();
    let path = scratch.join("stream");
    let socket = format!("stream,server=on,addr.type=unix,addr.path={}", path.display());
    let running = qemu(&kernel, &socket);
    let near = stack(Frames::stream(connected(&path), &addresses(), &FramesOptions::default()).unwrap());
    both_ways(&near, &kernel, 10_000_000);
    drop(running);
    eventually("the stack has ended", || near.closed().is_some());

    let kernel = Kernel::new().unwrap();
    let (here, there) = (scratch.join("here"), scratch.join("there"));
    let datagrams = UnixDatagram::bind(&here).unwrap();
    let socket = format!(
        "dgram,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        there.display(),
        here.display()
    );
    let _running = qemu(&kernel, &socket);
    datagrams.connect(&there).unwrap();
    let near = stack(Frames::datagrams(datagrams, &addresses(), &FramesOptions::default()).unwrap());
    both_ways(&near, &kernel, 10_000_000);
}

/// passt carries the guest's connections on to sockets of the host: here the stack is the guest.
#[test]
fn a_stack_behind_passt_reaches_the_hosts_services() {
    if !has("passt") {
        return;
    }
    let scratch = Scratch::new("frames-passt");
    let kernel = Kernel::new().unwrap();
    // passt takes the guest's network from the host's, which needs a route.
    let up = kernel.enter(|| Frames::tap("up0", &[], &FramesOptions::default())).unwrap().unwrap();
    kernel.run("ip addr add 192.0.2.2/24 dev up0").unwrap();
    kernel.run("ip route add default via 192.0.2.1").unwrap();
    let listener = kernel.enter(|| listen("127.0.0.1:0".parse().unwrap(), None)).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = serve(listener, echo);
    let path = scratch.join("socket");
    let mut command = Command::new("passt");
    command
        .args(["--foreground", "--runas", "0", "--ipv4-only", "--socket"])
        .arg(&path)
        .args(["--address", "10.9.0.2", "--netmask", "24", "--gateway", "10.9.0.1"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let _running = Running(kernel.namespace.spawn(&mut command).unwrap());
    let socket = connected(&path);
    let options = FramesOptions { gateways: vec!["10.9.0.1".parse().unwrap()], ..FramesOptions::default() };
    let own: Vec<Cidr> = vec!["10.9.0.2/24".parse().unwrap()];
    let near = Stack::builder()
        .device(Frames::stream(socket, &own, &options).unwrap())
        .address("10.9.0.2/24")
        .build()
        .unwrap();
    // The gateway's address stands for the host.
    let at: SocketAddr = format!("10.9.0.1:{port}").parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&near, &at, PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Its version in Debian 12 stalls when data comes back after a FIN: so the end is known by the length.
    let reader = stream.try_clone().unwrap().take(3_000_000);
    let back = thread::spawn(move || digest_of(reader));
    let sent = send_noise(&mut stream, 3_000_000, 4);
    assert_eq!(back.join().unwrap(), (3_000_000, sent));
    drop(stream);
    server.join().unwrap();
    drop(up);
}

/// The address is checked among the stations of the link: the kernel is one of them.
#[test]
fn dad_07_an_address_of_a_running_stack_is_checked_beside_a_kernel() {
    let kernel = Kernel::new().unwrap();
    let tap = kernel.enter(|| Frames::tap("tap0", &addresses(), &FramesOptions::default())).unwrap().unwrap();
    let stack = stack(tap);
    configure(&kernel, "tap0");
    kernel.run("ip address add 10.9.0.7/24 dev tap0").unwrap();
    kernel.add_address("tap0", "fd09::7/64").unwrap();
    let add = |text: &str, prefix| {
        let address = text.parse().unwrap();
        stack.change_network(NetworkChange::AddAddress(Network { address, prefix })).unwrap();
    };
    for (host, prefix) in [("10.9.0.7", 24), ("fd09::7", 64), ("10.9.0.8", 24), ("fd09::8", 64)] {
        add(host, prefix);
    }
    let second = Duration::from_secs(1);
    for (free, taken) in [("fd09::8", "fd09::7"), ("10.9.0.8", "10.9.0.7")] {
        let address = free.parse().unwrap();
        assert_eq!(stack.wait_for_address(Some(address), 60 * second), Some(address));
        kernel.run(&format!("ping -c 1 -W 60 {free}")).unwrap();
        assert_eq!(stack.wait_for_address(Some(taken.parse().unwrap()), second), None, "the kernel has it");
    }
    // Removed, nobody answers for it.
    stack.change_network(NetworkChange::RemoveAddress("10.9.0.8".parse().unwrap())).unwrap();
    kernel.run("ip neigh flush dev tap0").unwrap();
    assert!(kernel.run("ping -c 1 -W 1 10.9.0.8").is_err());
    both_ways(&stack, &kernel, 1_000_000);
}

/// An advertisement as a router sends it; the stack reaches a network beyond the link over that router.
#[test]
fn slaac_11_a_stack_gets_its_address_from_a_router() {
    let (near, far) = UnixDatagram::pair().unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 2]);
    let options = FramesOptions { slaac: true, mac: Some(mac), ..FramesOptions::default() };
    let frames = Frames::datagrams(near, &[], &options).unwrap();
    let stack = Stack::builder().device(frames).build().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut frame = [0; 2_000];
    let mut hear = |kind: u8| {
        loop {
            let len = far.recv(&mut frame).expect("a frame");
            // Ethernet, IPv6, ICMPv6 of this type.
            if len > 54 && frame[12..14] == [0x86, 0xdd] && frame[20] == 58 && frame[54] == kind {
                return frame[..len].to_vec();
            }
        }
    };
    let asked = hear(133);
    assert_eq!(asked[..6], [0x33, 0x33, 0, 0, 0, 2]);
    far.send(&router_advertisement()).unwrap();
    let own = "2001:db8::ff:fe00:2".parse().unwrap();
    assert_eq!(stack.wait_for_address(None, PATIENCE), Some(own));
    let to: SocketAddr = "[2001:db8:9::1]:7".parse().unwrap();
    let connecting =
        thread::spawn(move || TcpStream::connect_timeout(&stack, &to, Duration::from_secs(1)).map(|_| ()));
    // The SYN goes to the router's station, from the new address, with the MSS of the router's MTU.
    let syn = loop {
        let len = far.recv(&mut frame).expect("a frame");
        if frame[20] == 6 {
            break &frame[..len];
        }
    };
    assert_eq!(syn[..6], [2, 0, 0, 0, 0, 1]);
    assert_eq!(syn[22..38], "2001:db8::ff:fe00:2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    assert_eq!(syn[74..78], [2, 4, 0x05, 0x3c], "1400 - 60");
    connecting.join().unwrap().unwrap_err();
}

/// From fe80::1 at 02:00:00:00:00:01: a default router for 1800 s, its station, an MTU of 1400,
/// 2001:db8::/64.
fn router_advertisement() -> Vec<u8> {
    let (src, dst): (std::net::Ipv6Addr, std::net::Ipv6Addr) =
        ("fe80::1".parse().unwrap(), "ff02::1".parse().unwrap());
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([1, 1, 2, 0, 0, 0, 0, 1]);
    message.extend([5, 1, 0, 0, 0, 0, 0x05, 0x78]);
    message.extend([3, 4, 64, 0xc0, 0, 0, 14, 16, 0, 0, 7, 8, 0, 0, 0, 0]);
    message.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let len = message.len() as u8;
    let pseudo = [&src.octets()[..], &dst.octets(), &[0, 0, 0, len, 0, 0, 0, 58]].concat();
    let words =
        pseudo.chunks(2).chain(message.chunks(2)).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = vec![0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, len, 58, 255]);
    frame.extend(src.octets());
    frame.extend(dst.octets());
    frame.extend(message);
    frame
}
