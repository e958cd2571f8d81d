//! What runs leave: files, tables, events and captures.

pub mod capture;
pub mod events;
#[cfg(feature = "live")]
pub mod files;
#[cfg(feature = "live")]
pub(crate) mod flent;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub mod table;
