//! How the mechanisms work together: COMP-1 … COMP-13.

use taut_core::{Algorithm, Blocked, ConnInfo, ConnOptions, Duration, LinkCaps};

use crate::spec::rig::{Ack, Device, MSS, Rig, Setup, truesize};

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A link of single segments, RTT 20 ms, Reno: slow start goes on until something is lost.
fn plain() -> Setup {
    let options = ConnOptions { congestion: Some(Algorithm::reno()), ..ConnOptions::default() };
    Setup { caps: LinkCaps::plain(1_500), rtt: millis(20), options, ..Setup::default() }
}

/// A path of 20 ms that acknowledges every packet separately; each leaves the host `in_device` after it was
/// handed down. Runs for `span` with an application that always has data; returns the most segments that were
/// in flight.
fn run(rig: &mut Rig, in_device: Duration, span: Duration) -> u32 {
    let (end, from) = (rig.now + span, rig.sent.len());
    let (mut acked, mut completed, mut peak) = (from, from, 0);
    loop {
        if rig.info().notsent_bytes < 100 * MSS {
            rig.write(200 * MSS);
        }
        peak = peak.max(rig.info().unacked);
        let at = |name: usize, later: Duration| rig.sent.get(name).map(|sent| sent.at + later);
        let (ack, completion) = (at(acked, in_device + millis(20)), at(completed, in_device));
        let timer = rig.stack.poll_timeout().map(|(at, _)| at);
        let next = [ack, completion, timer].into_iter().flatten().min().unwrap();
        if next > end {
            return peak;
        }
        if next > rig.now {
            rig.advance(next.since(rig.now));
        }
        if completion.is_some_and(|at| at <= rig.now) {
            rig.complete(completed);
            completed += 1;
        } else if ack.is_some_and(|at| at <= rig.now) {
            rig.ack(rig.sent[acked].bytes.end);
            acked += 1;
        } else if timer == Some(next) {
            rig.advance(Duration::ZERO);
        }
    }
}

/// Held back below cwnd, in slow start: with n segments in flight at most, cwnd stops at about 2 n.
#[test]
fn comp_01_what_is_not_used_does_not_grow() {
    // Pacing: 1.448 MB/s are 1000 segments a second, 20 in 20 ms.
    let mut rig = plain().open();
    rig.limit_rate(1_448_000 * 99 / 100);
    let peak = run(&mut rig, Duration::ZERO, Duration::from_secs(3));
    let info = rig.info();
    assert!((15..=25).contains(&peak), "{peak} in flight");
    assert!(
        (2 * peak - 4..=2 * peak + 1).contains(&info.snd_cwnd),
        "{} with {peak} in flight",
        info.snd_cwnd
    );
    assert_eq!(info.snd_ssthresh, u32::MAX);

    // Small queues: two packets below TCP, 2 ms for each pair. Again about one per millisecond, 22 ms until
    // the ACK.
    let setup = plain().config(|config| config.send.limit_output_bytes = 4_000);
    let mut rig = setup.open();
    let peak = run(&mut rig, millis(2), Duration::from_secs(3));
    let info = rig.info();
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    assert!((15..=26).contains(&peak), "{peak} in flight");
    assert!(
        (2 * peak - 4..=2 * peak + 1).contains(&info.snd_cwnd),
        "{} with {peak} in flight",
        info.snd_cwnd
    );
    assert_eq!(info.snd_ssthresh, u32::MAX);
}

/// Closed window with data queued: limited by the peer, and still busy.
#[test]
fn comp_02_closed_window_is_the_peers_limit_and_busy() {
    let mut rig = plain().open();
    rig.ack_with(&Ack::of(0).window(0));
    rig.write(10_000);
    assert_eq!(rig.blocked(), Blocked::PeerWindow);
    let before = rig.info();
    rig.advance(millis(150));
    let after = rig.info();
    assert_eq!(after.rwnd_limited - before.rwnd_limited, millis(150));
    assert_eq!(after.busy_time - before.busy_time, millis(150));
    assert_eq!(after.sndbuf_limited, Duration::ZERO);
    // Open again: busy, and not limited by the window.
    rig.ack_with(&Ack::of(0).window(1 << 20));
    let before = rig.info();
    rig.advance(millis(10));
    let after = rig.info();
    assert_eq!(after.rwnd_limited, before.rwnd_limited);
    assert_eq!(after.busy_time - before.busy_time, millis(10));
    // All acknowledged: idle. Something in flight: busy.
    rig.device = Device::Completes;
    rig.complete_all();
    rig.ack_all();
    assert_eq!(rig.info().bytes_acked, 10_000);
    let before = rig.info();
    rig.advance(millis(50));
    assert_eq!(rig.info().busy_time, before.busy_time);

    let mut rig = plain().open();
    rig.write(MSS);
    rig.advance(millis(15));
    assert_eq!((rig.info().busy_time, rig.info().rwnd_limited), (millis(15), Duration::ZERO));
}

/// All sent, an application that found no room, a congestion window that is not full: limited by the send
/// buffer.
#[test]
fn comp_03_small_send_buffer() {
    let mut setup = plain();
    setup.options.sndbuf = Some(4_096);
    let mut rig = setup.open();
    rig.device = Device::Completes;
    rig.fill();
    let info = rig.info();
    assert_eq!(info.notsent_bytes, 0);
    assert!(info.unacked < info.snd_cwnd);
    let before = info;
    rig.advance(millis(15));
    let after = rig.info();
    assert_eq!(after.sndbuf_limited - before.sndbuf_limited, millis(15));
    assert_eq!(after.busy_time - before.busy_time, millis(15));
    assert_eq!(after.rwnd_limited, Duration::ZERO);
    // Room again, and data still in flight: busy, and not limited by the buffer.
    rig.advance(millis(5));
    rig.ack(3 * MSS);
    assert_eq!((rig.writable_events(), rig.info().unacked), (1, 1));
    let before = rig.info();
    rig.advance(millis(15));
    let after = rig.info();
    assert_eq!(after.sndbuf_limited, before.sndbuf_limited);
    assert_eq!(after.busy_time - before.busy_time, millis(15));
}

/// Not limited by the send buffer: an application that was never refused, one whose buffer holds exactly what
/// the congestion window allows, and one that was refused room after everything was sent.
#[test]
fn comp_03_not_the_buffer() {
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.write(3 * MSS);
    rig.advance(millis(15));
    assert_eq!(rig.info().sndbuf_limited, Duration::ZERO);

    let mut setup = plain();
    // Ten packets of 2472: 9 · 2472 < 24,000 <= 10 · 2472.
    setup.options.sndbuf = Some(12_000);
    let mut rig = setup.open();
    rig.device = Device::Completes;
    rig.fill();
    let info = rig.info();
    assert_eq!((info.unacked, info.snd_cwnd, info.notsent_bytes), (10, 10, 0));
    rig.advance(millis(15));
    assert_eq!(rig.info().sndbuf_limited, Duration::ZERO);

    // Refused only after everything was sent: counted from the next packet on.
    setup.options.sndbuf = Some(4_096);
    let mut rig = setup.open();
    rig.device = Device::Completes;
    rig.write(3 * MSS);
    assert!(!rig.writable());
    rig.ack(0);
    rig.advance(millis(15));
    assert_eq!(rig.info().sndbuf_limited, Duration::ZERO);
}

/// A write that finds less than a segment unsent, nothing below TCP and room in the window: the samples of
/// packets sent until everything in flight then has been delivered are marked.
#[test]
fn comp_04_application_limited_samples() {
    fn limited(rig: &mut Rig) -> bool {
        rig.info().delivery_rate_app_limited
    }
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.write(MSS);
    rig.advance(millis(20));
    rig.ack_all();
    assert!(limited(&mut rig), "the first write found nothing");

    // The mark is 1 delivered + 0 out: the ten segments that leave now are marked, those after their ACK are
    // not.
    rig.write(20 * MSS);
    rig.advance(millis(20));
    rig.ack(11 * MSS);
    assert!(limited(&mut rig), "delivered had reached the mark, not passed it");
    rig.advance(millis(20));
    rig.ack_all();
    assert!(!limited(&mut rig));

    // Nothing below TCP at the first write.
    rig.device = Device::Keeps;
    rig.write(MSS);
    rig.write(MSS);
    rig.advance(millis(20));
    rig.ack_all();
    rig.write(5 * MSS);
    rig.advance(millis(20));
    rig.ack_all();
    // 2472 bytes of each packet are still below TCP, which is more than 576: the application is not the
    // limit.
    assert!(rig.out() >= 577);
    assert!(!limited(&mut rig));
}

/// The mark of the first write is one segment: packets that leave when that is delivered are still marked,
/// those that leave after the next delivery are not.
#[test]
fn comp_04_marked_until_the_mark_is_passed() {
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.write(20 * MSS);
    rig.advance(millis(20));
    rig.ack(MSS);
    assert_eq!(rig.info().data_segs_out, 12);
    rig.ack(10 * MSS);
    assert_eq!(rig.info().data_segs_out, 20);
    rig.advance(millis(20));
    // Eleven segments in 20 ms: more than ever before, and so the sample counts although it is marked.
    rig.ack(12 * MSS);
    assert_eq!(rig.info().delivery_rate, 11 * MSS * 50);
    assert!(rig.info().delivery_rate_app_limited);
    rig.ack(20 * MSS);
    assert!(!rig.info().delivery_rate_app_limited);
}

/// The conditions that keep a write from marking: a packet below TCP, a segment unsent, a full window.
#[test]
fn comp_04_not_the_application() {
    fn limited(rig: &mut Rig) -> bool {
        rig.info().delivery_rate_app_limited
    }
    // One segment a round trip. The first two are marked (the mark is 1 delivered, and is not passed by the
    // first).
    for (device, expected) in [(Device::Completes, true), (Device::Keeps, false)] {
        let mut rig = plain().open();
        rig.device = device;
        for _ in 0..3 {
            assert_eq!(rig.out() >= 577, !rig.sent.is_empty() && device == Device::Keeps);
            rig.write(MSS);
            rig.advance(millis(20));
            rig.ack_all();
        }
        assert_eq!(limited(&mut rig), expected, "{device:?}");
    }

    // Three segments wait for the window when the write comes.
    let mut rig = Setup { window: 3_072, ..plain() }.open();
    rig.device = Device::Completes;
    rig.write(5 * MSS);
    assert_eq!(rig.info().unacked, 2);
    rig.advance(millis(20));
    rig.ack_with(&Ack::of(2 * MSS).window(0));
    assert!(limited(&mut rig));
    rig.write(MSS);
    rig.ack_with(&Ack::of(2 * MSS).window(1 << 20));
    assert_eq!(rig.info().unacked, 4);
    rig.advance(millis(20));
    rig.ack_all();
    assert!(!limited(&mut rig));

    // Ten segments fill the window; the eleventh write finds it full.
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.write(10 * MSS);
    rig.write(MSS);
    rig.advance(millis(20));
    rig.ack(10 * MSS);
    assert!(limited(&mut rig));
    rig.advance(millis(20));
    rig.ack_all();
    assert!(!limited(&mut rig));
}

/// SO_SNDBUF is never autotuned; without it the buffer follows the window.
#[test]
fn comp_05_a_set_send_buffer_stays() {
    for (sndbuf, expected) in [(Some(50_000), Some(100_000)), (None, None)] {
        let mut setup = plain().config(|config| config.send.wmem.initial = 16_384);
        setup.options.sndbuf = sndbuf;
        let mut rig = setup.open();
        rig.device = Device::Completes;
        let before = rig.info().sndbuf;
        for _ in 0..8 {
            rig.fill();
            rig.advance(millis(20));
            rig.ack_all();
        }
        let after = rig.info();
        match expected {
            Some(set) => assert_eq!((before, after.sndbuf), (set, set)),
            None => {
                // 2 · cwnd · (pow2ceil(mss + 320) + 256), 10 segments at first.
                assert_eq!(before, 2 * 10 * (2_048 + 256));
                assert!(after.sndbuf > 2 * before, "{}", after.sndbuf);
                assert!(after.sndbuf <= 2 * after.snd_cwnd * (2_048 + 256));
            }
        }
    }
}

/// Pacing is asked before the peer's window: data that pacing holds back is not counted against the peer.
#[test]
fn comp_06_pacing_comes_before_the_window() {
    // 14,480 B/s: 100 ms a segment.
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.limit_rate(14_480);
    rig.write(10 * MSS);
    rig.advance(millis(20));
    // Everything arrived, and the window is closed.
    rig.ack_with(&Ack::of(10 * MSS).window(0));
    rig.write(10 * MSS);
    assert!(matches!(rig.blocked(), Blocked::Pacing { .. }), "{}", rig.blocked());
    rig.advance(millis(79));
    assert_eq!(rig.info().rwnd_limited, Duration::ZERO);
    // Its time has come: now it is the window.
    rig.advance(millis(51));
    assert_eq!(rig.blocked(), Blocked::PeerWindow);
    assert_eq!(rig.info().rwnd_limited, millis(50));
}

/// The values that must not change when a packet was not sent.
fn facts(info: &ConnInfo) -> (u64, u32, u64, u64, u64) {
    (info.notsent_bytes, info.unacked, info.bytes_sent, info.bytes_retrans, info.data_segs_out)
}

/// A queue of this host drops a packet: it was not sent, the window is reduced, and the same bytes leave
/// later, once.
#[test]
fn comp_07_dropped_below_is_not_sent() {
    for probed in [false, true] {
        let mut rig = plain().open();
        rig.device = Device::Completes;
        if !probed {
            rig.write(4 * MSS);
        }
        let sent = rig.written;
        rig.device = Device::Sleeps;
        rig.write(3 * MSS);
        let before = rig.info();
        rig.device = Device::Drops;
        rig.poll();
        let after = rig.info();
        assert_eq!(facts(&after), facts(&before), "as if it had not been sent");
        assert_eq!(after.wmem_alloc, 0);
        assert_eq!(rig.news().len(), usize::from(!probed) * 4);
        assert_eq!(after.ca_state, "cwr");
        rig.device = Device::Completes;
        if probed {
            // Nothing in flight: no ACK will come. RTO = srtt + 200 ms.
            let waited = rig.advance_to_send(Duration::from_secs(1));
            assert_eq!(waited, millis(220));
        } else {
            rig.poll();
            assert!(rig.news().is_empty(), "the call is over");
            rig.advance(millis(20));
            rig.ack(sent);
        }
        let news = rig.news();
        assert_eq!(news.first(), Some(&(sent..sent + MSS)));
        rig.finish(millis(20));
        assert_eq!(rig.info().bytes_sent, rig.written, "each byte once");
        assert_eq!(rig.info().bytes_retrans, 0);
    }
}

/// A retransmission that a queue of this host drops was not sent either, and is sent later.
#[test]
fn comp_07_dropped_retransmission_is_sent_later() {
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.write(10 * MSS);
    rig.advance(millis(20));
    rig.device = Device::Drops;
    for upto in [2, 3, 4] {
        rig.ack_with(&Ack::of(0).sack(&[MSS..upto * MSS]));
    }
    let info = rig.info();
    assert_eq!((info.lost, info.retrans, info.bytes_retrans), (1, 0, 0));
    assert_eq!(rig.news().len(), 10);
    rig.device = Device::Completes;
    rig.ack_with(&Ack::of(0).sack(&[MSS..5 * MSS]));
    assert_eq!(rig.news()[0], 0..MSS);
    rig.advance(millis(20));
    rig.ack_all();
    assert_eq!(rig.info().bytes_acked, 10 * MSS);
}

/// A queue of this host took a packet and says that it is full: sent, and the window is reduced, once a round
/// trip.
#[test]
fn comp_08_congested_below_is_sent() {
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.write(9 * MSS);
    rig.device = Device::Keeps;
    rig.write(MSS);
    let before = rig.info();
    assert_eq!((before.ca_state, before.unacked), ("open", 10));
    rig.congested(9);
    let after = rig.info();
    assert_eq!(facts(&after), facts(&before));
    assert_eq!(after.wmem_alloc, before.wmem_alloc, "its ticket is still out");
    assert_eq!(after.ca_state, "cwr");
    // RFC 5681 §3.1, and Reno: half of ten.
    assert_eq!(after.snd_ssthresh, 5);
    // The window shrinks with the ACKs. The data in flight then is not yet acknowledged, so it is still the
    // same reduction.
    rig.advance(millis(20));
    rig.ack(6 * MSS);
    assert!(rig.info().snd_cwnd <= 5);
    rig.congested(9);
    assert_eq!((rig.info().ca_state, rig.info().snd_ssthresh), ("cwr", 5));
    rig.complete_all();
    rig.device = Device::Completes;
    rig.finish(millis(20));
    assert_eq!((rig.info().bytes_sent, rig.info().bytes_retrans), (10 * MSS, 0));
    // The round trip is over; the next ACK ends the reduction.
    rig.write(MSS);
    rig.finish(millis(20));
    assert_eq!((rig.info().ca_state, rig.info().snd_ssthresh), ("open", 5));
}

/// The tail loss probe is due, there is unsent data, and its departure has not come: no probe is sent, and
/// the timeout is armed instead.
#[test]
fn comp_09_probe_of_new_data_is_paced() {
    // 2896 B/s: half a second a segment.
    let mut rig = plain().open();
    rig.device = Device::Completes;
    rig.limit_rate(2_896);
    rig.write(12 * MSS);
    assert_eq!(rig.news().len(), 10);
    let start = rig.now;
    rig.advance(millis(10));
    rig.ack(5 * MSS);
    // Probe at 2 · srtt + 2 ms; then the timeout runs from there: srtt + 200 ms.
    let srtt = rig.info().rtt.unwrap();
    let probe_at = rig.now + srtt * 2 + millis(2);
    let rto = rig.info().rto;
    rig.advance(probe_at.since(rig.now) + millis(1));
    assert!(rig.news().is_empty());
    assert_eq!(rig.count("TcpExtTCPLossProbes"), 0);
    let waited = rig.advance_to_send(Duration::from_secs(1));
    assert_eq!(rig.news(), [5 * MSS..6 * MSS], "the head, by timeout");
    // From the head's departure (Linux), or from the time of the probe that was not sent (RFC 8985 §7.3).
    assert!((start + rto..=probe_at + rto).contains(&rig.now), "after {waited:?}");
    assert!(rig.now < start + millis(500), "before new data's time");
    assert_eq!(rig.count("TcpExtTCPTimeouts"), 1);
}

/// The ACK for everything overtakes the completions, then a small write follows: it is sent at once, whatever
/// is below TCP.
#[test]
fn comp_10_ack_before_completion_then_a_small_write() {
    let mut rig = plain().open();
    rig.write(10 * MSS);
    while rig.info().notsent_bytes > 0 {
        let name = rig.held()[0];
        rig.complete(name);
    }
    rig.news();
    assert_eq!(rig.held().len(), 2);
    rig.advance(millis(20));
    rig.ack_all();
    assert_eq!(rig.info().unacked, 0);
    assert_eq!(rig.out(), 2 * truesize(MSS), "the limit of small queues");
    rig.write(100);
    assert_eq!(rig.news(), [10 * MSS..10 * MSS + 100]);
    assert_eq!(rig.count("TcpExtTCPAutoCorking"), 0);
}

/// 16 KiB of send buffer at first and 128 MiB at most, a peer's window of 60 MiB, and a path of 20 ms that
/// delivers `segments` each round trip, while the application writes whatever fits. After `rounds` of that,
/// in a slow start that only a loss would end: Reno's.
fn bulk_over(segments: u64, rounds: u32) -> Rig {
    let rtt = Duration::from_millis(20);
    let options = ConnOptions { congestion: Some(Algorithm::reno()), ..ConnOptions::default() };
    let setup = Setup { window: 60 << 20, wscale: 12, rtt, options, ..Setup::default() };
    let mut rig = setup.config(|config| config.send.wmem.initial = 16_384).open();
    rig.device = Device::Completes;
    let mut acked = 0;
    for _ in 0..rounds {
        rig.fill();
        rig.advance(rtt);
        let sent = rig.sent.iter().map(|sent| sent.bytes.end).max().unwrap();
        acked = sent.min(acked + segments * MSS);
        rig.ack(acked);
    }
    rig
}

/// A window that nothing limits: each round trip delivers 100 segments, and slow start adds 100 to it. Two
/// windows of 2304 bytes a segment would be 46 MB; the path holds 145 kB.
#[test]
fn comp_11_the_buffer_does_not_follow_a_window_beyond_what_the_path_holds() {
    let mut rig = bulk_over(100, 100);
    let info = rig.info();
    assert!(info.snd_cwnd > 2_000, "{}", info.snd_cwnd);
    assert_eq!(info.sndbuf, 4 << 20, "Linux's maximum of tcp_wmem");
}

/// A path that delivers all there is: the buffer has room for two windows beyond Linux's maximum too, so that
/// slow start goes on.
#[test]
fn comp_12_the_buffer_follows_a_window_that_the_path_holds() {
    let mut rig = bulk_over(u32::MAX.into(), 10);
    let info = rig.info();
    // 10 · 2⁹ segments and more: 23 MB.
    assert!(info.snd_cwnd >= 5_000, "{}", info.snd_cwnd);
    assert!(info.sndbuf >= 2 * info.snd_cwnd * 2_304 / 2, "{} for {}", info.sndbuf, info.snd_cwnd);
}

/// The buffer has reached what the path allows. The peer has segments behind a hole: they have left the path,
/// and the buffer grows by their memory, so that they are not in the way of new data.
#[test]
fn comp_13_what_the_peer_has_behind_a_hole_is_not_in_the_path() {
    let mut rig = bulk_over(100, 100);
    let acked = rig.info().bytes_acked;
    assert_eq!(rig.info().sndbuf, 4 << 20);
    for segments in [100, 500, 1_000] {
        rig.fill();
        rig.advance(Duration::from_millis(2));
        rig.ack_with(&Ack::of(acked).sack(&[acked + MSS..acked + MSS + segments * MSS]));
        let info = rig.info();
        assert_eq!(u64::from(info.sacked), segments);
        assert_eq!(u64::from(info.sndbuf), (4 << 20) + segments * 2_304, "{segments} segments");
    }
}
