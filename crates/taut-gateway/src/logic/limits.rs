//! How much a guest may have at once, and all guests together; and how long a flow may be idle.
//!
//! A guest is hostile: it opens what it can and never closes it. A guest is told apart by its source, an IPv4
//! address or the first 64 bits of an IPv6 address, as the stack below does. Whoever forges sources gets no
//! further than the limits for all.
//!
//! | limit | all | a guest | |
//! |---|---|---|---|
//! | connections | 32,768 | 24,576 | one descriptor each; 10,000 at once must pass |
//! | of these half open | 8,192 | 6,144 | each waits for somebody, for 130 s at most |
//! | UDP flows and pings | 8,192 | 6,144 | beyond, the guest's own that was idle for longest makes room |
//! | bytes that wait in the gateway | 64 MiB | 48 MiB | and 16 KiB for each connection in any case: none stands still |
//! | questions to name servers | 512 | 384 | each is forgotten after 10 s |
//!
//! A guest has three quarters: so it never keeps others out, and a guest alone has most.

use std::time::Duration;

/// How much there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all guests.
    pub all: Amounts,
    /// For one.
    pub guest: Amounts,
}

/// Amounts of what a gateway keeps: limits, or what is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// TCP connections, from their SYN until they are over.
    pub connections: u32,
    /// Those of them whose guest has no answer yet.
    pub half_open: u32,
    /// UDP flows and pings.
    pub datagram_flows: u32,
    /// Bytes that were taken from one side and not yet by the other.
    pub bytes: u64,
    /// Questions that were sent to a name server and are not answered.
    pub questions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let all = Amounts {
            connections: 32_768,
            half_open: 8_192,
            datagram_flows: 8_192,
            bytes: 64 << 20,
            questions: 512,
        };
        Self::of(all)
    }
}

impl Limits {
    /// Limits for all guests, and three quarters of them for one.
    #[must_use]
    pub const fn of(all: Amounts) -> Self {
        const fn most(of: u32) -> u32 {
            of - of / 4
        }
        let guest = Amounts {
            connections: most(all.connections),
            half_open: most(all.half_open),
            datagram_flows: most(all.datagram_flows),
            bytes: all.bytes - all.bytes / 4,
            questions: most(all.questions),
        };
        Self { all, guest }
    }
}

/// The bytes that a connection may always hold.
pub const LEAST_GRANT: usize = 16 << 10;

/// How long a flow may be idle, and a handshake last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the upstream and the guest's handshake. A kernel's last SYN leaves 67 s after its first.
    pub half_open: Duration,
    /// A connection through which nothing passes. RFC 5382 §5: not less than 2 hours 4 minutes.
    pub idle: Duration,
    /// The same when one half has ended. RFC 5382 §5: not less than 4 minutes.
    pub half_closed: Duration,
    /// A flow of UDP through which nothing passes. RFC 4787 §4.3: not less than two minutes.
    pub datagrams: Duration,
    /// The same after one exchange with a name server: two datagrams each way at most, from the guest to port
    /// 53. RFC 4787 §4.3, REQ-5a: a well-known port may have a shorter time for its application. Others have
    /// not: a mapping that STUN has found is one question and one answer, too, and waits for a peer. And for
    /// a flow that a host outside began, until the guest answers.
    pub exchange: Duration,
    /// Pings through which nothing passes. RFC 5508 §3.2: not less than 60 s.
    pub ping: Duration,
    /// A question to a name server.
    pub question: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            half_open: Duration::from_secs(130),
            idle: Duration::from_secs(7_440),
            half_closed: Duration::from_secs(240),
            datagrams: Duration::from_secs(120),
            exchange: Duration::from_secs(5),
            ping: Duration::from_secs(60),
            question: Duration::from_secs(10),
        }
    }
}
