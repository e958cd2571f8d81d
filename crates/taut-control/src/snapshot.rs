//! The core's values in a serialisable form. No other file knows both forms.
//!
//! Everything is copied under the stack's lock and serialised without it. Called by `session.rs`; read
//! through a [`Client`](crate::Client).

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use taut_core::{
    ConnId, ConnInfo, DatagramKind, Duration, FlowKind, FlowState, Gate, Histogram, Instant, QueueReport,
    Report, Stack, State, SysctlError,
};

use crate::protocol::{Counter, Setting};

/// A connection, in `TCP_INFO`'s terms. A value that is not known is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnSnapshot {
    /// State of RFC 9293 in `ss`'s words: `ESTAB`, `SYN-SENT` …
    pub state: String,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Congestion control in use, with the chosen parameters: `bbr`, `mine:gain=2.5`.
    pub congestion: String,
    /// Its description of itself: words and `name:value` pairs, separated by blanks; may be empty.
    #[serde(default)]
    pub congestion_state: String,
    /// The state of loss recovery: `open`, `disorder`, `cwr`, `recovery` or `loss`.
    pub ca_state: String,
    /// Which gate was shut when the connection was last asked for a packet.
    pub blocked: String,
    /// RFC 7323 timestamps are in use.
    pub timestamps: bool,
    /// RFC 2018 SACK is in use.
    pub sack: bool,
    /// ECN is in use.
    #[serde(default)]
    pub ecn: bool,
    /// The peer has sent a packet marked as ECN-capable.
    #[serde(default)]
    pub ecn_seen: bool,
    /// Data in a SYN was acknowledged.
    #[serde(default)]
    pub syn_data: bool,
    /// `tcpi_fastopen_client_fail`.
    #[serde(default)]
    pub fast_open_fail: u8,
    /// `IP_TOS`.
    #[serde(default)]
    pub tos: u8,
    /// Shift of the peer's window; `None` without window scaling.
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
    /// The lowest recent round-trip time.
    pub min_rtt_ns: Option<u64>,
    /// Round-trip time as measured by the receiving half.
    pub rcv_rtt_ns: Option<u64>,
    /// How long an ACK is delayed.
    pub ato_ns: u64,
    /// Segment size for sending, in payload bytes.
    pub snd_mss: u32,
    /// Path MTU.
    pub pmtu: u32,
    /// Segment size of the received data, as estimated.
    pub rcv_mss: u32,
    /// Segment size announced to the peer.
    pub advmss: u32,
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
    /// Payload bytes retransmitted.
    pub bytes_retrans: u64,
    /// Payload bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments sent, wrapping.
    pub segs_out: u32,
    /// Segments received, wrapping.
    pub segs_in: u32,
    /// Segments sent that carried data.
    pub data_segs_out: u64,
    /// Segments received that carried data.
    pub data_segs_in: u64,
    /// Time since data was last sent; `None` if never.
    pub last_snd_ns: Option<u64>,
    /// Time since data was last received; `None` if never.
    pub last_rcv_ns: Option<u64>,
    /// Time since anything was last received.
    pub last_ack_ns: u64,
    /// Pacing rate in bytes per second; `None` if there is no limit.
    pub pacing_rate: Option<u64>,
    /// The highest allowed pacing rate, in bytes per second; `None` if there is no limit.
    pub max_pacing_rate: Option<u64>,
    /// Departure times are left to the queue below, such as a kernel's `fq`.
    #[serde(default)]
    pub pacing_delegated: bool,
    /// The rule of the small queue that holds.
    #[serde(default)]
    pub tsq: TsqSnapshot,
    /// Delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// Whether the last delivery-rate sample was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// Segments delivered.
    pub delivered: u64,
    /// Time in which there was something to send.
    pub busy_ns: u64,
    /// Part of it in which the peer's window was shut.
    pub rwnd_limited_ns: u64,
    /// Part of it in which the send buffer was too small.
    pub sndbuf_limited_ns: u64,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments retransmitted and not acknowledged.
    pub retrans: u32,
    /// Segments retransmitted since the beginning.
    pub total_retrans: u64,
    /// Segments thought lost.
    pub lost: u32,
    /// Segments selectively acknowledged.
    pub sacked: u32,
    /// The most segments by which one is known to have been overtaken; 3 if none.
    #[serde(default)]
    pub reordering: u32,
    /// How often that was seen.
    #[serde(default)]
    pub reord_seen: u32,
    /// Segments that D-SACKs reported as received twice.
    #[serde(default)]
    pub dsack_dups: u32,
    /// Segments delivered that the peer reported as marked.
    #[serde(default)]
    pub delivered_ce: u32,
    /// Segments received beyond a gap.
    #[serde(default)]
    pub rcv_ooopack: u32,
    /// The most bytes that the application read in a round trip.
    #[serde(default)]
    pub rcv_space: u32,
    /// Retransmission timeouts.
    #[serde(default)]
    pub total_rto: u16,
    /// Bytes written and not sent.
    pub notsent_bytes: u64,
    /// Unsent bytes at which it stops being writable; `None` if there is no mark.
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

/// In the core, `u64::MAX` means "no limit".
fn limit(rate: u64) -> Option<u64> {
    (rate != u64::MAX).then_some(rate)
}

/// A state as `ss` prints it.
pub(crate) const fn state_name(state: State) -> &'static str {
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

/// Every counter by name.
pub(crate) fn counters(stack: &Stack) -> Vec<Counter> {
    stack.counters().iter().map(|(name, value)| Counter { name: name.to_owned(), value }).collect()
}

/// Adds the counters of another shard, which are in the same order.
pub(crate) fn add_counters(all: &mut Vec<Counter>, more: Vec<Counter>) {
    if all.is_empty() {
        *all = more;
        return;
    }
    for (counter, more) in all.iter_mut().zip(more) {
        counter.value += more.value;
    }
}

/// A connection, and the description of its congestion control.
pub(crate) struct Conn {
    info: ConnInfo,
    congestion_state: String,
}

/// Copies a connection.
pub(crate) fn conn(stack: &Stack, id: ConnId, now: Instant) -> Option<Conn> {
    let info = stack.conn(id).map(|conn| conn.info(now))?;
    Some(Conn { info, congestion_state: stack.conn(id).map(|conn| conn.congestion()).unwrap_or_default() })
}

impl From<&Conn> for ConnSnapshot {
    fn from(conn: &Conn) -> Self {
        Self { congestion_state: conn.congestion_state.clone(), ..(&conn.info).into() }
    }
}

impl From<&ConnInfo> for ConnSnapshot {
    fn from(info: &ConnInfo) -> Self {
        Self {
            state: state_name(info.state).to_owned(),
            local: info.local,
            peer: info.peer,
            congestion: info.congestion.to_string(),
            congestion_state: String::new(),
            ca_state: info.ca_state.to_owned(),
            blocked: info.blocked.name().to_owned(),
            timestamps: info.timestamps,
            sack: info.sack,
            ecn: info.ecn,
            ecn_seen: info.ecn_seen,
            syn_data: info.syn_data,
            fast_open_fail: info.fast_open_fail.number(),
            tos: info.tos,
            snd_wscale: info.snd_wscale,
            rcv_wscale: info.rcv_wscale,
            rto_ns: ns(info.rto),
            backoff: info.backoff,
            rtt_ns: info.rtt.map(ns),
            rttvar_ns: ns(info.rttvar),
            min_rtt_ns: info.min_rtt.map(ns),
            rcv_rtt_ns: info.rcv_rtt.map(ns),
            ato_ns: ns(info.ato),
            snd_mss: info.snd_mss,
            pmtu: info.pmtu,
            rcv_mss: info.rcv_mss,
            advmss: info.advmss,
            snd_cwnd: info.snd_cwnd,
            snd_ssthresh: info.snd_ssthresh,
            snd_wnd: info.snd_wnd,
            rcv_wnd: info.rcv_wnd,
            bytes_sent: info.bytes_sent,
            bytes_retrans: info.bytes_retrans,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            segs_out: info.segs_out,
            segs_in: info.segs_in,
            data_segs_out: info.data_segs_out,
            data_segs_in: info.data_segs_in,
            last_snd_ns: (info.data_segs_out > 0).then(|| ns(info.last_data_sent)),
            last_rcv_ns: (info.data_segs_in > 0).then(|| ns(info.last_data_recv)),
            last_ack_ns: ns(info.last_ack_recv),
            pacing_rate: limit(info.pacing_rate),
            max_pacing_rate: limit(info.max_pacing_rate),
            pacing_delegated: info.pacing_delegated,
            tsq: TsqSnapshot::from(info),
            delivery_rate: info.delivery_rate,
            delivery_rate_app_limited: info.delivery_rate_app_limited,
            delivered: info.delivered,
            busy_ns: ns(info.busy_time),
            rwnd_limited_ns: ns(info.rwnd_limited),
            sndbuf_limited_ns: ns(info.sndbuf_limited),
            unacked: info.unacked,
            retrans: info.retrans,
            total_retrans: info.total_retrans,
            lost: info.lost,
            sacked: info.sacked,
            reordering: info.reordering,
            reord_seen: info.reord_seen,
            dsack_dups: info.dsack_dups,
            delivered_ce: info.delivered_ce,
            rcv_ooopack: info.rcv_ooopack,
            rcv_space: info.rcv_space,
            total_rto: info.total_rto,
            notsent_bytes: info.notsent_bytes,
            notsent_lowat: (info.notsent_lowat != u32::MAX).then_some(info.notsent_lowat),
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
    /// The address at which it listens.
    pub local: SocketAddr,
    /// Connections that wait to be accepted.
    pub ready: u32,
    /// Connections whose handshake is not complete.
    pub half_open: u32,
    /// The limit of each.
    pub backlog: u32,
}

/// A datagram socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramSnapshot {
    /// `udp` or `icmp`.
    pub netid: String,
    /// The address that it is bound to; its port is the identifier of a ping socket.
    pub local: SocketAddr,
    /// The address that it is connected to.
    pub peer: Option<SocketAddr>,
    /// What waits to be received, overhead included.
    pub recv_queue: u32,
    /// What was sent and has not left, overhead included.
    pub send_queue: u32,
    /// Receive buffer limit.
    pub rcvbuf: u32,
    /// Send buffer limit.
    pub sndbuf: u32,
    /// Datagrams that arrived when there was no room for them.
    pub drops: u64,
}

impl DatagramSnapshot {
    /// `ss`'s word for its state.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        if self.peer.is_some() { "ESTAB" } else { "UNCONN" }
    }
}

/// Copies the facts about the datagram sockets.
pub(crate) fn datagrams(stack: &Stack) -> Vec<DatagramSnapshot> {
    let snapshot = |socket: taut_core::DatagramInfo| DatagramSnapshot {
        netid: match socket.kind {
            DatagramKind::Udp => "udp".to_owned(),
            DatagramKind::Ping | DatagramKind::Echo => "icmp".to_owned(),
        },
        local: socket.local,
        peer: socket.peer,
        recv_queue: socket.recv_queue,
        send_queue: socket.send_queue,
        rcvbuf: socket.rcvbuf,
        sndbuf: socket.sndbuf,
        drops: socket.drops,
    };
    stack.datagrams().map(snapshot).collect()
}

/// Where time and bytes went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportSnapshot {
    /// Why nothing was sent, and for how long, in a fixed order.
    pub shares: Vec<Share>,
    /// The queues of the send path, in the order in which a byte passes them.
    pub queues: Vec<QueueSnapshot>,
    /// How late the stack was woken up for packets that waited for their departure time, in ascending
    /// intervals without the empty ones; counted only for the whole stack.
    pub lateness: Vec<Interval>,
    /// The most of it.
    pub late_most_ns: u64,
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

/// A queue of the send path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// `unsent`, `device`, `in flight`.
    pub name: String,
    /// Bytes in it now.
    pub bytes: u64,
    /// How long the oldest byte has been there: for `unsent` a lower bound, for `device` an upper bound.
    pub oldest_ns: Option<u64>,
    /// Samples of how long bytes stayed, in ascending intervals without the empty ones.
    pub sojourn: Vec<Interval>,
}

/// Samples that lie in one interval of a histogram: below its bound, and not below that of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// The upper bound; `None` if there is none.
    pub below_ns: Option<u64>,
    /// The number of samples.
    pub count: u64,
}

/// The rule of the small queue that holds for a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TsqSnapshot {
    /// `measured`, `delivered`, `rate-scaled`, `fixed` or `off`; empty from a stack that does not say.
    pub rule: String,
    /// Bytes that may be below TCP: `measured`, the payload of all connections of the stack; else those of
    /// this connection, overhead included. `None` if there is no limit.
    pub limit: Option<u64>,
    /// How long completions take, once that was measured.
    pub time_ns: Option<u64>,
}

impl From<&ConnInfo> for TsqSnapshot {
    fn from(info: &ConnInfo) -> Self {
        Self { rule: info.tsq_rule.to_owned(), limit: info.tsq_limit, time_ns: info.tsq_time.map(ns) }
    }
}

/// The report of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnReportSnapshot {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Departure times are left to the queue below, such as a kernel's `fq`.
    #[serde(default)]
    pub pacing_delegated: bool,
    /// The rule of the small queue that holds.
    #[serde(default)]
    pub tsq: TsqSnapshot,
    /// Where its time and bytes went.
    pub report: ReportSnapshot,
}

impl From<&Report> for ReportSnapshot {
    fn from(report: &Report) -> Self {
        let share =
            |&(gate, time): &(Gate, Duration)| Share { reason: gate.name().to_owned(), time_ns: ns(time) };
        Self {
            shares: report.shares.iter().map(share).collect(),
            queues: report.queues.iter().map(QueueSnapshot::from).collect(),
            lateness: intervals(&report.lateness.times),
            late_most_ns: ns(report.lateness.most),
        }
    }
}

/// The intervals of a histogram in which there are samples.
fn intervals(histogram: &Histogram) -> Vec<Interval> {
    let last = Histogram::BUCKETS - 1;
    let interval = |(index, &count): (usize, &u64)| Interval {
        below_ns: (index != last).then(|| ns(Histogram::bound(index))),
        count,
    };
    let all = histogram.counts().iter().enumerate().map(interval);
    all.filter(|interval| interval.count > 0).collect()
}

impl From<&QueueReport> for QueueSnapshot {
    fn from(queue: &QueueReport) -> Self {
        Self {
            name: queue.name.to_owned(),
            bytes: queue.bytes,
            oldest_ns: queue.oldest.map(ns),
            sojourn: intervals(&queue.sojourn),
        }
    }
}

/// A report, and the connection that it is about.
pub(crate) struct ConnReport {
    local: SocketAddr,
    peer: SocketAddr,
    pacing_delegated: bool,
    tsq: TsqSnapshot,
    report: Report,
}

impl From<&ConnReport> for ConnReportSnapshot {
    fn from(conn: &ConnReport) -> Self {
        let ConnReport { local, peer, pacing_delegated, ref tsq, ref report } = *conn;
        Self { local, peer, pacing_delegated, tsq: tsq.clone(), report: report.into() }
    }
}

/// Copies a report.
pub(crate) fn conn_report(stack: &Stack, id: ConnId, now: Instant) -> Option<ConnReport> {
    let info = stack.conn(id).map(|conn| conn.info(now))?;
    Some(ConnReport {
        local: info.local,
        peer: info.peer,
        pacing_delegated: info.pacing_delegated,
        tsq: TsqSnapshot::from(&info),
        report: stack.conn(id).map(|conn| conn.report(now))?,
    })
}

/// A flow that waits for a decision of the application, or that it has dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSnapshot {
    /// `PENDING`, or `DROPPED`: its SYNs are not answered, or its datagrams not kept.
    pub state: String,
    /// `tcp`, `udp` or `icmp`.
    #[serde(default = "tcp")]
    pub netid: String,
    /// Where it wants to go.
    pub local: SocketAddr,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// The application has it.
    pub seen: bool,
    /// How often its SYN has come; 0 if it is no connection.
    pub syns: u8,
    /// MSS of its SYN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u16>,
    /// When it is forgotten, from now.
    pub expires_ns: u64,
}

/// The flows in a stack of an earlier version.
fn tcp() -> String {
    "tcp".to_owned()
}

/// The most flows of a shard that are shown.
pub const FLOWS_MAX: usize = 10_000;

/// Copies the facts about flows.
pub(crate) fn flows(stack: &Stack, now: Instant) -> Vec<FlowSnapshot> {
    let shown = stack.flows().take(FLOWS_MAX);
    shown
        .map(|flow| FlowSnapshot {
            state: if flow.state == FlowState::Dropped { "DROPPED" } else { "PENDING" }.to_owned(),
            local: flow.local,
            peer: flow.peer,
            seen: flow.state != FlowState::New,
            netid: match flow.kind {
                FlowKind::Tcp => "tcp",
                FlowKind::Udp => "udp",
                FlowKind::Echo => "icmp",
            }
            .to_owned(),
            syns: flow.syn.map_or(0, |syn| syn.count),
            mss: flow.syn.and_then(|syn| syn.mss),
            expires_ns: ns(flow.deadline.since(now)),
        })
        .collect()
}

/// Copies the facts about the listeners.
pub(crate) fn listeners(stack: &Stack) -> Vec<ListenerSnapshot> {
    let mut all: Vec<_> = stack
        .listeners()
        .map(|listener| ListenerSnapshot {
            local: listener.addr,
            ready: listener.ready,
            half_open: listener.half_open,
            backlog: listener.backlog,
        })
        .collect();
    all.sort_by_key(|listener| (listener.local.port(), listener.local.ip()));
    all
}

/// Adds the listeners of another shard; two that listen at the same address become one.
pub(crate) fn add_listeners(all: &mut Vec<ListenerSnapshot>, more: Vec<ListenerSnapshot>) {
    for listener in more {
        match all.iter_mut().find(|other| other.local == listener.local) {
            Some(other) => {
                other.ready += listener.ready;
                other.half_open += listener.half_open;
                other.backlog = other.backlog.saturating_add(listener.backlog);
            }
            None => all.push(listener),
        }
    }
}

/// Every setting.
pub(crate) fn settings(stack: &Stack) -> Vec<Setting> {
    stack.sysctls().map(|(name, value)| Setting { name: name.to_owned(), value }).collect()
}

/// The setting with that name, which may lack `net.ipv4.`; returned with its full name.
pub(crate) fn setting(stack: &Stack, name: &str) -> Result<Setting, SysctlError> {
    let value = stack.sysctl(name)?;
    let is_it = |whole: &&str| *whole == name || whole.strip_prefix("net.ipv4.") == Some(name);
    let whole = stack.sysctls().map(|(whole, _)| whole).find(is_it);
    Ok(Setting { name: whole.unwrap_or(name).to_owned(), value })
}
