//! Two ends that trust each other.

use std::io::{Read, Write};
use std::os::fd::AsFd as _;
use std::task::Waker;
use std::time::Duration;

use taut::blocking::{TcpListener, TcpStream, UdpSocket};
use taut_core::BUFFER_BYTES;
use taut_driver::sys::{Epoll, Interest};
use taut_driver::{Device, News};

use crate::support::{ADDRESSES, ALLOWED, End, Host, Relay, pair, same, transfer, until};

/// Both ways, over both families, in super-packets and in acknowledgements.
#[test]
fn wg_15_bytes_go_both_ways_over_both_families() {
    let [one, two] = pair(["", ""], |at| at);
    for (from, to, address) in [
        (&one, &two, "10.77.0.2:80"),
        (&two, &one, "10.77.0.1:80"),
        (&one, &two, "[fd77::2]:81"),
        (&two, &one, "[fd77::1]:81"),
    ] {
        transfer(&from.stack, &to.stack, address, 4_000_000);
    }
    for host in [&one, &two] {
        let status = host.monitor.status();
        assert_eq!(status.drops, Default::default());
        assert!(status.peers[0].rx_bytes > 8_000_000 && status.peers[0].tx_bytes > 8_000_000);
        assert!(status.peers[0].since_handshake.is_some());
    }
}

#[test]
fn wg_16_a_preshared_key_is_needed_by_both() {
    let psk = "PresharedKey = FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=";
    let [one, two] = pair([psk, psk], |at| at);
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 1_000);
    let [one, two] = pair([psk, ""], |at| at);
    _ = TcpStream::connect_timeout(
        &one.stack,
        &([10, 77, 0, 2], 80).into(),
        std::time::Duration::from_millis(300),
    );
    until("refused", || one.monitor.status().drops.invalid > 0);
    assert!(one.monitor.status().peers[0].since_handshake.is_none());
    assert_eq!(two.monitor.status().drops, Default::default());
}

/// A driver may end its batch at any packet. The socket is empty then, and what was read from it is not.
#[test]
fn wg_34_packets_that_were_read_are_announced() {
    let mut ends = [0, 1].map(|at| End::new(ADDRESSES[at]));
    let keys = [ends[0].key.clone(), ends[1].key.clone()];
    ends[1].trusts(&keys[0], ALLOWED[0]);
    let second = ends[1].open().0;
    ends[0].trusts(&keys[1], &format!("{}\nEndpoint = 127.0.0.1:{}", ALLOWED[1], second.port().unwrap()));
    let one = Host::of(ends[0].open().0);
    let mut device = Device::from(second);
    let (mut buffer, waiting) = (vec![0; BUFFER_BYTES], Epoll::new().unwrap());
    let News::Fd(news) = device.rx.news(Waker::noop()).unwrap() else { panic!("a descriptor") };
    waiting.add(news.as_fd(), 0, Interest::Readable).unwrap();
    let is_announced = || waiting.wait(Some(Duration::from_millis(50))).unwrap().contains(0);
    let socket = UdpSocket::bind(&one.stack, "10.77.0.1:7").unwrap();
    let mut taken = |device: &mut Device| device.rx.recv(&mut buffer).unwrap().is_some();
    socket.send_to(b"first", "10.77.0.2:7").unwrap();
    until("the handshake", || {
        device.rx.begin_batch();
        taken(&mut device)
    });
    for _ in 0..2 {
        device.rx.begin_batch();
        while taken(&mut device) {}
        for text in [&b"a"[..], b"bb", b"ccc"] {
            socket.send_to(text, "10.77.0.2:7").unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        device.rx.begin_batch();
        for left in (0..3).rev() {
            assert!(taken(&mut device));
            device.rx.end_batch();
            assert_eq!(is_announced(), left > 0, "{left} are left");
        }
    }
}

/// The second end learns the new port from the first packet that comes from it.
#[test]
fn wg_17_a_peer_may_move() {
    let mut relay = None;
    let [one, two] = pair(["", ""], |at| {
        let new = Relay::new(at, [same(), same()]);
        let at = new.at;
        relay = Some(new);
        at
    });
    let listener = TcpListener::bind(&two.stack, "10.77.0.2:80").unwrap();
    let mut near = TcpStream::connect(&one.stack, "10.77.0.2:80").unwrap();
    let mut far = listener.accept().unwrap().0;
    let before = two.monitor.status().peers[0].endpoint.unwrap();
    for round in 0..3 {
        near.write_all(&[round]).unwrap();
        far.read_exact(&mut [0]).unwrap();
        far.write_all(&[round]).unwrap();
        near.read_exact(&mut [0]).unwrap();
        relay.as_ref().unwrap().moves.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    assert_ne!(two.monitor.status().peers[0].endpoint.unwrap(), before);
}

/// The longest IP packet, less the headers of IPv6 (RFC 8200) and UDP (RFC 768), a data message's header and
/// its tag (WireGuard §5.4.6).
#[test]
fn wg_40_the_mtu_fits_into_a_datagram() {
    for (mtu, most) in [("MTU = 65535", 65_535 - 40 - 8 - 16 - 16), ("MTU = 9000", 9_000), ("", 1_420)] {
        let caps = End::new(mtu).open().0.caps();
        assert_eq!(caps.mtu, most);
        assert!(caps.gso_max_segs > 0 && caps.gso_max_bytes >= u32::from(most), "{mtu}");
    }
}
