//! ICMP errors from a router beyond the gateway, about UDP and pings of the kernel in one namespace: GW-82
//! and 83 of `docs/spec/gateway.md`.
//!
//! ```text
//!   near: 10.7.0.1, fd07::1 ── TUN ── the gateway's stack │ its sockets, 10.96.0.2 ── veth ── router: 10.96.0.1
//! ```
#![cfg(target_os = "linux")]

use crate::support;

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg, setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use taut::{ConnOptions, Stack};
use taut_gateway::{HostSockets, Link, Resolver, Server, Settings, WayOut};
use taut_testbed::{Kernel, Subnet, live, now};

use support::Running;

struct World {
    /// Dropped first.
    _running: Running,
    near: Kernel,
    /// Its namespace stays as long as this.
    _router: Kernel,
}

const STACK: &str = "10.7.0.2";
const STACK_V6: &str = "fd07::2";

impl World {
    fn by<W: WayOut>(way: impl FnOnce(&Kernel) -> W) -> Option<Self> {
        if !live::ready(&["ip"]) || !Subnet::has_ipv6() {
            return None;
        }
        let (near, host, router) = (Kernel::new().unwrap(), Kernel::new().unwrap(), Kernel::new().unwrap());
        host.veth(&router, Subnet(0x60), 1_500).unwrap();
        for kernel in [&near, &host, &router] {
            kernel.set_sysctl("ping_group_range", "0 2147483647").unwrap();
            kernel.set_sysctl("icmp_ratelimit", "0").unwrap();
            kernel.set_sysctl("net.ipv6.icmp.ratelimit", "0").unwrap();
        }
        for kernel in [&host, &router] {
            kernel.set_sysctl("ip_forward", "1").unwrap();
            kernel.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
            kernel.set_sysctl("net.ipv4.conf.all.send_redirects", "0").unwrap();
        }
        for line in [
            "ip route add unreachable 10.51.0.0/16",
            "ip route add prohibit 10.52.0.0/16",
            "ip route add 10.55.0.0/16 via 10.96.0.2 mtu lock 1300",
            // Back to where it came from, until no hop is left.
            "ip route add 10.56.0.0/16 via 10.96.0.2",
            "ip route add 10.8.0.0/24 via 10.96.0.2",
            "ip -6 route add prohibit fd52::/16",
            "ip -6 route add fd55::/16 via fd60::2 mtu lock 1300",
            "ip -6 route add fd56::/16 via fd60::2",
            "ip -6 route add fd08::/64 via fd60::2",
        ] {
            router.run(line).unwrap();
        }
        for line in [
            "ip route add default via 10.96.0.1",
            "ip -6 route add default via fd60::1",
            // A kernel drops a packet of its own that comes back, so that its packets get no further than the
            // router.
            "ip route add 10.56.0.0/16 via 10.96.0.1 hoplimit 1",
        ] {
            host.run(line).unwrap();
        }
        let stack = near.enter(|| {
            let builder = Stack::builder().tun("taut0").address("10.7.0.2/24").address("fd07::2/64");
            builder.host_address("10.7.0.1/24").host_address("fd07::1/64").build()
        });
        let stack = stack.unwrap().unwrap();
        near.run("ip route add default dev taut0").unwrap();
        near.run("ip -6 route add default dev taut0").unwrap();
        let way = way(&host);
        let (_, running) = Running::start(&host, move || {
            let own = [STACK, STACK_V6].map(|own| own.parse().unwrap()).to_vec();
            let settings = Settings { own, ..Settings::default() };
            let server = Server::new(settings, Resolver::default(), Box::new(|_| {}));
            let serving = server.serve(&stack, Arc::new(way)).unwrap();
            // The stack ends when nobody has it.
            (server, async move { (serving.await, stack).0 })
        });
        Some(Self { near, _running: running, _router: router })
    }

    fn socket(&self, to: SocketAddr, protocol: Option<Protocol>) -> Socket {
        let socket = self.near.enter(|| Socket::new(Domain::for_address(to), Type::DGRAM, protocol));
        let socket = socket.unwrap().unwrap();
        if to.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true).unwrap();
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true).unwrap();
        }
        socket.set_nonblocking(true).unwrap();
        self.near.enter(|| socket.connect(&to.into())).unwrap().unwrap();
        socket
    }
}

/// The next ICMP error that a socket of the guest's kernel hears: type, code, MTU, who sent it.
fn heard(socket: &Socket) -> Option<(u8, u8, u32, IpAddr)> {
    let (mut data, mut control) = ([0; 1], vec![0; 512]);
    let mut pieces = [IoSliceMut::new(&mut data)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut control), MsgFlags::MSG_ERRQUEUE).ok()?;
    message.cmsgs().unwrap().find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
            let from = IpAddr::from(from.sin_addr.s_addr.to_ne_bytes());
            Some((error.ee_type, error.ee_code, error.ee_info, from))
        }
        ControlMessageOwned::Ipv6RecvErr(error, Some(from)) => {
            Some((error.ee_type, error.ee_code, error.ee_info, IpAddr::from(from.sin6_addr.s6_addr)))
        }
        _ => None,
    })
}

/// What a router, or the host's kernel, says of each destination: type, code and MTU (RFC 792, 1191, 1812
/// §5.2.7.1, 4443 §3).
const CASES: [(&str, (u8, u8, u32)); 10] = [
    ("10.51.0.1", (3, 1, 0)),
    ("10.52.0.1", (3, 13, 0)),
    ("10.54.0.1", (3, 0, 0)),
    ("10.55.0.1", (3, 4, 1_300)),
    ("10.56.0.1", (11, 0, 0)),
    ("fd52::1", (1, 1, 0)),
    ("fd54::1", (1, 0, 0)),
    ("fd55::1", (2, 0, 1_300)),
    ("fd56::1", (3, 0, 0)),
    // Nobody answers for this address: a kernel gives up after three seconds.
    ("fd60::9", (1, 3, 0)),
];

/// What the guest's socket hears about a message, which is repeated: a router of Linux's says five times at
/// once, and then once a second, that it has no route.
fn told(socket: &Socket, message: &[u8]) -> Option<(u8, u8, u32, IpAddr)> {
    for _ in 0..20 {
        _ = socket.send(message);
        let sent = now();
        while sent.elapsed() < Duration::from_secs(4) {
            if let Some(error) = heard(socket) {
                return Some(error);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    None
}

fn check(world: &World) {
    for (to, (kind, code, mtu)) in CASES {
        let own: IpAddr = if to.contains(':') { STACK_V6 } else { STACK }.parse().unwrap();
        let expected = Some((kind, code, mtu, own));
        // Too long for 1,300 bytes, not for the guest's link.
        let udp = world.socket(SocketAddr::new(to.parse().unwrap(), 7), None);
        assert_eq!(told(&udp, &[7; 1_400]), expected, "{to}");
        // The guest's kernel knows the path's MTU by now.
        if mtu == 0 {
            let (protocol, request) =
                if own.is_ipv4() { (Protocol::ICMPV4, 8) } else { (Protocol::ICMPV6, 128) };
            let ping = world.socket(SocketAddr::new(to.parse().unwrap(), 0), Some(protocol));
            assert_eq!(told(&ping, &[request, 0, 0, 0, 0, 0, 0, 1, b'h', b'i']), expected, "a ping of {to}");
        } else if own.is_ipv4() {
            assert_eq!(getsockopt(&udp, sockopt::IpMtu).unwrap(), mtu as i32);
        }
    }
    // What a port's host says, its host says here.
    for (router, (kind, code)) in [("10.96.0.1", (3, 3)), ("fd60::1", (1, 4))] {
        let router: IpAddr = router.parse().unwrap();
        let udp = world.socket(SocketAddr::new(router, 99), None);
        assert_eq!(told(&udp, b"?"), Some((kind, code, 0, router)));
    }
}

#[test]
fn gw_82_what_routers_beyond_say_of_datagrams_the_guest_hears() {
    let Some(world) = World::by(|_| HostSockets::default()) else { return };
    check(&world);
}

#[test]
fn gw_83_the_same_by_another_stack() {
    let way = |host: &Kernel| {
        let stack = host.enter(|| {
            let builder = Stack::builder().tun("out0").address("10.8.0.2/24").address("fd08::2/64");
            builder.host_address("10.8.0.1/24").host_address("fd08::1/64").build()
        });
        Link { stack: stack.unwrap().unwrap(), options: ConnOptions::default() }
    };
    let Some(world) = World::by(way) else { return };
    check(&world);
}
