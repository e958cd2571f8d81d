//! The C interface of taut: `include/taut.h`, made of these sources by cbindgen, is the manual.
//!
//! ```text
//!   machine/   taut_stack_*   the bare machine: no clock, no I/O, a device by a callback
//!   sockets/   taut_net_*, taut_socket_*   a running stack on a TUN or a descriptor, and its sockets
//!   options.rs    options by Linux's numbers          errno.rs     taut's errors as Linux's numbers
//!   tcp_info.rs   `struct tcp_info`
//!   address.rs    `struct sockaddr`                   border.rs    panics stop here; pointers become values
//! ```
//!
//! Each function of C is a few lines: it takes its arguments apart with `border` and `address`, and calls a
//! method of Rust behind `border::door`. `unsafe` is in these two and in the two files of functions,
//! `machine/functions.rs` and `sockets/functions.rs`, and in the one call of a callback,
//! `machine/device.rs`.
#![cfg(target_os = "linux")]

pub mod address;
mod border;
mod errno;
pub mod machine;
mod options;
pub mod sockets;
mod tcp_info;
