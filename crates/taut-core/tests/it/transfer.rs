//! Bulk data through links of every kind: every byte arrives, in order, in reasonable time, and nothing is
//! left over.

use crate::support;

use support::{Faults, World, config, transfer};
use taut_core::{BufferSizes, Duration, LinkCaps, StackConfig};

const SMALL: BufferSizes = BufferSizes { min: 4_096, initial: 5_000, max: 20_000 };

#[test]
fn a_clean_link_needs_no_retransmission() {
    for caps in [LinkCaps::plain(1_500), LinkCaps::offloading(1_500)] {
        let mut world = World::with(1, config(support::A), config(support::B), caps);
        transfer(&mut world, 5_000_000, Duration::from_secs(60));
        let counters = world.stacks[0].counters();
        assert_eq!(counters.retrans_segs, 0, "{caps:?}");
        assert_eq!(counters.tcp_loss_probes, 0, "{caps:?}");
        assert_eq!(counters.tcp_timeouts, 0, "{caps:?}");
    }
}

#[test]
fn random_worlds_lose_nothing() {
    for seed in 0..80 {
        let caps = if seed % 2 == 0 { LinkCaps::plain(1_500) } else { LinkCaps::offloading(1_500) };
        // Every combination of options, and now and then small buffers.
        let options = |address| {
            config(address).with(|c| {
                c.tcp.sack = seed % 3 != 1;
                c.tcp.timestamps = seed % 5 != 2;
                c.tcp.window_scaling = seed % 7 != 3;
                c.send.autocorking = seed % 11 != 4;
                c.receive.rmem = if seed % 4 == 3 { SMALL } else { StackConfig::default().receive.rmem };
            })
        };
        let mut world = World::with(seed, options(support::A), options(support::B), caps);
        world.faults(Faults {
            loss: 10 * (seed % 5),
            duplicate: 10 * (seed % 3),
            reorder: 50 * (seed % 4),
            corrupt: if seed % 2 == 0 { 5 * (seed % 7) } else { 0 },
            completion_delay: Duration::from_micros(200 * (seed % 3)),
            ..Faults::default()
        });
        transfer(&mut world, 300_000, Duration::from_secs(600));
    }
}
