//! Ports of the host that lead to a guest.
//!
//! ```text
//!   8080:80                     127.0.0.1:8080 of the host leads to port 80 of the guest
//!   8080                        to port 8080
//!   9000-9009:9000-9009         ranges of one length
//!   80,8000-8099,~8080          several, and some not
//!   all                         those below the ones that the kernel gives out, as far as they are free
//!   0.0.0.0:8080:80             at another address of the host, so that others reach it; [::]:8080:80
//! ```
//!
//! Without an address a port is open to this host only. `client_address.rs` has the address by which the
//! service sees a client. A client at this host's loopback also reaches a service that listens only at the
//! guest's loopback (`loopback.rs`); others do not, as such a service may trust all its clients. The host's
//! kernel answers a SYN before the guest does; so where the guest refuses,
//! the client sees a connection that is reset at once.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{SockRef, Socket};
use taut::network::IpPrefix;
use taut::{DatagramOptions, FlowKind, Stack};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::doors::asked_at;
use crate::doors::client_address::{ClientAddress, proxy_header, routable};
use crate::doors::loopback::{ForwardTarget, Loopback};
use crate::doors::proxy::Client as _;
use crate::logic::flow::{End, NextStep, Side};
use crate::out::sockets::prepare;
use crate::out::way_out::{Upstream, failure, write_all};
use crate::run::join::join;
use crate::run::relay::relay;
use crate::run::rooms::near;
use crate::run::server::{Handle, Server};

/// One port that is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// TCP or UDP.
    pub kind: FlowKind,
    /// Where the host listens.
    pub at: SocketAddr,
    /// The guest, if it is not the gateway's first.
    pub guest: Option<IpAddr>,
    /// The guest's port.
    pub port: u16,
    /// One of all: it may be in use already, or not this user's.
    pub is_any: bool,
    /// The address of a client, as the service sees it.
    pub client: ClientAddress,
}

/// Below the first port that Linux gives out by itself (`ip_local_port_range`).
const ALL: &str = "1-32767";

/// The text names no ports to forward.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no ports to forward: {why}; write, for example, 8080:80 or 0.0.0.0:9000-9009:9000-9009"
)]
pub struct ForwardError {
    text: String,
    why: &'static str,
}

impl Forward {
    /// Reads `[ADDRESS:]PORTS`, where PORTS are, with commas between them, `PORT[-PORT][:PORT[-PORT]]`, those
    /// that are left out, `~PORT[-PORT]`, and `all`, which are the ports below those that the host's kernel
    /// gives out by itself. An IPv6 address stands in brackets.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(kind: FlowKind, text: &str) -> Result<Vec<Self>, ForwardError> {
        let wrong = |why| ForwardError { text: text.to_owned(), why };
        let (address, rest) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) =
                    rest.split_once("]:").ok_or_else(|| wrong("an address in [ ] is followed by a colon"))?;
                (Some(address), rest)
            }
            None if first_of(text).matches(':').count() == 2 || first_of(text).contains('.') => {
                let (address, rest) =
                    text.split_once(':').ok_or_else(|| wrong("no port follows the address"))?;
                (Some(address), rest)
            }
            None => (None, text),
        };
        let address = address.map_or(Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)), str::parse);
        let address = address.map_err(|_| wrong("it does not begin with an address of this host"))?;
        let ports = |text| {
            range(text).ok_or_else(|| wrong("a port is a number from 1 to 65535, a range is PORT-PORT"))
        };
        let (mut all, mut without) = (Vec::new(), Vec::new());
        for part in rest.split(',') {
            if let Some(text) = part.strip_prefix('~') {
                without.push(ports(text)?);
                continue;
            }
            let is_any = part == "all";
            let part = if is_any { ALL } else { part };
            let (host, guest) = part.split_once(':').unwrap_or((part, part));
            let (host, guest) = (ports(host)?, ports(guest)?);
            if host.len() != guest.len() {
                return Err(wrong("the ranges have different lengths"));
            }
            let one = |(host, port)| Self {
                kind,
                at: SocketAddr::new(address, host),
                guest: None,
                port,
                is_any,
                client: ClientAddress::default(),
            };
            all.extend(host.zip(guest).map(one));
        }
        all.retain(|one| !without.iter().any(|range| range.contains(&one.at.port())));
        if all.is_empty() { Err(wrong("nothing is left of it")) } else { Ok(all) }
    }

    /// Opens the host's port; none if it is one of all, and taken.
    pub(crate) fn socket(&self) -> io::Result<Option<Listening>> {
        let at = self.at;
        let socket = if self.kind == FlowKind::Tcp {
            listener(at).map(Listening::Tcp)
        } else {
            datagrams(at).map(Listening::Udp)
        };
        match socket {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if self.is_any && is_taken(&error) => Ok(None),
            Err(error) => Err(io::Error::new(error.kind(), format!("cannot forward {at}: {error}"))),
        }
    }
}

/// Up to the first comma.
fn first_of(text: &str) -> &str {
    text.split(',').next().unwrap_or_default()
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (first > 0 && first <= last).then_some(first..=last)
}

impl Server {
    /// Opens a port of the host that leads to this guest. It is open while the result is polled.
    ///
    /// # Errors
    /// The port is in use, or not this user's.
    pub fn forward_port(
        &self,
        stack: &Stack,
        guest: ForwardTarget,
        forward: Forward,
    ) -> io::Result<impl Future<Output = io::Error> + Send + use<>> {
        let Forward { at, port, client, .. } = forward;
        let ForwardTarget { address, loopback } = guest;
        let (server, stack, guest) = (self.clone(), stack.clone(), SocketAddr::new(address, port));
        if client == ClientAddress::Keep {
            // Connections to the guest come from the addresses of clients.
            _ = stack.set_sysctl("taut.any_address", "1");
        }
        let open = Open { server, stack, guest, loopback, at, client };
        let socket = forward.socket()?;
        Ok(async move {
            match socket {
                Some(Listening::Tcp(listener)) => open.connections(&listener).await,
                Some(Listening::Udp(socket)) => open.datagrams(Arc::new(socket)).await,
                None => std::future::pending().await,
            }
        })
    }
}

/// The port is another program's, or not this user's.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

/// An open port's socket.
pub(crate) enum Listening {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        if at.is_ipv4() { tokio::net::TcpSocket::new_v4()? } else { tokio::net::TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(1_024)
}

fn datagrams(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(socket2::Domain::for_address(at), socket2::Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    asked_at::ask(&socket, at.is_ipv4())?;
    socket.bind(&at.into())?;
    UdpSocket::from_std(socket.into())
}

/// An open port.
struct Open {
    server: Server,
    stack: Stack,
    guest: SocketAddr,
    loopback: Option<Loopback>,
    at: SocketAddr,
    client: ClientAddress,
}

impl Open {
    async fn connections(&self, listener: &TcpListener) -> io::Error {
        loop {
            match listener.accept().await {
                Ok((client, from)) => match self.server.forward(FlowKind::Tcp, self.guest, from) {
                    Some(flow) => {
                        let (stack, guest, shown) = (self.stack.clone(), self.guest, self.client);
                        let inside = self.loopback_of(from);
                        tokio::spawn(async move {
                            match inside.and_then(|own| Some((own.instead_of(guest, FlowKind::Tcp)?, own))) {
                                Some((to, own)) => {
                                    connection((client, from), own.connect(to), shown, &flow).await;
                                }
                                None => {
                                    let reached = reach(&stack, from, (guest, shown));
                                    connection((client, from), reached, shown, &flow).await;
                                }
                            }
                        });
                    }
                    None => client.abort(),
                },
                Err(error) if self.server.may_accept_again(&error, self.at).await => {}
                Err(error) => return error,
            }
        }
    }

    /// The guest's loopback, for a client at this host's.
    fn loopback_of(&self, client: SocketAddr) -> Option<Loopback> {
        self.loopback.clone().filter(|_| client.ip().to_canonical().is_loopback())
    }

    /// Each client has a socket of the stack's, or at the guest's loopback; it ends when it is idle, and with
    /// the port.
    async fn datagrams(&self, socket: Arc<UdpSocket>) -> io::Error {
        let clients = Arc::<Clients>::default();
        // Its flows hold the port open: they end with this future.
        let mut flows = JoinSet::new();
        let mut message = vec![0; 65_536];
        loop {
            let (len, client) = match asked_at::receive(&socket, &mut message).await {
                Ok((len, from, at)) => (len, Asks { from, at }),
                // An error about an earlier answer.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return error,
            };
            while flows.try_join_next().is_some() {}
            let known = clients.lock().get(&client).cloned();
            let known = match known {
                Some(known) => Some(known),
                None => self.begin(&socket, &clients, client, &mut flows).await,
            };
            let Some((inner, flow)) = known else { continue };
            if inner.send(&message[..len]).is_ok() {
                flow.passed(Side::Upstream, len, 0);
            }
        }
    }

    async fn begin(
        &self,
        socket: &Arc<UdpSocket>,
        clients: &Arc<Clients>,
        client: Asks,
        flows: &mut JoinSet<()>,
    ) -> Option<Client> {
        let flow = Arc::new(self.server.forward(FlowKind::Udp, self.guest, client.from)?);
        let inside = self.loopback_of(client.from);
        let looks_again = inside.is_some();
        let inside = inside.and_then(|own| Some((own.instead_of(self.guest, FlowKind::Udp)?, own)));
        let inner = Arc::new(match inside {
            Some((to, own)) => GuestSocket::Loopback(own.datagrams(to).await.ok()?),
            None => GuestSocket::Stack(self.by_stack(client.from).await?),
        });
        flow.reached();
        let begun = (Arc::clone(&inner), Arc::clone(&flow));
        clients.lock().insert(client, (Arc::clone(&inner), Arc::clone(&flow)));
        let (socket, clients) = (Arc::clone(socket), Arc::clone(clients));
        flows.spawn(async move {
            answers((&inner, looks_again), &socket, client, &flow).await;
            clients.lock().remove(&client);
        });
        Some(begun)
    }

    async fn by_stack(&self, client: SocketAddr) -> Option<taut::UdpSocket> {
        let bind = |at| taut::UdpSocket::bind_with(&self.stack, at, &DatagramOptions::default()).ok();
        let mut own = self.stack.networks().into_iter().map(|own| own.address);
        let own = own.find(|own| own.is_ipv4() == self.guest.is_ipv4())?;
        let shown = shown(&self.stack, client, self.guest.ip(), self.client);
        let socket = shown.and_then(bind).or_else(|| bind(SocketAddr::new(own, 0)))?;
        socket.connect(self.guest).await.ok()?;
        Some(socket)
    }
}

/// A socket that is connected to the guest's.
enum GuestSocket {
    Stack(taut::UdpSocket),
    Loopback(UdpSocket),
}

impl GuestSocket {
    fn send(&self, message: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stack(socket) => socket.try_send(message),
            // As in `host_sockets.rs`: tokio's notion of a new socket is that it is not ready.
            Self::Loopback(socket) => SockRef::from(socket).send(message),
        }
    }

    async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stack(socket) => socket.recv(into).await,
            Self::Loopback(socket) => socket.recv(into).await,
        }
    }
}

/// A client of a UDP port, and the address of this host to which it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asks {
    from: SocketAddr,
    at: IpAddr,
}

type Client = (Arc<GuestSocket>, Arc<Handle>);

#[derive(Default)]
struct Clients(Mutex<BTreeMap<Asks, Client>>);

impl Clients {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Asks, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes answers on. A client that may be served at another of the guest's addresses `looks_again` there
/// where it was refused.
async fn answers(
    (inner, looks_again): (&GuestSocket, bool),
    socket: &UdpSocket,
    client: Asks,
    flow: &Handle,
) {
    let mut message = vec![0; 65_536];
    loop {
        let received = tokio::select! {
            received = inner.recv(&mut message) => received,
            () = flow.stopped() => return,
        };
        match received {
            Ok(len) => {
                if asked_at::send(socket, &message[..len], client.from, client.at).is_ok() {
                    flow.passed(Side::Guest, len, 0);
                }
            }
            // The guest's port is closed now, and may be open later.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !looks_again => {}
            Err(_) => return,
        }
    }
}

/// The client's own address, if the service shall see it and can answer it.
fn shown(stack: &Stack, from: SocketAddr, guest: IpAddr, how: ClientAddress) -> Option<SocketAddr> {
    let own = stack.networks().into_iter();
    let link: Vec<_> = own.filter_map(|own| IpPrefix::new(own.address, own.prefix)).collect();
    routable(from, guest, &link).filter(|_| how == ClientAddress::Keep)
}

async fn reach(
    stack: &Stack,
    from: SocketAddr,
    (guest, how): (SocketAddr, ClientAddress),
) -> io::Result<taut::TcpStream> {
    let bind = shown(stack, from, guest.ip(), how);
    let mut options = near(bind);
    match taut::TcpStream::connect_with(stack, guest, &options).await {
        // The client has another connection to this service, by another port of the host.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            options.bind = bind.map(|bind| SocketAddr::new(bind.ip(), 0));
            taut::TcpStream::connect_with(stack, guest, &options).await
        }
        reached => reached,
    }
}

/// The guest's end of a connection.
trait GuestEnd: Upstream {
    fn pass(&self, client: &TcpStream, flow: &Handle) -> impl Future<Output = NextStep> + Send;
}

impl GuestEnd for taut::TcpStream {
    async fn pass(&self, client: &TcpStream, flow: &Handle) -> NextStep {
        // As where the guest connects (`run/tcp.rs`).
        _ = self.set_quickack(true);
        relay(self, client, flow).await
    }
}

impl GuestEnd for TcpStream {
    async fn pass(&self, client: &TcpStream, flow: &Handle) -> NextStep {
        join(self, client, flow).await
    }
}

async fn connection<G: GuestEnd>(
    (client, from): (TcpStream, SocketAddr),
    reach: impl Future<Output = io::Result<G>>,
    shown: ClientAddress,
    flow: &Handle,
) {
    let reached = tokio::select! {
        reached = reach => reached,
        // One that ends its half may wait for what the guest says.
        () = client.left(false) => return flow.left(from),
        () = flow.stopped() => return client.abort(),
    };
    let guest = match reached {
        Ok(guest) => guest,
        Err(error) => {
            flow.failed(failure(&error));
            return client.abort();
        }
    };
    flow.reached();
    flow.answered();
    if shown == ClientAddress::ProxyProtocol {
        let header = client.local_addr().map(|at| proxy_header(from, at)).unwrap_or_default();
        if write_all(&guest, &header).await.is_err() {
            flow.ended(Side::Guest, End::Reset);
            return client.abort();
        }
    }
    if prepare(&SockRef::from(&client)).is_err() {
        flow.ended(Side::Upstream, End::Reset);
        return guest.abort();
    }
    let then = guest.pass(&client, flow).await;
    if matches!(then, NextStep::ResetBoth | NextStep::Reset(Side::Guest)) {
        guest.abort();
    }
    if matches!(then, NextStep::ResetBoth | NextStep::Reset(Side::Upstream)) {
        client.abort();
    }
}

/// Whether a listener may go on after this error.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted || is_shortage(error)
}

/// The host has no more descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

impl Server {
    /// Whether a listener at `at` may go on after this error, and when: a client that has gone already, or no
    /// descriptor. Then the next one may be luckier.
    pub(crate) async fn may_accept_again(&self, error: &io::Error, at: SocketAddr) -> bool {
        if is_shortage(error) {
            self.with(|gateway, now| gateway.cannot_accept(now, at));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        is_passing(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<String>, String> {
        let all = Forward::parse(FlowKind::Tcp, text).map_err(|error| error.to_string())?;
        Ok(all.iter().map(|one| format!("{}>{}", one.at, one.port)).collect())
    }

    #[test]
    fn gw_103_lists_of_ports() {
        assert_eq!(
            of("80,8001-8003:1-3,~8002").unwrap(),
            ["80>80", "8001>1", "8003>3"].map(|one| format!("127.0.0.1:{one}"))
        );
        assert_eq!(of("0.0.0.0:80,443:4433").unwrap(), ["0.0.0.0:80>80", "0.0.0.0:443>4433"]);
        assert_eq!(of("8080:80,9090:90").unwrap(), ["127.0.0.1:8080>80", "127.0.0.1:9090>90"]);
        assert_eq!(of("[::]:all,~22").unwrap().len(), 32_766);
        for (text, why) in [
            ("80,", "a port is a number"),
            ("80,~", "a port is a number"),
            ("80-90,~1-100", "nothing is left"),
            ("~80", "nothing is left"),
            ("80,8080:1-2", "different lengths"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn gw_26_ports_to_forward() {
        let fails = |text: &str| of(text).unwrap_err();
        assert_eq!(of("8080:80"), Ok::<_, String>(vec!["127.0.0.1:8080>80".to_owned()]));
        assert_eq!(of("8080").unwrap(), ["127.0.0.1:8080>8080"]);
        assert_eq!(of("0.0.0.0:8080").unwrap(), ["0.0.0.0:8080>8080"]);
        assert_eq!(of("192.0.2.1:1-2:8-9").unwrap(), ["192.0.2.1:1>8", "192.0.2.1:2>9"]);
        assert_eq!(of("[::]:8080:80").unwrap(), ["[::]:8080>80"]);
        assert_eq!(of("1-65535").unwrap().len(), 65_535);
        for (text, why) in [
            ("", "a port is a number"),
            ("0", "a port is a number"),
            ("65536", "a port is a number"),
            ("9-8", "a port is a number"),
            ("8080:", "a port is a number"),
            ("1-2:1-3", "different lengths"),
            ("host:1:2", "does not begin with an address"),
            ("1.2.3:80", "does not begin with an address"),
            ("10.0.0.1", "no port follows"),
            ("[::]", "followed by a colon"),
            ("[::1]:", "a port is a number"),
        ] {
            assert!(fails(text).contains(why), "{text}: {}", fails(text));
        }
    }
}
