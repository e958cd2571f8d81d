//! Sockets without a copy, against the kernel's TCP: streams arrive whole, and lent memory comes back.

use crate::net;

use std::io::{BufRead, Read, Write};
use std::net::Shutdown;

use net::{Net, PART, digest_of, echo, send_noise, serve};
use taut::Bytes;
use taut::blocking::TcpStream;
use taut::zero_copy::Completion;
use taut_testbed::{Meter, Noise};

const BULK: usize = 64 << 20;

/// Takes the reports of `count` writes, which must be numbered from `next` on without a gap.
fn check(report: Option<Completion>, next: &mut u32) -> bool {
    let Some(Completion { lo, hi, delivered, .. }) = report else { return false };
    assert!(lo == *next && hi >= lo && delivered, "{lo} to {hi} after {next}");
    *next = hi + 1;
    true
}

#[test]
fn lent_bytes_arrive_and_come_back() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, digest_of);
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let (mut noise, mut meter) = (Noise::new(7), Meter::default());
    let (mut all, mut writes, mut reported) = (Vec::new(), 0, 0);
    for at in (0..BULK).step_by(PART) {
        let part = Bytes::from(noise.bytes(PART.min(BULK - at)).to_vec());
        meter.update(&part);
        let mut rest = part.clone();
        while !rest.is_empty() {
            assert_eq!(stream.write_bytes(&mut rest).unwrap(), Some(writes));
            writes += 1;
        }
        all.push(part);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    while check(stream.next_completion().unwrap(), &mut reported) {}
    assert_eq!(reported, writes, "every write was reported once");
    assert!(all.iter().all(Bytes::is_unique), "nobody holds the memory");
    drop(stream);
    assert_eq!(server.join().unwrap(), (BULK, meter.finish()));
}

#[test]
fn chunks_and_buffered_reads_give_the_stream() {
    let net = Net::new();
    for buffered in [false, true] {
        let (listener, address) = net.listener(0);
        let server = serve(listener, |stream| send_noise(stream, BULK, 9));
        let stream = TcpStream::connect(&net.stack, address).unwrap();
        let mut meter = Meter::default();
        if buffered {
            let mut reader = stream.buffered();
            let mut few = [0; 1_000];
            loop {
                let buffer = reader.fill_buf().unwrap();
                let count = buffer.len().min(30_000);
                meter.update(&buffer[..count]);
                reader.consume(count);
                // Reads of both kinds share what is buffered.
                let read = reader.read(&mut few).unwrap();
                meter.update(&few[..read]);
                if count == 0 {
                    break;
                }
            }
        } else {
            while let chunk = stream.read_chunk(100_000).unwrap()
                && !chunk.is_empty()
            {
                assert!(chunk.len() <= 100_000);
                meter.update(&chunk);
            }
        }
        assert_eq!(meter.bytes() as usize, BULK);
        assert_eq!(meter.finish(), server.join().unwrap());
    }
}

#[test]
fn many_chunks_are_read_at_once() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |stream| send_noise(stream, BULK, 9));
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let (mut meter, mut chunks, mut most) = (Meter::default(), Vec::new(), 0);
    assert_eq!(stream.read_chunks(&mut chunks, 0).unwrap(), 0);
    loop {
        let count = stream.read_chunks(&mut chunks, 200_000).unwrap();
        assert_eq!(chunks.iter().map(Bytes::len).sum::<usize>(), count);
        assert!(count <= 200_000);
        if count == 0 {
            break;
        }
        most = most.max(chunks.len());
        chunks.drain(..).for_each(|chunk| meter.update(&chunk));
    }
    assert!(most > 1, "some calls return several chunks");
    assert_eq!(meter.bytes() as usize, BULK);
    assert_eq!(meter.finish(), server.join().unwrap());
}

#[test]
fn lines_are_read_in_place() {
    let net = Net::new();
    let (listener, address) = net.listener(1);
    let server = serve(listener, echo);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.write_all(b"one\ntwo\nthree").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let lines: Vec<String> = stream.buffered().lines().map(Result::unwrap).collect();
    assert_eq!(lines, ["one", "two", "three"]);
    server.join().unwrap();
}

#[cfg(feature = "tokio")]
mod asynchronous {
    use std::future::Future as _;
    use std::io::Write;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Duration;

    use super::{BULK, Bytes, Meter, Net, Noise, PART, check, digest_of, echo, send_noise, serve};
    use taut::{TcpStream, WriteFlags};
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

    /// One task writes, another waits for the memory, and none of them misses its wake-up.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lent_bytes_arrive_and_come_back() {
        let net = Net::new();
        let (listener, address) = net.listener(0);
        let server = serve(listener, digest_of);
        let stream = TcpStream::connect(&net.stack, address).await.unwrap();
        let (_read, mut write) = stream.into_split();
        let (mut noise, mut meter) = (Noise::new(3), Meter::default());
        let mut reported = 0;
        let mut writes = 0;
        for at in (0..BULK).step_by(PART) {
            let part = Bytes::from(noise.bytes(PART.min(BULK - at)).to_vec());
            meter.update(&part);
            let mut rest = part.clone();
            while !rest.is_empty() {
                writes += 1;
                write.write_bytes(&mut rest).await.unwrap();
                // Now and then, until all memory is back.
                if writes % 64 == 0 {
                    while check(write.next_completion().await.unwrap(), &mut reported) {}
                    assert_eq!(reported, writes);
                }
            }
        }
        while check(write.next_completion().await.unwrap(), &mut reported) {}
        assert_eq!(reported, writes);
        write.shutdown().await.unwrap();
        assert_eq!(server.join().unwrap(), (BULK, meter.finish()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn chunks_and_buffered_reads_give_the_stream() {
        let net = Net::new();
        for buffered in [false, true] {
            let (listener, address) = net.listener(0);
            let server = serve(listener, |stream| send_noise(stream, BULK, 9));
            let stream = TcpStream::connect(&net.stack, address).await.unwrap();
            let mut meter = Meter::default();
            if buffered {
                let (read, _write) = stream.into_split();
                let mut reader = read.buffered();
                let mut few = [0; 1_000];
                loop {
                    let buffer = reader.fill_buf().await.unwrap();
                    let count = buffer.len().min(30_000);
                    meter.update(&buffer[..count]);
                    reader.consume(count);
                    let read = reader.read(&mut few).await.unwrap();
                    meter.update(&few[..read]);
                    if count == 0 {
                        break;
                    }
                }
            } else {
                let mut chunks = Vec::new();
                while stream.read_chunks(&mut chunks, 200_000).await.unwrap() > 0 {
                    chunks.drain(..).for_each(|chunk| meter.update(&chunk));
                }
            }
            assert_eq!(meter.bytes() as usize, BULK);
            assert_eq!(meter.finish(), server.join().unwrap());
        }
    }

    /// Whether the task was woken since this was last asked.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    impl Woken {
        fn take(&self) -> bool {
            self.0.swap(false, Ordering::SeqCst)
        }

        async fn is_woken(&self) {
            for _ in 0..60_000 {
                if self.take() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            panic!("not woken");
        }
    }

    #[tokio::test]
    async fn zc_20_a_read_that_took_everything_waits_for_more() {
        let net = Net::new();
        let (listener, address) = net.listener(0);
        let (next, turns) = std::sync::mpsc::channel::<&'static [u8]>();
        let server = serve(listener, move |mut stream| {
            turns.iter().for_each(|part| Write::write_all(&mut stream, part).unwrap());
        });
        let stream = TcpStream::connect(&net.stack, address).await.unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut chunks = Vec::new();
        let mut read = |max| {
            let read = stream.poll_read_chunks_and_wait(&mut Context::from_waker(&waker), &mut chunks, max);
            read.map(|read| (read.unwrap(), chunks.drain(..).flatten().collect::<Vec<u8>>()))
        };
        assert!(read(10).is_pending());
        for part in [b"a", b"b"] {
            next.send(part).unwrap();
            woken.is_woken().await;
            // Without a poll more than this one.
            assert_eq!(read(10), Poll::Ready(((1, true), part.to_vec())));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!woken.take(), "nothing came");
        // As much as was asked for: there may be more.
        next.send(b"cde").unwrap();
        woken.is_woken().await;
        assert_eq!(read(2), Poll::Ready(((2, false), b"cd".to_vec())));
        assert_eq!(read(2), Poll::Ready(((1, true), b"e".to_vec())));
        // The end is there already: nothing else will come.
        next.send(b"f").unwrap();
        drop(next);
        server.join().unwrap();
        while stream.info().unwrap().state != taut::observe::State::CloseWait {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // After the lock, under which the state is seen, is free.
        woken.is_woken().await;
        assert_eq!(read(10), Poll::Ready(((1, false), b"f".to_vec())));
        assert_eq!(read(10), Poll::Ready(((0, false), Vec::new())));
    }

    #[tokio::test]
    async fn zc_21_a_write_says_whether_there_is_room() {
        let net = Net::new();
        let (listener, address) = net.listener(1);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let server = serve(listener, move |stream| {
            _ = wait.recv();
            digest_of(stream)
        });
        let mut stream = TcpStream::connect(&net.stack, address).await.unwrap();
        let (mut all, mut yes, mut untrue, mut last) = (0, 0, 0, true);
        // The server does not read: ACKs make room until all buffers are full. Only bytes that leave between
        // the two calls take room away, as several packets count for more than one piece of unsent data: seen
        // in 7 of 8,124 runs, once in each.
        loop {
            let mut data = Bytes::from(vec![7; 5_000]);
            let cx = &mut Context::from_waker(Waker::noop());
            let Poll::Ready(room) = stream.poll_write_bytes_and_look(cx, &mut data, WriteFlags::default())
            else {
                break;
            };
            last = room.unwrap();
            yes += usize::from(last);
            all += 5_000 - data.len();
            let is_writable = pin!(stream.writable()).poll(cx).is_ready();
            untrue += usize::from(last && !is_writable);
            assert!(all < 1 << 30);
        }
        assert!(!last, "the write that filled the buffer said that there is room");
        assert!(yes > 1 && untrue <= 1, "{untrue} of {yes}");
        go.send(()).unwrap();
        stream.writable().await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(server.join().unwrap().0, all);
    }

    #[tokio::test]
    async fn lines_are_read_in_place() {
        let net = Net::new();
        let (listener, address) = net.listener(1);
        let server = serve(listener, echo);
        let mut stream = TcpStream::connect(&net.stack, address).await.unwrap();
        stream.write_all(b"one\ntwo\nthree").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut lines = stream.buffered().lines();
        let mut got = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            got.push(line);
        }
        assert_eq!(got, ["one", "two", "three"]);
        server.join().unwrap();
    }
}
