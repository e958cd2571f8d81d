//! Members of Linux's `TCP_INFO` that no other test asserts, and small options: `IP_TOS`, `TCP_INQ`. Values
//! are derived from the segments of each trace.

use crate::support;

use support::trace::{Got, Offer, Trace};
use taut_core::config::EcnPolicy;
use taut_core::{
    ConnOptions, Duration, Fate, Keepalive, LinkCaps, ListenOptions, PacingMode, SetOption, StackConfig,
    State, Transmit,
};
use taut_wire::{Ecn, IpHeader};

/// An established connection with ten segments of 1,000 bytes in flight.
fn ten_in_flight() -> Trace {
    let mut t = Trace::accepted(Offer::EASY);
    t.write(10_000);
    t.poll();
    t.out.clear();
    t
}

#[test]
fn reordering_is_the_distance_by_which_a_segment_was_overtaken() {
    let mut t = ten_in_flight();
    assert_eq!((t.info().reordering, t.info().reord_seen), (3, 0), "Linux: tcp_reordering");
    // The second segment comes after the fifth: from its start to the end of that, four segments.
    inject!(t, ".", ack(1), sack(&[(4_001, 5_001)]));
    inject!(t, ".", ack(1), sack(&[(1_001, 2_001), (4_001, 5_001)]));
    assert_eq!((t.info().reordering, t.info().reord_seen), (4, 1));
    // A shorter distance is seen, and changes nothing.
    inject!(t, ".", ack(1), sack(&[(3_001, 5_001), (1_001, 2_001)]));
    assert_eq!((t.info().reordering, t.info().reord_seen), (4, 2));
    // Cumulatively: the tenth is there before the first, which is acknowledged at last. Then the third, by
    // less.
    inject!(t, ".", ack(2_001), sack(&[(9_001, 10_001), (3_001, 5_001)]));
    assert_eq!((t.info().reordering, t.info().reord_seen), (10, 3));
    inject!(t, ".", ack(5_001), sack(&[(9_001, 10_001)]));
    assert_eq!((t.info().reordering, t.info().reord_seen), (10, 4));
    inject!(t, ".", ack(10_001));
    t.wait_s(10);
    assert_eq!(t.info().reordering, 10, "also when nothing is in flight");
}

#[test]
fn duplicates_that_the_peer_reports() {
    let mut t = ten_in_flight();
    inject!(t, ".", ack(10_001));
    t.write(1_000);
    // RFC 2883 §4: the first block lies below the ACK. Two segments.
    inject!(t, ".", ack(10_001), sack(&[(8_001, 10_001)]));
    assert_eq!(t.info().dsack_dups, 2);
}

#[test]
fn timeouts_are_counted() {
    let mut t = Trace::accepted(Offer::EASY);
    let counts = |t: &mut Trace| {
        let info = t.info();
        (info.total_rto, info.retransmits, info.backoff)
    };
    t.write(100);
    t.poll();
    while t.info().retransmits < 2 {
        t.step(t.now + taut_core::Duration::from_secs(100));
    }
    assert_eq!(counts(&mut t), (2, 2, 2));
    inject!(t, ".", ack(101));
    assert_eq!(counts(&mut t), (2, 0, 2), "the next sample ends the backoff");
    t.write(100);
    t.poll();
    while t.info().retransmits < 1 {
        t.step(t.now + taut_core::Duration::from_secs(1_000));
    }
    assert_eq!(counts(&mut t).0, 3);
    // A SYN counts too.
    let mut t = Trace::new();
    t.connect();
    t.wait_ms(1_000);
    assert_eq!((t.state(), counts(&mut t)), (State::SynSent, (1, 1, 0)));
}

#[test]
fn probes_that_nothing_answers() {
    let mut t = Trace::accepted(Offer { win: 0, ..Offer::EASY });
    t.write(100);
    t.poll();
    for probes in 1..=3 {
        t.out.clear();
        while t.out.is_empty() {
            t.step(t.now + taut_core::Duration::from_secs(100));
        }
        assert_eq!(t.info().probes, probes);
    }
    inject!(t, ".", ack(1), win(0));
    assert_eq!(t.info().probes, 0);
}

#[test]
fn segments_beyond_a_gap() {
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, ".", seq(1_001), len(1_000));
    inject!(t, ".", seq(2_001), len(3_000), gso(1_000));
    inject!(t, ".", seq(1), len(1_000));
    inject!(t, ".", seq(5_001), len(1_000));
    assert_eq!(t.info().rcv_ooopack, 4, "the segments of a super-packet are counted");
}

#[test]
fn bytes_to_read() {
    let mut t = Trace::accepted(Offer::EASY);
    assert_eq!(t.info().inq, 0);
    inject!(t, "P.", seq(1), len(5));
    inject!(t, "P.", seq(11), len(5));
    assert_eq!(t.info().inq, 5, "not what lies beyond a gap");
    inject!(t, "P.", seq(6), len(5));
    inject!(t, "F.", seq(16));
    assert_eq!(t.info().inq, 15);
    t.read(15);
    assert_eq!(t.info().inq, 1, "the end of the stream is something to read");
}

/// Linux: the first value is ten segments, or less if the window is smaller (`tcp_init_buffer_space`).
#[test]
fn the_most_that_is_read_in_a_round_trip() {
    let mut t = Trace::accepted(Offer::EASY);
    assert_eq!(t.info().rcv_space, 14_600);
}

#[test]
fn marked_packets_with_accurate_ecn() {
    let mut t =
        Trace::with(StackConfig::default().with(|config| config.ecn.policy = EcnPolicy::AcceptAccurate));
    let listener = t.listen();
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    t.out.clear();
    inject!(t, ".W", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    assert_eq!(t.info().received_ce, Some(0));
    inject!(t, "P.", seq(1), len(5), ecn(Ecn::Ce));
    inject!(t, "P.", seq(6), len(5), ecn(Ecn::Ect0));
    assert_eq!(t.info().received_ce, Some(1));
    assert_eq!(Trace::accepted(Offer::EASY).info().received_ce, None);
}

/// Linux: `tcpi_data_segs_in` counts segments with payload.
#[test]
fn a_bare_fin_is_no_data_segment() {
    let mut t = Trace::accepted(Offer::EASY);
    let before = t.info();
    inject!(t, "F.", seq(1), ack(1));
    let info = t.info();
    assert_eq!((info.state, info.segs_in - before.segs_in), (State::CloseWait, 1));
    assert_eq!(info.data_segs_in, before.data_segs_in);
}

#[test]
fn info_01_segments_are_counted_as_the_wire_has_them() {
    let mut t = Trace::accepted(Offer::EASY);
    let before = t.info();
    let counts = |t: &mut Trace| {
        let info = t.info();
        let data = (info.data_segs_out - before.data_segs_out, info.data_segs_in - before.data_segs_in);
        (info.segs_out - before.segs_out, info.segs_in - before.segs_in, data)
    };
    // A pure ACK; a segment; a super-packet of three.
    inject!(t, ".", seq(1), ack(1));
    assert_eq!(counts(&mut t), (0, 1, (0, 0)));
    inject!(t, "P.", seq(1), len(10));
    inject!(t, "P.", seq(11), len(2_500), gso(1_000));
    let acks = t.out.len() as u32;
    assert_eq!(counts(&mut t), (acks, 5, (0, 4)));
    t.write(2_000);
    t.poll();
    assert_eq!(counts(&mut t), (acks + 2, 5, (2, 4)));
    assert_eq!(t.out.len() as u32, acks + 2);
    // A retransmission is one more.
    while t.out.len() as u32 == acks + 2 {
        t.step(t.now + Duration::from_secs(10));
    }
    assert_eq!(counts(&mut t), (acks + 3, 5, (3, 4)));
    assert_eq!((before.total_retrans, t.info().total_retrans), (0, 1));
}

#[test]
fn info_02_three_times_since_something_happened() {
    let ms = Duration::from_millis;
    let mut t = Trace::accepted(Offer::EASY);
    let times = |t: &mut Trace| {
        let info = t.info();
        [info.last_data_sent, info.last_data_recv, info.last_ack_recv]
    };
    t.write(100);
    t.poll();
    t.wait_ms(30);
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.wait_ms(20);
    assert_eq!(times(&mut t), [ms(50), ms(20), ms(20)], "an ACK is no data");
    inject!(t, ".", seq(11), ack(101));
    t.wait_ms(5);
    assert_eq!(times(&mut t), [ms(55), ms(25), ms(5)]);
    t.write(100);
    t.poll();
    assert_eq!(times(&mut t), [ms(0), ms(25), ms(5)]);
}

#[test]
fn info_03_sizes_of_segments_and_packets() {
    // The headers: 40 bytes over IPv4, 60 over IPv6, and 12 of timestamps.
    let sizes = |mut t: Trace, offer| {
        t.establish(offer, &ConnOptions::default());
        let info = t.info();
        (info.snd_mss, info.advmss, info.pmtu)
    };
    assert_eq!(sizes(Trace::new(), Offer::EASY), (1_000, 1_460, 1_040));
    assert_eq!(sizes(Trace::new(), Offer::ALL), (1_448, 1_448, 1_500));
    assert_eq!(sizes(Trace::v6(), Offer::EASY), (1_000, 1_440, 1_060));
    assert_eq!(sizes(Trace::v6(), Offer { mss: Some(1_440), ..Offer::ALL }), (1_428, 1_428, 1_500));
    // RFC 9293 §3.7.1: 536 bytes of a peer that announces nothing, less the timestamps.
    assert_eq!(sizes(Trace::new(), Offer { mss: None, ..Offer::ALL }), (524, 1_448, 576));
}

#[test]
fn info_04_windows_have_a_scale_if_both_ends_offered_one() {
    let scales = |offer| {
        let info = Trace::connected(offer).info();
        (info.snd_wscale, info.rcv_wscale.is_some(), info.timestamps, info.sack)
    };
    assert_eq!(scales(Offer::ALL), (Some(7), true, true, true));
    assert_eq!(scales(Offer { wscale: Some(0), ..Offer::ALL }), (Some(0), true, true, true));
    assert_eq!(scales(Offer::EASY), (None, false, false, true));
    assert_eq!(scales(Offer { sackok: false, ..Offer::EASY }), (None, false, false, false));
}

#[test]
fn info_05_who_paces_and_how_fast_at_most() {
    for (mode, paces, delegated) in [
        (PacingMode::Auto, true, true),
        (PacingMode::Auto, false, false),
        (PacingMode::Internal, true, false),
        (PacingMode::Delegated, false, true),
        (PacingMode::Off, true, false),
    ] {
        let config = StackConfig::default().with(|config| config.send.pacing = mode);
        let caps = LinkCaps { paces, ..LinkCaps::plain(1_500) };
        let mut t = Trace::on(config, caps, "192.0.2.1", "192.0.2.2");
        t.establish(Offer::EASY, &ConnOptions::default());
        assert_eq!(t.info().pacing_delegated, delegated, "{mode:?} {paces}");
        assert_eq!(t.info().max_pacing_rate, u64::MAX, "no limit");
        let now = t.now;
        t.conn().set_option(now, SetOption::MaxPacingRate(10_000)).unwrap();
        assert_eq!((t.info().max_pacing_rate, t.info().pacing_rate), (10_000, 10_000));
    }
}

#[test]
fn info_06_the_receivers_round_trip() {
    let mut t = Trace::accepted(Offer::EASY);
    assert_eq!((t.info().rcv_rtt, t.info().ato), (None, Duration::from_millis(40)), "Linux: TCP_ATO_MIN");
    // Without timestamps it is the time in which a whole window arrives, 65,535 bytes; with them, their echo
    // (RFC 7323).
    let mut t = Trace::accepted(Offer::ALL);
    t.write(10);
    t.poll();
    t.wait_ms(70);
    inject!(t, "P.", seq(1), ack(11), len(1_448));
    assert_eq!(t.info().rcv_rtt, Some(Duration::from_millis(70)));
}

/// As Linux 6.18 shows them, measured on a loopback device: `TCP_INFO` of both ends of a connection that has
/// just opened. There, `delivered` counts the SYN, and so does `bytes_acked` of a client; `segs_out` of a
/// server has no SYN-ACK. Here all of data are of data alone, and segments are those of the wire.
#[test]
fn info_07_a_connection_that_has_just_opened() {
    for (mut t, segs_out, segs_in) in
        [(Trace::connected(Offer::EASY), 2, 1), (Trace::accepted(Offer::EASY), 1, 2)]
    {
        let info = t.info();
        assert_eq!((info.segs_out, info.segs_in), (segs_out, segs_in), "SYN, SYN-ACK and ACK");
        assert_eq!((info.data_segs_out, info.data_segs_in, info.delivered), (0, 0, 0));
        assert_eq!((info.bytes_sent, info.bytes_acked, info.bytes_received), (0, 0, 0));
        assert_eq!((info.bytes_retrans, info.total_retrans, info.total_rto), (0, 0, 0));
        assert_eq!((info.retransmits, info.probes, info.backoff), (0, 0, 0));
        assert_eq!((info.unacked, info.sacked, info.lost, info.retrans), (0, 0, 0, 0));
        assert_eq!((info.reordering, info.reord_seen, info.dsack_dups), (3, 0, 0));
        assert_eq!((info.ca_state, info.snd_cwnd, info.snd_ssthresh), ("open", 10, u32::MAX));
        assert_eq!((info.delivery_rate, info.delivery_rate_app_limited), (0, false));
        let none = Duration::ZERO;
        assert_eq!((info.busy_time, info.rwnd_limited, info.sndbuf_limited), (none, none, none));
        assert_eq!((info.notsent_bytes, info.wmem_alloc, info.wmem_queued), (0, 0, 0));
        assert_eq!((info.rcv_queue_bytes, info.rcv_ooo_bytes, info.rcv_ooopack, info.inq), (0, 0, 0, 0));
        assert_eq!((info.rcv_mss, info.rcv_rtt, info.max_pacing_rate), (536, None, u64::MAX));
        assert_eq!((info.ecn, info.ecn_seen, info.delivered_ce, info.received_ce), (false, false, 0, None));
        assert_eq!((info.syn_data, info.fast_open_child, info.tos), (false, false, 0));
        let rtt = info.rtt.expect("the handshake measured it");
        assert_eq!((info.rttvar, info.min_rtt), (rtt / 2, Some(rtt)), "RFC 6298 §2.2");
    }
    // A SYN-ACK that is repeated is one more.
    let mut t = Trace::connected(Offer::EASY);
    inject!(t, "S.", seq(0), ack(1));
    assert_eq!(t.info().segs_in, 2);
}

/// Options that few connections set are kept together, in memory of their own: one that is set leaves the
/// others as they were.
#[test]
fn an_option_that_is_set_changes_no_other() {
    let keepalive = Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(1), count: 3 };
    let limit = 12_500_000;
    for option in [
        SetOption::Keepalive(Some(keepalive)),
        SetOption::UserTimeout(Some(Duration::from_secs(30))),
        SetOption::MaxPacingRate(limit),
        SetOption::TxDelay(Duration::from_millis(1)),
        SetOption::Tos(0x20),
    ] {
        // A link that holds packets until their departure.
        let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
        let mut t = Trace::on(StackConfig::default(), caps, "192.0.2.1", "192.0.2.2");
        t.accept(Offer::EASY);
        let now = t.now;
        t.conn().set_option(now, option.clone()).unwrap();
        let is = |other: &SetOption| std::mem::discriminant(other) == std::mem::discriminant(&option);
        let tos = if is(&SetOption::Tos(0)) { 0x20 } else { 0 };
        let rate = if is(&SetOption::MaxPacingRate(0)) { limit } else { u64::MAX };
        let info = t.info();
        assert_eq!((info.tos, info.max_pacing_rate), (tos, rate), "{option:?}");
        assert_eq!((info.ecn, info.pmtu, info.fast_open_child), (false, 1_040, false), "{option:?}");
        assert_eq!(t.conn().as_ref().soft_error(), None);
        // Nothing is to be done, except to ask whether the peer is still there.
        let due = t.stack.poll_timeout().map(|(at, _)| at.since(now));
        assert_eq!(due, is(&SetOption::Keepalive(None)).then_some(keepalive.idle), "{option:?}");
        t.write(10);
        // `TCP_TX_DELAY` is the time until it.
        let Transmit { packet, ticket } = t.stack.poll_transmit(now).expect("the data");
        let delay = if is(&SetOption::TxDelay(Duration::ZERO)) { 1 } else { 0 };
        let bytes = packet.to_vec();
        assert_eq!(packet.departure.since(now), Duration::from_millis(delay), "{option:?}");
        assert_eq!((bytes.len(), bytes[1]), (50, tos), "{option:?}");
        t.stack.handle_tx(now, ticket, Fate::Left);
    }
}

/// The byte with DSCP and ECN of a packet whose header has the right checksum.
fn tos_of(got: &Got) -> u8 {
    assert!(IpHeader::parse(&got.bytes).is_ok());
    if got.src.is_ipv4() { got.bytes[1] } else { got.bytes[0] << 4 | got.bytes[1] >> 4 }
}

#[test]
fn tos_is_that_of_every_packet_and_ecn_is_kept_apart() {
    // 0xba is expedited forwarding (RFC 3246), with both bits of ECN set on purpose.
    let options = ConnOptions { tos: 0xbb, ..ConnOptions::default() };
    for mut t in [Trace::new(), Trace::v6()] {
        t.connect_with(&options);
        assert_eq!(tos_of(&expect!(t, "S")), 0xb8);
        t.syn_ack(Offer::EASY);
        assert_eq!(tos_of(&expect!(t, ".")), 0xb8);
        assert_eq!(t.info().tos, 0xb8);
        let now = t.now;
        t.conn().set_option(now, SetOption::Tos(0x20)).unwrap();
        t.write(10);
        assert_eq!(tos_of(&expect!(t, "P.", len(10))), 0x20);
        inject!(t, ".", seq(1), ack(11));
        t.conn().set_option(now, SetOption::Tos(0)).unwrap();
        t.write(10);
        assert_eq!(tos_of(&expect!(t, "P.", len(10))), 0);
    }
    // With ECN, data is ECT(0).
    let mut t = Trace::with(StackConfig::default().with(|config| config.ecn.policy = EcnPolicy::Ask));
    let listener = t.listen_with(ListenOptions { conn: options, ..ListenOptions::default() });
    inject!(t, "SEW", seq(0), mss(1_000), win(65_535));
    let answer = t.out.pop_front().unwrap();
    assert_eq!((tos_of(&answer), answer.ecn), (0xb8, Ecn::NotEct));
    inject!(t, ".", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(10);
    let data = expect!(t, "P.", len(10));
    assert_eq!((tos_of(&data), data.ecn), (0xba, Ecn::Ect0));
}
