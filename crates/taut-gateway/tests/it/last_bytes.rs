//! The end of a stream that is there with its last bytes: GW-97 of `docs/spec/gateway.md`.
#![cfg(target_os = "linux")]

use crate::support::one_server;

use std::io::{self, IoSlice, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use socket2::SockRef;
use taut::{Bytes, Stack, device};
use taut_core::LinkCaps;
use taut_gateway::{Resolver, Server, Settings, Upstream};
use tokio::io::{AsyncReadExt as _, Interest};

use one_server::OneServer;

/// A stream that is readable when the server has ended it.
struct WhenEnded(tokio::net::TcpStream);

impl Upstream for WhenEnded {
    async fn readable(&self) -> io::Result<()> {
        while !self.0.ready(Interest::READABLE).await?.is_read_closed() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn writable(&self) -> io::Result<()> {
        Upstream::writable(&self.0).await
    }

    async fn broken(&self) {
        self.0.broken().await;
    }

    fn try_take(&self, max: usize) -> io::Result<Bytes> {
        self.0.try_take(max)
    }

    fn is_at_end(&self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.0.is_at_end(cx)
    }

    fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        Upstream::try_write_vectored(&self.0, data)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.finish()
    }

    fn abort(self) {
        self.0.abort();
    }
}

/// What a guest reads, to its end, of a connection to this server, which begins when the guest is connected;
/// and how many segments its stack got.
fn read_from(serve: impl FnOnce(TcpStream) + Send + 'static) -> (Vec<u8>, io::Result<usize>, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (go, wait) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        wait.recv().unwrap();
        serve(stream);
    });
    let (near, far) = device::pipe(LinkCaps::plain(1_500), 1 << 20).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = runtime.block_on(async {
        let stack = Stack::builder().address("10.0.2.2/24").device(near).build_tokio().unwrap();
        let guest = Stack::builder().address("10.0.2.15/24").device(far).build_tokio().unwrap();
        let gateway = Server::new(Settings::default(), Resolver::default(), Box::new(|_| {}));
        tokio::spawn(gateway.serve(&stack, Arc::new(OneServer(address, WhenEnded))).unwrap());
        let mut client = taut::TcpStream::connect(&guest, "203.0.113.7:80").await.unwrap();
        go.send(()).unwrap();
        let mut all = Vec::new();
        let end = client.read_to_end(&mut all).await;
        // What a busy machine has sent twice counts once.
        let segments = guest.counters().in_segs - stack.counters().retrans_segs;
        (all, end, segments)
    });
    server.join().unwrap();
    read
}

#[test]
fn gw_97_the_end_goes_with_the_last_bytes() {
    // Shorter than a segment, and a segment and a half.
    for len in [1, 2_000] {
        let (all, end, segments) = read_from(move |mut stream| stream.write_all(&vec![7; len]).unwrap());
        assert_eq!((all, end.unwrap()), (vec![7; len], len));
        // The SYN-ACK, the data, and no FIN of its own.
        assert_eq!(segments, 1 + len.div_ceil(1_448) as u64, "{len} bytes");
    }
    // A reset behind them is none the less a reset.
    let (_, end, _) = read_from(|mut stream| {
        stream.write_all(b"last").unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}
