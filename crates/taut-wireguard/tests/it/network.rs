//! A bad network, and strangers.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use taut::blocking::{TcpStream, UdpSocket as StackUdp};

use crate::support::{ADDRESSES, ALLOWED, End, Fate, Host, Relay, pair, same, transfer, until};

/// A generator of bytes, from a seed (xorshift64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn through(fates: impl FnOnce() -> [Fate; 2]) -> ([Host; 2], Relay) {
    let mut relay = None;
    let hosts = pair(["", ""], |at| {
        let new = Relay::new(at, fates());
        let at = new.at;
        relay = Some(new);
        at
    });
    (hosts, relay.unwrap())
}

#[test]
fn wg_18_replayed_and_reordered_datagrams_are_counted_and_harmless() {
    let bad = || -> Fate {
        let mut kept: Option<Vec<u8>> = None;
        // Each comes twice, and each third one after the next.
        let mut count = 0;
        Box::new(move |datagram| {
            count += 1;
            if count % 3 == 0 {
                kept = Some(datagram.to_vec());
                return Vec::new();
            }
            let mut all = vec![datagram.to_vec(), datagram.to_vec()];
            all.extend(kept.take());
            all
        })
    };
    let ([one, two], _relay) = through(|| [bad(), bad()]);
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 1_000_000);
    assert!(two.monitor.status().drops.replayed > 100, "{:?}", two.monitor.status().drops);
    assert_eq!(two.monitor.status().drops.invalid, 0);
}

#[test]
fn wg_19_damaged_truncated_and_foreign_datagrams_are_counted_and_harmless() {
    let bad = |seed| -> Fate {
        let mut random = Random(seed);
        Box::new(move |datagram| {
            let mut all = vec![datagram.to_vec()];
            let mut damaged = datagram.to_vec();
            let at = random.next() as usize % damaged.len();
            damaged[at] ^= 1 << (random.next() % 8);
            all.push(damaged);
            all.push(datagram[..random.next() as usize % datagram.len()].to_vec());
            all.push((0..random.next() % 1_500).map(|_| random.next() as u8).collect());
            all
        })
    };
    let ([one, two], _relay) = through(|| [bad(1), bad(2)]);
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 500_000);
    for host in [&one, &two] {
        let drops = host.monitor.status().drops;
        assert!(drops.invalid > 30 && drops.source == 0, "{drops:?}");
    }
}

#[test]
fn wg_20_an_inner_source_that_is_not_allowed_is_dropped() {
    let mut ends = [0, 1].map(|at| End::new(ADDRESSES[at]));
    let keys = [ends[0].key.clone(), ends[1].key.clone()];
    // The second end expects another address of the first.
    ends[1].trusts(&keys[0], "AllowedIPs = 10.77.0.9");
    let second = ends[1].open().0;
    let port = second.port().unwrap();
    ends[0].trusts(&keys[1], &format!("{}\nEndpoint = 127.0.0.1:{port}", ALLOWED[1]));
    let [one, two] = [Host::of(ends[0].open().0), Host::of(second)];
    let socket = StackUdp::bind(&one.stack, "10.77.0.1:7").unwrap();
    let sink = StackUdp::bind(&two.stack, "10.77.0.2:7").unwrap();
    sink.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    until("dropped", || {
        socket.send_to(b"x", "10.77.0.2:7").unwrap();
        two.monitor.status().drops.source > 2
    });
    assert!(sink.recv_from(&mut [0; 8]).is_err(), "nothing has come");
}

/// An address behind no peer, and a peer that is nowhere yet, are errors at once: as from a router.
#[test]
fn wg_21_a_packet_for_no_peer_is_refused_at_once() {
    let mut end = End::new(ADDRESSES[0]);
    end.trusts(&taut_wireguard::PrivateKey::generate().unwrap(), ALLOWED[1]);
    let host = Host::of(end.open().0);
    for to in ["192.0.2.1:80", "10.77.0.2:80"] {
        let start = std::time::Instant::now();
        let error = TcpStream::connect(&host.stack, to).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable, "{to}: {error}");
        assert!(start.elapsed() < Duration::from_secs(10), "{to}");
    }
}

/// Strangers send what they like; peers continue, and memory stays as it is.
fn flood(datagrams: u64) {
    let (hosts, port) = {
        let mut port = 0;
        let hosts = pair(["", ""], |at| {
            port = at.port();
            at
        });
        (hosts, port)
    };
    let [one, two] = &hosts;
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 100_000);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let (mut random, mut data, mut before) = (Random(3), vec![0; 1_500], 0);
    for count in 0..datagrams {
        let len = match random.next() % 4 {
            0 => 148,
            1 => 92,
            2 => 64,
            _ => 1 + random.next() as usize % 1_499,
        };
        data[..len].fill_with(|| random.next() as u8);
        // Messages of each type, with indices near those in use.
        data[..len.min(4)].copy_from_slice(&[1 + (random.next() % 5) as u8, 0, 0, 0][..len.min(4)]);
        _ = socket.send_to(&data[..len], to);
        if count == datagrams / 10 {
            before = resident();
        }
    }
    let drops = two.monitor.status().drops;
    assert!(drops.invalid + drops.stranger > datagrams / 100, "{drops:?}");
    let grown = resident().saturating_sub(before);
    assert!(grown < 2 << 20, "{grown} bytes more after the flood");
    transfer(&one.stack, &two.stack, "10.77.0.2:81", 100_000);
}

/// Bytes of memory that this process holds.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

#[test]
fn wg_22_random_datagrams_are_counted_and_memory_is_flat() {
    flood(100_000);
}

#[test]
#[ignore = "a minute: make wireguard"]
fn wg_22_a_million_random_datagrams() {
    flood(1_000_000);
}

/// A recorded handshake, again and again: the peer under load demands a proof of the address, and an honest
/// peer gives it.
#[test]
fn wg_23_a_flood_of_handshakes_is_answered_by_cookies() {
    let recorded = std::sync::Arc::new(std::sync::Mutex::new(None::<Vec<u8>>));
    let record = std::sync::Arc::clone(&recorded);
    let ([one, two], relay) = through(|| {
        let record: Fate = Box::new(move |datagram| {
            if datagram[0] == 1 {
                *record.lock().unwrap() = Some(datagram.to_vec());
            }
            vec![datagram.to_vec()]
        });
        [record, same()]
    });
    transfer(&one.stack, &two.stack, "10.77.0.2:80", 1_000);
    let initiation = recorded.lock().unwrap().clone().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let server = SocketAddr::from(([127, 0, 0, 1], two.monitor.status().port));
    let mut cookie = [0; 256];
    until("a cookie", || {
        for _ in 0..100 {
            socket.send_to(&initiation, server).unwrap();
        }
        // WireGuard §5.4.7: type 3, 64 bytes.
        matches!(socket.recv_from(&mut cookie), Ok((64, _))) && cookie[0] == 3
    });
    let drops = two.monitor.status().drops;
    assert!(drops.cookies > 0 && drops.replayed > 0, "{drops:?}");
    // The peers' own keys are untouched.
    transfer(&one.stack, &two.stack, "10.77.0.2:81", 1_000);
    drop(relay);
}
