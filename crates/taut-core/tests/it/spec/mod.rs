//! The send path's behaviour, statement by statement: every test bears the ID of the statement that it
//! proves.
//!
//! One stack, a peer and a device that the test plays ([`rig`]), a clock that the test moves. Expected values
//! are the formulas of the mechanisms, written out; `docs/design/deviations.md` lists where they differ from
//! Linux's, and why.
//!
//! ```text
//!   tsq    TCP Small Queues          tso    autosizing, deferral, splitting
//!   pace   pacing                    ac     autocorking
//!   comp   how they work together    nag    Nagle, cork, MSG_MORE
//!   zc     bytes without a copy      lowat  TCP_NOTSENT_LOWAT, writability
//!   wait   where bytes wait, how long
//!
//!   gates     every gate as a table of states, and their order
//!   history   the mechanisms as they once were
//!   refused   packets that the device did not take
//!   tickets   random worlds: nothing stalls, nothing is lost, every ticket is accounted for
//! ```

#![allow(clippy::single_range_in_vec_init, reason = "a list of packets may have one")]

mod ac;
mod comp;
mod gates;
mod history;
mod lowat;
mod measured;
mod nag;
mod pace;
mod refused;
mod rig;
mod tickets;
mod tso;
mod tsq;
mod wait;
mod zc;
