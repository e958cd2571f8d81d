//! TCP Small Queues: TSQ-1 … TSQ-26.
//!
//! A packet is charged `T = 1024 + payload` from hand-over to completion. A candidate waits while
//! `out >= min(max(2 T, rate >> 10), cap)`, doubled for a retransmission; with at most one packet
//! unacknowledged it never waits.

use taut_core::{Blocked, Duration, LinkCaps, SetOption, TsqMode};

use crate::spec::rig::{Ack, Device, MSS, Rig, Sent, Setup, truesize};

/// A super-packet of two segments, and its charge.
const PAIR: u64 = 2 * MSS;
const RTT: Duration = Duration::from_millis(20);

/// A link that spaces packets by their stamps: a rate can be set and the pacing gate stays open.
fn pacing_link() -> LinkCaps {
    LinkCaps { paces: true, ..LinkCaps::offloading(1_500) }
}

/// At 1.25 MB/s and 20 ms a super-packet has two segments (1,250,000 >> 10 is less than one), and
/// limit = max(2 T, 1220) = 7840.
fn slow() -> Rig {
    slow_with(true)
}

fn slow_with(autocorking: bool) -> Rig {
    let setup = Setup { caps: pacing_link(), rtt: RTT, ..Setup::default() };
    let mut rig = setup.config(|config| config.send.autocorking = autocorking).open();
    rig.limit_rate(1_250_000);
    rig
}

/// `count` packets are sent and acknowledged, and their completions never come.
fn strand(rig: &mut Rig, count: u32) {
    for _ in 0..count {
        rig.write(PAIR);
        rig.advance(RTT);
        rig.ack_all();
    }
    assert_eq!(rig.news().len(), count as usize);
    assert_eq!(rig.out(), count * truesize(PAIR));
    assert_eq!(rig.info().unacked, 0);
}

/// Ten single segments in flight (and `unsent` behind them), of which the first, or `held`, and the last are
/// still below TCP, with a cap of `cap` bytes.
fn ten_segments(cap: u32, held: &[usize], unsent: u64) -> Rig {
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: RTT, ..Setup::default() };
    let mut rig = setup.config(|config| config.send.limit_output_bytes = cap).open();
    rig.write((10 + unsent) * MSS);
    for name in (0..10).filter(|name| !held.contains(name)) {
        rig.complete(name);
    }
    assert_eq!((rig.held(), rig.info().unacked), (held.to_vec(), 10));
    rig.news();
    rig.advance(RTT);
    rig
}

/// Segments `from..to` arrive, one ACK each; everything before `from` is missing.
fn sack_each(rig: &mut Rig, first: u64, segments: std::ops::Range<u64>) {
    for segment in segments {
        rig.ack_with(&Ack::of(0).sack(&[first * MSS..(segment + 1) * MSS]));
    }
}

/// Fixed cap of 131,072, bulk sender, completions held back: the bytes below TCP stop at about the cap.
#[test]
fn tsq_01_fixed_cap_bounds_what_is_below() {
    let setup = Setup { rtt: Duration::from_millis(1), ..Setup::default() };
    let mut rig = setup.config(|config| config.send.tsq = TsqMode::Fixed { cap_bytes: 131_072 }).open();
    rig.grow_cwnd(200, Duration::from_millis(1));
    rig.write(1_000_000);
    let packets = rig.news();
    let largest = packets.iter().map(|bytes| bytes.end - bytes.start).max().unwrap();
    // The last one was let through below the cap.
    assert!((131_072..131_072 + truesize(largest)).contains(&rig.out()), "{} below TCP", rig.out());
    assert!(rig.info().unacked < 200, "the window was not the limit");
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    rig.advance(Duration::from_micros(100));
    assert!(rig.news().is_empty());
}

/// Fixed cap of 40,000: no super-packet above 20,000 bytes, so that two fit.
#[test]
fn tsq_02_fixed_cap_halves_super_packets() {
    let setup = Setup { rtt: Duration::from_millis(1), ..Setup::default() };
    let mut rig = setup.config(|config| config.send.tsq = TsqMode::Fixed { cap_bytes: 40_000 }).open();
    rig.grow_cwnd(100, Duration::from_millis(1));
    rig.write(1_000_000);
    for _ in 0..10 {
        rig.complete_all();
    }
    let largest = rig.news().iter().map(|bytes| bytes.end - bytes.start).max().unwrap();
    // As many whole segments as fit.
    assert_eq!(largest, 20_000 / MSS * MSS);
}

/// Rate 1.25 MB/s, equal buffers, no completions: exactly 2 below TCP, the third waits.
#[test]
fn tsq_03_exactly_two_equal_packets_below() {
    let mut rig = slow();
    rig.write(100_000);
    assert_eq!(rig.news(), [0..PAIR, PAIR..2 * PAIR]);
    assert_eq!(rig.out(), 2 * truesize(PAIR));
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    assert_eq!(rig.count("TautTsqThrottled"), 1);
    // Each completion lets one more packet out, in any order.
    rig.complete(1);
    assert_eq!(rig.news(), [2 * PAIR..3 * PAIR]);
    rig.complete(0);
    assert_eq!(rig.news(), [3 * PAIR..4 * PAIR]);
    assert_eq!(rig.out(), 2 * truesize(PAIR));
}

/// Two or more unacknowledged: out = limit blocks, out = limit − 1 does not.
#[test]
fn tsq_04_blocks_at_exactly_the_limit() {
    for (short, sent) in [(0, 0), (1, 1), (2, 1)] {
        let mut rig = slow();
        rig.write_eor(PAIR);
        rig.write_eor(PAIR - short);
        assert_eq!(rig.news().len(), 2);
        // The candidate has two segments: limit = 2 T = 7840.
        assert_eq!(u64::from(rig.out()), 7_840 - short);
        rig.write_eor(PAIR);
        assert_eq!(rig.news().len(), sent, "out = limit - {short}");
        assert_eq!(rig.blocked() == Blocked::SmallQueue, sent == 0);
    }
}

/// Nothing unacknowledged, far above the limit: sent, and the connection does not wait for a completion.
#[test]
fn tsq_05_the_head_never_waits() {
    let mut rig = slow();
    strand(&mut rig, 5);
    let throttled = rig.count("TautTsqThrottled");
    rig.write(PAIR);
    assert_eq!(rig.news().len(), 1);
    assert_eq!(rig.count("TautTsqThrottled"), throttled);
    assert!(rig.count("TautTsqExempt") > 0);
    // The flag is clear: autocorking sets it, and counts only that.
    rig.write(100);
    assert_eq!((rig.news().len(), rig.count("TcpExtTCPAutoCorking")), (0, 1));
}

/// One unacknowledged, far above the limit: sent. Two: blocked.
#[test]
fn tsq_06_one_unacknowledged_is_exempt_too() {
    let mut rig = slow_with(false);
    strand(&mut rig, 5);
    rig.write(PAIR);
    assert_eq!(rig.news().len(), 1);
    rig.write(PAIR);
    assert_eq!(rig.news().len(), 1);
    rig.write(PAIR);
    assert_eq!(rig.news().len(), 0);
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
}

/// Both together: without a single completion, two packets leave in every round trip.
#[test]
fn tsq_06_flows_without_completions() {
    let mut rig = slow();
    rig.write(20 * PAIR);
    for round in 1..=10 {
        assert_eq!(rig.news().len(), 2, "round trip {round}");
        assert_eq!(rig.out(), 2 * round * truesize(PAIR));
        rig.advance(RTT);
        rig.ack_all();
    }
    assert_eq!(rig.info().bytes_acked, rig.written);
}

/// A completion between the limit test and the flag. Nothing can come between these here; the nearest case is
/// a completion between the write and the next poll for packets: it is seen, and nothing is throttled.
#[test]
fn tsq_07_a_completion_before_the_test_is_seen() {
    let mut rig = slow_with(false);
    rig.write(2 * PAIR);
    assert_eq!(rig.out(), 2 * truesize(PAIR));
    rig.device = Device::Sleeps;
    rig.write(PAIR);
    rig.complete_quietly(0);
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.news(), [0..PAIR, PAIR..2 * PAIR, 2 * PAIR..3 * PAIR]);
    assert_eq!(rig.count("TautTsqThrottled"), 0);
}

/// Throttled, one completion: one resume, and not from within the completion.
#[test]
fn tsq_08_a_completion_resumes_once_and_from_outside() {
    let mut rig = slow();
    rig.write(100_000);
    rig.news();
    rig.complete_quietly(0);
    assert!(rig.news().is_empty(), "completing sends nothing");
    assert!(rig.poll_one());
    assert!(!rig.poll_one());
    assert_eq!(rig.news(), [2 * PAIR..3 * PAIR]);
}

/// As TSQ-8, but the user holds the socket. Here a command holds it for its own duration (the borrow of
/// `ConnMut`): nothing leaves inside a command, everything at the next poll for packets.
#[test]
fn tsq_09_nothing_leaves_inside_a_command() {
    let mut rig = slow();
    rig.write(50_000);
    rig.news();
    rig.device = Device::Sleeps;
    rig.complete_quietly(0);
    rig.write(1_000);
    rig.set(SetOption::Nodelay(true));
    assert!(rig.news().is_empty());
    rig.device = Device::Keeps;
    rig.poll();
    assert_eq!(rig.news(), [2 * PAIR..3 * PAIR]);
}

/// Two completions before the resume runs: one resume, which finds room for two.
#[test]
fn tsq_10_two_completions_are_one_resume() {
    let mut rig = slow();
    rig.write(100_000);
    rig.news();
    let throttled = rig.count("TautTsqThrottled");
    rig.complete_quietly(0);
    rig.complete_quietly(1);
    rig.poll();
    assert_eq!(rig.news(), [2 * PAIR..3 * PAIR, 3 * PAIR..4 * PAIR]);
    assert_eq!(rig.count("TautTsqThrottled"), throttled + 1, "found shut once more");
}

/// A pure ACK's completion resumes nothing and leaves the flag set.
#[test]
fn tsq_11_completion_of_an_ack_does_not_count() {
    let mut rig = ten_segments(4_000, &[8, 9], 6);
    rig.ack_with(&Ack::of(0).payload(1_448));
    rig.ack_with(&Ack::of(0).payload(1_448));
    let ack = *rig.held().last().unwrap();
    assert!(ack > 9 && rig.sent[ack].len() == 0, "an ACK is below TCP");
    assert_eq!(rig.sent[ack].truesize, 2);
    assert!(rig.news().is_empty());
    // Room appears without any notification.
    rig.ack(5 * MSS);
    rig.stack.set_sysctl("taut.tsq", "off").unwrap();
    rig.poll();
    rig.news();
    rig.complete(ack);
    assert!(rig.news().is_empty());
    rig.complete(8);
    assert!(!rig.news().is_empty());
}

/// A retransmission has twice the limit of new data, doubled after the cap.
#[test]
fn tsq_12_retransmission_has_twice_the_limit_after_the_cap() {
    for (cap, second) in [(3_708, 0), (3_709, 1)] {
        let mut rig = ten_segments(cap, &[8, 9], 0);
        // 2472 each, and new data was let out below 2472 only.
        assert_eq!(rig.out(), 4_944);
        sack_each(&mut rig, 4, 4..7);
        // 4944 is above the cap and below twice the cap.
        assert_eq!(rig.news(), [0..MSS]);
        assert_eq!(rig.out(), 7_416);
        assert_eq!(rig.count("TautTsqExempt"), 0, "there was room for it");
        assert_eq!(rig.info().tsq_limit, Some(cap.into()), "what is shown is the limit of new data");
        // 2 · 3708 = 7416 blocks, 2 · 3709 does not. (Doubled before the cap it would be 3708.)
        sack_each(&mut rig, 4, 7..8);
        assert_eq!(rig.news().len(), second, "cap {cap}");
        sack_each(&mut rig, 4, 8..9);
        assert_eq!(rig.news().len(), 0);
        assert_eq!(rig.blocked(), Blocked::SmallQueue);
        // The completion of the last original lets the next one out.
        rig.complete(9);
        assert_eq!(rig.news().len(), 1);
    }
}

/// The original is still in the host's queue: its retransmission is refused and counted, and leaves after the
/// completion.
#[test]
fn tsq_13_no_retransmission_while_the_original_is_below() {
    // In the second case, new data has throttled the connection before.
    for (cap, unsent) in [(4_194_304, 0), (4_000, 4)] {
        let mut rig = ten_segments(cap, &[0, 9], unsent);
        sack_each(&mut rig, 4, 4..7);
        assert_eq!(rig.info().lost, 4);
        assert!(rig.news().is_empty());
        assert_eq!(rig.blocked(), Blocked::SmallQueue);
        assert_eq!(rig.count("TcpExtTCPSpuriousRtxHostQueues"), 1, "{unsent} unsent");
        // Another packet's completion does not open the gate for it; new data may pass.
        rig.complete(9);
        assert!(rig.news().iter().all(|bytes| bytes.start >= 10 * MSS));
        assert_eq!(rig.count("TcpRetransSegs"), 0);
        rig.complete(0);
        if unsent > 0 {
            // New data has used the room that the last ACK made in the window; the next ACK makes more.
            assert!(rig.news().is_empty());
            sack_each(&mut rig, 4, 7..8);
        }
        assert_eq!(rig.news()[0], 0..MSS);
        assert_eq!(rig.count("TcpRetransSegs"), 1);
    }
}

/// The head after a timeout, its original still below: refused and counted, the timeout backs off all the
/// same, and it leaves with the completion.
#[test]
fn tsq_13_not_even_after_a_timeout() {
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: RTT, ..Setup::default() };
    let mut rig = setup.config(|config| config.recovery.tail_loss_probes = false).open();
    rig.write(MSS);
    rig.news();
    // RTO = srtt + 200 ms, then twice that.
    rig.advance(Duration::from_millis(220));
    assert_eq!((rig.count("TcpExtTCPTimeouts"), rig.info().backoff), (1, 1));
    assert_eq!(rig.count("TcpExtTCPSpuriousRtxHostQueues"), 1);
    rig.advance(Duration::from_millis(440));
    assert_eq!((rig.count("TcpExtTCPTimeouts"), rig.info().backoff), (2, 2));
    assert!(rig.news().is_empty());
    rig.complete(0);
    assert_eq!(rig.news(), [0..MSS]);
    assert_eq!(rig.count("TcpRetransSegs"), 1);
}

/// Rate 1.25 GB/s: under a cap of 1 MiB the limit is 1,048,576, under one of 4 MiB it is rate >> 10 =
/// 1,220,703.
#[test]
fn tsq_14_rate_share_under_the_cap() {
    for (cap, limit) in [(1 << 20, 1_048_576_u64), (4 << 20, 1_220_703)] {
        for (below, sent) in [(0, 0), (1, 1)] {
            let millisecond = Duration::from_millis(1);
            let setup = Setup { caps: pacing_link(), rtt: millisecond, ..Setup::default() };
            let mut rig = setup.config(|config| config.send.limit_output_bytes = cap).open();
            rig.set(SetOption::Nodelay(true));
            rig.grow_cwnd(1_000, millisecond);
            rig.limit_rate(1_250_000_000);
            let largest = 45 * MSS;
            let mut left = limit - below;
            while left > 2 * u64::from(truesize(largest)) {
                rig.write_eor(largest);
                left -= u64::from(truesize(largest));
            }
            for half in [left / 2, left - left / 2] {
                rig.write_eor(half - 1_024);
            }
            rig.news();
            assert_eq!(u64::from(rig.out()), limit - below, "below TCP");
            rig.write_eor(100);
            assert_eq!(rig.news().len(), sent, "cap {cap}, out = limit - {below}");
        }
    }
}

/// A shift of 7 instead of 10, as Wi-Fi: eight times the rate's share below TCP, and larger super-packets.
#[test]
fn tsq_15_shift_of_the_link() {
    let open = |caps: LinkCaps, pacing_shift| {
        let caps = LinkCaps { paces: true, pacing_shift, ..caps };
        let mut rig = Setup { caps, ..Setup::default() }.open();
        rig.grow_cwnd(200, Duration::from_millis(40));
        rig.limit_rate(12_500_000);
        rig.write(1_000_000);
        rig
    };
    // 12.5 MB/s >> 10 = 12,207; >> 7 = 97,656. Packets of 2472 leave until that is reached.
    for (shift, packets) in [(10, 5), (7, 40)] {
        assert_eq!(open(LinkCaps::plain(1_500), shift).news().len(), packets, "shift {shift}");
    }
    // 12,207 / 1448 = 8 segments; 97,656 is more than a device takes: 45.
    for (shift, segs) in [(10, 8), (7, 45)] {
        let first = open(LinkCaps::offloading(1_500), shift).news()[0].clone();
        assert_eq!(first.end - first.start, segs * MSS, "shift {shift}");
    }
}

/// TCP_TX_DELAY: bytes delayed on purpose do not count as a queue; rate · delay in µs >> 19 may be below TCP
/// in addition to the limit.
#[test]
fn tsq_15_delay_on_purpose() {
    let mut rig = Setup { caps: pacing_link(), rtt: RTT, ..Setup::default() }.open();
    rig.grow_cwnd(40, RTT);
    rig.limit_rate(1_250_000);
    rig.set(SetOption::TxDelay(Duration::from_millis(10)));
    rig.write(100_000);
    // 7840 + (1,250,000 · 10,000 >> 19) = 31,681: below that after eight packets of 3920.
    assert_eq!(rig.news().len(), 9);
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
    let first = rig.sent.len() - 9;
    assert_eq!(rig.sent[first].departure, rig.now + Duration::from_millis(10));
}

/// A resume with lost data and room in the window: retransmissions precede new data.
#[test]
fn tsq_16_resume_retransmits_first() {
    let millisecond = Duration::from_millis(1);
    let setup = Setup { caps: LinkCaps::plain(1_500), rtt: millisecond, ..Setup::default() };
    let mut rig = setup.open();
    // 28.96 MB/s >> 10 = 28,281: all ten fit below TCP.
    rig.write(10 * MSS);
    assert_eq!(rig.news().len(), 10);
    for name in 1..10 {
        rig.complete(name);
    }
    rig.advance(millisecond);
    sack_each(&mut rig, 2, 2..10);
    let info = rig.info();
    assert_eq!((info.lost, info.retrans), (2, 0));
    assert!(info.snd_cwnd > 2, "room for more than what is lost");
    assert!(rig.news().is_empty(), "the original of the head is still below");
    // Both come in one turn.
    rig.device = Device::Sleeps;
    rig.write(10 * MSS);
    rig.complete_quietly(0);
    rig.device = Device::Keeps;
    rig.poll();
    let news = rig.news();
    assert_eq!(news[..3], [0..MSS, MSS..2 * MSS, 10 * MSS..11 * MSS]);
}

/// A device that completes at submission: nothing is ever below TCP, and nothing is ever throttled.
#[test]
fn tsq_17_orphaning_device_defeats_it() {
    let mut rig = slow();
    rig.device = Device::Completes;
    rig.write(1_000_000);
    for _ in 0..20 {
        assert_eq!(rig.out(), 0);
        rig.advance(RTT);
        rig.ack_all();
    }
    assert!(rig.news().len() > 20);
    assert_eq!(rig.count("TautTsqThrottled"), 0);
}

/// Blocked after a split: the parts leave as they were split; nothing is lost or reordered.
#[test]
fn tsq_18_blocked_after_a_split() {
    let mut rig = slow();
    rig.write(20 * MSS + 700);
    rig.shutdown();
    let mut packets = rig.news();
    for _ in 0..6 {
        // The device completes packets in reverse order.
        while let Some(&name) = rig.held().last() {
            assert!(rig.held().len() <= 2);
            rig.complete(name);
            packets.extend(rig.news());
        }
        rig.advance(RTT);
        rig.ack_all();
        packets.extend(rig.news());
    }
    assert_eq!(rig.info().bytes_acked, rig.written);
    let whole = (0..10).map(|n| n * PAIR..(n + 1) * PAIR);
    assert_eq!(packets, whole.chain([20 * MSS..20 * MSS + 700]).collect::<Vec<_>>());
}

/// Packets below TCP after a round trip of 20 ms in which `delivered` of 200 segments in flight were
/// acknowledged, in slow start: cwnd is 200 and those, and the pacing rate is 2 cwnd / 20 ms.
fn below_after(mode: TsqMode, delivered: u64, max_rate: Option<u64>) -> usize {
    let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
    let setup = Setup { caps, rtt: RTT, ..Setup::default() };
    let mut rig = setup.config(|config| config.send.tsq = mode).open();
    rig.grow_cwnd(200, RTT);
    if let Some(rate) = max_rate {
        rig.set(SetOption::MaxPacingRate(rate));
    }
    rig.device = Device::Completes;
    rig.write(200 * MSS);
    rig.advance(RTT);
    rig.device = Device::Keeps;
    rig.news();
    let acked = rig.info().bytes_acked;
    rig.ack(acked + delivered * MSS);
    rig.write(200 * MSS);
    rig.held().len()
}

/// 200 segments in 20 ms are 14.48 MB/s; 9/8 of that >> 10 is 15,908 bytes: seven packets of T = 2472 until
/// they reach it. The pacing rate, of slow start, would allow more than twice as many.
#[test]
fn tsq_19_the_delivery_rate_bounds_the_limit() {
    assert_eq!(below_after(TsqMode::Delivered, 200, None), 7);
    assert!(below_after(TsqMode::RateScaled, 200, None) > 16);
}

/// A rate below 9/8 of the delivery rate counts itself: 10 MB/s >> 10 is 9765 bytes, four packets.
#[test]
fn tsq_20_a_lower_pacing_rate_counts() {
    assert_eq!(below_after(TsqMode::Delivered, 200, Some(10_000_000)), 4);
}

/// Without a sample the pacing rate counts: 1.25 MB/s allows two packets, 50 MB/s >> 10 = 48,828 bytes
/// nineteen of T = 2472 and one more, in either mode.
#[test]
fn tsq_21_without_a_sample_the_pacing_rate_counts() {
    for mode in [TsqMode::Delivered, TsqMode::RateScaled] {
        let caps = LinkCaps { paces: true, ..LinkCaps::plain(1_500) };
        let setup = Setup { caps, rtt: Duration::from_micros(100), ..Setup::default() };
        let setup = setup.config(|config| config.send.tsq = mode);
        // 5 MB/s >> 10 = 4882 is less than two packets of T = 2472; 20 MB/s >> 10 = 19531 is less than eight.
        for (rate, packets) in [(5_000_000, 2), (20_000_000, 8)] {
            let mut rig = setup.open();
            rig.limit_rate(rate);
            rig.write(10 * MSS);
            assert_eq!(rig.held().len(), packets, "{mode:?} {rate}");
            assert_eq!(rig.blocked(), Blocked::SmallQueue);
        }
    }
}

/// A link that paces at 1.25 MB/s, with the default rule, and packets of two segments although the path is
/// short.
fn two_segments() -> Rig {
    let setup = Setup { caps: pacing_link(), rtt: Duration::from_millis(1), ..Setup::default() };
    let setup = setup.config(|config| (config.send.tsq, config.send.tso_rtt_log) = (TsqMode::Auto, 0));
    let mut rig = setup.open();
    rig.limit_rate(1_250_000);
    rig
}

/// The thread looks every 20 ms: it gives back together all tickets of packets that have left,
/// and has the ACKs of what left a millisecond before. Two packets would be 4.7 of the 20 ms.
#[test]
fn tsq_25_a_thread_that_looks_late_keeps_the_rate() {
    let mut rig = two_segments();
    for _ in 0..1_500 {
        if rig.info().notsent_bytes < 50_000 {
            rig.write(100_000);
        }
        rig.advance(Duration::from_millis(20));
        for name in rig.held() {
            if rig.sent[name].departure <= rig.now {
                rig.complete_quietly(name);
            }
        }
        let acked = rig.now.saturating_sub(Duration::from_millis(1));
        let upto = rig.sent.iter().filter(|sent| sent.departure <= acked).map(|sent| sent.bytes.end).max();
        rig.ack(upto.unwrap());
    }
    let second = rig.now.saturating_sub(Duration::from_secs(1))..rig.now;
    let left = rig.sent.iter().filter(|sent| second.contains(&sent.departure));
    let bytes: u64 = left.map(Sent::len).sum();
    assert!((1_250_000 - 2 * PAIR..1_250_000 + 2 * PAIR).contains(&bytes), "{bytes} in the last second");
    // 20 ms of the rate, and two packets; a third may be on its way to the last departure.
    assert!(u64::from(rig.out()) <= 25_000 * 3_920 / PAIR + 3 * 3_920, "{} below", rig.out());
    assert_eq!(rig.count("TautPacingBlocked"), 0);
    let ahead = rig.info().tsq_time.unwrap();
    assert!((Duration::from_millis(15)..=Duration::from_millis(20)).contains(&ahead), "{ahead:?}");
}

/// The line carries half of the rate at which the link would let packets leave, so their tickets are late:
/// each comes back when its packet has left the line. What a stall of the thread has added is gone twenty
/// seconds later: in the first ten, the least to spare is what was there just after the stall.
#[test]
fn tsq_26_a_slow_line_is_not_a_late_thread() {
    let mut rig = two_segments();
    let each = Duration::from_nanos(PAIR * 1_000_000_000 / 625_000);
    let run = |rig: &mut Rig, packets: u32| {
        for _ in 0..packets {
            rig.advance(each);
            let name = rig.held()[0];
            let upto = rig.sent[name].bytes.end;
            rig.complete(name);
            rig.write(PAIR);
            rig.ack(upto);
        }
    };
    rig.write(40 * PAIR);
    run(&mut rig, 100);
    assert_eq!(rig.info().tsq_limit, Some(7_840), "late tickets alone");
    // The thread is away for 30 ms, and meanwhile both packets leave the line.
    rig.advance(Duration::from_millis(30));
    let upto = rig.sent.last().unwrap().bytes.end;
    rig.complete_all();
    rig.ack(upto);
    rig.write(40 * PAIR);
    let limit = rig.info().tsq_limit;
    assert!(limit > Some(7_840), "{limit:?} after the stall");
    rig.write(4_000 * PAIR);
    run(&mut rig, 4_400);
    assert_eq!(rig.info().tsq_limit, Some(7_840), "twenty seconds later");
}

/// Switched off, as before 3.6: the congestion window alone bounds the bytes below TCP.
#[test]
fn tsq_off_sends_the_whole_window() {
    let setup = Setup { caps: pacing_link(), rtt: RTT, ..Setup::default() };
    let mut rig = setup.config(|config| config.send.tsq = TsqMode::Off).open();
    rig.limit_rate(1_250_000);
    rig.write(100_000);
    assert_eq!(rig.info().unacked, 10);
    assert_eq!(rig.blocked(), Blocked::Cwnd);
}
