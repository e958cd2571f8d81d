//! Reads and controls a running stack from another process, over a Unix socket that only its owner may use.
//!
//! ```text
//!   taut ss, nstat, sysctl, explain, dash     the program that runs the stack
//!   ┌────────┐   {"v":1,"request":…}\n       ┌────────┐  a batch at a time   ┌───────┐
//!   │ Client │──────────────────────────────▶│ Server │─────────────────────▶│ Stack │
//!   │        │◀──────────────────────────────│ thread │◀─────────────────────│       │
//!   └────────┘   {"v":1,"reply":…}\n         └────────┘     values, copied   └───────┘
//!        $XDG_RUNTIME_DIR/taut/PID.sock: directory 0700, socket 0600, SO_PEERCRED
//! ```
//!
//! [`Server`] runs on one thread of its own. It holds the stack's lock only to copy the numbers of a few
//! dozen connections, and converts them to text without the lock. [`Client`] sends the requests; [`protocol`]
//! describes them, so that any program that can write a line of JSON to a Unix socket can send them too.
//!
//! The socket is on Linux only, whose sockets have the mode of a file from the first moment and name the
//! process at their other end. The values are everywhere: [`whole::StackSnapshot`].
//!
//! ```no_run
//! # fn main() -> Result<(), taut_control::ClientError> {
//! for stack in taut_control::place::running()? {
//!     let mut client = taut_control::Client::connect(&stack.path)?;
//!     println!("{}: {} connections", stack.path.display(), client.connections()?.len());
//! }
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "the server, which copies these values, is absent")
)]

#[cfg(target_os = "linux")]
pub mod client;
pub mod gateway;
pub mod network;
pub mod openmetrics;
#[cfg(target_os = "linux")]
pub mod place;
pub mod protocol;
pub mod qdisc;
pub mod rooms;
pub mod sample;
#[cfg(target_os = "linux")]
pub mod server;
#[cfg(target_os = "linux")]
mod session;
pub mod snapshot;
pub mod whole;

#[cfg(target_os = "linux")]
pub use client::{Client, ClientError};
pub use protocol::{Fault, Reply, Request};
#[cfg(target_os = "linux")]
pub use server::{About, Server, Source};

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
