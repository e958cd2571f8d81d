//! What holds for every congestion control: Linux's sysctls. A part of [`StackConfig`](crate::StackConfig).

use super::{Algorithm, Definition};

/// Which congestion control, and what all of them go by.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CongestionConfig {
    /// Congestion control of new connections. Linux: `tcp_congestion_control`.
    pub control: Algorithm,
    /// Congestion controls from outside, to be had by name beside those built in; see
    /// [`Controller`](crate::congestion::Controller).
    pub custom: &'static [Definition],
    /// Back to the initial window after idleness. Linux: `tcp_slow_start_after_idle`.
    pub slow_start_after_idle: bool,
    /// Pacing rate over cwnd/srtt in slow start, in per cent. Linux: `tcp_pacing_ss_ratio`.
    pub pacing_ss_ratio: u16,
    /// Pacing rate over cwnd/srtt in congestion avoidance, in per cent. Linux: `tcp_pacing_ca_ratio`.
    pub pacing_ca_ratio: u16,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            control: Algorithm::Cubic,
            custom: &[],
            slow_start_after_idle: true,
            pacing_ss_ratio: 200,
            pacing_ca_ratio: 120,
        }
    }
}

impl CongestionConfig {
    /// All congestion controls that can be had by name.
    pub fn algorithms(&self) -> impl Iterator<Item = Algorithm> + '_ {
        Algorithm::ALL.into_iter().chain(self.custom.iter().map(Algorithm::custom))
    }

    /// The congestion control of that name.
    #[must_use]
    pub fn algorithm(&self, name: &str) -> Option<Algorithm> {
        self.algorithms().find(|algorithm| algorithm.name() == name)
    }
}
