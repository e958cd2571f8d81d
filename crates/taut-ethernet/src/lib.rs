//! The link layer of Ethernet between a stack and a device: which station an IP packet goes to, and who is
//! asked when that is not known. ARP (RFC 826) and the part of neighbour discovery that a host needs on a
//! link whose routers it knows (RFC 4861 §7.2, §7.3). Used by devices that carry Ethernet; the stack above
//! sees a link that carries IP packets.
//!
//! **Why here and not in the stack.** A packet on Ethernet needs an address that may take a second to learn.
//! In the stack, each send path would have to wait for it; below the stack, only the first packets to a
//! neighbour wait, in the device, with their tickets, and all other packets get fourteen bytes in front of
//! them. A TUN has none of this.
//!
//! ```text
//!   packet ─▶ next_hop ─┬─▶ Hop::Ready(header): header and packet to the wire
//!                       ├─▶ Hop::Wait(neighbour) ─▶ wait(packet) … poll_resolved: header and packet, or the packet was lost
//!                       └─▶ Hop::NoRoute
//!   frame ─▶ handle_frame ─┬─▶ Arrival::Packet: the IP packet behind the header is for the stack
//!                          └─▶ Arrival::Taken, Arrival::Ignored
//!   poll_frame ─▶ requests and answers to send            poll_timeout ─▶ handle_timeout
//!   poll_change ─▶ addresses, routes and the MTU for the stack        change_network ◀── those of the stack's owner
//! ```
//!
//! | file | has |
//! |---|---|
//! | `ethernet.rs` | [`Ethernet`]: frames in and out, the routes of a host |
//! | `auto.rs` | a link that configures itself: joins `own.rs` and `routers.rs` to the frames, and reports what changes |
//! | `lease.rs` | joins the client of DHCP to the frames and to the addresses, and reports its lease |
//! | `members.rs` | joins the groups to the frames and to the addresses |
//! | `serving.rs` | [`Services`]: joins the server of DHCP and the advertiser to the frames |
//! | `cache/` | what is known of neighbours, and since when; the packets that wait. `entry.rs`: one neighbour, pure |
//! | `dhcp/` | the client and the server of DHCP, pure |
//! | `own.rs` | the addresses of this host: checked, announced, defended, given up, pure |
//! | `routers.rs` | what routers advertise, and for how long, pure |
//! | `groups.rs` | the groups of multicast, and when their reports and answers are due, pure |
//! | `advertiser.rs` | when a router advertises, pure |
//! | `ports.rs`, `switch.rs` | several machines at one link: joins the switch to the frames; for whom a frame is, pure |
//! | `frame_v6.rs` | a packet of IPv6 in its frame |
//! | `random.rs` | times and numbers that others cannot guess |
//!
//! The numbered statements, with the sources of all numbers, are in docs/spec/ethernet.md; those of the
//! services in docs/spec/gateway.md.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod advertiser;
mod auto;
mod cache;
mod dhcp;
mod ethernet;
mod frame_v6;
mod groups;
mod lease;
mod members;
mod own;
mod ports;
mod random;
mod routers;
mod serving;
mod switch;

pub use cache::NeighbourState;
pub use dhcp::server::{FixedLease, Leased};
pub use ethernet::{
    Arrival, Ethernet, EthernetConfig, EthernetStats, FRAME_MAX, Hop, Neighbour, Resolved, Role,
};
pub use serving::{Boot, Leases, SearchDomainError, SearchDomains, Services};
pub use switch::{PortId, Refused, Way};
pub use taut_core::Network;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
