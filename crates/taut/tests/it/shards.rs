//! A stack of several shards on the queues of one TUN interface: who accepts, who is steered, who aggregates.

use crate::net;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use net::{Net, STACK, echo, serve};
use taut::ConnOptions;
use taut::blocking::{TcpListener, TcpStream};
use taut::observe::Counters;
use taut_testbed::{Kernel, PATIENCE, now};

const SHARDS: usize = 2;

fn net() -> Net {
    Net::with(|builder| builder.shards(SHARDS as u16).build())
}

/// Sends everything back, on a thread for each connection. Counts the connections.
fn echo_server(net: &Net) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(&net.stack, format!("{}:7", STACK[0])).unwrap();
    let at = listener.local_addr().unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            count.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || {
                let mut buffer = [0; 10_000];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..len]).unwrap();
                }
            });
        }
    });
    (at, served)
}

/// A connection from the stack, with timeouts, so that it fails rather than hangs.
fn connect(net: &Net, to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(&net.stack, to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A message there and back.
fn ask(mut stream: impl Read + Write, len: usize) {
    let message: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    stream.write_all(&message).unwrap();
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == message, "another answer");
}

/// Nothing was reset, refused or lost between shards.
fn assert_calm(counters: &Counters) {
    let bad = [
        counters.out_rsts,
        counters.estab_resets,
        counters.attempt_fails,
        counters.steered_lost,
        counters.in_errs,
    ];
    assert_eq!(bad, [0; 5], "{counters:?}");
}

#[test]
fn what_the_kernel_connects_to_is_served_by_all_shards() {
    const COUNT: usize = 200;
    let net = net();
    assert_eq!(net.stack.shard_count(), SHARDS);
    let (at, served) = echo_server(&net);
    let streams: Vec<KernelStream> = (0..COUNT).map(|_| net.connect(at)).collect();
    for stream in &streams {
        ask(stream, 5_000);
    }
    assert_eq!(served.load(Ordering::Relaxed), COUNT);
    assert_eq!(net.stack.connections(), COUNT);
    let counters = net.stack.shard_counters();
    let opened: Vec<u64> = counters.iter().map(|counters| counters.passive_opens).collect();
    assert_eq!(opened.iter().sum::<u64>(), COUNT as u64);
    // A keyed hash gives each about a hundred; fewer than fifty of two hundred comes once in 10¹² runs.
    assert!(opened.iter().all(|&count| count > 50), "{opened:?}");
    let all = net.stack.counters();
    assert_calm(&all);
    // The first packet of a flow may arrive on any queue, and so may the next ones until the kernel has seen
    // the answer. From then on it knows the queue.
    assert!(all.steered <= 2 * COUNT as u64, "{} of {} packets were steered", all.steered, all.in_receives);
}

#[test]
fn a_flow_that_the_kernel_has_forgotten_finds_its_shard() {
    const COUNT: usize = 60;
    let net = net();
    let (at, _) = echo_server(&net);
    let streams: Vec<KernelStream> = (0..COUNT).map(|_| net.connect(at)).collect();
    for stream in &streams {
        ask(stream, 100);
    }
    let before = net.stack.counters().steered;
    // The kernel keeps an entry for three seconds, and checks once every three seconds.
    thread::sleep(Duration::from_secs(7));
    for stream in &streams {
        ask(stream, 100);
    }
    let counters = net.stack.counters();
    // Of sixty, each at random: none with a probability of 10⁻¹⁸.
    assert!(counters.steered > before, "nothing had to be steered");
    assert_calm(&counters);
    assert_eq!(counters.retrans_segs, 0);
}

#[test]
fn what_is_begun_here_is_begun_by_all_shards_and_the_answers_come_back() {
    const COUNT: usize = 40;
    let net = net();
    let (listener, at) = net.listener(0);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || echo(stream));
        }
    });
    let streams: Vec<_> = (0..COUNT).map(|_| connect(&net, at)).collect();
    for stream in &streams {
        ask(stream, 5_000);
    }
    let mut ports: Vec<_> = streams.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), COUNT);
    let counters = net.stack.shard_counters();
    assert!(counters.iter().all(|counters| counters.active_opens == (COUNT / SHARDS) as u64), "{counters:?}");
    // The kernel answers a SYN before it notes the SYN's queue: the SYN-ACK may arrive on another queue, but
    // no later packet.
    let all = net.stack.counters();
    assert!(all.steered <= COUNT as u64, "{} of {} packets were steered", all.steered, all.in_receives);
    assert_calm(&all);
}

#[test]
fn a_port_that_is_asked_for_decides_the_shard() {
    let net = net();
    for port in 5_000..5_016 {
        let (listener, at) = net.listener(0);
        let server = serve(listener, echo);
        let bind = Some(format!("{}:{port}", STACK[0]).parse().unwrap());
        let options = ConnOptions { bind, ..ConnOptions::default() };
        let stream = TcpStream::connect_with(&net.stack, at, &options, None).unwrap();
        assert_eq!(stream.local_addr().unwrap().port(), port);
        ask(&stream, 1_000);
        drop(stream);
        server.join().unwrap();
    }
    let counters = net.stack.shard_counters();
    assert!(counters.iter().all(|counters| counters.active_opens > 0), "{counters:?}");
}

#[test]
fn churn_in_both_directions() {
    const THREADS: usize = 8;
    const EACH: usize = 100;
    let net = net();
    let (at, served) = echo_server(&net);
    let (listener, kernel_at) = net.listener(0);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            thread::spawn(move || echo(stream));
        }
    });
    thread::scope(|scope| {
        for number in 0..THREADS {
            let net = &net;
            scope.spawn(move || {
                for round in 0..EACH {
                    let len = 1 + (number * EACH + round) * 37 % 60_000;
                    if number % 2 == 0 {
                        ask(&net.connect(at), len);
                    } else {
                        ask(&connect(net, kernel_at), len);
                    }
                }
            });
        }
    });
    assert_eq!(served.load(Ordering::Relaxed), THREADS / 2 * EACH);
    assert!(net.stack.drain(PATIENCE), "{} connections are left", net.stack.connections());
    let counters = net.stack.counters();
    assert_eq!(counters.active_opens as usize, THREADS / 2 * EACH);
    assert_eq!((counters.steered_lost, counters.attempt_fails, counters.in_errs), (0, 0, 0));
}

#[test]
fn settings_hold_in_all_shards_and_a_listener_is_one() {
    let net = net();
    net.stack.set_sysctl("tcp_congestion_control", "reno").unwrap();
    assert!(net.stack.set_sysctl("tcp_congestion_control", "vegas").is_err());
    let listener = TcpListener::bind(&net.stack, format!("{}:0", STACK[0])).unwrap();
    let at = listener.local_addr().unwrap();
    assert!(TcpListener::bind(&net.stack, at).is_err(), "in use");
    let clients: Vec<KernelStream> = (0..20).map(|_| net.connect(at)).collect();
    for _ in &clients {
        let (stream, _) = listener.accept().unwrap();
        assert_eq!(stream.info().unwrap().congestion, taut::Algorithm::reno());
        assert_eq!(stream.local_addr().unwrap(), at);
    }
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(listener);
    assert!(TcpListener::bind(&net.stack, at).is_ok(), "free in every shard");
}

#[test]
fn several_shards_need_several_queues() {
    let kind = |builder: taut::StackBuilder| builder.build().map(drop).unwrap_err().kind();
    let (here, there) = taut::device::pipe(taut_core::LinkCaps::plain(1500), 1 << 20).unwrap();
    assert_eq!(kind(net::builder().shards(0)), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(net::builder().shards(2).device(here)), std::io::ErrorKind::InvalidInput);
    assert_eq!(kind(net::builder().shards(2).link_from("rate 1mbit")), std::io::ErrorKind::InvalidInput);
    drop(there);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_runtime_drives_all_shards() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const COUNT: usize = 40;
    let kernel = Kernel::new().unwrap();
    let handle = tokio::runtime::Handle::current();
    let build = || {
        let _inside = handle.enter();
        net::builder().shards(SHARDS as u16).build_tokio()
    };
    let stack = kernel.enter(build).unwrap().unwrap();
    let net = Net { stack: stack.clone(), kernel };
    let listener = stack.listen(format!("{}:7", STACK[0]).parse().unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    let clients = tokio::task::spawn_blocking(move || {
        let streams: Vec<_> = (0..COUNT).map(|_| net.connect(at)).collect();
        for stream in &streams {
            ask(stream, 1_000);
        }
        net
    });
    for _ in 0..COUNT {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 1_000];
            while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..len]).await.unwrap();
            }
        });
    }
    let net = clients.await.unwrap();
    let counters = net.stack.shard_counters();
    assert!(counters.iter().all(|counters| counters.passive_opens > 0), "{counters:?}");
    assert_calm(&net.stack.counters());
}

/// The rate in Gbit/s at which the kernel receives from eight connections, and the packets that each shard
/// received meanwhile.
fn download(shards: u16) -> (f64, Vec<u64>) {
    const SPAN: Duration = Duration::from_millis(700);
    let net = Net::with(|builder| builder.shards(shards).build());
    let listener = TcpListener::bind(&net.stack, format!("{}:9", STACK[0])).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || while stream.write_all(&[7; 200_000]).is_ok() {});
        }
    });
    let streams: Vec<KernelStream> = (0..8).map(|_| net.connect(at)).collect();
    let (taken, start) = (AtomicUsize::new(0), now());
    thread::scope(|scope| {
        for mut stream in streams {
            let taken = &taken;
            scope.spawn(move || {
                let mut buffer = vec![0; 256 * 1024];
                while now() < start + SPAN {
                    taken.fetch_add(stream.read(&mut buffer).unwrap(), Ordering::Relaxed);
                }
            });
        }
    });
    let counters = net.stack.shard_counters();
    let rate = taken.load(Ordering::Relaxed) as f64 * 8e-9 / SPAN.as_secs_f64();
    (rate, counters.iter().map(|counters| counters.in_receives).collect())
}

#[test]
#[ignore = "measures, and prints: make bench-live"]
fn two_shards_beside_one() {
    // Alternately, so that other load on the machine affects both.
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        for shards in [1, 2] {
            let (rate, received) = download(shards);
            println!("{shards} shards: {rate:.1} Gbit/s, {received:?} packets in");
            assert_eq!(received.len(), usize::from(shards));
            rates[usize::from(shards) - 1].push(rate);
        }
    }
    let [one, two] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[1]
    });
    assert!(two > one / 3.0, "{two:.1} Gbit/s with two shards, {one:.1} with one");
}

/// The first shard picks a port, and another one may still have a listener there that is being closed: then
/// it picks another.
#[test]
fn a_free_port_is_free_in_every_shard() {
    let net = net();
    let at: SocketAddr = format!("{}:0", STACK[0]).parse().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let listener = TcpListener::bind(&net.stack, at).unwrap();
                    assert_ne!(listener.local_addr().unwrap().port(), 0);
                }
            });
        }
    });
}
