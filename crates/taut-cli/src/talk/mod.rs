//! Commands that use a stack of their own: transfers and files.

pub(crate) mod dial;
pub(crate) mod get;
pub(crate) mod serve;
pub(crate) mod serve_command;
pub(crate) mod summary;
pub(crate) mod transfer;
