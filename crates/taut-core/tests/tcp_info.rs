//! Members of Linux's `TCP_INFO` that no other test asserts, and small options: `IP_TOS`, `TCP_INQ`. Values are derived from
//! the segments of each trace.

#[macro_use]
mod support;

use support::trace::{Got, Offer, Trace};
use taut_core::config::EcnPolicy;
use taut_core::{ConnOptions, ListenOptions, SetOption, StackConfig, State};
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
    // Cumulatively: the tenth is there before the first, which is acknowledged at last. Then the third, by less.
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
