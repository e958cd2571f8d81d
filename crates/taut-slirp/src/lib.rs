//! libslirp's interface over taut's stack and the gateway's logic: the network that QEMU (`-netdev user`),
//! slirp4netns and others give a guest by loading `libslirp.so.0`.
//!
//! ```text
//!   the caller's loop                              this library
//!     guest's frame ── slirp_input ────────▶ link.rs ─▶ taut-core's stack ─▶ events ┐
//!     before poll(2) ─ slirp_pollfds_fill ─▶ engine.rs: files, the next time        ├▶ tcp, udp, ping,
//!     after it ─────── slirp_pollfds_poll ─▶ engine.rs: events of files ────────────┘  names, forward, boot
//!     send_packet ◀─── ffi/ ◀── frames, when nothing is borrowed                         │ what happened
//!                                                taut-gateway's logic ◀──────────────────┘ what to do
//! ```
//!
//! It is the second runner of the gateway's logic, beside tokio's (`taut-gateway/src/run`): it has no
//! thread, no runtime and no clock; the caller's loop drives it, and the caller's clock is the time.
//!
//! | file | has |
//! |---|---|
//! | `ffi/` | the exported functions and the caller's callbacks, with `unsafe` |
//! | `config.rs`, `settings.rs` | the caller's configuration; the user's file (`TAUT_SLIRP_CONFIG`) |
//! | `engine.rs` | joins all parts: events, times, files |
//! | `core.rs` | what all parts share |
//! | `link.rs` | frames and the link layer |
//! | `tcp/`, `service.rs` | connections, and their far sides |
//! | `detached.rs` | a program that serves, with `unsafe` for its second `fork` |
//! | `udp.rs`, `ping.rs` | datagrams, pings |
//! | `names.rs`, `exchange.rs` | questions for names; one at one server |
//! | `forward.rs` | ports of the host that lead to the guest |
//! | `boot/` | TFTP, and stateless DHCP for IPv6 |
//! | `tables.rs`, `saved.rs` | tables for people; the state for a migration |
//!
//! Guide: `docs/guide/libslirp.md`; statements: `docs/spec/slirp.md`.

mod boot;
mod config;
mod core;
mod detached;
mod engine;
mod exchange;
pub mod ffi;
mod forward;
mod link;
mod names;
mod ping;
mod saved;
mod service;
mod settings;
mod tables;
mod tcp;
mod udp;
