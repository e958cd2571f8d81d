//! UDP, ping and fragments against the kernel over a TUN, by the sockets of threads and of tokio; and the
//! programs that people use: `ping`, where it is installed.
#![cfg(all(feature = "tokio", target_os = "linux"))]

use crate::net;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket as KernelSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use net::{KERNEL, Net, STACK};
use taut::{DatagramOptions, MtuDiscovery, PingSocket, SendMeta, UdpSocket, blocking};
use taut_testbed::{Noise, eventually};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(60);

fn at(host: &str, port: u16) -> SocketAddr {
    format!("{host}:{port}").parse().unwrap()
}

/// A network whose kernel answers: right after it was made, it has no route to its own IPv6 address, and
/// drops what comes.
fn connected() -> Net {
    let net = Net::new();
    for family in [0, 1] {
        let any = at(["0.0.0.0", "[::]"][family], 0);
        let ping = blocking::PingSocket::bind(&net.stack, any, &DatagramOptions::default()).unwrap();
        ping.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        eventually("the kernel answers", || {
            ping.send_to(0, b"", at(KERNEL[family], 0).ip()).unwrap();
            ping.recv(&mut []).is_ok()
        });
    }
    net
}

fn kernel_socket(net: &Net, family: usize) -> KernelSocket {
    let socket = net.kernel.enter(|| KernelSocket::bind(at(KERNEL[family], 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn noise(len: usize) -> Vec<u8> {
    Noise::new(7).bytes(len)
}

#[test]
fn datagrams_of_all_sizes_both_ways() {
    let net = connected();
    for family in [0, 1] {
        let ours = blocking::UdpSocket::bind(&net.stack, at(STACK[family], 0)).unwrap();
        ours.set_read_timeout(Some(TIMEOUT)).unwrap();
        let theirs = kernel_socket(&net, family);
        let (here, there) = (ours.local_addr().unwrap(), theirs.local_addr().unwrap());
        // 1472 bytes fit, the others are fragments.
        for len in [0, 1, 1_472, 1_473, 8_000, 65_507] {
            let (message, mut buffer) = (noise(len), vec![0; 70_000]);
            assert_eq!(ours.send_to(&message, there).unwrap(), len);
            let (count, from) = theirs.recv_from(&mut buffer).unwrap();
            assert!(buffer[..count] == message && from == here, "{len} bytes out");
            theirs.send_to(&message, here).unwrap();
            let (count, from) = ours.recv_from(&mut buffer).unwrap();
            assert!(buffer[..count] == message && from == there, "{len} bytes in");
        }
    }
    let counters = net.stack.counters();
    assert_eq!((counters.udp_in_datagrams, counters.udp_out_datagrams), (12, 12));
    // Three sizes are fragments over IPv4, and 1472 bytes over IPv6, too.
    assert_eq!((counters.reasm_oks, counters.frag_oks, counters.udp_in_errors), (7, 7, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_datagrams_by_tokio_and_what_is_known_of_them() {
    let net = connected();
    let theirs = kernel_socket(&net, 0);
    let ours = UdpSocket::bind(&net.stack, at(STACK[0], 0)).await.unwrap();
    ours.connect(theirs.local_addr().unwrap()).await.unwrap();
    theirs.connect(ours.local_addr().unwrap()).unwrap();
    let echo = thread::spawn(move || {
        let mut buffer = [0; 2_000];
        for _ in 0..5_000 {
            let count = theirs.recv(&mut buffer).unwrap();
            theirs.send(&buffer[..count]).unwrap();
        }
    });
    let mut buffer = [0; 2_000];
    for n in 0..5_000_u32 {
        ours.send(&n.to_be_bytes()).await.unwrap();
        let received = ours.recv_with(&mut buffer).await.unwrap();
        assert_eq!(buffer[..received.len], n.to_be_bytes());
        assert_eq!((received.ttl, received.tos, received.from), (64, 0, ours.peer_addr().unwrap()));
    }
    echo.join().unwrap();
    assert_eq!(ours.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    // That of the last one may come with the next turn.
    eventually("every ticket is back", || ours.info().unwrap().send_queue == 0);
}

#[test]
fn a_closed_port_is_refused_on_both_sides() {
    let net = connected();
    for family in [0, 1] {
        // Nobody is at this port of the kernel.
        let theirs = kernel_socket(&net, family);
        let nobody = theirs.local_addr().unwrap();
        drop(theirs);
        let ours = blocking::UdpSocket::bind(&net.stack, at(STACK[family], 0)).unwrap();
        ours.set_read_timeout(Some(TIMEOUT)).unwrap();
        ours.connect(nobody).unwrap();
        ours.send(b"hello").unwrap();
        let refused = ours.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        // Nobody is at this port of the stack.
        let theirs = kernel_socket(&net, family);
        theirs.connect(at(STACK[family], 9)).unwrap();
        theirs.send(b"hello").unwrap();
        assert_eq!(theirs.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
    assert_eq!(net.stack.counters().udp_no_ports, 2);
}

#[test]
fn segments_by_one_call() {
    let net = connected();
    for family in [0, 1] {
        let ours = blocking::UdpSocket::bind(&net.stack, at(STACK[family], 0)).unwrap();
        let theirs = kernel_socket(&net, family);
        let message = noise(30_000);
        let meta = SendMeta { segment: Some(1_200), ..SendMeta::default() };
        let sent = net.stack.counters().out_requests;
        ours.send_with(&message, Some(theirs.local_addr().unwrap()), &meta).unwrap();
        let mut buffer = [0; 2_000];
        for part in message.chunks(1_200) {
            let count = theirs.recv(&mut buffer).unwrap();
            assert!(buffer[..count] == *part);
        }
        // One packet for a kernel that cuts UDP, else one for each datagram.
        let packets = net.stack.counters().out_requests - sent;
        assert!([1, 25].contains(&packets), "{packets}");
        println!("25 datagrams in {packets} packets");
    }
}

#[test]
fn a_writer_waits_for_the_device_and_nothing_is_lost_before_it() {
    let net = connected();
    let theirs = kernel_socket(&net, 0);
    let to = theirs.local_addr().unwrap();
    let ours = blocking::UdpSocket::bind(&net.stack, at(STACK[0], 0)).unwrap();
    for _ in 0..20_000 {
        ours.send_to(&[7; 1_400], to).unwrap();
    }
    eventually("every ticket came back", || ours.info().unwrap().send_queue == 0);
    let counters = net.stack.counters();
    assert_eq!(
        (counters.udp_out_datagrams, counters.udp_sndbuf_errors, counters.device_drops),
        (20_000, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_of_ours_are_answered_by_the_kernel() {
    let net = connected();
    for family in [0, 1] {
        let any = at(["0.0.0.0", "[::]"][family], 0);
        let ping = PingSocket::bind(&net.stack, any, &DatagramOptions::default()).unwrap();
        let to: IpAddr = at(KERNEL[family], 0).ip();
        for (seq, len) in [(1, 0), (2, 56), (3, 8_000)] {
            let (data, mut buffer) = (noise(len), vec![0; 10_000]);
            let reply = loop {
                ping.send_to(seq, &data, to).await.unwrap();
                if let Ok(reply) = timeout(Duration::from_secs(10), ping.recv(&mut buffer)).await {
                    break reply.unwrap();
                }
            };
            assert_eq!((reply.from, reply.seq, reply.len, reply.ttl), (to, seq, len, 64));
            assert!(buffer[..len] == data);
        }
        let ping = blocking::PingSocket::bind(&net.stack, any, &DatagramOptions::default()).unwrap();
        ping.set_read_timeout(Some(TIMEOUT)).unwrap();
        ping.send_to(9, b"x", to).unwrap();
        assert_eq!(ping.recv(&mut [0; 10]).unwrap().seq, 9);
    }
}

/// Runs the kernel's `ping`, and demands every reply. Returns false if there is no such program.
fn ping_all(net: &Net, arguments: &str, family: usize) -> bool {
    let to = STACK[family].trim_matches(['[', ']']);
    // Once a reply has come, ping waits for the others as long as for two of the slowest so far, and at least
    // an interval, whatever -W says: the interval decides. Pings of `-l` leave at once.
    match net.kernel.run(&format!("ping -n -i 10 -W 10 {arguments} {to}")) {
        Err(error) if error.to_string().contains("No such file") => {
            println!("ping is not installed");
            false
        }
        output => {
            let output = output.unwrap();
            assert!(output.contains(" 0% packet loss"), "{arguments} {to}: {output}");
            true
        }
    }
}

const TRAINS: [&str; 4] = ["-c 3 -l 3", "-c 3 -l 3 -s 8000", "-c 3 -l 3 -s 1400 -M do", "-c 2 -l 2 -s 60000"];

#[test]
fn the_kernels_pings_are_all_answered() {
    let net = connected();
    for family in [0, 1] {
        if !TRAINS.iter().all(|train| ping_all(&net, train, family)) {
            return;
        }
    }
    assert!(net.stack.counters().icmp_out_echo_reps >= 22);
}

/// A thread that waits for its own data serves the device meanwhile, and so does the task of a runtime.
#[test]
fn the_kernels_pings_are_all_answered_whoever_drives_the_stack() {
    let net = connected();
    let waiting = blocking::UdpSocket::bind(&net.stack, at(STACK[0], 5_000)).unwrap();
    let thread = thread::spawn(move || waiting.recv(&mut [0; 10]).unwrap_err().kind());
    let led = TRAINS.iter().all(|train| ping_all(&net, train, 0));
    drop(net);
    assert_ne!(thread.join().unwrap(), ErrorKind::TimedOut);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let net = Net::with(|builder| {
        let _inside = runtime.enter();
        builder.build_tokio()
    });
    // A route to the kernel's IPv6 address comes late; nothing is asked of it.
    assert!(!led || TRAINS.iter().all(|train| ping_all(&net, train, 0)));
}

#[test]
fn a_large_datagram_is_refused_where_it_may_not_be_fragmented() {
    let net = connected();
    let options = DatagramOptions { mtu_discovery: MtuDiscovery::Do, ..DatagramOptions::default() };
    let ours = blocking::UdpSocket::bind_with(&net.stack, at(STACK[0], 0), &options).unwrap();
    let to = at(KERNEL[0], 9);
    assert_eq!(ours.send_to(&noise(1_472), to).unwrap(), 1_472);
    let error = ours.send_to(&noise(1_473), to).unwrap_err();
    assert!(error.to_string().contains("message too long"), "{error}");
}

#[test]
fn sockets_that_are_dropped_leave_their_ports() {
    let net = connected();
    for _ in 0..100 {
        let first = blocking::UdpSocket::bind(&net.stack, at(STACK[0], 5_000)).unwrap();
        let taken = blocking::UdpSocket::bind(&net.stack, at(STACK[0], 5_000)).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        drop(first);
    }
    // One that waits when its stack ends gets the reason.
    let waiting = blocking::UdpSocket::bind(&net.stack, at(STACK[0], 5_000)).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    let thread = thread::spawn(move || {
        let error = waiting.recv(&mut [0; 10]).unwrap_err();
        told.store(true, Ordering::SeqCst);
        error.kind()
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!ended.load(Ordering::SeqCst));
    drop(net.stack);
    assert_eq!(thread.join().unwrap(), ErrorKind::NotConnected);
}

/// Packets of the interface that were read, by the kernel's count: to ask the stack would make it look at the
/// device.
fn read_by_the_stack(net: &Net) -> u64 {
    let all = net.kernel.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let line = all.lines().find(|line| line.trim_start().starts_with("taut0:")).unwrap();
    line.split_whitespace().nth(10).unwrap().parse().unwrap()
}

/// Threads that wait serve the device by turns, for fractions of a millisecond, and leave it at any time.
/// What arrives then, or when they have gone, is read all the same, although nobody uses the stack any more.
#[test]
fn nothing_stays_in_the_device_however_its_readers_come_and_go() {
    let net = connected();
    let ours = blocking::UdpSocket::bind(&net.stack, at(STACK[0], 5_000)).unwrap();
    let theirs = kernel_socket(&net, 0);
    let mut noise = Noise::new(11);
    for round in 0..200 {
        let random = noise.bytes(16);
        let (readers, early, late) = (random[0] % 4, u64::from(random[1] % 7), u64::from(random[2] % 3));
        let before = read_by_the_stack(&net);
        thread::scope(|scope| {
            for wait in random.chunks(4).take(readers.into()).map(<[u8]>::to_vec) {
                let ours = &ours;
                scope.spawn(move || {
                    for micros in wait {
                        ours.set_read_timeout(Some(Duration::from_micros(1 + 4 * u64::from(micros))))
                            .unwrap();
                        let _ = ours.recv(&mut [0; 100]);
                    }
                });
            }
            for _ in 0..early {
                theirs.send_to(&[1; 100], at(STACK[0], 5_000)).unwrap();
                thread::sleep(Duration::from_micros(random[3].into()));
            }
        });
        // Three fragments each.
        for _ in 0..late {
            theirs.send_to(&[1; 4_000], at(STACK[0], 5_001)).unwrap();
        }
        let all = before + early + 3 * late;
        eventually(&format!("round {round}: {readers} readers, {early} and {late} datagrams"), || {
            read_by_the_stack(&net) >= all
        });
    }
}
