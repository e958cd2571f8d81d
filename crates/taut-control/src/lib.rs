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
//! On Linux only, whose sockets have the mode of a file from the first moment and tell who is at their other end;
//! elsewhere this crate is empty.
//!
//! ```no_run
//! # fn main() -> Result<(), taut_control::ClientError> {
//! for stack in taut_control::place::running()? {
//!     let mut client = taut_control::Client::connect(&stack.path)?;
//!     println!("{}: {} connections", stack.path.display(), client.connections()?.len());
//! }
//! # Ok(()) }
//! ```
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod client;
pub mod gateway;
pub mod network;
pub mod openmetrics;
pub mod place;
pub mod protocol;
pub mod qdisc;
pub mod rooms;
pub mod sample;
pub mod server;
mod session;
pub mod snapshot;

pub use client::{Client, ClientError};
pub use protocol::{Fault, Reply, Request};
pub use server::{About, Server, Source};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
