//! Between a shard and its device: a queue of this host in front of it, the packets on their way to a slow
//! one, and the counts of what was not sent.

pub(crate) mod host_queue;
pub(crate) mod losses;
pub(crate) mod outbox;
