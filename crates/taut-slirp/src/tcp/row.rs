//! A connection as a row of the table that people read.

use std::net::SocketAddr;

/// A line of the table of connections.
pub(crate) struct Row {
    pub(crate) state: &'static str,
    pub(crate) fd: i32,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) queued: usize,
}

/// libslirp's names.
pub(crate) const fn state_name(state: taut_core::State) -> &'static str {
    use taut_core::State;
    match state {
        State::SynSent => "SYN_SENT",
        State::SynReceived => "SYN_RCVD",
        State::Established => "ESTABLISHED",
        State::CloseWait => "CLOSE_WAIT",
        State::FinWait1 => "FIN_WAIT_1",
        State::Closing => "CLOSING",
        State::LastAck => "LAST_ACK",
        State::FinWait2 => "FIN_WAIT_2",
        State::TimeWait => "TIME_WAIT",
        _ => "CLOSED",
    }
}
