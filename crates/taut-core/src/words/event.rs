//! Notifications for the application; taken with [`Stack::poll_event`](crate::Stack::poll_event).

use super::{ConnError, ConnId, ListenerId};

/// Something became possible, or ended. Each is reported once until it happens again (edges, not levels), so the queue
/// of events is bounded by the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection waits in [`Stack::accept`](crate::Stack::accept).
    Incoming(ListenerId),
    /// Our `connect` succeeded.
    Connected(ConnId),
    /// There is something to read: data or the end of the stream.
    Readable(ConnId),
    /// A write that found no room may be tried again.
    Writable(ConnId),
    /// The connection is over with an error. Also the end of a `connect` that failed.
    Failed(ConnId, ConnError),
    /// Both directions are closed in good order and the peer knows; only bookkeeping is left. Told for
    /// connections whose handle has not been released yet.
    Closed(ConnId),
}
