//! Sockets that send and receive datagrams: UDP (RFC 768), and ping (Linux: `IPPROTO_ICMP` with
//! `SOCK_DGRAM`), whose port is the identifier of its echo requests. Called by `stack/datagrams/`, which
//! joins them to the link.
//!
//! ```text
//!   application ── send ──▶ cut.rs ──▶ outbox.rs ──▶ link        what waits or is in the device counts against SO_SNDBUF
//!               ◀── recv ── inbox.rs ◀── table.rs ◀── link       what waits counts against SO_RCVBUF
//!                                          error.rs: what ICMP says about packets of ours
//!                                          flow.rs:  of a flow that a filter took in
//!                                          groups.rs: which sockets have joined which groups of multicast
//! ```
//!
//! **Problem.** A datagram socket has no acknowledgements: whatever it is given must be sent or dropped, and
//! whatever arrives must be taken or dropped. So both directions are bounded in memory, and the drop is
//! counted.
//!
//! **Rule.** A datagram counts its bytes and [`OVERHEAD_BYTES`]. A send that finds `SO_SNDBUF` used up waits;
//! what was sent counts until its ticket comes back, as `sk_wmem_alloc` does, so a socket holds no more in
//! the device than its buffer. A datagram that arrives is taken while no more than `SO_RCVBUF` waits, and
//! dropped otherwise.

pub(crate) mod cut;
mod error;
pub(crate) mod flow;
pub(crate) mod groups;
pub(crate) mod inbox;
mod options;
pub(crate) mod outbox;
pub(crate) mod socket;
pub(crate) mod table;

pub use error::{DatagramError, IcmpReport};
pub(crate) use error::{Told, told};
pub use options::{
    DatagramInfo, DatagramKind, DatagramOption, DatagramOptions, MtuDiscovery, Received, SendMeta,
};

/// What a datagram counts beside its bytes. Linux's smallest `sk_buff` has a truesize of 768 bytes.
pub(crate) const OVERHEAD_BYTES: usize = 768;

/// `SO_RCVBUF` and `SO_SNDBUF` unless they are set. Linux: `net.core.rmem_default`, `wmem_default`.
pub(crate) const BUFFER_DEFAULT_BYTES: u32 = 212_992;
/// The least of both. Linux: `SOCK_MIN_RCVBUF`, `SOCK_MIN_SNDBUF`.
pub(crate) const RCVBUF_MIN_BYTES: u32 = 2_304;
/// See [`RCVBUF_MIN_BYTES`].
pub(crate) const SNDBUF_MIN_BYTES: u32 = 4_608;
