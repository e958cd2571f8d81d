//! The gates through the public interface: for each a table of states, and the device's result when it asks
//! next, the size of a packet or the gate that is shut; then their order, with every later gate shut as well.

use Step::{Ack, Close, Cork, Done, Fin, Keep, More, Nodelay, Record, Send, Sysctl, Uncork, Wait, Write};

use crate::spec::rig::{self, Device, MSS, Rig, Setup, truesize};
use crate::spec::tso::{fast, goal_of_eight, leave_of_window, micros, millis};
use taut_core::{Blocked, ConnOptions, Duration, Instant, LinkCaps, PacingMode, SetOption};

/// A step towards a state. The device sleeps, except where a step says that it takes something.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u64),
    /// With MSG_MORE.
    More(u64),
    /// With MSG_EOR.
    Record(u64),
    /// A write, and all of it leaves and is completed at once.
    Send(u64),
    /// A write, and all of it leaves and stays below TCP.
    Keep(u64),
    /// The packet of that number is completed.
    Done(usize),
    /// The peer acknowledges everything before a position.
    Ack(u64),
    /// The same, and the peer closes its window.
    Close(u64),
    Wait(Duration),
    Cork,
    Uncork,
    Nodelay(bool),
    Fin,
    Sysctl(&'static str, &'static str),
}

/// The device's result: payload bytes, or the reason for nothing.
type Outcome = Result<u64, Blocked>;

/// The pacing gate is shut; the time is checked elsewhere.
const PACED: Blocked = Blocked::Pacing { until: Instant::ZERO };

/// Shuts the small queue's gate for every connection that has something below TCP and two packets
/// unacknowledged.
const SHUT_SMALL_QUEUE: Step = Sysctl("net.ipv4.tcp_limit_output_bytes", "1");
const NO_AUTOCORK: Step = Sysctl("net.ipv4.tcp_autocorking", "0");

#[track_caller]
fn go(rig: &mut Rig, steps: &[Step]) {
    rig.device = Device::Sleeps;
    for &step in steps {
        match step {
            Write(len) => rig.write(len),
            More(len) => rig.write_more(len),
            Record(len) => rig.write_eor(len),
            Send(len) => leave(rig, len, Device::Completes),
            Keep(len) => leave(rig, len, Device::Keeps),
            Done(name) => rig.complete_quietly(name),
            Ack(upto) => rig.ack(upto),
            Close(upto) => rig.ack_with(&rig::Ack::of(upto).window(0)),
            Wait(span) => rig.advance(span),
            Cork => rig.set(SetOption::Cork(true)),
            Uncork => rig.set(SetOption::Cork(false)),
            Nodelay(on) => rig.set(SetOption::Nodelay(on)),
            Fin => rig.shutdown(),
            Sysctl(name, value) => rig.stack.set_sysctl(name, value).unwrap(),
        }
    }
}

#[track_caller]
fn leave(rig: &mut Rig, len: u64, device: Device) {
    rig.device = device;
    rig.write(len);
    assert_eq!(rig.info().notsent_bytes, 0, "all of it left");
    rig.device = Device::Sleeps;
}

/// The device that was asleep asks for one packet.
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

/// Each case begins with a fresh connection.
#[track_caller]
fn check(open: impl Fn() -> Rig, cases: &[(&str, &[Step], Outcome)]) {
    for (name, steps, expected) in cases {
        let mut rig = open();
        go(&mut rig, steps);
        assert_eq!(next(&mut rig), *expected, "{name}");
    }
}

fn open_default() -> Rig {
    Setup::default().open()
}

fn nodelay() -> Rig {
    let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
    Setup { options, ..Setup::default() }.open()
}

/// 100 kB/s: packets of two segments; the tenth segment is the first that is followed by a gap.
fn paced() -> Rig {
    let mut rig = open_default();
    rig.limit_rate(100_000);
    rig
}

/// The same, but nothing waits.
fn unpaced() -> Rig {
    let mut rig = Setup::default().config(|config| config.send.pacing = PacingMode::Off).open();
    rig.limit_rate(100_000);
    rig
}

#[test]
fn gate_no_data() {
    check(
        open_default,
        &[
            ("nothing was ever written", &[], Err(Blocked::NoData)),
            ("all was sent", &[Send(1_000)], Err(Blocked::NoData)),
            ("all was acknowledged", &[Send(1_000), Ack(1_000)], Err(Blocked::NoData)),
            ("a byte", &[Write(1)], Ok(1)),
            ("a FIN is something to send", &[Send(1_000), Fin], Ok(0)),
        ],
    );
    check(
        paced,
        &[(
            "neither pacing nor a full window matters when there is nothing to send",
            &[Send(10 * MSS)],
            Err(Blocked::NoData),
        )],
    );
}

#[test]
fn gate_pacing() {
    // Ten segments, acknowledged 20 ms later: 8.96 of the 2 mss / rate = 28.96 ms are left.
    const TEN: &[Step] = &[Send(10 * MSS), Wait(millis(20)), Ack(10 * MSS), Write(4 * MSS)];
    let then = |span: Duration| {
        let mut rig = paced();
        go(&mut rig, TEN);
        go(&mut rig, &[Wait(span)]);
        next(&mut rig)
    };
    assert_eq!(then(micros(8_960) - Duration::from_nanos(1)), Err(PACED));
    assert_eq!(then(micros(8_960)), Ok(2 * MSS));
    check(
        paced,
        &[
            ("the first eight are free", &[Send(8 * MSS), Write(4 * MSS)], Ok(2 * MSS)),
            ("after ten there is a gap", TEN, Err(PACED)),
            ("before a full congestion window", &[Send(10 * MSS), Write(MSS)], Err(PACED)),
            ("before a closed window", &[Send(10 * MSS), Close(10 * MSS), Write(MSS)], Err(PACED)),
            ("before Nagle", &[Send(8 * MSS), Send(MSS + 10), Ack(8 * MSS), Write(10)], Err(PACED)),
            ("before cork", &[Send(10 * MSS), Ack(8 * MSS), Cork, Write(10)], Err(PACED)),
        ],
    );
    // The same states without pacing: the gates that are shut behind the first one.
    check(
        unpaced,
        &[
            ("after ten", TEN, Ok(2 * MSS)),
            ("a full congestion window", &[Send(10 * MSS), Write(MSS)], Err(Blocked::Cwnd)),
            ("a closed window", &[Send(10 * MSS), Close(10 * MSS), Write(MSS)], Err(Blocked::PeerWindow)),
            ("Nagle", &[Send(8 * MSS), Send(MSS + 10), Ack(8 * MSS), Write(10)], Err(Blocked::Nagle)),
            ("cork", &[Send(10 * MSS), Ack(8 * MSS), Cork, Write(10)], Err(Blocked::Cork)),
        ],
    );
    let mut rig = paced();
    go(&mut rig, TEN);
    let until = rig.now + micros(8_960);
    let _ = next(&mut rig);
    assert_eq!(rig.blocked(), Blocked::Pacing { until });
    assert_eq!(rig.stack.poll_timeout().map(|(at, _)| at), Some(until), "the deadline is the gate's");
}

/// min(max(cwnd / 2, 1), cwnd - inflight): never more than half of the ten at once.
#[test]
fn gate_cwnd_and_its_quota() {
    let quota = |in_flight: usize| {
        let mut rig = fast().open();
        go(&mut rig, &vec![Send(MSS); in_flight]);
        go(&mut rig, &[Write(100_000)]);
        next(&mut rig)
    };
    for (in_flight, expected) in [(0, 5), (3, 5), (5, 5), (6, 4), (7, 3), (9, 1)] {
        assert_eq!(quota(in_flight), Ok(expected * MSS), "{in_flight} in flight");
    }
    assert_eq!(quota(10), Err(Blocked::Cwnd));
    check(
        || fast().open(),
        &[
            ("before a closed window", &[Send(10 * MSS), Close(0), Write(MSS)], Err(Blocked::Cwnd)),
            ("before cork", &[Send(10 * MSS), Cork, Write(10)], Err(Blocked::Cwnd)),
            ("before Nagle", &[Send(9 * MSS), Send(10), Write(10)], Err(Blocked::Cwnd)),
        ],
    );
}

#[test]
fn gate_peer_window() {
    // 10,000 bytes: less than the congestion window of ten segments.
    check(
        || Setup { window: 10_000, wscale: 0, ..fast() }.open(),
        &[
            ("half of cwnd fits", &[Write(100_000)], Ok(5 * MSS)),
            ("the rest, in whole segments (RFC 9293 3.8.6.2.1)", &[Send(5 * MSS), Write(100_000)], Ok(MSS)),
            ("1312 bytes are left: no segment", &[Send(6 * MSS), Write(100_000)], Err(Blocked::PeerWindow)),
            ("room for all the rest", &[Send(6 * MSS), Write(1_312)], Ok(1_312)),
            ("one byte too many", &[Send(6 * MSS), Write(1_313)], Err(Blocked::PeerWindow)),
            ("closed", &[Send(MSS), Close(MSS), Write(1)], Err(Blocked::PeerWindow)),
            ("before Nagle", &[Send(6 * MSS), Send(1_300), Write(13)], Err(Blocked::PeerWindow)),
            ("one byte less is Nagle's", &[Send(6 * MSS), Send(1_300), Write(12)], Err(Blocked::Nagle)),
            ("before cork", &[Send(6 * MSS), Cork, Write(1_313)], Err(Blocked::PeerWindow)),
        ],
    );
}

#[test]
fn gate_nagle_and_cork() {
    const NAGLE: Outcome = Err(Blocked::Nagle);
    const CORK: Outcome = Err(Blocked::Cork);
    // The data in flight, and the result for 10 bytes then: by themselves, under NODELAY, CORK, both, and
    // with MSG_MORE.
    let switches: [&[Step]; 5] = [
        &[Write(10)],
        &[Nodelay(true), Write(10)],
        &[Cork, Write(10)],
        &[Nodelay(true), Cork, Write(10)],
        &[More(10)],
    ];
    let table: [(&str, &[Step], [Outcome; 5]); 4] = [
        ("nothing", &[], [Ok(10), Ok(10), CORK, CORK, CORK]),
        ("a full segment", &[Send(MSS)], [Ok(10), Ok(10), CORK, CORK, CORK]),
        ("a small packet", &[Send(10)], [NAGLE, Ok(10), CORK, CORK, CORK]),
        ("a small one and a full one", &[Send(10), Send(MSS)], [NAGLE, Ok(10), CORK, CORK, CORK]),
    ];
    for (in_flight, before, outcomes) in table {
        for (steps, expected) in switches.iter().zip(outcomes) {
            let mut rig = open_default();
            go(&mut rig, before);
            go(&mut rig, steps);
            assert_eq!(next(&mut rig), expected, "{steps:?} behind {in_flight}");
        }
    }
    check(
        open_default,
        &[
            ("a full segment is not withheld", &[Send(10), Write(MSS)], Ok(MSS)),
            ("nor is the end of the stream", &[Send(10), Write(10), Fin], Ok(10)),
            ("nor data before the tail", &[Send(10), Record(10), Write(10)], Ok(10)),
            (
                "nor the odd end of data before the tail",
                &[Send(10), Record(MSS + 10), Write(10)],
                Ok(MSS + 10),
            ),
            ("nor the odd end of the stream", &[Send(10), Write(MSS + 10), Fin], Ok(MSS + 10)),
            ("the small packet was acknowledged", &[Send(10), Ack(10), Write(10)], Ok(10)),
            ("and a large one after it was not", &[Send(10), Send(MSS), Ack(10), Write(10)], Ok(10)),
            ("odd end: only whole segments", &[Send(10), Write(MSS + 10)], Ok(MSS)),
            ("corked: only whole segments", &[Cork, Write(MSS + 10)], Ok(MSS)),
            ("MSG_MORE: only whole segments", &[More(MSS + 10)], Ok(MSS)),
            ("the next write says otherwise", &[More(10), Write(10)], Ok(20)),
            ("without cork, Nagle holds it", &[Send(10), Cork, Write(10), Uncork], NAGLE),
            (
                "but flushed under NODELAY",
                &[Send(10), Nodelay(true), Cork, Write(10), Uncork, Nodelay(false)],
                Ok(10),
            ),
            ("NODELAY releases data that Nagle holds", &[Send(10), Write(10), Nodelay(true)], Ok(10)),
            (
                "before the small queue",
                &[Keep(10), Send(MSS), SHUT_SMALL_QUEUE, NO_AUTOCORK, Write(10)],
                NAGLE,
            ),
            (
                "which is shut",
                &[Keep(10), Send(MSS), SHUT_SMALL_QUEUE, NO_AUTOCORK, Write(10), Nodelay(true)],
                Err(Blocked::SmallQueue),
            ),
        ],
    );
}

#[test]
fn gate_autocork() {
    const HELD: Outcome = Err(Blocked::Autocork);
    check(
        nodelay,
        &[
            ("50 behind 100", &[Keep(100), Write(50)], HELD),
            ("100 behind 100", &[Keep(100), Write(100)], HELD),
            ("101 behind 100", &[Keep(100), Write(101)], Ok(101)),
            ("the end of a record", &[Keep(100), Record(50)], Ok(50)),
            ("nothing unacknowledged", &[Keep(100), Ack(100), Write(50)], Ok(50)),
            ("nothing below", &[Keep(100), Done(0), Write(50)], Ok(50)),
            ("switched off", &[NO_AUTOCORK, Keep(100), Write(50)], Ok(50)),
            ("before cork: autocork is asked when a write ends", &[Keep(100), Cork, Write(50)], HELD),
            (
                "cork holds it after the completion",
                &[Keep(100), Cork, Write(50), Done(0)],
                Err(Blocked::Cork),
            ),
        ],
    );
}

/// A full buffer has nothing to wait for: 45 segments leave although much more than that is below TCP.
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

    // Data before the tail does not wait if it fits: the rest would not make the packet bigger.
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

    // Nothing is in flight: no ACK will ask again. The peer takes three segments and no more.
    let mut rig = Setup { window: 3 * MSS as u32, wscale: 0, ..fast() }.open();
    let divisor = Sysctl("net.ipv4.tcp_tso_win_divisor", "0");
    go(&mut rig, &[divisor, Send(MSS), Wait(micros(100)), Ack(MSS), Write(100_000)]);
    assert_eq!(next(&mut rig), Ok(3 * MSS), "nothing in flight");

    // A link that cuts no segments has no super-packets, and nothing to wait for.
    let mut rig = Setup { caps: LinkCaps::plain(1_500), ..Setup::default() }.open();
    go(&mut rig, &[Send(9 * MSS)]);
    rig.write(100_000);
    rig.advance(micros(500));
    assert_eq!(next(&mut rig), Ok(MSS));
}

/// TCP_NODELAY flushes the data that Nagle withholds; a super-packet that waits to become bigger is not held
/// by Nagle.
#[test]
fn gate_tso_defer_is_not_ended_by_nodelay() {
    let mut rig = goal_of_eight();
    leave_of_window(&mut rig, 7, micros(400), micros(100));
    go(&mut rig, &[Write(100_000), Nodelay(true)]);
    assert_eq!(next(&mut rig), Err(Blocked::TsoDefer));
}

#[test]
fn gate_small_queue() {
    // 40 ms and ten segments, twice that in slow start: 724,000 bytes/s, less than two packets in a
    // millisecond. Packets have two segments; the limit is two of them.
    const PACKET: u64 = 2 * MSS;
    let open = || {
        let mut rig = nodelay();
        go(&mut rig, &[NO_AUTOCORK]);
        rig
    };
    check(
        open,
        &[
            ("none below", &[Write(PACKET)], Ok(PACKET)),
            ("one below", &[Keep(PACKET), Write(PACKET)], Ok(PACKET)),
            ("two below", &[Keep(PACKET), Keep(PACKET), Write(PACKET)], Err(Blocked::SmallQueue)),
            ("less than two below", &[Keep(PACKET - 1), Keep(PACKET), Write(PACKET)], Ok(PACKET)),
            (
                "the limit is the candidate's",
                &[Keep(PACKET), Keep(PACKET), Write(10)],
                Err(Blocked::SmallQueue),
            ),
            ("two in flight, one below", &[Send(PACKET), Keep(PACKET), Write(PACKET)], Ok(PACKET)),
            (
                "two below, one of them unacknowledged",
                &[Keep(PACKET), Keep(PACKET), Wait(millis(40)), Ack(PACKET), Write(PACKET)],
                Ok(PACKET),
            ),
            (
                "two below, one of them unacknowledged, a third to join",
                &[Keep(PACKET), Keep(PACKET), Wait(millis(40)), Ack(PACKET), Keep(PACKET), Write(PACKET)],
                Err(Blocked::SmallQueue),
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

/// A packet that the device refuses was not sent, so the next one need not keep a distance from it.
#[test]
fn gate_device_a_refusal_moves_no_departure() {
    let mut rig = open_default();
    rig.limit_rate(100_000);
    go(&mut rig, &[Send(8 * MSS)]);
    rig.device = Device::Refuses;
    // The ninth and tenth segment leave without a gap before them; the gap of 29 ms is behind them.
    rig.write(2 * MSS);
    assert_eq!(rig.blocked(), Blocked::Device);
    rig.poll();
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.sent.last().map(|sent| sent.bytes.clone()), Some(8 * MSS..10 * MSS));
}

/// Every gate from pacing to the device is shut. They are opened one by one from the first, and each time the
/// next one is named.
#[test]
fn gates_open_in_order_for_a_small_tail() {
    let setup = Setup { window: 10 * MSS as u32, wscale: 0, ..Setup::default() };
    let mut rig = setup.config(|config| config.send.autocorking = false).open();
    rig.limit_rate(100_000);
    rig.set(SetOption::Cork(true));
    rig.device = Device::Completes;
    rig.write(8 * MSS);
    rig.device = Device::Keeps;
    rig.write(2 * MSS);
    // Ten segments fill both windows, two of them are below TCP.
    rig.stack.set_sysctl("net.ipv4.tcp_limit_output_bytes", "1").unwrap();
    rig.news();
    rig.write(10);
    let until = rig.now + micros(28_960);
    assert_eq!(rig.blocked(), Blocked::Pacing { until });
    rig.advance(micros(28_960));
    assert_eq!(rig.blocked(), Blocked::Cwnd);
    rig.ack_with(&rig::Ack::of(2 * MSS).window(8 * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::PeerWindow);
    rig.ack_with(&rig::Ack::of(4 * MSS).window(10 * MSS as u32));
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
    rig.stack.set_sysctl("net.ipv4.tcp_limit_output_bytes", "1").unwrap();
    rig.write(100_000);
    assert_eq!(rig.blocked(), Blocked::Cwnd);
    // One segment is acknowledged, two may follow, and the peer takes none.
    let in_flight = rig.info().unacked - 1;
    rig.ack_with(&rig::Ack::of(start + MSS).window(in_flight * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::PeerWindow);
    rig.ack_with(&rig::Ack::of(start + MSS).window((in_flight + 1_000) * MSS as u32));
    assert_eq!(rig.blocked(), Blocked::TsoDefer);
    // The last departure becomes old; the next ACK asks again.
    rig.advance(micros(1_001));
    rig.ack(start + 2 * MSS);
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    assert_eq!(rig.news(), []);
    rig.complete_all();
    assert!(!rig.news().is_empty());
}

/// No gate loses data: whichever was shut, in the end everything written arrives.
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
