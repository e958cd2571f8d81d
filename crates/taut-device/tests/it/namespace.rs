//! Namespaces, interfaces and TUN against the kernel. Needs root and `/dev/net/tun`; without these, the tests
//! fail rather than pass.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taut_core::{BUFFER_BYTES, Gather, LinkCaps, Offload, RxChecksum, TxPacket};
use taut_device::sys::{Epoll, Interest};
use taut_device::{Cidr, Interface, Namespace, Tun, TunOptions};
use taut_driver::Received;
use taut_wire::{Ecn, Flags, IpHeader, Sum, TcpHeader, protocol, tcp};

/// Longer than anything here takes on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn tun_in(namespace: &Namespace, name: &str, options: &TunOptions) -> Tun {
    namespace
        .enter(|| {
            let tun = Tun::open(name, options)?;
            tun.interface()?.add_address(cidr("10.9.0.1/24"))?;
            tun.interface()?.add_address(cidr("fd09::1/64"))?;
            io::Result::Ok(tun)
        })
        .unwrap()
        .unwrap()
}

/// The first packet for which `want` holds; `None` if no packet at all arrives for the length of `patience`.
fn wait_for(
    tun: &Tun,
    patience: Duration,
    mut want: impl FnMut(&[u8], &Received) -> bool,
) -> Option<(Vec<u8>, Received)> {
    let epoll = Epoll::new().unwrap();
    epoll.add(tun.as_fd(), 0, Interest::Readable).unwrap();
    let mut buffer = vec![0; BUFFER_BYTES];
    while epoll.wait(Some(patience)).unwrap().contains(0) {
        while let Ok(received) = tun.recv(&mut buffer) {
            let packet = &buffer[received.range.clone()];
            if want(packet, &received) {
                return Some((packet.to_vec(), received));
            }
        }
    }
    None
}

fn ip(src: &str, dst: &str, protocol: u8, payload_len: usize) -> IpHeader {
    let src: IpAddr = src.parse().unwrap();
    IpHeader {
        src,
        dst: dst.parse().unwrap(),
        protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: if src.is_ipv4() { 20 } else { 40 },
        payload_len,
    }
}

#[test]
fn the_kernel_answers_a_ping_over_tun() {
    let namespace = Namespace::new().unwrap();
    let tun = tun_in(&namespace, "taut%d", &TunOptions::default());
    assert_eq!(tun.name(), "taut0");
    // Linux cuts UDP since 6.2.
    let udp_segments = tun.caps().udp_segments;
    assert_eq!(tun.caps(), LinkCaps { udp_segments, ..LinkCaps::offloading(1500) });

    // RFC 792: type 8, code 0, checksum, identifier, sequence number, data.
    let mut echo = [8, 0, 0, 0, 0x12, 0x34, 0, 1, 1, 2, 3, 4];
    let sum = Sum::default().add_bytes(&echo).finish();
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = [0; 32];
    let at = ip("10.9.0.2", "10.9.0.1", protocol::ICMP, echo.len()).emit(&mut packet, 1);
    packet[at..].copy_from_slice(&echo);
    // Header and payload in separate pieces, to test the gather list.
    let (header, payload) = packet.split_at(at);
    let payload = Gather::from(payload);
    tun.put(&TxPacket { header, payload, ..TxPacket::whole(&[]) }).unwrap();

    let echo_reply = |packet: &[u8], _: &Received| packet[0] == 0x45 && packet[9] == protocol::ICMP;
    let (reply, _) = wait_for(&tun, PATIENCE, echo_reply).expect("nothing came");
    assert_eq!(reply[20], 0, "an echo reply");
    assert_eq!(reply[24..], echo[4..], "with the same identifier and data");
}

/// A virtual Ethernet interface has no carrier while the other end is down, and the kernel drops what it
/// sends.
#[test]
fn an_interface_is_waited_for_until_packets_pass() {
    const SHORT: Duration = Duration::from_millis(20);
    let (here, there) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let (near, far) = here.connect("veth0", &there, "veth0").unwrap();
    assert!(!near.wait_until_running(SHORT).unwrap(), "it is down");
    near.set_up().unwrap();
    assert!(!near.wait_until_running(SHORT).unwrap(), "the other end is down");
    far.set_up().unwrap();
    assert!(near.wait_until_running(PATIENCE).unwrap() && far.wait_until_running(PATIENCE).unwrap());
    far.set_down().unwrap();
    assert!(!far.wait_until_running(SHORT).unwrap());
    near.delete().unwrap();
    assert!(far.wait_until_running(PATIENCE).is_err(), "it is gone");
    // A TUN is opened only when packets pass.
    let tun = tun_in(&here, "taut0", &TunOptions::default());
    let interface = here.enter(|| tun.interface()).unwrap().unwrap();
    assert!(interface.wait_until_running(Duration::ZERO).unwrap());
    interface.set_down().unwrap();
    assert!(!interface.wait_until_running(Duration::ZERO).unwrap());
}

fn refused(tun: &Tun, src: &str, dst: &str) {
    let syn = TcpHeader { src_port: 1000, dst_port: 9, seq: 7, flags: Flags::SYN, ..TcpHeader::default() };
    let ip = ip(src, dst, protocol::TCP, syn.header_len());
    let mut packet = [0; 60];
    let at = ip.emit(&mut packet, 1);
    syn.emit(&mut packet[at..]);
    let partial = tcp::partial_checksum(ip.src, ip.dst, syn.header_len() as u32);
    tcp::set_checksum(&mut packet[at..], partial);
    let offload = Offload::Checksum { start: at as u16, offset: 16 };
    let ours = |packet: &[u8], _: &Received| {
        IpHeader::parse(packet).is_ok_and(|header| header.protocol == protocol::TCP && header.dst == ip.src)
    };
    // Retransmits the SYN, as TCP would: Linux adds the local route of an IPv6 address on a work queue.
    let answer = (0..50).find_map(|_| {
        tun.put(&TxPacket { offload, ..TxPacket::whole(&packet[..at + syn.header_len()]) }).unwrap();
        wait_for(tun, Duration::from_millis(100), ours)
    });
    let (reply, received) = answer.expect("nothing came");
    let (header, _) = TcpHeader::parse(&reply[at..]).unwrap();
    assert!(header.flags.contains(Flags::RST), "nothing listens there");
    assert_eq!(header.ack, 8);
    assert_eq!(received.gso_size, 0);
    if received.checksum == RxChecksum::Unverified {
        assert!(tcp::verify(ip.dst, ip.src, &reply[at..], &[]));
    }
}

#[test]
fn the_kernel_completes_the_checksum_that_is_left_to_it() {
    let namespace = Namespace::new().unwrap();
    let tun = tun_in(&namespace, "taut0", &TunOptions::default());
    refused(&tun, "10.9.0.2", "10.9.0.1");
    refused(&tun, "fd09::2", "fd09::1");
}

#[test]
fn further_queues_need_multi_queue() {
    let namespace = Namespace::new().unwrap();
    let single = tun_in(&namespace, "one", &TunOptions::default());
    namespace.enter(|| assert!(single.open_queue().is_err())).unwrap();
    let options = TunOptions { multi_queue: true, mtu: 9000, ..TunOptions::default() };
    let many = namespace.enter(|| Tun::open("many", &options)).unwrap().unwrap();
    let second = namespace.enter(|| many.open_queue()).unwrap().unwrap();
    assert_eq!((second.name(), second.caps()), ("many", many.caps()));
}

#[test]
fn a_plain_tun_has_plain_caps() {
    let namespace = Namespace::new().unwrap();
    let options = TunOptions { offload: false, ..TunOptions::default() };
    let tun = tun_in(&namespace, "plain", &options);
    assert_eq!(tun.caps(), LinkCaps::plain(1500));
}

#[test]
fn names_that_cannot_be_are_refused() {
    for name in ["", "sixteen-bytes-xx", "a/b", "a b", "a\0b"] {
        let error = Tun::open(name, &TunOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}: {error}");
    }
}

#[test]
fn options_reach_the_interface() {
    let namespace = Namespace::new().unwrap();
    let options = TunOptions { mtu: 4321, txqueuelen: 777, ..TunOptions::default() };
    let _tun = tun_in(&namespace, "taut0", &options);
    let output = namespace
        .spawn(
            Command::new("cat")
                .args(["/proc/net/dev", "/proc/net/if_inet6"])
                .stdout(std::process::Stdio::piped()),
        )
        .unwrap()
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("taut0:") && text.contains("fd09"), "{text}");
    // /sys shows the namespace in which it was mounted, so this reads the MTU over a socket instead.
    let mtu =
        namespace.enter(|| Command::new("ip").args(["link", "show", "taut0"]).output().unwrap()).unwrap();
    let text = String::from_utf8(mtu.stdout).unwrap();
    assert!(text.contains("mtu 4321") && text.contains("qlen 777"), "{text}");
}

#[test]
fn two_namespaces_talk_over_a_pair_of_interfaces() {
    let (a, b) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    let (here, there) = a.connect("left", &b, "right").unwrap();
    for (interface, v4, v6) in [(&here, "10.8.0.1/24", "fd08::1/64"), (&there, "10.8.0.2/24", "fd08::2/64")] {
        interface.add_address(cidr(v4)).unwrap();
        interface.add_address(cidr(v6)).unwrap();
        interface.set_up().unwrap();
    }
    for address in ["10.8.0.2:80", "[fd08::2]:80"] {
        let listener = b.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let _client = a.enter(|| TcpStream::connect(address)).unwrap().unwrap();
        listener.accept().unwrap();
    }
    here.add_route(cidr("192.0.2.0/24"), Some("10.8.0.2".parse().unwrap())).unwrap();
    here.add_route(cidr("::/0"), Some("fd08::2".parse().unwrap())).unwrap();
}

#[test]
fn dev_22_an_address_has_its_route_at_once() {
    let namespace = Namespace::new().unwrap();
    let runs = AtomicBool::new(true);
    let arrived = std::thread::scope(|scope| {
        // Threads that never wait: the kernel's worker gets a small share of a processor.
        for _ in 0..6 * std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while runs.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let arrived = namespace.enter(|| {
            let interface = Interface::open("lo").unwrap();
            interface.set_up().unwrap();
            let one = |n: u16| {
                let address = format!("fd08::{:x}", n + 1);
                interface.add_address(cidr(&format!("{address}/128"))).unwrap();
                let server = UdpSocket::bind((address.as_str(), 0)).unwrap();
                server.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                let client = UdpSocket::bind("[::]:0").unwrap();
                client.connect(server.local_addr().unwrap()).unwrap();
                client.send(&[7]).unwrap();
                server.recv(&mut [0]).is_ok()
            };
            (0..500).all(one)
        });
        runs.store(false, Ordering::Relaxed);
        arrived
    });
    assert!(arrived.unwrap(), "a packet to a new address was lost");
}

#[test]
fn a_namespace_vanishes_with_its_last_handle() {
    let (stays, goes) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    stays.connect("left", &goes, "right").unwrap();
    let there = || stays.enter(|| Interface::open("left").is_ok()).unwrap();
    assert!(there());
    drop(goes);
    // The kernel removes namespaces on a work queue.
    let gone = (0..1_500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !there()
    });
    assert!(gone, "the other end of the pair still exists 30 s after its namespace was dropped");
}
