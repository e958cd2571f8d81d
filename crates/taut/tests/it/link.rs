//! A queue in front of the device, between two running stacks.

use crate::pair;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use pair::pair;
use taut::Stack;
use taut::blocking::{TcpListener, TcpStream};
use taut_testbed::{Noise, PATIENCE, now};

/// Sends `len` bytes to the peer, which checks them. Returns the time from the first byte to the last.
fn bulk(near: &Stack, far: &Stack, len: usize) -> Duration {
    let listener = TcpListener::bind(far, "10.0.0.2:7").unwrap();
    let data = Noise::new(1).bytes(len);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            (got, now())
        });
        let mut stream = TcpStream::connect(near, "10.0.0.2:7").unwrap();
        let start = now();
        stream.write_all(&data).unwrap();
        drop(stream);
        let (got, end) = receiver.join().unwrap();
        assert!(got == data, "bytes intact");
        end - start
    })
}

/// Every connection comes to its end, and the queue holds nothing.
fn assert_nothing_stays(near: &Stack) {
    assert!(near.drain(PATIENCE));
    let (start, mut left) = (now(), Some((0, 0, 0)));
    // The last ACK may still be on its way.
    while start.elapsed() < PATIENCE && left.is_some() {
        let report = near.link_report().unwrap();
        let now = (report.backlog_bytes, report.backlog_packets, report.wire_packets);
        left = (now != (0, 0, 0)).then_some(now);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(left, None);
}

#[test]
fn a_line_has_its_rate() {
    let (near, far) = pair(|builder| builder.link_from("rate 200mbit"));
    let took = bulk(&near, &far, 10_000_000).as_secs_f64();
    let bytes = near.link_report().unwrap().stats.sent_bytes as f64;
    // 25 MB/s; the burst of 1 ms is free.
    assert!(took >= bytes / 25e6 - 0.002, "{took} s for {bytes} bytes: too fast");
    assert_nothing_stays(&near);
}

#[test]
fn a_wire_takes_its_time() {
    let (near, far) = pair(|builder| builder.link_from("delay 30ms"));
    let listener = TcpListener::bind(&far, "10.0.0.2:7").unwrap();
    let start = now();
    let mut stream = TcpStream::connect(&near, "10.0.0.2:7").unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30));
    let (mut accepted, _) = listener.accept().unwrap();
    for _ in 0..3 {
        let start = now();
        stream.write_all(b"ping").unwrap();
        let mut four = [0; 4];
        accepted.read_exact(&mut four).unwrap();
        accepted.write_all(&four).unwrap();
        stream.read_exact(&mut four).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
    drop((stream, accepted));
    assert_nothing_stays(&near);
}

#[test]
fn what_does_not_fit_is_dropped_counted_and_sent_again() {
    let (near, far) = pair(|builder| builder.link_from("rate 20mbit limit 20000b delay 10ms"));
    // With a small queue, what waits does not reach the limit.
    near.set_sysctl("taut.tsq", "off").unwrap();
    bulk(&near, &far, 2_000_000);
    let report = near.link_report().unwrap();
    assert!(report.stats.dropped > 0, "{:?}", report.stats);
    assert!(report.backlogs.max() <= 22_500, "{} bytes waited", report.backlogs.max());
    assert_nothing_stays(&near);
}

#[test]
fn completions_that_come_late_are_no_harm() {
    let (near, far) = pair(|builder| builder.link_from("tx-usecs 100us"));
    bulk(&near, &far, 10_000_000);
    assert_nothing_stays(&near);
}

#[test]
fn a_queue_that_does_nothing_is_no_harm() {
    let (near, far) = pair(|builder| builder.link(taut::qdisc::LinkSpec::default()));
    bulk(&near, &far, 50_000_000);
    let report = near.link_report().unwrap();
    assert!(report.stats.sent_bytes > 50_000_000);
    assert_nothing_stays(&near);
}

#[test]
fn without_a_link_there_is_no_report_and_a_mistake_is_told() {
    let (near, _far) = pair(|builder| builder);
    assert!(near.link_report().is_none());
    let error = Stack::builder().link_from("rate 1parsec").build().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("1parsec"), "{error}");
}
