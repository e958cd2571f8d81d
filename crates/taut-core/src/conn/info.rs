//! What can be known of a connection at any time: Linux's `TCP_INFO`, in its names and units.

use core::net::SocketAddr;

use super::state::State;
use crate::congestion::Algorithm;
use crate::units::Duration;

/// A snapshot of one connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnInfo {
    /// State of RFC 9293 §3.3.2.
    pub state: State,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Congestion control in use.
    pub congestion: Algorithm,
    /// Smoothed round-trip time, if one was ever measured.
    pub rtt: Option<Duration>,
    /// RFC 6298's variance term.
    pub rttvar: Duration,
    /// Lowest round-trip time lately.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Consecutive timeouts.
    pub backoff: u8,
    /// Segment size for sending, in payload bytes.
    pub snd_mss: u32,
    /// Segment size seen on receiving.
    pub rcv_mss: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Slow-start threshold in segments.
    pub snd_ssthresh: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Our window in bytes, as last offered.
    pub rcv_wnd: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments selectively acknowledged.
    pub sacked: u32,
    /// Segments thought lost.
    pub lost: u32,
    /// Segments retransmitted and not acknowledged.
    pub retrans: u32,
    /// Bytes written and not sent.
    pub notsent_bytes: u64,
    /// Bytes received and not read.
    pub rcv_queue_bytes: u64,
    /// Pacing rate in bytes per second; `u64::MAX` is no limit.
    pub pacing_rate: u64,
    /// Delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// Whether the last delivery-rate sample was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Payload bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments sent that carried data.
    pub data_segs_out: u64,
    /// Segments received that carried data.
    pub data_segs_in: u64,
    /// Segments sent again, since the beginning.
    pub total_retrans: u64,
    /// Bytes below TCP, overhead included: outstanding tickets.
    pub wmem_alloc: u32,
    /// Bytes in the write queue and in flight, overhead included.
    pub wmem_queued: u32,
    /// Send buffer limit.
    pub sndbuf: u32,
    /// Receive buffer limit.
    pub rcvbuf: u32,
}
