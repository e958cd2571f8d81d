//! How connections begin, and what a stack keeps before there is one.
//!
//! ```text
//!   open.rs        connect, listen, accept          passive.rs       SYNs for a listener
//!   listener.rs    listening sockets                caps.rs          how many connections a listener has
//!   half_open.rs   handshakes of listeners          syn_cookies.rs   SYNs answered and not remembered
//!   fast_open.rs   data in a SYN                    secrets.rs       numbers that must not be guessed
//!   resume.rs      connections of another stack
//! ```

pub(crate) mod caps;
pub(crate) mod fast_open;
pub(crate) mod half_open;
pub(crate) mod listener;
pub(crate) mod open;
pub(crate) mod passive;
mod resume;
pub(crate) mod secrets;
pub(crate) mod syn_cookies;
