//! A path through a router (the kernel's) whose next link has a smaller MTU: with its ICMP errors, and
//! without.

use crate::net;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use net::{Net, digest_of, send_noise};
use taut::blocking::TcpStream;
use taut_testbed::{Kernel, PATIENCE, live};

/// MTU of the link behind the router; all others have 1500.
const NARROW: u32 = 1_300;
const BYTES: usize = 3_000_000;

/// The stack, a router, and a listener beyond it.
struct Path {
    net: Net,
    /// Keeps it alive.
    _far: Kernel,
    listener: TcpListener,
    at: SocketAddr,
}

/// `told`: whether the router's ICMP errors reach the stack.
fn path(told: bool) -> Option<Path> {
    if !live::ready(&["ip"]) {
        return None;
    }
    let net = Net::new();
    let far = Kernel::new().unwrap();
    let (near_end, far_end) = net.kernel.namespace.connect("narrow", &far.namespace, "up").unwrap();
    near_end.set_mtu(NARROW).unwrap();
    for (end, address) in [(&near_end, "10.6.0.1/24"), (&far_end, "10.6.0.2/24")] {
        end.set_up().unwrap();
        end.add_address(address.parse().unwrap()).unwrap();
    }
    far.run("ip route add 10.7.0.0/24 via 10.6.0.1").unwrap();
    net.kernel.set_sysctl("ip_forward", "1").unwrap();
    if !told {
        // The router's own messages to the stack are dropped; forwarded packets pass.
        net.kernel.run("ip rule add iif lo to 10.7.0.2 blackhole").unwrap();
    }
    let listener = far.enter(|| TcpListener::bind("10.6.0.2:0")).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    Some(Path { net, _far: far, listener, at })
}

/// Sends three megabytes; returns the path MTU that the connection knew when they had arrived.
fn send(path: &Path) -> u32 {
    let listener = path.listener.try_clone().unwrap();
    let reader = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        digest_of(stream)
    });
    let mut stream = TcpStream::connect(&path.net.stack, path.at).unwrap();
    let sent = send_noise(&mut stream, BYTES, 11);
    stream.flush().unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), (BYTES, sent));
    stream.info().unwrap().pmtu
}

#[test]
fn a_router_that_speaks_is_believed() {
    let Some(path) = path(true) else { return };
    assert_eq!(send(&path), NARROW);
    let counters = path.net.stack.counters();
    assert!(counters.icmp_in_msgs > 0);
    assert_eq!(counters.mtu_black_holes, 0);
}

#[test]
fn a_router_that_is_silent_is_found_out() {
    let Some(path) = path(false) else { return };
    let found = send(&path);
    assert!(found <= NARROW && NARROW - found < 8, "{found}");
    let counters = path.net.stack.counters();
    assert_eq!(counters.icmp_in_msgs, 0, "the test's router must be silent");
    assert!(counters.mtu_black_holes > 0 && counters.tcp_mtup_success > 0, "{counters:?}");
}
