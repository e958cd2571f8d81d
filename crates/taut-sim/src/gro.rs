//! Generic receive offload: segments of a batch that follow each other go up as one packet. What Linux's
//! `tcp_gro_receive` joins: the same connection, flags, ACK, window and options, the next sequence number, all but the
//! last of one length; PSH ends a packet. Called by the host for each batch.

use taut_core::{Frame, GATHER_MAX, Gather, RxChecksum, RxPacket};

use crate::packet::{PacketId, Pool, set_ip_len};

/// Most bytes of a merged packet, headers included.
const MERGED_MAX: u32 = 65_535;

/// How many packets at the front of `batch` go up as one.
pub(crate) fn run(pool: &Pool, batch: &[PacketId]) -> usize {
    let Some(first) = batch.first() else { return 0 };
    let head = pool.get(first);
    let len = pool.payload_len(first);
    if len == 0 || head.verify || !may_merge(head.header()) {
        return 1;
    }
    let header = head.header();
    let tcp_at = head.tcp_at();
    let mut bytes = len;
    let mut pieces = 1;
    let mut count = 1;
    while let (Some(last), Some(next)) = (batch.get(count - 1), batch.get(count)) {
        let more = pool.payload_len(next);
        let packet = pool.get(next);
        pieces += usize::from(!pool.continues(last, next));
        let joins = !ends(pool.get(last).header(), tcp_at)
            && !packet.verify
            && more > 0
            && more <= len
            && pool.payload_len(last) == len
            && follows(header, packet.header(), tcp_at, bytes)
            && pieces < GATHER_MAX
            && bytes + more + u32::from(header.len() as u16) <= MERGED_MAX;
        if !joins {
            break;
        }
        bytes += more;
        count += 1;
    }
    count
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;

fn may_merge(header: &[u8]) -> bool {
    let tcp_at = if header.first().is_some_and(|first| first >> 4 == 4) { 20 } else { 40 };
    header.get(tcp_at + 13).is_some_and(|flags| flags & (FIN | SYN | RST | URG) == 0)
}

fn ends(header: &[u8], tcp_at: usize) -> bool {
    header.get(tcp_at + 13).is_none_or(|flags| flags & (PSH | FIN) != 0)
}

/// Whether `next` is `first`'s continuation after `bytes`.
fn follows(first: &[u8], next: &[u8], tcp_at: usize, bytes: u32) -> bool {
    if first.len() != next.len() || first.len() < tcp_at + 20 {
        return false;
    }
    let (a, b) = (&first[tcp_at..], &next[tcp_at..]);
    let seq = |tcp: &[u8]| u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let addresses = if tcp_at == 20 { 12..20 } else { 8..40 };
    seq(b) == seq(a).wrapping_add(bytes)
        // TOS or traffic class: an ECN mark is not to be lost.
        && first[..2] == next[..2]
        && first[addresses.clone()] == next[addresses]
        && a[..4] == b[..4]
        && a[8..13] == b[8..13]
        && (a[13] | PSH | FIN) == (b[13] | PSH | FIN)
        && a[14..16] == b[14..16]
        && a[20..] == b[20..]
}

/// Calls `f` with the packet that `ids`, a run, make. `scratch` is for its header.
pub(crate) fn with_packet<R>(
    pool: &Pool,
    ids: &[PacketId],
    scratch: &mut Vec<u8>,
    f: impl FnOnce(RxPacket<'_>) -> R,
) -> Option<R> {
    let (first, last) = (ids.first()?, ids.last()?);
    let packet = pool.get(first);
    let checksum = if packet.verify { RxChecksum::Unverified } else { RxChecksum::Verified };
    let header = packet.header();
    if header.is_empty() {
        let frame = Frame::Slice(pool.payload(first));
        return Some(f(RxPacket { frame, checksum: RxChecksum::Unverified, gso_size: 0 }));
    }
    let mut payload = Gather::EMPTY;
    pool.gather(ids, &mut payload);
    if ids.len() == 1 {
        return Some(f(RxPacket { frame: Frame::Gather { header, payload }, checksum, gso_size: 0 }));
    }
    let gso_size = pool.payload_len(first) as u16;
    scratch.clear();
    scratch.extend_from_slice(header);
    set_ip_len(scratch, pool.payload_len(first), payload.len() as u32);
    let flags_at = packet.tcp_at() + 13;
    let flags = pool.get(last).header().get(flags_at).copied().unwrap_or(0);
    if let Some(byte) = scratch.get_mut(flags_at) {
        *byte |= flags & (PSH | FIN);
    }
    Some(f(RxPacket { frame: Frame::Gather { header: scratch, payload }, checksum, gso_size }))
}
