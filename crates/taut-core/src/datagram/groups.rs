//! Which sockets have joined which groups of multicast. RFC 1112 §6.1 and §7.1; Linux: `ip_mc_join_group`,
//! `igmp_max_memberships`. Called by `stack/datagrams/groups.rs`.
//!
//! **Rule.** A datagram to a group goes to every socket that has joined the group and is bound to its port.
//! (Linux also gives it to sockets that have not joined, as long as any other has: `IP_MULTICAST_ALL`.) A
//! socket may join 20 groups, and all of them 64.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use super::DatagramError;

/// Linux: `igmp_max_memberships`.
const PER_SOCKET_MAX: usize = 20;
const GROUPS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The slots of the sockets that have joined.
    members: BTreeMap<IpAddr, Vec<u32>>,
    /// What the link must be told: a group, and whether it was joined.
    news: VecDeque<(IpAddr, bool)>,
}

impl Groups {
    /// # Errors
    /// [`DatagramError::Invalid`] for what is no group, or one that was joined already;
    /// [`DatagramError::TooManyGroups`].
    pub(crate) fn join(&mut self, group: IpAddr, slot: u32) -> Result<(), DatagramError> {
        let joined = self.members.values().filter(|slots| slots.contains(&slot)).count();
        if !group.is_multicast() || self.members.get(&group).is_some_and(|slots| slots.contains(&slot)) {
            return Err(DatagramError::Invalid);
        }
        let is_new = !self.members.contains_key(&group);
        if joined >= PER_SOCKET_MAX || (is_new && self.members.len() >= GROUPS_MAX) {
            return Err(DatagramError::TooManyGroups);
        }
        self.members.entry(group).or_default().push(slot);
        if is_new {
            self.news.push_back((group, true));
        }
        Ok(())
    }

    /// # Errors
    /// [`DatagramError::AddrNotAvailable`] if the socket has not joined it.
    pub(crate) fn leave(&mut self, group: IpAddr, slot: u32) -> Result<(), DatagramError> {
        let slots = self.members.get_mut(&group).ok_or(DatagramError::AddrNotAvailable)?;
        let at = slots.iter().position(|other| *other == slot).ok_or(DatagramError::AddrNotAvailable)?;
        slots.remove(at);
        if slots.is_empty() {
            self.members.remove(&group);
            self.news.push_back((group, false));
        }
        Ok(())
    }

    /// The socket is closed.
    pub(crate) fn leave_all(&mut self, slot: u32) {
        let of = |(group, slots): (&IpAddr, &Vec<u32>)| slots.contains(&slot).then_some(*group);
        let joined: Vec<_> = self.members.iter().filter_map(of).collect();
        for group in joined {
            // It has joined it.
            _ = self.leave(group, slot);
        }
    }

    /// The sockets that have joined a group.
    pub(crate) fn of(&self, group: IpAddr) -> &[u32] {
        self.members.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The groups.
    pub(crate) fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.members.keys().copied()
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// What the link must be told next.
    pub(crate) fn poll_news(&mut self) -> Option<(IpAddr, bool)> {
        self.news.pop_front()
    }
}
