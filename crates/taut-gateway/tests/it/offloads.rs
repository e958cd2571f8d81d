//! A machine behind libkrun, which offers its guest offloads and strips the virtio-net headers that say what
//! is left to do: GW-153 of `docs/spec/gateway.md`.
//!
//! ```text
//!   guest: a stack ── header and frame ── libkrun: two threads ── frame ── the gateway's stack │ loopback
//! ```
#![cfg(target_os = "linux")]

use crate::support::one_server;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use taut::Stack;
use taut::device::{Frames, FramesOptions};
use taut_gateway::{Resolver, Rules, Server, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use one_server::OneServer;

/// Passes frames on, from one with a virtio-net header to one without, or the other way, as libkrun does.
fn pass_frames(
    (mut from, mut to): (UnixStream, UnixStream),
    strips: bool,
    longest: &AtomicUsize,
) -> std::io::Result<()> {
    const VNET: usize = 10;
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut frame)?;
        longest.fetch_max(frame.len(), Relaxed);
        let frame = if strips { frame.split_off(VNET) } else { [&[0; VNET][..], &frame].concat() };
        to.write_all(&[&(frame.len() as u32).to_be_bytes()[..], &frame].concat())?;
    }
}

/// A stack at one end, with these addresses; its packets for others go to the other end's.
fn stack(socket: UnixStream, own: [&str; 2], other: [&str; 2], options: FramesOptions) -> Stack {
    let own = own.map(|own| own.parse().unwrap());
    let gateways = other.map(|other| other.split('/').next().unwrap().parse().unwrap()).to_vec();
    let frames = Frames::stream(socket, &own, &FramesOptions { gateways, ..options }).unwrap();
    let builder = own.iter().fold(Stack::builder(), |builder, own| builder.address(&own.to_string()));
    builder.device(frames).build_tokio().unwrap()
}

#[test]
fn gw_153_a_machine_whose_card_has_offloads_that_nobody_does() {
    const MTU: u16 = 1_500;
    let [(guest, inner), (outer, gateway)] = [(); 2].map(|()| UnixStream::pair().unwrap());
    let longest = Arc::<AtomicUsize>::default();
    for (from, to, strips) in [(&inner, &outer, true), (&outer, &inner, false)] {
        let ends = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let longest = Arc::clone(&longest);
        std::thread::spawn(move || pass_frames(ends, strips, &longest));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let answerer = UdpSocket::bind("127.0.0.1:0").unwrap();
    // The host's loopback, for the guest.
    let question = std::net::SocketAddr::from(([10, 0, 2, 2], answerer.local_addr().unwrap().port()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ends = [["10.0.2.15/24", "fd00::15/64"], ["10.0.2.2/24", "fd00::2/64"]];
        let options = FramesOptions { mtu: MTU, ..FramesOptions::default() };
        let there = stack(gateway, ends[1], ends[0], options.clone());
        let here = stack(guest, ends[0], ends[1], FramesOptions { vnet_header: Some(true), ..options });
        let (rules, own) = (Rules::parse(["allow 127.0.0.0/8"]).unwrap(), vec![question.ip()]);
        let settings = Settings { rules, own, ..Settings::default() };
        let server = Server::new(settings, Resolver::default(), Box::new(|_| {}));
        tokio::spawn(server.serve(&there, Arc::new(OneServer(address, |stream| stream))).unwrap());
        let bytes: Vec<u8> = (0..1_u32 << 20).map(|at| (at * 31 % 251) as u8).collect();
        for to in ["203.0.113.7:80", "[2001:db8::7]:80"] {
            let stream = taut::TcpStream::connect(&here, to).await.unwrap();
            let (mut reader, mut writer) = stream.into_split();
            let mut back = vec![0; bytes.len()];
            let (sent, read) = tokio::join!(writer.write_all(&bytes), reader.read_exact(&mut back));
            sent.unwrap();
            read.unwrap();
            assert!(back == bytes);
        }
        // None was put right, and they were longer than the MTU.
        let longest = longest.load(Relaxed);
        assert!(longest > usize::from(MTU) + 14 + 10, "{longest}");
        let socket = taut::UdpSocket::bind(&here, "10.0.2.15:0").await.unwrap();
        socket.send_to(b"hello", question).await.unwrap();
        let mut message = [0; 16];
        let (len, from) = tokio::task::spawn_blocking(move || {
            let mut message = [0; 16];
            let (len, from) = crate::live::again(|| answerer.recv_from(&mut message)).unwrap();
            answerer.send_to(&message[..len], from).unwrap();
            (len, from)
        })
        .await
        .unwrap();
        assert_eq!((len, from.is_ipv4()), (5, true));
        assert_eq!(socket.recv_from(&mut message).await.unwrap(), (5, question));
    });
}
