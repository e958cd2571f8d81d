//! A short piece that the upstream makes wait: GW-80 of `docs/spec/gateway.md`.
//!
//! ```text
//!   guest: "a"           ──▶ the upstream takes it
//!   guest: "b"           ──▶ the upstream has no room, once
//!   guest: "c" meanwhile ──▶ wakes the gateway's task, which still waits for the upstream
//!                            the upstream has room: "b", and then "c", though the guest does nothing more
//! ```
#![cfg(target_os = "linux")]

use crate::support::one_server;

use std::io::{self, IoSlice, Read as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use taut::{Bytes, Stack, device};
use taut_core::LinkCaps;
use taut_gateway::{Resolver, Server, Settings, Upstream};
use taut_testbed::PATIENCE;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use one_server::OneServer;

/// The write after this one finds no room.
const GOES: u32 = 1;

/// One write of a stream finds no room, and there is none until it is opened.
#[derive(Default)]
struct Gate {
    writes: AtomicU32,
    is_shut: Notify,
    open: Notify,
}

struct StallingStream(tokio::net::TcpStream, Arc<Gate>);

impl Upstream for StallingStream {
    async fn readable(&self) -> io::Result<()> {
        Upstream::readable(&self.0).await
    }

    async fn writable(&self) -> io::Result<()> {
        if self.1.writes.load(Ordering::Relaxed) == GOES + 1 {
            self.1.is_shut.notify_one();
            self.1.open.notified().await;
            self.1.writes.fetch_add(1, Ordering::Relaxed);
        }
        Upstream::writable(&self.0).await
    }

    async fn broken(&self) {
        self.0.broken().await;
    }

    fn try_take(&self, max: usize) -> io::Result<Bytes> {
        self.0.try_take(max)
    }

    fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.1.writes.load(Ordering::Relaxed) <= GOES {
            let before = self.1.writes.fetch_add(1, Ordering::Relaxed);
            if before == GOES {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        Upstream::try_write_vectored(&self.0, data)
    }

    fn finish(&self) -> io::Result<()> {
        self.0.finish()
    }

    fn abort(self) {
        self.0.abort();
    }
}

#[test]
fn gw_80_what_comes_while_the_upstream_has_no_room_is_not_forgotten() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; 3];
        stream.read_exact(&mut bytes).map(|()| bytes)
    });
    let gate = Arc::new(Gate::default());
    let (near, far) = device::pipe(LinkCaps::offloading(1_500), 1 << 20).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bytes = runtime.block_on(async {
        let stack = Stack::builder().address("10.0.2.2/24").device(near).build_tokio().unwrap();
        let guest = Stack::builder().address("10.0.2.15/24").device(far).build_tokio().unwrap();
        let gateway = Server::new(Settings::default(), Resolver::default(), Box::new(|_| {}));
        let of_gate = Arc::clone(&gate);
        let way = OneServer(address, move |stream| StallingStream(stream, Arc::clone(&of_gate)));
        tokio::spawn(gateway.serve(&stack, Arc::new(way)).unwrap());
        let mut client = taut::TcpStream::connect(&guest, "203.0.113.7:80").await.unwrap();
        let all_acked = async |client: &taut::TcpStream| {
            while client.info().unwrap().unacked > 0 || client.info().unwrap().notsent_bytes > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        for byte in [b"a", b"b"] {
            client.write_all(byte).await.unwrap();
            all_acked(&client).await;
        }
        gate.is_shut.notified().await;
        client.write_all(b"c").await.unwrap();
        // The gateway's stack has it, and its task has run.
        all_acked(&client).await;
        tokio::task::yield_now().await;
        gate.open.notify_one();
        tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap()
    });
    assert_eq!(bytes.expect("the server has all"), *b"abc");
}
