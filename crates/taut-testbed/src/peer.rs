//! The kernel as a peer: a thread in a namespace that accepts any number of connections and serves each as
//! its port says. Called by live runs and tests.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::{Kernel, Subnet, listen};

/// Bytes per read, and per write of a source.
const CHUNK_BYTES: usize = 262_144;

/// How the peer serves a connection; it closes the connection when its client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reads and discards everything.
    Sink,
    /// Sends as much as the client takes.
    Source,
    /// Sends everything back.
    Echo,
    /// Answers each request of `request` bytes with a response of `response` bytes.
    Respond {
        /// Bytes of a request, at least one.
        request: usize,
        /// Bytes of a response.
        response: usize,
    },
}

/// The thread; it ends when this is dropped, and its connections with it.
#[derive(Debug)]
pub struct Peer {
    taken: Arc<AtomicU64>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    /// Starts to listen on these ports of all addresses; when this returns, clients can connect.
    ///
    /// # Errors
    /// When a port is taken, or those of [`Kernel::thread`].
    pub fn start(kernel: &Kernel, services: &[(u16, Service)]) -> io::Result<Self> {
        let (taken, stop) = (Arc::<AtomicU64>::default(), Arc::<Notify>::default());
        let (their_taken, their_stop) = (Arc::clone(&taken), Arc::clone(&stop));
        let any = if Subnet::has_ipv6() {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        let listen = |&(port, service): &(u16, Service)| {
            let listener = listen((any, port).into(), None)?;
            listener.set_nonblocking(true)?;
            Ok((listener, service))
        };
        let listeners = kernel.enter(|| services.iter().map(listen).collect::<io::Result<Vec<_>>>())??;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = kernel.thread("peer", move || {
            runtime.block_on(async {
                for (listener, service) in listeners {
                    // Fails only outside a runtime.
                    let Ok(listener) = TcpListener::from_std(listener) else { return };
                    tokio::spawn(serve(listener, service, Arc::clone(&their_taken)));
                }
                their_stop.notified().await;
            });
        })?;
        Ok(Self { taken, stop, thread: Some(thread) })
    }

    /// Bytes that its sinks have taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts until the listener fails; each connection is a task, and tasks end with the runtime.
async fn serve(listener: TcpListener, service: Service, taken: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let taken = Arc::clone(&taken);
        // If the connection fails, the client reports that.
        tokio::spawn(async move {
            let _ = answer(stream, service, &taken).await;
        });
    }
}

async fn answer(mut stream: TcpStream, service: Service, taken: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let chunk = || vec![b'!'; CHUNK_BYTES];
    match service {
        Service::Sink => {
            let mut chunk = chunk();
            while let count @ 1.. = stream.read(&mut chunk).await? {
                taken.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
        Service::Source => {
            let chunk = chunk();
            loop {
                stream.write_all(&chunk).await?;
            }
        }
        Service::Echo => {
            let mut chunk = chunk();
            while let count @ 1.. = stream.read(&mut chunk).await? {
                stream.write_all(&chunk[..count]).await?;
            }
        }
        Service::Respond { request, response } => {
            let (mut asked, answer) = (vec![0; request.max(1)], vec![b'!'; response]);
            loop {
                stream.read_exact(&mut asked).await?;
                stream.write_all(&answer).await?;
            }
        }
    }
    Ok(())
}
