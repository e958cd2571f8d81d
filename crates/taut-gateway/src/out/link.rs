//! Another stack as the way out: taut is the sender towards the network, with a controller of choice, and
//! keeps its queue short.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use taut::observe::{Blocked, State};
use taut::taut_control::rooms::Queues;
use taut::{
    ConnOptions, DatagramOptions, IcmpReport, PingSocket, Received, Refusal, SendMeta, Stack, TcpStream,
    UdpSocket,
};

use crate::logic::rules::any_port;
use crate::out::icmp_errors::meaning;
use crate::out::way_out::{Arrived, Datagrams, LOOK_EVERY, Path, Pings, Upstream, WayOut};

/// A stack whose link leads to the network.
#[derive(Clone, Debug)]
pub struct Link {
    /// The stack.
    pub stack: Stack,
    /// The options of its connections: the controller, `notsent_lowat`.
    pub options: ConnOptions,
}

impl WayOut for Link {
    type Stream = TcpStream;
    type Datagrams = UdpSocket;
    type Pings = LinkPings;

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(&self.stack, to, &self.options).await
    }

    fn source(&self, to: SocketAddr) -> Option<IpAddr> {
        let socket = self.datagrams(to).ok()?;
        // Connecting to an address waits for nothing.
        let connected = std::pin::pin!(socket.connect(to))
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        matches!(connected, std::task::Poll::Ready(Ok(()))).then(|| Some(socket.local_addr().ok()?.ip()))?
    }

    fn datagrams(&self, like: SocketAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind_with(&self.stack, any_port(like), &with_errors())
    }

    fn pings(&self, to: IpAddr) -> io::Result<LinkPings> {
        let any = any_port(SocketAddr::new(to, 0));
        Ok(LinkPings { socket: PingSocket::bind(&self.stack, any, &with_errors())?, to })
    }
}

impl Upstream for TcpStream {
    async fn readable(&self) -> io::Result<()> {
        Self::readable(self).await
    }

    async fn writable(&self) -> io::Result<()> {
        Self::writable(self).await
    }

    async fn broken(&self) {
        while self.info().is_ok_and(|info| info.state != State::Closed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn try_take(&self, max: usize) -> io::Result<Bytes> {
        self.try_read_chunk(max)
    }

    fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        Self::try_write_vectored(self, data)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown_with(std::net::Shutdown::Write)
    }

    fn abort(self) {
        Self::abort(&self);
    }

    fn path(&self) -> Option<Path> {
        let info = self.info().ok()?;
        let min_rtt = info.min_rtt.map_or(Duration::ZERO, Into::into);
        Some(Path { rate: info.delivery_rate, snd_mss: info.snd_mss, rcv_mss: info.rcv_mss, min_rtt })
    }

    fn queues(&self) -> Option<Queues> {
        let info = self.info().ok()?;
        Some(Queues {
            unread: info.rcv_queue_bytes,
            offered: Some(info.rcv_wnd.into()),
            unsent: info.notsent_bytes,
            in_flight: info.bytes_sent.saturating_sub(info.bytes_retrans).saturating_sub(info.bytes_acked),
            window: Some(info.snd_wnd.into()),
            segment: info.snd_mss,
            is_congested: info.blocked == Blocked::Cwnd || info.unacked >= info.snd_cwnd,
            is_paced: matches!(info.blocked, Blocked::Pacing { .. }),
            rate: info.delivery_rate,
        })
    }

    fn hold_unsent(&self, bytes: u32) {
        // A connection that is over has nothing unsent.
        _ = self.set_notsent_lowat(bytes);
    }

    fn offer(&self, bytes: u32) {
        // The stack doubles it, and offers all of that.
        _ = self.set_rcvbuf(bytes / 2);
    }
}

impl Datagrams for UdpSocket {
    async fn readable(&self) -> io::Result<()> {
        Self::readable(self).await
    }

    fn try_recv(&self, into: &mut [u8]) -> io::Result<Arrived> {
        self.try_recv_with(into).map(|Received { len, from, tos, .. }| Arrived { len, from, tos })
    }

    fn try_send(&self, data: &[u8], segment: Option<u16>, to: SocketAddr, tos: u8) -> io::Result<usize> {
        self.try_send_with(data, Some(to), &SendMeta { segment, tos: Some(tos), ..SendMeta::default() })
    }

    fn hear(&self, tell: &mut dyn FnMut(SocketAddr, Refusal)) -> bool {
        hear(|| self.recv_error(), tell)
    }
}

/// A socket that hears all that ICMP says about its datagrams.
fn with_errors() -> DatagramOptions {
    DatagramOptions { recv_errors: true, ..DatagramOptions::default() }
}

fn hear(
    next: impl Fn() -> io::Result<Option<IcmpReport>>,
    tell: &mut dyn FnMut(SocketAddr, Refusal),
) -> bool {
    let mut is_told = false;
    while let Ok(Some(IcmpReport { kind, code, mtu, to, .. })) = next() {
        is_told = true;
        if let Some(how) = meaning(to.is_ipv4(), kind, code, mtu) {
            tell(to, how);
        }
    }
    is_told
}

/// A socket for pings of a stack.
#[derive(Debug)]
pub struct LinkPings {
    socket: PingSocket,
    to: IpAddr,
}

impl Pings for LinkPings {
    async fn send(&self, seq: u16, data: &[u8]) -> io::Result<()> {
        self.socket.send_to(seq, data, self.to).await
    }

    async fn recv(&self, into: &mut [u8]) -> io::Result<(u16, usize)> {
        loop {
            let reply = self.socket.recv(into).await?;
            if reply.from == self.to {
                return Ok((reply.seq, reply.len));
            }
        }
    }

    fn hear(&self, tell: &mut dyn FnMut(Refusal)) -> bool {
        hear(|| self.socket.recv_error(), &mut |_, how| tell(how))
    }
}
