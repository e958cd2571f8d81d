//! The send path: app → write queue → segment → pacing → small queue → device.
//!
//! [`Sender`] is the door: the connection calls its verbs and touches no field.
//!
//! ```text
//!   sender.rs   the state, and the application's settings: set_nodelay, set_cork, queue_fin …
//!   write.rs    the application's writes: write, poll_writable, check_space …
//!   commit.rs   the device's verbs: next (decide, then act), take_back, complete
//!   acked.rs    the network's verbs: on_window, on_ack, note_acked, on_timeout …
//!   plan.rs     decides and changes nothing: one list of gates, in the order in which Linux asks them
//!   inputs.rs   the values that the gates look at
//!   size/       how large a packet is          small_queue/   how much may be below TCP
//!   queue/      what was written and lent      books/         sums for reports; they decide nothing
//!   writer.rs   the part of a sender that exists from its first write on
//!   shared.rs   state that all senders of a stack share
//! ```
//!
//! [`Blocked`] says which gate was shut. Each gate is a file of its own that takes values and returns a
//! value; none knows the connection. The page of each file is a short course on its mechanism: the problem,
//! the rule, its numbers, and its history.
//!
//! | asked | gate | shut when |
//! |---|---|---|
//! | at a write | `notsent_lowat`, `sndbuf` | enough is unsent, or the send buffer is full |
//! | at the end of a write | `autocork` | the tail is small and a completion will send it |
//! | for every packet, in this order | `pacing` | it is not yet time |
//! | | congestion window | the network holds as much as it can; at most half of the window leaves at once |
//! | | peer's window | the next segment does not fit |
//! | | `nagle`, `tso_defer` | a partial segment should wait, or a super-packet will soon be bigger |
//! | | `small_queue` | enough is below TCP |
//!
//! Between these, `tso_autosize` says how large a packet may be, `path_mtu` tries a larger segment now and
//! then, and the packet is cut. The gates' names stand once, in `blocked.rs`.

mod acked;
mod blocked;
mod books;
mod commit;
mod config;
pub(crate) mod emit;
mod inputs;
mod pacing;
mod peer_window;
mod plan;
mod queue;
mod sender;
mod shared;
mod size;
mod small_queue;
mod write;
mod writer;

pub(crate) use acked::TimedOut;
pub use blocked::{Blocked, Gate};
use books::ledger::Ledger;
pub(crate) use books::ledger::Queue;
use books::ledger::Totals;
pub(crate) use commit::{Leaving, NotNow};
pub use config::{MtuConfig, MtuProbing, SendConfig};
pub(crate) use inputs::SendCx;
pub use pacing::PacingMode;
pub(crate) use pacing::UNLIMITED;
pub(crate) use plan::Plan;
pub use queue::loans::Completion;
pub use queue::notsent_lowat::LowatMode;
pub(crate) use queue::sndbuf::SNDBUF_MIN;
pub(crate) use sender::Sender;
pub(crate) use shared::Shared;
pub use size::autocork::AutocorkMode;
pub(crate) use size::path_mtu::PathMtu;
pub use size::tso_autosize::AutosizeMode;
pub(crate) use small_queue::ACK_TRUESIZE;
pub use small_queue::TsqMode;
pub use write::WriteFlags;
pub(crate) use write::Written;
