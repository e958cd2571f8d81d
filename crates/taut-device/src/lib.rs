//! System calls, so that no other crate of the stack needs one: devices that carry IP packets, the descriptors a
//! driver waits on, and private network namespaces to try it all in.
//!
//! ```text
//!   Device (device.rs) ◀── Tun (tun.rs)    kernel: /dev/net/tun, virtio-net header (vnet.rs)
//!                      ◀── Pipe (pipe.rs)  another stack in this process
//!
//!   Interface (interface.rs) ─┐
//!   Namespace (netns.rs) ─────┴─▶ netlink.rs     sys: Epoll, TimerFd, EventFd, the monotonic clock
//! ```
//!
//! Nothing here knows TCP. `unsafe` appears only in [`sys`], around the calls that rustix has no safe form of.

mod cidr;
mod device;
pub mod interface;
mod netlink;
pub mod netns;
pub mod pipe;
pub mod sys;
pub mod tun;
mod vnet;

pub use cidr::{Cidr, CidrError};
pub use device::{Device, Received};
pub use interface::Interface;
pub use netns::Namespace;
pub use pipe::{Pipe, pipe};
pub use taut_core::LinkCaps;
pub use tun::{Tun, TunOptions};
