//! The sockets for C: a running `taut::Stack` and `taut::blocking`'s sockets behind functions, each with a
//! descriptor that can be polled.
//!
//! ```text
//!   functions.rs   the functions of the header      socket.rs   a connection, a listener or a UDP socket
//!   net.rs         from a configuration to a running stack      bell.rs   the descriptor
//! ```

mod bell;
pub mod functions;
mod net;
mod socket;
