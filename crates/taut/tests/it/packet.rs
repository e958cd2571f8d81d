//! A stack on an Ethernet interface, by packet sockets, with the kernel at the other end of the cable: both
//! directions, both families, neighbours, queues that keep and drop packets, and an interface that goes away.

use crate::net;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use net::{digest_of, send_noise, serve};
use taut::blocking::{TcpListener, TcpStream};
use taut::device::packet::Mac;
use taut::device::{Interface, Naming, PacketOptions};
use taut::{Stack, StackBuilder};
use taut_testbed::{Kernel, PATIENCE, Raise, Scratch, Subnet, eventually, listen};

const NET: Subnet = Subnet(9);
const STACK: [&str; 2] = ["10.9.0.2", "[fd09::2]"];
const FAR: [&str; 2] = ["10.9.0.1", "[fd09::1]"];

/// A stack at the near end of a cable, the kernel's TCP at its far end. The kernel has no address at the near
/// end.
struct Cable {
    stack: Stack,
    near: Kernel,
    far: Kernel,
}

impl Cable {
    fn new() -> Self {
        Self::with(|_| (), |builder| builder)
    }

    /// With this done to the near end before the stack is there, and this to the stack.
    fn with(prepare: impl FnOnce(&Kernel), change: impl FnOnce(StackBuilder) -> StackBuilder + Send) -> Self {
        let near = Kernel::new().expect("a network namespace, which needs root");
        let far = Kernel::new().unwrap();
        let (here, there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
        for interface in [&here, &there] {
            interface.set_up().unwrap();
        }
        there.wait_until_running(PATIENCE).unwrap();
        NET.far().into_iter().for_each(|address| there.add_address(address).unwrap());
        prepare(&near);
        let build = || {
            let builder = Stack::builder().packet("veth0").address("10.9.0.2/24").address("fd09::2/64");
            change(builder).build()
        };
        let stack = near.enter(build).unwrap().expect("a stack on a packet socket");
        Self { stack, near, far }
    }

    fn listener(&self, family: usize) -> (KernelListener, SocketAddr) {
        let address = format!("{}:0", FAR[family]).parse().unwrap();
        let listener = self.far.enter(|| listen(address, None)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn connect(&self, to: SocketAddr) -> KernelStream {
        let stream = self.far.enter(|| KernelStream::connect_timeout(&to, PATIENCE));
        let stream = stream.unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends so much to the kernel, and checks that it arrived. Returns the stack's counter of unsent packets
    /// afterwards.
    fn upload(&self, family: usize, bytes: usize) {
        let (listener, at) = self.listener(family);
        let sink = serve(listener, digest_of);
        let mut stream = TcpStream::connect(&self.stack, at).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let sent = send_noise(&mut stream, bytes, 7);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sink.join().unwrap(), (bytes, sent));
    }

    fn download(&self, family: usize, bytes: usize) {
        let listener =
            TcpListener::bind(&self.stack, format!("{}:0", STACK[family]).parse::<SocketAddr>().unwrap())
                .unwrap();
        let at = listener.local_addr().unwrap();
        let near = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            digest_of(stream)
        });
        let mut stream = self.connect(at);
        let sent = send_noise(&mut stream, bytes, 8);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(near.join().unwrap(), (bytes, sent));
    }

    /// Bytes that connections believe to be below TCP.
    fn below(&self) -> u64 {
        let report = self.stack.report();
        report.queues.iter().find(|queue| queue.name == "device").unwrap().bytes
    }

    fn near_interface(&self) -> Interface {
        self.near.enter(|| Interface::open("veth0")).unwrap().unwrap()
    }
}

#[test]
fn bytes_arrive_in_both_directions_and_families() {
    let cable = Cable::new();
    for family in [0, 1] {
        cable.upload(family, 20_000_000);
        cable.download(family, 20_000_000);
    }
    // The kernel, which has none of these addresses, resets nothing.
    assert_eq!(cable.near.counters().unwrap()["TcpOutRsts"], 0);
}

/// Two shards, each with a queue of the interface. Flows and shards are matched by two different hashes, so
/// that of the kernel brings about half of the packets to the wrong one, which hands them over.
#[test]
fn dev_11_shards_share_an_interface() {
    const COUNT: usize = 16;
    let cable = Cable::with(|_| (), |builder| builder.shards(2));
    thread::scope(|scope| {
        for number in 0..COUNT {
            let cable = &cable;
            scope.spawn(move || cable.upload(number % 2, 1_000_000));
            scope.spawn(move || cable.download(number % 2, 1_000_000));
        }
    });
    eventually("every ticket is back", || cable.below() == 0);
    let received = counter(&cable.stack, "IpInReceives");
    let steered = counter(&cable.stack, "TautSteered");
    // That all 32 flows are right, or all are wrong, has a probability of 2^-31.
    assert!(steered > 0 && steered < received, "{steered} of {received} packets were handed over");
    // Nobody got what the stack itself sent, and each packet came to one of them: the sockets are one group.
    // The interface counts a super-packet once, as the stack does.
    let arrived = arrived(&cable.near);
    assert!(received <= arrived, "{received} packets of {arrived} that arrived");
    assert_eq!(cable.near.counters().unwrap()["TcpOutRsts"], 0);
    // Answers come to one of them, and each request is answered once.
    for address in ["10.9.0.2", "fd09::2"] {
        cable.far.run(&format!("ip neigh flush to {address}")).unwrap();
    }
    for family in [0, 1, 0, 1] {
        cable.upload(family, 10_000);
        cable.download(family, 10_000);
    }
}

/// Packets that the interface at this end has received.
fn arrived(near: &Kernel) -> u64 {
    let text = near.run("ip -s link show dev veth0").unwrap();
    let counts = text.split_once("RX:").unwrap().1.lines().nth(1).unwrap();
    counts.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// What `ip neigh` says about the stack, at the kernel's end.
fn neighbour(cable: &Cable, address: &str) -> String {
    cable.far.run(&format!("ip neigh show to {address}")).unwrap()
}

#[test]
fn neighbours_find_each_other_and_the_stack_can_have_a_station_of_its_own() {
    let mac: Mac = "02:00:00:00:09:02".parse().unwrap();
    let options = PacketOptions { mac: Some(mac), ..PacketOptions::default() };
    let cable = Cable::with(|_| (), |builder| builder.packet_options(options));
    // The kernel asks first, then the stack does.
    for family in [0, 1] {
        let (asked, answers) = (["10.9.0.2", "fd09::2"][family], [Cable::download, Cable::upload]);
        answers.iter().for_each(|run| run(&cable, family, 100_000));
        let known = neighbour(&cable, asked);
        assert!(known.contains("02:00:00:00:09:02"), "{known}");
        cable.far.run(&format!("ip neigh flush to {asked}")).unwrap();
        cable.upload(family, 100_000);
    }
    // Nobody has this address: three questions, and no connection.
    let nobody: SocketAddr = "10.9.0.99:9".parse().unwrap();
    let error = TcpStream::connect_timeout(&cable.stack, &nobody, Duration::from_secs(4)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
}

#[test]
fn other_networks_are_behind_the_gateway_or_nowhere() {
    let options = PacketOptions { gateways: vec!["10.9.0.1".parse().unwrap()], ..PacketOptions::default() };
    let cable = Cable::with(|_| (), |builder| builder.packet_options(options));
    cable.far.run("ip addr add 192.0.2.1/32 dev lo").unwrap();
    let listener = cable.far.enter(|| listen("192.0.2.1:0".parse().unwrap(), None)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let sink = serve(listener, digest_of);
    let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
    let sent = send_noise(&mut stream, 1_000_000, 3);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(sink.join().unwrap(), (1_000_000, sent));
    // There is none for IPv6.
    let far: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
    let error = TcpStream::connect_timeout(&cable.stack, &far, Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let why = cable.stack.last_device_error().unwrap().to_string();
    assert!(why.contains("2001:db8::1 is not on the link, and there is no gateway"), "{why}");
}

/// A queue at the near end that passes 100 Mbit/s, cuts super-packets, and holds a megabyte.
fn slow(near: &Kernel) {
    near.run("tc qdisc replace dev veth0 root tbf rate 100mbit burst 16kb limit 1mb").unwrap();
}

/// Each way to learn what has left, and whether it works with super-packets above a queue that cuts them.
const NAMINGS: [(Naming, bool); 3] =
    [(Naming::ByMessage, true), (Naming::ByCounter, false), (Naming::ByBytes, true)];

/// Packets wait below, in a queue of the kernel, and their tickets with them: so the small queue holds the
/// rest back. If tickets came back when a packet is handed over, the queue would fill up to what the window
/// allows.
#[test]
fn what_waits_in_the_kernels_queue_counts_as_below() {
    for (naming, offload) in NAMINGS {
        let options = PacketOptions { naming, offload, ..PacketOptions::default() };
        let cable = Cable::with(slow, |builder| builder.packet_options(options));
        let stop = AtomicBool::new(false);
        // The rule with a constant: what is measured here is whether tickets come back in time, not how the
        // stack uses that. While other tests keep the processors busy, `measured` may find that completions
        // are late, and keep more below.
        cable.stack.set_sysctl("taut.tsq", "delivered").unwrap();
        let most = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !stop.load(Ordering::Relaxed) {
                    most = most.max(cable.near.backlog_bytes("veth0").unwrap());
                }
                most
            });
            let over = Raise(&stop);
            cable.upload(0, 20_000_000);
            drop(over);
            watch.join().unwrap()
        });
        // The small queue allows two super-packets or a millisecond's bytes (12.5 KB): at 100 Mbit/s, tens
        // of kilobytes. The window alone would fill the megabyte.
        assert!((1..300_000).contains(&most), "{naming:?}: {most} bytes in the queue");
        eventually("every ticket is back", || cable.below() == 0);
        // Nothing was dropped below, so no name is left without a report.
        assert_eq!(counter(&cable.stack, "TautDeviceUnreported"), 0, "{naming:?}");
    }
}

/// The queue is far too short: the kernel refuses packets, each a drop in this host.
#[test]
fn drops_below_come_back_and_the_data_arrives() {
    for (naming, offload) in NAMINGS {
        let short = |near: &Kernel| {
            near.run("tc qdisc replace dev veth0 root tbf rate 50mbit burst 16kb limit 20kb").unwrap();
        };
        let options = PacketOptions { naming, offload, ..PacketOptions::default() };
        let cable = Cable::with(short, |builder| builder.packet_options(options));
        let threads: Vec<_> = (0..4).collect();
        thread::scope(|scope| {
            for _ in &threads {
                scope.spawn(|| cable.upload(0, 2_000_000));
            }
        });
        let dropped = cable.stack.counters().iter().find(|(name, _)| *name == "TautDeviceDrops").unwrap().1;
        assert!(dropped > 0);
        eventually("every ticket is back", || cable.below() == 0);
    }
}

/// Sockets are closed, reset and dropped while their packets wait in the kernel's queue.
#[test]
fn sockets_closed_meanwhile_leave_no_ticket_behind() {
    close_meanwhile(200, 100_000);
}

/// `make packet-bulk`.
#[test]
#[ignore = "takes half a minute"]
fn ten_thousand_sockets_closed_meanwhile_leave_no_ticket_behind() {
    close_meanwhile(10_000, 20_000);
}

/// So many sockets, each with so many bytes.
fn close_meanwhile(count: usize, bytes: usize) {
    let cable = Cable::with(slow, |builder| builder);
    let (listener, at) = cable.listener(0);
    let sink = thread::spawn(move || {
        for _ in 0..count {
            let (stream, _) = listener.accept().unwrap();
            thread::spawn(move || digest_or_reset(stream));
        }
    });
    for number in 0..count {
        let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
        stream.set_linger(if number % 2 == 0 { Some(Duration::ZERO) } else { None }).unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
    }
    sink.join().unwrap();
    eventually("all is sent", || cable.stack.drain(Duration::from_millis(100)));
    eventually("every ticket is back", || cable.below() == 0);
    let late = counter(&cable.stack, "TautDeviceLate");
    assert!(late >= count as u64, "{late} packets were below for a while");
    print_completions("packet, tbf", &cable.stack);
}

fn counter(stack: &Stack, name: &str) -> u64 {
    stack.counters().iter().find(|(other, _)| *other == name).unwrap().1
}

/// How completions came.
fn print_completions(name: &str, stack: &Stack) {
    let [late, overtaken, unreported] =
        ["TautDeviceLate", "TautDeviceOutOfOrder", "TautDeviceUnreported"].map(|name| counter(stack, name));
    println!("{name}: {late} completions came late, {overtaken} of them out of order; {unreported} never");
}

fn digest_or_reset(mut stream: KernelStream) {
    let mut buffer = vec![0; 65_536];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

#[test]
fn an_interface_that_goes_down_and_up_again_loses_time_and_nothing_else() {
    let cable = Cable::with(slow, |builder| builder);
    let (listener, at) = cable.listener(0);
    let sink = serve(listener, digest_of);
    let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
    let first = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = send_noise(&mut stream, 10_000_000, 5);
            stream.shutdown(Shutdown::Write).unwrap();
            sent
        });
        thread::sleep(Duration::from_millis(100));
        cable.near_interface().set_down().unwrap();
        eventually("packets are not sent", || cable.stack.last_device_error().is_some());
        let why = cable.stack.last_device_error().unwrap().to_string();
        cable.near_interface().set_up().unwrap();
        let sent = sender.join().unwrap();
        assert!(
            why.contains("interface veth0: it is down; bring it up with: ip link set dev veth0 up"),
            "{why}"
        );
        sent
    });
    assert_eq!(sink.join().unwrap(), (10_000_000, first));
    eventually("every ticket is back", || cable.below() == 0);
}

#[test]
fn an_interface_that_is_deleted_ends_the_stack_with_the_reason() {
    let cable = Cable::with(slow, |builder| builder);
    let (listener, at) = cable.listener(0);
    let sink = serve(listener, digest_or_reset);
    let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
    let error = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            loop {
                if let Err(error) = stream.write_all(&[1; 100_000]) {
                    return error;
                }
            }
        });
        thread::sleep(Duration::from_millis(100));
        cable.near_interface().delete().unwrap();
        sender.join().unwrap()
    });
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown, "{error}");
    assert!(error.to_string().contains("the interface veth0 was deleted"), "{error}");
    assert!(cable.stack.closed().is_some());
    drop(sink);
}

#[test]
fn a_smaller_mtu_is_told() {
    let options = PacketOptions { offload: false, ..PacketOptions::default() };
    let cable = Cable::with(|_| (), |builder| builder.packet_options(options));
    cable.upload(0, 1_000_000);
    cable.near_interface().set_mtu(1_300).unwrap();
    let (listener, at) = cable.listener(0);
    let sink = serve(listener, digest_of);
    let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
    let sent = send_noise(&mut stream, 100_000, 5);
    stream.shutdown(Shutdown::Write).unwrap();
    eventually("packets are refused", || cable.stack.last_device_error().is_some());
    let why = cable.stack.last_device_error().unwrap().to_string();
    assert!(why.contains("interface veth0: its MTU is smaller than when the stack was started"), "{why}");
    cable.near_interface().set_mtu(1_500).unwrap();
    assert_eq!(sink.join().unwrap(), (100_000, sent));
    eventually("every ticket is back", || cable.below() == 0);
}

#[test]
fn what_cannot_be_opened_is_told() {
    let near = Kernel::new().unwrap();
    let far = Kernel::new().unwrap();
    let (here, _there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
    let refused = |interface: &str, options: PacketOptions, shards| {
        let build = || {
            let builder = Stack::builder().packet(interface).address("10.9.0.2/24").packet_options(options);
            builder.shards(shards).build()
        };
        let error = near.enter(build).unwrap().unwrap_err();
        (error.kind(), error.to_string())
    };
    let is = |(kind, said): (std::io::ErrorKind, String), expected, text: &str| {
        assert!(kind == expected && said.contains(text), "{kind:?}: {said}");
    };
    use std::io::ErrorKind::{InvalidInput, NetworkDown, NotFound};
    let options = PacketOptions::default;
    let (kind, said) = refused("veth9", options(), 1);
    assert!(said.contains("veth9") && [NotFound, std::io::ErrorKind::Other, kind].contains(&kind), "{said}");
    is(refused("lo", options(), 1), InvalidInput, "lo is not an Ethernet interface");
    is(refused("veth0", options(), 1), NetworkDown, "ip link set dev veth0 up");
    is(refused("veth0", options(), 2), NetworkDown, "ip link set dev veth0 up");
    let group = PacketOptions { mac: Some(Mac::BROADCAST), ..options() };
    is(refused("veth0", group, 1), InvalidInput, "not the address of one station");
    let stray = PacketOptions { gateways: vec!["10.8.0.1".parse().unwrap()], ..options() };
    is(refused("veth0", stray, 1), InvalidInput, "not in the network");
    drop(here);
}

/// Everything that the stack puts on the wire is well formed.
#[test]
fn tshark_finds_nothing_malformed() {
    if !taut_testbed::live::ready(&["tshark"]) {
        return;
    }
    let cable = Cable::new();
    let scratch = Scratch::new("packet");
    let file = scratch.join("wire.pcapng");
    let mut command = std::process::Command::new("tshark");
    command.args(["-q", "-i", "veth0", "-w"]).arg(&file).stderr(std::process::Stdio::null());
    let mut capture = cable.far.namespace.spawn(&mut command).unwrap();
    eventually("tshark captures", || file.exists());
    for family in [0, 1] {
        cable.upload(family, 300_000);
        cable.download(family, 300_000);
    }
    thread::sleep(Duration::from_millis(500));
    cable.far.run(&format!("kill -INT {}", capture.id())).unwrap();
    capture.wait().unwrap();
    let packets = |filter: &str| {
        let mut tshark = std::process::Command::new("tshark");
        // Noise, also at a port that some protocol has.
        tshark.args(["-d", "tcp.port==1-65535,data", "-Y", filter, "-r"]).arg(&file);
        String::from_utf8_lossy(&tshark.output().unwrap().stdout).into_owned()
    };
    let count = |filter: &str| packets(filter).lines().count();
    assert!(count("arp") >= 2 && count("icmpv6.type == 135 || icmpv6.type == 136") >= 2);
    assert!(count("tcp") > 20);
    assert_eq!(packets("_ws.malformed || arp.duplicate-address-detected || icmpv6.checksum.status == 0"), "");
}

/// Bytes of a bulk transfer without a check.
const BULK: u64 = 2_000_000_000;

/// The processor time of this process so far, in seconds.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name, which is in brackets: the 12th and 13th, in hundredths.
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn pour(mut to: impl io::Write) {
    let part = vec![0; 256 << 10];
    let mut left = BULK;
    while left > 0 {
        let len = left.min(part.len() as u64);
        to.write_all(&part[..len as usize]).unwrap();
        left -= len;
    }
}

fn drain(mut from: impl io::Read) {
    let (mut buffer, mut sum) = (vec![0; 256 << 10], 0);
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => break,
            len => sum += len as u64,
        }
    }
    assert_eq!(sum, BULK);
}

/// Runs both ends, and prints the rate and what a gigabyte costs, in both of them together.
fn measure(name: &str, way: &str, send: impl FnOnce() + Send, receive: impl FnOnce() + Send) {
    let (begin, before) = (taut_testbed::now(), processor_seconds());
    thread::scope(|scope| {
        scope.spawn(send);
        receive();
    });
    let (seconds, spent) = (begin.elapsed().as_secs_f64(), processor_seconds() - before);
    let gigabytes = BULK as f64 / 1e9;
    println!(
        "{name:>8} {way:>8}: {:6.2} Gbit/s, {:.3} s of processor time a GB",
        gigabytes * 8.0 / seconds,
        spent / gigabytes
    );
}

/// Both ways between a stack and the kernel of `far`, which has this address.
fn both_ways(name: &str, stack: &Stack, far: &Kernel, net: &str) {
    let listener = far.enter(|| listen(format!("{net}.1:0").parse().unwrap(), None)).unwrap().unwrap();
    let stream = TcpStream::connect(stack, listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    let send = || {
        pour(&stream);
        stream.shutdown(Shutdown::Write).unwrap();
    };
    measure(name, "sends", send, || drain(&peer));
    let send = || {
        pour(&peer);
        peer.shutdown(Shutdown::Write).unwrap();
    };
    measure(name, "receives", send, || drain(&stream));
    print_completions(name, stack);
}

/// `make packet-bulk`: device `packet` beside TUN, and beside the kernel over the same cable.
#[test]
#[ignore = "takes a minute"]
fn bulk_beside_tun_and_the_kernel() {
    for _ in 0..3 {
        let cable = Cable::new();
        both_ways("packet", &cable.stack, &cable.far, "10.9.0");
        let tun = net::Net::new();
        both_ways("tun", &tun.stack, &tun.kernel, "10.7.0");
        let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
        near.veth(&far, NET, 1_500).unwrap();
        let listener = far.enter(|| listen("10.9.0.1:0".parse().unwrap(), None)).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let stream = near.enter(|| KernelStream::connect(at)).unwrap().unwrap();
        let peer = listener.accept().unwrap().0;
        let send = || {
            pour(&stream);
            stream.shutdown(Shutdown::Write).unwrap();
        };
        measure("kernel", "sends", send, || drain(&peer));
    }
}

/// `make packet-bulk`: a gigabyte each way, over both families.
#[test]
#[ignore = "takes a minute"]
fn a_gigabyte_each_way() {
    let cable = Cable::new();
    for family in [0, 1] {
        cable.upload(family, 1_000_000_000);
        cable.download(family, 1_000_000_000);
    }
    eventually("every ticket is back", || cable.below() == 0);
}
