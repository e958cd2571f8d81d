//! The clock jumps an hour ahead, as when the process or its machine was stopped: JUMP-1 to JUMP-5 of
//! docs/spec/reliability.md. Every timer that passed meanwhile fires once; what it counts are attempts, so
//! nothing is given up that has not been tried.

use crate::support;

use support::trace::{Offer, Trace};
use taut_core::{ConnOptions, Duration, Keepalive, ListenOptions, StackConfig, State};

const HOUR: Duration = Duration::from_secs(3_600);

fn with(conn: ConnOptions) -> Trace {
    let mut t = Trace::new();
    t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
    t
}

/// An hour passes in an instant. One call handles all timers, and the next deadline is in the future.
fn jump(t: &mut Trace) {
    t.now += HOUR;
    t.stack.handle_timeout(t.now);
    t.poll();
    assert!(t.stack.poll_timeout().is_none_or(|(at, _)| at > t.now));
    // For `after_ms`.
    t.wait_ms(0);
}

#[test]
fn jump_01_data_in_flight_is_retransmitted_once() {
    let mut t = with(ConnOptions::default());
    t.write(3_000);
    t.poll();
    t.out.clear();
    jump(&mut t);
    // One timeout of the fifteen that an hour has room for (`tcp_retries2`): the first segment, or the probe
    // of the tail.
    assert_eq!(t.out.len(), 1, "{:?}", t.out);
    assert!(t.stack.counters().tcp_timeouts <= 1);
    assert_eq!(t.state(), State::Established);
    let info = t.info();
    assert!(info.backoff <= 1, "{info:?}");
    // The peer was there all the time.
    inject!(t, ".", seq(1), ack(3_001));
    t.out.clear();
    t.write(1_000);
    expect!(t, ".", len(1_000));
}

/// RFC 9293 §3.8.4, and four probes: none of them is skipped.
#[test]
fn jump_02_keepalive_probes_one_after_the_other() {
    let keepalive = Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(3), count: 4 };
    let mut t = with(ConnOptions { keepalive: Some(keepalive), ..ConnOptions::default() });
    t.now += HOUR;
    t.stack.handle_timeout(t.now);
    expect!(t, ".", seq(0), ack(1));
    for _ in 0..3 {
        expect!(t, ".", seq(0), ack(1), after_ms(3_000));
    }
    expect!(t, "R.", after_ms(3_000));
}

/// Linux counts the user timeout from the first retransmission: one that has not begun does not pass in the
/// jump, one that has begun does.
#[test]
fn jump_03_the_user_timeout_counts_from_the_first_retransmission() {
    let options = ConnOptions { user_timeout: Some(Duration::from_secs(30)), ..ConnOptions::default() };
    let mut t = with(options.clone());
    t.write(1_000);
    t.poll();
    jump(&mut t);
    assert_eq!(t.state(), State::Established);
    t.wait_ms(29_000);
    assert_eq!(t.state(), State::Established);
    t.wait_ms(2_000);
    assert_eq!(t.state(), State::Closed);

    let mut t = with(options);
    t.write(1_000);
    t.wait_ms(5_000);
    assert!(t.stack.counters().tcp_timeouts > 0);
    jump(&mut t);
    assert_eq!(t.state(), State::Closed);
}

#[test]
fn jump_04_handshakes_and_windows_are_probed_once() {
    // A connection attempt, and a half-open one.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S");
    jump(&mut t);
    expect!(t, "S");
    expect_nothing!(t);
    assert_eq!(t.state(), State::SynSent);
    let mut t = Trace::new();
    t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    jump(&mut t);
    expect!(t, "S.");
    expect_nothing!(t);
    assert_eq!((t.stack.connections(), t.stack.counters().retrans_segs), (1, 1));
    // A closed window.
    let mut t = with(ConnOptions::default());
    inject!(t, ".", seq(1), ack(1), win(0));
    t.write(1_000);
    expect_nothing!(t);
    jump(&mut t);
    expect!(t, ".", seq(0), ack(1));
    expect_nothing!(t);
    assert_eq!(t.stack.counters().tcp_win_probe, 1);
}

/// A thousand connections whose timers all pass, and a thousand in TIME-WAIT: one call, and one packet each.
#[test]
fn jump_05_a_thousand_at_once() {
    let mut t = Trace::with(StackConfig::default());
    let listener = t.listen();
    let mut ids = Vec::new();
    for port in 1..=2_000 {
        inject!(t, "S", seq(0), port(port), mss(1_000), win(65_535));
        inject!(t, ".", seq(1), ack(1), port(port));
        let (id, _) = t.stack.accept(listener).unwrap();
        let now = t.now;
        if port <= 1_000 {
            // It is closed from both sides, by us first.
            t.stack.conn_mut(id).unwrap().close(now);
            t.poll();
            inject!(t, "F.", seq(1), ack(2), port(port));
        } else {
            t.stack.conn_mut(id).unwrap().write(now, &[1; 1_000]).unwrap();
            t.poll();
            ids.push(id);
        }
    }
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (1_000, 1_000));
    t.out.clear();
    jump(&mut t);
    assert_eq!((t.stack.connections(), t.stack.time_waits()), (1_000, 0));
    assert_eq!(t.out.len(), 1_000);
    assert!(ids.iter().all(|&id| t.stack.conn(id).unwrap().state() == State::Established));
}
