//! Peers that say nothing: keepalive (RFC 9293 §3.8.4) and the user timeout (RFC 9293 §3.9.1, RFC 5482).

use crate::support;

use support::trace::{Offer, Trace};
use taut_core::{
    ConnError, ConnOptions, Duration, Event, Keepalive, ListenOptions, OptionError, SetOption, StackConfig,
    State,
};

const EVERY: Keepalive =
    Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(3), count: 4 };

fn open(keepalive: Option<Keepalive>, user_timeout: Option<Duration>) -> Trace {
    let conn = ConnOptions { keepalive, user_timeout, ..ConnOptions::default() };
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    t
}

#[track_caller]
fn expect_timed_out(t: &mut Trace) {
    let id = t.id.unwrap();
    t.events.retain(|event| matches!(event, Event::Failed(..)));
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
}

#[test]
fn a_dead_peer_is_given_up_after_idle_and_count_intervals() {
    let mut t = open(Some(EVERY), None);
    // RFC 9293 §3.8.4: SEG.SEQ = SND.NXT - 1, and no data.
    expect!(t, ".", seq(0), ack(1), after_ms(10_000));
    for _ in 0..3 {
        expect!(t, ".", seq(0), ack(1), after_ms(3_000));
    }
    assert_eq!(t.state(), State::Established);
    // Linux tells the peer, should it be alive after all.
    expect!(t, "R.", seq(1), after_ms(3_000));
    expect_timed_out(&mut t);
    assert_eq!(t.stack.counters().tcp_keepalive, 4);
    t.close();
    t.expect_gone();
}

#[test]
fn a_live_peer_stays() {
    let mut t = open(Some(EVERY), None);
    for _ in 0..100 {
        expect!(t, ".", seq(0), after_ms(10_000));
        inject!(t, ".", seq(1), ack(1));
        expect_nothing!(t);
    }
    assert_eq!(t.state(), State::Established);
}

#[test]
fn gw_148_a_keepalive_of_the_peer_is_heard() {
    let mut t = open(None, None);
    let heard = |t: &mut Trace| t.info().last_ack_recv.as_millis();
    // RFC 9293 §3.8.4: without data, and with a byte of garbage for older hosts.
    for len in [0, 1] {
        t.wait_ms(60_000);
        assert!(heard(&mut t) >= 60_000);
        inject!(t, ".", seq(0), ack(1), len(len));
        expect!(t, ".", seq(1), ack(1));
        assert_eq!(heard(&mut t), 0);
    }
    // Another number is no keepalive.
    t.wait_ms(60_000);
    inject!(t, ".", seq(10_000_000), ack(1));
    assert!(heard(&mut t) >= 60_000);
}

#[test]
fn one_answer_is_enough() {
    let mut t = open(Some(EVERY), None);
    expect!(t, ".", seq(0), after_ms(10_000));
    for _ in 0..3 {
        expect!(t, ".", seq(0), after_ms(3_000));
    }
    t.wait_ms(2_999);
    inject!(t, ".", seq(1), ack(1));
    expect!(t, ".", seq(0), after_ms(10_000));
    assert_eq!(t.state(), State::Established);
}

#[test]
fn idle_counts_from_what_was_heard_last() {
    // Also when the interval between probes is much longer than that.
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(75), count: 9 };
    let mut t = open(Some(keepalive), None);
    t.wait_s(7);
    inject!(t, "P.", seq(1), ack(1), len(10));
    t.read(10);
    t.wait_ms(900);
    t.out.clear();
    expect_nothing!(t, for_ms 9_099);
    expect!(t, ".", seq(0), after_ms(1));
}

#[test]
fn data_in_flight_has_its_own_timer() {
    let mut t = open(Some(EVERY), None);
    t.wait_s(9);
    t.write(100);
    expect!(t, "P.", seq(1), len(100));
    t.wait_s(5);
    assert!(t.out.drain(..).all(|got| got.payload.len() == 100), "retransmissions, no keepalives");
    inject!(t, ".", seq(1), ack(101));
    expect!(t, ".", seq(100), after_ms(10_000));
}

#[test]
fn it_is_switched_on_and_off_at_any_time() {
    let mut t = open(None, None);
    // The SYN-ACK's timer may be found to be over once.
    t.wait_s(2);
    let (now, bad) = (t.now, Keepalive { count: 0, ..EVERY });
    assert_eq!(t.stack.poll_timeout(), None, "an idle connection has no timer");
    assert!(matches!(
        t.conn().set_option(now, SetOption::Keepalive(Some(bad))),
        Err(OptionError::OutOfRange(_))
    ));
    t.conn().set_option(now, SetOption::Keepalive(Some(EVERY))).unwrap();
    expect!(t, ".", seq(0), after_ms(10_000));
    let now = t.now;
    t.conn().set_option(now, SetOption::Keepalive(None)).unwrap();
    expect_nothing!(t, for_ms 100_000);
}

#[test]
fn a_keepalive_is_answered() {
    let mut t = open(None, None);
    // RFC 9293 §3.8.4: with a byte of garbage or without.
    inject!(t, ".", seq(0), ack(1));
    expect!(t, ".", seq(1), ack(1));
    inject!(t, ".", seq(0), ack(1), len(1));
    expect!(t, ".", seq(1), ack(1));
    assert_eq!(t.info().bytes_received, 0);
}

#[test]
fn the_user_timeout_bounds_retransmission() {
    for seconds in [1, 5, 30] {
        let mut t = open(None, Some(Duration::from_secs(seconds)));
        t.wait_s(100);
        t.write(100);
        t.wait_ms(seconds * 1_000 - 1);
        assert_eq!(t.state(), State::Established);
        // It counts from the first timeout: 200 ms after the tail loss probe, which is 200 ms after the
        // write.
        t.wait_ms(400);
        assert_eq!(t.state(), State::Established);
        t.wait_ms(2);
        assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut), "{seconds} s");
    }
    // Without: tcp_retries2.
    let mut t = Trace::with(StackConfig::default().with(|c| c.tcp.retries2 = 5));
    t.accept(Offer::EASY);
    t.write(100);
    t.wait_ms(200 * 31);
    assert_eq!(t.state(), State::Established);
    t.wait_ms(200 * 40);
    expect_timed_out(&mut t);
}

#[test]
fn the_user_timeout_replaces_the_count_of_keepalives() {
    // RFC 5482 §4.2; Linux, likewise.
    let mut t = open(Some(EVERY), Some(Duration::from_secs(30)));
    expect!(t, ".", seq(0), after_ms(10_000));
    for _ in 0..6 {
        expect!(t, ".", seq(0), after_ms(3_000));
    }
    t.wait_s(3);
    expect_timed_out(&mut t);
}

#[test]
fn the_user_timeout_bounds_connect() {
    let mut t = Trace::new();
    let options = ConnOptions { user_timeout: Some(Duration::from_secs(2)), ..ConnOptions::default() };
    let id = t.connect_with(&options);
    expect!(t, "S");
    expect!(t, "S", after_ms(1_000));
    t.wait_s(2);
    assert_eq!(t.event(), Some(Event::Failed(id, ConnError::TimedOut)));
}

#[test]
fn no_time_is_zero() {
    // Linux takes at least a second; a probe every 0 s would never end.
    for (idle, interval) in [(0, 1), (1, 0)] {
        let keepalive =
            Keepalive { idle: Duration::from_secs(idle), interval: Duration::from_secs(interval), count: 4 };
        let mut t = open(Some(keepalive), None);
        expect_nothing!(t, for_ms 100_000);
        let now = t.now;
        assert_eq!(
            t.conn().set_option(now, SetOption::Keepalive(Some(keepalive))),
            Err(OptionError::OutOfRange("SO_KEEPALIVE"))
        );
    }
}

#[test]
fn a_user_timeout_may_take_more_than_255_probes() {
    let second = Duration::from_secs(1);
    let keepalive = Keepalive { idle: second, interval: second, count: 9 };
    let mut t = open(Some(keepalive), Some(Duration::from_secs(300)));
    for _ in 0..299 {
        expect!(t, ".", seq(0), after_ms(1_000));
    }
    assert_eq!(t.state(), State::Established);
    expect!(t, "R.", seq(1), after_ms(1_000));
    expect_timed_out(&mut t);
}
