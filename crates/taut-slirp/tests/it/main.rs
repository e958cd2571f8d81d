//! The tests of `taut-slirp`, one program. `world.rs` is a caller of the library with a guest on taut's
//! stack; other callers are Debian's slirp4netns and QEMU, unmodified, and a small program in C.
#![allow(missing_docs, reason = "tests")]
#![allow(unsafe_code, reason = "they call C's interface")]
#![cfg(target_os = "linux")]

mod boot;
mod c_program;
mod connections;
mod datagrams;
mod frames;
mod instance;
mod ports;
mod qemu;
mod saved;
mod services;
mod slirp4netns;
mod snapshot;
mod symbols;
mod world;
