//! Cancellation (docs/spec/sockets.md, "Futures that are dropped"): every future that this crate makes,
//! polled so many times and dropped, for every number of polls until it is ready, with a packet that passes
//! between two polls.
#![cfg(all(feature = "hyper", feature = "axum"))]

use crate::wire;

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::serve::Listener;
use futures_core::Stream;
use taut::zero_copy::{Completion, Reader};
use taut::{
    Bytes, ConnOptions, Connector, DatagramOptions, EchoSocket, FlowFilter, FlowKind, IncomingFlow,
    IncomingFlows, OwnedReadHalf, OwnedWriteHalf, PingSocket, SendMeta, TcpListener, TcpStream, UdpSocket,
    WriteFlags,
};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tower_service::Service;
use wire::{Called, FAR, NEAR, Task, Wire, every_poll};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What a reader is sent, in three packets.
const SENT: [&[u8]; 3] = [&[b'a'; 500], &[b'b'; 900], &[b'c'; 700]];

/// A byte of a stream that says where it belongs.
fn pattern(from: usize, len: usize) -> Bytes {
    (from..from + len).map(|at| (at % 251) as u8).collect()
}

/// The two ends of a connection that the near stack began.
fn connected(wire: &Wire) -> (TcpStream, TcpStream) {
    let listener = wire.far.listen(FAR.parse().unwrap()).unwrap();
    let near = wire.run(wire.near.connect(FAR.parse().unwrap())).unwrap();
    let (far, _) = wire.run(listener.accept()).unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

// Reading

/// Whatever a dropped read had not returned, the next one returns. `make` makes what reads, and what must
/// live beside it.
fn reads<S: AsyncRead + Unpin, Rest>(
    what: &str,
    keeps_waker: bool,
    make: impl Fn(TcpStream) -> (S, Rest),
    read: impl for<'a> Fn(&'a mut S) -> Boxed<'a, Vec<u8>>,
) {
    let expected = SENT.concat();
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let (near, far) = connected(&wire);
        let (mut near, rest) = make(near);
        for piece in SENT {
            assert_eq!(far.try_write(piece).unwrap(), piece.len());
        }
        far.shutdown_with(Shutdown::Write).unwrap();
        let first = task.run(&wire, read(&mut near));
        if !keeps_waker {
            task.expect_forgotten();
        }
        let is_ready = first.is_some();
        let mut got = first.unwrap_or_default();
        wire.run(near.read_to_end(&mut got)).unwrap();
        assert!(got == expected, "{what}: {} of {} bytes", got.len(), expected.len());
        drop((near, rest, far));
        task.expect_forgotten();
        wire.expect_empty();
        is_ready
    });
    assert!(polls > 1, "{what}: ready at once");
}

fn alone(stream: TcpStream) -> (TcpStream, ()) {
    (stream, ())
}

fn halves(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    stream.into_split()
}

fn buffered(stream: TcpStream) -> (Reader<TcpStream>, ()) {
    (stream.buffered(), ())
}

/// A read with a buffer of its own, by a poll function.
async fn polled(
    mut poll: impl FnMut(&mut Context<'_>, &mut ReadBuf<'_>) -> std::task::Poll<std::io::Result<()>>,
) -> Vec<u8> {
    let mut into = [0; 600];
    let mut into = ReadBuf::new(&mut into);
    poll_fn(|cx| poll(cx, &mut into)).await.unwrap();
    into.filled().to_vec()
}

#[test]
fn cancel_01_a_read_that_is_dropped_takes_nothing() {
    reads("read_chunk", false, alone, |s| Box::pin(async { s.read_chunk(600).await.unwrap().to_vec() }));
    reads("read_chunks", false, alone, |s| {
        Box::pin(async {
            let mut chunks = Vec::new();
            s.read_chunks(&mut chunks, 600).await.unwrap();
            chunks.concat()
        })
    });
    reads("readable", false, alone, |s| {
        Box::pin(async {
            s.readable().await.unwrap();
            Vec::new()
        })
    });
    reads("ready", false, alone, |s| {
        Box::pin(async {
            s.ready(tokio::io::Interest::READABLE).await.unwrap();
            Vec::new()
        })
    });
    reads("peek", false, alone, |s| {
        Box::pin(async {
            assert!(s.peek(&mut [0; 100]).await.unwrap() > 0);
            Vec::new()
        })
    });
    reads("halves: read_chunk", false, halves, |s| {
        Box::pin(async { s.read_chunk(600).await.unwrap().to_vec() })
    });
    reads("halves: read_chunks", false, halves, |s| {
        Box::pin(async {
            let mut chunks = Vec::new();
            s.read_chunks(&mut chunks, 600).await.unwrap();
            chunks.concat()
        })
    });
    reads("halves: readable", false, halves, |s| {
        Box::pin(async {
            s.readable().await.unwrap();
            Vec::new()
        })
    });
    reads("halves: peek", false, halves, |s| {
        Box::pin(async {
            assert!(s.peek(&mut [0; 100]).await.unwrap() > 0);
            Vec::new()
        })
    });
    reads("borrowed half: read_chunk", false, alone, |s| {
        Box::pin(async { s.split().0.read_chunk(600).await.unwrap().to_vec() })
    });
}

#[test]
fn cancel_02_a_poll_function_keeps_one_waker_until_the_socket_is_dropped() {
    reads("poll_read", true, alone, |s| {
        Box::pin(polled(move |cx, into| AsyncRead::poll_read(Pin::new(&mut *s), cx, into)))
    });
    reads("halves: poll_read", true, halves, |s| {
        Box::pin(polled(move |cx, into| Pin::new(&mut *s).poll_read(cx, into)))
    });
    reads("poll_peek", true, alone, |s| {
        Box::pin(async {
            polled(|cx, into| s.poll_peek(cx, into).map_ok(|_| ())).await;
            Vec::new()
        })
    });
    reads("poll_read_chunk", true, alone, |s| {
        Box::pin(async { poll_fn(|cx| s.poll_read_chunk(cx, 600)).await.unwrap().to_vec() })
    });
    reads("poll_read_chunks_and_wait", true, alone, |s| {
        Box::pin(async {
            let mut chunks = Vec::new();
            poll_fn(|cx| s.poll_read_chunks_and_wait(cx, &mut chunks, 600)).await.unwrap();
            chunks.concat()
        })
    });
    reads("halves: poll_read_chunk", true, halves, |s| {
        Box::pin(async { poll_fn(|cx| s.poll_read_chunk(cx, 600)).await.unwrap().to_vec() })
    });
    reads("Reader: poll_read", true, buffered, |s| {
        Box::pin(polled(move |cx, into| Pin::new(&mut *s).poll_read(cx, into)))
    });
    reads("Reader: read_chunk", true, buffered, |s| {
        Box::pin(async { s.read_chunk(600).await.unwrap().to_vec() })
    });
    reads("Reader: poll_fill_buf", true, buffered, |s| {
        Box::pin(async {
            assert!(!s.fill_buf().await.unwrap().is_empty());
            // What was not consumed is read again.
            Vec::new()
        })
    });
    reads("hyper: poll_read", true, alone, |s| {
        Box::pin(async {
            let mut into = [0; 600];
            let mut into = hyper::rt::ReadBuf::new(&mut into);
            poll_fn(|cx| hyper::rt::Read::poll_read(Pin::new(&mut *s), cx, into.unfilled())).await.unwrap();
            into.filled().to_vec()
        })
    });
}

// Writing

/// A dropped write has taken nothing; what `write` says that it took arrives, and nothing else. `all` if a
/// dropped write may have taken a part.
fn writes<S: AsyncWrite + Unpin, Rest>(
    what: &str,
    keeps_waker: bool,
    all: bool,
    make: impl Fn(TcpStream) -> (S, Rest),
    write: impl for<'a> Fn(&'a mut S, Bytes) -> Boxed<'a, usize>,
) {
    const LEN: usize = 20_000;
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let (near, mut far) = connected(&wire);
        near.set_sndbuf(10_000).unwrap();
        let mut filled = 0;
        let error = loop {
            match near.try_write(&pattern(filled, 3_000)) {
                Ok(count) => filled += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let (mut near, rest) = make(near);
        let taken = task.run(&wire, write(&mut near, pattern(filled, LEN)));
        if !keeps_waker {
            task.expect_forgotten();
        }
        let mut got = Vec::new();
        wire.run(async {
            let finish = async {
                near.shutdown().await.unwrap();
            };
            let (_, read) = tokio::join!(finish, far.read_to_end(&mut got));
            read.unwrap();
        });
        let expected = filled + taken.unwrap_or(0);
        let is_part = all && taken.is_none() && got.len() > filled && got.len() < filled + LEN;
        assert!(got.len() == expected || is_part, "{what}: {} bytes, not {expected}", got.len());
        assert!(got == pattern(0, got.len()), "{what}: the bytes or their order");
        drop((near, rest, far));
        task.expect_forgotten();
        wire.expect_empty();
        taken.is_some()
    });
    assert!(polls > 1, "{what}: ready at once");
}

#[test]
fn cancel_03_a_write_that_is_dropped_has_taken_nothing() {
    writes("write_bytes", false, false, alone, |s, mut data| {
        Box::pin(async move {
            let before = data.len();
            s.write_bytes(&mut data).await.unwrap();
            before - data.len()
        })
    });
    writes("writable", false, false, alone, |s, _| {
        Box::pin(async {
            s.writable().await.unwrap();
            0
        })
    });
    let turned = |stream: TcpStream| {
        let (read, write) = stream.into_split();
        (write, read)
    };
    writes("halves: write_bytes", false, false, turned, |s, mut data| {
        Box::pin(async move {
            let before = data.len();
            s.write_bytes(&mut data).await.unwrap();
            before - data.len()
        })
    });
    writes("halves: writable", false, false, turned, |s, _| {
        Box::pin(async {
            s.writable().await.unwrap();
            0
        })
    });
    writes("poll_write", true, false, alone, |s, data| {
        Box::pin(async move { AsyncWriteExt::write(s, &data).await.unwrap() })
    });
    writes("halves: poll_write", true, false, turned, |s, data| {
        Box::pin(async move { s.write(&data).await.unwrap() })
    });
    writes("borrowed half: poll_write", true, false, alone, |s, data| {
        Box::pin(async move { s.split().1.write(&data).await.unwrap() })
    });
    let (vectored, halves_vectored) = (
        |s: &mut TcpStream, data: &[u8], cx: &mut Context<'_>| {
            AsyncWrite::poll_write_vectored(
                Pin::new(s),
                cx,
                &[IoSlice::new(&data[..100]), IoSlice::new(&data[100..])],
            )
        },
        |s: &mut OwnedWriteHalf, data: &[u8], cx: &mut Context<'_>| {
            Pin::new(s).poll_write_vectored(cx, &[IoSlice::new(&data[..100]), IoSlice::new(&data[100..])])
        },
    );
    writes("poll_write_vectored", true, false, alone, |s, data| {
        Box::pin(async move { poll_fn(|cx| vectored(s, &data, cx)).await.unwrap() })
    });
    writes("halves: poll_write_vectored", true, false, turned, |s, data| {
        Box::pin(async move { poll_fn(|cx| halves_vectored(s, &data, cx)).await.unwrap() })
    });
    writes("hyper: poll_write", true, false, alone, |s, data| {
        Box::pin(async move {
            poll_fn(|cx| hyper::rt::Write::poll_write(Pin::new(&mut *s), cx, &data)).await.unwrap()
        })
    });
    writes("hyper: poll_write_vectored", true, false, alone, |s, data| {
        Box::pin(async move {
            poll_fn(|cx| hyper::rt::Write::poll_write_vectored(Pin::new(&mut *s), cx, &[IoSlice::new(&data)]))
                .await
                .unwrap()
        })
    });
    writes("Reader: poll_write", true, false, buffered, |s, data| {
        Box::pin(async move { s.write(&data).await.unwrap() })
    });
    writes("Reader: poll_write_vectored", true, false, buffered, |s, data| {
        Box::pin(async move { s.write_vectored(&[IoSlice::new(&data)]).await.unwrap() })
    });
    for half in [false, true] {
        let poll = move |s: &mut TcpStream, cx: &mut Context<'_>, data: &mut Bytes| match half {
            true => s.split().1.poll_write_bytes(cx, data),
            false => s.poll_write_bytes(cx, data),
        };
        writes("poll_write_bytes", true, false, alone, move |s, mut data| {
            Box::pin(async move {
                let before = data.len();
                poll_fn(|cx| poll(s, cx, &mut data)).await.unwrap();
                before - data.len()
            })
        });
    }
}

#[test]
fn cancel_03_of_a_write_that_looks() {
    writes("poll_write_bytes_and_look", true, false, alone, |s, mut data| {
        Box::pin(async move {
            let before = data.len();
            poll_fn(|cx| s.poll_write_bytes_and_look(cx, &mut data, WriteFlags::default())).await.unwrap();
            before - data.len()
        })
    });
}

#[test]
fn cancel_04_a_write_of_everything_that_is_dropped_has_taken_a_part_from_the_front() {
    writes("write_all_bytes", false, true, alone, |s, data| {
        Box::pin(async move {
            let len = data.len();
            s.write_all_bytes(data).await.unwrap();
            len
        })
    });
    let turned = |stream: TcpStream| {
        let (read, write) = stream.into_split();
        (write, read)
    };
    writes("halves: write_all_bytes", false, true, turned, |s, data| {
        Box::pin(async move {
            let len = data.len();
            s.write_all_bytes(data).await.unwrap();
            len
        })
    });
}

// Completions

#[test]
fn cancel_05_a_completion_is_reported_once() {
    type Wait = for<'a> fn(&'a mut TcpStream) -> Boxed<'a, std::io::Result<Option<Completion>>>;
    let waits: [(bool, Wait); 4] = [
        (false, |s| Box::pin(async { s.next_completion().await })),
        (false, |s| Box::pin(async { s.split().1.next_completion().await })),
        (true, |s| Box::pin(async { poll_fn(|cx| s.poll_next_completion(cx)).await })),
        (true, |s| Box::pin(async { poll_fn(|cx| s.split().1.poll_next_completion(cx)).await })),
    ];
    for (keeps_waker, wait) in waits {
        every_poll(|task| {
            let wire = Wire::new(1);
            let (mut near, far) = connected(&wire);
            let mut reported = Vec::new();
            for number in 0..2 {
                assert_eq!(near.try_write_bytes(&mut pattern(0, 8_000)).unwrap(), Some(number));
            }
            let first = task.run(&wire, wait(&mut near));
            if !keeps_waker {
                task.expect_forgotten();
            }
            let is_ready = first.is_some();
            reported.extend(first.map(|first| first.unwrap().unwrap()));
            while let Some(next) = wire.run(near.next_completion()).unwrap() {
                reported.push(next);
            }
            let numbers: Vec<u32> = reported.iter().flat_map(numbers).collect();
            assert_eq!(numbers, [0, 1]);
            drop((near, far));
            task.expect_forgotten();
            wire.expect_empty();
            is_ready
        });
    }
}

fn numbers(completion: &Completion) -> std::ops::RangeInclusive<u32> {
    completion.lo..=completion.hi
}

// Connecting

/// A connect that is dropped leaves no connection on either side, and the next one succeeds.
fn connects(what: &str, connect: impl for<'a> Fn(&'a Wire) -> Boxed<'a, TcpStream>) {
    let polls = every_poll(|task| {
        let wire = Wire::new(2);
        let listener = wire.far.listen(FAR.parse().unwrap()).unwrap();
        let stream = task.run(&wire, connect(&wire));
        task.expect_forgotten();
        let is_ready = stream.is_some();
        let next = wire.run(wire.near.connect(FAR.parse().unwrap())).unwrap();
        drop((stream, next, listener));
        wire.expect_empty();
        is_ready
    });
    assert!(polls > 1, "{what}: ready at once");
}

#[test]
fn cancel_06_a_connect_that_is_dropped_leaves_no_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    connects("Stack::connect", |wire| {
        Box::pin(async { wire.near.connect(FAR.parse().unwrap()).await.unwrap() })
    });
    connects("TcpStream::connect", |wire| {
        Box::pin(async { TcpStream::connect(&wire.near, FAR).await.unwrap() })
    });
    connects("connect_with", |wire| {
        Box::pin(async {
            TcpStream::connect_with(&wire.near, FAR.parse().unwrap(), &ConnOptions::default()).await.unwrap()
        })
    });
    connects("connect_with_data", |wire| {
        Box::pin(async {
            let to = FAR.parse().unwrap();
            let options = ConnOptions::default();
            let (stream, taken) =
                TcpStream::connect_with_data(&wire.near, to, &options, b"hello").await.unwrap();
            assert_eq!(taken, 5);
            stream
        })
    });
    connects("connect_timeout", |wire| {
        Box::pin(async {
            let to = FAR.parse().unwrap();
            TcpStream::connect_timeout(&wire.near, to, Duration::from_secs(60)).await.unwrap()
        })
    });
    connects("hyper: Connector", |wire| {
        Box::pin(async {
            let mut connector = Connector::new(&wire.near);
            poll_fn(|cx| connector.poll_ready(cx)).await.unwrap();
            connector.call(format!("http://{FAR}/").parse().unwrap()).await.unwrap()
        })
    });
}

// Accepting

/// A connection that a dropped accept had not returned is returned by the next one.
fn accepts(
    what: &str,
    keeps_waker: bool,
    accept: impl for<'a> Fn(&'a mut TcpListener) -> Boxed<'a, TcpStream>,
) {
    for shards in [1, 2] {
        let polls = every_poll(|task| {
            let wire = Wire::new(shards);
            let mut listener = wire.near.listen(NEAR.parse().unwrap()).unwrap();
            let mut client = Box::pin(wire.far.connect(NEAR.parse().unwrap()));
            let waker = Waker::from(Arc::new(Called::default()));
            assert!(client.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            let first = task.run(&wire, accept(&mut listener));
            if !keeps_waker {
                task.expect_forgotten();
            }
            let client = wire.run(client).unwrap();
            let is_ready = first.is_some();
            let stream = match first {
                Some(stream) => stream,
                None => wire.run(listener.accept()).unwrap().0,
            };
            assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
            drop((stream, client, listener));
            task.expect_forgotten();
            wire.expect_empty();
            is_ready
        });
        assert!(polls > 1, "{what}: ready at once");
    }
}

#[test]
fn cancel_07_an_accept_that_is_dropped_takes_no_connection() {
    accepts("accept", false, |l| Box::pin(async { TcpListener::accept(l).await.unwrap().0 }));
    accepts("axum: accept", false, |l| Box::pin(async { Listener::accept(l).await.0 }));
    accepts("poll_accept", true, |l| Box::pin(async { poll_fn(|cx| l.poll_accept(cx)).await.unwrap().0 }));
    accepts("incoming", true, |l| {
        Box::pin(async {
            let mut incoming = l.incoming();
            poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await.unwrap().unwrap()
        })
    });
}

/// Two tasks wait for the same; the one that was woken first is dropped before it runs.
#[test]
fn cancel_08_a_waiter_that_is_dropped_after_it_was_woken_costs_another_nothing() {
    let wire = Wire::new(1);
    let (near, far) = connected(&wire);
    let calls = [Arc::new(Called::default()), Arc::new(Called::default())];
    let mut waits = [Box::pin(near.read_chunk(9)), Box::pin(near.read_chunk(9))].map(Some);
    for (call, wait) in calls.iter().zip(&mut waits) {
        assert!(call.take());
        let waker = Waker::from(Arc::clone(call));
        assert!(wait.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(far.try_write(b"news").unwrap(), 4);
    let mut woken = None;
    wire::eventually("one is woken", || {
        wire.pass();
        woken = calls.iter().position(|call| call.take());
        woken.is_some()
    });
    let first = woken.unwrap();
    waits[first] = None;
    wire::eventually("the other one is woken", || calls[1 - first].take());
    assert_eq!(wire.run(waits[1 - first].take().unwrap()).unwrap(), &b"news"[..]);
}

// What is ready at once, and the end

#[test]
fn cancel_09_flushing_and_ending_are_ready_at_once() {
    let wire = Wire::new(1);
    let (mut near, mut far) = connected(&wire);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(AsyncWrite::poll_flush(Pin::new(&mut near), &mut cx).is_ready());
    assert!(hyper::rt::Write::poll_flush(Pin::new(&mut near), &mut cx).is_ready());
    assert!(hyper::rt::Write::poll_shutdown(Pin::new(&mut near), &mut cx).is_ready());
    assert!(Pin::new(&mut near.split().1).poll_flush(&mut cx).is_ready());
    assert!(Pin::new(&mut near.split().1).poll_shutdown(&mut cx).is_ready());
    let mut near = near.buffered();
    assert!(Pin::new(&mut near).poll_flush(&mut cx).is_ready());
    assert!(Pin::new(&mut near).poll_shutdown(&mut cx).is_ready());
    assert_eq!(wire.run(far.read(&mut [0; 9])).unwrap(), 0, "the end of the stream");
    let bound = std::pin::pin!(TcpListener::bind(&wire.near, "10.0.0.1:0")).poll(&mut cx);
    assert!(bound.is_ready());
    drop((near, far, bound));
    wire.expect_empty();
}

#[test]
fn cancel_10_a_wait_for_the_end_may_be_dropped() {
    let mut wire = Wire::new(1);
    for polls in 0..3 {
        let task = Task::new(polls);
        assert!(task.run(&wire, Box::pin(wire.near.until_closed())).is_none());
        task.expect_forgotten();
    }
    wire.cut();
    let why = wire.run(wire.near.until_closed());
    assert_eq!(why.kind(), ErrorKind::NetworkDown);
}

// Flows

/// Not an address of the near stack.
const ELSEWHERE: &str = "203.0.113.7:443";

#[test]
fn cancel_12_an_accept_of_flows_that_is_dropped_takes_no_flow() {
    for shards in [1, 2] {
        for keeps_waker in [false, true] {
            let polls = every_poll(|task| {
                let wire = Wire::new(shards);
                let flows = IncomingFlows::open(&wire.near, FlowFilter::any()).unwrap();
                let mut client = Box::pin(wire.far.connect(ELSEWHERE.parse().unwrap()));
                let waker = Waker::from(Arc::new(Called::default()));
                assert!(client.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                let accept: Boxed<'_, IncomingFlow> = if keeps_waker {
                    Box::pin(async { poll_fn(|cx| flows.poll_accept(cx)).await.unwrap() })
                } else {
                    Box::pin(async { IncomingFlows::accept(&flows).await.unwrap() })
                };
                let first = task.run(&wire, accept);
                if !keeps_waker {
                    task.expect_forgotten();
                }
                let is_ready = first.is_some();
                let flow = first.unwrap_or_else(|| wire.run(flows.accept()).unwrap());
                assert_eq!(flow.local_addr(), ELSEWHERE.parse().unwrap());
                let stream = wire.run(flow.accept()).unwrap();
                let client = wire.run(client).unwrap();
                assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
                drop((stream, client, flows));
                task.expect_forgotten();
                wire.expect_empty();
                is_ready
            });
            assert!(polls > 1, "ready at once");
        }
    }
}

#[test]
fn cancel_13_an_acceptance_that_is_dropped_leaves_no_connection() {
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let flows = IncomingFlows::open(&wire.near, FlowFilter::any()).unwrap();
        let mut client = Box::pin(wire.far.connect(ELSEWHERE.parse().unwrap()));
        let waker = Waker::from(Arc::new(Called::default()));
        assert!(client.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let flow = wire.run(flows.accept()).unwrap();
        let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
        let stream = task.run(&wire, Box::pin(async { flow.accept_with(&options).await.unwrap() }));
        task.expect_forgotten();
        let is_ready = stream.is_some();
        drop((stream, client));
        wire.expect_empty();
        is_ready
    });
    assert!(polls > 1, "ready at once");
}

#[test]
fn cancel_18_a_wait_for_the_end_of_a_flow_may_be_dropped() {
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let flows = IncomingFlows::open(&wire.near, FlowFilter::any()).unwrap();
        let mut client = Box::pin(wire.far.connect(ELSEWHERE.parse().unwrap()));
        let waker = Waker::from(Arc::new(Called::default()));
        assert!(client.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let flow = wire.run(flows.accept()).unwrap();
        // The client gives up, which it says when it is asked.
        drop(client);
        assert!(flow.probe());
        let gone = task.run(&wire, Box::pin(async { flow.gone().await.unwrap() }));
        task.expect_forgotten();
        if gone.is_none() {
            wire.run(flow.gone()).unwrap();
        }
        assert!(flow.is_gone() && !flow.probe());
        drop((flow, flows));
        wire.expect_empty();
        gone.is_some()
    });
    assert!(polls > 1, "ready at once");
}

// Datagrams

/// A datagram that a dropped future had not returned is returned by the next one.
fn receives(what: &str, keeps_waker: bool, recv: impl for<'a> Fn(&'a UdpSocket) -> Boxed<'a, Vec<u8>>) {
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let near = wire.run(UdpSocket::bind(&wire.near, NEAR.parse::<SocketAddr>().unwrap())).unwrap();
        let far = wire.run(UdpSocket::bind(&wire.far, FAR.parse::<SocketAddr>().unwrap())).unwrap();
        for message in [b"one", b"two"] {
            far.try_send_to(message, NEAR.parse().unwrap()).unwrap();
        }
        let first = task.run(&wire, recv(&near));
        if !keeps_waker {
            task.expect_forgotten();
        }
        let is_ready = first.is_some();
        let mut got = first.unwrap_or_default();
        while got.len() < 6 {
            let mut into = [0; 10];
            let (len, from) = wire.run(near.recv_from(&mut into)).unwrap();
            assert_eq!(from, FAR.parse().unwrap());
            got.extend_from_slice(&into[..len]);
        }
        assert_eq!(got, b"onetwo", "{what}");
        assert!(near.try_recv(&mut [0; 10]).is_err(), "{what}");
        drop((near, far));
        task.expect_forgotten();
        is_ready
    });
    assert!(polls > 1, "{what}: ready at once");
}

/// A datagram that is received with a buffer of its own, by a poll function.
async fn datagram(
    mut poll: impl FnMut(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<std::io::Result<()>>,
) -> Vec<u8> {
    let mut into = [0; 10];
    let mut into = ReadBuf::new(&mut into);
    poll_fn(|cx| poll(cx, &mut into)).await.unwrap();
    into.filled().to_vec()
}

#[test]
fn cancel_14_a_reception_that_is_dropped_takes_no_datagram() {
    receives("recv", false, |s| {
        Box::pin(async {
            let mut into = [0; 10];
            let len = s.recv(&mut into).await.unwrap();
            into[..len].to_vec()
        })
    });
    receives("recv_from", false, |s| {
        Box::pin(async {
            let mut into = [0; 10];
            let (len, _) = s.recv_from(&mut into).await.unwrap();
            into[..len].to_vec()
        })
    });
    receives("recv_with", false, |s| {
        Box::pin(async {
            let mut into = [0; 10];
            let len = s.recv_with(&mut into).await.unwrap().len;
            into[..len].to_vec()
        })
    });
    receives("peek_from", false, |s| {
        Box::pin(async {
            assert_eq!(s.peek_from(&mut [0; 10]).await.unwrap().0, 3);
            Vec::new()
        })
    });
    receives("readable", false, |s| {
        Box::pin(async {
            s.readable().await.unwrap();
            Vec::new()
        })
    });
    receives("poll_recv", true, |s| Box::pin(datagram(|cx, into| s.poll_recv(cx, into))));
    receives("poll_recv_from", true, |s| {
        Box::pin(datagram(|cx, into| s.poll_recv_from(cx, into).map_ok(drop)))
    });
    receives("poll_recv_with", true, |s| {
        Box::pin(async {
            let mut into = [0; 10];
            let len = poll_fn(|cx| s.poll_recv_with(cx, &mut into)).await.unwrap().len;
            into[..len].to_vec()
        })
    });
}

/// Of a full socket, a datagram that a dropped future has not reported as sent is not sent.
fn sends(what: &str, keeps_waker: bool, send: impl for<'a> Fn(&'a UdpSocket) -> Boxed<'a, usize>) {
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let options = DatagramOptions { sndbuf: Some(10_000), ..DatagramOptions::default() };
        let near = UdpSocket::bind_with(&wire.near, NEAR.parse().unwrap(), &options).unwrap();
        let far = wire.run(UdpSocket::bind(&wire.far, FAR.parse::<SocketAddr>().unwrap())).unwrap();
        wire.run(near.connect(FAR.parse::<SocketAddr>().unwrap())).unwrap();
        let mut before = 0;
        while near.try_send(&[1; 1_000]).is_ok() {
            before += 1;
        }
        let first = task.run(&wire, send(&near));
        if !keeps_waker {
            task.expect_forgotten();
        }
        for _ in 0..before {
            assert_eq!(wire.run(far.recv(&mut [0; 2_000])).unwrap(), 1_000, "{what}");
        }
        let is_ready = first.is_some();
        if is_ready {
            let mut into = [0; 10];
            let len = wire.run(far.recv(&mut into)).unwrap();
            assert_eq!(&into[..len], b"last", "{what}");
        }
        // A further one is the next that arrives.
        wire.run(near.send(b"after")).unwrap();
        let mut into = [0; 10];
        let len = wire.run(far.recv(&mut into)).unwrap();
        assert_eq!(&into[..len], b"after", "{what}");
        drop((near, far));
        task.expect_forgotten();
        is_ready
    });
    assert!(polls > 1, "{what}: ready at once");
}

#[test]
fn cancel_15_a_datagram_of_a_future_that_is_dropped_is_not_sent() {
    let to: SocketAddr = FAR.parse().unwrap();
    sends("send", false, |s| Box::pin(async { s.send(b"last").await.unwrap() }));
    sends("send_to", false, |s| Box::pin(async move { s.send_to(b"last", to).await.unwrap() }));
    sends("send_with", false, |s| {
        Box::pin(async { s.send_with(b"last", None, &SendMeta::default()).await.unwrap() })
    });
    sends("writable", false, |s| {
        Box::pin(async {
            s.writable().await.unwrap();
            s.try_send(b"last").unwrap()
        })
    });
    sends("poll_send", true, |s| Box::pin(async { poll_fn(|cx| s.poll_send(cx, b"last")).await.unwrap() }));
    sends("poll_send_to", true, |s| {
        Box::pin(async move { poll_fn(|cx| s.poll_send_to(cx, b"last", to)).await.unwrap() })
    });
    sends("poll_send_with", true, |s| {
        Box::pin(async {
            poll_fn(|cx| s.poll_send_with(cx, b"last", None, &SendMeta::default())).await.unwrap()
        })
    });
}

#[test]
fn cancel_16_a_reply_that_a_dropped_future_has_not_returned_is_still_there() {
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let own: SocketAddr = NEAR.parse().unwrap();
        let ping = PingSocket::bind(&wire.near, own, &DatagramOptions::default()).unwrap();
        let far = FAR.parse::<SocketAddr>().unwrap().ip();
        wire.run(ping.send_to(1, b"data", far)).unwrap();
        let mut into = [0; 10];
        let first = task.run(&wire, Box::pin(async { ping.recv(&mut into).await.unwrap() }));
        task.expect_forgotten();
        let is_ready = first.is_some();
        let mut again = [0; 10];
        let reply = first.unwrap_or_else(|| wire.run(ping.recv(&mut again)).unwrap());
        assert_eq!((reply.seq, reply.len), (1, 4));
        is_ready
    });
    assert!(polls > 1, "ready at once");
}

#[test]
fn cancel_17_a_request_that_a_dropped_future_has_not_returned_is_still_there() {
    let polls = every_poll(|task| {
        let wire = Wire::new(1);
        let filter = FlowFilter::any().kinds([FlowKind::Echo]);
        let flows = IncomingFlows::open(&wire.near, filter).unwrap();
        let own: SocketAddr = FAR.parse().unwrap();
        let ping = PingSocket::bind(&wire.far, own, &DatagramOptions::default()).unwrap();
        let elsewhere = ELSEWHERE.parse::<SocketAddr>().unwrap().ip();
        wire.run(ping.send_to(1, b"one", elsewhere)).unwrap();
        let echo: EchoSocket = wire.run(flows.accept()).unwrap().accept_echo().unwrap();
        let mut into = [0; 10];
        assert_eq!(wire.run(echo.recv(&mut into)).unwrap().seq, 1);
        wire.run(ping.send_to(2, b"data", elsewhere)).unwrap();
        let first = task.run(&wire, Box::pin(async { echo.recv(&mut into).await.unwrap() }));
        task.expect_forgotten();
        let is_ready = first.is_some();
        let mut again = [0; 10];
        let request = first.unwrap_or_else(|| wire.run(echo.recv(&mut again)).unwrap());
        assert_eq!((request.seq, request.len), (2, 4));
        // And a reply is sent if the future was ready.
        let sent = task.run(&wire, Box::pin(async { EchoSocket::send(&echo, 2, b"data").await.unwrap() }));
        wire.run(echo.send(3, b"data")).unwrap();
        let reply = wire.run(ping.recv(&mut again)).unwrap();
        let seq = if sent.is_some() { 2 } else { 3 };
        assert_eq!((reply.from, reply.seq, &again[..reply.len]), (elsewhere, seq, &b"data"[..]));
        is_ready
    });
    assert!(polls > 1, "ready at once");
}

// The list

/// Every future and poll function of this crate has a case above.
#[test]
fn cancel_11_the_list_is_complete() {
    let here = include_str!("cancel.rs");
    let mut missing = Vec::new();
    // Those of `relay.rs` are made of these, and own the sockets that they join.
    for file in sources("src".as_ref()).into_iter().filter(|file| !file.ends_with("relay.rs")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
            let name = |after: &str| {
                let (_, rest) = line.split_once(after)?;
                rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
            };
            let is_poll = |name: &&str| name.starts_with("poll_") && !line.contains("pub(crate)");
            let future = name("async fn ").filter(|_| !line.contains("pub(crate)"));
            // They are private: parts of what is listed.
            let own = ["poll_chunk", "accept_as", "apart"];
            for name in future.into_iter().chain(name("fn ").filter(is_poll)) {
                let is_called = [".", "::"].iter().any(|dot| {
                    here.contains(&format!("{dot}{name}("))
                        || here.contains(&format!("{dot}{}(", plain(name)))
                });
                if !own.contains(&name) && !is_called {
                    missing.push(format!("{}: {name}", file.display()));
                }
            }
            assert!(!line.contains("impl Future<"), "{}: {line}", file.display());
        }
    }
    assert!(missing.is_empty(), "no case for {missing:?}");
}

/// The method of an extension trait that calls a poll function.
fn plain(poll: &str) -> &str {
    poll.strip_prefix("poll_").unwrap_or(poll)
}

fn sources(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}
