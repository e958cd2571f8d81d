//! Settings: of a stack (`config.rs`), by name while it runs (`sysctl.rs`), of a socket (`options.rs`).

pub mod config;
pub(crate) mod options;
pub(crate) mod sysctl;
