//! A payload that the device has put at its reader's memory: one copy less. taut's own. Called by the driver
//! for a thread or task that reads.
//!
//! **Rule.** Only the next bytes of a connection whose reader has read everything, with nothing else in the
//! header, are taken so. Any other packet is left to [`Stack::handle_packet`], which must get it whole. The
//! connection goes through the same steps in both cases: an arrival, and a read of all of it.

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{IpHeader, TcpHeader, protocol};

use super::Stack;
use super::tables::demux::Owner;
use crate::conn::{Arrival, Consequence};
use crate::ingress::Payload;
use crate::words::{ConnId, Endpoint, Instant, Tuple};

impl Stack {
    /// The length of the headers of this connection's next segment, if its payload may lie
    /// [elsewhere](Self::handle_placed).
    #[must_use]
    pub fn placed_headers(&self, id: ConnId) -> Option<usize> {
        let conn = self.tables.conns.get(id)?;
        (conn.takes_placed() && !self.pool.budget.is_pressed()).then(|| conn.headers_len() as usize)
    }

    /// Takes in a packet of connection `id`, in two pieces, whose checksum needs no verification. `payload`
    /// lies at the reader's memory. Returns how many bytes of it the reader has, or `None` if the packet is
    /// not taken so: then nothing has happened.
    pub fn handle_placed(
        &mut self,
        now: Instant,
        id: ConnId,
        headers: &[u8],
        payload: &[u8],
        gso_size: u16,
    ) -> Option<usize> {
        let ip = IpHeader::parse_prefix(headers, headers.len() + payload.len()).ok()?;
        let (header, header_len) = TcpHeader::parse(headers.get(ip.header_len..)?).ok()?;
        let is_plain = ip.protocol == protocol::TCP
            && !header.flags.intersects(TcpFlags::SYN | TcpFlags::RST | TcpFlags::FIN | TcpFlags::URG)
            && ip.payload_len == header_len + payload.len();
        if !is_plain || !self.is_for_us(ip.src, ip.dst) || self.placed_headers(id).is_none() {
            return None;
        }
        let tuple = Tuple {
            local: Endpoint::new(ip.dst, header.dst_port),
            peer: Endpoint::new(ip.src, header.src_port),
        };
        let conn = self.tables.conns.get(id)?;
        if conn.tuple != tuple || !conn.is_next(&header, payload.len()) {
            return None;
        }
        let Some(Owner::Conn(slot)) = self.owner(&tuple) else { return None };
        let payload = Payload::placed(payload);
        let segs = payload.segments(gso_size) as u64;
        self.counters.in_receives += 1;
        self.counters.placed += 1;
        self.counters.in_segs += segs;
        self.count_marks(ip.ecn, segs);
        let arrival = Arrival { header: &header, payload, gso_size, mark: ip.ecn };
        let len = arrival.len();
        let (consequence, read) = self.with(now, slot, |conn, cx| conn.on_placed(cx, arrival))?;
        if consequence == Consequence::Reset {
            self.reset(&tuple, &header, len);
        }
        Some(read)
    }
}
