//! The bare machine for C: `taut_core::Stack` behind functions, with a device by a callback. Only
//! [`taut_stack_poll`](functions::taut_stack_poll) calls the program back.
//!
//! ```text
//!   functions.rs   the functions of the header      state.rs    the stack and the packets below it
//!   device.rs      the callback, and the packet     name.rs     numbers of connections, listeners, sockets
//!   event.rs       news                             tickets.rs  tickets that the device holds
//! ```

mod device;
mod event;
pub mod functions;
mod name;
mod state;
mod tickets;

pub use device::{TAUT_KEPT, TAUT_LEFT, TautPacket, TautTransmit};
pub use event::{
    TAUT_EVENT_ACCEPT, TAUT_EVENT_CLOSED, TAUT_EVENT_CONNECTED, TAUT_EVENT_READABLE, TAUT_EVENT_WRITABLE,
    TautEvent,
};
pub use state::TAUT_NEVER;
