//! Ending a connection: every path of RFC 9293 §3.3.2 figure 5 from ESTABLISHED on, TIME-WAIT, and what is
//! left over.

use crate::support;

use support::trace::{Offer, Seg, Trace};
use support::{World, drain, pump};
use taut_core::{
    ConnError, ConnOptions, Duration, Event, Keepalive, ListenOptions, ReadError, SetOption, StackConfig,
    State, WriteError,
};
use taut_wire::Flags;

#[test]
fn active_close_through_fin_wait_and_time_wait() {
    // RFC 9293 §3.6 figure 12.
    let mut t = Trace::connected(Offer::ALL);
    let id = t.id.unwrap();
    t.shutdown();
    expect!(t, "F.", seq(1), ack(1));
    assert_eq!(t.state(), State::FinWait1);
    inject!(t, ".", seq(1), ack(2));
    expect_nothing!(t);
    assert_eq!(t.state(), State::FinWait2);
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", seq(2), ack(2));
    assert_eq!(t.state(), State::TimeWait);
    assert_eq!(t.try_read(), Ok(0));
    assert_eq!(t.try_write(), Err(WriteError::Shutdown));
    assert!(t.events.contains(&Event::Closed(id)));
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (1, 1));
    t.close();
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (0, 1));
    expect_nothing!(t, for_ms 59_999);
    assert_eq!(t.stack.time_waits(), 1);
    t.wait_ms(1);
    t.expect_gone();
    assert_eq!(t.stack.poll_timeout(), None);
}

#[test]
fn passive_close_through_close_wait_and_last_ack() {
    let mut t = Trace::accepted(Offer::ALL);
    inject!(t, "F.", seq(1), ack(1));
    expect!(t, ".", seq(1), ack(2), after_ms(40));
    assert_eq!(t.state(), State::CloseWait);
    assert_eq!(t.try_read(), Ok(0));
    // The other direction is still open.
    t.write(100);
    expect!(t, "P.", seq(1), ack(2), len(100));
    inject!(t, ".", seq(2), ack(101));
    t.close();
    expect!(t, "F.", seq(101), ack(2));
    assert_eq!(t.stack.connections(), 1);
    inject!(t, ".", seq(2), ack(102));
    t.expect_gone();
    assert_eq!(t.stack.poll_timeout(), None);
}

#[test]
fn simultaneous_close_through_closing() {
    // RFC 9293 §3.6 figure 13.
    let mut t = Trace::connected(Offer::ALL);
    t.shutdown();
    expect!(t, "F.", seq(1), ack(1));
    inject!(t, "F.", seq(1), ack(1));
    expect!(t, ".", seq(2), ack(2));
    assert_eq!(t.state(), State::Closing);
    inject!(t, ".", seq(2), ack(2));
    expect_nothing_but_acks(&mut t);
    assert_eq!(t.state(), State::TimeWait);
    t.close();
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (0, 1));
}

/// An ACK more does no harm.
#[track_caller]
fn expect_nothing_but_acks(t: &mut Trace) {
    t.poll();
    while let Some(got) = t.out.pop_front() {
        assert_eq!((got.flags, got.payload.len()), (taut_wire::Flags::ACK, 0));
    }
}

#[test]
fn fin_and_ack_of_fin_in_one() {
    let mut t = Trace::connected(Offer::ALL);
    t.shutdown();
    expect!(t, "F.", seq(1), ack(1));
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", seq(2), ack(2));
    assert_eq!(t.state(), State::TimeWait);
}

#[test]
fn fin_follows_the_data_and_comes_with_it() {
    let mut t = Trace::connected(Offer::EASY);
    t.write(2_500);
    t.shutdown();
    expect!(t, ".", seq(1), len(1_000));
    expect!(t, ".", seq(1_001), len(1_000));
    expect!(t, "FP.", seq(2_001), len(500));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(2_502));
    assert_eq!(t.state(), State::FinWait2);
}

#[test]
fn fin_is_retransmitted() {
    let mut t = Trace::connected(Offer::EASY);
    t.shutdown();
    expect!(t, "F.", seq(1));
    // The handshake took no time, so nearly all of the RTO is its floor, 200 ms. The probe may come first.
    let again = expect!(t, "F.", seq(1), ack(1), after_ms(200));
    assert!(!again.flags.contains(Flags::PSH), "there is nothing to push");
    let third = loop {
        t.wait_ms(1);
        if let Some(got) = t.out.pop_front() {
            break got;
        }
    };
    assert!(third.has("F.") && third.seq == 1);
    assert!(third.at.since(again.at) <= Duration::from_millis(401));
    inject!(t, ".", seq(1), ack(2));
    assert_eq!(t.state(), State::FinWait2);
}

#[test]
fn a_fin_without_window_waits_as_a_probe() {
    let mut t = Trace::connected(Offer { win: 1_000, ..Offer::EASY });
    t.write(1_000);
    t.shutdown();
    // Half of the peer's window bounds a segment.
    expect!(t, ".", seq(1), len(500));
    expect!(t, ".", seq(501), len(500));
    inject!(t, ".", seq(1), ack(1_001), win(0));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(1_001), win(1));
    expect!(t, "F.", seq(1_001));
}

#[test]
fn a_fin_out_of_order_waits_for_what_is_missing() {
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "F.", seq(1_001), ack(1));
    expect!(t, ".", ack(1));
    assert_eq!(t.state(), State::Established);
    inject!(t, ".", seq(1), ack(1), len(1_000));
    expect!(t, ".", ack(1_002));
    assert_eq!(t.state(), State::CloseWait);
    t.read(1_000);
    assert_eq!(t.try_read(), Ok(0));

    // With data, and in two pieces.
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "FP.", seq(1_001), ack(1), len(500));
    expect!(t, ".", ack(1), sack(&[(1_001, 1_501)]));
    inject!(t, ".", seq(1), ack(1), len(1_000));
    expect!(t, ".", ack(1_502));
    t.read(1_500);
    assert_eq!(t.try_read(), Ok(0));
    assert_eq!(t.state(), State::CloseWait);
}

#[test]
fn nothing_is_taken_after_the_fin() {
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "FP.", seq(1), ack(1), len(100));
    expect!(t, ".", ack(102), after_ms(40));
    inject!(t, ".", seq(102), ack(1), len(100));
    t.wait_ms(500);
    t.read(100);
    assert_eq!(t.try_read(), Ok(0));
    expect_nothing_but_acks(&mut t);
    // A retransmitted FIN is acknowledged again.
    inject!(t, "FP.", seq(1), ack(1), len(100));
    expect!(t, ".", ack(102));
    assert_eq!(t.state(), State::CloseWait);
}

#[test]
fn a_fin_before_data_that_came_already_is_none() {
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, ".", seq(1_001), ack(1), len(1_000));
    inject!(t, "F.", seq(1_501), ack(1));
    inject!(t, ".", seq(1), ack(1), len(1_000));
    t.read(2_000);
    assert_eq!(t.try_read(), Err(ReadError::WouldBlock));
    assert_eq!(t.state(), State::Established);
    inject!(t, "F.", seq(2_001), ack(1));
    assert_eq!(t.state(), State::CloseWait);
}

#[test]
fn half_closed_for_long() {
    let mut world = World::new(9);
    let (client, server) = world.pair();
    let now = world.now;
    world.stacks[0].conn_mut(client).unwrap().shutdown_write(now).unwrap();
    // Longer than FIN-WAIT-2 lasts for a connection that the application has released.
    world.run_for(Duration::from_secs(600));
    assert_eq!(world.stacks[0].conn(client).unwrap().state(), State::FinWait2);
    let (mut written, mut read) = (0, 0);
    let done = world.run_until(Duration::from_secs(600), |world| {
        pump(world, 1, server, &mut written, 500_000);
        drain(world, 0, client, &mut read);
        read == 500_000
    });
    assert!(done);
    let now = world.now;
    world.stacks[1].conn_mut(server).unwrap().close(now);
    world.run_for(Duration::from_secs(1));
    assert!(drain(&mut world, 0, client, &mut read));
    let now = world.now;
    world.stacks[0].conn_mut(client).unwrap().close(now);
    world.run_for(Duration::from_secs(61));
    for stack in &world.stacks {
        assert_eq!((stack.connections(), stack.time_waits()), (0, 0));
    }
}

#[test]
fn close_with_unread_data_resets() {
    // RFC 2525 §2.17.
    let mut t = Trace::accepted(Offer::EASY);
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.out.clear();
    t.close();
    expect!(t, "R.", seq(1), ack(11));
    t.expect_gone();
}

#[test]
fn data_after_close_resets() {
    // RFC 1122 §4.2.2.13, in both halves of the active close.
    for acked in [false, true] {
        let mut t = Trace::accepted(Offer::EASY);
        t.close();
        expect!(t, "F.", seq(1), ack(1));
        if acked {
            inject!(t, ".", seq(1), ack(2));
        }
        // RFC 9293 §3.5.2: the reset's number is the one acknowledged, which the peer expects even if our FIN
        // was lost.
        let ack = if acked { 2 } else { 1 };
        inject!(t, "P.", seq(1), ack(ack), len(10));
        expect!(t, "R", seq(ack));
        t.expect_gone();
    }
    // A FIN alone is welcome.
    let mut t = Trace::accepted(Offer::EASY);
    t.close();
    expect!(t, "F.", seq(1), ack(1));
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", ack(2));
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (0, 1));
}

#[test]
fn shutdown_of_reading_throws_data_away() {
    let mut t = Trace::accepted(Offer::EASY);
    let now = t.now;
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.conn().shutdown_read(now);
    assert_eq!(t.try_read(), Ok(0));
    t.out.clear();
    inject!(t, "P.", seq(11), ack(1), len(1_000));
    inject!(t, "P.", seq(1_011), ack(1), len(1_000));
    expect!(t, ".", ack(1_011));
    expect!(t, ".", ack(2_011));
    assert_eq!(t.info().rcv_queue_bytes, 0);
    t.close();
    expect!(t, "F.", seq(1));
}

#[test]
fn abort_resets_at_once() {
    let mut t = Trace::accepted(Offer::EASY);
    t.write(5_000);
    t.poll();
    t.out.clear();
    let now = t.now;
    t.conn().abort(now);
    // RFC 9293 §3.10.5: <SEQ=SND.NXT><CTL=RST>.
    expect!(t, "R.", seq(5_001), ack(1));
    expect_nothing!(t, for_ms 10_000);
    t.expect_gone();
}

/// RFC 9293 §3.10.5: an abort forgets everything but its RST, whatever the connection waited for. While the
/// device has no room for the RST, a timer that was set may still fire, once, and finds nothing to do.
#[test]
fn an_abort_ends_every_wait_although_its_rst_must_wait() {
    type Begin = fn(&mut Trace);
    let cases: [(&str, Begin); 6] = [
        ("an acknowledgement", |t| {
            t.write(100);
            expect!(t, "P.", seq(1), len(100));
        }),
        ("the next probe of a closed window", |t| {
            inject!(t, ".", seq(1), ack(1), win(0));
            t.write(100);
            t.poll();
        }),
        ("room for a probe of a closed window", |t| {
            inject!(t, ".", seq(1), ack(1), win(0));
            t.write(100);
            t.poll();
            t.now = t.stack.poll_timeout().unwrap().0;
            t.stack.handle_timeout(t.now);
            // The next one, after twice the time.
            assert_eq!(t.stack.counters().tcp_win_probe, 1);
        }),
        ("a keepalive", |t| {
            let seconds = Duration::from_secs;
            let every = Keepalive { idle: seconds(10), interval: seconds(3), count: 4 };
            let now = t.now;
            t.conn().set_option(now, SetOption::Keepalive(Some(every))).unwrap();
        }),
        ("a delayed ACK", |t| {
            for at in 0..16 {
                inject!(t, "P.", seq(1 + at * 100), ack(1), len(100));
                expect!(t, ".", ack(101 + at * 100));
            }
            t.wait_ms(30);
            inject!(t, "P.", seq(1_601), ack(1), len(100));
        }),
        ("the end of the user timeout", |t| {
            let now = t.now;
            t.conn().set_option(now, SetOption::UserTimeout(Some(Duration::from_secs(60)))).unwrap();
            t.write(100);
            t.wait_ms(1_000);
            assert!(t.out.len() > 1, "it was retransmitted");
            t.out.clear();
        }),
    ];
    for (what, begin) in cases {
        let mut t = Trace::accepted(Offer::EASY);
        begin(&mut t);
        assert!(t.out.is_empty() && t.stack.poll_timeout().is_some(), "waits for {what}");
        let (now, timeouts) = (t.now, t.stack.counters().tcp_timeouts);
        t.conn().abort(now);
        if let Some((at, _)) = t.stack.poll_timeout() {
            t.now = at;
            t.stack.handle_timeout(at);
        }
        assert_eq!(t.stack.poll_timeout(), None, "no longer waits for {what}");
        assert_eq!(t.stack.counters().tcp_timeouts, timeouts, "{what}");
        t.poll();
        assert!(t.out.len() == 1 && t.out[0].has("R."), "after a wait for {what}: {:#?}", t.out);
        t.expect_gone();
    }
}

/// TIME-WAIT sends nothing but the ACK of the FIN, also when this waits for the device until a keepalive
/// would be due.
#[test]
fn time_wait_has_no_keepalive() {
    let mut t = Trace::connected(Offer::ALL);
    let (now, seconds) = (t.now, Duration::from_secs);
    let every = Keepalive { idle: seconds(10), interval: seconds(3), count: 4 };
    t.conn().set_option(now, SetOption::Keepalive(Some(every))).unwrap();
    t.shutdown();
    expect!(t, "F.", seq(1), ack(1));
    inject!(t, ".", seq(1), ack(2));
    t.inject_unpolled(&Seg::new("F.").seq(1).ack(2));
    assert_eq!(t.state(), State::TimeWait);
    let until = t.now + seconds(100);
    while let Some((at, _)) = t.stack.poll_timeout().filter(|&(at, _)| at <= until) {
        t.now = at;
        t.stack.handle_timeout(at);
    }
    assert_eq!(t.stack.counters().tcp_keepalive, 0);
    expect!(t, ".", seq(2), ack(2));
    expect_nothing!(t, for_ms 100_000);
}

/// RFC 9293 §3.10.5: in SYN-SENT nothing is reset, and a SYN that the device had no room for never leaves.
#[test]
fn a_syn_that_waits_for_the_device_is_forgotten_with_its_connection() {
    let mut t = Trace::new();
    let now = t.now;
    t.peer.set_port(80);
    let id = t.stack.connect(now, t.peer, &ConnOptions::default()).unwrap();
    t.stack.conn_mut(id).unwrap().abort(now);
    expect_nothing!(t, for_ms 10_000);
    t.expect_gone();
}

#[test]
fn an_ack_that_is_owed_does_not_follow_a_reset() {
    // RFC 9293 §3.10.7.4: a segment outside the window is answered by an ACK. Then the peer ends the
    // connection.
    let mut t = Trace::accepted(Offer::EASY);
    t.inject_unpolled(&Seg::new(".").seq(1_000_000).ack(1).len(10));
    t.inject_unpolled(&Seg::new("R").seq(1));
    expect_nothing!(t, for_ms 10_000);
}

#[test]
fn a_reset_by_the_peer_keeps_what_was_received() {
    let mut t = Trace::accepted(Offer::EASY);
    let id = t.id.unwrap();
    inject!(t, "P.", seq(1), ack(1), len(10));
    inject!(t, "R", seq(11));
    assert!(t.events.contains(&Event::Failed(id, ConnError::Reset)));
    assert_eq!(t.try_write(), Err(WriteError::Conn(ConnError::Reset)));
    t.read(10);
    assert_eq!(t.try_read(), Err(ReadError::Conn(ConnError::Reset)));
    t.out.clear();
    t.close();
    t.expect_gone();
    // The connection is unknown now.
    inject!(t, ".", seq(11), ack(1));
    expect!(t, "R", seq(1));
}

#[test]
fn fin_wait_2_ends_by_itself_when_nobody_holds_it() {
    let mut t = Trace::accepted(Offer::EASY);
    t.close();
    expect!(t, "F.", seq(1));
    inject!(t, ".", seq(1), ack(2));
    expect_nothing!(t, for_ms 59_999);
    assert_eq!(t.stack.connections(), 1);
    t.wait_ms(1);
    t.expect_gone();
    assert_eq!(t.stack.poll_timeout(), None);
}

#[test]
fn an_unanswered_fin_is_given_up_in_the_end() {
    let config = StackConfig::default().with(|c| c.tcp.orphan_retries = 3);
    for received_fin in [false, true] {
        let mut t = Trace::with(config.clone());
        t.accept(Offer::EASY);
        if received_fin {
            inject!(t, "F.", seq(1), ack(1));
            expect!(t, ".", ack(2), after_ms(40));
        }
        t.close();
        t.wait_s(60);
        let fins = t.out.iter().filter(|got| got.has("F")).count();
        assert!((4..=5).contains(&fins), "one, a probe, and three after timeouts; {fins}");
        t.expect_gone();
    }
}

// ---- TIME-WAIT ----

/// A connection in TIME-WAIT: ours were 0 to 1, FIN at 1; the peer's FIN at 1.
fn time_wait(offer: Offer) -> Trace {
    let mut t = Trace::new();
    t.listen();
    t.syn(offer);
    expect!(t, "S.");
    inject!(t, ".", seq(1), ack(1));
    t.id = t.stack.accept(t.listener.unwrap()).map(|(id, _)| id);
    t.close();
    expect!(t, "F.", seq(1), ack(1));
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", seq(2), ack(2));
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (0, 1));
    t
}

#[test]
fn time_wait_acknowledges_a_retransmitted_fin_and_starts_again() {
    for offer in [Offer::ALL, Offer::EASY] {
        let mut t = time_wait(offer);
        t.wait_s(40);
        // RFC 9293 §3.10.7.4, eighth.
        inject!(t, "F.", seq(1), ack(2));
        let ack = expect!(t, ".", seq(2), ack(2));
        assert_eq!(ack.options.timestamps.is_some(), offer.ts);
        expect_nothing!(t, for_ms 59_999);
        assert_eq!(t.stack.time_waits(), 1);
        t.wait_ms(1);
        t.expect_gone();
    }
}

#[test]
fn time_wait_ignores_rst() {
    // RFC 1337.
    let mut t = time_wait(Offer::ALL);
    inject!(t, "R", seq(2));
    inject!(t, "R.", seq(2), ack(2));
    expect_nothing!(t);
    assert_eq!(t.stack.time_waits(), 1);
}

#[test]
fn time_wait_answers_strays_not_too_often() {
    let mut t = time_wait(Offer::ALL);
    // Otherwise, two ends that disagree would acknowledge each other forever.
    for _ in 0..100 {
        inject!(t, ".", seq(500), ack(2));
        t.wait_ms(1);
    }
    assert_eq!(t.out.len(), 1);
    t.out.clear();
    t.wait_ms(500);
    inject!(t, ".", seq(500), ack(2));
    expect!(t, ".", seq(2), ack(2));
    // A repeated FIN is no such stray.
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", seq(2), ack(2));
}

#[test]
fn time_wait_gives_way_to_a_new_connection() {
    // RFC 6191: a newer timestamp.
    let mut t = time_wait(Offer::ALL);
    t.wait_ms(10);
    let (old_iss, old_end) = (t.iss, t.iss.wrapping_add(2));
    inject!(t, "S", seq(0), mss(1_460), sackok());
    let syn = expect!(t, "S.");
    assert_ne!(syn.wire.seq, old_iss);
    // The new numbers lie beyond everything of the old connection.
    assert!(syn.wire.seq.wrapping_sub(old_end) < 1 << 31);
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (1, 0));
    inject!(t, ".", seq(1), ack(1));
    assert!(t.stack.accept(t.listener.unwrap()).is_some());

    // Without timestamps a greater sequence number does (RFC 1122 §4.2.2.13).
    let mut t = time_wait(Offer::EASY);
    inject!(t, "S", seq(100), mss(1_000));
    expect!(t, "S.");
    // An old SYN gets an ACK, and nothing changes.
    let mut t = time_wait(Offer::EASY);
    inject!(t, "S", seq(0), mss(1_000));
    expect!(t, ".", seq(2), ack(2));
    assert_eq!(t.stack.time_waits(), 1);
    // An older timestamp makes it old, whatever its number.
    let mut t = time_wait(Offer::ALL);
    inject!(t, "S", seq(100), ts(1, 0));
    expect!(t, ".", seq(2), ack(2));
}

#[test]
fn connect_reuses_a_tuple_after_a_second() {
    for (offer, reusable) in [(Offer::ALL, true), (Offer::EASY, false)] {
        let mut t = Trace::new();
        let bind = ConnOptions { bind: Some("192.0.2.1:5000".parse().unwrap()), ..ConnOptions::default() };
        t.establish(offer, &bind);
        t.close();
        expect!(t, "F.");
        inject!(t, "F.", seq(1), ack(2));
        expect!(t, ".");
        let old = t.iss;
        assert!(t.stack.connect(t.now, t.peer, &bind).is_err(), "too soon");
        t.wait_ms(1_001);
        let again = t.stack.connect(t.now, t.peer, &bind);
        assert_eq!(again.is_ok(), reusable);
        if reusable {
            let syn = expect!(t, "S");
            assert!(syn.wire.seq.wrapping_sub(old.wrapping_add(2)) < 1 << 31);
            assert_eq!(t.stack.time_waits(), 0);
        }
    }
}

#[test]
fn a_full_time_wait_table_forgets() {
    let mut t = Trace::with(StackConfig::default().with(|c| c.max_tw_buckets = 0));
    t.accept(Offer::ALL);
    t.close();
    expect!(t, "F.");
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".");
    t.expect_gone();
}

#[test]
fn syn_received_may_be_closed() {
    // Simultaneous open, then close: RFC 9293 §3.10.4.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    t.syn(Offer::EASY);
    expect!(t, "S.");
    t.close();
    expect!(t, "F.", seq(1), ack(1));
    inject!(t, ".", seq(1), ack(2));
    inject!(t, "F.", seq(1), ack(2));
    expect!(t, ".", ack(2));
    t.wait_s(61);
    t.expect_gone();
}

#[test]
fn the_application_may_let_go_at_any_moment_and_nothing_leaks() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        let faults = support::Faults { loss: 30, reorder: 100, ..support::Faults::default() };
        world.faults(faults);
        let listener = world.stacks[1]
            .listen(format!("{}:80", support::B).parse().unwrap(), ListenOptions::default())
            .unwrap();
        let client = world.connect(0, &format!("{}:80", support::B));
        let mut server = None;
        let (mut written, mut back) = (0, 0);
        for side in [0, 1] {
            let moment = world.rng.below(300);
            let limit = world.now + Duration::from_millis(moment);
            while world.step(limit) {
                server = server.or_else(|| world.stacks[1].accept(listener).map(|(id, _)| id));
                pump(&mut world, 0, client, &mut written, 100_000);
                if let Some(server) = server {
                    pump(&mut world, 1, server, &mut back, 50_000);
                }
            }
            let now = world.now;
            let abort = world.rng.chance(300);
            let id = if side == 0 { Some(client) } else { server };
            if let Some(conn) = id.and_then(|id| world.stacks[side].conn_mut(id)) {
                if abort { conn.abort(now) } else { conn.close(now) }
            }
        }
        let now = world.now;
        world.stacks[1].close_listener(now, listener);
        world.run_for(Duration::from_secs(2_000));
        for (side, stack) in world.stacks.iter().enumerate() {
            assert_eq!((stack.connections(), stack.time_waits()), (0, 0), "seed {seed}, side {side}");
            assert_eq!(stack.poll_timeout(), None, "seed {seed}, side {side}");
        }
    }
}
