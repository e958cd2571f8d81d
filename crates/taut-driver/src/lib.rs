//! Clock + stack + device. A [`Shard`] is one stack with its device behind one lock; a thread or task must drive it.
//!
//! ```text
//!   application thread                       the driver: DriverThread, tokio::run, or a blocked reader
//!     │ access(): lock, write, transmit        │ epoll: device, timer, wake-up
//!     ▼                                        ▼
//!   ┌───────────────────────────────────────────────────────────────────┐
//!   │ Shard   device ──▶ handle_packet   timer ──▶ handle_timeout       │
//!   │         poll_transmit ─▶ host queue ─▶ device ─▶ handle_tx        │
//!   │         poll_event ──▶ wakers                                     │
//!   └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! - A thread that writes also transmits: no other thread has to wake up for it. If the stack's next deadline became
//!   earlier, the thread moves the timer, which does not wake another thread either.
//! - A blocking thread drives the shard while it waits, if it can ([`Shard::wait`]), so that a reply reaches it without
//!   passing through another thread.
//! - Input is taken in batches, with output after each batch, so one ACK answers a batch.
//!
//! Several shards on the queues of one device are each other's [peers](Shard::set_peers): a packet that arrives at
//! the wrong one is handed over to the right one. They share nothing else.
//!
//! This crate has no TCP and no policy.
#![forbid(unsafe_code)]

mod announce;
mod bell;
mod call;
mod clock;
mod closed;
mod crowd;
mod device;
mod handover;
mod host_queue;
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "elsewhere no thread leads")
)]
mod lead;
mod losses;
mod memory;
#[cfg(all(test, loom))]
mod model;
mod outbox;
mod park;
mod shard;
mod sync;
pub mod sys;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod thread;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use park as thread;
#[cfg(feature = "tokio")]
pub mod tokio;
mod waiters;

pub use clock::Clock;
pub use device::{Device, News, Received, RxDevice, Sent, TxDevice};
pub use host_queue::{LinkReport, QdiscEntry, QdiscHandle};
pub use shard::{Access, Shard};
pub use thread::DriverThread;

/// What drives a shard on systems without epoll and timerfd, for tests on Linux.
#[doc(hidden)]
pub mod portable {
    pub use crate::park::DriverThread;
}

pub use waiters::{Interest, WaitKey};
