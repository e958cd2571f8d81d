//! A service for a machine that boots from the network: files by TFTP. DHCP is the link layer's.

pub(crate) mod tftp;
