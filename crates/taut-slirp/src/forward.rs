//! Ports of the host that lead to the guest: `hostfwd` and `hostxfwd`. The guest sees a client by its own
//! address where its answer comes back this way, and else the host's address on the link, as with libslirp.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use slab::Slab;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use taut_core::{DatagramError, DatagramId, DatagramKind, DatagramOptions, FlowKind, IpPrefix, SendMeta};
use taut_gateway::{FlowId, Side, routable, sockets};

use crate::core::{Core, Key, Waited, interest, waits};
use crate::service::Far;
use crate::tcp::Connections;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 1_024;
/// After which a client is accepted again that could not be.
const PAUSE: Duration = Duration::from_millis(50);
/// Clients or datagrams of one port before others have their turn.
const TURN: usize = 64;

/// Where the host listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
}

/// One forwarded port.
struct Forward {
    at: At,
    socket: Socket,
    guest: SocketAddr,
    /// Of UDP.
    clients: BTreeMap<SocketAddr, (DatagramId, FlowId)>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Forwards {
    /// Until then no client is accepted: this host has no descriptor for one.
    pauses_until: Option<Duration>,
    all: Slab<Forward>,
    of_datagram: BTreeMap<DatagramId, (usize, SocketAddr)>,
    of_flow: BTreeMap<FlowId, (usize, SocketAddr)>,
}

impl Forwards {
    /// Opens a port. One that is there already is in use.
    pub(crate) fn add(&mut self, mut at: At, only_v6: bool, guest: SocketAddr) -> io::Result<()> {
        let socket = match &at {
            At::Tcp(address) => listener(&(*address).into(), Some(Protocol::TCP), only_v6)?,
            At::Unix(path) => listener(&SockAddr::unix(path)?, None, false)?,
            At::Udp(address) => {
                let socket = Socket::new(Domain::for_address(*address), Type::DGRAM, Some(Protocol::UDP))?;
                socket.set_nonblocking(true)?;
                if address.is_ipv6() {
                    socket.set_only_v6(only_v6)?;
                }
                socket.bind(&(*address).into())?;
                socket
            }
        };
        // Port 0 is any free one, which the table has and by which it is removed.
        if let (At::Tcp(own) | At::Udp(own), Some(bound)) = (&mut at, socket.local_addr()?.as_socket()) {
            own.set_port(bound.port());
        }
        self.all.insert(Forward { at, socket, guest, clients: BTreeMap::new() });
        Ok(())
    }

    /// Closes a port. Connections stay. Returns whether there was one.
    pub(crate) fn remove(&mut self, core: &mut Core, at: &At) -> bool {
        let Some(place) = self.all.iter().find(|(_, one)| one.at == *at).map(|(place, _)| place) else {
            return false;
        };
        let flows: Vec<FlowId> = self.all[place].clients.values().map(|(_, flow)| *flow).collect();
        flows.into_iter().for_each(|flow| _ = self.expire(core, flow));
        self.all.remove(place);
        true
    }

    /// The caller's loop has seen something at a port.
    pub(crate) fn on_ready(&mut self, core: &mut Core, connections: &mut Connections, place: usize) {
        let Some(one) = self.all.get(place) else { return };
        match one.at {
            At::Tcp(_) | At::Unix(_) if !accept(core, connections, one) => {
                self.pauses_until = Some(core.time() + PAUSE);
            }
            At::Tcp(_) | At::Unix(_) => {}
            At::Udp(_) => self.datagrams(core, place),
        }
    }

    fn datagrams(&mut self, core: &mut Core, place: usize) {
        for _ in 0..TURN {
            let Some(one) = self.all.get(place) else { return };
            let arrived = match sockets::receive(&one.socket, &mut core.scratch) {
                Ok(arrived) => arrived,
                Err(error) if waits(&error) => return,
                // An error about an earlier answer.
                Err(_) => continue,
            };
            let known = one.clients.get(&arrived.from).copied();
            let Some((id, flow)) = known.or_else(|| self.begin(core, place, arrived.from)) else { continue };
            let message = &core.scratch[..arrived.len];
            if core.stack.send_datagram(core.now, id, None, message, &SendMeta::default()).is_ok() {
                core.gateway.datagrams_passed(core.time(), flow, Side::Upstream, 1, arrived.len);
            }
        }
    }

    /// A socket of the stack's for a new client.
    fn begin(&mut self, core: &mut Core, place: usize, from: SocketAddr) -> Option<(DatagramId, FlowId)> {
        let guest = self.all.get(place)?.guest;
        let flow = core.gateway.forward(core.time(), FlowKind::Udp, guest)?;
        let shown = shown(core, from, guest.ip());
        let options = DatagramOptions::default();
        let mut open = |at| core.stack.open_datagram(DatagramKind::Udp, at, &options).ok();
        let id = shown.and_then(|at| open(at).or_else(|| open(SocketAddr::new(at.ip(), 0))));
        let Some(id) = id.filter(|id| core.stack.connect_datagram(*id, Some(guest)).is_ok()) else {
            if let Some(id) = id {
                core.stack.close_datagram(id);
            }
            core.closed(flow);
            return None;
        };
        core.gateway.reached(core.time(), flow);
        self.all.get_mut(place)?.clients.insert(from, (id, flow));
        self.of_datagram.insert(id, (place, from));
        self.of_flow.insert(flow, (place, from));
        Some((id, flow))
    }

    /// From the guest. Returns whether it is a socket of these.
    pub(crate) fn up(&mut self, core: &mut Core, id: DatagramId) -> bool {
        let Some(&(place, client)) = self.of_datagram.get(&id) else { return false };
        for _ in 0..TURN {
            let Some(one) = self.all.get(place) else { return true };
            let len = match core.stack.recv_datagram(id, &mut core.scratch, false) {
                Ok(received) => received.len,
                Err(DatagramError::WouldBlock | DatagramError::Closed) => return true,
                // The guest's port is closed now, and may be open later.
                Err(_) => continue,
            };
            if one.socket.send_to(&core.scratch[..len], &client.into()).is_ok()
                && let Some(&(_, flow)) = one.clients.get(&client)
            {
                core.gateway.datagrams_passed(core.time(), flow, Side::Guest, 1, len);
            }
        }
        true
    }

    /// The time of a flow is over, if it is one of these. Returns whether it is.
    pub(crate) fn expire(&mut self, core: &mut Core, flow: FlowId) -> bool {
        let Some((place, client)) = self.of_flow.remove(&flow) else { return false };
        let one = self.all.get_mut(place).and_then(|one| one.clients.remove(&client));
        if let Some((id, _)) = one {
            self.of_datagram.remove(&id);
            core.stack.close_datagram(id);
        }
        core.closed(flow);
        true
    }

    pub(crate) fn end_all(&mut self, core: &mut Core) {
        let all: Vec<FlowId> = self.of_flow.keys().copied().collect();
        all.into_iter().for_each(|flow| _ = self.expire(core, flow));
    }

    pub(crate) fn wait(&mut self, all: &mut Vec<Waited>, time: Duration) {
        self.pauses_until = self.pauses_until.filter(|until| *until > time);
        let pauses = self.pauses_until.is_some();
        for (place, one) in &self.all {
            if !pauses || matches!(one.at, At::Udp(_)) {
                let fd = one.socket.as_raw_fd();
                all.push(Waited { fd, interest: interest::IN, key: Key::Forward(place) });
            }
        }
    }

    /// When clients are accepted again.
    pub(crate) const fn deadline(&self) -> Option<Duration> {
        self.pauses_until
    }

    /// Whether UDP, file, place and guest of each, for the table.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&At, i32, SocketAddr)> + '_ {
        self.all.iter().map(|(_, one)| (&one.at, one.socket.as_raw_fd(), one.guest))
    }
}

fn listener(at: &SockAddr, protocol: Option<Protocol>, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(at.domain(), Type::STREAM, protocol)?;
    socket.set_nonblocking(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    if protocol.is_some() {
        socket.set_reuse_address(true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Accepts the clients that wait. Returns false if this host has no more descriptors or memory.
fn accept(core: &mut Core, connections: &mut Connections, one: &Forward) -> bool {
    for _ in 0..TURN {
        let (client, from) = match one.socket.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                if let (false, At::Tcp(at)) = (waits(&error), &one.at) {
                    core.gateway.cannot_accept(core.time(), *at);
                }
                return waits(&error);
            }
        };
        let is_unix = from.as_socket().is_none();
        let from = from.as_socket().unwrap_or(SocketAddr::new(one.guest.ip(), 0));
        let is_ready = client.set_nonblocking(true).is_ok()
            && (is_unix || sockets::prepare(&SockRef::from(&client)).is_ok());
        let Some(flow) = core.gateway.forward(core.time(), FlowKind::Tcp, one.guest) else { continue };
        if !is_ready {
            core.closed(flow);
            continue;
        }
        let shown = shown(core, from, one.guest.ip());
        connections.forward(core, flow, Far::Socket(client), (from, shown), one.guest);
    }
    true
}

/// The address by which the guest sees a client.
fn shown(core: &Core, client: SocketAddr, guest: IpAddr) -> Option<SocketAddr> {
    let link: Vec<_> =
        core.config.networks().iter().filter_map(|own| IpPrefix::new(own.address, own.prefix)).collect();
    let own = core.config.own().into_iter().find(|own| own.is_ipv4() == guest.is_ipv4());
    routable(client, guest, &link).or_else(|| own.map(|own| SocketAddr::new(own, 0)))
}
