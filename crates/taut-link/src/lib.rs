//! The layers below the stack, sans-IO: queue disciplines, shapers, paths and a network card. `no_std`, no
//! clock, and randomness only from a seed.
//!
//! ```text
//!                  ┌ fifo.rs        pfifo, bfifo: one queue with a limit
//!                  │ pfifo_fast.rs  three, by priority
//!   stack ─▶ queue ┼ fq.rs          one for each connection, in turn, each packet at its departure time
//!                  │ fq_codel.rs    many, in turn, kept short (codel.rs)
//!                  │ tbf.rs         a rate, over one of the others
//!                  └ netem.rs       a path: delay, loss, disorder (random.rs), before one of the others
//!                      │
//!                      ▼
//!                  device, or nic/: a ring (bql.rs), a line (line.rs), interrupts, and back up (gro.rs)
//! ```
//!
//! Every queue is a [`Qdisc`] (`qdisc.rs`): packets go in, and come out when they are due. Its driver asks
//! [`Qdisc::next`] when to come back. [`QdiscSpec`] (`disciplines/spec.rs`) describes a discipline in the
//! words of `tc` and builds a [`Tree`] (`disciplines/tree.rs`) of them; [`LinkSpec`] (`spec.rs`) describes a
//! simple link, whose wire is a [`Delay`] (`delay.rs`); a [`Trace`] (`trace.rs`) is a line's recorded
//! capacity; a [`Policer`] (`policer.rs`) drops without a queue. [`Rate`] and its neighbours (`quantity.rs`)
//! read `tc`'s units; [`Spread`] (`spread.rs`) records how full a queue was.
//!
//! ```
//! use taut_core::Instant;
//! use taut_link::{LinkSpec, Packet, Qdisc, Verdict};
//!
//! # fn main() -> Result<(), taut_link::SpecError> {
//! let spec: LinkSpec = "rate 100mbit burst 1500b limit 64kb".parse()?;
//! let mut line = spec.shaper::<&str>();
//! let now = Instant::from_nanos(1_000);
//! for name in ["first", "second"] {
//!     let packet = Packet { departure: now, flow: 7, ..Packet::new(1500, name) };
//!     assert!(matches!(line.enqueue(now, packet), Verdict::Taken));
//! }
//! assert_eq!(line.dequeue(now).map(|packet| packet.item), Some("first"));
//! // The second leaves when the line has carried it: 1500 bytes at 12.5 MB/s take 120 µs.
//! assert_eq!(line.next().map(|at| at.since(now).as_micros()), Some(120));
//! # Ok(()) }
//! ```
//!
//! ```
//! use taut_core::Instant;
//! use taut_link::{Packet, Qdisc, QdiscSpec};
//!
//! # fn main() -> Result<(), taut_link::QdiscSpecError> {
//! let spec: QdiscSpec = "netem delay 50ms loss pattern 1 | fq".parse()?;
//! let mut path = spec.build::<&str>(7);
//! let now = Instant::from_nanos(1_000);
//! let _ = path.enqueue(now, Packet::new(1500, "lost"));
//! let _ = path.enqueue(now, Packet::new(1500, "found"));
//! let at = path.next();
//! assert_eq!(at.map(|at| at.since(now).as_millis()), Some(50));
//! assert_eq!(at.and_then(|at| path.dequeue(at)).map(|packet| packet.item), Some("found"));
//! # Ok(()) }
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod delay;
mod disciplines;
mod nic;
mod policer;
mod qdisc;
mod quantity;
mod random;
mod spec;
mod spread;
#[cfg(test)]
mod tests;
mod trace;

pub use delay::Delay;
pub use disciplines::fifo::Fifo;
pub use disciplines::fq::{Fq, FqSpec, FqStats};
pub use disciplines::fq_codel::{FqCodel, FqCodelSpec, FqCodelStats};
pub use disciplines::netem::{Distribution, Loss, Netem, NetemRate, NetemSlot, NetemSpec, Share};
pub use disciplines::pfifo_fast::PfifoFast;
pub use disciplines::spec::{QdiscSpec, QdiscSpecError, TbfLimit, TbfSpec};
pub use disciplines::tbf::Tbf;
pub use disciplines::tree::{QdiscDetails, QdiscReport, Tree};
pub use nic::bql::{Bql, BqlSpec};
pub use nic::gro::Gro;
pub use nic::line::Line;
pub use nic::{Arrival, Nic, NicSpec};
pub use policer::{Policer, PolicerSpec};
pub use qdisc::{BANDS, Ecn, PRIOMAP, Packet, Qdisc, QdiscStats, Verdict, band};
pub use quantity::{Quantity, QuantityError, Rate, TimeText, parse_size, parse_time};
pub use random::Chance;
pub use spec::{Limit, LinkSpec, SpecError};
pub use spread::Spread;
pub use trace::{Moment, Trace, TraceLine};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
