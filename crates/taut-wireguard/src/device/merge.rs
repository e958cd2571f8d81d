//! Inner packets that came together and continue each other go up as one super-packet: generic receive
//! offload, by the rules of `taut_link`. Called by `rx.rs`.
//!
//! **Rule.** A segment is added if its checksum is right; so the merged packet needs no other check. A packet
//! that is not merged goes up as it came, and the stack verifies it.

use taut_core::RxChecksum;
use taut_driver::Received;
use taut_link::Gro;
use taut_wire::{IpHeader, raw, tcp};

/// A packet that may grow, at the start of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    len: usize,
    /// Of a segment whose checksum is right.
    grows: Option<(Gro, usize)>,
    /// Segments.
    count: usize,
    /// The headers of the last one.
    last: Vec<u8>,
}

/// The length of the headers of a segment of TCP with payload and the right checksum.
fn segment(packet: &[u8]) -> Option<usize> {
    let headers = raw::headers_len(packet)?;
    if headers >= packet.len() {
        return None;
    }
    let ip = IpHeader::parse(packet).ok()?;
    let is_whole = ip.header_len + ip.payload_len == packet.len();
    let (head, payload) = packet.split_at(headers);
    (is_whole && tcp::verify(ip.src, ip.dst, &head[ip.header_len..], &[payload])).then_some(headers)
}

impl Growing {
    /// Begins with the packet of so many bytes at the start of `buffer`.
    pub(crate) fn begin(&mut self, buffer: &[u8], len: usize) {
        let packet = &buffer[..len];
        let headers = segment(packet);
        self.grows = headers.map(|headers| (Gro::new(&packet[..headers], len - headers), headers));
        (self.len, self.count) = (len, 1);
    }

    /// Adds a packet, if it continues the one in `buffer`.
    pub(crate) fn add(&mut self, buffer: &mut [u8], packet: &[u8]) -> bool {
        let Some((gro, headers)) = &mut self.grows else { return false };
        let Some(at) = segment(packet).filter(|at| at == headers) else { return false };
        let payload = &packet[at..];
        if self.len + payload.len() > buffer.len()
            || !gro.add(&buffer[..*headers], &packet[..at], payload.len())
        {
            return false;
        }
        buffer[self.len..self.len + payload.len()].copy_from_slice(payload);
        self.len += payload.len();
        self.count += 1;
        self.last.clear();
        self.last.extend_from_slice(&packet[..at]);
        true
    }

    /// The packet is complete.
    pub(crate) fn end(&mut self, buffer: &mut [u8]) -> Received {
        let range = 0..self.len;
        match self.grows.take() {
            Some((gro, headers)) if self.count > 1 => {
                raw::join(&mut buffer[..headers], &self.last, gro.payload_len());
                let gso_size = u16::try_from(gro.segment_len()).unwrap_or(u16::MAX);
                Received { range, checksum: RxChecksum::Verified, gso_size }
            }
            Some(_) => Received { range, checksum: RxChecksum::Verified, gso_size: 0 },
            None => Received { range, checksum: RxChecksum::Unverified, gso_size: 0 },
        }
    }
}
