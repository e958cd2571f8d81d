//! Random worlds: writes and reads of every kind, with and without a copy, over a network that loses,
//! duplicates, reorders and corrupts. The stream arrives as it was written; every lent write is reported once
//! and in order, and its memory is then the application's alone.

use std::collections::VecDeque;
use std::task::Poll;

use bytes::Bytes;
use support::{Faults, Rng, World, pattern};
use taut_core::{ConnId, Duration, LinkCaps, WriteFlags};

use crate::support;

const LEN: u64 = 600_000;

/// What the sender lent and was not yet told to be free.
#[derive(Default)]
struct Lender {
    written: u64,
    /// The number of the next write that takes anything.
    next: u32,
    held: VecDeque<(u32, Bytes)>,
}

impl Lender {
    /// Writes in random ways until there is no room.
    fn write(&mut self, world: &mut World, id: ConnId, rng: &mut Rng) {
        let now = world.now;
        let Some(mut conn) = world.stacks[0].conn_mut(id) else { return };
        while self.written < LEN {
            let most = [50, 3_000, 20_000, 150_000][rng.below(4) as usize];
            let len = (1 + rng.below(most)).min(LEN - self.written);
            let data: Bytes = (self.written..self.written + len).map(pattern).collect();
            let flags = WriteFlags { more: rng.chance(100), eor: rng.chance(100) };
            let mut rest = data.clone();
            let written = match rng.chance(600) {
                true => conn.write_bytes_with(now, &mut rest, flags).map(|number| {
                    assert_eq!(number, Some(self.next));
                    self.held.push_back((self.next, data));
                    self.next += 1;
                    len - rest.len() as u64
                }),
                false => conn.write_with(now, &rest, flags).map(|count| count as u64),
            };
            match written {
                Ok(count) => self.written += count,
                Err(_) => break,
            }
        }
    }

    /// Takes the reports.
    fn free(&mut self, world: &mut World, id: ConnId) -> Poll<()> {
        let now = world.now;
        let Some(mut conn) = world.stacks[0].conn_mut(id) else { panic!("the connection is held") };
        loop {
            match conn.poll_free(now) {
                Poll::Ready(Some(done)) => {
                    for number in done.lo..=done.hi {
                        let (expected, memory) = self.held.pop_front().expect("it was not reported before");
                        assert_eq!(number, expected);
                        assert!(memory.is_unique(), "write {number} is held");
                        assert!(done.delivered);
                    }
                }
                Poll::Ready(None) => {
                    assert!(self.held.is_empty(), "every write was reported");
                    break Poll::Ready(());
                }
                Poll::Pending => break Poll::Pending,
            }
        }
    }
}

/// Reads in random ways what there is; `kept` is memory that the application holds on to. True at the end.
fn read(
    world: &mut World,
    id: ConnId,
    rng: &mut Rng,
    position: &mut u64,
    kept: &mut VecDeque<Bytes>,
) -> bool {
    let now = world.now;
    let Some(mut conn) = world.stacks[1].conn_mut(id) else { return false };
    loop {
        let most = [100, 3_000, 100_000][rng.below(3) as usize];
        let max = 1 + rng.below(most) as usize;
        let bytes = if rng.chance(500) {
            conn.read_chunk(now, max)
        } else {
            let mut into = vec![0; max];
            conn.read(now, &mut into).map(|count| into[..count].to_vec().into())
        };
        match bytes {
            Ok(bytes) if bytes.is_empty() => return true,
            Ok(bytes) => {
                for &byte in &bytes {
                    assert_eq!(byte, pattern(*position), "byte {position} of the stream");
                    *position += 1;
                }
                kept.push_back(bytes);
            }
            Err(_) => return false,
        }
    }
}

#[test]
fn every_mix_of_calls_gives_the_same_stream() {
    let (mut lent, mut retransmitted) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed + 1_000);
        let caps = if seed % 2 == 0 { LinkCaps::offloading(1_500) } else { LinkCaps::plain(1_500) };
        let mut world = World::with(seed, support::config(support::A), support::config(support::B), caps);
        let (client, server) = world.pair();
        world.faults(Faults {
            loss: rng.below(40),
            duplicate: rng.below(10),
            reorder: rng.below(50),
            corrupt: if seed % 2 == 0 { 0 } else { rng.below(5) },
            completion_delay: Duration::from_micros(rng.below(3_000)),
            ..Faults::default()
        });
        let (mut sender, mut position, mut kept, mut shut) = (Lender::default(), 0, VecDeque::new(), false);
        let done = world.run_until(Duration::from_secs(600), |world| {
            sender.write(world, client, &mut rng);
            if sender.written == LEN && !shut {
                let now = world.now;
                shut = world.stacks[0].conn_mut(client).unwrap().shutdown_write(now).is_ok();
            }
            let end = read(world, server, &mut rng, &mut position, &mut kept);
            // What the application holds stays as it is, whatever arrives later.
            let mut at = position;
            for bytes in kept.iter().rev().take(20) {
                at -= bytes.len() as u64;
                assert!(bytes.iter().zip(at..).all(|(&byte, at)| byte == pattern(at)), "held bytes changed");
            }
            kept.drain(..kept.len().saturating_sub(200));
            sender.free(world, client).is_ready() && end
        });
        assert!(done, "seed {seed} ended after {position} bytes, {} writes are held", sender.held.len());
        assert_eq!(position, LEN, "seed {seed}");
        lent += sender.next;
        let now = world.now;
        retransmitted += world.stacks[0].conn(client).map_or(0, |conn| conn.info(now).total_retrans);
    }
    // Otherwise the test tests nothing.
    assert!(lent > 1_000 && retransmitted > 300, "{lent} lent writes, {retransmitted} retransmissions");
}
