//! Parts that several commands share: the stack, the clock, text, progress, interrupts.

pub(crate) mod clock;
pub(crate) mod date;
pub(crate) mod exit;
pub mod http_loop;
pub(crate) mod interrupt;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod stack;
pub mod text;
