//! ARR: which segments count when they arrive, as far as recovery depends on it. RFC 7323 §4.3 and §5, RFC
//! 5961 §5.

use taut_core::{ConnError, Duration};

use crate::recovery_spec::rig::{Rig, Setup};
use crate::support::trace::Seg;

/// The timestamp that the last packet echoes.
#[track_caller]
fn echoed(r: &mut Rig) -> u32 {
    r.poll();
    let last = r.out.pop_back().expect("an ACK");
    r.out.clear();
    last.options.timestamps.expect("with timestamps").echo
}

#[test]
fn arr_01_the_timestamp_of_what_is_expected_is_echoed() {
    // RFC 7323 §4.3: of the last segment that covers the last ACK sent, and never an older one.
    let mut r = Rig::open(Setup::with_timestamps());
    let (first, tsval) = (r.peer_clock(), r.last_tsval);
    r.at(10);
    let data = |seq: u32, value: u32| Seg::new(".").seq(seq).ack(1).len(100).ts(value, tsval);
    r.inject(&data(101, first + 10));
    assert_eq!(echoed(&mut r), first, "behind a hole");
    r.inject(&data(1, first + 5));
    assert_eq!(echoed(&mut r), first + 5);
    r.inject(&data(201, first + 4));
    r.at(100);
    assert_eq!(echoed(&mut r), first + 5, "it was overtaken");
    r.inject(&data(301, first + 5));
    r.at(200);
    assert_eq!(echoed(&mut r), first + 5);
    r.inject(&data(401, first + 20));
    r.at(300);
    assert_eq!(echoed(&mut r), first + 20);
}

#[test]
fn arr_02_a_reset_needs_no_timestamp() {
    // RFC 7323 §5.2: PAWS does not apply to it.
    let mut r = Rig::open(Setup::with_timestamps());
    let (clock, tsval) = (r.peer_clock(), r.last_tsval);
    r.inject(&Seg::new(".").seq(1).ack(1).len(100).ts(clock.wrapping_sub(10_000), tsval));
    assert_eq!((r.info().bytes_received, r.stack.counters().paws_estab), (0, 1));
    r.inject(&Seg::new("R").seq(1).ts(clock.wrapping_sub(10_000), 0));
    assert_eq!(r.conn().as_ref().error(), Some(ConnError::Reset));
}

#[test]
fn arr_04_an_echo_that_no_segment_had_measures_nothing() {
    // Zero, as of a peer that has no timestamp to echo; and the time of two hours ago.
    for echo in [|_: u32| 0, |tsval: u32| tsval.wrapping_sub(2 * 3_600_000)] {
        let mut r = Rig::open(Setup::with_timestamps());
        r.send(2);
        assert_eq!(r.next_sent(), (0, 300));
        let tsval = r.last_tsval;
        r.at(350);
        r.ack_echo(1, &[], echo(tsval));
        assert_eq!((r.last().rtt, r.info().backoff), (None, 1));
        assert_eq!(r.info().rtt, Some(Duration::from_millis(100)));
        assert_eq!(r.notes().undone, 0);
    }
}
