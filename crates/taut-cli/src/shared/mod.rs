//! Parts that several commands share: the clock, text, progress, the log, interrupts.

pub(crate) mod advice;
pub(crate) mod clock;
pub(crate) mod config_file;
pub(crate) mod date;
pub(crate) mod exit;
pub mod http_loop;
pub(crate) mod interrupt;
pub(crate) mod log;
pub(crate) mod output;
pub(crate) mod progress;
pub mod text;
