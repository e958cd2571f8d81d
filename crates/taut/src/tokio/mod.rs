//! Sockets in the shape of tokio's.

pub(crate) mod incoming;
pub(crate) mod listener;
pub(crate) mod reader;
pub(crate) mod split;
pub(crate) mod stream;
pub(crate) mod udp;
