//! The host's sockets as the way out, to one server wherever the guest connects to. What a test watches or
//! delays is in the stream that it makes of each connection.

use std::io;
use std::net::{IpAddr, SocketAddr};

use taut_gateway::{HostPings, HostSockets, Upstream, WayOut};
use tokio::net::{TcpStream, UdpSocket};

pub(crate) struct OneServer<F>(pub(crate) SocketAddr, pub(crate) F);

impl<S, F> WayOut for OneServer<F>
where
    S: Upstream,
    F: Fn(TcpStream) -> S + Send + Sync + 'static,
{
    type Stream = S;
    type Datagrams = UdpSocket;
    type Pings = HostPings;

    async fn connect(&self, _: SocketAddr) -> io::Result<S> {
        Ok(self.1(HostSockets::default().connect(self.0).await?))
    }

    fn datagrams(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        HostSockets::default().datagrams(to)
    }

    fn pings(&self, to: IpAddr) -> io::Result<HostPings> {
        HostSockets::default().pings(to)
    }
}
