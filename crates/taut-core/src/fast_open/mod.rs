//! TCP Fast Open: data in the SYN, and in the answer to it, one round trip earlier. RFC 7413.
//!
//! **Problem.** A client that wants a short answer waits for two round trips: one for the handshake, one for
//! the answer. Data in a SYN spares the first. But a SYN may have a forged source address, and a server that
//! works on it at once would answer whomever an attacker names.
//!
//! **Rule.** The server gives a client a cookie, which is a keyed hash of the two addresses. A SYN that
//! brings it back comes from a host that has received it, so its data is accepted, and the server may answer
//! before the handshake is complete. A client that has no cookie asks for one, and the handshake is an
//! ordinary one. A SYN is retransmitted without data and without the option, because a device on the path may
//! drop what it does not know.
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
//!   cookie.rs    keys, cookies                      cache.rs    what a client knows about servers, and black holes
//!   pending.rs   the limit of a listener            config.rs   the settings, and their texts
//!   conn/fast_open.rs, stack/opening/fast_open.rs   the two ends of it
//! ```

mod cache;
mod config;
mod cookie;
mod pending;

pub(crate) use cache::{Attempt, Cache, Lesson};
pub use config::FastOpenConfig;
pub use cookie::FastOpenKeys;
pub(crate) use cookie::Known;
pub(crate) use pending::Pending;

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
