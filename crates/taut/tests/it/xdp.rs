//! A stack on an Ethernet interface, by `AF_XDP`, with the kernel at the other end of the cable: both
//! directions, both families, packets in several chunks, memory that is full, and an interface that goes
//! away. Every ticket is counted on its way.
//!
//! ```text
//!   stack ─ Ledger ─ device xdp ─ veth0 ═════ veth0 ─ the kernel's TCP
//!                    (near)        └ or mac0 above it, so that packets wait in a queue of the kernel before they complete
//! ```

use crate::net;

use std::io::{self, Read as _};
use std::net::{Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use net::{digest_of, send_noise, serve};
use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut::device::packet::Mac;
use taut::device::{Cidr, Device, Interface, News, Sent, TxDevice, TxPacket, TxTicket, Xdp, XdpOptions};
use taut::network::{Network, NetworkChange};
use taut_testbed::{Kernel, PATIENCE, Subnet, eventually, listen};

const NET: Subnet = Subnet(9);
const OWN: [&str; 2] = ["10.9.0.2/24", "fd09::2/64"];
const STACK: [&str; 2] = ["10.9.0.2", "[fd09::2]"];
const FAR: [&str; 2] = ["10.9.0.1", "[fd09::1]"];

/// What went into a device and came out of it. A ticket cannot be copied, so numbers suffice.
#[derive(Debug, Default)]
struct Tally {
    kept: AtomicU64,
    back: AtomicU64,
    full: AtomicU64,
    never: AtomicU64,
}

impl Tally {
    fn get(&self) -> [u64; 4] {
        [&self.kept, &self.back, &self.full, &self.never].map(|count| count.load(Ordering::SeqCst))
    }
}

/// The sending half of a device, which the test can ask for tickets after the stack has ended.
#[derive(Clone)]
struct Ledger {
    device: Arc<Mutex<Box<dyn TxDevice>>>,
    tally: Arc<Tally>,
}

impl TxDevice for Ledger {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.device.lock().unwrap().news(waker)
    }
    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let sent = self.device.lock().unwrap().send(packet, ticket);
        let count = match &sent {
            Sent::Kept => &self.tally.kept,
            Sent::Full(_) => &self.tally.full,
            Sent::Never(..) => &self.tally.never,
            other => panic!("an XDP device knows nothing at once: {other:?}"),
        };
        count.fetch_add(1, Ordering::SeqCst);
        sent
    }
    fn is_slow(&self) -> bool {
        self.device.lock().unwrap().is_slow()
    }
    fn flush(&mut self) {
        self.device.lock().unwrap().flush();
    }
    fn has_done(&self) -> bool {
        self.device.lock().unwrap().has_done()
    }
    fn poll_done(&mut self) -> Option<TxTicket> {
        let ticket = self.device.lock().unwrap().poll_done()?;
        self.tally.back.fetch_add(1, Ordering::SeqCst);
        Some(ticket)
    }
}

/// A stack at the near end of a cable, the kernel's TCP at its far end. The kernel has no address at the near
/// end.
struct Cable {
    stack: Stack,
    ledger: Ledger,
    near: Kernel,
    far: Kernel,
    /// The interface of the stack.
    name: &'static str,
}

impl Cable {
    fn new() -> Self {
        Self::with("veth0", 1_500, |_| (), &XdpOptions::default())
    }

    /// With this done to the near end before the stack is there.
    fn with(name: &'static str, mtu: u32, prepare: impl FnOnce(&Kernel), options: &XdpOptions) -> Self {
        let near = Kernel::new().expect("a network namespace, which needs root");
        let far = Kernel::new().unwrap();
        let (here, there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
        for interface in [&here, &there] {
            interface.set_mtu(mtu).unwrap();
            interface.set_up().unwrap();
        }
        there.wait_until_running(PATIENCE).unwrap();
        NET.far().into_iter().for_each(|address| there.add_address(address).unwrap());
        prepare(&near);
        let addresses: Vec<Cidr> = OWN.map(|text| text.parse().unwrap()).to_vec();
        let xdp = near.enter(|| Xdp::open(name, &addresses, options)).unwrap().expect("an XDP socket");
        assert!(xdp.has_pieces(), "this kernel has what is tested here");
        let Device { caps, tx, rx } = xdp.into();
        let ledger = Ledger { device: Arc::new(Mutex::new(tx)), tally: Arc::default() };
        let device = Device { caps, tx: Box::new(ledger.clone()), rx };
        let stack = Stack::builder().device(device).address(OWN[0]).address(OWN[1]).build().unwrap();
        Self { stack, ledger, near, far, name }
    }

    /// On an interface above a queue of the kernel, which an XDP socket bypasses on the interface itself:
    /// packets complete when they have passed it.
    fn above(qdisc: &str, options: &XdpOptions) -> Self {
        let prepare = |near: &Kernel| {
            near.run("ip link add link veth0 name mac0 type macvlan mode bridge").unwrap();
            near.run("ip link set dev mac0 up").unwrap();
            near.run(&format!("tc qdisc replace dev veth0 root {qdisc}")).unwrap();
        };
        Self::with("mac0", 1_500, prepare, options)
    }

    fn listener(&self, family: usize) -> (KernelListener, SocketAddr) {
        let address = format!("{}:0", FAR[family]).parse().unwrap();
        let listener = self.far.enter(|| listen(address, None)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Sends so much to the kernel, and checks that it arrived.
    fn upload(&self, family: usize, bytes: usize) {
        let (listener, at) = self.listener(family);
        let sink = serve(listener, digest_of);
        let mut stream = TcpStream::connect(&self.stack, at).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(600))).unwrap();
        let sent = send_noise(&mut stream, bytes, 7);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sink.join().unwrap(), (bytes, sent));
    }

    fn download(&self, family: usize, bytes: usize) {
        let to: SocketAddr = format!("{}:0", STACK[family]).parse().unwrap();
        let listener = TcpListener::bind(&self.stack, to).unwrap();
        let at = listener.local_addr().unwrap();
        let near = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(600))).unwrap();
            digest_of(stream)
        });
        let stream = self.far.enter(|| KernelStream::connect_timeout(&at, PATIENCE));
        let mut stream = stream.unwrap().unwrap();
        let sent = send_noise(&mut stream, bytes, 8);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(near.join().unwrap(), (bytes, sent));
    }

    fn interface(&self) -> Interface {
        self.near.enter(|| Interface::open(self.name)).unwrap().unwrap()
    }

    /// Every ticket has come back, and none twice.
    fn assert_all_back(&self) {
        eventually("every ticket is back", || {
            let [kept, back, ..] = self.ledger.tally.get();
            assert!(back <= kept, "{back} tickets came back of {kept}");
            back == kept
        });
        let below = || {
            let report = self.stack.report();
            report.queues.iter().find(|queue| queue.name == "device").unwrap().bytes
        };
        eventually("the stack has them", || self.stack.closed().is_some() || below() == 0);
    }
}

#[test]
fn dev_09_bytes_arrive_in_both_directions_and_families() {
    let cable = Cable::new();
    for family in [0, 1] {
        cable.upload(family, 20_000_000);
        cable.download(family, 20_000_000);
    }
    cable.assert_all_back();
    // The kernel, which has none of these addresses, resets nothing.
    assert_eq!(cable.near.counters().unwrap()["TcpOutRsts"], 0);
}

#[test]
fn dev_09_packets_larger_than_a_chunk_lie_in_several() {
    let cable = Cable::with("veth0", 9_000, |_| (), &XdpOptions::default());
    let before = bytes_and_packets(&cable);
    for family in [0, 1] {
        cable.upload(family, 20_000_000);
        cable.download(family, 20_000_000);
    }
    cable.assert_all_back();
    let after = bytes_and_packets(&cable);
    // 20 MB twice, and half as many ACKs at most: with 1500 bytes, a packet would have 1000 in the mean.
    let mean = (after.0 - before.0) / (after.1 - before.1);
    assert!(mean > 4_096, "{mean} bytes a packet from the stack");
}

/// What has arrived at the far end.
fn bytes_and_packets(cable: &Cable) -> (u64, u64) {
    let read = |name: &str| -> u64 {
        let text = cable.far.run("ip -s -s link show dev veth0").unwrap();
        let (_, rest) = text.split_once("RX:").unwrap();
        let line = rest.lines().nth(1).unwrap();
        let at = if name == "bytes" { 0 } else { 1 };
        line.split_whitespace().nth(at).unwrap().parse().unwrap()
    };
    (read("bytes"), read("packets"))
}

/// The kernel's queue below passes 100 Mbit/s, so packets complete late, and the memory is full.
#[test]
fn dev_10_a_device_without_room_takes_no_more_and_loses_nothing() {
    // Forty connections without small queues keep more than that below TCP.
    let cable = slow_and_small();
    thread::scope(|scope| {
        for number in 0..40 {
            let cable = &cable;
            scope.spawn(move || cable.upload(number % 2, 200_000));
        }
    });
    cable.assert_all_back();
    let [kept, back, full, never] = cable.ledger.tally.get();
    assert!(full > 0, "{kept} packets, and there was always room");
    assert_eq!((kept - back, never), (0, 0));
}

#[test]
fn dev_10_an_interface_that_is_removed_in_mid_transfer_returns_every_ticket() {
    remove_in_the_middle(&Cable::new(), 8, |[kept, ..]| kept > 100);
    // With the memory full, and packets in a queue of the kernel.
    remove_in_the_middle(&slow_and_small(), 40, |[_, _, full, _]| full > 100);
}

/// 32 chunks, above a queue of the kernel that passes 100 Mbit/s. A small queue that measures would not fill
/// them.
fn slow_and_small() -> Cable {
    let options = XdpOptions { chunks: 32, ..XdpOptions::default() };
    let cable = Cable::above("tbf rate 100mbit burst 16kb limit 4mb", &options);
    cable.stack.set_sysctl("taut.tsq", "off").unwrap();
    cable
}

/// Removes the interface of connections that send, when so much has happened.
fn remove_in_the_middle(cable: &Cable, connections: usize, is_time: impl Fn([u64; 4]) -> bool) {
    let (ends, [is_in_time, was_open]) = thread::scope(|scope| {
        let senders: Vec<_> = (0..connections)
            .map(|number| {
                let (listener, at) = cable.listener(number % 2);
                thread::spawn(move || drain(listener.accept().unwrap().0));
                let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
                scope.spawn(move || {
                    loop {
                        if let Err(error) = io::Write::write_all(&mut stream, &[1; 100_000]) {
                            return error;
                        }
                    }
                })
            })
            .collect();
        // The senders end only when the interface is gone, so it goes in any case.
        let is_in_time = (0..60_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            is_time(cable.ledger.tally.get())
        });
        let was_open = cable.stack.closed().is_none();
        cable.interface().delete().unwrap();
        let ends = senders.into_iter().map(|sender| sender.join().unwrap()).collect::<Vec<_>>();
        (ends, [is_in_time, was_open])
    });
    assert!(is_in_time, "kept, back, full, never: {:?}", cable.ledger.tally.get());
    assert!(was_open);
    for error in ends {
        assert_eq!(error.kind(), io::ErrorKind::NetworkDown, "{error}");
        assert!(error.to_string().contains("was deleted"), "{error}");
    }
    // The stack asks for nothing any more. What it has not asked for, the device gives at once.
    let mut ledger = cable.ledger.clone();
    while ledger.poll_done().is_some() {}
    let [kept, back, ..] = ledger.tally.get();
    assert_eq!(kept, back, "tickets of packets that the device had");
}

fn drain(mut stream: KernelStream) {
    let mut buffer = vec![0; 65_536];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

#[test]
fn an_interface_that_goes_down_and_up_again_loses_time_and_nothing_else() {
    let cable = Cable::new();
    let (listener, at) = cable.listener(0);
    let sink = serve(listener, digest_of);
    let mut stream = TcpStream::connect(&cable.stack, at).unwrap();
    let sent = thread::scope(|scope| {
        // In two seconds: the interface is down before all has left.
        stream.set_max_pacing_rate(10_000_000).unwrap();
        let sender = scope.spawn(|| {
            let sent = send_noise(&mut stream, 20_000_000, 5);
            stream.shutdown(Shutdown::Write).unwrap();
            sent
        });
        thread::sleep(Duration::from_millis(100));
        cable.interface().set_down().unwrap();
        eventually("packets wait", || {
            let [kept, back, ..] = cable.ledger.tally.get();
            kept > back
        });
        // What comes then is not sent, and told.
        TcpStream::connect_timeout(&cable.stack, &at, Duration::from_millis(500)).unwrap_err();
        let why = cable.stack.last_device_error().expect("a SYN was not sent").to_string();
        assert!(
            why.contains("the interface veth0: it is down; bring it up with: ip link set dev veth0 up"),
            "{why}"
        );
        cable.interface().set_up().unwrap();
        sender.join().unwrap()
    });
    assert_eq!(sink.join().unwrap(), (20_000_000, sent));
    cable.assert_all_back();
}

#[test]
fn the_kernel_keeps_its_own_addresses_and_a_station_may_be_the_stacks_own() {
    let mac: Mac = "02:00:00:00:09:02".parse().unwrap();
    let options = XdpOptions { mac: Some(mac), ..XdpOptions::default() };
    let prepare = |near: &Kernel| {
        near.run("ip addr add 10.9.0.3/24 dev veth0").unwrap();
    };
    let cable = Cable::with("veth0", 1_500, prepare, &options);
    cable.upload(0, 100_000);
    cable.upload(1, 100_000);
    let known = cable.far.run("ip neigh show to 10.9.0.2").unwrap();
    assert!(known.contains("02:00:00:00:09:02"), "{known}");
    // The kernel at the near end serves beside the stack.
    let listener = cable.near.enter(|| listen("10.9.0.3:0".parse().unwrap(), None)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let sink = serve(listener, digest_of);
    let mut stream = cable.far.enter(|| KernelStream::connect_timeout(&at, PATIENCE)).unwrap().unwrap();
    let sent = send_noise(&mut stream, 100_000, 3);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(sink.join().unwrap(), (100_000, sent));
}

/// The kernel at the far end knows two neighbours of the same station, and forgets one.
#[test]
fn dev_14_the_interfaces_program_follows_the_stacks_addresses() {
    let cable = Cable::new();
    let own: Network = Network { address: "10.9.0.77".parse().unwrap(), prefix: 24 };
    // Somebody has this one: the answer to the stack's question is for everybody, so the kernel gets it, too.
    cable.far.run("ip addr add 10.9.0.78/24 dev veth0").unwrap();
    let taken = Network { address: "10.9.0.78".parse().unwrap(), ..own };
    for network in [own, taken] {
        cable.stack.change_network(NetworkChange::AddAddress(network)).unwrap();
    }
    assert_eq!(cable.stack.wait_for_address(Some(own.address), PATIENCE), Some(own.address));
    let from_there = |to: &str| {
        let listener =
            TcpListener::bind(&cable.stack, format!("{to}:0").parse::<SocketAddr>().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        cable.far.enter(|| KernelStream::connect_timeout(&at, PATIENCE)).unwrap()
    };
    from_there("10.9.0.77").expect("a connection to the new address");
    from_there("10.9.0.2").expect("one to the old");
    // RFC 5227 §1.1: a check takes 7 s at most.
    let within = Duration::from_secs(7);
    assert_eq!(cable.stack.wait_for_address(Some(taken.address), within), None, "another station has it");
    // It goes, and the kernel of this machine may have it.
    cable.stack.change_network(NetworkChange::RemoveAddress(own.address)).unwrap();
    cable.near.run("ip addr add 10.9.0.77/24 dev veth0").unwrap();
    cable.far.run("ip neigh flush dev veth0").unwrap();
    let listener = cable.near.enter(|| listen("10.9.0.77:0".parse().unwrap(), None)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    cable.far.enter(|| KernelStream::connect_timeout(&at, PATIENCE)).unwrap().expect("the kernel's");
    from_there("10.9.0.2").expect("the stack has its other address");
}

#[test]
fn what_cannot_be_opened_is_told() {
    let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
    let (here, there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
    let open = |interface: &str, options: XdpOptions| {
        let build = || Stack::builder().xdp(interface).address("10.9.0.2/24").xdp_options(options).build();
        near.enter(build).unwrap()
    };
    let refused = |interface: &str, options: XdpOptions| {
        let error = open(interface, options).unwrap_err();
        (error.kind(), error.to_string())
    };
    let is = |(kind, said): (io::ErrorKind, String), expected, text: &str| {
        assert!(kind == expected && said.contains(text), "{kind:?}: {said}");
    };
    use io::ErrorKind::{InvalidInput, NetworkDown, ResourceBusy};
    let options = XdpOptions::default;
    is(refused("lo", options()), InvalidInput, "lo is not an Ethernet interface");
    is(refused("veth0", options()), NetworkDown, "ip link set dev veth0 up");
    [&here, &there].iter().for_each(|interface| interface.set_up().unwrap());
    let group = XdpOptions { mac: Some(Mac::BROADCAST), ..options() };
    is(refused("veth0", group), InvalidInput, "not the address of one station");
    is(refused("veth0", XdpOptions { chunks: 33, ..options() }), InvalidInput, "a power of two");
    is(refused("veth0", XdpOptions { queue: 9, ..options() }), InvalidInput, "there may be no such queue");
    let error =
        near.enter(|| Stack::builder().xdp("veth0").address("10.9.0.2/24").shards(2).build()).unwrap();
    assert!(error.unwrap_err().to_string().contains("one queue"));
    let stack = open("veth0", options()).unwrap();
    is(refused("veth0", options()), ResourceBusy, "veth0");
    // A stack that is gone leaves nothing behind on the interface.
    drop(stack);
    eventually("the interface is free", || open("veth0", options()).is_ok());
}

/// `make xdp-bulk`: 10 GB each way, or `TAUT_XDP_BYTES`; then the interface is removed with the memory full.
#[test]
#[ignore = "takes minutes"]
fn ten_gigabytes_each_way() {
    let bytes =
        std::env::var("TAUT_XDP_BYTES").map_or(10_000_000_000, |text| text.parse().expect("a number"));
    let cable = Cable::new();
    for (way, run) in [("sends", Cable::upload as fn(&Cable, usize, usize)), ("receives", Cable::download)] {
        let begin = taut_testbed::now();
        run(&cable, 0, bytes);
        println!("xdp {way}: {:.2} Gbit/s", 8.0 * bytes as f64 / 1e9 / begin.elapsed().as_secs_f64());
        cable.assert_all_back();
    }
    let [kept, back, full, never] = cable.ledger.tally.get();
    println!("{kept} packets, {back} tickets came back; {full} times full, {never} never sent");
    assert_eq!(kept, back);
    let before = kept;
    remove_in_the_middle(&cable, 8, |[kept, ..]| kept > before + 10_000);
    remove_in_the_middle(&slow_and_small(), 40, |[_, _, full, _]| full > 10_000);
}
