//! Notifications for the application; taken with [`Stack::poll_event`](crate::Stack::poll_event).

use core::net::IpAddr;

use super::{ConnError, ConnId, DatagramId, FlowId, ListenerId};

/// Something became possible, or ended. Events are edges, not levels: each is reported once until it happens
/// again, so the queue of events is bounded by the number of connections and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection is ready for [`Stack::accept`](crate::Stack::accept), or a flow for
    /// [`Stack::next_flow`](crate::Stack::next_flow): ask until there is none.
    Incoming(ListenerId),
    /// A flow that the application has seen ended undecided: its peer has withdrawn it, or its time is over.
    FlowGone(FlowId),
    /// Our `connect` succeeded.
    Connected(ConnId),
    /// There is something to read: data or the end of the stream.
    Readable(ConnId),
    /// A write that found no room may be tried again, or
    /// [`poll_free`](crate::ConnMut::poll_free) has something to report.
    Writable(ConnId),
    /// The connection ended with an error, or a `connect` failed.
    Failed(ConnId, ConnError),
    /// Both directions were closed without an error and the peer has acknowledged it; only bookkeeping is
    /// left. Reported only for connections that the application has not released yet.
    Closed(ConnId),
    /// A datagram socket has something to receive, or an error to report.
    DatagramReadable(DatagramId),
    /// A datagram socket that found no room has some, or an error to report.
    DatagramWritable(DatagramId),
    /// The first socket has joined this group of multicast: tell the link, if it has members
    /// ([`NetworkChange::JoinGroup`](crate::NetworkChange::JoinGroup)).
    GroupJoined(IpAddr),
    /// The last one has left it.
    GroupLeft(IpAddr),
}
