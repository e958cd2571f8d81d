//! Services at the guest's own loopback addresses, for forwarded ports. A socket stays in the network
//! namespace in which it was made, whichever process uses it; so a process in the guest's namespace makes
//! sockets, and the gateway connects them.
//!
//! ```text
//!   gateway                                          a process in the guest's namespace
//!     a port's client, from the host's loopback
//!     who listens at that port? (sock_diag.rs)
//!     only 127.0.0.1 or ::1: a kind of socket ─────▶ socket(2)
//!     a new socket, not connected    ◀──────────────
//!     connect to that address, join the two
//! ```
//!
//! That process receives no address, so it decides nothing: it has no capability, no file and no standard
//! stream, the guest's programs cannot look into it, and it ends with the gateway. Called by `inside.rs`,
//! which starts it, and by `forward.rs`.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, waitpid};
use socket2::{SockRef, Socket};
use taut::FlowKind;
use taut::device::sys::{Forked, exit_now, fork_alone};
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::doors::resolv_conf::leave_streams;
use crate::doors::sock_diag;
use crate::out::host_sockets::connected;
use crate::out::sockets::prepare;
use crate::sandbox::descriptors::{receive, send};
use crate::sandbox::{Needs, confine};

/// A process that takes longer to make a socket is stopped, or gone.
const TO_ANSWER: Duration = Duration::from_secs(5);

/// A guest to which ports of the host lead.
#[derive(Clone, Debug)]
pub struct ForwardTarget {
    /// Its address.
    pub address: IpAddr,
    /// Its own loopback addresses, where services may listen that listen nowhere else.
    pub loopback: Option<Loopback>,
}

impl From<IpAddr> for ForwardTarget {
    fn from(address: IpAddr) -> Self {
        Self { address, loopback: None }
    }
}

/// The loopback addresses of a guest in a namespace. Clones lead to the same ones.
#[derive(Clone, Debug)]
pub struct Loopback(Arc<Guest>);

#[derive(Debug)]
struct Guest {
    /// The kernel looks up the guest's sockets there.
    lookups: Mutex<OwnedFd>,
    /// The process that makes sockets, unless it has failed once.
    maker: tokio::sync::Mutex<Option<tokio::net::UnixStream>>,
}

impl Loopback {
    /// Must be called in a tokio runtime.
    pub(crate) fn new(lookups: OwnedFd, maker: OwnedFd) -> io::Result<Self> {
        let maker = UnixStream::from(maker);
        maker.set_nonblocking(true)?;
        let maker = tokio::sync::Mutex::new(Some(tokio::net::UnixStream::from_std(maker)?));
        Ok(Self(Arc::new(Guest { lookups: Mutex::new(lookups), maker })))
    }

    /// The guest's loopback address that serves this port, if its outer one does not.
    pub(crate) fn instead_of(&self, outer: SocketAddr, kind: FlowKind) -> Option<SocketAddr> {
        let lookups = self.0.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        // A kernel that does not tell leaves it at the outer one.
        if sock_diag::is_served(&lookups, kind, outer).unwrap_or(true) {
            return None;
        }
        let own = sock_diag::LOOPBACK.map(|own| SocketAddr::new(own, outer.port()));
        own.into_iter().find(|own| sock_diag::is_served(&lookups, kind, *own).unwrap_or(false))
    }

    /// A connection within the guest's namespace.
    pub(crate) async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(FlowKind::Tcp, to).await?;
        prepare(&SockRef::from(&socket))?;
        connected(TcpSocket::from_std_stream(socket.into()), to).await
    }

    /// A socket for datagrams within the guest's namespace, which is connected.
    pub(crate) async fn datagrams(&self, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.socket(FlowKind::Udp, to).await?;
        socket.connect(&to.into())?;
        UdpSocket::from_std(socket.into())
    }

    async fn socket(&self, kind: FlowKind, like: SocketAddr) -> io::Result<Socket> {
        let guest = Arc::clone(&self.0);
        // A task of its own ends, also if its caller has left: the next answer belongs to the next request.
        let made = tokio::spawn(async move {
            let mut maker = guest.maker.lock().await;
            let stream = maker.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            let made = tokio::time::timeout(TO_ANSWER, ask(stream, wanted(kind, like))).await;
            let made = made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if made.is_err() {
                *maker = None;
            }
            made
        });
        let socket = Socket::from(made.await.map_err(io::Error::other)???);
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// A new socket, or why there is none; an error if the process does not answer.
async fn ask(maker: &tokio::net::UnixStream, wanted: u8) -> io::Result<io::Result<OwnedFd>> {
    let sent = || send(maker, &[wanted], &[]);
    maker.async_io(Interest::WRITABLE, sent).await?;
    let mut errno = [0];
    let (len, [socket, ..]) = maker.async_io(Interest::READABLE, || receive(maker, &mut errno)).await?;
    match socket {
        _ if len == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(socket) => Ok(Ok(socket)),
        None => Ok(Err(io::Error::from_raw_os_error(errno[0].into()))),
    }
}

const IS_V6: u8 = 1;
const IS_UDP: u8 = 2;

/// A kind of socket in a byte.
fn wanted(kind: FlowKind, like: SocketAddr) -> u8 {
    (u8::from(like.is_ipv6()) * IS_V6) | (u8::from(kind == FlowKind::Udp) * IS_UDP)
}

/// Starts the process that makes sockets for the holder of the other end of `own`, in the namespace and by a
/// process with one thread. Without it, all but the guest's loopback works. `gateway` is closed there.
pub(crate) fn start(own: UnixStream, gateway: UnixStream) -> UnixStream {
    match fork_alone() {
        Ok(Forked::Parent(pid)) => _ = waitpid(Some(pid), WaitOptions::empty()),
        Ok(Forked::Child) => {
            drop(gateway);
            // The guest's programs have its user's rights, in the same user namespace. They begin after this,
            // and perhaps before `confine`, which sets the same.
            // It is no child of the command (`resolv_conf.rs`).
            if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok()
                && let Ok(Forked::Child) = fork_alone()
            {
                _ = make_sockets(own);
            }
            exit_now(0)
        }
        Err(_) => {}
    }
    gateway
}

fn make_sockets(mut gateway: UnixStream) -> io::Result<()> {
    leave_streams()?;
    confine(Needs { paths: true, ..Needs::default() })?;
    loop {
        let mut wanted = [0];
        gateway.read_exact(&mut wanted)?;
        let is = |bit| wanted[0] & bit != 0;
        let family = if is(IS_V6) { AddressFamily::INET6 } else { AddressFamily::INET };
        let kind = if is(IS_UDP) { SocketType::DGRAM } else { SocketType::STREAM };
        match socket_with(family, kind, SocketFlags::CLOEXEC, None) {
            Ok(socket) => send(&gateway, &[0], &[socket.as_fd()])?,
            // Linux has none above 133.
            Err(errno) => send(&gateway, &[errno.raw_os_error() as u8], &[])?,
        }
    }
}
