//! The exported functions of libslirp, and the callbacks of its caller.
//!
//! | rule | kept by |
//! |---|---|
//! | A `Slirp` is made by `slirp_new` and freed by `slirp_cleanup`; in between the caller uses it on one thread at a time, as with libslirp | the caller |
//! | A callback may call back in (a network card in loopback mode does): nothing is borrowed while one runs | `Slirp::with`, `Slirp::finish` |
//! | The table of callbacks and all texts of a configuration are copied, and not read again | `Callbacks::read`, `read_config` |
//! | Fields of a later version than the caller's are not read: its memory may end before them | `Callbacks::read`, `read_config` |
//! | No panic leaves: each door ends in `door`. After a panic the instance does nothing more | `door` |
//! | Memory that is handed out comes from `malloc`, because the caller frees it with `g_free` | `text` |
//! | Timers: one, for the router's advertisements, if the caller has IPv6; it is the caller's, and freed in `slirp_cleanup` | `Slirp::arm` |
//! | `register_poll_fd`, `unregister_poll_fd` are not called: on Unix, callers know files by `slirp_pollfds_fill` | |
#![expect(unsafe_code, reason = "the interface is C's")]
// Each exported function is libslirp's, whose header has its contract.
#![allow(missing_docs, clippy::missing_safety_doc, reason = "libslirp.h documents the interface")]

mod callbacks;
mod doors;
mod instance;
mod values;

pub use callbacks::{AddPollCb, GetREventsCb, ReadCb, SlirpCb, TimerCb, WriteCb};
pub use doors::*;
pub use instance::Slirp;
pub use values::SlirpConfig;
