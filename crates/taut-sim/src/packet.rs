//! Packets in flight, and the memory they lie in. Ours; called wherever a packet is made, moved, read or lost.
//!
//! A queue or a wire holds [`PacketId`]s: names of slots in the one pool of the world, so that moving a packet moves
//! a few bytes, whatever it weighs. A slot has the headers inline and the payload as a part of a shared buffer: the
//! segments that a NIC cuts from a super-packet point into the same buffer, and cutting copies headers only. Slots and
//! buffers are used again; how many there are is how many were ever in flight at once.
//!
//! A name is neither copied nor cloned: who drops a packet gives the name back to the pool. One that is forgotten is
//! found by the invariant checker, which counts what the queues hold against what the pool thinks is out.

use std::net::{IpAddr, SocketAddr};

use taut_core::{Gather, Instant, Offload, TxPacket};
use taut_link::Ecn;
use taut_wire::{IpHeader, TcpHeader, checksum, tcp};

use crate::world::HostId;

/// Longest headers kept inline: IPv6 and TCP with all options.
const HEADER_MAX: usize = 100;

/// No ticket: the packet has left its host.
pub(crate) const NO_TICKET: u32 = u32::MAX;

/// Names a packet in its pool. Whoever holds it must pass it on or give it back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a packet that goes nowhere must be given back to the pool"]
pub struct PacketId(u32);

/// Set in a name that stands for a copy that is still to be made.
const TWIN: u32 = 1 << 31;

impl PacketId {
    /// A name for a copy of this packet, to be [made](Pool::settle) before anything else is done with it.
    pub(crate) fn twin(&self) -> Self {
        Self(self.0 | TWIN)
    }
}

/// A part of a shared buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    buffer: u32,
    start: u32,
    len: u32,
}

/// One packet, or super-packet. What a router looks at, up to the first words of the header, lies in one line of cache.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct WirePacket {
    /// The same for all packets of a connection in one direction.
    pub(crate) flow: u64,
    /// When its stack handed it out.
    pub(crate) handed: Instant,
    payload: Slice,
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    /// Index of its ticket at the host that it has not left yet, or [`NO_TICKET`].
    pub(crate) ticket: u32,
    /// Payload bytes a segment; 0 for an ordinary packet.
    pub(crate) mss: u16,
    /// The checksums are complete and must be looked at: somebody may have changed the packet.
    pub(crate) verify: bool,
    header_len: u8,
    header: [u8; HEADER_MAX],
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Packets that point into it.
    refs: u32,
}

/// Buffers are kept by the binary logarithm of their capacity, from 2 KiB to 64 KiB.
const CLASS_MIN: usize = 11;
const CLASSES: usize = 6;

/// Most memory kept in buffers that nobody uses.
const SPARE_MAX_BYTES: usize = 16 << 20;

/// All packets of a world.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    packets: Vec<WirePacket>,
    free: Vec<u32>,
    buffers: Vec<Buffer>,
    /// Unused buffers, with their memory, by class.
    spare: [Vec<u32>; CLASSES],
    /// Unused buffers without memory.
    empty: Vec<u32>,
    spare_bytes: usize,
}

impl Pool {
    /// Packets that are out.
    pub(crate) fn live(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Most packets that were ever out at once.
    pub(crate) fn peak(&self) -> usize {
        self.packets.len()
    }

    /// Bytes of payload memory, used or not.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.bytes.capacity()).sum()
    }

    pub(crate) fn get(&self, PacketId(id): &PacketId) -> &WirePacket {
        &self.packets[*id as usize]
    }

    pub(crate) fn get_mut(&mut self, PacketId(id): &PacketId) -> &mut WirePacket {
        &mut self.packets[*id as usize]
    }

    fn insert(&mut self, packet: WirePacket) -> PacketId {
        if let Some(id) = self.free.pop() {
            self.packets[id as usize] = packet;
            return PacketId(id);
        }
        self.packets.push(packet);
        PacketId(self.packets.len() as u32 - 1)
    }

    /// Takes a packet out of what a stack handed out. The ticket stays with the caller.
    pub(crate) fn put(&mut self, now: Instant, packet: &TxPacket<'_>, from: HostId) -> PacketId {
        let TxPacket { header, payload, offload, .. } = packet;
        let mss = if let Offload::Segment { mss, .. } = offload { *mss } else { 0 };
        // Checksums that were left to the device are right unless somebody damages the packet; then they are written.
        let verify = matches!(offload, Offload::None);
        let mut packet = WirePacket {
            header: [0; HEADER_MAX],
            header_len: 0,
            verify,
            mss,
            payload: Slice::default(),
            from,
            to: from,
            ticket: NO_TICKET,
            flow: flow(header),
            handed: now,
        };
        if let Some(place) = packet.header.get_mut(..header.len()).filter(|_| is_tcp(header)) {
            place.copy_from_slice(header);
            packet.header_len = header.len() as u8;
            if !payload.is_empty() {
                packet.payload = self.store(payload.slices());
            }
        } else {
            // ICMP is read whole.
            packet.payload = self.store(&[header]);
        }
        self.insert(packet)
    }

    fn store(&mut self, pieces: &[&[u8]]) -> Slice {
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let class = (len.next_power_of_two().trailing_zeros() as usize)
            .clamp(CLASS_MIN, CLASS_MIN + CLASSES - 1)
            - CLASS_MIN;
        let id = match self.spare[class].pop() {
            Some(id) => {
                self.spare_bytes -= self.buffers[id as usize].bytes.capacity();
                id
            }
            None => {
                let id = self.empty.pop().unwrap_or_else(|| {
                    self.buffers.push(Buffer::default());
                    self.buffers.len() as u32 - 1
                });
                self.buffers[id as usize].bytes.reserve_exact(len.max(1 << (class + CLASS_MIN)));
                id
            }
        };
        let buffer = &mut self.buffers[id as usize];
        buffer.refs = 1;
        buffer.bytes.clear();
        pieces.iter().for_each(|piece| buffer.bytes.extend_from_slice(piece));
        Slice { buffer: id, start: 0, len: len as u32 }
    }

    /// A packet is gone.
    pub(crate) fn free(&mut self, PacketId(id): PacketId) {
        let slice = self.packets[id as usize].payload;
        self.free.push(id);
        if slice.len == 0 {
            return;
        }
        let buffer = &mut self.buffers[slice.buffer as usize];
        buffer.refs -= 1;
        if buffer.refs > 0 {
            return;
        }
        let capacity = buffer.bytes.capacity();
        if self.spare_bytes + capacity > SPARE_MAX_BYTES {
            buffer.bytes = Vec::new();
            self.empty.push(slice.buffer);
        } else {
            self.spare_bytes += capacity;
            let class = (capacity.ilog2() as usize).clamp(CLASS_MIN, CLASS_MIN + CLASSES - 1) - CLASS_MIN;
            self.spare[class].push(slice.buffer);
        }
    }

    /// A name that came out of a queue: makes the copy that it may stand for.
    pub(crate) fn settle(&mut self, PacketId(id): PacketId) -> PacketId {
        if id & TWIN == 0 {
            return PacketId(id);
        }
        self.duplicate(&PacketId(id & !TWIN))
    }

    /// The same packet once more, as a network that duplicates makes it.
    pub(crate) fn duplicate(&mut self, id: &PacketId) -> PacketId {
        let packet = WirePacket { ticket: NO_TICKET, ..self.get(id).clone() };
        if packet.payload.len > 0 {
            self.buffers[packet.payload.buffer as usize].refs += 1;
        }
        self.insert(packet)
    }

    /// How many segments a packet makes on the wire.
    pub(crate) fn segs(&self, id: &PacketId) -> u32 {
        let packet = self.get(id);
        if packet.mss == 0 { 1 } else { packet.payload.len.div_ceil(u32::from(packet.mss)).max(1) }
    }

    /// Bytes of all its segments as IP packets.
    pub(crate) fn len(&self, id: &PacketId) -> u32 {
        let packet = self.get(id);
        self.segs(id) * u32::from(packet.header_len) + packet.payload.len
    }

    /// Segment `index` of a super-packet, as a packet of its own. What a NIC's segmentation does: its own length and
    /// sequence number; FIN and PSH on the last, CWR on the first only.
    pub(crate) fn cut(&mut self, whole: &PacketId, index: u32) -> PacketId {
        let mut packet = self.get(whole).clone();
        let mss = u32::from(packet.mss);
        let whole_len = packet.payload.len;
        let at = (index * mss).min(whole_len);
        let len = (whole_len - at).min(mss);
        packet.payload.start += at;
        packet.payload.len = len;
        packet.mss = 0;
        packet.ticket = NO_TICKET;
        packet.set_payload_len(whole_len, len);
        let tcp_at = packet.tcp_at();
        if let Some(tcp) = packet.header.get_mut(tcp_at..tcp_at + 20) {
            let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(at);
            tcp[4..8].copy_from_slice(&seq.to_be_bytes());
            if at + len < whole_len {
                tcp[13] &= !(FIN | PSH);
            }
            if index > 0 {
                tcp[13] &= !CWR;
            }
        }
        self.buffers[packet.payload.buffer as usize].refs += u32::from(len > 0);
        self.insert(packet)
    }

    /// Flips the bit of this number, modulo the bits of the packet; the checksums are to be looked at then.
    pub(crate) fn corrupt(&mut self, id: &PacketId, bit: u64) {
        let whole = [self.header(id), self.payload(id)].concat();
        let mut whole = if self.get(id).verify { whole } else { complete(whole) };
        let bit = bit % (whole.len() as u64 * 8);
        if let Some(byte) = whole.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
        let header_len = self.header(id).len();
        let (header, payload) = whole.split_at(header_len);
        let slice = if payload.is_empty() { Slice::default() } else { self.store(&[payload]) };
        let packet = self.get_mut(id);
        packet.header[..header_len].copy_from_slice(header);
        packet.verify = true;
        let old = std::mem::replace(&mut packet.payload, slice);
        if old.len > 0 {
            // Freed as a packet's would be.
            let ghost = WirePacket { payload: old, ..self.get(id).clone() };
            let ghost = self.insert(ghost);
            self.free(ghost);
        }
    }

    /// The headers; empty for a packet that is not TCP.
    pub(crate) fn header(&self, id: &PacketId) -> &[u8] {
        let packet = self.get(id);
        &packet.header[..usize::from(packet.header_len)]
    }

    /// What follows the headers.
    pub(crate) fn payload(&self, id: &PacketId) -> &[u8] {
        self.slice(self.get(id).payload)
    }

    fn slice(&self, slice: Slice) -> &[u8] {
        if slice.len == 0 {
            return &[];
        }
        let start = slice.start as usize;
        &self.buffers[slice.buffer as usize].bytes[start..start + slice.len as usize]
    }

    /// Payload bytes.
    pub(crate) fn payload_len(&self, id: &PacketId) -> u32 {
        self.get(id).payload.len
    }

    /// Adds the payload of `ids` in order to `gather`, in as few pieces as can be. False when there are too many.
    pub(crate) fn gather<'a>(&'a self, ids: &[PacketId], gather: &mut Gather<'a>) -> bool {
        let mut run = Slice::default();
        for id in ids {
            let next = self.get(id).payload;
            if run.len > 0 && next.buffer == run.buffer && next.start == run.start + run.len {
                run.len += next.len;
            } else {
                if !gather.push(self.slice(run)) {
                    return false;
                }
                run = next;
            }
        }
        gather.push(self.slice(run))
    }

    /// Whether `next` continues `last`'s bytes in the same memory: no further piece is needed for it.
    pub(crate) fn continues(&self, last: &PacketId, next: &PacketId) -> bool {
        let (last, next) = (self.get(last).payload, self.get(next).payload);
        next.buffer == last.buffer && next.start == last.start + last.len
    }
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

impl WirePacket {
    /// Where the TCP header begins.
    pub(crate) fn tcp_at(&self) -> usize {
        if self.header[0] >> 4 == 4 { usize::from(self.header[0] & 15) * 4 } else { 40 }
    }

    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// Changes the length in the IP header by the difference of two payload lengths, and the sum over it (RFC 1624).
    pub(crate) fn set_payload_len(&mut self, old: u32, new: u32) {
        set_ip_len(&mut self.header, old, new);
    }

    /// What the IP header says about marks.
    pub(crate) fn ecn(&self) -> Ecn {
        match self.traffic_class() & 3 {
            0 => Ecn::NotCapable,
            3 => Ecn::Marked,
            _ => Ecn::Capable,
        }
    }

    fn traffic_class(&self) -> u8 {
        if self.header[0] >> 4 == 4 { self.header[1] } else { self.header[0] << 4 | self.header[1] >> 4 }
    }

    /// Writes that the packet has met congestion.
    pub(crate) fn mark(&mut self) {
        if self.header[0] >> 4 == 4 {
            let before = u16::from_be_bytes([self.header[0], self.header[1]]);
            self.header[1] |= 3;
            update_sum(&mut self.header, before, before | 3);
        } else {
            self.header[1] |= 0x30;
        }
    }

    /// The TCP header, if it is one.
    pub(crate) fn tcp(&self) -> Option<TcpHeader> {
        let header = self.header();
        TcpHeader::parse(header.get(self.tcp_at()..)?).ok().map(|(tcp, _)| tcp)
    }

    /// A number that any change of the headers changes, for the digest of a run.
    pub(crate) fn fingerprint(&self) -> u64 {
        let (words, rest) = self.header().as_chunks::<8>();
        let mut sum = u64::from(self.payload.len);
        for word in words {
            sum = (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(SPREAD);
        }
        rest.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(SPREAD))
    }
}

/// Replaces the payload length `old` by `new` in an IP header.
pub(crate) fn set_ip_len(header: &mut [u8], old: u32, new: u32) {
    let change = |field: &mut [u8]| {
        let before = u16::from_be_bytes([field[0], field[1]]);
        // The length of a super-packet beyond 64 KiB does not fit its field; nothing of it is lost by wrapping.
        let after = before.wrapping_add(new.wrapping_sub(old) as u16);
        field[..2].copy_from_slice(&after.to_be_bytes());
        (before, after)
    };
    if header[0] >> 4 == 4 {
        let (before, after) = change(&mut header[2..4]);
        update_sum(header, before, after);
    } else {
        change(&mut header[4..6]);
    }
}

/// The sum over an IPv4 header in which one word changed: RFC 1624 §3, equation 3.
fn update_sum(header: &mut [u8], before: u16, after: u16) {
    let sum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!sum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn is_tcp(header: &[u8]) -> bool {
    match header.first().map(|first| first >> 4) {
        Some(4) => header.get(9) == Some(&6),
        Some(6) => header.get(6) == Some(&6),
        _ => false,
    }
}

/// Writes the TCP checksum that was left to the device.
fn complete(mut packet: Vec<u8>) -> Vec<u8> {
    if let Ok(ip) = IpHeader::parse(&packet)
        && ip.protocol == taut_wire::protocol::TCP
        && let Some(segment) = packet.get_mut(ip.header_len..)
        && segment.len() >= tcp::HEADER_LEN
    {
        tcp::set_checksum(segment, 0);
        let sum = checksum::pseudo_header(ip.src, ip.dst, ip.protocol, segment.len() as u32)
            .add_bytes(segment)
            .finish();
        tcp::set_checksum(segment, sum);
    }
    packet
}

/// The golden ratio in 64 bits, as in Fibonacci hashing.
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The same number for every packet of a connection in one direction: addresses and ports, mixed.
pub(crate) fn flow(header: &[u8]) -> u64 {
    let (addresses, ports) = match header.first().map(|first| first >> 4) {
        Some(4) => {
            let ports = usize::from(header[0] & 15) * 4;
            (12..20, ports..ports + 4)
        }
        Some(6) => (8..40, 40..44),
        _ => return 0,
    };
    let words = [addresses, ports]
        .into_iter()
        .filter_map(|range| header.get(range))
        .flat_map(|bytes| bytes.chunks(4));
    words.fold(0, |sum: u64, word| {
        let word = word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        (sum.rotate_left(5) ^ word).wrapping_mul(SPREAD)
    })
}

/// What [`flow`] makes of packets from one end to the other.
pub(crate) fn flow_between(from: SocketAddr, to: SocketAddr) -> u64 {
    let mut header = [0; 44];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            header[0] = 0x45;
            header[12..16].copy_from_slice(&a.octets());
            header[16..20].copy_from_slice(&b.octets());
            header[20..22].copy_from_slice(&from.port().to_be_bytes());
            header[22..24].copy_from_slice(&to.port().to_be_bytes());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            header[0] = 0x60;
            header[8..24].copy_from_slice(&a.octets());
            header[24..40].copy_from_slice(&b.octets());
            header[40..42].copy_from_slice(&from.port().to_be_bytes());
            header[42..44].copy_from_slice(&to.port().to_be_bytes());
        }
        _ => {}
    }
    flow(&header)
}
