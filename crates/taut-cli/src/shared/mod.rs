//! What several commands use: the stack, the clock, text, progress, interrupts.

pub(crate) mod clock;
pub mod http_loop;
pub(crate) mod interrupt;
pub(crate) mod progress;
pub(crate) mod stack;
pub mod text;
