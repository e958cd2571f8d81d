//! The server: `/large` has no end, `/small` has one byte, and what is sent to `/upload` is dropped.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::shared::log::{self, Level};

/// Bytes of a part of a body.
const PART: usize = 16 << 10;
/// The name of such a server in its answers.
pub(super) const NAME: &str = "taut-rpm";

/// Serves until an error.
pub(super) async fn serve(at: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(at).await.with_context(|| format!("cannot listen at {at}"))?;
    log::notice(Level::Info, "serving", &format!("serving at {} (Ctrl-C stops)", listener.local_addr()?));
    loop {
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                log::notice(Level::Warn, "cannot-accept", &format!("cannot accept a connection: {error}"));
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        _ = stream.set_nodelay(true);
        let service = hyper::service::service_fn(answer);
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // A client that goes is none to speak of.
        tokio::spawn(async move { _ = builder.serve_connection(TokioIo::new(stream), service).await });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Endless>, Infallible> {
    let (status, left) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/small") => (StatusCode::OK, Some(1)),
        (&Method::GET, "/large") => (StatusCode::OK, None),
        (&Method::POST, "/upload") => {
            let mut body = request.into_body();
            while let Some(Ok(_)) = body.frame().await {}
            (StatusCode::OK, Some(0))
        }
        _ => (StatusCode::NOT_FOUND, Some(0)),
    };
    let mut response = Response::new(Endless { left, count: None });
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::SERVER, http::HeaderValue::from_static(NAME));
    Ok(response)
}

/// A body of so many bytes, or without an end.
pub(super) struct Endless {
    pub(super) left: Option<usize>,
    /// Bytes that were taken.
    pub(super) count: Option<Arc<AtomicU64>>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static ZEROS: [u8; PART] = [0; PART];
        let count = self.left.map_or(PART, |left| left.min(PART));
        if let Some(left) = &mut self.left {
            *left -= count;
        }
        if let Some(taken) = &self.count {
            taken.fetch_add(count as u64, Relaxed);
        }
        let part = Frame::data(Bytes::from_static(&ZEROS[..count]));
        Poll::Ready((count > 0).then_some(Ok(part)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }
}
