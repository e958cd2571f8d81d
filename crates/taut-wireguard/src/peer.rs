//! A far end: `boringtun`'s handshake, keys and replay window for it, where it is, and what has crossed.
//! Called by both halves of the device, each under the peer's lock; it does no I/O and reads no clock.
//!
//! `boringtun` notes times to the last call of its timers, so they are called before a packet when that is
//! [`STALE`] ago. Nothing else calls them but deadlines (`deadlines.rs`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Tunn, TunnResult};
use taut_core::{Duration, Instant};
use taut_device::Cidr;

use crate::config::{Endpoint, PeerConfig};
use crate::deadlines::{Deadlines, Kind};
use crate::key::{PrivateKey, PublicKey};
use crate::path_mtu::PathMtu;

/// Room for any message but data, as `boringtun` needs it.
pub(crate) const SMALL: usize = 256;
/// Bytes of a data message besides its packet: a header of 16 bytes, and a tag of 16.
pub(crate) const OVERHEAD: usize = 32;
/// Handshakes without an answer after which the endpoint's name is resolved again.
const RESOLVE_AFTER: u32 = 3;
/// The age of `boringtun`'s notion of the time at which it is called before a packet.
const STALE: Duration = Duration::from_millis(250);

/// A far end.
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) allowed: Vec<Cidr>,
    pub(crate) endpoint: Option<Endpoint>,
    /// Its name is being resolved.
    pub(crate) is_resolving: AtomicBool,
    /// The next deadline, in nanoseconds, for those without the lock.
    due: AtomicU64,
    state: Mutex<State>,
}

/// The part that changes.
pub(crate) struct State {
    tunn: Tunn,
    /// Where it was last, or where it is looked for.
    pub(crate) endpoint: Option<SocketAddr>,
    /// Largest inner packet on the path to it.
    pub(crate) mtu: PathMtu,
    deadlines: Deadlines,
    updated: Instant,
    /// Handshakes begun since the last answer.
    attempts: u32,
    /// So many that the endpoint's name should be resolved again. A packet may have begun the last one.
    wants_resolve: bool,
    pub(crate) counts: Counts,
}

/// Amounts that have crossed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tx_bytes: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) handshake_at: Option<Instant>,
}

/// A message for the peer, to be sent to where it is.
pub(crate) type Emit<'a> = &'a mut dyn FnMut(&[u8], SocketAddr);

/// The fate of a received message.
#[derive(Debug)]
pub(crate) enum Opened<'a> {
    /// An inner packet.
    Packet(&'a mut [u8]),
    /// Something for the tunnel itself.
    Nothing,
    /// It is not authentic, or was here before.
    Refused(WireGuardError),
}

/// The kind of a message, by its first byte and length (WireGuard §5.4).
pub(crate) fn kind_of(message: &[u8]) -> Kind {
    match message.first() {
        Some(1) => Kind::Initiation,
        Some(2) => Kind::Response,
        Some(3) => Kind::Cookie,
        _ if message.len() == OVERHEAD => Kind::Keepalive,
        _ => Kind::Data,
    }
}

impl Peer {
    /// The peer whose messages to this end bear `index`, where `at` is the address of its endpoint.
    pub(crate) fn new(
        config: &PeerConfig,
        own: &PrivateKey,
        index: u32,
        at: Option<SocketAddr>,
        mtu: u16,
        now: Instant,
    ) -> Self {
        let psk = config.preshared_key.as_ref().map(|key| *key.0);
        // The device limits handshakes, before their sender is known.
        let unlimited = Arc::new(RateLimiter::new(&own.public().0, u64::MAX));
        // Keepalives are this crate's: `boringtun` gives a peer up that does not answer for 90 s.
        let tunn = Tunn::new(own.0.clone(), config.public_key.0, psk, None, index, Some(unlimited));
        let every = config.persistent_keepalive.map(|seconds| Duration::from_secs(seconds.into()));
        let state = State {
            tunn,
            endpoint: at,
            mtu: PathMtu::new(mtu),
            deadlines: Deadlines::new(now, every),
            updated: now,
            attempts: 0,
            wants_resolve: false,
            counts: Counts::default(),
        };
        let peer = Self {
            key: config.public_key,
            allowed: config.allowed_ips.clone(),
            endpoint: config.endpoint.clone(),
            is_resolving: AtomicBool::new(false),
            due: AtomicU64::new(u64::MAX),
            state: Mutex::new(state),
        };
        peer.note_due(&peer.lock());
        peer
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a use of the state. Returns the next deadline.
    pub(crate) fn note_due(&self, state: &State) -> Instant {
        let next = state.deadlines.next();
        self.due.store(next.as_nanos(), Ordering::Relaxed);
        next
    }

    /// The next deadline, as of the last use.
    pub(crate) fn due(&self) -> Instant {
        Instant::from_nanos(self.due.load(Ordering::Relaxed))
    }
}

impl State {
    /// Sends a message that a call has left, if any. Returns whether there was one.
    fn emit(&mut self, now: Instant, result: &TunnResult<'_>, emit: Emit<'_>) -> bool {
        let (TunnResult::WriteToNetwork(message), Some(to)) = (result, self.endpoint) else { return false };
        let kind = kind_of(message);
        self.deadlines.sent(now, kind);
        self.counts.tx_bytes += message.len() as u64;
        if kind == Kind::Initiation {
            self.attempts = self.attempts.saturating_add(1);
            self.wants_resolve |= self.attempts.is_multiple_of(RESOLVE_AFTER);
        }
        emit(message, to);
        true
    }

    /// Before a packet: brings `boringtun`'s time up to date.
    pub(crate) fn touch(&mut self, now: Instant, emit: Emit<'_>) {
        if now.since(self.updated) >= STALE {
            self.update(now, emit);
        }
    }

    fn update(&mut self, now: Instant, emit: Emit<'_>) {
        let mut message = [0; SMALL];
        self.updated = now;
        match self.tunn.update_timers(&mut message) {
            TunnResult::Err(WireGuardError::ConnectionExpired) => self.deadlines.gave_up(),
            result => _ = self.emit(now, &result, emit),
        }
    }

    /// A deadline has come. Returns whether the endpoint's name should be resolved again.
    pub(crate) fn handle_timeout(&mut self, now: Instant, emit: Emit<'_>) -> bool {
        let keep_alive = self.deadlines.is_persistent_due(now);
        self.deadlines.fired(now);
        self.update(now, emit);
        if keep_alive {
            let mut message = [0; SMALL];
            let result = self.tunn.encapsulate(&[], &mut message);
            self.emit(now, &result, emit);
        }
        std::mem::take(&mut self.wants_resolve)
    }

    /// Encrypts a packet into `room`, which has [`OVERHEAD`] more than it, and at least [`SMALL`]. Returns
    /// the message's length; `None` when the packet waits for a handshake, which `emit` may begin.
    pub(crate) fn seal(
        &mut self,
        now: Instant,
        packet: &[u8],
        room: &mut [u8],
        emit: Emit<'_>,
    ) -> Option<usize> {
        match self.tunn.encapsulate(packet, room) {
            TunnResult::WriteToNetwork(message)
                if matches!(kind_of(message), Kind::Data | Kind::Keepalive) =>
            {
                let len = message.len();
                self.deadlines.sent(now, Kind::Data);
                self.counts.tx_bytes += len as u64;
                Some(len)
            }
            result => {
                self.emit(now, &result, emit);
                None
            }
        }
    }

    /// Opens a message that came from `from`; the inner packet is in `room`, which has room for all of it. An
    /// authentic one says where the peer is.
    pub(crate) fn open<'a>(
        &mut self,
        now: Instant,
        message: &[u8],
        from: SocketAddr,
        room: &'a mut [u8],
        emit: Emit<'_>,
    ) -> Opened<'a> {
        self.touch(now, emit);
        let kind = kind_of(message);
        match self.tunn.decapsulate(Some(from.ip()), message, room) {
            TunnResult::Err(error) => Opened::Refused(error),
            TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                let len = packet.len();
                self.note_received(now, message, kind, from);
                Opened::Packet(&mut room[..len])
            }
            result => {
                // The answer goes to where the peer is now.
                self.note_received(now, message, kind, from);
                if self.emit(now, &result, emit) {
                    self.emit_waiting(now, room, emit);
                }
                Opened::Nothing
            }
        }
    }

    /// Sends the packets that have waited for the handshake.
    fn emit_waiting(&mut self, now: Instant, room: &mut [u8], emit: Emit<'_>) {
        loop {
            let result = self.tunn.decapsulate(None, &[], room);
            if !self.emit(now, &result, emit) {
                return;
            }
        }
    }

    fn note_received(&mut self, now: Instant, message: &[u8], kind: Kind, from: SocketAddr) {
        self.deadlines.received(now, kind);
        self.counts.rx_bytes += message.len() as u64;
        if kind != Kind::Cookie {
            self.endpoint = Some(from);
        }
        if matches!(kind, Kind::Initiation | Kind::Response) {
            self.counts.handshake_at = Some(now);
            (self.attempts, self.wants_resolve) = (0, false);
        }
    }

    pub(crate) fn every(&self) -> Option<Duration> {
        self.deadlines.every()
    }
}
