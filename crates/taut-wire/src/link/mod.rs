//! Formats of a link: frames, and the protocols that find addresses, routers and groups.

pub mod arp;
pub mod dhcp;
pub mod domain;
pub mod ethernet;
pub mod membership;
pub mod ndp;
pub mod router;
