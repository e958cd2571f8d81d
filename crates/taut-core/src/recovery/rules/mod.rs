//! Rules of recovery as values: what an ACK or a time means. None knows the connection.

pub(crate) mod frto;
pub(crate) mod prr;
pub(crate) mod rto;
pub(crate) mod rtt;
pub(crate) mod undo;
