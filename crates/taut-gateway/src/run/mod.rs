//! The runner: a task for each flow, which does what the logic decided.

pub(crate) mod admit;
pub(crate) mod apart;
pub(crate) mod datagrams;
pub(crate) mod first_bytes;
pub(crate) mod host_files;
pub(crate) mod host_names;
pub(crate) mod join;
pub(crate) mod looks;
pub(crate) mod ports;
pub(crate) mod relay;
pub(crate) mod resolver;
pub(crate) mod rooms;
pub(crate) mod server;
pub(crate) mod tcp;
