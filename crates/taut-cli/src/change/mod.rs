//! Commands that change a running stack.

pub(crate) mod addr;
pub(crate) mod mtu;
pub(crate) mod qdisc;
pub(crate) mod qdisc_format;
pub(crate) mod route;
pub(crate) mod sysctl;
