//! What was recorded: captures of packets in two forms, and the capacity of lines.

pub(crate) mod pcap;
pub mod pcapng;
pub mod trace;
