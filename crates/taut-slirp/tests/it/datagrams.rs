//! Datagrams, pings, leases and names.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};

use slirp::ffi::SlirpConfig;
use taut::{DatagramOptions, PingSocket};
use taut_testbed::PATIENCE;
use tokio::time::timeout;

use crate::world::{GUEST, HOST, World, at, config, text};

pub(crate) fn run<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE, work).await.unwrap() })
}

#[test]
fn slirp_06_datagrams_both_ways_and_a_closed_port() {
    let world = World::new(config());
    let host = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    run(async {
        let socket = taut::UdpSocket::bind(&world.guest, (GUEST, 0)).await.unwrap();
        let mut got = [0; 65_536];
        // Also one that is cut into fragments.
        for len in [0, 1, 1_472, 9_000] {
            let sent = vec![len as u8; len];
            socket.send_to(&sent, at(HOST, port)).await.unwrap();
            let (count, from) = host.recv_from(&mut got).unwrap();
            assert!(got[..count] == sent, "{len}");
            host.send_to(&sent, from).unwrap();
            let (count, from) = socket.recv_from(&mut got).await.unwrap();
            assert!(got[..count] == sent && from == at(HOST, port), "{len} back from {from}");
        }
        // One port of the guest is one port of the host (RFC 4787, REQ-1).
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"1", at(HOST, port)).await.unwrap();
        socket.send_to(b"2", at(HOST, other.local_addr().unwrap().port())).await.unwrap();
        let [one, two] = [&host, &other].map(|socket| socket.recv_from(&mut [0]).unwrap().1);
        assert_eq!(one, two);
        drop(other);
        let closed = taut::UdpSocket::bind(&world.guest, (GUEST, 0)).await.unwrap();
        closed.connect(at(HOST, 9)).await.unwrap();
        closed.send(b"anybody?").await.unwrap();
        let refused = closed.recv(&mut got).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn slirp_06_the_host_answers_pings() {
    let world = World::new(config());
    world.wait_for_v6();
    run(async {
        for (own, host) in [(at(GUEST, 0), HOST), ("[::]:0".parse().unwrap(), "fec0::2")] {
            let pings = PingSocket::bind(&world.guest, own, &DatagramOptions::default()).unwrap();
            let host: IpAddr = host.parse().unwrap();
            pings.send_to(7, b"hello", host).await.unwrap();
            let mut data = [0; 100];
            pings.recv(&mut data).await.unwrap();
            assert_eq!(&data[..5], b"hello");
        }
    });
}

#[test]
fn slirp_07_a_lease_has_what_the_caller_says() {
    let domains = Box::leak(Box::new([text("corp.example"), text("example"), std::ptr::null()]));
    let world = World::new(SlirpConfig {
        vhostname: text("guest"),
        vdnssearch: domains.as_ptr(),
        vdomainname: text("own.example"),
        ..config()
    });
    let lease = world.guest.lease().unwrap();
    assert_eq!(lease.server, HOST.parse::<IpAddr>().unwrap());
    assert_eq!(world.guest.name_servers(), ["10.0.2.3".parse::<IpAddr>().unwrap()]);
    let default =
        world.guest.routes().into_iter().find(|route| route.to.address.is_ipv4() && route.to.prefix == 0);
    assert_eq!(default.unwrap().via, Some(HOST.parse().unwrap()));
}

#[test]
fn slirp_12_leases_can_be_off_and_so_can_a_family() {
    for silent in
        [SlirpConfig { disable_dhcp: true, ..config() }, SlirpConfig { in_enabled: false, ..config() }]
    {
        let world = World::unconfigured(silent);
        world.wait_for_v6();
        assert!(world.guest.networks().iter().all(|own| own.address.is_ipv6()));
    }
}
