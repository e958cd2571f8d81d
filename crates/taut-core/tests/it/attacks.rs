//! Attacks from outside: RFC 5961, RFC 7323 §5, RFC 5927; and packets that no honest peer sends.

use crate::support;

use support::trace::{Offer, Seg, Trace, packet};
use support::{Rng, pattern};
use taut_core::{
    ConnError, Duration, Event, Frame, ListenOptions, RxChecksum, RxPacket, StackConfig, State, SynCookies,
};
use taut_wire::{AccEcn, Flags, TcpHeader, TcpOptions, Timestamps, Unreachable};

/// Established, the peer at 1, the stack at 1, window 65,535, rate limits fresh.
fn open() -> Trace {
    Trace::accepted(Offer::EASY)
}

#[test]
fn arr_05_rst_is_believed_at_exactly_the_left_edge() {
    // RFC 5961 §3.2.
    let mut t = open();
    inject!(t, "R", seq(0));
    inject!(t, "R", seq(1 + 65_535));
    inject!(t, "R", seq(100_000));
    inject!(t, "R", seq(u32::MAX - 70_000));
    expect_nothing!(t);
    assert_eq!(t.state(), State::Established);
    inject!(t, "R", seq(2));
    expect!(t, ".", seq(1), ack(1));
    inject!(t, "R", seq(65_535));
    expect_nothing!(t);
    t.wait_ms(500);
    inject!(t, "R.", seq(65_535), ack(1));
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.state(), State::Established);
    assert_eq!(t.stack.counters().tcp_challenge_ack, 2);
    inject!(t, "R", seq(1));
    expect_nothing!(t);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::Reset));
    t.close();
    t.expect_gone();
}

#[test]
fn arr_05_syn_is_never_believed() {
    // RFC 5961 §4.2: irrespective of the sequence number, a challenge ACK; not more than one in 500 ms (§7).
    for seq in [1, 30_000, 0, 100_000, u32::MAX - 100_000] {
        let mut t = open();
        inject!(t, "S", seq(seq));
        expect!(t, ".", seq(1), ack(1), sack(&[]));
        for _ in 0..10 {
            inject!(t, "S", seq(seq));
            inject!(t, "S.", seq(seq), ack(1));
        }
        expect_nothing!(t, for_ms 499);
        t.wait_ms(1);
        inject!(t, "S", seq(seq));
        expect!(t, ".", seq(1), ack(1));
        assert_eq!(t.state(), State::Established);
        assert_eq!(t.stack.counters().tcp_challenge_ack, 2);
    }
}

#[test]
fn arr_03_acknowledgments_of_what_was_never_sent_or_long_ago() {
    let mut t = open();
    t.write(10_000);
    t.poll();
    let sent: u32 = t.out.iter().map(|got| got.payload.len() as u32).sum();
    t.out.clear();
    inject!(t, ".", seq(1), ack(1 + sent));
    t.poll();
    t.out.clear();
    // RFC 9293 §3.10.7.4: an ACK of something not yet sent: send an ACK, drop the segment.
    inject!(t, "P.", seq(1), ack(100_000), len(10));
    expect!(t, ".", ack(1));
    assert_eq!(t.info().rcv_queue_bytes, 0);
    t.wait_ms(500);
    // RFC 5961 §5.2: older than the largest window ever.
    let una = t.info().bytes_acked as u32 + 1;
    inject!(t, "P.", seq(1), ack(una.wrapping_sub(65_536)), len(10));
    expect!(t, ".", ack(1));
    assert_eq!(t.info().rcv_queue_bytes, 0);
    // Within it, the data is good.
    inject!(t, "P.", seq(1), ack(una.wrapping_sub(65_535)), len(10));
    expect!(t, ".", ack(11));
    t.read(10);
}

/// RFC 9293 §3.10.7.4, RFC 5961 §3 to §5, RFC 7323 §5: what one of the checks refuses is dropped as a whole.
/// Each of these has ten bytes that would be next, acknowledges what is in flight, and offers another window.
#[test]
fn arr_06_a_segment_that_is_refused_changes_nothing() {
    type Make = fn(Seg) -> Seg;
    let refused: [(&str, &str, Make); 8] = [
        ("a RST elsewhere in the window", "R.", |seg| seg.seq(2).ack(1_001)),
        ("a SYN-ACK", "S.", |seg| seg.seq(1).ack(1_001)),
        ("a SYN-ACK in the window", "S.", |seg| seg.seq(0).ack(1_001)),
        ("a SYN", "S", |seg| seg.seq(1)),
        ("an ACK of what was never sent", "P.", |seg| seg.seq(1).ack(1_002)),
        ("an ACK of long ago", "P.", |seg| seg.seq(1).ack(1_u32.wrapping_sub(65_536))),
        ("beyond the window", "P.", |seg| seg.seq(1 + 65_535).ack(1_001)),
        ("of the past", "P.", |seg| seg.seq(1_u32.wrapping_sub(10)).ack(1_001)),
    ];
    let known = |t: &mut Trace| {
        let info = t.info();
        let data = (info.rcv_queue_bytes, info.rcv_ooo_bytes, info.bytes_received, info.data_segs_in);
        (info.state, data, info.unacked, info.snd_wnd, info.last_ack_recv, t.conn().as_ref().error())
    };
    for offer in [Offer::EASY, Offer { ts: true, mss: Some(1_012), ..Offer::EASY }] {
        for (name, flags, make) in refused {
            let mut t = Trace::accepted(offer);
            t.write(1_000);
            t.poll();
            t.wait_ms(10);
            let before = known(&mut t);
            t.inject(&make(Seg::new(flags).len(10).win(10_000)));
            assert_eq!(known(&mut t), before, "{name}");
            let outside = matches!(name, "beyond the window" | "of the past");
            assert_eq!(t.stack.counters().tcp_out_of_window, u64::from(outside), "{name}");
            // What it looked like is still to come.
            inject!(t, "P.", seq(1), ack(1_001), len(10));
            t.read(10);
            assert_eq!((t.info().unacked, t.info().last_ack_recv), (0, Duration::ZERO), "{name}");
        }
    }
    // Without the flag, the field says nothing (RFC 9293 §3.1).
    let mut t = open();
    t.write(1_000);
    t.poll();
    t.wait_ms(10);
    let before = known(&mut t);
    let header = TcpHeader {
        src_port: t.peer.port(),
        dst_port: t.local.port(),
        seq: t.irs.wrapping_add(1),
        ack: t.iss.wrapping_add(1_001),
        flags: Flags::PSH,
        window: 10_000,
        ..TcpHeader::default()
    };
    let bytes = packet(t.peer.ip(), t.local.ip(), &header, &[0; 10]);
    t.inject_bytes(&bytes, 0);
    assert_eq!(known(&mut t), before, "no ACK");
    let mut t = Trace::accepted(Offer { ts: true, ..Offer::EASY });
    t.write(100);
    t.poll();
    t.wait_s(20);
    let before = known(&mut t);
    let (value, echo) = (t.peer_clock().wrapping_sub(30_000), t.last_tsval);
    inject!(t, "P.", seq(1), ack(101), len(10), win(10_000), ts(value, echo));
    assert_eq!((known(&mut t), t.stack.counters().paws_estab), (before, 1), "an old timestamp");
}

#[test]
fn atk_03_blind_data_is_dropped() {
    let mut t = open();
    // Beyond the window, and below it: an ACK tells an honest peer where we are (RFC 9293 §3.10.7.4).
    inject!(t, ".", seq(1 + 65_535), ack(1), len(100));
    expect!(t, ".", seq(1), ack(1), sack(&[]));
    inject!(t, ".", seq(u32::MAX - 500), ack(1), len(100));
    expect!(t, ".", seq(1), ack(1));
    // Without an ACK it is no segment of a connection at all.
    inject!(t, "P", seq(1), len(100));
    inject!(t, "", seq(1), len(100));
    inject!(t, "F", seq(1));
    expect_nothing!(t);
    assert_eq!((t.info().bytes_received, t.state()), (0, State::Established));
}

#[test]
fn atk_06_empty_segments_out_of_the_window_are_answered_rarely() {
    let mut t = open();
    for _ in 0..50 {
        inject!(t, ".", seq(90_000), ack(1));
        inject!(t, ".", seq(0), ack(1));
    }
    assert_eq!(t.out.len(), 1, "two ends that disagree would answer each other for ever");
}

#[test]
fn atk_14_paws_rejects_old_timestamps() {
    let mut t = Trace::accepted(Offer::ALL);
    t.wait_ms(100);
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.out.clear();
    let recent = t.peer_clock();
    t.wait_ms(100);
    // RFC 7323 §5.3 R1: not acceptable, an ACK is sent, and nothing is taken.
    inject!(t, "P.", seq(11), ack(1), len(10), ts(recent - 1, t.last_tsval));
    expect!(t, ".", ack(11), ts(t.last_tsval, recent));
    inject!(t, ".", seq(11), ack(1), ts(recent.wrapping_sub(1 << 30), t.last_tsval));
    assert_eq!(t.stack.counters().paws_estab, 2);
    assert_eq!(t.info().bytes_received, 10);
    t.out.clear();
    // A RST is not subject to it (§5.2).
    inject!(t, "P.", seq(11), ack(1), len(10), ts(recent, t.last_tsval));
    assert_eq!(t.info().bytes_received, 20);
    inject!(t, "R", seq(21), ts(recent - 50, 0));
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::Reset));
}

#[test]
fn atk_14_a_timestamp_from_beyond_the_window_is_not_remembered() {
    // RFC 7323 §4.3 (2): SEG.SEQ <= Last.ACK.sent, or an out-of-order segment would spoil the echo.
    let mut t = Trace::accepted(Offer::ALL);
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(1), len(100), ts(1_000_000, t.last_tsval));
    assert_eq!(expect!(t, ".").options.timestamps.unwrap().echo, 1_000_000);
    inject!(t, ".", seq(201), ack(1), len(100), ts(1_000_050, t.last_tsval));
    assert_eq!(expect!(t, ".").options.timestamps.unwrap().echo, 1_000_000);
    inject!(t, ".", seq(101), ack(1), len(100), ts(1_000_020, t.last_tsval));
    assert_eq!(expect!(t, ".").options.timestamps.unwrap().echo, 1_000_020);
}

#[test]
fn atk_15_icmp_unreachable_ends_only_attempts() {
    for (code, error) in [
        (Unreachable::Host, ConnError::HostUnreachable),
        (Unreachable::Network, ConnError::NetworkUnreachable),
        (Unreachable::Port, ConnError::Refused),
    ] {
        let mut t = Trace::new();
        let id = t.connect();
        let syn = expect!(t, "S");
        // RFC 5927 §4.1: the quoted sequence number must be in flight.
        let mut forged = syn.bytes.clone();
        forged[24] ^= 1;
        t.inject_icmp(code, &forged);
        assert_eq!(t.event(), None);
        t.inject_icmp(code, &syn.bytes);
        assert_eq!(t.event(), Some(Event::Failed(id, error)));
        t.close();
        t.expect_gone();
    }
    // RFC 1122 §4.2.3.9: soft, once established.
    let mut t = open();
    t.write(100);
    let data = expect!(t, "P.", len(100));
    t.inject_icmp(Unreachable::Host, &data.bytes);
    t.inject_icmp(Unreachable::Port, &data.bytes);
    assert_eq!(t.state(), State::Established);
    inject!(t, ".", seq(1), ack(101));
    assert_eq!(t.info().unacked, 0);
}

#[test]
fn atk_15_icmp_too_big_lowers_the_segment_size_and_resends() {
    for (mut t, mtu, mss) in [(Trace::new(), 1_000, 1_000 - 52), (Trace::v6(), 1_300, 1_300 - 72)] {
        t.accept(Offer::ALL);
        let whole = t.info().snd_mss;
        t.write(2 * whole as usize);
        let first = expect!(t, ".", seq(1), len(whole as usize));
        let second = expect!(t, "P.", len(whole as usize));
        // RFC 5927 §7.2: not in flight, so not believed.
        let mut forged = second.bytes.clone();
        let seq_at = if t.local.is_ipv4() { 24 } else { 44 };
        forged[seq_at] ^= 0x10;
        t.inject_icmp(Unreachable::FragmentationNeeded { mtu }, &forged);
        expect_nothing!(t);
        assert_eq!(t.info().snd_mss, whole);
        let cwnd = t.info().snd_cwnd;
        t.inject_icmp(Unreachable::FragmentationNeeded { mtu }, &first.bytes);
        // RFC 1191 §6.5: at once, in smaller pieces, and the window stays: it was not congestion.
        let (mut next, mut pieces) = (1, 0);
        while next < 1 + 2 * whole {
            let again = t.out.pop_front().expect("everything is retransmitted");
            assert_eq!(again.seq, next);
            assert!(again.payload.len() <= mss as usize && !again.payload.is_empty());
            next += again.payload.len() as u32;
            pieces += 1;
        }
        assert!(pieces >= 3);
        assert_eq!((t.info().snd_mss, t.info().snd_cwnd), (mss, cwnd));
        // Linux: `tcp_simple_retransmit`. Nor does an ACK of the first piece take it for one.
        assert_eq!(t.info().ca_state, "loss");
        inject!(t, ".", seq(1), ack(1 + mss));
        assert_eq!((t.info().snd_ssthresh, t.info().snd_cwnd >= cwnd), (u32::MAX, true));
        inject!(t, ".", seq(1), ack(next));
        assert_eq!((t.info().unacked, t.info().lost), (0, 0));
        // ICMP never makes the size larger, nor smaller than the size that every path carries (RFC 5927
        // §7.2); for IPv6, a router may not even report such a size (RFC 8201 §4).
        t.write(whole as usize);
        let big = t.out.pop_front().unwrap_or_else(|| expect!(t, ".", len(mss as usize)));
        t.inject_icmp(Unreachable::FragmentationNeeded { mtu: 1_400 }, &big.bytes);
        assert_eq!(t.info().snd_mss, mss);
        let too_small = if t.local.is_ipv4() { 68 } else { 1_279 };
        t.inject_icmp(Unreachable::FragmentationNeeded { mtu: too_small }, &big.bytes);
        let least = if t.local.is_ipv4() { 552 - 52 } else { mss };
        assert_eq!(t.info().snd_mss, least);
    }
}

#[test]
fn atk_22_impossible_sources_are_dropped() {
    for (own, sources) in [
        ("192.0.2.1", &["0.0.0.0", "255.255.255.255", "224.0.0.1", "239.1.2.3", "192.0.2.1"][..]),
        ("2001:db8::1", &["::", "ff02::1", "::ffff:192.0.2.2", "2001:db8::1"][..]),
    ] {
        for source in sources {
            // The last of them is the land attack: our own address, port and all.
            let config = StackConfig::default().with(|c| c.set_sysctl("tcp_ecn", "3").unwrap());
            let mut t = Trace::on(config, taut_core::LinkCaps::plain(1_500), own, source);
            t.peer.set_port(80);
            t.listen();
            inject!(t, "S", seq(0), mss(1_460));
            inject!(t, ".", seq(0), ack(7));
            expect_nothing!(t);
            t.expect_gone();
            assert_eq!(t.stack.counters().in_discards, 2, "{source}");
        }
    }
    // A packet to others is not ours.
    let mut t = Trace::new();
    t.local.set_ip("192.0.2.9".parse().unwrap());
    inject!(t, "S", seq(0));
    expect_nothing!(t);
    assert_eq!(t.stack.counters().in_discards, 1);
}

#[test]
fn bad_checksums_ports_and_lengths_are_counted() {
    let mut t = open();
    let good = t.build(&Seg::new("P.").seq(1).ack(1).len(100));
    for at in 20..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        t.inject_bytes(&bad, 0);
    }
    assert_eq!(t.stack.counters().in_errs, (good.len() - 20) as u64);
    for len in 0..good.len() {
        t.inject_bytes(&good[..len], 0);
    }
    assert_eq!(t.stack.counters().in_hdr_errors, good.len() as u64);
    inject!(t, "S", port(0));
    expect_nothing!(t);
    assert_eq!(t.info().bytes_received, 0);
    // Padding behind the packet does no harm.
    let mut padded = good.clone();
    padded.extend([0xaa; 20]);
    t.inject_bytes(&padded, 0);
    t.read(100);
}

#[test]
fn nonsense_options() {
    let mut t = open();
    let base = t.build(&Seg::new("P.").seq(1).ack(1).len(4));
    // Lengths of 0 and 1, lengths beyond the header, and unknown kinds.
    for options in [[2, 0, 1, 1], [8, 1, 0, 0], [5, 200, 0, 0], [253, 4, 1, 2], [3, 4, 9, 9], [5, 4, 0, 0]] {
        let mut bytes = base[..40].to_vec();
        bytes[3] += 4;
        bytes[32] = 6 << 4;
        bytes.extend(options);
        bytes.extend(&base[40..]);
        bytes[10..12].fill(0);
        let sum =
            bytes[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let packet = RxPacket { frame: Frame::Slice(&bytes), checksum: RxChecksum::Verified, gso_size: 0 };
        t.stack.handle_packet(t.now, packet);
    }
    t.read(4);
    assert_eq!(t.state(), State::Established);
}

#[test]
fn atk_09_sack_blocks_of_what_was_never_sent() {
    let mut t = open();
    t.write(3_000);
    t.poll();
    t.out.clear();
    inject!(t, ".", seq(1), ack(1), sack(&[(0, u32::MAX), (5_000, 6_000), (7, 7), (2_001, 2_000)]));
    inject!(t, ".", seq(1), ack(1), sack(&[(u32::MAX - 9, 1), (1, 0x8000_0000), (3_000, 90_000)]));
    let info = t.info();
    assert!(info.sacked <= info.unacked && info.unacked == 3);
    inject!(t, ".", seq(1), ack(3_001));
    assert_eq!(t.info().unacked, 0);
}

#[test]
fn atk_19_super_packets_with_nonsense_segment_sizes() {
    for gso in [1, 7, 999, 1_001, 65_535] {
        let mut t = open();
        inject!(t, "P.", seq(1), ack(1), len(5_000), gso(gso));
        t.read(5_000);
        let info = t.info();
        assert!(info.rcv_mss >= 536 && info.rcv_mss <= 1_460, "{info:?}");
        inject!(t, "F.", seq(5_001), ack(1), gso(gso));
        assert_eq!(t.state(), State::CloseWait);
    }
}

#[test]
fn urgent_data_is_data() {
    // RFC 6093 §6: applications should not use it; urgent data stays in line.
    let mut t = open();
    inject!(t, "UP.", seq(1), ack(1), len(10), urgent(3));
    inject!(t, "U.", seq(11), ack(1), len(10), urgent(60_000));
    inject!(t, "P.", seq(21), ack(1), len(10), urgent(9));
    let now = t.now;
    let mut bytes = [0; 30];
    assert_eq!(t.conn().read(now, &mut bytes), Ok(30));
    assert_eq!(bytes.to_vec(), (0..30).map(pattern).collect::<Vec<u8>>());
}

/// A stack in each of the states, with the peer's next and the stack's first unacknowledged number.
fn in_every_state() -> Vec<Trace> {
    let mut all = Vec::new();
    let listening = |offer: Offer| {
        let mut t = Trace::new();
        t.accept_with(offer, ListenOptions { backlog: 50, ..ListenOptions::default() });
        t
    };
    let mut t = Trace::new();
    t.connect();
    all.push(t);
    let mut t = Trace::new();
    t.listen_with(ListenOptions { backlog: 50, ..ListenOptions::default() });
    t.syn(Offer::ALL);
    all.push(t);
    for offer in [Offer::ALL, Offer::EASY] {
        all.push(listening(offer));
        let mut t = listening(offer);
        t.write(20_000);
        all.push(t);
        let mut t = listening(offer);
        t.shutdown();
        all.push(t);
        let mut t = listening(offer);
        t.shutdown();
        t.poll();
        inject!(t, ".", seq(1), ack(2));
        all.push(t);
        let mut t = listening(offer);
        inject!(t, "F.", seq(1), ack(1));
        all.push(t);
        let mut t = listening(offer);
        inject!(t, "F.", seq(1), ack(1));
        t.write(3_000);
        t.close();
        all.push(t);
        let mut t = listening(offer);
        t.shutdown();
        t.poll();
        inject!(t, "F.", seq(1), ack(1));
        all.push(t);
        let mut t = listening(offer);
        t.shutdown();
        t.poll();
        inject!(t, "F.", seq(1), ack(2));
        all.push(t);
    }
    all
}

/// A packet that is nearly right.
fn nearly(t: &Trace, rng: &mut Rng) -> Vec<u8> {
    let near = |rng: &mut Rng, base: u32| match rng.below(5) {
        0 => base,
        1 => base.wrapping_add(rng.below(4_000) as u32),
        2 => base.wrapping_sub(rng.below(4_000) as u32),
        3 => base.wrapping_add(rng.below(200_000) as u32),
        _ => rng.next() as u32,
    };
    let option = |rng: &mut Rng| rng.chance(300);
    let header = TcpHeader {
        src_port: if rng.chance(950) { t.peer.port() } else { 1 + rng.below(100) as u16 },
        dst_port: if rng.chance(980) { t.local.port() } else { rng.next() as u16 },
        seq: near(rng, t.irs.wrapping_add(1)),
        ack: near(rng, t.iss.wrapping_add(1)),
        flags: if rng.chance(600) { Flags::ACK } else { Flags::from_bits(rng.next() as u16 & 0x1ff) },
        window: if rng.chance(300) { 0 } else { rng.next() as u16 },
        urgent: rng.next() as u16,
        options: TcpOptions {
            mss: option(rng).then(|| rng.next() as u16),
            window_scale: option(rng).then(|| rng.next() as u8),
            sack_permitted: option(rng),
            timestamps: option(rng).then(|| Timestamps {
                value: t.peer_clock().wrapping_add(rng.below(3) as u32),
                echo: near(rng, t.last_tsval),
            }),
            sack: (0..rng.below(4))
                .map(|_| {
                    let left = near(rng, t.iss.wrapping_add(1));
                    (left, near(rng, left))
                })
                .collect(),
            accecn: option(rng).then(|| AccEcn {
                ee0b: option(rng).then(|| rng.next() as u32),
                eceb: option(rng).then(|| rng.next() as u32),
                ee1b: option(rng).then(|| rng.next() as u32),
            }),
        },
    };
    let len = match rng.below(4) {
        0 => rng.below(3_000) as usize,
        1 => rng.below(10) as usize,
        _ => 0,
    };
    let mut bytes = packet(t.peer.ip(), t.local.ip(), &header, &vec![7; len]);
    if rng.chance(200) {
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
    }
    for _ in 0..rng.below(8).saturating_sub(5) {
        if !bytes.is_empty() {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next() as u8;
        }
    }
    bytes
}

#[test]
fn atk_23_a_hundred_thousand_packets_out_of_nowhere() {
    let mut rng = Rng::new(2_026);
    let mut injected = 0;
    while injected < 100_000 {
        for mut t in in_every_state() {
            for _ in 0..100 {
                let bytes = if rng.chance(30) {
                    (0..rng.below(80)).map(|_| rng.next() as u8).collect()
                } else {
                    nearly(&t, &mut rng)
                };
                let checksum = if rng.chance(800) { RxChecksum::Verified } else { RxChecksum::Unverified };
                let gso_size = if rng.chance(900) { 0 } else { rng.next() as u16 };
                let len = bytes.len();
                let mut lent = bytes.clone();
                let frame = if rng.chance(500) {
                    Frame::Slice(&bytes)
                } else {
                    Frame::Lend { buffer: &mut lent, range: 0..len }
                };
                let before = t.stack.counters().in_receives;
                t.stack.handle_packet(t.now, RxPacket { frame, checksum, gso_size });
                assert_eq!(t.stack.counters().in_receives, before + 1);
                injected += 1;
                t.poll();
                t.out.clear();
                if rng.chance(100) {
                    let ms = rng.below(3_000);
                    t.wait_ms(ms);
                    t.out.clear();
                }
                assert!(t.stack.connections() <= 101, "a backlog of 50, twice, and ours");
            }
            // Whatever happened, it ends, and nothing is left.
            if let Some(conn) = t.id.and_then(|id| t.stack.conn_mut(id)) {
                conn.close(t.now);
            }
            let now = t.now;
            if let Some(listener) = t.listener {
                t.stack.close_listener(now, listener);
            }
            t.wait_s(5_000);
            t.expect_gone();
            assert_eq!(t.stack.poll_timeout(), None);
        }
    }
}

/// SYNs from `ports`, each a host that never answers.
fn flood(t: &mut Trace, ports: std::ops::RangeInclusive<u16>) {
    for port in ports {
        let syn = t.build(&Seg::new("S").seq(u32::from(port)).port(port).mss(1_460));
        t.inject_bytes(&syn, 0);
    }
}

/// A listener for 100, which 10,000 SYNs have filled.
fn flooded(config: StackConfig) -> Trace {
    let mut t = Trace::with(config);
    t.listen_with(ListenOptions { backlog: 100, ..ListenOptions::default() });
    flood(&mut t, 1..=10_000);
    t
}

#[test]
fn atk_20_a_flood_of_syns_is_bounded() {
    let mut t = flooded(StackConfig::default());
    assert_eq!((t.stack.connections(), t.out.len()), (100, 10_000));
    assert_eq!(t.stack.counters().syncookies_sent, 9_900);
    t.wait_s(64);
    t.expect_gone();
}

/// Nothing is remembered, and the handshake succeeds with all that the peer offered.
#[test]
fn cookie_05_a_client_connects_through_a_flood() {
    for (offer, sack, wscale, mss) in [
        (Offer { ts: true, wscale: Some(7), mss: Some(1_460), ..Offer::EASY }, true, Some(7), 1_448),
        (
            Offer { ts: true, wscale: None, sackok: false, mss: Some(1_400), ..Offer::EASY },
            false,
            None,
            1_288,
        ),
        // Without timestamps there is no room for the other options.
        (Offer { ts: false, wscale: Some(7), mss: Some(1_460), ..Offer::EASY }, false, None, 1_460),
        (Offer { ts: false, mss: None, ..Offer::EASY }, false, None, 536),
    ] {
        let mut t = flooded(StackConfig::default());
        t.out.clear();
        t.syn(offer);
        let answer = expect!(t, "S.", seq(0), ack(1));
        assert_eq!(answer.options.sack_permitted, sack, "{offer:?}");
        assert_eq!(answer.options.window_scale.is_some(), wscale.is_some(), "{offer:?}");
        assert_eq!(answer.options.timestamps.is_some(), offer.ts);
        assert_eq!((t.stack.connections(), t.stack.counters().syncookies_recv), (100, 0));
        // The ACK comes 20 s later, in the same packet as a request.
        let (iss, echo) = (t.iss, t.last_tsval);
        t.wait_s(20);
        t.out.clear();
        (t.iss, t.last_tsval) = (iss, echo);
        inject!(t, "P.", seq(1), ack(1), len(300), win(40_000));
        assert_eq!((t.stack.connections(), t.stack.counters().syncookies_recv), (101, 1));
        let (id, _) = t.stack.accept(t.listener.unwrap()).expect("the client is in");
        t.id = Some(id);
        t.out.clear();
        let info = t.info();
        assert_eq!((info.sack, info.snd_wscale, info.snd_mss), (sack, wscale, mss), "{offer:?}");
        assert_eq!(info.rcv_queue_bytes, 300);
        assert_eq!(info.snd_wnd, 40_000 << wscale.unwrap_or(0));
        assert_eq!(info.rtt, None, "nobody knows when the SYN-ACK left");
        t.read(300);
        t.write(100);
        expect!(t, "P.", seq(1), ack(301), len(100));
    }
}

/// An ACK that acknowledges no cookie, or comes when none was sent for two minutes, is answered by a reset.
#[test]
fn cookie_06_what_acknowledges_no_cookie_is_reset() {
    let mut t = flooded(StackConfig::default());
    t.out.clear();
    t.syn(Offer::EASY);
    expect!(t, "S.", seq(0), ack(1));
    inject!(t, ".", seq(1), ack(1_000_000));
    expect!(t, "R", seq(1_000_000));
    assert_eq!(t.stack.counters().syncookies_failed, 1);
    inject!(t, "R.", seq(1), ack(1));
    expect_nothing!(t);
    t.wait_s(121);
    t.out.clear();
    inject!(t, ".", seq(1), ack(1));
    expect!(t, "R", seq(1));
    assert_eq!((t.stack.connections(), t.stack.counters().syncookies_failed), (0, 1));
}

/// `tcp_syncookies` 2 answers every SYN so; 0 none: the oldest half-open connection gives way.
#[test]
fn cookie_07_always_and_never() {
    let with = |cookies| flooded(StackConfig::default().with(|c| c.tcp.syncookies = cookies));
    let t = with(SynCookies::Always);
    assert_eq!((t.stack.connections(), t.stack.counters().syncookies_sent), (0, 10_000));
    let mut t = with(SynCookies::Off);
    assert_eq!((t.stack.connections(), t.out.len()), (100, 10_000));
    assert_eq!((t.stack.counters().syncookies_sent, t.stack.counters().req_q_full_drop), (0, 9_900));
    // A client that answers before 100 others have come gets in.
    t.out.clear();
    t.syn(Offer::EASY);
    expect!(t, "S.", seq(0), ack(1));
    let (iss, local) = (t.iss, t.local);
    flood(&mut t, 20_001..=20_099);
    (t.iss, t.local) = (iss, local);
    inject!(t, ".", seq(1), ack(1));
    assert!(t.stack.accept(t.listener.unwrap()).is_some());
    t.wait_s(64);
    assert_eq!(t.stack.connections(), 1);
}

/// A cookie that comes back when nobody accepts is not answered: its peer repeats what it has to say.
#[test]
fn cookie_08_a_full_accept_queue_stays_full() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.syncookies = SynCookies::Always));
    let listener = t.listen_with(ListenOptions { backlog: 1, ..ListenOptions::default() });
    let mut cookies = vec![];
    for port in [1, 2] {
        inject!(t, "S", seq(0), port(port), mss(1_000));
        cookies.push(t.out.pop_front().unwrap().wire.seq);
    }
    for (port, iss) in [1, 2].into_iter().zip(cookies) {
        t.iss = iss;
        inject!(t, ".", seq(1), ack(1), port(port));
    }
    expect_nothing!(t);
    assert_eq!((t.stack.connections(), t.stack.counters().listen_overflows), (1, 1));
    assert!(t.stack.accept(listener).is_some());
    inject!(t, "P.", seq(1), ack(1), len(10), port(2));
    expect!(t, ".", ack(11));
    assert!(t.stack.accept(listener).is_some());
}

#[test]
fn a_loopback_address_on_a_link_is_forged() {
    // RFC 1122 §3.2.1.3 (g), RFC 4291 §2.5.3.
    for (mut t, sources) in
        [(Trace::new(), ["127.0.0.1", "127.255.0.9", "127.1.2.3"]), (Trace::v6(), ["::1", "::1", "::1"])]
    {
        t.listen();
        for source in sources {
            let header =
                TcpHeader { src_port: 4_000, dst_port: 80, flags: Flags::SYN, ..TcpHeader::default() };
            let bytes = packet(source.parse().unwrap(), t.local.ip(), &header, &[]);
            t.inject_bytes(&bytes, 0);
        }
        expect_nothing!(t);
        assert_eq!(t.stack.counters().in_loopback, 3);
        assert_eq!(t.stack.connections(), 0);
    }
}

/// SYNs from `ports` of the address `peer`; the handshake is completed if `complete`. Returns how many SYNs
/// were answered.
fn knock(t: &mut Trace, peer: &str, ports: std::ops::Range<u16>, complete: bool) -> usize {
    let mut answered = 0;
    t.peer.set_ip(peer.parse().unwrap());
    for port in ports {
        inject!(t, "S", seq(0), mss(1_000), port(port));
        let syn_acks = t.out.drain(..).filter(|got| got.has("S.")).count();
        answered += syn_acks;
        if complete && syn_acks > 0 {
            inject!(t, ".", seq(1), ack(1), port(port));
        }
    }
    answered
}

#[test]
fn mem_14_caps_of_a_listener_and_of_each_peer() {
    let mut t = Trace::new();
    let options = ListenOptions {
        max_connections: 25,
        max_per_peer: 10,
        max_half_open_per_peer: 3,
        ..ListenOptions::default()
    };
    let listener = t.listen_with(options);
    // Three half-open ones, and ten that are complete.
    assert_eq!(knock(&mut t, "198.51.100.1", 1_000..1_020, false), 3);
    assert_eq!(knock(&mut t, "198.51.100.2", 1_000..1_020, true), 10);
    // Others are not concerned, up to 25 in all.
    assert_eq!(knock(&mut t, "198.51.100.3", 1_000..1_020, true), 10);
    assert_eq!(knock(&mut t, "198.51.100.4", 1_000..1_020, true), 2);
    assert_eq!(t.stack.counters().listen_capped, 17 + 10 + 10 + 18);
    assert_eq!(t.stack.connections(), 25);
    // Half-open ones end after 63 s, and others when they are over. Then there is room.
    t.wait_s(70);
    t.out.clear();
    assert_eq!(knock(&mut t, "198.51.100.4", 2_000..2_020, true), 3);
    let (id, peer) = t.stack.accept(listener).unwrap();
    let now = t.now;
    t.stack.conn_mut(id).unwrap().abort(now);
    t.poll();
    t.out.clear();
    assert_eq!((peer.to_string().as_str(), t.stack.connections()), ("198.51.100.2:1000", 24));
    assert_eq!(knock(&mut t, "198.51.100.4", 3_000..3_020, true), 1);
}

#[test]
fn mem_15_caps_hold_for_cookies_and_for_prefixes_of_ipv6() {
    // Cookies: the SYN is answered, as nothing is remembered; the ACK opens no connection.
    let mut t = Trace::with(StackConfig::default().with(|config| config.tcp.syncookies = SynCookies::Always));
    t.listen_with(ListenOptions { max_per_peer: 2, ..ListenOptions::default() });
    t.peer.set_ip("198.51.100.1".parse().unwrap());
    let cookies: Vec<u32> = (1_000..1_005)
        .map(|port| {
            inject!(t, "S", seq(0), mss(1_000), port(port));
            t.iss
        })
        .collect();
    for (port, cookie) in (1_000..).zip(cookies) {
        t.iss = cookie;
        inject!(t, ".", seq(1), ack(1), port(port));
    }
    assert_eq!((t.stack.connections(), t.stack.counters().listen_capped), (2, 3));
    // All of 2001:db8:1:2::/64 is one peer.
    let mut t = Trace::v6();
    t.listen_with(ListenOptions { max_per_peer: 2, ..ListenOptions::default() });
    let from = |t: &mut Trace, peer: &str| knock(t, peer, 1_000..1_001, true);
    assert_eq!(from(&mut t, "2001:db8:1:2::1"), 1);
    assert_eq!(from(&mut t, "2001:db8:1:2:ffff::2"), 1);
    assert_eq!(from(&mut t, "2001:db8:1:2::3"), 0);
    assert_eq!(from(&mut t, "2001:db8:1:3::3"), 1);
}
