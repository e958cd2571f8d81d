//! The settings of the receive path: Linux's sysctls. A part of [`StackConfig`](crate::StackConfig).

use crate::words::{BufferSizes, Duration};

/// How much is buffered for the application, and which ACKs wait.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReceiveConfig {
    /// Receive buffer, in bytes of payload. Linux: `tcp_rmem`, with a maximum of 6 MiB; 128 MiB here.
    pub rmem: BufferSizes,
    /// The most that `SO_RCVBUF` may ask for, in bytes before doubling. Linux: `rmem_max`, 212,992; 64 MiB
    /// here.
    pub rmem_max: u32,
    /// Grow receive buffers with the rate. Linux: `tcp_moderate_rcvbuf`.
    pub moderate_rcvbuf: bool,
    /// The longest time that an ACK which repeats SACK blocks may wait. Linux: `tcp_comp_sack_delay_ns`.
    pub comp_sack_delay: Duration,
    /// The same as a percentage of the round trip. Linux: `tcp_comp_sack_rtt_percent`.
    pub comp_sack_rtt_percent: u16,
    /// The most ACKs that such a wait may replace; 0 sends each at once. Linux: `tcp_comp_sack_nr`.
    pub comp_sack_nr: u8,
}

impl Default for ReceiveConfig {
    fn default() -> Self {
        Self {
            rmem: BufferSizes { min: 4_096, initial: 131_072, max: BufferSizes::MAX_BYTES },
            rmem_max: BufferSizes::MAX_BYTES / 2,
            moderate_rcvbuf: true,
            comp_sack_delay: Duration::from_millis(1),
            comp_sack_rtt_percent: 33,
            comp_sack_nr: 44,
        }
    }
}

impl ReceiveConfig {
    /// How long an ACK may wait, in time and in percent of the round trip, and how many ACKs.
    pub(super) const fn compression(&self) -> (Duration, u16, u8) {
        (self.comp_sack_delay, self.comp_sack_rtt_percent, self.comp_sack_nr)
    }
}
