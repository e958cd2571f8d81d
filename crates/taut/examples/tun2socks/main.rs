//! Every TCP connection that enters a TUN interface comes out through the host's sockets, or through a SOCKS5
//! server; and UDP through the host's. The upstream connection is made first; so a client sees a refusal, an
//! unreachable host or silence as what it was.
//!
//! ```console
//! $ cargo build -p taut --example tun2socks
//! $ sudo target/debug/examples/tun2socks taut0 &                          # directly, or: tun2socks taut0 127.0.0.1:1080
//! $ sudo ip route add 203.0.113.0/24 dev taut0
//! $ curl http://203.0.113.7/                                              # must have a route that does not lead back
//! $ dig @203.0.113.7 example.com
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::SockRef;
use taut::{
    DatagramFlowOptions, DatagramOptions, FlowFilter, FlowKind, IncomingFlows, IncomingOptions, Refusal,
    Stack, relay,
};
use tokio::net::{TcpStream, UdpSocket};

mod socks;

/// `SO_RCVBUF` of both sides of a UDP flow, which is doubled. The default has room for 10 ms of 100 Mbit/s,
/// and a task may wait longer than that for a processor.
const BUFFER_BYTES: u32 = 2 << 20;

/// Serves every flow of the stack, until it ends.
pub async fn serve(
    stack: Stack,
    proxy: Option<SocketAddr>,
    patience: Duration,
    idle: Duration,
) -> io::Result<()> {
    // One host behind the interface may have as many flows as all.
    let datagrams = DatagramFlowOptions {
        max_pending_per_peer: u32::MAX,
        max_flows_per_peer: u32::MAX,
        queued_bytes_per_peer: u32::MAX,
        idle_timeout: idle.into(),
        socket: DatagramOptions { rcvbuf: Some(BUFFER_BYTES), ..DatagramOptions::default() },
        ..DatagramFlowOptions::default()
    };
    let options = IncomingOptions {
        max_pending: 65_536,
        max_pending_per_peer: 65_536,
        datagrams,
        ..IncomingOptions::default()
    };
    let kinds = [FlowKind::Tcp, FlowKind::Udp];
    let flows = IncomingFlows::open_with(&stack, FlowFilter::any().kinds(kinds), options)?;
    let limits = relay::Limits { connect: patience, ..relay::Limits::default() };
    loop {
        let flow = flows.accept().await?;
        let to = flow.local_addr();
        match (flow.kind(), proxy) {
            (FlowKind::Tcp, None) => _ = tokio::spawn(relay::tcp(flow, TcpStream::connect(to), limits)),
            (FlowKind::Tcp, Some(by)) => _ = tokio::spawn(relay::tcp(flow, socks::dial(to, by), limits)),
            (_, None) => _ = tokio::spawn(relay::udp(flow, dial_udp(to))),
            (_, Some(_)) => flow.refuse(Refusal::Prohibited),
        }
    }
}

/// A socket of the host's. The kernel allows it as much as `net.core.rmem_max` says.
async fn dial_udp(to: SocketAddr) -> io::Result<UdpSocket> {
    let upstream = relay::connect_udp(to).await?;
    SockRef::from(&upstream).set_recv_buffer_size(BUFFER_BYTES as usize)?;
    Ok(upstream)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (tun, proxy) = match &arguments[..] {
        [tun] => (tun, None),
        [tun, proxy] => (tun, Some(proxy.parse().map_err(io::Error::other)?)),
        _ => return Err(io::Error::other("usage: tun2socks INTERFACE [SOCKS5-ADDRESS:PORT]")),
    };
    let stack = Stack::builder().tun(tun).address("198.18.0.1/32").build()?;
    serve(stack, proxy, Duration::from_secs(125), Duration::from_secs(120)).await
}
