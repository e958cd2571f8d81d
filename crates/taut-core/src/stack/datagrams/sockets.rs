//! Datagram sockets, for the application: open, connect, send, receive, options, close. RFC 768, RFC 6056
//! (ports); Linux: `udp_sendmsg`, `udp_recvmsg`, `ping_v4_sendmsg`. `link.rs` joins them to the link.

use core::net::{IpAddr, SocketAddr};

use taut_wire::{fragment, icmp, protocol, udp};

use crate::datagram::cut::{self, Cut, Question};
use crate::datagram::outbox::{Form, Outbox, Outgoing};
use crate::datagram::socket::Socket;
use crate::datagram::{
    DatagramError, DatagramInfo, DatagramKind, DatagramOption, DatagramOptions, IcmpReport, Received,
    SendMeta,
};
use crate::stack::opening::open::is_broadcast;
use crate::stack::tables::demux::DATAGRAM_BIT;
use crate::stack::{News, Stack};
use crate::words::{ConnectError, DatagramId, Endpoint, Instant, ListenError, Memory};

/// The most datagram sockets of a stack.
const SOCKETS_MAX: usize = 1 << 16;

impl Stack {
    /// Opens a socket that is bound to `at`. Port 0 picks a free one; an unspecified address is all of the
    /// stack's, and `::` those of IPv4, too, unless the options say otherwise.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn open_datagram(
        &mut self,
        kind: DatagramKind,
        at: SocketAddr,
        options: &DatagramOptions,
    ) -> Result<DatagramId, ListenError> {
        let exists = match kind {
            DatagramKind::Udp => cfg!(feature = "udp"),
            DatagramKind::Ping => cfg!(feature = "icmp"),
            // Only a filter makes them.
            DatagramKind::Echo => false,
        };
        let ip = at.ip().to_canonical();
        let ours = ip.is_unspecified() || self.config.any_address || self.config.addresses.contains(&ip);
        if !exists || !ours || ip.is_multicast() || is_broadcast(ip) {
            return Err(ListenError::AddrNotAvailable);
        }
        if self.datagrams.table.opened() >= SOCKETS_MAX {
            return Err(ListenError::AddrInUse);
        }
        let free = |stack: &Self, port| {
            let at = Endpoint::new(ip, port);
            let own = stack.steering.as_ref().is_none_or(|steering| steering.is_own_port(port));
            (own && !stack.datagrams.table.is_taken(kind, at, options.only_v6)).then_some(at)
        };
        let bound = match at.port() {
            0 => {
                // RFC 6056 §3.3.1: from a random port on.
                let (first, last) = self.config.ip_local_port_range;
                let count = u32::from(last.saturating_sub(first)) + 1;
                self.datagrams.ports = self.datagrams.ports.wrapping_add(1);
                let start = self.secrets.datagram_port(self.datagrams.ports);
                let port = |n: u32| first + (start.wrapping_add(n) % count) as u16;
                (0..count).find_map(|n| free(self, port(n)))
            }
            port if self.datagrams.table.is_taken(kind, Endpoint::new(ip, port), options.only_v6) => None,
            port => Some(Endpoint::new(ip, port)),
        };
        let bound = bound.ok_or(ListenError::AddrInUse)?;
        Ok(self.datagrams.table.insert(Socket::new(kind, bound, options)))
    }

    /// Closes a socket. What waits for the link is lost, what is below the stack leaves.
    pub fn close_datagram(&mut self, id: DatagramId) {
        if let Some(socket) = self.datagrams.table.remove(id) {
            self.datagrams.awaited -= u32::from(socket.outbox.is_awaited());
            if let Some(due) = socket.outbox.due() {
                self.datagrams.departures.remove(&(due, id.slot));
                self.update_side_deadline();
            }
            self.end_datagram_flow(id.slot, &socket);
            self.datagrams.groups.leave_all(id.slot);
            self.tell_groups();
        }
    }

    /// From now on the socket receives from `to` only, and sends there if nothing else is said; with `None`,
    /// from anybody again. What has arrived from others stays, as with Linux.
    ///
    /// # Errors
    /// [`DatagramError::Closed`], [`DatagramError::InvalidPeer`], [`DatagramError::AddrNotAvailable`], or
    /// [`DatagramError::Invalid`] for the socket of a flow, which stays connected.
    pub fn connect_datagram(&mut self, id: DatagramId, to: Option<SocketAddr>) -> Result<(), DatagramError> {
        let socket = self.datagrams.table.get(id).ok_or(DatagramError::Closed)?;
        if socket.flow.is_some() {
            return Err(DatagramError::Invalid);
        }
        let bound = socket.bound;
        let (local, peer) = match to {
            None => (bound, None),
            Some(to) => {
                let peer = peer_of(socket.kind, to)?;
                (Endpoint::new(self.source_for(bound.ip(), None, peer.ip())?, bound.port()), Some(peer))
            }
        };
        self.datagrams.table.move_to(id.slot, local, peer);
        Ok(())
    }

    /// Sends one datagram, or several if `meta` says so: to `to`, or to where the socket is connected. All of
    /// it or nothing is sent. A ping's message begins with its ICMP header.
    ///
    /// # Errors
    /// See [`DatagramError`]. An error that ICMP reported is returned once, and nothing is sent then.
    pub fn send_datagram(
        &mut self,
        now: Instant,
        id: DatagramId,
        to: Option<SocketAddr>,
        message: &[u8],
        meta: &SendMeta,
    ) -> Result<(), DatagramError> {
        let socket = self.datagrams.table.get_mut(id).ok_or(DatagramError::Closed)?;
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        let (kind, options, local) = (socket.kind, socket.options, socket.local);
        let to = match to {
            Some(to) => peer_of(kind, to)?,
            None => socket.peer.ok_or(DatagramError::NoDestination)?,
        };
        let (is_flow, is_over) = (socket.flow.is_some(), socket.is_over());
        if is_over {
            return Err(DatagramError::TimedOut);
        }
        // A flow has its own source, and no other destination.
        if is_flow && socket.peer != Some(to) {
            return Err(DatagramError::InvalidPeer);
        }
        let src = match (is_flow, meta.src) {
            (false, asked) => self.source_for(local.ip(), asked, to.ip())?,
            (true, None) => local.ip(),
            (true, Some(asked)) if asked.to_canonical() == local.ip() => local.ip(),
            (true, Some(_)) => return Err(DatagramError::AddrNotAvailable),
        };
        let is_v4 = src.is_ipv4();
        let transport_len = if kind == DatagramKind::Udp { udp::HEADER_LEN } else { 0 };
        let cut = cut::plan(&Question {
            is_v4,
            len: message.len(),
            transport_len,
            segment: meta.segment,
            discovery: options.mtu_discovery,
            path_mtu: self.datagrams.paths.get(now, to.ip(), self.caps.mtu),
            link: &self.caps,
        })?;
        let whole = self.transport(kind, cut, Endpoint::new(src, local.port()), to, message)?;
        if self.datagrams.outbox(id, Outbox::has_room) != Some(true) {
            return Err(DatagramError::WouldBlock);
        }
        // RFC 1112 §6.1: to a group, one hop if nothing else is said.
        let hops = if to.ip().is_multicast() {
            options.multicast_ttl.unwrap_or(1)
        } else {
            options.ttl.unwrap_or(self.config.ip_default_ttl)
        };
        let ident = match cut {
            Cut::Fragments(_) | Cut::Whole { dont_fragment: false } => Some(self.next_ident(src, to.ip())),
            _ => None,
        };
        let socket = self.datagrams.table.get_mut(id).ok_or(DatagramError::Closed)?;
        if let Some(flow) = socket.flow.as_deref_mut() {
            flow.used = now;
        }
        let memory = Memory::new(whole);
        let len = memory.len();
        let mut push = |range, form| {
            socket.outbox.push(Outgoing {
                memory: memory.clone(),
                range,
                src,
                src_port: local.port(),
                to,
                class: meta.tos.unwrap_or(options.tos),
                hops: meta.ttl.filter(|&ttl| ttl > 0).unwrap_or(hops),
                form,
                protocol: protocol_of(kind, is_v4),
                ident,
                departure: meta.departure.unwrap_or(Instant::ZERO),
            });
        };
        let datagram =
            |segment| if kind == DatagramKind::Udp { Form::Udp { segment } } else { Form::Message };
        match cut {
            Cut::Whole { .. } => push(0..len, datagram(0)),
            Cut::Super(size) => push(0..len, datagram(size)),
            Cut::Datagrams(size) => {
                let size = usize::from(size);
                (0..len).step_by(size).for_each(|at| push(at..len.min(at + size), datagram(0)));
            }
            Cut::Fragments(size) => {
                (0..len).step_by(size).for_each(|at| {
                    let end = len.min(at + size);
                    push(at..end, Form::Fragment { offset: at, more: end < len });
                });
                self.counters.frag_oks += 1;
                self.counters.frag_creates += len.div_ceil(size) as u64;
            }
        }
        self.count_sent(kind, message.len(), meta.segment);
        self.make_ready(now, id.slot);
        Ok(())
    }

    /// Counts what a call has sent: `len` bytes, in datagrams of `segment` if they are several.
    fn count_sent(&mut self, kind: DatagramKind, len: usize, segment: Option<u16>) {
        match kind {
            DatagramKind::Udp => {
                let count = segment.map_or(1, |size| len.div_ceil(size.max(1).into()).max(1));
                self.counters.udp_out_datagrams += count as u64;
            }
            DatagramKind::Ping => {
                self.counters.icmp_out_msgs += 1;
                self.counters.icmp_out_echos += 1;
            }
            DatagramKind::Echo => {
                self.counters.icmp_out_msgs += 1;
                self.counters.icmp_out_echo_reps += 1;
            }
        }
    }

    /// The bytes that are sent: the payload of UDP, or if headers cannot be put in front of it later, all of
    /// what the IP packet carries.
    fn transport(
        &self,
        kind: DatagramKind,
        cut: Cut,
        src: Endpoint,
        to: Endpoint,
        message: &[u8],
    ) -> Result<alloc::vec::Vec<u8>, DatagramError> {
        match kind {
            DatagramKind::Ping => {
                let mut whole = message.to_vec();
                let is_echo = icmp::finish_echo_request(&mut whole, src.ip(), to.ip(), src.port());
                is_echo.then_some(whole).ok_or(DatagramError::Invalid)
            }
            DatagramKind::Echo => {
                let mut whole = message.to_vec();
                let is_echo = icmp::finish_echo_reply(&mut whole, src.ip(), to.ip(), src.port());
                is_echo.then_some(whole).ok_or(DatagramError::Invalid)
            }
            DatagramKind::Udp if matches!(cut, Cut::Fragments(_)) => {
                let len = udp::HEADER_LEN + message.len();
                let mut whole = alloc::vec![0; udp::HEADER_LEN];
                let header = udp::UdpHeader { src_port: src.port(), dst_port: to.port(), len: len as u16 };
                header.emit(&mut whole);
                // A device sees fragments, and cannot complete a checksum over all of them.
                let checksum = udp::full_checksum(src.ip(), to.ip(), &whole, &[message]);
                udp::set_checksum(&mut whole, checksum);
                whole.extend_from_slice(message);
                Ok(whole)
            }
            DatagramKind::Udp => Ok(message.to_vec()),
        }
    }

    /// An identification for packets that may be fragments.
    pub(crate) fn next_ident(&mut self, src: IpAddr, dst: IpAddr) -> u32 {
        self.datagrams.idents = self.datagrams.idents.wrapping_add(1);
        let [src, dst] = [src, dst].map(|ip| Endpoint::new(ip, 0));
        self.secrets.fragment_ident(src, dst, self.datagrams.idents)
    }

    /// The source address of packets to `to`.
    fn source_for(&self, bound: IpAddr, asked: Option<IpAddr>, to: IpAddr) -> Result<IpAddr, DatagramError> {
        let asked = asked.map(|ip| ip.to_canonical()).or((!bound.is_unspecified()).then_some(bound));
        if bound.is_unspecified() && bound.is_ipv4() && !to.is_ipv4() {
            return Err(DatagramError::AddrNotAvailable);
        }
        let bind = asked.map(|ip| SocketAddr::new(ip, 0));
        self.local_for(to, bind).map(|(ip, _)| ip).map_err(|error| match error {
            ConnectError::NetworkUnreachable => DatagramError::NetworkUnreachable,
            _ => DatagramError::AddrNotAvailable,
        })
    }

    /// Copies the oldest datagram that waits into `into`, and removes it unless `peek`. What does not fit is
    /// lost.
    ///
    /// # Errors
    /// See [`DatagramError`]. An error that ICMP reported is returned once, before anything that waits.
    pub fn recv_datagram(
        &mut self,
        id: DatagramId,
        into: &mut [u8],
        peek: bool,
    ) -> Result<Received, DatagramError> {
        let socket = self.datagrams.table.get_mut(id).ok_or(DatagramError::Closed)?;
        if let Some(error) = socket.take_error() {
            return Err(error);
        }
        let none = if socket.is_over() { DatagramError::TimedOut } else { DatagramError::WouldBlock };
        let incoming = socket.inbox.front().ok_or(none)?;
        let len = incoming.bytes.len().min(into.len());
        into[..len].copy_from_slice(&incoming.bytes[..len]);
        let received = Received {
            len,
            whole: incoming.bytes.len(),
            from: incoming.from.socket_addr(),
            to: incoming.to,
            tos: incoming.class,
            ttl: incoming.hops,
            segment: incoming.segment,
        };
        if !peek
            && let Some(gone) = socket.inbox.pop()
            && let (Some(flow), Some(peer)) = (&socket.flow, socket.peer)
        {
            let (filter, bytes) = (flow.filter, gone.memory());
            self.release_queued(filter, peer, bytes);
        }
        Ok(received)
    }

    /// The oldest ICMP error that waits, of a socket with [`DatagramOptions::recv_errors`].
    pub fn recv_datagram_error(&mut self, id: DatagramId) -> Option<IcmpReport> {
        self.datagrams.table.get_mut(id)?.take_report()
    }

    /// The error that the next call would return, which it then does not. Linux: `SO_ERROR`.
    pub fn take_datagram_error(&mut self, id: DatagramId) -> Option<DatagramError> {
        self.datagrams.table.get_mut(id)?.take_error()
    }

    /// Whether [`recv_datagram`](Self::recv_datagram) would return something.
    #[must_use]
    pub fn is_datagram_readable(&self, id: DatagramId) -> bool {
        let socket = self.datagrams.table.get(id);
        socket.is_none_or(|socket| socket.has_error() || socket.is_over() || !socket.inbox.is_empty())
    }

    /// Whether half of the send buffer is free; else
    /// [`Event::DatagramWritable`](crate::Event::DatagramWritable) follows when it is.
    pub fn is_datagram_writable(&mut self, id: DatagramId) -> bool {
        let socket = self.datagrams.table.get(id);
        let is_decided = socket.is_none_or(|socket| socket.has_error() || socket.is_over());
        is_decided || self.datagrams.outbox(id, Outbox::is_writable) != Some(false)
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`DatagramError::Closed`]; [`DatagramError::Invalid`] for a time to live of 0, and for what is no
    /// group of the socket's family; [`DatagramError::TooManyGroups`], or [`DatagramError::AddrNotAvailable`]
    /// for one that was not joined.
    pub fn set_datagram_option(
        &mut self,
        id: DatagramId,
        option: DatagramOption,
    ) -> Result<(), DatagramError> {
        let socket = self.datagrams.table.get_mut(id).ok_or(DatagramError::Closed)?;
        match option {
            DatagramOption::Ttl(0) => return Err(DatagramError::Invalid),
            DatagramOption::JoinGroup(group) => {
                let hears = socket.kind == DatagramKind::Udp && socket.flow.is_none();
                if !hears || (group.is_ipv6() && socket.bound.is_ipv4()) {
                    return Err(DatagramError::Invalid);
                }
                self.datagrams.groups.join(group, id.slot)?;
                self.tell_groups();
            }
            DatagramOption::LeaveGroup(group) => {
                self.datagrams.groups.leave(group, id.slot)?;
                self.tell_groups();
            }
            option => socket.set(option),
        }
        Ok(())
    }

    /// The options of a socket; the sizes of its buffers are as they were at its beginning.
    #[must_use]
    pub fn datagram_options(&self, id: DatagramId) -> Option<DatagramOptions> {
        Some(self.datagrams.table.get(id)?.options)
    }

    /// A snapshot of a datagram socket.
    #[must_use]
    pub fn datagram(&self, id: DatagramId) -> Option<DatagramInfo> {
        Some(self.datagrams.table.get(id)?.info(id.slot))
    }

    /// A snapshot of each datagram socket.
    pub fn datagrams(&self) -> impl Iterator<Item = DatagramInfo> + '_ {
        self.datagrams.table.iter().map(|(slot, socket)| socket.info(slot))
    }

    /// The socket has something to send: it gets its turn, or its time.
    pub(super) fn make_ready(&mut self, now: Instant, slot: u32) {
        let paces = self.caps.paces;
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return };
        if socket.is_ready {
            return;
        }
        let Some(due) = socket.outbox.due() else { return };
        if due > now && !paces {
            self.datagrams.departures.insert((due, slot));
            self.update_side_deadline();
            return;
        }
        socket.is_ready = true;
        self.ready.push_back(slot | DATAGRAM_BIT);
    }

    /// The application is to be told about this socket.
    pub(super) fn tell(&mut self, slot: u32) {
        let Some(socket) = self.datagrams.table.at_mut(slot) else { return };
        if !core::mem::replace(&mut socket.news.is_queued, true) {
            self.incoming.push_back(News::Datagram(slot));
        }
    }
}

/// A peer to which datagrams may go.
fn peer_of(kind: DatagramKind, to: SocketAddr) -> Result<Endpoint, DatagramError> {
    let ip = to.ip().to_canonical();
    if ip.is_unspecified() || is_broadcast(ip) || (ip.is_multicast() && kind != DatagramKind::Udp) {
        return Err(DatagramError::InvalidPeer);
    }
    match kind {
        DatagramKind::Udp if to.port() == 0 => Err(DatagramError::InvalidPeer),
        DatagramKind::Udp => Ok(Endpoint::new(ip, to.port())),
        DatagramKind::Ping | DatagramKind::Echo => Ok(Endpoint::new(ip, 0)),
    }
}

const fn protocol_of(kind: DatagramKind, is_v4: bool) -> u8 {
    match (kind, is_v4) {
        (DatagramKind::Udp, _) => protocol::UDP,
        (DatagramKind::Ping | DatagramKind::Echo, true) => protocol::ICMP,
        (DatagramKind::Ping | DatagramKind::Echo, false) => protocol::ICMPV6,
    }
}

/// The longest headers of a datagram's packet: IPv6, and a fragment's or UDP's.
pub(super) const HEADERS_MAX: usize = fragment::header_len(false) + udp::HEADER_LEN;
