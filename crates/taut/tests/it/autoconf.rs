//! A stack that gets its addresses from the programs that give them out on real networks: `dnsmasq` as a DHCP
//! server and as a router that advertises itself, beside the kernel.

use crate::net;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use net::{digest_of, send_noise, serve};
use taut::blocking::{TcpStream, UdpSocket};
use taut::device::{Frames, FramesOptions, Interface};
use taut::network::NetworkChange;
use taut::{Stack, StackBuilder};
use taut_testbed::{Kernel, Scratch, eventually, listen, live};

const PATIENCE: Duration = Duration::from_secs(60);
/// T1 that the server gives, the least that the client believes being ten.
const RENEW_S: u32 = 12;

/// A program that is killed when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server, what it says, and what passes its interface.
struct Server {
    _dnsmasq: Running,
    tshark: Running,
    log: PathBuf,
    wire: PathBuf,
    kernel: Kernel,
}

impl Server {
    /// On this interface of the kernel, which has 10.9.0.1 and fd09::1.
    fn start(kernel: Kernel, interface: &str, scratch: &Scratch) -> Self {
        let (log, wire) = (scratch.join("log"), scratch.join("wire.pcapng"));
        let mut command = Command::new("tshark");
        command.args(["-q", "-i", interface, "-w"]).arg(&wire).stdout(Stdio::null()).stderr(Stdio::null());
        let tshark = Running(kernel.namespace.spawn(&mut command).unwrap());
        eventually("tshark captures", || wire.exists());
        let mut command = Command::new("dnsmasq");
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=0"])
            .args(["--user=root", "--group=root", "--pid-file=", "--no-ping", "--log-dhcp", "--enable-ra"])
            .args([format!("--interface={interface}"), "--except-interface=lo".to_owned()])
            .args(["--dhcp-range=10.9.0.50,10.9.0.99,255.255.255.0,2m", "--dhcp-authoritative"])
            .args(["--dhcp-range=fd09::,ra-only,64", "--dhcp-option=option:router,10.9.0.1"])
            .args(["--dhcp-option=option:dns-server,10.9.0.53,10.9.0.54", "--dhcp-option=option:mtu,1400"])
            .arg(format!("--dhcp-option=option:T1,{RENEW_S}"))
            .arg(format!("--dhcp-leasefile={}", scratch.join("leases").display()))
            .arg(format!("--log-facility={}", log.display()))
            .stdin(Stdio::null());
        let dnsmasq = Running(kernel.namespace.spawn(&mut command).unwrap());
        let server = Self { _dnsmasq: dnsmasq, tshark, log, wire, kernel };
        eventually("dnsmasq has begun", || server.said("DHCP, IP range") >= 1);
        server
    }

    /// How many lines of its log have this.
    fn said(&self, what: &str) -> usize {
        fs::read_to_string(&self.log).unwrap_or_default().lines().filter(|line| line.contains(what)).count()
    }

    /// Ends the capture; how many of its frames pass each of these filters.
    fn captured(mut self, filters: &[&str]) -> Vec<usize> {
        std::thread::sleep(Duration::from_millis(500));
        self.kernel.run(&format!("kill -INT {}", self.tshark.0.id())).unwrap();
        self.tshark.0.wait().unwrap();
        let count = |filter: &&str| {
            let output = Command::new("tshark").arg("-r").arg(&self.wire).args(["-Y", filter]).output();
            String::from_utf8_lossy(&output.unwrap().stdout).lines().count()
        };
        filters.iter().map(count).collect()
    }
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

fn is_leased(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(v4) if (Ipv4Addr::new(10, 9, 0, 50)..=Ipv4Addr::new(10, 9, 0, 99)).contains(&v4))
}

/// So many bytes to the kernel.
fn upload(stack: &Stack, kernel: &Kernel, to: &str, bytes: usize) {
    let address: SocketAddr = format!("{to}:0").parse().unwrap();
    let listener = kernel.enter(|| listen(address, None)).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    let sink = serve(listener, digest_of);
    let mut stream = TcpStream::connect_timeout(stack, &at, PATIENCE).unwrap();
    let sent = send_noise(&mut stream, bytes, 7);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(sink.join().unwrap(), (bytes, sent));
}

fn has_route(stack: &Stack, via: &str) -> bool {
    let via: IpAddr = via.parse().unwrap();
    stack.routes().iter().any(|route| route.to.prefix == 0 && route.via == Some(via))
}

/// The lease, its use, its renewal and its end, over a TAP.
#[test]
fn dhcp_16_a_lease_from_dnsmasq() {
    if !live::ready(&["dnsmasq", "tshark", "ping"]) {
        return;
    }
    let (scratch, kernel) = (Scratch::new("dhcp"), Kernel::new().unwrap());
    let options = FramesOptions { dhcp: true, ..FramesOptions::default() };
    let tap = kernel.enter(|| Frames::tap("tap0", &[], &options)).unwrap().unwrap();
    configure(&kernel, "tap0");
    let server = Server::start(kernel, "tap0", &scratch);
    let stack = Stack::builder().device(tap).build().unwrap();
    let own = stack.wait_for_address(None, PATIENCE).expect("a lease");
    assert!(is_leased(own), "{own}");
    let lease = stack.lease().unwrap();
    assert_eq!((lease.network.address, lease.network.prefix, lease.server), (own, 24, [10, 9, 0, 1].into()));
    let left = Duration::from(lease.ends_in.unwrap()).as_secs();
    assert!((60..=120).contains(&left), "{left} s of two minutes");
    assert_eq!(stack.name_servers(), [[10, 9, 0, 53], [10, 9, 0, 54]].map(IpAddr::from));
    assert!(has_route(&stack, "10.9.0.1"));
    server.kernel.run(&format!("ping -c 1 -W 60 {own}")).unwrap();
    upload(&stack, &server.kernel, "10.9.0.1", 3_000_000);
    // Renewed before T1 is over for the second time: asked of the server alone.
    eventually("the lease is renewed", || stack.counters().dhcp_leases == 2);
    assert_eq!(server.said("DHCPACK"), 2);
    assert_eq!(server.said("DHCPDISCOVER"), 1);
    assert_eq!(stack.networks().len(), 1);
    // Given back.
    stack.change_network(NetworkChange::RemoveAddress(own)).unwrap();
    eventually("the server has it back", || server.said("DHCPRELEASE") == 1);
    assert!(stack.networks().is_empty());
    // What came with it goes with the link's next turn.
    eventually("it is gone", || stack.lease().is_none() && !has_route(&stack, "10.9.0.1"));
    assert_eq!(stack.counters().dhcp_leases_lost, 1);
    let counts = server.captured(&[
        "dhcp.option.dhcp == 1",
        "dhcp.option.dhcp == 3 && ip.dst == 255.255.255.255",
        "dhcp.option.dhcp == 3 && ip.dst == 10.9.0.1",
        "dhcp.option.dhcp == 7",
        "tcp.flags.syn == 1 && tcp.options.mss_val == 1360 && ip.dst == 10.9.0.1",
        "_ws.malformed || ip.checksum.status == 0 || (udp.checksum.status == 0 && udp.srcport == 68)",
    ]);
    assert_eq!(counts, [1, 1, 1, 1, 1, 0], "Discover, Request, renewal, Release, the MTU's MSS, broken");
}

/// The same on an Ethernet interface, by the builder's verbs: addresses of both families on every shard,
/// bytes by each of them, and a Release.
fn learn_on_an_interface(name: &str, open: fn(StackBuilder) -> StackBuilder, shard_counts: &[u16]) {
    let (scratch, near, far) = (Scratch::new(name), Kernel::new().unwrap(), Kernel::new().unwrap());
    let (here, there) = near.namespace.connect("veth0", &far.namespace, "veth0").unwrap();
    here.set_up().unwrap();
    there.set_up().unwrap();
    there.wait_until_running(PATIENCE).unwrap();
    // The kernel at the near end makes the same addresses of the same station, and would reset the stack's
    // connections.
    near.set_sysctl("net.ipv6.conf.veth0.disable_ipv6", "1").unwrap();
    configure(&far, "veth0");
    let server = Server::start(far, "veth0", &scratch);
    for (before, &shards) in shard_counts.iter().enumerate() {
        let build = || open(Stack::builder()).dhcp().slaac().shards(shards).build();
        let stack = near.enter(build).unwrap().unwrap();
        let (mut leased, mut global) = (None, None);
        eventually("both families", || {
            let mut all = stack.networks().into_iter().map(|own| own.address);
            (leased, global) = (
                all.clone().find(|own| is_leased(*own)),
                all.find(|own| own.to_string().starts_with("fd09:")),
            );
            leased.is_some() && global.is_some()
        });
        // The first shard tells the others of its lease at once; of IPv6, each checks by itself.
        for (own, within) in [(leased, PATIENCE), (global, PATIENCE)] {
            assert!(stack.wait_for_address(own, within).is_some(), "on every shard");
        }
        // Connections take turns between the shards.
        for _ in 0..shards {
            upload(&stack, &server.kernel, "10.9.0.1", 3_000_000);
            upload(&stack, &server.kernel, "[fd09::1]", 3_000_000);
        }
        let lease = stack.lease().expect("a lease");
        assert_eq!(Some(lease.network.address), leased);
        assert_eq!(server.said("DHCPRELEASE"), before);
        stack.change_network(NetworkChange::RemoveAddress(lease.network.address)).unwrap();
        eventually("a Release", || server.said("DHCPRELEASE") == before + 1);
    }
    let discovers = shard_counts.len();
    assert_eq!(server.captured(&["_ws.malformed", "dhcp.option.dhcp == 1"]), [0, discovers], "once each");
}

#[test]
fn dhcp_17_a_lease_over_a_packet_socket() {
    if live::ready(&["dnsmasq", "tshark"]) {
        learn_on_an_interface("dhcp-packet", |builder| builder.packet("veth0"), &[1, 3]);
    }
}

#[test]
fn dhcp_20_a_lease_over_xdp() {
    if live::ready(&["dnsmasq", "tshark"]) {
        learn_on_an_interface("dhcp-xdp", |builder| builder.xdp("veth0"), &[1]);
    }
}

#[test]
fn slaac_12_an_address_from_dnsmasqs_advertisements() {
    if !live::ready(&["dnsmasq", "tshark", "ping"]) {
        return;
    }
    let (scratch, kernel) = (Scratch::new("slaac"), Kernel::new().unwrap());
    let options = FramesOptions { slaac: true, ..FramesOptions::default() };
    let tap = kernel.enter(|| Frames::tap("tap0", &[], &options)).unwrap().unwrap();
    configure(&kernel, "tap0");
    let server = Server::start(kernel, "tap0", &scratch);
    let stack = Stack::builder().device(tap).build().unwrap();
    let own = stack.wait_for_address(None, PATIENCE).expect("an address");
    assert!(own.to_string().starts_with("fd09:"), "{own}");
    server.kernel.run(&format!("ping -c 1 -W 60 {own}")).unwrap();
    upload(&stack, &server.kernel, "[fd09::1]", 3_000_000);
    let routers = stack.routes().into_iter().filter(|route| route.to.prefix == 0);
    let is_link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    assert!(routers.map(|route| route.via).all(|via| via.is_some_and(is_link_local)));
    assert!(server.said("RTR-ADVERT") >= 1);
    assert_eq!(server.captured(&["_ws.malformed || icmpv6.checksum.status == 0"]), [0]);
}

/// The reports and datagrams of groups beside the kernel: both are members, and `tshark` reads what the stack
/// says.
#[test]
fn mcast_05_groups_beside_a_kernel() {
    if !live::ready(&["dnsmasq", "tshark"]) {
        return;
    }
    let (scratch, kernel) = (Scratch::new("groups"), Kernel::new().unwrap());
    let own = ["10.9.0.2/24".parse().unwrap(), "fe80::7/64".parse().unwrap()];
    let tap = kernel.enter(|| Frames::tap("tap0", &own, &FramesOptions::default())).unwrap().unwrap();
    configure(&kernel, "tap0");
    let server = Server::start(kernel, "tap0", &scratch);
    let builder = Stack::builder().device(tap).address("10.9.0.2/24").address("fe80::7/64");
    let stack = builder.build().unwrap();
    let socket = UdpSocket::bind(&stack, "0.0.0.0:5400".parse::<SocketAddr>().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let (group, any) = (Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::UNSPECIFIED);
    socket.join_multicast_v4(&group, &any).unwrap();
    let near = Ipv4Addr::new(10, 9, 0, 1);
    let peer = server.kernel.enter(|| {
        let peer = std::net::UdpSocket::bind((any, 5400)).unwrap();
        peer.join_multicast_v4(&group, &near).unwrap();
        let send = socket2::SockRef::from(&peer);
        send.set_multicast_if_v4(&near).unwrap();
        send.set_multicast_loop_v4(false).unwrap();
        peer
    });
    let peer = peer.unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buf = [0; 100];
    peer.send_to(b"question", (group, 5400)).unwrap();
    let (len, from) = socket.recv_from(&mut buf).unwrap();
    assert_eq!((&buf[..len], from.ip()), (&b"question"[..], near.into()));
    socket.send_to(b"answer", SocketAddr::from((group, 5400))).unwrap();
    let (len, from) = peer.recv_from(&mut buf).unwrap();
    assert_eq!((&buf[..len], from.ip().to_string().as_str()), (&b"answer"[..], "10.9.0.2"));
    // The second report of each change comes within a second.
    std::thread::sleep(Duration::from_secs(2));
    socket.leave_multicast_v4(&group, &any).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let counts = server.captured(&[
        "ip.src == 10.9.0.2 && igmp.type == 0x22 && igmp.record_type == 4 && igmp.maddr == 224.0.0.251 && ip.ttl == 1",
        "ip.src == 10.9.0.2 && igmp.type == 0x22 && igmp.record_type == 3 && igmp.maddr == 224.0.0.251",
        "ipv6.src == fe80::7 && icmpv6.type == 143 && ipv6.hlim == 1",
        "ip.src == 10.9.0.2 && udp && ip.dst == 224.0.0.251 && ip.ttl == 1",
        "(ip.src == 10.9.0.2 || ipv6.src == fe80::7) && (igmp.checksum.status == 0 || icmpv6.checksum.status == 0)",
        "_ws.malformed",
    ]);
    assert_eq!(
        counts,
        [2, 2, 2, 1, 0, 0],
        "joined and left twice each, the address's group twice, the answer, broken"
    );
}
