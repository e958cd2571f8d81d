//! The testbed itself: links carry packets, the kernel applies its settings, peers answer, and nothing is
//! left behind.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use taut_core::ConnOptions;
use taut_device::TunOptions;
use taut_testbed::{Kernel, Peer, Service, SocketMemory, Subnet, TcpInfo, connect, eventually, listen, live};

const NET: Subnet = Subnet(8);

/// Two kernels joined by a pair of interfaces.
fn pair() -> Option<(Kernel, Kernel)> {
    live::ready(&["ip", "tc"]).then(|| {
        let (near, far) = (Kernel::new().unwrap(), Kernel::new().unwrap());
        near.veth(&far, NET, 1_500).unwrap();
        (near, far)
    })
}

fn open(near: &Kernel, to: SocketAddr, options: &ConnOptions) -> TcpStream {
    let stream = near.enter(|| connect(to, options, Some("reno"))).unwrap().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

#[test]
fn a_peer_answers_each_connection_in_its_way_over_both_families() {
    let Some((near, far)) = pair() else { return };
    let respond = Service::Respond { request: 3, response: 5 };
    let services = [(1, Service::Sink), (2, Service::Source), (3, Service::Echo), (4, respond)];
    let peer = Peer::start(&far, &services).unwrap();
    let mut sunk = 0;
    for address in NET.far().into_iter().map(taut_device::Cidr::address) {
        let open = |port| open(&near, (address, port).into(), &ConnOptions::default());
        let mut sink = open(1);
        sink.write_all(&[7; 100_000]).unwrap();
        sink.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sink.read(&mut [0]).unwrap(), 0, "it closes when its client does");
        sunk += 100_000;
        assert_eq!(peer.taken(), sunk);

        let mut bytes = vec![0; 1 << 20];
        open(2).read_exact(&mut bytes).unwrap();

        let mut echo = open(3);
        echo.write_all(b"there").unwrap();
        echo.read_exact(&mut bytes[..5]).unwrap();
        assert_eq!(&bytes[..5], b"there");

        let mut responder = open(4);
        responder.write_all(b"askask").unwrap();
        responder.shutdown(Shutdown::Write).unwrap();
        bytes.clear();
        // The end comes after the requested bytes, or at once if the second half of a request is missing.
        assert_eq!(responder.read_to_end(&mut bytes).unwrap(), 10, "two requests");
    }
    drop(peer);
    // A process that another test starts at this moment holds the listener for as long as it takes to start.
    eventually("nothing listens any more", || {
        near.enter(|| TcpStream::connect((NET.far_v4(), 1))).unwrap().is_err()
    });
}

#[test]
fn sockets_have_the_options_and_tell_how_they_are() {
    let Some((near, far)) = pair() else { return };
    near.set_sysctl("tcp_ecn", "1").unwrap();
    assert_eq!(near.run("cat /proc/sys/net/ipv4/tcp_ecn").unwrap(), "1\n");
    assert!(near.set_sysctl("net.ipv4.no_such_setting", "1").is_err());
    let at = (NET.far_v4(), 9).into();
    let listener = far.enter(|| listen(at, Some("reno"))).unwrap().unwrap();
    let options = ConnOptions {
        nodelay: true,
        notsent_lowat: 50_000,
        sndbuf: Some(300_000),
        rcvbuf: Some(200_000),
        max_pacing_rate: Some(1_000_000),
        maxseg: Some(1_000),
        ..ConnOptions::default()
    };
    let mut stream = open(&near, at, &options);
    let mut accepted = listener.accept().unwrap().0;
    for end in [&stream, &accepted] {
        assert!(socket2::SockRef::from(end).tcp_congestion().unwrap().starts_with(b"reno"));
    }
    let socket = socket2::SockRef::from(&stream);
    assert!(stream.nodelay().unwrap());
    assert_eq!(socket.tcp_notsent_lowat().unwrap(), 50_000);
    // Doubled (socket(7)).
    assert_eq!(socket.recv_buffer_size().unwrap(), 400_000);
    assert_eq!(SocketMemory::of(&stream).unwrap().sndbuf, 600_000);

    stream.write_all(&[1; 20_000]).unwrap();
    accepted.read_exact(&mut [0; 20_000]).unwrap();
    accepted.write_all(b"y").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let info = TcpInfo::of(&stream).unwrap();
    // Without the timestamps' 12 bytes; the SYN counts as one.
    assert_eq!((info.snd_mss(), info.bytes_acked()), (988, 20_001));
    // At a long round-trip time, as on a busy machine, the rate itself is below its limit.
    assert_eq!(info.max_pacing_rate(), 1_000_000);
    assert!((1..=1_000_000).contains(&info.pacing_rate()), "{info:?}");
    assert!(info.rtt_us() > 0 && info.snd_cwnd() >= 10 && info.snd_wnd() > 20_000, "{info:?}");
    // 21 segments of 988 bytes, the SYN, and ACKs.
    let segments = near.counters().unwrap()["TcpOutSegs"];
    assert!((22..40).contains(&segments), "{segments}");
}

#[test]
fn an_interface_has_a_rate_and_what_waits_is_counted() {
    let Some((near, far)) = pair() else { return };
    let _peer = Peer::start(&far, &[(1, Service::Sink)]).unwrap();
    assert_eq!(near.backlog_bytes("veth0").unwrap(), 0);
    near.limit_rate("veth0", 100_000, 3_000, 100_000).unwrap();
    let mut stream = open(&near, (NET.far_v4(), 1).into(), &ConnOptions::default());
    // 40 kB take three seconds.
    stream.write_all(&[1; 40_000]).unwrap();
    let waits = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        near.backlog_bytes("veth0").unwrap() > 3_000
    });
    assert!(waits);
    assert!(near.run("tc qdisc replace dev veth0 root nothing").unwrap_err().to_string().contains("nothing"));
}

#[test]
fn a_tun_has_the_kernel_at_its_far_end() {
    if !live::ready(&["ip"]) {
        return;
    }
    let kernel = Kernel::new().unwrap();
    let tun = kernel.tun(&NET.far(), &TunOptions { mtu: 1_400, ..TunOptions::default() }).unwrap();
    assert_eq!(tun.name(), "taut0");
    let shown = kernel.run("ip address show dev taut0").unwrap();
    assert!(shown.contains("mtu 1400"), "{shown}");
    assert!(NET.far().iter().all(|address| shown.contains(&address.to_string())), "{shown}");
    assert!(kernel.run("ip link show dev eth7").is_err());
    drop(tun);
    assert!(kernel.run("ip link show dev taut0").is_err(), "it is removed with its last queue");
}
