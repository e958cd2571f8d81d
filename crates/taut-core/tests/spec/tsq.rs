//! TCP Small Queues: TSQ-1 … TSQ-18.

use crate::rig::{MSS, Setup, truesize};
use taut_core::{Blocked, Duration, LinkCaps};

/// A link that spaces packets by their stamps: pacing sets the rate, and its gate is out of the way.
fn pacing_link() -> LinkCaps {
    LinkCaps { paces: true, ..LinkCaps::offloading(1_500) }
}

/// rate 1.25 MB/s, buffers T equal, ≥ 2 unacknowledged, no completions: exactly 2 below TCP, the third blocked.
#[test]
fn tsq_03_two_packets_below_tcp() {
    let mut rig = Setup { caps: pacing_link(), rtt: Duration::from_millis(20), ..Setup::default() }.open();
    rig.limit_rate(1_250_000);
    rig.write(100_000);
    // 1,250,000 >> 10 = 1220 bytes of rate: two segments in a super-packet; limit = max(2 T, 1220).
    assert_eq!(rig.news(), [0..2 * MSS, 2 * MSS..4 * MSS]);
    assert_eq!(rig.out(), 2 * truesize(2 * MSS));
    assert_eq!(rig.blocked(), Blocked::SmallQueue);
}
