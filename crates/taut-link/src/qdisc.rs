//! The queue discipline as a trait: what Linux's `struct Qdisc_ops` asks, with time as an argument.
//!
//! Packets go in with [`enqueue`](Qdisc::enqueue) and come out of [`dequeue`](Qdisc::dequeue) in an order and at times
//! that are the discipline's own business. Nothing is lost in silence: a packet that is not taken comes back in the
//! [`Verdict`], and one that is thrown out later (`codel` drops at the head, `fq_codel` from the fattest flow) is to be
//! had from [`poll_dropped`](Qdisc::poll_dropped). Called by whoever drives a link: the driver's front, a simulator.

use taut_core::Instant;

/// A packet on its way down, as far as a queue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// Bytes of IP packets on the wire. For a super-packet the headers of every segment count. Linux:
    /// `qdisc_pkt_len`, which has the Ethernet header beside.
    pub len: u32,
    /// Segments on the wire; 1 unless it is a super-packet.
    pub segs: u16,
    /// The earliest time at which the sender wants it to leave. Linux: the packet's `tstamp`.
    pub departure: Instant,
    /// The same for all packets of a connection. Linux: `skb_get_hash`.
    pub flow: u64,
    /// How urgent it is, in the numbers of Linux's `skb->priority` (`SO_PRIORITY`): 0 is best effort, see [`band`].
    pub priority: u8,
    /// Whether a queue may mark it, or has. Who takes it out writes a mark into the header.
    pub ecn: Ecn,
    /// Damaged on the way: who takes it out flips the bit of this number, modulo the bits that it has.
    pub corrupt: Option<u32>,
    /// The packet itself.
    pub item: T,
}

impl<T> Packet<T> {
    /// A packet of one segment that may leave at once, of flow 0 and no priority, unmarked and not to be marked.
    #[must_use]
    pub const fn new(len: u32, item: T) -> Self {
        let (departure, ecn) = (Instant::ZERO, Ecn::NotCapable);
        Self { len, segs: 1, departure, flow: 0, priority: 0, ecn, corrupt: None, item }
    }

    /// Marks it as having met congestion, if its sender can be told so. Says whether it is marked.
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

/// What a queue may do instead of dropping (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Nothing: its sender does not understand marks. Not-ECT in the header.
    #[default]
    NotCapable,
    /// Mark it: ECT(0) or ECT(1) in the header.
    Capable,
    /// It is marked: CE in the header, or to be written there.
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

/// Bands that Linux's disciplines sort packets into; the first goes first.
pub const BANDS: usize = 3;

/// Linux's `priomap`: the band of each priority. Interactive (6) and control (7) go first, bulk (2), filler (1) and
/// the odd 3 and 5 last, best effort (0) and the rest between them.
pub const PRIOMAP: [u8; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// The band of a packet of this priority. Priorities above 15 are taken modulo 16, as in Linux.
#[must_use]
pub const fn band(priority: u8) -> usize {
    PRIOMAP[(priority & 15) as usize] as usize
}

/// What became of a packet that was enqueued.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a packet that was dropped must be answered for"]
pub enum Verdict<T> {
    /// It waits its turn. Linux: `NET_XMIT_SUCCESS`.
    Taken,
    /// It waits its turn, but the queue is full and the sender should slow down. Linux: `NET_XMIT_CN`.
    Congested,
    /// It was not taken. Linux: `NET_XMIT_DROP`.
    Dropped(Packet<T>),
}

/// Counts, by the names that `tc -s qdisc` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QdiscStats {
    /// Bytes that left, headers included.
    pub sent_bytes: u64,
    /// Packets that left, counting the segments of super-packets.
    pub sent_packets: u64,
    /// Packets not taken or thrown out, counting the segments of super-packets.
    pub dropped: u64,
    /// Times that a packet was asked for before its time had come.
    pub overlimits: u64,
    /// Times that the device had no room for a packet that had left.
    pub requeues: u64,
}

impl QdiscStats {
    /// A packet left.
    pub fn count_sent<T>(&mut self, packet: &Packet<T>) {
        self.sent_bytes += u64::from(packet.len);
        self.sent_packets += u64::from(packet.segs);
    }

    /// Both together.
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

    /// A packet was not taken, or thrown out.
    pub fn count_dropped<T>(&mut self, packet: &Packet<T>) {
        self.dropped += u64::from(packet.segs);
    }
}

/// A queue discipline. `now` never goes backwards.
pub trait Qdisc<T> {
    /// Offers a packet.
    fn enqueue(&mut self, now: Instant, packet: Packet<T>) -> Verdict<T>;

    /// The next packet, if its time has come.
    #[must_use = "a packet that left the queue must go somewhere"]
    fn dequeue(&mut self, now: Instant) -> Option<Packet<T>>;

    /// When [`dequeue`](Self::dequeue) has something, as far as is known now; an instant in the past means at once.
    /// `None` when nothing waits.
    fn next(&self) -> Option<Instant>;

    /// A packet that was taken and thrown out since. To be asked after each [`enqueue`](Self::enqueue) and
    /// [`dequeue`](Self::dequeue), until there is none.
    #[must_use = "a packet that was dropped must be answered for"]
    fn poll_dropped(&mut self) -> Option<Packet<T>> {
        None
    }

    /// Takes out a packet that waits, whether or not its time has come: for a discipline that takes this one's place.
    /// Packets of a flow come in the order in which they would have left; none is dropped or counted.
    #[must_use = "a packet that was taken out must go somewhere"]
    fn evict(&mut self) -> Option<Packet<T>>;

    /// Whether a packet is gone, as far as its sender should know, once it was taken: what holds it stands for the way
    /// rather than a queue of this host, and must not count against what a sender may have in those. Linux's `netem`
    /// with a delay or a rate takes packets from their sockets (`skb_orphan_partial`).
    fn orphans(&self) -> bool {
        false
    }

    /// Bytes that wait.
    fn backlog_bytes(&self) -> u64;

    /// Packets that wait, a super-packet being one.
    fn backlog_packets(&self) -> usize;

    /// Counts since the beginning.
    fn stats(&self) -> QdiscStats;
}
