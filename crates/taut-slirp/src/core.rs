//! All parts of the runner share this: the stack, the gateway's logic, the time.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use taut_core::{ConnOptions, Instant, Stack};
use taut_gateway::{FlowId, Gateway, NameServers, sockets};

use crate::config::Config;

/// Bytes that are taken from a socket at once.
pub(crate) const AT_ONCE: usize = 64 << 10;

/// Events of a file: `SLIRP_POLL_*` of libslirp.h.
pub(crate) mod interest {
    pub(crate) const IN: i32 = 1;
    pub(crate) const OUT: i32 = 2;
    pub(crate) const PRI: i32 = 4;
    pub(crate) const ERR: i32 = 8;
    pub(crate) const HUP: i32 = 16;
}

/// The owner of a file that the caller's loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Connection(usize),
    Port(SocketAddr),
    Ping(usize),
    Asked(usize),
    Forward(usize),
}

/// A file that the caller's loop waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub(crate) fd: RawFd,
    pub(crate) interest: i32,
    pub(crate) key: Key,
}

/// Bytes for a service of the caller's own, who gets them when nothing is borrowed any more.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) at: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// See the top of the file.
pub(crate) struct Core {
    pub(crate) stack: Stack,
    pub(crate) gateway: Gateway,
    pub(crate) config: Config,
    /// Those that the user has named, or else the host's.
    pub(crate) named_servers: Vec<SocketAddr>,
    pub(crate) host_servers: NameServers,
    pub(crate) now: Instant,
    pub(crate) calls: VecDeque<Call>,
    /// Questions that guests sent on connections, and answers to them; empty if there is none.
    pub(crate) questions: VecDeque<(FlowId, IpAddr, Vec<u8>)>,
    pub(crate) answers: VecDeque<(FlowId, Vec<u8>)>,
    /// Files, or their events, have changed since the caller's loop got them.
    pub(crate) is_changed: bool,
    /// Where sockets are read to.
    pub(crate) scratch: Vec<u8>,
}

impl Core {
    /// The time, as the gateway counts it.
    pub(crate) const fn time(&self) -> Duration {
        Duration::from_nanos(self.now.as_nanos())
    }

    /// The name servers.
    pub(crate) fn name_servers(&self) -> Vec<SocketAddr> {
        if self.named_servers.is_empty() { self.host_servers.get() } else { self.named_servers.clone() }
    }

    /// The flow counts no more.
    pub(crate) fn closed(&mut self, flow: FlowId) {
        self.gateway.closed(flow);
    }

    /// The address from which this host reaches others of the same family.
    pub(crate) fn outbound(&self, like: SocketAddr) -> Option<SocketAddr> {
        // The loopback is reached from itself.
        if like.ip().is_loopback() {
            return None;
        }
        match like {
            SocketAddr::V4(_) => self.config.outbound.map(SocketAddr::V4),
            SocketAddr::V6(_) => self.config.outbound_v6.map(SocketAddr::V6),
        }
    }

    /// A connection of the host's that has begun.
    pub(crate) fn connect(&self, to: SocketAddr) -> std::io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        sockets::prepare(&SockRef::from(&socket))?;
        if let Some(from) = self.outbound(to) {
            socket.bind(&from.into())?;
        }
        begun(socket.connect(&to.into()))?;
        Ok(socket)
    }
}

/// A connection that does not block has begun.
pub(crate) fn begun(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        result => result,
    }
}

/// Whether a call would have to wait.
pub(crate) fn waits(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
}

/// The longest segment from and to a guest: two fill a packet of 65,520 bytes. A frame carries one segment,
/// so short ones mean many frames. A room holds two segments at least, and two of 65,480 bytes would be 52 ms
/// of 20 Mbit/s.
const SEGMENT_MAX: u16 = (65_520 - 40) / 2;

/// The options of a connection to a guest.
pub(crate) fn near(bind: Option<SocketAddr>) -> ConnOptions {
    ConnOptions { maxseg: Some(SEGMENT_MAX), ..taut_gateway::near(bind) }
}

/// Any port of the family of this address.
pub(crate) fn any_port(like: SocketAddr) -> SocketAddr {
    let any: IpAddr = match like {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, 0)
}
