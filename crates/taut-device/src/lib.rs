//! Devices that carry IP packets, and the system calls around them: interfaces, and private network namespaces for
//! experiments.
//!
//! ```text
//!   taut_driver::Device ◀── Tun (tun.rs)          kernel: /dev/net/tun, virtio-net header (vnet.rs)
//!                       ◀── Pipe (pipe.rs)        another stack in this process      ┐ packets.rs
//!                       ◀── channel (channel.rs)  whoever holds the far end          ┘
//!
//!   Interface (interface.rs) ─┐
//!   Namespace (netns.rs) ─────┴─▶ netlink.rs      sys: options of kernel sockets, real-time priority
//! ```
//!
//! This crate has no TCP. `unsafe` is used only in [`sys`], around calls for which rustix has no safe form.

mod channel;
mod cidr;
pub mod interface;
mod netlink;
pub mod netns;
mod packets;
pub mod pipe;
mod priority;
pub mod sys;
pub mod tun;
mod vnet;

pub use channel::{FarEnd, Parcel, channel};
pub use cidr::{Cidr, CidrError};
pub use interface::Interface;
pub use netns::Namespace;
pub use pipe::{Pipe, pipe};
pub use priority::{Priority, PriorityError};
pub use taut_core::LinkCaps;
pub use tun::{Tun, TunOptions};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
