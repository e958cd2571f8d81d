//! Wire formats: bytes to values and values to bytes, with no state and no allocation.
//!
//! ```text
//!   VnetHeader | IpHeader            | TcpHeader + TcpOptions | payload
//!   virtio.rs  | ip.rs ip/{v4,v6}.rs | tcp/mod.rs, options.rs  |
//!              fragment.rs           | tcp/fast_open.rs udp.rs icmp.rs quoted.rs
//!   EthernetHeader | Arp, or IpHeader | Ndp, RouterAdvertisement
//!   link/: ethernet.rs, arp.rs, ndp.rs, router.rs; dhcp.rs and domain.rs, in UDP; membership.rs, over IP
//!              '--------- checksum.rs: checksums in software ---------'
//!              '--------- raw.rs: packets that stay bytes -------------'
//!   pcapng.rs: files of captured packets
//! ```
//!
//! Parsing accepts any bytes and returns a value or a [`ParseError`]; it never panics. Emitting takes a
//! buffer that the caller has sized with the matching `*_len` method, and panics if it is shorter, as slices
//! do.
//!
//! ```
//! use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol, tcp};
//!
//! let syn = TcpHeader { src_port: 49152, dst_port: 80, seq: 1, flags: Flags::SYN, ..Default::default() };
//! let ip = IpHeader {
//!     src: "192.0.2.1".parse().unwrap(),
//!     dst: "192.0.2.2".parse().unwrap(),
//!     protocol: protocol::TCP,
//!     hop_limit: 64,
//!     ecn: Ecn::NotEct,
//!     header_len: 20,
//!     payload_len: syn.header_len(),
//! };
//! let mut packet = [0; 40];
//! let at = ip.emit(&mut packet, 0);
//! syn.emit(&mut packet[at..]);
//! let checksum = tcp::full_checksum(ip.src, ip.dst, &packet[at..], &[]);
//! tcp::set_checksum(&mut packet[at..], checksum);
//!
//! assert_eq!(IpHeader::parse(&packet), Ok(ip));
//! assert_eq!(TcpHeader::parse(&packet[at..]), Ok((syn, 20)));
//! assert!(tcp::verify(ip.src, ip.dst, &packet[at..], &[]));
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod checksum;
mod error;
pub mod fragment;
pub mod icmp;
pub mod ip;
mod link;
pub mod pcapng;
mod quoted;
pub mod raw;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod udp;
pub mod virtio;

pub use checksum::Sum;
pub use error::ParseError;
pub use fragment::Fragment;
pub use icmp::{Icmp, Unreachable};
pub use ip::{Ecn, IpHeader, protocol};
pub use link::arp::Arp;
pub use link::dhcp::{
    DhcpAnswer, DhcpAsked, DhcpGrant, DhcpKind, DhcpMessage, DhcpReply, DhcpTerms, FewAddresses,
};
pub use link::ethernet::{EthernetHeader, Mac, ether_type};
pub use link::membership::{GroupQuery, GroupRecord};
pub use link::ndp::Ndp;
pub use link::router::{
    Advertising, PrefixInformation, RouterAdvertisement, RouterOption, RouterSolicitation,
};
pub use link::{arp, dhcp, domain, ethernet, membership, ndp, router};
pub use quoted::Quoted;
pub use tcp::fast_open::{Cookie, FastOpen};
pub use tcp::options::{AccEcn, SackBlocks, TcpOptions, Timestamps};
pub use tcp::{Flags, TcpHeader};
pub use udp::UdpHeader;
pub use virtio::{GsoType, VnetHeader};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
