//! Ways in beside the device: namespaces, virtual machines, forwarded ports, clients of a proxy.

pub(crate) mod asked_at;
pub(crate) mod client_address;
pub(crate) mod dial;
pub(crate) mod forward;
pub mod inside;
pub(crate) mod listening;
pub(crate) mod live;
pub(crate) mod loopback;
pub(crate) mod machines;
pub(crate) mod namespace;
pub(crate) mod proxy;
pub(crate) mod request;
pub(crate) mod resolv_conf;
pub(crate) mod sock_diag;
