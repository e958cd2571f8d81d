//! Accurate ECN's handshake where it is marked or tampered with: congestion (RFC 9768 §3.2.2.2), and the
//! signs after which a sender marks nothing as ECN-capable or does not believe reports (§3.2.2.4, §3.2.3.2.4,
//! §3.2.3.2.5).

use taut_core::{Algorithm, ConnOptions, ListenOptions, StackConfig};
use taut_wire::{AccEcn, Ecn};

use crate::recovery::accecn::{FIRST, accepted, ce, config};
use crate::support::trace::{Seg, Trace};

/// A client whose SYN was answered with these flags and this option.
fn connected(answer: &str, option: AccEcn) -> Trace {
    let mut t = Trace::with(config());
    t.connect_with(&ConnOptions::default());
    expect!(t, "SAEW", seq(0));
    t.wait_ms(20);
    t.inject(&Seg::new(answer).seq(0).ack(1).mss(1_000).sackok().win(65_535).accecn(option));
    expect!(t, ".W", seq(1), ack(1));
    t
}

/// A server whose SYN-ACK was acknowledged with these flags and this option.
fn listened(config: StackConfig, answer: &str, option: AccEcn) -> Trace {
    let mut t = Trace::with(config);
    let listener = t.listen_with(ListenOptions::default());
    inject!(t, "SAEW", seq(0), mss(1_000), sackok(), win(65_535));
    expect!(t, "S.W", seq(0));
    t.wait_ms(20);
    t.inject(&Seg::new(answer).seq(1).ack(1).accecn(option));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t
}

/// Writes and sends `segments` of 1,000 bytes each, whatever options the first has.
fn send(t: &mut Trace, segments: usize) {
    t.write(segments * 1_000);
    t.poll();
    t.out.clear();
}

/// How the next data is marked.
fn next_mark(t: &mut Trace) -> Ecn {
    t.poll();
    t.out.clear();
    t.write(1_000);
    t.poll();
    t.out.pop_front().unwrap().ecn
}

#[test]
fn accecn_23_a_marked_syn_is_congestion() {
    // §3.2.2.2: the client acts on it, and its counter stays at 5. CUBIC, RFC 9438 §4.6: 0.7 of 10.
    for (answer, cwnd) in [("S.W", 10), ("S.AW", 7)] {
        let mut t = connected(answer, FIRST);
        assert_eq!(t.info().snd_cwnd, cwnd, "{answer}");
        send(&mut t, 2);
        inject!(t, ".AE", seq(1), ack(2_001), accecn(FIRST));
        assert_eq!((t.info().delivered_ce, t.info().ca_state), (0, "open"));
        // §3.2.2.3: a packet that was not ECN-capable may not arrive marked.
        assert_eq!(next_mark(&mut t) == Ecn::Ect0, cwnd == 10);
    }
}

#[test]
fn accecn_24_a_marked_syn_ack_is_congestion() {
    // Table 4: the server counts it, from 5 to 6.
    for (answer, cwnd, counted) in [(".W", 10, 0), (".AW", 7, 1)] {
        let mut t = listened(config(), answer, FIRST);
        let info = t.info();
        assert_eq!((info.snd_cwnd, info.delivered_ce), (cwnd, counted), "{answer}");
        assert_eq!(t.stack.counters().tcp_delivered_ce, u64::from(counted));
        send(&mut t, 2);
        let ack = if counted == 1 { ".AW" } else { ".AE" };
        t.inject(&Seg::new(ack).seq(1).ack(2_001).accecn(FIRST));
        assert_eq!((t.info().delivered_ce, t.info().ca_state), (counted, "open"));
    }
    // RFC 8257: α is 1 at first, and half the window goes.
    let dctcp = config().with(|c| c.congestion.control = Algorithm::dctcp());
    assert_eq!(listened(dctcp, ".AW", FIRST).info().snd_cwnd, 5);
}

#[test]
fn dctcp_12_a_marked_syn_ack_is_congestion() {
    // RFC 5562 §3: without counters ECE on the ACK says it, where the SYN-ACK was capable.
    for (ecn, answer, cwnd, counted) in [(2, ".", 10, 0), (2, ".E", 5, 1)] {
        let dctcp = Algorithm::dctcp();
        let mut t = Trace::with(config().with(|c| {
            c.congestion.control = dctcp;
            c.set_sysctl("tcp_ecn", &ecn.to_string()).unwrap();
        }));
        let listener = t.listen_with(ListenOptions::default());
        inject!(t, "SEW", seq(0), mss(1_000), sackok(), win(65_535), ecn(Ecn::Ect0));
        expect!(t, "S.E", seq(0), ack(1), ecn(Ecn::Ect0));
        t.inject(&Seg::new(answer).seq(1).ack(1));
        t.id = Some(t.stack.accept(listener).unwrap().0);
        assert_eq!((t.info().snd_cwnd, t.info().delivered_ce), (cwnd, counted));
    }
}

#[test]
fn accecn_25_a_syn_ack_that_comes_again() {
    // §3.2.2.1: the handshake's encoding again, of the latest mark (§3.1.5); §3.2.2.2: at most one is
    // counted.
    let mut t = connected("S.W", FIRST);
    for (mark, code) in [(Ecn::NotEct, ".W"), (Ecn::Ce, ".AW"), (Ecn::Ce, ".AW"), (Ecn::Ect0, ".A")] {
        t.wait_ms(1_000);
        inject!(t, "S.W", seq(0), ack(1), mss(1_000), sackok(), accecn(FIRST), ecn(mark));
        t.expect(&Seg::new(code).seq(1).ack(1));
    }
    t.write(500);
    expect!(t, ".AW", seq(1), len(500));
    // One that does not agree says nothing of it.
    let mut t = connected("S.W", FIRST);
    t.wait_ms(1_000);
    inject!(t, "S.", seq(0), ack(1), mss(1_000), sackok(), ecn(Ecn::Ce));
    expect!(t, ".W", seq(1), ack(1));
}

#[test]
fn accecn_26_a_field_that_is_zeroed() {
    // §3.2.2.4: the first one after the handshake.
    for client in [true, false] {
        let start = || if client { connected("S.W", FIRST) } else { listened(config(), ".W", FIRST) };
        let mut t = start();
        send(&mut t, 1);
        inject!(t, ".", seq(1), ack(1_001));
        assert_eq!((t.info().delivered_ce, t.info().ca_state), (0, "open"), "client: {client}");
        assert_eq!(next_mark(&mut t), Ecn::NotEct, "client: {client}");
        // "It is advised not to respond to any feedback".
        inject!(t, ".AW", seq(1), ack(2_001));
        assert_eq!(t.info().delivered_ce, 0);
        // As a receiver it goes on.
        inject!(t, ".", seq(1), len(100), ack(2_001), ecn(Ecn::Ce));
        assert!(t.out.pop_back().unwrap().has("AW"));

        // Three marked ones are zero, too: 5 + 3.
        let mut t = start();
        send(&mut t, 3);
        inject!(t, ".", seq(1), ack(3_001), accecn(ce(3_000)));
        assert_eq!((t.info().delivered_ce, next_mark(&mut t)), (3, Ecn::Ect0), "client: {client}");
        // And later it is any number.
        let mut t = start();
        send(&mut t, 4);
        inject!(t, ".AE", seq(1), ack(1_001), accecn(FIRST));
        inject!(t, ".", seq(1), ack(2_001), accecn(ce(3_000)));
        assert_eq!((t.info().delivered_ce, next_mark(&mut t)), (3, Ecn::Ect0), "client: {client}");
    }
}

#[test]
fn accecn_27_an_option_that_is_zeroed() {
    // §3.2.3.2.4: it is ignored, and the field is read in the safest way (appendix A.2.1): 9 − ((9 − 1) mod
    // 8).
    let zero0 = AccEcn { ee0b: Some(0), ..FIRST };
    let zero1 = AccEcn { ee1b: Some(0), ..FIRST };
    for (option, marked) in [(FIRST, 1), (zero0, 9), (zero1, 9)] {
        for client in [true, false] {
            let mut t = if client { connected("S.W", option) } else { listened(config(), ".W", option) };
            t.write(10_000);
            t.poll();
            // A client's first segment has twelve bytes less.
            let less = if client { 12 } else { 0 };
            inject!(t, ".AE", seq(1), ack(1_001 - less), accecn(ce(0)));
            inject!(t, ".AW", seq(1), ack(10_001 - less), accecn(ce(1_000)));
            assert_eq!(t.info().delivered_ce, marked, "client: {client}, {option:?}");
        }
    }
}

#[test]
fn accecn_28_an_option_that_contradicts_the_field() {
    // §3.2.3.2.5: marked bytes and no marked packet, of fewer than eight. Nothing more is marked as capable.
    for (segments, option, mark) in
        [(7, ce(0), Ecn::Ect0), (7, ce(1_000), Ecn::NotEct), (8, ce(8_000), Ecn::Ect0)]
    {
        let mut t = accepted(config());
        t.write(segments * 1_000);
        t.poll();
        t.inject(&Seg::new(".AE").seq(1).ack(segments as u32 * 1_000 + 1).accecn(option));
        assert_eq!(next_mark(&mut t), mark, "{segments} {option:?}");
    }
    // The field without the option says more, not less: pure ACKs are no bytes.
    let mut t = accepted(config());
    t.write(4_000);
    t.poll();
    inject!(t, ".AW", seq(1), ack(4_001), accecn(ce(0)));
    assert_eq!((t.info().delivered_ce, next_mark(&mut t)), (1, Ecn::Ect0));
}
