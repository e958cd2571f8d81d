//! The AccECN option: when it is sent (RFC 9768 §3.2.3.3, and sparingly as with Linux's `tcp_ecn_option` 1),
//! and when it is no longer sent (§3.2.3.2).

use taut_core::{ConnOptions, ListenOptions, StackConfig};
use taut_wire::{AccEcn, Ecn};

use crate::recovery::accecn::{FIRST, accepted, config};
use crate::support::trace::Trace;

fn with(tcp_ecn_option: u8, tcp_ecn_option_beacon: u8) -> StackConfig {
    config().with(|c| {
        c.set_sysctl("tcp_ecn_option", &tcp_ecn_option.to_string()).unwrap();
        c.ecn.option_beacon = tcp_ecn_option_beacon;
    })
}

/// The peer sends the `n`-th 1,000 bytes; the option of the ACK.
fn told(t: &mut Trace, n: u32, mark: Ecn) -> Option<AccEcn> {
    inject!(t, ".W", seq(n * 1_000 + 1), len(1_000), ecn(mark));
    t.poll();
    if t.out.is_empty() {
        // Quick ACKs end at some time.
        t.wait_ms(50);
    }
    let got = t.out.pop_front().unwrap();
    assert_eq!(got.ack, (n + 1) * 1_000 + 1);
    got.options.accecn
}

#[test]
fn accecn_29_never() {
    // Linux: 0 is without it in the handshake, too.
    let mut t = Trace::with(with(0, 3));
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    assert_eq!(expect!(t, "S.W", seq(0), ack(1)).options.accecn, None);
    t.wait_ms(20);
    inject!(t, ".W", seq(1), ack(1), accecn(FIRST));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    assert_eq!(told(&mut t, 0, Ecn::Ect0), None);
    // The field counts all the same: 5 + 1.
    inject!(t, ".W", seq(1_001), len(1_000), ecn(Ecn::Ce));
    assert_eq!(expect!(t, ".AW", ack(2_001)).options.accecn, None);

    let mut t = Trace::with(with(0, 3));
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0));
    inject!(t, "S.W", seq(0), ack(1), mss(1_000), sackok(), accecn(FIRST));
    assert_eq!(expect!(t, ".W", seq(1), ack(1)).options.accecn, None);
    t.write(1_000);
    assert_eq!(expect!(t, ".AE", seq(1), len(1_000)).options.accecn, None);
}

#[test]
fn accecn_30_the_first_data_of_a_client_carries_it() {
    // §3.2.3.2.1; and a retransmission does not carry it, because the option may have caused the loss
    // (§3.2.3.2.2).
    let mut t = Trace::with(config());
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0));
    t.wait_ms(20);
    inject!(t, "S.W", seq(0), ack(1), mss(1_000), sackok(), win(65_535), accecn(FIRST));
    expect!(t, ".W", seq(1), ack(1), accecn(FIRST));
    t.write(2_000);
    // MSS 1000 less twelve bytes for three counters.
    expect!(t, ".AE", seq(1), len(988), accecn(FIRST));
    assert_eq!(expect!(t, ".AE", seq(989), len(1_000)).options.accecn, None);
    expect!(t, ".AE", seq(1_989), len(12));
    t.wait_ms(2_000);
    let again = t.out.iter().find(|got| got.seq == 1).unwrap();
    assert_eq!((again.options.accecn, again.ecn), (None, Ecn::Ect0));
}

#[test]
fn accecn_31_sparingly() {
    let mut t = accepted(with(1, 0));
    let ect0 = |bytes: u32| Some(AccEcn { ee0b: Some(1 + bytes), ..AccEcn::default() });
    // §3.2.3.3: a different counter than before, on the ACK that reports it and the next; and then no more.
    assert_eq!(told(&mut t, 0, Ecn::Ect0), ect0(1_000));
    assert_eq!(told(&mut t, 1, Ecn::Ect0), ect0(2_000));
    assert_eq!(told(&mut t, 2, Ecn::Ect0), None);
    t.wait_ms(5);
    assert_eq!(told(&mut t, 3, Ecn::Ect0), None);
    // Always while marks come, and on the ACKs after them.
    let both = |ect0: u32, ce: u32| Some(AccEcn { ee0b: Some(1 + ect0), eceb: Some(ce), ee1b: None });
    for n in 1..=3 {
        assert_eq!(told(&mut t, 3 + n, Ecn::Ce), both(4_000, n * 1_000));
    }
    assert_eq!(told(&mut t, 7, Ecn::Ect0), both(5_000, 3_000));
    assert_eq!(told(&mut t, 8, Ecn::Ect0), both(6_000, 3_000));
    assert_eq!(told(&mut t, 9, Ecn::Ect0), None);
    // Packets that are not capable count nothing, and change nothing.
    assert_eq!(told(&mut t, 10, Ecn::NotEct), None);
    assert_eq!(told(&mut t, 11, Ecn::Ect0), None);
}

#[test]
fn accecn_32_sparingly_with_a_beacon() {
    // Linux: so often in a round trip, which took 20 ms: every 6.7 ms.
    let mut t = accepted(with(1, 3));
    assert!(told(&mut t, 0, Ecn::Ect0).is_some());
    assert!(told(&mut t, 1, Ecn::Ect0).is_some());
    t.wait_ms(6);
    assert_eq!(told(&mut t, 2, Ecn::Ect0), None);
    t.wait_ms(1);
    assert_eq!(told(&mut t, 3, Ecn::Ect0), Some(AccEcn { ee0b: Some(4_001), ..AccEcn::default() }));
    assert_eq!(told(&mut t, 4, Ecn::Ect0), None);
    t.wait_ms(100);
    t.write(100);
    let fifth = AccEcn { ee0b: Some(5_001), ..AccEcn::default() };
    expect!(t, ".AE", len(100), accecn(fifth));
    // Nothing new, nothing to report.
    inject!(t, ".AE", seq(5_001), ack(101));
    t.wait_ms(100);
    t.write(100);
    assert_eq!(expect!(t, ".AE", len(100)).options.accecn, None);
}

#[test]
fn accecn_33_sparingly_but_before_a_counter_wraps() {
    // §3.2.3.3: once for every 2²² bytes.
    let mut t = accepted(with(1, 0));
    let mut options = 0;
    for n in 0..4_500 {
        inject!(t, ".W", seq(n * 1_000 + 1), len(1_000), ecn(Ecn::Ect0));
        t.poll();
        t.read(1_000);
        options += t.out.drain(..).filter(|got| got.options.accecn.is_some()).count();
    }
    t.wait_ms(50);
    // Two of the beginning, and one at 4,194,304 bytes.
    assert_eq!(options, 3);
}

/// Data that is acknowledged with the option, and yet arrives again.
fn ignored(t: &mut Trace, n: u32) -> bool {
    let option = told(t, n, Ecn::Ect0).is_some();
    t.wait_ms(250);
    inject!(t, ".W", seq(n * 1_000 + 1), len(1_000));
    t.poll();
    assert_eq!(t.out.pop_front().unwrap().options.accecn, None, "nothing new");
    t.out.clear();
    option
}

#[test]
fn accecn_34_no_more_where_it_does_not_arrive() {
    // §3.2.3.2.2: "detecting whether the acknowledged data always reappears". Linux: 3 goes on.
    for (setting, goes_on) in [(2, false), (3, true)] {
        let mut t = accepted(with(setting, 3));
        for n in 0..3 {
            assert!(ignored(&mut t, n), "{n}");
        }
        assert_eq!(ignored(&mut t, 3), goes_on);
        // The field counts all the same.
        inject!(t, ".W", seq(4_001), len(1_000), ecn(Ecn::Ce));
        expect!(t, ".AW", ack(5_001));
    }
    // If data arrives again only now and then, the ACKs were lost for other reasons.
    let mut t = accepted(config());
    let mut n = 0;
    for _ in 0..5 {
        for _ in 0..40 {
            inject!(t, ".W", seq(n * 1_000 + 1), len(1_000), ecn(Ecn::Ect0));
            t.wait_ms(50);
            t.out.clear();
            t.read(1_000);
            n += 1;
        }
        inject!(t, ".W", seq((n - 1) * 1_000 + 1), len(1_000));
        t.poll();
        t.out.clear();
    }
    assert!(told(&mut t, n, Ecn::Ect0).is_some());
}

#[test]
fn accecn_35_a_retransmitted_syn_ack_has_none_but_persistently() {
    for (setting, option) in [(2, None), (3, Some(FIRST))] {
        let mut t = Trace::with(with(setting, 3));
        t.listen_with(ListenOptions::default());
        inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
        expect!(t, "S.W", seq(0), ack(1), accecn(FIRST));
        assert_eq!(expect!(t, "S.W", seq(0), after_ms(1_000)).options.accecn, option);
    }
}
