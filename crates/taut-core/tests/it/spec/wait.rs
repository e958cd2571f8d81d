//! Where bytes wait, and how long: WAIT-1 … WAIT-8 (WAIT-7 is in `fast_open.rs`). What `taut explain` prints
//! for a connection.

use taut_core::{Blocked, Duration, Gate, Histogram, LinkCaps, QueueReport, TsqMode};

use crate::spec::rig::{Ack, Device, MSS, Rig, Setup};

const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Single segments, which only the congestion window holds back: ten at first.
fn windowed() -> Rig {
    let setup = Setup { caps: LinkCaps::plain(1_500), ..Setup::default() };
    setup.config(|c| c.send.tsq = TsqMode::Off).open()
}

/// The queues of the connection: unsent, in the device, in flight.
fn queues(rig: &Rig) -> [QueueReport; 3] {
    rig.stack.conn(rig.id).unwrap().report(rig.now).queues
}

fn bytes(rig: &Rig) -> [u64; 3] {
    queues(rig).map(|queue| queue.bytes)
}

fn oldest(rig: &Rig) -> [Option<Duration>; 3] {
    queues(rig).map(|queue| queue.oldest)
}

/// The samples of one queue: so many of each duration, and no others. The stack's sum says the same.
#[track_caller]
fn assert_stayed(rig: &Rig, queue: usize, samples: &[(u64, Duration)]) {
    let mut expected = [0; Histogram::BUCKETS];
    for (count, span) in samples {
        expected[Histogram::bucket_of(*span)] += count;
    }
    assert_eq!(*queues(rig)[queue].sojourn.counts(), expected, "queue {queue}");
    assert_eq!(*rig.stack.report(rig.now).queues[queue].sojourn.counts(), expected, "queue {queue} of all");
}

#[test]
fn wait_01_every_byte_is_in_one_queue() {
    let mut rig = windowed();
    rig.write(12 * MSS + 100);
    assert_eq!(bytes(&rig), [2 * MSS + 100, 10 * MSS, 0], "the window has room for ten segments");
    rig.complete(0);
    rig.complete(1);
    assert_eq!(bytes(&rig), [2 * MSS + 100, 8 * MSS, 2 * MSS]);
    rig.advance(millis(40));
    // Two segments more may leave for each that arrived; there is one and a tail.
    rig.ack(MSS);
    assert_eq!(bytes(&rig), [100, 10 * MSS, MSS]);
    rig.complete_all();
    assert_eq!(bytes(&rig), [100, 0, 11 * MSS], "the window is full again");
    rig.ack_all();
    rig.complete_all();
    assert_eq!(bytes(&rig), [0, 0, 100]);
    rig.ack_all();
    assert_eq!(bytes(&rig), [0, 0, 0]);
    assert_eq!(oldest(&rig), [None; 3], "there are none");
}

#[test]
fn wait_02_time_unsent_is_from_the_write_to_the_first_departure() {
    let mut rig = windowed();
    rig.device = Device::Completes;
    rig.write(10 * MSS);
    assert_stayed(&rig, 0, &[(1, millis(0))]);
    rig.advance(millis(5));
    rig.write(MSS);
    rig.advance(millis(3));
    rig.write(MSS);
    assert_eq!(rig.blocked(), Blocked::Cwnd);
    rig.advance(millis(12));
    assert_eq!(oldest(&rig)[0], Some(millis(15)), "the first of those that wait");
    rig.advance(millis(20));
    rig.ack(MSS);
    // One sample for both: 35 ms. The next byte that is written is timed again.
    assert_stayed(&rig, 0, &[(1, millis(0)), (1, millis(35))]);
    rig.write(100);
    rig.advance(millis(70));
    rig.ack_all();
    assert_stayed(&rig, 0, &[(1, millis(0)), (1, millis(35)), (1, millis(70))]);
}

#[test]
fn wait_03_time_in_the_device_is_each_packets() {
    let mut rig = windowed();
    rig.write(3 * MSS);
    rig.advance(millis(1));
    rig.complete(0);
    assert_stayed(&rig, 1, &[(1, millis(1))]);
    rig.advance(millis(4));
    rig.write(MSS);
    // 5 ms is a bound: the packet that left was handed over with the oldest that is still there.
    assert_eq!(oldest(&rig)[1], Some(millis(5)));
    rig.complete(1);
    rig.complete(2);
    rig.advance(millis(15));
    rig.complete(3);
    assert_stayed(&rig, 1, &[(1, millis(1)), (2, millis(5)), (1, millis(15))]);
    assert_eq!(oldest(&rig)[1], None);
    // An empty device has no oldest packet; the next one is that.
    rig.write(MSS);
    rig.advance(millis(2));
    assert_eq!(oldest(&rig)[1], Some(millis(2)));
    // A pure ACK holds no bytes.
    rig.ack_with(&Ack::of(0).payload(1));
    rig.advance(millis(200));
    let ack = rig.held().into_iter().find(|&name| rig.sent[name].len() == 0).expect("an ACK");
    rig.complete(ack);
    assert_stayed(&rig, 1, &[(1, millis(1)), (2, millis(5)), (1, millis(15))]);
}

#[test]
fn wait_04_time_in_flight_is_from_the_departure_to_the_ack() {
    let mut rig = windowed();
    rig.device = Device::Completes;
    rig.write(MSS);
    rig.advance(millis(10));
    rig.write(MSS);
    rig.advance(millis(30));
    assert_eq!(oldest(&rig)[2], Some(millis(40)));
    rig.ack(MSS);
    assert_stayed(&rig, 2, &[(1, millis(40))]);
    assert_eq!(oldest(&rig)[2], Some(millis(30)), "the second left 10 ms after the first");
    rig.advance(millis(40));
    rig.ack(2 * MSS);
    assert_stayed(&rig, 2, &[(1, millis(40)), (1, millis(70))]);
}

#[test]
fn wait_05_what_the_device_refused_is_unsent() {
    let mut rig = windowed();
    rig.write(MSS);
    rig.advance(millis(3));
    rig.write(MSS);
    // It was sent at 3 ms, refused at 5, and leaves at 20.
    rig.advance(millis(2));
    rig.device = Device::Sleeps;
    rig.refuse(1);
    assert_eq!(bytes(&rig), [MSS, MSS, 0]);
    rig.advance(millis(15));
    assert_eq!(oldest(&rig)[0], Some(millis(15)));
    rig.device = Device::Completes;
    rig.poll();
    assert_eq!(bytes(&rig), [0, MSS, MSS]);
    assert_stayed(&rig, 0, &[(2, millis(0)), (1, millis(15))]);
}

#[test]
fn wait_06_retransmitted_bytes_wait_in_the_device_too() {
    let mut rig = windowed();
    rig.device = Device::Completes;
    rig.write(10 * MSS);
    rig.advance(millis(40));
    rig.device = Device::Keeps;
    rig.ack_with(&Ack::of(0).sack(&[MSS..4 * MSS]));
    assert_eq!(rig.news().last(), Some(&(0..MSS)), "lost, by three segments above it");
    // It is both unacknowledged and in the device: counted once, there.
    assert_eq!(bytes(&rig), [0, MSS, 9 * MSS]);
    assert_eq!(rig.info().bytes_retrans, MSS);
}

/// A retransmission waited for its own copy in the device. Then there is nothing to send any more: all was
/// acknowledged and our FIN with it, or the connection is over. From then on no gate holds it back, and no
/// time counts as that gate's.
#[test]
fn wait_08_nothing_holds_back_a_connection_that_has_nothing_to_send() {
    for ends in [Ack::of(4 * MSS + 1), Ack::of(0).reset()] {
        let rtt = millis(20);
        let mut rig = Setup { caps: LinkCaps::plain(1_500), rtt, ..Setup::default() }
            .config(|config| config.send.tsq = TsqMode::Off)
            .open();
        rig.write(4 * MSS);
        rig.shutdown();
        rig.advance(rtt);
        rig.ack_with(&Ack::of(0).sack(&[MSS..4 * MSS]));
        assert_eq!((rig.blocked(), rig.info().lost), (Blocked::SmallQueue, 1));
        rig.advance(millis(5));
        rig.ack_with(&ends);
        assert_eq!(rig.blocked(), Blocked::NoData, "{ends:?}");
        rig.advance(millis(30));
        let report = rig.stack.conn(rig.id).unwrap().report(rig.now);
        for (gate, span) in report.shares {
            let expected = match gate {
                Gate::NoData => rtt + millis(30),
                Gate::SmallQueue => millis(5),
                _ => millis(0),
            };
            assert_eq!(span, expected, "{gate:?} {ends:?}");
        }
        assert_eq!(rig.info().busy_time, rtt + millis(5), "from the write to the end");
        // The sum over all connections has it, too.
        let of_all = rig.stack.report(rig.now).shares;
        assert_eq!(of_all[Gate::SmallQueue as usize], (Gate::SmallQueue, millis(5)), "{ends:?}");
    }
}
