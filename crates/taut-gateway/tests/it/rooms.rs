//! Where bytes of one connection may wait, between two kernels: GW-99 and GW-100 of `docs/spec/gateway.md`.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use taut_testbed::eventually;

use crate::live;

#[test]
fn gw_99_no_acknowledgement_of_a_relay_is_delayed() {
    let Some(world) = live::plain() else { return };
    for body in [1, 1_000, 20_000, 60_000] {
        // By Nagle's rule, a body waits for the ACK of its head.
        let (mut client, mut served) = world.pair();
        for _ in 0..5 {
            client.write_all(&[1; 200]).unwrap();
            client.write_all(&vec![2; body]).unwrap();
            served.read_exact(&mut vec![0; 200 + body]).unwrap();
            served.write_all(&[3]).unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
    }
    assert_eq!(world.stack.counters().delayed_acks, 0);
}

/// Unsent bytes of the sockets in this namespace, as `ss` has them.
fn unsent(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.strip_prefix("notsent:")?.parse().ok()).collect()
}

#[test]
fn gw_100_a_slow_line_has_small_rooms_before_it() {
    const RATE: u64 = 20_000_000;
    let Some(world) = live::plain() else { return };
    world.far.run("ip link set lo mtu 1500").unwrap();
    world.far.limit_rate("lo", RATE, 16_000, 250_000).unwrap();
    let (mut client, mut served) = world.pair();
    let arrived = AtomicU64::new(0);
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It ends when the other side is dropped.
            while client.write_all(&[7; 16_384]).is_ok() {}
        });
        let reader = scope.spawn(|| {
            let mut part = [0; 65_536];
            while arrived.load(Relaxed) < 6 << 20 {
                arrived.fetch_add(live::again(|| served.read(&mut part)).unwrap() as u64, Relaxed);
            }
            drop(served);
        });
        eventually("the line is full", || {
            if arrived.load(Relaxed) > 1 << 20 {
                let text = world.far.run("ss -Htin state established").unwrap();
                // The server's socket sends nothing: the other one is the gateway's.
                samples.push(unsent(&text).into_iter().max().unwrap_or(0));
            }
            reader.is_finished()
        });
    });
    samples.sort_unstable();
    // 4 ms of the rate are 10,000 bytes, and a piece as long may lie above; without rooms there are 131,072.
    let median = samples[samples.len() / 2];
    assert!(median <= 40_000, "{samples:?}");
}
