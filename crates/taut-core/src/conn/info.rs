//! A snapshot of a connection at any time: Linux's `TCP_INFO`, in its names and units, and the report on what
//! held it back. Called by the application, by `taut ss` and by `taut explain`.

use alloc::string::String;
use core::net::SocketAddr;

use super::Conn;
use super::report::Report;
use super::state::State;
use crate::buffers::Spare;
use crate::congestion::Algorithm;
use crate::egress::{Blocked, Queue, Shared};
use crate::fast_open::FastOpenFail;
use crate::settings::config::StackConfig;
use crate::words::{Duration, Instant, LinkCaps};

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
    /// State of loss recovery: `open`, `disorder`, `cwr`, `recovery` or `loss`. Linux: `tcpi_ca_state`.
    pub ca_state: &'static str,
    /// Which gate was shut when the connection was last asked for a packet.
    pub blocked: Blocked,
    /// RFC 7323 timestamps are in use.
    pub timestamps: bool,
    /// RFC 2018 SACK is in use.
    pub sack: bool,
    /// Data in a SYN was acknowledged, by either end. Linux: `TCPI_OPT_SYN_DATA`.
    pub syn_data: bool,
    /// A SYN with a cookie opened this connection. Linux: `TCPI_OPT_TFO_CHILD`.
    pub fast_open_child: bool,
    /// Why data in our SYN was not acknowledged, or why there was none. Linux: `tcpi_fastopen_client_fail`.
    pub fast_open_fail: FastOpenFail,
    /// ECN is in use. Linux: `TCPI_OPT_ECN`.
    pub ecn: bool,
    /// The peer has sent a packet marked as ECN-capable. Linux: `TCPI_OPT_ECN_SEEN`.
    pub ecn_seen: bool,
    /// Shift of the windows that the peer offers; `None` without window scaling.
    pub snd_wscale: Option<u8>,
    /// Shift of the windows that we offer.
    pub rcv_wscale: Option<u8>,
    /// Congestion control in use.
    pub congestion: Algorithm,
    /// Smoothed round-trip time, once one was measured.
    pub rtt: Option<Duration>,
    /// RFC 6298's variance term.
    pub rttvar: Duration,
    /// The lowest recent round-trip time.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// How often the timeout has doubled. Linux: `tcpi_backoff`.
    pub backoff: u8,
    /// Consecutive timeouts, of a SYN or of data. Linux: `tcpi_retransmits`.
    pub retransmits: u8,
    /// Unanswered probes of a closed window, or keepalives. Linux: `tcpi_probes`.
    pub probes: u8,
    /// `IP_TOS`, without the two bits of ECN.
    pub tos: u8,
    /// Segment size for sending, in payload bytes.
    pub snd_mss: u32,
    /// Segment size of received data, as estimated.
    pub rcv_mss: u32,
    /// The segment size that we announced, less the bytes of timestamps.
    pub advmss: u32,
    /// Largest packet the path is thought to carry, headers included.
    pub pmtu: u32,
    /// Delay of a delayed ACK.
    pub ato: Duration,
    /// Time since data was last sent.
    pub last_data_sent: Duration,
    /// Time since data was last received, or since the handshake if none was, to the millisecond.
    pub last_data_recv: Duration,
    /// Time since any segment was last received.
    pub last_ack_recv: Duration,
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
    /// The most segments by which one is known to have been overtaken; at least 3. Linux: `tcpi_reordering`.
    pub reordering: u32,
    /// How often that was seen. Linux: `tcpi_reord_seen`.
    pub reord_seen: u32,
    /// Segments that D-SACKs reported as received twice. Linux: `tcpi_dsack_dups`.
    pub dsack_dups: u32,
    /// Retransmission timeouts, those of SYNs included, wrapping. Linux: `tcpi_total_rto`.
    pub total_rto: u16,
    /// Bytes written and not sent.
    pub notsent_bytes: u64,
    /// TCP_NOTSENT_LOWAT in force.
    pub notsent_lowat: u32,
    /// Bytes received and not read.
    pub rcv_queue_bytes: u64,
    /// Bytes received beyond a gap.
    pub rcv_ooo_bytes: u64,
    /// Segments received beyond a gap, wrapping. Linux: `tcpi_rcv_ooopack`.
    pub rcv_ooopack: u32,
    /// The most bytes that the application read in a round trip. Linux: `tcpi_rcv_space`.
    pub rcv_space: u32,
    /// What the next read can return: unread bytes, or 1 for the end of the stream. Linux: `TCP_INQ`.
    pub inq: u64,
    /// Pacing rate in bytes per second; `u64::MAX` is no limit.
    pub pacing_rate: u64,
    /// `SO_MAX_PACING_RATE` in bytes per second; `u64::MAX` is no limit.
    pub max_pacing_rate: u64,
    /// Departure times are left to the link ([`LinkCaps::paces`]), which spaces packets by them.
    pub pacing_delegated: bool,
    /// Delivery rate in bytes per second.
    pub delivery_rate: u64,
    /// Whether the sample that `delivery_rate` comes from was limited by the application.
    pub delivery_rate_app_limited: bool,
    /// Time during which data was unsent or unacknowledged; the two below are parts of it.
    pub busy_time: Duration,
    /// Time for which the peer's window kept data back.
    pub rwnd_limited: Duration,
    /// Time for which the send buffer kept the application from writing data that the network had room for.
    pub sndbuf_limited: Duration,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes retransmitted.
    pub bytes_retrans: u64,
    /// Payload bytes that the peer acknowledged.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments delivered to the peer, that is, acknowledged cumulatively or selectively.
    pub delivered: u64,
    /// Those of them that the peer reported as marked, wrapping. Linux: `tcpi_delivered_ce`.
    pub delivered_ce: u32,
    /// Packets received that were marked, with accurate ECN; wrapping. Linux: `tcpi_received_ce`.
    pub received_ce: Option<u32>,
    /// Segments sent, wrapping.
    pub segs_out: u32,
    /// Segments received, wrapping.
    pub segs_in: u32,
    /// Segments sent that carried data.
    pub data_segs_out: u64,
    /// Segments received that carried data.
    pub data_segs_in: u64,
    /// Segments retransmitted since the beginning.
    pub total_retrans: u64,
    /// Bytes below TCP, overhead included: outstanding tickets.
    pub wmem_alloc: u32,
    /// The rule of the small queue that holds: `measured`, `delivered`, `rate-scaled`, `fixed` or `off`
    /// (`taut.tsq`).
    pub tsq_rule: &'static str,
    /// What may be below TCP by that rule. `measured`: payload of all connections of the stack. Else bytes of
    /// this connection, overhead included, for its next full packet. `None` if there is no limit.
    pub tsq_limit: Option<u64>,
    /// The completion time, once it was measured. By `delivered` above a link that paces: how late the stack
    /// may look, if it was late.
    pub tsq_time: Option<Duration>,
    /// Bytes in the write queue and in flight, overhead included.
    pub wmem_queued: u32,
    /// Send buffer limit.
    pub sndbuf: u32,
    /// Receive buffer limit.
    pub rcvbuf: u32,
    /// Round-trip time as measured by the receiving half.
    pub rcv_rtt: Option<Duration>,
}

impl Conn {
    /// The state of the congestion control, in words.
    pub(crate) fn congestion_state(&self) -> String {
        self.tx.congestion().describe()
    }

    /// A snapshot in `TCP_INFO`'s terms.
    pub(crate) fn info(
        &self,
        link: &LinkCaps,
        config: &StackConfig,
        shared: &Shared,
        now: Instant,
    ) -> ConnInfo {
        let send = self.send_cx_at(now, link, config, Spare::ANY, shared);
        let recovery = self.tx.recovery();
        let ledger = self.tx.ledger();
        let [busy, rwnd_limited, sndbuf_limited] =
            ledger.map_or([Duration::ZERO; 3], |ledger| ledger.chrono.spent_until(now));
        let bytes_retrans = ledger.map_or(0, |ledger| ledger.bytes_retrans);
        let room = self.tx.held_bytes(&send);
        let first = self.handshake.first();
        let (data_segs_out, segs_out) = self.tx.segs_out();
        let (bytes_received, data_segs_in) = self.rx.received();
        let delayed_ack = self.rx.delayed_ack();
        let sent_until = self.tx.nxt().min(self.tx.written_until());
        let (reordering, reord_seen, dsack_dups) = recovery.reordering();
        let (rcv_ooopack, rcv_space) = self.rx.tcp_info();
        let (syn_data, fast_open_child, fast_open_fail) = self.fast_open_info();
        ConnInfo {
            state: self.state,
            local: self.tuple.local.into(),
            peer: self.tuple.peer.into(),
            ca_state: recovery.state().name(),
            blocked: self.blocked(),
            timestamps: self.agreed.timestamps.on,
            sack: self.agreed.sack(),
            syn_data,
            fast_open_child,
            fast_open_fail,
            ecn: self.ecn().is_on(),
            ecn_seen: self.ecn().seen(),
            snd_wscale: self.agreed.peer_wscale(),
            rcv_wscale: self.agreed.own_wscale(),
            congestion: self.tx.congestion().algorithm().clone(),
            rtt: recovery.srtt(),
            rttvar: recovery.rttvar(),
            min_rtt: recovery.min_rtt(),
            rto: recovery.rto(&config.recovery),
            backoff: recovery.backoff(),
            retransmits: if self.state.is_synchronized() { recovery.timeouts() } else { self.syns.retries },
            probes: self.unanswered_probes(),
            tos: self.tos(),
            snd_mss: self.mss(),
            rcv_mss: delayed_ack.rcv_mss().into(),
            advmss: self.agreed.advmss(),
            pmtu: u32::from(self.agreed.mss()) + self.agreed.headers_len(),
            ato: delayed_ack.ato(),
            last_data_sent: now.since(recovery.last_sent_at()),
            last_data_recv: delayed_ack.since_last_data(now),
            last_ack_recv: now.since(self.arrived_at()),
            snd_cwnd: self.tx.congestion().cwnd(),
            snd_ssthresh: self.tx.congestion().ssthresh(),
            snd_wnd: self.tx.window_bytes(),
            rcv_wnd: self.rx.window() as u32,
            unacked: recovery.packets_out(),
            sacked: recovery.sacked_out(),
            lost: recovery.lost_out(),
            retrans: recovery.retrans_out(),
            reordering,
            reord_seen,
            dsack_dups,
            total_rto: self.total_timeouts(),
            notsent_bytes: self.tx.unsent(),
            notsent_lowat: room.lowat,
            rcv_queue_bytes: self.rx.unread(),
            rcv_ooo_bytes: self.rx.out_of_order(),
            rcv_ooopack,
            rcv_space,
            inq: self.inq(),
            pacing_rate: self.tx.congestion().pacing_rate(),
            max_pacing_rate: self.max_pacing_rate(),
            pacing_delegated: config.send.pacing.is_delegated(link.paces),
            delivery_rate: self.tx.delivery_sample().0,
            delivery_rate_app_limited: self.tx.delivery_sample().1,
            busy_time: busy + rwnd_limited + sndbuf_limited,
            rwnd_limited,
            sndbuf_limited,
            bytes_sent: sent_until - first + bytes_retrans,
            bytes_retrans,
            bytes_acked: self.tx.kept_from() - first,
            bytes_received,
            delivered: recovery.delivered(),
            delivered_ce: self.ecn().delivered_ce(),
            received_ce: self.ecn().received_ce(),
            segs_out,
            segs_in: self.segs_in,
            data_segs_out: data_segs_out.into(),
            data_segs_in: data_segs_in.into(),
            total_retrans: recovery.total_retrans().into(),
            wmem_alloc: self.tx.outstanding(),
            tsq_rule: config.send.tsq.rule(link),
            tsq_limit: self.tx.tsq_limit(&send),
            tsq_time: match send.device {
                Some(_) => shared.meter.time(),
                None => Some(send.ahead).filter(|ahead| !ahead.is_zero() && link.paces),
            },
            wmem_queued: room.queued,
            sndbuf: room.sndbuf,
            rcvbuf: self.rx.rcvbuf(),
            rcv_rtt: self.rx.rtt(),
        }
    }

    /// Adds this connection to `report`: how long each gate held it back, and its bytes in each queue.
    pub(crate) fn report_to(&self, report: &mut Report, now: Instant, shares: bool) {
        let Some(ledger) = self.tx.ledger() else { return };
        if shares {
            for ((_, sum), share) in report.shares.iter_mut().zip(ledger.shares_until(now)) {
                *sum += share;
            }
            report.lateness.most = ledger.late_most();
        }
        let in_device = u64::from(ledger.device_bytes());
        let sent = self.tx.nxt().min(self.tx.written_until()).saturating_sub(self.tx.una());
        for (queue, entry) in Queue::ALL.into_iter().zip(&mut report.queues) {
            let (bytes, oldest) = match queue {
                Queue::Unsent => (self.tx.unsent(), ledger.unsent_age(now)),
                Queue::Device => (in_device, Some(ledger.device_age(now))),
                // For TCP, bytes in the device have been sent.
                Queue::InFlight => {
                    let oldest = self.tx.recovery().head_sent_at().map(|at| now.since(at));
                    (sent.saturating_sub(in_device), oldest)
                }
            };
            entry.bytes += bytes;
            entry.oldest = entry.oldest.max(oldest.filter(|_| bytes > 0));
            if shares {
                entry.sojourn.add(&ledger.sojourn(queue));
            }
        }
    }
}
