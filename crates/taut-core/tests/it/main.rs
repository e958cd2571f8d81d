//! The tests of `taut-core`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

#[macro_use]
mod support;

mod acks;
mod attacks;
mod churn;
mod clock_jump;
mod close;
mod conformance;
mod ecn_lies;
mod ends;
mod fast_open;
mod half_open;
mod handshake;
mod hostile;
mod incoming;
mod incoming_datagrams;
mod ip;
mod keepalive;
mod memory;
mod network;
mod orphans;
mod path_mtu;
mod placed;
mod records;
mod recovery;
mod recovery_e2e;
mod recovery_spec;
mod spec;
mod tcp_info;
mod transfer;
mod windows;
mod zerocopy;
