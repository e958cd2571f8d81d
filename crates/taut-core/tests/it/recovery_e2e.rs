//! Chosen packets are lost, and every retransmission is counted: RFC 6298, RFC 6675, RFC 8985, RFC 4015, RFC
//! 2018 §8.

use crate::support;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use support::trace::{Offer, Trace};
use support::{Faults, World, config, drain, pump, transfer};
use taut_core::{ConnError, Duration, LinkCaps, StackConfig, State};
use taut_wire::{IpHeader, TcpHeader};

/// Sequence number and payload length of a packet, if it carries data.
fn data(packet: &[u8]) -> Option<(u32, usize)> {
    let ip = IpHeader::parse(packet).ok()?;
    let (tcp, len) = TcpHeader::parse(&packet[ip.header_len..]).ok()?;
    let payload = ip.payload_len - len;
    (payload > 0).then_some((tcp.seq, payload))
}

/// Loses data packets of stack 0: `lose(n, again)` is asked for the n-th place in the stream (from 0), the
/// `again`-th time it is sent (from 0).
fn lose(world: &mut World, mut lose: impl FnMut(usize, usize) -> bool + 'static) {
    let mut seen: Vec<(u32, usize)> = Vec::new();
    world.filter = Some(Box::new(move |from, packet| {
        let Some((seq, _)) = data(packet).filter(|_| from == 0) else { return false };
        let place = match seen.iter().position(|&(first, _)| first == seq) {
            Some(place) => place,
            None => {
                seen.push((seq, 0));
                seen.len() - 1
            }
        };
        let again = seen[place].1;
        seen[place].1 += 1;
        lose(place, again)
    }));
}

/// Retransmitted segments, timeouts and probes of the sender.
fn repairs(world: &World) -> (u64, u64, u64) {
    let counters = world.stacks[0].counters();
    (counters.retrans_segs, counters.tcp_timeouts, counters.tcp_loss_probes)
}

const LIMIT: Duration = Duration::from_secs(60);

fn plain(seed: u64) -> World {
    World::with(seed, config(support::A), config(support::B), LinkCaps::plain(1_500))
}

#[test]
fn a_single_loss_is_resent_once() {
    for place in [0, 5, 50, 100, 333] {
        let mut world = plain(1);
        lose(&mut world, move |n, again| n == place && again == 0);
        transfer(&mut world, 1_000_000, LIMIT);
        assert_eq!(repairs(&world), (1, 0, 0), "packet {place}");
    }
}

#[test]
fn a_burst_is_resent_once_each() {
    for (first, count) in [(20, 3), (100, 10), (200, 30)] {
        let mut world = plain(2);
        lose(&mut world, move |n, again| (first..first + count).contains(&n) && again == 0);
        transfer(&mut world, 1_000_000, LIMIT);
        assert_eq!(repairs(&world), (count as u64, 0, 0), "{count} from {first}");
    }
}

#[test]
fn every_seventh_is_resent_once_each() {
    let mut world = plain(3);
    let lost = Rc::new(RefCell::new(BTreeSet::new()));
    let note = lost.clone();
    lose(&mut world, move |n, again| {
        let hit = (50..500).contains(&n) && n % 7 == 0 && again == 0;
        if hit {
            note.borrow_mut().insert(n);
        }
        hit
    });
    transfer(&mut world, 1_000_000, LIMIT);
    assert_eq!(repairs(&world), (lost.borrow().len() as u64, 0, 0));
}

#[test]
fn a_lost_retransmission_is_found_without_a_timeout() {
    // RFC 8985 §3.4.
    for times in [2, 3] {
        let mut world = plain(4);
        lose(&mut world, move |n, again| n == 100 && again < times);
        transfer(&mut world, 1_000_000, LIMIT);
        assert_eq!(repairs(&world), (times as u64, 0, 0));
    }
}

#[test]
fn without_sack_partial_acks_repair() {
    // RFC 6582.
    let old = |address| config(address).with(|c| c.tcp.sack = false);
    for count in [1, 3] {
        let caps = LinkCaps::plain(1_500);
        let mut world = World::with(5, old(support::A), old(support::B), caps);
        lose(&mut world, move |n, again| (100..100 + count).contains(&n) && again == 0);
        transfer(&mut world, 1_000_000, LIMIT);
        assert_eq!(repairs(&world), (count as u64, 0, 0));
    }
}

#[test]
fn without_timestamps_too() {
    let plain = |address| config(address).with(|c| c.tcp.timestamps = false);
    let caps = LinkCaps::plain(1_500);
    let mut world = World::with(6, plain(support::A), plain(support::B), caps);
    lose(&mut world, move |n, again| (100..110).contains(&n) && again == 0);
    transfer(&mut world, 1_000_000, LIMIT);
    assert_eq!(repairs(&world), (10, 0, 0));
}

/// Writes ten segments and nothing more, of which some are lost; all must arrive.
#[track_caller]
fn tail(lost: impl Fn(usize, usize) -> bool + 'static) -> World {
    let mut world = plain(7);
    let (client, server) = world.pair();
    lose(&mut world, lost);
    let (mut written, mut read) = (0, 0);
    pump(&mut world, 0, client, &mut written, 14_480);
    let done = world.run_until(LIMIT, |world| {
        drain(world, 1, server, &mut read);
        read == 14_480
    });
    assert!(done, "{read}");
    world.run_for(Duration::from_secs(1));
    world
}

#[test]
fn a_lost_tail_is_probed() {
    // RFC 8985 §7: the probe repairs one, and reveals more.
    assert_eq!(repairs(&tail(|n, again| n == 9 && again == 0)), (1, 0, 1));
    assert_eq!(repairs(&tail(|n, again| n >= 7 && again == 0)), (3, 0, 1));
    // All ten: the probe's SACK is all there is.
    assert_eq!(repairs(&tail(|_, again| again == 0)), (10, 0, 1));
}

#[test]
fn a_lost_probe_is_the_timeouts_affair() {
    let world = tail(|n, again| n == 9 && again < 2);
    assert_eq!(repairs(&world), (2, 1, 1));
}

#[test]
fn lost_acks_cost_next_to_nothing() {
    let mut world = plain(8);
    world.faults[0].loss = 400;
    transfer(&mut world, 1_000_000, LIMIT);
    let (resent, timeouts, probes) = repairs(&world);
    // Of 691 segments. The last ACK of a flight may be lost: that looks like a lost tail.
    assert!(resent <= 5 && timeouts <= 1 && probes <= 5, "{resent} {timeouts} {probes}");
}

#[test]
fn reordering_costs_next_to_nothing() {
    // RFC 8985 §6.2: once reordering was seen, a quarter of the round trip is allowed for it.
    let mut world = plain(9);
    let jitter = Duration::from_millis(2);
    world.faults(Faults { reorder: 50, jitter, ..Faults::default() });
    transfer(&mut world, 3_000_000, LIMIT);
    let (resent, timeouts, _) = repairs(&world);
    assert!(resent <= 40 && timeouts == 0, "{resent} of 2072 were resent, {timeouts} timeouts");
}

#[test]
fn two_segments_that_overtake_are_no_loss() {
    // RFC 5681 §3.2: fewer than three duplicates.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(10_000);
    t.poll();
    t.out.clear();
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 2_001)]));
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 3_001)]));
    expect_nothing!(t);
    inject!(t, ".", seq(1), ack(3_001));
    inject!(t, ".", seq(1), ack(10_001));
    assert_eq!(t.stack.counters().retrans_segs, 0);
    assert_eq!(t.info().unacked, 0);
}

#[test]
fn timeouts_back_off_until_the_connection_is_given_up() {
    // RFC 6298 §5.4 to §5.6, with the least timeout of 200 ms and without probes.
    let config = StackConfig::default().with(|c| {
        c.tcp.retries2 = 6;
        c.recovery.tail_loss_probes = false;
    });
    let mut t = Trace::with(config);
    t.accept(Offer::EASY);
    t.write(100);
    expect!(t, "P.", seq(1), len(100));
    for wait in [200, 400, 800, 1_600, 3_200, 6_400] {
        expect!(t, "P.", seq(1), len(100), after_ms(wait));
    }
    expect_nothing!(t, for_ms 12_799);
    assert_eq!(t.state(), State::Established);
    expect_nothing!(t, for_ms 2);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut));
    t.close();
    t.expect_gone();
}

#[test]
fn the_longest_interval_is_two_minutes() {
    let mut t = Trace::accepted(Offer::EASY);
    t.write(100);
    t.wait_s(900);
    assert_eq!(t.state(), State::Established);
    let times: Vec<u64> = t.out.iter().map(|got| got.at.as_millis()).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert_eq!(longest, Some(120_000));
    t.wait_s(100);
    assert_eq!(t.conn().as_ref().error(), Some(ConnError::TimedOut), "Linux: 924.6 s with the default of 15");
}

#[test]
fn a_fresh_sample_ends_the_backoff() {
    // RFC 6298 §5.7.
    let mut t = Trace::with(StackConfig::default().with(|c| c.recovery.tail_loss_probes = false));
    t.accept(Offer::EASY);
    t.write(100);
    expect!(t, "P.", len(100));
    for wait in [200, 400, 800] {
        expect!(t, "P.", seq(1), len(100), after_ms(wait));
    }
    inject!(t, ".", seq(1), ack(101));
    // Karn: that ACK measured nothing, so the timeout stays backed off until one does.
    t.write(100);
    expect!(t, "P.", seq(101), len(100));
    t.wait_ms(10);
    inject!(t, ".", seq(1), ack(201));
    assert_eq!(t.info().backoff, 0);
    assert!(t.info().rto < Duration::from_millis(300));
}

#[test]
fn a_needless_timeout_is_undone() {
    // RFC 4015: the ACK echoes the timestamp of the original.
    let mut t = Trace::accepted(Offer::ALL);
    t.wait_ms(50);
    t.write(14_480);
    t.poll();
    let original = t.last_tsval;
    let (cwnd, ssthresh) = (t.info().snd_cwnd, t.info().snd_ssthresh);
    assert_eq!(t.out.len(), 10);
    t.out.clear();
    t.wait_ms(420);
    assert!(t.stack.counters().tcp_timeouts >= 1);
    assert!(t.info().snd_cwnd < cwnd && t.info().snd_ssthresh < ssthresh);
    t.out.clear();
    inject!(t, ".", seq(1), ack(1_449), ts(t.peer_clock(), original));
    // All of it, except for the part that an unfilled window loses anyway (RFC 7661).
    assert!(t.info().snd_cwnd >= cwnd - 1, "{} of {cwnd}", t.info().snd_cwnd);
    assert_eq!((t.info().lost, t.info().snd_ssthresh), (0, ssthresh));
    assert!(t.out.is_empty(), "nothing more is retransmitted");
    inject!(t, ".", seq(1), ack(14_481), ts(t.peer_clock(), original));
    assert_eq!(t.info().unacked, 0);
}

#[test]
fn a_needless_recovery_is_undone_by_dsack() {
    // RFC 3708: every retransmission arrived twice.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(10_000);
    t.poll();
    t.out.clear();
    let cwnd = t.info().snd_cwnd;
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 5_001)]));
    expect!(t, ".", seq(1), len(1_000));
    t.out.clear();
    inject!(t, ".", seq(1), ack(5_001));
    inject!(t, ".", seq(1), ack(5_001), sack(&[(1, 1_001)]));
    assert!(t.info().snd_cwnd >= cwnd, "{} of {cwnd}", t.info().snd_cwnd);
    inject!(t, ".", seq(1), ack(10_001));
    assert_eq!(t.stack.counters().retrans_segs, 1);
}

#[test]
fn a_reneging_peer_gets_everything_again() {
    // RFC 2018 §8: SACK is advisory.
    let mut t = Trace::accepted(Offer::EASY);
    t.write(5_000);
    t.poll();
    t.out.clear();
    inject!(t, ".", seq(1), ack(1), sack(&[(1_001, 5_001)]));
    expect!(t, ".", seq(1), len(1_000));
    // It acknowledges the first, and no longer reports the others.
    inject!(t, ".", seq(1), ack(1_001));
    let mut resent = BTreeSet::new();
    for _ in 0..400 {
        t.wait_ms(10);
        while let Some(got) = t.out.pop_front() {
            resent.extend((got.seq..got.seq + got.payload.len() as u32).step_by(1_000));
            let ack = resent.iter().fold(1_001, |ack, &at| if at == ack { ack + 1_000 } else { ack });
            inject!(t, ".", seq(1), ack(ack));
        }
    }
    assert_eq!(resent.into_iter().collect::<Vec<_>>(), [1_001, 2_001, 3_001, 4_001]);
    assert_eq!(t.info().unacked, 0);
}

#[test]
fn heavy_loss_of_super_packets() {
    for seed in 0..6 {
        let caps = LinkCaps::offloading(1_500);
        let mut world = World::with(seed, config(support::A), config(support::B), caps);
        world.faults(Faults { loss: 50, ..Faults::default() });
        transfer(&mut world, 1_000_000, Duration::from_secs(300));
    }
}
