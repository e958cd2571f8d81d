//! Packets in flight and their memory. Called wherever a packet is created, moved, read or lost.
//!
//! A wire holds [`PacketId`]s, and a queue holds [`Claim`]s on them. They identify slots in the world's
//! single pool, so that moving a packet moves a few bytes, whatever its size. A slot has the headers inline
//! and the payload as part of a shared buffer: the segments that a NIC cuts from a super-packet point into
//! the same buffer, so cutting copies only headers. Slots and buffers are reused; there are as many as were
//! ever in flight at once.
//!
//! An ID can be neither copied nor cloned: code that drops a packet gives the ID back to the pool. The
//! invariant checker finds a forgotten ID, because it compares the packets in queues with those that the pool
//! has given out.

use std::cell::OnceCell;
use std::rc::Rc;

use taut_core::{Gather, Instant, Known, Offload, TxPacket};
use taut_wire::{Ecn, IpHeader, TcpHeader, Unreachable, icmp, protocol, raw};

use crate::ids::HostId;
use crate::mutate;
use crate::rng::Rng;

/// Longest headers kept inline: IPv6 and TCP with all options.
const HEADER_MAX: usize = 100;

/// No ticket: the packet has left its host.
pub(crate) const NO_TICKET: u32 = u32::MAX;

/// Identifies a packet in its pool. The owner must pass it on or give it back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a packet that goes nowhere must be given back to the pool"]
pub struct PacketId(u32);

/// A queue's handle on a packet. `netem` clones the packets that it duplicates, but an ID must not be cloned:
/// the clones are claims on one packet, and all but the last one [redeemed](Pool::redeem) get a copy of it.
#[derive(Debug)]
pub(crate) struct Claim {
    id: PacketId,
    /// Counts the claims, once there are several.
    shared: OnceCell<Rc<()>>,
}

impl From<PacketId> for Claim {
    fn from(id: PacketId) -> Self {
        Self { id, shared: OnceCell::new() }
    }
}

impl Clone for Claim {
    fn clone(&self) -> Self {
        let shared = self.shared.get_or_init(Rc::default);
        Self { id: PacketId(self.id.0), shared: Rc::clone(shared).into() }
    }
}

/// A part of a shared buffer, or of the bytes that are known.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    /// From [`KNOWN`] on there is no buffer: the number only differs from packet to packet.
    buffer: u32,
    start: u32,
    len: u32,
}

/// Numbers from here on stand for no buffer, but for known bytes.
const KNOWN: u32 = 1 << 31;

impl Slice {
    /// Whether a buffer holds its bytes; those that are known and those that are none need no buffer.
    const fn has_buffer(self) -> bool {
        self.len > 0 && self.buffer < KNOWN
    }
}

/// A packet or super-packet. The fields that a router reads, up to the first words of the header, lie in one
/// cache line.
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
    /// Index of its ticket at its host, or [`NO_TICKET`] once it has left.
    pub(crate) ticket: u32,
    /// Payload bytes per segment; 0 for an ordinary packet.
    pub(crate) mss: u16,
    /// Whether the checksums are complete and must be verified: the packet may have been changed.
    pub(crate) verify: bool,
    header_len: u8,
    header: [u8; HEADER_MAX],
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Number of packets that point into it.
    refs: u32,
}

/// Buffers are kept by the binary logarithm of their capacity, from 2 KiB to 64 KiB.
const CLASS_MIN: usize = 11;
const CLASSES: usize = 6;

/// Most memory kept in unused buffers.
const SPARE_MAX_BYTES: usize = 16 << 20;

/// All packets of a world.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    packets: Vec<WirePacket>,
    free: Vec<u32>,
    buffers: Vec<Buffer>,
    /// Unused buffers that still have memory, by class.
    spare: [Vec<u32>; CLASSES],
    /// Unused buffers without memory.
    empty: Vec<u32>,
    spare_bytes: usize,
    redeemed_copies: u64,
    /// Bytes that need no buffer, if payloads are lengths only.
    pub(crate) known: Option<Known>,
    /// Payloads that are known, so far.
    known_payloads: u32,
}

impl Pool {
    /// Packets not given back.
    pub(crate) fn live(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// The most packets that were out at once.
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

    /// A slot for a packet, whose fields the caller sets.
    fn slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.packets.push(WirePacket::EMPTY);
            self.packets.len() as u32 - 1
        })
    }

    fn insert(&mut self, packet: WirePacket) -> PacketId {
        let id = self.slot();
        self.packets[id as usize] = packet;
        PacketId(id)
    }

    /// A packet that is as `of`, but for its ticket, in a slot of its own; only what is set of the header is
    /// copied.
    fn like(&mut self, of: &PacketId) -> PacketId {
        let id = self.slot();
        if let Ok([from, to]) = self.packets.get_disjoint_mut([of.0 as usize, id as usize]) {
            let WirePacket { flow, handed, payload, from: host, mss, verify, header_len, .. } = *from;
            (to.flow, to.handed, to.payload, to.from, to.to) = (flow, handed, payload, host, from.to);
            (to.ticket, to.mss, to.verify, to.header_len) = (NO_TICKET, mss, verify, header_len);
            to.header_mut().copy_from_slice(from.header());
        }
        PacketId(id)
    }

    /// Copies a packet that a stack handed out into the pool. The caller keeps the ticket.
    pub(crate) fn put(&mut self, now: Instant, packet: &TxPacket<'_>, from: HostId) -> PacketId {
        let TxPacket { header, payload, offload, .. } = packet;
        let mss = if let Offload::Segment { mss, .. } = offload { *mss } else { 0 };
        // Checksums left to the device are correct unless the packet is damaged; then they are written.
        let verify = matches!(offload, Offload::None);
        let is_tcp = header.len() <= HEADER_MAX && raw::tcp_at(header).is_some();
        let payload = match is_tcp {
            true if payload.is_empty() => Slice::default(),
            true => self.store(payload.slices()),
            // What is not TCP is copied whole.
            false => self.store(&[&[*header], payload.slices()].concat()),
        };
        let id = self.slot();
        let packet = &mut self.packets[id as usize];
        packet.header_len = if is_tcp { header.len() as u8 } else { 0 };
        let place = packet.header_mut();
        place.copy_from_slice(&header[..place.len()]);
        (packet.flow, packet.handed, packet.payload, packet.mss) = (raw::flow(header), now, payload, mss);
        (packet.from, packet.to, packet.ticket, packet.verify) = (from, from, NO_TICKET, verify);
        PacketId(id)
    }

    /// The place of a payload in the known bytes, if it is a piece of them.
    fn as_known(&mut self, pieces: &[&[u8]]) -> Option<Slice> {
        let known = self.known?;
        let start = known.place(pieces.first()?)?;
        let mut len = 0;
        for piece in pieces {
            if !known.is_at(start + len, piece) {
                return None;
            }
            len += piece.len();
        }
        self.known_payloads = self.known_payloads.wrapping_add(1);
        Some(Slice { buffer: KNOWN | self.known_payloads, start: start as u32, len: len as u32 })
    }

    fn store(&mut self, pieces: &[&[u8]]) -> Slice {
        if let Some(slice) = self.as_known(pieces) {
            return slice;
        }
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

    /// One more packet points into the buffer of this payload.
    fn hold(&mut self, slice: Slice) {
        if slice.has_buffer() {
            self.buffers[slice.buffer as usize].refs += 1;
        }
    }

    /// Gives a packet back.
    pub(crate) fn free(&mut self, PacketId(id): PacketId) {
        let slice = self.packets[id as usize].payload;
        self.free.push(id);
        if !slice.has_buffer() {
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

    /// Turns a claim that came out of a queue into the packet, or into a copy while other claims on it
    /// remain.
    #[inline]
    pub(crate) fn redeem(&mut self, claim: Claim) -> PacketId {
        let Claim { id, shared } = claim;
        if shared.into_inner().is_none_or(|shared| Rc::into_inner(shared).is_some()) {
            return id;
        }
        self.redeemed_copies += 1;
        self.duplicate(&id)
    }

    /// Number of copies made for claims.
    pub(crate) fn redeemed_copies(&self) -> u64 {
        self.redeemed_copies
    }

    /// A copy of a packet, as made by a network that duplicates.
    pub(crate) fn duplicate(&mut self, id: &PacketId) -> PacketId {
        self.hold(self.get(id).payload);
        self.like(id)
    }

    /// Number of segments that a packet makes on the wire.
    pub(crate) fn segs(&self, id: &PacketId) -> u32 {
        self.get(id).segs()
    }

    /// Bytes of all its segments, as IP packets.
    pub(crate) fn len(&self, id: &PacketId) -> u32 {
        self.get(id).len()
    }

    /// Segment `index` of a super-packet as a separate packet ([`raw::cut`]).
    pub(crate) fn cut(&mut self, whole: &PacketId, index: u32) -> PacketId {
        let id = self.like(whole);
        let packet = self.get_mut(&id);
        let (payload_len, mss) = (packet.payload.len as usize, packet.mss.into());
        let part = raw::cut(packet.header_mut(), payload_len, mss, index as usize);
        packet.payload.start += part.start as u32;
        packet.payload.len = part.len() as u32;
        packet.mss = 0;
        self.hold(self.get(&id).payload);
        id
    }

    /// Flips the bit with this number, modulo the bits of the packet; from then on the checksums must be
    /// verified.
    pub(crate) fn corrupt(&mut self, id: &PacketId, bit: u64) {
        let mut whole = [self.header(id), self.payload(id)].concat();
        if !self.get(id).verify {
            raw::complete(&mut whole);
        }
        let mut bit = bit % (whole.len() as u64 * 8);
        // IPv6 does not protect its length. A shorter one escapes the checksum of what is left once in 65,536
        // times, which no receiver can know.
        if whole[0] >> 4 == 6 && (4 * 8..6 * 8).contains(&bit) {
            bit += 2 * 8;
        }
        if let Some(byte) = whole.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
        let header_len = self.header(id).len();
        let (header, payload) = whole.split_at(header_len);
        let slice = if payload.is_empty() { Slice::default() } else { self.store(&[payload]) };
        let packet = self.get_mut(id);
        packet.header[..header_len].copy_from_slice(header);
        packet.verify = true;
        self.replace_payload(id, slice);
    }

    /// Makes of a packet one that no stack sends; see `mutate.rs`.
    pub(crate) fn mutate(&mut self, id: &PacketId, rng: &mut Rng) {
        let mut whole = [self.header(id), self.payload(id)].concat();
        if !self.get(id).verify {
            raw::complete(&mut whole);
        }
        let changed = mutate::mutate(&whole, rng);
        let slice = self.store(&[&changed]);
        self.replace_payload(id, slice);
        // Like ICMP: a packet of which nothing is known but its bytes.
        let packet = self.get_mut(id);
        (packet.header_len, packet.mss, packet.verify) = (0, 0, true);
    }

    /// The ICMP message that a router sends to the sender of a packet that is larger than `mtu`.
    pub(crate) fn too_big(&mut self, now: Instant, id: &PacketId, mtu: u16) -> Option<PacketId> {
        let quoted = [self.header(id), self.payload(id)].concat();
        let ip = IpHeader::parse(&quoted).ok().filter(|ip| ip.protocol == protocol::TCP)?;
        let mut message = [0; 1_240];
        // Whatever router it was: it has the destination's address, as a tunnel's end would.
        let code = Unreachable::FragmentationNeeded { mtu: mtu.into() };
        let len = icmp::emit_unreachable(&mut message, ip.dst, ip.src, code, &quoted);
        let header = IpHeader {
            src: ip.dst,
            dst: ip.src,
            protocol: if ip.src.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 },
            hop_limit: 64,
            ecn: Ecn::NotEct,
            header_len: if ip.src.is_ipv4() { 20 } else { 40 },
            payload_len: len,
        };
        let mut bytes = vec![0; header.header_len];
        header.emit(&mut bytes, 0);
        bytes.extend_from_slice(&message[..len]);
        let to = self.get(id).from;
        Some(self.forged(now, &bytes, to))
    }

    /// A packet of which nothing is known but its bytes.
    pub(crate) fn forged(&mut self, now: Instant, bytes: &[u8], to: HostId) -> PacketId {
        let payload = self.store(&[bytes]);
        self.insert(WirePacket {
            flow: 0,
            handed: now,
            payload,
            from: to,
            to,
            ticket: NO_TICKET,
            mss: 0,
            verify: true,
            header_len: 0,
            header: [0; HEADER_MAX],
        })
    }

    fn replace_payload(&mut self, id: &PacketId, slice: Slice) {
        let old = std::mem::replace(&mut self.get_mut(id).payload, slice);
        if old.len > 0 {
            // Freed like a packet's payload.
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

    /// The payload of a TCP packet, or the whole of any other packet.
    pub(crate) fn payload(&self, id: &PacketId) -> &[u8] {
        self.slice(self.get(id).payload)
    }

    fn slice(&self, slice: Slice) -> &[u8] {
        let start = slice.start as usize;
        if !slice.has_buffer() {
            return self.known.map_or(&[], |known| known.bytes(start, slice.len as usize));
        }
        &self.buffers[slice.buffer as usize].bytes[start..start + slice.len as usize]
    }

    /// Payload bytes.
    pub(crate) fn payload_len(&self, id: &PacketId) -> u32 {
        self.get(id).payload.len
    }

    /// Adds the payload of `ids` in order to `gather`, in as few pieces as possible. Returns false when there
    /// are too many.
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

    /// Whether the bytes of `next` follow those of `last` in the same memory, so that it needs no further
    /// piece.
    pub(crate) fn continues(&self, last: &PacketId, next: &PacketId) -> bool {
        let (last, next) = (self.get(last).payload, self.get(next).payload);
        next.buffer == last.buffer && next.start == last.start + last.len
    }
}

impl WirePacket {
    const EMPTY: Self = Self {
        flow: 0,
        handed: Instant::ZERO,
        payload: Slice { buffer: 0, start: 0, len: 0 },
        from: HostId(0),
        to: HostId(0),
        ticket: NO_TICKET,
        mss: 0,
        verify: false,
        header_len: 0,
        header: [0; HEADER_MAX],
    };

    /// Number of segments that it makes on the wire.
    pub(crate) fn segs(&self) -> u32 {
        raw::segs(self.payload.len as usize, self.mss.into()) as u32
    }

    /// Bytes of all its segments, as IP packets.
    pub(crate) fn len(&self) -> u32 {
        self.segs() * u32::from(self.header_len) + self.payload.len
    }

    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    pub(crate) fn header_mut(&mut self) -> &mut [u8] {
        &mut self.header[..usize::from(self.header_len)]
    }

    /// The TCP header, if the packet is TCP.
    pub(crate) fn tcp(&self) -> Option<TcpHeader> {
        let header = self.header();
        TcpHeader::parse(&header[raw::tcp_at(header)?..]).ok().map(|(tcp, _)| tcp)
    }

    /// A number that changes with any change of the headers, for the digest of a run.
    pub(crate) fn fingerprint(&self) -> u64 {
        let (words, rest) = self.header().as_chunks::<8>();
        let mut sum = u64::from(self.payload.len);
        for word in words {
            sum = (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(SPREAD);
        }
        rest.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(SPREAD))
    }
}

/// The golden ratio in 64 bits, as in Fibonacci hashing.
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
