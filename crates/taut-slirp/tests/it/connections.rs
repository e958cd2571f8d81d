//! Connections of the guest: data, both kinds of end, refusals; what the configuration forbids.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;

use slirp::ffi::SlirpConfig;
use taut::blocking;
use taut_testbed::{Noise, PATIENCE};

use crate::world::{HOST, World, at, config, v4, v6};

/// A listener of this host's loopback, and its port.
fn listener(address: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(crate) fn connect(world: &World, to: SocketAddr) -> blocking::TcpStream {
    let stream = blocking::TcpStream::connect(&world.guest, to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The guest's end and the host's.
fn pair(world: &World) -> (blocking::TcpStream, TcpStream) {
    let (listener, port) = listener("127.0.0.1");
    let guest = connect(world, at(HOST, port));
    let (host, _) = listener.accept().unwrap();
    host.set_read_timeout(Some(PATIENCE)).unwrap();
    (guest, host)
}

fn write(mut stream: impl std::io::Write + Send + 'static, bytes: Vec<u8>) -> JoinHandle<()> {
    std::thread::spawn(move || stream.write_all(&bytes).unwrap())
}

/// Bytes both ways at once, then one end after the other.
fn there_and_back(mut guest: blocking::TcpStream, mut host: TcpStream, count: usize) {
    let (up, down) = (Noise::new(1).bytes(count).to_vec(), Noise::new(2).bytes(count).to_vec());
    let sending =
        [write(guest.try_clone().unwrap(), up.clone()), write(host.try_clone().unwrap(), down.clone())];
    let mut taken = vec![0; count];
    let reading = {
        let mut host = host.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut taken = vec![0; count];
            host.read_exact(&mut taken).unwrap();
            taken
        })
    };
    guest.read_exact(&mut taken).unwrap();
    assert!(taken == down);
    assert!(reading.join().unwrap() == up);
    sending.into_iter().for_each(|thread| thread.join().unwrap());
    // The guest ends its half, and gets what the host says then.
    guest.shutdown(Shutdown::Write).unwrap();
    assert_eq!(host.read(&mut [0]).unwrap(), 0);
    host.write_all(b"after the end").unwrap();
    drop(host);
    let mut rest = Vec::new();
    guest.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"after the end");
}

#[test]
fn slirp_05_bytes_and_ends_pass_both_ways() {
    let world = World::new(config());
    let (guest, host) = pair(&world);
    there_and_back(guest, host, 4 << 20);
    // The host ends first.
    let (mut guest, mut host) = pair(&world);
    host.shutdown(Shutdown::Write).unwrap();
    assert_eq!(guest.read(&mut [0]).unwrap(), 0);
    guest.write_all(b"still here").unwrap();
    let mut got = [0; 10];
    host.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"still here");
}

#[test]
fn slirp_05_resets_pass_both_ways_and_a_refusal_is_a_refusal() {
    let world = World::new(config());
    let (mut guest, host) = pair(&world);
    socket2::SockRef::from(&host.as_fd()).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(host);
    assert_eq!(guest.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (guest, mut host) = pair(&world);
    guest.abort();
    assert_eq!(host.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let (listener, port) = listener("127.0.0.1");
    drop(listener);
    let refused = blocking::TcpStream::connect(&world.guest, at(HOST, port)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn slirp_05_a_reader_that_waits_gets_all_and_little_waits_in_between() {
    let world = World::new(config());
    let (guest, mut host) = pair(&world);
    let bytes = Noise::new(3).bytes(8 << 20).to_vec();
    let sending = write(guest.try_clone().unwrap(), bytes.clone());
    // The kernel and the stack have room for less.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!sending.is_finished());
    let mut taken = vec![0; bytes.len()];
    host.read_exact(&mut taken).unwrap();
    sending.join().unwrap();
    assert!(taken == bytes);
    let sending = write(host.try_clone().unwrap(), bytes.clone());
    let mut guest = guest;
    std::thread::sleep(std::time::Duration::from_millis(300));
    guest.read_exact(&mut taken).unwrap();
    sending.join().unwrap();
    assert!(taken == bytes);
}

#[test]
fn slirp_10_ipv6_is_configured_and_reaches_the_hosts_loopback() {
    let world = World::new(config());
    world.wait_for_v6();
    let (listener, port) = listener("::1");
    let guest = connect(&world, at("fec0::2", port));
    let (host, _) = listener.accept().unwrap();
    there_and_back(guest, host, 1 << 16);
    assert!(world.guest.name_servers().contains(&"10.0.2.3".parse().unwrap()));
}

#[test]
fn slirp_11_a_restricted_guest_reaches_nothing() {
    let world = World::new(SlirpConfig { restricted: 1, ..config() });
    let (_listener, port) = listener("127.0.0.1");
    let refused = blocking::TcpStream::connect(&world.guest, at(HOST, port)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // libslirp: neither a router nor name servers.
    assert!(world.guest.name_servers().is_empty());
    assert!(world.guest.routes().iter().all(|route| route.to.prefix > 0 || route.to.address.is_ipv6()));
}

#[test]
fn slirp_12_the_hosts_loopback_can_be_closed() {
    let world = World::new(SlirpConfig { disable_host_loopback: true, ..config() });
    let (_listener, port) = listener("127.0.0.1");
    let denied = blocking::TcpStream::connect(&world.guest, at(HOST, port)).unwrap_err();
    // ICMP "administratively prohibited".
    assert_eq!(denied.kind(), ErrorKind::HostUnreachable);
}

#[test]
fn slirp_21_packets_are_as_short_as_the_caller_asks() {
    let world = World::new(SlirpConfig { if_mtu: 1_300, ..config() });
    assert_eq!(world.guest.caps().mtu, 1_300, "the lease says so");
    let (guest, host) = pair(&world);
    // IP, TCP, and timestamps.
    assert_eq!(guest.info().unwrap().snd_mss, 1_300 - 20 - 20 - 12);
    there_and_back(guest, host, 1 << 18);
}

#[test]
fn slirp_47_two_segments_fill_a_long_packet() {
    let world = World::new(SlirpConfig { if_mtu: 65_520, if_mru: 65_520, ..config() });
    assert_eq!(world.guest.caps().mtu, 65_520);
    let (guest, host) = pair(&world);
    assert_eq!(guest.info().unwrap().snd_mss, (65_520 - 20 - 20) / 2 - 12);
    there_and_back(guest, host, 1 << 20);
}

#[test]
fn slirp_22_connections_come_from_the_outbound_address() {
    let mut from: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    (from.sin_family, from.sin_addr) = (libc::AF_INET as u16, v4("127.0.0.9"));
    let mut from_v6: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    (from_v6.sin6_family, from_v6.sin6_addr) = (libc::AF_INET6 as u16, v6("::1"));
    let (from, from_v6) = (Box::leak(Box::new(from)), Box::leak(Box::new(from_v6)));
    let world = World::new(SlirpConfig { outbound_addr: from, outbound_addr6: from_v6, ..config() });
    // The loopback is reached from itself.
    let (guest, host) = pair(&world);
    assert_eq!(host.peer_addr().unwrap().ip(), std::net::Ipv4Addr::LOCALHOST);
    there_and_back(guest, host, 100);
    // Any other address is not: this host has none that is sure, so the address that cannot reach it is seen.
    let failed = blocking::TcpStream::connect(&world.guest, at("192.0.2.1", 9)).unwrap_err();
    assert_ne!(failed.kind(), ErrorKind::ConnectionRefused);
}
