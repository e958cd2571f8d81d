//! The states of RFC 9293 §3.3.2, and what each allows.

use core::fmt;

/// State of a connection. A connection is never in LISTEN, because a listener is a type of its own. In
/// TIME-WAIT it stays only until its last ACK has left; then a small table entry takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are RFC 9293's")]
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

impl State {
    /// Every state, for tables and tests.
    pub const ALL: [Self; 10] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::CloseWait,
        Self::Closing,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
    ];

    /// Whether both sides have agreed on sequence numbers.
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether the application may still write.
    #[must_use]
    pub const fn may_write(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// Whether written data may go on the wire, which includes the states after our FIN was queued behind it.
    #[must_use]
    pub const fn may_transmit(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck)
    }

    /// Whether the peer may still send data.
    #[must_use]
    pub const fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// After the application's close: our FIN follows the data.
    #[must_use]
    pub const fn on_close(self) -> Self {
        match self {
            Self::Established | Self::SynReceived => Self::FinWait1,
            Self::CloseWait => Self::LastAck,
            Self::SynSent => Self::Closed,
            other => other,
        }
    }

    /// After the peer's FIN was received in order.
    #[must_use]
    pub const fn on_fin(self) -> Self {
        match self {
            Self::SynReceived | Self::Established => Self::CloseWait,
            Self::FinWait1 => Self::Closing,
            Self::FinWait2 => Self::TimeWait,
            other => other,
        }
    }

    /// After the peer acknowledged our FIN.
    #[must_use]
    pub const fn on_fin_acked(self) -> Self {
        match self {
            Self::FinWait1 => Self::FinWait2,
            Self::Closing => Self::TimeWait,
            Self::LastAck => Self::Closed,
            other => other,
        }
    }

    /// Linux's spelling, as `ss` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECV",
            Self::Established => "ESTAB",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        }
    }

    /// Linux's number for it, as in `tcpi_state`: `include/net/tcp_states.h`.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Established => 1,
            Self::SynSent => 2,
            Self::SynReceived => 3,
            Self::FinWait1 => 4,
            Self::FinWait2 => 5,
            Self::TimeWait => 6,
            Self::Closed => 7,
            Self::CloseWait => 8,
            Self::LastAck => 9,
            Self::Closing => 11,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::State::*;
    use super::*;

    /// RFC 9293 §3.3.2 figure 5, row by row: (state, on close, on FIN, on ACK of our FIN).
    const FIGURE_5: [(State, State, State, State); 10] = [
        (SynSent, Closed, SynSent, SynSent),
        (SynReceived, FinWait1, CloseWait, SynReceived),
        (Established, FinWait1, CloseWait, Established),
        (FinWait1, FinWait1, Closing, FinWait2),
        (FinWait2, FinWait2, TimeWait, FinWait2),
        (CloseWait, LastAck, CloseWait, CloseWait),
        (Closing, Closing, Closing, TimeWait),
        (LastAck, LastAck, LastAck, Closed),
        (TimeWait, TimeWait, TimeWait, TimeWait),
        (Closed, Closed, Closed, Closed),
    ];

    #[test]
    fn transitions_are_those_of_figure_5() {
        for ((state, close, fin, fin_acked), expected) in FIGURE_5.into_iter().zip(State::ALL) {
            assert_eq!(state, expected, "the table covers every state, in order");
            assert_eq!(state.on_close(), close, "{state} on close");
            assert_eq!(state.on_fin(), fin, "{state} on FIN");
            assert_eq!(state.on_fin_acked(), fin_acked, "{state} on ACK of FIN");
        }
    }
}
