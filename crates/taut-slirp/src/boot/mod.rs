//! Services for a machine that boots from the network: files by TFTP, and DHCP for IPv6 without addresses.
//! Leases of IPv4 are the link layer's.

pub(crate) mod dhcpv6;
pub(crate) mod tftp;
