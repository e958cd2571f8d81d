//! The loop below the small servers for people and collectors: a bounded number of connections, each of one
//! request, which has to be complete in ten seconds. If all places are taken, the oldest connection without a
//! complete request makes room.
//!
//! Called by `metrics.rs`, `dash/server.rs` and `net/live/`. `taut serve` has one of its own: its
//! connections are a stack's.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Buf;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;

/// How many connections are served at the same time; others wait.
pub const CONNECTIONS_MAX: usize = 32;
/// How long a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may leave what was sent to it in its socket; then the kernel ends the connection.
const TAKEN_WITHIN_MS: u32 = 60_000;
/// How long to wait after a connection that could not be accepted, for lack of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Where connections come.
pub trait Listener: Sync {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one.
    ///
    /// # Errors
    /// It cannot be accepted, for lack of descriptors or memory.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// The client's address, for the request's extensions.
    fn peer(_: &Self::Stream) -> Option<Peer> {
        None
    }
}

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address from which it comes.
    pub address: IpAddr,
    /// The address by which the gateway lists it.
    pub guest: IpAddr,
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // Without it, one that reads nothing would keep its place; nothing else depends on it.
        _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, TAKEN_WITHIN_MS);
        Ok(stream)
    }
}

/// A response must fit into a client's socket: one that reads nothing keeps its place.
impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

/// Serves for ever.
pub async fn serve<L, S, B>(listener: &L, service: S) -> Infallible
where
    L: Listener,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    let mut silent: VecDeque<Silent> = VecDeque::new();
    loop {
        let Ok(stream) = listener.next().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        silent.retain(|one| !one.has_asked.load(Ordering::Relaxed) && !one.task.is_finished());
        if places.available_permits() == 0
            && let Some(oldest) = silent.pop_front()
        {
            oldest.task.abort();
        }
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { continue };
        let (service, peer, has_asked) =
            (service.clone(), L::peer(&stream), Arc::new(AtomicBool::new(false)));
        let asked = Arc::clone(&has_asked);
        let task = tokio::spawn(async move {
            let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                peer.map(|peer| request.extensions_mut().insert(peer));
                service.call(request)
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            // A client that hangs up asks again.
            _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
        silent.push_back(Silent { task: task.abort_handle(), has_asked });
    }
}

/// A connection whose request is not complete yet.
struct Silent {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}
