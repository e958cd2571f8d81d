//! Captures in pcapng (draft-ietf-opsawg-pcapng), for tshark and similar programs: headers of packets at the
//! senders' NICs with times in nanoseconds, and the state of the stack as a comment on each packet that
//! brought an ACK. Called by the collector.
//!
//! A file is a sequence of blocks: a section header, a block for the interface of each sending host, and a
//! block for each packet. A block begins and ends with its length; all values are little-endian and padded to
//! four bytes.

use taut_core::{ConnInfo, Instant};
use taut_sim::BEGIN;
use taut_wire::raw;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// IP packets without a link-layer header.
const LINKTYPE_RAW: u16 = 101;
/// Options, by their numbers in the draft.
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;

/// Largest size of a file, in bytes.
const BYTES_MAX: usize = 6 << 20;

/// A packet that may still receive a comment.
#[derive(Debug)]
struct Pending {
    at: Instant,
    interface: u32,
    header: Vec<u8>,
    payload_len: u32,
    comment: Option<String>,
}

/// A capture file being built.
#[derive(Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    /// Interfaces are numbered like hosts. A sent packet may have a time in the future, so packets wait here
    /// and are written in order of time.
    pending: Vec<Pending>,
    left_out: u64,
}

/// Packets that may wait for earlier ones.
const PENDING_MAX: usize = 8_192;

impl Capture {
    /// Makes a capture with an interface for each host.
    pub(crate) fn new(hosts: &[String]) -> Self {
        let mut bytes = Vec::new();
        // Byte order, version 1.0, length unknown.
        let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        block(&mut bytes, SECTION_HEADER, &body);
        for name in hosts {
            let mut body = LINKTYPE_RAW.to_le_bytes().to_vec();
            body.extend([0; 2]);
            // No limit: truncated packets show in their lengths.
            body.extend([0; 4]);
            option(&mut body, IF_NAME, name.as_bytes());
            // 10⁻⁹ s.
            option(&mut body, IF_TSRESOL, &[9]);
            body.extend([0; 4]);
            block(&mut bytes, INTERFACE, &body);
        }
        Self { bytes, pending: Vec::new(), left_out: 0 }
    }

    /// A packet at a host's NIC.
    pub(crate) fn packet(&mut self, at: Instant, host: usize, header: &[u8], payload_len: u32) {
        if self.bytes.len() >= BYTES_MAX {
            self.left_out += 1;
            return;
        }
        let pending =
            Pending { at, interface: host as u32, header: header.to_vec(), payload_len, comment: None };
        self.pending.push(pending);
        if self.pending.len() >= PENDING_MAX {
            self.write(PENDING_MAX / 2);
        }
    }

    /// Adds the state of a connection to the packet that just arrived.
    pub(crate) fn comment(&mut self, now: Instant, host: usize, info: &ConnInfo) {
        let last = self.pending.iter_mut().rev().take(256).find(|packet| {
            let ports = raw::ports(&packet.header);
            packet.at <= now
                && packet.interface == host as u32
                && ports == Some((info.peer.port(), info.local.port()))
        });
        if let Some(packet) = last {
            let none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
            let ssthresh = (info.snd_ssthresh < 0x7fff_ffff).then(|| info.snd_ssthresh.to_string());
            packet.comment = Some(format!(
                "cwnd={} ssthresh={} srtt_us={} in_flight={} unsent={} below_tcp={} pacing={} state={} blocked={}",
                info.snd_cwnd,
                none(ssthresh),
                none(info.rtt.map(|rtt| rtt.as_micros().to_string())),
                info.unacked,
                info.notsent_bytes,
                info.wmem_alloc,
                none((info.pacing_rate != u64::MAX).then(|| info.pacing_rate.to_string())),
                info.ca_state,
                info.blocked.name(),
            ));
        }
    }

    /// Writes the `count` earliest packets that wait.
    fn write(&mut self, count: usize) {
        // A stable sort: packets with equal times keep their order.
        self.pending.sort_by_key(|packet| packet.at);
        for packet in self.pending.drain(..count.min(self.pending.len())) {
            let ns = packet.at.since(BEGIN).as_nanos();
            let captured = packet.header.len() as u32;
            let mut body = packet.interface.to_le_bytes().to_vec();
            body.extend(((ns >> 32) as u32).to_le_bytes());
            body.extend((ns as u32).to_le_bytes());
            body.extend(captured.to_le_bytes());
            body.extend((captured + packet.payload_len).to_le_bytes());
            body.extend(&packet.header);
            pad(&mut body);
            if let Some(comment) = packet.comment {
                option(&mut body, OPT_COMMENT, comment.as_bytes());
                body.extend([0; 4]);
            }
            block(&mut self.bytes, ENHANCED_PACKET, &body);
        }
    }

    /// Returns the file, and the number of packets that did not fit.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64) {
        self.write(usize::MAX);
        (self.bytes, self.left_out)
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (body.len() as u32 + 12).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(len);
    out.extend(body);
    out.extend(len);
}
