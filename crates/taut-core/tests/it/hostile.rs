//! Peers and strangers that try to cost a stack something: docs/spec/reliability.md, ATK-3 and following.
//! `attacks.rs` has the packets that must not be believed; here are the patterns that cost work, memory or
//! bandwidth.

use crate::support;

use std::collections::BTreeMap;

use support::trace::{Offer, Trace};
use support::{Rng, pattern};
use taut_core::{ConnOptions, Duration, Instant, ListenOptions, Stack, StackConfig, State};
use taut_wire::Unreachable;

/// The classic attack on a connection whose ports are known: one RST, or SYN, for each window of the sequence
/// space. One of them is in the window for sure.
#[test]
fn atk_05_a_whole_sequence_space_of_guesses() {
    const WINDOW: u32 = 65_535;
    for flags in ["R", "S", "SA"] {
        let mut t = Trace::accepted(Offer::EASY);
        // Not at the left edge: that guess is right once in 65,535 such sweeps.
        for n in 0..u32::MAX / WINDOW {
            let seq = 2_u32.wrapping_add(n.wrapping_mul(WINDOW));
            match flags {
                "R" => inject!(t, "R", seq(seq)),
                "S" => inject!(t, "S", seq(seq)),
                _ => inject!(t, "S.", seq(seq), ack(seq)),
            }
        }
        assert_eq!(t.state(), State::Established);
        // RFC 5961 §7: at most one challenge ACK in the 500 ms that nothing here takes.
        assert_eq!((t.out.len(), t.stack.counters().tcp_challenge_ack), (1, 1), "{flags}");
    }
}

/// A stranger that guesses data knows nothing: the window's share of the sequence space, times the share of
/// the ACKs that are believed, is 2.3e-10 for each segment.
#[test]
fn atk_03_guesses_of_data() {
    let mut t = Trace::accepted(Offer::EASY);
    let mut rng = Rng::new(7);
    for _ in 0..100_000 {
        let (seq, ack) = (rng.next() as u32, rng.next() as u32);
        inject!(t, "P.", seq(seq), ack(ack), len(1));
    }
    let info = t.info();
    assert_eq!((info.bytes_received, info.rcv_ooo_bytes, t.state()), (0, 0, State::Established));
    // Each is out of the window and has a payload: an ACK tells an honest peer where we are. It has no more
    // bytes than the segment, so it amplifies nothing.
    assert!(t.out.iter().all(|got| got.bytes.len() <= 41 + 12), "an ACK with a SACK block at most");
}

/// The limit is each connection's own (CVE-2016-5696: a limit that all share tells a stranger whether a guess
/// was right).
#[test]
fn atk_06_a_challenge_of_one_connection_takes_none_from_another() {
    let mut t = Trace::new();
    t.listen_with(ListenOptions { backlog: 10, ..ListenOptions::default() });
    let mut numbers = BTreeMap::new();
    for port in [1_000, 2_000] {
        inject!(t, "S", seq(0), port(port), mss(1_000));
        numbers.insert(port, t.out.pop_front().unwrap().wire.seq);
        t.iss = numbers[&port];
        inject!(t, ".", seq(1), ack(1), port(port));
    }
    assert!(t.stack.accept(t.listener.unwrap()).is_some() && t.stack.accept(t.listener.unwrap()).is_some());
    t.out.clear();
    for _ in 0..1_000 {
        inject!(t, "S", seq(9), port(1_000));
    }
    assert_eq!(t.out.len(), 1);
    t.out.clear();
    inject!(t, "S", seq(9), port(2_000));
    assert_eq!(t.out.len(), 1, "the other connection still answers");
}

/// RFC 3465 §2.3, Savage et al. 1999: bytes count, not ACKs. Ten segments in ten thousand ACKs open the
/// window by ten segments, as in one.
#[test]
fn atk_07_divided_acks_open_the_window_no_faster() {
    for algorithm in ["reno", "cubic", "dctcp"] {
        let mut windows = Vec::new();
        for step in [10_000, 1_000, 1] {
            let mut t = Trace::with(
                StackConfig::default().with(|c| c.set_sysctl("tcp_congestion_control", algorithm).unwrap()),
            );
            t.accept(Offer::EASY);
            t.write(20_000);
            t.poll();
            assert_eq!((t.out.len(), t.info().snd_cwnd), (10, 10), "RFC 6928");
            for ack in (step..=10_000).step_by(step as usize) {
                inject!(t, ".", seq(1), ack(1 + ack));
            }
            windows.push(t.info().snd_cwnd);
        }
        assert_eq!(windows, [20, 20, 20], "{algorithm}: slow start doubles");
    }
}

/// Duplicate ACKs from nowhere: each says that a segment has left, and never more than were sent. What they
/// release ends at the window that the peer offered, 65 segments.
#[test]
fn atk_08_duplicate_acks_end_at_the_window() {
    for sackok in [false, true] {
        let mut t = Trace::accepted(Offer { sackok, ..Offer::EASY });
        let now = t.now;
        let data: Vec<u8> = (0..200_000).map(pattern).collect();
        let _ = t.conn().write(now, &data);
        t.poll();
        for _ in 0..10_000 {
            inject!(t, ".", seq(1), ack(1));
        }
        let info = t.info();
        let new = t.out.iter().map(|got| got.seq + got.payload.len() as u32).max().unwrap();
        assert!(new <= 1 + 65_535, "sent until {new}");
        assert!(info.unacked <= 66 && info.snd_cwnd <= 10, "{info:?}");
        // The first segment goes again, and no other is thought lost and sent over and over.
        let again = t.out.iter().filter(|got| got.seq == 1).count();
        assert!(again <= 2, "{again} times");
    }
}

/// ACKs of what is in flight but cannot have arrived make the sender faster, as RFC 5681 §7 says; ACKs beyond
/// it do not.
#[test]
fn atk_08_optimistic_acks_do_not_pass_what_was_sent() {
    let mut t = Trace::accepted(Offer::EASY);
    t.write(20_000);
    t.poll();
    let sent: u32 = t.out.iter().map(|got| got.payload.len() as u32).sum();
    let before = t.info();
    for beyond in [1, 2, 1_000, 60_000, 1 << 30] {
        inject!(t, ".", seq(1), ack(1 + sent + beyond));
    }
    let info = t.info();
    assert_eq!((info.unacked, info.snd_cwnd, info.bytes_acked), (before.unacked, before.snd_cwnd, 0));
}

/// A block that begins in flight and ends beyond it is no block at all (Linux: `tcp_is_sackblock_valid`).
#[test]
fn atk_09_blocks_that_end_beyond_what_was_sent() {
    let mut t = Trace::accepted(Offer::EASY);
    t.write(3_000);
    t.poll();
    for end in [3_002, 9_000, 65_535, 1 << 30] {
        inject!(t, ".", seq(1), ack(1), sack(&[(1_001, end)]));
        assert_eq!(t.info().sacked, 0, "until {end}");
    }
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 3_001)]));
    assert_eq!(t.info().sacked, 2);
}

/// A segment size of one byte would make a header of 40 bytes for each: the least is 48 (Linux:
/// `tcp_min_snd_mss`, CVE-2019-11479).
#[test]
fn atk_10_tiny_segment_sizes() {
    for (mss, least) in [(0, 536), (1, 48), (47, 48), (48, 48), (88, 88)] {
        let mut t = Trace::accepted(Offer { mss: Some(mss), ..Offer::EASY });
        assert_eq!(t.info().snd_mss, least, "{mss}");
        t.write(10 * least as usize);
        t.poll();
        assert_eq!(t.out.len(), 10, "the window counts segments");
        assert!(t.out.iter().all(|got| got.payload.len() == least as usize));
    }
}

/// RFC 1122 §4.2.3.4: a window that opens by one byte at a time is used when the override timer says so, 0.1
/// to 1 s: at most ten segments a second.
#[test]
fn atk_11_tiny_windows() {
    let mut t = Trace::accepted(Offer { win: 1, ..Offer::EASY });
    t.write(2_000);
    let mut segments = 0;
    let end = t.now + Duration::from_secs(10);
    while t.now < end {
        t.poll();
        while let Some(got) = t.out.pop_front() {
            segments += u64::from(!got.payload.is_empty());
            assert!(got.payload.len() <= 1);
            let next = got.seq + got.payload.len() as u32;
            inject!(t, ".", seq(1), ack(next), win(1));
        }
        if !t.step(end) {
            break;
        }
    }
    assert!((10..=100).contains(&segments), "{segments} segments in 10 s");
}

/// An application that does not read is sent no more than the window that it offered, and what comes beyond
/// is dropped.
#[test]
fn atk_13_a_peer_cannot_fill_more_than_the_window() {
    let options = ConnOptions { rcvbuf: Some(10_000), ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn: options, ..ListenOptions::default() });
    let limit = u64::from(t.info().rcvbuf);
    for n in 0..1_000 {
        inject!(t, ".", seq(1 + n * 1_000), ack(1), len(1_000));
    }
    assert_eq!(limit, 20_000, "SO_RCVBUF is doubled");
    assert!(t.info().rcv_queue_bytes <= limit);
    // In pieces, too, and from the end.
    for n in (0..60_000).rev().step_by(7) {
        inject!(t, ".", seq(1 + n), ack(1), len(3));
    }
    let info = t.info();
    assert!(info.rcv_queue_bytes + info.rcv_ooo_bytes <= limit, "{info:?}");
}

/// 10,000 routers that nobody asked: an error must quote a number in flight (RFC 5927 §4.1), and even then
/// ends nothing and makes no segment smaller than 552 bytes allow (Linux: `min_pmtu`).
#[test]
fn atk_15_guesses_of_icmp_errors() {
    let mut t = Trace::accepted(Offer::ALL);
    t.write(3_000);
    t.poll();
    let sent = t.out.front().unwrap().bytes.clone();
    let whole = t.info().snd_mss;
    let mut rng = Rng::new(3);
    for _ in 0..10_000 {
        let mut quoted = sent.clone();
        quoted[24..28].copy_from_slice(&(rng.next() as u32).to_be_bytes());
        let code = match rng.below(4) {
            0 => Unreachable::Port,
            1 => Unreachable::Host,
            2 => Unreachable::Network,
            _ => Unreachable::FragmentationNeeded { mtu: rng.below(1_500) as u32 },
        };
        t.inject_icmp(code, &quoted);
    }
    // 3,000 of 2^32 numbers are in flight: 0.007 of 10,000 guesses are right.
    assert_eq!((t.info().snd_mss, t.state()), (whole, State::Established));
    t.inject_icmp(Unreachable::FragmentationNeeded { mtu: 0 }, &sent);
    t.inject_icmp(Unreachable::FragmentationNeeded { mtu: 68 }, &sent);
    assert!(t.info().snd_mss >= 552 - 20 - 32, "{}", t.info().snd_mss);
    assert_eq!(t.state(), State::Established);
}

/// RFC 6528: initial sequence numbers of connections that differ in a port have nothing in common. 4,096 of
/// them fill 16 boxes with 256 each, and a standard deviation of 15.5.
#[test]
fn atk_16_initial_sequence_numbers_cannot_be_guessed() {
    let mut t = Trace::new();
    t.listen_with(ListenOptions { backlog: 5_000, ..ListenOptions::default() });
    let mut numbers = Vec::new();
    for port in 1..=4_096 {
        inject!(t, "S", seq(0), port(port), mss(1_000));
        numbers.push(t.out.pop_front().unwrap().wire.seq);
    }
    let steps: Vec<u32> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    for series in [&numbers, &steps] {
        for shift in [28, 12] {
            let mut boxes = [0_u32; 16];
            for number in series {
                boxes[(number >> shift) as usize & 15] += 1;
            }
            assert!(boxes.iter().all(|&count| count.abs_diff(256) < 5 * 16), "{boxes:?}");
        }
    }
}

/// RFC 6056 §3.3.3: where the search for a port begins depends on the destination and on a secret. 1,024
/// destinations fill 16 boxes with 64 each, and a standard deviation of 7.7.
#[test]
fn atk_16_local_ports_cannot_be_guessed() {
    let first_port = |seed: u8, host: u32| {
        let config = StackConfig::default().with(|c| c.addresses = vec!["192.0.2.1".parse().unwrap()]);
        let caps = taut_core::LinkCaps::plain(1_500);
        let mut stack = Stack::new(std::sync::Arc::new(config), caps, [seed; 32]);
        let to = (std::net::Ipv4Addr::from_bits(0x0a00_0000 + host), 80).into();
        let id = stack.connect(Instant::from_nanos(1), to, &ConnOptions::default()).unwrap();
        stack.conn(id).unwrap().local_addr().port()
    };
    let ports: Vec<u16> = (1..=1_024).map(|host| first_port(1, host)).collect();
    let mut boxes = [0_u32; 16];
    for port in &ports {
        boxes[usize::from(port - 32_768) * 16 / (60_999 - 32_768 + 1)] += 1;
    }
    assert!(boxes.iter().all(|&count| count.abs_diff(64) < 5 * 8), "{boxes:?}");
    let other: Vec<u16> = (1..=64).map(|host| first_port(2, host)).collect();
    let same = ports.iter().zip(&other).filter(|(a, b)| a == b).count();
    assert!(same <= 1, "{same} of 64 ports are the same with another secret");
}

/// 10,000 connections that this side closes first leave as many entries as `tcp_max_tw_buckets` allows, and
/// each goes after a minute.
#[test]
fn atk_17_a_flood_of_time_waits() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.max_tw_buckets = 100));
    let listener = t.listen();
    for port in 1..=10_000 {
        inject!(t, "S", seq(0), port(port), mss(1_000));
        t.iss = t.out.pop_front().unwrap().wire.seq;
        inject!(t, ".", seq(1), ack(1), port(port));
        let (id, _) = t.stack.accept(listener).unwrap();
        t.stack.conn_mut(id).unwrap().close(t.now);
        t.poll();
        inject!(t, "F.", seq(1), ack(2), port(port));
        t.out.clear();
        assert!(t.stack.connections() == 0 && t.stack.time_waits() <= 100);
    }
    assert_eq!(t.stack.time_waits(), 100);
    t.wait_s(61);
    t.expect_gone();
    assert_eq!(t.stack.poll_timeout(), None);
}
