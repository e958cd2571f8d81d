//! The asynchronous sockets against the kernel's TCP, with the stack on its own thread and inside the
//! runtime.
#![cfg(feature = "tokio")]

use crate::net;

use std::io::{self, IoSlice, Write};
use std::net::Shutdown;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use net::{KERNEL, Net, PART, STACK, digest_of, echo, send_noise, serve};
use taut::{TcpListener, TcpStream};
use taut_testbed::{Digest, Meter, Noise, PATIENCE};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};

const BULK: usize = 64 << 20;

/// On a thread of its own, and in the runtime that the test runs in.
fn both_drivers() -> [Net; 2] {
    let runtime = tokio::runtime::Handle::current();
    let in_runtime = Net::with(move |builder| {
        let _entered = runtime.enter();
        builder.build_tokio()
    });
    [Net::new(), in_runtime]
}

async fn send(mut into: impl AsyncWrite + Unpin, total: usize, seed: u64) -> Digest {
    let (mut noise, mut meter) = (Noise::new(seed), Meter::default());
    for at in (0..total).step_by(PART) {
        let part = noise.bytes(PART.min(total - at));
        meter.update(&part);
        into.write_all(&part).await.unwrap();
    }
    meter.finish()
}

async fn receive(mut from: impl AsyncRead + Unpin) -> (usize, Digest) {
    let (mut meter, mut buffer) = (Meter::default(), vec![0; 1 << 18]);
    while let count @ 1.. = from.read(&mut buffer).await.unwrap() {
        meter.update(&buffer[..count]);
    }
    (meter.bytes() as usize, meter.finish())
}

/// The stack's task spins without end, on the one thread that there is.
#[tokio::test]
async fn dev_21_a_task_that_spins_lets_others_run() {
    let runtime = tokio::runtime::Handle::current();
    let net = Net::with(move |builder| {
        let _entered = runtime.enter();
        builder.busy_poll(PATIENCE).build_tokio()
    });
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let mut stream = TcpStream::connect(&net.stack, address).await.unwrap();
    for byte in 0..100 {
        stream.write_all(&[byte]).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), byte);
    }
    drop(stream);
    tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echo_both_ways_on_both_families() {
    for net in both_drivers() {
        for family in [0, 1] {
            let (listener, address) = net.listener(family);
            let server = serve(listener, echo);
            let mut stream = TcpStream::connect(&net.stack, address).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, b"hello");
            server.join().unwrap();

            let listener = TcpListener::bind(&net.stack, format!("{}:0", STACK[family])).await.unwrap();
            let address = listener.local_addr().unwrap();
            let namespace_side = thread::scope(|scope| scope.spawn(|| net.connect(address)).join().unwrap());
            let (mut accepted, peer) = listener.accept().await.unwrap();
            assert_eq!(peer, namespace_side.local_addr().unwrap());
            (&namespace_side).write_all(b"hi").unwrap();
            let mut two = [0; 2];
            assert_eq!(accepted.peek(&mut two).await.unwrap(), 2);
            accepted.read_exact(&mut two).await.unwrap();
            assert_eq!(&two, b"hi");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_arrives_whole_in_both_directions() {
    for net in both_drivers() {
        let (listener, address) = net.listener(0);
        let server = serve(listener, digest_of);
        let stream = TcpStream::connect(&net.stack, address).await.unwrap();
        let sent = send(stream, BULK, 7).await;
        assert_eq!(server.join().unwrap(), (BULK, sent));

        let (listener, address) = net.listener(1);
        let server = serve(listener, |stream| send_noise(stream, BULK, 9));
        let stream = TcpStream::connect(&net.stack, address).await.unwrap();
        let got = receive(stream).await;
        assert_eq!(got, (BULK, server.join().unwrap()));
    }
}

#[tokio::test]
async fn works_in_a_runtime_of_one_thread() {
    let net = &both_drivers()[1];
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let stream = TcpStream::connect(&net.stack, address).await.unwrap();
    let (read, write) = stream.into_split();
    let sending = tokio::spawn(send(write, 8 << 20, 3));
    let got = receive(read).await;
    assert_eq!(got, (8 << 20, sending.await.unwrap()));
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let mut stream = net.stack.connect(address).await.unwrap();
    {
        let (mut read, mut write) = stream.split();
        write.write_all(b"one").await.unwrap();
        let mut three = [0; 3];
        read.read_exact(&mut three).await.unwrap();
        assert_eq!(&three, b"one");
    }
    let (read, write) = stream.into_split();
    let (_, other_address) = net.listener(0);
    let (second_listener, second_address) = net.listener(0);
    let second = net.stack.connect(second_address).await.unwrap();
    let (second_read, second_write) = second.into_split();
    let taut::ReuniteError(read, _second_write) = read.reunite(second_write).unwrap_err();
    drop((second_read, second_listener, other_address));
    let stream = read.reunite(write).unwrap();

    let (mut read, write) = stream.into_split();
    drop(write);
    let mut rest = Vec::new();
    read.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "dropping the write half ended the echo");
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let stream = TcpStream::connect(&net.stack, address).await.unwrap();
    let (kernel, _) = listener.accept().unwrap();
    let mut buffer = [0; 64];
    assert_eq!(stream.try_read(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let ready = stream.ready(Interest::READABLE | Interest::WRITABLE).await.unwrap();
    assert!(ready.is_writable() && !ready.is_readable());
    assert_eq!(stream.try_write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"b")]).unwrap(), 2);

    // A dropped future leaves no registration behind, and the next one is woken.
    {
        let mut waits = pin!(stream.readable());
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    (&kernel).write_all(b"xyz").unwrap();
    stream.readable().await.unwrap();
    assert_eq!(stream.try_read(&mut buffer).unwrap(), 3);

    let filler = vec![0; 1 << 20];
    let full = (0..1000).find_map(|_| stream.try_write(&filler).err()).unwrap();
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    let draining = thread::spawn(move || digest_of(kernel));
    stream.writable().await.unwrap();
    assert!(stream.try_write(b"x").is_ok());
    drop(stream);
    draining.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors() {
    let net = Net::new();
    let refused = TcpStream::connect(&net.stack, format!("{}:9", KERNEL[1])).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let nowhere = "10.7.0.77:80".parse().unwrap();
    let error =
        TcpStream::connect_timeout(&net.stack, nowhere, Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable), "{error}");
    let unbound = TcpListener::bind(&net.stack, "192.0.2.1:1").await.unwrap_err();
    assert_eq!(unbound.kind(), io::ErrorKind::AddrNotAvailable);

    let (listener, address) = net.listener(0);
    let mut stream = TcpStream::connect(&net.stack, address).await.unwrap();
    let _kernel = listener.accept().unwrap();
    let waiting = tokio::spawn(async move { stream.read_u8().await.unwrap_err().kind() });
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(net);
    assert_eq!(waiting.await.unwrap(), io::ErrorKind::NotConnected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_stack_ends_its_task() {
    let [_, net] = both_drivers();
    let listener = TcpListener::bind(&net.stack, "10.7.0.2:80").await.unwrap();
    let Net { stack, kernel } = net;
    drop(stack);
    assert_eq!(listener.accept().await.unwrap_err().kind(), io::ErrorKind::NotConnected);
    drop(listener);
    // The interface vanishes with the task, which holds the last handle on the device.
    let gone = (0..3_000).any(|_| {
        thread::sleep(Duration::from_millis(20));
        kernel.enter(|| taut::device::Interface::open("taut0").is_err()).unwrap()
    });
    assert!(gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams() {
    for net in both_drivers() {
        let listener = TcpListener::bind(&net.stack, "10.7.0.2:7").await.unwrap();
        let serving = tokio::spawn(async move {
            let mut incoming = listener.incoming();
            for _ in 0..200 {
                let next = std::future::poll_fn(|cx| -> Poll<_> {
                    futures_core::Stream::poll_next(std::pin::Pin::new(&mut incoming), cx)
                });
                let stream = next.await.unwrap().unwrap();
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    tokio::io::copy(&mut read, &mut write).await.unwrap();
                });
            }
        });
        let clients = net
            .kernel
            .enter(|| {
                let threads: Vec<_> =
                    (0..200).map(|_| std::net::TcpStream::connect("10.7.0.2:7").unwrap()).collect();
                threads
            })
            .unwrap();
        let checked = tokio::task::spawn_blocking(move || {
            let threads: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(seed, client)| {
                    thread::spawn(move || {
                        let sent = send_noise(&client, 20_000, seed as u64);
                        client.shutdown(Shutdown::Write).unwrap();
                        assert_eq!(digest_of(&client), (20_000, sent));
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        checked.await.unwrap();
        serving.await.unwrap();
    }
}
