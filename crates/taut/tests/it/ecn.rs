//! Congestion marks with the kernel's TCP: RFC 3168 agreed on in both directions, and marks of a real queue.

use crate::net;

use std::thread;

use net::{Net, STACK, digest_of, send_noise, serve};
use taut::blocking::{TcpListener, TcpStream};

const BULK: usize = 16 << 20;

#[test]
fn the_stack_asks_and_the_kernel_agrees() {
    let net = Net::new();
    // 2, the default, accepts; 3 of newer kernels would ask for more, and gets this.
    net.kernel.set_sysctl("tcp_ecn", "2").unwrap();
    for (ours, agreed) in [("0", false), ("1", true), ("2", false)] {
        net.stack.set_sysctl("tcp_ecn", ours).unwrap();
        let (listener, address) = net.listener(0);
        let server = serve(listener, digest_of);
        let stream = TcpStream::connect(&net.stack, address).unwrap();
        assert_eq!(stream.info().unwrap().ecn, agreed, "tcp_ecn = {ours}");
        let sent = send_noise(&stream, BULK, 7);
        drop(stream);
        assert_eq!(server.join().unwrap(), (BULK, sent));
    }
    // Off over there: the answer has no ECE.
    net.kernel.set_sysctl("tcp_ecn", "0").unwrap();
    net.stack.set_sysctl("tcp_ecn", "1").unwrap();
    let (listener, address) = net.listener(0);
    let server = serve(listener, drop);
    assert!(!TcpStream::connect(&net.stack, address).unwrap().info().unwrap().ecn);
    server.join().unwrap();
}

#[test]
fn the_kernel_asks_its_queue_marks_and_the_stack_echoes() {
    let net = Net::new();
    net.kernel.set_sysctl("tcp_ecn", "1").unwrap();
    // Everything that waits for more than a microsecond is marked, where the kernel has such a queue.
    let marks = net.kernel.run("tc qdisc replace dev taut0 root fq_codel ce_threshold 1us ecn").is_ok();
    let listener = TcpListener::bind(&net.stack, format!("{}:0", STACK[0])).unwrap();
    let kernel = net.connect(listener.local_addr().unwrap());
    let (accepted, _) = listener.accept().unwrap();
    assert!(accepted.info().unwrap().ecn);
    let sending = thread::spawn(move || send_noise(kernel, BULK, 9));
    assert_eq!(digest_of(&accepted), (BULK, sending.join().unwrap()));
    assert!(accepted.info().unwrap().ecn_seen);
    let counters = net.stack.counters();
    // RFC 3168 §6.1.2: all data comes in ECN-capable packets.
    assert!(counters.in_ect0_pkts + counters.in_ce_pkts > 10_000, "{counters:?}");
    if marks {
        assert!(counters.in_ce_pkts > 0, "{counters:?}");
    }
}
