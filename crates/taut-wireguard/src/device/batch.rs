//! Datagrams that one call sends: of one destination and mark, and of one length except for the last, which
//! may be shorter (udp(7), `UDP_SEGMENT`). taut's own; called by `tx.rs`.
//!
//! A batch ends with a packet that does not fit, and with the driver's batch
//! ([`flush`](taut_driver::TxDevice::flush)). Its memory is used again.

use std::net::SocketAddr;

use taut_core::TxTicket;
use taut_wire::Ecn;

use crate::peer::SMALL;

/// Most bytes of a call: the payload of the longest IP packet, of either version.
pub(crate) const BYTES_MAX: usize = 65_535 - 40 - 8;

/// Datagrams for one call.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    len: usize,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: Ecn,
    /// Bytes of each datagram but the last.
    pub(crate) size: usize,
    count: usize,
    /// A shorter one ended it.
    is_closed: bool,
    /// Tickets of packets whose last datagram is in it.
    pub(crate) tickets: Vec<TxTicket>,
}

impl Batch {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let bytes = vec![0; BYTES_MAX + SMALL];
        Self { bytes, len: 0, to, ecn: Ecn::NotEct, size: 0, count: 0, is_closed: false, tickets: Vec::new() }
    }

    /// Begins another one with the same memory.
    pub(crate) fn begin(&mut self, to: SocketAddr, ecn: Ecn) {
        (self.len, self.size, self.count, self.is_closed) = (0, 0, 0, false);
        (self.to, self.ecn) = (to, ecn);
        self.tickets.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a datagram of so many bytes may be added, of `most` in all.
    pub(crate) fn takes(&self, to: SocketAddr, ecn: Ecn, bytes: usize, most: usize) -> bool {
        self.is_empty()
            || (!self.is_closed
                && self.to == to
                && self.ecn == ecn
                && self.count < most
                && bytes <= self.size
                && self.len + bytes <= BYTES_MAX)
    }

    /// Where the next datagram is written.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.len..]
    }

    /// It was written, with so many bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        if self.is_empty() {
            self.size = bytes;
        }
        self.is_closed = bytes < self.size;
        self.len += bytes;
        self.count += 1;
    }

    pub(crate) fn datagrams(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wg_13_a_batch_has_one_length_and_a_shorter_end() {
        let (to, other) = (SocketAddr::from(([192, 0, 2, 1], 9)), SocketAddr::from(([192, 0, 2, 1], 10)));
        let mut batch = Batch::new(to);
        batch.begin(to, Ecn::Ect0);
        assert!(batch.takes(other, Ecn::Ce, 1_452, 1), "an empty one takes any");
        batch.add(1_452);
        assert!(batch.takes(to, Ecn::Ect0, 1_452, 64));
        for (to, ecn, bytes, most) in [
            (other, Ecn::Ect0, 1_452, 64),
            (to, Ecn::Ce, 1_452, 64),
            (to, Ecn::Ect0, 1_453, 64),
            (to, Ecn::Ect0, 9, 1),
        ] {
            assert!(!batch.takes(to, ecn, bytes, most), "{to} {ecn:?} {bytes} {most}");
        }
        batch.add(100);
        assert!(!batch.takes(to, Ecn::Ect0, 100, 64), "the shorter one is the last");
        assert_eq!((batch.datagrams().len(), batch.size), (1_552, 1_452));
        // 45 of 1,452 bytes are 65,340: as many as a datagram of IPv6 has room for.
        batch.begin(to, Ecn::Ect0);
        while batch.takes(to, Ecn::Ect0, 1_452, 64) {
            batch.add(1_452);
        }
        assert_eq!(batch.datagrams().len(), 65_340);
    }
}
