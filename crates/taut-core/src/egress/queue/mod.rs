//! Data that the application has written: its place, loans of the application's memory, limits.

pub(crate) mod loans;
pub(crate) mod notsent_lowat;
pub(crate) mod sndbuf;
pub(crate) mod write_queue;
