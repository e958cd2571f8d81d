//! What a listener remembers of a SYN until its handshake is complete: the statements HALF-1 to HALF-12 of
//! docs/spec/reliability.md. The sizes are tested in `src/stack/half_open.rs` and `size.rs`.

use crate::support;

use support::trace::{Offer, Seg, Trace};
use taut_core::{ConnOptions, Duration, Event, FastOpenListen, ListenOptions, StackConfig, State};
use taut_wire::{Ecn, Unreachable};

/// A listener that has answered the peer's SYN.
fn answered(config: StackConfig, offer: Offer) -> Trace {
    let mut t = Trace::with(config);
    t.listen();
    t.syn(offer);
    expect!(t, "S.", seq(0), ack(1));
    t
}

fn accept(t: &mut Trace) {
    t.id = Some(t.stack.accept(t.listener.unwrap()).expect("the handshake is complete").0);
}

/// Settings of the stack that change between SYN and ACK change nothing about what the SYN-ACK has offered.
#[test]
fn half_03_the_connection_has_the_terms_of_its_handshake() {
    let settings = [
        ("tcp_timestamps", "0"),
        ("tcp_sack", "0"),
        ("tcp_window_scaling", "0"),
        ("tcp_rmem", "4096 8192 6291456"),
        ("tcp_ecn", "0"),
    ];
    for (offer, wscale) in [(Offer::ALL, Some(7)), (Offer::EASY, None)] {
        for (name, value) in settings {
            let mut t = Trace::new();
            t.listen();
            t.ts = offer.ts;
            let mut syn = Seg::new("SEW").seq(0).win(5_000).mss(offer.mss.unwrap());
            if let Some(shift) = wscale {
                syn = syn.wscale(shift);
            }
            t.inject(&syn.sackok());
            // RFC 3168 §6.1.1: ECE alone agrees.
            let answer = expect!(t, "SE.", seq(0), ack(1), win(65_535));
            t.stack.set_sysctl(name, value).unwrap();
            inject!(t, ".", seq(1), ack(1), win(1_000));
            accept(&mut t);
            let info = t.info();
            assert_eq!(info.state, State::Established);
            assert!(info.ecn && info.sack, "{name}");
            assert_eq!((info.timestamps, info.snd_wscale), (offer.ts, wscale), "{name}");
            assert_eq!(info.rcv_wscale, answer.options.window_scale, "{name}");
            assert_eq!(info.snd_wnd, 1_000 << wscale.unwrap_or(0), "{name}");
            assert_eq!(info.snd_mss, u32::from(offer.mss.unwrap()) - if offer.ts { 12 } else { 0 }, "{name}");
            // All that the SYN-ACK's window allowed is taken.
            for n in 0..44 {
                inject!(t, ".", seq(1 + n * 1_460), ack(1), len(1_460));
            }
            assert_eq!(t.info().rcv_queue_bytes, 44 * 1_460, "{name}");
        }
    }
}

/// RFC 6298 §2 and §5.5: 1 s, doubled each time; Linux: `tcp_synack_retries` 5.
#[test]
fn half_04_a_syn_ack_is_repeated_and_a_repeated_syn_does_not_put_that_off() {
    let mut t = answered(StackConfig::default(), Offer::EASY);
    t.wait_ms(400);
    t.syn(Offer::EASY);
    expect!(t, "S.", seq(0), ack(1));
    for (retries, after) in [(1, 1_000), (2, 2_000)] {
        expect!(t, "S.", seq(0), ack(1), after_ms(after));
        assert_eq!(t.stack.counters().retrans_segs, retries);
    }
    let config = StackConfig::default().with(|c| c.tcp.synack_retries = 1);
    let mut t = answered(config, Offer::EASY);
    expect!(t, "S.", seq(0), ack(1), after_ms(1_000));
    t.wait_ms(1_999);
    assert_eq!((t.stack.connections(), t.stack.counters().attempt_fails), (1, 0));
    t.wait_ms(1);
    t.expect_gone();
    assert_eq!((t.event(), t.stack.counters().attempt_fails), (None, 1));
    // `TCP_USER_TIMEOUT` of the listener ends it at the first timeout after it.
    let mut t = Trace::new();
    let conn = ConnOptions { user_timeout: Some(Duration::from_millis(2_500)), ..ConnOptions::default() };
    t.listen_with(ListenOptions { conn, ..ListenOptions::default() });
    t.syn(Offer::EASY);
    expect!(t, "S.");
    expect!(t, "S.", after_ms(1_000));
    t.wait_ms(2_000);
    t.expect_gone();
}

/// RFC 9293 §3.10.7.4, RFC 5961: what each segment that completes no handshake does, and that it makes no
/// connection.
#[test]
fn half_05_other_segments_make_no_connection() {
    let mut t = answered(StackConfig::default(), Offer::ALL);
    let id = t.stack.conn_ids().next().unwrap();
    // An ACK of something else is reset; the handshake goes on.
    inject!(t, ".", seq(1), ack(2));
    expect!(t, "R", seq(2));
    // Out of the window: an ACK, and at most one in 500 ms where any host could provoke it.
    inject!(t, "P.", seq(200_000), ack(1), len(10));
    expect!(t, ".", seq(1), ack(1));
    inject!(t, ".", seq(200_000), ack(1));
    expect!(t, ".", seq(1), ack(1));
    inject!(t, ".", seq(200_000), ack(1));
    // RFC 5961 §3.2: a RST in the window, but not at its edge.
    inject!(t, "R", seq(500));
    // RFC 7323 §5.3: an older timestamp.
    let (value, echo) = (t.peer_clock() - 10_000, t.last_tsval);
    inject!(t, ".", seq(1), ack(1), ts(value, echo));
    // A SYN with another number, and a segment without an ACK.
    inject!(t, "S", seq(77), ack(0));
    inject!(t, "P", seq(1), len(10));
    expect_nothing!(t);
    t.wait_ms(500);
    inject!(t, "R", seq(500));
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.stack.conn_ids().collect::<Vec<_>>(), [id], "still the same entry");
    assert!(t.stack.accept(t.listener.unwrap()).is_none());
    // A RST at its edge ends it.
    inject!(t, "R", seq(1));
    t.expect_gone();
    assert_eq!((t.event(), t.stack.counters().attempt_fails), (None, 1));
    inject!(t, ".", seq(1), ack(1));
    expect!(t, "R", seq(1));
}

/// The limit counts from an answer: there was none before the first, also when the clock has only just begun.
#[test]
fn half_05_the_first_challenge_is_answered_whenever_it_comes() {
    let mut t = Trace::new();
    t.now = taut_core::Instant::from_nanos(100_000_000);
    t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    inject!(t, "R", seq(500));
    expect!(t, ".", seq(1), ack(1));
}

#[test]
fn half_06_an_icmp_error_ends_it_if_it_quotes_the_syn_ack() {
    let mut t = Trace::new();
    t.listen();
    t.syn(Offer::EASY);
    let syn_ack = expect!(t, "S.");
    let mut forged = syn_ack.bytes.clone();
    forged[27] ^= 1;
    t.inject_icmp(Unreachable::Host, &forged);
    t.inject_icmp(Unreachable::FragmentationNeeded { mtu: 600 }, &syn_ack.bytes);
    assert_eq!(t.stack.connections(), 1);
    t.inject_icmp(Unreachable::Host, &syn_ack.bytes);
    t.expect_gone();
    assert_eq!(t.stack.counters().attempt_fails, 1);
}

#[test]
fn half_07_a_syn_ack_that_the_device_refuses_leaves_later() {
    let mut t = Trace::new();
    t.listen();
    let syn = Seg::new("S").seq(0).mss(1_000).win(65_535);
    t.inject_unpolled(&syn);
    t.refuse();
    assert_eq!((t.stack.counters().out_segs, t.stack.counters().retrans_segs), (0, 0));
    t.now += Duration::from_millis(300);
    expect!(t, "S.", seq(0), ack(1));
    assert_eq!((t.stack.counters().out_segs, t.stack.counters().retrans_segs), (1, 0));
    // The round trip begins when it leaves.
    t.wait_ms(20);
    inject!(t, ".", seq(1), ack(1));
    accept(&mut t);
    assert_eq!(t.info().rtt, Some(Duration::from_millis(20)));
    assert_eq!(t.info().total_retrans, 0);
}

#[test]
fn half_08_it_is_shown_and_the_connection_has_another_name() {
    let mut t = answered(StackConfig::default(), Offer::ALL);
    expect!(t, "S.", after_ms(1_000));
    let id = t.stack.conn_ids().next().unwrap();
    let info = t.stack.conn(id).unwrap().info(t.now);
    assert_eq!((info.state, info.retransmits, info.peer), (State::SynReceived, 1, t.peer));
    assert!(info.sack && info.timestamps && !info.ecn);
    assert!(t.stack.conn_mut(id).is_none(), "nobody holds it");
    assert_eq!(t.stack.memory_use().bytes, 0);
    inject!(t, ".", seq(1), ack(1));
    accept(&mut t);
    assert_ne!(t.id, Some(id));
    assert!(t.stack.conn(id).is_none());
    assert_eq!(t.stack.conn_ids().collect::<Vec<_>>(), [t.id.unwrap()]);
    assert!(matches!(t.event(), Some(Event::Incoming(_))));
}

#[test]
fn half_09_a_listener_that_is_closed_forgets_them() {
    let mut t = Trace::new();
    let listener = t.listen();
    for port in [1, 2, 3] {
        inject!(t, "S", seq(0), port(port), mss(1_000));
        expect!(t, "S.");
    }
    t.stack.close_listener(t.now, listener);
    t.expect_gone();
    expect_nothing!(t, for_ms 10_000);
}

/// RFC 9768 §3.1.5: the second SYN's mark is reported by the second SYN-ACK (table 2), and a request for
/// another kind of ECN is a reset.
#[test]
fn half_10_what_a_repeated_syn_says_about_ecn_is_kept() {
    let config = || StackConfig::default().with(|c| c.ecn.policy = taut_core::config::EcnPolicy::AskAccurate);
    let mut t = Trace::with(config());
    t.listen();
    inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
    expect!(t, "SW.");
    inject!(t, "SAEW", seq(0), mss(1_000), win(65_535), ecn(Ecn::Ce));
    expect!(t, "SAW.");
    // A client that falls back to no ECN gets data that is not marked as capable (its ACK: table 4).
    for (falls_back, mark) in [(false, Ecn::Ect0), (true, Ecn::NotEct)] {
        let mut t = Trace::with(config());
        t.listen();
        inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "SW.");
        if falls_back {
            inject!(t, "S", seq(0), mss(1_000), win(65_535));
            expect!(t, "SW.");
        }
        inject!(t, ".W", seq(1), ack(1));
        accept(&mut t);
        t.write(1_000);
        t.poll();
        assert_eq!(t.out.pop_front().unwrap().ecn, mark);
    }

    let mut t = Trace::with(config());
    t.listen();
    inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
    expect!(t, "SW.");
    inject!(t, "SEW", seq(0), mss(1_000), win(65_535));
    expect!(t, "R.", seq(1), ack(1));
    t.expect_gone();
}

/// A connection that a SYN opens at once counts against the caps of its listener like any other.
#[test]
fn half_11_connections_of_fast_open_count() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.fast_open.server = true));
    let fast_open = FastOpenListen { pending_max: 10, no_cookie: true, ..FastOpenListen::default() };
    t.listen_with(ListenOptions { max_per_peer: 2, fast_open, ..ListenOptions::default() });
    for port in 1..=4 {
        inject!(t, "S", seq(0), len(10), port(port), mss(1_000), win(65_535));
    }
    assert_eq!((t.stack.connections(), t.stack.counters().listen_capped), (2, 2));
    // When one is over there is room for one.
    inject!(t, "R", seq(11), port(2));
    for port in 5..=6 {
        inject!(t, "S", seq(0), len(10), port(port), mss(1_000), win(65_535));
    }
    assert_eq!(t.stack.counters().listen_capped, 3);
}

/// A repeated SYN is judged by what was agreed on for the first, not by what the setting has become.
#[test]
fn half_12_a_setting_that_changes_makes_no_contradiction() {
    let accepts = |tcp_ecn: &str| StackConfig::default().with(|c| c.set_sysctl("tcp_ecn", tcp_ecn).unwrap());
    for tcp_ecn in ["3", "4", "5"] {
        // A host that does not know accurate ECN takes its SYN for one of RFC 3168 (RFC 9768 table 2).
        let mut t = Trace::with(accepts("2"));
        t.listen();
        inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "SE.", seq(0), ack(1));
        t.stack.set_sysctl("tcp_ecn", tcp_ecn).unwrap();
        inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "SE.", seq(0), ack(1));
        inject!(t, ".", seq(1), ack(1));
        accept(&mut t);
        assert!(t.info().ecn);

        // The same where a SYN of the peer has crossed ours.
        let mut t = Trace::with(accepts("1"));
        t.connect();
        expect!(t, "SEW", seq(0));
        inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "SE.", seq(0), ack(1));
        t.stack.set_sysctl("tcp_ecn", tcp_ecn).unwrap();
        inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "SE.", seq(0), ack(1));

        // A host that knew it does see another request, whatever it is set to by then.
        let mut t = Trace::with(accepts(tcp_ecn));
        t.listen();
        inject!(t, "SEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "SE.", seq(0), ack(1));
        t.stack.set_sysctl("tcp_ecn", "2").unwrap();
        inject!(t, "SAEW", seq(0), mss(1_000), win(65_535));
        expect!(t, "R.", seq(1), ack(1));
        t.expect_gone();
    }
}
