//! The vocabulary: values that all other modules use and that depend on none of them.
//!
//! ```text
//!   units.rs     Instant, Duration                 seq.rs        positions in a stream, which never wrap
//!   addr.rs      Endpoint, Tuple                   ids.rs        names of connections and listeners
//!   link.rs      LinkCaps, packets in and out      kept.rs       a packet that outlives a call
//!   ticket.rs    the receipt for bytes below TCP    memory.rs     memory with several holders
//!   error.rs event.rs                             holders.rs    who else holds memory, for replays
//!   network.rs   addresses, routes, and their changes                 steps.rs     work, counted in tests
//!   known.rs     bytes that need not be stored
//! ```

mod addr;
mod error;
mod event;
mod holders;
mod ids;
mod kept;
mod known;
mod link;
mod memory;
mod network;
pub(crate) mod seq;
mod steps;
mod ticket;
mod units;

pub(crate) use addr::{Endpoint, Tuple};
pub use error::{ConnError, ConnectError, FlowError, ListenError, OptionError, ReadError, WriteError};
pub use event::Event;
pub(crate) use holders::Holders;
pub use holders::Witness;
pub use ids::{ConnId, DatagramId, FlowId, ListenerId};
pub use kept::KeptPacket;
pub use known::Known;
pub use link::{
    BUFFER_BYTES, Frame, GATHER_MAX, Gather, LinkCaps, Offload, RxChecksum, RxPacket, Transmit, TxPacket,
};
pub(crate) use memory::{Memory, Receipt};
pub(crate) use network::common_bits;
pub use network::{Lease, Network, NetworkChange, NetworkError, Route};
pub(crate) use steps::step;
pub use steps::steps_taken;
#[cfg(test)]
pub(crate) use steps::take_steps;
pub use ticket::{Fate, TxTicket};
pub(crate) use ticket::{Output, SendKind};
pub use units::{BufferSizes, Duration, Instant};
