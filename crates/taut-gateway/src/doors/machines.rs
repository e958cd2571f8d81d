//! Virtual machines at a Unix socket: frames of Ethernet, a server of DHCP and a router, and guests that go
//! and come back.
//!
//! ```text
//!   QEMU, libkrun ── connect ──▶ stream socket ─▶ a port for each connection ┐
//!   vfkit, krunkit ── sends ───▶ datagram socket ─▶ Peer says who is there   ┼▶ one stack ─▶ Server::serve
//!   a program that started the gateway ─▶ connected stream, to its end       ┘
//! ```
//!
//! **A guest goes.** A stream ends with its machine: the machine's flows are reset upstream. A datagram
//! socket tells nothing; twice a second is looked whether the peer is still there
//! (`taut::device::frames::Peer`), and if it is not, all flows end. Either way the socket stays, and the next
//! machine is served like the first.
//!
//! **Several machines** are at one link: a stream socket is a switch (`taut::device::frames::Switch`), by
//! which they reach each other, too, and no rule judges that. To the limits, a machine is one guest, whatever
//! addresses it uses (`logic/guests.rs`). A datagram socket has one machine at a time: its queue for all
//! peers is one, and a machine that does not read would stop the others.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use taut::device::frames::{LeaseTable, Peer, PortLog, PortNews, Ports, Switch};
use taut::device::{
    CaptureFile, Cidr, Device, FixedLease, Frames, FramesOptions, Leases, PortId, Refused, SearchDomains,
    Services,
};
use taut::network::Network;
use taut::{Stack, StackBuilder};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::doors::forward::is_passing;
use crate::doors::live::Live;
use crate::out::way_out::WayOut;
use crate::run::server::Server;

/// The gateway's station: the same in every stack, so that a guest that was away finds it where it was.
const STATION: [u8; 6] = *b"\x02taut\x02";
/// Its address as a router (RFC 4861 §4.2: of the link).
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
/// Stations that get an address: 15 of each of 16 machines (`taut-ethernet/src/switch.rs`).
const LEASES: u8 = 240;
const LEASE_S: u32 = 86_400;
/// How often is looked whether the peer of a datagram socket is there.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Machines that may wait until one is accepted.
const BACKLOG: i32 = 8;
/// Before a listener that could not accept is tried again, or a machine after one that cannot be served.
const PAUSE: Duration = Duration::from_millis(500);

/// How frames come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmSocket {
    /// A stream, with a length in front of each frame: QEMU's `-netdev stream`, libkrun; the protocol of
    /// passt's socket.
    Stream,
    /// Datagrams: vfkit, krunkit, QEMU's `-netdev dgram`; the protocol of gvproxy's `unixgram`.
    Datagrams,
}

/// The network of a machine.
#[derive(Clone, Debug)]
pub struct MachineNetwork {
    /// The guest's address and the gateway's, for each family. That of IPv6 is the link's prefix: a guest
    /// makes its address by itself.
    pub addresses: Vec<(Cidr, Cidr)>,
    /// The MTU, which the guest is told.
    pub mtu: u16,
    /// Domains that the guest is told to search.
    pub search: SearchDomains,
    /// Addresses that are given by station.
    pub fixed: Vec<FixedLease>,
    /// Gets the frames of all machines.
    pub capture: Option<CaptureFile>,
}

/// What happens at the socket.
#[derive(Debug)]
pub enum MachineEvent<'a> {
    /// A machine is there.
    Came,
    /// It is gone, with the reason if there is one.
    Gone(Option<&'a io::Error>),
    /// It is gone, and no other can come.
    Ended(&'a io::Error),
    /// One more was turned away.
    TurnedAway,
    /// A machine has sent what another one has.
    Refused(Refused),
    /// The machine could not be served.
    Failed(&'a io::Error),
}

/// Whom they are reported to.
pub type MachineLog = Box<dyn Fn(&MachineEvent<'_>) + Send + Sync>;

/// A socket at which machines come.
#[derive(Debug)]
pub struct Machines(Socket);

#[derive(Debug)]
enum Socket {
    Stream(UnixListener),
    /// For the first machine only.
    Once(UnixListener),
    /// One that is connected already.
    Connected(UnixStream),
    Datagrams(UnixDatagram),
}

impl MachineNetwork {
    /// The stack's addresses: those of the gateway.
    fn own(&self) -> Vec<Cidr> {
        let router = self.has_v6().then(|| Cidr::new(ROUTER.into(), 64)).flatten();
        self.addresses.iter().map(|(_, own)| *own).chain(router).collect()
    }

    fn has_v6(&self) -> bool {
        self.addresses.iter().any(|(guest, _)| guest.address().is_ipv6())
    }

    fn options(&self) -> FramesOptions {
        let network = |own: &Cidr| Network { address: own.address(), prefix: own.prefix() };
        let leases = self.addresses.iter().find_map(|(guest, own)| match guest.address() {
            IpAddr::V4(first) => Some(Leases { own: network(own), first, count: LEASES, time_s: LEASE_S }),
            IpAddr::V6(_) => None,
        });
        let of_v6 = self.addresses.iter().filter(|(guest, _)| guest.address().is_ipv6());
        let services = Services {
            leases,
            router: self.has_v6().then_some(ROUTER),
            prefixes: of_v6.map(|(_, own)| network(own)).collect(),
            name_servers: self.addresses.iter().map(|(_, own)| own.address()).collect(),
            mtu: Some(self.mtu),
            managed: true,
            search: self.search.clone(),
            fixed: self.fixed.clone(),
            ..Services::default()
        };
        FramesOptions {
            mtu: self.mtu,
            mac: Some(taut::device::packet::Mac(STATION)),
            services,
            capture: self.capture.clone(),
            ..FramesOptions::default()
        }
    }

    fn stack(&self, builder: StackBuilder, device: impl Into<Device>) -> io::Result<Stack> {
        let addressed = self.own().iter().fold(builder, |builder, own| builder.address(&own.to_string()));
        addressed.device(device).build_tokio()
    }
}

impl Machines {
    /// Makes the socket. A file that a gateway has left there is replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another program is there, or a file that is no socket; those of
    /// `bind(2)`.
    pub fn listen(plug: VmSocket, path: &Path) -> io::Result<Self> {
        match plug {
            VmSocket::Stream => listen_at(path, BACKLOG).map(|socket| Self(Socket::Stream(socket))),
            VmSocket::Datagrams => {
                let socket = make_place(path).and_then(|()| own(SocketType::DGRAM, path));
                let socket = socket.map_err(|error| named(path, &error))?;
                Ok(Self(Socket::Datagrams(socket.into())))
            }
        }
    }

    /// The same for a stream and one machine: when that is gone, [`serve`](Self::serve) returns.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn listen_once(path: &Path) -> io::Result<Self> {
        listen_at(path, BACKLOG).map(|socket| Self(Socket::Once(socket)))
    }

    /// The machine at the other end of this stream, which is the only one.
    ///
    /// # Errors
    /// It is not a stream socket that is connected.
    pub fn connected(socket: OwnedFd) -> io::Result<Self> {
        if sockopt::socket_type(&socket)? != SocketType::STREAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a stream socket"));
        }
        rustix::net::getpeername(&socket)?;
        Ok(Self(Socket::Connected(socket.into())))
    }

    /// Serves the machines that come. What it returns must be polled, in a tokio runtime, and ends only when
    /// the socket does.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub async fn serve<W: WayOut>(
        self,
        live: &Live,
        way: Arc<W>,
        network: &MachineNetwork,
        builder: impl Fn() -> io::Result<StackBuilder>,
        log: &MachineLog,
    ) -> io::Result<()> {
        let service = Service { live, way, network, builder, log };
        match self.0 {
            Socket::Stream(listener) => {
                listener.set_nonblocking(true)?;
                service.streams(&tokio::net::UnixListener::from_std(listener)?).await
            }
            Socket::Once(listener) => {
                listener.set_nonblocking(true)?;
                let first = accept(&tokio::net::UnixListener::from_std(listener)?).await?.into_std()?;
                service.only(first).await
            }
            Socket::Connected(socket) => service.only(socket).await,
            Socket::Datagrams(socket) => service.datagrams(socket).await,
        }
    }
}

/// What the machines of one socket are served with.
struct Service<'a, W, B> {
    live: &'a Live,
    way: Arc<W>,
    network: &'a MachineNetwork,
    builder: B,
    log: &'a MachineLog,
}

impl<W: WayOut, B: Fn() -> io::Result<StackBuilder>> Service<'_, W, B> {
    /// Several at once.
    async fn streams(&self, listener: &tokio::net::UnixListener) -> io::Result<()> {
        // Each port has three events at most.
        let (to, mut news) = mpsc::unbounded_channel();
        let log: PortLog = Box::new(move |news| _ = to.send(news));
        let switch = Switch::new(&self.network.own(), &self.network.options(), log)?;
        let (ports, leases) = (switch.ports(), switch.leases());
        let stack = self.network.stack((self.builder)()?, switch)?;
        let server = self.live.server();
        server.serves_machines(ports.clone(), leases.clone());
        let mut task = JoinSet::new();
        task.spawn(server.serve(&stack, Arc::clone(&self.way))?);
        let mut here = Vec::new();
        loop {
            tokio::select! {
                socket = accept(listener) => match ports.plug(socket?.into_std()?) {
                    Ok(Some(id)) => self.came(&mut here, (id, &ports), &stack, &leases).await,
                    Ok(None) => (self.log)(&MachineEvent::TurnedAway),
                    Err(error) => {
                        (self.log)(&MachineEvent::Failed(&error));
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(news) = news.recv() => match news {
                    PortNews::Refused(_, why) => (self.log)(&MachineEvent::Refused(why)),
                    PortNews::Gone(id, why) => {
                        server.end_machine(id);
                        here.retain(|known| *known != id);
                        if here.is_empty() {
                            // The ports are free when the next machine comes.
                            self.live.close().await;
                        }
                        (self.log)(&MachineEvent::Gone(Some(&why)));
                    }
                },
                end = ended(&mut task) => return Err(end),
            }
        }
    }

    /// A machine is there. The first one opens the ports that lead to a guest.
    async fn came(
        &self,
        here: &mut Vec<PortId>,
        (id, ports): (PortId, &Ports),
        stack: &Stack,
        leases: &LeaseTable,
    ) {
        let open = || self.live.open(stack, self.live.guest().into(), Some(leases.clone()));
        if let Err(error) = if here.is_empty() { open() } else { Ok(()) } {
            ports.unplug(id);
            (self.log)(&MachineEvent::Failed(&error));
            tokio::time::sleep(PAUSE).await;
            return;
        }
        here.push(id);
        (self.log)(&MachineEvent::Came);
    }

    /// One machine, to its end.
    async fn only(&self, socket: UnixStream) -> io::Result<()> {
        let device = Frames::stream(socket, &self.network.own(), &self.network.options())?;
        let leases = device.leases();
        let stack = self.network.stack((self.builder)()?, device)?;
        (self.log)(&MachineEvent::Came);
        let end = self.stack(&stack, leases).await?;
        (self.log)(&MachineEvent::Ended(&end));
        Ok(())
    }

    async fn datagrams(&self, socket: UnixDatagram) -> io::Result<()> {
        let (device, peer) = Frames::to_sender(socket, &self.network.own(), &self.network.options())?;
        let leases = device.leases();
        let stack = self.network.stack((self.builder)()?, device)?;
        tokio::select! {
            end = self.stack(&stack, leases) => Err(end?),
            end = watch(&peer, self.live.server(), self.log) => end,
        }
    }

    /// Serves a stack and the ports that lead to its guest, until the stack ends; returns why it did.
    async fn stack(&self, stack: &Stack, leases: LeaseTable) -> io::Result<io::Error> {
        self.live.open(stack, self.live.guest().into(), Some(leases))?;
        let mut task = JoinSet::new();
        task.spawn(self.live.server().serve(stack, Arc::clone(&self.way))?);
        Ok(ended(&mut task).await)
    }
}

/// Why a stack has ended.
async fn ended(task: &mut JoinSet<io::Error>) -> io::Error {
    match task.join_next().await {
        Some(Ok(end)) => end,
        Some(Err(error)) => error.into(),
        None => io::ErrorKind::NotConnected.into(),
    }
}

/// Looks whether the peer of a datagram socket is there, and ends the flows of one that is not.
async fn watch(peer: &Peer, server: &Server, log: &MachineLog) -> io::Result<()> {
    let mut was_there = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let is_there = peer.is_there()?;
        match (was_there, is_there) {
            (false, true) => log(&MachineEvent::Came),
            (true, false) => {
                server.end_all();
                log(&MachineEvent::Gone(None));
            }
            _ => {}
        }
        was_there = is_there;
    }
}

async fn accept(listener: &tokio::net::UnixListener) -> io::Result<tokio::net::UnixStream> {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return Ok(socket),
            Err(error) if is_passing(&error) => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error),
        }
    }
}

/// A Unix socket at a path, at which this user alone comes in. A file that a gateway has left there is
/// replaced.
///
/// # Errors
/// Those of [`Machines::listen`].
pub fn listen_at(path: &Path, backlog: i32) -> io::Result<UnixListener> {
    let listen = || {
        make_place(path)?;
        let socket = own(SocketType::STREAM, path)?;
        rustix::net::listen(&socket, backlog)?;
        Ok(socket.into())
    };
    listen().map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A socket at a path, at which this user alone comes in.
fn own(kind: SocketType, path: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // Linux gives the file the mode of the socket, so that it is never open to others, not even for a moment.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Removes a socket that nobody has.
fn make_place(path: &Path) -> io::Result<()> {
    let in_use = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => in_use("it exists, and is no socket"),
        Ok(_) if UnixStream::connect(path).is_ok() || is_heard(path) => {
            in_use("another program has this socket")
        }
        Ok(_) => fs::remove_file(path),
    }
}

/// Whether somebody has the datagram socket at this path.
fn is_heard(path: &Path) -> bool {
    UnixDatagram::unbound().and_then(|socket| socket.connect(path)).is_ok()
}
