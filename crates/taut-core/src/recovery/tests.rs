//! Scenarios of RFC 8985, 9937, 6298 and 4015, and the scoreboard against a model of one flag per segment.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::congestion::{Algorithm, Congestion};
use crate::words::SendKind;

const MSS: u32 = 1000;
const FIRST: u64 = 1 << 32;

struct World {
    now: Instant,
    nxt: u64,
    rec: Recovery,
    cc: Congestion,
    cfg: RecoveryConfig,
    new_data: bool,
}

/// Position of segment `n`.
fn seg(n: u64) -> u64 {
    FIRST + n * u64::from(MSS)
}

fn blocks(ranges: &[(u64, u64)]) -> Vec<Range<u64>> {
    ranges.iter().map(|&(from, to)| seg(from)..seg(to)).collect()
}

impl World {
    fn new(sack: bool) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let mut rec = Recovery::new(now, FIRST, sack);
        let cfg = RecoveryConfig::default();
        rec.seed_rtt(now, Duration::from_millis(100), &cfg);
        Self { now, nxt: FIRST, rec, cc: Congestion::new(Algorithm::reno()), cfg, new_data: false }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Sends `segs` segments, `per` to a packet.
    fn send(&mut self, segs: u64, per: u64) {
        for _ in 0..segs / per {
            let range = self.nxt..self.nxt + per * u64::from(MSS);
            self.nxt = range.end;
            self.rec.on_transmit(self.now, range.clone(), MSS, SendKind::New, &self.cfg);
            self.rec.on_tx_completed(&range);
        }
        let (packets, una) = (self.rec.packets_out(), self.rec.una());
        self.cc.note_limited(self.now, packets, self.nxt, una, true);
    }

    fn ack_with(&mut self, to: u64, sack: &[(u64, u64)], echo_ms: Option<u64>) -> AckOutcome {
        let sack = blocks(sack);
        let input = AckInput {
            ack: seg(to),
            sack: &sack,
            timestamp_echo_rtt: echo_ms.map(Duration::from_millis),
            carries_data: false,
            window_changed: false,
            may_send_new: self.new_data,
            marks: Feedback::None,
        };
        let out = self.rec.on_ack(self.now, &mut self.cc, &input, &self.cfg);
        self.check();
        out
    }

    fn ack(&mut self, to: u64, sack: &[(u64, u64)]) -> AckOutcome {
        self.ack_with(to, sack, None)
    }

    fn resend(&mut self) -> Option<Range<u64>> {
        let range = self.rec.next_retransmit(self.cc.cwnd(), 45, u64::MAX)?;
        self.rec.on_transmit(self.now, range.clone(), MSS, SendKind::Retransmit, &self.cfg);
        self.rec.on_tx_completed(&range);
        self.check();
        Some(range)
    }

    /// Runs to the next deadline.
    fn fire(&mut self) -> RecoveryTimer {
        let (at, timer) = self.rec.deadline().expect("a timer is armed");
        self.now = self.now.max(at);
        self.rec.on_timeout(self.now, &mut self.cc, &self.cfg);
        self.check();
        timer
    }

    fn check(&self) {
        if let Some(flight) = &self.rec.flight {
            flight.log.invariants();
        }
    }
}

#[test]
fn an_idle_connection_stays_small() {
    assert!(size_of::<Recovery>() + size_of::<Congestion>() <= 230);
}

#[test]
fn rto_follows_rfc_6298_with_the_floor_on_the_variance_term() {
    let mut rtt = Rtt::new();
    let RecoveryConfig { rto_min: floor, rto_max, .. } = RecoveryConfig::default();
    let timeout = |rtt: &Rtt, times| rules::rto::timeout(rtt, times, rto_max);
    assert_eq!(timeout(&rtt, 0), Duration::from_secs(1));
    // SRTT = 40, RTTVAR = 20: 4·20 is below the floor.
    rtt.sample(Duration::from_millis(40), 0, 0, floor);
    assert_eq!(timeout(&rtt, 0), Duration::from_millis(240));
    assert_eq!(timeout(&rtt, 2), Duration::from_millis(960), "each timeout doubles it");
    assert_eq!(timeout(&rtt, 20), Duration::from_secs(120));
    // SRTT = 400, RTTVAR = 200; then R = 480: RTTVAR = 3/4·200 + 1/4·80 = 170, SRTT = 410. The sum follows a
    // falling variation only at the end of a round, by a quarter: 800 − (800 − 680)/4 = 770.
    let mut rtt = Rtt::new();
    rtt.sample(Duration::from_millis(400), 0, 10, floor);
    assert_eq!(timeout(&rtt, 0), Duration::from_millis(1200));
    rtt.sample(Duration::from_millis(480), 5, 20, floor);
    assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(Duration::from_millis(410)), Duration::from_millis(170)));
    assert_eq!(timeout(&rtt, 0), Duration::from_millis(410 + 800));
}

#[test]
fn rto_17_the_least_round_trip_is_forgotten_after_300_s() {
    let mut rtt = Rtt::new();
    let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
    rtt.sample_min(at(1), Duration::from_millis(10));
    rtt.sample_min(at(100), Duration::from_millis(30));
    rtt.sample_min(at(290), Duration::from_millis(20));
    assert_eq!(rtt.min_rtt(), Some(Duration::from_millis(10)));
    rtt.sample_min(at(302), Duration::from_millis(40));
    assert_eq!(rtt.min_rtt(), Some(Duration::from_millis(20)));
}

#[test]
fn rto_19_a_round_trip_that_only_grows_is_followed() {
    // A sample each second, of as many ms as seconds have passed. The second choice is taken when there was none for a
    // quarter of the 300 s, at 1 + 75 + 1 = 77 s, the third when there was none for half of them, at 77 + 150 + 1 = 228.
    // When the first is more than 300 s old, the others move up, and the sample of that moment becomes the third.
    let mut rtt = Rtt::new();
    let mut least = 1;
    for at in 1..700 {
        least = match at {
            302 => 77,
            378 => 228,
            529 => 302,
            603 => 378,
            679 => 529,
            _ => least,
        };
        rtt.sample_min(Instant::from_nanos(at * 1_000_000_000), Duration::from_millis(at));
        assert_eq!(rtt.min_rtt(), Some(Duration::from_millis(least)), "at {at} s");
    }
}

#[test]
fn rto_19_after_silence_only_choices_of_the_last_300_s_count() {
    // (s, ms): the choices are 10, 20 (90 s later) and 30 (160 s later).
    let choices = [(10, 10, 10), (100, 20, 10), (260, 30, 10)];
    for then in [
        // The second is 300 s old, and counts; it is older, and does not.
        &[(400, 40, 20)][..],
        &[(401, 40, 30), (561, 50, 40)],
        // All three are too old, the last of them by a second.
        &[(560, 40, 30)],
        &[(561, 40, 40)],
    ] {
        let mut rtt = Rtt::new();
        for &(at, ms, least) in choices.iter().chain(then) {
            rtt.sample_min(Instant::from_nanos(at * 1_000_000_000), Duration::from_millis(ms));
            assert_eq!(rtt.min_rtt(), Some(Duration::from_millis(least)), "at {at} s of {then:?}");
        }
    }
}

/// Eight times the largest sample fits in 32 bits, and none is zero, which stands for "never".
#[test]
fn samples_are_bounded() {
    let floor = Duration::from_millis(200);
    for (sample_us, us) in [(0, 1), (1, 1), (1 << 28, 1 << 28), (1 << 40, 1 << 28)] {
        let mut rtt = Rtt::new();
        rtt.sample(Duration::from_micros(sample_us), 0, 0, floor);
        rtt.sample_min(Instant::from_nanos(1_000_000_000), Duration::from_micros(sample_us));
        let expected = Some(Duration::from_micros(us));
        assert_eq!((rtt.srtt(), rtt.min_rtt()), (expected, expected), "{sample_us} µs");
    }
}

#[test]
fn tlp_10_a_second_before_the_first_measurement() {
    // RFC 8985 §7.2: no SRTT, so PTO = 1 s.
    let mut w = World::new(true);
    w.rec = Recovery::new(w.now, FIRST, true);
    w.send(2, 1);
    assert_eq!(w.rec.deadline(), Some((w.now + Duration::from_secs(1), RecoveryTimer::TailProbe)));
}

#[test]
fn tlp_05_no_probe_beside_a_single_segment_that_was_sacked() {
    // R = 100 ms, so the probe is due 2·R + 2 ms after the last transmission. Segment 1 is sacked after 190
    // ms: from then on RACK's timer watches, 190 + R/4 + 2 ms after segment 0 left (RFC 8985 §6.2, §7.2).
    let mut w = World::new(true);
    w.send(3, 1);
    let sent = w.now;
    w.pass(190);
    w.ack(0, &[(1, 2)]);
    assert_eq!(w.rec.deadline(), Some((sent + Duration::from_millis(217), RecoveryTimer::Reorder)));
}

#[test]
fn tlp_01_the_probe_is_the_last_segment_of_its_packet() {
    // RFC 8985 §7.3: the segment with the highest position. The packet has two and a half.
    let mut w = World::new(true);
    w.rec.on_transmit(w.now, seg(0)..seg(2) + 500, MSS, SendKind::New, &w.cfg);
    for (mss, start) in [(MSS, 2_000), (1_500, 2_000), (500, 2_000), (400, 2_400)] {
        assert_eq!(w.rec.tail_probe_range(mss), Some(seg(0) + start..seg(2) + 500), "segments of {mss}");
    }
}

#[test]
fn idle_connections_keep_no_flight_unless_it_taught_something() {
    let idle = |w: &mut World| {
        w.rec.release_idle();
        w.rec.flight.is_none()
    };
    let mut w = World::new(true);
    w.send(4, 1);
    w.pass(100);
    w.ack(3, &[]);
    assert!(!idle(&mut w), "data is in flight");
    w.ack(4, &[]);
    assert!(idle(&mut w));
    // A reduction is not over before something beyond it is acknowledged.
    w.send(4, 1);
    w.rec.enter_cwr(w.now, &mut w.cc);
    w.pass(100);
    w.ack(8, &[]);
    assert_eq!((w.rec.state(), idle(&mut w)), (CaState::Cwr, false));
    w.send(1, 1);
    w.pass(100);
    w.ack(9, &[]);
    assert_eq!((w.rec.state(), idle(&mut w)), (CaState::Open, true));
    // The path reorders.
    w.send(4, 1);
    w.pass(100);
    w.ack(9, &[(11, 12)]);
    w.ack(13, &[]);
    assert_eq!((w.rec.state(), idle(&mut w)), (CaState::Open, false));
    assert_eq!(w.rec.reordering().1, 1);
}

#[test]
fn single_loss_is_resent_once_and_costs_half_the_window() {
    let mut w = World::new(true);
    w.send(10, 10);
    w.pass(100);
    // Segment 0 is lost; nine arrive.
    w.ack(0, &[(1, 2)]);
    w.ack(0, &[(1, 3)]);
    assert_eq!(w.rec.state(), CaState::Disorder);
    w.ack(0, &[(1, 4)]);
    assert_eq!((w.rec.state(), w.rec.lost_out(), w.cc.ssthresh()), (CaState::Recovery, 1, 5));
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    assert_eq!(w.resend(), None);
    w.ack(0, &[(1, 10)]);
    assert_eq!(w.rec.records(), 2, "sacked neighbours join");
    w.pass(100);
    assert!(w.ack(10, &[]).advanced);
    assert_eq!((w.rec.state(), w.cc.cwnd(), w.rec.in_flight()), (CaState::Open, 5, 0));
    assert!(w.rec.deadline().is_none());
}

#[test]
fn burst_loss_is_resent_in_one_super_packet_where_cwnd_allows() {
    let mut w = World::new(true);
    w.send(10, 5);
    w.pass(100);
    w.ack(0, &[(4, 10)]);
    assert_eq!(w.rec.lost_out(), 4);
    let mut resent = 0;
    while let Some(range) = w.resend() {
        assert_eq!(range.start, seg(resent));
        resent += (range.end - range.start) / u64::from(MSS);
    }
    assert_eq!(resent, 4);
    assert_eq!(w.rec.retrans_out(), 4);
}

#[test]
fn tail_loss_is_probed_and_then_recovered() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(7, &[]);
    // 2·SRTT + 2 ms, SRTT = 100 ms.
    let sent = w.now;
    assert_eq!(w.rec.deadline(), Some((sent + Duration::from_millis(202), RecoveryTimer::TailProbe)));
    assert_eq!((w.fire(), w.rec.mode()), (RecoveryTimer::TailProbe, Mode::TailProbe));
    let range = w.rec.tail_probe_range(MSS).unwrap();
    assert_eq!(range, seg(9)..seg(10));
    w.rec.on_transmit(w.now, range, MSS, SendKind::TailProbe, &w.cfg);
    w.rec.on_tail_probe_sent(w.now, &w.cfg);
    assert_eq!(w.rec.mode(), Mode::Normal, "one probe");
    assert_eq!(w.rec.deadline(), Some((w.now + Duration::from_millis(300), RecoveryTimer::Rto)));
    w.pass(100);
    w.ack(7, &[(9, 10)]);
    // One segment above the hole and no reordering seen: wait out min_rtt/4 (already passed since the originals).
    assert_eq!((w.rec.state(), w.rec.lost_out()), (CaState::Recovery, 2));
    assert_eq!(w.resend(), Some(seg(7)..seg(8)), "RFC 9937: no delivery allows more to be sent");
}

#[test]
fn probe_that_repaired_a_loss_costs_one_reduction() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(9, &[]);
    let _ = w.fire();
    let range = w.rec.tail_probe_range(MSS).unwrap();
    w.rec.on_transmit(w.now, range, MSS, SendKind::TailProbe, &w.cfg);
    w.rec.on_tail_probe_sent(w.now, &w.cfg);
    w.pass(100);
    assert!(!w.ack(10, &[]).tail_probe_repaired);
    let cwnd = w.cc.cwnd();
    w.send(1, 1);
    w.pass(100);
    assert!(w.ack(11, &[]).tail_probe_repaired);
    assert!(w.cc.cwnd() <= cwnd / 2 + 1 && w.rec.state() == CaState::Open);
}

#[test]
fn lost_retransmission_is_found_by_what_was_sent_after_it() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 10)]);
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    w.pass(10);
    w.send(4, 1);
    w.pass(100);
    w.ack(0, &[(1, 14)]);
    assert_eq!((w.rec.lost_out(), w.rec.retrans_out()), (1, 0));
    assert_eq!(w.resend(), Some(seg(0)..seg(1)), "again");
}

#[test]
fn reordering_within_the_window_marks_nothing() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 2)]);
    w.pass(5);
    w.ack(2, &[]);
    assert_eq!((w.rec.state(), w.rec.total_retrans()), (CaState::Open, 0));
    // Reordering was seen: even three segments above a hole are now given min_rtt/4 = 25 ms.
    w.ack(2, &[(3, 8)]);
    assert_eq!(w.rec.lost_out(), 0);
    assert_eq!(w.rec.deadline().unwrap().1, RecoveryTimer::Reorder);
    w.pass(5);
    w.ack(8, &[]);
    assert_eq!((w.rec.state(), w.rec.total_retrans()), (CaState::Open, 0));
}

#[test]
fn reneging_peer_gets_everything_again() {
    let mut w = World::new(true);
    w.send(10, 10);
    w.pass(100);
    w.ack(0, &[(1, 10)]);
    w.resend();
    w.pass(100);
    // The ACK lands at data that was sacked.
    w.ack(1, &[]);
    assert_eq!((w.fire(), w.rec.mode()), (RecoveryTimer::Rto, Mode::Repair));
    assert_eq!((w.rec.sacked_out(), w.rec.lost_out(), w.cc.cwnd()), (0, 9, 1));
    assert_eq!(w.resend(), Some(seg(1)..seg(2)));
}

#[test]
fn timeout_backs_off_and_an_echo_of_the_original_undoes_it() {
    let mut w = World::new(true);
    w.send(10, 10);
    assert_eq!(w.fire(), RecoveryTimer::TailProbe);
    w.rec.on_tail_probe_blocked();
    assert_eq!((w.fire(), w.rec.mode()), (RecoveryTimer::Rto, Mode::Repair));
    assert_eq!((w.rec.state(), w.cc.cwnd(), w.rec.backoff(), w.rec.timeouts()), (CaState::Loss, 1, 1, 1));
    assert_eq!(w.rec.rto(&w.cfg), Duration::from_millis(600));
    assert_eq!(w.rec.first_timeout_at(), Some(w.now));
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    w.pass(20);
    let out = w.ack_with(2, &[], Some(600));
    assert_eq!(out.undone, Some(Undone::Timeout));
    assert_eq!((w.rec.state(), w.cc.ssthresh(), w.rec.lost_out()), (CaState::Open, u32::MAX, 0));
    assert!(w.cc.cwnd() >= 10);
    assert_eq!((w.rec.backoff(), w.rec.timeouts()), (0, 0));
}

#[test]
fn dsacks_for_all_that_was_resent_undo_the_reduction() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 4)]);
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    w.ack(10, &[]);
    assert_eq!((w.rec.state(), w.cc.cwnd()), (CaState::Open, 5));
    w.send(1, 1);
    let out = w.ack(10, &[(0, 1)]);
    assert_eq!((out.dsack, out.undone), (true, Some(Undone::Dsack)));
    assert_eq!((w.cc.cwnd(), w.cc.ssthresh()), (10, u32::MAX));
}

#[test]
fn without_sack_three_duplicates_and_partial_acks_do() {
    let mut w = World::new(false);
    w.send(10, 10);
    w.pass(100);
    for _ in 0..2 {
        assert!(w.ack(0, &[]).dup);
    }
    assert_eq!(w.rec.lost_out(), 0);
    w.ack(0, &[]);
    assert_eq!((w.rec.state(), w.rec.lost_out(), w.rec.sacked_out()), (CaState::Recovery, 1, 3));
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    w.pass(100);
    w.ack(5, &[]);
    assert_eq!(w.resend(), Some(seg(5)..seg(6)), "RFC 6582 §3.2: a partial ACK shows the next hole");
    w.pass(100);
    w.ack(10, &[]);
    assert_eq!((w.rec.state(), w.cc.cwnd()), (CaState::Open, 5));
}

#[test]
fn prr_01_the_window_halves_over_one_round_trip() {
    // RecoverFS 20, ssthresh 10, one loss: one segment leaves for every two delivered (RFC 9937 §6.2).
    let mut prr = Prr::begin(19, 1);
    let mut in_flight = 18;
    let mut sent = 0;
    for delivered in 1..=18_u32 {
        let quota = prr.on_ack(1, in_flight, 10, false).saturating_sub(in_flight);
        prr.on_sent(quota);
        sent += quota;
        in_flight = in_flight + quota - 1;
        assert!(sent <= delivered.div_ceil(2) + 1);
    }
    assert!((9..=10).contains(&in_flight), "{in_flight}");
}

#[test]
fn refused_new_data_leaves_no_trace() {
    let mut w = World::new(true);
    let range = seg(0)..seg(3);
    w.rec.on_transmit(w.now, range.clone(), MSS, SendKind::New, &w.cfg);
    assert!(w.rec.in_device(&range));
    w.rec.on_refused(&range, SendKind::New);
    assert_eq!((w.rec.packets_out(), w.rec.records(), w.rec.deadline()), (0, 0, None));
    w.send(3, 3);
    assert_eq!(w.rec.packets_out(), 3);
}

#[test]
fn refused_packets_beyond_the_first_block_leave_no_trace() {
    // Records are in blocks of 64.
    let mut w = World::new(true);
    w.send(66, 1);
    for n in [65, 64, 63] {
        w.rec.on_refused(&(seg(n)..seg(n + 1)), SendKind::New);
        w.check();
        assert_eq!((u64::from(w.rec.packets_out()), w.rec.records() as u64), (n, n));
    }
    w.nxt = seg(63);
    w.send(3, 1);
    w.check();
    assert_eq!((w.rec.packets_out(), w.rec.records()), (66, 66));
}

#[test]
fn a_probe_of_the_mtu_that_arrives_changes_no_state() {
    // RFC 4821 §7.6: segment 1 is the probe; the ACK for it finds 0 missing, which is no loss yet.
    let mut w = World::new(true);
    w.send(3, 1);
    w.rec.on_mtu_probe_sent(seg(1)..seg(2), MSS);
    w.pass(100);
    w.ack(0, &[(1, 2)]);
    assert_eq!(w.rec.take_mtu_probe_fate(), Some(MtuProbeFate::Arrived));
    assert_eq!(w.rec.state(), CaState::Disorder);
    w.ack(3, &[]);
    assert_eq!(w.rec.state(), CaState::Open);
}

#[test]
fn smaller_segments_reduce_no_window_and_end_no_recovery() {
    // RFC 1191 §6.5: what was too large is no sign of congestion.
    let mut w = World::new(true);
    w.send(4, 2);
    assert!(!w.rec.on_mss_change(MSS), "all in flight fit");
    assert_eq!((w.rec.state(), w.rec.lost_out()), (CaState::Open, 0));
    assert!(w.rec.on_mss_change(500));
    assert_eq!((w.rec.state(), w.rec.lost_out(), w.cc.cwnd()), (CaState::Loss, 8, 10));
    // In a fast recovery, the reduction goes on.
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 4)]);
    assert!(w.rec.on_mss_change(500));
    assert_eq!((w.rec.state(), w.cc.ssthresh()), (CaState::Recovery, 5));
}

/// RFC 6675 §5: the recovery point is what had been sent. A D-SACK for an earlier reduction says nothing
/// about segments that were too large (Linux: `tcp_simple_retransmit` forgets what could be undone).
#[test]
fn the_repair_of_segments_that_were_too_large_ends_with_the_last_of_them() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 4)]);
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    w.ack(10, &[]);
    assert_eq!((w.rec.state(), w.cc.cwnd()), (CaState::Open, 5));
    w.send(4, 1);
    assert!(w.rec.on_mss_change(500));
    let out = w.ack(10, &[(0, 1)]);
    assert_eq!((out.dsack, out.undone, w.cc.cwnd(), w.cc.ssthresh()), (true, None, 5, 5));
    w.pass(100);
    w.ack(13, &[]);
    assert_eq!(w.rec.state(), CaState::Loss);
    w.ack(14, &[]);
    assert_eq!(w.rec.state(), CaState::Open);
}

#[test]
fn smaller_segments_change_nothing_when_what_was_too_large_has_arrived() {
    let mut w = World::new(true);
    w.rec.on_transmit(w.now, seg(0)..seg(1), 500, SendKind::New, &w.cfg);
    w.nxt = seg(1);
    w.send(2, 2);
    w.pass(100);
    w.ack(0, &[(1, 3)]);
    assert!(!w.rec.on_mss_change(500));
    assert_eq!((w.rec.state(), w.rec.lost_out()), (CaState::Disorder, 0));
}

/// A retransmission must wait until no copy is below TCP, and each has a ticket of its own.
#[test]
fn a_packet_that_left_twice_is_below_tcp_until_both_tickets_are_back() {
    let mut w = World::new(true);
    w.send(2, 1);
    // One with others above it, and the last.
    for range in [seg(0)..seg(1), seg(1)..seg(2)] {
        for _ in 0..2 {
            w.rec.on_transmit(w.now, range.clone(), MSS, SendKind::Retransmit, &w.cfg);
        }
        w.rec.on_tx_completed(&range);
        assert!(w.rec.in_device(&range), "the other copy of {range:?}");
        w.rec.on_tx_completed(&range);
        assert!(!w.rec.in_device(&range));
    }
}

/// The number of segments in flight decides how many more may leave, so a cut must not change it.
#[test]
fn a_cut_keeps_the_number_of_short_segments() {
    let mut w = World::new(true);
    for n in 0..3 {
        w.rec.on_transmit(w.now, FIRST + n * 4..FIRST + n * 4 + 4, MSS, SendKind::New, &w.cfg);
    }
    let log = &mut w.rec.flight.as_mut().unwrap().log;
    for n in 0..3 {
        let place = log.find(FIRST + n * 4);
        log.mark_sacked(place);
    }
    assert_eq!((log.len(), log.packets_out()), (1, 3));
    // Of one byte and eleven, the first has room for one segment only.
    let place = log.find(FIRST);
    log.cut(place, FIRST + 1);
    log.invariants();
    assert_eq!((log.len(), log.packets_out(), log.sacked_out()), (2, 3, 3));
}

#[test]
fn rec_09_a_later_loss_does_not_move_the_recovery_point() {
    // RFC 6675 §5: it is what had been sent when the first loss was found.
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 4)]);
    assert_eq!((w.rec.state(), w.rec.lost_out()), (CaState::Recovery, 1));
    assert_eq!(w.resend(), Some(seg(0)..seg(1)));
    w.send(1, 1);
    w.ack(0, &[(1, 4), (5, 8)]);
    assert_eq!((w.rec.state(), w.rec.lost_out()), (CaState::Recovery, 2));
    w.pass(100);
    w.ack(9, &[]);
    assert_eq!(w.rec.state(), CaState::Recovery);
    w.ack(10, &[]);
    assert_eq!(w.rec.state(), CaState::Open);
}

#[test]
fn a_reduction_that_was_told_by_a_refused_packet_is_told_again() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(1, 4)]);
    let range = seg(10)..seg(11);
    w.rec.on_transmit(w.now, range.clone(), MSS, SendKind::New, &w.cfg);
    // RFC 3168 §6.1.2: once for each reduction.
    assert!(w.rec.take_cwr(seg(10)));
    assert!(!w.rec.take_cwr(seg(10)));
    w.rec.on_refused(&range, SendKind::New);
    assert!(w.rec.take_cwr(seg(10)), "the peer never saw it");
}

#[test]
fn delivery_rate_is_the_slower_of_sending_and_acknowledging() {
    let mut w = World::new(true);
    w.send(10, 10);
    w.pass(100);
    let rate = w.ack(10, &[]).rate.unwrap();
    assert_eq!((rate.delivered, rate.interval), (10, Duration::from_millis(100)));
    assert_eq!(rate.bytes_per_sec(MSS), 100_000);
    // The first flight shows how much was written, not how much the path can carry.
    assert!(rate.is_app_limited);
    w.send(10, 10);
    w.pass(100);
    assert!(!w.ack(20, &[]).rate.unwrap().is_app_limited);
}

#[derive(Clone, Debug)]
enum Step {
    Send(u64),
    Ack(u64),
    Sack(u64, u64),
    Resend,
    Fire,
    Pass(u64),
    Wild(u64, [(u64, u64); 4]),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..20_u64).prop_map(Step::Send),
        (0..8_u64).prop_map(Step::Ack),
        (0..60_u64, 1..10_u64).prop_map(|(from, len)| Step::Sack(from, len)),
        Just(Step::Resend),
        Just(Step::Fire),
        (1..80_u64).prop_map(Step::Pass),
    ]
}

fn wild() -> impl Strategy<Value = Step> {
    let position = (0..120_000_u64).prop_map(|at| FIRST - 10_000 + at);
    let block = (position.clone(), position.clone());
    prop_oneof![
        2 => step(),
        1 => (position, [block.clone(), block.clone(), block.clone(), block])
            .prop_map(|(ack, blocks)| Step::Wild(ack, blocks)),
    ]
}

fn run(steps: &[Step], sack: bool) {
    let mut w = World::new(sack);
    let mut sacked = BTreeSet::new();
    let mut una = 0;
    let mut nxt = 0;
    let mut wild = false;
    for step in steps {
        match *step {
            Step::Send(segs) => {
                w.send(segs, segs);
                nxt += segs;
            }
            Step::Ack(by) => {
                // The model's peer acknowledges cumulatively and never takes a SACK back.
                una = (una + by).min(nxt);
                while sacked.contains(&una) {
                    una += 1;
                }
                w.ack(una, &[]);
            }
            Step::Sack(from, len) => {
                let from = una + 1 + from;
                let to = (from + len).min(nxt);
                if from < to {
                    w.ack(una, &[(from, to)]);
                    sacked.extend(from..to);
                }
            }
            Step::Resend => {
                w.resend();
            }
            Step::Fire => {
                if w.rec.deadline().is_some() && w.fire() == RecoveryTimer::TailProbe {
                    w.rec.on_tail_probe_blocked();
                }
            }
            Step::Pass(ms) => w.pass(ms),
            Step::Wild(ack, ref blocks) => {
                wild = true;
                let blocks: Vec<_> = blocks.iter().map(|&(from, to)| from..to).collect();
                let input = AckInput {
                    ack,
                    sack: &blocks,
                    timestamp_echo_rtt: Some(Duration::from_nanos(ack)),
                    carries_data: false,
                    window_changed: false,
                    may_send_new: w.new_data,
                    marks: if ack % 7 == 0 { Feedback::Echo } else { Feedback::None },
                };
                let _ = w.rec.on_ack(w.now, &mut w.cc, &input, &w.cfg);
            }
        }
        w.check();
        assert!(w.cc.cwnd() >= 1);
        assert_eq!(w.rec.packets_out() == 0, w.rec.una() == w.nxt);
        assert!(w.rec.packets_out() == 0 || w.rec.deadline().is_some(), "data in flight has a timer");
        if !wild && sack {
            sacked.retain(|&segment| segment >= una);
            assert_eq!(u64::from(w.rec.packets_out()), nxt - una);
            assert_eq!(w.rec.sacked_out() as usize, sacked.len());
            let thought = w.rec.packets_out() - w.rec.sacked_out() - w.rec.lost_out() + w.rec.retrans_out();
            assert_eq!(w.rec.in_flight(), thought);
        }
    }
}

proptest! {
    #[test]
    fn scoreboard_agrees_with_a_model_per_segment(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps, true);
    }

    #[test]
    fn nothing_a_peer_sends_breaks_the_counts(steps in prop::collection::vec(wild(), 1..120), sack: bool) {
        run(&steps, sack);
    }
}

/// Karn: an ACK of a joined record measures no round trip if a part of it was sent twice (Linux: `tcp_shifted_skb`).
#[test]
fn rto_07_a_joined_record_was_retransmitted_if_a_part_was() {
    for upper_first in [false, true] {
        let mut world = World::new(true);
        world.send(2, 1);
        let log = &mut world.rec.flight.as_mut().unwrap().log;
        let upper = log.find(seg(1));
        let snapshot = log.get(upper).unwrap().snapshot;
        log.retransmitted(upper, world.now, snapshot);
        for n in if upper_first { [1, 0] } else { [0, 1] } {
            let place = log.find(seg(n));
            log.mark_sacked(place);
        }
        assert_eq!(log.len(), 1);
        assert!(log.first().unwrap().has(log::sent::EVER_RETRANS));
    }
}

/// The device refuses the second of two retransmissions: the other, right behind it, stays counted.
#[test]
fn a_refused_retransmission_takes_back_only_its_own() {
    let mut w = World::new(true);
    w.send(10, 1);
    w.pass(100);
    w.ack(0, &[(4, 10)]);
    assert_eq!(w.rec.in_flight(), 0);
    let again = |w: &mut World, n: u64| {
        let range = seg(n)..seg(n + 1);
        w.rec.on_transmit(w.now, range.clone(), MSS, SendKind::Retransmit, &w.cfg);
        range
    };
    again(&mut w, 1);
    let refused = again(&mut w, 0);
    assert_eq!((w.rec.in_flight(), w.rec.total_retrans()), (2, 2));
    w.rec.on_refused(&refused, SendKind::Retransmit);
    w.check();
    assert_eq!((w.rec.in_flight(), w.rec.total_retrans()), (1, 1));
}

/// RFC 8985 §7: a probe is for a tail that nothing is heard of.
#[test]
fn an_ack_of_new_data_ends_the_wait_of_a_probe() {
    let mut w = World::new(true);
    w.send(5, 1);
    assert_eq!(w.fire(), RecoveryTimer::TailProbe);
    assert_eq!(w.rec.mode(), Mode::TailProbe);
    w.ack(1, &[]);
    assert_eq!(w.rec.mode(), Mode::Normal);
}

/// RFC 9293 §3.8.3: R2 counts from the last progress.
#[test]
fn what_counts_towards_giving_up_begins_anew_with_progress() {
    let mut w = World::new(true);
    w.send(5, 1);
    while w.rec.first_timeout_at().is_none() {
        w.fire();
    }
    // The retransmission arrives, and the rest is still missing.
    w.resend().unwrap();
    w.pass(100);
    w.ack(1, &[]);
    assert_eq!(w.rec.state(), CaState::Loss);
    assert_eq!((w.rec.first_timeout_at(), w.rec.timeouts()), (None, 0));
}

/// Linux: `tcp_reordering` 3, and nothing seen.
#[test]
fn a_connection_that_sent_nothing_has_seen_no_reordering() {
    assert_eq!(World::new(true).rec.reordering(), (3, 0, 0));
}
