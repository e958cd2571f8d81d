//! Where flows go: a trait. `host_sockets.rs` has the host's own sockets.
//!
//! A way out connects, and says why it could not; all else is the same for any of them (`relay.rs`). Its
//! streams have the methods of tokio's and of taut's streams, which both are.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use taut::taut_control::rooms::Queues;
use taut::{FlowKind, Refusal};

use crate::logic::flow::Failure;
use crate::logic::rules::any_port;

/// A way out.
pub trait WayOut: Send + Sync + 'static {
    /// A connection.
    type Stream: Upstream;
    /// A socket for datagrams.
    type Datagrams: Datagrams;
    /// A socket that sends echo requests to one address.
    type Pings: Pings;

    /// Connects. The error's kind says what the guest hears ([`failure`]).
    fn connect(&self, to: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// The address from which a connection would come, or `None` if there is no way. Sends nothing. By
    /// default that of the host's own sockets.
    fn source(&self, to: SocketAddr) -> Option<IpAddr> {
        let socket = std::net::UdpSocket::bind(any_port(to)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    /// A socket at a port of its own, for datagrams to any address of this one's family: one port of a guest
    /// has it for all its flows.
    ///
    /// # Errors
    /// What the guest hears ([`failure`]); [`io::ErrorKind::PermissionDenied`] if this way carries none.
    fn datagrams(&self, like: SocketAddr) -> io::Result<Self::Datagrams>;

    /// A socket for pings to this address.
    ///
    /// # Errors
    /// Those of [`datagrams`](Self::datagrams).
    fn pings(&self, to: IpAddr) -> io::Result<Self::Pings>;
}

/// One connection of a way out. Dropping it closes it gracefully.
pub trait Upstream: Send + Sync + 'static {
    /// Waits until there is something to read, the end, or an error.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits until there is room to write, or an error.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits until the connection is reset. For a connection that cannot tell, for ever.
    fn broken(&self) -> impl Future<Output = ()> + Send;

    /// Takes what has arrived, at most `max` bytes; nothing is the end.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or why the connection ended.
    fn try_take(&self, max: usize) -> io::Result<Bytes>;

    /// Whether there is nothing more to take but the end. A stream that does not know it in time says no.
    ///
    /// # Errors
    /// Why the connection ended: it may not be told again.
    fn is_at_end(&self, _cx: &mut Context<'_>) -> io::Result<bool> {
        Ok(false)
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or why the connection ended.
    fn try_write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends writing: the peer sees a FIN.
    ///
    /// # Errors
    /// Why the connection ended.
    fn finish(&self) -> io::Result<()>;

    /// Closes the connection by a reset.
    fn abort(self);

    /// The rate of the connection and its round trip. Without them, rooms stay large (`run/rooms.rs`).
    fn path(&self) -> Option<Path> {
        None
    }

    /// How many bytes wait in the connection's queues. Without them, `taut explain` does not show the rooms
    /// of this way's connections (`run/looks.rs`).
    fn queues(&self) -> Option<Queues> {
        None
    }

    /// The peer does not wait for the ACK of what was taken.
    fn acknowledge(&self) {}

    /// Has [`writable`](Self::writable) wait if there is no room now, where a write would take bytes beyond
    /// it.
    fn look_for_room(&self) {}

    /// From now on there is room to write only while fewer bytes than this are unsent.
    fn hold_unsent(&self, _bytes: u32) {}

    /// From now on the peer may have sent so many bytes that are not taken.
    fn offer(&self, _bytes: u32) {}

    /// From now on the connection has this priority in the queues of this host (`SO_PRIORITY`).
    fn set_priority(&self, _priority: u32) {}

    /// The peer may send as much as its own kernel and this side find right.
    fn offer_freely(&self) {}
}

/// The state of a connection's sender and receiver, as far as rooms depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Bytes a second that the peer gets, as last measured; 0 if it was not.
    pub rate: u64,
    /// The longest segment that is sent.
    pub snd_mss: u32,
    /// The segments that the peer sends.
    pub rcv_mss: u32,
    /// The shortest round trip.
    pub min_rtt: Duration,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its length.
    pub len: usize,
    /// Its source.
    pub from: SocketAddr,
    /// `IP_TOS` or `IPV6_TCLASS`: DSCP, and the two bits of ECN.
    pub tos: u8,
}

/// A socket for datagrams, which is not connected.
pub trait Datagrams: Send + Sync + 'static {
    /// Waits for a datagram or an error.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives a datagram.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or an error that ICMP reported, about a datagram to anybody.
    fn try_recv(&self, into: &mut [u8]) -> io::Result<Arrived>;

    /// Sends a datagram, with this `IP_TOS` or `IPV6_TCLASS`; with `segment`, several of this length by one
    /// call, of which the last one may be shorter. Returns how many bytes were sent.
    ///
    /// # Errors
    /// Those of [`try_recv`](Self::try_recv); with `segment`, also any if this way, or its path, does not
    /// take several: each is sent alone then.
    fn try_send(&self, data: &[u8], segment: Option<u16>, to: SocketAddr, tos: u8) -> io::Result<usize>;

    /// Hands out what ICMP reported, with the destinations of the datagrams, and returns whether there was
    /// anything. A way that cannot tell more than the error of a call returns false.
    fn hear(&self, _tell: &mut dyn FnMut(SocketAddr, Refusal)) -> bool {
        false
    }
}

/// A socket that sends echo requests.
pub trait Pings: Send + Sync + 'static {
    /// Sends a request.
    fn send(&self, seq: u16, data: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives a reply: its number, and how many bytes of data were copied. Cancel safe.
    fn recv(&self, into: &mut [u8]) -> impl Future<Output = io::Result<(u16, usize)>> + Send;

    /// As [`Datagrams::hear`]; there is one destination.
    fn hear(&self, _tell: &mut dyn FnMut(Refusal)) -> bool {
        false
    }
}

/// What an error of a way out means for the guest.
#[must_use]
pub fn failure(error: &io::Error) -> Failure {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL) => {
            return Failure::NoResources;
        }
        // ICMP protocol unreachable.
        Some(Errno::NOPROTOOPT) => return Failure::Refused,
        _ => {}
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Failure::Refused,
        io::ErrorKind::NetworkUnreachable => Failure::NetworkUnreachable,
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Failure::Prohibited,
        io::ErrorKind::TimedOut => Failure::TimedOut,
        _ => Failure::HostUnreachable,
    }
}

/// What the guest hears of an error about its datagrams. A full queue of this host is no error for it.
#[must_use]
pub fn refusal(error: &io::Error) -> Option<Refusal> {
    match failure(error) {
        Failure::NoResources => None,
        failure => failure.refusal(FlowKind::Udp),
    }
}

/// Writes all of it.
pub(crate) async fn write_all(upstream: &impl Upstream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match upstream.try_write_vectored(&[io::IoSlice::new(bytes)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => upstream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How often a side that cannot announce its end is looked at while the other side makes it wait.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn gw_84_a_full_queue_of_this_host_is_no_error_for_a_guest() {
        for full in [Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(refusal(&full.into()), None, "{full}");
        }
        let unreachable = io::Error::from(Errno::HOSTUNREACH);
        assert_eq!(refusal(&unreachable), Some(Refusal::HostUnreachable));
    }
}
