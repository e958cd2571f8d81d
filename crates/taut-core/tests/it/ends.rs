//! How the ends of connections are counted: `TcpAttemptFails` and `TcpEstabResets`, which RFC 4022 defines by
//! the state in which a connection ends. The same ends were counted by Linux 6.18 between two sockets on a
//! loopback device.

use crate::support;

use support::trace::{Offer, Trace};
use taut_core::{ConnError, ConnOptions, Duration, Keepalive, ListenOptions, SetOption, StackConfig, State};
use taut_wire::Unreachable;

/// A way to end a connection, and what it adds to the counters: attempts that failed, connections that were
/// reset.
type End = (&'static str, Make, (u64, u64));

type Make = fn() -> Trace;

fn counts(t: &Trace) -> (u64, u64) {
    let counters = t.stack.counters();
    (counters.attempt_fails, counters.estab_resets)
}

fn connecting() -> Trace {
    let mut t = Trace::new();
    t.connect();
    t.out.clear();
    t
}

/// Two SYNs have crossed.
fn crossed() -> Trace {
    let mut t = connecting();
    t.syn(Offer::EASY);
    t.out.clear();
    t
}

fn established() -> Trace {
    Trace::accepted(Offer::EASY)
}

/// The peer has ended its stream.
fn close_wait() -> Trace {
    let mut t = established();
    inject!(t, "F.", seq(1), ack(1));
    t.out.clear();
    assert_eq!(t.state(), State::CloseWait);
    t
}

/// We have ended ours; `acked`: the peer knows.
fn fin_wait(acked: bool) -> Trace {
    let mut t = established();
    t.shutdown();
    expect!(t, "F.", seq(1));
    if acked {
        inject!(t, ".", seq(1), ack(2));
    }
    assert_eq!(t.state(), if acked { State::FinWait2 } else { State::FinWait1 });
    t
}

fn abort(mut t: Trace) -> Trace {
    let now = t.now;
    t.conn().abort(now);
    t
}

fn reset(mut t: Trace, seq: u32) -> Trace {
    inject!(t, "R", seq(seq));
    t
}

/// The peer is silent from now on, for longer than anybody waits.
fn silence(mut t: Trace) -> Trace {
    t.wait_s(2_000);
    t
}

#[test]
fn count_01_the_state_says_how_an_end_is_counted() {
    let ends: &[End] = &[
        // SYN-SENT.
        (
            "refused",
            || {
                let mut t = connecting();
                inject!(t, "R.", seq(0), ack(1));
                t
            },
            (1, 0),
        ),
        ("no answer", || silence(connecting()), (1, 0)),
        (
            "unreachable",
            || {
                let mut t = Trace::new();
                t.connect();
                let syn = expect!(t, "S");
                t.inject_icmp(Unreachable::Host, &syn.bytes);
                t
            },
            (1, 0),
        ),
        // Linux: tcp_close and tcp_disconnect count nothing there.
        (
            "given up by the application",
            || {
                let mut t = connecting();
                t.close();
                t
            },
            (0, 0),
        ),
        ("aborted by the application", || abort(connecting()), (0, 0)),
        // SYN-RECEIVED.
        ("crossed and refused", || reset(crossed(), 1), (1, 0)),
        ("crossed, no answer", || silence(crossed()), (1, 0)),
        (
            "a listener's, refused",
            || {
                let mut t = Trace::new();
                t.listen();
                t.syn(Offer::EASY);
                reset(t, 1)
            },
            (1, 0),
        ),
        (
            "a listener's, no answer",
            || {
                let mut t = Trace::new();
                t.listen();
                t.syn(Offer::EASY);
                silence(t)
            },
            (1, 0),
        ),
        // ESTABLISHED.
        ("reset by the peer", || reset(established(), 1), (0, 1)),
        ("aborted", || abort(established()), (0, 1)),
        (
            "closed with data unread",
            || {
                let mut t = established();
                inject!(t, "P.", seq(1), len(10));
                t.close();
                t
            },
            (0, 1),
        ),
        (
            "data is not acknowledged",
            || {
                let mut t = established();
                t.write(10);
                silence(t)
            },
            (0, 1),
        ),
        (
            "the user's patience is over",
            || {
                let mut t = established();
                let now = t.now;
                t.conn().set_option(now, SetOption::UserTimeout(Some(Duration::from_secs(1)))).unwrap();
                t.write(10);
                silence(t)
            },
            (0, 1),
        ),
        (
            "nobody accepted it",
            || {
                let mut t = Trace::new();
                let listener = t.listen_with(ListenOptions::default());
                t.syn(Offer::EASY);
                inject!(t, ".", seq(1), ack(1));
                let now = t.now;
                t.stack.close_listener(now, listener);
                t
            },
            (0, 1),
        ),
        // CLOSE-WAIT.
        ("reset in CLOSE-WAIT", || reset(close_wait(), 2), (0, 1)),
        ("aborted in CLOSE-WAIT", || abort(close_wait()), (0, 1)),
        // The other states: a stream had been ended before.
        ("reset in FIN-WAIT-1", || reset(fin_wait(false), 1), (0, 0)),
        ("reset in FIN-WAIT-2", || reset(fin_wait(true), 1), (0, 0)),
        ("aborted in FIN-WAIT-2", || abort(fin_wait(true)), (0, 0)),
        ("FIN is not acknowledged", || silence(fin_wait(false)), (0, 0)),
        (
            "data after close",
            || {
                let mut t = fin_wait(true);
                t.close();
                inject!(t, "P.", seq(1), ack(2), len(10));
                t
            },
            (0, 0),
        ),
        (
            "nothing after close",
            || {
                let mut t = fin_wait(true);
                t.close();
                silence(t)
            },
            (0, 0),
        ),
        (
            "reset in LAST-ACK",
            || {
                let mut t = close_wait();
                t.shutdown();
                t.poll();
                reset(t, 2)
            },
            (0, 0),
        ),
        (
            "closed from both ends",
            || {
                let mut t = close_wait();
                t.close();
                t.poll();
                inject!(t, ".", seq(2), ack(2));
                t
            },
            (0, 0),
        ),
        (
            "closed from both ends, we first",
            || {
                let mut t = fin_wait(true);
                inject!(t, "F.", seq(1), ack(2));
                silence(t)
            },
            (0, 0),
        ),
    ];
    for (name, end, added) in ends {
        let mut t = end();
        t.poll();
        assert_eq!(counts(&t), *added, "{name}");
        if let Some(conn) = t.id.and_then(|id| t.stack.conn(id)) {
            assert!(matches!(conn.state(), State::Closed | State::TimeWait), "{name}: {:?}", conn.state());
        }
    }
}

/// Each RST that leaves is one more of `TcpOutRsts`, of a connection and without one.
#[test]
fn count_03_resets_that_leave() {
    let ends: &[(&str, Make, u64)] = &[
        ("an attempt that is aborted has nobody to tell", || abort(connecting()), 0),
        ("an abort", || abort(established()), 1),
        ("an abort in CLOSE-WAIT", || abort(close_wait()), 1),
        (
            "a close with data unread",
            || {
                let mut t = established();
                inject!(t, "P.", seq(1), len(10));
                t.close();
                t
            },
            1,
        ),
        (
            "data after the close",
            || {
                let mut t = fin_wait(true);
                t.close();
                inject!(t, "P.", seq(1), ack(2), len(10));
                t
            },
            1,
        ),
        (
            "a close",
            || {
                let mut t = established();
                t.close();
                t
            },
            0,
        ),
        ("the peer's RST is not answered", || reset(established(), 1), 0),
    ];
    for (name, end, resets) in ends {
        let mut t = end();
        t.poll();
        let left = t.out.iter().filter(|got| got.has("R")).count() as u64;
        assert_eq!((t.stack.counters().out_rsts, left), (*resets, *resets), "{name}");
    }
}

/// An end because nothing answers is one more of `TcpExtTCPAbortOnTimeout`, whichever timer finds it.
#[test]
fn count_02_what_is_given_up_is_counted() {
    let patient = |timeout: Option<Duration>| {
        let conn = ConnOptions { user_timeout: timeout, ..ConnOptions::default() };
        let mut t = Trace::new();
        t.accept_with(Offer::EASY, ListenOptions { conn, ..ListenOptions::default() });
        t
    };
    for timeout in [None, Some(Duration::from_secs(1)), Some(Duration::from_millis(2_200))] {
        let ends: [(&str, &dyn Fn() -> Trace); 5] = [
            ("a SYN", &|| {
                let mut t = Trace::new();
                t.connect_with(&ConnOptions { user_timeout: timeout, ..ConnOptions::default() });
                t
            }),
            ("data", &|| {
                let mut t = patient(timeout);
                t.write(10);
                t
            }),
            ("a FIN", &|| {
                let mut t = patient(timeout);
                t.shutdown();
                t
            }),
            ("a closed window", &|| {
                let mut t = patient(timeout);
                inject!(t, ".", seq(1), ack(1), win(0));
                t.write(10);
                t
            }),
            ("an idle peer", &|| {
                let mut t = patient(timeout);
                let (idle, interval) = (Duration::from_secs(5), Duration::from_secs(1));
                let keepalive = Keepalive { idle, interval, count: 3 };
                let now = t.now;
                t.conn().set_option(now, SetOption::Keepalive(Some(keepalive))).unwrap();
                t
            }),
        ];
        for (name, end) in ends {
            let mut t = silence(end());
            assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut), "{name}, {timeout:?}");
            assert_eq!(t.stack.counters().tcp_abort_on_timeout, 1, "{name}, {timeout:?}");
        }
    }
}

/// A connection that never was in trouble counts neither, and one that begins does not either.
#[test]
fn count_01_what_goes_on_is_not_counted() {
    let mut t = Trace::with(StackConfig::default());
    t.accept(Offer::EASY);
    t.write(3_000);
    t.poll();
    inject!(t, "P.", seq(1), ack(3_001), len(10));
    inject!(t, "R", seq(500));
    assert_eq!((t.state(), counts(&t)), (State::Established, (0, 0)));
}
