//! Of each connection, the numbers that move: for programs that look often, such as `taut dash` and `taut
//! top`.
//!
//! A [`ConnSnapshot`](crate::snapshot::ConnSnapshot) and a
//! [`ConnReportSnapshot`](crate::snapshot::ConnReportSnapshot) together have these numbers, and five times
//! as many bytes, most of which stay as they are. Rates and "since the last look" are the reader's to
//! compute: a stack keeps nothing for those who watch it. Copied under the stack's lock by `session.rs`,
//! and made text without it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use taut_core::{ConnId, ConnInfo, Instant, Report, Stack};

use crate::snapshot::{Share, state_name};

/// From this value on, a slow-start threshold means that there is none yet: Linux's `TCP_INFINITE_SSTHRESH`.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// The moving numbers of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnSample {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// As `ss` prints it: `ESTAB` …
    pub state: String,
    /// Congestion control in use.
    pub congestion: String,
    /// The state of loss recovery: `open`, `disorder`, `cwr`, `recovery` or `loss`.
    pub ca_state: String,
    /// Which gate was shut when the connection was last asked for a packet.
    pub blocked: String,
    /// For how long each gate was shut since the first write; those that never were are left out.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// Payload bytes written and not sent.
    pub unsent: u64,
    /// How long the oldest of them has waited, at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsent_ns: Option<u64>,
    /// Payload bytes below TCP: in the queue discipline or in the device.
    pub device: u64,
    /// How long the oldest of them has been there, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ns: Option<u64>,
    /// Payload bytes that have left the host, and are not acknowledged.
    pub in_flight: u64,
    /// How long ago the oldest of them left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight_ns: Option<u64>,
    /// Payload bytes received that the application has not read.
    pub unread: u64,
    /// Bytes below TCP, overhead included.
    pub below: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow-start threshold in segments; none until one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh: Option<u32>,
    /// Segment size for sending, in payload bytes.
    pub mss: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Smoothed round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// The lowest recent round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt_ns: Option<u64>,
    /// Pacing rate in bytes per second; `None` if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing_rate: Option<u64>,
    /// Delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// Payload bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments retransmitted since the beginning.
    pub total_retrans: u64,
}

/// A connection as it is copied under the lock.
pub(crate) struct Copied {
    info: ConnInfo,
    report: Report,
}

/// Copies a connection.
pub(crate) fn copy(stack: &Stack, id: ConnId, now: Instant) -> Option<Copied> {
    let conn = stack.conn(id)?;
    Some(Copied { info: conn.info(now), report: conn.report(now) })
}

impl From<&Copied> for ConnSample {
    fn from(Copied { info, report }: &Copied) -> Self {
        let shares = report.shares.iter().filter(|(_, time)| time.as_nanos() > 0);
        let shares =
            shares.map(|&(gate, time)| Share { reason: gate.name().to_owned(), time_ns: time.as_nanos() });
        let [unsent, device, in_flight] = &report.queues;
        let oldest = |queue: &taut_core::QueueReport| queue.oldest.map(taut_core::Duration::as_nanos);
        Self {
            local: info.local,
            peer: info.peer,
            state: state_name(info.state).to_owned(),
            congestion: info.congestion.to_string(),
            ca_state: info.ca_state.to_owned(),
            blocked: info.blocked.name().to_owned(),
            shares: shares.collect(),
            unsent: unsent.bytes,
            unsent_ns: oldest(unsent),
            device: device.bytes,
            device_ns: oldest(device),
            in_flight: in_flight.bytes,
            in_flight_ns: oldest(in_flight),
            unread: info.rcv_queue_bytes,
            below: info.wmem_alloc,
            cwnd: info.snd_cwnd,
            ssthresh: (info.snd_ssthresh < NO_SSTHRESH).then_some(info.snd_ssthresh),
            mss: info.snd_mss,
            snd_wnd: info.snd_wnd,
            rtt_ns: info.rtt.map(taut_core::Duration::as_nanos),
            min_rtt_ns: info.min_rtt.map(taut_core::Duration::as_nanos),
            pacing_rate: (info.pacing_rate != u64::MAX).then_some(info.pacing_rate),
            delivery_rate: info.delivery_rate,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            total_retrans: info.total_retrans,
        }
    }
}
