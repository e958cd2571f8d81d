//! Decides, without a clock, a socket or a thread: what a flow may do, and what happens next.

pub(crate) mod admission;
pub(crate) mod counters;
pub(crate) mod dns;
pub(crate) mod event;
pub(crate) mod first_bytes;
pub(crate) mod flow;
pub(crate) mod flows;
pub(crate) mod gateway;
pub(crate) mod guests;
pub(crate) mod idle;
pub(crate) mod limits;
pub(crate) mod live;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod questions;
pub(crate) mod rules;
