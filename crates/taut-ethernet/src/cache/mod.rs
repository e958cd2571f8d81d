//! What is known of all neighbours, and the packets that wait for one of them. taut's own; called by
//! `ethernet.rs`.
//!
//! **Problem.** Everybody on the link can make a host remember addresses: by asking for it from many, or by
//! being asked for. A table without a bound grows, and one that drops its oldest entry lets a stranger push
//! out the router.
//!
//! **Rule.** The table is like a processor's cache: an address belongs to one set of [`WAYS`] places, chosen
//! by a keyed hash, so nobody can aim at the set of another. In a full set, an entry that was never used
//! gives way first, then the one that has not been used for longest; an entry that was only heard of never
//! takes the place of a used one. Each operation looks at one set. Deadlines are looked for in all [`PLACES`]
//! at a time, at most once in [`TICK`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher13;
use taut_wire::Mac;

use taut_core::{Duration, Instant};

mod entry;

pub use entry::NeighbourState;
pub(crate) use entry::Word;
use entry::{Due, Entry};

const SETS: usize = 128;
const WAYS: usize = 4;
/// 512 neighbours: the number that Linux keeps for long (`gc_thresh2`).
pub(crate) const PLACES: usize = SETS * WAYS;
/// Packets that wait for one neighbour; the latest are kept (RFC 1122 §2.3.2.2 asks for one at least).
pub(crate) const WAITING_MAX: usize = 16;
/// Packets that wait for all of them.
pub(crate) const WAITING_ALL_MAX: usize = 256;
/// Deadlines are looked at so often, which is a hundredth of the shortest.
const TICK: Duration = Duration::from_millis(10);

/// The table.
#[derive(Debug)]
pub(crate) struct Cache<P> {
    places: Vec<Place<P>>,
    keys: (u64, u64),
    /// Not later than the first deadline.
    next: Instant,
    /// Packets in all queues.
    waiting: usize,
    resolved: VecDeque<(Option<(IpAddr, Mac)>, P)>,
}

#[derive(Debug)]
struct Place<P> {
    taken: Option<(IpAddr, Entry)>,
    waiting: VecDeque<P>,
}

/// The answer to a question for a neighbour.
pub(crate) enum Found {
    Known(Mac),
    /// It is not known, and has been asked for.
    Unknown,
    /// It is not known: ask everybody.
    New,
}

impl<P> Cache<P> {
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(seed);
        let place = || Place { taken: None, waiting: VecDeque::new() };
        Self {
            places: core::iter::repeat_with(place).take(PLACES).collect(),
            keys: ((bits >> 64) as u64, bits as u64),
            next: Instant::NEVER,
            waiting: 0,
            resolved: VecDeque::new(),
        }
    }

    /// The places of an address.
    fn set(&self, ip: IpAddr) -> core::ops::Range<usize> {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write(&bytes_of(ip));
        let set = hasher.finish() as usize % SETS;
        set * WAYS..(set + 1) * WAYS
    }

    fn find(&self, ip: IpAddr) -> Option<usize> {
        self.set(ip).find(|&at| matches!(self.places[at].taken, Some((taken, _)) if taken == ip))
    }

    fn entry(&mut self, ip: IpAddr) -> Option<(usize, &mut Entry)> {
        let at = self.find(ip)?;
        self.places[at].taken.as_mut().map(|(_, entry)| (at, entry))
    }

    pub(crate) fn state_of(&self, ip: IpAddr) -> Option<NeighbourState> {
        self.places[self.find(ip)?].taken.map(|(_, entry)| entry.state())
    }

    pub(crate) fn mac_of(&self, ip: IpAddr) -> Option<Mac> {
        self.mac_at(self.find(ip)?)
    }

    /// Those whose station is known.
    pub(crate) fn stations(&self) -> impl Iterator<Item = (IpAddr, Mac)> + '_ {
        let of = |at: usize| Some((self.places[at].taken?.0, self.mac_at(at)?));
        (0..self.places.len()).filter_map(of)
    }

    /// How many places are taken.
    pub(crate) fn len(&self) -> usize {
        self.places.iter().filter(|place| place.taken.is_some()).count()
    }

    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// A packet wants to go to this neighbour.
    pub(crate) fn look_up(&mut self, now: Instant, ip: IpAddr) -> Found {
        if let Some((_, entry)) = self.entry(ip) {
            let mac = entry.use_at(now);
            let deadline = entry.deadline();
            self.note(deadline);
            return mac.map_or(Found::Unknown, Found::Known);
        }
        let entry = Entry::asked(now);
        self.note(entry.deadline());
        if let Some(at) = self.place_for(ip, true) {
            self.put(at, ip, entry);
        }
        Found::New
    }

    /// It asked for us: it is remembered, because it will be answered.
    pub(crate) fn hear(&mut self, now: Instant, ip: IpAddr, mac: Mac) {
        if let Some(at) = self.place_for(ip, false) {
            self.put(at, ip, Entry::heard(now, mac));
        }
    }

    /// The place for a new address: a free one, or that of an entry that gives way. One that is only heard of
    /// finds none among used ones.
    fn place_for(&self, ip: IpAddr, is_used: bool) -> Option<usize> {
        let rank = |at: &usize| self.places[*at].taken.map(|(_, entry)| entry.rank());
        let at = self.set(ip).min_by_key(rank)?;
        let gives_way = self.places[at].taken.is_none_or(|(_, entry)| is_used || entry.rank().0.is_none());
        gives_way.then_some(at)
    }

    fn put(&mut self, at: usize, ip: IpAddr, entry: Entry) {
        self.forget(at);
        self.places[at].taken = Some((ip, entry));
    }

    /// Removes an entry. Packets that wait for it are lost.
    fn forget(&mut self, at: usize) {
        self.places[at].taken = None;
        self.flush(at, None);
    }

    /// Takes a packet that waits for a neighbour. Returns one that cannot wait any longer.
    pub(crate) fn wait(&mut self, ip: IpAddr, packet: P) -> Option<P> {
        let Some(at) = self.find(ip) else { return Some(packet) };
        let queue = &mut self.places[at].waiting;
        let oldest = if queue.len() >= WAITING_MAX { queue.pop_front() } else { None };
        if oldest.is_none() {
            if self.waiting >= WAITING_ALL_MAX {
                return Some(packet);
            }
            self.waiting += 1;
        }
        queue.push_back(packet);
        oldest
    }

    /// Something was said about a neighbour. Returns whether it is one of those in the table.
    pub(crate) fn tell(&mut self, now: Instant, ip: IpAddr, word: Word) -> bool {
        let Some((at, entry)) = self.entry(ip) else { return false };
        entry.tell(now, word);
        if entry.state() != NeighbourState::Incomplete {
            // Not a use: the packets were counted as such when they came.
            let mac = self.mac_at(at);
            self.flush(at, mac.map(|mac| (ip, mac)));
        }
        true
    }

    fn mac_at(&self, at: usize) -> Option<Mac> {
        self.places[at].taken.and_then(|(_, entry)| entry.mac())
    }

    /// Moves what waits to what is resolved, or lost.
    fn flush(&mut self, at: usize, to: Option<(IpAddr, Mac)>) {
        let queue = &mut self.places[at].waiting;
        self.waiting -= queue.len();
        self.resolved.extend(queue.drain(..).map(|packet| (to, packet)));
    }

    /// A packet that has waited, and where it goes; or nowhere.
    pub(crate) fn poll_resolved(&mut self) -> Option<(Option<(IpAddr, Mac)>, P)> {
        self.resolved.pop_front()
    }

    pub(crate) fn has_resolved(&self) -> bool {
        !self.resolved.is_empty()
    }

    /// When something is due; rounded up to the next [`TICK`].
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    fn note(&mut self, deadline: Instant) {
        if deadline != Instant::NEVER {
            let ticks = deadline.as_nanos().div_ceil(TICK.as_nanos());
            self.next = self.next.min(Instant::from_nanos(ticks.saturating_mul(TICK.as_nanos())));
        }
    }

    /// Handles all deadlines until now. `ask` is called with each neighbour to ask, and its station if it is
    /// known.
    pub(crate) fn handle_timeout(&mut self, now: Instant, mut ask: impl FnMut(IpAddr, Option<Mac>)) {
        if self.next > now {
            return;
        }
        self.next = Instant::NEVER;
        for at in 0..PLACES {
            let Some((ip, entry)) = &mut self.places[at].taken else { continue };
            let (ip, due) = (*ip, entry.handle_timeout(now));
            let deadline = entry.deadline();
            match due {
                Due::Nothing => {}
                Due::AskAll => ask(ip, None),
                Due::AskOne(mac) => ask(ip, Some(mac)),
                Due::Gone => {
                    self.forget(at);
                    continue;
                }
            }
            self.note(deadline);
        }
    }
}

/// The 16 bytes of an address, one of IPv4 mapped into IPv6 (RFC 4291 §2.5.5.2): for hashing.
const fn bytes_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
