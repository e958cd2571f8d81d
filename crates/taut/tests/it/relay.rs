//! `taut::relay`: a client behind a stack in this process, a gateway on the other stack, servers of the
//! kernel's at 127.0.0.1. No root, no TUN. The same with the kernel's clients over a TUN: `incoming.rs`.
#![cfg(feature = "tokio")]

use crate::pair;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use pair::pair;
use taut::relay::{self, Limits};
use taut::{
    DatagramFlowOptions, FlowFilter, FlowKind, IncomingFlows, IncomingOptions, Stack, TcpStream, UdpSocket,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream as KernelStream, UdpSocket as KernelUdp};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// What the client believes to talk to.
const SERVER: &str = "203.0.113.7:80";
const LONG: Duration = Duration::from_secs(60);

/// A client's stack, and what became of the connections of the gateway beside it, whose upstreams are dialled
/// by `dial`.
fn gateway<F>(dial: impl Fn() -> F + Send + 'static, limits: Limits) -> (Stack, Outcomes)
where
    F: Future<Output = io::Result<KernelStream>> + Send + 'static,
{
    let (near, far) = pair(|builder| builder);
    let flows = IncomingFlows::open(&far, FlowFilter::any()).unwrap();
    let (tell, outcomes) = unbounded_channel();
    tokio::spawn(async move {
        let _running = far;
        while let Ok(flow) = flows.accept().await {
            assert_eq!(flow.local_addr(), SERVER.parse().unwrap());
            let (tell, relayed) = (tell.clone(), relay::tcp(flow, dial(), limits));
            tokio::spawn(async move { tell.send(relayed.await.map_err(|error| error.kind())) });
        }
    });
    (near, outcomes)
}

type Outcomes = UnboundedReceiver<Result<(u64, u64), ErrorKind>>;

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LONG, future).await.expect("it takes too long")
}

/// One connection through the gateway: `client` at one end, `server` at the other. Returns how the relay
/// ended.
async fn one<C, S>(
    limits: Limits,
    client: impl FnOnce(TcpStream) -> C,
    server: impl FnOnce(KernelStream) -> S + Send + 'static,
) -> Result<(u64, u64), ErrorKind>
where
    C: Future<Output = ()>,
    S: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (stack, mut outcomes) = gateway(move || KernelStream::connect(at), limits);
    let served = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        server(stream).await;
    });
    within(client(TcpStream::connect(&stack, SERVER).await.unwrap())).await;
    within(served).await.unwrap();
    within(outcomes.recv()).await.unwrap()
}

#[tokio::test]
async fn relay_01_each_half_ends_by_itself() {
    // The client ends first, then the server.
    let end = one(
        Limits::default(),
        async |mut client: TcpStream| {
            client.write_all(&[1; 300_000]).await.unwrap();
            client.shutdown().await.unwrap();
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, [2; 7]);
        },
        async |mut server: KernelStream| {
            let mut all = Vec::new();
            server.read_to_end(&mut all).await.unwrap();
            assert_eq!(all.len(), 300_000);
            server.write_all(&[2; 7]).await.unwrap();
        },
    );
    assert_eq!(end.await, Ok((300_000, 7)));
    // The server ends first, with a limit on silence that is not reached.
    let limits = Limits { idle: Some(LONG), ..Limits::default() };
    let end = one(
        limits,
        async |mut client: TcpStream| {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, [2; 7]);
            client.write_all(&[1; 9]).await.unwrap();
        },
        async |mut server: KernelStream| {
            server.write_all(&[2; 7]).await.unwrap();
            server.shutdown().await.unwrap();
            let mut all = Vec::new();
            server.read_to_end(&mut all).await.unwrap();
            assert_eq!(all, [1; 9]);
        },
    );
    assert_eq!(end.await, Ok((9, 7)));
}

#[tokio::test]
async fn relay_02_a_reset_of_one_side_is_a_reset_of_the_other() {
    let end = one(
        Limits::default(),
        async |mut client: TcpStream| {
            client.write_all(b"x").await.unwrap();
            let end = client.read(&mut [0; 9]).await.unwrap_err();
            assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        },
        async |mut server: KernelStream| {
            server.read_u8().await.unwrap();
            server.set_zero_linger().unwrap();
        },
    );
    assert_eq!(end.await, Err(ErrorKind::ConnectionReset));
    let end = one(
        Limits::default(),
        async |mut client: TcpStream| {
            client.read_u8().await.unwrap();
            client.set_linger(Some(Duration::ZERO)).unwrap();
        },
        async |mut server: KernelStream| {
            server.write_all(b"x").await.unwrap();
            let end = server.read(&mut [0; 9]).await.unwrap_err();
            assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        },
    );
    assert_eq!(end.await, Err(ErrorKind::ConnectionReset));
}

/// Each side sends two single bytes, and waits for two. With Nagle's algorithm in the relay, the second of
/// them would wait until the receiver acknowledges the first, which takes 40 ms at least when it has nothing
/// to send; a receiver that has just begun is faster.
#[tokio::test]
async fn relay_07_small_messages_are_sent_on_at_once() {
    const ROUNDS: usize = 40;
    // The second byte is sent when the first has arrived, so they never leave in one segment.
    let (asked, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (has_asked, has_answered) = (Arc::clone(&asked), Arc::clone(&answered));
    let end = one(
        Limits::default(),
        async move |mut client: TcpStream| {
            client.set_nodelay(true).unwrap();
            let (mut taken, mut byte) = (Vec::new(), [0]);
            for _ in 0..ROUNDS {
                client.write_all(b"?").await.unwrap();
                asked.notified().await;
                let begin = tokio::time::Instant::now();
                client.write_all(b"?").await.unwrap();
                client.read_exact(&mut byte).await.unwrap();
                answered.notify_one();
                client.read_exact(&mut byte).await.unwrap();
                taken.push(begin.elapsed());
            }
            // A busy machine makes some rounds slow; Nagle's algorithm makes all of them slow, but for the
            // last one, whose FIN takes the byte along.
            taken.pop();
            let later = taken.split_off(ROUNDS / 2);
            assert!(later.iter().min() < Some(&Duration::from_millis(35)), "{later:?}");
        },
        async move |mut server: KernelStream| {
            server.set_nodelay(true).unwrap();
            let mut byte = [0];
            for _ in 0..ROUNDS {
                server.read_exact(&mut byte).await.unwrap();
                has_asked.notify_one();
                server.read_exact(&mut byte).await.unwrap();
                server.write_all(b"!").await.unwrap();
                has_answered.notified().await;
                server.write_all(b"!").await.unwrap();
            }
        },
    );
    assert_eq!(end.await, Ok((2 * ROUNDS as u64, 2 * ROUNDS as u64)));
}

#[tokio::test]
async fn relay_03_silence_ends_both_sides_if_there_is_a_limit() {
    let limits = Limits { idle: Some(Duration::from_secs(2)), ..Limits::default() };
    let end = one(
        limits,
        async |mut client: TcpStream| {
            // A byte every 50 ms, for longer than two limits, then silence.
            for _ in 0..100 {
                client.write_all(b"x").await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let end = client.read(&mut [0; 9]).await.unwrap_err();
            assert_eq!(end.kind(), ErrorKind::ConnectionReset);
        },
        async |mut server: KernelStream| {
            let mut all = Vec::new();
            let end = server.read_to_end(&mut all).await.unwrap_err();
            assert_eq!((end.kind(), all.len()), (ErrorKind::ConnectionReset, 100));
        },
    );
    assert_eq!(end.await, Err(ErrorKind::TimedOut));
}

#[tokio::test]
async fn relay_04_an_upstream_that_fails_is_told_as_what_it_was() {
    let cases = [
        (ErrorKind::ConnectionRefused, ErrorKind::ConnectionRefused),
        (ErrorKind::HostUnreachable, ErrorKind::HostUnreachable),
        (ErrorKind::NetworkUnreachable, ErrorKind::NetworkUnreachable),
        // RFC 1812's code 13, which is an unreachable host to Linux.
        (ErrorKind::PermissionDenied, ErrorKind::HostUnreachable),
        (ErrorKind::OutOfMemory, ErrorKind::ConnectionRefused),
    ];
    for (upstream, seen) in cases {
        let (stack, mut outcomes) = gateway(move || async move { Err(upstream.into()) }, Limits::default());
        let end = within(TcpStream::connect(&stack, SERVER)).await.unwrap_err();
        assert_eq!(end.kind(), seen, "{upstream}");
        assert_eq!(within(outcomes.recv()).await, Some(Err(upstream)));
    }
    // One that says nothing; and that the limit takes for one.
    let limits = Limits { connect: Duration::from_millis(200), ..Limits::default() };
    let (stack, mut outcomes) = gateway(std::future::pending, limits);
    let at = SERVER.parse().unwrap();
    let end = TcpStream::connect_timeout(&stack, at, Duration::from_millis(1_500)).await.unwrap_err();
    assert_eq!(end.kind(), ErrorKind::TimedOut);
    assert_eq!(within(outcomes.recv()).await, Some(Err(ErrorKind::TimedOut)));
}

#[tokio::test]
async fn relay_05_datagrams_pass_until_the_flow_is_idle() {
    let server = KernelUdp::bind("127.0.0.1:0").await.unwrap();
    let there = server.local_addr().unwrap();
    let echo = tokio::spawn(async move {
        let mut bytes = vec![0; 2_000];
        for _ in 0..100 {
            let (len, from) = server.recv_from(&mut bytes).await.unwrap();
            bytes[..len].reverse();
            server.send_to(&bytes[..len], from).await.unwrap();
        }
        // From here on, the port is closed.
    });
    let (near, far) = pair(|builder| builder);
    let options = IncomingOptions {
        datagrams: DatagramFlowOptions {
            idle_timeout: Duration::from_secs(4).into(),
            ..DatagramFlowOptions::default()
        },
        ..IncomingOptions::default()
    };
    let flows = IncomingFlows::open_with(&far, FlowFilter::any().kinds([FlowKind::Udp]), options).unwrap();
    let relayed = tokio::spawn(async move {
        let flow = flows.accept().await.unwrap();
        relay::udp(flow, relay::connect_udp(there)).await
    });
    let client = UdpSocket::bind(&near, "10.0.0.1:0").await.unwrap();
    client.connect(SERVER).await.unwrap();
    let mut answer = [0; 2_000];
    for number in 0..100_u32 {
        let question = [&number.to_be_bytes()[..], &vec![7; number as usize * 14]].concat();
        client.send(&question).await.unwrap();
        let len = within(client.recv(&mut answer)).await.unwrap();
        answer[..len].reverse();
        assert_eq!(answer[..len], question);
    }
    within(echo).await.unwrap();
    client.send(b"?").await.unwrap();
    let refused = within(client.recv(&mut answer)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    within(relayed).await.unwrap().unwrap();
    assert_eq!(far.counters().datagram_flows_idle, 1);
}

#[tokio::test]
async fn relay_06_a_flow_of_udp_without_an_upstream_is_refused() {
    let (near, far) = pair(|builder| builder);
    let flows = IncomingFlows::open(&far, FlowFilter::any().kinds([FlowKind::Udp])).unwrap();
    let client = UdpSocket::bind(&near, "10.0.0.1:0").await.unwrap();
    client.connect(SERVER).await.unwrap();
    client.send(b"?").await.unwrap();
    let flow = within(flows.accept()).await.unwrap();
    let dial = async { Err(ErrorKind::ConnectionRefused.into()) };
    assert_eq!(relay::udp(flow, dial).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let refused = within(client.recv(&mut [0; 9])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
