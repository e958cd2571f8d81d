//! TSO autosizing: how many segments the next super-packet should have.
//! Linux 3.12 (95bd09eb2750), at transmit time since 3.19 (605ad7f184b6), RTT term since 5.18; called by
//! `plan`.
//!
//! **Problem.** A super-packet of 64 KB, cut into segments by the device, saves CPU time and costs the
//! network: at 10 Mbit/s it is a burst of 52 ms in which nothing else is sent, and a shallow buffer on the
//! path drops its end.
//!
//! **Rule.** A super-packet holds about a millisecond of the pacing rate (`rate >> shift`, the same shift as
//! in [`small_queue`](crate::egress::small_queue)), at least `tcp_min_tso_segs` (2) segments and in any case
//! at most the device's maximum. On short paths it may hold more, because a burst there is over before the
//! next one starts: `gso_max >> (min_rtt / 512 µs)` is added, all of the device's maximum below 512 µs, half
//! of it up to 1 ms, nothing beyond 16 ms. At most half of cwnd leaves at once, so that two bursts per window
//! keep the ACK clock running.
//!
//! **When.** The rate at *write* time says little, since the data may leave much later: buffers are filled to
//! the largest multiple of the segment size that the device and half of the peer's window allow, and cut when
//! sent.
//!
//! **History.** Up to 3.18 buffers got their final size when the application wrote. A sender that writes far
//! ahead then has a queue full of packets sized for an old rate: 2 MB over a 40 ms path, written early in
//! slow start, took 599 packets for 1397 segments. Cut at transmission, it takes 232.

use crate::words::Duration;

/// Largest super-packet, in payload bytes, on a device that takes `gso_max_bytes` with headers: Linux keeps
/// 320 bytes for the headers of every layer, plus one.
pub(crate) const fn gso_payload_max(gso_max_bytes: u32) -> u32 {
    gso_max_bytes.saturating_sub(321)
}

/// Half of the largest window that the peer ever offered bounds one packet, so that there are always two in
/// flight and the peer's ACK of the first is not delayed. Small windows are used whole.
pub(crate) const fn half_window_bound(size: u32, max_window: u32) -> u32 {
    let cut = if max_window > 536 { max_window / 2 } else { max_window };
    if cut == 0 || size <= cut {
        return size;
    }
    // Every link must carry packets of 68 bytes (RFC 791); 20 of them are TCP's.
    if cut > 48 { cut } else { 48 }
}

/// Bytes that a buffer of the write queue is filled to.
pub(crate) const fn size_goal(mss: u32, gso_max_bytes: u32, gso_max_segs: u16, max_window: u32) -> u32 {
    if gso_max_bytes == 0 || mss == 0 {
        return mss;
    }
    let bound = half_window_bound(gso_payload_max(gso_max_bytes), max_window);
    let mut segs = bound / mss;
    if segs > gso_max_segs as u32 {
        segs = gso_max_segs as u32;
    }
    if segs == 0 { mss } else { segs * mss }
}

/// What decides the size of a super-packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutosizeMode {
    /// The device's maximum and half of cwnd: before 2013.
    Off,
    /// Linux 3.12 to 3.18: half a millisecond of the rate at the time of the *write*; only the windows change
    /// it later.
    #[cfg(feature = "history")]
    AtWrite,
    /// Today: a millisecond of the rate at the time of transmission.
    #[default]
    AtTransmit,
}

impl AutosizeMode {
    /// Whether buffers have their final size when they are written.
    pub(crate) const fn is_at_write(self) -> bool {
        match self {
            #[cfg(feature = "history")]
            Self::AtWrite => true,
            Self::Off | Self::AtTransmit => false,
        }
    }
}

/// Everything on which the number of segments depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Autosize {
    /// Bytes per second; `u64::MAX` when unknown.
    pub(crate) pacing_rate: u64,
    /// `None` when never measured.
    pub(crate) min_rtt: Option<Duration>,
    pub(crate) mss: u32,
    pub(crate) gso_max_bytes: u32,
    pub(crate) gso_max_segs: u16,
    /// The link's [`pacing_shift`](crate::LinkCaps::pacing_shift).
    pub(crate) shift: u8,
    pub(crate) min_tso_segs: u8,
    /// n: the RTT term halves for every 2ⁿ µs of RTT; with 0 it matters only below 32 µs.
    pub(crate) tso_rtt_log: u8,
}

/// Segments for the next super-packet, at least one.
pub(crate) fn segs(input: Autosize) -> u32 {
    if input.gso_max_bytes == 0 {
        return 1;
    }
    let gso_max = u64::from(gso_payload_max(input.gso_max_bytes));
    let mut bytes = input.pacing_rate >> u32::from(input.shift).min(63);
    if let Some(rtt) = input.min_rtt {
        let halvings = rtt.as_micros() >> input.tso_rtt_log;
        if halvings < 32 {
            bytes = bytes.saturating_add(gso_max >> halvings);
        }
    }
    let segs = (bytes.min(gso_max) / u64::from(input.mss.max(1))) as u32;
    fitting(segs.max(input.min_tso_segs.into()), input.mss, input.gso_max_bytes, input.gso_max_segs)
}

/// `segs`, or as many as the device takes at once if that is less; at least one. Nothing outranks this: with
/// segments of more than half of what the device takes, two of them do not even fit into the length field of
/// a packet.
pub(crate) fn fitting(segs: u32, mss: u32, gso_max_bytes: u32, gso_max_segs: u16) -> u32 {
    segs.min(gso_payload_max(gso_max_bytes) / mss.max(1)).min(gso_max_segs.into()).max(1)
}

/// Segments of a buffer that is sized at the write, in Linux 3.12 to 3.18: the pacing rate was twice that of
/// the window, and half a millisecond of it a millisecond of the other.
pub(crate) fn segs_at_write(pacing_rate: u64, mss: u32, min_tso_segs: u8) -> u32 {
    let segs = pacing_rate / 2_000 / u64::from(mss.max(1));
    u32::try_from(segs).unwrap_or(u32::MAX).max(min_tso_segs.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rate_and_rtt() {
        // (bytes/s, min RTT in µs, segments) at mss 1448 and a device maximum of 65,215 payload bytes.
        let vectors = [
            (1_250_000, 40_000, 2),
            (1_250_000, 600, 23),
            (12_500_000, 40_000, 8),
            (12_500_000, 1_000, 30),
            (12_500_000, 100, 45),
            (125_000_000, 40_000, 45),
        ];
        for (pacing_rate, rtt, expected) in vectors {
            let input = Autosize {
                pacing_rate,
                min_rtt: Some(Duration::from_micros(rtt)),
                mss: 1_448,
                gso_max_bytes: 65_536,
                gso_max_segs: 65_535,
                shift: 10,
                min_tso_segs: 2,
                tso_rtt_log: 9,
            };
            assert_eq!(segs(input), expected, "{pacing_rate} B/s, {rtt} us");
        }
    }

    #[test]
    fn unknown_rtt_adds_nothing_and_no_offload_means_one() {
        let input = Autosize {
            pacing_rate: 1_250_000,
            min_rtt: None,
            mss: 1_448,
            gso_max_bytes: 65_536,
            gso_max_segs: 65_535,
            shift: 10,
            min_tso_segs: 2,
            tso_rtt_log: 9,
        };
        assert_eq!(segs(input), 2);
        // 12.5 MB/s >> 7 is 97,656 bytes: more than the device takes.
        assert_eq!(segs(Autosize { pacing_rate: 12_500_000, shift: 7, ..input }), 45);
        assert_eq!(segs(Autosize { gso_max_bytes: 0, ..input }), 1);
    }

    #[test]
    fn half_window_bound_on_goal() {
        assert_eq!(half_window_bound(65_215, 4_096), 2_048);
        assert_eq!(half_window_bound(65_215, 500), 500);
        assert_eq!(half_window_bound(65_215, 0), 65_215);
        assert_eq!(size_goal(1_448, 65_536, 65_535, 1 << 20), 45 * 1_448);
        assert!(size_goal(1_448, 65_536, 65_535, 4_096) <= 2_048);
        assert_eq!(size_goal(1_448, 0, 1, 1 << 20), 1_448);
    }
}
