//! TCP Small Queues, the last gate: how much of a connection may be below TCP. The statements TSQ of
//! docs/spec/send-path.md. Called by `plan`, by `commit`, and by the stack when tickets come back.
//!
//! ```text
//!   rule.rs       Linux's rule: two packets or a millisecond of the rate. TsqMode, SmallQueue, truesize
//!   paced.rs      above a link that paces: what lasts until a late thread looks again
//!   measured.rs   what keeps a device busy until its next completion, by its completions
//!   gate.rs       the gate of measured.rs, on values
//!   metered.rs    a connection's bytes that are measured, and its place in the line
//! ```

mod gate;
mod measured;
mod metered;
mod paced;
mod rule;

pub(crate) use gate::{Ask, Device, gate as measured_gate};
pub(crate) use measured::Meter;
pub(crate) use paced::Ahead;
pub use rule::TsqMode;
pub(crate) use rule::{ACK_TRUESIZE, Limit, OVERHEAD, Pass, SmallQueue, delayed, gate, limit, truesize};
