//! Attacks on a running stack, and failures: nonsense packets, floods, injections, a peer that vanishes. The
//! stack continues, leaks nothing, and reports the correct errors to the application.

use crate::net;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use net::stranger::{Stranger, packet};
use net::{KERNEL, Net, STACK, digest_of, echo, send_noise, serve};
use taut::blocking::{TcpListener, TcpStream};
use taut_testbed::{Noise, PATIENCE};
use taut_wire::TcpHeader;
use taut_wire::tcp::{self, Flags};

fn kernel_ip() -> Ipv4Addr {
    KERNEL[0].parse().unwrap()
}

/// Waits until the stack has received `packets`; some may still be in the interface's queue.
fn taken_in(net: &Net, packets: u64) -> taut::observe::Counters {
    for _ in 0..60_000 {
        let counters = net.stack.counters();
        if counters.in_receives >= packets {
            return counters;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{packets} packets were sent: {:?}", net.stack.counters());
}

/// One connection each way works, and its bytes arrive.
fn assert_alive(net: &Net) {
    let (listener, address) = net.listener(0);
    let server = serve(listener, digest_of);
    let stream = TcpStream::connect(&net.stack, address).unwrap();
    let sent = send_noise(&stream, 1 << 20, 5);
    drop(stream);
    assert_eq!(server.join().unwrap(), (1 << 20, sent));
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
}

#[test]
fn nonsense_is_survived() {
    let net = Net::new();
    let listener = TcpListener::bind(&net.stack, format!("{}:0", STACK[0])).unwrap();
    let port = listener.local_addr().unwrap().port();
    let stranger = Stranger::new(&net);
    let mut noise = Noise::new(42);
    let mut sent = 0;
    for round in 0..20_000_u32 {
        let mut random = [0; 64];
        noise.fill(&mut random);
        let header = TcpHeader {
            src_port: u16::from_be_bytes([random[0], random[1]]),
            dst_port: port,
            seq: u32::from_be_bytes([random[2], random[3], random[4], random[5]]),
            ack: u32::from_be_bytes([random[6], random[7], random[8], random[9]]),
            flags: Flags::from_bits(u16::from(random[10])),
            window: u16::from_be_bytes([random[11], random[12]]),
            ..TcpHeader::default()
        };
        let mut bytes = packet(kernel_ip(), &header, &random[32..]);
        match round % 4 {
            // Options, offsets and payload at random, with a checksum that is right.
            0 => {
                bytes[32] = random[13];
                bytes[40..].copy_from_slice(&random[..32]);
                tcp::set_checksum(&mut bytes[20..], 0);
                let (src, dst) = (kernel_ip().into(), STACK[0].parse().unwrap());
                let checksum = tcp::full_checksum(src, dst, &bytes[20..], &[]);
                tcp::set_checksum(&mut bytes[20..], checksum);
            }
            // Truncated at random; the kernel sets the total length.
            1 => bytes.truncate(20 + usize::from(random[14]) % (bytes.len() - 20)),
            // One bit wrong.
            2 => bytes[20 + usize::from(random[15]) % 40] ^= 1 << (random[16] % 8),
            _ => {}
        }
        sent += u32::from(stranger.send(&bytes));
        if round % 1_000 == 0 {
            // The TUN's queue holds 10,000 packets and drops what is more.
            taken_in(&net, u64::from(sent));
        }
    }
    assert!(sent > 15_000, "only {sent} packets were sent");
    let counters = taken_in(&net, u64::from(sent));
    assert!(counters.in_errs > 1_000, "{counters:?}");
    assert!(counters.out_rsts > 1_000, "{counters:?}");
    // SYNs among the nonsense are half open, up to the backlog; they end with the listener's retries.
    drop(listener);
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    stream.write_all(b"still here").unwrap();
    let mut ten = [0; 10];
    stream.read_exact(&mut ten).unwrap();
    assert_eq!(&ten, b"still here");
    drop(stream);
    server.join().unwrap();
}

#[test]
fn a_syn_flood_keeps_nobody_out_and_a_closed_port_resets() {
    const BACKLOG: u32 = 128;
    let net = Net::new();
    let options = taut::ListenOptions { backlog: BACKLOG, ..Default::default() };
    let address: SocketAddr = format!("{}:80", STACK[0]).parse().unwrap();
    let listener = TcpListener::bind_with(&net.stack, address, options).unwrap();
    let stranger = Stranger::new(&net);
    for port in 1..=5_000 {
        // From unused addresses, which never answer.
        let src = Ipv4Addr::new(10, 7, (port >> 8) as u8, port as u8 | 4);
        let syn = TcpHeader {
            src_port: port,
            dst_port: 80,
            seq: 1,
            flags: Flags::SYN,
            window: 1_000,
            ..Default::default()
        };
        assert!(stranger.send(&packet(src, &syn, &[])));
    }
    let counters = taken_in(&net, 5_000);
    assert!(net.stack.connections() <= BACKLOG as usize);
    assert!(counters.syncookies_sent >= 4_000, "{counters:?}");
    // A client of the kernel's gets in by a cookie, and keeps the options that its timestamps carried.
    let client = net.kernel.enter(|| std::net::TcpStream::connect((kernel_stack(), 80))).unwrap();
    let mut client = client.expect("the flood keeps nobody out");
    let (mut server, _) = listener.accept().unwrap();
    let info = server.info().unwrap();
    assert!(info.sack && info.snd_wscale.is_some() && info.timestamps, "{info:?}");
    client.write_all(&[7; 100_000]).unwrap();
    let mut got = vec![0; 100_000];
    server.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == 7));
    assert_eq!(net.stack.counters().syncookies_recv, 1);
    let refused = net.kernel.enter(|| std::net::TcpStream::connect((kernel_stack(), 81))).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn kernel_stack() -> IpAddr {
    STACK[0].parse().unwrap()
}

#[test]
fn injections_outside_the_window_change_nothing() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, echo);
    let mut stream = TcpStream::connect(&net.stack, address).unwrap();
    let local = stream.local_addr().unwrap();
    let stranger = Stranger::new(&net);
    let mut noise = Noise::new(7);
    for round in 0..3_000_u32 {
        let mut random = [0; 8];
        noise.fill(&mut random);
        let flags = [Flags::RST, Flags::SYN, Flags::ACK, Flags::RST | Flags::ACK, Flags::FIN | Flags::ACK];
        let header = TcpHeader {
            src_port: address.port(),
            dst_port: local.port(),
            seq: u32::from_be_bytes([random[0], random[1], random[2], random[3]]),
            ack: u32::from_be_bytes([random[4], random[5], random[6], random[7]]),
            flags: flags[round as usize % flags.len()],
            window: 5_000,
            ..TcpHeader::default()
        };
        stranger.send(&packet(kernel_ip(), &header, b"evil"));
    }
    stream.write_all(b"untouched").unwrap();
    let mut nine = [0; 9];
    stream.read_exact(&mut nine).unwrap();
    assert_eq!(&nine, b"untouched");
    drop(stream);
    server.join().unwrap();
    assert_alive(&net);
}

#[test]
fn a_peer_that_vanishes_times_the_writer_out() {
    let net = Net::new();
    let (listener, address) = net.listener(0);
    let server = serve(listener, |mut stream| {
        let mut some = vec![0; 1 << 20];
        stream.read_exact(&mut some).unwrap();
        stream
    });
    let options = taut::ConnOptions {
        user_timeout: Some(Duration::from_secs(3).into()),
        ..taut::ConnOptions::default()
    };
    let stream = TcpStream::connect_with(&net.stack, address, &options, None).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let piece = vec![1; 64 << 10];
        loop {
            if let Err(error) = writer.write_all(&piece) {
                return error;
            }
        }
    });
    let vanished = server.join().unwrap();
    // The peer's address is gone: packets to it fall silent.
    net.kernel.run("ip address flush dev taut0").unwrap();
    let _ = net.kernel.run(&format!("ip route add blackhole {}", STACK[0]));
    assert_eq!(writing.join().unwrap().kind(), ErrorKind::TimedOut);
    let mut byte = [0];
    assert_eq!((&stream).read(&mut byte).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(stream);
    drop(vanished);
    assert!(net.stack.drain(PATIENCE), "{} connections left", net.stack.connections());
}
