//! Configuration of a stack, with Linux's sysctl names, units and defaults.
//!
//! A stack keeps its own copy once somebody changes a value while it runs
//! ([`Stack::set_sysctl`](crate::Stack::set_sysctl)); until then it
//! is shared as an `Arc` by every shard.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::congestion::{Algorithm, Definition};
use crate::egress::{AutocorkMode, AutosizeMode, LowatMode, PacingMode, TsqMode};
use crate::words::Duration;

/// As far as buffers are tuned by default. Linux stops at 6 MiB for receiving and 4 MiB for sending, which is less than
/// 1 Gbit/s keeps on its way for 100 ms (12.5 MB). This is three times what it does for 300 ms (37.5 MB): once for what
/// is in flight, once more for slow start, which sends double a round trip later, and a reserve. No connection has a
/// buffer of that size but one that has moved half as much in a single round trip.
const BUFFER_MAX: u32 = 128 << 20;

/// Three sizes of a buffer in bytes, as in `tcp_rmem` and `tcp_wmem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Floor that memory pressure never goes below.
    pub min: u32,
    /// What a connection starts with.
    pub initial: u32,
    /// As far as autotuning goes.
    pub max: u32,
}

/// Everything a stack can be told. `StackConfig::default()` is today's Linux, without addresses, and with
/// larger maxima of `tcp_rmem` and `tcp_wmem`.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Addresses the stack answers to. Packets to others are dropped, unless [`any_address`](Self::any_address).
    pub addresses: Vec<IpAddr>,
    /// Accept connections to every address, as a gateway does (Linux: `IP_TRANSPARENT` / AnyIP).
    pub any_address: bool,
    /// First and last local port that `connect` picks from. Linux: `ip_local_port_range`.
    pub ip_local_port_range: (u16, u16),
    /// Most connections at once, half-open ones included; TIME-WAIT counts apart.
    pub max_connections: u32,
    /// Most connections in TIME-WAIT; further ones are simply forgotten. Linux: `tcp_max_tw_buckets`.
    pub tcp_max_tw_buckets: u32,
    /// How long TIME-WAIT lasts. Linux: `TCP_TIMEWAIT_LEN`, 60 s.
    pub time_wait: Duration,
    /// Reply to ICMP echo.
    pub icmp_echo: bool,

    /// RFC 7323 timestamps. Linux: `tcp_timestamps`.
    pub tcp_timestamps: bool,
    /// RFC 2018. Linux: `tcp_sack`.
    pub tcp_sack: bool,
    /// ECN: 0 off, 1 asked for and accepted, 2 accepted; with 3 to 5 accurate ECN (RFC 9768) is accepted, too, and 3 asks
    /// for that, 4 for RFC 3168's and 5 for none. Linux: `tcp_ecn`.
    pub tcp_ecn: u8,
    /// A SYN that asks for ECN and is not answered is repeated without (RFC 3168 §6.1.1.1). Linux:
    /// `tcp_ecn_fallback`.
    pub tcp_ecn_fallback: bool,
    /// Accurate ECN's option, which counts marked bytes (RFC 9768 §3.2.3): 0 never sent, 1 where a count of them changes its
    /// kind, where marks come, and as a beacon, 2 with all that acknowledges something new, 3 the same even if what
    /// carries it seems to be lost. Linux: `tcp_ecn_option`; there 2 is with every segment, and 6.18 has no 3.
    pub tcp_ecn_option: u8,
    /// How often in a round trip the option is sent at least where it is sent sparingly, 0 for never. Linux:
    /// `tcp_ecn_option_beacon`.
    pub tcp_ecn_option_beacon: u8,
    /// RFC 7323 window scaling. Linux: `tcp_window_scaling`.
    pub tcp_window_scaling: bool,
    /// Receive buffer, in bytes of payload. Linux: `tcp_rmem`, with a maximum of 6 MiB; 128 MiB here.
    pub tcp_rmem: BufferSizes,
    /// Send buffer, bookkeeping included. Linux: `tcp_wmem`, with a maximum of 4 MiB; 128 MiB here.
    pub tcp_wmem: BufferSizes,
    /// Most that `SO_SNDBUF` may ask for, in bytes before doubling. Linux: `wmem_max`.
    pub wmem_max: u32,
    /// Most that `SO_RCVBUF` may ask for, in bytes before doubling. Linux: `rmem_max`.
    pub rmem_max: u32,
    /// Grow receive buffers with the rate. Linux: `tcp_moderate_rcvbuf`.
    pub tcp_moderate_rcvbuf: bool,

    /// SYN retransmissions before `connect` gives up. Linux: `tcp_syn_retries`.
    pub tcp_syn_retries: u8,
    /// SYN-ACK retransmissions. Linux: `tcp_synack_retries`.
    pub tcp_synack_retries: u8,
    /// Timeouts in a row of one large segment before a black hole is suspected. Linux: `tcp_retries1`.
    pub tcp_retries1: u8,
    /// Retransmissions before an established connection is given up. Linux: `tcp_retries2`.
    pub tcp_retries2: u8,
    /// Lowest retransmission timeout, as a floor on the variance term. Linux: `tcp_rto_min_us`.
    pub tcp_rto_min: Duration,
    /// How long FIN-WAIT-2 waits for a peer that the application no longer listens to. Linux: `tcp_fin_timeout`.
    pub tcp_fin_timeout: Duration,
    /// Idle time before the first keepalive. Linux: `tcp_keepalive_time`.
    pub tcp_keepalive_time: Duration,
    /// Time between keepalives. Linux: `tcp_keepalive_intvl`.
    pub tcp_keepalive_intvl: Duration,
    /// Unanswered keepalives before the connection is given up. Linux: `tcp_keepalive_probes`.
    pub tcp_keepalive_probes: u8,
    /// Least time between two challenge ACKs of one connection. Linux: `tcp_invalid_ratelimit`, 500 ms.
    pub tcp_invalid_ratelimit: Duration,

    /// Search for the path's MTU: 0 never, 1 once a black hole is suspected, 2 always. Linux: `tcp_mtu_probing`, which
    /// is 0 by default; 1 here.
    pub tcp_mtu_probing: u8,
    /// Segment size where that search begins, in bytes of payload. Linux: `tcp_base_mss`.
    pub tcp_base_mss: u16,
    /// Segment size that a black hole never leads below. Linux: `tcp_mtu_probe_floor`.
    pub tcp_mtu_probe_floor: u16,
    /// Bytes of uncertainty at which the search ends. Linux: `tcp_probe_threshold`.
    pub tcp_probe_threshold: u16,
    /// When the search begins anew. Linux: `tcp_probe_interval`, 600 s.
    pub tcp_probe_interval: Duration,
    /// Routers that claim an IPv4 link to be smaller are not believed. Linux: `route.min_pmtu`.
    pub min_pmtu: u16,
    /// How long what a router said of its link holds. Linux: `route.mtu_expires`, 600 s.
    pub mtu_expires: Duration,

    /// Congestion control of new connections. Linux: `tcp_congestion_control`.
    pub tcp_congestion_control: Algorithm,
    /// Congestion controls from outside, to be had by name beside those built in; see
    /// [`Controller`](crate::congestion::Controller).
    pub custom_congestion: &'static [Definition],
    /// Most bytes of one connection below TCP; 0..=`i32::MAX`. Linux: `tcp_limit_output_bytes`.
    pub tcp_limit_output_bytes: u32,
    /// Coalesce small writes while an earlier packet is below TCP. Linux: `tcp_autocorking`.
    pub tcp_autocorking: bool,
    /// Unsent bytes at which a socket stops being writable. Linux: `tcp_notsent_lowat`.
    pub tcp_notsent_lowat: u32,
    /// Least segments in an autosized super-packet, 1..=255. Linux: `tcp_min_tso_segs`.
    pub tcp_min_tso_segs: u8,
    /// Makes super-packets bigger at small RTTs, 0..=31. Linux: `tcp_tso_rtt_log`.
    pub tcp_tso_rtt_log: u8,
    /// A super-packet of a third of the window is worth sending, 0..=255. Linux: `tcp_tso_win_divisor`.
    pub tcp_tso_win_divisor: u8,
    /// Pacing rate over cwnd/srtt in slow start, in per cent. Linux: `tcp_pacing_ss_ratio`.
    pub tcp_pacing_ss_ratio: u16,
    /// Pacing rate over cwnd/srtt in congestion avoidance, in per cent. Linux: `tcp_pacing_ca_ratio`.
    pub tcp_pacing_ca_ratio: u16,
    /// Back to the initial window after idleness. Linux: `tcp_slow_start_after_idle`.
    pub tcp_slow_start_after_idle: bool,
    /// Tail loss probes. Linux: `tcp_early_retrans`, 3 on, 0 off.
    pub tcp_early_retrans: u8,
    /// F-RTO (RFC 5682): new data tells whether a timeout was needless. Linux: `tcp_frto`, 0 off, 2 on.
    pub tcp_frto: u8,
    /// How losses are found: bit 0 (RACK) is always set; bit 1 keeps the reordering window fixed, bit 2 ignores
    /// three duplicates as a sign of loss. Linux: `tcp_recovery`.
    pub tcp_recovery: u8,
    /// Longest wait of an ACK that repeats SACK blocks. Linux: `tcp_comp_sack_delay_ns`.
    pub tcp_comp_sack_delay: Duration,
    /// Most ACKs that such a wait swallows; 0 sends each at once. Linux: `tcp_comp_sack_nr`.
    pub tcp_comp_sack_nr: u8,

    /// How much may be below TCP; today's rule unless an experiment asks for an older one.
    pub tsq: TsqMode,
    /// What decides the size of a super-packet.
    pub autosizing: AutosizeMode,
    /// What small writes wait for; `tcp_autocorking` switches it as a whole.
    pub autocork: AutocorkMode,
    /// When a socket with TCP_NOTSENT_LOWAT becomes writable again.
    pub lowat: LowatMode,
    /// Who spaces packets.
    pub pacing: PacingMode,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            any_address: false,
            ip_local_port_range: (32_768, 60_999),
            max_connections: 1 << 20,
            tcp_max_tw_buckets: 1 << 18,
            time_wait: Duration::from_secs(60),
            icmp_echo: true,
            tcp_timestamps: true,
            tcp_sack: true,
            tcp_ecn: 2,
            tcp_ecn_fallback: true,
            tcp_ecn_option: 2,
            tcp_ecn_option_beacon: 3,
            tcp_window_scaling: true,
            tcp_rmem: BufferSizes { min: 4_096, initial: 131_072, max: BUFFER_MAX },
            tcp_wmem: BufferSizes { min: 4_096, initial: 16_384, max: BUFFER_MAX },
            wmem_max: 212_992,
            rmem_max: 212_992,
            tcp_moderate_rcvbuf: true,
            tcp_syn_retries: 6,
            tcp_synack_retries: 5,
            tcp_retries1: 3,
            tcp_retries2: 15,
            tcp_rto_min: Duration::from_millis(200),
            tcp_fin_timeout: Duration::from_secs(60),
            tcp_keepalive_time: Duration::from_secs(7_200),
            tcp_keepalive_intvl: Duration::from_secs(75),
            tcp_keepalive_probes: 9,
            tcp_invalid_ratelimit: Duration::from_millis(500),
            tcp_mtu_probing: 1,
            tcp_base_mss: 1_024,
            tcp_mtu_probe_floor: 48,
            tcp_probe_threshold: 8,
            tcp_probe_interval: Duration::from_secs(600),
            min_pmtu: 552,
            mtu_expires: Duration::from_secs(600),
            tcp_congestion_control: Algorithm::Cubic,
            custom_congestion: &[],
            tcp_limit_output_bytes: 4_194_304,
            tcp_autocorking: true,
            tcp_notsent_lowat: u32::MAX,
            tcp_min_tso_segs: 2,
            tcp_tso_rtt_log: 9,
            tcp_tso_win_divisor: 3,
            tcp_pacing_ss_ratio: 200,
            tcp_pacing_ca_ratio: 120,
            tcp_slow_start_after_idle: true,
            tcp_early_retrans: 3,
            tcp_frto: 2,
            tcp_recovery: 1,
            tcp_comp_sack_delay: Duration::from_millis(1),
            tcp_comp_sack_nr: 44,
            tsq: TsqMode::RateScaled,
            autosizing: AutosizeMode::AtTransmit,
            autocork: AutocorkMode::Fixed,
            lowat: LowatMode::WakeAtHalf,
            pacing: PacingMode::Auto,
        }
    }
}

impl StackConfig {
    /// Every congestion control there is here, by name or as a value.
    pub fn algorithms(&self) -> impl Iterator<Item = Algorithm> + '_ {
        Algorithm::ALL.into_iter().chain(self.custom_congestion.iter().map(Algorithm::custom))
    }

    /// The congestion control of that name, one of [`custom_congestion`](Self::custom_congestion) included.
    #[must_use]
    pub fn algorithm(&self, name: &str) -> Option<Algorithm> {
        self.algorithms().find(|algorithm| algorithm.name() == name)
    }
}
