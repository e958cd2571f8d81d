//! Fragments become packets again. RFC 791 §3.2, RFC 815, RFC 8200 §4.5, RFC 5722 (overlaps); Linux:
//! `inet_frag_queue_insert`, `ip_frag_too_far`, and the limits after CVE-2018-5391. Called by
//! `stack/fragments.rs`.
//!
//! **Problem.** Whoever sends a fragment makes this host wait for the others. Fragments that overlap have
//! been used to slip data past filters, and endless or tiny ones to use up memory and time.
//!
//! **Rule.** A fragment that overlaps another one makes the whole packet void; one that brings only what is
//! already there is a duplicate, and ignored. A packet has 30 s (IPv6: 60 s) from its first fragment on. All
//! incomplete packets together have 4 MiB, one source a quarter of it; while there are more, further
//! fragments are dropped, and those that wait keep their time. If 64 other fragments of its source came
//! between two of a packet, its identification may have been used again, and what was there is void.
//!
//! **Numbers.** A fragment counts its bytes and 256. The pieces of a packet lie in a tree by their offset, so
//! the worst packet, of 8,192 fragments of 8 bytes, costs 13 steps for each.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use taut_wire::{Ecn, Fragment};

use crate::words::{Duration, Endpoint, Instant};

/// What a fragment counts beside its bytes: its place in the tree, and what the allocator adds.
const OVERHEAD_BYTES: usize = 256;
/// One source may have this part of the memory.
const SOURCE_SHARE: usize = 4;
/// The longest payload of a packet.
const PAYLOAD_MAX: usize = 65_535;

/// Limits of reassembly. Linux's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentConfig {
    /// Bytes of memory for all incomplete packets. Linux: `ipfrag_high_thresh`.
    pub high_thresh: u32,
    /// How long an IPv4 packet may be incomplete. Linux: `ipfrag_time`.
    pub time: Duration,
    /// The same for IPv6. Linux: `ip6frag_time`.
    pub time_v6: Duration,
    /// How many fragments of its source may come between two of a packet; 0 for any number. Linux:
    /// `ipfrag_max_dist`.
    pub max_dist: u32,
}

impl Default for FragmentConfig {
    fn default() -> Self {
        Self {
            high_thresh: 4 << 20,
            time: Duration::from_secs(30),
            time_v6: Duration::from_secs(60),
            max_dist: 64,
        }
    }
}

/// What came of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It waits, or was a duplicate.
    Waits,
    /// It was dropped, and with it, if it says so, what was there of its packet.
    Dropped { whole: bool },
    /// The packet is complete: all its bytes.
    Complete(Vec<u8>),
}

/// A packet whose time is over, and its first fragment, if that came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) first: Option<Vec<u8>>,
}

/// What the fragments of a packet have in common. IPv6 does not count the protocol (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    src: [u8; 16],
    dst: [u8; 16],
    ident: u32,
    protocol: u8,
}

impl Key {
    fn of(fragment: &Fragment) -> Self {
        let bytes = |ip| *Endpoint::new(ip, 0).ip_bytes();
        Self {
            src: bytes(fragment.src),
            dst: bytes(fragment.dst),
            ident: fragment.ident,
            protocol: if fragment.src.is_ipv4() { fragment.protocol } else { 0 },
        }
    }
}

/// An incomplete packet.
#[derive(Debug, Default)]
struct Partial {
    /// Distinguishes it from another with the same key.
    serial: u64,
    /// Data by its offset. None overlap.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// The first fragment, as it came.
    first: Option<(Fragment, Vec<u8>)>,
    /// The length of all data, when the last fragment is there.
    total: Option<usize>,
    have: usize,
    memory: usize,
    /// A bit for each ECN field seen.
    ecn: u8,
    /// How many fragments its source had sent when the latest of this packet came.
    source_count: u32,
}

/// What one source has here.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    packets: u32,
    memory: usize,
    fragments: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    packets: BTreeMap<Key, Partial>,
    sources: BTreeMap<[u8; 16], Source>,
    /// When each packet began, IPv4 and IPv6; some are no longer there.
    by_age: [VecDeque<(Instant, Key, u64)>; 2],
    memory: usize,
    serial: u64,
}

/// How a fragment's data lies to what is there.
#[derive(PartialEq, Eq)]
enum Fit {
    New,
    Duplicate,
    Overlap,
}

impl Partial {
    fn fit(&self, offset: usize, end: usize) -> Fit {
        // How far everything is there, from `offset` on.
        let mut covered = offset;
        let mut touches = false;
        let before = self.pieces.range(..=offset).next_back();
        for (&at, piece) in before.into_iter().chain(self.pieces.range(offset + 1..end)) {
            crate::words::step(1);
            let piece_end = at + piece.len();
            if piece_end <= offset {
                continue;
            }
            touches = true;
            if at > covered {
                break;
            }
            covered = piece_end;
            if covered >= end {
                return Fit::Duplicate;
            }
        }
        if touches { Fit::Overlap } else { Fit::New }
    }

    /// The ECN field of the packet (RFC 3168 §5.3); `None` if the fragments contradict each other.
    const fn mark(&self, first: Ecn) -> Option<Ecn> {
        const NOT_ECT: u8 = 1 << Ecn::NotEct.to_bits();
        const CE: u8 = 1 << Ecn::Ce.to_bits();
        if self.ecn & NOT_ECT != 0 {
            return if self.ecn == NOT_ECT { Some(Ecn::NotEct) } else { None };
        }
        Some(if self.ecn & CE != 0 { Ecn::Ce } else { first })
    }
}

impl Reassembly {
    /// Bytes of all incomplete packets, as they count.
    #[cfg(test)]
    pub(crate) const fn memory(&self) -> usize {
        self.memory
    }

    /// Takes a fragment; `packet` is all of it.
    pub(crate) fn take(
        &mut self,
        config: &FragmentConfig,
        now: Instant,
        fragment: &Fragment,
        packet: &[u8],
    ) -> Outcome {
        let dropped = Outcome::Dropped { whole: false };
        let data = packet.get(fragment.data.clone()).unwrap_or_default();
        let end = fragment.end();
        let most =
            PAYLOAD_MAX - if fragment.src.is_ipv4() { fragment.header_len } else { fragment.header_len - 40 };
        if data.is_empty() || !fragment.has_valid_len() || end > most {
            return dropped;
        }
        let key = Key::of(fragment);
        let high = config.high_thresh as usize;
        let source = self.sources.get(&key.src).copied().unwrap_or_default();
        if self.memory > high || source.memory > high / SOURCE_SHARE {
            return dropped;
        }
        if !self.packets.contains_key(&key) {
            self.begin(now, key, fragment.src.is_ipv6());
        }
        let Self { packets, sources, memory, .. } = self;
        let (Some(partial), Some(source)) = (packets.get_mut(&key), sources.get_mut(&key.src)) else {
            return dropped;
        };
        source.fragments = source.fragments.wrapping_add(1);
        let distance = source.fragments.wrapping_sub(partial.source_count);
        let too_far = config.max_dist > 0 && distance > config.max_dist && !partial.pieces.is_empty();
        partial.source_count = source.fragments;
        if too_far {
            // What is there belongs to an older packet.
            *memory -= partial.memory;
            source.memory -= partial.memory;
            *partial =
                Partial { serial: partial.serial, source_count: partial.source_count, ..Partial::default() };
        }
        let last_end = partial.pieces.last_key_value().map_or(0, |(at, piece)| at + piece.len());
        let contradicts = match (partial.total, fragment.more) {
            (Some(total), true) => end > total,
            (Some(total), false) => end != total,
            (None, false) => end < last_end,
            (None, true) => false,
        };
        let fit = if contradicts { Fit::Overlap } else { partial.fit(fragment.offset, end) };
        match fit {
            Fit::Duplicate => return Outcome::Waits,
            Fit::Overlap => {
                self.forget(&key);
                return Outcome::Dropped { whole: true };
            }
            Fit::New => {}
        }
        let quoted = if fragment.is_first() { packet.len() } else { 0 };
        let added = data.len() + quoted + OVERHEAD_BYTES;
        partial.pieces.insert(fragment.offset, data.to_vec());
        partial.have += data.len();
        partial.memory += added;
        partial.ecn |= 1 << fragment.ecn.to_bits();
        source.memory += added;
        *memory += added;
        if fragment.is_first() {
            partial.first = Some((fragment.clone(), packet.to_vec()));
        }
        if !fragment.more {
            partial.total = Some(end);
        }
        if partial.total != Some(partial.have) {
            return Outcome::Waits;
        }
        match self.forget(&key).and_then(|partial| assemble(&partial)) {
            Some(whole) => Outcome::Complete(whole),
            None => Outcome::Dropped { whole: true },
        }
    }

    fn begin(&mut self, now: Instant, key: Key, is_v6: bool) {
        self.serial += 1;
        let source = self.sources.entry(key.src).or_default();
        source.packets += 1;
        self.packets.insert(key, Partial { serial: self.serial, ..Partial::default() });
        self.by_age[usize::from(is_v6)].push_back((now, key, self.serial));
    }

    fn forget(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.packets.remove(key)?;
        self.memory -= partial.memory;
        if let Some(source) = self.sources.get_mut(&key.src) {
            source.packets -= 1;
            source.memory -= partial.memory;
            if source.packets == 0 {
                self.sources.remove(&key.src);
            }
        }
        // What is over must not fill the queue of ages.
        for queue in &mut self.by_age {
            while let Some((_, key, serial)) = queue.front()
                && self.packets.get(key).is_none_or(|partial| partial.serial != *serial)
            {
                queue.pop_front();
            }
            if queue.len() > 2 * self.packets.len() + 64 {
                let packets = &self.packets;
                queue.retain(|(_, key, serial)| {
                    packets.get(key).is_some_and(|partial| partial.serial == *serial)
                });
            }
        }
        Some(partial)
    }

    /// When the oldest packet's time is over.
    pub(crate) fn next_deadline(&self, config: &FragmentConfig) -> Option<Instant> {
        let times = [config.time, config.time_v6];
        let ends = self.by_age.iter().zip(times).filter_map(|(queue, time)| Some(queue.front()?.0 + time));
        ends.min()
    }

    /// A packet whose time is over.
    pub(crate) fn expire(&mut self, config: &FragmentConfig, now: Instant) -> Option<Expired> {
        for (index, time) in [config.time, config.time_v6].into_iter().enumerate() {
            while let Some(&(began, key, serial)) = self.by_age[index].front() {
                if began + time > now {
                    break;
                }
                self.by_age[index].pop_front();
                if self.packets.get(&key).is_some_and(|partial| partial.serial == serial) {
                    let first = self.forget(&key).and_then(|partial| partial.first);
                    return Some(Expired { first: first.map(|(_, packet)| packet) });
                }
            }
        }
        None
    }
}

/// The packet of which all data is there; `None` if its fragments contradict each other.
fn assemble(partial: &Partial) -> Option<Vec<u8>> {
    let (fragment, first) = partial.first.as_ref()?;
    let mark = partial.mark(fragment.ecn)?;
    let mut whole = alloc::vec![0; fragment.header_len];
    fragment.emit_whole(first, &mut whole, partial.have, mark);
    whole.reserve_exact(partial.have);
    partial.pieces.values().for_each(|piece| whole.extend_from_slice(piece));
    Some(whole)
}

#[cfg(test)]
mod tests;
