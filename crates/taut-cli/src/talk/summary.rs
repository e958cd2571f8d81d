//! The summary at the end of a transfer.
//!
//! Called by `send`, `recv` and `get`.

use std::net::SocketAddr;
use std::time::Duration;

use crate::shared::text;

/// A transfer that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// `sent` or `received`.
    pub verb: &'static str,
    /// The other end.
    pub peer: SocketAddr,
    /// Bytes of payload.
    pub bytes: u64,
    /// The time from the connection's establishment to its end.
    pub time: Duration,
    /// SHA-256 of the payload.
    pub sha256: taut_testbed::Digest,
}

impl Summary {
    /// The summary, as text or as one JSON object.
    #[must_use]
    pub(crate) fn text(&self, json: bool) -> String {
        let sha256 = text::hex(&self.sha256);
        if json {
            let object = serde_json::json!({
                "direction": self.verb, "peer": self.peer.to_string(), "bytes": self.bytes,
                "seconds": self.time.as_secs_f64(),
                "bits_per_second": text::bits_per_second(self.bytes, self.time), "sha256": sha256,
            });
            return format!("{object}\n");
        }
        let bytes = text::grouped(self.bytes);
        let seconds = text::significant(self.time.as_secs_f64());
        let rate = text::rate(self.bytes, self.time);
        format!("{} {bytes} bytes in {seconds} s, {rate}\nSHA-256 {sha256}\n", self.verb)
    }
}
