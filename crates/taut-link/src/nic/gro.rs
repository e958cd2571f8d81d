//! Generic receive offload: merges segments of a connection that arrive together into one packet. Linux
//! 2.6.29 (2009), called by a host for the packets of one interrupt.
//!
//! **Problem.** At 10 Gbit/s, 800,000 packets arrive per second, and the stack spends as much time on each as
//! on 64 KB.
//!
//! **Rule.** Among packets received together, a segment is added to the previous one if it
//! [continues](taut_wire::raw::continues) it: same connection, next sequence number, same flags and options.
//! All segments of a merged packet except the last have the same length; a shorter one, PSH or FIN ends it.
//! Nothing waits for packets that may not come. Damaged packets are not merged: the caller verifies checksums
//! first.
//!
//! Only adjacent packets are merged here, so packets keep their order across connections. Linux holds packets
//! of several connections at the same time (8 buckets of 8).
//!
//! **Numbers.** A merged packet has at most 65,535 bytes, the largest value of IPv4's length field. Linux:
//! `GRO_LEGACY_MAX_SIZE`, 65,536.
//!
//! **Side effects.** Each merged packet causes one ACK: receivers acknowledge less often, in larger steps,
//! and senders send in larger bursts. `tx-usecs` and `rx-usecs` determine how many packets can be merged.

use taut_wire::raw;

/// Most bytes of a merged packet, headers included.
const MAX_BYTES: usize = 65_535;

/// A packet that may grow: its lengths; the caller has the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Gro {
    /// Payload of each segment except the last.
    size: usize,
    /// Payload of all segments.
    len: usize,
    is_open: bool,
}

impl Gro {
    /// Begins a packet with its first segment.
    #[must_use]
    pub fn new(header: &[u8], payload_len: usize) -> Self {
        Self { size: payload_len, len: payload_len, is_open: payload_len > 0 && raw::is_open(header) }
    }

    /// Adds the segment with the headers `next` to the packet that begins with the headers `first`, if it
    /// continues it. Returns whether it does.
    pub fn add(&mut self, first: &[u8], next: &[u8], payload_len: usize) -> bool {
        let joins = self.is_open
            && (1..=self.size).contains(&payload_len)
            && first.len() + self.len + payload_len <= MAX_BYTES
            && raw::continues(first, next, self.len);
        if joins {
            self.len += payload_len;
            self.is_open = payload_len == self.size && raw::is_open(next);
        }
        joins
    }

    /// Payload of all segments so far, for [`raw::join`].
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.len
    }

    /// Payload of each segment except the last: the segment size of the merged packet.
    #[must_use]
    pub const fn segment_len(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use taut_wire::{Ecn, Flags, IpHeader, TcpHeader, protocol};

    use super::*;

    /// Headers of a super-packet with `payload_len` bytes.
    fn header(payload_len: usize, flags: Flags) -> Vec<u8> {
        let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let tcp = TcpHeader { src_port: 9, dst_port: 80, seq: u32::MAX, flags, ..TcpHeader::default() };
        let (ecn, header_len, payload_len) = (Ecn::Ect0, 20, 20 + payload_len);
        let ip = IpHeader { src, dst, protocol: protocol::TCP, hop_limit: 64, ecn, header_len, payload_len };
        let mut header = vec![0; 40];
        ip.emit(&mut header, 0);
        tcp.emit(&mut header[20..]);
        header
    }

    /// The segments of a super-packet, as headers and payload lengths.
    fn cut(payload_len: usize, mss: usize, flags: Flags) -> Vec<(Vec<u8>, usize)> {
        let segment = |index| {
            let mut header = header(payload_len, flags);
            let range = raw::cut(&mut header, payload_len, mss, index);
            (header, range.len())
        };
        (0..raw::segs(payload_len, mss)).map(segment).collect()
    }

    /// Payload bytes of each packet that goes up to the stack.
    fn up(segments: &[(Vec<u8>, usize)]) -> Vec<usize> {
        let mut packets: Vec<(&[u8], Gro)> = Vec::new();
        for (header, len) in segments {
            if !packets.last_mut().is_some_and(|(first, gro)| gro.add(first, header, *len)) {
                packets.push((header, Gro::new(header, *len)));
            }
        }
        packets.iter().map(|(_, gro)| gro.payload_len()).collect()
    }

    #[test]
    fn what_follows_is_merged_until_something_ends_it() {
        let ack = Flags::ACK;
        assert_eq!(up(&cut(5_000, 1_448, ack)), [5_000]);
        // Nothing is added after a short segment, a PSH or a FIN, even if the sequence numbers continue.
        let mut two = cut(3_000, 1_448, ack);
        two.push((header(1_448, ack), 1_448));
        two[3].0[24..28].copy_from_slice(&2_999_u32.to_be_bytes());
        assert_eq!(up(&two), [3_000, 1_448]);
        for end in [Flags::PSH, Flags::FIN] {
            let mut segments = cut(4_344, 1_448, ack);
            segments[1].0[33] |= end.bits() as u8;
            assert_eq!(up(&segments), [2_896, 1_448], "{end}");
        }
        // Conversely, a longer segment is not added to a shorter one.
        let mut longer = cut(3_000, 1_000, ack);
        longer[2].1 = 1_001;
        assert_eq!(up(&longer), [2_000, 1_001]);
    }

    #[test]
    fn what_does_not_follow_begins_another() {
        let segments = cut(7_240, 1_448, Flags::ACK);
        let order = |order: &[usize]| up(&order.iter().map(|&i| segments[i].clone()).collect::<Vec<_>>());
        assert_eq!(order(&[0, 1, 3, 2, 4]), [2_896, 1_448, 1_448, 1_448]);
        assert_eq!(order(&[0, 0, 1]), [1_448, 2_896], "one was duplicated");
        let mut marked = segments.clone();
        raw::set_ce(&mut marked[2].0);
        assert_eq!(up(&marked), [2_896, 1_448, 2_896], "no mark is lost or spread");
    }

    #[test]
    fn acks_and_the_ends_of_connections_go_alone() {
        assert_eq!(up(&[(header(0, Flags::ACK), 0), (header(0, Flags::ACK), 0)]), [0, 0]);
        for flags in [Flags::SYN, Flags::RST | Flags::ACK, Flags::URG | Flags::ACK] {
            assert_eq!(up(&cut(2_000, 1_000, flags)), [1_000, 1_000], "{flags}");
        }
    }

    #[test]
    fn no_more_than_the_length_field_can_say() {
        // 45 times 1448 bytes plus the headers are 65,200 bytes.
        assert_eq!(up(&cut(46 * 1_448, 1_448, Flags::ACK)), [45 * 1_448, 1_448]);
        assert_eq!(up(&cut(65_495, 13_099, Flags::ACK)), [65_495]);
        assert_eq!(up(&cut(65_500, 13_100, Flags::ACK)), [52_400, 13_100]);
    }

    #[test]
    fn the_merged_packet_says_what_it_is() {
        let flags = Flags::ACK | Flags::PSH | Flags::FIN;
        let segments = cut(3_500, 1_000, flags);
        let (mut first, mut gro) = (segments[0].0.clone(), Gro::new(&segments[0].0, 1_000));
        for (next, len) in &segments[1..] {
            assert!(gro.add(&segments[0].0, next, *len));
            first.clone_from(&segments[0].0);
            raw::join(&mut first, next, gro.payload_len());
        }
        assert_eq!(first, header(3_500, flags));
        assert_eq!(gro.segment_len(), 1_000);
    }
}
