//! A driver with a scripted device: packets in every order of fates, batches, news by a waker, and the end.

use crate::hosts;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;
use std::{io, slice};

use hosts::line::{Event, Line, Rng, Say};
use hosts::{NEAR, Pair, Raise, below, eventually, without_timers};
use taut_core::{ConnOptions, LinkCaps, ListenOptions, Stack, StackConfig};
use taut_driver::{Access, Interest, Shard, WaitKey};

/// A device that returns any fate at any time, and completes kept packets late and in any order: the bytes
/// arrive, and the connection's count of bytes below TCP always equals the sum of the tickets.
#[test]
fn fates_in_every_order() {
    let mut said = [0; Say::ALL.len()];
    for seed in 1..=8 {
        let caps = if seed % 2 == 0 { LinkCaps::plain(1_500) } else { LinkCaps::offloading(1_500) };
        let pair = Pair::new(caps, |_| {});
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
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Packets are handed out under the lock, so none is in between now.
                    pair.near.shard.access(|access| {
                        let out: u64 = pair.line.tickets(0).iter().map(|&truesize| u64::from(truesize)).sum();
                        assert_eq!(below(access, pair.conns[0]), out, "seed {seed}");
                    });
                    thread::sleep(Duration::from_micros(200));
                }
            });
            let over = Raise(&is_over);
            pair.send(400_000, seed);
            drop(over);
        });
        pair.line.script(0, |_| Say::Left);
        pair.line.give_room();
        pair.settle();
        for say in Say::ALL {
            said[say as usize] += pair.line.said(0, say);
        }
    }
    assert!(said.iter().all(|&count| count > 10), "each fate occurred: {said:?}");
}

/// A ticket that comes back late, from another thread, resumes the connection that waited for it.
#[test]
fn a_completion_from_another_thread_resumes_the_sender() {
    // Less than two packets of 1448 bytes and their overhead: the second leaves, the third waits.
    let limit = |config: &mut StackConfig| config.set_sysctl("tcp_limit_output_bytes", "4000").unwrap();
    let pair = Pair::new(LinkCaps::plain(1_500), limit);
    pair.line.script(0, |_| Say::Keep);
    let before = pair.line.log(0).len();
    pair.near.write_all(pair.conns[0], &[7; 14_480]).unwrap();
    let kept = |pair: &Pair| pair.line.tickets(0).len();
    assert_eq!(kept(&pair), 2);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(kept(&pair), 2, "no packet is completed");
    pair.line.complete_first();
    eventually("another packet is sent", || kept(&pair) == 2 && pair.line.log(0).len() > before + 3);
    pair.line.script(0, |_| Say::Left);
    pair.settle();
}

/// A device without room is not offered packets before it announces room; then the same bytes leave.
#[test]
fn full_then_room() {
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        let pair = Pair::new(caps, without_timers);
        let before = pair.line.said(0, Say::Full);
        pair.line.script(0, |_| Say::Full);
        let (conn, data) = (pair.conns[0], [1; 10_000]);
        pair.near.write_all(conn, &data).unwrap();
        assert_eq!(pair.near.below(conn), 0, "as if never sent");
        for _ in 0..10 {
            // The application continues to write, but the device is not asked.
            pair.near.write_all(conn, slice::from_ref(&2)).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        let offers = pair.line.said(0, Say::Full) - before;
        assert!((1..=2).contains(&offers), "{offers} offers");
        pair.line.script(0, |_| Say::Left);
        pair.line.give_room();
        let (mut got, mut chunk) = (Vec::new(), [0; 4_096]);
        while got.len() < 10_010 {
            let count = pair.far.read(pair.conns[1], &mut chunk).unwrap();
            got.extend_from_slice(&chunk[..count]);
        }
        assert_eq!(got, [&data[..], &[2; 10]].concat());
        let repeated = pair.near.shard.access(|access| access.stack.counters().retrans_segs);
        assert_eq!(repeated, 0, "segments were sent twice");
        pair.settle();
    }
}

/// A packet that a device will never take is lost like any other, and so is one that it kept and lost.
#[test]
fn never_and_kept_then_dropped_are_lost_as_in_the_network() {
    for say in [Say::Never, Say::Keep] {
        let pair = Pair::new(LinkCaps::plain(1_500), |config| config.set_sysctl("taut.tsq", "off").unwrap());
        let mut nth = 0;
        pair.line.script(0, move |packet| {
            nth += usize::from(!packet.payload.is_empty());
            if nth % 10 == 5 && !packet.payload.is_empty() { say } else { Say::Left }
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    pair.line.lose_all();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let over = Raise(&is_over);
            pair.send(150_000, 3);
            drop(over);
        });
        assert!(pair.line.said(0, say) >= 10);
        let retransmitted = pair.near.shard.access(|access| access.stack.counters().retrans_segs);
        assert!(retransmitted >= 10, "{retransmitted}");
        pair.line.script(0, |_| Say::Left);
        pair.settle();
    }
}

/// A packet that the device dropped counts as not sent: the same bytes are sent as new ones, without any news
/// from the device, and the connection slows down once, as for a congestion mark. Without the drop, slow
/// start would go on.
#[test]
fn dropped_is_sent_again_as_new_and_slows_the_connection_down() {
    let pair = Pair::new(LinkCaps::plain(1_500), without_timers);
    let threshold = |pair: &Pair| {
        pair.near
            .shard
            .access(|access| access.stack.conn(pair.conns[0]).unwrap().info(access.now).snd_ssthresh)
    };
    let before = threshold(&pair);
    let mut nth = 0;
    pair.line.script(0, move |packet| {
        nth += usize::from(!packet.payload.is_empty());
        if nth == 4 && !packet.payload.is_empty() { Say::Drop } else { Say::Left }
    });
    pair.send(100_000, 9);
    assert_eq!(pair.line.said(0, Say::Drop), 1);
    let after = threshold(&pair);
    assert!(after < before, "slow start ends at {after} segments, before at {before}");
    let retransmitted = pair.near.shard.access(|access| access.stack.counters().retrans_segs);
    assert_eq!(retransmitted, 0, "no byte was sent twice");
    pair.settle();
}

/// The stack counts packets that the device did not send, and can report the last reason, whether packets go
/// to the device directly or through a queue.
#[test]
fn losses_in_the_device_are_counted_and_the_last_reason_is_kept() {
    for qdisc in [None, Some("pfifo".parse().unwrap())] {
        let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
        pair.near.shard.set_qdisc(qdisc.as_ref());
        pair.send(10_000, 1);
        let counts = |pair: &Pair| {
            let counters = pair.near.shard.access(|access| *access.stack.counters());
            [counters.device_drops, counters.device_errors]
        };
        assert_eq!((counts(&pair), pair.near.shard.last_device_error().is_none()), ([0, 0], true));
        let mut nth = 0;
        pair.line.script(0, move |packet| {
            nth += usize::from(!packet.payload.is_empty());
            match nth % 10 {
                4 => Say::Drop,
                8 => Say::Never,
                _ => Say::Left,
            }
        });
        pair.send(150_000, 2);
        pair.line.script(0, |_| Say::Left);
        pair.settle();
        let said = [Say::Drop, Say::Never].map(|say| pair.line.said(0, say));
        assert!(said.iter().all(|&count| count >= 5), "{said:?}");
        assert_eq!(counts(&pair), said, "{qdisc:?}");
        let reason = pair.near.shard.last_device_error().unwrap().to_string();
        assert_eq!(reason, format!("never {}", said[1]));
    }
}

/// One flush ends a batch, however many packets it has.
#[test]
fn a_batch_ends_with_one_flush() {
    let pair = Pair::new(LinkCaps::plain(1_500), |config| config.set_sysctl("taut.tsq", "off").unwrap());
    pair.send(500_000, 1);
    pair.settle();
    let log = pair.line.log(0);
    assert_eq!(log.last(), Some(&Event::Flush));
    assert!(!log.windows(2).any(|pair| pair == [Event::Flush; 2]), "no flush without a packet");
    let batches: Vec<usize> = log.split(|event| *event == Event::Flush).map(<[Event]>::len).collect();
    assert!(batches.iter().any(|&packets| packets >= 5), "there were batches: {batches:?}");
}

/// The line has no descriptor: its waker wakes the driver, even if nothing else ever happens.
#[test]
fn a_waker_wakes_a_blocked_reader() {
    let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
    for round in 0..200_u8 {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut byte = [0];
                pair.far.read(pair.conns[1], &mut byte).unwrap();
                byte[0]
            });
            if round % 20 == 0 {
                // The driver sleeps by now, and only the device will wake it.
                thread::sleep(Duration::from_millis(5));
            }
            pair.near.write_all(pair.conns[0], &[round]).unwrap();
            assert_eq!(reader.join().unwrap(), round);
        });
    }
    pair.settle();
}

/// The device reports that it is gone: every reader, writer and acceptor gets the reason, and so do later
/// calls.
#[test]
fn an_error_that_is_final_reaches_everybody() {
    let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
    let (near, id) = (&pair.near, pair.conns[0]);
    let at: SocketAddr = format!("{NEAR}:80").parse().unwrap();
    let listener = near.shard.access(|access| access.stack.listen(at, ListenOptions::default())).unwrap();
    pair.line.script(0, |_| Say::Keep);
    let errors = thread::scope(|scope| {
        let reader = scope.spawn(|| near.read(id, &mut [0]).unwrap_err());
        let writer = scope.spawn(|| near.write_all(id, &vec![0; 50_000_000]).unwrap_err());
        let acceptor = scope.spawn(|| {
            near.wait(Interest::Accept(listener), |_| Poll::<io::Result<()>>::Pending).unwrap_err()
        });
        let ender =
            scope.spawn(|| near.wait(Interest::End, |_| Poll::<io::Result<()>>::Pending).unwrap_err());
        thread::sleep(Duration::from_millis(50));
        pair.line.cut("the cable was cut");
        [reader, writer, acceptor, ender].map(|thread| thread.join().unwrap())
    });
    for error in errors.iter().chain(&near.shard.closed()) {
        assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
        assert!(error.to_string().contains("the cable was cut"), "{error}");
    }
    assert!(near.read(id, &mut [0]).is_err());
}

/// An application's thread panics while it has the stack: nobody goes on with what it left, and nobody waits
/// for it.
#[test]
fn a_panic_under_the_lock_ends_the_stack() {
    let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
    thread::scope(|scope| {
        let reader = scope.spawn(|| pair.far.read(pair.conns[1], &mut [0]));
        thread::sleep(Duration::from_millis(20));
        let panicked = scope
            .spawn(|| pair.far.shard.access(|_| -> () { panic!("the test panics on purpose") }))
            .join()
            .is_err();
        assert!(panicked);
        let why = reader.join().unwrap().unwrap_err().to_string();
        assert!(why.contains("a thread panicked"), "{why}");
    });
    assert!(pair.far.shard.is_closed() && !pair.near.shard.is_closed());
    assert!(pair.far.read(pair.conns[1], &mut [0]).is_err());
    // Inside an attempt, too.
    let attempt = || pair.near.wait::<()>(Interest::End, |_| panic!("the test panics on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt)).is_err());
    assert!(pair.near.shard.closed().unwrap().to_string().contains("a thread panicked"));
}

/// Two shards over a line, which nobody drives.
fn undriven(devices: [taut_driver::Device; 2]) -> [Shard; 2] {
    let [near, far] = devices;
    [(NEAR, near), ("10.0.0.2", far)].map(|(address, device)| {
        let config = StackConfig::default().with(|config| config.addresses.push(address.parse().unwrap()));
        let stack = Stack::new(Arc::new(config), device.caps, [address.len() as u8; 32]);
        Shard::new(stack, device).unwrap()
    })
}

/// One that waits for the answer to a SYN looks at the device each time that it would wait, however often it
/// found nothing. Nobody drives these stacks, so nobody else looks.
#[test]
fn one_that_connects_looks_for_the_answer() {
    let (_line, devices) = Line::slow(LinkCaps::plain(1_500));
    let [near, far] = undriven(devices);
    let to: SocketAddr = hosts::FAR.parse().unwrap();
    let listener = far.access(|access| access.stack.listen(to, ListenOptions::default())).unwrap();
    for pauses in [0, 100, 0, 1] {
        let begin = |access: &mut Access<'_>| access.stack.connect(access.now, to, &ConnOptions::default());
        let conn = near.access(begin).unwrap();
        let connected = || {
            near.poll(Interest::Write(conn), WaitKey::POLL, Waker::noop(), |access| {
                let state = access.stack.conn(conn).unwrap().state();
                if state.is_synchronized() { Poll::Ready(Ok(())) } else { Poll::Pending }
            })
        };
        for _ in 0..pauses {
            assert!(connected().is_pending(), "the SYN has not been answered");
        }
        let accepted = || {
            far.poll(Interest::Accept(listener), WaitKey::POLL, Waker::noop(), |access| {
                access.stack.accept(listener).map_or(Poll::Pending, |_| Poll::Ready(Ok(())))
            })
        };
        // One that accepts may skip looks, but not so many.
        for _ in 0..100 {
            assert!(accepted().is_pending(), "the handshake is not complete");
        }
        // A look that finds something may end the turn of its task (TURN-5), which then runs again.
        let is_connected = connected().is_ready() || connected().is_ready();
        assert!(is_connected, "after {pauses} looks in vain");
        assert!((0..100).any(|_| accepted().is_ready()));
    }
}

/// Requests and responses on several connections at a time, by a thread for each; threads wait beside them
/// that get nothing. Returns the share of the packets that the driver thread took.
fn share_of_the_driver(conns: usize) -> f64 {
    const WARM_UP: u64 = 300;
    const EXCHANGES: u64 = 2_000;
    let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
    let (idle, conns): (Vec<_>, Vec<_>) =
        ((0..3).map(|_| pair.connect()).collect(), (0..conns).map(|_| pair.connect_nodelay()).collect());
    thread::scope(|scope| {
        for [near, _] in &idle {
            scope.spawn(|| pair.near.read(*near, &mut [0]).unwrap());
        }
        let clients: Vec<_> = conns
            .iter()
            .map(|&[near, far]| {
                let pair = &pair;
                scope.spawn(move || {
                    let mut byte = [0];
                    for _ in 0..WARM_UP + EXCHANGES {
                        assert_eq!(pair.far.read(far, &mut byte).unwrap(), 1);
                        pair.far.write_all(far, &byte).unwrap();
                    }
                });
                scope.spawn(move || {
                    let mut byte = [0];
                    for exchange in 0..WARM_UP + EXCHANGES {
                        if exchange == WARM_UP {
                            pair.line.taken(0);
                        }
                        pair.near.write_all(near, &[7]).unwrap();
                        assert_eq!(pair.near.read(near, &mut byte).unwrap(), 1);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let [driver, others] = pair.line.taken(0);
        for [_, far] in &idle {
            pair.far.write_all(*far, &[0]).unwrap();
        }
        driver as f64 / (driver + others) as f64
    })
}

/// One that finds the answer to what it sent does not ask the device for more: there is nothing, and on a TUN
/// it is a system call.
#[test]
fn an_answer_ends_the_batch() {
    let (line, devices) = Line::new(LinkCaps::plain(1_500));
    let [near, far] = undriven(devices);
    let to: SocketAddr = hosts::FAR.parse().unwrap();
    let listener = far.access(|access| access.stack.listen(to, ListenOptions::default())).unwrap();
    let options = ConnOptions { nodelay: true, ..ConnOptions::default() };
    let client = near.access(|access| access.stack.connect(access.now, to, &options)).unwrap();
    let mut server = None;
    for _ in 0..100 {
        let accepted = far.poll(Interest::Accept(listener), WaitKey::POLL, Waker::noop(), |access| {
            access.stack.accept(listener).map_or(Poll::Pending, |(id, _)| Poll::Ready(Ok(id)))
        });
        if let Poll::Ready(id) = accepted {
            server = id.ok();
        }
        let connecting = Interest::Write(client);
        let none = |_: &mut Access<'_>| Poll::<io::Result<()>>::Pending;
        assert!(near.poll(connecting, WaitKey::POLL, Waker::noop(), none).is_pending());
    }
    let server = server.expect("the handshake is over");
    let write = |shard: &Shard, conn| {
        let written = shard.access(|access| access.stack.conn_mut(conn).unwrap().write(access.now, &[7]));
        assert_eq!(written.unwrap(), 1);
    };
    let read = |shard: &Shard, conn| {
        let once = || {
            shard.poll(Interest::Read(conn), WaitKey::POLL, Waker::noop(), |access| {
                let now = access.now;
                match access.stack.conn_mut(conn).unwrap().read(now, &mut [0]) {
                    Ok(count) => Poll::Ready(Ok(count)),
                    Err(_) => Poll::Pending,
                }
            })
        };
        assert!((0..100).any(|_| once().is_ready()), "nothing came");
    };
    let mut in_vain = 0;
    for _ in 0..200 {
        write(&near, client);
        read(&far, server);
        write(&far, server);
        line.asked_in_vain(0);
        read(&near, client);
        in_vain += line.asked_in_vain(0);
    }
    assert!(in_vain < 20, "{in_vain} of 200");
}

/// A batch has 16 packets at most; a bell that rang is a call more.
#[test]
fn dev_15_the_device_hears_when_a_batch_begins() {
    let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
    let [near, far] = pair.connect_nodelay();
    let mut byte = [0];
    for _ in 0..50 {
        pair.near.write_all(near, &[7]).unwrap();
        assert_eq!(pair.far.read(far, &mut byte).unwrap(), 1);
        pair.far.write_all(far, &byte).unwrap();
        assert_eq!(pair.near.read(near, &mut byte).unwrap(), 1);
    }
    for end in [0, 1] {
        let most = pair.line.asked_in_a_batch(end);
        assert!((1..=17).contains(&most), "{most} calls at end {end}");
    }
}

/// A thread that rings for another one loses its processor to it, and that one must not ask the device again
/// and again meanwhile.
#[test]
fn one_that_rings_makes_nobody_spin() {
    const EXCHANGES: u64 = 1_000;
    for _ in 0..3 {
        let pair = Pair::new(LinkCaps::plain(1_500), |_| {});
        let [near, far] = pair.connect_nodelay();
        pair.line.asked_in_vain(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                for _ in 0..EXCHANGES {
                    assert_eq!(pair.far.read(far, &mut byte).unwrap(), 1);
                    pair.far.write_all(far, &byte).unwrap();
                }
            });
            let mut byte = [0];
            for _ in 0..EXCHANGES {
                pair.near.write_all(near, &[7]).unwrap();
                assert_eq!(pair.near.read(near, &mut byte).unwrap(), 1);
            }
        });
        let in_vain = pair.line.asked_in_vain(0);
        assert!(in_vain < 10 * EXCHANGES, "{in_vain} times in {EXCHANGES} exchanges");
    }
}

/// Among eight busy threads the driver thread serves; one of two leads. Most of the time: on a busy machine
/// the driver thread also steps in for a leader that does not come back in time, and a thread that is about
/// to wait takes packets.
#[test]
fn the_driver_serves_a_crowd() {
    let any = |conns, expected: fn(f64) -> bool| {
        let shares: Vec<f64> = (0..3).map(|_| share_of_the_driver(conns)).collect();
        assert!(shares.iter().any(|&share| expected(share)), "{conns} connections: {shares:.2?}");
    };
    any(8, |share| share > 0.3);
    any(2, |share| share < 0.3);
}
