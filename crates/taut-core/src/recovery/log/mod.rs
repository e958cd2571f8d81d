//! What was sent and is not acknowledged: `sent.rs` has the log, `records.rs` its memory, `delivery_rate.rs`
//! what each record remembers of its time.

pub(crate) mod delivery_rate;
pub(crate) mod records;
pub(crate) mod sent;
