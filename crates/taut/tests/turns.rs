//! Turns of writers (docs/sockets.md, "Turns of writers"): tasks of one thread whose connections always have room.
#![allow(missing_docs, reason = "tests")]
#![cfg(feature = "tokio")]

mod pair;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use taut::{Bytes, Stack, TcpListener, TcpStream};
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
