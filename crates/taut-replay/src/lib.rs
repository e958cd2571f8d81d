//! A run of a stack as a file: its inputs, recorded while it runs and replayed bit for bit later.
//!
//! The core reads no clock, does no I/O and draws no random number, so a run is its inputs: the configuration
//! and the seed, then packets, times, calls of the application, and tickets that come back.
//!
//! ```text
//!   live     driver, sockets ──▶ Taped ──▶ Stack        each call is an Input; its result an Outcome
//!                                  └─▶ Tape ─▶ writer's thread ─▶ FILE
//!
//!   replay   FILE ─▶ Recording ─▶ Player ──▶ Stack      the same calls; results are compared
//! ```
//!
//! ```text
//!   input.rs     the list of all inputs, their bytes, and how each is made again
//!   taped.rs     a stack whose calls are noted                   outcome.rs    what a call returns, as a number
//!   tape.rs      the bounded buffer and its writer               answers.rs    who else held memory
//!   frame.rs     the form of the file                            header.rs     what the stack was made of
//!   recording.rs reads a file    player.rs  replays it           codec.rs values.rs digest.rs
//! ```
#![forbid(unsafe_code)]

mod answers;
mod codec;
mod digest;
mod frame;
mod header;
mod input;
mod outcome;
mod player;
mod recording;
mod tape;
mod taped;
#[cfg(test)]
mod tests;
mod values;

pub use input::Kind;
pub use player::{Difference, Played, Player, Seen};
pub use recording::{RecordEnd, RecordingError};
pub use tape::{RecordFile, RecordHandle, RecordReport, record, record_in};
pub use taped::{Taped, TapedConn};
