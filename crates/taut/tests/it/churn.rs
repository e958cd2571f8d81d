//! Many connections, one after another and all at the same time, against the kernel's TCP: all bytes are
//! correct, and no connection is leaked.

use crate::net;

use std::io::{Read, Write};
use std::time::Duration;

use net::{Net, STACK};
use taut::StackBuilder;
use taut_testbed::{Meter, Noise, PATIENCE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Connections in all, and how many at once.
const CHURN: usize = 10_000;
const AT_ONCE: usize = 100;
const TRANSFERS: u64 = 1_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server on the kernel's sockets, on a thread, until [`stop`](Self::stop).
struct KernelServer {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl KernelServer {
    fn start<F>(
        listener: std::net::TcpListener,
        serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        listener.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let mut tasks = JoinSet::new();
                loop {
                    tokio::select! {
                        accepted = listener.accept() => drop(tasks.spawn(serve(accepted.unwrap().0))),
                        _ = &mut stopped => break,
                    }
                }
                // Panics of the tasks are the test's.
                tasks.join_all().await;
            });
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn ten_thousand_connections_are_opened_used_and_closed() {
    let net = Net::with(StackBuilder::build);
    // Either side is the one that connects, and closes first.
    for taut_connects in [true, false] {
        let served = if taut_connects { connect_to_kernel(&net) } else { connect_from_kernel(&net) };
        assert_eq!(served, CHURN);
        assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
    }
    let counters = net.stack.counters();
    assert_eq!(counters.active_opens, CHURN as u64);
    assert_eq!(counters.passive_opens, CHURN as u64);
    assert_eq!(counters.attempt_fails, 0);
    assert_eq!(counters.estab_resets, 0);
}

fn connect_to_kernel(net: &Net) -> usize {
    let (listener, address) = net.listener(0);
    let server = KernelServer::start(listener, |mut stream| async move {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        stream.write_all(&byte).await.unwrap();
        assert_eq!(stream.read(&mut byte).await.unwrap(), 0);
    });
    let served = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for lane in 0..AT_ONCE {
            let stack = net.stack.clone();
            tasks.spawn(async move {
                for turn in 0..CHURN / AT_ONCE {
                    let mut stream = stack.connect(address).await.unwrap();
                    let sent = [(lane ^ turn) as u8];
                    stream.write_all(&sent).await.unwrap();
                    let mut got = [0];
                    stream.read_exact(&mut got).await.unwrap();
                    assert_eq!(got, sent);
                }
                CHURN / AT_ONCE
            });
        }
        tasks.join_all().await.into_iter().sum()
    });
    server.stop();
    served
}

fn connect_from_kernel(net: &Net) -> usize {
    const THREADS: usize = 4;
    let runtime = runtime();
    let listener = net.stack.listen(format!("{}:0", STACK[0]).parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let client = || {
        for _ in 0..CHURN / THREADS {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"x").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"x");
        }
    };
    let clients = || std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(client))));
    std::thread::scope(|scope| {
        scope.spawn(|| net.kernel.enter(clients).unwrap());
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..CHURN {
                let (mut stream, _) = listener.accept().await.unwrap();
                tasks.spawn(async move {
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).await.unwrap();
                    stream.write_all(&all).await.unwrap();
                });
            }
            tasks.join_all().await.len()
        })
    })
}

#[test]
fn a_thousand_transfers_at_once_with_pauses() {
    let net = Net::new();
    let (listener, address) = net.listener(1);
    // The kernel's side sends everything back, so every byte crosses twice.
    let server = KernelServer::start(listener, |mut stream| async move {
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    });
    let bytes: u64 = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for seed in 1..=TRANSFERS {
            let stack = net.stack.clone();
            tasks.spawn(async move {
                let stream = stack.connect(address).await.unwrap();
                let (mut read, mut write) = stream.into_split();
                let size = (seed * 7_919) % 300_000;
                let sending = tokio::spawn(async move {
                    let mut noise = Noise::new(seed * 31);
                    let mut meter = Meter::default();
                    let (mut left, mut piece) = (size, 1 + seed % 977);
                    while left > 0 {
                        let part = noise.bytes(left.min(piece) as usize);
                        meter.update(&part);
                        write.write_all(&part).await.unwrap();
                        left -= part.len() as u64;
                        piece = 1 + (piece * 137 + seed) % 60_000;
                        if piece % 5 == 0 {
                            tokio::time::sleep(Duration::from_millis(piece % 40)).await;
                        }
                    }
                    drop(write);
                    meter.finish()
                });
                let (mut meter, mut buffer) =
                    (Meter::default(), vec![0; 1_000 + (seed as usize * 53) % 20_000]);
                while let count @ 1.. = read.read(&mut buffer).await.unwrap() {
                    meter.update(&buffer[..count]);
                    if meter.bytes() % 7 == 0 {
                        tokio::time::sleep(Duration::from_millis(meter.bytes() % 30)).await;
                    }
                }
                let got = meter.bytes();
                assert_eq!(got, size, "transfer {seed}");
                assert_eq!(meter.finish(), sending.await.unwrap(), "transfer {seed}");
                got
            });
        }
        tasks.join_all().await.into_iter().sum()
    });
    server.stop();
    let expected: u64 = (1..=TRANSFERS).map(|seed| (seed * 7_919) % 300_000).sum();
    assert_eq!(bytes, expected);
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
}
