//! A connection as a row of the table that people read.

use std::net::SocketAddr;

use super::{Connection, Connections, Guest};
use crate::core::Core;

/// A line of the table of connections.
pub(crate) struct Row {
    pub(crate) state: &'static str,
    pub(crate) fd: i32,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) queued: usize,
}

/// libslirp's names.
const fn state_name(state: taut_core::State) -> &'static str {
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

impl Connections {
    /// State, file, ends, and what waits, of each.
    pub(crate) fn rows(&self, core: &Core) -> Vec<Row> {
        let row = |(_, one): (usize, &Connection)| {
            let state = match one.guest {
                Guest::Asks(_) => "SYN_RCVD",
                Guest::Conn(id) => core.stack.conn(id).map_or("CLOSED", |conn| state_name(conn.state())),
            };
            Row { state, fd: one.far.fd().unwrap_or(-1), from: one.from, to: one.to, queued: one.down.len() }
        };
        self.all.iter().map(row).collect()
    }
}
