//! What an application says about a datagram socket and about each datagram, by Linux's names; and what it is
//! told.

use core::net::{IpAddr, SocketAddr};

use crate::words::{DatagramId, Instant};

/// The protocol of a datagram socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DatagramKind {
    /// UDP.
    Udp,
    /// Echo requests and their replies, of ICMP or ICMPv6. A datagram is an ICMP message, its port is 0; the
    /// stack writes the identifier, which is the socket's port, and the checksum.
    Ping,
    /// The other side of it: an echo flow that [came in](crate::Stack::incoming). It receives requests, and
    /// sends replies. A datagram is an ICMP message; the stack writes its type, identifier and checksum.
    Echo,
}

/// What happens to a datagram that is larger than the path's MTU. Linux: `IP_MTU_DISCOVER`,
/// `IPV6_MTU_DISCOVER`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// It is fragmented, and routers may fragment others (DF is not set). `IP_PMTUDISC_DONT`.
    Dont,
    /// It is fragmented; those that fit have DF. `IP_PMTUDISC_WANT`.
    #[default]
    Want,
    /// It is refused with EMSGSIZE. `IP_PMTUDISC_DO`.
    Do,
    /// It is sent with DF if the link carries it, whatever is known about the path. `IP_PMTUDISC_PROBE`.
    Probe,
}

/// The options with which a datagram socket starts; the defaults are those of a new Linux socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramOptions {
    /// `SO_SNDBUF` in bytes; it is doubled, as in Linux.
    pub sndbuf: Option<u32>,
    /// `SO_RCVBUF` in bytes; it is doubled, as in Linux.
    pub rcvbuf: Option<u32>,
    /// `IP_TTL` or `IPV6_UNICAST_HOPS`; the stack's `ip_default_ttl` if none is set. Not 0.
    pub ttl: Option<u8>,
    /// `IP_TOS` or `IPV6_TCLASS`: the whole byte, the ECN field included.
    pub tos: u8,
    /// `IP_MTU_DISCOVER`.
    pub mtu_discovery: MtuDiscovery,
    /// `SO_MAX_PACING_RATE` in bytes per second.
    pub max_pacing_rate: Option<u64>,
    /// `UDP_GRO`: datagrams that arrived in one piece are received in one piece, with the size of each.
    pub gro: bool,
    /// `IP_RECVERR`: each ICMP error about a datagram of this socket is kept for
    /// [`recv_datagram_error`](crate::Stack::recv_datagram_error).
    pub recv_errors: bool,
    /// `IPV6_V6ONLY`: a socket at `::` does not receive over IPv4.
    pub only_v6: bool,
    /// `IP_MULTICAST_TTL` or `IPV6_MULTICAST_HOPS`: of datagrams to groups; 1 if none is set.
    pub multicast_ttl: Option<u8>,
}

/// An option to set on an open datagram socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramOption {
    /// [`DatagramOptions::sndbuf`].
    Sndbuf(u32),
    /// [`DatagramOptions::rcvbuf`].
    Rcvbuf(u32),
    /// [`DatagramOptions::ttl`].
    Ttl(u8),
    /// [`DatagramOptions::tos`].
    Tos(u8),
    /// [`DatagramOptions::mtu_discovery`].
    MtuDiscovery(MtuDiscovery),
    /// [`DatagramOptions::max_pacing_rate`].
    MaxPacingRate(Option<u64>),
    /// [`DatagramOptions::gro`].
    Gro(bool),
    /// [`DatagramOptions::recv_errors`].
    RecvErrors(bool),
    /// Receive what is sent to this group of multicast, too. Linux: `IP_ADD_MEMBERSHIP`, `IPV6_JOIN_GROUP`.
    JoinGroup(IpAddr),
    /// No more. Linux: `IP_DROP_MEMBERSHIP`, `IPV6_LEAVE_GROUP`.
    LeaveGroup(IpAddr),
    /// [`DatagramOptions::multicast_ttl`].
    MulticastTtl(u8),
}

/// What is said about one datagram that is sent. Linux: ancillary data of `sendmsg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendMeta {
    /// `IP_TTL`, `IPV6_HOPLIMIT`. Not 0.
    pub ttl: Option<u8>,
    /// `IP_TOS`, `IPV6_TCLASS`: the whole byte, the ECN field included.
    pub tos: Option<u8>,
    /// The source address, of a socket that is bound to none. Linux: `IP_PKTINFO`.
    pub src: Option<IpAddr>,
    /// The payload is several datagrams of so many bytes, the last one possibly shorter. Linux:
    /// `UDP_SEGMENT`.
    pub segment: Option<u16>,
    /// The earliest time at which it may leave. Linux: `SCM_TXTIME`.
    pub departure: Option<Instant>,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Bytes that were copied.
    pub len: usize,
    /// Bytes that it has; those beyond [`len`](Self::len) are lost, as with `MSG_TRUNC`.
    pub whole: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// The address that it was sent to. Linux: `IP_PKTINFO`.
    pub to: IpAddr,
    /// `IP_TOS`, `IPV6_TCLASS`: the whole byte, the ECN field included.
    pub tos: u8,
    /// `IP_TTL`, `IPV6_HOPLIMIT`.
    pub ttl: u8,
    /// It is several datagrams of so many bytes; 0 if it is one. Linux: `UDP_GRO`.
    pub segment: u16,
}

/// A snapshot of a datagram socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramInfo {
    /// Its name.
    pub id: DatagramId,
    /// Its protocol.
    pub kind: DatagramKind,
    /// The address that it is bound to.
    pub local: SocketAddr,
    /// The address that it is connected to.
    pub peer: Option<SocketAddr>,
    /// What waits to be received, as it counts against `rcvbuf`.
    pub recv_queue: u32,
    /// What was sent and has not left this host, as it counts against `sndbuf`.
    pub send_queue: u32,
    /// `SO_RCVBUF`, doubled.
    pub rcvbuf: u32,
    /// `SO_SNDBUF`, doubled.
    pub sndbuf: u32,
    /// Datagrams that arrived when there was no room for them.
    pub drops: u64,
}
