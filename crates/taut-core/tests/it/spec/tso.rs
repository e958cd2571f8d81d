//! Sizes: TSO-1 … TSO-19. Where a buffer ends, where a packet is cut, and when it is worth waiting for a
//! bigger one.

use crate::spec::rig::{Ack, Device, MSS, OVERHEAD, Rig, Setup, truesize};
use taut_core::congestion::{AckEvent, Controller, Definition, Signal, Window};
use taut_core::{Algorithm, Blocked, Duration, Fate, Instant, LinkCaps, PacingMode, SetOption, WriteFlags};
use taut_wire::Flags;

/// 45 segments: the multiple of 1448 that fits 65,536 bytes less 321 for headers.
const SIZE_GOAL: u64 = 45 * MSS;

pub(crate) const fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

pub(crate) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The rate shapes sizes, and nothing waits for departures.
pub(crate) fn unpaced(rtt: Duration) -> Setup {
    Setup { rtt, ..Setup::default() }.config(|config| config.send.pacing = PacingMode::Off)
}

/// A path so short that neither rate nor RTT keeps a packet below the device's maximum.
pub(crate) fn fast() -> Setup {
    Setup { rtt: micros(100), ..Setup::default() }
}

/// An idle connection whose pacing rate and least RTT are these, with a congestion window of at least `cwnd`.
#[track_caller]
pub(crate) fn at_rate(setup: &Setup, rate: u64, cwnd: u32) -> Rig {
    let mut rig = setup.open();
    rig.grow_cwnd(cwnd, setup.rtt);
    rig.limit_rate(rate);
    let info = rig.info();
    assert_eq!((info.pacing_rate, info.min_rtt, info.unacked), (rate, Some(setup.rtt), 0));
    rig
}

/// Sends all of the smaller window but `left` segments in such a way that the next write should rather wait:
/// the ACK of the oldest packet is due in `ack_in`, and the last departure was `ago`. Two segments leave
/// then, all others a while before.
#[track_caller]
pub(crate) fn leave_of_window(rig: &mut Rig, left: u32, ack_in: Duration, ago: Duration) {
    rig.device = Device::Completes;
    let info = rig.info();
    let rtt = info.min_rtt.expect("packets were acknowledged");
    let segments = info.snd_cwnd.min(info.snd_wnd / info.snd_mss) - left;
    rig.write(u64::from(segments - 2) * MSS);
    assert_eq!(rig.news().last().map(|last| last.end), Some(rig.written), "the first part left at once");
    rig.advance(rtt - ack_in - ago);
    rig.write(2 * MSS);
    assert_eq!(rig.news().len(), 1, "the window leaves enough for these two");
    rig.advance(ago);
    assert_eq!(rig.info().unacked, segments);
}

/// 12.5 MB/s over 40 ms: the goal is 12,500,000 / 1024 / 1448 = 8 segments.
pub(crate) fn goal_of_eight() -> Rig {
    at_rate(&unpaced(millis(40)), 12_500_000, 180)
}

/// As [`goal_of_eight`], in a state in which the next packet waits if `left` is less than 8 segments.
#[track_caller]
fn waiting(left: u32) -> Rig {
    let mut rig = goal_of_eight();
    leave_of_window(&mut rig, left, micros(400), micros(100));
    rig
}

/// A low rate, 1 MB written: queued buffers have the size goal, packets are two segments.
#[test]
fn tso_01_buffers_have_the_size_goal_and_packets_two_segments() {
    let mut rig = at_rate(&unpaced(millis(40)), 1_250_000, 40);
    rig.device = Device::Sleeps;
    rig.write(1_000_000);
    let buffers = 1_000_000_u64.div_ceil(SIZE_GOAL);
    assert_eq!(buffers, 16);
    assert_eq!(u64::from(rig.info().wmem_queued), 1_000_000 + buffers * u64::from(OVERHEAD));
    rig.device = Device::Completes;
    rig.poll();
    let packets = rig.news();
    assert_eq!(packets.len() as u32, rig.info().snd_cwnd / 2, "as many as the window takes");
    assert!(packets.iter().all(|packet| packet.end - packet.start == 2 * MSS), "{packets:?}");
}

/// The small queue's limit is twice the packet that was cut, not twice the buffer it was cut from.
#[test]
fn tso_02_small_queue_counts_the_cut_packet() {
    let mut rig = at_rate(&unpaced(millis(40)), 1_250_000, 40);
    let start = rig.written;
    rig.write(500_000);
    // max(2 · T(2 mss), 1,250,000 >> 10 = 1220): two packets of two segments are the limit.
    assert_eq!(rig.news(), [start..start + 2 * MSS, start + 2 * MSS..start + 4 * MSS]);
    assert_eq!(rig.out(), 2 * truesize(2 * MSS));
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
}

/// A packet is worth sending at the size to which it is cut.
#[test]
fn tso_03_defer_and_cut_have_one_goal() {
    let mut rig = waiting(8);
    let start = rig.written;
    rig.write(100_000);
    assert_eq!(rig.news(), [start..start + 8 * MSS]);

    let mut rig = waiting(7);
    rig.write(100_000);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::TsoDefer));
}

/// `(rate >> 10) + (65,215 >> (min_rtt_us >> 9))` bytes, at most 65,215, in whole segments, at least two.
#[test]
fn tso_04_vectors_of_rate_and_rtt() {
    let vectors = [
        (1_250_000, 40_000, 2),
        (1_250_000, 600, 23),
        (12_500_000, 40_000, 8),
        (12_500_000, 1_000, 30),
        (12_500_000, 100, 45),
        (125_000_000, 40_000, 45),
    ];
    for (rate, rtt, expected) in vectors {
        let term = if rtt >> 9 < 32 { 65_215 >> (rtt >> 9) } else { 0 };
        assert_eq!((((rate >> 10) + term).min(65_215) / MSS).max(2), expected, "the vector is the formula's");
        // A window that allows the rate (200 % of cwnd / srtt), and twice the packet.
        let cwnd = (rate * rtt / 2_000_000 / MSS + 2).max(2 * expected) as u32;
        let mut rig = at_rate(&unpaced(micros(rtt)), rate, cwnd);
        let start = rig.written;
        rig.device = Device::Sleeps;
        rig.write(200_000);
        rig.device = Device::Keeps;
        assert!(rig.poll_one());
        assert_eq!(rig.news(), [start..start + expected * MSS], "{rate} B/s, {rtt} us");
    }
}

/// An unknown RTT adds nothing, and `tcp_tso_rtt_log` 0 switches the term off.
#[test]
fn tso_04_without_the_rtt_term() {
    let rtt = micros(600);
    let setup = unpaced(rtt).config(|config| config.send.tso_rtt_log = 0);
    let mut rig = at_rate(&setup, 12_500_000, 60);
    let start = rig.written;
    rig.write(200_000);
    assert_eq!(rig.news()[0], start..start + 8 * MSS);

    let setup = unpaced(rtt).config(|config| config.send.min_tso_segs = 11);
    let mut rig = at_rate(&Setup { rtt: millis(40), ..setup }, 1_250_000, 60);
    let start = rig.written;
    rig.write(200_000);
    assert_eq!(rig.news()[0], start..start + 11 * MSS, "the floor is tcp_min_tso_segs");
}

/// Half of the window at once: the initial ten leave as five and five.
#[test]
fn tso_05_initial_window_leaves_as_two_bursts() {
    let mut rig = fast().open();
    assert_eq!(rig.info().snd_cwnd, 10);
    rig.write(100_000);
    assert_eq!(rig.news(), [0..5 * MSS, 5 * MSS..10 * MSS]);
    assert_eq!(rig.blocked(), Blocked::Cwnd);
}

/// Half of the largest window that the peer ever offered bounds segments and buffers; all of it if it is at
/// most 536.
#[test]
fn tso_06_half_of_the_peers_window_bounds_segments_and_buffers() {
    for (window, bound) in [(4_096, 2_048), (500, 500)] {
        let caps = LinkCaps::offloading(9_000);
        let mut rig = Setup { caps, mss: 8_960, window, wscale: 0, ..Setup::default() }.open();
        assert_eq!(rig.info().snd_mss, bound, "window {window}");
        rig.device = Device::Sleeps;
        rig.write(10 * u64::from(bound));
        assert_eq!(rig.info().wmem_queued, 10 * (bound + OVERHEAD), "ten buffers for window {window}");
    }
}

/// A write of one segment and then four is five segments: a packet takes its four from the beginning.
#[test]
fn tso_07_a_short_head_is_filled_from_what_follows() {
    // 6 MB/s >> 10 = 5859 bytes: four segments.
    let mut rig = at_rate(&unpaced(millis(40)), 6_000_000, 90);
    let start = rig.written;
    rig.device = Device::Sleeps;
    rig.write(MSS);
    rig.write(4 * MSS);
    rig.device = Device::Keeps;
    assert!(rig.poll_one());
    assert_eq!(rig.news(), [start..start + 4 * MSS]);
    assert_eq!(rig.info().notsent_bytes, MSS);
    rig.poll();
    assert_eq!(rig.news(), [start + 4 * MSS..start + 5 * MSS]);
}

/// Deferral is for ACK clocks: it ends when the last departure is more than a millisecond ago.
#[test]
fn tso_08_an_old_departure_sends() {
    for (ago, sent) in [(1_000, 0), (1_001, 7), (1_100, 7)] {
        let mut rig = goal_of_eight();
        leave_of_window(&mut rig, 7, micros(400), micros(ago));
        let start = rig.written;
        rig.write(100_000);
        let packet = start..start + sent * MSS;
        assert_eq!(rig.news(), if sent > 0 { vec![packet] } else { vec![] }, "last departure {ago} us ago");
        assert_eq!(rig.blocked(), if sent > 0 { Blocked::Cwnd } else { Blocked::TsoDefer });
    }
}

/// A third of the window is worth sending; less is not, when an ACK is due in a quarter of a millisecond.
#[test]
fn tso_09_a_third_of_the_window_sends() {
    // RTT 1 ms: 65,215 >> 1 bytes by that alone, and the rate of 30 segments a millisecond: 45 segments at
    // least.
    let grown = || {
        let mut rig = unpaced(millis(1)).open();
        rig.grow_cwnd(30, millis(1));
        rig
    };
    let third = grown().info().snd_cwnd.div_ceil(3);
    for (left, sends) in [(third, true), (third - 1, false)] {
        let mut rig = grown();
        leave_of_window(&mut rig, left, micros(250), micros(50));
        let start = rig.written;
        rig.write(200_000);
        let packet = start..start + u64::from(left) * MSS;
        assert_eq!(rig.news(), if sends { vec![packet] } else { vec![] }, "{left} segments of {}", 3 * third);
        assert_eq!(rig.blocked(), if sends { Blocked::Cwnd } else { Blocked::TsoDefer });
    }
}

/// The whole window is the smaller of the two. The peer's has thirty segments here: ten are exactly a third;
/// with fewer the sender waits, and it waits for the peer.
#[test]
fn tso_09_a_third_of_the_peers_window_sends() {
    for (left, sends) in [(10, true), (9, false)] {
        let setup = Setup { window: 30 * MSS as u32, wscale: 0, ..unpaced(millis(1)) };
        let mut rig = setup.open();
        rig.grow_cwnd(40, millis(1));
        leave_of_window(&mut rig, left, micros(250), micros(50));
        let start = rig.written;
        let limited = rig.info().rwnd_limited;
        rig.write(200_000);
        let packet = start..start + u64::from(left) * MSS;
        assert_eq!(rig.news(), if sends { vec![packet] } else { vec![] }, "{left} segments of 30");
        assert_eq!(rig.blocked(), if sends { Blocked::PeerWindow } else { Blocked::TsoDefer });
        rig.advance(micros(200));
        assert_eq!(rig.info().rwnd_limited, limited + micros(200), "limited by the peer either way");
    }
}

/// A packet that waits because the congestion window leaves too little counts as limited by it: the window
/// grows with the ACKs of that round, in congestion avoidance by one segment for each window acknowledged.
#[test]
fn tso_09_a_deferral_for_cwnd_is_noted_as_limited_by_it() {
    let rtt = millis(1);
    let mut setup = unpaced(rtt);
    setup.config.congestion.control = Algorithm::reno();
    let mut rig = setup.open();
    rig.grow_cwnd(40, rtt);
    enter_recovery(&mut rig, rtt);
    // The repair arrives: Reno goes on with half of the window, in congestion avoidance.
    rig.advance(rtt);
    rig.ack_all();
    let cwnd = rig.info().snd_cwnd;
    assert_eq!((cwnd, rig.info().unacked), (rig.info().snd_ssthresh, 0));

    let left = cwnd.div_ceil(3) - 1;
    leave_of_window(&mut rig, left, micros(250), micros(50));
    rig.write(300_000);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::TsoDefer));
    rig.advance(micros(250));
    let in_flight = cwnd - left;
    rig.ack_all();
    assert_eq!(rig.info().snd_cwnd, cwnd, "{in_flight} of {cwnd} acknowledged");
    // The rest of the window's worth: with the round before, one window was acknowledged.
    rig.advance(rtt);
    let acked = rig.info().bytes_acked + u64::from(left) * MSS;
    rig.ack(acked);
    assert_eq!(rig.info().snd_cwnd, cwnd + 1);
}

/// Sends a window, and the peer reports that its first segment is missing. The repair has left, nothing else.
#[track_caller]
fn enter_recovery(rig: &mut Rig, rtt: Duration) {
    rig.device = Device::Completes;
    let start = rig.written;
    let len = u64::from(rig.info().snd_cwnd) * MSS;
    rig.write(len);
    assert_eq!(rig.info().notsent_bytes, 0);
    rig.advance(rtt);
    rig.news();
    rig.ack_with(&Ack::of(start).sack(&[start + MSS..start + len]));
    assert_eq!(rig.news(), [start..start + MSS], "the first segment, retransmitted");
}

/// The end of the stream or of a record does not wait: no more data will come that could make the packet
/// bigger.
#[test]
fn tso_10_fin_and_end_of_record_end_a_deferral_for_want_of_data() {
    // The windows leave seven segments, three are written: limited by the application, not by a window.
    let mut rig = waiting(7);
    let start = rig.written;
    rig.write(3 * MSS);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::TsoDefer));
    rig.shutdown();
    assert_eq!(rig.news(), [start..start + 3 * MSS]);
    assert!(rig.sent.last().unwrap().has("F"));

    let mut rig = waiting(7);
    let start = rig.written;
    rig.write_eor(3 * MSS);
    assert_eq!(rig.news(), [start..start + 3 * MSS]);

    // Where the window is the limit, its ACK will come, and FIN waits too.
    let mut rig = waiting(7);
    rig.write(7 * MSS);
    rig.shutdown();
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::TsoDefer));
}

/// In Recovery, every packet that may leave does; a mere reduction of the window changes nothing.
#[test]
fn tso_11_recovery_never_defers_and_cwr_may() {
    let rtt = millis(40);
    let mut rig = goal_of_eight();
    rig.device = Device::Completes;
    let start = rig.written;
    // Half of the window now, the other half 39 ms later.
    let half = u64::from(rig.info().snd_cwnd) / 2;
    rig.write(half * MSS);
    rig.advance(rtt - millis(1));
    rig.write(half * MSS);
    rig.write(1_000_000);
    rig.advance(millis(1));
    rig.news();
    // The first segment of the first half is missing. Its repair, and new data, leave a millisecond after the
    // second half.
    let sacked = |upto: u64| Ack::of(start).sack(&[start + MSS..start + upto * MSS]);
    rig.ack_with(&sacked(half));
    assert_eq!((&rig.news()[0], rig.info().ca_state), (&(start..start + MSS), "recovery"));
    // The next ACKs are for the second half, while the ACK of the repair is about to come.
    rig.advance(rtt - micros(450));
    rig.ack_with(&sacked(half + 10));
    assert!(!rig.news().is_empty());
    rig.advance(micros(50));
    // The last departure is 50 us ago, that ACK due in 400 us, and six segments are neither the goal nor a
    // third of the window.
    rig.ack_with(&sacked(half + 16));
    let news = rig.news();
    let sent: u64 = news.iter().map(|packet| packet.end - packet.start).sum();
    assert!((1..8).contains(&(sent / MSS)), "less than the goal left: {news:?}");
    assert!(news[0].start >= start + 2 * half * MSS, "and new data: {news:?}");
    assert_eq!((rig.blocked(), rig.info().ca_state), (Blocked::Cwnd, "recovery"));

    // A queue of this host is full: CWR. Two of nine segments leave; the other seven are worth the wait.
    let mut rig = goal_of_eight();
    leave_of_window(&mut rig, 9, micros(400), micros(100));
    rig.device = Device::Sleeps;
    rig.write(2 * MSS);
    let ticket = rig.stack.poll_transmit(rig.now).expect("the window leaves enough").ticket;
    rig.stack.handle_tx_congestion(rig.now, ticket.data_of().expect("it carries data"));
    rig.stack.handle_tx(rig.now, ticket, Fate::Left);
    assert_eq!((rig.info().ca_state, rig.info().notsent_bytes), ("cwr", 0));
    rig.device = Device::Completes;
    rig.write(100_000);
    assert_eq!((rig.news(), rig.blocked()), (vec![], Blocked::TsoDefer));
}

/// The same in state Loss, where the first of a window timed out and the rest, sent a moment ago, still
/// arrives.
#[test]
fn tso_11_loss_never_defers_either() {
    let rtt = millis(40);
    let setup = unpaced(rtt).config(|c| {
        c.recovery.tail_loss_probes = false;
        c.recovery.frto = false;
    });
    let mut rig = at_rate(&setup, 12_500_000, 180);
    rig.device = Device::Completes;
    let start = rig.written;
    rig.write(MSS);
    let rto = rig.info().rto;
    rig.advance(rto - millis(1));
    rig.write(1_000_000);
    rig.advance(millis(1));
    assert_eq!((rig.info().ca_state, rig.blocked()), ("loss", Blocked::Cwnd));
    rig.news();
    // The ACK of the repair is due in a millisecond, and those of the rest come. Two segments are neither the
    // goal of eight nor a third of the window. The second two leave 100 us after the first.
    let sacked = |upto: u64| Ack::of(start).sack(&[start + MSS..start + upto * MSS]);
    rig.advance(rtt - micros(500));
    for upto in [3, 5] {
        rig.ack_with(&sacked(upto));
        let sent: u64 = rig.news().iter().map(|packet| packet.end - packet.start).sum();
        assert_eq!((sent, rig.info().ca_state), (2 * MSS, "loss"), "{upto}");
        rig.advance(micros(100));
    }
}

/// Two and a half segments behind a small packet: Nagle holds the half.
#[test]
fn tso_12_nagle_holds_the_odd_end() {
    let mut rig = Setup::default().open();
    rig.device = Device::Completes;
    rig.write(10);
    assert_eq!(rig.news(), [0..10]);
    rig.write(2 * MSS + MSS / 2);
    assert_eq!(rig.news(), [10..10 + 2 * MSS]);
    assert_eq!(rig.blocked(), Blocked::Nagle);
    rig.advance(millis(40));
    rig.ack(10);
    assert_eq!(rig.news(), [10 + 2 * MSS..10 + 2 * MSS + MSS / 2]);
}

/// The same with nothing unacknowledged: all of it.
#[test]
fn tso_13_with_nothing_in_flight_all_leaves() {
    let mut rig = fast().open();
    rig.device = Device::Completes;
    rig.write(10);
    rig.advance(millis(40));
    rig.ack(10);
    rig.news();
    rig.write(2 * MSS + MSS / 2);
    assert_eq!(rig.news(), [10..10 + 2 * MSS + MSS / 2]);
}

/// PSH, FIN and the end of a record belong to the last byte: a part without that byte has none of them.
#[test]
fn tso_14_marks_stay_with_the_second_part() {
    // Packets of one segment, so that a PSH can only be that of the data.
    let setup = unpaced(millis(40)).config(|config| config.send.min_tso_segs = 1);
    let open = || at_rate(&setup, 100_000, 20);

    let mut rig = open();
    let (start, named) = (rig.written, rig.sent.len());
    rig.device = Device::Sleeps;
    rig.write_eor(MSS + 700);
    rig.shutdown();
    rig.device = Device::Completes;
    rig.poll();
    assert_eq!(rig.news(), [start..start + MSS, start + MSS..start + MSS + 700]);
    let marks: Vec<_> = rig.sent[named..].iter().map(|sent| (sent.has("P"), sent.has("F"))).collect();
    assert_eq!(marks, [(false, false), (true, true)]);

    // The record ends where the application said, and nowhere else.
    let mut rig = open();
    rig.set(SetOption::Nodelay(true));
    let start = rig.written;
    rig.device = Device::Sleeps;
    rig.write_eor(2 * MSS + 700);
    rig.write(500);
    rig.device = Device::Completes;
    rig.poll();
    let ends: Vec<u64> = rig.news().iter().map(|packet| packet.end - start).collect();
    assert_eq!(ends, [MSS, 2 * MSS, 2 * MSS + 700, 2 * MSS + 1_200]);
    assert_eq!(rig.info().notsent_bytes, 0);
}

/// A record of which only a part was accepted has no end yet: the next write continues it.
#[test]
fn tso_14_a_record_taken_in_part_has_no_end() {
    let mut rig = at_rate(&unpaced(millis(40)), 1_250_000, 120);
    rig.set(SetOption::NotsentLowat(1));
    let start = rig.written;
    rig.device = Device::Sleeps;
    let record = WriteFlags { eor: true, ..WriteFlags::default() };
    assert_eq!(rig.try_write(SIZE_GOAL + MSS, record), Ok(SIZE_GOAL), "a buffer of 45 segments");
    rig.set(SetOption::NotsentLowat(0));
    assert_eq!(rig.try_write(MSS, record), Ok(MSS));
    rig.device = Device::Completes;
    rig.poll();
    // Packets of two segments: one of them lies across the end of the first buffer.
    let news = rig.news();
    assert!(news.contains(&(start + 44 * MSS..start + 46 * MSS)), "{news:?}");
}

/// A packet of several segments always has PSH, a lone segment only at the end of a write.
#[test]
fn tso_15_several_segments_push_and_a_lone_one_does_not() {
    let mut rig = fast().open();
    rig.write(100_000);
    let pushed: Vec<_> = rig.sent.iter().map(|sent| (sent.segs, sent.has("P"))).collect();
    assert_eq!(pushed, [(5, true), (5, true)], "in the middle of the write");

    let setup = unpaced(millis(40)).config(|config| config.send.min_tso_segs = 1);
    let mut rig = at_rate(&setup, 100_000, 20);
    let named = rig.sent.len();
    rig.device = Device::Completes;
    rig.write(4 * MSS);
    let pushed: Vec<_> = rig.sent[named..].iter().map(|sent| (sent.segs, sent.has("P"))).collect();
    assert_eq!(pushed, [(1, false), (1, false), (1, false), (1, true)]);
    rig.write_more(MSS);
    assert_eq!(rig.sent.last().map(|sent| (sent.len(), sent.has("P"))), Some((MSS, false)), "more follows");
}

/// Packets of one segment that have PSH, by the segment that they end with, when 60 segments are written at
/// once and the peer's window was never larger than 40. A buffer has twenty then, half of that, and the
/// second one exceeds it.
#[track_caller]
fn pushed_segments(write: impl FnOnce(&mut Rig, u64)) -> Vec<u64> {
    let setup = Setup { window: 40 * MSS as u32, wscale: 0, ..unpaced(millis(40)) };
    let mut rig = at_rate(&setup.config(|config| config.send.min_tso_segs = 1), 100_000, 60);
    let (start, named) = (rig.written, rig.sent.len());
    rig.device = Device::Sleeps;
    write(&mut rig, 60 * MSS);
    rig.device = Device::Completes;
    rig.poll();
    rig.advance(millis(40));
    rig.ack_all();
    assert_eq!(rig.info().notsent_bytes, 0);
    let pushed = rig.sent[named..].iter().filter(|sent| sent.has("P"));
    pushed.map(|sent| (sent.bytes.end - start) / MSS).collect()
}

/// More than half of the largest window without PSH, and more will follow: the peer should hand over the data
/// that it has.
#[test]
fn tso_15_half_of_the_largest_window_is_pushed() {
    assert_eq!(pushed_segments(|rig, len| rig.write_more(len)), [40]);
}

/// The end of the write replaces that mark: one is kept, where Linux has one in each buffer
/// (`docs/design/deviations.md`).
#[test]
fn tso_15_the_end_of_a_write_replaces_that_mark() {
    assert_eq!(pushed_segments(|rig, len| rig.write(len)), [60]);
}

/// Four records are lost and retransmitted: each in a packet of its own, although they would fit into one,
/// and with PSH.
#[test]
fn tso_16_records_stay_apart_when_they_are_retransmitted() {
    let mut rig = Setup::default().open();
    rig.stack.set_sysctl("taut.tsq", "off").unwrap();
    rig.device = Device::Completes;
    for _ in 0..4 {
        rig.write_eor(MSS);
    }
    rig.write(6 * MSS);
    rig.news();
    rig.advance(Duration::from_millis(20));
    rig.ack_with(&Ack::of(0).sack(&[4 * MSS..10 * MSS]));
    let mut again = rig.news();
    for upto in 1..4 {
        rig.advance(Duration::from_millis(20));
        rig.ack_with(&Ack::of(upto * MSS).sack(&[4 * MSS..10 * MSS]));
        again.extend(rig.news());
    }
    assert_eq!(again, (0..4).map(|at| at * MSS..(at + 1) * MSS).collect::<Vec<_>>());
    let repeats = rig.sent.iter().rev().take(4);
    assert!(repeats.clone().all(|sent| sent.flags.contains(Flags::PSH)), "{repeats:?}");
}

/// Nothing outranks the device's maximum, not even the least that `tcp_min_tso_segs` asks for: of segments of
/// 32,700 bytes two fit into 65,215 bytes no more, and of 32,768 not even into the length field of a packet.
#[test]
fn tso_17_the_device_outranks_the_least() {
    for bbr in [false, true] {
        for (mss, most) in [(32_000, 2), (32_700, 1), (32_780, 1), (50_000, 1), (65_495, 1)] {
            let caps = LinkCaps::offloading(u16::MAX);
            let mut setup = Setup { caps, mss, rtt: millis(40), ..Setup::default() };
            setup = setup.config(|config| config.send.min_tso_segs = 4);
            setup.options.congestion = bbr.then(Algorithm::bbr);
            let mut rig = setup.open();
            rig.device = Device::Completes;
            rig.write(1_000_000);
            rig.finish(millis(40));
            assert_eq!(rig.info().bytes_acked, 1_000_000, "MSS {mss}");
            let segs: Vec<_> = rig.sent.iter().map(|sent| sent.segs).collect();
            assert!(segs.iter().max() == Some(&most), "MSS {mss}: {segs:?}");
            assert_eq!(rig.count("TautOutTooLong"), 0);
        }
    }
}

/// A congestion control that says how many bytes a packet should have; its window stays.
#[derive(Debug)]
struct Sizes(u32);

impl Controller for Sizes {
    fn on_ack(&mut self, _: &mut Window, _: &AckEvent<'_>) {}

    fn reduce(&mut self, window: &Window, _: Signal, _: Instant) -> u32 {
        window.cwnd()
    }

    fn send_quantum(&self) -> Option<u32> {
        Some(self.0)
    }
}

/// The path is so short that autosizing would make packets of the device's maximum; half of cwnd 10 is five.
#[test]
fn tso_18_a_congestion_control_may_set_the_size() {
    let mss = MSS as u32;
    for (bytes, segs) in [(1, 1), (mss, 1), (3 * mss, 3), (4 * mss - 1, 3), (1 << 20, 5)] {
        let mut setup = fast();
        let sizes = Definition::new("sizes", move |_| Sizes(bytes));
        setup.options.congestion = Some(Algorithm::new(sizes).unwrap());
        let mut rig = setup.open();
        rig.device = Device::Completes;
        rig.write(MSS);
        rig.finish(setup.rtt);
        rig.news();
        rig.write(100_000);
        assert_eq!(rig.news()[0], MSS..(1 + segs) * MSS, "{bytes} bytes");
    }
}

/// Neighbours that are lost leave as one packet, as if they had been one at first. Five of ten are sacked:
/// RFC 9937 §6.2 lets as many leave as were delivered, five.
#[test]
fn tso_19_a_retransmission_joins_neighbours() {
    for (left_out, expected) in [(5, [0..5 * MSS].to_vec()), (2, vec![0..2 * MSS, 3 * MSS..5 * MSS])] {
        let mut rig = fast().open();
        rig.device = Device::Completes;
        rig.set(SetOption::Nodelay(true));
        for _ in 0..10 {
            rig.write(MSS);
        }
        assert_eq!(rig.news().len(), 10, "a packet for each write");
        rig.advance(micros(100));
        // One that the peer has is between them, in the second case.
        let mut sack = vec![5 * MSS..10 * MSS];
        if left_out < 5 {
            sack.push(left_out * MSS..(left_out + 1) * MSS);
        }
        rig.ack_with(&Ack::of(0).sack(&sack));
        assert_eq!(rig.news(), expected);
    }
}

/// RFC 9293 §3.8.6: a retransmission respects the window, in whole segments. Of four lost segments, a window
/// of 3584 bytes has room for two.
#[test]
fn win_02_a_retransmitted_super_packet_is_cut_at_the_window() {
    for (window, segs) in [(3_584, 2), (1_536, 1), (1_024, 1), (8_192, 4)] {
        let mut rig = fast().open();
        rig.device = Device::Completes;
        rig.write(10 * MSS);
        assert_eq!(rig.news(), [0..5 * MSS, 5 * MSS..10 * MSS]);
        rig.advance(micros(100));
        rig.ack_with(&Ack::of(MSS).sack(&[5 * MSS..10 * MSS]).window(window));
        // A window that is too small for a segment lets the first one pass: its answer shows the window.
        assert_eq!(rig.news()[0], MSS..(1 + segs) * MSS, "{window}");
    }
}

/// RFC 8985 §7.3: a probe is a segment of new data, also where packets have many. The window of ten is full;
/// the probe is due after two round trips and 2 ms.
#[test]
fn tlp_04_a_probe_is_one_segment_where_packets_have_many() {
    let mut rig = Setup { rtt: Duration::from_millis(40), ..Setup::default() }.open();
    rig.device = Device::Completes;
    rig.write(100_000);
    rig.news();
    assert_eq!(rig.advance_to_send(Duration::from_secs(1)), Duration::from_millis(82));
    assert_eq!(rig.news(), [10 * MSS..11 * MSS]);
}
