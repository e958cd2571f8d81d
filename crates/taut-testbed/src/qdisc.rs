//! A rate for one of the kernel's interfaces, by a token bucket (`tc-tbf(8)`), and the bytes that wait there.
//! Called by live runs in which the kernel sends. Needs `tc`.

use std::io;

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
    /// When `tc` is not installed.
    pub fn backlog_bytes(&self, interface: &str) -> io::Result<u64> {
        let text = self.run(&format!("tc -s -j qdisc show dev {interface} root"))?;
        backlog(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

/// Whether this kernel has a queue discipline of this kind.
#[must_use]
pub fn has_qdisc(kind: &str) -> bool {
    Kernel::new().is_ok_and(|kernel| kernel.run(&format!("tc qdisc add dev lo root {kind}")).is_ok())
}

/// The first `"backlog":` in the JSON that `tc` prints, which is exact, unlike its text output.
fn backlog(json: &str) -> Option<u64> {
    let rest = json.split_once("\"backlog\":")?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_read_as_tc_prints_it() {
        let text = r#"[{"kind":"tbf","drops":0,"backlog":1514000,"qlen":1000},{"backlog":7}]"#;
        assert_eq!(backlog(text), Some(1_514_000));
        assert_eq!(backlog("[{}]"), None);
    }
}
