//! TCP Fast Open: data in the SYN, and in the answer to it, one round trip earlier. RFC 7413.
//!
//! **Problem.** A client that wants a short answer waits for two round trips: one for the handshake, one for the answer.
//! Data in a SYN spares the first. But a SYN may have a forged source address, and a server that works on it at once would
//! answer whomever an attacker names.
//!
//! **Rule.** The server gives a client a cookie, which is a keyed hash of the two addresses. A SYN that brings it back
//! comes from a host that has received it, so its data is accepted, and the server may answer before the handshake is
//! complete. A client that has no cookie asks for one, and the handshake is an ordinary one. A SYN is retransmitted
//! without data and without the option, because a device on the path may drop what it does not know.
//!
//! ```text
//!   client                                server
//!     SYN, option without a cookie   ──▶
//!                                    ◀──   SYN-ACK, cookie                    the client remembers it
//!     …
//!     SYN, cookie, "GET /"           ──▶                                      accepted, and may be read
//!                                    ◀──   SYN-ACK that acknowledges "GET /"
//!                                    ◀──   "200 OK"
//!     ACK                            ──▶                                      the handshake is complete
//! ```
//!
//! ```text
//!   cookie.rs    keys, cookies                      cache.rs   what a client knows about servers, and black holes
//!   pending.rs   the limit of a listener            conn/fast_open.rs, stack/opening/fast_open.rs   the two ends of it
//! ```

mod cache;
mod cookie;
mod pending;

pub(crate) use cache::{Attempt, Cache, Lesson};
pub use cookie::FastOpenKeys;
pub(crate) use cookie::Known;
pub(crate) use pending::Pending;

use crate::words::Duration;

/// Settings of TCP Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastOpenConfig {
    /// Connections may send data in their SYN, if their options ask for it. Linux: bit 1 of `tcp_fastopen`.
    pub client: bool,
    /// Listeners may accept data in a SYN, if their options ask for it. Linux: bit 2.
    pub server: bool,
    /// Connections send data in their SYN even without a cookie. Linux: bit 4.
    pub client_no_cookie: bool,
    /// Listeners accept data in a SYN even without a cookie. Linux: bit 0x200.
    pub server_no_cookie: bool,
    /// Every listener accepts data in a SYN, with its backlog as the limit. Linux: bit 0x400.
    pub all_listeners: bool,
    /// The keys of the cookies; without any, they come from the stack's seed. Linux: `tcp_fastopen_key`.
    pub keys: Option<FastOpenKeys>,
    /// For how long connections send no data in their SYN after a path was found to drop that; twice as long after the next
    /// time, up to 64 times. Zero: such paths are not looked for. Linux: `tcp_fastopen_blackhole_timeout_sec`.
    pub black_hole_timeout: Duration,
}

impl Default for FastOpenConfig {
    fn default() -> Self {
        Self {
            client: true,
            server: false,
            client_no_cookie: false,
            server_no_cookie: false,
            all_listeners: false,
            keys: None,
            black_hole_timeout: Duration::ZERO,
        }
    }
}

/// Why an attempt at Fast Open did not deliver data with the SYN. Linux: `tcpi_fastopen_client_fail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastOpenFail {
    /// It did, or it was not attempted.
    #[default]
    None,
    /// There was no cookie for this server; this connection asked for one.
    CookieUnavailable,
    /// The SYN-ACK did not acknowledge the data.
    DataNotAcked,
    /// The SYN timed out and was retransmitted without the data.
    SynRetransmitted,
}

impl FastOpenFail {
    /// Linux's number for it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::CookieUnavailable => 1,
            Self::DataNotAcked => 2,
            Self::SynRetransmitted => 3,
        }
    }
}
