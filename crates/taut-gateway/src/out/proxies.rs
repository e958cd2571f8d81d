//! Ways out by a proxy: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT (RFC 9110 §9.3.6). They carry connections
//! only: a guest's UDP and pings are refused as prohibited, and do not go around the proxy.
//!
//! What the proxy says of the destination, the guest hears:
//!
//! | the guest hears | SOCKS5 reply | HTTP status |
//! |---|---|---|
//! | refused | 5 | |
//! | host unreachable | 1, 4, 8, others | 502, 503, others |
//! | network unreachable | 3; or the proxy itself cannot be reached | the same |
//! | prohibited | 2; or another login is wanted | 401, 403, 405, 407 |
//! | silence | 6 | 408, 504 |
//!
//! Destinations are addresses, not names: the rules have been checked for the address, and a proxy that
//! resolved a name again might go elsewhere.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::out::host_sockets::HostSockets;
use crate::out::way_out::{Arrived, Datagrams, Pings, WayOut};

/// The longest answer of an HTTP proxy, up to its empty line.
const LONGEST_HEAD: usize = 8_192;

/// A SOCKS5 server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socks5 {
    /// Its address.
    pub proxy: SocketAddr,
    /// Name and password, at most 255 bytes each.
    pub login: Option<(String, String)>,
}

/// An HTTP proxy that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConnect {
    /// Its address.
    pub proxy: SocketAddr,
}

/// The proxy's own failure must not look like the destination's.
async fn to_proxy(proxy: SocketAddr) -> io::Result<TcpStream> {
    HostSockets::default().connect(proxy).await.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => error,
        _ if error.raw_os_error().is_some_and(|_| crate::failure(&error) == crate::Failure::NoResources) => {
            error
        }
        _ => ErrorKind::NetworkUnreachable.into(),
    })
}

/// A proxy that ends in the middle of a word is a broken one, not a silent host.
fn broken(_: io::Error) -> io::Error {
    ErrorKind::NetworkUnreachable.into()
}

impl WayOut for Socks5 {
    type Stream = TcpStream;
    type Datagrams = Infallible;
    type Pings = Infallible;

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = to_proxy(self.proxy).await?;
        self.greet(&mut stream).await?;
        let (kind, ip) = match to.ip() {
            IpAddr::V4(v4) => (1, v4.octets().to_vec()),
            IpAddr::V6(v6) => (4, v6.octets().to_vec()),
        };
        let request = [&[5, 1, 0, kind], &ip[..], &to.port().to_be_bytes()].concat();
        stream.write_all(&request).await.map_err(broken)?;
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await.map_err(broken)?;
        let [5, code, _, kind] = reply else { return Err(ErrorKind::NetworkUnreachable.into()) };
        // An address and a port of the proxy's, which nobody needs.
        let bound = match kind {
            1 => 4 + 2,
            4 => 16 + 2,
            3 => usize::from(stream.read_u8().await.map_err(broken)?) + 2,
            _ => return Err(ErrorKind::NetworkUnreachable.into()),
        };
        stream.read_exact(&mut vec![0; bound]).await.map_err(broken)?;
        Err(match code {
            0 => return Ok(stream),
            2 => ErrorKind::PermissionDenied,
            3 => ErrorKind::NetworkUnreachable,
            5 => ErrorKind::ConnectionRefused,
            6 => ErrorKind::TimedOut,
            _ => ErrorKind::HostUnreachable,
        }
        .into())
    }

    fn datagrams(&self, _: SocketAddr) -> io::Result<Infallible> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn pings(&self, _: IpAddr) -> io::Result<Infallible> {
        Err(ErrorKind::PermissionDenied.into())
    }
}

impl Socks5 {
    async fn greet(&self, stream: &mut TcpStream) -> io::Result<()> {
        const NO_LOGIN: u8 = 0;
        const LOGIN: u8 = 2;
        let method = if self.login.is_some() { LOGIN } else { NO_LOGIN };
        stream.write_all(&[5, 1, method]).await.map_err(broken)?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await.map_err(broken)?;
        if chosen != [5, method] {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if let Some((name, password)) = &self.login {
            let part = |text: &str| {
                let len =
                    u8::try_from(text.len()).map_err(|_| io::Error::from(ErrorKind::PermissionDenied))?;
                io::Result::Ok([&[len], text.as_bytes()].concat())
            };
            stream.write_all(&[&[1][..], &part(name)?, &part(password)?].concat()).await.map_err(broken)?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await.map_err(broken)?;
            if answer[1] != 0 {
                return Err(ErrorKind::PermissionDenied.into());
            }
        }
        Ok(())
    }
}

impl WayOut for HttpConnect {
    type Stream = TcpStream;
    type Datagrams = Infallible;
    type Pings = Infallible;

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = to_proxy(self.proxy).await?;
        let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(broken)?;
        // Byte by byte: what follows the empty line is the destination's.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= LONGEST_HEAD {
                return Err(ErrorKind::NetworkUnreachable.into());
            }
            head.push(stream.read_u8().await.map_err(broken)?);
        }
        Err(match status(&head) {
            Some(200..=299) => return Ok(stream),
            Some(401 | 403 | 405 | 407) => ErrorKind::PermissionDenied,
            Some(408 | 504) => ErrorKind::TimedOut,
            Some(_) => ErrorKind::HostUnreachable,
            None => ErrorKind::NetworkUnreachable,
        }
        .into())
    }

    fn datagrams(&self, _: SocketAddr) -> io::Result<Infallible> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn pings(&self, _: IpAddr) -> io::Result<Infallible> {
        Err(ErrorKind::PermissionDenied.into())
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let code = head.strip_prefix(b"HTTP/1.")?.get(1..5)?.strip_prefix(b" ")?;
    std::str::from_utf8(code).ok()?.parse().ok()
}

/// No socket of a way that carries no datagrams.
impl Datagrams for Infallible {
    async fn readable(&self) -> io::Result<()> {
        match *self {}
    }

    fn try_recv(&self, _: &mut [u8]) -> io::Result<Arrived> {
        match *self {}
    }

    fn try_send(&self, _: &[u8], _: Option<u16>, _: SocketAddr, _: u8) -> io::Result<usize> {
        match *self {}
    }
}

impl Pings for Infallible {
    async fn send(&self, _: u16, _: &[u8]) -> io::Result<()> {
        match *self {}
    }

    async fn recv(&self, _: &mut [u8]) -> io::Result<(u16, usize)> {
        match *self {}
    }
}
