//! Where all bytes of a run are at one moment, for a picture that moves. Called between two steps of a run,
//! which it does not change.

use taut_core::Gate;
use taut_sim::BEGIN;

use super::Simulation;
use super::plan::Source;
use crate::view;

/// One moment of a run. Sums are over the flows that are measured and over their hosts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Seconds since the run began.
    pub t_s: f64,
    /// Payload written but not sent.
    pub unsent_bytes: u64,
    /// IP packets in the senders' root queue disciplines.
    pub qdisc_bytes: u64,
    /// IP packets in their NICs, including those that left and are not completed.
    pub ring_bytes: u64,
    /// IP packets at the bottleneck; `None` where the NIC is the bottleneck.
    pub bottleneck_bytes: Option<u64>,
    /// Payload that left the host and is not acknowledged.
    pub in_flight_bytes: u64,
    /// Payload that receivers hold, out of order or unread.
    pub receiver_bytes: u64,
    /// Payload acknowledged so far.
    pub acked_bytes: u64,
    /// Congestion window of the first flow.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time of the first flow.
    pub srtt_s: Option<f64>,
    /// Pacing rate of the first flow; `None` without a limit.
    pub pacing_bps: Option<f64>,
    /// Packets dropped so far, in the network and in hosts.
    pub drops: u64,
    /// Payload retransmitted so far.
    pub retransmitted_bytes: u64,
    /// Requests answered so far.
    pub requests: u64,
    /// Duration of the longest request since the last frame.
    pub request_s: Option<f64>,
    /// Wake-ups of the senders' applications so far.
    pub wakeups: u64,
    /// Packets that the senders' stacks handed down so far: super-packets count once.
    pub packets: u64,
    /// Segments that left the senders' NICs so far.
    pub segments: u64,
    /// What holds the first flow back.
    pub gate: Option<Gate>,
}

impl Simulation {
    /// The run at this moment.
    pub fn frame(&mut self) -> Frame {
        let (world, now) = (&self.world, self.world.now());
        let mut frame = Frame {
            t_s: view::seconds(now.since(BEGIN)),
            bottleneck_bytes: self.net.bottleneck_bytes(world),
            drops: world.lost(),
            ..Frame::default()
        };
        for id in self.net.measured_senders() {
            let (qdisc_bytes, ring_bytes) = world.host_ref(id).below();
            frame.qdisc_bytes += qdisc_bytes;
            frame.ring_bytes += ring_bytes;
            let counts = world.counts(id);
            frame.wakeups += counts.wakeups;
            frame.packets += counts.packets_out;
            frame.segments += counts.segments_out;
        }
        for &id in &self.net.receivers {
            let stack = world.host_ref(id).stack();
            for conn in stack.conn_ids().filter_map(|conn| stack.conn(conn)) {
                let info = conn.info(now);
                frame.receiver_bytes += info.rcv_queue_bytes + info.rcv_ooo_bytes;
            }
        }
        let mut is_first = true;
        for (number, (flow, traffic)) in self.flows.iter().zip(&self.net.traffic).enumerate() {
            if traffic.is_beside {
                continue;
            }
            if let Source::Rr(stats) = &traffic.source {
                let latencies = &stats.borrow().latencies;
                let new =
                    latencies.iter().skip(std::mem::replace(&mut self.reported[number], latencies.len()));
                let longest = new.max().map(|latency| view::seconds(*latency));
                frame.request_s = longest
                    .map(|span| frame.request_s.map_or(span, |other| other.max(span)))
                    .or(frame.request_s);
                frame.requests += latencies.len() as u64;
            }
            let conn = flow.conn.or_else(|| traffic.source.conn());
            let stack = world.host_ref(traffic.from).stack();
            let Some(conn) = conn.and_then(|conn| stack.conn(conn)) else {
                frame.acked_bytes += flow.acked().max(traffic.source.finished_bytes().unwrap_or(0));
                continue;
            };
            let info = conn.info(now);
            frame.unsent_bytes += info.notsent_bytes;
            frame.in_flight_bytes += view::in_flight_bytes(&conn.report(now));
            frame.acked_bytes += info.bytes_acked;
            frame.retransmitted_bytes += info.bytes_retrans;
            if std::mem::take(&mut is_first) {
                frame.cwnd_bytes = u64::from(info.snd_cwnd) * u64::from(info.snd_mss);
                frame.srtt_s = info.rtt.map(view::seconds);
                frame.pacing_bps = view::pacing_bps(info.pacing_rate);
                frame.gate = Some(info.blocked.gate());
            }
        }
        frame
    }
}
