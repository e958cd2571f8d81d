//! What a packet for the guest costs to write, by the place in a page where its payload begins: the figures
//! of GW-94 in `docs/spec/gateway.md`. `make gateway-pages`; six seconds.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "tests")]

use std::io::IoSlice;

use rustix::io::writev;
use taut::device::{Tun, TunOptions};
use taut_testbed::{Kernel, Subnet, live, now};

const PAGE: usize = 4 << 10;
/// The place where blocks of the gateway begin (`blocks.rs`).
const OURS: usize = 2_048;
const PLACES: [usize; 16] = [0, 4, 8, 12, 13, 14, 16, 64, 128, 512, 1_024, OURS, 3_072, 4_032, 4_080, 4_090];
/// A packet of 65,520 bytes is 20 of IPv4, 32 of TCP with timestamps, and this.
const PAYLOAD: usize = 65_468;
const WRITES: u32 = 4_000;
const ROUNDS: usize = 3;

/// A virtio-net header that leaves the checksum to the kernel, IPv4, TCP.
fn headers() -> Vec<u8> {
    let mut all = vec![1, 0, 0, 0, 0, 0, 20, 0, 16, 0];
    let mut ip = [0; 20];
    ip[..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&(20 + 32 + PAYLOAD as u16).to_be_bytes());
    ip[6..10].copy_from_slice(&[0x40, 0, 64, 6]);
    // Without its checksum: the kernel drops it when it has it.
    all.extend(ip);
    all.extend([0; 12].iter().chain(&[0x80, 0x10]).chain(&[0; 18]));
    all
}

/// Microseconds of one write.
fn write_from(tun: &Tun, headers: &[u8], payload: &[u8]) -> f64 {
    let begun = now();
    for _ in 0..WRITES {
        let pieces = [IoSlice::new(headers), IoSlice::new(payload)];
        assert_eq!(writev(tun, &pieces).unwrap(), headers.len() + payload.len());
    }
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(WRITES)
}

#[test]
#[ignore = "six seconds, and a machine that does nothing else: make gateway-pages"]
fn where_the_payload_of_a_packet_begins_in_a_page() {
    assert!(live::ready(&[]), "it needs a TUN");
    let kernel = Kernel::new().unwrap();
    let tun = kernel.tun(&Subnet(0x61).near(), &TunOptions { mtu: 65_520, ..TunOptions::default() }).unwrap();
    let (headers, memory) = (headers(), vec![7; PAYLOAD + 2 * PAGE]);
    let first_page = memory.as_ptr().align_offset(PAGE);
    let mut all: Vec<(usize, Vec<f64>)> = PLACES.iter().map(|place| (*place, Vec::new())).collect();
    // The first round is to warm up.
    for round in 0..=ROUNDS {
        for (place, times) in &mut all {
            let taken = write_from(&tun, &headers, &memory[first_page + *place..][..PAYLOAD]);
            if round > 0 {
                times.push(taken);
            }
        }
    }
    let mut median_of = |place: &mut (usize, Vec<f64>)| {
        let (place, times) = place;
        times.sort_by(f64::total_cmp);
        println!("byte {place:>4} of a page: {:.2} µs ({:.2}–{:.2})", times[1], times[0], times[ROUNDS - 1]);
        (*place, times[1])
    };
    let medians: Vec<(usize, f64)> = all.iter_mut().map(&mut median_of).collect();
    let least = medians.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let ours = medians.iter().find(|(place, _)| *place == OURS).unwrap().1;
    assert!(ours <= 1.5 * least, "where blocks begin a write takes {ours:.2} µs, elsewhere {least:.2}");
}
