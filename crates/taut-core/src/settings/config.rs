//! Configuration of a stack: Linux's sysctls with their units and defaults, grouped by mechanism.
//!
//! Each group is declared in the module that it configures, and this file puts them together. A field has the
//! name of its sysctl without `tcp_`; `sysctl.rs` has the full names, and Linux's numbers for values that are
//! words here. A stack keeps its own copy once a value is changed while it runs
//! ([`Stack::set_sysctl`](crate::Stack::set_sysctl)); until then it is shared as an `Arc` by every shard.

use alloc::vec::Vec;
use core::net::IpAddr;

pub use crate::buffers::{BufferTuning, MemoryLimits, MemoryUse};
pub use crate::congestion::CongestionConfig;
pub use crate::ecn::{EcnConfig, EcnOptionUse, EcnPolicy};
pub use crate::egress::{MtuConfig, MtuProbing, SendConfig};
pub use crate::fast_open::{FastOpenConfig, FastOpenKeys};
pub use crate::ingress::ReceiveConfig;
pub use crate::ip::FragmentConfig;
pub use crate::ip::icmp::IcmpConfig;
use crate::ip::outgoing::HOP_LIMIT;
pub use crate::recovery::RecoveryConfig;
pub use crate::words::BufferSizes;
use crate::words::Duration;

/// Whether a listener answers SYNs by cookies. Linux: `tcp_syncookies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynCookies {
    /// Never: the oldest half-open connection gives way to a new one.
    Off,
    /// When it has as many half-open connections as its backlog.
    WhenFull,
    /// Always: for tests.
    Always,
}

/// All settings of a stack. `StackConfig::default()` has the defaults of today's Linux, except that the
/// maxima of `tcp_rmem` and `tcp_wmem` are larger; it has no addresses.
///
/// ```
/// use taut_core::{StackConfig, config::EcnPolicy};
///
/// let config = StackConfig::default().with(|config| {
///     config.addresses.push([10, 0, 0, 2].into());
///     config.ecn.policy = EcnPolicy::Ask;
///     config.send.notsent_lowat = 128 << 10;
/// });
/// # assert_eq!(config.sysctl("tcp_ecn").as_deref(), Ok("1"));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StackConfig {
    /// The stack's addresses. Packets to others are dropped, unless [`any_address`](Self::any_address) is
    /// set.
    pub addresses: Vec<IpAddr>,
    /// Accept connections to every address, as a gateway does (Linux: `IP_TRANSPARENT` / AnyIP).
    pub any_address: bool,
    /// First and last local port that `connect` picks from. Linux: `ip_local_port_range`.
    pub ip_local_port_range: (u16, u16),
    /// Time to live, or hop limit, of what leaves; not 0. Linux: `ip_default_ttl`.
    pub ip_default_ttl: u8,
    /// Reply to ICMP echo.
    pub icmp_echo: bool,
    /// Most connections at the same time, including half-open ones; TIME-WAIT is counted separately.
    pub max_connections: u32,
    /// Most connections that the application has released and that are not over; further ones are reset.
    /// Linux: `tcp_max_orphans`.
    pub max_orphans: u32,
    /// Most connections in TIME-WAIT; further ones are forgotten. Linux: `tcp_max_tw_buckets`.
    pub max_tw_buckets: u32,
    /// How long TIME-WAIT lasts. Linux: `TCP_TIMEWAIT_LEN`, 60 s.
    pub time_wait: Duration,
    /// Limits of the memory in the buffers of all connections. Linux: `tcp_mem`.
    pub mem: MemoryLimits,
    /// What connections negotiate when they begin, and when they are given up.
    pub tcp: TcpConfig,
    /// Data in SYNs.
    pub fast_open: FastOpenConfig,
    /// Explicit congestion notification.
    pub ecn: EcnConfig,
    /// The send path: its buffer and its five mechanisms.
    pub send: SendConfig,
    /// The receive path: its buffer and its ACKs.
    pub receive: ReceiveConfig,
    /// How losses are found and repaired.
    pub recovery: RecoveryConfig,
    /// The congestion control, and settings common to all algorithms.
    pub congestion: CongestionConfig,
    /// The path's MTU.
    pub mtu: MtuConfig,
    /// How often ICMP errors are sent.
    pub icmp: IcmpConfig,
    /// Reassembly of fragments.
    pub fragments: FragmentConfig,
}

/// What a connection offers in its SYN, and how long it waits for its peer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TcpConfig {
    /// RFC 7323 timestamps. Linux: `tcp_timestamps`.
    pub timestamps: bool,
    /// RFC 2018. Linux: `tcp_sack`.
    pub sack: bool,
    /// RFC 7323 window scaling. Linux: `tcp_window_scaling`.
    pub window_scaling: bool,
    /// SYN retransmissions before `connect` gives up, beside the linear ones. Linux: `tcp_syn_retries`.
    pub syn_retries: u8,
    /// SYN retransmissions before the wait of a second doubles. Linux: `tcp_syn_linear_timeouts`.
    pub syn_linear_timeouts: u8,
    /// SYN-ACK retransmissions. Linux: `tcp_synack_retries`.
    pub synack_retries: u8,
    /// Whether SYNs are answered by cookies. Linux: `tcp_syncookies`.
    pub syncookies: SynCookies,
    /// A black hole is suspected when a large segment is not answered for as long as so many retransmissions
    /// take with an RTO of 200 ms. Linux: `tcp_retries1`.
    pub retries1: u8,
    /// Retransmissions before an established connection is given up. Linux: `tcp_retries2`.
    pub retries2: u8,
    /// Attempts to deliver the data of a connection that the application has released; 0 is 8, and none once
    /// the time between them has reached two minutes. Linux: `tcp_orphan_retries`.
    pub orphan_retries: u8,
    /// How long FIN-WAIT-2 waits for the peer's FIN after the application has released the connection. Linux:
    /// `tcp_fin_timeout`.
    pub fin_timeout: Duration,
    /// Idle time before the first keepalive. Linux: `tcp_keepalive_time`.
    pub keepalive_time: Duration,
    /// Time between keepalives. Linux: `tcp_keepalive_intvl`.
    pub keepalive_intvl: Duration,
    /// Unanswered keepalives before the connection is given up. Linux: `tcp_keepalive_probes`.
    pub keepalive_probes: u8,
    /// How far buffers that tune themselves follow the window.
    pub buffers: BufferTuning,
    /// Least time between two challenge ACKs of one connection. Linux: `tcp_invalid_ratelimit`, 500 ms.
    pub invalid_ratelimit: Duration,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            timestamps: true,
            sack: true,
            window_scaling: true,
            syn_retries: 6,
            syn_linear_timeouts: 4,
            synack_retries: 5,
            syncookies: SynCookies::WhenFull,
            retries1: 3,
            retries2: 15,
            orphan_retries: 0,
            fin_timeout: Duration::from_secs(60),
            keepalive_time: Duration::from_secs(7_200),
            keepalive_intvl: Duration::from_secs(75),
            keepalive_probes: 9,
            buffers: BufferTuning::default(),
            invalid_ratelimit: Duration::from_millis(500),
        }
    }
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            any_address: false,
            ip_local_port_range: (32_768, 60_999),
            ip_default_ttl: HOP_LIMIT,
            icmp_echo: true,
            max_connections: 1 << 20,
            max_orphans: 1 << 14,
            max_tw_buckets: 1 << 18,
            time_wait: Duration::from_secs(60),
            mem: MemoryLimits::default(),
            tcp: TcpConfig::default(),
            fast_open: FastOpenConfig::default(),
            ecn: EcnConfig::default(),
            send: SendConfig::default(),
            receive: ReceiveConfig::default(),
            recovery: RecoveryConfig::default(),
            congestion: CongestionConfig::default(),
            mtu: MtuConfig::default(),
            icmp: IcmpConfig::default(),
            fragments: FragmentConfig::default(),
        }
    }
}

impl StackConfig {
    /// The same with some values changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}
