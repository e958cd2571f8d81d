//! Services in the guest and clients of forwarded ports: GW-102, GW-104 and GW-105 of `docs/spec/gateway.md`.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};

use socket2::{Domain, Socket, Type};
use taut::FlowKind;
use taut_gateway::{ClientAddress, Forward, Resolver, Settings};
use taut_testbed::PATIENCE;

use crate::live::{GATEWAY, SERVER, World, again};

/// An address of the far namespace, from which a client comes.
const CLIENT: [u8; 4] = [10, 50, 0, 7];

fn forward(kind: FlowKind, text: &str) -> Forward {
    Forward::parse(kind, text).unwrap()[0]
}

/// A connection from [`CLIENT`] to a port of the gateway's host.
fn connect(world: &World, port: u16) -> TcpStream {
    let stream = world.far.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from((CLIENT, 0)).into()).unwrap();
        socket.connect(&std::net::SocketAddr::from((SERVER, port)).into()).unwrap();
        TcpStream::from(socket)
    });
    let stream = stream.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn gw_102_a_port_at_all_addresses_answers_from_the_one_that_was_asked() {
    let forwards = [forward(FlowKind::Udp, "0.0.0.0:5353:53"), forward(FlowKind::Udp, "[::]:5354:53")];
    let Some(world) = World::new(Settings::default(), Resolver::default(), &forwards) else { return };
    let guest = world.near.enter(|| UdpSocket::bind("0.0.0.0:53")).unwrap().unwrap();
    guest.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = world.far.enter(|| UdpSocket::bind((Ipv4Addr::from(CLIENT), 0))).unwrap().unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut message = [0; 100];
    for port in [5_353, 5_354] {
        for asked in [SERVER, [10, 50, 0, 9]] {
            client.send_to(b"question", (Ipv4Addr::from(asked), port)).unwrap();
            let (_, from) = again(|| guest.recv_from(&mut message)).unwrap();
            guest.send_to(b"answer", from).unwrap();
            let (len, from) = again(|| client.recv_from(&mut message)).unwrap();
            assert_eq!((&message[..len], from.ip()), (&b"answer"[..], IpAddr::from(asked)));
        }
    }
}

#[test]
fn gw_104_a_service_sees_its_clients_address_or_the_gateways() {
    let shown = |text, client| Forward { client, ..forward(FlowKind::Tcp, text) };
    let forwards = [
        shown("10.50.0.1:8080:80", ClientAddress::Keep),
        shown("10.50.0.1:8081:80", ClientAddress::Hide),
        shown("10.50.0.1:8082:80", ClientAddress::ProxyProtocol),
        forward(FlowKind::Udp, "10.50.0.1:5353:53"),
    ];
    let Some(world) = World::new(Settings::default(), Resolver::default(), &forwards) else { return };
    let listener = world.near.enter(|| TcpListener::bind("0.0.0.0:80")).unwrap().unwrap();
    for (port, seen) in [(8_080, CLIENT), (8_081, GATEWAY), (8_082, GATEWAY)] {
        let mut client = connect(&world, port);
        client.write_all(b"question").unwrap();
        let (mut served, from) = listener.accept().unwrap();
        served.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(from.ip(), IpAddr::from(seen), "{port}");
        let own = client.local_addr().unwrap();
        if port == 8_080 {
            assert_eq!(from.port(), own.port());
        }
        if port == 8_082 {
            let mut header = [0; 28];
            served.read_exact(&mut header).unwrap();
            assert_eq!(header[12..16], [0x21, 0x11, 0, 12]);
            assert_eq!(header[16..20], CLIENT);
            assert_eq!(header[20..24], SERVER);
            assert_eq!(header[24..26], own.port().to_be_bytes());
        }
        let mut question = [0; 8];
        served.read_exact(&mut question).unwrap();
        served.write_all(b"answer").unwrap();
        drop(served);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!((&question, &*answer), (b"question", &b"answer"[..]));
    }
    // A second connection of the same client port, by another port of the host: the service sees the address.
    let guest = world.near.enter(|| UdpSocket::bind("0.0.0.0:53")).unwrap().unwrap();
    guest.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = world.far.enter(|| UdpSocket::bind((Ipv4Addr::from(CLIENT), 0))).unwrap().unwrap();
    client.send_to(b"question", (Ipv4Addr::from(SERVER), 5_353)).unwrap();
    let (_, from) = again(|| guest.recv_from(&mut [0; 100])).unwrap();
    assert_eq!(from, client.local_addr().unwrap());
}
