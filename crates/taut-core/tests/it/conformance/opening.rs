//! How connections begin: RFC 9293 §3.5, §3.7.1, §3.9.1 and §3.9.2.3, RFC 6298 §5.7, RFC 5681 §3.1.

use std::net::{IpAddr, SocketAddr};

use taut_core::{
    ConnError, ConnOptions, ConnectError, Duration, Event, LinkCaps, ListenOptions, StackConfig, State,
};

use crate::support::trace::{Offer, Trace};

fn bound(to: &str) -> ConnOptions {
    ConnOptions { bind: Some(to.parse().unwrap()), ..ConnOptions::default() }
}

/// A stack with three addresses: one of IPv6, and two of IPv4.
fn with_three_addresses() -> Trace {
    let mut t = Trace::new();
    let addresses: Vec<IpAddr> =
        ["2001:db8::1", "192.0.2.1", "192.0.2.7"].iter().map(|ip| ip.parse().unwrap()).collect();
    let config = StackConfig::default().with(|c| c.addresses = addresses);
    t.stack = taut_core::Stack::new(std::sync::Arc::new(config), LinkCaps::plain(1_500), [42; 32]);
    t
}

#[test]
fn the_source_is_an_address_of_the_stack_or_the_one_that_was_asked_for() {
    // MUST-44: asked for none, the stack chooses one of the peer's family.
    let mut t = with_three_addresses();
    t.connect();
    assert_eq!(expect!(t, "S").src.ip(), "192.0.2.1".parse::<IpAddr>().unwrap());
    // MUST-43: the application chooses.
    let mut t = with_three_addresses();
    t.connect_with(&bound("192.0.2.7:0"));
    assert_eq!(expect!(t, "S").src.ip(), "192.0.2.7".parse::<IpAddr>().unwrap());
    // One that is not the stack's is refused.
    let to: SocketAddr = "192.0.2.2:80".parse().unwrap();
    assert_eq!(t.stack.connect(t.now, to, &bound("192.0.2.8:0")), Err(ConnectError::AddrNotAvailable));
}

#[test]
fn all_segments_of_a_connection_have_its_address() {
    // MUST-45: the address of a passive open is that to which the SYN came, also in retransmissions.
    let mut t = with_three_addresses();
    t.local = "192.0.2.7:80".parse().unwrap();
    t.stack.listen("0.0.0.0:80".parse().unwrap(), ListenOptions::default()).unwrap();
    inject!(t, "S", seq(0), mss(1_000), win(65_535));
    assert_eq!(expect!(t, "S.").src, t.local);
    assert_eq!(expect!(t, "S.", after_ms(1_000)).src, t.local);
    inject!(t, ".", seq(1), ack(1), len(10));
    assert_eq!(expect!(t, ".", ack(11)).src, t.local);
    inject!(t, ".", seq(11), ack(500), len(10));
    assert_eq!(expect!(t, ".", ack(11)).src, t.local);
}

#[test]
fn nobody_connects_to_a_group() {
    // MUST-46.
    let mut t = with_three_addresses();
    for to in ["255.255.255.255:80", "224.0.0.1:80", "239.1.2.3:80", "[ff02::1]:80", "0.0.0.0:80", "[::]:80"]
    {
        let refused = t.stack.connect(t.now, to.parse().unwrap(), &ConnOptions::default());
        assert_eq!(refused, Err(ConnectError::InvalidPeer), "{to}");
    }
    expect_nothing!(t);
}

#[test]
fn a_syn_to_a_group_is_dropped_silently() {
    // MUST-57; also by a stack that takes every address.
    for any_address in [false, true] {
        for to in ["255.255.255.255", "224.0.0.1", "239.1.2.3"] {
            let config = StackConfig::default().with(|c| c.any_address = any_address);
            let mut t = Trace::with(config);
            t.stack.listen("0.0.0.0:80".parse().unwrap(), ListenOptions::default()).unwrap();
            t.local.set_ip(to.parse().unwrap());
            inject!(t, "S", seq(0), mss(1_000));
            // Nor does any other segment to it get an answer.
            inject!(t, ".", seq(0), ack(7), len(10));
            expect_nothing!(t);
            assert_eq!(t.stack.connections(), 0);
        }
    }
}

#[test]
fn listening_changes_no_connection() {
    // MUST-41: a connection, and one that begins, go on while somebody listens at their port, and stops.
    let mut t = Trace::accepted(Offer::EASY);
    let local = t.local;
    let listener = t.listener.unwrap();
    t.stack.close_listener(t.now, listener);
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.read(10);
    t.out.clear();
    let again = t.stack.listen(local, ListenOptions::default()).unwrap();
    inject!(t, "P.", seq(11), ack(1), len(10));
    t.read(10);
    t.out.clear();
    assert_eq!(t.state(), State::Established);
    assert!(t.stack.accept(again).is_none());
}

#[test]
fn a_port_can_be_listened_at_while_a_connection_from_it_begins() {
    // MUST-42.
    let mut t = Trace::new();
    t.connect_with(&bound("192.0.2.1:5000"));
    expect!(t, "S", seq(0));
    assert_eq!(t.state(), State::SynSent);
    let listener = t.stack.listen("192.0.2.1:5000".parse().unwrap(), ListenOptions::default()).unwrap();
    // The peer's answer is for the connection, another peer's SYN for the listener.
    t.syn_ack(Offer::EASY);
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.state(), State::Established);
    inject!(t, "S", seq(0), port(7), mss(1_000));
    let answer = t.out.pop_front().unwrap();
    assert!(answer.has("S.") && answer.dst.port() == 7);
    assert!(t.stack.accept(listener).is_none());
}

#[test]
fn a_syn_can_be_repeated_for_three_minutes() {
    // MUST-23: 4 s, and with seven retransmissions more 2^7 - 1 s and the longest wait of 120 s; with Linux's
    // six 2^7 - 1 s.
    for (retries, seconds) in [(7, 251), (6, 131)] {
        let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.syn_retries = retries));
        let id = t.connect();
        t.wait_ms(seconds * 1_000 - 1);
        assert_eq!(t.event(), None);
        t.wait_ms(1);
        assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
        assert_eq!(t.out.len(), 5 + usize::from(retries));
    }
}

/// The handshake of which the first `lost` SYNs, or SYN-ACKs, were lost.
fn after_lost_syns(passive: bool, lost: u32, offer: Offer) -> Trace {
    let mut t = Trace::new();
    if passive {
        t.listen();
        t.syn(offer);
    } else {
        t.connect();
    }
    t.poll();
    for s in 0..lost {
        t.wait_ms(1_000 << s);
    }
    t.out.clear();
    t.wait_ms(50);
    if passive {
        let last_tsval = t.last_tsval;
        inject!(t, ".", seq(1), ack(1), win(65_535));
        assert!(!offer.ts || last_tsval != 0);
        t.id = t.stack.accept(t.listener.unwrap()).map(|(id, _)| id);
    } else {
        t.syn_ack(offer);
    }
    t.out.clear();
    t
}

#[test]
fn rto_18_after_a_timeout_of_the_handshake_data_waits_three_seconds() {
    // RFC 6298 §5.7; without a retransmission the handshake measures 50 ms, and the timeout is 50 + 200.
    for passive in [false, true] {
        for (lost, rto) in [(0, 250), (1, 3_000), (2, 3_000)] {
            let mut t = after_lost_syns(passive, lost, Offer::EASY);
            assert_eq!(t.info().rto, Duration::from_millis(rto), "passive {passive}, lost {lost}");
        }
        // A timestamp tells which of the SYNs was answered: the last one, 50 ms ago.
        let mut t = after_lost_syns(passive, 1, Offer::ALL);
        assert_eq!(t.info().rtt, Some(Duration::from_millis(50)));
        assert_eq!(t.info().rto, Duration::from_millis(250));
    }
    // An echo from before the handshake measures nothing.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    let syn = expect!(t, "S", after_ms(1_000));
    let sent = syn.options.timestamps.unwrap().value;
    t.wait_ms(50);
    t.ts = true;
    inject!(t, "S.", seq(0), ack(1), mss(1_000), win(65_535), ts(77, sent.wrapping_sub(1_002)));
    assert_eq!((t.info().rtt, t.info().rto), (None, Duration::from_secs(3)));
    // The first measurement ends it.
    let mut t = after_lost_syns(false, 1, Offer::EASY);
    t.write(100);
    t.wait_ms(80);
    inject!(t, ".", seq(1), ack(101));
    assert_eq!(t.info().rto, Duration::from_millis(280));
}

#[test]
fn reno_10_after_lost_syns_the_first_window_is_one_segment() {
    // RFC 5681 §3.1, and RFC 6928 §2: not after a single retransmission, which may have been needless.
    for passive in [false, true] {
        for (lost, window) in [(0, 10), (1, 10), (2, 1), (3, 1)] {
            let mut t = after_lost_syns(passive, lost, Offer::EASY);
            t.write(20_000);
            t.poll();
            assert_eq!(t.out.len(), window, "passive {passive}, lost {lost}");
            assert_eq!(t.info().snd_cwnd, window as u32);
        }
    }
    // An echo of the first SYN, 3.05 s ago, shows that it was late; of the second, that the first was lost.
    for (sent_after_ms, window) in [(0, 10), (1_000, 1)] {
        let mut t = Trace::new();
        t.connect();
        let first = expect!(t, "S").options.timestamps.unwrap().value;
        t.wait_ms(3_050);
        t.out.clear();
        t.ts = true;
        let echo = first.wrapping_add(sent_after_ms);
        inject!(t, "S.", seq(0), ack(1), mss(1_000), win(65_535), ts(77, echo));
        assert_eq!(t.info().snd_cwnd, window, "echo of the SYN after {sent_after_ms} ms");
    }
}
