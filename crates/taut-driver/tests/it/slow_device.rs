//! A device whose sends take long: packets leave without the stack's lock, in order, and none is left behind.

use crate::hosts;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use hosts::line::{Event, Rng, Say};
use hosts::{PATIENCE, Pair, Raise, eventually, without_timers};
use taut_core::{ConnId, Counters, LinkCaps};
use taut_driver::Clock;

fn counters(pair: &Pair) -> Counters {
    pair.near.shard.access(|access| *access.stack.counters())
}

/// Nothing was sent twice, of what [no timer](without_timers) sends.
#[track_caller]
fn assert_sent_once(pair: &Pair) {
    assert_eq!(counters(pair).retrans_segs, 0);
}

/// Two threads use the stack all the time, also while little is sent, or much of a stack that a task drives.
/// While much is sent, or the answer to a super-packet, they wait if they did when it was made.
#[test]
fn dev_23_little_is_sent_without_the_lock_and_much_with_it() {
    type Moves = fn(&Pair, u64);
    let caps = LinkCaps::offloading(1_500);
    let slow = || Pair::slow(caps, |_| {});
    let cases: [(&str, Pair, Moves, bool); 4] = [
        ("a byte", slow(), |pair, seed| pair.send(1, seed), true),
        ("much", slow(), |pair, seed| pair.send(60_000, seed), false),
        ("an answer", slow(), |pair, seed| pair.send_back(60_000, seed), false),
        ("much, as by a task", Pair::slow_and_alone(caps), |pair, seed| pair.send(60_000, seed), true),
    ];
    for (what, pair, moves, is_free) in cases {
        // Both windows grow beyond what is written.
        pair.send(1_000_000, 1);
        pair.send_back(1_000_000, 2);
        pair.settle();
        let (uses, waits, is_over) = (Arc::new(AtomicU64::new(0)), Arc::default(), AtomicBool::new(false));
        let (seen, waited) = (Arc::clone(&uses), Arc::<AtomicBool>::clone(&waits));
        // Threads that find the lock free need microseconds.
        let patience = if is_free { PATIENCE } else { Duration::from_millis(20) };
        pair.line.script(0, move |_| {
            let (before, until) = (seen.load(Ordering::Relaxed), Clock.now() + patience.into());
            while seen.load(Ordering::Relaxed) == before && Clock.now() < until {
                thread::sleep(Duration::from_micros(100));
            }
            waited.fetch_or(seen.load(Ordering::Relaxed) == before, Ordering::Relaxed);
            Say::Left
        });
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        pair.near.below(pair.conns[0]);
                        uses.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let over = Raise(&is_over);
            // They may just not have waited.
            let tries = if is_free { 10 } else { 100 };
            (0..tries).take_while(|_| !waits.load(Ordering::Relaxed)).for_each(|seed| moves(&pair, seed));
            drop(over);
        });
        assert_eq!(waits.load(Ordering::Relaxed), !is_free, "{what}: whether others waited");
        pair.line.script(0, |_| Say::Left);
        pair.settle();
    }
}

/// No thread waits when much is sent: one that comes then has the lock at once.
#[test]
fn dev_23_much_is_sent_without_the_lock_while_no_thread_waits() {
    let pair = Pair::slow(LinkCaps::offloading(1_500), |_| {});
    pair.send(1_000_000, 1);
    pair.settle();
    let (shard, was_free) = (Arc::clone(&pair.near.shard), Arc::<AtomicBool>::default());
    let is_free = Arc::clone(&was_free);
    pair.line.script(0, move |packet| {
        if packet.payload.len() >= 32 << 10 && !is_free.load(Ordering::Relaxed) {
            let (shard, (has_used, used)) = (Arc::clone(&shard), mpsc::channel());
            thread::spawn(move || {
                shard.access(|_| ());
                // Too late.
                let _ = has_used.send(());
            });
            is_free.store(used.recv_timeout(Duration::from_millis(20)).is_ok(), Ordering::Relaxed);
        }
        Say::Left
    });
    // The driver thread may just wait for the lock, or this machine be busy.
    (0..100).take_while(|_| !was_free.load(Ordering::Relaxed)).for_each(|seed| pair.send(60_000, seed));
    assert!(was_free.load(Ordering::Relaxed));
    pair.line.script(0, |_| Say::Left);
    pair.settle();
}

/// Any fate at any time, and completions late and in any order: the bytes arrive, and all tickets come back.
#[test]
fn fates_in_every_order() {
    for seed in 1..=8 {
        let caps = if seed % 2 == 0 { LinkCaps::plain(1_500) } else { LinkCaps::offloading(1_500) };
        let pair = Pair::slow(caps, |_| {});
        let mut rng = Rng(seed);
        pair.line.script(0, move |_| match rng.below(100) {
            0..40 => Say::Left,
            40..85 => Say::Keep,
            85..93 => Say::Full,
            93..98 => Say::Drop,
            _ => Say::Never,
        });
        let (is_over, mut rng) = (AtomicBool::new(false), Rng(seed + 100));
        thread::scope(|scope| {
            // The device's worker.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    pair.line.complete_any(&mut rng);
                    pair.line.give_room();
                    thread::sleep(Duration::from_micros(50));
                }
            });
            let over = Raise(&is_over);
            pair.send(400_000, seed);
            drop(over);
        });
        pair.line.script(0, |_| Say::Left);
        pair.line.give_room();
        pair.settle();
        let counted = counters(&pair);
        let said = [Say::Drop, Say::Never].map(|say| pair.line.said(0, say));
        assert_eq!([counted.device_drops, counted.device_errors], said, "seed {seed}");
    }
}

/// The device keeps two packets and gives their tickets back, the second first: so the first came later than
/// one that was made after it.
#[test]
fn dev_05_late_completions_are_counted_and_those_that_were_overtaken() {
    for slow in [false, true] {
        let caps = LinkCaps::plain(1_500);
        let pair = if slow { Pair::slow(caps, |_| {}) } else { Pair::new(caps, |_| {}) };
        let counts = |pair: &Pair| {
            let counters = counters(pair);
            [counters.device_late, counters.device_out_of_order, counters.device_unreported]
        };
        pair.send(10_000, 1);
        pair.settle();
        assert_eq!(counts(&pair), [0; 3], "at once");
        let mut left = 2;
        pair.line.script(0, move |packet| {
            let keep = !packet.payload.is_empty() && left > 0;
            left -= u32::from(keep);
            if keep { Say::Keep } else { Say::Left }
        });
        for byte in 0..2 {
            // A full segment, which neither Nagle nor autocorking holds back.
            pair.near.write_all(pair.conns[0], &[byte; 1_448]).unwrap();
            eventually("it is kept", || pair.line.tickets(0).len() == usize::from(byte) + 1);
            thread::sleep(Duration::from_millis(2));
        }
        for index in [1, 0] {
            pair.line.complete_nth(index);
        }
        pair.settle();
        assert_eq!(counts(&pair), [2, 1, 0], "slow: {slow}");
    }
}

/// Room that is announced at the very moment at which the device refuses a packet is not overlooked, and
/// nothing is sent twice.
#[test]
fn room_that_comes_with_the_refusal() {
    let pair = Pair::slow(LinkCaps::plain(1_500), without_timers);
    let (line, mut nth) = (pair.line.clone(), 0_u32);
    let (refused, on_refused) = mpsc::channel::<()>();
    pair.line.script(0, move |_| {
        nth += 1;
        if nth % 3 == 0 && refused.send(()).is_ok() { Say::Full } else { Say::Left }
    });
    thread::scope(|scope| {
        scope.spawn(move || {
            while on_refused.recv().is_ok() {
                line.give_room();
            }
        });
        for seed in 1..=20 {
            pair.send(50_000, seed);
        }
        pair.line.script(0, |_| Say::Left);
        pair.line.give_room();
    });
    assert!(pair.line.said(0, Say::Full) > 100, "{}", pair.line.said(0, Say::Full));
    assert_sent_once(&pair);
    pair.settle();
}

/// A device without room is not offered packets before it announces room.
#[test]
fn a_full_device_is_left_alone() {
    let pair = Pair::slow(LinkCaps::plain(1_500), without_timers);
    let before = pair.line.said(0, Say::Full);
    pair.line.script(0, |_| Say::Full);
    let conn = pair.conns[0];
    pair.near.write_all(conn, &[1; 10_000]).unwrap();
    for _ in 0..10 {
        pair.near.write_all(conn, &[2]).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    let offers = pair.line.said(0, Say::Full) - before;
    assert!((1..=5).contains(&offers), "{offers} offers");
    pair.line.script(0, |_| Say::Left);
    pair.line.give_room();
    let (mut got, mut chunk) = (Vec::new(), [0; 4_096]);
    while got.len() < 10_010 {
        let count = pair.far.read(pair.conns[1], &mut chunk).unwrap();
        got.extend_from_slice(&chunk[..count]);
    }
    assert_eq!(got, [&[1; 10_000][..], &[2; 10]].concat());
    pair.settle();
}

/// Several threads write to several connections over a device that takes its time: each connection's packets
/// leave in order, and nothing is retransmitted.
#[test]
fn packets_leave_in_the_order_in_which_they_were_made() {
    let pair = Pair::slow(LinkCaps::offloading(1_500), without_timers);
    let (mut rng, mut ends) = (Rng(5), BTreeMap::new());
    let disorder = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&disorder);
    pair.line.script(0, move |packet| {
        if rng.below(4) == 0 {
            thread::sleep(Duration::from_micros(rng.below(60)));
        }
        if !packet.payload.is_empty() {
            // Behind an IPv4 header: source port, destination port, sequence number.
            let field = |at: usize| u32::from_be_bytes(packet.header[at..at + 4].try_into().unwrap());
            let (ports, seq) = (field(20), field(24));
            let end = ends.insert(ports, seq.wrapping_add(packet.payload.len() as u32));
            // A packet overtook another.
            let is_gap = end.is_some_and(|end: u32| seq.wrapping_sub(end) as i32 > 0);
            count.fetch_add(u64::from(is_gap), Ordering::Relaxed);
        }
        Say::Left
    });
    let conns: Vec<[ConnId; 2]> = (0..4).map(|_| pair.connect()).collect();
    thread::scope(|scope| {
        for (number, [near, far]) in conns.iter().enumerate() {
            let data: Vec<u8> = (0..1_000_000_u32).map(|byte| (byte % 251) as u8 ^ number as u8).collect();
            let (expected, pair) = (data.clone(), &pair);
            scope.spawn(move || {
                for piece in data.chunks(7_001) {
                    pair.near.write_all(*near, piece).unwrap();
                }
            });
            scope.spawn(move || {
                let (mut got, mut chunk) = (Vec::new(), vec![0; 65_536]);
                while got.len() < expected.len() {
                    let count = pair.far.read(*far, &mut chunk).unwrap();
                    got.extend_from_slice(&chunk[..count]);
                }
                assert!(got == expected, "connection {number}");
            });
        }
    });
    assert_sent_once(&pair);
    assert_eq!(disorder.load(Ordering::Relaxed), 0, "packets out of order");
}

/// A packet that the device dropped slows its connection down, before any ACK could tell; then it is
/// retransmitted, as if lost in the network.
#[test]
fn dropped_slows_the_connection_down_and_is_lost() {
    let pair = Pair::slow(LinkCaps::plain(1_500), without_timers);
    let conn = pair.conns[0];
    let threshold =
        || pair.near.shard.access(|access| access.stack.conn(conn).unwrap().info(access.now).snd_ssthresh);
    let before = threshold();
    let mut nth = 0;
    pair.line.script(0, move |packet| {
        nth += usize::from(!packet.payload.is_empty());
        if nth == 4 && !packet.payload.is_empty() { Say::Drop } else { Say::Left }
    });
    pair.line.script(1, |_| Say::Keep);
    pair.near.write_all(conn, &[7; 10_000]).unwrap();
    eventually("the connection slows down", || threshold() < before);
    assert_eq!(counters(&pair).tcp_timeouts, 0, "a timeout would slow it down, too");
    pair.line.script(1, |_| Say::Left);
    pair.line.release(1);
    let (mut count, mut chunk) = (0, [0; 4_096]);
    while count < 10_000 {
        count += pair.far.read(pair.conns[1], &mut chunk).unwrap();
    }
    let counted = counters(&pair);
    assert_eq!((counted.device_drops, pair.line.said(0, Say::Drop)), (1, 1));
    assert!(counted.retrans_segs >= 1);
    pair.settle();
}

/// The device's completion is over when `send` returns, but the ticket comes back a little later: so small
/// writes coalesce (EGRESS: autocorking), although TCP_NODELAY is set, and none waits for the peer.
#[test]
fn small_writes_coalesce_behind_a_packet_that_has_just_left() {
    let pair = Pair::slow(LinkCaps::offloading(1_500), |_| {});
    let [near, far] = pair.connect_nodelay();
    let data_packets = |pair: &Pair| counters(pair).tcp_orig_data_sent;
    let before = data_packets(&pair);
    const WRITES: usize = 20_000;
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut got, mut chunk) = (0, vec![0; 65_536]);
            while got < WRITES * 64 {
                got += pair.far.read(far, &mut chunk).unwrap();
            }
        });
        for _ in 0..WRITES {
            pair.near.write_all(near, &[7; 64]).unwrap();
        }
    });
    assert!(counters(&pair).tcp_auto_corking > 0);
    // Segments of 1,448 bytes: 884 of them if none were short.
    let segments = data_packets(&pair) - before;
    assert!(segments < WRITES as u64 / 4, "{segments} segments for {WRITES} writes");
}

/// A write that autocorking holds back leaves although nobody uses the stack again, no ACK comes, and no
/// timer of TCP is due: a probe's or a retransmission's turn would collect the ticket, too.
#[test]
fn a_held_write_leaves_by_itself() {
    let pair = Pair::slow(LinkCaps::plain(1_500), without_timers);
    let [near, far] = pair.connect_nodelay();
    let mut by_itself = 0;
    for round in 0..50_u8 {
        // The far end's ACKs stay in its device.
        pair.line.script(1, |_| Say::Keep);
        let before = counters(&pair);
        pair.near.write_all(near, &[round]).unwrap();
        pair.near.write_all(near, &[round]).unwrap();
        let mut got = [0; 2];
        let mut count = 0;
        while count < 2 {
            count += pair.far.read(far, &mut got[count..]).unwrap();
        }
        assert_eq!(got, [round; 2]);
        // Nobody has used the near stack since.
        by_itself += u32::from(counters(&pair).autocork_held > before.autocork_held);
        pair.line.script(1, |_| Say::Left);
        pair.line.release(1);
        eventually("everything is acknowledged", || {
            pair.near.shard.access(|access| access.stack.conn(near).unwrap().info(access.now).unacked == 0)
        });
    }
    assert!(by_itself >= 10, "{by_itself} of 50");
    assert_eq!(counters(&pair).tcp_timeouts, 0);
}

/// One flush ends a batch.
#[test]
fn every_batch_is_flushed() {
    let pair = Pair::slow(LinkCaps::plain(1_500), |config| config.set_sysctl("taut.tsq", "off").unwrap());
    pair.send(500_000, 1);
    pair.settle();
    eventually("the last packet is flushed", || pair.line.log(0).last() == Some(&Event::Flush));
    assert!(!pair.line.log(0).windows(2).any(|pair| pair == [Event::Flush; 2]), "no flush without a packet");
}
