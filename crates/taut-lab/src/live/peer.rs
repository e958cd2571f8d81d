//! The receiver of a live run: kernel TCP in a namespace of its own, with a sink and responders. Called by `live.rs`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use taut_device::Namespace;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Bytes of a read.
const CHUNK_BYTES: usize = 262_144;

/// A responder: its port, and bytes of its requests and responses.
pub(super) type Responder = (u16, usize, usize);

/// The thread; it ends when this is dropped.
pub(super) struct Peer {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub(super) fn start(
        namespace: Namespace,
        at: Ipv4Addr,
        sink: u16,
        responders: Vec<Responder>,
    ) -> io::Result<Self> {
        let stop = Arc::new(Notify::new());
        let their_stop = Arc::clone(&stop);
        let (ready, listening) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("receiver".into()).spawn(move || {
            let failed = ready.clone();
            let run = || -> io::Result<()> {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    let listener = listen(at, sink)?;
                    tokio::spawn(async move {
                        while let Ok((stream, _)) = listener.accept().await {
                            tokio::spawn(take(stream));
                        }
                    });
                    for (port, request, response) in responders {
                        let listener = listen(at, port)?;
                        tokio::spawn(async move {
                            while let Ok((stream, _)) = listener.accept().await {
                                tokio::spawn(answer(stream, request, response));
                            }
                        });
                    }
                    let _ = ready.send(Ok(()));
                    their_stop.notified().await;
                    Ok(())
                })
            };
            if let Err(error) = namespace.enter(run).and_then(|inner| inner) {
                let _ = failed.send(Err(error));
            }
        })?;
        listening.recv().map_err(|_| io::Error::other("the receiver's thread ended"))??;
        Ok(Self { stop, thread: Some(thread) })
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

fn listen(at: Ipv4Addr, port: u16) -> io::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((at, port)))?;
    socket.listen(4096)
}

/// A client that fails is its own client's error, here and below.
async fn take(mut stream: TcpStream) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(1..) = stream.read(&mut chunk).await {}
}

async fn answer(mut stream: TcpStream, request: usize, response: usize) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (mut asked, answer) = (vec![0; request], vec![b'!'; response]);
    while stream.read_exact(&mut asked).await.is_ok() {
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}
