//! The vocabulary between the stack and the layer below it: capabilities, packets in, packets out, tickets.
//!
//! A device is anything that can take a [`TxPacket`] and give its [`TxTicket`] back when the bytes have left
//! the host. TUN, a ring, a tunnel and a simulated NIC all look like this to the stack.

use alloc::vec::Vec;
use core::ops::Range;

use super::{Instant, Memory, TxTicket};

/// The capabilities of a link. Fixed for the life of a [`Stack`](crate::Stack), except for
/// [`mtu`](Self::mtu), [`paces`](Self::paces) and [`completes_on_departure`](Self::completes_on_departure).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCaps {
    /// Largest IP packet the link carries, in bytes, headers included. At least 1280 where IPv6 is used. May
    /// change: [`NetworkChange::SetMtu`](crate::NetworkChange::SetMtu).
    pub mtu: u16,
    /// Largest super-packet the link cuts into segments by itself, in bytes, headers included; 0 when it cuts
    /// none. Linux: `gso_max_size`, 65,536 by default.
    pub gso_max_bytes: u32,
    /// Most segments in a super-packet. Linux: `gso_max_segs`.
    pub gso_max_segs: u16,
    /// Whether the link completes TCP checksums, so that the stack writes only the pseudo-header's sum.
    pub tx_checksum: bool,
    /// Whether the link cuts super-packets of UDP, too (USO).
    pub udp_segments: bool,
    /// Whether something below honours [`TxPacket::departure`], as `fq` does; the stack then arms no pacing
    /// timer of its own. May change: [`Stack::set_link_paces`](crate::Stack::set_link_paces).
    pub paces: bool,
    /// The share of a second's bytes that may be below TCP: `rate >> pacing_shift`. 10 (about a millisecond)
    /// suits a wire; Wi-Fi, which sends in long bursts, needs 7 (about 8 ms). Linux: `sk_pacing_shift`.
    pub pacing_shift: u8,
    /// Whether a ticket comes back when its packet has left the host, and not as soon as the device has it.
    /// Small queues are then as long as completions show to be needed
    /// ([`TsqMode::Measured`](crate::TsqMode::Measured)). May change:
    /// [`Stack::set_link_completes_on_departure`](crate::Stack::set_link_completes_on_departure).
    pub completes_on_departure: bool,
}

/// `rate >> 10` is the rate's share of 1/1024 s.
const PACING_SHIFT: u8 = 10;

impl LinkCaps {
    /// A link that cuts segments and completes checksums, as TUN with `IFF_VNET_HDR` does.
    #[must_use]
    pub const fn offloading(mtu: u16) -> Self {
        Self {
            mtu,
            gso_max_bytes: 65_536,
            gso_max_segs: 65_535,
            tx_checksum: true,
            udp_segments: false,
            paces: false,
            pacing_shift: PACING_SHIFT,
            completes_on_departure: false,
        }
    }

    /// A link that carries one plain packet at a time.
    #[must_use]
    pub const fn plain(mtu: u16) -> Self {
        Self {
            mtu,
            gso_max_bytes: 0,
            gso_max_segs: 1,
            tx_checksum: false,
            udp_segments: false,
            paces: false,
            pacing_shift: PACING_SHIFT,
            completes_on_departure: false,
        }
    }
}

/// Length of the buffers that devices receive into, and of the stack's payload buffers: the stack swaps one
/// for the other. It holds the largest super-packet (IPv6: 40 + 65,535 bytes) and the header of a link or of
/// virtio-net in front of it.
pub const BUFFER_BYTES: usize = 65_536 + 256;

/// Whether the TCP checksum of a received packet has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxChecksum {
    /// Not yet: the stack verifies it.
    Unverified,
    /// The device verified it, or the packet never left this host and its checksum was never computed.
    Verified,
}

/// One packet from the link, starting at the IP header. May be a GRO super-packet of up to 64 KB.
#[derive(Debug)]
pub struct RxPacket<'a> {
    /// The packet's bytes.
    pub frame: Frame<'a>,
    /// Whether the checksum must still be verified.
    pub checksum: RxChecksum,
    /// Segment size of a super-packet, in payload bytes; 0 for an ordinary packet.
    pub gso_size: u16,
}

/// The bytes of a received packet, and whether the stack may keep the memory they lie in.
#[derive(Debug)]
pub enum Frame<'a> {
    /// One contiguous packet; the payload is copied into the read queue.
    Slice(&'a [u8]),
    /// A packet still in the sender's pieces, as when two stacks are joined in one process: all headers in
    /// `header`, the payload in several slices.
    Gather {
        /// IP and TCP headers, no payload.
        header: &'a [u8],
        /// The payload, in order.
        payload: Gather<'a>,
    },
    /// A packet in `buffer[range]`, in a buffer of [`BUFFER_BYTES`]. The stack may take the buffer, so that a
    /// large payload reaches the application without a copy. It then leaves another in its place: one of the
    /// same length if it has a spare one, else an empty one.
    Lend {
        /// The device's receive buffer.
        buffer: &'a mut Vec<u8>,
        /// The range of the packet in it.
        range: Range<usize>,
    },
}

/// The largest number of pieces of one super-packet's payload.
pub const GATHER_MAX: usize = 8;

/// A payload as pieces of memory, in order, as `writev` takes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gather<'a> {
    slices: [&'a [u8]; GATHER_MAX],
    /// For each piece, the memory that contains it, if a waiting packet may hold that memory.
    memory: [Option<&'a Memory>; GATHER_MAX],
    count: usize,
    len: usize,
}

impl<'a> Gather<'a> {
    /// No payload.
    pub const EMPTY: Self = Self { slices: [&[]; GATHER_MAX], memory: [None; GATHER_MAX], count: 0, len: 0 };

    /// Adds a piece at the end; an empty one is skipped. Returns false, adding nothing, when all
    /// [`GATHER_MAX`] places are taken.
    pub fn push(&mut self, slice: &'a [u8]) -> bool {
        self.push_of(slice, None)
    }

    /// [`push`](Self::push), with the memory that contains the piece, if a waiting packet may hold that
    /// memory.
    pub(crate) fn push_of(&mut self, slice: &'a [u8], memory: Option<&'a Memory>) -> bool {
        if slice.is_empty() {
            return true;
        }
        let Some(place) = self.slices.get_mut(self.count) else { return false };
        *place = slice;
        if let Some(place) = self.memory.get_mut(self.count) {
            *place = memory;
        }
        self.count += 1;
        self.len += slice.len();
        true
    }

    /// The pieces; none is empty.
    #[must_use]
    pub fn slices(&self) -> &[&'a [u8]] {
        &self.slices[..self.count]
    }

    /// The pieces, each with the memory that may be held for it.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a Memory>)> {
        self.slices.into_iter().zip(self.memory).take(self.count)
    }

    /// Bytes in all pieces together.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> From<&'a [u8]> for Gather<'a> {
    fn from(slice: &'a [u8]) -> Self {
        let mut gather = Self::EMPTY;
        gather.push(slice);
        gather
    }
}

/// One packet, or super-packet, to put on the link now, and the receipt that comes back for it.
#[derive(Debug)]
#[must_use = "a packet that is not sent must be given back with handle_tx"]
pub struct Transmit<'a> {
    /// The packet to send.
    pub packet: TxPacket<'a>,
    /// Give it to [`Stack::handle_tx`](crate::Stack::handle_tx) when the packet's fate is known.
    pub ticket: TxTicket,
}

/// A packet for a device to put on the link: its bytes, the work left to the device, and when it may leave.
#[derive(Clone, Debug)]
pub struct TxPacket<'a> {
    /// IP and TCP headers (or a whole ICMP message).
    pub header: &'a [u8],
    /// Payload, still in the write queue.
    pub payload: Gather<'a>,
    /// The work left to the device.
    pub offload: Offload,
    /// The earliest time at which it may leave; never in the future unless [`LinkCaps::paces`].
    pub departure: Instant,
}

impl<'a> TxPacket<'a> {
    /// A complete packet in one piece, from its IP header on.
    #[must_use]
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self { header: bytes, payload: Gather::EMPTY, offload: Offload::None, departure: Instant::ZERO }
    }

    /// Bytes of the whole packet, headers included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Never true: a packet has at least a header. It exists because [`len`](Self::len) does.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.header.is_empty()
    }

    /// The packet's bytes in order: the headers, then the pieces of the payload.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> + Clone {
        core::iter::once(self.header).chain(self.payload.slices().iter().copied())
    }

    /// A copy of the packet's bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// The number of packets on the wire after the device has cut it.
    #[must_use]
    pub fn segments(&self) -> usize {
        match self.offload {
            Offload::Segment { mss, .. } => self.payload.len().div_ceil(usize::from(mss.max(1))).max(1),
            Offload::None | Offload::Checksum { .. } => 1,
        }
    }
}

/// Work left to the device, in virtio-net's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Nothing: the packet is complete.
    #[default]
    None,
    /// Complete the checksum from `start` to the end and store it at `start + offset`.
    Checksum {
        /// Length of the IP header.
        start: u16,
        /// Offset of the checksum within the transport header.
        offset: u16,
    },
    /// Cut the payload into segments of `mss` bytes, each with its own headers and checksum: of TCP, or of
    /// UDP if the checksum is at [`taut_wire::udp::CHECKSUM_OFFSET`].
    Segment {
        /// Payload bytes per segment.
        mss: u16,
        /// As in [`Offload::Checksum`].
        start: u16,
        /// As in [`Offload::Checksum`].
        offset: u16,
        /// IPv6 rather than IPv4.
        ipv6: bool,
    },
}
