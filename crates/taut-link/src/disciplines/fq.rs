//! Fair queue: serves flows in turn, and each packet at its departure time. Linux's `fq` (`tc-fq(8)`; 2013,
//! Linux 3.12, as of 6.8), called as any [`Qdisc`]. Where it is the root, the stack may leave pacing to it
//! ([`LinkCaps::paces`](taut_core::LinkCaps::paces)).
//!
//! **Problem.** A host sends for many connections through one queue. A connection with much to send makes the
//! others wait, and bursts from the host overflow the first shallow buffer of the path. `fq_codel` shares
//! fairly but knows nothing of rates, and it hashes: two flows may share a queue. On the sending host, both
//! fairness and rates can be exact.
//!
//! **Flows.** Each connection has a queue, ordered by departure time. Packets leave it no earlier than their
//! stamp, which TCP computes (`pacing.rs` in the core): `fq` measures nothing, it only holds packets. A flow
//! whose first packet is not due is *throttled*: it is in a set ordered by time and in no list, however many
//! there are.
//!
//! **Turns.** Flows with a packet due wait in two lists, new before old:
//!
//! ```text
//!   enqueue to a flow in no list ─▶ new ─┬─ credit used up: + quantum ─▶ old ─▶ (its turn again)
//!                                        ├─ first packet not due ─▶ throttled ─ time comes ─▶ old
//!                                        └─ empty ─▶ old ─ still empty at its turn ─▶ in no list
//! ```
//!
//! A flow may send while its credit is above zero, so it exceeds its credit by less than a packet. A flow not
//! seen before has [`initial_quantum`](FqSpec::initial_quantum_bytes), ten packets: an initial window leaves
//! at once, ahead of the bulk data of others. Each further turn adds [`quantum`](FqSpec::quantum_bytes), two
//! packets. A flow that was idle for longer than `refill_delay` has at least a quantum again. An empty flow
//! moves from new to old rather than out of the lists; otherwise a flow that sends one packet at a time would
//! be new each time.
//!
//! **Bands.** There are three sets of lists, for the bands of `priomap`, which share the line 9 : 3 : 1
//! (weights 589,824, 196,608, 65,536) while all have packets: since 6.8 urgent traffic does not starve bulk
//! traffic.
//!
//! **Fast path.** A packet that is due, while no flow has another packet due, need not wait for a turn. It
//! goes to a short queue (8) that is emptied first. Most packets of most hosts take this path.
//!
//! **Limits.** There are limits on all packets, counted for each band, and on packets of one flow (100),
//! since a sender that queues more is broken, or sends super-packets, of which 100 are 6 MB. A stamp more
//! than the *horizon* ahead is an error: the packet is dropped, or its stamp cut. With `maxrate`, a flow is
//! also spaced here, with headers counted, and lateness made up by half a gap as in TCP. A packet that waited
//! longer than `ce_threshold` after its time is marked.
//!
//! **Forgetting.** When there are twice as many flows as buckets and more than half of them are idle, flows
//! in no list for 3 s are forgotten, up to 8 at a time. Here flows are found in an ordered tree, so `buckets`
//! has no other effect; `orphan_mask` has none, because there are no packets without a socket, and neither
//! has `timer_slack`, because time is exact.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use taut_core::{Duration, Instant};

use crate::qdisc::{BANDS, Packet, Qdisc, QdiscStats, Verdict, band};
use crate::quantity::Rate;

/// Share of each band. Linux: `FQ_PRIO2BAND` weights, 9 : 3 : 1 in units of 65,536 bytes.
const WEIGHTS_BYTES: [i64; BANDS] = [589_824, 196_608, 65_536];
/// Packets in the queue of the fast path.
const FAST_PATH_MAX: usize = 8;
/// Idle for this long, a flow may be forgotten. Linux: `FQ_GC_AGE`.
const FORGET_AFTER: Duration = Duration::from_secs(3);
/// Flows forgotten at a time. Linux: `FQ_GC_MAX`.
const FORGET_AT_ONCE: usize = 8;
/// The longest gap that `maxrate` makes: the rate may be higher by then.
const GAP_MAX: Duration = Duration::from_secs(1);
/// A full packet of Ethernet with its header, as quanta are counted.
const MTU_BYTES: u32 = 1_514;

/// The configuration of a [`Fq`]: the options of `tc-fq(8)`, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FqSpec {
    /// Packets that may wait in each band; 10,000.
    pub limit: u32,
    /// Packets of one flow that may wait; 100.
    pub flow_limit: u32,
    /// Half the number of flows above which idle ones are forgotten; 1024.
    pub buckets: u32,
    /// Has no effect; 1023.
    pub orphan_mask: u32,
    /// Whether `maxrate` is applied; true. Departure times are honoured in either case.
    pub pacing: bool,
    /// Credit for each turn in bytes; 3028.
    pub quantum_bytes: u32,
    /// Credit of a new flow in bytes; 15,140.
    pub initial_quantum_bytes: u32,
    /// Rate that no flow may exceed, headers counted; none.
    pub maxrate: Option<Rate>,
    /// Packets without a stamp are spaced one by one up to this rate, and by quantum above it; 550 kbit/s.
    pub low_rate_threshold: Option<Rate>,
    /// A flow idle for longer has at least a quantum of credit; 40 ms.
    pub refill_delay: Duration,
    /// Has no effect; 10 µs.
    pub timer_slack: Duration,
    /// A packet that waits longer than this after its departure time is marked; none.
    pub ce_threshold: Option<Duration>,
    /// How far ahead a departure time may lie; 10 s.
    pub horizon: Duration,
    /// Whether a packet with a departure time beyond the horizon leaves at the horizon instead of being
    /// dropped; false.
    pub horizon_cap: bool,
}

impl Default for FqSpec {
    fn default() -> Self {
        Self {
            limit: 10_000,
            flow_limit: 100,
            buckets: 1_024,
            orphan_mask: 1_023,
            pacing: true,
            quantum_bytes: 2 * MTU_BYTES,
            initial_quantum_bytes: 10 * MTU_BYTES,
            maxrate: None,
            low_rate_threshold: Rate::from_bits_per_second(550_000),
            refill_delay: Duration::from_millis(40),
            timer_slack: Duration::from_micros(10),
            ce_threshold: None,
            horizon: Duration::from_secs(10),
            horizon_cap: false,
        }
    }
}

/// The counters that `tc -s qdisc` prints only for an `fq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FqStats {
    /// Known flows.
    pub flows: u64,
    /// Flows without a packet.
    pub inactive_flows: u64,
    /// Flows whose first packet is not due.
    pub throttled_flows: u64,
    /// Flows forgotten.
    pub gc: u64,
    /// Packets that took the fast path.
    pub fastpath: u64,
    /// Times that a flow was found with nothing due.
    pub throttled: u64,
    /// Packets marked by `ce_threshold`.
    pub ce_mark: u64,
    /// Packets dropped because their flow had too many.
    pub flows_plimit: u64,
    /// Gaps of `maxrate` shortened to a second.
    pub pkts_too_long: u64,
    /// Packets dropped for a departure time beyond the horizon.
    pub horizon_drops: u64,
    /// Packets whose departure time was cut to the horizon.
    pub horizon_caps: u64,
    /// Waiting packets in each band.
    pub band_packets: [u64; BANDS],
    /// Packets dropped because their band was full.
    pub band_drops: [u64; BANDS],
}

/// An index into `Fq::flows`.
type FlowId = usize;

/// A fair queue with departure times.
#[derive(Debug)]
pub struct Fq<T> {
    spec: FqSpec,
    /// By index; unused indices are in `free`.
    flows: Vec<Flow<T>>,
    free: Vec<FlowId>,
    by_key: BTreeMap<u64, FlowId>,
    /// The queue of the fast path.
    direct: VecDeque<Packet<T>>,
    bands: [Band; BANDS],
    /// The band whose turn it is.
    turn: usize,
    /// Every flow whose first packet was not due when last checked, whether or not it is in a list.
    waiting: BTreeSet<(Instant, FlowId)>,
    /// Flows whose first packet is due. All are in a list.
    due: usize,
    /// Flows with packets.
    active: usize,
    /// Flows that are in `waiting` only.
    throttled: usize,
    /// The latest time passed in.
    now: Instant,
    /// Flows in no list, by the time since which they are idle.
    idle: BTreeSet<(Instant, FlowId)>,
    bytes: u64,
    packets: usize,
    stats: QdiscStats,
    xstats: FqStats,
}

#[derive(Debug)]
struct Band {
    /// May be negative, by less than a packet.
    credit: i64,
    lists: [VecDeque<FlowId>; 2],
}

/// The place of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowState {
    /// In a list of its band.
    Listed,
    /// In `Fq::waiting` only.
    Throttled,
    /// In no list since then, without packets.
    Idle(Instant),
}

/// When a flow's first packet may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Empty,
    Due,
    At(Instant),
}

const NEW: usize = 0;
const OLD: usize = 1;

#[derive(Debug)]
struct Flow<T> {
    key: u64,
    band: usize,
    /// Packets in order of the earliest time at which each may leave: its stamp, or its arrival. Packets with
    /// the same time are in order of arrival.
    packets: VecDeque<(Instant, Packet<T>)>,
    head: Head,
    state: FlowState,
    credit: i64,
    /// No packet leaves before this, whatever its stamp. Zero before anything was spaced here.
    next_packet: Instant,
}

impl<T> Fq<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(spec: FqSpec) -> Self {
        Self {
            spec,
            flows: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            direct: VecDeque::new(),
            bands: WEIGHTS_BYTES.map(|credit| Band { credit, lists: Default::default() }),
            turn: 0,
            waiting: BTreeSet::new(),
            due: 0,
            active: 0,
            throttled: 0,
            now: Instant::ZERO,
            idle: BTreeSet::new(),
            bytes: 0,
            packets: 0,
            stats: QdiscStats::default(),
            xstats: FqStats::default(),
        }
    }

    /// Its configuration.
    #[must_use]
    pub const fn spec(&self) -> &FqSpec {
        &self.spec
    }

    /// The counters that only an `fq` has.
    #[must_use]
    pub fn fq_stats(&self) -> FqStats {
        FqStats {
            flows: self.by_key.len() as u64,
            inactive_flows: (self.by_key.len() - self.active) as u64,
            throttled_flows: self.throttled as u64,
            ..self.xstats
        }
    }

    /// Whether a packet that is due may leave before any flow has its turn: no flow could have one.
    fn takes_fast_path(&self, now: Instant, packet: &Packet<T>) -> bool {
        packet.departure <= now
            && self.spec.maxrate.is_none()
            && self.active == self.throttled
            && self.direct.len() < FAST_PATH_MAX
    }

    /// The flow with this key, created if necessary.
    fn flow(&mut self, now: Instant, key: u64) -> FlowId {
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        self.forget(now);
        let flow = Flow {
            key,
            band: 0,
            packets: VecDeque::new(),
            head: Head::Empty,
            state: FlowState::Idle(now),
            credit: i64::from(self.spec.initial_quantum_bytes),
            next_packet: Instant::ZERO,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.flows[id] = flow;
                id
            }
            None => {
                self.flows.push(flow);
                self.flows.len() - 1
            }
        };
        self.by_key.insert(key, id);
        self.idle.insert((now, id));
        id
    }

    /// Forgets flows that have been idle for long, if there are many.
    fn forget(&mut self, now: Instant) {
        let flows = self.by_key.len();
        if flows < 2 * self.spec.buckets as usize || flows - self.active <= flows / 2 {
            return;
        }
        for _ in 0..FORGET_AT_ONCE {
            let Some(&(since, id)) = self.idle.first().filter(|(since, _)| *since + FORGET_AFTER < now)
            else {
                return;
            };
            self.idle.remove(&(since, id));
            self.by_key.remove(&self.flows[id].key);
            self.free.push(id);
            self.xstats.gc += 1;
        }
    }

    /// Updates the time at which the flow's first packet may leave.
    fn update_head(&mut self, now: Instant, id: FlowId) {
        let flow = &mut self.flows[id];
        let head = match flow.packets.front().map(|(at, _)| (*at).max(flow.next_packet)) {
            None => Head::Empty,
            Some(at) if at <= now => Head::Due,
            Some(at) => Head::At(at),
        };
        let before = core::mem::replace(&mut flow.head, head);
        if before == head {
            return;
        }
        match before {
            Head::Empty => self.active += 1,
            Head::Due => self.due -= 1,
            Head::At(at) => _ = self.waiting.remove(&(at, id)),
        }
        match head {
            Head::Empty => self.active -= 1,
            Head::Due => self.due += 1,
            Head::At(at) => _ = self.waiting.insert((at, id)),
        }
    }

    /// Lists the flows whose time has come.
    fn wake(&mut self, now: Instant) {
        self.now = now;
        while let Some(&(at, id)) = self.waiting.first().filter(|(at, _)| *at <= now) {
            self.waiting.remove(&(at, id));
            self.due += 1;
            let flow = &mut self.flows[id];
            flow.head = Head::Due;
            if flow.state == FlowState::Throttled {
                self.throttled -= 1;
                self.list(id, OLD);
            }
        }
    }

    fn list(&mut self, id: FlowId, list: usize) {
        let flow = &mut self.flows[id];
        flow.state = FlowState::Listed;
        self.bands[flow.band].lists[list].push_back(id);
    }

    /// Chooses the band whose turn it is.
    fn choose_band(&mut self) -> Option<usize> {
        let mut tried = 0;
        while self.bands[self.turn].credit <= 0 || !self.bands[self.turn].has_flows() {
            tried += 1;
            if tried > BANDS {
                return None;
            }
            self.turn = (self.turn + 1) % BANDS;
            let (band, weight) = (&mut self.bands[self.turn], WEIGHTS_BYTES[self.turn]);
            band.credit = (band.credit + weight).min(weight);
            if band.credit <= 0 {
                tried = 0;
            }
        }
        Some(self.turn)
    }

    /// Chooses the flow whose turn it is. It is at the head of a list of its band, and its first packet is
    /// due.
    fn choose_flow(&mut self, now: Instant) -> Option<FlowId> {
        loop {
            let band = self.choose_band()?;
            let lists = &mut self.bands[band].lists;
            let list = if lists[NEW].is_empty() { OLD } else { NEW };
            let &id = lists[list].front()?;
            let flow = &mut self.flows[id];
            if flow.credit > 0 && flow.head == Head::Due {
                return Some(id);
            }
            lists[list].pop_front();
            if flow.credit <= 0 {
                flow.credit += i64::from(self.spec.quantum_bytes.max(1));
                self.list(id, OLD);
                continue;
            }
            match flow.head {
                Head::At(at) => {
                    flow.state = FlowState::Throttled;
                    self.throttled += 1;
                    flow.next_packet = at;
                    self.xstats.throttled += 1;
                }
                // One pass through the old flows, so that flows of one packet at a time do not starve them.
                _ if list == NEW => self.list(id, OLD),
                _ => {
                    flow.state = FlowState::Idle(now);
                    self.idle.insert((now, id));
                }
            }
        }
    }

    /// Takes the flow's first packet, and the earliest time at which it could have left.
    fn pop(&mut self, id: FlowId) -> Option<(Instant, Packet<T>)> {
        let flow = &mut self.flows[id];
        let (at, packet) = flow.packets.pop_front()?;
        let at = at.max(flow.next_packet);
        self.forget_packet(&packet);
        Some((at, packet))
    }

    fn add_packet(&mut self, packet: &Packet<T>) {
        self.bytes += u64::from(packet.len);
        self.packets += 1;
        self.xstats.band_packets[band(packet.priority)] += 1;
    }

    fn forget_packet(&mut self, packet: &Packet<T>) {
        self.bytes -= u64::from(packet.len);
        self.packets -= 1;
        self.xstats.band_packets[band(packet.priority)] -= 1;
    }

    /// Sets when the flow may send again, by `maxrate`.
    fn space(&mut self, now: Instant, id: FlowId, packet: &Packet<T>) {
        let (Some(rate), true) = (self.spec.maxrate, self.spec.pacing) else { return };
        let flow = &mut self.flows[id];
        let mut bytes = packet.len;
        if packet.departure == Instant::ZERO {
            if self.spec.low_rate_threshold.is_some_and(|threshold| rate <= threshold) {
                flow.credit = 0;
            } else if flow.credit > 0 {
                return;
            } else {
                bytes = bytes.max(self.spec.quantum_bytes);
            }
        }
        let mut gap = rate.time_for(u64::from(bytes));
        if gap > GAP_MAX {
            gap = GAP_MAX;
            self.xstats.pkts_too_long += 1;
        }
        if flow.next_packet != Instant::ZERO {
            let lateness = now.since(flow.next_packet);
            gap = gap.saturating_sub(lateness.min(gap / 2));
        }
        flow.next_packet = now + gap;
    }

    fn refuse(&mut self, packet: Packet<T>) -> Verdict<T> {
        self.stats.count_dropped(&packet);
        Verdict::Dropped(packet)
    }
}

impl Band {
    fn has_flows(&self) -> bool {
        self.lists.iter().any(|list| !list.is_empty())
    }
}

impl<T> Qdisc<T> for Fq<T> {
    fn enqueue(&mut self, now: Instant, mut packet: Packet<T>) -> Verdict<T> {
        self.wake(now);
        let band = band(packet.priority);
        if self.xstats.band_packets[band] >= u64::from(self.spec.limit) {
            self.xstats.band_drops[band] += 1;
            return self.refuse(packet);
        }
        let horizon = now + self.spec.horizon;
        if packet.departure > horizon {
            if !self.spec.horizon_cap {
                self.xstats.horizon_drops += 1;
                return self.refuse(packet);
            }
            packet.departure = horizon;
            self.xstats.horizon_caps += 1;
        }
        if self.takes_fast_path(now, &packet) {
            self.xstats.fastpath += 1;
            self.add_packet(&packet);
            self.direct.push_back(packet);
            return Verdict::Taken;
        }
        let id = self.flow(now, packet.flow);
        if self.flows[id].packets.len() >= self.spec.flow_limit as usize {
            self.xstats.flows_plimit += 1;
            return self.refuse(packet);
        }
        self.add_packet(&packet);
        let flow = &mut self.flows[id];
        if let FlowState::Idle(since) = flow.state {
            self.idle.remove(&(since, id));
            if now.since(since) > self.spec.refill_delay {
                flow.credit = flow.credit.max(i64::from(self.spec.quantum_bytes));
            }
            flow.band = band;
            self.list(id, NEW);
        }
        let at = if packet.departure == Instant::ZERO { now } else { packet.departure };
        let packets = &mut self.flows[id].packets;
        let place = packets.partition_point(|(other, _)| *other <= at);
        packets.insert(place, (at, packet));
        self.update_head(now, id);
        Verdict::Taken
    }

    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>> {
        if let Some(packet) = self.direct.pop_front() {
            self.forget_packet(&packet);
            self.stats.count_sent(&packet);
            return Some(packet);
        }
        if self.packets == 0 {
            return None;
        }
        self.wake(now);
        let id = self.choose_flow(now)?;
        let (at, mut packet) = self.pop(id)?;
        if self.spec.ce_threshold.is_some_and(|threshold| now.since(at) > threshold) && packet.mark() {
            self.xstats.ce_mark += 1;
        }
        self.flows[id].credit -= i64::from(packet.len);
        self.bands[self.flows[id].band].credit -= i64::from(packet.len);
        self.space(now, id, &packet);
        self.update_head(now, id);
        self.stats.count_sent(&packet);
        Some(packet)
    }

    fn next(&self) -> Option<Instant> {
        if self.due > 0 || !self.direct.is_empty() {
            return Some(Instant::ZERO);
        }
        self.waiting.first().map(|(at, _)| *at)
    }

    fn evict(&mut self) -> Option<Packet<T>> {
        if let Some(packet) = self.direct.pop_front() {
            self.forget_packet(&packet);
            return Some(packet);
        }
        self.wake(self.now);
        // Called rarely, so it may look at all flows for each packet.
        let first = |id: &FlowId| self.flows[*id].packets.front().map(|(at, _)| *at);
        let (_, id) = self.by_key.values().filter_map(|id| first(id).map(|at| (at, *id))).min()?;
        let (_, packet) = self.pop(id)?;
        self.update_head(self.now, id);
        let flow = &mut self.flows[id];
        if (flow.head, flow.state) == (Head::Empty, FlowState::Throttled) {
            flow.state = FlowState::Idle(self.now);
            self.throttled -= 1;
            self.idle.insert((self.now, id));
        }
        Some(packet)
    }

    fn backlog_bytes(&self) -> u64 {
        self.bytes
    }

    fn backlog_packets(&self) -> usize {
        self.packets
    }

    fn stats(&self) -> QdiscStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
