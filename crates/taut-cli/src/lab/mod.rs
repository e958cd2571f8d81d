//! Experiments and packet scripts.

pub(crate) mod packetdrill;
