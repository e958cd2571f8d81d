//! The forwarded ports of a running gateway, by number and by place: a table. Pure: what is open for a port
//! is of any type. Called by `mod.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use taut::FlowKind;

use crate::doors::forward::Forward;

/// Ports of both kinds.
const MOST: usize = 2 * 65_535;

/// Whether it is UDP, and where the host listens.
type Place = (bool, SocketAddr);

/// All of them.
#[derive(Debug)]
pub(super) struct Forwards<T> {
    all: BTreeMap<Place, Entry<T>>,
    last: u64,
}

/// One, and what is open for it.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) id: u64,
    pub(super) forward: Forward,
    pub(super) open: Option<T>,
}

impl<T> Default for Forwards<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), last: 0 }
    }
}

impl<T> Forwards<T> {
    /// Whether there is one of this kind at this place.
    pub(super) fn has(&self, kind: FlowKind, at: SocketAddr) -> bool {
        self.all.contains_key(&place(kind, at))
    }

    /// Whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.all.len() >= MOST
    }

    /// Adds one at a place that has none, and returns its number: each is given once.
    pub(super) fn add(&mut self, forward: Forward, open: Option<T>) -> u64 {
        self.last += 1;
        self.all.insert(place(forward.kind, forward.at), Entry { id: self.last, forward, open });
        self.last
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, kind: FlowKind, at: SocketAddr) -> Option<Entry<T>> {
        self.all.remove(&place(kind, at))
    }

    /// Takes those out for which this is not so.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Entry<T>) -> bool) {
        self.all.retain(|_, entry| is_kept(entry));
    }

    /// TCP's first, by their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.all.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry<T>> {
        self.all.values_mut()
    }
}

fn place(kind: FlowKind, at: SocketAddr) -> Place {
    (kind == FlowKind::Udp, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gw_235_a_place_has_one_forward_of_each_kind() {
        let parse = |kind, text| Forward::parse(kind, text).unwrap()[0];
        let (tcp, udp) = (parse(FlowKind::Tcp, "8080:80"), parse(FlowKind::Udp, "8080:53"));
        let other = parse(FlowKind::Tcp, "[::1]:8080:80");
        let mut all = Forwards::default();
        for (number, one) in [udp, other, tcp].into_iter().enumerate() {
            assert!(!all.has(one.kind, one.at));
            assert_eq!(all.add(one, Some(number)), number as u64 + 1);
        }
        assert!([tcp, udp, other].iter().all(|one| all.has(one.kind, one.at)) && !all.is_full());
        assert_eq!(all.iter().map(|entry| entry.id).collect::<Vec<_>>(), [3, 2, 1]);
        let gone = all.remove(FlowKind::Tcp, tcp.at).unwrap();
        assert_eq!((gone.forward, gone.open), (tcp, Some(2)));
        assert!(all.remove(FlowKind::Tcp, tcp.at).is_none() && all.has(FlowKind::Udp, tcp.at));
        // A number is of one only.
        assert_eq!(all.add(tcp, None), 4);
        all.retain(|entry| entry.open.is_some());
        assert_eq!(all.iter().map(|entry| entry.id).collect::<Vec<_>>(), [2, 1]);
    }
}
