//! Errors, by origin: mistakes of the caller ([`ConnectError`], [`ListenError`], [`OptionError`]), and
//! failures of the network or the peer ([`ConnError`]).

use thiserror::Error;

/// Why a connection ended, or could not continue. Once set, it stays: every call on the connection reports
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnError {
    /// RST in answer to our SYN: no process listens there.
    #[error("connection refused")]
    Refused,
    /// The peer sent RST on an established connection.
    #[error("connection reset by peer")]
    Reset,
    /// The peer was silent for longer than retransmission, keepalive or the user timeout allow.
    #[error("connection timed out")]
    TimedOut,
    /// ICMP says that the host cannot be reached.
    #[error("host unreachable")]
    HostUnreachable,
    /// ICMP says that the network cannot be reached.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// This side aborted the connection.
    #[error("connection aborted")]
    Aborted,
    /// The stack does not have the connection's local address any more.
    #[error("the local address was removed")]
    AddressRemoved,
}

/// Why a write took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// No room now; an [`Event::Writable`](crate::Event) follows.
    #[error("no room in the write queue")]
    WouldBlock,
    /// This side has already ended its stream (`shutdown_write`): EPIPE.
    #[error("the sending side is shut down")]
    Shutdown,
    /// The connection is not open yet.
    #[error("not connected")]
    NotConnected,
    /// The connection has ended.
    #[error(transparent)]
    Conn(#[from] ConnError),
}

/// Why a read gave nothing. End of stream is not an error: it is a read of zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing to read now; an [`Event::Readable`](crate::Event) follows.
    #[error("nothing to read")]
    WouldBlock,
    /// The connection is not open yet.
    #[error("not connected")]
    NotConnected,
    /// The connection has ended, and all data received before has been read.
    #[error(transparent)]
    Conn(#[from] ConnError),
}

/// Why `connect` did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The stack has no address of the peer's family, or does not have the requested local address.
    #[error("address not available")]
    AddrNotAvailable,
    /// Every local port to that peer is in use, or the requested one is.
    #[error("address in use")]
    AddrInUse,
    /// There are routes, and none leads to the peer.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// No connection to the peer's address or port is possible (port 0, multicast, unspecified).
    #[error("invalid peer address")]
    InvalidPeer,
    /// The configured maximum number of connections is reached.
    #[error("too many connections")]
    TooManyConnections,
}

/// Why `listen` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has that address and port.
    #[error("address in use")]
    AddrInUse,
    /// The stack does not have that address.
    #[error("address not available")]
    AddrNotAvailable,
    /// As many filters of incoming flows are open as may be.
    #[error("too many filters of incoming flows")]
    TooManyFilters,
}

/// Why a flow was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// There is no such flow any more: its time was over, the peer has given up, or its filter was closed.
    #[error("the flow is gone")]
    Gone,
    /// The configured maximum number of connections is reached; the flow is still pending.
    #[error("too many connections")]
    TooManyConnections,
    /// A flow of datagrams is no connection, and the other way round. It is still pending.
    #[error("a flow of another kind")]
    OtherKind,
    /// There is no room for one more flow, or none between these addresses and ports.
    #[error("no room for this flow")]
    NoRoom,
}

/// Why an option was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The value lies outside the range that the option's documentation gives.
    #[error("value out of range for {0}")]
    OutOfRange(&'static str),
}
