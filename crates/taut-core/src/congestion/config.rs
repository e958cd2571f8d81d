//! The settings of congestion control: Linux's sysctls. A part of [`StackConfig`](crate::StackConfig).

use super::{Algorithm, Registry};

/// The congestion control in use, and settings common to all algorithms.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CongestionConfig {
    /// Congestion control of new connections. Linux: `tcp_congestion_control`.
    pub control: Algorithm,
    /// The algorithms available by name: the built-in ones and your own. Linux:
    /// `tcp_available_congestion_control`.
    pub registry: Registry,
    /// Return to the initial window after an idle period. Linux: `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: bool,
    /// Pacing rate over cwnd/srtt in slow start, in per cent. Linux: `tcp_pacing_ss_ratio`.
    pub pacing_ss_ratio: u16,
    /// Pacing rate over cwnd/srtt in congestion avoidance, in per cent. Linux: `tcp_pacing_ca_ratio`.
    pub pacing_ca_ratio: u16,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            control: Algorithm::cubic(),
            registry: Registry::default(),
            slow_start_after_idle: true,
            pacing_ss_ratio: 200,
            pacing_ca_ratio: 120,
        }
    }
}
