//! Captures of runs in virtual time ([`pcapng`]): headers of packets at the senders' NICs, and the state of
//! the stack as a comment on each packet that brought an ACK. Called by the collector.

use taut_core::{ConnInfo, Instant};
use taut_sim::BEGIN;
use taut_wire::raw;

use crate::recorded::pcapng;

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
        pcapng::begin(&mut bytes);
        hosts.iter().for_each(|host| pcapng::interface(&mut bytes, pcapng::LINKTYPE_RAW, host));
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
            let comment = packet.comment.as_deref();
            pcapng::packet(
                &mut self.bytes,
                packet.interface,
                ns,
                std::iter::once(&*packet.header),
                packet.payload_len,
                comment,
            );
        }
    }

    /// Returns the file, and the number of packets that did not fit.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64) {
        self.write(usize::MAX);
        (self.bytes, self.left_out)
    }
}
