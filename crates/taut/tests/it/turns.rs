//! Turns of writers and readers (docs/spec/sockets.md, "Turns"): tasks of one thread whose connections always
//! have room, or data.
#![cfg(feature = "tokio")]

use crate::pair;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use taut::device::{FarEnd, LinkCaps, channel};
use taut::{Bytes, Stack, TcpListener, TcpStream, UdpSocket};
use tokio::io::AsyncWriteExt as _;
use tokio::task::{JoinSet, yield_now};

const PEER: &str = "10.0.0.2:7";
const PIECE: usize = 64 << 10;
const TURN: usize = 1 << 20;
const TOTAL: usize = 4 << 20;

/// A connection with room for everything that is written here, sent or not.
async fn roomy(stack: &Stack) -> TcpStream {
    let stream = TcpStream::connect(stack, PEER).await.unwrap();
    stream.set_sndbuf(16 << 20).unwrap();
    stream
}

#[tokio::test]
async fn turn_01_a_writer_that_finds_room_lets_other_tasks_run() {
    let (near, far) = pair::pair(|builder| builder);
    let _listener = TcpListener::bind(&far, PEER).await.unwrap();
    for kind in ["write", "vectored", "bytes", "poll_bytes"] {
        let mut stream = roomy(&near).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let other = Arc::clone(&runs);
        let other = tokio::spawn(async move {
            loop {
                other.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        });
        yield_now().await;
        let before = runs.load(Ordering::Relaxed);
        let piece = Bytes::from(vec![1; PIECE]);
        for _ in 0..TOTAL / PIECE {
            match kind {
                "write" => assert_eq!(stream.write(&piece).await.unwrap(), PIECE),
                "vectored" => {
                    let halves = piece.split_at(PIECE / 2);
                    let halves = [std::io::IoSlice::new(halves.0), std::io::IoSlice::new(halves.1)];
                    assert_eq!(stream.write_vectored(&halves).await.unwrap(), PIECE);
                }
                "bytes" => stream.write_all_bytes(piece.clone()).await.unwrap(),
                _ => {
                    let mut left = piece.clone();
                    while !left.is_empty() {
                        std::future::poll_fn(|cx| stream.poll_write_bytes(cx, &mut left)).await.unwrap();
                    }
                }
            }
        }
        // After each turn but the last, which nothing follows.
        let turns = runs.load(Ordering::Relaxed) - before;
        assert!(turns >= TOTAL / TURN - 1, "{kind}: the other task ran {turns} times");
        other.abort();
    }
}

#[tokio::test]
async fn turn_02_no_writer_is_more_than_a_turn_ahead() {
    let (near, far) = pair::pair(|builder| builder);
    let _listener = TcpListener::bind(&far, PEER).await.unwrap();
    let written: Arc<[AtomicUsize; 3]> = Arc::default();
    // All are open before the first one writes.
    let mut streams = Vec::new();
    for _ in 0..written.len() {
        streams.push(roomy(&near).await);
    }
    let mut writers = JoinSet::new();
    for (own, mut stream) in streams.into_iter().enumerate() {
        let written = Arc::clone(&written);
        writers.spawn(async move {
            let piece = vec![1; PIECE];
            while written[own].load(Ordering::Relaxed) < TOTAL {
                let count = stream.write(&piece).await.unwrap();
                let mine = written[own].fetch_add(count, Ordering::Relaxed) + count;
                let least = written.iter().map(|other| other.load(Ordering::Relaxed)).min().unwrap();
                assert!(mine - least <= TURN, "writer {own} is {} bytes ahead", mine - least);
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
}

/// A stack that a task of this runtime drives, and the far end of its device.
fn near() -> (Stack, FarEnd) {
    let (device, end) = channel(LinkCaps::plain(1_500), 4 << 20);
    (Stack::builder().device(device).address("10.0.0.1/24").build_tokio().unwrap(), end)
}

/// Puts `count` datagrams into the device, to each of these ports by turns.
fn put(end: &FarEnd, ports: &[u16], count: usize) {
    let (device, far_end) = channel(LinkCaps::plain(1_500), 4 << 20);
    let far = Stack::builder().device(device).address("10.0.0.2/24").build().unwrap();
    let socket = UdpSocket::bind_with(&far, PEER.parse().unwrap(), &Default::default()).unwrap();
    for port in (0..count).flat_map(|_| ports) {
        socket.try_send_to(b"x", ([10, 0, 0, 1], *port).into()).unwrap();
        let parcel = loop {
            match far_end.try_recv() {
                Some(parcel) => break parcel,
                None => std::thread::yield_now(),
            }
        };
        assert!(end.put(&parcel.packet()));
    }
}

#[tokio::test]
async fn turn_04_a_reader_that_finds_data_lets_other_tasks_run() {
    let (near, end) = near();
    let socket = UdpSocket::bind(&near, "10.0.0.1:1").await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let other = Arc::clone(&runs);
    tokio::spawn(async move {
        loop {
            other.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    for _ in 0..8 {
        yield_now().await;
    }
    put(&end, &[1], 200);
    let before = runs.load(Ordering::Relaxed);
    for _ in 0..33 {
        socket.recv(&mut [0; 1]).await.unwrap();
    }
    assert!(runs.load(Ordering::Relaxed) > before, "33 datagrams, and nobody else ran");
}

#[tokio::test]
async fn turn_05_a_reader_lets_those_run_that_it_has_woken() {
    let (near, end) = near();
    let mut sockets = Vec::new();
    for port in 1..3 {
        sockets.push(UdpSocket::bind(&near, ("10.0.0.1", port)).await.unwrap());
    }
    let (others, count) = (sockets.pop().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            others.recv(&mut [0; 1]).await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    for _ in 0..8 {
        yield_now().await;
    }
    // The look of the other task was in vain, so the next wait has none.
    let mut space = [0; 1];
    std::future::poll_fn(|cx| {
        assert!(sockets[0].poll_recv(cx, &mut tokio::io::ReadBuf::new(&mut space)).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    put(&end, &[1, 2], 8);
    sockets[0].recv(&mut [0; 1]).await.unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 8, "the other task was ready, too");
}
