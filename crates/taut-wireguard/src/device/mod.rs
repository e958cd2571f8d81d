//! The device: a UDP socket, the peers behind it, and a timer. Both halves share it.
//!
//! ```text
//!   stack ─▶ tx.rs: cut.rs ─ routes ─ Peer::seal ─▶ batch.rs ── one call ──▶ the socket
//!         ◀─ tickets ──┴─ below.rs: what is still in this host ◀── SIOCOUTQ
//!         ◀─ rx.rs: merge.rs ◀─ ecn.rs ◀─ routes ◀─ Peer::open ◀── datagrams, many a call ──┘
//! ```
//!
//! **Locks.** Each peer has one, held for a packet; the timer has one. Packets are encrypted in the outbox of
//! `taut_driver`, which has the stack's lock only while much at a time leaves, and decrypted under that lock.
//!
//! **The timer** is in the set of descriptors by which the receiving half announces packets. It is armed for
//! the earliest deadline of a peer, and for the next look at what is below. An idle tunnel arms it for
//! nothing but a persistent keepalive.

mod batch;
mod below;
mod cut;
mod errors;
mod merge;
mod rx;
mod tx;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use boringtun::noise::rate_limiter::RateLimiter;
use nix::sys::socket::{getsockopt, sockopt};
use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};
use taut_core::{Instant, LinkCaps};
use taut_device::Cidr;
use taut_driver::Device;
use taut_driver::sys::{Epoll, EventFd, Interest, TimerFd, monotonic_ns};
use taut_wire::icmp::{self, Unreachable};
use taut_wire::{Ecn, IpHeader, protocol};

use crate::config::{Config, Endpoint, MTU_DEFAULT, PeerConfig};
use crate::key::{KEY_BYTES, PrivateKey, PublicKey};
use crate::peer::{OVERHEAD, Peer};
use crate::routes::Routes;
use crate::status::{Counters, PeerStatus, Status};

/// Room for datagrams below, if the system allows it: a few calls of 64 KB.
const SEND_BYTES: usize = 4 << 20;
/// Room for datagrams that wait to be received.
const RECEIVE_BYTES: usize = 4 << 20;
/// Handshake messages a second from which on their senders must prove their address (as `boringtun-cli`).
const HANDSHAKES_A_SECOND: u64 = 100;
/// Messages for the stack that wait at most.
const NOTICES_MAX: usize = 16;
/// The least that is believed of a path: what every link of IPv6 carries (RFC 8200 §5).
const MTU_LEAST: u16 = 1280;
/// The longest inner packet that fits into a datagram.
const MTU_MOST: u16 = (batch::BYTES_MAX - OVERHEAD) as u16;

/// A WireGuard tunnel, to be a stack's device.
#[derive(Debug)]
pub struct WireGuard {
    tunnel: Arc<Tunnel>,
    caps: LinkCaps,
    addresses: Vec<Cidr>,
}

/// Reads a tunnel's state while a stack uses it, and decides how names of endpoints are looked up again.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Tunnel>);

/// Looks the name of an endpoint up.
type Resolve = dyn Fn(&Endpoint) -> io::Result<SocketAddr> + Send + Sync;

/// The part that both halves share.
pub(crate) struct Tunnel {
    pub(crate) socket: UdpSocket,
    pub(crate) udp: UdpSocketState,
    is_v6: bool,
    own: PrivateKey,
    public: PublicKey,
    limiter: RateLimiter,
    pub(crate) peers: Vec<Peer>,
    by_key: BTreeMap<[u8; KEY_BYTES], usize>,
    /// The number of the first peer in the indices of messages: 24 bits.
    first_index: u32,
    pub(crate) routes: Routes,
    pub(crate) counters: Counters,
    news: Epoll,
    timer: TimerFd,
    /// Signalled while datagrams that were read wait for the driver, which the socket does not announce.
    more: EventFd,
    line: Mutex<Line>,
    /// The next call of the receiving half reads reports first: a call that sent has got the error of one.
    has_errors: AtomicBool,
    /// `line`'s deadline of peers, for those without the lock.
    peers_at: AtomicU64,
    /// In place of the system's resolver.
    resolve: OnceLock<Arc<Resolve>>,
}

/// The timer's purposes, and messages for the stack.
struct Line {
    /// The earliest deadline of a peer, or an earlier time.
    peers_at: Instant,
    /// When what is below must be looked at.
    look_at: Instant,
    armed: Instant,
    /// ICMP messages of this device's own.
    notices: VecDeque<Vec<u8>>,
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The time of this host. The contract of devices has no time.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

/// The number of the peer with this index, of so many.
const fn index_of(first: u32, peer: usize) -> u32 {
    first.wrapping_add(peer as u32) & 0x00ff_ffff
}

/// A socket for both families, or for IPv4 where there is no IPv6.
fn bind(port: u16) -> io::Result<(UdpSocket, bool)> {
    use socket2::{Domain, Protocol, Socket, Type};
    let both = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_only_v6(false)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
        Ok(socket.into())
    };
    let named = |error: io::Error| io::Error::new(error.kind(), format!("UDP port {port}: {error}"));
    match both() {
        Ok(socket) => Ok((socket, true)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(named(error)),
        Err(_) => Ok((UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).map_err(named)?, false)),
    }
}

/// Bytes around an inner packet.
const fn around(to: SocketAddr) -> u16 {
    let ip = if to.is_ipv4() { 20 } else { 40 };
    ip + 8 + OVERHEAD as u16
}

/// The MTU of the path to `to`, as the kernel has it; `None` without a route.
fn path_mtu(to: SocketAddr) -> Option<u16> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    let mtu = if to.is_ipv4() { getsockopt(&socket, sockopt::IpMtu).ok()? } else { return None };
    u16::try_from(mtu).ok()
}

impl WireGuard {
    /// Opens a tunnel: a UDP socket in the network namespace of this thread, and its peers. Names of
    /// endpoints are resolved now. A handshake begins with the first packet to a peer, or at once with one
    /// that is to be kept alive.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another program has the port; those of [`Endpoint::resolve`];
    /// no descriptors left.
    pub fn open(config: &Config) -> io::Result<Self> {
        let (socket, is_v6) = bind(config.listen_port.unwrap_or(0))?;
        let udp = UdpSocketState::new((&socket).into())?;
        // A smaller buffer holds less, and works.
        _ = udp.set_send_buffer_size((&socket).into(), SEND_BYTES);
        _ = udp.set_recv_buffer_size((&socket).into(), RECEIVE_BYTES);
        errors::ask(&socket, is_v6)?;
        let mtu = config.mtu.unwrap_or(MTU_DEFAULT).min(MTU_MOST);
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let first_index = u32::from_ne_bytes(random);
        let now = now();
        let peer = |(number, peer): (usize, &PeerConfig)| {
            let at = peer.endpoint.as_ref().map(Endpoint::resolve).transpose()?;
            let path = at.and_then(|at| path_mtu(at)?.checked_sub(around(at)));
            let mtu = path.map_or(mtu, |path| mtu.min(path.max(MTU_LEAST)));
            Ok(Peer::new(peer, &config.private_key, index_of(first_index, number), at, mtu, now))
        };
        let peers: Vec<Peer> = config.peers.iter().enumerate().map(peer).collect::<io::Result<_>>()?;
        let (news, timer, more) = (Epoll::new()?, TimerFd::new()?, EventFd::new()?);
        news.add(socket.as_fd(), 0, Interest::Readable)?;
        news.add(timer.as_fd(), 1, Interest::Readable)?;
        news.add(more.as_fd(), 2, Interest::Readable)?;
        let public = config.private_key.public();
        let never = Instant::NEVER;
        let line = Line { peers_at: never, look_at: never, armed: never, notices: VecDeque::new() };
        let tunnel = Tunnel {
            socket,
            udp,
            is_v6,
            own: config.private_key.clone(),
            public,
            limiter: RateLimiter::new(&public.0, HANDSHAKES_A_SECOND),
            by_key: peers.iter().enumerate().map(|(number, peer)| (peer.key.to_bytes(), number)).collect(),
            routes: Routes::new(peers.iter().map(|peer| peer.allowed.as_slice())),
            peers,
            first_index,
            counters: Counters::default(),
            news,
            timer,
            more,
            line: Mutex::new(line),
            has_errors: AtomicBool::new(false),
            peers_at: AtomicU64::new(u64::MAX),
            resolve: OnceLock::new(),
        };
        tunnel.peers.iter().for_each(|peer| tunnel.note_due(peer.due()));
        let segments = batch::BYTES_MAX / (usize::from(mtu) + OVERHEAD);
        let segments = u16::try_from(segments.min(64)).unwrap_or(1);
        let caps = LinkCaps {
            gso_max_segs: segments,
            gso_max_bytes: u32::from(mtu) * u32::from(segments),
            udp_segments: true,
            completes_on_departure: true,
            ..LinkCaps::offloading(mtu)
        };
        Ok(Self { tunnel: Arc::new(tunnel), caps, addresses: config.addresses.clone() })
    }

    /// The link's capabilities.
    #[must_use]
    pub const fn caps(&self) -> LinkCaps {
        self.caps
    }

    /// The addresses of the configuration, for [`StackBuilder::address`](https://docs.rs/taut).
    #[must_use]
    pub fn addresses(&self) -> &[Cidr] {
        &self.addresses
    }

    /// The UDP port of this end.
    ///
    /// # Errors
    /// None that is expected.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.tunnel.socket.local_addr()?.port())
    }

    /// Reads the state later.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.tunnel))
    }
}

impl From<WireGuard> for Device {
    fn from(device: WireGuard) -> Self {
        let WireGuard { tunnel, caps, .. } = device;
        Self::new(caps, tx::Tx::new(Arc::clone(&tunnel)), rx::Rx::new(tunnel))
    }
}

impl Monitor {
    /// Looks names of endpoints up by this function from now on, in place of the system's resolver: where
    /// that cannot be used, as in a sandbox, or would send its questions into the tunnel itself, as in a VPN
    /// of a whole device. It is called on a thread of its own and may wait. The first call counts.
    pub fn resolve_by(&self, resolve: impl Fn(&Endpoint) -> io::Result<SocketAddr> + Send + Sync + 'static) {
        // Set once.
        _ = self.0.resolve.set(Arc::new(resolve));
    }

    /// The state now.
    #[must_use]
    pub fn status(&self) -> Status {
        let (tunnel, now) = (&*self.0, now());
        let peer = |peer: &Peer| {
            let state = peer.lock();
            PeerStatus {
                public_key: peer.key,
                endpoint: state.endpoint,
                allowed_ips: peer.allowed.clone(),
                since_handshake: state.counts.handshake_at.map(|at| now.since(at).into()),
                rx_bytes: state.counts.rx_bytes,
                tx_bytes: state.counts.tx_bytes,
                persistent_keepalive: state.every().map(Into::into),
                mtu: state.mtu.get(now),
            }
        };
        Status {
            public_key: tunnel.public,
            port: tunnel.socket.local_addr().map_or(0, |at| at.port()),
            peers: tunnel.peers.iter().map(peer).collect(),
            drops: tunnel.counters.read(),
        }
    }
}

impl Tunnel {
    /// The descriptor that is readable when datagrams have come or the timer has expired.
    fn news(&self) -> io::Result<OwnedFd> {
        self.news.as_fd().try_clone_to_owned()
    }

    /// The address that the socket uses for a peer.
    fn outer(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(v4) if self.is_v6 => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            other => other,
        }
    }

    /// Sends datagrams of `size` bytes, the last of which may be shorter.
    fn transmit(&self, datagrams: &[u8], size: usize, to: SocketAddr, ecn: Ecn) -> io::Result<()> {
        let transmit = Transmit {
            destination: self.outer(to),
            ecn: EcnCodepoint::from_bits(ecn.to_bits()),
            contents: datagrams,
            segment_size: (size < datagrams.len()).then_some(size),
            src_ip: None,
        };
        let send = || self.udp.try_send((&self.socket).into(), &transmit);
        match send() {
            // A report about an earlier datagram is the error of the next call.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.has_errors.store(true, Ordering::Relaxed);
                send()
            }
            sent => sent,
        }
    }

    /// Sends a message of the tunnel's own. One that cannot be sent is lost, as on the way.
    fn send_alone(&self, message: &[u8], to: SocketAddr) {
        if self.transmit(message, message.len(), to, Ecn::NotEct).is_err() {
            self.counters.unsent.add();
        }
    }

    /// The peer to which messages with this index are.
    fn peer_with(&self, index: u32) -> Option<usize> {
        let number = (index >> 8).wrapping_sub(self.first_index) & 0x00ff_ffff;
        usize::try_from(number).ok().filter(|&number| number < self.peers.len())
    }

    /// Reads what the network has reported.
    fn take_errors(&self) {
        self.has_errors.store(false, Ordering::Relaxed);
        errors::take(&self.socket, |to, mtu| {
            let to = SocketAddr::new(to.ip().to_canonical(), to.port());
            let Some(inner) = u16::try_from(mtu).ok().and_then(|mtu| mtu.checked_sub(around(to))) else {
                return;
            };
            for peer in &self.peers {
                let mut state = peer.lock();
                // This host's own errors have no port.
                let is_there = |at: SocketAddr| at.ip() == to.ip() && [0, at.port()].contains(&to.port());
                if state.endpoint.is_some_and(is_there) {
                    state.mtu.lower(now(), inner.max(MTU_LEAST));
                }
            }
        });
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer has this deadline. The timer is set only if it is earlier than all.
    fn note_due(&self, due: Instant) {
        if due.as_nanos() < self.peers_at.load(Ordering::Relaxed) {
            let mut line = self.line();
            line.peers_at = line.peers_at.min(due);
            self.settle(&mut line);
        }
    }

    /// When what is below must be looked at next.
    fn look_at(&self, at: Instant) {
        let mut line = self.line();
        line.look_at = at;
        self.settle(&mut line);
    }

    /// Whether datagrams that were read wait for the driver. A timer that expires at once would cost more: it
    /// programs the processor's clock.
    fn announce(&self, has_more: bool) {
        if has_more {
            self.more.signal();
        } else {
            self.more.drain();
        }
    }

    /// Arms the timer: at the end of each use of the line.
    fn settle(&self, line: &mut Line) {
        self.peers_at.store(line.peers_at.as_nanos(), Ordering::Relaxed);
        let is_now = !line.notices.is_empty();
        let at = if is_now { Instant::ZERO } else { line.look_at.min(line.peers_at) };
        if at != line.armed {
            match at {
                Instant::NEVER => self.timer.disarm(),
                at => self.timer.arm(at.as_nanos()),
            }
            line.armed = at;
        }
    }

    /// Handles the deadlines of peers, if one has come.
    fn handle_timeout(self: &Arc<Self>) {
        if self.peers_at.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        let now = now();
        if self.peers_at.load(Ordering::Relaxed) > now.as_nanos() {
            return;
        }
        // A deadline that comes meanwhile is noted behind this.
        self.line().peers_at = Instant::NEVER;
        self.peers_at.store(u64::MAX, Ordering::Relaxed);
        let mut next = Instant::NEVER;
        for (number, peer) in self.peers.iter().enumerate() {
            if peer.due() <= now {
                let mut state = peer.lock();
                let resolve = state.handle_timeout(now, &mut |message, to| self.send_alone(message, to));
                peer.note_due(&state);
                drop(state);
                if resolve {
                    self.resolve_again(number);
                }
            }
            next = next.min(peer.due());
        }
        let mut line = self.line();
        line.peers_at = line.peers_at.min(next);
        self.settle(&mut line);
    }

    /// Resolves the name of a peer's endpoint once more, on a thread: the system's resolver may take seconds.
    fn resolve_again(self: &Arc<Self>, number: usize) {
        let peer = &self.peers[number];
        let Some(endpoint) = peer.endpoint.clone().filter(Endpoint::is_name) else { return };
        if peer.is_resolving.swap(true, Ordering::AcqRel) {
            return;
        }
        let (tunnel, own) = (Arc::downgrade(self), self.resolve.get().cloned());
        let resolve = move || {
            let found = own.map_or_else(|| endpoint.resolve(), |own| own(&endpoint));
            let Some(tunnel) = tunnel.upgrade() else { return };
            let peer = &tunnel.peers[number];
            #[cfg(feature = "tracing")]
            tracing::info!(peer = %peer.key, ?found, "endpoint resolved again");
            if let Ok(at) = found {
                peer.lock().endpoint = Some(at);
            }
            peer.is_resolving.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("taut-wg-names".to_owned()).spawn(resolve).is_err() {
            peer.is_resolving.store(false, Ordering::Release);
        }
    }

    /// Tells the stack why a packet of its own cannot be sent, as a router would.
    fn tell(&self, packet: &[u8], why: Unreachable) {
        let Ok(ip) = IpHeader::parse_prefix(packet, usize::MAX) else { return };
        // No error about an error (RFC 1122 §3.2.2).
        let is_icmp = matches!(ip.protocol, protocol::ICMP | protocol::ICMPV6);
        if is_icmp && packet.get(ip.header_len).is_none_or(|&kind| icmp::is_error(ip.dst.is_ipv4(), kind)) {
            return;
        }
        let protocol = if ip.dst.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
        let payload_len = icmp::error_len(ip.dst.is_ipv4(), packet);
        let mut outer = IpHeader { src: ip.dst, dst: ip.src, protocol, ecn: Ecn::NotEct, payload_len, ..ip };
        (outer.header_len, outer.hop_limit) = (outer.emitted_len(), 64);
        let mut message = vec![0; outer.header_len + payload_len];
        outer.emit(&mut message, 0);
        icmp::emit_unreachable(&mut message[outer.header_len..], outer.src, outer.dst, why, packet);
        let mut line = self.line();
        if line.notices.len() < NOTICES_MAX {
            line.notices.push_back(message);
        }
        self.settle(&mut line);
    }

    /// The next message of this device's own for the stack.
    fn next_notice(&self) -> Option<Vec<u8>> {
        let mut line = self.line();
        let notice = line.notices.pop_front();
        if notice.is_some() {
            self.settle(&mut line);
        }
        notice
    }
}
