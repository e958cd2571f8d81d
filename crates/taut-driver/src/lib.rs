//! Clock + stack + device. A [`Shard`] is one stack with its device behind one lock; a thread or task must
//! drive it.
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
//! Input is taken in batches, with output after each batch, so one ACK answers a batch.
//!
//! # Drivers
//!
//! A shard announces that there is something to do through one type (`announce.rs`): news of the device, a
//! deadline, a packet from another shard, the end. A driver says how it waits when it starts, and is notified
//! then of what came before.
//!
//! | driver | waits on | where |
//! |---|---|---|
//! | thread (`thread.rs`) | one epoll set, with a timerfd that any thread moves without waking this one | Linux, Android |
//! | tokio task (`tokio.rs`) | a `Notify`, the device's descriptors by `AsyncFd`, tokio's time, or on Linux a timerfd | everywhere |
//! | thread that parks (`park.rs`) | `park_timeout`; the device must have a waker | elsewhere, and in tests |
//!
//! # Who serves the device
//!
//! The driver does, and so do the threads and tasks that use the shard:
//!
//! - **A thread that writes also transmits**: no other thread has to wake up for it. If the stack's next
//!   deadline became earlier, the thread moves the timer, which does not wake another thread either.
//! - **Much at a time leaves under the lock** while others wait for it, and those that move much have it by
//!   turns (`shard/bulk.rs`).
//! - **A reader that finds nothing polls the device once** before it sleeps, while that keeps finding packets
//!   (`shard/arrivals.rs`). `connect` always polls once: a write to a TUN runs the peer's receive path, so
//!   the answer to a SYN is there when the SYN has left.
//! - **A task that finds its data by polling lets other tasks run** (`shard/reader_turn.rs`).
//! - **A batch may end early** (`shard/arrivals.rs`), with the packet that its reader waits for.
//! - **At most one waiting thread leads** (`lead.rs`): it waits on the device ([`Shard::wait`]), and the
//!   driver thread sleeps, so a reply wakes one thread and not two. The lead follows the traffic: a leader
//!   whose turn brought data for others only gives the lead up before it wakes them. A thread that got its
//!   data is expected back; the driver thread takes over when it does not come. While others wait, the driver
//!   thread takes over at once, unless leaders are soon followed again and again.
//! - **The driver thread serves a crowd** (`crowd.rs`): where three threads or more get packets by turns, and
//!   two wait. A leader would spend its own processor time on the others, and they would wait for it. Nor
//!   does a reader of short packets poll the device then.
//! - **A writer that sends much takes its ACKs itself**, every 20 µs at most.
//!
//! Measurements with each of them switched off: `docs/data/2026-11-28-driver-rules.md`,
//! `docs/data/2026-11-30-driver-rules.md`.
//!
//! The outbox, the lead, a shard's inbox, a device's bell and what wakes a driver are shared by threads that
//! do not have the shard's lock. A model checker runs them through every order of their steps (`model/`), and
//! a whole shard with its driver while a thread begins to wait for a packet: `make model`.
//!
//! # Several shards
//!
//! Several shards on the queues of one device are each other's [peers](Shard::set_peers): a packet that
//! arrives at the wrong one is handed over to the right one. They share nothing else.
//!
//! This crate has no TCP and no policy.
#![forbid(unsafe_code)]

mod below;
mod clock;
mod device;
mod driver_thread;
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "elsewhere no thread leads")
)]
mod lead;
#[cfg(all(test, loom))]
mod model;
mod park;
mod poller;
mod shard;
mod sync;
pub mod sys;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod thread;
#[cfg(feature = "tokio")]
pub mod tokio;
mod wake;

pub use below::host_queue::{LinkReport, QdiscEntry, QdiscHandle};
pub use clock::Clock;
pub use device::{Device, News, Received, RxDevice, Sent, TxDevice};
pub use driver_thread::DriverThread;
pub use shard::{Access, Shard};

/// What drives a shard on systems without epoll and timerfd, for tests on Linux.
#[doc(hidden)]
pub mod portable {
    pub use crate::park::spawn;
}

pub use shard::waiters::{Interest, WaitKey};
