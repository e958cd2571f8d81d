//! TCP Fast Open with the kernel's TCP as the other end, in both directions and both families.

use crate::net;

use std::io::{Read, Write};
use std::net::TcpStream as KernelStream;

use net::{Net, STACK, echo, serve};
use taut::blocking::{TcpListener, TcpStream};
use taut::device::sys::{FastOpen, set_fast_open};
use taut::observe::FastOpenFail;
use taut::{ConnOptions, ListenOptions};
use taut_testbed::{PATIENCE, TcpInfo};

/// linux/tcp.h
const TCPI_OPT_SYN_DATA: u8 = 32;

const REQUEST: &[u8] = b"a request that fits into a SYN";

#[test]
fn a_kernel_server_takes_the_data_of_our_syn() {
    let net = Net::new();
    net.kernel.set_sysctl("tcp_fastopen", "3").unwrap();
    for family in 0..2 {
        let (listener, address) = net.listener(family);
        set_fast_open(&listener, FastOpen::Listen(16)).unwrap();
        let connect = || {
            let server = serve(listener.try_clone().unwrap(), |stream| {
                let info = TcpInfo::of(&stream).unwrap();
                echo(stream);
                info.options() & TCPI_OPT_SYN_DATA != 0
            });
            let (mut stream, taken) =
                TcpStream::connect_with_data(&net.stack, address, &ConnOptions::default(), REQUEST).unwrap();
            assert_eq!(taken, REQUEST.len());
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, REQUEST);
            (stream.info().unwrap(), server.join().unwrap())
        };
        let (info, at_server) = connect();
        assert_eq!((info.syn_data, info.fast_open_fail), (false, FastOpenFail::CookieUnavailable));
        assert!(!at_server);
        // A SYN that is sent again, as on a busy machine, does not ask for a cookie.
        let second = (0..20)
            .map(|_| connect())
            .find(|(info, _)| info.fast_open_fail != FastOpenFail::CookieUnavailable);
        let (info, at_server) = second.expect("a cookie in one of 20 connections");
        assert_eq!((info.syn_data, info.fast_open_fail), (true, FastOpenFail::None));
        assert!(at_server);
        // Another key: the cookie is not valid any more, and the data leaves again.
        net.kernel.set_sysctl("tcp_fastopen_key", &format!("1-2-3-{family}")).unwrap();
        let (info, _) = connect();
        assert_eq!((info.syn_data, info.fast_open_fail), (false, FastOpenFail::DataNotAcked));
        assert!(connect().0.syn_data, "with the new cookie");
        let counters = net.stack.counters();
        assert_eq!(counters.tcp_fast_open_active, 2 * (family as u64 + 1));
        assert_eq!(counters.tcp_fast_open_active_fail, family as u64 + 1);
    }
}

#[test]
fn a_kernel_client_sends_data_in_its_syn() {
    let net = Net::new();
    net.stack.set_sysctl("tcp_fastopen", "3").unwrap();
    for address in STACK {
        let options = ListenOptions::default().with_fast_open(16);
        let listener = TcpListener::bind_with(&net.stack, format!("{address}:0").parse().unwrap(), options);
        let listener = listener.unwrap();
        let to = listener.local_addr().unwrap();
        let before = net.stack.counters();
        let connect = || {
            // Connects at the first write, if there is a cookie.
            let client = net.kernel.enter(|| {
                let socket = taut_testbed::socket(to, &ConnOptions::default(), None).unwrap();
                set_fast_open(&socket, FastOpen::Connect).unwrap();
                socket.connect(&to.into()).unwrap();
                KernelStream::from(socket)
            });
            let mut client = client.unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(REQUEST).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; REQUEST.len()];
            stream.read_exact(&mut request).unwrap();
            assert_eq!(request, REQUEST);
            stream.write_all(b"an answer").unwrap();
            let mut answer = [0; 9];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"an answer");
            let at_client = TcpInfo::of(&client).unwrap().options() & TCPI_OPT_SYN_DATA != 0;
            (stream.info().unwrap(), at_client)
        };
        let (info, at_client) = connect();
        assert!(!info.syn_data && !info.fast_open_child && !at_client, "it asks for a cookie");
        // The kernel stores no cookie if it had to retransmit the SYN, which happens on a busy machine.
        let second = (0..20).map(|_| connect()).enumerate().find(|(_, (info, _))| info.syn_data);
        let (more, (info, at_client)) = second.expect("data in a SYN of one of 20 connections");
        assert!(info.fast_open_child && at_client);
        let counters = net.stack.counters();
        // Each such connection may have requested one, too, by its first SYN.
        let requests = counters.tcp_fast_open_cookie_reqd - before.tcp_fast_open_cookie_reqd;
        assert!((1..=1 + more as u64).contains(&requests), "{requests} of {more}");
        assert_eq!(counters.tcp_fast_open_passive - before.tcp_fast_open_passive, 1);
    }
    // The stack shows its key, and takes another one; the old one stays valid as the backup.
    let key = net.stack.sysctl("tcp_fastopen_key").unwrap();
    assert_ne!(key, "00000000-00000000-00000000-00000000");
    net.stack.set_sysctl("tcp_fastopen_key", &format!("1-2-3-4,{key}")).unwrap();
}

#[cfg(feature = "tokio")]
#[tokio::test(flavor = "multi_thread")]
async fn two_stacks_of_this_process() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (here, there) = taut::device::pipe(taut::device::LinkCaps::offloading(1_500), 1 << 20).unwrap();
    let near = taut::Stack::builder().device(here).address("10.0.0.1/24").build().unwrap();
    let there = taut::Stack::builder().device(there).address("10.0.0.2/24").set_sysctl("tcp_fastopen", "2");
    let far = there.build().unwrap();
    let options = ListenOptions::default().with_fast_open(8);
    let listener = taut::TcpListener::bind_with(&far, "10.0.0.2:80".parse().unwrap(), options).unwrap();
    for (data, is_early) in [(100, false), (100, true), (10_000, true)] {
        let data = vec![7; data];
        let (mut client, taken) = taut::TcpStream::connect_with_data(
            &near,
            "10.0.0.2:80".parse().unwrap(),
            &ConnOptions::default(),
            &data,
        )
        .await
        .unwrap();
        // A SYN has room for a segment less 40 bytes.
        assert_eq!(taken, if is_early { data.len().min(1_420) } else { data.len() });
        client.write_all(&data[taken..]).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut received = vec![0; data.len()];
        server.read_exact(&mut received).await.unwrap();
        assert_eq!(received, data);
        server.write_all(b"done").await.unwrap();
        client.read_exact(&mut received[..4]).await.unwrap();
        assert_eq!(client.info().unwrap().syn_data, is_early);
        assert_eq!(server.info().unwrap().fast_open_child, is_early);
    }
}
