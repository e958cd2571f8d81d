//! The common part of the sockets without connections, asynchronous and blocking, of UDP and of ping: each
//! operation is an attempt that is ready, pending, or failed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use taut_core::{
    DatagramError, DatagramId, DatagramInfo, DatagramKind, DatagramOption, DatagramOptions, IcmpReport,
    Received, Refusal, SendMeta,
};
use taut_driver::{Access, Interest, Shard};

use crate::error;
use crate::stack::{Stack, WeakStack};
use crate::wait::{Attempt, now_or_would_block};

/// A socket that an application holds. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) shard: Arc<Shard>,
    id: DatagramId,
    /// For names; one that belongs to a flow has none.
    stack: WeakStack,
}

fn result<T>(result: Result<T, DatagramError>) -> Attempt<T> {
    match result {
        Err(DatagramError::WouldBlock) => Poll::Pending,
        other => Poll::Ready(other.map_err(error::datagram)),
    }
}

impl Socket {
    /// That of a flow that was accepted.
    pub(crate) const fn held(shard: Arc<Shard>, id: DatagramId) -> Self {
        Self { shard, id, stack: WeakStack::none() }
    }

    /// The stack that looks names up for it.
    pub(crate) fn stack(&self) -> io::Result<Stack> {
        let none =
            || io::Error::new(io::ErrorKind::InvalidInput, "no names are looked up here: give an address");
        self.stack.upgrade().ok_or_else(none)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn flow_from(&self, local: SocketAddr) -> io::Result<Self> {
        let begun = self.now(|access| {
            Poll::Ready(access.stack.begin_flow_from(access.now, self.id, local).map_err(error::flow))
        })?;
        Ok(Self::held(Arc::clone(&self.shard), begun))
    }

    pub(crate) fn refuse(&self, how: Refusal) -> io::Result<bool> {
        self.now(|access| result(access.stack.refuse_datagrams(access.now, self.id, how)))
    }

    /// All packets to a port belong to one shard, and the socket is there.
    pub(crate) fn bind(
        stack: &Stack,
        kind: DatagramKind,
        at: SocketAddr,
        options: &DatagramOptions,
    ) -> io::Result<Self> {
        let shards = stack.shards();
        let index = match at.port() {
            0 => 0,
            port => shards[0].access(|access| access.stack.owner_of_port(port)).unwrap_or(0),
        };
        let shard = &shards[index % shards.len()];
        let opened = shard.attempt(|access| {
            Poll::Ready(access.stack.open_datagram(kind, at, options).map_err(error::listen))
        });
        Ok(Self { shard: Arc::clone(shard), id: now_or_would_block(opened)?, stack: stack.downgrade() })
    }

    pub(crate) const fn recv_interest(&self) -> Interest {
        Interest::RecvFrom(self.id)
    }

    pub(crate) const fn send_interest(&self) -> Interest {
        Interest::SendTo(self.id)
    }

    // Attempts.

    pub(crate) fn send(
        &self,
        access: &mut Access<'_>,
        to: Option<SocketAddr>,
        message: &[u8],
        meta: &SendMeta,
    ) -> Attempt<usize> {
        let now = access.now;
        result(access.stack.send_datagram(now, self.id, to, message, meta).map(|()| message.len()))
    }

    pub(crate) fn recv(&self, access: &mut Access<'_>, into: &mut [u8], peek: bool) -> Attempt<Received> {
        result(access.stack.recv_datagram(self.id, into, peek))
    }

    pub(crate) fn readable(&self, access: &Access<'_>) -> Attempt<()> {
        if access.stack.is_datagram_readable(self.id) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    pub(crate) fn writable(&self, access: &mut Access<'_>) -> Attempt<()> {
        if access.stack.is_datagram_writable(self.id) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    // Commands.

    pub(crate) fn now<T>(&self, attempt: impl FnOnce(&mut Access<'_>) -> Attempt<T>) -> io::Result<T> {
        now_or_would_block(self.shard.attempt(attempt))
    }

    pub(crate) fn connect(&self, to: Option<SocketAddr>) -> io::Result<()> {
        self.now(|access| result(access.stack.connect_datagram(self.id, to)))
    }

    pub(crate) fn set(&self, option: DatagramOption) -> io::Result<()> {
        self.now(|access| result(access.stack.set_datagram_option(self.id, option)))
    }

    pub(crate) fn options(&self) -> io::Result<DatagramOptions> {
        self.now(|access| result(access.stack.datagram_options(self.id).ok_or(DatagramError::Closed)))
    }

    pub(crate) fn info(&self) -> io::Result<DatagramInfo> {
        self.now(|access| result(access.stack.datagram(self.id).ok_or(DatagramError::Closed)))
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.now(|access| Poll::Ready(Ok(access.stack.take_datagram_error(self.id).map(error::datagram))))
    }

    pub(crate) fn recv_error(&self) -> io::Result<Option<IcmpReport>> {
        self.now(|access| Poll::Ready(Ok(access.stack.recv_datagram_error(self.id))))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shard.access(|access| {
            // No task may keep waiting here: the slot may soon have a new owner.
            access.wake(self.recv_interest());
            access.wake(self.send_interest());
            access.stack.close_datagram(self.id);
        });
    }
}

/// The methods that all sockets without connections have.
macro_rules! datagram_methods {
    () => {
        /// The address that the socket is bound to.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
            self.socket.info().map(|info| info.local)
        }

        /// The address that the socket is connected to.
        ///
        /// # Errors
        /// [`NotConnected`](std::io::ErrorKind::NotConnected), or the stack was shut down.
        pub fn peer_addr(&self) -> std::io::Result<std::net::SocketAddr> {
            self.socket.info()?.peer.ok_or_else(crate::error::gone)
        }

        /// What waits in its buffers, and what was dropped.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn info(&self) -> std::io::Result<taut_core::DatagramInfo> {
            self.socket.info()
        }

        /// Sets any option.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a value out of range.
        pub fn set_option(&self, option: taut_core::DatagramOption) -> std::io::Result<()> {
            self.socket.set(option)
        }

        /// `IP_TTL` or `IPV6_UNICAST_HOPS`, as last set; 0 if the stack's value is used.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn ttl(&self) -> std::io::Result<u32> {
            self.socket.options().map(|options| options.ttl.unwrap_or(0).into())
        }

        /// `IP_TTL` or `IPV6_UNICAST_HOPS`: 1 to 255.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for another value.
        pub fn set_ttl(&self, ttl: u32) -> std::io::Result<()> {
            self.socket.set(taut_core::DatagramOption::Ttl(u8::try_from(ttl).unwrap_or(0)))
        }

        /// `IP_TOS` or `IPV6_TCLASS`, as last set.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn tos(&self) -> std::io::Result<u8> {
            self.socket.options().map(|options| options.tos)
        }

        /// `IP_TOS` or `IPV6_TCLASS`: the whole byte, the two bits of ECN included.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn set_tos(&self, tos: u8) -> std::io::Result<()> {
            self.socket.set(taut_core::DatagramOption::Tos(tos))
        }

        /// The error that the next call would return, which it then does not. Linux: `SO_ERROR`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
            self.socket.take_error()
        }

        /// The oldest ICMP error that waits, of a socket that asked for them
        /// ([`DatagramOptions::recv_errors`](taut_core::DatagramOptions::recv_errors)). Linux:
        /// `MSG_ERRQUEUE`.
        ///
        /// # Errors
        /// The stack was shut down.
        pub fn recv_error(&self) -> std::io::Result<Option<taut_core::IcmpReport>> {
            self.socket.recv_error()
        }
    };
}
/// A group, from any of the types of its address.
pub(crate) struct Group(pub(crate) std::net::IpAddr);

macro_rules! group_from {
    ($($type:ty: $group:ident => $ip:expr;)*) => {
        $(impl From<$type> for Group {
            fn from($group: $type) -> Self {
                Self($ip.into())
            }
        })*
    };
}

group_from! {
    std::net::Ipv4Addr: group => group;
    std::net::Ipv6Addr: group => group;
    &std::net::Ipv4Addr: group => *group;
    &std::net::Ipv6Addr: group => *group;
}

/// Membership in groups of multicast, of sockets of UDP: by value in tokio's, by reference in std's.
macro_rules! multicast_methods {
    ($v4:ty, $v6:ty) => {
        /// Receive what is sent to this group of multicast, too. Linux: `IP_ADD_MEMBERSHIP`. A stack has one
        /// interface, so the second address says nothing. The socket must be bound to its port at any
        /// address. Several shards: the group's datagrams are received by the shard to which they come, so
        /// use one.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for what is no group or was joined before;
        /// [`QuotaExceeded`](std::io::ErrorKind::QuotaExceeded) for more than 20 groups of a socket, or 64 of
        /// all.
        pub fn join_multicast_v4(&self, group: $v4, _interface: $v4) -> std::io::Result<()> {
            self.socket
                .set(taut_core::DatagramOption::JoinGroup(crate::common::datagram::Group::from(group).0))
        }

        /// [`join_multicast_v4`](Self::join_multicast_v4) for IPv6. Linux: `IPV6_JOIN_GROUP`.
        ///
        /// # Errors
        /// The same.
        pub fn join_multicast_v6(&self, group: $v6, _interface: u32) -> std::io::Result<()> {
            self.socket
                .set(taut_core::DatagramOption::JoinGroup(crate::common::datagram::Group::from(group).0))
        }

        /// No more. Linux: `IP_DROP_MEMBERSHIP`. A socket that is closed leaves all its groups.
        ///
        /// # Errors
        /// [`AddrNotAvailable`](std::io::ErrorKind::AddrNotAvailable) if it has not joined the group.
        pub fn leave_multicast_v4(&self, group: $v4, _interface: $v4) -> std::io::Result<()> {
            self.socket
                .set(taut_core::DatagramOption::LeaveGroup(crate::common::datagram::Group::from(group).0))
        }

        /// The same for IPv6. Linux: `IPV6_LEAVE_GROUP`.
        ///
        /// # Errors
        /// Those of [`leave_multicast_v4`](Self::leave_multicast_v4).
        pub fn leave_multicast_v6(&self, group: $v6, _interface: u32) -> std::io::Result<()> {
            self.socket
                .set(taut_core::DatagramOption::LeaveGroup(crate::common::datagram::Group::from(group).0))
        }

        /// `IP_MULTICAST_TTL` or `IPV6_MULTICAST_HOPS`: of datagrams to groups; 1 by default, so that they
        /// stay on the link.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) above 255.
        pub fn set_multicast_ttl_v4(&self, ttl: u32) -> std::io::Result<()> {
            let ttl = u8::try_from(ttl).map_err(|_| std::io::ErrorKind::InvalidInput)?;
            self.socket.set(taut_core::DatagramOption::MulticastTtl(ttl))
        }
    };
}
pub(crate) use multicast_methods;

pub(crate) use datagram_methods;

/// The methods of sockets that may be of a flow.
macro_rules! flow_socket_methods {
    () => {
        /// Tells the peer of a [flow](crate::IncomingFlows), by an ICMP error about its latest datagram, that
        /// datagrams do not arrive; as a gateway does when it hears so from beyond. The socket stays open.
        /// Returns false if the limit on ICMP errors, 50 at once and 1,000 a second, does not allow it now.
        ///
        /// # Errors
        /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) for a socket that is not of a flow, or the
        /// stack was shut down.
        pub fn refuse(&self, how: taut_core::Refusal) -> std::io::Result<bool> {
            self.socket.refuse(how)
        }
    };
}
pub(crate) use flow_socket_methods;

/// An echo request of a flow.
///
/// ```no_run
/// # fn example(socket: &taut::blocking::EchoSocket) -> std::io::Result<()> {
/// let mut data = [0; 1500];
/// let taut::EchoRequest { seq, len, .. } = socket.recv(&mut data)?;
/// socket.send(seq, &data[..len])?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EchoRequest {
    /// Its sequence number.
    pub seq: u16,
    /// Bytes of its data that were copied.
    pub len: usize,
    /// The time to live, or hop limit, with which it arrived.
    pub ttl: u8,
}

/// A ping's message: the start of an echo request, and the data.
pub(crate) fn echo_request(to: SocketAddr, seq: u16, data: &[u8]) -> Vec<u8> {
    let mut message = taut_wire::icmp::echo_request(to.ip().to_canonical().is_ipv4(), seq).to_vec();
    message.extend_from_slice(data);
    message
}

/// The answer to a ping.
///
/// ```no_run
/// # fn example(socket: &taut::blocking::PingSocket) -> std::io::Result<()> {
/// let mut data = [0; 1500];
/// let taut::PingReply { from, seq, len, ttl, .. } = socket.recv(&mut data)?;
/// println!("{len} bytes from {from}: seq {seq}, ttl {ttl}");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PingReply {
    /// Who answered.
    pub from: std::net::IpAddr,
    /// The request's sequence number.
    pub seq: u16,
    /// Bytes of the request's data that were copied.
    pub len: usize,
    /// The time to live, or hop limit, with which the answer arrived.
    pub ttl: u8,
}

/// Takes an ICMP message of `received.len` bytes in `message` apart, and copies its data.
pub(crate) fn reply_of(received: &Received, message: &[u8], into: &mut [u8]) -> PingReply {
    let message = message.get(..received.len).unwrap_or_default();
    let seq = message.get(6..8).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let data = message.get(8..).unwrap_or_default();
    let len = data.len().min(into.len());
    into[..len].copy_from_slice(&data[..len]);
    PingReply { from: received.from.ip(), seq, len, ttl: received.ttl }
}
