//! The header, and programs in C, Python and Go that use it.
#![cfg(target_os = "linux")]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

mod header;
mod live;
mod programs;
mod toolkit;
