//! DHCP without frames, pure: RFC 2131 and RFC 2132. `lease.rs` joins the client to the link, `serving.rs`
//! the server.
//!
//! ```text
//!   client.rs   which message is due, and what an answer means
//!   terms.rs    what a server offers, and whether it can be true
//!   server.rs   which address a client gets
//!   bootp.rs    a message in its datagram, packet and frame
//! ```

pub(crate) mod bootp;
pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod terms;
