//! All datagram sockets of a stack: by name, by what they receive, and by port.
//! Linux: `udp_table`, `__udp4_lib_lookup`. Called by `stack/datagrams/`.
//!
//! **Rule.** A packet goes to the socket that is connected to its sender; else to the one that is bound to
//! its destination; else to the one that is bound to its port at any address, `::` after `0.0.0.0`. Each step
//! is one look into a hash table with a secret key, because strangers choose addresses and ports.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::DatagramKind;
use super::socket::Socket;
use crate::words::{DatagramId, Endpoint};

/// What a socket receives: packets of one protocol to an endpoint, from a peer or from anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    kind: DatagramKind,
    local: Endpoint,
    peer: Option<Endpoint>,
}

impl Socket {
    const fn key(&self) -> Key {
        Key { kind: self.kind, local: self.local, peer: self.peer }
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Option<Box<Socket>>>,
    free: Vec<u32>,
    generation: u32,
    by_key: HashTable<u32>,
    hasher: SipHasher13,
    /// The sockets that are bound to a port: one, or one for each address. Those of flows are bound to
    /// nothing of ours.
    by_port: BTreeMap<(DatagramKind, u16), Vec<u32>>,
    /// The sockets of flows.
    flows: u32,
}

const ANY_V4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

fn hash(hasher: &SipHasher13, key: &Key) -> u64 {
    let mut hasher = *hasher;
    hasher.write_u8(key.kind as u8);
    for end in core::iter::once(key.local).chain(key.peer) {
        hasher.write(end.ip_bytes());
        hasher.write_u16(end.port());
    }
    hasher.finish()
}

impl Table {
    pub(crate) fn new((k0, k1): (u64, u64)) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            generation: 0,
            by_key: HashTable::new(),
            hasher: SipHasher13::new_with_keys(k0, k1),
            by_port: BTreeMap::new(),
            flows: 0,
        }
    }

    /// The number of sockets that an application opened.
    pub(crate) const fn opened(&self) -> usize {
        self.slots.len() - self.free.len() - self.flows as usize
    }

    /// The number of sockets of flows.
    pub(crate) const fn flows(&self) -> usize {
        self.flows as usize
    }

    pub(crate) fn at(&self, slot: u32) -> Option<&Socket> {
        self.slots.get(slot as usize)?.as_deref()
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Socket> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// The socket with that name, if the application has it.
    pub(crate) fn get(&self, id: DatagramId) -> Option<&Socket> {
        self.at(id.slot).filter(|socket| socket.generation == id.generation && socket.is_held())
    }

    /// See [`get`](Self::get).
    pub(crate) fn get_mut(&mut self, id: DatagramId) -> Option<&mut Socket> {
        self.at_mut(id.slot).filter(|socket| socket.generation == id.generation && socket.is_held())
    }

    /// Every socket that the application has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Socket)> + '_ {
        let all = self.slots.iter().zip(0..).filter_map(|(socket, slot)| Some((slot, socket.as_deref()?)));
        all.filter(|(_, socket)| socket.is_held())
    }

    /// Whether a socket is bound to this endpoint, or to one that it would share packets with.
    pub(crate) fn is_taken(&self, kind: DatagramKind, at: Endpoint, only_v6: bool) -> bool {
        let slots = self.by_port.get(&(kind, at.port()));
        slots.into_iter().flatten().filter_map(|&slot| self.at(slot)).any(|socket| {
            let (a, b) = (socket.bound.ip(), at.ip());
            let covers = |any: IpAddr, only_v6: bool, ip: IpAddr| {
                any == ANY_V6 && (ip.is_ipv6() || !only_v6) || any == ANY_V4 && ip.is_ipv4()
            };
            a == b || covers(a, socket.options.only_v6, b) || covers(b, only_v6, a)
        })
    }

    /// Adds a socket whose endpoint is not [taken](Self::is_taken).
    pub(crate) fn insert(&mut self, mut socket: Socket) -> DatagramId {
        socket.generation = self.generation;
        self.generation = self.generation.wrapping_add(1);
        let (generation, port) = (socket.generation, (socket.kind, socket.bound.port()));
        let of_flow = socket.flow.is_some();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(Box::new(socket));
                slot
            }
            None => {
                self.slots.push(Some(Box::new(socket)));
                self.slots.len() as u32 - 1
            }
        };
        if of_flow {
            self.flows += 1;
        } else {
            self.by_port.entry(port).or_default().push(slot);
        }
        self.add_key(slot);
        DatagramId { slot, generation }
    }

    pub(crate) fn remove(&mut self, id: DatagramId) -> Option<Box<Socket>> {
        self.get(id)?;
        self.remove_at(id.slot)
    }

    pub(crate) fn remove_at(&mut self, slot: u32) -> Option<Box<Socket>> {
        self.remove_key(slot);
        let socket = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        if socket.flow.is_some() {
            self.flows -= 1;
            return Some(socket);
        }
        let port = (socket.kind, socket.bound.port());
        if let Some(slots) = self.by_port.get_mut(&port) {
            slots.retain(|&other| other != slot);
            if slots.is_empty() {
                self.by_port.remove(&port);
            }
        }
        Some(socket)
    }

    /// From now on the socket receives nothing, and another may take its place.
    pub(crate) fn deafen(&mut self, slot: u32) {
        self.remove_key(slot);
    }

    /// Changes which packets a socket receives.
    pub(crate) fn move_to(&mut self, slot: u32, local: Endpoint, peer: Option<Endpoint>) {
        self.remove_key(slot);
        if let Some(socket) = self.at_mut(slot) {
            (socket.local, socket.peer) = (local, peer);
        }
        self.add_key(slot);
    }

    /// The socket that receives a packet to an address of ours.
    pub(crate) fn find(&self, kind: DatagramKind, local: Endpoint, peer: Endpoint) -> Option<u32> {
        let look = |local, peer| self.find_key(&Key { kind, local, peer });
        let any = |ip| Endpoint::new(ip, local.port());
        let is_v4 = local.is_ipv4();
        self.find_exact(kind, local, peer)
            .or_else(|| look(any(if is_v4 { ANY_V4 } else { ANY_V6 }), None))
            .or_else(|| {
                let both = look(any(ANY_V6), None).filter(|_| is_v4)?;
                self.at(both).filter(|socket| !socket.options.only_v6).map(|_| both)
            })
    }

    /// The socket that receives a packet and is bound to its very destination.
    pub(crate) fn find_exact(&self, kind: DatagramKind, local: Endpoint, peer: Endpoint) -> Option<u32> {
        let look = |peer| self.find_key(&Key { kind, local, peer });
        look(Some(peer)).or_else(|| look(None))
    }

    fn find_key(&self, key: &Key) -> Option<u32> {
        let is_it = |&slot: &u32| self.at(slot).is_some_and(|socket| socket.key() == *key);
        self.by_key.find(hash(&self.hasher, key), is_it).copied()
    }

    fn add_key(&mut self, slot: u32) {
        let Some(key) = self.at(slot).map(Socket::key) else { return };
        let Self { slots, by_key, hasher, .. } = self;
        let rehash = |&slot: &u32| {
            let socket = slots.get(slot as usize).and_then(|socket| socket.as_deref());
            socket.map_or(0, |socket| hash(hasher, &socket.key()))
        };
        by_key.insert_unique(hash(hasher, &key), slot, rehash);
    }

    fn remove_key(&mut self, slot: u32) {
        let Some(key) = self.at(slot).map(Socket::key) else { return };
        if let Ok(entry) = self.by_key.find_entry(hash(&self.hasher, &key), |&entry| entry == slot) {
            entry.remove();
        }
    }
}
