//! Devices that carry IP packets, and the system calls around them: interfaces, and private network
//! namespaces for experiments.
//!
//! ```text
//!   taut_driver::Device ◀── Tun (tun.rs)          kernel: /dev/net/tun, virtio-net header (vnet.rs)
//!                       ◀── Packet (packet.rs)     kernel: a packet socket on an Ethernet interface
//!                       ◀── Xdp (xdp.rs)           the same by AF_XDP; feature `xdp`
//!                       ◀── Frames (frames.rs)     a TAP; Unix sockets of virtual machines and other programs
//!                       ◀── Pipe (pipe.rs)        another stack in this process      ┐ packets.rs
//!                       ◀── channel (channel.rs)  whoever holds the far end          ┘
//!                       ◀── SystemTun (channel/system_tun.rs)  the TUN of macOS and of Windows
//!
//!   CaptureFile (capture.rs): the packets of a Tun, the frames of Frames, for Wireshark
//!
//!   Interface (interface.rs) ─┐
//!   Namespace (netns.rs) ─────┴─▶ netlink.rs      sys: options of kernel sockets, real-time priority
//! ```
//!
//! [`Pipe`], [`channel`](channel()) and [`Cidr`] exist on every system, `SystemTun` on macOS and Windows, all
//! else only on Linux.
//!
//! This crate has no TCP. `unsafe` is used only in `sys`, around calls for which rustix has no safe form.

#[cfg(target_os = "linux")]
mod capture;
mod channel;
mod cidr;
#[cfg(target_os = "linux")]
pub mod frames;
#[cfg(target_os = "linux")]
pub mod interface;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(target_os = "linux")]
pub mod packet;
mod packets;
pub mod pipe;
#[cfg(target_os = "linux")]
pub mod sys;
#[cfg(target_os = "linux")]
pub mod tun;
#[cfg(target_os = "linux")]
mod vnet;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub mod xdp;

#[cfg(target_os = "linux")]
pub use capture::CaptureFile;
#[cfg(any(target_os = "macos", windows))]
pub use channel::SystemTun;
pub use channel::{FarEnd, Parcel, channel};
pub use cidr::{Cidr, CidrError};
#[cfg(target_os = "linux")]
pub use frames::{Frames, FramesOptions, from_descriptor, open_tap};
#[cfg(target_os = "linux")]
pub use interface::Interface;
#[cfg(target_os = "linux")]
pub use netns::Namespace;
#[cfg(target_os = "linux")]
pub use packet::{Naming, Packet, PacketOptions};
pub use pipe::{Pipe, pipe};
#[cfg(target_os = "linux")]
pub use sys::priority::{Priority, PriorityError};
pub use taut_core::LinkCaps;
pub use taut_ethernet::{
    FixedLease, Leased, Leases, Network, PortId, Refused, SearchDomainError, SearchDomains, Services,
};
#[cfg(target_os = "linux")]
pub use tun::{Tun, TunOptions};
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub use xdp::{Xdp, XdpOptions};

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;
