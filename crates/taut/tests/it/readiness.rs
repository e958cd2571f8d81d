//! Readiness of the blocking sockets by a waker, for event loops: docs/spec/sockets.md (READY).

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};

use taut::ConnOptions;
use taut::blocking::{TcpListener, TcpStream, UdpSocket};

use crate::pair::pair;
use taut_testbed::PATIENCE;

/// A waker that says so.
struct Says(Sender<()>);

impl Wake for Says {
    fn wake(self: Arc<Self>) {
        _ = self.0.send(());
    }
}

fn waker() -> (Waker, Receiver<()>) {
    let (says, said) = channel();
    (Waker::from(Arc::new(Says(says))), said)
}

/// Waits until a look is true, which gives the waker away each time.
fn until(look: impl Fn(&Waker) -> std::io::Result<bool>) {
    let (waker, said) = waker();
    while !look(&waker).unwrap() {
        said.recv_timeout(PATIENCE).expect("the waker is called");
    }
}

#[test]
fn ready_01_a_stream_that_can_be_read_and_written() {
    let (near, far) = pair(|near| near);
    let listener = TcpListener::bind(&far, "10.0.0.2:80").unwrap();
    let mut stream = TcpStream::connect(&near, "10.0.0.2:80").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let (waker, said) = waker();
    assert!(!stream.readable_or_wake(&waker).unwrap() && stream.writable_or_wake(&waker).unwrap());
    assert!(said.try_recv().is_err());
    accepted.write_all(b"hello").unwrap();
    said.recv_timeout(PATIENCE).unwrap();
    until(|waker| stream.readable_or_wake(waker));
    stream.read_exact(&mut [0; 5]).unwrap();
    // Until there is no room; then there is, when the peer has read.
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(count) = stream.write(&[7; 65_536]) {
        written += count;
    }
    assert!(!stream.writable_or_wake(&waker).unwrap());
    let reader = std::thread::spawn(move || {
        let mut read = 0;
        while read < written {
            read += accepted.read(&mut [0; 65_536]).unwrap();
        }
        accepted
    });
    until(|waker| stream.writable_or_wake(waker));
    drop(reader.join().unwrap());
    until(|waker| stream.readable_or_wake(waker));
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the end is readable");
}

#[test]
fn ready_02_a_connect_that_does_not_wait() {
    let (near, far) = pair(|near| near);
    let _listener = TcpListener::bind(&far, "10.0.0.2:80").unwrap();
    let options = ConnOptions::default();
    let mut open = TcpStream::begin_connect(&near, "10.0.0.2:80".parse().unwrap(), &options).unwrap();
    until(|waker| open.writable_or_wake(waker));
    assert!(open.take_error().unwrap().is_none());
    open.write_all(b"hello").unwrap();
    let refused = TcpStream::begin_connect(&near, "10.0.0.2:81".parse().unwrap(), &options).unwrap();
    until(|waker| refused.writable_or_wake(waker));
    assert_eq!(refused.take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionRefused);
    assert!(TcpStream::begin_connect(&near, "10.0.0.2:0".parse().unwrap(), &options).is_err());
}

#[test]
fn ready_03_listeners_and_datagrams() {
    let (near, far) = pair(|near| near.shards(1));
    let listener = TcpListener::bind(&far, "10.0.0.2:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    // Each connection is news, though the one before was accepted without a look for another.
    for _ in 0..3 {
        let (waker, said) = waker();
        assert!(!listener.ready_or_wake(&waker).unwrap());
        let stream = TcpStream::connect(&near, "10.0.0.2:80").unwrap();
        said.recv_timeout(PATIENCE).unwrap();
        until(|waker| listener.ready_or_wake(waker));
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
    }
    let server = UdpSocket::bind(&far, "10.0.0.2:53").unwrap();
    let client = UdpSocket::bind(&near, "10.0.0.1:0").unwrap();
    let (waker, said) = waker();
    assert!(!server.readable_or_wake(&waker).unwrap() && client.writable_or_wake(&waker).unwrap());
    client.send_to(b"question", "10.0.0.2:53").unwrap();
    said.recv_timeout(PATIENCE).unwrap();
    until(|waker| server.readable_or_wake(waker));
    assert_eq!(server.recv(&mut [0; 16]).unwrap(), 8);
}
