//! Queue disciplines in front of a running stack's device, put there and changed while it sends.
#![allow(missing_docs, reason = "tests")]

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use taut::blocking::{TcpListener, TcpStream};
use taut::device::LinkCaps;
use taut::link::QdiscDetails;
use taut::{Builder, Stack};

/// A clock for bounds that hold on a busy machine too.
#[expect(clippy::disallowed_methods, reason = "the test measures from outside")]
fn now() -> Instant {
    Instant::now()
}

/// A stack behind a queue, and its peer.
fn pair(change: impl FnOnce(Builder) -> Builder) -> (Stack, Stack) {
    let (here, there) = taut::device::pipe(LinkCaps::offloading(1500), 4 << 20).unwrap();
    let near = change(Stack::builder().device(here).address("10.0.0.1/24")).build().unwrap();
    (near, Stack::builder().device(there).address("10.0.0.2/24").build().unwrap())
}

fn connect(near: &Stack, far: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(far, "10.0.0.2:7").unwrap();
    let stream = TcpStream::connect(near, "10.0.0.2:7").unwrap();
    (stream, listener.accept().unwrap().0)
}

/// The least of some round trips.
fn round_trip(near: &mut TcpStream, far: &mut TcpStream) -> Duration {
    let once = |_| {
        let start = now();
        let mut four = [0; 4];
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut four).unwrap();
        far.write_all(&four).unwrap();
        near.read_exact(&mut four).unwrap();
        start.elapsed()
    };
    (0..5).map(once).min().unwrap()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Sends `data` to the peer, which checks it. How long that took.
fn bulk(near: &mut TcpStream, far: &mut TcpStream, data: &[u8]) -> Duration {
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut got = vec![0; data.len()];
            far.read_exact(&mut got).unwrap();
            assert!(got == data, "bytes intact");
            now()
        });
        let start = now();
        near.write_all(data).unwrap();
        receiver.join().unwrap() - start
    })
}

#[test]
fn a_delay_is_seen_in_the_round_trip_and_goes_when_it_is_taken_away() {
    let (near, far) = pair(|builder| builder);
    let (mut here, mut there) = connect(&near, &far);
    assert!(near.qdiscs().is_empty());
    assert!(round_trip(&mut here, &mut there) < Duration::from_millis(20));
    near.set_qdisc("netem delay 40ms").unwrap();
    let slow = round_trip(&mut here, &mut there);
    assert!((40..140).contains(&slow.as_millis()), "{slow:?}");
    let entries = near.qdiscs();
    assert_eq!((entries.len(), entries[0].report.spec.to_string().as_str()), (1, "netem delay 40ms"));
    near.set_qdisc("netem delay 20ms | fq_codel").unwrap();
    let slow = round_trip(&mut here, &mut there);
    assert!((20..40).contains(&slow.as_millis()), "{slow:?}");
    assert_eq!(near.qdiscs().len(), 2);
    near.reset_qdisc();
    assert!(round_trip(&mut here, &mut there) < Duration::from_millis(20));
    assert!(near.qdiscs().is_empty(), "what waited has left, and the queue with it");
}

#[test]
fn a_rate_is_seen_in_the_goodput() {
    let data = noise(4_000_000);
    for spec in
        ["netem rate 100mbit", "tbf rate 100mbit burst 16kb | fq", "tbf rate 100mbit burst 16kb limit 256kb"]
    {
        let (near, far) = pair(|builder| builder.qdisc(spec));
        let (mut here, mut there) = connect(&near, &far);
        let took = bulk(&mut here, &mut there, &data).as_secs_f64();
        // 4 MB and 52 bytes of headers for each 1448 of them, at 12.5 MB/s; 16 KB are free.
        let least = (4_000_000.0 * 1_500.0 / 1_448.0 - 16_384.0) / 12.5e6;
        assert!(took >= least * 0.99, "{spec}: {took} s is less than {least}");
        assert!(took < least * 1.5 + 0.2, "{spec}: {took} s, where {least} are enough");
        assert_eq!(near.counters().retrans_segs, 0, "{spec}");
    }
}

/// Sends a second's worth at a limited rate: how often it was held back by a timer, and how long it took, in seconds.
fn paced(near: &Stack, far: &Stack) -> (u64, f64) {
    let (mut here, mut there) = connect(near, far);
    here.set_max_pacing_rate(2_000_000).unwrap();
    let before = near.counters().pacing_blocked;
    let took = bulk(&mut here, &mut there, &noise(1_000_000)).as_secs_f64();
    (near.counters().pacing_blocked - before, took)
}

#[test]
fn fq_paces_in_place_of_the_stack() {
    let (near, far) = pair(|builder| builder);
    let (timers, took) = paced(&near, &far);
    // 1 MB at 2 MB/s; the beginning is free.
    assert!((0.45..0.9).contains(&took), "{took} s");
    assert!(timers > 10, "{timers} times blocked");

    near.set_qdisc("fq").unwrap();
    let (timers, took) = paced(&near, &far);
    assert!((0.45..0.9).contains(&took), "{took} s");
    assert_eq!(timers, 0);
    let QdiscDetails::Fq(stats) = near.qdiscs()[0].report.details else { panic!("{:?}", near.qdiscs()) };
    assert!(stats.throttled > 10, "{stats:?}");

    // It does not when something else is there.
    near.set_qdisc("fq_codel").unwrap();
    let (timers, took) = paced(&near, &far);
    assert!((0.45..0.9).contains(&took) && timers > 10, "{took} s, {timers} times");
}

#[test]
fn it_is_changed_again_and_again_while_the_stack_sends() {
    let (near, far) = pair(|builder| builder);
    let (mut here, mut there) = connect(&near, &far);
    let done = AtomicBool::new(false);
    let changes = thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let kinds = [
                Some("fq"),
                Some("netem delay 1ms rate 1gbit limit 10000"),
                Some("fq_codel"),
                None,
                Some("tbf rate 1gbit burst 64kb | fq"),
                Some("pfifo_fast"),
            ];
            let mut changes = 0;
            for kind in kinds.into_iter().cycle() {
                if done.load(Ordering::SeqCst) {
                    return changes;
                }
                match kind {
                    Some(kind) => near.set_qdisc(kind).unwrap(),
                    None => near.reset_qdisc(),
                }
                changes += 1;
                thread::sleep(Duration::from_millis(1));
            }
            changes
        });
        bulk(&mut here, &mut there, &noise(30_000_000));
        done.store(true, Ordering::SeqCst);
        changer.join().unwrap()
    });
    assert!(changes > 10, "{changes}");
    // Every byte has arrived, and no ticket was lost on the way: the connection could not end otherwise. That nothing was
    // sent twice cannot be asked for: fq_codel drops on a busy machine, and probes do not know that it is busy.
    drop((here, there));
    assert!(near.drain(Duration::from_secs(10)));
}

#[test]
fn a_lossy_path_is_survived_and_a_mistake_is_told() {
    let bad = "netem delay 1ms loss 2% duplicate 1% reorder 5% corrupt 0.5% seed 7";
    let (near, far) = pair(|builder| builder.qdisc(bad));
    let (mut here, mut there) = connect(&near, &far);
    bulk(&mut here, &mut there, &noise(2_000_000));
    assert!(near.counters().retrans_segs > 0 && near.qdiscs()[0].report.stats.dropped > 0);
    let error = near.set_qdisc("fq speed 5").unwrap_err();
    assert!(error.to_string().starts_with("fq has no option \"speed\""), "{error}");
    assert_eq!(near.qdiscs()[0].report.spec.to_string(), bad, "it stays as it was");
    let error = Stack::builder().qdisc("red").build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
