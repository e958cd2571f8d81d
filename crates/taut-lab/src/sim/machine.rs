//! What the hosts of a simulated run are like where the scenario's tables `hosts` do not say it. By `host =
//! "ideal"` they take no time for anything; by `host = "linux-6.18"` they are late and merge as the ends of a
//! live run were measured to. Called by `plan.rs`.
//!
//! Measured under Linux 6.18 on two cores with compilers beside (load 3 to 4), by a record of every packet
//! that entered or left the emulated path of a live run (`taut lab run matrix --live`; CUBIC, 3 s, a queue of
//! one bandwidth-delay product). Each value is a quantile of some thousand events in a run.
//!
//! | what | 100 Mbit/s, 1 ms | 100 Mbit/s, 40 ms | 1 Gbit/s, 1 ms | 1 Gbit/s, 40 ms |
//! |---|---|---|---|---|
//! | the path delivers late, µs: p10, p50, p90 | 6, 24, 35 | 6, 9, 32 | 3, 8, 21 | 3, 7, 24 |
//! | segments that it delivers as one | 1.0 | 1.0 | 2.0 | 2.1 |
//! | segments for which the kernel sends an ACK | 1.82 | 1.75 | 2.97 | 3.03 |
//! | from a delivery to the kernel's ACK, µs: p10, p50, p90 | 7, 10, 20 | 7, 8, 14 | 14, 17, 24 | 7, 14, 25 |
//! | from an ACK's delivery to taut's next packet, µs: p10, p50, p90, p99 | 17, 22, 29, 53 | 18, 24, 42, 95 | 15, 25, 44, 121 | 18, 32, 51, 92 |
//!
//! So the emulator's thread merges nothing at 100 Mbit/s, where a segment takes 123 µs, and two or three at 1
//! Gbit/s, where it takes 12.

use taut_core::Duration;
use taut_sim::Wakeups;

use crate::scenario::{HostKind, Scenario};

/// One end's machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Machine {
    /// `ethtool -C rx-usecs`.
    pub(super) rx_usecs: u32,
    /// A packet's way up through the stack.
    pub(super) rx_packet: Duration,
    /// How late the thread wakes up that does the work.
    pub(super) wakeups: Wakeups,
    /// Whether another core takes the interrupts for sent packets.
    pub(super) completions_apart: bool,
}

/// Both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Machines {
    pub(super) sender: Machine,
    pub(super) receiver: Machine,
}

impl Machines {
    pub(super) fn of(kind: HostKind) -> Self {
        match kind {
            HostKind::Ideal => Self::default(),
            HostKind::Linux618 => Self {
                sender: Machine {
                    // Between the median and the 90th percentile of the path's lateness. With it the receiver
                    // sends an ACK for as many segments as live, 3.0 at 1 Gbit/s; with 10 µs, for 2.0.
                    rx_usecs: 20,
                    rx_packet: Duration::ZERO,
                    // taut's thread: 15 to 51 µs (p10 to p90) in the table above, 24 to 32 in that of
                    // `Quiet`, which was measured without a path (`make bench-lateness` of commit 529471b5).
                    wakeups: Wakeups::Quiet,
                    // In front of a TUN or a pipe, a packet has left when it was written: nothing waits for
                    // the thread.
                    completions_apart: true,
                },
                // The kernel, which does its work where the packet is delivered: no thread wakes up.
                receiver: Machine {
                    rx_usecs: 20,
                    // From a delivery to the ACK: medians of 8 to 17 µs.
                    rx_packet: Duration::from_micros(10),
                    ..Machine::default()
                },
            },
        }
    }
}

/// Up to this much later than `start` and `stagger` say, a flow starts, unless it says how much.
///
/// A flow's timers run from when it started, so its phase against the clock's milliseconds, which timestamps
/// and delayed ACKs count, and against other flows' round trips, is that of its start.
pub(super) fn phase(scenario: &Scenario) -> Duration {
    match scenario.host {
        HostKind::Ideal => Duration::ZERO,
        HostKind::Linux618 => {
            let own = scenario.topology.delays.first().map_or(Duration::ZERO, |delay| delay.value);
            ((scenario.link.delay() + own) * 2).max(Duration::from_millis(1))
        }
    }
}
