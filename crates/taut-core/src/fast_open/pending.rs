//! How many connections of a listener may be pending: opened by a SYN with data, the handshake not complete.
//! RFC 7413 §5.1, with the numbers of Linux 6.18 (`TCP_FASTOPEN`). Called for SYNs, and when a pending
//! connection is over.
//!
//! **Problem.** A cookie can be taken from a host and used with its address. The server would then send
//! answers to that host, which resets each of the connections.
//!
//! **Rule.** A listener has a limit, and beyond it a SYN's data is ignored: the handshake is an ordinary one.
//! A pending connection that is reset counts for another [`RESET_COUNTS`], so that the limit also bounds such
//! answers.

use alloc::collections::VecDeque;

use crate::words::{Duration, Instant};

/// For how long a connection that was reset still counts.
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// The pending connections of one listener.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// With those that were reset.
    count: u32,
    /// When those were that were reset; never more than `count`.
    resets: VecDeque<Instant>,
}

impl Pending {
    /// Whether there is room for one more.
    pub(crate) fn has_room(&mut self, now: Instant, limit: u32) -> bool {
        while self.resets.front().is_some_and(|&at| now.since(at) > RESET_COUNTS) {
            self.resets.pop_front();
            self.count = self.count.saturating_sub(1);
        }
        self.count < limit
    }

    pub(crate) const fn begin(&mut self) {
        self.count += 1;
    }

    /// A handshake is over. `reset`: by the peer's RST.
    pub(crate) fn end(&mut self, now: Instant, reset: bool) {
        if reset {
            self.resets.push_back(now);
        } else {
            self.count = self.count.saturating_sub(1);
        }
    }
}
