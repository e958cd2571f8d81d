//! The settings of the send path: Linux's sysctls, and which version of each mechanism is in force.
//! A part of [`StackConfig`](crate::StackConfig); the rules are on the mechanisms' own pages.

use super::queue::notsent_lowat;
use super::{AutocorkMode, AutosizeMode, LowatMode, PacingMode, TsqMode};
use crate::words::{BufferSizes, Duration};

/// How the send path buffers written data and cuts it into packets.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SendConfig {
    /// Send buffer, bookkeeping included. Linux: `tcp_wmem`, with a maximum of 4 MiB; 128 MiB here.
    pub wmem: BufferSizes,
    /// The most that `SO_SNDBUF` may ask for, in bytes before doubling. Linux: `wmem_max`, 212,992; 64 MiB
    /// here.
    pub wmem_max: u32,
    /// Most bytes of one connection below TCP; 0..=`i32::MAX`. Linux: `tcp_limit_output_bytes`.
    pub limit_output_bytes: u32,
    /// Coalesce small writes while an earlier packet is below TCP. Linux: `tcp_autocorking`.
    pub autocorking: bool,
    /// Unsent bytes at which a socket stops being writable; 0 follows the rate of each socket, `u32::MAX` is
    /// no mark. Linux: `tcp_notsent_lowat`, by default no mark.
    pub notsent_lowat: u32,
    /// Fewest segments in an autosized super-packet, 1..=255. Linux: `tcp_min_tso_segs`.
    pub min_tso_segs: u8,
    /// Makes super-packets bigger at small RTTs, 0..=31. Linux: `tcp_tso_rtt_log`.
    pub tso_rtt_log: u8,
    /// The share of the window that is worth sending at once, as a divisor: 3 is a third; 0..=255. Linux:
    /// `tcp_tso_win_divisor`.
    pub tso_win_divisor: u8,
    /// How much may be below TCP; today's rule unless an experiment asks for an older one.
    pub tsq: TsqMode,
    /// What decides the size of a super-packet.
    pub autosizing: AutosizeMode,
    /// What small writes wait for; [`autocorking`](Self::autocorking) switches it on and off as a whole.
    pub autocork: AutocorkMode,
    /// When a socket with TCP_NOTSENT_LOWAT becomes writable again.
    pub lowat: LowatMode,
    /// What spaces packets.
    pub pacing: PacingMode,
}

impl Default for SendConfig {
    fn default() -> Self {
        Self {
            wmem: BufferSizes { min: 4_096, initial: 16_384, max: BufferSizes::MAX_BYTES },
            wmem_max: BufferSizes::MAX_BYTES / 2,
            limit_output_bytes: 4_194_304,
            autocorking: true,
            notsent_lowat: notsent_lowat::BY_RATE,
            min_tso_segs: 2,
            tso_rtt_log: 9,
            tso_win_divisor: 3,
            tsq: TsqMode::Auto,
            autosizing: AutosizeMode::AtTransmit,
            autocork: AutocorkMode::Stream,
            lowat: LowatMode::WakeAtHalf,
            pacing: PacingMode::Auto,
        }
    }
}

/// When the stack searches for the path's MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuProbing {
    /// Never.
    Off,
    /// Once a black hole is suspected.
    AfterBlackHole,
    /// Always.
    Always,
}

/// How large segments may be, beyond what the handshake agreed on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MtuConfig {
    /// When to search. Linux: `tcp_mtu_probing`, which is off by default; after a black hole here.
    pub probing: MtuProbing,
    /// Segment size at which that search begins, in bytes of payload. Linux: `tcp_base_mss`.
    pub base_mss: u16,
    /// A suspected black hole never makes segments smaller than this. Linux: `tcp_mtu_probe_floor`.
    pub probe_floor: u16,
    /// Bytes of uncertainty at which the search ends. Linux: `tcp_probe_threshold`.
    pub probe_threshold: u16,
    /// When the search begins again. Linux: `tcp_probe_interval`, 600 s.
    pub probe_interval: Duration,
    /// An IPv4 router that reports a smaller MTU is taken to mean this one. Linux: `route.min_pmtu`.
    pub min_pmtu: u16,
    /// How long a router's report of its MTU holds. Linux: `route.mtu_expires`, 600 s.
    pub expires: Duration,
}

impl Default for MtuConfig {
    fn default() -> Self {
        Self {
            probing: MtuProbing::AfterBlackHole,
            base_mss: 1_024,
            probe_floor: 48,
            probe_threshold: 8,
            probe_interval: Duration::from_secs(600),
            min_pmtu: 552,
            expires: Duration::from_secs(600),
        }
    }
}
