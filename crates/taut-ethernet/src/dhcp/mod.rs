//! DHCP without frames, pure: RFC 2131, RFC 2132, RFC 8415. `lease.rs` joins the client to the link,
//! `serving.rs` the servers.
//!
//! ```text
//!   client.rs   which message is due, and what an answer means
//!   terms.rs    what a server offers, and whether it can be true
//!   server.rs   which address a client gets
//!   bootp.rs    a message in its datagram, packet and frame
//!   v6.rs       the server for IPv6
//! ```

pub(crate) mod bootp;
pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod terms;
pub(crate) mod v6;
