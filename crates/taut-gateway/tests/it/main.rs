//! The tests of `taut-gateway`, one program: it is linked once.
#![allow(missing_docs, reason = "tests")]

mod closed;
mod copies;
mod flows;
mod forwarded;
mod icmp;
mod last_bytes;
mod live;
mod looks;
mod names;
mod namespace;
mod offloads;
mod ports;
mod proxy;
mod proxy_names;
mod rooms;
mod rules;
mod stalled;
mod support;
