//! Connections through a SOCKS5 server.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection through a SOCKS5 server (RFC 1928): version 5, one method, without authentication; then CONNECT.
pub(crate) async fn dial(to: SocketAddr, proxy: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy).await.map_err(|_| io::ErrorKind::NetworkUnreachable)?;
    stream.write_all(&[5, 1, 0]).await?;
    if stream.read_u16().await? != 0x0500 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (kind, ip) = match to.ip() {
        IpAddr::V4(ip) => (1, ip.octets().to_vec()),
        IpAddr::V6(ip) => (4, ip.octets().to_vec()),
    };
    stream.write_all(&[&[5, 1, 0, kind], &ip[..], &to.port().to_be_bytes()].concat()).await?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    let bound = match reply[3] {
        1 => 6,
        4 => 18,
        _ => usize::from(stream.read_u8().await?) + 2,
    };
    stream.read_exact(&mut vec![0; bound]).await?;
    match reply[1] {
        0 => Ok(stream),
        2 => Err(io::ErrorKind::PermissionDenied.into()),
        3 => Err(io::ErrorKind::NetworkUnreachable.into()),
        4 => Err(io::ErrorKind::HostUnreachable.into()),
        5 => Err(io::ErrorKind::ConnectionRefused.into()),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}
