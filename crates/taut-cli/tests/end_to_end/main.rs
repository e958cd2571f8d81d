//! The `taut` command against the kernel's TCP and the programs that people have: curl, nginx, tshark.
//!
//! Each test runs in a network namespace of its own, which has no name and vanishes with its last process; what a
//! test starts is killed when it ends, however it ends.

mod capture;
mod demo;
mod gone;
mod http;
mod link;
mod observe;
mod pipe;
mod qdisc;
mod support;
mod usage;
