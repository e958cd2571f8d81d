//! The drivers of systems without epoll and timerfd, run on Linux: a task by tokio's time alone, and a thread
//! that parks. Their devices have wakers, no descriptors.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests that read the clock")]

use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taut::device::{Device, LinkCaps, channel, pipe};
use taut::{Stack, StackBuilder, TcpListener, TcpStream, blocking};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Longer than anything here takes on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: &str = "10.0.0.2:7";

/// A cable between two devices that ring bells. `lose` packets of at least 200 bytes get lost on their way
/// there.
struct Cable {
    lose: Arc<AtomicU32>,
    /// Dropped with it: then its threads let go of the ends, and the devices are gone.
    _whole: Arc<()>,
}

fn cable(caps: LinkCaps) -> (Device, Device, Cable) {
    let ((near, near_end), (far, far_end)) = (channel(caps, 1 << 20), channel(caps, 1 << 20));
    let ends = [Arc::new(near_end), Arc::new(far_end)];
    let (lose, whole) = (Arc::new(AtomicU32::new(0)), Arc::new(()));
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to, lose) = (Arc::clone(&ends[from]), Arc::clone(&ends[to]), Arc::clone(&lose));
        let whole = Arc::downgrade(&whole);
        thread::spawn(move || {
            while whole.strong_count() > 0 {
                // Not by `recv`, which would keep the end while it waits.
                let Some(parcel) = from.try_recv() else {
                    thread::sleep(Duration::from_micros(100));
                    continue;
                };
                let is_lost = parcel.packet().len() >= 200
                    && lose
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                        .is_ok();
                if !is_lost {
                    to.put(&parcel.packet());
                }
            }
        });
    }
    (near, far, Cable { lose, _whole: whole })
}

fn near(device: Device) -> StackBuilder {
    Stack::builder().device(device).address("10.0.0.1/24").portable_driver()
}

fn far(device: Device) -> StackBuilder {
    Stack::builder().device(device).address("10.0.0.2/24").portable_driver()
}

/// In both kinds of runtime. A test that hangs fails.
fn in_runtimes<F: Future<Output = ()>>(test: impl Fn() -> F) {
    let mut single = tokio::runtime::Builder::new_current_thread();
    let mut multi = tokio::runtime::Builder::new_multi_thread();
    for runtime in [&mut single, multi.worker_threads(3)] {
        runtime.enable_all().build().unwrap().block_on(async {
            timeout(PATIENCE, test()).await.expect("it hangs");
        });
    }
}

/// Bytes that a mistake in their order would change.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

async fn echo(listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        tokio::spawn(async move {
            let (mut from, mut to) = stream.into_split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
    }
}

/// A megabyte there and back, in packets and in super-packets, over wakers and over a pipe's descriptors.
#[test]
fn bytes_arrive_unchanged() {
    in_runtimes(|| async {
        for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
            for has_descriptors in [false, true] {
                let (here, there, _cable) = if has_descriptors {
                    let (here, there) = pipe(caps, 1 << 20).unwrap();
                    (Device::from(here), Device::from(there), None)
                } else {
                    let (here, there, cable) = cable(caps);
                    (here, there, Some(cable))
                };
                let (client, server) = (near(here).build_tokio().unwrap(), far(there).build_tokio().unwrap());
                tokio::spawn(echo(TcpListener::bind(&server, SERVER).await.unwrap()));
                let stream = TcpStream::connect(&client, SERVER).await.unwrap();
                let (mut from, mut to) = stream.into_split();
                let data = pattern(1 << 20);
                let sent = data.clone();
                let writer = tokio::spawn(async move {
                    to.write_all(&sent).await.unwrap();
                    to.shutdown().await.unwrap();
                });
                let mut back = Vec::new();
                from.read_to_end(&mut back).await.unwrap();
                writer.await.unwrap();
                assert!(back == data, "{} bytes of {}", back.len(), data.len());
            }
        }
    });
}

/// With the only packet in flight lost, nothing but a timer sends it again.
#[test]
fn a_lost_packet_is_sent_again_when_its_time_comes() {
    in_runtimes(|| async {
        let (here, there, cable) = cable(LinkCaps::plain(1_500));
        let (client, server) = (near(here).build_tokio().unwrap(), far(there).build_tokio().unwrap());
        tokio::spawn(echo(TcpListener::bind(&server, SERVER).await.unwrap()));
        let mut stream = TcpStream::connect(&client, SERVER).await.unwrap();
        let mut back = [0; 500];
        for _ in 0..3 {
            cable.lose.store(1, Ordering::SeqCst);
            let before = client.counters().retrans_segs;
            stream.write_all(&pattern(500)).await.unwrap();
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back[..], pattern(500));
            assert_eq!(cable.lose.load(Ordering::SeqCst), 0);
            assert!(client.counters().retrans_segs > before);
        }
    });
}

/// A hundred connections at the same time, each with its own bytes.
#[test]
fn many_tasks_share_a_stack() {
    in_runtimes(|| async {
        let (here, there, _cable) = cable(LinkCaps::offloading(1_500));
        let (client, server) = (near(here).build_tokio().unwrap(), far(there).build_tokio().unwrap());
        tokio::spawn(echo(TcpListener::bind(&server, SERVER).await.unwrap()));
        let tasks: Vec<_> = (0..100_u8)
            .map(|number| {
                let client = client.clone();
                tokio::spawn(async move {
                    let mut stream = TcpStream::connect(&client, SERVER).await.unwrap();
                    for round in 0..20_u8 {
                        let sent = [number ^ round; 300];
                        stream.write_all(&sent).await.unwrap();
                        let mut back = [0; 300];
                        stream.read_exact(&mut back).await.unwrap();
                        assert_eq!(back, sent);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Packets wait a millisecond in front of each device, so that every exchange needs two deadlines which a
/// task's write moves. One that nobody noticed would leave the packet to the sender's retransmission, after
/// 200 ms.
#[test]
fn no_earlier_deadline_is_overlooked() {
    const EXCHANGES: u64 = 500;
    in_runtimes(|| async {
        let (here, there, _cable) = cable(LinkCaps::plain(1_500));
        let client = near(here).link_from("delay 1ms").build_tokio().unwrap();
        let server = far(there).link_from("delay 1ms").build_tokio().unwrap();
        tokio::spawn(echo(TcpListener::bind(&server, SERVER).await.unwrap()));
        let mut stream = TcpStream::connect(&client, SERVER).await.unwrap();
        let start = Instant::now();
        for number in 0..EXCHANGES {
            stream.write_all(&number.to_be_bytes()).await.unwrap();
            assert_eq!(stream.read_u64().await.unwrap(), number);
        }
        assert!(start.elapsed() >= Duration::from_millis(2) * EXCHANGES as u32, "the delay is there");
        let again = client.counters().retrans_segs + server.counters().retrans_segs;
        // A machine that stops for 200 ms now and then is no mistake of the driver.
        assert!(again <= EXCHANGES / 10, "{again} retransmissions in {EXCHANGES} exchanges");
    });
}

/// The end of the stack, and that of the device, reach every task that waits.
#[test]
fn waiting_tasks_are_told_of_the_end() {
    in_runtimes(|| async {
        for device_goes in [false, true] {
            let (here, there, cable) = cable(LinkCaps::plain(1_500));
            let (client, server) = (near(here).build_tokio().unwrap(), far(there).build_tokio().unwrap());
            let listener = TcpListener::bind(&server, SERVER).await.unwrap();
            let mut stream = TcpStream::connect(&client, SERVER).await.unwrap();
            let _accepted = listener.accept().await.unwrap();
            let reader = tokio::spawn(async move { stream.read_u8().await.unwrap_err().kind() });
            let accepting = TcpListener::bind(&client, "10.0.0.1:9").await.unwrap();
            let acceptor = tokio::spawn(async move { accepting.accept().await.unwrap_err().kind() });
            tokio::time::sleep(Duration::from_millis(20)).await;
            let expected = if device_goes {
                drop(cable);
                io::ErrorKind::NetworkDown
            } else {
                drop(client);
                io::ErrorKind::NotConnected
            };
            assert_eq!(reader.await.unwrap(), expected);
            assert_eq!(acceptor.await.unwrap(), expected);
        }
    });
}

/// The thread that parks serves the blocking sockets: bytes, a retransmission, time-outs, and the end.
#[test]
fn a_parked_thread_serves_blocking_sockets() {
    let (here, there, cable) = cable(LinkCaps::plain(1_500));
    let (client, server) = (near(here).build().unwrap(), far(there).build().unwrap());
    let listener = blocking::TcpListener::bind(&server, SERVER).unwrap();
    let echo = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut to = stream.try_clone().unwrap();
        let _ = io::copy(&mut { stream }, &mut to);
    });
    let mut stream = blocking::TcpStream::connect(&client, SERVER).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let start = Instant::now();
    assert!(matches!(
        stream.read(&mut [0]).unwrap_err().kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ));
    assert!(start.elapsed() >= Duration::from_millis(30));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let data = pattern(1 << 20);
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&data).unwrap());
        let mut back = vec![0; data.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == data);
    });
    // On a busy machine the cable may lose a needless probe instead: then another write is lost.
    while client.counters().retrans_segs + server.counters().retrans_segs == 0 {
        cable.lose.store(1, Ordering::SeqCst);
        stream.write_all(&data[..500]).unwrap();
        stream.read_exact(&mut [0; 500]).unwrap();
    }
    let mut reader = stream.try_clone().unwrap();
    let waiting = thread::spawn(move || reader.read(&mut [0]).unwrap_err().kind());
    thread::sleep(Duration::from_millis(20));
    drop(cable);
    assert_eq!(waiting.join().unwrap(), io::ErrorKind::NetworkDown);
    drop((client, server));
    echo.join().unwrap();
}

/// It cannot wait on descriptors, and says so.
#[test]
fn a_parked_thread_refuses_descriptors() {
    let (here, _there) = pipe(LinkCaps::plain(1_500), 1 << 20).unwrap();
    let refused = near(here.into()).build().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("tokio"), "{refused}");
}

/// Nothing to do costs nothing.
#[test]
fn an_idle_stack_does_not_spin() {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The runtime, with both drivers, is this thread; the cable's threads are others.
    runtime.block_on(async {
        let (here, there, _cable) = cable(LinkCaps::plain(1_500));
        let (client, server) = (near(here).build_tokio().unwrap(), far(there).build_tokio().unwrap());
        let listener = TcpListener::bind(&server, SERVER).await.unwrap();
        let mut stream = TcpStream::connect(&client, SERVER).await.unwrap();
        let mut accepted = listener.accept().await.unwrap().0;
        stream.write_all(b"once").await.unwrap();
        accepted.read_exact(&mut [0; 4]).await.unwrap();
        let before = ticks();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let burnt = ticks() - before;
        assert!(burnt <= 5, "{} ms of CPU in a second of nothing to do", burnt * 10);
    });
}
