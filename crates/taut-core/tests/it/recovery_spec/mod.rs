//! Loss recovery's behaviour, statement by statement (docs/spec/recovery.md): every test bears the ID of the
//! statement that it proves.
//!
//! One stack, a peer that the test plays, a clock that the test moves, and a congestion control that writes
//! down what it is told ([`rig`]). Segments are numbered from 0; time is in milliseconds since the connection
//! opened. Expected values are the formulas of the RFCs, worked out in a comment.
//!
//! ```text
//!   rto    the timeout and the round trip     rec    scoreboard, states, peers without SACK
//!   rack   lost by time                       dsack  what arrived twice
//!   tlp    tail loss probes                   prr    how the window comes down
//!   undo   what a spurious loss leaves        rate   samples of the delivery rate
//!   win    the peer's window, the unused one  arr    which segments count
//!
//!   frto   in tests/recovery/spurious_timeout.rs
//! ```

mod arr;
mod dsack;
mod prr;
mod rack;
mod rate;
mod rec;
mod rig;
mod rto;
mod tlp;
mod undo;
mod win;
