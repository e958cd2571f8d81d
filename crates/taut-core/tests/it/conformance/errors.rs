//! Resets and messages of routers: RFC 9293 §3.5.2, §3.5.3 and §3.9.2.2.

use taut_core::{ConnError, Event, StackConfig, State};
use taut_wire::{Ecn, IpHeader, Sum, protocol};

use crate::support::trace::{Offer, Trace};

#[test]
fn a_reset_may_have_data() {
    // SHLD-2: the data explains the reset to people.
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "R.", seq(1), ack(1), len(20));
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::Reset));
    expect_nothing!(t);
    // Also in SYN-SENT.
    let mut t = Trace::new();
    let id = t.connect();
    expect!(t, "S");
    inject!(t, "R.", seq(0), ack(1), len(20));
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::Refused)));
}

#[test]
fn what_a_router_says_is_reported_and_is_the_reason_when_nothing_else_comes() {
    // SHLD-25: codes 0, 1 and 5.
    let about = |code: u8| {
        let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.retries2 = 3));
        t.accept(Offer::EASY);
        t.write(1_000);
        let data = expect!(t, "P.", len(1_000));
        icmp(&mut t, 3, code, &data.bytes);
        t
    };
    for (code, error) in
        [(0, ConnError::NetworkUnreachable), (1, ConnError::HostUnreachable), (5, ConnError::HostUnreachable)]
    {
        let mut t = about(code);
        assert_eq!((t.conn().as_ref().soft_error(), t.conn().as_ref().error()), (Some(error), None));
        t.wait_s(60);
        assert_eq!(t.conn().as_ref().error(), Some(error), "code {code}");
        // What is delivered shows that it has passed.
        let mut t = about(code);
        inject!(t, ".", seq(1), ack(1_001));
        assert_eq!(t.conn().as_ref().soft_error(), None);
        t.write(1_000);
        t.wait_s(60);
        assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
    }
    // RFC 5927 §4.1: it must quote a segment in flight.
    let mut t = about(1);
    inject!(t, ".", seq(1), ack(1_001));
    t.write(10);
    let mut forged = expect!(t, "P.", len(10)).bytes;
    forged[24] ^= 1;
    icmp(&mut t, 3, 1, &forged);
    assert_eq!(t.conn().as_ref().soft_error(), None);
}

/// A router's ICMP message of `kind` and `code` about `quoted`.
fn icmp(t: &mut Trace, kind: u8, code: u8, quoted: &[u8]) {
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend(&quoted[..quoted.len().min(500)]);
    let sum = Sum::ZERO.add_bytes(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip = IpHeader {
        src: "198.51.100.1".parse().unwrap(),
        dst: t.local.ip(),
        protocol: protocol::ICMP,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        header_len: 20,
        payload_len: message.len(),
    };
    let mut packet = vec![0; 20];
    ip.emit(&mut packet, 0);
    packet.extend(&message);
    t.inject_bytes(&packet, 0);
}

/// Source quench; time exceeded in transit and in reassembly; parameter problem.
const HARMLESS: [(u8, u8); 4] = [(4, 0), (11, 0), (11, 1), (12, 0)];

#[test]
fn time_exceeded_parameter_problem_and_source_quench_end_nothing() {
    // MUST-55, MUST-56.
    for (kind, code) in HARMLESS {
        let mut t = Trace::new();
        t.connect();
        let syn = expect!(t, "S");
        icmp(&mut t, kind, code, &syn.bytes);
        assert_eq!((t.event(), t.state()), (None, State::SynSent), "type {kind}");
        t.syn_ack(Offer::EASY);
        expect!(t, ".");
        t.write(5_000);
        let data = expect!(t, ".", len(1_000));
        t.poll();
        t.out.clear();
        let before = t.info();
        icmp(&mut t, kind, code, &data.bytes);
        expect_nothing!(t);
        let after = t.info();
        // RFC 6633: source quench does not change the window either.
        assert_eq!(
            (after.snd_cwnd, after.snd_ssthresh, after.unacked),
            (before.snd_cwnd, before.snd_ssthresh, 5)
        );
        assert_eq!(t.state(), State::Established);
    }
}

#[test]
fn an_unreachable_destination_ends_no_connection() {
    // MUST-56: codes 0, 1 and 5 may pass; the RFC would have 2 to 4 end it, RFC 5927 §5.2 would not.
    for code in [0, 1, 2, 3, 5, 6, 13] {
        let mut t = Trace::accepted(Offer::EASY);
        t.write(1_000);
        let data = expect!(t, "P.", len(1_000));
        icmp(&mut t, 3, code, &data.bytes);
        assert_eq!(t.state(), State::Established, "code {code}");
        inject!(t, ".", seq(1), ack(1_001));
        assert_eq!(t.info().unacked, 0);
    }
}

#[test]
fn how_often_challenges_are_answered_is_a_setting() {
    // RFC 5961 §7.
    let mut t = Trace::accepted(Offer::EASY);
    t.stack.set_sysctl("net.ipv4.tcp_invalid_ratelimit", "20").unwrap();
    let mut answers = 0;
    for _ in 0..100 {
        inject!(t, "S", seq(1));
        answers += t.out.drain(..).count();
        t.wait_ms(1);
    }
    assert_eq!(answers, 5);
}

#[test]
fn an_old_ack_is_judged_by_the_largest_window_there_was() {
    // RFC 5961 §5.2: MAX.SND.WND, not the window of today.
    let mut t = Trace::accepted(Offer { win: 30_000, ..Offer::EASY });
    t.write(10_000);
    t.poll();
    t.out.clear();
    inject!(t, ".", seq(1), ack(10_001), win(500));
    inject!(t, "P.", seq(1), ack(2_001), len(10));
    assert_eq!(t.info().bytes_received, 10);
}
