//! WireGuard as a device of a userspace TCP/IP stack: a tunnel whose near end is a program, without root and
//! without an interface. The protocol's cryptography is [`boringtun`]'s, the UDP socket's offloads are
//! `quinn-udp`'s.
//!
//! ```text
//!   wg-quick's file ─▶ config.rs ─▶ WireGuard::open ─▶ taut_driver::Device ─▶ StackBuilder::device
//!                                        │
//!              routes.rs: AllowedIPs ────┼──── peer.rs: keys, endpoint, deadlines.rs
//!                  ecn.rs: RFC 6040 ─────┴──── device/: the socket, batches, tickets
//! ```
//!
//! - **Peers.** A packet goes to the peer with the longest matching prefix in its AllowedIPs. One whose inner
//!   source is not in those of its sender is dropped and counted ([`status::Drops`]).
//! - **Small queue.** A packet's ticket comes back when its datagram has left this host, so the sender keeps
//!   as little in the socket as below any other device.
//! - **Idle.** The protocol's timers are deadlines: nothing ticks.
//!
//! Every system reads configurations; Linux has the device.
#![forbid(unsafe_code)]

pub mod config;
#[cfg(target_os = "linux")]
mod deadlines;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod ecn;
pub mod key;
#[cfg(target_os = "linux")]
mod path_mtu;
#[cfg(target_os = "linux")]
mod peer;
#[cfg(target_os = "linux")]
mod routes;
pub mod status;

pub use config::Config;
#[cfg(target_os = "linux")]
pub use device::{Monitor, WireGuard};
pub use key::PrivateKey;

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
