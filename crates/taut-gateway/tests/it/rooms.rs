//! Where bytes of one connection may wait, and how fast and how urgently they leave, between two kernels:
//! GW-99, 100, 247 and 248 of `docs/spec/gateway.md`; and between two stacks: WG-41 of
//! `docs/spec/wireguard.md`.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use socket2::{SockRef, Socket};
use taut::{ConnOptions, Stack, device};
use taut_core::LinkCaps;
use taut_gateway::{Link, Resolver, Rules, Server, Settings};
use taut_testbed::{Emulator, Port, Watcher, Ways, eventually, now};
use tokio::io::AsyncReadExt as _;

use crate::live::{self, SERVER, World, at};
use crate::support::one_server::OneServer;

#[test]
fn gw_99_no_acknowledgement_of_a_relay_is_delayed() {
    let Some(world) = live::plain() else { return };
    for body in [1, 1_000, 20_000, 60_000] {
        // By Nagle's rule, a body waits for the ACK of its head.
        let (mut client, mut served) = world.pair();
        for _ in 0..5 {
            client.write_all(&[1; 200]).unwrap();
            client.write_all(&vec![2; body]).unwrap();
            served.read_exact(&mut vec![0; 200 + body]).unwrap();
            served.write_all(&[3]).unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    }
    assert_eq!(world.stack.counters().delayed_acks, 0);
}

/// Unsent bytes of the sockets in this namespace, as `ss` has them.
fn unsent(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.strip_prefix("notsent:")?.parse().ok()).collect()
}

#[test]
fn gw_100_a_slow_line_has_small_rooms_before_it() {
    const RATE: u64 = 20_000_000;
    let Some(world) = live::plain() else { return };
    world.far.run("ip link set lo mtu 1500").unwrap();
    world.far.limit_rate("lo", RATE, 16_000, 250_000).unwrap();
    let (mut client, mut served) = world.pair();
    let arrived = AtomicU64::new(0);
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It ends when the other side is dropped.
            while client.write_all(&[7; 16_384]).is_ok() {}
        });
        let reader = scope.spawn(|| {
            let mut part = [0; 65_536];
            while arrived.load(Relaxed) < 6 << 20 {
                arrived.fetch_add(live::again(|| served.read(&mut part)).unwrap() as u64, Relaxed);
            }
            drop(served);
        });
        eventually("the line is full", || {
            if arrived.load(Relaxed) > 1 << 20 {
                let text = world.far.run("ss -Htin state established").unwrap();
                // The server's socket sends nothing: the other one is the gateway's.
                samples.push(unsent(&text).into_iter().max().unwrap_or(0));
            }
            reader.is_finished()
        });
    });
    samples.sort_unstable();
    // 4 ms of the rate are 10,000 bytes, and a piece as long may lie above; without rooms there are 131,072.
    let median = samples[samples.len() / 2];
    assert!(median <= 40_000, "{samples:?}");
}

fn settings(rules: &[&str]) -> Settings {
    Settings { rules: Rules::parse(rules.iter().copied()).unwrap(), ..Settings::default() }
}

#[test]
fn gw_247_connections_of_a_rule_get_its_rate_and_no_more() {
    // 32 Mbit/s are 4,000,000 bytes a second, 4 ms of them 16,000.
    const BYTES: usize = 2_000_000;
    let Some(world) = World::new(settings(&["allow tcp any rate 32mbit"]), Resolver::default(), &[]) else {
        return;
    };
    world.far.run("ip link set lo mtu 1500").unwrap();
    let (mut pairs, began) = ([(); 2].map(|()| world.pair()), now());
    for is_up in [true, false] {
        let (arrived, excess) = (AtomicU64::new(0), AtomicU64::new(0));
        let began = if is_up { began } else { now() };
        std::thread::scope(|scope| {
            for (client, served) in &mut pairs {
                let (from, to) = if is_up { (client, served) } else { (served, client) };
                scope.spawn(move || from.write_all(&[7; BYTES]).unwrap());
                let (arrived, excess) = (&arrived, &excess);
                scope.spawn(move || {
                    let (mut part, mut left) = ([0; 65_536], BYTES);
                    while left > 0 {
                        let most = left.min(part.len());
                        let count = live::again(|| to.read(&mut part[..most])).unwrap();
                        left -= count;
                        let all = arrived.fetch_add(count as u64, Relaxed) + count as u64;
                        let most = began.elapsed().as_micros() as u64 * 4 + 16_004;
                        excess.fetch_max(all.saturating_sub(most), Relaxed);
                    }
                });
            }
        });
        assert_eq!((arrived.load(Relaxed), excess.load(Relaxed)), (2 * BYTES as u64, 0));
    }
}

#[test]
fn gw_247_datagrams_beyond_the_rate_are_dropped_and_counted() {
    // 10,000 bytes a second, of which 3,000 at once.
    let Some(world) = World::new(settings(&["allow udp any rate 80kbit"]), Resolver::default(), &[]) else {
        return;
    };
    let server = world.far.enter(|| UdpSocket::bind(at(SERVER, 9))).unwrap().unwrap();
    server.set_nonblocking(true).unwrap();
    let (client, began) = (world.udp(at(SERVER, 9)), now());
    let mut arrived = 0;
    eventually("some were dropped", || {
        client.send(&[7; 1_000]).unwrap();
        while server.recv(&mut [0; 2_000]).is_ok() {
            arrived += 1;
        }
        arrived > 0 && world.server.look(|gateway| gateway.counters().over_rate) >= 20
    });
    let most = 3_000 + began.elapsed().as_micros() as u64 / 100;
    assert!(arrived <= most / 1_000, "{arrived} of 1,000 bytes where {most} may be");
}

#[test]
fn gw_248_a_class_is_the_priority_of_the_hosts_socket() {
    let rules = ["allow tcp any port 22 class interactive", "allow tcp any port 873 class bulk"];
    let sockets = Arc::new(Mutex::new(Vec::<Socket>::new()));
    let (kept, mut listener) = (Arc::clone(&sockets), None);
    let world = World::by(settings(&rules), Resolver::default(), &[], |far| {
        let own = far.enter(|| TcpListener::bind((std::net::Ipv4Addr::from(SERVER), 0))).unwrap().unwrap();
        let to: SocketAddr = own.local_addr().unwrap();
        listener = Some(own);
        OneServer(to, move |stream| {
            kept.lock().unwrap().push(SockRef::from(&stream).try_clone().unwrap());
            stream
        })
    });
    let Some(world) = world else { return };
    // Linux: TC_PRIO_INTERACTIVE, TC_PRIO_BULK, TC_PRIO_BESTEFFORT.
    for (place, (port, priority)) in [(22, 6), (873, 2), (80, 0)].into_iter().enumerate() {
        let mut client = world.connect(at(SERVER, port)).unwrap();
        let (mut served, _) = listener.as_ref().unwrap().accept().unwrap();
        client.write_all(&[1]).unwrap();
        served.read_exact(&mut [0]).unwrap();
        assert_eq!(sockets.lock().unwrap()[place].priority().unwrap(), priority, "port {port}");
    }
}

/// A client of a proxy that goes out by a stack, over 20 ms and losses, which bound the window. Its kernel
/// sends pieces that are no whole segments, as the room before the line is small.
#[test]
fn wg_41_a_relay_that_waits_for_a_stack_sends_whole_segments() {
    const BYTES: usize = 3_000_000;
    // 1,420 bytes less 20, 20, and 12 for timestamps.
    const MSS: usize = 1_368;
    let pipe = || device::pipe(LinkCaps::offloading(1_420), 1 << 20).unwrap();
    let ((near, near_port), (far, far_port)) = (pipe(), pipe());
    let queues = |text: &[&str]| text.iter().map(|text| text.parse().unwrap()).collect();
    let ways = Ways {
        there: queues(&["netem limit 1000000 delay 10ms loss 1%"]),
        back: queues(&["netem limit 1000000 delay 10ms"]),
        is_network: true,
        ..Ways::default()
    };
    let unwatched = || -> Watcher { Arc::new(Mutex::new(())) };
    let _line =
        Emulator::start(Port::Pipe(near_port), Port::Pipe(far_port), ways, [unwatched(), unwatched()])
            .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let segments = runtime.block_on(async {
        let near = Stack::builder().address("10.0.2.2/24").device(near).build_tokio().unwrap();
        let far = Stack::builder().address("10.0.2.15/24").device(far).build_tokio().unwrap();
        let listener = taut::TcpListener::bind(&far, "10.0.2.15:80").await.unwrap();
        let clients = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = clients.local_addr().unwrap();
        let options = ConnOptions { nodelay: true, notsent_lowat: 128 << 10, ..ConnOptions::default() };
        let way = Link { stack: near.clone(), options };
        let proxy = Server::new(Settings::default(), Resolver::default(), Box::new(|_| {}));
        tokio::spawn(async move { proxy.proxy(clients, Arc::new(way), None).await });
        let client = std::thread::spawn(move || {
            let mut client = std::net::TcpStream::connect(at).unwrap();
            // SOCKS4.
            client.write_all(&[4, 1, 0, 80, 10, 0, 2, 15, 0]).unwrap();
            client.read_exact(&mut [0; 8]).unwrap();
            client.write_all(&vec![7; BYTES]).unwrap();
        });
        let (mut served, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        served.read_to_end(&mut all).await.unwrap();
        client.join().unwrap();
        assert_eq!(all.len(), BYTES);
        let counters = near.counters();
        (counters.out_segs - counters.retrans_segs) as usize
    });
    // A few more for the handshake and the end. With each piece's end by itself there are 4 to 14 % more.
    assert!(segments <= BYTES / MSS * 51 / 50, "{segments} of {}", BYTES / MSS);
}
