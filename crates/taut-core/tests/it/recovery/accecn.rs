//! Accurate ECN: RFC 9768, both ends. ACE is written as its three flags: `A` is 4, `W` is 2 and `E` is 1.

use taut_core::{Algorithm, ConnOptions, LinkCaps, ListenOptions, StackConfig, State};
use taut_wire::{AccEcn, Ecn};

use crate::recovery::scene::use_up_quick_acks;
use crate::support::trace::{Seg, Trace};

/// The initial counters of both ends (§3.2.1).
pub(crate) const FIRST: AccEcn = AccEcn { ee0b: Some(1), eceb: Some(0), ee1b: Some(1) };

/// Tables 2 and 3: how a mark on a SYN or SYN-ACK is reported.
const CODES: [(Ecn, &str); 4] = [(Ecn::NotEct, "W"), (Ecn::Ect1, "EW"), (Ecn::Ect0, "A"), (Ecn::Ce, "AW")];

pub(crate) fn config() -> StackConfig {
    StackConfig::default().with(|c| c.set_sysctl("tcp_ecn", "3").unwrap())
}

pub(crate) fn ce(bytes: u32) -> AccEcn {
    AccEcn { ee0b: Some(1), eceb: Some(bytes), ee1b: None }
}

/// A connection that the peer began, with segments of 1,000 bytes.
fn accepted_with(config: StackConfig, caps: LinkCaps) -> Trace {
    let mut t = Trace::on(config, caps, "192.0.2.1", "192.0.2.2");
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.W", seq(0), ack(1), ecn(Ecn::NotEct), accecn(FIRST));
    t.wait_ms(20);
    inject!(t, ".W", seq(1), ack(1), accecn(FIRST));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    assert!(t.info().ecn);
    t
}

pub(crate) fn accepted(config: StackConfig) -> Trace {
    accepted_with(config, LinkCaps::plain(1_500))
}

#[test]
fn accecn_01_a_server_reports_how_the_syn_was_marked() {
    for (mark, code) in CODES {
        // Linux: 3, 4 and 5 accept.
        for tcp_ecn in 3..=5 {
            let mut t =
                Trace::with(config().with(|c| c.set_sysctl("tcp_ecn", &tcp_ecn.to_string()).unwrap()));
            let listener = t.listen_with(ListenOptions::default());
            inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535), ecn(mark));
            t.expect(&Seg::new(&format!("S.{code}")).seq(0).ack(1).ecn(Ecn::NotEct).accecn(FIRST));
            inject!(t, ".W", seq(1), ack(1));
            t.id = Some(t.stack.accept(listener).unwrap().0);
            t.write(500);
            // §3.2.2.2: a mark on the SYN is not counted, r.cep is 5.
            expect!(t, ".AE", seq(1), len(500), ecn(Ecn::Ect0));
        }
    }
}

#[test]
fn accecn_02_a_client_reports_how_the_syn_ack_was_marked() {
    for (mark, code) in CODES {
        let mut t = Trace::with(config());
        t.connect_with(&ConnOptions::default());
        expect!(t, "SAEW", seq(0), ecn(Ecn::NotEct));
        inject!(t, "S.W", seq(0), ack(1), mss(1_000), sackok(), accecn(FIRST), ecn(mark));
        t.expect(&Seg::new(&format!(".{code}")).seq(1).ack(1).ecn(Ecn::Ect0).accecn(FIRST));
        t.write(500);
        // Table 3: r.cep is 5, or 6 after CE.
        let ace = if mark == Ecn::Ce { ".AW" } else { ".AE" };
        t.expect(&Seg::new(ace).seq(1).len(500).ecn(Ecn::Ect0));
        assert!(t.info().ecn);
    }
}

#[test]
fn accecn_03_data_does_not_overtake_the_code() {
    // §3.2.2.1: first a pure ACK, though the application has data at once.
    let mut t = Trace::with(config());
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0));
    t.inject_unpolled(&Seg::new("S.W").seq(0).ack(1).mss(1_000).sackok());
    t.write(500);
    expect!(t, ".W", seq(1), ack(1));
    expect!(t, ".AE", seq(1), len(500));
}

#[test]
fn accecn_04_every_other_answer() {
    // Table 2, and §3.1.3 for 101. (answer, ECN is on, ACK, mark of data)
    for (answer, on, ack, mark) in [
        ("S.", false, ".", Ecn::NotEct),
        ("S.AEW", false, ".", Ecn::NotEct),
        ("S.E", true, ".", Ecn::Ect0),
        ("S.AE", true, ".W", Ecn::Ect0),
        // §3.2.2.3: our SYN was not capable, and did not arrive so: data is not, either.
        ("S.EW", true, ".W", Ecn::NotEct),
        ("S.A", true, ".W", Ecn::NotEct),
        ("S.AW", true, ".W", Ecn::NotEct),
    ] {
        let mut t = Trace::with(config());
        t.connect_with(&ConnOptions::default());
        expect!(t, "SAEW", seq(0));
        t.inject(&Seg::new(answer).seq(0).ack(1).mss(1_000).sackok());
        t.expect(&Seg::new(ack).seq(1).ack(1));
        assert_eq!(t.info().ecn, on, "{answer}");
        t.write(500);
        t.poll();
        assert_eq!(t.out.pop_front().unwrap().ecn, mark, "{answer}");
    }
}

#[test]
fn accecn_05_a_peer_of_rfc_3168_gets_that() {
    let mut t = Trace::with(config());
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0));
    t.wait_ms(20);
    inject!(t, "S.E", seq(0), ack(1), mss(1_000), sackok());
    expect!(t, ".", seq(1), ack(1));
    t.write(20_000);
    t.poll();
    t.out.clear();
    // RFC 3168 §6.1.2: an echo is answered with CWR.
    inject!(t, ".E", seq(1), ack(1_001));
    expect!(t, ".W", len(1_000), ecn(Ecn::Ect0));
    assert_eq!(t.info().ca_state, "cwr");
    // And a mark is echoed until that comes.
    inject!(t, ".", seq(1), len(1_000), ack(1_001), ecn(Ecn::Ce));
    assert!(t.out.pop_back().unwrap().has("E"));

    let mut t = Trace::with(config());
    t.listen_with(ListenOptions::default());
    inject!(t, "SEW", seq(0), mss(1_000));
    expect!(t, "S.E", seq(0), ack(1));
}

#[test]
fn accecn_06_syns_that_are_not_answered() {
    // §3.1.4.1: once more, and then without.
    let mut t = Trace::with(config());
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0));
    expect!(t, "SAEW", seq(0), after_ms(1_000));
    expect!(t, "S", seq(0), after_ms(1_000));
    // The first answer decides, whichever SYN it is for (§3.1.4.1).
    inject!(t, "S.W", seq(0), ack(1), mss(1_000), sackok());
    expect!(t, ".W", seq(1), ack(1));
    t.write(500);
    expect!(t, ".AE", seq(1), len(500), ecn(Ecn::Ect0));
}

#[test]
fn accecn_39_a_syn_that_is_sent_again_requests_no_other_kind() {
    // §3.1.5: both ends must be able to tell from any SYN which kind it is, so a setting that changes between
    // them is for the next connection.
    for (before, after, fallback, syns) in [
        ("1", "3", "1", ["SEW", "S", "S"]),
        ("1", "3", "0", ["SEW", "SEW", "SEW"]),
        ("3", "1", "1", ["SAEW", "SAEW", "S"]),
        ("3", "1", "0", ["SAEW", "SAEW", "SAEW"]),
        ("3", "0", "1", ["SAEW", "SAEW", "S"]),
        ("0", "3", "1", ["S", "S", "S"]),
    ] {
        let mut t = Trace::with(config().with(|c| {
            c.set_sysctl("tcp_ecn", before).unwrap();
            c.set_sysctl("tcp_ecn_fallback", fallback).unwrap();
        }));
        t.connect_with(&ConnOptions::default());
        t.expect(&Seg::new(syns[0]).seq(0));
        t.stack.set_sysctl("tcp_ecn", after).unwrap();
        t.expect(&Seg::new(syns[1]).seq(0).after_ms(1_000));
        t.expect(&Seg::new(syns[2]).seq(0).after_ms(1_000));
    }
}

#[test]
fn accecn_07_syn_acks_that_are_not_answered() {
    // §3.2.3.2.2: without the option, then without accurate ECN; after that a server marks nothing (§3.1.5).
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.W", seq(0), ack(1), accecn(FIRST));
    assert_eq!(expect!(t, "S.W", seq(0), after_ms(1_000)).options.accecn, None);
    assert_eq!(expect!(t, "S.", seq(0), after_ms(2_000)).options.accecn, None);
    inject!(t, ".W", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(500);
    expect!(t, ".AE", seq(1), len(500), ecn(Ecn::NotEct));
}

#[test]
fn accecn_08_syns_that_come_again() {
    // §3.1.5: the mark of the latest SYN is reported, and the first SYN decides the mode.
    let mut t = Trace::with(config());
    t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000));
    expect!(t, "S.W", seq(0));
    inject!(t, "SAEW", seq(0), mss(1_000), ecn(Ecn::Ce));
    expect!(t, "S.AW", seq(0));
    inject!(t, "S", seq(0), mss(1_000));
    expect!(t, "S.W", seq(0));
    // If one of them requests RFC 3168, neither end can know which kind is in force: RST.
    inject!(t, "SEW", seq(0), mss(1_000));
    t.poll();
    assert!(t.out.pop_front().unwrap().has("R"));

    // The other way round; but an end that does not know accurate ECN sees the same request twice.
    for (tcp_ecn, answer) in [(3, "R"), (2, "S")] {
        let mut t = Trace::with(config().with(|c| c.set_sysctl("tcp_ecn", &tcp_ecn.to_string()).unwrap()));
        t.listen_with(ListenOptions::default());
        inject!(t, "SEW", seq(0), mss(1_000));
        expect!(t, "S.E", seq(0));
        inject!(t, "SAEW", seq(0), mss(1_000));
        t.poll();
        assert!(t.out.pop_front().unwrap().has(answer));
    }
}

#[test]
fn accecn_02_only_a_client_reports_the_mark_in_an_ack_of_the_syn() {
    // §3.2.2.2: a server reports it in its SYN-ACK. An ACK that the server sends before any data carries the
    // counter, 5: here it answers the client's SYN, which arrives a second time (RFC 5961 §4).
    let mut t = accepted(config());
    inject!(t, "SAEW", seq(0), mss(1_000));
    expect!(t, ".AE", seq(1), ack(1));
}

#[test]
fn accecn_09_after_a_syn_without_ecn_nothing_is_capable() {
    // §3.1.5: the client may have got the answer to either, and may be without ECN.
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000));
    expect!(t, "S.W", seq(0));
    inject!(t, "S", seq(0), mss(1_000));
    expect!(t, "S.W", seq(0));
    inject!(t, ".W", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(500);
    expect!(t, ".AE", seq(1), len(500), ecn(Ecn::NotEct));
}

#[test]
fn accecn_10_a_marked_syn_ack_is_reported_and_counted() {
    // Table 4: 110, and s.cep is 6 from the beginning. Our SYN-ACK was not capable, so something changed it:
    // nothing is marked (§3.2.2.3).
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.W", seq(0));
    inject!(t, ".AW", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(2_000);
    expect!(t, ".AE", seq(1), len(1_000), ecn(Ecn::NotEct));
    // The SYN-ACK was one; the counter stands still, and then counts one more.
    inject!(t, ".AW", seq(1), ack(1_001));
    assert_eq!((t.info().delivered_ce, t.info().ca_state), (1, "open"));
    inject!(t, ".AEW", seq(1), ack(2_001));
    assert_eq!(t.info().delivered_ce, 2);
}

#[test]
fn accecn_11_a_handshake_that_ends_with_zero() {
    // Table 4, note 1: packets are not marked, and the peer's reports are not believed; marks are still
    // counted.
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.W", seq(0));
    inject!(t, ".", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(2_000);
    expect!(t, ".AE", seq(1), len(1_000), ecn(Ecn::NotEct));
    expect!(t, ".AE", seq(1_001), len(1_000));
    inject!(t, ".E", seq(1), ack(1_001));
    assert_eq!((t.info().delivered_ce, t.info().ca_state), (0, "open"));
    inject!(t, ".", seq(1), len(100), ack(1_001), ecn(Ecn::Ce));
    assert!(t.out.pop_back().unwrap().has("AW"));
}

#[test]
fn accecn_12_marks_are_counted_and_reported() {
    let mut t = accepted(config());
    // Every data packet is ECT(0): EE0B alone has moved (§3.2.3.3, first example).
    inject!(t, ".W", seq(1), len(1_000), ecn(Ecn::Ect0));
    let ect0 = AccEcn { ee0b: Some(1_001), ..AccEcn::default() };
    expect!(t, ".AE", ack(1_001), ecn(Ecn::Ect0), accecn(ect0));
    // 5 and then 6, 7, 0, 1, 2, 3, 4, 5; CWR ends nothing. §3.2.2.5.1: the first mark is reported at once.
    for (n, ace) in (1..).zip([".AW", ".AEW", ".", ".E", ".W", ".EW", ".A", ".AE"]) {
        inject!(t, ".AE", seq(n * 1_000 + 1), len(1_000), ecn(Ecn::Ce));
        let told = AccEcn { ee0b: Some(1_001), eceb: Some(n * 1_000), ee1b: None };
        t.wait_ms(50);
        t.expect(&Seg::new(ace).ack((n + 1) * 1_000 + 1).accecn(told));
    }
    // ECT(1) also: all three.
    inject!(t, ".AE", seq(9_001), len(1_000), ecn(Ecn::Ect1));
    t.wait_ms(50);
    let all = AccEcn { ee0b: Some(1_001), eceb: Some(8_000), ee1b: Some(1_001) };
    expect!(t, ".AE", ack(10_001), accecn(all));
    // Nothing moved: no option. A pure ACK is a packet without bytes; three marked ones are reported.
    let cwnd = t.info().snd_cwnd;
    inject!(t, ".AE", seq(10_001), ecn(Ecn::Ce));
    inject!(t, ".AE", seq(10_001), ecn(Ecn::Ce));
    expect_nothing!(t, for_ms 500);
    inject!(t, ".AE", seq(10_001), ecn(Ecn::Ce));
    assert_eq!(expect!(t, ".", ack(10_001)).options.accecn, None);
    assert_eq!(t.info().snd_cwnd, cwnd);
}

#[test]
fn accecn_13_a_change_and_every_second_mark_are_reported_at_once() {
    // §3.2.2.5.1: change-triggered, and increment-triggered with n = 2 while there is data to acknowledge.
    let mut t = accepted(config());
    use_up_quick_acks(&mut t, ".AE", 1);
    inject!(t, ".AE", seq(4_001), len(100), ecn(Ecn::Ect0));
    expect_nothing!(t);
    // 6 is A and W.
    inject!(t, ".AE", seq(4_101), len(100), ecn(Ecn::Ce));
    expect!(t, ".AW", ack(4_201));
    inject!(t, ".AE", seq(4_201), len(100), ecn(Ecn::Ce));
    expect_nothing!(t);
    inject!(t, ".AE", seq(4_301), len(100), ecn(Ecn::Ce));
    expect!(t, ".", ack(4_401));
}

#[test]
fn accecn_14_what_the_device_refused_is_not_reported() {
    let mut t = accepted(config());
    t.inject_unpolled(&Seg::new(".AE").seq(1).len(1_000).ecn(Ecn::Ce));
    assert_eq!(t.refuse(), 0);
    // The counter that moved goes with the same ACK again.
    expect!(t, ".AW", ack(1_001), accecn(ce(1_000)));
}

#[test]
fn accecn_12_a_super_packet_counts_as_many() {
    let mut t = accepted(config());
    inject!(t, ".AE", seq(1), len(4_000), gso(1_000), ecn(Ecn::Ce));
    // 5 + 4.
    expect!(t, ".E", ack(4_001), accecn(ce(4_000)));
}

#[test]
fn accecn_15_data_carries_the_option_and_is_shorter() {
    let mut t = accepted(config());
    inject!(t, ".W", seq(1), len(1_000), ecn(Ecn::Ce));
    t.out.clear();
    inject!(t, ".W", seq(1_001), len(100), ecn(Ecn::Ce));
    t.out.clear();
    inject!(t, ".W", seq(1_101), len(100), ecn(Ecn::Ect0));
    t.out.clear();
    inject!(t, ".W", seq(1_201), len(100), ecn(Ecn::Ect0));
    t.out.clear();
    use_up_quick_acks(&mut t, ".W", 1_301);
    inject!(t, ".W", seq(5_301), len(100), ecn(Ecn::Ect0));
    expect_nothing!(t);
    t.write(2_000);
    // MSS 1000 less the eight bytes of two counters.
    let told = AccEcn { ee0b: Some(4_301), eceb: Some(1_100), ee1b: None };
    expect!(t, ".AEW", ack(5_401), len(992), accecn(told));
    assert_eq!(expect!(t, ".AEW", len(1_000)).options.accecn, None);
}

#[test]
fn accecn_16_one_reduction_a_window_and_no_cwr() {
    let mut t = accepted(config());
    t.write(23_000);
    for n in 0..10 {
        expect!(t, ".AE", seq(1 + n * 1_000), len(1_000), ecn(Ecn::Ect0));
    }
    // CUBIC, RFC 9438 §4.6: 0.7 of 10. The peer's counter stands at 5 + 1.
    inject!(t, ".AW", seq(1), ack(1_001), accecn(ce(1_000)));
    let info = t.info();
    assert_eq!((info.ca_state, info.snd_ssthresh, info.delivered_ce), ("cwr", 7, 1));
    // §3.1.5: CWR is a bit of our own counter, which stands at 5.
    expect!(t, ".AE", seq(10_001), len(1_000), ecn(Ecn::Ect0));
    // Three more of the same window: counted, not answered again.
    inject!(t, ".E", seq(1), ack(5_001), accecn(ce(4_000)));
    assert_eq!((t.info().snd_ssthresh, t.info().delivered_ce), (7, 4));
    // The counter stands still: no echo that would have to end.
    inject!(t, ".E", seq(1), ack(11_001), accecn(ce(4_000)));
    t.poll();
    t.out.clear();
    inject!(t, ".E", seq(1), ack(12_001), accecn(ce(4_000)));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh, t.info().delivered_ce), ("open", 7, 4));
    // One in the next window: 0.7 of 7 is 4.9.
    inject!(t, ".W", seq(1), ack(13_001), accecn(ce(5_000)));
    assert_eq!((t.info().ca_state, t.info().snd_ssthresh, t.info().delivered_ce), ("cwr", 4, 5));
    assert_eq!(t.stack.counters().tcp_delivered_ce, 5);
}

#[test]
fn accecn_17_stretch_acks_and_the_field_that_wrapped() {
    // (ACE, option, marked of ten)
    for (ace, option, marked) in [
        // 5 + 2 and 2,000 bytes; 5 + 10 is 7 modulo 8, too.
        (".AEW", Some(ce(2_000)), 2),
        (".AEW", Some(ce(10_000)), 10),
        // 5 + 8 is 5: none or eight.
        (".AE", Some(ce(0)), 0),
        (".AE", Some(ce(8_000)), 8),
        // The option never moved off its first byte counter: none.
        (".AE", Some(AccEcn { ee0b: Some(10_001), ..AccEcn::default() }), 0),
        // None with this ACK, but with earlier ones: only the certain marks count.
        (".AEW", None, 2),
    ] {
        let mut t = accepted(config());
        t.write(10_000);
        t.poll();
        t.out.clear();
        let ack = Seg::new(ace).seq(1).ack(10_001);
        t.inject(&match option {
            Some(option) => ack.accecn(option),
            None => ack,
        });
        assert_eq!(t.info().delivered_ce, marked, "{ace} {option:?}");
    }
}

/// The peer never sends the option, acknowledges ten packets of ours by ACKs up to these, and its field shows
/// this in the last one.
fn without_option(acks: &[u32], field: &str) -> Trace {
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.W", seq(0));
    t.wait_ms(20);
    inject!(t, ".W", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(10_000);
    t.poll();
    for (index, ack) in acks.iter().enumerate() {
        let field = if index + 1 == acks.len() { field } else { ".AE" };
        t.inject(&Seg::new(field).seq(1).ack(1_000 * ack + 1));
    }
    t
}

#[test]
fn accecn_17_without_an_option_the_field_may_have_wrapped() {
    // Appendix A.2.1: 9 − ((9 − 0) mod 8).
    assert_eq!(without_option(&[1, 10], ".AE").info().delivered_ce, 8);
}

#[test]
fn accecn_41_acks_for_many_packets_are_no_sign_of_a_wrap() {
    // The difference of the field alone. After a mark 0.7 of 10, RFC 9438 §4.6.
    for (field, marked, state, ssthresh) in
        [(".AE", 0, "open", None), (".AW", 1, "cwr", Some(7)), (".A", 7, "cwr", Some(7))]
    {
        let info = without_option(&[10], field).info();
        assert_eq!((info.delivered_ce, info.ca_state), (marked, state), "{field}");
        if let Some(ssthresh) = ssthresh {
            assert_eq!(info.snd_ssthresh, ssthresh, "{field}");
        }
    }
}

#[test]
fn accecn_42_every_segment_but_a_syn_is_capable() {
    let mut t = Trace::with(config());
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0), ecn(Ecn::NotEct));
    t.wait_ms(20);
    inject!(t, "S.W", seq(0), ack(1), mss(1_000), sackok());
    expect!(t, ".W", seq(1), ack(1), ecn(Ecn::Ect0));
    t.write(500);
    expect!(t, ".AE", seq(1), len(500), ecn(Ecn::Ect0));
    // RTO: 20 ms and Linux's minimum of 200.
    expect!(t, ".AE", seq(1), len(500), ecn(Ecn::Ect0), after_ms(220));
    inject!(t, ".AE", seq(1), len(100), ack(501), win(65_535));
    expect!(t, ".AE", seq(501), ack(101), ecn(Ecn::Ect0));
    t.shutdown();
    expect!(t, "F.AE", seq(501), ecn(Ecn::Ect0));
    // RFC 9768 §3.2.2.3: nothing is, where our SYN-ACK did not arrive as it left.
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok());
    expect!(t, "S.W", seq(0), ecn(Ecn::NotEct));
    inject!(t, ".A", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    inject!(t, ".AE", seq(1), len(100), ack(1));
    expect!(t, ".AE", seq(1), ack(101), ecn(Ecn::NotEct));
}

#[test]
fn accecn_18_an_ack_that_was_overtaken_counts_for_nothing() {
    let mut t = accepted(config());
    t.write(10_000);
    t.poll();
    inject!(t, ".AEW", seq(1), ack(4_001), accecn(ce(2_000)));
    assert_eq!(t.info().delivered_ce, 2);
    // Appendix A.1: sent before that, when the counter stood at 6.
    inject!(t, ".AW", seq(1), ack(2_001), accecn(ce(1_000)));
    assert_eq!(t.info().delivered_ce, 2);
    inject!(t, ".", seq(1), ack(6_001), accecn(ce(3_000)));
    assert_eq!(t.info().delivered_ce, 3);
    // It reports what is known otherwise, by SACK, but not marks.
    inject!(t, ".AEW", seq(1), ack(4_001), sack(&[(7_001, 8_001)]));
    assert_eq!((t.info().sacked, t.info().delivered_ce), (1, 3));
    // With the same acknowledgment, marked bytes tell.
    inject!(t, ".E", seq(1), ack(6_001), sack(&[(7_001, 9_001)]), accecn(ce(4_000)));
    inject!(t, ".", seq(1), ack(6_001), sack(&[(9_001, 10_001), (7_001, 8_001)]), accecn(ce(3_000)));
    assert_eq!((t.info().sacked, t.info().delivered_ce), (3, 4));
    inject!(t, ".E", seq(1), ack(10_001), accecn(ce(4_000)));
    assert_eq!(t.info().delivered_ce, 4);

    // Nor are the bytes that it counts where the next ones are counted from: 5 + 2 and 2,000 are two, not
    // ten, of ten.
    let mut t = accepted(config());
    t.write(10_000);
    t.poll();
    inject!(t, ".AW", seq(1), ack(1_001), accecn(ce(1_000)));
    inject!(t, ".AE", seq(1), ack(1), accecn(ce(0)));
    inject!(t, ".AEW", seq(1), ack(10_001), accecn(ce(2_000)));
    assert_eq!(t.info().delivered_ce, 2);
}

#[test]
fn accecn_19_bytes_are_counted_from_the_last_option_on() {
    let mut t = accepted(config());
    t.write(10_000);
    t.poll();
    inject!(t, ".AE", seq(1), ack(10_001));
    // Slow start: twenty.
    t.write(20_000);
    t.poll();
    assert_eq!((t.info().unacked, t.info().snd_cwnd), (20, 20));
    // Nine of ten marked: 5 + 9 is 6 modulo 8. Then all ten: 6 + 10 is 0. Each with its bytes.
    inject!(t, ".AW", seq(1), ack(20_001), accecn(ce(9_000)));
    assert_eq!(t.info().delivered_ce, 9);
    inject!(t, ".", seq(1), ack(30_001), accecn(ce(19_000)));
    assert_eq!(t.info().delivered_ce, 19);
}

#[test]
fn accecn_20_the_option_goes_before_a_third_sack_block() {
    // Forty bytes: 12 of timestamps, 8 of two counters, 20 of two SACK blocks.
    let mut t = Trace::with(config());
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535), ts(1, 0));
    expect!(t, "S.W", seq(0));
    inject!(t, ".W", seq(1), ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    for seq in [1_001, 3_001, 5_001] {
        t.out.clear();
        inject!(t, ".W", seq(seq), len(1_000), ecn(Ecn::Ce));
    }
    t.wait_ms(50);
    let options = t.out.pop_back().unwrap().options;
    assert_eq!((options.accecn, options.sack.len()), (Some(ce(3_000)), 2));
}

#[test]
fn dctcp_11_accurate_ecn_gives_the_exact_share() {
    let dctcp = Algorithm::dctcp();
    let mut t = accepted(config().with(|c| c.congestion.control = dctcp));
    t.write(23_000);
    for n in 0..10 {
        expect!(t, ".AE", seq(1 + n * 1_000), len(1_000), ecn(Ecn::Ect0));
    }
    t.wait_ms(20);
    // One of four: an ECE would have said four.
    inject!(t, ".AW", seq(1), ack(4_001), accecn(ce(1_000)));
    assert_eq!(t.info().delivered_ce, 1);
    inject!(t, ".AW", seq(1), ack(6_001), accecn(ce(1_000)));
    assert_eq!(t.info().delivered_ce, 1);
    // RFC 8257 §3.3: α is 1 until the first window is over, so that the mark halves.
    assert_eq!(t.info().snd_ssthresh, 5);
    t.poll();
    t.out.clear();
    // Retransmissions may be marked, too.
    inject!(t, ".AW", seq(1), ack(6_001), sack(&[(7_001, 10_001)]));
    expect!(t, ".AE", seq(6_001), len(1_000), ecn(Ecn::Ect0));
}

#[test]
fn accecn_21_no_super_packet_carries_the_bit_that_segmentation_takes_for_cwr() {
    let longest = |t: &mut Trace, ace: &str| {
        t.write(4_000);
        t.poll();
        t.out.drain(..).inspect(|got| assert!(got.has(ace))).map(|got| got.payload.len()).max().unwrap()
    };
    let mut t = accepted_with(config(), LinkCaps::offloading(1_500));
    assert!(longest(&mut t, "AE") > 1_000);
    // 6 has that bit (§3.3.4): one segment each. 8 has not.
    inject!(t, ".AE", seq(1), len(1_000), ack(4_001), ecn(Ecn::Ce));
    t.poll();
    t.out.clear();
    assert_eq!(longest(&mut t, "AW"), 1_000);
    inject!(t, ".AE", seq(1_001), len(2_000), ack(8_001), gso(1_000), ecn(Ecn::Ce));
    t.poll();
    t.out.clear();
    assert!(longest(&mut t, ".") > 1_000);
}

#[test]
fn accecn_22_prague_requests_it_whatever_the_setting_and_marks_ect_1() {
    // RFC 9331 §4.1: ECT(1); §4.2: only with accurate feedback.
    let options = ConnOptions { congestion: Some(Algorithm::prague()), ..ConnOptions::default() };
    for (answer, ack, data, mark) in
        [("S.W", ".W", ".AE", Ecn::Ect1), ("S.E", ".", ".", Ecn::NotEct), ("S.", ".", ".", Ecn::NotEct)]
    {
        let mut t = Trace::new();
        t.connect_with(&options);
        expect!(t, "SAEW", seq(0), ecn(Ecn::NotEct));
        t.wait_ms(20);
        t.inject(&Seg::new(answer).seq(0).ack(1).mss(1_000).sackok());
        t.expect(&Seg::new(ack).seq(1).ecn(mark));
        t.write(500);
        t.expect(&Seg::new(data).seq(1).len(500).ecn(mark));
        // Retransmissions are for the same queue. RTO: 20 ms and Linux's minimum of 200.
        t.expect(&Seg::new(data).seq(1).len(500).ecn(mark).after_ms(220));
    }
}

#[test]
fn accecn_40_nothing_is_reported_after_the_end() {
    // RFC 9293 §3.10.7.4: in LAST-ACK, the ACK of our FIN ends the connection. The third mark on a pure ACK
    // would be reported at once (§3.2.2.5.1): to nobody.
    let mut t = accepted(config());
    inject!(t, "F.AE", seq(1), ack(1));
    t.shutdown();
    t.poll();
    t.out.clear();
    for _ in 0..2 {
        inject!(t, ".AE", seq(2), ack(1), ecn(Ecn::Ce));
    }
    expect_nothing!(t);
    assert_eq!(t.state(), State::LastAck);
    inject!(t, ".AE", seq(2), ack(2), ecn(Ecn::Ce));
    assert_eq!(t.state(), State::Closed);
    expect_nothing!(t, for_ms 1_000);
}
