//! What a NIC does to packets of TCP on a way between routers: a super-packet is cut into segments before it enters a
//! queue (TSO), and segments that arrive together become one again (GRO). So queues, losses and marks are those of
//! packets, and the kernel is entered once for many. Called by `emulator.rs`.
//!
//! Checksums of TCP stay to be made, as the sender left them: nobody verifies a packet that never was on a wire.

use taut_core::Offload;

/// Most bytes of a merged packet.
const MAX_BYTES: usize = 65_000;
/// Where the checksum is in a TCP header, for offload.
const CHECKSUM_AT: u16 = 16;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// A packet on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// IP and TCP headers.
    pub(super) header_len: usize,
    pub(super) offload: Offload,
}

impl Frame {
    fn payload(&self) -> usize {
        self.bytes.len() - self.header_len
    }

    fn is_ipv4(&self) -> bool {
        self.bytes[0] >> 4 == 4
    }

    fn seq(&self, tcp: usize) -> u32 {
        self.bytes
            .get(tcp + 4..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// Its length into the IP header, and the header's checksum.
    fn set_len(&mut self) {
        let len = self.bytes.len();
        if self.is_ipv4() {
            self.bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            set_ipv4_checksum(&mut self.bytes);
        } else {
            self.bytes[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        }
    }

    /// The segments of a super-packet; itself if it is none.
    pub(super) fn split(self) -> Vec<Self> {
        let Offload::Segment { mss, start, .. } = self.offload else { return vec![self] };
        let (header, payload) = self.bytes.split_at(self.header_len);
        let tcp = usize::from(start);
        if header.len() < tcp + 20 || mss == 0 || payload.is_empty() {
            return vec![self];
        }
        let count = payload.len().div_ceil(mss.into());
        let seq = self.seq(tcp);
        let id = u16::from_be_bytes([header[4], header[5]]);
        let segment = |(index, part): (usize, &[u8])| {
            let bytes = [header, part].concat();
            let offload = Offload::Checksum { start, offset: CHECKSUM_AT };
            let mut frame = Self { bytes, header_len: self.header_len, offload };
            if frame.is_ipv4() {
                frame.bytes[4..6].copy_from_slice(&id.wrapping_add(index as u16).to_be_bytes());
            }
            let seq = seq.wrapping_add((index * usize::from(mss)) as u32);
            frame.bytes[tcp + 4..tcp + 8].copy_from_slice(&seq.to_be_bytes());
            // RFC 3168 §6.1.2: CWR is said once. The end is that of the last.
            if index > 0 {
                frame.bytes[tcp + 13] &= !CWR;
            }
            if index + 1 < count {
                frame.bytes[tcp + 13] &= !(FIN | PSH);
            }
            frame.set_len();
            frame
        };
        payload.chunks(mss.into()).enumerate().map(segment).collect()
    }

    /// Adds the packet that follows, if it continues this one. Says whether it does.
    pub(super) fn merge(&mut self, next: &Self) -> bool {
        let (mss, start, count) = match self.offload {
            Offload::Checksum { start, .. } => (self.payload(), start, 1),
            Offload::Segment { mss, start, .. } => (mss.into(), start, self.payload() / usize::from(mss)),
            Offload::None => return false,
        };
        let tcp = usize::from(start);
        let fits = next.payload() > 0
            && next.payload() <= mss
            && self.payload() == count * mss
            && self.bytes.len() + next.payload() <= MAX_BYTES;
        let follows = matches!(next.offload, Offload::Checksum { start: other, .. } if other == start)
            && self.header_len == next.header_len
            && self.header_len >= tcp + 20
            && next.seq(tcp) == self.seq(tcp).wrapping_add(self.payload() as u32);
        if !fits || !follows || !self.has_header_of(next, tcp) {
            return false;
        }
        self.bytes[tcp + 13] |= next.bytes[tcp + 13] & PSH;
        self.bytes.extend_from_slice(&next.bytes[next.header_len..]);
        let ipv6 = !self.is_ipv4();
        self.offload = Offload::Segment { mss: mss as u16, start, offset: CHECKSUM_AT, ipv6 };
        true
    }

    /// Its length is told once, when nothing more is added.
    pub(super) fn finish(&mut self) {
        if matches!(self.offload, Offload::Segment { .. }) {
            self.set_len();
        }
    }

    /// Whether headers are equal, but for lengths, identification, checksums, sequence numbers and a PSH at the end.
    fn has_header_of(&self, next: &Self, tcp: usize) -> bool {
        let (a, b) = (&self.bytes[..self.header_len], &next.bytes[..next.header_len]);
        let ip = if self.is_ipv4() {
            a[..2] == b[..2] && a[6..10] == b[6..10] && a[12..tcp] == b[12..tcp]
        } else {
            a[..4] == b[..4] && a[6..tcp] == b[6..tcp]
        };
        let (a, b) = (&a[tcp..], &b[tcp..]);
        // Only ACK, and ECE, which stays: what says more goes alone.
        let flags = a[13] & !PSH == b[13] & !PSH && a[13] & !(0x10 | 0x40) == 0;
        ip && flags
            && a[..4] == b[..4]
            && a[8..13] == b[8..13]
            && a[14..16] == b[14..16]
            && a[18..] == b[18..]
    }
}

/// RFC 791 §3.1: the checksum of the header in front.
pub(super) fn set_ipv4_checksum(bytes: &mut [u8]) {
    let len = usize::from(bytes[0] & 15) * 4;
    let Some(header) = bytes.get_mut(..len).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u16 = 20;

    /// 3,500 bytes in segments of 1,000, with PSH.
    fn super_packet() -> Frame {
        let mut bytes = vec![0; 40];
        bytes[0] = 0x45;
        bytes[1] = 2;
        bytes[8..10].copy_from_slice(&[64, 6]);
        bytes[12..20].copy_from_slice(&[10, 9, 0, 2, 10, 9, 0, 1]);
        bytes[20..24].copy_from_slice(&[0x9c, 0x40, 0x13, 0x89]);
        bytes[24..28].copy_from_slice(&(u32::MAX - 999).to_be_bytes());
        bytes[32..36].copy_from_slice(&[0x50, 0x18, 1, 0]);
        bytes.extend((0..3_500).map(|index| (index / 14) as u8));
        let offload = Offload::Segment { mss: 1_000, start: START, offset: CHECKSUM_AT, ipv6: false };
        let mut frame = Frame { bytes, header_len: 40, offload };
        frame.set_len();
        frame
    }

    #[test]
    fn what_is_split_and_merged_is_what_it_was() {
        let whole = super_packet();
        let parts = whole.clone().split();
        let seqs: Vec<u32> = parts.iter().map(|part| part.seq(20)).collect();
        assert_eq!(seqs, [u32::MAX - 999, 0, 1_000, 2_000], "around zero");
        let lens: Vec<usize> = parts.iter().map(Frame::payload).collect();
        assert_eq!(lens, [1_000, 1_000, 1_000, 500]);
        let pushes: Vec<bool> = parts.iter().map(|part| part.bytes[33] & PSH != 0).collect();
        assert_eq!(pushes, [false, false, false, true]);
        assert!(parts.iter().all(|part| part.offload == Offload::Checksum { start: START, offset: 16 }));
        let mut merged = parts[0].clone();
        assert!(parts[1..].iter().all(|part| merged.merge(part)));
        merged.finish();
        assert_eq!(merged, whole);
        assert!(!merged.merge(&parts[1]), "nothing follows a short one");
    }

    #[test]
    fn what_does_not_continue_is_not_merged() {
        let parts = super_packet().split();
        assert!(!parts[0].clone().merge(&parts[2]), "one is missing");
        let mut marked = parts[1].clone();
        marked.bytes[1] |= 3;
        assert!(!parts[0].clone().merge(&marked), "one is marked");
        let mut end = parts[1].clone();
        end.bytes[33] |= FIN;
        assert!(!parts[0].clone().merge(&end), "one ends the stream");
    }
}
