//! Packet scripts: system calls on one side of a TCP stack and packets on the other, each at its time.
//!
//! ```text
//!    +0   < S 0:0(0) win 65535 <mss 1000>           a packet arrives
//!    +0   > S. 0:0(0) ack 1 <mss 1460>              the stack answers
//!    +.1  < . 1:1(0) ack 1 win 65535
//!    +0   accept(3, ..., ...) = 4                   a program calls
//!    +0   write(4, ..., 1000) = 1000
//!    +0   > P. 1:1001(1000) ack 1
//!    +.2~+.3 > P. 1:1001(1000) ack 1                within a range of time
//!    +0   %{ assert tcpi_snd_cwnd == 1 }%           code looks at the connection
//! ```
//!
//! The language is packetdrill's. The stack is taut's own, and time is virtual: a script of an hour takes
//! milliseconds, and always gives the same result.
//!
//! ```text
//!   Script::parse ─▶ run ─▶ Sockets (POSIX calls) ─▶ Host (stack, time) ─▶ queue discipline ─▶ packets, compared
//!   parse/           run/   sockets/                 host.rs               host/link.rs        run/expect.rs
//! ```
//!
//! docs/reference/packets.md has the language and its differences from packetdrill's.

mod code;
mod commands;
mod config;
mod constants;
mod errno;
mod failure;
mod flow;
mod host;
mod info;
mod parse;
mod run;
pub mod script;
mod segment;
mod sockets;

pub use config::{Config, IpVersion};
pub use constants::constant;
pub use errno::Errno;
pub use failure::Failure;

pub use host::Sent;
pub use run::{Passed, run};
pub use script::Script;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
