//! RTO: the round trip and the retransmission timeout. RFC 6298, RFC 5681 §3.1, RFC 7323 §4.3, RFC 9293 §3.8.

use taut_core::congestion::Signal;
use taut_core::{ConnError, ConnOptions, Duration, Event, ListenOptions, SetOption, StackConfig};

use crate::recovery_spec::rig::{Rig, Setup, assert_us};
use crate::support::trace::{Offer, Seg, Trace};

#[track_caller]
fn assert_times(r: &mut Rig, srtt_ms: f64, rttvar_ms: f64, rto_ms: f64) {
    let (srtt, rttvar, rto) = r.times_us();
    assert_us(srtt, srtt_ms, "SRTT");
    assert_us(rttvar, rttvar_ms, "RTTVAR");
    assert_us(rto, rto_ms, "RTO");
}

fn measured(rtt_ms: u64) -> Rig {
    Rig::open(Setup { rtt_ms, ..Setup::default() })
}

#[test]
fn rto_01_a_second_before_the_first_measurement() {
    // §2.1, §5.5; SYNs are retransmitted six times (Linux: tcp_syn_retries).
    let mut t = Trace::with(StackConfig::default().with(|config| config.tcp.syn_linear_timeouts = 0));
    t.connect();
    expect!(t, "S", seq(0));
    for ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000] {
        expect!(t, "S", seq(0), after_ms(ms));
    }
    t.wait_ms(63_999);
    assert_eq!(t.event(), None);
    t.wait_ms(1);
    assert!(matches!(t.event(), Some(Event::Failed(_, ConnError::TimedOut))));
}

#[test]
fn rto_26_a_syn_that_times_out_is_a_timeout() {
    // Linux 6.18, measured: each one counts, that of the last SYN or SYN-ACK too.
    for passive in [false, true] {
        let mut t = Trace::with(StackConfig::default().with(|config| {
            (config.tcp.syn_retries, config.tcp.syn_linear_timeouts, config.tcp.synack_retries) = (2, 0, 2);
        }));
        if passive {
            t.listen();
            t.syn(Offer::EASY);
        } else {
            t.connect();
        }
        for timeouts in 1..4 {
            t.step(t.now + Duration::from_secs(100));
            assert_eq!(
                (t.stack.counters().tcp_timeouts, t.stack.counters().attempt_fails),
                (timeouts, timeouts / 3)
            );
        }
    }
}

#[test]
fn rto_27_the_first_syns_are_a_second_apart() {
    // Linux: tcp_syn_linear_timeouts, 4, besides tcp_syn_retries; measured, 6.18.
    let mut t = Trace::new();
    t.connect();
    expect!(t, "S", seq(0));
    for s in [1, 1, 1, 1, 1, 2, 4, 8, 16, 32] {
        expect!(t, "S", seq(0), after_ms(s * 1_000));
    }
    t.wait_ms(63_999);
    assert_eq!(t.event(), None);
    t.wait_ms(1);
    assert!(matches!(t.event(), Some(Event::Failed(_, ConnError::TimedOut))));
    // Not those of a SYN-ACK.
    let mut t = Trace::new();
    t.listen();
    t.syn(Offer::EASY);
    expect!(t, "S.");
    for s in [1, 2, 4, 8, 16] {
        expect!(t, "S.", seq(0), after_ms(s * 1_000));
    }
}

#[test]
fn rto_28_the_longest_wait_is_set() {
    // Linux: tcp_rto_max_ms; of SYNs and of data, whose RTO is 300 ms.
    let short = |config: &mut StackConfig| {
        config.set_sysctl("tcp_rto_max_ms", "2000").unwrap();
        config.set_sysctl("tcp_syn_linear_timeouts", "0").unwrap();
    };
    let mut t = Trace::with(StackConfig::default().with(short));
    t.connect();
    expect!(t, "S", seq(0));
    for ms in [1_000, 2_000, 2_000, 2_000] {
        expect!(t, "S", seq(0), after_ms(ms));
    }
    let mut r = Rig::open(Setup::default().with(short));
    r.send(1);
    for ms in [300, 900, 2_100, 4_100, 6_100] {
        assert_eq!(r.next_sent(), (0, ms));
    }
}

#[test]
fn rto_02_the_first_measurement() {
    // §2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4·RTTVAR; Linux's floor of 200 ms is on the second term.
    for (rtt, rttvar, rto) in [(40, 20.0, 240.0), (100, 50.0, 300.0), (400, 200.0, 1_200.0)] {
        assert_times(&mut measured(rtt), rtt as f64, rttvar, rto);
    }
}

#[test]
fn rto_03_further_measurements() {
    // §2.3 with R' = 180 after R = 100: RTTVAR = 3/4·50 + 1/4·|100 − 180| = 57.5, then SRTT = 7/8·100 +
    // 1/8·180 = 110; RTO = 110 + 4·57.5.
    let mut r = measured(100);
    r.send(1);
    r.at(180);
    r.ack(1, &[]);
    assert_times(&mut r, 110.0, 57.5, 340.0);
}

#[test]
fn rto_04_a_round_trip_that_becomes_shorter() {
    // R' = 80 after R = 100: within the variation, as in RTO-3: RTTVAR = 3/4·50 + 1/4·20 = 42.5.
    let mut r = measured(100);
    r.send(1);
    r.at(80);
    r.ack(1, &[]);
    assert_times(&mut r, 97.5, 42.5, 297.5);
    // R' = 20: RTTVAR would become 3/4·50 + 1/4·80 = 57.5. The increase of 7.5 counts an eighth: 50.9375.
    let mut r = measured(100);
    r.send(1);
    r.at(20);
    r.ack(1, &[]);
    assert_times(&mut r, 90.0, 50.9375, 90.0 + 4.0 * 50.9375);
}

#[test]
fn rto_05_the_variation_of_the_timeout_falls_once_a_round_trip() {
    // R = 400, then three times 480. RTTVAR: 200, 170, 145, 124.0625; SRTT: 400, 410, 418.75, 426.40625
    // (RTO-3). The first ends the round of the handshake, in which 4·RTTVAR was 800. The second is of the
    // round that ends with segment 1, as nothing beyond it is sent. The third is of the next; the most in the
    // round before it was 4·145 = 580, so the term falls by a quarter of the difference: 800 − (800 − 580)/4
    // = 745.
    let mut r = measured(400);
    r.send(2);
    r.at(480);
    r.ack(1, &[]);
    assert_times(&mut r, 410.0, 170.0, 410.0 + 800.0);
    r.ack(2, &[]);
    assert_times(&mut r, 418.75, 145.0, 418.75 + 800.0);
    r.send(1);
    r.at(960);
    r.ack(3, &[]);
    assert_times(&mut r, 426.406_25, 124.062_5, 426.406_25 + 745.0);
}

#[test]
fn rto_06_each_timeout_doubles_the_next_up_to_two_minutes() {
    // §5.5, §2.5; Linux: TCP_RTO_MAX.
    let mut r = measured(100);
    r.send(1);
    let mut at = 0;
    for wait in [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 120_000, 120_000] {
        at += wait;
        assert_eq!(r.next_sent(), (0, at));
    }
}

#[test]
fn rto_07_what_was_retransmitted_measures_nothing() {
    // §3 (Karn's algorithm), §5.7: 300 ms, doubled, stays until a segment that was sent once is acknowledged.
    let mut r = measured(100);
    r.send(2);
    assert_eq!(r.next_sent(), (0, 300));
    r.at(350);
    r.ack(1, &[]);
    assert_eq!((r.times_us(), r.info().backoff), ((100_000, 50_000, 600_000), 1));
    assert_eq!((r.last().rtt, r.info().min_rtt), (None, Some(Duration::from_millis(100))));
    assert_eq!(r.sent(), [1]);
    r.at(370);
    r.ack(2, &[]);
    assert_eq!(r.info().backoff, 1);
    // One that was sent once: R' = 100, so RTTVAR = 3/4·50 and SRTT stays.
    r.send(1);
    r.at(470);
    r.ack(3, &[]);
    assert_times(&mut r, 100.0, 37.5, 300.0);
    assert_eq!(r.info().backoff, 0);
}

#[test]
fn rto_07_nor_does_an_ack_of_it_and_of_others() {
    // Segment 1 was sent once, at 0, but what its ACK waited for is the retransmission of 0.
    let mut r = measured(100);
    r.send(2);
    assert_eq!(r.next_sent(), (0, 300));
    r.at(350);
    r.ack(2, &[]);
    assert_eq!((r.times_us(), r.info().backoff), ((100_000, 50_000, 600_000), 1));
    assert_eq!(r.last().rtt, None);
}

#[test]
fn rto_07_nor_does_a_selective_acknowledgement_of_it() {
    let mut r = measured(100);
    r.send(8);
    r.at(100);
    // 0 and 2 are lost and retransmitted; six were sacked, each after 100 ms: SRTT stays.
    r.ack(0, &[(3, 8), (1, 2)]);
    assert_eq!(r.sent(), [0, 2]);
    let before = r.times_us();
    r.at(220);
    r.ack(0, &[(1, 8)]);
    assert_eq!((r.times_us(), r.last().rtt, r.last().acked), (before, None, 1));
}

#[test]
fn rto_08_a_timestamp_measures_a_retransmission_too() {
    // RFC 7323 §4.3, RFC 6298 §3: R' = 50 after R = 100. SRTT = 93.75; |100 − 50| = RTTVAR, which stays.
    let mut r = Rig::open(Setup::with_timestamps());
    r.send(2);
    assert_eq!(r.next_sent(), (0, 300));
    r.at(350);
    r.ack(1, &[]);
    assert_times(&mut r, 93.75, 50.0, 293.75);
    assert_eq!((r.info().backoff, r.last().rtt), (0, Some(Duration::from_millis(50))));
    // Its clock ticks in milliseconds, so it is asked last: segment 2 is sent once, and measures 100 ms.
    assert_eq!(r.sent(), [1]);
    r.ack(2, &[]);
    r.send(1);
    let echo = r.last_tsval;
    r.at(450);
    r.ack_echo(3, &[], echo.wrapping_sub(30));
    assert_eq!(r.last().rtt, Some(Duration::from_millis(100)));
}

#[test]
fn rto_09_an_ack_restarts_the_timer_and_the_last_one_stops_it() {
    // §5.3: R' = 250 after 100: SRTT = 118.75, RTTVAR = 75; 418.75 ms from the ACK on.
    let mut r = measured(100);
    r.send(2);
    r.at(250);
    r.ack(1, &[]);
    assert_eq!(r.next_sent(), (1, 668));
    // §5.2.
    r.ack(2, &[]);
    r.at(100_000);
    assert_eq!((r.sent(), r.repairs()), (vec![], (1, 1, 0)));
}

#[test]
fn rto_10_the_timer_is_the_heads() {
    // §5.1: it runs since the first segment; the next ones do not restart it.
    let mut r = measured(100);
    r.send(1);
    r.at(200);
    r.send(1);
    assert_eq!(r.next_sent(), (0, 300));
    // Linux: a retransmission of the head does. R' = 200 after 100: SRTT = 112.5, RTTVAR = 62.5, RTO = 362.5.
    let mut r = measured(100);
    r.send(5);
    r.at(200);
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    assert_eq!(r.next_sent(), (0, 562));
}

#[test]
fn rto_11_the_timer_waits_while_what_was_sent_before_the_head_arrives() {
    // Linux. As in RTO-10 until 200 ms. At 350 segment 4 arrives, which left before the head was
    // retransmitted: SRTT = 112.5 + 237.5/8 = 142.1875, RTTVAR = 62.5 + (237.5 − 62.5)/4 = 106.25, RTO =
    // 567.1875 from then on.
    let mut r = measured(100);
    r.send(5);
    r.at(200);
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    r.at(350);
    r.ack(0, &[(1, 5)]);
    assert_eq!(r.next_sent(), (0, 917));
    // One that left in the same instant as the head does not restart it: the peer could have answered for
    // both. (At 290 ms a reordering window of 25 ms, and 2 for its timer, would end after the timeout.)
    let mut r = measured(100);
    r.send(5);
    r.at(290);
    r.ack(0, &[(1, 2)]);
    assert_eq!(r.next_sent(), (0, 300));
}

#[test]
fn rto_12_a_timeout_marks_lost_what_was_sent_a_round_trip_ago() {
    // RFC 8985 §6.3 (Linux: without the reordering window). RACK.rtt is 100 ms, and the timeout comes 300 ms
    // after the ACK, at 400. Segments 1 to 4 left at 0, 5 at 300 and 6 at 301.
    let mut r = measured(100);
    r.send(5);
    r.at(100);
    r.ack(1, &[]);
    r.at(300);
    r.send(1);
    r.at(301);
    r.send(1);
    assert_eq!(r.next_sent(), (1, 400));
    assert_eq!((r.info().lost, r.info().unacked), (5, 6));
    // RFC 5681 §3.1: the loss window is one segment, and here a second one for the segment that is still
    // under way.
    assert_eq!(r.info().snd_cwnd, 2);
}

#[test]
fn rto_13_a_timeout_reduces_once() {
    // RFC 5681 §3.1: half the window, and it stays so for the timeouts that repeat the same segment.
    let mut r = measured(100);
    r.send(10);
    assert_eq!(r.next_sent(), (0, 300));
    assert_eq!((r.info().snd_ssthresh, r.info().snd_cwnd), (5, 1));
    assert_eq!(r.next_sent(), (0, 900));
    assert_eq!(r.next_sent(), (0, 2_100));
    assert_eq!((r.notes().reductions, r.notes().timeouts), (vec![Signal::Timeout], 3));
    // The loss was repaired since: the next timeout is another loss.
    r.ack(1, &[]);
    assert_eq!(r.sent(), [1]);
    let _ = r.next_sent();
    assert_eq!(r.notes().reductions, [Signal::Timeout, Signal::Timeout]);
}

#[test]
fn rto_13_none_for_what_a_recovery_reduced_for() {
    // Segment 0 is found lost at 100 ms; its retransmission is lost too. That is the same window of data.
    let mut r = measured(100);
    r.send(10);
    r.at(100);
    r.ack(0, &[(1, 4)]);
    assert_eq!(r.sent(), [0]);
    let _ = r.next_sent();
    assert_eq!((r.info().ca_state, r.repairs().1), ("loss", 1));
    assert_eq!((r.notes().reductions, r.info().snd_ssthresh), (vec![Signal::Loss], 5));
}

#[test]
fn rto_13_another_for_data_past_the_recovery_point() {
    // Without SACK, Recovery lasts until something beyond the recovery point is acknowledged (RFC 6582 §3.2),
    // here beyond segment 9. What was sent after it is another window of data, for which nothing was reduced
    // yet.
    let mut r = Rig::open(Setup::without_sack());
    r.send(10);
    r.at(100);
    for _ in 0..3 {
        r.ack(0, &[]);
    }
    assert_eq!(r.sent(), [0]);
    r.queue(10);
    for _ in 0..6 {
        r.ack(0, &[]);
    }
    let new = r.sent();
    assert!(new.first() == Some(&10), "the room that arrivals leave is for new data: {new:?}");
    r.at(200);
    r.ack(10, &[]);
    let _ = r.sent();
    assert_eq!((r.info().ca_state, r.notes().reductions), ("recovery", vec![Signal::Loss]));
    let _ = r.next_sent();
    assert_eq!(r.notes().reductions, [Signal::Loss, Signal::Timeout]);
    assert_eq!(r.info().snd_cwnd, 1);
}

/// A connection on which one segment is sent and never acknowledged; the time at which it is given up.
fn given_up_at(config: StackConfig, user_timeout: Option<Duration>) -> u64 {
    given_up_over(100, config, user_timeout)
}

/// The same, over a round trip of so many milliseconds.
fn given_up_over(rtt_ms: u64, config: StackConfig, user_timeout: Option<Duration>) -> u64 {
    let conn = ConnOptions { user_timeout, ..ConnOptions::default() };
    let mut t = Trace::with(config.with(|config| config.recovery.tail_loss_probes = false));
    let listener = t.listen_with(ListenOptions { conn, ..ListenOptions::default() });
    t.syn(Offer::EASY);
    t.poll();
    t.wait_ms(rtt_ms);
    t.inject(&Seg::new(".").seq(1).ack(1));
    t.id = Some(t.stack.accept(listener).unwrap().0);
    t.write(1_000);
    let start = t.now;
    let limit = start + Duration::from_secs(10_000);
    while !t.events.iter().any(|event| matches!(event, Event::Failed(_, ConnError::TimedOut))) {
        assert!(t.step(limit), "a timer runs until the end");
    }
    t.now.since(start).as_millis()
}

#[test]
fn rto_14_a_peer_that_does_not_answer_is_given_up() {
    // RFC 9293 §3.8.3 (R2). tcp_retries2 = 3: three retransmissions, and the fourth timeout ends it: 300 · (1
    // + 2 + 4 + 8).
    let config = StackConfig::default().with(|config| config.tcp.retries2 = 3);
    assert_eq!(given_up_at(config, None), 4_500);
    // Linux's default of 15: 300 ms doubled up to 153.6 s, which becomes 120 s. 300 · (2⁹ − 1) + 7 · 120 000.
    assert_eq!(given_up_at(StackConfig::default(), None), 300 * 511 + 7 * 120_000);
    // TCP_USER_TIMEOUT (RFC 9293 §3.9.1): that long after the first timeout, whenever the next one is
    // (Linux).
    assert_eq!(given_up_at(StackConfig::default(), Some(Duration::from_secs(1))), 300 + 1_000);
    assert_eq!(given_up_at(StackConfig::default(), Some(Duration::from_secs(30))), 300 + 30_000);
}

/// Linux's model of the time: 200 ms · (2^(n + 1) - 1) for n retransmissions, with 120 s at most between two.
#[test]
fn rto_25_a_short_least_rto_gives_nothing_up_sooner() {
    for (retries, model_ms) in [(3, 3_000), (8, 102_200), (15, 924_600)] {
        let config = StackConfig::default().with(|config| {
            config.tcp.retries2 = retries;
            config.set_sysctl("net.ipv4.tcp_rto_min_us", "5000").unwrap();
        });
        let at = given_up_over(1, config, None);
        // At the first timeout after that, reckoned from 200 ms before the first one: the wait before it is
        // as long as all those before.
        assert!((model_ms - 200..2 * model_ms).contains(&at), "{retries}: {at} ms");
    }
}

#[test]
fn rto_15_a_closed_window_that_is_answered_is_no_dead_peer() {
    // RFC 9293 §3.8.6.1, with tcp_retries2 = 3 and fifteen timeouts in front of a closed window.
    let mut r = Rig::open(Setup::default().with(|config| config.tcp.retries2 = 3));
    r.send(2);
    r.at(100);
    let closed = |upto: u32| Rig::ack_of(upto, &[]).win(0);
    r.inject(&closed(1));
    for n in 1..=15 {
        let (segment, _) = r.next_sent();
        assert_eq!((segment, r.repairs().1), (1, n));
        r.inject(&closed(1));
    }
    // The next comes 120 s after that answer, which is still one; then three more, and the fourth ends it
    // (RTO-14).
    while !r.has_failed() && r.repairs().1 <= 15 + 1 + 4 {
        let limit = r.now + Duration::from_secs(1_000);
        assert!(r.step(limit), "a timer runs until the end");
    }
    assert_eq!(r.repairs().1, 15 + 1 + 4);
}

#[test]
fn rto_15_nor_for_the_users_patience() {
    // Linux: `tcp_rtx_probe0_timed_out`. Three seconds of patience, and a peer that answers for more than a
    // minute; then none.
    let mut r = Rig::open(Setup::default());
    let now = r.now;
    r.conn().set_option(now, SetOption::UserTimeout(Some(Duration::from_secs(3)))).unwrap();
    r.send(2);
    r.at(100);
    let closed = |upto: u32| Rig::ack_of(upto, &[]).win(0);
    r.inject(&closed(1));
    for _ in 0..8 {
        let _ = r.next_sent();
        r.inject(&closed(1));
    }
    assert!(r.now_ms() > 60_000 && !r.has_failed());
    r.wait_s(1_000);
    assert!(r.has_failed());
}

#[test]
fn rto_16_probes_of_a_closed_window_back_off() {
    // RFC 9293 §3.8.6.1: the first after an RTO, then each after twice as long, at most 120 s (Linux).
    // Those that are answered are not counted: tcp_retries2 is 3.
    let mut r = Rig::open(Setup::default().with(|config| config.tcp.retries2 = 3));
    r.inject(&Rig::ack_of(0, &[]).seq(1).win(0));
    r.queue(1);
    assert_eq!(r.sent(), []);
    for ms in [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 120_000, 120_000] {
        // Its sequence number is SND.UNA − 1 (Linux).
        expect!(r, ".", seq(0), after_ms(ms));
        r.inject(&Rig::ack_of(0, &[]).win(0));
    }
    assert_eq!(r.stack.counters().tcp_win_probe, 11);
}

#[test]
fn rto_20_the_timer_begins_when_the_head_departs() {
    // §5.1. Handed over at 100 ms, it departs at 500.
    let mut r = Rig::paced(Setup::default(), 500);
    r.send(1);
    assert_eq!(r.next_sent(), (10, 800));
    // §5.3: at 600 ms the next head has not departed. Its timeout is at 1000 + 300; the retransmission
    // departs at 1500, and the next timeout is 2·300 after that.
    let mut r = Rig::paced(Setup::default(), 500);
    r.send(2);
    r.at(600);
    r.ack(11, &[]);
    assert_eq!([r.next_sent(), r.next_sent()], [(11, 1_300), (11, 2_100)]);
    // At 550 it has: 300 ms after the ACK (RTO-9).
    let mut r = Rig::paced(Setup::default(), 50);
    r.send(2);
    r.at(600);
    r.ack(11, &[]);
    assert_eq!(r.next_sent(), (11, 900));
}

#[test]
fn rto_20_also_when_it_is_retransmitted() {
    // Segments 10 to 19 depart at 500, 550, … 950, the next one at 1000. At 760, 11 to 13 are sacked, so 10
    // leaves again at 1000: R' = 760 − 550 = 210, SRTT = 100 + 110/8 = 113.75, RTTVAR = 37.5 + (110 − 37.5)/4
    // = 55.625. At 770, 14 arrives, which departed before that (RTO-11): R' = 70, SRTT = 113.75 − 43.75/8 =
    // 108.28, and RTTVAR falls, but the timeout's term stays (RTO-5): 1000 + 108.28 + 222.5.
    let mut r = Rig::paced(Setup::default(), 50);
    r.send(10);
    r.at(760);
    r.ack(10, &[(11, 14)]);
    assert_eq!(r.sent(), [10]);
    r.at(770);
    r.ack(10, &[(11, 15)]);
    assert_eq!((r.next_sent(), r.repairs().1), ((10, 1_330), 1));
}

#[test]
fn rto_21_the_wait_for_the_departure_is_no_part_of_the_round_trip() {
    // Handed over at 100 ms, departed at 500. R' = 100: RTTVAR = 3/4 · 3/4 · 50.
    let mut r = Rig::paced(Setup::default(), 500);
    r.send(1);
    r.at(600);
    r.ack(11, &[]);
    assert_eq!(r.last().rtt, Some(Duration::from_millis(100)));
    assert_times(&mut r, 100.0, 28.125, 300.0);
    // By the timestamp's echo (RTO-8): retransmitted at 800, departed at 1000.
    let mut r = Rig::paced(Setup::with_timestamps(), 500);
    r.send(1);
    assert_eq!(r.next_sent(), (10, 800));
    r.at(1_100);
    r.ack(11, &[]);
    assert_eq!(r.last().rtt, Some(Duration::from_millis(100)));
}

#[test]
fn rto_22_the_losses_of_a_timeout_are_reported_with_it() {
    // Congestion control that counts lost segments needs them before it hears of the timeout, not after the
    // next ACK.
    let mut r = Rig::open(Setup::default());
    r.send(3);
    assert_eq!(r.next_sent(), (0, 300));
    let notes = r.notes();
    assert_eq!((notes.lost.iter().map(|lost| lost.segs).sum::<u32>(), notes.timeouts), (3, 1));
}

#[test]
fn rto_23_without_sack_a_timeout_forgets_the_duplicates() {
    // Linux: `tcp_timeout_mark_lost` begins with `tcp_reset_reno_sack`. Two segments left 300 ms ago, one 50
    // ms ago, which is not lost yet (RTO-12); two duplicates said that two of them had arrived.
    let mut r = Rig::open(Setup::without_sack());
    r.send(1);
    r.at(100);
    r.ack(1, &[]);
    r.send(2);
    r.at(350);
    r.send(1);
    r.ack(1, &[]);
    assert_eq!(r.info().sacked, 1);
    let _ = r.next_sent();
    let info = r.info();
    assert_eq!((info.ca_state, info.unacked, info.lost, info.sacked), ("loss", 3, 2, 0));
}
