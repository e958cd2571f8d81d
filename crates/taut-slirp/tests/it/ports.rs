//! Ports of the host that lead to the guest.

use std::ffi::c_int;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

use libc::{sockaddr, socklen_t};
use slirp::ffi::{
    slirp_add_hostfwd, slirp_add_hostxfwd, slirp_connection_info, slirp_remove_hostfwd, slirp_remove_hostxfwd,
};
use socket2::SockAddr;
use taut::blocking;
use taut_testbed::{PATIENCE, Scratch};

use crate::datagrams::run;
use crate::instance::taken;
use crate::world::{Bare, GUEST, HOST, World, at, config, v4};

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn add(world: &World, is_udp: bool, port: u16, guest: &'static str, guest_port: u16) -> c_int {
    world.caller.call(move |slirp| unsafe {
        let port = c_int::from(port);
        slirp_add_hostfwd(
            slirp,
            c_int::from(is_udp),
            v4("127.0.0.1"),
            port,
            v4(guest),
            c_int::from(guest_port),
        )
    })
}

fn remove(world: &World, is_udp: bool, port: u16) -> c_int {
    world.caller.call(move |slirp| unsafe {
        slirp_remove_hostfwd(slirp, c_int::from(is_udp), v4("127.0.0.1"), c_int::from(port))
    })
}

fn echo(mut client: impl std::io::Read + std::io::Write, listener: &blocking::TcpListener) -> SocketAddr {
    client.write_all(b"hello").unwrap();
    let (mut served, from) = listener.accept().unwrap();
    let mut got = [0; 5];
    served.read_exact(&mut got).unwrap();
    served.write_all(&got).unwrap();
    drop(served);
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"hello");
    from
}

fn connect(port: u16) -> TcpStream {
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

#[test]
fn slirp_09_connections_come_in_at_a_forwarded_port() {
    let world = World::new(config());
    let listener = blocking::TcpListener::bind(&world.guest, at(GUEST, 80)).unwrap();
    // A guest without an address is the first that has leased one.
    for guest in ["0.0.0.0", GUEST] {
        let port = free_port();
        assert_eq!(add(&world, false, port, guest, 80), 0);
        // Clients of this host's loopback are the host.
        assert_eq!(echo(connect(port), &listener).ip(), HOST.parse::<std::net::IpAddr>().unwrap());
        assert_eq!(add(&world, false, port, guest, 80), -1, "in use");
        assert_eq!((remove(&world, false, port), remove(&world, false, port)), (0, -1));
        assert_eq!(TcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    // A closed port of the guest.
    let port = free_port();
    assert_eq!(add(&world, false, port, GUEST, 81), 0);
    assert_eq!(connect(port).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    for wrong in [-1, 65_536] {
        let added = world
            .caller
            .call(move |slirp| unsafe { slirp_add_hostfwd(slirp, 0, v4("127.0.0.1"), wrong, v4(GUEST), 80) });
        assert_eq!(added, -1);
    }
}

#[test]
fn slirp_09_datagrams_come_in_each_client_with_its_own_answers() {
    let world = World::new(config());
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_eq!(add(&world, true, port, GUEST, 53), 0);
    let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    run(async {
        let served = taut::UdpSocket::bind(&world.guest, (GUEST, 53)).await.unwrap();
        for (number, client) in clients.iter().enumerate() {
            client.connect(("127.0.0.1", port)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.send(&[number as u8]).unwrap();
            let mut got = [0; 10];
            let (len, from) = served.recv_from(&mut got).await.unwrap();
            assert_eq!((len, from.ip()), (1, HOST.parse().unwrap()));
            served.send_to(&[got[0] + 10], from).await.unwrap();
        }
        for (number, client) in clients.iter().enumerate() {
            let mut got = [0; 10];
            assert_eq!((client.recv(&mut got).unwrap(), got[0]), (1, number as u8 + 10));
        }
    });
    assert_eq!((remove(&world, true, port), remove(&world, true, port)), (0, -1));
    UdpSocket::bind(("127.0.0.1", port)).unwrap();
}

fn raw(address: &SockAddr) -> (*const sockaddr, socklen_t) {
    (address.as_ptr().cast(), address.len())
}

#[test]
fn slirp_09_addresses_of_any_family_can_be_forwarded() {
    let world = World::new(config());
    world.wait_for_v6();
    let scratch = Scratch::new("slirp-forward");
    let path = scratch.join("socket");
    let listener = blocking::TcpListener::bind(&world.guest, at(GUEST, 80)).unwrap();
    let (port, guest) = (free_port(), SockAddr::from(at(GUEST, 80)));
    let places = [(SockAddr::from(at("::1", port)), 2), (SockAddr::unix(&path).unwrap(), 0)];
    for (place, flags) in places.clone() {
        let guest = guest.clone();
        let added = world.caller.call(move |slirp| unsafe {
            let ((place, len), (guest, guest_len)) = (raw(&place), raw(&guest));
            slirp_add_hostxfwd(slirp, place, len, guest, guest_len, flags)
        });
        assert_eq!(added, 0);
    }
    let client = TcpStream::connect(("::1", port)).unwrap();
    echo(client, &listener);
    echo(UnixStream::connect(&path).unwrap(), &listener);
    for (place, flags) in places {
        let removed = world.caller.call(move |slirp| unsafe {
            let (place, len) = raw(&place);
            [(); 2].map(|()| slirp_remove_hostxfwd(slirp, place, len, flags))
        });
        assert_eq!(removed, [0, -1]);
    }
    let short = world.caller.call(move |slirp| unsafe {
        let (place, guest) = (SockAddr::from(at("127.0.0.1", 1)), SockAddr::from(at(GUEST, 80)));
        let ((place, len), (guest, guest_len)) = (raw(&place), raw(&guest));
        [
            slirp_add_hostxfwd(slirp, place, 1, guest, guest_len, 0),
            slirp_add_hostxfwd(slirp, place, len, guest, 3, 0),
        ]
    });
    assert_eq!(short, [-1, -1]);
}

#[test]
fn slirp_45_port_0_is_a_free_one_and_no_port_is_an_error() {
    let bare = Bare::new(&config());
    let add =
        |is_udp, port| unsafe { slirp_add_hostfwd(bare.slirp, is_udp, v4("127.0.0.1"), port, v4(GUEST), 80) };
    let remove = |is_udp, port| unsafe { slirp_remove_hostfwd(bare.slirp, is_udp, v4("127.0.0.1"), port) };
    for (is_udp, name) in [(0, "TCP[HOST_FORWARD]"), (1, "UDP[HOST_FORWARD]")] {
        assert_eq!(add(is_udp, 0), 0);
        let table = taken(unsafe { slirp_connection_info(bare.slirp) });
        let row: Vec<&str> =
            table.lines().find(|line| line.contains(name)).unwrap().split_whitespace().collect();
        let port: c_int = row[3].parse().unwrap();
        assert!(port != 0, "{table}");
        assert_eq!([remove(is_udp, 0), remove(is_udp, port), remove(is_udp, port)], [-1, 0, -1]);
        for wrong in [-1, 65_536] {
            assert_eq!(add(is_udp, wrong), -1);
            assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EINVAL), "{wrong}");
        }
    }
    let place = SockAddr::from(at("127.0.0.1", 0));
    let (place, len) = raw(&place);
    assert_eq!(unsafe { slirp_add_hostxfwd(bare.slirp, place, len, place, 3, 0) }, -1);
    assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
}
