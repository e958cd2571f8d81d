//! What blocking sockets and those for tokio share.

pub(crate) mod acceptor;
pub(crate) mod chunks;
pub(crate) mod datagram;
pub(crate) mod flow;
pub(crate) mod names;
pub(crate) mod socket;
pub(crate) mod socket_methods;
#[cfg(feature = "tokio")]
pub(crate) mod turn;
