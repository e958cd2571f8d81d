//! How connections and listeners begin: connect, listen, accept, and the choice of a local port.
//! RFC 9293 §3.10.1, RFC 6056 §3.3.3 (ports), RFC 6191 (TIME-WAIT reused). Called by the application.

use core::net::{IpAddr, SocketAddr};

use crate::conn::handshake::Birth;
use crate::conn::{Conn, StackCx};
use crate::settings::options::{ConnOptions, ListenOptions};
use crate::stack::tables::demux::Owner;
use crate::stack::{ConnMut, Stack, stack_cx};
use crate::words::{ConnId, ConnectError, Endpoint, Instant, ListenError, ListenerId, Tuple};

impl Stack {
    /// Begins a connection. [`Event::Connected`](crate::Event::Connected) or
    /// [`Event::Failed`](crate::Event::Failed) follows.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]; after an error nothing has been started.
    pub fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        options: &ConnOptions,
    ) -> Result<ConnId, ConnectError> {
        let ip = to.ip().to_canonical();
        if to.port() == 0
            || ip.is_unspecified()
            || ip.is_multicast()
            || self.surroundings.addresses.is_broadcast(ip)
        {
            return Err(ConnectError::InvalidPeer);
        }
        if self.is_full() {
            return Err(ConnectError::TooManyConnections);
        }
        let peer = Endpoint::new(ip, to.port());
        let (local_ip, port) = self.local_for(ip, options.bind)?;
        let (tuple, min_iss) = match port {
            0 => self.free_tuple(now, local_ip, peer)?,
            port => self
                .claim(now, Tuple { local: Endpoint::new(local_ip, port), peer })
                .ok_or(ConnectError::AddrInUse)?,
        };
        self.counters.active_opens += 1;
        let id = self.open(now, tuple, min_iss, options, Conn::active);
        if options.fast_open {
            self.begin_fast_open(now, id, options);
        }
        Ok(id)
    }

    /// The local address for a connection to `peer`, and the port if one was requested.
    pub(crate) fn local_for(
        &self,
        peer: IpAddr,
        bind: Option<SocketAddr>,
    ) -> Result<(IpAddr, u16), ConnectError> {
        let port = bind.map_or(0, |bind| bind.port());
        let asked = bind.map(|bind| bind.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        if !cfg!(feature = "ipv6") && peer.is_ipv6() {
            return Err(ConnectError::NetworkUnreachable);
        }
        if !self.surroundings.reaches(peer) {
            return Err(ConnectError::NetworkUnreachable);
        }
        let found = match asked {
            Some(ip) => {
                let ours = self.config.any_address || self.config.addresses.contains(&ip);
                (ours && ip.is_ipv4() == peer.is_ipv4()).then_some(ip)
            }
            None => self.surroundings.source(peer),
        };
        Ok((found.ok_or(ConnectError::AddrNotAvailable)?, port))
    }

    /// A local port that no connection to `peer` uses (RFC 6056 §3.3.3).
    pub(crate) fn free_tuple(
        &mut self,
        now: Instant,
        local_ip: IpAddr,
        peer: Endpoint,
    ) -> Result<(Tuple, Option<u32>), ConnectError> {
        let (first, last) = self.config.ip_local_port_range;
        let count = u32::from(last.saturating_sub(first)) + 1;
        let offset = self.secrets.port_offset(Endpoint::new(local_ip, 0), peer);
        for _ in 0..count {
            let port = first + (offset.wrapping_add(self.next_port) % count) as u16;
            self.next_port = self.next_port.wrapping_add(1);
            if let Some(claimed) = self.claim(now, Tuple { local: Endpoint::new(local_ip, port), peer }) {
                return Ok(claimed);
            }
        }
        Err(ConnectError::AddrInUse)
    }

    /// Takes a tuple for a new connection, if it belongs to this stack and is free, or in a TIME-WAIT that
    /// may be cut short. Also returns the least initial sequence number that cannot be mistaken for one of
    /// the old connection.
    pub(crate) fn claim(&mut self, now: Instant, tuple: Tuple) -> Option<(Tuple, Option<u32>)> {
        if self.steering.as_ref().is_some_and(|steering| !steering.is_own(tuple.local, tuple.peer)) {
            return None;
        }
        match self.owner(&tuple) {
            None => Some((tuple, None)),
            Some(Owner::Conn(_) | Owner::HalfOpen(_) | Owner::Flow(_)) => None,
            Some(Owner::TimeWait(slot)) => {
                let entry = self.tables.time_wait.get(slot)?;
                if !entry.may_reuse_for_connect(now) {
                    return None;
                }
                let min_iss = entry.min_iss();
                self.forget_time_wait(slot);
                self.counters.tw_recycled += 1;
                Some((tuple, Some(min_iss)))
            }
        }
    }

    pub(crate) fn owner(&mut self, tuple: &Tuple) -> Option<Owner> {
        self.tables.find(tuple)
    }

    pub(crate) fn forget_time_wait(&mut self, slot: u32) {
        if let Some(entry) = self.tables.time_wait.get(slot) {
            let tuple = Tuple { local: entry.local, peer: entry.peer };
            self.tables.demux.remove(&tuple, Owner::TimeWait(slot));
            self.tables.time_wait.remove(slot);
        }
    }

    /// Makes a connection with `make` and adds it to all tables.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        tuple: Tuple,
        min_iss: Option<u32>,
        options: &ConnOptions,
        make: impl FnOnce(&mut StackCx<'_>, &Birth<'_>) -> Conn,
    ) -> ConnId {
        let id = self.tables.conns.next_id();
        let birth = Birth {
            tuple,
            generation: id.generation,
            options,
            isn: min_iss.unwrap_or_else(|| self.secrets.isn(&tuple, now)),
            timestamp_offset: self.secrets.timestamp_offset(&tuple),
            born: now,
        };
        let mut cx = stack_cx!(self, now);
        let conn = make(&mut cx, &birth);
        let slot = self.tables.conns.insert(conn);
        self.pool.budget.set_connections(self.tables.conns.len());
        self.tables.insert(&tuple, Owner::Conn(slot));
        self.settle(now, slot);
        id
    }

    /// Listens at an address; an unspecified one takes every address of the stack.
    ///
    /// # Errors
    ///
    /// See [`ListenError`].
    pub fn listen(&mut self, at: SocketAddr, options: ListenOptions) -> Result<ListenerId, ListenError> {
        let ip = at.ip().to_canonical();
        if !ip.is_unspecified() && !self.config.any_address && !self.config.addresses.contains(&ip) {
            return Err(ListenError::AddrNotAvailable);
        }
        let (first, last) = self.config.ip_local_port_range;
        let at = SocketAddr::new(ip, at.port());
        if at.port() != 0 {
            return self.listeners.insert(at, options);
        }
        (first..=last)
            .find_map(|port| self.listeners.insert(SocketAddr::new(ip, port), options.clone()).ok())
            .ok_or(ListenError::AddrInUse)
    }

    /// The address of a listener, with the port that was picked for port 0.
    #[must_use]
    pub fn listener_addr(&self, id: ListenerId) -> Option<SocketAddr> {
        self.listeners.get(id).map(|listener| listener.addr)
    }

    /// The connection that has waited longest at a listener, and its peer. From now on the caller holds the
    /// connection and must release it.
    pub fn accept(&mut self, id: ListenerId) -> Option<(ConnId, SocketAddr)> {
        let listener = self.listeners.get_mut(id)?;
        while let Some(conn_id) = listener.ready.pop_front() {
            if let Some(conn) = self.tables.conns.get(conn_id) {
                return Some((conn_id, conn.tuple.peer.into()));
            }
        }
        listener.notified = false;
        None
    }

    /// Stops listening; connections that were not accepted are reset, and half-open ones are forgotten.
    pub fn close_listener(&mut self, now: Instant, id: ListenerId) {
        let Some(listener) = self.listeners.remove(id) else { return };
        self.close_filter(id);
        for half_open in listener.by_age {
            if let Some((slot, _)) = self.tables.half_open.find(half_open) {
                self.drop_half_open(slot);
            }
        }
        for conn_id in listener.ready {
            if let Some(conn) = self.conn_mut(conn_id) {
                conn.abort(now);
            }
        }
    }

    /// The connection with that name, unless it was released.
    pub fn conn_mut(&mut self, id: ConnId) -> Option<ConnMut<'_>> {
        self.tables.conns.get(id).filter(|conn| conn.flags.held)?;
        Some(ConnMut::new(self, id.slot))
    }
}

pub(crate) fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}
