//! A stack's control socket: it exists if requested, and is removed with the stack.
#![cfg(feature = "control")]

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::task::Waker;

use taut::Stack;
use taut::blocking::{TcpListener, TcpStream, UdpSocket};
use taut::device::{Device, News, Sent, TxDevice, TxPacket, TxTicket};
use taut::taut_control::Client;
use taut_core::LinkCaps;

const BYTES: usize = 100_000;

/// A path of this test's own.
fn path(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("taut-{test}-{}.sock", std::process::id()))
}

#[test]
fn no_socket_unless_asked_for() {
    let (device, _other) = taut::device::pipe(LinkCaps::offloading(1500), 1 << 20).unwrap();
    let stack = Stack::builder().device(device).address("10.0.0.1/24").build().unwrap();
    assert_eq!(stack.control_path(), None);
}

#[test]
fn a_socket_tells_of_its_stack_and_goes_with_it() {
    let path = path("goes");
    let (near, far) = taut::device::pipe(LinkCaps::offloading(1500), 1 << 20).unwrap();
    let builder = Stack::builder().device(near).device_name("pipe").address("10.0.0.1/24");
    let stack = builder.control(&path).build().unwrap();
    let peer = Stack::builder().device(far).address("10.0.0.2/24").build().unwrap();
    assert_eq!(stack.control_path(), Some(path.as_path()));
    let listener = TcpListener::bind(&peer, "10.0.0.2:80").unwrap();
    let mut stream = TcpStream::connect(&stack, "10.0.0.2:80").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(&[7; BYTES]).unwrap();
    accepted.read_exact(&mut [0; BYTES]).unwrap();

    let mut client = Client::connect(&path).unwrap();
    let who = client.identity().unwrap();
    assert_eq!((who.device.as_str(), who.addresses), ("pipe", vec!["10.0.0.1/24".to_owned()]));
    assert_eq!(client.summary().unwrap().connections, 1);
    let counters = client.counters().unwrap();
    let out = counters.iter().find(|counter| counter.name == "TcpActiveOpens").unwrap();
    assert_eq!(out.value, 1);

    let socket = UdpSocket::bind(&stack, "10.0.0.1:53").unwrap();
    let sockets = client.datagrams().unwrap();
    assert_eq!((sockets.len(), sockets[0].netid.as_str(), sockets[0].state()), (1, "udp", "UNCONN"));
    assert_eq!(sockets[0].local, socket.local_addr().unwrap());
    drop(socket);
    assert_eq!(client.datagrams().unwrap(), []);

    // A second stack cannot have the same place, and does not take it.
    let (device, _other) = taut::device::pipe(LinkCaps::offloading(1500), 1 << 20).unwrap();
    let second = Stack::builder().device(device).address("10.0.0.3/24").control(&path).build();
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(client.identity().unwrap().device, "pipe");

    drop((stream, accepted));
    drop(stack);
    assert!(!path.exists());
    assert!(client.identity().is_err());
}

/// A pipe that takes no packet of more than 1,000 bytes.
struct Narrow(Box<dyn TxDevice>);

impl TxDevice for Narrow {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.0.news(waker)
    }

    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        if packet.len() > 1_000 {
            // EMSGSIZE
            return Sent::Never(ticket, io::Error::from_raw_os_error(90));
        }
        self.0.send(packet, ticket)
    }
}

#[test]
fn packets_that_the_device_never_takes_are_counted_and_the_reason_is_told() {
    let path = path("never");
    let (near, far) = taut::device::pipe(LinkCaps::plain(1_500), 1 << 20).unwrap();
    let mut device = Device::from(near);
    device.tx = Box::new(Narrow(device.tx));
    let stack = Stack::builder().device(device).address("10.0.0.1/24").control(&path).build().unwrap();
    let peer = Stack::builder().device(far).address("10.0.0.2/24").build().unwrap();
    let _listener = TcpListener::bind(&peer, "10.0.0.2:80").unwrap();
    let mut stream = TcpStream::connect(&stack, "10.0.0.2:80").unwrap();
    let mut client = Client::connect(&path).unwrap();
    let mut errors = || {
        let counters = client.counters().unwrap();
        let errors = counters.iter().find(|counter| counter.name == "TautDeviceErrors").unwrap().value;
        (errors, client.identity().unwrap().device_error)
    };
    assert_eq!(errors(), (0, None));
    assert!(stack.last_device_error().is_none());
    stream.write_all(&[7; 1_448]).unwrap();
    let (count, why) = errors();
    assert!(count >= 1);
    assert_eq!(why.as_deref(), Some("Message too long (os error 90)"));
    assert_eq!(stack.last_device_error().unwrap().raw_os_error(), Some(90));
    assert!(stack.closed().is_none());
}

#[test]
fn a_queue_is_put_before_the_device_and_asked_for_through_the_socket() {
    let path = path("queue");
    let (near, _far) = taut::device::pipe(LinkCaps::offloading(1500), 1 << 20).unwrap();
    let stack = Stack::builder().device(near).address("10.0.0.1/24").control(&path).build().unwrap();
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.qdiscs().unwrap(), []);
    let found = client.set_qdisc(Some("netem delay 5ms | fq")).unwrap();
    let told: Vec<_> = found
        .iter()
        .map(|qdisc| (qdisc.kind.as_str(), qdisc.handle, qdisc.parent, qdisc.spec.as_str()))
        .collect();
    assert_eq!(told, [("netem", 0x8001, None, "netem delay 5ms | fq"), ("fq", 0x8002, Some(0x8001), "fq")]);
    assert!(found[1].details.iter().any(|counter| counter.name == "flows"));
    let error = client.set_qdisc(Some("red")).unwrap_err();
    assert!(error.to_string().contains("use one of pfifo"), "{error}");
    assert_eq!(client.qdiscs().unwrap(), found, "it stays as it was");
    assert_eq!(stack.qdiscs().len(), 2);
    assert_eq!(client.set_qdisc(None).unwrap(), []);
}
