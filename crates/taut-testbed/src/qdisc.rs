//! A rate for one of the kernel's interfaces, by a token bucket (`tc-tbf(8)`), and the bytes that wait there.
//! Called by live runs in which the kernel sends. The rate needs `tc`.

use std::io;

use taut_device::Interface;

use crate::Kernel;

impl Kernel {
    /// Limits the rate at which an interface sends; `limit` bytes may wait, and `burst` bytes may leave
    /// together.
    ///
    /// # Errors
    /// When `tc` is not installed, or the kernel lacks `tbf`.
    pub fn limit_rate(
        &self,
        interface: &str,
        bits_per_second: u64,
        burst: u64,
        limit: u64,
    ) -> io::Result<()> {
        let rate = format!("rate {bits_per_second}bit burst {burst} limit {limit}");
        self.run(&format!("tc qdisc replace dev {interface} root tbf {rate}")).map(drop)
    }

    /// Bytes that wait in an interface's root queue.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn backlog_bytes(&self, interface: &str) -> io::Result<u64> {
        self.enter(|| Interface::open(interface)?.backlog_bytes())?
    }
}

/// Whether this kernel has a queue discipline of this kind.
#[must_use]
pub fn has_qdisc(kind: &str) -> bool {
    Kernel::new().is_ok_and(|kernel| kernel.run(&format!("tc qdisc add dev lo root {kind}")).is_ok())
}
