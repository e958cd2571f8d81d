//! Every TCP connection that enters a TUN interface comes out through the host's sockets, or through a SOCKS5 server; and UDP
//! through the host's. The upstream connection is made first; so a client sees a refusal, an unreachable host or silence as
//! what it was.
//!
//! ```console
//! $ cargo build -p taut --example tun2socks
//! $ sudo target/debug/examples/tun2socks taut0 &                          # directly, or: tun2socks taut0 127.0.0.1:1080
//! $ sudo ip route add 203.0.113.0/24 dev taut0
//! $ curl http://203.0.113.7/                                              # must have a route that does not lead back
//! $ dig @203.0.113.7 example.com
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::SockRef;
use taut::{
    DatagramFlowOptions, FlowFilter, FlowKind, IncomingFlow, IncomingFlows, IncomingOptions, Refusal, Stack,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UdpSocket};

/// Connects to the destination of a flow.
async fn dial(to: SocketAddr, proxy: Option<SocketAddr>) -> io::Result<TcpStream> {
    let Some(proxy) = proxy else { return TcpStream::connect(to).await };
    let mut stream = TcpStream::connect(proxy).await.map_err(|_| io::ErrorKind::NetworkUnreachable)?;
    // RFC 1928: version 5, one method, without authentication; then CONNECT.
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

/// The refusal that tells a client of an error; none for silence.
fn refusal(error: &io::Error) -> Option<Refusal> {
    match error.kind() {
        io::ErrorKind::HostUnreachable => Some(Refusal::HostUnreachable),
        io::ErrorKind::NetworkUnreachable => Some(Refusal::NetworkUnreachable),
        io::ErrorKind::PermissionDenied => Some(Refusal::Prohibited),
        // Silence is answered by silence.
        io::ErrorKind::TimedOut => None,
        _ => Some(Refusal::Reset),
    }
}

/// One connection: the upstream first, then the client's answer, then bytes both ways, and the end as it came.
async fn relay(flow: IncomingFlow, proxy: Option<SocketAddr>, patience: Duration) -> io::Result<()> {
    let upstream = tokio::time::timeout(patience, dial(flow.local_addr(), proxy)).await;
    let mut upstream = match upstream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(upstream) => upstream,
        Err(error) => {
            match refusal(&error) {
                Some(how) => flow.refuse(how),
                None => drop(flow),
            }
            return Err(error);
        }
    };
    let done = match flow.accept().await {
        Ok(mut client) => {
            let done = copy_bidirectional(&mut client, &mut upstream).await;
            // A reset of one side is a reset of the other, and so is a handshake that ends in one.
            client.set_linger(done.is_err().then_some(Duration::ZERO))?;
            done.map(|_| ())
        }
        Err(error) => Err(error),
    };
    if done.is_err() {
        SockRef::from(&upstream).set_linger(Some(Duration::ZERO))?;
    }
    done
}

/// One flow of UDP: datagrams both ways, until it is idle. What the host hears of the upstream, the client hears.
async fn relay_udp(flow: IncomingFlow) -> io::Result<()> {
    let to = flow.local_addr();
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let upstream = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    if let Err(error) = upstream.connect(to).await {
        flow.refuse(refusal(&error).unwrap_or(Refusal::HostUnreachable));
        return Err(error);
    }
    let client = flow.accept_udp()?;
    let (mut out, mut back) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        let done = tokio::select! {
            len = client.recv(&mut out) => upstream.send(&out[..len?]).await,
            len = upstream.recv(&mut back) => match len {
                Ok(len) => Ok(client.send(&back[..len]).await?),
                Err(error) => Err(error),
            },
        };
        if let Err(error) = done {
            client.refuse(refusal(&error).unwrap_or(Refusal::HostUnreachable))?;
        }
    }
}

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
        ..DatagramFlowOptions::default()
    };
    let options = IncomingOptions {
        max_pending: 65_536,
        max_pending_per_peer: 65_536,
        datagrams,
        ..IncomingOptions::default()
    };
    let filter = FlowFilter::any().kinds([FlowKind::Tcp, FlowKind::Udp]);
    let flows = IncomingFlows::open_with(&stack, filter, options)?;
    loop {
        let flow = flows.accept().await?;
        match (flow.kind(), proxy) {
            (FlowKind::Tcp, _) => drop(tokio::spawn(relay(flow, proxy, patience))),
            (_, None) => drop(tokio::spawn(relay_udp(flow))),
            (_, Some(_)) => flow.refuse(Refusal::Prohibited),
        }
    }
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
