//! A deterministic network simulator that runs the real stack.
//!
//! ```text
//!   parts/:   app/* ─▶ taut_core::Stack ─▶ root queue, NIC (taut_link) ─▶ wire.rs ─▶ fault.rs ─▶ router.rs ─▶ …
//!   world.rs: the whole network, one clock that jumps (event.rs), one seed (rng.rs)
//!   ethernet.rs: hosts on an Ethernet behind a switch, with their link layer
//!   worlds/:  random worlds by the thousand, and what must hold in each
//!   packet.rs: packets by ID, payloads shared      probe.rs: observers      check.rs: what must always hold
//! ```
//!
//! There is no second TCP here: hosts are [`taut_core::Stack`]s, driven by the same calls as on a device.
//! Time is virtual, randomness is seeded, and nothing reads a clock, a file or a memory address: the same
//! calls with the same seed give the same run, bit for bit, with an equal [digest](World::digest).
//!
//! ```
//! use taut_core::Duration;
//! use taut_sim::app::{Bulk, Sink};
//! use taut_sim::{HostSpec, Pair, World};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut world = World::new(7);
//! let host = HostSpec::new("100mbit".parse()?);
//! let pair = Pair::new(&mut world, host.clone(), host, Duration::from_millis(10));
//!
//! let sink = Sink::new(5001);
//! let read = sink.stats();
//! world.app(pair.b, sink);
//! let to = (world.host_ref(pair.b).address().ok_or("no address")?, 5001).into();
//! world.app(pair.a, Bulk::new(to).total(1_000_000));
//!
//! world.run_for(Duration::from_secs(2))?;
//! assert_eq!(read.borrow().bytes, 1_000_000);
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

pub mod app;
mod check;
pub mod ethernet;
mod event;
mod failure;
mod ids;
mod mutate;
mod packet;
mod parts;
mod pattern;
pub mod probe;
mod rng;
pub mod topology;
mod world;
pub mod worlds;

pub use app::{App, AppCx};
pub use check::Checks;
pub use event::BEGIN;
pub use failure::{Failure, Kind};
pub use ids::{AppId, HostId, NodeId, RouterId, WireId};
pub use packet::PacketId;
pub use parts::cpu::{Counts, CpuModel, LostWakeup, Wakeups};
pub use parts::fault::{Faults, GilbertElliott, Lies};
pub use parts::host::{Host, HostSpec, Returns};
pub use parts::wire::WireCounts;
pub use pattern::Pattern;
pub use probe::{Interest, PacketView, Place, Probe, ProbeEvent};
pub use rng::Rng;
pub use taut_link::QdiscSpec;
pub use topology::{Chain, Dumbbell, DumbbellSpec, Pair};
pub use world::{PortSpec, PortState, Progress, World};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
