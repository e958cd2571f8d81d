//! Device `packet` above what this machine's kernel may lack: `fq`, which keeps departure times; `fq_codel`,
//! which reorders flows; a network card that completes packets later; and Linux 6.12, where no message can
//! name its packet.
//!
//! The parts inside run in a guest with a clock of its own, which counts instructions:
//! [`taut_testbed::guest`].
//!
//! ```text
//!   stack ─ Recorder ─ device packet ─ fq on veth0 ═════ veth0 ─ the kernel's TCP
//!              └ departure times        (near)            └ Capture (far): times of arrival
//! ```
#![allow(missing_docs, reason = "tests")]

#[path = "it/net/mod.rs"]
mod net;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use net::{digest_of, send_noise};
use taut::blocking::TcpStream;
use taut::device::sys::Capture;
use taut::device::{
    Cidr, Device, Interface, Namespace, Naming, News, Packet, PacketOptions, Sent, TxDevice, TxPacket,
    TxTicket,
};
use taut::{ConnOptions, Stack};
use taut_testbed::{Guest, Kernel, Peer, Raise, Service, Subnet, connect, eventually, guest, listen, now};
use taut_wire::raw;
use tokio::io::AsyncWriteExt as _;

const NET: Subnet = Subnet(9);
const PORT: u16 = 9;
/// Counters of retransmissions, and of completions.
const COUNTED: [&str; 8] = [
    "TcpRetransSegs",
    "TcpExtTCPTimeouts",
    "TcpExtTCPLossProbes",
    "TautDeviceDrops",
    "TautDeviceLate",
    "TautDeviceOutOfOrder",
    "TautDeviceUnreported",
    "TautTsqThrottled",
];
/// The name of the stack's threads.
const THREAD: &str = "stack";
/// Longer than `fq` holds a packet: two super-packets of each flow.
const HELD: Duration = Duration::from_millis(500);
/// How long a guest may take, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(900);
/// Before flows are counted: handshakes, and the first window, which leaves at a higher rate.
const WARM_UP: Duration = Duration::from_secs(2);

#[test]
fn dev_02_other_queues_and_a_network_card_in_a_guest_return_every_ticket() {
    let Some(guest) = Guest::new(&["tc", "ip"]) else { return };
    print!("{}", guest.cards(2).run("inside_cards", PATIENCE));
}

#[test]
fn dev_01_flows_in_a_guest_leave_when_fq_says() {
    let Some(guest) = Guest::new(&["tc"]) else { return };
    let guest = guest.set("FLOWS", "40").set("RATE", "62500").set("SECONDS", "5");
    print!("{}", guest.run("inside_paced", PATIENCE));
}

#[test]
fn rto_20_what_fq_holds_in_a_guest_is_not_sent_twice() {
    let Some(guest) = Guest::new(&["tc"]) else { return };
    print!("{}", guest.run("inside_large", PATIENCE));
}

#[test]
fn dev_13_frames_of_a_vlan_in_a_guest_are_not_for_the_stack() {
    let Some(guest) = Guest::new(&["ip"]) else { return };
    print!("{}", guest.cards(2).run("inside_vlan", PATIENCE));
}

/// `make guest`.
#[test]
#[ignore = "takes minutes"]
fn eight_hundred_flows_in_a_guest_leave_when_fq_says() {
    let Some(guest) = Guest::new(&["tc"]) else { return };
    let guest = guest.set("FLOWS", "800").set("RATE", "25000").set("SECONDS", "20");
    print!("{}", guest.run("inside_paced", Duration::from_secs(1_800)));
}

/// `make guest`: flows of 10 Mbit/s, paced by the stack, by `fq`, and by the kernel's TCP.
#[test]
#[ignore = "takes minutes"]
fn faster_flows_in_a_guest_beside_the_kernel() {
    let Some(guest) = Guest::new(&["tc"]) else { return };
    let guest = guest.processors(2).set("FLOWS", "8").set("RATE", "1250000").set("SECONDS", "5");
    print!("{}", guest.run("inside_beside_the_kernel", 2 * PATIENCE));
}

/// `make guest`: the same while eight threads never let the only processor rest. With two processors, this
/// would say little: see [`two_processors_of_a_guest_take_turns`].
#[test]
#[ignore = "takes minutes"]
fn faster_flows_in_a_guest_whose_processor_is_busy() {
    let Some(guest) = Guest::new(&["tc"]) else { return };
    let guest = guest.set("FLOWS", "8").set("RATE", "1250000").set("SECONDS", "5").set("BUSY", "8");
    print!("{}", guest.run("inside_beside_the_kernel", 4 * PATIENCE));
}

/// `make guest`: one of two threads that have a processor each, and nothing else to share it with, stands
/// still for long.
#[test]
#[ignore = "takes minutes"]
fn two_processors_of_a_guest_take_turns() {
    let Some(guest) = Guest::new(&[]) else { return };
    print!("{}", guest.processors(2).run("inside_two_threads", PATIENCE));
}

/// A packet of data that the stack gave to the device, or that arrived.
#[derive(Clone, Copy, Debug)]
struct Seen {
    port: u16,
    seq: u32,
    payload: u32,
    /// When it may leave, or arrived.
    at_ns: u64,
}

impl Seen {
    /// The data packet that begins with these headers, of so many bytes in all.
    fn parse(header: &[u8], len: usize, at_ns: u64) -> Option<Self> {
        let (tcp, headers) = (raw::tcp_at(header)?, raw::headers_len(header)?);
        let seq = u32::from_be_bytes(*header.get(tcp + 4..)?.first_chunk()?);
        let payload = u32::try_from(len.checked_sub(headers)?).ok().filter(|&payload| payload > 0)?;
        Some(Self { port: raw::ports(header)?.0, seq, payload, at_ns })
    }
}

/// The half of a device that sends, with notes of the departure times that the stack asks for.
struct Recorder {
    device: Box<dyn TxDevice>,
    notes: Arc<Mutex<Vec<Seen>>>,
}

impl TxDevice for Recorder {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.device.news(waker)
    }
    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let seen = Seen::parse(packet.header, packet.len(), packet.departure.as_nanos());
        self.notes.lock().unwrap().extend(seen);
        self.device.send(packet, ticket)
    }
    fn is_slow(&self) -> bool {
        self.device.is_slow()
    }
    fn flush(&mut self) {
        self.device.flush();
    }
    fn poll_done(&mut self) -> Option<TxTicket> {
        self.device.poll_done()
    }
}

/// Two namespaces and a cable. The kernel has addresses at the far end only.
struct Cable {
    near: Kernel,
    far: Kernel,
}

impl Cable {
    fn new(qdisc: &str) -> Self {
        let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
        let (here, there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
        [&here, &there].iter().for_each(|interface| interface.set_up().unwrap());
        there.wait_until_running(PATIENCE).unwrap();
        NET.far().into_iter().for_each(|address| there.add_address(address).unwrap());
        near.run(&format!("tc qdisc replace dev veth0 root {qdisc}")).unwrap();
        Self { near, far }
    }

    /// What the queue discipline has counted.
    fn statistics(&self) -> String {
        self.near.run("tc -s qdisc show dev veth0").unwrap()
    }
}

/// What is measured of paced flows.
struct Measured {
    /// Of each packet, in order of arrival: when the stack let it leave, and when it arrived.
    packets: Vec<(Seen, Seen)>,
    wake_ups: u64,
    /// How often the stack waited for a departure by a timer of its own.
    timers: u64,
    retransmitted: usize,
    counters: String,
    statistics: String,
}

/// How often threads with this name were woken up.
fn wake_ups(thread: &str) -> u64 {
    let of = |task: fs::DirEntry| -> Option<u64> {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        let status = read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        read("comm")?.starts_with(thread).then(|| line.trim().parse().unwrap())
    };
    fs::read_dir("/proc/self/task").unwrap().filter_map(|task| of(task.unwrap())).sum()
}

/// Collects what arrives at the far end until `stop`.
fn collect(capture: &Capture, stop: &AtomicBool) -> Vec<Seen> {
    let (mut frame, mut seen) = ([0; 128], Vec::new());
    while !stop.load(Ordering::Relaxed) {
        while let Some(got) = capture.next(&mut frame, Duration::from_millis(50)).unwrap() {
            seen.extend(Seen::parse(&frame[14..], got.len - 14, got.at_ns));
        }
    }
    seen
}

/// How large packets become.
#[derive(Clone, Copy)]
enum Packets {
    /// Two segments, so that each flow has many.
    Small,
    /// As large as the device takes them, because the path is short: at 0.5 Mbit/s about one in a second.
    Large,
}

/// So many flows at this rate, by device packet.
fn paced(
    cable: &Cable,
    flows: u16,
    rate: u64,
    seconds: u64,
    size: Packets,
    options: &PacketOptions,
) -> Measured {
    let addresses: Vec<Cidr> = ["10.9.0.2/24", "fd09::2/64"].map(|text| text.parse().unwrap()).to_vec();
    let packet = cable.near.enter(|| Packet::open("veth0", &addresses, options)).unwrap().unwrap();
    let notes = Arc::<Mutex<Vec<Seen>>>::default();
    let Device { caps, tx, rx } = packet.into();
    let device = Device { caps, tx: Box::new(Recorder { device: tx, notes: Arc::clone(&notes) }), rx };
    let stack = Stack::builder().device(device).address("10.9.0.2/24").thread_name(THREAD);
    let stack = match size {
        Packets::Small => stack.set_sysctl("net.ipv4.tcp_tso_rtt_log", "0"),
        Packets::Large => stack,
    };
    let stack = stack.build().unwrap();
    let _peer = Peer::start(&cable.far, &[(PORT, Service::Sink)]).unwrap();
    let capture = cable.far.enter(|| Capture::open("veth0")).unwrap().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Raise(&stop);
        let collector = scope.spawn(|| collect(&capture, &stop));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let measured = runtime.block_on(async {
            let to = SocketAddr::from((NET.far_v4(), PORT));
            let connected = ConnOptions { max_pacing_rate: Some(rate), ..ConnOptions::default() };
            for _ in 0..flows {
                let mut stream = taut::TcpStream::connect_with(&stack, to, &connected).await.unwrap();
                tokio::spawn(async move { while stream.write_all(&[0; 16_384]).await.is_ok() {} });
            }
            tokio::time::sleep(WARM_UP).await;
            let before = (wake_ups(THREAD), count(&stack, "TautPacingBlocked"));
            notes.lock().unwrap().clear();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let after = (wake_ups(THREAD), count(&stack, "TautPacingBlocked"));
            (after.0 - before.0, after.1 - before.1, std::mem::take(&mut *notes.lock().unwrap()))
        });
        // What is on its way still arrives.
        thread::sleep(Duration::from_secs(4));
        drop(over);
        let arrived = collector.join().unwrap();
        assert_eq!(capture.take_lost().unwrap(), 0, "the capture has lost packets");
        let (wake_ups, timers, sent) = measured;
        let mut departures = BTreeMap::new();
        let mut retransmitted = 0;
        for seen in sent {
            let before = departures.insert((seen.port, seen.seq), seen);
            if let Some(before) = before {
                departures.insert((seen.port, seen.seq), before);
                retransmitted += 1;
            }
        }
        let (known, mut packets) = (departures.len(), Vec::new());
        for seen in arrived {
            packets.extend(departures.remove(&(seen.port, seen.seq)).map(|departure| (departure, seen)));
        }
        assert_eq!(packets.len(), known, "packets that did not arrive");
        let counters = COUNTED.map(|name| format!("{name} {}", count(&stack, name))).join(", ");
        Measured { packets, wake_ups, timers, retransmitted, counters, statistics: cable.statistics() }
    })
}

fn count(stack: &Stack, name: &str) -> u64 {
    stack.counters().iter().find(|(other, _)| *other == name).unwrap().1
}

/// The same by the kernel's TCP: only arrivals are known.
fn paced_by_the_kernel(flows: u16, rate: u64, seconds: u64) -> Measured {
    let cable = Cable::new("fq");
    let near = cable.near.enter(|| Interface::open("veth0")).unwrap().unwrap();
    NET.near().into_iter().for_each(|address| near.add_address(address).unwrap());
    let _peer = Peer::start(&cable.far, &[(PORT, Service::Sink)]).unwrap();
    let capture = cable.far.enter(|| Capture::open("veth0")).unwrap().unwrap();
    let stop = AtomicBool::new(false);
    let arrived = thread::scope(|scope| {
        let over = Raise(&stop);
        let collector = scope.spawn(|| collect(&capture, &stop));
        let options = ConnOptions { max_pacing_rate: Some(rate), ..ConnOptions::default() };
        let to = SocketAddr::from((NET.far_v4(), PORT));
        for _ in 0..flows {
            let mut stream = cable.near.enter(|| connect(to, &options, Some("cubic"))).unwrap().unwrap();
            let stop = &stop;
            scope.spawn(
                move || while !stop.load(Ordering::Relaxed) && stream.write_all(&[0; 16_384]).is_ok() {},
            );
        }
        thread::sleep(WARM_UP + Duration::from_secs(seconds));
        drop(over);
        collector.join().unwrap()
    });
    let begin_ns = arrived[0].at_ns + WARM_UP.as_nanos() as u64;
    let packets =
        arrived.into_iter().filter(|seen| seen.at_ns >= begin_ns).map(|seen| (seen, seen)).collect();
    Measured {
        packets,
        wake_ups: 0,
        timers: 0,
        retransmitted: 0,
        counters: String::new(),
        statistics: cable.statistics(),
    }
}

impl Measured {
    /// The order of packets within each flow.
    fn assert_order(&self) {
        let mut next = BTreeMap::new();
        for (_, arrived) in &self.packets {
            let expected = next.insert(arrived.port, arrived.seq.wrapping_add(arrived.payload));
            assert!(expected.is_none_or(|expected| expected == arrived.seq), "order: {arrived:?}");
        }
    }

    /// How late packets arrived, in nanoseconds, sorted: the earliest first.
    fn lateness_ns(&self) -> Vec<i64> {
        let late = |(asked, arrived): &(Seen, Seen)| arrived.at_ns as i64 - asked.at_ns as i64;
        let mut late: Vec<i64> = self.packets.iter().map(late).collect();
        late.sort_unstable();
        late
    }

    /// The bytes of each flow that arrived within `span`, as shares of what its rate allows: the least, the
    /// most.
    fn shares(&self, flows: u16, rate: u64, span: Duration) -> (f64, f64) {
        // Packets that `fq` held when the notes began are not among these.
        let begin = self.packets[0].1.at_ns + HELD.as_nanos() as u64;
        let end = begin + span.as_nanos() as u64;
        let mut bytes = BTreeMap::new();
        for (_, arrived) in self.packets.iter().filter(|(_, arrived)| (begin..end).contains(&arrived.at_ns)) {
            *bytes.entry(arrived.port).or_insert(0) += u64::from(arrived.payload);
        }
        assert_eq!(bytes.len(), usize::from(flows), "flows that sent");
        let target = rate as f64 * span.as_secs_f64();
        // A flow that breaks the rule says where.
        let breaks = |bytes: u64| (bytes as f64 / target - 1.0).abs() >= 0.01;
        for (port, _) in bytes.iter().filter(|(_, bytes)| breaks(**bytes)).take(3) {
            self.explain(*port, begin, Duration::from_secs_f64(1.2 * 2_896.0 / rate as f64));
        }
        let share = |pick: fn(f64, f64) -> f64, from| {
            bytes.values().map(|&bytes| bytes as f64 / target).fold(from, pick)
        };
        (share(f64::min, f64::INFINITY), share(f64::max, 0.0))
    }

    /// Prints the packets of a flow whose gaps are longer than they should be, in milliseconds of the window.
    fn explain(&self, port: u16, begin_ns: u64, gap: Duration) {
        let ms = |at_ns: u64| (at_ns as f64 - begin_ns as f64) / 1e6;
        let of: Vec<_> = self.packets.iter().filter(|(_, arrived)| arrived.port == port).collect();
        println!("port {port}: {} packets", of.len());
        for pair in of.windows(2) {
            let [(_, before), (asked, arrived)] = pair else { continue };
            if arrived.at_ns - before.at_ns > gap.as_nanos() as u64 {
                println!(
                    "  {:.2} ms after the one before at {:.2}; asked for {:.2}; {} bytes",
                    ms(arrived.at_ns) - ms(before.at_ns),
                    ms(before.at_ns),
                    ms(asked.at_ns),
                    arrived.payload
                );
            }
        }
    }

    fn print(&self, name: &str, flows: u16, rate: u64, shares: (f64, f64)) {
        let (late, packets) = (self.lateness_ns(), self.packets.len() as f64);
        let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        println!(
            "{name:>20}: {flows} flows of {} bytes/s, {} packets; late by {:.1} µs at least, {:.1} in half, {:.1} in 99 %, \
             {:.1} at most; bytes per flow {:.4} to {:.4} of the rate; wake-ups {:.3} and timers {:.3} a packet",
            rate,
            self.packets.len(),
            at(0.0),
            at(0.5),
            at(0.99),
            at(1.0),
            shares.0,
            shares.1,
            self.wake_ups as f64 / packets,
            self.timers as f64 / packets,
        );
        println!("{:>20}  {}", "", self.counters);
    }
}

/// `fq` holds each packet for longer than a timeout lasts, and nothing counts as lost.
#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_large() {
    guest::inside::run(|| {
        const RATE: u64 = 62_500;
        let measured = paced(&Cable::new("fq"), 20, RATE, 6, Packets::Large, &PacketOptions::default());
        println!("fq, large packets: {}; {}", measured.packets.len(), measured.counters);
        let largest = measured.packets.iter().map(|(_, arrived)| arrived.payload).max();
        assert!(largest > Some((RATE / 5) as u32), "packets are less than 0.2 s apart: {largest:?}");
        measured.assert_order();
        assert!(measured.lateness_ns()[0] > -10_000, "a packet left before its time");
        assert_eq!(measured.timers, 0, "the stack arms no timer to pace");
        let none = "TcpRetransSegs 0, TcpExtTCPTimeouts 0, TcpExtTCPLossProbes 0,";
        assert!(measured.counters.starts_with(none), "{}", measured.counters);
    });
}

fn variable(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

#[test]
#[ignore = "the part of other tests that runs in a guest"]
fn inside_paced() {
    guest::inside::run(|| {
        let (flows, rate, seconds) = (variable("FLOWS") as u16, variable("RATE"), variable("SECONDS"));
        let span = Duration::from_secs(seconds) - 2 * HELD;
        let run = |name: &str, qdisc: &str, delegate_pacing| {
            let options = PacketOptions { delegate_pacing, ..PacketOptions::default() };
            let measured = paced(&Cable::new(qdisc), flows, rate, seconds, Packets::Small, &options);
            let shares = measured.shares(flows, rate, span);
            measured.print(name, flows, rate, shares);
            measured.assert_order();
            (measured, shares)
        };
        let (delegated, shares) = run("fq, delegated", "fq", true);
        let (internal, _) = run("fq_codel, internal", "fq_codel", true);
        println!("{}", delegated.statistics);
        // The clocks of departure and arrival are compared to some microseconds.
        assert!(delegated.lateness_ns()[0] > -10_000, "a packet left before its time");
        assert!(shares.0 > 0.99 && shares.1 < 1.01, "bytes per flow: {shares:?}");
        assert_eq!(delegated.retransmitted, 0, "packets were sent twice");
        assert_eq!(delegated.timers, 0, "the stack arms no timer to pace");
        assert!(internal.timers > 0);
        assert!(delegated.statistics.contains("(dropped 0,"), "{}", delegated.statistics);
    });
}

/// Sends so much to the kernel and receives as much over each of `count` connections at once, and checks
/// every byte.
fn exchange(stack: &Stack, far: &Kernel, bytes: usize, count: usize) {
    let listener = far.enter(|| listen("10.9.0.1:0".parse().unwrap(), None)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let (stream, _) = listener.accept().unwrap();
                scope.spawn(move || io::copy(&mut &stream, &mut &stream).unwrap());
            }
        });
        for seed in 0..count {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(stack, at).unwrap();
                let mut reader = stream.try_clone().unwrap();
                let read = thread::spawn(move || digest_of(&mut reader));
                let sent = send_noise(&mut stream, bytes, seed as u64);
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(read.join().unwrap(), (bytes, sent));
            });
        }
    });
    let below = || stack.report().queues.iter().find(|queue| queue.name == "device").unwrap().bytes;
    eventually("every ticket is back", || below() == 0);
}

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_cards() {
    guest::inside::run(|| {
        for (qdisc, naming) in [
            ("fq_codel", Naming::ByCounter),
            ("fq_codel", Naming::ByBytes),
            ("fq", Naming::ByCounter),
            ("fq", Naming::ByBytes),
            ("tbf rate 100mbit burst 16kb limit 1mb", Naming::ByBytes),
        ] {
            let cable = Cable::new(qdisc);
            // The best is asked for except where bytes alone are to be tried: this kernel, and `tbf`, have
            // their limits.
            let asked = if qdisc.starts_with("tbf") { Naming::ByMessage } else { naming };
            let options = PacketOptions { naming: asked, ..PacketOptions::default() };
            let addresses = ["10.9.0.2/24".parse().unwrap()];
            let packet = cable.near.enter(|| Packet::open("veth0", &addresses, &options)).unwrap().unwrap();
            assert_eq!(packet.naming(), naming, "{qdisc}");
            let stack = Stack::builder().device(packet).address("10.9.0.2/24").build().unwrap();
            exchange(&stack, &cable.far, 1_000_000, 4);
            println!(
                "veth, {qdisc}, {naming:?}: {}",
                cable.statistics().lines().nth(1).unwrap_or_default().trim()
            );
        }
        // Two cards on one wire, both in the guest's first namespace: the stack's has no address in the
        // kernel.
        let host = Kernel { namespace: Namespace::current().unwrap() };
        let [near, far] = ["eth0", "eth1"].map(|name| Interface::open(name).unwrap());
        [&near, &far].iter().for_each(|interface| interface.set_up().unwrap());
        far.add_address("10.9.0.1/24".parse().unwrap()).unwrap();
        for qdisc in ["fq_codel", "fq"] {
            host.run(&format!("tc qdisc replace dev eth0 root {qdisc}")).unwrap();
            let stack = Stack::builder().packet("eth0").address("10.9.0.2/24").build().unwrap();
            exchange(&stack, &host, 1_000_000, 4);
            println!(
                "virtio-net, {qdisc}: {}",
                host.run("tc -s qdisc show dev eth0").unwrap().lines().nth(1).unwrap_or_default().trim()
            );
        }
    });
}

/// The kernel takes the tag out of a frame before packet sockets see it.
#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_vlan() {
    guest::inside::run(|| {
        let host = Kernel { namespace: Namespace::current().unwrap() };
        let [near, far] = ["eth0", "eth1"].map(|name| Interface::open(name).unwrap());
        [&near, &far].iter().for_each(|interface| interface.set_up().unwrap());
        // What the kernel sends to the stack's address is tagged if it comes from 10.9.0.5. The card itself
        // drops frames of networks that the kernel has not asked for, unless it passes everything on.
        for command in [
            "ip link set eth0 promisc on",
            "ip addr add 10.9.0.1/24 dev eth1",
            "ip link add link eth1 name tagged type vlan id 5",
            "ip link set tagged up",
            "ip addr add 10.9.0.5/32 dev tagged",
            "ip rule add from 10.9.0.5 lookup 5",
            "ip route add 10.9.0.2 dev tagged table 5",
            "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:01 dev tagged",
        ] {
            host.run(command).unwrap();
        }
        let stack = Stack::builder().packet("eth0").address("10.9.0.2/24").build().unwrap();
        let socket = taut::blocking::UdpSocket::bind(&stack, "10.9.0.2:9").unwrap();
        for from in ["10.9.0.5:9", "10.9.0.1:9"] {
            std::net::UdpSocket::bind(from).unwrap().send_to(from.as_bytes(), "10.9.0.2:9").unwrap();
        }
        let mut text = [0; 64];
        let (len, from) = socket.recv_from(&mut text).unwrap();
        assert_eq!((&text[..len], from), (b"10.9.0.1:9".as_slice(), "10.9.0.1:9".parse().unwrap()));
        let sent = fs::read_to_string("/sys/class/net/tagged/statistics/tx_packets").unwrap();
        assert_ne!(sent.trim(), "0", "the tagged one left, too");
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        assert!(socket.recv_from(&mut text).is_err(), "one datagram was for the stack");
    });
}

/// Keeps a processor busy until `stop`; `longest` is the most time between two rounds, in ns. Not by
/// `spin_loop`: where a guest's processors take turns, that instruction ends a turn, and it takes a
/// microsecond.
fn spin(stop: &AtomicBool, longest: &AtomicU64) {
    let mut before = now();
    while !stop.load(Ordering::Relaxed) {
        for round in 0..1_000_u64 {
            std::hint::black_box(round);
        }
        let after = now();
        longest.fetch_max((after - before).as_nanos() as u64, Ordering::Relaxed);
        before = after;
    }
}

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_two_threads() {
    guest::inside::run(|| {
        let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let _end = Raise(&stop);
            (0..2).for_each(|_| drop(scope.spawn(|| spin(&stop, &longest))));
            thread::sleep(Duration::from_secs(1));
        });
        let longest = Duration::from_nanos(longest.into_inner());
        println!("two busy threads on two processors: one stood still for {longest:.1?}");
        assert!(longest > Duration::from_millis(10), "they do not take turns any more: measure with two");
    });
}

#[test]
#[ignore = "the part of another test that runs in a guest"]
fn inside_beside_the_kernel() {
    guest::inside::run(|| {
        let (flows, rate, seconds) = (variable("FLOWS") as u16, variable("RATE"), variable("SECONDS"));
        let span = Duration::from_secs(seconds) - 2 * HELD;
        let own = |delegate_pacing| {
            let options = PacketOptions { delegate_pacing, ..PacketOptions::default() };
            paced(&Cable::new("fq"), flows, rate, seconds, Packets::Small, &options)
        };
        let runs: [(&str, &dyn Fn() -> Measured); 3] = [
            ("internal", &|| own(false)),
            ("delegated to fq", &|| own(true)),
            ("kernel, fq", &|| paced_by_the_kernel(flows, rate, seconds)),
        ];
        let busy = std::env::var("BUSY").map_or(0, |count| count.parse().unwrap());
        let (stop, longest) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let _end = Raise(&stop);
            (0..busy).for_each(|_| drop(scope.spawn(|| spin(&stop, &longest))));
            for (name, run) in runs {
                let measured = run();
                let shares = measured.shares(flows, rate, span);
                measured.print(name, flows, rate, shares);
                // The stack's own pacing makes good 10 ms of a late timer (PACE-19), and may lose what is
                // beyond.
                let least = if busy > 0 && name == "internal" { 0.8 } else { 0.99 };
                assert!(shares.0 > least && shares.1 < 1.01, "{name}: {shares:?}");
            }
            if busy > 0 {
                println!(
                    "a busy thread stood still for {:.1} ms at most",
                    longest.load(Ordering::Relaxed) as f64 / 1e6
                );
            }
        });
    });
}
