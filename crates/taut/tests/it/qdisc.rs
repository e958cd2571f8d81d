//! Queue disciplines in front of a running stack's device, installed and changed while it sends.
//!
//! Times are compared with lower bounds only; where a busy machine could make a time longer, events are
//! counted instead.

use crate::pair;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use pair::{pair, pair_over};
use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut::device::LinkCaps;
use taut::qdisc::QdiscDetails;
use taut_testbed::{Noise, PATIENCE, eventually, now};

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

/// Sends `data` to the peer, which checks it. Returns the time that it took.
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
    round_trip(&mut here, &mut there);
    assert!(near.qdiscs().is_empty());
    near.set_qdisc("netem delay 40ms").unwrap();
    let slow = round_trip(&mut here, &mut there);
    assert!(slow >= Duration::from_millis(40), "{slow:?}");
    let entries = near.qdiscs();
    assert_eq!((entries.len(), entries[0].report.spec.to_string().as_str()), (1, "netem delay 40ms"));
    near.set_qdisc("netem delay 20ms | fq_codel").unwrap();
    let slow = round_trip(&mut here, &mut there);
    assert!(slow >= Duration::from_millis(20), "{slow:?}");
    assert_eq!(near.qdiscs().len(), 2);

    // So long that an arriving packet can only have been released early.
    near.set_qdisc("netem delay 600s").unwrap();
    here.write_all(b"ping").unwrap();
    eventually("the packet waits", || near.qdiscs()[0].report.backlog_packets > 0);
    there.set_nonblocking(true).unwrap();
    let mut four = [0; 4];
    assert_eq!(there.read(&mut four).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    there.set_nonblocking(false).unwrap();
    near.reset_qdisc();
    there.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"ping");
    eventually("the queue is removed and its packets have left", || near.qdiscs().is_empty());
}

#[test]
fn a_rate_is_seen_in_the_goodput() {
    let data = Noise::new(1).bytes(4_000_000);
    for spec in
        ["netem rate 100mbit", "tbf rate 100mbit burst 16kb | fq", "tbf rate 100mbit burst 16kb limit 256kb"]
    {
        let (near, far) = pair(|builder| builder.qdisc(spec));
        let (mut here, mut there) = connect(&near, &far);
        let took = bulk(&mut here, &mut there, &data).as_secs_f64();
        // 4 MB and 52 bytes of headers for each 1448 of them, at 12.5 MB/s; 16 KB are free.
        let bytes = 4_000_000.0 * 1_500.0 / 1_448.0;
        let least = (bytes - 16_384.0) / 12.5e6;
        assert!(took >= least * 0.99, "{spec}: {took} s is less than {least}");
        let stats = near.qdiscs()[0].report.stats;
        assert_eq!(stats.dropped, 0, "{spec}: the stack sends no more than the queue holds");
        assert!(stats.sent_bytes as f64 >= bytes * 0.99, "{spec}: {stats:?}");
        if spec.starts_with("tbf") {
            // Whatever the machine does, tokens for 16 KB are the most that ever wait for a packet.
            assert!(stats.overlimits as f64 > bytes / 65_536.0 / 2.0, "{spec}: {stats:?}");
        }
    }
}

#[test]
fn tsq_m27_a_queue_in_front_tells_when_packets_left() {
    let rule = |stream: &TcpStream| stream.info().unwrap().tsq_rule;
    let (near, far) = pair(|builder| builder);
    let (mut here, mut there) = connect(&near, &far);
    assert_eq!(rule(&here), "delivered", "the device has a packet when it has left the stack");
    let data = Noise::new(2).bytes(300_000);
    for (spec, expected) in [
        ("tbf rate 100mbit burst 16kb limit 1mb", "measured"),
        ("pfifo", "delivered"),
        ("netem rate 100mbit", "delivered"),
        ("tbf rate 100mbit burst 16kb | netem delay 1ms", "delivered"),
        ("tbf rate 100mbit burst 16kb | fq", "delivered"),
        ("tbf rate 100mbit burst 16kb | fq_codel", "measured"),
    ] {
        near.set_qdisc(spec).unwrap();
        assert_eq!(rule(&here), expected, "{spec}");
        bulk(&mut here, &mut there, &data);
    }
    near.reset_qdisc();
    assert_eq!(rule(&here), "delivered");
    let (near, far) = pair(|builder| builder.link("rate 100mbit delay 1ms".parse().unwrap()));
    let (mut here, mut there) = connect(&near, &far);
    assert_eq!(rule(&here), "measured");
    near.set_qdisc("fq").unwrap();
    assert_eq!(rule(&here), "delivered");
    near.reset_qdisc();
    assert_eq!(rule(&here), "measured", "the link has its own queue again");
    bulk(&mut here, &mut there, &data);
}

/// Sends 200 packets in half a second; returns how often a timer held a packet back.
fn paced(near: &Stack, far: &Stack) -> u64 {
    let (mut here, mut there) = connect(near, far);
    here.set_max_pacing_rate(600_000).unwrap();
    let before = near.counters().pacing_blocked;
    let took = bulk(&mut here, &mut there, &Noise::new(1).bytes(300_000)).as_secs_f64();
    // Half a second, except for the first ten packets. After a late packet, the others catch up, but never
    // get ahead.
    assert!(took >= 0.45, "{took} s");
    near.counters().pacing_blocked - before
}

#[test]
fn fq_paces_in_place_of_the_stack() {
    // Without super-packets, which are longer on a busy machine, so that there are 200 packets on any.
    let (near, far) = pair_over(LinkCaps::plain(1500), |builder| builder);
    let timers = paced(&near, &far);
    assert!(timers > 10, "{timers} times blocked");

    near.set_qdisc("fq").unwrap();
    assert_eq!(paced(&near, &far), 0);
    let QdiscDetails::Fq(stats) = near.qdiscs()[0].report.details else { panic!("{:?}", near.qdiscs()) };
    assert!(stats.throttled > 10, "{stats:?}");

    // It does not when something else is there.
    near.set_qdisc("fq_codel").unwrap();
    let timers = paced(&near, &far);
    assert!(timers > 10, "{timers} times blocked");
}

#[test]
fn it_is_changed_again_and_again_while_the_stack_sends() {
    const KINDS: [Option<&str>; 6] = [
        Some("fq"),
        Some("netem delay 1ms rate 1gbit limit 10000"),
        Some("fq_codel"),
        None,
        Some("tbf rate 1gbit burst 64kb | fq"),
        Some("pfifo_fast"),
    ];
    let (near, far) = pair(|builder| builder);
    let (mut here, mut there) = connect(&near, &far);
    thread::scope(|scope| {
        let changer = scope.spawn(|| {
            for kind in KINDS.into_iter().cycle().take(60) {
                match kind {
                    Some(kind) => near.set_qdisc(kind).unwrap(),
                    None => near.reset_qdisc(),
                }
                let before = near.counters().out_segs;
                eventually("each has something to send", || near.counters().out_segs > before);
            }
        });
        let data = Noise::new(1).bytes(1_000_000);
        while !changer.is_finished() {
            bulk(&mut here, &mut there, &data);
        }
    });
    // Every byte has arrived, and no ticket was lost on the way: the connection could not end otherwise. The
    // test cannot require that nothing was sent twice: fq_codel drops on a busy machine, and probes do not
    // know that it is busy.
    drop((here, there));
    assert!(near.drain(PATIENCE));
}

#[test]
fn a_lossy_path_is_survived_and_a_mistake_is_told() {
    let bad = "netem delay 1ms loss 2% duplicate 1% reorder 5% corrupt 0.5% seed 7";
    let (near, far) = pair(|builder| builder.qdisc(bad));
    let (mut here, mut there) = connect(&near, &far);
    let data = Noise::new(1).bytes(2_000_000);
    // The number of packets depends on how busy the machine is, and so does the choice of packets by the
    // seed.
    let is_lossy = || near.counters().retrans_segs > 0 && near.qdiscs()[0].report.stats.dropped > 0;
    for _ in 0..50 {
        bulk(&mut here, &mut there, &data);
        if is_lossy() {
            break;
        }
    }
    assert!(is_lossy(), "{:?}", near.qdiscs()[0].report.stats);
    let error = near.set_qdisc("fq speed 5").unwrap_err();
    assert!(error.to_string().starts_with("fq has no option \"speed\""), "{error}");
    assert_eq!(near.qdiscs()[0].report.spec.to_string(), bad, "it stays as it was");
    let error = Stack::builder().qdisc("red").build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
