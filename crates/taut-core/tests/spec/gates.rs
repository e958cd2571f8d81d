//! The gates through the public interface: for each a table of states, and what the device gets when it asks next,
//! the size of a packet or the gate that is shut; then their order, with every later gate shut as well.

#![allow(clippy::single_range_in_vec_init, reason = "what leaves is a list of ranges, often of one")]

use crate::rig::{Ack, Device, MSS, Rig, Setup, truesize};
use crate::tso::{fast, goal_of_eight, leave_of_window, micros, millis};
use taut_core::{Blocked, ConnOptions, Duration, Instant, LinkCaps, PacingMode, SetOption};

/// What the device gets: payload bytes, or the reason for nothing.
type Outcome = Result<u64, Blocked>;

/// A state, by its name and how it comes about, and what the device then gets.
type Case<'a> = (&'a str, &'a dyn Fn(&mut Rig), Outcome);

/// The pacing gate is shut; until when is another question.
const PACED: Blocked = Blocked::Pacing { until: Instant::ZERO };

/// A device that was asleep asks for one packet.
#[track_caller]
fn next(rig: &mut Rig) -> Outcome {
    let before = rig.sent.len();
    rig.device = Device::Keeps;
    rig.poll_one();
    rig.device = Device::Sleeps;
    match rig.sent.get(before) {
        Some(sent) => Ok(sent.len()),
        None => Err(match rig.blocked() {
            Blocked::Pacing { .. } => PACED,
            other => other,
        }),
    }
}

/// Each case begins with a fresh connection whose device is asleep.
#[track_caller]
fn check(open: impl Fn() -> Rig, cases: &[Case<'_>]) {
    for (name, arrange, expected) in cases {
        let mut rig = open();
        rig.device = Device::Sleeps;
        arrange(&mut rig);
        assert_eq!(next(&mut rig), *expected, "{name}");
    }
}

/// Writes and sends; the device completes at once.
#[track_caller]
fn send(rig: &mut Rig, len: u64) {
    let device = std::mem::replace(&mut rig.device, Device::Completes);
    rig.write(len);
    assert_eq!(rig.info().notsent_bytes, 0, "all of it left");
    rig.device = device;
}

/// As [`send`], in several writes.
#[track_caller]
fn send_each(rig: &mut Rig, lens: &[u64]) {
    for &len in lens {
        send(rig, len);
    }
}

/// Shuts the small queue's gate for every connection that has something below TCP and two packets unacknowledged.
#[track_caller]
fn shut_small_queue(rig: &mut Rig) {
    rig.stack.set_sysctl("net.ipv4.tcp_limit_output_bytes", "1").unwrap();
}

fn open_default() -> Rig {
    Setup::default().open()
}

fn nodelay() -> Rig {
    let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
    Setup { options, ..Setup::default() }.open()
}

#[test]
fn gate_no_data() {
    check(
        open_default,
        &[
            ("nothing was ever written", &|_| {}, Err(Blocked::NoData)),
            ("all was sent", &|rig| send(rig, 1_000), Err(Blocked::NoData)),
            (
                "all was acknowledged",
                &|rig| {
                    send(rig, 1_000);
                    rig.ack(1_000);
                },
                Err(Blocked::NoData),
            ),
            ("a byte", &|rig| rig.write(1), Ok(1)),
            (
                "a FIN is something to send",
                &|rig| {
                    send(rig, 1_000);
                    rig.shutdown();
                },
                Ok(0),
            ),
        ],
    );
    // Neither pacing nor a full window is a reason where there is nothing to send.
    let paced = || {
        let mut rig = open_default();
        rig.limit_rate(100_000);
        rig
    };
    check(paced, &[("paced, and the window is full", &|rig| send(rig, 10 * MSS), Err(Blocked::NoData))]);
}

#[test]
fn gate_pacing() {
    // 100 kB/s: packets of two segments, the tenth segment is the first that is followed by a gap.
    let paced = || {
        let mut rig = open_default();
        rig.limit_rate(100_000);
        rig
    };
    // Acknowledged 20 ms later; more is written, and 8.96 ms of the gap are left.
    let ten_sent = |rig: &mut Rig| {
        send(rig, 10 * MSS);
        rig.advance(millis(20));
        rig.ack(10 * MSS);
        rig.write(4 * MSS);
    };
    check(
        paced,
        &[
            (
                "the first eight are free",
                &|rig| {
                    send(rig, 8 * MSS);
                    rig.write(4 * MSS);
                },
                Ok(2 * MSS),
            ),
            ("after ten there is a gap", &ten_sent, Err(PACED)),
            (
                "of 2 mss / rate: not yet",
                &|rig| {
                    ten_sent(rig);
                    rig.advance(micros(8_960) - Duration::from_nanos(1));
                },
                Err(PACED),
            ),
            (
                "and now",
                &|rig| {
                    ten_sent(rig);
                    rig.advance(micros(8_960));
                },
                Ok(2 * MSS),
            ),
            (
                "before a full congestion window",
                &|rig| {
                    send(rig, 10 * MSS);
                    rig.write(MSS);
                },
                Err(PACED),
            ),
            (
                "before a closed window",
                &|rig| {
                    send(rig, 10 * MSS);
                    rig.ack_with(&Ack::of(10 * MSS).window(0));
                    rig.write(MSS);
                },
                Err(PACED),
            ),
            (
                "before Nagle",
                &|rig| {
                    send_each(rig, &[8 * MSS, MSS + 10]);
                    rig.ack(8 * MSS);
                    rig.write(10);
                },
                Err(PACED),
            ),
        ],
    );
    let nobody_waits = || {
        let mut rig = Setup::default().config(|config| config.pacing = PacingMode::Off).open();
        rig.limit_rate(100_000);
        rig
    };
    check(
        nobody_waits,
        &[
            ("PacingMode::Off", &ten_sent, Ok(2 * MSS)),
            (
                "with the window full and nobody pacing it is the window",
                &|rig| {
                    send(rig, 10 * MSS);
                    rig.write(MSS);
                },
                Err(Blocked::Cwnd),
            ),
            (
                "and with a closed one the peer's",
                &|rig| {
                    send(rig, 10 * MSS);
                    rig.ack_with(&Ack::of(10 * MSS).window(0));
                    rig.write(MSS);
                },
                Err(Blocked::PeerWindow),
            ),
            (
                "and behind a small packet Nagle",
                &|rig| {
                    send_each(rig, &[8 * MSS, MSS + 10]);
                    rig.ack(8 * MSS);
                    rig.write(10);
                },
                Err(Blocked::Nagle),
            ),
        ],
    );
    let mut rig = paced();
    rig.device = Device::Sleeps;
    ten_sent(&mut rig);
    let until = rig.now + micros(8_960);
    let _ = next(&mut rig);
    assert_eq!(rig.blocked(), Blocked::Pacing { until });
    assert_eq!(rig.stack.poll_timeout().map(|(at, _)| at), Some(until), "the deadline is the gate's");
}

#[test]
fn gate_cwnd_and_its_quota() {
    // min(max(cwnd / 2, 1), cwnd - inflight): never more than half of the ten at once.
    let quota = |in_flight: u64| {
        move |rig: &mut Rig| {
            for _ in 0..in_flight {
                send(rig, MSS);
            }
            rig.write(100_000);
        }
    };
    check(
        || fast().open(),
        &[
            ("none in flight", &quota(0), Ok(5 * MSS)),
            ("three", &quota(3), Ok(5 * MSS)),
            ("five", &quota(5), Ok(5 * MSS)),
            ("six", &quota(6), Ok(4 * MSS)),
            ("nine: a third of the window it is not, but the ACK is an RTT away", &quota(9), Ok(MSS)),
            ("ten", &quota(10), Err(Blocked::Cwnd)),
            (
                "before a full peer window",
                &|rig| {
                    send(rig, 10 * MSS);
                    rig.ack_with(&Ack::of(0).window(0));
                    rig.write(MSS);
                },
                Err(Blocked::Cwnd),
            ),
            (
                "before cork",
                &|rig| {
                    send(rig, 10 * MSS);
                    rig.set(SetOption::Cork(true));
                    rig.write(10);
                },
                Err(Blocked::Cwnd),
            ),
            (
                "before Nagle",
                &|rig| {
                    send_each(rig, &[9 * MSS, 10]);
                    rig.write(10);
                },
                Err(Blocked::Cwnd),
            ),
        ],
    );
}

#[test]
fn gate_peer_window() {
    // 10,000 bytes: more than the initial window of the congestion control allows at once.
    let open = || Setup { window: 10_000, wscale: 0, ..fast() }.open();
    check(
        open,
        &[
            ("half of cwnd fits", &|rig| rig.write(100_000), Ok(5 * MSS)),
            (
                "what is left of the window, in whole segments (RFC 9293 3.8.6.2.1)",
                &|rig| {
                    send(rig, 5 * MSS);
                    rig.write(100_000);
                },
                Ok(MSS),
            ),
            (
                "1312 bytes are left: no room for a segment",
                &|rig| {
                    send(rig, 6 * MSS);
                    rig.write(100_000);
                },
                Err(Blocked::PeerWindow),
            ),
            (
                "room for all that is left",
                &|rig| {
                    send(rig, 6 * MSS);
                    rig.write(1_312);
                },
                Ok(1_312),
            ),
            (
                "one byte too many",
                &|rig| {
                    send(rig, 6 * MSS);
                    rig.write(1_313);
                },
                Err(Blocked::PeerWindow),
            ),
            (
                "closed",
                &|rig| {
                    send(rig, MSS);
                    rig.ack_with(&Ack::of(MSS).window(0));
                    rig.write(1);
                },
                Err(Blocked::PeerWindow),
            ),
            (
                "before Nagle",
                &|rig| {
                    send_each(rig, &[6 * MSS, 1_300]);
                    rig.write(13);
                },
                Err(Blocked::PeerWindow),
            ),
            (
                "of which one byte less would be Nagle's",
                &|rig| {
                    send_each(rig, &[6 * MSS, 1_300]);
                    rig.write(12);
                },
                Err(Blocked::Nagle),
            ),
            (
                "before cork",
                &|rig| {
                    send(rig, 6 * MSS);
                    rig.set(SetOption::Cork(true));
                    rig.write(1_313);
                },
                Err(Blocked::PeerWindow),
            ),
        ],
    );
}

#[test]
fn gate_nagle_and_cork() {
    const NAGLE: Outcome = Err(Blocked::Nagle);
    const CORK: Outcome = Err(Blocked::Cork);
    // What is in flight, and what 10 bytes do under: nothing, NODELAY, CORK, both, MSG_MORE.
    let table: [(&str, &[u64], [Outcome; 5]); 4] = [
        ("nothing", &[], [Ok(10), Ok(10), CORK, CORK, CORK]),
        ("a full segment", &[MSS], [Ok(10), Ok(10), CORK, CORK, CORK]),
        ("a small packet", &[10], [NAGLE, Ok(10), CORK, CORK, CORK]),
        ("a small one and a full one", &[10, MSS], [NAGLE, Ok(10), CORK, CORK, CORK]),
    ];
    for (in_flight, lens, outcomes) in table {
        for (switches, expected) in outcomes.into_iter().enumerate() {
            let mut rig = open_default();
            rig.device = Device::Sleeps;
            send_each(&mut rig, lens);
            rig.set(SetOption::Nodelay(matches!(switches, 1 | 3)));
            rig.set(SetOption::Cork(matches!(switches, 2 | 3)));
            if switches == 4 {
                rig.write_more(10);
            } else {
                rig.write(10);
            }
            assert_eq!(next(&mut rig), expected, "behind {in_flight}, switches {switches}");
        }
    }
    check(
        open_default,
        &[
            (
                "a full segment is not withheld",
                &|rig| {
                    send(rig, 10);
                    rig.write(MSS);
                },
                Ok(MSS),
            ),
            (
                "nor is the end of the stream",
                &|rig| {
                    send(rig, 10);
                    rig.write(10);
                    rig.shutdown();
                },
                Ok(10),
            ),
            (
                "nor what is not the tail",
                &|rig| {
                    send(rig, 10);
                    rig.write_eor(10);
                    rig.write(10);
                },
                Ok(10),
            ),
            (
                "the small packet was acknowledged",
                &|rig| {
                    send(rig, 10);
                    rig.ack(10);
                    rig.write(10);
                },
                Ok(10),
            ),
            (
                "and a large one sent meanwhile was not",
                &|rig| {
                    send_each(rig, &[10, MSS]);
                    rig.ack(10);
                    rig.write(10);
                },
                Ok(10),
            ),
            (
                "odd end: only whole segments",
                &|rig| {
                    send(rig, 10);
                    rig.write(MSS + 10);
                },
                Ok(MSS),
            ),
            ("MSG_MORE: only whole segments", &|rig| rig.write_more(MSS + 10), Ok(MSS)),
            (
                "the next write says otherwise",
                &|rig| {
                    rig.write_more(10);
                    rig.write(10);
                },
                Ok(20),
            ),
            (
                "NODELAY sets free what Nagle holds",
                &|rig| {
                    send(rig, 10);
                    rig.write(10);
                    rig.set(SetOption::Nodelay(true));
                },
                Ok(10),
            ),
            (
                "before the small queue",
                &|rig| {
                    rig.device = Device::Keeps;
                    rig.write(10);
                    rig.device = Device::Sleeps;
                    send(rig, MSS);
                    shut_small_queue(rig);
                    rig.stack.set_sysctl("net.ipv4.tcp_autocorking", "0").unwrap();
                    rig.write(10);
                },
                NAGLE,
            ),
        ],
    );
}

#[test]
fn gate_autocork() {
    const HELD: Outcome = Err(Blocked::Autocork);
    /// A hundred bytes below TCP and unacknowledged.
    fn hundred_below(rig: &mut Rig) {
        rig.device = Device::Keeps;
        rig.write(100);
        rig.device = Device::Sleeps;
    }
    check(
        nodelay,
        &[
            (
                "50 behind 100",
                &|rig| {
                    hundred_below(rig);
                    rig.write(50);
                },
                HELD,
            ),
            (
                "100 behind 100",
                &|rig| {
                    hundred_below(rig);
                    rig.write(100);
                },
                HELD,
            ),
            (
                "101 behind 100",
                &|rig| {
                    hundred_below(rig);
                    rig.write(101);
                },
                Ok(101),
            ),
            (
                "the end of a record",
                &|rig| {
                    hundred_below(rig);
                    rig.write_eor(50);
                },
                Ok(50),
            ),
            (
                "nothing unacknowledged",
                &|rig| {
                    hundred_below(rig);
                    rig.ack(100);
                    rig.write(50);
                },
                Ok(50),
            ),
            (
                "nothing below",
                &|rig| {
                    hundred_below(rig);
                    rig.complete_quietly(0);
                    rig.write(50);
                },
                Ok(50),
            ),
            (
                "switched off",
                &|rig| {
                    rig.stack.set_sysctl("net.ipv4.tcp_autocorking", "0").unwrap();
                    hundred_below(rig);
                    rig.write(50);
                },
                Ok(50),
            ),
            (
                "before cork: it is asked when a write ends",
                &|rig| {
                    hundred_below(rig);
                    rig.set(SetOption::Cork(true));
                    rig.write(50);
                },
                HELD,
            ),
            (
                "which is what holds after the completion",
                &|rig| {
                    hundred_below(rig);
                    rig.set(SetOption::Cork(true));
                    rig.write(50);
                    rig.complete_quietly(0);
                },
                Err(Blocked::Cork),
            ),
        ],
    );
}

/// A buffer that is full has nothing to wait for: 45 segments below much more than that.
#[test]
fn gate_autocork_lets_a_full_buffer_go() {
    const GOAL: u64 = 45 * MSS;
    for (len, expected) in [(GOAL - 1, Err(Blocked::Autocork)), (GOAL, Ok(GOAL))] {
        let mut rig = fast().open();
        rig.grow_cwnd(200, micros(100));
        let named = rig.sent.len();
        rig.write(2 * GOAL);
        assert_eq!(rig.out(), 2 * truesize(GOAL), "{:?}", &rig.sent[named..]);
        rig.device = Device::Sleeps;
        rig.write(len);
        assert_eq!(next(&mut rig), expected, "{len} bytes");
    }
}

#[test]
fn gate_tso_defer() {
    const DEFERRED: Outcome = Err(Blocked::TsoDefer);
    struct State {
        name: &'static str,
        /// Segments that the congestion window leaves; the goal is eight.
        left: u32,
        /// When the ACK of the oldest packet is due, and when the last packet departed, in microseconds.
        ack_in: u64,
        ago: u64,
        /// Segments written.
        written: u64,
        expected: Outcome,
    }
    const STATE: State = State {
        name: "everything says wait",
        left: 7,
        ack_in: 400,
        ago: 100,
        written: 69,
        expected: DEFERRED,
    };
    let states = [
        STATE,
        State { name: "the goal", left: 8, expected: Ok(8 * MSS), ..STATE },
        State { name: "last departure 1.1 ms ago", ago: 1_100, expected: Ok(7 * MSS), ..STATE },
        State { name: "last departure 1 ms ago", ago: 1_000, ..STATE },
        State { name: "the ACK is 1.1 ms away", ack_in: 1_100, expected: Ok(7 * MSS), ..STATE },
        State { name: "the ACK is 1 ms away", ack_in: 1_000, ..STATE },
        State { name: "one segment written: not a super-packet", written: 1, expected: Ok(MSS), ..STATE },
        State { name: "two written: limited by the application", written: 2, ..STATE },
    ];
    for State { name, left, ack_in, ago, written, expected } in states {
        let mut rig = goal_of_eight();
        leave_of_window(&mut rig, left, micros(ack_in), micros(ago));
        rig.device = Device::Sleeps;
        rig.write(written * MSS);
        assert_eq!(next(&mut rig), expected, "{name}");
    }

    // What is not the tail and fits does not wait: the rest would not make it bigger.
    let mut rig = goal_of_eight();
    leave_of_window(&mut rig, 7, micros(400), micros(100));
    rig.device = Device::Sleeps;
    rig.write_eor(3 * MSS);
    rig.write(30 * MSS);
    assert_eq!(next(&mut rig), Ok(3 * MSS), "the record before the tail");
    assert_eq!(next(&mut rig), DEFERRED, "the tail");

    // With tcp_tso_win_divisor 0, more than three segments are worth sending.
    for (left, expected) in [(3, DEFERRED), (4, Ok(4 * MSS))] {
        let mut rig = goal_of_eight();
        rig.stack.set_sysctl("net.ipv4.tcp_tso_win_divisor", "0").unwrap();
        leave_of_window(&mut rig, left, micros(400), micros(100));
        rig.device = Device::Sleeps;
        rig.write(100_000);
        assert_eq!(next(&mut rig), expected, "{left} segments left");
    }

    // A link that cuts no segments has no super-packets, and nothing to wait for.
    let mut rig = Setup { caps: LinkCaps::plain(1_500), ..Setup::default() }.open();
    send(&mut rig, 9 * MSS);
    rig.device = Device::Sleeps;
    rig.write(100_000);
    rig.advance(micros(500));
    assert_eq!(next(&mut rig), Ok(MSS));
}

#[test]
fn gate_small_queue() {
    // 40 ms and ten segments, twice that in slow start: 724,000 bytes/s, less than two packets in a millisecond. Packets
    // have two segments; the limit is two of them.
    let below = |packets: usize, completed: usize| {
        move |rig: &mut Rig| {
            rig.write(100_000);
            rig.device = Device::Keeps;
            for name in 0..packets {
                assert!(rig.poll_one());
                if name < completed {
                    rig.complete_quietly(name);
                }
            }
            rig.device = Device::Sleeps;
        }
    };
    check(
        open_default,
        &[
            ("none below", &below(0, 0), Ok(2 * MSS)),
            ("one below", &below(1, 0), Ok(2 * MSS)),
            ("two below", &below(2, 0), Err(Blocked::SmallQueue)),
            ("two in flight, one below", &below(2, 1), Ok(2 * MSS)),
            ("three in flight, one below", &below(3, 2), Ok(2 * MSS)),
            (
                "two below, one of them unacknowledged",
                &|rig| {
                    below(2, 0)(rig);
                    rig.advance(millis(40));
                    rig.ack(2 * MSS);
                },
                Ok(2 * MSS),
            ),
        ],
    );
}

#[test]
fn gate_device() {
    let mut rig = open_default();
    rig.device = Device::Refuses;
    rig.write(10);
    assert_eq!(rig.blocked(), Blocked::Device);
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.news(), [0..10]);
    assert_eq!(rig.blocked(), Blocked::NoData);
}

/// What the device refuses was not sent, so nothing has to keep its distance from it.
#[test]
fn gate_device_a_refusal_moves_no_departure() {
    let mut rig = open_default();
    rig.limit_rate(100_000);
    send(&mut rig, 8 * MSS);
    rig.device = Device::Refuses;
    // The ninth and tenth segment leave without a gap before them; the gap of 29 ms is behind them.
    rig.write(2 * MSS);
    assert_eq!(rig.blocked(), Blocked::Device);
    rig.poll();
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.sent.last().map(|sent| sent.bytes.clone()), Some(8 * MSS..10 * MSS));
}

/// Every gate from pacing to the device is shut. They are opened from the first on, and each time the next one is named.
#[test]
fn gates_open_in_order_for_a_small_tail() {
    let setup = Setup { window: 10 * MSS as u32, wscale: 0, ..Setup::default() };
    let mut rig = setup.config(|config| config.tcp_autocorking = false).open();
    rig.limit_rate(100_000);
    rig.set(SetOption::Cork(true));
    rig.device = Device::Completes;
    rig.write(8 * MSS);
    rig.device = Device::Keeps;
    rig.write(2 * MSS);
    // Ten segments fill both windows, two of them are below TCP.
    shut_small_queue(&mut rig);
    rig.news();
    rig.write(10);
    let until = rig.now + micros(28_960);
    assert_eq!(rig.blocked(), Blocked::Pacing { until });
    rig.advance(micros(28_960));
    assert_eq!(rig.blocked(), Blocked::Cwnd);
    rig.ack_with(&Ack::of(2 * MSS).window(8 * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::PeerWindow);
    rig.ack_with(&Ack::of(4 * MSS).window(10 * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::Cork);
    rig.set(SetOption::Cork(false));
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    rig.device = Device::Refuses;
    rig.complete_all();
    assert_eq!(rig.blocked(), Blocked::Device);
    assert_eq!(rig.news(), []);
    rig.advance(millis(1));
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.news(), [10 * MSS..10 * MSS + 10]);
    assert_eq!(rig.blocked(), Blocked::NoData);
}

/// The same for a super-packet, with deferral in the place of cork.
#[test]
fn gates_open_in_order_for_a_super_packet() {
    let mut rig = goal_of_eight();
    rig.stack.set_sysctl("net.ipv4.tcp_autocorking", "0").unwrap();
    let start = rig.written;
    leave_of_window(&mut rig, 2, micros(400), micros(100));
    // The rest of the window, and it stays below TCP.
    rig.device = Device::Keeps;
    rig.write(MSS);
    rig.write(MSS);
    assert_eq!(rig.held().len(), 2);
    rig.news();
    shut_small_queue(&mut rig);
    rig.write(100_000);
    assert_eq!(rig.blocked(), Blocked::Cwnd);
    // One segment is acknowledged, two may follow, and the peer takes none.
    let in_flight = rig.info().unacked - 1;
    rig.ack_with(&Ack::of(start + MSS).window(in_flight * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::PeerWindow);
    rig.ack_with(&Ack::of(start + MSS).window((in_flight + 1_000) * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::TsoDefer);
    // The last departure gets old; the next ACK asks again.
    rig.advance(micros(1_001));
    rig.ack(start + 2 * MSS);
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    assert_eq!(rig.news(), []);
    rig.complete_all();
    assert!(!rig.news().is_empty());
}

/// Nothing that is written is forgotten by a gate: whatever was shut, in the end all of it arrives.
#[test]
fn gates_hold_nothing_for_ever() {
    let mut rig = Setup::default().open();
    rig.set(SetOption::Cork(true));
    rig.write(100);
    rig.write(30 * MSS + 7);
    for _ in 0..50 {
        rig.advance(millis(40));
        rig.complete_all();
        if rig.info().unacked > 0 {
            rig.ack_all();
        }
    }
    assert_eq!(rig.info().bytes_acked, rig.written);
}
