//! Tunnels between stacks over this host's loopback, and what a hostile network does to them.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "tests wait by the clock")]

mod foreign;
mod lines;
mod network;
mod support;
mod two_ends;
