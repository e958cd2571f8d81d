//! The queue discipline as a trait: the calls of Linux's `struct Qdisc_ops`, with time as an argument.
//!
//! Packets go in with [`enqueue`](Qdisc::enqueue) and come out of [`dequeue`](Qdisc::dequeue), in an order
//! and at times that the discipline chooses. No loss is silent: a refused packet comes back in the
//! [`Verdict`], and a packet that is dropped later (`codel` drops at the head, `fq_codel` from the longest
//! queue) is available from [`poll_dropped`](Qdisc::poll_dropped). Called by the driver of a link: the
//! driver's host queue, or a simulator.

use taut_core::Instant;

/// A packet on its way down, with the fields that a queue needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// Bytes of IP packets on the wire. For a super-packet this includes the headers of every segment. Linux:
    /// `qdisc_pkt_len`, which also includes the Ethernet header.
    pub len: u32,
    /// Segments on the wire; 1 unless it is a super-packet.
    pub segs: u16,
    /// The earliest time at which the sender wants it to leave. Linux: the packet's `tstamp`.
    pub departure: Instant,
    /// A number that is equal for all packets of a connection. Linux: `skb_get_hash`.
    pub flow: u64,
    /// Urgency, in the numbers of Linux's `skb->priority` (`SO_PRIORITY`): 0 is best effort, see [`band`].
    pub priority: u8,
    /// Whether a queue may mark it, or has marked it. After dequeuing, the caller writes a mark into the
    /// header.
    pub ecn: Ecn,
    /// Damage on the way: after dequeuing, the caller flips the bit with this number, modulo the number of
    /// bits.
    pub corrupt: Option<u32>,
    /// The packet itself.
    pub item: T,
}

impl<T> Packet<T> {
    /// A packet of one segment that may leave at once, with flow 0 and no priority, not marked and not to be
    /// marked.
    #[must_use]
    pub const fn new(len: u32, item: T) -> Self {
        let (departure, ecn) = (Instant::ZERO, Ecn::NotCapable);
        Self { len, segs: 1, departure, flow: 0, priority: 0, ecn, corrupt: None, item }
    }

    /// Marks the packet as having met congestion, if its sender understands marks. Returns whether it is
    /// marked.
    pub fn mark(&mut self) -> bool {
        match self.ecn {
            Ecn::NotCapable => false,
            Ecn::Capable | Ecn::Marked => {
                self.ecn = Ecn::Marked;
                true
            }
        }
    }
}

/// The alternative to dropping (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// No alternative: its sender does not understand marks. Not-ECT in the header.
    #[default]
    NotCapable,
    /// It may be marked: ECT(0) or ECT(1) in the header.
    Capable,
    /// It is marked: CE is in the header, or is to be written there.
    Marked,
}

impl From<taut_wire::Ecn> for Ecn {
    fn from(field: taut_wire::Ecn) -> Self {
        match field {
            taut_wire::Ecn::NotEct => Self::NotCapable,
            taut_wire::Ecn::Ect0 | taut_wire::Ecn::Ect1 => Self::Capable,
            taut_wire::Ecn::Ce => Self::Marked,
        }
    }
}

/// Bands into which Linux's disciplines sort packets; the first is served first.
pub const BANDS: usize = 3;

/// Linux's `priomap`: the band of each priority. Interactive (6) and control (7) go first, bulk (2), filler
/// (1) and the odd 3 and 5 last, best effort (0) and the rest between them.
pub const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// The band of a packet of this priority. Priorities above 15 are taken modulo 16, as in Linux.
#[must_use]
pub const fn band(priority: u8) -> usize {
    PRIOMAP[(priority & 15) as usize] as usize
}

/// The result of enqueuing a packet.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped packet must be handled"]
pub enum Verdict<T> {
    /// The packet is queued. Linux: `NET_XMIT_SUCCESS`.
    Taken,
    /// The packet is queued, but the queue is full and the sender should slow down. Linux: `NET_XMIT_CN`.
    Congested,
    /// The packet was refused. Linux: `NET_XMIT_DROP`.
    Dropped(Packet<T>),
}

/// Counters, by the names that `tc -s qdisc` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QdiscStats {
    /// Bytes that left, headers included.
    pub sent_bytes: u64,
    /// Packets that left, counting the segments of super-packets.
    pub sent_packets: u64,
    /// Packets refused or dropped later, counting the segments of super-packets.
    pub dropped: u64,
    /// Times that a packet was requested before it was due.
    pub overlimits: u64,
    /// Times that the device had no room for a dequeued packet.
    pub requeues: u64,
}

impl QdiscStats {
    /// Counts a packet that left.
    pub fn count_sent<T>(&mut self, packet: &Packet<T>) {
        self.sent_bytes += u64::from(packet.len);
        self.sent_packets += u64::from(packet.segs);
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            sent_packets: self.sent_packets + other.sent_packets,
            dropped: self.dropped + other.dropped,
            overlimits: self.overlimits + other.overlimits,
            requeues: self.requeues + other.requeues,
        }
    }

    /// Counts a packet that was refused or dropped.
    pub fn count_dropped<T>(&mut self, packet: &Packet<T>) {
        self.dropped += u64::from(packet.segs);
    }
}

/// A queue discipline. `now` never goes backwards.
pub trait Qdisc<T> {
    /// Offers a packet.
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T>;

    /// The next packet, if it is due.
    #[must_use = "a dequeued packet must be sent or dropped"]
    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>>;

    /// When [`dequeue`](Self::dequeue) will have a packet, as far as is known now; an instant in the past
    /// means at once. `None` when nothing waits.
    fn next(&self) -> Option<Instant>;

    /// A packet that was accepted and has since been dropped. Call this after each [`enqueue`](Self::enqueue)
    /// and [`dequeue`](Self::dequeue), until there is none.
    #[must_use = "a dropped packet must be handled"]
    fn poll_dropped(&mut self) -> Option<Packet<T>> {
        None
    }

    /// Removes a waiting packet, whether or not it is due: for a discipline that replaces this one. Packets
    /// of a flow come in the order in which they would have left; none is dropped or counted.
    #[must_use = "an evicted packet must be queued elsewhere"]
    fn evict(&mut self) -> Option<Packet<T>>;

    /// Whether a packet counts as having left the host once it was accepted. That is so where the discipline
    /// stands for the path rather than for a queue of this host: its packets must not count against the
    /// sender's limits on such queues. Linux's `netem` with a delay or a rate takes packets from their
    /// sockets (`skb_orphan_partial`).
    fn orphans(&self) -> bool {
        false
    }

    /// Whether packets leave at a rate of its own, so that they wait here and not below.
    fn shapes(&self) -> bool {
        false
    }

    /// Waiting bytes.
    fn backlog_bytes(&self) -> u64;

    /// Waiting packets; a super-packet counts once.
    fn backlog_packets(&self) -> usize;

    /// Counters since the beginning.
    fn stats(&self) -> QdiscStats;
}
