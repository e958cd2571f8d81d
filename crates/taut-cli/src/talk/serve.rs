//! An HTTP/1.1 file server: hyper on any listener, tower-http's `ServeDir` for the files (RFC 9110 ranges,
//! conditional requests, content types, and no path that leaves the directory).
//!
//! Called by `taut serve`, and by its tests on the kernel's sockets.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tower::ServiceExt as _;
use tower_http::services::ServeDir;

use crate::shared::clock::Stopwatch;
use crate::shared::log::{self, Level};
use crate::shared::{output, text};

/// Bytes read from a file at a time: one read call for several super-packets.
const FILE_CHUNK_BYTES: usize = 256 * 1024;
/// How long open responses may take to end after the server was asked to stop.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept, so that a lack of resources does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A source of connections.
pub(crate) trait Accept: Send {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Waits for the next connection; returns it with its peer's address.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
    /// Whether no further connection can arrive after this error.
    fn ends(_: &io::Error) -> bool {
        false
    }
}

impl Accept for tokio::net::TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, SocketAddr)> {
        Self::accept(self).await
    }
}

impl Accept for taut::TcpListener {
    type Io = taut::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, SocketAddr)> {
        taut::TcpListener::accept(self).await
    }

    /// Whether the stack has ended.
    fn ends(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::NetworkDown | io::ErrorKind::NotConnected)
    }
}

/// Where a request is written, when its response has ended.
#[derive(Clone, Debug)]
pub(crate) enum Requests {
    /// Into the log.
    Log,
    /// To standard output, as a line of JSON; its reader may go.
    Json(Arc<Notify>),
}

/// Serves the files below `dir` until `stop` is ready, or no further connection can arrive.
pub(crate) async fn serve<A: Accept>(
    mut listener: A,
    dir: &Path,
    log: Requests,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let (io, peer) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) if A::ends(&error) => break,
                Err(error) => {
                    note(Level::Warn, "cannot-accept", &format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (dir, to) = (dir.to_owned(), log.clone());
        let service =
            hyper::service::service_fn(move |request| answer(dir.clone(), request, peer, to.clone()));
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                note(Level::Info, "connection-failed", &format!("{peer} {error}"));
            }
        });
    }
    drop(listener);
    _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

fn note(level: Level, name: &str, text: &str) {
    log::event(level, name, text, serde_json::Map::new());
}

/// A response whose body logs the request when it is dropped.
type Answer = Response<Logged<tower_http::services::fs::ServeFileSystemResponseBody>>;

async fn answer(
    dir: PathBuf,
    request: Request<Incoming>,
    peer: SocketAddr,
    log: Requests,
) -> io::Result<Answer> {
    let watch = Stopwatch::start();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let files = ServeDir::new(dir).with_buf_chunk_size(FILE_CHUNK_BYTES);
    let response = match files.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    Ok(response.map(|body| {
        let whole = if method == Method::HEAD { Some(0) } else { body.size_hint().exact() };
        Logged { body, entry: Entry { log, peer, method, path, status, whole, sent: 0, watch } }
    }))
}

/// A body that counts the bytes of it that were sent.
struct Logged<B> {
    body: B,
    entry: Entry,
}

struct Entry {
    log: Requests,
    peer: SocketAddr,
    method: Method,
    path: String,
    status: u16,
    whole: Option<u64>,
    sent: u64,
    watch: Stopwatch,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Self { log, peer, method, path, status, whole, sent, watch } = self;
        let time = watch.elapsed();
        let complete = whole.is_none_or(|whole| whole == *sent);
        let fields = serde_json::json!({
            "peer": peer.to_string(), "method": method.as_str(), "path": path, "status": status,
            "bytes": sent, "seconds": time.as_secs_f64(), "complete": complete,
        });
        if let Requests::Json(gone) = log {
            if output::print_json(&fields).is_err() {
                gone.notify_one();
            }
            return;
        }
        let aborted = if complete { "" } else { ", aborted" };
        let (sent, rate) = (text::grouped(*sent), text::rate(*sent, time));
        let ms = text::significant(time.as_secs_f64() * 1e3);
        let line = format!("{peer} {method} {path} {status} {sent} bytes in {ms} ms, {rate}{aborted}");
        log::event(Level::Info, "request", &line, fields.as_object().cloned().unwrap_or_default());
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Logged<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.entry.sent += data.remaining() as u64;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use taut_testbed::Scratch;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Serves a directory with `inside.txt` ("0123456789"), next to a file outside it, and sends `request`.
    async fn ask(request: &str) -> String {
        let scratch = Scratch::new(&format!("serve-{request:p}"));
        let root = scratch.join("root");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("inside.txt"), "0123456789").unwrap();
        std::fs::write(scratch.join("outside.txt"), "secret").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = serve(listener, &root, Requests::Log, async { _ = stopped.await });
        let client = async {
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            stop.send(()).unwrap();
            answer
        };
        let ((), answer) = tokio::join!(server, client);
        answer
    }

    fn get(path: &str, more: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n")
    }

    #[tokio::test]
    async fn a_file_comes_with_its_length() {
        let answer = ask(&get("/inside.txt", "")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-length: 10\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n0123456789"), "{answer}");
    }

    #[tokio::test]
    async fn a_range_is_partial_content() {
        let answer = ask(&get("/inside.txt", "Range: bytes=2-4\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 206 "), "{answer}");
        assert!(answer.contains("content-range: bytes 2-4/10\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n234"), "{answer}");
        let answer = ask(&get("/inside.txt", "Range: bytes=10-\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 416 "), "{answer}");
    }

    #[tokio::test]
    async fn no_path_leaves_the_directory() {
        for path in
            ["/../outside.txt", "/%2e%2e/outside.txt", "/..%2foutside.txt", "//etc/passwd", "/%2fetc/passwd"]
        {
            let answer = ask(&get(path, "")).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
            assert!(!answer.contains("secret") && !answer.contains("root:"), "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn head_has_no_body_and_a_wrong_method_is_refused() {
        let answer = ask("HEAD /inside.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(answer.contains("content-length: 10\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
        let answer = ask("DELETE /inside.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
}
