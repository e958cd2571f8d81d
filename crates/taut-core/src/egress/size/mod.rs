//! How large a packet is: whether a small one should wait, and how long a super-packet may be.

pub(crate) mod autocork;
pub(crate) mod nagle;
pub(crate) mod path_mtu;
pub(crate) mod tso_autosize;
pub(crate) mod tso_defer;
