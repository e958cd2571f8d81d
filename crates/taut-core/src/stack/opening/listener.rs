//! Listening sockets: an address, a bounded queue of connections to accept, and a bounded number of half-open
//! ones. RFC 9293 §3.10.7.2; called by the stack for SYNs that belong to no connection, and by accept.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::caps::Counts;
use super::syn_cookies;
use crate::fast_open::Pending;
use crate::settings::options::ListenOptions;
use crate::words::{ConnId, Endpoint, Instant, ListenError, ListenerId};

/// The address of a filter among the listeners: none.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) addr: SocketAddr,
    pub(crate) options: ListenOptions,
    /// Connections whose handshake is not complete.
    pub(crate) half_open: u32,
    /// They in the order of their SYNs, and some that are complete or gone.
    pub(crate) by_age: VecDeque<ConnId>,
    /// Connections in any state, in all and of each peer.
    pub(crate) counts: Counts,
    /// Connections that a SYN opened at once, their handshakes not complete.
    pub(crate) pending: Pending,
    /// When a SYN was last answered by a cookie.
    pub(crate) cookie_at: Option<Instant>,
    /// Connections that wait to be accepted, oldest first.
    pub(crate) ready: VecDeque<ConnId>,
    /// The application was notified that a connection waits, and has not called `accept` since.
    pub(crate) notified: bool,
}

impl Listener {
    /// Whether the application's caps allow one more connection from this address.
    pub(crate) fn allows(&self, peer: IpAddr) -> bool {
        self.counts.may_begin(&self.options, peer)
    }

    /// A connection from this address begins, half-open.
    pub(crate) fn begin(&mut self, peer: IpAddr) {
        self.half_open += 1;
        self.counts.add(&self.options, peer);
    }

    /// Whether one more connection may wait to be accepted.
    pub(crate) fn may_be_ready(&self) -> bool {
        (self.ready.len() as u64) < u64::from(self.options.backlog.max(1))
    }

    /// Whether one more connection may be half-open.
    pub(crate) fn may_be_half_open(&self) -> bool {
        self.half_open < self.options.backlog.max(1)
    }

    /// Whether an ACK without a connection may be the answer to a cookie.
    pub(crate) fn has_sent_cookies(&self, now: Instant) -> bool {
        self.cookie_at.is_some_and(|at| now.since(at) <= syn_cookies::VALID)
    }
}

/// A snapshot of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerInfo {
    /// Its name.
    pub id: ListenerId,
    /// The address at which it listens; `[::]:0` for a filter, which has none.
    pub addr: SocketAddr,
    /// Connections that wait to be accepted.
    pub ready: u32,
    /// Connections whose handshake is not complete.
    pub half_open: u32,
    /// The limit of each of the two.
    pub backlog: u32,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    listener: Option<Listener>,
}

/// All listening sockets, by port and address.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    slots: Vec<Slot>,
    by_addr: BTreeMap<(u16, IpAddr), u32>,
}

impl Listeners {
    /// A snapshot of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ListenerInfo> + '_ {
        self.slots.iter().zip(0..).filter_map(|(entry, slot)| {
            let listener = entry.listener.as_ref()?;
            Some(ListenerInfo {
                id: ListenerId { slot, generation: entry.generation },
                addr: listener.addr,
                ready: u32::try_from(listener.ready.len()).unwrap_or(u32::MAX),
                half_open: listener.half_open,
                backlog: listener.options.backlog,
            })
        })
    }

    /// Adds a filter: a listener that no address leads to.
    pub(crate) fn insert_filter(&mut self, options: ListenOptions) -> ListenerId {
        self.add(NO_ADDRESS, options)
    }

    /// Adds a listener.
    pub(crate) fn insert(
        &mut self,
        addr: SocketAddr,
        options: ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        let key = (addr.port(), addr.ip());
        if self.by_addr.contains_key(&key) {
            return Err(ListenError::AddrInUse);
        }
        let id = self.add(addr, options);
        self.by_addr.insert(key, id.slot);
        Ok(id)
    }

    fn add(&mut self, addr: SocketAddr, options: ListenOptions) -> ListenerId {
        let listener = Listener {
            addr,
            options,
            half_open: 0,
            by_age: VecDeque::new(),
            counts: Counts::default(),
            pending: Pending::default(),
            cookie_at: None,
            ready: VecDeque::new(),
            notified: false,
        };
        let free = self.slots.iter().position(|slot| slot.listener.is_none());
        let index = free.unwrap_or(self.slots.len());
        if free.is_none() {
            self.slots.push(Slot::default());
        }
        let slot = &mut self.slots[index];
        slot.listener = Some(listener);
        ListenerId { slot: index as u32, generation: slot.generation }
    }

    /// Removes a listener.
    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        self.get(id)?;
        let slot = self.slots.get_mut(id.slot())?;
        let listener = slot.listener.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.by_addr.remove(&(listener.addr.port(), listener.addr.ip()));
        Some(listener)
    }

    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        let slot = self.slots.get(id.slot())?;
        slot.listener.as_ref().filter(|_| slot.generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let slot = self.slots.get_mut(id.slot())?;
        slot.listener.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// The listener for `local`: the exact address before the wildcard of its family before `[::]`, which, as
    /// in Linux, takes both families.
    pub(crate) fn find(&self, local: Endpoint) -> Option<ListenerId> {
        let ip = local.ip();
        let own_wildcard = match ip {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let slot = [ip, own_wildcard, IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
            .iter()
            .find_map(|&candidate| self.by_addr.get(&(local.port(), candidate)))
            .copied()?;
        Some(ListenerId { slot, generation: self.slots.get(slot as usize)?.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(listeners: &mut Listeners, addr: &str) -> Result<ListenerId, ListenError> {
        listeners.insert(addr.parse().unwrap(), ListenOptions::default())
    }

    fn endpoint(addr: &str) -> Endpoint {
        addr.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn the_most_exact_address_wins() {
        let mut all = Listeners::default();
        let exact = listen(&mut all, "10.0.0.1:80").unwrap();
        let any = listen(&mut all, "0.0.0.0:80").unwrap();
        let dual = listen(&mut all, "[::]:80").unwrap();
        assert_eq!(all.find(endpoint("10.0.0.1:80")), Some(exact));
        assert_eq!(all.find(endpoint("10.0.0.2:80")), Some(any));
        assert_eq!(all.find(endpoint("[fd00::1]:80")), Some(dual));
        assert_eq!(all.find(endpoint("10.0.0.1:81")), None);
        all.remove(any);
        assert_eq!(all.find(endpoint("10.0.0.2:80")), Some(dual));
    }

    #[test]
    fn an_address_is_taken_once_and_a_removed_listener_is_gone() {
        let mut all = Listeners::default();
        let first = listen(&mut all, "10.0.0.1:80").unwrap();
        assert_eq!(listen(&mut all, "10.0.0.1:80"), Err(ListenError::AddrInUse));
        assert!(all.remove(first).is_some());
        let second = listen(&mut all, "10.0.0.1:80").unwrap();
        assert!(all.get(first).is_none(), "the old name does not find the new listener");
        assert!(all.get(second).is_some());
    }
}
