//! Loss recovery as packet traces: one file for a scenario, expected values from the RFC that it names.

mod accecn;
mod accecn_handshake;
mod accecn_option;
mod burst;
mod ecn;
mod host;
mod lost_retransmission;
mod rate;
mod reneging;
mod reordering;
mod scene;
mod single_loss;
mod spurious_timeout;
mod tail;
mod without_sack;
