//! Opening a connection: RFC 9293 §3.5 and §3.10.7, RFC 7323 §2, RFC 2018 §2, RFC 6298 §5.

use crate::support;

use support::trace::{Offer, Trace, flags};
use support::{A, B, World, config};
use taut_core::{
    ConnError, ConnOptions, Duration, Event, LinkCaps, ListenOptions, ReadError, StackConfig, State,
    WriteError,
};
use taut_wire::Flags;

#[test]
fn active_open() {
    let mut t = Trace::new();
    let id = t.connect();
    // The link carries 1500 bytes; 128 MiB of receive buffer need a shift of 12; a SYN's window is not
    // scaled.
    let syn = expect!(t, "S", seq(0), win(65_535), mss(1_460), wscale(12), sackok());
    assert_eq!(syn.wire.ack, 0);
    assert_eq!(syn.options.timestamps.map(|ts| ts.echo), Some(0), "RFC 7323 §3.2: TSecr is 0 in a SYN");
    assert_eq!(t.state(), State::SynSent);
    assert_eq!(t.try_read(), Err(ReadError::NotConnected));
    t.syn_ack(Offer::ALL);
    // 131,072 bytes in units of 4096.
    let ack = expect!(t, ".", seq(1), ack(1), win(32));
    assert_eq!(ack.options.timestamps.map(|ts| ts.echo), Some(t.peer_clock()));
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Connected(id)));
    assert_eq!(t.state(), State::Established);
    // 1460 less the timestamps.
    assert_eq!(t.info().snd_mss, 1_448);
    assert_eq!(t.stack.counters().active_opens, 1);
}

#[test]
fn passive_open() {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::ALL);
    let syn = expect!(t, "S.", seq(0), ack(1), win(65_535), mss(1_460), wscale(12), sackok());
    assert_eq!(syn.options.timestamps.map(|ts| ts.echo), Some(t.peer_clock()));
    assert!(t.stack.accept(listener).is_none(), "not before the handshake is complete");
    inject!(t, ".", seq(1), ack(1));
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Incoming(listener)));
    let (id, peer) = t.stack.accept(listener).unwrap();
    assert_eq!(peer, t.peer);
    t.id = Some(id);
    assert_eq!(t.state(), State::Established);
    assert_eq!(t.stack.counters().passive_opens, 1);
}

#[test]
fn both_families() {
    let mut t = Trace::v6();
    t.connect();
    expect!(t, "S", mss(1_440));
    t.syn_ack(Offer { mss: None, ts: false, ..Offer::ALL });
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.info().snd_mss, 1_220, "RFC 9293 §3.7.1");

    let mut t = Trace::v6();
    t.accept(Offer::ALL);
    inject!(t, "P.", seq(1), ack(1), len(5));
    expect!(t, ".", ack(6));
    t.read(5);
}

#[test]
fn every_option_is_optional() {
    for passive in [false, true] {
        let open = |offer| {
            let mut t = Trace::new();
            if passive {
                t.listen();
                t.syn(offer);
            } else {
                t.connect();
                t.out.clear();
                t.syn_ack(offer);
            }
            let answer = t.out.pop_front().unwrap();
            if passive {
                inject!(t, ".", seq(1), ack(1), win(1_000));
                t.id = t.stack.accept(t.listener.unwrap()).map(|(id, _)| id);
            } else {
                inject!(t, ".", seq(1), ack(1), win(1_000));
            }
            (t, answer)
        };
        // RFC 9293 §3.7.1: 536 without the option; timestamps are taken off (RFC 6691).
        let (mut t, _) = open(Offer { mss: None, ..Offer::ALL });
        assert_eq!(t.info().snd_mss, 536 - 12);
        let (mut t, _) = open(Offer { mss: None, ts: false, ..Offer::ALL });
        assert_eq!(t.info().snd_mss, 536);
        let (mut t, answer) = open(Offer { wscale: None, ..Offer::ALL });
        assert_eq!(answer.options.window_scale, None, "RFC 7323 §2.2: only in answer to the option");
        assert_eq!(t.info().snd_wnd, 1_000);
        let (mut t, _) = open(Offer { wscale: Some(3), ..Offer::ALL });
        assert_eq!(t.info().snd_wnd, 8_000);
        let (_, answer) = open(Offer { sackok: false, ..Offer::ALL });
        assert!(!answer.options.sack_permitted);
        let (mut t, answer) = open(Offer { ts: false, ..Offer::ALL });
        assert_eq!(answer.options.timestamps, None, "RFC 7323 §3.2");
        t.write(1);
        assert_eq!(expect!(t, "P.", len(1)).options.timestamps, None);
    }
}

#[test]
fn what_is_switched_off_is_not_offered() {
    let config = StackConfig::default().with(|c| {
        c.tcp.timestamps = false;
        c.tcp.sack = false;
        c.tcp.window_scaling = false;
    });
    let mut t = Trace::with(config.clone());
    t.connect();
    let syn = expect!(t, "S", mss(1_460));
    assert!(syn.options.timestamps.is_none() && !syn.options.sack_permitted);
    assert_eq!(syn.options.window_scale, None);
    // A peer that answers with options we did not offer does not switch them on.
    t.syn_ack(Offer::ALL);
    let ack = expect!(t, ".", seq(1), ack(1), win(65_535));
    assert_eq!(ack.options, taut_wire::TcpOptions::default());
    assert_eq!((t.info().snd_wnd, t.info().snd_mss), (65_535, 1_460));
    // Nor is a window scaled by the shift that only the peer offered (RFC 7323 §2.2).
    t.write(10);
    expect!(t, "P.", len(10));
    inject!(t, ".", seq(1), ack(11), win(1_000));
    assert_eq!(t.info().snd_wnd, 1_000);
}

#[test]
fn strange_segment_sizes_and_scales() {
    // (offered, used without timestamps): none is below 48, for that would cost us, nor above what the link
    // takes.
    for (offered, used) in [(0, 536), (1, 48), (65_535, 1_460)] {
        let mut t = Trace::accepted(Offer { mss: Some(offered), ts: false, ..Offer::ALL });
        assert_eq!(t.info().snd_mss, used, "MSS {offered}");
        t.write(100);
        let sent: usize = std::iter::from_fn(|| {
            t.poll();
            t.out.pop_front().map(|got| got.payload.len())
        })
        .inspect(|&len| assert!(len <= used as usize))
        .sum();
        assert!(sent > 0);
    }
    // RFC 7323 §2.3: a shift above 14 is taken for 14.
    for shift in [14, 15, 255] {
        let mut t = Trace::new();
        t.listen();
        t.syn(Offer { wscale: Some(shift), ..Offer::EASY });
        expect!(t, "S.");
        inject!(t, ".", seq(1), ack(1), win(4));
        t.id = t.stack.accept(t.listener.unwrap()).map(|(id, _)| id);
        assert_eq!(t.info().snd_wnd, 4 << 14);
    }
}

#[test]
fn syn_is_retransmitted_with_backoff_and_then_given_up() {
    let mut t = Trace::new();
    let id = t.connect();
    let first = expect!(t, "S", seq(0));
    // RFC 6298 §2.1 and §5.5; four retransmissions a second apart, and six more.
    for s in [1, 1, 1, 1, 1, 2, 4, 8, 16, 32] {
        let again = expect!(t, "S", seq(0), after_ms(s * 1_000));
        assert_eq!(again.options.mss, first.options.mss);
    }
    expect_nothing!(t, for_ms 63_999);
    assert_eq!(t.event(), None);
    t.wait_ms(1);
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
    expect_nothing!(t);
    assert_eq!(t.try_write(), Err(WriteError::Conn(ConnError::TimedOut)));
    t.close();
    t.expect_gone();
    assert_eq!(t.stack.counters().attempt_fails, 1);
    assert_eq!(t.stack.counters().retrans_segs, 10);
}

/// RFC 9293 §3.10.7.3: once it is answered, a SYN does not leave again, although its time had come.
#[test]
fn a_syn_that_is_due_again_is_not_sent_once_it_is_answered() {
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    t.now += Duration::from_millis(1_000);
    t.stack.handle_timeout(t.now);
    t.syn_ack(Offer::EASY);
    expect!(t, ".", seq(1), ack(1));
    expect_nothing!(t, for_ms 10_000);
}

#[test]
fn syn_retries_are_configurable() {
    let mut t = Trace::with(StackConfig::default().with(|c| {
        (c.tcp.syn_retries, c.tcp.syn_linear_timeouts) = (1, 0);
    }));
    let id = t.connect();
    expect!(t, "S");
    expect!(t, "S", after_ms(1_000));
    expect_nothing!(t, for_ms 2_000);
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
}

#[test]
fn syn_ack_is_retransmitted_and_half_open_peers_expire() {
    let mut t = Trace::new();
    t.listen();
    t.syn(Offer::ALL);
    expect!(t, "S.", seq(0), ack(1));
    for s in [1, 2, 4, 8, 16] {
        expect!(t, "S.", seq(0), ack(1), after_ms(s * 1_000));
    }
    assert_eq!(t.stack.connections(), 1);
    expect_nothing!(t, for_ms 32_000);
    t.expect_gone();
    assert_eq!(t.event(), None, "the attempt was not reported");
}

#[test]
fn a_retransmitted_syn_is_answered_again() {
    let mut t = Trace::new();
    t.listen();
    t.syn(Offer::ALL);
    expect!(t, "S.", seq(0), ack(1));
    t.wait_ms(300);
    t.syn(Offer::ALL);
    expect!(t, "S.", seq(0), ack(1), mss(1_460));
    expect_nothing!(t);
    assert_eq!(t.stack.connections(), 1);
    // RFC 6298 §3 (Karn): the ACK may be for either SYN-ACK, so it measures nothing short.
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(1), nots());
    t.id = t.stack.accept(t.listener.unwrap()).map(|(id, _)| id);
    assert_eq!(t.info().rtt, None);
}

#[test]
fn the_handshake_measures_the_round_trip() {
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    t.wait_ms(70);
    t.syn_ack(Offer::ALL);
    assert_eq!(t.info().rtt, Some(Duration::from_millis(70)));

    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    expect!(t, "S", after_ms(1_000));
    t.wait_ms(70);
    t.syn_ack(Offer::EASY);
    assert_eq!(t.info().rtt, None, "RFC 6298 §3 (Karn)");
}

#[test]
fn the_final_ack_may_carry_data_and_fin() {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    inject!(t, "FP.", seq(1), ack(1), len(10));
    expect!(t, ".", seq(1), ack(12), after_ms(40));
    t.id = t.stack.accept(listener).map(|(id, _)| id);
    assert_eq!(t.state(), State::CloseWait);
    t.read(10);
    assert_eq!(t.try_read(), Ok(0));
}

#[test]
fn the_final_ack_may_be_lost() {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    inject!(t, "P.", seq(1), ack(1), len(10));
    expect!(t, ".", ack(11));
    assert!(t.stack.accept(listener).is_some());
}

#[test]
fn a_closed_port_answers_with_rst() {
    let mut t = Trace::new();
    // RFC 9293 §3.10.7.1: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>.
    inject!(t, "S", seq(0), mss(1_460));
    let rst = expect!(t, "R.", ack(1));
    assert_eq!((rst.wire.seq, rst.wire.window), (0, 0));
    assert_eq!((rst.src, rst.dst), (t.local, t.peer));
    inject!(t, "FP", seq(100), len(50));
    expect!(t, "R.", ack(151));
    // With an ACK: <SEQ=SEG.ACK><CTL=RST>.
    inject!(t, "S.", seq(0), ack(777));
    expect!(t, "R", seq(777));
    inject!(t, ".", seq(5), ack(777));
    expect!(t, "R", seq(777));
    // A RST is never answered.
    inject!(t, "R", seq(5));
    inject!(t, "R.", seq(5), ack(6));
    expect_nothing!(t);
    assert_eq!(t.stack.counters().out_rsts, 4);
}

#[test]
fn a_listener_answers_only_to_syns() {
    let mut t = Trace::new();
    t.listen();
    // RFC 9293 §3.10.7.2.
    inject!(t, "R", seq(5));
    inject!(t, "P", seq(5), len(9));
    inject!(t, "", seq(5));
    inject!(t, "F", seq(5));
    inject!(t, "SF", seq(5));
    expect_nothing!(t);
    inject!(t, ".", seq(5), ack(99));
    expect!(t, "R", seq(99));
    inject!(t, "S.", seq(5), ack(99));
    expect!(t, "R", seq(99));
    t.expect_gone();
}

#[test]
fn a_full_backlog_remembers_no_more_syns_and_a_full_accept_queue_drops_them() {
    let mut t = Trace::new();
    let listener = t.listen_with(ListenOptions { backlog: 2, ..ListenOptions::default() });
    for port in [1, 2, 3] {
        inject!(t, "S", seq(0), port(port), mss(1_000));
    }
    // The third is answered by a cookie.
    assert_eq!(t.out.iter().map(|got| got.dst.port()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((t.stack.connections(), t.stack.counters().syncookies_sent), (2, 1));
    let iss = [t.out[0].wire.seq, t.out[1].wire.seq];
    t.out.clear();
    for (port, iss) in [1, 2].into_iter().zip(iss) {
        t.iss = iss;
        inject!(t, ".", seq(1), ack(1), port(port));
    }
    // The accept queue is full now.
    inject!(t, "S", seq(0), port(3), mss(1_000));
    expect_nothing!(t);
    assert_eq!(t.stack.counters().listen_overflows, 1);
    assert!(t.stack.accept(listener).is_some());
    inject!(t, "S", seq(0), port(3), mss(1_000));
    expect!(t, "S.");
}

#[test]
fn the_number_of_connections_is_bounded() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.max_connections = 3));
    t.listen();
    for port in 1..=5 {
        inject!(t, "S", seq(0), port(port));
    }
    assert_eq!((t.out.len(), t.stack.connections()), (3, 3));
    assert!(t.stack.connect(t.now, t.peer, &ConnOptions::default()).is_err());
}

#[test]
fn syn_received_rst_and_bad_ack() {
    let mut t = Trace::new();
    let listener = t.listen_with(ListenOptions { backlog: 1, ..ListenOptions::default() });
    t.syn(Offer::EASY);
    expect!(t, "S.");
    // RFC 9293 §3.10.7.4, SYN-RECEIVED: an unacceptable ACK is answered with RST, and changes nothing.
    for bad in [0, 2, 5_000, u32::MAX] {
        inject!(t, ".", seq(1), ack(bad));
        let rst = expect!(t, "R");
        assert_eq!(rst.seq, bad);
    }
    assert_eq!(t.stack.connections(), 1);
    // A RST frees the place in the backlog.
    inject!(t, "R", seq(1));
    expect_nothing!(t);
    t.expect_gone();
    inject!(t, "S", seq(0), port(9));
    expect!(t, "S.");
    assert!(t.stack.accept(listener).is_none());
}

#[test]
fn refusal_is_believed_only_if_it_acknowledges_the_syn() {
    let mut t = Trace::new();
    let id = t.connect();
    expect!(t, "S");
    // RFC 9293 §3.10.7.3.
    inject!(t, "R", seq(0));
    inject!(t, "R.", seq(0), ack(0));
    inject!(t, "R.", seq(0), ack(2));
    expect_nothing!(t);
    assert_eq!(t.state(), State::SynSent);
    inject!(t, "R.", seq(0), ack(1));
    expect_nothing!(t);
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::Refused)));
    t.close();
    t.expect_gone();
}

#[test]
fn syn_sent_answers_a_wrong_ack_with_rst() {
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    // RFC 9293 §3.5.1 figure 10: a half-open connection is discovered, and cleared.
    inject!(t, ".", seq(300), ack(100));
    expect!(t, "R", seq(100));
    inject!(t, "S.", seq(0), ack(2));
    expect!(t, "R", seq(2));
    inject!(t, ".", seq(300), ack(1));
    expect_nothing!(t);
    assert_eq!(t.state(), State::SynSent);
    expect!(t, "S", seq(0), after_ms(1_000));
}

/// poll(2): before the handshake there is nothing to read or write; an error is both.
#[test]
fn readable_and_writable_follow_the_handshake() {
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S", seq(0));
    let now = t.now;
    let ready = |t: &mut Trace| (t.conn().readable(), t.conn().as_ref().readable(), t.conn().writable(now));
    assert_eq!(ready(&mut t), (false, false, false));
    assert_eq!(t.try_write(), Err(WriteError::NotConnected));
    t.syn_ack(Offer::EASY);
    expect!(t, ".");
    assert_eq!(ready(&mut t), (false, false, true));
    // A write of nothing is none.
    assert_eq!(t.conn().write(now, &[]), Ok(0));
    expect_nothing!(t);
    assert_eq!(ready(&mut t), (false, false, true));
    inject!(t, "P.", seq(1), ack(1), len(5));
    assert_eq!(ready(&mut t), (true, true, true));
    t.read(5);
    assert_eq!(ready(&mut t), (false, false, true));
    inject!(t, "F.", seq(6), ack(1));
    assert_eq!(ready(&mut t), (true, true, true), "the end of the stream can be read");
    // Refused: both report it at once.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S", seq(0));
    inject!(t, "R.", seq(0), ack(1));
    assert_eq!(t.stack.counters().attempt_fails, 1, "RFC 4022: tcpAttemptFails");
    assert_eq!(ready(&mut t), (true, true, true));
    assert_eq!(t.try_write(), Err(WriteError::Conn(ConnError::Refused)));
}

#[test]
fn simultaneous_open_by_hand() {
    // RFC 9293 §3.5 figure 8.
    let mut t = Trace::new();
    let id = t.connect();
    expect!(t, "S", seq(0));
    t.syn(Offer::EASY);
    expect!(t, "S.", seq(0), ack(1), mss(1_460));
    assert_eq!(t.state(), State::SynReceived);
    // Now it is the SYN-ACK that is retransmitted.
    expect!(t, "S.", seq(0), ack(1), after_ms(1_000));
    inject!(t, "S.", seq(0), ack(1));
    assert_eq!(t.state(), State::Established);
    assert_eq!(t.event(), Some(Event::Connected(id)));
    t.out.clear();
    t.write(10);
    expect!(t, "P.", seq(1), ack(1), len(10));
    // A RST in SYN-RECEIVED of an active open is a refusal.
    let mut t = Trace::new();
    let id = t.connect();
    expect!(t, "S");
    t.syn(Offer::EASY);
    expect!(t, "S.");
    inject!(t, "R", seq(1));
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::Refused)));
}

#[test]
fn simultaneous_open_of_two_stacks() {
    let mut world = World::new(1);
    let connect = |world: &mut World, side: usize, from: &str, to: &str| {
        let options = ConnOptions { bind: Some(from.parse().unwrap()), ..ConnOptions::default() };
        world.stacks[side].connect(world.now, to.parse().unwrap(), &options).unwrap()
    };
    let (at_a, at_b) = (format!("{A}:1000"), format!("{B}:2000"));
    let a = connect(&mut world, 0, &at_a, &at_b);
    let b = connect(&mut world, 1, &at_b, &at_a);
    world.run_for(Duration::from_secs(1));
    for (side, id) in [(0, a), (1, b)] {
        assert_eq!(world.stacks[side].conn(id).unwrap().state(), State::Established);
        assert_eq!(world.events[side].pop_front(), Some(Event::Connected(id)));
        assert_eq!(world.stacks[side].counters().retrans_segs, 0);
    }
    let (mut written, mut read) = (0, 0);
    support::pump(&mut world, 0, a, &mut written, 5_000);
    world.run_for(Duration::from_secs(1));
    support::drain(&mut world, 1, b, &mut read);
    assert_eq!((written, read), (5_000, 5_000));
}

#[test]
fn data_may_come_with_the_syn_ack() {
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    inject!(t, "SP.", seq(0), ack(1), mss(1_000), len(50));
    expect!(t, ".", seq(1), ack(1));
    // Only the SYN is taken; the peer retransmits its data.
    inject!(t, "P.", seq(1), ack(1), len(50));
    expect!(t, ".", ack(51));
    t.read(50);
}

#[test]
fn arr_07_a_fin_in_a_syn_ack_is_taken() {
    // RFC 9293 §3.10.7.3: what else the segment has is processed, from the sixth step on.
    let mut t = Trace::new();
    let id = t.connect();
    expect!(t, "S");
    inject!(t, "SF.", seq(0), ack(1), mss(1_000), win(65_535));
    expect!(t, ".", seq(1), ack(2));
    assert_eq!(t.state(), State::CloseWait);
    assert_eq!(t.event(), Some(Event::Connected(id)));
    assert_eq!(t.event(), Some(Event::Readable(id)));
    assert_eq!(t.try_read(), Ok(0));
    t.write(10);
    expect!(t, "P.", seq(1), ack(2), len(10));
    t.close();
    expect!(t, "F.", seq(11), ack(2));
    inject!(t, ".", seq(2), ack(12));
    t.expect_gone();
    // Behind data that is not taken, it comes again.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    inject!(t, "SFP.", seq(0), ack(1), mss(1_000), len(50));
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.state(), State::Established);
    inject!(t, "FP.", seq(1), ack(1), len(50));
    expect!(t, ".", seq(1), ack(52), after_ms(40));
    // In SYN-RECEIVED, when SYNs crossed.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    t.syn(Offer::EASY);
    expect!(t, "S.");
    inject!(t, "SF.", seq(0), ack(1));
    expect!(t, ".", seq(1), ack(2), after_ms(40));
    assert_eq!(t.state(), State::CloseWait);
}

#[test]
fn closing_a_listener_resets_what_nobody_accepted() {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    inject!(t, ".", seq(1), ack(1));
    t.stack.close_listener(t.now, listener);
    expect!(t, "R.", seq(1), ack(1));
    t.expect_gone();
    inject!(t, "S", seq(0), port(7));
    expect!(t, "R.", ack(1));
}

#[test]
fn a_half_open_connection_does_not_reach_a_listener_that_took_the_place_of_its_own() {
    let mut t = Trace::new();
    let listener = t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    t.stack.close_listener(t.now, listener);
    let other = t.stack.listen("192.0.2.1:81".parse().unwrap(), ListenOptions::default()).unwrap();
    t.expect_gone();
    // RFC 9293 §3.10.7.1: <SEQ=SEG.ACK><CTL=RST>.
    inject!(t, ".", seq(1), ack(1));
    expect!(t, "R", seq(1));
    assert!(t.stack.accept(other).is_none());
    t.expect_gone();
}

#[test]
fn closing_before_the_answer_forgets_the_attempt() {
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    t.close();
    t.expect_gone();
    t.syn_ack(Offer::EASY);
    expect!(t, "R", seq(1));
}

#[test]
fn sequence_numbers_and_ports_differ_between_connections() {
    let mut world = World::with(3, config(A), config(B), LinkCaps::plain(1_500));
    let ids: Vec<_> = (0..50).map(|_| world.connect(0, &format!("{B}:80"))).collect();
    let mut ports: Vec<u16> =
        ids.iter().map(|&id| world.stacks[0].conn(id).unwrap().local_addr().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50);
    assert!(flags("S.").contains(Flags::SYN));
}

/// As in Linux, where the handshake counts as the last data until there is any.
#[test]
fn the_time_since_data_counts_from_the_handshake() {
    let mut client = Trace::new();
    client.connect_with(&ConnOptions::default());
    client.wait_ms(30);
    client.syn_ack(Offer::EASY);
    client.wait_ms(1_000);
    assert_eq!(client.info().last_data_recv, Duration::from_millis(1_000));
    inject!(client, "P.", seq(1), ack(1), len(10));
    client.wait_ms(70);
    assert_eq!(client.info().last_data_recv, Duration::from_millis(70));
    let mut server = Trace::accepted(Offer::EASY);
    server.wait_ms(500);
    assert_eq!(server.info().last_data_recv, Duration::from_millis(500));
}
