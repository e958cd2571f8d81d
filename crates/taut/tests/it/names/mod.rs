//! Names that a stack looks up over itself, from the program that answers for them on real networks:
//! `dnsmasq`.

use crate::net;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use net::Net;
use taut::blocking::{TcpStream, UdpSocket};
use taut::dns::Resolver;
use taut_testbed::{eventually, live};

/// A program that is killed when the test is over.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A server at 10.7.0.1 and fd07::1 for some names; it refuses all others.
fn dnsmasq(net: &Net, port: u16) -> Running {
    let mut command = Command::new("dnsmasq");
    command
        .args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file="])
        .args(["--user=root", "--group=root", "--local=/nowhere/", "--interface=taut0"])
        .args(["--host-record=both.example,10.7.0.1,fd07::1", "--host-record=four.example,10.7.0.1"])
        .args(["--cname=other.example,both.example", &format!("--port={port}")])
        .args((1..100).map(|at| format!("--host-record=long.example,192.0.2.{at}")))
        .stdin(Stdio::null());
    let running = Running(net.kernel.namespace.spawn(&mut command).unwrap());
    let listens =
        || net.kernel.run(&format!("ss -Hltn sport = :{port}")).is_ok_and(|lines| !lines.is_empty());
    eventually("dnsmasq listens", listens);
    running
}

fn servers(list: &[&str]) -> Resolver {
    Resolver::Servers(list.iter().map(|server| server.parse().unwrap()).collect())
}

fn net(resolver: Resolver) -> Net {
    Net::with(|builder| builder.resolver(resolver).build())
}

fn ips(found: &[SocketAddr]) -> Vec<String> {
    found.iter().map(|address| address.ip().to_string()).collect()
}

/// Nothing listens at the first server; the second refuses other names.
#[test]
fn dns_3_a_real_server_is_asked_over_the_stack() {
    if !live::ready(&["dnsmasq", "ss"]) {
        return;
    }
    let net = net(servers(&["10.7.0.1:54", "[fd07::1]:53"]));
    let _dnsmasq = dnsmasq(&net, 53);
    let look_up = |name: &str| net.stack.look_up((name, 80));
    assert_eq!(ips(&look_up("both.example").unwrap()), ["fd07::1", "10.7.0.1"]);
    assert_eq!(ips(&look_up("OTHER.example.").unwrap()), ["fd07::1", "10.7.0.1"], "an alias");
    // It refuses to answer for the other family, as for all names without an entry.
    assert_eq!(ips(&look_up("four.example").unwrap()), ["10.7.0.1"]);
    assert_eq!(look_up("long.example").unwrap().len(), 99, "over TCP");
    assert_eq!(look_up("www.nowhere").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(look_up("www.example").unwrap_err().kind(), io::ErrorKind::Other, "refused");
    assert_eq!(look_up(&"a".repeat(64)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn dns_4_calls_take_names() {
    if !live::ready(&["dnsmasq", "ss"]) {
        return;
    }
    let net = net(servers(&["10.7.0.1:53"]));
    let _dnsmasq = dnsmasq(&net, 53);
    let (listener, address) = net.listener(0);
    let name = format!("four.example:{}", address.port());
    let (mut stream, (mut peer, _)) =
        (TcpStream::connect(&net.stack, name).unwrap(), listener.accept().unwrap());
    stream.write_all(b"hello").unwrap();
    let mut five = [0; 5];
    peer.read_exact(&mut five).unwrap();
    assert_eq!(&five, b"hello");
    let socket = UdpSocket::bind(&net.stack, "10.7.0.2:0").unwrap();
    let far = net.kernel.enter(|| std::net::UdpSocket::bind("10.7.0.1:0")).unwrap().unwrap();
    far.set_read_timeout(Some(taut_testbed::PATIENCE)).unwrap();
    socket.send_to(b"hello", ("four.example", far.local_addr().unwrap().port())).unwrap();
    assert_eq!(far.recv(&mut five).unwrap(), 5);
}

/// This name is in the hosts file.
#[test]
fn dns_5_a_stack_that_looks_nothing_up() {
    let net = net(Resolver::Nowhere);
    let error = TcpStream::connect(&net.stack, "localhost:80").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    let socket = UdpSocket::bind(&net.stack, "10.7.0.2:0").unwrap();
    assert_eq!(socket.send_to(b"x", "localhost:80").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(net.stack.look_up("127.0.0.1:80").is_ok());
    let by_the_system = Net::new();
    assert!(by_the_system.stack.look_up("localhost:80").is_ok());
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn dns_4_calls_of_a_task_take_names() {
    if !live::ready(&["dnsmasq", "ss"]) {
        return;
    }
    let runtime = tokio::runtime::Handle::current();
    let net = Net::with(move |builder| {
        let _entered = runtime.enter();
        builder.resolver(servers(&["10.7.0.1:53"])).build_tokio()
    });
    let _dnsmasq = dnsmasq(&net, 53);
    let (_listener, address) = net.listener(1);
    let name = format!("both.example:{}", address.port());
    let stream = taut::TcpStream::connect(&net.stack, name).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), address);
}
