//! The receive path: segments are checked, put in order, acknowledged and handed to the application.
//!
//! [`Receiver`] is the door: the connection calls its verbs and touches no field.
//!
//! ```text
//!   receiver.rs     the state and its verbs: receive, read, ack_wanted, on_ack_sent …
//!   validate.rs     is it in the window, not an old duplicate, and does it acknowledge data of ours
//!   payload.rs      bytes that can be kept without a copy      reassembly.rs   data that waits beyond a hole
//!   read_queue.rs   what the application may read              recv_window.rs  what the peer may send
//!   delayed_ack.rs  when an ACK leaves              rmem.rs         memory for what arrives, and what gives way
//! ```
//!
//! `conn/arrival.rs` calls these in the order of RFC 9293 §3.10.7.

mod config;
mod delayed_ack;
mod payload;
mod read_queue;
mod reassembly;
mod receiver;
mod recv_window;
mod rmem;
pub(crate) mod validate;

pub use config::ReceiveConfig;
pub(crate) use payload::Payload;
pub(crate) use receiver::{ReceiveCx, Receiver};
pub(crate) use recv_window::{RCVBUF_MIN, SCALE_MAX, scale_for};
pub(crate) use rmem::Squeezed;
