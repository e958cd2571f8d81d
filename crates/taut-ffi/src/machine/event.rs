//! News of a bare machine, as C has it. Written by `state.rs`.
#![expect(unsafe_code, reason = "says that the struct is one of C")]

use std::ffi::c_int;
use std::mem::offset_of;

use crate::border::Sized0;

/// A connection that taut_stack_connect() began is open.
pub const TAUT_EVENT_CONNECTED: u32 = 1;
/// Data, the end of the stream, a datagram or an error waits.
pub const TAUT_EVENT_READABLE: u32 = 2;
/// There is room, after a write that returned -EAGAIN.
pub const TAUT_EVENT_WRITABLE: u32 = 3;
/// A connection is over, or did not open: `error` says why. It is still to be closed.
pub const TAUT_EVENT_CLOSED: u32 = 4;
/// A connection waits at a listener: taut_stack_accept() until -EAGAIN.
pub const TAUT_EVENT_ACCEPT: u32 = 5;

/// Something that became possible, or ended. Events are edges: each comes once, until it happens again.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TautEvent {
    /// sizeof(struct taut_event), set by the caller.
    pub size: usize,
    /// The connection, listener or UDP socket.
    pub id: u64,
    /// TAUT_EVENT_...
    pub kind: u32,
    /// Of TAUT_EVENT_CLOSED: 0 if both sides ended their streams, else a negative error such as
    /// -ECONNREFUSED, -ECONNRESET, -ETIMEDOUT.
    pub error: c_int,
}

// SAFETY: numbers only.
unsafe impl Sized0 for TautEvent {
    const FIRST: usize = offset_of!(Self, error) + size_of::<c_int>();
}
