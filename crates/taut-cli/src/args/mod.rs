//! Options that several commands share.

pub(crate) mod auto;
pub(crate) mod congestion;
pub(crate) mod control;
pub(crate) mod device;
pub(crate) mod frame_source;
pub(crate) mod link;
pub(crate) mod network;
pub(crate) mod priority;
pub(crate) mod record;
pub(crate) mod shards;
pub(crate) mod target;
pub(crate) mod tunnel;
