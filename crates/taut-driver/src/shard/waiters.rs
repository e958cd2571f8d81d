//! The waiting tasks and threads: side tables indexed by the slots of connections and listeners.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use smallvec::SmallVec;
use taut_core::{ConnId, DatagramId, Event, FlowId, ListenerId};

/// The event that a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or the end of the connection.
    Read(ConnId),
    /// Room to write, the end of the handshake, or the end of the connection.
    Write(ConnId),
    /// A connection to accept.
    Accept(ListenerId),
    /// The end of a flow that is not decided.
    Flow(FlowId),
    /// A datagram, or an error to report.
    RecvFrom(DatagramId),
    /// Room for a datagram, or an error to report.
    SendTo(DatagramId),
    /// A change of the addresses or the routes.
    Network,
    /// No connection is left.
    Idle,
    /// The end of the stack: no [`Shard::poll`](crate::Shard::poll) for it is ready before that.
    End,
}

impl Interest {
    /// Whether `event` may be what is waited for.
    pub(crate) fn is_met_by(self, event: &Event) -> bool {
        match (self, *event) {
            (Self::Accept(listener), Event::Incoming(id)) => listener == id,
            (Self::Flow(flow), Event::FlowGone(id)) => flow == id,
            (Self::RecvFrom(socket), Event::DatagramReadable(id))
            | (Self::SendTo(socket), Event::DatagramWritable(id)) => socket == id,
            (Self::Read(conn), Event::Readable(id)) | (Self::Write(conn), Event::Writable(id)) => conn == id,
            (
                Self::Read(conn) | Self::Write(conn),
                Event::Connected(id) | Event::Failed(id, _) | Event::Closed(id),
            ) => conn == id,
            _ => false,
        }
    }
}

/// Distinguishes the waiters for one direction of a connection: each has one waker, the latest that it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitKey(u64);

impl WaitKey {
    /// The key that poll functions share: only the task that polled last is woken.
    pub const POLL: Self = Self(0);

    /// A unique key.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The waiters for one event, mostly none or one, which needs no memory of its own.
#[derive(Debug, Default)]
struct WaitList(SmallVec<[(WaitKey, Waker); 1]>);

impl WaitList {
    fn add(&mut self, key: WaitKey, waker: &Waker) -> Option<Waker> {
        match self.0.iter_mut().find(|(other, _)| *other == key) {
            Some((_, place)) if place.will_wake(waker) => None,
            Some((_, place)) => Some(std::mem::replace(place, waker.clone())),
            None => {
                self.0.push((key, waker.clone()));
                None
            }
        }
    }

    fn remove(&mut self, key: WaitKey) -> Option<Waker> {
        let at = self.0.iter().position(|(other, _)| *other == key)?;
        Some(self.0.swap_remove(at).1)
    }

    fn wake(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.0.drain(..).map(|(_, waker)| waker));
    }
}

#[derive(Debug, Default)]
struct BothWaiters {
    read: WaitList,
    write: WaitList,
}

/// All waiters of one shard.
///
/// Wakers that are no longer needed are returned to the caller, which drops them without the lock: dropping
/// one may drop a whole task, and its sockets.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    conns: Vec<BothWaiters>,
    datagrams: Vec<BothWaiters>,
    listeners: Vec<WaitList>,
    flows: Vec<WaitList>,
    network: WaitList,
    idle: WaitList,
    end: WaitList,
    /// The number of entries in all lists, except those that wait for the end, which need no driver.
    waiting: usize,
}

impl Waiters {
    pub(crate) fn add(&mut self, interest: Interest, key: WaitKey, waker: &Waker) -> Option<Waker> {
        let list = self.list(interest);
        let before = list.0.len();
        let replaced = list.add(key, waker);
        let added = list.0.len() - before;
        self.waiting += if interest == Interest::End { 0 } else { added };
        replaced
    }

    pub(crate) fn remove(&mut self, interest: Interest, key: WaitKey) -> Option<Waker> {
        let removed = self.existing(interest)?.remove(key);
        self.waiting -= usize::from(removed.is_some() && interest != Interest::End);
        removed
    }

    /// Takes the wakers that `event` concerns.
    pub(crate) fn wake(&mut self, event: Event, into: &mut Vec<Waker>) {
        match event {
            Event::Incoming(id) => self.wake_one(Interest::Accept(id), into),
            Event::FlowGone(id) => self.wake_one(Interest::Flow(id), into),
            Event::DatagramReadable(id) => self.wake_one(Interest::RecvFrom(id), into),
            Event::DatagramWritable(id) => self.wake_one(Interest::SendTo(id), into),
            Event::Readable(id) => self.wake_one(Interest::Read(id), into),
            Event::Writable(id) => self.wake_one(Interest::Write(id), into),
            Event::Connected(id) | Event::Failed(id, _) | Event::Closed(id) => self.wake_conn(id, into),
            _ => {}
        }
    }

    /// Takes the wakers of both directions.
    pub(crate) fn wake_conn(&mut self, id: ConnId, into: &mut Vec<Waker>) {
        self.wake_one(Interest::Read(id), into);
        self.wake_one(Interest::Write(id), into);
    }

    pub(crate) fn wake_one(&mut self, interest: Interest, into: &mut Vec<Waker>) {
        // Only the end wakes those that wait for it.
        let list = self.existing(interest).filter(|_| interest != Interest::End);
        if let Some(list) = list {
            let woken = list.0.len();
            list.wake(into);
            self.waiting -= woken;
        }
    }

    /// Whether one waits until no connection is left.
    pub(crate) fn await_idle(&self) -> bool {
        !self.idle.0.is_empty()
    }

    /// The list, if it ever had an entry: an event of a connection without waiters must not create one.
    fn existing(&mut self, interest: Interest) -> Option<&mut WaitList> {
        match interest {
            Interest::Read(id) => self.conns.get_mut(id.slot()).map(|conn| &mut conn.read),
            Interest::Write(id) => self.conns.get_mut(id.slot()).map(|conn| &mut conn.write),
            Interest::Accept(id) => self.listeners.get_mut(id.slot()),
            Interest::Flow(id) => self.flows.get_mut(id.slot()),
            Interest::RecvFrom(id) => self.datagrams.get_mut(id.slot()).map(|socket| &mut socket.read),
            Interest::SendTo(id) => self.datagrams.get_mut(id.slot()).map(|socket| &mut socket.write),
            Interest::Network => Some(&mut self.network),
            Interest::Idle => Some(&mut self.idle),
            Interest::End => Some(&mut self.end),
        }
    }

    /// The number of waiters.
    pub(crate) const fn count(&self) -> usize {
        self.waiting
    }

    pub(crate) fn wake_all(&mut self, into: &mut Vec<Waker>) {
        self.waiting = 0;
        for both in self.conns.iter_mut().chain(&mut self.datagrams) {
            both.read.wake(into);
            both.write.wake(into);
        }
        for list in self.listeners.iter_mut().chain(&mut self.flows) {
            list.wake(into);
        }
        for list in [&mut self.network, &mut self.idle, &mut self.end] {
            list.wake(into);
        }
    }

    fn list(&mut self, interest: Interest) -> &mut WaitList {
        match interest {
            Interest::Read(id) => &mut grown(&mut self.conns, id.slot()).read,
            Interest::Write(id) => &mut grown(&mut self.conns, id.slot()).write,
            Interest::Accept(id) => grown(&mut self.listeners, id.slot()),
            Interest::Flow(id) => grown(&mut self.flows, id.slot()),
            Interest::RecvFrom(id) => &mut grown(&mut self.datagrams, id.slot()).read,
            Interest::SendTo(id) => &mut grown(&mut self.datagrams, id.slot()).write,
            Interest::Network => &mut self.network,
            Interest::Idle => &mut self.idle,
            Interest::End => &mut self.end,
        }
    }
}

fn grown<T: Default>(table: &mut Vec<T>, slot: usize) -> &mut T {
    if slot >= table.len() {
        table.resize_with(slot + 1, T::default);
    }
    &mut table[slot]
}

pub(crate) fn wake(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection has a place for both directions, and one that waits takes no more than its place.
    #[test]
    fn the_first_waiter_needs_no_memory_of_its_own() {
        assert_eq!(size_of::<BothWaiters>(), 64);
        let mut list = WaitList::default();
        for (number, is_apart) in [(1, false), (2, true)] {
            list.add(WaitKey::unique(), Waker::noop());
            assert_eq!((list.0.len(), list.0.spilled()), (number, is_apart));
        }
    }

    #[test]
    fn one_waker_a_key_and_all_are_woken() {
        let mut list = WaitList::default();
        let (a, b) = (WaitKey::unique(), WaitKey::unique());
        assert_ne!(a, b);
        for key in [a, b, a] {
            assert!(list.add(key, Waker::noop()).is_none());
        }
        assert_eq!(list.0.len(), 2);
        assert!(list.remove(b).is_some());
        assert!(list.remove(b).is_none());
        let mut woken = Vec::new();
        list.wake(&mut woken);
        assert_eq!(woken.len(), 1);
        assert!(list.0.is_empty());
    }
}
