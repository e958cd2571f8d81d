//! Ways out: the host's own sockets, another proxy, another stack.

pub(crate) mod blocks;
pub(crate) mod host_networks;
pub(crate) mod host_sockets;
pub(crate) mod icmp_errors;
pub(crate) mod link;
pub(crate) mod proxies;
pub mod sockets;
pub(crate) mod way_out;
