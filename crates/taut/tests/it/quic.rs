//! quinn over taut's UDP, by the adapter of the example `quic`: between two stacks, and to quinn over the
//! kernel's UDP. Segments by one call, marks both ways, an MTU that QUIC finds by itself.
#![cfg(all(feature = "tokio", target_os = "linux"))]

use crate::pair;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pair::pair_over;
use quinn::{ConnectionStats, Endpoint};
use taut::Stack;
use taut::device::LinkCaps;
use taut_testbed::{Kernel, Meter, Noise, Subnet, live};
use tokio::time::timeout;

#[path = "../../examples/quic/main.rs"]
#[allow(dead_code, unreachable_pub, reason = "its `main` runs as a program")]
mod example;

use example::{adapter, configs, serve};

const BYTES: usize = 5_000_000;
const NAME: &str = "taut.test";

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sends noise to an echo and compares what comes back. Returns what the client's connection counted.
async fn there_and_back(client: &Endpoint, server: SocketAddr) -> ConnectionStats {
    let connection = client.connect(server, NAME).unwrap().await.unwrap();
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let bytes = Noise::new(3).bytes(BYTES);
    let expected = Meter::of(&bytes[..]).unwrap().finish();
    let sender = tokio::spawn(async move {
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
        send
    });
    let back = recv.read_to_end(BYTES + 1).await.unwrap();
    sender.await.unwrap();
    assert_eq!((back.len(), Meter::of(&back[..]).unwrap().finish()), (BYTES, expected));
    let stats = connection.stats();
    connection.close(0_u32.into(), b"");
    client.wait_idle().await;
    stats
}

/// The same between two stacks.
async fn between(near: &Stack, far: &Stack) -> ConnectionStats {
    let (server, client) = configs(NAME).unwrap();
    let there = at("10.0.0.2:4433");
    tokio::spawn(serve(adapter::endpoint(far, there, Some(server)).unwrap()));
    let mut endpoint = adapter::endpoint(near, at("0.0.0.0:0"), None).unwrap();
    endpoint.set_default_client_config(client);
    timeout(Duration::from_secs(60), there_and_back(&endpoint, there)).await.expect("it takes too long")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quic_01_segments_leave_by_one_call_where_the_device_cuts_them() {
    for udp_segments in [true, false] {
        let caps = LinkCaps { udp_segments, ..LinkCaps::offloading(1_500) };
        let (near, far) = pair_over(caps, |builder| builder);
        let stats = between(&near, &far).await;
        let sent = stats.udp_tx;
        if udp_segments {
            // Ten at most.
            assert!(sent.datagrams > 3 * sent.ios, "{sent:?}");
            for stack in [&near, &far] {
                let counters = stack.counters();
                let packets = counters.out_requests;
                assert!(counters.udp_out_datagrams > 3 * packets, "{packets}: {counters:?}");
            }
        } else {
            assert_eq!(sent.datagrams, sent.ios);
        }
        // It has found that 1,452 bytes fit: quinn looks no further.
        assert_eq!(stats.path.current_mtu, 1_452, "{:?}", stats.path);
    }
}

/// Every datagram may be marked, and what a queue marks slows the sender down without a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quic_02_marks_pass_both_ways() {
    let (near, far) = pair_over(LinkCaps::plain(1_500), |builder| builder);
    // QUIC reaches this rate on a busy machine, too, and so makes a queue.
    near.set_qdisc("tbf rate 20mbit burst 32kb | fq_codel target 1ms interval 10ms ecn").unwrap();
    let stats = between(&near, &far).await;
    let [near, far] = [near, far].map(|stack| stack.counters());
    for counters in [near, far] {
        let marked = counters.in_ect0_pkts + counters.in_ce_pkts;
        assert!(marked > 3_000, "{counters:?}");
    }
    // Marked by the queue, told by the peer, and heeded; none was lost.
    assert!(far.in_ce_pkts > 0 && near.in_ce_pkts == 0, "{far:?}");
    assert!(stats.path.congestion_events > 0 && stats.path.lost_packets == 0, "{:?}", stats.path);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quic_03_over_a_tun_to_the_kernels_udp() {
    if !live::ready(&["ip"]) {
        return;
    }
    let net = Subnet(7);
    let (kernel, near) = (Kernel::new().unwrap(), format!("{}/24", net.near_v4()));
    let tun = kernel.tun(&net.far(), &taut::device::TunOptions::default()).unwrap();
    let cuts = tun.caps().udp_segments;
    let stack = Stack::builder().device(tun).address(&near).build().unwrap();
    let (server, client) = configs(NAME).unwrap();
    let there = SocketAddr::from((net.far_v4(), 4_433));
    let socket = kernel.enter(|| std::net::UdpSocket::bind(there)).unwrap().unwrap();
    let runtime = Arc::new(quinn::TokioRuntime);
    let far = Endpoint::new(quinn::EndpointConfig::default(), Some(server), socket, runtime).unwrap();
    tokio::spawn(serve(far));
    let mut endpoint = adapter::endpoint(&stack, (net.near_v4(), 0).into(), None).unwrap();
    endpoint.set_default_client_config(client);
    let transfer = there_and_back(&endpoint, there);
    let stats = timeout(Duration::from_secs(60), transfer).await.expect("it takes too long");
    assert_eq!(stats.udp_tx.datagrams > 2 * stats.udp_tx.ios, cuts, "{:?}", stats.udp_tx);
    // The kernel's quinn marks what it sends, and does not stop: our marks came through, too.
    let counters = stack.counters();
    assert!(counters.in_ect0_pkts > 3_000, "{counters:?}");
    assert_eq!(stats.path.current_mtu, 1_452);
}

/// The end of a stack is the end of its connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quic_04_a_stack_that_ends() {
    let (near, far) = pair_over(LinkCaps::offloading(1_500), |builder| builder);
    let (server, client) = configs(NAME).unwrap();
    let there = at("10.0.0.2:4433");
    tokio::spawn(serve(adapter::endpoint(&far, there, Some(server)).unwrap()));
    let mut endpoint = adapter::endpoint(&near, at("10.0.0.1:0"), None).unwrap();
    endpoint.set_default_client_config(client);
    let connection = endpoint.connect(there, NAME).unwrap().await.unwrap();
    drop(near);
    // quinn gives up a silent peer after 30 s.
    let end = timeout(Duration::from_secs(60), connection.closed()).await.expect("it was not told");
    assert!(!matches!(end, quinn::ConnectionError::TimedOut), "{end}");
}
