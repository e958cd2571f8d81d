//! Load and outages, live, against the kernel's TCP over a TUN: thousands of connections at once, a peer that
//! is killed, an interface that goes down under load, a flood of SYNs. The tests run short cases; `make load`
//! runs the long ones.
#![allow(missing_docs, reason = "tests")]

#[path = "it/net/mod.rs"]
mod net;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use net::stranger::{Stranger, packet};
use net::{KERNEL, Net, STACK};
use taut::blocking::{TcpListener, TcpStream};
use taut::device::Interface;
use taut::{ConnOptions, ListenOptions};
use taut_testbed::{PATIENCE, Peer, Service, eventually, now};
use taut_wire::{Flags, TcpHeader, TcpOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// One at a time: they measure speeds and memory.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What threads of a test look at; raised when the test ends, in whichever way.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.raise();
    }
}

/// The kernel's server.
const PORT: u16 = 7_001;
/// Bytes of a request, and of an answer.
const MESSAGE: usize = 200;

fn address(host: &str, port: u16) -> SocketAddr {
    format!("{host}:{port}").parse().unwrap()
}

// ---- many connections ----

/// Resident memory of this process in KiB: stack, kernel's peer and tasks.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// `count` connections at any time, each with ten exchanges and replaced when it is over, for `span` and
/// until there were `least`. None is refused or reset, and all end in order. Returns the most memory in the
/// second and in the last quarter of the span, in KiB.
fn many(count: usize, every: Duration, span: Duration, least: u64) -> (u64, u64) {
    let net = Net::new();
    let respond = Service::Respond { request: MESSAGE, response: MESSAGE };
    let peer = Peer::start(&net.kernel, &[(PORT, respond)]).unwrap();
    let opened = Arc::new(AtomicU64::new(0));
    let begin = now();
    let is_over = move |opened: &AtomicU64| {
        let time = begin.elapsed();
        time >= span && (opened.load(Ordering::Relaxed) >= least || time >= span + PATIENCE)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        let (stack, opened) = (net.stack.clone(), Arc::clone(&opened));
        tasks.spawn_on(
            async move {
                tokio::time::sleep(every * number as u32 / count as u32).await;
                // The first ones are in the middle of their lives.
                let mut exchanges = 1 + number % 10;
                while !is_over(&opened) {
                    let mut stream = stack.connect(address(KERNEL[0], PORT)).await.unwrap();
                    opened.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..exchanges {
                        let mut answer = [0; MESSAGE];
                        stream.write_all(&[1; MESSAGE]).await.unwrap();
                        stream.read_exact(&mut answer).await.unwrap();
                        tokio::time::sleep(every).await;
                        if is_over(&opened) {
                            break;
                        }
                    }
                    exchanges = 10;
                }
            },
            runtime.handle(),
        );
    }
    let (mut most, mut at_once) = ([0; 4], 0);
    while !is_over(&opened) {
        let quarter = (begin.elapsed().as_millis() * 4 / span.as_millis()).min(3) as usize;
        most[quarter] = most[quarter].max(resident_kib());
        at_once = at_once.max(net.stack.connections());
        thread::sleep(span / 40);
    }
    let opened_in_all = opened.load(Ordering::Relaxed);
    println!("{opened_in_all} connections, {at_once} at once; at most {most:?} KiB in the quarters");
    runtime.block_on(tasks.join_all());
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
    let counters = net.stack.counters();
    assert_eq!((counters.attempt_fails, counters.estab_resets), (0, 0));
    drop(peer);
    // A few are between the end of one connection and the next.
    assert!(at_once * 10 >= count * 9, "{at_once} connections at once");
    assert!(opened_in_all >= least, "{opened_in_all} connections");
    (most[1], most[3])
}

#[test]
fn five_hundred_connections_with_churn() {
    let _turn = turn();
    // A connection lives for a second: at least half of the first ones are replaced, however slow the machine
    // is.
    many(500, Duration::from_millis(100), Duration::from_secs(3), 750);
}

#[test]
#[ignore = "80 seconds: make load"]
fn ten_thousand_connections_with_churn() {
    let _turn = turn();
    let (early, late) = many(10_000, Duration::from_secs(2), Duration::from_secs(80), 20_000);
    // Closed connections are in TIME-WAIT for a minute: there are 10,000 more of them at the end, of 100
    // bytes at most.
    assert!(late * 100 <= early * 105, "{early} KiB, then {late} KiB");
}

// ---- outages ----

/// Connections of a process that is killed.
const OF_A_PROCESS: usize = 40;

/// Not a test by itself: a process that connects to the address in its environment, and reads nothing from
/// there. It ends with its parent, which holds the other end of its input.
#[test]
fn peer_process() {
    let Ok(to) = std::env::var("TAUT_TEST_PEER_CONNECTS_TO") else { return };
    let streams: Vec<_> = (0..OF_A_PROCESS).map(|_| std::net::TcpStream::connect(&to).unwrap()).collect();
    let _ = io::stdin().read(&mut [0]);
    drop(streams);
}

/// A process that does not outlive this.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process is killed (SIGKILL) that holds connections which wait for its data, and as many which write more
/// than it takes. Its kernel ends the first by FIN, and the others, which have data that nobody read, by RST.
/// All see it at once.
#[test]
fn the_death_of_a_peer_is_noticed_by_all_its_connections() {
    let _turn = turn();
    let net = Net::new();
    let listener = TcpListener::bind(&net.stack, format!("{}:0", STACK[0])).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "peer_process", "--nocapture"])
        .env("TAUT_TEST_PEER_CONNECTS_TO", listener.local_addr().unwrap().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut process = Process(net.kernel.namespace.spawn(&mut command).unwrap());
    let waiting: Vec<_> = (0..OF_A_PROCESS)
        .map(|number| {
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || {
                if number % 2 == 0 {
                    return stream.read(&mut [0]).map_err(|error| error.kind());
                }
                // More than the kernel's receive buffer (6 MB at most) and our send buffer hold.
                let part = [1; 100_000];
                (0..1_000).try_for_each(|_| stream.write_all(&part)).map(|()| 0).map_err(|error| error.kind())
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    assert!(waiting.iter().all(|thread| !thread.is_finished()), "nothing has happened yet");
    let killed = now();
    process.kill();
    eventually("the end of all connections", || waiting.iter().all(thread::JoinHandle::is_finished));
    for (number, thread) in waiting.into_iter().enumerate() {
        let end = thread.join().unwrap();
        let expected = if number % 2 == 0 { Ok(0) } else { Err(io::ErrorKind::ConnectionReset) };
        assert_eq!(end, expected, "connection {number}");
    }
    println!("{OF_A_PROCESS} connections ended after {} ms", killed.elapsed().as_millis());
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
}

/// Moves bytes into a sink of the kernel until told to stop, at most `rate` in a second; `sent` counts them.
fn bulk(net: &Net, rate: Option<u64>, sent: &Arc<AtomicU64>, stop: &Stop) -> thread::JoinHandle<()> {
    let options = ConnOptions { max_pacing_rate: rate, ..ConnOptions::default() };
    let mut stream = TcpStream::connect_with(&net.stack, address(KERNEL[0], PORT), &options, None).unwrap();
    let (sent, stop) = (Arc::clone(sent), Arc::clone(&stop.0));
    thread::spawn(move || {
        let part = [3; 100_000];
        while !stop.load(Ordering::Relaxed) {
            stream.write_all(&part).unwrap();
            sent.fetch_add(part.len() as u64, Ordering::Relaxed);
        }
    })
}

/// The interface is down for a while: connections in full flight stay, and go on when it is up again.
#[test]
fn an_interface_that_is_down_under_load_loses_nothing_but_time() {
    const DOWN: Duration = Duration::from_millis(700);
    let _turn = turn();
    let net = Net::new();
    let peer = Peer::start(&net.kernel, &[(PORT, Service::Sink)]).unwrap();
    let (sent, stop) = (Arc::default(), Stop::default());
    let writers: Vec<_> = (0..4).map(|_| bulk(&net, None, &sent, &stop)).collect();
    let set = |up: bool| {
        let change = || {
            let interface = Interface::open("taut0").unwrap();
            if up { interface.set_up() } else { interface.set_down() }
        };
        net.kernel.enter(change).unwrap().unwrap();
    };
    thread::sleep(Duration::from_millis(300));
    for _ in 0..2 {
        set(false);
        thread::sleep(DOWN);
        assert!(net.stack.closed().is_none());
        let before = peer.taken();
        set(true);
        let up = now();
        // More than what was in flight: the connections move again.
        while peer.taken() < before + 20_000_000 {
            assert!(up.elapsed() < PATIENCE, "{} bytes", peer.taken() - before);
            thread::sleep(Duration::from_millis(1));
        }
        println!("20 MB {} ms after the interface was up", up.elapsed().as_millis());
    }
    stop.raise();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
    assert_eq!(peer.taken(), sent.load(Ordering::Relaxed));
    assert_eq!(net.stack.counters().estab_resets, 0);
}

// ---- a flood ----

/// Half-open connections of the flooded listener: full after some milliseconds.
const BACKLOG: u32 = 1_024;
/// The port of that listener.
const FLOODED: u16 = 9;
/// Bytes in a second.
const GBIT: Option<u64> = Some(125_000_000);

/// A SYN from one of 65,536 addresses that do not exist.
fn forged_syn(number: u32) -> Vec<u8> {
    let header = TcpHeader {
        src_port: 1_024 + (number >> 16) as u16,
        dst_port: FLOODED,
        seq: number.wrapping_mul(2_654_435_761),
        flags: Flags::SYN,
        window: 65_535,
        options: TcpOptions { mss: Some(1_460), ..TcpOptions::default() },
        ..TcpHeader::default()
    };
    packet(Ipv4Addr::from_bits(0x0a42_0000 | (number & 0xffff)), &header, &[])
}

/// Sends so many SYNs in a millisecond while `on` is set; counts those that the kernel took.
fn flooder(net: &Net, per_ms: u32, on: &Arc<AtomicBool>, stop: &Stop) -> thread::JoinHandle<u64> {
    let (stranger, on, stop) = (Stranger::new(net), Arc::clone(on), Arc::clone(&stop.0));
    thread::spawn(move || {
        let (mut number, mut sent) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let next = now() + Duration::from_millis(1);
            if on.load(Ordering::Relaxed) {
                for _ in 0..per_ms {
                    number += 1;
                    sent += u64::from(stranger.send(&forged_syn(number)));
                }
            }
            thread::sleep(next.saturating_duration_since(now()));
        }
        sent
    })
}

/// Goodput of one connection in `rounds` pairs of spans, without a flood and with one, as the median of their
/// ratios; and how long clients of the flooded port took to connect and be answered, at most.
fn flooded(rounds: usize, span: Duration, per_ms: u32, rate: Option<u64>) -> (f64, Duration) {
    let net = Net::new();
    let peer = Peer::start(&net.kernel, &[(PORT, Service::Sink)]).unwrap();
    let options = ListenOptions { backlog: BACKLOG, ..ListenOptions::default() };
    let listener = TcpListener::bind_with(&net.stack, address(STACK[0], FLOODED), options).unwrap();
    let server = thread::spawn(move || {
        // Forged clients never complete a handshake: all that come are honest.
        for _ in 0..rounds {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&request).unwrap();
        }
        // It stays until the flood is over.
        listener
    });
    let (sent, stop, on) = (Arc::default(), Stop::default(), Arc::new(AtomicBool::new(false)));
    let writer = bulk(&net, rate, &sent, &stop);
    let flooder = flooder(&net, per_ms, &on, &stop);
    thread::sleep(span);
    let (mut ratios, mut slowest) = (Vec::new(), Duration::ZERO);
    for _ in 0..rounds {
        let mut taken = [0; 2];
        for (is_flooded, taken) in [false, true].into_iter().zip(&mut taken) {
            on.store(is_flooded, Ordering::Relaxed);
            thread::sleep(span / 4);
            let (begin, before) = (now(), peer.taken());
            if is_flooded {
                let mut client = net.connect(address(STACK[0], FLOODED));
                client.write_all(b"ping").unwrap();
                client.read_exact(&mut [0; 4]).unwrap();
                slowest = slowest.max(begin.elapsed());
            }
            thread::sleep(span.saturating_sub(begin.elapsed()));
            *taken = (peer.taken() - before) * 1_000_000 / begin.elapsed().as_micros() as u64;
        }
        println!("{} MB/s quiet, {} MB/s flooded", taken[0] / 1_000_000, taken[1] / 1_000_000);
        ratios.push(taken[1] as f64 / taken[0] as f64);
    }
    stop.raise();
    writer.join().unwrap();
    let syns = flooder.join().unwrap();
    drop(server.join().unwrap());
    let counters = net.stack.counters();
    let a_second = syns as f64 / (rounds as f64 * 1.25 * span.as_secs_f64());
    let cookies = counters.syncookies_sent;
    println!(
        "{a_second:.0} SYNs a second, {cookies} of {syns} answered by cookies; a client was served within {slowest:?}"
    );
    assert!(cookies > 0, "the backlog was full");
    ratios.sort_by(f64::total_cmp);
    (ratios[rounds / 2], slowest)
}

#[test]
fn a_flood_of_syns_leaves_room_for_others() {
    let _turn = turn();
    // Honest clients are served, and bytes move. How many, `make load` measures.
    let (ratio, _) = flooded(2, Duration::from_millis(600), 20, GBIT);
    assert!(ratio > 0.0, "nothing arrived beside the flood");
}

#[test]
#[ignore = "half a minute: make load"]
fn a_flood_of_syns_leaves_four_fifths_to_others() {
    let _turn = turn();
    let (ratio, slowest) = flooded(9, Duration::from_secs(1), 100, GBIT);
    println!("{ratio:.2} of the goodput of 1 Gbit/s");
    assert!(ratio >= 0.8, "{ratio:.2} of the goodput");
    assert!(slowest < Duration::from_secs(3));
}

/// Traffic that takes all processor time there is must share it with the flood.
#[test]
#[ignore = "half a minute: make load"]
fn a_flood_of_syns_beside_traffic_at_full_speed() {
    let _turn = turn();
    let (ratio, slowest) = flooded(9, Duration::from_secs(1), 20, None);
    println!("{ratio:.2} of the goodput at full speed");
    assert!(ratio >= 0.2, "{ratio:.2} of the goodput");
    assert!(slowest < Duration::from_secs(3));
}
