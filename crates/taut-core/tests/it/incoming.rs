//! Flows that an application decides about: the statements IN-3 to IN-20, 39 and 40 of docs/spec/ip.md. Those
//! about prefixes and sizes are tested in `src/stack/incoming`.

use crate::support;

use std::net::{IpAddr, SocketAddr};

use support::trace::{Offer, Seg, Trace, packet};
use taut_core::{
    ConnError, ConnId, Event, FlowError, FlowFilter, FlowId, FlowInfo, FlowState, IncomingOptions, IpPrefix,
    ListenError, ListenerId, Refusal, StackConfig, State, SynCookies,
};
use taut_wire::{Ecn, Flags, Icmp, IpHeader, Quoted, TcpHeader, TcpOptions, Unreachable, icmp, protocol};

/// Not an address of the stack.
const ELSEWHERE: &str = "203.0.113.7:443";

/// A stack with a filter for everything; the peer's packets go elsewhere.
fn gateway() -> (Trace, ListenerId) {
    with(StackConfig::default(), IncomingOptions::default())
}

fn with(config: StackConfig, options: IncomingOptions) -> (Trace, ListenerId) {
    let mut t = Trace::with(config);
    t.local = ELSEWHERE.parse().unwrap();
    let filter = t.stack.incoming(FlowFilter::any(), options).unwrap();
    (t, filter)
}

/// The flow of a SYN that has arrived.
#[track_caller]
fn next_flow(t: &mut Trace, filter: ListenerId) -> FlowInfo {
    assert_eq!(t.event(), Some(Event::Incoming(filter)));
    let flow = t.stack.next_flow(filter).expect("a flow waits");
    assert_eq!(t.stack.next_flow(filter), None);
    flow
}

#[track_caller]
fn asked(offer: Offer) -> (Trace, ListenerId, FlowInfo) {
    let (mut t, filter) = gateway();
    t.syn(offer);
    let flow = next_flow(&mut t, filter);
    (t, filter, flow)
}

#[track_caller]
fn accept(t: &mut Trace, id: FlowId) -> ConnId {
    let conn = t.stack.accept_flow(t.now, id, None).unwrap();
    t.id = Some(conn);
    t.poll();
    conn
}

/// A SYN from any address and port, with any number.
fn syn_from(t: &mut Trace, peer: SocketAddr, seq: u32) {
    let header = TcpHeader {
        src_port: peer.port(),
        dst_port: t.local.port(),
        seq,
        flags: Flags::SYN,
        window: 65_535,
        options: TcpOptions { mss: Some(1_460), ..TcpOptions::default() },
        ..TcpHeader::default()
    };
    let bytes = packet(peer.ip(), t.local.ip(), &header, &[]);
    t.inject_bytes(&bytes, 0);
}

#[test]
fn in_03_a_flow_is_seen_and_nothing_is_sent_before_the_decision() {
    let (mut t, filter) = gateway();
    inject!(t, "SEW", seq(0), win(5_000), mss(1_400), wscale(9), sackok(), ts(77, 0));
    let flow = next_flow(&mut t, filter);
    assert_eq!((flow.local, flow.peer, flow.filter), (t.local, t.peer, filter));
    let syn = flow.syn.unwrap();
    assert_eq!((syn.seq, syn.window, syn.mss, syn.window_scale), (t.irs, 5_000, Some(1_400), Some(9)));
    assert_eq!((syn.sack, syn.timestamp, syn.ecn, syn.count), (true, Some(77), true, 1));
    expect_nothing!(t, for_ms 100_000);
    assert_eq!(t.stack.flow(flow.id), Some(flow));
    assert_eq!((t.stack.connections(), t.stack.pending_flows()), (0, 1));
}

#[test]
fn in_04_an_accepted_flow_is_answered_on_the_terms_of_its_syn() {
    for offer in [Offer::ALL, Offer::EASY] {
        let (mut t, _, flow) = asked(offer);
        t.wait_ms(3_000);
        accept(&mut t, flow.id);
        assert_eq!(t.state(), State::SynReceived);
        let answer = expect!(t, "S.", seq(0), ack(1), mss(1_460));
        assert_eq!((answer.src, answer.dst), (flow.local, flow.peer));
        assert_eq!(answer.options.window_scale.is_some(), offer.wscale.is_some());
        assert_eq!(answer.options.timestamps.is_some(), offer.ts);
        inject!(t, ".", seq(1), ack(1));
        assert_eq!(t.event(), Some(Event::Connected(t.id.unwrap())));
        assert_eq!(t.info().snd_mss, if offer.ts { 1_448 } else { 1_000 });
        // Data in both directions, and the end.
        inject!(t, "P.", seq(1), ack(1), len(100));
        t.read(100);
        expect!(t, ".", ack(101));
        t.write(200);
        expect!(t, "P.", seq(1), len(200));
        inject!(t, "F.", seq(101), ack(201));
        expect_nothing!(t);
        t.close();
        expect!(t, "F.", seq(201));
        inject!(t, ".", seq(102), ack(202));
        t.expect_gone();
        assert_eq!((t.stack.counters().flows_accepted, t.stack.counters().passive_opens), (1, 1));
    }
}

#[test]
fn in_05_a_refused_flow_gets_a_reset_or_an_icmp_error() {
    let (mut t, _, flow) = asked(Offer::ALL);
    assert!(t.stack.refuse_flow(t.now, flow.id, Refusal::Reset));
    // RFC 9293 §3.10.7.1: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>
    let got = expect!(t, "R.", ack(1));
    assert_eq!((got.wire.seq, got.src), (0, flow.local));
    assert!(!t.stack.refuse_flow(t.now, flow.id, Refusal::Reset));
    assert_eq!(t.stack.pending_flows(), 0);

    // RFC 792, RFC 1812 §5.2.7.1 (13), RFC 4443 §3.1: type and code. The error about a port comes from the
    // port's host.
    let cases = [
        (Refusal::PortUnreachable, (3, 3), (1, 4), Unreachable::Port),
        (Refusal::HostUnreachable, (3, 1), (1, 3), Unreachable::Host),
        (Refusal::NetworkUnreachable, (3, 0), (1, 0), Unreachable::Network),
        (Refusal::Prohibited, (3, 13), (1, 1), Unreachable::Prohibited),
    ];
    for (how, v4, v6, code) in cases {
        for is_v4 in [true, false] {
            let mut t = if is_v4 { Trace::new() } else { Trace::v6() };
            let own = t.local.ip();
            t.local = if is_v4 { ELSEWHERE } else { "[2001:db8:7::1]:443" }.parse().unwrap();
            t.stack.set_sysctl("ip_default_ttl", "7").unwrap();
            let filter = t.stack.incoming(FlowFilter::any(), IncomingOptions::default()).unwrap();
            t.syn(Offer::ALL);
            let flow = next_flow(&mut t, filter);
            assert!(t.stack.refuse_flow(t.now, flow.id, how));
            expect_nothing!(t);
            let [message] = &t.icmp[..] else { panic!("{} messages", t.icmp.len()) };
            let ip = IpHeader::parse(message).unwrap();
            assert_eq!(ip.src, if how == Refusal::PortUnreachable { flow.local.ip() } else { own });
            assert_eq!((ip.dst, ip.payload_len), (t.peer.ip(), message.len() - ip.header_len));
            assert_eq!(ip.hop_limit, 7);
            let body = &message[ip.header_len..];
            assert_eq!((body[0], body[1]), if is_v4 { v4 } else { v6 }, "{how:?}");
            let parsed = match (ip.src, ip.dst) {
                (IpAddr::V6(src), IpAddr::V6(dst)) => Icmp::parse_v6(src, dst, body),
                _ => Icmp::parse_v4(body),
            };
            let Ok(Icmp::DestinationUnreachable { code: got, quoted }) = parsed else { panic!("{parsed:?}") };
            assert_eq!(got, code);
            // What a kernel looks for: the packet's addresses, ports and number.
            let quoted = Quoted::parse(quoted).unwrap();
            assert_eq!((quoted.protocol, quoted.seq), (protocol::TCP, t.irs));
            assert_eq!((quoted.src, quoted.dst), (t.peer, flow.local));
        }
    }
}

#[test]
fn in_06_a_dropped_flow_is_silent_until_its_time_is_over() {
    let (mut t, filter, flow) = asked(Offer::EASY);
    assert!(t.stack.drop_flow(t.now, flow.id));
    assert_eq!(t.stack.flows().next().map(|flow| flow.state), Some(FlowState::Dropped));
    // The times at which a kernel repeats a SYN; it gives up after 127 s, or after 131 s since Linux 6.5.
    for seconds in [1, 2, 4, 8, 16, 32] {
        t.wait_s(seconds);
        t.syn(Offer::EASY);
    }
    t.wait_s(66);
    inject!(t, ".", seq(1), ack(1));
    inject!(t, "R", seq(1));
    expect_nothing!(t);
    assert_eq!((t.event(), t.stack.next_flow(filter)), (None, None));
    assert_eq!(t.stack.accept_flow(t.now, flow.id, None), Err(FlowError::Gone));
    assert_eq!(t.stack.pending_flows(), 1);
    t.wait_s(2);
    assert_eq!(t.stack.pending_flows(), 0);
    // Another attempt is another flow, at once or later.
    t.syn(Offer::EASY);
    let again = t.stack.next_flow(filter).unwrap();
    assert!(t.stack.drop_flow(t.now, again.id));
    inject!(t, "S", seq(5_000), ack(0), mss(1_000));
    let other = t.stack.next_flow(filter).expect("another number");
    assert_eq!((other.syn.unwrap().seq, other.syn.unwrap().count), (t.irs.wrapping_add(5_000), 1));
}

#[test]
fn in_07_a_syn_that_is_repeated_ten_times_is_one_flow() {
    let (mut t, filter, flow) = asked(Offer::EASY);
    for n in 1..=10 {
        t.wait_s(10);
        // RFC 3168 §6.1.1.1: a client may leave ECN out when it repeats a SYN; the latest one counts.
        inject!(t, "S", seq(0), ack(0), win(1_000 + n), mss(1_000), sackok());
    }
    expect_nothing!(t);
    assert_eq!((t.event(), t.stack.next_flow(filter), t.stack.pending_flows()), (None, None, 1));
    assert_eq!(t.stack.flow(flow.id).unwrap().syn.unwrap().count, 11);
    assert_eq!(t.stack.counters().flows_in, 1);
    accept(&mut t, flow.id);
    expect!(t, "S.", seq(0), ack(1));
    inject!(t, ".", seq(1), ack(1), win(1_010));
    assert_eq!(t.event(), Some(Event::Connected(t.id.unwrap())));
}

#[test]
fn in_08_a_syn_with_another_number_takes_the_place_of_the_first() {
    let (mut t, filter, flow) = asked(Offer::ALL);
    t.ts = false;
    inject!(t, "S", seq(9_000), ack(0), win(5_000), mss(900));
    assert_eq!((t.event(), t.stack.next_flow(filter), t.stack.pending_flows()), (None, None, 1));
    accept(&mut t, flow.id);
    let answer = expect!(t, "S.", seq(0), ack(9_001));
    assert_eq!((answer.options.timestamps, answer.options.window_scale), (None, None));
    inject!(t, ".", seq(9_001), ack(1), win(4_000));
    assert_eq!((t.info().state, t.info().snd_mss, t.info().snd_wnd), (State::Established, 900, 4_000));
}

#[test]
fn in_09_a_reset_in_sequence_withdraws_a_flow_and_an_ack_is_reset() {
    let (mut t, _, flow) = asked(Offer::EASY);
    inject!(t, ".", seq(1), ack(500));
    expect!(t, "R", seq(500));
    inject!(t, "R", seq(0));
    inject!(t, "R", seq(2));
    inject!(t, "P", seq(1), len(10));
    inject!(t, "SF", seq(0), ack(0));
    expect_nothing!(t);
    assert_eq!(t.stack.flow(flow.id).unwrap().syn.unwrap().count, 1);
    inject!(t, "R", seq(1));
    expect_nothing!(t);
    assert_eq!(t.stack.accept_flow(t.now, flow.id, None), Err(FlowError::Gone));
    assert_eq!((t.stack.pending_flows(), t.stack.counters().flows_withdrawn), (0, 1));
}

#[test]
fn in_39_a_client_is_asked_whether_it_is_still_there() {
    for local in [ELSEWHERE, "[2001:db8:7::1]:443"] {
        let mut t = if local == ELSEWHERE { Trace::new() } else { Trace::v6() };
        t.local = local.parse().unwrap();
        let filter = t.stack.incoming(FlowFilter::any(), IncomingOptions::default()).unwrap();
        t.syn(Offer::ALL);
        let flow = next_flow(&mut t, filter);
        // RFC 9293 §3.10.7.3: a connection in SYN-SENT drops what has no ACK, no SYN and no RST. No data:
        // nothing to lose.
        assert!(t.stack.probe_flow(flow.id));
        let probe = expect!(t, "P", len(0));
        assert_eq!((probe.src, probe.dst, probe.wire.ack), (flow.local, flow.peer, 0));
        assert_eq!(t.stack.flow(flow.id), Some(flow));
        // §3.10.7.1: no connection answers with <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. With another
        // number, or without ACK, it is not the answer.
        let answer = |flags, ack| TcpHeader {
            src_port: flow.peer.port(),
            dst_port: flow.local.port(),
            flags,
            ack,
            ..TcpHeader::default()
        };
        let seq = probe.wire.seq;
        let reset = Flags::RST | Flags::ACK;
        for wrong in [answer(reset, seq + 1), answer(reset, seq.wrapping_sub(1)), answer(Flags::RST, seq)] {
            t.inject_bytes(&packet(flow.peer.ip(), flow.local.ip(), &wrong, &[]), 0);
        }
        assert!(t.stack.flow(flow.id).is_some());
        assert_eq!(t.event(), None);
        t.inject_bytes(&packet(flow.peer.ip(), flow.local.ip(), &answer(reset, seq), &[]), 0);
        assert_eq!(t.event(), Some(Event::FlowGone(flow.id)));
        assert_eq!((t.stack.pending_flows(), t.stack.counters().flows_withdrawn), (0, 1));
        assert!(!t.stack.probe_flow(flow.id));
        expect_nothing!(t);
        // The same client again is another flow, which can be accepted after a question.
        t.syn(Offer::ALL);
        let again = next_flow(&mut t, filter);
        assert!(again.id != flow.id && t.stack.probe_flow(again.id));
        expect!(t, "P", len(0));
        accept(&mut t, again.id);
        expect!(t, "S.", seq(0), ack(1));
        inject!(t, ".", seq(1), ack(1));
        assert_eq!(t.event(), Some(Event::Connected(t.id.unwrap())));
    }
}

#[test]
fn in_40_the_end_of_a_flow_is_told_once_if_the_application_has_seen_it() {
    let (mut t, filter, flow) = asked(Offer::EASY);
    inject!(t, "R", seq(1));
    assert_eq!((t.event(), t.event()), (Some(Event::FlowGone(flow.id)), None));
    // Time.
    t.syn(Offer::EASY);
    let flow = next_flow(&mut t, filter);
    t.wait_s(130);
    assert_eq!((t.event(), t.event()), (Some(Event::FlowGone(flow.id)), None));
    // Decided: nothing is told.
    for how in 0..3 {
        t.syn(Offer::EASY);
        let flow = next_flow(&mut t, filter);
        match how {
            0 => _ = t.stack.refuse_flow(t.now, flow.id, Refusal::Reset),
            1 => t.stack.drop_flow(t.now, flow.id).then_some(()).unwrap(),
            _ => t.stack.close_listener(t.now, filter),
        }
        t.poll();
        inject!(t, "R", seq(1));
        t.wait_s(131);
        assert_eq!(t.event(), None, "{how}");
        t.out.clear();
    }
    // Not seen: there is nothing to tell, however many come and go.
    let (mut t, filter) = gateway();
    for _ in 0..100 {
        t.syn(Offer::EASY);
        inject!(t, "R", seq(1));
    }
    assert_eq!((t.event(), t.event()), (Some(Event::Incoming(filter)), None));
    assert_eq!(t.stack.counters().flows_withdrawn, 100);
}

#[test]
fn in_10_a_refusal_may_wait_for_30_s_and_a_flow_ends_after_130() {
    let (mut t, _, flow) = asked(Offer::ALL);
    // The client repeats its SYN meanwhile.
    for seconds in [1, 2, 4, 8] {
        t.wait_s(seconds);
        t.syn(Offer::ALL);
    }
    t.wait_s(15);
    expect_nothing!(t);
    assert!(t.stack.refuse_flow(t.now, flow.id, Refusal::Reset));
    expect!(t, "R.", ack(1));
    expect_nothing!(t);

    let (mut t, filter, flow) = asked(Offer::ALL);
    t.wait_ms(129_999);
    assert!(t.stack.flow(flow.id).is_some());
    t.wait_ms(1);
    assert_eq!((t.stack.flow(flow.id), t.stack.pending_flows()), (None, 0));
    assert!(!t.stack.refuse_flow(t.now, flow.id, Refusal::Reset) && !t.stack.drop_flow(t.now, flow.id));
    assert_eq!(t.stack.counters().flows_expired, 1);
    expect_nothing!(t);
    // One that nobody has looked at ends as well.
    t.syn(Offer::ALL);
    t.wait_s(130);
    assert_eq!((t.stack.pending_flows(), t.stack.next_flow(filter)), (0, None));
}

#[test]
fn in_11_one_source_keeps_nobody_out() {
    let (mut t, filter) = gateway();
    let greedy: IpAddr = "198.51.100.9".parse().unwrap();
    for port in 1..=50_000 {
        syn_from(&mut t, (greedy, port).into(), u32::from(port));
    }
    assert_eq!((t.stack.pending_flows(), t.stack.counters().listen_capped), (8_192, 50_000 - 8_192));
    t.syn(Offer::EASY);
    let mut honest = None;
    let mut seen = 0;
    while let Some(flow) = t.stack.next_flow(filter) {
        seen += 1;
        honest = (flow.peer == t.peer).then_some(flow.id).or(honest);
    }
    assert_eq!(seen, 8_193);
    accept(&mut t, honest.expect("the honest client's flow"));
    expect!(t, "S.", seq(0), ack(1));
    inject!(t, ".", seq(1), ack(1));
    assert_eq!(t.info().state, State::Established);
    // A source of IPv6 is 64 bits of an address.
    let mut t = Trace::v6();
    t.local = "[2001:db8:7::1]:443".parse().unwrap();
    let options = IncomingOptions { max_pending_per_peer: 10, ..IncomingOptions::default() };
    let _ = t.stack.incoming(FlowFilter::any(), options).unwrap();
    for n in 1..=20_u16 {
        syn_from(&mut t, (IpAddr::from([0x2001, 0xdb8, 1, 2, n, n, n, n]), 9).into(), 0);
    }
    assert_eq!(t.stack.pending_flows(), 10);
    // As soon as one is decided, there is room.
    let first = t.stack.flows().next().unwrap().id;
    assert!(t.stack.refuse_flow(t.now, first, Refusal::Reset));
    syn_from(&mut t, (IpAddr::from([0x2001, 0xdb8, 1, 2, 9, 9, 9, 8]), 9).into(), 0);
    assert_eq!(t.stack.pending_flows(), 10);
}

/// Fills a filter with `count` flows, each from another source.
fn fill(t: &mut Trace, count: u32) {
    for n in 0..count {
        syn_from(t, (IpAddr::from((0xc633_6400 + n).to_be_bytes()), 9).into(), n);
    }
}

#[test]
fn in_12_flows_are_bounded_and_cookies_are_for_those_beyond() {
    let options = |cookies_when_full| IncomingOptions {
        max_pending: 100,
        cookies_when_full,
        ..IncomingOptions::default()
    };
    // No flow is answered by a cookie before the decision, whatever the setting.
    let always = StackConfig::default().with(|c| c.tcp.syncookies = SynCookies::Always);
    let (mut t, _) = with(always, options(true));
    fill(&mut t, 100);
    expect_nothing!(t);
    assert_eq!((t.stack.pending_flows(), t.stack.counters().syncookies_sent), (100, 0));

    // Beyond the limit: dropped.
    let (mut t, _) = with(StackConfig::default(), options(false));
    fill(&mut t, 150);
    expect_nothing!(t);
    assert_eq!((t.stack.pending_flows(), t.stack.counters().flows_overflows), (100, 50));

    // Or a cookie: the handshake is complete before the application hears of it.
    let (mut t, filter) = with(StackConfig::default(), options(true));
    fill(&mut t, 100);
    assert_eq!(t.event(), Some(Event::Incoming(filter)));
    while t.stack.next_flow(filter).is_some() {}
    t.syn(Offer::EASY);
    expect!(t, "S.", seq(0), ack(1));
    assert_eq!((t.stack.pending_flows(), t.stack.connections()), (100, 0));
    inject!(t, ".", seq(1), ack(1));
    assert_eq!(t.event(), Some(Event::Incoming(filter)));
    assert_eq!(t.stack.next_flow(filter), None);
    let (id, peer) = t.stack.accept(filter).expect("it is connected");
    assert_eq!((peer, t.stack.conn(id).unwrap().local_addr()), (t.peer, t.local));
    // But not where cookies are off.
    let off = StackConfig::default().with(|c| c.tcp.syncookies = SynCookies::Off);
    let (mut t, _) = with(off, options(true));
    fill(&mut t, 101);
    expect_nothing!(t);
    assert_eq!(t.stack.counters().flows_overflows, 1);
}

#[test]
fn in_13_a_listener_wins_over_a_filter_and_the_first_filter_over_others() {
    let mut t = Trace::new();
    let own = t.local;
    let lab = FlowFilter::any().prefix(IpPrefix::new([203, 0, 113, 0].into(), 24).unwrap()).ports(400..=500);
    let first = t.stack.incoming(lab, IncomingOptions::default()).unwrap();
    let second = t.stack.incoming(FlowFilter::any(), IncomingOptions::default()).unwrap();
    let exact = t.listen();
    let wild = t.stack.listen("0.0.0.0:443".parse().unwrap(), Default::default()).unwrap();
    let mut ask = |at: SocketAddr, port| {
        t.local = at;
        inject!(t, "S", seq(0), ack(0), port(port));
        t.out.clear();
        t.stack.flows().find(|flow| flow.peer.port() == port).map(|flow| flow.filter)
    };
    let elsewhere: SocketAddr = ELSEWHERE.parse().unwrap();
    assert_eq!(ask(own, 1), None, "an exact listener");
    assert_eq!(ask((own.ip(), 443).into(), 2), None, "a listener at every address of the stack");
    assert_eq!(ask(elsewhere, 3), Some(first), "which an address elsewhere is not");
    assert_eq!(
        ask((elsewhere.ip(), 399).into(), 4),
        Some(second),
        "a port that the first filter does not have"
    );
    assert_eq!(ask((own.ip(), 81).into(), 5), Some(second), "our own address, without a listener");
    let half_open = |t: &Trace, id| t.stack.listeners().find(|info| info.id == id).unwrap().half_open;
    assert_eq!((half_open(&t, exact), half_open(&t, wild), half_open(&t, first)), (1, 1, 1));
    for _ in 2..16 {
        t.stack.incoming(FlowFilter::any(), IncomingOptions::default()).unwrap();
    }
    let last = t.stack.incoming(FlowFilter::any(), IncomingOptions::default());
    assert_eq!(last, Err(ListenError::TooManyFilters));
    t.stack.close_listener(t.now, second);
    assert!(t.stack.incoming(FlowFilter::any(), IncomingOptions::default()).is_ok());
}

#[test]
fn in_14_martians_begin_no_flow() {
    let (mut t, _) = gateway();
    let own = "192.0.2.1";
    for to in ["127.0.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.255", "255.255.255.255"] {
        t.local.set_ip(to.parse().unwrap());
        syn_from(&mut t, "192.0.2.2:9".parse().unwrap(), 0);
        assert_eq!(t.stack.pending_flows(), 0, "to {to}");
    }
    t.local = ELSEWHERE.parse().unwrap();
    for from in ["127.0.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", own, "203.0.113.7"] {
        syn_from(&mut t, SocketAddr::new(from.parse().unwrap(), 9), 0);
        assert_eq!(t.stack.pending_flows(), 0, "from {from}");
    }
    syn_from(&mut t, "192.0.2.2:0".parse().unwrap(), 0);
    expect_nothing!(t);
    assert_eq!(t.stack.pending_flows(), 0);
    syn_from(&mut t, "192.0.2.2:9".parse().unwrap(), 0);
    assert_eq!(t.stack.pending_flows(), 1, "an honest one");

    let mut t = Trace::v6();
    let _ = t.stack.incoming(FlowFilter::any(), IncomingOptions::default()).unwrap();
    for to in ["::", "::1", "ff02::1", "::ffff:203.0.113.7"] {
        t.local.set_ip(to.parse().unwrap());
        let header = TcpHeader { src_port: 9, dst_port: 443, flags: Flags::SYN, ..TcpHeader::default() };
        let IpAddr::V6(to) = t.local.ip() else { panic!() };
        t.inject_bytes(&packet(t.peer.ip(), to.into(), &header, &[]), 0);
        assert_eq!(t.stack.pending_flows(), 0, "to {to}");
    }
    expect_nothing!(t);
}

/// An echo request to an address.
fn ping(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut body = vec![0; 16];
    icmp::emit_echo_reply(&mut body, from, to, 1, 2, b"12345678");
    // The reply's type is 0; the request's is 8, and the checksum is less by 0x0800.
    body[0] = 8;
    let sum = u16::from_be_bytes([body[2], body[3]]);
    let (sum, borrow) = sum.overflowing_sub(0x0800);
    body[2..4].copy_from_slice(&(sum - u16::from(borrow)).to_be_bytes());
    let ip = IpHeader {
        src: from,
        dst: to,
        protocol: protocol::ICMP,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len: 16,
    };
    let mut bytes = vec![0; 20];
    ip.emit(&mut bytes, 0);
    bytes.extend(body);
    bytes
}

#[test]
fn in_15_a_filter_lends_its_addresses_to_the_stack_and_connections_outlive_it() {
    let (mut t, filter, flow) = asked(Offer::EASY);
    accept(&mut t, flow.id);
    expect!(t, "S.", seq(0), ack(1));
    inject!(t, ".", seq(1), ack(1));
    // A segment without a connection is reset, as at an address of the stack.
    inject!(t, ".", seq(1), ack(77), port(5));
    expect!(t, "R", seq(77));
    // Pings are answered for the stack's own addresses only.
    t.inject_bytes(&ping(t.peer.ip(), t.local.ip()), 0);
    assert!(t.icmp.is_empty());
    t.inject_bytes(&ping(t.peer.ip(), "192.0.2.1".parse().unwrap()), 0);
    assert_eq!(t.icmp.len(), 1);
    inject!(t, "S", seq(0), ack(0), port(6));
    let pending = t.stack.next_flow(filter).unwrap();
    inject!(t, "S", seq(0), ack(0), port(7));
    inject!(t, "S", seq(0), ack(0), port(8));
    let dropped = t.stack.next_flow(filter).unwrap();
    assert!(t.stack.drop_flow(t.now, dropped.id));
    t.stack.close_listener(t.now, filter);
    assert_eq!(t.stack.pending_flows(), 0);
    assert_eq!(t.stack.accept_flow(t.now, pending.id, None), Err(FlowError::Gone));
    // Nobody is there any more, except for the connection.
    inject!(t, "S", seq(0), ack(0), port(6));
    inject!(t, ".", seq(1), ack(77), port(5));
    expect_nothing!(t);
    inject!(t, "P.", seq(1), ack(1), len(50));
    t.read(50);
    expect!(t, ".", ack(51));
    // An ICMP error about it is heard, too: RFC 5461 §4.1, a soft error.
    t.write(10);
    let sent = expect!(t, "P.", seq(1), len(10));
    t.inject_icmp(Unreachable::Host, &sent.bytes);
    assert_eq!(t.conn().as_ref().soft_error(), Some(ConnError::HostUnreachable));
    t.close();
    expect!(t, "F.", seq(11));
    inject!(t, "R", seq(51), ack(12));
    t.expect_gone();
}

#[test]
fn in_16_the_syn_ack_of_an_accepted_flow_is_repeated_and_given_up() {
    let (mut t, _, flow) = asked(Offer::EASY);
    let id = accept(&mut t, flow.id);
    expect!(t, "S.", seq(0), ack(1));
    for ms in [1_000, 2_000, 4_000, 8_000, 16_000] {
        expect!(t, "S.", seq(0), ack(1), after_ms(ms));
    }
    t.wait_ms(32_000);
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
    t.close();
    t.expect_gone();

    // A repeated SYN is answered at once; a reset, and an ICMP error, end it.
    for reset in [true, false] {
        let (mut t, _, flow) = asked(Offer::EASY);
        let id = accept(&mut t, flow.id);
        let answer = expect!(t, "S.", seq(0), ack(1));
        t.syn(Offer::EASY);
        expect!(t, "S.", seq(0), ack(1));
        if reset {
            inject!(t, "R", seq(1));
        } else {
            t.inject_icmp(Unreachable::Host, &answer.bytes);
        }
        let error = if reset { ConnError::Reset } else { ConnError::HostUnreachable };
        assert_eq!(t.event(), Some(Event::Failed(id, error)));
        t.close();
        t.expect_gone();
    }
}

#[test]
fn in_17_an_accepted_flow_may_be_closed_or_aborted_before_the_handshake_ends() {
    let (mut t, filter, flow) = asked(Offer::EASY);
    accept(&mut t, flow.id);
    t.close();
    expect!(t, "S.", seq(0), ack(1));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(1));
    expect!(t, "F.", seq(1));
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", ack(2));
    assert_eq!(t.stack.connections(), 0);
    // The filter counts nothing any more.
    let info = t.stack.listeners().find(|info| info.id == filter).unwrap();
    assert_eq!((info.ready, info.half_open), (0, 0));

    let (mut t, filter, flow) = asked(Offer::EASY);
    accept(&mut t, flow.id);
    expect!(t, "S.", seq(0), ack(1));
    let now = t.now;
    t.conn().abort(now);
    expect!(t, "R.", seq(1), ack(1));
    t.expect_gone();
    assert_eq!(t.stack.listeners().find(|info| info.id == filter).unwrap().half_open, 0);
}

#[test]
fn in_18_dropped_flows_are_bounded_and_the_oldest_gives_way() {
    let options = IncomingOptions { max_pending: 100, ..IncomingOptions::default() };
    let (mut t, filter) = with(StackConfig::default(), options);
    for round in 0..3 {
        for n in 0..100 {
            syn_from(&mut t, (IpAddr::from((0xc633_6400_u32 + round * 100 + n).to_be_bytes()), 9).into(), n);
        }
        let mut dropped = 0;
        while let Some(flow) = t.stack.next_flow(filter) {
            dropped += u32::from(t.stack.drop_flow(t.now, flow.id));
        }
        assert_eq!((dropped, t.stack.pending_flows()), (100, 100), "round {round}");
    }
    let oldest = t.stack.flows().map(|flow| flow.peer.ip()).min().unwrap();
    assert_eq!(oldest, IpAddr::from((0xc633_6400_u32 + 200).to_be_bytes()));
    // And a filter whose sources all reset their flows remembers none, though nobody looks at them.
    let (mut t, _) = gateway();
    for n in 0..10_000 {
        inject!(t, "S", seq(n), ack(0));
        inject!(t, "R", seq(n + 1));
    }
    assert_eq!((t.stack.pending_flows(), t.stack.counters().flows_withdrawn), (0, 10_000));
}

#[test]
fn in_19_a_flow_may_follow_a_connection_in_time_wait() {
    let (mut t, filter, flow) = asked(Offer::ALL);
    accept(&mut t, flow.id);
    expect!(t, "S.", seq(0), ack(1));
    inject!(t, ".", seq(1), ack(1));
    let _ = t.event();
    t.close();
    expect!(t, "F.", seq(1));
    inject!(t, "F.", seq(1), ack(2));
    let last = expect!(t, ".", seq(2), ack(2));
    assert_eq!(t.stack.time_waits(), 1);
    // RFC 6191 §2: a later timestamp; our number is beyond the old connection's.
    t.wait_ms(1_500);
    let (clock, echo) = (t.peer_clock(), t.last_tsval);
    t.inject(&Seg::new("S").seq(70_000).mss(1_460).ts(clock, echo));
    let again = t.stack.next_flow(filter).expect("a new flow");
    assert_eq!((again.peer, t.stack.time_waits()), (flow.peer, 0));
    expect_nothing!(t);
    accept(&mut t, again.id);
    let answer = expect!(t, "S.", ack(70_001));
    assert!(answer.wire.seq.wrapping_sub(last.wire.seq) as i32 > 0);
}

#[test]
fn in_20_data_in_a_syn_waits_for_the_handshake() {
    let (mut t, filter) = gateway();
    t.inject(&Seg::new("S").seq(0).mss(1_000).len(100));
    let flow = next_flow(&mut t, filter);
    accept(&mut t, flow.id);
    expect!(t, "S.", seq(0), ack(1));
    inject!(t, ".", seq(1), ack(1));
    inject!(t, "P.", seq(1), ack(1), len(100));
    t.read(100);
    assert_eq!(t.stack.counters().passive_opens, 1);
}
