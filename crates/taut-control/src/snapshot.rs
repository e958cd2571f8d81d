//! The core's values in a form that can be written down: the only file that knows both.
//!
//! Everything is copied under the stack's lock and written without it. Called by `session.rs`; read by whoever has a
//! [`Client`](crate::Client).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use taut_core::{ConnId, ConnInfo, Duration, Instant, Stack, State};

use crate::protocol::Setting;

/// A connection, in `TCP_INFO`'s terms. What is `None` is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnSnapshot {
    /// State of RFC 9293 in `ss`'s words: `ESTAB`, `SYN-SENT` …
    pub state: String,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Congestion control in use.
    pub congestion: String,
    /// What congestion control is doing: `open`, `disorder`, `cwr`, `recovery`, `loss`.
    pub ca_state: Option<String>,
    /// Why nothing was sent when last something could have been.
    pub blocked: Option<String>,
    /// RFC 7323 timestamps are in use.
    pub timestamps: Option<bool>,
    /// RFC 2018 is in use.
    pub sack: Option<bool>,
    /// RFC 3168 is in use.
    pub ecn: Option<bool>,
    /// Shift of the peer's window.
    pub snd_wscale: Option<u8>,
    /// Shift of our window.
    pub rcv_wscale: Option<u8>,
    /// Retransmission timeout.
    pub rto_ns: u64,
    /// Consecutive timeouts.
    pub backoff: u8,
    /// Smoothed round-trip time.
    pub rtt_ns: Option<u64>,
    /// RFC 6298's variance term.
    pub rttvar_ns: u64,
    /// Lowest round-trip time lately.
    pub min_rtt_ns: Option<u64>,
    /// Round-trip time as the receiver sees it.
    pub rcv_rtt_ns: Option<u64>,
    /// How long an ACK is delayed.
    pub ato_ns: Option<u64>,
    /// Segment size for sending, in payload bytes.
    pub snd_mss: u32,
    /// Path MTU.
    pub pmtu: Option<u32>,
    /// Segment size seen on receiving.
    pub rcv_mss: u32,
    /// Segment size told to the peer.
    pub advmss: Option<u32>,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Slow-start threshold in segments.
    pub snd_ssthresh: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Our window in bytes, as last offered.
    pub rcv_wnd: u32,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Payload bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: Option<u64>,
    /// Segments received.
    pub segs_in: Option<u64>,
    /// Segments sent that carried data.
    pub data_segs_out: u64,
    /// Segments received that carried data.
    pub data_segs_in: u64,
    /// Since data was last sent.
    pub last_snd_ns: Option<u64>,
    /// Since data was last received.
    pub last_rcv_ns: Option<u64>,
    /// Since an ACK was last received.
    pub last_ack_ns: Option<u64>,
    /// Pacing rate in bytes per second; `None` is no limit.
    pub pacing_rate: Option<u64>,
    /// Most that the pacing rate may be, in bytes per second; `None` is no limit.
    pub max_pacing_rate: Option<u64>,
    /// Delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// Whether the last delivery-rate sample was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// Segments delivered.
    pub delivered: Option<u64>,
    /// Time in which something was to be sent.
    pub busy_ns: Option<u64>,
    /// Part of it in which the peer's window was shut.
    pub rwnd_limited_ns: Option<u64>,
    /// Part of it in which the send buffer was too small.
    pub sndbuf_limited_ns: Option<u64>,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments retransmitted and not acknowledged.
    pub retrans: u32,
    /// Segments sent again, since the beginning.
    pub total_retrans: u64,
    /// Segments thought lost.
    pub lost: u32,
    /// Segments selectively acknowledged.
    pub sacked: u32,
    /// Segments that the peer says it had already.
    pub dsack_dups: Option<u32>,
    /// How far packets were seen to overtake each other, in segments.
    pub reordering: Option<u32>,
    /// What the receive buffer is tuned by, in bytes.
    pub rcv_space: Option<u32>,
    /// Bytes written and not sent.
    pub notsent_bytes: u64,
    /// Unsent bytes at which it stops being writable; `None` is no mark.
    pub notsent_lowat: Option<u32>,
    /// Bytes received and not read.
    pub rcv_queue_bytes: u64,
    /// Bytes below TCP, overhead included.
    pub wmem_alloc: u32,
    /// Bytes in the write queue and in flight, overhead included.
    pub wmem_queued: u32,
    /// Send buffer limit.
    pub sndbuf: u32,
    /// Receive buffer limit.
    pub rcvbuf: u32,
}

fn ns(span: Duration) -> u64 {
    span.as_nanos()
}

/// `u64::MAX` is how the core says "no limit".
fn limit(rate: u64) -> Option<u64> {
    (rate != u64::MAX).then_some(rate)
}

/// A state as `ss` prints it.
const fn state_name(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
        State::Closed => "UNCONN",
    }
}

impl From<&ConnInfo> for ConnSnapshot {
    fn from(info: &ConnInfo) -> Self {
        Self {
            state: state_name(info.state).to_owned(),
            local: info.local,
            peer: info.peer,
            congestion: info.congestion.name().to_owned(),
            ca_state: None,
            blocked: None,
            timestamps: None,
            sack: None,
            ecn: None,
            snd_wscale: None,
            rcv_wscale: None,
            rto_ns: ns(info.rto),
            backoff: info.backoff,
            rtt_ns: info.rtt.map(ns),
            rttvar_ns: ns(info.rttvar),
            min_rtt_ns: info.min_rtt.map(ns),
            rcv_rtt_ns: None,
            ato_ns: None,
            snd_mss: info.snd_mss,
            pmtu: None,
            rcv_mss: info.rcv_mss,
            advmss: None,
            snd_cwnd: info.snd_cwnd,
            snd_ssthresh: info.snd_ssthresh,
            snd_wnd: info.snd_wnd,
            rcv_wnd: info.rcv_wnd,
            bytes_sent: info.bytes_sent,
            bytes_retrans: info.bytes_retrans,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            segs_out: None,
            segs_in: None,
            data_segs_out: info.data_segs_out,
            data_segs_in: info.data_segs_in,
            last_snd_ns: None,
            last_rcv_ns: None,
            last_ack_ns: None,
            pacing_rate: limit(info.pacing_rate),
            max_pacing_rate: None,
            delivery_rate: info.delivery_rate,
            delivery_rate_app_limited: info.delivery_rate_app_limited,
            delivered: None,
            busy_ns: None,
            rwnd_limited_ns: None,
            sndbuf_limited_ns: None,
            unacked: info.unacked,
            retrans: info.retrans,
            total_retrans: info.total_retrans,
            lost: info.lost,
            sacked: info.sacked,
            dsack_dups: None,
            reordering: None,
            rcv_space: None,
            notsent_bytes: info.notsent_bytes,
            notsent_lowat: None,
            rcv_queue_bytes: info.rcv_queue_bytes,
            wmem_alloc: info.wmem_alloc,
            wmem_queued: info.wmem_queued,
            sndbuf: info.sndbuf,
            rcvbuf: info.rcvbuf,
        }
    }
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSnapshot {
    /// Where it listens.
    pub local: SocketAddr,
    /// Connections that wait to be accepted.
    pub ready: u32,
    /// Connections whose handshake is not complete.
    pub half_open: u32,
    /// Most of either.
    pub backlog: u32,
}

/// Where time and bytes went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportSnapshot {
    /// What nothing was sent for, and for how long, in a fixed order.
    pub shares: Vec<Share>,
    /// The queues on the way out, in the order in which a byte passes them.
    pub queues: Vec<QueueSnapshot>,
}

/// The time that went to one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// The gate that was shut: `pacing`, `cwnd`, `peer-window` …
    pub reason: String,
    /// For how long.
    pub time_ns: u64,
}

/// A queue on the way out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// `unsent`, `device`, `in flight`.
    pub name: String,
    /// In it now.
    pub bytes: u64,
    /// How long the oldest byte has been there.
    pub oldest_ns: Option<u64>,
    /// How long bytes stayed that have left: how many in each interval. Interval 0 ends at 1 µs, each following one
    /// at twice that.
    pub sojourn_log2_us: Vec<u64>,
}

/// The report of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnReportSnapshot {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Where its time and bytes went.
    pub report: ReportSnapshot,
}

pub(crate) fn conn_ids(_stack: &Stack) -> Vec<ConnId> {
    Vec::new()
}
pub(crate) fn conn(stack: &mut Stack, id: ConnId, now: Instant) -> Option<ConnInfo> {
    Some(stack.conn_mut(id)?.info(now))
}
pub(crate) fn conn_report(
    _stack: &mut Stack,
    _id: ConnId,
    _now: Instant,
) -> Option<(SocketAddr, SocketAddr, ())> {
    None
}
pub(crate) fn report(_stack: &Stack, _now: Instant) -> ReportSnapshot {
    ReportSnapshot::default()
}
pub(crate) fn listeners(_stack: &Stack) -> Vec<ListenerSnapshot> {
    Vec::new()
}
pub(crate) fn sysctls(_stack: &Stack) -> Vec<Setting> {
    Vec::new()
}
pub(crate) fn sysctl(_stack: &Stack, name: &str) -> Result<String, String> {
    Err(format!("no setting {name:?}"))
}
pub(crate) fn set_sysctl(_stack: &mut Stack, name: &str, _value: &str) -> Result<(), String> {
    Err(format!("no setting {name:?}"))
}

impl From<&(SocketAddr, SocketAddr, ())> for ConnReportSnapshot {
    fn from((local, peer, ()): &(SocketAddr, SocketAddr, ())) -> Self {
        Self { local: *local, peer: *peer, report: ReportSnapshot::default() }
    }
}
