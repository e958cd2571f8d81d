//! hyper's traits on [`TcpStream`], and a [`Connector`] for the clients of hyper-util and tonic.
//!
//! **Copies.** hyper reads into a buffer of its own and writes from slices, so there is one copy each way,
//! between that buffer or slice and the stack's memory. Reading makes no other: bytes go straight from the
//! memory in which they arrived to hyper's, which need not be initialised. Writing is vectored, so hyper
//! joins no parts of a body either. [`TcpStream::write_bytes`] and [`TcpStream::read_chunk`] copy nothing,
//! but hyper has no way to call them.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::hyper::rt::{Read, ReadBufCursor, Write};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use taut_core::ConnOptions;
use taut_driver::WaitKey;
use tokio::io::AsyncWrite;
use tokio::net::lookup_host;
use tower_service::Service;

use crate::stack::Stack;
use crate::tokio::stream::TcpStream;

impl Read for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &*self.socket;
        socket.shard.poll(socket.read_interest(), WaitKey::POLL, cx.waker(), |access| {
            socket.read_pieces(access, into.remaining(), |piece| into.put_slice(piece))
        })
    }
}

impl Write for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(self, cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        AsyncWrite::is_write_vectored(self)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self, cx)
    }
}

impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// Connects over a stack, for `hyper_util::client::legacy::Client` and `tonic::transport::Endpoint`.
///
/// It resolves names by the system, and connects to port 80 for `http` and 443 for `https` unless the URI has
/// another. It makes no TLS: put a connector that does around it.
///
/// ```no_run
/// # async fn example(stack: &taut::Stack) -> Result<(), Box<dyn std::error::Error>> {
/// use taut::{ConnOptions, Connector};
///
/// let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
/// let connector = Connector::new(stack).with_options(options);
/// let endpoint = tonic::transport::Endpoint::from_static("http://10.0.0.1:50051");
/// let channel = endpoint.connect_with_connector(connector).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Connector {
    stack: Stack,
    options: ConnOptions,
}

impl Connector {
    /// Connects over `stack`.
    #[must_use]
    pub fn new(stack: &Stack) -> Self {
        Self { stack: stack.clone(), options: ConnOptions::default() }
    }

    /// The options of its connections, such as `nodelay`.
    #[must_use]
    pub fn with_options(self, options: ConnOptions) -> Self {
        Self { options, ..self }
    }

    async fn connect(self, uri: Uri) -> io::Result<TcpStream> {
        let (host, port) = target(&uri)?;
        let mut last = None;
        let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        for address in addresses {
            match TcpStream::connect_with(&self.stack, address, &self.options).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to")))
    }
}

/// The host, without the brackets of an IPv6 address, and the port.
fn target(uri: &Uri) -> io::Result<(&str, u16)> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let host = uri.host().ok_or_else(|| invalid("the URI has no host"))?;
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("http")) => 80,
        (None, Some("https")) => 443,
        (None, _) => return Err(invalid("the URI has no port, and its scheme no default")),
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

impl Service<Uri> for Connector {
    type Response = TcpStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        for (uri, expected) in [
            ("http://example.org/x", Some(("example.org", 80))),
            ("https://example.org", Some(("example.org", 443))),
            ("http://[fd07::1]:8080/", Some(("fd07::1", 8080))),
            ("grpc://10.0.0.1:50051", Some(("10.0.0.1", 50051))),
            ("grpc://10.0.0.1", None),
            ("/path", None),
        ] {
            assert_eq!(target(&uri.parse().unwrap()).ok(), expected, "{uri}");
        }
    }
}
