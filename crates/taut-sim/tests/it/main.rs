//! The tests of `taut-sim`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod accecn;
mod attack;
mod buffers;
mod congestion;
mod datagram;
mod ethernet;
mod faults;
mod host;
mod lateness;
mod network;
mod pair;
mod recovery;
mod small_queue;
mod worlds;
