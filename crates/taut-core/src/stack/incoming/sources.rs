//! How many datagram flows a filter has, and what waits in them: in all and of each source. taut's own; Linux
//! bounds the flows of its connection tracking by `nf_conntrack_max`, and sources not at all. Asked for each
//! datagram of a flow.
//!
//! **Problem.** A datagram costs its sender nothing, not even its true address. One sender could take all
//! memory with flows that nobody answers, or with datagrams that nobody reads.
//!
//! **Rule.** A flow counts from its first datagram until its socket is closed, and a datagram from its
//! arrival until it is read. Each count has a limit in all and, half as large, one for each source: an IPv4
//! address, or 64 bits of an IPv6 address. What is beyond is dropped.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::datagram::DatagramOptions;
use crate::stack::opening::caps;
use crate::words::Duration;

/// Limits and defaults of the UDP and echo flows of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramFlowOptions {
    /// The most flows that are not decided. As many may be remembered as dropped.
    pub max_pending: u32,
    /// The most of them from one source: an IPv4 address, or the first 64 bits of an IPv6 address.
    pub max_pending_per_peer: u32,
    /// The most flows, from their first datagram until their sockets are closed. A stack has at most 32,768
    /// in all.
    pub max_flows: u32,
    /// The most of them from one source.
    pub max_flows_per_peer: u32,
    /// Datagrams of a flow that is not decided are kept while no more than this waits, each with 768 bytes
    /// beside its own.
    pub pending_bytes: u32,
    /// The most bytes that wait in all flows of the filter, read in the same way.
    pub queued_bytes: u32,
    /// The most of them from one source.
    pub queued_bytes_per_peer: u32,
    /// An accepted flow on which nothing was sent or received for this long is over: its socket reports
    /// [`TimedOut`](crate::DatagramError::TimedOut), and a further datagram begins another flow. By default
    /// two minutes, the least that RFC 4787 §4.3 allows.
    pub idle_timeout: Duration,
    /// The options of sockets, unless the flow is accepted with others.
    pub socket: DatagramOptions,
}

impl Default for DatagramFlowOptions {
    fn default() -> Self {
        Self {
            max_pending: 4_096,
            max_pending_per_peer: 2_048,
            max_flows: 16_384,
            max_flows_per_peer: 8_192,
            pending_bytes: 16 << 10,
            queued_bytes: 32 << 20,
            queued_bytes_per_peer: 16 << 20,
            idle_timeout: Duration::from_secs(120),
            socket: DatagramOptions::default(),
        }
    }
}

/// The memory that flows hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    pending: u32,
    flows: u32,
    bytes: usize,
}

/// What the flows of a filter hold.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) limits: DatagramFlowOptions,
    all: Held,
    peers: BTreeMap<u128, Held>,
}

impl Sources {
    pub(crate) const fn new(limits: DatagramFlowOptions) -> Self {
        Self { limits, all: Held { pending: 0, flows: 0, bytes: 0 }, peers: BTreeMap::new() }
    }

    /// Whether one more flow of this source may begin, with a datagram that takes so many bytes.
    pub(crate) fn may_begin(&self, peer: IpAddr, bytes: usize) -> bool {
        let (own, limits) = (self.of(peer), &self.limits);
        self.all.pending < limits.max_pending
            && self.all.flows < limits.max_flows
            && own.pending < limits.max_pending_per_peer
            && own.flows < limits.max_flows_per_peer
            && self.has_room(peer, bytes)
    }

    /// Whether so many more bytes of this source may wait.
    pub(crate) fn has_room(&self, peer: IpAddr, bytes: usize) -> bool {
        let (own, limits) = (self.of(peer).bytes, &self.limits);
        self.all.bytes + bytes <= limits.queued_bytes as usize
            && own + bytes <= limits.queued_bytes_per_peer as usize
    }

    /// A flow begins, and is not decided.
    pub(crate) fn begin(&mut self, peer: IpAddr) {
        self.change(peer, |held| (held.pending, held.flows) = (held.pending + 1, held.flows + 1));
    }

    /// A flow is decided.
    pub(crate) fn decide(&mut self, peer: IpAddr) {
        self.change(peer, |held| held.pending = held.pending.saturating_sub(1));
    }

    /// A flow is over.
    pub(crate) fn end(&mut self, peer: IpAddr) {
        self.change(peer, |held| held.flows = held.flows.saturating_sub(1));
    }

    /// So many bytes wait, for which there [is room](Self::has_room).
    pub(crate) fn charge(&mut self, peer: IpAddr, bytes: usize) {
        self.change(peer, |held| held.bytes += bytes);
    }

    /// So many bytes wait no longer.
    pub(crate) fn release(&mut self, peer: IpAddr, bytes: usize) {
        if bytes > 0 {
            self.change(peer, |held| held.bytes = held.bytes.saturating_sub(bytes));
        }
    }

    fn of(&self, peer: IpAddr) -> Held {
        self.peers.get(&caps::key(peer)).copied().unwrap_or_default()
    }

    fn change(&mut self, peer: IpAddr, change: impl Fn(&mut Held)) {
        change(&mut self.all);
        let key = caps::key(peer);
        let own = self.peers.entry(key).or_default();
        change(own);
        if *own == Held::default() {
            self.peers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn peer(n: u32) -> IpAddr {
        IpAddr::V4(core::net::Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    #[test]
    fn in_27_each_count_has_a_limit_in_all_and_for_a_source() {
        let limits = DatagramFlowOptions {
            max_pending: 4,
            max_pending_per_peer: 2,
            max_flows: 6,
            max_flows_per_peer: 3,
            queued_bytes: 4_000,
            queued_bytes_per_peer: 2_000,
            ..DatagramFlowOptions::default()
        };
        let mut sources = Sources::new(limits);
        let begin = |sources: &mut Sources, n| {
            let may = sources.may_begin(peer(n), 100);
            if may {
                sources.begin(peer(n));
            }
            may
        };
        assert_eq!(
            [1, 1, 1, 2, 2, 3].map(|n| begin(&mut sources, n)),
            [true, true, false, true, true, false]
        );
        sources.decide(peer(1));
        assert!(begin(&mut sources, 1), "two of it are pending, and three in all");
        sources.decide(peer(1));
        assert!(!begin(&mut sources, 1), "three flows");
        assert_eq!([3, 4].map(|n| begin(&mut sources, n)), [true, false], "six flows");
        sources.decide(peer(2));
        sources.end(peer(1));
        assert!(begin(&mut sources, 4));

        sources.charge(peer(1), 2_000);
        assert!(!sources.has_room(peer(1), 1) && sources.has_room(peer(2), 2_000));
        assert!(!sources.may_begin(peer(1), 1));
        sources.charge(peer(2), 1_500);
        assert!(sources.has_room(peer(3), 500) && !sources.has_room(peer(3), 501));
        sources.release(peer(1), 2_000);
        assert!(sources.has_room(peer(1), 2_000));
    }

    #[test]
    fn in_27_a_source_without_flows_takes_no_memory() {
        let mut sources = Sources::new(DatagramFlowOptions::default());
        for n in 0..10_000 {
            sources.begin(peer(n));
            sources.charge(peer(n), 868);
            sources.release(peer(n), 868);
            sources.decide(peer(n));
            sources.end(peer(n));
        }
        assert_eq!((sources.peers.len(), sources.all), (0, Held::default()));
    }
}
