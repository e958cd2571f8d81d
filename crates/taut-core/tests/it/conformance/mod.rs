//! Requirements of RFCs, as packet traces: those of docs/spec/conformance.md that no other test shows.
//!
//! ```text
//!   opening    addresses, segment sizes, SYNs that are lost
//!   flow       windows, PSH, when an ACK leaves
//!   options    TCP's and IP's
//!   errors     resets, ICMP, the hop limit
//! ```

mod errors;
mod flow;
mod opening;
mod options;
